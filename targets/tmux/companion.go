package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// companion is the hidden pane that carries a shell's standard error. It lives in a tmux
// server of its own, where people do not see it.
type companion struct {
	c   *conn
	id  int
	tty string
}

const relaySession = "err"

// connectRelay returns the connection to the server of the companions, and starts that
// server if it does not run. The caller holds setup.
func (s *Server) connectRelay(ctx context.Context) (*conn, error) {
	s.mu.Lock()
	c := s.relay
	s.mu.Unlock()
	if c != nil && c.alive() {
		return c, nil
	}
	c, err := dial(ctx, s.t, s.attachArgv(s.relaySocket(), relaySession))
	found := err == nil
	if errors.Is(err, ErrGone) {
		argv := append(s.cli(s.relaySocket()), "new-session", "-d", "-s", relaySession, "-n", "keep",
			"-x", strconv.Itoa(s.o.Width), "-y", strconv.Itoa(s.o.Height), "/bin/sh", s.file("keep.sh"))
		if _, err := s.run(ctx, argv...); err != nil && !strings.Contains(err.Error(), "duplicate session") {
			return nil, err
		}
		c, err = dial(ctx, s.t, s.attachArgv(s.relaySocket(), relaySession))
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	last := s.relay
	s.relay = c
	s.mu.Unlock()
	// Another target that is the same account has the same server, so only the first time all others are strays.
	s.endStrays(ctx, c, relaySession, false, func(pid string) bool { return last == nil || pid == last.pid })
	if found {
		s.removeOrphanCompanions(ctx, c)
	}
	return c, nil
}

// orphanAge is how old a companion without a pane must be to be removed: another process
// may be about to make the pane.
const orphanAge = time.Minute

// removeOrphanCompanions removes the companions of panes that are gone.
func (s *Server) removeOrphanCompanions(ctx context.Context, c *conn) {
	out, err := s.run(ctx, append(s.cli(s.socket()), "list-panes", "-a", "-F", "#{"+optKey+"}")...)
	if err != nil && !isNoServer(err) {
		return
	}
	keys := map[string]bool{"keep": true}
	for l := range strings.Lines(out) {
		keys[strings.TrimSpace(l)] = true
	}
	lines, err := c.do(ctx, "display-message -p '%s'") // the time there
	if err != nil {
		return
	}
	now, err := strconv.ParseInt(reply{lines: lines}.first(), 10, 64)
	if err != nil {
		return
	}
	lines, err = c.do(ctx, "list-panes -s -F '#{pane_id} #{window_activity} #{window_name}'")
	if err != nil {
		return
	}
	for _, l := range lines {
		f := strings.SplitN(l, " ", 3)
		if len(f) != 3 || keys[f[2]] {
			continue
		}
		if used, err := strconv.ParseInt(f[1], 10, 64); err == nil && time.Duration(now-used)*time.Second >= orphanAge {
			c.post("kill-pane -t "+f[0], nil)
		}
	}
}

// newCompanion makes a companion; its relay does not run yet. The caller holds setup.
func (s *Server) newCompanion(ctx context.Context, key string) (*companion, error) {
	c, err := s.connectRelay(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := c.do(ctx, fmt.Sprintf("new-window -d -n %s -P -F '#{pane_id} #{pane_tty}' %s", key, quote(placeholder)))
	if err != nil {
		return nil, err
	}
	comp := &companion{c: c}
	return comp, comp.parse(reply{lines: lines}.first())
}

func (c *companion) parse(line string) error {
	id, tty, _ := strings.Cut(line, " ")
	n, ok := paneNumber(id)
	if !ok || !strings.HasPrefix(tty, "/dev/") {
		return fmt.Errorf("tmux: unexpected answer %q", line)
	}
	c.id, c.tty = n, tty
	return nil
}

// findCompanion finds the companion of a pane, or makes one if it may, or returns nil. The
// relay of a fresh one does not run yet. The caller holds setup.
func (s *Server) findCompanion(ctx context.Context, key string, mayMake bool) (comp *companion, fresh bool, err error) {
	c, err := s.connectRelay(ctx)
	if err != nil {
		return nil, false, err
	}
	lines, err := c.do(ctx, "list-panes -s -F '#{window_name} #{pane_id} #{pane_tty}'")
	if err != nil {
		return nil, false, err
	}
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, key+" "); ok {
			comp := &companion{c: c}
			return comp, false, comp.parse(rest)
		}
	}
	if !mayMake {
		return nil, false, nil
	}
	comp, err = s.newCompanion(ctx, key)
	if err != nil {
		return nil, false, err
	}
	return comp, true, s.writeFile(ctx, "e-"+key, comp.tty+"\n")
}
