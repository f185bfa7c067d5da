package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// companion is the hidden pane that carries a shell's standard error. It lives
// in a tmux server of its own, so that people never meet it.
type companion struct {
	c   *conn
	id  int
	tty string
}

const (
	relaySession = "err"
	// mirrorMax bounds what waits to be shown; what is beyond is left out of
	// the pane, not out of the result.
	mirrorMax = 64 << 10
	// mirrorFlight is how many frames are on their way at a time.
	mirrorFlight = 16
	// mirrorHold is how long the first bytes wait for the end of the command.
	mirrorHold = 15 * time.Millisecond
	// mirrorDoubt is how long bytes that come while no command of this process runs wait
	// where several processes share the panes: they may be those of a new driver, who
	// shows them, and of whom this process hears within a second.
	mirrorDoubt = 1500 * time.Millisecond
)

// mirror shows standard error in the visible pane.
type mirror struct {
	inside  bool // between the marks of a frame in the visible stream
	size    int  // bytes of that frame so far
	astray  bool // a frame for a running command came in behind the prompt
	held    bool // mirrorHold runs
	queue   []byte
	skipped int64
	flight  int
	gen     int // counts resets, so that late answers are known
	asks    questions
	// asked says that a program asked the error terminal something: the answer went into
	// the relay, whose frames are torn from there on.
	asked bool
}

func (m *mirror) reset() { *m = mirror{gen: m.gen + 1} }

// connectRelay returns the connection to the server of the companions, and
// starts that server where it does not run. The caller holds setup.
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
	s.relay = c
	s.mu.Unlock()
	if found {
		s.sweepCompanions(ctx, c)
	}
	return c, nil
}

// companionAge is how long a companion is left alone whose pane is not there: another
// process may be about to make it.
const companionAge = time.Minute

// sweepCompanions removes the companions of panes that are gone.
func (s *Server) sweepCompanions(ctx context.Context, c *conn) {
	out, err := s.run(ctx, append(s.cli(s.socket()), "list-panes", "-a", "-F", "#{"+optKey+"}")...)
	if err != nil && !noServer(err) {
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
		if used, err := strconv.ParseInt(f[1], 10, 64); err == nil && time.Duration(now-used)*time.Second >= companionAge {
			c.post("kill-pane -t "+f[0], nil)
		}
	}
}

// newCompanion makes a companion; its relay does not run yet. The caller holds
// setup.
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

// findCompanion finds the companion of a pane, or makes one where it may, and else
// returns nil; the relay of a fresh one does not run yet. The caller holds setup.
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
	return comp, true, s.t.FS().WriteFile(ctx, s.file("e-"+key), []byte(comp.tty+"\n"), false)
}

// errSink is the pane's ear at its companion.
type errSink struct {
	p    *Pane
	comp *companion
}

func (e errSink) output(b []byte) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.p.comp == e.comp {
		e.p.err.feed(b)
	}
}

func (e errSink) status(st paneStatus) {
	if st.dead {
		e.lost(true)
	}
}

func (e errSink) lost(bool) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.p.comp == e.comp {
		e.p.breakCompanion("the companion pane is gone")
	}
}

// attachCompanion makes comp the pane's companion; its relay is taken to run
// unless startRelay follows.
func (p *Pane) attachCompanion(comp *companion) {
	p.mu.Lock()
	p.comp = comp
	p.errReady = comp != nil
	p.mu.Unlock()
	if comp != nil {
		comp.c.register(comp.id, errSink{p, comp})
	}
}

// breakCompanion gives up the companion; the next command gets a new one. It ends only
// for its driver, as another process may need it. The caller holds mu.
func (p *Pane) breakCompanion(why string) {
	comp := p.comp
	if comp == nil {
		return
	}
	p.comp = nil
	p.errReady = false
	p.mirror.reset()
	p.s.log.Debug("the companion pane was given up", slog.String("pane", p.ID()), slog.String("why", why))
	comp.c.register(comp.id, nil)
	if p.driving.Load() {
		comp.c.post(fmt.Sprintf("kill-pane -t %%%d", comp.id), nil)
	}
	for _, j := range []*job{p.typed, p.job, p.draining} {
		if j != nil && j.split {
			j.deafen()
		}
	}
	if j := p.draining; j != nil {
		p.end(j)
	}
	p.notify()
}

// deafen takes note that nothing more of a job's standard error is heard.
func (j *job) deafen() {
	if !j.deaf {
		j.deaf = true
		j.notice = join(j.notice, "The end of standard error could not be seen; some of it may be missing.")
	}
}

