package config

import (
	"regexp"
	"time"

	"countersign/tools/shell"
)

// PluginConfig is a program that offers tools, see docs/plugins.md.
type PluginConfig struct {
	Name string   `yaml:"name,omitempty"`
	Path string   `yaml:"path"`
	Args []string `yaml:"args,omitempty"`
	// Env are names of variables that it gets.
	Env []string `yaml:"env,omitempty"`
	// Levels are the levels of its tools; all others are high.
	Levels  map[string]string `yaml:"levels,omitempty"`
	Timeout time.Duration     `yaml:"timeout,omitempty"`
	Dir     string            `yaml:"dir,omitempty"`
}

// MCPConfig is a server that speaks the Model Context Protocol.
type MCPConfig struct {
	Command  []string `yaml:"command,omitempty"`
	Env      []string `yaml:"env,omitempty"`
	URL      string   `yaml:"url,omitempty" secret:"url"`
	Loopback bool     `yaml:"loopback,omitempty"`
	// Headers are sent with each request; ${NAME} is a variable of the bot's environment.
	Headers  map[string]string `yaml:"headers,omitempty"`
	Allow    []string          `yaml:"allow,omitempty"`
	AllowAll bool              `yaml:"allow_all,omitempty"`
	Levels   map[string]string `yaml:"levels,omitempty"`
	Timeout  time.Duration     `yaml:"timeout,omitempty"`
}

// Variable matches a variable of the environment in a text, ${NAME}.
var Variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// ToolsConfig chooses the tools.
type ToolsConfig struct {
	Additional []string       `yaml:"additional,omitempty"`
	Disabled   []string       `yaml:"disabled,omitempty"`
	Plugins    []PluginConfig `yaml:"plugins,omitempty"`
	// Interpreters are the languages of execute_code; nil means the usual ones.
	Interpreters shell.Interpreters `yaml:"interpreters,omitempty"`
}
