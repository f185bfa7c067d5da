package approvals_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
	"countersign/store/mem"
)

func person(id string) chat.User { return chat.User{ID: chat.UserID(id), Name: id} }

// needs is a record that several rules demand people for.
func needs(all ...approvals.Need) approvals.Record {
	r := record(1)
	r.Created = t0
	r.Require = approvals.Require{Needs: all, RunWithin: 2 * time.Minute}
	return r
}

func meeting(who string, at time.Time, need ...int) approvals.Vote {
	v := vote(who, true, at)
	v.Meets = need
	return v
}

func TestEveryNeedMustBeMet(t *testing.T) {
	two := []approvals.Need{{Rule: "a", Count: 2, Groups: []string{"oncall"}}, {Rule: "b", Count: 1, Groups: []string{"sre"}}}
	for _, tc := range []struct {
		rule  string
		needs []approvals.Need
		votes []approvals.Vote
		want  approvals.State
		last  approvals.Refusal
	}{
		{"one vote can count for several needs", two, []approvals.Vote{meeting("bob", t0, 0, 1), meeting("eve", t0, 0)}, approvals.Approved, approvals.Counted},
		{"enough people of one group are not enough", two, []approvals.Vote{meeting("bob", t0, 0), meeting("eve", t0, 0)}, approvals.Pending, approvals.Counted},
		{"a vote that meets nothing does not count", two, []approvals.Vote{meeting("bob", t0)}, approvals.Pending, approvals.NoNeed},
		{"a need that does not exist is none", two, []approvals.Vote{meeting("bob", t0, 7, -1)}, approvals.Pending, approvals.NoNeed},
		{"without needs nobody can approve", nil, []approvals.Vote{meeting("bob", t0, 0)}, approvals.Pending, approvals.NoNeed},
		{"a count of none is one", []approvals.Need{{Groups: []string{"oncall"}}}, []approvals.Vote{meeting("bob", t0, 0)}, approvals.Approved, approvals.Counted},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			var l approvals.Ledger
			db := mem.Open()
			update(t, db, func(tx store.Tx) {
				l.Open(tx, needs(tc.needs...))
				var last approvals.Refusal
				for _, v := range tc.votes {
					_, last, _ = l.Vote(tx, "abcdefghij", v)
				}
				if r, _ := l.Get(tx, "abcdefghij"); r.State != tc.want || last != tc.last {
					t.Errorf("%s %q", r.State, last)
				}
			})
		})
	}
}

func TestReasons(t *testing.T) {
	var l approvals.Ledger
	update(t, mem.Open(), func(tx store.Tx) {
		r := record(1)
		r.Require.ReasonRequired = true
		l.Open(tx, r)
		v := vote("bob", true, t0)
		if _, why, _ := l.Vote(tx, r.ID, v); why != approvals.NoReason {
			t.Errorf("without a reason: %q", why)
		}
		no := vote("eve", false, t0)
		v.Reason = "it hangs"
		if got, why, _ := l.Vote(tx, r.ID, v); why != approvals.Counted || got.State != approvals.Approved || got.Reason != "it hangs" {
			t.Errorf("with a reason: %q %s", why, got.State)
		}
		r.ID = "bcdefghijk"
		l.Open(tx, r)
		if got, why, _ := l.Vote(tx, r.ID, no); why != approvals.Counted || got.State != approvals.Denied {
			t.Errorf("who says no needs no reason: %q %s", why, got.State)
		}
	})
}

func TestBreakingTheGlass(t *testing.T) {
	var l approvals.Ledger
	update(t, mem.Open(), func(tx store.Tx) {
		r := record(3)
		l.Open(tx, r)
		v := vote("bob", true, t0)
		v.Glass, v.Meets = true, nil
		if _, why, _ := l.Vote(tx, r.ID, v); why != approvals.NoReason {
			t.Errorf("without a reason: %q", why)
		}
		v.Reason = "the site is down"
		got, why, _ := l.Vote(tx, r.ID, v)
		if why != approvals.Counted || got.State != approvals.Approved || !got.Review.Due || got.By.ID != "bob" {
			t.Fatalf("%q %+v", why, got)
		}
		for _, who := range []chat.User{person("bob"), got.Requester, {ID: "x", Bot: true}, {}} {
			if _, ok := l.Reviewed(tx, r.ID, who, "", t0); ok {
				t.Errorf("%q reviewed it", who.ID)
			}
		}
		if got, ok := l.Reviewed(tx, r.ID, person("eve"), "it was right", t0); !ok || got.Review.Due || got.Review.By.ID != "eve" {
			t.Errorf("%+v", got.Review)
		}
		if _, ok := l.Reviewed(tx, r.ID, person("kim"), "", t0); ok {
			t.Error("it was reviewed twice")
		}
	})
}

