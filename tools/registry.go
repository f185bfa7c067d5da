package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/approvals/risk"
	"countersign/internal/edits"
)

// Registry holds the tools of one bot. It is immutable and safe for concurrent
// use.
type Registry struct {
	now   func() time.Time
	names []string // sorted
	byKey map[string]*entry
}

type entry struct {
	tool  Tool
	spec  Spec
	check *checker
}

// NewRegistry returns a registry of these tools. It refuses tools that share a name or an alias,
// have no level, have a schema that is not one of an object, or a description that lacks a section
// of the guidance (see [Guidance]): these are programming errors, found at startup. A schema is
// compiled when the first arguments come, or by [Registry.Compile].
//
// Each tool answers to its name, its aliases, and the spellings of both with underscores instead of
// dashes.
func NewRegistry(now func() time.Time, ts ...Tool) (*Registry, error) {
	return (&Registry{now: now, byKey: map[string]*entry{}}).With(ts...)
}

// With returns a registry of these tools as well, under the rules of [NewRegistry].
func (r *Registry) With(ts ...Tool) (*Registry, error) {
	r = r.Only(func(Spec) bool { return true })
	var errs []error
	for _, t := range ts {
		s := t.Spec()
		e, err := newEntry(t, s)
		if err == nil && r.byKey[s.Name] != nil {
			err = errors.New("there are two tools of this name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("tool %q: %w", s.Name, err))
			continue
		}
		r.names = append(r.names, s.Name)
		r.byKey[s.Name] = e
	}
	slices.Sort(r.names)
	for _, name := range r.names {
		e := r.byKey[name]
		for _, alias := range spellings(e.spec) {
			if other := r.byKey[alias]; other != nil && other != e {
				errs = append(errs, fmt.Errorf("tool %q: its alias %q already means %q", name, alias, other.spec.Name))
				continue
			}
			r.byKey[alias] = e
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// Compile compiles the schemas of all tools now and returns what is wrong with them. Schemas that
// other people wrote are compiled before their tools are offered.
func (r *Registry) Compile() error {
	var errs []error
	for _, name := range r.names {
		if _, err := r.byKey[name].check.compile(); err != nil {
			errs = append(errs, fmt.Errorf("tool %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func newEntry(t Tool, s Spec) (*entry, error) {
	if !toolName.MatchString(s.Name) {
		return nil, errors.New("a name has 1 to 64 letters, digits, dashes and underscores")
	}
	if s.Level <= risk.Unknown || s.Level > risk.Critical {
		return nil, errors.New("it has no risk level")
	}
	if err := Guidance(s.Description); err != nil {
		return nil, err
	}
	c, err := newChecker(s.Schema)
	if err != nil {
		return nil, err
	}
	c.below = s.Below
	s.ModelSchema, s.ModelText = trimSchema(s.Schema), trimDescription(s.Description)
	return &entry{tool: t, spec: s, check: c}, nil
}

// spellings lists what a tool answers to besides its name.
func spellings(s Spec) []string {
	var all []string
	for _, n := range append([]string{s.Name}, s.Aliases...) {
		for _, sp := range []string{n, strings.ReplaceAll(n, "-", "_")} {
			if sp != s.Name && !slices.Contains(all, sp) {
				all = append(all, sp)
			}
		}
	}
	return all
}

// sections are the headings of the guidance, in order.
var sections = []struct {
	name string
	re   *regexp.Regexp
}{
	{"When to use", regexp.MustCompile(`(?m)^#{0,4} *When to use:? *$`)},
	{"When NOT to use", regexp.MustCompile(`(?m)^#{0,4} *When NOT to use:? *$`)},
	{"Disambiguation", regexp.MustCompile(`(?m)^#{0,4} *Disambiguation:? *$`)},
	{"Examples", regexp.MustCompile(`(?m)^#{0,4} *Examples?:? *$`)},
}

// Guidance checks that a description has the four sections that help a model to choose: "When to
// use", "When NOT to use", "Disambiguation" and "Examples". Each heading is on its own line, in
// this order, and no section is empty.
func Guidance(description string) error {
	from := 0
	for i, s := range sections {
		loc := s.re.FindStringIndex(description[from:])
		if loc == nil {
			return fmt.Errorf("its description has no section %q (in its place)", s.name)
		}
		body := description[from+loc[1]:]
		if i+1 < len(sections) {
			if next := sections[i+1].re.FindStringIndex(body); next != nil {
				body = body[:next[0]]
			}
		}
		if strings.TrimSpace(body) == "" {
			return fmt.Errorf("the section %q of its description is empty", s.name)
		}
		from += loc[1]
	}
	return nil
}

// Specs lists the tools that models are offered and that keep accepts, sorted by name; a nil keep
// accepts all.
func (r *Registry) Specs(keep func(Spec) bool) []Spec {
	var out []Spec
	for _, n := range r.names {
		if s := r.byKey[n].spec; !s.Unlisted && (keep == nil || keep(s)) {
			out = append(out, s)
		}
	}
	return out
}

// Names lists the names of all tools, sorted.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

// Spellings lists everything that a tool answers to, sorted.
func (r *Registry) Spellings() []string { return slices.Sorted(maps.Keys(r.byKey)) }

// Lookup returns a tool by its name or an alias.
func (r *Registry) Lookup(name string) (Spec, bool) {
	e := r.byKey[name]
	if e == nil {
		return Spec{}, false
	}
	return e.spec, true
}

// Only returns a registry with only the tools that keep accepts.
func (r *Registry) Only(keep func(Spec) bool) *Registry {
	out := &Registry{now: r.now, byKey: maps.Clone(r.byKey)}
	maps.DeleteFunc(out.byKey, func(_ string, e *entry) bool { return !keep(e.spec) })
	for _, n := range r.names {
		if out.byKey[n] != nil {
			out.names = append(out.names, n)
		}
	}
	return out
}

// Plan validates the arguments of a call against the tool's schema, normalizes them (path aliases
// renamed, defaults filled in, keys sorted) and lets the tool plan. Files and directories are
// always named "path"; [PathAliases] are accepted for it. The tool sees its own name and never sees
// invalid arguments. Plan has no side effects. Its error is an [*Error].
func (r *Registry) Plan(ctx context.Context, c Call) (Plan, error) {
	e := r.byKey[c.Name]
	if e == nil || e.spec.Unlisted && !c.Direct {
		return Plan{}, r.unknown(c.Name)
	}
	args, err := e.check.canonical(c.Args)
	if err != nil {
		return Plan{}, err
	}
	c.Name, c.Args = e.spec.Name, args
	p, err := e.tool.Plan(ctx, c)
	if err != nil {
		if _, ok := errors.AsType[*Error](err); !ok {
			err = &Error{Kind: ExecutionFailed, Sentence: err.Error(), Cause: err}
		}
		return Plan{}, err
	}
	p.Level = max(p.Level, e.spec.Level) // a call may be riskier than the tool's minimum
	return p, nil
}

func (r *Registry) unknown(name string) error {
	unlisted := func(n string) bool { return r.byKey[n].spec.Unlisted }
	names := strings.Join(slices.DeleteFunc(r.Names(), unlisted), ", ")
	if names == "" {
		return noTool("there is no tool %s; no tools are available here", Quote(name))
	}
	if near := nearest(name, slices.DeleteFunc(r.Spellings(), unlisted)); near != "" {
		return noTool("there is no tool %s; did you mean %s? The tools are %s", Quote(name), r.byKey[near].spec.Name, names)
	}
	return noTool("there is no tool %s; the tools are %s", Quote(name), names)
}

// ErrNoTool is the cause of an error about a tool that isn't there.
var ErrNoTool = errors.New("no such tool")

func noTool(format string, a ...any) error {
	return &Error{Kind: ExecutionFailed, Sentence: fmt.Sprintf(format, a...), Cause: ErrNoTool}
}

// nearest returns the name that a wrong one is probably meant to be, or "".
func nearest(wrong string, names []string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	best, least := "", len(wrong)/3+1
	for _, n := range names {
		if d := edits.Distance(plain(wrong), plain(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// Envelope is [Envelope] with the registry's clock.
func (r *Registry) Envelope(value any) string { return Envelope(r.now(), value) }

// Denied is [DeniedEnvelope] with the registry's clock.
func (r *Registry) Denied(reason string) string { return DeniedEnvelope(r.now(), reason) }
