package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"countersign/test/needstest"
)

// TestACardReachesAFirefoxThatSubscribed goes the whole way with a real browser: Firefox subscribes
// at a push service by its own protocol, the bot sends there what is encrypted for it, and Firefox
// decrypts it and wakes the console's worker, which shows deed, place and risk. When the browser
// leaves, the service says so and the bot forgets it.
func TestACardReachesAFirefoxThatSubscribed(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	service := newMozilla(t)
	dir := t.TempDir()
	url := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{calls: []call{shell("touch " + filepath.Join(dir, "done"))}}
		}
		return turn{text: "done"}
	}).URL
	b := newBot(t, fmt.Sprintf(`
web: {push: local}
targets:
  local: {kind: local, dir: %s, tmux: false, approvers: [oncall], labels: {env: production}}
groups:
  oncall: {web: [ben]}
  team: {web: [ann]}
`, dir), url)
	if !b.start() {
		t.Fatal(b.log)
	}
	t.Cleanup(b.kill)

	fx := newFirefox(t, service.url)
	fx.open(b.link(t, "ben"))
	fx.until(`document.querySelector('#me-name')?.textContent === 'ben'`)
	fx.until(`(document.querySelector('#settings')?.click(), document.querySelector('#settings-box').open)`)
	fx.until(`(() => { const b = document.querySelector('#notify-here'); if (b.textContent.startsWith('Stop')) return true;
		if (!b.disabled && !b.classList.contains('busy') && !globalThis.asked) { globalThis.asked = true; b.click(); } return false; })()`)
	if got := fx.value(`(async () => (await (await navigator.serviceWorker.ready).pushManager.getSubscription()).endpoint)()`); !strings.HasPrefix(got, service.srv.URL) {
		t.Fatalf("Firefox subscribed at %q", got)
	}

	ann := b.login("ann")
	thread := ann.say(t, "please restart checkout")
	ann.card(t, thread, "approve:")
	fx.until(`(async () => { globalThis.told = (await (await navigator.serviceWorker.ready).getNotifications())[0]; return Boolean(globalThis.told); })()`)
	title, body := fx.value(`globalThis.told.title`), fx.value(`globalThis.told.body`)
	if title != "Touch done on local" || !strings.Contains(body, "production") || !strings.Contains(body, "risk") {
		t.Errorf("it shows %q, %q", title, body)
	}
	t.Logf("%s | %s", title, body)
	for _, raw := range service.sent() {
		if strings.Contains(raw, "touch") || strings.Contains(raw, "production") {
			t.Error("the push service can read the message")
		}
	}

	// Nothing was decided by it, and what it names is the card with its buttons.
	if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		t.Fatal("the command ran")
	}
	fx.until(`(document.querySelector('#settings-box').close(), navigator.serviceWorker.dispatchEvent(new MessageEvent('message', { data: { card: globalThis.told.data.card } })), document.activeElement.closest('[data-card]') !== null)`)
	fx.until(`(() => { const b = document.activeElement.closest('[data-card]').querySelector('button[data-style=approve]').getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; })()`)

	// A browser that has left is not sent anything again.
	fx.until(`(async () => { await (await (await navigator.serviceWorker.ready).pushManager.getSubscription())?.unsubscribe(); return true; })()`)
	before := len(service.sent())
	for n := range 2 {
		thread := ann.say(t, fmt.Sprint("and another one, ", n))
		ann.card(t, thread, "approve:")
		deadline := time.Now().Add(20 * time.Second)
		for n == 0 && service.refusals() == 0 && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	ben := b.login("ben")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var out struct{ Devices []json.RawMessage }
		if _, err := ben.do(http.MethodGet, "/api/notifications", nil, &out); err != nil {
			t.Fatal(err)
		}
		if len(out.Devices) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the bot still has %s", out.Devices)
		}
	}
	if got := len(service.sent()); got != before || service.refusals() != 1 {
		t.Errorf("%d messages and %d refusals after Firefox had left", got-before, service.refusals())
	}
}

// mozilla is a push service that speaks to browsers as Mozilla's does
// (https://mozilla-push-service.readthedocs.io/en/latest/design/).
type mozilla struct {
	t   *testing.T
	srv *httptest.Server
	url string // for browsers

	mu       sync.Mutex
	channels map[string]*websocket.Conn // by the path of the endpoint
	ids      map[string]string          // likewise
	bodies   []string
	refused  int
}

func newMozilla(t *testing.T) *mozilla {
	m := &mozilla{t: t, channels: map[string]*websocket.Conn{}, ids: map[string]string{}}
	m.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			m.deliver(w, r)
			return
		}
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"push-notification"}, InsecureSkipVerify: true})
		if err != nil {
			return
		}
		m.serve(c)
	}))
	t.Cleanup(m.srv.CloseClientConnections)
	m.url = "ws" + strings.TrimPrefix(m.srv.URL, "http") + "/"
	return m
}

// serve speaks with one browser.
func (m *mozilla) serve(c *websocket.Conn) {
	ctx := context.Background()
	for {
		_, raw, err := c.Read(ctx)
		if err != nil {
			return
		}
		var in struct {
			MessageType string `json:"messageType"`
			ChannelID   string `json:"channelID"`
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			return
		}
		var out map[string]any
		switch in.MessageType {
		case "hello":
			out = map[string]any{"messageType": "hello", "uaid": "0123456789abcdef0123456789abcdef", "status": 200, "use_webpush": true, "broadcasts": map[string]string{}}
		case "register":
			path := "/wpush/v2/" + in.ChannelID
			m.mu.Lock()
			m.channels[path], m.ids[path] = c, in.ChannelID
			m.mu.Unlock()
			out = map[string]any{"messageType": "register", "channelID": in.ChannelID, "status": 200, "pushEndpoint": m.srv.URL + path}
		case "unregister":
			m.mu.Lock()
			delete(m.channels, "/wpush/v2/"+in.ChannelID)
			m.mu.Unlock()
			out = map[string]any{"messageType": "unregister", "channelID": in.ChannelID, "status": 200}
		default: // ack, ping, broadcast_subscribe
			continue
		}
		raw, _ = json.Marshal(out)
		if err := c.Write(ctx, websocket.MessageText, raw); err != nil {
			return
		}
	}
}

// deliver hands a message of the bot to the browser (RFC 8030).
func (m *mozilla) deliver(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 8192))
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.channels[r.URL.Path]
	switch {
	case c == nil:
		m.refused++
		w.WriteHeader(http.StatusGone)
		return
	case r.Header.Get("TTL") == "" || r.Header.Get("Content-Encoding") != "aes128gcm" || !strings.HasPrefix(r.Header.Get("Authorization"), "vapid t=") || len(body) > 4096:
		m.t.Errorf("a message that Mozilla's service refuses: %v, %d bytes", r.Header, len(body))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	m.bodies = append(m.bodies, string(body))
	raw, _ := json.Marshal(map[string]any{"messageType": "notification", "channelID": m.ids[r.URL.Path], "version": fmt.Sprint("v", len(m.bodies)), "ttl": 60,
		"data": base64.RawURLEncoding.EncodeToString(body), "headers": map[string]string{"encoding": "aes128gcm"}})
	if err := c.Write(context.Background(), websocket.MessageText, raw); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (m *mozilla) sent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.bodies...)
}

func (m *mozilla) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

// firefox is a browser that is driven by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/).
type firefox struct {
	t    *testing.T
	c    *websocket.Conn
	page string
	last int
}

// newFirefox starts one whose push service is at the address.
func newFirefox(t *testing.T, push string) *firefox {
	t.Helper()
	program := ""
	for _, name := range []string{"firefox-esr", "firefox"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		needstest.Missing(t, "a browser's own push subscription is not tested: apt-get install firefox-esr")
	}
	profile := t.TempDir()
	var prefs strings.Builder
	for name, value := range map[string]any{
		"dom.push.serverURL": push, "dom.push.testing.allowInsecureServerURL": true, "dom.push.connection.enabled": true,
		"permissions.default.desktop-notification": 1, "alerts.useSystemBackend": false,
		"app.update.disabledForTesting": true, "datareporting.policy.dataSubmissionEnabled": false, "toolkit.telemetry.enabled": false,
		"network.captive-portal-service.enabled": false, "network.connectivity-service.enabled": false,
		"browser.shell.checkDefaultBrowser": false, "services.settings.server": "data:,", "extensions.systemAddon.update.enabled": false,
	} {
		v, _ := json.Marshal(value)
		fmt.Fprintf(&prefs, "user_pref(%q, %s);\n", name, v)
	}
	if err := os.WriteFile(filepath.Join(profile, "user.js"), []byte(prefs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+profile, "MOZ_DISABLE_CONTENT_SANDBOX=1")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			if _, at, ok := strings.Cut(lines.Text(), "WebDriver BiDi listening on "); ok {
				address <- strings.TrimSpace(at)
			}
		}
		close(address)
	}()
	at := ""
	select {
	case at = <-address:
	case <-time.After(time.Minute):
	}
	if at == "" {
		t.Fatal("Firefox does not begin")
	}
	c, _, err := websocket.Dial(t.Context(), at+"/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 24)
	f := &firefox{t: t, c: c}
	f.call("session.new", map[string]any{"capabilities": map[string]any{}}, nil)
	var tree struct{ Contexts []struct{ Context string } }
	f.call("browsingContext.getTree", map[string]any{}, &tree)
	if len(tree.Contexts) == 0 {
		t.Fatal("Firefox has no page")
	}
	f.page = tree.Contexts[0].Context
	return f
}

func (f *firefox) call(method string, params, result any) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	f.last++
	raw, _ := json.Marshal(map[string]any{"id": f.last, "method": method, "params": params})
	if err := f.c.Write(ctx, websocket.MessageText, raw); err != nil {
		f.t.Fatal(err)
	}
	for {
		_, raw, err := f.c.Read(ctx)
		if err != nil {
			f.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID      int             `json:"id"`
			Type    string          `json:"type"`
			Message string          `json:"message"`
			Result  json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			f.t.Fatal(err)
		}
		switch {
		case answer.ID != f.last: // an event
			continue
		case answer.Type == "error":
			f.t.Fatalf("%s: %s", method, answer.Message)
		case result != nil:
			if err := json.Unmarshal(answer.Result, result); err != nil {
				f.t.Fatal(err)
			}
		}
		return
	}
}

func (f *firefox) open(url string) {
	f.t.Helper()
	f.call("browsingContext.navigate", map[string]any{"context": f.page, "url": url, "wait": "complete"}, nil)
}

// value is what an expression is, as text.
func (f *firefox) value(expression string) string {
	f.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	f.call("script.evaluate", map[string]any{"expression": expression, "target": map[string]string{"context": f.page}, "awaitPromise": true, "userActivation": true}, &out)
	if out.ExceptionDetails != nil {
		return out.ExceptionDetails.Text
	}
	return fmt.Sprint(out.Result.Value)
}

func (f *firefox) until(condition string) {
	f.t.Helper()
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = f.value(condition); got == "true" {
			return
		}
	}
	f.t.Fatalf("%s: %s\n%s", condition, got, f.value("document.body.innerText"))
}
