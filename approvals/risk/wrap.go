package risk

import (
	"regexp"
	"slices"
	"strings"
)

// wrapperFunc judges a command that runs another one.
type wrapperFunc func(j *judge, name string, argv []word)

// wrapper returns the rule of a wrapper command, or of a shell builtin with its own rules; nil for
// other names.
func wrapper(name string) wrapperFunc {
	switch name {
	case "timeout":
		return prefixWrapper("-v --verbose --foreground --preserve-status", "-s --signal -k --kill-after", 1)
	case "nice":
		return prefixWrapper("", "-n --adjustment", 0)
	case "ionice":
		return prefixWrapper("-t --ignore", "-c --class -n --classdata", 0)
	case "time":
		return prefixWrapper("-p -v --verbose --portability", "", 0)
	case "stdbuf":
		return prefixWrapper("", "-i -o -e --input --output --error", 0)
	case "chrt", "taskset", "prlimit", "numactl":
		return wrapUnproven("changes how the machine shares its time and memory")
	case "env":
		return wrapEnv
	case "command":
		return wrapCommand
	case "builtin":
		return wrapUnproven("runs a builtin of the shell")
	case "exec":
		return wrapUnproven("replaces the shell")
	case "nohup":
		return wrapUnproven("leaves it running and writes nohup.out")
	case "setsid", "unshare", "nsenter", "chroot", "faketime", "setarch", "strace", "ltrace", "unbuffer", "script", "flock", "watch", "parallel", "linux32", "linux64", "i386",
		"x86_64", "runuser", "setpriv", "capsh", "systemd-run", "start-stop-daemon", "daemonize", "firejail", "bwrap", "proot", "fakeroot", "eatmydata", "chpst", "softlimit",
		"dbus-run-session", "ssh-agent", "torify", "torsocks", "proxychains", "caffeinate", "busybox", "toybox", "ash", "ksh", "zsh", "fish", "csh", "tcsh", "expect", "perf",
		"gdb", "valgrind", "cgexec", "aa-exec", "runcon", "newgrp", "sg", "su", "at", "batch", "entr", "chronic", "rlwrap", "socat", "xvfb-run", "byobu":
		return wrapUnproven("runs another command in a way that is not looked into")
	case "sudo", "doas", "pkexec":
		return wrapSudo
	case "bash", "sh", "dash":
		return wrapShell
	case "xargs":
		return wrapXargs
	case "ssh":
		return wrapSSH
	case "kubectl":
		return wrapKubectl
	case "docker", "podman", "nerdctl":
		return wrapContainer
	case "eval":
		return wrapEval
	case "test", "[":
		return wrapTest
	case "printf":
		return wrapPrintf
	case "find":
		return wrapFind
	case "ps":
		return wrapPS
	case "awk", "mawk", "gawk":
		return wrapAwk
	case "sed", "gsed":
		return wrapSed
	case "aws":
		return wrapAWS
	case "gcloud":
		return wrapGcloud
	case "git":
		return wrapGit
	case "tar":
		return wrapTar
	case "redis-cli", "valkey-cli":
		return wrapRedis
	}
	return nil
}

// skipOptions skips a wrapper's options: bool flags, and flags with a value, also attached (-n5,
// --signal=KILL). It returns the index of the rest.
func (j *judge) skipOptions(name string, argv []word, flags, valued string) (int, bool) {
	bools, vals := strings.Fields(flags), strings.Fields(valued)
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if w.kind != wordLit {
			if w.mayBeOption() || w.multi {
				j.add(High, EffectExec, "what `%s` runs is only known when it runs", name)
				return i, false
			}
			return i, true
		}
		t := w.text
		if t == "--" {
			return i + 1, true
		}
		if len(t) < 2 || t[0] != '-' {
			return i, true
		}
		if slices.Contains(bools, t) {
			continue
		}
		if slices.Contains(vals, t) {
			i++
			if i >= len(argv) || argv[i].kind != wordLit {
				j.add(Medium, EffectUnknown, "the option `%s` of `%s` has no value that is known", t, name)
				return i, false
			}
			continue
		}
		joined := false
		for _, v := range vals {
			if len(v) == 2 && strings.HasPrefix(t, v) || len(v) > 2 && strings.HasPrefix(t, v+"=") {
				joined = true
			}
		}
		if joined || name == "nice" && isDigits(strings.TrimLeft(t, "-+")) {
			continue
		}
		if len(t) > 2 && t[1] != '-' && allBools(t[1:], bools) {
			continue
		}
		j.add(Medium, EffectUnknown, "unknown option `%s` of `%s`", t, name)
		return i, false
	}
	return len(argv), true
}

