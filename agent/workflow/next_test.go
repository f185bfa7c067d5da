package workflow

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const lsCall = "call: {tool: run_shell, arguments: {command: ls}}"

func begun(id string, try int) Past { return Past{Kind: Started, Step: id, Try: try} }

func good(id, out string) Past {
	return Past{Kind: Ended, Step: id, OK: true, Output: out, ExitCode: new(0)}
}

func failed(id string, exit int) Past {
	return Past{Kind: Ended, Step: id, Output: "first\nno such file", ExitCode: new(exit)}
}

// brief is a step in a few words.
func brief(s Step) string {
	out := string(s.Kind)
	if s.ID != "" {
		out += " " + s.ID
	}
	if s.Try > 1 {
		out += fmt.Sprintf(" try %d", s.Try)
	}
	if s.Begun {
		out += " begun"
	}
	for _, x := range []string{s.Prompt, s.Question, s.Problem, s.Text, s.Reason} {
		if x != "" {
			out += ": " + x
		}
	}
	if s.For > 0 {
		out += " for " + s.For.String()
	}
	return out
}

func TestNext(t *testing.T) {
	two := "- id: a\n  title: Look\n  " + lsCall + "\n- id: b\n  " + lsCall
	retried := "- id: a\n  retry: {times: 2, wait: 5s}\n  " + lsCall
	asked := "- id: a\n  ask: {question: 'Which of ${inputs.dir}?', choices: [restart, leave it]}\n- id: b\n  if: steps.a.output == 'leave it'\n  done: {text: 'Left by ${steps.a.output}.'}\n- id: c\n  stop: {reason: 'No way.'}"
	for _, c := range []struct {
		rule, steps string
		past        []Past
		want        string
	}{
		{"it begins with the first step", two, nil, "call a"},
		{"a call that was begun is not made again", two, []Past{begun("a", 1)}, "busy a begun"},
		{"the next step follows a success", two, []Past{begun("a", 1), good("a", "x")}, "call b"},
		{"the end follows the last step", two, []Past{begun("a", 1), good("a", "x"), begun("b", 1), good("b", "")}, "done"},
		{"a failure stops", two, []Past{begun("a", 1), failed("a", 2)}, "failed a: Look: it failed with exit code 2: no such file."},
		{"a failure can go on", strings.Replace(two, "title: Look", "on_failure: continue", 1), []Past{begun("a", 1), failed("a", 2)}, "call b"},
		{"a denial stops all the same", strings.Replace(two, "title: Look", "on_failure: continue", 1), []Past{begun("a", 1), {Kind: Ended, Step: "a", Denied: true, By: "Ada"}}, "failed a: a: it was denied by Ada."},
		{"an unknown outcome stops all the same", strings.Replace(two, "title: Look", "on_failure: continue", 1), []Past{begun("a", 1), {Kind: Ended, Step: "a", OK: true, Unknown: true}}, "failed a: a: nobody knows whether it happened, so nothing more was run."},
		{"a denial is final", retried, []Past{begun("a", 1), {Kind: Ended, Step: "a", Denied: true}, good("a", "")}, "failed a: a: it was not approved."},
		{"a failure is retried after the pause", retried, []Past{begun("a", 1), failed("a", 1)}, "wait a for 5s"},
		{"the pause goes on after a restart", retried, []Past{begun("a", 1), failed("a", 1), {Kind: Waiting, Step: "a"}}, "wait a begun for 5s"},
		{"the second try follows the pause", retried, []Past{begun("a", 1), failed("a", 1), {Kind: Waiting, Step: "a"}, {Kind: Waited, Step: "a"}}, "call a try 2"},
		{"each try has its pause", retried, []Past{begun("a", 1), failed("a", 1), {Kind: Waited, Step: "a"}, begun("a", 2), failed("a", 1)}, "wait a try 2 for 5s"},
		{"the tries end", retried, []Past{begun("a", 1), failed("a", 1), {Kind: Waited, Step: "a"}, begun("a", 2), failed("a", 1), {Kind: Waited, Step: "a"}, begun("a", 3), failed("a", 7)}, "failed a: a: it failed with exit code 7: no such file."},
		{"a result without a begin is a try", retried, []Past{failed("a", 1), {Kind: Waited, Step: "a"}, failed("a", 1), {Kind: Waited, Step: "a"}, failed("a", 1)}, "failed a: a: it failed with exit code 1: no such file."},
		{"an unknown outcome is never retried", retried, []Past{begun("a", 1), {Kind: Ended, Step: "a", Unknown: true}}, "failed a: a: nobody knows whether it happened, so nothing more was run."},
		{"without a pause it is retried at once", "- id: a\n  retry: {times: 1}\n  " + lsCall, []Past{begun("a", 1), failed("a", 1)}, "call a try 2"},
		{"a wait begins", "- id: a\n  wait: 90s", nil, "wait a for 1m30s"},
		{"a wait ends", "- id: a\n  wait: 90s", []Past{{Kind: Waiting, Step: "a"}, {Kind: Waited, Step: "a"}}, "done"},
		{"a question is asked", asked, nil, "ask a: Which of /srv?"},
		{"an asked question waits", asked, []Past{begun("a", 1)}, "ask a begun: Which of /srv?"},
		{"an answer that is no choice does not count", asked, []Past{begun("a", 1), {Kind: Answered, Step: "a", Text: "maybe"}}, `ask a begun: Which of /srv?: "maybe" is none of the choices; answer with one of restart, leave it`},
		{"a choice counts in any case", asked, []Past{begun("a", 1), {Kind: Answered, Step: "a", Text: " Leave It\n"}}, "done b: Left by leave it."},
		{"a choice counts by its number", asked, []Past{begun("a", 1), {Kind: Answered, Step: "a", Text: "1"}}, "failed c: No way."},
		{"the first answer counts", asked, []Past{begun("a", 1), {Kind: Answered, Step: "a", Text: "1"}, {Kind: Answered, Step: "a", Text: "2"}}, "failed c: No way."},
		{"nobody answered", asked, []Past{begun("a", 1), {Kind: Ended, Step: "a", Output: "nobody answered within 1h"}}, "failed a: a: it failed: nobody answered within 1h."},
		{"a pattern bounds an answer", "- id: a\n  ask: {question: x, pattern: '[0-9]+'}", []Past{{Kind: Answered, Step: "a", Text: "-1"}}, `ask a: x: "-1" does not match [0-9]+`},
		{"an answer is needed", "- id: a\n  ask: {question: x}", []Past{{Kind: Answered, Step: "a", Text: " \n"}}, "ask a: x: the answer is empty; write something"},
		{"the model is asked", "- id: a\n  model: {prompt: 'Why ${inputs.n}?'}", nil, "model a: Why 3?"},
		{"the model is asked anew after a restart", "- id: a\n  model: {prompt: Why}", []Past{begun("a", 1)}, "model a begun: Why"},
		{"a false condition skips", "- id: a\n  if: inputs.n == 4\n  " + lsCall + "\n- id: b\n  wait: 1s", nil, "wait b for 1s"},
		{"a skipped step is empty in texts", "- id: a\n  if: inputs.dry\n  " + lsCall + "\n- id: b\n  done: {text: '[${steps.a.output}${steps.a.exit_code}]'}", nil, "done b: []"},
		{"a call does not do without", "- id: a\n  if: inputs.dry\n  " + lsCall + "\n- id: b\n  call: {tool: x, arguments: {y: '${steps.a.output}'}}", nil, `failed b: b: ${steps.a.output} has no value: the step "a" was skipped.`},
		{"an alias is the step", "- id: a\n  output: x\n  " + lsCall + "\n- id: b\n  done: {text: '${steps.x.output} ${steps.a.ok} ${steps.x.exit_code}'}", []Past{begun("a", 1), good("a", "hi\n")}, "done b: hi true 0"},
		{"a past of another workflow ends it", two, []Past{begun("z", 1)}, `failed: what happened names the step "z", which t does not have`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			w := parsed(t, c.steps)
			in := map[string]string{"dir": "/srv", "n": "3", "dry": "false", "mode": "fast"}
			if got := brief(Next(w, in, c.past)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	if s := Next(parsed(t, two), nil, nil); s.Kind != KindFailed || !strings.Contains(s.Reason, `the input "dir" was not given`) {
		t.Errorf("%+v", s)
	}
	if s := Next(parsed(t, asked), given, []Past{{Kind: Answered, Step: "a", Text: "1"}}); !s.Stopped {
		t.Errorf("a stop step is not told from a failure: %+v", s)
	}
	if s := Next(parsed(t, "- id: a\n  model: {prompt: x, tools: readonly, limit: 200}"), given, nil); s.Tools != ReadTools || s.Limit != 200 {
		t.Errorf("%+v", s)
	}
}

func TestPlanHoldsWhatDependsOnTheInputsAlone(t *testing.T) {
	w := parsed(t, `
- id: a
  call: {tool: run_shell, arguments: {command: 'ls ${inputs.dir}'}}
- id: gated
  gate: true
  call: {tool: run_shell, arguments: {command: rm x}}
- id: depends
  call: {tool: run_shell, arguments: {command: 'ls ${steps.a.output}'}}
- id: maybe
  if: steps.a.ok
  `+lsCall+`
- id: never
  if: inputs.dry
  `+lsCall+`
- id: fast
  if: inputs.mode == 'fast'
  title: The last
  `+lsCall)
	p := Plan(w, given)
	if len(p) != 2 || p[0].ID != "a" || p[1].ID != "fast" || p[1].Title != "The last" || p[1].Tool != "run_shell" {
		t.Fatalf("%+v", p)
	}
	if s := Next(w, given, nil); string(s.Args) != string(p[0].Args) {
		t.Errorf("planned %s\nasked   %s", p[0].Args, s.Args)
	}
}

func TestMatchChoice(t *testing.T) {
	for _, c := range []struct {
		choices []string
		answer  string
		want    string
	}{
		{[]string{"a", "b"}, "B ", "b"}, {[]string{"a", "b"}, "2", "b"}, {[]string{"a", "b"}, "3", ""}, {[]string{"a", "b"}, "0", ""}, {[]string{"a", "b"}, "", ""},
		{[]string{"2", "1"}, "1", "1"}, {[]string{"8", "9"}, "1", ""}, {[]string{"a", "b"}, "a b", ""},
	} {
		if got, ok := MatchChoice(c.choices, c.answer); got != c.want || ok != (c.want != "") {
			t.Errorf("%v %q: %q", c.choices, c.answer, got)
		}
	}
}

// An engine that lets everything happen: it ends, makes no call twice, and the past alone
// says where it is.
func TestNextProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := ""
		n := rapid.IntRange(1, 8).Draw(rt, "steps")
		for i := range n {
			steps += fmt.Sprintf("- id: s%d\n", i)
			cond := rapid.SampledFrom([]string{"", "inputs.n == 3", "inputs.dry", "STEP.ok", "STEP.ok == false", "number(STEP.output) > 3"}).Draw(rt, "if")
			if strings.Contains(cond, "STEP") {
				if i == 0 || !strings.Contains(steps, "  call:") {
					cond = ""
				} else {
					first := strings.Index(steps, "  call:")
					id := steps[:first]
					id = id[strings.LastIndex(id, "- id: ")+6:]
					id, _, _ = strings.Cut(id, "\n")
					cond = strings.Replace(cond, "STEP", "steps."+id, 1)
				}
			}
			if cond != "" {
				steps += "  if: " + cond + "\n"
			}
			kind := rapid.SampledFrom([]string{"call", "call", "call", "gate", "wait", "ask", "model", "done", "stop"}).Draw(rt, "kind")
			if kind == "call" || kind == "gate" || kind == "model" {
				steps += rapid.SampledFrom([]string{"", "  retry: {times: 1}\n", "  retry: {times: 5, wait: 2s}\n"}).Draw(rt, "retry")
				steps += rapid.SampledFrom([]string{"", "  on_failure: continue\n"}).Draw(rt, "failure")
			}
			switch kind {
			case "gate":
				steps += "  gate: true\n  " + lsCall + "\n"
			case "call":
				steps += "  " + lsCall + "\n"
			case "wait":
				steps += "  wait: 1s\n"
			case "ask":
				steps += "  ask: {question: x, choices: [a, b]}\n"
			case "model":
				steps += "  model: {prompt: x}\n"
			case "done":
				if cond == "" {
					steps += "  if: inputs.dry\n"
				}
				steps += "  done: {text: x}\n"
			case "stop":
				if cond == "" {
					steps += "  if: inputs.dry\n"
				}
				steps += "  stop: {reason: x}\n"
			}
		}
		w, err := Parse("t.yaml", []byte(book(steps)))
		if err != nil {
			rt.Fatalf("%v\n%s", err, steps)
		}
		var past []Past
		calls := map[string]bool{}
		bad := map[string]bool{} // denied or unknown
		for round := 0; ; round++ {
			if round > 2*n*3*(MaxTries+1) {
				rt.Fatalf("it does not end:\n%s", steps)
			}
			s := Next(w, given, past)
			if again := Next(w, given, past); !reflect.DeepEqual(s, again) {
				rt.Fatalf("two answers: %+v, %+v", s, again)
			}
			if text := Ticks(w, given, past); strings.Count(text, "\n") > 32 || !strings.Contains(text, "**t**") {
				rt.Fatalf("ticks: %s", text)
			}
			if len(bad) > 0 && s.Kind != KindFailed {
				rt.Fatalf("%s after a denial or an unknown outcome", brief(s))
			}
			switch s.Kind {
			case KindCall, KindModel:
				key := fmt.Sprintf("%s/%d", s.ID, s.Try)
				if calls[key] || s.Begun {
					rt.Fatalf("%s is begun twice", key)
				}
				if s.Try > 1 && !calls[fmt.Sprintf("%s/%d", s.ID, s.Try-1)] {
					rt.Fatalf("%s has no try before", key)
				}
				calls[key] = true
				past = append(past, begun(s.ID, s.Try))
				if b := Next(w, given, past); s.Kind == KindCall && b.Kind != KindBusy || s.Kind == KindModel && !b.Begun {
					rt.Fatalf("begun, and then %s", brief(b))
				}
				r := Past{Kind: Ended, Step: s.ID}
				switch rapid.IntRange(0, 9).Draw(rt, "end") {
				case 0:
					r.Denied = true
				case 1:
					r.Unknown = true
				case 2, 3, 4:
					r.ExitCode = new(1)
				default:
					r.OK, r.Output = true, rapid.SampledFrom([]string{"", "5", "text"}).Draw(rt, "output")
				}
				if r.Denied || r.Unknown {
					bad[s.ID] = true
				}
				past = append(past, r)
			case KindWait:
				if !s.Begun {
					past = append(past, Past{Kind: Waiting, Step: s.ID})
				} else {
					past = append(past, Past{Kind: Waited, Step: s.ID})
				}
			case KindAsk:
				if !s.Begun {
					past = append(past, begun(s.ID, 1))
				} else {
					past = append(past, Past{Kind: Answered, Step: s.ID, Text: rapid.SampledFrom([]string{"a", "b", "2"}).Draw(rt, "answer")})
				}
			case KindDone, KindFailed:
				for _, o := range Outcomes(w, given, past) {
					if o.State == Pending || o.State == Active {
						rt.Fatalf("it is over, and %s is %s", o.ID, o.State)
					}
				}
				return
			default:
				rt.Fatalf("%s with nothing begun", brief(s))
			}
		}
	})
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{30 * time.Second: "30s", 5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Second: "1m30s", 24 * time.Hour: "24h", 70 * time.Minute: "1h10m"} {
		if got := short(d); got != want {
			t.Errorf("%s: %s", want, got)
		}
	}
}
