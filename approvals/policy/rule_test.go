package policy

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
)

func TestMatch(t *testing.T) {
	type change = func(*Input)
	saturday := monday.Add(5 * 24 * time.Hour)
	for _, tc := range []struct {
		rule, match string
		in          change
		want        bool
	}{
		{"nothing given fits all", "{}", nil, true},
		{"a channel", "{channels: [web, 'slack:C1']}", nil, true},
		{"another channel", "{channels: ['slack:C2']}", nil, false},
		{"a glob of channels", "{channels: ['slack:*']}", nil, true},
		{"a glob fits the whole name", "{channels: ['slack']}", nil, false},
		{"a target", "{targets: [local]}", nil, true},
		{"a target with its identity", "{targets: [local]}", func(in *Input) { in.Target = "local#5f3a" }, true},
		{"another target", "{targets: [db]}", nil, false},
		{"a label", "{labels: {env: staging}}", func(in *Input) { in.Labels = map[string]string{"env": "staging", "x": "y"} }, true},
		{"two labels, one differs", "{labels: {env: staging, x: z}}", func(in *Input) { in.Labels = map[string]string{"env": "staging", "x": "y"} }, false},
		{"a label that is not there", "{labels: {env: '*'}}", nil, false},
		{"a tool", "{tools: [edit, run_shell]}", nil, true},
		{"another tool", "{tools: [edit]}", nil, false},
		{"a kind", "{kinds: [shell]}", nil, true},
		{"another kind", "{kinds: [keys]}", nil, false},
		{"a risk from", "{risk: '>= medium'}", nil, true},
		{"a risk above", "{risk: '> medium'}", nil, false},
		{"a risk up to", "{risk: '<=medium'}", nil, true},
		{"a risk below", "{risk: '< medium'}", nil, false},
		{"a risk exactly", "{risk: medium}", nil, true},
		{"a risk exactly, another", "{risk: '== high'}", nil, false},
		{"an unknown risk is as high as can be", "{risk: '>= critical'}", func(in *Input) { in.Level = risk.Unknown }, true},
		{"an unknown risk is not low", "{risk: '<= high'}", func(in *Input) { in.Level = risk.Unknown }, false},
		{"one of the effects", "{effects: [delete, service]}", nil, true},
		{"none of the effects", "{effects: [delete]}", nil, false},
		{"a requester by name", "{requesters: [oncall]}", nil, true},
		{"a requester of another group", "{requesters: [sre]}", nil, false},
		{"a requester by the network's group", "{requesters: [lead]}", func(in *Input) {
			in.Requester, in.RequesterGroups = chat.User{ID: "slack:T1:U9"}, []string{"S1"}
		}, true},
		{"in the hours", "{hours: 'Mon-Fri 09:00-17:00'}", nil, true},
		{"in the hours of another zone", "{hours: '09:00-10:30', zone: Europe/Berlin}", nil, false},
		{"not in the hours", "{hours: 'Mon-Fri 09:00-17:00'}", func(in *Input) { in.Now = saturday }, false},
		{"outside the hours", "{hours: 'not Mon-Fri 09:00-17:00'}", func(in *Input) { in.Now = saturday }, true},
		{"an unknown time fits a strict rule", "{hours: 'Mon-Fri 09:00-17:00'}", func(in *Input) { in.Now = time.Time{} }, true},
		{"every key must fit", "{tools: [run_shell], channels: [web]}", nil, false},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			p := must(t, "rules: [{name: x, then: forbid, match: "+tc.match+"}]")
			if d := p.Decide(restart(tc.in)); (d.Lane == approvals.Forbid) != tc.want {
				t.Fatalf("%+v", d)
			}
		})
	}
}

