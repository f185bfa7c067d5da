// Package plugin makes tools from programs that people write themselves. A plugin is an executable
// on the bot's own machine, in any language, that speaks JSON lines on stdin and stdout. A [Host]
// starts each plugin once, restarts it after a crash, and offers its tools.
//
// The base protocol is three messages, one line each:
//
//	bot:    {"type":"init","tools":[]}
//	plugin: {"type":"init","tools":[{"name":..,"description":..,"parameters":{JSON Schema}}]}
//	bot:    {"type":"call","name":..,"call_id":..,"params":{..}}
//	plugin: {"type":"result","call_id":..,"content":[{"type":"text","text":..}],"is_error":false}
//
// Version 1 adds features that a plugin may announce in its answer to init as "features":[..]. A
// plugin that announces none sees only the additional fields "protocol" and "features" in init:
//
//   - "cancel": {"type":"cancel","call_id":..} asks it to stop a call, which it
//     still answers, within 5 seconds. Without it the program is ended and started again.
//   - "progress": it may write {"type":"progress","call_id":..,"text":..} during a call.
//   - "parallel": it gets up to 8 calls at a time. Without it there is one.
//   - "large": it reads lines of any length. Without it a line has at most 60 KiB.
//   - "timeout": each call has "timeout", the seconds that the bot will wait.
//
// The keys of a line are in the order shown, without spaces between them. A plugin's line may have
// 8 MiB. Any other output is logged and ignored.
//
// A plugin is trusted only as far as the operator trusts the program: each of its tools asks for
// approval unless the operator's own configuration declares it read-only; its descriptions and
// results are sanitized; its process has a scrubbed environment and its own process group. A plugin
// is not confined: it may do whatever the bot's user may do. Detecting tools that changed between
// runs of the bot is up to the caller, see [Host.Fingerprint].
package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/foreign"
)

// DefaultTimeout is how long a call may take if its plugin configures no timeout.
const DefaultTimeout = 120 * time.Second

// Config configures a [Host].
type Config struct {
	Plugins []Plugin
	// DataDir is the bot's data directory; each plugin works in its own directory below it. It is
	// required unless every plugin has a Dir.
	DataDir string
	// Taken lists the names and aliases of the bot's existing tools; a plugin's tool with such a
	// name is not offered.
	Taken []string
	// File receives the non-text parts of a result, to post them in the thread. Name and type are
	// sanitized; the data is as the plugin sent it, at most 8 MiB. nil drops files; the model is
	// told about them in any case.
	File func(ctx context.Context, thread, name, mime string, data []byte)
	// Log is required. The plugins' own output goes there, through Redact.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Redact removes secrets from what is logged; nil removes nothing.
	Redact func(string) string
}

// Plugin is one program.
type Plugin struct {
	// Name is shown to people; "" means the last element of Path without its extension. At most 64
	// letters, digits, dashes and underscores.
	Name string
	// Path is the executable. A relative path is relative to the bot's own directory and never
	// looked up in PATH.
	Path string
	Args []string
	// Env names variables of the bot's environment that the plugin gets besides PATH, HOME, LANG
	// and a few others that reveal nothing about the bot. Unset names are left out. The bot's own
	// (COUNTERSIGN_...) are refused.
	Env []string
	// Tools are the operator's levels, by tool name. A tool of risk.Read runs without approval; the
	// default is risk.High. A plugin's own claims are ignored.
	Tools map[string]risk.Level
	// Timeout is how long a call may take once the plugin has it; 0 means [DefaultTimeout].
	Timeout time.Duration
	// Dir is the working directory and HOME; "" means a directory below DataDir.
	Dir string
}

// Host runs the plugins. It is safe for concurrent use.
type Host struct {
	cfg     Config
	end     context.CancelFunc
	owners  sync.WaitGroup // one for each running plugin
	offered []*tool
	notices []string
}

// New starts every plugin and asks it for its tools. ctx bounds only the start; the plugins run
// until [Host.Close].
//
// A configuration mistake is an error. Plugins that do not start or answer, and tools that cannot
// be offered, are listed in [Host.Notices]; the bot runs without them until it is restarted.
func New(ctx context.Context, cfg Config) (*Host, error) {
	return open(ctx, cfg, func(p foreign.Program) (process, error) { return foreign.Start(p) })
}

