package bot

import (
	"maps"
	"os"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/alerts/hook"
	"countersign/alerts/notice"
	"countersign/bot/threads"
	"countersign/config"
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
func (b *Bot) openAlerts() (*hook.Handler, error) {
	if len(b.file.Alerts.Hooks) == 0 {
		return nil, nil
	}
	secrets, err := alertSecrets(b.file)
	if err != nil {
		return nil, err
	}
	log := b.log.With("part", "alerts")
	b.intake, err = alerts.New(alerts.Options{
		DB: b.db, Config: b.file.Alerts, Deliver: b.agent.Deliver, Poster: alerts.Outbox{Sender: b.outbox.Sender, Now: time.Now},
		Opener: b.networks.Opener,
		Target: func(tx store.Tx, thread chat.ThreadID, target string) { threads.Choose(tx, thread, target, "alerts") },
		Redact: b.redactor.Redact, Tell: b.replicas.Notify, Log: log, Now: time.Now,
	})
	if err != nil {
		return nil, config.Errorf("alerts: %v", err)
	}
	h, err := hook.New(hook.Config{Secrets: secrets, Untimed: b.file.Alerts.Untimed(), Accept: b.intake.Accept, Address: b.web.Neighbourhood, Log: log, Now: time.Now})
	if err != nil {
		return nil, config.Errorf("alerts: %v", err)
	}
	for _, source := range slices.Sorted(maps.Keys(secrets)) {
		log.Info("alerts are taken", "path", hook.Path+string(source))
	}
	return h, nil
}
