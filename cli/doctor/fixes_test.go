package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/bot/machines"
	"countersign/config"

	"pgregory.net/rapid"

	"countersign/adapters/chat/network"
	"countersign/agent/spend"
	"countersign/alerts"
	"countersign/alerts/notice"
	"countersign/approvals/policy"
	"countersign/store/bolt"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
)

const gib = 1 << 30

// TestDoctorEachFailureIsOneSentenceWithOneMend is the table of what can be wrong, and what
// the doctor says to do about it.
func TestDoctorEachFailureIsOneSentenceWithOneMend(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	env := func(string) (string, bool) { return "", false }
	secret := func(string) (string, bool) { return "0123456789abcdef0123456789abcdef", true }
	hooks := alerts.Config{Hooks: map[notice.Source]alerts.Hook{"grafana": {SecretEnv: "GRAFANA_SECRET"}}}
	faulty := func(change func(*faults)) *targetCheck {
		x := &faults{Target: local.New(local.Options{Name: "x"})}
		change(x)
		return &targetCheck{m: &machines.Machine{Name: "x", Config: config.TargetConfig{Kind: "ssh"}, Target: x}, up: true, caps: backend.Caps{TempDir: dir, Bash: "/bin/bash", User: "ops"}}
	}
	answer := func(out string) *targetCheck {
		return faulty(func(x *faults) { x.instead = backend.Spec{Argv: []string{"printf", "%s", out}} })
	}
	broken := errors.New("broken")
	ctx := t.Context()
	offers := func(f func(*config.File)) result {
		file := config.Defaults()
		f(&file)
		return checkTools(config.Env{DataDir: dir}, file)
	}
	for _, tc := range []struct {
		rule  string
		got   result
		label string
		text  string // a part of it
		fix   string // a part of it; "" where nothing needs to be done
	}{
		{"a disk with room", volume{free: 50 * gib, size: 100 * gib}.checkSpace(0), "ok", "50 GiB of 100 GiB are free (50 %)", ""},
		{"a disk that is low", volume{free: gib - 1, size: 10 * gib}.checkSpace(0), "warn", "only 1024 MiB of 10 GiB", "free some space, or shorten keep"},
		{"a disk that is low in percent", volume{free: 4 * gib, size: 100 * gib}.checkSpace(0), "warn", "(4 %)", "free some space"},
		{"a disk that is as good as full", volume{free: 100<<20 - 1, size: 10 * gib}.checkSpace(0), "FAIL", "only 100 MiB", "set COUNTERSIGN_DATA_DIR to a directory on another disk"},
		{"no room for a copy of the store", volume{free: 5 * gib, size: 50 * gib}.checkSpace(6 * gib), "warn", "a backup or a compaction of the store needs 6.0 GiB", "write backups to another disk"},
		{"a volume of no size", volume{free: 5 * gib}.checkSpace(0), "ok", "free", ""},
		{"nfs", volume{network: "nfs"}.checkFilesystem(), "warn", "network file system (nfs)", "set COUNTERSIGN_DATA_DIR to a directory on a local disk"},
		{"a system that does not tell", unknownVolume(errors.ErrUnsupported), "skip", "does not tell", ""},
		{"a store that is mostly idle", judgeStore("db", bolt.Stats{FileBytes: 600 << 20, FreeBytes: 400 << 20}), "warn", "600 MiB, of which 400 MiB are idle", "stop the bot and run bot store compact"},
		{"a small store that is idle", judgeStore("db", bolt.Stats{FileBytes: 60 << 20, FreeBytes: 50 << 20}), "ok", "60 MiB", ""},
		{"a store that others may read", checkPermissions("db", mode(0o644), fine("x")), "warn", "open to other users", "chmod 600 db"},

		{"an address that is none", checkExposure("nowhere", config.WebConfig{}), "FAIL", `COUNTERSIGN_LISTEN is "nowhere"`, "use one such as 127.0.0.1:8700"},
		{"loopback", checkExposure("", config.WebConfig{}), "ok", "this machine only", ""},
		{"other machines without an origin", checkExposure("0.0.0.0:8700", config.WebConfig{}), "warn", "its address is taken from each request", "set web.origin to the address that people use"},
		{"other machines with an origin", checkExposure(":8700", config.WebConfig{Origin: "https://bot.example.com"}), "ok", "https://bot.example.com", ""},
		{"an origin in clear", checkExposure(":8700", config.WebConfig{Origin: "http://bot.example.com"}), "warn", "in clear", "set web.tls, or put a proxy with TLS before it"},
		{"an origin in clear on loopback", checkExposure("", config.WebConfig{Origin: "http://localhost:8700"}), "ok", "http://localhost:8700", ""},
		{"an origin that is none", checkExposure(":8700", config.WebConfig{Origin: "bot.example.com"}), "FAIL", "no origin", "write it like https://bot.example.com"},

		{"metrics on an address that is none", checkMetrics(ctx, "nowhere", false), "FAIL", "metrics cannot be served on nowhere", "set metrics.listen to a free address"},
		{"metrics on a free address", checkMetrics(ctx, "127.0.0.1:0", false), "ok", "is free", ""},
		{"metrics of a running bot", checkMetrics(ctx, "127.0.0.1:1", true), "skip", "the running bot has", ""},
		{"a hook without its secret", checkHook(hooks, "grafana", env), "FAIL", "GRAFANA_SECRET is not set", "put the secret into it, or take the hook away"},
		{"a hook with its secret", checkHook(hooks, "grafana", secret), "ok", "GRAFANA_SECRET", ""},
		{"a plugin that is not there", checkPlugin(config.PluginConfig{Path: filepath.Join(dir, "none")}), "FAIL", "is not there", "correct its path, or make it executable: chmod +x " + dir},
		{"a plugin that is not executable", checkPlugin(config.PluginConfig{Path: plain}), "FAIL", "is not executable", "chmod +x " + plain},
		{"a plugin that is a directory", checkPlugin(config.PluginConfig{Path: dir}), "FAIL", "is no file", "correct its path"},
		{"a plugin without a path", checkPlugin(config.PluginConfig{}), "FAIL", "no path", "name its executable under tools.plugins"},
		{"a plugin of an unknown level", checkPlugin(config.PluginConfig{Path: "/bin/sh", Levels: map[string]string{"x": "mild"}}), "FAIL", `"mild"`, "use read, low, medium, high or critical"},
		{"a plugin without its directory", checkPlugin(config.PluginConfig{Path: "/bin/sh", Dir: filepath.Join(dir, "none")}), "FAIL", "none is not there", "make it, or correct its dir"},
		{"a plugin", checkPlugin(config.PluginConfig{Path: "/bin/sh"}), "ok", "/bin/sh can be started", ""},
		{"an MCP program that is not in the PATH", launched("x", []string{"no-such-program"}, "/usr/bin:/bin:.:"), "FAIL", "not in the PATH", "write its whole path under mcp.x.command"},
		{"an MCP program that is not there", launched("x", []string{"/no/such"}, ""), "FAIL", "/no/such is not there", "correct mcp.x.command"},
		{"an MCP program", launched("x", []string{"sh"}, "/nowhere:/usr/bin:/bin"), "ok", "/sh can be started", ""},
		{"workflows that are not there", runbooksOf(config.WorkflowsConfig{Dirs: []string{filepath.Join(dir, "none")}}), "FAIL", "cannot be read", "name a directory that exists"},
		{"workflows", runbooksOf(config.WorkflowsConfig{Dirs: []string{dir}}), "ok", "workflows can be run", ""},
		{"an unknown preset", offers(func(f *config.File) { f.Agent.Preset = "yolo" }), "FAIL", `"yolo"`, "choose one of"},
		{"an unknown tool", offers(func(f *config.File) { f.Tools.Additional = []string{"teleport"} }), "FAIL", "teleport", "the tools are "},
		{"a rule about no tool", offers(func(f *config.File) {
			f.Policy.Rules = []policy.Rule{{Name: "r", Match: policy.Match{Tools: []string{"telep*"}}, Then: "ask"}}
		}), "warn", "r can never match: there is no tool named like telep*", "bot tools --preset full lists the names"},
		{"a rule about some tool", offers(func(f *config.File) {
			f.Policy.Rules = []policy.Rule{{Name: "r", Match: policy.Match{Tools: []string{"telep*", "run_*"}}, Then: "ask"}}
		}), "ok", "tools for everybody", ""},

		{"no model", (&doctor{}).answers(ctx, config.Env{}, config.File{}, ""), "FAIL", "no model is configured", "set OPENAI_API_KEY and OPENAI_MODEL"},
		{"no model's name at OpenAI", (&doctor{}).answers(ctx, config.Env{OpenAIKey: "x"}, config.File{}, ""), "FAIL", "OPENAI_MODEL is not set", "set OPENAI_API_KEY and OPENAI_MODEL"},
		{"a model that is not reached", (&doctor{}).answers(ctx, config.Env{OpenAIBaseURL: "http://127.0.0.1:1/v1"}, config.File{}, "m"), "FAIL", "", "OPENAI_BASE_URL"},

		{"a clock that is behind", drifted(noon, noon.Add(31*time.Second)), "warn", "the clock of this machine is 31s behind that of x", "keep it with NTP"},
		{"a clock that is ahead", drifted(noon, noon.Add(-32*time.Second)), "warn", "31s ahead of that of x", "keep it with NTP"},
		{"a clock that is a little off", drifted(noon, noon.Add(30*time.Second)), "ok", "within 30s of x", ""},
		{"no other clock", (&clocks{}).judge(), "skip", "no server was asked", ""},
		{"a target's clock that is ahead", reading{at: noon.Add(3 * time.Second), before: noon, after: noon}.judge(), "warn", "its clock is 3s ahead of the bot's", "keep both with NTP"},
		{"a target's clock that is behind", reading{at: noon.Add(-4 * time.Second), before: noon, after: noon}.judge(), "warn", "its clock is 3s behind the bot's", "keep both with NTP"},
		{"a target's clock that took long to ask", reading{at: noon.Add(3 * time.Second), before: noon, after: noon.Add(5 * time.Second)}.judge(), "ok", "within 2s", ""},

		{"a target whose mistake is in the configuration", faulty(func(x *faults) { x.probe = errors.New("no such key; name another") }).reaches(ctx), "FAIL", "no such key", "name another"},
		{"a target that does not say what to do", faulty(func(x *faults) { x.probe = broken }).reaches(ctx), "FAIL", "broken", "check the host, the network and the account"},
		{"a target that does not answer", faulty(func(x *faults) { x.probe = context.DeadlineExceeded }).reaches(ctx), "FAIL", "did not answer in time", "check the host"},
		{"a directory that is not there", (&targetCheck{m: &machines.Machine{Name: "x", Config: config.TargetConfig{Kind: "local", Dir: filepath.Join(dir, "none")}, Target: local.New(local.Options{})}}).reaches(ctx), "FAIL", "its directory", "correct targets.x.dir"},
		{"a root that is not there", (&targetCheck{m: &machines.Machine{Name: "x", Config: config.TargetConfig{Kind: "local", Dir: dir, Roots: []string{filepath.Join(dir, "no", "no")}}, Target: local.New(local.Options{})}}).reaches(ctx), "warn", "its root", "correct targets.x.roots"},
		{"an account that is root", faulty(func(x *faults) { x.caps = &backend.Caps{User: "root", Home: "/"} }).reaches(ctx), "warn", "as root on local", "use an account of the bot's own"},
		{"a home that is not there", faulty(func(x *faults) { x.caps = &backend.Caps{User: "ops", Home: "/nowhere"} }).reaches(ctx), "FAIL", "the home /nowhere of ops", "set targets.x.dir"},
		{"a shell that does not start", faulty(func(x *faults) { x.start = broken }).shell(ctx), "FAIL", "sh does not run (broken)", "look at /bin/sh there"},
		{"a shell that says something else", answer("Welcome!").shell(ctx), "FAIL", `"Welcome!"`, "what the account's login shell prints"},
		{"terminals without tmux", faulty(func(*faults) {}).terminals(ctx), "warn", "tmux is not installed", "apt-get install tmux"},
		{"terminals that were asked for, without tmux", wanted(faulty(func(*faults) {})).terminals(ctx), "FAIL", "tmux is not installed", "write tmux: false under targets.x"},
		{"a directory that cannot be written", faulty(func(x *faults) { x.write = fs.ErrPermission }).files(ctx), "FAIL", "no file can be written", "rights and the room of that directory"},
		{"a file that reads differently", faulty(func(x *faults) { x.read = []byte("else") }).files(ctx), "FAIL", `reads "else"`, "look at what changes files there"},
		{"a host without SFTP", deaf(faulty(func(*faults) {})).files(ctx), "warn", "no SFTP that works", "Subsystem sftp internal-sftp"},
		{"a host with SFTP", faulty(func(*faults) {}).files(ctx), "ok", "by SFTP", ""},
		{"df that cannot be asked", faulty(func(x *faults) { x.start = broken }).room(ctx), "skip", "broken", ""},
		{"df that says nothing", answer("nonsense").room(ctx), "skip", "cannot be read", ""},
		{"no room for temporary files", volume{free: noTemp - 1, size: gib}.temp("/tmp"), "FAIL", "are free in /tmp", "free some space there"},
		{"little room for temporary files", volume{free: lowTemp - 1, size: gib}.temp("/tmp"), "warn", "are free in /tmp", "free some space there"},
		{"date that is no number", answer("today").clock(ctx), "skip", `"today"`, ""},
		{"a clock far off", answer("1").clock(ctx), "warn", "behind the bot's", "keep both with NTP"},

		{"a network's sentence", fromNetwork(network.Outcome{Result: network.Failed, Text: "it is off (as; ever); switch it on; or not"}), "FAIL", "it is off (as; ever)", "switch it on; or not"},
		{"a network's sentence without a fix", fromNetwork(network.Outcome{Result: network.Failed, Text: "the tokens are swapped"}), "FAIL", "the tokens are swapped", again},
		{"a network's note that leaves nothing to do", fromNetwork(network.Outcome{Result: network.Noted, Text: "its people see it"}), "warn", "its people see it", ""},
	} {
		switch {
		case tc.got.label != tc.label || !strings.Contains(tc.got.text, tc.text) || !strings.Contains(tc.got.fix, tc.fix) || (tc.fix == "" && tc.label != "FAIL" && tc.got.fix != ""):
			t.Errorf("%s: %+v", tc.rule, tc.got)
		case tc.label == "FAIL" && (tc.got.fix == "" || strings.ContainsAny(tc.got.text+tc.got.fix, "\n")):
			t.Errorf("%s: a failure without a fix, or on several lines: %+v", tc.rule, tc.got)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".countersign-doctor-*")); err != nil || len(left) > 0 {
		t.Errorf("files were left behind: %v %v", left, err)
	}
}

