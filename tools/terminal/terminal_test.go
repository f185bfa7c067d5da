package terminal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/store/mem"
	"countersign/targets/session"
	"countersign/targets/session/sessiontest"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/terminal"
	"countersign/tools/toolstest"
)

const thread = "test:1"

// claim are the four labels, to be put into arguments.
const claim = `"risk":"low","mutation":true,"privesc":false,"why":"test"`

type world struct {
	t    *testing.T
	srv  *sessiontest.Server
	book *session.Book
	reg  *tools.Registry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, srv: &sessiontest.Server{}}
	w.book = session.New(session.Config{Server: w.srv, DB: mem.Open(), Target: "local", Agent: "ops", Instance: "test", Dir: "/work"})
	w.reg = registry(t, w.book)
	return w
}

func registry(t *testing.T, b terminal.Book) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(time.Now, terminal.New(terminal.Config{Target: "local", User: "tester", Book: b})...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) plan(name, args string) (tools.Plan, error) {
	return w.reg.Plan(w.t.Context(), tools.Call{ID: "call_1", Thread: thread, Name: name, Args: []byte(args)})
}

func (w *world) run(name, args string) toolstest.Outcome {
	w.t.Helper()
	return toolstest.Run(w.t.Context(), w.t, w.reg, name, args)
}

