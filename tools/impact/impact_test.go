package impact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"countersign/approvals"
	"countersign/approvals/risk"
)

// reply is what a fake read brings.
type reply struct {
	out  string
	exit int
	err  error
}

// fakeRunner answers the reads that a test expects and records all of them.
type fakeRunner struct {
	t       interface{ Errorf(string, ...any) }
	replies map[string]reply // by a part of the command
	ran     []string
	always  *reply
	delay   time.Duration
}

// proves judges as a bot does whose target has a lock, and whose configuration lists the
// places of these tests.
func proves(text string) bool {
	_, v := risk.Settle(risk.Judge, risk.Text{Command: text, Dir: "/srv", Shell: risk.Bash, Locked: true, Environ: true, Reach: func(risk.Hop) bool { return true }})
	return v.Proves(text, true)
}

func (f *fakeRunner) Read(ctx context.Context, command string) (string, int, error) {
	f.ran = append(f.ran, command)
	if !proves(command) {
		f.t.Errorf("a preview ran text that is not proven: %s", command)
	}
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			return "", 0, ctx.Err()
		}
	}
	best := ""
	for part := range f.replies {
		if strings.Contains(command, part) && len(part) > len(best) {
			best = part
		}
	}
	if best != "" {
		r := f.replies[best]
		return r.out, r.exit, r.err
	}
	if f.always != nil {
		return f.always.out, f.always.exit, f.always.err
	}
	return "", 127, nil
}

func shell(command string) approvals.Action {
	return approvals.Action{Kind: approvals.KindShell, User: "bot", Dir: "/srv/app", Bytes: []byte(command)}
}

// rec is a record of find as look asks for it.
func rec(depth int, kind string, size int, path string) string {
	if len(kind) == 1 {
		kind += kind
	}
	return fmt.Sprintf("%d\t%s\t%d\t644\troot:root\t2025-01-02 03:04\t%s\x00", depth, kind, size, path)
}

var end = rec(0, "c", 0, lastPath)

const findTail = ` -printf '%d\t%y%Y\t%s\t%m\t%u:%g\t%TY-%Tm-%Td %TH:%TM\t%p\0' -type d \( ! -readable -o ! -executable \) -printf '!\0' | head -z -n 10001`

type preview struct {
	name    string
	command string
	replies map[string]reply
	ran     []string // exactly, and in order
	want    string
}

func (tt preview) run(t *testing.T) {
	t.Helper()
	f := &fakeRunner{t: t, replies: tt.replies}
	if got := Of(t.Context(), shell(tt.command), proves, f); got != strings.TrimSpace(tt.want) {
		t.Errorf("%s\ngot:\n%s\nwant:\n%s", tt.command, got, strings.TrimSpace(tt.want))
	}
	if !slices.Equal(f.ran, tt.ran) {
		t.Errorf("%s\nran:\n%s\nwant:\n%s", tt.command, strings.Join(f.ran, "\n"), strings.Join(tt.ran, "\n"))
	}
}

const kubeGet = " --no-headers -o custom-columns=KIND:.kind,NAME:.metadata.name,NAMESPACE:.metadata.namespace"

// managed is the read of who manages objects.
func managed(scope, things string) string {
	return "kubectl get" + scope + " --ignore-not-found --no-headers -o '" + managerColumns + "' " + things
}

const gitLog = gitRead + " -C /srv/app/ log --oneline --no-color --no-decorate --no-ext-diff --no-textconv -n 100 "

