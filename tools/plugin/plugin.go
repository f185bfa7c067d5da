// Package plugin makes tools of programs that people write themselves: a plugin is
// an executable on the bot's own machine, in any language, that speaks JSON lines
// on its standard input and output. A [Host] starts each plugin once, keeps it
// alive, starts it again after a crash, and offers its tools.
//
// The base protocol is three messages, one line each:
//
//	bot:    {"type":"init","tools":[]}
//	plugin: {"type":"init","tools":[{"name":..,"description":..,"parameters":{JSON Schema}}]}
//	bot:    {"type":"call","name":..,"call_id":..,"params":{..}}
//	plugin: {"type":"result","call_id":..,"content":[{"type":"text","text":..}],"is_error":false}
//
// Version 1 adds what a plugin may announce in its answer to init as
// "features":[..]; a plugin that announces nothing sees nothing of it but the
// fields "protocol" and "features" in init:
//
//   - "cancel": {"type":"cancel","call_id":..} asks it to stop a call, which it
//     still answers, within 5 seconds. Without it the program is ended and started again.
//   - "progress": it may write {"type":"progress","call_id":..,"text":..} during a call.
//   - "parallel": it gets up to 8 calls at a time. Without it there is one.
//   - "large": it reads lines of any length. Without it a line has at most 60 KiB.
//   - "timeout": each call has "timeout", the seconds that the bot will wait.
//
// The keys of a line come in the order shown, without blanks between them. A line
// of the plugin may have 8 MiB. Whatever else it writes is logged and ignored.
//
// A plugin is trusted as far as the operator trusts the program, and no further:
// every one of its tools asks people unless the operator's own configuration says
// that it only reads; its descriptions and results are foreign text and are cleaned;
// its process has a scrubbed environment and a process group of its own. A plugin is
// not confined: it may do what the bot's user may do. Remembering across starts what
// a tool looked like is for somebody else, see [Host.Fingerprint].
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

// DefaultTimeout is how long a call may take when its plugin says nothing else.
const DefaultTimeout = 120 * time.Second

// Config is what a [Host] is made of.
type Config struct {
	Plugins []Plugin
	// DataDir is the bot's directory for data; plugins work in directories of their
	// own below it. It is required unless each plugin has a Dir.
	DataDir string
	// Taken are the names and aliases of the tools that the bot has already: a
	// plugin's tool of such a name is not offered.
	Taken []string
	// File receives what a result holds beside text, to be shown in the thread. The
	// name and the type are cleaned; the data is as the plugin sent it, at most 8 MiB.
	// nil drops files; the model is told of them in any case.
	File func(ctx context.Context, thread, name, mime string, data []byte)
	// Log is required. What plugins write goes there, through Redact.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Redact takes secrets out of what is logged; nil leaves it as it is.
	Redact func(string) string
}

// Plugin is one program.
type Plugin struct {
	// Name is what people see; "" means the last part of Path without its extension.
	// Letters, digits, dashes and underscores, at most 64.
	Name string
	// Path is the executable; a relative one is relative to the bot's own directory
	// and never looked up in PATH.
	Path string
	Args []string
	// Env are the names of variables of the bot's environment that the plugin gets
	// beside PATH, HOME, LANG and a few others that say nothing of the bot. A name
	// that the bot's environment lacks is left out. The bot's own names
	// (COUNTERSIGN_...) are refused.
	Env []string
	// Tools are the operator's levels, by the names of tools. risk.Read says that a
	// tool only looks: it then runs unasked. A tool without a row is risk.High. What
	// a plugin says of its own tools counts for nothing.
	Tools map[string]risk.Level
	// Timeout is how long a call may take, from when the plugin gets it; 0 means
	// [DefaultTimeout].
	Timeout time.Duration
	// Dir is the working directory, and HOME; "" means one below DataDir.
	Dir string
}

// Host runs the plugins. It is safe for concurrent use.
type Host struct {
	cfg     Config
	end     context.CancelFunc
	owners  sync.WaitGroup // one for each plugin that runs
	offered []*tool
	notices []string
}

