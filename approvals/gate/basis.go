package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/card"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/outbox"
)

// policyUser is the approver in records that the policy approved.
var policyUser = chat.User{ID: "countersign:policy", Name: "the policy", Bot: true}

// findBasis returns what approves a request without votes of its own. If there is nothing
// and the thread has a plan, this request is not its next step: the plan ends and broken
// says so.
func (g *Gate) findBasis(tx store.Tx, rec approvals.Record, r ruling) (b approvals.Basis, by chat.User, broken string) {
	now := g.cfg.Now()
	if r.Lane != approvals.Ask {
		return b, by, ""
	}
	if plan, n, ok := g.ledger.UseStep(tx, rec.Thread, rec.Action, now); ok {
		return approvals.Basis{Kind: approvals.ByPlan, Of: plan.Of, Step: n, Why: fmt.Sprintf("step %d of %d of the plan %s", n, len(plan.Steps), plan.Of)}, plan.By, ""
	}
	if grant, ok := g.ledger.Granted(tx, rec.Thread, rec.Action, now); ok && r.decision.Grant > 0 {
		return approvals.Basis{Kind: approvals.ByGrant, Of: grant.Of, Why: "exactly this was approved until " + clock(grant.Until)}, grant.By, ""
	}
	if r.decision.Auto != "" && len(rec.Action.Steps) == 0 {
		return approvals.Basis{Kind: approvals.ByPolicy, Why: r.decision.Auto}, policyUser, ""
	}
	if plan, ok := g.ledger.PlanOf(tx, rec.Thread, now); ok {
		g.ledger.Drop(tx, rec.Thread)
		return b, by, sayPlanEnded(plan.Next + 1)
	}
	return b, by, ""
}

// judgePlan judges each step of a plan and combines the rulings, taking the strictest of
// everything.
func (g *Gate) judgePlan(tx store.Tx, req approvals.Request, whole ruling) ruling {
	whole.Lane, whole.decision.Auto, whole.decision.Grant = min(whole.Lane, approvals.Ask), "", 0
	for i, step := range req.Action.Steps {
		one := req
		one.Action, one.Floor, one.Claim = step, risk.Read, approvals.Claim{}
		r := g.decidePolicy(tx, one)
		if r.Lane == approvals.Forbid {
			r.Sentence = fmt.Sprintf("step %d: %s", i+1, r.Sentence)
			return r
		}
		whole.steps = append(whole.steps, r.Level.String())
		whole.Level = risk.Max(whole.Level, r.Level)
		whole.Verdict.Risk = risk.Max(whole.Verdict.Risk, r.Verdict.Risk)
		for _, e := range r.Verdict.Effects {
			if !slices.Contains(whole.Verdict.Effects, e) {
				whole.Verdict.Effects = append(whole.Verdict.Effects, e)
			}
		}
		for _, why := range r.Verdict.Reasons {
			whole.Verdict.Reasons = append(whole.Verdict.Reasons, fmt.Sprintf("step %d: %s", i+1, why))
		}
		if r.Sentence != "" {
			whole.Sentence = strings.TrimSpace(fmt.Sprintf("%s Step %d: %s", whole.Sentence, i+1, r.Sentence))
		}
		if r.Lane == approvals.Ask {
			whole.decision = stricter(whole.decision, r.decision)
		}
	}
	return whole
}

// stricter returns a decision that requires what a and b require.
func stricter(a, b policy.Decision) policy.Decision {
	for _, r := range b.Requirements {
		if !slices.ContainsFunc(a.Requirements, func(o policy.Requirement) bool {
			return o.Rule == r.Rule && o.Count == r.Count && slices.Equal(o.Groups, r.Groups)
		}) {
			a.Requirements = append(a.Requirements, r)
		}
	}
	a.RequesterMay = a.RequesterMay && b.RequesterMay
	a.ReasonRequired, a.Solo, a.Write, a.Proof = a.ReasonRequired || b.ReasonRequired, a.Solo || b.Solo, cmp.Or(a.Write, b.Write), cmp.Or(a.Proof, b.Proof)
	a.Ticket = a.Ticket || b.Ticket
	a.BreakGlass = slices.DeleteFunc(slices.Clone(a.BreakGlass), func(s string) bool { return !slices.Contains(b.BreakGlass, s) })
	a.Expires, a.RunWithin = min(a.Expires, b.Expires), min(a.RunWithin, b.RunWithin)
	a.Grant = min(a.Grant, b.Grant)
	return a
}

// needsMet returns the indexes of the record's needs that the voter meets. A voter who is
// not an approver under the current policy meets none.
func (g *Gate) needsMet(tx store.Tx, rec approvals.Record, b Ballot) []int {
	if !b.Approve || (!rec.Require.RequesterMay && b.From.ID == rec.Requester.ID) {
		return nil
	}
	pol := g.cfg.Policy()
	if today, _ := g.Approvers(tx, rec); !pol.Eligible(today, b.From, b.Groups) {
		return nil
	}
	var out []int
	for i, n := range rec.Require.Needs {
		if pol.Eligible(n.Groups, b.From, b.Groups) {
			out = append(out, i)
		}
	}
	return out
}

