package foreign

import "encoding/json"

// The keywords whose values are schemas, lists of them, or objects of them (JSON Schema 2020-12, with
// those of draft 7).
var (
	schemaKeywords = []string{"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else"}
	listKeywords   = []string{"items", "prefixItems", "anyOf", "oneOf", "allOf"}
	mapKeywords    = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)

// portable rewrites a schema in place to a form that every model's server takes, and that means the same:
// generators write much that is valid, and one schema that a server refuses would stop every request.
// The properties that no value fits (zod's never) are left out, which means more; the server of the tool
// refuses them. branches says whether alternatives may go.
func portable(s map[string]any, branches bool) {
	for _, k := range schemaKeywords {
		switch x := s[k].(type) {
		case map[string]any:
			portable(x, branches)
		case bool:
			if x && (k == "items" || k == "contains") {
				s[k] = map[string]any{}
			}
		}
	}
	for _, k := range listKeywords {
		list, ok := s[k].([]any)
		if !ok {
			continue
		}
		var kept []any
		for _, e := range list {
			if branches && (k == "anyOf" || k == "oneOf") && isNever(e) {
				continue
			}
			kept = append(kept, portableIn(e, branches))
		}
		if s[k] = kept; len(kept) == 0 {
			s[k] = list // nothing fits at all
		}
	}
	for _, k := range mapKeywords {
		of, ok := s[k].(map[string]any)
		if !ok {
			continue
		}
		for name, e := range of {
			if k == "properties" && isNever(e) {
				delete(of, name)
				continue
			}
			of[name] = portableIn(e, branches)
		}
	}
	// Draft 4: a bound that is excluded.
	for bound, excluded := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
		if yes, ok := s[excluded].(bool); ok {
			delete(s, excluded)
			if n, has := s[bound].(json.Number); yes && has {
				s[excluded] = n
				delete(s, bound)
			}
		}
	}
	if s["type"] == "array" && s["items"] == nil && s["prefixItems"] == nil {
		s["items"] = map[string]any{}
	}
}

// portableIn is a schema at a place where "true" is written as {}.
func portableIn(v any, branches bool) any {
	switch x := v.(type) {
	case map[string]any:
		portable(x, branches)
	case bool:
		if x {
			return map[string]any{}
		}
	}
	return v
}

// isNever reports whether no value fits a schema.
func isNever(v any) bool {
	if v == false {
		return true
	}
	s, ok := v.(map[string]any)
	if !ok || len(s) != 1 {
		return false
	}
	of, ok := s["not"].(map[string]any)
	return s["not"] == true || ok && len(of) == 0
}
