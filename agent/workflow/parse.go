package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Parse reads a workflow. name stands in front of every complaint: the file's name, or
// where else the source is from. The error is one sentence that names the line and, for a
// key that does not exist, the nearest one that does.
func Parse(name string, source []byte) (*Workflow, error) {
	return reader{from: name}.parse(source)
}

// Stored reads a workflow that was read by [Parse] when it began, perhaps by an older version,
// whose conditions had templates.
func Stored(name string, source []byte) (*Workflow, error) {
	return reader{from: name, stored: true}.parse(source)
}

func (r reader) parse(source []byte) (*Workflow, error) {
	name := r.from
	if len(source) > MaxSource {
		return nil, fmt.Errorf("%s: it is larger than %d KiB; make it shorter", name, MaxSource>>10)
	}
	if !utf8.Valid(source) {
		return nil, fmt.Errorf("%s: it is not UTF-8 text; save it as UTF-8", name)
	}
	dec := yaml.NewDecoder(bytes.NewReader(source))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return nil, r.syntax(err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more than one YAML document; put one workflow into a file", name)
	}
	if len(doc.Content) != 1 {
		return nil, fmt.Errorf("%s: it is empty; a workflow has a name, a description and steps", name)
	}
	w, err := r.workflow(doc.Content[0])
	if err != nil {
		return nil, err
	}
	w.Source = string(source)
	return w, nil
}

// reader turns YAML nodes into a workflow.
type reader struct {
	from string
	at   string // the step, for sentences
	// stored lets conditions have templates.
	stored bool
}

var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

func (r reader) syntax(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: it is empty; a workflow has a name, a description and steps", r.from)
	}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: line %s: it is not YAML: %s", r.from, m[1], m[2])
	}
	return fmt.Errorf("%s: it is not YAML: %s", r.from, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
}

func (r reader) bad(n *yaml.Node, format string, a ...any) error {
	where := ""
	if r.at != "" {
		where = "step " + r.at + ": "
	}
	return fmt.Errorf("%s: line %d: %s%w", r.from, n.Line, where, fmt.Errorf(format, a...))
}

// entry is one key of a mapping.
type entry struct{ key, value *yaml.Node }

// entries returns the keys of a mapping, in order. Keys that are not in known are
// refused, unless known is nil.
func (r reader) entries(n *yaml.Node, what string, known []string) ([]entry, error) {
	if n.Kind != yaml.MappingNode {
		return nil, r.bad(n, "%s must be keys with values; write it as key: value", what)
	}
	var out []entry
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			return nil, r.bad(k, "a key of %s is not plain text; anchors, merges and nested keys are not read", what)
		}
		if v.Kind == yaml.AliasNode || v.Anchor != "" || k.Anchor != "" {
			return nil, r.bad(v, "anchors and aliases are not read; write the value of %s out", quoted(k.Value))
		}
		if seen[k.Value] {
			return nil, r.bad(k, "the key %s is there twice; remove one", quoted(k.Value))
		}
		if seen[k.Value] = true; known != nil && !slices.Contains(known, k.Value) {
			hint := didYouMean(k.Value, known)
			if hint == "" {
				hint = "; use " + strings.Join(known, ", ")
			}
			return nil, r.bad(k, "unknown key %s in %s%s", quoted(k.Value), what, hint)
		}
		out = append(out, entry{k, v})
	}
	return out, nil
}

// text returns a scalar that is text, at most so many characters, not empty.
func (r reader) text(n *yaml.Node, what string, most int) (string, error) {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		return "", r.bad(n, "%s must be text; put it in quotes", what)
	case strings.TrimSpace(n.Value) == "":
		return "", r.bad(n, "%s is empty; write something or take the key out", what)
	case utf8.RuneCountInString(n.Value) > most:
		return "", r.bad(n, "%s is longer than %d characters; make it shorter", what, most)
	case strings.ContainsFunc(n.Value, func(c rune) bool { return c != '\n' && c != '\t' && unicode.IsControl(c) }):
		return "", r.bad(n, "%s has a control character; take it out", what)
	}
	return n.Value, nil
}

