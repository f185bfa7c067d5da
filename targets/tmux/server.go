package tmux

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/targets/backend"
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
	staged bool
	shared atomic.Bool // see Share
	token  string      // names this process's paste buffers

	mu           sync.Mutex
	closed       bool
	sessions     map[string]*conn // by session name
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

// lock serializes setup; it gives up when ctx ends.
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
	return func() { <-s.setup }, nil
}

// run runs a program on the target and waits for its end.
func (s *Server) run(ctx context.Context, argv ...string) (stdout string, err error) {
	var out, errOut bytes.Buffer
	p, err := s.t.Start(ctx, backend.Spec{Argv: argv, Dir: "/", Stdout: &out, Stderr: &errOut})
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

// inspector is a target that has a faster way than a process to run a program that changes
// nothing: a remote one.
type inspector interface {
	Look(ctx context.Context, script string, args ...string) (stdout, stderr string, code int, err error)
}

// inspect runs a program that changes nothing and ends at once.
func (s *Server) inspect(ctx context.Context, argv ...string) (stdout string, err error) {
	l, ok := s.t.(inspector)
	if !ok {
		return s.run(ctx, argv...)
	}
	// The same environment as run's, as far as these programs depend on it.
	out, errOut, code, err := l.Look(ctx, `exec env -i PATH="$PATH" HOME="$HOME" LC_ALL=C "$@"`, argv...)
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", &commandError{cmp.Or(strings.TrimSpace(errOut), fmt.Sprintf("exit code %d", code))}
	}
	return out, nil
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
// files. It asks tmux whether the pane is gone, since another process may know better than
// this one.
func (s *Server) discardPane(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	_, _ = s.run(ctx, "sh", "-c", s.script(discardScript), "sh", s.socket(), s.relaySocket(), key, s.o.Dir)
}

const discardScript = `tmux -L "$1" list-panes -a -F '#{` + optKey + `}' 2>/dev/null | grep -qx -- "$3" && exit 0
tmux -L "$2" kill-window -t "=err:=$3" 2>/dev/null
cd "$4" && rm -f -- "rc-$3" "sh-$3" "e-$3"
`

// stage writes the files that every pane needs. The caller holds setup.
func (s *Server) stage(ctx context.Context) error {
	if s.staged {
		return nil
	}
	term, err := s.run(ctx, "sh", "-c", stageScript, "sh", s.o.Dir)
	if err != nil {
		return fmt.Errorf("the staging directory cannot be used: %w", err)
	}
	for _, f := range []struct{ name, text string }{
		{"tmux.conf", conf(strings.TrimSpace(term), s.o.HistoryLimit, s.o.Width, s.o.Height)},
		{"relay.sh", relayScript},
		{"keep.sh", s.script(keepScript(s.socket(), s.relaySocket()))},
	} {
		if err := s.t.FS().WriteFile(ctx, s.file(f.name), []byte(f.text), false); err != nil {
			return err
		}
	}
	s.staged = true
	return nil
}

// isNoServer reports whether err is tmux saying that it does not run.
func isNoServer(err error) bool {
	var ce *commandError
	return errors.As(err, &ce) && (strings.Contains(ce.text, "no server running") ||
		strings.Contains(ce.text, "error connecting") || strings.Contains(ce.text, "no sessions") ||
		strings.Contains(ce.text, "server exited"))
}

// Sessions lists every session of this instance's tmux server. Those that people made by
// hand are among them; they have no tags. No session is not an error.
func (s *Server) Sessions(ctx context.Context) ([]SessionInfo, error) {
	argv := append(s.cli(s.socket()),
		"list-sessions", "-F", "S|#{session_id}|#{session_created}|#{"+optTags+"}|#{session_name}", ";",
		"list-clients", "-F", "C|#{session_id}|#{client_control_mode}", ";",
		"list-panes", "-a", "-F", "P|#{session_id}|#{pane_id}|#{pane_dead}|#{pane_width}|#{pane_height}|"+
			"#{"+optPaneTags+"}|#{pane_current_command}|#{pane_current_path}")
	out, err := s.inspect(ctx, argv...)
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
					Tags: parseTags(f[5]), Program: f[6], Dir: f[7],
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
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.stage(ctx); err != nil {
		return nil, err
	}
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
	sp.epoch = first.Epoch
	p, err := s.firstPane(ctx, name, id, sp)
	if err != nil && !errors.Is(err, ErrDriven) {
		// A session without a shell is of no use, unless another process has taken it over.
		_, _ = s.killSession(context.WithoutCancel(ctx), name, sp.ownedFormat())
		s.discardPane(sp.key)
	}
	return p, err
}

// killSession ends a session if a format is true for it, and reports whether it was.
func (s *Server) killSession(ctx context.Context, name, format string) (was bool, err error) {
	out, err := s.run(ctx, append(s.cli(s.socket()), "if-shell", "-F", "-t", "="+name+":", format,
		"display-message -p killed ; kill-session -t '="+name+"'", "display-message -p kept")...)
	return strings.TrimSpace(out) == "killed", err
}

func (s *Server) firstPane(ctx context.Context, session string, id int, sp paneSetup) (*Pane, error) {
	c, err := s.connect(ctx, session)
	if err != nil {
		return nil, err
	}
	return s.boot(ctx, c, session, id, sp)
}

// NewPane creates a window with one pane in a session. If the epoch is not the session's,
// it makes nothing and returns [ErrDriven]; see [Server.Drive].
func (s *Server) NewPane(ctx context.Context, session string, spec PaneSpec) (*Pane, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.stage(ctx); err != nil {
		return nil, err
	}
	c, err := s.connect(ctx, session)
	if err != nil {
		return nil, err
	}
	sp, err := s.preparePane(ctx, spec)
	if err != nil {
		return nil, err
	}
	p, err := s.makePane(ctx, c, session, sp, spec.Epoch)
	if err != nil {
		s.discardPane(sp.key)
		return nil, err
	}
	return p, nil
}

func (s *Server) makePane(ctx context.Context, c *conn, session string, sp paneSetup, epoch int64) (*Pane, error) {
	target := quote("=" + session + ":")
	blocked := "0"
	if epoch > 0 {
		blocked = fmt.Sprintf("#{!=:#{%s},%d}", optEpoch, epoch)
	}
	// In one list, so that the next driver sees all of the pane or none of it.
	last := quote("=" + session + ":{end}")
	list := []string{fmt.Sprintf("new-window -d -a -t %s -n %s %s", last, quote(sp.window), quote(placeholder))}
	for _, o := range sp.opts {
		list = append(list, fmt.Sprintf("set-option -p -t %s %s %s", last, o[0], quote(o[1])))
	}
	list = append(list, fmt.Sprintf("display-message -p -t %s '#{pane_id} #{%s}'", last, optEpoch))
	lines, err := c.doIf(ctx, target, blocked,
		fmt.Sprintf("display-message -p -t %s 'blocked #{%s}'", target, optEpoch), strings.Join(list, " ; "), hasText)
	if err != nil {
		return nil, err
	}
	first, there, _ := strings.Cut(reply{lines: lines}.first(), " ")
	if first == "blocked" {
		return nil, &DrivenError{Epoch: parseEpoch(there)}
	}
	id, ok := paneNumber(first)
	if !ok {
		return nil, fmt.Errorf("tmux: unexpected answer %q", lines)
	}
	sp.epoch = parseEpoch(there)
	return s.bootOrKill(ctx, c, session, id, sp)
}

// bootOrKill starts the shell in a new pane. If that fails it kills the pane, unless
// another process has taken the session over: what runs in the pane then is that process's.
func (s *Server) bootOrKill(ctx context.Context, c *conn, session string, id int, sp paneSetup) (*Pane, error) {
	p, err := s.boot(ctx, c, session, id, sp)
	if err != nil {
		_, _ = c.doIf(context.WithoutCancel(ctx), fmt.Sprintf("%%%d", id), sp.ownedFormat(),
			fmt.Sprintf("kill-pane -t %%%d", id), "display-message -p kept", nil)
		return nil, err
	}
	return p, nil
}

// ownedFormat is the tmux format that is true for the pane while no other process drives
// its session.
func (sp paneSetup) ownedFormat() string {
	return fmt.Sprintf("#{&&:#{==:#{%s},%s},#{==:#{%s},%s}}", optKey, sp.key, optEpoch, formatEpoch(sp.epoch))
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
	s.mu.Unlock()
	if c != nil {
		c.close()
	}
	return err
}

// connect returns the control client of a session, attached. The caller holds setup.
func (s *Server) connect(ctx context.Context, session string) (*conn, error) {
	s.mu.Lock()
	c := s.sessions[session]
	s.mu.Unlock()
	if c != nil && c.alive() {
		return c, nil
	}
	if !nameOK(session) {
		return nil, fmt.Errorf("%w: there is no session %q", ErrGone, session)
	}
	c, err := dial(ctx, s.t, s.attachArgv(s.socket(), session))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.sessions[session] = c
	s.mu.Unlock()
	s.guard(c, session)
	return c, nil
}

// placeholder keeps a new pane open until this process is attached to it.
const placeholder = "exec cat >/dev/null"

// cliValue protects a value on tmux's command line, where a final ';' separates commands.
func cliValue(v string) string {
	if rest, ok := strings.CutSuffix(v, ";"); ok {
		return rest + `\;`
	}
	return v
}

// paneSetup is a pane that is about to be created.
type paneSetup struct {
	window, dir string
	key         string // names its files
	epoch       int64  // of its session
	rc          rcData
	opts        [][2]string
	companion   *companion
}

func (s *Server) preparePane(ctx context.Context, spec PaneSpec) (paneSetup, error) {
	sp := paneSetup{window: cmp.Or(spec.Name, "shell"), dir: cmp.Or(spec.Dir, s.caps.Home, "/"), key: random(6)}
	if !nameOK(sp.window) {
		return sp, fmt.Errorf("tmux: the pane name %q may only have letters, digits, '-' and '_'", spec.Name)
	}
	st, err := s.t.FS().Stat(ctx, sp.dir)
	if err != nil {
		return sp, fmt.Errorf("the pane's directory cannot be used: %w", err)
	}
	if !st.Mode.IsDir() || !path.IsAbs(sp.dir) {
		return sp, fmt.Errorf("tmux: %s is not the absolute path of a directory", sp.dir)
	}
	opts, err := tagOptions(spec.Tags, optPaneTags)
	if err != nil {
		return sp, err
	}
	sp.opts = append(opts, [2]string{optKey, sp.key}, [2]string{optDir, sp.dir})
	for _, kv := range spec.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || !envRE.MatchString(name) || strings.ContainsRune(kv, 0) {
			return sp, fmt.Errorf("tmux: %q is not an environment variable", kv)
		}
	}
	sp.rc = rcData{nonce: random(8), env: spec.Env, ttyFile: s.file("e-" + sp.key), endFile: s.file("r-" + sp.key)}
	if err := s.stagePane(ctx, sp.key, sp.rc); err != nil {
		return sp, err
	}
	if s.caps.Bash == "" {
		return sp, nil
	}
	sp.companion, err = s.newCompanion(ctx, sp.key)
	if err != nil {
		s.log.WarnContext(ctx, "standard error will not be captured apart", slog.Any("error", err))
	}
	return sp, nil
}

