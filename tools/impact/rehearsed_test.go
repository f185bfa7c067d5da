package impact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/rehearsal"
)

func regular(size int64) rehearsal.Entry {
	return rehearsal.Entry{Type: 'f', Size: size, Mode: "644", UID: "0", GID: "0"}
}

func changed(kind rehearsal.ChangeKind, path string, before, after rehearsal.Entry) rehearsal.Change {
	return rehearsal.Change{Path: path, Kind: kind, Before: before, After: after}
}

func TestARehearsalIsToldTheWorstFirst(t *testing.T) {
	dir := rehearsal.Entry{Type: 'd', Mode: "755", UID: "0", GID: "0"}
	other := regular(5)
	other.Mode, other.UID = "4755", "1000"
	var logs []rehearsal.Change
	for i := range 214 {
		logs = append(logs, changed(rehearsal.Deleted, fmt.Sprintf("/var/log/app/%d.log", i), regular(1e6), rehearsal.Entry{}))
	}
	for name, tc := range map[string]struct {
		changes []rehearsal.Change
		want    string
	}{
		"below the directory":  {[]rehearsal.Change{changed(rehearsal.Created, "/srv/a/b", rehearsal.Entry{}, regular(1)), changed(rehearsal.Created, "/srv2/a", rehearsal.Entry{}, regular(1))}, "creates a/b (1 byte)\ncreates /srv2/a (1 byte)"},
		"nothing":              {nil, "changes no files"},
		"a directory":          {append([]rehearsal.Change{changed(rehearsal.Deleted, "/var/log/app", dir, rehearsal.Entry{})}, logs...), "deletes /var/log/app with 214 files (214 MB)"},
		"its files":            {logs, "deletes 214 files (214 MB) in /var/log/app"},
		"an empty directory":   {[]rehearsal.Change{changed(rehearsal.Deleted, "/x", dir, rehearsal.Entry{})}, "deletes the empty directory /x"},
		"a file that is read":  {[]rehearsal.Change{changed(rehearsal.Touched, "/x", regular(1), regular(1))}, "updates the timestamp of /x"},
		"a file for rights":    {append(logs[:3:3], changed(rehearsal.Written, "/etc/passwd", regular(10), regular(12))), "writes /etc/passwd (12 bytes, was 10 bytes)\ndeletes 3 files (3 MB) in /var/log/app"},
		"a key":                {[]rehearsal.Change{changed(rehearsal.Created, "/root/.ssh/authorized_keys", rehearsal.Entry{}, regular(1))}, "creates /root/.ssh/authorized_keys (1 byte)"},
		"emptied":              {[]rehearsal.Change{changed(rehearsal.Written, "/x", regular(3e9), regular(0))}, "empties /x (3 GB)"},
		"permissions":          {[]rehearsal.Change{changed(rehearsal.Attributes, "/x", regular(5), other)}, "changes permissions of /x (mode 644 to 4755, owner 0:0 to 1000:0)"},
		"a new tree":           {[]rehearsal.Change{changed(rehearsal.Created, "/x", rehearsal.Entry{}, dir), changed(rehearsal.Created, "/x/y", rehearsal.Entry{}, regular(1))}, "creates the directory /x"},
		"a link":               {[]rehearsal.Change{changed(rehearsal.Written, "/x", regular(1), rehearsal.Entry{Type: 'l', Link: "/y"})}, "links /x to /y"},
		"names that lie":       {[]rehearsal.Change{changed(rehearsal.Deleted, "/x\ndeletes nothing", regular(1), rehearsal.Entry{})}, `deletes /x\ndeletes nothing (1 byte)`},
		"something for a file": {[]rehearsal.Change{changed(rehearsal.Written, "/x", regular(1), dir)}, "replaces /x"},
	} {
		a := shell("touch a/b /srv2/a /x; ln -s /y /x")
		a.Dir = "/srv"
		if got := Rehearsed(a, rehearsal.Report{Changes: tc.changes}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	for said, want := range map[string]string{"redsign:*:20786::::::": "", "cat: x: No such file or directory": ": No such file or directory", "secret No such file or directory": ""} {
		if got := Rehearsed(shell("x"), rehearsal.Report{Code: 2, Error: said}); got != "fails with status 2"+want {
			t.Errorf("%q", got)
		}
	}
	var many []rehearsal.Change
	for i := range 40 {
		many = append(many, changed(rehearsal.Written, fmt.Sprintf("/etc/cron.d/%d", i), regular(1), regular(2)))
	}
	if lines := strings.Split(Rehearsed(shell("x"), rehearsal.Report{Changes: many}), "\n"); len(lines) != maxLines || lines[maxLines-1] != "and 29 more lines" {
		t.Errorf("%q", lines)
	}
}

func TestOnlyWhatAViewShowsWholeIsCalledRehearsed(t *testing.T) {
	deleted := []rehearsal.Change{changed(rehearsal.Deleted, "/x", regular(1), rehearsal.Entry{})}
	hit := func(kind backend.HitKind, name string) []backend.Hit { return []backend.Hit{{Kind: kind, Name: name}} }
	for name, tc := range map[string]struct {
		report    rehearsal.Report
		err       error
		predicted string
		text, dir string
		evidence  approvals.Evidence
		want      string
	}{
		"all of it":        {report: rehearsal.Report{Changes: deleted}, predicted: "p", evidence: approvals.Rehearsed, want: "deletes /x (1 byte)"},
		"a connection":     {report: rehearsal.Report{Changes: deleted, Hits: hit(backend.HitConnect, "")}, evidence: approvals.UnknownEffect, want: "it uses the network, which a rehearsal can't show. File changes:\ndeletes /x (1 byte)"},
		"a socket":         {report: rehearsal.Report{Hits: hit(backend.HitConnect, "/run/docker.sock")}, evidence: approvals.UnknownEffect, want: "it connects to /run/docker.sock, which a rehearsal can't show"},
		"predicted":        {report: rehearsal.Report{Hits: hit(backend.HitSignal, "")}, predicted: "ends nginx", evidence: approvals.Predicted, want: "ends nginx"},
		"a process left":   {report: rehearsal.Report{Left: true, Hits: hit(backend.HitList, "")}, evidence: approvals.UnknownEffect, want: "it lists processes and leaves a process running, which a rehearsal can't show"},
		"rights":           {report: rehearsal.Report{Rights: true, Code: 1}, evidence: approvals.UnknownEffect, want: "it uses elevated privileges, which a rehearsal can't show"},
		"no rehearsal":     {err: rehearsal.NoneError{Why: "took longer than 2 s"}, evidence: approvals.UnknownEffect, want: "couldn't rehearse it (took longer than 2 s)"},
		"a lost target":    {err: errors.New("lost"), evidence: approvals.UnknownEffect, want: "couldn't rehearse it (the target didn't answer in time)"},
		"where files lack": {report: rehearsal.Report{Missing: []string{"/mnt/nas"}}, text: "rm /mnt/nas/a", evidence: approvals.UnknownEffect, want: "it changes files that a rehearsal doesn't have, which a rehearsal can't show"},
		"in a directory":   {report: rehearsal.Report{Missing: []string{"/mnt/nas"}}, text: "rm a", dir: "/mnt/nas/b", evidence: approvals.UnknownEffect, want: "it changes files that a rehearsal doesn't have, which a rehearsal can't show"},
		"elsewhere":        {report: rehearsal.Report{Missing: []string{"/mnt/nas"}}, text: "rm /x", evidence: approvals.Rehearsed, want: "changes no files"},
		"a unit beside a cache": {report: rehearsal.Report{Hits: hit(backend.HitConnect, ""), Changes: []rehearsal.Change{{Path: "/root/.config/systemd/user/x.service", Kind: rehearsal.Created}, {Path: "/root/.cache/x", Kind: rehearsal.Created}}}, text: "cp a ~/.config/systemd/user/x.service", evidence: approvals.UnknownEffect,
			want: "it uses the network, which a rehearsal can't show. File changes:\ncreates /root/.config/systemd/user/x.service"},
		"a program's own cache": {report: rehearsal.Report{Hits: hit(backend.HitConnect, ""), Changes: []rehearsal.Change{{Path: "/root/.kube/cache/http/1", Kind: rehearsal.Deleted}}}, evidence: approvals.UnknownEffect, want: "it uses the network, which a rehearsal can't show"},
		"what the kernel has":   {report: rehearsal.Report{Hits: hit(backend.HitWrite, "/proc/sys/vm/swappiness")}, text: "sysctl -w vm.swappiness=1", evidence: approvals.UnknownEffect, want: "it changes /proc/sys/vm/swappiness, which a rehearsal can't show"},
	} {
		got := Preview(approvals.Action{Bytes: []byte(tc.text), Dir: tc.dir}, "/root", tc.report, tc.err, tc.predicted)
		if got.Evidence != tc.evidence || got.Text != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What ran without an approval says nothing to people in words of its own.
func TestNamesThatARunMadeAreCountedAndNotShown(t *testing.T) {
	const secret = "aHVudGVyMg"
	made := func(p string) rehearsal.Change {
		return changed(rehearsal.Created, p, rehearsal.Entry{}, regular(2))
	}
	dir := rehearsal.Entry{Type: 'd'}
	link := rehearsal.Entry{Type: 'l', Link: secret}
	for name, tc := range map[string]struct {
		text    string
		changes []rehearsal.Change
		hits    []backend.Hit
		want    string
	}{
		"a name":                {`touch "$(f)"`, []rehearsal.Change{made("/srv/app/" + secret)}, nil, "creates 1 file with a generated name in /srv/app"},
		"two, and one of ours":  {`touch a "$(f)"`, []rehearsal.Change{made("/srv/app/a"), made("/srv/app/x" + secret), made("/srv/app/y" + secret)}, nil, "creates 2 files with generated names in /srv/app\ncreates a (2 bytes)"},
		"a part of a word":      {"touch a" + secret, []rehearsal.Change{made("/srv/app/" + secret)}, nil, "creates 1 file with a generated name in /srv/app"},
		"below a directory":     {`mkdir -p "$(f)/.ssh"; touch authorized_keys`, []rehearsal.Change{changed(rehearsal.Created, "/srv/app/"+secret, rehearsal.Entry{}, dir), made("/srv/app/" + secret + "/.ssh/authorized_keys"), changed(rehearsal.Created, "/srv/app/"+secret+"/.ssh", rehearsal.Entry{}, dir)}, nil, "creates 1 directory (1 file) with a generated name in /srv/app"},
		"what is lost first":    {`f; rm -r /srv/data`, []rehearsal.Change{made("/srv/app/" + secret), changed(rehearsal.Deleted, "/srv/data/a", rehearsal.Entry{Type: 'f', Size: 1}, rehearsal.Entry{}), made("/etc/cron.d/" + secret)}, nil, "creates 1 file with a generated name in /etc/cron.d\ndeletes /srv/data/a (1 byte)\ncreates 1 file with a generated name in /srv/app"},
		"files and a directory": {`f`, []rehearsal.Change{made("/srv/app/x" + secret), changed(rehearsal.Created, "/srv/app/"+secret, rehearsal.Entry{}, dir), made("/srv/app/" + secret + "/a"), made("/srv/app/" + secret + "/b")}, nil, "creates 1 file and 1 directory (2 files) with generated names in /srv/app"},
		"where rights come":     {`touch "/etc/cron.d/$(f)" z`, []rehearsal.Change{made("/a" + secret), made("/etc/cron.d/" + secret)}, nil, "creates 1 file with a generated name in /etc/cron.d\ncreates 1 file with a generated name in /"},
		"a well-known name":     {`echo >>"$(f)"`, []rehearsal.Change{made("/root/.ssh/authorized_keys"), made("/etc/ld.so.preload")}, nil, "creates /root/.ssh/authorized_keys (2 bytes)\ncreates /etc/ld.so.preload (2 bytes)"},
		"another ending":        {"gzip a.log; gunzip b.gz", []rehearsal.Change{made("/srv/app/a.log.gz"), made("/srv/app/b")}, nil, "creates a.log.gz (2 bytes)\ncreates b (2 bytes)"},
		"where a link leads":    {`ln -s "$(f)" l`, []rehearsal.Change{changed(rehearsal.Created, "/srv/app/l", rehearsal.Entry{}, link), changed(rehearsal.Written, "/srv/app/m", regular(1), link)}, nil, "links m\ncreates the link l"},
		"what it wanted":        {"cat f", nil, []backend.Hit{{Kind: backend.HitConnect, Name: "/tmp/" + secret}, {Kind: backend.HitWrite, Name: "/proc/" + secret}}, "it uses the network and changes the system, which a rehearsal can't show"},
		"what its text wants":   {"echo 1 >/proc/sys/x", nil, []backend.Hit{{Kind: backend.HitWrite, Name: "/proc/sys/x"}}, "it changes /proc/sys/x, which a rehearsal can't show"},
	} {
		p := Preview(shell(tc.text), "/root", rehearsal.Report{Changes: tc.changes, Hits: tc.hits}, nil, "")
		if p.Text != tc.want || strings.Contains(p.Text, secret) {
			t.Errorf("%s: %q, want %q", name, p.Text, tc.want)
		}
	}
}

func TestATextIsPortableThatNeedsNothingOfItsShell(t *testing.T) {
	for text, want := range map[string]bool{
		"rm -rf /x": true, "rm $HOME/x": true, "rm \"$f\"": false, "f=/x; rm $f": true, "for f in *; do rm $f; done": true, "rm ${DIR:-/x}": false,
		"kill %1": false, "fg": false, "cd /x && rm y": true, "read a; echo $a": true, "rm $(cat list)": true, "eval $x": false, "rm '$f'": true, "echo (": false,
	} {
		if Portable(text) != want {
			t.Errorf("%s", text)
		}
	}
}

// simulator is a fakeRunner that also simulates.
type simulator struct {
	*fakeRunner
	out string
	ran *[][]string
}

func (s simulator) Simulate(_ context.Context, sim Simulation) (string, int, error) {
	if why := checkSimulation(sim); why != "" {
		s.t.Errorf("%s: it simulates by %q", why, sim.Argv())
	}
	if s.ran != nil {
		*s.ran = append(*s.ran, sim.Argv())
	}
	return s.out, 0, nil
}

func TestManifestsArePredictedByTheirCluster(t *testing.T) {
	for command, want := range map[string]string{
		"kubectl apply -n shop --context c1 -f web.yaml":                   "kubectl apply --namespace=shop --context=c1 --filename=/srv/app/web.yaml --dry-run=server",
		"kubectl create -f b.yaml --context c1":                            "kubectl create --filename=/srv/app/b.yaml --context=c1 --dry-run=server",
		"kubectl create -f k8s/ --context c1":                              "", // which may hold a Secret
		"kubectl apply -f a*.yaml":                                         "",
		"kubectl apply -f '/srv/app/[a].yaml'":                             "",
		"kubectl apply --server-side -f /etc/a.yaml --context=c1":          "kubectl apply --server-side --filename=/etc/a.yaml --context=c1 --dry-run=server",
		"kubectl replace -f a.yaml --validate=warn":                        "kubectl replace --filename=/srv/app/a.yaml --validate=warn --dry-run=server",
		"kubectl apply -f a.yaml --validate=--dry-run=none":                "kubectl apply --filename=/srv/app/a.yaml --validate=--dry-run=none --dry-run=server",
		"kubectl apply -f a.yaml -n --kubeconfig=/tmp/evil":                "",
		"kubectl apply -f a.yaml --validate":                               "",
		"kubectl apply -f a.yaml deployment":                               "",
		"kubectl apply -R -f k8s/":                                         "",
		"kubectl apply -f a.yaml --save-config":                            "",
		"kubectl apply -f a.yaml --server-side=false":                      "",
		"kubectl apply -f a.yaml -f b.yaml,-":                              "",
		"kubectl apply -f .env":                                            "",
		"kubectl apply -f https://example.com/a.yaml --context c1":         "",
		"kubectl apply -f - --context c1":                                  "",
		"kubectl apply -k overlay --context c1":                            "",
		"kubectl apply --prune -f a.yaml --context c1":                     "",
		"kubectl replace --force -f a.yaml --context c1":                   "",
		"kubectl apply -f a.yaml --kubeconfig /tmp/evil":                   "",
		"kubectl apply -f a.yaml --server https://evil --context x":        "",
		"kubectl apply -f a.yaml --dry-run=server":                         "",
		"kubectl apply -f a.yaml --dry-run":                                "",
		"kubectl --dry-run=server apply -f a.yaml --context c1 --all=true": "",
	} {
		var ran [][]string
		s := simulator{&fakeRunner{t: t, replies: map[string]reply{"realpath": {}, "-f /srv/app/k8s": {exit: 1}}}, "deployment.apps/web configured (server dry run)\nservice/web created (server dry run)\n", &ran}
		got := Of(t.Context(), shell(command), proves, s)
		text := ""
		for _, argv := range ran {
			text += strings.Join(argv, " ")
		}
		if text != want || want != "" && got != "the cluster tried it and stored nothing: deployment.apps/web configured, service/web created" {
			t.Errorf("%s: %q, by %q", command, got, ran)
		}
	}
}

func TestOnlyAClusterThatAReadMayAskIsAskedForASimulation(t *testing.T) {
	mine := func(text string) bool {
		v := risk.Judge(risk.Text{Command: text, Shell: risk.Bash, Locked: true, Reach: func(h risk.Hop) bool { return h.Name == "c1" }})
		return v.Proves(text, true)
	}
	for options, want := range map[string]int{"": 1, "--context c1": 1, "--context prod": 0, "--cluster=prod": 0, "--context c1 --context prod": 0, "--context=--server=evil": 0} {
		var ran [][]string
		Of(t.Context(), shell("kubectl apply -f a.yaml "+options), mine, simulator{&fakeRunner{t: t, replies: map[string]reply{"realpath": {}}}, "x created (server dry run)\n", &ran})
		if len(ran) != want {
			t.Errorf("%s: %q", options, ran)
		}
	}
}

// TestOnlyFilesThatAReadMayShowGoToACluster, and plain ones.
func TestOnlyFilesThatAReadMayShowGoToACluster(t *testing.T) {
	for file, want := range map[string]int{"a.yaml": 1, "/srv/b.yaml": 1, ".env": 0, "/root/.kube/config": 0, "/etc/shadow": 0, "id_rsa": 0, "-": 0, "https://x/a.yaml": 0, "a.yaml,b.yaml": 0, "*.yaml": 0} {
		var ran [][]string
		mine := func(text string) bool {
			return risk.Judge(risk.Text{Command: text, Shell: risk.Bash, Locked: true, Reach: func(risk.Hop) bool { return true }}).Proves(text, true)
		}
		Of(t.Context(), shell("kubectl apply -f '"+file+"'"), mine, simulator{&fakeRunner{t: t, replies: map[string]reply{"realpath": {}}}, "x created (server dry run)\n", &ran})
		if len(ran) != want {
			t.Errorf("%s: %q", file, ran)
		}
	}
}

func TestWhatAClusterWouldRefuseIsSaid(t *testing.T) {
	for _, said := range []string{`The Deployment "bad" is invalid: spec.replicas: Invalid value: -1`, "Error from server (Forbidden): no"} {
		s := simulator{&fakeRunner{t: t, replies: map[string]reply{"realpath": {}}}, "service/web created (server dry run)\n" + said + "\n", nil}
		if got := Of(t.Context(), shell("kubectl apply -f a.yaml --context c1"), proves, s); got != "the cluster would refuse it: "+said+"\nthe cluster tried it and stored nothing: service/web created" {
			t.Errorf("%q", got)
		}
	}
}

func TestPackagesArePredictedByTheirOwnProgram(t *testing.T) {
	for command, want := range map[string]string{
		"apt-get install -y nginx":       "removes 1 package: apache2 2.4\nchanges 1 package: libc6 2.36-9 to 2.36-10\ninstalls 2 packages: nginx 1.22, nginx-common 1.22",
		"sudo apt-get dist-upgrade -y":   "removes 1 package: apache2 2.4\nchanges 1 package: libc6 2.36-9 to 2.36-10\ninstalls 2 packages: nginx 1.22, nginx-common 1.22",
		"apt-get install -y ./local.deb": "",
		"apt-get install -t sid nginx":   "",
	} {
		s := simulator{&fakeRunner{t: t}, "Reading package lists...\nRemv apache2 [2.4]\nInst libc6 [2.36-9] (2.36-10 Debian:12 [amd64])\nInst nginx (1.22 Debian:12 [amd64])\nInst nginx-common (1.22 Debian:12 [all])\nConf nginx (1.22 Debian:12 [amd64])\n", nil}
		if got := Of(t.Context(), shell(command), proves, s); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// What a rehearsal changed in very many directories is still known, so that nothing of it looks unexpected.
func TestAPreviewKeepsWhatARehearsalChanged(t *testing.T) {
	var r rehearsal.Report
	for i := range 300 {
		r.Changes = append(r.Changes, rehearsal.Change{Path: fmt.Sprintf("/srv/%d/%d/f", i/10, i), Kind: rehearsal.Created})
	}
	r.Changes = append(r.Changes, rehearsal.Change{Path: "/etc/cron.d/x", Kind: rehearsal.Created})
	p := Preview(shell("x"), "/root", r, nil, "")
	if len(p.Files) > 100 || !slices.Contains(p.Files, "/etc/cron.d/x") {
		t.Errorf("%q", p.Files)
	}
	for _, c := range r.Changes {
		if !slices.ContainsFunc(p.Files, func(f string) bool { return f == c.Path || strings.HasSuffix(f, "/") && strings.HasPrefix(c.Path, f) }) {
			t.Errorf("%s is lost", c.Path)
		}
	}
}
