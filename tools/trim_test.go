package tools

import "testing"

func TestModelsAreNotToldTheLimitsOfASchema(t *testing.T) {
	in := `{"type":"object","additionalProperties":false,"required":["pattern"],"properties":{"pattern":{"type":"string","pattern":"x","maxLength":9,"description":"d"},` +
		`"steps":{"type":"array","maxItems":3,"items":{"type":"object","additionalProperties":false,"properties":{"minimum":{"type":"integer","minimum":1}}}}}}`
	want := `{"properties":{"pattern":{"description":"d","type":"string"},"steps":{"items":{"properties":{"minimum":{"type":"integer"}},"type":"object"},"type":"array"}},"required":["pattern"],"type":"object"}`
	if got := string(trimSchema([]byte(in))); got != want {
		t.Errorf("%s", got)
	}
	if got := trimDescription("Looks.\n## Examples\n- {\"a\": 1, \"b\": \"x y\"}\n- not {this}\n"); got != "Looks.\n## Examples\n{\"a\":1,\"b\":\"x y\"}\nnot {this}" {
		t.Error(got)
	}
	if got := string(trimSchema([]byte(`true`))); got != "true" {
		t.Error(got)
	}
}
