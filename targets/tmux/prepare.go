package tmux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"
)

const (
	// mirrorTime is how long a command waits until the last one's standard error is on the
	// screen, and mirrorTimeFar the same on a slow link.
	mirrorTime    = 100 * time.Millisecond
	mirrorTimeFar = 10 * time.Millisecond
	// slowLink is the round trip from which on a command is typed without asking for the
	// pane's status first.
	slowLink = 5 * time.Millisecond
)

// errCopyMode refuses a pane whose keys do not reach its program.
var errCopyMode = stateError(StateHuman, "Somebody is reading the pane's history (copy mode), "+
	"and typed keys would not reach the shell; ask them to leave it with q, then try again.")

var (
	errRuns       = stateError(StateRunning, "A command is running in the pane; wait for it, or interrupt it.")
	errPersonRuns = stateError(StateHuman, "Somebody's command is running in the pane; wait until it ends, or use another pane.")
	errContinued  = stateError(StateHuman, "Somebody has begun a command of several lines at the prompt; wait until they are done, or clear it with C-c.")
	errPersonText = stateError(StateHuman, "Somebody has typed at the prompt without pressing Enter; wait until they are done, or clear the line with C-u.")
	errDraft      = stateError(StateHuman, "Keys that were sent stand at the prompt without Enter; send Enter to run them, or C-u to clear the line.")
)

func stateError(s State, sentence string) error { return &StateError{State: s, Sentence: sentence} }

// refusal returns why no command can be typed now, whatever text stands on the input line;
// nil if one can.
func refusal(phase shellPhase, by origin, line inputLine) error {
	switch {
	case phase == phaseRunning && by == originPerson:
		return errPersonRuns
	case phase != phaseIdle:
		return errRuns
	case line.continued:
		return errContinued
	}
	return nil
}

// acquire reserves the pane for one command.
func (p *Pane) acquire() (release func(), err error) {
	select {
	case p.busy <- struct{}{}:
		return func() { <-p.busy }, nil
	default:
		return nil, errRuns
	}
}

// prepare makes sure that a command can be typed, as far as nobody has to agree. The notice
// reports what happened to the shell since the last command.
func (p *Pane) prepare(ctx context.Context) (notice string, err error) {
	if err := p.ensure(ctx); err != nil {
		return "", err
	}
	if !p.lease.held() {
		return "", ErrDriven
	}
	p.mu.Lock()
	near := p.c.rtt < slowLink
	p.mu.Unlock()
	if near && !p.s.exclusive(p.session) {
		// On a slow link this would double the time of a command. There tmux itself refuses the
		// keys, in all cases but one: somebody has just begun a line.
		if err := p.refresh(ctx); err != nil {
			return "", err
		}
	}
	p.mu.Lock()
	st := p.display.paneStatus
	p.mu.Unlock()
	if st.copyMode {
		return "", errCopyMode
	}
	// Between a command and its prompt there is nothing to refuse yet.
	settled := func() bool { return p.shell.phase != phasePrompt && p.shell.phase != phaseStart }
	if err := p.wait(ctx, probeTime, settled); err != nil && !errors.Is(err, errSilent) {
		return "", err
	}
	p.mu.Lock()
	phase, by, line, restarted := p.shell.phase, p.origins.current, p.line, p.shell.restarted
	if phase == phaseIdle {
		p.shell.restarted = false
	}
	p.mu.Unlock()
	if restarted {
		notice = "The pane's shell had ended; " + newShell
	}
	if err := refusal(phase, by, line); err != nil {
		return "", err
	}
	if line.hasText() {
		if err := p.checkInputLine(ctx); err != nil {
			return "", err
		}
	}
	// The last command's standard error should be shown before the next line. On a slow link
	// there is no need to wait: what was sent first arrives first.
	limit := mirrorTime
	if !near {
		limit = mirrorTimeFar
	}
	_ = p.wait(ctx, limit, func() bool { return p.stderr.companion == nil || p.stderr.mirror.idle() })
	return notice, nil
}

