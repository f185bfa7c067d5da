package card

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
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
		ID: "abcdefghij", Thread: "web:1", Call: "c1", Requester: chat.User{ID: "web:alice", Name: "alice"}, Created: t0, Action: a, Digest: a.Digest(),
		Claim:  approvals.Claim{Given: true, Risk: "low", Why: "harmless, \"trust\" me"},
		Engine: approvals.Judgement{Risk: "high", Effects: []string{"service"}, Reasons: []string{"restarts a service"}},
		Level:  "high", Rule: "default: balanced", Require: approvals.Require{Count: 1, Groups: []string{"oncall"}, RequesterMay: true, RunWithin: 2 * time.Minute},
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
