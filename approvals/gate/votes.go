package gate

import (
	"context"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/store"
)

// The values of [Ballot.Via].
const (
	ViaButton = "button"
	ViaText   = "text"
	ViaGlass  = "break-glass" // only in the audit chain
)

// Ballot is one vote from any channel.
type Ballot struct {
	Thread  chat.ThreadID
	ID      approvals.ID
	From    chat.User
	Groups  []string // as the chat network reports them now
	Approve bool
	Grant   bool // approve this exact action for a while
	Glass   bool // break the glass: decide alone
	Trial   bool // approve a change that undoes itself unless somebody keeps it
	Reason  string
	Via     string // ViaButton, ViaText, or another word for the audit
	// Nonce is the nonce of the card whose button was pressed. A ballot by button is
	// refused without it.
	Nonce string
	// EventID, if not empty, makes a redelivered ballot get the same answer.
	EventID chat.EventID
	// Signed is what the person's device signed, nil for nothing. Ticket, if not empty, is that of
	// a press on another network, whose person votes; From signs then.
	Signed *chat.Signed
	Ticket string

	signer       chat.User // whose device signs
	signerGroups []string
}

// Click handles the press of a card's button.
func (g *Gate) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	if ticket, shows := strings.CutPrefix(string(c.Button), chat.TicketPrefix); shows {
		return g.showTicket(ctx, c.Thread, ticket)
	}
	asked, asks := strings.CutPrefix(string(c.Button), chat.AskPrefix)
	asked, signs := strings.CutPrefix(asked, chat.SignPrefix)
	prefix, id, nonce, ok := card.Parse(chat.ButtonID(asked))
	switch {
	case !ok:
		return chat.Answer{Notice: sayUnknownButton}, nil
	case asks:
		return g.ask(ctx, c.Thread, id, chat.ButtonID(asked))
	}
	b := Ballot{
		Thread: c.Thread, ID: id, From: c.From, Groups: c.Groups, Approve: prefix == card.ApprovePrefix, Reason: c.Reason,
		Via: ViaButton, Nonce: nonce, EventID: c.ID, Signed: c.Signed, Ticket: c.Ticket,
	}
	if signs {
		b.Approve, b.Glass = true, prefix == card.GlassPrefix
		if prefix != card.ApprovePrefix && !b.Glass {
			return chat.Answer{Notice: sayUnknownButton}, nil
		}
		return g.offer(ctx, b)
	}
	switch prefix {
	case card.ApprovePrefix, card.DenyPrefix:
		return g.Vote(ctx, b)
	case card.GrantPrefix:
		b.Approve, b.Grant = true, true
		return g.Vote(ctx, b)
	case card.TrialPrefix:
		b.Approve, b.Trial = true, true
		return g.Vote(ctx, b)
	case card.GlassPrefix:
		b.Approve, b.Glass = true, true
		return g.Vote(ctx, b)
	case card.ReviewPrefix:
		row := answerRow{string(c.Thread), string(c.From.ID), string(c.Button), string(c.ID)}
		return g.answerOnce(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.review(tx, b) })
	case card.DetailsPrefix:
		return g.details(ctx, c.Thread, id)
	case card.EditPrefix:
		row := answerRow{string(c.Thread), string(c.From.ID), string(c.Button), string(c.ID)}
		return g.answerOnce(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.edit(tx, b, c.Text) })
	}
	return chat.Answer{Notice: sayStopButton}, nil
}

// details answers the button that shows a card's details.
func (g *Gate) details(ctx context.Context, thread chat.ThreadID, id approvals.ID) (chat.Answer, error) {
	ans := chat.Answer{Notice: sayNoRequest}
	err := g.cfg.DB.View(ctx, func(tx store.Tx) error {
		if rec, found := g.ledger.Get(tx, id); found && rec.Thread == thread {
			c := g.cardOf(tx, rec, "")
			ans = chat.Answer{Show: &c, OK: true}
		}
		return nil
	})
	return ans, err
}

