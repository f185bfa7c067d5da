package approvals_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
)

// TestTheDigestsEncoding pins the encoding: whoever changes it must change its
// version, too, or approvals of before would be read in another way.
func TestTheDigestsEncoding(t *testing.T) {
	a := action()
	a.Args = []byte(`{"command":"x","wait":true}`)
	const want = "f2f2a12f972fd7c259019ad516c6729c65efa4e3c58c67b0597ee7757f9c80b5"
	if got := a.Digest().String(); got != want {
		t.Errorf("the digest of the same action is %s, and was %s", got, want)
	}
}

func TestArgumentsThatAreNoJSONAreToldApart(t *testing.T) {
	seen := map[approvals.Digest]string{}
	for _, dir := range []string{"/srv", "/etc"} {
		for _, args := range []string{"", "{", "[", "null", "{}"} {
			a := action()
			a.Dir, a.Args = dir, []byte(args)
			name := fmt.Sprintf("%s in %s", args, dir)
			if other, dup := seen[a.Digest()]; dup {
				t.Errorf("%s has the digest of %s", name, other)
			}
			seen[a.Digest()] = name
		}
	}
}

func TestDigestsAsText(t *testing.T) {
	d := action().Digest()
	good := d.String()
	for _, tc := range []struct {
		rule, text string
		ok         bool
	}{
		{"what was written is read", good, true},
		{"blanks around it are nothing", " " + good + "\n", true},
		{"a part is none", good[:62], false},
		{"more is none", good + "00", false},
		{"letters that are no hex are none", "zz" + good[2:], false},
		{"half a byte is none", good[:63], false},
		{"nothing is none", "", false},
	} {
		var got approvals.Digest
		if err := got.UnmarshalText([]byte(tc.text)); (err == nil) != tc.ok || (got == d) != tc.ok {
			t.Errorf("%s: %s, %v", tc.rule, got, err)
		}
	}
	if len(d.Short()) != 12 || !strings.HasPrefix(good, d.Short()) {
		t.Errorf("%s is short for %s", d.Short(), good)
	}
}

// approve files a request for an action and approves it, for a while.
func approve(tx store.Tx, a approvals.Action) approvals.Record {
	var l approvals.Ledger
	r := record(1)
	r.Action = a
	r.Require.Grant = time.Hour
	l.Open(tx, r)
	v := vote("web:bob", true, t0)
	v.Digest, v.Grant = a.Digest(), true
	r, _, _ = l.Vote(tx, r.ID, v)
	return r
}

func TestAGrantIsForWhatWasShown(t *testing.T) {
	var l approvals.Ledger
	shown := action()
	shown.Files = map[string]string{"/w/run.sh": "abc", "/w/out": approvals.AnyContent + ": inode 1:2"}
	for i := range 12 {
		shown.Files[fmt.Sprint("/w/log", i)] = approvals.AnyContent + ": inode 1:3"
	}
	with := func(name, state string) approvals.Action {
		a := shown
		a.Files = maps.Clone(shown.Files)
		if a.Files[name] = state; state == "" {
			delete(a.Files, name)
		}
		return a
	}
	for _, tc := range []struct {
		rule string
		a    approvals.Action
		ok   bool
	}{
		{"exactly what was shown", shown, true},
		{"a file that it writes to has come into being", with("/w/new", approvals.AnyContent+": inode 1:9"), true},
		{"a file that it writes to is another one now", with("/w/out", approvals.AnyContent+": inode 1:9"), false},
		{"a file that it writes to is gone", with("/w/out", ""), false},
		{"the script has another content", with("/w/run.sh", "abd"), false},
		{"one more script", with("/w/lib.sh", "x"), false},
	} {
		update(t, mem.Open(), func(tx store.Tx) {
			r := approve(tx, shown)
			if _, ok := l.Granted(tx, r.Thread, tc.a, t0); ok != tc.ok {
				t.Errorf("%s: %v", tc.rule, ok)
			}
		})
	}
}

