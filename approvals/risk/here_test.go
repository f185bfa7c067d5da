package risk

import (
	"slices"
	"testing"
)

// What a program loads from the directory that it runs in decides what it does, and no proof looks at
// that. So a read that names no files there runs in "/".
func TestAReadThatNamesNoFilesRunsInTheRootDirectory(t *testing.T) {
	for c, want := range map[string]string{
		"uptime": "/", "docker ps": "/", "kubectl get pods -o json | jq '.items'": "/", "cat /etc/hosts": "/", "firewall-cmd --state": "/", "firewall-cmd --version": "/", "tuned-adm active": "/",
		"ceph -s | grep health": "/", "rados df": "/", "rbd ls": "/", "radosgw-admin bucket stats": "/", "supervisorctl status": "/", "repmgr cluster show": "/", "named-checkconf": "/",
		"ls /srv": "/", "find /srv -name x": "/", "yum info nginx": "/", "lvs vg0": "/", "grep -r x /srv/app": "/", "test -f /etc/hosts": "/", "du -sh /var": "/",
		"ls": "/srv/app", "pwd": "/srv/app", "du -sh": "/srv/app", "find . -name x": "/srv/app", "find -name x": "/srv/app", "cat a.txt": "/srv/app", "grep -r x": "/srv/app", "rg x": "/srv/app",
		"wc -l < a.txt": "/srv/app", "test -f a.txt": "/srv/app", "[ -f 2024-11-29.log ]": "/srv/app", "[ 3 -gt 2 ]": "/", "[[ -f a.txt ]]": "/srv/app", "echo *": "/srv/app", "echo $PWD": "/srv/app", "printenv PWD": "/srv/app", "docker compose ps": "/srv/app",
		"cd x && ls": "/srv/app", "cd - && uptime": "/srv/app", "ls; docker ps": "/srv/app", "dpkg -I a.deb": "/srv/app", "which ./x": "/srv/app",
		"for f in a b; do wc -l $f; done": "/srv/app", "git --version": "/",
		"awk '{print}' a.txt": "/srv/app", "sed -n 1p a.txt": "/srv/app", "jq . a.json": "/srv/app", "tar -tf x.tar": "/srv/app", "openssl x509 -in a.crt -noout": "/srv/app", "stat a.txt": "/srv/app",
	} {
		at, v := Settle(Judge, Text{Command: c, Dir: "/srv/app", Locked: true, Environ: true, Shell: Bash, Reach: known})
		if !v.ReadOnly || at.Dir != want {
			t.Errorf("%s: proven %v in %s, want %s: %q", c, v.ReadOnly, at.Dir, want, v.Reasons)
		}
	}
}

// A program that loads files of its directory is no read beside something that needs this directory, where
// the directory can't be chosen, or at the other end of a hop.
func TestWhatLoadsFilesOfItsDirectoryOnlyRunsInTheRootDirectory(t *testing.T) {
	for _, c := range []string{
		"ls; firewall-cmd --state", "cd /srv/repo && firewall-cmd --state", "cat a.txt | ceph -s", "for f in *; do rados df; done", "pwd && supervisorctl status", "ssh web-1 ceph -s", "docker exec web rbd ls",
		"find . -maxdepth 0 -exec firewall-cmd --state \\;", "cd /srv; tuned-adm active", "(cd /srv/repo; supervisorctl status)", "named-checkconf ./named.conf", "named-checkconf /srv/app/named.conf", "logrotate -d /srv/app/x",
		"nerdctl compose ps", "cd /tmp && repmgr cluster show",
	} {
		for _, v := range []Verdict{locked(c), plain(c, Bash), Classify(c)} {
			if v.ReadOnly {
				t.Errorf("LEAK %s", c)
			}
		}
	}
	for _, c := range []string{"firewall-cmd --state", "firewall-cmd --version", "ceph -s", "helm list", "chronyc tracking"} {
		for _, held := range []bool{true, false} {
			if v := Judge(Text{Command: c, Dir: "/srv/app", Locked: held, Shell: Bash}); v.ReadOnly {
				t.Errorf("LEAK %s in a directory that stays", c)
			}
		}
	}
}

