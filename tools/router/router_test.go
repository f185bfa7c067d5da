package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/router"
)

const guidance = "Does things.\n\n## When to use\na\n\n## When NOT to use\nb\n\n## Disambiguation\nc\n\n## Examples\nd\n"

// spy is a tool of one machine.
type spy struct{ name, machine string }

func (s spy) Spec() tools.Spec {
	props := map[string]tools.Property{"x": {Type: "string"}}
	if s.name == "keys" {
		props["target"] = tools.Property{Type: "string", Description: "A pane."}
	}
	return tools.Spec{Name: s.name, Description: guidance, Level: risk.Read, Schema: tools.MustSchema(tools.SimpleSchema{Properties: props})}
}

func (s spy) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	return tools.Planned(approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: s.machine, Args: c.Args}, approvals.Claim{}, nil), nil
}

func TestACallGoesToTheTargetThatItNamesOrTheThreadsOwn(t *testing.T) {
	cfg := router.Config{
		Names: []string{"local", "web-1", "down", "bare", "secret"},
		Current: func(_ context.Context, thread string) (string, error) {
			return map[string]string{"a": "local", "b": "web-1"}[thread], nil
		},
		Allowed: func(c tools.Call, target string) string {
			if target == "secret" && c.By != "ann" {
				return "only ann may use secret"
			}
			return ""
		},
		Open: func(_ context.Context, target string) (map[string]tools.Tool, error) {
			switch target {
			case "down":
				return nil, errors.New("no route")
			case "bare":
				return map[string]tools.Tool{"shell": spy{"shell", target}}, nil
			}
			return map[string]tools.Tool{"shell": spy{"shell", target}, "keys": spy{"keys", target}}, nil
		},
	}
	reg, err := tools.NewRegistry(time.Now, router.New(cfg, []tools.Tool{spy{name: "shell"}, spy{name: "keys"}})...)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ thread, by, tool, args, target, left, err string }{
		"the thread's own target":            {"b", "", "shell", `{"x":"1"}`, "web-1", `{"x":"1"}`, ""},
		"the target that is named":           {"a", "", "shell", `{"x":"1","target":"web-1"}`, "web-1", `{"x":"1"}`, ""},
		"one that does not exist":            {"a", "", "shell", `{"target":"web-9"}`, "", "", `"target" must be`},
		"one that somebody may not use":      {"a", "bob", "shell", `{"target":"secret"}`, "", "", "only ann may use secret"},
		"one that somebody may use":          {"a", "ann", "shell", `{"target":"secret"}`, "secret", `{}`, ""},
		"one that cannot be reached":         {"a", "", "shell", `{"target":"down"}`, "", "", "the target down cannot be used now: no route"},
		"a tool that a target does not have": {"a", "", "keys", `{"target":"bare"}`, "", "", "has no tmux"},
		"a tool's own target argument":       {"a", "", "keys", `{"target":"%3"}`, "local", `{"target":"%3"}`, ""},
		"a machine in a tool's own argument": {"a", "", "keys", `{"target":"web-1","x":"1"}`, "web-1", `{"x":"1"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := reg.Plan(t.Context(), tools.Call{Thread: tt.thread, By: tt.by, Name: tt.tool, Args: json.RawMessage(tt.args)})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || p.Action.Target != tt.target || string(p.Action.Args) != tt.left {
				t.Errorf("%s on %q, %v; want %s on %q", p.Action.Args, p.Action.Target, err, tt.left, tt.target)
			}
		})
	}
}

func TestOneTargetNeedsNoArgument(t *testing.T) {
	got := router.New(router.Config{Names: []string{"local"}}, []tools.Tool{spy{name: "shell"}})[0].Spec()
	if string(got.Schema) != string(spy{name: "shell"}.Spec().Schema) {
		t.Errorf("schema %s", got.Schema)
	}
}
