package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
)

var t0 = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func message(text string) history.Entry {
	return history.Entry{At: t0, Kind: history.KindMessage, Message: &history.Message{From: chat.User{ID: "web:alice", Name: "alice"}, Text: text}}
}

func reply(finish llm.Finish, ids ...string) history.Entry {
	r := &history.Reply{Finish: finish, Usage: llm.Usage{In: 100, Out: 10}}
	for _, id := range ids {
		r.Calls = append(r.Calls, llm.Call{ID: id, Name: "run_shell", Args: "{}"})
	}
	return history.Entry{At: t0, Kind: history.KindReply, Reply: r}
}

func result(id string) history.Entry {
	return history.Entry{At: t0, Kind: history.KindResult, Result: &history.Result{Call: id, Text: "ok"}}
}

func asked(id string) history.Entry {
	return history.Entry{At: t0, Kind: history.KindAsk, Ask: &history.Ask{Call: id, Approval: approvals.ID("a-" + id)}}
}

func decided(id string, s approvals.State) history.Entry {
	return history.Entry{At: t0.Add(time.Hour), Kind: history.KindDecision, Decision: &history.Decision{Call: id, Approval: approvals.ID("a-" + id), State: s}}
}

func edited(id string) history.Entry {
	return history.Entry{At: t0.Add(time.Hour), Kind: history.KindEdited, Edited: &history.Edited{Call: id, Approval: approvals.ID("a-" + id), Argument: "command", Text: "x"}}
}

func askedAgain(id string) history.Entry {
	return history.Entry{At: t0, Kind: history.KindAsk, Ask: &history.Ask{Call: id, Approval: approvals.ID("b-" + id)}}
}

func intent(id string) history.Entry {
	return history.Entry{At: t0, Kind: history.KindIntent, Intent: &history.Intent{Call: id}}
}

// journaled is the intent of a call of which its machine keeps a note.
func journaled(id string) history.Entry {
	e := intent(id)
	e.Intent.Noted = true
	return e
}

func stopEntry() history.Entry {
	return history.Entry{At: t0, Kind: history.KindStop, Stop: &history.Stop{}}
}

func ended() history.Entry {
	return history.Entry{At: t0, Kind: history.KindEnd, End: &history.End{Reason: history.EndDone}}
}

func taken() history.Entry {
	return history.Entry{At: t0, Kind: history.KindPen, Pen: &history.Pen{By: chat.User{Name: "ann"}, Taken: true}}
}

func given(after time.Duration) history.Entry {
	return history.Entry{At: t0.Add(after), Kind: history.KindPen, Pen: &history.Pen{By: chat.User{Name: "ann"}}}
}

func noted() history.Entry {
	return history.Entry{At: t0, Kind: history.KindNote, Note: &history.Note{Text: "ann typed ls"}}
}

func denied(id string) history.Entry {
	e := result(id)
	e.Result.Denied = true
	return e
}

// aside is an entry of the thread's aside.
func aside(e history.Entry) history.Entry {
	e.Scope = history.Aside
	return e
}

func askedBoth(ids ...string) history.Entry {
	e := asked(ids[0])
	e.Ask.Batch = ids
	return e
}

func begun(id string) history.Entry {
	return history.Entry{At: t0, Kind: history.KindBatch, Batch: &history.Batch{Call: id}}
}

func fromBot(e history.Entry) history.Entry {
	e.Message.From.Bot = true
	return e
}

