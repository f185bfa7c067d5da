package observe

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
)

// approvedTurn is a turn with one call that people approve.
func approvedTurn(first uint64) []history.Entry {
	return script(
		first, says("canary-message"), reply(calls("c1", "run_shell")), asks("c1", "a1"), decides("c1", "a1", approvals.Approved),
		intends("c1"), result("c1", "run_shell"), reply(), ends(history.EndDone),
	)
}

func TestATurnIsOneSpanWithTheTimesOfItsEntries(t *testing.T) {
	o, kept := observer(t, Config{Instance: "bot", Models: []string{"m"}})
	feed(o, approvedTurn(0))
	turn := named(t, kept, "invoke_agent countersign")
	if !turn.StartTime.Equal(at(0)) || !turn.EndTime.Equal(at(7)) {
		t.Errorf("the turn lasts from %v to %v", turn.StartTime, turn.EndTime)
	}
	if turn.Parent.IsValid() {
		t.Error("a turn is the root of its trace")
	}
	want := map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "openai", "gen_ai.agent.name": "countersign",
		"gen_ai.conversation.id": thread, "gen_ai.usage.input_tokens": "200", "gen_ai.usage.output_tokens": "20",
		"countersign.turn": "0", "countersign.outcome": "done", "countersign.replies": "2", "countersign.tool_calls": "1",
		"countersign.approvals": "1", "countersign.wait_seconds": "1", "error.type": "(none)",
	}
	for k, v := range want {
		if got := attr(turn, k); got != v {
			t.Errorf("%s is %s, want %s", k, got, v)
		}
	}
}

func TestAWaitForPeopleIsASpanBelowItsTurn(t *testing.T) {
	tests := []struct {
		rule     string
		end      []history.Entry
		decision string
		seconds  string
	}{
		{"approved", []history.Entry{decides("c1", "a1", approvals.Approved)}, "approved", "1"},
		{"denied", []history.Entry{decides("c1", "a1", approvals.Denied)}, "denied", "1"},
		{"expired", []history.Entry{decides("c1", "a1", approvals.Expired)}, "expired", "1"},
		{"edited away", []history.Entry{edits("c1", "a1")}, "edited", "1"},
		{"a decision on another request ends nothing", []history.Entry{decides("c1", "a0", approvals.Denied), decides("c1", "a1", approvals.Approved)}, "approved", "2"},
		{"stopped: the call is closed without a decision", []history.Entry{result("c1", "run_shell")}, "cancelled", "1"},
		{"the turn ends without a decision", []history.Entry{ends(history.EndStopped)}, "cancelled", "1"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			o, kept := observer(t, Config{Request: func(_ context.Context, id approvals.ID) (approvals.Record, bool) {
				return approvals.Record{Level: "high"}, id == "a1"
			}})
			feed(o, script(0, append([]history.Entry{says("x"), reply(calls("c1", "run_shell")), asks("c1", "a1")}, tt.end...)...))
			s := named(t, kept, "countersign.approval")
			for k, v := range map[string]string{
				attrDecision: tt.decision, attrWaited: tt.seconds, attrLevel: "high", attrCall: "c1", attrTool: "run_shell", attrApproval: "a1",
			} {
				if got := attr(s, k); got != v {
					t.Errorf("%s is %s, want %s", k, got, v)
				}
			}
			if s.Parent.SpanID() != turnSpanID(thread, 0) || s.SpanContext.TraceID() != o.traceID(thread, 0) {
				t.Error("it is not below its turn")
			}
			if got := sample(t, o, "countersign_approval_wait_seconds", "level=high", "decision="+tt.decision); got != 1 {
				t.Errorf("the histogram has %v of it", got)
			}
		})
	}
}

func TestWhatWasApprovedWithoutAVoteIsSettled(t *testing.T) {
	o, kept := observer(t, Config{Request: func(context.Context, approvals.ID) (approvals.Record, bool) {
		return approvals.Record{Level: "low", Basis: approvals.Basis{Kind: approvals.ByGrant}}, true
	}})
	feed(o, approvedTurn(0))
	if s := named(t, kept, "countersign.approval"); attr(s, attrDecision) != "settled" || attr(s, attrBasis) != "grant" {
		t.Errorf("it says %s by %s", attr(s, attrDecision), attr(s, attrBasis))
	}
	if got := sample(t, o, "countersign_approval_wait_seconds", "level=low", "decision=settled"); got != 1 {
		t.Errorf("the histogram has %v of it", got)
	}
}