// ask answers what must be confirmed before a button of an open card is pressed.
func (g *Gate) ask(ctx context.Context, thread chat.ThreadID, id approvals.ID, button chat.ButtonID) (chat.Answer, error) {
	ans := chat.Answer{Notice: sayNoRequest}
	err := g.cfg.DB.View(ctx, func(tx store.Tx) error {
		rec, found := g.ledger.Get(tx, id)
		if !found || rec.Thread != thread {
			return nil
		}
		c := g.cardOf(tx, rec, "")
		i := slices.IndexFunc(c.Choose, func(b chat.Button) bool { return b.ID == button })
		switch {
		case i >= 0:
			ans = chat.Answer{Show: &c, Ask: &c.Choose[i], OK: true}
		case rec.State != approvals.Pending:
			ans = chat.Answer{Card: &c, Notice: decidedText(rec)}
		default:
			ans = chat.Answer{Card: &c, Notice: sayOutdated(id)}
		}
		return nil
	})
	return ans, err
}

// Word handles a vote that was typed instead of pressed. c.Button is "approve:", "deny:",
// "glass:" or "review:" followed by the typed id. It is the same vote as a press, but has
// no nonce, because nobody types one.
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
			return g.answerOnce(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.review(tx, b) })
		}
	}
	return chat.Answer{Notice: sayNoRequest}, nil
}

// Vote is the only authorisation function. It checks whether a person may decide a request
// and counts the vote. The answer is for the person who voted.
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
	if err := g.askTicket(ctx, b); err != nil {
		return chat.Answer{}, err
	}
	row := answerRow{string(b.Thread), string(b.From.ID), prefix + string(b.ID) + "." + b.Nonce, string(b.EventID)}
	return g.answerOnce(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.vote(tx, b) })
}

// authorize loads the ballot's request and checks that this person may decide it now, from
// this card. If ok is false, ans is the answer.
func (g *Gate) authorize(tx store.Tx, b Ballot) (rec approvals.Record, shown approvals.Digest, ans chat.Answer, decided, ok bool) {
	rec, found := g.ledger.Get(tx, b.ID)
	if !found || rec.Thread != b.Thread {
		return rec, shown, chat.Answer{Notice: sayNoRequest}, false, false
	}
	if rec.State != approvals.Pending {
		c := g.cardOf(tx, rec, "")
		return rec, shown, chat.Answer{Card: &c, Notice: decidedText(rec)}, false, false
	}
	shown, current := g.digestShown(tx, rec, b)
	if !current {
		g.audit(tx, rec, "refused", b.From.ID, b.Via, "the card is out of date")
		return rec, shown, chat.Answer{
			Notice: sayOutdated(rec.ID),
		}, false, false
	}
	if why := g.refusal(tx, rec, b); why != "" {
		g.audit(tx, rec, "refused", b.From.ID, b.Via, why)
		return rec, shown, chat.Answer{Notice: why}, false, false
	}
	if late, expired := g.ledger.Expire(tx, rec.ID, g.cfg.Now()); expired {
		return late, shown, g.expiredAnswer(tx, late), true, false
	}
	return rec, shown, chat.Answer{}, false, true
}

func (g *Gate) expiredAnswer(tx store.Tx, rec approvals.Record) chat.Answer {
	g.audit(tx, rec, "expired", "", "", "")
	c := g.updateCard(tx, rec, "")
	g.deliverDecision(tx, rec)
	return chat.Answer{Card: &c, Notice: sayExpiredAt(rec.ExpiresAt)}
}

