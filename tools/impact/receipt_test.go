package impact_test

import (
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/targets/receipt"
	"countersign/tools/impact"
)

// A look after a command can't name what is gone, and must not say that nothing is.
func TestALookTellsThatANameIsGone(t *testing.T) {
	t.Parallel()
	for want, changes := range map[string][]receipt.Change{
		"added or removed files in /srv": {{Path: "/srv", Kind: receipt.Names}},
		"wrote /srv/a":                   {{Path: "/srv", Kind: receipt.Names}, {Path: "/srv/a", Kind: receipt.Wrote}},
	} {
		r := impact.Receipt(approvals.Action{Bytes: []byte("x")}, approvals.Preview{}, receipt.Report{Changes: changes})
		if r.Text != want {
			t.Errorf("it says %q, not %q", r.Text, want)
		}
	}
}

// A command whose function deletes what was shown, and writes something else beside it.
func TestANameBesideOneThatIsGoneIsTold(t *testing.T) {
	t.Parallel()
	for _, recorded := range []bool{false, true} {
		changes := []receipt.Change{{Path: "/srv/evil", Kind: receipt.Wrote}, {Path: "/srv", Kind: receipt.Names}}
		if recorded {
			changes[1] = receipt.Change{Path: "/srv/v", Kind: receipt.Deleted}
		}
		r := impact.Receipt(approvals.Action{Bytes: []byte("rm /srv/v")}, approvals.Preview{Evidence: approvals.Rehearsed, Text: "deletes /srv/v", Files: []string{"/srv/v"}},
			receipt.Report{Recorded: recorded, Changes: changes})
		if strings.Join(r.Also, "\n") != "wrote /srv/evil" || r.AsApproved {
			t.Errorf("recorded %v: %q, as approved: %v", recorded, r.Also, r.AsApproved)
		}
	}
}

