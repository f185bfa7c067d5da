package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// SchemaFor returns the schema of arguments that are decoded into T, a struct. Field tags supply
// what the types do not:
//
//	Path string `json:"path" jsonschema:"The file to read."`
//	Mode string `json:"mode" enum:"fast,safe" default:"safe" jsonschema:"How to do it."`
//
// json is the name, jsonschema the description, enum the allowed values, and default, as JSON or
// plain text, the value of a missing argument. An argument is required unless it has a default or
// is omitempty. SchemaFor panics for types without a schema and for fields without a description.
func SchemaFor[T any]() json.RawMessage {
	s, err := jsonschema.For[T](nil)
	if err == nil {
		err = refine(s, reflect.TypeFor[T]())
	}
	if err != nil {
		panic(fmt.Sprintf("tools: schema of %s: %v", reflect.TypeFor[T](), err))
	}
	return MustSchema(s)
}

// refine adds what the library has no tags for.
func refine(s *jsonschema.Schema, t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("arguments are a struct, not a %s", t.Kind())
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		p := s.Properties[name]
		if p == nil || p.Description == "" {
			return fmt.Errorf("the field %s has no description; give it a tag jsonschema", f.Name)
		}
		if words := f.Tag.Get("enum"); words != "" {
			for w := range strings.SplitSeq(words, ",") {
				p.Enum = append(p.Enum, w)
			}
		}
		if value, ok := f.Tag.Lookup("default"); ok {
			p.Default = json.RawMessage(value)
			if p.Type == "string" {
				p.Default = MustSchema(value)
			}
			if !json.Valid(p.Default) {
				return fmt.Errorf("the default of the field %s is no value of its type", f.Name)
			}
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
		}
	}
	return nil
}
