package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Capture reads the screen and the history of the pane. When the alternate
// screen is asked for and none is active, the text is that of the main screen
// and notice says so.
func (p *Pane) Capture(ctx context.Context, o CaptureOptions) (text, notice string, err error) {
	for _, n := range []string{o.Start, o.End} {
		if _, err := strconv.Atoi(n); err != nil && n != "" && n != "-" {
			return "", "", fmt.Errorf("tmux: %q is no line number; give a number or \"-\"", n)
		}
	}
	if err := p.ensure(ctx); err != nil {
		return "", "", err
	}
	var flags strings.Builder
	flags.WriteString("capture-pane -p")
	for _, f := range []struct {
		on   bool
		flag string
	}{{o.Join, " -J"}, {o.TrailingSpaces, " -N"}, {o.Escapes, " -e"}, {o.EscapeNonPrintable, " -C"}} {
		if f.on {
			flags.WriteString(f.flag)
		}
	}
	if o.Alternate {
		// What a full-screen program draws on is what the pane shows; tmux's own -a is the
		// other one, which waits behind it.
		on, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{alternate_on}'", p.id))
		switch {
		case err != nil:
			return "", "", err
		case (reply{lines: on}).first() != "1":
			notice = "There is no alternate screen now; this is the main screen."
		case strings.HasPrefix(o.Start, "-"):
			o.Start = "" // it has no history
		}
	}
	line := flags.String()
	if o.Start != "" {
		line += " -S " + o.Start
	}
	if o.End != "" {
		line += " -E " + o.End
	}
	lines, err := p.do(ctx, line+fmt.Sprintf(" -t %%%d", p.id))
	if err != nil {
		return "", "", err
	}
	if o.Join && !o.TrailingSpaces {
		for i, l := range lines { // -J keeps them
			lines[i] = strings.TrimRight(l, " ")
		}
	}
	return strings.Join(lines, "\n") + "\n", notice, nil
}

// screen is what the pane shows, for an outcome; "" when that is not to be had.
func (p *Pane) screen(ctx context.Context) string {
	p.mu.Lock()
	reachable := !p.gone && p.c.alive()
	p.mu.Unlock()
	if !reachable {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	text, _, err := p.Capture(ctx, CaptureOptions{})
	if err != nil {
		return ""
	}
	return strings.TrimRight(text, "\n ") + "\n"
}

// Kill ends the pane with everything that runs in it. Only its driver can.
func (p *Pane) Kill(ctx context.Context) error {
	if err := p.ensure(ctx); err != nil {
		return err
	}
	err := p.perform(ctx, p.stale, fmt.Sprintf("kill-pane -t %%%d", p.id), nil)
	if err != nil && !errors.Is(err, errConn) { // the last pane takes the session along
		return err
	}
	p.lost(true)
	return nil
}

// watchQueue is how many pieces a watcher may be behind.
const watchQueue = 1024

// watcher is one reader of the pane's stream.
type watcher struct {
	ch     chan []byte
	closed bool
}

// send never blocks; a watcher that is too far behind is dropped.
func (w *watcher) send(b []byte) bool {
	if w.closed {
		return false
	}
	select {
	case w.ch <- append([]byte(nil), b...):
		return true
	default:
		w.drop()
		return false
	}
}

func (w *watcher) drop() {
	if !w.closed {
		w.closed = true
		close(w.ch)
	}
}

// Watch returns what the pane shows now, as bytes for a terminal emulator, and
// the bytes that programs write to it from that moment on. The channel is
// closed when ctx ends, when the pane or the connection is lost, or when the
// reader is too slow; watch again then.
func (p *Pane) Watch(ctx context.Context) (snapshot []byte, live <-chan []byte, err error) {
	if err := p.ensure(ctx); err != nil {
		return nil, nil, err
	}
	w := &watcher{ch: make(chan []byte, watchQueue)}
	type shot struct {
		lines  []string
		cursor string
		err    error
	}
	got := make(chan shot, 1)
	p.mu.Lock()
	c := p.c
	p.mu.Unlock()
	var s shot
	c.post(fmt.Sprintf("capture-pane -p -e -N -t %%%d", p.id), func(r reply) {
		s.lines, s.err = r.lines, r.err
		if s.err == nil {
			// In the reader's goroutine, so that not a byte is lost or shown
			// twice between the snapshot and the stream.
			p.mu.Lock()
			p.watchers[w] = struct{}{}
			p.mu.Unlock()
		}
	})
	c.post(fmt.Sprintf("display-message -p -t %%%d '#{cursor_y};#{cursor_x};#{alternate_on}'", p.id), func(r reply) {
		s.cursor = r.first()
		if s.err == nil {
			s.err = r.err
		}
		got <- s
	})
	var res shot
	select {
	case res = <-got:
	case <-ctx.Done():
		err = ctx.Err()
	}
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, w)
		w.drop()
	})
	if err == nil {
		err = res.err
	}
	if err != nil {
		return nil, nil, err
	}
	f := strings.Split(res.cursor, ";")
	var y, x int
	var b strings.Builder
	if len(f) == 3 {
		y, _ = strconv.Atoi(f[0])
		x, _ = strconv.Atoi(f[1])
		if f[2] == "1" {
			b.WriteString("\x1b[?1049h")
		}
	}
	b.WriteString("\x1b[0m\x1b[2J\x1b[H")
	b.WriteString(strings.Join(res.lines, "\r\n"))
	fmt.Fprintf(&b, "\x1b[0m\x1b[%d;%dH", y+1, x+1)
	return []byte(b.String()), w.ch, nil
}