func TestEscalation(t *testing.T) {
	var l approvals.Ledger
	update(t, mem.Open(), func(tx store.Tx) {
		r := needs(approvals.Need{Rule: "a", Count: 1, Groups: []string{"oncall"}, Escalate: []approvals.Step{
			{After: 5 * time.Minute, Groups: []string{"sre"}}, {After: 10 * time.Minute, Groups: []string{"sre", "cto"}},
		}})
		l.Open(tx, r)
		for _, tc := range []struct {
			at    time.Duration
			added []string
		}{{4 * time.Minute, nil}, {5 * time.Minute, []string{"sre"}}, {6 * time.Minute, nil}, {12 * time.Minute, []string{"cto"}}, {13 * time.Minute, nil}} {
			if got, added := l.Escalate(tx, r.ID, t0.Add(tc.at)); !slices.Equal(added, tc.added) {
				t.Errorf("after %s: %v, groups %v", tc.at, added, got.Require.Groups())
			}
		}
		_, _, _ = l.Vote(tx, r.ID, vote("bob", false, t0))
		if _, added := l.Escalate(tx, r.ID, t0.Add(time.Hour)); added != nil {
			t.Error("a decided request escalates")
		}
	})
}

func TestGrants(t *testing.T) {
	var l approvals.Ledger
	d := action()
	granted := func(t *testing.T, r approvals.Record, v approvals.Vote) (db *mem.DB) {
		t.Helper()
		db = mem.Open()
		update(t, db, func(tx store.Tx) { l.Open(tx, r); _, _, _ = l.Vote(tx, r.ID, v) })
		return db
	}
	r := record(1)
	r.Require.Grant = 3 * time.Hour
	v := vote("bob", true, t0)
	v.Grant = true
	t.Run("hold for an hour at most, in their thread, for exactly this", func(t *testing.T) {
		update(t, granted(t, r, v), func(tx store.Tx) {
			if g, ok := l.Granted(tx, r.Thread, d, t0.Add(approvals.MaxGrant-time.Second)); !ok || g.Of != r.ID || g.By.ID != "bob" {
				t.Errorf("%+v %v", g, ok)
			}
			if _, ok := l.Granted(tx, "web:2", d, t0); ok {
				t.Error("in another thread")
			}
			if _, ok := l.Granted(tx, r.Thread, approvals.Action{Tool: "other"}, t0); ok {
				t.Error("for something else")
			}
			if _, ok := l.Granted(tx, r.Thread, d, t0.Add(approvals.MaxGrant)); ok {
				t.Error("after its time")
			}
		})
	})
	t.Run("are not given where the policy offers none", func(t *testing.T) {
		update(t, granted(t, record(1), v), func(tx store.Tx) {
			if _, ok := l.Granted(tx, r.Thread, d, t0); ok {
				t.Error("it was granted")
			}
			if got, _ := l.Get(tx, r.ID); len(got.Votes) != 1 || got.Votes[0].Grant {
				t.Errorf("the vote says that it was: %+v", got.Votes)
			}
		})
	})
	t.Run("are not given with an ordinary vote, nor with a broken glass", func(t *testing.T) {
		glass := v
		glass.Glass, glass.Reason = true, "x"
		for _, v := range []approvals.Vote{vote("bob", true, t0), glass} {
			update(t, granted(t, r, v), func(tx store.Tx) {
				if _, ok := l.Granted(tx, r.Thread, d, t0); ok {
					t.Errorf("%+v granted it", v)
				}
			})
		}
	})
	t.Run("end with stop", func(t *testing.T) {
		update(t, granted(t, r, v), func(tx store.Tx) {
			if n := l.Revoke(tx, r.Thread); n != 1 {
				t.Errorf("%d were revoked", n)
			}
			if _, ok := l.Granted(tx, r.Thread, d, t0); ok {
				t.Error("it holds")
			}
		})
	})
	t.Run("a request is settled once, while it is open", func(t *testing.T) {
		b := approvals.Basis{Kind: approvals.ByGrant, Of: r.ID, Why: "granted"}
		update(t, mem.Open(), func(tx store.Tx) {
			r := record(2)
			l.Open(tx, r)
			if _, ok := l.Settle(tx, r.ID, approvals.Basis{}, person("bob"), t0); ok {
				t.Error("on no basis")
			}
			if _, ok := l.Settle(tx, r.ID, b, person("bob"), r.ExpiresAt); ok {
				t.Error("too late")
			}
			got, ok := l.Settle(tx, r.ID, b, person("bob"), t0)
			if !ok || got.State != approvals.Approved || got.Basis != b || !got.RunBy.Equal(t0.Add(2*time.Minute)) {
				t.Errorf("%+v", got)
			}
			if _, ok := l.Settle(tx, r.ID, b, person("bob"), t0); ok {
				t.Error("twice")
			}
		})
	})
}

