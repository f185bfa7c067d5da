// Package approved starts processes that a permit covers: people approved them, or they are proven to
// only read. What nobody approved starts by package door.
package approved

import (
	"context"
	"fmt"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/targets/backend/internal/warrant"
)

// Start starts a process under the permit of ctx ([approvals.Under]). If the permit is a proof that assumes
// a lock, the process must have one.
func Start(ctx context.Context, t door.Starter, s backend.Spec) (backend.Process, error) {
	locked, ok := approvals.PermitOf(ctx).Covers()
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: no permit covers it", backend.ErrNoWarrant)
	case locked && s.Lock == nil:
		return nil, fmt.Errorf("%w: its permit is for a process under a lock", backend.ErrNoWarrant)
	}
	s.Warrant = warrant.For(s.Content())
	return t.Start(ctx, s)
}