// New starts every plugin and asks it for its tools. ctx bounds the start only; the
// plugins run until [Host.Close].
//
// A mistake in the configuration is an error. A plugin that does not start or
// answer, and a tool that cannot be offered, are in [Host.Notices]: the bot runs
// without them until it is started again.
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
		if names[foreign.Spelling(r.cfg.Name)] {
			return nil, fmt.Errorf("plugin: two plugins are called %s; give one of them another name", r.cfg.Name)
		}
		names[foreign.Spelling(r.cfg.Name)] = true
		r.launch = start
		all[i] = r
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	h := &Host{cfg: cfg, end: end}
	errs := make([]error, len(all))
	var begun sync.WaitGroup
	for i, r := range all {
		begun.Go(func() { errs[i] = r.begin(ctx, life) })
	}
	begun.Wait()
	if err := ctx.Err(); err != nil {
		for _, r := range all {
			r.shut()
		}
		end()
		return nil, fmt.Errorf("plugin: the start was interrupted: %w", context.Cause(ctx))
	}
	taken := map[string]string{}
	for _, n := range cfg.Taken {
		taken[foreign.Spelling(n)] = "the bot has a tool of this name; give it another name"
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

// register registers the tools of one plugin. A tool whose name is taken, or that the bot's
// registry would refuse, becomes a notice instead.
func (h *Host) register(r *runner, taken map[string]string) {
	h.notices = append(h.notices, r.notices...)
	seen := map[string]bool{}
	for _, o := range r.offers {
		seen[o.name] = true
		refuse := func(why string) {
			h.notices = append(h.notices, fmt.Sprintf("tool %q of plugin %s is not offered: %s", o.name, r.cfg.Name, why))
		}
		if why := taken[foreign.Spelling(o.name)]; why != "" {
			refuse(why)
			continue
		}
		level, ok := r.cfg.Tools[o.name]
		if !ok {
			level = risk.High
		}
		t := &tool{
			plugin: r, name: o.name, sum: o.sum, files: h.cfg.File,
			spec: tools.Spec{Name: o.name, Description: o.description, Schema: o.schema, Level: level},
		}
		// The bot's registry would not start with a tool that it refuses.
		if _, err := tools.NewRegistry(h.cfg.Now, t); err != nil {
			refuse(foreign.Line(strings.TrimPrefix(err.Error(), fmt.Sprintf("tool %q: ", o.name)), 500))
			continue
		}
		taken[foreign.Spelling(o.name)] = "plugin " + r.cfg.Name + " has a tool of this name"
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

// Notices says in sentences what of the configuration is not there: plugins that
// did not start, tools that are not offered.
func (h *Host) Notices() []string { return slices.Clone(h.notices) }

// Fingerprint returns a SHA-256, in hex, of a tool's name, description and schema
// as the plugin sent them; ok is false for a tool that is not offered. A caller
// that keeps it can tell when a tool is no longer the one that it was. Within one
// run of the bot a tool that changes is refused anyway.
func (h *Host) Fingerprint(tool string) (sum string, ok bool) {
	for _, t := range h.offered {
		if t.name == tool {
			return t.sum, true
		}
	}
	return "", false
}

// Close ends the plugins: their input is closed, after 2 seconds their process
// groups get SIGTERM, and after 2 more SIGKILL. It returns when they are gone. Calls
// in flight end with an unknown outcome.
func (h *Host) Close() {
	h.end()
	h.owners.Wait()
}

const maxTimeout = time.Hour

// prepare checks one plugin's configuration.
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
	if !foreign.Name(p.Name) {
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

// environ is the whole environment of a plugin: the one that every process of the
// bot gets, with the names that the operator lets through.
func environ(pass []string, home string, look func(string) (string, bool)) []string {
	return foreign.Environ(backend.Environ(backend.Caps{User: "plugin", Home: home}), pass, look)
}

// maxProgram bounds the files whose content is looked at, in bytes.
const maxProgram = 512 << 20

// sums returns the SHA-256, in hex, of the program and of those of its arguments
// that are files: what a person approves is what these do.
func sums(p foreign.Program) (map[string]string, error) {
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
		sum, err := sumOf(name)
		if err != nil {
			return nil, err
		}
		out[name] = sum
	}
	return out, nil
}

func sumOf(name string) (string, error) {
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