func TestNext(t *testing.T) {
	lim := Limits{Steps: 3, Tokens: 1000, Wall: 10 * time.Minute}
	for _, tc := range []struct {
		rule    string
		entries []history.Entry
		now     time.Time
		want    stepKind
		call    string
	}{
		{"an empty thread is idle", nil, t0, stepIdle, ""},
		{"a message asks the model", []history.Entry{message("hi")}, t0, stepModel, ""},
		{"a reply without calls ends the turn", []history.Entry{message("hi"), reply(llm.FinishStop)}, t0, stepEnd, ""},
		{"an ended turn is idle", []history.Entry{message("hi"), reply(llm.FinishStop), ended()}, t0, stepIdle, ""},
		{"a message after the end starts a new turn", []history.Entry{message("hi"), reply(llm.FinishStop), ended(), message("more")}, t0, stepModel, ""},
		{"a message that came during the reply is steered in", []history.Entry{message("hi"), reply(llm.FinishStop), message("wait")}, t0, stepModel, ""},
		{"a stop ends the turn, whatever was said after it", []history.Entry{message("hi"), stopEntry(), message("more")}, t0, stepStop, ""},
		{"what was said after the stop begins the next turn", []history.Entry{message("hi"), stopEntry(), message("more"), ended()}, t0, stepModel, ""},
		{"unless there was another stop after it", []history.Entry{message("hi"), stopEntry(), message("more"), stopEntry(), ended()}, t0, stepIdle, ""},
		{"what was said before the stop is over with it", []history.Entry{message("hi"), message("more"), stopEntry(), ended()}, t0, stepIdle, ""},
		{"a call is proposed", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2")}, t0, stepPropose, "1"},
		{"calls go in order", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), result("1")}, t0, stepPropose, "2"},
		{"an asked call waits", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1")}, t0, stepWait, "1"},
		{"a message during the waiting asks the model, in the aside", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?")}, t0, stepModel, "1"},
		{"after its answer the request waits on", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishStop)), aside(ended())}, t0, stepWait, "1"},
		{"another message is answered, too", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishStop)), aside(ended()), message("and?")}, t0, stepModel, "1"},
		{"what a bot says during the waiting is read after it", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), fromBot(message("alert"))}, t0, stepWait, "1"},
		{"in the aside, calls are proposed", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishCalls, "2"))}, t0, stepPropose, "2"},
		{"and their results go to the model", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishCalls, "2")), aside(result("2"))}, t0, stepModel, "1"},
		{"a decision comes before the aside", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), decided("1", approvals.Approved)}, t0, stepRun, "1"},
		{"also before its open calls", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishCalls, "2")), decided("1", approvals.Approved)}, t0, stepRun, "1"},
		{"which are closed before the model goes on", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishCalls, "2")), decided("1", approvals.Approved), result("1")}, t0, stepMoot, "2"},
		{"and then it does", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), message("why?"), aside(reply(llm.FinishCalls, "2")), decided("1", approvals.Approved), result("1"), aside(result("2"))}, t0, stepModel, ""},
		{"an approval of several calls begins them", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), askedBoth("1", "2"), decided("1", approvals.Approved)}, t0, stepBatch, "1"},
		{"each is then proposed in its turn", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), askedBoth("1", "2"), decided("1", approvals.Approved), begun("1")}, t0, stepPropose, "1"},
		{"and runs by its own request", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), askedBoth("1", "2"), decided("1", approvals.Approved), begun("1"), askedAgain("1"), {At: t0, Kind: history.KindDecision, Decision: &history.Decision{Call: "1", Approval: "b-1", State: approvals.Approved}}}, t0, stepRun, "1"},
		{"what was not approved together is skipped together", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), askedBoth("1", "2"), decided("1", approvals.Expired), result("1")}, t0, stepSkip, "2"},
		{"after a withdrawal the rest of the reply is skipped", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), asked("1"), decided("1", approvals.Cancelled), result("1")}, t0, stepSkip, "2"},
		{"an approved call runs", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Approved)}, t0, stepRun, "1"},
		{"a denied call is refused", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Denied)}, t0, stepRefuse, "1"},
		{"an expired call is refused", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Expired)}, t0, stepRefuse, "1"},
		{"the first decision counts", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Denied), decided("1", approvals.Approved)}, t0, stepRefuse, "1"},
		{"a decision without a request counts for nothing", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), decided("1", approvals.Approved)}, t0, stepPropose, "1"},
		{"an intent without an outcome is unknown", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Approved), intent("1")}, t0, stepResume, "1"},
		{"after a denial the rest of the reply is skipped", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), denied("1")}, t0, stepSkip, "2"},
		{"an edited call is proposed again", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), edited("1")}, t0, stepPropose, "1"},
		{"an edited call that is asked again waits", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), edited("1"), askedAgain("1")}, t0, stepWait, "1"},
		{"an approval of what was edited away counts for nothing", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), edited("1"), askedAgain("1"), decided("1", approvals.Approved)}, t0, stepWait, "1"},
		{"an edit of what was edited away counts for nothing", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), edited("1"), askedAgain("1"), edited("1")}, t0, stepWait, "1"},
		{"an edit after a decision counts for nothing", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Denied), edited("1")}, t0, stepRefuse, "1"},
		{"an edit without a request counts for nothing", []history.Entry{message("hi"), reply(llm.FinishCalls, "1", "2"), result("1"), edited("2")}, t0, stepPropose, "2"},
		{"stop beats an edit", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), edited("1"), stopEntry()}, t0, stepStop, ""},
		{"waiting for an edit is not work", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), edited("1"), result("1")}, t0.Add(time.Hour + 5*time.Minute), stepModel, ""},
		{"calls of a cut reply do not run", []history.Entry{message("hi"), reply(llm.FinishLength, "1")}, t0, stepReject, "1"},
		{"stop closes an open call", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), stopEntry()}, t0, stepStop, ""},
		{"what may run is found before a stop counts", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Approved), journaled("1"), stopEntry()}, t0, stepResume, "1"},
		{"a stop ends what nothing tells of", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Approved), intent("1"), stopEntry()}, t0, stepStop, ""},
		{"stop beats an approval", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Approved), stopEntry()}, t0, stepStop, ""},
		{"stop without a turn does nothing", []history.Entry{stopEntry()}, t0, stepIdle, ""},
		{"all results in, the model goes on", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), result("1")}, t0, stepModel, ""},
		{"the step limit ends the turn", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), result("1"), reply(llm.FinishCalls, "2"), result("2"), reply(llm.FinishCalls, "3"), result("3")}, t0, stepLimit, ""},
		{"the wall limit ends the turn", []history.Entry{message("hi")}, t0.Add(11 * time.Minute), stepLimit, ""},
		{"waiting for people is not work", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), decided("1", approvals.Denied), result("1")}, t0.Add(time.Hour + 5*time.Minute), stepModel, ""},
		{"nothing is asked of the model while a person has the keyboard", []history.Entry{taken(), message("hi")}, t0, stepPaused, ""},
		{"nothing is proposed while a person has the keyboard", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), taken()}, t0, stepPaused, "1"},
		{"an approved call waits for the keyboard", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), taken(), decided("1", approvals.Approved)}, t0, stepPaused, "1"},
		{"a denial needs no keyboard", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), asked("1"), taken(), decided("1", approvals.Denied)}, t0, stepRefuse, "1"},
		{"stop needs no keyboard", []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), taken(), stopEntry()}, t0, stepStop, ""},
		{"the keyboard outlives a turn", []history.Entry{message("hi"), taken(), stopEntry(), ended(), message("more")}, t0, stepPaused, ""},
		{"the agent goes on when it is given back", []history.Entry{message("hi"), taken(), given(time.Minute)}, t0, stepModel, ""},
		{"the time of a person is not work", []history.Entry{message("hi"), taken(), given(time.Hour)}, t0.Add(time.Hour + 5*time.Minute), stepModel, ""},
		{"a note begins no turn", []history.Entry{noted()}, t0, stepIdle, ""},
		{"a note within a turn is read", []history.Entry{message("hi"), reply(llm.FinishStop), noted()}, t0, stepModel, ""},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			got := fold(tc.entries).next(tc.now, lim)
			if got.kind != tc.want || got.call.ID != tc.call {
				t.Fatalf("got %s %q, want %s %q", got.kind, got.call.ID, tc.want, tc.call)
			}
		})
	}
}

