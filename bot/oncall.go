package bot

import (
	"context"
	"time"

	"countersign/alerts"
	"countersign/approvals/oncall"
	"countersign/approvals/policy"
	"countersign/bot/handover"
	"countersign/bot/networks"
	"countersign/config"
	"countersign/config/rules"
	"countersign/store"
)

// newOnCall makes the keeper of who is on call.
func newOnCall(f config.File, db store.DB, now func() time.Time, b *Bot) (*oncall.Keeper, error) {
	sources, err := f.OnCallSources(b.secret)
	if err != nil {
		return nil, err
	}
	c := oncall.Config{DB: db, Now: now, Log: b.log.With("part", "oncall"), Sources: sources}
	c.Changed = func(ctx context.Context) {
		if err := b.gate.Relieve(ctx, false); err != nil {
			b.log.WarnContext(ctx, "cards can't show who is on call now", "error", err)
		}
	}
	return oncall.New(c), nil
}

// enforce puts rules in force: who is on call for their schedules is looked up from now on.
func (b *Bot) enforce(ctx context.Context, r *rules.Rules) (old *rules.Rules, err error) {
	if err := b.onCall.Use(ctx, r.File.Schedules(), r.File.People); err != nil {
		return nil, err
	}
	with := *r
	with.Policy = r.Policy.WithOnCall(b.onCall.OnCall)
	return b.rules.Swap(&with), nil
}

// newHandover makes what tells the next on call what they take over.
func (b *Bot) newHandover() handover.Desk {
	c := handover.Config{
		DB: b.db, Card: b.gate.Card, OnCall: b.onCall.OnCall, Opener: b.networks.Opener, Link: networks.Link(b.file.Web.Origin), Redact: b.redactor.Redact,
		Shifts:  func() []policy.Reference { return policy.References(b.rules.Load().File.Handover.Shifts) },
		Channel: func() string { return b.rules.Load().File.Handover.Channel },
		Log:     b.log.With("part", "handover"), Now: time.Now,
	}
	if len(b.file.Alerts.Hooks) > 0 {
		c.Problems = b.problems
	}
	return handover.New(c)
}

// problems are those that alerts told of.
func (b *Bot) problems(ctx context.Context) ([]alerts.Problem, error) {
	if b.intake == nil { // not served yet, or there are no hooks
		return nil, nil
	}
	return b.intake.Problems(ctx)
}

// onCallAges are how old the answers about who is on call are, by schedule.
func (b *Bot) onCallAges() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, s := range b.onCall.States() {
		if s.Age >= 0 {
			out[s.Duty.Group] = s.Age
		}
	}
	return out
}
