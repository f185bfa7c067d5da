package alerts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts/notice"
	"countersign/store"
)

// Problem is what is known of one problem, or of a list of several.
type Problem struct {
	ID     string
	Title  string // foreign text
	Source string // "" for a list
	// Severity is what the sender calls it, such as "critical"; "" is not said.
	Severity string
	Runbook  string // an address of the web, "" if none is named
	Firing   bool
	Since    time.Time
	Heard    time.Time     // the last notice
	Notices  int           // since it began
	Thread   chat.ThreadID // "" while it has none
	Quiet    time.Time     // until when nothing is said of it; zero is said
	QuietBy  string
	// Listed: it shares the thread of a list, which is another entry here.
	Listed bool
}

// severities are what senders call a problem, the worst first; what is none of them stands between
// errors and warnings.
var severities = []string{"critical", "page", "p1", "emergency", "fatal", "high", "error", "p2", "", "warning", "warn", "medium", "p3", "low", "info", "none", "p4", "p5"}

// Rank orders what senders call problems: the lowest is the worst.
func Rank(severity string) int {
	if i := slices.Index(severities, strings.ToLower(severity)); i >= 0 {
		return i
	}
	return slices.Index(severities, "")
}

// severity is what a notice is called, or else the worst of its alerts that fire; "" is not said.
func severity(n notice.Notice) string {
	said := func(labels map[string]string) string { return cmp.Or(labels["severity"], labels["priority"]) }
	worst := said(n.Labels)
	if worst != "" {
		return worst
	}
	for _, a := range n.Alerts {
		if s := said(a.Labels); a.Status == notice.Firing && s != "" && (worst == "" || Rank(s) < Rank(worst)) {
			worst = s
		}
	}
	return worst
}

// Problems returns those that are kept: what fires first, then the one heard last.
func (in *Intake) Problems(ctx context.Context) ([]Problem, error) {
	var out []Problem
	now := in.o.Now()
	err := in.o.DB.View(ctx, func(tx store.Tx) error {
		out = nil
		for key, val := range tx.Scan(store.Prefix("alerts", "group")) {
			var g group
			store.Decode(key, val, &g)
			p := Problem{
				ID: g.ID, Title: g.title(), Firing: g.Firing, Since: g.since(), Heard: g.Heard,
				Notices: g.Told, Thread: g.Thread, Listed: g.Stage == folded,
			}
			if !g.isList() {
				p.Source = g.Last.Notice.Source.Name()
				p.Severity = severity(g.Last.Notice)
				p.Runbook = g.Last.Notice.Runbook()
			}
			if g.Quiet.After(now) {
				p.Quiet, p.QuietBy = g.Quiet, g.QuietBy
			}
			out = append(out, p)
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b Problem) int {
		if a.Firing != b.Firing {
			if a.Firing {
				return -1
			}
			return 1
		}
		return b.Heard.Compare(a.Heard)
	})
	return out, err
}

// ErrNoProblem is returned for a problem that isn't kept, or is in a list.
var ErrNoProblem = errors.New("alerts: there is no such problem, or it is in a list with others")

// Silence has nothing said of a problem until a time, also if it is over and begins again: its
// news waits until then. Only its first message is edited. A zero time ends the silence.
func (in *Intake) Silence(ctx context.Context, id, by string, until time.Time) error {
	now := in.o.Now().UTC()
	err := in.o.DB.Update(ctx, func(tx store.Tx) error {
		g := loadGroup(tx, id)
		if g == nil || g.Stage == folded {
			return ErrNoProblem
		}
		if until.After(now) {
			g.Quiet, g.QuietBy, g.Face = until.UTC(), by, true
		} else {
			g.Quiet, g.Face = now, true // the next round ends it
		}
		at := g.next(now)
		if g.Stage == opening {
			at = g.Quiet
		}
		g.save(tx, at)
		if in.o.Tell != nil {
			in.o.Tell(tx)
		}
		return nil
	})
	if err == nil {
		in.o.Log.InfoContext(ctx, "the silence of an alert was changed", "group", id, "by", by, "until", until)
		in.Rescan()
	}
	return err
}

// endSilence has what happened meanwhile said.
func (g *group) endSilence() { g.Quiet, g.QuietBy, g.Face = time.Time{}, "", true }
