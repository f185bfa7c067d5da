package gate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/registry"
	"countersign/approvals/policy"
	"countersign/store"
)

// A vote that needs a signature is cast in the console. A press on another network is answered
// with a ticket for its person, which somebody signed in at the console has signed by their own
// device: the vote is that of who pressed, and the signature says whose device it was.

// ticketLife is how long a ticket may be signed.
const ticketLife = 10 * time.Minute

// ticketRow is a press that waits for its signature:
//
//	("passkey-ticket", ticket) -> ticketRow as JSON
type ticketRow struct {
	Thread  chat.ThreadID `json:"thread"`
	Button  chat.ButtonID `json:"button"`
	From    chat.User     `json:"from"`
	Groups  []string      `json:"groups,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Expires time.Time     `json:"expires"`
}

func ticketKey(ticket string) []byte { return store.Key("passkey-ticket", ticket) }

// resolve puts the person of a ticket in the ballot's place. Who brings it is who signs.
func (g *Gate) resolve(tx store.Tx, b Ballot) (Ballot, bool) {
	b.signer, b.signerGroups = b.From, b.Groups
	if b.Ticket == "" {
		return b, true
	}
	row, ok := store.Load[ticketRow](tx, ticketKey(b.Ticket))
	_, id, nonce, parsed := card.Parse(row.Button)
	if !ok || !parsed || id != b.ID || nonce != b.Nonce || row.Thread != b.Thread || !g.cfg.Now().Before(row.Expires) {
		return b, false
	}
	b.From, b.Groups = row.From, row.Groups
	if b.Reason == "" {
		b.Reason = row.Reason
	}
	return b, true
}

// ticket notes a press, and returns the link at which it is signed.
func (g *Gate) ticket(tx store.Tx, b Ballot) string {
	now := g.cfg.Now()
	from, to := store.Prefix("passkey-ticket")
	var old [][]byte
	for k, raw := range tx.Scan(from, to) {
		var row ticketRow
		if store.Decode(k, raw, &row); !now.Before(row.Expires) {
			old = append(old, append([]byte(nil), k...))
		}
	}
	for _, k := range old {
		tx.Delete(k)
	}
	prefix := card.ApprovePrefix
	if b.Glass {
		prefix = card.GlassPrefix
	}
	name := rand.Text()
	store.Save(tx, ticketKey(name), ticketRow{
		Thread: b.Thread, Button: chat.ButtonID(prefix + string(b.ID) + "." + b.Nonce), From: b.From, Groups: b.Groups, Reason: b.Reason,
		Expires: now.Add(ticketLife).UTC(),
	})
	return g.cfg.Origin + "/#sign=" + name + "&t=" + url.QueryEscape(string(b.Thread))
}

// showTicket answers what a ticket is for: its card and the button, for the signing page.
func (g *Gate) showTicket(ctx context.Context, thread chat.ThreadID, ticket string) (chat.Answer, error) {
	ans := chat.Answer{Notice: sayNoTicket}
	err := g.cfg.DB.View(ctx, func(tx store.Tx) error {
		row, ok := store.Load[ticketRow](tx, ticketKey(ticket))
		if !ok || row.Thread != thread || !g.cfg.Now().Before(row.Expires) {
			return nil
		}
		_, id, _, _ := card.Parse(row.Button)
		rec, ok := g.ledger.Get(tx, id)
		if !ok {
			return nil
		}
		c := g.cardOf(tx, rec, "")
		if rec.State != approvals.Pending {
			ans = chat.Answer{Show: &c, Notice: decidedText(rec)}
			return nil
		}
		for i := range c.Choose {
			if c.Choose[i].ID == row.Button {
				ans = chat.Answer{Show: &c, Ask: &c.Choose[i], OK: true, Notice: sayTicketOf(name(row.From))}
				return nil
			}
		}
		ans = chat.Answer{Show: &c, Notice: sayOutdated(id)}
		return nil
	})
	return ans, err
}

// offer answers a press that has to be signed with what the device is to sign, or with where. It checks
// what the vote itself will check again. The signer is asked between two transactions.
func (g *Gate) offer(ctx context.Context, b Ballot) (ans chat.Answer, err error) {
	var o offered
	err = g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		o, ans = g.offered(tx, b)
		return nil
	})
	if err != nil || o.face == nil {
		return ans, err
	}
	var page registry.Page
	if byRunner(o.action) && g.cfg.Signer != nil {
		raw, err := json.Marshal(o.action)
		if err != nil {
			return ans, err
		}
		if page, o.statement.Fresh, err = g.cfg.Signer(ctx, raw, o.statement); err != nil {
			return chat.Answer{Notice: sentence(err)}, nil
		}
	}
	err = g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		var sign chat.Signing
		var why error
		if page.Link != "" {
			sign, why = g.cfg.Passkeys.AskAt(tx, page, o.face, g.cfg.Now())
		} else {
			sign, why = g.cfg.Passkeys.Ask(tx, o.statement, o.face, g.cfg.Now())
		}
		if ans = (chat.Answer{OK: true, Sign: &sign}); why != nil {
			ans = chat.Answer{Notice: sentence(why)}
		}
		return nil
	})
	return ans, err
}

// offered is what somebody is to sign.
type offered struct {
	action    approvals.Action
	statement passkey.Statement
	face      []byte // the card, as JSON
}

// offered says what a ballot has to sign, or in a notice why it can't.
func (g *Gate) offered(tx store.Tx, b Ballot) (o offered, ans chat.Answer) {
	b, ok := g.resolve(tx, b)
	if !ok {
		return o, chat.Answer{Notice: sayNoTicket}
	}
	rec, shown, ans, _, ok := g.authorize(tx, b)
	switch {
	case !ok:
		return o, ans
	case rec.Require.Proof == "":
		return o, chat.Answer{Notice: sayNoSignature}
	case g.cfg.Passkeys.Site.ID == "":
		return o, chat.Answer{Notice: sayNoSite}
	case b.Reason == "" && (b.Glass || rec.Require.ReasonRequired):
		return o, chat.Answer{Notice: sayReason(chatVerb(b), rec.ID)}
	case !b.Glass && rec.Require.Write != "" && strings.TrimSpace(b.Reason) != rec.Require.Write:
		return o, chat.Answer{Notice: sayWrite(rec.Require.Write, chatVerb(b), rec.ID)}
	}
	face, err := json.Marshal(g.cardOf(tx, rec, ""))
	if err != nil {
		store.Abort(err)
	}
	s := g.statement(rec, b, shown)
	sum := sha256.Sum256(face)
	s.Version, s.Shown = 1, hex.EncodeToString(sum[:])
	return offered{rec.Action, s, face}, chat.Answer{}
}

// byRunner reports whether an action, or a step of it, runs by a certificate of the signer.
func byRunner(a approvals.Action) bool {
	return a.Env["process"] == approvals.ByRunner || slices.ContainsFunc(a.Steps, byRunner)
}

// statement is what the ballot says, but for what was shown and what makes it be good once.
func (g *Gate) statement(rec approvals.Record, b Ballot, shown approvals.Digest) passkey.Statement {
	s := passkey.Statement{
		For: passkey.ForApprove, Request: string(rec.ID), Digest: shown.String(), Policy: g.cfg.Policy().Hash(),
		Voter: string(b.From.ID), Owner: string(b.signer.ID), Reason: b.Reason,
	}
	if b.Glass {
		s.For = passkey.ForGlass
	}
	return s
}

// signed checks the signature that came with a ballot. Without one, and without a reason why it
// doesn't count, there is none.
func (g *Gate) signed(tx store.Tx, rec approvals.Record, b Ballot, shown approvals.Digest) (*passkey.Proof, string) {
	if !b.Approve || rec.Require.Proof == "" || b.Signed == nil {
		return nil, ""
	}
	p, s, err := g.cfg.Passkeys.Answer(tx, string(b.signer.ID), b.Signed.Nonce, b.Signed.Response, g.cfg.Now())
	if err != nil {
		return nil, sentence(err)
	}
	if !says(s, g.statement(rec, b, shown)) {
		return nil, sentence(passkey.ErrOtherAsk)
	}
	return &p, ""
}

// says reports whether two statements say the same.
func says(is, want passkey.Statement) bool {
	want.Version, want.Nonce, want.At, want.Shown, want.Fresh = is.Version, is.Nonce, is.At, is.Shown, is.Fresh
	return is == want
}

// unsigned says why a vote doesn't count by its signature, "" if it does or needs none. What the
// store says of the vote is believed only as far as the signature says it, too.
func (g *Gate) unsigned(tx store.Tx, rec approvals.Record, v approvals.Vote, d policy.Decision) string {
	if rec.Require.Proof == "" && d.Proof == "" {
		return ""
	}
	if v.Passkey == nil {
		return name(v.User) + " approved this without a passkey, and the policy asks for one now"
	}
	if err := g.cfg.Passkeys.Holds(tx, *v.Passkey); err != nil {
		return "the passkey by which " + name(v.User) + " approved this doesn't count any more: " + err.Error()
	}
	s, err := passkey.Decode(v.Passkey.Statement)
	kind := passkey.ForApprove
	if v.Glass {
		kind = passkey.ForGlass
	}
	if err != nil || s.For != kind || s.Request != string(rec.ID) || s.Digest != rec.Digest.String() || rec.Action.Digest() != rec.Digest || s.Policy != rec.Policy && s.Policy != g.cfg.Policy().Hash() ||
		s.Voter != string(v.User.ID) || s.Owner != v.Passkey.KeyOwner {
		return "what " + name(v.User) + "'s passkey signed isn't this"
	}
	return ""
}

// toSign answers an approval that needs a signature and has none.
func (g *Gate) toSign(tx store.Tx, b Ballot) chat.Answer {
	switch {
	case g.cfg.Origin == "":
		return chat.Answer{Notice: sayNoConsole}
	case strings.HasPrefix(string(b.From.ID), "web:"):
		return chat.Answer{Notice: saySignThere(g.cfg.Origin)}
	case b.Via == ViaButton:
		return chat.Answer{Notice: saySignAt, Link: g.ticket(tx, b)}
	}
	return chat.Answer{Notice: sayPressToSign}
}

// sentence is an error of the passkeys as a sentence.
func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