func TestWhen(t *testing.T) {
	for _, tc := range []struct {
		rule, when string
		in         func(*Input)
		want       bool
	}{
		{"effects and channel", `effects.exists(e, e == "service") && channel == "slack:C1"`, nil, true},
		{"levels by name", `level >= MEDIUM && level < HIGH && risk == "medium"`, nil, true},
		{"an unknown level compares as critical", `level == CRITICAL && risk == "unknown"`, func(in *Input) { in.Level = risk.Unknown }, true},
		{"critical is called critical", `risk == "critical" && level == CRITICAL`, func(in *Input) { in.Level = risk.Critical }, true},
		{"a command", `command.matches("^systemctl +restart ")`, nil, true},
		{"target, tool, kind, path", `target == "local" && tool == "run_shell" && kind == "shell" && path == ""`, nil, true},
		{"the requester", `requester == "web:alice" && "oncall" in requester_groups && !("sre" in requester_groups) && !bot && !outside`, nil, true},
		{"the clock, in a zone", `now.getHours("Europe/Berlin") == 11 && now.getDayOfWeek() == 1`, nil, true},
		{"a label that may be missing", `has(labels.env) && labels.env == "production"`, nil, false},
		{"no labels, no effects", `labels.size() == 0 && effects.size() == 0`, func(in *Input) { in.Effects = nil }, true},
		{"text that is no UTF-8", `command != ""`, func(in *Input) { in.Command = "\xff" }, true},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			p := must(t, "rules: [{name: x, then: forbid, when: "+strconv.Quote(tc.when)+"}]")
			if d := p.Decide(restart(tc.in)); (d.Lane == approvals.Forbid) != tc.want || strings.Contains(d.Sentence, "evaluated") {
				t.Fatalf("%+v", d)
			}
		})
	}
	const broken = `labels["env"] == "production"`
	t.Run("an error matches when the rule is strict, and says so", func(t *testing.T) {
		for then, lane := range map[string]approvals.Lane{"ask": approvals.Ask, "forbid": approvals.Forbid} {
			p := must(t, "rules: [{name: x, then: "+then+", when: '"+broken+"'}]")
			d := p.Decide(restart(func(in *Input) { in.Level, in.Harmless = risk.Read, true }))
			if d.Lane != lane || !strings.Contains(d.Sentence, "The rule x could not be evaluated") {
				t.Fatalf("%+v", d)
			}
		}
	})
	t.Run("an error does not match when the rule allows", func(t *testing.T) {
		p := must(t, "rules: [{name: x, then: allow, match: {tools: [write_file]}, when: '"+broken+"'}]")
		if d := p.Decide(note(nil)); d.Lane != approvals.Ask || len(d.Matched) > 0 {
			t.Fatalf("%+v", d)
		}
	})
	t.Run("an unknown time does not match when the rule allows", func(t *testing.T) {
		p := must(t, "rules: [{name: x, then: allow, match: {tools: [write_file], hours: '00:00-24:00'}}]")
		if d := p.Decide(note(func(in *Input) { in.Now = time.Time{} })); d.Lane != approvals.Ask {
			t.Fatalf("%+v", d)
		}
		if d := p.Decide(note(nil)); d.Lane != approvals.Allow {
			t.Fatalf("%+v", d)
		}
	})
	t.Run("a dear condition is cut off, and counts as an error", func(t *testing.T) {
		const dear = `effects.exists(a, effects.exists(b, effects.exists(c, a + b + c == "never")))`
		in := restart(func(in *Input) { in.Effects = slices.Repeat([]string{"write"}, 1000) })
		start := time.Now()
		if d := must(t, "rules: [{name: x, then: forbid, when: '"+dear+"'}]").Decide(in); d.Lane != approvals.Forbid || !strings.Contains(d.Sentence, "cost") {
			t.Fatalf("%+v", d)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("it took %s", took)
		}
		in = note(func(in *Input) { in.Effects = slices.Repeat([]string{"write"}, 1000) })
		if d := must(t, "rules: [{name: x, then: allow, when: '"+dear+"'}]").Decide(in); d.Lane != approvals.Ask {
			t.Fatalf("%+v", d)
		}
	})
	t.Run("a long command can be looked at", func(t *testing.T) {
		in := restart(func(in *Input) { in.Command = strings.Repeat("systemctl restart a; ", 3000) })
		if d := must(t, `rules: [{name: x, then: forbid, when: 'command.contains("mkfs")'}]`).Decide(in); d.Lane != approvals.Ask {
			t.Fatalf("%+v", d)
		}
	})
}

