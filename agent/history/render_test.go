package history

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/llm"
)

// TestRenderKeepsTheOrderThatAPIsAccept renders any interleaving of messages,
// replies and results, under any budget: every call is answered exactly once,
// right after its assistant message, and nothing else is a tool message.
func TestRenderKeepsTheOrderThatAPIsAccept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []Entry
		var open []string
		n := 0
		for range rapid.IntRange(0, 60).Draw(t, "length") {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				entries = append(entries, Entry{Kind: KindMessage, Message: &Message{From: chat.User{Name: "alice"}, Text: strings.Repeat("m", rapid.IntRange(0, 500).Draw(t, "size"))}})
			case 1:
				r := &Reply{Text: "r"}
				for range rapid.IntRange(0, 3).Draw(t, "calls") {
					n++
					id := fmt.Sprint("c", n)
					r.Calls = append(r.Calls, llm.Call{ID: id, Name: "run_shell", Args: "{}"})
					open = append(open, id)
				}
				entries = append(entries, Entry{Kind: KindReply, Reply: r})
			case 2:
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					entries = append(entries, Entry{Kind: KindResult, Result: &Result{Call: open[i], Text: strings.Repeat("x", rapid.IntRange(0, 3000).Draw(t, "result"))}})
					open = append(open[:i], open[i+1:]...)
				}
			case 4:
				if len(open) > 0 {
					entries = append(entries, Entry{Kind: KindEdited, Edited: &Edited{Call: rapid.SampledFrom(open).Draw(t, "edited"), Argument: "command", Text: "x", Shown: "x"}})
				}
			case 3:
				entries = append(entries, Entry{Kind: KindEnd, End: &End{Reason: EndFailed, Text: "the model failed"}})
			}
		}
		items := Render("system", entries, rapid.SampledFrom([]int{0, 500, 5000, 50_000}).Draw(t, "budget"))
		if items[0].Role != llm.System {
			t.Fatal("the first message is not the system prompt")
		}
		var want []string
		seen := map[string]bool{}
		for _, it := range items[1:] {
			if it.Role == llm.Tool {
				if len(want) == 0 || want[0] != it.CallID || seen[it.CallID] {
					t.Fatalf("tool message for %s, expected %v", it.CallID, want)
				}
				seen[it.CallID] = true
				want = want[1:]
				continue
			}
			if len(want) > 0 {
				t.Fatalf("%s message while %v are unanswered", it.Role, want)
			}
			for _, c := range it.Calls {
				want = append(want, c.ID)
			}
		}
		if len(want) > 0 {
			t.Fatalf("%v are unanswered", want)
		}
	})
}

// TestTheModelLearnsWhatReallyRan: its call stays as it wrote it, and the result
// says what a person made of it.
func TestTheModelLearnsWhatReallyRan(t *testing.T) {
	alice := chat.User{ID: "web:alice", Name: "alice"}
	items := Render("system", []Entry{
		{Kind: KindReply, Reply: &Reply{Calls: []llm.Call{{ID: "1", Name: "run_shell", Args: `{"command":"a"}`}, {ID: "2", Name: "run_shell", Args: `{"command":"b"}`}}}},
		{Kind: KindEdited, Edited: &Edited{Call: "1", Argument: "command", Text: "first", Shown: "first", By: alice}},
		{Kind: KindEdited, Edited: &Edited{Call: "1", Argument: "command", Text: "TOKEN=secret x", Shown: "TOKEN=*** x", By: alice}},
		{Kind: KindResult, Result: &Result{Call: "1", Text: "done"}},
		{Kind: KindResult, Result: &Result{Call: "2", Text: "done too"}},
	}, 0)
	want := "[countersign] alice edited this call before deciding: your \"command\" was replaced, and what follows is the result of exactly this instead:\nTOKEN=*** x\n[countersign] Its result:\ndone"
	if len(items) != 4 || items[1].Calls[0].Args != `{"command":"a"}` || items[2].Text != want || items[3].Text != "done too" {
		t.Fatalf("%+v", items)
	}
}
