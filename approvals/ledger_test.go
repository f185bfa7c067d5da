package approvals_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
)

var t0 = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func action() approvals.Action {
	return approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Dir: "/srv", Bytes: []byte("systemctl restart app")}
}

func record(count int) approvals.Record {
	return approvals.Record{
		ID: "abcdefghij", Thread: "web:1", Call: "c1", Requester: chat.User{ID: "web:alice"}, Action: action(),
		Require: approvals.Require{Needs: []approvals.Need{{Rule: "default", Count: count, Groups: []string{"oncall"}}}, RunWithin: 2 * time.Minute}, ExpiresAt: t0.Add(15 * time.Minute),
	}
}

func update(t testing.TB, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func vote(who string, approve bool, at time.Time) approvals.Vote {
	return approvals.Vote{User: chat.User{ID: chat.UserID(who)}, Approve: approve, At: at, Digest: action().Digest(), Meets: []int{0}}
}

func TestTheStateMachineIsThisTable(t *testing.T) {
	want := map[approvals.State][]approvals.State{
		approvals.Pending:        {approvals.Approved, approvals.Denied, approvals.Expired, approvals.Cancelled, approvals.Invalid},
		approvals.Approved:       {approvals.Running, approvals.Expired, approvals.Invalid, approvals.Cancelled},
		approvals.Running:        {approvals.Done, approvals.OutcomeUnknown, approvals.Approved},
		approvals.Done:           nil,
		approvals.OutcomeUnknown: nil,
		approvals.Denied:         nil,
		approvals.Expired:        nil,
		approvals.Cancelled:      nil,
		approvals.Invalid:        nil,
	}
	for s, next := range want {
		if got := approvals.Next(s); !slices.Equal(got, next) {
			t.Errorf("%s goes to %v, want %v", s, got, next)
		}
		if s.Final() != (len(next) == 0) {
			t.Errorf("%s: Final is %v", s, s.Final())
		}
	}
}

func TestVotes(t *testing.T) {
	var l approvals.Ledger
	other := vote("web:bob", true, t0)
	other.Digest = approvals.Digest{1}
	bot := vote("web:bot", true, t0)
	bot.User.Bot = true
	late := vote("web:bob", true, t0.Add(15*time.Minute-1))
	for _, tc := range []struct {
		rule  string
		count int
		votes []approvals.Vote
		state approvals.State
		last  approvals.Refusal
	}{
		{"one approval is enough for one", 1, []approvals.Vote{vote("web:bob", true, t0)}, approvals.Approved, approvals.Counted},
		{"one approval is not enough for two", 2, []approvals.Vote{vote("web:bob", true, t0)}, approvals.Pending, approvals.Counted},
		{"one person counts once", 2, []approvals.Vote{vote("web:bob", true, t0), vote("web:bob", true, t0)}, approvals.Pending, approvals.VotedBefore},
		{"two people are two", 2, []approvals.Vote{vote("web:bob", true, t0), vote("web:eve", true, t0)}, approvals.Approved, approvals.Counted},
		{"one denial decides", 2, []approvals.Vote{vote("web:bob", true, t0), vote("web:eve", false, t0)}, approvals.Denied, approvals.Counted},
		{"who approved may still deny", 2, []approvals.Vote{vote("web:bob", true, t0), vote("web:bob", false, t0)}, approvals.Denied, approvals.Counted},
		{"the first decision stands", 1, []approvals.Vote{vote("web:bob", false, t0), vote("web:eve", true, t0)}, approvals.Denied, approvals.AlreadyDone},
		{"a late vote expires the request", 1, []approvals.Vote{vote("web:bob", true, t0.Add(15*time.Minute))}, approvals.Expired, approvals.TooLate},
		{"a vote for something else does not count", 1, []approvals.Vote{other}, approvals.Pending, approvals.OtherContent},
		{"bots do not count", 1, []approvals.Vote{bot}, approvals.Pending, approvals.NoPerson},
		{"nobody does not count", 1, []approvals.Vote{vote("", true, t0)}, approvals.Pending, approvals.NoPerson},
		{"nobody does not deny", 1, []approvals.Vote{vote("", false, t0)}, approvals.Pending, approvals.NoPerson},
		{"the last moment is in time", 1, []approvals.Vote{late}, approvals.Approved, approvals.Counted},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			db := mem.Open()
			update(t, db, func(tx store.Tx) { l.Open(tx, record(tc.count)) })
			var got approvals.Record
			var refusal approvals.Refusal
			for _, v := range tc.votes {
				update(t, db, func(tx store.Tx) {
					var err error
					if got, refusal, err = l.Vote(tx, "abcdefghij", v); err != nil {
						t.Fatal(err)
					}
				})
			}
			if got.State != tc.state || refusal != tc.last {
				t.Fatalf("%s (%q), want %s (%q)", got.State, refusal, tc.state, tc.last)
			}
		})
	}
}

