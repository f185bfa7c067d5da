package risk

import (
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals/secretfile"
)

// isKnownPred reports whether a table may name this kind of argument.
func isKnownPred(p string) bool {
	switch p {
	case "text", "path", "num", "id", "word", "host", "addr", "dns", "nofile", "unit",
		"plus", "key", "kout", "psarg", "fmt", "etc", "unixsock", "local", "header", "wout",
		"any", "file", "resolver", "node", "smartlog", "port", "context", "profile", "engine", "pause", "packet", "rawpath", "nodelog", "socket", "pgport", "pipe", "peer", "libvirt":
		return true
	}
	return strings.Contains(p, "|") || strings.HasPrefix(p, "=")
}

// accepts reports whether a word fits a kind of argument:
//
//	text    any text: a pattern, a name, a format
//	any     any text, or a pattern for files that a check looks at
//	path    a file that may be read: no secret, no device
//	num     a number, perhaps with a sign and a unit
//	id      decimal digits
//	word    an identifier: letters, digits and _.:@/+=,%-
//	unit    a word that is not a path
//	nofile  text that can't name a file or URL to be loaded
//	host    a host whose name can't carry data outside (see internalHost)
//	addr    host or host:port, several joined by commas. A service that an option names so,
//	        or by host, is a hop
//	peer    addr of which only is found out that it answers
//	dns     host, or a public name that is too plain to carry data
//	plus    a format behind "+"
//	key     a word without "="
//	kout    an output form of kubectl that reads no file
//	psarg   a word of options of BSD's ps that shows no environment
//	fmt     a format of tmux that runs nothing
//	etc     a path below /etc
//	unixsock a local socket
//	local   a path that is no URL
//	header  an HTTP header that says what is wanted
//	file    a path without ":" and "%", which some programs take for more
//	resolver a name server of ours, or one that is nobody's own
//	node    an Erlang node on one of our hosts
//	smartlog a log of a disk
//	port    a port, or a range of ports
//	context a cluster, profile an account, engine a container engine: each a hop
//	rawpath a path of the Kubernetes API that only reads, and no secret
//	nodelog a path below /var/log of a node
//	socket  a Unix socket, which a lock leaves open; pgport the port of PostgreSQL's
//	pipe    what leads into a command of the text, >(...), or a sink
//	libvirt the hypervisor of the system
//	pause   seconds between two packets, 0.2 or more
//	packet  bytes of a packet, 9000 or fewer
//	wout    an output format of curl that writes and reads no file
//	a|b, =a one of these words
func (j *judge) accepts(cur *spec, pred string, w word) bool {
	if w.kind == wordOpaque {
		return cur.benign
	}
	if cur.local && w.kind != wordLit {
		return false
	}
	if w.kind == wordGlob {
		if pred == "path" && (!w.mayBeOption() || cur.benign) {
			return (cur.meta || j.secret(w) == "") && (cur.device && diskPath(w.text) || cur.meta && !cur.opens || !j.device(w.text))
		}
		if pred == "any" {
			return !w.mayBeOption() || cur.benign
		}
		if s, one := w.onlyExpansion(); one {
			return j.accepts(cur, pred, lit(s)) && j.accepts(cur, pred, lit(w.text))
		}
		return pred == "text" && cur.benign
	}
	t := w.text
	switch pred {
	case "text", "any":
		return true
	case "path":
		if cur.meta && !cur.opens {
			j.resolve(t) // for whether it depends on the directory
			return true
		}
		was := j.usesDir
		ok := (cur.meta || j.secret(w) == "") && (cur.device && diskPath(t) || !j.device(t)) && !strings.HasPrefix(t, "@")
		if cur.device && !strings.Contains(t, "/") {
			j.usesDir = was // the name of a volume
		}
		return ok
	case "num":
		t = strings.TrimLeft(t, "+-")
		digits := strings.TrimRight(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%")
		return digits != "" && strings.Trim(digits, "0123456789.,:") == ""
	case "id":
		return strings.Trim(t, "0123456789,") == "" && t != ""
	case "word":
		return isWord(t)
	case "unit":
		return isWord(t) && !strings.Contains(t, "/") && !strings.Contains(t, "..")
	case "plus":
		return strings.HasPrefix(w.prefix, "+")
	case "key":
		return isWord(t) && !strings.Contains(t, "=") && !strings.Contains(t, "://") && !strings.Contains(t, "..")
	case "kout":
		kind, _, template := strings.Cut(t, "=")
		switch kind {
		case "name", "wide", "json", "yaml":
			return !template
		case "jsonpath", "custom-columns", "go-template", "jsonpath-as-json":
			return template
		}
		return false
	case "psarg":
		return isWord(t) && !strings.Contains(t, "e") && !strings.Contains(t, "=")
	case "port":
		from, to, two := strings.Cut(t, "-")
		return isDigits(from) && (!two || isDigits(to))
	case "fmt":
		return tmuxFormat.MatchString(t) && !strings.HasSuffix(t, ";")
	case "file":
		return j.accepts(cur, "path", w) && !strings.ContainsAny(t, ":%")
	case "resolver":
		return w.kind == wordLit && (j.isTrustedHost(t) || slices.Contains(publicResolvers, t))
	case "context", "profile", "engine":
		return w.kind == wordLit && isWord(t)
	case "rawpath":
		return w.kind == wordLit && rawPath.MatchString(t) && !strings.Contains(t, "..") && !strings.Contains(strings.ToLower(t), "secret")
	case "socket":
		return w.kind == wordLit && path.IsAbs(t) && path.Clean(t) == t && isWord(t)
	case "pipe":
		return w.sink && w.text == "/dev/fd/0" || w.is("/dev/null")
	case "libvirt":
		return w.is("qemu:///system")
	case "pgport":
		return w.kind == wordLit && isDigits(t) && len(t) < 6
	case "nodelog":
		return w.kind == wordLit && isWord(t) && !strings.Contains(t, "..") && strings.IndexByte("/?", t[0]) < 0
	case "pause":
		n, err := strconv.ParseFloat(t, 64)
		return err == nil && n >= 0.2
	case "packet":
		return isDigits(t) && (len(t) < 4 || len(t) == 4 && t <= "9000")
	case "node":
		_, host, remote := strings.Cut(t, "@")
		return isWord(t) && (!remote || internalHost(host))
	case "smartlog":
		return slices.Contains([]string{"error", "xerror", "selftest", "xselftest", "selective", "directory", "background", "scttemp", "scttempsts", "scttemphist", "devstat", "sataphy", "sasphy", "ssd", "defects", "farm"}, t)
	case "etc":
		return strings.HasPrefix(path.Clean(t), "/etc/") && j.secret(w) == "" && w.kind == wordLit
	case "unixsock":
		return strings.HasPrefix(t, "unix:///run/") || strings.HasPrefix(t, "unix:///var/run/") || strings.HasPrefix(t, "/run/") || strings.HasPrefix(t, "/var/run/")
	case "local":
		if strings.HasPrefix(t, "*/") {
			return true // a pattern for a file of a package
		}
		was := j.usesDir
		ok := !strings.Contains(t, "://") && !strings.Contains(t, "git@") && j.secret(w) == "" && !j.device(t)
		if !strings.HasSuffix(t, ".rpm") && !strings.Contains(t, "/") {
			j.usesDir = was // the name of a package
		}
		return ok
	case "header":
		name, _, ok := strings.Cut(strings.ToLower(t), ":")
		return ok && slices.Contains([]string{"accept", "host", "content-type", "user-agent", "cache-control", "accept-encoding", "x-forwarded-proto"}, name)
	case "wout":
		return !strings.HasPrefix(t, "@") && !strings.Contains(t, "output")
	case "nofile":
		return !strings.HasPrefix(t, "@") && !strings.Contains(t, "://") && !strings.HasPrefix(t, "fileb:") && !strings.HasPrefix(t, "file:")
	case "host":
		return w.kind == wordLit && j.isTrustedHost(t)
	case "addr", "peer":
		if w.kind != wordLit {
			return false
		}
		for a := range strings.SplitSeq(t, ",") {
			a = strings.TrimPrefix(strings.TrimPrefix(a, "http://"), "https://")
			host := a
			if h, port, ok := strings.Cut(a, ":"); ok && isDigits(port) {
				host = h
			}
			if !j.isTrustedHost(host) && !j.isListed(a) {
				return false
			}
		}
		return true
	case "dns":
		return w.kind == wordLit && (j.isTrustedHost(t) || plainPublicName(t))
	}
	if w.kind != wordLit {
		return false
	}
	for opt := range strings.SplitSeq(strings.TrimPrefix(pred, "="), "|") {
		if opt == t {
			return true
		}
	}
	return false
}

// rawPath matches the paths of the Kubernetes API for which a GET only reads: health, lists and
// objects, node metrics, and health pages behind the proxy.
var rawPath = regexp.MustCompile(`^(/(healthz|livez|readyz)(/[a-z0-9-]+)*|/version|/metrics(/slis|/cadvisor)?|/openapi/v[23]|/logs/?|/api|/apis` +
	`|/apis/[a-z0-9.-]+(/v[a-z0-9]+(/[a-zA-Z0-9.-]+)*)?` +
	`|/api/v1(/(nodes|namespaces|pods|services|endpoints|events|persistentvolumes|persistentvolumeclaims|componentstatuses|resourcequotas|limitranges|replicationcontrollers)(/[a-z0-9.-]+)?)?` +
	`|/api/v1/namespaces/[a-z0-9-]+/(pods|services|endpoints|events|persistentvolumeclaims|resourcequotas|limitranges|replicationcontrollers)(/[a-z0-9.-]+(/(log|status))?)?` +
	`|/api/v1/nodes/[a-z0-9.-]+/proxy/(metrics(/(cadvisor|probes|resource))?|stats/summary|healthz|configz|pods|logs(/[A-Za-z0-9._-]+)*/?)` +
	`|/api/v1/namespaces/[a-z0-9-]+/(services|pods)/[a-z0-9.:-]+/proxy/(healthz?|livez?|readyz?|metrics|version|-/healthy|-/ready|api/v1/(targets|alerts|rules|status/[a-z]+|labels)))` +
	`(\?[a-zA-Z0-9=&.,_-]{0,80})?$`)

// reject adds an issue that says why a word does not fit.
func (j *judge) reject(cur *spec, pred string, w word) {
	switch pred {
	case "path":
		if why := j.secret(w); why != "" && !cur.meta {
			j.add(High, EffectSecrets, "`%s` reads %s: %s", cur.name, w.text, why)
			return
		}
		if j.device(w.text) {
			j.add(Medium, EffectUnknown, "opening the device %s can change its state or show raw data", w.text)
			return
		}
	case "host", "addr", "peer", "dns":
		j.add(Medium, EffectEgress, "`%s` talks to %s, a host that is not known to be ours, and what is asked for can carry data", cur.name, w.text)
		return
	}
	if w.kind == wordGlob {
		j.add(Medium, EffectUnknown, "the pattern `%s` of `%s` stands for names that only show when it runs", w.text, cur.name)
		return
	}
	if cur.local && w.kind != wordLit {
		j.add(Medium, EffectEgress, "`%s` would send text to another host that only shows when it runs", cur.name)
		return
	}
	j.add(Medium, EffectUnknown, "`%s` with `%s` is not known to only read", cur.name, w.text)
}

func isWord(s string) bool {
	if s == "" || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.:@/+=,%-", c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// devicePath reports whether opening a path may have an effect: a device file, or a kernel file that
// is consumed or armed by opening it.
func devicePath(p string) bool {
	c := cleanPath(p)
	switch c {
	case "/dev/null", "/dev/stdin", "/dev/fd/0", "/dev/zero", "/dev/urandom":
		return false
	}
	return c == "/dev" || strings.HasPrefix(c, "/dev/") || strings.HasPrefix(c, "/inet") ||
		strings.HasPrefix(c, "/sys/kernel/debug") || strings.HasPrefix(c, "/sys/kernel/tracing") ||
		c == "/proc/kmsg" || strings.HasSuffix(c, "/trace_pipe") || openFiles.MatchString(c) || deviceFiles.MatchString(c)
}

// deviceFiles matches the files below /sys and /proc that reach into a device, or take from a queue.
var deviceFiles = regexp.MustCompile(`^/sys/.*/(resource[0-9?*\[][^/]*|resource\*|rom)$|/net/rpc/.*/channel$`)

// kernelTrees are where what is below /sys only tells; elsewhere, something may act when it is opened.
var kernelTrees = regexp.MustCompile(`^/sys/(class/[^/*?\[]+|block|fs|module|devices/system|kernel/mm|firmware/(dmi|acpi))(/|$)`)

// openFiles matches the open files of processes: reading a pipe there consumes its data.
var openFiles = regexp.MustCompile(`^/proc/[^/]+/(task/[^/]+/)?(fd|map_files)/`)

var (
	diskNames  = regexp.MustCompile(`^/dev/(sd|hd|vd|xvd|nvme|ng|md|dm-|loop|mmcblk|zd|nbd|rbd|drbd|bcache|sg|ses|sr|pmem|dasd|mtdblock|megaraid|twa|zram)[a-zA-Z0-9*?\[\]-]*$`)
	otherTrees = regexp.MustCompile(`^/dev/(input|pts|net|snd|dri|cpu|char|bsg|vfio|hugepages|mqueue|shm|fd|watchdog|infiniband|dma_heap|serial|usb|block)/`)
)

// diskPath reports whether a device certainly is a disk or a logical volume. Other devices may have an
// effect when opened.
func diskPath(p string) bool {
	c := cleanPath(p)
	return diskNames.MatchString(c) || strings.HasPrefix(c, "/dev/") && strings.Count(c, "/") > 2 && !otherTrees.MatchString(c) && !strings.ContainsAny(strings.SplitN(c, "/", 4)[2], "*?[")
}

// cleanPath resolves "..", doubled slashes and the magic links of /proc as far as the text allows.
func cleanPath(p string) string {
	abs := strings.HasPrefix(p, "/")
	p = path.Clean(p)
	for abs && strings.HasPrefix(p, "/proc/") {
		parts := strings.SplitN(p, "/", 5) // "", proc, pid, root, rest
		if parts[2] == "self" || parts[2] == "thread-self" || strings.Trim(parts[2], "0123456789*?[]") == "" {
			if len(parts) > 3 && (parts[3] == "root" || parts[3] == "cwd") {
				rest := ""
				if len(parts) > 4 {
					rest = parts[4]
				}
				p = path.Clean("/" + rest)
				continue
			}
			if len(parts) > 4 && parts[3] == "task" {
				_, rest, ok := strings.Cut(parts[4], "/")
				if ok {
					p = "/proc/" + parts[2] + "/" + rest
					continue
				}
			}
		}
		break
	}
	return p
}

// secretPath returns why a path is a secret, or "".
func secretPath(w word) string {
	p := cleanPath(w.text)
	if why := secretfile.Why(p); why != "" || w.kind != wordGlob {
		return why
	}
	return secretPattern(p, path.Base(p))
}

// secretPattern returns why a pattern could match a secret, or "".
func secretPattern(p, base string) string {
	const why = "the pattern also stands for files with secrets"
	if strings.HasPrefix(p, "/proc/") {
		for _, n := range []string{"environ", "mem", "auxv", "kcore", "kmsg"} {
			if mayMatch(base, n) {
				return why
			}
		}
	}
	// A directory given by a pattern other than "*": "~/.ss?/config".
	dirs := strings.Split(strings.Trim(path.Dir(p), "/"), "/")
	for _, d := range secretfile.Dirs {
		if patternInside(dirs, strings.Split(strings.Trim(d, "/"), "/")) {
			return why
		}
	}
	for _, f := range secretfile.Files {
		if dir := dirs[len(dirs)-1]; strings.Trim(dir+base, "*?[]") != "" && mayMatch(dir, path.Dir(f)) && mayMatch(base, path.Base(f)) {
			return why
		}
	}
	for _, full := range []string{
		"/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/shadow", "/root/.ssh/id_rsa", "/root/.bash_history",
		"/home/a/.ssh/id_rsa", "/home/a/.aws/credentials", "/home/a/.bash_history", "/root/.kube/config", "/run/secrets/a", "/var/run/secrets/a/b/token",
		"/etc/ssl/private/a.key", "/etc/kubernetes/admin.conf", "/etc/krb5.keytab", "/home/a/.netrc", "/root/.netrc", "/home/a/.env", "/etc/ssh/ssh_host_rsa_key",
		"/etc/mysql/debian.cnf", "/etc/security/opasswd",
	} {
		if mayName(p, full) {
			return why
		}
		// A directory that the pattern names is read by recursive tools.
		for dir := path.Dir(full); dir != "/" && strings.Count(dir, "/") > 1; dir = path.Dir(dir) {
			if mayName(p, dir) && dir != "/etc/ssh" && dir != "/etc/ssl" && dir != "/etc/mysql" && dir != "/etc/security" && dir != "/etc/kubernetes" {
				return why
			}
		}
	}
	// A base name with literal characters ("id_*", "*.key") is compared to the names of secrets; a
	// bare "*" would match all of them.
	own := strings.Trim(base, "*?[]")
	ending := own
	if len(own) > 2 && own[0] != '.' {
		ending = "." + own // "*php" is as good as "*.php"
	}
	if own == "" || slices.Contains([]string{".conf", ".yml", ".yaml", ".json", ".php", ".txt", ".cnf", ".db", ".log", ".xml", ".ini", ".cfg", ".gz", ".service", ".d", ".sh", ".py"}, ending) {
		return ""
	}
	for _, n := range secretfile.Names {
		if mayMatch(base, n) {
			return why
		}
	}
	for _, n := range []string{"a.key", "server.key", "a.pem", "a.p12", "a.jks", "terraform.tfstate", "tls.key", "privkey.pem", "secrets.env", "my_password", "prod.env", ".env.prod", "token", ".bash_history", ".mysql_history", ".psql_history", "id_rsa_deploy", "ssh_host_rsa_key"} {
		if mayMatch(base, n) {
			return why
		}
	}
	return ""
}

// patternInside reports whether directories, some of them patterns, could lie in a secret directory or
// on the way to it, through a pattern other than "*".
func patternInside(dirs, secret []string) bool {
	usual := []string{"etc", "var", "lib", "run", "ssl", "pki", "tls"} // would stand for too much
	for at := range dirs {
		named := false
		for n, name := range secret {
			if at+n == len(dirs) {
				break
			}
			part := dirs[at+n]
			if !mayMatch(part, name) {
				named = false
				break
			}
			named = named || strings.Trim(part, "*") != "" && strings.ContainsAny(part, "*?[") && !slices.Contains(usual, name)
		}
		if named {
			return true
		}
	}
	return false
}

// rootHasSecrets reports whether reading everything below a path reaches secrets.
func rootHasSecrets(p string) bool {
	c := strings.TrimSuffix(cleanPath(p), "/.")
	if strings.HasPrefix(c, "/") && slices.ContainsFunc(secretfile.Dirs, func(d string) bool {
		return !strings.HasPrefix(d, "/.") && strings.HasPrefix(d, c+"/") && c != "/var/log"
	}) {
		return true
	}
	switch c {
	case "/", "/etc", "/root", "/home", "/proc", "/dev", "/run", "/var/run", "/run/user", "/var/lib", "/var", "/var/cache", "/var/spool", "/etc/cloud", "/mnt", "/media", "/sys", "~", "..", "../..", "/etc/ssl", "/etc/ssh",
		"/etc/kubernetes", "/etc/security", "/etc/pki", "/etc/letsencrypt", "/etc/letsencrypt/live", "/etc/letsencrypt/archive", "/etc/mysql", "/var/lib/kubelet", "/etc/rancher", "/var/lib/docker", "/var/lib/docker/containers", "/run/cloud-init":
		return true
	default:
		if strings.HasPrefix(c, "/sys/") && !kernelTrees.MatchString(c) {
			return true
		}
		if strings.HasPrefix(c, "/proc/") || strings.HasPrefix(c, "/dev/") || strings.HasPrefix(c, "/home/") && strings.Count(c, "/") == 2 {
			return true
		}
		if strings.ContainsAny(c, "*?[") && strings.Count(c, "/") <= 2 {
			return !strings.HasPrefix(c, "/var/log/") && !strings.HasPrefix(c, "./")
		}
		return strings.HasPrefix(c, "~") && strings.Count(c, "/") == 0 || strings.HasPrefix(c, "../..") && strings.Trim(c, "./") == ""
	}
}

// isTrustedHost reports whether a host cannot pass data to strangers: it is internal, or the operator allows
// it.
func (j *judge) isTrustedHost(h string) bool {
	return internalHost(h) || j.isListed(strings.ToLower(h))
}

var internalSuffixes = []string{".internal", ".local", ".localdomain", ".localhost", ".lan", ".svc", ".intranet", ".private", ".home.arpa", ".consul", ".test"}

// internalHost reports whether a name or address cannot pass data to strangers: the machine itself, a
// private address, or a name that public resolvers do not forward to a domain's owner.
func internalHost(h string) bool {
	if h == "" || len(h) > 128 {
		return false
	}
	if a, err := netip.ParseAddr(strings.Trim(h, "[]")); err == nil {
		return a.IsLoopback() || a.IsPrivate()
	}
	h = strings.ToLower(strings.TrimSuffix(h, "."))
	if h == "metadata" || strings.HasPrefix(h, "metadata.") || h == "instance-data" || strings.HasPrefix(h, "instance-data.") {
		return false // the cloud's metadata service returns credentials
	}
	labels := strings.Split(h, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	if len(labels) == 1 {
		// A lone number or 0x... is an address in disguise.
		return strings.Trim(h, "0123456789") != "" && !strings.HasPrefix(h, "0x")
	}
	return slices.ContainsFunc(internalSuffixes, func(s string) bool { return strings.HasSuffix(h, s) })
}

// publicResolvers are name servers whose owners are unrelated to the requester.
var publicResolvers = []string{"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "149.112.112.112", "208.67.222.222", "208.67.220.220", "dns.google", "one.one.one.one"}

// tmuxFormat is text with plain variables: no #(command), no modifiers.
var tmuxFormat = regexp.MustCompile(`^([^#]|#\{[@a-z_]+\}|#[A-Z])*$`)

var (
	plainZones  = []string{"com", "net", "org", "io", "dev", "app", "co", "ai", "cloud", "de", "uk", "fr", "nl", "eu", "us", "info", "edu", "gov"}
	plainLabels = []string{"www", "api", "mail", "smtp", "imap", "ns1", "ns2", "status", "cdn", "app", "docs", "mx", "dns"}
)

// plainPublicName reports whether looking up a public name tells its owner nothing: a registrable name
// alone is answered by the registry's servers, and a label from a fixed list carries no data.
func plainPublicName(h string) bool {
	if _, err := netip.ParseAddr(h); err == nil {
		return slices.Contains(publicResolvers, h) // any other resolver sees who asks for what
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(h, ".")), ".")
	if len(labels) == 3 && slices.Contains(plainLabels, labels[0]) {
		labels = labels[1:]
	}
	if len(labels) != 2 || !slices.Contains(plainZones, labels[1]) {
		return false
	}
	l := labels[0]
	return l != "" && len(l) <= 24 && l[0] != '-' && strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
