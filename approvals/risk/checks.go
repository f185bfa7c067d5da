package risk

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// checks returns the rule of that name, for programs whose table form is not enough.
func checks(name string) func(*judge, *call) {
	switch name {
	case "echo":
		return func(*judge, *call) {}
	case "grep":
		return checkGrep
	case "deep":
		return checkDeep
	case "tar":
		return checkTar
	case "unpack":
		return checkUnpack
	case "jq":
		return checkJq
	case "yq":
		return checkYq
	case "printenv":
		return checkPrintenv
	case "pager":
		return checkPager
	case "service":
		return checkService
	case "parted":
		return checkParted
	case "apache":
		return checkApache
	case "ceph":
		return checkCeph
	case "ss":
		return checkSS
	case "members":
		return checkMembers
	case "frr":
		return checkFRR
	case "lookup":
		return checkLookup
	case "dig":
		return checkDig
	case "piped":
		return checkPiped
	case "reach":
		return checkReach
	case "show":
		return checkShow
	case "inspect":
		return checkInspect
	case "history":
		return checkHistory
	case "buckets":
		return checkBuckets
	case "curl":
		return checkCurl
	case "kubeget":
		return checkKubeGet
	case "kubedescribe":
		return checkKubeDescribe
	case "az":
		return checkAz
	case "sqlite":
		return checkSqlite
	case "containertop":
		return checkContainerTop
	case "kv":
		return checkKV
	case "etcdget":
		return checkEtcdGet
	case "psql":
		return checkPsql
	case "mysql":
		return checkMysql
	}
	return nil
}

// refusePath adds an issue for a file that must not be read.
func (j *judge) refusePath(tool string, w word) bool {
	if w.kind == wordOpaque {
		return false // judged where it was matched
	}
	if why := j.secret(w); why != "" {
		j.add(High, EffectSecrets, "`%s` reads %s: %s", tool, w.text, why)
		return true
	}
	if j.device(w.text) {
		j.add(Medium, EffectUnknown, "`%s` opens the device %s, which can change its state or show raw data", tool, w.text)
		return true
	}
	return false
}

// refuseTree adds an issue for a directory below which opening everything has effects. follows says that
// links are followed.
func (j *judge) refuseTree(tool string, w word, follows bool) bool {
	if w.kind == wordOpaque || !slices.ContainsFunc(j.resolve(w.text).abs, func(p string) bool {
		return deviceRoot(p) || deviceGlob(p) || follows && strings.HasPrefix(p, "/sys/")
	}) {
		return false
	}
	j.add(Medium, EffectUnknown, "`%s` opens devices and files of the kernel below %s", tool, w.text)
	return true
}

// checkGrep checks the files after the pattern, and recursion into directories with secrets.
func checkGrep(j *judge, c *call) {
	files := c.operands
	if !c.has("-e", "--regexp", "-f", "--file", "--files", "--type-list") {
		if len(files) == 0 {
			j.add(Low, EffectUnknown, "`%s` without a pattern", c.root.name)
			return
		}
		if files[0].kind == wordLit || files[0].kind == wordAtom {
			files = files[1:] // a pattern for files can stand for more than the pattern
		}
	}
	if slices.ContainsFunc(c.argv, func(w word) bool { return repeats(w.text) > 4000 }) {
		j.onlyLocked("a pattern of `" + c.root.name + "` that may fill the memory")
	}
	deep := c.has("-r", "-R", "--recursive", "--dereference-recursive") || c.root.name == "rg"
	if v, ok := c.value("-d", "-D"); ok && v == "recurse" {
		deep = true
	}
	for _, f := range c.flags {
		if deep && slices.Contains([]string{"--include", "-g", "--glob", "--iglob"}, f.name) && !strings.HasPrefix(f.value.text, "!") && secretWord(f.value.text) {
			j.add(High, EffectSecrets, "`%s` looks through files that are secrets by their name", c.root.name)
			return
		}
	}
	if c.root.name == "rg" && c.has("-L", "--follow") || c.root.name != "rg" && c.has("-R", "--dereference-recursive") && !c.has("-l", "--files-with-matches", "-L", "-c", "--count", "-q", "--quiet") {
		j.add(Medium, EffectSecrets, "`%s` follows links here, which can lead to secrets", c.root.name)
		return
	}
	if deep && len(files) == 0 && (c.root.name != "rg" || j.feed == nil) && !c.has("--files", "--type-list", "--version", "-V") {
		files = []word{lit(".")} // where nothing is named, it begins here
	}
	j.usesDir = j.usesDir || !j.remote && deep && len(files) == 0
	for _, w := range files {
		if j.refusePath(c.root.name, w) || deep && j.refuseTree(c.root.name, w, c.has("-R", "--dereference-recursive")) {
			return
		}
		if deep && w.kind != wordOpaque && j.treeHasSecrets(w.text) && (c.has("--json", "--vimgrep") || !c.has("-l", "--files-with-matches", "-L", "-c", "--count", "--files", "-q", "--quiet")) {
			j.add(Medium, EffectSecrets, "`%s` looks through everything below %s, where secrets are", c.root.name, w.text)
			return
		}
	}
}

