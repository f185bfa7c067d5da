package taint

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// maxText is how many bytes of a command are looked at; the rest of a longer one
// is data more than a command.
const maxText = 64 << 10

// tokens returns what is telling in a command, the longest first: for each
// thing the token and then its parts.
func tokens(command string) [][]string {
	if len(command) > maxText {
		command = command[:maxText]
	}
	var out [][]string
	seen := map[string]bool{}
	add := func(w string, plain bool) {
		for _, choices := range distinctive(w, plain) {
			if !seen[choices[0]] {
				seen[choices[0]] = true
				out = append(out, choices)
			}
		}
	}
	for _, w := range words(command) {
		if inner := strings.FieldsFunc(w.text, between); len(inner) > 1 || len(inner) == 1 && inner[0] != w.text {
			// A text in a text (bash -c, a message, a here-document): ordinary
			// words in it are prose.
			for _, x := range inner {
				add(x, false)
			}
			if !strings.ContainsAny(w.text, "\n\"'`$;|<>(){}") && len(inner) > 1 && strings.ContainsAny(w.text, "/\\") {
				add(w.text, !w.program) // a file name with blanks
			}
			continue
		}
		add(w.text, !w.program)
	}
	slices.SortStableFunc(out, func(a, b []string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	return out[:min(len(out), maxTokens)]
}

// between reports whether a character separates words in a text inside a word.
func between(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'`;|<>(){}$", r) }

// piece is one word of a command.
type piece struct {
	text    string
	program bool // it is what runs
}

// words takes a command apart; where it is no shell text, at its blanks.
func words(command string) (out []piece) {
	defer func() {
		// The text is a stranger's; a parser that gives up leaves the blanks.
		if recover() != nil {
			out = fields(command)
		}
	}()
	file, err := bash.Parse(command)
	if err != nil {
		return fields(command)
	}
	programs := map[*syntax.Word]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				programs[n.Args[0]] = true
			}
		case *syntax.Word:
			for _, run := range literal(n) {
				out = append(out, piece{run, programs[n]})
			}
		}
		return true
	})
	return out
}

