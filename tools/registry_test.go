package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

const guidance = "Does things.\n\n## When to use\na\n\n## When NOT to use\nb\n\n## Disambiguation\nc\n\n## Examples\nd\n"

// fake is a tool that remembers what it was asked to plan.
type fake struct {
	spec tools.Spec
	err  error

	mu    sync.Mutex
	calls []tools.Call
}

func (f *fake) Spec() tools.Spec { return f.spec }

func (f *fake) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	if f.err != nil {
		return tools.Plan{}, f.err
	}
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: "test", Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(context.Context, tools.Sink) (tools.Result, error) {
		return tools.Result{Value: "ran"}, nil
	}), nil
}

func tool(name string, change ...func(*tools.Spec)) *fake {
	s := tools.Spec{Name: name, Description: guidance, Schema: tools.MustSchema(tools.SimpleSchema{}), Level: risk.Read}
	for _, c := range change {
		c(&s)
	}
	return &fake{spec: s}
}

func at() time.Time { return time.UnixMilli(1_700_000_000_123) }

func registry(t *testing.T, ts ...tools.Tool) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(at, ts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func schema(s string) func(*tools.Spec) {
	return func(sp *tools.Spec) { sp.Schema = json.RawMessage(s) }
}

// a name means one tool; there is no order in which they are tried.
func TestRegistryRefusesMistakes(t *testing.T) {
	without := func(heading string) func(*tools.Spec) {
		return func(s *tools.Spec) { s.Description = strings.Replace(guidance, "## "+heading+"\n", "", 1) }
	}
	for name, c := range map[string]struct {
		ts   []tools.Tool
		want string
	}{
		"two of a name":              {[]tools.Tool{tool("a"), tool("a")}, "two tools of this name"},
		"Q-49 X-34 no level":         {[]tools.Tool{tool("a", func(s *tools.Spec) { s.Level = risk.Unknown })}, "no risk level"},
		"a bad name":                 {[]tools.Tool{tool("a b")}, "1 to 64"},
		"an alias that is a tool":    {[]tools.Tool{tool("a"), tool("b", func(s *tools.Spec) { s.Aliases = []string{"a"} })}, `already means "a"`},
		"a schema that is no JSON":   {[]tools.Tool{tool("a", schema(`{`))}, "not JSON"},
		"a schema of no object":      {[]tools.Tool{tool("a", schema(`{"type":"string"}`))}, `"type": "object"`},
		"a schema with a wrong type": {[]tools.Tool{tool("a", schema(`{"type":"object","properties":{"x":{"type":"strnig"}}}`))}, "does not compile"},
		"a schema that reads a file": {[]tools.Tool{tool("a", schema(`{"type":"object","properties":{"x":{"$ref":"file:///etc/passwd"}}}`))}, "must not refer"},
		"a schema from the network":  {[]tools.Tool{tool("a", schema(`{"type":"object","$ref":"http://127.0.0.1/x"}`))}, "must not refer"},
		"B-11 no When to use":        {[]tools.Tool{tool("a", without("When to use"))}, `"When to use"`},
		"B-11 no When NOT to use":    {[]tools.Tool{tool("a", without("When NOT to use"))}, `"When NOT to use"`},
		"B-11 no Disambiguation":     {[]tools.Tool{tool("a", without("Disambiguation"))}, `"Disambiguation"`},
		"B-11 no Examples":           {[]tools.Tool{tool("a", without("Examples"))}, `"Examples"`},
		"B-11 an empty section":      {[]tools.Tool{tool("a", func(s *tools.Spec) { s.Description = strings.Replace(guidance, "\nc\n", "\n\n", 1) })}, "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			reg, err := tools.NewRegistry(at, c.ts...)
			if err == nil {
				err = reg.Compile()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// schemas by a filter.
// B-07.
func TestSpecsAreInAStableOrder(t *testing.T) {
	r := registry(t, tool("time"), tool("capture-pane"), tool("run_shell"))
	want := []string{"capture-pane", "run_shell", "time"}
	if got := r.Names(); !slices.Equal(got, want) {
		t.Errorf("names %v", got)
	}
	var got []string
	for _, s := range r.Specs(func(s tools.Spec) bool { return s.Name != "run_shell" }) {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, []string{"capture-pane", "time"}) {
		t.Errorf("specs %v", got)
	}
	if got := r.Specs(nil); len(got) != 3 {
		t.Errorf("all specs: %d", len(got))
	}
}

// B-10.
func TestUnknownToolListsTheKnownOnes(t *testing.T) {
	r := registry(t, tool("time"), tool("run_shell"))
	_, err := r.Plan(t.Context(), tools.Call{Name: "nope"})
	var te *tools.Error
	if !errors.As(err, &te) || te.Kind != tools.ExecutionFailed {
		t.Fatalf("error %v", err)
	}
	if got := tools.ErrorText(err); got != `Tool error: there is no tool "nope"; the tools are run_shell, time` {
		t.Error(got)
	}
	_, err = registry(t).Plan(t.Context(), tools.Call{Name: "nope"})
	if err == nil || !strings.Contains(err.Error(), "no tools are available") {
		t.Error(err)
	}
}

func TestDecision1AliasesReachTheirTool(t *testing.T) {
	capture := tool("capture-pane", func(s *tools.Spec) { s.Aliases = []string{"tmux-capture-pane"} })
	r := registry(t, capture)
	for _, name := range []string{"capture-pane", "capture_pane", "tmux_capture_pane", "tmux-capture-pane"} {
		p, err := r.Plan(t.Context(), tools.Call{Name: name})
		if err != nil || p.Action.Tool != "capture-pane" {
			t.Errorf("%s: %q, %v", name, p.Action.Tool, err)
		}
		if s, ok := r.Lookup(name); !ok || s.Name != "capture-pane" {
			t.Errorf("Lookup(%s) = %v, %v", name, s.Name, ok)
		}
	}
	for wrong, near := range map[string]string{"capturepane": "did you mean capture-pane?", "tmux-capture-pan": "did you mean capture-pane?", "launch_rocket": ""} {
		_, err := r.Plan(t.Context(), tools.Call{Name: wrong})
		if err == nil || !strings.Contains(err.Error(), near) || near == "" && strings.Contains(err.Error(), "mean") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if len(r.Names()) != 1 {
		t.Errorf("aliases are offered: %v", r.Names())
	}
	if _, ok := r.Lookup("capture"); ok {
		t.Error("an unknown name is found")
	}
}

func TestPlanCarriesTheToolsLevel(t *testing.T) {
	p, err := registry(t, tool("a", func(s *tools.Spec) { s.Level = risk.High })).Plan(t.Context(), tools.Call{Name: "a"})
	if err != nil || p.Level != risk.High {
		t.Errorf("%v, %v", p.Level, err)
	}
}

func TestAPlainErrorOfAToolBecomesAToolError(t *testing.T) {
	cause := errors.New("disk on fire")
	f := tool("a")
	f.err = fmt.Errorf("cannot: %w", cause)
	_, err := registry(t, f).Plan(t.Context(), tools.Call{Name: "a"})
	var te *tools.Error
	if !errors.As(err, &te) || te.Kind != tools.ExecutionFailed || !errors.Is(err, cause) || err.Error() != "cannot: disk on fire" {
		t.Errorf("%#v", err)
	}
}

const weather = `{"type":"object","properties":{
	"city":{"type":"string","minLength":1},
	"unit":{"type":"string","enum":["celsius","kelvin"],"default":"celsius"},
	"days":{"type":"integer","minimum":1},
	"wait":{"type":["boolean","string","integer"],"default":true},
	"where":{"type":"object","properties":{"zoom":{"type":"integer","default":3}}}
},"required":["city","days"],"additionalProperties":false}`

// N-59.
// N-60.
func TestValidationErrors(t *testing.T) {
	f := tool("weather", schema(weather))
	r := registry(t, f)
	const params = "\nparameters: city (string, required), days (integer, required), unit (celsius or kelvin), wait (boolean or string or integer), where (object)"
	for name, c := range map[string]struct{ args, want string }{
		"N-60 missing":        {`{"days":1}`, `validation error: missing required parameter "city"` + params},
		"no arguments at all": {``, "validation error: missing required parameter \"city\"\nmissing required parameter \"days\"" + params},
		"missing comes first": {`{"city":5}`, "validation error: missing required parameter \"days\"\n\"city\" must be string, not number" + params},
		"wrong type":          {`{"city":"x","days":"3"}`, `validation error: "days" must be integer, not string` + params},
		"bad enum":            {`{"city":"x","days":1,"unit":"rankine"}`, `validation error: "unit" must be celsius or kelvin, not "rankine"` + params},
		"union of types":      {`{"city":"x","days":1,"wait":[]}`, `validation error: "wait" must be boolean, integer or string, not array` + params},
		"unknown":             {`{"city":"x","days":1,"town":"y"}`, `validation error: there is no parameter "town"` + params},
		"empty":               {`{"city":"","days":1}`, `validation error: "city" must not be empty` + params},
		"nested":              {`{"city":"x","days":1,"where":{"zoom":"far"}}`, `validation error: "where.zoom" must be integer, not string` + params},
		"too small":           {`{"city":"x","days":0}`, "validation error: \"days\": minimum: got 0, want 1" + params},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Plan(t.Context(), tools.Call{Name: "weather", Args: json.RawMessage(c.args)})
			var te *tools.Error
			if !errors.As(err, &te) || te.Kind != tools.InvalidArguments {
				t.Fatalf("error %v", err)
			}
			if err.Error() != c.want {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
		})
	}
	if len(f.calls) != 0 {
		t.Errorf("N-61: the tool saw invalid arguments: %v", f.calls)
	}
}

// B-02.
func TestArgumentsThatAreNoJSON(t *testing.T) {
	r := registry(t, tool("weather", schema(weather)))
	for _, args := range []string{`{bad`, `{`, `[]`, `"x"`, `null`, `{"city":"x"} {}`, `{"days":1e999999999}`, strings.Repeat(`[`, 100)} {
		_, err := r.Plan(t.Context(), tools.Call{Name: "weather", Args: json.RawMessage(args)})
		var te *tools.Error
		if !errors.As(err, &te) || te.Kind != tools.InvalidArguments || !strings.HasPrefix(tools.ErrorText(err), "Tool error: invalid arguments: ") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestArgumentsReachTheToolInCanonicalForm(t *testing.T) {
	f := tool("weather", schema(weather))
	r := registry(t, f)
	for _, args := range []string{
		`{"where":{},"days":2,"city":"<Ω>"}`,
		` { "city" : "<\u03a9>", "days": 2.0, "unit":"celsius", "wait": true, "where": {"zoom": 3e0} } `,
	} {
		if _, err := r.Plan(t.Context(), tools.Call{Name: "weather", Args: json.RawMessage(args)}); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"city":"<Ω>","days":2,"unit":"celsius","wait":true,"where":{"zoom":3}}`
	for _, c := range f.calls {
		if string(c.Args) != want {
			t.Errorf("got  %s\nwant %s", c.Args, want)
		}
	}
}

// B-06.
func TestToolsArePlannedByManyAtOnce(t *testing.T) {
	r := registry(t, tool("weather", schema(weather)))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			args := fmt.Sprintf(`{"city":"c%d","days":1}`, i)
			p, err := r.Plan(t.Context(), tools.Call{Name: "weather", Args: json.RawMessage(args)})
			if err != nil || !strings.Contains(string(p.Action.Args), fmt.Sprintf("c%d", i)) {
				t.Errorf("%s, %v", p.Action.Args, err)
			}
		})
	}
	wg.Wait()
}

func FuzzPlan(f *testing.F) {
	for _, s := range []string{weather, `{}`, `{"city":"x","days":1}`, `{"city":"x","days":1.50,"where":{"zoom":-0}}`, "\xff", `{"days":1e400}`} {
		f.Add([]byte(s))
	}
	tl := tool("weather", schema(weather))
	r, err := tools.NewRegistry(at, tl)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		p, err := r.Plan(t.Context(), tools.Call{Name: "weather", Args: args})
		if err != nil {
			if _, ok := errors.AsType[*tools.Error](err); !ok {
				t.Fatalf("%v is not a tool error", err)
			}
			return
		}
		again, err := r.Plan(t.Context(), tools.Call{Name: "weather", Args: p.Action.Args})
		if err != nil || string(again.Action.Args) != string(p.Action.Args) {
			t.Fatalf("canonical form is not stable: %s, %s, %v", p.Action.Args, again.Action.Args, err)
		}
	})
}

func catalogue(t *testing.T) *tools.Registry {
	t.Helper()
	tmux := func(s *tools.Spec) { s.NeedsTmux = true }
	high := func(s *tools.Spec) { s.Level = risk.High }
	return registry(t,
		tool("run_shell", high), tool("bash", high), tool("read_file"), tool("read"), tool("write_file", high),
		tool("edit", high), tool("grep"), tool("find"), tool("ls"), tool("fetch_url"), tool("web_fetch"), tool("web_search"),
		tool("capture-pane", tmux), tool("send-keys", tmux, high), tool("time"), tool("mine", high))
}

func TestPresets(t *testing.T) {
	for name, c := range map[string]struct {
		sel  tools.Selection
		want string
	}{
		"oncall is the default":      {tools.Selection{}, "capture-pane fetch_url read_file run_shell send-keys time web_search write_file"},
		"N-03 coding":                {tools.Selection{Preset: "coding"}, "bash edit read write_file"},
		"N-04 readonly":              {tools.Selection{Preset: "readonly"}, "find grep ls read"},
		"N-05 web":                   {tools.Selection{Preset: "web"}, "web_fetch web_search"},
		"Q-24 minimal":               {tools.Selection{Preset: "minimal"}, "edit read_file run_shell write_file"},
		"Q-26 full, one of a pair":   {tools.Selection{Preset: "full"}, "capture-pane edit fetch_url find grep ls mine read_file run_shell send-keys time web_search write_file"},
		"all is full":                {tools.Selection{Preset: "all", Disabled: []string{"mine"}}, "capture-pane edit fetch_url find grep ls read_file run_shell send-keys time web_search write_file"},
		"B-09 N-07 none":             {tools.Selection{Preset: "none"}, ""},
		"additional":                 {tools.Selection{Preset: "none", Additional: []string{"mine", "capture_pane"}}, "capture-pane mine"},
		"Q-27 disabled wins":         {tools.Selection{Preset: "web", Additional: []string{"mine"}, Disabled: []string{"mine", "web_fetch"}}, "web_search"},
		"B-14 a flag off":            {tools.Selection{Preset: "web", Flags: map[string]bool{"web_search": false}}, "web_fetch"},
		"B-14 a flag on":             {tools.Selection{Preset: "none", Flags: map[string]bool{"read_file": true}}, "read_file"},
		"disabled wins over a flag":  {tools.Selection{Preset: "none", Flags: map[string]bool{"read_file": true}, Disabled: []string{"read_file"}}, ""},
		"B-64 B-80 no tmux":          {tools.Selection{NoTmux: true}, "fetch_url read_file run_shell time web_search write_file"},
		"X-32 levels":                {tools.Selection{Preset: "full", Levels: []risk.Level{risk.High}}, "edit mine run_shell send-keys write_file"},
		"levels and exclusion":       {tools.Selection{Preset: "full", Levels: []risk.Level{risk.High}, Disabled: []string{"mine"}}, "edit run_shell send-keys write_file"},
		"a name that is not a spell": {tools.Selection{Preset: "none", Additional: []string{"send_keys"}}, "send-keys"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := catalogue(t).Select(c.sel)
			if err != nil {
				t.Fatal(err)
			}
			if s := strings.Join(got.Names(), " "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

func TestPresetsNameWhatIsWrong(t *testing.T) {
	for want, sel := range map[string]tools.Selection{
		`there is no preset "cooding"; choose one of all, coding`: {Preset: "cooding"},
		`additional: there is no tool "nope"`:                     {Additional: []string{"nope"}},
		`disabled: there is no tool "nope"`:                       {Disabled: []string{"nope"}},
		`tool flags: there is no tool "nope"`:                     {Flags: map[string]bool{"nope": false}},
	} {
		if _, err := catalogue(t).Select(sel); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// B-14.
func TestAToolThatIsOffDoesNotExist(t *testing.T) {
	r, err := catalogue(t).Select(tools.Selection{Preset: "web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run_shell", "capture_pane"} {
		if _, err := r.Plan(t.Context(), tools.Call{Name: name}); err == nil || !strings.Contains(err.Error(), "no tool") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPlanRunsOnlyWithAPermit(t *testing.T) {
	p, err := registry(t, tool("a")).Plan(t.Context(), tools.Call{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), approvals.Permit{}, nil); !errors.Is(err, tools.ErrNotPermitted) {
		t.Errorf("error %v", err)
	}
}

// What is for people no model calls, and none is told that it is there.
func TestModelsCallNothingUnlisted(t *testing.T) {
	r := registry(t, tool("undo", func(s *tools.Spec) { s.Unlisted = true }), tool("mine"))
	for _, name := range []string{"undo", "undoo"} {
		_, err := r.Plan(t.Context(), tools.Call{Name: name, Args: []byte(`{}`)})
		if err == nil || err.Error() != `there is no tool "`+name+`"; the tools are mine` {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Plan(t.Context(), tools.Call{Name: "undo", Direct: true, Args: []byte(`{}`)}); err != nil && strings.Contains(err.Error(), "no tool") {
		t.Error(err)
	}
}
