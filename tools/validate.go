package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Limits on what is parsed.
const (
	maxArgs   = 16 << 20
	maxSchema = 1 << 20
	maxDepth  = 64
)

// validationPrefix begins the text of every schema violation.
const validationPrefix = "validation error: "

// checker validates arguments against one tool's schema. It is safe for concurrent use.
type checker struct {
	// compile compiles the schema once, when the first arguments come: forty schemas cost
	// more time than the rest of a start.
	compile func() (*jsonschema.Schema, error)
	doc     map[string]any
	below   []string // see Spec.Below
}

// refuseLoader loads no schemas: nothing outside the schema is ever read, so that a foreign schema
// cannot make the bot open files or URLs.
type refuseLoader struct{}

func (refuseLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema must not refer to %s", url)
}

func newChecker(raw json.RawMessage) (*checker, error) {
	if len(raw) > maxSchema {
		return nil, errors.New("the schema is larger than 1 MiB")
	}
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	obj, ok := doc.(map[string]any)
	if !ok || obj["type"] != "object" {
		return nil, errors.New(`the schema must be of "type": "object"`)
	}
	return &checker{compile: sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(raw) }), doc: obj}, nil
}

// compile reads raw again: the compiler keeps the document that it is given, and a checker's own is
// read by [fillDefaults].
func compile(raw json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(refuseLoader{})
	const url = "tool:///schema.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("the schema does not compile: %w", err)
	}
	s, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("the schema does not compile: %w", err)
	}
	return s, nil
}

// parse decodes one JSON value and keeps numbers as they were written.
func parse(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("it ends too early")
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after its end")
	}
	return normalize(v, 0)
}

// normalize gives whole numbers one form and refuses extreme numbers and nesting.
func normalize(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	var err error
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if x[k], err = normalize(e, depth+1); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range x {
			if x[i], err = normalize(e, depth+1); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if _, err := strconv.ParseInt(x.String(), 10, 64); err == nil && x != "-0" {
			return x, nil
		}
		f, err := x.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %s is too large", Quote(x.String()))
		}
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return json.Number(strconv.FormatInt(int64(f), 10)), nil
		}
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return v, nil
}

// canonical validates arguments and returns them in canonical form: defaults filled in, keys
// sorted, one form for each number. Equal calls give equal bytes.
func (c *checker) canonical(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > maxArgs {
		return nil, Invalid("the arguments are larger than 16 MiB; write less at once")
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	v, err := parse(raw)
	if err != nil {
		return nil, Invalid("they are not valid JSON (%v); send one JSON object", err)
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, Invalid("they must be one JSON object, not %s", typeName(v))
	}
	if err := c.normalizePath(obj); err != nil {
		return nil, err
	}
	schema, err := c.compile()
	if err != nil {
		return nil, err
	}
	if err := schema.Validate(obj); err != nil {
		return nil, c.explain(err)
	}
	fillDefaults(c.doc, obj)
	out, err := encode(obj)
	if err != nil {
		return nil, Invalid("they do not encode again: %v", err)
	}
	return out, nil
}

func fillDefaults(schema, obj map[string]any) {
	props, _ := schema["properties"].(map[string]any)
	for name, p := range props {
		ps, ok := p.(map[string]any)
		if !ok {
			continue
		}
		val, given := obj[name]
		if def, ok := ps["default"]; ok && !given {
			obj[name] = def
			continue
		}
		if child, ok := val.(map[string]any); ok {
			fillDefaults(ps, child)
		}
	}
}

// violation is one schema violation; rank sorts missing arguments first.
type violation struct {
	rank int
	text string
}

func (c *checker) explain(err error) error {
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return &Error{Kind: InvalidArguments, Sentence: validationPrefix + err.Error(), Cause: err}
	}
	var all []violation
	collect(ve, &all)
	slices.SortStableFunc(all, func(a, b violation) int {
		if a.rank != 0 || b.rank != 0 {
			if d := cmp.Compare(a.rank, b.rank); d != 0 {
				return d
			}
		}
		if a.rank == 0 {
			return 0 // missing ones keep the order of "required"
		}
		return cmp.Compare(a.text, b.text)
	})
	var b strings.Builder
	b.WriteString(validationPrefix)
	for i, x := range all {
		if i == 20 {
			fmt.Fprintf(&b, "and %d more\n", len(all)-i)
			break
		}
		b.WriteString(x.text + "\n")
	}
	b.WriteString("parameters: " + c.parameters())
	return &Error{Kind: InvalidArguments, Sentence: b.String(), Cause: err}
}