func drifted(here, there time.Time) result {
	c := &clocks{}
	c.note("x", http.Header{"Date": {there.Format(http.TimeFormat)}}, here, here)
	return c.judge()
}

func wanted(p *targetCheck) *targetCheck {
	on := true
	p.m.Config.Tmux = &on
	return p
}

func deaf(p *targetCheck) *targetCheck {
	p.hears.noSFTP.Store(true)
	return p
}

type mode fs.FileMode

func (m mode) Name() string       { return "" }
func (m mode) Size() int64        { return 0 }
func (m mode) Mode() fs.FileMode  { return fs.FileMode(m) }
func (m mode) ModTime() time.Time { return time.Time{} }
func (m mode) IsDir() bool        { return false }
func (m mode) Sys() any           { return nil }

// faults is this machine with something wrong.
type faults struct {
	*local.Target
	probe, start error
	caps         *backend.Caps
	instead      backend.Spec // what runs in place of every command
	write        error
	read         []byte
}

func (f *faults) Probe(ctx context.Context) (backend.Caps, error) {
	if f.caps != nil {
		return *f.caps, nil
	}
	if f.probe != nil {
		return backend.Caps{}, f.probe
	}
	return f.Target.Probe(ctx)
}

func (f *faults) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	if f.start != nil {
		return nil, f.start
	}
	if f.instead.Argv != nil {
		s.Argv, s.Shell = f.instead.Argv, ""
	}
	return warranttest.Start(ctx, f.Target, s)
}

