// Package helper is the program that runs another one where the kernel keeps it from changing
// anything, or from changing more than a throwaway view of the files. The bot uses it on other
// machines, where the operator has installed it as countersign-lock (targets/remote); there it is the
// fastest of the ways to do so. On its own machine the bot's program is the helper itself.
//
//	countersign-lock run [--needs NEEDS] [--hits TOKEN] -- PROGRAM [ARGUMENT ...]
//	countersign-lock wait TOKEN
//	countersign-lock view TOKEN DIRECTORY INPUT [VARIABLE ...] -- PROGRAM [ARGUMENT ...]
//	countersign-lock check
//	countersign-lock version
//
// NEEDS are net, netlink, processes, devices, admin, files, system, unix:/path and read:/path, with commas between
// them: what the program may do beside reading files, and what it may read (backend.Lock). run has the
// program's exit status, 128+n when a signal ended it, and 125 when there is no lock.
// With a token it writes control lines to standard error, which targets/remote
// reads: "TOKEN l LANDLOCK SOCKETS" when the lock is on, "TOKEN n WHY" when it cannot be,
// and "TOKEN h KIND NAME" for what the program was refused. wait is run for a program that comes on
// standard input later, as a job (targets/remote); "TOKEN x WHY" says that its directory cannot be
// used. view is run by sudo and rehearses a program as the account that called sudo
// (targets/rehearsal): nothing of the system changes, whatever the program is.
package helper

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"countersign/targets/backend"
	"countersign/targets/lock"
)

// Name is the program's, and the argument by which the bot's own program becomes it.
const Name = "countersign-lock"

// Exit codes of its own.
const (
	failed   = 1
	misused  = 2
	unlocked = 125
)

// nameMax is how much of a name a control line has, in bytes.
const nameMax = 300

// Main runs the program with its arguments and returns its exit status. It is for a process that does
// nothing else.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch {
	case command == "run":
		return hold(args, stderr)
	case command == "wait" && len(args) == 1:
		return wait(args[0], os.Stdin)
	case command == "view" && len(args) > 4:
		return view(args, stderr)
	case command == "check" && len(args) == 0:
		s := lock.State(context.Background())
		if s.By == "" {
			_, _ = fmt.Fprintf(stderr, "There is no lock here: %s.\n", strings.Join(s.Lacks, "; "))
			return failed
		}
		_, _ = fmt.Fprintln(stdout, "The lock holds.")
		for _, lack := range s.Lacks {
			_, _ = fmt.Fprintf(stdout, "But %s.\n", lack)
		}
		return 0
	case command == "version" && len(args) == 0:
		_, _ = fmt.Fprintln(stdout, version)
		return 0
	case command == "socket" && len(args) == 0: // what a trial of the lock tries
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			return failed
		}
		_ = syscall.Close(fd)
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "usage: countersign-lock run [--needs NEEDS] [--hits TOKEN] -- PROGRAM [ARGUMENT ...] | wait TOKEN | view ... | check | version")
	return misused
}

// hold runs a program under a lock.
func hold(args []string, stderr io.Writer) int {
	r := runner{stderr: stderr}
	needs := ""
	for len(args) > 0 && args[0] != "--" {
		if len(args) == 1 {
			return r.refuse("%s needs a value", args[0])
		}
		switch args[0] {
		case "--needs":
			needs = args[1]
		case "--hits":
			r.token = args[1]
		default:
			return r.refuse(unknown, args[0])
		}
		args = args[2:]
	}
	if len(args) < 2 || args[1] == "" {
		return r.refuse("no program is given; write it after --")
	}
	return r.run(needs, args[1:])
}

// unknown is what is said of an argument that a later version may know.
const unknown = "this version does not know %q; install the one of the bot"

// runner runs a program under a lock and writes control lines if there is a token.
type runner struct {
	token  string
	stderr io.Writer
}

func (r runner) control(words ...string) {
	if r.token != "" {
		_, _ = io.WriteString(r.stderr, r.token+" "+strings.Join(words, " ")+"\n")
	}
}

func (r runner) refuse(format string, a ...any) int {
	if text := fmt.Sprintf(format, a...); r.token != "" {
		r.control("n", strings.ReplaceAll(text, "\n", " "))
	} else {
		_, _ = fmt.Fprintln(r.stderr, "countersign-lock: "+text)
	}
	return unlocked
}

func (r runner) run(need string, argv []string) int {
	l, ok := needs(need)
	if !ok {
		return r.refuse(unknown, need)
	}
	if l.System && r.token == "" { // the bot does that itself
		s := backend.Spec{Lock: &l}.Confined(backend.Caps{User: os.Getenv("USER")})
		os.Clearenv()
		for _, kv := range s.Env {
			name, value, _ := strings.Cut(kv, "=")
			if err := os.Setenv(name, value); err != nil {
				return r.refuse("%v", err)
			}
		}
		if s.Dir != "" {
			if err := os.Chdir(s.Dir); err != nil {
				return r.refuse("%v", err)
			}
		}
	}
	code, err := lock.Run(argv, l,
		func(landlock int, sockets bool) {
			sees := "0"
			if sockets {
				sees = "1"
			}
			r.control("l", fmt.Sprint(landlock), sees)
		},
		func(h backend.Hit) { r.control("h", string(h.Kind), plain(h.Name)) })
	if err != nil {
		return r.refuse("%v", err)
	}
	return code
}

// Needs is a lock as the argument of --needs. A comma in the path of a socket can't be written.
func Needs(l backend.Lock) string {
	var out []string
	for _, n := range []struct {
		name string
		set  bool
	}{{"net", l.Net}, {"netlink", l.Netlink}, {"processes", l.Processes}, {"devices", l.Devices}, {"admin", l.Admin}, {"files", l.Files}, {"system", l.System}} {
		if n.set {
			out = append(out, n.name)
		}
	}
	for _, s := range l.Sockets {
		out = append(out, "unix:"+s)
	}
	for _, p := range l.Read {
		out = append(out, "read:"+p)
	}
	return strings.Join(out, ",")
}

// needs reads what a program needs.
func needs(text string) (backend.Lock, bool) {
	var l backend.Lock
	for need := range strings.SplitSeq(text, ",") {
		path, unix := strings.CutPrefix(need, "unix:")
		file, read := strings.CutPrefix(need, "read:")
		switch {
		case need == "":
		case need == "net":
			l.Net = true
		case need == "netlink":
			l.Netlink = true
		case need == "processes":
			l.Processes = true
		case need == "devices":
			l.Devices = true
		case need == "admin":
			l.Admin = true
		case need == "files":
			l.Files = true
		case need == "system":
			l.System = true
		case read && strings.HasPrefix(file, "/"):
			l.Read = append(l.Read, file)
		case unix && strings.HasPrefix(path, "/"):
			l.Sockets = append(l.Sockets, path)
		default:
			return l, false
		}
	}
	return l, true
}

// plain is a name that fits into a control line: %XX is a byte.
func plain(name string) string {
	var b strings.Builder
	for _, c := range []byte(name[:min(len(name), nameMax)]) {
		if c < ' ' || c == '%' || c == 0x7f {
			_, _ = fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
