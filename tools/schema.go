package tools

import (
	"encoding/json"
	"fmt"
	"maps"

	"countersign/approvals"
)

// Property describes one argument of a tool.
type Property struct {
	// Type is a JSON type name, or a []string of them.
	Type        any       `json:"type,omitempty"`
	Description string    `json:"description,omitempty"`
	Enum        []string  `json:"enum,omitempty"`
	Default     any       `json:"default,omitempty"`
	Pattern     string    `json:"pattern,omitempty"`
	MinLength   int       `json:"minLength,omitempty"`
	MaxLength   int       `json:"maxLength,omitempty"`
	Minimum     any       `json:"minimum,omitempty"` // a number; nil means none
	Maximum     any       `json:"maximum,omitempty"`
	MaxItems    int       `json:"maxItems,omitempty"`
	Items       *Property `json:"items,omitempty"`
}

// SimpleSchema is the schema of an object, which most tools use. Unknown arguments are refused.
type SimpleSchema struct {
	Properties map[string]Property
	Required   []string
}

// MarshalJSON implements json.Marshaler.
func (s SimpleSchema) MarshalJSON() ([]byte, error) {
	props := s.Properties
	if props == nil {
		props = map[string]Property{}
	}
	return json.Marshal(struct {
		Type       string              `json:"type"`
		Properties map[string]Property `json:"properties"`
		Required   []string            `json:"required,omitempty"`
		Additional bool                `json:"additionalProperties"`
	}{"object", props, s.Required, false})
}

// MustSchema returns the JSON of a schema defined in the program. It panics if the value does not
// encode.
func MustSchema(v any) json.RawMessage {
	b, err := encode(v)
	if err != nil {
		panic(fmt.Sprintf("tools: schema: %v", err))
	}
	return b
}

// ClaimArgs are the four arguments with which a model labels its own call. Tools with these
// arguments embed it in their argument struct.
type ClaimArgs struct {
	Risk     string `json:"risk"`
	Mutation bool   `json:"mutation"`
	Privesc  bool   `json:"privesc"`
	Why      string `json:"why"`
}

// Claim returns the labels for the card.
func (c ClaimArgs) Claim() approvals.Claim {
	return approvals.Claim{Risk: c.Risk, Mutation: c.Mutation, Privesc: c.Privesc, Why: c.Why, Given: true}
}

// claimNames are the arguments of [ClaimArgs], in the order of their schema.
var claimNames = [...]string{"risk", "mutation", "privesc", "why"}

// ClaimNames returns the names of the arguments of [ClaimArgs].
func ClaimNames() []string { return append([]string(nil), claimNames[:]...) }

// WithClaim returns s with the four labels added, all required.
func (s SimpleSchema) WithClaim() SimpleSchema {
	props := map[string]Property{
		"risk":     {Type: "string", Enum: []string{"low", "medium", "high"}, Description: "Your honest estimate. Approvers see it."},
		"mutation": {Type: "boolean", Description: "Changes anything?"},
		"privesc":  {Type: "boolean", Description: "Uses sudo or su?"},
		"why":      {Type: "string", Pattern: `\S`, MaxLength: 2000, Description: "Purpose and risk, for approvers."},
	}
	maps.Copy(props, s.Properties)
	return SimpleSchema{Properties: props, Required: append(append([]string(nil), s.Required...), claimNames[:]...)}
}

// WithoutClaim returns canonical arguments without the four labels. Labels are not part of what
// people approve: a model that words its reason differently still asks for the same thing.
func WithoutClaim(args json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(args, &m) != nil {
		return args
	}
	for _, name := range claimNames {
		delete(m, name)
	}
	b, err := encode(m)
	if err != nil {
		return args
	}
	return b
}
