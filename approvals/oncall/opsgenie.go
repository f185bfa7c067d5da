package oncall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// opsgenie reads Opsgenie's schedule API (docs.opsgenie.com, "Get Schedule Timeline"). A level is a
// rotation's place in the schedule.
type opsgenie struct{ c *rest.Client }

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

type opsgenieTimeline struct {
	Data *struct {
		Final *struct {
			Rotations []opsgenieRotation `json:"rotations"`
		} `json:"finalTimeline"`
	} `json:"data"`
}

type opsgenieRotation struct {
	Order   float64 `json:"order"`
	Periods []struct {
		Start     time.Time `json:"startDate"`
		End       time.Time `json:"endDate"`
		Recipient struct {
			ID   string `json:"id"`
			Type string `json:"type"`
			Name string `json:"name"` // a user's is their address
		} `json:"recipient"`
	} `json:"periods"`
}

// Shifts implements Source.
func (o opsgenie) Shifts(ctx context.Context, r policy.Reference, from, to time.Time) ([]Shift, error) {
	kind := "name"
	if uuid.MatchString(r.Schedule) {
		kind = "id"
	}
	days := int(to.Sub(from)/(24*time.Hour)) + 1
	var answer opsgenieTimeline
	err := o.c.GetJSON(ctx, "/v2/schedules/"+url.PathEscape(r.Schedule)+"/timeline", url.Values{
		"identifierType": {kind}, "interval": {strconv.Itoa(days)}, "intervalUnit": {"days"}, "date": {from.UTC().Format("2006-01-02T15:04:05.000Z")},
	}, &answer)
	if e, ok := errors.AsType[*rest.StatusError](err); ok && e.Status == http.StatusGone {
		return nil, fmt.Errorf("was shut down on 2027-04-05 (it %w); its schedules are in Jira Service Management: use kind: jsm", err)
	}
	if err != nil {
		return nil, named(err)
	}
	if answer.Data == nil || answer.Data.Final == nil {
		return nil, rest.ErrForm
	}
	rotations := answer.Data.Final.Rotations
	slices.SortStableFunc(rotations, func(a, b opsgenieRotation) int { return cmp.Compare(a.Order, b.Order) })
	var out []Shift
	for i, rotation := range rotations {
		for _, p := range rotation.Periods {
			if p.Recipient.Type != "user" {
				continue // a gap, or a team, whose people the answer doesn't name
			}
			if p.Start.IsZero() || p.End.IsZero() || p.Recipient.ID+p.Recipient.Name == "" {
				return nil, rest.ErrForm
			}
			out = append(out, Shift{Person: Person{ID: p.Recipient.ID, Email: p.Recipient.Name}, Level: i + 1, From: p.Start, To: p.End})
		}
	}
	return out, nil
}
