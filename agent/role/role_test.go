package role_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/agent/role"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/clock"
	"countersign/tools/code"
	"countersign/tools/delegate"
	"countersign/tools/files"
	"countersign/tools/gitcmd"
	"countersign/tools/output"
	"countersign/tools/plan"
	"countersign/tools/process"
	"countersign/tools/search"
	"countersign/tools/shell"
	"countersign/tools/terminal"
	"countersign/tools/toolstest"
	"countersign/tools/web"
)

// flows is a library of one workflow.
type flows struct{}

func (flows) Names() []string        { return []string{"disk-full"} }
func (flows) Describe(string) string { return "A file system is full." }
func (flows) Inputs(string, json.RawMessage) (map[string]string, string, []delegate.Step, error) {
	return nil, "", nil, nil
}

// catalogue is the whole catalogue: every family of tools as a bot has them, with the sub-agents of s.
func catalogue(t testing.TB, s *role.Set, key string) *tools.Registry {
	t.Helper()
	m := &toolstest.Target{}
	fetching, err := web.New(web.Config{Tavily: web.Tavily{Key: "tvly-0"}})
	if key == "" {
		fetching, err = web.New(web.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(
		files.New(files.Config{Target: m}), search.New(search.Config{Target: m}), gitcmd.New(gitcmd.Config{Target: m}), process.New(process.Config{Target: m}),
		code.New(code.Config{Target: m}), terminal.New(terminal.Config{Target: "local"}), fetching,
		[]tools.Tool{
			clock.New(time.Now), output.New(output.Config{}).Reader(), plan.New(nil, nil), foreign{},
			shell.New(shell.Config{Target: m}), shell.NewBash(shell.Config{Target: m}), shell.NewCode(shell.Config{Target: m}, shell.DefaultInterpreters()),
		},
		delegate.New(delegate.Config{Agents: s.Delegates(), Workflows: flows{}}),
	)
	r, err := tools.NewRegistry(time.Now, all...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// foreign is a tool of a plugin.
type foreign struct{ tools.Tool }

func (foreign) Spec() tools.Spec {
	return tools.Spec{
		Name: "disk_free", Level: risk.High, Schema: tools.MustSchema(tools.SimpleSchema{}),
		Description: "## When to use\na\n## When NOT to use\nb\n## Disambiguation\nc\n## Examples\nd",
	}
}

func set(t testing.TB, source string) *role.Set {
	t.Helper()
	c, err := role.Parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	s, err := role.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// listed are the tools that a model is told of.
func listed(r *tools.Registry) []string {
	var out []string
	for _, s := range r.Specs(nil) {
		out = append(out, s.Name)
	}
	return out
}

func TestBuiltinRoles(t *testing.T) {
	s := set(t, "")
	all := catalogue(t, s, "key")
	offer := role.Offer{Catalogue: all, Preset: "oncall", Additional: []string{"edit"}, Extra: []string{"disk_free"}}
	got := map[string][]string{}
	for _, r := range s.Roles() {
		reg, err := r.Tools(offer)
		if err != nil {
			t.Fatal(err)
		}
		got[r.Name] = listed(reg)
		if !slices.Contains(reg.Names(), "undo") {
			t.Errorf("%s: the button Undo has no tool", r.Name)
		}
	}
	//
	if want := "capture-pane find get_background_output get_background_status git_diff git_log git_status grep indexer_analyze_file indexer_detect_language " +
		"indexer_extract_symbols indexer_get_metrics indexer_search_code indexer_search_files ls read_file read_output time web_search_answer"; strings.Join(got["oracle"], " ") != want {
		t.Errorf("oracle: %v", got["oracle"])
	}
	if r, err := s.Role("oracle"); err != nil || !r.ReadOnly {
		t.Errorf("oracle may change something: %v", err)
	}
	//
	if len(got["architect"]) > 0 {
		t.Errorf("architect: %v", got["architect"])
	}
	// everything but the second of each pair
	var every []string
	for _, n := range listed(all) {
		if !slices.Contains([]string{"bash", "read", "write", "web_fetch"}, n) {
			every = append(every, n)
		}
	}
	for _, n := range []string{"seraph", "operator"} {
		if !slices.Equal(got[n], every) {
			t.Errorf("%s: %v", n, got[n])
		}
	}
}

func TestTheToolsOfARole(t *testing.T) {
	const own = "sub_agents: {dba: {description: Knows databases.}}\nroles:\n"
	for name, tt := range map[string]struct{ role, want string }{
		"without a preset it has the bot's own, and what the bot has in addition": {`{}`, "disk_free read_file run_shell sub_agent_dba"},
		"a preset takes the place of the bot's, and of what it has in addition":   {`{preset: readonly}`, "disk_free find grep ls read read_output sub_agent_dba"},
		"none is none, whatever the bot brings":                                   {`{preset: none, additional: [time]}`, "time"},
		"additional and disabled":                                                 {`{preset: readonly, additional: [edit_file], disabled: [glob, disk_free]}`, "edit grep ls read read_output sub_agent_dba"},
		"flags":                                                                   {`{preset: none, flags: {time: true, read: false}}`, "time"},
		"no role brings back what the bot leaves out":                             {`{preset: readonly, additional: [web_search]}`, "disk_free find grep ls read read_output sub_agent_dba"},
		"a filter of levels hands nothing on":                                     {`{preset: minimal, levels: [read]}`, "read_file run_shell"},
		"nor does a read-only role":                                               {`{preset: minimal, read_only: true, disabled: [disk_free]}`, "edit read_file run_shell write_file"},
		"unless it names the tool":                                                {`{preset: none, levels: [read], additional: [sub_agent_code_explorer, edit]}`, "sub_agent_code_explorer"},
		"or has a flag for it":                                                    {`{preset: none, read_only: true, flags: {run_workflow: true}}`, "run_workflow"},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, own+"  mine: "+tt.role)
			r, err := s.Role("mine")
			if err != nil {
				t.Fatal(err)
			}
			reg, err := r.Tools(role.Offer{
				Catalogue: catalogue(t, s, ""), Preset: "none", Additional: []string{"run_shell", "read_file"}, Extra: append([]string{"disk_free"}, s.Own()...), Disabled: []string{"web_search"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(listed(reg), " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	t.Run("a tool that nobody has is an error", func(t *testing.T) {
		s := set(t, own+"  mine: {additional: [nope]}\n")
		r, _ := s.Role("mine")
		if _, err := r.Tools(role.Offer{Catalogue: catalogue(t, s, "")}); err == nil || !strings.HasPrefix(err.Error(), `roles.mine: additional: there is no tool "nope"`) {
			t.Error(err)
		}
	})
	t.Run("the bot without a role is as it is configured", func(t *testing.T) {
		s := set(t, "")
		r, err := s.Role("")
		if err != nil {
			t.Fatal(err)
		}
		reg, err := r.Tools(role.Offer{Catalogue: catalogue(t, s, ""), Preset: "web", Extra: []string{"disk_free"}, NoTmux: true})
		if got := listed(reg); err != nil || !slices.Equal(got, []string{"disk_free", "web_fetch", "web_search"}) {
			t.Errorf("%v %v", got, err)
		}
	})
}

// each has its own set of tools, and all of them exist.
func TestBuiltinSubAgents(t *testing.T) {
	s := set(t, "")
	all := catalogue(t, s, "key")
	want := []string{"code_analyzer", "code_explorer", "code_writer", "researcher", "shell_executor"}
	var ids []string
	for _, a := range s.SubAgents() {
		ids = append(ids, a.Name)
		if sp, ok := all.Lookup(a.Tool()); !ok || sp.Name != "sub_agent_"+a.Name {
			t.Errorf("%s has no tool", a.Name)
		}
		for _, n := range a.Additional {
			if _, ok := all.Lookup(n); !ok {
				t.Errorf("%s: there is no tool %s", a.Name, n)
			}
		}
		reg, err := a.Tools(role.Offer{Catalogue: all, Preset: "oncall", Additional: []string{"time"}, Extra: []string{"disk_free"}})
		if err != nil {
			t.Fatal(err)
		}
		expect := slices.Sorted(slices.Values(a.Additional))
		if got := reg.Names(); !slices.Equal(got, expect) {
			t.Errorf("%s has %v, want %v", a.Name, got, expect)
		}
		if a.ReadOnly {
			for _, sp := range reg.Specs(nil) {
				if sp.Level != risk.Read || sp.Name == "run_shell" {
					t.Errorf("%s is read-only and has %s", a.Name, sp.Name)
				}
			}
		}
		if strings.TrimSpace(a.Prompt) == "" || !strings.Contains(a.Prompt, "\nReport:") || a.Steps == 0 || a.Tokens == 0 {
			t.Errorf("%s has no prompt that says what to report, or no limits", a.Name)
		}
	}
	if !slices.Equal(ids, want) || len(s.Own()) > 0 {
		t.Errorf("%v, own %v", ids, s.Own())
	}
	t.Run("without the key of the search the researcher has what there is", func(t *testing.T) {
		a, _ := s.SubAgent("researcher")
		reg, err := a.Tools(role.Offer{Catalogue: catalogue(t, s, "")})
		if got := reg.Names(); err != nil || !slices.Equal(got, []string{"read_output", "time", "web_fetch", "web_search"}) {
			t.Errorf("%v %v", got, err)
		}
	})
	t.Run("what the bot leaves out no sub-agent has", func(t *testing.T) {
		a, _ := s.SubAgent("code_writer")
		reg, err := a.Tools(role.Offer{Catalogue: all, Disabled: []string{"run_shell"}, NoTmux: true})
		if err != nil || slices.Contains(reg.Names(), "run_shell") {
			t.Errorf("%v", err)
		}
	})
}

//
func TestAnOwnSubAgentIsATool(t *testing.T) {
	s := set(t, "sub_agents:\n  dba:\n    description: Knows our databases.\n    prompt: You know databases.\n  code_writer: {description: Ours., preset: full, levels: [read, medium], steps: 3}\n")
	if !slices.Equal(s.Own(), []string{"sub_agent_code_writer", "sub_agent_dba"}) || len(s.SubAgents()) != 6 {
		t.Errorf("%v of %d", s.Own(), len(s.SubAgents()))
	}
	all := catalogue(t, s, "")
	for _, a := range s.Delegates() {
		if err := tools.Guidance(a.Guidance()); err != nil {
			t.Errorf("%s: %v", a.ID, err)
		}
	}
	dba, ok := s.SubAgent("dba")
	if !ok {
		t.Fatal("it is not there")
	}
	reg, err := dba.Tools(role.Offer{Catalogue: all, Preset: "oncall", Additional: []string{"time"}, Extra: s.Own()})
	if got := reg.Names(); err != nil || !slices.Equal(got, []string{"find", "grep", "ls", "read", "read_output"}) {
		t.Errorf("without a preset it is readonly: %v %v", got, err)
	}
	writer, _ := s.SubAgent("code_writer")
	if writer.Prompt != "" || writer.Steps != 3 || writer.Tokens != 0 || len(writer.Additional) > 0 {
		t.Errorf("something of the built-in one is left: %+v", writer)
	}
	if reg, err = writer.Tools(role.Offer{Catalogue: all, Extra: s.Own()}); err != nil {
		t.Fatal(err)
	}
	for _, sp := range reg.Specs(nil) {
		if delegate.IsNested(sp.Name) || sp.Level != risk.Read && sp.Level != risk.Medium {
			t.Errorf("it has %s (%s)", sp.Name, sp.Level)
		}
	}
	if slices.Contains(reg.Names(), "undo") {
		t.Error("it has a tool that is for people")
	}
}

func TestAnOwnRoleTakesThePlaceOfABuiltinOneAsAWhole(t *testing.T) {
	s := set(t, "roles: {oracle: {description: Ours., preset: web}}")
	r, err := s.Role("oracle")
	if err != nil || r.Prompt != "" || r.ReadOnly || len(r.Levels)+len(r.Disabled) > 0 || r.Name != "oracle" || r.Description != "Ours." {
		t.Errorf("%+v %v", r, err)
	}
	if len(s.Roles()) != len(role.Builtin()) {
		t.Errorf("%d roles", len(s.Roles()))
	}
	if _, err := s.Role("orakel"); err == nil || err.Error() != `there is no role "orakel"; choose one of architect, operator, oracle, seraph` {
		t.Error(err)
	}
	if _, ok := s.SubAgent("nobody"); ok {
		t.Error("there is a sub-agent nobody")
	}
}

func TestBuiltinsAreSoundAndSorted(t *testing.T) {
	c := role.Config{Roles: map[string]role.Role{}, SubAgents: map[string]role.SubAgent{}}
	var names, ids []string
	for _, r := range role.Builtin() {
		c.Roles[r.Name], names = r, append(names, r.Name)
		if r.Description == "" || !strings.HasPrefix(r.Prompt, "You ") {
			t.Errorf("%s says nothing of itself", r.Name)
		}
	}
	for _, a := range role.BuiltinSubAgents() {
		c.SubAgents[a.Name], ids = a, append(ids, a.Name)
		for _, text := range slices.Concat(a.When, a.Not, a.Differs, a.Examples, []string{a.Description}) {
			for _, other := range strings.FieldsFunc(text, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz_", r) }) {
				if strings.HasPrefix(other, delegate.AgentPrefix) && !slices.ContainsFunc(role.BuiltinSubAgents(), func(b role.SubAgent) bool { return b.Tool() == other }) {
					t.Errorf("%s speaks of %s, which does not exist", a.Name, other)
				}
			}
		}
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if !slices.IsSorted(names) || !slices.IsSorted(ids) {
		t.Errorf("%v %v", names, ids)
	}
	for _, n := range slices.Sorted(maps.Keys(c.Roles)) {
		if len(c.Roles[n].Prompt) > 2000 {
			t.Errorf("the prompt of %s has %d bytes, which every request carries", n, len(c.Roles[n].Prompt))
		}
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	for want, source := range map[string]string{
		`line 2: unknown key "pre_set"; remove it, or see bot docs own-roles`:             "roles:\n  x: {pre_set: web}",
		`line 1: unknown key "name"; remove it, or see bot docs own-roles`:                "roles: {x: {name: y}}",
		`the roles cannot be read as YAML: `:                                              "roles: [",
		`roles has the name "X"; use 1 to 40 of a-z, 0-9, - and _`:                        "roles: {X: {}}",
		`roles has the name ""; use 1 to 40`:                                              `roles: {"": {}}`,
		`roles.x has the preset "weeb"; choose one of all, coding, `:                      "roles: {x: {preset: weeb}}",
		`roles.x has the level "safe"; use read, low, medium, high and critical`:          "roles: {x: {levels: [safe]}}",
		`roles.x has the level "unknown"; use read`:                                       "roles: {x: {levels: [unknown]}}",
		`roles.x has steps: -1; use 1 to 1000, or leave it out`:                           "roles: {x: {steps: -1}}",
		`roles.x has tokens: -1; use a positive number`:                                   "roles: {x: {tokens: -1}}",
		`roles.x has a prompt of more than 20000 characters`:                              "roles: {x: {prompt: " + strings.Repeat("y", 20_001) + "}}",
		`roles.x has a description of more than 500 characters`:                           "roles: {x: {description: " + strings.Repeat("y", 501) + "}}",
		`sub_agents has the id "a-b"; use 1 to 40 of a-z, 0-9 and _`:                      "sub_agents: {a-b: {}}",
		`sub_agents has the id "` + strings.Repeat("a", 41) + `"`:                         "sub_agents: {" + strings.Repeat("a", 41) + ": {}}",
		`sub_agents.a has no description; say in a sentence`:                              "sub_agents: {a: {prompt: x}}",
		`sub_agents.a has the preset "x"; choose`:                                         "sub_agents: {a: {description: x, preset: x}}",
		`sub_agents.a names the tool run_workflow; a sub-agent hands nothing on`:          "sub_agents: {a: {description: x, additional: [run_workflow]}}",
		`sub_agents.a names the tool sub_agent_code_writer; a sub-agent hands nothing on`: "sub_agents: {a: {description: x, flags: {sub_agent_code_writer: true}}}",
		`sub_agents.a has 21 lines under when; use at most 20`:                            "sub_agents: {a: {description: x, when: [" + strings.Repeat("y, ", 21) + "]}}",
		`roles.a has the preset "1"; choose one of`:                                       "roles: {b: {preset: 2}, a: {preset: 1}}",
	} {
		if _, err := role.Parse([]byte(source)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := role.New(role.Config{Roles: map[string]role.Role{"x": {Preset: "no"}}}); err == nil {
		t.Error("New does not check")
	}
}

// Whatever a configuration says: if it is accepted, it makes tools that a registry accepts.
func FuzzParse(f *testing.F) {
	f.Add([]byte("roles: {x: {preset: web, flags: {time: true}}}"))
	f.Add([]byte("sub_agents:\n  dba: {description: \"When to use\\n## Examples\", when: [\"## When NOT to use\"], examples: [\"\\\"\"]}"))
	f.Add([]byte("sub_agents: {a: {description: \"\\u2028x\", not: [\"\\r\\nExamples:\"], differs: [\"\"]}}"))
	f.Fuzz(func(t *testing.T, source []byte) {
		c, err := role.Parse(source)
		if err != nil {
			return
		}
		s, err := role.New(c)
		if err != nil {
			t.Fatalf("Parse accepts it and New does not: %v", err)
		}
		if _, err := tools.NewRegistry(time.Now, delegate.New(delegate.Config{Agents: s.Delegates()})...); err != nil {
			t.Fatal(err)
		}
	})
}

// The example in the documentation is one, and the tables name what there is.
func TestTheDocumentedExampleLoads(t *testing.T) {
	var doc string
	for _, page := range []string{"own-roles", "roles"} {
		raw, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		doc += string(raw)
	}
	_, rest, _ := strings.Cut(doc, "```yaml\n")
	source, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no example")
	}
	s := set(t, source)
	offer := role.Offer{Catalogue: catalogue(t, s, "key"), Preset: "oncall", Extra: append(s.Own(), "disk_free")}
	for _, r := range s.Roles() {
		if _, err := r.Tools(offer); err != nil {
			t.Error(err)
		}
		if !strings.Contains(doc, "`"+r.Name+"`") && r.Name != "reader" {
			t.Errorf("the role %s is not described", r.Name)
		}
	}
	for _, a := range s.SubAgents() {
		if _, err := a.Tools(offer); err != nil {
			t.Error(err)
		}
		if !strings.Contains(doc, "`"+a.Tool()+"`") && a.Name != "dba" {
			t.Errorf("the sub-agent %s is not described", a.Name)
		}
	}
	for _, shape := range []reflect.Type{reflect.TypeFor[role.Role](), reflect.TypeFor[role.SubAgent]()} {
		for f := range shape.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if key != "" && key != "-" && !strings.Contains(doc, "| `"+key+"` |") {
				t.Errorf("the key %s is not described", key)
			}
		}
	}
}
