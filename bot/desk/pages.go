package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/bot/machines"
	"countersign/console/api"
	"countersign/targets/record"
)

const (
	// searchedBytes and searchedFiles bound what is read of recordings for one search.
	searchedBytes, searchedFiles = 64 << 20, 200
	// hitsOf is how many places of one recording are shown.
	hitsOf = 5
	// silence is how long a problem is silenced by one press.
	silence = time.Hour
)

// RecordingsPage lists the recordings of this machine. Their text is searched in those of the
// network in which somebody asks.
func RecordingsPage(r *machines.Recordings) Page {
	return Page{
		ID: "recordings", Title: "Recordings", About: sayRecordingsHere, Columns: []string{"When", "Conversation", "Session", "Pane", "Length", "Found"},
		Searches: true,
		Rows: func(ctx context.Context, q api.ListQuestion) (a Answer, err error) {
			all, err := r.All()
			if err != nil {
				return a, err
			}
			words, left, files := strings.Fields(strings.ToLower(q.Words)), int64(searchedBytes), searchedFiles
			for _, i := range all {
				row := func(found string, at time.Duration) api.Row {
					out := api.Row{Cells: []api.Cell{moment(i.Started), text(""), code(i.Session), text(strings.TrimSpace(i.Target + " " + i.Pane)), text(i.Duration.Round(time.Second).String()), code(found)}}
					if own(i.Thread, q) {
						out.Thread, out.Recording, out.Moment = i.Thread, i.ID, at.Seconds()
						out.Cells[1] = text(string(i.Thread))
					}
					return out
				}
				named := has(row("", 0), words)
				if len(words) == 0 || !own(i.Thread, q) {
					if named {
						a.Rows = append(a.Rows, row("", 0))
					}
					continue
				}
				if left -= i.Bytes; left < 0 || files == 0 {
					a.Note = saySearchedPart
					break
				}
				files--
				hits, err := searchIn(r, i, words)
				if err != nil && ctx.Err() != nil {
					return a, ctx.Err()
				}
				if len(hits) == 0 && named {
					a.Rows = append(a.Rows, row("", 0))
				}
				for _, h := range hits {
					a.Rows = append(a.Rows, row(h.Text, h.At))
				}
			}
			return a, nil
		},
	}
}

func searchIn(r *machines.Recordings, i machines.Recording, words []string) ([]record.Hit, error) {
	f, err := r.Open(i.Thread, i.ID)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return record.Search(f, words, hitsOf)
}

// AlertsPage lists problems that alerts told of; in is nil as long as there are none.
func AlertsPage(in func() *alerts.Intake, now func() time.Time) Page {
	return Page{
		ID: "alerts", Title: "Alerts", About: sayAlerts, Columns: []string{"Last heard", "Problem", "Severity", "Source", "State", "Since", "Notices"},
		There: func() bool { return in() != nil },
		Rows: func(ctx context.Context, q api.ListQuestion) (a Answer, err error) {
			all, err := in().Problems(ctx)
			firing := slices.IndexFunc(all, func(p alerts.Problem) bool { return !p.Firing }) // those that fire come first
			if firing < 0 {
				firing = len(all)
			}
			slices.SortStableFunc(all[:firing], worse)
			for _, p := range all {
				state := api.Cell{Text: "over", Tone: chat.ToneGood}
				if p.Firing {
					state = api.Cell{Text: "firing", Tone: chat.ToneHigh}
				}
				row := api.Row{ID: p.ID}
				switch {
				case p.Listed:
					state.Text += ", in a list"
				case !p.Quiet.IsZero():
					state.Text += fmt.Sprintf(", silenced by %s until %s UTC", p.QuietBy, p.Quiet.UTC().Format("15:04"))
					row.Acts = []api.RowAction{{ID: "speak", Text: "End silence"}}
				default:
					row.Acts = []api.RowAction{{ID: "silence", Text: "Silence 1 h"}}
				}
				if own(p.Thread, q) {
					row.Thread = p.Thread
				}
				row.Cells = []api.Cell{moment(p.Heard), text(p.Title), text(p.Severity), text(p.Source), state, moment(p.Since), text(fmt.Sprint(p.Notices))}
				a.Rows = append(a.Rows, row)
			}
			return a, err
		},
		Act: func(ctx context.Context, by chat.User, row, act string) (bool, error) {
			var until time.Time
			switch act {
			case "silence":
				until = now().Add(silence)
			case "speak":
			default:
				return false, nil
			}
			err := in().Silence(ctx, row, cmp.Or(by.Name, string(by.ID)), until)
			if errors.Is(err, alerts.ErrNoProblem) {
				return false, nil
			}
			return err == nil, err
		},
	}
}
