package gate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/store"
)

// The ways a vote can come.
const (
	ViaButton = "button"
	ViaText   = "text"
	ViaGlass  = "break-glass" // in the audit
)

// Ballot is one vote, whatever way it came.
type Ballot struct {
	Thread  chat.ThreadID
	ID      approvals.ID
	From    chat.User
	Groups  []string // what the network vouched for at this moment
	Approve bool
	Grant   bool // approve exactly this for a while
	Glass   bool // decide alone
	Reason  string
	Via     string // ViaButton, ViaText, or another word for the audit
	// Nonce is the one of the card that was pressed; a ballot by button counts for
	// nothing without it.
	Nonce string
	// EventID, when not empty, makes a repeated ballot of the same person get the
	// same answer.
	EventID chat.EventID
}

// Click decides one press of a card's button.
func (g *Gate) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	prefix, id, nonce, ok := card.Parse(c.Button)
	if !ok {
		return chat.Answer{Notice: "I do not know this button; it may be from an older version. Ask again in the thread."}, nil
	}
	b := Ballot{
		Thread: c.Thread, ID: id, From: c.From, Groups: c.Groups, Approve: prefix == card.ApprovePrefix, Reason: c.Reason,
		Via: ViaButton, Nonce: nonce, EventID: c.ID,
	}
	switch prefix {
	case card.ApprovePrefix, card.DenyPrefix:
		return g.Vote(ctx, b)
	case card.GrantPrefix:
		b.Approve, b.Grant = true, true
		return g.Vote(ctx, b)
	case card.GlassPrefix:
		b.Approve, b.Glass = true, true
		return g.Vote(ctx, b)
	case card.ReviewPrefix:
		row := answerRow{string(c.Thread), string(c.From.ID), string(c.Button), string(c.ID)}
		return g.once(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.review(tx, b) })
	case card.EditPrefix:
		row := answerRow{string(c.Thread), string(c.From.ID), string(c.Button), string(c.ID)}
		return g.once(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.edit(tx, b, c.Text) })
	}
	return chat.Answer{Notice: "This button does not work here; write `stop` in the thread."}, nil
}

// Word decides what somebody wrote instead of pressing: c.Button is "approve:",
// "deny:", "glass:" or "review:" and the id that they typed. It is the same vote as
// a press; words carry no nonce, because nobody could type one.
func (g *Gate) Word(ctx context.Context, c chat.Click) (chat.Answer, error) {
	prefix, id, nonce, ok := card.Parse(c.Button)
	b := Ballot{Thread: c.Thread, ID: id, From: c.From, Groups: c.Groups, Reason: c.Reason, Via: ViaText, EventID: c.ID}
	if ok && nonce == "" {
		switch prefix {
		case card.ApprovePrefix, card.GlassPrefix:
			b.Approve, b.Glass = true, prefix == card.GlassPrefix
			return g.Vote(ctx, b)
		case card.DenyPrefix:
			return g.Vote(ctx, b)
		case card.ReviewPrefix:
			row := answerRow{string(c.Thread), string(c.From.ID), string(c.Button), string(c.ID)}
			return g.once(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.review(tx, b) })
		}
	}
	return chat.Answer{Notice: "I do not know this request; `status` names the one that is open."}, nil
}

// Vote is the one authorisation function: may this person decide this request,
// and does the vote count? Everybody gets an answer.
func (g *Gate) Vote(ctx context.Context, b Ballot) (chat.Answer, error) {
	b.Glass = b.Glass && b.Approve
	b.Grant = b.Grant && b.Approve && !b.Glass
	prefix := card.DenyPrefix
	if b.Approve {
		prefix = card.ApprovePrefix
	}
	switch {
	case b.Glass:
		prefix = card.GlassPrefix
	case b.Grant:
		prefix = card.GrantPrefix
	}
	row := answerRow{string(b.Thread), string(b.From.ID), prefix + string(b.ID) + "." + b.Nonce, string(b.EventID)}
	return g.once(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.vote(tx, b) })
}

