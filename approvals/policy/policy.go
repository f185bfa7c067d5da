// Package policy says what happens to a judged action: it runs, people are
// asked (how many, from which groups, for how long), or it is refused. It is
// pure: configuration and facts go in, a decision comes out. It cannot weaken
// a proof: only an action that the gate found to be harmless can be allowed.
//
// It does not look anybody up and counts no votes.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
)

// Group is a set of people, named by each network's own ids.
type Group struct {
	Slack           []string `yaml:"slack,omitempty" json:"slack,omitempty"`
	SlackUsergroups []string `yaml:"slack_usergroups,omitempty" json:"slack_usergroups,omitempty"`
	Discord         []string `yaml:"discord,omitempty" json:"discord,omitempty"`
	DiscordRoles    []string `yaml:"discord_roles,omitempty" json:"discord_roles,omitempty"`
	Web             []string `yaml:"web,omitempty" json:"web,omitempty"`
}

// Config is the policy section of the configuration file.
type Config struct {
	Approve Approve `yaml:"approve" json:"approve"`
	Rules   []any   `yaml:"rules" json:"rules"`
}

// Approve is what an approval takes.
type Approve struct {
	Count     int           `yaml:"count" json:"count"`
	Expires   time.Duration `yaml:"expires" json:"expires"`
	RunWithin time.Duration `yaml:"run_within" json:"run_within"`
}

// Effective returns the configuration with the defaults that apply where it is
// silent: one vote, 15 minutes to decide, 2 minutes to run.
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
	if c.Rules == nil {
		c.Rules = []any{}
	}
	return c
}

// Mode is how much a thread lets happen by itself.
type Mode string

// The modes that exist so far.
const (
	ReadOnly Mode = "readonly" // anything but a proven read is refused
	Review   Mode = "review"   // everything asks
	Balanced Mode = "balanced" // proven reads run, everything else asks
)

// ParseMode reads a mode; "" is balanced.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return Balanced, nil
	case ReadOnly, Review, Balanced:
		return m, nil
	}
	return "", fmt.Errorf("the mode %q is not known; use readonly, review or balanced", s)
}

// Lane is where an action goes. The zero value forbids.
type Lane int

// The lanes.
const (
	Forbid Lane = iota
	Ask
	Allow
)

// Input is what is known of an action.
type Input struct {
	Mode     Mode
	Harmless bool     // proven to only look, and nobody claims otherwise
	Groups   []string // the target's approvers
}

// Decision is what happens to it.
type Decision struct {
	Lane         Lane
	Rule         string
	Sentence     string // Forbid: why; Ask: a warning, or ""
	Count        int
	Groups       []string
	RequesterMay bool
	Expires      time.Duration
	RunWithin    time.Duration
}

// Policy is a checked configuration. It is immutable.
type Policy struct {
	config Config
	groups map[string]Group
	hash   string
}

// New checks a configuration.
func New(c Config, groups map[string]Group) (*Policy, error) {
	c = c.Effective()
	switch {
	case len(c.Rules) > 0:
		return nil, fmt.Errorf("policy.rules has entries, which this version does not know yet; leave it empty")
	case c.Approve.Count < 1 || c.Approve.Count > 20:
		return nil, fmt.Errorf("policy.approve.count is %d; use 1 to 20", c.Approve.Count)
	case c.Approve.Expires < time.Second || c.Approve.RunWithin < time.Second:
		return nil, fmt.Errorf("policy.approve: expires and run_within must be at least 1s")
	}
	raw, err := json.Marshal(struct {
		Config Config
		Groups map[string]Group
	}{c, groups})
	if err != nil {
		return nil, fmt.Errorf("the policy cannot be hashed: %w", err)
	}
	sum := sha256.Sum256(raw)
	return &Policy{config: c, groups: groups, hash: hex.EncodeToString(sum[:])}, nil
}

// Hash identifies the effective policy.
func (p *Policy) Hash() string { return p.hash }

// Decide says what happens.
func (p *Policy) Decide(in Input) Decision {
	d := Decision{
		Lane: Ask, Rule: "default: " + string(in.Mode), Count: p.config.Approve.Count, Groups: in.Groups,
		RequesterMay: true, Expires: p.config.Approve.Expires, RunWithin: p.config.Approve.RunWithin,
	}
	switch in.Mode {
	case Balanced:
		if in.Harmless {
			d.Lane = Allow
		}
	case ReadOnly:
		d.Lane = Forbid
		d.Sentence = "this thread is in read-only mode, and this is not proven to only read; ask a person to do it, or to change the mode"
		if in.Harmless {
			d.Lane = Allow
		}
	case Review:
	default:
		d.Lane = Forbid
		d.Sentence = fmt.Sprintf("the mode %q is not known, so nothing runs", in.Mode)
	}
	if d.Lane == Ask && len(in.Groups) == 0 {
		d.Sentence = "Nobody can approve here: this target has no approvers. Add a group under its approvers in the configuration."
	}
	return d
}

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
	last := rest[strings.LastIndex(rest, ":")+1:]
	for _, name := range groups {
		g := p.groups[name]
		switch scheme {
		case "web":
			if slices.Contains(g.Web, rest) {
				return true
			}
		case "slack":
			if slices.Contains(g.Slack, last) || overlap(g.SlackUsergroups, network) {
				return true
			}
		case "discord":
			if slices.Contains(g.Discord, last) || overlap(g.DiscordRoles, network) {
				return true
			}
		}
	}
	return false
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
