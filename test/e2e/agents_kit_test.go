package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"countersign/adapters/chat"
)

// part is what the model does in conversations whose last message of a person, or whose
// task, holds a word.
type part struct {
	when  string
	turns []turn
}

// crew is a scripted model for conversations within conversations. Its parts are looked
// through in their order; each turn of a part makes its calls, and after the last turn the
// model says "the end". Every reply says how many tokens it took.
type crew struct {
	t       testing.TB
	url     string
	in, out int // tokens of each reply

	mu    sync.Mutex
	parts []part
	all   []sent
}

// sent is one request that the bot sent to the model.
type sent struct {
	asked
	raw  map[string]json.RawMessage
	body string
}

// system is the system prompt of a request.
func (s sent) system() string { return s.text("system") }

// text is all that a request has of one role.
func (s sent) text(role string) string {
	var b strings.Builder
	for _, m := range s.Messages {
		if m.Role == role {
			fmt.Fprintln(&b, m.Content)
		}
	}
	return b.String()
}

// about reports whether a request is of the conversation in which people, or the task,
// said a word.
func (s sent) about(word string) bool { return strings.Contains(s.text("user"), word) }

// user is the last message of a person, or the task, without the bot's notes.
func (s sent) user() (user string) {
	for _, m := range s.Messages {
		if text := fmt.Sprint(m.Content); m.Role == "user" && !strings.HasPrefix(text, "[countersign] ") {
			user = text
		}
	}
	return user
}

// since is how many results came after the last message of a person, without those of
// calls that the bot made by itself to ask for more budget.
func (s sent) since() (n int) {
	for _, m := range s.Messages {
		switch {
		case m.Role == "tool":
			if !strings.Contains(fmt.Sprint(m.Content), `"untrusted_begin":"extend_budget `) {
				n++
			}
		case m.Role == "user" && !strings.HasPrefix(fmt.Sprint(m.Content), "[countersign] "):
			n = 0
		}
	}
	return n
}

func newCrew(t testing.TB, parts ...part) *crew {
	t.Helper()
	c := &crew{t: t, parts: parts, in: 100, out: 10}
	srv := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

func (c *crew) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s := sent{body: string(body), raw: map[string]json.RawMessage{}}
	if err == nil {
		err = json.Unmarshal(body, &s.asked)
	}
	if err == nil {
		err = json.Unmarshal(body, &s.raw)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.all = append(c.all, s)
	n, tn := len(c.all), c.reply(s)
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(v map[string]any) {
		v["id"], v["object"], v["created"], v["model"] = "x", "chat.completion.chunk", 1, "scripted"
		b, _ := json.Marshal(v)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", b)
	}
	choice := func(delta map[string]any, finish any) {
		chunk(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	choice(map[string]any{"role": "assistant", "content": tn.text}, nil)
	finish := "stop"
	for i, x := range tn.calls {
		finish = "tool_calls"
		choice(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": fmt.Sprintf("call%05d%d", n, i), "type": "function",
			"function": map[string]any{"name": x.name, "arguments": x.args}}}}, nil)
	}
	choice(map[string]any{}, finish)
	chunk(map[string]any{"choices": []any{}, "usage": map[string]any{"prompt_tokens": c.in, "completion_tokens": c.out, "total_tokens": c.in + c.out}})
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

// reply is the turn that a request gets. It is called under mu.
func (c *crew) reply(s sent) turn {
	user, results := s.user(), s.since()
	for _, p := range c.parts {
		if !strings.Contains(user, p.when) {
			continue
		}
		for _, tn := range p.turns {
			if results < max(len(tn.calls), 1) {
				return tn
			}
			results -= len(tn.calls)
		}
		break
	}
	return turn{text: "the end"}
}

// requests are the requests so far.
func (c *crew) requests() []sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// last is the newest request of the conversation about a word.
func (c *crew) last(word string) sent {
	c.t.Helper()
	for _, s := range slices.Backward(c.requests()) {
		if s.about(word) {
			return s
		}
	}
	c.t.Fatalf("the model was never asked about %q", word)
	return sent{}
}

// count is how many requests there were in the conversation about a word.
func (c *crew) count(word string) (n int) {
	for _, s := range c.requests() {
		if s.about(word) {
			n++
		}
	}
	return n
}

// enter starts a bot with this model, and alice at its console.
func (c *crew) enter(t *testing.T, config string, env ...string) *chatter {
	t.Helper()
	x := &chatter{t: t, b: newBot(t, strings.TrimLeft(config, "\n"), c.url, env...)}
	t.Cleanup(x.b.endTerminals)
	x.start()
	return x
}

// give makes the arguments of a call.
func give(args map[string]any) string {
	raw, _ := json.Marshal(args)
	return string(raw)
}

// tell says something and does not wait.
func (c *chatter) tell(text string) {
	c.t.Helper()
	c.n++
	path := "/api/threads"
	if c.thread != "" {
		path += "/" + c.thread + "/messages"
	}
	var out struct {
		Thread string `json:"thread"`
	}
	if st, err := c.p.do("POST", path, map[string]string{"id": fmt.Sprintf("m%d", c.n), "text": text}, &out); err != nil || st >= 300 {
		c.t.Fatalf("say: %d %v\n%s", st, err, c.b.log)
	}
	if out.Thread != "" {
		c.thread = out.Thread
	}
}

// again goes on after the bot was started again.
func (c *chatter) again(extra ...string) {
	c.t.Helper()
	if !c.b.start(extra...) {
		c.t.Fatalf("the bot does not start again:\n%s", c.b.log)
	}
	c.p = c.b.login("alice")
}

// as is somebody else in the same thread.
func (c *chatter) as(name string) *chatter {
	c.t.Helper()
	return &chatter{t: c.t, b: c.b, p: c.b.login(name), thread: c.thread, n: 1000}
}

// page is what the thread shows, as text.
func (c *chatter) page() string { return pageOf(c.rows()) }

// pageOf is the text of messages.
func pageOf(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		_, _ = fmt.Fprintf(&b, "[%s] %s\n", r.Kind, r.Text)
		for _, f := range r.Files {
			_, _ = fmt.Fprintf(&b, "file: %s\n", f.Name)
		}
		if r.Card == nil {
			continue
		}
		b.WriteString(cardText(*r.Card))
	}
	return b.String()
}

