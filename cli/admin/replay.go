package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"countersign/cli"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/rules"
	"countersign/config/storage"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
)

// Replay says what ReplayPolicy judges.
type Replay struct {
	Since string // how far back, such as "30d" or "12h"
	File  string // configuration file with the other policy; "" is the configured one
	URL   string // of the running bot; "" is where it says that it is
}

// ReplayPolicy says what would have run, asked or been refused under another policy, by the
// record of decisions. Nothing runs.
func ReplayPolicy(ctx context.Context, s cli.Streams, x Replay) error {
	from, err := sinceOf(x.Since, time.Now())
	if err != nil {
		return err
	}
	e, f, err := config.Read()
	if err != nil {
		return err
	}
	if x.File != "" {
		if f, err = config.ReadFile(x.File); err != nil {
			return err
		}
	}
	r, err := rules.New(f)
	if err != nil {
		return err
	}
	p := replay{rules: r, since: from, total: map[string]int{}, change: func(l audit.Line, before, after, why string) {
		text, _ := risk.Visible(strings.Join(strings.Fields(l.Event.Command), " "))
		if len(text) > 100 {
			text = strings.ToValidUTF8(text[:100], "") + "…"
		}
		_, _ = fmt.Fprintf(s.Out, "%s  %s -> %s  %s  %s  (%s)\n", l.At.UTC().Format(time.RFC3339), before, after, l.Event.Tool, text, why)
	}}
	if err := p.run(ctx, e, x.URL, s.Err); err != nil {
		return err
	}
	for i, sum := range p.sums() {
		if i == 0 {
			_, _ = fmt.Fprintf(s.Out, "%s since %s\n", sum, p.since.UTC().Format(time.RFC3339))
			continue
		}
		_, _ = fmt.Fprintln(s.Out, sum)
	}
	return nil
}

// replay judges the calls of a record again.
type replay struct {
	rules *rules.Rules
	since time.Time
	// change is told of each call that would have gone another way.
	change func(l audit.Line, before, after, why string)
	calls  int
	total  map[string]int // "asked -> allow" and so on
}

func (p *replay) run(ctx context.Context, e config.Env, base string, warn io.Writer) error {
	db, err := storage.OpenExisting(ctx, e)
	if errors.Is(err, store.ErrLocked) {
		r, w := io.Pipe()
		go func() {
			_ = w.CloseWithError(fetch(ctx, e, base, exportPath, url.Values{"since": {p.since.Format(time.RFC3339Nano)}}, w))
		}()
		defer func() { _ = r.Close() }()
		fault := func(f audit.Fault) { _, _ = fmt.Fprintln(warn, "warning:", f) }
		return imported(ctx, r, fault, func(db store.DB, _ audit.Header) error { return p.read(ctx, db) })
	}
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return p.read(ctx, db)
}

func (p *replay) read(ctx context.Context, db store.DB) error {
	return db.View(ctx, func(tx store.Tx) error {
		for l := range audit.Each(tx, p.since) {
			if slices.Contains([]string{audit.Asked, audit.Allowed, audit.Forbidden}, l.Event.What) {
				p.judge(l)
			}
		}
		return ctx.Err()
	})
}

// sums are how many calls there were, and of those how many went which way.
func (p *replay) sums() []string {
	out := []string{words.Plural(p.calls, "call")}
	for _, k := range slices.Sorted(maps.Keys(p.total)) {
		out = append(out, fmt.Sprintf("%6d  %s", p.total[k], k))
	}
	return out
}

// was are the words of the record for what policy explain calls a lane.
var was = map[string]string{audit.Asked: "asked", audit.Allowed: "ran", audit.Forbidden: "was refused"}

// would are the lanes in the same words.
var would = map[approvals.Lane]string{approvals.Ask: "asked", approvals.Allow: "ran", approvals.Forbid: "was refused"}

func (p *replay) judge(l audit.Line) {
	in := p.input(l)
	d := p.rules.Policy.Decide(in)
	// The record does not hold a person's groups, so of who may use a target and where only
	// the channels can be tried.
	if t, ok := p.rules.File.Targets[in.Target]; ok && !t.In(in.Channel) {
		d = policy.Decision{Rule: "target: " + in.Target, Sentence: "the target may not be used in this channel"}
	}
	p.calls++
	before, after := was[l.Event.What], would[d.Lane]
	if before == after {
		p.total[before+", and would again"]++
		return
	}
	p.total[before+", and would have "+strings.Replace(after, "was ", "been ", 1)]++
	why := d.Rule
	if d.Sentence != "" {
		why += ": " + d.Sentence
	}
	p.change(l, before, after, why)
}

func (p *replay) input(l audit.Line) policy.Input {
	e, f := l.Event, p.rules.File
	in := policy.Input{Facts: policy.Facts{
		Tool: e.Tool, Kind: e.Kind, Command: e.Command, Level: risk.ParseLevel(e.Level),
		Effects: e.Effects, Requester: chat.User{ID: chat.UserID(e.User)}, Now: l.At,
	}}
	in.Channel = config.ChannelOf(l.Thread)
	at := f.Spot(in.Channel, e.Target)
	in.Target, in.Labels, in.Approvers, in.Proof, in.Require, in.Mode, in.Until = at.Target, at.Config.Labels, at.Config.Approvers, at.Config.Approve.Proof, at.Config.Approve.Require, at.Mode, at.Until
	// What ran unasked was proven then, or the policy let it run: only a level of
	// read tells.
	in.Harmless = in.Level == risk.Read && (e.What == audit.Allowed || e.Kind == string(approvals.KindObserve))
	return in
}
