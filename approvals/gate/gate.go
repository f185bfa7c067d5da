// Package gate joins the risk engine, the policy, the ledger, the cards and
// the audit chain. It judges proposals, files requests, accepts edits and
// counts votes. Buttons, text, the command line and the web all share one
// authorisation function, [Gate.Vote].
//
// The gate runs nothing. A run needs a permit, which only the ledger makes.
//
// # Who decides
//
// gate.Judge takes the highest of three levels: the analyzer's, the tool's and the model's, which
// can therefore only raise it. policy.Decide turns that level and the facts (channel, target,
// labels, tool, effects, requester, hour) into a lane and a list of requirements. A requirement is a
// number of distinct people from some groups. Every matching rule adds its own and all must be met,
// so another rule never makes approval easier.
//
// A vote counts for each need whose groups the person belongs to, now and under the current policy.
// Escalation adds groups after a while. Breaking the glass decides alone, requires a reason, and
// leaves a review due for somebody else. One denial ends the request.
//
// A standing grant, the next step of an approved plan, mode trusting, an allow rule and learning all
// take the same path as votes: the request is filed, Ledger.Settle approves it on that basis, and
// the run consumes it once. So there is one path to a permit, with one record and one audit line per
// run. The basis is checked again right before the run. Only proven reads get a permit without a
// record.
//
// The tool plans again. The digest must be the same (bytes, target, account, directory with its
// inode, files that the command names, pane, program in front, environment), and the votes must
// satisfy the current policy.
package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/card"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/registry"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/outbox"
	"countersign/store/queue"
)

