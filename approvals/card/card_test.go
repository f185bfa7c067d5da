package card

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

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
