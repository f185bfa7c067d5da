package tmux

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// The user options that this package keeps in tmux, besides one "@name" for each tag.
// optTags and optPaneTags hold all tags in one value that is safe to list. They have two
// names, since the format of a session also finds the options of its pane.
const (
	optTags     = "@countersign_session"
	optPaneTags = "@countersign_pane"
	optKey      = "@countersign_key"
)

// A tmux server that is about to end may still accept a session, and then fails.
const (
	exitRetries    = 5
	exitRetryPause = 50 * time.Millisecond
)

// Server is the tmux server of one bot instance on one target. It is safe for concurrent
// use.
type Server struct {
	t    backend.Target
	o    Options
	caps backend.Caps
	log  *slog.Logger

	// setup serializes what creates or attaches, which is rare and slow.
	setup  chan struct{}
	staged []backend.FileInfo // what stage made: the directory and its files; nil before
	shared atomic.Bool        // see Share
	token  string             // names this process's paste buffers

	mu           sync.Mutex
	closed       bool
	sessions     map[string]*conn // by session name
	uses         map[string]int   // how many users there are of a session; see use
	free         []*conn          // attached to sessions that others serve, or nobody
	known        map[string]bool  // sessions that this process has attached to
	tidied       bool             // clients of earlier processes were ended
	relay        *conn            // to the server of the companions
	panes        map[int]*Pane    // the live panes by number
	keyboardHeld map[string]bool  // sessions whose keyboard people have, as tmux reported last
}

// Open checks that the target has tmux. It starts no server, makes no session and writes no
// file.
func Open(ctx context.Context, t backend.Target, o Options) (*Server, error) {
	caps, err := t.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if caps.Tmux == "" {
		return nil, fmt.Errorf("%w (%s); install tmux there", ErrNoTmux, t.ID())
	}
	if !nameOK(o.Instance) {
		return nil, fmt.Errorf("tmux: the instance name %q may only have letters, digits, '-' and '_'", o.Instance)
	}
	if o.TmpDir != "" && (!path.IsAbs(o.TmpDir) || strings.ContainsAny(o.TmpDir, "\n\r\x00;'\"")) {
		return nil, fmt.Errorf("tmux: the directory of the sockets %q must be an absolute path without quotes", o.TmpDir)
	}
	if o.Dir == "" {
		o.Dir = path.Join(cmp.Or(o.TmpDir, caps.TempDir, "/tmp"), "countersign-"+cmp.Or(caps.User, "user")+"-"+o.Instance)
	}
	if !path.IsAbs(o.Dir) || strings.ContainsAny(o.Dir, "\n\r\x00;") {
		return nil, fmt.Errorf("tmux: the staging directory %q must be an absolute path", o.Dir)
	}
	o.HistoryLimit = cmp.Or(o.HistoryLimit, 50_000)
	o.Width, o.Height = cmp.Or(o.Width, 200), cmp.Or(o.Height, 50)
	s := &Server{
		t: t, o: o, caps: caps,
		log:          cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		setup:        make(chan struct{}, 1),
		token:        random(3),
		keyboardHeld: map[string]bool{},
		sessions:     map[string]*conn{},
		uses:         map[string]int{},
		known:        map[string]bool{},
		panes:        map[int]*Pane{},
	}
	return s, nil
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func nameOK(name string) bool { return nameRE.MatchString(name) }

// Close ends the control clients and waits for them. The tmux server, its sessions and what
// runs in them stay.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var conns []*conn
	for _, c := range s.sessions {
		conns = append(conns, c)
	}
	conns = append(conns, s.free...)
	if s.relay != nil {
		conns = append(conns, s.relay)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(c.close)
	}
	wg.Wait()
	return nil
}

// AttachCommand returns the line with which a person watches a session, without the
// keyboard.
func (s *Server) AttachCommand(session string) string {
	return s.attachLine(session, " -r")
}