var previews = []preview{
	{
		name: "rm -r counts what lies below and names the largest", command: "sudo rm -rf logs /tmp/gone",
		replies: map[string]reply{"find": {out: rec(0, "d", 4096, "/srv/app/logs") + rec(1, "f", 2_500_000, "/srv/app/logs/a") + rec(1, "f", 10, "/srv/app/logs/b\nfake") + rec(1, "d", 4096, "/srv/app/logs/locked") + "!\x00" + end}},
		ran:     []string{"timeout 2 find /srv/app/logs /tmp/gone /dev/null" + findTail},
		want: `
would remove 2 files and 2 directories, 2.5 MB
largest: logs/a (2.5 MB), logs/b\nfake (10 bytes)
not counted is what lies in 1 directory that cannot be looked into: /srv/app/logs/locked
does not exist, or cannot be seen without the rights that it would have: /tmp/gone`,
	},
	{
		name: "rm expands patterns with the shell and says which fit nothing", command: `rm -- "my dir"/*.log old?.gz`,
		replies: map[string]reply{"find": {out: rec(0, "f", 1, "/srv/app/my dir/a.log") + rec(0, "f", 999, "/srv/app/my dir/b.log") + end}},
		ran:     []string{`timeout 2 find /srv/app/'my dir/'*.log /srv/app/old?.gz /dev/null -maxdepth 0` + findTail},
		want: `
would remove 2 files, 1 kB
largest: my dir/b.log (999 bytes), my dir/a.log (1 byte)
nothing fits: old?.gz`,
	},
	{
		name: "rm without -r leaves directories", command: "rm -f a b",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/srv/app/a") + rec(0, "f", 12_345, "/srv/app/b") + end}},
		ran:     []string{"timeout 2 find /srv/app/a /srv/app/b /dev/null -maxdepth 0" + findTail},
		want: `
would remove 1 file, 12.3 kB
  /srv/app/b, last changed 2025-01-02 03:04
stays, because it is a directory: /srv/app/a`,
	},
	{
		name: "a list that was cut is no count", command: "rm -r x",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/srv/app/x") + rec(1, "f", 5000, "/srv/app/x/1") + "1\tff\t50"}},
		ran:     []string{"timeout 2 find /srv/app/x /dev/null" + findTail},
		want: `
would remove at least 2 files and directories, 5 kB and more (counting them all takes too long)
largest of those seen: x/1 (5 kB)`,
	},
	{
		name: "more than 10,000 files are not counted", command: "rm -r x",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/srv/app/x") + strings.Repeat(rec(1, "f", 1000, "/srv/app/x/f"), 10_000)}},
		ran:     []string{"timeout 2 find /srv/app/x /dev/null" + findTail},
		want: `
would remove more than 10,000 files and directories, 10 MB and more
largest of those seen: x/f (1 kB), x/f (1 kB), x/f (1 kB), x/f (1 kB), x/f (1 kB)`,
	},
	{
		name: "a home directory stays what the shell makes of it", command: "unlink ~/'a b'",
		replies: map[string]reply{"find": {out: rec(0, "l", 7, "/home/bot/a b") + end}},
		ran:     []string{"timeout 2 find ~/'a b' /dev/null -maxdepth 0" + findTail},
		want:    "would remove 1 file, 0 bytes\n  /home/bot/a b, last changed 2025-01-02 03:04",
	},
	{
		name: "shred says that nothing comes back", command: "shred -u -n 3 key",
		replies: map[string]reply{"find": {out: rec(0, "f", 1700, "/srv/app/key") + end}},
		ran:     []string{"timeout 2 find /srv/app/key /dev/null -maxdepth 0" + findTail},
		want:    "would overwrite beyond recovery and remove 1 file, 1.7 kB\n  /srv/app/key, last changed 2025-01-02 03:04",
	},
	{
		name: "rmdir keeps what is not empty", command: "rmdir a b",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/srv/app/a") + rec(1, "f", 1, "/srv/app/a/x") + rec(0, "d", 1, "/srv/app/b") + end}},
		ran:     []string{"timeout 2 find /srv/app/a /srv/app/b /dev/null" + findTail},
		want:    "would remove 1 empty directory: /srv/app/b\nstays, because it is not empty: /srv/app/a",
	},
	{
		name: "mv into a directory says which file in it goes", command: "mv a.conf b.conf /etc/app",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/etc/app") + rec(0, "f", 300, "/etc/app/b.conf") + rec(0, "f", 1, "/srv/app/a.conf") + rec(0, "f", 2, "/srv/app/b.conf") + end}},
		ran:     []string{"timeout 2 find /etc/app /etc/app/a.conf /etc/app/b.conf /srv/app/a.conf /srv/app/b.conf /dev/null -maxdepth 0" + findTail},
		want:    "would overwrite /etc/app/b.conf, 300 bytes, last changed 2025-01-02 03:04",
	},
	{
		name: "cp over a file says how large it is", command: "cp -p new old",
		replies: map[string]reply{"find": {out: rec(0, "f", 300, "/srv/app/old") + rec(0, "f", 1, "/srv/app/new") + end}},
		ran:     []string{"timeout 2 find /srv/app/old /srv/app/old/new /srv/app/new /dev/null -maxdepth 0" + findTail},
		want:    "would overwrite /srv/app/old, 300 bytes, last changed 2025-01-02 03:04",
	},
	{
		name: "cp to a new name overwrites nothing", command: "cp new old",
		replies: map[string]reply{"find": {out: rec(0, "f", 1, "/srv/app/new") + end}},
		ran:     []string{"timeout 2 find /srv/app/old /srv/app/old/new /srv/app/new /dev/null -maxdepth 0" + findTail},
		want:    "would overwrite nothing: no file is there yet",
	},
	{
		name: "mv -n overwrites nothing and is not asked about", command: "mv -n a b",
	},
	{
		name: "chmod knows a mode that looks like an option", command: "chmod -R -x a",
		replies: map[string]reply{"find": {out: rec(0, "f", 1, "/srv/app/a") + end}},
		ran:     []string{"timeout 2 find /srv/app/a /dev/null" + findTail},
		want:    "would set the mode of 1 file, 1 byte to -x\n  /srv/app/a is 644 root:root now",
	},
	{
		name: "chown -R counts", command: "chown -R www-data:www-data /srv/app",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/srv/app") + rec(1, "f", 1, "/srv/app/x") + end}},
		ran:     []string{"timeout 2 find /srv/app /dev/null" + findTail},
		want:    "would set the owner of 1 file and 1 directory, 1 byte to www-data:www-data\n  /srv/app is 644 root:root now",
	},
	{
		name: "truncate says what is lost", command: "truncate -s 0 app.log",
		replies: map[string]reply{"find": {out: rec(0, "f", 5_000_000_000, "/srv/app/app.log") + end}},
		ran:     []string{"timeout 2 find /srv/app/app.log /dev/null -maxdepth 0" + findTail},
		want:    "would empty /srv/app/app.log, 5 GB now, last changed 2025-01-02 03:04",
	},
	{
		name: "a redirect empties a file whatever the command is", command: `some-tool "$x" > app.log 2>/dev/null`,
		replies: map[string]reply{"find": {out: rec(0, "f", 12, "/srv/app/app.log") + end}},
		ran:     []string{"timeout 2 find /srv/app/app.log /dev/null -maxdepth 0" + findTail},
		want:    "would empty /srv/app/app.log, 12 bytes now, last changed 2025-01-02 03:04",
	},
	{name: "appending loses nothing", command: "echo x >> app.log"},
	{
		name: "tee empties its files", command: "tee a < b",
		replies: map[string]reply{"find": {out: rec(0, "ff"[:1], 12, "/srv/app/a") + end}},
		ran:     []string{"timeout 2 find /srv/app/a /dev/null -maxdepth 0" + findTail},
		want:    "would empty /srv/app/a, 12 bytes now, last changed 2025-01-02 03:04",
	},
	{
		name: "dd says what is on the disk", command: "sudo dd if=x.img of=/dev/sdb bs=4M",
		replies: map[string]reply{"lsblk": {out: "NAME SIZE TYPE FSTYPE LABEL MOUNTPOINT\nsdb 1T disk\n`-sdb1 1T part ext4 data /data\n"}},
		ran:     []string{"lsblk -o NAME,SIZE,TYPE,FSTYPE,LABEL,MOUNTPOINT -- /dev/sdb"},
		want:    "would write over what /dev/sdb holds:\n  NAME SIZE TYPE FSTYPE LABEL MOUNTPOINT\n  sdb 1T disk\n  `-sdb1 1T part ext4 data /data",
	},
	{
		name: "dd over a file says how large it is", command: "dd if=/dev/zero of=img count=1",
		replies: map[string]reply{"find": {out: rec(0, "f", 12, "/srv/app/img") + end}},
		ran:     []string{"timeout 2 find /srv/app/img /dev/null -maxdepth 0" + findTail},
		want:    "would overwrite /srv/app/img, 12 bytes now, last changed 2025-01-02 03:04",
	},
	{
		name: "mkfs says what is on the disk", command: "mkfs.ext4 -F /dev/sdb1",
		replies: map[string]reply{"lsblk": {out: "NAME SIZE\nsdb1 1T\n"}},
		ran:     []string{"lsblk -o NAME,SIZE,TYPE,FSTYPE,LABEL,MOUNTPOINT -- /dev/sdb1"},
		want:    "would write over what /dev/sdb1 holds:\n  NAME SIZE\n  sdb1 1T",
	},
	{
		name: "stopping a unit says what stops with it", command: "sudo systemctl stop postgresql",
		replies: map[string]reply{
			"show":              {out: "Id=postgresql.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nStateChangeTimestamp=Mon 2025-01-06 10:00:00 UTC\nRequiredBy=app.service\nBoundBy=\nConsistsOf=pg@16.service\n"},
			"list-dependencies": {out: "postgresql.service\n  app.service\n  multi-user.target\n"},
		},
		ran: []string{
			"systemctl show --no-pager --property=Id,LoadState,ActiveState,SubState,UnitFileState,StateChangeTimestamp,RequiredBy,BoundBy,ConsistsOf -- postgresql",
			"systemctl list-dependencies --reverse --plain --no-legend --no-pager -- postgresql",
		},
		want: "postgresql.service is active (running) since Mon 2025-01-06 10:00:00 UTC, enabled at boot\n  what requires it would stop, too: app.service, pg@16.service\nin some way depend on it: app.service, multi-user.target",
	},
	{
		name: "a unit that is not there is said", command: "service ngnix restart",
		replies: map[string]reply{"show": {out: "Id=ngnix.service\nLoadState=not-found\nActiveState=inactive\n"}},
		ran: []string{
			"systemctl show --no-pager --property=Id,LoadState,ActiveState,SubState,UnitFileState,StateChangeTimestamp,RequiredBy,BoundBy,ConsistsOf -- ngnix",
			"systemctl list-dependencies --reverse --plain --no-legend --no-pager -- ngnix",
		},
		want: "ngnix.service is not known to systemd",
	},
	{name: "a unit of another machine is not looked for here", command: "systemctl -H db1 stop postgresql"},
	{
		name: "kill says which processes", command: "kill -9 12 13",
		replies: map[string]reply{"ps": {out: "     12 root     Mon Jan  6 10:00:00 2025 /usr/sbin/nginx -g daemon off;\n"}},
		ran:     []string{"ps -ww -o pid=,user:20=,lstart=,args= -p 12,13"},
		want:    "would signal 1 process: 12 root, since Jan 6 10:00:00 2025: /usr/sbin/nginx -g daemon off;",
	},
	{
		name: "kill of a group finds its members", command: "kill -TERM -- -40",
		replies: map[string]reply{"pgrep": {out: "40\n41\n"}, "ps": {out: ""}},
		ran:     []string{"pgrep -g 40", "ps -ww -o pid=,user:20=,lstart=,args= -p 40,41"},
		want:    "no such process: 40, 41",
	},
	{name: "kill of everything needs no read", command: "kill -9 -1", want: "would signal every process that its account may signal"},
	{
		name: "pkill asks pgrep with the same options", command: "sudo pkill -KILL -f -u deploy 'worker --all'",
		replies: map[string]reply{"pgrep": {out: "7\n"}, "ps": {out: " 7 deploy Mon Jan  6 10:00:00 2025 worker --all\n"}},
		ran:     []string{"pgrep -f -u deploy -- 'worker --all'", "ps -ww -o pid=,user:20=,lstart=,args= -p 7"},
		want:    "would signal 1 process: 7 deploy, since Jan 6 10:00:00 2025: worker --all",
	},
	{
		name: "pkill of the bot and its terminals says so, and what only looks is left out", command: "pkill -f countersign",
		replies: map[string]reply{"pgrep": {out: "7\n8\n9\n"}, "ps": {out: " 7 ops Mon Jan  6 10:00:00 2025 /usr/bin/countersign run\n 8 ops Mon Jan  6 10:00:00 2025 tmux -f /tmp/countersign-ops-bot/tmux.conf -C attach\n" +
			" 9 ops Mon Jan  6 10:00:00 2025 bash --noprofile --norc -c pkill -f countersign\n"}},
		ran:  []string{"pgrep -f -- countersign", "ps -ww -o pid=,user:20=,lstart=,args= -p 7,8,9"},
		want: "this ends the terminals of all conversations here\nthis ends the bot itself\nwould signal 2 processes (countersign, tmux):\n  7 ops, since Jan 6 10:00:00 2025: /usr/bin/countersign run\n  8 ops, since Jan 6 10:00:00 2025: tmux -f /tmp/countersign-ops-bot/tmux.conf -C attach",
	},
	{
		name: "a restart of the bot's unit says so", command: "systemctl restart countersign",
		replies: map[string]reply{"show": {out: "Id=countersign.service\nLoadState=loaded\nActiveState=active\n"}},
		ran: []string{
			"systemctl show --no-pager --property=Id,LoadState,ActiveState,SubState,UnitFileState,StateChangeTimestamp,RequiredBy,BoundBy,ConsistsOf -- countersign",
			"systemctl list-dependencies --reverse --plain --no-legend --no-pager -- countersign",
		},
		want: "countersign.service is active\nthis ends the bot itself",
	},
	{name: "files of the kernel are not emptied", command: "echo 1 > /proc/sys/net/ipv4/ip_forward"},
	{
		name: "killall takes names and no patterns", command: "killall my.app",
		replies: map[string]reply{"pgrep": {exit: 1}},
		ran:     []string{`pgrep -x -- 'my\.app'`},
		want:    "no process fits",
	},
	{
		name: "reboot says who is logged in", command: "sudo shutdown -r now",
		replies: map[string]reply{"uptime": {out: " 10:00:00 up 200 days,  2 users\n"}, "who": {out: "ann pts/0 2025-01-06 09:00\nbob pts/1 2025-01-06 09:30\n"}},
		ran:     []string{"uptime", "who"},
		want:    "the machine: 10:00:00 up 200 days,  2 users\nlogged in: 2 sessions\n  ann pts/0 2025-01-06 09:00\n  bob pts/1 2025-01-06 09:30",
	},
	{
		name: "crontab FILE shows the difference", command: "crontab jobs",
		replies: map[string]reply{"crontab": {out: "1c1\n< 0 1 * * * backup\n---\n> 0 2 * * * backup\n", exit: 1}},
		ran:     []string{"crontab -l | diff - /srv/app/jobs"},
		want:    "would change 2 lines of the crontab (< goes, > comes):\n  < 0 1 * * * backup\n  > 0 2 * * * backup",
	},
	{
		name: "crontab -r shows what goes", command: "crontab -r",
		replies: map[string]reply{"crontab": {out: "# mine\n0 1 * * * backup\n"}},
		ran:     []string{"crontab -l"},
		want:    "would remove the whole crontab, 1 line:\n  0 1 * * * backup",
	},
	{name: "another account's crontab is not taken for its own", command: "sudo crontab -r"},
	{
		name: "iptables -F shows the rules that go", command: "sudo iptables -F INPUT",
		replies: map[string]reply{"iptables": {out: "-P INPUT DROP\n-A INPUT -j ACCEPT\n-A FORWARD -j DROP\n"}},
		ran:     []string{"iptables -t filter -S"},
		want:    "would remove 1 of the 2 rules in the table filter: -A INPUT -j ACCEPT\nthe policy stays: INPUT DROP",
	},
	{
		name: "nft flush counts the rules", command: "nft flush ruleset",
		replies: map[string]reply{"nft": {out: "table inet f { # handle 1\n\tchain i { # handle 2\n\t\ttype filter hook input priority filter; policy drop;\n\t\ttcp dport 22 accept # handle 3\n\t}\n}\n"}},
		ran:     []string{"nft -a list ruleset"},
		want:    "would remove everything: 1 table with 1 rule\n1 chain would drop no longer what no rule accepts",
	},
	{
		name: "kubectl delete lists the objects", command: "kubectl delete pods -l app=web -n prod",
		replies: map[string]reply{"get": {out: "Pod   web-1   prod   2025-01-01T00:00:00Z\n"}, "current-context": {out: "prod-eu\n"}},
		ran:     []string{"kubectl get -n prod -l 'app=web' --ignore-not-found" + kubeGet + ",SINCE:.metadata.creationTimestamp pods", managed(" -n prod -l 'app=web'", "pods"), "kubectl config current-context"},
		want:    "would delete Pod/web-1 in prod, created 2025-01-01 00:00:00 UTC\nin the context prod-eu",
	},
	{
		name: "of secrets only names are read", command: "kubectl delete secret db --context c1",
		replies: map[string]reply{"get": {out: "secret/db\n"}},
		ran:     []string{"kubectl get --context=c1 --ignore-not-found -o name secret db"},
		want:    "would delete secret/db",
	},
	{
		name: "deleting a namespace says what is in it", command: "kubectl delete ns shop --context c1",
		replies: map[string]reply{"SINCE": {out: "Namespace shop <none> 2025-01-01T00:00:00Z\n"}, "get all": {out: "pod/a\npod/b\n"}},
		ran:     []string{"kubectl get --context=c1 --ignore-not-found" + kubeGet + ",SINCE:.metadata.creationTimestamp ns shop", "kubectl get all -o name -n shop --context=c1", managed(" --context=c1", "ns shop")},
		want:    "would delete Namespace/shop, created 2025-01-01 00:00:00 UTC\nwith all that is in shop, among it 2 objects: pod/a, pod/b",
	},
	{
		name: "kubectl scale shows now and then", command: "kubectl scale deploy/web --replicas=0 --context=c1",
		replies: map[string]reply{"get": {out: "Deployment   web  prod  3\n"}},
		ran:     []string{"kubectl get --context=c1 --ignore-not-found" + kubeGet + ",NOW:.spec.replicas deploy/web", managed(" --context=c1", "deploy/web")},
		want:    "would scale Deployment/web in prod from 3 to 0 replicas",
	},
	{
		name: "kubectl drain says which pods go", command: "kubectl drain n1 --ignore-daemonsets --context c1",
		replies: map[string]reply{"get nodes": {out: "n1 Ready 10d v1.30\n"}, "get pods": {out: "prod web-1 ReplicaSet\nkube-system proxy DaemonSet\n"}},
		ran: []string{
			"kubectl get nodes --no-headers --ignore-not-found --context=c1 n1",
			"kubectl get pods -A -o 'custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,OWNER:.metadata.ownerReferences[0].kind' --no-headers --field-selector spec.nodeName=n1 --context=c1",
		},
		want: "would drain node n1 (Ready)\nwould evict 1 pod from n1: prod/web-1",
	},
	{
		name: "kubectl apply lists what a file defines, since a diff is not proven", command: "kubectl apply -f k8s/web.yaml --context c1",
		replies: map[string]reply{"head": {out: "kind: Deployment\nmetadata: {name: web, namespace: prod}\n---\nkind: Service\nmetadata:\n  name: web\n---\n: [\n"}},
		ran: []string{`test -f /srv/app/k8s/web.yaml && test "$(realpath -e -- /srv/app/k8s/web.yaml)" = /srv/app/k8s/web.yaml`,
			"test -f /srv/app/k8s/web.yaml && head -c 262144 -- /srv/app/k8s/web.yaml"},
		want: "would apply 3 objects from k8s/web.yaml: Deployment web in prod, Service web, and what could not be read",
	},
	{
		name: "kubectl rollout restart says what is ready", command: "kubectl rollout restart deploy/web --context c1",
		replies: map[string]reply{"get": {out: "Deployment web prod 3 3\n"}},
		ran:     []string{"kubectl get --context=c1 --ignore-not-found" + kubeGet + ",READY:.status.readyReplicas,WANTED:.spec.replicas deploy/web", managed(" --context=c1", "deploy/web")},
		want:    "would restart Deployment/web in prod (3 of 3 ready)",
	},
	{
		name: "who takes a change back is said first", command: "kubectl set image deploy/checkout app=checkout:1.2.4 --context=c1",
		replies: map[string]reply{"ARGO": {out: "Deployment checkout:apps/Deployment:shop/checkout <none> <none> <none> Helm <none>\n"}},
		ran:     []string{managed(" --context=c1", "deploy/checkout")},
		want:    "managed by Argo CD, app checkout: its next sync takes this back",
	},
	{
		name: "Flux takes it back", command: "kubectl scale deploy/checkout --replicas=0 --context=c1",
		replies: map[string]reply{"NOW": {out: "Deployment checkout shop 3\n"}, "ARGO": {out: "Deployment <none> <none> apps <none> <none> <none>\n"}},
		ran:     []string{"kubectl get --context=c1 --ignore-not-found" + kubeGet + ",NOW:.spec.replicas deploy/checkout", managed(" --context=c1", "deploy/checkout")},
		want:    "managed by Flux, kustomization apps: its next reconciliation takes this back\nwould scale Deployment/checkout in shop from 3 to 0 replicas",
	},
	{
		name: "Helm takes it back", command: "kubectl patch configmap checkout --type merge -p '{\"data\":{\"a\":\"b\"}}' --context=c1",
		replies: map[string]reply{"ARGO": {out: "ConfigMap <none> <none> <none> <none> Helm checkout\n"}},
		ran:     []string{managed(" --context=c1", "configmap checkout")},
		want:    "managed by Helm, release checkout: its next upgrade takes this back",
	},
	{
		name: "a release of Helm's that Argo CD manages", command: "helm upgrade checkout ./chart --kube-context c1",
		replies: map[string]reply{"ARGO": {out: "Deployment checkout:apps/Deployment:shop/checkout <none> <none> <none> Helm checkout\nStatefulSet <none> <none> <none> <none> Helm checkout\n"}},
		ran:     []string{"helm history checkout --max 4 --kube-context=c1", managed(" --context=c1 -l 'app.kubernetes.io/instance=checkout'", "deployments,statefulsets,daemonsets")},
		want:    "managed by Argo CD, app checkout: its next sync takes this back",
	},
	{name: "a dry run does nothing", command: "kubectl delete pod x --dry-run=server"},
	{name: "an unknown option means silence", command: "kubectl delete pod x --kubeconfig=/tmp/evil"},
	{name: "another account's cluster is not taken for its own", command: "sudo kubectl delete pod x"},
	{
		name: "helm uninstall says what is there", command: "helm uninstall web -n prod",
		replies: map[string]reply{"history": {out: "REVISION  STATUS\n1   deployed\n"}, "status": {out: "NAME: web\nLAST DEPLOYED: Mon Jan  6\nNAMESPACE: prod\nSTATUS: deployed\nNOTES:\nSTATUS is fine\n"}},
		ran:     []string{"helm history web --max 4 -n prod", "helm status web -n prod", managed(" -n prod -l 'app.kubernetes.io/instance=web'", "deployments,statefulsets,daemonsets")},
		want:    "revisions of web, the last is in force: REVISION STATUS, 1 deployed\nLAST DEPLOYED: Mon Jan  6\nNAMESPACE: prod\nSTATUS: deployed",
	},
	{
		name: "docker rm says what runs", command: "docker rm -f -v web",
		replies: map[string]reply{"inspect": {out: "/web|running|nginx:1.27|2025-01-06T10:00:00.123Z|always\n"}},
		ran:     []string{"docker container inspect --format '{{.Name}}|{{.State.Status}}|{{.Config.Image}}|{{.State.StartedAt}}|{{.HostConfig.RestartPolicy.Name}}' web"},
		want:    "web is running since 2025-01-06T10:00:00, image nginx:1.27, restarted by policy always\nthe anonymous volumes would go, too",
	},
	{
		name: "docker compose down lists the project", command: "docker compose -p shop down -v",
		replies: map[string]reply{"compose": {out: "NAME IMAGE\nshop-web-1   nginx\n"}},
		ran:     []string{"cd -- /srv/app/ && docker compose -p shop ps -a"},
		want:    "would take down 1 container of the project: shop-web-1 nginx\nthe volumes of the project would go, too",
	},
	{
		name: "git push --force says what comes and what goes", command: "git push --force origin main",
		replies: map[string]reply{"origin/main..main": {out: "abc1 new\n"}, "main..refs": {out: "def2 theirs\n"}},
		ran:     []string{gitLog + "refs/remotes/origin/main..main", gitLog + "main..refs/remotes/origin/main"},
		want:    "would push 1 commit: abc1 new\nwould drop from the remote 1 commit: def2 theirs",
	},
	{
		name: "git push without names asks for the upstream", command: "git push",
		replies: map[string]reply{"@{u}": {out: ""}},
		ran:     []string{gitLog + "'@{u}..HEAD'"},
		want:    "would push no commits, as far as this clone knows",
	},
	{
		name: "git reset --hard says which commits are left behind", command: "git reset --hard HEAD~2",
		replies: map[string]reply{" log ": {out: "abc1 one\ndef2 two\n"}},
		ran:     []string{gitLog + "'HEAD~2..HEAD'", gitRead + " -C /srv/app/ diff --cached --name-only --no-color --no-ext-diff --no-textconv"},
		want:    "would leave behind 2 commits: abc1 one, def2 two\nchanges that are not staged would go, too; they were not looked at",
	},
	{name: "what git clean takes can't be found without running filters", command: "git clean -fd"},
	{
		name: "apt remove says what is there", command: "sudo apt-get remove -y nginx",
		replies: map[string]reply{"dpkg-query": {out: "nginx\t1.22.1-9\n"}},
		ran:     []string{"dpkg-query -W nginx"},
		want:    "now there: nginx 1.22.1-9",
	},
	{
		name: "dnf remove says what requires it", command: "dnf remove -y nginx",
		replies: map[string]reply{"rpm -q nginx": {out: "nginx-1.20-1\n"}, "whatrequires": {out: "app-1\n"}},
		ran:     []string{"rpm -q nginx", "rpm -q --whatrequires nginx"},
		want:    "now there: nginx-1.20-1\nrequired by: app-1",
	},
	{
		name: "tofu destroy lists the state", command: "tofu destroy -auto-approve",
		replies: map[string]reply{"state list": {out: "aws_instance.a\naws_instance.b\n"}},
		ran:     []string{"cd -- /srv/app/ && tofu state list"},
		want:    "would destroy 2 resources: aws_instance.a, aws_instance.b",
	},
	{
		name: "psql DELETE without WHERE takes every row", command: `psql -d shop -c "DELETE FROM Orders;"`,
		replies: map[string]reply{"psql": {out: "120000|34 MB\n"}},
		ran:     []string{`psql -X -w -A -t -d shop -c "select reltuples, pg_size_pretty(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relname = 'orders'"`},
		want:    "the table Orders has about 120,000 rows, 34 MB by the server's statistics\nno WHERE: takes every row of Orders",
	},
	{
		name: "mysql DROP says how large the table is", command: `mysql -h db.internal -e 'drop table app.users' shop`,
		replies: map[string]reply{"mysql": {out: "12\t16384\n"}},
		ran:     []string{`mysql -B -N -h db.internal -e "select table_rows, data_length from information_schema.tables where table_name = 'users' and table_schema = 'app'" shop`},
		want:    "the table users has about 12 rows, 16384 bytes by the server's statistics",
	},
	{
		name: "timeout, nice and nohup change nothing", command: "nohup timeout -k 5 30 nice -n 10 /bin/rm -f b",
		replies: map[string]reply{"find": {out: rec(0, "f", 1, "/srv/app/b") + end}},
		ran:     []string{"timeout 2 find /srv/app/b /dev/null -maxdepth 0" + findTail},
		want:    "would remove 1 file, 1 byte\n  /srv/app/b, last changed 2025-01-02 03:04",
	},
	{name: "rm refuses the directory that it is in", command: "rm -rf ."},
	{name: "several tables mean silence", command: "psql -c 'truncate a, b'"},
	{name: "several releases mean silence", command: "helm uninstall a b"},
	{name: "a name that the kernel cuts means silence", command: "killall a-name-of-more-than-15-bytes"},
	{name: "rm -rf / is refused by rm", command: "rm -rf /"},
	{
		name: "unless it is told not to", command: "rm -rf --no-preserve-root /",
		replies: map[string]reply{"find": {out: rec(0, "d", 1, "/") + rec(1, "d", 1, "/etc")}},
		ran:     []string{"timeout 2 find / /dev/null" + findTail},
		want:    "would remove at least 2 files and directories, 0 bytes and more (counting them all takes too long)",
	},
	{name: "cp --parents makes other names", command: "cp --parents a/b c"},
	{name: "more than one command means silence", command: "rm a; rm b"},
	{name: "a pipeline means silence", command: "rm a | cat"},
	{name: "a variable means silence", command: "rm -rf $DIR"},
	{name: "a substitution means silence", command: "rm -rf `cat list`"},
	{name: "braces mean silence", command: "rm -rf {a,b}"},
	{name: "an assignment means silence", command: "KUBECONFIG=/tmp/x kubectl delete pod y"},
	{name: "a program of its own means silence", command: "/tmp/rm -rf a"},
	{name: "sudo's own shell or home means silence", command: "sudo -i rm -rf a"},
	{name: "a carriage return means silence", command: "rm a\rrm b"},
	{name: "a control character in a name means silence", command: "rm 'a\x1bb'"},
	{name: "a read does nothing", command: "ls -l /tmp"},
	{name: "nothing", command: ""},
	{name: "not a command", command: "rm ("},
}

func TestPreviews(t *testing.T) {
	for _, tt := range previews {
		t.Run(tt.name, tt.run)
	}
}

// A command whose reads fail is not spoken of, whatever the way of failing.
func TestAReadThatFailsSaysNothing(t *testing.T) {
	for _, r := range []reply{{exit: 127}, {err: errors.New("lost")}, {out: "\x00\x00 garbage \n", exit: 3}, {err: context.DeadlineExceeded, out: "10 files"}} {
		for _, tt := range previews {
			if strings.HasPrefix(tt.command, "kill -9 -1") || strings.HasPrefix(tt.command, "git reset") || strings.HasPrefix(tt.command, "psql") {
				continue // a part of these needs no read
			}
			f := &fakeRunner{t: t, always: &r}
			if got := Of(t.Context(), shell(tt.command), proves, f); got != "" {
				t.Errorf("%s: %+v: said %q", tt.command, r, got)
			}
		}
	}
}

func TestOnlyShellTextIsSpokenOf(t *testing.T) {
	for _, kind := range []approvals.Kind{approvals.KindKeys, approvals.KindChange, approvals.KindObserve, ""} {
		a := shell("rm a")
		a.Kind = kind
		f := &fakeRunner{t: t}
		if got := Of(t.Context(), a, proves, f); got != "" || len(f.ran) > 0 {
			t.Errorf("%q: said %q, ran %v", kind, got, f.ran)
		}
	}
}

