package card

import (
	"fmt"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
)

func TestThePlansCardSaysHowItsStepsWent(t *testing.T) {
	step := func(text string) approvals.Action {
		return approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte(text)}
	}
	request := func(s approvals.State, o approvals.Outcome) approvals.Record {
		return approvals.Record{ID: "s", State: s, Outcome: o}
	}
	done := request(approvals.Done, approvals.Outcome{OK: true, Note: "exit code 0"})
	for rule, tc := range map[string]struct {
		steps []approvals.Record
		tone  chat.Tone
		says  []string
		after []string
	}{
		"nothing ran yet":        {nil, chat.ToneNeutral, []string{"0 of 2 done", "○ a", "○ b \\u{202E}"}, nil},
		"one runs":               {[]approvals.Record{done, request(approvals.Running, approvals.Outcome{})}, chat.ToneNeutral, []string{"1 of 2 done", "✓ a · exit 0", "▸ b \\u{202E} · running"}, []string{"Stop"}},
		"all ran":                {[]approvals.Record{done, done}, chat.ToneGood, []string{"2 of 2 done"}, nil},
		"one can be taken back":  {[]approvals.Record{done, request(approvals.Done, approvals.Outcome{OK: true, Undo: true})}, chat.ToneGood, nil, []string{"Undo step 2"}},
		"one failed":             {[]approvals.Record{request(approvals.Done, approvals.Outcome{Note: "exit code 3", Last: "no room"})}, chat.ToneBad, []string{"step 1 of 2 failed", "✗ a · failed: exit 3 · no room", "○ b"}, nil},
		"one's end is not known": {[]approvals.Record{request(approvals.OutcomeUnknown, approvals.Outcome{})}, chat.ToneBad, []string{"✗ a · outcome unknown"}, nil},
		"one did not run":        {[]approvals.Record{{State: approvals.Invalid, Reason: "a changed"}}, chat.ToneBad, []string{"✗ a · not run: a changed"}, nil},
	} {
		t.Run(rule, func(t *testing.T) {
			plan := approvals.Record{ID: "p", State: approvals.Done, Action: approvals.Action{Tool: "propose_plan", Steps: []approvals.Action{step("a"), step("b \u202e")}}}
			c := New(plan, "")
			Progress(&c, plan, tc.steps)
			for _, want := range tc.says {
				if !strings.Contains(c.Body, want) {
					t.Errorf("the card does not say %q: %s", want, c.Body)
				}
			}
			var after []string
			for _, b := range c.After {
				after = append(after, b.Label)
			}
			if c.Tone != tc.tone || strings.Join(after, ",") != strings.Join(tc.after, ",") || c.Code != "" {
				t.Errorf("%s %v %q", c.Tone, after, c.Code)
			}
		})
	}
}

func TestWhichStepsAPersonLeft(t *testing.T) {
	step := func(text string) approvals.Action {
		return approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte(text)}
	}
	plan := approvals.Record{ID: "p", State: approvals.Pending, Action: approvals.Action{Tool: "propose_plan", Steps: []approvals.Action{
		step("touch a"), step("cat <<E\n\n1. Run a command\nE"), step("touch a"),
	}}}
	all := eachStep(plan.Action.Steps, nil)
	for rule, tc := range map[string]struct {
		text string
		want string
	}{
		"all of them":                       {strings.Join(all, "\n"), "[0 1 2] true"},
		"the last is removed":               {all[0] + "\n" + all[1], "[0 1] true"},
		"the first and the second":          {all[2], "[2] true"},
		"a form changes blanks at the ends": {"\n" + strings.ReplaceAll(all[1], "\n", " \r\n") + "\n\n", "[1] true"},
		"nothing is left":                   {" \n", "[] false"},
		"a command is changed":              {strings.Replace(all[0], "touch a", "touch b", 1) + "\n" + all[1], "false"},
		"half a step":                       {strings.Join(strings.Split(all[1], "\n")[:2], "\n"), "false"},
		"their numbers":                     {"3 1", "[0 2] true"},
		"a number that none has":            {"1 4", "false"},
		"a number twice":                    {"1 1", "false"},
		"another order":                     {all[1] + "\n" + all[0], "false"},
		"one is there twice":                {all[0] + "\n" + all[0], "false"},
		"one is added":                      {all[0] + "\n4. Run a command\n    reboot", "false"},
		"a line is added to the last":       {all[2] + "\n    reboot", "false"},
	} {
		t.Run(rule, func(t *testing.T) {
			got, ok := Kept(plan, tc.text)
			if s := fmt.Sprint(got, ok); s != tc.want && (tc.want != "false" || ok) {
				t.Errorf("%s, want %s", s, tc.want)
			}
		})
	}
	plan.Action.Steps[1] = step("echo \u202e")
	if _, ok := Kept(plan, all[0]); ok {
		t.Error("steps that can't be read as they are were dropped by their text")
	}
}

func TestAPlanSaysHowBadEachStepIsWhereTheyDiffer(t *testing.T) {
	all := []approvals.Action{{Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte("touch a")}, {Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte("rm -r b")}}
	for want, risks := range map[string][]string{" · medium risk\n": {"medium", "high"}, "": {"high", "high"}} {
		got := eachStep(all, risks)
		if (want == "") != !strings.Contains(got[0]+got[1], "risk") || !strings.Contains(got[0]+"\n", want) {
			t.Errorf("%q for %q", got, risks)
		}
	}
}