func (s *Server) socket() string      { return "countersign-" + s.o.Instance }
func (s *Server) relaySocket() string { return s.socket() + ".err" }
func (s *Server) file(name string) string {
	return path.Join(s.o.Dir, name)
}

// lock serializes setup; it gives up when ctx ends. unlock may be called more than once:
// shells are waited for after setup, so that several start at a time.
func (s *Server) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.setup <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		<-s.setup
		return nil, errors.New("tmux: the connection to the server is closed")
	}
	return sync.OnceFunc(func() { <-s.setup }), nil
}

// run runs a program on the target and waits for its end.
func (s *Server) run(ctx context.Context, argv ...string) (stdout string, err error) {
	var out, errOut bytes.Buffer
	p, err := door.Start(ctx, s.t, door.Plumbing, nil, backend.Spec{Argv: argv, Dir: "/", Stdout: &out, Stderr: &errOut})
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	switch {
	case err != nil:
		return "", err
	case res.Killed:
		return "", cmp.Or(ctx.Err(), context.Canceled)
	case res.Code != 0:
		return "", &commandError{cmp.Or(strings.TrimSpace(errOut.String()), fmt.Sprintf("exit code %d", res.Code))}
	}
	return out.String(), nil
}

// cli returns the start of a tmux command line for one of the two servers.
func (s *Server) cli(socket string) []string {
	// Without -u tmux replaces everything but ASCII in what it prints.
	argv := []string{"tmux", "-u", "-L", socket, "-f", s.file("tmux.conf")}
	if s.o.TmpDir != "" {
		argv = append([]string{"env", "TMUX_TMPDIR=" + s.o.TmpDir}, argv...)
	}
	return argv
}

// script completes a shell script so that its tmux finds the sockets.
func (s *Server) script(text string) string {
	if s.o.TmpDir == "" {
		return text
	}
	return "export TMUX_TMPDIR=" + shellQuote(s.o.TmpDir) + "\n" + text
}

func (s *Server) attachArgv(socket, session string) []string {
	// Without -N, attaching to a server that does not run starts one. That server ends at once,
	// and so does whatever connects to it meanwhile.
	return append(s.cli(socket), "-N", "-C", "attach-session", "-f", "ignore-size", "-t", "="+session+":")
}

// discardPane removes what a pane has left that is gone: its companion and its staged
// files. The record of its commands stays for two days. It asks tmux whether the pane is gone, since another process may know better than
// this one.
func (s *Server) discardPane(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	_, _ = s.run(ctx, "sh", "-c", s.script(discardScript), "sh", s.socket(), s.relaySocket(), key, s.o.Dir)
}

const discardScript = `tmux -L "$1" list-panes -a -F '#{` + optKey + `}' 2>/dev/null | grep -qx -- "$3" && exit 0
tmux -L "$2" kill-window -t "=err:=$3" 2>/dev/null
cd "$4" && rm -f -- "rc-$3" "sh-$3" "e-$3" || exit 0
for f in r-*; do [ -e "rc-${f#r-}" ] || find "$f" -mtime +1 -exec rm -f -- {} +; done 2>/dev/null
`

// stage writes the files that every pane needs, unless they are there. The caller holds setup.
func (s *Server) stage(ctx context.Context) error {
	if s.staged != nil {
		return nil
	}
	term, err := s.run(ctx, "sh", "-c", stageScript, "sh", s.o.Dir)
	if err != nil {
		return fmt.Errorf("the staging directory cannot be used: %w", err)
	}
	for _, f := range []struct{ name, text string }{
		{"tmux.conf", conf(strings.TrimSpace(term), s.o.HistoryLimit, s.o.Width, s.o.Height)},
		{"relay.sh", relayScript},
		{"run.sh", runScript},
		{"keep.sh", s.script(keepScript(s.socket(), s.relaySocket()))},
	} {
		if err := s.writeFile(ctx, f.name, f.text); err != nil {
			return err
		}
	}
	found, errs, err := s.stat(ctx, s.stagedFiles())
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	s.staged = found
	return nil
}

