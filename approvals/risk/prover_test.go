//go:build linux

package risk

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/lock"
	"countersign/test/needstest"
)

// The prover holds the tables against the real programs. For each program that
// is installed it makes every option alone with values of every kind, every
// pair of options, and the shapes in which options and operands can be written
// (clusters, joined values, beginnings of long options, an option behind an
// operand, "--", "-", "@file", a directory, a missing file, one operand too
// many). What the classifier calls a read runs in the sandbox, under its own
// name and, where busybox has an applet of that name, as the applet. A form that
// needs no lock may change nothing; one that does may only reach what the
// verdict says that a lock must leave open.
//
// A plain `go test` runs a sample. COUNTERSIGN_PROVER=all runs everything and
// reports, COUNTERSIGN_PROVER=ls,sort some programs; -prover.budget bounds its time.

const proverEnv = "COUNTERSIGN_PROVER"

var (
	proverBudget = flag.Duration("prover.budget", time.Hour, "how long the prover may run commands")
	proverForms  = flag.Int("prover.forms", 0, "how many forms of each program the prover runs; 0 is all")
)

const (
	proverSample = 12                      // times proverTogether forms in a plain go test
	proverLimit  = 1500 * time.Millisecond // for one command
	proverBatch  = 1200                    // commands in one sandbox
)

// form is one way to write a call of a program.
type form struct {
	program, text string
	shape         string // what is tried: single, pair, cluster, joined, operand, ...
	plain         bool   // proven without a lock, too
	busybox       bool
	needs         []Need
}

// hit says what a form tried that a read doesn't do, or did not declare.
type hit = string

// judged is the verdict on a text with and without a lock.
func judged(text string, plain bool) Verdict {
	_, v := Settle(Judge, Text{Command: text, Shell: Bash, Locked: !plain, Environ: true, Reach: func(Hop) bool { return true }})
	return v
}

// observe runs forms where they can harm nothing, and returns what each did
// that a read doesn't do. Several run together, and those of which something is
// seen again, each alone.
func observe(t *testing.T, forms []form) [][]hit {
	t.Helper()
	var groups [][]int
	for i, f := range forms {
		if n := len(groups); n > 0 && len(groups[n-1]) < proverTogether && f.program == forms[groups[n-1][0]].program && f.busybox == forms[groups[n-1][0]].busybox && !alone(f) && !alone(forms[groups[n-1][0]]) {
			groups[n-1] = append(groups[n-1], i)
			continue
		}
		groups = append(groups, []int{i})
	}
	out := make([][]hit, len(forms))
	var again [][]int
	for g, hits := range observeEach(t, forms, groups) {
		if len(groups[g]) == 1 {
			out[groups[g][0]] = hits
		} else if len(hits) > 0 {
			for _, i := range groups[g] {
				again = append(again, []int{i})
			}
		}
	}
	t.Logf("%d commands, %d again", len(groups), len(again))
	if len(again) > 0 {
		for g, hits := range observeEach(t, forms, again) {
			out[again[g][0]] = hits
		}
	}
	return out
}

// proverTogether is how many forms run as one command.
const proverTogether = 12

// alone reports whether a form may take long, or changes the shell.
func alone(f form) bool {
	return endless.MatchString(f.text) || wide.MatchString(f.text) || slices.Contains(heavy, f.program) || slices.Contains(shellWords, f.program)
}

// observeEach runs each of the groups as one command.
func observeEach(t *testing.T, forms []form, groups [][]int) [][]hit {
	t.Helper()
	jobs := make([]job, len(groups))
	for g, group := range groups {
		var texts []string
		for _, i := range group {
			texts = append(texts, forms[i].text)
		}
		f := forms[group[0]]
		jobs[g] = job{ID: g, Text: strings.Join(texts, "\n"), Limit: proverLimit, Busybox: f.busybox, Lock: heldBy(forms, group)}
		switch {
		case len(group) > 1:
			jobs[g].Limit = runLimit
		case endless.MatchString(f.text) || wide.MatchString(f.text):
			jobs[g].Limit = endlessLimit
		}
	}
	results, _ := sandboxes(t, jobs, 2, false)
	out := make([][]hit, len(groups))
	for g, group := range groups {
		out[g] = slices.DeleteFunc(results[g].Found, func(h hit) bool { return innocent(h, forms[group[0]]) })
		if len(group) > 1 && results[g].Timeout {
			out[g] = append(out[g], "takes long")
		}
	}
	return out
}

