package machines

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	xssh "golang.org/x/crypto/ssh"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/config"
	"countersign/store"
	"countersign/store/mem"
	"countersign/targets/rehearsal"
	"countersign/targets/session"
	"countersign/tools"
	"countersign/tools/impact"
)

// peers are replicas that share a store or not.
type peers struct{ shared, elsewhere bool }

func (p peers) Shared() bool { return p.shared }
func (peers) Host() string   { return "pod-1" }
func (p peers) Driver() string {
	if p.shared {
		return "bot/pod-1"
	}
	return ""
}
func (p peers) Owns(store.Tx, string) bool           { return !p.elsewhere }
func (peers) Elsewhere(context.Context, string) bool { return false }
func (peers) RunJob(ctx context.Context, _ string, run func(context.Context) error) error {
	return run(ctx)
}

func options(t *testing.T, p peers) *Options {
	t.Helper()
	f, off := config.Defaults(), false
	local := f.Targets["local"]
	local.Tmux = &off
	f.Targets = map[string]config.TargetConfig{"local": local, "web-1": {Kind: "ssh", Host: "web-1.test", User: "ops", Identities: []string{"/nowhere"}, KnownHosts: []string{"/nowhere"}}}
	return &Options{
		Env: config.Env{DataDir: t.TempDir(), Instance: "ops"}, File: f, Log: slog.New(slog.DiscardHandler),
		DB: mem.Open(), Replicas: p, Redact: func(s string) string { return s }, Classify: risk.Judge,
		Reads: func(string, bool) approvals.Reads { return approvals.ReadsPlain },
	}
}