// meet finds the request that a ballot is about and checks that this person may
// decide it, now, from this card. With ok false, ans is the answer.
func (g *Gate) meet(tx store.Tx, b Ballot) (rec approvals.Record, shown approvals.Digest, ans chat.Answer, decided, ok bool) {
	rec, found := g.ledger.Get(tx, b.ID)
	if !found || rec.Thread != b.Thread {
		return rec, shown, chat.Answer{Notice: "There is no such request in this thread; `status` names the one that is open."}, false, false
	}
	if rec.State != approvals.Pending {
		c := card.Of(rec, "")
		return rec, shown, chat.Answer{Card: &c, Notice: already(rec)}, false, false
	}
	shown, current := g.shown(tx, rec, b)
	if !current {
		g.note(tx, rec, "refused", b.From.ID, b.Via, "the card is out of date")
		return rec, shown, chat.Answer{Notice: "This card is out of date, so nothing was decided: use the newest card of this request, or write `approve " + string(rec.ID) + "`."}, false, false
	}
	if why := g.refuse(tx, rec, b); why != "" {
		g.note(tx, rec, "refused", b.From.ID, b.Via, why)
		return rec, shown, chat.Answer{Notice: why}, false, false
	}
	if late, expired := g.ledger.Expire(tx, rec.ID, g.cfg.Now()); expired {
		return late, shown, g.tooLate(tx, late), true, false
	}
	return rec, shown, chat.Answer{}, false, true
}

func (g *Gate) tooLate(tx store.Tx, rec approvals.Record) chat.Answer {
	g.note(tx, rec, "expired", "", "", "")
	c := g.face(tx, rec, "")
	g.decide(tx, rec)
	return chat.Answer{Card: &c, Notice: "This request expired at " + clock(rec.ExpiresAt) + ", so nothing was run."}
}

func (g *Gate) vote(tx store.Tx, b Ballot) (ans chat.Answer, decided bool) {
	before, shown, ans, decided, ok := g.meet(tx, b)
	if !ok {
		return ans, decided
	}
	rec, refusal, err := g.ledger.Vote(tx, b.ID, approvals.Vote{
		User: b.From, Approve: b.Approve, Reason: b.Reason, Via: b.Via, Event: b.EventID, At: g.cfg.Now(), Digest: shown, Groups: b.Groups,
		Meets: g.meets(tx, before, b), Grant: b.Grant, Glass: b.Glass,
	})
	if err != nil {
		store.Abort(err)
	}
	switch refusal {
	case approvals.Counted:
	case approvals.TooLate:
		return g.tooLate(tx, rec), true
	case approvals.VotedBefore:
		return chat.Answer{Notice: "Your approval already counts; it takes more people: " + open(rec) + "."}, false
	case approvals.NoReason:
		return chat.Answer{Notice: "This takes a reason, so nothing was decided: write it beside the button, or `" + word(b) + " " + string(rec.ID) + " your reason`."}, false
	case approvals.NoNeed:
		return chat.Answer{Notice: g.refuse(tx, rec, b)}, false
	case approvals.AlreadyDone, approvals.OtherContent, approvals.NoPerson:
		c := card.Of(rec, "")
		return chat.Answer{Card: &c, Notice: already(rec)}, false
	}
	what := "denied"
	switch {
	case b.Glass:
		what = "broke the glass and approved"
		g.note(tx, rec, ViaGlass, b.From.ID, b.Via, b.Reason)
		g.askReview(tx, rec)
	case b.Approve:
		what = "approved"
		g.note(tx, rec, what, b.From.ID, b.Via, b.Reason)
	default:
		g.note(tx, rec, what, b.From.ID, b.Via, b.Reason)
	}
	c := g.face(tx, rec, "")
	if rec.State == approvals.Pending {
		return chat.Answer{Card: &c, OK: true, Notice: "Your approval counts; it takes more people: " + open(rec) + "."}, false
	}
	g.learn(tx, rec)
	if rec.State == approvals.Approved {
		if b.Grant && rec.Require.Grant > 0 {
			g.note(tx, rec, "granted", b.From.ID, b.Via, "until "+clock(rec.Decided.Add(rec.Require.Grant)))
			what += fmt.Sprintf(" (and the same again until %s)", clock(rec.Decided.Add(rec.Require.Grant)))
		}
		g.timer(tx, rec, rec.RunBy.Add(time.Second))
	}
	g.decide(tx, rec)
	return chat.Answer{Card: &c, OK: true, Notice: "You " + what + " request " + string(rec.ID) + "."}, true
}

