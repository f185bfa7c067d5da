package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"countersign/store"
)

// Job is the right to do what only one member may do at a time.
type Job struct {
	Name  string
	Epoch uint64 // grows with every grant of the name

	holder string
	cancel context.CancelCauseFunc
	alone  bool
}

func (j *Job) lose(why error) { j.cancel(why) }

// Check returns [ErrLost] if another member has the job. A transaction that only one
// member may make must begin with it.
func (j *Job) Check(tx store.Tx) error {
	if j.alone {
		return nil
	}
	if r, _ := store.Load[jobRow](tx, jobKey(j.Name)); r.Holder != j.holder || r.Epoch != j.Epoch {
		return ErrLost
	}
	return nil
}

// Do waits until this member has the job, calls run, and releases the job. It returns
// what run returns, or ctx's error if ctx ends first. If another member takes the job over
// while run is running, run's context ends, its result is ignored, and Do waits for the
// job again. A member may be in one Do per name at a time.
//
// When this member is mistaken for dead, two members may run for a moment. run must
// tolerate that or begin its transactions with [Job.Check].
func (m *Member) Do(ctx context.Context, name string, run func(context.Context, *Job) error) error {
	if m.alone {
		return run(ctx, &Job{Name: name, alone: true})
	}
	for {
		j, err := m.acquire(ctx, name)
		if err != nil {
			return err
		}
		jctx, cancel := context.WithCancelCause(ctx)
		j.cancel = cancel
		m.mu.Lock()
		m.jobs[name] = j
		m.mu.Unlock()
		err = run(jctx, j)
		m.mu.Lock()
		delete(m.jobs, name)
		m.mu.Unlock()
		lost := errors.Is(context.Cause(jctx), ErrLost)
		cancel(nil)
		m.release(ctx, j)
		if !lost || ctx.Err() != nil {
			return err
		}
		m.cfg.Log.Warn("another replica took a job over", "job", name)
	}
}

// acquire waits until the job is free or its holder is dead, and claims it.
func (m *Member) acquire(ctx context.Context, name string) (*Job, error) {
	for {
		m.mu.Lock()
		held, changed := len(m.jobs), m.wait
		m.mu.Unlock()
		// Members with more jobs try later, so that jobs spread over members.
		if held > 0 && !pause(ctx, nil, min(time.Duration(held)*50*time.Millisecond, scanEvery)) {
			return nil, ctx.Err()
		}
		j, err := m.try(ctx, name)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			m.cfg.Log.Error("a job could not be asked for; trying again", "job", name, "error", err)
		case j != nil:
			return j, nil
		}
		if !pause(ctx, changed, Beat/2+rand.N(Beat)) { //nolint:gosec // spreading, not secrecy
			return nil, ctx.Err()
		}
	}
}

// pause waits for d or until changed is closed. It returns false if ctx ends first.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}

// try claims a job if it is free, else it returns nil.
func (m *Member) try(ctx context.Context, name string) (j *Job, err error) {
	free := func(tx store.Tx) (jobRow, bool) {
		r, _ := store.Load[jobRow](tx, jobKey(name))
		// A job that the row gives to this member, but that is not in m.jobs, is left
		// over from a Do that could not release it.
		return r, r.Holder == "" || r.Holder == m.cfg.Name || !m.Alive(tx, r.Holder)
	}
	ok := false
	if err := m.cfg.DB.View(ctx, func(tx store.Tx) error { _, ok = free(tx); return nil }); err != nil || !ok || !m.Fresh() {
		return nil, err
	}
	err = m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		r, ok := free(tx)
		if j = nil; !ok {
			return nil
		}
		r.Holder, r.Epoch = m.cfg.Name, r.Epoch+1
		store.Save(tx, jobKey(name), r)
		j = &Job{Name: name, Epoch: r.Epoch, holder: m.cfg.Name, cancel: func(error) {}}
		return nil
	})
	return j, err
}

// release releases a job. If that fails, the job is free once this member leaves.
func (m *Member) release(ctx context.Context, j *Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), TTL)
	defer cancel()
	err := m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if mine := j.Check(tx) == nil; !mine {
			return nil
		}
		store.Save(tx, jobKey(j.Name), jobRow{Epoch: j.Epoch})
		return nil
	})
	if err != nil {
		m.cfg.Log.Warn("a job could not be given back", "job", j.Name, "error", err)
		return
	}
	m.notify()
}

// giveUp ends this member's jobs, because others may consider it dead.
func (m *Member) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		j.lose(ErrLost)
	}
}