func TestHours(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tc := range []struct {
		rule, hours, zone, at string
		want                  bool
	}{
		{"the first minute is in", "Mon-Fri 09:00-17:00", "", "2024-01-01T09:00:00Z", true},
		{"the last is not", "Mon-Fri 09:00-17:00", "", "2024-01-01T17:00:00Z", false},
		{"one day", "Tue 09:00-17:00", "", "2024-01-02T12:00:00Z", true},
		{"Sunday", "Sun 09:00-17:00", "", "2024-01-07T12:00:00Z", true},
		{"from Sunday", "Sun-Mon 09:00-17:00", "", "2024-01-08T12:00:00Z", true},
		{"to Sunday", "Sat-Sun 09:00-17:00", "", "2024-01-07T12:00:00Z", true},
		{"half hours, before", "09:30-10:30", "", "2024-01-01T09:29:59Z", false},
		{"half hours, at the beginning", "09:30-10:30", "", "2024-01-01T09:30:00Z", true},
		{"half hours, to the end", "09:30-10:30", "", "2024-01-01T10:29:59Z", true},
		{"half hours, after", "09:30-10:30", "", "2024-01-01T10:30:00Z", false},
		{"the last minute of an hour", "09:00-09:59", "", "2024-01-01T09:58:00Z", true},
		{"days in small letters", "tue 09:00-17:00", "", "2024-01-02T12:00:00Z", true},
		{"days over the weekend", "Sat-Mon 09:00-17:00", "", "2024-01-01T12:00:00Z", true},
		{"days over the weekend, outside", "Sat-Mon 09:00-17:00", "", "2024-01-02T12:00:00Z", false},
		{"the whole day", "Mon 00:00-24:00", "", "2024-01-01T23:59:59Z", true},
		{"several", "Mon 09:00-10:00, Mon 11:00-12:00", "", "2024-01-01T11:30:00Z", true},
		{"between several", "Mon 09:00-10:00, Mon 11:00-12:00", "", "2024-01-01T10:30:00Z", false},
		{"over midnight, before it", "Fri 22:00-06:00", "", "2024-01-05T23:00:00Z", true},
		{"over midnight, after it, belongs to the first day", "Fri 22:00-06:00", "", "2024-01-06T05:59:00Z", true},
		{"over midnight, not the morning of the first day", "Fri 22:00-06:00", "", "2024-01-05T05:00:00Z", false},
		{"over midnight, Saturday into Sunday", "Sat 22:00-06:00", "", "2024-01-07T01:00:00Z", true},
		{"over midnight, at the beginning", "Fri 22:00-06:00", "", "2024-01-05T22:00:00Z", true},
		{"over midnight, at the end", "Fri 22:00-06:00", "", "2024-01-06T06:00:00Z", false},
		{"up to midnight", "Fri 22:00-00:00", "", "2024-01-05T23:59:59Z", true},
		{"up to midnight, and no longer", "Fri 22:00-00:00", "", "2024-01-06T00:00:00Z", false},
		{"the wall clock in winter", "09:00-17:00", "Europe/Berlin", "2024-01-01T08:00:00Z", true},
		{"the wall clock in summer", "09:00-17:00", "Europe/Berlin", "2024-07-01T07:00:00Z", true},
		{"the day of the zone", "Mon 00:00-24:00", "Asia/Tokyo", "2023-12-31T16:00:00Z", true},
		{"turned round", "not Mon-Fri 09:00-17:00", "", "2024-01-01T12:00:00Z", false},
	} {
		h, err := parseHours(tc.hours, tc.zone)
		if err != nil {
			t.Errorf("%s: %v", tc.rule, err)
			continue
		}
		if got := h.contains(at(tc.at)); got != tc.want {
			t.Errorf("%s: %v", tc.rule, got)
		}
	}
	for _, bad := range []string{"", "Mon", "Mon-", "-Fri 09:00-17:00", "Mon 9:00-17:00", "Mon 09:00", "Mon 09:00-25:00", "Mon 09:00-24:30", "Mon 09:00-24:01", "Mon 24:00-09:00", "09:00-09:00", "Mon 09:60-10:00", "Mon Tue 09:00-10:00", "09:00-10:00,", "+9:00-10:00", "not", "not not 09:00-10:00"} {
		if _, err := parseHours(bad, ""); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	for _, zone := range []string{"Local", "Mars/Base", "../x"} {
		if _, err := parseHours("09:00-10:00", zone); err == nil || !strings.Contains(err.Error(), "zone") {
			t.Errorf("%q: %v", zone, err)
		}
	}
}

func TestRulesThatCannotBeKeptAreRefused(t *testing.T) {
	rule := func(s string) string { return "rules:\n  - {name: ok, then: ask}\n  - {" + s + "}" }
	for _, tc := range []struct{ rule, text, want string }{
		{"no name", rule("then: ask"), `policy.rules[1].name is ""`},
		{"a name that cannot be shown", rule("name: 'a b', then: ask"), "policy.rules[1].name"},
		{"a name twice", rule("name: ok, then: forbid"), "policy.rules[1].name is \"ok\", as is that of policy.rules[0]"},
		{"no then", rule("name: x"), `policy.rules[1] (x).then is ""`},
		{"an unknown then", rule("name: x, then: permit"), "policy.rules[1] (x).then"},
		{"a key that nobody knows", rule("name: x, then: ask, mach: {}"), "field mach not found"},
		{"a key of match that nobody knows", rule("name: x, then: ask, match: {tool: [x]}"), "field tool not found"},
		{"a key of an example that nobody knows", rule("name: x, then: ask, examples: {match: [{cmd: ls}]}"), "line 3: field cmd not found"},
		{"a sentence of two lines", rule(`name: x, then: ask, sentence: "a\nb"`), "policy.rules[1] (x).sentence"},
		{"a sentence with a hidden character", rule(`name: x, then: ask, sentence: "a\u200bb"`), "policy.rules[1] (x).sentence"},
		{"an empty channel", rule("name: x, then: ask, match: {channels: ['']}"), "policy.rules[1] (x).match.channels"},
		{"an unknown kind", rule("name: x, then: ask, match: {kinds: [look]}"), "policy.rules[1] (x).match.kinds"},
		{"an unknown level", rule("name: x, then: ask, match: {risk: '>= big'}"), "policy.rules[1] (x).match.risk"},
		{"the level unknown", rule("name: x, then: ask, match: {risk: unknown}"), "policy.rules[1] (x).match.risk"},
		{"an unknown effect", rule("name: x, then: ask, match: {effects: [melt]}"), "policy.rules[1] (x).match.effects"},
		{"an unknown group of requesters", rule("name: x, then: ask, match: {requesters: [all]}"), `policy.rules[1] (x).match.requesters has "all", which is not one of the groups`},
		{"bad hours", rule("name: x, then: ask, match: {hours: always}"), "policy.rules[1] (x).match.hours"},
		{"a bad zone", rule("name: x, then: ask, match: {hours: '09:00-10:00', zone: Mars}"), `the zone "Mars"`},
		{"a zone without hours", rule("name: x, then: ask, match: {zone: UTC}"), "policy.rules[1] (x).match.zone"},
		{"a condition that is no CEL", rule("name: x, then: ask, when: 'tool ='"), "policy.rules[1] (x).when"},
		{"a condition about an unknown name", rule("name: x, then: ask, when: 'user == \"x\"'"), "policy.rules[1] (x).when"},
		{"a condition that is no condition", rule("name: x, then: ask, when: 'tool'"), "true or false"},
		{"a condition with a bad pattern", rule("name: x, then: ask, when: 'tool.matches(\"(\")'"), "policy.rules[1] (x).when"},
		{"a condition without end", rule("name: x, then: ask, when: '" + strings.Repeat("tool == tool && ", 300) + "true'"), "policy.rules[1] (x).when"},
		{"an unknown group of approvers", rule("name: x, then: ask, approve: {groups: [all]}"), "policy.rules[1] (x).approve.groups"},
		{"an unknown group to escalate to", rule("name: x, then: ask, approve: {groups: [sre], escalate: [{after: 1m, groups: [all]}]}"), "policy.rules[1] (x).approve.escalate[0].groups"},
		{"escalating to nobody", rule("name: x, then: ask, approve: {groups: [sre], escalate: [{after: 1m}]}"), "policy.rules[1] (x).approve.escalate[0].groups"},
		{"escalating at once", rule("name: x, then: ask, approve: {groups: [sre], escalate: [{groups: [lead]}]}"), "policy.rules[1] (x).approve.escalate[0].after"},
		{"escalating too late", rule("name: x, then: ask, approve: {groups: [sre], expires: 5m, escalate: [{after: 5m, groups: [lead]}]}"), "policy.rules[1] (x).approve.escalate[0].after"},
		{"escalating from nobody", rule("name: x, then: ask, approve: {escalate: [{after: 1m, groups: [lead]}]}"), "policy.rules[1] (x).approve.escalate"},
		{"a count below zero", rule("name: x, then: ask, approve: {count: -1}"), "policy.rules[1] (x).approve.count"},
		{"a rule that is laxer about the requester", rule("name: x, then: ask, approve: {requester: always}"), "policy.rules[1] (x).approve.requester"},
		{"an unknown word about the requester", rule("name: x, then: ask, approve: {requester: maybe}"), "policy.rules[1] (x).approve.requester"},
		{"an unknown word about the reason", rule("name: x, then: ask, approve: {reason: nice}"), "policy.rules[1] (x).approve.reason"},
		{"no time to decide", rule("name: x, then: ask, approve: {expires: 1ms}"), "policy.rules[1] (x).approve.expires"},
		{"no time to run", rule("name: x, then: ask, approve: {run_within: -1s}"), "policy.rules[1] (x).approve.run_within"},
		{"a grant without end", rule("name: x, then: ask, approve: {grant: 2h}"), "policy.rules[1] (x).approve.grant"},
		{"demands of a rule that asks nobody", rule("name: x, then: forbid, approve: {count: 2}"), "policy.rules[1] (x).approve needs then: ask"},
		{"allowing everything", rule("name: x, then: allow"), "policy.rules[1] (x).match is empty"},
		{"allowing a shell", rule("name: x, then: allow, match: {tools: [run_shell]}"), "policy.rules[1] (x).match.tools"},
		{"allowing commands", rule("name: x, then: allow, match: {kinds: [shell]}"), "policy.rules[1] (x).match.kinds"},
		{"allowing what is high", rule("name: x, then: allow, match: {risk: '>= high'}"), "policy.rules[1] (x).match.risk"},
		{"an unknown group to break the glass", "break_glass: [all]", `policy.break_glass has "all"`},
		{"a long grant", "grant: {max: 2h}", "policy.grant.max"},
		{"a grant that is no time", "grant: {max: long}", `"long" is not a longest time`},
		{"an unknown word about the requester of all", "approve: {requester: maybe}", "policy.approve.requester"},
		{"a negative bound", "constraints: {edit: {max_bytes: -1}}", "policy.constraints.edit.max_bytes"},
		{"an empty pattern", "constraints: {edit: {blocked_patterns: ['']}}", "policy.constraints.edit.blocked_patterns"},
		{"a constraint that nobody knows", "constraints: {edit: {max_lines: 1}}", "field max_lines not found"},
		{"a constraint on nothing", "constraints: {'': {max_bytes: 1}}", "policy.constraints. has an empty name"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			_, err := load(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v", err)
			}
			if _, typed := errors.AsType[*yaml.TypeError](err); !typed && strings.Contains(err.Error(), "\n") {
				t.Fatalf("not one sentence: %q", err)
			}
		})
	}
}