// line returns text on one line.
func (r reader) line(n *yaml.Node, what string) (string, error) {
	s, err := r.text(n, what, maxShort)
	if err == nil && strings.ContainsAny(strings.TrimSpace(s), "\n\t") {
		err = r.bad(n, "%s must be one line; fold it", what)
	}
	return strings.TrimSpace(s), err
}

func (r reader) boolean(n *yaml.Node, what string) (bool, error) {
	var b bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
		return false, r.bad(n, "%s must be true or false", what)
	}
	return b, nil
}

func (r reader) integer(n *yaml.Node, what string, from, to int) (int, error) {
	var i int
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&i) != nil || i < from || i > to {
		return 0, r.bad(n, "%s must be a whole number from %d to %d", what, from, to)
	}
	return i, nil
}

func (r reader) duration(n *yaml.Node, what string, from, to time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < from || d > to {
		return 0, r.bad(n, "%s must be a duration from %s to %s, such as 30s or 5m", what, short(from), short(to))
	}
	return d, nil
}

// short writes whole durations as people do.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (r reader) workflow(n *yaml.Node) (*Workflow, error) {
	list, err := r.entries(n, "a workflow", []string{"name", "description", "inputs", "steps"})
	if err != nil {
		return nil, err
	}
	w := &Workflow{}
	var steps *yaml.Node
	for _, e := range list {
		switch e.key.Value {
		case "name":
			if w.Name, err = r.line(e.value, "name"); err == nil && !workflowName.MatchString(w.Name) {
				err = r.bad(e.value, "the name %s must be 1 to 40 of a-z, 0-9 and -", quoted(w.Name))
			}
		case "description":
			w.Description, err = r.line(e.value, "description")
		case "inputs":
			w.Params, err = r.inputs(e.value)
		case "steps":
			steps = e.value
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case w.Name == "":
		return nil, r.bad(n, "the workflow has no name; add name")
	case w.Description == "":
		return nil, r.bad(n, "the workflow has no description; add description: people and models choose by it")
	case steps == nil || steps.Kind != yaml.SequenceNode || len(steps.Content) == 0:
		return nil, r.bad(n, "the workflow has no steps; add steps as a list")
	case len(steps.Content) > MaxSteps:
		return nil, r.bad(steps, "there are %d steps and at most %d are read; split the workflow", len(steps.Content), MaxSteps)
	}
	if w.steps, err = r.steps(steps, w.Params); err != nil {
		return nil, err
	}
	return w, nil
}