func allBools(cluster string, bools []string) bool {
	for _, c := range cluster {
		if !slices.Contains(bools, "-"+string(c)) {
			return false
		}
	}
	return true
}

// judgeInner judges the inner command from i on, or adds that there is none.
func (j *judge) judgeInner(name string, argv []word, i int) {
	if i >= len(argv) {
		j.add(Low, EffectUnknown, "`%s` has no command to run", name)
		return
	}
	j.run(argv[i:], true)
}

// judgeTail judges every later part of argv that could be a command, for the level of something unproven:
// an unknown program may run its arguments.
func (j *judge) judgeTail(argv []word) {
	specs, err := j.tables()
	if err != nil {
		return
	}
	for i := 1; i < len(argv) && i < 12; i++ {
		j.addDangers(argv[i:])
		name, trusted := programName(argv[i].text)
		if j.probing > 1 || argv[i].kind != wordLit || !trusted || specs[name] == nil && wrapper(name) == nil {
			continue
		}
		probe := j.probe(j.probing + 1)
		probe.run(argv[i:], true)
		j.steps = probe.steps
		j.dirs = mergeDirs(j.dirs, probe.dirs)
		j.okDirs, j.moved = j.dirs, j.moved || probe.moved
		for _, is := range probe.issues {
			if is.level == Unknown || is.level >= High {
				j.issues = append(j.issues, is)
			}
		}
	}
}

// prefixWrapper is a wrapper with options, then n words of its own, then the command.
func prefixWrapper(flags, valued string, n int) wrapperFunc {
	return func(j *judge, name string, argv []word) {
		if j.provesInfo(name, argv) {
			return
		}
		if name != "timeout" && (name != "nice" || j.shell == AnyShell) {
			j.onlyLocked("`" + name + "`, which runs another program")
		}
		i, ok := j.skipOptions(name, argv, flags, valued)
		if !ok {
			j.judgeTail(argv)
			return
		}
		for range n {
			if i >= len(argv) || argv[i].kind != wordLit || strings.Trim(argv[i].text, "0123456789.smhd") != "" || argv[i].text == "" {
				j.add(Medium, EffectUnknown, "`%s` is used in a way that is not known here", name)
				j.judgeTail(argv)
				return
			}
			i++
		}
		j.judgeInner(name, argv, i)
	}
}

func wrapUnproven(why string) wrapperFunc {
	return func(j *judge, name string, argv []word) {
		if j.provesInfo(name, argv) {
			return
		}
		j.add(Medium, EffectExec, "`%s` %s", name, why)
		j.innerTexts(argv)
		j.judgeTail(argv)
	}
}

// provesInfo proves the forms of a wrapper that only print information, by its table: `ionice -p 1`.
func (j *judge) provesInfo(name string, argv []word) bool {
	specs, err := j.tables()
	if err != nil || specs[name] == nil || j.probing > 1 {
		return false
	}
	probe := j.probe(2)
	probe.match(specs[name], argv)
	if len(probe.issues) > 0 {
		return false
	}
	j.addNeeds(probe.needs...)
	j.lockOnly, j.usesDir = j.lockOnly || probe.lockOnly, j.usesDir || probe.usesDir
	j.prove(name)
	return true
}

// innerTexts judges arguments that look like whole command lines, for their level.
func (j *judge) innerTexts(argv []word) {
	for i, w := range argv {
		if i > 0 && w.kind == wordLit && strings.ContainsAny(w.text, " ;|&\n") {
			j.scan(w.text)
		}
	}
}

func wrapEnv(j *judge, name string, argv []word) {
	j.onlyLocked("`env`, which runs another program")
	// Without its environment a program picks its own pagers and helpers.
	i, ok := j.skipOptions(name, argv, "", "")
	if !ok {
		j.innerTexts(argv)
		j.judgeTail(argv)
		return
	}
	for i < len(argv) && argv[i].kind == wordLit && strings.Contains(argv[i].text, "=") {
		k, v, _ := strings.Cut(argv[i].text, "=")
		if k == "AWS_PROFILE" || k == "CLOUDSDK_CORE_PROJECT" {
			j.addHop("profile", v)
		}
		if !harmlessVar(k, v) {
			j.add(Medium, EffectExec, "the variable %s can change what the command does", k)
			j.judgeTail(argv)
		}
		i++
	}
	if i >= len(argv) {
		j.add(High, EffectSecrets, "`env` shows the whole environment, where secrets are kept")
		return
	}
	j.run(argv[i:], true)
}

