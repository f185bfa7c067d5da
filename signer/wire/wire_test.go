package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"countersign/approvals"
	"countersign/signer/wire"
)

func TestADigestIsThatOfTheAction(t *testing.T) {
	a := approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "ssh:a#b", Bytes: []byte("echo <&>"), Args: json.RawMessage(`{"command":"echo <&>"}`), Env: map[string]string{"process": approvals.ByRunner}}
	plan := approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{a, a}}
	raw, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if wire.Digest(raw) != plan.Digest().String() {
		t.Error("a plan has another digest")
	}
	step, err := wire.StepOf(raw, 2)
	if err != nil || wire.Digest(step) != a.Digest().String() {
		t.Errorf("a step has another digest: %v", err)
	}
	if approvals.ByRunner != wire.Environment {
		t.Error("the runner's environment has two names")
	}
}

func TestAJobIsReadAsItWasWritten(t *testing.T) {
	for _, j := range []wire.Job{
		{Kind: wire.Watch}, {Kind: wire.Follow, Name: "aaaaaaaaaa.12", Key: wire.KeyName(nil)}, {Kind: wire.Change, Name: "aaaaaaaaaa", Key: wire.KeyName(nil), Digest: wire.Digest(nil)},
	} {
		got, err := wire.ParseJob(splitWords(j.Command("/runner"))[1:])
		if err != nil || got != j {
			t.Errorf("%+v: %+v %v", j, got, err)
		}
	}
	for _, bad := range [][]string{nil, {"watch", "x"}, {"change", "aaaaaaaaaa"}, {"follow", "aaaaaaaaaa"}, {"follow", "../aaaaaaa", wire.KeyName(nil)}, {"follow", "aaaaaaaaaa.0", wire.KeyName(nil)}, {"follow", "aaaaaaaaaa", "x"}, {"change", "aaaaaaaaaa", wire.KeyName(nil), "00"}, {"supervise", "/x"}} {
		if _, err := wire.ParseJob(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func splitWords(s string) (out []string) {
	for w := range bytes.FieldsSeq([]byte(s)) {
		out = append(out, string(w))
	}
	return out
}

// FuzzReadAction: whatever comes, nothing but shell text for a separate process is let through.
func FuzzReadAction(f *testing.F) {
	f.Add([]byte(`{"kind":"shell","bytes":"eA==","env":{"process":"as the runner starts it"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := wire.ReadAction(raw)
		if err == nil && len(a.Steps) == 0 && (a.Kind != "shell" || a.Pane != "" || a.Session != "" || len(a.Bytes) == 0) {
			t.Fatalf("%+v", a)
		}
	})
}
