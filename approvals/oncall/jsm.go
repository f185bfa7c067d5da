package oncall

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// jsm reads the operations API of Jira Service Management, which Opsgenie's schedules move to
// (developer.atlassian.com/cloud/jira/service-desk-ops/rest/v2, "List on-call responders"). It says who is on call
// now: a shift has no end, and counts for as long as an answer does. People are Atlassian account ids, and
// schedules have one level.
type jsm struct{ c *rest.Client }

// Shifts implements Source.
func (j jsm) Shifts(ctx context.Context, r policy.Reference, from, _ time.Time) ([]Shift, error) {
	id, err := j.id(ctx, r.Schedule)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Participants *[]struct {
			ID   string `json:"id"`
			Type string `json:"type"`
		} `json:"onCallParticipants"`
	}
	if err := j.c.GetJSON(ctx, "/v1/schedules/"+url.PathEscape(id)+"/on-calls", nil, &answer); err != nil {
		return nil, named(err)
	}
	if answer.Participants == nil {
		return nil, rest.ErrForm
	}
	var out []Shift
	for _, p := range *answer.Participants {
		if p.Type != "user" {
			continue // a team or an escalation, whose people the answer doesn't name
		}
		if p.ID == "" {
			return nil, rest.ErrForm
		}
		out = append(out, Shift{Person: Person{ID: p.ID}, Level: 1, From: from})
	}
	return out, nil
}

// id is the id of a schedule that is named by it or by its name.
func (j jsm) id(ctx context.Context, schedule string) (string, error) {
	if uuid.MatchString(schedule) {
		return schedule, nil
	}
	const size = 100
	for page := range maxPages {
		var list struct {
			Values *[]struct {
				ID   string `json:"id"`
				Name string `json:"name"`
			} `json:"values"`
		}
		err := j.c.GetJSON(ctx, "/v1/schedules", url.Values{"size": {strconv.Itoa(size)}, "offset": {strconv.Itoa(page * size)}}, &list)
		if e, ok := errors.AsType[*rest.StatusError](err); ok && e.Status == http.StatusNotFound {
			return "", errors.New("answered 404; check that its url ends with your cloud id, as in https://api.atlassian.com/jsm/ops/api/CLOUD-ID")
		}
		if err != nil {
			return "", err
		}
		if list.Values == nil {
			return "", rest.ErrForm
		}
		for _, s := range *list.Values {
			if s.ID == schedule || s.Name == schedule {
				return s.ID, nil
			}
		}
		if len(*list.Values) < size {
			break
		}
	}
	return "", errors.New("has no schedule with that id or name")
}
