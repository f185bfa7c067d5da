package discordfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Spec is the variable that names a file with Discord's OpenAPI description (discord/discord-api-spec, MIT).
const Spec = "COUNTERSIGN_DISCORD_OPENAPI"

const specURL = "file:///discord-openapi.json"

// Checker holds JSON against Discord's own OpenAPI 3.1 description. Use it from any goroutine.
//
// What it does not see, measured: it allows 4000 characters of content where Discord allows 2000, a null list of mentions, fields
// that it does not know, and whatever concerns several fields at once: 6000 characters of embeds, 40 components, custom_ids that
// repeat. The server refuses all of these itself, unknown fields and null lists excepted.
type Checker struct {
	doc map[string]any

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

// NewChecker reads the description.
func NewChecker(spec []byte) (*Checker, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec))
	if err != nil {
		return nil, fmt.Errorf("discordfake: the OpenAPI description is no JSON: %w", err)
	}
	doc, isObject := v.(map[string]any)
	if !isObject || doc["paths"] == nil {
		return nil, fmt.Errorf("discordfake: this is no OpenAPI description: it has no paths")
	}
	// The description says that the codes inside "errors" are numbers. They are words (docs: "Reference", error messages).
	if inner, found := dig(doc, "components", "schemas", "InnerErrors", "properties", "_errors").(map[string]any); found {
		inner["items"] = map[string]any{
			"type": "object", "required": []any{"code", "message"},
			"properties": map[string]any{"code": map[string]any{"type": "string"}, "message": map[string]any{"type": "string"}},
		}
	}
	// It also says that default_member_permissions is a number; it is text (docs: "Application Commands"), and clients send that.
	for _, name := range []string{"ApplicationCommandUpdateRequest", "ApplicationCommandCreateRequest"} {
		if p, found := dig(doc, "components", "schemas", name, "properties", "default_member_permissions").(map[string]any); found {
			p["type"] = []any{"integer", "string", "null"}
		}
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(specURL, doc); err != nil {
		return nil, fmt.Errorf("discordfake: the OpenAPI description cannot be used: %w", err)
	}
	return &Checker{doc: doc, compiler: c, schemas: map[string]*jsonschema.Schema{}}, nil
}

// FindChecker reads the description that the variable Spec names. Without the variable the error wraps fs.ErrNotExist.
func FindChecker() (*Checker, error) {
	path := os.Getenv(Spec)
	if path == "" {
		return nil, fmt.Errorf("discordfake: set %s to Discord's openapi.json to hold requests and answers against it: %w", Spec, fs.ErrNotExist)
	}
	spec, err := os.ReadFile(path) //nolint:gosec // whoever runs the tests names it
	if err != nil {
		return nil, errors.New("discordfake: " + err.Error()) // a wrong name is no missing description
	}
	return NewChecker(spec)
}

func dig(v any, path ...string) any {
	for _, p := range path {
		o, _ := v.(map[string]any)
		v = o[p]
	}
	return v
}

