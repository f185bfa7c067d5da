package bot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/agent/llm"
	"countersign/approvals/policy"
	"countersign/bot"
	"countersign/config"
)

// house is a bot that runs in this process, and a browser.
type house struct {
	t      *testing.T
	bot    *bot.Bot
	base   string
	reload chan os.Signal
	stop   func() error
}

func settings(t *testing.T) (config.Env, config.File) {
	t.Helper()
	f, off := config.Defaults(), false
	local := f.Targets["local"]
	local.Tmux, local.Approvers = &off, []string{"oncall"}
	f.Targets = map[string]config.TargetConfig{"local": local}
	f.Groups = map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice", "bob"}}}}
	return config.Env{DataDir: filepath.Join(t.TempDir(), "data"), Instance: "ops", LogLevel: "error", LogFormat: "text", Listen: "127.0.0.1:0"}, f
}

func open(t *testing.T, e config.Env, f config.File, o bot.Options) *house {
	t.Helper()
	b, err := bot.New(t.Context(), e, f, slog.New(slog.DiscardHandler), o)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, bot: b, reload: make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- b.Run(ctx, bot.Serving{Ready: func(base string) { ready <- base }, Reload: h.reload})
	}()
	select {
	case h.base = <-ready:
	case err := <-ended:
		t.Fatalf("it did not begin: %v", err)
	}
	h.stop = func() error {
		cancel()
		err := <-ended
		b.Close()
		return err
	}
	return h
}

func (h *house) login(name string) (session *http.Cookie) {
	h.t.Helper()
	var res *http.Response
	h.eventually(func() bool {
		res, _ = h.call(http.MethodPost, "/api/login", map[string]string{"code": h.bot.LoginCode(name)}, nil)
		return len(res.Cookies()) == 1
	}, func() string { return name + " cannot sign in: " + res.Status })
	return res.Cookies()[0]
}

func (h *house) call(method, path string, body any, as *http.Cookie) (*http.Response, []byte) {
	h.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		h.t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(h.t.Context(), method, h.base+path, bytes.NewReader(raw))
	if err != nil {
		h.t.Fatal(err)
	}
	q.Header.Set("Origin", h.base)
	q.Header.Set("Content-Type", "application/json")
	if as != nil {
		q.AddCookie(as)
		if method == http.MethodPost {
			var me struct{ CSRF string }
			_, raw := h.call(http.MethodGet, "/api/me", nil, as)
			if err := json.Unmarshal(raw, &me); err != nil {
				h.t.Fatal(err)
			}
			q.Header.Set("X-CSRF-Token", me.CSRF)
		}
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res, out
}

// say begins a thread, or goes on in one.
func (h *house) say(id, thread, text string, as *http.Cookie) string {
	h.t.Helper()
	path := "/api/threads"
	if thread != "" {
		path += "/" + thread + "/messages"
	}
	res, raw := h.call(http.MethodPost, path, map[string]string{"id": id, "text": text}, as)
	var out struct{ Thread string }
	if err := json.Unmarshal(raw, &out); err != nil || res.StatusCode >= 300 {
		h.t.Fatalf("%s: %s %v", res.Status, raw, err)
	}
	return out.Thread
}

// reads waits until a thread has a text.
func (h *house) reads(thread, text string, as *http.Cookie) {
	h.t.Helper()
	var raw []byte
	h.eventually(func() bool {
		_, raw = h.call(http.MethodGet, "/api/threads/"+thread, nil, as)
		return bytes.Contains(raw, []byte(text))
	}, func() string { return fmt.Sprintf("the thread never says %q:\n%s", text, raw) })
}

func (h *house) eventually(is func() bool, otherwise func() string) {
	h.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatal(otherwise())
		}
	}
}

func TestABotRunsWithoutAProcess(t *testing.T) {
	e, f := settings(t)
	model := llm.NewScript(llm.Say("The disk is fine."), llm.Say("It still is."))
	final := make(chan struct{})
	o := bot.Options{Model: model, Chores: func(s bot.Site) bot.Chores {
		return bot.Chores{
			Jobs:     map[string]func(context.Context) error{"nothing": func(ctx context.Context) error { <-ctx.Done(); return nil }},
			Handlers: map[string]http.Handler{"/chore": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.Key[:0]) })},
			Final:    func(context.Context) { close(final) },
		}
	}}
	h := open(t, e, f, o)
	alice := h.login("alice")
	thread := h.say("1", "", "is the disk full?", alice)
	h.reads(thread, "The disk is fine.", alice)
	h.say("2", thread, "status", alice)
	h.say("3", thread, "use", alice)
	h.reads(thread, "Targets you can use here", alice)
	h.say("4", thread, "role", alice)
	h.reads(thread, "what it is for", alice)
	h.say("5", thread, "recording", alice)
	h.reads(thread, "This thread's terminals have no recording", alice)
	h.say("6", thread, "run", alice)
	h.reads(thread, "disk-full", alice)
	h.say("7", thread, "undo bsnkpk79ca", alice)
	h.reads(thread, "There is nothing to undo", alice)
	h.say("8", thread, "timeline", alice)
	h.reads(thread, "A draft post-mortem", alice)
	if res, _ := h.call(http.MethodGet, "/chore", nil, nil); res.StatusCode != http.StatusOK {
		t.Errorf("what is served beside the console: %s", res.Status)
	}
	if err := h.stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	select {
	case <-final:
	default:
		t.Error("the last chore was not done")
	}

	// Another one goes on in the same directory.
	h = open(t, e, f, bot.Options{Model: model})
	alice = h.login("alice")
	h.say("9", thread, "and now?", alice)
	h.reads(thread, "It still is.", alice)
	if err := h.stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if sent := model.Requests(); len(sent) != 2 || !slices.ContainsFunc(sent[1].Items, func(i llm.Item) bool { return strings.Contains(i.Text, "The disk is fine.") }) {
		t.Errorf("the model was asked %d times, or does not know what was said", len(sent))
	}
}

// Who is taken out of the configuration is out at the reload, and does not come back with
// the name.
func TestAReloadEndsTheSessionsOfWhoIsOut(t *testing.T) {
	e, _ := settings(t)
	e.Config = filepath.Join(t.TempDir(), "bot.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(e.Config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const targets = "targets: {local: {kind: local, tmux: false}}\n"
	write(targets + "groups: {oncall: {web: [alice, bob]}}")
	f, err := config.ReadFile(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, e, f, bot.Options{Model: llm.NewScript()})
	defer func() { _ = h.stop() }()
	alice, bob := h.login("alice"), h.login("bob")
	me := func(as *http.Cookie) int {
		res, _ := h.call(http.MethodGet, "/api/me", nil, as)
		return res.StatusCode
	}
	if me(alice) != http.StatusOK || me(bob) != http.StatusOK {
		t.Fatal("they are not in")
	}
	write(targets + "groups: {oncall: {web: [alice]}}")
	h.reload <- syscall.SIGHUP
	h.eventually(func() bool { return me(bob) == http.StatusUnauthorized }, func() string { return "bob is still in" })
	write(targets + "groups: {oncall: {web: [alice, bob], slack: [U1]}}")
	h.reload <- syscall.SIGHUP
	again := h.login("bob") // he may come in again, and the old session stays ended
	if me(alice) != http.StatusOK || me(bob) != http.StatusUnauthorized || me(again) != http.StatusOK {
		t.Errorf("alice %d, bob %d, bob again %d", me(alice), me(bob), me(again))
	}
}

// What cannot be is refused before anything is opened.
func TestAConfigurationThatCannotBeIsRefused(t *testing.T) {
	e, f := settings(t)
	f.Agent.Preset = "yolo"
	if _, err := bot.New(t.Context(), e, f, slog.New(slog.DiscardHandler), bot.Options{NoModel: true}); err == nil || !strings.Contains(err.Error(), "yolo") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(e.DataDir); err == nil {
		t.Error("the data directory was made all the same")
	}
}
