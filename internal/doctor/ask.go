package doctor

import (
	"context"
	"io"
	"log/slog"

	"countersign/bot/machines"
	"countersign/internal/config"
	"countersign/tools/hostkey"
)

// Model checks the model of an environment as the doctor does: what it found, and what to do
// where that is not well.
func Model(ctx context.Context, e config.Env, f config.File) (found, fix string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, modelLimit)
	defer cancel()
	d := &doctor{alive: io.Discard}
	return d.answers(ctx, e, f, e.OpenAIModel).said()
}

// Target checks whether a target is reached, as the doctor does.
func Target(name string) func(ctx context.Context, e config.Env, f config.File) (found, fix string, ok bool) {
	return func(ctx context.Context, e config.Env, f config.File) (found, fix string, ok bool) {
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		p := &targetCheck{file: f}
		var err error
		p.m, err = machines.New(name, &machines.Options{Env: e, File: f, Log: slog.New(&p.hears), HostKeys: e.KnownHosts(), Keys: hostkey.InFile(e.KnownHosts())})
		if err != nil {
			return sentence(p.m, err, "correct targets."+name).said()
		}
		defer p.m.Close()
		return p.reaches(ctx).said()
	}
}

// said is what a result says to people.
func (r result) said() (found, fix string, ok bool) { return r.text, r.fix, r.label != "FAIL" }
