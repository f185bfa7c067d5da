package certificate_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"countersign/approvals"
	"countersign/targets/certificate"
)

func TestADigestIsThatOfTheAction(t *testing.T) {
	a := approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "ssh:a#b", Bytes: []byte("echo <&>"), Args: json.RawMessage(`{"command":"echo <&>"}`), Env: map[string]string{"process": approvals.ByRunner}}
	plan := approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{a, a}}
	raw, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if certificate.Digest(raw) != plan.Digest().String() {
		t.Error("a plan has another digest")
	}
	step, err := certificate.StepOf(raw, 2)
	if err != nil || certificate.Digest(step) != a.Digest().String() {
		t.Errorf("a step has another digest: %v", err)
	}
	if approvals.ByRunner != certificate.Environment {
		t.Error("the runner's environment has two names")
	}
}

// A field that only one of them has would be drawn to nobody, or not be read.
func TestAnActionHasTheFieldsOfAnApproval(t *testing.T) {
	ours, theirs := reflect.TypeFor[certificate.Action](), reflect.TypeFor[approvals.Action]()
	for i := range max(ours.NumField(), theirs.NumField()) {
		if i >= ours.NumField() || i >= theirs.NumField() || ours.Field(i).Name != theirs.Field(i).Name || ours.Field(i).Tag != theirs.Field(i).Tag {
			t.Fatalf("they differ from field %d on", i)
		}
	}
}

// FuzzReadAction: whatever comes, nothing but shell text for a separate process is let through.
func FuzzReadAction(f *testing.F) {
	f.Add([]byte(`{"kind":"shell","bytes":"eA==","env":{"process":"as the runner starts it"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := certificate.ReadAction(raw)
		if err == nil && len(a.Steps) == 0 && (a.Kind != "shell" || a.Pane != "" || a.Session != "" || len(a.Bytes) == 0) {
			t.Fatalf("%+v", a)
		}
	})
}
