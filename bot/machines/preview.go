package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/config"
	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/targets/rehearsal"
	"countersign/tools/impact"
	"countersign/tools/shell"
)

// Preview says what an action would do. It rehearses a command where the target can, asks the target by
// proven reads, and prefers what was rehearsed.
func (s Set) Preview(ctx context.Context, r approvals.Request) approvals.Preview {
	a, by := r.Action, asker{r.Thread, r.By, r.Groups, r.Gated}
	if len(a.Steps) > 0 {
		return s.previewSteps(ctx, by, a)
	}
	m := s.byID(a.Target)
	if m == nil || a.Kind != approvals.KindShell {
		return approvals.Preview{}
	}
	o := m.State()
	if o == nil || o.Caps.Bash == "" {
		return approvals.Preview{}
	}
	m.making.Go(receipts{m}.standBy)
	l := m.looker(by, o, a)
	type asked struct {
		predicted string
		way       impact.Way
		late      bool // it may be only what was found in time
	}
	found := make(chan asked, 1)
	go func() { // it ends with ctx
		var f asked
		if l.rules(door.Prediction) == nil {
			soon, cancel := context.WithTimeout(ctx, impact.Within)
			f.predicted = impact.Of(soon, a, l.proves, l)
			f.late = soon.Err() != nil
			cancel()
		}
		f.way = impact.BackFrom(ctx, a, l.proves, l)
		found <- f
	}()
	report, err := l.rehearse(ctx)
	var f asked
	select {
	case f = <-found:
	case <-ctx.Done(): // a target that does not answer
		f.late = true
	}
	p := impact.Preview(a, o.Caps.Home, report, err, f.predicted)
	p.Retry = p.Evidence != approvals.Rehearsed && (f.late || err != nil && !rehearsal.Lasting(err))
	if f.way.Kind == "" && p.Evidence == approvals.Rehearsed {
		f.way = impact.BackFromFiles(report)
	}
	p.Back = f.way.Line()
	p.Back.Timed = p.Back.Kind == approvals.OnePress && m.Config.Credential == "" && !m.opts.Single
	return p
}

// previewSteps rehearses the steps of a plan one after the other. Where the target can't do that it says nothing:
// of single steps nobody knows what the ones before leave.
func (s Set) previewSteps(ctx context.Context, by asker, plan approvals.Action) approvals.Preview {
	a, ok := together(plan.Steps)
	m := s.byID(a.Target)
	if !ok || m == nil {
		return approvals.Preview{}
	}
	o := m.State()
	if o == nil || o.Caps.Bash == "" {
		return approvals.Preview{}
	}
	m.making.Go(receipts{m}.standBy)
	r, err := m.looker(by, o, a).rehearse(ctx)
	if rehearsal.Lasting(err) {
		return approvals.Preview{}
	}
	p := impact.Preview(a, o.Caps.Home, r, err, "")
	p.Retry = err != nil
	return p
}

// together is one command that does what some steps do in order, up to the first that fails. ok is false if
// they run in several places.
func together(steps []approvals.Action) (a approvals.Action, ok bool) {
	a = steps[0]
	open, closing := "(", ")" // each has a process
	if a.Session != "" {
		open, closing = "{", "}"
	}
	var text strings.Builder
	for i, s := range steps {
		if s.Kind != approvals.KindShell || s.Target != a.Target || s.User != a.User || s.Dir != a.Dir || s.Session != a.Session || s.Pane != a.Pane ||
			s.Env[approvals.TerminalFact] != "" {
			return a, false
		}
		if i > 0 {
			text.WriteString(" && ")
		}
		text.WriteString(open + "\n" + string(s.Bytes) + "\n" + closing)
	}
	a.Bytes = []byte(text.String())
	return a, true
}

// looker looks at what an action would do beside whatever the action runs in.
type looker struct {
	machine *Machine
	by      asker
	open    *Opened
	action  approvals.Action
}

func (l looker) rules(p door.Purpose) error { return l.machine.rules(l.by)(p) }

func (l looker) locked() bool { return l.open.Caps.Lock.By != "" }

// argv starts a shell with a text, as the reads and the rehearsal have it.
func (l looker) argv(text string) []string {
	return []string{l.open.Caps.Bash, "--noprofile", "--norc", "-c", text}
}

// judge judges a read, which may reach what the requester may use, and says in which directory it runs.
func (l looker) judge(text string) (dir string, v risk.Verdict) {
	t, v := risk.Settle(l.machine.opts.Classify, risk.Text{Command: text, Dir: l.action.Dir, Locked: l.locked(), Environ: true, Shell: risk.Bash, Reach: l.machine.reaches(l.by)})
	return t.Dir, v
}

func (l looker) proves(text string) bool {
	_, v := l.judge(text)
	return v.Proves(text, l.locked())
}