// pane makes a pane and returns it.
func (w *world) pane(session, name string) *sessiontest.Pane {
	w.t.Helper()
	if session != "" {
		if _, err := w.book.CreateSession(w.t.Context(), thread, session); err != nil {
			w.t.Fatal(err)
		}
	}
	m, err := w.book.CreatePane(w.t.Context(), thread, session, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.srv.Pane(m.Session, m.Pane)
}

func (w *world) refused(name, args string, words ...string) {
	w.t.Helper()
	_, err := w.plan(name, args)
	if err == nil {
		w.t.Errorf("%s %s is planned", name, args)
		return
	}
	for _, x := range words {
		if !strings.Contains(err.Error(), x) {
			w.t.Errorf("%s %s: %q does not say %q", name, args, err, x)
		}
	}
}

func TestToolsKeepTheirPromises(t *testing.T) {
	cases := map[string][]toolstest.Case{
		"capture-pane": {
			{
				Name: "all", Args: `{"session":"one","pane":"a","start":"-","end":5,"join_wrapped_lines":true,"preserve_trailing_spaces":true,` +
					`"include_escape_sequences":true,"escape_non_printable":true,"include_alternate_screen":true,"delay":"1s"}`,
				Other: map[string]string{"session": `"two"`, "pane": `"b"`, "start": `"-5"`, "delay": `"2s"`},
			},
			{Name: "target", Args: `{"target":"%1","delay_ms":5}`, Other: map[string]string{"target": `"%2"`}},
		},
		"send-keys": {
			{
				Name: "all", Args: `{"session":"one","pane":"a","literal_text":"y","keys":["Up"],"enter":true,"delay":"1s",` + claim + `}`,
				Other: map[string]string{"session": `"two"`, "pane": `"b"`, "delay": `2`},
			},
			{Name: "target", Args: `{"target":"%1","enter":true,"literal_text":"x","delay_ms":5,` + claim + `}`, Other: map[string]string{"target": `"%2"`}},
		},
		"tmux-create-session": {{Name: "one", Args: `{"session":"one",` + claim + `}`, Other: map[string]string{"session": `"two"`}}},
		"tmux-kill-session":   {{Name: "one", Args: `{"session":"one",` + claim + `}`, Other: map[string]string{"session": `"two"`}}},
		"tmux-create-pane":    {{Name: "one", Args: `{"session":"one","pane":"new",` + claim + `}`, Other: map[string]string{"session": `"two"`}}},
		"tmux-kill-pane":      {{Name: "one", Args: `{"session":"one","pane":"a",` + claim + `}`, Other: map[string]string{"session": `"two"`, "pane": `"b"`}}},
	}
	w := newWorld(t)
	for _, s := range []string{"one", "two"} {
		w.pane(s, "a")
		w.pane(s, "b")
	}
	for _, tool := range terminal.New(terminal.Config{Target: "local", Book: w.book}) {
		t.Run(tool.Spec().Name, func(t *testing.T) {
			c, ok := cases[tool.Spec().Name]
			if !ok {
				t.Fatal("no case")
			}
			toolstest.Check(t, tool, func() int { return len(w.srv.Log()) }, c...)
		})
	}
}

func TestSpecs(t *testing.T) {
	w := newWorld(t)
	for name, level := range map[string]risk.Level{
		"capture-pane": risk.Read, "send-keys": risk.Medium, "tmux-create-session": risk.Low,
		"tmux-kill-session": risk.Medium, "tmux-create-pane": risk.Low, "tmux-kill-pane": risk.Medium,
	} {
		s, ok := w.reg.Lookup(name)
		if !ok || s.Level != level || !s.NeedsTmux {
			t.Errorf("B-64 B-80: %s: %v level %v, tmux %v", name, ok, s.Level, s.NeedsTmux)
		}
	}
	for alias, name := range map[string]string{
		"tmux_capture_pane": "capture-pane", "capture_pane": "capture-pane", "tmux_send_keys": "send-keys", "send_keys": "send-keys",
		"send_pty_input": "send-keys", "tmux_create_session": "tmux-create-session", "tmux_kill_pane": "tmux-kill-pane",
	} {
		if s, ok := w.reg.Lookup(alias); !ok || s.Name != name {
			t.Errorf("decision 1: %s is %q", alias, s.Name)
		}
	}
}

// B-87: send-keys requires them too.
// B-90, B-93, B-94, B-96.
func TestRequiredFields(t *testing.T) {
	w := newWorld(t)
	labels := []string{"risk", "mutation", "privesc", "why"}
	for name, first := range map[string]string{
		"tmux-create-session": "session", "tmux-kill-session": "session", "tmux-create-pane": "pane", "tmux-kill-pane": "pane", "send-keys": "",
	} {
		s, _ := w.reg.Lookup(name)
		var schema struct{ Required []string }
		if err := json.Unmarshal(s.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		want := labels
		if first != "" {
			want = append([]string{first}, labels...)
		}
		if !slices.Equal(schema.Required, want) {
			t.Errorf("%s requires %v", name, schema.Required)
		}
	}
}

// B-66, B-67.
func TestCaptureOfTheDefaultPane(t *testing.T) {
	w := newWorld(t)
	p := w.pane("", "shared")
	p.Screen("hello\n\n\n", "")
	out := w.run("capture-pane", `{}`)
	if out.Result.Value != "hello\n" {
		t.Errorf("%+v", out)
	}
	if want := []tmux.CaptureOptions{{Join: true}}; !slices.Equal(p.Captures(), want) {
		t.Errorf("B-70..B-74 defaults: %+v", p.Captures())
	}
}

// B-68 to B-74.
func TestOptionsReachTmux(t *testing.T) {
	w := newWorld(t)
	p := w.pane("ops", "build")
	p.Screen("x  \n\n", "")
	out := w.run("capture-pane", `{"session":"ops","pane":"build","start":"-","end":"-","join_wrapped_lines":false,"preserve_trailing_spaces":true,`+
		`"include_escape_sequences":true,"escape_non_printable":true,"include_alternate_screen":true}`)
	want := []tmux.CaptureOptions{{Start: "-", End: "-", TrailingSpaces: true, Escapes: true, EscapeNonPrintable: true, Alternate: true}}
	if !slices.Equal(p.Captures(), want) || out.Result.Value != "x  \n\n" {
		t.Errorf("%+v, %q", p.Captures(), out.Result.Value)
	}
	w.run("capture-pane", `{"session":"ops","pane":"build","start":-200,"end":"3"}`)
	if got := p.Captures()[1]; got.Start != "-200" || got.End != "3" {
		t.Errorf("%+v", got)
	}
	w.refused("capture-pane", `{"start":"first"}`, `"start"`)
}

// B-65.
func TestLegacyTarget(t *testing.T) {
	w := newWorld(t)
	p := w.pane("", "worker")
	p.Screen("worker's\n", "")
	if out := w.run("capture-pane", `{"target":"`+p.ID()+`"}`); out.Result.Value != "worker's\n" {
		t.Errorf("%+v", out)
	}
	foreign, _, err := w.book.Ensure(t.Context(), "another", "", "")
	if err != nil {
		t.Fatal(err)
	}
	hand := w.srv.Plant("byhand", nil)
	for target, say := range map[string]string{
		foreign.ID(): "another thread", hand.ID(): "not a pane of this thread", "%999": "not a pane of this thread",
		"byhand:0.0": "must be the id", "=byhand": "must be the id", "%1;kill-server": "must be the id",
	} {
		w.refused("capture-pane", `{"target":"`+target+`"}`, say)
		w.refused("send-keys", `{"target":"`+target+`","enter":true,`+claim+`}`, say)
	}
	w.refused("capture-pane", `{"target":"%1","pane":"x"}`, "not both")
}

// B-76.
func TestCaptureKeepsTheTail(t *testing.T) {
	w := newWorld(t)
	w.pane("", "shared").Screen(strings.Repeat("é", 20_000-5)+"\nend\n", "")
	got, _ := w.run("capture-pane", `{"start":"-"}`).Result.Value.(string)
	head, tail, _ := strings.Cut(got, "\n")
	if head != "[truncated 12000 chars from start]" || len([]rune(tail)) != 8000 || !strings.HasSuffix(tail, "\nend\n") {
		t.Errorf("%s, %d characters", head, len([]rune(tail)))
	}
}

// B-77.
func TestAlternateScreenNotice(t *testing.T) {
	w := newWorld(t)
	w.pane("", "shared").Screen("main\n", "There is no alternate screen now; this is the main screen.")
	out := w.run("capture-pane", `{"include_alternate_screen":true}`)
	if out.Result.Value != "main\n[notice: There is no alternate screen now; this is the main screen.]" {
		t.Errorf("%q", out.Result.Value)
	}
}

// B-78.
func TestMissingPaneFallsBackOnceToTheSharedOne(t *testing.T) {
	for _, args := range []string{`{"pane":"ghost"}`, `{"session":"ghost"}`} {
		w := newWorld(t)
		p := w.pane("", "shared")
		p.Screen("shared's\n", "")
		got, _ := w.run("capture-pane", args).Result.Value.(string)
		if !strings.HasPrefix(got, "[notice: there is no ") || !strings.HasSuffix(got, "default shared pane instead.]\nshared's\n") || !strings.Contains(got, "ghost") {
			t.Errorf("%s: %q", args, got)
		}
		if n := len(p.Captures()); n != 1 {
			t.Errorf("%s: %d captures", args, n)
		}
	}
}

// B-78.
func TestAPaneThatVanishedFallsBackToo(t *testing.T) {
	w := newWorld(t)
	worker := w.pane("", "worker")
	p := w.srv.Pane(worker.Session(), "shared")
	p.Screen("shared's\n", "")
	if err := worker.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ := w.run("capture-pane", `{"pane":"worker"}`).Result.Value.(string)
	if !strings.HasPrefix(got, "[notice: the pane worker") || !strings.HasSuffix(got, "shared's\n") || len(p.Captures()) != 1 {
		t.Errorf("%q, %d captures", got, len(p.Captures()))
	}
}

func TestCaptureOfAForeignSessionIsRefused(t *testing.T) {
	w := newWorld(t)
	if _, err := w.book.CreateSession(t.Context(), "another", "ops"); err != nil {
		t.Fatal(err)
	}
	w.refused("capture-pane", `{"session":"ops"}`, "belongs to another thread")
	w.refused("send-keys", `{"session":"ops","enter":true,`+claim+`}`, "belongs to another thread")
}

func TestCaptureBeforeTheFirstCommandOpensTheTerminal(t *testing.T) {
	w := newWorld(t)
	if out := w.run("capture-pane", `{}`); out.Err != nil || out.Result.Value != "" {
		t.Errorf("%+v", out)
	}
}

// B-75, B-84.
func TestDelayWaitsFirst(t *testing.T) {
	for args, want := range map[string]time.Duration{
		`{"delay":"2s"}`: 2 * time.Second, `{"delay":3}`: 3 * time.Second, `{"delay_ms":500}`: 500 * time.Millisecond, `{}`: 0,
	} {
		for _, tool := range []string{"capture-pane", "send-keys"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.pane("", "shared")
				a := args
				if tool == "send-keys" {
					a = strings.TrimSuffix(a, "}")
					if a != "{" {
						a += ","
					}
					a += `"enter":true,` + claim + `}`
				}
				began := time.Now()
				out := toolstest.Run(t.Context(), t, w.reg, tool, a)
				if out.Err != nil || time.Since(began) != want || len(p.Captures())+len(p.Keys()) != 1 {
					t.Errorf("%s %s: %v after %v", tool, a, out.Err, time.Since(began))
				}
			})
		}
	}
}

