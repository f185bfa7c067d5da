package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Constraint bounds the calls of one tool. What breaks it is refused before
// anybody is asked. What a constraint cannot see, it refuses. Each zero value
// constrains nothing.
//
// Names and patterns can be written in many ways, so a list of what is blocked is
// a convenience against mistakes and no wall: that is what approvals and the rights
// of the machine's account are for.
type Constraint struct {
	// BlockedPatterns are globs over the path and over the command: all of it, each of
	// its words, and each text among the arguments, but not what a tool writes into a
	// file. * also stands for slashes; a pattern without a slash fits any part of a
	// path.
	BlockedPatterns []string `yaml:"blocked_patterns,omitempty" json:"blocked_patterns,omitempty"`
	// AllowedExtensions are the endings of paths, such as .md, that may be used;
	// "" stands for none.
	AllowedExtensions []string `yaml:"allowed_extensions,omitempty" json:"allowed_extensions,omitempty"`
	// BlockedHosts are names, each with all that is below it, or globs, that no
	// address in the call may have.
	BlockedHosts []string `yaml:"blocked_hosts,omitempty" json:"blocked_hosts,omitempty"`
	// BlockedSchemes are the beginnings of addresses, such as file or ftp.
	BlockedSchemes []string `yaml:"blocked_schemes,omitempty" json:"blocked_schemes,omitempty"`
	// AllowedModes are the values that the argument mode may have; "default" stands
	// for a call without it.
	AllowedModes []string `yaml:"allowed_modes,omitempty" json:"allowed_modes,omitempty"`
	// MaxItems bounds each list among the arguments, and the arguments limit,
	// max_items and max_results.
	MaxItems int `yaml:"max_items,omitempty" json:"max_items,omitempty"`
	// MaxBytes bounds the command or content, and the argument max_bytes.
	MaxBytes int `yaml:"max_bytes,omitempty" json:"max_bytes,omitempty"`
	// TimeoutSeconds is the longest time that a call may ask for (arguments wait,
	// timeout, timeout_seconds or timeout_ms); a call that asks for none is refused.
	TimeoutSeconds int `yaml:"timeout_seconds,omitempty" json:"timeout_seconds,omitempty"`
}

// ready checks the constraint and brings its lists into the form that broken
// compares with.
func (c Constraint) ready() (Constraint, error) {
	for key, n := range map[string]int{"max_items": c.MaxItems, "max_bytes": c.MaxBytes, "timeout_seconds": c.TimeoutSeconds} {
		if n < 0 {
			return c, fmt.Errorf(".%s is %d; use a positive number, or leave it out", key, n)
		}
	}
	for key, list := range map[string][]string{"blocked_patterns": c.BlockedPatterns, "blocked_hosts": c.BlockedHosts, "blocked_schemes": c.BlockedSchemes, "allowed_modes": c.AllowedModes} {
		if slices.Contains(list, "") {
			return c, fmt.Errorf(".%s has an empty entry; take it out", key)
		}
	}
	c.BlockedHosts = each(c.BlockedHosts, func(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) })
	c.BlockedSchemes = each(c.BlockedSchemes, func(s string) string {
		return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(s, "//"), ":"))
	})
	c.AllowedExtensions = each(c.AllowedExtensions, func(s string) string {
		if s != "" && !strings.HasPrefix(s, ".") {
			s = "." + s
		}
		return strings.ToLower(s)
	})
	return c, nil
}

func each(list []string, f func(string) string) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}

// broken returns the key that the call breaks and a sentence about it, or "".
func (c Constraint) broken(f Facts) (key, sentence string) {
	for _, f := range f.places() {
		if key, sentence = c.brokenAt(f); sentence != "" {
			return key, sentence
		}
	}
	return "", ""
}

