package ssh

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kevinburke/ssh_config"
)

func TestImport(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(home+"/.ssh/conf.d", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"id_ed25519", "id_rsa"} {
		write(t, home+"/.ssh/"+f, "")
	}
	write(t, home+"/.ssh/conf.d/one", "Host inc\n  Port 2022\n")
	write(t, home+"/.ssh/conf.d/bad", "Host x\n\nMatch host w*\n  Port 1\n")
	write(t, home+"/.ssh/conf.d/fedora", "# x\nMatch final all\n\tInclude /etc/crypto-policies/back-ends/no-such.config\n\tGSSAPIAuthentication yes\n\tForwardX11Trusted yes\n")
	im := importer{home: home, user: "me", getenv: func(k string) string {
		return map[string]string{"SSH_AUTH_SOCK": "/run/agent", "MY_SOCK": "/run/mine"}[k]
	}}
	ids := []string{home + "/.ssh/id_rsa", home + "/.ssh/id_ed25519"}
	known := []string{home + "/.ssh/known_hosts", home + "/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
	base := func(host string, change func(*Config)) Config {
		c := Config{Name: host, Hop: Hop{Host: host, Port: 22, User: "me", Identities: ids, Agent: "/run/agent"}, KnownHosts: known}
		if change != nil {
			change(&c)
		}
		return c
	}
	for _, tt := range []struct {
		name, text, host string
		want             func(*Config)
		err              []string
	}{
		{name: "nothing about the host", host: "web", text: "Host other\n Port 3\n ProxyCommand nc\n"},
		{name: "what a host is", host: "web", text: "Host web\n HostName 10.0.0.9\n Port=2222\n User \"deploy\"\n", want: func(c *Config) { c.Host, c.Port, c.User = "10.0.0.9", 2222, "deploy" }},
		{name: "the first value counts", host: "web", text: "Host web\n Port 1\nHost *\n Port 2\n User u\n", want: func(c *Config) { c.Port, c.User = 1, "u" }},
		{name: "keywords in any case, tabs, comments", host: "web", text: "# x\n\nHOST web\n\tpOrT\t7 # seven\n", want: func(c *Config) { c.Port = 7 }},
		{name: "patterns and negation", host: "web-2", text: "Host web-* !web-1\n Port 9\n", want: func(c *Config) { c.Port = 9 }},
		{name: "a negated host", host: "web-1", text: "Host web-* !web-1\n Port 9\n"},
		{name: "keys and tokens", host: "web", text: "Host web\n HostName %h.example.org\n User u%%\n IdentityFile ~/.ssh/%h_%p_%n\n IdentityFile /keys/%u/%d\n CertificateFile ~/c\n IdentitiesOnly yes\n",
			want: func(c *Config) {
				c.Host, c.User, c.IdentitiesOnly = "web.example.org", "u%%", true
				c.Identities = []string{home + "/.ssh/web.example.org_22_web", "/keys/me/" + home}
				c.Certificates = []string{home + "/c"}
			}},
		{name: "no key files", host: "web", text: "IdentityFile none\n", want: func(c *Config) { c.Identities = nil }},
		{name: "no agent", host: "web", text: "IdentityAgent none\n", want: func(c *Config) { c.Agent = "" }},
		{name: "another agent", host: "web", text: "IdentityAgent ~/a.sock\n", want: func(c *Config) { c.Agent = home + "/a.sock" }},
		{name: "an agent of the environment", host: "web", text: "IdentityAgent $MY_SOCK\n", want: func(c *Config) { c.Agent = "/run/mine" }},
		{name: "known hosts", host: "web", text: "UserKnownHostsFile ~/k \"/a b\"\nGlobalKnownHostsFile none\n", want: func(c *Config) { c.KnownHosts = []string{home + "/k", "/a b"} }},
		{name: "times", host: "web", text: "ConnectTimeout 5\nServerAliveInterval 1m30s\nServerAliveCountMax 2\n", want: func(c *Config) {
			c.DialTimeout, c.Keepalive, c.Misses = 5*time.Second, 90*time.Second, 2
		}},
		{name: "an alive interval of 0 is our default", host: "web", text: "ServerAliveInterval 0\n"},
		{name: "an included file", host: "inc", text: "Include " + home + "/.ssh/conf.d/one\n", want: func(c *Config) { c.Port = 2022 }},
		{name: "a jump", host: "web", text: "Host web\n ProxyJump root@gate:2200\nHost gate\n HostName 192.0.2.1\n User nobody\n Port 22\n IdentityFile /g\n",
			want: func(c *Config) {
				c.Jump = []Hop{{Host: "192.0.2.1", Port: 2200, User: "root", Identities: []string{"/g"}, Agent: "/run/agent"}}
			}},
		{name: "two jumps, the first with its own", host: "web", text: "Host web\n ProxyJump a,b\nHost a\n ProxyJump c\nHost b\n ProxyJump d\n",
			want: func(c *Config) {
				for _, h := range []string{"c", "a", "b"} {
					c.Jump = append(c.Jump, base(h, nil).Hop)
				}
			}},
		{name: "no jump", host: "web", text: "Host web\n ProxyJump none\nHost *\n ProxyJump gate\n"},
		{name: "options that do not matter", host: "web", text: "Compression yes\nForwardAgent yes\nStrictHostKeyChecking no\nControlMaster auto\nLocalForward 1 a:2\nProxyCommand none\nCanonicalizeHostname no\n"},

		{name: "a Match that changes nothing of a connection, as Fedora's", host: "web", text: "Include conf.d/fedora\nHost web\n HostName 10.0.0.9\n Port 2222\n", want: func(c *Config) { c.Host, c.Port = "10.0.0.9", 2222 }},
		{name: "after such an Include all hosts are meant again", host: "web", text: "Include conf.d/fedora\nPort 2222\n", want: func(c *Config) { c.Port = 2222 }},
		{name: "a Match for other hosts", host: "web", text: "Match host db-*,!db-1\n Port 9\n ProxyCommand nc\nHost web\n Port 2222\n", want: func(c *Config) { c.Port = 2222 }},
		{name: "a Match for other hosts by other words", host: "web", text: "Match originalhost=db user me\n Port 9\n", want: nil},
		{name: "a Match for the name that a host is reached by", host: "web", text: "Host web\n HostName db-1\nMatch host db-*\n Port 9\n", err: []string{":3", "Match"}},
		{name: "a Match in a file that is included for a host", host: "web", text: "Host web\n Include conf.d/fedora\n", err: []string{":2", "Match"}},
		{name: "a Match for a jump host", host: "web", text: "Host web\n ProxyJump gate\nMatch host gate\n Port 9\n", err: []string{":3", "Match may be about gate"}},
		{name: "Match", host: "web", text: "Host a\n Port 1\nMatch host web exec \"true\"\n Port 2\n", err: []string{":3", "Match"}},
		{name: "a Match whose comment names another host", host: "web", text: "Match host web # host db\n Port 2\n", err: []string{":1", "Match"}},
		{name: "a Match whose command has such words", host: "web", text: "Match exec \"true host db\"\n Port 2\n", err: []string{":1", "Match"}},
		{name: "a Match for a user of that name", host: "web", text: "Match user host originalhost web\n Port 2\n", err: []string{":1", "Match"}},
		{name: "with a final Match the file is read once more, for what the host is reached by", host: "web", text: "Include conf.d/fedora\nHost web\n HostName db\nHost db\n Port 9\n",
			want: func(c *Config) { c.Host, c.Port = "db", 9 }},
		{name: "Match all", host: "web", text: "Match all\n Port 2\n", err: []string{":1", "Match"}},
		{name: "Match in a file that is included by a name relative to ~/.ssh", host: "web", text: "Include conf.d/bad\n", err: []string{"conf.d/bad:3", "Match"}},
		{name: "a sign that looks like a comment", host: "web", text: "IdentityFile /k/a#b\n", err: []string{":1", "#"}},
		{name: "such a sign in quotes", host: "web", text: "IdentityFile \"/k/a #b\"\n", err: []string{":1", "#"}},
		{name: "a last line without an end", host: "web", text: "Host web\n Port 77", want: func(c *Config) { c.Port = 77 }},
		{name: "a Host in quotes", host: "web", text: "Host \"web\"\n Port 2\n", err: []string{":1", "quotes"}},
		{name: "a keyword in quotes", host: "web", text: "\"ProxyCommand\" nc\n", err: []string{":1", "keyword"}},
		{name: "Match with other spelling", host: "web", text: "\t mAtCh=all\n Port 2\n", err: []string{":1", "Match"}},
		{name: "Match in an included file", host: "web", text: "Include " + home + "/.ssh/conf.d/*\n", err: []string{"conf.d/bad:3", "Match"}},
		{name: "ProxyCommand", host: "web", text: "Host *\n Port 2\n ProxyCommand nc %h %p\n", err: []string{":3", "proxycommand", "use ProxyJump, or a forwarder"}},
		{name: "HostKeyAlias", host: "web", text: "HostKeyAlias x\n", err: []string{":1", "hostkeyalias"}},
		{name: "ciphers", host: "web", text: "Ciphers aes128-cbc\n", err: []string{"ciphers"}},
		{name: "an option that nobody knows", host: "web", text: "Frobnicate yes\n", err: []string{":1", "frobnicate"}},
		{name: "in a jump host, too", host: "web", text: "Host web\n ProxyJump gate\nHost gate\n ProxyCommand nc\n", err: []string{":4", "proxycommand"}},
		{name: "a jump in a circle", host: "web", text: "Host web\n ProxyJump gate\nHost gate\n ProxyJump web\n", err: []string{"circle"}},
		{name: "a wrong jump", host: "web", text: "ProxyJump a@b@:x\n", err: []string{"jump host"}},
		{name: "a wrong port", host: "web", text: "Port 0\n", err: []string{":1", "port"}},
		{name: "a wrong time", host: "web", text: "ConnectTimeout soon\n", err: []string{"connecttimeout"}},
		{name: "a token that is not supported", host: "web", text: "IdentityFile /k/%C\n", err: []string{"%C"}},
		{name: "a variable", host: "web", text: "IdentityFile ${HOME}/k\n", err: []string{"variables"}},
		{name: "a file that includes itself", host: "web", text: "Include " + home + "/cfg\n", err: []string{"include"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := write(t, home+"/cfg", tt.text)
			got, err := im.file(file, tt.host)
			if len(tt.err) > 0 {
				if err == nil {
					t.Fatalf("no error: %+v", got)
				}
				for _, want := range tt.err {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				return
			}
			if want := base(tt.host, tt.want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
			}
		})
	}
	if _, err := Import(home+"/none", "web"); err == nil {
		t.Error("a missing file is no error")
	}
	if c, err := Import(write(t, home+"/cfg", "Host a\n Port 3\n User u\n"), "a"); err != nil || c.Port != 3 || c.User != "u" {
		t.Errorf("%+v %v", c, err)
	}
}

func TestParseJump(t *testing.T) {
	for _, tt := range []struct {
		in, user, host string
		port           int
		ok             bool
	}{
		{"gate", "", "gate", 0, true},
		{"u@gate:22", "u", "gate", 22, true},
		{"a@b@gate", "a@b", "gate", 0, true},
		{" gate ", "", "gate", 0, true},
		{"ssh://u@gate:1/", "u", "gate", 1, true},
		{"[2001:db8::1]:22", "", "2001:db8::1", 22, true},
		{"[::1]", "", "::1", 0, true},
		{"2001:db8::1", "", "2001:db8::1", 0, true},
		{"", "", "", 0, false}, {"@gate", "", "", 0, false}, {"gate:", "", "", 0, false}, {"gate:x", "", "", 0, false},
		{"gate:0", "", "", 0, false}, {"gate:65536", "", "", 0, false}, {"[::1", "", "", 0, false}, {"[::1]x", "", "", 0, false},
		{"[::1]:", "", "", 0, false}, {"-oProxyCommand=x", "", "", 0, false}, {"a b", "", "", 0, false}, {"a/b", "", "", 0, false},
	} {
		user, host, port, err := parseJump(tt.in)
		if (err == nil) != tt.ok || user != tt.user && tt.ok || host != tt.host && tt.ok || port != tt.port && tt.ok {
			t.Errorf("%q: %q %q %d %v", tt.in, user, host, port, err)
		}
	}
}

// FuzzImport: no text makes it panic, and it sees every option that the library
// sees, so that none that matters is passed over.
func FuzzImport(f *testing.F) {
	for _, s := range []string{
		"Host a\n Port 2\n", "match all\n", "Host *\n\tProxyJump u@[::1]:2,b\n", "IdentityFile \"a b\" # c\n", "Port=22\nUser = x\n",
		"ConnectTimeout 1h2m\nUserKnownHostsFile \"a\" b\n", "Host a\r\n Port 3\r\n", "=x\n", "\"Port\" 1\n", "a\x00b c\n", "Port\v22\n", "\v\n", "0\"0 1\n", "\f\nPort 1\f\n",
	} {
		f.Add(s)
	}
	file := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") {
			t.Skip("no files of the machine")
		}
		write(t, file, text)
		im := importer{home: "/home/x", user: "x", getenv: func(string) string { return "" }}
		c, err := im.file(file, "web")
		if err != nil {
			return
		}
		if c.Port < 1 || c.Port > 65535 || c.DialTimeout < 0 || c.Keepalive < 0 || c.Misses < 0 {
			t.Errorf("%+v", c)
		}
		cfg, err := ssh_config.DecodeBytes([]byte(text))
		if err != nil && strings.Contains(strings.ToLower(text), "match") {
			return // a Match block that is passed over
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, s := range settings("f", text) {
			seen[s.key] = true
		}
		for _, h := range cfg.Hosts {
			for _, n := range h.Nodes {
				if kv, ok := n.(*ssh_config.KV); ok && kv.Key != "" && !seen[strings.ToLower(kv.Key)] {
					t.Errorf("%q was not seen", kv.Key)
				}
			}
		}
	})
}
