package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"countersign/internal/config"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/alerts/hook"
	"countersign/alerts/notice"
	"countersign/internal/redact"
	"countersign/store"
)

// alertSecrets are the secrets of the hooks, which stand in the environment.
func alertSecrets(f config.File) (map[notice.Source]redact.Secret, error) {
	secrets, err := f.Alerts.Secrets(os.LookupEnv)
	if err != nil {
		return nil, config.Errorf("alerts: %v", err)
	}
	return secrets, nil
}

// openAlerts makes the intake and its handler, once the networks are there; both stay nil
// without hooks.
func (b *bot) openAlerts() (*hook.Handler, error) {
	if len(b.file.Alerts.Hooks) == 0 {
		return nil, nil
	}
	secrets, err := alertSecrets(b.file)
	if err != nil {
		return nil, err
	}
	log := b.log.With("part", "alerts")
	b.intake, err = alerts.New(alerts.Options{
		DB: b.db, Config: b.file.Alerts, Deliver: b.agent.Deliver, Poster: alerts.Outbox{Sender: b.sender, Now: time.Now},
		Opener: func(scheme string) chat.Opener {
			o, ok := b.adapters[scheme].(chat.Opener)
			if !ok {
				return nil
			}
			return o
		},
		Target: func(tx store.Tx, thread chat.ThreadID, target string) {
			store.Save(tx, threadTargetKey(string(thread)), targetRow{Target: target, By: "alerts", At: time.Now().UTC()})
		},
		Redact: b.redact, Tell: func(tx store.Tx) { b.replicas.hint(tx, hintAlerts) }, Log: log, Now: time.Now,
	})
	if err != nil {
		return nil, config.Errorf("alerts: %v", err)
	}
	h, err := hook.New(hook.Config{Secrets: secrets, Untimed: b.file.Alerts.Untimed(), Accept: b.intake.Accept, Log: log, Now: time.Now})
	if err != nil {
		return nil, config.Errorf("alerts: %v", err)
	}
	for _, source := range slices.Sorted(maps.Keys(secrets)) {
		log.Info("alerts are taken", "path", hook.Path+string(source))
	}
	return h, nil
}

// runAlerts tells people of alerts until ctx is done.
func (b *bot) runAlerts(ctx context.Context) error {
	if b.intake == nil {
		return nil
	}
	return b.intake.Run(ctx)
}