func (g *Gate) vote(tx store.Tx, b Ballot) (ans chat.Answer, decided bool) {
	b, ok := g.resolve(tx, b)
	if !ok {
		return chat.Answer{Notice: sayNoTicket}, false
	}
	before, shown, ans, decided, ok := g.authorize(tx, b)
	if !ok {
		return ans, decided
	}
	before, _ = g.lapse(tx, before)
	proof, why := g.signed(tx, before, b, shown)
	if why != "" {
		g.audit(tx, before, "refused", b.From.ID, b.Via, why)
		return chat.Answer{Notice: why}, false
	}
	meets := g.needsMet(tx, before, b)
	duty := g.dutyOf(before, meets, b)
	rec, refusal, err := g.ledger.Vote(tx, b.ID, approvals.Vote{
		User: b.From, Approve: b.Approve, Reason: b.Reason, Via: b.Via, Event: b.EventID, At: g.cfg.Now(), Digest: shown, Groups: b.Groups,
		Meets: meets, Duty: duty, Ticket: g.ticketOf(tx, before), Grant: b.Grant, Glass: b.Glass, Trial: b.Trial, Passkey: proof,
	})
	if err != nil {
		store.Abort(err)
	}
	switch refusal {
	case approvals.Counted:
	case approvals.TooLate:
		return g.expiredAnswer(tx, rec), true
	case approvals.VotedBefore:
		return chat.Answer{Notice: sayTwice(missingVotes(rec))}, false
	case approvals.NoReason:
		return chat.Answer{Notice: sayReason(chatVerb(b), rec.ID)}, false
	case approvals.NotSigned:
		return g.toSign(tx, b), false
	case approvals.NotWritten:
		return chat.Answer{Notice: sayWrite(rec.Require.Write, chatVerb(b), rec.ID)}, false
	case approvals.NoNeed:
		return chat.Answer{Notice: g.refusal(tx, rec, b)}, false
	case approvals.AlreadyDone, approvals.OtherContent, approvals.NoPerson:
		c := g.cardOf(tx, rec, "")
		return chat.Answer{Card: &c, Notice: decidedText(rec)}, false
	}
	said := sayDenied
	switch {
	case b.Glass:
		said = sayApprovedAlone
		g.audit(tx, rec, ViaGlass, b.From.ID, b.Via, b.Reason)
		g.requestReview(tx, rec)
	case b.Approve:
		said = sayApproved
		g.audit(tx, rec, "approved", b.From.ID, b.Via, strings.TrimSpace(b.Reason+" "+asOnCall(duty)))
	default:
		g.audit(tx, rec, "denied", b.From.ID, b.Via, b.Reason)
	}
	c := g.updateCard(tx, rec, "")
	if rec.State == approvals.Pending {
		return chat.Answer{Card: &c, OK: true, Notice: sayMore(missingVotes(rec))}, false
	}
	g.learn(tx, rec)
	if rec.State == approvals.Approved {
		if b.Grant && rec.Require.Grant > 0 {
			g.audit(tx, rec, "granted", b.From.ID, b.Via, "until "+clock(rec.Decided.Add(rec.Require.Grant)))
			said = sayGranted(rec.Decided.Add(rec.Require.Grant))
		}
		g.setTimer(tx, rec, rec.RunBy.Add(time.Second))
	}
	g.deliverDecision(tx, rec)
	return chat.Answer{Card: &c, OK: true, Notice: said}, true
}

// chatVerb returns the chat word equivalent to the pressed button.
func chatVerb(b Ballot) string {
	if b.Glass {
		return "break-glass"
	}
	return "approve"
}

// missingVotes describes the votes still needed.
func missingVotes(rec approvals.Record) string {
	var out []string
	for i, n := range rec.Require.Needs {
		if has, want := rec.Met(i), max(n.Count, 1); has < want {
			out = append(out, sayMissing(has, want, n.Who()))
		}
	}
	return strings.Join(out, ", ")
}

// digestShown returns the digest that the voter saw. For a press it is that of the card
// with the button. A typed id comes from one of the request's cards, which all show the
// same action.
func (g *Gate) digestShown(tx store.Tx, rec approvals.Record, b Ballot) (d approvals.Digest, ok bool) {
	if b.Via != ViaButton && b.Nonce == "" {
		return rec.Digest, true
	}
	return g.ledger.Shown(tx, rec.ID, b.Nonce)
}

