// Package mcp offers the tools of Model Context Protocol servers (https://modelcontextprotocol.io):
// programs that the bot starts and talks to over stdin and stdout, and servers that it reaches over
// HTTP. A [Host] holds them.
//
// Nothing that a server says is trusted. Each of its tools counts as a change at level high until
// the operator lowers it. Only tools that the operator lists are offered. A tool's definition is
// pinned when it is first seen, and a tool that changes is switched off until a person acknowledges
// it ([Host.Ack], [Host.Trust]). A server gets its own environment, none of the bot's secrets, and
// limits on time and size.
//
// The package does not decide who approves a call (approvals/gate). It uses only a server's tools:
// no prompts, resources, instructions, sampling or elicitation. It does not support OAuth and does
// not confine programs: a server runs with the rights of the bot's account.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/tools"
	"countersign/tools/foreign"
)

const (
	defaultTimeout = time.Minute
	maxTimeout     = time.Hour
)

// Server configures a server and what may be used of it. Either Command or URL must be set.
type Server struct {
	// Command is a program and its arguments. It is started in a directory below [Config].DataDir,
	// which is also its HOME unless Env names HOME.
	Command []string
	// Env names variables of the bot's environment that the program gets, besides PATH and those
	// for language and time zone. The bot's own (COUNTERSIGN_...) are refused.
	Env []string
	// URL is the address of a streamable HTTP server.
	URL string
	// Loopback allows a URL that leads to this machine.
	Loopback bool
	// Headers are sent with each request to the server, and to no other host.
	Headers map[string]redact.Secret
	// Reread returns the headers with the values that their sources have now; nil means that they
	// never change. It is called when the server refuses them. Sources names them, for people.
	Reread  func() (map[string]redact.Secret, error)
	Sources string
	// Allow lists the offered tools, by the server's names. Empty means none, unless AllowAll is
	// set.
	Allow    []string
	AllowAll bool
	// Levels sets the levels of tools, by the server's names; all others are risk.High. A tool of
	// risk.Read runs without approval. What the server says can only raise a level.
	Levels map[string]risk.Level
	// Timeout bounds one call; 0 means 1 minute, and the maximum is 1 hour.
	Timeout time.Duration
}

// Config configures a [Host]. Servers, DB, DataDir, Log and Now are required.
type Config struct {
	Servers map[string]Server
	// DB stores the pins.
	DB      store.DB
	DataDir string
	Log     *slog.Logger
	Now     func() time.Time
	// Redact removes secrets from the servers' output; nil removes only [Config.Secrets], which are
	// always removed.
	Redact func(string) string
	// Learn gets the secrets of headers that changed; nil drops them.
	Learn func(secrets ...string)
	// File posts a file that a tool returned (an image, audio, binary data) to the thread; nil
	// drops files. This package makes the name.
	File func(ctx context.Context, thread, name, mime string, data []byte) error
	// OnChange is called after the list of [Host.Tools] changed, but not before Start has returned.
	// It runs on a goroutine of the host, one call at a time, and must not call Ack or Close.
	OnChange func()
}

// Secrets lists the values of headers, the queries of addresses and the values of passed variables,
// for the bot's redactor.
func (c Config) Secrets() []string { return c.secrets(os.LookupEnv) }

// nonSecretVariables have values that occur in ordinary text.
var nonSecretVariables = []string{"HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "PWD", "HOSTNAME"}

// headerSecrets are the values of headers, and the tokens in them.
func headerSecrets(headers map[string]redact.Secret) (out []string) {
	for _, v := range headers {
		out = append(out, v.Reveal())
		if _, token, ok := strings.Cut(v.Reveal(), " "); ok {
			out = append(out, token) // of "Bearer <token>"
		}
	}
	return out
}

func (c Config) secrets(lookup func(string) (string, bool)) []string {
	var out []string
	for _, s := range c.Servers {
		out = append(out, headerSecrets(s.Headers)...)
		if u, err := url.Parse(s.URL); err == nil {
			for _, vs := range u.Query() {
				out = append(out, vs...)
			}
		}
		for _, n := range s.Env {
			if v, ok := lookup(n); ok && !slices.Contains(nonSecretVariables, n) && !slices.Contains(passedVariables, n) && !strings.HasPrefix(n, "LC_") {
				out = append(out, v)
			}
		}
	}
	return hidable(out)
}

// hidable are the secrets that are long enough to be taken out of a text, the longest first.
func hidable(secrets []string) []string {
	out := slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 6 })
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return slices.Compact(out)
}