func TestDecision2DelaysThatCannotBe(t *testing.T) {
	w := newWorld(t)
	w.refused("capture-pane", `{"delay":"soon"}`, "no duration")
	w.refused("capture-pane", `{"delay":"11m"}`, "10m")
	w.refused("capture-pane", `{"delay":100000}`, "10m")
	w.refused("capture-pane", `{"delay":"-1s"}`, "10m")
	w.refused("capture-pane", `{"delay":"1s","delay_ms":5}`, "not both")
	w.refused("capture-pane", `{"delay_ms":-1}`, "delay_ms")
}

func TestStopEndsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, err := w.reg.Plan(t.Context(), tools.Call{Thread: thread, Name: "capture-pane", Args: []byte(`{"delay":"9m"}`)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextWithTimeout(t, time.Second)
		defer cancel()
		out := toolstest.RunPlan(ctx, t, w.reg, p)
		if !strings.Contains(out.Text, "stopped while waiting") {
			t.Error(out.Text)
		}
	})
}

// B-86: into the pane that is named.
// B-81 to B-89.
func TestSendKeys(t *testing.T) {
	for name, c := range map[string]struct {
		args, bytes, preview string
		want                 tmux.Keys
	}{
		"B-81 interrupt": {`"keys":["C-c"]`, "press C-c\n", `press C-c, into "less"`, tmux.Keys{Names: []string{"C-c"}}},
		"B-89 answer":    {`"literal_text":"yes","enter":true`, "type \"yes\"\npress Enter\n", `type "yes", then press Enter, into "less"`, tmux.Keys{Literal: "yes", Enter: true}},
		"B-89 menu":      {`"keys":["Down","Down","Enter"]`, "press Down\npress Down\npress Enter\n", `press Down, Down, Enter, into "less"`, tmux.Keys{Names: []string{"Down", "Down", "Enter"}}},
		"B-82 literal":   {`"literal_text":"C-c"`, "type \"C-c\"\n", `type "C-c", into "less"`, tmux.Keys{Literal: "C-c"}},
		"B-85 order":     {`"enter":true,"keys":["Tab"],"literal_text":"a\n\u202e"`, "type \"a\"\ntype a newline (Enter)\ntype \"\\u202e\"\npress Tab\npress Enter\n", `type "a", then type a newline (Enter), then type "\u202e", then press Tab, Enter, into "less"`, tmux.Keys{Literal: "a\n\u202e", Names: []string{"Tab"}, Enter: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.pane("", "worker")
			p.Set(func(i *tmux.Info) { i.Program = "less"; i.State = tmux.StateFullscreen })
			args := `{"pane":"worker",` + c.args + `,` + claim + `}`
			pl, err := w.plan("send-keys", args)
			if err != nil {
				t.Fatal(err)
			}
			a := pl.Action
			if a.Kind != approvals.KindKeys || a.Foreground != "less" || string(a.Bytes) != c.bytes || a.Preview != c.preview ||
				a.Pane != "worker" || a.User != "tester" || !pl.Claim.Given {
				t.Errorf("%+v %q", a, a.Bytes)
			}
			out := w.run("send-keys", args)
			if out.Result.Value != "keys sent to tmux pane "+p.ID() {
				t.Errorf("%+v", out)
			}
			if got := p.Keys(); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(c.want) {
				t.Errorf("keys %+v", got)
			}
		})
	}
}