var repetition = regexp.MustCompile(`\{([0-9]*),?([0-9]*)\\?\}`)

// repeats returns how often the parts of a regular expression are repeated at most, if they are inside one
// another. Programs make a copy for each.
func repeats(pattern string) int {
	n := 1
	for _, m := range repetition.FindAllStringSubmatch(pattern, -1) {
		for _, s := range m[1:] {
			if k, err := strconv.Atoi(s); err == nil && k > 1 && n < 1<<20 {
				n *= k
				break
			}
		}
	}
	return n
}

// checkDeep refuses to compare directories with secrets: without -r, their own files are compared all the same.
func checkDeep(j *judge, c *call) {
	for _, w := range c.operands {
		if c.has("-r", "--recursive") && j.refuseTree(c.root.name, w, true) || c.has("-q", "--brief") {
			return
		}
		pipe := w.kind == wordAtom && w.prefix == "/dev/fd/"
		if file := w.is("/dev/null") || procFile.MatchString(w.text); !pipe && !file && j.treeHasSecrets(w.text) {
			j.add(Medium, EffectSecrets, "`%s` shows everything below %s, where secrets are", c.root.name, w.text)
			return
		}
	}
}

// procFile are names of a process that are no directories.
var procFile = regexp.MustCompile(`^/proc/(self|[0-9]+)/(mounts|mountinfo|limits|status|stat|statm|cgroup|maps|smaps|io|sched)$`)

// checkUnpack refuses to decompress anywhere but to standard output. The last of several modes wins,
// so -t does not help if -d follows.
func checkUnpack(j *judge, c *call) {
	if c.has("-d", "--decompress") && !c.has("-c", "--stdout", "--to-stdout") {
		j.add(Medium, EffectWrite, "`%s -d` replaces the file", c.root.name)
	}
}

func checkTar(j *judge, c *call) {
	if f, ok := c.value("-f", "--file"); ok && strings.Contains(f, ":") && !c.has("--force-local") {
		j.add(Medium, EffectEgress, "`tar` reads an archive on another host")
	}
}

// wrapTar rewrites the old form `tar tvf X` as options and matches those.
func wrapTar(j *judge, name string, argv []word) {
	specs, err := j.tables()
	if err != nil || specs[name] == nil {
		j.add(High, EffectUnknown, "the tables can't be read: %v", err)
		return
	}
	if len(argv) > 1 && argv[1].kind == wordLit && !strings.HasPrefix(argv[1].text, "-") {
		if strings.Trim(argv[1].text, "tvfzjJaO") != "" || strings.Count(argv[1].text, "f") > 1 {
			j.addDangers(argv)
			j.add(Medium, EffectUnknown, "`tar %s` is not known to only read", argv[1].text)
			return
		}
		out := []word{argv[0]}
		rest := argv[2:]
		for _, o := range argv[1].text {
			out = append(out, lit("-"+string(o)))
			if o == 'f' {
				if len(rest) == 0 {
					j.add(Low, EffectUnknown, "`tar` without an archive")
					return
				}
				out, rest = append(out, rest[0]), rest[1:]
			}
		}
		argv = append(out, rest...)
	}
	before := len(j.issues)
	j.match(specs[name], argv)
	if len(j.issues) == before {
		j.prove(name)
	}
}

