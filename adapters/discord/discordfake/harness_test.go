package discordfake

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// theChecker is compiled once: the description is large.
var theChecker = sync.OnceValues(FindChecker)

// checker is the official description, nil when it is not there.
func checker(t *testing.T) *Checker {
	t.Helper()
	c, err := theChecker()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stage is a server with a guild, a channel, people and a short deadline. What it answers is held against the description.
type stage struct {
	*Server
	t              *testing.T
	ctx            context.Context
	guild, ch      string
	ann, ben       string
	expectBadCalls bool
}

func play(t *testing.T, c Config) *stage {
	t.Helper()
	if c.AckTimeout == 0 {
		c.AckTimeout = 5 * time.Second
	}
	if c.IdentifyWindow == 0 {
		c.IdentifyWindow = -1
	}
	c.Checker = checker(t)
	p := &stage{Server: New(c), t: t}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	p.ctx = ctx
	t.Cleanup(func() {
		cancel()
		p.Close()
		for _, v := range p.Violations() {
			if !p.expectBadCalls {
				t.Error(v)
			}
		}
	})
	p.ann, p.ben = p.AddUser(User{Name: "ann"}), p.AddUser(User{Name: "ben"})
	p.guild = p.AddGuild(Guild{Name: "home"})
	p.AddMember(p.guild, p.ann)
	p.AddMember(p.guild, p.ben)
	p.ch = p.AddChannel(Channel{Guild: p.guild, Name: "ops"})
	return p
}

// val is decoded JSON with a way to look into it.
type val struct{ v any }

func (a val) at(path string) val {
	v := a.v
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			var i int
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(x) {
				return val{}
			}
			v = x[i]
		default:
			return val{}
		}
	}
	return val{v}
}

func (a val) str(path string) string { s, _ := a.at(path).v.(string); return s }

func (a val) int(path string) int { return number(a.at(path).v) }

func (a val) len() int { l, _ := a.v.([]any); return len(l) }

type answered struct {
	val
	status int
	header http.Header
	raw    []byte
}

func (a answered) code() int { return a.int("code") }

// do calls the API. A body is JSON text, a value, or a ready multipart body.
func (p *stage) do(method, path string, body any) answered {
	p.t.Helper()
	return p.as("Bot token", method, "/v10"+path, body)
}

type multi struct {
	ctype string
	data  []byte
}