// Host holds the servers. It is safe for concurrent use.
type Host struct {
	cfg         Config
	lookup      func(string) (string, bool)
	hideSecrets atomic.Pointer[strings.Replacer]
	timing      timing
	servers     []*server // sorted by name

	mu          sync.Mutex // guards the servers' state and the fields below
	offered     []tools.Tool
	fingerprint string // of offered, to detect changes
	secrets     []string
	started     bool
	cancel      context.CancelFunc
	running     sync.WaitGroup

	notifyMu sync.Mutex // held while OnChange runs
}

// timing holds the delays of a host; tests shorten them.
type timing struct {
	start        time.Duration // maximum wait of Start
	connect      time.Duration // to start a session, and to list tools
	stream       time.Duration // to open an event stream
	minRelist    time.Duration // minimum between two lists of a server
	relistEvery  time.Duration // maximum between two lists of a server
	restartPause func(*foreign.Restarts, time.Time) (time.Duration, bool)
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Host, error) {
	if c.DB == nil || c.DataDir == "" || c.Log == nil || c.Now == nil {
		return nil, errors.New("mcp: the configuration lacks DB, DataDir, Log or Now; set them all")
	}
	if !filepath.IsAbs(c.DataDir) {
		return nil, fmt.Errorf("mcp: the data directory %q is relative; give its whole path", c.DataDir)
	}
	names := slices.Sorted(maps.Keys(c.Servers))
	if err := checkServers(names); err != nil {
		return nil, err
	}
	h := &Host{
		cfg: c, lookup: os.LookupEnv,
		timing: timing{start: 10 * time.Second, connect: 30 * time.Second, stream: 10 * time.Second, minRelist: 5 * time.Second,
			relistEvery: 10 * time.Minute, restartPause: (*foreign.Restarts).Next},
	}
	h.hide(c.Secrets())
	for _, name := range names {
		s, err := h.server(name, c.Servers[name])
		if err != nil {
			return nil, fmt.Errorf("mcp: server %s: %w", name, err)
		}
		h.servers = append(h.servers, s)
	}
	return h, nil
}

func (h *Host) server(name string, c Server) (*server, error) {
	s := &server{host: h, name: name, cfg: c, dir: filepath.Join(h.cfg.DataDir, "mcp", name), built: map[string]builtTool{}, state: "is not connected yet"}
	s.log = foreign.NewJournal(h.cfg.Log.With("server", name), h.redact, h.cfg.Now)
	switch {
	case (len(c.Command) == 0) == (c.URL == ""):
		return nil, errors.New("set either a command or a URL")
	case c.URL != "":
		u, err := endpoint(c.URL, c.Loopback)
		if err != nil {
			return nil, err
		}
		if len(c.Env) > 0 {
			return nil, errors.New("it has a URL, so there is no program for its env; remove one of both")
		}
		for n, v := range c.Headers {
			if n == "" || strings.ContainsAny(n, " \t\r\n:") || strings.ContainsAny(v.Reveal(), "\r\n") {
				return nil, fmt.Errorf("the header %s has a name or a value that cannot be sent", tools.Quote(n))
			}
		}
		s.url = u
		s.headers = h.newHeaders(name, c)
	default:
		if len(c.Headers) > 0 {
			return nil, errors.New("it has a command, and headers are only sent to a URL; remove one of both")
		}
		if c.Command[0] == "" || strings.Contains(strings.Join(c.Command, ""), "\x00") {
			return nil, errors.New("its command has no program, or a NUL byte in it")
		}
		if strings.Contains(c.Command[0], "/") && !filepath.IsAbs(c.Command[0]) {
			return nil, fmt.Errorf("the program %s is relative, and the directory it starts in is its own; give its whole path, or a name that "+
				"is found in PATH", tools.Quote(c.Command[0]))
		}
		s.argv = c.Command
	}
	for _, n := range c.Env {
		if err := foreign.CheckVariable(n); err != nil {
			return nil, err
		}
	}
	for n, l := range c.Levels {
		if l <= risk.Unknown || l > risk.Critical {
			return nil, fmt.Errorf("the level of the tool %s is none", tools.Quote(n))
		}
		if !c.AllowAll && !slices.Contains(c.Allow, n) {
			return nil, fmt.Errorf("the tool %s has a level and is not allowed; list it, or check how it is written", tools.Quote(n))
		}
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		return nil, fmt.Errorf("its timeout must be between 0 and %s", maxTimeout)
	}
	s.cfg.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	return s, nil
}

// maxSecrets is how many secrets are remembered: tokens that change every few minutes are many.
const maxSecrets = 500

