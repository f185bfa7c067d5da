// Package sessiontest is a tmux server in memory, for tests of what is built on
// package session. It keeps sessions, panes and tags as tmux does, and records
// what is done to them; commands do what the test says. [Server.Replica] shows the
// same server to another process of the bot.
package sessiontest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"countersign/targets/session"
	"countersign/targets/tmux"
)

// Server implements session.Server. The zero value is an empty server. It is
// safe for concurrent use.
type Server struct {
	// OnRun says what a command does; nil means that it exits with 0 and no
	// output. It is called without any lock.
	OnRun func(ctx context.Context, p *Pane, c tmux.Command) (tmux.Outcome, error)
	// Fail, when not nil, may refuse what changes the server: "new-session",
	// "new-pane", "kill-session".
	Fail func(what string) error

	mu       sync.Mutex
	next     int
	sessions []*held
	log      []string
}

type held struct {
	name   string
	tags   map[string]string
	panes  []*Pane
	epoch  int64 // of the driver
	turn   int64 // of the keyboard
	people bool  // have the keyboard
}

var _ session.Server = (*Server)(nil)

// Log returns what changed the server, one line each.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Plant puts a session there that somebody else made.
func (s *Server) Plant(name string, tags map[string]string) *Pane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(name, tags, tmux.PaneSpec{Name: "shared", Dir: "/"})
}

// Vanish ends a session behind the bot's back.
func (s *Server) Vanish(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(name)
}

// Pane returns the pane of a session by its name tag, or nil.
func (s *Server) Pane(session, pane string) *Pane {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.sessions {
		for _, p := range h.panes {
			if h.name == session && p.spec.Name == pane {
				return p
			}
		}
	}
	return nil
}

func (s *Server) add(name string, tags map[string]string, spec tmux.PaneSpec) *Pane {
	h := &held{name: name, tags: maps.Clone(tags)}
	s.sessions = append(s.sessions, h)
	return s.addPane(h, spec)
}

func (s *Server) addPane(h *held, spec tmux.PaneSpec) *Pane {
	s.next++
	p := &Pane{srv: s, id: fmt.Sprintf("%%%d", s.next), session: h.name, spec: spec,
		info: tmux.Info{State: tmux.StateIdle, Dir: spec.Dir, Program: "bash", Width: 80, Height: 24}}
	h.panes = append(h.panes, p)
	return p
}

func (s *Server) find(name string) *held {
	for _, h := range s.sessions {
		if h.name == name {
			return h
		}
	}
	return nil
}

func (s *Server) remove(name string) bool {
	h := s.find(name)
	if h == nil {
		return false
	}
	for _, p := range h.panes {
		p.gone = true
	}
	s.sessions = slices.DeleteFunc(s.sessions, func(x *held) bool { return x == h })
	return true
}

func (s *Server) change(what, detail string) error {
	if s.Fail != nil {
		if err := s.Fail(what); err != nil {
			return err
		}
	}
	s.log = append(s.log, what+" "+detail)
	return nil
}

// Sessions implements session.Server.
func (s *Server) Sessions(ctx context.Context) ([]tmux.SessionInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []tmux.SessionInfo
	for _, h := range s.sessions {
		si := tmux.SessionInfo{Name: h.name, Tags: maps.Clone(h.tags), Created: time.Unix(0, 0)}
		for _, p := range h.panes {
			si.Panes = append(si.Panes, tmux.PaneInfo{
				ID: p.id, Session: h.name, Tags: maps.Clone(p.spec.Tags), Dead: p.info.State == tmux.StateDead,
				Program: p.info.Program, Dir: p.info.Dir,
			})
		}
		out = append(out, si)
	}
	return out, nil
}

// NewSession implements session.Server.
func (s *Server) NewSession(ctx context.Context, name string, tags map[string]string, first tmux.PaneSpec) (session.Pane, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(name) != nil {
		return nil, fmt.Errorf("%w: %s", tmux.ErrExists, name)
	}
	if err := s.change("new-session", name); err != nil {
		return nil, err
	}
	p := s.add(name, tags, first)
	s.find(name).epoch = first.Epoch
	return p, nil
}