// TestTheCardOfKeysIsPlain: nothing that is typed hides, and nothing that runs a
// command looks like something else.
func TestTheCardOfKeysIsPlain(t *testing.T) {
	w := newWorld(t)
	w.pane("", "worker").Set(func(i *tmux.Info) { i.Program = "ba\u202esh" })
	for _, tc := range []struct{ rule, args, want string }{
		{"a newline that is typed runs what stands before it", `"literal_text":"ls\nrm x"`, "type \"ls\"\ntype a newline (Enter)\ntype \"rm x\"\n"},
		{"so does a carriage return", `"literal_text":"ls\r"`, "type \"ls\"\ntype a carriage return (Enter)\n"},
		{"control characters are named", `"literal_text":"\u0003\u001b\t\u007f\u0000"`, "type the control character \\x03 (C-C)\ntype an escape character (Escape)\ntype a tab (Tab)\ntype a delete character (BSpace)\ntype the control character \\x00 (C-@)\n"},
		{"zero-width and right-to-left characters show", `"literal_text":"a\u200b\u202eb"`, "type \"a\\u200b\\u202eb\"\n"},
		{"escapes that are written out are told apart", `"literal_text":"\\u200b\""`, "type \"\\\\u200b\\\"\"\n"},
		{"a key that is a comma or a quote is quoted", `"keys":[",","\"","x"]`, "press \",\"\npress \"\\\"\"\npress x\n"},
		{"a key that cannot be seen is quoted", `"keys":["\u200b"]`, "press \"\\u200b\"\n"},
		{"other names of Enter say so", `"keys":["C-m","^J","KPEnter","C-c"]`, "press C-m (Enter)\npress ^J (Enter)\npress KPEnter (Enter)\npress C-c\n"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			p, err := w.plan("send-keys", `{"pane":"worker",`+tc.args+`,`+claim+`}`)
			if err != nil {
				t.Fatal(err)
			}
			c := card.New(approvals.Record{State: approvals.Pending, Action: p.Action}, "")
			if c.Code != tc.want {
				t.Fatalf("%q", c.Code)
			}
			if strings.ContainsAny(c.Code+strings.Join(c.Preview, ""), "\u200b\u202e\x1b\r\t") || len(c.Preview) != 1 {
				t.Fatalf("%q %q", c.Code, c.Preview)
			}
			fields := fmt.Sprint(c.Details)
			if !strings.Contains(fields, `{Program in front ba\u{202E}sh}`) || !strings.Contains(fields, "Pane") {
				t.Fatalf("%s", fields)
			}
		})
	}
}