func TestExamplesAreChecked(t *testing.T) {
	const prod = `match: {labels: {env: production}, risk: ">= high", hours: "Mon-Fri 09:00-17:00", zone: Europe/Berlin, requesters: [lead], channels: ["slack:*"]}`
	for _, tc := range []struct{ rule, body, want string }{
		{"a command that matches, and one that does not", prod + `, examples: {match: ["systemctl stop checkout"], not_match: ["systemctl status checkout"]}`, ""},
		{"a command that should match", prod + `, examples: {match: [uptime]}`, `policy.rules[0] (x).examples.match[0] ("uptime") does not match the rule: it has risk read`},
		{"a command that should not", prod + `, examples: {not_match: [uptime, "rm -rf /"]}`, `policy.rules[0] (x).examples.not_match[1] ("rm -rf /") matches the rule: it has risk critical`},
		{"a condition", `when: 'effects.exists(e, e == "delete") && channel == "slack:C1"', examples: {match: [{command: rm x, channel: "slack:C1"}], not_match: [rm x, {command: uptime, channel: "slack:C1"}]}`, ""},
		{"a call of a tool", `match: {tools: [write_file], risk: medium}, examples: {match: [{tool: write_file, kind: change, risk: medium, path: /tmp/x}], not_match: [{tool: edit, kind: change, risk: medium}]}`, ""},
		{"a time", `match: {hours: "09:00-17:00"}, examples: {match: [ls], not_match: [{command: ls, at: 2024-01-01T18:00:00Z}]}`, ""},
		{"somebody else", `match: {requesters: [oncall]}, examples: {match: [{command: ls, requester: "web:alice"}], not_match: [{command: ls, requester: "web:eve"}]}`, ""},
		{"other labels", `match: {labels: {env: production}}, examples: {not_match: [{command: ls, labels: {env: test}}]}`, ""},
		{"the level that people know better", `match: {risk: high}, examples: {match: [{command: uptime, risk: high}]}`, ""},
		{"nothing", `examples: {match: [""]}`, "policy.rules[0] (x).examples.match[0] cannot be checked: it is empty"},
		{"a command where the rule is about keys", `match: {kinds: [keys]}, examples: {match: [ls]}`, "examples.match[0] cannot be checked: it is a shell command"},
		{"a tool without its kind", `examples: {match: [{tool: edit, risk: low}]}`, "add kind"},
		{"a tool without its risk", `examples: {match: [{tool: edit, kind: change}]}`, "add risk"},
		{"an unknown risk", `examples: {match: [{command: ls, risk: big}]}`, "its risk is"},
		{"an unknown effect", `examples: {match: [{command: ls, effects: [melt]}]}`, `has the effect "melt"`},
		{"an unknown kind", `examples: {match: [{command: ls, kind: look}]}`, `its kind is "look"`},
		{"a group that nobody is in", `match: {requesters: [oncall]}, examples: {match: [{command: ls, requester: nobody}]}`, "does not match"},
		{"a condition that fails on the example", `when: 'labels["env"] == "x"', examples: {not_match: [ls]}`, "cannot be checked, because the rule's condition fails on it"},
		{"hours that leave nothing", `match: {hours: "not 00:00-24:00"}, examples: {match: [ls]}`, "leave no time"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			_, err := load(t, "rules: [{name: x, then: ask, "+tc.body+"}]")
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Fatal(err)
			}
		})
	}
	t.Run("a command for a rule that allows", func(t *testing.T) {
		_, err := load(t, "rules: [{name: x, then: allow, match: {tools: ['w*']}, examples: {match: [ls]}}]")
		if err == nil || !strings.Contains(err.Error(), "no rule can allow") {
			t.Fatal(err)
		}
	})
	t.Run("commands need a classifier", func(t *testing.T) {
		_, err := New(Config{Rules: []Rule{{Name: "x", Then: "ask", Examples: Examples{Match: []Example{{Command: "ls"}}}}}}, nil)
		if err == nil || !strings.Contains(err.Error(), "classifier") {
			t.Fatal(err)
		}
	})
}

