package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/approvals"
)

var (
	testKey = []byte("a key of this installation")
	t0      = time.Date(2026, 3, 12, 7, 0, 0, 0, time.UTC)
)

// log is a transcript that is being written.
type log struct {
	entries []Entry
	count   func(string) int
}

// add appends an entry as the engine does and returns its number.
func (l *log) add(e Entry) uint64 {
	e.Seq, e.At = uint64(len(l.entries)), t0.Add(time.Duration(len(l.entries))*7*time.Second)
	if l.count != nil {
		e.Tokens = Measure(e, l.count)
	}
	l.entries = append(l.entries, e)
	return e.Seq
}

func envelope(t testing.TB, result any) string {
	t.Helper()
	raw, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return `{"harness_timestamp":{"source":"harness","unix_millis":1773298800000},"result":` + string(raw) + `}`
}

func say(name, text string) Entry {
	return Entry{Kind: KindMessage, Message: &Message{From: chat.User{ID: chat.UserID("web:" + name), Name: name}, Text: text}}
}

func ask(calls ...llm.Call) Entry {
	return Entry{Kind: KindReply, Reply: &Reply{Calls: calls, Finish: llm.FinishCalls}}
}

func run(id, command string) llm.Call {
	return llm.Call{ID: id, Name: "run_shell", Args: fmt.Sprintf(`{"command":%q}`, command)}
}

func result(id, text string) Entry {
	return Entry{Kind: KindResult, Result: &Result{Call: id, Tool: "run_shell", Text: text}}
}

func inScope(scope string, e Entry) Entry {
	e.Scope = scope
	return e
}

// inOrder fails unless every call is answered exactly once, right after its assistant
// message, and nothing else is a tool message.
func inOrder(t interface{ Fatalf(string, ...any) }, items []llm.Item) {
	if len(items) == 0 || items[0].Role != llm.System {
		t.Fatalf("the first message is not the system prompt")
	}
	var want []string
	for i, it := range items[1:] {
		if it.Role == llm.Tool {
			if len(want) == 0 || want[0] != it.CallID {
				t.Fatalf("item %d is a tool message for %s, expected %v", i+1, it.CallID, want)
			}
			want = want[1:]
			continue
		}
		if len(want) > 0 || it.Role == llm.System {
			t.Fatalf("item %d is a %s message while %v are unanswered", i+1, it.Role, want)
		}
		for _, c := range it.Calls {
			want = append(want, c.ID)
		}
	}
	if len(want) > 0 {
		t.Fatalf("%v are unanswered", want)
	}
}

// tokensOf counts the items of a request with the counter of a test.
func tokensOf(items []llm.Item, count func(string) int) int {
	n := 0
	for _, it := range items {
		n += 4 + count(it.Text)
		for _, c := range it.Calls {
			n += 8 + count(c.ID) + count(c.Name) + count(c.Args)
		}
	}
	return n
}

// byBytes counts so many bytes as one token.
func byBytes(per float64) func(string) int {
	return func(s string) int { return int(float64(len(s)) / per) }
}

const systemPrompt = "You are an agent."

