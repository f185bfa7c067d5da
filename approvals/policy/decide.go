package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
)

// What learning takes.
const (
	learnYes   = 3  // least number of times that people said yes
	learnShare = 80 // percent of all decisions that were a yes, at least
)

// verdict is what the rules say of one action.
type verdict struct {
	matched  []string
	forbid   []*rule
	ask      []*rule
	allow    []*rule
	warnings []string
}

// places are the facts for each of the files, so that a rule about one of them holds
// for an action about several.
func (f Facts) places() []Facts {
	if len(f.Paths) == 0 {
		return []Facts{f}
	}
	out := make([]Facts, len(f.Paths))
	for i, path := range f.Paths {
		out[i] = f
		out[i].Path, out[i].Paths = path, nil
	}
	return out
}

// consult asks every rule, about every file. What forbids or asks about one of them
// counts; what allows has to allow all.
func (p *Policy) consult(f Facts) verdict {
	if len(p.rules) == 0 {
		return verdict{}
	}
	var all verdict
	requester := p.groupsOf(f)
	allowed := true
	for _, f := range f.places() {
		v := p.asked(f, requester)
		all.matched, all.warnings = union(all.matched, v.matched), union(all.warnings, v.warnings)
		all.forbid, all.ask, all.allow = union(all.forbid, v.forbid), union(all.ask, v.ask), union(all.allow, v.allow)
		allowed = allowed && len(v.allow) > 0
	}
	if !allowed {
		all.allow = nil
	}
	return all
}