// Approvers returns the groups that approve a request under the rules as they are now. Who approves it has to be in
// one of its own as well; changed is a sentence for people where the two have come to differ.
func (g *Gate) Approvers(tx store.Tx, rec approvals.Record) (groups []string, changed string) {
	now := g.judge(tx, requestOf(rec))
	for _, r := range now.decision.Requirements {
		groups = append(groups, groupsAt(r, rec.Created, g.cfg.Now())...)
	}
	if now.Lane == approvals.Forbid {
		changed = sayForbidden(now.Sentence)
	} else if slices.ContainsFunc(rec.Require.Groups(), func(group string) bool { return !slices.Contains(groups, group) }) {
		changed = sayApproversChanged(cmp.Or(strings.Join(g.cfg.Policy().Who(groups), " or "), "nobody"))
	}
	return groups, changed
}

// dutyOf are the schedules by which a vote counts: those of the needs it meets that have the voter on
// call.
func (g *Gate) dutyOf(rec approvals.Record, meets []int, b Ballot) []approvals.Duty {
	var out []approvals.Duty
	for _, i := range meets {
		for _, d := range g.cfg.Policy().Duties(rec.Require.Needs[i].Groups) {
			if !slices.ContainsFunc(out, d.Same) && g.cfg.Policy().Eligible([]string{d.Group}, b.From, b.Groups) {
				out = append(out, d)
			}
		}
	}
	return out
}

