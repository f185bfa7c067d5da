package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/needstest"
)

// canaries makes secrets, each different, and remembers where each was planted.
type canaries struct {
	rand  *rand.Rand
	where map[string]string // value -> where
}

// plant makes a secret of a prefix and n letters and digits.
func (c *canaries) plant(where, prefix string, n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	b := []byte(prefix)
	for i := range n {
		if i%6 == 3 {
			b = append(b, alphabet[52+c.rand.IntN(10)]) // a rule may want a digit
		} else {
			b = append(b, alphabet[c.rand.IntN(len(alphabet))])
		}
	}
	c.where[string(b)] = where
	return string(b)
}

// form is one way in which a secret is written.
type form struct{ name, text string }

// written are the ways in which a secret may be found again: as it is, encoded, and
// two thirds of it from either end.
func written(v string) []form {
	quote := func(s string) string {
		raw, _ := json.Marshal(s)
		return string(raw[1 : len(raw)-1])
	}
	out := []form{{"as it is", v}, {"in a URL", url.QueryEscape(v)}, {"in a path", url.PathEscape(v)}, {"in JSON", quote(v)}, {"in JSON in JSON", quote(quote(v))}, {"in hex", hex.EncodeToString([]byte(v))}}
	for i, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			s := enc.EncodeToString(append(make([]byte, shift), v...))
			out = append(out, form{fmt.Sprintf("in base64 %d, moved by %d", i, shift), s[(shift*8+5)/6 : (shift+len(v))*8/6]})
		}
	}
	third := len(v) / 3
	return append(out, form{"its beginning", v[:len(v)-third]}, form{"its end", v[third:]})
}