// A verdict that another text earned, or that was made up, runs nothing.
func TestAClassifierThatLiesRunsNothing(t *testing.T) {
	lie := func(s string) bool {
		v := risk.Classify("ls")
		v.Command = s
		return v.Proves(s, true)
	}
	for _, tt := range previews {
		f := &fakeRunner{t: t}
		Of(t.Context(), shell(tt.command), lie, f)
		if len(f.ran) > 0 {
			t.Errorf("%s: ran %v", tt.command, f.ran)
		}
	}
}

func TestOtherEnvironmentsAndPanesAreNotTakenForTheReads(t *testing.T) {
	out := map[string]reply{"state list": {out: "a\n"}}
	a := shell("tofu apply")
	a.Env = map[string]string{"TF_WORKSPACE": "prod"}
	if got := Of(t.Context(), a, proves, &fakeRunner{t: t, replies: out}); got != "" {
		t.Errorf("with an environment of its own: said %q", got)
	}
	a = shell("tofu apply")
	a.Session = "s1"
	want := "the state holds 1 resource now\nthis was read outside the pane: what its shell has exported was not in force"
	if got := Of(t.Context(), a, proves, &fakeRunner{t: t, replies: out}); got != want {
		t.Errorf("in a pane: said %q", got)
	}
}

func TestAnActionWithoutADirectoryKeepsRelativePathsFromBeingOptions(t *testing.T) {
	a := shell("rm -- -rf")
	a.Dir = ""
	f := &fakeRunner{t: t, replies: map[string]reply{"find": {out: rec(0, "f", 1, "./-rf") + end}}}
	if got := Of(t.Context(), a, proves, f); !strings.Contains(got, "would remove 1 file, 1 byte") || !strings.Contains(f.ran[0], " ./-rf ") {
		t.Errorf("said %q, ran %v", got, f.ran)
	}
}

func TestAllReadsTogetherEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := &fakeRunner{t: t, delay: Within * 2 / 3, replies: map[string]reply{"uptime": {out: "up 3 days\n"}, "who": {out: "ann\n"}}}
		if got := Of(t.Context(), shell("reboot"), proves, f); got != "the machine: up 3 days" {
			t.Errorf("said %q", got)
		}
		if d := time.Since(begin); d != Within {
			t.Errorf("took %v, want %v", d, Within)
		}
	})
}

func TestNoReadBeginsOnceTheContextIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range previews {
		f := &fakeRunner{t: t, replies: tt.replies}
		Of(ctx, shell(tt.command), proves, f)
		if len(f.ran) > 0 {
			t.Errorf("%s: ran %v", tt.command, f.ran)
		}
	}
}

// checkText tells what is wrong with a preview as a text for a card.
func checkText(s string) string {
	lines := strings.Split(s, "\n")
	if len(lines) > maxLines {
		return fmt.Sprintf("%d lines", len(lines))
	}
	for _, l := range lines {
		if n := len([]rune(l)); n > maxLine {
			return fmt.Sprintf("a line of %d characters", n)
		}
	}
	if _, odd := risk.Visible(s); odd {
		return "characters that a reader does not see"
	}
	return ""
}

// Whatever a target answers, a preview stays a short, visible text, and only
// proven text runs (the runner checks that).
func TestWhateverATargetAnswersThePreviewIsShortAndVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tt := rapid.SampledFrom(previews).Draw(t, "preview")
		piece := rapid.OneOf(
			rapid.StringN(0, 300, -1),
			rapid.SampledFrom([]string{"\x00", "\n", "\t", "|", "Id=a\n", "1 2 3 4\n", "Inst x\n", rec(0, "f", 1, "/srv/app/b\u202e"), rec(1, "d", 1, "/x"), "!\x00", end, "\x1b[2J", strings.Repeat("x", 5000)}),
		)
		out := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "out"), "")
		f := &fakeRunner{t: t, always: &reply{out: out, exit: rapid.IntRange(0, 2).Draw(t, "exit")}}
		got := Of(context.Background(), shell(tt.command), proves, f)
		if why := checkText(got); why != "" {
			t.Fatalf("%s: %s:\n%q", tt.command, why, got)
		}
	})
}