// asOnCall says by which turn a vote counted, for the audit record.
func asOnCall(duty []approvals.Duty) string {
	var out []string
	for _, d := range duty {
		s := "on call: " + d.String()
		if !d.Read.IsZero() {
			s += ", as " + d.Source + " said at " + approvals.Clock(d.Read, d.Read)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return ""
	}
	return "(" + strings.Join(out, "; ") + ")"
}

// requestOf returns the request of a record, to be judged again under the current policy.
func requestOf(rec approvals.Record) approvals.Request {
	return approvals.Request{
		Thread: rec.Thread, Call: rec.Call, By: rec.Requester, Groups: rec.Groups,
		Action: rec.Action, Floor: rec.FinalLevel(), Revision: rec.Revision, Caller: rec.Caller,
	}
}

// groupsAt returns the groups of a requirement at a given time, including those that
// escalation has added by then.
func groupsAt(r policy.Requirement, since, at time.Time) []string {
	all := slices.Clone(r.Groups)
	for _, e := range r.Escalate {
		if !at.Before(since.Add(e.After)) {
			all = append(all, e.Groups...)
		}
	}
	return all
}

// outdatedReason says why an approval does not hold under the current policy and approvers,
// "" if it does. It uses the chat groups recorded with the votes and does not look anybody
// up.
func (g *Gate) outdatedReason(tx store.Tx, rec approvals.Record) string {
	now := g.judge(tx, requestOf(rec))
	d := now.decision
	switch {
	case now.Lane == approvals.Forbid:
		return "the policy changed after the approval: " + now.Sentence
	case now.Lane == approvals.Allow:
		return "" // it no longer needs approval
	case d.Auto != "" && len(rec.Action.Steps) == 0:
		return "" // the policy approves it now
	case d.RunWithin < rec.Require.RunWithin && g.cfg.Now().After(rec.Decided.Add(d.RunWithin)):
		return "the policy changed after the approval: it must be used within " + d.RunWithin.String() + " now"
	}
	switch rec.Basis.Kind {
	case approvals.ByPolicy:
		if d.Auto == "" {
			return "the policy does not let this run by itself any more"
		}
		return ""
	case approvals.ByGrant, approvals.ByPlan:
		of, ok := g.ledger.Get(tx, rec.Basis.Of)
		if !ok {
			return "the approval that this rests on is gone"
		}
		switch of.State {
		case approvals.Approved, approvals.Running, approvals.Done, approvals.OutcomeUnknown, approvals.Expired:
		default:
			return "the approval that this rests on does not hold: it is " + string(of.State)
		}
		if !rec.CoveredBy(of) {
			return "the approval that this rests on is of something else"
		}
		return g.votesShortfall(tx, of, d)
	case approvals.ByVotes:
	default:
		return "it was approved by what this version does not know"
	}
	return g.votesShortfall(tx, rec, d)
}

// votesShortfall says why a record's votes do not satisfy a decision made now, "" if they
// do.
func (g *Gate) votesShortfall(tx store.Tx, rec approvals.Record, d policy.Decision) string {
	pol := g.cfg.Policy()
	approving := slices.DeleteFunc(slices.Clone(rec.Votes), func(v approvals.Vote) bool { return !v.Counts() || v.User.Bot })
	for _, v := range approving {
		if why := g.unsigned(tx, rec, v, d); why != "" {
			return why
		}
		if v.Glass {
			if !pol.Eligible(d.BreakGlass, v.User, v.Groups) {
				return name(v.User) + " broke the glass, and may not any more"
			}
			return ""
		}
		if v.User.ID == rec.Requester.ID && (!rec.Require.RequesterMay || !d.RequesterMay) {
			return name(v.User) + " asked for this, and may not approve it any more"
		}
		if d.Write != "" && strings.TrimSpace(v.Reason) != d.Write {
			return "the policy changed after the approval: whoever approves writes " + d.Write + " now"
		}
		if v.Reason == "" && d.ReasonRequired {
			return "the policy changed after the approval: it takes a reason now"
		}
	}
	if d.Ticket || rec.Require.Ticket {
		if why := g.cfg.Tickets.State(tx, rec.Ticket.Key).Needed(g.cfg.Now()); why != "" {
			return why
		}
	}
	// The needs at filing time, counting only people who are still in those groups ...
	for _, n := range rec.Require.Needs {
		if why := g.checkCount(rec, approving, n.Count, func(approvals.Vote) []string { return n.Groups }); why != "" {
			return why
		}
	}
	// ... and the requirements of the current policy.
	for _, r := range d.Requirements {
		groups := func(v approvals.Vote) []string { return groupsAt(r, rec.Created, v.At) }
		if why := g.checkCount(rec, approving, r.Count, groups); why != "" {
			return why
		}
	}
	if len(approving) == 0 || len(d.Requirements) == 0 {
		return "nobody may approve this any more"
	}
	return ""
}

// counts reports whether a vote counts for some groups now.
func (g *Gate) counts(v approvals.Vote, groups []string) bool {
	holds := func(d approvals.Duty) bool {
		return slices.Contains(groups, d.Group) && g.cfg.Policy().Holds(d, v.User, g.cfg.Now())
	}
	return g.cfg.Policy().Eligible(groups, v.User, v.Groups) || slices.ContainsFunc(v.Duty, holds)
}

// lapse takes votes out that don't count any more, so that a request stays open for those whose do. It
// returns whose votes these were.
func (g *Gate) lapse(tx store.Tx, rec approvals.Record) (approvals.Record, []string) {
	now, void := g.ledger.Lapse(tx, rec.ID, func(v approvals.Vote, n approvals.Need) bool { return g.counts(v, n.Groups) })
	if now.Facts() == rec.Facts() {
		return rec, nil
	}
	var who []string
	for _, u := range void {
		who = append(who, name(u))
	}
	g.audit(tx, now, audit.Relieved, "", "", strings.TrimSpace("votes that don't count any more: "+strings.Join(who, ", ")))
	return now, who
}

func (g *Gate) checkCount(rec approvals.Record, votes []approvals.Vote, count int, groups func(approvals.Vote) []string) string {
	people, gone := map[chat.UserID]bool{}, ""
	var relieved []string
	for _, v := range votes {
		if g.counts(v, groups(v)) {
			people[v.User.ID] = true
		} else if gone == "" {
			if gone = name(v.User); len(v.Duty) > 0 {
				relieved = g.cfg.Policy().Who(groups(v))
			}
		}
	}
	switch count = max(count, 1); {
	case len(people) >= count:
		return ""
	case len(relieved) > 0:
		return gone + " approved this and isn't on call any more; now it takes " + strings.Join(relieved, " or ")
	case gone != "":
		return gone + " approved this and may not approve on " + rec.Action.Target + " any more"
	}
	return fmt.Sprintf("the policy changed after the approval: it takes %d people now, and %d approved", count, len(people))
}

func name(u chat.User) string {
	if u.Name != "" {
		return u.Name
	}
	return string(u.ID)
}

// learned counts people's decisions about a tool. A policy may use the counts:
//
//	("approval-learned", tool) -> learned as JSON
type learned struct {
	Yes int `json:"yes"`
	No  int `json:"no"`
}

func learnedOf(tx store.Tx, tool string) learned {
	l, _ := store.Load[learned](tx, store.Key("approval-learned", tool))
	return l
}

// learn counts a decision about a tool. Commands and keystrokes are never learned.
func (g *Gate) learn(tx store.Tx, rec approvals.Record) {
	if rec.Action.Kind != approvals.KindChange || len(rec.Action.Steps) > 0 {
		return
	}
	l := learnedOf(tx, rec.Action.Tool)
	if rec.State == approvals.Approved {
		l.Yes++
	} else {
		l.No++
	}
	store.Save(tx, store.Key("approval-learned", rec.Action.Tool), l)
	in := g.input(tx, requestOf(rec), ruling{Ruling: approvals.Ruling{Level: rec.FinalLevel(), Verdict: g.verdict(requestOf(rec))}})
	if l.Yes%suggestEvery == 0 && rec.State == approvals.Approved && g.cfg.Policy().Suggest(in) {
		outbox.Put(tx, string(rec.Thread), "suggest/"+string(rec.ID), chat.Post{Quiet: true, Text: fmt.Sprintf(
			"%d of %d requests for `%s` were approved. If that should not take a person any more, add it to `policy.learn.tools`, "+
				"or write a rule that allows it (`countersign docs policy-rules`).",
			l.Yes, l.Yes+l.No, rec.Action.Tool)}, g.cfg.Now())
	}
}

// suggestEvery is the number of approvals of a tool between two suggestions to change the
// policy.
const suggestEvery = 5

// requestReview posts the card that asks somebody else for a review.
func (g *Gate) requestReview(tx store.Tx, rec approvals.Record) {
	c := card.Review(rec)
	outbox.Put(tx, string(rec.Thread), "review/"+string(rec.ID), chat.Post{Card: &c}, g.cfg.Now())
}

// review handles the review of a break-glass approval.
func (g *Gate) review(tx store.Tx, b Ballot) (chat.Answer, bool) {
	rec, ok := g.ledger.Get(tx, b.ID)
	switch {
	case !ok || rec.Thread != b.Thread:
		return chat.Answer{Notice: sayNoRequest}, false
	case b.From.Bot:
		return chat.Answer{Notice: sayBotsReview}, false
	case rec.Review.By.ID != "":
		c := card.Review(rec)
		return chat.Answer{Card: &c, Notice: sayReviewedBy(name(rec.Review.By))}, false
	case !rec.Review.Due:
		return chat.Answer{Notice: sayNothingToCheck}, false
	case b.From.ID == rec.By.ID || b.From.ID == rec.Requester.ID:
		return chat.Answer{Notice: sayReviewOthers}, false
	case elsewhere(b):
		return chat.Answer{Notice: sayElsewhere}, false
	case !g.cfg.Policy().Eligible(append(rec.Require.Groups(), rec.Require.BreakGlass...), b.From, b.Groups):
		return chat.Answer{Notice: sayNotReviewer(g.cfg.Policy().Who(rec.Require.Groups()))}, false
	}
	rec, ok = g.ledger.Reviewed(tx, rec.ID, b.From, b.Reason, g.cfg.Now())
	if !ok {
		return chat.Answer{Notice: sayNotReviewed}, false
	}
	g.audit(tx, rec, "reviewed", b.From.ID, b.Via, b.Reason)
	c := card.Review(rec)
	outbox.Put(tx, string(rec.Thread), "review/"+string(rec.ID), chat.Post{Card: &c, Quiet: true}, g.cfg.Now())
	return chat.Answer{Card: &c, OK: true, Notice: sayReviewed}, true
}

// Allowed records that a proven read is about to run without approval. If it is the next
// step of the thread's plan, it uses that step.
func (g *Gate) Allowed(tx store.Tx, req approvals.Request) {
	g.ledger.UseStep(tx, req.Thread, req.Action, g.cfg.Now())
	g.auditUnasked(tx, req, "allowed", "")
}

// Forbidden records that the policy refused a request.
func (g *Gate) Forbidden(tx store.Tx, req approvals.Request) {
	g.auditUnasked(tx, req, "forbidden", "")
}

// Ran records how a run without approval ended.
func (g *Gate) Ran(tx store.Tx, req approvals.Request, o approvals.Outcome) {
	g.auditUnasked(tx, req, "done", o.Note)
}

func (g *Gate) auditUnasked(tx store.Tx, req approvals.Request, what, note string) {
	r := g.judge(tx, req)
	if r.Lane == approvals.Forbid {
		note = strings.TrimSpace(note + " " + r.Sentence)
	}
	if what == audit.Allowed && len(r.Verdict.Hops) > 0 {
		places := make([]string, len(r.Verdict.Hops))
		for i, h := range r.Verdict.Hops {
			places[i] = h.String()
		}
		note = strings.TrimSpace(note + " it reaches " + strings.Join(places, ", "))
	}
	rec := g.record(req, r)
	rec.Digest = req.Action.Digest()
	g.audit(tx, rec, what, req.By.ID, "", note)
}

// Revoke ends the grants and the plan of a thread, because somebody said stop.
func (g *Gate) Revoke(tx store.Tx, thread chat.ThreadID, by chat.User) int {
	n := g.ledger.Revoke(tx, thread)
	if n > 0 {
		g.audit(tx, approvals.Record{Thread: thread, Created: time.Time{}}, "revoked", by.ID, "", fmt.Sprintf("%d standing approvals ended", n))
	}
	return n
}