func TestTheConfigurationSurvivesPrinting(t *testing.T) {
	const text = `
approve: {count: 2}
grant: {max: off}
rules:
  - {name: x, match: {tools: [edit]}, when: "level >= HIGH", then: ask, approve: {groups: [sre], grant: 5m, escalate: [{after: 1m, groups: [lead]}]}, examples: {not_match: [uptime, {command: ls, at: 2024-01-01T18:00:00Z}]}}
constraints: {edit: {allowed_extensions: [md, ""]}}
`
	var c Config
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	printed, err := yaml.Marshal(c.Effective())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := must(t, text).Hash(), must(t, string(printed)).Hash(); a != b {
		t.Fatalf("printed:\n%s", printed)
	}
}

func TestTheHashTellsPoliciesApart(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{
		"{}", "approve: {count: 2}", "grant: {max: off}", "break_glass: [sre]", "learn: {tools: [edit]}", "constraints: {edit: {max_bytes: 1}}",
		"rules: [{name: x, then: ask}]", "rules: [{name: x, then: forbid}]", "rules: [{name: x, then: ask, when: 'true'}]",
	} {
		h := must(t, text).Hash()
		if seen[h] != "" {
			t.Errorf("%q and %q have one hash", text, seen[h])
		}
		seen[h] = text
	}
}

