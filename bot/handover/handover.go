// Package handover writes what somebody who goes on call takes over: what waits and runs, what was changed and
// who approved it, and what fires or was silenced. All of it is from the record.
//
// Rows (see store.Key):
//
//	("handover", schedule) -> who is on call and since when, JSON
package handover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/store"
)

const (
	// usual is how far a hand-over looks back where no shift is known.
	usual = 12 * time.Hour
	// young is how old a shift is while its hand-over is still about the one before.
	young = time.Hour
	// searched is how many changes that ended are looked through.
	searched = 2000
	// most is how many lines a part has, and maxText what the whole has, in bytes: it is one message
	// on every network.
	most    = 8
	maxText = 1700
	// every is how often the shifts are looked at.
	every = 5 * time.Second
)

// Config is what a [Desk] needs.
type Config struct {
	DB store.DB
	// Card gives a request's card, for its headline.
	Card func(tx store.Tx, r approvals.Record) chat.Card
	// Problems are those that alerts told of; nil where there are no alerts.
	Problems func(ctx context.Context) ([]alerts.Problem, error)
	// OnCall says who is on call now, and Shifts at whose changes Run writes a hand-over, in Channel.
	OnCall  func(policy.Reference) policy.OnCall
	Shifts  func() []policy.Reference
	Channel func() string
	Opener  func(scheme string) chat.Opener
	Link    func(chat.ThreadID) string // the address of a thread, "" if there is none
	Redact  func(string) string
	Log     *slog.Logger
	Now     func() time.Time
}

// Desk writes hand-overs. It is safe for concurrent use; only one Run at a time may work on a store.
type Desk struct{ cfg Config }

// New returns a desk.
func New(c Config) Desk { return Desk{c} }

// shift is who is on call for a schedule.
type shift struct {
	People []string  `json:"people"`
	Since  time.Time `json:"since"`
	Before time.Time `json:"before,omitzero"` // when the one before began
}

func (d Desk) shift(tx store.Tx, r policy.Reference) (shift, bool) {
	return store.Load[shift](tx, store.Key("handover", r.String()))
}

