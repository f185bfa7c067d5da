package bot

import (
	"context"
	"time"

	"countersign/approvals/oncall"
	"countersign/internal/config"
	"countersign/internal/rules"
	"countersign/store"
)

// newOnCall makes the keeper of who is on call.
func newOnCall(f config.File, db store.DB, now func() time.Time, b *Bot) (*oncall.Keeper, error) {
	c := oncall.Config{DB: db, Now: now, Log: b.log.With("part", "oncall"), Sources: map[string]oncall.SourceConfig{}}
	for name, s := range f.OnCall {
		source, err := f.OnCallSource(name)
		if err != nil {
			return nil, err
		}
		s = s.Filled(name)
		c.Sources[name] = oncall.SourceConfig{Source: source, Fallback: s.Fallback, Every: s.Every, Fresh: s.MaxAge}
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
