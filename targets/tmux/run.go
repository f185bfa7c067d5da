package tmux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	// quietTime is the silence after which a running command is looked at for
	// the first time; later looks come at growing distances up to quietMax.
	quietTime = 300 * time.Millisecond
	quietMax  = 5 * time.Second
	// stableTime is how long a command must wait for something before Run
	// returns because of it.
	stableTime = time.Second
	// rawStable is the same for a program that reads keys by itself, which
	// cannot be told from one that only works in silence.
	rawStable = 4 * time.Second
	// settleTime is how long typing waits for a prompt that has begun to come.
	settleTime = 500 * time.Millisecond
	// typeTime bounds the time between typing and start.
	typeTime = 10 * time.Second
	// showTime is how long a command waits until the last one's standard error is on
	// the screen, and showTimeFar the same on a slow link.
	showTime    = 100 * time.Millisecond
	showTimeFar = 10 * time.Millisecond
	// slowLink is the round trip from which on a command is typed without asking for
	// the pane's status first.
	slowLink = 5 * time.Millisecond
	// defaultReattach is how long a lost connection is waited for; rejoinPause is the
	// pause between two attempts.
	defaultReattach = 45 * time.Second
	rejoinPause     = 500 * time.Millisecond
)

// errCopyMode refuses a pane whose keys do not reach its program.
var errCopyMode = stateError(StateHuman, "Somebody is reading the pane's history (copy mode), and typed keys would not reach the shell; ask them to leave it with q, then try again.")

// Run types a command at the pane's prompt and waits for its end. The end of
// ctx ends the waiting only: the command goes on in the pane, which Interrupt
// ends. Run returns an error when the command was not typed: a *StateError when
// the pane is not at its prompt, ErrGone when there is no such pane any more.
func (p *Pane) Run(ctx context.Context, c Command) (Outcome, error) {
	release, err := p.acquire()
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	notice, err := p.ready(ctx)
	if err != nil {
		return Outcome{}, err
	}
	p.ensureCompanion(ctx)
	p.mu.Lock()
	apart := p.stderr.separate()
	p.mu.Unlock()
	stderr := stderrMerged
	if apart && !wantsKeys(c.Text) {
		stderr = stderrApart
	}
	line, err := p.compose(ctx, c.Text, stderr)
	if err != nil {
		return Outcome{}, err
	}
	j := newJob(c, stderr)
	if err := p.announce(c, j); err != nil {
		return Outcome{}, err
	}
	if err := p.typeLine(ctx, j, line); err != nil {
		return Outcome{}, err
	}
	o, err := p.await(ctx, j)
	o.Notice = join(notice, o.Notice)
	return o, err
}

// announce says where the command will be found again, before it is typed.
func (p *Pane) announce(c Command, j *job) error {
	p.mu.Lock()
	j.where = Where{Shell: p.shell.pid, Seq: p.shell.seq}
	p.mu.Unlock()
	if c.Before == nil {
		return nil
	}
	return c.Before(j.where)
}

// Dispatch types a command and returns when it has started. Its streams are
// not redirected and not captured: it is meant for what people look at, or for
// what runs for long. Output is ignored.
func (p *Pane) Dispatch(ctx context.Context, c Command) error {
	release, err := p.acquire()
	if err != nil {
		return err
	}
	defer release()
	if _, err := p.ready(ctx); err != nil {
		return err
	}
	line, err := p.compose(ctx, c.Text, stderrMerged)
	if err != nil {
		return err
	}
	j := newJob(Command{Text: c.Text, Keep: 1024}, stderrMerged)
	if err := p.announce(c, j); err != nil {
		return err
	}
	if err := p.typeLine(ctx, j, line); err != nil {
		return err
	}
	defer p.releaseJob(j)
	if err := p.wait(ctx, typeTime, func() bool { return !j.in(jobSent, jobTyped) }); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return j.refused
}

func join(a, b string) string { return strings.TrimSpace(a + " " + b) }

// acquire takes the pane for typing.
func (p *Pane) acquire() (release func(), err error) {
	select {
	case p.busy <- struct{}{}:
		return func() { <-p.busy }, nil
	default:
		return nil, stateError(StateRunning, "A command is running in the pane; wait for it, or interrupt it.")
	}
}

