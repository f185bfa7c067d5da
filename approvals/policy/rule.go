package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"countersign/approvals/risk"
	cel "countersign/internal/condition"
)

// Effect of a rule, its key `then`.
const (
	thenAllow  = "allow"
	thenAsk    = "ask"
	thenForbid = "forbid"
)

// Rule is one entry of policy.rules. Their order means nothing: all that match
// count, and the strictest wins.
type Rule struct {
	// Name is shown on cards and in the audit: letters, digits, - and _, at most 48.
	Name  string `yaml:"name" json:"name"`
	Match Match  `yaml:"match,omitempty" json:"match,omitzero"`
	// When is a CEL expression over the same facts that must hold as well. If it
	// cannot be evaluated, a rule that asks or forbids matches, and one that allows
	// does not.
	When string `yaml:"when,omitempty" json:"when,omitempty"`
	// Then is allow, ask or forbid.
	Then string `yaml:"then" json:"then"`
	// Sentence is shown on the card, or as the refusal; one line, at most 300 bytes.
	Sentence string   `yaml:"sentence,omitempty" json:"sentence,omitempty"`
	Approve  Demand   `yaml:"approve,omitempty" json:"approve,omitzero"`
	Examples Examples `yaml:"examples,omitempty" json:"examples,omitzero"`
}

// Match is what an action must have for a rule to hold: every key that is given,
// and in a list one of its entries. Names of channels, targets, tools and label
// values are globs.
type Match struct {
	Channels []string          `yaml:"channels,omitempty" json:"channels,omitempty"`
	Targets  []string          `yaml:"targets,omitempty" json:"targets,omitempty"`
	Labels   map[string]string `yaml:"labels,omitempty" json:"labels,omitempty"`
	Tools    []string          `yaml:"tools,omitempty" json:"tools,omitempty"`
	Kinds    []string          `yaml:"kinds,omitempty" json:"kinds,omitempty"`
	Risk     string            `yaml:"risk,omitempty" json:"risk,omitempty"`
	Effects  []string          `yaml:"effects,omitempty" json:"effects,omitempty"`
	// Requesters are groups that the person who asked must be in.
	Requesters Groups `yaml:"requesters,omitempty" json:"requesters,omitempty"`
	// Hours are like "Mon-Fri 09:00-17:00, Sat 10:00-12:00"; "not " before them turns
	// them round.
	Hours string `yaml:"hours,omitempty" json:"hours,omitempty"`
	Zone  string `yaml:"zone,omitempty" json:"zone,omitempty"`
}

// Demand is what a rule asks for beyond the rest of the policy. It comes on top of
// what everybody else asks for: the shortest time holds, and every count must be met.
type Demand struct {
	Count int `yaml:"count,omitempty" json:"count,omitempty"`
	// Groups are the only ones whose members count here; without them, the target's
	// approvers.
	Groups Groups `yaml:"groups,omitempty" json:"groups,omitempty"`
	// Requester is never, or default: not at high and critical.
	Requester string `yaml:"requester,omitempty" json:"requester,omitempty"`
	// Reason is required or nothing.
	Reason    string        `yaml:"reason,omitempty" json:"reason,omitempty"`
	Expires   time.Duration `yaml:"expires,omitempty" json:"expires,omitempty"`
	RunWithin time.Duration `yaml:"run_within,omitempty" json:"run_within,omitempty"`
	// Escalate names more groups whose members count here after some waiting.
	Escalate []Escalation `yaml:"escalate,omitempty" json:"escalate,omitempty"`
	// Grant bounds the standing grant that a card may offer; off forbids it.
	Grant Limit `yaml:"grant,omitempty" json:"grant,omitempty"`
	// Proof is passkey if approvals must be signed by people's own devices, or nothing.
	Proof string `yaml:"proof,omitempty" json:"proof,omitempty"`
	// Require is ticket if a change needs a ticket that is open and approved, or nothing.
	Require string `yaml:"require,omitempty" json:"require,omitempty"`
}

func (d Demand) empty() bool {
	return d.Count == 0 && len(d.Groups) == 0 && d.Requester == "" && d.Reason == "" && d.Expires == 0 && d.RunWithin == 0 && len(d.Escalate) == 0 && d.Grant == 0 && d.Proof == "" && d.Require == ""
}

func (m Match) empty() bool {
	return len(m.Channels)+len(m.Targets)+len(m.Labels)+len(m.Tools)+len(m.Kinds)+len(m.Effects)+len(m.Requesters) == 0 && m.Risk == "" && m.Hours == ""
}