// PostgreSQL runs functions and operators of whoever owns the database, unless the session only looks into
// the catalogue.
func TestPsqlOnlyReadsWithAnEnvironmentOfTheBot(t *testing.T) {
	for c, want := range map[string][]string{
		"psql -c 'select relname from pg_class where reltuples > 1000'":           {psqlStart, psqlQuery},
		"psql -Atc \"select lower(relname) from pg_class\" && psql -c 'show all'": {psqlStart, psqlQuery},
		"psql -c '\\dt'": {psqlStart, psqlVisible},
		"psql -l":        {psqlStart, psqlVisible},
		"psql --version": nil,
		"uptime":         nil,
	} {
		if v := locked(c); !v.ReadOnly || !slices.Equal(v.Environ, want) {
			t.Errorf("%s: %v with %q: %q", c, v.ReadOnly, v.Environ, v.Reasons)
		}
		if v := Judge(Text{Command: c, Dir: "/", Locked: true, Shell: Bash}); v.ReadOnly != (want == nil) {
			t.Errorf("%s: proven %v where nobody sets its environment", c, v.ReadOnly)
		}
	}
	for _, c := range []string{
		"PGOPTIONS='-c search_path=public' psql -c 'select 1'", "env PGOPTIONS=x psql -c 'select 1'", "PSQLRC=x psql -c 'select 1'", "psql -c '\\dt' -c 'select 1'", "psql -c '\\dt'; psql -c 'select 1'",
		"ssh db-1 'psql -c \"select 1\"'", "docker exec pg psql -c 'select 1'", "psql -c \"select pg_relation_size('orders')\"", "psql -c \"select 'orders'::regclass\"", "export PGOPTIONS=x; psql -l",
	} {
		for width, v := range widths(c) {
			if v.ReadOnly {
				t.Errorf("LEAK %s: %s", width, c)
			}
		}
	}
}

// What may go on for ever, or fill the memory, is nothing for a machine without a lock.
func TestPlainReadsHaveAnEnd(t *testing.T) {
	for _, c := range []string{
		"awk 'BEGIN{x=\"a\"; while(1) x=x x}'", "awk 'BEGIN{for(;;);}'", "awk '{x=x x} END{print length(x)}' a.txt", "awk '{x=x $1 x}' a.txt", "awk '{y=x; x=x y}' a.txt", "awk 'function f(n){return f(n)} BEGIN{f(1)}'",
		"awk 'BEGIN{a=\"x\";b=a a;c=b b}'", "awk 'BEGIN{do i++; while(i)}'", "awk 'BEGIN{NF=99999999}'", "awk 'BEGIN{$999999999=1}'", "awk '{gsub(/a/,\"aa\",x)}' a.txt", "awk 'BEGIN{printf \"%9999999d\",1}'", "awk '{$0=$0 $0}' a.txt",
		"awk '{a[1]=a[1] a[1]}' a.txt", "jq -n '[range(1e9)]'", "jq -n 'def f: f; f'", "jq -n 'repeat(1)'", "jq -n '\"a\" * 1000000000'", "jq -n 'last(while(true;.))'", "jq '.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.' a.json",
		"echo 9^9^9 | bc", "bc", "sed 'G;h;G;h' a.txt", "sed 'G;H' a.txt", "sed 's/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g;s/a/aa/g' a.txt",
		"grep -E '((a{1,255}){1,255}){1,255}' a.txt", "grep -P '(a{1,9999}){1,9999}' a.txt", "grep 'a\\{9999\\}' a.txt",
	} {
		if v := plain(c, Bash); v.ReadOnly {
			t.Errorf("%s is plain", c)
		}
	}
	for _, c := range []string{
		"awk '{print $1}' a.txt", "awk '{n[$7]++} END {for (k in n) print n[k], k}' a.txt", "awk '{s+=$2} END {print s/NR}' a.txt", "awk '{m = ($1 > m) ? $1 : m} END {print m}' a.txt", "awk -F: '$3 >= 1000 {print $1}' /etc/passwd",
		"awk '/ERROR/{c=c+1} END{print c}' a.txt", "awk '{gsub(/,/,\"\",$2); print $2}' a.txt", "awk 'NR==1{x=$1} $1==x' a.txt", "jq '.items[].name' a.json", "jq -r '.[] | select(.n > 1) | .a + \" \" + .b' a.json", "sed -n '1!G;h;$p' a.txt",
		"sed 's/a/b/g;s/c/d/' a.txt", "grep -E '([0-9]{1,3}\\.){3}[0-9]{1,3}' a.txt", "grep -E '^[0-9]{4}-[0-9]{2}-[0-9]{2}T' a.txt",
	} {
		if v := plain(c, Bash); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
	}
}

