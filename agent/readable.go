package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// readable formats a JSON value for people: one name and value per line, without empty
// values. Text that is not JSON is returned unchanged.
func readable(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // as it was written
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	var b strings.Builder
	writeReadable(&b, v, "")
	return strings.TrimRight(b.String(), "\n")
}

func writeReadable(b *strings.Builder, v any, indent string) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			name := indent + strings.ReplaceAll(k, "_", " ") + ":"
			switch x := v[k].(type) {
			case nil:
			case map[string]any, []any:
				var in strings.Builder
				writeReadable(&in, x, indent+"  ")
				if in.Len() > 0 {
					b.WriteString(name + "\n" + in.String())
				}
			case string:
				switch {
				case x == "":
				case strings.Contains(strings.TrimRight(x, "\n"), "\n"):
					b.WriteString(name + "\n" + indented(x, indent+"  "))
				default:
					b.WriteString(name + " " + strings.TrimRight(x, "\n") + "\n")
				}
			default:
				fmt.Fprintf(b, "%s %v\n", name, x)
			}
		}
	case []any:
		for _, x := range v {
			if line, ok := oneLiner(x); ok {
				b.WriteString(indent + "- " + line + "\n")
				continue
			}
			b.WriteString(indent + "-\n")
			writeReadable(b, x, indent+"  ")
		}
	case string:
		b.WriteString(indented(v, indent))
	case nil:
	default:
		fmt.Fprintf(b, "%s%v\n", indent, v)
	}
}

// oneLiner formats a value on one line. ok is false if it does not fit on one.
func oneLiner(v any) (line string, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		var all []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch x := v[k].(type) {
			case map[string]any, []any:
				return "", false
			case nil:
				continue
			case string:
				if x == "" {
					continue
				}
				if strings.Contains(x, "\n") {
					return "", false
				}
			}
			all = append(all, fmt.Sprintf("%s: %v", strings.ReplaceAll(k, "_", " "), v[k]))
		}
		return strings.Join(all, ", "), true
	case []any:
		return "", false
	case string:
		return v, !strings.Contains(v, "\n")
	}
	return fmt.Sprint(v), true
}

func indented(s, indent string) string {
	return indent + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+indent) + "\n"
}
