package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/alerts"
	"countersign/alerts/notice"
	"countersign/internal/redact"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bot.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheExampleFileNamesEveryKeyAndLoads(t *testing.T) {
	const path = "../docs/example.yaml"
	if _, err := ReadFile(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]bool{ // keys of targets and networks that this version does not have yet
		"host": true, "user": true, "container": true, "rules": true, "discord": true, "discord_roles": true,
	}
	for _, k := range Defaults().knownKeys() {
		if !elsewhere[k] && !strings.Contains(string(raw), k+":") {
			t.Errorf("%s does not document %q", path, k)
		}
	}
}

func TestConfigurationErrorsAreOneSentence(t *testing.T) {
	for _, tc := range []struct{ rule, text, want string }{
		{"an unknown key names the nearest", "agnet: {name: x}", `line 1: unknown key "agnet"; did you mean "agent"?`},
		{"a network that isn't there", "groups:\n  oncall:\n    slak: [U1]", `line 3: unknown key "slak"; did you mean "slack"?`},
		{"a network that isn't there, of a person", "people: {ann: {file: [ann]}}", `line 1: unknown key "file"`},
		{"groups of another network's name", "groups: {oncall: {slack_groups: [S1]}}", `line 1: unknown key "slack_groups"`},
		{"a key of another section", "groups: {oncall: {agent: [x]}}", `line 1: unknown key "agent"; it is a key of another section`},
		{"a workspace that isn't there", "slack: [{}, {name: labs}]\ngroups: {oncall: {slack.lab: [U1]}}", `line 2: unknown key "slack.lab"; did you mean "slack.labs"?`},
		{"an unknown key of a workspace", "slack:\n  - {}\n  - {name: labs, url: x}", `line 3: unknown key "url"`},
		{"a workspace without a name", "slack: [{name: acme}, {}]", "slack[1] has no name"},
		{"two workspaces of one name", "slack: [{name: acme}, {name: acme}]", "two workspaces of slack are called acme"},
		{"a workspace whose variables would be those of files", "slack: [{}, {name: file}]", `slack[1].name is "file"`},
		{"a workspace whose name has a separator of stored rows", "slack: [{}, {name: labs-deaf}]", `slack[1].name is "labs-deaf"`},
		{"a workspace whose name can't be in a variable", "slack: [{}, {name: the_labs}]", `slack[1].name is "the_labs"`},
		{"a channel of a workspace that isn't there", "slack: {name: acme}\nchannels: [{platform: slack.acme, id: C1}]", `channels[0] has platform "slack.acme"; use slack or discord`},
		{"alerts to a workspace that isn't there", "alerts: {default: {channel: 'slack.labs:T1:C1'}}", "slack.labs:T1:C1"},
		{"a wrong type names the line", "tmux:\n  max_panes: many", "line 2"},
		{"an unknown target", "agent: {name: x, target: db}", `agent.target is "db"`},
		{"an unknown kind", "targets: {local: {kind: vm}}", `kind "vm"`},
		{"no YAML at all", "{", "line 1"},
		{"an unknown mode", "agent: {mode: yolo}", `agent.mode: the mode "yolo"`},
		{"an unknown platform", "channels: [{platform: irc, id: x}]", `channels[0] has platform "irc"`},
		{"a channel without id", "channels: [{platform: slack}]", `channels[0] has no id`},
		{"a channel that is listed twice", "channels: [{platform: slack, id: C1}, {platform: slack, id: C1}]", "listed twice"},
		{"an unknown mode of a channel", "channels: [{platform: slack, id: C1, mode: fast}]", `the mode "fast"`},
		{"an unknown way of following up", "channels: [{platform: slack, id: C1, followups: none}]", `followups "none"`},
		{"a channel with a target that nobody listed", "channels: [{platform: slack, id: C1, target: db}]", `target "db"`},
	} {
		_, err := ReadFile(write(t, tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
}

func TestTheAuditConfigurationIsChecked(t *testing.T) {
	for _, tc := range []struct {
		c    AuditConfig
		want string
	}{
		{defaultAudit(), ""},
		{AuditConfig{Summary: "slack:T1:C1:1.2", At: "23:59", Zone: "Europe/Vienna"}, ""},
		{AuditConfig{Summary: "discord:1:2:3", At: "09:00", Zone: "UTC"}, ""},
		{AuditConfig{Summary: "slack", At: "09:00", Zone: "UTC"}, `f.yaml: audit.summary is "slack", which is no thread`},
		{AuditConfig{Summary: "irc:x", At: "09:00", Zone: "UTC"}, `f.yaml: audit.summary is "irc:x", which is no thread`},
		{AuditConfig{Summary: "#general", At: "09:00", Zone: "UTC"}, `f.yaml: audit.summary is "#general", which is no thread`},
		{AuditConfig{Summary: "web:1", At: "9 am", Zone: "UTC"}, `f.yaml: audit.at is "9 am"; use hours and minutes`},
		{AuditConfig{Summary: "", At: "09:00", Zone: "Mars/Olympus"}, `f.yaml: audit.zone is "Mars/Olympus"`},
	} {
		got := ""
		if err := tc.c.check("f.yaml", Defaults().Has); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%+v: %q", tc.c, got)
		}
	}
}

func TestEverySecretCanComeFromAFile(t *testing.T) {
	dir := t.TempDir()
	for name, secret := range map[string]string{"HOOK": "hook-secret\n", "MCP": " mcp-secret ", "PLUG": "plug-secret"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name+"_SECRET", "") // restored at the end
		t.Setenv(name+"_SECRET_FILE", path)
	}
	f, err := ReadFile(write(t, `
alerts: {hooks: {generic: {secret_env: HOOK_SECRET}}, default: {channel: web}}
mcp: {m: {url: "https://mcp.internal/", headers: {Authorization: "Bearer ${MCP_SECRET}"}}}
tools: {plugins: [{path: /opt/p, env: [PLUG_SECRET]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := fromFiles(f.variables()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HOOK_SECRET": "hook-secret", "MCP_SECRET": "mcp-secret", "PLUG_SECRET": "plug-secret"} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, at := range []string{"HOOK", "MCP", "PLUG"} {
		path := filepath.Join(dir, at)
		found := false
		for _, place := range (Env{DataDir: "/d"}).Places(f) {
			found = found || place == path
		}
		if !found {
			t.Errorf("%s is not known as a place of secrets", path)
		}
	}
}

func TestTheSummaryIsDueOnceADay(t *testing.T) {
	for _, tc := range []struct{ rule, at, zone, from, due string }{
		{"later today", "09:00", "UTC", "2026-03-01T08:59:59Z", "2026-03-01T09:00:00Z"},
		{"tomorrow, when it was just now", "09:00", "UTC", "2026-03-01T09:00:00Z", "2026-03-02T09:00:00Z"},
		{"in the zone", "09:00", "Europe/Vienna", "2026-01-01T08:30:00Z", "2026-01-02T08:00:00Z"},
		{"over the end of a year", "23:30", "America/New_York", "2026-01-01T04:45:00Z", "2026-01-02T04:30:00Z"},
		{"on the day that the clocks change", "09:00", "Europe/Vienna", "2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z"},
		{"at a time that the clocks skip", "02:30", "Europe/Vienna", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
	} {
		d, err := AuditConfig{At: tc.at, Zone: tc.zone}.Clock()
		if err != nil {
			t.Fatal(err)
		}
		from, _ := time.Parse(time.RFC3339, tc.from)
		if got := d.Next(from).UTC().Format(time.RFC3339); got != tc.due {
			t.Errorf("%s: %s, want %s", tc.rule, got, tc.due)
		}
	}
}

func TestTheConsolesConfigurationIsChecked(t *testing.T) {
	for _, tc := range []struct{ rule, text, want string }{
		{"an origin with no scheme", "web: {origin: bot.example.com}", "web.origin"},
		{"a certificate without a key", "web: {tls: {cert: /c.pem}}", "needs both cert and key"},
		{"a provider without a client", "web: {origin: https://b.example.com, oidc: {issuer: https://id.example.com}}", "issuer and client_id"},
		{"a provider without a way back", "web: {oidc: {issuer: https://id.example.com, client_id: x}}", "web.origin"},
		{"viewers that are no group", "web: {viewers: [all]}", `web.viewers has "all"`},
		{"a proxy that is no address", "web: {proxies: [proxy.internal]}", "web.proxies"},
		{"two names that look the same", "groups: {a: {web: [bob]}, b: {web: [b\u043eb]}}", `looks like "bob"`},
		{"a name with what cannot be seen", "groups: {a: {web: [\"bo\u200bb\"]}}", "cannot be seen"},
		{"sessions that end before they are idle", "web: {session: 1h, idle: 2h}", "web.session"},
	} {
		_, err := ReadFile(write(t, tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "; ") && !strings.Contains(err.Error(), ", which") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	f, err := ReadFile(write(t, "web: {proxies: [10.0.0.0/8, 192.0.2.1]}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Web.ProxyPrefixes(""); err != nil || len(got) != 2 || got[1].Bits() != 32 {
		t.Errorf("proxies: %v %v", got, err)
	}
}

func TestAnErrorNamesTheDocumentOfItsKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a: bot.yaml")
	for text, want := range map[string]string{
		"targets: {a: {kind: sssh}}": "targets", "policy: {reads: x}": "policy-rules", "nonsense: 1": "configuration",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(file)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Page() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for sentence, want := range map[string]string{"policy.rules[0] (x).when is wrong": "policy-rules", "say what": "", "web: say what": "sign-in"} {
		if e, ok := errors.AsType[*Error](Errorf("%s", sentence)); !ok || e.Page() != want {
			t.Errorf("%s: %q", sentence, e.Page())
		}
	}
}

func TestTheDocumentsOfKeysAreThere(t *testing.T) {
	for key, page := range pages {
		if _, err := os.Stat(filepath.Join("..", "docs", page+".md")); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// notSecret are the keys of the configuration whose names look like a secret's and that hold none.
var notSecret = []string{
	"alerts.hooks.secret_env", "programs.webhooks.secret_env", "oncall.token_env", "tickets.token_env", "stream.token_env", // names of variables: File.variables
	"audit.witnesses.key", "targets.host_key", "targets.known_hosts", "targets.ssh_config", // public, or no secret
	"oncall.path", "stream.path", "tools.plugins.path", "programs.identities.keys", "policy.rules.examples.match.path", "policy.rules.examples.not_match.path", // what they hold is data
	"stream.cert", "web.tls.cert", "targets.credential", "agent.until",
	"signer.url", "risk.secrets", // an address without a path; File.Places takes these
	"limits.tokens", "caps.thread.tokens", "caps.day.tokens", "caps.channel.tokens", "caps.channels.thread.tokens", "caps.channels.channel.tokens", "roles.tokens", "sub_agents.tokens",
}

// TestEveryKeyOfTheConfigurationThatCouldBeASecretIsMarked walks the shape of the configuration: a new key
// whose name looks like that of a secret is one until somebody says otherwise here.
func TestEveryKeyOfTheConfigurationThatCouldBeASecretIsMarked(t *testing.T) {
	looks := regexp.MustCompile(`(^|_)(file|path|keys?|url|cert|token|tokens|secrets?|identit\w*|known_hosts|ssh_config|password|credentials?|pem)($|_)`)
	var walk func(at string, of reflect.Type, tag string)
	walk = func(at string, of reflect.Type, tag string) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(at, of.Elem(), tag)
		case reflect.Struct:
			for f := range of.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
				next := strings.TrimPrefix(at+"."+name, ".")
				if name == "" {
					next = at
				}
				if name != "-" && f.IsExported() {
					walk(next, f.Type, f.Tag.Get("secret"))
				}
			}
		default:
			if last := at[strings.LastIndexByte(at, '.')+1:]; looks.MatchString(last) && tag == "" && !slices.Contains(notSecret, at) && of.Kind() == reflect.String {
				t.Errorf(`%s could be a secret: give its field the tag secret:"file" or secret:"url", or list it as none`, at)
			}
		}
	}
	walk("", reflect.TypeFor[File](), "")
}

func TestWhatTheConfigurationNamesAsSecretIsNeitherShownNorRead(t *testing.T) {
	dir := t.TempDir()
	held := map[string]string{}
	for _, name := range []string{"signer-word", "tls", "stream", "identity", "hook"} {
		held[name] = "the-secret-of-" + name + "-0123456789"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(held[name]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOOK_SECRET", "") // restored at the end
	t.Setenv("HOOK_SECRET_FILE", filepath.Join(dir, "hook"))
	t.Setenv("PLUG_TOKEN", "plug-token-value")
	e := Env{DataDir: filepath.Join(dir, "data"), Config: filepath.Join(dir, "c.yaml"), OIDCSecret: "oidc-secret-value", Store: "postgres://u:store-password@db/x"}
	var f File
	f.Signer.TokenFile = "signer-word" // beside the configuration
	f.Web.TLS.Key = filepath.Join(dir, "tls")
	f.Stream = []StreamConfig{{Key: filepath.Join(dir, "stream")}}
	f.Targets = map[string]TargetConfig{"web-1": {Identities: []string{filepath.Join(dir, "identity")}}}
	f.OnCall = map[string]OnCallConfig{"cal": {Kind: "ical", URL: "https://calendar.example.com/ical/private-0a1b2c3d4e5f6071/basic.ics"}}
	f.Alerts.Hooks = map[notice.Source]alerts.Hook{"generic": {SecretEnv: "HOOK_SECRET"}}
	f.Targets["web-2"] = TargetConfig{Identities: []string{"ssh-key"}}
	f.Tools.Plugins = []PluginConfig{{Path: "/opt/p", Env: []string{"PLUG_TOKEN"}}}
	if err := fromFiles(f.variables()); err != nil {
		t.Fatal(err)
	}
	places := e.Places(f)
	for _, name := range append(slices.Sorted(maps.Keys(held)), "data", "c.yaml") {
		if !slices.Contains(places, filepath.Join(dir, name)) {
			t.Errorf("%s may be read: %q", name, places)
		}
	}
	if here, err := filepath.Abs("ssh-key"); err != nil || !slices.Contains(places, here) || !slices.Contains(places, filepath.Join(dir, "ssh-key")) {
		t.Errorf("a relative path isn't protected where it may be opened: %q", places)
	}
	show := redact.New(e.Secrets(f)...).Redact
	for _, secret := range append(slices.Sorted(maps.Values(held)), "plug-token-value", "oidc-secret-value", "store-password", f.OnCall["cal"].URL, "private-0a1b2c3d4e5f6071") {
		if got := show("it is " + secret + " as printed"); strings.Contains(got, secret) {
			t.Errorf("shown: %s", got)
		}
	}
}

// TestWhatAnAddressNamesInTheOpenIsNoSecret: options and names of databases stand in logs all day.
func TestWhatAnAddressNamesInTheOpenIsNoSecret(t *testing.T) {
	for address, want := range map[string][]string{
		"postgres://u:pw-of-the-store@h/countersign_prod_2024?sslmode=verify-full&application_name=countersign&sslpassword=hush": {"pw-of-the-store", "hush"},
		"postgres://u:pw-of-the-store@h1:5432,h2:5432/db?sslmode=verify-full":                                                    {"pw-of-the-store"},
		"postgres://h/db": nil,
	} {
		if want != nil {
			want = append(want, address)
		}
		if got := addressSecrets(address, false); !slices.Equal(got, want) {
			t.Errorf("%s: %q", address, got)
		}
	}
}

func TestWorkspacesAreRows(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.yaml")
	const text = `
slack: [{name: acme}, {name: labs}, {name: thelabs}]
groups: {oncall: {slack: [U1], slack.labs: [U2], slack.thelabs_usergroups: [S1]}}
channels: [{platform: slack, id: C1, mode: readonly}, {platform: slack.labs, id: C1, mode: review}]
audit: {summary: "slack.labs:T1:C1:1.2"}
alerts: {default: {channel: "slack.labs:T1:C1"}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var schemes []string
	for _, n := range f.Networks() {
		schemes = append(schemes, n.Scheme)
	}
	if !slices.Equal(schemes, []string{"web", "slack", "slack.labs", "slack.thelabs", "discord"}) {
		t.Error(schemes)
	}
	g := f.Groups["oncall"]
	if !slices.Equal(g.People["slack"], []string{"U1"}) || !slices.Equal(g.People["slack.labs"], []string{"U2"}) || !slices.Equal(g.Groups["slack.thelabs"], []string{"S1"}) {
		t.Errorf("%+v", g)
	}
	if a, _ := f.Channel("slack", "C1"); a.Mode != "readonly" {
		t.Errorf("%+v", a)
	}
	if b, _ := f.Channel("slack.labs", "C1"); b.Mode != "review" {
		t.Errorf("%+v", b)
	}

	// The first has the variables that a single one has, and each secret can come from a file.
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("xoxb-labs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLACK_BOT_TOKEN_LABS", "")
	t.Setenv("SLACK_BOT_TOKEN_LABS_FILE", secret)
	t.Setenv("SLACK_APP_TOKEN_THELABS", "xapp-alone")
	if err := f.ReadSecrets(); err != nil {
		t.Fatal(err)
	}
	e := Env{SlackBotToken: "xoxb-first"}
	if e.Value("SLACK_BOT_TOKEN") != "xoxb-first" || e.Value("SLACK_BOT_TOKEN_LABS") != "xoxb-labs" {
		t.Error(e.Value("SLACK_BOT_TOKEN"), e.Value("SLACK_BOT_TOKEN_LABS"))
	}
	if !slices.Contains(e.Secrets(f), "xoxb-labs") || !slices.Contains(e.Places(f), secret) {
		t.Error("the token of a second workspace is no secret")
	}
	if err := e.CheckNetworks(f); err == nil || !strings.Contains(err.Error(), "is set without SLACK_BOT_TOKEN_THELABS") {
		t.Error(err)
	}
	for _, one := range []string{"slack: {name: acme}\n", "slack: {}\n", "slack:\n", "slack: []\n"} {
		if err := os.WriteFile(path, []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := ReadFile(path); err != nil || len(f.Networks()) != 3 {
			t.Errorf("%s: %v %v", one, f.Networks(), err)
		}
	}
}