func checkJq(j *judge, c *call) {
	if len(c.operands) == 0 {
		return // the filter is "."
	}
	if c.operands[0].kind != wordLit {
		j.add(Low, EffectUnknown, "the filter of `jq` is only known when it runs")
		return
	}
	if jqLoops.MatchString(c.operands[0].text) {
		j.onlyLocked("a filter of `jq` that may not end, or fill the memory")
	}
	if jqBad.MatchString(c.operands[0].text) {
		j.add(Medium, EffectSecrets, "the filter of `jq` reads the environment or other files")
	}
}

func checkYq(j *judge, c *call) {
	for i, w := range c.operands {
		if i == 0 && jqLoops.MatchString(w.text) {
			j.onlyLocked("an expression of `yq` that may not end, or fill the memory")
		}
		if i == 0 && (w.kind != wordLit || yqBad.MatchString(w.text)) {
			j.add(Medium, EffectSecrets, "the expression of `yq` reads the environment or other files, or is only known when it runs")
			return
		}
	}
}

// checkPrintenv allows variables that do not hold secrets.
func checkPrintenv(j *judge, c *call) {
	if len(c.operands) == 0 {
		j.add(High, EffectSecrets, "`printenv` shows the whole environment, where secrets are kept")
	}
	for _, w := range c.operands {
		j.usesDir = j.usesDir || w.is("PWD")
		if w.kind != wordLit || !slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "TERM", "HOSTNAME", "TZ", "EDITOR", "DISPLAY", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "KUBECONFIG", "JAVA_HOME", "GOPATH", "GOROOT", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "NODE_ENV", "VIRTUAL_ENV"}, w.text) &&
			!strings.HasPrefix(w.text, "LC_") {
			j.add(High, EffectSecrets, "`printenv %s` can show a secret", w.text)
		}
	}
}

// checkPager refuses commands that may open a long list in a pager, where keys start a shell.
func checkPager(j *judge, c *call) {
	if j.piped {
		return
	}
	switch c.root.name {
	case "more":
		j.add(Low, EffectInteractive, "`more` waits for keys: use cat, or pipe it")
	case "dmesg":
		if c.has("-H", "--human") && !c.has("-P", "--nopager") {
			j.add(Low, EffectInteractive, "`dmesg -H` opens a pager: add --nopager")
		}
	case "journalctl", "systemctl":
		if len(c.argv) == 1 {
			j.add(Low, EffectInteractive, "`%s` alone opens everything in a pager: add --no-pager or a filter", c.root.name)
		}
	case "dpkg":
		if len(c.argv) == 2 && c.has("-l", "--list") {
			j.add(Low, EffectInteractive, "`dpkg -l` alone opens everything in a pager: name a package or pipe it")
		}
	case "timedatectl":
		if len(c.path) > 0 && c.path[0] == "list-timezones" && !c.has("--no-pager") {
			j.add(Low, EffectInteractive, "`timedatectl list-timezones` opens a pager: add --no-pager")
		}
	case "systemd-resolve":
		if !c.has("--no-pager") {
			j.add(Low, EffectInteractive, "`systemd-resolve` opens a pager: add --no-pager")
		}
	}
	if c.root.name == "loginctl" && len(c.path) > 0 && strings.HasSuffix(c.path[0], "-status") && len(c.operands) == 0 && !c.has("--no-pager") {
		j.add(Low, EffectInteractive, "`loginctl %s` opens a pager: add --no-pager", c.path[0])
	}
}

func checkService(j *judge, c *call) {
	if c.has("--status-all") && len(c.operands) == 0 || len(c.operands) == 2 {
		return
	}
	j.add(Medium, EffectService, "`service` with anything but status is not known to only read")
}

func checkParted(j *judge, c *call) {
	if c.has("-l", "--list") && len(c.operands) == 0 || slices.ContainsFunc(c.operands, func(w word) bool { return w.is("print") }) {
		return
	}
	j.add(Medium, EffectInteractive, "`parted` without `print` opens its own prompt")
}

func checkApache(j *judge, c *call) {
	if len(c.path) == 0 && !c.has("-t", "-S", "-M", "-v", "-V", "-l", "-L") {
		j.add(Medium, EffectService, "`%s` alone starts the server", c.root.name)
	}
}

func checkCeph(j *judge, c *call) {
	if len(c.path) == 0 && !c.has("-s", "--status", "-w") {
		j.add(Low, EffectInteractive, "`ceph` alone opens its own prompt")
	}
}

