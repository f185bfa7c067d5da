package history

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/agent/tokens"
	"countersign/approvals"
	"countersign/test/needstest"
)

// incident writes a long night of several people, an agent and two sub-agents, the same
// for the same seed.
type incident struct {
	log
	r     *rand.Rand
	calls int
	// rendered is called before each reply of a scope, as the engine renders there.
	rendered func(scope string)
}

const (
	firstWords  = "The shop is down for all of Europe since 07:58, and INC-20931 is ours now."
	firstChange = "systemctl restart shop-gateway@eu1"
	needle      = "upstream 10.9.8.7:8443 refused: certificate serial 7f3a-91c2 is revoked"
)

func (n *incident) lines(bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		fmt.Fprintf(&b, "2026-03-12T07:%02d:%02d.%03dZ shop-gateway[%d]: GET /api/v1/basket/%d 502 upstream=10.2.%d.%d:8443 rt=%d.%03d\n",
			n.r.IntN(60), n.r.IntN(60), n.r.IntN(1000), n.r.IntN(30000), n.r.IntN(1000000), n.r.IntN(255), n.r.IntN(255), n.r.IntN(30), n.r.IntN(1000))
	}
	return b.String()
}

func (n *incident) envelope(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return `{"harness_timestamp":{"source":"harness","unix_millis":1},"result":` + string(raw) + `}`
}

// round is one reply with its calls and their results. approve is who decided, "" for a
// look.
func (n *incident) round(scope string, approve string, commands ...string) {
	n.rendered(scope)
	e := ask()
	e.Reply.Text = "I look at the next part."
	for _, c := range commands {
		n.calls++
		e.Reply.Calls = append(e.Reply.Calls, run(fmt.Sprint("call", n.calls), c))
	}
	n.add(inScope(scope, e))
	for i, c := range e.Reply.Calls {
		if approve != "" {
			id := approvals.NewID("web:1", c.ID)
			state := approvals.Approved
			if n.r.IntN(8) == 0 && n.calls > 10 {
				state = approvals.Denied
			}
			digest := approvals.Action{Bytes: []byte(commands[i])}.Digest()
			n.add(inScope(scope, Entry{Kind: KindAsk, Ask: &Ask{Call: c.ID, Approval: id, Digest: digest}}))
			n.add(inScope(scope, Entry{Kind: KindDecision, Decision: &Decision{Call: c.ID, Approval: id, State: state, By: "web:" + approve, ByName: approve}}))
			if state == approvals.Denied {
				r := result(c.ID, n.envelope("Command execution denied by user."))
				r.Result.Denied, r.Result.Failed = true, true
				n.add(inScope(scope, r))
				continue
			}
			n.add(inScope(scope, Entry{Kind: KindIntent, Intent: &Intent{Call: c.ID, Approval: id, Digest: digest}}))
		}
		size := 300 << n.r.IntN(5)
		if n.r.IntN(40) == 0 {
			size = 50 << 10
		}
		body := n.lines(size)
		if c.ID == "call5" {
			body += needle + "\n"
		}
		r := result(c.ID, n.envelope(map[string]any{"exit_code": n.r.IntN(4) / 3, "stdout": body, "stderr": ""}))
		r.Result.Unknown = approve != "" && n.r.IntN(30) == 0
		if len(body) > 40<<10 {
			r.Result.Output = "out-" + c.ID
		}
		n.add(inScope(scope, r))
	}
}

// nested is the work of a sub-agent.
func (n *incident) nested(rounds int) {
	n.rendered("")
	n.calls++
	id := fmt.Sprint("call", n.calls)
	n.add(ask(llm.Call{ID: id, Name: "delegate", Args: `{"task":"read the logs"}`}))
	n.add(inScope(id, Entry{Kind: KindBegin, Begin: &Begin{Call: id, Kind: NestedAgent, Name: "scout", Task: "SCOUT-TASK read the logs of all gateways"}}))
	for range rounds {
		n.round(id, "", "journalctl -u shop-gateway -n 200 # scout")
	}
	n.rendered(id)
	n.add(inScope(id, Entry{Kind: KindReply, Reply: &Reply{Text: "the certificate is the cause", Finish: llm.FinishStop}}))
	r := result(id, n.envelope("the certificate is the cause"))
	r.Result.Tool = "delegate"
	n.add(r)
}