// refusal says why a person may not cast this vote, "" if they may. Anybody in the thread
// may deny, because denying is always safe.
func (g *Gate) refusal(tx store.Tx, rec approvals.Record, b Ballot) string {
	groups := rec.Require.Groups()
	for i, n := range rec.Require.Needs { // who is on call now, not when the request was filed
		rec.Require.Needs[i].Duty = g.cfg.Policy().Duties(n.Groups)
	}
	who := strings.Join(rec.Require.Who(), " or ")
	switch {
	case b.From.Bot:
		return sayBotsDecide
	case !b.Approve:
		return ""
	case nameless(rec, b) && (b.Glass || !rec.OneVote()):
		if !elsewhere(b) {
			return sayAskedElsewhere(network(rec.Requester.ID))
		}
		return sayElsewhere
	case b.Glass && len(rec.Require.BreakGlass) == 0:
		return sayNoGlass
	case b.Glass && !g.cfg.Policy().Eligible(rec.Require.BreakGlass, b.From, b.Groups):
		return sayGlassOnly(g.cfg.Policy().Who(rec.Require.BreakGlass))
	case b.Glass && b.byTicket() && !g.cfg.Policy().Eligible(rec.Require.BreakGlass, b.signer, b.signerGroups):
		return saySignerNoApprover(name(b.signer), strings.Join(g.cfg.Policy().Who(rec.Require.BreakGlass), " or "))
	case b.Glass:
		return ""
	case len(groups) == 0:
		return sayNoApprovers(rec.Action.Target)
	case !rec.Require.RequesterMay && (b.From.ID == rec.Requester.ID || b.signer.ID == rec.Requester.ID):
		return sayOwnRequest(who)
	}
	if now := g.judge(tx, requestOf(rec)); now.Lane == approvals.Forbid {
		return sayForbidden(now.Sentence)
	}
	if rec.Require.Ticket && len(g.needsMet(tx, rec, b)) > 0 {
		if why := g.ticketOf(tx, rec).Needed(g.cfg.Now()); why != "" {
			return sayNoTicketNow(why)
		}
	}
	switch {
	case len(g.needsMet(tx, rec, b)) == 0:
		if _, changed := g.Approvers(tx, rec); changed != "" {
			return "You can't approve this. " + changed
		}
		return strings.TrimSpace(sayNotApprover(who) + " " + b.From.Ungrouped)
	case b.byTicket() && len(g.needsMet(tx, rec, b.bySigner())) == 0:
		return saySignerNoApprover(name(b.signer), who)
	case b.Grant && rec.Require.Grant <= 0:
		return sayOnceOnly
	case b.Trial && (rec.Require.KeepWithin <= 0 || !rec.Preview.Back.Timed):
		return sayNoTrial
	}
	return ""
}

// byTicket reports whether somebody signs in the console for who pressed elsewhere.
func (b Ballot) byTicket() bool { return b.signer.ID != "" && b.signer.ID != b.From.ID }

// bySigner is the ballot as if the signer had cast it.
func (b Ballot) bySigner() Ballot {
	b.From, b.Groups = b.signer, b.signerGroups
	return b
}

// elsewhere reports whether a press comes from another network than its thread's. People have a
// name on each, and nothing says which belong together: who asked on one could approve on
// another, or vote twice.
func elsewhere(b Ballot) bool { return !strings.HasPrefix(string(b.Thread), network(b.From.ID)+":") }

// network is where a person has their name.
func network(id chat.UserID) string {
	name, _, _ := strings.Cut(string(id), ":")
	return name
}

// nameless reports whether the voter could be who asked, or voted before, under a name of another
// network. A program's request is in the network that its person signed in at, wherever its thread is.
func nameless(rec approvals.Record, b Ballot) bool {
	own := network(b.From.ID)
	if rec.Requester.Bot || rec.Requester.ID == "" {
		if elsewhere(b) {
			return true
		}
	} else if network(rec.Requester.ID) != own {
		return true
	}
	return slices.ContainsFunc(rec.Votes, func(v approvals.Vote) bool { return v.Approve && network(v.User.ID) != own })
}

func decidedText(r approvals.Record) string {
	switch r.State {
	case approvals.Approved:
		return "Already approved by " + r.By.Name + " at " + clock(r.Decided) + "."
	case approvals.Running:
		return "Already approved by " + r.By.Name + " at " + clock(r.Decided) + ". It is running."
	case approvals.Done, approvals.OutcomeUnknown:
		if r.Outcome.Unstarted {
			return "Already approved by " + r.By.Name + " at " + clock(r.Decided) + ". It was not run."
		}
		return "Already approved by " + r.By.Name + " at " + clock(r.Decided) + ". It has run."
	case approvals.Denied:
		return "Already denied by " + r.By.Name + " at " + clock(r.Decided) + "."
	case approvals.Expired:
		return sayExpired
	case approvals.Cancelled:
		return "This request was withdrawn by " + r.By.Name + "."
	case approvals.Invalid:
		return "This request is no longer valid: " + r.Reason + "."
	case approvals.Pending:
	}
	return sayNotCounted
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }
