package runner_test

import (
	"strings"
	"testing"

	"countersign/proof/signer/runner"
	"countersign/targets/certificate"
)

func TestAJobIsReadAsItWasWritten(t *testing.T) {
	for _, j := range []certificate.Job{
		{Kind: certificate.Watch}, {Kind: certificate.Follow, Name: "aaaaaaaaaa.12", Key: certificate.KeyName(nil)}, {Kind: certificate.Change, Name: "aaaaaaaaaa", Key: certificate.KeyName(nil), Digest: certificate.Digest(nil)},
	} {
		got, err := runner.ParseJob(strings.Fields(j.Command("/runner"))[1:])
		if err != nil || got != j {
			t.Errorf("%+v: %+v %v", j, got, err)
		}
	}
	for _, bad := range [][]string{nil, {"watch", "x"}, {"change", "aaaaaaaaaa"}, {"follow", "aaaaaaaaaa"}, {"follow", "../aaaaaaa", certificate.KeyName(nil)}, {"follow", "aaaaaaaaaa.0", certificate.KeyName(nil)}, {"follow", "aaaaaaaaaa", "x"}, {"change", "aaaaaaaaaa", certificate.KeyName(nil), "00"}, {"supervise", "/x"}} {
		if _, err := runner.ParseJob(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