// TestRowsThatDoNotBelongTogether: half of what was stored is gone, or is from
// elsewhere. Nothing may run on it.
func TestRowsThatDoNotBelongTogether(t *testing.T) {
	var l approvals.Ledger
	id := approvals.ID("abcdefghij")
	forget := func(tx store.Tx) { tx.Delete(store.Key("approval", string(id))) }
	t.Run("a grant whose request is gone is none", func(t *testing.T) {
		for _, a := range []approvals.Action{action(), {}} {
			update(t, mem.Open(), func(tx store.Tx) {
				r := approve(tx, a)
				if _, ok := l.Granted(tx, r.Thread, a, t0); !ok {
					t.Error("it was not granted")
				}
				forget(tx)
				if g, ok := l.Granted(tx, r.Thread, a, t0); ok {
					t.Errorf("%+v", g)
				}
			})
		}
	})
	plan := approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Steps: []approvals.Action{action(), action()}}
	begun := func(tx store.Tx) approvals.Record {
		r := approve(tx, plan)
		if p, _, why := l.Consume(tx, r.ID, plan, t0); !p.Allows(plan) {
			t.Fatal(why)
		}
		return r
	}
	appeared := action()
	appeared.Files = map[string]string{"/w/out": approvals.AnyContent}
	key := store.Key("approval-plan", "web:1")
	t.Run("a step that is not exactly the same needs the request of its plan", func(t *testing.T) {
		update(t, mem.Open(), func(tx store.Tx) {
			r := begun(tx)
			forget(tx)
			if _, _, ok := l.UseStep(tx, r.Thread, appeared, t0); ok {
				t.Error("it was taken")
			}
		})
	})
	t.Run("a plan with other steps than its request is none", func(t *testing.T) {
		for _, steps := range [][]approvals.Digest{{{}}, {{}, {}}, {action().Digest(), {}, {}}} {
			update(t, mem.Open(), func(tx store.Tx) {
				r := begun(tx)
				store.Save(tx, key, approvals.Plan{Of: r.ID, Steps: steps, Until: t0.Add(time.Minute)})
				if _, _, ok := l.UseStep(tx, r.Thread, appeared, t0); ok {
					t.Errorf("a step of %v was taken", steps)
				}
			})
		}
	})
	t.Run("a plan without a next step is none", func(t *testing.T) {
		update(t, mem.Open(), func(tx store.Tx) {
			store.Save(tx, key, approvals.Plan{Of: id, Steps: []approvals.Digest{action().Digest()}, Next: 1, Until: t0.Add(time.Minute)})
			if p, ok := l.PlanOf(tx, "web:1", t0); ok {
				t.Errorf("%+v", p)
			}
			if _, _, ok := l.UseStep(tx, "web:1", action(), t0); ok {
				t.Error("a step was taken")
			}
		})
	})
	t.Run("a row of another form names no open request, and hides none", func(t *testing.T) {
		update(t, mem.Open(), func(tx store.Tx) {
			r := record(1)
			l.Open(tx, r)
			tx.Set(store.Key("approval-open", "web:1", "a", "b"), nil) // before the request's row
			tx.Set(store.Key("approval-open", "web:1", string(id), "b"), nil)
			tx.Set(store.Key("approval-open", "web:1", string(id), "c"), nil)
			tx.Set(store.Key("approval-open", "web:1", "gone"), nil)
			if in, all := l.OpenIn(tx, "web:1"), l.AllOpen(tx); len(in) != 1 || len(all) != 1 || in[0].ID != id || all[0].ID != id {
				t.Errorf("%d and %d are open", len(in), len(all))
			}
		})
	})
	t.Run("a digest that is not the one of the stored action gives no permit", func(t *testing.T) {
		update(t, mem.Open(), func(tx store.Tx) {
			r := approve(tx, action())
			r.Digest = approvals.Digest{1}
			store.Save(tx, store.Key("approval", string(id)), r)
			p, got, why := l.Consume(tx, id, action(), t0)
			if p.Allows(action()) || got.State != approvals.Invalid || !strings.Contains(why, "content changed") {
				t.Errorf("%s: %q", got.State, why)
			}
		})
	})
}

