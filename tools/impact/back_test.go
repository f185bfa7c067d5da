package impact

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"

	"countersign/approvals"
	"countersign/targets/rehearsal"
)

func TestTheWayBackFollowsFromWhatIsThere(t *testing.T) {
	units := func(blocks ...string) string { return strings.Join(blocks, "\n\n") }
	const nginxUp = "Id=nginx.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled"
	const nginxDown = "Id=nginx.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=disabled"
	const redisUp = "Id=redis.service\nLoadState=loaded\nActiveState=active\nUnitFileState=disabled"
	rules := "-P INPUT ACCEPT\n-P FORWARD DROP\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n-A INPUT -s 10.0.0.0/8 -j DROP\n"
	for _, tc := range []struct {
		command, look, out string
		exit               int
		kind               approvals.BackKind
		want               string
	}{
		{command: "systemctl stop nginx", look: "systemctl show", out: nginxUp, kind: approvals.OnePress, want: "systemctl start -- nginx.service"},
		{command: "sudo systemctl stop nginx", look: "systemctl show", out: nginxUp, kind: approvals.OnePress, want: "sudo systemctl start -- nginx.service"},
		{command: "systemctl stop nginx", look: "systemctl show", out: nginxDown},
		{command: "systemctl start nginx redis", look: "systemctl show", out: units(nginxDown, redisUp), kind: approvals.OnePress, want: "systemctl stop -- nginx.service"},
		{command: "systemctl restart nginx", look: "systemctl show", out: nginxUp, kind: approvals.NoWay, want: ""},
		{command: "systemctl restart nginx", look: "systemctl show", out: nginxDown, kind: approvals.OnePress, want: "systemctl stop -- nginx.service"},
		{command: "systemctl disable --now nginx", look: "systemctl show", out: nginxUp, kind: approvals.OnePress, want: "systemctl enable -- nginx.service && systemctl start -- nginx.service"},
		{command: "sudo systemctl enable --now nginx", look: "systemctl show", out: nginxDown, kind: approvals.OnePress, want: "sudo systemctl disable -- nginx.service && sudo systemctl stop -- nginx.service"},
		{command: "systemctl mask nginx", look: "systemctl show", out: nginxDown, kind: approvals.OnePress, want: "systemctl unmask -- nginx.service"},
		{command: "systemctl stop none", look: "systemctl show", out: "Id=none.service\nLoadState=not-found\nActiveState=inactive"},
		{command: "sudo -u 'a && b' systemctl stop nginx", look: "systemctl show", out: nginxUp, kind: approvals.OnePress, want: "sudo -u 'a && b' systemctl start -- nginx.service"},
		{command: "systemctl daemon-reload"},

		{command: "sysctl -w vm.swappiness=10", look: "cat -- /proc/sys/vm/swappiness", out: "60\n", kind: approvals.OnePress, want: "sysctl -w 'vm.swappiness=60'"},
		{command: "sysctl -w net.ipv4.tcp_rmem='1 2 3'", look: "cat -- /proc/sys/net/ipv4/tcp_rmem", out: "4096\t131072\t6291456\n", kind: approvals.OnePress, want: "sysctl -w 'net.ipv4.tcp_rmem=4096 131072 6291456'"},
		{command: "sysctl -w ../../etc/passwd=x"},
		{command: "sysctl -p"},

		{command: "modprobe -r dummy", look: "grep -c '^dummy ' /proc/modules", out: "1\n", kind: approvals.OnePress, want: "modprobe dummy"},
		{command: "modprobe dummy", look: "grep -c '^dummy ' /proc/modules", out: "0\n", exit: 1, kind: approvals.OnePress, want: "modprobe -r dummy"},
		{command: "modprobe dummy", look: "grep -c '^dummy ' /proc/modules", out: "1\n"},

		{command: "docker stop api", look: "container inspect", out: "/api|running\n", kind: approvals.OnePress, want: "docker start api"},
		{command: "docker start api", look: "container inspect", out: "/api|exited\n", kind: approvals.OnePress, want: "docker stop api"},
		{command: "docker restart api", look: "container inspect", out: "/api|running\n", kind: approvals.NoWay},
		{command: "podman pause api", look: "container inspect", out: "api|running\n", kind: approvals.OnePress, want: "podman unpause api"},
		{command: "docker service scale web=1", look: "service inspect", out: "web=3\n", kind: approvals.OnePress, want: "docker service scale 'web=3'"},
		{command: "docker service scale web=1", look: "service inspect", out: "--config=/tmp/evil=3\n"},
		{command: "docker stop api", look: "container inspect", out: "/--config=/tmp/evil|running\n"},
		{command: "docker --context 'a && b' stop api", look: "container inspect"},
		{command: "docker rm -f api", kind: approvals.NoWay},

		{command: "kubectl scale deploy/api --replicas=0 -n shop", look: "jsonpath={.spec.replicas}", out: "3", kind: approvals.OnePress, want: "kubectl scale -n shop deploy/api --replicas=3"},
		{command: "kubectl scale deployment api --replicas 0", look: "jsonpath={.spec.replicas}", out: "3", kind: approvals.OnePress, want: "kubectl scale deployment/api --replicas=3"},
		{command: "kubectl rollout restart deploy/api", look: "revision", out: "7", kind: approvals.OnePress, want: "kubectl rollout undo deploy/api --to-revision=7"},
		{command: "kubectl cordon node-1", look: "unschedulable", out: "", kind: approvals.OnePress, want: "kubectl uncordon node-1"},
		{command: "kubectl cordon node-1", look: "unschedulable", out: "true"},
		{command: "kubectl delete deploy api", kind: approvals.NoWay},
		{command: "kubectl scale deploy/api --replicas=0", look: "jsonpath={.spec.replicas}", out: "", exit: 1},

		{command: "iptables -A INPUT -p tcp --dport 80 -j ACCEPT", look: "iptables -t filter -S INPUT", out: rules, kind: approvals.OnePress, want: "iptables -D INPUT 3"},
		{command: "iptables -I INPUT -j DROP", look: "iptables -t filter -S", out: rules, kind: approvals.OnePress, want: "iptables -D INPUT 1"},
		{command: "iptables -I INPUT 2 -j DROP", look: "iptables -t filter -S", out: rules, kind: approvals.OnePress, want: "iptables -D INPUT 2"},
		{command: "iptables -D INPUT 2", look: "iptables -t filter -S", out: rules, kind: approvals.OnePress, want: "iptables -I INPUT 2 -s 10.0.0.0/8 -j DROP"},
		{command: "iptables -D INPUT -s 10.0.0.0/8 -j DROP", look: "iptables -t filter -S", out: rules, kind: approvals.OnePress, want: "iptables -I INPUT 2 -s 10.0.0.0/8 -j DROP"},
		{command: "iptables -D INPUT 1", look: "iptables -t filter -S", out: "-P INPUT ACCEPT\n-A INPUT -m comment --comment \"from cmdb: $(touch /tmp/x) \\\"; reboot\nit's\" -j ACCEPT\n", kind: approvals.OnePress,
			want: `iptables -I INPUT 1 -m comment --comment $'from cmdb: $(touch /tmp/x) "; reboot\nit\'s' -j ACCEPT`},
		{command: "iptables -D INPUT 2", look: "iptables -t filter -S", out: "-A INPUT -m comment --comment \"x\n-A INPUT --modprobe=/tmp/evil -j DROP\n\" -j ACCEPT\n", kind: approvals.ByHand},
		{command: "iptables -D INPUT 1", look: "iptables -t filter -S", out: "-A INPUT -m comment --comment \"cut", kind: approvals.ByHand},
		{command: "iptables -P INPUT ACCEPT", look: "iptables -t filter -S", out: "-P INPUT -x\n"},
		{command: "iptables -A --modprobe=/tmp/evil -j DROP", look: "iptables -t filter -S", out: rules},
		{command: "iptables -P FORWARD ACCEPT", look: "iptables -t filter -S", out: rules, kind: approvals.OnePress, want: "iptables -P FORWARD DROP"},
		{command: "iptables -F", kind: approvals.ByHand},
		{command: "sudo iptables -A INPUT -j DROP", look: "iptables -t filter -S INPUT", exit: 4, kind: approvals.ByHand}, // only root may look
		{command: "iptables -t nat -A POSTROUTING -j MASQUERADE", look: "iptables -t nat -S POSTROUTING", out: "-P POSTROUTING ACCEPT\n", kind: approvals.OnePress, want: "iptables -t nat -D POSTROUTING 1"},
		{command: "ufw allow 22/tcp", kind: approvals.ByHand},

		{command: "apt-get install -y nginx", look: "dpkg-query", out: "nginx|1.22.1|installed\n", kind: approvals.OnePress, want: "apt-get install -y --allow-downgrades 'nginx=1.22.1'"},
		{command: "apt-get install -y nginx curl=8", look: "dpkg-query", out: "curl|7.88|installed\n", exit: 1, kind: approvals.OnePress, want: "apt-get install -y --allow-downgrades 'curl=7.88' && apt-get purge -y nginx"},
		{command: "apt-get remove nginx", look: "dpkg-query", out: "nginx|1.22.1|installed\n", kind: approvals.OnePress, want: "apt-get install -y --allow-downgrades 'nginx=1.22.1'"},
		{command: "apt-get remove nginx", look: "dpkg-query", out: "nginx|1.22.1|config-files\n"},

		{command: "mount /dev/sdb1 /mnt/data", look: "mountinfo", exit: 1, kind: approvals.OnePress, want: "umount /mnt/data"},
		{command: "mount -t tmpfs none /mnt/data", look: "/proc/self/mountinfo; ls -A -- /mnt/data", exit: 0, kind: approvals.OnePress, want: "umount /mnt/data"}, // files in it are seen
		{command: "mount -o remount,ro /srv", look: "mountinfo", out: "36 35 8:17 / /srv rw,relatime shared:1 - ext4 /dev/sdb1 rw\n", kind: approvals.OnePress, want: "mount -o remount,rw /srv"},
		{command: "umount /mnt/data", look: "mountinfo", out: "36 35 8:17 / /mnt/data rw,relatime - ext4 /dev/sdb1 rw\n", kind: approvals.OnePress, want: "mount -t ext4 -o rw,relatime /dev/sdb1 /mnt/data"},
		{command: "umount /mnt/f", look: "mountinfo", out: "36 35 0:40 / /mnt/f rw,user_id=1000 - fuse evil#x rw\n", kind: approvals.ByHand},
		{command: "umount /mnt/f", look: "mountinfo", out: "36 35 0:40 / /mnt/f rw - ext4 --bind rw\n", kind: approvals.ByHand},
		{command: "umount /mnt/t", look: "mountinfo", out: "36 35 0:17 / /mnt/t rw - tmpfs tmpfs rw\n", kind: approvals.NoWay},
		{command: "umount /mnt/b", look: "mountinfo", out: "36 35 8:1 /srv /mnt/b rw - ext4 /dev/sda1 rw\n", kind: approvals.ByHand},

		{command: "pkill nginx", kind: approvals.NoWay},
		{command: "reboot", kind: approvals.NoWay},
		{command: "mkfs.ext4 /dev/sdb1", kind: approvals.NoWay},
		{command: "./deploy.sh"},
		{command: "systemctl stop $x", look: "systemctl show", out: nginxUp},
		{command: "systemctl stop nginx; rm x", look: "systemctl show", out: nginxUp},
	} {
		f := &fakeRunner{t: t, replies: map[string]reply{}}
		if tc.look != "" {
			f.replies[tc.look] = reply{out: tc.out, exit: tc.exit}
		}
		got := BackFrom(t.Context(), shell(tc.command), proves, f)
		if got.Kind != tc.kind || got.Command != tc.want {
			t.Errorf("%s: %q %q, want %q %q (ran %q)", tc.command, got.Kind, got.Command, tc.kind, tc.want, f.ran)
		}
		if got.Kind == approvals.OnePress && (got.Look == "" || got.State != State(tc.out, tc.exit)) {
			t.Errorf("%s: %+v", tc.command, got)
		}
		if got.Kind != "" && got.Note == "" {
			t.Errorf("%s: people are not told about it: %+v", tc.command, got)
		}
	}
}

