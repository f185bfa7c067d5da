package container

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"countersign/targets/remote"
)

// spareScript waits for a command and becomes it: a line with its length in bytes, then shell text
// that execs a program. Nothing more comes, so no input is left unread.
const spareScript = `IFS= read -r n && c=$(head -c "$n" && echo .) && eval "${c%.}"`

// spareTime is how long a spare is kept without use.
const spareTime = 5 * time.Minute

// spare is a shell in the container that waits for the next read. Engines take 50 to 100 ms to start
// a program; a spare takes one write. It is used once, and only for programs that may be started twice
// ([remote.MayRepeat]): one that ends at the wrong moment takes its command with it.
type spare struct {
	s        *apiSession
	was      state
	in       *io.PipeWriter
	out, err *relay
	idle     *time.Timer
}

// relay passes on what is written to it once it is known to whom; what came before is dropped.
type relay struct {
	mu  sync.Mutex
	dst io.Writer
}

func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dst == nil {
		return len(b), nil
	}
	return r.dst.Write(b)
}

func (r *relay) to(dst io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dst = dst
}

// spares keeps one spare. The zero value is ready to use, and safe for concurrent use.
type spares struct {
	mu      sync.Mutex
	one     *spare
	making  bool
	retired bool
}

// take returns the spare, if it is one of the container in this state.
func (p *spares) take(now state) *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	sp := p.one
	p.one = nil
	if sp == nil {
		return nil
	}
	sp.idle.Stop()
	if sp.was != now || sp.s.over() {
		sp.drop()
		return nil
	}
	return sp
}

// run makes the spare a program. It gives up when ctx ends.
func (sp *spare) run(ctx context.Context, argv []string, stdout, stderr io.Writer) error {
	defer context.AfterFunc(ctx, func() { _ = sp.in.Close() })()
	sp.out.to(stdout)
	sp.err.to(stderr)
	text := command(argv) + " </dev/null"
	if _, err := fmt.Fprintf(sp.in, "%d\n%s", len(text), text); err != nil {
		return err
	}
	return sp.in.Close()
}

func (sp *spare) drop() {
	_ = sp.in.Close()
	sp.s.close()
}

// prepare makes a spare in the background, if there is none and the engine has an API: its command
// line would need a process on this machine for each.
func (p *spares) prepare(e engine, user string, now state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired || p.making || p.one != nil {
		return
	}
	p.making = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		defer cancel()
		r, w := io.Pipe()
		sp := &spare{was: now, in: w, out: new(relay), err: new(relay)}
		s, err := e.exec(ctx, now.id, user, []string{"sh", "-c", spareScript}, r, sp.out, sp.err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.making = false
		var byAPI bool
		sp.s, byAPI = s.(*apiSession)
		switch {
		case err != nil: // a read is started without one
			_ = r.Close()
		case !byAPI:
			_ = r.Close()
			s.close()
		case p.retired:
			sp.drop()
		default:
			p.one = sp
			sp.idle = time.AfterFunc(spareTime, func() { p.expire(sp) })
		}
	}()
}

func (p *spares) expire(sp *spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.one == sp {
		p.one = nil
		sp.drop()
	}
}

// close ends the spare; there will be no other.
func (p *spares) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	if p.one != nil {
		p.one.idle.Stop()
		p.one.drop()
		p.one = nil
	}
}

// openRead starts a program through the spare; nil means that there is none.
func (t *Target) openRead(ctx context.Context, e engine, st state, argv []string, stdout, stderr io.Writer) remote.Channel {
	sp := t.spares.take(st)
	if sp == nil {
		return nil
	}
	if err := sp.run(ctx, argv, stdout, stderr); err != nil {
		sp.drop()
		return nil
	}
	return t.channel(e, st, sp.s, true)
}