// play writes a transcript of at least size entries.
func (n *incident) play(size int) {
	n.add(say("alice", firstWords))
	n.calls = 3
	n.round("", "", "systemctl status shop-gateway@eu1", "journalctl -u shop-gateway@eu1 -n 100")
	n.round("", "bob", firstChange)
	n.calls++
	session := ask(llm.Call{ID: "tmux1", Name: createSession, Args: `{"session":"war-room"}`})
	n.rendered("")
	n.add(session)
	r := result("tmux1", n.envelope(map[string]any{"session": "war-room", "reused": false}))
	r.Result.Tool = createSession
	n.add(r)
	people := []string{"alice", "bob", "carol", "dave"}
	for len(n.entries) < size {
		switch n.r.IntN(12) {
		case 0, 1:
			n.add(say(people[n.r.IntN(4)], "Could it be the load balancer? "+strings.Repeat("We saw this once before. ", n.r.IntN(6))))
			if n.r.IntN(30) == 0 {
				m := say("carol", "here is the log")
				m.Message.Files = []chat.File{{Name: "gateway.log", Text: n.lines(30 << 10)}}
				n.add(m)
			}
		case 2:
			bot := say("alertmanager", "FIRING: shop 5xx "+n.lines(400))
			bot.Message.From.Bot = true
			n.add(bot)
		case 3:
			n.round("", people[n.r.IntN(4)], fmt.Sprintf("kubectl rollout restart deploy/shop-%d -n eu", n.r.IntN(100)))
		case 4:
			n.add(Entry{Kind: KindNote, Note: &Note{Text: "bob typed in the terminal: kubectl get pods"}})
		case 5:
			n.rendered("")
			n.add(Entry{Kind: KindReply, Reply: &Reply{Text: "The gateway still refuses connections.", Finish: llm.FinishStop}})
			n.add(Entry{Kind: KindEnd, End: &End{Reason: EndDone}})
		default:
			n.round("", "", "kubectl logs deploy/shop --tail 100", "kubectl get events -n eu")
		}
		if len(n.entries) > size/3 && n.calls%1000 < 2 || len(n.entries) > size/2 && n.calls%1000 < 2 {
			n.nested(12)
			n.calls += 3
		}
	}
	n.rendered("")
}

// TestAnIncidentOfTenHoursStaysInsideTheBudget plays 5,000 entries against windows of two
// sizes. Before every reply the view fits, after a summary where one is needed.
func TestAnIncidentOfTenHoursStaysInsideTheBudget(t *testing.T) {
	windows, entries := []int{128_000, 16_000}, 5000
	if !needstest.Whole(t) {
		windows, entries = windows[1:], 3000
	}
	known := map[string]int{} // the same transcript is written twice
	count := func(text string) int {
		n, ok := known[text]
		if !ok {
			n = tokens.Count(text)
			known[text] = n
		}
		return n
	}
	for _, window := range windows {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			n := &incident{log: log{count: count}, r: rand.New(rand.NewPCG(1, 2))}
			budget := Budget{Window: window, System: window * 12 / 100}
			rounds, summaries, nested, counted, held, breaks := 0, 0, 0, 0, 0, 0
			var last View
			n.rendered = func(scope string) {
				rounds++
				var v View
				for range 10 {
					v = Render(systemPrompt, n.entries, Options{Scope: scope, Thread: "web:1", Key: testKey, Budget: budget})
					if v.Need != Summarise {
						break
					}
					summaries++
					inOrder(t, v.SummaryItems())
					if got := tokensOf(v.SummaryItems(), count) + budget.System; got > v.Limit {
						t.Fatalf("round %d: the summary is asked for with %d tokens of %d", rounds, got, v.Limit)
					}
					text := fmt.Sprintf("Summary %d: the gateways refuse connections; a revoked certificate is suspected.", summaries)
					n.add(v.SummaryEntry(strings.Repeat(text+"\n", 8)))
				}
				inOrder(t, v.Items)
				if v.Need != Fits || v.Tokens > v.Limit {
					t.Fatalf("round %d: %s, %d tokens of %d", rounds, v.Need, v.Tokens, v.Limit)
				}
				if rounds%100 == 0 {
					counted++
					if got := tokensOf(v.Items, count) + budget.System; got > v.Limit || got > v.Estimate {
						t.Fatalf("round %d: %d tokens were counted, the view says %d and the limit is %d", rounds, got, v.Estimate, v.Limit)
					}
				}
				if scope != "" {
					nested++
					if !strings.HasPrefix(v.Items[1].Text, "SCOUT-TASK") {
						t.Fatalf("a sub-agent begins with %q", v.Items[1].Text)
					}
					return
				}
				if !extends(last.Items, v.Items) {
					breaks++
				}
				last = v
				if checkThread(t, v) {
					held++
				}
			}
			n.play(entries)
			t.Logf("%d rounds, %d of sub-agents, %d summaries, %d counted, %d with a summary and the first words; %d times the beginning changed; the last view has %d items and %d tokens of %d", rounds, nested, summaries, counted, held, breaks, len(last.Items), last.Tokens, last.Limit)
			if rounds < entries/5 || nested < entries/250 || counted < entries/500 || summaries < 3 || held < 10 {
				t.Error("the incident is not what it should be")
			}
			// A tenth of the window goes at once: here, what eight rounds bring.
			if window == 128_000 && breaks > rounds/6 {
				t.Errorf("the beginning of the view changed %d times in %d rounds", breaks, rounds)
			}
			found, err := Search(n.entries, "serial 7f3a-91c2", SearchOptions{})
			if err != nil || len(found.Hits) != 1 || !strings.Contains(found.Hits[0].Text, needle) || found.Hits[0].At.Sub(t0).Hours() > 1 {
				t.Errorf("the line of the first hour is not found: %+v %v", found, err)
			}
		})
	}
}

