package gate

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"countersign/adapters/chat"
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/store/aging"
)

// answerRow identifies a stored answer. Answers are stored so that a redelivered
// interaction gets the same one:
//
//	("approval-answer", thread, user, what, event)            -> Answer as JSON
//	("approval-answer-age", hour, thread, user, what, event)  -> nothing, for Prune
//
// Clients choose their event ids, so the key includes person and request: an id
// alone cannot retrieve the answer to another person or request.
type answerRow struct {
	thread, user, what, event string
}

func (r answerRow) key() []byte {
	return store.Key("approval-answer", r.thread, r.user, r.what, r.event)
}

func (r answerRow) load(tx store.Tx) (chat.Answer, bool) {
	if r.event == "" {
		return chat.Answer{}, false
	}
	return store.Load[chat.Answer](tx, r.key())
}

func (r answerRow) save(tx store.Tx, a chat.Answer, at time.Time) {
	if r.event == "" {
		return
	}
	store.Save(tx, r.key(), a)
	tx.Set(answerAges.Key(at, r.thread, r.user, r.what, r.event), nil)
}

var answerAges = aging.Index{"approval-answer-age"}

// Prune deletes answers given before the hour of a time, at most limit of them (0: all),
// and returns how many it deleted. An interaction redelivered after that is judged again.
// Its request is decided by then, so only the wording of the answer can differ.
func Prune(tx store.Tx, before time.Time, limit int) int {
	lastHour := before.Add(-time.Hour) // an answer has no exact time, so those of before's hour stay
	return answerAges.Prune(tx, lastHour, limit, func(r aging.Row) bool {
		if len(r.Parts) != 4 {
			store.Abort(fmt.Errorf("gate: the row %s is no answer", store.Format(r.Key)))
		}
		tx.Delete(store.Key(append([]any{"approval-answer"}, r.Parts...)...))
		return true
	})
}

// ForgetAnswers deletes the answers of a conversation, whose cards name people.
func ForgetAnswers(tx store.Tx, thread chat.ThreadID) {
	var keys [][]byte
	for k := range tx.Scan(store.Prefix("approval-answer", string(thread))) {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		tx.Delete(k)
	}
}

// answerOnce runs act for an interaction and stores the answer. A redelivery gets the
// stored answer.
func (g *Gate) answerOnce(ctx context.Context, row answerRow, act func(tx store.Tx) (chat.Answer, bool)) (chat.Answer, error) {
	var ans chat.Answer
	decided := false
	err := g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		decided = false
		if old, ok := row.load(tx); ok {
			ans = old
			return nil
		}
		ans, decided = act(tx)
		row.save(tx, ans, g.cfg.Now())
		return nil
	})
	if err != nil {
		return chat.Answer{}, fmt.Errorf("the decision could not be stored, so nothing was decided; press again: %w", err)
	}
	if decided {
		failpoint.Hit(failpoint.VoteStored)
	}
	g.cfg.Wake(row.thread)
	return ans, nil
}