func checkSS(j *judge, c *call) {
	for _, w := range c.operands {
		if w.kind != wordLit {
			j.add(Low, EffectUnknown, "an argument of `ss` is only known when it runs")
			return
		}
		if !strings.HasPrefix(w.text, "/") && !j.hasTrustedNames(c, w.text) {
			return
		}
	}
}

// checkLookup refuses foreign host names in programs that take hosts beside files: lsof -i @host,
// fuser 80,host/tcp.
func checkLookup(j *judge, c *call) {
	for _, f := range c.flags {
		if f.name == "-i" && !j.hasTrustedNames(c, f.value.text) {
			return
		}
	}
	for _, w := range c.operands {
		if strings.ContainsAny(w.text, "@,") && !j.hasTrustedNames(c, w.text) {
			return
		}
	}
}

// checkMembers allows showing archive members only if they are named and none is a secret.
func checkMembers(j *judge, c *call) {
	shown := c.root.name == "unzip" && c.has("-p") || c.root.name == "tar" && !c.has("-t", "--list")
	if c.root.name == "tar" {
		checkTar(j, c)
		if shown && !c.has("-O", "--to-stdout") {
			j.add(Medium, EffectWrite, "`tar -x` writes files")
			return
		}
	}
	if !shown {
		return
	}
	members := c.operands
	if c.root.name == "unzip" && len(members) > 0 {
		members = members[1:]
	}
	if len(members) == 0 {
		j.add(Medium, EffectSecrets, "`%s` shows all that is in the archive", c.root.name)
	}
	for _, w := range members {
		if secretPath(word{text: w.text, kind: wordGlob}) != "" || strings.Trim(w.text, "*/.") == "" {
			j.add(High, EffectSecrets, "`%s` shows %s, which is or may be a secret", c.root.name, w.text)
			return
		}
	}
}

// frrShow matches the router shell's queries that show no passwords.
var frrShow = regexp.MustCompile(`^show (ip|ipv6|bgp|ospf|isis|interface|version|memory|vrf|zebra|daemons|watchfrr|route-map|thread|bfd|evpn|pim|mpls|nexthop-group)( [A-Za-z0-9./:_-]+)*$`)

func checkFRR(j *judge, c *call) {
	for _, f := range c.flags {
		if f.has && (f.value.kind != wordLit || !frrShow.MatchString(f.value.text)) {
			j.add(Medium, EffectUnknown, "`%s -c %s` is not known to only read", c.root.name, f.value.text)
			return
		}
	}
}

var nameInText = regexp.MustCompile(`[A-Za-z0-9_.-]+`)

// hasTrustedNames reports whether every host name in a text is one of ours, and adds an issue otherwise.
// Addresses are not looked up.
func (j *judge) hasTrustedNames(c *call, text string) bool {
	for _, n := range nameInText.FindAllString(text, -1) {
		if strings.Contains(n, ".") && strings.Trim(n, "0123456789.") != "" && !internalHost(n) {
			j.reject(c.spec, "dns", lit(n))
			return false
		}
	}
	return true
}

// digOptions are dig's options that send nothing of their own.
var digOptions = strings.Fields("short all answer cmd comments stats question authority additional trace tcp vc multiline multi recurse rec dnssec cdflag cd adflag ad identify ttlid ttlunits rrcomments crypto qr search idnout nssearch class unknownformat onesoa besteffort fail")

// checkDig proves lookups of names that carry no data, at our own or well-known servers.
func checkDig(j *judge, c *call) {
	for _, w := range c.operands {
		t := w.text
		switch {
		case strings.HasPrefix(t, "+"):
			key, value, valued := strings.Cut(t[1:], "=")
			known := slices.Contains(digOptions, strings.TrimPrefix(key, "no"))
			if valued {
				known = (key == "time" || key == "tries" || key == "timeout" || key == "retry") && isDigits(value)
			}
			if !known {
				j.add(Medium, EffectUnknown, "unknown option `%s` of `dig`", t)
				return
			}
		case strings.HasPrefix(t, "@"):
			if !j.accepts(c.spec, "resolver", lit(t[1:])) {
				j.reject(c.spec, "dns", lit(t[1:]))
				return
			}
		case slices.Contains([]string{"A", "AAAA", "MX", "TXT", "NS", "SOA", "CNAME", "PTR", "SRV", "CAA", "ANY", "DS", "DNSKEY", "a", "aaaa", "mx", "txt", "ns", "soa", "cname", "ptr", "srv", "caa", "any"}, t):
		default:
			if !j.accepts(c.spec, "dns", w) {
				j.reject(c.spec, "dns", w)
				return
			}
		}
	}
}