// leaks lists which secrets stand in a text.
func (c *canaries) leaks(text string) []string {
	var out []string
	for v, where := range c.where {
		for _, f := range written(v) {
			if i := strings.Index(text, f.text); i >= 0 {
				out = append(out, fmt.Sprintf("%s, %s, %d times: %.300q", where, f.name, strings.Count(text, f.text), text[max(0, i-120):min(len(text), i+len(f.text)+20)]))
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// slowModel is a scripted model that keeps what it was sent, and writes its replies
// a few letters at a time, slower than drafts are shown.
type slowModel struct {
	*httptest.Server
	mu   sync.Mutex
	sent bytes.Buffer
}

func (m *slowModel) journal() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent.String()
}

func newSlowModel(t *testing.T, refuse func(user string) (status int, why string), next func(results int, user string) turn) *slowModel {
	m := &slowModel{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var req struct {
			Messages []struct {
				Role    string `json:"role"`
				Content any    `json:"content"`
			} `json:"messages"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &req)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m.mu.Lock()
		m.sent.Write(raw)
		m.sent.WriteByte('\n')
		m.mu.Unlock()
		results, user := 0, ""
		for _, x := range req.Messages {
			switch x.Role {
			case "user":
				results, user = 0, fmt.Sprint(x.Content)
			case "tool":
				results++
			}
		}
		if status, why := refuse(user); status != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(why))
			return
		}
		tn := next(results, user)
		w.Header().Set("Content-Type", "text/event-stream")
		chunk := func(delta map[string]any, finish any) {
			b, _ := json.Marshal(map[string]any{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
				"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
			fmt.Fprintf(w, "data: %s\n\n", b)
			w.(http.Flusher).Flush()
		}
		chunk(map[string]any{"role": "assistant", "content": ""}, nil)
		for text := tn.text; text != ""; {
			n := min(len(text), 9)
			chunk(map[string]any{"content": text[:n]}, nil)
			if text = text[n:]; len(tn.text) > 60 {
				time.Sleep(210 * time.Millisecond) // a draft is shown five times a second: each state of this one is to be
			}
		}
		finish := "stop"
		for i, c := range tn.calls {
			finish = "tool_calls"
			chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": fmt.Sprintf("call%04d%d", results, i), "type": "function",
				"function": map[string]any{"name": c.name, "arguments": c.args}}}}, nil)
		}
		chunk(map[string]any{}, finish)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(m.Close)
	return m
}

// approvals lists the buttons of a message in Slack that approve.
func approvals(raw json.RawMessage) []string {
	var blocks []struct {
		Elements []struct {
			ActionID string `json:"action_id"`
			Text     struct {
				Text string `json:"text"`
			} `json:"text"`
		} `json:"elements"`
	}
	_ = json.Unmarshal(raw, &blocks) // not every block has such elements
	var out []string
	for _, b := range blocks {
		for _, e := range b.Elements {
			if e.Text.Text == "Approve" && e.ActionID != "" {
				out = append(out, e.ActionID)
			}
		}
	}
	return out
}

const canaryConfig = `
targets:
  local: {kind: local, dir: %s, approvers: [oncall]}
groups:
  oncall: {web: [alice, bob], slack: [UALICE, UBOB]}
`

// TestNoSecretLeavesTheBot plants secrets wherever a bot meets them, lets it work
// on the web console and in Slack, and looks for each secret, also encoded, in all
// that it says, sends and stores.
//
// Not planted are secrets in what a model proposes: a command is shown as it runs.
func TestNoSecretLeavesTheBot(t *testing.T) {
	needstest.Long(t)
	if _, err := exec.LookPath("tmux"); err != nil {
		const how = "panes need tmux: apt-get install tmux"
		if os.Getenv("CI") == "true" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &canaries{rand: rand.New(rand.NewPCG(seed, 1)), where: map[string]string{}}
	said := &canaries{rand: c.rand, where: map[string]string{}} // by people, who may read themselves

	// The bot's own.
	own := map[string]string{
		"OPENAI_API_KEY":       c.plant("the model's key", "own+", 36) + `/"&=`,
		"SLACK_BOT_TOKEN":      c.plant("Slack's bot token", "xoxb-", 40),
		"SLACK_APP_TOKEN":      c.plant("Slack's app token", "xapp-", 40),
		"SLACK_SIGNING_SECRET": c.plant("Slack's signing secret", "", 32),
		"TAVILY_API_KEY":       c.plant("the search's key", "tvly-", 32),
	}
	header := c.plant("the key in a header of the model", "", 32)

	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var forms strings.Builder
	for name, v := range own {
		quoted, _ := json.Marshal(map[string]string{"x": v})
		fmt.Fprintf(&forms, "%s is %s\n%s\n%s\n?q=%s\n%s\n", name, v, base64.StdEncoding.EncodeToString([]byte(v)), base64.URLEncoding.EncodeToString([]byte("user:"+v+"!")), url.QueryEscape(v), quoted)
	}
	fmt.Fprintf(&forms, "the header is %s\n", header)
	file("own.txt", forms.String())
	file("app.conf", fmt.Sprintf("listen: 8080\npassword: %s\nurl: postgres://app:%s@db.example.com/x\nsecret_key_base: %s\n",
		c.plant("a password in a file", "", 20), c.plant("a password in a URL", "", 20), c.plant("a secret in a file", "", 40)))
	file("secret.yaml", fmt.Sprintf("apiVersion: v1\ndata:\n  one: %s\nkind: Secret\nmetadata:\n  name: web\n", c.plant("a Secret of Kubernetes", "", 24)))
	file("key.txt", "# a key\n"+c.plant("a key in a file", "gh"+"p_", 36)+"\n")
	file("backup-"+c.plant("the name of a file", "gl"+"pat-", 20)+".tgz", "")
	var pem strings.Builder
	filler := &canaries{rand: c.rand, where: map[string]string{}}
	for i := range 110 { // longer than the piece of running output that is shown
		line := filler
		if i%20 == 0 {
			line = c
		}
		pem.WriteString(line.plant(fmt.Sprintf("line %d of a private key", i), "", 64) + "\n")
	}
	file("id.pem", "-----BEGIN PRIVATE KEY-----\n"+pem.String()+"-----END PRIVATE KEY-----\n")
	file("fail.sh", fmt.Sprintf("echo 'using token=%s'\necho 'Authorization: Bearer %s' >&2\necho 'error: cannot log in with password=%s' >&2\nls missing-%s\ncat id.pem\nfor i in 1 2 3 4 5 6 7 8 9; do echo -n '%s'; sleep 0.3; echo ' again'; done\nexit 3\n",
		c.plant("what a command prints", "", 30), c.plant("standard error", "", 30), c.plant("the text of an error", "", 24), c.plant("an error about a file", "gh"+"o_", 36), c.plant("what a command prints slowly", "gh"+"s_", 36)))
	file("pane.sh", fmt.Sprintf("printf 'key '; for s in 1 2; do printf '%%s' '%s'; sleep 0.3; printf '\\npassword: %%s\\n' '%s'; done; cat own.txt app.conf secret.yaml id.pem; exit 0\n",
		c.plant("the output of a pane", "gh"+"u_", 36), c.plant("a password in a pane", "", 20)))
	reply := fmt.Sprintf("I found the key %s in a file, and beside it\npassword: %s\nand that is all there is to say of it.",
		c.plant("the model's reply", "gh"+"r_", 36), c.plant("a password in the model's reply", "", 24))
	echo, _ := json.Marshal(map[string]any{"error": map[string]any{"message": "Incorrect API key provided: " + own["OPENAI_API_KEY"] + ", header " + header, "type": "invalid_request_error", "code": "invalid_api_key"}})

	steps := []call{
		quiet("cat own.txt"), quiet("cat app.conf secret.yaml key.txt"), quiet("ls -l"), quiet("cat key.txt missing >&2"),
		tool("read_file", map[string]any{"path": filepath.Join(work, "app.conf"), "why": "to look"}),
		shell("bash ./fail.sh"), shell("bash ./pane.sh"),
	}
	llm := newSlowModel(t, func(user string) (int, string) {
		switch {
		case strings.Contains(user, "break it"):
			return http.StatusUnauthorized, string(echo)
		case strings.Contains(user, "spoil it"):
			return http.StatusBadRequest, string(echo)
		}
		return 0, ""
	}, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "look around") && results < len(steps):
			return turn{text: "I look.", calls: steps[results : results+1]}
		case strings.Contains(user, "look around"):
			return turn{text: reply}
		}
		return turn{text: "All done."}
	})

	slack := slackfake.New(slackfake.Config{BotToken: own["SLACK_BOT_TOKEN"], AppToken: own["SLACK_APP_TOKEN"], Streaming: true})
	t.Cleanup(slack.Close)
	for _, u := range []string{"UALICE", "UBOB"} {
		slack.AddUser(slackfake.User{ID: u, Name: strings.ToLower(u[1:])})
	}
	slack.AddChannel(slackfake.Channel{ID: "COPS", Name: "cops", Members: []string{"UBOT", "UALICE", "UBOB"}})
	env := []string{"SLACK_API_URL=" + slack.URL(), "COUNTERSIGN_LOG_LEVEL=debug", "COUNTERSIGN_MODEL_HEADERS=X-Gateway-Key=" + header}
	for name, v := range own {
		env = append(env, name+"="+v)
	}
	b := newBot(t, fmt.Sprintf(canaryConfig, work), llm.URL, env...)
	t.Cleanup(b.endTerminals)
	w := &workspace{Server: slack, t: t, bot: b}
	w.start()
	s := &stage{t: t, b: b, work: work, alice: b.login("alice"), bob: b.login("bob")}

	// On the web console.
	n := 0
	say := func(text string) {
		t.Helper()
		n++
		path, out := "/api/threads", struct {
			Thread string `json:"thread"`
		}{}
		if s.thread != "" {
			path += "/" + s.thread + "/messages"
		}
		st, err := s.alice.do("POST", path, map[string]string{"id": fmt.Sprintf("s%d", n), "text": text}, &out)
		if err != nil || st >= 300 {
			t.Fatalf("say: %d %v", st, err)
		}
		if out.Thread != "" {
			s.thread = out.Thread
		}
	}
	sees := func(want string) {
		t.Helper()
		eventually(t, "the thread shows "+want, func() bool {
			return s.look() && slices.ContainsFunc(s.rows, func(r row) bool { return strings.Contains(r.Text, want) })
		}, func() string {
			var shown strings.Builder
			for _, r := range s.rows {
				fmt.Fprintf(&shown, "%s: %.300s\n", r.Key, r.Text)
			}
			return shown.String() + b.log.String()
		})
	}
	say("hello")
	sees("All done.")
	events := s.follow()
	say("look around; the password: " + said.plant("a person's message", "", 24) + " is for the database")
	eventually(t, "the turn ends", func() bool {
		if !s.look() {
			return false
		}
		for _, r := range s.rows {
			if r.Card == nil {
				continue
			}
			for _, x := range r.Card.Choose {
				if strings.HasPrefix(string(x.ID), "approve:") {
					_, _ = s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + string(x.ID), "button": string(x.ID)}, nil)
				}
			}
		}
		return slices.ContainsFunc(s.rows, func(r row) bool { return strings.Contains(r.Text, "that is all there is") })
	}, s.detail)
	say("break it")
	sees("rejects the key")
	say("spoil it")
	eventually(t, "the second refusal is told", func() bool {
		return s.look() && strings.Count(fmt.Sprint(s.rows), "Nothing in this thread is lost") > 1
	}, s.detail)
	say("recording")
	sees("What this thread's terminals showed")

	// In Slack.
	root := w.ask("UALICE", "COPS", "look around; the password: "+said.plant("a person's message in Slack", "", 24)+" is for the database")
	pressed := map[string]bool{}
	eventually(t, "the turn in Slack ends", func() bool {
		for _, m := range w.Messages("COPS", root) {
			for _, id := range approvals(m.Blocks) {
				if !pressed[id] {
					pressed[id] = true
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					_, _ = w.Press(ctx, "UBOB", "COPS", m.TS, id)
					cancel()
				}
			}
		}
		return strings.Contains(w.text("COPS", root), "that is all there is")
	}, func() string { return w.text("COPS", root) + b.log.String() })

	console, err := s.everything()
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	export, errs, code := b.run("", "audit", "export")
	if code != 0 {
		t.Fatalf("audit export: %s", errs)
	}
	var calls strings.Builder
	for _, call := range slack.Calls() {
		fmt.Fprintf(&calls, "%s %s %s\n", call.Method, call.Args, call.Body)
		for _, vs := range call.Args {
			calls.WriteString(strings.Join(vs, "\n") + "\n")
		}
	}
	sinks := map[string]string{
		"chat, web console": console, "chat, web console as it happened": events(), "chat, Slack": calls.String(),
		"model requests": llm.journal(), "audit export": export, "log": b.log.String(),
	}
	data := filepath.Join(b.dir, "data")
	err = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		name := "store"
		if strings.Contains(path, "recordings") {
			name = "recordings"
		}
		sinks[name] += "\n" + string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chat, web console", "chat, web console as it happened", "chat, Slack", "model requests", "audit export", "store", "recordings"} {
		if !strings.Contains(sinks[name], "look around") && !strings.Contains(sinks[name], "pane.sh") {
			t.Errorf("nothing came to: %s", name)
		}
	}
	for name, text := range sinks {
		t.Run(name, func(t *testing.T) {
			for _, l := range c.leaks(text) {
				t.Error(l)
			}
			// What people say stands where they said it: the console, which is their network,
			// keeps it, and so does the queue until the thread's worker has read it. It goes no
			// further.
			for _, l := range said.leaks(text) {
				switch name {
				case "chat, web console", "chat, web console as it happened", "store":
					t.Log("kept where it was said: " + l)
				default:
					t.Error(l)
				}
			}
		})
	}
}

// follow reads the events of the thread from now on; what it returns gives all that
// came.
func (s *stage) follow() func() string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.b.url+"/api/threads/"+s.thread+"/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := (&http.Client{Jar: s.alice.http.Jar}).Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("events: %v %+v", err, res)
	}
	var got bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&got, res.Body)
	}()
	s.t.Cleanup(cancel)
	return func() string {
		cancel()
		<-done
		_ = res.Body.Close()
		return got.String()
	}
}

// everything is all that the console answers about the thread, as it is sent.
func (s *stage) everything() (string, error) {
	res, err := s.alice.http.Get(s.b.url + "/api/threads/" + s.thread)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return string(raw), err
}
