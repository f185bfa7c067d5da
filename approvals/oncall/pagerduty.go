package oncall

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// pagerDuty reads PagerDuty's REST API v2 (developer.pagerduty.com, "List all of the on-calls").
type pagerDuty struct{ c *rest.Client }

type pagerDutyOnCall struct {
	User struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
		Name    string `json:"name"`
		Email   string `json:"email"`
	} `json:"user"`
	Schedule *struct {
		ID string `json:"id"`
	} `json:"schedule"`
	EscalationPolicy struct {
		ID string `json:"id"`
	} `json:"escalation_policy"`
	Level int        `json:"escalation_level"`
	Start *time.Time `json:"start"` // null: always
	End   *time.Time `json:"end"`
}

// Shifts implements Source. The levels are those of the escalation policies that have the schedule on
// the wanted level, so that what follows a schedule on level 1 is what PagerDuty would page next.
func (p pagerDuty) Shifts(ctx context.Context, r policy.Reference, from, to time.Time) ([]Shift, error) {
	policies := []string{r.Policy}
	var all []pagerDutyOnCall
	if r.Policy == "" {
		key := "schedule_ids[]"
		own, err := p.list(ctx, key, []string{r.Schedule}, from, to)
		if err != nil {
			return nil, err
		}
		if len(own) == 0 {
			return p.alone(ctx, r, from, to)
		}
		policies = nil
		for _, o := range own {
			if r.Level == 0 {
				all = append(all, o)
			} else if o.Level == r.Level && !slices.Contains(policies, o.EscalationPolicy.ID) {
				policies = append(policies, o.EscalationPolicy.ID)
			}
		}
	}
	if len(policies) > 0 {
		of, err := p.list(ctx, "escalation_policy_ids[]", policies, from, to)
		if err != nil {
			return nil, err
		}
		for _, o := range of {
			// Of the wanted level only the schedule itself counts.
			if r.Schedule == "" || o.Level != r.Level || o.Schedule != nil && o.Schedule.ID == r.Schedule {
				all = append(all, o)
			}
		}
	}
	var out []Shift
	for _, o := range all {
		if o.User.ID == "" || o.Level < 1 {
			return nil, rest.ErrForm
		}
		s := Shift{Person: Person{ID: o.User.ID, Name: o.User.Name, Email: o.User.Email}, Level: o.Level}
		if s.Person.Name == "" {
			s.Person.Name = o.User.Summary
		}
		if o.Start != nil {
			s.From = *o.Start
		}
		if o.End != nil {
			s.To = *o.End
		}
		out = append(out, s)
	}
	return out, nil
}

// alone looks up a schedule that isn't among the on-calls: nobody is on call, or no escalation policy uses it
// ("Get a schedule"). Without a policy it has no levels.
func (p pagerDuty) alone(ctx context.Context, r policy.Reference, from, to time.Time) ([]Shift, error) {
	var answer struct {
		Schedule *struct {
			Policies []struct{} `json:"escalation_policies"`
			Final    struct {
				Entries []struct {
					User struct {
						ID      string `json:"id"`
						Summary string `json:"summary"`
					} `json:"user"`
					Start time.Time `json:"start"`
					End   time.Time `json:"end"`
				} `json:"rendered_schedule_entries"`
			} `json:"final_schedule"`
		} `json:"schedule"`
	}
	err := p.c.GetJSON(ctx, "/schedules/"+url.PathEscape(r.Schedule), url.Values{
		"time_zone": {"UTC"}, "since": {from.UTC().Format(time.RFC3339)}, "until": {to.UTC().Format(time.RFC3339)},
	}, &answer)
	switch {
	case err != nil:
		return nil, named(err)
	case answer.Schedule == nil:
		return nil, rest.ErrForm
	case len(answer.Schedule.Policies) > 0:
		return nil, nil
	case r.Level > 0:
		return nil, fmt.Errorf("has no escalation policy that uses the schedule %s, so it has no levels; take level and escalate away, or add it to a policy", r.Schedule)
	}
	var out []Shift
	known := map[string]Person{}
	for _, e := range answer.Schedule.Final.Entries {
		if e.User.ID == "" || e.Start.IsZero() || e.End.IsZero() {
			return nil, rest.ErrForm
		}
		who, ok := known[e.User.ID]
		if !ok {
			if who, err = p.person(ctx, e.User.ID); err != nil {
				return nil, err
			}
			known[e.User.ID] = who
		}
		out = append(out, Shift{Person: who, Level: 1, From: e.Start, To: e.End})
	}
	return out, nil
}

// person looks somebody up: a schedule names only ids.
func (p pagerDuty) person(ctx context.Context, id string) (Person, error) {
	var answer struct {
		User *struct {
			ID    string `json:"id"`
			Name  string `json:"name"`
			Email string `json:"email"`
		} `json:"user"`
	}
	err := p.c.GetJSON(ctx, "/users/"+url.PathEscape(id), nil, &answer)
	if err == nil && answer.User == nil {
		err = rest.ErrForm
	}
	if err != nil {
		return Person{}, err
	}
	return Person{ID: answer.User.ID, Name: answer.User.Name, Email: answer.User.Email}, nil
}

func (p pagerDuty) list(ctx context.Context, key string, ids []string, from, to time.Time) (out []pagerDutyOnCall, err error) {
	q := url.Values{
		key: ids, "include[]": {"users"}, "limit": {"100"}, "time_zone": {"UTC"},
		"since": {from.UTC().Format(time.RFC3339)}, "until": {to.UTC().Format(time.RFC3339)},
	}
	for range maxPages {
		q.Set("offset", strconv.Itoa(len(out)))
		var page struct {
			OnCalls *[]pagerDutyOnCall `json:"oncalls"`
			More    bool               `json:"more"`
		}
		if err := p.c.GetJSON(ctx, "/oncalls", q, &page); err != nil {
			return nil, named(err)
		}
		if page.OnCalls == nil {
			return nil, rest.ErrForm
		}
		out = append(out, *page.OnCalls...)
		if !page.More || len(*page.OnCalls) == 0 {
			return out, nil
		}
	}
	return nil, rest.ErrForm
}