// refresh asks for the pane's status. The subscription reports it as well, but up to a
// second later, and not if it has changed back meanwhile.
func (p *Pane) refresh(ctx context.Context) error {
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '%s'", p.id, statusFormat))
	if err != nil {
		return err
	}
	st, ok := parseStatus(reply{lines: lines}.first())
	if !ok {
		return errSilent
	}
	if st.dead {
		p.lost(true)
		return p.goneError()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if st != p.display.paneStatus {
		p.setStatus(st)
	}
	return nil
}

// checkInputLine makes sure that the text behind the prompt is not a line that a person is
// typing. Where only the bot can type, text that it did not send is the terminal's answer
// to a program; it is cleared before the command is typed.
func (p *Pane) checkInputLine(ctx context.Context) error {
	p.mu.Lock()
	draft := p.line.hasDraft()
	p.mu.Unlock()
	ignorable := p.s.exclusive(p.session) && !draft
	taken := errPersonText
	if draft {
		taken = errDraft
	}
	if p.s.caps.Bash == "" { // there is no line editor to ask
		if ignorable {
			return nil
		}
		return taken
	}
	if err := p.queryStatus(ctx); err != nil {
		if errors.Is(err, errSilent) {
			return taken
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.statusQuery.lineLen > 0 && !ignorable || p.line.continued {
		return taken
	}
	if p.shell.phase != phaseIdle {
		return errPersonRuns
	}
	return nil
}

// compose returns the keys that run a command at the prompt: the text itself, or what reads it
// from a staged script.
func (p *Pane) compose(ctx context.Context, c Command, stderr stderrCapture) (keys string, err error) {
	text, expect := c.Text, ""
	if c.State != "" && p.namesState {
		if !stateName.MatchString(c.State) {
			return "", fmt.Errorf("tmux: %q is no name of a shell's state", c.State)
		}
		expect = c.State + keyExpect
	}
	if strings.TrimSpace(text) == "" {
		return "", errors.New("tmux: the command is empty; give a command")
	}
	bash := p.s.caps.Bash != ""
	if bash {
		if keys, ok := typedKeys(text, expect, stderr); ok {
			return keys, nil
		}
	}
	name := "c-" + p.key + "-" + random(3)
	path := p.s.file(name)
	var script string
	switch {
	case bash && !p.unhidden:
		keys, script = stagedKeys(path, text, expect, stderr)
	case bash:
		keys, script = keyClear+". "+shellWord(path)+"\r", text+"\n"
	default:
		line := ". " + shellWord(path)
		keys, script = "\x15"+line+"\r", posixStart(line, text)+text+"\n"
	}
	err = p.s.writeFile(ctx, name, script)
	if errors.Is(err, fs.ErrNotExist) {
		if err = p.restage(ctx); err == nil {
			err = p.s.writeFile(ctx, name, script)
		}
	}
	if err != nil {
		return "", fmt.Errorf("the command cannot be staged on the target: %w", err)
	}
	p.mu.Lock()
	p.scripts = append(p.scripts, path)
	p.mu.Unlock()
	return keys, nil
}

// restage makes the staging directory again, with the files of this pane, whose shell outlived them.
func (p *Pane) restage(ctx context.Context) error {
	unlock, err := p.s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	p.s.staged = nil
	if err := p.s.stage(ctx); err != nil || p.unhidden { // an older shell's file is another one
		return err
	}
	p.mu.Lock()
	comp := p.stderr.companion
	p.mu.Unlock()
	if comp != nil {
		if err := p.s.writeFile(ctx, "e-"+p.key, comp.tty+"\n"); err != nil {
			return err
		}
	}
	return p.s.stagePane(ctx, p.key, p.s.rcData(p.key, p.nonce, nil))
}

// removeScripts removes staged scripts.
func (p *Pane) removeScripts(scripts []string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if _, err := p.s.run(ctx, append([]string{"rm", "-f", "--"}, scripts...)...); err != nil {
		p.s.log.WarnContext(ctx, "a staged command was not removed", slog.Any("paths", scripts), slog.Any("error", err))
	}
}