// TestEveryEffectHasAName keeps the list of effects that rules may name complete.
func TestEveryEffectHasAName(t *testing.T) {
	files, err := filepath.Glob("../risk/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	n := 0
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Effect" {
				return true
			}
			for _, v := range spec.Values {
				lit, ok := v.(*ast.BasicLit)
				if !ok {
					continue
				}
				n++
				if name, err := strconv.Unquote(lit.Value); err != nil || !slices.Contains(effects, name) {
					t.Errorf("%s: rules cannot name the effect %s", file, lit.Value)
				}
			}
			return true
		})
	}
	if n != len(effects) {
		t.Errorf("the engine has %d effects, and rules may name %d", n, len(effects))
	}
}

func TestGlob(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/é")), 0, 8, -1).Draw(rt, "text")
		pattern := rapid.StringOfN(rapid.SampledFrom([]rune("ab/é*?")), 0, 8, -1).Draw(rt, "pattern")
		re := regexp.MustCompile("^(?s:" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern)) + ")$")
		if got := glob(pattern, text); got != re.MatchString(text) {
			rt.Fatalf("%q over %q: %v", pattern, text, got)
		}
		if !glob(pattern, sample(pattern)) {
			rt.Fatalf("the sample %q does not fit %q", sample(pattern), pattern)
		}
	})
}

func FuzzParseHours(f *testing.F) {
	f.Add("Mon-Fri 09:00-17:00, Sat 10:00-12:00", "Europe/Berlin")
	f.Add("not 22:00-06:00", "")
	f.Fuzz(func(t *testing.T, text, zone string) {
		h, err := parseHours(text, zone)
		if err != nil {
			if strings.Contains(err.Error(), "\n") && !strings.Contains(text+zone, "\n") {
				t.Fatal(err)
			}
			return
		}
		if at, ok := h.within(); ok && !h.contains(at) {
			t.Fatal(at)
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add("rules: [{name: x, then: ask, when: 'tool == \"x\"', examples: {match: [ls, {command: x}]}}]")
	f.Add("grant: {max: off}\nconstraints: {edit: {blocked_hosts: [x]}}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := load(t, text)
		if err != nil {
			return
		}
		if d := p.Decide(Input{}); d.Lane != approvals.Forbid {
			t.Fatalf("%+v", d)
		}
		if d := p.Decide(restart(nil)); d.Lane == approvals.Allow {
			t.Fatalf("a command runs alone: %+v", d)
		}
	})
}