// Handover answers the chat word "handover" in a thread. It tells of the threads that everybody there can
// open: those of the same channel, and in the console all of the console's.
func (d Desk) Handover(ctx context.Context, thread chat.ThreadID) (string, error) {
	since, now := time.Time{}, d.cfg.Now()
	err := d.cfg.DB.View(ctx, func(tx store.Tx) error {
		for _, r := range d.cfg.Shifts() {
			s, ok := d.shift(tx, r)
			if ok && now.Sub(s.Since) < young && !s.Before.IsZero() {
				s.Since = s.Before
			}
			if ok && (since.IsZero() || s.Since.Before(since)) {
				since = s.Since
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if since.IsZero() || now.Sub(since) > 14*24*time.Hour {
		since = now.Add(-usual)
	}
	return d.summary(ctx, "Hand-over", since, channelOf(thread))
}

// channelOf is where a thread is: "slack:T1:C1", "web".
func channelOf(thread chat.ThreadID) string {
	s := string(thread)
	if i := strings.LastIndex(s, ":"); i >= 0 {
		s = s[:i]
	}
	return s
}

// part is one list of a hand-over.
type part struct {
	name  string
	lines []string
	other int // of other channels
}

func (p *part) add(mine bool, format string, args ...any) {
	if !mine {
		p.other++
		return
	}
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// summary writes a hand-over of what there is, and of what happened since then, for people of a channel.
func (d Desk) summary(ctx context.Context, title string, since time.Time, channel string) (string, error) {
	now := d.cfg.Now()
	waits, runs, changed, review := part{name: "Waiting"}, part{name: "Running"}, part{name: "Changed"}, part{name: "To review"}
	err := d.cfg.DB.View(ctx, func(tx store.Tx) error {
		for _, p := range []*part{&waits, &runs, &changed, &review} {
			p.lines, p.other = nil, 0
		}
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			mine := channelOf(r.Thread) == channel
			what := shown(d.cfg.Card(tx, r).Title)
			switch {
			case r.Basis.Step > 0: // its plan is listed
			case r.State == approvals.Pending:
				waits.add(mine, "%s for %s, asked by %s at %s%s", what, oneLine(strings.Join(r.Require.Who(), " or ")), person(r.Requester), approvals.Clock(r.Created, now), d.link(r.Thread))
			default:
				runs.add(mine, "%s, approved by %s%s", what, approvers(r), d.link(r.Thread))
			}
		}
		for _, r := range (approvals.Ledger{}).Recent(tx, searched) {
			mine := channelOf(r.Thread) == channel
			if r.Trial.Open() {
				runs.add(mine, "%s undoes itself at %s unless somebody keeps it%s", shown(d.cfg.Card(tx, r).Title), approvals.Clock(r.Trial.Until, now), d.link(r.Thread))
			}
			if r.Review.Due {
				review.add(mine, "%s, approved alone by %s%s", shown(d.cfg.Card(tx, r).Title), approvers(r), d.link(r.Thread))
			}
			if r.Ended.Before(since) || r.Basis.Step > 0 {
				continue
			}
			changed.add(mine, "%s %s: %s; approved by %s%s", approvals.Clock(r.Ended, now), shown(d.cfg.Card(tx, r).Title), result(r), approvers(r), d.link(r.Thread))
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("the record can't be read: %w", err)
	}
	parts := []part{waits, runs, changed, review}
	if d.cfg.Problems != nil {
		fires, silent := part{name: "Alerts firing"}, part{name: "Silenced"}
		problems, err := d.cfg.Problems(ctx)
		if err != nil {
			return "", fmt.Errorf("the alerts can't be read: %w", err)
		}
		for _, p := range problems {
			mine := p.Thread == "" || channelOf(p.Thread) == channel
			if !p.Quiet.IsZero() {
				silent.add(mine, "%s until %s, by %s%s", shown(p.Title), approvals.Clock(p.Quiet, now), oneLine(p.QuietBy), d.link(p.Thread))
			}
			if p.Firing && p.Quiet.IsZero() {
				fires.add(mine, "%s since %s%s", shown(p.Title), approvals.Clock(p.Since, now), d.link(p.Thread))
			}
		}
		parts = append(parts, fires, silent)
	}
	return d.cfg.Redact(write(fmt.Sprintf("**%s**, since %s", title, approvals.Clock(since, now)), parts)), nil
}

// write puts the parts into one message. What doesn't fit is counted.
func write(head string, parts []part) string {
	var b strings.Builder
	b.WriteString(head)
	empty := true
	for i, p := range parts {
		n := len(p.lines)
		if n == 0 && p.other == 0 {
			continue
		}
		empty = false
		fmt.Fprintf(&b, "\n\n**%s** (%d)", p.name, n+p.other)
		// Each part that follows keeps room for its title.
		room := maxText - 60*(len(parts)-i)
		told := 0
		for _, l := range p.lines[:min(n, most)] {
			if b.Len()+len(l)+3 > room {
				break
			}
			b.WriteString("\n- " + l)
			told++
		}
		if left := n - told; left > 0 {
			fmt.Fprintf(&b, "\n- and %d more", left)
		}
		if p.other > 0 {
			fmt.Fprintf(&b, "\n- %d in other channels", p.other)
		}
	}
	if empty {
		b.WriteString("\n\nNothing waits, nothing runs, and nothing was changed.")
	}
	return b.String()
}

// result says how a change ended.
func result(r approvals.Record) string {
	s := r.Outcome.Note
	switch {
	case r.State == approvals.OutcomeUnknown:
		s = "nobody knows whether it ran"
	case s == "" && r.Outcome.OK:
		s = "done"
	case s == "":
		s = "failed"
	}
	switch {
	case r.WasUndone():
		s += ", undone"
	case r.Trial.Ended != "":
		s += ", " + string(r.Trial.Ended)
	}
	if len(r.Receipt.Also) > 0 {
		s += ", and changed something else"
	}
	return oneLine(s)
}

// approvers are the people whose votes let a request run, or by what right it ran.
func approvers(r approvals.Record) string {
	var out []string
	for _, v := range r.Votes {
		if v.Counts() {
			out = append(out, person(v.User))
		}
	}
	if len(out) == 0 {
		return oneLine(r.Basis.Why)
	}
	return strings.Join(out, " and ")
}

func person(u chat.User) string { return oneLine(cmp.Or(u.Name, string(u.ID))) }

// maxLine bounds a foreign text in a line, in characters.
const maxLine = 90

// oneLine makes foreign text one line without markup.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return cut(strings.NewReplacer("`", "'", "*", "", "_", "\\_", "[", "(", "]", ")", "<", "(", ">", ")", "|", "/", "~", "-").Replace(s))
}

// shown is a headline as code, so that nothing of it is markup.
func shown(s string) string {
	return "`" + cut(strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "`", "'")) + "`"
}

func cut(s string) string {
	if utf8.RuneCountInString(s) > maxLine {
		s = string([]rune(s)[:maxLine-1]) + "…"
	}
	return s
}

// link is the address of a thread behind a space, "" if nobody knows it.
func (d Desk) link(thread chat.ThreadID) string {
	if to := d.cfg.Link(thread); to != "" {
		return " " + to
	}
	return ""
}

// Run writes a hand-over at each change of shift until ctx is done.
func (d Desk) Run(ctx context.Context) error {
	failed := map[policy.Reference]bool{}
	for ctx.Err() == nil {
		for _, r := range d.cfg.Shifts() {
			err := d.follow(ctx, r)
			if err != nil && ctx.Err() == nil && !failed[r] {
				d.cfg.Log.WarnContext(ctx, "a hand-over can't be written; it's tried until it can", "schedule", r.String(), "error", err)
			}
			failed[r] = err != nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
	return nil
}

// follow writes a hand-over if the shift of a schedule has changed. While nobody knows who is on call,
// nothing has.
func (d Desk) follow(ctx context.Context, r policy.Reference) error {
	duty := d.cfg.OnCall(r).Duty
	if duty.Why != "" {
		return nil
	}
	var was shift
	known := false
	if err := d.cfg.DB.View(ctx, func(tx store.Tx) error { was, known = d.shift(tx, r); return nil }); err != nil {
		return err
	}
	if known && slices.Equal(was.People, duty.People) {
		return nil
	}
	now := shift{People: duty.People, Since: d.cfg.Now().UTC(), Before: was.Since}
	if known {
		if err := d.open(ctx, r, was, duty); err != nil {
			return err
		}
	}
	return d.cfg.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, store.Key("handover", r.String()), now)
		return nil
	})
}

// errNoNetwork is a channel of a network that isn't configured, or begins no threads.
var errNoNetwork = errors.New("the channel's network can't begin threads")

// open begins a thread with a hand-over. After a crash it finds the one that is there.
func (d Desk) open(ctx context.Context, r policy.Reference, was shift, duty approvals.Duty) error {
	channel := d.cfg.Channel()
	scheme, _, _ := strings.Cut(channel, ":")
	o := d.cfg.Opener(scheme)
	if o == nil {
		return errNoNetwork
	}
	title := fmt.Sprintf("Hand-over from %s to %s", oneLine(strings.Join(was.People, " and ")), oneLine(duty.String()))
	text, err := d.summary(ctx, title, was.Since, channel)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(r.String() + "\n" + was.Since.Format(time.RFC3339Nano)))
	key := "handover/" + hex.EncodeToString(sum[:8])
	_, _, err = o.Open(ctx, channel, key, chat.Post{Key: key, Text: text})
	return err
}