// NewPane implements session.Server.
func (s *Server) NewPane(_ context.Context, name string, spec tmux.PaneSpec) (session.Pane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.find(name)
	if h == nil {
		return nil, tmux.ErrGone
	}
	if spec.Epoch > 0 && h.epoch != spec.Epoch {
		return nil, &tmux.DrivenError{Epoch: h.epoch}
	}
	if err := s.change("new-pane", name+" "+spec.Name); err != nil {
		return nil, err
	}
	return s.addPane(h, spec), nil
}

// Adopt implements session.Server.
func (s *Server) Adopt(_ context.Context, name, id string) (session.Pane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.find(name); h != nil {
		for _, p := range h.panes {
			if p.id == id {
				s.log = append(s.log, "adopt "+name+" "+id)
				return p, nil
			}
		}
	}
	return nil, tmux.ErrGone
}

// KillSession implements session.Server.
func (s *Server) KillSession(_ context.Context, name string, tags map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.find(name); h != nil {
		for k, v := range tags {
			if h.tags[k] != v {
				return tmux.ErrGone
			}
		}
	}
	if err := s.change("kill-session", name); err != nil {
		return err
	}
	if !s.remove(name) {
		return tmux.ErrGone
	}
	return nil
}

// AttachCommand implements session.Server.
func (s *Server) AttachCommand(name string) string { return "tmux -L test attach -r -t =" + name + ":" }

// WriteCommand implements session.Server.
func (s *Server) WriteCommand(name string) string { return "tmux -L test attach -t =" + name + ":" }

// Hand implements session.Server.
func (s *Server) Hand(_ context.Context, name string, people bool, turn int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.find(name)
	switch {
	case h == nil:
		return tmux.ErrGone
	case h.turn > turn || h.turn == turn && h.people != people:
		return &tmux.TurnError{Turn: h.turn}
	}
	h.turn, h.people = turn, people
	s.log = append(s.log, fmt.Sprintf("hand %s %v", name, people))
	return nil
}

// Share implements session.Server. What is no [Replica] drives whatever it has.
func (s *Server) Share() {}

// Drive implements session.Server.
func (s *Server) Drive(_ context.Context, name string, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.find(name)
	switch {
	case h == nil:
		return tmux.ErrGone
	case h.epoch > epoch:
		return &tmux.DrivenError{Epoch: h.epoch}
	}
	h.epoch = epoch
	return nil
}

// Pane implements session.Pane.
type Pane struct {
	srv         *Server
	id, session string
	spec        tmux.PaneSpec
	// Ignores says that what runs here goes on after an interrupt.
	Ignores bool

	// The server's mutex guards what follows.
	info     tmux.Info
	gone     bool
	screen   string
	notice   string
	commands []string
	shown    []string
	keys     []tmux.Keys
	captures []tmux.CaptureOptions
	stops    int
	past     []tmux.Done
	shell    tmux.Shell
	told     tmux.Testimony
	tap      func([]byte)
}

// ID implements session.Pane.
func (p *Pane) ID() string { return p.id }

// Session implements session.Pane.
func (p *Pane) Session() string { return p.session }

// Set changes what Info reports.
func (p *Pane) Set(fn func(*tmux.Info)) {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	fn(&p.info)
}

// Screen sets what Capture returns.
func (p *Pane) Screen(screen, notice string) {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	p.screen, p.notice = screen, notice
}

// Show implements session.Pane.
func (p *Pane) Show(ctx context.Context, text string) error {
	return p.do(ctx, func() { p.shown = append(p.shown, text) })
}

// Shown returns what people were shown beside the shell.
func (p *Pane) Shown() []string {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	return slices.Clone(p.shown)
}

// Commands returns what was run or dispatched in the pane.
func (p *Pane) Commands() []string {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	return slices.Clone(p.commands)
}

// Keys returns what was pressed.
func (p *Pane) Keys() []tmux.Keys {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	return slices.Clone(p.keys)
}

