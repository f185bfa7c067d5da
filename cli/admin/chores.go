package admin

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"countersign/bot"
	"countersign/config"
	"countersign/store"
)

// Chores are what the program does beside a bot that it serves: it anchors the audit record
// and posts its summaries, prunes the store, and answers the commands on this machine that
// need the store.
func Chores(f config.File) func(bot.Site) bot.Chores {
	return func(s bot.Site) bot.Chores {
		a := &auditor{db: s.DB, cfg: f.Audit, wake: s.Wake, now: time.Now, log: s.Log}
		if a.cfg.Log == "" { // the console's host
			u, err := url.Parse(f.Web.Origin)
			if a.cfg.Log = "countersign"; err == nil && u.Host != "" {
				a.cfg.Log = u.Host
			}
		}
		handlers := map[string]http.Handler{exportPath: auditHandler(s), backupPath: backupHandler(s), forgetPath: forgetHandler(s), recordPath: recordHandler(s)}
		if len(f.Audit.Witnesses) > 0 {
			handlers[LogPath] = a.logHandler()
		}
		return bot.Chores{
			Jobs: map[string]func(context.Context) error{
				"retention": retention{s.DB, f.Keep, s.Log}.run, "audit/anchors": a.anchors, "audit/summaries": a.summaries,
			},
			Handlers: handlers,
			Final:    a.final,
		}
	}
}

// keepSpent is how long the sums of a thread that nobody uses are kept: used again, it
// begins at zero.
const keepSpent = 90 * 24 * time.Hour

// retention prunes rows that have outlived their use.
type retention struct {
	db   store.DB
	keep config.KeepConfig
	log  *slog.Logger
}

// run prunes now and each hour until ctx is done.
func (r retention) run(ctx context.Context) error {
	t := time.NewTicker(time.Hour)
	defer t.Stop()
	for {
		if _, err := pruneRows(ctx, r.db, r.keep, time.Now()); err != nil && ctx.Err() == nil {
			r.log.Error("old rows could not be pruned", "error", err)
		}
		r.threads(ctx, time.Now())
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}