// extends reports whether a view begins with all of the one before.
func extends(before, now []llm.Item) bool {
	return len(before) <= len(now) && slices.EqualFunc(before, now[:len(before)], func(a, b llm.Item) bool { return a.Role == b.Role && a.Text == b.Text })
}

// checkThread fails unless a view of the thread has what must stay after a summary. first
// says whether that includes the first person's words.
func checkThread(t *testing.T, v View) (first bool) {
	t.Helper()
	var all strings.Builder
	for _, it := range v.Items {
		all.WriteString(it.Text + "\n")
	}
	text := all.String()
	if strings.Contains(text, "SCOUT-TASK") || strings.Contains(text, "# scout") {
		t.Fatal("the thread is shown the work of a sub-agent")
	}
	summarised := strings.Contains(text, "[countersign] Summary, written by the model")
	if !summarised {
		return false
	}
	if !strings.Contains(text, "approved by bob: run_shell \""+firstChange) {
		t.Fatalf("after a summary the decision of the first hour is gone:\n%s", v.Items[1].Text)
	}
	if !strings.Contains(text, `the tmux session "war-room"`) {
		t.Fatalf("after a summary the open session is gone:\n%s", v.Items[1].Text)
	}
	first = strings.Contains(text, "alice: "+firstWords)
	if !first && !strings.Contains(text, "older messages are left out") {
		t.Fatal("after a summary the first person's words are gone, with room for them")
	}
	return first
}

func BenchmarkRender(b *testing.B) {
	for _, size := range []int{1000, 10_000} {
		n := &incident{log: log{count: byBytes(2.2)}, r: rand.New(rand.NewPCG(1, 2))}
		o := Options{Thread: "web:1", Key: testKey, Budget: Budget{Window: 128_000, System: 15_000}}
		asked := 0
		n.rendered = func(scope string) {
			if asked++; asked%20 > 0 || scope != "" {
				return
			}
			for range 10 {
				v := Render(systemPrompt, n.entries, o)
				if v.Need != Summarise {
					return
				}
				n.add(v.SummaryEntry("A summary."))
			}
		}
		n.play(size)
		b.Run(fmt.Sprintf("%d entries", size), func(b *testing.B) {
			b.ReportAllocs()
			var v View
			for b.Loop() {
				v = Render(systemPrompt, n.entries, o)
			}
			b.ReportMetric(float64(v.Tokens), "tokens")
		})
		b.Run(fmt.Sprintf("search %d entries", size), func(b *testing.B) {
			for b.Loop() {
				if _, err := Search(n.entries, "serial 7f3a-91c2", SearchOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
