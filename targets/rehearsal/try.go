package rehearsal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// trial writes a file, signals what is not its own and lists processes. Its argument is the file.
const trial = `echo x >"$1" || exit 1
kill -CONT 1 2>/dev/null && exit 2
ls /proc >/dev/null
exit 7`

// Try rehearses a command that should be held, and reports why the target can't rehearse. A view that
// lets anything through, or does not say what was wanted beyond it, is none. temp is a directory for
// temporary files; of s the program and its directory do not matter.
func Try(ctx context.Context, t Target, temp string, s Spec) error {
	file := temp + "/countersign-trial-" + strings.ToLower(rand.Text())
	s.Argv, s.Dir = []string{"/bin/sh", "-c", trial, "sh", file}, "/"
	r, err := Run(ctx, t, func(door.Purpose) error { return nil }, s) // the command is the bot's own
	if err != nil {
		return err
	}
	if wrote := slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Path == file && c.Kind == Created }); !wrote || r.Code != 7 {
		return NoneError{fmt.Sprintf("a trial ended with status %d: %s", r.Code, r.Error)}
	}
	for _, kind := range []backend.HitKind{backend.HitSignal, backend.HitList} {
		if !slices.ContainsFunc(r.Hits, func(h backend.Hit) bool { return h.Kind == kind }) {
			return NoneError{"a trial's refused calls weren't reported"}
		}
	}
	p, err := door.Start(ctx, t, door.Plumbing, nil, backend.Spec{Argv: []string{"/bin/sh", "-c", `[ ! -e "$1" ] || { rm -f -- "$1"; exit 1; }`, "sh", file}, Dir: "/"})
	if err != nil {
		return err
	}
	res, err := p.Wait()
	switch {
	case err != nil:
		return err
	case res.Killed:
		return context.Cause(ctx)
	case res.Code != 0:
		return NoneError{"a trial changed the target's real files"}
	}
	return nil
}

// Lasting reports whether an error of [Try] is about the target, and not about the moment.
func Lasting(err error) bool {
	none, ok := errors.AsType[NoneError](err)
	return ok && none != errTooLong
}
