package doctor

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/config"
	"countersign/config/storage"
	"countersign/test/needstest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/internal/redact"
	"countersign/store/bolt"
	"countersign/targets/container/enginetest"
	"countersign/targets/ssh/sshtest"
	"countersign/tools/mcp"
)

// examined runs the doctor's checks of targets and returns its lines.
func examined(t *testing.T, e config.Env, targets map[string]config.TargetConfig) string {
	t.Helper()
	var out, alive bytes.Buffer
	d := &doctor{report: report{out: &out, hide: redact.New("hunter2hunter2").Redact}, alive: &lockedWriter{w: &alive}}
	if err := d.targets(t.Context(), e, config.File{Targets: targets}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func says(t *testing.T, out string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("nothing says %q:\n%s", w, out)
		}
	}
}

func TestDoctorOnRealSSHHosts(t *testing.T) {
	whole, plain := sshtest.Start(t, sshtest.Options{Shell: "bash"}), sshtest.Start(t, sshtest.Options{NoSFTP: true})
	of := func(s *sshtest.Server) config.TargetConfig {
		return config.TargetConfig{Kind: "ssh", Host: s.Host, Port: s.Port, User: s.User, Identities: []string{s.KeyFile}, KnownHosts: []string{s.KnownHosts}}
	}
	off := false
	unknown, stranger, closed := of(plain), of(plain), of(plain)
	unknown.KnownHosts = []string{filepath.Join(t.TempDir(), "none")}
	key := filepath.Join(t.TempDir(), "key")
	sshtest.WriteKey(t, key, "")
	stranger.Identities, stranger.Tmux = []string{key}, &off
	closed.Port = 1
	asks := unknown
	asks.HostKey = "ask"
	without := of(plain)
	without.Tmux = &off
	narrow := sshtest.Start(t, sshtest.Options{Shell: "bash", MaxSessions: 1})
	out := examined(t, config.Env{DataDir: t.TempDir()}, map[string]config.TargetConfig{
		"g-narrow": of(narrow), "a-whole": of(whole), "b-plain": without, "c-unknown": unknown, "d-stranger": stranger, "e-closed": closed, "f-asks": asks,
	})
	says(t, out,
		"ok   target a-whole: commands run as "+whole.User+" on ssh:a-whole#SHA256:", "ok   shell of a-whole: sh works, bash ",
		"ok   files of a-whole: a file was written and read by SFTP and removed in ", "ok   clock of a-whole: ", " of a-whole: ",
		"warn files of b-plain: ", "; add to its sshd_config: Subsystem sftp internal-sftp",
		"skip terminals of b-plain: they are switched off",
		"FAIL target c-unknown: the host 127.0.0.1", "isn't known yet: its key is SHA256:", "; compare that with the host's own, and add to a known_hosts file: [127.0.0.1]:",
		"skip shell of c-unknown: ",
		"FAIL target d-stranger: ", "; add one of the public keys to the account's authorized_keys",
		"FAIL target e-closed: 127.0.0.1:1 refuses connections (dial tcp", "); check the port and that sshd runs there\n",
		"FAIL terminals of g-narrow: its sshd allows one session on a connection (MaxSessions)", "; set MaxSessions to 10 in its sshd_config",
		"FAIL target f-asks: ", "; compare that with the host's own, ask the bot in the console to trust f-asks, and approve the card",
	)
	if strings.Contains(out, "clock of c-unknown") {
		t.Errorf("a target that was not reached has more than one line:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FAIL") && !strings.Contains(line, "; ") {
			t.Errorf("a failure without a fix: %s", line)
		}
	}
	u, err := user.Lookup(whole.User)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob("/tmp/tmux-" + u.Uid + "/countersign-doctor-*"); err != nil || len(left) > 0 {
		t.Errorf("sockets were left behind: %v %v", left, err)
	}
	if left, err := filepath.Glob("/tmp/countersign-" + whole.User + "-doctor-*"); err != nil || len(left) > 0 {
		t.Errorf("shell files were left behind: %v %v", left, err)
	}
}

func TestDoctorOnRealContainers(t *testing.T) {
	needstest.Long(t)
	e := enginetest.Podman(t)
	big, small := e.Run(t, enginetest.Debian), e.Run(t, enginetest.Tiny)
	of := func(name string) config.TargetConfig {
		return config.TargetConfig{Kind: "container", Container: name, Engine: e.Host}
	}
	out := examined(t, config.Env{DataDir: t.TempDir(), Path: os.Getenv("PATH")}, map[string]config.TargetConfig{"big": of(big), "small": of(small), "gone": of("no-such-container")})
	says(t, out,
		"ok   target big: commands run as root on container:big#", "ok   engine of big: ", " at "+e.Host, "ok   shell of big: sh works, bash ",
		"ok   terminals of big: tmux ", "ok   files of big: a file was written, read and removed in /tmp", "ok   clock of big: within 2s",
		"warn shell of small: sh works, and there is no bash", "warn terminals of small: tmux is not installed", "ok   files of small: ",
		"FAIL target gone: ",
	)
}

func TestDoctorComparesAnMCPServerWithWhatWasAcknowledged(t *testing.T) {
	say := "One."
	serve := func() *sdk.Server {
		s := sdk.NewServer(&sdk.Implementation{Name: "web", Version: "1"}, nil)
		sdk.AddTool(s, &sdk.Tool{Name: "x", Description: say}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			t.Error("a tool was called")
			return nil, nil, nil
		})
		return s
	}
	srv := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return serve() }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	server := mcp.Server{URL: srv.URL, Loopback: true, Allow: []string{"x"}}
	e := config.Env{DataDir: t.TempDir()}
	if r := (&doctor{}).served(t.Context(), e, "srv", server); r.label != "ok" || !strings.Contains(r.text, "it offers 1 tool") {
		t.Errorf("a new one: %+v", r)
	}
	// The bot sees it once, then it changes.
	db, err := bolt.Open(storage.Path(e), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := mcp.New(mcp.Config{Servers: map[string]mcp.Server{"srv": server}, DB: db, DataDir: e.DataDir, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if r := (&doctor{}).served(t.Context(), e, "srv", server); r.label != "ok" || !strings.Contains(r.text, "none changed") {
		t.Errorf("as it was acknowledged: %+v", r)
	}
	say = "Another."
	for range 2 { // looking does not acknowledge
		if r := (&doctor{}).served(t.Context(), e, "srv", server); r.label != "warn" || !strings.Contains(r.text, "changed since it was acknowledged") && !strings.Contains(r.fix, "propose ") {
			t.Errorf("changed: %+v", r)
		}
	}
	srv.CloseClientConnections()
	srv.Close()
	if r := (&doctor{}).served(t.Context(), config.Env{DataDir: t.TempDir()}, "srv", server); r.label != "FAIL" || r.fix == "" {
		t.Errorf("down: %+v", r)
	}
}

func TestDoctorLooksForTheCollectorOfTraces(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"} {
		t.Setenv(name, "")
	}
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	for _, tc := range []struct{ rule, endpoint, label, text, fix string }{
		{"none", "", "skip", "is not set", ""},
		{"one that answers", srv.URL, "ok", "answers at 127.0.0.1", ""},
		{"one that does not", "http://127.0.0.1:1", "warn", "does not answer", "start it"},
		{"no address", "collector:4318", "FAIL", "is not an http or https address", "write it like http://collector:4318"},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tc.endpoint)
		if r := traced(t.Context()); r.label != tc.label || !strings.Contains(r.text, tc.text) || !strings.Contains(r.fix, tc.fix) {
			t.Errorf("%s: %+v", tc.rule, r)
		}
	}
}
