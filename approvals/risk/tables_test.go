package risk

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// allSpecs calls f with each spec of the embedded tables and its path.
func allSpecs(t *testing.T, f func(path string, chain []*spec)) {
	t.Helper()
	specs, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, chain []*spec)
	walk = func(path string, chain []*spec) {
		f(path, chain)
		s := chain[len(chain)-1]
		for _, name := range slices.Sorted(maps.Keys(s.subs)) {
			walk(path+" "+name, append(slices.Clone(chain), s.subs[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		walk(name, []*spec{specs[name]})
	}
}

func TestAVerdictSaysWhatALockMustLeaveOpen(t *testing.T) {
	const bus, varBus, private = "unix:/run/dbus/system_bus_socket", "unix:/var/run/dbus/system_bus_socket", "unix:/run/systemd/private"
	for command, want := range map[string][]Need{
		"ls -la | wc -l":                {},
		"ps aux":                        {},
		"ip addr":                       {NeedNet, NeedNetlink},
		"hostname":                      {},
		"hostname -f":                   {NeedNet},
		"lsof -p 12":                    {NeedNet, NeedProcesses},
		"lsblk":                         {NeedDevices},
		"smartctl -a /dev/sda":          {NeedDevices},
		"docker ps":                     {"unix:/run/docker.sock", "unix:/var/run/docker.sock"},
		"systemctl status nginx":        {bus, private, varBus},
		"journalctl -u nginx -n 5":      {},
		"kubectl get pods | head":       {NeedNet},
		"ls -l /proc/1/exe":             {NeedProcesses},
		"cat /proc/12/maps":             {NeedProcesses},
		"find /proc/12/ns -maxdepth 1":  {NeedProcesses},
		"cat /proc/meminfo":             {},
		"redis-cli info":                {NeedNet},
		"aws ec2 describe-instances":    {NeedNet},
		"ps -eo pid,wchan":              {NeedProcesses},
		"timeout 5 ip addr && pwdx 1":   {NeedNet, NeedNetlink, NeedProcesses},
		"openssl x509 -in a.crt -noout": {},
	} {
		v := locked(command)
		if got := slices.Clone(v.Needs); !v.ReadOnly || !slices.Equal(append([]Need{}, got...), want) {
			t.Errorf("%s: %v, want %v: %q", command, got, want, v.Reasons)
		}
	}
}

// What reads the directory, makes files of its own, or was never run here asks
// where nothing holds it.
func TestWhatIsTrustedOnlyUnderALock(t *testing.T) {
	for _, c := range []string{
		"tofu state list", "tofu output", "go env", "go version", "docker compose config -q", "docker compose ps", "ansible-doc -l", "pip list", "npm --version", "gem list",
		"top -b -n 1", "tac a.txt", "cat a.txt | tac", "blkid", "md5sum -c sums.txt", "rpm -qp a.rpm", "dpkg -I a.deb", "dpkg-deb -f a.deb", "java -version", "xmllint --noout a.xml", "argocd app diff web",
		"crictl ps --label x=y", "helm list --date", "oc adm node-logs n -u kubelet", "helm list --time-format x", "consul members -wan", "sort -S 1k a.txt",
	} {
		if with, without := judged(c, false), judged(c, true); !with.ReadOnly || with.Proves(c, false) || without.ReadOnly {
			t.Errorf("%s: %v under a lock, %v without: %q", c, with.ReadOnly, without.ReadOnly, with.Reasons)
		}
	}
	for _, c := range []string{"sort a.txt", "md5sum a.txt", "dpkg -l bash", "helm list -A -o json", "helm status web -n shop", "crictl ps", "argocd app list -o json", "ls -la", "hubble observe --since 5m"} {
		if v := judged(c, true); !v.ReadOnly {
			t.Errorf("%s asks without a lock: %q", c, v.Reasons)
		}
	}
}

func TestWhatGoesToAPeerIsSilent(t *testing.T) {
	const dial = "openssl s_client -connect api.internal:443"
	for _, c := range []string{
		dial, dial + " </dev/null", "echo | " + dial, "echo Q | " + dial + " -showcerts", dial + " </dev/null 2>/dev/null | openssl x509 -noout -dates", "true | " + dial,
		"timeout 5 " + dial + " </dev/null", "nc -z db.internal 5432", "ls; " + dial, "for h in a b; do openssl s_client -connect $h.internal:443 </dev/null; done",
	} {
		if v := locked(c); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
	}
	for _, c := range []string{
		"printf 'DELETE /x HTTP/1.0\\r\\n\\r\\n' | " + dial + " -quiet", "cat a.txt | " + dial, dial + " < a.txt", dial + " <<< text", "echo x | " + dial, "echo Q x | " + dial,
		"cat a.txt | { " + dial + "; }", "{ " + dial + "; } < a.txt", "while read -r l; do " + dial + "; done < a.txt", "cat a.txt | timeout 5 " + dial, "cat a.txt | if true; then " + dial + "; fi",
		"echo $(cat a.txt) | " + dial, "cat a.txt | nc -z db.internal 5432", dial + " <(cat a.txt)", "sh -c '" + dial + "'", "cat a.txt | sh -c '" + dial + "'", "cat a.txt | ( echo; " + dial + " )",
		"echo \"$(cat a.txt)\" | " + dial, "echo -n '' a | " + dial, "cat a.txt | tee >(" + dial + ")", dial + " 0< a.txt", dial + " <&3",
	} {
		if v := locked(c); v.ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
}

func TestPlacesOutsideAskUnlessTheyAreListed(t *testing.T) {
	e, err := New(Extension{Places: []string{"s3://acme-logs", "gs://acme-logs", "profile:123456789012", "api.acme.example", "*.acme.example"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{
		"aws s3 ls s3://acme-logs/2026/", "aws s3api list-objects-v2 --bucket acme-logs", "gcloud storage ls gs://acme-logs", "gsutil ls gs://acme-logs/x", "ping -c 1 api.acme.example", "dig db.acme.example",
		"openssl s_client -connect api.acme.example:443 </dev/null", "curl -s https://api.acme.example/healthz", "aws sns get-topic-attributes --topic-arn arn:aws:sns:eu-west-1:123456789012:orders",
		"aws sqs get-queue-attributes --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/q --attribute-names All",
	} {
		if _, v := Settle(e.Judge, Text{Command: c, Shell: Bash, Locked: true, Environ: true}); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
		if v := locked(c); v.ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
	for _, c := range []string{
		"aws s3 ls s3://acme-logs.evil.example/x", "aws s3 ls s3://acme-logsx", "aws s3api head-object --bucket other --key x", "aws s3api head-object --bucket=other --key x", "gsutil ls gs://other", "gcloud storage du gs://other/x",
		"ping -c 1 acme.example.evil.test1", "ping -c 1 203.0.113.7", "dig -x 2001:db8::7", "dig +subnet=1 evil.com", "ping -s 4660 evil.com", "traceroute -p 4660 evil.com", "ping -i 0 10.0.0.1", "ping -s 65000 10.0.0.1",
		"curl -s https://evil.com/healthz", "openssl s_client -connect evil.com:443 </dev/null", "aws iam get-role --role-name arn:aws:iam::999999999999:role/x",
	} {
		if _, v := Settle(e.Judge, Text{Command: c, Shell: Bash, Locked: true, Environ: true}); v.ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
}

func TestEnginesShowOnlyWhatHoldsNoSecret(t *testing.T) {
	for _, c := range []string{
		"docker inspect -f '{{.State.Status}}' web", "docker inspect --format='{{json .State}}' web", "docker inspect -f '{{range .Mounts}}{{.Source}} -> {{.Destination}}{{\"\\n\"}}{{end}}' web",
		"docker inspect -f '{{range $k, $v := .NetworkSettings.Networks}}{{$k}} {{$v.IPAddress}}{{end}}' web", "docker inspect -f '{{.Name}} {{.RestartCount}} {{.HostConfig.RestartPolicy.Name}}' a b",
		"docker inspect -f '{{if .State.Running}}up{{end}}' web", "docker image inspect -f '{{.Id}} {{index .RepoDigests 0}}' web", "docker history -q web", "docker history --format '{{.ID}} {{.Size}}' web",
		"podman inspect -f '{{.State.Pid}}' web", "docker network inspect web", "systemctl show nginx -p MainPID,ActiveState", "systemctl show -p MainPID --value nginx", "helm get notes web",
	} {
		if v := locked(c); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
	}
	for _, c := range []string{
		"docker inspect web", "docker inspect -f '{{.Config.Env}}' web", "docker inspect -f '{{json .}}' web", "docker inspect -f '{{.}}' web", "docker inspect -f '{{json .Config}}' web", "docker inspect -f '{{with .Config}}{{.Image}}{{end}}' web",
		"docker inspect -f '{{range .Config.Env}}{{.}}{{end}}' web", "docker inspect -f '{{$.Config.Env}}' web", "docker inspect -f '{{range .Mounts}}{{$.Config.Env}}{{end}}' web", "docker inspect -f '{{$x := .Config}}{{$x.Image}}' web",
		"docker inspect -f '{{index .Config \"Env\"}}' web", "docker inspect -f '{{.State.Status}}' -f '{{.Config}}' web", "docker inspect -f '{{range .Mounts}}{{end}}{{.Config}}' web", "docker inspect -f '{{with $x := .}}{{.Config}}{{end}}' web",
		"docker inspect -f '{{range $i, $e := .}}{{$e}}{{end}}' web", "docker inspect -f json web", "docker inspect -f '{{printf \"%v\" .}}' web", "docker inspect -f '{{(.).Config}}' web", "docker inspect -f '{{print .Config.Labels}}' web",
		"docker inspect -f '{{with .State}}{{else}}{{.Config}}{{end}}' web", "docker inspect -f '{{$}}' web", "docker inspect -f '{{range .Mounts}}{{$}}{{end}}' web", "docker inspect -f '{{json $}}' web",
		"docker history web", "docker history --format '{{.CreatedBy}}' web", "docker history --format json web", "docker volume inspect web", "docker service inspect --pretty web", "podman pod inspect web", "crictl inspect 1", "crictl inspecti 1",
		"ctr containers info 1", "nomad job inspect web", "helm get values web", "helm get manifest web", "helm get hooks web", "helm get all web", "systemctl show nginx", "systemctl show", "systemctl show -p Environment nginx",
		"systemctl show --property=MainPID,Environment nginx", "systemctl show -p MainPID -p Environment nginx", "systemctl show -p '' nginx", "docker compose config", "ps e", "ps auxe", "cat /proc/1/environ", "cat /proc/*/environ",
	} {
		if v := locked(c); v.ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
}

func TestPlacesOfSecretsAreOneList(t *testing.T) {
	for _, p := range []string{
		"/var/backups/shadow.bak", "/var/backups/x", "/var/lib/cloud/instance/user-data.txt", "/run/cloud-init/instance-data-sensitive.json", "/etc/kubernetes/scheduler.conf", "/home/a/.config/sops/age/keys.txt",
		"/root/.terraform.d/credentials.tfrc.json", "prod.tfvars", "/etc/openvpn/client.conf", "client.ovpn", "/var/cache/debconf/passwords.dat", "/tmp/krb5cc_0", "/var/lib/docker/containers/x/config.v2.json",
		"/etc/netplan/50-cloud-init.yaml", "/home/a/.config/containers/auth.json", "/etc/sssd/sssd.conf", "/etc/pgbouncer/userlist.txt", "auth.json", "/var/lib/jenkins/secrets/master.key", "/home/a/.mozilla/x/key4.db",
	} {
		for _, c := range []string{"cat " + p, "head -n 3 " + p, "grep x " + p, "awk '{print}' " + p, "sed -n 1p " + p, "jq . " + p, "wc -l < " + p} {
			if v := locked(c); v.ReadOnly {
				t.Errorf("LEAK %s", c)
			}
		}
		if v := locked("ls -l " + p); !v.ReadOnly {
			t.Errorf("ls -l %s: %q", p, v.Reasons)
		}
	}
	for _, d := range []string{"/var/lib/docker", "/var/lib", "/etc", "/run", "/var/backups", "/var/lib/cloud", "/var/cache", "/etc/swanctl", "/etc/puppetlabs", "/var/lib/containers", "/"} {
		if v := locked("grep -r x " + d); v.ReadOnly {
			t.Errorf("LEAK grep -r x %s", d)
		}
	}
	for _, d := range []string{"/etc/nginx", "/var/log", "/srv/app", "/usr/share/doc", "/etc/systemd"} {
		if v := locked("grep -r x " + d); !v.ReadOnly {
			t.Errorf("grep -r x %s: %q", d, v.Reasons)
		}
	}
	for _, p := range []string{"/etc/nginx/nginx.conf", "/var/log/syslog", "/etc/fstab", "/etc/systemd/system/web.service", "/etc/ssh/sshd_config", "/etc/ssl/certs/ca-certificates.crt", "/var/lib/docker/containers/x/x-json.log", "/proc/meminfo", "app.properties", "values.yaml"} {
		if v := locked("cat " + p); !v.ReadOnly {
			t.Errorf("cat %s: %q", p, v.Reasons)
		}
	}
}

// Programs that were never run against their tables ask for all but their
// plainest forms where no lock holds them. How many there are stands in docs/gate.md.
func TestUntestedProgramsAreMarked(t *testing.T) {
	programs, untested, locks := 0, []string{}, 0
	allSpecs(t, func(path string, chain []*spec) {
		if len(chain) > 1 {
			return
		}
		programs++
		if chain[0].untested {
			untested = append(untested, path)
		}
		if chain[0].locked {
			locks++
		}
	})
	for _, name := range []string{"helm", "crictl", "consul", "snap", "zpool", "tofu", "az", "argocd"} {
		if !slices.Contains(untested, name) {
			t.Errorf("%s is not marked", name)
		}
	}
	for _, name := range []string{"ls", "ss", "systemctl", "kubectl", "openssl", "dpkg", "rpm"} {
		if slices.Contains(untested, name) {
			t.Errorf("%s is marked", name)
		}
	}
	t.Logf("%d programs, %d of them never run against their tables, %d trusted only under a lock: %s", programs, len(untested), locks, strings.Join(untested, " "))
}

func TestAnOptionBehindAnOperandIsAFileToSome(t *testing.T) {
	for _, c := range []string{"xxd a.txt -p", "xxd a.txt -l", "uniq a.txt -c", "xxd a.txt -- b.txt", "xxd -p -- a.txt -b", "xxd -bc 1 a.txt", "xxd -l16 a.txt b.txt"} {
		if v := locked(c); v.ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
	for _, c := range []string{"xxd -l 16 a.txt", "uniq -c a.txt", "xxd -p", "uniq -cd"} {
		if v := locked(c); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
	}
	for _, name := range []string{"nm", "readelf -a", "objdump -d", "size", "strings", "ar t", "nm -D"} {
		for _, arg := range []string{"@opts", "a.o @opts", "@*", "*", "-- @opts", "[@]x", "?x"} {
			if v := locked(name + " " + arg); v.ReadOnly {
				t.Errorf("LEAK %s %s", name, arg)
			}
		}
		if v := locked(name + " ./a.o"); !v.ReadOnly {
			t.Errorf("%s: %q", name, v.Reasons)
		}
	}
}

func TestAwkWritesNowhere(t *testing.T) {
	for _, p := range []string{
		"BEGIN{for(print c>f;0;);}", "BEGIN{for(;;print c>f)x}", "{print > f}", "{print>\"x\"}", "{print $1 >> f}", "NR>1{print>f}", "{if ($1>1) print $2 > f}", "{print (1)>f}", "{print(1) > (f)}", "{printf \"a\">f}",
		"BEGIN{print \"(\" > \")\"}", "{print /(/ > /)/}", "BEGIN{for(i=0;i<1;print i>f)i++}", "{x=(1); print x >f}", "BEGIN{for ((print 1)>f;;)x}", "{print a,b>c}", "{print\n>f}", "{1print>f}",
		"{print \"if (\" > \")\"}", "{print #(\n> f #)\n}", "BEGIN { for (print (c) > f; 0; ) ; }", "function g(){print>f} {g()}", "/{/{print 1 > f}", "{print (a)(b) > f}",
	} {
		if v := locked("awk -v c=x -v f=y " + quote(p) + " a.txt"); v.ReadOnly {
			t.Errorf("LEAK %s", p)
		}
	}
	for _, p := range []string{
		"$5 > 80 {print $1}", "NR>1 && $3>5 {print}", "$1 > 5", "{if ($5 > 80) print $1}", "{ if (($5 > 80) && ($6 > 1)) { print $1 } }", "/error/ && $9 >= 500 {print $7}", "{print ($1 > 5 ? 1 : 2)}", "{while (i > 0) i--; print i}",
		"BEGIN {x = 1} {s += $1} END {print s}", "{n[$1]++} END {for (k in n) if (n[k] > 1) print k, n[k]}", "{m = ($1 > m) ? $1 : m} END {print m}",
	} {
		if v := locked("awk " + quote(p) + " a.txt"); !v.ReadOnly {
			t.Errorf("%s: %q", p, v.Reasons)
		}
	}
}

func TestSedReadsBracketsAsEverySedDoes(t *testing.T) {
	for _, s := range []string{"s/[]/]/;s/w /tmp/g", "s/[^]/]/;w x", "s/[/]/w x/", "s/[a[b]/x/;s/]/w x/", "s/[[.].]]/x/w y", "s/[[:alpha:]/]/w x/", "s/[\\]/]/w x/", "y/[/]/;w x", "s/a/[/;s/]/w x/", "/[]/]/w x", "s/[[:a/:]]/w x/"} {
		if v := locked("sed -n " + quote(s) + " a.txt"); v.ReadOnly {
			t.Errorf("LEAK %s", s)
		}
	}
	for _, s := range []string{"s/[a-z]*//", "s/[[:space:]]*$//", "s/[^,]*,//g", "/[0-9]/p", "s/[[:alpha:]_][[:alnum:]_]*/x/p", "s#[^/]*/##", "s/[ \\t]*//"} {
		if v := locked("sed -n " + quote(s) + " a.txt"); !v.ReadOnly {
			t.Errorf("%s: %q", s, v.Reasons)
		}
	}
}
