package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat/network"
	"countersign/agent/role"
	"countersign/agent/spend"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/internal/edits"
	"countersign/tools/output"
	"countersign/tools/shell"
)

// variables are the names of the variables that the configuration uses.
func (f File) variables() []string {
	var out []string
	for _, s := range f.MCP {
		out = append(out, s.Env...)
		for _, text := range s.Headers {
			for _, ref := range Variable.FindAllString(text, -1) {
				out = append(out, ref[2:len(ref)-1])
			}
		}
	}
	for _, p := range f.Tools.Plugins {
		out = append(out, p.Env...)
	}
	out = append(out, f.secretVariables()...)
	slices.Sort(out)
	return slices.Compact(out)
}

// secretVariables are the variables with the secrets of networks, of alerts, of webhooks, of the stream, of who is on call and of tickets.
func (f File) secretVariables() []string {
	out := networkSecrets(f.Networks())
	for _, h := range f.Alerts.Hooks {
		out = append(out, h.SecretEnv)
	}
	for _, w := range f.Programs.Webhooks {
		out = append(out, w.SecretEnv)
	}
	for _, s := range f.OnCall {
		if s.TokenEnv != "" {
			out = append(out, s.TokenEnv)
		}
	}
	for _, s := range f.Tickets {
		if s.TokenEnv != "" {
			out = append(out, s.TokenEnv)
		}
	}
	for _, s := range f.Stream {
		if s.TokenEnv != "" {
			out = append(out, s.TokenEnv)
		}
	}
	return out
}

// File is the YAML file that COUNTERSIGN_CONFIG names.
type File struct {
	Agent    AgentConfig             `yaml:"agent"`
	Targets  map[string]TargetConfig `yaml:"targets"`
	Groups   map[string]policy.Group `yaml:"groups"`
	Channels []ChannelConfig         `yaml:"channels"`
	Policy   policy.Config           `yaml:"policy"`
	Risk     risk.Extension          `yaml:"risk"`
	Audit    AuditConfig             `yaml:"audit"`
	Tools    ToolsConfig             `yaml:"tools"`
	Tmux     TmuxConfig              `yaml:"tmux"`
	Limits   LimitsConfig            `yaml:"limits"`
	Keep     KeepConfig              `yaml:"keep"`
	Web      WebConfig               `yaml:"web"`
	Signer   SignerConfig            `yaml:"signer,omitempty"`
	Metrics  MetricsConfig           `yaml:"metrics"`
	Slack    Workspaces              `yaml:"slack,omitempty"`
	Discord  DiscordConfig           `yaml:"discord"`
	// Internet is about what the bot itself may fetch.
	Internet InternetConfig `yaml:"internet"`
	// Recordings is about what terminals showed.
	Recordings RecordingsConfig `yaml:"recordings"`
	// MCP are the servers of the Model Context Protocol, by their names.
	MCP map[string]MCPConfig `yaml:"mcp"`
	// Outputs is about what commands printed.
	Outputs OutputsConfig `yaml:"outputs"`
	// Model is about the language model that the environment names.
	Model ModelConfig `yaml:"model"`
	// Roles and SubAgents are by name; one of the name of a built-in one replaces it.
	Roles     map[string]role.Role     `yaml:"roles"`
	SubAgents map[string]role.SubAgent `yaml:"sub_agents"`
	// Workflows are the runbooks beside the built-in ones.
	Workflows WorkflowsConfig `yaml:"workflows"`
	// Prices are what models cost, and Caps how much of it is enough.
	Prices spend.Prices `yaml:"prices"`
	Caps   spend.Caps   `yaml:"caps"`
	// Alerts says which alerting systems may send, and where their alerts go.
	Alerts alerts.Config `yaml:"alerts"`
	// Programs is about programs that ask: coding agents, jobs and scripts.
	Programs ProgramsConfig `yaml:"programs"`
	// OnCall are the sources of who is on call, by the names that lists of groups use, and People who
	// somebody in a source is in each network, by their address, id or name there.
	OnCall map[string]OnCallConfig `yaml:"oncall,omitempty"`
	People map[string]policy.Group `yaml:"people,omitempty"`
	// Handover says where hand-overs go.
	Handover HandoverConfig `yaml:"handover,omitempty"`
	// Tickets are the systems whose tickets changes are made for, by name.
	Tickets map[string]TicketsConfig `yaml:"tickets,omitempty"`
	// Stream are places that get every decision and every run as an event.
	Stream []StreamConfig `yaml:"stream,omitempty"`
}