// TestAPlanRunsInItsOrder takes steps at random: only the next one, as it was
// shown, is ever taken, each once.
func TestAPlanRunsInItsOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var l approvals.Ledger
		db := mem.Open()
		defer func() { _ = db.Close() }()
		n := rapid.IntRange(1, 5).Draw(rt, "steps")
		plan := approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange}
		for i := range n {
			plan.Steps = append(plan.Steps, approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte(fmt.Sprint("step ", i))})
		}
		err := db.Update(t.Context(), func(tx store.Tx) error {
			r := record(1)
			r.Action = plan
			l.Open(tx, r)
			v := vote("bob", true, t0)
			v.Digest = plan.Digest()
			if _, why, err := l.Vote(tx, r.ID, v); why != approvals.Counted || err != nil {
				rt.Fatal(why, err)
			}
			if _, ok := l.PlanOf(tx, r.Thread, t0); ok {
				rt.Fatal("it holds before it runs")
			}
			if p, _, why := l.Consume(tx, r.ID, plan, t0); !p.Allows(plan) {
				rt.Fatal(why)
			}
			next := 0
			for range rapid.IntRange(1, 12).Draw(rt, "tries") {
				i := rapid.IntRange(0, n-1).Draw(rt, "step")
				a := plan.Steps[i]
				changed := rapid.IntRange(0, 4).Draw(rt, "changed") == 0
				if changed {
					a.Dir = "/elsewhere"
				}
				_, at, ok := l.UseStep(tx, r.Thread, a, t0)
				if want := next < n && i == next && !changed; ok != want || (ok && at != i+1) {
					rt.Fatalf("step %d when %d is next: %v", i, next, ok)
				}
				if ok {
					next++
				}
			}
			if _, _, ok := l.UseStep(tx, r.Thread, plan.Steps[min(next, n-1)], t0.Add(approvals.PlanWithin)); ok {
				rt.Fatal("after its time")
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func TestAStepMayWriteWhatAnEarlierOneMade(t *testing.T) {
	var l approvals.Ledger
	step := approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte("echo x >> out; sh run.sh"), Files: map[string]string{"/w/run.sh": "abc"}}
	for rule, tc := range map[string]struct {
		files map[string]string
		ok    bool
	}{
		"as shown":                         {map[string]string{"/w/run.sh": "abc"}, true},
		"a file that it writes to appears": {map[string]string{"/w/run.sh": "abc", "/w/out": approvals.AnyContent + ": inode 1:2"}, true},
		"the script was changed":           {map[string]string{"/w/run.sh": "abd"}, false},
		"the script is gone":               {nil, false},
		"a file becomes a link":            {map[string]string{"/w/run.sh": "abc", "/w/out": "leads to /etc/passwd", "/etc/passwd": approvals.AnyContent + ": inode 1:3"}, false},
		"another script appears":           {map[string]string{"/w/run.sh": "abc", "/w/lib.sh": "x"}, false},
	} {
		update(t, mem.Open(), func(tx store.Tx) {
			r := record(1)
			r.Action = approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Steps: []approvals.Action{step}}
			l.Open(tx, r)
			v := vote("bob", true, t0)
			v.Digest = r.Action.Digest()
			_, _, _ = l.Vote(tx, r.ID, v)
			l.Consume(tx, r.ID, r.Action, t0)
			a := step
			a.Files = tc.files
			if _, _, ok := l.UseStep(tx, r.Thread, a, t0); ok != tc.ok {
				t.Errorf("%s: %v", rule, ok)
			}
		})
	}
}

func withTerminal(a approvals.Action) approvals.Action {
	a.Env[approvals.TerminalFact] = "PATH changed."
	return a
}

// S1: making the terminal, and what earlier steps do, are part of what was approved.
func TestWhatAPlanBringsAboutItselfDoesNotEndIt(t *testing.T) {
	var l approvals.Ledger
	typed := func(shell, front string, files map[string]string) approvals.Action {
		return approvals.Action{
			Tool: "run_shell", Kind: approvals.KindShell, Session: "ops-1", Pane: "shared", Foreground: front, Dir: "/w",
			Bytes: []byte("cp a b"), Env: map[string]string{approvals.ShellFact: shell}, Files: files,
		}
	}
	const left = approvals.LeftBySteps
	shared := approvals.ShellShared("%3", "", false)
	for rule, tc := range map[string]struct {
		shown, is approvals.Action
		ok        bool
	}{
		"the terminal was made":                         {typed(approvals.ShellNew, "", nil), typed(shared, "bash", nil), true},
		"the terminal is what earlier steps leave":      {typed(left, "", nil), typed(shared, "bash", nil), true},
		"the terminal was made, and is as it started":   {typed(approvals.ShellNew, "", nil), typed(approvals.ShellShared("%3", "0", true), "bash", nil), true},
		"the terminal was made and then changed":        {typed(approvals.ShellNew, "", nil), typed(approvals.ShellShared("%3", "7.2", false), "bash", nil), false},
		"earlier steps changed the terminal":            {typed(left, "", nil), withTerminal(typed(approvals.ShellShared("%3", "7.2", false), "bash", nil)), true},
		"the first step's terminal was changed":         {typed(approvals.ShellShared("%3", "7.2", false), "", nil), typed(approvals.ShellShared("%3", "7.3", false), "", nil), false},
		"a function replaces a command of it":           {typed(approvals.ShellNew, "", nil), withTerminal(typed(approvals.ShellNew, "", nil)), false},
		"another terminal":                              {typed(approvals.ShellShared("%2", "", false), "", nil), typed(shared, "", nil), false},
		"the terminal was lost":                         {typed(shared, "bash", nil), typed(approvals.ShellNew, "", nil), false},
		"another program is in front":                   {typed(left, "", nil), typed(shared, "vim", nil), false},
		"a file that earlier steps make":                {typed(left, "", map[string]string{"/w/a": left}), typed(shared, "", map[string]string{"/w/a": "abc"}), true},
		"a directory that earlier steps make":           {typed(left, "", map[string]string{"/w/a": left}), typed(shared, "", map[string]string{"/w/a/": "directory inode 1:2"}), true},
		"a file that no earlier step names has changed": {typed(left, "", map[string]string{"/w/c": "abc"}), typed(shared, "", map[string]string{"/w/c": "abd"}), false},
		"a file that no earlier step names is new":      {typed(left, "", map[string]string{"/w/a": left}), typed(shared, "", map[string]string{"/w/a": "abc", "/w/c": "abd"}), false},
		"what earlier steps make leads elsewhere":       {typed(left, "", map[string]string{"/w/a": left}), typed(shared, "", map[string]string{"/w/a": "leads to /etc/passwd", "/etc/passwd": "abc"}), false},
	} {
		update(t, mem.Open(), func(tx store.Tx) {
			r := record(1)
			r.Action = approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Steps: []approvals.Action{tc.shown}}
			l.Open(tx, r)
			v := vote("bob", true, t0)
			v.Digest = r.Action.Digest()
			_, _, _ = l.Vote(tx, r.ID, v)
			l.Consume(tx, r.ID, r.Action, t0)
			if _, _, ok := l.UseStep(tx, r.Thread, tc.is, t0); ok != tc.ok {
				t.Errorf("%s: %v", rule, ok)
			}
		})
	}
	// A grant on the first command of a thread covers the second.
	update(t, mem.Open(), func(tx store.Tx) {
		r := record(1)
		r.Action, r.Require.Grant = typed(approvals.ShellNew, "", nil), time.Hour
		r.Digest = r.Action.Digest()
		l.Open(tx, r)
		v := vote("bob", true, t0)
		v.Digest, v.Grant = r.Digest, true
		if _, why, err := l.Vote(tx, r.ID, v); why != approvals.Counted || err != nil {
			t.Fatal(why, err)
		}
		if _, ok := l.Granted(tx, r.Thread, typed(shared, "bash", nil), t0); !ok {
			t.Error("the second run is not covered")
		}
		if _, ok := l.Granted(tx, r.Thread, typed(approvals.ShellShared("%3", "7.2", false), "bash", nil), t0); ok {
			t.Error("a run in a terminal that was changed is covered")
		}
		if _, ok := l.Granted(tx, r.Thread, typed(shared, "vim", nil), t0); ok {
			t.Error("it is covered behind another program")
		}
	})
}