// innocent reports whether a hit is of no use to anybody but the program, or of
// the sandbox's making.
func innocent(h hit, f form) bool {
	_, about, _ := strings.Cut(h, " ")
	switch {
	case strings.HasPrefix(h, "connect ") && slices.ContainsFunc(nameServices, func(p string) bool { return strings.HasPrefix(about, p) }):
		return true // it asks who a number or a name is
	case ownThread.MatchString(h):
		return true // it gives one of its threads a name
	case strings.HasPrefix(h, "device "+worldHome+"/"):
		return true // a file where there would be a disk
	case h == "change ":
		// pmap looks at a piece of memory of its own, GLib sets the priority of its
		// threads, and the others ask for quotas.
		return slices.Contains([]string{"pmap", "realm", "quota", "repquota"}, f.program)
	}
	return false
}

var ownThread = regexp.MustCompile(`^write /proc/self/task/\d+/comm$`)

// heldBy is the lock that leaves open what all of the forms declare.
func heldBy(forms []form, group []int) *backend.Lock {
	l := &backend.Lock{}
	for _, n := range forms[group[0]].needs {
		if slices.ContainsFunc(group, func(i int) bool { return !slices.Contains(forms[i].needs, n) }) {
			continue
		}
		switch n {
		case NeedNet:
			l.Net = true
		case NeedNetlink:
			l.Netlink = true
		case NeedProcesses:
			l.Processes = true
		case NeedDevices:
			l.Devices = true
		case NeedAdmin:
			l.Admin = true
		default:
			l.Sockets = append(l.Sockets, strings.TrimPrefix(string(n), string(NeedUnix)))
		}
	}
	return l
}

var (
	socketCall  = regexp.MustCompile(`^socket\((AF_\w+)`)
	unixConnect = regexp.MustCompile(`^connect\(\d+, \{sa_family=AF_UNIX, sun_path="([^"]+)"`)
	otherFiles  = regexp.MustCompile(`^(?:open|openat|readlink|readlinkat)\((?:[A-Z_]+|\d+)?(?:, )?"/proc/(\d+)(?:/task/\d+)?/(exe|cwd|root|fd|fdinfo|maps|smaps|smaps_rollup|map_files|environ|io|ns|mem|pagemap|numa_maps|stack|syscall|auxv|personality|wchan)\b`)
	deviceCall  = regexp.MustCompile(`^(?:open|openat)\((?:[A-Z_]+|\d+)?(?:, )?"(/dev/[^"]+)"`)
)

// nameServices are the sockets where the C library asks for users and hosts,
// which a lock leaves open to everybody.
var nameServices = []string{"/run/nscd/", "/var/run/nscd/", "/var/lib/sss/pipes/", "/run/systemd/userdb/", "/run/systemd/io.system", "/run/systemd/resolve/", "/run/systemd/journal/", "/dev/log", "/run/dbus/", "/var/run/dbus/"}

