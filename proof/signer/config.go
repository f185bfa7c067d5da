// Package signer is an authority of SSH certificates that never takes the bot's word. It knows by
// its own configuration whose passkeys count and what each host needs, checks the signed votes of a
// request against that, and signs a certificate that is good for one run of exactly what they
// approved. Its state is a file of what it has signed.
package signer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/approvals/passkey"
	"countersign/proof/signer/enroll"
)

// Config is the signer's configuration file.
type Config struct {
	// Listen is where it listens: the path of a socket, or an address such as 10.0.0.7:7022, which
	// needs Cert and TLSKey (files) if it isn't on loopback.
	Listen string `yaml:"listen"`
	Cert   string `yaml:"cert,omitempty"`
	TLSKey string `yaml:"tls_key,omitempty"`
	// Token is a file with the word that the bot says.
	Token string `yaml:"token"`
	// CA is the file of the authority's private key, or of its public part, whose private part Agent
	// holds (the socket of an ssh-agent). CA.next, if it is there, is the authority after a rotation.
	CA    string `yaml:"ca"`
	Agent string `yaml:"agent,omitempty"`
	// State is the directory of what was signed.
	State string `yaml:"state"`
	// Console is the address of the bot's console, and Origin where people's browsers reach the signer, whose
	// page shows them what they sign. The passkeys are for Origin, and for Console if it is empty.
	Console string `yaml:"console"`
	Origin  string `yaml:"origin,omitempty"`
	// Within is how old a vote may be; 0 means 30 minutes.
	Within time.Duration `yaml:"within,omitempty"`
	// Runner is where the runner is on hosts.
	Runner string `yaml:"runner,omitempty"`
	// People are the passkeys that count, by their owners' names in the console.
	People map[string][]Key `yaml:"people"`
	// Targets are the hosts, by the names of their targets.
	Targets map[string]Target `yaml:"targets"`

	console, site passkey.Site
	keys          map[string]owned // by id
	secret        []byte           // of nonces; set by Open
}

// Key is a passkey, in base64url as the console shows it to its owner.
type Key struct {
	ID     string `yaml:"id"`
	Public string `yaml:"public"`
}

// Target is what the signer knows of a host.
type Target struct {
	HostKey string   `yaml:"host_key"`        // SHA256:...
	From    []string `yaml:"from"`            // addresses or networks that the bot comes from
	Users   []string `yaml:"users"`           // accounts that approved commands may run as
	Watch   string   `yaml:"watch,omitempty"` // the bot's read-only account; countersign if empty
	// Approvals are needs that must all be met.
	Approvals []Need `yaml:"approvals"`
	// BreakGlass are people of whom one may decide alone.
	BreakGlass []string `yaml:"break_glass,omitempty"`
}

// Need is Count different people of Of.
type Need struct {
	Count int      `yaml:"count"`
	Of    []string `yaml:"of"`
}

type owned struct {
	owner  string
	public []byte
}

// DefaultWatch is the bot's read-only account.
const DefaultWatch = "countersign"

var (
	account  = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	hostKey  = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)
	plain    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	absolute = regexp.MustCompile(`^/[A-Za-z0-9._/-]+$`)
)

// Load reads and checks a configuration file. Its errors are sentences that say what to do.
func Load(file string) (*Config, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the configuration can't be read (%w); `countersign signer init DIRECTORY` makes one", err)
	}
	c, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	dir := filepath.Dir(file)
	for _, p := range []*string{&c.Cert, &c.TLSKey, &c.Token, &c.CA, &c.State} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return c, nil
}

