package slackfake

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// patient is an AckTimeout for tests in which the app acknowledges, however busy the machine is.
const patient = 5 * time.Second

// fast are the times that tests use in the place of Slack's.
func fast(c Config) Config {
	if c.AckTimeout == 0 {
		c.AckTimeout = 80 * time.Millisecond
	}
	if c.RetryDelays == nil {
		c.RetryDelays = []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond}
	}
	return c
}

// world is a server with people, channels and a short deadline.
func world(t *testing.T, c Config) (*Server, context.Context) {
	t.Helper()
	s := New(fast(c))
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	s.AddUser(User{ID: "U1", Name: "ann"})
	s.AddUser(User{ID: "U2", Name: "ben"})
	s.AddChannel(Channel{ID: "C1", Name: "ops"})
	return s, ctx
}

// answer is a decoded answer of the Web API.
type answer map[string]any

func (a answer) code() string { s, _ := a["error"].(string); return s }

func (a answer) at(path string) any {
	var v any = map[string]any(a)
	for p := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func (a answer) str(path string) string { s, _ := a.at(path).(string); return s }

func send(t *testing.T, s *Server, method, ctype string, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+method, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", ctype)
	token := s.cfg.BotToken
	if method == "apps.connections.open" {
		token = s.cfg.AppToken
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out answer
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%s answered %q: %v", method, data, err)
	}
	return out
}

// form calls a method with form arguments: name, value, name, value.
func form(t *testing.T, s *Server, method string, kv ...string) answer {
	t.Helper()
	v := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		v.Set(kv[i], kv[i+1])
	}
	return send(t, s, method, "application/x-www-form-urlencoded", []byte(v.Encode()))
}

func inJSON(t *testing.T, s *Server, method string, v any) answer {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, s, method, "application/json; charset=utf-8", b)
}

func mustOK(t *testing.T, a answer) answer {
	t.Helper()
	if a["ok"] != true {
		t.Fatalf("the call failed: %v", a)
	}
	return a
}

func mustFail(t *testing.T, a answer, code string) {
	t.Helper()
	if a["ok"] != false || a.code() != code {
		t.Fatalf("got %v, want the error %s", a, code)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// app is a bare Socket Mode client that is independent of every library: it collects frames and acknowledges when it is told to.
type app struct {
	t      *testing.T
	conn   *websocket.Conn
	frames chan map[string]any
	gone   chan struct{}
}

// dial connects without acknowledging anything. The hello frame is the first in frames.
func dial(t *testing.T, s *Server) *app {
	t.Helper()
	a := mustOK(t, form(t, s, "apps.connections.open"))
	conn, _, err := websocket.Dial(t.Context(), a.str("url"), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 22)
	p := &app{t: t, conn: conn, frames: make(chan map[string]any, 100), gone: make(chan struct{})}
	ctx := t.Context()
	go func() {
		defer close(p.gone)
		for {
			_, data, err := conn.Read(ctx)
			if err != nil {
				return
			}
			var f map[string]any
			if json.Unmarshal(data, &f) == nil {
				p.frames <- f
			}
		}
	}()
	t.Cleanup(func() { _ = conn.CloseNow() })
	return p
}

func (p *app) next() map[string]any {
	p.t.Helper()
	select {
	case f := <-p.frames:
		return f
	case <-time.After(10 * time.Second):
		p.t.Fatal("no frame came")
		return nil
	}
}

func (p *app) ack(f map[string]any, payload any) {
	p.t.Helper()
	out := map[string]any{"envelope_id": f["envelope_id"]}
	if payload != nil {
		out["payload"] = payload
	}
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, []byte(jsonOf(p.t, out))); err != nil {
		p.t.Error(err)
	}
}

// serve acknowledges everything with what f returns, and hands out what came.
func (p *app) serve(f func(frame map[string]any) any) <-chan map[string]any {
	out := make(chan map[string]any, 100)
	go func() {
		for {
			select {
			case fr := <-p.frames:
				if fr["envelope_id"] != nil {
					var payload any
					if f != nil {
						payload = f(fr)
					}
					b, _ := json.Marshal(map[string]any{"envelope_id": fr["envelope_id"], "payload": payload})
					_ = p.conn.Write(context.Background(), websocket.MessageText, b)
				}
				out <- fr
			case <-p.gone:
				return
			}
		}
	}()
	return out
}

func pick(v any, path string) any { return answer(map[string]any{"x": v}).at("x." + path) }