func wrapCommand(j *judge, name string, argv []word) {
	if len(argv) > 1 && argv[1].kind == wordLit && (argv[1].text == "-v" || argv[1].text == "-V") {
		for _, w := range argv[2:] {
			if w.kind > wordAtom || w.mayBeOption() {
				j.add(Low, EffectUnknown, "`command -v` with a word that is only known when it runs")
				return
			}
		}
		j.prove(name)
		return
	}
	j.onlyLocked("`command`, which runs another program")
	i, ok := j.skipOptions(name, argv, "-p", "")
	if !ok {
		j.judgeTail(argv)
		return
	}
	j.judgeInner(name, argv, i)
}

func wrapSudo(j *judge, name string, argv []word) {
	j.add(High, EffectPrivesc, "it runs with another user's rights")
	i, ok := j.skipOptions(name, argv, "-n --non-interactive -E --preserve-env -H --set-home -k -S --stdin -b --background -i --login -s --shell -A -P -v -l --list -K -e --edit", "-u --user -g --group -p --prompt -C -h --host -T -r -t -D -R -U")
	if !ok {
		j.judgeTail(argv)
		return
	}
	for i < len(argv) && argv[i].kind == wordLit && isAssignment(argv[i].text) {
		j.add(High, EffectPrivesc, "`%s` sets a variable for it", name)
		i++
	}
	if i < len(argv) {
		j.run(argv[i:], true)
	}
}