// healthPath matches the paths of a web service that only report its health.
var healthPath = regexp.MustCompile(`^(/|/(api/)?(v\d/)?(health|healthz|healthcheck|health_check|readyz|ready|readiness|livez|live|liveness|ping|status|version|metrics|up|info)(/(live|ready|liveness|readiness|db|status))?/?|/actuator/(health|info|metrics|prometheus)(/[a-z.-]+)?|/(varz|connz|routez|subsz|jsz|stats|stats/prometheus|clusters|server_info)|/api/v2/(alerts|silences|status)|/v1/sys/(health|leader)|/v1/health/(state|node|service|checks)/[a-z0-9-]+|/v1/catalog/(services|nodes|datacenters|service/[a-z0-9-]+)|/v1/agent/members|/nginx_status|/stub_status|/basic_status|/server-status|/fpm-status|/-/(healthy|ready)|/_cluster/(health|stats|pending_tasks)|/_cat/[a-z_]+|/_nodes/stats|/v1/status/(leader|peers)|/api/v1/(targets|alerts|rules|status/[a-z]+)|/healthz/[a-z-]+)$`)

// checkCurl proves a GET or HEAD of a health page on one of our own hosts.
func checkCurl(j *judge, c *call) {
	if c.has("-V", "--version") && len(c.operands) == 0 {
		return
	}
	if len(c.operands) == 0 {
		j.add(Low, EffectUnknown, "`curl` without a URL")
		return
	}
	for _, w := range c.operands {
		u := w.text
		if w.kind != wordLit || strings.ContainsAny(u, "{}[]@\\ \t\n") {
			j.add(Medium, EffectEgress, "`curl` fetches an address that is more than a plain URL")
			return
		}
		u = strings.TrimPrefix(strings.TrimPrefix(u, "http://"), "https://")
		if strings.Contains(u, "://") {
			j.add(Medium, EffectEgress, "`curl` fetches %s, which is not a web page", w.text)
			return
		}
		host, page, ok := strings.Cut(u, "/")
		page = "/" + page
		if !ok {
			page = "/"
		}
		page, query, _ := strings.Cut(page, "?")
		if h, port, ok := strings.Cut(host, ":"); ok && isDigits(port) {
			host = h
		}
		if !j.isTrustedHost(host) {
			j.add(Medium, EffectEgress, "`curl` talks to %s, a host that is not known to be ours; an address can carry data", host)
			return
		}
		if !healthPath.MatchString(page) || len(query) > 40 || strings.Trim(query, "abcdefghijklmnopqrstuvwxyz_=&,.0123456789") != "" {
			j.add(Medium, EffectEgress, "`curl` asks for %s, which is not known to be a page that only tells the state", page)
			return
		}
	}
}

// checkKubeGet refuses the content of secrets; listing their names is allowed.
func checkKubeGet(j *judge, c *call) {
	out, shaped := c.value("-o", "--output")
	shaped = shaped && out != "name" && out != "wide" || c.has("--template")
	if !shaped {
		return
	}
	for _, w := range c.operands {
		for kind := range strings.SplitSeq(strings.ToLower(w.text), ",") {
			kind, _, _ = strings.Cut(kind, "/")
			kind, _, _ = strings.Cut(kind, ".")
			if kind == "secret" || kind == "secrets" || w.kind != wordLit {
				j.add(High, EffectSecrets, "`kubectl get` shows the content of secrets")
				return
			}
		}
	}
}

// checkKubeDescribe refuses secrets: describing a service account's token shows it in full.
func checkKubeDescribe(j *judge, c *call) {
	for i, w := range c.operands {
		for kind := range strings.SplitSeq(strings.ToLower(w.text), ",") {
			kind, _, named := strings.Cut(kind, "/")
			kind, _, _ = strings.Cut(kind, ".")
			if (i == 0 || named) && (kind == "secret" || kind == "secrets") || w.kind != wordLit {
				j.add(High, EffectSecrets, "`kubectl describe` shows the tokens in secrets")
				return
			}
		}
	}
}