func TestAReceiptSaysWhatNobodyWasShown(t *testing.T) {
	t.Parallel()
	wrote := func(paths ...string) (out []receipt.Change) {
		for _, p := range paths {
			kind := receipt.Wrote
			switch p[0] {
			case '-':
				kind, p = receipt.Deleted, p[1:]
			case '~':
				kind, p = receipt.Attributes, p[1:]
			case '=':
				kind, p = receipt.Links, p[1:]
			case '.':
				kind, p = receipt.Names, p[1:]
			}
			out = append(out, receipt.Change{Path: p, Kind: kind})
		}
		return out
	}
	const rehearsed, predicted, unknown = approvals.Rehearsed, approvals.Predicted, approvals.UnknownEffect
	for _, tc := range []struct {
		name     string
		command  string
		evidence approvals.Evidence
		shown    []string
		report   receipt.Report
		want     string // what nobody was shown, and "as approved"
	}{
		{"the same", "x", rehearsed, []string{"/a", "/b"}, receipt.Report{Recorded: true, Changes: wrote("/a", "-/b")}, "as approved"},
		{"nothing", "x", rehearsed, nil, receipt.Report{Recorded: true}, "as approved"},
		{"less", "x", rehearsed, []string{"/a", "/b"}, receipt.Report{Recorded: true, Changes: wrote("/a")}, ""},
		{"more", "x", rehearsed, []string{"/srv/a"}, receipt.Report{Recorded: true, Changes: wrote("/srv/a", "/opt/b", "-/opt/c", "~/opt/d")},
			"wrote /opt/b\ndeleted /opt/c\nchanged attributes of /opt/d"},
		{"rights first", "x", rehearsed, []string{"/srv/a"}, receipt.Report{Recorded: true, Changes: wrote("/opt/b", "/root/.ssh/authorized_keys", "/srv/a")},
			"wrote /root/.ssh/authorized_keys\nwrote /opt/b"},
		{"a name that is another one each time", "x", rehearsed, []string{"/srv/tmp.1"}, receipt.Report{Recorded: true, Changes: wrote("/srv/tmp.2")}, ""},
		{"and one more", "x", rehearsed, []string{"/srv/tmp.1"}, receipt.Report{Recorded: true, Changes: wrote("/srv/tmp.2", "/srv/z")}, "wrote /srv/z"},
		{"another name in a place for rights", "x", rehearsed, []string{"/etc/cron.d/tmp.1"}, receipt.Report{Recorded: true, Changes: wrote("/etc/cron.d/tmp.2")}, "wrote /etc/cron.d/tmp.2"},
		{"a link beside what was shown", "x", rehearsed, []string{"/srv/hard"}, receipt.Report{Changes: wrote("=/srv/a", "=/srv/hard")}, "as approved"},
		{"a link in a place for rights", "x", rehearsed, []string{"/srv/hard"}, receipt.Report{Changes: wrote("=/etc/sudoers", "=/srv/hard")}, "changed attributes of /etc/sudoers"},
		{"many in a directory", "x", rehearsed, []string{"/var/log/app/"}, receipt.Report{Recorded: true, Changes: wrote("-/var/log/app/1", "-/var/log/app/2")}, "as approved"},
		{"rights among many in a directory", "x", rehearsed, []string{"/home/x/"}, receipt.Report{Recorded: true, Changes: wrote("/home/x/a", "/home/x/.bashrc")}, "wrote /home/x/.bashrc"},
		{"so many that the root stands for them", "x", rehearsed, []string{"/"}, receipt.Report{Recorded: true, Changes: wrote("/a/b", "/etc/cron.d/x")}, "wrote /etc/cron.d/x"},
		{"a directory with all in it", "x", rehearsed, []string{"/srv/d", "/srv/d/f"}, receipt.Report{Recorded: true, Changes: wrote("-/srv/d")}, "as approved"},
		{"a process", "x", rehearsed, nil, receipt.Report{Recorded: true, Left: []receipt.Process{{ID: 7, Name: "nc"}}, New: receipt.State{receipt.Sockets: {"00000000 4444": ""}}},
			"left nc (7) running\nTCP port 4444 is open now"},
		{"a port that somebody else has for a moment", "x", rehearsed, nil, receipt.Report{Recorded: true, New: receipt.State{receipt.Sockets: {"7f000001 42907": ""}}, Gone: receipt.State{receipt.Sockets: {"00000000000000000000ffff7f000001 38221": ""}}},
			"as approved"},
		{"a port that others reach", "x", rehearsed, nil, receipt.Report{Recorded: true, New: receipt.State{receipt.Sockets: {"00000000 42907": "", "7f000001 8080": ""}}},
			"TCP port 42907 is open now\nTCP 127.0.0.1:8080 is open now"},
		{"more than could be noted", "x", rehearsed, nil, receipt.Report{Recorded: true, Missed: true}, ""},
		{"looks", "x", rehearsed, []string{"/srv/a"}, receipt.Report{Changes: wrote("/srv/a", "./srv")}, "as approved"},
		{"looks at a place for rights", "x", rehearsed, []string{"/srv/a"}, receipt.Report{Changes: wrote("/etc/hosts", "./etc")}, "wrote /etc/hosts"},
		{"a name that is gone from a place for rights", "x", rehearsed, nil, receipt.Report{Changes: wrote("./etc/cron.d")}, "added or removed files in /etc/cron.d"},
		{"without a rehearsal", "./deploy", unknown, nil, receipt.Report{Recorded: true, Changes: wrote("/srv/a")}, ""},
		{"rights without a rehearsal", "./deploy", unknown, nil, receipt.Report{Recorded: true, Changes: wrote("/srv/a", "/home/x/.bashrc")}, "wrote /home/x/.bashrc"},
		{"rights that the command names", "echo x >>/etc/hosts; curl x", unknown, nil, receipt.Report{Recorded: true, Changes: wrote("/etc/hosts")}, ""},
		{"rights that were shown", "./deploy", unknown, []string{"/etc/hosts"}, receipt.Report{Recorded: true, Changes: wrote("/etc/hosts")}, ""},
		{"what a program is for", "useradd bob", predicted, nil, receipt.Report{Recorded: true, Changes: wrote("/etc/passwd", "/etc/shadow-", "/etc/subuid")}, ""},
		{"what it is not for", "useradd bob", predicted, nil, receipt.Report{Recorded: true, Changes: wrote("/etc/passwd", "/etc/sudoers")}, "wrote /etc/sudoers"},
		{"jobs", "echo true | at now", predicted, nil, receipt.Report{Changes: wrote("./var/spool/cron/atjobs")}, ""},
		{"packages", "apt-get install -y x", predicted, nil, receipt.Report{Recorded: true, Changes: wrote("/etc/cron.d/x", "/usr/bin/x", "/root/.ssh/authorized_keys")},
			"wrote /root/.ssh/authorized_keys"},
		{"a service", "systemctl restart x", predicted, nil, receipt.Report{Recorded: true, New: receipt.State{receipt.Units: {"x.service": ""}}}, ""},
		{"what isn't a file", "x", rehearsed, nil, receipt.Report{New: receipt.State{receipt.Routes: {"10.0.0.0/8 dev eth0": ""}}, Gone: receipt.State{receipt.Units: {"x.service": "7"}},
			Changed: receipt.State{receipt.Units: {"y.service": "8"}, receipt.Mounts: {"/srv": "ro"}, receipt.Settings: {"net/ipv4/ip_forward": "1"}}},
			"service x.service stopped\nservice y.service restarted\n/srv remounted (ro)\nnet.ipv4.ip_forward is 1 now\nroute 10.0.0.0/8 dev eth0 added"},
		{"what others change all the time", "x", rehearsed, nil, receipt.Report{Recorded: true, Changed: receipt.State{receipt.Firewall: {"rules": "2"}}}, ""},
		{"a directory that is made", "x", rehearsed, nil, receipt.Report{Recorded: true, Changes: wrote("/srv/d", "/srv/d/f")}, "wrote /srv/d/f"},
		{"very many", "x", rehearsed, nil, receipt.Report{Recorded: true, Changes: wrote("/a/1", "/a/2", "/a/3", "/a/4", "/b/1", "/c/1", "/d/1", "/e/1", "/f/1", "/g/1")},
			"wrote 4 files in /a\nwrote /b/1\nwrote /c/1\nwrote /d/1\nwrote /e/1\nand 2 more changes, in the details"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := impact.Receipt(approvals.Action{Bytes: []byte(tc.command), Dir: "/work"}, approvals.Preview{Evidence: tc.evidence, Files: tc.shown}, tc.report)
			said := strings.Join(got.Also, "\n")
			if got.AsApproved {
				said = strings.TrimPrefix(said+"\nas approved", "\n")
			}
			if said != tc.want {
				t.Errorf("it says\n%s\nnot\n%s", said, tc.want)
			}
			if want := map[bool]approvals.Method{true: approvals.Recorded, false: approvals.Compared}[tc.report.Recorded]; got.Method != want {
				t.Errorf("the method is %s", got.Method)
			}
		})
	}
}
