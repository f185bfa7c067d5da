package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// Prune deletes the processes of the configured target that ended before a time, with their files
// on it, and returns how many. A zero before means Retention ago. It first queries processes that
// may have ended; running ones stay regardless of age. Rows of a previous machine (another
// container of the same name) are deleted without their files. If the target does not answer, its
// processes stay and the error says so. Prune may run concurrently with everything else; once an
// hour is usually enough.
func Prune(ctx context.Context, c Config, before time.Time) (int, error) {
	s := newSuite(c)
	if before.IsZero() {
		before = s.Now().Add(-s.Retention)
	}
	old, err := s.list(ctx, func(r row) bool { return r.Target == s.Name && r.Created.Before(before) })
	if err != nil || len(old) == 0 {
		return 0, err
	}
	if _, err := s.Target.Probe(ctx); err != nil {
		return 0, fmt.Errorf("process: the background processes of %s cannot be pruned now: %w", s.Name, err)
	}
	n := 0
	var errs []error
	for _, v := range s.refresh(ctx, old) {
		r := v.row
		elsewhere := r.TargetID != s.Target.ID()
		if !elsewhere && (r.State != ended || !r.endTime().Before(before)) {
			if v.unknown != "" {
				errs = append(errs, fmt.Errorf("process: %s stays: %s", r.ID, v.unknown))
			}
			continue
		}
		if !elsewhere { // another machine's files are gone with it
			rctx, cancel := context.WithTimeout(ctx, queryTimeout)
			_, err := s.runScript(rctx, func(spec backend.Spec) (backend.Process, error) {
				return door.Start(rctx, s.Target, door.Plumbing, nil, spec)
			}, pruneScript, r.Base, r.Mark)
			cancel()
			if err != nil {
				errs = append(errs, fmt.Errorf("process: the files of %s on %s could not be removed: %w", r.ID, s.Name, err))
				continue
			}
		}
		if err := s.forget(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("process: %s could not be forgotten: %w", r.ID, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// endTime returns when a process had ended: according to the target's record, or to the bot's own
// query if there is none.
func (r row) endTime() time.Time {
	if r.Code != nil && r.Ended > 0 {
		return time.Unix(r.Ended, 0)
	}
	return r.Seen
}
