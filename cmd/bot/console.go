package main

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/web"
	"countersign/adapters/web/connlimit"
	"countersign/adapters/web/oidc"
	"countersign/adapters/web/tlsfile"
	"countersign/approvals/audit"
	"countersign/approvals/policy"
	"countersign/store"
)

// WebConfig is about the web console.
type WebConfig struct {
	Origin string    `yaml:"origin"` // the address that people's browsers name; "" on loopback
	TLS    TLSConfig `yaml:"tls"`
	// OIDC lets people sign in through an identity provider, beside one-time links.
	OIDC OIDCConfig `yaml:"oidc"`
	// Viewers are groups whose members may only look, unless they are in another one.
	Viewers []string `yaml:"viewers"`
	// Session is how long somebody stays signed in at most, Idle without a request.
	Session time.Duration `yaml:"session"`
	Idle    time.Duration `yaml:"idle"`
	// Proxies are the addresses of reverse proxies whose X-Forwarded-For is believed.
	Proxies []string `yaml:"proxies"`
	// WatchLinks lets members share a terminal with people who cannot sign in.
	WatchLinks bool `yaml:"watch_links"`
}

// TLSConfig names the files of a certificate and its key.
type TLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// OIDCConfig is an identity provider that speaks OpenID Connect.
type OIDCConfig struct {
	Issuer      string   `yaml:"issuer"`
	ClientID    string   `yaml:"client_id"` // its secret is OIDC_CLIENT_SECRET
	Scopes      []string `yaml:"scopes"`
	NameClaim   string   `yaml:"name_claim"`
	GroupsClaim string   `yaml:"groups_claim"`
	Label       string   `yaml:"label"` // of the button
}

func defaultWeb() WebConfig {
	return WebConfig{
		Session: 12 * time.Hour, Idle: 2 * time.Hour, WatchLinks: true,
		// A verified address is a name that people cannot choose; at many providers
		// preferred_username is not.
		OIDC: OIDCConfig{NameClaim: "email", GroupsClaim: "groups", Label: "Sign in with your account"},
	}
}

func (c WebConfig) check(path string, groups map[string]policy.Group) error {
	if c.Origin != "" {
		u, err := url.Parse(c.Origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usage("%s: web.origin is %q, which is no origin; write it like https://bot.example.com", path, c.Origin)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return usage("%s: web.tls needs both cert and key; name the two files, or neither", path)
	}
	if o := c.OIDC; o.Issuer != "" || o.ClientID != "" {
		switch {
		case o.Issuer == "" || o.ClientID == "":
			return usage("%s: web.oidc needs issuer and client_id; copy both from the identity provider", path)
		case c.Origin == "":
			return usage("%s: web.oidc needs web.origin, where the identity provider sends people back to; set it", path)
		}
	}
	for _, name := range c.Viewers {
		if _, ok := groups[name]; !ok {
			return usage("%s: web.viewers has %q, which is not one of the groups (%s)", path, name, strings.Join(sortedKeys(groups), ", "))
		}
	}
	if err := cleanNames(path, groups); err != nil {
		return err
	}
	if c.Idle < time.Minute || c.Session < c.Idle {
		return usage("%s: web.session is %s and web.idle %s; idle is at least 1m, and session no shorter than idle", path, c.Session, c.Idle)
	}
	_, err := c.proxies(path)
	return err
}

// webNames are the people whom groups name at the console.
func webNames(groups map[string]policy.Group) []string {
	var out []string
	for _, g := range sortedKeys(groups) {
		out = append(out, groups[g].Web...)
	}
	return out
}

// cleanNames brings the console's names of groups to the form that sign-ins have.
func cleanNames(path string, groups map[string]policy.Group) error {
	if _, err := web.NamesApart(webNames(groups)); err != nil {
		return usage("%s: groups: the web name %v", path, err)
	}
	for _, name := range sortedKeys(groups) {
		g := groups[name]
		if g.Web == nil {
			continue
		}
		clean, err := web.NamesApart(g.Web)
		if err != nil {
			return usage("%s: groups.%s.web: %v", path, name, err)
		}
		g.Web = clean
		groups[name] = g
	}
	return nil
}

func (c WebConfig) proxies(path string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range c.Proxies {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, usage("%s: web.proxies has %q; write addresses or networks such as 10.0.0.0/8", path, s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}

// secure wraps a listener in TLS where the configuration names a certificate, and
// gives the scheme of what is served.
func (b *bot) secure(ln net.Listener) (net.Listener, string, error) {
	c := b.file.Web.TLS
	if c.Cert == "" {
		return ln, "http", nil
	}
	cfg, err := tlsfile.Config(c.Cert, c.Key, b.log)
	if err != nil {
		return nil, "", usage("%v", err)
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
	proxies, err := b.file.Web.proxies(b.env.Config)
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
	proxies, err := c.proxies(b.env.Config)
	if err != nil {
		return nil, err
	}
	trail := audit.Trail{Redact: b.redact}
	cfg := web.Config{
		DB: b.db, Key: b.key, Title: "Countersign", Examples: examples, Log: b.log, Now: time.Now, Origin: c.Origin,
		ActsAtOnce: actsAtOnce, ActsPerSecond: actsPerSecond,
		Idle: c.Idle, Absolute: c.Session, Proxies: proxies, OIDCLabel: c.OIDC.Label,
		Users: func(name string, groups []string) web.Role { return webRole(b.rules.Load(), name, groups) },
		Names: func() []string { return webNames(b.rules.Load().file.Groups) },
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
	if !b.noTerminals() {
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
		return nil, usage("web.oidc: %v", err)
	}
	return client, nil
}

// webRole says what somebody may do in the console. It needs no network, since the
// groups that an identity provider named came with the session.
func webRole(r *rules, name string, groups []string) web.Role {
	who := chat.User{ID: chat.UserID("web:" + name)}
	role := web.None
	for _, g := range sortedKeys(r.file.Groups) {
		if !r.policy.Eligible([]string{g}, who, groups) {
			continue
		}
		if !slices.Contains(r.file.Web.Viewers, g) {
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
