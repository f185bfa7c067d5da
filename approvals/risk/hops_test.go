package risk

import (
	"slices"
	"strings"
	"testing"
)

func TestAHopAsksUnlessItsOtherEndMayBeUsed(t *testing.T) {
	listed, err := New(Extension{Places: []string{"ssh:db-1", "docker:api", "podman:api", "nerdctl:api", "kubectl:web-1", "kubectl:prod:web-2", "context:staging", "profile:audit", "engine:tcp://build-1:2375", "db-1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command string
		hops    []string
	}{
		{"df -h", nil},
		{"docker ps", nil},
		{"kubectl get pods -n prod", nil},
		{"ssh db-1 df -h", []string{"ssh:db-1"}},
		{"timeout 5 ssh -o BatchMode=yes db-1 uptime", []string{"ssh:db-1"}},
		{"docker exec api ls /app", []string{"docker:api"}},
		{"docker container exec -w /srv api ls", []string{"docker:api"}},
		{"podman exec api ls", []string{"podman:api"}},
		{"nerdctl exec api ls", []string{"nerdctl:api"}},
		{"kubectl exec web-1 -- ls", []string{"kubectl:web-1"}},
		{"kubectl exec -n prod web-2 -c app -- ls", []string{"kubectl:prod:web-2"}},
		{"kubectl -n=prod exec web-2 -- ls", []string{"kubectl:prod:web-2"}},
		{"kubectl --context staging exec web-1 -- ls", []string{"context:staging", "kubectl:web-1"}},
		{"kubectl get pods --context=staging", []string{"context:staging"}},
		{"kubectl get pods --cluster staging", []string{"context:staging"}},
		{"helm list --kube-context staging", []string{"context:staging"}},
		{"aws --profile audit sts get-caller-identity", []string{"profile:audit"}},
		{"docker -H tcp://build-1:2375 ps", []string{"engine:tcp://build-1:2375"}},
		{"docker --host=tcp://build-1:2375 exec api ls", []string{"engine:tcp://build-1:2375", "docker:api"}},
		{"psql -h db-1 -c 'select 1'", []string{"service:db-1"}},
		{"psql -h 127.0.0.1 -c 'select 1'", nil},
		{"mysql --host=db-1 -e 'select 1'", []string{"service:db-1"}},
		{"redis-cli -h db-1 -p 6379 info", []string{"service:db-1"}},
		{"redis-cli --scan -h db-1", []string{"service:db-1"}},
		{"etcdctl --endpoints=http://localhost:2379,https://db-1:2379 member list", []string{"service:db-1:2379"}},
		{"consul members -http-addr=http://db-1:8500", []string{"service:db-1:8500"}},
		{"rabbitmqctl -n rabbit@db-1 list_queues", []string{"service:db-1"}},
		{"promtool query instant http://db-1:9090 up", []string{"service:db-1:9090"}},
		{"pg_isready -h db-1", nil},
		{"nc -z db-1 5432", nil},
		{"docker --context staging ps", []string{"context:staging"}},
		{"docker -c staging ps && ssh db-1 uptime; ssh db-1 w", []string{"context:staging", "ssh:db-1"}},
	} {
		// Under a lock: some of these programs are trusted with options only there.
		_, v := Settle(listed.Judge, Text{Command: tt.command, Locked: true, Environ: true, Shell: Bash})
		got := make([]string, 0, len(v.Hops))
		for _, h := range v.Hops {
			got = append(got, h.String())
		}
		if !v.Proves(tt.command, true) || !slices.Equal(got, tt.hops) {
			t.Errorf("%s: proven %v, over %q, want %q: %q", tt.command, v.ReadOnly, got, tt.hops, v.Reasons)
		}
		if _, v := Settle(Judge, Text{Command: tt.command, Locked: true, Environ: true, Shell: Bash}); v.ReadOnly != (tt.hops == nil) {
			t.Errorf("%s: proven where nothing is listed", tt.command)
		}
		for _, place := range tt.hops {
			// Whoever asks may use all of these places but one.
			_, v := Settle(Judge, Text{Command: tt.command, Locked: true, Environ: true, Shell: Bash, Reach: func(h Hop) bool { return h.String() != place }})
			if v.ReadOnly || !slices.ContainsFunc(v.Reasons, func(r string) bool {
				return strings.HasPrefix(r, "it reaches ") && strings.Contains(r, place[strings.IndexByte(place, ':')+1:])
			}) {
				t.Errorf("%s without %s: proven %v: %q", tt.command, place, v.ReadOnly, v.Reasons)
			}
		}
	}
	const want = "it reaches db-1 over ssh, which is not a target that you may use here"
	if v := Classify("ssh db-1 uptime"); !slices.Equal(v.Reasons, []string{want}) {
		t.Errorf("%q, want %q", v.Reasons, want)
	}
}

func TestListedPlaces(t *testing.T) {
	e, err := New(Extension{Places: []string{"s3://acme-logs", "gs://acme.backups", "logs.example.com", "*.corp.example.com", "api.example.com:8443", "203.0.113.7", "[2001:db8::1]:443", "ssh:web1"}})
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge()
	j.allowed = e.allowed
	for place, want := range map[string]bool{
		"s3://acme-logs": true, "s3://acme-logs/2024/x": true, "s3://acme-logs2": false, "s3://acme": false, "s3://other/acme-logs": false, "gs://acme.backups/x": true, "gs://acme-logs": false,
		"logs.example.com": true, "LOGS.example.com": true, "logs.example.com:443": true, "xlogs.example.com": false, "logs.example.com.evil.com": false,
		"a.corp.example.com": true, "a.b.corp.example.com:80": true, "corp.example.com": false, "xcorp.example.com": false,
		"api.example.com:8443": true, "api.example.com": false, "api.example.com:80": false, "203.0.113.7": true, "203.0.113.7:80": true, "203.0.113.70": false,
		"[2001:db8::1]:443": true, "[2001:db8::1]:80": false, "ssh:web1": true, "ssh:web2": false, "web1": false, "docker:web1": false, "": false, "logs.example.com/x": false,
	} {
		if j.isListed(place) != want {
			t.Errorf("%s: listed is %v", place, !want)
		}
	}
}

func TestPlacesThatSayNothingOrEverythingAreRefused(t *testing.T) {
	for _, place := range []string{"", "*", "*.com", "*.", "ssh:", "ssh:-x", "ssh:a b", "docker:*", "ftp://x", "s3://", "s3://a/b", "s3://UPPER", "http://x", "x:0", "x:99999", "x:y", "a..b", "-x", "x y", "ex ample", "12", "a*b", "é", "s3://*", "context:a?"} {
		if _, err := New(Extension{Places: []string{place}}); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "; write ssh:NAME") {
			t.Errorf("%q: %v, want one sentence that says what to write", place, err)
		}
	}
	if _, err := New(Extension{Places: make([]string, maxAllowed+1)}); err == nil {
		t.Error("any number of places is taken")
	}
}

func TestAVerdictTellsWhatTheLockHasToLeaveOpen(t *testing.T) {
	for command, want := range map[string][]Need{
		"ssh web1 uptime":                       {NeedNet},
		"docker exec api ls":                    {NeedUnix + "/run/docker.sock"},
		"docker exec api ls; ssh web1 uptime":   {NeedNet, NeedUnix + "/run/docker.sock"},
		"kubectl exec web-1 -- ls | head -n 3":  {NeedNet},
		"for h in web1 web2; do ssh $h w; done": {NeedNet},
	} {
		if v := locked(command); !v.ReadOnly || !slices.Equal(v.Needs, want) {
			t.Errorf("%s: %q, want %q: %q", command, v.Needs, want, v.Reasons)
		}
	}
	j := newJudge()
	j.addNeeds(NeedNet, NeedDevices, NeedNet)
	j.prove("x")
	if v := j.verdict("x"); !slices.Equal(v.Needs, []Need{NeedDevices, NeedNet}) {
		t.Errorf("%q: want each need once, sorted", v.Needs)
	}
	j.add(Low, EffectUnknown, "x")
	if v := j.verdict("x"); v.Needs != nil || v.Hops != nil {
		t.Error("a text that is not proven needs something")
	}
}

func TestWhatRunsAtTheOtherEndIsJudgedWithoutALock(t *testing.T) {
	for _, c := range []string{"for i in 1 2; do uptime; done", "echo $HOME", "sh -c uptime", "find /srv -type f -exec wc {} +", "ls /srv | xargs -n1 basename", "[[ -f x ]]", "cat /dev/zero"} {
		if v := locked(c); !v.ReadOnly {
			t.Errorf("%s: %q", c, v.Reasons)
		}
		for _, hop := range []string{"ssh web1 " + quote(c), "docker exec api sh -c " + quote(c), "docker exec api bash -c " + quote(c), "kubectl exec web-1 -- sh -c " + quote(c)} {
			if v := locked(hop); v.ReadOnly || len(v.Reasons) == 0 {
				t.Errorf("%s is proven", hop)
			}
		}
	}
}