func (f *faults) FS() backend.FileSystem { return faultyFiles{f.Target.FS(), f} }

type faultyFiles struct {
	backend.FileSystem
	f *faults
}

func (f faultyFiles) WriteFile(ctx context.Context, path string, data []byte, mkdir bool) error {
	if f.f.write != nil {
		return f.f.write
	}
	return f.FileSystem.WriteFile(ctx, path, data, mkdir)
}

func (f faultyFiles) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	if f.f.read != nil {
		return f.f.read, nil
	}
	return f.FileSystem.ReadFile(ctx, path, limit)
}

func (f faultyFiles) Remove(ctx context.Context, path string, was backend.Before) error {
	return f.FileSystem.(backend.Remover).Remove(ctx, path, was)
}

func TestDoctorReadsClocksOfWhoAnswers(t *testing.T) {
	var age string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Sat, 31 Jan 2026 12:00:00 GMT")
		if age != "" {
			w.Header().Set("Age", age)
		}
	}))
	t.Cleanup(srv.Close)
	c := &clocks{}
	get := func() {
		res, err := (&http.Client{Transport: c.wrap(http.DefaultTransport)}).Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	age = "7"
	get()
	if r := c.judge(); r.label != "skip" {
		t.Errorf("an answer that somebody had kept: %+v", r)
	}
	age = ""
	get()
	if r := c.judge(); r.label != "warn" || !strings.Contains(r.text, "of 127.0.0.1") {
		t.Errorf("%+v", r)
	}
}