// brokenAt is broken for one file, or none.
func (c Constraint) brokenAt(f Facts) (key, sentence string) {
	a := arguments(f)
	for _, check := range []struct {
		key string
		on  bool
		do  func(Facts, args) string
	}{
		{"blocked_patterns", c.BlockedPatterns != nil, c.patterns},
		{"allowed_extensions", c.AllowedExtensions != nil, c.extensions},
		{"blocked_schemes", c.BlockedSchemes != nil, c.schemes},
		{"blocked_hosts", c.BlockedHosts != nil, c.hosts},
		{"allowed_modes", c.AllowedModes != nil, c.modes},
		{"max_items", c.MaxItems > 0, c.items},
		{"max_bytes", c.MaxBytes > 0, c.bytes},
		{"timeout_seconds", c.TimeoutSeconds > 0, c.timeout},
	} {
		if !check.on {
			continue
		}
		if f.Args != "" && !a.known {
			return check.key, fmt.Sprintf("the policy's constraint %s on %s refuses this: %s", check.key, f.Tool, unseen)
		}
		if why := check.do(f, a); why != "" {
			return check.key, fmt.Sprintf("the policy's constraint %s on %s refuses this: %s", check.key, f.Tool, why)
		}
	}
	return "", ""
}

// args are a call's arguments, taken apart.
type args struct {
	known   bool // they are a JSON object
	top     map[string]any
	texts   []string // every text among them, also in lists and objects
	longest int      // entries of the longest list
}

// maxDepth bounds how deep arguments may be nested to be looked at.
const maxDepth = 20

func arguments(f Facts) args {
	raw := f.Args
	if raw == "" {
		raw = f.Command
	}
	var a args
	if json.Unmarshal([]byte(raw), &a.top) != nil || a.top == nil {
		return args{}
	}
	a.known = true
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		if depth > maxDepth {
			a.known = false
			return
		}
		switch v := v.(type) {
		case string:
			a.texts = append(a.texts, v)
		case []any:
			a.longest = max(a.longest, len(v))
			for _, e := range v {
				walk(e, depth+1)
			}
		case map[string]any:
			for _, e := range v {
				walk(e, depth+1)
			}
		}
	}
	walk(a.top, 0)
	slices.Sort(a.texts) // the order of a map is chance, and a sentence may name one
	return a
}

const unseen = "its arguments cannot be seen"

// texts returns everything in which a name can stand. What is written into a file
// names nothing.
func texts(f Facts, a args) []string {
	all := append([]string{f.Path, f.Command}, a.texts...)
	if f.Kind == "change" && f.Path != "" && f.Command != "" {
		all = slices.DeleteFunc(all, func(s string) bool { return s == f.Command && s != f.Path })
	}
	return all
}

// words splits a text where a shell could end a word, and strips quotes.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;|&()<>{},=", r) })
}

func (c Constraint) patterns(f Facts, a args) string {
	hit := func(s string) bool {
		return slices.ContainsFunc(c.BlockedPatterns, func(p string) bool {
			if glob(p, s) {
				return true
			}
			return !strings.Contains(p, "/") && slices.ContainsFunc(strings.Split(s, "/"), func(part string) bool { return glob(p, part) })
		})
	}
	for _, s := range texts(f, a) {
		if s == "" {
			continue
		}
		if hit(s) || hit(path.Clean(s)) {
			return "a blocked pattern fits " + brief(s)
		}
		for _, w := range words(s) {
			if hit(w) || hit(path.Clean(w)) {
				return "a blocked pattern fits " + brief(w)
			}
		}
	}
	return ""
}

func (c Constraint) extensions(f Facts, a args) string {
	p := f.Path
	for _, name := range []string{"path", "file_path", "file"} {
		if s, ok := a.top[name].(string); ok && p == "" {
			p = s
		}
	}
	if p == "" {
		return "it names no file"
	}
	if ext := strings.ToLower(path.Ext(p)); !slices.Contains(c.AllowedExtensions, ext) {
		return fmt.Sprintf("%s does not end in one of %s", brief(path.Base(p)), strings.Join(c.AllowedExtensions, ", "))
	}
	return ""
}

// addresses calls yield for every text that could be an address or its host.
func addresses(f Facts, a args, yield func(string) bool) {
	for _, s := range texts(f, a) {
		if s != "" && !yield(strings.TrimSpace(s)) {
			return
		}
		for _, w := range words(s) {
			if !yield(w) {
				return
			}
		}
	}
}

func (c Constraint) schemes(f Facts, a args) (why string) {
	addresses(f, a, func(s string) bool {
		scheme, _, ok := strings.Cut(strings.ToLower(s), ":")
		if ok && slices.Contains(c.BlockedSchemes, scheme) {
			why = "addresses that begin with " + scheme + ": are blocked"
		}
		return why == ""
	})
	return why
}