func TestDifferentKeysHaveDifferentCards(t *testing.T) {
	texts := rapid.StringOfN(rapid.SampledFrom([]rune("a\n\r\t\"\\,\u200b")), 0, 5, -1)
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"Enter", ",", "\"", "C-m", "x", "a", "Tab"}), 0, 3)
	w := newWorld(t)
	w.pane("", "worker")
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(n string) (string, string) {
			args, err := json.Marshal(map[string]any{
				"pane": "worker", "literal_text": texts.Draw(rt, n+" text"), "keys": names.Draw(rt, n+" keys"),
				"risk": "low", "mutation": true, "privesc": false, "why": "test",
			})
			if err != nil {
				rt.Fatal(err)
			}
			p, err := w.plan("send-keys", string(args))
			if err != nil {
				return string(args), string(args) // nothing to press
			}
			return string(args), card.New(approvals.Record{State: approvals.Pending, Action: p.Action}, "").Code
		}
		argsA, cardA := draw("first")
		argsB, cardB := draw("second")
		if (argsA == argsB) != (cardA == cardB) {
			rt.Fatalf("%s and %s have the cards %q and %q", argsA, argsB, cardA, cardB)
		}
	})
}

func TestCardsOfSessionsAndPanes(t *testing.T) {
	w := newWorld(t)
	w.pane("one", "a")
	for name, tc := range map[string]struct{ args, code, body string }{
		"tmux-create-session": {`"session":"new"`, `tmux-create-session {"session":"new"}`, "make the tmux session countersign-ops-new, or use it if it is there"},
		"tmux-kill-session":   {`"session":"one"`, `tmux-kill-session {"session":"one"}`, "end the tmux session countersign-ops-one and everything that runs in it"},
		"tmux-create-pane":    {`"session":"one","pane":"b"`, `tmux-create-pane {"pane":"b","session":"one"}`, "make the pane b in the tmux session countersign-ops-one, or use it if it is there"},
		"tmux-kill-pane":      {`"session":"one","pane":"a"`, `tmux-kill-pane {"pane":"a","session":"one"}`, "end the pane a of the tmux session countersign-ops-one and what runs in it"},
	} {
		p, err := w.plan(name, `{`+tc.args+`,`+claim+`}`)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c := card.New(approvals.Record{State: approvals.Pending, Action: p.Action}, "")
		if c.Code != tc.code || !slices.Contains(c.Preview, tc.body) || !strings.Contains(fmt.Sprint(c.Details), "countersign-ops-") {
			t.Errorf("%s: %q, %q, %v", name, c.Code, c.Preview, c.Details)
		}
	}
}