// ModelConfig is about the language model.
type ModelConfig struct {
	// Fallback are models of the same server that are asked, in order, when the one before
	// does not answer.
	Fallback []string `yaml:"fallback"`
	// Window is how many tokens fit the model, input and output together.
	Window int `yaml:"window"`
}

// WorkflowsConfig says where runbooks are.
type WorkflowsConfig struct {
	Dirs   []string          `yaml:"dirs"`
	Inline map[string]string `yaml:"inline"` // by name, each the YAML text of one
}

// AgentConfig names the agent and its defaults.
type AgentConfig struct {
	Name   string `yaml:"name"`
	Target string `yaml:"target"`
	Preset string `yaml:"preset"`
	Mode   string `yaml:"mode"`
	Role   string `yaml:"role,omitempty"` // of threads that nobody gave another one
	// Until is the end of the mode trusting, which needs one.
	Until time.Time `yaml:"until,omitempty"`
}

// ChannelConfig binds a channel to a target.
type ChannelConfig struct {
	Platform string `yaml:"platform"`
	ID       string `yaml:"id"`
	Target   string `yaml:"target,omitempty"`
	Mode     string `yaml:"mode,omitempty"`
	Role     string `yaml:"role,omitempty"`
	// Until is the end of the mode trusting, which needs one.
	Until time.Time `yaml:"until,omitempty"`
	// Followups says which messages in the bot's threads it reads: "all" (the
	// default), or "mention": only those that mention it.
	Followups string `yaml:"followups,omitempty"`
	// History says whether the bot reads what was said in a thread before it was asked
	// into it: "on" (the default), or "off".
	History string `yaml:"history,omitempty"`
	// Bots are the ids of bots (alerting systems) that may speak to this one in
	// the channel. They can ask, and never decide.
	Bots []string `yaml:"bots,omitempty"`
}

// Languages are the interpreters of execute_code.
func (c ToolsConfig) Languages() shell.Interpreters {
	if len(c.Interpreters) == 0 {
		return shell.DefaultInterpreters()
	}
	return c.Interpreters
}

// TmuxConfig bounds the managed terminals.
type TmuxConfig struct {
	MaxSessions int `yaml:"max_sessions"` // of one thread
	MaxPanes    int `yaml:"max_panes"`    // of one thread
	// MaxTargetSessions and MaxInstanceSessions bound the sessions of all threads, on
	// one target and on all.
	MaxTargetSessions   int `yaml:"max_target_sessions"`
	MaxInstanceSessions int `yaml:"max_instance_sessions"`
	// Idle is how long a session may stand unused until it is ended.
	Idle time.Duration `yaml:"idle"`
}

// LimitsConfig bounds one turn.
type LimitsConfig struct {
	Steps   int           `yaml:"steps"`
	Tokens  int           `yaml:"tokens"`
	Wall    time.Duration `yaml:"wall"`
	Repeats int           `yaml:"repeats"`
	Park    time.Duration `yaml:"park"`
}

// MetricsConfig says where metrics are served.
type MetricsConfig struct {
	// Listen is an address for /metrics, /healthz and /readyz alone; "" serves them with
	// the console.
	Listen string `yaml:"listen"`
}

// InternetConfig says what the tools that fetch pages may reach.
type InternetConfig struct {
	// Allow are private addresses and hosts that may be fetched all the same, Deny are
	// those that may not: 10.1.2.3, 10.1.0.0/16, host, *.host, host:port.
	Allow []string `yaml:"allow"`
	Deny  []string `yaml:"deny"`
	Ports []int    `yaml:"ports"` // beside 80 and 443
	// Unasked lets pages be fetched without asking. An address can carry data out.
	Unasked bool `yaml:"unasked"`
	// Provider searches: ddg-html, ddg-lite, searxng or tavily; SearchURL is its address.
	Provider  string `yaml:"provider"`
	SearchURL string `yaml:"search_url" secret:"url"`
}