// Every row of the table is exercised, so that every kind of read is checked.
func TestEveryProgramHasAPreviewHere(t *testing.T) {
	same := map[string]string{
		"mkfs": "mkfs.ext4", "mkfs.ext2": "mkfs.ext4", "mkfs.ext3": "mkfs.ext4", "mkfs.xfs": "mkfs.ext4", "mkfs.btrfs": "mkfs.ext4", "mkfs.vfat": "mkfs.ext4", "mkfs.f2fs": "mkfs.ext4",
		"mke2fs": "mkfs.ext4", "mkswap": "mkfs.ext4", "wipefs": "mkfs.ext4", "blkdiscard": "mkfs.ext4", "pvcreate": "mkfs.ext4", "sgdisk": "mkfs.ext4", "parted": "mkfs.ext4",
		"reboot": "shutdown", "poweroff": "shutdown", "halt": "shutdown", "init": "shutdown", "telinit": "shutdown", "ip6tables": "iptables",
		"podman": "docker", "nerdctl": "docker", "apt": "apt-get", "yum": "dnf", "microdnf": "dnf", "mariadb": "mysql", "install": "cp", "chgrp": "chown",
	}
	for name := range programs() {
		if s, ok := same[name]; ok {
			name = s
		}
		if !slices.ContainsFunc(previews, func(p preview) bool {
			return p.want != "" && slices.Contains(strings.Fields(p.command), name)
		}) {
			t.Errorf("%s has no row in the tests", name)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, tt := range previews {
		out := ""
		for _, r := range tt.replies {
			out = r.out
		}
		f.Add(tt.command, out, 0, "/srv/app")
	}
	f.Fuzz(func(t *testing.T, command, out string, exit int, dir string) {
		a := shell(command)
		a.Dir = dir
		got := Of(t.Context(), a, proves, &fakeRunner{t: t, always: &reply{out: out, exit: exit}})
		if why := checkText(got); why != "" {
			t.Errorf("%q: %s:\n%q", command, why, got)
		}
	})
}