// Config configures a [Gate]. Reach, Used and Labels are optional; every other field is
// required.
type Config struct {
	DB store.DB
	// Policy returns the current policy, which a reload may replace.
	Policy   func() *policy.Policy
	Classify func(risk.Text) risk.Verdict
	Now      func() time.Time
	// Wake notifies the thread's worker and the outbox of new rows.
	Wake func(thread string)
	Log  *slog.Logger
	// Audit appends to the audit chain. It redacts what it stores.
	Audit audit.Trail
	// Passkeys has the keys that people sign votes with. Without a site, a vote that needs a
	// signature is refused.
	Passkeys registry.Book
	// Origin is the web console's address, for links to it; "" is none.
	Origin string
	// Signer tells the signer what somebody is about to sign, which takes the statement for its own page,
	// or has no page, and returns the nonce for it (Fresh). nil where there is no signer.
	Signer func(ctx context.Context, action []byte, s passkey.Statement) (page registry.Page, fresh string, err error)
	// Place describes where an action would run.
	Place func(thread chat.ThreadID, target string) Place
	// Reach reports whether a person may use, in a thread, the host that a command
	// connects to. nil allows only hosts listed in the classifier's configuration.
	Reach func(thread chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool
	// Tickets knows the tickets of threads; nil knows none.
	Tickets Tickets
	// Limits bound what one program may ask for; nil is no bound.
	Limits func() Limits
	// Used is called for every approval that is used. Like Labels, it must be quick and
	// may be called again when a transaction is retried.
	Used func(approvals.ID, approvals.Action)
	// Labels receives the model's claim and the engine's judgement, to compare them.
	Labels func(approvals.Claim, approvals.Judgement)
}

// Place is the configuration of a thread and a target.
type Place struct {
	Channel   string            // "slack:C0123456", "web"
	Target    string            // as the configuration names it
	Labels    map[string]string // of the target
	Approvers []string          // groups that may approve on the target
	Proof     string            // what the target asks of an approval, see [policy.Approve]
	Require   string            // what it asks of a change, see [policy.Approve]
	Mode      policy.Mode
	Until     time.Time // end of the mode trusting
	// Locked is Reads for a program that locks its own reads, on a machine that is no target.
	Locked approvals.Reads
	// Reads says which proven reads run without approval; "" is the default for a target
	// without a lock.
	Reads approvals.Reads
}

// Gate judges and authorises. It has no state and is safe for concurrent use.
type Gate struct {
	cfg    Config
	ledger approvals.Ledger
}

// New returns a gate.
func New(cfg Config) *Gate {
	if cfg.Used == nil {
		cfg.Used = func(approvals.ID, approvals.Action) {}
	}
	if cfg.Tickets == nil {
		cfg.Tickets = noTickets{}
	}
	if cfg.Limits == nil {
		cfg.Limits = func() Limits { return Limits{} }
	}
	if cfg.Labels == nil {
		cfg.Labels = func(approvals.Claim, approvals.Judgement) {}
	}
	return &Gate{cfg: cfg}
}

// ruling is a Ruling with the policy's decision behind it.
type ruling struct {
	approvals.Ruling
	decision policy.Decision
	steps    []string // the risk of each step of a plan
}

// autoWithin is the time within which an action approved by the policy must start.
const autoWithin = 2 * time.Minute

// maxShown limits a card's displayed text, in bytes. An action that a card cannot show
// completely cannot be approved.
const maxShown = 60_000

// Judge rules on a request and makes the permit of one that may run without approval. The
// model's claim can only raise the level: a proven read that the model calls a change, or
// risky, needs approval.
func (g *Gate) Judge(ctx context.Context, req approvals.Request) approvals.Ruling {
	var r ruling
	err := g.cfg.DB.View(ctx, func(tx store.Tx) error {
		r = g.judge(tx, req)
		return nil
	})
	if err != nil {
		return approvals.Ruling{Level: risk.High, Sentence: "what people decided before could not be read, so nothing runs: " + err.Error()}
	}
	g.cfg.Labels(req.Claim, judgement(r.Verdict))
	if r.Lane == approvals.Allow {
		if r.Permit, err = g.ledger.Observe(req.Action, r.Verdict); err != nil {
			r.Lane = approvals.Ask // no proof, so people decide
		}
	}
	return r.Ruling
}

func (g *Gate) judge(tx store.Tx, req approvals.Request) ruling {
	r := g.decidePolicy(tx, req)
	if len(req.Action.Steps) > 0 {
		r = g.judgePlan(tx, req, r)
	}
	if r.Lane != approvals.Ask {
		return r
	}
	if size, ok := card.Fits(g.record(req, r), r.Sentence, maxShown); !ok {
		r.Lane = approvals.Forbid
		r.Sentence = fmt.Sprintf("a card of this would have %d bytes, and can show at most %d whole; "+
			"what cannot be shown whole cannot be approved, so do it in smaller steps", size, maxShown)
	}
	return r
}

// Explain returns the policy's input for a request and its decision, without filing
// anything. It ignores the steps of a plan.
func (g *Gate) Explain(ctx context.Context, req approvals.Request) (policy.Input, policy.Decision, error) {
	var in policy.Input
	err := g.cfg.DB.View(ctx, func(tx store.Tx) error {
		in = g.input(tx, req, g.classifyLevel(req))
		return nil
	})
	if err != nil {
		return policy.Input{}, policy.Decision{}, err
	}
	return in, g.cfg.Policy().Decide(in), nil
}

// classifyLevel returns the verdict on a request and its level: the highest of engine,
// claim and tool.
func (g *Gate) classifyLevel(req approvals.Request) ruling {
	v := g.verdict(req)
	level := risk.Max(v.Risk, req.Floor)
	if req.Claim.Given {
		level = risk.Max(level, claimedLevel(req.Claim))
	}
	return ruling{Ruling: approvals.Ruling{Level: level, Verdict: v}}
}

// decidePolicy applies the policy to one action.
func (g *Gate) decidePolicy(tx store.Tx, req approvals.Request) ruling {
	r := g.classifyLevel(req)
	in := g.input(tx, req, r)
	d := g.cfg.Policy().Decide(in)
	r.Lane, r.Rule, r.Sentence, r.decision = d.Lane, d.Rule, d.Sentence, d
	if r.Lane == approvals.Allow && !in.Harmless {
		// Without a proof there is no permit without a record. The request is filed
		// and the policy approves it.
		r.Lane = approvals.Ask
		r.decision.Expires, r.decision.RunWithin = max(d.Expires, autoWithin), max(d.RunWithin, autoWithin)
		if d.Auto == "" {
			r.Lane, r.Sentence = approvals.Forbid, "the policy allows this and does not say by what right, so it is refused"
		}
	}
	return r
}

// input returns the policy's input for a request.
func (g *Gate) input(tx store.Tx, req approvals.Request, r ruling) policy.Input {
	p := g.cfg.Place(req.Thread, req.Action.Target)
	in := policy.Input{
		Facts: policy.Facts{
			Channel: p.Channel, Target: p.Target, Labels: p.Labels, Tool: req.Action.Tool, Kind: string(req.Action.Kind),
			Command: string(req.Action.Bytes), Args: string(req.Action.Args), Path: req.Action.Path, Paths: req.Action.Paths,
			Level: r.Level, Requester: req.By, RequesterGroups: req.Groups, Caller: req.Caller.Facts(string(req.By.ID)), Now: g.cfg.Now(),
		},
		Mode: p.Mode, Until: p.Until, Approvers: p.Approvers, Proof: p.Proof, Require: p.Require, Interrupt: req.Interrupt,
		Harmless: r.Verdict.ReadOnly && r.Verdict.Risk == risk.Read && r.Level == risk.Read,
	}
	if in.Harmless && g.readNeedsApproval(req) {
		in.Harmless = false
	}
	switch {
	case req.ReadOnly:
		in.Mode, in.Until = policy.ReadOnly, time.Time{}
	case req.Gated && in.Mode != policy.ReadOnly:
		in.Mode, in.Until, in.Harmless = policy.Review, time.Time{}, false
	}
	if in.Command == "" {
		in.Command = string(req.Action.Args)
	}
	for _, e := range r.Verdict.Effects {
		in.Effects = append(in.Effects, string(e))
	}
	if req.Action.Kind == approvals.KindChange {
		l := learnedOf(tx, req.Action.Tool)
		in.Yes, in.No = l.Yes, l.No
	}
	return in
}

// claimedLevel returns the level that a model's claim implies. Risk "low" without a change
// raises nothing.
func claimedLevel(c approvals.Claim) risk.Level {
	level := risk.Read
	switch c.Risk {
	case "low", "":
	case "medium":
		level = risk.Medium
	default:
		level = risk.High
	}
	if c.Mutation {
		level = risk.Max(level, risk.Low)
	}
	if c.Privesc {
		level = risk.Max(level, risk.High)
	}
	return level
}

// readsSetting returns which proven reads run without approval at the request's target.
func (g *Gate) readsSetting(req approvals.Request) approvals.Reads {
	p := g.cfg.Place(req.Thread, req.Action.Target)
	if req.Action.Outside() && req.Action.Locked {
		return cmp.Or(p.Locked, approvals.ReadsAsk)
	}
	if p.Reads != "" {
		return p.Reads
	}
	return approvals.Effective("", "", false)
}

// readNeedsApproval reports whether even a proven read needs approval at its target.
func (g *Gate) readNeedsApproval(req approvals.Request) bool {
	switch a := req.Action; a.Kind {
	case approvals.KindShell:
		r := g.readsSetting(req)
		return r == approvals.ReadsAsk || r == approvals.ReadsEnforced && !a.Locked
	case approvals.KindObserve:
		return (a.Path != "" || len(a.Paths) > 0) && g.readsSetting(req) == approvals.ReadsAsk
	default:
		return false
	}
}

func (g *Gate) verdict(req approvals.Request) risk.Verdict {
	switch req.Action.Kind {
	case approvals.KindObserve:
		return g.classifyObserve(req.Action.Path)
	case approvals.KindShell:
		t := req.Action.Text()
		t.Locked = t.Locked && g.readsSetting(req) == approvals.ReadsEnforced
		if g.cfg.Reach != nil && !req.Action.Outside() { // there a name may lead anywhere
			t.Reach = func(h risk.Hop) bool { return g.cfg.Reach(req.Thread, req.By, req.Groups, h) }
		}
		v := g.cfg.Classify(t)
		if req.Tried != "" {
			return risk.Verdict{
				Risk: risk.Max(v.Risk, risk.Medium), Effects: append(v.Effects, risk.EffectWrite),
				Reasons: append([]string{"run as a read, it tried to " + req.Tried + "; that was refused"}, v.Reasons...),
			}
		}
		if v.ReadOnly && req.Action.Private() && req.Action.Shell == "" {
			// The tool did not request a read. The shell is unknown, or the command depends
			// on facts outside its text.
			return risk.Verdict{
				Risk: risk.Max(v.Risk, risk.Low), Effects: append(v.Effects, risk.EffectUnknown),
				Reasons: []string{"its text only reads, but it can't run as a read here"},
			}
		}
		if v.ReadOnly && !req.Action.Private() {
			return risk.Verdict{
				Risk: risk.Max(v.Risk, risk.Low), Effects: append(v.Effects, risk.EffectUnknown),
				Reasons: []string{"it only reads, and is typed into a shell that others use, where a name may mean something else"},
			}
		}
		return v
	case approvals.KindKeys:
		switch {
		case req.Action.Leaves():
			return risk.Verdict{ReadOnly: true, Risk: risk.Read, Reasons: []string{"the key only leaves " + req.Action.Foreground}}
		case req.Action.Interrupts():
			return risk.Verdict{Risk: risk.Low, Effects: []risk.Effect{risk.EffectInteractive}, Reasons: []string{"it interrupts what runs in front"}}
		}
		return risk.Verdict{Risk: risk.Medium, Effects: []risk.Effect{risk.EffectInteractive}, Reasons: []string{"keystrokes reach whatever program is in front"}}
	case approvals.KindChange:
		v := risk.Verdict{Risk: risk.Max(req.Floor, risk.Low), Effects: []risk.Effect{risk.EffectWrite}, Reasons: []string{"the tool changes something"}}
		names := append([]string{req.Action.Path}, req.Action.Paths...)
		if i := slices.IndexFunc(names, risk.Lasting); i >= 0 {
			v.Risk, v.Reasons = risk.Max(v.Risk, risk.High), []string{names[i] + " decides what runs later, or who may sign in"}
		}
		return v
	}
	return risk.Verdict{Risk: risk.High, Effects: []risk.Effect{risk.EffectUnknown}, Reasons: []string{"the kind of this action is not known"}}
}

// classifyObserve judges a read-only tool. Reading a file is judged like cat of the same
// file, so a private key needs approval whichever tool reads it.
func (g *Gate) classifyObserve(path string) risk.Verdict {
	if path == "" {
		return risk.Verdict{ReadOnly: true, Risk: risk.Read, Reasons: []string{"the tool can only look"}}
	}
	text, err := approvals.Reading(path)
	if err != nil {
		return risk.Verdict{Risk: risk.High, Effects: []risk.Effect{risk.EffectUnknown}, Reasons: []string{"the file's name cannot be written as text"}}
	}
	v := g.cfg.Classify(risk.Text{Command: text, Locked: true, Shell: risk.Bash}) // returned as it is: it carries the proof
	if v.ReadOnly {
		v.Reasons = []string{"the tool can only look"}
	}
	return v
}

// decision is the body of an ItemDecision; agent/history reads it.
type decision struct {
	Approval approvals.ID    `json:"approval"`
	Call     string          `json:"call"`
	State    approvals.State `json:"state"`
	By       string          `json:"by,omitempty"`
	ByName   string          `json:"by_name,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// record returns the record that would be filed for a request now.
func (g *Gate) record(req approvals.Request, r ruling) approvals.Record {
	now := g.cfg.Now()
	p := g.cfg.Place(req.Thread, req.Action.Target)
	where := approvals.Place{Target: p.Target}
	where.Env, where.Production = policy.Environment(p.Labels)
	engine := judgement(r.Verdict)
	engine.Steps = r.steps
	return approvals.Record{
		ID: req.ID(), Thread: req.Thread, Call: req.Call, Requester: req.By, Agent: req.Agent, Caller: req.Caller, Groups: req.Groups, Revision: req.Revision, DroppedBy: req.DroppedBy,
		Created: now, Action: req.Action, Claim: req.Claim, State: approvals.Pending,
		Engine: engine,
		Level:  r.Level.String(), Rule: r.Rule, Policy: g.cfg.Policy().Hash(), Require: g.required(r.decision),
		ExpiresAt: now.Add(r.decision.Expires), Preview: req.Preview, Taint: req.Taint, Place: where,
	}
}

// judgement converts a verdict to its stored form.
func judgement(v risk.Verdict) approvals.Judgement {
	effects := make([]string, len(v.Effects))
	for i, e := range v.Effects {
		effects[i] = string(e)
	}
	return approvals.Judgement{ReadOnly: v.ReadOnly, Risk: v.Risk.String(), Effects: effects, Reasons: v.Reasons}
}

// required converts a decision's requirements to their stored form.
func (g *Gate) required(d policy.Decision) approvals.Require {
	out := approvals.Require{
		RequesterMay: d.RequesterMay, ReasonRequired: d.ReasonRequired, Solo: d.Solo, Write: d.Write, Proof: d.Proof, Ticket: d.Ticket, BreakGlass: d.BreakGlass,
		Grant: min(d.Grant, approvals.MaxGrant), RunWithin: d.RunWithin, KeepWithin: d.KeepWithin,
	}
	for _, r := range d.Requirements {
		n := approvals.Need{Rule: r.Rule, Count: r.Count, Groups: slices.Clone(r.Groups), Duty: g.cfg.Policy().Duties(r.Groups)}
		for _, e := range r.Escalate {
			s := approvals.Step{After: e.After, Groups: e.Groups}
			if len(policy.References(e.Groups)) > 0 {
				s.Who = g.cfg.Policy().Who(e.Groups)
			}
			n.Escalate = append(n.Escalate, s)
		}
		out.Needs = append(out.Needs, n)
	}
	return out
}

// Ask files the request with its card, its audit line and its timers. A request covered by
// a grant, a plan or the policy is approved immediately. One that the policy has come to
// forbid is filed as well, but nobody can approve it. Ask is idempotent for a call.
func (g *Gate) Ask(tx store.Tx, req approvals.Request) approvals.Record {
	r := g.judge(tx, req)
	filed := g.record(req, r)
	if was, ok := g.ledger.Get(tx, req.Undoes); ok && was.Thread == req.Thread {
		filed.Undoes = approvals.Undoes{ID: was.ID, Deed: card.Deed(was), By: was.By, At: was.Decided}
	}
	rec, existed := g.ledger.Open(tx, filed)
	if existed {
		return rec
	}
	g.audit(tx, rec, "asked", rec.Requester.ID, "", "")
	notice := r.Sentence
	var basis approvals.Basis
	var by chat.User
	var broken string
	if !req.Gated {
		basis, by, broken = g.findBasis(tx, rec, r)
	}
	if basis.Kind != approvals.ByVotes {
		if settled, ok := g.ledger.Settle(tx, rec.ID, basis, by, g.cfg.Now()); ok {
			g.audit(tx, settled, "approved", by.ID, string(basis.Kind), basis.Why)
			g.updateCard(tx, settled, "")
			g.setTimer(tx, settled, settled.RunBy.Add(time.Second))
			g.deliverDecision(tx, settled)
			return settled
		}
	}
	if broken != "" {
		notice = strings.TrimSpace(notice + " " + broken)
	}
	g.updateCard(tx, rec, notice)
	g.setTimer(tx, rec, rec.ExpiresAt)
	for _, n := range rec.Require.Needs {
		for _, s := range n.Escalate {
			if at := rec.Created.Add(s.After); at.Before(rec.ExpiresAt) {
				g.setTimer(tx, rec, at)
			}
		}
	}
	g.setRelief(tx, rec)
	return rec
}

// setRelief sets a timer for the moment at which somebody else goes on call.
func (g *Gate) setRelief(tx store.Tx, rec approvals.Record) {
	now := g.cfg.Now()
	var next time.Time
	for _, n := range rec.Require.Needs {
		for _, d := range n.Duty {
			if d.Until.After(now) && d.Until.Before(rec.ExpiresAt) && (next.IsZero() || d.Until.Before(next)) {
				next = d.Until
			}
		}
	}
	if !next.IsZero() {
		g.setTimer(tx, rec, next)
	}
}

// Preview adds a late preview to a request and its card. It does nothing for
// one that is decided.
func (g *Gate) Preview(tx store.Tx, id approvals.ID, p approvals.Preview) {
	if rec, ok := g.ledger.Preview(tx, id, p); ok {
		g.updateCard(tx, rec, "")
	}
}

// Receipt adds what a request really changed to it and its card. It does nothing for one that did not run.
func (g *Gate) Receipt(tx store.Tx, id approvals.ID, r approvals.Receipt) {
	if r.IsZero() {
		return
	}
	if rec, ok := g.ledger.Receipt(tx, id, r); ok {
		g.audit(tx, rec, audit.Receipt, "", string(r.Method), cmp.Or(r.Sentence(), strings.ReplaceAll(r.Text, "\n", "; ")))
		g.updateCard(tx, rec, "")
	}
}

func (g *Gate) setTimer(tx store.Tx, rec approvals.Record, at time.Time) {
	g.putTimer(tx, rec, approvals.ItemExpire, at)
}

// putTimer puts an item into the request's thread when it is time.
func (g *Gate) putTimer(tx store.Tx, rec approvals.Record, kind string, at time.Time) {
	body, err := json.Marshal(decision{Approval: rec.ID, Call: rec.Call})
	if err != nil {
		store.Abort(err)
	}
	queue.PutAt(tx, at, queue.Item{
		ID: fmt.Sprintf("%s/%s/%d", kind, rec.ID, at.UnixNano()), Thread: string(rec.Thread), Kind: kind, Body: body, At: g.cfg.Now(),
	})
}

// Repaint queues a card's current content again, for a post that shows an older version.
// key is the post's key; keys of other posts are ignored.
func (g *Gate) Repaint(ctx context.Context, thread chat.ThreadID, key string) error {
	id, ok := strings.CutPrefix(key, chat.CardPrefix)
	if !ok {
		return nil
	}
	return g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if rec, found := g.ledger.Get(tx, approvals.ID(id)); found && rec.Thread == thread {
			g.updateCard(tx, rec, "")
		}
		return nil
	})
}

// Card returns the card of a request as it is now.
func (g *Gate) Card(tx store.Tx, rec approvals.Record) chat.Card { return g.cardOf(tx, rec, "") }

// cardOf returns the card of a request. That of a plan says how its steps went.
func (g *Gate) cardOf(tx store.Tx, rec approvals.Record, notice string) chat.Card {
	if rec.State == approvals.Pending { // people press what they see now
		_, changed := g.Approvers(tx, rec)
		if !strings.Contains(changed, notice) {
			changed = notice + " " + changed
		}
		notice = strings.TrimSpace(changed)
		rec.Require.Needs = slices.Clone(rec.Require.Needs)
		for i, n := range rec.Require.Needs {
			rec.Require.Needs[i].Duty = g.cfg.Policy().Duties(n.Groups)
		}
		if rec.Require.Ticket {
			rec.Ticket = g.cfg.Tickets.TicketOf(tx, string(rec.Thread))
			if why := rec.Ticket.Needed(g.cfg.Now()); why != "" {
				notice = strings.TrimSpace(notice + " " + asSentence(why))
			}
		}
	}
	return faceOf(tx, rec, notice)
}

// Decided is the card of a request that is over.
func Decided(tx store.Tx, rec approvals.Record) chat.Card { return faceOf(tx, rec, "") }

func faceOf(tx store.Tx, rec approvals.Record, notice string) chat.Card {
	c := card.New(rec, notice)
	if len(rec.Action.Steps) > 0 && c.Final {
		card.Progress(&c, rec, approvals.Ledger{}.StepsOf(tx, rec))
	}
	return c
}

// updateCard queues the card's current content. A step of a plan is shown on the plan's card.
func (g *Gate) updateCard(tx store.Tx, rec approvals.Record, notice string) chat.Card {
	if rec.Basis.Step > 0 {
		if plan, ok := g.ledger.Get(tx, rec.Basis.Of); ok {
			rec, notice = plan, ""
		}
	}
	c := g.cardOf(tx, rec, notice)
	key := rec.CardKey()
	p := chat.Post{Key: key, Card: &c, Quiet: rec.State != approvals.Pending}
	if !p.Quiet {
		p.For = g.cfg.Policy().Called(rec.Require.Groups())
	}
	outbox.Put(tx, string(rec.Thread), key, p, g.cfg.Now())
	return c
}

func (g *Gate) audit(tx store.Tx, rec approvals.Record, what string, who chat.UserID, via, note string) {
	a := rec.Action
	e := audit.Event{
		What: what, Approval: string(rec.ID), Call: rec.Call, Digest: rec.Digest.String(), Tool: a.Tool, Kind: string(a.Kind),
		Target: a.Target, Level: rec.Level, Effects: rec.Engine.Effects, Rule: rec.Rule, Policy: rec.Policy, User: string(who),
		Via: via, Note: note, Facts: rec.Facts(),
	}
	if via == "" && rec.Caller.String() != "" && (what == audit.Asked || what == audit.Allowed || what == audit.Forbidden || what == audit.Repeated) {
		e.Via, e.Note = cmp.Or(string(rec.Caller.Way), "token"), strings.TrimSpace(note+" through "+rec.Agent)
	}
	for _, v := range rec.Votes {
		if v.User.ID == who {
			e.Groups = v.Groups
		}
	}
	switch what {
	case audit.Asked, audit.Allowed, audit.Forbidden, audit.BreakGlass:
		e.Command = commandOf(a) // once per request, because redacting is slow
	default:
		sum := sha256.Sum256([]byte(commandOf(a)))
		e.CommandSHA256 = hex.EncodeToString(sum[:])
	}
	if what == audit.Done {
		e.Outcome, e.Note, e.OK = note, "", rec.Outcome.OK
	}
	g.cfg.Audit.Append(tx, string(rec.Thread), e, g.cfg.Now())
}

// commandOf returns the exact text of an action: its bytes, its arguments, or those of its
// steps.
func commandOf(a approvals.Action) string {
	switch {
	case len(a.Steps) > 0:
		var all []string
		for _, s := range a.Steps {
			all = append(all, s.Tool+" "+commandOf(s))
		}
		return strings.Join(all, "\n")
	case len(a.Bytes) > 0:
		return string(a.Bytes)
	}
	return string(a.Args)
}

// deliverDecision puts the request's outcome into the thread's inbox.
func (g *Gate) deliverDecision(tx store.Tx, rec approvals.Record) {
	body, err := json.Marshal(decision{rec.ID, rec.Call, rec.State, string(rec.By.ID), rec.By.Name, rec.Reason})
	if err != nil {
		store.Abort(err)
	}
	queue.Put(tx, queue.Item{
		ID: "decision/" + string(rec.ID), Thread: string(rec.Thread), Kind: approvals.ItemDecision, Body: body, At: g.cfg.Now(),
	})
}

// Consume turns an approval into a permit, once. If it refuses, the sentence says why. An
// approval must also hold under the current configuration: votes of people who may no
// longer approve do not count.
func (g *Gate) Consume(tx store.Tx, id approvals.ID, a approvals.Action) (approvals.Permit, approvals.Record, string) {
	if rec, ok := g.ledger.Get(tx, id); ok && rec.State == approvals.Approved {
		if why := g.outdatedReason(tx, rec); why != "" {
			rec, _ = g.ledger.Invalidate(tx, id, why, g.cfg.Now())
			g.audit(tx, rec, string(rec.State), "", "", why)
			g.updateCard(tx, rec, "")
			return approvals.Permit{}, rec, why
		}
	}
	permit, rec, why := g.ledger.Consume(tx, id, a, g.cfg.Now())
	if rec.ID != "" {
		g.audit(tx, rec, string(rec.State), "", "", why)
		if why != "" {
			g.updateCard(tx, rec, "")
		}
	}
	if why == "" { // its card says already that it runs
		g.beginTrial(tx, rec)
		g.cfg.Used(id, a)
	}
	return permit, rec, why
}

// Finish records the outcome of a permitted run.
func (g *Gate) Finish(tx store.Tx, id approvals.ID, o approvals.Outcome) {
	if rec, ok := g.ledger.Finish(tx, id, o, g.cfg.Now()); ok {
		if o.Unstarted {
			g.EndTrial(tx, id, approvals.NoTrial, chat.User{}, "")
			rec, _ = g.ledger.Get(tx, id)
		}
		if !o.OK {
			g.endPlan(tx, rec)
		}
		g.audit(tx, rec, "done", "", "", o.Note)
		g.updateCard(tx, rec, "")
		if o.OK {
			g.noteUndone(tx, rec)
		}
	}
}

// noteUndone notes on the request that rec took back that it did. What that one itself had taken back is in
// place again, and so on.
func (g *Gate) noteUndone(tx store.Tx, rec approvals.Record) {
	who := rec.Requester
	for id, back := rec.Undoes.ID, false; id != ""; id, back = rec.Undoes.ID, !back {
		by, what, note := who, audit.Undone, ""
		if back {
			by, what, note = chat.User{}, audit.Receipt, "in place again: its undo was undone"
		}
		var ok bool
		if rec, ok = g.ledger.Undone(tx, id, by, g.cfg.Now()); !ok {
			return
		}
		g.audit(tx, rec, what, who.ID, "", note)
		g.updateCard(tx, rec, "")
	}
}

// Lost records that the outcome of a permitted run is unknown.
func (g *Gate) Lost(tx store.Tx, id approvals.ID) {
	if rec, ok := g.ledger.Lost(tx, id, g.cfg.Now()); ok {
		g.endPlan(tx, rec)
		g.audit(tx, rec, "unknown", "", "", "")
		g.updateCard(tx, rec, "")
	}
}

// Unstarted takes the use of an approval back: the bot went away before the run began.
func (g *Gate) Unstarted(tx store.Tx, id approvals.ID) {
	if rec, ok := g.ledger.Unstarted(tx, id); ok {
		g.audit(tx, rec, audit.Unstarted, "", "", "")
	}
}

// endPlan ends the plan of which rec is a step that did not succeed: people approved the
// later steps in the belief that it would.
func (g *Gate) endPlan(tx store.Tx, rec approvals.Record) {
	if rec.Basis.Kind == approvals.ByPlan {
		g.ledger.Drop(tx, rec.Thread)
	}
}

// Cancel withdraws a request that has not started to run.
func (g *Gate) Cancel(tx store.Tx, id approvals.ID, by chat.User, why string) (ok bool) {
	rec, ok := g.ledger.Cancel(tx, id, by, why, g.cfg.Now())
	if ok {
		g.audit(tx, rec, "cancelled", by.ID, "", why)
		g.updateCard(tx, rec, "")
	}
	return ok
}

// Due handles a timer: it expires a request and notifies its thread, escalates one that nobody has
// answered, or says who is on call now. If it is too early, it does nothing.
func (g *Gate) Due(tx store.Tx, id approvals.ID) {
	if rec, ok := g.ledger.Expire(tx, id, g.cfg.Now()); ok {
		g.audit(tx, rec, "expired", "", "", "")
		g.updateCard(tx, rec, "")
		g.deliverDecision(tx, rec)
		return
	}
	before, _ := g.ledger.Get(tx, id)
	_, added := g.ledger.Escalate(tx, id, g.cfg.Now())
	rec, changed := g.ledger.OnDuty(tx, id, g.cfg.Policy().Duties)
	if rec.State != approvals.Pending {
		return
	}
	if len(added)+len(changed) == 0 && rec.Facts() != before.Facts() {
		g.audit(tx, rec, audit.Escalated, "", "", "to nobody else")
	}
	rec, void := g.lapse(tx, rec)
	g.setRelief(tx, rec)
	g.tellWho(tx, rec, added, changed, void)
}

// Relieve looks who is on call for every request that waits, and tells the threads where that has changed. With all,
// it brings every card that waits up to date with the rules.
func (g *Gate) Relieve(ctx context.Context, all bool) error {
	var threads []chat.ThreadID
	err := g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		threads = nil
		for _, r := range g.ledger.AllOpen(tx) {
			duty := len(policy.References(r.Require.Groups())) > 0
			if r.State != approvals.Pending || !duty && !all {
				continue
			}
			if duty {
				g.Due(tx, r.ID)
			} else {
				g.updateCard(tx, r, "")
			}
			threads = append(threads, r.Thread)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range threads {
		g.cfg.Wake(string(t))
	}
	return nil
}

// tellWho says in the request's thread who may decide now: who was added by an escalation, or else who
// went on call; and whose vote doesn't count any more.
func (g *Gate) tellWho(tx store.Tx, rec approvals.Record, added []string, changed []approvals.Duty, void []string) {
	var who []string
	var call []chat.UserID
	what, say, note := audit.Escalated, sayEscalated, "to "
	switch {
	case len(added) > 0:
		who, call = g.cfg.Policy().Who(added), g.cfg.Policy().Called(added)
	case len(changed) > 0:
		what, say, note = audit.Relieved, sayRelieved, "by "
		for _, d := range changed {
			if d.Why != "" {
				say = sayUnknownShift
			}
			who, call = append(who, d.String()), append(call, g.cfg.Policy().Called([]string{d.Group})...)
		}
	case len(void) > 0:
		who, call = rec.Require.Who(), g.cfg.Policy().Called(rec.Require.Groups())
		what, say = audit.Relieved, sayStillNeeded
	default:
		return
	}
	if len(added)+len(changed) > 0 {
		g.audit(tx, rec, what, "", "", note+strings.Join(who, ", "))
	}
	g.updateCard(tx, rec, "")
	text := say(strings.Join(who, ", "), rec.ExpiresAt)
	if len(void) > 0 {
		text = sayVoid(strings.Join(void, ", ")) + " " + text
	}
	outbox.Put(tx, string(rec.Thread), fmt.Sprintf("%s/%s/%d", what, rec.ID, g.cfg.Now().UnixNano()), chat.Post{Text: text, For: call}, g.cfg.Now())
}
