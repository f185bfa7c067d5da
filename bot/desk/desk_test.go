package desk

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/role"
	"countersign/agent/workflow"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/policy"
	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/config"
	"countersign/config/rules"
	"countersign/console/api"
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

func (all) Callable(string) bool { return true }

func targets(t *testing.T) threads.Targets {
	t.Helper()
	f, off := config.Defaults(), false
	f.Groups = map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice"}}}}
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
	x := Targets{Targets: targets(t)}
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
		got, err := x.Use(t.Context(), chat.Event{Thread: "web:1", From: tc.by}, agent.Args{ID: tc.word})
		if err != nil || !strings.Contains(got.Text, tc.want) {
			t.Errorf("%s: %+v, %v", tc.rule, got, err)
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
		got, err := x.Take(t.Context(), chat.Event{Thread: "web:1", From: tc.by}, agent.Args{})
		if err != nil || got.Pen != nil || !strings.Contains(got.Text, tc.want) {
			t.Errorf("%s: %+v %v", tc.rule, got, err)
		}
	}
	if got, err := x.Sessions(t.Context(), chat.Event{Thread: "web:1"}, agent.Args{}); err != nil || !strings.Contains(got.Text, "There is no terminal on `local`.") {
		t.Errorf("sessions: %+v %v", got, err)
	}
}

// Who sits at the console's terminal types there; everybody else is told where.
func TestWhoTakesTheKeyboardIsToldWhereToType(t *testing.T) {
	for _, tc := range []struct {
		thread chat.ThreadID
		named  string
		want   string
	}{
		{"web:1", "local:countersign-ops", ""},
		{"web:1", "", " Type in *Terminal*."},
		{"slack:C1/1", "", "attach with:\n\n```\ntmux attach\n```"},
		{"discord:1", "local:countersign-ops", "attach with:\n\n```\ntmux attach\n```"},
	} {
		if got := howToType(tc.thread, tc.named, "tmux attach"); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s %s: %q", tc.thread, tc.named, got)
		}
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
		got, err := x.Role(t.Context(), chat.Event{Thread: "web:1", From: tc.by}, agent.Args{ID: tc.word})
		if err != nil || !strings.Contains(got.Text, tc.want) {
			t.Errorf("%s: %+v, %v", tc.rule, got, err)
		}
	}
}

