// Package policy says what happens to a judged action: it runs, people are
// asked (how many, from which groups, for how long), or it is refused. It is
// pure: configuration and facts go in, a decision comes out. Neither the clock
// nor the order of the rules plays a part.
//
// Everything that speaks about an action counts, and the strictest wins. So one
// more rule that asks or forbids never makes anything easier, and only an action
// that the gate found to be harmless, an explicit rule about a tool of at most
// medium risk, learning where it is switched on, or mode trusting can go without
// people. docs/policy.md describes the keys and the order.
//
// It does not look anybody up, counts no votes and reads no files.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
)

// Config is the policy section of the configuration file.
type Config struct {
	Approve Approve `yaml:"approve" json:"approve"`
	// BreakGlass are groups whose members may decide alone, with a reason and a
	// review afterwards.
	BreakGlass Groups `yaml:"break_glass" json:"break_glass"`
	Grant      Grant  `yaml:"grant" json:"grant"`
	Learn      Learn  `yaml:"learn" json:"learn"`
	Rules      []Rule `yaml:"rules" json:"rules"`
	// Constraints bound the calls of single tools, by the tool's name.
	Constraints map[string]Constraint `yaml:"constraints" json:"constraints"`
	// Reads says for all targets which proven reads run unasked; of this and what a target
	// says the stricter one counts. The values are those of package approvals, which checks
	// them.
	Reads string `yaml:"reads,omitempty" json:"reads,omitempty"`
}

// Approve is what every approval takes.
type Approve struct {
	Count     int           `yaml:"count" json:"count"` // distinct people, 1 to 20
	Expires   time.Duration `yaml:"expires" json:"expires"`
	RunWithin time.Duration `yaml:"run_within" json:"run_within"`
	// KeepWithin is how long a change that undoes itself waits for somebody to keep it, 5 s to an hour;
	// off offers no such approval.
	KeepWithin Limit `yaml:"keep_within" json:"keep_within"`
	// Requester says whether who asked may vote: default (not at high and critical),
	// always, never, or solo (always, and whoever approves at high and critical writes the
	// target's name).
	Requester string `yaml:"requester" json:"requester"`
	// Escalate names more groups that may decide, too, after some waiting.
	Escalate []Escalation `yaml:"escalate,omitempty" json:"escalate,omitempty"`
	// Proof is passkey if an approval must be signed by the person's own device, or nothing.
	Proof string `yaml:"proof,omitempty" json:"proof,omitempty"`
	// Require is ticket if a change needs a ticket that is open and approved, or nothing.
	Require string `yaml:"require,omitempty" json:"require,omitempty"`
}

// Grant is about standing grants: the same action again, for a while, without
// asking again.
type Grant struct {
	Max Limit `yaml:"max" json:"max"` // at most an hour; 0 or off: none
}

// Learn is about tools that may run by themselves after people have said yes often
// enough: at least three times, and four times out of five.
type Learn struct {
	Tools []string `yaml:"tools" json:"tools"`
}

// Limit is a longest time. Zero means that nothing is said, Off that there is none;
// a configuration writes 0 or off for that.
type Limit time.Duration

// Off is the Limit that leaves nothing.
const Off Limit = -1

// UnmarshalText reads a duration such as 30m, or 0 or off.
func (l *Limit) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "off" || s == "0" {
		*l = Off
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a longest time; write one like 30m, or off", s)
	}
	*l = Limit(d)
	if d == 0 {
		*l = Off
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (l Limit) MarshalText() ([]byte, error) {
	if l < 0 {
		return []byte("off"), nil
	}
	return []byte(time.Duration(l).String()), nil
}

// Bounds of what a configuration may ask for.
const (
	maxCount = 20
	maxGrant = time.Hour
	minKeep  = 5 * time.Second
	maxKeep  = time.Hour
)

// The words of the key requester.
const (
	requesterDefault = "default"
	requesterAlways  = "always"
	requesterNever   = "never"
	requesterSolo    = "solo"
)

// ProofPasskey is the word of the key proof.
const ProofPasskey = "passkey"

// RequireTicket is the word of the key require.
const RequireTicket = "ticket"

// ValidRequire reports whether the key require may have this value.
func ValidRequire(s string) bool { return s == "" || s == RequireTicket }

// ValidProof reports whether the key proof may have this value.
func ValidProof(s string) bool { return s == "" || s == ProofPasskey }

// Effective returns the configuration with the defaults that apply where it is
// silent: one vote, 15 minutes to decide, 2 minutes to run, 5 minutes to keep, and grants of at
// most an hour.
func (c Config) Effective() Config {
	if c.Approve.Count == 0 {
		c.Approve.Count = 1
	}
	if c.Approve.Expires == 0 {
		c.Approve.Expires = 15 * time.Minute
	}
	if c.Approve.RunWithin == 0 {
		c.Approve.RunWithin = 2 * time.Minute
	}
	if c.Approve.KeepWithin == 0 {
		c.Approve.KeepWithin = Limit(5 * time.Minute)
	}
	if c.Approve.Requester == "" {
		c.Approve.Requester = requesterDefault
	}
	if c.Grant.Max == 0 {
		c.Grant.Max = Limit(maxGrant)
	}
	if c.BreakGlass == nil {
		c.BreakGlass = Groups{}
	}
	if c.Learn.Tools == nil {
		c.Learn.Tools = []string{}
	}
	if c.Rules == nil {
		c.Rules = []Rule{}
	}
	if c.Constraints == nil {
		c.Constraints = map[string]Constraint{}
	}
	return c
}

// Mode is how much a thread lets happen by itself.
type Mode string

// The modes.
const (
	ReadOnly Mode = "readonly" // anything but a proven read is refused
	// Review asks for everything but the tools that can only look by their
	// construction; a proof about a command is not enough, nor is a rule that allows.
	Review   Mode = "review"
	Balanced Mode = "balanced" // proven reads run, everything else asks
	// Trusting lets everything below critical run by itself, until its end time
	// ([Input.Until]; without one it is as Balanced). A command or keystrokes on a
	// production target (label env or environment) still ask, if not proven to read.
	Trusting Mode = "trusting"
)

// ParseMode reads a mode; "" is balanced.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return Balanced, nil
	case ReadOnly, Review, Balanced, Trusting:
		return m, nil
	}
	return "", fmt.Errorf("the mode %q is not known; use readonly, review, balanced or trusting", s)
}