func TestReplicasShareOnlyTheMachinesThatTheyReach(t *testing.T) {
	for shared, want := range map[bool]map[string]string{
		true: {"local": "local@pod-1", "web-1": "web-1"}, false: {"local": "local", "web-1": "web-1"},
	} {
		s, err := NewSet(options(t, peers{shared: shared}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for name, place := range want {
			if got := s[name].place(); got != place {
				t.Errorf("what is on %s is filed under %s, want %s", name, got, place)
			}
		}
	}
}

func TestThisMachineIsOpenAtOnceAndOthersWhenTheyAreNeeded(t *testing.T) {
	s, err := NewSet(options(t, peers{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ConnectLocal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s["local"].State() == nil || s["web-1"].State() != nil {
		t.Errorf("open: local %v, web-1 %v", s["local"].State() != nil, s["web-1"].State() != nil)
	}
	all, err := s.Tools(t.Context(), "local")
	if err != nil || all["run_shell"] == nil || all["read_file"] == nil {
		t.Errorf("the tools of this machine: %d, %v", len(all), err)
	}
	if _, err := s.Tools(t.Context(), "nowhere"); !errors.Is(err, ErrNotOpen) {
		t.Errorf("a machine that is not there: %v", err)
	}
	if s.Terminals("local") || !s.Terminals("web-1") || s.NoTerminals() {
		t.Error("a machine that was not reached may have terminals, one without tmux has none")
	}
	if len(s.Books()) != 0 {
		t.Error("a machine without tmux has terminals")
	}
}

func TestAPlainRunIsNotedUntilItsOutcomeIsStored(t *testing.T) {
	s, err := NewSet(options(t, peers{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := s["web-1"] // its host notes how commands end
	j := plainJournal{m}
	noted := func() bool {
		t.Helper()
		_, ok, err := j.load(t.Context(), "web:1", "c1")
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	settle := func(unknown bool) {
		t.Helper()
		if err := m.opts.DB.Update(t.Context(), func(tx store.Tx) error {
			s.Settle(tx, "web:1", "c1", approvals.Action{Target: m.Target.ID()}, unknown)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, unknown := range []bool{true, false} {
		mark, err := j.Began(t.Context(), "web:1", "c1")
		if err != nil || mark == "" {
			t.Fatalf("%q %v", mark, err)
		}
		if list, err := j.unknown(t.Context()); err != nil || len(list) != 0 || !noted() {
			t.Errorf("before its outcome is stored: %+v %v", list, err)
		}
		settle(unknown)
		list, err := j.unknown(t.Context())
		if err != nil || noted() != unknown || unknown && (len(list) != 1 || list[0] != (session.Evidence{Thread: "web:1", Call: "c1"})) {
			t.Errorf("with an outcome stored (unknown %v): %+v %v", unknown, list, err)
		}
	}
	local := plainJournal{s["local"]}
	mark, err := local.Began(t.Context(), "web:1", "c2")
	if err != nil || mark == "" {
		t.Errorf("of this machine: %q %v", mark, err)
	}
	if got, at, ok, err := local.Noted(t.Context(), "web:1", "c2"); err != nil || !ok || got != mark || at.IsZero() {
		t.Errorf("of this machine: %q %v %v %v", got, at, ok, err)
	}
}

// Two targets may be one account of a host, for example one with terminals and one without.
func TestATargetLeavesTheRecordsOfAnotherOneOnTheSameAccountAlone(t *testing.T) {
	o := options(t, peers{})
	o.File.Targets["web-2"] = o.File.Targets["web-1"]
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mark, err := plainJournal{s["web-1"]}.Began(t.Context(), "web:1", "c1")
	if err != nil {
		t.Fatal(err)
	}
	for name, prunes := range map[string]bool{"web-1": true, "web-2": false} {
		if got := strings.HasPrefix(mark, plainJournal{s[name]}.prefix()); got != prunes {
			t.Errorf("%s prunes a record of web-1: %v", name, got)
		}
	}
}

func TestOnlyTheOwnerOfAThreadNotesARun(t *testing.T) {
	s, err := NewSet(options(t, peers{elsewhere: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := (plainJournal{s["web-1"]}).Began(t.Context(), "web:1", "c1"); !errors.Is(err, errTakenOver) {
		t.Errorf("%v", err)
	}
}

func TestAThreadSeesItsOwnRecordingsOnly(t *testing.T) {
	o := options(t, peers{})
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s["local"].recorder("web:1", "ops", "main", 80, 24)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	shelf := Recordings{DataDir: o.Env.DataDir, Targets: s.Names()}
	list, err := shelf.Of("web:1")
	if err != nil || len(list) != 1 || list[0].Session != "local ops" {
		t.Fatalf("%+v %v", list, err)
	}
	f, err := shelf.Open("web:1", list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(f); err != nil || len(raw) == 0 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	_ = f.Close()
	for thread, id := range map[chat.ThreadID]string{"web:2": list[0].ID, "web:1": "web-1:" + list[0].ID} {
		if _, err := shelf.Open(thread, id); !errors.Is(err, chat.ErrGone) {
			t.Errorf("%s of %s: %v", id, thread, err)
		}
	}
	if list, err := shelf.Of("web:2"); err != nil || len(list) != 0 {
		t.Errorf("another thread sees %+v, %v", list, err)
	}
}

// Where a target names its users, a look at a place behind it is theirs, also when somebody else presses Undo.
func TestALookForUndoReachesWhatTheRequesterMay(t *testing.T) {
	o := options(t, peers{})
	var asked []string
	o.MayReach = func(_ chat.ThreadID, by chat.User, groups []string, _ risk.Hop) bool {
		asked = append(asked, string(by.ID)+" "+strings.Join(groups, ","))
		return false
	}
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ConnectLocal(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := keptWay{Thread: "web:1", By: chat.User{ID: "alice"}, Groups: []string{"oncall"}, Way: impact.Way{Look: "ssh web-9 uptime"}}
	if _, err := (ways{s["local"]}).look(t.Context(), k); !errors.Is(err, errUnproven) || len(asked) == 0 || asked[0] != "alice oncall" {
		t.Errorf("asked for %q: %v", asked, err)
	}
}

// What a look loads by itself comes from a directory in which only root can put anything, unless it names files.
func TestALookRunsWhereItsProofHolds(t *testing.T) {
	o := options(t, peers{})
	o.Unasked = func(chat.ThreadID, string) error { return nil }
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ConnectLocal(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := s["local"].looker(asker{thread: "web:1"}, s["local"].State(), approvals.Action{Dir: dir})
	for command, want := range map[string]string{"readlink /proc/self/cwd": "/", "readlink /proc/self/cwd; ls": dir} {
		if out, code, err := l.Read(t.Context(), command); err != nil || code != 0 || strings.TrimSpace(out) != want {
			t.Errorf("%s: %q %d %v, want %s", command, out, code, err, want)
		}
	}
}

// What nobody approved isn't rehearsed where that is off or the requester's rules say so, and never with secrets.
func TestWhatIsNotRehearsed(t *testing.T) {
	o := options(t, peers{})
	var gated error
	o.Unasked = func(chat.ThreadID, string) error { return gated }
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ConnectLocal(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := s["local"]
	why := func(text string) string {
		l := m.looker(asker{thread: "web:1"}, m.State(), approvals.Action{User: m.State().Caps.User, Dir: "/", Bytes: []byte(text)})
		_, err := l.rehearse(t.Context())
		none, _ := errors.AsType[rehearsal.NoneError](err)
		return none.Why
	}
	for _, text := range []string{"cat /etc/shadow >&2; exit 3", "touch \"$(cat .env)\""} {
		if got := why(text); got != "it reads secrets" {
			t.Errorf("%s: %q", text, got)
		}
	}
	gated = errGated
	if got := why("touch /tmp/x"); got != errGated.Error() {
		t.Errorf("by the rules: %q", got)
	}
	gated, m.Config.Rehearse = nil, config.RehearseOff
	if got := why("touch /tmp/x"); got != errOff.Error() {
		t.Errorf("off: %q", got)
	}
}

// A preview says whether it is worth another try.
func TestAPreviewThatOnlyTheMomentWasAgainst(t *testing.T) {
	o := options(t, peers{})
	o.Unasked = func(chat.ThreadID, string) error { return nil }
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ConnectLocal(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := s["local"]
	r := approvals.Request{Thread: "web:1", Action: approvals.Action{Kind: approvals.KindShell, Target: m.Target.ID(), User: m.State().Caps.User, Dir: "/", Bytes: []byte("touch /tmp/x")}}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if p := s.Preview(late, r); !p.Retry || p.Text == "" {
		t.Errorf("no time: %+v", p)
	}
	m.Config.Rehearse = config.RehearseOff
	if p := s.Preview(t.Context(), r); p.Retry {
		t.Errorf("for good: %+v", p)
	}
}

// A host that turns connections away (MaxStartups, fail2ban) says nothing about a key.
func TestAHostThatEndsTheConnectionIsNotOpen(t *testing.T) {
	srv, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	go func() {
		for {
			c, err := srv.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := xssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t, peers{})
	web := o.File.Targets["web-1"]
	web.Host, web.Port, web.Identities, web.KnownHosts = "127.0.0.1", srv.Addr().(*net.TCPAddr).Port, []string{key}, []string{filepath.Join(t.TempDir(), "none")}
	o.File.Targets["web-1"] = web
	s, err := NewSet(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if users, err := s["web-1"].OpenedBy(t.Context()); len(users) > 0 || err == nil {
		t.Errorf("%q, %v", users, err)
	}
}

func TestACallThatNobodyCanTakeUpSaysWhy(t *testing.T) {
	for target, want := range map[string]string{
		"local:gone#1": "The bot was restarted, and gone is not configured any more.",
		"mcp:github":   "The bot was restarted while it ran.", "harness": "The bot was restarted while it ran.", "": "The bot was restarted while it ran.",
	} {
		res, err := Set{}.Resume(t.Context(), tools.Call{}, approvals.Action{Target: target}, nil)
		if err != nil || !res.Unknown || res.Why != want {
			t.Errorf("%s: %+v, %v", target, res, err)
		}
	}
}
