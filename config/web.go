package config

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat/network"
	"countersign/approvals/policy"
	"countersign/console/spelling"
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
	// Push says which push services people's browsers may name for notifications: "internet",
	// also those of private networks ("local"), or none ("off").
	Push string `yaml:"push"`
}

// TLSConfig names the files of a certificate and its key.
type TLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key" secret:"file"`
}

// OIDCConfig is an identity provider that speaks OpenID Connect.
type OIDCConfig struct {
	Issuer      string   `yaml:"issuer"`
	ClientID    string   `yaml:"client_id"` // its secret is OIDC_CLIENT_SECRET
	Scopes      []string `yaml:"scopes"`
	NameClaim   string   `yaml:"name_claim"` // "": see Name
	GroupsClaim string   `yaml:"groups_claim"`
	Label       string   `yaml:"label"` // of the button
}

// Name is the claim that is the person's name. A verified address is a name that people cannot choose; at
// many providers preferred_username is not. At Entra ID it is, and Entra ID doesn't say whether addresses
// are verified.
func (c OIDCConfig) Name() string {
	if c.NameClaim != "" {
		return c.NameClaim
	}
	if u, err := url.Parse(c.Issuer); err == nil && slices.Contains(entraHosts, strings.ToLower(u.Hostname())) {
		return "preferred_username"
	}
	return "email"
}

// entraHosts are where Entra ID signs people in
// (learn.microsoft.com/entra/identity-platform/authentication-national-cloud).
var entraHosts = []string{"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn"}

// The values of WebConfig.Push.
const (
	PushInternet = "internet"
	PushLocal    = "local"
	PushOff      = "off"
)

func defaultWeb() WebConfig {
	return WebConfig{
		Session: 12 * time.Hour, Idle: 2 * time.Hour, WatchLinks: true, Push: PushInternet,
		OIDC: OIDCConfig{GroupsClaim: "groups", Label: "Sign in with your account"},
	}
}

func (c WebConfig) check(path string, groups map[string]policy.Group) error {
	if c.Origin != "" {
		u, err := url.Parse(c.Origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return Errorf("%s: web.origin is %q, which is no origin; write it like https://bot.example.com", path, c.Origin)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return Errorf("%s: web.tls needs both cert and key; name the two files, or neither", path)
	}
	if o := c.OIDC; o.Issuer != "" || o.ClientID != "" {
		switch {
		case o.Issuer == "" || o.ClientID == "":
			return Errorf("%s: web.oidc needs issuer and client_id; copy both from the identity provider", path)
		case c.Origin == "":
			return Errorf("%s: web.oidc needs web.origin, where the identity provider sends people back to; set it", path)
		}
	}
	if !slices.Contains([]string{PushInternet, PushLocal, PushOff}, c.Push) {
		return Errorf("%s: web.push is %q; write internet, local or off", path, c.Push)
	}
	for _, name := range c.Viewers {
		if _, ok := groups[name]; !ok {
			return Errorf("%s: web.viewers has %q, which is not one of the groups (%s)", path, name, strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
		}
	}
	if c.Idle < time.Minute || c.Session < c.Idle {
		return Errorf("%s: web.session is %s and web.idle %s; idle is at least 1m, and session no shorter than idle", path, c.Session, c.Idle)
	}
	_, err := c.ProxyPrefixes(path)
	return err
}

// WebNames are the people whom groups, or the section people, name at the console.
func (f File) WebNames() []string {
	var out []string
	for _, groups := range []map[string]policy.Group{f.Groups, f.People} {
		for _, g := range slices.Sorted(maps.Keys(groups)) {
			out = append(out, groups[g].People[network.Web]...)
		}
	}
	return out
}

// checkNames checks and cleans all of them.
func (f File) checkNames(path string) error {
	if _, err := spelling.Distinct(f.WebNames()); err != nil {
		return Errorf("%s: groups: the web name %v", path, err)
	}
	if err := cleanNames(path, "groups", f.Groups); err != nil {
		return err
	}
	return cleanNames(path, "people", f.People)
}

// cleanNames brings the console's names of groups to the form that sign-ins have. key is their section.
func cleanNames(path, key string, groups map[string]policy.Group) error {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		people := groups[name].People
		if people[network.Web] == nil {
			continue
		}
		clean, err := spelling.Distinct(people[network.Web])
		if err != nil {
			return Errorf("%s: %s.%s.web: %v", path, key, name, err)
		}
		people[network.Web] = clean
	}
	return nil
}

// ProxyPrefixes are the networks of the proxies; path is the file, for the error.
func (c WebConfig) ProxyPrefixes(path string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range c.Proxies {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, Errorf("%s: web.proxies has %q; write addresses or networks such as 10.0.0.0/8", path, s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}
