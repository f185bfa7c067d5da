package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/approvals"
)

// Reference names people by their turn: those whom a schedule has on call at the moment. Where a
// configuration lists groups, it may have a Reference, which its String stands for in this
// package and in stored requests.
type Reference struct {
	Source   string // its name in the section oncall
	Schedule string // the source's id or name of it; "" is the only one
	Policy   string // an escalation policy in place of a schedule
	Level    int    // 1 is asked first; 0 is every level
	// After is, in a step of an escalation, the level at which it began: that of the schedule itself.
	After int
	// Escalate is how long a request waits for one level before the next may decide, too; 0 is forever.
	Escalate time.Duration
}

// maxLevel bounds how far an escalation goes.
const maxLevel = 5

var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]*$`)
	reference = regexp.MustCompile(`^oncall\(([A-Za-z0-9][A-Za-z0-9._@-]*)(?: (policy ))?( ?)("(?:[^"\\]|\\.)*"|[A-Za-z0-9][A-Za-z0-9._@-]*)?(?:, level ([0-9]+)(?: after ([0-9]+))?)?(?:, escalate ([0-9a-z.]+))?\)$`)
)

// String is the name of the group, which ParseReference reads.
func (r Reference) String() string {
	word := func(s string) string {
		if plainWord.MatchString(s) {
			return s
		}
		return strconv.Quote(s)
	}
	s := "oncall(" + r.Source
	switch {
	case r.Policy != "":
		s += " policy " + word(r.Policy)
	case r.Schedule != "":
		s += " " + word(r.Schedule)
	}
	if r.Level > 0 {
		s += fmt.Sprintf(", level %d", r.Level)
	}
	if r.After > 0 {
		s += fmt.Sprintf(" after %d", r.After)
	}
	if r.Escalate > 0 {
		s += ", escalate " + r.Escalate.String()
	}
	return s + ")"
}

// ParseReference reads the name of a group that is a schedule; ok is false for another group.
func ParseReference(name string) (r Reference, ok bool) {
	m := reference.FindStringSubmatch(name)
	if m == nil {
		return r, false
	}
	id := m[4]
	if unquoted, err := strconv.Unquote(id); err == nil {
		id = unquoted
	}
	r.Source = m[1]
	if m[2] != "" {
		r.Policy = id
	} else {
		r.Schedule = id
	}
	r.Level, _ = strconv.Atoi(m[5])
	r.After, _ = strconv.Atoi(m[6])
	r.Escalate, _ = time.ParseDuration(m[7])
	return r, r.String() == name
}

// next is the reference for a later level of an escalation.
func (r Reference) next(level int) Reference {
	if r.After == 0 {
		r.After = r.Level
	}
	r.Level, r.Escalate = level, 0
	return r
}

// Groups are names of groups. In YAML an entry is a name, or a mapping such as
// {oncall: pagerduty, schedule: P123, level: 1}.
type Groups []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (g *Groups) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: write a list of groups, as in [sre]", n.Line)
	}
	*g = Groups{}
	for _, e := range n.Content {
		if e.Kind == yaml.AliasNode {
			e = e.Alias
		}
		if e.Kind != yaml.MappingNode {
			var name string
			if err := e.Decode(&name); err != nil {
				return err
			}
			*g = append(*g, name)
			continue
		}
		r, err := readReference(e)
		if err != nil {
			return fmt.Errorf("line %d: %w", e.Line, err)
		}
		*g = append(*g, r.String())
	}
	return nil
}

