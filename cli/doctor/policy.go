package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat/network"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/rules"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/tools/mcp"
)

// policyChecks look at who may decide what. They ask nobody.
func policyChecks(f config.File, now time.Time) []check {
	at := func(name string, r result) check {
		return check{name: name, run: func(context.Context) result { return r }}
	}
	list := []check{at("policy", countChecked(f.Policy))}
	for _, name := range slices.Sorted(maps.Keys(f.Targets)) {
		if r, ok := checkApprovers(f, name, now); ok {
			list = append(list, at("votes on "+name, r))
		}
	}
	for _, r := range f.Policy.Rules {
		if why := whyNever(f, r); why != "" {
			list = append(list, at("rule "+r.Name, warns("it can never match: %s", why).withFix("correct its match, or remove it")))
		}
	}
	for _, name := range unusedGroups(f) {
		list = append(list, at("group "+name, warns("no target and no rule names it, so its people decide nothing").withFix("name it under a "+
			"target's approvers or in a rule, or remove it")))
	}
	if r, ok := checkMode("agent", f.Agent.Mode, f.Agent.Until, now); ok {
		list = append(list, at("mode", r))
	}
	for i, c := range f.Channels {
		if r, ok := checkMode(fmt.Sprintf("channels[%d]", i), c.Mode, c.Until, now); ok {
			list = append(list, at("mode of "+c.Platform+":"+c.ID, r))
		}
	}
	return list
}

// countChecked says what was checked when the policy was loaded: a rule whose example does
// not hold is a mistake in the configuration.
func countChecked(c policy.Config) result {
	examples, bare := 0, 0
	for _, r := range c.Rules {
		n := len(r.Examples.Match) + len(r.Examples.NotMatch)
		examples += n
		if n == 0 {
			bare++
		}
	}
	text := words.Plural(len(c.Rules), "rule")
	if examples > 0 {
		text += ", " + words.Plural(examples, "example") + map[bool]string{true: " holds", false: " hold"}[examples == 1]
	}
	if examples > 0 && bare > 0 {
		text += fmt.Sprintf(" (%s without)", words.Plural(bare, "rule"))
	}
	return fine("%s", text)
}

// memberSet is who is in some groups.
type memberSet struct {
	ids  map[string]bool // of each network, with its name before them
	open bool            // a network's own group or role is among them, of a size that is not known
}

func membersOf(f config.File, groups []string) memberSet {
	c := memberSet{ids: map[string]bool{}}
	for _, name := range groups {
		g := f.Groups[name]
		for _, id := range g.Users() {
			c.ids[string(id)] = true
		}
		c.open = c.open || len(g.Groups) > 0
	}
	return c
}

// checkApprovers says whether there are people enough for what a target asks at high and
// critical, where who asked usually does not vote. Somebody with an id on two networks
// counts twice here: the bot cannot know. ok is false where nobody may approve at all,
// or nothing asks.
func checkApprovers(f config.File, target string, now time.Time) (r result, ok bool) {
	t := f.Targets[target]
	if c := membersOf(f, t.Approvers); len(c.ids) == 0 && !c.open {
		return r, false // another line says so
	}
	rules, err := rules.New(f)
	if err != nil {
		return r, false
	}
	r, ok = fine("there are people enough for high and critical"), false
	for _, level := range []risk.Level{risk.High, risk.Critical} {
		d := rules.Policy.Decide(policy.Input{
			Facts: policy.Facts{
				Channel: "web", Target: target, Labels: t.Labels, Tool: "run_shell", Kind: string(approvals.KindShell), Level: level,
				Effects: []string{string(risk.EffectWrite)}, Requester: chat.User{ID: "web:"}, Now: now,
			},
			Mode: policy.Balanced, Approvers: t.Approvers,
		})
		if d.Lane != approvals.Ask {
			continue
		}
		ok = true
		for _, need := range d.Requirements {
			groups := slices.Clone(need.Groups)
			for _, e := range need.Escalate {
				groups = append(groups, e.Groups...)
			}
			who := membersOf(f, groups)
			switch n := len(who.ids); {
			case who.open:
			case n < need.Count:
				return warns("%s takes %s of %s, where there %s %d, so it can never be approved",
					level, votes(need.Count), list(groups), map[bool]string{true: "is", false: "are"}[n == 1], n).
					withFix("add people to the group, or ask for fewer"), true
			case !d.RequesterMay && n-1 < need.Count && len(d.BreakGlass) == 0:
				return warns("%s takes %s of %s, where there %s %d, and who asked does not count: what one of them asks for, nobody can approve",
					level, votes(need.Count), list(groups), map[bool]string{true: "is", false: "are"}[n == 1], n).
					withFix("add somebody to the group, or set policy.approve.requester: solo"), true
			}
		}
	}
	return r, ok
}

func votes(n int) string {
	if n == 1 {
		return "the vote of one person"
	}
	return fmt.Sprintf("votes of %d people", n)
}