func TestALevelThatDoesNotExistIsUnknown(t *testing.T) {
	o, _ := observer(t, Config{Request: func(context.Context, approvals.ID) (approvals.Record, bool) {
		return approvals.Record{Level: "a level of somebody's own"}, true
	}})
	feed(o, approvedTurn(0))
	if got := sample(t, o, "countersign_approval_wait_seconds", "level=unknown", "decision=approved"); got != 1 {
		t.Errorf("the histogram has %v of it", got)
	}
}

func TestAFailedTurnIsAnError(t *testing.T) {
	o, kept := observer(t, Config{})
	feed(o, script(0, says("x"), ends(history.EndFailed)))
	s := named(t, kept, "invoke_agent countersign")
	if s.Status.Code != codes.Error || attr(s, "error.type") != "_OTHER" || attr(s, attrOutcome) != "failed" {
		t.Errorf("status %v, error.type %s, outcome %s", s.Status, attr(s, "error.type"), attr(s, attrOutcome))
	}
}

func TestEachTurnOfAThreadIsATraceOfItsOwn(t *testing.T) {
	o, kept := observer(t, Config{})
	feed(o, approvedTurn(0))
	feed(o, approvedTurn(8))
	seen := map[string]bool{}
	for _, s := range kept.GetSpans() {
		seen[s.SpanContext.TraceID().String()] = true
	}
	if len(seen) != 2 || len(kept.GetSpans()) != 4 {
		t.Errorf("%d spans are in %d traces", len(kept.GetSpans()), len(seen))
	}
}

func TestASecondInstanceInTheSameThreadHasTracesOfItsOwn(t *testing.T) {
	a, _ := observer(t, Config{Instance: "a"})
	b, _ := observer(t, Config{Instance: "b"})
	if a.traceID(thread, 0) == b.traceID(thread, 0) {
		t.Error("two bots share a trace")
	}
	if a.traceID(thread, 0) == a.traceID(thread+"1", 0) || a.traceID("x1", 0) == a.traceID("x", 10) {
		t.Error("two threads share a trace")
	}
}

func TestNestedWorkIsBelowWhatItIsIn(t *testing.T) {
	o, kept := observer(t, Config{})
	feed(o, script(
		0, says("x"), reply(calls("flow", "run_workflow")), begins("flow", "deploy", history.NestedWorkflow),
		in("flow", reply(calls("sub", "ask_agent"))), in("flow", begins("sub", "a7", history.NestedAgent)),
		in("sub", reply(calls("c1", "run_shell"))), in("sub", asks("c1", "a1")), in("sub", decides("c1", "a1", approvals.Denied)), in("sub", result("c1", "run_shell")),
		in("sub", ends(history.EndDone)), // of the sub-agent: the turn goes on
		in("flow", result("sub", "ask_agent")), result("flow", "run_workflow"), ends(history.EndDone),
	))
	turn, flow := named(t, kept, "invoke_agent countersign"), named(t, kept, "invoke_workflow deploy")
	var sub tracetest.SpanStub
	for _, s := range kept.GetSpans() {
		if attr(s, "gen_ai.agent.id") == "a7" {
			sub = s
		}
	}
	wait := named(t, kept, "countersign.approval")
	if wait.Parent.SpanID() != sub.SpanContext.SpanID() {
		t.Error("the wait is not below the sub-agent")
	}
	if sub.Parent.SpanID() != flow.SpanContext.SpanID() {
		t.Error("the sub-agent is not below the workflow")
	}
	if flow.Parent.SpanID() != turnSpanID(thread, 0) {
		t.Error("the workflow is not below the turn")
	}
	if !slices.ContainsFunc(kept.GetSpans(), func(s tracetest.SpanStub) bool {
		return s.SpanContext.SpanID() == turnSpanID(thread, 0) && s.EndTime.Equal(at(12))
	}) {
		t.Errorf("the turn ended with its sub-agent: %v", turn.EndTime)
	}
	if got := attr(sub, "gen_ai.usage.input_tokens"); got != "100" {
		t.Errorf("the sub-agent used %s tokens, want 100", got)
	}
	if got := attr(flow, "gen_ai.usage.input_tokens"); got != "200" {
		t.Errorf("the workflow used %s tokens, want 200: its sub-agent's are its own too", got)
	}
}

