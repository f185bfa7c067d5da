// Package sdk shows how a program of your own uses the bot's packages: a tool that is
// compiled in, a registry, a model and an agent. It has no networks and no approvals:
// its gate lets tools run that can only look, and refuses everything else. cmd/bot is
// the whole bot.
package sdk_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
	"countersign/tools"
	"countersign/tools/clock"
	"countersign/tools/plugin"
)

// weather is a tool that takes its time and says so meanwhile.
type weather struct {
	mu     sync.Mutex
	asked  []string // the cities
	lookup func()   // what takes time
}

const about = `Tell the weather of a city.

## When to use
To know the weather now.

## When NOT to use
For a forecast.

## Disambiguation
web_search finds pages; weather gives one number.

## Examples
{"city": "Paris"}
`

// Spec implements tools.Tool.
func (*weather) Spec() tools.Spec {
	return tools.Spec{
		Name: "weather", Level: risk.Read, Description: about,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"city": {Type: "string", Description: "The city"},
				"unit": {Type: "string", Description: "The unit of the answer", Enum: []string{"celsius", "kelvin"}},
			},
			Required: []string{"city"},
		}),
	}
}

// Plan implements tools.Tool. It has no effect; what it returns runs with a permit.
func (w *weather) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct{ City, Unit string }
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{Tool: "weather", Kind: approvals.KindObserve, Target: "harness", Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(_ context.Context, s tools.Sink) (tools.Result, error) {
		s(tools.Event{Kind: tools.Started})
		s(tools.Event{Kind: tools.Info, Text: "Fetching weather for " + args.City})
		defer s(tools.Event{Kind: tools.Completed})
		w.mu.Lock()
		w.asked = append(w.asked, args.City)
		w.mu.Unlock()
		w.lookup()
		if args.City == "Atlantis" {
			return tools.Result{Value: "there is no such city", Failed: true}, nil
		}
		return tools.Result{Value: "18 degrees"}, nil
	}), nil
}

// looking is a gate that permits what can only look and asks nobody.
type looking struct {
	agent.Requests
	agent.Permits
	agent.Terms
}

func (looking) Judge(_ context.Context, p approvals.Request) approvals.Ruling {
	if p.Floor != risk.Read {
		return approvals.Ruling{Lane: approvals.Forbid, Sentence: "this program only looks"}
	}
	permit, err := approvals.Ledger{}.Observe(p.Action, risk.Verdict{})
	if err != nil {
		return approvals.Ruling{Lane: approvals.Forbid, Sentence: err.Error()}
	}
	return approvals.Ruling{Lane: approvals.Allow, Permit: permit}
}
func (looking) Heard(context.Context, chat.ThreadID, chat.User, string) error { return nil }
func (looking) Allowed(store.Tx, approvals.Request)                           {}
func (looking) Ran(store.Tx, approvals.Request, approvals.Outcome)            {}
func (looking) Forbidden(store.Tx, approvals.Request)                         {}
func (looking) Revoke(store.Tx, chat.ThreadID, chat.User) int                 { return 0 }
func (looking) Ask(_ store.Tx, _ approvals.Request) (none approvals.Record)   { return none }

// catalogue shows a registry to the agent.
type catalogue struct{ *tools.Registry }

func (c catalogue) Specs(_ chat.ThreadID, _, _ string) (out []llm.ToolSpec) {
	for _, s := range c.Registry.Specs(nil) {
		out = append(out, llm.ToolSpec{Name: s.Name, Description: s.Description, Schema: s.Schema})
	}
	return out
}

// console prints what the agent says.
type console struct {
	mu    sync.Mutex
	lines []string
	end   chan struct{} // closed at the word "over"
}

func (c *console) Put(_ store.Tx, _ chat.ThreadID, p chat.Post) { c.print("says " + p.Text) }
func (c *console) Wake(chat.ThreadID)                           {}
func (c *console) Show(_ context.Context, _ chat.ThreadID, p chat.Progress) {
	c.print("shows " + p.Status + " " + p.Text)
}

func (c *console) print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
	if line == "says over" {
		close(c.end)
	}
}

// at is the place of the first line with a text, or -1.
func (c *console) at(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.IndexFunc(c.lines, func(l string) bool { return strings.Contains(l, text) })
}

// forecaster says who the agent is.
type forecaster struct{ agent.Desk }

func (forecaster) Prompt(_ chat.ThreadID, _, _ string) string      { return "You know the weather." }
func (forecaster) Profile(chat.ThreadID, string) (p agent.Profile) { return p }