func stateError(s State, sentence string) error { return &StateError{State: s, Sentence: sentence} }

// ready brings the pane to its prompt where that needs nobody's consent, and
// refuses otherwise.
func (p *Pane) ready(ctx context.Context) (notice string, err error) {
	if err := p.ensure(ctx); err != nil {
		return "", err
	}
	if !p.lease.held() {
		return "", ErrDriven
	}
	p.mu.Lock()
	near := p.c.rtt < slowLink
	p.mu.Unlock()
	if near && !p.s.alone(p.session) {
		// Elsewhere this would double the time of a command; what is not known yet is
		// found out by typing itself, all but a line that somebody begins right now. Where
		// nobody else may type there is none.
		if err := p.refresh(ctx); err != nil {
			return "", err
		}
	}
	p.mu.Lock()
	st := p.stat
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
	phase, origin, line, restarted := p.shell.phase, p.origins.current, p.line, p.shell.restarted
	if phase == phaseIdle {
		p.shell.restarted = false
	}
	p.mu.Unlock()
	if restarted {
		notice = "The pane's shell had ended; " + newShell
	}
	switch {
	case phase == phaseRunning && origin == originPerson:
		return "", stateError(StateHuman, "Somebody's command is running in the pane; wait until it ends, or use another pane.")
	case phase != phaseIdle:
		return "", stateError(StateRunning, "A command is running in the pane; wait for it, or interrupt it.")
	case line.continued:
		return "", stateError(StateHuman, "Somebody has begun a command of several lines at the prompt; wait until they are done, or clear it with C-c.")
	case line.hasText():
		if err := p.clean(ctx); err != nil {
			return "", err
		}
	}
	// Let the last command's standard error be shown before the next line. Far away
	// nobody waits for the answer: what was sent first is there first.
	shown := showTime
	if !near {
		shown = showTimeFar
	}
	_ = p.wait(ctx, shown, func() bool {
		return p.stderr.companion == nil || p.stderr.mirror.idle()
	})
	return notice, nil
}

// refresh asks for the pane's status. The subscription tells it as well, but up
// to a second later, and not when it has changed back meanwhile.
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
	if st != p.stat {
		p.setStatus(st)
	}
	return nil
}

// clean makes sure that what was written after the prompt is not a line that
// somebody is typing. Where nobody but the bot can type, a line that the bot did not begin
// is an answer of the terminal to what a program printed: typing clears it.
func (p *Pane) clean(ctx context.Context) error {
	p.mu.Lock()
	draft := p.line.hasDraft()
	p.mu.Unlock()
	stray := p.s.alone(p.session) && !draft
	half := stateError(StateHuman, "Somebody has typed at the prompt without pressing Enter; wait until they are done, or clear the line with C-u.")
	if draft {
		half = stateError(StateHuman, "Keys that were sent stand at the prompt without Enter; send Enter to run them, or C-u to clear the line.")
	}
	if stray && p.s.caps.Bash == "" {
		return nil
	}
	if p.s.caps.Bash == "" {
		return half // without a line editor there is nobody to ask
	}
	if err := p.askLine(ctx); err != nil {
		if errors.Is(err, errSilent) {
			return half
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lineQuery.lineLen > 0 && !stray || p.line.continued {
		return half
	}
	if p.shell.phase != phaseIdle {
		return stateError(StateHuman, "Somebody's command is running in the pane; wait until it ends, or use another pane.")
	}
	return nil
}

// compose decides what is typed: the text itself, or a line that reads it from
// a staged script.
func (p *Pane) compose(ctx context.Context, text string, stderr stderrCapture) (line string, err error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("tmux: the command is empty; give a command")
	}
	bash := p.s.caps.Bash != ""
	if bash && typable(text) {
		if stderr == stderrMerged {
			return text, nil
		}
		if line, ok := redirected(text); ok && len(line) <= typeMax {
			return line, nil
		}
	}
	script := p.s.file("c-" + p.key + "-" + random(3))
	if !bash {
		text = posixStart(p.nonce) + text
	}
	if err := p.s.t.FS().WriteFile(ctx, script, []byte(text+"\n"), false); err != nil {
		return "", fmt.Errorf("the command cannot be staged on the target: %w", err)
	}
	p.mu.Lock()
	p.scripts = append(p.scripts, script)
	p.mu.Unlock()
	line = ". " + shellWord(script)
	if stderr == stderrApart {
		line += " 2>&" + errFD
	}
	return line, nil
}

// shellWord quotes s only where it has to be quoted, since people read it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}
	if strings.TrimFunc(s, plain) == "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return shellQuote(s)
}

