package card

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
)

var update = flag.Bool("update", false, "write the golden files")

func record(s approvals.State) approvals.Record {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Dir: "/srv/app", Session: "countersign-ops-1", Pane: "shared", Bytes: []byte("systemctl restart app\necho done")}
	r := approvals.Record{
		ID: "abcdefghij", Nonce: "NONCE", Thread: "web:1", Call: "c1", Requester: chat.User{ID: "web:alice", Name: "alice"}, Created: t0, Action: a, Digest: a.Digest(),
		Claim:  approvals.Claim{Given: true, Risk: "low", Why: "harmless, \"trust\" me"},
		Engine: approvals.Judgement{Risk: "high", Effects: []string{"service"}, Reasons: []string{"restarts a service"}},
		Level:  "high", Rule: "default: balanced", Require: approvals.Require{Needs: []approvals.Need{{Rule: "default", Count: 1, Groups: []string{"oncall"}}}, RequesterMay: true, RunWithin: 2 * time.Minute},
		State: s, ExpiresAt: t0.Add(15 * time.Minute),
	}
	if s != approvals.Pending {
		r.By, r.Decided = chat.User{ID: "web:bob", Name: "bob"}, t0.Add(time.Minute)
	}
	switch s {
	case approvals.Done:
		r.Outcome = approvals.Outcome{OK: true, Note: "exit code 0"}
	case approvals.Denied:
		r.Reason = "not during \u202epeak"
	case approvals.Cancelled:
		r.Reason = "stopped"
	case approvals.Invalid:
		r.Reason = "what would run is no longer what was approved: the directory changed"
	default:
	}
	return r
}

func TestOnlyWhatCanBeTakenBackOffersUndo(t *testing.T) {
	for _, s := range []approvals.State{approvals.Pending, approvals.Running, approvals.Done, approvals.OutUnk, approvals.Denied} {
		for _, undo := range []bool{false, true} {
			r := record(s)
			r.Outcome.Undo = undo
			c := Of(r, "")
			if want := undo && s == approvals.Done; (len(c.After) == 1 && c.After[0].ID == chat.ButtonID(UndoPrefix+string(r.ID))) != want {
				t.Errorf("%s, %v: %+v", s, undo, c.After)
			}
		}
	}
}

// request, tool, arguments, level and what can be decided.
func TestFaces(t *testing.T) {
	for _, s := range []approvals.State{
		approvals.Pending, approvals.Approved, approvals.Running, approvals.Done, approvals.OutUnk,
		approvals.Denied, approvals.Expired, approvals.Cancelled, approvals.Invalid,
	} {
		t.Run(string(s), func(t *testing.T) {
			c := Of(record(s), "")
			if (len(c.Choose) > 0) != (s == approvals.Pending) || c.Final == (s == approvals.Pending) {
				t.Error("only a pending card has buttons")
			}
			got, err := json.MarshalIndent(c, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", string(s)+".json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != string(got)+"\n" {
				t.Fatalf("the face differs from %s (run with -update after looking at it): %v\n%s", path, err, got)
			}
		})
	}
}

// TestACardShowsAllThatDecides: whatever a tool says of its action, the whole of
// it is on the card.
func TestACardShowsAllThatDecides(t *testing.T) {
	for _, tc := range []struct {
		rule string
		a    approvals.Action
		code string
		body string
	}{
		{"shell text is shown and never its preview", approvals.Action{Kind: approvals.KindShell, Bytes: []byte("rm x"), Preview: "ls", Whole: true}, "rm x", "ls"},
		{"a summary stands beside the content", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("a\nb"), Preview: "new file"}, "a\nb", "new file"},
		{"a whole preview stands for the content", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("a\nb"), Preview: "+a\n+b\n", Whole: true}, "+a\n+b\n", ""},
		{"an empty preview is never whole", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("a"), Whole: true}, "a", ""},
		{"without content the arguments are shown", approvals.Action{Tool: "kill", Kind: approvals.KindChange, Args: json.RawMessage(`{"pane":"x"}`), Preview: "end it"}, `kill {"pane":"x"}`, "end it"},
		{"an unknown kind too", approvals.Action{Tool: "x", Args: json.RawMessage(`{"a":1}`), Preview: "harmless"}, `x {"a":1}`, "harmless"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if c := Of(approvals.Record{State: approvals.Pending, Action: tc.a}, ""); c.Code != tc.code || c.Body != tc.body {
				t.Fatalf("code %q, body %q", c.Code, c.Body)
			}
		})
	}
}

