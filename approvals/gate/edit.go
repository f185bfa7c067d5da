package gate

import (
	"encoding/json"
	"strings"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/queue"
)

// edited is the body of an ItemEdited; agent/history reads it.
type edited struct {
	Approval approvals.ID `json:"approval"`
	Call     string       `json:"call"`
	Argument string       `json:"argument"`
	Text     string       `json:"text"`
	Keep     []int        `json:"keep,omitempty"`
	By       chat.User    `json:"by"`
}

// edit replaces the command of a request, or drops steps of a plan. It withdraws the
// request, and the thread plans the call again. Unless that is a proven read, it gets a
// new request that needs new votes. Only people who may approve may edit. A text that the
// gate forbids is refused here and the request stays open; a text that only the tool can
// refuse ends the call.
func (g *Gate) edit(tx store.Tx, b Ballot, text string) (ans chat.Answer, decided bool) {
	if elsewhere(b) { // who edits asks from then on
		return chat.Answer{Notice: sayElsewhere}, false
	}
	b.Approve = true // editing requires the right to approve
	rec, _, ans, decided, ok := g.authorize(tx, b)
	if !ok {
		return ans, decided
	}
	text = strings.ReplaceAll(text, "\r\n", "\n") // browsers submit form text with CRLF
	if len(rec.Action.Steps) > 1 {
		keep, ok := card.Kept(rec, text)
		switch {
		case !ok:
			return chat.Answer{Notice: sayOtherSteps}, false
		case len(keep) == len(rec.Action.Steps):
			return chat.Answer{Notice: saySameSteps}, false
		}
		e := edited{Approval: rec.ID, Call: rec.Call, Text: text, Keep: keep, By: b.From}
		return g.replace(tx, b, rec, rec.Action.Keep(keep), e)
	}
	argument, ok := rec.Action.Editable()
	if !ok {
		return chat.Answer{Notice: sayNotEditable}, false
	}
	_, odd := risk.Visible(text)
	switch {
	case strings.TrimSpace(text) == "":
		return chat.Answer{Notice: sayEmptyEdit}, false
	case text == string(rec.Action.Bytes):
		return chat.Answer{Notice: saySameEdit}, false
	case len(text) > approvals.MaxEdit:
		return chat.Answer{Notice: sayLongEdit(len(text), approvals.MaxEdit)}, false
	case odd:
		return chat.Answer{Notice: sayOddEdit}, false
	}
	e := edited{Approval: rec.ID, Call: rec.Call, Argument: argument, Text: text, By: b.From}
	return g.replace(tx, b, rec, rec.Action.Edited(argument, text), e)
}

// replace withdraws a request and tells the thread how it was edited, unless the gate
// forbids what it would become.
func (g *Gate) replace(tx store.Tx, b Ballot, rec approvals.Record, a approvals.Action, e edited) (ans chat.Answer, decided bool) {
	again := g.judge(tx, approvals.Request{Thread: rec.Thread, Call: rec.Call, By: b.From, Action: a, Floor: risk.Read})
	if again.Lane == approvals.Forbid {
		return chat.Answer{Notice: sayEditForbidden(again.Sentence)}, false
	}
	name := b.From.Name
	if name == "" {
		name = string(b.From.ID)
	}
	how := "edited by "
	if e.Keep != nil {
		how = "shortened by "
	}
	rec, ok := g.ledger.Cancel(tx, rec.ID, b.From, how+name, g.cfg.Now())
	if !ok {
		return chat.Answer{Notice: decidedText(rec)}, false
	}
	g.audit(tx, rec, "edited", b.From.ID, b.Via, "")
	c := g.updateCard(tx, rec, "")
	body, err := json.Marshal(e)
	if err != nil {
		store.Abort(err)
	}
	queue.Put(tx, queue.Item{
		ID: "edited/" + string(rec.ID), Thread: string(rec.Thread), Kind: approvals.ItemEdited, Body: body, At: g.cfg.Now(),
	})
	return chat.Answer{Card: &c, OK: true, Notice: sayEdited}, true
}