func TestDoctorSaysWhatAModelCosts(t *testing.T) {
	var prices spend.Prices
	in, out := spend.Money(2_000_000), spend.Money(8_000_000)
	prices = spend.Prices{"priced": {In: &in, Out: &out}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Messages []struct{ Content string }
			Tools    []struct{ Function struct{ Name string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) != 1 || len(req.Tools) != 1 {
			t.Errorf("the question is not small: %+v %v", req, err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(`data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call0001","type":"function","function":{"name":"ping","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}

data: {"id":"x","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":50,"completion_tokens":5,"total_tokens":55}}

data: [DONE]

`))
	}))
	t.Cleanup(srv.Close)
	e := config.Env{OpenAIBaseURL: srv.URL + "/v1"}
	d := &doctor{}
	for _, tc := range []struct {
		rule, model string
		prices      spend.Prices
		label, want string
	}{
		{"without prices", "priced", nil, "ok", "(50 tokens in, 5 out)"},
		{"with its price", "priced", prices, "ok", "50 tokens in, 5 out, $0.000140"},
		{"with the prices of others", "other", prices, "warn", "has no price"},
	} {
		if r := d.answers(t.Context(), e, config.File{Prices: tc.prices}, tc.model); r.label != tc.label || !strings.Contains(r.text, tc.want) {
			t.Errorf("%s: %+v", tc.rule, r)
		}
	}
	f := config.File{Model: config.ModelConfig{Fallback: []string{"b", "c"}}}
	var names []string
	for _, c := range d.modelChecks(e, f) {
		names = append(names, c.name)
	}
	if want := []string{"model", "model fallback b", "model fallback c"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func TestDoctorLooksAtThePolicy(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	base := func(change func(*config.File)) config.File {
		f := config.Defaults()
		f.Groups = map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"a", "b"}}}, "one": {People: policy.IDs{"web": {"a"}}}, "none": {}, "team": {Groups: policy.IDs{"slack": {"S1"}}}}
		f.Targets = map[string]config.TargetConfig{"web-1": {Kind: "local", Approvers: []string{"oncall"}, Labels: map[string]string{"env": "production"}}}
		f.Agent.Target = "web-1"
		change(&f)
		return f
	}
	rule := func(m policy.Match) func(*config.File) {
		return func(f *config.File) { f.Policy.Rules = []policy.Rule{{Name: "r", Match: m, Then: "ask"}} }
	}
	on := func(groups ...string) func(*config.File) {
		return func(f *config.File) {
			x := f.Targets["web-1"]
			x.Approvers = groups
			f.Targets["web-1"] = x
		}
	}
	both := func(fs ...func(*config.File)) func(*config.File) {
		return func(f *config.File) {
			for _, c := range fs {
				c(f)
			}
		}
	}
	for _, tc := range []struct {
		rule, name string
		change     func(*config.File)
		label      string // "" where there is no such line
		want       string
	}{
		{"no rules", "policy", func(*config.File) {}, "ok", "0 rules"},
		{"rules and examples are counted", "policy", func(f *config.File) {
			f.Policy.Rules = []policy.Rule{
				{Name: "a", Then: "ask", Examples: policy.Examples{Match: []policy.Example{{Command: "reboot"}, {Command: "ls"}}}}, {Name: "b", Then: "ask"},
			}
		}, "ok", "2 rules, 2 examples hold (1 rule without)"},
		{"a target that is there", "rule r", rule(policy.Match{Targets: []string{"db-*", "web-*"}}), "", ""},
		{"a target that is not there", "rule r", rule(policy.Match{Targets: []string{"db-*"}}), "warn", "no target is named like db-*"},
		{"the bot itself is a target", "rule r", rule(policy.Match{Targets: []string{"harness"}}), "", ""},
		{"an MCP server is a target", "rule r", both(rule(policy.Match{Targets: []string{"mcp:github"}}), func(f *config.File) { f.MCP = map[string]config.MCPConfig{"github": {}} }), "", ""},
		{"labels that are there", "rule r", rule(policy.Match{Labels: map[string]string{"env": "prod*"}}), "", ""},
		{"labels that are not there", "rule r", rule(policy.Match{Labels: map[string]string{"env": "staging"}}), "warn", "no target has the labels env=staging"},
		{"labels of another target", "rule r", rule(policy.Match{Targets: []string{"web-1"}, Labels: map[string]string{"env": "staging"}}), "warn", "no target is named like web-1 and has the labels"},
		{"a channel", "rule r", rule(policy.Match{Channels: []string{"slack:C1"}}), "", ""},
		{"a glob of channels", "rule r", rule(policy.Match{Channels: []string{"slack:*"}}), "", ""},
		{"every channel", "rule r", rule(policy.Match{Channels: []string{"*"}}), "", ""},
		{"a channel without its network", "rule r", rule(policy.Match{Channels: []string{"incidents", "#ops*"}}), "warn", "no channel is named like incidents and #ops*"},
		{"requesters of an empty group", "rule r", rule(policy.Match{Requesters: []string{"none"}}), "warn", "the groups none are empty"},

		{"two people", "votes on web-1", func(*config.File) {}, "ok", "people enough"},
		{"one person", "votes on web-1", on("one"), "warn", "where there is 1, and who asked does not count"},
		{"one person who may decide what they asked for", "votes on web-1", both(on("one"), func(f *config.File) { f.Policy.Approve.Requester = "always" }), "ok", "people enough"},
		{"one person who may break the glass", "votes on web-1", both(on("one"), func(f *config.File) { f.Policy.BreakGlass = []string{"one"} }), "ok", "people enough"},
		{"more votes than people", "votes on web-1", func(f *config.File) { f.Policy.Approve.Count = 3 }, "warn", "votes of 3 people of oncall, where there are 2, so it can never be approved"},
		{"people who come later", "votes on web-1", both(on("one"), func(f *config.File) {
			f.Policy.Approve.Escalate = []policy.Escalation{{After: time.Minute, Groups: []string{"oncall"}}}
		}), "ok", "people enough"},
		{"a user group, whose size is not known", "votes on web-1", on("team"), "ok", "people enough"},
		{"nobody at all, of which another line tells", "votes on web-1", on("none"), "", ""},

		{"a group that is named nowhere", "group idle", func(f *config.File) { f.Groups["idle"] = policy.Group{People: policy.IDs{"slack": {"U1"}}} }, "warn", "no target and no rule names it"},
		{"a group that lets people log in", "group idle", func(f *config.File) { f.Groups["idle"] = policy.Group{People: policy.IDs{"web": {"c"}}} }, "", ""},
		{"a group that a condition names", "group idle", both(func(f *config.File) { f.Groups["idle"] = policy.Group{People: policy.IDs{"slack": {"U1"}}} }, func(f *config.File) {
			f.Policy.Rules = []policy.Rule{{Name: "r", When: `"idle" in requester_groups`, Then: "ask"}}
		}), "", ""},

		{"mode balanced", "mode", func(*config.File) {}, "", ""},
		{"mode trusting", "mode", func(f *config.File) { f.Agent.Mode, f.Agent.Until = "trusting", now.Add(150*time.Minute) }, "warn", "trusting for another 2h31m, until 2026-01-31T14:30:00Z"},
		{"mode trusting that ended", "mode of slack:C1", func(f *config.File) {
			f.Channels = []config.ChannelConfig{{Platform: "slack", ID: "C1", Mode: "trusting", Until: now}}
		}, "warn", "was trusting until"},
	} {
		got := map[string]result{}
		for _, c := range policyChecks(base(tc.change), now) {
			got[c.name] = c.run(t.Context())
		}
		if r := got[tc.name]; r.label != tc.label || !strings.Contains(r.text, tc.want) {
			t.Errorf("%s: %+v of %+v", tc.rule, r, got)
		}
	}
}