func (r reader) inputs(n *yaml.Node) ([]Input, error) {
	list, err := r.entries(n, "inputs", nil)
	if err != nil {
		return nil, err
	}
	if len(list) > MaxInputs {
		return nil, r.bad(n, "there are %d inputs and at most %d are read; ask for less", len(list), MaxInputs)
	}
	var out []Input
	for _, e := range list {
		if !inputName.MatchString(e.key.Value) {
			return nil, r.bad(e.key, "the input's name %s must be 1 to 40 letters, digits, _ and -, beginning with a letter", quoted(e.key.Value))
		}
		in, err := r.input(e.key.Value, e.value)
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

func (r reader) input(name string, n *yaml.Node) (Input, error) {
	what := "the input " + quoted(name)
	in := Input{Name: name}
	list, err := r.entries(n, what, []string{"type", "description", "required", "default", "pattern", "min", "max", "values"})
	if err != nil {
		return in, err
	}
	var def *yaml.Node
	for _, e := range list {
		key := what + ": " + e.key.Value
		switch e.key.Value {
		case "type":
			if in.Type = InputType(e.value.Value); !slices.Contains(inputTypes, e.value.Value) {
				err = r.bad(e.value, "%s is %s; use one of %s", key, quoted(e.value.Value), strings.Join(inputTypes, ", "))
			}
		case "description":
			in.Description, err = r.line(e.value, key)
		case "required":
			in.Required, err = r.boolean(e.value, key)
		case "default":
			def = e.value
		case "pattern":
			if in.Pattern, err = r.text(e.value, key, 500); err == nil {
				if in.re, err = whole(in.Pattern); err != nil {
					err = r.bad(e.value, "%s: %w", key, err)
				}
			}
		case "min":
			in.Min, err = r.bound(e.value, key)
		case "max":
			in.Max, err = r.bound(e.value, key)
		case "values":
			in.Values, err = r.lines(e.value, key, 1, maxValues)
		}
		if err != nil {
			return in, err
		}
	}
	return r.complete(in, n, what, def)
}

// complete checks what the keys of an input say together.
func (r reader) complete(in Input, n *yaml.Node, what string, def *yaml.Node) (Input, error) {
	switch {
	case in.Type == "":
		return in, r.bad(n, "%s has no type; use one of %s", what, strings.Join(inputTypes, ", "))
	case in.Pattern != "" && in.Type != String:
		return in, r.bad(n, "%s has a pattern, which is for strings; take it out", what)
	case (in.Min != nil || in.Max != nil) && (in.Type == Boolean || in.Type == Enum):
		return in, r.bad(n, "%s has min or max, which are for numbers and strings; take them out", what)
	case in.Min != nil && in.Max != nil && *in.Min > *in.Max:
		return in, r.bad(n, "%s has a min above its max; change one", what)
	case in.Type == String && in.Max != nil && *in.Max > maxText:
		return in, r.bad(n, "%s has a max above %d characters; make it smaller", what, maxText)
	case in.Type == Enum && len(in.Values) == 0:
		return in, r.bad(n, "%s has no values; list them", what)
	case in.Type != Enum && in.Values != nil:
		return in, r.bad(n, "%s has values, which are for an enum; take them out", what)
	case in.Required && def != nil:
		return in, r.bad(def, "%s is required and has a default; take one of them out", what)
	case !in.Required && def == nil:
		return in, r.bad(n, "%s is neither required nor has a default; add one of them", what)
	case in.Required:
		return in, nil
	}
	var v any
	if def.Kind != yaml.ScalarNode || def.Decode(&v) != nil {
		return in, r.bad(def, "%s: default must be one value", what)
	}
	s, err := in.convert(v)
	if err != nil {
		return in, r.bad(def, "%s: default %w", what, err)
	}
	in.Default = s
	return in, nil
}

func (r reader) bound(n *yaml.Node, what string) (*float64, error) {
	var f float64
	if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || n.Decode(&f) != nil || f-f != 0 {
		return nil, r.bad(n, "%s must be a number", what)
	}
	return &f, nil
}

// lines reads a list of different short texts.
func (r reader) lines(n *yaml.Node, what string, from, to int) ([]string, error) {
	if n.Kind != yaml.SequenceNode || len(n.Content) < from || len(n.Content) > to {
		return nil, r.bad(n, "%s must be a list of %d to %d texts", what, from, to)
	}
	var out []string
	for _, c := range n.Content {
		s, err := r.line(c, what)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o string) bool { return strings.EqualFold(o, s) }) {
			return nil, r.bad(c, "%s has %s twice; remove one", what, quoted(s))
		}
		out = append(out, s)
	}
	return out, nil
}

var (
	actionKeys = []string{"call", "model", "wait", "ask", "stop", "done"}
	stepKeys   = append([]string{"id", "title", "if", "retry", "on_failure", "gate", "output"}, actionKeys...)
)

func (r reader) steps(n *yaml.Node, inputs []Input) ([]step, error) {
	var ids []string
	for _, c := range n.Content {
		if c.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(c.Content); i += 2 {
			if k := c.Content[i].Value; k == "id" || k == "output" {
				ids = append(ids, c.Content[i+1].Value)
			}
		}
	}
	var out []step
	for i, c := range n.Content {
		r.at = strconv.Itoa(i + 1)
		s, err := r.step(c, names{inputs: inputs, steps: out, later: ids})
		if err != nil {
			return nil, err
		}
		for _, o := range out {
			for _, name := range []string{s.id, s.alias} {
				if name != "" && (name == o.id || name == o.alias) {
					return nil, r.bad(c, "the name %s is that of an earlier step, too; take another one", quoted(name))
				}
			}
		}
		out = append(out, s)
		if i+1 < len(n.Content) && s.cond == nil && (s.kind == KindDone || s.kind == KindFailed) {
			return nil, r.bad(c, "the workflow always ends here, and steps come after it; add an if, or take them out")
		}
	}
	return out, nil
}