// Whatever a target answers, a way back is commands of the program that it undoes, and each word means only itself.
func TestWhatATargetSaysNeverBecomesTextOfAWayBack(t *testing.T) {
	commands := []string{
		"iptables -D INPUT 1", "iptables -P INPUT DROP", "iptables -A INPUT -j DROP", "systemctl stop nginx", "systemctl disable --now nginx", "sysctl -w vm.swappiness=1", "docker stop api", "docker service scale web=1",
		"kubectl scale deploy/api --replicas=0", "kubectl rollout restart deploy/api", "apt-get install nginx", "apt-get remove nginx", "umount /mnt/data", "mount -o remount,ro /srv", "modprobe dummy", "sudo systemctl stop nginx",
	}
	piece := rapid.OneOf(rapid.StringN(0, 20, -1), rapid.SampledFrom([]string{
		"-A INPUT ", "-P INPUT ", "-m comment --comment ", `"`, `\`, "\n", "$(touch x)", "`touch x`", "; touch x", " && touch x", "'", "--modprobe=/tmp/x", "Id=", "nginx.service", "\nActiveState=active\n", "\nUnitFileState=enabled\n",
		"\nLoadState=loaded\n", "/api|running", "|", "web=3", "nginx|", "1|installed\n", "36 35 8:17 / /mnt/data rw,", " - ext4 /dev/sdb1 rw\n", "36 35 8:17 / /srv rw - ", "3", "0", "\x00", "\t", "-",
	}))
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		command := rapid.SampledFrom(commands).Draw(t, "command")
		out := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "out"), "")
		w := BackFrom(context.Background(), shell(command), proves, &fakeRunner{t: t, always: &reply{out: out}})
		if w.Kind != approvals.OnePress {
			return
		}
		found++
		f, err := syntax.NewParser().Parse(strings.NewReader(w.Command), "")
		if err != nil || len(f.Stmts) != 1 {
			t.Fatalf("%s: %q: %v", command, w.Command, err)
		}
		program := strings.Fields(strings.TrimPrefix(command, "sudo "))[0]
		syntax.Walk(f, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.CallExpr:
				words := n.Args
				if words[0].Lit() == "sudo" {
					words = words[1:]
				}
				if words[0].Lit() != program || len(n.Assigns) > 0 {
					t.Fatalf("%s: %q", command, w.Command)
				}
			case *syntax.BinaryCmd:
				if n.Op != syntax.AndStmt {
					t.Fatalf("%s: %q", command, w.Command)
				}
			case *syntax.ParamExp, *syntax.CmdSubst, *syntax.ArithmExp, *syntax.ProcSubst, *syntax.ExtGlob, *syntax.Redirect, *syntax.BraceExp:
				t.Fatalf("%s: %q expands", command, w.Command)
			}
			return true
		})
	})
	if found == 0 {
		t.Error("no way back was found")
	}
}

// Text that undoes is made by Commands alone, from words.
func TestEveryWayBackIsMadeOfWords(t *testing.T) {
	for _, dir := range []string{".", "../../bot/machines"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) < 5 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, l := range n.Lhs {
						if s, ok := l.(*ast.SelectorExpr); ok && s.Sel.Name == "Command" && !callsCommands(n.Rhs[0]) {
							t.Errorf("%s: a command is set to something else than Commands", name)
						}
					}
				case *ast.KeyValueExpr:
					// A look's command is what the classifier judges.
					if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Command" && !callsCommands(n.Value) && !isIdent(n.Value, "text") {
						t.Errorf("%s: a command is set to something else than Commands", name)
					}
				}
				return true
			})
		}
	}
}

func isIdent(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}

func callsCommands(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := c.Fun.(*ast.SelectorExpr)
	return isIdent(c.Fun, "Commands") || ok && s.Sel.Name == "Commands"
}

func TestFilesHaveAWayBackWhereARehearsalShowedAllOfThem(t *testing.T) {
	dir := rehearsal.Entry{Type: 'd'}
	changes := []rehearsal.Change{
		changed(rehearsal.Written, "/a", regular(1), regular(2)), changed(rehearsal.Deleted, "/b", dir, rehearsal.Entry{}),
		changed(rehearsal.Deleted, "/b/c", regular(3), rehearsal.Entry{}), changed(rehearsal.Created, "/d", rehearsal.Entry{}, dir),
	}
	w := BackFromFiles(rehearsal.Report{Changes: changes})
	if w.Kind != approvals.OnePress || !slices.Equal(w.Keep, []string{"/a", "/b", "/b/c"}) || !slices.Equal(w.Made, []string{"/d"}) || w.Note != "restores 2 files and removes 1 new file" {
		t.Errorf("%+v", w)
	}
	for name, r := range map[string]rehearsal.Report{
		"more than files": {Changes: changes, Left: true},
		"nothing":         {},
		"another type":    {Changes: []rehearsal.Change{changed(rehearsal.Written, "/a", regular(1), dir)}},
	} {
		if w := BackFromFiles(r); w.Kind != "" {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if w := BackFromFiles(rehearsal.Report{Changes: []rehearsal.Change{changed(rehearsal.Deleted, "/a", regular(1e9), rehearsal.Entry{})}}); w.Kind != approvals.NoWay {
		t.Errorf("%+v", w)
	}
}
