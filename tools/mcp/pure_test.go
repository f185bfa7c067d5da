package mcp

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/store/mem"
	"countersign/tools/foreign"
)

var fits = regexp.MustCompile(`^mcp_[a-zA-Z0-9_-]{1,60}$`)

func TestNamesFitAndAreNeverShared(t *testing.T) {
	server := rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9_-]{0,23}`)
	toolName := rapid.OneOf(
		rapid.StringMatching(`[a-c_.-]{0,4}`), rapid.StringMatching(`[a-z_]{40,90}`), rapid.String(),
		rapid.Just("get_sum"), rapid.Just("get-sum"), rapid.Just("get.sum"), rapid.Just("Get_Sum"),
	)
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.SliceOfNDistinct(server, 1, 3, rapid.ID[string]).Draw(t, "servers")
		if checkServers(servers) != nil {
			t.Skip("refused by the configuration")
		}
		all := map[string]string{}
		for _, s := range servers {
			taken := map[string]bool{}
			for _, tool := range rapid.SliceOfNDistinct(toolName, 0, 8, rapid.ID[string]).Draw(t, "tools") {
				name, ok := nameOf(s, tool, func(n string) bool { return taken[foreign.FoldName(n)] })
				if !ok {
					continue
				}
				taken[foreign.FoldName(name)] = true
				if !fits.MatchString(name) || !strings.HasPrefix(name, prefix+s+"_") {
					t.Fatalf("%q of %q is called %q", tool, s, name)
				}
				if other, shared := all[foreign.FoldName(name)]; shared {
					t.Fatalf("%q of %q and %s are both called %q", tool, s, other, name)
				}
				all[foreign.FoldName(name)] = fmt.Sprintf("%q of %q", tool, s)
			}
		}
	})
}

func TestNames(t *testing.T) {
	free := func(string) bool { return false }
	long := strings.Repeat("x", 70)
	for _, c := range []struct{ tool, want string }{
		{"get-sum", "mcp_a_get-sum"}, {"echo", "mcp_a_echo"}, {"get.sum", "mcp_a_get_sum_"}, {"bär", "mcp_a_b_r_"}, {long, "mcp_a_xxx"}, {"", "mcp_a__"},
	} {
		got, ok := nameOf("a", c.tool, free)
		if !ok || !strings.HasPrefix(got, c.want) || (c.tool == "echo" && got != c.want) || len(got) > foreign.MaxName {
			t.Errorf("%q is called %q", c.tool, got)
		}
	}
	if got, ok := nameOf("a", "get_sum", func(n string) bool { return foreign.FoldName(n) == "mcp_a_get_sum" }); !ok || got == "mcp_a_get_sum" {
		t.Errorf("a taken name is given again: %q", got)
	}
	for _, bad := range [][]string{{"a", "a_b"}, {"a-b", "a_b"}, {"A", "a"}, {"a b"}, {""}, {strings.Repeat("a", 25)}, {"_a"}} {
		if checkServers(bad) == nil {
			t.Errorf("servers %q are accepted", bad)
		}
	}
	if err := checkServers([]string{"a", "ab", "b_a"}); err != nil {
		t.Error(err)
	}
}

func TestMayDial(t *testing.T) {
	for addr, want := range map[string][2]bool{ // without and with loopback
		"203.0.113.7": {true, true}, "10.1.2.3": {true, true}, "192.168.1.1": {true, true}, "fd12::1": {true, true}, "2001:db8::1": {true, true},
		"127.0.0.1": {false, true}, "127.9.9.9": {false, true}, "::1": {false, true}, "::ffff:127.0.0.1": {false, true}, "64:ff9b::7f00:1": {false, true},
		"169.254.169.254": {}, "::ffff:169.254.169.254": {}, "64:ff9b::a9fe:a9fe": {}, "fe80::1": {}, "168.63.129.16": {}, "fd00:ec2::254": {}, "100.100.100.200": {},
		"0.0.0.0": {}, "::": {}, "224.0.0.1": {}, "255.255.255.255": {}, "ff02::1": {},
	} {
		a := netip.MustParseAddr(addr)
		if got := [2]bool{checkAddress(a, false) == nil, checkAddress(a, true) == nil}; got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

func TestEnvironmentIsScrubbed(t *testing.T) {
	have := map[string]string{"PATH": "/bin", "LANG": "C", "SLACK_BOT_TOKEN": "xoxb", "GITHUB_TOKEN": "ghp", "HOME": "/root"}
	lookup := func(n string) (string, bool) { v, ok := have[n]; return v, ok }
	for _, c := range []struct {
		names []string
		want  []string
	}{
		{nil, []string{"HOME=/data", "PATH=/bin", "LANG=C"}},
		{[]string{"GITHUB_TOKEN", "NOT_SET", "PATH"}, []string{"HOME=/data", "LANG=C", "GITHUB_TOKEN=ghp", "PATH=/bin"}},
		{[]string{"HOME"}, []string{"PATH=/bin", "LANG=C", "HOME=/root"}},
	} {
		if got := environ(c.names, "/data", lookup); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v", c.names, got)
		}
	}
}

func TestHintsOnlyRaise(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		set  map[string]risk.Level
		h    Hints
		want risk.Level
	}{
		{nil, Hints{}, risk.High},
		{nil, Hints{ReadOnly: true, Destructive: &no}, risk.High},
		{map[string]risk.Level{"x": risk.Read}, Hints{ReadOnly: true}, risk.Read},
		{map[string]risk.Level{"x": risk.Read}, Hints{Destructive: &yes}, risk.High},
		{map[string]risk.Level{"x": risk.Low}, Hints{Destructive: &no}, risk.Low},
		{map[string]risk.Level{"x": risk.Critical}, Hints{Destructive: &yes}, risk.Critical},
	} {
		if got := level(Server{Levels: c.set}, pin{Tool: "x", Def: Definition{Hints: c.h}}); got != c.want {
			t.Errorf("%v %+v: %v, want %v", c.set, c.h, got, c.want)
		}
	}
}

func TestConfigurationMistakesAreRefused(t *testing.T) {
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	good := func(s Server) Config {
		return Config{Servers: map[string]Server{"s": s}, DB: db, DataDir: t.TempDir(), Log: discard(), Now: time.Now}
	}
	for want, s := range map[string]Server{
		"either a command or a URL":      {},
		"this machine itself":            {URL: "http://127.0.0.1:1/mcp"},
		"localhost is this machine":      {URL: "http://localhost/mcp"},
		"metadata":                       {URL: "http://169.254.169.254/", Loopback: true},
		"write it in full":               {URL: "mcp.example/mcp"},
		"put credentials into its heade": {URL: "https://a:b@mcp.example/"},
		"headers are only sent to a URL": {Command: []string{"x"}, Headers: map[string]redact.Secret{"A": "b"}},
		"cannot be sent":                 {URL: "https://mcp.example/", Headers: map[string]redact.Secret{"A": "b\r\nC: d"}},
		"no program for its env":         {URL: "https://mcp.example/", Env: []string{"A"}},
		"names of variables":             {Command: []string{"x"}, Env: []string{"A=b"}},
		"is the bot's own":               {Command: []string{"x"}, Env: []string{"COUNTERSIGN_TOKEN"}},
		"is relative":                    {Command: []string{"./x"}},
		"has a level and is not allowed": {Command: []string{"x"}, Allow: []string{"a"}, Levels: map[string]risk.Level{"b": risk.Low}},
		"the level of the tool":          {Command: []string{"x"}, AllowAll: true, Levels: map[string]risk.Level{"b": 0}},
		"timeout must be":                {Command: []string{"x"}, Timeout: 2 * time.Hour},
	} {
		if _, err := New(good(s)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty configuration is accepted")
	}
}

func TestSecretsOfTheConfiguration(t *testing.T) {
	c := Config{Servers: map[string]Server{
		"a": {URL: "https://x.example/mcp?key=qqqqqqqq", Headers: map[string]redact.Secret{"Authorization": "Bearer tttttttt"}},
		"b": {Command: []string{"x"}, Env: []string{"GITHUB_TOKEN", "HOME", "LC_TIME", "SHORT"}},
	}}
	have := map[string]string{"GITHUB_TOKEN": "gggggggg", "HOME": "/home/bot", "LC_TIME": "de_DE.UTF-8", "SHORT": "x"}
	got := c.secrets(func(n string) (string, bool) { v, ok := have[n]; return v, ok })
	if want := []string{"Bearer tttttttt", "gggggggg", "qqqqqqqq", "tttttttt"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