// Facts are what rules can look at.
type Facts struct {
	Channel         string // "slack:C0123456", "discord:123", "web"
	Target          string
	Labels          map[string]string // of the target
	Tool            string
	Kind            string // observe, shell, keys, change
	Command         string // the action's text, or its canonical arguments
	Args            string // the call's arguments as a JSON object, for constraints; "" takes Command for them
	Path            string
	Paths           []string   // in place of Path, where there are several files: a rule is asked about each
	Level           risk.Level // the final one
	Effects         []string
	Requester       chat.User
	RequesterGroups []string          // what the network vouched for
	Caller          map[string]string // the program that asks on their behalf, as approvals.Caller has it; nil is nobody
	Now             time.Time
}

// Input is what is known of an action.
type Input struct {
	Facts
	Mode      Mode
	Until     time.Time // end of mode trusting
	Harmless  bool      // proven to only look, and nobody claims otherwise
	Approvers []string  // the target's groups
	Proof     string    // what the target asks of an approval, as [Approve] has it
	Require   string    // what the target asks of a change, as [Approve] has it
	Interrupt bool      // keys that only interrupt the thread's own running command
	Yes, No   int       // earlier decisions about this tool, for learning
}

// Escalation lets more groups decide after some waiting.
type Escalation struct {
	After  time.Duration `yaml:"after" json:"after"`
	Groups Groups        `yaml:"groups" json:"groups"`
}

// Requirement is a number of distinct people from some groups.
type Requirement struct {
	Rule     string
	Count    int
	Groups   []string
	Escalate []Escalation
}

// Decision is what happens to an action.
type Decision struct {
	Lane           approvals.Lane
	Rule           string
	Matched        []string      // every rule that matched
	Sentence       string        // Forbid: why; Ask: a warning, or ""
	Requirements   []Requirement // every one must be met; one vote can count for several
	RequesterMay   bool
	ReasonRequired bool
	Solo           bool          // one person may approve what they asked for
	Write          string        // what an approval has to write as its reason; "" is nothing
	Proof          string        // passkey if approvals must be signed; "" is nothing
	Ticket         bool          // the change needs a ticket
	BreakGlass     []string      // groups that may decide alone, with a reason and a review
	Grant          time.Duration // longest standing grant that a card may offer; 0 none
	KeepWithin     time.Duration // how long a change that undoes itself waits to be kept; 0 none
	Auto           string        // not empty: runs without a card, and this says by what right
	Expires        time.Duration
	RunWithin      time.Duration
}

// Policy is a checked configuration. It is immutable and safe for concurrent use.
type Policy struct {
	config      Config
	groups      map[string]Group
	rules       []*rule // by name
	constraints map[string]Constraint
	names       []string // of the groups, sorted
	hash        string
	onCall      func(Reference) OnCall // nil: nobody can say
}