// checkAz refuses values that begin with "@", because az reads them from a file.
func checkAz(j *judge, c *call) {
	for _, w := range c.argv {
		_, value, eq := strings.Cut(w.text, "=")
		if strings.HasPrefix(w.text, "@") || eq && strings.HasPrefix(value, "@") || w.kind > wordAtom {
			j.add(High, EffectSecrets, "`az` takes `%s` from a file and sends it", w.text)
			return
		}
	}
}

// etcdSecrets are the prefixes under which clusters store secrets.
var etcdSecrets = []string{"/registry/secrets/", "/kubernetes.io/secrets/"}

func checkEtcdGet(j *judge, c *call) {
	if c.has("--keys-only", "--count-only") {
		return
	}
	if len(c.operands) > 1 {
		j.add(High, EffectSecrets, "`etcdctl get` with a range can show the content of secrets")
		return
	}
	for _, w := range c.operands {
		for _, s := range etcdSecrets {
			if strings.HasPrefix(s, w.text) && c.has("--prefix") {
				j.add(High, EffectSecrets, "`etcdctl get --prefix` can show the content of secrets")
				return
			}
		}
	}
	for _, w := range c.operands {
		if w.kind != wordLit || strings.Contains(strings.ToLower(w.text), "secret") || strings.Trim(w.text, "/") == "" || strings.Trim(w.text, "/") == "registry" {
			j.add(High, EffectSecrets, "`etcdctl get` can show the content of secrets")
			return
		}
	}
	if c.has("--from-key") {
		j.add(High, EffectSecrets, "`etcdctl get --from-key` can show the content of secrets")
	}
}

// sendsNoInput reports whether a program certainly sends nothing from its standard input to another host:
// only empty input or an empty line is piped or redirected into it.
//
// The judge does not track what is redirected into a group or loop around a command, so silent checks
// the text itself, at each place that could be this call.
func (j *judge) sendsNoInput(c *call) bool {
	file, err := bash.Parse(j.src)
	if err != nil {
		return false
	}
	// Around a text inside another (ssh HOST '...') there may be anything.
	outside := j.depth == 0
	ok, found := true, false
	var above []syntax.Node
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		above = append(above, n)
		if call, is := n.(*syntax.CallExpr); is && j.mayCall(call, c) {
			found = true
			ok = ok && isEmptyInput(above, outside)
		}
		return true
	})
	return ok && found
}

// mayCall reports whether a command of the text may be a call of this program and subcommand, at any
// of its words.
func (j *judge) mayCall(call *syntax.CallExpr, c *call) bool {
	want := append([]string{c.root.name}, c.path...)
	for _, a := range call.Args {
		if w, _ := j.resolveQuietly(a); w.kind != wordLit || len(want) > 0 && path.Base(w.text) == want[0] {
			want = want[min(1, len(want)):]
		}
	}
	return len(want) == 0
}

// resolveQuietly resolves a word without judging the commands inside it.
func (j *judge) resolveQuietly(w *syntax.Word) (word, string) {
	probe := &judge{specs: j.specs, places: j.places, src: j.src, vars: j.vars, depth: j.depth, steps: j.steps, nest: j.nest, probing: 2, resolveOnly: true}
	return probe.resolveWord(w)
}

// isEmptyInput reports whether the input at the end of a path of nodes is empty. outside says whether it
// is for the text as a whole.
func isEmptyInput(above []syntax.Node, outside bool) bool {
	for i, n := range slices.Backward(above) {
		s, ok := n.(*syntax.Stmt)
		if !ok {
			if _, sub := n.(*syntax.ProcSubst); sub {
				return false
			}
			continue
		}
		known := false // this statement's input is empty
		for _, r := range s.Redirs {
			switch r.Op {
			case syntax.RdrIn:
				if r.N != nil || r.Word.Lit() != "/dev/null" {
					return false
				}
				known = true
			case syntax.RdrOut, syntax.AppOut, syntax.DplOut, syntax.RdrAll, syntax.AppAll, syntax.RdrClob:
			default:
				return false
			}
		}
		if known {
			return true
		}
		if i == 0 {
			break
		}
		if pipe, ok := above[i-1].(*syntax.BinaryCmd); ok && (pipe.Op == syntax.Pipe || pipe.Op == syntax.PipeAll) && pipe.Y == s {
			return writesEmptyLine(pipe.X)
		}
	}
	return outside
}

