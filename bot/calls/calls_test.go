package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/console/api"
	"countersign/store"
	"countersign/store/mem"
	"countersign/tools"
)

// world is a bot of which only the beginnings of calls are real.
type world struct {
	*Calls
	mu     sync.Mutex
	asked  []chat.Event
	why    string
	opened map[string]string // channel by key
	said   []chat.Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	w := &world{opened: map[string]string{}}
	w.Calls = New(Config{
		DB: db, Channel: func() string { return "" }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") },
		Clean:  func() Cleaner { return plainCleaner{} },
		Opener: func(scheme string) chat.Opener {
			if scheme != "web" {
				return nil
			}
			return w
		},
		Ask: func(_ context.Context, ev chat.Event, _ agent.Command) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, ev)
			return w.why, nil
		},
		Deliver: func(_ context.Context, ev chat.Event) error { w.said = append(w.said, ev); return nil },
		Tools:   func() []api.ToolInfo { return nil },
	})
	return w
}

type plainCleaner struct{}

func (plainCleaner) Write(s string) string { return s }
func (plainCleaner) Flush() string         { return "" }

func (w *world) Open(_ context.Context, _, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[key] = p.Text
	return chat.ThreadID("web:" + key), "", nil
}

var alice = api.Asker{User: chat.User{ID: "web:alice", Name: "alice"}}

func TestTheSameKeyIsTheSameCall(t *testing.T) {
	w := newWorld(t)
	ask := api.CallRequest{Key: "k", Target: "local", Command: "uptime"}
	one, err := w.Ask(t.Context(), alice, nil, ask)
	two, err2 := w.Ask(t.Context(), alice, nil, ask)
	if err != nil || err2 != nil || one.ID != two.ID || one.Thread != two.Thread || len(w.opened) != 1 {
		t.Errorf("%+v %+v %v %v, opened %v", one, two, err, err2, w.opened)
	}
	for _, ev := range w.asked {
		if ev.ID != w.asked[0].ID { // the agent takes each event once
			t.Errorf("begun as %q and %q", ev.ID, w.asked[0].ID)
		}
	}
	ask.Command = "reboot"
	var no *api.CallError
	if _, err := w.Ask(t.Context(), alice, nil, ask); !errors.As(err, &no) || !no.Conflict {
		t.Errorf("another command with the key: %v", err)
	}
	if x, err := w.Ask(t.Context(), api.Asker{User: chat.User{ID: "web:bob", Name: "bob"}}, nil, ask); err != nil || x.ID == one.ID {
		t.Errorf("somebody else's key: %+v %v", x, err)
	}
}

// An event is known for a week and a key for a month, so a key that comes again late must not begin
// what may have run.
func TestALateKeyBeginsNothing(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.cfg.Now = func() time.Time { return now }
	ask := api.CallRequest{Key: "k", Target: "local", Command: "uptime"}
	if _, err := w.Ask(t.Context(), alice, nil, ask); err != nil || len(w.asked) != 1 {
		t.Fatal(err, w.asked)
	}
	now = now.Add(8 * 24 * time.Hour)
	x, err := w.Ask(t.Context(), alice, nil, ask)
	if err != nil || len(w.asked) != 1 || !x.Unknown || x.State != chat.ExecDone || x.Note == "" {
		t.Errorf("%+v %v, begun %d times", x, err, len(w.asked))
	}
	ask.Way, ask.Program, ask.Host = "api", "release-bot", "another-runner"
	now = now.Add(time.Hour)
	if _, err := w.Ask(t.Context(), alice, nil, ask); err != nil {
		t.Errorf("the same command from another machine: %v", err)
	}
}

func TestACallIsItsAskersAlone(t *testing.T) {
	w := newWorld(t)
	one, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: "k", Target: "local", Command: "uptime"})
	if err != nil {
		t.Fatal(err)
	}
	bob := api.Asker{User: chat.User{ID: "web:bob"}}
	var no *api.CallError
	if _, err := w.Wait(t.Context(), bob, one.ID, "", 0); !errors.As(err, &no) || !no.Missing {
		t.Errorf("read: %v", err)
	}
	if err := w.Withdraw(t.Context(), bob, one.ID); !errors.As(err, &no) || !no.Missing || len(w.said) > 0 {
		t.Errorf("withdrawn: %v %v", err, w.said)
	}
	if err := w.Output(t.Context(), bob, one.ID, func(api.Output) error { return nil }); !errors.As(err, &no) {
		t.Errorf("its output: %v", err)
	}
	if all, err := w.Calls.Open(t.Context(), bob, false); err != nil || len(all) != 0 {
		t.Errorf("listed: %v %v", all, err)
	}
	if all, err := w.Calls.Open(t.Context(), alice, false); err != nil || len(all) != 1 {
		t.Errorf("its own list: %v %v", all, err)
	}
}