func TestConsume(t *testing.T) {
	var l approvals.Ledger
	approved := func(t *testing.T) store.DB {
		db := mem.Open()
		update(t, db, func(tx store.Tx) {
			l.Open(tx, record(1))
			if _, r, err := l.Vote(tx, "abcdefghij", vote("web:bob", true, t0)); r != approvals.Counted || err != nil {
				t.Fatal(r, err)
			}
		})
		return db
	}
	consume := func(t *testing.T, db store.DB, a approvals.Action, at time.Time) (p approvals.Permit, r approvals.Record, why string) {
		update(t, db, func(tx store.Tx) { p, r, why = l.Consume(tx, "abcdefghij", a, at) })
		return p, r, why
	}
	t.Run("an approval gives a permit for exactly its action, once", func(t *testing.T) {
		db := approved(t)
		p, r, why := consume(t, db, action(), t0)
		if why != "" || r.State != approvals.Running || !p.Allows(action()) {
			t.Fatal(why, r.State)
		}
		changed := action()
		changed.Bytes = []byte("rm -rf /")
		if p.Allows(changed) {
			t.Fatal("the permit allows something else")
		}
		if p, _, why := consume(t, db, action(), t0); why == "" || p.Allows(action()) {
			t.Fatal("a second permit was made")
		}
	})
	t.Run("no permit without a vote", func(t *testing.T) {
		db := mem.Open()
		update(t, db, func(tx store.Tx) { l.Open(tx, record(1)) })
		if p, r, why := consume(t, db, action(), t0); why == "" || r.State != approvals.Pending || p.Allows(action()) {
			t.Fatal(why, r.State)
		}
	})
	t.Run("too late to run", func(t *testing.T) {
		if p, r, why := consume(t, approved(t), action(), t0.Add(3*time.Minute)); why == "" || r.State != approvals.Expired || p.Allows(action()) {
			t.Fatal(why, r.State)
		}
	})
	t.Run("every field that drifts makes it invalid and is named", func(t *testing.T) {
		for name, a := range mutations(t) {
			p, r, why := consume(t, approved(t), a, t0)
			if r.State != approvals.Invalid || p.Allows(a) || p.Allows(action()) {
				t.Errorf("%s drifted: %s, %q", name, r.State, why)
			}
			if len(approvals.Drift(action(), a)) == 0 {
				t.Errorf("%s drifted and is not named", name)
			}
		}
	})
	t.Run("asking again finds the same record", func(t *testing.T) {
		db := approved(t)
		update(t, db, func(tx store.Tx) {
			if r, existed := l.Open(tx, record(1)); !existed || r.State != approvals.Approved {
				t.Fatal(existed, r.State)
			}
		})
	})
}

// mutations returns the action with each of its fields changed in turn.
func mutations(t *testing.T) map[string]approvals.Action {
	t.Helper()
	out := map[string]approvals.Action{}
	typ := reflect.TypeFor[approvals.Action]()
	for i := range typ.NumField() {
		a := action()
		f := reflect.ValueOf(&a).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Slice:
			switch f.Type().Elem().Kind() {
			case reflect.Uint8:
				f.SetBytes([]byte(`"other"`))
			case reflect.String:
				f.Set(reflect.ValueOf([]string{"/other"}))
			default:
				f.Set(reflect.ValueOf([]approvals.Action{{Tool: "other"}}))
			}
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"k": "v"}))
		default:
			t.Fatalf("field %s has a kind that this test does not know", typ.Field(i).Name)
		}
		out[typ.Field(i).Name] = a
	}
	return out
}

func TestDigestCoversEveryField(t *testing.T) {
	seen := map[approvals.Digest]string{action().Digest(): "nothing"}
	for name, a := range mutations(t) {
		if was, dup := seen[a.Digest()]; dup {
			t.Errorf("changing %s gives the digest of changing %s", name, was)
		}
		seen[a.Digest()] = name
	}
}

func TestPermitsComeFromProofOrVotesOnly(t *testing.T) {
	var l approvals.Ledger
	if (approvals.Permit{}).Allows(approvals.Action{}) {
		t.Error("the zero permit allows the zero action")
	}
	forged := risk.Verdict{Command: "systemctl restart app", ReadOnly: true, Risk: risk.Read}
	if _, err := l.Observe(action(), forged); err == nil {
		t.Error("a verdict that the engine did not make gave a permit")
	}
	if _, err := l.Observe(action(), risk.Classify("systemctl status app")); err == nil {
		t.Error("a proof of another text gave a permit")
	}
	read := action()
	read.Bytes = []byte("uptime")
	if _, err := l.Observe(read, risk.Classify("uptime")); err == nil {
		t.Error("an action that names no shell got a permit")
	}
	read.Shell = "bash"
	if p, err := l.Observe(read, risk.Classify("uptime")); err != nil || !p.Allows(read) {
		t.Error("a proven read gave no permit:", err)
	}
}

// TestLedgerAgainstAModel runs random votes, runs and clocks against a few
// lines that say what should happen.
func TestLedgerAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var l approvals.Ledger
		db := mem.Open()
		defer db.Close()
		count := rapid.IntRange(1, 3).Draw(rt, "count")
		do := func(fn func(tx store.Tx)) {
			if err := db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
				rt.Fatal(err)
			}
		}
		do(func(tx store.Tx) { l.Open(tx, record(count)) })
		state, yes, now, runBy, permits := approvals.Pending, map[string]bool{}, t0, t0, 0
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(rt, "seconds")) * time.Second)
			op := rapid.SampledFrom([]string{"yes", "no", "run", "finish", "lost", "cancel", "expire"}).Draw(rt, "op")
			who := fmt.Sprint("web:", rapid.IntRange(1, 4).Draw(rt, "who"))
			late := !now.Before(t0.Add(15 * time.Minute))
			switch {
			case (op == "yes" || op == "no") && state == approvals.Pending && late:
				state = approvals.Expired
			case op == "no" && state == approvals.Pending:
				state = approvals.Denied
			case op == "yes" && state == approvals.Pending:
				if yes[who] = true; len(yes) >= count {
					state, runBy = approvals.Approved, now.Add(2*time.Minute)
				}
			case op == "run" && state == approvals.Approved && now.After(runBy):
				state = approvals.Expired
			case op == "run" && state == approvals.Approved:
				state = approvals.Running
			case op == "finish" && state == approvals.Running:
				state = approvals.Done
			case op == "lost" && state == approvals.Running:
				state = approvals.OutcomeUnknown
			case op == "cancel" && (state == approvals.Pending || state == approvals.Approved):
				state = approvals.Cancelled
			case op == "expire" && ((state == approvals.Pending && late) || (state == approvals.Approved && now.After(runBy))):
				state = approvals.Expired
			}
			do(func(tx store.Tx) {
				switch op {
				case "yes", "no":
					if _, _, err := l.Vote(tx, "abcdefghij", vote(who, op == "yes", now)); err != nil {
						rt.Fatal(err)
					}
				case "run":
					if p, _, _ := l.Consume(tx, "abcdefghij", action(), now); p.Allows(action()) {
						permits++
					}
				case "finish":
					l.Finish(tx, "abcdefghij", approvals.Outcome{OK: true}, now)
				case "lost":
					l.Lost(tx, "abcdefghij", now)
				case "cancel":
					l.Cancel(tx, "abcdefghij", chat.User{}, "", now)
				case "expire":
					l.Expire(tx, "abcdefghij", now)
				}
				r, _ := l.Get(tx, "abcdefghij")
				if r.State != state {
					rt.Fatalf("after %s at %s: %s, want %s", op, now, r.State, state)
				}
				if open := len(l.OpenIn(tx, "web:1")); (open == 1) == state.Final() {
					rt.Fatalf("%d open records in state %s", open, state)
				}
			})
		}
		if permits > 1 {
			rt.Fatalf("%d permits", permits)
		}
	})
}