func open(ctx context.Context, cfg Config, start launch) (*Host, error) {
	if cfg.Log == nil {
		return nil, errors.New("plugin: there is no log; set Config.Log")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	all := make([]*runner, len(cfg.Plugins))
	names := map[string]bool{}
	for i, p := range cfg.Plugins {
		r, err := prepare(cfg, p)
		if err != nil {
			return nil, err
		}
		if names[foreign.FoldName(r.cfg.Name)] {
			return nil, fmt.Errorf("plugin: two plugins are called %s; give one of them another name", r.cfg.Name)
		}
		names[foreign.FoldName(r.cfg.Name)] = true
		r.launch = start
		all[i] = r
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	h := &Host{cfg: cfg, end: end}
	errs := make([]error, len(all))
	var begun sync.WaitGroup
	for i, r := range all {
		begun.Go(func() { errs[i] = r.start(ctx, life) })
	}
	begun.Wait()
	if err := ctx.Err(); err != nil {
		for _, r := range all {
			r.close()
		}
		end()
		return nil, fmt.Errorf("plugin: the start was interrupted: %w", context.Cause(ctx))
	}
	taken := map[string]string{}
	for _, n := range cfg.Taken {
		taken[foreign.FoldName(n)] = "the bot has a tool of this name; give it another name"
	}
	for i, r := range all {
		if errs[i] != nil {
			h.notices = append(h.notices, fmt.Sprintf("plugin %s does not run: %v; it has no tools until the bot is started again", r.cfg.Name, errs[i]))
			continue
		}
		h.owners.Go(func() { r.keepRunning(life) })
		h.register(r, taken)
	}
	for _, n := range h.notices {
		cfg.Log.WarnContext(ctx, "plugins", "notice", n)
	}
	return h, nil
}

// register registers the tools of one plugin. A tool whose name is taken, or that the registry
// would refuse, becomes a notice instead.
func (h *Host) register(r *runner, taken map[string]string) {
	h.notices = append(h.notices, r.notices...)
	seen := map[string]bool{}
	for _, o := range r.offers {
		seen[o.name] = true
		refuse := func(why string) {
			h.notices = append(h.notices, fmt.Sprintf("tool %q of plugin %s is not offered: %s", o.name, r.cfg.Name, why))
		}
		if why := taken[foreign.FoldName(o.name)]; why != "" {
			refuse(why)
			continue
		}
		level, ok := r.cfg.Tools[o.name]
		if !ok {
			level = risk.High
		}
		t := &tool{
			plugin: r, name: o.name, sum: o.sum, files: h.cfg.File,
			spec: tools.Spec{Name: o.name, Description: o.description, Schema: o.schema, Level: level, Foreign: true},
		}
		// With a refused tool, the bot's registry would not start.
		reg, err := tools.NewRegistry(h.cfg.Now, t)
		if err == nil {
			err = reg.Compile()
		}
		if err != nil {
			refuse(foreign.Line(strings.TrimPrefix(err.Error(), fmt.Sprintf("tool %q: ", o.name)), 500))
			continue
		}
		taken[foreign.FoldName(o.name)] = "plugin " + r.cfg.Name + " has a tool of this name"
		h.offered = append(h.offered, t)
	}
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Tools)) {
		if !seen[name] {
			h.notices = append(h.notices, fmt.Sprintf("plugin %s has no tool %q, for which the configuration names a level", r.cfg.Name, name))
		}
	}
}

// Tools returns the tools of all plugins, in the order of the configuration.
func (h *Host) Tools() []tools.Tool {
	out := make([]tools.Tool, len(h.offered))
	for i, t := range h.offered {
		out[i] = t
	}
	return out
}

// Notices lists, in sentences, what is missing: plugins that did not start, tools that are not
// offered.
func (h *Host) Notices() []string { return slices.Clone(h.notices) }