func TestATaskIsOneConversationUnlessItsCallsAreOpenSideBySide(t *testing.T) {
	w := newWorld(t)
	ask := func(key, task string) api.Call {
		t.Helper()
		x, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: key, Task: task, Target: "local", Command: "uptime", Way: "mcp", Program: "coder"})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	over := func(x api.Call) {
		t.Helper()
		if err := w.cfg.DB.Update(t.Context(), func(tx store.Tx) error {
			Refuse(tx, chat.EventID(prefix+x.ID), "it is over")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	one := ask("1", "a")
	beside := ask("2", "a")
	if one.Thread == beside.Thread {
		t.Errorf("two open calls are in %s", one.Thread)
	}
	over(one)
	if next := ask("3", "a"); next.Thread != one.Thread {
		t.Errorf("after the first has ended: %s, and it was in %s", next.Thread, one.Thread)
	}
	if other := ask("4", "b"); other.Thread == one.Thread || other.Thread == beside.Thread {
		t.Errorf("another task is in %s", other.Thread)
	}
	for i := range maxBeside + 2 {
		_, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: fmt.Sprint("many", i), Task: "a", Target: "local", Command: "uptime", Way: "mcp", Program: "coder"})
		if no := (*api.CallError)(nil); err != nil && !errors.As(err, &no) {
			t.Fatal(err)
		} else if err != nil {
			return
		}
	}
	t.Error("any number of calls can be open side by side")
}

func TestWhatCantBeginSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.why = "You can't use that."
	x, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: "k", Target: "local", Command: "uptime"})
	if err != nil || x.State != chat.ExecDone || !x.Failed || x.Note != "You can't use that" {
		t.Errorf("%+v %v", x, err)
	}
	for what, a := range map[string]api.CallRequest{
		"no key": {Target: "local", Command: "ls"}, "a huge key": {Key: strings.Repeat("k", 200), Target: "local", Command: "ls"}, "nothing": {Key: "1"},
		"both": {Key: "2", Command: "ls", Tool: "read_file"}, "no target": {Key: "3", Command: "ls"}, "a NUL": {Key: "4", Target: "local", Command: "ls\x00"},
		"a huge command": {Key: "5", Target: "local", Command: strings.Repeat("x", maxCommand+1)}, "arguments that are none": {Key: "6", Tool: "read_file", Args: []byte("{")},
		"a job without a token": {Key: "7", Target: "local", Command: "ls", Way: "job"}, "an unknown way": {Key: "8", Target: "local", Command: "ls", Way: "magic"},
	} {
		var no *api.CallError
		if x, err := w.Ask(t.Context(), alice, nil, a); !errors.As(err, &no) || strings.Count(no.Sentence, "\n") > 0 {
			t.Errorf("%s: %+v %v", what, x, err)
		}
	}
	if len(w.asked) != 1 {
		t.Errorf("%d were asked", len(w.asked))
	}
}

func TestSecretsStayOutOfTheConversationsTitle(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: "k", Target: "local", Command: "login hunter2"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range w.opened {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "local: login") {
			t.Errorf("%q", text)
		}
	}
}

// Whoever looks at a running command's output gets it from its beginning. Whoever is too slow for what is held learns
// that, and who isn't gets all of it, however long it is.
func TestOutputIsStreamedFromItsBeginning(t *testing.T) {
	w := newWorld(t)
	hear, end := w.Begin("web:t", "c1")
	hear(tools.Event{Kind: tools.Stdout, Text: "one\n"})
	s := w.stream("c1")
	pieces, _, over, more := s.from(0)
	if len(pieces) != 1 || pieces[0].Stdout != "one\n" || over {
		t.Fatalf("%+v %v", pieces, over)
	}
	hear(tools.Event{Kind: tools.Stderr, Text: "two\n"})
	<-more
	end()
	if pieces, _, over, _ = s.from(1); len(pieces) != 1 || pieces[0].Stderr != "two\n" || !over {
		t.Errorf("%+v %v", pieces, over)
	}
	if len(w.streams.all) != 0 {
		t.Error("it is kept after its end")
	}
	hear, end = w.Begin("web:t", "c2")
	s = w.stream("c2")
	n := 0
	for range 10 {
		hear(tools.Event{Kind: tools.Stdout, Text: strings.Repeat("x", maxHeld/3)})
		pieces, missed, _, _ := s.from(n)
		if n += len(pieces); missed || len(pieces) != 1 {
			t.Fatalf("who listens misses something: %d pieces", len(pieces))
		}
	}
	end()
	if _, missed, over, _ := s.from(0); !missed || !over {
		t.Error("a late listener isn't told that the beginning is missing")
	}
}

func (w *world) stream(call string) *stream {
	w.streams.mu.Lock()
	defer w.streams.mu.Unlock()
	return w.streams.all[streamName("web:t", call)]
}