// TestLimits: each limit holds by itself, from its number on, and 0 is none.
func TestLimits(t *testing.T) {
	two := []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), result("1"), reply(llm.FinishCalls, "2"), result("2")} // 110 tokens each
	minute := t0.Add(time.Minute)
	for _, tc := range []struct {
		rule string
		lim  Limits
		now  time.Time
		want stepKind
		says string
	}{
		{"no limits", Limits{}, minute, stepModel, ""},
		{"as many steps as may be", Limits{Steps: 2}, t0, stepLimit, "its limit of 2 steps"},
		{"one step less", Limits{Steps: 3}, t0, stepModel, ""},
		{"as many tokens as may be, in and out", Limits{Tokens: 220}, t0, stepLimit, "its limit of 220 tokens"},
		{"one token less", Limits{Tokens: 221}, t0, stepModel, ""},
		{"as long as may be", Limits{Wall: time.Minute}, minute, stepLimit, "its limit of 1 minute of work"},
		{"a moment less", Limits{Wall: time.Minute + 1}, minute, stepModel, ""},
	} {
		if got := fold(two).next(tc.now, tc.lim); got.kind != tc.want || (tc.says == "") != (got.limit == "") || !strings.Contains(got.limit, tc.says) {
			t.Errorf("%s: %s %q", tc.rule, got.kind, got.limit)
		}
	}
}