// discard removes staged scripts.
func (p *Pane) discard(scripts []string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if _, err := p.s.run(ctx, append([]string{"rm", "-f", "--"}, scripts...)...); err != nil {
		p.s.log.WarnContext(ctx, "a staged command was not removed", slog.Any("paths", scripts), slog.Any("error", err))
	}
}

// typeLine types line at the prompt as j. What somebody typed in the very
// moment is cleared by the first key.
func (p *Pane) typeLine(ctx context.Context, j *job, line string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wipe := keyClear
	if p.s.caps.Bash == "" {
		wipe = "\x15"
	}
	// The prompt may still be on its way, after an empty line of our own.
	_ = p.wait(ctx, settleTime, func() bool { return p.shell.phase == phaseIdle })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lease.held() {
		return ErrDriven
	}
	if p.shell.phase != phaseIdle {
		return stateError(StateHuman, "Somebody has just started a command in the pane; wait until it ends, or use another pane.")
	}
	j.seq, j.shellEnds = p.shell.seq, p.stderr.shellEnds
	p.job = j
	p.press([]byte(wipe+line+"\r"), p.lease.blockedForBot, func(err error) {
		defer close(j.answered)
		switch {
		case err == nil:
			p.mu.Lock()
			p.advanceJob(j, jobTypingConfirmed)
			p.mu.Unlock()
		case !errors.Is(err, errConn):
			p.refuseJob(j, err)
		}
	})
	return nil
}

// await waits for a typed job and makes the outcome.
func (p *Pane) await(ctx context.Context, j *job) (Outcome, error) {
	kind, notice := p.watchJob(ctx, j)
	if kind == Lost {
		// Whether it was typed at all is on its way, or never comes.
		timer := time.NewTimer(probeTime)
		select {
		case <-j.answered:
		case <-timer.C:
		}
		timer.Stop()
	}
	p.mu.Lock()
	refused := j.refused
	p.mu.Unlock()
	if refused != nil {
		return Outcome{}, refused
	}
	p.releaseJob(j)
	o := p.outcome(j)
	o.Kind = kind
	o.Notice = join(notice, o.Notice)
	if kind == Exited {
		p.obituary(ctx, j, &o)
	}
	if kind != Exited || !j.lostAt.IsZero() {
		o.Screen = p.screen(ctx)
	}
	return o, nil
}

func (p *Pane) outcome(j *job) Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := Outcome{
		Kind: Exited, Code: j.code, Stdout: j.out.captured(), Stderr: j.err.captured(),
		Split: j.stderr != stderrMerged, Dir: p.shell.dir, Duration: cmp.Or(j.dur, time.Since(j.begin)), Notice: j.notice, Where: j.where,
	}
	return o
}

