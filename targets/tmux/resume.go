package tmux

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Resume takes a command up again that was typed before, by this process or by one that is
// gone, and waits for its end as [Pane.Run] does. It types nothing. w is what the command's
// Before was called with, c the command, and began when it was typed; Before is ignored.
//
// What the command printed before the call is what the terminal still has of it, at most its
// history. The kind is Untyped if the command was never typed and never will be, and Lost if
// nothing tells how it ended. Errors are those of Run.
func (p *Pane) Resume(ctx context.Context, w Where, began time.Time, c Command) (Outcome, error) {
	release, err := p.acquire()
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	defer p.s.use(p.session)()
	look, found := outlasting(ctx)
	defer found()
	if err := p.ensure(look); err != nil {
		return Outcome{}, err
	}
	if !p.lease.held() {
		return Outcome{}, ErrDriven
	}
	j := newJob(c, stderrMerged)
	j.where, j.seq, j.begin, j.resumed = w, w.Seq, began, true
	for {
		t, err := p.Testify(look, w)
		switch {
		case err != nil:
			return Outcome{}, err
		case t.Ended:
			return p.endedBefore(look, j, c.Text, t)
		case t.Refused:
			return Outcome{}, ErrChanged
		case t.Unstarted && p.neverTyped(look, w):
			return Outcome{Kind: Untyped, Where: w}, nil
		case !t.Running:
			o := p.outcome(j)
			o.Kind, o.Screen = Lost, p.screenText(look)
			return o, nil
		}
		following, err := p.follow(look, j, c.Text)
		if err != nil {
			return Outcome{}, err
		}
		if following {
			return p.awaitJob(ctx, j)
		}
		// It has ended just now.
	}
}

// lookGrace is how long the search for a command goes on after its context is done.
const lookGrace = 5 * time.Second

// outlasting is a context for the search for a command, which a stop must find to interrupt it.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	look, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ends := context.AfterFunc(ctx, func() {
		late := time.NewTimer(lookGrace)
		defer late.Stop()
		select {
		case <-look.Done():
		case <-late.C:
			cancel()
		}
	})
	return look, func() { ends(); cancel() }
}

