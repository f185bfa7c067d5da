package toolsdoc

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/approvals/risk"
	"countersign/tools"
)

func TestArguments(t *testing.T) {
	for _, c := range []struct{ rule, schema, want string }{
		{"a tool without arguments says so", `{"type":"object"}`, "It has no arguments of its own."},
		{"needed arguments come first, in their order", `{"properties":{"a":{"type":"string"},"z":{"type":"string"},"m":{"type":"string"}},"required":["z","m"]}`,
			"| `z` | string | yes |  |  |  |\n| `m` | string | yes |  |  |  |\n| `a` | string |  |  |  |  |"},
		{"limits are words", `{"properties":{"n":{"type":"integer","minimum":1,"maximum":20,"default":8}}}`, "| `n` | integer |  | `8` | 1 to 20 |  |"},
		{"one bound is one bound", `{"properties":{"n":{"type":"integer","minimum":0}}}`, "| at least 0 |"},
		{"lengths are characters", `{"properties":{"s":{"type":"string","minLength":1,"maxLength":9,"pattern":"\\S"}}}`, "| 1 to 9 characters; not blank |"},
		{"a pattern is code", `{"properties":{"s":{"type":"string","pattern":"^a|b$"}}}`, "fits `^a\\|b$`"},
		{"words are listed, the empty one by name", `{"properties":{"s":{"type":"string","enum":["x",""]}}}`, "| `x`, empty |"},
		{"several types", `{"properties":{"s":{"type":["string","integer"]}}}`, "| string or integer |"},
		{"lists say what of", `{"properties":{"s":{"type":"array","maxItems":3,"items":{"type":"string","maxLength":5}}}}`, "| array of string |  |  | at most 3 items; each at most 5 characters |"},
		{"the four claims are one word", `{"properties":{"risk":{"type":"string"},"mutation":{"type":"boolean"},"privesc":{"type":"boolean"},"why":{"type":"string"},"a":{"type":"string"}},"required":["a","risk","mutation","privesc","why"]}`,
			"|---|---|---|---|---|---|\n| `a` | string | yes |  |  |  |\n"},
		{"a lone risk is an argument", `{"properties":{"risk":{"type":"string"}},"required":["risk"]}`, "| `risk` |"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p, err := read(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			if got := p.table(); !strings.Contains(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if strings.Contains(c.rule, "four claims") && strings.Contains(p.table(), "mutation") {
				t.Error("the claims are listed")
			}
		})
	}
}

// TestACellIsOneCell: whatever a description says, it ends neither its line nor its
// cell, and outside of code it makes no markup.
func TestACellIsOneCell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.RuneFrom([]rune("ab `|*_<[\\\n\t"))).Draw(t, "s")
		got := prose(s)
		if strings.Contains(got, "\n") {
			t.Fatalf("%q has a line break", got)
		}
		if n := strings.Count(strings.NewReplacer(`\\`, "", `\|`, "").Replace(got), "|"); n > 0 {
			t.Fatalf("%q ends its cell", got)
		}
	})
}

type stub struct{ name string }

func (s stub) Spec() tools.Spec {
	return tools.Spec{
		Name: s.name, Level: risk.Read, Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`),
		Description: "Looks.\n\n## When to use\n- a\n\n## When NOT to use\n- b\n\n## Disambiguation\n- c\n\n## Examples\n- {}\n",
	}
}

func (stub) Plan(context.Context, tools.Call) (tools.Plan, error) { return tools.Plan{}, nil }

func TestEveryToolHasAGroupAndEveryGroupItsTools(t *testing.T) {
	var all []tools.Tool
	for _, g := range groups() {
		for _, n := range g.tools {
			all = append(all, stub{n})
		}
	}
	for _, c := range []struct {
		rule string
		list []tools.Tool
		want string
	}{
		{"all of them", all, ""},
		{"a new one is missed", append(slices.Clip(all), stub{"fly"}), "fly is in no group"},
		{"one that is gone is named", all[1:], "names " + all[0].Spec().Name},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r, err := tools.NewRegistry(time.Now, c.list...)
			if err != nil {
				t.Fatal(err)
			}
			text, err := Markdown(r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if c.want == "" && strings.Count(text, "\n### ") != len(all) {
				t.Errorf("%d sections, want %d", strings.Count(text, "\n### "), len(all))
			}
		})
	}
}