func TestWhatPeopleMayEdit(t *testing.T) {
	shell := func(text, args string) approvals.Action {
		return approvals.Action{Kind: approvals.KindShell, Bytes: []byte(text), Args: []byte(args)}
	}
	keys := shell("ls", `{"command":"ls"}`)
	keys.Kind = approvals.KindKeys
	long := strings.Repeat("x", approvals.MaxEdit)
	for _, tc := range []struct {
		rule string
		a    approvals.Action
		want string
	}{
		{"a shell command", shell("ls\n\techo é", `{"command":"ls\n\techo é","wait":true}`), "command"},
		{"whatever its argument is called", shell("ls", `{"script":"ls","pane":"x"}`), "script"},
		{"wherever its argument stands", shell("ls", `{"a":"1","b":2,"c":"3","d":"4","e":[],"f":"5","g":"6","h":"7","i":"8","j":"9","k":"ls"}`), "k"},
		{"no keys", keys, ""},
		{"no empty text", shell("", `{"command":""}`), ""},
		{"no invisible characters", shell("ls \u200b", `{"command":"ls \u200b"}`), ""},
		{"no carriage return", shell("ls\r", `{"command":"ls\r"}`), ""},
		{"no text that no argument holds", shell("ls", `{"command":"ls -l"}`), ""},
		{"no text that two arguments hold", shell("ls", `{"command":"ls","pane":"ls"}`), ""},
		{"no arguments that are no object", shell("ls", `"ls"`), ""},
		{"as much as fits a form", shell(long, `{"command":"`+long+`"}`), "command"},
		{"and no more", shell(long+"x", `{"command":"`+long+`x"}`), ""},
	} {
		if name, ok := tc.a.Editable(); name != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q %v", tc.rule, name, ok)
		}
	}
	a := shell("ls", `{"command":"ls","wait":true}`)
	e := a.Edited("command", `rm "x"`)
	if string(e.Bytes) != `rm "x"` || string(e.Args) != `{"command":"rm \"x\"","wait":true}` || string(a.Args) != `{"command":"ls","wait":true}` {
		t.Errorf("%s %s", e.Args, a.Args)
	}
	if approvals.WithArgument(a.Args, "other", "x") != nil || approvals.WithArgument([]byte("{"), "command", "x") != nil {
		t.Error("an argument that is not there was replaced")
	}
}

func TestRevisionsHaveIDsOfTheirOwn(t *testing.T) {
	id := approvals.NewID("web:1", "c1")
	seen := map[approvals.ID]bool{id: true}
	for n := range 50 {
		r := id.Revision(n + 1)
		if seen[r] || r != id.Revision(n+1) || len(r) != len(id) {
			t.Fatalf("revision %d is %s", n+1, r)
		}
		seen[r] = true
	}
}