// literal returns the text of a word, cut where something is put in when it
// runs. What is put in is a node of its own.
func literal(w *syntax.Word) []string {
	var runs []string
	var b strings.Builder
	cut := func() {
		if b.Len() > 0 {
			runs = append(runs, b.String())
			b.Reset()
		}
	}
	for _, p := range w.Parts {
		switch x := p.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(strings.ReplaceAll(x.Value, "\\\n", ""), `\`, ""))
		case *syntax.SglQuoted:
			b.WriteString(x.Value)
		case *syntax.DblQuoted:
			for _, q := range x.Parts {
				if l, ok := q.(*syntax.Lit); ok {
					b.WriteString(strings.NewReplacer(`\"`, `"`, `\$`, "$", "\\`", "`", `\\`, `\`, "\\\n", "").Replace(l.Value))
				} else {
					cut()
				}
			}
		default:
			cut()
		}
	}
	cut()
	return runs
}

// fields are the words of a text that is no shell text.
func fields(text string) []piece {
	var out []piece
	for f := range strings.FieldsFuncSeq(text, between) {
		out = append(out, piece{text: f})
	}
	return out
}

// distinctive returns the telling tokens in one word, each with its parts in the
// order in which they are looked for. plain allows a word that is only letters.
func distinctive(w string, plain bool) [][]string {
	if strings.HasPrefix(w, "-") {
		// Of an option only the value tells: --set=image=x, -Dfile=x.
		_, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil
		}
		w = value
	}
	w = strings.Trim(w, ",;:.!?()[]{}")
	var out [][]string
	if k, v, ok := strings.Cut(w, "="); ok && !strings.Contains(k, "/") && strings.Trim(v, "=") != "" && !strings.HasPrefix(v, "=") {
		out = distinctive(v, plain) // of=/dev/sdb, image=x
	}
	choices := []string{w}
	for _, p := range parts(w) {
		if !slices.Contains(choices, p) {
			choices = append(choices, p)
		}
	}
	choices = slices.DeleteFunc(choices, func(c string) bool { return dull(c, plain) })
	if len(choices) > 0 {
		out = append(out, choices)
	}
	return out
}

// parts are what a token may be known by when the whole is in no source: the
// host of a URL, a path's last name, a package or image without its version.
func parts(w string) []string {
	if scheme, rest, ok := strings.Cut(w, "://"); ok && scheme != "" {
		host, _, _ := strings.Cut(rest, "/")
		host, _, _ = strings.Cut(host, "?")
		_, at, user := strings.Cut(host, "@")
		if user {
			host = at
		}
		bare, _, _ := strings.Cut(host, ":")
		return []string{rest, host, bare}
	}
	var out []string
	if strings.HasPrefix(w, "/") || strings.HasPrefix(w, "~/") || strings.HasPrefix(w, "./") {
		return append(out, path.Base(w))
	}
	if user, host, ok := strings.Cut(w, "@"); ok && user != "" && strings.Contains(host, ".") {
		host, _, _ = strings.Cut(host, ":") // user@host:path
		out = append(out, host)
	}
	for _, sep := range []string{"==", ">=", "=", "@", ":"} {
		if i := strings.LastIndex(w, sep); i > 0 {
			out = append(out, w[:i])
		}
	}
	if i := strings.IndexByte(w, '/'); i > 0 {
		out = append(out, w[:i], path.Base(w)) // a registry's host, an image's name
	}
	return out
}

// dull reports whether a token says nothing about where a command came from.
func dull(t string, plain bool) bool {
	if len(t) < minToken || strings.HasPrefix(t, "-") || strings.ContainsRune(t, 0) {
		return true
	}
	lower := strings.ToLower(t)
	letters := strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz_") == ""
	if letters && (!plain || common(lower)) {
		return true
	}
	if strings.Trim(t, "*?[]./~-_") == "" {
		return true
	}
	if strings.HasPrefix(t, "/") || strings.HasPrefix(t, "~/") {
		return usualPath(path.Clean(t))
	}
	return common(strings.TrimPrefix(lower, "./"))
}

// usualPath reports whether a path is in every mouth: programs, what the kernel
// shows, and the directories of every machine themselves.
func usualPath(p string) bool {
	for _, below := range []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/lib", "/usr/share", "/lib", "/lib64", "/proc", "/sys", "/dev/pts", "/dev/fd"} {
		if p == below || strings.HasPrefix(p, below+"/") {
			return true
		}
	}
	switch p {
	case "/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/random", "/dev/urandom", "/dev/tty",
		"/etc", "/etc/passwd", "/etc/hosts", "/etc/fstab", "/etc/group", "/etc/resolv.conf", "/etc/os-release", "/etc/hostname", "/etc/systemd", "/etc/systemd/system", "/etc/nginx", "/etc/ssh", "/etc/default", "/etc/cron.d",
		"/var", "/var/log", "/var/lib", "/var/run", "/var/tmp", "/var/www", "/var/cache", "/var/log/syslog", "/var/log/messages",
		"/home", "/root", "/boot", "/mnt", "/media", "/opt", "/srv", "/run", "/tmp", "/usr", "/usr/local", "/dev", "~/.ssh", "~/.config":
		return true
	}
	return false
}

// common reports whether a word, in lower case, is one of everyday's: a
// program, a subcommand, a kind of thing, or English.
func common(w string) bool {
	switch w {
	case "about", "active", "admin", "after", "again", "alert", "alpine", "always", "ansible", "apache", "append", "apply", "apt-cache", "apt-get", "archive",
		"attach", "authorized_keys", "backup", "basename", "before", "begin", "branch", "build", "bzip2", "cache", "cargo", "certbot", "change", "check",
		"checkout", "chgrp", "chmod", "chown", "clean", "clone", "cluster", "command", "commit", "compose", "config", "config.json", "config.yaml",
		"config.yml", "configmap", "configmaps", "connect", "console", "container", "containers", "context", "cordon", "count", "create", "cronjob",
		"cronjobs", "crontab", "daemon-reload", "daemonset", "daemonsets", "database", "debian", "debug", "default", "delete", "deploy", "deployment",
		"deployments", "describe", "detach", "devel", "diff", "dirname", "disable", "disk", "dist-upgrade", "docker", "docker-compose", "dockerfile",
		"domain", "drain", "echo", "egrep", "enable", "enabled", "endpoints", "error", "errors", "events", "every", "exec", "export", "expose", "false",
		"fetch", "fgrep", "field", "files", "first", "flush", "force", "format", "found", "get-contexts", "github.com", "global", "grep", "group", "groups",
		"gunzip", "hello", "helm", "history", "home", "host", "hosts", "http", "httpd", "https", "image", "images", "index.html", "info", "ingress", "init",
		"input", "insert", "inspect", "install", "internal", "iptables", "issue", "items", "java", "journalctl", "json", "kill", "killall", "kube-system",
		"kubectl", "label", "latest", "level", "limit", "linux", "list-timers", "list-units", "local", "localhost", "login", "logout", "logrotate", "machine",
		"main.go", "makefile", "mariadb", "master", "memory", "merge", "message", "metadata", "mkdir", "mount", "mysql", "name", "namespace", "namespaces",
		"network", "never", "nginx", "nginx.conf", "nginx.service", "node", "nodejs", "nodes", "nohup", "number", "order", "other", "output", "owner",
		"package", "package.json", "passwd", "password", "patch", "pause", "pending", "pgrep", "pipeline", "pkill", "please", "podman", "ports", "postgres",
		"postgresql", "print", "printf", "private", "process", "processes", "production", "project", "prune", "psql", "public", "purge", "python", "python3",
		"query", "read", "readme.md", "rebase", "reboot", "redis", "redis-cli", "reload", "remote", "remove", "rename", "replace", "replicas", "replicaset",
		"report", "request", "reset", "resources", "restart", "restore", "resume", "return", "revert", "rollback", "rollout", "rsync", "running", "scale",
		"search", "secret", "secrets", "select", "server", "server.js", "service", "services", "session", "setup.py", "shell", "shutdown", "since", "sleep",
		"snapshot", "source", "sshd.service", "staging", "start", "stash", "state", "statefulset", "statefulsets", "status", "stderr", "stdin", "stdout",
		"stop", "storage", "sudo", "switch", "sync", "syslog", "system", "systemctl", "systemd", "table", "tables", "tail", "target", "terraform", "test",
		"tests", "there", "timeout", "today", "token", "touch", "trace", "truncate", "ubuntu", "umount", "uname", "uninstall", "unless", "unlink", "update",
		"upgrade", "uptime", "user", "useradd", "userdel", "usermod", "users", "value", "values", "values.yaml", "version", "volume", "volumes", "warning",
		"watch", "where", "which", "while", "whoami", "world", "write", "xargs", "yaml", "yesterday":
		return true
	}
	return false
}