// converse makes an agent of a model and tools, and plays one turn.
func converse(t *testing.T, out *console, model llm.Model, ts ...tools.Tool) {
	t.Helper()
	reg, err := tools.NewRegistry(time.Now, ts...)
	if err != nil {
		t.Fatal(err)
	}
	bot := agent.New(agent.Config{
		DB: mem.Open(), Model: model, Tools: catalogue{reg}, Rulings: looking{}, Requests: looking{}, Permits: looking{}, Terms: looking{}, Outbox: out, Desk: forecaster{},
		Owner: "example", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Limits: agent.Limits{Steps: 10},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- bot.Run(ctx) }()
	if err := bot.Deliver(ctx, chat.Event{ID: "1", Thread: "web:1", From: chat.User{ID: "web:you", Name: "you"}, Text: "hello", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	<-out.end
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func call(id, name, args string) llm.Call { return llm.Call{ID: id, Name: name, Args: args} }

// told are the results of calls in the last request.
func told(s *llm.Script) (out []string) {
	all := s.Requests()
	for _, it := range all[len(all)-1].Items {
		if it.Role == llm.Tool {
			out = append(out, it.Text)
		}
	}
	return out
}

// N-47, N-48, N-51: a tool of your own, its schema, a registry and an agent.
// N-49, N-50.
func TestAToolOfYourOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &console{end: make(chan struct{})}
		var shown []int // where people saw it, while it was still being looked up
		w := &weather{lookup: func() {
			time.Sleep(3 * time.Second)
			shown = append(shown, out.at("Fetching weather for Paris"))
		}}
		model := llm.NewScript(
			llm.Ask(call("a", "weather", `{"city":"Paris"}`)), llm.Ask(call("b", "weather", `{"city":"Atlantis"}`)),
			llm.Ask(call("c", "weather", `{"unit":"kelvin"}`)), llm.Ask(call("d", "weather", `{"city":"Rome","unit":"rankine"}`)), llm.Say("over"),
		)
		converse(t, out, model, w)

		// What it does is shown before it has a result.
		if len(shown) == 0 || shown[0] < 0 || out.at("18 degrees") < shown[0] {
			t.Errorf("shown at %d: %q", shown, out.lines)
		}
		got := told(model)
		if len(got) != 4 || !strings.Contains(got[0], `"result":"18 degrees"`) {
			t.Fatalf("%q", got)
		}
		// A result that reports a failure is a result.
		if !strings.Contains(got[1], `"result":"there is no such city"`) {
			t.Errorf("%q", got[1])
		}
		// N-59 to N-61: what the schema refuses never reaches the tool.
		if !strings.HasPrefix(got[2], `Tool error: validation error: missing required parameter "city"`) {
			t.Errorf("%q", got[2])
		}
		if !strings.HasPrefix(got[3], `Tool error: validation error: "unit" must be celsius or kelvin, not "rankine"`) {
			t.Errorf("%q", got[3])
		}
		if !slices.Equal(w.asked, []string{"Paris", "Atlantis"}) {
			t.Errorf("the tool was asked for %q", w.asked)
		}
		// The model sees the schema that the helpers made.
		const schema = `{"type":"object","properties":{"city":{"type":"string","description":"The city"},"unit":{"type":"string","description":"The unit of the answer","enum":["celsius","kelvin"]}},"required":["city"],"additionalProperties":false}`
		if specs := model.Requests()[0].Tools; len(specs) != 1 || string(specs[0].Schema) != schema {
			t.Errorf("the tools are %+v", specs)
		}
	})
}

// A tool of the bot, one of a plugin and one that is compiled in, in one turn.
// N-01.
func TestThreeKindsOfTools(t *testing.T) {
	path, err := filepath.Abs("../plugins/sh/plugin.sh")
	if err != nil {
		t.Fatal(err)
	}
	host, err := plugin.New(t.Context(), plugin.Config{
		Plugins: []plugin.Plugin{{Name: "disks", Path: path, Tools: map[string]risk.Level{"disk_free": risk.Read}}},
		DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	model := llm.NewScript(llm.Ask(call("a", "time", `{}`), call("b", "disk_free", `{"path":"/"}`), call("c", "weather", `{"city":"Paris"}`)), llm.Say("over"))
	converse(t, &console{end: make(chan struct{})}, model, append(host.Tools(), clock.New(time.Now), &weather{lookup: func() {}})...)
	got := told(model)
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	for i, want := range []string{`"iso_8601_utc":`, "Mounted on", `"18 degrees"`} {
		if !strings.HasPrefix(got[i], `{"harness_timestamp":`) || !strings.Contains(got[i], want) {
			t.Errorf("the model was told %q, want %q", got[i], want)
		}
	}
}