// TestRenderKeepsTheOrderThatAPIsAccept renders any interleaving of messages, replies,
// results, edits, notes and summaries in any scopes, under any budget: the order is one
// that APIs accept, what fits is within the budget as an independent count has it, a
// summary can be asked for within it and then helps, results once cleared stay so, and
// no entry of another scope is seen.
func TestRenderKeepsTheOrderThatAPIsAccept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.SampledFrom([]float64{2.2, 3, 5}).Draw(t, "bytes per token")
		l := log{}
		if rapid.Bool().Draw(t, "measured") {
			l.count = byBytes(per)
		}
		budget := Budget{
			Window: rapid.SampledFrom([]int{0, 2000, 8000, 16_000}).Draw(t, "window"),
			Factor: rapid.SampledFrom([]float64{0, 0.8, 1, 1.13, 1.7}).Draw(t, "factor"),
			System: rapid.SampledFrom([]int{0, 20, 300}).Draw(t, "system"),
		}
		g := generator{t: t, log: &l, open: map[string][]string{}}
		scopes := []string{"", "c-agent", "c-other"}
		for _, s := range scopes[1:] {
			l.add(inScope(s, Entry{Kind: KindBegin, Begin: &Begin{Call: s, Kind: NestedAgent, Name: "scout", Task: "look into " + s}}))
		}
		views := map[string]View{}
		for range rapid.IntRange(0, 80).Draw(t, "length") {
			scope := rapid.SampledFrom(scopes).Draw(t, "scope")
			g.step(scope)
			if len(g.open[scope]) > 0 { // the model is asked only when every call has its result
				if scope == "" && rapid.Bool().Draw(t, "aside") { // or beside one that waits
					o := Options{Thread: "web:1", Key: testKey, Budget: budget, Waiting: map[string]string{}}
					for _, id := range g.open[scope] {
						o.Waiting[id] = "waits"
					}
					l.add(say("alice", "why?"))
					checkView(t, Render(systemPrompt, l.entries, o), o, per)
					g.aside()
				}
				continue
			}
			for rounds := 0; ; rounds++ {
				o := Options{Scope: scope, Thread: "web:1", Key: testKey, Budget: budget}
				v := Render(systemPrompt, l.entries, o)
				checkView(t, v, o, per)
				stays(t, views[scope], v)
				views[scope] = v
				if v.Need != Summarise {
					break
				}
				if rounds > 40 {
					t.Fatalf("a summary after another is asked for")
				}
				l.add(v.SummaryEntry(strings.Repeat("s", rapid.IntRange(0, 4000).Draw(t, "summary"))))
				views[scope] = View{}
			}
		}
	})
}

// aside adds a reply of the aside, and its results.
func (g *generator) aside() {
	e := ask()
	e.Reply.Text = "because"
	var results []Entry
	for range rapid.IntRange(0, 2).Draw(g.t, "looks") {
		g.n++
		id := fmt.Sprint("c", g.n)
		e.Reply.Calls = append(e.Reply.Calls, run(id, "ls"))
		results = append(results, g.result(id, func(int) string { return "|out" }))
	}
	for _, e := range append([]Entry{e}, results...) {
		g.log.add(inScope(Aside, e))
	}
}

type generator struct {
	t    *rapid.T
	log  *log
	open map[string][]string
	n    int
}

func (g *generator) step(scope string) {
	t, add := g.t, func(e Entry) { g.log.add(inScope(scope, e)) }
	text := func(most int) string {
		return scope + "|" + strings.Repeat(rapid.SampledFrom([]string{"word ", "x\n", "{\"a\":1} ", "<<end 0>> "}).Draw(t, "unit"), rapid.IntRange(0, most/5).Draw(t, "size"))
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		e := say(rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "name"), text(2000))
		e.Message.From.Bot = rapid.IntRange(0, 5).Draw(t, "bot") == 0
		if rapid.IntRange(0, 5).Draw(t, "file") == 0 {
			e.Message.Files = []chat.File{{Name: "f.log", Text: text(20_000)}}
		}
		add(e)
	case 2, 3, 4:
		if len(g.open[scope]) > 0 {
			return
		}
		e := ask()
		e.Reply.Text = "r"
		for range rapid.IntRange(0, 4).Draw(t, "calls") {
			g.n++
			id := fmt.Sprint("c", g.n)
			e.Reply.Calls = append(e.Reply.Calls, run(id, "echo"))
			g.open[scope] = append(g.open[scope], id)
		}
		add(e)
	case 5, 6, 7:
		for _, id := range g.open[scope] {
			add(g.result(id, text))
		}
		g.open[scope] = nil
	case 8:
		if ids := g.open[scope]; len(ids) > 0 {
			add(Entry{Kind: KindDecision, Decision: &Decision{Call: ids[0], State: approvals.Approved, By: "web:alice", ByName: "alice"}})
			add(Entry{Kind: KindEdited, Edited: &Edited{Call: ids[0], Argument: "command", Text: "x", Shown: "x", By: chat.User{Name: "alice"}}})
		} else {
			add(Entry{Kind: KindNote, Note: &Note{Text: text(3000)}})
		}
	case 9:
		add(Entry{Kind: KindEnd, End: &End{Reason: EndFailed, Text: "the model failed"}})
	}
}

