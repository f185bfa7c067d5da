package tmux

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// idleConns is how many connections stay while nobody uses them: each is a process on the target, and over SSH a
// channel, of which a host has few. A connection goes with the sessions that are used: where all are taken, the one
// that was unused the longest moves. At least one stays, as it tells when people attach to any session.
const idleConns = 3

// use keeps a session attached, once it is, until end is called.
func (s *Server) use(session string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses[session]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		if s.uses[session]--; s.uses[session] == 0 {
			delete(s.uses, session)
		}
		if c := s.sessions[session]; c != nil {
			c.used = time.Now()
		}
		s.mu.Unlock()
		s.trim()
	})
}

// use makes sure that there is a connection to the pane, and keeps it until end is called.
func (p *Pane) use(ctx context.Context) (end func(), err error) {
	end = p.s.use(p.session)
	if err := p.ensure(ctx); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// panesOf lists the open panes of a session. The caller holds mu.
func (s *Server) panesOf(session string) (panes []*Pane) {
	for _, p := range s.panes {
		if p.session == session {
			panes = append(panes, p)
		}
	}
	return panes
}

// crowded reports whether there are more connections than n. The caller holds mu.
func (s *Server) crowded(n int) bool {
	for _, c := range s.sessions {
		if c.alive() {
			n--
		}
	}
	s.free = slices.DeleteFunc(s.free, func(c *conn) bool { return !c.alive() })
	return len(s.free) > n
}

// spareConn takes a connection from its session if there are more than n: one whose session nobody uses or watches,
// with all its shells at their prompts. It returns nil if there is none. The caller holds setup.
func (s *Server) spareConn(n int) *conn {
	s.mu.Lock()
	if !s.crowded(n) {
		s.mu.Unlock()
		return nil
	}
	if len(s.free) > 0 {
		c := s.free[0]
		s.free = s.free[1:]
		s.mu.Unlock()
		return c
	}
	panes := map[string][]*Pane{}
	for name := range s.sessions {
		panes[name] = s.panesOf(name)
	}
	s.mu.Unlock()
	var rest []string
	for name, of := range panes { // a pane's mutex is never waited for under the server's
		if !slices.ContainsFunc(of, func(p *Pane) bool { return !p.resting() }) {
			rest = append(rest, name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var from string
	for _, name := range rest {
		c := s.sessions[name]
		if c == nil || !c.alive() || c.watched.Load() || !c.resting() || s.uses[name] > 0 || s.keyboardHeld[name] {
			continue
		}
		if from == "" || c.used.Before(s.sessions[from].used) {
			from = name
		}
	}
	c := s.sessions[from]
	if c != nil {
		delete(s.sessions, from)
		c.leave()
	}
	return c
}

// trim ends connections that nobody needs, unless one is just made: that takes the place of one.
func (s *Server) trim() {
	s.mu.Lock()
	many := s.crowded(idleConns)
	s.mu.Unlock()
	if !many {
		return
	}
	select {
	case s.setup <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-s.setup }()
		for c := s.spareConn(idleConns); c != nil; c = s.spareConn(idleConns) {
			s.shut(c)
		}
	}()
}

// shut ends a connection. tmux 3.3a tells every control client when one has detached, also one that is just
// connecting, and crashes then: so the caller holds setup, and tmux has told it when shut returns.
func (s *Server) shut(c *conn) {
	c.close()
	s.mu.Lock()
	conns := slices.Clone(s.free)
	for _, o := range s.sessions {
		conns = append(conns, o)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	for _, o := range conns {
		if o != c && o.alive() {
			for range 2 { // it has read the end, and it has told it
				_, _ = o.do(ctx, "display-message -p settled")
			}
			return
		}
	}
}

// move attaches a connection to another session. The caller holds setup.
func (s *Server) move(ctx context.Context, c *conn, session string) error {
	_, err := c.do(ctx, "switch-client -t "+quote("="+session+":"))
	if c.alive() && err != nil {
		s.mu.Lock()
		s.free = append(s.free, c) // it is where it was, or there already
		s.mu.Unlock()
	}
	if ce, ok := errors.AsType[*commandError](err); ok {
		return fmt.Errorf("%w: %s", ErrGone, ce.text)
	}
	return err
}

// resting reports whether the pane's shell is at its prompt, with everything shown.
func (p *Pane) resting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone || p.shell.phase == phaseIdle && p.job == nil && !p.display.alternate && p.stderr.mirror.idle() && p.notices.empty()
}

// clientCame is called when somebody's client has attached to any session of the server, as one of the connections
// says: a session that people look at is attached, so that it is guarded and recorded.
func (s *Server) clientCame(c *conn, session string) {
	s.mu.Lock()
	there := s.sessions[session]
	panes := s.panesOf(session)
	s.mu.Unlock()
	if there != nil && there.alive() || !nameOK(session) {
		return // its own connection says it, too
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	lines, err := c.do(ctx, fmt.Sprintf("display-message -p -t %s '#{%s}'", quote("="+session+":"), optTags))
	if err != nil || (reply{lines: lines}).first() == "" {
		return // no session of ours
	}
	defer s.use(session)()
	unlock, err := s.lock(ctx)
	if err != nil {
		return
	}
	own, err := s.connect(ctx, session)
	unlock()
	if err != nil {
		return
	}
	for _, p := range panes {
		_ = p.ensure(ctx) // the next use tries again
	}
	_ = s.applyGuard(ctx, own, session) // before the use ends
}

// endStrays ends control clients of earlier connections, of a bot that was killed or of a link that broke: those to
// the session, and the first time those to all sessions of the target. tmux 3.3a never lets one go whose output nobody takes, and can't end itself as long as it is there. Other
// processes that share the server have clients of their own, of which those are ended that nobody's process is the
// parent of any more. The caller holds setup; see shut.
func (s *Server) endStrays(ctx context.Context, c *conn, session string, first bool, stray func(pid string) bool) {
	end := killer()
	if s.shared.Load() {
		end = []string{"sh", "-c", endOrphans, "sh"}
	}
	s.mu.Lock()
	own := map[string]bool{c.pid: true}
	for _, o := range s.sessions {
		own[o.pid] = o.alive()
	}
	for _, o := range s.free {
		own[o.pid] = true
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for asked := false; ; asked = true {
		// Another target that is the same account has the same server; package session tags sessions with their target.
		lines, err := c.do(ctx, "list-clients -F '#{client_control_mode} #{client_pid} #{client_name} #{session_name} #{@cs_target}'")
		if err != nil {
			return
		}
		target := ""
		for _, l := range lines {
			if f := strings.SplitN(l, " ", 5); len(f) == 5 && f[1] == c.pid {
				target = f[4]
			}
		}
		kill := slices.Clone(end)
		for _, l := range lines {
			f := strings.SplitN(l, " ", 5)
			// A person's client in control mode (tmux -CC) has a terminal and is named by it.
			if len(f) == 5 && f[0] == "1" && isPID(f[1]) && f[2] == "client-"+f[1] && (f[3] == session || first && f[4] == target) && !own[f[1]] && stray(f[1]) {
				kill = append(kill, f[1])
			}
		}
		if len(kill) == len(end) || asked && s.shared.Load() {
			return
		}
		if !asked {
			_, err = s.run(ctx, kill...)
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(exitRetryPause):
		}
		if err != nil {
			s.log.WarnContext(ctx, "clients of earlier connections could not be ended", slog.String("session", session), slog.Any("error", err))
			return
		}
	}
}

// endOrphans ends those of the given processes that the first process has adopted, or the sh that a target starts
// programs under.
const endOrphans = `parent() { read -r s <"/proc/$1/stat" && s=${s##*) } && s=${s#* } && echo "${s%% *}"; }
for p; do
  q=$(parent "$p") && read -r name <"/proc/$q/comm" || continue
  [ "$name" != sh ] || q=$(parent "$q")
  [ "$q" != 1 ] || kill "$p"
done 2>/dev/null
true
`

// isPID reports whether a target's answer is the number of one process: kill takes others for groups, or for all.
func isPID(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 1 && strconv.Itoa(n) == s
}
