package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"countersign/internal/publicnet"
	"countersign/tools"
)

// maxURL is the longest URL, in bytes; browsers and servers have similar limits.
const maxURL = 8000

// nat64Prefixes are addresses that embed IPv4 addresses (RFC 6052, and RFC 8215 for local use).
var nat64Prefixes = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}

// forbiddenError is an address that the guard refuses.
type forbiddenError struct {
	host, addr, why string
}

// Error implements error.
func (e *forbiddenError) Error() string {
	what := e.host
	if e.addr != "" && e.addr != e.host {
		what += " leads to " + e.addr + ", which"
	}
	return fmt.Sprintf("%s %s; it was not contacted, and another spelling of it will not be either", what, e.why)
}

const (
	whyNotPublic  = "is not a public address and not in the list of allowed ones"
	whyMetadata   = "is an address of a cloud's metadata service, which is never allowed"
	whyNotUnicast = "is no address of a single machine"
	whyDenied     = "is denied by the configuration"
)

// rule is one entry of a list: a network or a name, with an optional port (0: none).
type rule struct {
	prefix     netip.Prefix
	name       string // in lower case
	subdomains bool   // matches only names below it
	port       uint16
	trusted    bool // the operator's own provider: loopback is allowed
}

func (r rule) matchesName(host string) bool {
	if r.name == "" {
		return false
	}
	if r.subdomains {
		return strings.HasSuffix(host, "."+r.name)
	}
	return host == r.name
}

// guard decides which addresses may be contacted. It is immutable.
type guard struct {
	allow, deny []rule
	ports       []uint16
	resolver    *net.Resolver
}

func newGuard(c Config) (*guard, error) {
	g := &guard{ports: []uint16{80, 443}, resolver: c.Resolver}
	for _, p := range c.Ports {
		if p < 1 || p > 65535 {
			return nil, fmt.Errorf("web: the port %d does not exist; use 1 to 65535", p)
		}
		g.ports = append(g.ports, uint16(p))
	}
	for key, list := range map[string][]string{"allow": c.Allow, "deny": c.Deny} {
		for _, s := range list {
			r, err := parseRule(s)
			if err != nil {
				return nil, fmt.Errorf("web: %s: %w", key, err)
			}
			if key == "allow" {
				g.allow = append(g.allow, r)
			} else {
				g.deny = append(g.deny, r)
			}
		}
	}
	return g, nil
}

// withTrusted returns a guard that also allows the operator's own provider.
func (g *guard) withTrusted(u *url.URL) *guard {
	out := *g
	out.allow = append(slices.Clone(g.allow), rule{name: strings.ToLower(u.Hostname()), port: portOf(u), trusted: true})
	return &out
}

func parseRule(s string) (rule, error) {
	wrong := fmt.Errorf("%s is no address, network or name; write 10.1.2.3, 10.1.0.0/16, host.example, *.example or host.example:3000", tools.Quote(s))
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Addr().Is4In6() {
			return rule{}, wrong // netip never matches it
		}
		return rule{prefix: p.Masked()}, nil
	}
	host, port := s, uint16(0)
	if h, p, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return rule{}, wrong
		}
		host, port = h, uint16(n)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		if a.Zone() != "" {
			return rule{}, wrong
		}
		return rule{prefix: netip.PrefixFrom(a, a.BitLen()), port: port}, nil
	}
	name, below := strings.CutPrefix(host, "*.")
	name, err := hostname(name)
	if err != nil || strings.ContainsAny(name, "*/") {
		return rule{}, wrong
	}
	return rule{name: name, subdomains: below, port: port}, nil
}

// hostname returns a name as it is resolved: lower-case ASCII without a trailing dot.
func hostname(s string) (string, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		var err error
		if s, err = idna.Lookup.ToASCII(s); err != nil {
			return "", err
		}
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	// Plain ASCII names may contain underscores, which the strict rules refuse.
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	odd := strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(letters, r) })
	if s == "" || len(s) > 253 || odd || strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, "..") {
		return "", errors.New("no name of a host")
	}
	return s, nil
}

// portOf returns the port of u.
func portOf(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// parse checks a URL as far as possible without DNS, and returns it in the form in which it is
// shown and requested. Its error is an [*tools.Error].
func (g *guard) parse(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, tools.Invalid("the address has more than %d bytes; use a shorter one", maxURL)
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, tools.Invalid("%s is no address; write it in full, such as https://example.org/page", tools.Quote(raw))
	}
	return g.check(u)
}