func TestDriftNamesWhatDiffersAndNothingElse(t *testing.T) {
	if d := approvals.Drift(action(), action()); len(d) > 0 {
		t.Errorf("an action differs from itself in %q", d)
	}
	for name, a := range mutations(t) {
		if d := approvals.Drift(action(), a); len(d) != 1 {
			t.Errorf("%s drifted, and what is named is %q", name, d)
		}
	}
	env := func(m map[string]string) (a approvals.Action) {
		a.Env, a.Files = m, m
		return a
	}
	was := env(map[string]string{"a": "1", "b": "2"})
	for rule, m := range map[string]map[string]string{
		"another value": {"a": "1", "b": "3"}, "another name": {"a": "1", "c": "2"}, "an empty value": {"a": "1", "b": ""},
		"one is gone": {"a": "1"}, "one more": {"a": "1", "b": "2", "c": ""}, "all are gone": nil,
	} {
		d := strings.Join(approvals.Drift(was, env(m)), ", ")
		if !strings.Contains(d, "the environment") || !strings.Contains(d, "depends on") {
			t.Errorf("%s: %q", rule, d)
		}
	}
	plan := func(tools ...string) (a approvals.Action) {
		for _, tool := range tools {
			a.Steps = append(a.Steps, approvals.Action{Tool: tool})
		}
		return a
	}
	if d := approvals.Drift(plan("a", "b"), plan("a", "b")); len(d) > 0 {
		t.Errorf("the same steps: %q", d)
	}
	if d := approvals.Drift(plan("a", "b"), plan("b", "a")); !slices.Equal(d, []string{"the steps"}) {
		t.Errorf("the steps in another order: %q", d)
	}
	if d := approvals.Drift(was, env(map[string]string{"b": "2", "a": "1"})); len(d) > 0 {
		t.Errorf("the same in another order: %q", d)
	}
}

func TestShown(t *testing.T) {
	var l approvals.Ledger
	update(t, mem.Open(), func(tx store.Tx) {
		r, _ := l.Open(tx, record(1))
		// A row as of a card without a nonce must not be believed either.
		store.Save(tx, store.Key("approval-face", string(r.ID), ""), r.Digest)
		for nonce, want := range map[string]bool{r.Nonce: true, "": false, r.Nonce + "x": false} {
			if d, ok := l.Shown(tx, r.ID, nonce); ok != want || (d == r.Digest) != want {
				t.Errorf("%q: %s %v", nonce, d, ok)
			}
		}
	})
}

func TestWhatIsDecidedDoesNotEscalate(t *testing.T) {
	var l approvals.Ledger
	update(t, mem.Open(), func(tx store.Tx) {
		r := needs(approvals.Need{Count: 1, Groups: []string{"oncall"}, Escalate: []approvals.Step{{After: time.Minute, Groups: []string{"sre"}}}})
		l.Open(tx, r)
		if _, why, err := l.Vote(tx, r.ID, vote("web:bob", true, t0)); why != approvals.Counted || err != nil {
			t.Fatal(why, err)
		}
		if got, added := l.Escalate(tx, r.ID, t0.Add(time.Hour)); len(added) > 0 || got.State != approvals.Approved || !slices.Equal(got.Require.Groups(), []string{"oncall"}) {
			t.Errorf("%v %+v", added, got)
		}
		if _, added := l.Escalate(tx, "nobodyknow", t0); added != nil {
			t.Errorf("what does not exist: %v", added)
		}
	})
}

