package tmux

import (
	"context"
	"fmt"
	"strings"
)

// Hand gives the keyboard of a session to the people who attach to it, or takes it
// back. While the bot has it, their clients are read-only (with Options.Guard): what
// they type reaches nobody, while they see everything. A client that somebody made
// read-only (attach -r) stays so.
func (s *Server) Hand(ctx context.Context, session string, people bool) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := s.connect(ctx, session)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.handed == nil {
		s.handed = map[string]bool{}
	}
	s.handed[session] = people
	s.mu.Unlock()
	return s.applyGuard(ctx, c, session)
}

// alone tells whether nobody but the bot can type into a session.
func (s *Server) alone(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Guard && !s.handed[session]
}

// WriteCommand returns the line with which a person attaches with the keyboard.
func (s *Server) WriteCommand(session string) string {
	return s.attachLine(session, "")
}

func (s *Server) attachLine(session, flags string) string {
	line := fmt.Sprintf("tmux -L %s attach%s -t '=%s:'", s.socket(), flags, session)
	if s.o.Reach != nil {
		return s.o.Reach(line)
	}
	return line
}

// guard keeps the clients of a session as they should be, from now on.
func (s *Server) guard(c *conn, session string) {
	if !s.o.Guard {
		return
	}
	again := func() { go func() { _ = s.applyGuard(context.Background(), c, session) }() } // the next attachment tries again
	c.mu.Lock()
	c.attend = again
	c.mu.Unlock()
	again()
}

// applyGuard locks or unlocks the clients that are attached now.
func (s *Server) applyGuard(ctx context.Context, c *conn, session string) error {
	if !s.o.Guard {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	c.guarding.Lock() // two at once would toggle a client twice
	defer c.guarding.Unlock()
	s.mu.Lock()
	people := s.handed[session]
	s.mu.Unlock()
	lines, err := c.do(ctx, fmt.Sprintf("list-clients -t %s -F '#{client_control_mode} #{client_readonly} #{client_name}'", quote("="+session+":")))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, l := range lines {
		f := strings.SplitN(l, " ", 3)
		if len(f) != 3 || f[0] != "0" {
			continue
		}
		name, readonly := f[2], f[1] == "1"
		there[name] = true
		// -r toggles.
		switch {
		case !people && !readonly:
			c.locked[name] = true
		case people && readonly && c.locked[name]:
			delete(c.locked, name)
		default:
			continue
		}
		if _, err := c.do(ctx, "switch-client -r -c "+quote(name)); err != nil {
			return err
		}
		say := "The bot has the keyboard: you can watch. Say take in the thread to get it."
		if people {
			say = "You have the keyboard. Say give in the thread when you are done."
		}
		c.post(fmt.Sprintf("display-message -c %s -d 5000 %s", quote(name), quote(say)), nil)
	}
	for name := range c.locked {
		if !there[name] {
			delete(c.locked, name)
		}
	}
	return nil
}

// Tap gives a function every byte that programs write to the pane from now on, from
// one goroutine at a time; it must not block. nil ends it. What the pane shows at
// this moment is the beginning.
func (p *Pane) Tap(ctx context.Context, tap func([]byte)) error {
	if tap == nil {
		p.mu.Lock()
		p.tap = nil
		p.mu.Unlock()
		return nil
	}
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shot, live, err := p.Watch(wctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tap(shot)
	for {
		select {
		case b, ok := <-live:
			if ok {
				tap(b)
				continue
			}
		default:
		}
		p.tap = tap
		return nil
	}
}
