package oncall

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// grafana reads Grafana OnCall's API (grafana.com/docs/oncall, "Export a schedule's final shifts"). Its
// schedules have one level.
type grafana struct{ c *rest.Client }

// Shifts implements Source.
func (g grafana) Shifts(ctx context.Context, r policy.Reference, from, to time.Time) (out []Shift, err error) {
	for n := 1; n <= maxPages; n++ {
		var page struct {
			Next    *string `json:"next"`
			Results *[]struct {
				ID    string    `json:"user_pk"`
				Email string    `json:"user_email"`
				Name  string    `json:"user_username"`
				Start time.Time `json:"shift_start"`
				End   time.Time `json:"shift_end"`
			} `json:"results"`
		}
		err := g.c.GetJSON(ctx, "/api/v1/schedules/"+url.PathEscape(r.Schedule)+"/final_shifts", url.Values{
			"start_date": {from.UTC().Format(time.DateOnly)}, "end_date": {to.UTC().Format(time.DateOnly)}, "page": {strconv.Itoa(n)},
		}, &page)
		if err != nil {
			return nil, named(err)
		}
		if page.Results == nil {
			return nil, rest.ErrForm
		}
		for _, s := range *page.Results {
			if s.ID == "" || s.Start.IsZero() || s.End.IsZero() {
				return nil, rest.ErrForm
			}
			out = append(out, Shift{Person: Person{ID: s.ID, Name: s.Name, Email: s.Email}, Level: 1, From: s.Start, To: s.End})
		}
		if page.Next == nil {
			return out, nil
		}
	}
	return nil, rest.ErrForm
}