// writeFile writes a staged file.
func (s *Server) writeFile(ctx context.Context, name, text string) error {
	return s.t.FS().WriteFile(ctx, s.file(name), []byte(text), false)
}

// stagedFiles are the paths of what stage makes.
func (s *Server) stagedFiles() []string {
	return []string{s.o.Dir, s.file("tmux.conf"), s.file("relay.sh"), s.file("run.sh"), s.file("keep.sh")}
}

// checkStaged looks at a directory where a pane is to start, and whether what stage made is there still: machines
// empty their temporary directories, all of them when they start. The caller holds setup.
func (s *Server) checkStaged(ctx context.Context, dir string) (backend.FileInfo, error) {
	found, errs, err := s.stat(ctx, append([]string{dir}, s.stagedFiles()...))
	if err != nil {
		return backend.FileInfo{}, err
	}
	if s.staged != nil && (found[1].ID != s.staged[0].ID || found[1].Mode != s.staged[0].Mode || errors.Join(errs[1:]...) != nil) {
		s.staged = nil
	}
	return found[0], errs[0]
}

// stat looks at files, in one round trip where the target can.
func (s *Server) stat(ctx context.Context, names []string) (infos []backend.FileInfo, errs []error, err error) {
	if all, ok := s.t.FS().(backend.Surveyor); ok {
		return all.StatAll(ctx, names)
	}
	for _, name := range names {
		info, err := s.t.FS().Stat(ctx, name)
		infos, errs = append(infos, info), append(errs, err)
	}
	return infos, errs, ctx.Err()
}

// isNoServer reports whether err is tmux saying that it does not run.
func isNoServer(err error) bool {
	var ce *commandError
	return errors.As(err, &ce) && (strings.Contains(ce.text, "no server running") ||
		strings.Contains(ce.text, "error connecting") || strings.Contains(ce.text, "no sessions") ||
		strings.Contains(ce.text, "server exited"))
}

// connect returns the connection to a session that may be older than this process. The
// caller holds setup.
func (s *Server) connect(ctx context.Context, session string) (*conn, error) {
	c, fresh, err := s.attach(ctx, session)
	if err == nil && fresh && !s.shared.Load() {
		// Keys that an earlier connection sent, of this process or of one that is gone, may still be
		// on their way: tmux drops them under a new epoch. What follows on c sees it.
		target := quote("=" + session + ":")
		c.post(fmt.Sprintf("set-option -F -t %s %s '#{e|+|:#{%s},1}'", target, optEpoch, optEpoch), nil)
	}
	return c, err
}

// attach returns the connection to a session; fresh means that it is new. The caller holds
// setup.
func (s *Server) attach(ctx context.Context, session string) (c *conn, fresh bool, err error) {
	s.mu.Lock()
	c = s.sessions[session]
	s.mu.Unlock()
	if c != nil && c.alive() {
		return c, false, nil
	}
	if !nameOK(session) {
		return nil, false, fmt.Errorf("%w: there is no session %q", ErrGone, session)
	}
	last := c // it was lost
	if c = s.spareConn(idleConns - 1); c != nil {
		err = s.move(ctx, c, session)
	}
	if c == nil || errors.Is(err, errConn) {
		c, err = dial(ctx, s.t, s.attachArgv(s.socket(), session))
	}
	if err != nil {
		return nil, false, err
	}
	c.watched.Store(s.o.Guard) // until that is known
	c.at.Store(&session)
	s.mu.Lock()
	c.used = time.Now()
	s.sessions[session] = c
	first, known := !s.tidied, s.known[session] && last == nil
	s.tidied, s.known[session] = true, true
	s.mu.Unlock()
	if first || !known {
		s.endStrays(ctx, c, session, first, func(string) bool { return true })
	}
	s.guard(c, session)
	return c, true, nil
}