// whyNever says why a rule cannot match anything, as far as the configuration tells; ""
// when it may.
func whyNever(f config.File, r policy.Rule) string {
	m := r.Match
	if len(m.Channels) > 0 && !slices.ContainsFunc(m.Channels, func(pattern string) bool { return mayBeChannel(f, pattern) }) {
		return fmt.Sprintf("no channel is named like %s; they are like %s", list(m.Channels), network.Or(f.Networks(), network.Network.Place))
	}
	if len(m.Requesters) > 0 {
		if c := membersOf(f, m.Requesters); len(c.ids) == 0 && !c.open {
			return fmt.Sprintf("the groups %s are empty", list(m.Requesters))
		}
	}
	if len(m.Targets)+len(m.Labels) == 0 {
		return ""
	}
	fits := matcher(f.Groups, policy.Match{Targets: m.Targets, Labels: m.Labels})
	places := map[string]map[string]string{config.Harness: nil}
	for server := range f.MCP {
		places[mcp.Target(server)] = nil
	}
	for target, t := range f.Targets {
		places[target] = t.Labels
	}
	for target, labels := range places {
		if fits(policy.Facts{Target: target, Labels: labels}) {
			return ""
		}
	}
	switch {
	case len(m.Labels) == 0:
		return fmt.Sprintf("no target is named like %s", list(m.Targets))
	case len(m.Targets) == 0:
		return fmt.Sprintf("no target has the labels %s", labelsText(m.Labels))
	}
	return fmt.Sprintf("no target is named like %s and has the labels %s", list(m.Targets), labelsText(m.Labels))
}

// matcher asks the policy itself what a match fits. One that cannot be asked fits all.
func matcher(groups map[string]policy.Group, m policy.Match) func(policy.Facts) bool {
	const name = "probe"
	p, err := policy.New(policy.Config{Rules: []policy.Rule{{Name: name, Match: m, Then: "forbid", Sentence: "It is a question."}}}, groups)
	return func(f policy.Facts) bool {
		if err != nil {
			return true
		}
		f.Level = risk.Low
		return slices.Contains(p.Decide(policy.Input{Facts: f, Mode: policy.Balanced}).Matched, name)
	}
}

func labelsText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return list(out)
}

// mayBeChannel reports whether some channel fits a pattern.
func mayBeChannel(f config.File, pattern string) bool {
	begins, _, glob := strings.Cut(pattern, "*")
	return slices.ContainsFunc(f.Networks(), func(n network.Network) bool {
		whole := strings.TrimSuffix(n.Place(), "ID")
		if !glob {
			return pattern == whole || n.Platform() != "" && strings.HasPrefix(pattern, whole)
		}
		return strings.HasPrefix(whole, begins) || n.Platform() != "" && strings.HasPrefix(begins, whole)
	})
}

// unusedGroups are the groups that decide nothing. One that has people of the console only
// lets them log in, which is a use.
func unusedGroups(f config.File) []string {
	used := map[string]bool{}
	mark := func(lists ...[]string) {
		for _, l := range lists {
			for _, name := range l {
				used[name] = true
			}
		}
	}
	for _, t := range f.Targets {
		mark(t.Approvers, t.Users, t.Moderators)
	}
	mark(f.Policy.BreakGlass)
	for _, e := range f.Policy.Approve.Escalate {
		mark(e.Groups)
	}
	for _, r := range f.Policy.Rules {
		mark(r.Match.Requesters, r.Approve.Groups)
		for _, e := range r.Approve.Escalate {
			mark(e.Groups)
		}
		for name := range f.Groups {
			if strings.Contains(r.When, name) {
				used[name] = true // the condition may be about it
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.Groups)) {
		g := f.Groups[name]
		if !used[name] && slices.ContainsFunc(g.Schemes(), func(s string) bool { return s != network.Web }) {
			out = append(out, name)
		}
	}
	return out
}

// checkMode says until when a mode lets things run unasked; ok is false for other modes.
func checkMode(at, mode string, until, now time.Time) (r result, ok bool) {
	if policy.Mode(mode) != policy.Trusting {
		return r, false
	}
	if left := until.Sub(now); left > 0 {
		return warns("%s is trusting for another %s, until %s: everything below critical runs unasked", at,
			words.Brief(left.Truncate(time.Minute)+time.Minute), until.Format(time.RFC3339)).
			withFix("write mode: balanced to end that now"), true
	}
	return warns("%s was trusting until %s and is balanced now", at, until.Format(time.RFC3339)).withFix("write mode: balanced"), true
}

// approversOf says whether anybody can approve on a target, and from where.
func approversOf(e config.Env, f config.File, target string) result {
	t := f.Targets[target]
	var all policy.Group
	for _, name := range t.Approvers {
		g := f.Groups[name]
		if _, ok := policy.ParseReference(name); ok {
			for _, p := range f.People {
				all.Add(policy.Group{People: p.People})
			}
		}
		all.Add(g)
	}
	groups := strings.Join(t.Approvers, ", ")
	switch {
	case len(t.Approvers) == 0:
		return warns("nobody can approve on this target, so nothing but proven reads runs there").withFix("name a group under targets.%s.approvers", target)
	case len(all.Schemes()) == 0:
		return warns("nobody can approve on this target, because its groups (%s) are empty", groups).withFix("add people to them")
	}
	for _, n := range f.Networks() {
		if e.Opens(n) && !all.On(n.Scheme) {
			return warns("nobody can approve from %s: the groups %s name no %s or %s", n.Title, groups, n.Scheme, n.GroupsKey()).withFix("add ids of %s to them", n.Title)
		}
	}
	return fine("%s", groups)
}
