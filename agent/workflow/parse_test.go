package workflow

import (
	"os"
	"strings"
	"testing"
)

// book makes a workflow of steps in YAML, each beginning with "- id: ...".
func book(steps string) string {
	return `name: t
description: A test.
inputs:
  dir: {type: string, required: true, pattern: /.*}
  n: {type: integer, default: 3, min: 1, max: 9}
  dry: {type: boolean, default: false}
  mode: {type: enum, values: [fast, slow], default: fast}
steps:
` + indent(steps)
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") + "\n"
}

func parsed(t testing.TB, steps string) *Workflow {
	t.Helper()
	w, err := Parse("t.yaml", []byte(book(steps)))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestParseKeepsWhatTheFileSays(t *testing.T) {
	src := book(`
- id: look
  title: Look around
  call: {tool: run_shell, arguments: {command: ls}}
- id: end
  done: {text: ok}`)
	w, err := Parse("t.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if w.Name != "t" || w.Description != "A test." || w.Source != src || len(w.Params) != 4 || w.Params[3].Values[1] != "slow" || *w.Params[1].Max != 9 {
		t.Errorf("%+v", w)
	}
	if got := w.Titles(); len(got) != 2 || got[0] != [2]string{"look", "Look around"} || got[1] != [2]string{"end", "end"} {
		t.Errorf("%v", got)
	}
}

func TestParseNamesTheMistakeItsPlaceAndTheCure(t *testing.T) {
	call := "- id: a\n  call: {tool: run_shell, arguments: {command: ls}}\n"
	for rule, c := range map[string]struct{ src, want string }{
		"an unknown key of the file":     {"name: t\ndescriptio: x\n", `t.yaml: line 2: unknown key "descriptio" in a workflow; did you mean "description"?`},
		"an unknown key of a step":       {book("- id: a\n  tilte: x"), `line 10: step 1: unknown key "tilte" in a step; did you mean "title"?`},
		"an unknown key of an action":    {book("- id: a\n  model: {promt: x}"), `step a: unknown key "promt" in model; did you mean "prompt"?`},
		"an unknown key of retry":        {book(call + "  retry: {time: 2}"), `unknown key "time" in retry; did you mean "times"?`},
		"an unknown key of an input":     {"name: t\ndescription: d\ninputs:\n  a: {typ: string}\nsteps: []", `line 4: unknown key "typ" in the input "a"; did you mean "type"?`},
		"a far key lists the known ones": {book("- id: a\n  stop: {zzzzzzz: x}"), `unknown key "zzzzzzz" in stop; use reason`},
		"no YAML":                        {"name: [", "t.yaml: line 1: it is not YAML"},
		"nothing":                        {"", "t.yaml: it is empty"},
		"two documents":                  {book(call) + "---\nname: u\n", "more than one YAML document"},
		"too large":                      {strings.Repeat("#", MaxSource+1), "larger than 64 KiB"},
		"no text":                        {"name: \xff", "not UTF-8"},
		"a key twice":                    {"name: t\nname: u", `the key "name" is there twice`},
		"an alias":                       {"name: &a t\ndescription: *a", "anchors and aliases are not read"},
		"a merge":                        {book("- id: a\n  call: {tool: x, arguments: {<<: {a: 1}}}"), "is not plain text"},
		"an alias in arguments":          {book("- id: a\n  call: {tool: x, arguments: {a: [&x 1, *x]}}"), "anchors and aliases"},
		"a bad name":                     {"name: T_1\ndescription: d\nsteps: []", "must be 1 to 40 of a-z, 0-9 and -"},
		"no steps":                       {"name: t\ndescription: d", "no steps"},
		"too many steps":                 {book(strings.Repeat("- id: a\n  wait: 1s\n", 26)), "there are 26 steps and at most 25"},
		"no description":                 {"name: t\nsteps: []", "no description"},
		"a name on two lines":            {"name: t\ndescription: \"a\\nb\"\nsteps: []", "must be one line"},
		"an input without type":          {"name: t\ndescription: d\ninputs: {a: {default: x}}\nsteps: []", `the input "a" has no type`},
		"neither required nor default":   {"name: t\ndescription: d\ninputs: {a: {type: string}}\nsteps: []", "neither required nor has a default"},
		"both required and default":      {"name: t\ndescription: d\ninputs: {a: {type: string, required: true, default: x}}\nsteps: []", "is required and has a default"},
		"a default against its pattern":  {"name: t\ndescription: d\ninputs: {a: {type: string, pattern: '[0-9]+', default: x}}\nsteps: []", `default is "x", which does not match [0-9]+`},
		"a default out of bounds":        {"name: t\ndescription: d\ninputs: {a: {type: integer, max: 3, default: 4}}\nsteps: []", "at most 3"},
		"a bad pattern":                  {"name: t\ndescription: d\ninputs: {a: {type: string, pattern: 'a)(b', default: x}}\nsteps: []", "no pattern in RE2 syntax"},
		"an enum without values":         {"name: t\ndescription: d\ninputs: {a: {type: enum, default: x}}\nsteps: []", "has no values"},
		"values of another type":         {"name: t\ndescription: d\ninputs: {a: {type: string, values: [x], default: x}}\nsteps: []", "which are for an enum"},
		"a pattern of a number":          {"name: t\ndescription: d\ninputs: {a: {type: integer, pattern: x, default: 1}}\nsteps: []", "which is for strings"},
		"min above max":                  {"name: t\ndescription: d\ninputs: {a: {type: integer, min: 3, max: 1, default: 1}}\nsteps: []", "min above its max"},
		"no id":                          {book("- wait: 1s"), "step 1: it has no id"},
		"an id twice":                    {book("- id: a\n  wait: 1s\n- id: a\n  wait: 1s"), "is that of an earlier step, too"},
		"an output that is an id":        {book("- id: a\n  wait: 1s\n- id: b\n  output: a\n  call: {tool: x}"), "is that of an earlier step, too"},
		"no action":                      {book("- id: a"), "it has 0 of call, model, wait, ask, stop, done"},
		"two actions":                    {book("- id: a\n  wait: 1s\n  done: {text: x}"), "it has 2 of"},
		"a wait too short":               {book("- id: a\n  wait: 10ms"), "from 1s to 24h"},
		"a wait without unit":            {book("- id: a\n  wait: 30"), "such as 30s"},
		"a call without tool":            {book("- id: a\n  call: {arguments: {}}"), "has no tool"},
		"a workflow in a workflow":       {book("- id: a\n  call: {tool: run_workflow}"), "cannot call run_workflow"},
		"a plan in a workflow":           {book("- id: a\n  call: {tool: propose_plan}"), "cannot call propose_plan"},
		"a gate that waits":              {book("- id: a\n  gate: true\n  wait: 1s"), "gate means nothing"},
		"a question that is retried":     {book("- id: a\n  retry: {times: 1}\n  ask: {question: x}"), "retry means nothing"},
		"too many tries":                 {book(call + "  retry: {times: 6}"), "from 1 to 5"},
		"retry without times":            {book(call + "  retry: {wait: 5s}"), "no times"},
		"a bad on_failure":               {book(call + "  on_failure: ignore"), "use stop or continue"},
		"a gate that changes nothing":    {book("- id: a\n  gate: true\n  call: {tool: run_shell, arguments: {command: rm x, mutation: false}}"), "says mutation: false"},
		"steps after the end":            {book("- id: a\n  done: {text: x}\n- id: b\n  wait: 1s"), "always ends here"},
		"choices and a pattern":          {book("- id: a\n  ask: {question: x, choices: [a, b], pattern: a}"), "use one of them"},
		"one choice":                     {book("- id: a\n  ask: {question: x, choices: [a]}"), "a list of 2 to 10"},
		"the same choice":                {book("- id: a\n  ask: {question: x, choices: [a, A]}"), "twice"},
		"model tools":                    {book("- id: a\n  model: {prompt: x, tools: all}"), "use none or readonly"},
		"a date as an argument":          {book("- id: a\n  call: {tool: x, arguments: {d: 2024-01-01}}"), "put it in quotes"},
		"an infinite argument":           {book("- id: a\n  call: {tool: x, arguments: {d: .inf}}"), "a number that JSON does not have"},
		"a template as a key":            {book("- id: a\n  call: {tool: x, arguments: {'${inputs.dir}': 1}}"), "a template cannot be a key"},
		"an unknown input":               {book("- id: a\n  done: {text: '${inputs.dirr}'}"), `there is no input "dirr"; did you mean "dir"?`},
		"an unknown step":                {book(call + "- id: b\n  done: {text: '${steps.c.output}'}"), `there is no step "c"`},
		"a near step":                    {book("- id: disk\n  call: {tool: x}\n- id: b\n  done: {text: '${steps.dsk.output}'}"), `did you mean "disk"?`},
		"a later step":                   {book("- id: b\n  if: steps.a.ok\n  wait: 1s\n" + call), "does not come before this one"},
		"itself":                         {book("- id: b\n  done: {text: '${steps.b.output}'}"), "does not come before this one"},
		"a field that is not there":      {book(call + "- id: b\n  done: {text: '${steps.a.stdout}'}"), `has no "stdout"; use output, exit_code, ok`},
		"an exit code of a question":     {book("- id: a\n  ask: {question: x}\n- id: b\n  done: {text: '${steps.a.exit_code}'}"), `has no "exit_code"`},
		"the outcome of a wait":          {book("- id: a\n  wait: 1s\n- id: b\n  done: {text: '${steps.a.ok}'}"), "has no outcome"},
		"no template":                    {book("- id: a\n  done: {text: '${HOME}'}"), "is no template"},
		"a raw template":                 {book("- id: a\n  call: {tool: run_shell, arguments: {command: 'ls ${{raw inputs.dir}}'}}"), "not shell text that can be read"},
		"a template without end":         {book("- id: a\n  done: {text: '${inputs.dir'}"), "has no end"},
		"the condition's place":          {book("- id: a\n  if: inputs.n = 3\n  wait: 1s"), "step a: if: it cannot be read (<input>:1:10"},
	} {
		t.Run(rule, func(t *testing.T) {
			_, err := Parse("t.yaml", []byte(c.src))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

// The document for operators shows one whole workflow, which must work.
func TestTheExampleOfTheDocumentation(t *testing.T) {
	var doc string
	for _, page := range []string{"workflows", "workflow-file", "workflow-templates"} {
		raw, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		doc += string(raw)
	}
	_, rest, _ := strings.Cut(doc, "```yaml kind=workflow\n")
	src, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("there is no example in docs/workflows.md")
	}
	w, err := Parse("docs/workflows.md", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	in, err := w.Inputs(map[string]any{"service": "nginx"})
	if err != nil {
		t.Fatal(err)
	}
	if p := Plan(w, in); len(p) != 3 || p[0].ID != "before" || p[1].ID != "config" || p[2].ID != "after" {
		t.Errorf("%+v", p)
	}
	n := names{inputs: w.Params, steps: w.steps}
	n.steps = append(n.steps, step{id: "df", kind: KindCall}, step{id: "pick", kind: KindAsk})
	n.inputs = append(n.inputs, Input{Name: "dry_run", Type: Boolean})
	_, rest, _ = strings.Cut(doc, "## Conditions\n\n```\n")
	cond, _, _ := strings.Cut(rest, "\n```")
	if _, err := n.parseCondition(cond); err != nil {
		t.Errorf("%s: %v", cond, err)
	}
	for _, key := range append(append([]string{}, stepKeys...), inputTypes...) {
		if !strings.Contains(doc, "`"+key) {
			t.Errorf("no page about workflows explains %s", key)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range Embedded() {
		f.Add([]byte(s.Text))
	}
	f.Add([]byte(book("- id: a\n  if: inputs.n > 3\n  call: {tool: run_shell, arguments: {command: 'echo \"$(ls ${inputs.dir})\"'}}")))
	f.Fuzz(func(t *testing.T, src []byte) {
		w, err := Parse("f.yaml", src)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml: ") {
				t.Errorf("no place: %v", err)
			}
			return
		}
		again, err := Parse("f.yaml", []byte(w.Source))
		if err != nil || again.Name != w.Name || len(again.steps) != len(w.steps) {
			t.Errorf("its source is another workflow: %v", err)
		}
		in := map[string]string{}
		for _, p := range w.Params {
			in[p.Name] = "1"
		}
		Plan(w, in)
		if Next(w, in, nil).Kind == "" {
			t.Error("a step without a kind")
		}
		Ticks(w, in, nil)
	})
}