func (g *generator) result(id string, text func(int) string) Entry {
	t := g.t
	most := rapid.SampledFrom([]int{100, 3000, 60_000}).Draw(t, "result")
	var body string
	switch rapid.IntRange(0, 2).Draw(t, "form") {
	case 0:
		body = "Tool error: " + text(most)
	case 1:
		raw, _ := json.Marshal(text(most))
		body = `{"harness_timestamp":{"source":"harness","unix_millis":1},"result":` + string(raw) + `}`
	default:
		raw, _ := json.Marshal(map[string]any{"exit_code": 0, "stdout": text(most), "stderr": text(most)})
		body = `{"harness_timestamp":{"source":"harness","unix_millis":1},"result":` + string(raw) + `}`
	}
	e := result(id, body)
	e.Result.Unknown = rapid.IntRange(0, 9).Draw(t, "unknown") == 0
	return e
}

func checkView(t *rapid.T, v View, o Options, per float64) {
	inOrder(t, v.Items)
	if v.Items[0].Text != systemPrompt {
		t.Fatalf("the system prompt changed")
	}
	count := byBytes(per)
	factor := max(o.Budget.Factor, 0.7)
	if o.Budget.Factor == 0 {
		factor = 1
	}
	counted := func(items []llm.Item) int {
		return int(factor * float64(tokensOf(items[1:], count)+max(o.Budget.System, 1)))
	}
	hard := min(o.Budget.Window*92/100, o.Budget.Window-o.Budget.Window/8)
	if o.Budget.Window > 0 && v.Limit != hard {
		t.Fatalf("limit %d, want %d", v.Limit, hard)
	}
	switch {
	case o.Budget.Window == 0 && v.Need != Fits:
		t.Fatalf("without a window it is %s", v.Need)
	case o.Budget.Window > 0 && v.Need == Fits && (counted(v.Items) > hard || v.Tokens > hard):
		for _, it := range v.Items {
			t.Logf("%s %d %.200q", it.Role, tokensOf([]llm.Item{it}, count), it.Text)
		}
		t.Fatalf("a view of %d tokens (it says %d) is said to fit into %d", counted(v.Items), v.Tokens, hard)
	case v.Need == Summarise:
		asked := v.SummaryItems()
		inOrder(t, asked)
		if n := counted(asked); n > hard {
			t.Fatalf("the summary needs %d tokens of %d", n, hard)
		}
		if len(asked) < 3 {
			t.Fatalf("the summary is asked for of nothing")
		}
	}
	for _, it := range v.Items[1:] {
		for _, s := range []string{"", "c-agent", "c-other"} {
			if s != o.Scope && strings.Contains(it.Text, ": "+s+"|") && s != "" {
				t.Fatalf("scope %q shows %q", o.Scope, it.Text)
			}
		}
		if it.Role == llm.Tool && strings.HasPrefix(it.Text, "{") && !json.Valid([]byte(it.Text)) {
			t.Fatalf("a result is no JSON any more: %s", it.Text)
		}
	}
}

// stays fails when a result that was cleared before is shown again.
func stays(t *rapid.T, before, now View) {
	was := map[string]bool{}
	for _, it := range before.Items {
		was[it.CallID] = it.Role == llm.Tool && strings.Contains(it.Text, "was cleared to save room")
	}
	for _, it := range now.Items {
		if was[it.CallID] && !strings.Contains(it.Text, "was cleared to save room") {
			t.Fatalf("the result of %s was cleared and is shown again", it.CallID)
		}
	}
}

// TestTheModelLearnsWhatReallyRan: its call stays as it wrote it, and the result
// says what a person made of it.
func TestTheModelLearnsWhatReallyRan(t *testing.T) {
	alice := chat.User{ID: "web:alice", Name: "alice"}
	v := Render("system", []Entry{
		ask(llm.Call{ID: "1", Name: "run_shell", Args: `{"command":"a"}`}, llm.Call{ID: "2", Name: "run_shell", Args: `{"command":"b"}`}),
		{Kind: KindEdited, Edited: &Edited{Call: "1", Argument: "command", Text: "first", Shown: "first", By: alice}},
		{Kind: KindEdited, Edited: &Edited{Call: "1", Argument: "command", Text: "TOKEN=secret x", Shown: "TOKEN=*** x", By: alice}},
		result("1", "done"),
		result("2", "done too"),
	}, Options{})
	want := "[countersign] alice edited this call before deciding: your \"command\" was replaced, and what follows is the result of exactly this instead:\nTOKEN=*** x\n[countersign] Its result:\ndone"
	if items := v.Items; len(items) != 4 || items[1].Calls[0].Args != `{"command":"a"}` || items[2].Text != want || items[3].Text != "done too" {
		t.Fatalf("%+v", items)
	}
}
