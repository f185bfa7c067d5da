package main

import (
	"bytes"
	"context"
	"fmt"

	"countersign/approvals"
	"countersign/tools/backend"
	"countersign/tools/impact"
)

// impact says what an action would do, found by proven reads on its target.
func (b *bot) impact(ctx context.Context, a approvals.Action) string {
	m := b.byID(a.Target)
	if m == nil {
		return ""
	}
	o := m.state()
	if o == nil || o.caps.Bash == "" {
		return ""
	}
	return impact.Of(ctx, a, b.classify, looker{m.target, o.caps, a})
}

// looker runs the reads beside whatever the action runs in.
type looker struct {
	target backend.Target
	caps   backend.Caps
	action approvals.Action
}

// Read implements impact.Runner.
func (l looker) Read(ctx context.Context, command string) (string, int, error) {
	out := &firstBytes{max: impact.Output}
	p, err := l.target.Start(ctx, backend.Spec{
		Argv: []string{l.caps.Bash, "--noprofile", "--norc", "-c", command}, Dir: l.action.Dir, Env: backend.Environ(l.caps), Stdout: out,
	})
	if err != nil {
		return "", 0, err
	}
	r, err := p.Wait()
	if err == nil && r.Killed {
		err = fmt.Errorf("the look took too long: %w", context.Cause(ctx))
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