// Read implements impact.Runner.
func (l looker) Read(ctx context.Context, command string) (string, int, error) {
	dir, v := l.judge(command)
	if !v.Proves(command, l.locked()) {
		return "", 0, errUnproven
	}
	out := &firstBytes{max: impact.Output}
	s := backend.Spec{Argv: l.argv(command), Dir: dir, Env: v.Environ, Stdout: out}
	if l.locked() {
		s.Lock = shell.Lock(v.Needs)
	}
	code, err := l.start(ctx, door.Read, s)
	return out.String(), code, err
}

// Simulate implements impact.Simulator.
func (l looker) Simulate(ctx context.Context, s impact.Simulation) (string, int, error) {
	if !l.locked() {
		return "", 0, backend.ErrNoLock
	}
	out := &firstBytes{max: impact.Output}
	code, err := l.start(ctx, door.Prediction, backend.Spec{Argv: s.Argv(), Dir: "/", Stdout: out, Stderr: out, Lock: &backend.Lock{Net: s.Server()}})
	if errors.Is(err, errHeld) { // it did without, for example without its cache
		err = nil
	}
	return out.String(), code, err
}

var (
	// errHeld means that the lock of a look refused it something.
	errHeld = errors.New("the look was no read")
	// errUnproven means that a look is not proven to only read.
	errUnproven = errors.New("the look isn't proven to only read")
)

func (l looker) start(ctx context.Context, purpose door.Purpose, s backend.Spec) (int, error) {
	s.Env = append(backend.Environ(l.open.Caps), s.Env...)
	p, err := door.Start(ctx, l.machine.Target, purpose, l.rules, s)
	if err != nil {
		return 0, err
	}
	r, err := p.Wait()
	if err == nil && r.Killed {
		err = fmt.Errorf("the look took too long: %w", context.Cause(ctx))
	}
	if err == nil && slices.ContainsFunc(r.Hits, func(h backend.Hit) bool { return !h.OfCache(l.open.Caps.Home) }) {
		err = errHeld
	}
	return r.Code, err
}

// rehearse runs the command in a throwaway view of the target's files.
func (l looker) rehearse(ctx context.Context) (rehearsal.Report, error) {
	none := func(why string) (rehearsal.Report, error) { return rehearsal.Report{}, rehearsal.NoneError{Why: why} }
	text := string(l.action.Bytes)
	_, v := l.judge(text)
	if err := l.rules(door.Rehearsal); err != nil {
		return none(err.Error())
	}
	switch {
	case l.action.User != l.open.Caps.User:
		return none("it runs as a different account")
	case slices.Contains(v.Effects, risk.EffectSecrets):
		return none("it reads secrets")
	case l.action.Session != "" && !impact.Portable(text):
		return none("it uses variables of its terminal")
	case l.action.Env[approvals.TerminalFact] != "":
		return none("its terminal has its own functions, aliases or paths")
	}
	if err := l.machine.Rehearses(ctx, l.open); err != nil {
		return rehearsal.Report{}, err
	}
	t, _ := l.machine.Target.(rehearsal.Target)
	s := l.machine.rehearsed(l.open)
	s.Argv, s.Dir, s.Terminal = l.argv(text), l.action.Dir, l.action.Session != ""
	return rehearsal.Run(ctx, t, l.rules, s)
}

// rehearsed is how commands are rehearsed on the machine.
func (m *Machine) rehearsed(o *Opened) rehearsal.Spec {
	return rehearsal.Spec{Env: backend.Environ(o.Caps), Sudo: m.Config.Rehearse == config.RehearseSudo && o.Caps.User != "root"}
}

// Rehearses is why an open machine cannot rehearse commands, a rehearsal.NoneError; nil if it can. It is
// tried once.
func (m *Machine) Rehearses(ctx context.Context, o *Opened) error {
	t, ok := m.Target.(rehearsal.Target)
	switch {
	case m.Config.Rehearse == config.RehearseOff:
		return rehearsal.NoneError{Why: errOff.Error()}
	case !ok || m.Config.Credential != "":
		return rehearsal.NoneError{Why: "this target runs only approved commands"}
	}
	m.trial.mu.Lock()
	defer m.trial.mu.Unlock()
	if m.trial.of == o {
		return m.trial.err
	}
	err := rehearsal.Try(ctx, t, o.Caps.TempDir, m.rehearsed(o))
	if err == nil || rehearsal.Lasting(err) {
		m.trial.of, m.trial.err = o, err
	}
	return err
}

// firstBytes keeps the beginning of what is written.
type firstBytes struct {
	max int

	mu sync.Mutex
	bytes.Buffer
}

// Write implements io.Writer.
func (w *firstBytes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := w.max - w.Len(); room > 0 {
		_, _ = w.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
