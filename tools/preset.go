package tools

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"countersign/approvals/risk"
)

// DefaultPreset is the preset of a bot whose configuration names none.
const DefaultPreset = "oncall"

// everything is the content of the presets "full" and "all".
const everything = "*"

// presets maps each preset to its tools. Names separated by bars are alternatives, of which the
// first that exists is used, so that a preset never has both tools of a pair.
var presets = map[string][]string{
	"oncall": {
		"run_shell|bash", "read_file|read", "write_file|write", "fetch_url|web_fetch", "web_search",
		"capture-pane", "send-keys", "time",
		"tmux-create-session", "tmux-kill-session", "tmux-create-pane", "tmux-kill-pane", "propose_plan",
		"trust_host_key", "read_output", "search_history", "run_workflow",
	},
	"coding":   {"read|read_file", "bash|run_shell", "edit", "write|write_file"},
	"readonly": {"read|read_file", "grep", "find", "ls", "read_output"},
	"web":      {"web_search", "web_fetch|fetch_url"},
	"minimal":  {"read_file|read", "edit", "write_file|write", "run_shell|bash"},
	"standard": {
		"run_shell|bash", "read_file|read", "write_file|write", "edit", "create_file", "delete_file",
		"grep", "find", "ls", "web_fetch|fetch_url", "web_search", "git_status", "git_diff", "git_log", "time", "read_output",
	},
	"full": {everything},
	"all":  {everything},
	"none": {},
}

// pairs are tools with the same purpose in two styles: "full" leaves out the second if the first
// exists.
var pairs = [...][2]string{{"run_shell", "bash"}, {"read_file", "read"}, {"write_file", "write"}, {"fetch_url", "web_fetch"}}

// Presets lists the names of the presets, sorted.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Selection selects tools: a preset, then Additional, then Flags, then Disabled and Levels.
// Disabled overrides everything. Names may be aliases. Unlisted tools are always selected unless
// they are disabled.
type Selection struct {
	Preset     string // "" means [DefaultPreset]
	Additional []string
	Disabled   []string
	// Flags override the preset for single tools, by name.
	Flags map[string]bool
	// Levels keeps only tools of these levels; empty keeps all.
	Levels []risk.Level
	// NoTmux leaves out the tools that need tmux.
	NoTmux bool
}

// Select returns the selected tools of r, the registry of all tools. A name that r does not know
// is an error, except in a preset. r must include the tools that NoTmux leaves out.
func (r *Registry) Select(s Selection) (*Registry, error) {
	preset := s.Preset
	if preset == "" {
		preset = DefaultPreset
	}
	words, ok := presets[preset]
	if !ok {
		return nil, fmt.Errorf("there is no preset %s; choose one of %s", Quote(preset), strings.Join(Presets(), ", "))
	}
	on := map[string]bool{}
	for _, n := range r.names {
		on[n] = r.byKey[n].spec.Unlisted
	}
	for _, w := range words {
		if w == everything {
			r.addAll(on)
			continue
		}
		for alt := range strings.SplitSeq(w, "|") {
			if r.byKey[alt] != nil {
				on[r.byKey[alt].spec.Name] = true
				break
			}
		}
	}
	set := func(key, name string, to bool) error {
		e := r.byKey[name]
		if e == nil {
			return fmt.Errorf("%s: %w", key, r.unknown(name))
		}
		on[e.spec.Name] = to
		return nil
	}
	for _, n := range s.Additional {
		if err := set("additional", n, true); err != nil {
			return nil, err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.Flags)) {
		if err := set("tool flags", n, s.Flags[n]); err != nil {
			return nil, err
		}
	}
	for _, n := range s.Disabled {
		if err := set("disabled", n, false); err != nil {
			return nil, err
		}
	}
	return r.Only(func(sp Spec) bool {
		return on[sp.Name] && (!s.NoTmux || !sp.NeedsTmux) && (len(s.Levels) == 0 || slices.Contains(s.Levels, sp.Level))
	}), nil
}

func (r *Registry) addAll(on map[string]bool) {
	for _, n := range r.names {
		on[n] = true
	}
	for _, p := range pairs {
		if on[p[0]] {
			delete(on, p[1])
		}
	}
}