func (r reader) step(n *yaml.Node, known names) (step, error) {
	s := step{line: n.Line}
	list, err := r.entries(n, "a step", stepKeys)
	if err != nil {
		return s, err
	}
	keys := map[string]*yaml.Node{}
	var actions []string
	for _, e := range list {
		keys[e.key.Value] = e.value
		if slices.Contains(actionKeys, e.key.Value) {
			actions = append(actions, e.key.Value)
		}
	}
	if keys["id"] == nil {
		return s, r.bad(n, "it has no id; add one")
	}
	if s.id, err = r.line(keys["id"], "id"); err != nil {
		return s, err
	}
	if !stepName.MatchString(s.id) {
		return s, r.bad(keys["id"], "the id %s must be 1 to 40 of a-z, 0-9, _ and -, beginning with a letter", quoted(s.id))
	}
	r.at = s.id
	if len(actions) != 1 {
		return s, r.bad(n, "it has %d of %s; give it exactly one", len(actions), strings.Join(actionKeys, ", "))
	}
	s.title = s.id
	if t := keys["title"]; t != nil {
		if s.title, err = r.line(t, "title"); err != nil {
			return s, err
		}
	}
	if err := r.qualify(&s, actions[0], keys, known); err != nil {
		return s, err
	}
	return s, r.action(&s, actions[0], keys[actions[0]], known)
}

// qualify reads the keys that every kind of step may have, and refuses those that mean
// nothing for this one.
func (r reader) qualify(s *step, action string, keys map[string]*yaml.Node, known names) error {
	runs := action == "call" || action == "model"
	for key, fits := range map[string]bool{"gate": action == "call", "retry": runs, "on_failure": runs || action == "ask", "output": runs || action == "ask"} {
		if keys[key] != nil && !fits {
			return r.bad(keys[key], "%s means nothing for a step with %s; take it out", key, action)
		}
	}
	var err error
	if g := keys["gate"]; g != nil {
		if s.gate, err = r.boolean(g, "gate"); err != nil {
			return err
		}
	}
	if o := keys["output"]; o != nil {
		if s.alias, err = r.line(o, "output"); err != nil {
			return err
		}
		if !stepName.MatchString(s.alias) || s.alias == s.id {
			return r.bad(o, "output %s must be a name like an id, and another one than the step's", quoted(s.alias))
		}
	}
	if f := keys["on_failure"]; f != nil {
		if f.Value != "stop" && f.Value != "continue" {
			return r.bad(f, "on_failure is %s; use stop or continue", quoted(f.Value))
		}
		s.onward = f.Value == "continue"
	}
	if c := keys["if"]; c != nil {
		if s.condSrc, err = r.text(c, "if", maxCondition); err != nil {
			return err
		}
		cond := s.condSrc
		if strings.Contains(cond, "${") {
			if !r.stored {
				return r.bad(c, "if: %w", known.errTemplates(cond))
			}
			if cond, err = known.fromTemplates(cond); err != nil {
				return r.bad(c, "if: %w", err)
			}
		}
		if s.cond, err = known.parseCondition(cond); err != nil {
			return r.bad(c, "if: %w", err)
		}
	}
	if keys["retry"] != nil {
		return r.retry(s, keys["retry"])
	}
	return nil
}

func (r reader) retry(s *step, n *yaml.Node) error {
	list, err := r.entries(n, "retry", []string{"times", "wait"})
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.key.Value == "times" {
			s.retries, err = r.integer(e.value, "retry.times", 1, MaxTries)
		} else {
			s.retryWait, err = r.duration(e.value, "retry.wait", time.Second, maxWait)
		}
		if err != nil {
			return err
		}
	}
	if s.retries == 0 {
		return r.bad(n, "retry has no times; add times: 1 to %d", MaxTries)
	}
	return nil
}

