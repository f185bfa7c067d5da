package web

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"countersign/tools"

	"countersign/internal/publicnet"
)

func newTestGuard(t testing.TB, c Config) *guard {
	t.Helper()
	g, err := newGuard(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestForbiddenAddresses(t *testing.T) {
	g := newTestGuard(t, Config{})
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.9", "168.63.129.16",
		"169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1",
		"198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
		"fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::a9fe:a9fe", "fec0::1", "ff02::1", "2002:7f00:1::", "2001::1", "2001:db8::1", "100::1",
	} {
		err := g.checkAddress("evil.example", netip.MustParseAddr(a), 80)
		if _, ok := errors.AsType[*forbiddenError](err); !ok {
			t.Errorf("%s is let through (%v)", a, err)
		}
		literal := a
		if strings.Contains(a, ":") {
			literal = "[" + a + "]"
		}
		if _, err := g.parse("http://" + literal + "/"); err == nil {
			t.Errorf("http://%s/ is planned", literal)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"} {
		if err := g.checkAddress("good.example", netip.MustParseAddr(a), 443); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestAllowAndDeny(t *testing.T) {
	g := newTestGuard(t, Config{
		Allow: []string{"10.1.0.0/16", "grafana.corp.example:3000", "*.wiki.example", "127.0.0.1:8080", "169.254.0.0/16", "64:ff9b::/96", "fd00::/8"},
		Deny:  []string{"10.1.9.0/24", "secret.wiki.example", "8.8.8.8", "evil.example"},
		Ports: []int{8443},
	})
	for _, c := range []struct {
		name, host, addr string
		port             uint16
		ok               bool
	}{
		{"a network that is allowed", "x.example", "10.1.2.3", 80, true},
		{"the same, mapped", "x.example", "::ffff:10.1.2.3", 80, true},
		{"one beside it", "x.example", "10.2.2.3", 80, false},
		{"a part that is denied wins", "x.example", "10.1.9.3", 80, false},
		{"a public address that is denied", "x.example", "8.8.8.8", 443, false},
		{"an allowed name may be private", "grafana.corp.example", "192.168.1.5", 3000, true},
		{"on its port only", "grafana.corp.example", "192.168.1.5", 80, false},
		{"another name may not use that port", "x.example", "1.1.1.1", 3000, false},
		{"an allowed name may not be loopback", "grafana.corp.example", "127.0.0.1", 3000, false},
		{"nor link-local", "grafana.corp.example", "fe80::2", 3000, false},
		{"nor metadata", "grafana.corp.example", "168.63.129.16", 3000, false},
		{"a name below", "a.wiki.example", "10.9.9.9", 443, true},
		{"not the name itself", "wiki.example", "10.9.9.9", 443, false},
		{"a denied name below an allowed one", "secret.wiki.example", "10.9.9.9", 443, false},
		{"a name below a denied one", "www.evil.example", "1.1.1.1", 443, false},
		{"loopback on the port of the list", "127.0.0.1", "127.0.0.1", 8080, true},
		{"loopback on a usual port is another thing", "127.0.0.1", "127.0.0.1", 80, false},
		{"metadata stays closed in an allowed network", "x.example", "169.254.169.254", 80, false},
		{"and in an allowed IPv6 one", "x.example", "fd00:ec2::254", 80, false},
		{"the rest of it is open", "x.example", "169.254.1.1", 80, true},
		{"a translator to a public address", "x.example", "64:ff9b::101:101", 80, true},
		{"a translator to a private address", "x.example", "64:ff9b::a00:1", 80, false},
		{"a translator to metadata", "x.example", "64:ff9b::a9fe:a9fe", 80, false},
		{"a port that is allowed everywhere", "x.example", "1.1.1.1", 8443, true},
		{"a port that is not", "x.example", "1.1.1.1", 22, false},
	} {
		if err := g.checkAddress(c.host, netip.MustParseAddr(c.addr), c.port); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAddressesThatAreRefusedBeforeAnythingIsAsked(t *testing.T) {
	g := newTestGuard(t, Config{Deny: []string{"evil.example"}})
	for name, raw := range map[string]string{
		"another scheme":           "ftp://example.org/",
		"a file":                   "file:///etc/passwd",
		"no scheme":                "example.org/x",
		"no host":                  "http:///x",
		"opaque":                   "http:example.org",
		"a user":                   "http://me@example.org/",
		"a password":               "https://me:pw@example.org/",
		"another port":             "http://example.org:22/",
		"a port that is none":      "http://example.org:99999/",
		"port zero":                "http://example.org:0/",
		"no port after the colon":  "http://example.org:/",
		"a zone":                   "http://[fe80::1%25eth0]/",
		"a denied name":            "http://evil.example/",
		"a denied name in capital": "http://EVIL.example./",
		"dots alone":               "http://../",
		"an empty part of a name":  "http://a..example/",
		"loopback in wide digits":  "http://１２７.０.０.１/",
		"a blank in the name":      "http://exa mple.org/",
		"a name with a slash":      "http://exa%2fmple.org/",
		"a control character":      "http://example.org/\x00",
		"too long":                 "http://example.org/" + strings.Repeat("a", maxURL),
	} {
		u, err := g.parse(raw)
		if e, ok := errors.AsType[*tools.Error](err); !ok {
			t.Errorf("%s: %v %v", name, u, e)
		}
	}
}

func TestAnAddressHasOneForm(t *testing.T) {
	g := newTestGuard(t, Config{Ports: []int{8080}})
	for raw, want := range map[string]string{
		"HTTP://Example.ORG":                  "http://example.org/",
		" https://example.org:443/a?b=c#frag": "https://example.org/a?b=c",
		"http://example.org:8080":             "http://example.org:8080/",
		"https://example.org:80/":             "https://example.org:80/",
		"http://bücher.example/ü":             "http://xn--bcher-kva.example/%C3%BC",
		"http://[::ffff:1.1.1.1]/":            "http://1.1.1.1/",
		"http://[2606:4700::1111]:8080/":      "http://[2606:4700::1111]:8080/",
		"http://example.org./a%2Fb":           "http://example.org/a%2Fb",
		"http://under_score.example/?":        "http://under_score.example/?",
	} {
		u, err := g.parse(raw)
		if err != nil || u.String() != want {
			t.Errorf("%s: %v (%v), want %s", raw, u, err, want)
			continue
		}
		if again, err := g.parse(u.String()); err != nil || again.String() != want {
			t.Errorf("%s is not stable: %v %v", want, again, err)
		}
	}
}

func TestMistakesInTheConfiguration(t *testing.T) {
	for name, c := range map[string]Config{
		"a list that is none":      {Allow: []string{"http://x/"}},
		"an empty entry":           {Deny: []string{""}},
		"a star in the middle":     {Allow: []string{"a.*.b"}},
		"a mapped network":         {Allow: []string{"::ffff:10.0.0.0/104"}},
		"a port that is none":      {Ports: []int{70000}},
		"a provider that is none":  {Search: Search{Provider: "google"}},
		"SearXNG without address":  {Search: Search{Provider: SearXNG}},
		"Tavily without key":       {Search: Search{Provider: ByKey}},
		"an address with password": {Search: Search{URL: "https://me:pw@example.org"}},
		"a level that is none":     {Level: -1},
		"a negative timeout":       {Timeout: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// zone is a resolver that answers from memory; each answer is asked for anew.
func zone(t *testing.T, answer func(name string) string) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			buf := make([]byte, 4096)
			n, err := server.Read(buf)
			if err != nil || n < 2 {
				return
			}
			q := buf[:n]
			if int(q[0])<<8|int(q[1]) == n-2 { // as over TCP, with the length in front
				q = q[2:]
			} else if n == 2 {
				if n, err = server.Read(buf); err != nil {
					return
				}
				q = buf[:n]
			}
			var m dnsmessage.Message
			if m.Unpack(q) != nil || len(m.Questions) != 1 {
				return
			}
			m.Response, m.RecursionAvailable = true, true
			m.Additionals = nil
			question := m.Questions[0]
			if a, err := netip.ParseAddr(answer(strings.TrimSuffix(question.Name.String(), "."))); err == nil {
				h := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET}
				if a.Is4() && question.Type == dnsmessage.TypeA {
					m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: a.As4()}}}
				}
			} else {
				m.RCode = dnsmessage.RCodeNameError
			}
			b, err := m.Pack()
			if err != nil {
				return
			}
			_, _ = server.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
		}()
		return client, nil
	}}
}

// A name whose answer changes between two questions gains nothing: what counts is
// the address that is dialed.
func TestRebindingGainsNothing(t *testing.T) {
	var asked atomic.Int32
	s, seen := counting(t, "secret")
	c := Config{
		Ports: []int{port(t, s)},
		Resolver: zone(t, func(string) string {
			if asked.Add(1) <= 2 { // the first look: A and AAAA
				return "1.1.1.1"
			}
			return "127.0.0.1"
		}),
	}
	g := newTestGuard(t, c)
	if _, err := c.Resolver.LookupNetIP(t.Context(), "ip4", "rebind.example"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		asked.Store(2)
		_, err := g.dial(t.Context(), "tcp", "rebind.example:"+itoa(port(t, s)))
		if e, ok := errors.AsType[*forbiddenError](err); !ok || e.addr != "127.0.0.1" {
			t.Fatalf("%v", err)
		}
	}
	if seen.Load() != 0 {
		t.Error("the server was reached")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"http://example.org/", "http://[::1]/", "http://127.1/", "https://a@b/", "http://0x7f.1/", "http://bücher.example"} {
		f.Add(s)
	}
	g := newTestGuard(f, Config{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := g.parse(raw)
		if err != nil {
			return
		}
		if u.User != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Fragment != "" {
			t.Errorf("%q gives %q", raw, u)
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && !publicnet.IsPublic(a) {
			t.Errorf("%q gives %q", raw, u)
		}
		again, err := g.parse(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("%q gives %q, and that gives %v (%v)", raw, u, again, err)
		}
	})
}
