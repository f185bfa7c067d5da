package remote

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"countersign/targets/backend"
)

// Checker is a Transport that can tell whether the system is still the one that it was, and can be
// used. It must be safe for concurrent use.
type Checker interface {
	Check(ctx context.Context) error
}

const (
	// spareDelay is how long after a read the next spare is made, and spareTime how long that may take.
	spareDelay = 50 * time.Millisecond
	spareTime  = 30 * time.Second
)

// spare is a launcher that waits on the system for the next read under a lock. Starting one there
// takes long in some places (a container engine: 50 to 100 ms), and so does compiling a script. It
// is used once.
type spare struct {
	p      *process
	feed   inputQueue
	closed chan channelEnd
	by     launcher
	age    int // of the machine when it was started
	idle   *time.Timer
}

// drop ends a spare that is not used.
func (sp *spare) drop() {
	sp.idle.Stop()
	sp.feed.close()
	sp.p.ch.Close()
}

// keepsSpares reports whether reads that are locked may use a spare.
func (m *Machine) keepsSpares() bool { return m.o.Spares && m.keepsCoprocess() }

// Attached reports whether a shell or launcher of ours runs on the system, as far as is known: it is
// there, then, and still the one that it was.
func (m *Machine) Attached() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.co != nil && !m.co.isDone() || m.spare != nil && len(m.spare.closed) == 0
}

// takeSpare returns the spare for a program; nil means that there is none, or that it can't start
// the program.
func (m *Machine) takeSpare(s backend.Spec) *spare {
	if s.Lock == nil || s.Stdin != nil || s.Mark != "" || s.Detach {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sp := m.spare
	m.spare = nil
	if sp == nil {
		return nil
	}
	sp.idle.Stop()
	select {
	case <-sp.closed:
	default:
		if sp.age == m.age {
			return sp
		}
	}
	sp.drop()
	return nil
}

// prepareSpare makes a spare in the background, if there is none. It begins a little later: what was
// read is awaited, and a container engine keeps a processor busy for as long as it starts a program.
func (m *Machine) prepareSpare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.keepsSpares() || m.closed || m.preparing || m.spare != nil || m.known == nil {
		return
	}
	sys, age := *m.known, m.age
	m.preparing = true
	time.AfterFunc(spareDelay, func() {
		ctx, cancel := context.WithTimeout(context.Background(), spareTime)
		defer cancel()
		sp, err := m.openSpare(ctx, sys)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.preparing = false
		if err != nil { // the next read is started without one
			return
		}
		sp.age = age
		sp.idle = time.AfterFunc(idleTime, func() { m.expireSpare(sp) })
		if m.closed || m.age != age {
			sp.drop()
			return
		}
		m.spare = sp
	})
}

func (m *Machine) expireSpare(sp *spare) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.spare == sp {
		m.dropSpare()
	}
}

// dropSpare ends the spare, if there is one. The caller holds mu.
func (m *Machine) dropSpare() {
	if m.spare != nil {
		m.spare.drop()
		m.spare = nil
	}
}

// openSpare starts a launcher without a job, and returns when it runs.
func (m *Machine) openSpare(ctx context.Context, sys system) (*spare, error) {
	p := newProcess(m, defaultGrace)
	p.locked, p.split = true, true
	words, err := sys.launcher.waiting(p.token)
	if err != nil {
		return nil, err
	}
	argv, err := m.wrap(sys, []string{p.token, "", "", "0", "0", "split", "", ""}, slices.Concat([]string{"env", "-i"}, backend.Environ(sys.caps), words))
	if err != nil {
		return nil, err
	}
	sp := &spare{p: p, by: sys.launcher, feed: inputQueue{lines: make(chan []byte, 1), end: make(chan struct{})}}
	if sp.closed, err = p.open(ctx, argv, &sp.feed, nil, nil); err != nil {
		sp.feed.close()
		return nil, err
	}
	select {
	case <-p.there:
		return sp, nil
	case end := <-sp.closed:
		sp.feed.close()
		return nil, m.lost(end.err)
	case <-ctx.Done():
		sp.feed.close()
		p.ch.Close()
		return nil, ctx.Err()
	}
}

// errSpare means that a spare has ended before it began its program.
var errSpare = errors.New("remote: the spare launcher has ended")

// startSpare has a spare start a program.
func (m *Machine) startSpare(ctx context.Context, sp *spare, s backend.Spec, j job) (_ *process, err error) {
	defer func() {
		if err != nil {
			m.prepareSpare()
		}
	}()
	text, err := sp.by.job(j)
	if err != nil || len(text) > argsMax {
		sp.drop()
		return nil, cmp.Or(err, errSpare) // the other way says what is too long
	}
	p := sp.p
	p.grace, p.begin = graceOf(s), time.Now()
	if p.out.to(s.Stdout); j.merged {
		p.err.to(nil) // the program's errors come with its output
	} else {
		p.err.to(s.Stderr)
	}
	sp.feed.lines <- text // there is room: nothing was sent before
	sp.feed.close()
	// Whether the system can be used is asked when nothing comes. It was asked when the spare was
	// made, which ends with the system.
	checked := make(chan error, 1)
	timer := time.AfterFunc(silence, func() {
		if c, ok := m.o.Transport.(Checker); ok {
			if err := c.Check(ctx); err != nil {
				checked <- err
			}
		}
	})
	defer timer.Stop()
	switch err := p.await(ctx, sp.closed, checked); {
	case errors.Is(err, backend.ErrLost):
		return nil, errSpare // a read under a lock may be started again
	case err != nil:
		return nil, err
	}
	if p.why == "unlocked" { // it was ended, or does not know jobs
		p.ch.Close()
		<-sp.closed
		return nil, errSpare
	}
	if err := p.follow(ctx, s, sp.closed); err != nil {
		return nil, err
	}
	return p, nil
}