// neverTyped reports whether the shell, which is at the prompt before a command, says that
// none of the bot was read there. One that removed the prompt hook was, and has ended.
func (p *Pane) neverTyped(ctx context.Context, w Where) bool {
	if p.s.caps.Bash == "" {
		// What was typed before the question was read before it, and the shell says so.
		if p.queryStatus(ctx) != nil {
			return false
		}
		t, err := p.Testify(ctx, w)
		return err == nil && t.Unstarted
	}
	if !w.Apart || p.queryStatus(ctx) != nil { // else it is typed without keyRun
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	run := p.statusQuery.lastRun
	return p.shell.phase == phaseIdle && p.shell.seq == w.Seq && run != unknownPrompt && run < w.Seq
}

// endedBefore is the outcome of a command that ended while nobody waited for it.
func (p *Pane) endedBefore(ctx context.Context, j *job, text string, t Testimony) (Outcome, error) {
	var stderr string
	if j.where.Apart {
		stderr, _ = p.storedStderr(ctx, nil) // without it both streams are in stdout
	}
	lines, _, err := p.terminalLines(ctx, nil)
	if err != nil {
		return Outcome{}, err
	}
	p.mu.Lock()
	lines = withoutPrompts(withUnended(lines, p.unasked), strings.TrimRight(j.where.Prompt, " "), p.emptyLines)
	p.mu.Unlock()
	out, found := commandOutput(lines, j.where.Prompt, text, true)
	p.mu.Lock()
	j.phase = jobEnded
	j.addStored(out, stderr, found)
	j.finish(jobOutcomeFound, t.Code)
	if j.dur = 0; !t.At.IsZero() {
		j.dur = max(t.At.Sub(j.begin), time.Millisecond)
	}
	p.mu.Unlock()
	return p.outcome(j), nil
}

// follow gives a job that runs what the terminal has of its output, and captures what
// follows. It reports false if the job has ended meanwhile.
func (p *Pane) follow(ctx context.Context, j *job, text string) (following bool, err error) {
	var stderr string
	p.mu.Lock()
	j.shellEnds = p.stderr.shellEnds
	comp := p.stderr.companion
	p.mu.Unlock()
	if j.where.Apart && comp != nil {
		j.stderr = stderrApart
		// From the moment of this snapshot on, standard error is kept until the job takes it.
		stderr, err = p.storedStderr(ctx, func() {
			p.mu.Lock()
			p.stderr.pending = []byte{}
			p.mu.Unlock()
		})
		if err != nil {
			return false, err
		}
		defer func() {
			p.mu.Lock()
			p.stderr.pending = nil
			p.mu.Unlock()
		}()
	}
	_, _, err = p.terminalLines(ctx, func(lines []string) {
		// In the reader's goroutine, so that no byte between the snapshot and what follows is
		// lost or repeated.
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.shell.phase != phaseRunning || p.shell.seq > j.seq || !p.advanceJob(j, jobResumed) {
			return
		}
		p.origins.current = originOwn
		out, found := commandOutput(lines, j.where.Prompt, text, false)
		j.addStored(out, stderr+string(p.stderr.pending), found)
		p.stderr.pending = nil
		following = true
	})
	return following, err
}

// addStored adds what the terminal had of the job's output. found means that it is known
// where it begins.
func (j *job) addStored(out, stderr string, found bool) {
	j.addOut([]byte(withoutLines(out, stderr)))
	if stderr != "" {
		j.stderr = stderrApart
		j.addErr([]byte(stderr))
	}
	if !found {
		j.notice = join(j.notice, "The beginning of its output is not in the terminal any more.")
	}
}

// terminalLines returns the lines of the pane with its history, wrapped ones joined, up to
// the cursor. The last one is "" if the cursor is at the beginning of a line. at, if not
// nil, receives them in the reader's goroutine.
func (p *Pane) terminalLines(ctx context.Context, at func([]string)) (lines []string, full bool, err error) {
	p.mu.Lock()
	c := p.c
	p.mu.Unlock()
	return capturedLines(ctx, c, p.id, wholeHistory, at)
}

// storedStderr returns what the companion shows: the hook clears it before each command
// whose standard error goes there. at, if not nil, is called in the reader's goroutine.
func (p *Pane) storedStderr(ctx context.Context, at func()) (string, error) {
	p.mu.Lock()
	comp, clears := p.stderr.companion, p.clearsStderr
	p.mu.Unlock()
	if comp == nil || !clears {
		if at != nil {
			at()
		}
		return "", nil
	}
	lines, _, err := capturedLines(ctx, comp.c, comp.id, wholeHistory, func([]string) {
		if at != nil {
			at()
		}
	})
	return strings.Join(lines, "\n"), err
}

// wholeHistory makes capture-pane begin at the first line of the history.
const wholeHistory = " -S -"

// capturedLines reads a pane up to its cursor, from the first line that from, a flag of
// capture-pane, names; see terminalLines. full means that it is on the alternate screen,
// which has no history.
func capturedLines(ctx context.Context, c *conn, pane int, from string, at func([]string)) (lines []string, full bool, err error) {
	type shot struct {
		lines []string
		full  bool
		err   error
	}
	got := make(chan shot, 1)
	var cursor string
	// tmux does nothing between two commands of one list.
	c.post(fmt.Sprintf("display-message -p -t %%%d '#{cursor_x} #{cursor_y} #{pane_height} #{alternate_on}'", pane), func(r reply) { cursor = r.first() })
	c.post(fmt.Sprintf("capture-pane -p -J%s -t %%%d", from, pane), func(r reply) {
		s := shot{err: r.err}
		var x, y, height, alternate int
		if _, err := fmt.Sscan(cursor, &x, &y, &height, &alternate); err != nil && s.err == nil {
			s.err = errSilent
		}
		if s.full = alternate == 1; s.err == nil && !s.full {
			s.lines = upToCursor(r.lines, x)
		}
		if at != nil && s.err == nil {
			at(s.lines)
		}
		got <- s
	})
	select {
	case s := <-got:
		return s.lines, s.full, s.err
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// upToCursor removes the empty lines below the cursor, whose column is x, and the blanks
// that -J leaves at the ends of lines.
func upToCursor(lines []string, x int) []string {
	lines = slices.Clone(lines)
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if x == 0 {
		lines = append(lines, "")
	}
	return lines
}

// commandOutput finds the output of a command among the lines of its terminal, as text. The
// command stands behind the prompt, if that is known. found is false if it is not there any
// more: then the output is what is on the screen. With ended, the lines end with the next
// prompt, or with what people did after it.
func commandOutput(lines []string, prompt, command string, ended bool) (out string, found bool) {
	typed := strings.Split(shownText(command), "\n")
	for i := range typed {
		typed[i] = squeeze(typed[i])
	}
	from := -1
	for i := len(lines) - len(typed); i >= 0 && from < 0; i-- {
		if isTyped(lines[i:i+len(typed)], squeeze(prompt), typed) {
			from = i + len(typed)
		}
	}
	host := promptHost(prompt)
	if from < 0 {
		for i := len(lines) - 1; host != "" && i >= 0 && from < 0; i-- {
			if strings.HasPrefix(lines[i], host) && (!ended || i < len(lines)-1) {
				from = i + 1
			}
		}
		from = max(from, 0)
	} else {
		found = true
	}
	rest := lines[from:]
	if ended {
		rest = untilPrompt(rest, strings.TrimRight(prompt, " "), host)
	}
	return strings.Join(rest, "\n"), found
}

// isTyped reports whether lines show the squeezed lines of a command behind a prompt.
func isTyped(lines []string, prompt string, typed []string) bool {
	for i, l := range lines {
		l = squeeze(l)
		switch {
		case i > 0 && l != typed[i]:
			return false
		case i == 0 && prompt != "" && l != prompt+typed[0]:
			return false
		case i == 0 && !strings.HasSuffix(l, typed[0]):
			return false
		}
	}
	return true
}

// squeeze removes blanks: the terminal shows a tab as some, and a wrapped line may lose one.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

// promptHost is the part of a prompt that does not depend on the directory, "user@host:".
func promptHost(prompt string) string {
	if i := strings.IndexByte(prompt, ':'); i > 0 && strings.Contains(prompt[:i], "@") {
		return prompt[:i+1]
	}
	return ""
}

// withUnended returns lines with the last one as it was before the shell was asked for its
// state, of which before are the last lines. The answer redraws the prompt, which erases
// output before it that had no end.
func withUnended(lines, before []string) []string {
	n := len(before)
	if n == 0 || n > len(lines) {
		return lines
	}
	same := lines[len(lines)-n:]
	if n > 2 && !slices.Equal(same[1:n-1], before[1:n-1]) { // the first one may have wrapped
		return lines
	}
	now, then := same[n-1], before[n-1]
	kept := commonPrefix(now, then) // the rows above the last one of a line that wrapped
	switch {
	case strings.HasPrefix(now, then):
		return lines
	case strings.HasSuffix(then, now), kept < len(now) && strings.HasSuffix(then[kept:], now[kept:]):
		// Also while the prompt is being drawn, when now is empty.
	default: // the prompt had not been printed
		then += now
	}
	return append(slices.Clone(lines[:len(lines)-1]), then)
}

// withoutPrompts returns lines without the last n prompts, which follow empty lines of the bot's own.
func withoutPrompts(lines []string, prompt string, n int) []string {
	for ; n > 0 && len(lines) > 1 && lines[len(lines)-1] == prompt && strings.HasSuffix(lines[len(lines)-2], prompt); n-- {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// commonPrefix is the number of bytes with which both begin.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// untilPrompt cuts lines at the prompt that follows the output of a command. That prompt
// stands behind the last line of output if that line has no end.
func untilPrompt(lines []string, prompt, host string) []string {
	if host != "" {
		for i, l := range lines {
			if strings.HasPrefix(l, host) {
				return append(slices.Clone(lines[:i]), "")
			}
		}
	}
	if len(lines) == 0 {
		return lines
	}
	lines = slices.Clone(lines)
	last := &lines[len(lines)-1]
	switch at := strings.LastIndex(*last, host); {
	case prompt != "" && strings.HasSuffix(*last, prompt):
		*last = strings.TrimSuffix(*last, prompt)
	case host != "" && at >= 0:
		*last = (*last)[:at]
	}
	return lines
}

// withoutLines removes the lines of stderr from out, in their order: the pane shows them
// among the output, as far as they were copied there.
func withoutLines(out, stderr string) string {
	if stderr == "" {
		return out
	}
	shown := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	var b strings.Builder
	for line := range strings.Lines(out) {
		if len(shown) > 0 && strings.TrimSuffix(line, "\n") == shown[0] {
			shown = shown[1:]
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// plainPrompt is a prompt without marks and colours, "" if it cannot be told.
func plainPrompt(raw []byte) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == 0x1b && i+1 < len(raw) && raw[i+1] == ']':
			i += 1 + bytes.IndexAny(append(slices.Clone(raw[i+2:]), 0x07), "\x07\x1b")
			if i++; i < len(raw) && raw[i] == 0x1b {
				i++ // the string ends with ESC \
			}
		case c == 0x1b && i+1 < len(raw) && raw[i+1] == '[':
			i += 2 + slices.IndexFunc(append(slices.Clone(raw[i+2:]), 'm'), func(c byte) bool { return c >= 0x40 && c <= 0x7e })
		case c == '\r' || c == '\n':
			b.Reset() // the line of the cursor counts
		case c >= ' ' && c != 0x7f:
			b.WriteByte(c)
		}
	}
	if b.Len() > promptKept || strings.TrimSpace(b.String()) == "" {
		return ""
	}
	return b.String()
}

// promptKept is the longest prompt by which a command is found again.
const promptKept = 200
