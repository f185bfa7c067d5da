package tools

import (
	"bytes"
	"encoding/json"
	"strings"
)

// limits are the keywords of a schema that a model is not told: a call that breaks one is
// answered with a sentence, and they cost tokens in every request.
var limits = []string{"pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "additionalProperties"}

// trimSchema returns a schema without the parts that models do not need.
func trimSchema(schema json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(schema, &m) != nil || m == nil {
		return schema
	}
	for _, k := range limits {
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
		m["properties"] = encoded(props, m["properties"])
	}
	if items, ok := m["items"]; ok {
		m["items"] = trimSchema(items)
	}
	return encoded(m, schema)
}

// trimText is a description without the marks of its lists and the blanks of its examples
// and between its paragraphs.
func trimText(description string) string {
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

func encoded(m map[string]json.RawMessage, otherwise json.RawMessage) json.RawMessage {
	b, err := json.Marshal(m)
	if err != nil {
		return otherwise
	}
	return b
}