func TestKeysThatAreNone(t *testing.T) {
	w := newWorld(t)
	w.refused("send-keys", `{`+claim+`}`, "nothing to press")
	for _, k := range []string{"hello", "", "C-", "C-cc", "Enter ", "F13", " ", "\u0001", "-t", ";x"} {
		b, _ := json.Marshal(k)
		w.refused("send-keys", `{"keys":[`+string(b)+`],`+claim+`}`, "no name of a key")
	}
	for _, k := range []string{"C-c", "c-C", "M-x", "C-M-Left", "^C", "Enter", "enter", "y", "é", ";", "F12", "BSpace", "KP5", "PageUp"} {
		b, _ := json.Marshal(k)
		if _, err := w.plan("send-keys", `{"keys":[`+string(b)+`],`+claim+`}`); err != nil {
			t.Errorf("%q: %v", k, err)
		}
	}
}

// B-88.
func TestMissingPaneIsAHardErrorForKeys(t *testing.T) {
	w := newWorld(t)
	shared := w.pane("", "shared")
	for _, sel := range []string{`"pane":"ghost"`, `"session":"ghost"`} {
		w.refused("send-keys", `{`+sel+`,"keys":["C-c"],`+claim+`}`, "ghost")
	}
	worker := w.pane("", "worker")
	p, err := w.plan("send-keys", `{"pane":"worker","keys":["C-c"],`+claim+`}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := toolstest.RunPlan(t.Context(), t, w.reg, p)
	if !strings.HasPrefix(out.Text, "Tool error: no key was pressed") {
		t.Error(out.Text)
	}
	w.refused("send-keys", `{"pane":"worker","keys":["C-c"],`+claim+`}`, "does not exist now")
	if len(shared.Keys()) != 0 {
		t.Errorf("the shared pane got %v", shared.Keys())
	}
}

func TestKeysForAnotherProgramAreNotPressed(t *testing.T) {
	w := newWorld(t)
	p := w.pane("", "shared")
	p.Set(func(i *tmux.Info) { i.Program = "less" })
	pl, err := w.plan("send-keys", `{"keys":["q"],`+claim+`}`)
	if err != nil {
		t.Fatal(err)
	}
	p.Set(func(i *tmux.Info) { i.Program = "psql" })
	out := toolstest.RunPlan(t.Context(), t, w.reg, pl)
	if !strings.Contains(out.Text, `now runs "psql"`) || len(p.Keys()) != 0 {
		t.Errorf("%s, keys %v", out.Text, p.Keys())
	}
	again, err := w.plan("send-keys", `{"keys":["q"],`+claim+`}`)
	if err != nil || again.Action.Digest() == pl.Action.Digest() {
		t.Errorf("another program gives the same digest (%v)", err)
	}
}

// B-90.
func TestCreateSaysWhetherItMadeOrReused(t *testing.T) {
	w := newWorld(t)
	first := w.run("tmux-create-session", `{"session":"Ops Prod!",`+claim+`}`)
	second := w.run("tmux-create-session", `{"session":"ops-prod",`+claim+`}`)
	if !strings.Contains(first.Text, `"message":"created tmux session countersign-ops-ops-prod","session":"countersign-ops-ops-prod","pane":"shared","pane_id":"%1","reused":false,"attach":"tmux `) {
		t.Error(first.Text)
	}
	if !strings.Contains(second.Text, `"message":"reused the existing tmux session`) || !strings.Contains(second.Text, `"reused":true`) {
		t.Error(second.Text)
	}
	third := w.run("tmux-create-pane", `{"session":"ops-prod","pane":"My Worker",`+claim+`}`)
	fourth := w.run("tmux-create-pane", `{"session":"ops-prod","pane":"my-worker",`+claim+`}`)
	if !strings.Contains(third.Text, "created pane my-worker in the tmux session countersign-ops-ops-prod") || !strings.Contains(fourth.Text, "reused the existing pane") {
		t.Errorf("B-94: %s %s", third.Text, fourth.Text)
	}
}

