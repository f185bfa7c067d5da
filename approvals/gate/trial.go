package gate

import (
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/store"
	"countersign/store/outbox"
)

const (
	// trialSlack is how long after the end of a trial the target is asked how it ended, and trialEvery how
	// often it is asked again.
	trialSlack = 3 * time.Second
	trialEvery = 15 * time.Second
)

// beginTrial posts the card on which people keep a change, where it was approved on trial.
func (g *Gate) beginTrial(tx store.Tx, rec approvals.Record) {
	if rec.Trial.Open() {
		g.updateTrial(tx, rec)
		g.putTimer(tx, rec, approvals.ItemTrial, rec.Trial.Until.Add(trialSlack))
	}
}

func (g *Gate) updateTrial(tx store.Tx, rec approvals.Record) chat.Card {
	c := card.Trial(rec)
	key := "trial/" + string(rec.ID)
	outbox.Put(tx, string(rec.Thread), key, chat.Post{Key: key, Card: &c, Quiet: rec.Trial.Ended != ""}, g.cfg.Now())
	return c
}

// TrialDue reports whether a trial has to be looked at, and has itself called again later if so.
func (g *Gate) TrialDue(tx store.Tx, id approvals.ID) bool {
	rec, ok := g.ledger.Get(tx, id)
	if !ok || !rec.Trial.Open() {
		return false
	}
	g.putTimer(tx, rec, approvals.ItemTrial, g.cfg.Now().Add(trialEvery))
	return true
}

// MayKeep says why a person may not end a trial that way, "" if they may: who keeps a change is one who
// could approve it, and anybody in the thread may undo it.
func (g *Gate) MayKeep(tx store.Tx, c chat.Click, id approvals.ID, keep bool) string {
	rec, ok := g.ledger.Get(tx, id)
	switch {
	case !ok || rec.Thread != c.Thread || rec.Trial.Until.IsZero():
		return sayNoRequest
	case !rec.Trial.Open():
		return card.TrialEnded(rec)
	}
	return g.refusal(tx, rec, Ballot{Thread: c.Thread, ID: id, From: c.From, Groups: c.Groups, Approve: keep, Via: ViaButton})
}

// EndTrial records how a trial ended and returns its updated card. changed is false if
// the trial had already ended.
func (g *Gate) EndTrial(tx store.Tx, id approvals.ID, end approvals.TrialEnd, by chat.User, note string) (c chat.Card, changed bool) {
	rec, ok := g.ledger.EndTrial(tx, id, end, by, note)
	if ok {
		g.audit(tx, rec, string(end), by.ID, "", note)
		g.updateCard(tx, rec, "")
	} else {
		rec, _ = g.ledger.Get(tx, id)
	}
	switch {
	case rec.Trial.Until.IsZero():
		return c, false
	case ok:
		return g.updateTrial(tx, rec), true
	}
	return card.Trial(rec), false
}
