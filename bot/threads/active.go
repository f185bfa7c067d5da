package threads

import (
	"context"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
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

// StopAll stops every thread of a store that is worked on, waits for people or waits for a
// time, and ends all grants and plans. It is for a store that no bot has open: at its next
// start each of these threads is stopped before anything runs in it.
func StopAll(tx store.Tx, by chat.User, at time.Time) ([]chat.ThreadID, error) {
	names := append(queue.Working(tx), queue.Scheduled(tx)...)
	for _, r := range (approvals.Ledger{}).AllOpen(tx) {
		names = append(names, string(r.Thread))
	}
	slices.Sort(names)
	var stopped []chat.ThreadID
	for _, name := range slices.Compact(names) {
		thread := chat.ThreadID(name)
		id := chat.EventID("stop-all/" + at.UTC().Format(time.RFC3339Nano) + "/" + name)
		if err := agent.PutStop(tx, thread, id, by, at); err != nil {
			return nil, err
		}
		stopped = append(stopped, thread)
	}
	(approvals.Ledger{}).RevokeAll(tx)
	return stopped, nil
}