// TestWhoseVotesAreEnough looks at the count itself: the ledger refuses most of
// these votes before it counts, and the count must not rest on that.
func TestWhoseVotesAreEnough(t *testing.T) {
	yes := meeting("web:bob", t0, 0)
	no, bot, nobody := yes, yes, yes
	no.Approve = false
	bot.User.Bot = true
	nobody.User.ID = ""
	glass, glassNo, glassBot := yes, no, bot
	glass.Meets, glass.Glass, glassNo.Glass, glassBot.Glass = nil, true, true, true
	one := []approvals.Need{{Count: 1}}
	for _, tc := range []struct {
		rule  string
		needs []approvals.Need
		votes []approvals.Vote
		ok    bool
		met   int
	}{
		{"a vote that meets the need", one, []approvals.Vote{yes}, true, 1},
		{"no votes", one, nil, false, 0},
		{"a denial", one, []approvals.Vote{no}, false, 0},
		{"a bot", one, []approvals.Vote{bot}, false, 0},
		{"nobody", one, []approvals.Vote{nobody}, false, 0},
		{"another need", one, []approvals.Vote{meeting("web:bob", t0, 1)}, false, 0},
		{"the same person twice", []approvals.Need{{Count: 2}}, []approvals.Vote{yes, yes}, false, 1},
		{"no needs", nil, []approvals.Vote{yes}, false, 1},
		{"no needs and no votes", nil, nil, false, 0},
		{"a broken glass", []approvals.Need{{Count: 3}}, []approvals.Vote{glass}, true, 0},
		{"a glass that a denial broke", one, []approvals.Vote{glassNo}, false, 0},
		{"a glass that a bot broke", one, []approvals.Vote{glassBot}, false, 0},
	} {
		r := approvals.Record{Require: approvals.Require{Needs: tc.needs}, Votes: tc.votes}
		if r.Satisfied() != tc.ok || r.Met(0) != tc.met {
			t.Errorf("%s: %v, %d met", tc.rule, r.Satisfied(), r.Met(0))
		}
	}
	if r := (approvals.Record{Votes: []approvals.Vote{yes, no, bot, nobody, glass, meeting("web:eve", t0)}}); r.Approvals() != 2 {
		t.Errorf("%d people approved", r.Approvals())
	}
	several := approvals.Require{Needs: []approvals.Need{{Groups: []string{"b", "a"}}, {Groups: []string{"a", "c", "b"}}}}
	if got := several.Groups(); !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("the groups are %v", got)
	}
}

func TestPermitsToLookNeedTheProofOfTheFile(t *testing.T) {
	var l approvals.Ledger
	look := func(path string) approvals.Action {
		return approvals.Action{Tool: "read_file", Kind: approvals.KindObserve, Path: path}
	}
	proof := func(path string) risk.Verdict {
		text, err := approvals.Reading(path)
		if err != nil {
			t.Fatal(err)
		}
		return risk.Classify(text)
	}
	for _, tc := range []struct {
		rule string
		a    approvals.Action
		v    risk.Verdict
		ok   bool
	}{
		{"the proof of this file", look("/etc/hostname"), proof("/etc/hostname"), true},
		{"no file, and no proof", look(""), risk.Verdict{}, true},
		{"the proof of another file", look("/etc/hosts"), proof("/etc/hostname"), false},
		{"no proof", look("/etc/hostname"), risk.Verdict{}, false},
		{"a name that cannot be written", look("a\x00b"), risk.Verdict{}, false},
		{"a change", approvals.Action{Kind: approvals.KindChange}, risk.Verdict{}, false},
	} {
		if p, err := l.Observe(tc.a, tc.v); (err == nil) != tc.ok || p.Allows(tc.a) != tc.ok {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	if _, err := approvals.Reading("a\x00b"); err == nil {
		t.Error("a name with a zero byte was written as text")
	}
}

func TestKeysThatOnlyInterrupt(t *testing.T) {
	for _, tc := range []struct {
		rule, bytes string
		kind        approvals.Kind
		want        bool
	}{
		{"C-c interrupts", "press C-c\n", approvals.KindKeys, true},
		{"also as c-C", "press c-C\n", approvals.KindKeys, true},
		{"not with anything behind it", "press C-c\npress Enter\n", approvals.KindKeys, false},
		{"another key does not", "press C-d\n", approvals.KindKeys, false},
		{"nothing does not", "", approvals.KindKeys, false},
		{"a command of these letters does not", "press C-c\n", approvals.KindShell, false},
	} {
		if a := (approvals.Action{Kind: tc.kind, Bytes: []byte(tc.bytes)}); a.Interrupts() != tc.want {
			t.Errorf("%s: %v", tc.rule, a.Interrupts())
		}
	}
}

func TestReviewsAreOfABrokenGlass(t *testing.T) {
	var l approvals.Ledger
	update(t, mem.Open(), func(tx store.Tx) {
		r := approve(tx, action())
		if _, ok := l.Reviewed(tx, r.ID, chat.User{ID: "web:eve"}, "", t0); ok {
			t.Error("an ordinary approval was reviewed")
		}
		if _, ok := l.Reviewed(tx, "nobodyknow", chat.User{ID: "web:eve"}, "", t0); ok {
			t.Error("what does not exist was reviewed")
		}
	})
}