func (r reader) action(s *step, action string, n *yaml.Node, known names) error {
	var err error
	switch action {
	case "call":
		s.kind = KindCall
		err = r.call(s, n, known)
	case "model":
		s.kind = KindModel
		err = r.model(s, n, known)
	case "ask":
		s.kind = KindAsk
		err = r.ask(s, n, known)
	case "wait":
		s.kind = KindWait
		s.wait, err = r.duration(n, "wait", time.Second, maxWait)
	case "stop":
		s.kind = KindFailed
		err = r.only(s, n, "stop", "reason", known)
	default:
		s.kind = KindDone
		err = r.only(s, n, "done", "text", known)
	}
	return err
}

// only reads an action with one text.
func (r reader) only(s *step, n *yaml.Node, action, key string, known names) error {
	list, err := r.entries(n, action, []string{key})
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return r.bad(n, "%s has no %s; add it", action, key)
	}
	s.text, err = r.template(list[0].value, action+"."+key, known)
	return err
}

func (r reader) template(n *yaml.Node, what string, known names) (text, error) {
	src, err := r.text(n, what, maxText)
	if err != nil {
		return text{}, err
	}
	t, err := known.parseText(strings.TrimRight(src, "\n"), false)
	if err != nil {
		return text{}, r.bad(n, "%s: %w", what, err)
	}
	return t, nil
}

func (r reader) model(s *step, n *yaml.Node, known names) error {
	list, err := r.entries(n, "model", []string{"prompt", "tools", "limit"})
	if err != nil {
		return err
	}
	s.tools = NoTools
	for _, e := range list {
		switch e.key.Value {
		case "prompt":
			s.text, err = r.template(e.value, "model.prompt", known)
		case "tools":
			if s.tools = ModelTools(e.value.Value); s.tools != NoTools && s.tools != ReadTools {
				err = r.bad(e.value, "model.tools is %s; use none or readonly", quoted(e.value.Value))
			}
		case "limit":
			s.limit, err = r.integer(e.value, "model.limit", 50, 32000)
		}
		if err != nil {
			return err
		}
	}
	if len(s.text.parts) == 0 {
		return r.bad(n, "model has no prompt; add it")
	}
	return nil
}

