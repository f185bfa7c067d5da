package main

import (
	"crypto/tls"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"countersign/internal/config"
	"countersign/internal/rules"

	"countersign/adapters/chat"
	"countersign/adapters/web"
	"countersign/adapters/web/connlimit"
	"countersign/adapters/web/oidc"
	"countersign/adapters/web/tlsfile"
	"countersign/approvals/audit"
	"countersign/store"
)

// secure wraps a listener in TLS where the configuration names a certificate, and
// gives the scheme of what is served.
func (b *bot) secure(ln net.Listener) (net.Listener, string, error) {
	c := b.file.Web.TLS
	if c.Cert == "" {
		return ln, "http", nil
	}
	cfg, err := tlsfile.Config(c.Cert, c.Key, b.log)
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

// limit bounds the connections of a listener that nobody has signed in on.
func (b *bot) limit(ln net.Listener) (*connlimit.Listener, error) {
	proxies, err := b.file.Web.ProxyPrefixes(b.env.Config)
	if err != nil {
		return nil, err
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		files.Cur = 1024 // what systems usually give
	}
	all, each := strangers(files.Cur)
	return connlimit.New(ln, connlimit.Config{All: all, Each: each, Proxies: proxies, Log: b.log})
}

// What one session may send: more than somebody types in an incident, less than a
// program that runs wild.
const (
	actsAtOnce    = 60
	actsPerSecond = 2
)

// console makes the web console that is served at base.
func (b *bot) console(base string, examples []string) (*web.Adapter, error) {
	c := b.file.Web
	proxies, err := c.ProxyPrefixes(b.env.Config)
	if err != nil {
		return nil, err
	}
	trail := audit.Trail{Redact: b.redact}
	cfg := web.Config{
		DB: b.db, Key: b.key, Title: "Countersign", Examples: examples, Log: b.log, Now: time.Now, Origin: c.Origin,
		ActsAtOnce: actsAtOnce, ActsPerSecond: actsPerSecond,
		Idle: c.Idle, Absolute: c.Session, Proxies: proxies, OIDCLabel: c.OIDC.Label,
		Users: func(name string, groups []string) web.Role { return webRole(b.rules.Load(), name, groups) },
		Names: func() []string { return config.WebNames(b.rules.Load().File.Groups) },
		Audit: func(tx store.Tx, x web.Access) { trail.Append(tx, doorThread, doorEvent(x), x.At) },
	}
	if b.replicas.db != nil {
		cfg.Tell, cfg.Share = b.replicas.page, b.replicas.live
	}
	if c.OIDC.Issuer != "" {
		if cfg.OIDC, err = b.identityProvider(); err != nil {
			return nil, err
		}
	}
	if c.Origin == "" {
		u, err := url.Parse(base)
		if err != nil {
			return nil, err
		}
		if net.ParseIP(u.Hostname()).IsLoopback() {
			cfg.Origin = base
		} else {
			b.log.Warn("the console is reachable from other machines, and its address is taken from each request: set web.origin to the address that people use")
		}
	}
	if !b.machines.NoTerminals() {
		cfg.Panes = panes{b}
		cfg.WatchLinks = c.WatchLinks
	}
	if !b.file.Recordings.Off {
		cfg.Recordings = films{b}
	}
	return web.New(cfg)
}

// identityProvider makes the client of the provider that is configured.
func (b *bot) identityProvider() (*oidc.Client, error) {
	c := b.file.Web.OIDC
	client, err := oidc.New(oidc.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: b.env.OIDCSecret, Scopes: c.Scopes,
		NameClaim: c.NameClaim, GroupsClaim: c.GroupsClaim, Log: b.log,
	})
	if err != nil {
		return nil, config.Errorf("web.oidc: %v", err)
	}
	return client, nil
}

// webRole says what somebody may do in the console. It needs no network, since the
// groups that an identity provider named came with the session.
func webRole(r *rules.Rules, name string, groups []string) web.Role {
	who := chat.User{ID: chat.UserID("web:" + name)}
	role := web.None
	for _, g := range slices.Sorted(maps.Keys(r.File.Groups)) {
		if !r.Policy.Eligible([]string{g}, who, groups) {
			continue
		}
		if !slices.Contains(r.File.Web.Viewers, g) {
			return web.Member
		}
		role = web.Viewer
	}
	return role
}

// doorThread is the chain of the audit record that sign-ins are in. It is no thread
// of a network: those have a colon.
const doorThread = "console"

// doorEvent is what the audit record says of one thing at the console's door.
func doorEvent(x web.Access) audit.Event {
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

// checkOrigin warns of a console whose cookies cross the network in clear.
func (b *bot) checkOrigin() {
	if u, err := url.Parse(b.file.Web.Origin); err == nil && u.Scheme == "http" && !net.ParseIP(u.Hostname()).IsLoopback() && u.Hostname() != "localhost" {
		b.log.Warn("people reach the console by http, so what signs them in crosses the network in clear: put TLS before it (web.tls, or a proxy), and set web.origin to its https address", "origin", b.file.Web.Origin)
	}
}