// TestNextProperties drives next with random histories that follow its own
// steps, with people interrupting at any point, and with nested work in any call.
func TestNextProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []history.Entry
		grown := newThreadState()
		add := func(scope string, all ...history.Entry) {
			for _, e := range all {
				e.Scope = scope
				entries = append(entries, e)
				grown.add(&e)
			}
		}
		add("", message("go"))
		intents, results := map[string]int{}, map[string]int{}
		n, waits := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			if rapid.IntRange(0, 9).Draw(t, "interrupt") == 0 {
				add("", rapid.SampledFrom([]history.Entry{message("and?"), stopEntry(), taken(), given(time.Minute), noted()}).Draw(t, "what"))
			}
			if wait := grown.nextOf(t0, Limits{}); wait.kind == stepWait && rapid.IntRange(0, 3).Draw(t, "decide") == 0 {
				add(wait.scope(), decided(wait.call.ID, rapid.SampledFrom([]approvals.State{approvals.Approved, approvals.Denied, approvals.Cancelled}).Draw(t, "decision")))
			}
			s := fold(entries).next(t0, Limits{})
			if again := grown.clone().next(t0, Limits{}); again.kind != s.kind || again.call.ID != s.call.ID || again.scope() != s.scope() {
				t.Fatalf("next is not a function of the entries: %v, and %v when they come one by one", s, again)
			}
			calls := func() []string {
				ids := make([]string, rapid.IntRange(0, 3).Draw(t, "calls"))
				for i := range ids {
					n++
					ids[i] = fmt.Sprint("c", n)
				}
				return ids
			}
			switch s.kind {
			case stepModel:
				if s.inAside() && rapid.Bool().Draw(t, "answered") {
					add(s.scope(), reply(llm.FinishStop), ended())
					continue
				}
				if open := grown.openCalls(""); !s.inAside() && s.scope() == "" && len(open) > 0 {
					t.Fatalf("the model is asked while %v are open", open)
				}
				add(s.scope(), reply(llm.FinishCalls, calls()...))
			case stepPropose:
				if s.inAside() { // nothing can be requested there
					add(s.scope(), result(s.call.ID))
					continue
				}
				switch rapid.IntRange(0, 3).Draw(t, "lane") {
				case 0:
					add(s.scope(), result(s.call.ID))
				case 1:
					kind := rapid.SampledFrom([]history.NestedKind{history.NestedAgent, history.NestedWorkflow}).Draw(t, "nested")
					add(s.call.ID, history.Entry{At: t0, Kind: history.KindBegin, Begin: &history.Begin{Call: s.call.ID, Kind: kind, Steps: 3}})
				default:
					e := asked(s.call.ID)
					if open := s.turn.openCalls(); len(open) > 1 && !s.turn.batched && rapid.Bool().Draw(t, "together") {
						for _, c := range open {
							e.Ask.Batch = append(e.Ask.Batch, c.ID)
						}
					}
					add(s.scope(), e)
				}
			case stepReturn:
				add(s.scope(), result(s.call.ID))
			case stepFlow:
				switch waits++; rapid.IntRange(0, 3).Draw(t, "flow") {
				case 0:
					add(s.scope(), happened(waits, history.StepAsked))
				case 1:
					add(s.scope(), happened(waits, history.StepWaiting))
				case 2:
					add(s.scope(), reply(llm.FinishCalls, calls()...))
				default:
					add(grown.scopes[s.call.ID], result(s.call.ID))
				}
			case stepAnswer:
				add(s.scope(), happened(waits, history.StepAnswered))
			case stepTimer:
				add(s.scope(), happened(waits, history.StepWaited))
			case stepWait:
				if rapid.IntRange(0, 3).Draw(t, "edit") == 0 {
					add(s.scope(), edited(s.call.ID))
					continue
				}
				add(s.scope(), decided(s.call.ID, rapid.SampledFrom([]approvals.State{approvals.Approved, approvals.Denied, approvals.Expired}).Draw(t, "decision")))
			case stepBatch:
				e := result(s.call.ID) // it is no longer what was approved
				if rapid.Bool().Draw(t, "as approved") {
					e = history.Entry{At: t0, Kind: history.KindBatch, Batch: &history.Batch{Call: s.call.ID}}
				}
				add(s.scope(), e)
			case stepRun:
				if intents[s.call.ID] > 0 {
					t.Fatalf("%s would run twice", s.call.ID)
				}
				intents[s.call.ID]++
				add(s.scope(), intent(s.call.ID))
				if rapid.IntRange(0, 3).Draw(t, "crash") > 0 {
					add(s.scope(), result(s.call.ID))
				}
			case stepRefuse, stepSkip, stepReject, stepResume, stepMoot:
				add(s.scope(), result(s.call.ID))
			case stepStop:
				for _, c := range grown.openCalls("") {
					add(c.scope, result(c.ID))
				}
				if left := grown.openCalls(""); len(left) > 0 {
					t.Fatalf("%v are left open", left)
				}
				add("", ended())
			case stepEnd, stepLimit:
				add("", ended())
			case stepIdle:
				add("", message("next"))
			case stepPaused:
				add("", given(time.Minute))
			}
		}
		for _, e := range entries {
			if e.Result != nil {
				if results[e.Result.Call]++; results[e.Result.Call] > 1 {
					t.Fatalf("%s has two results", e.Result.Call)
				}
			}
		}
	})
}

