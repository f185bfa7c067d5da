package tmux

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sessions lists every session of this instance's tmux server. Those that people made by
// hand are among them; they have no tags. No session is not an error.
func (s *Server) Sessions(ctx context.Context) ([]SessionInfo, error) {
	s.trim() // some weren't at their prompts when they were left
	argv := append(s.cli(s.socket()),
		"list-sessions", "-F", "S|#{session_id}|#{session_created}|#{"+optTags+"}|#{session_name}", ";",
		"list-clients", "-F", "C|#{session_id}|#{client_control_mode}", ";",
		"list-panes", "-a", "-F", "P|#{session_id}|#{pane_id}|#{pane_dead}|#{pane_width}|#{pane_height}|"+
			"#{"+optPaneTags+"}|#{pane_current_command}|#{pane_current_path}")
	out, err := s.run(ctx, argv...)
	if isNoServer(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseSessions(out), nil
}

func parseSessions(out string) []SessionInfo {
	var all []SessionInfo
	at := func(id string) *SessionInfo {
		i := slices.IndexFunc(all, func(x SessionInfo) bool { return x.ID == id })
		if i < 0 {
			return nil
		}
		return &all[i]
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		kind, rest, _ := strings.Cut(line, "|")
		switch kind {
		case "S":
			f := strings.SplitN(rest, "|", 4)
			if len(f) != 4 {
				continue
			}
			sec, _ := strconv.ParseInt(f[1], 10, 64)
			all = append(all, SessionInfo{ID: f[0], Name: f[3], Created: time.Unix(sec, 0), Tags: parseTags(f[2])})
		case "C":
			id, control, _ := strings.Cut(rest, "|")
			if x := at(id); x != nil && control == "0" {
				x.Attached++
			}
		case "P":
			f := strings.SplitN(rest, "|", 8)
			if len(f) != 8 {
				continue
			}
			if x := at(f[0]); x != nil {
				w, _ := strconv.Atoi(f[3])
				h, _ := strconv.Atoi(f[4])
				x.Panes = append(x.Panes, PaneInfo{
					ID: f[1], Session: x.Name, Dead: f[2] == "1", Width: w, Height: h,
					Tags: parseTags(f[5]), Program: f[6], Dir: strings.TrimSuffix(f[7], " (deleted)"),
				})
			}
		}
	}
	return all
}

func parseTags(s string) map[string]string {
	tags := map[string]string{}
	values, err := url.ParseQuery(s)
	if err != nil {
		return tags
	}
	for k := range values {
		tags[k] = values.Get(k)
	}
	return tags
}

var tagRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// tagOptions returns the user options of tags, in a fixed order, and then the option that
// holds all of them.
func tagOptions(tags map[string]string, whole string) ([][2]string, error) {
	all := url.Values{}
	var opts [][2]string
	for k, v := range tags {
		if !tagRE.MatchString(k) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("tmux: the tag %q=%q has characters that tmux cannot keep", k, v)
		}
		all.Set(k, v)
		opts = append(opts, [2]string{"@" + k, v})
	}
	slices.SortFunc(opts, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return append(opts, [2]string{whole, all.Encode()}), nil
}

// NewSession creates a session with one pane. Its tags are set in the same tmux command
// that creates it. If several processes create it at once, one succeeds and the others get
// [ErrExists]. If another process takes the session over before its shell is started,
// NewSession returns [ErrDriven] and leaves the session to that process.
func (s *Server) NewSession(ctx context.Context, name string, tags map[string]string, first PaneSpec) (*Pane, error) {
	if !nameOK(name) {
		return nil, fmt.Errorf("tmux: the session name %q may only have letters, digits, '-' and '_'", name)
	}
	defer s.use(name)()
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sp, err := s.preparePane(ctx, first)
	if err != nil {
		return nil, err
	}
	opts, err := tagOptions(tags, optTags)
	if err != nil {
		return nil, err
	}
	argv := append(s.cli(s.socket()), "new-session", "-d", "-s", name, "-n", sp.window,
		"-x", strconv.Itoa(s.o.Width), "-y", strconv.Itoa(s.o.Height), "-P", "-F", "#{pane_id}", placeholder)
	for _, o := range opts {
		argv = append(argv, ";", "set-option", "-t", "="+name+":", o[0], cliValue(o[1]))
	}
	for _, o := range sp.opts {
		argv = append(argv, ";", "set-option", "-p", "-t", "="+name+":", o[0], cliValue(o[1]))
	}
	if first.Epoch > 0 {
		argv = append(argv, ";", "set-option", "-t", "="+name+":", optEpoch, formatEpoch(first.Epoch))
	}
	out, err := s.run(ctx, argv...)
	for range exitRetries {
		if !isNoServer(err) || ctx.Err() != nil {
			break
		}
		// The server was about to end, so nothing was made.
		<-time.After(exitRetryPause)
		out, err = s.run(ctx, argv...)
	}
	if err != nil {
		s.discardPane(sp.key)
		var ce *commandError
		if errors.As(err, &ce) && strings.Contains(ce.text, "duplicate session") {
			return nil, fmt.Errorf("%w: %s", ErrExists, name)
		}
		return nil, err
	}
	id, ok := paneNumber(strings.TrimSpace(out))
	if !ok {
		return nil, fmt.Errorf("tmux: unexpected answer %q", out)
	}
	// A connection to an earlier session of that name has not noticed yet that it ended.
	s.mu.Lock()
	earlier := s.sessions[name]
	delete(s.sessions, name)
	s.known[name] = true
	s.mu.Unlock()
	if earlier != nil {
		s.shut(earlier)
	}
	sp.epoch = first.Epoch
	p, err := s.firstPane(ctx, name, id, sp, unlock)
	if err != nil && !errors.Is(err, ErrDriven) {
		// A session without a shell is of no use, unless another process has taken it over.
		_, _ = s.killSession(context.WithoutCancel(ctx), name, sp.ownedFormat())
		s.discardPane(sp.key)
	}
	return p, err
}

// killSession ends a session if a format is true for it, and reports whether it was. What its panes leave is removed.
func (s *Server) killSession(ctx context.Context, name, format string) (was bool, err error) {
	out, err := s.run(ctx, append(s.cli(s.socket()), "if-shell", "-F", "-t", "="+name+":", format,
		"list-panes -s -t '="+name+":' -F 'killed #{"+optKey+"}' ; kill-session -t '="+name+"'", "display-message -p kept")...)
	for line := range strings.Lines(out) {
		key, ok := strings.CutPrefix(strings.TrimSpace(line), "killed")
		if was = was || ok; ok && key != "" {
			go s.discardPane(strings.TrimSpace(key))
		}
	}
	return was, err
}

// firstPane starts the shell of a session's first pane, after unlock.
func (s *Server) firstPane(ctx context.Context, session string, id int, sp paneSetup, unlock func()) (*Pane, error) {
	c, _, err := s.attach(ctx, session)
	if err != nil {
		return nil, err
	}
	unlock()
	return s.boot(ctx, c, session, id, sp)
}

// KillSession ends a session with everything that runs in it. A session without the given
// tags is left alone, and the error is ErrGone: another session may have got the same name.
func (s *Server) KillSession(ctx context.Context, name string, tags map[string]string) error {
	if !nameOK(name) {
		return fmt.Errorf("tmux: there is no session %q", name)
	}
	format := fmt.Sprintf("#{==:#{session_name},%s}", name)
	for k, v := range tags {
		if !tagRE.MatchString(k) || !nameOK(v) {
			return fmt.Errorf("tmux: a session cannot be told by the tag %q=%q", k, v)
		}
		format = fmt.Sprintf("#{&&:#{==:#{@%s},%s},%s}", k, v, format)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	was, err := s.killSession(ctx, name, format)
	if isNoServer(err) || err == nil && !was {
		return fmt.Errorf("%w: there is no session %q", ErrGone, name)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	c := s.sessions[name]
	delete(s.sessions, name)
	delete(s.known, name)
	panes := s.panesOf(name)
	s.mu.Unlock()
	if c != nil {
		s.shut(c)
	}
	for _, p := range panes {
		p.end(true)
	}
	return err
}