func readReference(n *yaml.Node) (r Reference, err error) {
	keys := map[string]any{"oncall": &r.Source, "schedule": &r.Schedule, "escalation_policy": &r.Policy, "level": &r.Level, "escalate": &r.Escalate}
	for i := 0; i+1 < len(n.Content); i += 2 {
		into, ok := keys[n.Content[i].Value]
		if !ok {
			return r, fmt.Errorf("unknown key %q; who is on call takes %s", n.Content[i].Value, strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		}
		if err := n.Content[i+1].Decode(into); err != nil {
			return r, err
		}
	}
	switch {
	case !plainWord.MatchString(r.Source):
		return r, fmt.Errorf("oncall is %q; name one of the sources in the section oncall", r.Source)
	case r.Schedule != "" && r.Policy != "":
		return r, fmt.Errorf("oncall: %s has a schedule and an escalation_policy; leave one out", r.Source)
	case r.Level < 0 || r.Level > maxLevel:
		return r, fmt.Errorf("oncall: %s has level %d; use 1 to %d, or leave it out for all", r.Source, r.Level, maxLevel)
	case r.Escalate != 0 && (r.Escalate < time.Second || r.Level == 0):
		return r, fmt.Errorf("oncall: %s has escalate: %s; it needs a level, and at least 1s", r.Source, r.Escalate)
	}
	return r, nil
}

// OnCall is who is on call for a reference, and who these people are in each network.
type OnCall struct {
	Duty    approvals.Duty
	Members Group
	Levels  int // of the schedule
	// Fresh is how long an answer counts, and Everybody who somebody may be in any schedule.
	Fresh     time.Duration
	Everybody []Group
}

// WithOnCall returns the policy with a way to look up who is on call now. It must be quick and safe for
// concurrent use. A policy without one knows nobody who is on call.
func (p *Policy) WithOnCall(look func(Reference) OnCall) *Policy {
	with := *p
	with.onCall = look
	return &with
}

// lookUp is who is on call for a reference.
func (p *Policy) lookUp(r Reference) OnCall {
	if p.onCall == nil {
		return OnCall{Duty: approvals.Duty{Group: r.String(), Source: r.Source, Schedule: r.Schedule, Level: r.Level, Why: "who is on call is only known to the running bot"}}
	}
	return p.onCall(r)
}

// Duties are who is on call now for those of the groups that are schedules.
func (p *Policy) Duties(groups []string) []approvals.Duty {
	var out []approvals.Duty
	for _, name := range groups {
		if r, ok := ParseReference(name); ok {
			d := p.lookUp(r).Duty
			d.Group = name
			out = append(out, d)
		}
	}
	return out
}

// Holds reports whether what a vote was counted by holds although this process doesn't say so itself,
// because its own answer is older: another replica's was newer. It holds until the shift ends or the answer
// is too old, for people whom the configuration still has.
func (p *Policy) Holds(d approvals.Duty, u chat.User, now time.Time) bool {
	r, ok := ParseReference(d.Group)
	if !ok || d.Why != "" || u.Bot || !d.Until.IsZero() && !now.Before(d.Until) {
		return false
	}
	o := p.lookUp(r)
	scheme, rest, _ := strings.Cut(string(u.ID), ":")
	return o.Duty.Read.Before(d.Read) && now.Sub(d.Read) <= o.Fresh &&
		slices.ContainsFunc(o.Everybody, func(g Group) bool { return g.has(scheme, rest, nil) })
}

// Called are the people who are on call now for those of the groups that are schedules, by their ids.
func (p *Policy) Called(groups []string) (out []chat.UserID) {
	for _, r := range References(groups) {
		o := p.lookUp(r)
		if o.Duty.Why != "" {
			continue
		}
		out = append(out, o.Members.Users()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Who names groups for people: a schedule by who is on call now.
func (p *Policy) Who(groups []string) []string {
	return approvals.Need{Groups: groups, Duty: p.Duties(groups)}.Who()
}

// escalated adds the steps by which those who are on call are followed by the next levels.
func (p *Policy) escalated(req Requirement) Requirement {
	for _, name := range req.Groups {
		r, ok := ParseReference(name)
		if !ok || r.Escalate == 0 {
			continue
		}
		levels := min(p.lookUp(r).Levels, maxLevel)
		for level, after := r.Level+1, r.Escalate; level <= levels; level, after = level+1, after+r.Escalate {
			req.Escalate = append(req.Escalate, Escalation{After: after, Groups: Groups{r.next(level).String()}})
		}
	}
	slices.SortStableFunc(req.Escalate, func(a, b Escalation) int { return int(a.After - b.After) })
	return req
}

// withOthers adds who comes next to a requirement that only the requester could meet, who may not: the
// next level of the schedule, or else the fallback.
func (p *Policy) withOthers(req Requirement, in Input) Requirement {
	scheme, rest, _ := strings.Cut(string(in.Requester.ID), ":")
	for _, r := range References(req.Groups) {
		o := p.lookUp(r)
		if o.Duty.Why != "" || len(o.Duty.People) != 1 || !o.Members.has(scheme, rest, nil) {
			continue
		}
		next := o.Duty.Fallback
		if r.Level > 0 && r.Level < min(o.Levels, maxLevel) {
			next = r.next(r.Level + 1).String()
		}
		if next != "" && !slices.Contains(req.Groups, next) {
			req.Groups = append(slices.Clone(req.Groups), next)
		}
	}
	return req
}

// References are the schedules among groups.
func References(groups []string) (out []Reference) {
	for _, name := range groups {
		if r, ok := ParseReference(name); ok {
			out = append(out, r)
		}
	}
	return out
}

// References are all schedules that the policy names.
func (c Config) References() (out []Reference) {
	lists := [][]string{c.BreakGlass}
	for _, e := range c.Approve.Escalate {
		lists = append(lists, e.Groups)
	}
	for _, r := range c.Rules {
		lists = append(lists, r.Match.Requesters, r.Approve.Groups)
		for _, e := range r.Approve.Escalate {
			lists = append(lists, e.Groups)
		}
	}
	for _, l := range lists {
		out = append(out, References(l)...)
	}
	return out
}