func happened(n int, what history.StepKind) history.Entry {
	return history.Entry{At: t0, Kind: history.KindStep, Step: &history.Step{ID: fmt.Sprint("s", n), What: what}}
}

// BenchmarkFold folds a long log, whole and by what is new.
func BenchmarkFold(b *testing.B) {
	var entries []history.Entry
	for i := range 2500 {
		id := fmt.Sprint("c", i)
		entries = append(entries, reply(llm.FinishCalls, id), asked(id), decided(id, approvals.Approved), result(id))
		if i%10 == 9 {
			entries = append(entries, ended(), message("more"))
		}
	}
	entries = append([]history.Entry{message("go")}, entries...)
	b.Run(fmt.Sprintf("%d entries", len(entries)), func(b *testing.B) {
		for b.Loop() {
			fold(entries).next(t0, Limits{})
		}
	})
	b.Run("one new entry", func(b *testing.B) {
		f, e := fold(entries), noted()
		for b.Loop() {
			f.add(&e)
			f.next(t0, Limits{})
		}
	})
}

// TestATurnThatCanOnlyFailEnds: replies in a row that only repeat what was refused as a repetition end it.
func TestATurnThatCanOnlyFailEnds(t *testing.T) {
	res := func(id, text string, repeated bool) history.Entry {
		return history.Entry{Kind: history.KindResult, Result: &history.Result{Call: id, Same: "a", Text: text, Failed: true, Skipped: repeated, Repeated: repeated}}
	}
	again := func(id string) []history.Entry {
		return []history.Entry{reply(llm.FinishCalls, id), res(id, "refused", true)}
	}
	begin := []history.Entry{message("hi"), reply(llm.FinishCalls, "1"), res("1", "Tool error: the file is missing.\nmore", false)}
	for _, tc := range []struct {
		rule    string
		entries [][]history.Entry
		want    string
	}{
		{"two repetitions may be", [][]history.Entry{begin, again("2"), again("3")}, ""},
		{"the third one ends it, with the reason", [][]history.Entry{begin, again("2"), again("3"), again("4")}, "fails every time: the file is missing. Say"},
		{"a reason that is only in its output is there already", [][]history.Entry{{message("hi"), reply(llm.FinishCalls, "1"), res("1", `{"exit_code":7}`, false)}, again("2"), again("3"), again("4")}, "fails every time. Say"},
		{"another call between them is another attempt", [][]history.Entry{begin, again("2"), again("3"), {reply(llm.FinishCalls, "x"), result("x")}, again("4")}, ""},
		{"and so is another one beside it", [][]history.Entry{begin, again("2"), again("3"), {reply(llm.FinishCalls, "4", "x"), res("4", "refused", true), result("x")}}, ""},
		{"a person's message begins again", [][]history.Entry{begin, again("2"), again("3"), {message("and?")}, again("4")}, ""},
	} {
		s := fold(slices.Concat(tc.entries...)).next(t0, Limits{})
		if (s.kind == stepLimit) != (tc.want != "") || !strings.Contains(s.limit, tc.want) {
			t.Errorf("%s: %s %q", tc.rule, s.kind, s.limit)
		}
	}
}