// stagePane writes the shell files of one pane.
func (s *Server) stagePane(ctx context.Context, key string, d rcData) error {
	file := s.file("rc-" + key)
	rc, shell := posixRC(d), "ENV="+shellQuote(file)+" exec sh -i"
	if s.caps.Bash != "" {
		// INPUTRC: the settings of a user's line editor could turn a letter into a command.
		if err := s.t.FS().WriteFile(ctx, d.endFile, nil, false); err != nil {
			return err
		}
		rc, shell = bashRC(d), "INPUTRC=/dev/null exec "+shellQuote(s.caps.Bash)+" --noprofile --rcfile "+shellQuote(file)+" -i"
	}
	if err := s.t.FS().WriteFile(ctx, file, []byte(rc), false); err != nil {
		return err
	}
	return s.t.FS().WriteFile(ctx, s.file("sh-"+key), []byte(superviseScript(d, shell)), false)
}

var envRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// boot starts the shell in a new pane and waits for its first prompt.
func (s *Server) boot(ctx context.Context, c *conn, session string, id int, sp paneSetup) (*Pane, error) {
	p := s.newPane(c, session, id, sp.key, sp.rc.nonce, sp.epoch, true)
	p.attachCompanion(sp.companion)
	if err := p.spawn(ctx, sp.dir); err != nil {
		p.forget()
		return nil, err
	}
	return p, nil
}

