package sessiontest

import (
	"context"
	"sync/atomic"

	"countersign/targets/session"
	"countersign/targets/tmux"
)

// Replica is the same tmux server as another process of the bot sees it: its panes are
// the same ones, and which of them it drives is its own matter.
func (s *Server) Replica() *Replica { return &Replica{s: s} }

// Replica implements session.Server for one of several processes.
type Replica struct {
	s      *Server
	shared bool
}

var _ session.Server = (*Replica)(nil)

// Sessions implements session.Server.
func (v *Replica) Sessions(ctx context.Context) ([]tmux.SessionInfo, error) { return v.s.Sessions(ctx) }

// NewSession implements session.Server.
func (v *Replica) NewSession(ctx context.Context, name string, tags map[string]string, first tmux.PaneSpec) (session.Pane, error) {
	return v.seen(first.Epoch, true)(v.s.NewSession(ctx, name, tags, first))
}

// NewPane implements session.Server.
func (v *Replica) NewPane(ctx context.Context, name string, spec tmux.PaneSpec) (session.Pane, error) {
	return v.seen(spec.Epoch, true)(v.s.NewPane(ctx, name, spec))
}

// Adopt implements session.Server.
func (v *Replica) Adopt(ctx context.Context, name, id string) (session.Pane, error) {
	return v.seen(0, !v.shared)(v.s.Adopt(ctx, name, id))
}

// KillSession implements session.Server.
func (v *Replica) KillSession(ctx context.Context, name string, tags map[string]string) error {
	return v.s.KillSession(ctx, name, tags)
}

// AttachCommand implements session.Server.
func (v *Replica) AttachCommand(name string) string { return v.s.AttachCommand(name) }

// WriteCommand implements session.Server.
func (v *Replica) WriteCommand(name string) string { return v.s.WriteCommand(name) }

// Hand implements session.Server.
func (v *Replica) Hand(ctx context.Context, name string, people bool, turn int64) error {
	return v.s.Hand(ctx, name, people, turn)
}

// Share implements session.Server.
func (v *Replica) Share() { v.shared = true }

// Drive implements session.Server.
func (v *Replica) Drive(ctx context.Context, name string, epoch int64) error {
	return v.s.Drive(ctx, name, epoch)
}

// seen makes a pane the one that this process has.
func (v *Replica) seen(epoch int64, driving bool) func(session.Pane, error) (session.Pane, error) {
	return func(p session.Pane, err error) (session.Pane, error) {
		q, ok := p.(*Pane)
		if err != nil || !ok {
			return nil, err
		}
		s := &seen{Pane: q, epoch: epoch}
		s.driving.Store(driving)
		return s, nil
	}
}

// seen is a pane that one of several processes has open. The server's mutex guards the
// epoch.
type seen struct {
	*Pane
	epoch   int64
	driving atomic.Bool
}

// Drive implements session.Pane.
func (p *seen) Drive(ctx context.Context, epoch int64) error {
	if err := p.srv.Drive(ctx, p.session, epoch); err != nil {
		return err
	}
	p.srv.mu.Lock()
	defer p.srv.mu.Unlock()
	p.epoch = epoch
	p.driving.Store(true)
	return nil
}

// Driving implements session.Pane.
func (p *seen) Driving() bool { return p.driving.Load() }

// allowed is the gate of one of several processes.
func (p *seen) allowed(pen bool) error {
	h := p.srv.find(p.session)
	switch {
	case h == nil:
		return tmux.ErrGone
	case !p.driving.Load() || h.epoch != p.epoch:
		p.driving.Store(false)
		return &tmux.DrivenError{Epoch: h.epoch}
	}
	return p.alone(pen)
}

// Run implements session.Pane.
func (p *seen) Run(ctx context.Context, c tmux.Command) (tmux.Outcome, error) {
	return p.run(ctx, c, p.allowed)
}

// Dispatch implements session.Pane.
func (p *seen) Dispatch(ctx context.Context, c tmux.Command) error {
	return p.dispatch(ctx, c, p.allowed)
}

// Interrupt implements session.Pane.
func (p *seen) Interrupt(ctx context.Context) error { return p.interrupt(ctx, p.allowed) }

// SendKeys implements session.Pane.
func (p *seen) SendKeys(ctx context.Context, k tmux.Keys) error {
	return p.sendKeys(ctx, k, p.allowed)
}

// Past implements session.Pane.
func (p *seen) Past(ctx context.Context) (list []tmux.Done, complete bool, err error) {
	return p.tellPast(ctx, p.allowed)
}

// Kill implements session.Pane.
func (p *seen) Kill(ctx context.Context) error { return p.kill(ctx, p.allowed) }

// gate says whether a process may act on a pane, with pen only as long as people do not
// have the keyboard. The server's mutex is held.
type gate func(pen bool) error

// alone is the gate of a process that is alone.
func (p *Pane) alone(pen bool) error {
	if h := p.srv.find(p.session); pen && h != nil && h.people {
		return &tmux.StateError{State: tmux.StateHuman, Sentence: "A person has the keyboard of this session; wait until they say `give`."}
	}
	return nil
}
