// Package console puts the web console in front of the bot: who may do what there, what it
// shows of terminals and recordings, and the address that it listens on, with its limits
// and its certificate.
//
// What the console does is console.
package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals/audit"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/registry"
	"countersign/bot/machines"
	"countersign/bot/replicas"
	"countersign/config"
	"countersign/config/rules"
	"countersign/console"
	"countersign/console/api"
	"countersign/console/connlimit"
	"countersign/console/oidc"
	"countersign/console/tlsfile"
	"countersign/console/webpush"
	"countersign/internal/redact"
	"countersign/store"
)

// Config is what the console is made of.
type Config struct {
	File       string // that the configuration was read from, for its proxies
	DataDir    string // where what the last sign-in brought is kept
	Web        config.WebConfig
	OIDCSecret redact.Secret
	DB         store.DB
	Key        []byte // signs login codes and sessions
	Rules      func() *rules.Rules
	Replicas   *replicas.Member
	Machines   machines.Set
	Desk       console.Desk
	Lists      console.Lists
	Outputs    console.Outputs // nil where none is kept
	Calls      api.Calls
	Recordings *machines.Recordings // nil where nothing is recorded
	Redact     func(string) string
	// Tell gets each line of the audit record in its transaction; nil gets none (see audit.Trail).
	Tell func(tx store.Tx, thread string, e audit.Event, at time.Time)
	Log  *slog.Logger
}

// Listen listens for the console. Its result is limited, and with TLS where the
// configuration names a certificate; base is the address of what is served there.
func (c Config) Listen(ctx context.Context, listen string) (limited *connlimit.Listener, secured net.Listener, base string, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, nil, "", fmt.Errorf("the web console cannot listen on %s (%w); set COUNTERSIGN_LISTEN to a free address", listen, err)
	}
	if limited, err = c.Limit(ln); err != nil {
		return nil, nil, "", errors.Join(err, ln.Close())
	}
	secured, scheme, err := c.secure(limited)
	if err != nil {
		return nil, nil, "", errors.Join(err, ln.Close())
	}
	return limited, secured, scheme + "://" + secured.Addr().String(), nil
}

// secure wraps a listener in TLS where the configuration names a certificate, and
// gives the scheme of what is served.
func (c Config) secure(ln net.Listener) (net.Listener, string, error) {
	t := c.Web.TLS
	if t.Cert == "" {
		return ln, "http", nil
	}
	cfg, err := tlsfile.Config(t.Cert, t.Key, c.Log)
	if err != nil {
		return nil, "", config.Errorf("%v", err)
	}
	return tls.NewListener(ln, cfg), "https", nil
}

const (
	// strangersMost and strangersLeast bound how many connections may be open to one
	// address of the bot that nobody has signed in on.
	strangersMost, strangersLeast = 512, 8
	// strangersShare is which part of the files that this process may have open they
	// take: the rest is for the store, the targets, the networks and the people.
	strangersShare = 4
)

// strangers are the limits for a process that may have so many files open.
func strangers(files uint64) (all, each int) {
	all = int(min(max(files/strangersShare, strangersLeast), strangersMost))
	return all, max(all/4, strangersLeast)
}

// Limit bounds the connections of a listener that nobody has signed in on.
func (c Config) Limit(ln net.Listener) (*connlimit.Listener, error) {
	proxies, err := c.Web.ProxyPrefixes(c.File)
	if err != nil {
		return nil, err
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		files.Cur = 1024 // what systems usually give
	}
	all, each := strangers(files.Cur)
	return connlimit.New(ln, connlimit.Config{All: all, Each: each, Proxies: proxies, Log: c.Log})
}

// What one session may send: more than somebody types in an incident, less than a
// program that runs wild.
const (
	actionsAtOnce    = 60
	actionsPerSecond = 2
)

