//go:build ignore

// Extract takes out of OpenAI's OpenAPI description what describes the two
// requests that this project sends, and writes it as one small JSON file:
//
//	go run extract.go -in openapi.json -out testdata/openai-requests.json
//
// Everything that the two schemas refer to comes along; texts and examples do
// not. The old $recursiveRef becomes a $ref, which means the same there.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
)

const comment = "Schemas of requests, taken by extract.go from OpenAI's OpenAPI description (github.com/openai/openai-openapi at f85dbe2, version 2.3.0), without texts and examples. MIT License; see README.md."

func main() {
	in := flag.String("in", "openapi.json", "OpenAI's description as JSON")
	out := flag.String("out", "testdata/openai-requests.json", "what to write")
	flag.Parse()
	if err := extract(*in, *out, "CreateChatCompletionRequest", "CreateResponse"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func extract(in, out string, roots ...string) error {
	raw, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var doc struct {
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return err
	}
	kept := map[string]any{}
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		name := todo[0]
		if kept[name] != nil {
			continue
		}
		if doc.Components.Schemas[name] == nil {
			return fmt.Errorf("there is no schema %s", name)
		}
		kept[name] = clean(doc.Components.Schemas[name], name, &todo)
	}
	b, err := json.MarshalIndent(map[string]any{"$comment": comment, "components": map[string]any{"schemas": kept}}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}

// clean copies a schema, within the one of the given name, and notes what it refers to.
func clean(v any, within string, refs *[]string) any {
	const schemas = "#/components/schemas/"
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clean(v[i], within, refs)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			switch {
			case k == "properties": // its keys are names
				named := map[string]any{}
				if m, ok := x.(map[string]any); ok {
					for name, p := range m {
						named[name] = clean(p, within, refs)
					}
				}
				out[k] = named
			case k == "description", k == "title", k == "example", k == "examples", k == "discriminator", k == "$recursiveAnchor", strings.HasPrefix(k, "x-"):
			case k == "$recursiveRef":
				out["$ref"] = schemas + within
			case k == "enum", k == "const", k == "default", k == "required":
				out[k] = x
			default:
				if name, ok := strings.CutPrefix(fmt.Sprint(x), schemas); ok && k == "$ref" {
					*refs = append(*refs, name)
				}
				out[k] = clean(x, within, refs)
			}
		}
		return out
	}
	return v
}