func TestNestedWorkWhoseEntriesStandInItsOwnScope(t *testing.T) {
	o, kept := observer(t, Config{})
	feed(o, script(
		0, says("x"), reply(calls("flow", "run_workflow")), in("flow", begins("flow", "deploy", history.NestedWorkflow)),
		in("flow", reply(calls("sub", "ask_agent"))), in("sub", begins("sub", "a7", history.NestedAgent)),
		in("sub", result("sub", "ask_agent")), in("flow", result("flow", "run_workflow")), ends(history.EndDone),
	))
	flow := named(t, kept, "invoke_workflow deploy")
	if flow.Parent.SpanID() != turnSpanID(thread, 0) {
		t.Error("the workflow is not below the turn")
	}
	for _, s := range kept.GetSpans() {
		if attr(s, "gen_ai.agent.id") == "a7" && s.Parent.SpanID() != flow.SpanContext.SpanID() {
			t.Error("the sub-agent is not below the workflow")
		}
	}
	if len(kept.GetSpans()) != 3 {
		t.Errorf("there are %d spans", len(kept.GetSpans()))
	}
}

func TestAMessageOfNestedWorkBeginsNoTurn(t *testing.T) {
	o, kept := observer(t, Config{})
	feed(o, script(0, in("c1", says("x")), says("y"), ends(history.EndDone)))
	if s := named(t, kept, "invoke_agent countersign"); attr(s, attrTurn) != "1" {
		t.Errorf("the turn begins at entry %s", attr(s, attrTurn))
	}
}

func TestACallWhoseProcessDiedIsASpanOfUnknownOutcome(t *testing.T) {
	lost := result("c1", "run_shell")
	lost.Result.Unknown, lost.Result.Failed, lost.Result.Changed = true, true, true
	before := script(0, says("x"), reply(calls("c1", "run_shell")), asks("c1", "a1"), decides("c1", "a1", approvals.Approved), intends("c1"))
	after := script(5, lost, ends(history.EndStopped))

	t.Run("after a restart", func(t *testing.T) {
		o, kept := observer(t, Config{})
		o.Resumed(thread, before)
		feed(o, after)
		s := named(t, kept, "execute_tool run_shell")
		if !s.StartTime.Equal(at(4)) || !s.EndTime.Equal(at(5)) || attr(s, attrOutcome) != "unknown" || s.Status.Code != codes.Error {
			t.Errorf("it lasts from %v to %v, outcome %s", s.StartTime, s.EndTime, attr(s, attrOutcome))
		}
	})
	t.Run("when this process ran it, its own span says so", func(t *testing.T) {
		o, kept := observer(t, Config{})
		feed(o, before)
		_, end := o.Tool(t.Context(), thread, calls("c1", "run_shell"))
		o.Resumed(thread, before) // the thread is claimed anew meanwhile
		end(Unknown, "")
		feed(o, after)
		n := 0
		for _, s := range kept.GetSpans() {
			if s.Name == "execute_tool run_shell" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("there are %d spans of one run", n)
		}
	})
}

func TestWhatThisProcessRunsIsStillItsOwnAfterResumed(t *testing.T) {
	o, kept := observer(t, Config{})
	lost := result("c1", "run_shell")
	lost.Result.Unknown = true
	all := script(0, says("x"), reply(calls("c1", "run_shell")), intends("c1"), lost, ends(history.EndDone))
	feed(o, all[:2])
	_, end := o.Tool(t.Context(), thread, calls("c1", "run_shell"))
	o.Resumed(thread, all[:3]) // says more than was told so far
	end(Unknown, "")
	feed(o, all[3:])
	if got := len(kept.GetSpans()); got != 2 {
		t.Errorf("there are %d spans, want the run and the turn", got)
	}
}

func TestATurnSaysWhatItCost(t *testing.T) {
	o, kept := observer(t, Config{})
	paid := reply()
	paid.Reply.Usage.Cost = 0.5
	wanted := reply() // a person's: no reply of the model
	wanted.Reply.Direct = true
	feed(o, script(0, says("x"), wanted, paid, paid, ends(history.EndDone)))
	s := named(t, kept, "invoke_agent countersign")
	if attr(s, attrCost) != "1" || attr(s, attrReplies) != "2" {
		t.Errorf("it cost %s with %s replies", attr(s, attrCost), attr(s, attrReplies))
	}
}

