package gate

import (
	"encoding/json"
	"strings"

	"countersign/adapters/chat"
	"countersign/approvals"
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
	By       chat.User    `json:"by"`
}

// edit replaces the command of a request. It withdraws the request, and the thread plans
// the call again with the new text. Unless that is a proven read, it gets a new request
// that needs new votes. Only people who may approve may edit. A text that the gate forbids
// is refused here and the request stays open; a text that only the tool can refuse ends
// the call.
func (g *Gate) edit(tx store.Tx, b Ballot, text string) (ans chat.Answer, decided bool) {
	b.Approve = true // editing requires the right to approve
	rec, _, ans, decided, ok := g.authorize(tx, b)
	if !ok {
		return ans, decided
	}
	argument, ok := rec.Action.Editable()
	if !ok {
		return chat.Answer{Notice: sayNotEditable}, false
	}
	text = strings.ReplaceAll(text, "\r\n", "\n") // browsers submit form text with CRLF
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
	again := g.judge(tx, approvals.Request{Thread: rec.Thread, Call: rec.Call, By: b.From, Action: rec.Action.Edited(argument, text), Floor: risk.Read})
	if again.Lane == approvals.Forbid {
		return chat.Answer{Notice: sayEditForbidden(again.Sentence)}, false
	}
	name := b.From.Name
	if name == "" {
		name = string(b.From.ID)
	}
	rec, ok = g.ledger.Cancel(tx, rec.ID, b.From, "edited by "+name, g.cfg.Now())
	if !ok {
		return chat.Answer{Notice: decidedText(rec)}, false
	}
	g.audit(tx, rec, "edited", b.From.ID, b.Via, "")
	c := g.updateCard(tx, rec, "")
	body, err := json.Marshal(edited{rec.ID, rec.Call, argument, text, b.From})
	if err != nil {
		store.Abort(err)
	}
	queue.Put(tx, queue.Item{
		ID: "edited/" + string(rec.ID), Thread: string(rec.Thread), Kind: approvals.ItemEdited, Body: body, At: g.cfg.Now(),
	})
	return chat.Answer{Card: &c, OK: true, Notice: sayEdited}, true
}
