package tools

import (
	"bytes"
	"encoding/json"
	"strings"
)

// untoldKeywords are schema keywords that models are not shown. They cost tokens in every request,
// and a call that violates one gets an error message.
var untoldKeywords = []string{"pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "additionalProperties"}

// trimSchema returns a schema without the parts that models do not need.
func trimSchema(schema json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(schema, &m) != nil || m == nil {
		return schema
	}
	for _, k := range untoldKeywords {
		delete(m, k)
	}
	if d := string(m["default"]); d == "false" || d == `""` {
		delete(m, "default")
	}
	var props map[string]json.RawMessage
	if json.Unmarshal(m["properties"], &props) == nil && props != nil {
		for name, p := range props {
			props[name] = trimSchema(p)
		}
		m["properties"] = encodeOr(props, m["properties"])
	}
	if items, ok := m["items"]; ok {
		m["items"] = trimSchema(items)
	}
	return encodeOr(m, schema)
}

// trimDescription returns a description without list markers, and without blank lines in examples
// and between paragraphs.
func trimDescription(description string) string {
	var lines []string
	for l := range strings.SplitSeq(description, "\n") {
		if l == "" {
			continue
		}
		l = strings.TrimPrefix(l, "- ")
		if strings.HasPrefix(l, "{") && strings.HasSuffix(l, "}") {
			var b bytes.Buffer
			if json.Compact(&b, []byte(l)) == nil {
				l = b.String()
			}
		}
		lines = append(lines, l)
	}
	return strings.Join(lines, "\n")
}

func encodeOr(m map[string]json.RawMessage, otherwise json.RawMessage) json.RawMessage {
	b, err := json.Marshal(m)
	if err != nil {
		return otherwise
	}
	return b
}