func TestNothingThatSomebodyWroteIsInASpan(t *testing.T) {
	o, kept := observer(t, Config{Models: []string{"m"}})
	feed(o, approvedTurn(0)[:2])
	_, end := o.Tool(t.Context(), thread, calls("c1", "run_shell"))
	end(Failed, "canary-result")
	feed(o, approvedTurn(0)[2:])
	_, err := o.Model(llm.Model(replies{llm.Reply{Text: "canary-reply"}})).Reply(t.Context(), llm.Request{
		Thread: thread, Items: []llm.Item{{Role: llm.System, Text: "canary-prompt"}, {Role: llm.User, Text: "canary-question"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept.GetSpans()) != 4 {
		t.Fatalf("there are %d spans", len(kept.GetSpans()))
	}
	for _, s := range kept.GetSpans() {
		if all := everything(s); strings.Contains(all, "canary") {
			t.Errorf("a span tells content:\n%s", all)
		}
	}
}

func TestMetricsOfATranscript(t *testing.T) {
	denied := result("c2", "run_shell")
	denied.Result.Denied, denied.Result.Failed = true, true
	skipped := result("c3", "a tool that the model made up")
	skipped.Result.Skipped, skipped.Result.Failed = true, true
	o, _ := observer(t, Config{KnownTool: func(s string) bool { return s == "run_shell" }})
	feed(o, approvedTurn(0))
	feed(o, script(8, says("x"), reply(calls("c2", "run_shell"), calls("c3", "?")), denied, skipped, ends("a reason of the future")))
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"countersign_turns_total", []string{"outcome=done"}, 1},
		{"countersign_turns_total", []string{"outcome=failed"}, 0},
		{"countersign_turns_total", []string{"outcome=other"}, 1},
		{"countersign_turn_duration_seconds", []string{"outcome=done"}, 1},
		{"countersign_tool_calls_total", []string{"tool=run_shell", "outcome=ok"}, 1},
		{"countersign_tool_calls_total", []string{"tool=run_shell", "outcome=denied"}, 1},
		{"countersign_tool_calls_total", []string{"tool=unknown", "outcome=skipped"}, 1},
	} {
		if got := sample(t, o, tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s%v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
}

func TestAnEntryThatIsToldTwiceCountsOnce(t *testing.T) {
	o, kept := observer(t, Config{})
	feed(o, approvedTurn(0))
	feed(o, approvedTurn(0))
	o.Resumed(thread, approvedTurn(0))
	feed(o, approvedTurn(0)[5:])
	if got := sample(t, o, "countersign_turns_total", "outcome=done"); got != 1 || len(kept.GetSpans()) != 2 {
		t.Errorf("%v turns and %d spans", got, len(kept.GetSpans()))
	}
}

func TestATurnWhoseBeginningWasNotSeen(t *testing.T) {
	t.Run("counts, and has no span", func(t *testing.T) {
		o, kept := observer(t, Config{})
		feed(o, approvedTurn(0)[3:])
		if got := sample(t, o, "countersign_turns_total", "outcome=done"); got != 1 || len(kept.GetSpans()) != 0 {
			t.Errorf("%v turns and %d spans", got, len(kept.GetSpans()))
		}
	})
	t.Run("is put right by Resumed", func(t *testing.T) {
		o, kept := observer(t, Config{})
		all := append(script(0, says("x"), reply(calls("c1", "run_shell")), says("y")), script(3, result("c1", "run_shell"), ends(history.EndDone))...)
		feed(o, all[2:3]) // looks like a beginning, and is none
		o.Resumed(thread, all[:3])
		feed(o, all[3:])
		if s := named(t, kept, "invoke_agent countersign"); !s.StartTime.Equal(at(0)) {
			t.Errorf("the turn begins at %v", s.StartTime)
		}
	})
	t.Run("of an empty transcript begins with what comes", func(t *testing.T) {
		o, kept := observer(t, Config{})
		o.Resumed(thread, nil)
		feed(o, approvedTurn(0))
		named(t, kept, "invoke_agent countersign")
	})
}

func TestMemoryIsBounded(t *testing.T) {
	o, kept := observer(t, Config{Threads: 3})
	for i := range 10 {
		o.Appended(t.Context(), chat.ThreadID(fmt.Sprint("web:", i)), approvedTurn(0)[:2])
	}
	if len(o.known) != 3 || o.recent.Len() != 3 {
		t.Errorf("%d threads are kept", len(o.known))
	}
	o.Appended(t.Context(), "web:7", nil)
	o.Appended(t.Context(), "web:10", approvedTurn(0)[:2])
	if o.known["web:7"] == nil || o.known["web:8"] != nil {
		t.Error("it is not the thread that was used longest ago which is forgotten")
	}
	// The thread that was used last is still known, the first one is not.
	o.Appended(t.Context(), "web:7", approvedTurn(0)[2:])
	o.Appended(t.Context(), "web:0", approvedTurn(0)[2:])
	turns := 0
	for _, s := range kept.GetSpans() {
		if strings.HasPrefix(s.Name, "invoke_agent") {
			turns++
		}
	}
	if turns != 1 {
		t.Errorf("%d turns have spans, want 1", turns)
	}

	var many []llm.Call
	entries := []history.Entry{says("x")}
	for i := range 3 * maxCalls {
		id := fmt.Sprint("c", i)
		many = append(many, calls(id, "t"))
		entries = append(entries, asks(id, id), begins(id, "n", history.NestedAgent))
	}
	c := &conversation{}
	for _, e := range script(0, slices.Insert(entries, 1, reply(many...))...) {
		c.add(&e)
	}
	if len(c.turn.calls) > maxCalls || len(c.turn.asks) > maxCalls || len(c.turn.nesteds) > maxCalls {
		t.Errorf("a turn keeps %d calls, %d requests and %d nested works", len(c.turn.calls), len(c.turn.asks), len(c.turn.nesteds))
	}
}

// transcripts draws lists of entries, most of them senseless, all of them in order.
func transcripts(t *rapid.T) []history.Entry {
	ids := rapid.SampledFrom([]string{"c1", "c2", "c3"})
	scopes := rapid.SampledFrom([]string{"", "", "", "c1", "c2"})
	n := rapid.IntRange(0, 40).Draw(t, "entries")
	var out []history.Entry
	for i := range n {
		id, scope := ids.Draw(t, "call"), scopes.Draw(t, "scope")
		approval := "a" + id + rapid.SampledFrom([]string{"", "'"}).Draw(t, "revision")
		var e history.Entry
		switch rapid.IntRange(0, 10).Draw(t, "kind") {
		case 0, 1:
			e = says("x")
		case 2, 3:
			e = reply(calls(id, "run_shell"))
		case 4:
			e = asks(id, approval)
		case 5:
			e = decides(id, approval, rapid.SampledFrom([]approvals.State{approvals.Approved, approvals.Denied, approvals.Expired}).Draw(t, "state"))
		case 6:
			e = edits(id, approval)
		case 7:
			e = intends(id)
		case 8:
			e = result(id, "run_shell")
			e.Result.Unknown = rapid.Bool().Draw(t, "unknown")
		case 9:
			e = begins(id, "n", rapid.SampledFrom([]history.NestedKind{history.NestedAgent, history.NestedWorkflow}).Draw(t, "nested"))
		case 10:
			e = ends(history.EndDone)
		}
		e.Scope = scope
		e.At = at(i)
		out = append(out, e)
	}
	return script(0, out...)
}

// The spans of a transcript do not depend on how often the program was restarted.
func TestARestartChangesNoSpan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := transcripts(rt)
		o, whole := observer(t, Config{Instance: "bot"})
		feed(o, all)

		var pieces tracetest.SpanStubs
		for from := 0; from < len(all); {
			to := rapid.IntRange(from+1, len(all)).Draw(rt, "restart")
			o, kept := observer(t, Config{Instance: "bot"})
			o.Resumed(thread, all[:from])
			for i := from; i < to; i++ {
				feed(o, all[i:i+1])
				if rapid.IntRange(0, 4).Draw(rt, "claimed anew") == 0 {
					o.Resumed(thread, all[:i+1])
				}
			}
			pieces = append(pieces, kept.GetSpans()...)
			from = to
		}
		if a, b := told(whole.GetSpans()), told(pieces); !reflect.DeepEqual(a, b) {
			rt.Fatalf("one run says\n%s\nseveral say\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
	})
}

func told(spans tracetest.SpanStubs) []string {
	var out []string
	for _, s := range spans {
		out = append(out, fmt.Sprint(s.SpanContext.TraceID(), s.SpanContext.SpanID(), s.Parent.SpanID(), s.Name, s.StartTime.Format(time.RFC3339), s.EndTime.Format(time.RFC3339), s.Attributes, s.Status))
	}
	return out
}