// Files of the kernel that ask by their name ask below a root as well.
func TestWhatActsWhenItIsReadAsks(t *testing.T) {
	for _, c := range []string{
		"grep -r foo /sys/kernel", "rg foo /sys/kernel", "egrep -r foo /sys", "diff -r /sys/kernel /srv/x", "cd /sys/kernel && grep -r foo .", "find /sys/kernel -type f -exec cat {} +", "grep -r foo /sys/devices/pci0000:00",
		"cat /sys/bus/pci/devices/*/resource4", "cat /sys/bus/pci/devices/0000:00:02.0/resource0", "cat /sys/bus/pci/devices/0000:00:02.0/resource*", "cat /sys/devices/pci0000:00/0000:00:02.0/rom", "grep -r x /sys/bus", "grep -r x /sys/firmware",
		"cat /proc/kmsg", "cat /proc/net/rpc/nfsd.fh/channel", "cat /proc/1/net/rpc/auth.unix.ip/channel", "grep -r x /proc/net", "cat /dev/pts/1", "cat /dev/tty", "head -c 1 /dev/pts/0", "grep -r x /sys/class/*", "rg --files-with-matches x /sys/kernel",
		"grep -rl x /sys/kernel", "grep -rc x /sys", "diff -rq /sys/kernel /srv", "grep -rq x /proc", "find /sys/kernel -exec wc -l {} +",
		"grep -Rl x /sys/class/net/eth0", "diff -rq /sys/class/net /srv", "find -L /sys/class/net -exec wc -l {} +",
	} {
		for width, v := range widths(c) {
			if v.ReadOnly {
				t.Errorf("LEAK %s: %s", width, c)
			}
		}
	}
	for _, c := range []string{
		"grep -r . /sys/devices/system/cpu/vulnerabilities", "cat /sys/class/thermal/thermal_zone0/temp", "grep -r . /sys/class/net/eth0/statistics", "cat /sys/kernel/mm/transparent_hugepage/enabled", "ls -R /sys/kernel", "find /sys/kernel -name x",
		"cat /sys/block/sda/queue/scheduler", "cat /sys/fs/cgroup/memory.max",
	} {
		if v := locked(c); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
	}
}

// Only getopt_long leaves a program with an option that it does not know.
func TestVersionsOfProgramsThatAreNotKnownAsk(t *testing.T) {
	for _, c := range []string{"pidof --version", "pidof --help", "puppet --version", "velero backup describe nightly", "velero backup logs nightly"} {
		for width, v := range widths(c) {
			if v.ReadOnly {
				t.Errorf("LEAK %s: %s", width, c)
			}
		}
	}
}

// What keeps logs and settings of its own, or starts something, needs a lock to be a read.
func TestWhatKeepsFilesOfItsOwnNeedsALock(t *testing.T) {
	for _, c := range []string{
		"gluster volume status", "lxc list", "smbstatus", "chronyc tracking", "zkServer.sh status", "nodetool status", "gcloud projects list", "gcloud version", "gsutil ls", "bq ls", "az vm list", "crontab -l", "virsh list --all", "virsh -c qemu:///system list",
	} {
		if held, free := locked(c), plain(c, Bash); !held.ReadOnly || held.Proves(c, false) || free.ReadOnly {
			t.Errorf("%s: %v under a lock, %v without: %q", c, held.ReadOnly, free.ReadOnly, held.Reasons)
		}
	}
	for _, c := range []string{"virsh -c qemu:///session list", "virsh -c qemu+ssh://x/system list", "virsh -cqemu:///session list"} {
		if locked(c).ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
}