func TestAnApprovalOfWhatNeverBeganStands(t *testing.T) {
	var l approvals.Ledger
	typed := func(env, front string) approvals.Action {
		a := action()
		a.Env, a.Pane, a.Foreground = map[string]string{approvals.ShellFact: env}, "shared", front
		return a
	}
	shown := typed(approvals.ShellNew, "")
	other := typed(approvals.ShellShared("%1", "", false), "bash")
	other.Bytes = []byte("something else")
	for _, tc := range []struct {
		rule      string
		unstarted bool
		later     time.Duration
		now       approvals.Action
		state     approvals.State
	}{
		{"the same runs", true, 0, shown, approvals.Running},
		{"in the terminal that was made for it, too", true, 0, typed(approvals.ShellShared("%1", "", false), "bash"), approvals.Running},
		{"not with another program in front", true, 0, typed(approvals.ShellShared("%1", "", false), "vim"), approvals.Invalid},
		{"nothing else runs", true, 0, other, approvals.Invalid},
		{"not later than it had to", true, time.Hour, shown, approvals.Expired},
		{"what began does not run again", false, 0, shown, approvals.Running},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			db := mem.Open()
			var got approvals.Record
			update(t, db, func(tx store.Tx) {
				r := record(1)
				r.Action = shown
				rec, _ := l.Open(tx, r)
				id := rec.ID
				v := vote("web:bob", true, t0)
				v.Digest = shown.Digest()
				if _, _, err := l.Vote(tx, id, v); err != nil {
					t.Fatal(err)
				}
				if p, _, why := l.Consume(tx, id, shown, t0); !p.Allows(shown) {
					t.Fatal(why)
				}
				if tc.unstarted {
					if _, ok := l.Unstarted(tx, id); !ok {
						t.Fatal("its use cannot be taken back")
					}
				}
				p, _, _ := l.Consume(tx, id, tc.now, t0.Add(tc.later))
				if p.Allows(tc.now) != (tc.unstarted && tc.state == approvals.Running) {
					t.Error("wrong permit")
				}
				got, _ = l.Get(tx, id)
				if _, ok := l.Finish(tx, id, approvals.Outcome{OK: true}, t0); ok {
					if _, ok := l.Unstarted(tx, id); ok {
						t.Error("what has ended is taken back")
					}
				}
			})
			if got.State != tc.state {
				t.Errorf("%s: %s", got.State, got.Reason)
			}
		})
	}
}

func TestRecentChanges(t *testing.T) {
	var l approvals.Ledger
	db := mem.Open()
	for i := range 240 {
		id := approvals.ID(fmt.Sprintf("request%03d", i))
		update(t, db, func(tx store.Tx) {
			r := record(1)
			r.ID = id
			if i == 3 {
				r.Basis = approvals.Basis{Kind: approvals.ByPlan, Of: "request002", Step: 1}
			}
			l.Open(tx, r)
			at := t0.Add(time.Duration(16*i) * time.Nanosecond) // each of these forgets what is too old
			switch i {
			case 0:
				l.Cancel(tx, id, chat.User{}, "never mind", at)
				return
			case 1:
				return // nobody decided
			}
			v := vote("web:bob", true, t0)
			if _, refused, err := l.Vote(tx, id, v); refused != approvals.Counted || err != nil {
				t.Fatal(refused, err)
			}
			l.Consume(tx, id, r.Action, t0)
			if i == 4 {
				l.Lost(tx, id, at)
			} else {
				l.Finish(tx, id, approvals.Outcome{OK: true}, at)
			}
		})
		if i > 10 {
			continue
		}
		update(t, db, func(tx store.Tx) {
			var got []string
			for _, r := range l.Recent(tx, 3) {
				got = append(got, string(r.ID)[7:])
			}
			want := map[int]string{0: "", 1: "", 2: "002", 3: "002", 4: "004 002", 5: "005 004 002", 10: "010 009 008"}
			if w, ok := want[i]; ok && strings.Join(got, " ") != w {
				t.Errorf("after request %d the newest are %v, want %q", i, got, w)
			}
		})
	}
	update(t, db, func(tx store.Tx) {
		if all := l.Recent(tx, 1000); len(all) != 200 || all[0].ID != "request239" || all[199].ID != "request040" {
			t.Errorf("%d are known", len(all))
		}
	})
}