// "run" and one name is the word, whether or not there is such a workflow; a pronoun makes
// a sentence of it.
func TestRunAndAName(t *testing.T) {
	library, err := workflow.Load(nil, map[string]string{"all": "name: all\ndescription: x\nsteps: [{id: a, wait: 1s}]\n"})
	if err != nil {
		t.Fatal(err)
	}
	x := Runbooks{Library: library}
	for text, want := range map[string]bool{
		"run disk-full": true, "run nosuch": true, "run nosuch x=1": true, "run": true, "run all": true,
		"run it": false, "run this": false, "run the tests": false, "run df -h": false,
	} {
		if _, got := x.wordArgs(text, strings.Fields(text)); got != want {
			t.Errorf("%q is the word: %v", text, got)
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
		DB: x.DB, Targets: x, Agent: a, Runbooks: Runbooks{Library: library, Tools: all{}, Targets: x}, Log: slog.New(slog.DiscardHandler),
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
	q := chat.Inquiry{ID: "e1", From: alice, Within: "slack:T:C1:", Here: "slack:T:C1:"}
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
	labels := x.Rules().File.Targets["local"].Labels
	for _, tc := range []struct{ env, words, want string }{
		{"prod", "high-load", "`high-load` would run on **local** (env=prod). To start it there, add `on=local`"},
		{"prod", "high-load on=web-2", "would run on **local** (env=prod)"},
		{"prod", "high-load on=local", ""},
		{"test", "high-load", ""},
		{"test", "high-load on=web-2", "would run on **local** (env=test). To start"},
		{"test", "", "In this conversation it runs on **local** (env=test)."},
	} {
		labels["env"] = tc.env
		if _, text, err := c.Run(t.Context(), chat.Inquiry{ID: "e3", From: alice, Within: "web:1"}, tc.words); err != nil || !strings.Contains(text, tc.want) || (text == "") != (tc.want == "") {
			t.Errorf("%s in %q: %q %v", tc.words, tc.env, text, err)
		}
	}
	for inputs, want := range map[string]string{"": "Running `high-load` on **local** (env=test).", "local": ""} {
		ans, err := c.Runbooks.Run(t.Context(), chat.Event{Thread: "web:1"}, agent.Args{ID: "high-load", Inputs: map[string]string{onInput: inputs}})
		if err != nil || ans.Call.Name == "" || ans.Text != want {
			t.Errorf("on %q: %+v %v", inputs, ans, err)
		}
	}
}

// TestNobodyIsToldOfPlacesThatTheyAreNotIn: of other channels and of others' direct messages, somebody is told what they may
// decide and what they have asked for.
func TestNobodyIsToldOfPlacesThatTheyAreNotIn(t *testing.T) {
	x := targets(t)
	c := Commands{DB: x.DB, Targets: x, Agent: &talk{}, Log: slog.New(slog.DiscardHandler)}
	mallory := chat.User{ID: "slack:T:MALLORY", Name: "mallory"}
	err := x.DB.Update(t.Context(), func(tx store.Tx) error {
		for thread, by := range map[string]chat.UserID{"slack:T:C1:1": "slack:T:BOB", "slack:T:G2:1": "slack:T:BOB", "slack:T:D3:1": "slack:T:BOB", "slack:T:D4:1": mallory.ID} {
			r := approvals.Record{ID: approvals.ID(strings.ReplaceAll(thread, ":", "")), Thread: chat.ThreadID(thread), Call: thread, Requester: chat.User{ID: by}, State: approvals.Pending, Created: time.Now(),
				ExpiresAt: time.Now().Add(time.Hour), Action: approvals.Action{Kind: approvals.KindShell, Bytes: []byte("touch secret")}, Require: approvals.Require{Needs: []approvals.Need{{Count: 1, Groups: []string{"oncall"}}}}}
			r.Digest = r.Action.Digest()
			(approvals.Ledger{}).Open(tx, r)
		}
		for _, thread := range []string{"slack:T:C1:2", "slack:T:G2:2", "slack:T:D3:2"} {
			queue.Put(tx, queue.Item{ID: "event/" + thread, Thread: thread, Kind: "message", Body: []byte("{}")})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		within, here string
		want         []chat.ThreadID
	}{
		{"slack:T:", "", []chat.ThreadID{"slack:T:D4:1"}},
		{"slack:T:", "slack:T:C1:", []chat.ThreadID{"slack:T:C1:1", "slack:T:C1:2", "slack:T:D4:1"}},
		{"slack:T:C1:", "slack:T:C1:", []chat.ThreadID{"slack:T:C1:1", "slack:T:C1:2"}},
	} {
		o, err := c.Overview(t.Context(), chat.Inquiry{ID: "e", From: mallory, Within: tc.within, Here: tc.here})
		if err != nil {
			t.Fatal(err)
		}
		var got []chat.ThreadID
		for _, b := range o.Busy {
			got = append(got, b.Thread)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("within %q, here %q: %q, want %q", tc.within, tc.here, got, tc.want)
		}
		for _, w := range o.Approvals {
			if !slices.Contains(tc.want, w.Thread) {
				t.Errorf("within %q, here %q: told of %s", tc.within, tc.here, w.Thread)
			}
		}
	}
}

func TestHomeTellsEachPersonWhatIsTheirs(t *testing.T) {
	x := targets(t)
	began := time.Now().Add(-time.Hour)
	firing := []alerts.Problem{
		{ID: "over", Title: "over"}, {ID: "quiet", Title: "quiet", Firing: true, Severity: "critical", Quiet: time.Now().Add(time.Hour)},
		{ID: "warn", Title: "warn", Firing: true, Severity: "warning", Since: time.Now(), Thread: "slack:T:C1:9"}, {ID: "listed", Firing: true, Listed: true},
		{ID: "old", Title: "old", Firing: true, Severity: "Critical", Since: began, Thread: "web:3"}, {ID: "new", Title: "new", Firing: true, Severity: "critical", Since: time.Now()},
	}
	h := NewHome(
		Commands{DB: x.DB, Targets: x, Agent: &talk{}, Log: slog.New(slog.DiscardHandler)},
		gatekeeper{},
		func(key string) string { return "last of " + key },
		func(context.Context) ([]alerts.Problem, error) { return firing, nil },
	)
	now := time.Now()
	open := func(id, thread string, by chat.UserID, state approvals.State, may ...bool) {
		err := x.DB.Update(t.Context(), func(tx store.Tx) error {
			r := approvals.Record{
				ID: approvals.ID(id), Thread: chat.ThreadID(thread), Call: id, Requester: chat.User{ID: by, Name: string(by)}, Created: now,
				Action:  approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("rm secret-" + id)},
				Require: approvals.Require{Needs: []approvals.Need{{Rule: "r", Count: 1, Groups: []string{"oncall"}}}, RequesterMay: len(may) > 0, RunWithin: time.Minute}, ExpiresAt: now.Add(time.Minute),
			}
			l := approvals.Ledger{}
			l.Open(tx, r)
			if state == approvals.Pending {
				return nil
			}
			if _, _, err := l.Vote(tx, r.ID, approvals.Vote{User: chat.User{ID: "web:bob", Name: "bob"}, Approve: true, At: now, Digest: r.Action.Digest(), Meets: []int{0}}); err != nil {
				return err
			}
			l.Consume(tx, r.ID, r.Action, now)
			if state == approvals.Done {
				l.Finish(tx, r.ID, approvals.Outcome{OK: true, Note: "exit code 0"}, now)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	open("ownask", "web:1", "web:eve", approvals.Pending)
	open("slackask", "slack:T:C1:1", "slack:U1", approvals.Pending, true)
	open("slackfour", "slack:T:C1:4", "slack:U1", approvals.Pending) // alice may be who asked there
	open("ownrun", "web:2", "web:eve", approvals.Running)
	open("slackrun", "slack:T:C1:2", "slack:U1", approvals.Running)
	open("slackdone", "slack:T:C1:3", "slack:U1", approvals.Done)
	ids := func(list []api.HomeCard) string {
		var out []string
		for _, c := range list {
			mark := ""
			if c.Card.Code != "" {
				mark = "+"
			}
			if len(c.Card.Choose) > 0 {
				mark += "!"
			}
			id := c.ID
			for _, known := range []approvals.ID{"slackask", "slackfour", "slackrun", "slackdone"} {
				if id == alias(known) {
					id = "~" + string(known)
				}
			}
			out = append(out, id+mark)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	for _, tc := range []struct {
		rule                            string
		by                              chat.User
		writes                          bool
		yours, others, running, changes string
	}{
		{"an approver decides everywhere", alice, true, "ownask+! slackask+!", "~slackfour", "ownrun+ ~slackrun", "~slackdone"},
		{"a member sees what others decide, and of other networks no command", eve, true, "", "ownask+ ~slackask ~slackfour", "ownrun+ ~slackrun", "~slackdone"},
		{"a viewer sees the console's own", alice, false, "", "ownask+", "ownrun+", ""},
	} {
		home, err := h.Home(t.Context(), chat.Inquiry{From: tc.by}, tc.writes)
		if err != nil {
			t.Fatal(err)
		}
		if y, o, r, c := ids(home.Yours), ids(home.Others), ids(home.Running), ids(home.Changes); y != tc.yours || o != tc.others || r != tc.running || c != tc.changes {
			t.Errorf("%s: yours %q, others %q, running %q, changes %q", tc.rule, y, o, r, c)
		}
		var fires []string
		for _, f := range home.Alerts {
			fires = append(fires, f.ID+string(f.Thread))
		}
		want := "new oldweb:3 warn quiet" // the worst first, and no way into a channel of another network
		if !tc.writes {
			want = "new oldweb:3 quiet"
		}
		if got := strings.Join(fires, " "); got != want {
			t.Errorf("%s: alerts %q, want %q", tc.rule, got, want)
		}
		for _, c := range home.Others {
			if c.ID == "ownask" && tc.by.ID == eve.ID && c.Not != "You can't approve this: you requested it. Ask oncall." {
				t.Errorf("%s: it says %q", tc.rule, c.Not)
			}
		}
		for _, c := range home.Running {
			if want := map[string]string{"ownrun": "last of approval/ownrun"}[c.ID]; c.Card.Last != want {
				t.Errorf("%s: %s has the last line %q", tc.rule, c.ID, c.Card.Last)
			}
		}
	}
}

// gatekeeper draws requests, and says who approves them: their own groups, unless the rules have others by now.
type gatekeeper struct{ now []string }

func (gatekeeper) Card(_ store.Tx, r approvals.Record) chat.Card { return card.New(r, "") }

func (g gatekeeper) Approvers(_ store.Tx, r approvals.Record) ([]string, string) {
	if g.now != nil {
		return g.now, "The approvers have changed."
	}
	return r.Require.Groups(), ""
}

// Who doesn't approve any more isn't told that a request needs them.
func TestARequestWhoseApproversChangedNeedsOthers(t *testing.T) {
	x := targets(t)
	for _, tc := range []struct {
		now   []string
		yours int
		not   string
	}{{nil, 1, ""}, {[]string{"leads"}, 0, "You can't approve this. The approvers have changed."}} {
		h := NewHome(Commands{DB: x.DB, Targets: x, Agent: &talk{}, Log: slog.New(slog.DiscardHandler)}, gatekeeper{tc.now}, func(string) string { return "" },
			func(context.Context) ([]alerts.Problem, error) { return nil, nil })
		err := x.DB.Update(t.Context(), func(tx store.Tx) error {
			approvals.Ledger{}.Open(tx, approvals.Record{
				ID: "changed", Thread: "web:1", Call: "c", Requester: chat.User{ID: "web:eve"}, Created: time.Now(), ExpiresAt: time.Now().Add(time.Minute),
				Action:  approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("rm x")},
				Require: approvals.Require{Needs: []approvals.Need{{Rule: "r", Count: 1, Groups: []string{"oncall"}}}, RunWithin: time.Minute},
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.Home(t.Context(), chat.Inquiry{From: alice}, true)
		if err != nil || len(got.Yours) != tc.yours || len(got.Others) != 1-tc.yours || tc.yours == 0 && got.Others[0].Not != tc.not {
			t.Errorf("%v: %+v, %v", tc.now, got, err)
		}
	}
}

// A page may be half a second old; what a program reads is of this moment.
func TestAProgramSeesARequestThatHasJustBeenFiled(t *testing.T) {
	x := targets(t)
	h := NewHome(
		Commands{DB: x.DB, Targets: x, Agent: &talk{}, Log: slog.New(slog.DiscardHandler)},
		gatekeeper{}, func(string) string { return "" },
		func(context.Context) ([]alerts.Problem, error) { return nil, nil },
	)
	waiting := func() int {
		t.Helper()
		got, err := h.Home(t.Context(), chat.Inquiry{From: alice, Fresh: true}, true)
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Yours) + len(got.Others)
	}
	before := waiting()
	if err := x.DB.Update(t.Context(), func(tx store.Tx) error {
		approvals.Ledger{}.Open(tx, approvals.Record{
			ID: "new", Thread: "web:1", Call: "n", Action: approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("true")},
			Require: approvals.Require{Needs: []approvals.Need{{Count: 1, Groups: []string{"oncall"}}}}, ExpiresAt: time.Now().Add(time.Minute),
		})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := waiting(); got != before+1 {
		t.Errorf("%d requests wait, %d did before the new one", got, before)
	}
}

// The record of a plan ends when its steps begin: it runs as long as one of them does.
func TestAPlanRunsWhileItsStepsDo(t *testing.T) {
	x := targets(t)
	now := time.Now()
	step := approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("true")}
	home := func() string {
		t.Helper()
		h := NewHome(
			Commands{DB: x.DB, Targets: x, Agent: &talk{}, Log: slog.New(slog.DiscardHandler)},
			gatekeeper{}, func(string) string { return "" },
			func(context.Context) ([]alerts.Problem, error) { return nil, nil },
		)
		got, err := h.Home(t.Context(), chat.Inquiry{From: alice}, true)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range got.Running {
			out = append(out, "runs "+c.ID)
		}
		for _, c := range got.Changes {
			out = append(out, "ran "+c.ID)
		}
		return strings.Join(out, ", ")
	}
	l := approvals.Ledger{}
	change := func(fn func(tx store.Tx)) {
		t.Helper()
		if err := x.DB.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	plan := approvals.Record{
		ID: "plan", Thread: "web:1", Call: "p", Action: approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Target: "local", Steps: []approvals.Action{step}},
		Require: approvals.Require{Needs: []approvals.Need{{Count: 1, Groups: []string{"oncall"}}}, RunWithin: time.Minute}, ExpiresAt: now.Add(time.Minute),
	}
	first := approvals.Record{ID: "step", Thread: "web:1", Call: "s", Action: step, Require: plan.Require, ExpiresAt: plan.ExpiresAt}
	change(func(tx store.Tx) {
		l.Open(tx, plan)
		if _, _, err := l.Vote(tx, "plan", approvals.Vote{User: alice, Approve: true, At: now, Digest: plan.Action.Digest(), Meets: []int{0}}); err != nil {
			t.Fatal(err)
		}
		l.Consume(tx, "plan", plan.Action, now)
		l.Finish(tx, "plan", approvals.Outcome{OK: true}, now)
		l.Open(tx, first)
		l.Settle(tx, "step", approvals.Basis{Kind: approvals.ByPlan, Of: "plan", Step: 1}, alice, now)
		l.Consume(tx, "step", step, now)
	})
	if got := home(); got != "runs plan" {
		t.Errorf("while the step runs: %q", got)
	}
	change(func(tx store.Tx) { l.Finish(tx, "step", approvals.Outcome{OK: true}, now) })
	if got := home(); got != "ran plan" {
		t.Errorf("afterwards: %q", got)
	}
}
