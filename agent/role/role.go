// Package role holds roles and sub-agents as data: a prompt, a choice of tools, a filter of
// their levels, and limits. A thread's agent has one role; a sub-agent is a role that other
// agents hand tasks to, as the tool sub_agent_<id>. The package brings some of both, and
// reads those of a configuration.
//
// It leads no conversation and gives no rights: whatever a role offers, each call is judged
// by package approvals. The tools themselves are made by tools/delegate.
package role

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/delegate"
)

// Role is what an agent is for. The zero Role is the bot as it is configured.
type Role struct {
	// Name is the key in the configuration, 1 to 40 of a-z, 0-9, "-" and "_".
	Name        string `yaml:"-"`
	Description string `yaml:"description,omitempty"` // for people who choose, in a sentence
	// Prompt is Markdown that the system prompt ends with.
	Prompt string `yaml:"prompt,omitempty"`
	// Preset, Additional, Flags and Disabled choose tools as [tools.Selection] does. Without
	// a preset it is the bot's own, with the tools that the bot has in addition; a
	// sub-agent's is then "readonly".
	Preset     string          `yaml:"preset,omitempty"`
	Additional []string        `yaml:"additional,omitempty"`
	Disabled   []string        `yaml:"disabled,omitempty"`
	Flags      map[string]bool `yaml:"flags,omitempty"`
	// Levels keeps only tools of these levels (read, low, medium, high, critical); none
	// keeps all. A tool's level is that of its least call, which for run_shell and bash is read.
	Levels []string `yaml:"levels,omitempty"`
	// ReadOnly lets nothing run but what is proven to only read, also in work that is handed on.
	ReadOnly bool   `yaml:"read_only,omitempty"`
	Model    string `yaml:"model,omitempty"` // "" is the bot's
	// Steps (replies of the model) and Tokens bound one turn, or one task of a sub-agent; 0
	// leaves it to the bot's limits.
	Steps  int `yaml:"steps,omitempty"`
	Tokens int `yaml:"tokens,omitempty"`

	// builtin roles may name tools that this bot lacks (some need a key).
	builtin bool
}

// SubAgent is a role that agents hand tasks to. Its Name is its id: 1 to 40 of a-z, 0-9 and "_".
type SubAgent struct {
	Role `yaml:",inline"`
	// When, Not, Differs and Examples become the sections of the tool's description; each
	// item is one line, and Examples are tasks. All may be empty.
	When     []string `yaml:"when,omitempty"`
	Not      []string `yaml:"not,omitempty"`
	Differs  []string `yaml:"differs,omitempty"`
	Examples []string `yaml:"examples,omitempty"`
}

// Tool is the name of the tool that hands a task to the sub-agent.
func (s SubAgent) Tool() string { return delegate.AgentPrefix + s.Name }

// Config is what a configuration says, by name. One of the name of a built-in one takes its
// place as a whole: nothing of the built-in one is left.
type Config struct {
	Roles     map[string]Role     `yaml:"roles,omitempty"`
	SubAgents map[string]SubAgent `yaml:"sub_agents,omitempty"`
}

var unknownKey = regexp.MustCompile(`line (\d+): field (\S+) not found`)

// Parse reads and checks a configuration in YAML. An unknown key is an error.
func Parse(source []byte) (Config, error) {
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(source))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		if m := unknownKey.FindStringSubmatch(err.Error()); m != nil {
			return Config{}, fmt.Errorf("line %s: unknown key %s; remove it, or see bot docs own-roles", m[1], tools.Quote(m[2]))
		}
		return Config{}, fmt.Errorf("the roles cannot be read as YAML: %w", err)
	}
	return c, c.Check()
}

// Limits of one role.
const (
	maxName        = 40
	maxDescription = 500    // characters
	maxPrompt      = 20_000 // characters, about 5,000 tokens that every request carries
	maxItems       = 20     // lines of one section of a description
	maxSteps       = 1000
)

var (
	roleName = regexp.MustCompile(fmt.Sprintf(`^[a-z0-9_-]{1,%d}$`, maxName))
	agentID  = regexp.MustCompile(fmt.Sprintf(`^[a-z0-9_]{1,%d}$`, maxName))
)

// Check finds the first mistake, in the order of the names. It does not know which tools and
// models there are: [Role.Tools] finds names of tools that nobody has.
func (c Config) Check() error {
	for _, name := range slices.Sorted(maps.Keys(c.Roles)) {
		if !roleName.MatchString(name) {
			return fmt.Errorf("roles has the name %s; use 1 to %d of a-z, 0-9, - and _", tools.Quote(name), maxName)
		}
		if err := c.Roles[name].check(); err != nil {
			return fmt.Errorf("roles.%s %w", name, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.SubAgents)) {
		if !agentID.MatchString(id) {
			return fmt.Errorf("sub_agents has the id %s; use 1 to %d of a-z, 0-9 and _", tools.Quote(id), maxName)
		}
		if err := c.SubAgents[id].check(); err != nil {
			return fmt.Errorf("sub_agents.%s %w", id, err)
		}
	}
	return nil
}

func (r Role) check() error {
	if r.Preset != "" && !slices.Contains(tools.Presets(), r.Preset) {
		return fmt.Errorf("has the preset %s; choose one of %s", tools.Quote(r.Preset), strings.Join(tools.Presets(), ", "))
	}
	for _, l := range r.Levels {
		if risk.ParseLevel(l) == risk.Unknown {
			return fmt.Errorf("has the level %s; use read, low, medium, high and critical", tools.Quote(l))
		}
	}
	switch {
	case utf8.RuneCountInString(r.Description) > maxDescription:
		return fmt.Errorf("has a description of more than %d characters; shorten it, and put the rest into prompt", maxDescription)
	case utf8.RuneCountInString(r.Prompt) > maxPrompt:
		return fmt.Errorf("has a prompt of more than %d characters, which every request would carry; shorten it", maxPrompt)
	case r.Steps < 0 || r.Steps > maxSteps:
		return fmt.Errorf("has steps: %d; use 1 to %d, or leave it out", r.Steps, maxSteps)
	case r.Tokens < 0:
		return fmt.Errorf("has tokens: %d; use a positive number, or leave it out", r.Tokens)
	}
	return nil
}

func (s SubAgent) check() error {
	if strings.TrimSpace(s.Description) == "" {
		return errors.New("has no description; say in a sentence what it does, so that an agent knows what to hand to it")
	}
	for _, section := range []struct {
		key   string
		items []string
	}{{"when", s.When}, {"not", s.Not}, {"differs", s.Differs}, {"examples", s.Examples}} {
		if len(section.items) > maxItems {
			return fmt.Errorf("has %d lines under %s; use at most %d", len(section.items), section.key, maxItems)
		}
	}
	for _, n := range slices.Concat(s.Additional, slices.Sorted(maps.Keys(s.Flags))) {
		if delegate.IsNested(n) {
			return fmt.Errorf("names the tool %s; a sub-agent hands nothing on, so remove it", n)
		}
	}
	return s.Role.check()
}