// check is parse for a parsed URL.
func (g *guard) check(u *url.URL) (*url.URL, error) {
	scheme := strings.ToLower(u.Scheme)
	switch {
	case scheme != "http" && scheme != "https":
		return nil, tools.Invalid("only addresses that begin with http:// or https:// are fetched, not %s", tools.Quote(u.Redacted()))
	case u.User != nil:
		return nil, tools.Invalid("the address holds a user or a password, which are never sent; leave them out")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, tools.Invalid("%s names no host; write it in full, such as https://example.org/page", tools.Quote(u.String()))
	}
	out := &url.URL{Scheme: scheme, Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}
	if out.Path == "" {
		out.Path = "/"
	}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	if err == nil {
		if addr.Zone() != "" {
			return nil, tools.Failed("%w", &forbiddenError{host: host, why: whyNotPublic})
		}
		host = addr.Unmap().String()
	} else if host, err = hostname(host); err != nil {
		return nil, tools.Invalid("%s is no name of a host; check the address", tools.Quote(u.Hostname()))
	} else {
		addr, _ = netip.ParseAddr(host) // full-width digits are digits only now
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, tools.Invalid("the port %s does not exist; check the address", tools.Quote(p))
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return nil, tools.Invalid("the address has a colon without a port; check it")
	}
	port := portOf(u)
	out.Host = host
	if strings.Contains(host, ":") {
		out.Host = "[" + host + "]"
	}
	if (scheme == "http" && port != 80) || (scheme == "https" && port != 443) {
		out.Host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	if addr.IsValid() {
		err = g.checkAddress(host, addr, port)
	} else {
		err = g.checkName(host, port)
	}
	if err != nil {
		return nil, tools.Failed("%w", err)
	}
	return out, nil
}

// checkName checks a name before it is resolved.
func (g *guard) checkName(host string, port uint16) error {
	for _, r := range g.deny {
		if (r.port == 0 || r.port == port) && (r.matchesName(host) || (r.name != "" && strings.HasSuffix(host, "."+r.name))) {
			return &forbiddenError{host: host, why: whyDenied}
		}
	}
	if g.portAllowed(port, func(r rule) bool { return r.matchesName(host) || r.prefix.IsValid() }) {
		return nil
	}
	return g.portError(host, port)
}

func (g *guard) portError(host string, port uint16) error {
	return &forbiddenError{host: net.JoinHostPort(host, strconv.Itoa(int(port))), why: "uses a port that is not in the list of allowed ones"}
}

// portAllowed reports whether a port is a default one, or allowed by a matching rule.
func (g *guard) portAllowed(port uint16, fits func(rule) bool) bool {
	return slices.Contains(g.ports, port) || slices.ContainsFunc(g.allow, func(r rule) bool { return r.port == port && fits(r) })
}

// checkAddress checks an address that is about to be dialed for host.
func (g *guard) checkAddress(host string, addr netip.Addr, port uint16) error {
	addr = addr.Unmap()
	no := func(why string) error { return &forbiddenError{host: host, addr: addr.String(), why: why} }
	switch {
	case !addr.IsValid() || addr.Zone() != "":
		return no(whyNotPublic)
	case publicnet.IsMetadata(addr):
		return no(whyMetadata)
	case addr.IsUnspecified() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return no(whyNotUnicast)
	}
	if err := g.checkName(host, port); err != nil {
		return err
	}
	var named, open, trusted bool
	for _, r := range g.deny {
		if r.prefix.IsValid() && r.prefix.Contains(addr) && (r.port == 0 || r.port == port) {
			return no(whyDenied)
		}
	}
	fits := func(r rule) bool {
		return (r.prefix.IsValid() && r.prefix.Contains(addr)) || r.matchesName(host)
	}
	if !g.portAllowed(port, fits) {
		return g.portError(host, port)
	}
	for _, r := range g.allow {
		if (r.port != 0 && r.port != port) || !fits(r) {
			continue
		}
		open = open || r.prefix.IsValid()
		named = true
		trusted = trusted || r.trusted
	}
	if named {
		// NAT64 reaches the embedded address, so that is checked too.
		for _, p := range nat64Prefixes {
			if b := addr.As16(); p.Contains(addr) {
				return g.checkAddress(host, netip.AddrFrom4([4]byte(b[12:])), port)
			}
		}
	}
	switch {
	case open, trusted:
		return nil
	case named && !addr.IsLoopback() && !addr.IsLinkLocalUnicast():
		return nil
	case !publicnet.IsPublic(addr):
		return no(whyNotPublic)
	}
	return nil
}

// dial connects to addr, the request's "host:port". It checks each address right before connecting,
// so that changing DNS answers gain nothing.
func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{
		Timeout: 10 * time.Second, Resolver: g.resolver,
		Control: func(_, at string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(at)
			if err != nil {
				return &forbiddenError{host: host, addr: at, why: whyNotPublic}
			}
			return g.checkAddress(host, ap.Addr(), ap.Port())
		},
	}
	return d.DialContext(ctx, network, addr)
}