// word is what somebody would write instead of a press.
func word(b Ballot) string {
	if b.Glass {
		return "break-glass"
	}
	return "approve"
}

// open says in words what votes are missing.
func open(rec approvals.Record) string {
	var out []string
	for i, n := range rec.Require.Needs {
		if has, want := rec.Met(i), max(n.Count, 1); has < want {
			out = append(out, fmt.Sprintf("%d of %d from %s", has, want, strings.Join(n.Groups, " or ")))
		}
	}
	return strings.Join(out, ", ")
}

// shown is the digest of what the voter has seen: for a press, of the card that
// the button belongs to. Who writes the id has read it from a card of this
// request, and all its cards show the same action.
func (g *Gate) shown(tx store.Tx, rec approvals.Record, b Ballot) (d approvals.Digest, ok bool) {
	if b.Via != ViaButton && b.Nonce == "" {
		return rec.Digest, true
	}
	return g.ledger.Shown(tx, rec.ID, b.Nonce)
}

// refuse says why a person may not cast this vote, "" if they may. Anybody who
// was let into the thread may deny: the safe side needs no right.
func (g *Gate) refuse(tx store.Tx, rec approvals.Record, b Ballot) string {
	groups := rec.Require.Groups()
	who := strings.Join(groups, " or ")
	switch {
	case b.From.Bot:
		return "Bots cannot decide."
	case !b.Approve:
		return ""
	case b.Glass && len(rec.Require.BreakGlass) == 0:
		return "There is no glass to break here: the policy names nobody under break_glass for this."
	case b.Glass && !g.cfg.Policy().Eligible(rec.Require.BreakGlass, b.From, b.Groups):
		return "You may not break the glass: it takes somebody of " + strings.Join(rec.Require.BreakGlass, " or ") + "."
	case b.Glass:
		return ""
	case len(groups) == 0:
		return "Nobody can approve on " + rec.Action.Target + ": it has no approvers. Add a group under its approvers in the configuration."
	case !rec.Require.RequesterMay && b.From.ID == rec.Requester.ID:
		return "You asked for this yourself, so somebody else of " + who + " must approve it."
	}
	if now := g.judge(tx, again(rec)); now.Lane == approvals.Forbid {
		return "This cannot be approved any more: " + now.Sentence
	}
	switch {
	case len(g.meets(tx, rec, b)) == 0:
		return "You may not approve this: it takes somebody of " + who + "."
	case b.Grant && rec.Require.Grant <= 0:
		return "This cannot be approved for longer than once; press Approve."
	}
	return ""
}

func already(r approvals.Record) string {
	switch r.State {
	case approvals.Approved, approvals.Running, approvals.Done, approvals.OutUnk:
		return "Already approved by " + r.By.Name + " at " + clock(r.Decided) + "."
	case approvals.Denied:
		return "Already denied by " + r.By.Name + " at " + clock(r.Decided) + "."
	case approvals.Expired:
		return "This request has expired, so nothing was run."
	case approvals.Cancelled:
		return "This request was withdrawn by " + r.By.Name + "."
	case approvals.Invalid:
		return "This request is no longer valid: " + r.Reason + "."
	case approvals.Pending:
	}
	return "This vote does not count."
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }
