package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// answers is a small stand-in for Slack's Web API: a JSON text for each method.
type answers struct {
	t   *testing.T
	srv *httptest.Server

	mu      sync.Mutex
	scopes  string
	methods map[string]string // method, or method?first argument value
	calls   []string          // method and form
	socket  func(ctx context.Context, c *websocket.Conn)
	card    chan struct{} // closed when a card is posted
}

func allScopes() string {
	var s []string
	for _, x := range Scopes() {
		if x.Need != Optional {
			s = append(s, x.Name)
		}
	}
	return strings.Join(s, ",")
}

func newAnswers(t *testing.T) *answers {
	t.Helper()
	a := &answers{t: t, scopes: allScopes(), card: make(chan struct{}), methods: map[string]string{
		"auth.test":                    `{"ok":true,"team":"Acme","team_id":"T1","user":"ops","user_id":"UBOT","bot_id":"BBOT"}`,
		"bots.info":                    `{"ok":true,"bot":{"id":"BBOT","app_id":"A1"}}`,
		"conversations.info?C1":        `{"ok":true,"channel":{"id":"C1","name":"ops","is_member":true}}`,
		"users.info?U1":                `{"ok":true,"user":{"id":"U1","name":"alice","team_id":"T1"}}`,
		"usergroups.users.list?S1":     `{"ok":true,"users":["U1","U2"]}`,
		"chat.postMessage?C1":          `{"ok":true,"channel":"C1","ts":"1700000000.000100"}`,
		"chat.update?C1":               `{"ok":true,"channel":"C1","ts":"1700000000.000100"}`,
		"conversations.history?CQUIET": `{"ok":true,"messages":[]}`,
	}, socket: func(ctx context.Context, c *websocket.Conn) {
		say(ctx, c, `{"type":"hello","num_connections":1,"connection_info":{"app_id":"A1"}}`)
		_, _, _ = c.Read(ctx)
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/", a.serve)
	mux.HandleFunc("/link", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		a.mu.Lock()
		f := a.socket
		a.mu.Unlock()
		f(r.Context(), c)
	})
	a.srv = httptest.NewServer(mux)
	t.Cleanup(a.srv.Close)
	a.methods["apps.connections.open"] = fmt.Sprintf(`{"ok":true,"url":"ws%s/link?ticket=very-secret"}`, strings.TrimPrefix(a.srv.URL, "http"))
	return a
}

func say(ctx context.Context, c *websocket.Conn, text string) {
	_ = c.Write(ctx, websocket.MessageText, []byte(text))
}

func (a *answers) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	method := strings.TrimPrefix(r.URL.Path, "/api/")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, method+" "+r.Form.Encode())
	if method == "chat.postMessage" {
		close(a.card)
	}
	w.Header().Set("X-OAuth-Scopes", a.scopes)
	for _, arg := range []string{"channel", "user", "usergroup"} {
		if body, ok := a.methods[method+"?"+r.Form.Get(arg)]; ok && r.Form.Get(arg) != "" {
			_, _ = w.Write([]byte(body))
			return
		}
	}
	body, ok := a.methods[method]
	if !ok {
		body = `{"ok":false,"error":"unknown_method"}`
	}
	_, _ = w.Write([]byte(body))
}

func (a *answers) called(method string) (n int, last string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if strings.HasPrefix(c, method+" ") {
			n, last = n+1, c
		}
	}
	return n, last
}

func (a *answers) config() DoctorConfig {
	return DoctorConfig{BotToken: "xoxb-1-secret", AppToken: "xapp-1-secret", APIURL: a.srv.URL + "/api", Channels: []string{"C1"}, Approvers: []string{"U1"}, Usergroups: []string{"S1"}}
}

// examine runs the checks and returns what each found, and all of it.
func examine(t *testing.T, cfg DoctorConfig) (map[string]Outcome, string) {
	t.Helper()
	out := map[string]Outcome{}
	var all strings.Builder
	for _, c := range Doctor(cfg) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		o := c.Run(ctx)
		cancel()
		if o.Text == "" || strings.ContainsAny(o.Text, "\n\r\x1b") || strings.Contains(o.Text, "-secret") {
			t.Errorf("%s is no sentence, or tells a secret: %q", c.Name, o.Text)
		}
		out[c.Name] = o
		fmt.Fprintf(&all, "%d %s: %s\n", o.Result, c.Name, o.Text)
	}
	return out, all.String()
}

func TestDoctorFindsNothingWrongInAGoodInstallation(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	out, all := examine(t, a.config())
	for name, o := range out {
		if o.Result != Passed && name != "slack events" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if o := out["slack events"]; o.Result != Skipped || !strings.Contains(o.Text, "app_mention") || !strings.Contains(o.Text, "https://api.slack.com/apps/A1/event-subscriptions") {
		t.Errorf("the events: %+v", o)
	}
	for _, want := range []string{"@ops in Acme (T1)", "all 13 that are needed", "hello after", "#ops", "@alice", "2 members"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing says %q:\n%s", want, all)
		}
	}
	if n, _ := a.called("chat.postMessage"); n != 0 {
		t.Error("a check without --live posted something")
	}
}