func TestDoctorLooksAtTargetsSideBySideAndTellsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, alive bytes.Buffer
		d := &doctor{report: report{out: &out}, alive: &lockedWriter{w: &alive}}
		var lists [][]check
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			lists = append(lists, []check{
				{name: name + "1", run: func(ctx context.Context) result {
					if name == "j" {
						return fine("at once")
					}
					<-ctx.Done()
					return fails("no answer").withFix("look")
				}},
				{name: name + "2", run: func(context.Context) result { return result{} }},
				{name: name + "3", run: func(context.Context) result { return fine("last") }},
			})
		}
		stuck := make(chan struct{})
		lists = append(lists, []check{
			{name: "k1", run: func(context.Context) result { <-stuck; return fine("late") }},
			{name: "k2", run: func(context.Context) result { t.Error("it ran beside one that had not ended"); return result{} }},
		})
		start := time.Now()
		if err := d.together(t.Context(), lists); err != nil {
			t.Fatal(err)
		}
		close(stuck)
		if took := time.Since(start); took != checkLimit+checkGrace {
			t.Errorf("it took %s", took)
		}
		var names []string
		for line := range strings.Lines(out.String()) {
			names = append(names, strings.TrimSuffix(strings.Fields(line)[1], ":"))
		}
		if got := strings.Join(names, " "); got != "a1 a3 b1 b3 c1 c3 d1 d3 e1 e3 f1 f3 g1 g3 h1 h3 i1 i3 j1 j3 k1 k2" {
			t.Errorf("%s\n%s", got, &out)
		}
		if !strings.Contains(out.String(), "skip k2: k1 has not ended") {
			t.Errorf("%s", &out)
		}
	})
}

func TestDoctorOneTargetHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &doctor{report: report{out: &out}, alive: &lockedWriter{w: &bytes.Buffer{}}}
		var list []check
		for range 12 {
			// The limit is no part of the target's, so that nothing begins at its very end.
			list = append(list, check{name: "x", limit: 12 * time.Second, run: func(ctx context.Context) result {
				<-ctx.Done()
				return fails("no answer").withFix("look")
			}})
		}
		start := time.Now()
		if err := d.together(t.Context(), [][]check{list}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != targetLimit || d.report.count["skip"] != 4 {
			t.Errorf("%s, %v", took, d.report.count)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		out.Reset()
		if err := d.together(ctx, [][]check{list}); !errors.Is(err, context.Canceled) || out.Len() > 0 {
			t.Errorf("after an interrupt: %v, %s", err, &out)
		}
	})
}

func TestDoctorAsJSON(t *testing.T) {
	var out bytes.Buffer
	d := &doctor{report: report{out: &out, asJSON: true, hide: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }, began: time.Now()}}
	d.report.add("a", fine("<well>\nand hunter2"), 1234567*time.Microsecond)
	d.report.add("b", warns("so").withFix("do"), 0)
	d.report.add("c", fails("bad").withFix("do not use hunter2"), 0)
	d.report.add("d", skips("why"), 0)
	err := d.verdict()
	if usage := (*config.Error)(nil); err == nil || errors.As(err, &usage) {
		t.Errorf("a failed check: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		`{"check":"a","result":"ok","text":"<well> and ***","seconds":1.234}`,
		`{"check":"b","result":"warn","text":"so","fix":"do","seconds":0}`,
		`{"check":"c","result":"fail","text":"bad","fix":"do not use ***","seconds":0}`,
		`{"check":"d","result":"skip","text":"why","seconds":0}`,
	}
	if len(lines) != 5 || !slices.Equal(lines[:4], want) {
		t.Errorf("%s", &out)
	}
	var sum totals
	if err := json.Unmarshal([]byte(lines[4]), &sum); err != nil || sum.Checks != 4 || sum.OK != 1 || sum.Warn != 1 || sum.Fail != 1 || sum.Skip != 1 || sum.Status != 1 {
		t.Errorf("%+v %v", sum, err)
	}
	d = &doctor{report: report{out: &out}, broken: true}
	d.print("configuration", fails("bad").withFix("do"))
	if usage := (*config.Error)(nil); !errors.As(d.verdict(), &usage) {
		t.Error("a configuration that cannot be used is an error of usage: exit status 2")
	}
	d = &doctor{report: report{out: brokenPipe{}}}
	d.print("x", fine("y"))
	if d.verdict() == nil {
		t.Error("a report that could not be written went unnoticed")
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// Colours are for terminals, and the words stay.
func TestLabelsAreColouredWhereTheyMayBe(t *testing.T) {
	for colour, want := range map[bool]string{false: "FAIL disk: it is full; make room\n", true: "\x1b[1;31mFAIL\x1b[0m disk: it is full; make room\n"} {
		var out bytes.Buffer
		r := report{out: &out, colour: colour}
		r.add("disk", fails("it is full").withFix("make room"), 0)
		if out.String() != want {
			t.Errorf("%q", out.String())
		}
	}
}

func TestDoctorPartsASentenceAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z ;()"]{0,40}`).Draw(t, "s")
		text, fix := splitFix(s)
		switch {
		case fix == "" && !strings.HasPrefix(s, text):
			t.Fatalf("%q became %q", s, text)
		case fix != "" && !strings.HasPrefix(s, text+"; "):
			t.Fatalf("%q became %q and %q", s, text, fix)
		case strings.Count(s, ";") == 0 && fix != "":
			t.Fatalf("%q has a fix %q", s, fix)
		}
	})
}