// reached tells what a lock must leave open for the calls of a trace.
func reached(calls []string) []Need {
	seen := map[Need]bool{}
	for _, c := range calls {
		if m := socketCall.FindStringSubmatch(c); m != nil {
			switch m[1] {
			case "AF_INET", "AF_INET6", "AF_PACKET":
				seen[NeedNet] = true
			case "AF_NETLINK":
				seen[NeedNetlink] = true
			}
		}
		if m := unixConnect.FindStringSubmatch(c); m != nil && !slices.ContainsFunc(nameServices, func(p string) bool { return strings.HasPrefix(m[1], p) }) {
			seen[NeedUnix+Need(m[1])] = true
		}
		if otherFiles.MatchString(c) {
			seen[NeedProcesses] = true
		}
		if m := deviceCall.FindStringSubmatch(c); m != nil && !slices.Contains([]string{"/dev/null", "/dev/tty", "/dev/urandom", "/dev/random", "/dev/zero"}, m[1]) &&
			!strings.HasPrefix(m[1], "/dev/pts") && !strings.HasPrefix(m[1], "/dev/fd/") && !strings.HasPrefix(m[1], "/dev/shm") && !strings.HasPrefix(m[1], "/dev/std") && !strings.Contains(c, "O_DIRECTORY") {
			seen[NeedDevices] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// samples are words of a kind; the first is the plainest.
func samples(kind string) []string {
	switch kind {
	case "path", "file", "local", "any":
		return []string{"a.txt", "dir", "nowhere", "-", "./globs/*", "bin.dat", "x.gz"}
	case "num", "pause", "packet":
		return []string{"1", "10", "0"}
	case "id":
		return []string{"1", "12"}
	case "text", "nofile":
		return []string{"a", "1", "out.new", "''", "/tmp/w/out.new", "'%s'"}
	case "word", "unit", "key", "node", "context", "profile", "engine":
		return []string{"a", "out.new", "json", "/tmp/w/out.new"}
	case "host", "addr", "dns", "resolver":
		return []string{"127.0.0.1", "localhost:1"}
	case "port":
		return []string{"1"}
	case "plus":
		return []string{"+%F", "+x"}
	case "kout":
		return []string{"json", "wide"}
	case "psarg":
		return []string{"aux"}
	case "fmt":
		return []string{"'#{pane_id}'"}
	case "etc":
		return []string{"/etc/hosts"}
	case "unixsock":
		return []string{"/run/x.sock"}
	case "header":
		return []string{"'Accept: text/plain'"}
	case "wout":
		return []string{"'%{http_code}'"}
	case "smartlog":
		return []string{"error"}
	case "socket":
		return []string{"/run/x.sock"}
	case "pgport":
		return []string{"5432", "1"}
	case "rawpath":
		return []string{"/healthz"}
	case "nodelog":
		return []string{"kubelet.log"}
	}
	var out []string
	for s := range strings.SplitSeq(strings.TrimPrefix(kind, "="), "|") {
		out = append(out, quoteIfNeeded(s))
	}
	return out
}

func quoteIfNeeded(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:+,-%") == "" {
		return s
	}
	return quote(s)
}

// maker of the forms of one program.
type prover struct {
	program string
	forms   []form
	seen    map[string]bool
}

func (p *prover) add(shape string, words ...string) {
	text := strings.Join(slices.DeleteFunc(slices.Clone(words), func(s string) bool { return s == "" }), " ")
	if !p.seen[text] {
		p.seen[text] = true
		p.forms = append(p.forms, form{program: p.program, text: text, shape: shape})
	}
}

// written are the ways to write an option, the plainest first.
func written(name string, f *flagSpec, value string, st style) []string {
	if f.arity == 0 {
		return []string{name}
	}
	if f.more != "" {
		return []string{name + " " + value + " " + samples(f.more)[0]}
	}
	long := strings.HasPrefix(name, "--")
	var out []string
	switch {
	case f.arity == 2 && long:
		out = []string{name + "=" + value, name}
	case f.arity == 2:
		out = []string{name + value, name}
	case long:
		out = []string{name + " " + value, name + "=" + value}
	case len(name) == 2:
		out = []string{name + " " + value, name + value}
	default:
		out = []string{name + " " + value}
	}
	if st == styleCobra || st == styleGo {
		out = append(out, name+"="+value)
	}
	return out
}

// walk makes the forms of a spec and its subcommands.
func (p *prover) walk(s *spec, head string, chain []*spec) {
	chain = append(slices.Clone(chain), s)
	flags := maps.Clone(s.flags)
	for _, c := range chain {
		maps.Copy(flags, c.all)
	}
	names := slices.Sorted(maps.Keys(flags))
	// The options that must be there, each of the alternatives.
	needed := []string{""}
	for _, c := range chain {
		for _, need := range c.needs {
			var more []string
			for _, n := range need {
				f := flags[n]
				if f == nil {
					continue
				}
				value := ""
				if f.arity > 0 {
					value = samples(f.pred)[0]
				}
				for _, have := range needed {
					more = append(more, strings.TrimSpace(have+" "+written(n, f, value, s.style)[0]))
				}
			}
			if len(more) > 0 {
				needed = more
			}
		}
	}
	operands := func(pick int) string {
		var out []string
		for _, o := range s.operands {
			all := samples(o.pred)
			for range max(o.min, min(1, o.max*o.max)) {
				out = append(out, all[pick%len(all)])
			}
		}
		return strings.Join(out, " ")
	}
	if len(s.subs) == 0 || s.bare || s.noArgs || len(names) > 0 {
		for _, need := range needed {
			base := strings.TrimSpace(head + " " + need)
			p.add("bare", base)
			// Operands.
			for pick := range 4 {
				p.add("operand", base, operands(pick))
			}
			one := operands(0)
			p.add("operand", base, one, "a.txt")
			p.add("operand", base, one, "out.new")
			p.add("operand", base, "a.txt", "out.new")
			p.add("operand", base, "--", one)
			p.add("operand", base, "--", "-n")
			p.add("operand", base, "@opts.txt")
			p.add("operand", base, one, "@opts.txt")
			p.add("operand", base, "./*")
			p.add("operand", base, "*")
			for _, n := range names {
				f := flags[n]
				values := []string{""}
				if f.arity > 0 {
					values = samples(f.pred)
				}
				for i, v := range values {
					for k, w := range written(n, f, v, s.style) {
						shape := "single"
						if k > 0 {
							shape = "joined"
						}
						p.add(shape, base, w, one)
						if i == 0 {
							p.add(shape, base, w)
							p.add("after", base, one, w)
						}
					}
				}
				if strings.HasPrefix(n, "--") && len(n) > 5 {
					for _, cut := range []int{1, 2, len(n) - 5} {
						if cut > 0 && cut < len(n)-3 {
							p.add("abbreviation", base, n[:len(n)-cut], one)
						}
					}
				}
			}
		}
		base := strings.TrimSpace(head + " " + needed[0])
		one := operands(0)
		for i, a := range names {
			fa := flags[a]
			wa := written(a, fa, first(fa), s.style)[0]
			for _, b := range names[i+1:] {
				fb := flags[b]
				wb := written(b, fb, first(fb), s.style)[0]
				p.add("pair", base, wa, wb, one)
				if len(a) == 2 && len(b) == 2 && fa.arity == 0 && s.style != styleWord && s.style != styleGo {
					p.add("cluster", base, a+wb[1:], one)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.subs)) {
		p.walk(s.subs[name], head+" "+name, chain)
	}
}

func first(f *flagSpec) string {
	if f.arity == 0 {
		return ""
	}
	return samples(f.pred)[0]
}

// provable returns the forms of a program that are proven, under its own name
// and as an applet.
func provable(specs map[string]*spec, name string, applet bool) []form {
	p := &prover{program: name, seen: map[string]bool{}}
	p.walk(specs[name], name, nil)
	var out []form
	for _, f := range p.forms {
		v := judged(f.text, false)
		if !v.ReadOnly {
			continue
		}
		f.needs = v.Needs
		f.plain = judged(f.text, true).ReadOnly
		if installed(name) {
			out = append(out, f)
		}
		if applet {
			f.busybox = true
			out = append(out, f)
		}
	}
	return out
}

// applets are the names that busybox has.
func applets() map[string]bool {
	out := map[string]bool{}
	list, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		return out
	}
	for n := range strings.FieldsSeq(string(list)) {
		out[n] = true
	}
	return out
}

// heavy are the programs of which only some forms are run, since each takes long.
var heavy = append(slices.Clone(slowStarters), "zypper", "dnf", "yum", "aptitude", "crm", "pcs", "crm_mon", "virsh", "ceph", "rados", "rbd", "radosgw-admin", "firewall-cmd", "ansible-doc", "ansible-galaxy", "semanage",
	"systemctl", "needrestart", "rpm", "flatpak", "go", "gem", "consul", "nomad", "promtool", "amtool", "rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-queues", "rabbitmq-plugins", "patronictl", "pgbackrest", "tuned-adm", "podman", "buildah", "skopeo",
	"fail2ban-client", "supervisorctl", "ufw", "node", "ruby", "zkServer.sh", "lshw", "journalctl", "apt-file", "ss", "dig", "host", "nslookup", "ping", "ping6", "fping", "mtr", "traceroute", "tracepath", "nc", "ncat", "netcat", "curl", "sleep", "monit", "caddy", "debsums", "etcdctl")

// late sorts pairs behind what tells more, and what needs a lock behind what doesn't.
func late(f form) int {
	n := 0
	if f.shape == "pair" || f.shape == "cluster" {
		n += 2
	}
	if !f.plain {
		n++
	}
	return n
}

func TestTheTablesAgainstTheirPrograms(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs hundreds of commands: leave out -short")
	}
	if st := lock.State(t.Context()); st.By == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("there is no lock to see attempts with: %q", st.Lacks)
		}
		t.Skipf("there is no lock to see attempts with: %q", st.Lacks)
	}
	specs, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	want := os.Getenv(proverEnv)
	var only []string
	if want != "" && want != "all" {
		only = strings.Split(want, ",")
	}
	twins := applets()
	r := rand.New(rand.NewPCG(usualSeed, 0))
	var missing []string
	queues := map[string][]form{}
	proven, kinds := 0, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if len(only) > 0 && !slices.Contains(only, name) || !plainName(name) || slices.Contains(elsewhere, name) {
			continue
		}
		if !installed(name) && !twins[name] {
			if !slices.Contains(shellWords, name) {
				missing = append(missing, name)
			}
			continue
		}
		if want == "" && slices.Contains(heavy, name) {
			continue
		}
		forms := provable(specs, name, twins[name])
		r.Shuffle(len(forms), func(i, k int) { forms[i], forms[k] = forms[k], forms[i] })
		slices.SortStableFunc(forms, func(a, b form) int { return late(a) - late(b) })
		if slices.Contains(heavy, name) && len(forms) > 120 && len(only) == 0 {
			forms = forms[:120]
		}
		if *proverForms > 0 && len(forms) > *proverForms {
			forms = forms[:*proverForms]
		}
		proven += len(forms)
		queues[name] = forms
	}
	// In turns, so that whatever is left out at the end is some of each, and pairs last.
	var turns [][]form
	for round := 0; len(queues) > 0; round++ {
		before := len(turns)
		for _, name := range slices.Sorted(maps.Keys(queues)) {
			q := queues[name]
			if from := round * proverTogether; from < len(q) {
				turns = append(turns, q[from:min(len(q), from+proverTogether)])
			}
		}
		if len(turns) == before {
			break
		}
	}
	if want == "" {
		r.Shuffle(len(turns), func(i, k int) { turns[i], turns[k] = turns[k], turns[i] })
		turns = turns[:min(len(turns), proverSample)]
	}
	order := slices.Concat(turns...)
	ran, applied, began := 0, 0, time.Now()
	held := map[string][]string{}
	found := map[string][]string{}
	for len(order) > 0 && time.Since(began) < *proverBudget {
		n := min(proverBatch, len(order))
		batch := order[:n]
		order = order[n:]
		for i, hits := range observe(t, batch) {
			f := batch[i]
			ran++
			kinds[f.shape]++
			if f.busybox {
				applied++
			}
			if len(hits) == 0 {
				continue
			}
			line := fmt.Sprintf("%s: %s", f.text, strings.Join(hits, "; "))
			if f.busybox {
				line = "busybox " + line
			}
			into := found
			if !f.plain {
				into = held
			}
			if into[f.program] = append(into[f.program], line); want != "" && len(into[f.program]) <= 3 {
				t.Logf("proven without a lock: %v: %s", f.plain, line)
			}
		}
		if want != "" {
			t.Logf("%d run, %d left, %s", ran, len(order), time.Since(began).Round(time.Second))
		}
	}
	show := func(word string, all map[string][]string, report func(...any)) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			lines := all[name]
			more := ""
			if len(lines) > 4 && len(only) == 0 {
				more = fmt.Sprintf("\n\t... and %d more", len(lines)-4)
				lines = lines[:4]
			}
			report(fmt.Sprintf("%s %s (%d)\n\t%s%s", word, name, len(all[name]), strings.Join(lines, "\n\t"), more))
		}
	}
	show("FOUND", found, t.Error)
	if want != "" {
		show("only under a lock", held, t.Log)
	}
	t.Logf("%d programs, %d not installed; %d of %d forms run (%d as applets): %v; findings in %d programs, held by a lock in %d", len(queues), len(missing), ran, proven, applied, kinds, len(found), len(held))
	if want == "all" {
		t.Logf("not installed: %s", strings.Join(missing, " "))
	}
}