func (p *stage) as(auth, method, path string, body any) answered {
	p.t.Helper()
	a, err := p.try(auth, method, path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *stage) try(auth, method, path string, body any) (answered, error) {
	var data []byte
	ctype := "application/json"
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	case multi:
		ctype, data = b.ctype, b.data
	default:
		data, _ = json.Marshal(b)
	}
	req, err := http.NewRequestWithContext(p.ctx, method, p.URL()+path, bytes.NewReader(data))
	if err != nil {
		return answered{}, err
	}
	if len(data) > 0 {
		req.Header.Set("Content-Type", ctype)
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	out := answered{status: resp.StatusCode, header: resp.Header}
	if out.raw, err = io.ReadAll(resp.Body); err != nil {
		return answered{}, err
	}
	_ = json.Unmarshal(out.raw, &out.v)
	return out, nil
}

func (p *stage) good(a answered) answered {
	p.t.Helper()
	if a.status >= 300 {
		p.t.Fatalf("%d %s", a.status, a.raw)
	}
	return a
}

func (p *stage) bad(a answered, status, code int) answered {
	p.t.Helper()
	if a.status != status || a.code() != code {
		p.t.Fatalf("got %d %s, want %d with code %d", a.status, a.raw, status, code)
	}
	return a
}

// post posts JSON into a channel.
func (p *stage) post(channel string, body any) answered {
	p.t.Helper()
	return p.do("POST", "/channels/"+channel+"/messages", body)
}

func (p *stage) form(payload string, files map[string]string) multi {
	p.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if payload != "" {
		part, _ := w.CreateFormField("payload_json")
		_, _ = part.Write([]byte(payload))
	}
	for i := range len(files) {
		for name, text := range files {
			if strings.HasPrefix(name, fmt.Sprint(i)) {
				part, _ := w.CreateFormFile(fmt.Sprintf("files[%d]", i), name)
				_, _ = part.Write([]byte(text))
			}
		}
	}
	_ = w.Close()
	return multi{w.FormDataContentType(), b.Bytes()}
}

// ev is a gateway payload.
type ev struct {
	Op int             `json:"op"`
	T  string          `json:"t"`
	S  int             `json:"s"`
	D  json.RawMessage `json:"d"`
}

func (e ev) val() val {
	var v any
	_ = json.Unmarshal(e.D, &v)
	return val{v}
}

// app is a bare gateway client that is independent of every library: it collects what comes and answers only when told to.
type app struct {
	t      *testing.T
	ws     *websocket.Conn
	events chan ev
	closed chan websocket.StatusCode
	zlib   int // compressed payloads
	mu     sync.Mutex
	id     string
	seq    int
}

const intents = IntentGuilds | IntentGuildMessages | IntentDirectMessages

func (p *stage) dial(query string) *app {
	p.t.Helper()
	return p.dialAt(p.gatewayURL() + query)
}

func (p *stage) dialAt(url string) *app {
	p.t.Helper()
	ws, _, err := websocket.Dial(p.ctx, url, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	ws.SetReadLimit(1 << 22)
	a := &app{t: p.t, ws: ws, events: make(chan ev, 1000), closed: make(chan websocket.StatusCode, 1)}
	ctx := p.ctx
	go func() {
		for {
			kind, data, err := ws.Read(ctx)
			if err != nil {
				a.closed <- websocket.CloseStatus(err)
				return
			}
			if kind == websocket.MessageBinary {
				z, err := zlib.NewReader(bytes.NewReader(data))
				if err != nil {
					continue
				}
				data, _ = io.ReadAll(z)
				a.mu.Lock()
				a.zlib++
				a.mu.Unlock()
			}
			var e ev
			if json.Unmarshal(data, &e) == nil {
				a.events <- e
			}
		}
	}()
	p.t.Cleanup(func() { _ = ws.CloseNow() })
	return a
}

func (a *app) send(op int, d any) {
	a.t.Helper()
	b, err := json.Marshal(map[string]any{"op": op, "d": d})
	if err != nil {
		a.t.Fatal(err)
	}
	a.raw(b)
}

func (a *app) raw(b []byte) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := a.ws.Write(ctx, websocket.MessageText, b); err != nil {
		a.t.Logf("sending: %v", err)
	}
}

func (a *app) next() ev {
	a.t.Helper()
	select {
	case e := <-a.events:
		if e.Op == opDispatch {
			a.seq = e.S
		}
		return e
	case <-time.After(10 * time.Second):
		a.t.Fatal("nothing came")
		return ev{}
	}
}

// want returns the next event of a name and drops what comes before it.
func (a *app) want(name string) val {
	a.t.Helper()
	for {
		if e := a.next(); e.T == name {
			return e.val()
		}
	}
}

func (a *app) wantOp(op int) ev {
	a.t.Helper()
	for {
		if e := a.next(); e.Op == op {
			return e
		}
	}
}

// quiet returns the names of the events that are there by the time the server answered a heartbeat: nothing that was dispatched
// before can come later.
func (a *app) quiet() []string {
	a.t.Helper()
	a.send(opHeartbeat, a.seq)
	var out []string
	for {
		e := a.next()
		if e.Op == opHeartbeatAck {
			return out
		}
		if e.Op == opDispatch {
			out = append(out, e.T)
		}
	}
}

func (a *app) code() int {
	a.t.Helper()
	select {
	case c := <-a.closed:
		return int(c)
	case <-time.After(10 * time.Second):
		a.t.Fatal("the connection stays open")
		return 0
	}
}

func identifyWith(change map[string]any) map[string]any {
	d := map[string]any{"token": "token", "intents": intents, "properties": map[string]any{"os": "linux", "browser": "test", "device": "test"}}
	maps.Copy(d, change)
	return d
}

// login connects, identifies and reads READY and the guilds.
func (p *stage) login(change map[string]any) *app {
	p.t.Helper()
	a := p.dial("/?v=10&encoding=json")
	a.wantOp(opHello)
	a.send(opIdentify, identifyWith(change))
	ready := a.want("READY")
	a.id = ready.str("session_id")
	for range ready.at("guilds").len() {
		if in, _ := identifyWith(change)["intents"].(int); in&IntentGuilds != 0 {
			a.want("GUILD_CREATE")
		}
	}
	return a
}

func (p *stage) resumeWith(a *app, seq int) *app {
	p.t.Helper()
	b := p.dialAt(p.resumeURL() + "/?v=10&encoding=json")
	b.wantOp(opHello)
	b.id, b.seq = a.id, seq
	b.send(opResume, map[string]any{"token": "token", "session_id": a.id, "seq": seq})
	return b
}

// bot answers interactions with what f returns, a callback body, until the test ends.
func (p *stage) bot(a *app, f func(val) any) {
	go func() {
		for {
			select {
			case e := <-a.events:
				if e.T == "INTERACTION_CREATE" {
					d := e.val()
					if body := f(d); body != nil {
						_, _ = p.try("", "POST", "/v10/interactions/"+d.str("id")+"/"+d.str("token")+"/callback", body)
					}
				}
			case <-p.ctx.Done():
				return
			}
		}
	}()
}

const card = `{"content":"Approve?","allowed_mentions":{"parse":[]},"components":[{"type":1,"components":[` +
	`{"type":2,"style":3,"custom_id":"yes","label":"Approve"},{"type":2,"style":4,"custom_id":"no","label":"Deny"},` +
	`{"type":2,"style":2,"custom_id":"off","label":"Gone","disabled":true}]}]}`