// Adopt returns a pane that this package made before, for example before a restart of the
// bot. A command that runs in it goes on; the pane is then running until its next prompt.
// After [Server.Share] this process only listens to the pane, until [Pane.Drive].
func (s *Server) Adopt(ctx context.Context, session, paneID string) (*Pane, error) {
	id, ok := paneNumber(paneID)
	if !ok {
		return nil, fmt.Errorf("%w: %q is no pane", ErrGone, paneID)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.stage(ctx); err != nil {
		return nil, err
	}
	c, err := s.connect(ctx, session)
	if err != nil {
		return nil, err
	}
	lines, err := c.do(ctx, "list-panes -s -F '#{pane_id} #{"+optKey+"} #{"+optEpoch+"}'")
	if err != nil {
		return nil, err
	}
	key, epoch := "", ""
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, paneID+" "); ok {
			key, epoch, _ = strings.Cut(rest, " ")
		}
	}
	if key == "" {
		return nil, fmt.Errorf("%w: session %s has no pane %s of ours", ErrGone, session, paneID)
	}
	rc, err := s.t.FS().ReadFile(ctx, s.file("rc-"+key), 1<<20)
	nonce := nonceOf(string(rc))
	if err != nil || nonce == "" {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: the staged files of pane %s are lost; close it and make a new one", ErrGone, paneID)
	}
	s.mu.Lock()
	old := s.panes[id]
	s.mu.Unlock()
	if old != nil && old.key == key && !old.isGone() {
		return old, nil
	}
	p := s.newPane(c, session, id, key, nonce, parseEpoch(epoch), !s.shared.Load())
	p.reattachCompanion(ctx)
	if err := p.probe(ctx); err != nil {
		p.forget()
		return nil, err
	}
	return p, nil
}
