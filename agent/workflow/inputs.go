package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// InputType is the type of an [Input].
type InputType string

// The types.
const (
	String  InputType = "string"
	Integer InputType = "integer"
	Number  InputType = "number"
	Boolean InputType = "boolean"
	Enum    InputType = "enum"
)

var inputTypes = []string{string(String), string(Integer), string(Number), string(Boolean), string(Enum)}

// Input is something that a workflow is given when it begins. It is required or has a
// default, so that every template of it has a value.
type Input struct {
	Name        string
	Type        InputType
	Description string
	Required    bool
	// Default is in canonical spelling; it means nothing where Required is true.
	Default string
	// Pattern is in RE2 syntax and must match the whole of a string; "" matches all.
	Pattern string
	// Min and Max bound a number, or the characters of a string; nil means no bound for
	// numbers, and 0 to 1,000 for strings.
	Min, Max *float64
	// Values are those of an enum.
	Values []string

	re *regexp.Regexp
}

func (in Input) kind() kindOf {
	switch in.Type {
	case Integer, Number:
		return numeric
	case Boolean:
		return boolean
	default:
		return textual
	}
}

// InputError is what is wrong with the inputs of a workflow: one sentence for each
// mistake.
type InputError struct{ Sentences []string }

// Error implements error.
func (e *InputError) Error() string { return strings.Join(e.Sentences, "\n") }

// Inputs checks what a workflow is given, as encoding/json decodes an object (float64 or
// json.Number for numbers), and returns every input in canonical spelling, with defaults.
// Numbers and booleans may also come as text. The error is an [*InputError].
func (w *Workflow) Inputs(raw map[string]any) (map[string]string, error) {
	var bad InputError
	out := make(map[string]string, len(w.Params))
	known := make([]string, len(w.Params))
	for i, in := range w.Params {
		known[i] = in.Name
		v, given := raw[in.Name]
		switch {
		case given && v != nil:
			s, err := in.convert(v)
			if err != nil {
				bad.Sentences = append(bad.Sentences, fmt.Sprintf("input %s %v.", quoted(in.Name), err))
				continue
			}
			out[in.Name] = s
		case in.Required:
			bad.Sentences = append(bad.Sentences, fmt.Sprintf("input %s is missing; %s needs it%s.", quoted(in.Name), w.Name, means(in)))
		default:
			out[in.Name] = in.Default
		}
	}
	var unknown []string
	for name := range raw {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		hint := didYouMean(name, known)
		if hint == "" && len(known) > 0 {
			hint = "; it has " + strings.Join(known, ", ")
		}
		if hint == "" {
			hint = "; it takes none"
		}
		if !strings.HasSuffix(hint, "?") {
			hint += "."
		}
		bad.Sentences = append(bad.Sentences, fmt.Sprintf("%s has no input %s%s", w.Name, quoted(name), hint))
	}
	if len(bad.Sentences) > 0 {
		return nil, &bad
	}
	return out, nil
}

// means adds what an input is for to a sentence.
func means(in Input) string {
	if in.Description == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(in.Description, ".")
}

// convert returns a value in canonical spelling. Its error completes "input x ...".
func (in Input) convert(v any) (string, error) {
	switch in.Type {
	case Integer, Number:
		return in.number(v)
	case Boolean:
		switch v {
		case true, "true":
			return "true", nil
		case false, "false":
			return "false", nil
		}
		return "", fmt.Errorf("is %s; use true or false", shown(v))
	case Enum:
		s, ok := v.(string)
		if !ok || !slices.Contains(in.Values, s) {
			return "", fmt.Errorf("is %s; use one of %s", shown(v), strings.Join(in.Values, ", "))
		}
		return s, nil
	default:
		return in.str(v)
	}
}

func (in Input) str(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("is %s; it must be text", shown(v))
	}
	n := float64(utf8.RuneCountInString(s))
	most := float64(maxValue)
	if in.Max != nil {
		most = *in.Max
	}
	switch {
	case !utf8.ValidString(s):
		return "", fmt.Errorf("is not UTF-8 text; give it without bytes that are not text")
	case strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }):
		return "", fmt.Errorf("is %s, with a control character; take that out", shown(v))
	case in.Min != nil && n < *in.Min:
		return "", fmt.Errorf("is %s; it needs at least %s characters", shown(v), number(*in.Min))
	case n > most:
		return "", fmt.Errorf("is too long; it can have %s characters", number(most))
	case in.re != nil && !in.re.MatchString(s):
		return "", fmt.Errorf("is %s, which does not match %s%s", shown(v), in.Pattern, means(in))
	}
	return s, nil
}

func (in Input) number(v any) (string, error) {
	what, example := "a number", "2.5"
	if in.Type == Integer {
		what, example = "a whole number", "30"
	}
	refuse := func() (string, error) {
		return "", fmt.Errorf("is %s; it must be %s such as %s", shown(v), what, example)
	}
	var s string
	switch x := v.(type) {
	case string:
		s = x
	case json.Number:
		s = x.String()
	case float64:
		s = strconv.FormatFloat(x, 'f', -1, 64)
	case int:
		s = strconv.Itoa(x)
	case int64:
		s = strconv.FormatInt(x, 10)
	default:
		return refuse()
	}
	if len(s) > 40 || !numberShape.MatchString(s) {
		return refuse()
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return refuse()
	}
	whole := f == math.Trunc(f) && math.Abs(f) < 1<<53
	switch {
	case in.Type == Integer && !whole:
		return refuse()
	case in.Min != nil && f < *in.Min:
		return "", fmt.Errorf("is %s; it must be at least %s", shown(v), number(*in.Min))
	case in.Max != nil && f > *in.Max:
		return "", fmt.Errorf("is %s; it must be at most %s", shown(v), number(*in.Max))
	}
	return number(f), nil
}

// numberShape is a number as JSON and people write it.
var numberShape = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$`)

// number returns the shortest spelling that JSON and shells both read.
func number(f float64) string {
	if f == 0 {
		return "0" // and not "-0"
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// shown returns a given value for a sentence.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return quoted(s)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "something else"
	}
	return head(strings.ToValidUTF8(string(b), "\uFFFD"), 60)
}

// whole compiles a pattern in RE2 syntax (golang.org/s/re2syntax) that must match the
// whole text.
func whole(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > 500 {
		return nil, errors.New("the pattern is longer than 500 bytes; make it shorter")
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("%s is no pattern in RE2 syntax: %w", quoted(pattern), err)
	}
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%s is no pattern in RE2 syntax: %w", quoted(pattern), err)
	}
	return re, nil
}