// startRelay starts the relay of a fresh companion and waits for it. Without it the
// streams are merged, which is a lesser evil than no pane.
func (p *Pane) startRelay(ctx context.Context) {
	p.mu.Lock()
	comp := p.comp
	p.errReady, p.errBoot = false, nil
	p.err.part = nil
	p.mu.Unlock()
	if comp == nil {
		return
	}
	err := func() error {
		_, err := comp.c.do(ctx, fmt.Sprintf("respawn-pane -k -t %%%d /bin/sh %s", comp.id, quote(p.s.file("relay.sh"))))
		if err != nil {
			return err
		}
		lines, err := comp.c.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{pane_id} #{pane_tty}'", comp.id))
		if err != nil {
			return err
		}
		if err := comp.parse(reply{lines: lines}.first()); err != nil {
			return err
		}
		if err := p.wait(ctx, startTime, func() bool { return p.errReady || p.comp != comp }); err != nil {
			return err
		}
		return p.s.t.FS().WriteFile(ctx, p.s.file("e-"+p.key), []byte(comp.tty+"\n"), false)
	}()
	if err != nil {
		p.mu.Lock()
		p.breakCompanion(err.Error())
		p.mu.Unlock()
	}
}

// mendCompanion gives a pane that has none a companion again. The shell is at
// its prompt.
func (p *Pane) mendCompanion(ctx context.Context) {
	p.mu.Lock()
	var waiting []byte
	if p.comp != nil && p.mirror.asked {
		waiting = p.mirror.take()
		p.breakCompanion("a program asked the error terminal, which answered into the relay")
	}
	have := p.comp != nil
	p.mu.Unlock()
	if have || p.s.caps.Bash == "" {
		return
	}
	unlock, err := p.s.lock(ctx)
	if err != nil {
		return
	}
	comp, fresh, err := p.s.findCompanion(ctx, p.key, true)
	unlock()
	if err != nil {
		p.s.log.WarnContext(ctx, "standard error will not be captured apart", slog.Any("error", err))
		return
	}
	p.attachCompanion(comp)
	if fresh {
		p.startRelay(ctx)
	}
	// The answer means that the shell has opened the new terminal.
	if err := p.askLine(ctx); err != nil {
		p.mu.Lock()
		p.breakCompanion("the shell did not take the new companion")
		p.mu.Unlock()
		return
	}
	p.aimMirror()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(waiting) > 0 && p.comp != nil {
		p.mirror.add(waiting)
		p.pump()
	}
}

// onErrText takes what programs wrote to standard error.
func (p *Pane) onErrText(b []byte) {
	if !p.errReady {
		p.errBoot = append(p.errBoot, b...)
		if bytes.Contains(p.errBoot, []byte(relayReady)) {
			p.errReady, p.errBoot = true, nil
			p.notify()
		}
		return
	}
	if bytes.Contains(b, []byte(p.nonce)) {
		// A program has set the terminal to echo: what is shown would come
		// back and be shown again.
		p.breakCompanion("a program changed the modes of the error terminal")
		return
	}
	p.lastOut = time.Now()
	// A typed job may be ahead here of what the other connection has told.
	for _, j := range []*job{p.job, p.draining, p.typed} {
		if j != nil && !p.errEnded(j) {
			j.err.add(b)
			j.emit(Err, b)
			break
		}
	}
	if !p.driving.Load() {
		return // the driver shows it
	}
	shown, asked := p.mirror.asks.strip(b)
	p.mirror.asked = p.mirror.asked || asked
	p.mirror.add(shown)
	switch {
	case p.s.shared.Load() && p.typed == nil && p.draining == nil && (!p.mine || p.phase != phaseRunning):
		p.hold(mirrorDoubt)
	case p.phase != phaseRunning || p.mirror.flight > 0:
		p.pump()
	default:
		p.hold(mirrorHold)
	}
}

// hold shows what is queued a moment later: most commands end right after an
// error message, and then it is better shown once the prompt is known than
// just behind it. The caller holds mu.
func (p *Pane) hold(limit time.Duration) {
	if p.mirror.held {
		return
	}
	p.mirror.held = true
	gen := p.mirror.gen
	time.AfterFunc(limit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mirror.gen == gen {
			p.mirror.held = false
			p.pump()
		}
	})
}

func (p *Pane) onErrMark(kind, args string) {
	switch kind {
	case "E":
		if args == "x" { // the shell has ended
			p.errEnds++
		} else if seq, err := strconv.Atoi(args); err == nil {
			p.errSeq = seq
		}
		if j := p.draining; j != nil && p.errEnded(j) {
			p.end(j)
		}
	case "M", "T":
		p.breakCompanion("a program changed the modes of the error terminal")
	}
}

func (m *mirror) add(b []byte) {
	room := mirrorMax - len(m.queue)
	if len(b) > room {
		m.skipped += int64(len(b) - room)
		b = b[:room]
	}
	m.queue = append(m.queue, b...)
}

// aimMirror tells the relay which terminal is the visible one.
func (p *Pane) aimMirror() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.comp == nil || p.tty == "" || !p.driving.Load() {
		return
	}
	p.sendFrame(p.frame("T;"+p.tty+";", nil))
}

