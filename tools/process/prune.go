package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Prune removes the processes of the configured target that ended before a moment, with
// their files on it, and returns how many. A zero before means Retention ago. Processes
// of which it is not known whether they have ended are looked at first; those that still
// run stay, whatever their age. Those of a machine that the target was before (another
// container of the same name) are forgotten. When the target does not answer, what would have to be
// removed from it stays, too, and the error says so. It may run beside everything else;
// once an hour is often enough.
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
		if !elsewhere && (r.State != over || !r.ended().Before(before)) {
			if v.unknown != "" {
				errs = append(errs, fmt.Errorf("process: %s stays: %s", r.ID, v.unknown))
			}
			continue
		}
		if !elsewhere { // the files of another machine went with it
			rctx, cancel := context.WithTimeout(ctx, lookTime)
			_, err := s.script(rctx, pruneScript, r.Base, r.Mark)
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

// ended is when a process is known to have been over: by the note on the target, and by
// the bot's own look where there is none.
func (r row) ended() time.Time {
	if r.Code != nil && r.Ended > 0 {
		return time.Unix(r.Ended, 0)
	}
	return r.Seen
}