func union[T comparable](a, b []T) []T {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// asked asks every rule about one file, or none.
func (p *Policy) asked(f Facts, requester []string) verdict {
	var v verdict
	for _, r := range p.rules {
		h, why := r.fit(f, requester)
		if h == miss || (h == unsure && !r.strict()) {
			continue
		}
		v.matched = append(v.matched, r.Name)
		if h == unsure {
			v.warnings = append(v.warnings, fmt.Sprintf("The rule %s could not be evaluated and so counts as matching (%s).", r.Name, why))
		}
		switch r.Then {
		case thenForbid:
			v.forbid = append(v.forbid, r)
		case thenAllow:
			v.allow = append(v.allow, r)
		default:
			v.ask = append(v.ask, r)
		}
	}
	return v
}

// groupsOf names the groups that the requester is in.
func (p *Policy) groupsOf(f Facts) []string {
	in := []string{}
	for _, name := range p.names {
		if p.Eligible([]string{name}, f.Requester, f.RequesterGroups) {
			in = append(in, name)
		}
	}
	return in
}

// Decide says what happens. The order is fixed:
//
//  1. rules that forbid, and mode readonly;
//  2. constraints on the tool;
//  3. rules that ask, which nothing below lifts;
//  4. what needs nobody: proven reads, explicit rules that allow, mode trusting,
//     learning;
//  5. people are asked.
//
// The zero Input is refused.
func (p *Policy) Decide(in Input) Decision {
	if in.Level < risk.Unknown || in.Level > risk.Critical {
		in.Level = risk.Unknown
	}
	v := p.consult(in.Facts)
	d := Decision{Rule: "default: " + string(in.Mode), Matched: v.matched}
	if p.refuses(in, v, &d) {
		return d
	}
	trusting, ended := trusted(in)
	if len(v.ask) == 0 {
		if by, rule, ok := p.alone(in, v, trusting); ok {
			d.Lane, d.Auto = approvals.Allow, by
			if rule != "" {
				d.Rule = rule
			}
			return d
		}
	}
	p.ask(in, v, &d)
	if ended != "" {
		d.Sentence = strings.TrimSpace(d.Sentence + " " + ended)
	}
	return d
}

// refuses fills d and reports true if the action is forbidden.
func (p *Policy) refuses(in Input, v verdict, d *Decision) bool {
	switch in.Mode {
	case ReadOnly, Review, Balanced, Trusting:
	default:
		d.Sentence = fmt.Sprintf("the mode %q is not known, so nothing runs", in.Mode)
		return true
	}
	if len(v.forbid) > 0 {
		d.Rule = v.forbid[0].Name
		var said []string
		for _, r := range v.forbid {
			if r.Sentence != "" {
				said = append(said, r.Sentence)
			}
		}
		if len(said) == 0 {
			said = append(said, "the policy's rule "+d.Rule+" forbids this")
		}
		d.Sentence = strings.Join(append(said, v.warnings...), " ")
		return true
	}
	if in.Mode == ReadOnly && !harmless(in) {
		d.Sentence = "this thread is in read-only mode, and this is not proven to only read; ask a person to do it, or to change the mode"
		return true
	}
	if c, ok := p.constraints[in.Tool]; ok {
		if key, why := c.broken(in.Facts); why != "" {
			d.Rule, d.Sentence = "constraint: "+in.Tool+"."+key, why
			return true
		}
	}
	return false
}

// harmless believes the proof only together with the level.
func harmless(in Input) bool {
	return in.Harmless && in.Level == risk.Read
}

// alone says by what right an action runs without people: "" for a proof, which
// the ledger checks by itself. rule names the rule that allows it, if one does.
func (p *Policy) alone(in Input, v verdict, trusting bool) (by, rule string, ok bool) {
	if in.Mode == Review {
		return "", "", harmless(in) && in.Kind == "observe"
	}
	if harmless(in) {
		return "", "", true
	}
	if in.Mode == ReadOnly {
		return "", "", false
	}
	if cmp.Or(in.Proof, p.config.Approve.Proof, in.Require, p.config.Approve.Require) != "" {
		return "", "", false // nothing but a signature, or people with a ticket, let it run
	}
	if len(v.allow) > 0 && loosenable(in) {
		return "rule " + v.allow[0].Name, v.allow[0].Name, true
	}
	if trusting {
		return "mode trusting until " + approvals.Clock(in.Until, in.Now), "", true
	}
	if p.learned(in) {
		return fmt.Sprintf("learned: %d of %d decisions about %s were a yes", in.Yes, in.Yes+in.No, in.Tool), "learned", true
	}
	return "", "", false
}

// loosenable reports whether a rule or learning may let the action run at all.
func loosenable(in Input) bool {
	if in.Level == risk.Unknown || in.Level > risk.Medium {
		return false
	}
	switch in.Kind {
	case "keys":
		return in.Interrupt && (in.Tool == "send-keys" || !slices.Contains(always, in.Tool))
	case "observe", "change":
		return !slices.Contains(always, in.Tool)
	}
	return false
}

// trusted reports whether mode trusting lets the action run. ended says so where
// the mode is over, or has no end.
func trusted(in Input) (ok bool, ended string) {
	switch {
	case in.Mode != Trusting:
		return false, ""
	case in.Until.IsZero() || in.Now.IsZero():
		return false, "Mode trusting has no end time here, so this is decided as in mode balanced."
	case !in.Now.Before(in.Until):
		return false, "Mode trusting ended at " + approvals.Clock(in.Until, in.Now) + ", so this is decided as in mode balanced."
	case in.Level == risk.Unknown || in.Level >= risk.Critical:
		return false, ""
	case in.Kind != "observe" && in.Kind != "change" && in.Kind != "shell" && in.Kind != "keys":
		return false, ""
	}
	commands := in.Kind == "shell" || in.Kind == "keys" || slices.Contains(always, in.Tool)
	_, production := Environment(in.Labels)
	return !commands || !production, ""
}

// Environment returns the value of a target's label env or environment, and whether it is a
// production environment.
func Environment(labels map[string]string) (env string, production bool) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch strings.ToLower(name) {
		case "env", "environment":
			env = strings.TrimSpace(labels[name])
			if v := strings.ToLower(env); v == "production" || v == "prod" {
				return env, true
			}
		}
	}
	return env, false
}

// learned reports whether people have said yes to this tool often enough. What
// the tool's name does not tell (other rights, foreign code, credentials) is never
// learned.
func (p *Policy) learned(in Input) bool {
	if !slices.Contains(p.config.Learn.Tools, in.Tool) || !loosenable(in) || in.Kind == "keys" || odd(in.Effects) || slices.Contains(in.Effects, string(risk.EffectSecrets)) {
		return false
	}
	if in.Yes < learnYes || in.No < 0 {
		return false
	}
	return float64(in.Yes)*100 >= learnShare*(float64(in.Yes)+float64(in.No))
}

// Suggest reports whether people agree so often to calls like this one that the
// tool might be listed under learn.tools, and is not.
func (p *Policy) Suggest(in Input) bool {
	if slices.Contains(p.config.Learn.Tools, in.Tool) || in.Kind != "change" {
		return false
	}
	would := *p
	would.config.Learn.Tools = []string{in.Tool}
	return would.learned(in)
}

// odd reports effects that a name or a digest says nothing about.
func odd(list []string) bool {
	for _, e := range list {
		if e == string(risk.EffectPrivesc) || e == string(risk.EffectExec) || e == string(risk.EffectUnknown) || !slices.Contains(effects, e) {
			return true
		}
	}
	return false
}

