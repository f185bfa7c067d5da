package threads

import (
	"context"
	"encoding/json"
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

// copyKey marks a copy of a store, as backups have it.
var copyKey = store.Key("copy")

// CopyMark is the row that marks a store as a copy that was made at a time, so that no bot goes
// on where it ends: what is open in it may have been done since.
func CopyMark(at time.Time) (key, value []byte) {
	value, _ = json.Marshal(at.UTC()) // of the years 0 to 9999
	return copyKey, value
}

// IsCopy reports whether a store is marked as a copy, and when that was made.
func IsCopy(tx store.Tx) (made time.Time, marked bool) { return store.Load[time.Time](tx, copyKey) }

// restorer is who stops the work of a restored store, as threads and cards name it.
var restorer = chat.User{ID: "system:restore", Name: "the restore of a backup"}

// StopRestored stops every thread of a store that is worked on, waits for people or waits for
// a time, and ends all grants and plans, because the store is of an earlier time: what was
// approved in it may have run since, and what was open may have been decided. It is for a
// store that no bot works on: at its next start each of these threads is stopped before
// anything runs in it. The mark of a copy is taken away.
func StopRestored(tx store.Tx, at time.Time) ([]chat.ThreadID, error) {
	tx.Delete(copyKey)
	names := append(queue.Working(tx), queue.Scheduled(tx)...)
	for _, r := range (approvals.Ledger{}).AllOpen(tx) {
		names = append(names, string(r.Thread))
	}
	slices.Sort(names)
	var stopped []chat.ThreadID
	for _, name := range slices.Compact(names) {
		thread := chat.ThreadID(name)
		id := chat.EventID("stop-all/" + at.UTC().Format(time.RFC3339Nano) + "/" + name)
		if err := agent.PutStop(tx, thread, id, restorer, at); err != nil {
			return nil, err
		}
		stopped = append(stopped, thread)
	}
	(approvals.Ledger{}).RevokeAll(tx)
	return stopped, nil
}