// KeepConfig says how long stored rows are kept.
type KeepConfig struct {
	// Deleted keeps the text of a message that was deleted in the record.
	Deleted bool          `yaml:"deleted,omitempty"`
	Events  time.Duration `yaml:"events"` // ids of chat events, for recognising repeats
	Undo    time.Duration `yaml:"undo"`   // what files were before a change, for the button Undo
	// Threads is how long a conversation is kept after its last entry; 0 is for ever.
	Threads time.Duration `yaml:"threads,omitempty"`
}

// OutputsConfig says what of outputs is kept whose result was cut.
type OutputsConfig struct {
	MaxBytes int64         `yaml:"max_bytes"` // of one call
	Keep     time.Duration `yaml:"keep"`
}

// Defaults is the configuration where the file is silent.
func Defaults() File {
	return File{
		Agent:   AgentConfig{Name: "ops", Target: "local", Preset: "oncall", Mode: "balanced"},
		Targets: map[string]TargetConfig{"local": {Kind: "local"}},
		Tmux:    TmuxConfig{MaxSessions: 2, MaxPanes: 5, MaxTargetSessions: 50, MaxInstanceSessions: 200, Idle: 24 * time.Hour},
		Limits:  LimitsConfig{Steps: 40, Tokens: 400_000, Wall: 15 * time.Minute, Repeats: 2, Park: 5 * time.Minute},
		Keep:    KeepConfig{Events: 7 * 24 * time.Hour, Undo: 7 * 24 * time.Hour},
		Audit:   defaultAudit(),

		Recordings: RecordingsConfig{MaxBytes: 50 << 20, Keep: 30 * 24 * time.Hour},
		Model:      ModelConfig{Window: 128_000},
		Web:        defaultWeb(),
		Programs:   ProgramsConfig{Channel: "web", Open: 10, PerHour: 60},
		Outputs:    OutputsConfig{MaxBytes: output.DefaultMax, Keep: 7 * 24 * time.Hour},
	}
}

// ReadFile reads and checks the YAML file; "" gives the defaults.
func ReadFile(path string) (File, error) {
	f, err := readFile(path)
	if e, ok := errors.AsType[*Error](err); ok {
		e.file = path
	}
	return f, err
}

