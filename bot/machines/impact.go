package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools/impact"
	"countersign/tools/shell"
)

// Impact says what an action would do, found by proven reads on its target.
func (s Set) Impact(ctx context.Context, a approvals.Action) string {
	m := s.byID(a.Target)
	if m == nil {
		return ""
	}
	o := m.State()
	if o == nil || o.Caps.Bash == "" {
		return ""
	}
	l := looker{m.opts.Classify, m.Target, o.Caps, a}
	return impact.Of(ctx, a, func(text string) bool { return l.judge(text).Proves(text, l.locked()) }, l)
}

// looker runs the reads beside whatever the action runs in, locked where the target has a
// lock.
type looker struct {
	classify func(risk.Text) risk.Verdict
	target   backend.Target
	caps     backend.Caps
	action   approvals.Action
}

func (l looker) locked() bool { return l.caps.Lock.By != "" }

// judge judges a read. It may reach the places that the configuration lists: who asks is
// not known here.
func (l looker) judge(text string) risk.Verdict {
	return l.classify(risk.Text{Command: text, Dir: l.action.Dir, Locked: l.locked(), Shell: risk.Bash})
}

// Read implements impact.Runner.
func (l looker) Read(ctx context.Context, command string) (string, int, error) {
	out := &firstBytes{max: impact.Output}
	spec := backend.Spec{Argv: []string{l.caps.Bash, "--noprofile", "--norc", "-c", command}, Dir: l.action.Dir, Env: backend.Environ(l.caps), Stdout: out}
	if l.locked() {
		spec.Lock = shell.Lock(l.judge(command).Needs)
	}
	p, err := l.target.Start(ctx, spec)
	if err != nil {
		return "", 0, err
	}
	r, err := p.Wait()
	if err == nil && r.Killed {
		err = fmt.Errorf("the look took too long: %w", context.Cause(ctx))
	}
	if err == nil && len(r.Hits) > 0 {
		err = errors.New("the look was no read") // its lock refused it
	}
	return out.String(), r.Code, err
}

// firstBytes keeps the beginning of what is written.
type firstBytes struct {
	bytes.Buffer
	max int
}

// Write implements io.Writer.
func (w *firstBytes) Write(p []byte) (int, error) {
	if room := w.max - w.Len(); room > 0 {
		_, _ = w.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