// B-20: another error, a message and a change start the count anew.
func TestRepeated(t *testing.T) {
	res := func(same, way string, failed bool) history.Entry {
		return history.Entry{Kind: history.KindResult, Result: &history.Result{Same: same, Outcome: way, Failed: failed}}
	}
	changed := res("other", "w", false)
	changed.Result.Changed = true
	no := res("a", "denied", true)
	no.Result.Denied = true
	for _, tc := range []struct {
		rule    string
		entries []history.Entry
		want    repetition
	}{
		{"the same failure counts up", []history.Entry{message(""), res("a", "x", true), res("a", "x", true)}, repetition{failures: 2}},
		{"another failure starts anew", []history.Entry{message(""), res("a", "x", true), res("a", "y", true)}, repetition{failures: 1}},
		{"other calls do not count", []history.Entry{message(""), res("a", "x", true), res("b", "x", true)}, repetition{failures: 1}},
		{"a message of a person starts anew", []history.Entry{res("a", "x", true), message("again")}, repetition{}},
		{"a change that worked starts anew", []history.Entry{message(""), res("a", "x", true), changed}, repetition{}},
		{"the same success counts up", []history.Entry{message(""), res("a", "x", false), res("a", "x", false)}, repetition{successes: 2}},
		{"a denial is remembered", []history.Entry{message(""), no}, repetition{denied: true}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if got := repeated(tc.entries, "a"); got != tc.want {
				t.Fatalf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestTheSameCallHasTheSameContent: some tools keep the content out of the
// arguments, and another content is another call.
func TestTheSameCallHasTheSameContent(t *testing.T) {
	a := approvals.Action{Tool: "write_file", Args: []byte(`{"path":"/x"}`), Bytes: []byte("one")}
	b := a
	b.Bytes = []byte("two")
	if sameCall(a) == sameCall(b) {
		t.Error("a denial of one content would stand for another")
	}
}

func TestParseWord(t *testing.T) {
	words := newTable((&Agent{}).ownWords(), []Word{{Name: "undo", Args: OneID}})
	for text, want := range map[string]string{
		"stop": "stop", " Stop! ": "stop", "stop the nginx service": "", "status": "status", "help": "help",
		"approve abcdefgh23": "approve", "Approve  ABCDEFGH23": "approve", "approve `abcdefgh23`": "approve", "`approve abcdefgh23`": "approve", "approve abcdefgh23.": "approve",
		"approve abcdefgh23 pls\nsecond line": "approve", "approve abcdefgh23\napprove abcdefgh24": "", "approve abcdefgh23?": "", "/approve abcdefgh23": "", "!approve abcdefgh23": "",
		"I won't approve abcdefgh23": "", "> approve abcdefgh23": "", "approve of this": "", "approve": "", "deny abcdefgh23 not now": "deny", "deny him access": "",
		// An id that is wrong is answered, and no matter for the model.
		"approve zzz": "approve", "deny 7k2": "deny", "undo nosuch": "undo", "approve it": "", "deny all": "", "undo that": "", "undo": "",
	} {
		w, _, ok := words.parse(text)
		if !ok {
			w.Name = ""
		}
		if w.Name != want {
			t.Errorf("%q is %q, want %q", text, w.Name, want)
		}
	}
}
