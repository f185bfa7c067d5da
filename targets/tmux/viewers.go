package tmux

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// viewers get every byte that programs write to a pane. Pane.mu guards them.
type viewers struct {
	watchers map[*watcher]struct{}
	tap      func([]byte) // or nil
}

func newViewers() viewers { return viewers{watchers: map[*watcher]struct{}{}} }

func (v *viewers) write(b []byte) {
	for w := range v.watchers {
		if !w.send(b) {
			delete(v.watchers, w)
		}
	}
	if v.tap != nil {
		v.tap(b)
	}
}

func (v *viewers) add(w *watcher) { v.watchers[w] = struct{}{} }

// remove ends a watcher's stream.
func (v *viewers) remove(w *watcher) {
	delete(v.watchers, w)
	w.drop()
}

// removeAll ends the watchers' streams. The tap stays: the pane outlives its connection.
func (v *viewers) removeAll() {
	for w := range v.watchers {
		w.drop()
	}
	clear(v.watchers)
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

// Watch returns what the pane shows now, as bytes for a terminal emulator, and the bytes
// that programs write to it from that moment on. The channel is closed when ctx ends, when
// the pane or the connection is lost, or when the reader is too slow; call Watch again
// then.
func (p *Pane) Watch(ctx context.Context) (snapshot []byte, live <-chan []byte, err error) {
	end, err := p.use(ctx)
	if err != nil {
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
			// In the reader's goroutine, so that no byte between the snapshot and the stream is
			// lost or repeated.
			p.mu.Lock()
			p.viewers.add(w)
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
		p.viewers.remove(w)
		p.mu.Unlock()
		end()
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

// Tap calls a function with what the pane shows now, and then with every byte that programs
// write to it, from one goroutine at a time. The function must not block. nil ends it.
func (p *Pane) Tap(ctx context.Context, tap func([]byte)) error {
	if tap == nil {
		p.mu.Lock()
		p.viewers.tap = nil
		p.mu.Unlock()
		return nil
	}
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shot, live, err := p.Watch(wctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tap(shot)
	for {
		select {
		case b, ok := <-live:
			if ok {
				tap(b)
				continue
			}
		default:
		}
		p.viewers.tap = tap
		return nil
	}
}