func (r reader) ask(s *step, n *yaml.Node, known names) error {
	list, err := r.entries(n, "ask", []string{"question", "choices", "pattern"})
	if err != nil {
		return err
	}
	for _, e := range list {
		switch e.key.Value {
		case "question":
			s.text, err = r.template(e.value, "ask.question", known)
		case "choices":
			s.choices, err = r.lines(e.value, "ask.choices", 2, maxChoices)
		case "pattern":
			if s.pattern, err = r.text(e.value, "ask.pattern", 500); err == nil {
				if s.answer, err = whole(s.pattern); err != nil {
					err = r.bad(e.value, "ask.pattern: %w", err)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	switch {
	case len(s.text.parts) == 0:
		return r.bad(n, "ask has no question; add it")
	case s.choices != nil && s.answer != nil:
		return r.bad(n, "ask has choices and a pattern; use one of them")
	}
	return nil
}

// notForWorkflows are tools that a workflow may not call: it is a plan itself, and what
// is nested in it could not be told apart.
var notForWorkflows = words("run_workflow propose_plan")

func (r reader) call(s *step, n *yaml.Node, known names) error {
	list, err := r.entries(n, "call", []string{"tool", "arguments"})
	if err != nil {
		return err
	}
	s.args = &value{object: map[string]*value{}}
	for _, e := range list {
		if e.key.Value == "tool" {
			if s.tool, err = r.line(e.value, "call.tool"); err == nil && !toolName.MatchString(s.tool) {
				err = r.bad(e.value, "call.tool %s is no name of a tool; use 1 to 64 letters, digits, _ and -", quoted(s.tool))
			}
			if err == nil && notForWorkflows[s.tool] {
				err = r.bad(e.value, "a workflow cannot call %s; write its steps here", s.tool)
			}
		} else if e.value.Kind != yaml.MappingNode {
			err = r.bad(e.value, "call.arguments must be keys with values")
		} else {
			s.args, err = r.value(e.value, "call.arguments", "", s.gate, known, 0)
		}
		if err != nil {
			return err
		}
	}
	if s.tool == "" {
		return r.bad(n, "call has no tool; add it")
	}
	if m := s.args.object["mutation"]; s.gate && claims(s.tool) && m != nil && m.lit == false {
		return r.bad(n, "the step is a gate and says mutation: false; take one of them out")
	}
	return nil
}

// shellKeys are arguments that are shell text, whatever the tool. codeKeys are code in
// other languages, or keys for a program in a terminal: no quotes are right for them all.
var (
	shellKeys = words("command script")
	codeKeys  = words("code keys literal_text")
)

// value reads arguments. key is the argument that n belongs to.
func (r reader) value(n *yaml.Node, what, key string, gate bool, known names, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, r.bad(n, "%s is nested deeper than %d levels", what, maxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		list, err := r.entries(n, what, nil)
		if err != nil {
			return nil, err
		}
		v := &value{object: map[string]*value{}}
		for _, e := range list {
			if strings.Contains(e.key.Value, "${") {
				return nil, r.bad(e.key, "a template cannot be a key; write the key %s out", quoted(e.key.Value))
			}
			inner := e.key.Value
			if codeKeys[key] || shellKeys[key] {
				inner = key // what is inside is no safer
			}
			if v.object[e.key.Value], err = r.value(e.value, what+"."+e.key.Value, inner, gate, known, depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	case yaml.SequenceNode:
		v := &value{isList: true}
		for i, c := range n.Content {
			inner := key
			if shellKeys[key] {
				inner = "code" // words of a command: "sh", "-c", ...
			}
			x, err := r.value(c, fmt.Sprintf("%s[%d]", what, i), inner, gate, known, depth+1)
			if err != nil {
				return nil, err
			}
			v.array = append(v.array, x)
		}
		return v, nil
	case yaml.ScalarNode:
		if n.Anchor != "" {
			return nil, r.bad(n, "anchors and aliases are not read; write %s out", what)
		}
		return r.scalar(n, what, key, gate, known)
	default:
		return nil, r.bad(n, "anchors and aliases are not read; write %s out", what)
	}
}

func (r reader) scalar(n *yaml.Node, what, key string, gate bool, known names) (*value, error) {
	var v any
	switch n.ShortTag() {
	case "!!null":
		return &value{}, nil
	case "!!bool", "!!int":
		if err := n.Decode(&v); err != nil {
			return nil, r.bad(n, "%s cannot be read; put it in quotes", what)
		}
		if b, ok := v.(bool); ok {
			return &value{lit: b}, nil
		}
		return &value{lit: json.Number(fmt.Sprint(v))}, nil
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || f-f != 0 {
			return nil, r.bad(n, "%s is a number that JSON does not have; put it in quotes", what)
		}
		return &value{lit: json.Number(strconv.FormatFloat(f, 'g', -1, 64))}, nil
	case "!!str":
	default:
		return nil, r.bad(n, "%s would be read as %s; put it in quotes", what, n.ShortTag())
	}
	src := n.Value
	if shellKeys[key] {
		src = strings.TrimRight(src, "\n") // what | adds in YAML
	}
	t, err := known.parseText(src, shellKeys[key])
	if err != nil {
		return nil, r.bad(n, "%s: %w", what, err)
	}
	switch {
	case codeKeys[key] && len(t.refs()) > 0:
		return nil, r.bad(n, "%s is code or keys, and a value must never become that; use a command of run_shell with the value as an argument", what)
	case shellKeys[key]:
		if strings.ContainsRune(n.Value, 0) || strings.TrimSpace(n.Value) == "" {
			return nil, r.bad(n, "%s is empty or holds a NUL byte; write shell text", what)
		}
		if err := checkShell(t, gate); err != nil {
			return nil, r.bad(n, "%s: %w", what, err)
		}
	}
	return &value{text: &t}, nil
}