// Captures returns how the pane was captured.
func (p *Pane) Captures() []tmux.CaptureOptions {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	return slices.Clone(p.captures)
}

// Interrupts returns how often the pane was interrupted.
func (p *Pane) Interrupts() int {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	return p.stops
}

// do runs fn on a pane that is still there.
func (p *Pane) do(ctx context.Context, fn func()) error { return p.doIf(ctx, nil, false, fn) }

// doIf is do, if the gate, which may be nil, is open.
func (p *Pane) doIf(ctx context.Context, open gate, pen bool, fn func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	if p.gone {
		return tmux.ErrGone
	}
	if open != nil {
		if err := open(pen); err != nil {
			return err
		}
	}
	fn()
	return nil
}

// Drive implements session.Pane.
func (p *Pane) Drive(ctx context.Context, epoch int64) error {
	return p.srv.Drive(ctx, p.session, epoch)
}

// Driving implements session.Pane.
func (p *Pane) Driving() bool { return true }

// Info implements session.Pane.
func (p *Pane) Info(ctx context.Context) (info tmux.Info, err error) {
	err = p.do(ctx, func() { info = p.info })
	return info, err
}

// Says sets what Shell returns.
func (p *Pane) Says(s tmux.Shell) {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	p.shell = s
}

// Shell implements session.Pane.
func (p *Pane) Shell(ctx context.Context, _ bool) (s tmux.Shell, err error) {
	err = p.do(ctx, func() { s = p.shell })
	return s, err
}

// Prompt implements session.Pane.
func (p *Pane) Prompt() (dir string, ok bool) {
	info, err := p.Info(context.Background())
	return info.Dir, err == nil && info.State == tmux.StateIdle && info.Dir != ""
}

// Run implements session.Pane.
func (p *Pane) Run(ctx context.Context, c tmux.Command) (tmux.Outcome, error) {
	return p.run(ctx, c, p.alone)
}

func (p *Pane) run(ctx context.Context, c tmux.Command, open gate) (tmux.Outcome, error) {
	if c.Before != nil {
		if err := c.Before(tmux.Where{Shell: "1", Seq: 1}); err != nil {
			return tmux.Outcome{}, err
		}
	}
	changed := false
	err := p.doIf(ctx, open, true, func() {
		if changed = p.other(c); !changed {
			p.commands = append(p.commands, c.Text)
		}
	})
	switch {
	case err != nil:
		return tmux.Outcome{}, err
	case changed:
		return tmux.Outcome{}, tmux.ErrChanged
	}
	if p.srv.OnRun == nil {
		return tmux.Outcome{Kind: tmux.Exited, Split: true}, nil
	}
	return p.srv.OnRun(ctx, p, c)
}

// other reports whether the shell is in another state than a command asks for.
func (p *Pane) other(c tmux.Command) bool {
	return c.State != "" && p.shell.State != "" && c.State != p.shell.State
}

// Dispatch implements session.Pane.
func (p *Pane) Dispatch(ctx context.Context, c tmux.Command) error {
	return p.dispatch(ctx, c, p.alone)
}

func (p *Pane) dispatch(ctx context.Context, c tmux.Command, open gate) error {
	if c.Before != nil {
		if err := c.Before(tmux.Where{Shell: "1", Seq: 1}); err != nil {
			return err
		}
	}
	return p.doIf(ctx, open, true, func() {
		p.commands = append(p.commands, c.Text)
		p.info.State = tmux.StateRunning
	})
}

// Interrupt implements session.Pane.
func (p *Pane) Interrupt(ctx context.Context) error { return p.interrupt(ctx, nil) }

func (p *Pane) interrupt(ctx context.Context, open gate) error {
	return p.doIf(ctx, open, false, func() {
		if p.stops++; !p.Ignores {
			p.info.State = tmux.StateIdle
		}
	})
}

// SendKeys implements session.Pane.
func (p *Pane) SendKeys(ctx context.Context, k tmux.Keys) error {
	return p.sendKeys(ctx, k, p.alone)
}