// Parse is [Load] of text.
func Parse(raw []byte) (*Config, error) {
	c := &Config{Runner: enroll.Runner, Within: 30 * time.Minute, keys: map[string]owned{}}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("it can't be read: %w", err)
	}
	host, _, bad := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	open := !filepath.IsAbs(c.Listen) && (ip == nil || !ip.IsLoopback()) && host != "localhost"
	var err error
	c.console, err = passkey.SiteOf(c.Console)
	switch {
	case c.Listen == "" || c.Token == "" || c.CA == "" || c.State == "":
		return nil, errors.New("listen, token, ca and state are all needed")
	case !filepath.IsAbs(c.Listen) && bad != nil:
		return nil, fmt.Errorf("listen is %q; write the path of a socket, or HOST:PORT", c.Listen)
	case open && (c.Cert == "" || c.TLSKey == ""):
		return nil, errors.New("listen is an address that others reach, so cert and tls_key are needed; or listen on a socket")
	case c.Within <= 0 || c.Within > 24*time.Hour:
		return nil, errors.New("within is at most 24h")
	case !absolute.MatchString(c.Runner):
		return nil, errors.New("runner is no plain absolute path")
	case err != nil:
		return nil, fmt.Errorf("console: %w", err)
	}
	if c.site, err = passkey.SiteOf(cmp.Or(c.Origin, c.Console)); err != nil {
		return nil, fmt.Errorf("origin: %w", err)
	}
	if c.Origin != "" && c.site == c.console {
		return nil, errors.New("origin is the signer's own address, not the console's")
	}
	for owner, keys := range c.People {
		for _, k := range keys {
			public, err := base64.RawURLEncoding.DecodeString(k.Public)
			if _, bad := base64.RawURLEncoding.DecodeString(k.ID); err != nil || bad != nil || k.ID == "" || !passkey.ValidKey(public) {
				return nil, fmt.Errorf("people.%s: %q with its public part is no key; copy the whole line that its owner was shown", owner, k.ID)
			}
			for id, other := range c.keys { // one device is one person
				if id == k.ID || bytes.Equal(other.public, public) {
					return nil, fmt.Errorf("people: %s and %s have the same key", other.owner, owner)
				}
			}
			c.keys[k.ID] = owned{owner, public}
		}
	}
	for name, t := range c.Targets {
		if t.Watch == "" {
			t.Watch = DefaultWatch
		}
		if err := c.check(t); err != nil || !plain.MatchString(name) {
			return nil, fmt.Errorf("targets.%q: %w", name, cmp.Or(err, errors.New("this is no plain name")))
		}
		c.Targets[name] = t
	}
	return c, nil
}

// check checks a target.
func (c *Config) check(t Target) error {
	switch {
	case !hostKey.MatchString(t.HostKey):
		return errors.New("host_key is the fingerprint of the host's key, SHA256 and 43 characters, as `ssh-keygen -lf` prints it")
	case len(t.From) == 0 || len(t.Users) == 0 || len(t.Approvals) == 0:
		return errors.New("from, users and approvals are needed")
	case slices.Contains(t.Users, t.Watch):
		return fmt.Errorf("the account %s can't both look and change", t.Watch)
	}
	for _, from := range t.From {
		_, addr := netip.ParseAddr(from)
		if _, prefix := netip.ParsePrefix(from); addr != nil && prefix != nil {
			return fmt.Errorf("from has %q, which is neither an address nor a network", from)
		}
	}
	for _, u := range append(slices.Clone(t.Users), t.Watch) {
		if !account.MatchString(u) {
			return fmt.Errorf("%q is no name of an account", u)
		}
	}
	for at, n := range append(slices.Clone(t.Approvals), Need{Of: t.BreakGlass}) {
		if at < len(t.Approvals) && (n.Count < 1 || n.Count > len(n.Of)) {
			return fmt.Errorf("%d of %d people can't approve", n.Count, len(n.Of))
		}
		for i, who := range n.Of {
			if slices.Contains(n.Of[:i], who) {
				return fmt.Errorf("%s is listed twice, and counts once", who)
			}
			if _, ok := c.People[who]; !ok {
				return fmt.Errorf("%s isn't among the people", who)
			}
		}
	}
	return nil
}