// A lock refuses looks into other processes without a word, so a trace has to
// tell of those: some forms of each program run without a lock, under strace.
func TestTheTablesSayWhatTheirProgramsLookInto(t *testing.T) {
	if os.Getenv(proverEnv) != "all" {
		t.Skipf("it runs some forms of every program under strace: set %s=all", proverEnv)
	}
	specs, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	var forms []form
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if !plainName(name) || !installed(name) || slices.Contains(elsewhere, name) || slices.Contains(slowStarters, name) {
			continue
		}
		all := slices.DeleteFunc(provable(specs, name, false), func(f form) bool { return late(f) > 1 })
		for i := 0; i < len(all); i += max(1, len(all)/4) {
			forms = append(forms, all[i])
		}
	}
	for from := 0; from < len(forms); from += proverBatch {
		batch := forms[from:min(len(forms), from+proverBatch)]
		jobs := make([]job, len(batch))
		for i, f := range batch {
			jobs[i] = job{ID: i, Text: f.text, Limit: proverLimit}
		}
		_, traces := sandboxes(t, jobs, 2, straced(t))
		for i, f := range batch {
			for _, n := range reached(traces[i]) {
				if (n == NeedProcesses || n == NeedDevices || strings.HasPrefix(string(n), string(NeedUnix))) && !slices.Contains(f.needs, n) {
					t.Errorf("%s: its table does not say that it needs %s", f.text, n)
				}
			}
		}
	}
	t.Logf("%d forms", len(forms))
}

func TestTheProverSeesWhatAFormReaches(t *testing.T) {
	for call, want := range map[string]Need{
		`socket(AF_INET6, SOCK_DGRAM, IPPROTO_IP) = 3`:                                   NeedNet,
		`socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) = 3`:                                NeedNetlink,
		`connect(3, {sa_family=AF_UNIX, sun_path="/run/docker.sock"}, 23) = 0`:           NeedUnix + "/run/docker.sock",
		`readlink("/proc/12/exe", 0x7ffe, 4096) = -1 EACCES`:                             NeedProcesses,
		`openat(AT_FDCWD, "/proc/12/maps", O_RDONLY) = 3`:                                NeedProcesses,
		`openat(AT_FDCWD, "/dev/sda", O_RDONLY) = -1 ENOENT (No such file)`:              NeedDevices,
		`openat(AT_FDCWD, "/proc/12/stat", O_RDONLY) = 3`:                                "",
		`connect(3, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENO`: "",
	} {
		got := reached([]string{call})
		if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []Need{want}) {
			t.Errorf("%s: %q", call, got)
		}
	}
}
