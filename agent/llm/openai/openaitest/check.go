package openaitest

import (
	"bytes"
	_ "embed" // OpenAI's description of requests
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Put OpenAI's description (openapi.json of github.com/openai/openai-openapi)
// beside this file to take the schemas out of a newer one.
//go:generate go run extract.go -in openapi.json -out testdata/openai-requests.json

//go:embed testdata/openai-requests.json
var description []byte

const described = "https://schema.test/openai-requests.json"

// Checker checks requests against OpenAI's own OpenAPI description, and against
// what a schema cannot say: which members there are at all, and that each call
// is answered once, in order and right after it. It is safe for concurrent use.
type Checker struct {
	chat, responses form
}

type form struct {
	schema  *jsonschema.Schema
	members map[string]bool // of a request
}

// NewChecker returns a checker. It fails only when the embedded description is broken.
func NewChecker() (*Checker, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(description))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource(described, doc); err != nil {
		return nil, err
	}
	var c Checker
	for name, f := range map[string]*form{"CreateChatCompletionRequest": &c.chat, "CreateResponse": &c.responses} {
		if f.schema, err = compiler.Compile(described + "#/components/schemas/" + name); err != nil {
			return nil, err
		}
		f.members = map[string]bool{}
		f.collect(f.schema)
	}
	return &c, nil
}

// collect notes the members that a schema and those that it is made of know.
func (f *form) collect(s *jsonschema.Schema) {
	for name := range s.Properties {
		f.members[name] = true
	}
	for _, part := range s.AllOf {
		f.collect(part)
	}
	if s.Ref != nil {
		f.collect(s.Ref)
	}
}

// Check returns what is wrong with a request's body, joined, or nil. A body with
// "input" is one of the Responses API, any other of Chat Completions.
func (c *Checker) Check(body []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the request is not JSON: %w", err)
	}
	o, ok := v.(map[string]any)
	if !ok {
		return errors.New("the request is not a JSON object")
	}
	f, order := c.chat, chatOrder
	if o["input"] != nil {
		f, order = c.responses, inputOrder
	}
	var wrong []error
	if err := f.schema.Validate(v); err != nil {
		wrong = append(wrong, err)
	}
	for name := range o {
		if !f.members[name] {
			wrong = append(wrong, fmt.Errorf("the request has a member %q that OpenAI does not know", name))
		}
	}
	return errors.Join(append(wrong, order(body)...)...)
}

// functionName is what OpenAI takes as the name of a function.
var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// answers follows calls and their results.
type answers struct {
	seen    []string
	waiting []string
	begun   bool // a result of the calls that wait came
	wrong   []error
}

func (a *answers) fail(format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Errorf(format, args...))
}

func (a *answers) call(id, name string) {
	switch {
	case id == "":
		a.fail("a call of %s has no id", name)
	case slices.Contains(a.seen, id):
		a.fail("the call id %q is there twice", id)
	case a.begun && len(a.waiting) > 0:
		a.fail("the call %q comes between the results of others", id)
	}
	if !functionName.MatchString(name) {
		a.fail("the call %q has the name %q", id, name)
	}
	if len(a.waiting) == 0 {
		a.begun = false
	}
	a.seen, a.waiting = append(a.seen, id), append(a.waiting, id)
}

func (a *answers) result(id string) {
	if len(a.waiting) == 0 || a.waiting[0] != id {
		a.fail("the result of %q answers no call, or not in order: %s wait", id, strings.Join(a.waiting, ", "))
		return
	}
	a.waiting, a.begun = a.waiting[1:], true
}

// settled notes that something else comes, before which all calls must be answered.
func (a *answers) settled(what string) {
	if len(a.waiting) > 0 {
		a.fail("%s comes before the results of %s", what, strings.Join(a.waiting, ", "))
		a.waiting = nil
	}
}

func chatOrder(body []byte) []error {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return []error{err}
	}
	var a answers
	for _, t := range req.Tools {
		if !functionName.MatchString(t.Function.Name) {
			a.fail("a tool has the name %q", t.Function.Name)
		}
	}
	for i, m := range req.Messages {
		if m.Role == "tool" {
			a.result(m.ToolCallID)
			continue
		}
		a.settled(fmt.Sprintf("message %d", i))
		for _, c := range m.ToolCalls {
			a.call(c.ID, c.Function.Name)
		}
	}
	a.settled("the end")
	return a.wrong
}

func inputOrder(body []byte) []error {
	var req struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Input json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return []error{err}
	}
	var items []struct {
		Type   string `json:"type"`
		Role   string `json:"role"`
		CallID string `json:"call_id"`
		Name   string `json:"name"`
	}
	if json.Unmarshal(req.Input, &items) != nil {
		return nil // a text has no order
	}
	var a answers
	for _, t := range req.Tools {
		if !functionName.MatchString(t.Name) {
			a.fail("a tool has the name %q", t.Name)
		}
	}
	thought := false // the last item was a thought, which belongs to one of the same response
	for i, it := range items {
		own := it.Type == "reasoning" || it.Type == "function_call" || it.Role == "assistant"
		if thought && !own {
			a.fail("item %d: a thought comes without what it belongs to", i)
		}
		thought = it.Type == "reasoning"
		switch {
		case it.Type == "function_call":
			a.call(it.CallID, it.Name)
		case it.Type == "function_call_output":
			a.result(it.CallID)
		case !own || a.begun:
			a.settled(fmt.Sprintf("item %d", i))
		}
	}
	if thought {
		a.fail("the last item is a thought")
	}
	a.settled("the end")
	return a.wrong
}