// New returns the web console that is served at base. It says signIn to who isn't signed in ("" is
// the command that makes a link), and offers examples to who has no
// thread yet.
func New(c Config, base, signIn string, examples []string) (*console.Adapter, error) {
	proxies, err := c.Web.ProxyPrefixes(c.File)
	if err != nil {
		return nil, err
	}
	trail := audit.Trail{Redact: c.Redact, Tell: c.Tell}
	cfg := console.Config{
		DB: c.DB, Log: c.Log, Now: time.Now,
		DoorConfig: console.DoorConfig{
			Key: c.Key, Origin: c.Web.Origin, Idle: c.Web.Idle, Absolute: c.Web.Session, ActionsAtOnce: actionsAtOnce, ActionsPerSecond: actionsPerSecond, Proxies: proxies,
			Users: func(name string, groups []string) console.Role { return Role(c.Rules(), name, groups) },
			Names: func() []string { return c.Rules().File.WebNames() },
			Audit: func(tx store.Tx, x console.Access) { trail.Append(tx, doorThread, doorEvent(x), x.At) },
		},
		PageConfig:  console.PageConfig{SignIn: signIn, Title: "Countersign", OIDCLabel: c.Web.OIDC.Label, Examples: examples},
		PartsConfig: console.PartsConfig{Desk: c.Desk, Lists: c.Lists, Calls: c.Calls, Redact: c.Redact, Outputs: c.Outputs},
	}
	if site, err := passkey.SiteOf(c.Web.Origin); err == nil {
		cfg.Passkeys = passkeys{db: c.DB, book: registry.Book{Site: site}, trail: trail, rules: c.Rules, now: time.Now}
	}
	if c.Web.Push != config.PushOff {
		cfg.OnPush = keepProblems(c.DataDir, c.Log)
		subject := c.Web.Origin
		if !isPublic(subject) {
			subject = "mailto:nobody@example.com" // services refuse an address that they can't reach
		}
		if cfg.Push, err = webpush.New(webpush.Config{Seed: c.Key, Subject: subject, Local: c.Web.Push == config.PushLocal}); err != nil {
			return nil, err
		}
	}
	if c.Replicas.Shared() {
		cfg.Tell, cfg.Share = c.Replicas.Page, c.Replicas.Live
	}
	var provider *oidc.Client
	if c.Web.OIDC.Issuer != "" {
		if provider, err = IdentityProvider(c.Web.OIDC, c.OIDCSecret, c.Log, keepSample(c.DataDir, c.Log)); err != nil {
			return nil, err
		}
		cfg.OIDC = provider
	}
	ids, err := newIdentities(c.Rules().File.Programs.Identities, c.File, c.Web, provider)
	if err != nil {
		return nil, err
	}
	if ids != nil {
		cfg.Identities = ids
	}
	if c.Web.Origin == "" {
		u, err := url.Parse(base)
		if err != nil {
			return nil, err
		}
		if net.ParseIP(u.Hostname()).IsLoopback() {
			cfg.Origin = base
		} else {
			c.Log.Warn("the console is reachable from other machines, and its address is taken from each request: set web.origin to the address that people use")
		}
	}
	if !c.Machines.NoTerminals() {
		cfg.Panes = panes{c.Machines}
		cfg.WatchLinks = c.Web.WatchLinks
	}
	if c.Recordings != nil {
		cfg.Recordings = films{*c.Recordings}
	}
	return console.New(cfg)
}

// IdentityProvider returns the client of the provider that is configured. seen gets what each sign-in
// brought; nil is not called.
func IdentityProvider(c config.OIDCConfig, secret redact.Secret, log *slog.Logger, seen func(oidc.Sample)) (*oidc.Client, error) {
	client, err := oidc.New(oidc.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: secret, Scopes: c.Scopes,
		NameClaim: c.Name(), GroupsClaim: c.GroupsClaim, Log: log, Seen: seen,
	})
	if err != nil {
		return nil, config.Errorf("web.oidc: %v", err)
	}
	return client, nil
}

// Role says what somebody may do in the console. It needs no network, since the
// groups that an identity provider named came with the session.
func Role(r *rules.Rules, name string, groups []string) console.Role {
	who := chat.User{ID: chat.UserID("web:" + name)}
	role := console.None
	for _, p := range r.File.People {
		if slices.Contains(p.People["web"], name) {
			return console.Member // also while they aren't on call
		}
	}
	for _, g := range slices.Sorted(maps.Keys(r.File.Groups)) {
		if !r.Policy.Eligible([]string{g}, who, groups) {
			continue
		}
		if !slices.Contains(r.File.Web.Viewers, g) {
			return console.Member
		}
		role = console.Viewer
	}
	return role
}

// doorThread is the chain of the audit record that sign-ins are in. It is no thread
// of a network: those have a colon.
const doorThread = "console"

// doorEvent is what the audit record says of one thing at the console's door.
func doorEvent(x console.Access) audit.Event {
	from := ""
	if x.Address != "" {
		from = "from " + x.Address
	}
	e := audit.Event{What: x.What, Via: x.How, Note: strings.Join(slices.DeleteFunc([]string{from, x.Note, x.Agent}, func(s string) bool { return s == "" }), "; ")}
	if x.Name != "" {
		e.User = "web:" + x.Name
	}
	return e
}

// CheckClearText returns an error for a console that other machines would reach without TLS: what
// signs people in, and lets them approve, would cross the network in clear. An https origin says
// that a proxy has TLS before it.
func CheckClearText(listen string, c config.WebConfig) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "localhost" || net.ParseIP(host).IsLoopback() || c.TLS.Cert != "" || strings.HasPrefix(c.Origin, "https://") {
		return nil //nolint:nilerr // what is no address is said when it is listened on
	}
	return config.Errorf("the console would be reachable on %s without TLS, so what signs people in would cross the network in clear; set web.tls, or put a proxy with "+
		"TLS before it and set web.origin to its https address, or start with --insecure-http if the network is yours alone", listen)
}

// CheckOrigin warns of a console whose cookies cross the network in clear.
func (c Config) CheckOrigin() {
	if u, err := url.Parse(c.Web.Origin); err == nil && u.Scheme == "http" && !net.ParseIP(u.Hostname()).IsLoopback() && u.Hostname() != "localhost" {
		c.Log.Warn("people reach the console by http, so what signs them in crosses the network in clear: put TLS before it (web.tls, or a proxy), and set web.origin to its https address", "origin", c.Web.Origin)
	}
}
