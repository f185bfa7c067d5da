package tmux

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"regexp"
	"strings"
)

// NewPane creates a window with one pane in a session. If the epoch is not the session's,
// it makes nothing and returns [ErrDriven]; see [Server.Drive].
func (s *Server) NewPane(ctx context.Context, session string, spec PaneSpec) (*Pane, error) {
	defer s.use(session)()
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := s.connect(ctx, session)
	if err != nil {
		return nil, err
	}
	sp, err := s.preparePane(ctx, spec)
	if err != nil {
		return nil, err
	}
	p, err := s.makePane(ctx, c, session, sp, spec.Epoch, unlock)
	if err != nil {
		s.discardPane(sp.key)
		return nil, err
	}
	return p, nil
}

// makePane makes a pane, and after unlock starts its shell.
func (s *Server) makePane(ctx context.Context, c *conn, session string, sp paneSetup, epoch int64, unlock func()) (*Pane, error) {
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
	unlock()
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

// preparePane makes the files of a pane, and its companion. The caller holds setup.
func (s *Server) preparePane(ctx context.Context, spec PaneSpec) (paneSetup, error) {
	sp := paneSetup{window: cmp.Or(spec.Name, "shell"), dir: cmp.Or(spec.Dir, s.caps.Home, "/"), key: random(6)}
	if !nameOK(sp.window) {
		return sp, fmt.Errorf("tmux: the pane name %q may only have letters, digits, '-' and '_'", spec.Name)
	}
	st, err := s.checkStaged(ctx, sp.dir)
	if err != nil {
		return sp, fmt.Errorf("the pane's directory cannot be used: %w", err)
	}
	if !st.Mode.IsDir() || !path.IsAbs(sp.dir) {
		return sp, fmt.Errorf("tmux: %s is not the absolute path of a directory", sp.dir)
	}
	if err := s.stage(ctx); err != nil {
		return sp, err
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
	sp.rc = s.rcData(sp.key, random(8), spec.Env)
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

func (s *Server) rcData(key, nonce string, env []string) rcData {
	return rcData{nonce: nonce, env: env, runFile: s.file("run.sh"), ttyFile: s.file("e-" + key), endFile: s.file("r-" + key)}
}

// stagePane writes the shell files of one pane.
func (s *Server) stagePane(ctx context.Context, key string, d rcData) error {
	file := s.file("rc-" + key)
	if err := s.writeFile(ctx, "r-"+key, ""); err != nil {
		return err
	}
	rc, shell := posixRC(d), "ENV="+shellQuote(file)+" exec sh -i"
	if s.caps.Bash != "" {
		// INPUTRC: the settings of a user's line editor could turn a letter into a command.
		rc, shell = bashRC(d), "INPUTRC=/dev/null exec "+shellQuote(s.caps.Bash)+" --noprofile --rcfile "+shellQuote(file)+" -i"
	}
	if err := s.writeFile(ctx, "rc-"+key, rc); err != nil {
		return err
	}
	return s.writeFile(ctx, "sh-"+key, superviseScript(d, shell))
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
	p.clearsStderr, p.namesState = s.caps.Bash != "", s.caps.Bash != ""
	p.attachCompanion(sp.companion)
	if err := p.spawn(ctx, sp.dir); err != nil {
		p.forget()
		return nil, err
	}
	return p, nil
}

// Adopt returns a pane that this package made before, for example before a restart of the
// bot. A command that runs in it goes on; the pane is then running until its next prompt. A
// shell that was starting when the pane's creator went away is waited for, and one that was not
// even started is started.
// After [Server.Share] this process only listens to the pane, until [Pane.Drive].
func (s *Server) Adopt(ctx context.Context, session, paneID string) (*Pane, error) {
	id, ok := paneNumber(paneID)
	if !ok {
		return nil, fmt.Errorf("%w: %q is no pane", ErrGone, paneID)
	}
	defer s.use(session)()
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
	p.unhidden, p.clearsStderr = !strings.Contains(string(rc), keyLoad[2:]), strings.Contains(string(rc), clearAll)
	p.namesState = strings.Contains(string(rc), keyState[2:])
	p.reattachCompanion(ctx)
	unlock()
	if err := p.takeUp(ctx); err != nil {
		p.forget()
		return nil, err
	}
	return p, nil
}