// Fingerprint returns the hex SHA-256 of a tool's name, description and schema as the plugin sent
// them; ok is false for a tool that is not offered. A caller that stores it can detect a tool that
// changed between runs of the bot. Changes within one run are refused anyway.
func (h *Host) Fingerprint(tool string) (sum string, ok bool) {
	for _, t := range h.offered {
		if t.name == tool {
			return t.sum, true
		}
	}
	return "", false
}

// Close stops the plugins: it closes their input, after 2 seconds sends SIGTERM to their process
// groups, and after 2 more SIGKILL. It returns when they have exited. Calls in flight end with an
// unknown outcome.
func (h *Host) Close() {
	h.end()
	h.owners.Wait()
}

const maxTimeout = time.Hour

// prepare validates one plugin's configuration.
func prepare(cfg Config, p Plugin) (*runner, error) {
	if p.Path == "" {
		return nil, errors.New("plugin: a plugin has no path; name its executable")
	}
	path, err := filepath.Abs(p.Path)
	if err != nil {
		return nil, fmt.Errorf("plugin: %s: %w", p.Path, err)
	}
	if p.Name == "" {
		base := filepath.Base(path)
		p.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	bad := func(format string, a ...any) (*runner, error) {
		return nil, fmt.Errorf("plugin %s: %w", tools.Quote(p.Name), fmt.Errorf(format, a...))
	}
	if !foreign.IsToolName(p.Name) {
		return bad("a name has 1 to 64 letters, digits, dashes and underscores; give it a name")
	}
	for name, l := range p.Tools {
		if l <= risk.Unknown || l > risk.Critical {
			return bad("the level of tool %s is not a level; write read, low, medium, high or critical", tools.Quote(name))
		}
	}
	for _, name := range p.Env {
		if err := foreign.CheckVariable(name); err != nil {
			return bad("%w", err)
		}
	}
	if p.Timeout < 0 || p.Timeout > maxTimeout {
		return bad("its timeout is %s; write one of at most %s", p.Timeout, maxTimeout)
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	made := p.Dir == ""
	if made {
		if cfg.DataDir == "" {
			return bad("there is no data directory; set one, or a directory for the plugin")
		}
		p.Dir = filepath.Join(cfg.DataDir, "plugins", p.Name)
	}
	if p.Dir, err = filepath.Abs(p.Dir); err != nil {
		return bad("%w", err)
	}
	if made {
		if err := os.MkdirAll(p.Dir, 0o700); err != nil {
			return bad("its directory cannot be made: %w", err)
		}
	}
	p.Path = path
	log := cfg.Log.With("plugin", p.Name)
	return &runner{
		cfg: p, now: cfg.Now, changed: make(chan struct{}), log: log, journal: foreign.NewJournal(log, cfg.Redact, cfg.Now),
		program: foreign.Program{Path: path, Args: p.Args, Dir: p.Dir, Env: environ(p.Env, p.Dir, os.LookupEnv)},
	}, nil
}

// environ returns the whole environment of a plugin: that of every process of the bot, plus the
// variables that the operator passes.
func environ(pass []string, home string, look func(string) (string, bool)) []string {
	return foreign.Environ(backend.Environ(backend.Caps{User: "plugin", Home: home}), pass, look)
}

// maxProgram bounds the files that are hashed, in bytes.
const maxProgram = 512 << 20

// fileHashes returns the hex SHA-256 of the program and of those arguments that are files: people
// approve what these do.
func fileHashes(p foreign.Program) (map[string]string, error) {
	if st, err := os.Stat(p.Dir); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("there is no directory %s; make it or name another", p.Dir)
	}
	out := map[string]string{}
	for i, name := range append([]string{p.Path}, p.Args...) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		st, err := os.Stat(name)
		switch {
		case i == 0 && errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("there is no file %s; give the path of an executable", name)
		case i == 0 && err != nil:
			return nil, err
		case i == 0 && (!st.Mode().IsRegular() || st.Mode()&0o111 == 0):
			return nil, fmt.Errorf("%s is not an executable file; chmod +x it or name the program that runs it", name)
		case err != nil || !st.Mode().IsRegular() || st.Size() > maxProgram:
			continue
		}
		sum, err := fileHash(name)
		if err != nil {
			return nil, err
		}
		out[name] = sum
	}
	return out, nil
}

func fileHash(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