func TestDoctorNamesWhatIsWrongAndWhatToDo(t *testing.T) {
	t.Parallel()
	without := func(names ...string) string {
		s := "," + allScopes() + ","
		for _, n := range names {
			s = strings.ReplaceAll(s, ","+n+",", ",")
		}
		return strings.Trim(s, ",")
	}
	for _, tc := range []struct {
		rule   string
		change func(*answers, *DoctorConfig)
		check  string
		result Result
		want   []string
	}{
		{"swapped tokens", func(_ *answers, c *DoctorConfig) { c.BotToken, c.AppToken = c.AppToken, c.BotToken }, "slack tokens", Failed, []string{"swapped"}},
		{"an app token for the bot", func(_ *answers, c *DoctorConfig) { c.BotToken = "xapp-1" }, "slack tokens", Failed, []string{"SLACK_BOT_TOKEN holds an app-level token"}},
		{"a bot token for the app", func(_ *answers, c *DoctorConfig) { c.AppToken = "xoxb-1" }, "slack tokens", Failed, []string{"SLACK_APP_TOKEN holds a bot token"}},
		{"a person's token", func(_ *answers, c *DoctorConfig) { c.BotToken = "xoxp-1" }, "slack tokens", Failed, []string{"person's token"}},
		{"a token that expires", func(_ *answers, c *DoctorConfig) { c.BotToken = "xoxe.xoxb-1" }, "slack tokens", Failed, []string{"token rotation"}},
		{"a line break in a token", func(_ *answers, c *DoctorConfig) { c.BotToken += "\n" }, "slack tokens", Failed, []string{"line break"}},
		{"no app token", func(_ *answers, c *DoctorConfig) { c.AppToken = "" }, "slack tokens", Failed, []string{"SLACK_APP_TOKEN is not set", "connections:write", "SLACK_SIGNING_SECRET"}},
		{"something else", func(_ *answers, c *DoctorConfig) { c.AppToken = "hello" }, "slack tokens", Failed, []string{"no app-level token"}},
		{"an address that is none", func(_ *answers, c *DoctorConfig) { c.APIURL = "slack.com/api" }, "slack tokens", Failed, []string{"SLACK_API_URL"}},

		{"an unknown token", func(a *answers, _ *DoctorConfig) { a.methods["auth.test"] = `{"ok":false,"error":"invalid_auth"}` }, "slack sign-in", Failed, []string{"SLACK_BOT_TOKEN", "copy it again"}},
		{"a revoked token", func(a *answers, _ *DoctorConfig) { a.methods["auth.test"] = `{"ok":false,"error":"token_revoked"}` }, "slack sign-in", Failed, []string{"install the app again"}},
		{"a person's token that looks like a bot's", func(a *answers, _ *DoctorConfig) { a.methods["auth.test"] = `{"ok":true,"user":"eve"}` }, "slack sign-in", Failed, []string{"@eve"}},
		{"an app of the organisation", func(a *answers, _ *DoctorConfig) {
			a.methods["auth.test"] = `{"ok":true,"team":"Org","team_id":"E0TEST001","enterprise_id":"E0TEST001","user":"ops","user_id":"UBOT","bot_id":"BBOT","is_enterprise_install":true}`
		}, "slack sign-in", Failed, []string{"@ops", "installed for the organisation, not for this workspace", "E0TEST001"}},
		{"an app that the workspace has not", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":false,"error":"team_access_not_granted"}`
		}, "slack approver U1", Failed, []string{"installed for the organisation, not for this workspace"}},
		{"another server", func(a *answers, _ *DoctorConfig) { a.methods["auth.test"] = `<html>` }, "slack sign-in", Failed, []string{"not one of Slack's"}},
		{"nobody there", func(_ *answers, c *DoctorConfig) { c.APIURL = "http://127.0.0.1:1/" }, "slack sign-in", Failed, []string{"cannot be reached", "HTTPS_PROXY"}},
		{"an unknown word", func(a *answers, _ *DoctorConfig) { a.methods["auth.test"] = `{"ok":false,"error":"ekm_access_denied"}` }, "slack sign-in", Failed, []string{"ekm_access_denied", "docs.slack.dev/reference/methods/auth.test"}},
		{"no sign-in, no more questions", func(a *answers, _ *DoctorConfig) { a.methods["auth.test"] = `{"ok":false,"error":"invalid_auth"}` }, "slack channel C1", Skipped, []string{"sign-in"}},

		{"one missing scope", func(a *answers, _ *DoctorConfig) { a.scopes = without("users:read") }, "slack scopes", Failed, []string{"lacks users:read (", "add it under OAuth & Permissions and reinstall"}},
		{"two missing scopes", func(a *answers, _ *DoctorConfig) { a.scopes = without("users:read", "commands") }, "slack scopes", Failed, []string{"commands (", "users:read (", "add them under"}},
		{"mentions only", func(a *answers, _ *DoctorConfig) { a.scopes = without("channels:history", "groups:history") }, "slack scopes", Noted, []string{"without channels:history and groups:history", "mention"}},
		{"too many scopes", func(a *answers, _ *DoctorConfig) { a.scopes += ",chat:write.public, admin" }, "slack scopes", Noted, []string{"chat:write.public, admin"}},
		{"optional scopes", func(a *answers, _ *DoctorConfig) { a.scopes += ",channels:read,reactions:write" }, "slack scopes", Passed, nil},
		{"scopes with spaces", func(a *answers, _ *DoctorConfig) { a.scopes = strings.ReplaceAll(a.scopes, ",", ", ") }, "slack scopes", Passed, nil},

		{"an app token without its scope", func(a *answers, _ *DoctorConfig) {
			a.methods["apps.connections.open"] = `{"ok":false,"error":"missing_scope","needed":"connections:write"}`
		}, "slack app token", Failed, []string{"SLACK_APP_TOKEN lacks connections:write"}},
		{"an unknown app token", func(a *answers, _ *DoctorConfig) {
			a.methods["apps.connections.open"] = `{"ok":false,"error":"invalid_auth"}`
		}, "slack app token", Failed, []string{"SLACK_APP_TOKEN", "App-Level Tokens"}},
		{"Socket Mode off", func(a *answers, _ *DoctorConfig) {
			a.socket = func(ctx context.Context, c *websocket.Conn) {
				say(ctx, c, `{"type":"disconnect","reason":"link_disabled"}`)
			}
		}, "slack socket", Failed, []string{"Socket Mode is off", "/apps/A1/socket-mode"}},
		{"tokens of two apps", func(a *answers, _ *DoctorConfig) { a.methods["bots.info"] = `{"ok":true,"bot":{"app_id":"A2"}}` }, "slack socket", Failed, []string{"two apps", "A1", "A2"}},
		{"another bot", func(a *answers, _ *DoctorConfig) {
			a.socket = func(ctx context.Context, c *websocket.Conn) { say(ctx, c, `{"type":"hello","num_connections":3}`) }
		}, "slack socket", Noted, []string{"2 other sockets"}},
		{"a socket that is none", func(a *answers, _ *DoctorConfig) {
			a.methods["apps.connections.open"] = strings.Replace(a.methods["apps.connections.open"], "/link", "/nowhere", 1)
		}, "slack socket", Failed, []string{"firewall"}},
		{"no socket at all", func(a *answers, _ *DoctorConfig) {
			a.methods["apps.connections.open"] = `{"ok":true,"url":"ws://127.0.0.1:1/?ticket=very-secret"}`
		}, "slack socket", Failed, []string{"firewall"}},
		{"the bot runs", func(_ *answers, c *DoctorConfig) { c.Running = true }, "slack socket", Skipped, []string{"running"}},
		{"Events over HTTP", func(_ *answers, c *DoctorConfig) { c.AppToken, c.SigningSecret = "", "x" }, "slack requests", Skipped, []string{"start the bot", "Verify"}},

		{"an unknown channel", func(a *answers, _ *DoctorConfig) {
			a.methods["conversations.info?C1"] = `{"ok":false,"error":"channel_not_found"}`
		}, "slack channel C1", Failed, []string{"/invite @ops"}},
		{"a channel without the bot", func(a *answers, _ *DoctorConfig) {
			a.methods["conversations.info?C1"] = `{"ok":true,"channel":{"id":"C1","name":"ops"}}`
		}, "slack channel C1", Failed, []string{"#ops", "/invite @ops"}},
		{"an archived channel", func(a *answers, _ *DoctorConfig) {
			a.methods["conversations.info?C1"] = `{"ok":true,"channel":{"id":"C1","name":"ops","is_member":true,"is_archived":true}}`
		}, "slack channel C1", Failed, []string{"archived"}},
		{"a shared channel", func(a *answers, _ *DoctorConfig) {
			a.methods["conversations.info?C1"] = `{"ok":true,"channel":{"id":"C1","name":"ops","is_member":true,"is_ext_shared":true}}`
		}, "slack channel C1", Noted, []string{"another organisation"}},
		{"no channel id", func(_ *answers, c *DoctorConfig) { c.Channels = []string{"#ops"} }, "slack channel #ops", Failed, []string{"no channel id"}},
		{"a channel that it may not ask for, by its history", func(a *answers, c *DoctorConfig) {
			c.Channels = []string{"CQUIET"}
			a.methods["conversations.info"] = `{"ok":false,"error":"missing_scope","needed":"channels:read"}`
		}, "slack channel CQUIET", Passed, []string{"in it"}},
		{"the same without the bot", func(a *answers, c *DoctorConfig) {
			c.Channels = []string{"C2"}
			a.methods["conversations.info"] = `{"ok":false,"error":"missing_scope","needed":"channels:read"}`
			a.methods["conversations.history"] = `{"ok":false,"error":"not_in_channel"}`
		}, "slack channel C2", Failed, []string{"/invite @ops"}},
		{"the same with mentions only", func(a *answers, c *DoctorConfig) {
			c.Channels = []string{"C2"}
			a.methods["conversations.info"] = `{"ok":false,"error":"missing_scope","needed":"channels:read"}`
			a.methods["conversations.history"] = `{"ok":false,"error":"missing_scope","needed":"channels:history"}`
		}, "slack channel C2", Skipped, []string{"channels:read", "mention @ops"}},

		{"an unknown person", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":false,"error":"user_not_found"}`
		}, "slack approver U1", Failed, []string{"no such person in Acme"}},
		{"a person who left", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":true,"user":{"name":"alice","deleted":true}}`
		}, "slack approver U1", Failed, []string{"deactivated"}},
		{"a bot", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":true,"user":{"name":"robot","is_bot":true}}`
		}, "slack approver U1", Failed, []string{"bots never approve"}},
		{"a guest", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":true,"user":{"name":"guest","is_restricted":true}}`
		}, "slack approver U1", Noted, []string{"guest"}},
		{"a stranger", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":true,"user":{"name":"x","team_id":"T2"}}`
		}, "slack approver U1", Noted, []string{"another organisation"}},
		{"a display name for an id", func(_ *answers, c *DoctorConfig) { c.Approvers = []string{"alice"} }, "slack approver alice", Failed, []string{"no member id"}},
		{"a name that moves the cursor", func(a *answers, _ *DoctorConfig) {
			a.methods["users.info?U1"] = `{"ok":true,"user":{"name":"a\u001b[2Jb\nc","team_id":"T1"}}`
		}, "slack approver U1", Passed, []string{"@a?[2Jb?c"}},

		{"an unknown group", func(a *answers, _ *DoctorConfig) {
			a.methods["usergroups.users.list?S1"] = `{"ok":false,"error":"no_such_subteam"}`
		}, "slack user group S1", Failed, []string{"no such user group"}},
		{"an empty group", func(a *answers, _ *DoctorConfig) { a.methods["usergroups.users.list?S1"] = `{"ok":true,"users":[]}` }, "slack user group S1", Failed, []string{"no members"}},
		{"a group that it may not see", func(a *answers, _ *DoctorConfig) {
			a.methods["usergroups.users.list?S1"] = `{"ok":false,"error":"missing_scope","needed":"usergroups:read"}`
		}, "slack user group S1", Failed, []string{"lacks usergroups:read", "reinstall"}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			a := newAnswers(t)
			cfg := a.config()
			tc.change(a, &cfg)
			out, all := examine(t, cfg)
			o, ok := out[tc.check]
			if !ok || o.Result != tc.result {
				t.Fatalf("%s ended with %+v, want %d\n%s", tc.check, o, tc.result, all)
			}
			for _, w := range tc.want {
				if !strings.Contains(o.Text, w) {
					t.Errorf("%q does not say %q", o.Text, w)
				}
			}
		})
	}
}

func TestDoctorEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	hang := make(chan struct{})
	a.socket = func(ctx context.Context, _ *websocket.Conn) {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	defer close(hang)
	d := newDoctor(a.config())
	if o := d.appToken(t.Context()); o.Result != Passed {
		t.Fatal(o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if o := d.socket(ctx); o.Result != Failed || !strings.Contains(o.Text, "no answer in time") {
		t.Errorf("%+v", o)
	}
	if o := d.signIn(ctx); o.Result != Failed || !strings.Contains(o.Text, "in time") {
		t.Errorf("%+v", o)
	}
}

func FuzzSocketFrame(f *testing.F) {
	f.Add([]byte(`{"type":"hello","num_connections":2,"connection_info":{"app_id":"A1"}}`))
	f.Add([]byte(`{"type":"interactive","envelope_id":"e","payload":{"type":"block_actions","user":{"id":"U1"},"actions":[{"action_id":"countersign_doctor","value":"n"}]}}`))
	f.Add([]byte(`{"type":"events_api","payload":{"event":{"type":"message","channel":"C1","ts":"1.2"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fr, err := parseFrame(raw)
		if err != nil {
			return
		}
		d := &doctor{}
		if o := d.judgeHello(fr); o.Text == "" || strings.ContainsAny(o.Text, "\n\x1b") {
			t.Errorf("%+v", o)
		}
		l := &live{d: d, nonce: "n", channel: "C1", ts: "1.2"}
		if by, ok := l.pressed(fr.Payload); ok && (by.ID == "" || !json.Valid(fr.Payload)) {
			t.Errorf("a press by nobody: %s", raw)
		}
		l.own(fr.Payload)
	})
}
