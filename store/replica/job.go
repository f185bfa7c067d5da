package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"countersign/store"
)

// Job is the right to do what one member may do at a time.
type Job struct {
	Name  string
	Epoch uint64 // grows with every grant of the name

	holder string
	cancel context.CancelCauseFunc
	alone  bool
}

func (j *Job) lose(why error) { j.cancel(why) }

// Check returns [ErrLost] when the job is another's by now. A transaction that must
// not be made by two members begins with it.
func (j *Job) Check(tx store.Tx) error {
	if j.alone {
		return nil
	}
	if r, _ := store.Load[jobRow](tx, jobKey(j.Name)); r.Holder != j.holder || r.Epoch != j.Epoch {
		return ErrLost
	}
	return nil
}

// Do waits until this member has a job, runs run, and gives the job back. When the job
// goes to another member meanwhile, run's context ends, and Do waits for the job
// again; what run returns then does not matter. It returns what run returns while the
// job is held, and ctx's error when that is done before. A member may be in one Do of
// a name at a time.
//
// For a moment after this member was taken for dead two may run at once: what run
// does must bear that, or begin its transactions with [Job.Check].
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

// acquire waits until the job is free or its holder is dead, and takes it.
func (m *Member) acquire(ctx context.Context, name string) (*Job, error) {
	for {
		m.mu.Lock()
		held, changed := len(m.jobs), m.wait
		m.mu.Unlock()
		// Who has jobs tries later, so that they spread.
		if held > 0 && !rest(ctx, nil, min(time.Duration(held)*50*time.Millisecond, look)) {
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
		if !rest(ctx, changed, Beat/2+rand.N(Beat)) { //nolint:gosec // spreading, not secrecy
			return nil, ctx.Err()
		}
	}
}

// rest waits for d or until changed is closed; false when ctx is done.
func rest(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
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

// try takes a job that is free; nil when it is not.
func (m *Member) try(ctx context.Context, name string) (j *Job, err error) {
	free := func(tx store.Tx) (jobRow, bool) {
		r, _ := store.Load[jobRow](tx, jobKey(name))
		// One that this member holds by the row, and not by m.jobs, is from a Do that
		// could not release it.
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

// release gives a job back. Where that fails it is free when this member leaves.
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
	m.tell()
}

// giveUp ends the jobs of a member that may be dead for the others.
func (m *Member) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		j.lose(ErrLost)
	}
}