// frame makes one unit for the relay: a mark of that kind, data, and a closing
// mark that is padded to the full size. Without data the mark itself is padded.
func (p *Pane) frame(kind string, data []byte) []byte {
	f := make([]byte, 0, frameSize)
	f = append(f, markStart+p.nonce+";"...)
	f = append(f, kind...)
	if data != nil {
		f = append(f, 0x07)
		f = append(f, data...)
		f = append(f, markStart+p.nonce+";M;e;"...)
	}
	for len(f) < frameSize-1 {
		f = append(f, 'x')
	}
	return append(f, 0x07)
}

// frameRoom is how much data fits into a frame.
func (p *Pane) frameRoom() int {
	return frameSize - 2*(len(markStart)+len(p.nonce)+1) - len("M;b\x07") - len("M;e;") - 1
}

// sendFrame types a frame into the companion. The caller holds mu.
func (p *Pane) sendFrame(f []byte) {
	gen := p.mirror.gen
	p.mirror.flight++
	comp := p.comp
	buffer := fmt.Sprintf("f%d-%s", comp.id, p.s.token)
	comp.c.post(fmt.Sprintf("set-buffer -b %s %s", buffer, quote(string(f))), nil)
	comp.c.post(fmt.Sprintf("paste-buffer -d -r -b %s -t %%%d", buffer, comp.id), func(r reply) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mirror.gen != gen {
			return
		}
		p.mirror.flight--
		if r.err == nil {
			p.pump()
		}
		p.notify()
	})
}

// pump sends what waits to be shown, as far as it goes now. The caller holds
// mu.
func (p *Pane) pump() {
	m := &p.mirror
	if p.comp == nil || p.tty == "" || len(m.queue) == 0 || m.asked {
		return
	}
	switch p.phase {
	case phaseIdle:
		doubt := m.held && p.s.shared.Load()
		if p.typed == nil && m.flight == 0 && !doubt {
			// The prompt is there already: take it away, and show it again below.
			p.showIdle(append([]byte("\r\x1b[K"), m.take()...))
		}
	case phaseRunning:
		if p.held() {
			return
		}
		for m.flight < mirrorFlight && len(m.queue) > 0 {
			var cut []byte
			cut, m.queue = cutFrame(m.queue, p.frameRoom())
			p.sendFrame(p.frame("M;b", withoutNUL(cut)))
			if len(m.queue) == 0 {
				m.queue = m.take()
			}
		}
	case phaseStart, phasePrompt:
	}
}

// held tells whether the running command has ended as far as its standard
// error tells; the prompt will be there in no time. The caller holds mu.
func (p *Pane) held() bool {
	return p.mirror.held || (p.job != nil && p.job.split && p.errEnded(p.job))
}

// showIdle shows data above the prompt. The caller holds mu.
func (p *Pane) showIdle(data []byte) {
	for _, f := range p.idleFrames(data) {
		p.sendFrame(f)
	}
}

// idleFrames are the units that show data, and the prompt below it. The caller holds mu.
func (p *Pane) idleFrames(data []byte) (frames [][]byte) {
	for data = append(data, p.prompt...); len(data) > 0; {
		var cut []byte
		cut, data = cutFrame(data, p.frameRoom())
		frames = append(frames, p.frame("M;i", cut))
	}
	return frames
}

// onMirror takes the marks around a frame in the visible stream. The caller
// holds mu.
func (p *Pane) onMirror(args string) {
	m := &p.mirror
	switch args {
	case "b", "i":
		m.inside = true
		m.astray = m.astray || (args == "b" && p.phase == phaseIdle)
	default:
		m.inside, m.size = false, 0
		if m.astray && p.phase == phaseIdle && p.typed == nil && p.comp != nil && len(m.queue) == 0 && p.driving.Load() {
			m.astray = false
			p.showIdle(nil)
		}
	}
}

// take empties the queue, with a line about what did not fit.
func (m *mirror) take() []byte {
	b := withoutNUL(m.queue)
	if m.skipped > 0 {
		b = fmt.Appendf(b, "\r\n[%d more bytes of standard error are not shown here]\r\n", m.skipped)
	}
	m.queue, m.skipped = nil, 0
	return b
}

// withoutNUL removes what tmux's command line cannot carry; a terminal ignores
// it.
func withoutNUL(b []byte) []byte {
	if bytes.IndexByte(b, 0) < 0 {
		return b
	}
	return bytes.ReplaceAll(b, []byte{0}, nil)
}

// cutFrame cuts at most n bytes off b, if possible not inside a character or
// an escape sequence, which the mark behind it would break.
func cutFrame(b []byte, n int) (cut, rest []byte) {
	if len(b) <= n {
		return b, nil
	}
	if i := bytes.LastIndexByte(b[:n], '\n'); i > n/2 {
		return b[:i+1], b[i+1:]
	}
	if i := bytes.LastIndexByte(b[n-32:n], 0x1b); i >= 0 {
		return b[:n-32+i], b[n-32+i:]
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i], b[i:]
		}
	}
	return b[:n], b[n:]
}