// cardText is a card as text: "asks run_shell, medium risk", or its state and its tool
// ("done run_shell"), and then all that is on it and in its details.
func cardText(c chat.Card) string {
	tool := ""
	for _, f := range c.Details {
		if f.Name == "Tool" {
			tool = f.Value
		}
	}
	state := "done"
	for prefix, s := range map[string]string{"Denied": "denied", "Withdrawn": "withdrawn", "Expired": "expired", "Not run": "not run"} {
		if strings.HasPrefix(c.Body, prefix) {
			state = s
		}
	}
	for _, s := range []string{"running", "outcome unknown"} {
		if strings.Contains(c.Body, " · "+s) {
			state = s
		}
	}
	var b strings.Builder
	if !c.Final {
		fmt.Fprintf(&b, "card: asks %s, %s\n", tool, c.Risk)
	} else {
		fmt.Fprintf(&b, "card: %s %s\n", state, tool)
	}
	fmt.Fprintf(&b, "%s\n%s\n%s\n%s\n%s\n", c.Title, c.Code, strings.Join(c.Preview, "\n"), c.Body, strings.Join(c.Warn, "\n"))
	for _, f := range slices.Concat(c.Fields, c.Details) {
		if f.Name != "Preview" || len(c.Preview) == 0 { // the details hold the card's preview whole
			fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
		}
	}
	for _, x := range c.Choose {
		fmt.Fprintf(&b, "button: %s (%s)\n", x.Label, x.ID)
	}
	return b.String()
}

func (c *chatter) shown() string { return c.page() + "\n" + c.b.log.String() }

// sees waits until the thread shows a text.
func (c *chatter) sees(text string) {
	c.t.Helper()
	eventually(c.t, "the thread shows "+text, func() bool { return strings.Contains(c.page(), text) }, c.shown)
}

// buttons are the ids of the open buttons that begin with a prefix, in the order in which
// they are shown.
func (c *chatter) buttons(prefix string) (ids []string) {
	for _, r := range c.rows() {
		if r.Card == nil {
			continue
		}
		for _, x := range slices.Concat(r.Card.Choose, r.Card.After) {
			if strings.HasPrefix(string(x.ID), prefix) {
				ids = append(ids, string(x.ID))
			}
		}
	}
	return ids
}

// press waits for an open button whose id begins with prefix and presses the newest; it
// returns what alice was told.
func (c *chatter) press(prefix string) (notice string) {
	c.t.Helper()
	var ids []string
	eventually(c.t, "there is a button "+prefix, func() bool { ids = c.buttons(prefix); return len(ids) > 0 }, c.shown)
	return c.click(ids[len(ids)-1])
}

// choose waits for the question with a choice of this label and presses it.
func (c *chatter) choose(label string) {
	c.t.Helper()
	id := ""
	eventually(c.t, "there is the choice "+label, func() bool {
		for _, r := range c.rows() {
			if r.Card == nil {
				continue
			}
			for _, x := range r.Card.Choose {
				if x.Label == label {
					id = string(x.ID)
				}
			}
		}
		return id != ""
	}, c.shown)
	c.click(id)
}

func (c *chatter) click(id string) string {
	c.t.Helper()
	return c.edit(id, "")
}

// edit presses a button with what its form became.
func (c *chatter) edit(id, text string) string {
	c.t.Helper()
	c.n++
	var ans struct {
		Notice string `json:"notice"`
	}
	st, err := c.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": fmt.Sprintf("c%d", c.n), "button": id, "text": text}, &ans)
	if err != nil || st != http.StatusOK {
		c.t.Fatalf("press %s: %d %v\n%s", id, st, err, c.shown())
	}
	return ans.Notice
}

// cards are the titles of all cards that ask or asked people for approval, with their
// codes. What was approved with something else has a card, too, which never asked.
func (c *chatter) cards() (all []string) {
	for _, r := range c.rows() {
		if r.Card == nil {
			continue
		}
		has := func(name string) bool {
			return slices.ContainsFunc(r.Card.Details, func(f chat.Field) bool { return f.Name == name })
		}
		if has("Request") && !has("Approved by") {
			all = append(all, r.Card.Title+" "+r.Card.Code)
		}
	}
	return all
}
