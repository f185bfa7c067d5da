package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"countersign/tools"
)

// MaxSchema is the largest schema that a model is shown, in bytes.
const MaxSchema = 64 << 10

const (
	maxNote  = 1 << 10 // bytes of a description inside a schema
	maxDepth = 32      // levels of JSON in a schema
	maxNodes = 20_000  // nodes of a schema with its references followed
)

// Decode decodes one JSON value and keeps numbers as they were written.
func Decode(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after its end")
	}
	return v, nil
}

// Schema limits a JSON Schema, cleans the texts in it and writes it in a form that models' servers take. An error is the end of a sentence about
// the tool. It allows all keywords since draft 6 except those that change what a reference means,
// and references within the schema unless they are recursive: checking arguments against a
// recursive schema can take unbounded time. It does not compile the schema; the registry does. doc
// is the same schema, decoded.
func Schema(raw json.RawMessage) (schema json.RawMessage, doc map[string]any, err error) {
	if len(raw) > MaxSchema {
		return nil, nil, fmt.Errorf("its schema has %d bytes, and may have %d", len(raw), MaxSchema)
	}
	v, err := Decode(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("its schema is not JSON: %w", err)
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, nil, errors.New("its schema is not an object")
	}
	if s, _ := doc["$schema"].(string); strings.Contains(s, "draft-04") || strings.Contains(s, "draft-03") {
		return nil, nil, errors.New("its schema is of a draft before 6; write it for draft 7 or 2020-12")
	}
	// A reference into alternatives counts them.
	portable(doc, !bytes.Contains(raw, []byte("/anyOf/")) && !bytes.Contains(raw, []byte("/oneOf/")))
	if doc["type"] == nil && doc["$ref"] == nil {
		doc["type"] = "object"
	}
	if doc["type"] == "object" && doc["properties"] == nil {
		doc["properties"] = map[string]any{}
	}
	if err := cleanSchema(doc, 0); err != nil {
		return nil, nil, err
	}
	if _, err := (&schemaSize{root: doc, known: map[string]int{}}).count(doc, nil); err != nil {
		return nil, nil, err
	}
	return tools.MustSchema(doc), doc, nil // decoded values always encode
}

// cleanSchema cleans the descriptions of a schema in place. It refuses hidden characters elsewhere,
// where removing them would change the meaning.
func cleanSchema(v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("its schema is nested deeper than %d levels", maxDepth)
	}
	switch x := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if !IsVisible(k) || len(k) > 128 {
				return fmt.Errorf("its schema has the key %s, which is too long or holds invisible characters", tools.Quote(k))
			}
			s, isText := x[k].(string)
			switch {
			case isText && (k == "description" || k == "title" || k == "$comment"):
				x[k] = Text(s, maxNote)
				continue
			case isText && (k == "$dynamicRef" || k == "$recursiveRef" || k == "$dynamicAnchor" || k == "$anchor" || k == "$id" && depth > 0):
				return fmt.Errorf("its schema uses %s; write it without", k)
			}
			if err := cleanSchema(x[k], depth+1); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range x {
			if err := cleanSchema(e, depth+1); err != nil {
				return err
			}
		}
	case string:
		if !IsVisible(x) {
			return fmt.Errorf("its schema has the text %s, which holds invisible characters", tools.Quote(x))
		}
	}
	return nil
}

// schemaSize counts the nodes of a schema with every reference followed. Checking arguments costs
// about that much, and nested references can grow exponentially.
type schemaSize struct {
	root  map[string]any
	known map[string]int
}

var errTooLarge = fmt.Errorf("its schema has more than %d parts once its references are followed", maxNodes)

func (s *schemaSize) count(v any, within []string) (int, error) {
	n := 1
	add := func(w int, err error) error {
		if n += w; err == nil && n > maxNodes {
			err = errTooLarge
		}
		return err
	}
	children, _ := v.([]any)
	if x, ok := v.(map[string]any); ok {
		children = slices.Collect(maps.Values(x))
		if ref, ok := x["$ref"].(string); ok {
			if err := add(s.follow(ref, within)); err != nil {
				return n, err
			}
		}
	}
	for _, child := range children {
		if err := add(s.count(child, within)); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *schemaSize) follow(ref string, within []string) (int, error) {
	if w, ok := s.known[ref]; ok {
		return w, nil
	}
	if slices.Contains(within, ref) {
		return 0, fmt.Errorf("its schema refers to itself by %s", tools.Quote(ref))
	}
	to, ok := s.resolve(ref)
	if !ok {
		return 0, fmt.Errorf("its schema refers to %s, which is not in it", tools.Quote(ref))
	}
	w, err := s.count(to, append(slices.Clone(within), ref))
	if err == nil {
		s.known[ref] = w
	}
	return w, err
}

// resolve resolves "#" and "#/a/b" (RFC 6901).
func (s *schemaSize) resolve(ref string) (any, bool) {
	ptr, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	ptr, err := url.PathUnescape(ptr)
	if err != nil {
		return nil, false
	}
	var at any = s.root
	if ptr == "" {
		return at, true
	}
	rest, ok := strings.CutPrefix(ptr, "/")
	if !ok {
		return nil, false
	}
	for key := range strings.SplitSeq(rest, "/") {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		switch x := at.(type) {
		case map[string]any:
			if at, ok = x[key]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			at = x[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// Example returns an example call as JSON with only the required arguments, as far as the schema
// describes them: at most 500 bytes.
func Example(doc map[string]any) string {
	text := string(tools.MustSchema(sample(doc, 0)))
	if len(text) > 500 || text[0] != '{' {
		return "{}"
	}
	return text
}

// sample returns a value that matches the shape of a schema.
func sample(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > 4 {
		return nil
	}
	for _, key := range []string{"default", "const"} {
		if v, ok := s[key]; ok {
			return v
		}
	}
	if all, ok := s["enum"].([]any); ok && len(all) > 0 {
		return all[0]
	}
	switch s["type"] {
	case "string":
		return "..."
	case "number", "integer":
		return 1
	case "boolean":
		return true
	case "array":
		return []any{}
	case "object":
		out := map[string]any{}
		props, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for _, r := range required {
			if name, ok := r.(string); ok {
				out[name] = sample(props[name], depth+1)
			}
		}
		return out
	}
	return nil
}

// MaxDescription is how many bytes of a foreign description a model reads.
const MaxDescription = 2 << 10

// Guidance is the bot's own text around a tool's foreign description.
type Guidance struct {
	Lead  string // what the tool is and whose description follows; ends with a colon
	Use   string // when to use it
	Avoid string // when not to use it
	Other string // how it differs from the bot's own tools
}

// Describe puts a foreign description into the sections of [tools.Guidance], with an example for
// the schema. Each foreign line is quoted, so that none can pass for the bot's own.
func (w Guidance) Describe(says string, doc map[string]any) string {
	if says = Text(says, MaxDescription); says == "" {
		says = "(nothing)"
	}
	return fmt.Sprintf(`%s
> %s

## When to use
%s

## When NOT to use
%s

## Disambiguation
%s

## Examples
- %s
`, w.Lead, strings.ReplaceAll(says, "\n", "\n> "), w.Use, w.Avoid, w.Other, Example(doc))
}
