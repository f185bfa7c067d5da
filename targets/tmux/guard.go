package tmux

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Hand gives the keyboard of a session to the people who attach to it, or takes it back.
// With Options.Guard, their clients are read-only while the bot has it: they see
// everything, and what they type is dropped. While people have it, no process types by
// [Pane.Run], [Pane.Dispatch] or [Pane.SendKeys]. A client that a person made read-only
// (attach -r) stays so.
//
// turn counts how often the keyboard changed hands; the caller keeps it, and tmux keeps it
// as well. So of two processes the later turn wins, in whatever order they come. An earlier
// turn than the one in tmux is a [TurnError]; the same one is fine.
func (s *Server) Hand(ctx context.Context, session string, people bool, turn int64) error {
	defer s.use(session)()
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := s.connect(ctx, session)
	if err != nil {
		return err
	}
	who := "0"
	if people {
		who = "1"
	}
	target := quote("=" + session + ":")
	tell := fmt.Sprintf("display-message -p -t %s 'turn #{%s} #{%s}'", target, optTurn, optPeople)
	lines, err := c.doIf(ctx, target, fmt.Sprintf("#{e|<|:#{%s},%d}", optTurn, turn),
		fmt.Sprintf("set-option -t %s %s %d ; set-option -t %s %s %s ; %s", target, optTurn, turn, target, optPeople, who, tell), tell, hasText)
	if err != nil {
		return err
	}
	f := strings.Fields(reply{lines: lines}.first())
	if len(f) != 3 || f[0] != "turn" {
		return errSilent
	}
	if n := parseEpoch(f[1]); n != turn || f[2] != who {
		return &TurnError{Turn: n}
	}
	s.setKeyboardHeld(session, people)
	return s.applyGuard(ctx, c, session)
}

func (s *Server) setKeyboardHeld(session string, people bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyboardHeld[session] = people
}

// exclusive reports whether only the bot can type into a session, as far as this process
// knows.
func (s *Server) exclusive(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Guard && !s.keyboardHeld[session]
}

// WriteCommand returns the line with which a person attaches with the keyboard.
func (s *Server) WriteCommand(session string) string {
	return s.attachLine(session, "")
}

func (s *Server) attachLine(session, flags string) string {
	line := fmt.Sprintf("tmux -L %s attach%s -t '=%s:'", s.socket(), flags, session)
	if s.o.TmpDir != "" {
		line = "TMUX_TMPDIR=" + shellWord(s.o.TmpDir) + " " + line
	}
	if s.o.Reach != nil {
		return s.o.Reach(line)
	}
	return line
}

// guard locks or unlocks the clients of a session, now and whenever one attaches.
func (s *Server) guard(c *conn, session string) {
	if !s.o.Guard {
		return
	}
	apply := func(at string) {
		if at == session || at == "" {
			go func() { _ = s.applyGuard(context.Background(), c, session) }() // retried at the next attachment
		} else {
			go s.clientCame(c, at)
		}
	}
	c.mu.Lock()
	c.onClient = apply
	c.mu.Unlock()
	apply(session)
}

// applyGuard locks or unlocks the clients that are attached now. Several processes may do
// so at once, so tmux decides: who has the keyboard, and which clients the bot has locked,
// are options there, and each change has a condition on them. To lock a locked client
// changes nothing. To unlock is a toggle: only the process that finds the client's mark
// does it, and removes the mark. Clients in control mode belong to the bot.
func (s *Server) applyGuard(ctx context.Context, c *conn, session string) error {
	if !s.o.Guard {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	c.guardMu.Lock()
	defer c.guardMu.Unlock()
	target := quote("=" + session + ":")
	lines, err := c.do(ctx, fmt.Sprintf("display-message -p -t %s '#{%s}'", target, optPeople))
	if err != nil {
		return err
	}
	people := reply{lines: lines}.first() == "1"
	s.setKeyboardHeld(session, people)
	lines, err = c.do(ctx, fmt.Sprintf("list-clients -F "+
		"'#{client_control_mode} #{client_readonly} #{client_pid} #{==:#{session_name},%s} #{client_name}'", session))
	if err != nil {
		return err
	}
	attached, watched := map[string]bool{}, false
	for _, l := range lines {
		f := strings.SplitN(l, " ", 5)
		if len(f) != 5 || f[0] != "0" {
			continue
		}
		readonly, pid, name := f[1] == "1", f[2], f[4]
		attached[pid] = true
		watched = watched || f[3] == "1"
		if f[3] != "1" || readonly != people {
			continue
		}
		if err := lockClient(ctx, c, target, pid, name, !people); err != nil {
			return err
		}
		if !people {
			c.locked[pid] = true
		}
	}
	c.watched.Store(watched)
	for pid := range c.locked {
		if !attached[pid] {
			delete(c.locked, pid)
			c.post("set-option -su "+optLocked+pid, nil)
		}
	}
	return nil
}

// optLocked, followed by a client's process number, is the option that says that the bot
// has made the client read-only.
const optLocked = "@countersign_locked_"

// lockClient makes a client read-only, or makes it writable if the bot had made it
// read-only.
func lockClient(ctx context.Context, c *conn, session, pid, name string, lock bool) error {
	name = quote(name)
	message := func(text string) string {
		return fmt.Sprintf("display-message -c %s -d 5000 %s", name, quote(text))
	}
	const kept = "display-message -p kept"
	condition := fmt.Sprintf("#{&&:#{%s},#{%s%s}}", optPeople, optLocked, pid)
	list := fmt.Sprintf("switch-client -r -c %s ; set-option -su %s%s ; %s ; display-message -p done", name, optLocked, pid,
		message("You have the keyboard. Say give in the thread when you are done."))
	if lock {
		condition = fmt.Sprintf("#{!=:#{%s},1}", optPeople)
		// The flags that switch-client -r toggles.
		list = fmt.Sprintf("refresh-client -t %s -f read-only,ignore-size ; set-option -s %s%s 1 ; %s ; display-message -p done", name, optLocked, pid,
			message("The bot has the keyboard: you can watch. Say take in the thread to get it."))
	}
	_, err := c.doIf(ctx, session, condition, list, kept, hasText)
	var ce *commandError
	if errors.As(err, &ce) && strings.Contains(ce.text, "can't find client") {
		return nil // it has just detached
	}
	return err
}
