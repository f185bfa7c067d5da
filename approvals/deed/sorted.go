package deed

import (
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/approvals/argv"
)

// listers print the names of what is there, and no text that somebody wrote; orders put them in an order.
var (
	listers = []string{"ls", "find", "du", "df", "stat", "tree", "wc", "lsblk"}
	orders  = []string{"sort", "uniq", "head", "tail", "wc"}
)

// Lists reports whether a command prints the names of what is there: files, directories, file systems.
func Lists(command string) bool {
	cmds, ok := argv.ParsePipe(command)
	for i, c := range cmds {
		other := func(w argv.Word) bool { // it reads a file, or runs something
			return i > 0 && w.Text[:min(1, len(w.Text))] != "-" && strings.Trim(w.Text, "0123456789") != "" || strings.HasPrefix(w.Text, "-exec") || strings.HasPrefix(w.Text, "-ok")
		}
		if !c.Literal || !c.Alone || len(c.Argv) == 0 || slices.ContainsFunc(c.Argv[1:], other) || !slices.Contains([][]string{listers, orders}[min(i, 1)], argv.Program(c.Argv[0].Text)) {
			return false
		}
	}
	return ok && len(cmds) > 0
}

// Sorted reports whether what matters of an action's output is its beginning: of what a tool answers, of a table,
// whose first line names the columns, and of what is sorted.
func Sorted(a approvals.Action) bool {
	if a.Kind != approvals.KindShell {
		return true
	}
	cmds, ok := argv.ParsePipe(string(a.Bytes))
	if !ok {
		return false
	}
	for _, c := range slices.Backward(cmds) {
		words, _, ok := argv.Unwrap(c.Argv)
		if !ok {
			return false
		}
		args := make([]string, 0, len(words))
		for _, w := range words[1:] {
			args = append(args, w.Text)
		}
		name := argv.Program(words[0].Text)
		if filters[name] {
			continue // in the order of its input
		}
		return sorts(name, args)
	}
	return false
}

// filters are programs that keep the order of their input.
var filters = map[string]bool{"grep": true, "egrep": true, "fgrep": true, "awk": true, "sed": true, "cut": true, "column": true, "cat": true, "nl": true, "tr": true, "uniq": true, "less": true, "more": true}

// sorts reports whether a program puts first what matters.
func sorts(name string, args []string) bool {
	has := func(these ...string) bool {
		return slices.ContainsFunc(args, func(s string) bool { return slices.Contains(these, s) })
	}
	switch name {
	case "sort", "head", "top", "htop", "ls", "ps", "df", "last", "lastb", "ss", "netstat", "lsof", "free":
		return true
	case "journalctl":
		return has("-r", "--reverse")
	case "git":
		return has("log", "reflog", "show", "diff", "status", "branch", "tag")
	case "docker", "podman", "kubectl":
		return has("ps", "images", "get", "top", "container", "image") && !has("logs")
	case "systemctl":
		return has("list-units", "list-timers", "list-unit-files", "list-sockets")
	}
	return false
}