func TestFieldsOfAnAction(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	r := record(approvals.Pending)
	r.Action = approvals.Action{
		Tool: "write_file", Kind: approvals.KindChange, Target: "local", Path: "/srv/a\nTarget: other", Bytes: []byte("x"),
		Args: json.RawMessage(`{"content":"x","mode":"0600","path":"a"}`), Env: map[string]string{"B": "2", "A": "1\n3"},
		Files: map[string]string{"/srv/a": "absent", "/srv/b": sum}, Session: "ops",
	}
	var got []string
	for _, f := range fields(r) {
		if strings.Contains(f.Value, "\n") {
			t.Errorf("%s has more than one line: %q", f.Name, f.Value)
		}
		got = append(got, f.Name+": "+f.Value)
	}
	for _, want := range []string{
		`File: /srv/a\x0aTarget: other`, `Arguments: {"mode":"0600","path":"a"}`, `Environment: A=1\x0a3`, "Environment: B=2",
		"Depends on: /srv/a, absent", "Depends on: /srv/b, SHA-256 abababababab", "Length: 1 line, 1 bytes, no newline at the end", "Session: ops",
	} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("%q is missing in:\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestTwoTextsNeverLookAlike: what invisible characters become can be told from
// the same letters written out.
func TestTwoTextsNeverLookAlike(t *testing.T) {
	gen := rapid.StringOfN(rapid.SampledFrom([]rune("a\\x0d1b\r\x1b\n\u200b{}u200B")), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if a == b {
			return
		}
		codeA, oddA := exact(a)
		codeB, oddB := exact(b)
		if codeA == codeB && oddA == oddB {
			t.Fatalf("%q and %q are both shown as %q", a, b, codeA)
		}
		if line(a) == line(b) {
			t.Fatalf("%q and %q are both shown as %q on a line", a, b, line(a))
		}
	})
	if c, odd := exact("a\r and \\x0d"); c != `a\x0d and \x5cx0d` || !odd {
		t.Errorf("%q", c)
	}
}

// TestDisagreementIsInWords goes through every claim and every verdict: the card
// speaks exactly where the model says less than the engine.
func TestDisagreementIsInWords(t *testing.T) {
	engines := []string{"read", "low", "medium", "high", "critical", "unknown"} // ascending; unknown is the highest
	rank := map[string]int{"": 1, "low": 1, "medium": 2, "high": 3, "odd": 5, "unknown": 5}
	for i, engine := range engines {
		for word, model := range rank {
			for bits := range 16 {
				mutation, privesc, readOnly, uses := bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0
				r := record(approvals.Pending)
				r.Claim = approvals.Claim{Given: true, Risk: word, Mutation: mutation, Privesc: privesc, Why: "x"}
				r.Engine = approvals.Judgement{Risk: engine, ReadOnly: readOnly, Reasons: []string{"because"}, Effects: []string{"write"}}
				if uses {
					r.Engine.Effects = append(r.Engine.Effects, "privesc")
				}
				want := i > model || (!mutation && !readOnly) || (!privesc && uses)
				c := Of(r, "")
				said := ""
				for _, w := range c.Warn {
					if strings.HasPrefix(w, "The model says") {
						said = w
					}
				}
				name := fmt.Sprintf("model %q change %v privileges %v, engine %s read-only %v privileges %v", word, mutation, privesc, engine, readOnly, uses)
				if (said != "") != want {
					t.Fatalf("%s: %q", name, said)
				}
				if said == "" {
					continue
				}
				for part, must := range map[string]bool{
					strings.ToUpper(engine): true, "because": true, "no change": !mutation, "not proven to only read": !mutation && !readOnly,
					"no raised privileges": !privesc && uses, "and raised privileges": !privesc && uses,
				} {
					if strings.Contains(said, part) != must {
						t.Fatalf("%s: %q should hold %q: %v", name, said, part, must)
					}
				}
				r.Claim.Given = false
				if s := disagreement(r); s != "" {
					t.Fatalf("nothing was claimed: %q", s)
				}
			}
		}
	}
}

func TestButtons(t *testing.T) {
	r := record(approvals.Pending)
	r.Action.Bytes, r.Action.Args = []byte("ls"), json.RawMessage(`{"command":"ls"}`)
	styles := func() (out []chat.ButtonStyle) {
		for _, b := range Of(r, "").Choose {
			out = append(out, b.Style)
		}
		return out
	}
	if got := styles(); !slices.Equal(got, []chat.ButtonStyle{chat.StyleDeny, chat.StyleApprove, chat.StyleEdit, chat.StyleStop}) {
		t.Errorf("%v", got)
	}
	if b := Of(r, "").Choose; b[2].Edit != "ls" || b[2].ID != "edit:abcdefghij.NONCE" || b[3].ID != "stop:abcdefghij" {
		t.Errorf("%+v", b)
	}
	r.Action.Kind = approvals.KindKeys
	if got := styles(); !slices.Equal(got, []chat.ButtonStyle{chat.StyleDeny, chat.StyleApprove, chat.StyleStop}) {
		t.Errorf("%v", got)
	}
	for id, want := range map[chat.ButtonID][3]string{
		"approve:abc.N": {ApprovePrefix, "abc", "N"}, "deny:abc": {DenyPrefix, "abc", ""}, "edit:abc.": {EditPrefix, "abc", ""},
		"stop:abc": {StopPrefix, "abc", ""}, "approve:abc.N.M": {ApprovePrefix, "abc", "N.M"}, "approve:": {}, "approve:.N": {}, "always:abc.N": {}, "": {},
	} {
		prefix, rec, nonce, ok := Parse(id)
		if ok != (want[0] != "") || (ok && [3]string{prefix, string(rec), nonce} != want) {
			t.Errorf("%q: %q %q %q %v", id, prefix, rec, nonce, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"approve:abcdefghij.NONCE", "stop:x", "deny:", "edit:..", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		prefix, id, nonce, ok := Parse(chat.ButtonID(s))
		if !ok {
			return
		}
		again := prefix + string(id)
		if nonce != "" || strings.HasSuffix(s, string(id)+".") {
			again += "." + nonce
		}
		if again != s || id == "" {
			t.Fatalf("%q became %q", s, again)
		}
	})
}

// What networks do with a card that they cannot show whole goes by the style of
// its buttons: everything that approves has that style.
func TestWhatApprovesLooksLikeIt(t *testing.T) {
	r := record(approvals.Pending)
	r.Require.BreakGlass, r.Require.Grant = []string{"lead"}, time.Hour
	found := 0
	for _, b := range Of(r, "").Choose {
		prefix, _, _, _ := Parse(b.ID)
		switch prefix {
		case ApprovePrefix, GrantPrefix, GlassPrefix:
			found++
			if b.Style != chat.StyleApprove {
				t.Errorf("%s has the style %q", b.ID, b.Style)
			}
		default:
			if b.Style == chat.StyleApprove {
				t.Errorf("%s looks as if it approved", b.ID)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d buttons approve", found)
	}
}

// D2: the last sentence of a card follows from the recorded outcome, and from nothing else.
func TestTheLastSentenceFollowsFromTheOutcome(t *testing.T) {
	for want, o := range map[string]approvals.Outcome{
		"It ran: exit code 0.":            {OK: true, Note: "exit code 0"},
		"It ran: done.":                   {OK: true, Note: "done"},
		"It ran.":                         {OK: true},
		"It ran and failed: exit code 3.": {Note: "exit code 3"},
		"It ran and failed.":              {Note: "failed"},
		"It ran and failed: stopped by a person while it ran.":   {Note: "stopped by a person while it ran"},
		"It ran and was ended by the signal SIGKILL.":            {Note: "exit code 137", Signal: "KILL"},
		"It was not run: the pane %3 is gone; propose it again.": {Note: "the command was not run: the pane %3 is gone; propose it again", Unstarted: true},
		"It was not run: no room.":                               {Note: "no room", Unstarted: true},
	} {
		r := approvals.Record{State: approvals.Done, By: chat.User{Name: "bob"}, Outcome: o}
		c := Of(r, "")
		if !strings.HasSuffix(strings.TrimSpace(c.Body), " "+want) {
			t.Errorf("%+v: %q", o, c.Body)
		}
	}
}

// S7: everybody who approved is named, with the reason that they gave.
func TestEverybodyWhoApprovedIsNamedWithTheirReason(t *testing.T) {
	r := record(approvals.Done)
	r.Basis.Kind, r.By = approvals.ByVotes, chat.User{Name: "lou"}
	r.Votes = []approvals.Vote{
		{User: chat.User{Name: "bob"}, Approve: true, Reason: "the disk is full"}, {User: chat.User{Name: "ann"}}, {User: chat.User{ID: "web:kim"}, Approve: true}, {User: chat.User{Name: "lou"}, Approve: true},
	}
	r.Outcome = approvals.Outcome{OK: true}
	if c := Of(r, ""); !strings.Contains(c.Body, `Approved by bob ("the disk is full"), web:kim and lou at `) {
		t.Error(c.Body)
	}
}

// W6: what a warning quotes was made visible where it was found, and is escaped once.
func TestAWarningShowsItsEscapesOnce(t *testing.T) {
	r := record(approvals.Pending)
	r.Taint = `"a\u{202E}b" first appeared in a web page`
	if c := Of(r, ""); len(c.Warn) == 0 || c.Warn[len(c.Warn)-1] != r.Taint {
		t.Errorf("%q", c.Warn)
	}
}
