package oncall

import (
	"context"
	"net/url"
	"slices"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// incidentIO reads incident.io's API (api-docs.incident.io, "Schedules V2"). A level is a rotation's
// place in the schedule.
type incidentIO struct{ c *rest.Client }

type incidentIOEntry struct {
	Start    time.Time `json:"start_at"`
	End      time.Time `json:"end_at"`
	Rotation string    `json:"rotation_id"`
	User     *struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
		Slack string `json:"slack_user_id"`
	} `json:"user"` // missing where nobody is on call
}

// Shifts implements Source.
func (i incidentIO) Shifts(ctx context.Context, r policy.Reference, from, to time.Time) ([]Shift, error) {
	var about struct {
		Schedule *struct {
			Config *struct {
				Rotations []struct {
					ID string `json:"id"`
				} `json:"rotations"`
			} `json:"config"`
		} `json:"schedule"`
	}
	if err := i.c.GetJSON(ctx, "/v2/schedules/"+url.PathEscape(r.Schedule), nil, &about); err != nil {
		return nil, named(err)
	}
	if about.Schedule == nil || about.Schedule.Config == nil {
		return nil, rest.ErrForm
	}
	var rotations []string
	for _, o := range about.Schedule.Config.Rotations {
		if !slices.Contains(rotations, o.ID) { // a rotation has an entry for each of its versions
			rotations = append(rotations, o.ID)
		}
	}
	var answer struct {
		Entries *struct {
			Final *[]incidentIOEntry `json:"final"`
		} `json:"schedule_entries"`
	}
	err := i.c.GetJSON(ctx, "/v2/schedule_entries", url.Values{
		"schedule_id": {r.Schedule}, "entry_window_start": {from.UTC().Format(time.RFC3339)}, "entry_window_end": {to.UTC().Format(time.RFC3339)},
	}, &answer)
	if err != nil {
		return nil, err
	}
	if answer.Entries == nil || answer.Entries.Final == nil {
		return nil, rest.ErrForm
	}
	var out []Shift
	for _, e := range *answer.Entries.Final {
		if e.User == nil {
			continue
		}
		level := slices.Index(rotations, e.Rotation) + 1
		if e.User.ID == "" || e.Start.IsZero() || e.End.IsZero() || level == 0 && e.Rotation != "" {
			return nil, rest.ErrForm
		}
		out = append(out, Shift{
			Person: Person{ID: e.User.ID, Name: e.User.Name, Email: e.User.Email, Slack: e.User.Slack},
			Level:  max(level, 1), From: e.Start, To: e.End,
		})
	}
	return out, nil
}
