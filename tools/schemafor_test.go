package tools_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"countersign/approvals/risk"
	"countersign/tools"
)

type forecast struct {
	City  string   `json:"city" jsonschema:"The city to look up."`
	Unit  string   `json:"unit" enum:"celsius,fahrenheit" default:"celsius" jsonschema:"The unit of the answer."`
	Days  int      `json:"days" default:"1" jsonschema:"How many days."`
	Tags  []string `json:"tags,omitempty" jsonschema:"Words to look for."`
	Exact bool     `json:"exact" jsonschema:"Whether the name is exact."`
	inner int
}

// TestSchemaFromAStruct: name, description, types, a text for each parameter, and
// required are the parameters without a default. It is a snapshot.
//
func TestSchemaFromAStruct(t *testing.T) {
	const want = `{"type":"object","properties":{` +
		`"city":{"type":"string","description":"The city to look up."},` +
		`"unit":{"type":"string","description":"The unit of the answer.","default":"celsius","enum":["celsius","fahrenheit"]},` +
		`"days":{"type":"integer","description":"How many days.","default":1},` +
		`"tags":{"type":["null","array"],"items":{"type":"string"},"description":"Words to look for."},` +
		`"exact":{"type":"boolean","description":"Whether the name is exact."}},` +
		`"required":["city","exact"],"additionalProperties":false}`
	got := tools.SchemaFor[forecast]()
	if string(got) != want {
		t.Errorf("the schema is\n%s\nwant\n%s", got, want)
	}
	_ = forecast{}.inner

	// The registry takes it, fills in the defaults, and refuses what it does not allow.
	seen := ""
	reg, err := tools.NewRegistry(time.Now, looker{got, &seen})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Plan(t.Context(), tools.Call{Name: "weather", Args: json.RawMessage(`{"city":"Oslo","exact":true}`)}); err != nil {
		t.Fatal(err)
	}
	if want := `{"city":"Oslo","days":1,"exact":true,"unit":"celsius"}`; seen != want {
		t.Errorf("the tool sees %s, want %s", seen, want)
	}
	for rule, args := range map[string]string{
		"a missing one": `{"exact":true}`, "a wrong word": `{"city":"x","exact":true,"unit":"kelvin"}`,
		"a wrong type": `{"city":"x","exact":true,"days":"1"}`, "an unknown one": `{"city":"x","exact":true,"zip":1}`,
	} {
		if _, err := reg.Plan(t.Context(), tools.Call{Name: "weather", Args: json.RawMessage(args)}); err == nil {
			t.Errorf("%s is accepted", rule)
		}
	}
}

func TestASchemaThatSaysTooLittleIsAMistakeInTheProgram(t *testing.T) {
	for rule, f := range map[string]func(){
		"no description": func() {
			tools.SchemaFor[struct {
				A string `json:"a"`
			}]()
		},
		"a default of another type": func() {
			tools.SchemaFor[struct {
				A int `json:"a" default:"x" jsonschema:"A."`
			}]()
		},
		"no struct": func() { tools.SchemaFor[string]() },
		"a type without a schema": func() {
			tools.SchemaFor[struct {
				A chan int `json:"a" jsonschema:"A."`
			}]()
		},
	} {
		t.Run(rule, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was accepted")
				}
			}()
			f()
		})
	}
}

type looker struct {
	schema json.RawMessage
	seen   *string
}

func (l looker) Spec() tools.Spec {
	return tools.Spec{Name: "weather", Level: risk.Read, Description: "Weather.\n\n## When to use\nx\n## When NOT to use\nx\n## Disambiguation\nx\n## Examples\nx\n", Schema: l.schema}
}

func (l looker) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	*l.seen = string(c.Args)
	return tools.Plan{}, nil
}
