package threads

import (
	"context"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
	"countersign/store/queue"
)

// Active lists the threads that are being worked on or wait for people.
func Active(ctx context.Context, db store.DB, within string) ([]chat.ThreadID, error) {
	var out []chat.ThreadID
	err := db.View(ctx, func(tx store.Tx) error {
		out = nil
		for _, t := range queue.Working(tx) {
			if strings.HasPrefix(t, within) {
				out = append(out, chat.ThreadID(t))
			}
		}
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			if strings.HasPrefix(string(r.Thread), within) {
				out = append(out, r.Thread)
			}
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out), err
}