// watchJob waits until the job ends, or until there is a reason to stop
// waiting.
func (p *Pane) watchJob(ctx context.Context, j *job) (OutcomeKind, string) {
	look := time.NewTimer(quietTime)
	defer look.Stop()
	// A look can take several round trips, and the end must not wait for it.
	lctx, stop := context.WithCancel(ctx)
	defer stop()
	var sights chan sight // of the look that is under way, or nil
	distance := quietTime
	var was State
	var since time.Time
	for {
		p.mu.Lock()
		gone, changed, c := p.gone, p.changed, p.c
		full, fullAt, last, started := p.stat.alternate, p.fullAt, p.lastOut, !j.unstarted()
		hookless, begin := j.in(jobRunning) && p.shell.phase == phaseIdle, j.begin
		refused := j.refused != nil
		p.mu.Unlock()
		select {
		case <-j.done:
			return Exited, ""
		default:
		}
		switch {
		case refused:
			return Lost, ""
		case gone:
			return Lost, "The pane went away while the command ran; whether it finished is not known."
		case !c.alive():
			if kind, notice := p.rejoin(ctx, j); kind != "" {
				return kind, notice
			}
			continue
		case full && time.Since(fullAt) >= stableTime && started:
			return Fullscreen, "The command shows a full-screen program, which waits for keys."
		case !started && time.Since(begin) > typeTime:
			return Lost, "The command was typed, but the shell did not start it; look at the pane."
		}
		if hookless && p.s.caps.Bash != "" && p.lease.held() {
			// There is a prompt, but no end: the command has removed the hook.
			if p.askLine(ctx) == nil {
				continue
			}
		}
		select {
		case <-j.done:
			return Exited, ""
		case <-changed:
			if full != p.alternate() {
				distance = quietTime
				look.Reset(stableTime)
			}
		case <-c.dead:
		case <-ctx.Done():
			select {
			case <-j.done:
				return Exited, ""
			default:
			}
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return TimedOut, "The command still runs in the pane."
			}
			return Cancelled, "The command still runs in the pane."
		case <-look.C:
			if sights != nil {
				continue // its end sets the timer again
			}
			if quiet := time.Since(last); started && quiet < quietTime {
				was, distance = "", quietTime
				look.Reset(max(quietTime-quiet, 10*time.Millisecond))
				continue
			}
			sights = p.look(lctx, started)
		case saw := <-sights:
			sights = nil
			if saw.prompt && p.lease.held() {
				_ = p.askLine(ctx) // a prompt without its mark; asking mends the hook
			}
			if !started {
				was, distance = "", quietTime
				look.Reset(quietTime)
				continue
			}
			if saw.state != was || last.After(since) {
				was, since = saw.state, time.Now()
			}
			stable := stableTime
			if saw.raw {
				stable = rawStable
			}
			if saw.state != "" && time.Since(since) >= stable {
				if saw.state == StatePassword {
					return WaitingPassword, "The command asks for a password or another secret."
				}
				return WaitingInput, "The command waits for input."
			}
			if distance = min(2*distance, quietMax); saw.state != "" {
				distance = stableTime / 2
			}
			look.Reset(distance)
		}
	}
}

// look looks at a silent command in a goroutine that ends by itself, or with ctx. The
// pane's status is asked for, and once the command has started its terminal as well.
func (p *Pane) look(ctx context.Context, started bool) chan sight {
	got := make(chan sight, 1)
	go func() {
		_ = p.refresh(ctx) // what fails is seen in the next round
		if !started {
			got <- sight{}
			return
		}
		got <- p.peer(ctx)
	}()
	return got
}

func (p *Pane) alternate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stat.alternate
}

const newShell = "a new one was started in the pane's first directory, without the variables and functions of the old one."

// obituary says what a job means that ended with its shell.
func (p *Pane) obituary(ctx context.Context, j *job, o *Outcome) {
	p.mu.Lock()
	died := j.endedBy == jobShellExited
	if died {
		p.shell.restarted = false // said here
	}
	p.mu.Unlock()
	if !died {
		return
	}
	_ = p.wait(context.WithoutCancel(ctx), probeTime, func() bool { return p.shell.phase == phaseIdle })
	p.mu.Lock()
	o.Dir = p.shell.dir
	p.mu.Unlock()
	// What the shells of this world make of a signal; "exit 137" is as rare as
	// it is ambiguous.
	if n := o.Code - 128; n == 1 || n == 6 || n == 9 || n == 11 || n == 15 {
		o.Kind = Lost
		o.Notice = join(o.Notice, fmt.Sprintf("The pane's shell was killed by signal %d while the command ran; whether the command finished is not known; %s", n, newShell))
		return
	}
	o.Notice = join(o.Notice, fmt.Sprintf("The command ended the pane's shell itself, with exit code %d; %s", o.Code, newShell))
}
