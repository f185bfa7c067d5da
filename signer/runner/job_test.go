package runner_test

import (
	"strings"
	"testing"

	"countersign/signer/runner"
	"countersign/signer/wire"
)

func TestAJobIsReadAsItWasWritten(t *testing.T) {
	for _, j := range []wire.Job{
		{Kind: wire.Watch}, {Kind: wire.Follow, Name: "aaaaaaaaaa.12", Key: wire.KeyName(nil)}, {Kind: wire.Change, Name: "aaaaaaaaaa", Key: wire.KeyName(nil), Digest: wire.Digest(nil)},
	} {
		got, err := runner.ParseJob(strings.Fields(j.Command("/runner"))[1:])
		if err != nil || got != j {
			t.Errorf("%+v: %+v %v", j, got, err)
		}
	}
	for _, bad := range [][]string{nil, {"watch", "x"}, {"change", "aaaaaaaaaa"}, {"follow", "aaaaaaaaaa"}, {"follow", "../aaaaaaa", wire.KeyName(nil)}, {"follow", "aaaaaaaaaa.0", wire.KeyName(nil)}, {"follow", "aaaaaaaaaa", "x"}, {"change", "aaaaaaaaaa", wire.KeyName(nil), "00"}, {"supervise", "/x"}} {
		if _, err := runner.ParseJob(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
