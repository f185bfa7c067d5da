package machines

import (
	"slices"
	"testing"

	"countersign/approvals"
)

// What a command makes isn't there when it is approved, and is looked at all the same.
func TestAReceiptLooksAtWhatTheCommandNames(t *testing.T) {
	for command, want := range map[string][]string{
		"touch /srv/app/new":             {"/work", "/srv/app", "/srv/app/new"},
		"head -c 9 /dev/zero >/srv/huge": {"/work", "/srv", "/srv/huge"},
		"sudo -u app touch /srv/x":       {"/work", "/srv", "/srv/x"},
		"rm ~/old/a":                     {"/home/me/old"},
		"cp -r a /opt/copy":              {"/work", "/work/a", "/opt", "/opt/copy"},
	} {
		got := directories(approvals.Record{Action: approvals.Action{Dir: "/work", Bytes: []byte(command)}}, "/home/me")
		if slices.ContainsFunc(want, func(dir string) bool { return !slices.Contains(got, dir) }) {
			t.Errorf("%s: %q, without some of %q", command, got, want)
		}
	}
}