// What a command has printed that has ended comes from where it is kept, without what was passed on before.
func TestOutputThatHasEndedIsTheOneThatWasKept(t *testing.T) {
	w := newWorld(t)
	kept := []tools.Event{{Kind: tools.Stdout, Text: "a\xff"}, {Kind: tools.Stderr, Text: "warning\n"}, {Kind: tools.Stdout, Text: "b"}}
	whole := true
	w.cfg.Kept = func(_ context.Context, thread chat.ThreadID, id string, pass func(tools.Event) error) (bool, error) {
		if thread != "web:t" || id != "out-00000001" {
			return false, chat.ErrGone
		}
		for _, e := range kept {
			if err := pass(e); err != nil {
				return false, err
			}
		}
		return whole, nil
	}
	get := func(x chat.CallStatus, out, errs int) (got api.Output) {
		t.Helper()
		err := w.rest(t.Context(), api.Call{Thread: "web:t", CallStatus: x}, out, errs, func(p api.Output) error {
			got = api.Output{Stdout: got.Stdout + p.Stdout, Stderr: got.Stderr + p.Stderr, End: p.End}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := get(chat.CallStatus{Kept: "out-00000001", Stdout: "a..."}, 0, 0); got != (api.Output{Stdout: "a\xffb", Stderr: "warning\n", End: true}) {
		t.Errorf("%+v", got)
	}
	if got := get(chat.CallStatus{Kept: "out-00000001"}, 1, 3); got != (api.Output{Stdout: "\xffb", Stderr: "ning\n", End: true}) {
		t.Errorf("after some of it: %+v", got)
	}
	if got := get(chat.CallStatus{Stdout: "short", Stderr: "e"}, 2, 0); got != (api.Output{Stdout: "ort", Stderr: "e", End: true}) {
		t.Errorf("all of it is in the result: %+v", got)
	}
	if got := get(chat.CallStatus{Kept: "out-00000002"}, 0, 0); got.End {
		t.Errorf("it expired: %+v", got)
	}
	if whole = false; get(chat.CallStatus{Kept: "out-00000001"}, 0, 0).End {
		t.Error("a part of it is said to be all")
	}
}

// A program that runs what is allowed itself has no use for a decision once it has gone.
func TestWhatAProgramAskedForThatHasGoneIsTakenBack(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	var mu sync.Mutex
	w.cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	x, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: "k", Tool: "allow_command", Args: []byte("{}"), Way: "hook", Program: "coder"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Wait(ctx, alice, x.ID, "", time.Minute); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(w.gone) != 1 {
		t.Fatal("nobody noticed that it has gone")
	}
	w.takeBack(t.Context(), <-w.gone)
	if len(w.said) != 1 || w.said[0].Text != "stop" || w.said[0].From != alice.User {
		t.Errorf("%+v", w.said)
	}
	// One that asks again meanwhile has only lost its connection.
	l := left{x.ID, alice, now}
	now = now.Add(time.Second)
	if err := w.heard(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	w.takeBack(t.Context(), l)
	if len(w.said) != 1 {
		t.Errorf("%+v", w.said)
	}
}

// A token that only asks sees, stops and repeats what it asked for itself; its person has all of theirs.
func TestATokensCallsAreItsOwn(t *testing.T) {
	w := newWorld(t)
	one, two := alice, alice
	one.Token, two.Token = "token:1", "token:2"
	ask := api.CallRequest{Key: "k", Task: "t", Target: "local", Command: "uptime", Way: "api", Program: "coder"}
	mine, err := w.Ask(t.Context(), one, nil, ask)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []api.Asker{two, alice} {
		other, err := w.Ask(t.Context(), by, nil, ask)
		if err != nil || other.ID == mine.ID || other.Thread == mine.Thread {
			t.Errorf("the same key of %q is the same call: %+v %v", by.Token, other, err)
		}
	}
	changed := ask
	changed.Command = "df"
	if _, err := w.Ask(t.Context(), one, nil, changed); err == nil {
		t.Error("the key of another command is free")
	}
	var no *api.CallError
	if _, err := w.Wait(t.Context(), two, mine.ID, "", 0); !errors.As(err, &no) || !no.Missing {
		t.Errorf("it reads another's: %v", err)
	}
	if err := w.Withdraw(t.Context(), two, mine.ID); !errors.As(err, &no) || !no.Missing || len(w.said) > 0 {
		t.Errorf("it withdraws another's: %v", err)
	}
	for by, want := range map[api.Asker]int{one: 1, two: 1, alice: 3} {
		if all, err := w.Calls.Open(t.Context(), by, false); err != nil || len(all) != want {
			t.Errorf("%q sees %d, %v", by.Token, len(all), err)
		}
	}
	if _, err := w.Wait(t.Context(), alice, mine.ID, "", 0); err != nil {
		t.Errorf("a person doesn't see their program's: %v", err)
	}
}

// Whoever lost the answer to a call finds what became of it for an hour.
func TestACallThatHasEndedIsListedForAnHour(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.cfg.Now = func() time.Time { return now }
	w.why = "There is no such target."
	x, err := w.Ask(t.Context(), alice, nil, api.CallRequest{Key: "k", Target: "nowhere", Command: "uptime"})
	if err != nil || x.State != chat.ExecDone {
		t.Fatal(x, err)
	}
	listed := func(ended bool) int {
		t.Helper()
		all, err := w.Calls.Open(t.Context(), alice, ended)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if open, all := listed(false), listed(true); open != 0 || all != 1 {
		t.Errorf("%d are open, %d in all", open, all)
	}
	now = now.Add(time.Hour + time.Second)
	if n := listed(true); n != 0 {
		t.Errorf("%d after an hour", n)
	}
}