// validate holds JSON against the schema at a pointer.
func (c *Checker) validate(pointer []string, data []byte) error {
	var b strings.Builder
	b.WriteString(specURL + "#")
	for _, p := range pointer {
		p = strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1")
		b.WriteString("/" + strings.NewReplacer("{", "%7B", "}", "%7D", "@", "%40").Replace(p))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	schema := c.schemas[b.String()]
	if schema == nil {
		var err error
		if schema, err = c.compiler.Compile(b.String()); err != nil {
			return fmt.Errorf("discordfake: the schema %s cannot be used: %w", strings.Join(pointer, "/"), err)
		}
		c.schemas[b.String()] = schema
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("discordfake: no JSON: %w", err)
	}
	return schema.Validate(v)
}

func (c *Checker) operation(method, path string) (any, []string) {
	at := []string{"paths", path, strings.ToLower(method)}
	return dig(c.doc, at...), at
}

// Request checks the JSON body of a request: for a multipart one, its payload_json. Method and path are as in Call.Route.
func (c *Checker) Request(method, path string, body []byte) error {
	op, at := c.operation(method, path)
	if op == nil {
		return fmt.Errorf("discordfake: the description has no %s %s", method, path)
	}
	if len(body) == 0 {
		return nil
	}
	if dig(op, "requestBody", "content", "application/json", "schema") == nil {
		return fmt.Errorf("discordfake: %s %s takes no JSON body", method, path)
	}
	return c.validate(append(at, "requestBody", "content", "application/json", "schema"), body)
}

// Response checks an answer of the API. Statuses that the description does not name, which are those of 5xx, are not looked at.
func (c *Checker) Response(method, path string, status int, body []byte) error {
	op, at := c.operation(method, path)
	if op == nil {
		return fmt.Errorf("discordfake: the description has no %s %s", method, path)
	}
	name := strconv.Itoa(status)
	r := dig(op, "responses", name)
	if r == nil && status >= 400 && status < 500 {
		name = "4XX"
		r = dig(op, "responses", name)
	}
	if r == nil {
		if status >= 500 {
			return nil
		}
		return fmt.Errorf("discordfake: %s %s does not answer %d", method, path, status)
	}
	at = append(at, "responses", name)
	if ref, isRef := dig(r, "$ref").(string); isRef {
		at = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		r = dig(c.doc, at...)
	}
	if dig(r, "content", "application/json", "schema") == nil {
		if len(body) > 0 {
			return fmt.Errorf("discordfake: %s %s answers %d without a body", method, path, status)
		}
		return nil
	}
	return c.validate(append(at, "content", "application/json", "schema"), body)
}

// Object checks a JSON object against a named schema, for example MessageResponse.
func (c *Checker) Object(schema string, data []byte) error {
	return c.validate([]string{"components", "schemas", schema}, data)
}

// checkCall holds a call against the description. A body that the server refused as malformed is the client's to know, so only
// requests that were served are held to it. The caller holds mu.
func (s *Server) checkCall(r *request, known bool, rep reply, answer []byte, fault bool) {
	c := s.cfg.Checker
	if c == nil || !known {
		return
	}
	method, path, _ := strings.Cut(r.route, " ")
	if rep.status < 300 && !fault {
		if err := c.Request(method, path, r.raw); err != nil {
			s.violations = append(s.violations, fmt.Sprintf("request %s: %v", r.route, err))
		}
	}
	if !fault && rep.page == "" {
		if err := c.Response(method, path, rep.status, answer); err != nil {
			s.violations = append(s.violations, fmt.Sprintf("answer %d of %s: %v", rep.status, r.route, err))
		}
	}
}

// eventSchemas are the objects of events that the description knows. A path of "" is the event's object itself.
func eventSchemas(name string) map[string]string {
	switch name {
	case "MESSAGE_CREATE", "MESSAGE_UPDATE":
		return map[string]string{"": "MessageResponse"}
	case "THREAD_CREATE", "THREAD_UPDATE":
		return map[string]string{"": "ThreadResponse"}
	case "CHANNEL_CREATE", "CHANNEL_UPDATE", "CHANNEL_DELETE":
		return map[string]string{"": "GuildChannelResponse"}
	case "GUILD_CREATE":
		return map[string]string{"": "GuildResponse", "channels": "GuildChannelResponse", "threads": "ThreadResponse", "members": "GuildMemberResponse"}
	case "GUILD_ROLE_CREATE", "GUILD_ROLE_UPDATE":
		return map[string]string{"role": "GuildRoleResponse"}
	case "GUILD_MEMBER_ADD", "GUILD_MEMBER_UPDATE":
		return map[string]string{"": "GuildMemberResponse"}
	case "THREAD_MEMBERS_UPDATE":
		return map[string]string{"added_members": "ThreadMemberResponse"}
	case "READY":
		return map[string]string{"user": "UserPIIResponse"}
	case "INTERACTION_CREATE":
		return map[string]string{"message": "MessageResponse", "member": "GuildMemberResponse", "user": "UserResponse"}
	default:
		return nil
	}
}

// checkEvent holds a dispatched object against the description. The caller holds mu.
func (s *Server) checkEvent(name string, d any) {
	c := s.cfg.Checker
	if c == nil {
		return
	}
	o, _ := d.(object)
	for field, schema := range eventSchemas(name) {
		list := []any{d}
		if field != "" {
			switch v := o[field].(type) {
			case nil:
				continue
			case []any:
				list = v
			default:
				list = []any{v}
			}
		}
		for _, v := range list {
			data, err := json.Marshal(v)
			if err == nil {
				err = c.Object(schema, data)
			}
			if err != nil {
				s.violations = append(s.violations, fmt.Sprintf("event %s %s: %v", name, field, err))
			}
		}
	}
}