// New checks a configuration. classify judges the commands among the rules'
// examples; rules with such examples are refused without it. The error is one
// sentence that names the key.
func New(c Config, groups map[string]Group, classify ...func(string) risk.Verdict) (*Policy, error) {
	c = c.Effective()
	p := &Policy{config: c, groups: groups, constraints: map[string]Constraint{}}
	for name := range groups {
		p.names = append(p.names, name)
	}
	slices.Sort(p.names)
	for _, r := range c.References() { // a rule may ask whether the requester is one of them
		if name := r.String(); !slices.Contains(p.names, name) {
			p.names = append(p.names, name)
		}
	}
	if err := p.general(); err != nil {
		return nil, err
	}
	if err := p.compile(); err != nil {
		return nil, err
	}
	var judge func(string) risk.Verdict
	if len(classify) > 0 {
		judge = classify[0]
	}
	for _, r := range p.rules {
		if err := p.examples(r, judge); err != nil {
			return nil, err
		}
	}
	// The order of the rules means nothing, so it is no part of the policy's identity.
	p.config.Rules = make([]Rule, len(p.rules))
	for i, r := range p.rules {
		p.config.Rules[i] = r.Rule
	}
	raw, err := json.Marshal(struct {
		Config Config
		Groups map[string]Group
	}{p.config, groups})
	if err != nil {
		return nil, fmt.Errorf("the policy cannot be hashed: %w", err)
	}
	sum := sha256.Sum256(raw)
	p.hash = hex.EncodeToString(sum[:])
	return p, nil
}

// general checks what is not a rule.
func (p *Policy) general() error {
	c := p.config
	switch {
	case c.Approve.Count < 1 || c.Approve.Count > maxCount:
		return fmt.Errorf("policy.approve.count is %d; use 1 to %d", c.Approve.Count, maxCount)
	case c.Approve.Expires < time.Second || c.Approve.RunWithin < time.Second:
		return errors.New("policy.approve: expires and run_within must be at least 1s")
	case c.Approve.KeepWithin != Off && (c.Approve.KeepWithin < Limit(minKeep) || c.Approve.KeepWithin > Limit(maxKeep)):
		return fmt.Errorf("policy.approve.keep_within is %s; use %s to %s, or off", time.Duration(c.Approve.KeepWithin), minKeep, maxKeep)
	case !slices.Contains([]string{requesterDefault, requesterAlways, requesterNever, requesterSolo}, c.Approve.Requester):
		return fmt.Errorf("policy.approve.requester is %q; use default, always, never or solo", c.Approve.Requester)
	case !ValidProof(c.Approve.Proof):
		return fmt.Errorf("policy.approve.proof is %q; use passkey, or leave it out", c.Approve.Proof)
	case !ValidRequire(c.Approve.Require):
		return fmt.Errorf("policy.approve.require is %q; use ticket, or leave it out", c.Approve.Require)
	case c.Grant.Max > Limit(maxGrant):
		return fmt.Errorf("policy.grant.max is %s; use at most %s, or off", time.Duration(c.Grant.Max), maxGrant)
	}
	bad := func(key, format string, a ...any) error {
		return fmt.Errorf("policy.%s %s", key, fmt.Sprintf(format, a...))
	}
	if err := known(p.groups, "break_glass", c.BreakGlass, bad); err != nil {
		return err
	}
	if err := escalation(p.groups, c.Approve.Expires, c.Approve.Escalate, bad); err != nil {
		return err
	}
	for _, t := range c.Learn.Tools {
		if t == "" || slices.Contains(always, t) {
			return fmt.Errorf("policy.learn.tools has %q, which cannot be learned; take it out", t)
		}
	}
	for tool, con := range c.Constraints {
		ready, err := con.ready()
		if tool == "" {
			err = errors.New(" has an empty name; name the tool")
		}
		if err != nil {
			return fmt.Errorf("policy.constraints.%s%w", tool, err)
		}
		p.constraints[tool] = ready
	}
	return nil
}

func (p *Policy) compile() error {
	if len(p.config.Rules) == 0 {
		return nil
	}
	conds, err := conditions()
	if err != nil {
		return err
	}
	names := map[string]int{}
	for i, c := range p.config.Rules {
		at := fmt.Sprintf("policy.rules[%d]", i)
		r, err := compile(c, at, p.groups, conds)
		if err != nil {
			return err
		}
		if first, ok := names[c.Name]; ok {
			return fmt.Errorf("%s.name is %q, as is that of policy.rules[%d]; give each rule its own name", at, c.Name, first)
		}
		names[c.Name] = i
		p.rules = append(p.rules, r)
	}
	slices.SortFunc(p.rules, func(a, b *rule) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// Hash identifies the effective policy, whatever the order of its rules.
func (p *Policy) Hash() string { return p.hash }

// Eligible reports whether a person is in one of the groups. network are the
// groups and roles that their network vouched for at this moment. They count for
// nothing with somebody from outside, whose own id must be named. Bots never
// are.
func (p *Policy) Eligible(groups []string, u chat.User, network []string) bool {
	if u.Bot {
		return false
	}
	scheme, rest, ok := strings.Cut(string(u.ID), ":")
	if !ok || rest == "" {
		return false
	}
	if u.Outside {
		network = nil
	}
	return slices.ContainsFunc(groups, func(name string) bool {
		g := p.groups[name]
		if r, ok := ParseReference(name); ok {
			o := p.lookUp(r)
			if g = o.Members; o.Duty.Why != "" {
				g = p.groups[o.Duty.Fallback]
			}
		}
		return g.has(scheme, rest, network)
	})
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