func readFile(path string) (File, error) {
	f := Defaults()
	if path == "" {
		return f, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return f, Errorf("COUNTERSIGN_CONFIG cannot be read (%v); name a readable file or unset it", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return f, ExplainYAML(path, err, f.knownKeys())
	}
	if err := f.checkNetworks(b); err != nil {
		return f, ExplainYAML(path, err, f.knownKeys())
	}
	return f, f.check(path)
}

func (f File) check(path string) error {
	if _, err := policy.ParseMode(f.Agent.Mode); err != nil {
		return Errorf("%s: agent.mode: %v", path, err)
	}
	if policy.Mode(f.Agent.Mode) == policy.Trusting && f.Agent.Until.IsZero() {
		return Errorf("%s: agent.mode is trusting and has no end; add agent.until, such as %s", path, "2026-01-31T18:00:00Z")
	}
	if _, err := approvals.ParseReads(f.Policy.Reads); err != nil {
		return Errorf("%s: policy.reads: %v", path, err)
	}
	if err := f.Slack.check(path); err != nil {
		return err
	}
	if err := f.checkChannels(path); err != nil {
		return err
	}
	if err := f.checkAgents(path); err != nil {
		return err
	}
	if err := f.Alerts.Check(func(name string) bool { _, ok := f.Targets[name]; return ok }); err != nil {
		return Errorf("%s: alerts: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if err := f.checkAlerts(path); err != nil {
		return err
	}
	if err := f.Web.check(path, f.Groups); err != nil {
		return err
	}
	if err := f.checkNames(path); err != nil {
		return err
	}
	if err := f.checkPasskeys(path); err != nil {
		return err
	}
	if err := f.Audit.check(path, f.Has); err != nil {
		return err
	}
	if err := f.Programs.check(path); err != nil {
		return err
	}
	if err := checkStream(path, f.Stream); err != nil {
		return err
	}
	if err := f.checkOnCall(path); err != nil {
		return err
	}
	if err := f.Handover.check(path, f.Has); err != nil {
		return err
	}
	if err := f.checkTickets(path); err != nil {
		return err
	}
	if err := f.Tools.Interpreters.Check(); err != nil {
		return Errorf("%s: tools.interpreters: %v", path, err)
	}
	if !f.Recordings.Off && (f.Recordings.MaxBytes < 1<<20 || f.Recordings.Keep < time.Hour) {
		return Errorf("%s: recordings need max_bytes of at least 1048576 and keep of at least 1h; raise them, or set off: true", path)
	}
	if t := f.Keep.Threads; t != 0 && t < 24*time.Hour {
		return Errorf("%s: keep.threads is %s; use at least 24h, such as 2160h, or 0 for ever", path, t)
	}
	if f.Outputs.MaxBytes < 1<<16 || f.Outputs.Keep < time.Hour {
		return Errorf("%s: outputs need max_bytes of at least 65536 and keep of at least 1h; raise them", path)
	}
	if _, ok := f.Targets[f.Agent.Target]; !ok {
		return Errorf("%s: agent.target is %q, which is not one of the targets (%s)", path, f.Agent.Target, strings.Join(slices.Sorted(maps.Keys(f.Targets)), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Targets)) {
		if err := f.CheckTarget(fmt.Sprintf("%s: targets.%s", path, name), name, f.Targets[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkAgents checks what is said of the model, of roles and of what they cost.
func (f File) checkAgents(path string) error {
	set, err := role.New(role.Config{Roles: f.Roles, SubAgents: f.SubAgents})
	if err != nil {
		return Errorf("%s: %v", path, err)
	}
	if _, err := set.Role(f.Agent.Role); err != nil {
		return Errorf("%s: agent.role: %v", path, err)
	}
	for i, c := range f.Channels {
		if _, err := set.Role(c.Role); err != nil {
			return Errorf("%s: channels[%d].role: %v", path, i, err)
		}
	}
	if f.Model.Window < minWindow {
		return Errorf("%s: model.window is %d; a model that is of use here has at least %d tokens", path, f.Model.Window, minWindow)
	}
	if err := errors.Join(f.Prices.Validate(), f.Caps.Validate()); err != nil {
		return Errorf("%s: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func (f File) checkChannels(path string) error {
	seen := map[string]bool{}
	for i, c := range f.Channels {
		at := fmt.Sprintf("%s: channels[%d]", path, i)
		switch {
		case !f.Has(c.Platform) || network.Of(c.Platform).Platform() == "":
			return Errorf("%s has platform %q; use %s", at, c.Platform, network.Or(f.Networks(), network.Network.Platform))
		case c.ID == "":
			return Errorf("%s has no id; copy the channel's id from its details", at)
		case seen[c.Platform+"/"+c.ID]:
			return Errorf("%s: the channel %s is listed twice; put its keys into one entry", at, c.ID)
		case c.Followups != "" && c.Followups != "all" && c.Followups != "mention":
			return Errorf("%s has followups %q; use all or mention", at, c.Followups)
		case c.History != "" && c.History != "on" && c.History != "off":
			return Errorf("%s has history %q; use on or off", at, c.History)
		}
		if c.Target != "" {
			t, ok := f.Targets[c.Target]
			if !ok {
				return Errorf("%s has target %q, which is not one of the targets (%s)", at, c.Target, strings.Join(slices.Sorted(maps.Keys(f.Targets)), ", "))
			}
			if !t.In(c.Platform + ":" + c.ID) {
				return Errorf("%s has target %q, whose channels leave this one out; add %q to targets.%s.channels", at, c.Target, c.Platform+":"+c.ID, c.Target)
			}
		}
		if _, err := policy.ParseMode(c.Mode); err != nil {
			return Errorf("%s: %v", at, err)
		}
		if policy.Mode(c.Mode) == policy.Trusting && c.Until.IsZero() {
			return Errorf("%s has the mode trusting and no end; add until, such as %s", at, "2026-01-31T18:00:00Z")
		}
		seen[c.Platform+"/"+c.ID] = true
	}
	return nil
}

// Channel returns what is said of a channel.
func (f File) Channel(platform, id string) (ChannelConfig, bool) {
	for _, c := range f.Channels {
		if c.Platform == platform && c.ID == id {
			return c, true
		}
	}
	return ChannelConfig{}, false
}

var (
	unknownField = regexp.MustCompile(`line (\d+): field (\S+) not found`)
	yamlLine     = regexp.MustCompile(`line (\d+): (.*)`)
)

// ExplainYAML turns an error of the YAML decoder into one sentence with file, line and,
// for an unknown key, the nearest of the known ones.
func ExplainYAML(path string, err error, known []string) error {
	msg := err.Error()
	if m := unknownField.FindStringSubmatch(msg); m != nil {
		hint := ""
		if near := nearest(m[2], known); near == m[2] {
			hint = "; it is a key of another section"
		} else if near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return Errorf("%s: line %s: unknown key %q%s", path, m[1], m[2], hint)
	}
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		return Errorf("%s: line %s: %s", path, m[1], m[2])
	}
	return Errorf("%s: %s", path, strings.ReplaceAll(msg, "\n", " "))
}

// Networks are those that there may be, a workspace each.
func (f File) Networks() (out []network.Network) {
	for _, n := range network.All() {
		out = append(out, n)
		if n.Kind == network.Slack && len(f.Slack) > 0 {
			for _, w := range f.Slack[1:] {
				out = append(out, network.Of(n.Kind+"."+w.Name))
			}
		}
	}
	return out
}

// Has reports whether a network is one of them.
func (f File) Has(scheme string) bool {
	return slices.ContainsFunc(f.Networks(), func(n network.Network) bool { return n.Scheme == scheme })
}

// checkNetworks refuses keys of groups and people whose network isn't there. The text has been decoded, so it is
// YAML.
func (f File) checkNetworks(text []byte) error {
	var raw struct{ Groups, People yaml.Node }
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return err
	}
	for _, n := range slices.Concat(raw.Groups.Content, raw.People.Content) { // names and groups by turns
		if err := policy.CheckKeys(n, f.Has); err != nil {
			return err
		}
	}
	return nil
}

// knownKeys lists every key of the file's shape.
func (f File) knownKeys() []string {
	seen := map[string]bool{}
	for _, n := range f.Networks() {
		seen[n.Scheme], seen[n.GroupsKey()] = true, true
	}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(t.Elem())
		case reflect.Struct:
			for f := range t.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
				if name == "" || name == "-" {
					continue
				}
				seen[name] = true
				walk(f.Type)
			}
		default:
		}
	}
	walk(reflect.TypeFor[File]())
	return slices.Sorted(maps.Keys(seen))
}

// nearest returns the known key with the least edits to key, if that is close.
func nearest(key string, known []string) string {
	best, at := "", 3
	for _, k := range known {
		if d := edits.Distance(key, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// RoleIn is the role that the configuration gives to a channel.
func (f File) RoleIn(channel string) string {
	platform, id, _ := strings.Cut(channel, ":")
	if c, ok := f.Channel(platform, id); ok && c.Role != "" {
		return c.Role
	}
	return f.Agent.Role
}

// minWindow is the smallest window of a model, in tokens.
const minWindow = 8000

// DiscordConfig says where on Discord the bot works.
type DiscordConfig struct {
	// Guilds are the ids of the servers; in others the bot answers nobody.
	Guilds []string `yaml:"guilds"`
	// DMs lets members of these servers talk to the bot in direct messages.
	DMs bool `yaml:"dms"`
	// Shards are connections to Discord; 0 is what Discord recommends.
	Shards int `yaml:"shards"`
}

// RecordingsConfig is about the recordings of terminals.
type RecordingsConfig struct {
	Off bool `yaml:"off"`
	// MaxBytes is the size at which a recording leaves output out.
	MaxBytes int64 `yaml:"max_bytes"`
	// Keep is how long a recording is kept after its last moment.
	Keep time.Duration `yaml:"keep"`
}
