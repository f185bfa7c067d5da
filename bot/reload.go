package bot

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"countersign/alerts"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/config"
	"countersign/config/rules"
)

// reloads rereads the rules at each signal until ctx is done.
func (b *Bot) reloads(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			b.reload(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// reload replaces the rules by those that the file has now. If they are wrong, the
// old ones stay, and the threads that wait for a decision are told.
func (b *Bot) reload(ctx context.Context) {
	f, err := config.ReadFile(b.env.Config)
	var next *rules.Rules
	if err == nil {
		f.Risk.Secrets = append(f.Risk.Secrets, b.env.Places(f)...)
		next, err = rules.New(f)
	}
	if err != nil {
		b.log.Error("the configuration was not reloaded; the old one stays", "error", err)
		b.outbox.Tell(ctx, fmt.Sprintf("The configuration could not be reloaded, so the old policy stays in force: %v", err))
		return
	}
	old, err := b.enforce(ctx, next)
	if err != nil {
		b.log.Error("the configuration was not reloaded; the old one stays", "error", err)
		return
	}
	if err := b.gate.Relieve(ctx, true); err != nil {
		b.log.Warn("open cards can't show the rules as they are now", "error", err)
	}
	if b.web != nil {
		if err := b.web.Recheck(ctx); err != nil {
			b.log.Error("sessions of people who are out could not be ended; each request still refuses them", "error", err)
		}
	}
	if b.intake != nil {
		if err := b.intake.Use(f.Alerts); err != nil { // readFile has checked it
			b.log.Error("the routes of alerts were not reloaded; the old ones stay", "error", err)
		}
	}
	b.redactor.Learn(b.env.Secrets(f)...) // of files that were written anew
	b.toolbox.Reread()
	b.log.Info("the configuration was reloaded", "policy", next.Policy.Hash()[:12], "before", old.Policy.Hash()[:12])
	if names := sections(fixed(old.File), fixed(f)); len(names) > 0 {
		b.log.Warn("some changes of the configuration need a restart", "sections", strings.Join(names, ", "))
	}
}

// sections are the names of those in which two files differ.
func sections(a, b config.File) (names []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("yaml"), ",")
			names = append(names, name)
		}
	}
	return names
}

// fixed is a file without what a reload takes over.
func fixed(f config.File) config.File {
	f.Alerts = alerts.Config{Hooks: f.Alerts.Hooks}
	f.People, f.Handover = nil, config.HandoverConfig{}
	f.Policy, f.Groups, f.Channels, f.Risk = policy.Config{}, nil, nil, risk.Extension{}
	f.Programs = config.ProgramsConfig{Identities: f.Programs.Identities, Webhooks: f.Programs.Webhooks}
	f.Agent.Mode, f.Agent.Until, f.Web.Viewers = "", time.Time{}, nil
	targets := map[string]config.TargetConfig{}
	for name, t := range f.Targets {
		t.Approvers, t.Labels, t.Users, t.Channels, t.Moderators, t.Reads = nil, nil, nil, nil, nil, ""
		t.Approve = config.TargetApproval{}
		targets[name] = t
	}
	f.Targets = targets
	return f
}