// collect walks to the leaves, which say what is wrong.
func collect(ve *jsonschema.ValidationError, out *[]violation) {
	if len(ve.Causes) > 0 {
		for _, c := range ve.Causes {
			collect(c, out)
		}
		return
	}
	at := Quote(strings.Join(ve.InstanceLocation, "."))
	if len(ve.InstanceLocation) == 0 {
		at = "the arguments"
	}
	add := func(rank int, format string, a ...any) {
		*out = append(*out, violation{rank, fmt.Sprintf(format, a...)})
	}
	switch k := ve.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			add(0, "missing required parameter %q", strings.Join(append(slices.Clone(ve.InstanceLocation), name), "."))
		}
	case *kind.Type:
		add(1, "%s must be %s, not %s", at, joinOr(k.Want, "or"), k.Got)
	case *kind.Enum:
		want := make([]string, 0, len(k.Want))
		for _, w := range k.Want {
			want = append(want, fmt.Sprint(w))
		}
		add(1, "%s must be %s, not %s", at, joinOr(want, "or"), Quote(fmt.Sprint(k.Got)))
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		for _, name := range k.Properties {
			add(2, "there is no parameter %s", Quote(name))
		}
	case *kind.MinLength:
		if k.Want == 1 {
			add(1, "%s must not be empty", at)
		} else {
			add(1, "%s must have at least %d characters", at, k.Want)
		}
	case *kind.Pattern:
		if k.Want == `\S` {
			add(1, "%s must not be empty", at)
		} else {
			add(1, "%s must match %s", at, k.Want)
		}
	default:
		add(1, "%s: %s", at, k.LocalizedString(message.NewPrinter(language.English)))
	}
}

// Quote quotes foreign text for use in a sentence: with visible forms of invisible characters, and
// shortened.
func Quote(s string) string {
	const most = 80
	if len(s) > most {
		s = TruncateHead(s[:most], most) + "..."
	}
	return strconv.Quote(s)
}

func joinOr(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	}
	return "an object"
}

// parameters lists the tool's parameters, required ones first.
func (c *checker) parameters() string {
	props, _ := c.doc["properties"].(map[string]any)
	if len(props) == 0 {
		return "none"
	}
	required, _ := c.doc["required"].([]any)
	names := make([]string, 0, len(props))
	for _, r := range required {
		if s, ok := r.(string); ok {
			names = append(names, s)
		}
	}
	need := len(names)
	for _, n := range slices.Sorted(maps.Keys(props)) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	parts := make([]string, len(names))
	for i, n := range names {
		p, _ := props[n].(map[string]any)
		what := joinStrings(p["enum"], " or ")
		if what == "" {
			what = joinStrings(p["type"], " or ")
		}
		if i < need {
			what = strings.TrimPrefix(what+", required", ", ")
		}
		parts[i] = n
		if what != "" {
			parts[i] += " (" + what + ")"
		}
	}
	return strings.Join(parts, ", ")
}

func joinStrings(v any, sep string) string {
	switch x := v.(type) {
	case string:
		return x
	case []any:
		s := make([]string, len(x))
		for i, e := range x {
			s[i] = fmt.Sprint(e)
		}
		return strings.Join(s, sep)
	}
	return ""
}