// hide adds secrets to those that are taken out of servers' output.
func (h *Host) hide(secrets []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secrets = append(h.secrets, secrets...)
	if n := len(h.secrets); n > maxSecrets {
		h.secrets = slices.Clone(h.secrets[n-maxSecrets:])
	}
	var pairs []string
	for _, s := range hidable(slices.Clone(h.secrets)) {
		pairs = append(pairs, s, "[redacted]")
	}
	h.hideSecrets.Store(strings.NewReplacer(pairs...))
}

// Reread reads the headers of all servers again.
func (h *Host) Reread() {
	for _, s := range h.servers {
		s.headers.reread()
	}
}

// redact removes secrets from a server's output.
func (h *Host) redact(text string) string {
	text = h.hideSecrets.Load().Replace(text)
	if h.cfg.Redact != nil {
		text = h.cfg.Redact(text)
	}
	return text
}

// Start reads the pins and connects to all servers concurrently. It returns when each has answered
// or failed once, at the latest after 10 seconds. Servers that are down are retried until ctx ends
// or Close is called; tools from earlier runs are offered meanwhile. An error means that the store
// cannot be read. Start must be called once.
func (h *Host) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	if h.cancel != nil {
		h.mu.Unlock()
		cancel()
		return errors.New("mcp: the servers have been started already")
	}
	h.cancel = cancel
	h.mu.Unlock()
	if err := h.load(ctx); err != nil {
		cancel()
		return fmt.Errorf("mcp: the pins of the tools cannot be read: %w", err)
	}
	h.refreshOffer()
	first := make(chan struct{}, len(h.servers))
	for _, s := range h.servers {
		h.running.Go(func() { s.run(ctx, sync.OnceFunc(func() { first <- struct{}{} })) })
	}
	limit := time.NewTimer(h.timing.start)
	defer limit.Stop()
	for range h.servers {
		select {
		case <-first:
		case <-limit.C:
			limit.Reset(0)
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	h.started = true
	h.mu.Unlock()
	return nil
}

// Close ends all servers and their calls, and returns when they have ended.
func (h *Host) Close() error {
	h.mu.Lock()
	cancel := h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	h.running.Wait()
	return nil
}

// load reads the rows of all servers.
func (h *Host) load(ctx context.Context) error {
	rows := map[string]map[string]pin{}
	err := h.cfg.DB.View(ctx, func(tx store.Tx) error {
		for _, s := range h.servers {
			rows[s.name] = pins(tx, s.name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		s.pins = rows[s.name]
	}
	return nil
}

// refreshOffer recomputes the offered tools and calls OnChange if they changed.
func (h *Host) refreshOffer() {
	h.notifyMu.Lock()
	defer h.notifyMu.Unlock()
	h.mu.Lock()
	var (
		all  []tools.Tool
		face strings.Builder
	)
	for _, s := range h.servers {
		ts, notes := s.offer()
		s.refused = notes
		for _, t := range ts {
			all = append(all, t)
			fmt.Fprintf(&face, "%s %s\n", t.spec.Name, t.pin.Def.Hash)
		}
	}
	differs := face.String() != h.fingerprint
	h.offered, h.fingerprint = all, face.String()
	started := h.started
	h.mu.Unlock()
	if differs && started && h.cfg.OnChange != nil {
		h.cfg.OnChange()
	}
}

// Tools lists the tools that may be offered now, sorted by server and name: allowed, with a valid
// schema, and unchanged since they were acknowledged. A tool stays usable after the list changed,
// and refuses calls while it is not listed.
func (h *Host) Tools() []tools.Tool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.offered)
}

// Pending lists the tools that are switched off because they changed.
func (h *Host) Pending() []Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Change
	for _, s := range h.servers {
		for _, name := range slices.Sorted(maps.Keys(s.pins)) {
			if p := s.pins[name]; p.Change != nil && s.allowed(name) {
				out = append(out, p.change(s.name))
			}
		}
	}
	return out
}

// Ack acknowledges the changed definition of a server's tool if it still has this hash; the tool is
// offered again at once. Otherwise the error wraps [ErrNothing].
func (h *Host) Ack(ctx context.Context, server, tool, hash string) (Change, error) {
	c, err := acknowledge(ctx, h.cfg.DB, server, tool, hash)
	if err != nil {
		return c, err
	}
	if err := h.load(ctx); err != nil {
		return c, err
	}
	h.refreshOffer()
	return c, nil
}

// Notices lists, in one sentence each, the servers and tools that do not work or are not offered,
// and why. They are for people: status, doctor and log.
func (h *Host) Notices() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, s := range h.servers {
		out = append(out, s.notices()...)
	}
	return out
}

// Target is the target in the actions of a server's tools, for the policy.
func Target(server string) string { return "mcp:" + server }
