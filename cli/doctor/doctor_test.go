package doctor

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/config"

	"countersign/approvals/policy"
	"countersign/store/bolt"
)

func TestDoctorOnAStoreThatTheBotHolds(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "countersign.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r, _, running := checkOpens(dir); r.label != "ok" || !running || !strings.Contains(r.text, "running bot has it open (") {
		t.Errorf("a store that is open elsewhere: %+v, running %t", r, running)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if r, _, running := checkOpens(dir); r.label != "ok" || running {
		t.Errorf("a store that is free: %+v, running %t", r, running)
	}
	if err := os.WriteFile(path, []byte("not a database, and longer than nothing at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, _, running := checkOpens(dir); r.label != "FAIL" || running {
		t.Errorf("a damaged store: %+v, running %t", r, running)
	}
}

func TestDoctorMakesNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if r := writable(dir); r.label != "ok" || !strings.Contains(r.text, "first start") {
		t.Errorf("%+v", r)
	}
	left, err := os.ReadDir(filepath.Dir(filepath.Dir(dir)))
	if err != nil || len(left) != 0 {
		t.Errorf("the check left %v behind (%v)", left, err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if r := writable(open); r.label != "warn" || !strings.Contains(r.fix, "chmod 700") {
		t.Errorf("%+v", r)
	}
	file := filepath.Join(open, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(file, "data"), "/proc/nowhere"} {
		if r := writable(bad); r.label != "FAIL" || !strings.Contains(r.fix, "COUNTERSIGN_DATA_DIR") {
			t.Errorf("%s: %+v", bad, r)
		}
	}
}

func TestDoctorSaysWhoCanApprove(t *testing.T) {
	for _, tc := range []struct {
		rule  string
		env   config.Env
		file  config.File
		label string
		want  string
	}{
		{"no group", config.Env{}, config.File{Targets: map[string]config.TargetConfig{"x": {}}}, "warn", "targets.x.approvers"},
		{"an empty group", config.Env{}, config.File{Targets: map[string]config.TargetConfig{"x": {Approvers: []string{"g"}}}, Groups: map[string]policy.Group{"g": {}}}, "warn", "(g) are empty"},
		{"nobody on Slack", config.Env{SlackBotToken: "x"}, config.File{Targets: map[string]config.TargetConfig{"x": {Approvers: []string{"g"}}}, Groups: map[string]policy.Group{"g": {People: policy.IDs{"web": {"a"}}}}}, "warn", "from Slack"},
		{"somebody on Slack", config.Env{SlackBotToken: "x"}, config.File{Targets: map[string]config.TargetConfig{"x": {Approvers: []string{"g"}}}, Groups: map[string]policy.Group{"g": {Groups: policy.IDs{"slack": {"S1"}}}}}, "ok", "g"},
		{"somebody on the console", config.Env{}, config.File{Targets: map[string]config.TargetConfig{"x": {Approvers: []string{"g"}}}, Groups: map[string]policy.Group{"g": {People: policy.IDs{"web": {"a"}}}}}, "ok", "g"},
	} {
		if r := approversOf(tc.env, tc.file, "x"); r.label != tc.label || !strings.Contains(r.text+r.fix, tc.want) {
			t.Errorf("%s: %+v", tc.rule, r)
		}
	}
}

func TestDoctorLooksAtTheConsolesAddress(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.NotFound(w, r)
		}
	}))
	defer bot.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, tc := range []struct {
		rule, addr string
		running    bool
		label      string
	}{
		{"a free one", "127.0.0.1:0", false, "ok"},
		{"a taken one", taken.Addr().String(), false, "FAIL"},
		{"none at all", "nowhere", false, "FAIL"},
		{"the running bot's", bot.Listener.Addr().String(), true, "ok"},
		{"somebody else's while the bot runs", other.Listener.Addr().String(), true, "warn"},
		{"nobody's while the bot runs", "127.0.0.1:1", true, "warn"},
	} {
		if r := checkListen(t.Context(), config.Env{Listen: tc.addr}, tc.running); r.label != tc.label {
			t.Errorf("%s: %+v", tc.rule, r)
		}
	}
}

func TestDoctorNeverWaitsInSilenceNorForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, alive bytes.Buffer
		d := &doctor{report: report{out: &out}, alive: &lockedWriter{w: &alive}}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		if err := d.do(ctx, check{name: "a slow one", run: func(ctx context.Context) result {
			<-ctx.Done()
			return fails("no answer\nin time")
		}}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != checkLimit {
			t.Errorf("it took %s", took)
		}
		stuck := make(chan struct{})
		if err := d.do(ctx, check{name: "a stuck one", run: func(context.Context) result {
			<-stuck
			return fine("late")
		}}); err != nil {
			t.Fatal(err)
		}
		close(stuck)
		if got := out.String(); !strings.Contains(got, "FAIL a slow one: no answer in time\n") || !strings.Contains(got, "FAIL a stuck one: it did not end within 10s") || strings.Contains(got, "late") {
			t.Errorf("%s", got)
		}
		if got := alive.String(); !strings.Contains(got, "a slow one: still waiting after 2s, at most 10s") || strings.Count(got, "a slow one") < 4 {
			t.Errorf("%s", got)
		}
		if d.report.count["FAIL"] != 2 || d.verdict() == nil {
			t.Errorf("%v", d.report.count)
		}
		cancel()
		out.Reset()
		if err := d.do(ctx, check{name: "stopped", run: func(ctx context.Context) result {
			<-ctx.Done()
			return fails("x")
		}}); err == nil || out.Len() != 0 {
			t.Errorf("after an interrupt: %v, %s", err, &out)
		}
	})
}