// writesEmptyLine reports whether a statement writes at most an empty line or the word that ends a session.
func writesEmptyLine(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(s.Redirs) > 0 || len(call.Assigns) > 0 || len(call.Args) == 0 || len(call.Args) > 2 {
		return false
	}
	switch call.Args[0].Lit() {
	case "true", ":":
		return len(call.Args) == 1
	case "echo":
		if len(call.Args) == 1 {
			return true
		}
		var b strings.Builder
		if syntax.NewPrinter().Print(&b, call.Args[1]) != nil {
			return false
		}
		return slices.Contains([]string{"''", `""`, "-n", "Q", "QUIT", "quit", `"Q"`, "'Q'", `"QUIT"`, "'QUIT'"}, b.String())
	}
	return false
}

// checkPiped refuses a program whose output never ends, unless it goes into a pipe.
func checkPiped(j *judge, c *call) {
	if !j.piped {
		j.add(Low, EffectInteractive, "`%s` writes without an end: pipe it into head", c.root.name)
	}
}

// checkReach refuses packet sizes, ports and times that could carry data to a foreign host.
func checkReach(j *judge, c *call) {
	for _, w := range c.operands {
		if j.isTrustedHost(w.text) || slices.Contains(publicResolvers, w.text) {
			continue
		}
		for _, f := range c.flags {
			plain := slices.Contains([]string{"-n", "-q", "-4", "-6", "-r", "-w", "-W", "-b", "-z", "--report", "--no-dns", "--report-wide"}, f.name)
			count := (f.name == "-c" || f.name == "--report-cycles") && len(f.value.text) < 3
			if !plain && !count {
				j.add(Medium, EffectEgress, "`%s %s` to %s, a host that is not known to be ours, can carry data", c.root.name, f.name, w.text)
				return
			}
		}
	}
}

// checkShow allows systemctl to show only named properties that contain no environment.
func checkShow(j *judge, c *call) {
	checkPager(j, c)
	if len(c.path) == 0 || c.path[0] != "show" {
		return
	}
	named := false
	for _, f := range c.flags {
		if f.name != "-p" && f.name != "--property" && f.name != "-P" {
			continue
		}
		named = true
		if f.value.kind != wordLit || strings.Contains(strings.ToLower(f.value.text), "environment") || f.value.text == "" {
			named = false
			break
		}
	}
	if !named {
		j.add(High, EffectSecrets, "`systemctl show` shows the environment of services, where secrets are kept: name other properties with -p")
	}
}

var (
	templateAction = regexp.MustCompile(`\{\{(.*?)\}\}`)
	templateField  = regexp.MustCompile(`(^|[^A-Za-z0-9_.)\]])(\.[A-Za-z0-9_.]*|\$\.[A-Za-z0-9_.]*)`)
	templateOpens  = regexp.MustCompile(`^-? *(range|with)\b`)
	wholeTemplate  = regexp.MustCompile(`\$([^A-Za-z_]|$)`)
	templateText   = regexp.MustCompile(`"([^"\\]|\\.)*"`)
)

// inspectSafe are the fields of containers, images and services that contain no environment, label,
// command or driver option.
var inspectSafe = strings.Fields(`.State .RestartCount .Name .Id .ID .Image .ImageName .Created .CreatedAt .UpdatedAt .Platform .Driver .LogPath .Mounts .NetworkSettings .Pod .SizeRw .SizeRootFs
 .GraphDriver .RepoTags .RepoDigests .Architecture .Os .Size .VirtualSize .RootFS .Parent .Scope .Status .Mountpoint .UpdateStatus .Endpoint .Version .ResolvConfPath .HostnamePath .HostsPath .ProcessLabel .AppArmorProfile
 .HostConfig.Memory .HostConfig.MemorySwap .HostConfig.MemoryReservation .HostConfig.NanoCpus .HostConfig.CpuShares .HostConfig.CpuQuota .HostConfig.CpuPeriod .HostConfig.CpusetCpus .HostConfig.RestartPolicy
 .HostConfig.PortBindings .HostConfig.NetworkMode .HostConfig.Binds .HostConfig.Privileged .HostConfig.CapAdd .HostConfig.CapDrop .HostConfig.PidMode .HostConfig.IpcMode .HostConfig.Ulimits .HostConfig.ShmSize
 .HostConfig.ReadonlyRootfs .HostConfig.SecurityOpt .HostConfig.AutoRemove .HostConfig.PidsLimit .HostConfig.OomKillDisable .HostConfig.LogConfig.Type
 .Config.Image .Config.Hostname .Config.User .Config.ExposedPorts .Config.WorkingDir .Config.StopSignal .Config.Volumes .Spec.Name .Spec.Mode .Spec.TaskTemplate.ContainerSpec.Image`)