// The words that keys take.
var (
	ruleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$`)
	kinds    = []string{"observe", "shell", "keys", "change"}
	effects  = effectNames()
	// always are the tools whose calls nothing but people, or mode trusting, can let
	// run: what they do is in their text, not in their name.
	always = []string{"run_shell", "bash", "send-keys", "execute_code", "delete_file", "run_bash_background", "interrupt_background_process", "trust_mcp_tool", "trust_host_key", "extend_budget"}
)

func effectNames() (out []string) {
	for _, e := range risk.Effects() {
		out = append(out, string(e))
	}
	return out
}

// rule is a checked Rule.
type rule struct {
	Rule
	at    string // policy.rules[i] (name), for sentences
	risk  func(risk.Level) bool
	hours *hours
	when  *cel.Condition
}

func (r *rule) strict() bool { return r.Then != thenAllow }

// compile checks a rule; its error is a sentence that names the rule and the key.
func compile(c Rule, at string, groups map[string]Group, conds *cel.Language) (*rule, error) {
	r := &rule{Rule: c, at: at}
	bad := func(key, format string, a ...any) error {
		return fmt.Errorf("%s.%s %s", at, key, fmt.Sprintf(format, a...))
	}
	if !ruleName.MatchString(c.Name) {
		return nil, bad("name", "is %q; use 1 to 48 letters, digits, - and _", c.Name)
	}
	r.at = fmt.Sprintf("%s (%s)", at, c.Name)
	at = r.at
	if !slices.Contains([]string{thenAllow, thenAsk, thenForbid}, c.Then) {
		return nil, bad("then", "is %q; use allow, ask or forbid", c.Then)
	}
	if len(c.Sentence) > 300 || strings.ContainsFunc(c.Sentence, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, bad("sentence", "must be one line of at most 300 bytes that can be printed")
	}
	if err := r.match(groups, bad); err != nil {
		return nil, err
	}
	if c.When != "" {
		when, err := conds.Compile(c.When)
		if err != nil {
			return nil, bad("when", "is not a usable condition: %v; see bot docs policy-conditions for the names that it may use", err)
		}
		r.when = when
	}
	if c.Then == thenAllow {
		if err := r.loosens(bad); err != nil {
			return nil, err
		}
	}
	if c.Then != thenAsk && !c.Approve.empty() {
		return nil, bad("approve", "needs then: ask, and this rule says %s; take it out", c.Then)
	}
	return r, r.demand(groups, bad)
}

type complaint func(key, format string, a ...any) error

func (r *rule) match(groups map[string]Group, bad complaint) error {
	m := r.Match
	for key, list := range map[string][]string{"channels": m.Channels, "targets": m.Targets, "tools": m.Tools} {
		if slices.Contains(list, "") {
			return bad("match."+key, "has an empty entry; take it out, or use \"*\"")
		}
	}
	for _, k := range m.Kinds {
		if !slices.Contains(kinds, k) {
			return bad("match.kinds", "has %q; use %s", k, strings.Join(kinds, ", "))
		}
	}
	for _, e := range m.Effects {
		if !slices.Contains(effects, e) {
			return bad("match.effects", "has %q; use %s", e, strings.Join(effects, ", "))
		}
	}
	if err := known(groups, "match.requesters", m.Requesters, bad); err != nil {
		return err
	}
	if m.Risk != "" {
		var ok bool
		if r.risk, ok = parseRisk(m.Risk); !ok {
			return bad("match.risk", "is %q; use a level (read, low, medium, high, critical), alone or after >=, >, <=, < or ==", m.Risk)
		}
	}
	if m.Hours == "" {
		if m.Zone != "" {
			return bad("match.zone", "has no effect without hours; add them or take it out")
		}
		return nil
	}
	h, err := parseHours(m.Hours, m.Zone)
	if err != nil {
		return bad("match.hours", "and zone cannot be used: %v", err)
	}
	r.hours = h
	return nil
}

// loosens refuses rules that look as if they allowed something and never would.
func (r *rule) loosens(bad complaint) error {
	m := r.Match
	if m.empty() && r.When == "" {
		return bad("match", "is empty, and a rule that allows must say what; name the tools")
	}
	for _, t := range m.Tools {
		if slices.Contains(always, t) && t != "send-keys" {
			return bad("match.tools", "has %s, which no rule can allow; take it out", t)
		}
	}
	if slices.Contains(m.Kinds, "shell") {
		return bad("match.kinds", "has shell, which no rule can allow; take it out")
	}
	if r.risk != nil && !slices.ContainsFunc([]risk.Level{risk.Read, risk.Low, risk.Medium}, r.risk) {
		return bad("match.risk", "is %q, and no rule can allow what is high or critical; use <= medium", m.Risk)
	}
	return nil
}

func (r *rule) demand(groups map[string]Group, bad complaint) error {
	d := r.Approve
	switch {
	case d.Count < 0 || d.Count > maxCount:
		return bad("approve.count", "is %d; use 1 to %d", d.Count, maxCount)
	case !ValidProof(d.Proof):
		return bad("approve.proof", "is %q; use passkey, or leave it out", d.Proof)
	case !ValidRequire(d.Require):
		return bad("approve.require", "is %q; use ticket, or leave it out", d.Require)
	case d.Requester == "always":
		return bad("approve.requester", "is always, and a rule can only be stricter than policy.approve.requester; use default or never")
	case d.Requester != "" && d.Requester != requesterDefault && d.Requester != requesterNever:
		return bad("approve.requester", "is %q; use default or never", d.Requester)
	case d.Reason != "" && d.Reason != "required":
		return bad("approve.reason", "is %q; use required, or leave it out", d.Reason)
	case d.Expires != 0 && d.Expires < time.Second:
		return bad("approve.expires", "is %s; use at least 1s", d.Expires)
	case d.RunWithin != 0 && d.RunWithin < time.Second:
		return bad("approve.run_within", "is %s; use at least 1s", d.RunWithin)
	case d.Grant > Limit(maxGrant):
		return bad("approve.grant", "is %s; use at most %s, or off", time.Duration(d.Grant), maxGrant)
	case len(d.Escalate) > 0 && len(d.Groups) == 0:
		return bad("approve.escalate", "has no effect without approve.groups; name the groups that are asked first")
	}
	if err := known(groups, "approve.groups", d.Groups, bad); err != nil {
		return err
	}
	return escalation(groups, d.Expires, d.Escalate, bad)
}

// escalation checks the steps of an escalation; expires is when the card ends, 0
// where that is not known here.
func escalation(groups map[string]Group, expires time.Duration, steps []Escalation, bad complaint) error {
	for i, e := range steps {
		key := fmt.Sprintf("approve.escalate[%d]", i)
		switch {
		case e.After < time.Second:
			return bad(key+".after", "is %s; use at least 1s", e.After)
		case expires != 0 && e.After >= expires:
			return bad(key+".after", "is %s, when the card has expired (%s); use a shorter time", e.After, expires)
		case len(e.Groups) == 0:
			return bad(key+".groups", "is empty; name who may decide then")
		}
		if err := known(groups, key+".groups", e.Groups, bad); err != nil {
			return err
		}
	}
	return nil
}

func known(groups map[string]Group, key string, names []string, bad complaint) error {
	for _, g := range names {
		if _, ok := ParseReference(g); ok {
			continue // the configuration checks its source
		}
		if _, ok := groups[g]; !ok {
			return bad(key, "has %q, which is not one of the groups; add it under groups or correct the name", g)
		}
	}
	return nil
}

// parseRisk reads a level, alone or after a comparison. An unknown level compares
// as critical.
func parseRisk(s string) (func(risk.Level) bool, bool) {
	for _, op := range []struct {
		sign string
		ok   func(int) bool
	}{
		{">=", func(c int) bool { return c >= 0 }}, {"<=", func(c int) bool { return c <= 0 }}, {"==", func(c int) bool { return c == 0 }},
		{">", func(c int) bool { return c > 0 }}, {"<", func(c int) bool { return c < 0 }}, {"", func(c int) bool { return c == 0 }},
	} {
		name, ok := strings.CutPrefix(strings.TrimSpace(s), op.sign)
		if !ok {
			continue
		}
		l := risk.ParseLevel(strings.TrimSpace(name))
		if l == risk.Unknown {
			return nil, false
		}
		return func(got risk.Level) bool { return op.ok(cmp.Compare(rank(got), rank(l))) }, true
	}
	return nil, false
}

// hit is how a rule fits an action.
type hit int

const (
	miss   hit = iota
	fits       // it matches
	unsure     // everything that could be told matches
)

// fit tells whether the rule's match and condition hold. why is CEL's message
// where the condition could not be evaluated.
func (r *rule) fit(f Facts, requester []string) (h hit, why string) {
	m := r.Match
	name, _, _ := strings.Cut(f.Target, "#") // what follows proves which machine it is
	in := func(list []string, s string) bool { return len(list) == 0 || globAny(list, s) }
	switch {
	case !in(m.Channels, f.Channel), !in(m.Targets, f.Target) && !in(m.Targets, name), !in(m.Tools, f.Tool):
		return miss, ""
	case len(m.Kinds) > 0 && !slices.Contains(m.Kinds, f.Kind):
		return miss, ""
	case len(m.Effects) > 0 && !overlap(m.Effects, f.Effects):
		return miss, ""
	case len(m.Requesters) > 0 && !overlap(m.Requesters, requester):
		return miss, ""
	case r.risk != nil && !r.risk(f.Level):
		return miss, ""
	}
	for name, want := range m.Labels {
		if got, ok := f.Labels[name]; !ok || !glob(want, got) {
			return miss, ""
		}
	}
	h = fits
	if r.hours != nil {
		switch {
		case f.Now.IsZero():
			h, why = unsure, "the time is not known"
		case !r.hours.contains(f.Now):
			return miss, ""
		}
	}
	if r.when == nil {
		return h, why
	}
	holds, err := f.holds(r.when, requester)
	switch {
	case err != nil:
		return unsure, err.Error()
	case !holds:
		return miss, ""
	}
	return h, why
}