// ask fills in what an approval takes.
func (p *Policy) ask(in Input, v verdict, d *Decision) {
	base := p.config.Approve
	d.Lane = approvals.Ask
	d.Expires, d.RunWithin = base.Expires, base.RunWithin
	d.RequesterMay = requesterMay(base.Requester, in)
	if d.Solo = base.Requester == requesterSolo; d.Solo && grave(in) {
		d.Write, d.ReasonRequired = cmp.Or(in.Target, in.Tool), true
	}
	d.Ticket = cmp.Or(in.Require, base.Require) != ""
	d.BreakGlass, d.Proof = slices.Clone(p.config.BreakGlass), cmp.Or(in.Proof, base.Proof)
	grant := p.config.Grant.Max
	all := []Requirement{p.escalated(Requirement{Rule: "default", Count: base.Count, Groups: slices.Clone(in.Approvers), Escalate: cloned(base.Escalate)})}
	var said []string
	for _, r := range v.ask {
		a := r.Approve
		groups := a.Groups
		if len(groups) == 0 {
			groups = in.Approvers
		}
		req := Requirement{Rule: r.Name, Count: max(a.Count, 1), Groups: slices.Clone(groups)}
		req.Escalate = cloned(a.Escalate)
		all = append(all, p.escalated(req))
		d.RequesterMay = d.RequesterMay && (a.Requester == "" || requesterMay(a.Requester, in))
		d.ReasonRequired, d.Proof = d.ReasonRequired || a.Reason != "", cmp.Or(d.Proof, a.Proof)
		d.Ticket = d.Ticket || a.Require != ""
		d.Expires, d.RunWithin = shorter(d.Expires, a.Expires), shorter(d.RunWithin, a.RunWithin)
		if a.Grant != 0 {
			grant = min(grant, a.Grant)
		}
		if r.Sentence != "" {
			said = append(said, r.Sentence)
		}
	}
	if len(v.ask) > 0 {
		d.Rule = v.ask[0].Name
	}
	if !d.RequesterMay {
		for i, req := range all {
			all[i] = p.withOthers(req, in)
		}
	}
	d.Requirements = distinct(all, true)
	if least := distinct(all, false); in.Mode != Review && grant > 0 && d.Proof == "" && !d.Ticket && grantable(in) && len(least) == 1 && least[0].Count == 1 {
		d.Grant = time.Duration(grant)
	}
	if base.KeepWithin > 0 && d.Proof == "" {
		d.KeepWithin = time.Duration(base.KeepWithin)
	}
	said = append(said, v.warnings...)
	if len(in.Approvers) == 0 {
		said = append(said, "Nobody can approve here: this target has no approvers. Add a group under its approvers in the configuration.")
	}
	d.Sentence = strings.Join(said, " ")
}

func cloned(steps []Escalation) []Escalation {
	var out []Escalation
	for _, e := range steps {
		out = append(out, Escalation{e.After, slices.Clone(e.Groups)})
	}
	return out
}

func requesterMay(word string, in Input) bool {
	switch word {
	case requesterAlways, requesterSolo:
		return true
	case requesterDefault:
		return !grave(in)
	}
	return false
}

// grave reports whether an action is of a level at which two people are asked for by default.
func grave(in Input) bool { return in.Level == risk.Unknown || in.Level >= risk.High }

func shorter(a, b time.Duration) time.Duration {
	if b == 0 {
		return a
	}
	return min(a, b)
}

// grantable reports whether the same action may be granted for a while.
func grantable(in Input) bool {
	return (in.Level == risk.Low || in.Level == risk.Medium) && (in.Kind == "shell" || in.Kind == "change") && !odd(in.Effects)
}

// distinct leaves out every requirement that another one implies. With escalating,
// one that escalates stays: its further groups are told, even where their votes do
// not suffice.
func distinct(all []Requirement, escalating bool) []Requirement {
	var out []Requirement
	for i, r := range all {
		implied := slices.ContainsFunc(all[:i], func(o Requirement) bool { return implies(o, r) }) ||
			slices.ContainsFunc(all[i+1:], func(o Requirement) bool { return implies(o, r) && !implies(r, o) })
		if !implied || (escalating && len(r.Escalate) > 0) {
			out = append(out, r)
		}
	}
	return out
}

// implies reports whether votes that meet a also meet b, at any time: as many
// people, and whoever counts for a counts for b by then.
func implies(a, b Requirement) bool {
	if a.Count < b.Count || !subset(a.Groups, b.Groups) {
		return false
	}
	return !slices.ContainsFunc(a.Escalate, func(e Escalation) bool {
		then := slices.Clone(b.Groups)
		for _, o := range b.Escalate {
			if o.After <= e.After {
				then = append(then, o.Groups...)
			}
		}
		return !subset(e.Groups, then)
	})
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
