package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// asked is one request that the bot sent to the model.
type asked struct {
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name        string `json:"name"`
			Description string `json:"description"`
			Parameters  struct {
				Type       string                     `json:"type"`
				Properties map[string]json.RawMessage `json:"properties"`
				Required   []string                   `json:"required"`
			} `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

func (a asked) names() (out []string) {
	for _, t := range a.Tools {
		out = append(out, t.Function.Name)
	}
	return out
}

// results are what the model was told of its calls, in order.
func (a asked) results() (out []string) {
	for _, m := range a.Messages {
		if m.Role == "tool" {
			out = append(out, fmt.Sprint(m.Content))
		}
	}
	return out
}

// ledger is a scripted model whose requests can be read.
type ledger struct {
	t   testing.TB
	url string

	mu  sync.Mutex
	all []asked
	raw []map[string]json.RawMessage
}

// newLedger answers each message of a person that holds a word of scripts with its
// turns, one for each request, and says "the end" after them.
func newLedger(t testing.TB, scripts map[string][]turn) *ledger {
	t.Helper()
	l := &ledger{t: t}
	inner := model(t, func(results int, user string) turn {
		for word, turns := range scripts {
			if !strings.Contains(user, word) {
				continue
			}
			// A turn makes one call for each that it names, so the results tell which is next.
			for _, tn := range turns {
				if results < max(len(tn.calls), 1) {
					return tn
				}
				results -= len(tn.calls)
			}
		}
		return turn{text: "the end"}
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var a asked
		raw := map[string]json.RawMessage{}
		if json.Unmarshal(body, &a) == nil && json.Unmarshal(body, &raw) == nil {
			l.mu.Lock()
			l.all, l.raw = append(l.all, a), append(l.raw, raw)
			l.mu.Unlock()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	l.url = srv.URL
	return l
}

// last is the newest request.
func (l *ledger) last() (a asked, raw map[string]json.RawMessage) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		l.t.Fatal("the model was never asked")
	}
	return l.all[len(l.all)-1], l.raw[len(l.raw)-1]
}

// chatter is one person in one thread of one bot.
type chatter struct {
	t      *testing.T
	b      *bot
	p      *person
	thread string
	n      int
}

func newChatter(t *testing.T, config string, l *ledger) *chatter {
	t.Helper()
	c := &chatter{t: t, b: newBot(t, config, l.url)}
	t.Cleanup(c.b.endTerminals)
	c.start()
	return c
}

func (c *chatter) start() {
	c.t.Helper()
	if !c.b.start() {
		c.t.Fatalf("the bot does not start:\n%s", c.b.log)
	}
	c.p = c.b.login("alice")
}

// rows are the thread's messages.
func (c *chatter) rows() []row {
	m, err := c.p.messages(c.thread)
	if err != nil {
		c.t.Fatalf("the console does not answer: %v\n%s", err, c.b.log)
	}
	return m
}

func (c *chatter) ends() (n int) {
	for _, r := range c.rows() {
		if r.Text == "the end" {
			n++
		}
	}
	return n
}

func (c *chatter) detail() string { return fmt.Sprintf("%+v\n%s", c.rows(), c.b.log) }

// say says something and waits for the end of the turn; with approve it presses
// Approve on every card that comes.
func (c *chatter) say(text string, approve bool) {
	c.t.Helper()
	c.n++
	before := 0
	path := "/api/threads"
	if c.thread != "" {
		before = c.ends()
		path += "/" + c.thread + "/messages"
	}
	var out struct {
		Thread string `json:"thread"`
	}
	if st, err := c.p.do("POST", path, map[string]string{"id": fmt.Sprintf("m%d", c.n), "text": text}, &out); err != nil || st >= 300 {
		c.t.Fatalf("say: %d %v", st, err)
	}
	if out.Thread != "" {
		c.thread = out.Thread
	}
	pressed := map[string]bool{}
	eventually(c.t, "the end of the turn", func() bool {
		for _, r := range c.rows() {
			if r.Card == nil || !approve {
				continue
			}
			for _, b := range r.Card.Choose {
				if id := string(b.ID); strings.HasPrefix(id, "approve:") && !pressed[id] {
					pressed[id] = true
					c.n++
					if st, err := c.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": fmt.Sprintf("c%d", c.n), "button": id}, nil); err != nil || st != http.StatusOK {
						c.t.Fatalf("press: %d %v", st, err)
					}
				}
			}
		}
		return c.ends() > before
	}, c.detail)
}

// B-01, B-11, B-12, B-13: what the model is told of each tool. N-02: without a preset
// in the configuration it is that of the people on call.
// B-15, B-16.
func TestTheToolsOfARequest(t *testing.T) {
	t.Parallel()
	needTmux(t)
	want := []string{ // eight, and the four of tmux
		"capture-pane", "fetch_url", "read_file", "run_shell", "send-keys", "time", "web_search", "write_file",
		"tmux-create-pane", "tmux-create-session", "tmux-kill-pane", "tmux-kill-session",
	}
	all := turn{}
	for _, name := range want {
		all.calls = append(all.calls, call{name, `{}`})
	}
	l := newLedger(t, map[string][]turn{"call all": {all}})
	c := newChatter(t, "targets:\n  local: {kind: local, approvers: [oncall]}\ngroups:\n  oncall: {web: [alice]}\n", l)
	c.say("call all", false)
	req, _ := l.last()
	for i, got := range req.results() {
		// Each is reached: it answers, or says which of its arguments are missing.
		if !strings.HasPrefix(got, `{"harness_timestamp":{"source":"harness",`) && !strings.HasPrefix(got, "Tool error: validation error: missing required parameter") {
			t.Errorf("%s answers %q", want[i], got)
		}
	}
	if n := len(req.results()); n != len(want) {
		t.Errorf("%d of %d tools answered", n, len(want))
	}
	names := req.names()
	for _, w := range want {
		if !slices.Contains(names, w) {
			t.Errorf("%s is not offered: %q", w, names)
		}
	}
	for _, n := range names {
		// What goes on over many calls, or over what no longer fits, is offered beside them.
		if !slices.Contains(append(want, "propose_plan", "read_output", "search_history", "run_workflow"), n) {
			t.Errorf("%s is offered to people on call", n)
		}
	}
	about := map[string]string{}
	labels := []string{"risk", "mutation", "privesc", "why"}
	for _, tool := range req.Tools {
		f := tool.Function
		if tool.Type != "function" || f.Name == "" || f.Parameters.Type != "object" {
			t.Errorf("%+v", tool)
		}
		for i, heading := range []string{"When to use", "When NOT to use", "Disambiguation", "Example"} {
			_, section, ok := strings.Cut(f.Description, "# "+heading)
			_, section, _ = strings.Cut(section, "\n")
			section, _, _ = strings.Cut(section, "\n#")
			if !ok || strings.TrimSpace(section) == "" {
				t.Errorf("%s does not say %q", f.Name, heading)
			}
			if i == 2 {
				about[f.Name] = section
			}
		}
		if strings.HasPrefix(f.Name, "tmux-") || f.Name == "run_shell" || f.Name == "send-keys" {
			for _, label := range labels {
				if !slices.Contains(f.Parameters.Required, label) || f.Parameters.Properties[label] == nil {
					t.Errorf("%s does not require %s", f.Name, label)
				}
			}
		}
	}
	for name, rivals := range map[string][]string{
		"run_shell": {"capture-pane", "send-keys"}, "capture-pane": {"run_shell"}, "send-keys": {"run_shell"},
		"web_search": {"fetch_url"}, "fetch_url": {"web_search"},
	} {
		for _, rival := range rivals {
			if !strings.Contains(about[name], rival) {
				t.Errorf("B-12: %s does not say what %s is for:\n%s", name, rival, about[name])
			}
		}
	}
}

// B-09.
func TestARequestWithoutToolsHasNoKeyForThem(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	c := newChatter(t, "agent: {preset: none}"+plainConfig, l)
	c.say("hello", false)
	if _, raw := l.last(); raw["messages"] == nil || raw["tools"] != nil {
		t.Errorf("tools is %s", raw["tools"])
	}
}

// B-10: a tool that is not there. B-19: an error of either kind, and the next call
// works. B-01: what is offered is reached by its name.
// B-04, B-05, B-10, B-19.
func TestErrorsAreTextAndTheTurnGoesOn(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string][]turn{"try": {
		{calls: []call{{"nope", `{}`}}},
		{calls: []call{{"run_shell", `{bad`}}},
		{calls: []call{{"read_file", `{"path":"/no/such/file"}`}}},
		{calls: []call{{"time", `{}`}, {"read_file", `{"path":"/etc/hostname"}`}}},
	}})
	c := newChatter(t, strings.TrimLeft(plainConfig, "\n"), l)
	c.say("try", false)
	req, _ := l.last()
	got := req.results()
	if len(got) != 5 {
		t.Fatalf("%d results: %q", len(got), got)
	}
	for i, want := range []string{`Tool error: there is no tool "nope"; the tools are `, "Tool error: invalid arguments: ", "Tool error: ", `{"harness_timestamp":{"source":"harness","unix_millis":`, `{"harness_timestamp":{"source":"harness","unix_millis":`} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("result %d is %q, want %q", i+1, got[i], want)
		}
	}
}

// B-18: what the store has of a long output is cut, also in a later turn. D-03: a
// thread's history outlives the bot.
// D-03, B-18.
func TestHistoryIsCutAndOutlivesTheBot(t *testing.T) {
	t.Parallel()
	l := newLedger(t, map[string][]turn{
		"print": {{calls: []call{{"run_shell", `{"command":"head -c 1000000 /dev/zero | tr '\\0' x","risk":"low","mutation":false,"privesc":false,"why":"much"}`}}}},
	})
	c := newChatter(t, strings.TrimLeft(plainConfig, "\n"), l)
	c.say("print a lot, code word marmalade", true)
	c.b.stop()
	c.start()
	c.say("and now?", false)
	req, _ := l.last()
	var texts []string
	for _, m := range req.Messages {
		if m.Role != "system" {
			texts = append(texts, m.Role+": "+fmt.Sprint(m.Content))
		}
	}
	if len(texts) != 5 || !strings.Contains(texts[0], "marmalade") || !strings.HasPrefix(texts[1], "assistant: ") ||
		!strings.HasPrefix(texts[2], "tool: ") || texts[3] != "assistant: the end" || !strings.Contains(texts[4], "and now?") {
		t.Fatalf("the history is %.3000q", texts)
	}
	if got := texts[2]; !strings.Contains(got, strings.Repeat("x", 2000)+`\n[... 996000 bytes left out ...]\n`+strings.Repeat("x", 2000)) || strings.Contains(got, strings.Repeat("x", 2001)) {
		t.Errorf("the result in the history has %d bytes and ends %q", len(got), got[max(0, len(got)-300):])
	}
}

// B-20: a call that fails in the same way is not run a third time, and the model is
// told the same words each time.
// B-20.
func TestTheThirdIdenticalFailureDoesNotRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "count")
	again := turn{calls: []call{shell("echo x >> " + file + "; (exit 7)")}}
	l := newLedger(t, map[string][]turn{"again": {again, again, again, again}})
	c := newChatter(t, strings.TrimLeft(plainConfig, "\n"), l)
	c.say("again and again", true) // the first result of a thread carries a notice, which counts for nothing
	req, _ := l.last()
	got := req.results()
	if len(got) != 4 || lines(file) != 2 {
		t.Fatalf("it ran %d times: %q", lines(file), got)
	}
	if got[2] != got[3] || !strings.HasPrefix(got[2], "Tool error: ") || !strings.Contains(got[1], `"exit_code":7`) {
		t.Errorf("%q", got)
	}
}