func (c Constraint) hosts(f Facts, a args) (why string) {
	addresses(f, a, func(s string) bool {
		host := hostOf(s)
		for _, h := range c.BlockedHosts {
			if host != "" && (glob(h, host) || strings.HasSuffix(host, "."+h)) {
				why = "the host " + brief(host) + " is blocked"
			}
		}
		return why == ""
	})
	return why
}

// hostOf returns what would be the host if s is an address, with or without its
// scheme, user and port.
func hostOf(s string) string {
	if _, after, ok := strings.Cut(s, "://"); ok {
		s = after
	}
	if i := strings.IndexAny(s, "/?#\\"); i >= 0 {
		s = s[:i]
	}
	s = s[strings.LastIndex(s, "@")+1:]
	if rest, ok := strings.CutPrefix(s, "["); ok {
		s, _, _ = strings.Cut(rest, "]")
	} else {
		s, _, _ = strings.Cut(s, ":")
	}
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}

func (c Constraint) modes(_ Facts, a args) string {
	mode := "default"
	switch v := a.top["mode"].(type) {
	case nil:
	case string:
		mode = v
	default:
		return "its mode is no text"
	}
	switch {
	case !a.known:
		return unseen
	case !slices.Contains(c.AllowedModes, mode):
		return fmt.Sprintf("the mode %s is not one of %s", brief(mode), strings.Join(c.AllowedModes, ", "))
	}
	return ""
}

// over says which of the named arguments is above most, once scaled.
func (a args) over(most float64, scale map[string]float64) (why string, given bool) {
	names := make([]string, 0, len(scale))
	for name := range scale {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v, ok := a.top[name]
		if !ok || v == nil {
			continue
		}
		given = true
		n, ok := v.(float64)
		if !ok || math.IsNaN(n) || n < 0 {
			return name + " is not a number that can be compared", true
		}
		if n*scale[name] > most {
			return fmt.Sprintf("%s is %v, above the limit", name, n), true
		}
	}
	return "", given
}

func (c Constraint) items(_ Facts, a args) string {
	if !a.known {
		return unseen
	}
	if a.longest > c.MaxItems {
		return fmt.Sprintf("a list has %d entries, and %d are allowed", a.longest, c.MaxItems)
	}
	why, _ := a.over(float64(c.MaxItems), map[string]float64{"limit": 1, "max_items": 1, "max_results": 1})
	return why
}

func (c Constraint) bytes(f Facts, a args) string {
	if n := len(f.Command); n > c.MaxBytes {
		return fmt.Sprintf("it has %d bytes, and %d are allowed", n, c.MaxBytes)
	}
	why, _ := a.over(float64(c.MaxBytes), map[string]float64{"max_bytes": 1})
	return why
}

func (c Constraint) timeout(_ Facts, a args) string {
	if !a.known {
		return unseen
	}
	given := false
	for _, arg := range []struct {
		name string
		unit time.Duration
	}{{"timeout", time.Second}, {"timeout_ms", time.Millisecond}, {"timeout_seconds", time.Second}, {"wait", time.Second}} {
		v, ok := a.top[arg.name]
		if _, yes := v.(bool); !ok || v == nil || yes {
			continue // wait: true or false is no time
		}
		n, ok := seconds(v, arg.unit)
		if !ok {
			return arg.name + " is not a time that can be compared"
		}
		if n > float64(c.TimeoutSeconds) {
			return fmt.Sprintf("%s is %v, above %d seconds", arg.name, v, c.TimeoutSeconds)
		}
		given = true
	}
	if !given {
		return fmt.Sprintf("it asks for no time; give one of at most %d seconds", c.TimeoutSeconds)
	}
	return ""
}

// seconds reads a time in seconds: a number of units, as such or as text, or text
// such as 10m.
func seconds(v any, unit time.Duration) (float64, bool) {
	n, ok := v.(float64)
	if s, text := v.(string); text {
		if d, err := time.ParseDuration(s); err == nil {
			return d.Seconds(), d >= 0
		}
		var err error
		n, err = strconv.ParseFloat(s, 64)
		ok = err == nil
	}
	return n * unit.Seconds(), ok && !math.IsNaN(n) && n >= 0
}

// brief quotes a text for a sentence, cut to what a line can hold.
func brief(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return fmt.Sprintf("%q", s)
}