// safeTemplate reports whether a Go template shows only the given fields or parts of them.
func safeTemplate(text string, fields []string) bool {
	lower := strings.ToLower(text)
	if !strings.Contains(text, "{{") || strings.Contains(lower, "env") || strings.Contains(lower, "label") || strings.Contains(text, "`") {
		return false
	}
	inside := false
	for _, m := range templateAction.FindAllStringSubmatch(text, -1) {
		action := templateText.ReplaceAllString(m[1], `""`)
		if strings.ContainsAny(action, "{}\\") || strings.Contains(action, "template") || strings.Contains(action, "define") || strings.Contains(action, "block") {
			return false
		}
		for _, f := range templateField.FindAllStringSubmatch(action, -1) {
			name := f[2]
			safe := slices.ContainsFunc(fields, func(s string) bool { return name == s || strings.HasPrefix(name, s+".") })
			if !safe && (!inside || strings.HasPrefix(name, "$")) {
				return false
			}
		}
		if wholeTemplate.MatchString(action) || strings.Contains(action, "$") && !inside && !templateOpens.MatchString(action) {
			return false // $ is the whole object
		}
		inside = inside || templateOpens.MatchString(action)
		if strings.Contains(action, "end") || strings.Contains(action, "else") {
			inside = false // the surrounding object may be shown
		}
	}
	return strings.Count(text, "{{") == len(templateAction.FindAllString(text, -1))
}

// checkInspect allows only the fields of a container that contain no secret. Its environment, labels
// and driver options may contain some.
func checkInspect(j *judge, c *call) {
	if !hasSafeFormat(c, inspectSafe) {
		j.add(High, EffectSecrets, "`%s` shows the environment and options of what it is about, where secrets are kept: name fields with --format", c.spec.name)
	}
}

// checkHistory allows an image's layers only without the commands that created them.
func checkHistory(j *judge, c *call) {
	if !c.has("-q", "--quiet") && !hasSafeFormat(c, []string{".ID", ".Id", ".Size", ".CreatedSince", ".CreatedAt", ".Created", ".Tags"}) {
		j.add(High, EffectSecrets, "`%s` shows the commands that made the image, where secrets may be: add -q or name fields with --format", c.spec.name)
	}
}

func hasSafeFormat(c *call, fields []string) bool {
	given := false
	for _, f := range c.flags {
		if f.name != "-f" && f.name != "--format" {
			continue
		}
		given = true
		if f.value.kind != wordLit || !safeTemplate(strings.TrimPrefix(f.value.text, "table "), fields) {
			return false
		}
	}
	return given
}

// bucket is the name of a bucket with the scheme of its cloud.
var bucket = regexp.MustCompile(`^(s3|gs)://([a-z0-9][a-z0-9._-]*)(/|$)`)

// isTrustedBucket reports whether a word names no bucket, or one that the operator allows; otherwise it adds
// an issue. The owner of a bucket sees every request for it.
func (j *judge) isTrustedBucket(tool, text string) bool {
	if !strings.Contains(text, "://") {
		return true
	}
	m := bucket.FindStringSubmatch(text)
	if m != nil && j.isListed(m[1]+"://"+m[2]) {
		return true
	}
	j.add(Medium, EffectEgress, "`%s` asks for %s, which may be somebody else's: list it as a place that reads may reach", tool, text)
	return false
}

// checkBuckets refuses buckets that the operator does not allow.
func checkBuckets(j *judge, c *call) {
	for _, w := range c.operands {
		if w.kind != wordLit || !j.isTrustedBucket(c.root.name, w.text) {
			return
		}
	}
}