// B-92, B-95.
func TestLimitsAreSaidBeforeAnybodyIsAsked(t *testing.T) {
	w := newWorld(t)
	for _, s := range []string{"a", "b"} {
		w.run("tmux-create-session", `{"session":"`+s+`",`+claim+`}`)
	}
	w.refused("tmux-create-session", `{"session":"c",`+claim+`}`, "max_sessions")
	for i := range 5 {
		w.run("tmux-create-pane", fmt.Sprintf(`{"pane":"p%d",%s}`, i, claim))
	}
	w.refused("tmux-create-pane", `{"pane":"p5",`+claim+`}`, "max_panes")
}

// B-93, B-96.
func TestKill(t *testing.T) {
	w := newWorld(t)
	w.pane("ops", "worker")
	w.pane("", "shared")
	w.srv.Plant("byhand", nil)
	w.refused("tmux-kill-session", `{"session":"default",`+claim+`}`, "protected")
	w.refused("tmux-kill-session", `{"session":"byhand",`+claim+`}`, "not managed")
	w.refused("tmux-kill-pane", `{"pane":"shared",`+claim+`}`, "protected")
	w.refused("tmux-kill-pane", `{"session":"ops","pane":"shared",`+claim+`}`, "protected")
	w.refused("tmux-kill-pane", `{"pane":"ghost",`+claim+`}`, "ghost")
	if out := w.run("tmux-kill-pane", `{"session":"ops","pane":"worker",`+claim+`}`); out.Result.Value != "killed pane worker of the tmux session countersign-ops-ops" {
		t.Errorf("%+v", out)
	}
	if out := w.run("tmux-kill-session", `{"session":"ops",`+claim+`}`); out.Result.Value != "killed tmux session countersign-ops-ops" {
		t.Errorf("%+v", out)
	}
	if w.srv.Pane("countersign-ops-ops", "shared") != nil || w.srv.Pane("byhand", "shared") == nil {
		t.Error(w.srv.Log())
	}
	for _, name := range []string{"tmux-kill-session", "tmux-kill-pane", "tmux-create-session", "tmux-create-pane"} {
		args := `{"session":"new","pane":"x",` + claim + `}`
		if strings.HasSuffix(name, "session") {
			args = `{"session":"new",` + claim + `}`
		}
		if p, err := w.plan(name, args); err == nil && p.Action.Kind != approvals.KindChange {
			t.Errorf("%s is of kind %s", name, p.Action.Kind)
		}
	}
}

func TestAFailureOfTmuxIsASentence(t *testing.T) {
	w := newWorld(t)
	w.srv.Fail = func(string) error { return errors.New("tmux: server exited") }
	if out := w.run("tmux-create-session", `{"session":"ops",`+claim+`}`); out.Text != "Tool error: tmux: server exited" {
		t.Error(out.Text)
	}
}