func (p *Pane) sendKeys(ctx context.Context, k tmux.Keys, open gate) error {
	return p.doIf(ctx, open, true, func() { p.keys = append(p.keys, k) })
}

// Press implements session.Pane.
func (p *Pane) Press(ctx context.Context, keys []byte, turn int64, done func(error)) {
	done(p.doIf(ctx, nil, false, func() {
		if h := p.srv.find(p.session); h != nil && h.people && h.turn == turn {
			p.keys = append(p.keys, tmux.Keys{Literal: string(keys)})
		}
	}))
}

// Resize implements session.Pane.
func (p *Pane) Resize(ctx context.Context, width, height int, _ int64) error {
	return p.doIf(ctx, nil, false, func() { p.info.Width, p.info.Height = width, height })
}

// Unsize implements session.Pane.
func (p *Pane) Unsize(ctx context.Context) error { return p.doIf(ctx, nil, false, func() {}) }

// Capture implements session.Pane.
func (p *Pane) Capture(ctx context.Context, o tmux.CaptureOptions) (text, notice string, err error) {
	err = p.do(ctx, func() {
		p.captures = append(p.captures, o)
		text, notice = p.screen, p.notice
	})
	return text, notice, err
}

// Watch implements session.Pane; it shows the screen and nothing more.
func (p *Pane) Watch(ctx context.Context) (snapshot []byte, live <-chan []byte, err error) {
	ch := make(chan []byte)
	close(ch)
	err = p.do(ctx, func() { snapshot = []byte(p.screen) })
	return snapshot, ch, err
}

// Typed adds what Past tells when it is asked next.
func (p *Pane) Typed(list ...tmux.Done) {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	p.past = append(p.past, list...)
}

// Past implements session.Pane.
func (p *Pane) Past(ctx context.Context) (list []tmux.Done, complete bool, err error) {
	return p.tellPast(ctx, nil)
}

func (p *Pane) tellPast(ctx context.Context, open gate) (list []tmux.Done, complete bool, err error) {
	err = p.doIf(ctx, open, false, func() { list, p.past = p.past, nil })
	return list, true, err
}

// Tell sets what Testify returns.
func (p *Pane) Tell(t tmux.Testimony) {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	p.told = t
}

// Testify implements session.Pane.
func (p *Pane) Testify(ctx context.Context, _ tmux.Where) (t tmux.Testimony, err error) {
	err = p.do(ctx, func() { t = p.told })
	return t, err
}

// Resume implements session.Pane: as Tell says, without output. What runs ends with ctx.
func (p *Pane) Resume(ctx context.Context, w tmux.Where, _ time.Time, _ tmux.Command) (tmux.Outcome, error) {
	t, err := p.Testify(ctx, w)
	switch {
	case err != nil:
		return tmux.Outcome{}, err
	case t.Ended:
		return tmux.Outcome{Kind: tmux.Exited, Code: t.Code, Split: true}, nil
	case t.Unstarted:
		return tmux.Outcome{Kind: tmux.Untyped}, nil
	case !t.Running:
		return tmux.Outcome{Kind: tmux.Lost}, nil
	}
	<-ctx.Done()
	return tmux.Outcome{Kind: tmux.Cancelled}, nil
}

// Tap implements session.Pane; Print feeds it.
func (p *Pane) Tap(ctx context.Context, tap func([]byte)) error {
	return p.do(ctx, func() { p.tap = tap })
}

// Print is output of a program in the pane.
func (p *Pane) Print(text string) {
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	if p.tap != nil {
		p.tap([]byte(text))
	}
}

// Kill implements session.Pane.
func (p *Pane) Kill(ctx context.Context) error { return p.kill(ctx, nil) }

func (p *Pane) kill(ctx context.Context, open gate) error {
	return p.doIf(ctx, open, false, func() {
		p.gone = true
		p.srv.log = append(p.srv.log, "kill-pane "+p.session+" "+p.id)
		if h := p.srv.find(p.session); h != nil {
			h.panes = slices.DeleteFunc(h.panes, func(x *Pane) bool { return x == p })
		}
	})
}
