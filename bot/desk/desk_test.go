package desk

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/agent/role"
	"countersign/agent/workflow"
	"countersign/approvals/policy"
	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/internal/config"
	"countersign/internal/rules"
	"countersign/store"
	"countersign/store/mem"
	"countersign/store/queue"
)

var (
	alice = chat.User{ID: "web:alice", Name: "alice"}
	eve   = chat.User{ID: "web:eve", Name: "eve"}
	guest = chat.User{ID: "slack:U9", Outside: true}
)

// all is a toolbox that has every tool.
type all struct{}

func (all) Has(chat.ThreadID, string) bool { return true }

func targets(t *testing.T) threads.Targets {
	t.Helper()
	f, off := config.Defaults(), false
	f.Groups = map[string]policy.Group{"oncall": {Web: []string{"alice"}}}
	f.Targets = map[string]config.TargetConfig{
		"local": {Kind: "local", Tmux: &off, Approvers: []string{"oncall"}, Labels: map[string]string{"env": "test"}},
		"db":    {Kind: "local", Tmux: &off, Users: []string{"oncall"}},
	}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	db := mem.Open()
	set, err := machines.NewSet(&machines.Options{File: f, DB: db, Env: config.Env{DataDir: t.TempDir()}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return threads.Targets{DB: db, Machines: set, Rules: func() *rules.Rules { return r }, Default: "local"}
}

func TestUseListsAndChooses(t *testing.T) {
	x := Targets{targets(t)}
	for _, tc := range []struct {
		rule string
		by   chat.User
		word string
		want string
	}{
		{"what somebody may use is listed", alice, "", "- `db`: local, not reached yet\n- `local` (env=test): local, not reached yet ← this thread\n"},
		{"and nothing else", eve, "", "thread works on:\n- `local`"},
		{"who may not use it is told why", eve, "db", "The target db is for people of oncall only; ask one of them."},
		{"there is no such target", alice, "nowhere", "There is no target nowhere; the targets are db, local."},
		{"who may use it chooses it", alice, "db", "This thread now works on `db`."},
		{"then it is the thread's", alice, "", "- `db`: local, reached, without terminals"},
	} {
		got, err := x.Use(t.Context(), "web:1", tc.by, nil, tc.word)
		if err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, %v", tc.rule, got, err)
		}
	}
}

func TestTheKeyboardIsForPeers(t *testing.T) {
	x := Terminals{Targets: targets(t), Log: slog.New(slog.DiscardHandler)}
	for _, tc := range []struct {
		rule string
		by   chat.User
		want string
	}{
		{"who watches is an observer", eve, "You can watch `local`"},
		{"a bot has no hands", chat.User{ID: "slack:B1", Bot: true}, "Bots can't take the keyboard."},
		{"an approver may, where there is a terminal", alice, "There is no terminal on `local`."},
	} {
		text, ok, err := x.Take(t.Context(), "web:1", tc.by, nil, "")
		if err != nil || ok || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %q %v %v", tc.rule, text, ok, err)
		}
	}
	if text := x.Sessions(t.Context(), "web:1"); !strings.Contains(text, "There is no terminal on `local`.") {
		t.Errorf("sessions: %q", text)
	}
}

func TestARoleIsGivenByTheTeam(t *testing.T) {
	set, err := role.New(role.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := Roles{threads.Roles{DB: mem.Open(), Set: set, In: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler)}}
	for _, tc := range []struct {
		rule string
		by   chat.User
		word string
		want string
	}{
		{"a guest may not", guest, "seraph", "Guests and bots can't change the role"},
		{"there is no such role", alice, "pope", "There is no role `pope`"},
		{"a member may", alice, "seraph", "From the next step on I'm `seraph`."},
		{"then it is the thread's", alice, "", "| `seraph` (now) |"},
		{"and can be taken back", alice, "default", "without a role"},
	} {
		got, err := x.Role(t.Context(), "web:1", tc.by, tc.word)
		if err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, %v", tc.rule, got, err)
		}
	}
}

// talk is an agent that notes what it is told.
type talk struct{ told []chat.Event }

func (*talk) Doing(chat.ThreadID) string { return "running uptime" }
func (a *talk) Deliver(_ context.Context, ev chat.Event) error {
	a.told = append(a.told, ev)
	return nil
}

func TestCommandsAnswerWhatBelongsToNoThread(t *testing.T) {
	library, err := workflow.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, a := targets(t), &talk{}
	c := Commands{
		DB: x.DB, Targets: x, Agent: a, Runbooks: Runbooks{Library: library, Tools: all{}}, Log: slog.New(slog.DiscardHandler),
		Opener: func(string) chat.Opener { return nil },
	}
	err = x.DB.Update(t.Context(), func(tx store.Tx) error {
		for _, thread := range []string{"slack:T:C1:1", "slack:T:C2:1"} {
			queue.Put(tx, queue.Item{ID: "event/" + thread, Thread: thread, Kind: "message", Body: []byte("{}")})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	q := chat.Inquiry{ID: "e1", From: alice, Within: "slack:T:C1:"}
	o, err := c.Overview(t.Context(), q)
	if err != nil || len(o.Busy) != 1 || o.Busy[0] != (chat.Busy{Thread: "slack:T:C1:1", Doing: "running uptime"}) {
		t.Errorf("what goes on in a channel: %+v, %v", o, err)
	}
	if list, err := c.Stop(t.Context(), q); err != nil || len(list) != 1 || len(a.told) != 1 || a.told[0].Text != "stop" || a.told[0].Thread != "slack:T:C1:1" {
		t.Errorf("stop: %v %v, told %+v", list, err, a.told)
	}
	for _, tc := range []struct {
		rule   string
		by     chat.User
		within string
		words  string
		thread chat.ThreadID
		want   string
	}{
		{"a guest begins nothing", guest, "web:1", "high-load", "", "Guests and bots can't start workflows"},
		{"without a name they are listed", alice, "web:1", "", "", "`high-load`"},
		{"there is none of that name", alice, "web:1", "x", "", "There is no workflow `x`."},
		{"an input is missing", alice, "web:1", "disk-full", "", "I didn't start `disk-full`"},
		{"a network that begins no threads", alice, "slack:T:C1:", "high-load", "", "I can't start threads here"},
		{"in a thread it begins", alice, "web:1", "high-load", "web:1", ""},
	} {
		thread, text, err := c.Run(t.Context(), chat.Inquiry{ID: "e2", From: tc.by, Within: tc.within}, tc.words)
		if err != nil || thread != tc.thread || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %q %q %v", tc.rule, thread, text, err)
		}
	}
	if last := a.told[len(a.told)-1]; last.Text != "run high-load" {
		t.Errorf("the agent was told %+v", last)
	}
}