func TestDoctorReadsDF(t *testing.T) {
	for _, tc := range []struct {
		rule, text string
		want       volume
		ok         bool
	}{
		{"coreutils", "Filesystem     1024-blocks      Used Available Capacity Mounted on\n/dev/vda         263174212  49716080  45900000      53% /\n", volume{free: 45900000 << 10, size: 263174212 << 10}, true},
		{"busybox", "Filesystem           1024-blocks    Used Available Capacity Mounted on\noverlay              100 40 60  40% /tmp\n", volume{free: 60 << 10, size: 100 << 10}, true},
		{"a name with a space", "F 1024-blocks Used Available Capacity Mounted on\n//srv/my share 100 40 60 40% /mnt/my share\n", volume{free: 60 << 10, size: 100 << 10}, true},
		{"no percentage", "F 1024-blocks Used Available Capacity Mounted on\nnone 0 0 0 - /proc\n", volume{}, true},
		{"more used than there is for the account", "F 1024-blocks Used Available Capacity Mounted on\nx 100 101 -1 101% /\n", volume{size: 100 << 10}, true},
		{"nothing", "", volume{}, false},
		{"a message", "df: /tmp: No such file or directory\n", volume{}, false},
	} {
		if v, ok := freeSpace(tc.text); v != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v %t", tc.rule, v, ok)
		}
	}
}

func FuzzDoctorReadsDF(f *testing.F) {
	f.Add("/dev/vda 263174212 49716080 45900000 53% /\n")
	f.Add(" 999999999999999 0 999999999999999 - /")
	f.Fuzz(func(t *testing.T, s string) {
		if v, ok := freeSpace(s); !ok && v != (volume{}) {
			t.Errorf("%+v", v)
		}
	})
}

func TestTheDocumentsOfChecksAreThere(t *testing.T) {
	for check, page := range pages {
		if page == "configuration" { // made by the program
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "..", "docs", page+".md")); err != nil {
			t.Errorf("%s: %v", check, err)
		}
	}
	for check, want := range map[string]string{"web sign-in": "sign-in", "web address": "console-network", "target web-1": "targets", "model": "doctor"} {
		if got := pageOf(check); got != want {
			t.Errorf("%s: %s", check, got)
		}
	}
}