func isAssignment(s string) bool {
	k, _, ok := strings.Cut(s, "=")
	return ok && k != "" && strings.Trim(k, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

func wrapShell(j *judge, name string, argv []word) {
	shell := j.shell
	defer func() { j.shell = shell }()
	started := j.execed
	j.execed = false
	i := 1
	for i < len(argv) && (argv[i].is("--norc") || argv[i].is("--noprofile")) {
		i++
	}
	if i < len(argv) && argv[i].kind == wordLit {
		switch argv[i].text {
		case "--version":
			if name == "bash" && len(argv) == i+1 {
				j.prove(name)
				return
			}
		case "-c", "-lc", "-ec", "-ic", "-xc", "-cx", "-euc", "-exc", "-euxc":
			if argv[i].text != "-c" {
				j.add(Medium, EffectExec, "`%s %s` changes how the shell starts", name, argv[i].text)
			}
			if i+1 < len(argv) {
				if argv[i+1].kind != wordLit {
					j.add(High, EffectExec, "`%s -c` runs code that can't be checked in advance", name)
					return
				}
				if len(argv) > i+2 {
					j.add(Medium, EffectExec, "`%s -c` with arguments is not looked into", name)
				}
				if !started {
					j.onlyLocked("a shell in a shell")
				}
				j.shell = POSIX
				if name == "bash" {
					j.shell = Bash
				}
				j.text(argv[i+1].text, false)
				return
			}
		}
	}
	if len(argv) == 1 && j.feed != nil {
		j.add(High, EffectExec, "`%s` runs what comes through the pipe", name)
		return
	}
	if len(argv) == 1 {
		j.add(Medium, EffectInteractive, "`%s` starts a shell or runs what it is given", name)
		return
	}
	j.add(Medium, EffectExec, "`%s` runs a file or text that is not looked into", name)
	j.innerTexts(argv)
	j.judgeTail(argv)
}

func wrapEval(j *judge, _ string, argv []word) {
	j.add(Medium, EffectExec, "`eval` runs text that is put together when it runs")
	parts := make([]string, 0, len(argv))
	for _, w := range argv[1:] {
		if w.kind != wordLit {
			j.add(High, EffectExec, "`eval` runs code that can't be checked in advance")
			return
		}
		parts = append(parts, w.text)
	}
	j.text(strings.Join(parts, " "), false)
}

// wrapXargs proves xargs with a program none of whose options does harm, because every input line may
// become an option.
func wrapXargs(j *judge, name string, argv []word) {
	j.onlyLocked("`xargs`, which runs another program")
	i, ok := j.skipOptions(name, argv, "-0 --null -r --no-run-if-empty -t --verbose -x --exit", "-n --max-args -P --max-procs -L --max-lines -I -d --delimiter -s --max-chars")
	if !ok {
		j.judgeTail(argv)
		return
	}
	if i >= len(argv) {
		j.prove(name) // it echoes
		return
	}
	inner := slices.Clone(argv[i:])
	mark, nul, plain := "", false, true
	for k := 1; k < i; k++ {
		switch t := argv[k].text; {
		case t == "-I" && k+1 < i:
			k++
			mark, plain = argv[k].text, false
		case strings.HasPrefix(t, "-I"):
			mark, plain = t[2:], false
		case t == "--null" || allBools(t[1:], []string{"-0", "-r", "-t", "-x"}):
			nul = nul || strings.ContainsAny(t, "0u")
		case len(t) == 2 && strings.Contains("-n -P -L -d -s", t) || strings.HasPrefix(t, "--") && !strings.Contains(t, "="):
			k++ // its value
			plain = false
		default:
			plain = false
		}
	}
	j.usesDir = j.usesDir || !j.remote
	nul = nul && !slices.ContainsFunc(argv[1:i], func(w word) bool { return strings.HasPrefix(w.text, "-d") || strings.HasPrefix(w.text, "--d") })
	pids := feedsPids(j)
	whole := nul // names may contain blanks and newlines; whole says that each input name is exactly one argument
	if mark != "" {
		for k := 1; k < i; k++ {
			for _, other := range []string{"-n", "-L", "--max-args", "--max-lines"} {
				if strings.HasPrefix(argv[k].text, other) {
					j.add(Medium, EffectExec, "`xargs -I` with `%s`: which of the two counts is not known", other)
					return
				}
			}
		}
		for k := range inner {
			whole = whole && (inner[k].text == mark || !strings.Contains(inner[k].text, mark))
			head, tail, found := strings.Cut(inner[k].text, mark)
			switch {
			case !found:
			case pids && inner[k].kind == wordLit && !strings.Contains(tail, mark) && mark == "{}":
				inner[k] = word{kind: wordAtom, text: head + "0" + tail, prefix: head + "0"}
			default:
				inner[k] = word{kind: wordOpaque, text: inner[k].text}
			}
		}
	} else if pids {
		inner = append(inner, word{kind: wordAtom, multi: true, text: "0", prefix: "0"})
	} else {
		inner = append(inner, word{kind: wordOpaque, multi: true, text: "..."})
	}
	inner0, fed0 := j.inner, j.xargsNames
	j.inner, j.xargsNames = !pids, anyNames
	if nul && whole || !nul && plain {
		j.xargsNames = pipedNames(j, j.feed, nul)
	}
	j.run(inner, true)
	j.inner, j.xargsNames = inner0, fed0
}

// feedsPids reports whether a pipe only passes process ids.
func feedsPids(j *judge) bool {
	if j.feed == nil {
		return false
	}
	args, ok := j.literals(j.feed)
	if !ok {
		return false
	}
	return (args[0] == "pgrep" || args[0] == "pidof") && onlyPids(args) && !slices.Contains(args, "-d,")
}

func wrapSSH(j *judge, name string, argv []word) {
	i, port := 1, ""
	for i < len(argv) {
		w := argv[i]
		if w.kind != wordLit || !strings.HasPrefix(w.text, "-") {
			break
		}
		switch t := w.text; {
		case t == "-n" || t == "-T" || t == "-q" || t == "-4" || t == "-6" || t == "-x":
			i++
		case t == "-V" && len(argv) == 2:
			j.prove(name)
			return
		case (t == "-p" || t == "-l" || t == "-o") && i+1 < len(argv) && argv[i+1].kind == wordLit:
			switch t {
			case "-p":
				port = ":" + argv[i+1].text
			case "-l":
				j.add(Low, EffectPrivesc, "`ssh` as another user")
			}
			if v := argv[i+1].text; t != "-o" && !isWord(v) || t == "-o" && !harmlessSSH(v) {
				j.add(Medium, EffectExec, "`ssh %s %s` can run something else", t, v)
				j.judgeTail(argv)
				return
			}
			i += 2
		default:
			j.add(Medium, EffectUnknown, "unknown option `%s` of `ssh`", t)
			j.innerTexts(argv)
			j.judgeTail(argv)
			return
		}
	}
	if i >= len(argv) {
		j.add(Low, EffectInteractive, "`ssh` without a host")
		return
	}
	host := argv[i]
	if host.kind != wordLit || !plainHost(host.text[strings.LastIndexByte(host.text, '@')+1:]) {
		j.add(Medium, EffectEgress, "`ssh` to %s, a host whose name is not plain", host.text)
	} else {
		j.addHop("ssh", host.text[strings.LastIndexByte(host.text, '@')+1:]+port)
		j.addNeeds(NeedNet)
	}
	if strings.Contains(host.text, "@") {
		j.add(Low, EffectPrivesc, "`ssh` as another user")
	}
	i++
	if i >= len(argv) {
		j.add(Medium, EffectInteractive, "`ssh` without a command opens a shell on the other host")
		return
	}
	parts := make([]string, 0, len(argv)-i)
	for _, w := range argv[i:] {
		if w.kind != wordLit {
			j.add(High, EffectExec, "`ssh` runs code that can't be checked in advance")
			return
		}
		parts = append(parts, w.text)
	}
	if strings.HasPrefix(parts[0], "-") {
		j.add(Medium, EffectUnknown, "an option of `ssh` after the host")
	}
	j.judgeRemote(AnyShell, "", func() { j.text(strings.Join(parts, " "), false) })
	j.prove(name)
}

// plainHost reports whether ssh can only take a name for a host.
func plainHost(s string) bool {
	return s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

func harmlessSSH(opt string) bool {
	k, v, _ := strings.Cut(opt, "=")
	switch k {
	case "BatchMode":
		return v == "yes"
	case "ConnectTimeout", "ServerAliveInterval", "ConnectionAttempts":
		return isDigits(v)
	case "StrictHostKeyChecking":
		return v == "yes"
	case "LogLevel":
		return v == "ERROR" || v == "QUIET"
	}
	return false
}

// wrapKubectl proves `kubectl exec ... -- command`; the rest is a table.
func wrapKubectl(j *judge, name string, argv []word) {
	specs, err := j.tables()
	if err != nil {
		j.add(High, EffectUnknown, "the tables can't be read: %v", err)
		return
	}
	before := len(j.issues)
	dd := slices.IndexFunc(argv, func(w word) bool { return w.is("--") })
	exec := slices.IndexFunc(argv, func(w word) bool { return w.is("exec") })
	if exec > 0 && dd > exec {
		j.match(specs["kubectl\x00exec"], argv[:dd])
		j.addHop("kubectl", execPod(argv[:dd], exec))
		j.addNeeds(NeedNet)
		j.judgeExec(name, argv[dd+1:], "")
		return
	}
	j.match(specs[name], argv)
	if !j.hasCommandIssue(before) {
		j.prove(name)
		return
	}
	if exec > 0 {
		j.judgeTail(argv)
	}
}

// wrapContainer proves `docker exec NAME command`; the rest is a table.
func wrapContainer(j *judge, name string, argv []word) {
	specs, err := j.tables()
	if err != nil {
		j.add(High, EffectUnknown, "the tables can't be read: %v", err)
		return
	}
	argv = j.engineOptions(name, argv)
	if len(argv) > 1 && argv[1].is("container") && len(argv) > 2 && argv[2].is("exec") {
		argv = argv[1:]
	}
	if len(argv) > 1 && argv[1].is("exec") {
		i, ok := j.skipOptions(name+" exec", argv[1:], "", "-w --workdir")
		i++
		if !ok {
			j.judgeTail(argv)
			return
		}
		if i >= len(argv) || argv[i].kind != wordLit || !isWord(argv[i].text) {
			j.add(Medium, EffectUnknown, "`%s exec` in a container that is only known when it runs", name)
			j.judgeTail(argv)
			return
		}
		dir := ""
		for k, w := range argv[:i] {
			if w.is("-w") || w.is("--workdir") {
				dir = argv[k+1].text
			} else if v, ok := strings.CutPrefix(w.text, "--workdir="); ok {
				dir = v
			} else if v, ok := strings.CutPrefix(w.text, "-w"); ok {
				dir = v
			}
		}
		j.addHop(name, argv[i].text)
		if socket := engineSockets(name); socket != "" {
			j.addNeeds(NeedUnix + Need(socket))
		}
		j.judgeExec(name, argv[i+1:], dir)
		return
	}
	sp := specs[name]
	if sp == nil {
		j.unknownProgram(name, argv)
		return
	}
	before := len(j.issues)
	j.match(sp, argv)
	if !j.hasCommandIssue(before) {
		j.prove(name)
		return
	}
	j.judgeTail(argv)
}

// engineSockets returns the socket of a program's engine; "" if it needs none.
func engineSockets(name string) string {
	switch name {
	case "docker":
		return "/run/docker.sock"
	case "nerdctl":
		return "/run/containerd/containerd.sock"
	}
	return ""
}

// execPod returns the pod of kubectl exec as a place: NAME, or NAMESPACE:NAME.
func execPod(argv []word, exec int) string {
	pod, namespace := "", ""
	for i := 1; i < len(argv); i++ {
		t := argv[i].text

		for _, o := range []string{"--namespace=", "-n=", "-n"} {
			if value, joined := strings.CutPrefix(t, o); joined && value != "" {
				namespace = value
				break
			}
		}
		switch {
		case t == "-n" || t == "--namespace":
			if i+1 < len(argv) {
				namespace = argv[i+1].text
			}
			i++
		case strings.HasPrefix(t, "-"):
			if !strings.Contains(t, "=") && slices.Contains([]string{"-c", "--container", "--context", "--cluster", "--request-timeout", "-v", "--v", "--pod-running-timeout"}, t) {
				i++
			}
		case i > exec && pod == "":
			pod = t
		}
	}
	if namespace != "" && pod != "" {
		return namespace + ":" + pod
	}
	return pod
}

// judgeExec judges the program that an engine starts in a container.
func (j *judge) judgeExec(name string, argv []word, dir string) {
	j.judgeRemote(POSIX, dir, func() {
		j.execed = true
		j.judgeInner(name, argv, 0)
		j.execed = false
	})
	j.prove(name)
}

// wrapTest proves test and [ without -v, which evaluates subscripts.
func wrapTest(j *judge, name string, argv []word) {
	args := argv[1:]
	if name == "[" {
		if len(args) == 0 || !args[len(args)-1].is("]") {
			j.add(Low, EffectUnknown, "`[` without `]`")
			return
		}
		args = args[:len(args)-1]
	}
	for i, w := range args {
		j.usesDir = j.usesDir || !j.remote && w.text != "" && w.text[0] != '/' && w.text[0] != '-' && !isDigits(w.text)
		if w.kind == wordGlob && (w.multi || w.mayBeOption()) || w.kind == wordOpaque && w.multi {
			j.add(Low, EffectUnknown, "`%s` with a word that is only known when it runs", name)
			return
		}
		if w.kind == wordLit && strings.HasPrefix(w.text, "-") {
			switch w.text {
			case "-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-L", "-n", "-o", "-p", "-r", "-s", "-S", "-t", "-u", "-w", "-x", "-z", "-G", "-N", "-O", "-nt", "-ot", "-ef":
			case "-eq", "-ne", "-lt", "-le", "-gt", "-ge":
				for _, k := range []int{i - 1, i + 1} {
					if k < 0 || k >= len(args) || args[k].kind == wordOpaque || args[k].kind == wordLit && !isDigits(strings.TrimPrefix(args[k].text, "-")) {
						j.add(Low, EffectUnknown, "`%s` compares what is not a plain number", name)
						return
					}
				}
			default:
				if i == 0 || !isDigits(w.text[1:]) {
					j.add(Medium, EffectUnknown, "unknown option `%s` of `%s`", w.text, name)
					return
				}
			}
		}
	}
	if slices.ContainsFunc(args, func(w word) bool { return w.kind == wordOpaque }) {
		// Unknown text could be -v, and the next word a subscript to evaluate.
		unary := len(args) == 2 && args[0].kind == wordLit && strings.HasPrefix(args[0].text, "-")
		compare := len(args) == 3 && args[1].kind == wordLit && slices.Contains([]string{"=", "==", "!="}, args[1].text)
		if !unary && !compare {
			j.add(Low, EffectUnknown, "`%s` with text that could be one of its operators", name)
			return
		}
	}
	j.prove(name)
}

// printfFormat matches formats without %n, which sets a variable. Flags, width and length are allowed.
var printfFormat = regexp.MustCompile(`^([^%]|%%|%[-+ #0']*([0-9]+|\*)?(\.([0-9]+|\*)?)?(hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcsbq]|%[0-9.-]*\([^)%]*(%[A-Za-z%][^)%]*)*\)T)*$`)

func wrapPrintf(j *judge, name string, argv []word) {
	if len(argv) < 2 || argv[1].kind != wordLit || strings.HasPrefix(argv[1].text, "-") || !printfFormat.MatchString(argv[1].text) {
		j.add(Medium, EffectUnknown, "`printf` with a format that is only known when it runs, or with options")
		return
	}
	j.prove(name)
}
