package impact

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals"
	"countersign/approvals/argv"
	"countersign/targets/rehearsal"
)

// Way is the way back from one command. The zero Way says that none is known, and not that there is none.
type Way struct {
	Kind approvals.BackKind `json:"kind,omitempty"`
	// Command undoes the command, as text for bash.
	Command string `json:"command,omitempty"`
	// Look is a proven read of what the command changes, and State what it showed when the way was found.
	Look  string `json:"look,omitempty"`
	State string `json:"state,omitempty"`
	// Note says for people what the way does, what they do themselves, or why there is none.
	Note string `json:"note,omitempty"`
	// Keep and Made are as approvals.Back has them. They stand in place of Command and Look.
	Keep []string `json:"keep,omitempty"`
	Made []string `json:"made,omitempty"`

	commands [][]string // Command before it is text
}

// Line is the way on a card.
func (w Way) Line() approvals.Back {
	return approvals.Back{Kind: w.Kind, Text: w.Note, Keep: w.Keep, Made: w.Made}
}

// Bounds of what is kept for a way back.
const (
	maxKept      = 64 << 20 // bytes of files
	maxKeptFiles = 100
	maxBackText  = 4 << 10 // bytes of a command
)

// BackFrom finds the way back from an action, from what its target shows now, by proven reads alone.
// Files are for [BackFromFiles]. It is safe for concurrent use if r and proves are.
func BackFrom(ctx context.Context, a approvals.Action, proves func(string) bool, r Runner) Way {
	text := string(a.Bytes)
	if a.Kind != approvals.KindShell || proves == nil || r == nil || len(text) > maxText {
		return Way{}
	}
	cmd, ok := argv.Parse(text)
	if !ok || !cmd.Literal || len(cmd.Argv) == 0 || len(cmd.Truncates) > 0 {
		return Way{}
	}
	words, as, ok := argv.Unwrap(cmd.Argv)
	if !ok {
		return Way{}
	}
	b, ok := backs()[argv.Program(words[0].Text)]
	if !ok {
		return Way{}
	}
	options := b.options
	if options == "" {
		prog, _ := lookup(words[0].Text)
		options = prog.options
	}
	args, ok := argv.ParseArgs(options, words[1:])
	if !ok {
		return Way{}
	}
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	p := &probe{proves: proves, runner: r, dir: strings.TrimRight(a.Dir, "/"), rooted: strings.HasPrefix(a.Dir, "/"), lifted: as != "" && as != a.User}
	w := b.way(ctx, p, call{name: argv.Program(words[0].Text), as: as, Args: args})
	if w.Kind == approvals.OnePress {
		var before []string
		for _, x := range cmd.Argv[:len(cmd.Argv)-len(words)] {
			before = append(before, x.Text)
		}
		for i, c := range w.commands {
			w.commands[i] = slices.Concat(before, c)
		}
		if w.Command, ok = Commands(w.commands...); !ok || len(w.Command) > maxBackText {
			return Way{Kind: approvals.ByHand, Note: "restore what " + show(w.Look) + " showed before"}
		}
		w.Note = w.Command + w.Note
	}
	return w
}

// back is how the ways back from a program are found.
type back struct {
	options string // as in programs(); "" is what stands there
	way     func(ctx context.Context, p *probe, c call) Way
}

// backs is the table. Of a program that is not in it nothing is said.
func backs() map[string]back {
	mount := back{options: "!raw", way: backFromMount}
	box := back{way: backFromContainers}
	rules := back{way: backFromRules}
	gone := func(why string) back {
		return back{options: "!raw", way: func(context.Context, *probe, call) Way { return Way{Kind: approvals.NoWay, Note: why} }}
	}
	ends := gone("ended processes don't come back")
	off := gone("a restart can't be undone")
	lost := gone("what was on it is lost")
	return map[string]back{
		"systemctl": {way: backFromUnits},
		"sysctl":    {options: "-wqe --write --quiet --ignore", way: backFromSysctl},
		"modprobe":  {options: "-rqv --remove --quiet --verbose", way: backFromModules},
		"rmmod":     {options: "-v --verbose", way: backFromModules},
		"docker":    box, "podman": box, "nerdctl": box,
		"kubectl":  {way: backFromKubectl},
		"iptables": rules, "ip6tables": rules,
		"apt": {way: backFromApt}, "apt-get": {way: backFromApt},
		"mount": mount, "umount": {options: "-lfnvr --lazy --force --verbose", way: backFromUnmount},
		"ufw":  {options: "!raw", way: backFromUfw},
		"kill": ends, "pkill": ends, "killall": ends,
		"reboot": off, "shutdown": off, "poweroff": off, "halt": off,
		"mkfs": lost, "mkfs.ext4": lost, "mkfs.xfs": lost, "wipefs": lost, "mkswap": lost, "blkdiscard": lost, "shred": lost,
	}
}

// look reads a state: what was printed, and the exit code.
func (p *probe) look(ctx context.Context, command string) (out, state string, ok bool) {
	out, exit, ok := p.read(ctx, command)
	return out, State(out, exit), ok
}

// State is how the outcome of a look is compared.
func State(out string, exit int) string { return strconv.Itoa(exit) + "\n" + strings.TrimSpace(out) }

func onePress(look, state string, commands ...[]string) Way {
	return Way{Kind: approvals.OnePress, Look: look, State: state, commands: commands}
}

// plainName is a name that a target may have said and that no program takes for anything else.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+:~-]*$`)

func backFromUnits(ctx context.Context, p *probe, c call) Way {
	verb, units := c.Operand(0), c.Texts(1)
	if len(units) == 0 || c.Has("--user") && p.lifted || c.Has("--runtime", "-s", "--signal") {
		return Way{}
	}
	switch verb {
	case "kill":
		return Way{Kind: approvals.NoWay, Note: "ended processes don't come back"}
	case "start", "stop", "restart", "enable", "disable", "mask", "unmask", "try-restart", "reload-or-restart":
	default:
		return Way{}
	}
	systemctl := append([]string{"systemctl"}, optionWords(c.Args, "--user")...)
	look := join(systemctl) + " show --no-pager --property=Id,LoadState,ActiveState,UnitFileState -- " + join(units)
	out, state, ok := p.look(ctx, look)
	if !ok {
		return Way{}
	}
	var up, down, on, offAtBoot, masked, open []string
	for block := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		f := map[string]string{}
		for _, row := range rows(block) {
			k, v, _ := strings.Cut(row, "=")
			f[k] = v
		}
		id := f["Id"]
		switch {
		case id == "" || f["LoadState"] == "not-found":
			continue
		case f["ActiveState"] == "active" || f["ActiveState"] == "reloading" || f["ActiveState"] == "activating":
			up = append(up, id)
		default:
			down = append(down, id)
		}
		switch f["UnitFileState"] {
		case "enabled":
			on = append(on, id)
		case "disabled":
			offAtBoot = append(offAtBoot, id)
		}
		if f["LoadState"] == "masked" {
			masked = append(masked, id)
		} else {
			open = append(open, id)
		}
	}
	var cmds [][]string
	add := func(verb string, ids []string) {
		if len(ids) > 0 {
			cmds = append(cmds, slices.Concat(systemctl, []string{verb, "--"}, ids))
		}
	}
	now := c.Has("--now")
	switch verb {
	case "start":
		add("stop", down)
	case "stop":
		add("start", up)
	case "restart", "reload-or-restart", "try-restart":
		if len(up) > 0 {
			return Way{Kind: approvals.NoWay, Note: "a restart can't be undone"}
		}
		if verb != "try-restart" {
			add("stop", down)
		}
	case "enable":
		add("disable", offAtBoot)
		if now {
			add("stop", down)
		}
	case "disable":
		add("enable", on)
		if now {
			add("start", up)
		}
	case "mask":
		add("unmask", open)
		if now {
			add("start", up)
		}
	case "unmask":
		add("mask", masked)
	}
	if len(cmds) == 0 {
		return Way{}
	}
	return onePress(look, state, cmds...)
}

func backFromSysctl(ctx context.Context, p *probe, c call) Way {
	var files, names []string
	for _, o := range c.Texts(0) {
		name, _, set := strings.Cut(o, "=")
		if name = strings.TrimSpace(name); !set || name == "" {
			return Way{}
		}
		at := name
		if !strings.Contains(name, "/") {
			at = strings.ReplaceAll(name, ".", "/")
		}
		if file := "/proc/sys/" + at; path.Clean(file) == file {
			files, names = append(files, file), append(names, name)
		}
	}
	if len(names) == 0 || len(names) != len(c.Operands) {
		return Way{}
	}
	look := "cat -- " + join(files)
	out, state, ok := p.look(ctx, look)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if !ok || len(lines) != len(names) {
		return Way{}
	}
	for i, n := range names {
		names[i] = n + "=" + strings.ReplaceAll(lines[i], "\t", " ")
	}
	return onePress(look, state, append([]string{c.name, "-w"}, names...))
}

func backFromModules(ctx context.Context, p *probe, c call) Way {
	names := c.Texts(0)
	removes := c.name == "rmmod" || c.Has("-r", "--remove")
	if len(names) == 0 || !removes && len(names) > 1 {
		return Way{}
	}
	name := strings.ReplaceAll(names[0], "-", "_")
	look := "grep -c " + quoted("^"+name+" ") + " /proc/modules"
	out, state, ok := p.look(ctx, look)
	loaded := strings.TrimSpace(out) == "1"
	switch {
	case !ok || len(names) > 1 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || loaded != removes:
		return Way{}
	case removes:
		return onePress(look, state, []string{"modprobe", name})
	}
	return onePress(look, state, []string{"modprobe", "-r", name})
}

func backFromContainers(ctx context.Context, p *probe, c call) Way {
	verb, names := c.Operand(0), c.Texts(1)
	if verb == "container" && len(names) > 0 {
		verb, names = names[0], names[1:]
	}
	program := append([]string{c.name}, optionWords(c.Args, "--context")...)
	if verb == "service" && len(names) > 1 && names[0] == "scale" {
		return backFromServices(ctx, p, program, names[1:])
	}
	if len(names) == 0 || c.Has("-a", "--all", "-s", "--signal") {
		return Way{}
	}
	switch verb {
	case "rm", "remove", "rmi", "prune":
		return Way{Kind: approvals.NoWay, Note: "what was in it is lost"}
	case "start", "stop", "restart", "kill", "pause", "unpause":
	default:
		return Way{}
	}
	look := join(program) + " container inspect --format '{{.Name}}|{{.State.Status}}' " + join(names)
	out, state, ok := p.look(ctx, look)
	if !ok {
		return Way{}
	}
	var running, stopped, paused []string
	for _, row := range rows(out) {
		name, status, _ := strings.Cut(strings.TrimSpace(row), "|")
		name = strings.TrimPrefix(name, "/")
		if !plainName.MatchString(name) {
			return Way{}
		}
		switch status {
		case "running":
			running = append(running, name)
		case "paused":
			paused = append(paused, name)
		case "exited", "created":
			stopped = append(stopped, name)
		}
	}
	var back string
	var which []string
	switch verb {
	case "start":
		back, which = "stop", stopped
	case "stop", "kill":
		back, which = "start", running
	case "restart":
		if len(running) > 0 {
			return Way{Kind: approvals.NoWay, Note: "a restart can't be undone"}
		}
		back, which = "stop", stopped
	case "pause":
		back, which = "unpause", running
	case "unpause":
		back, which = "pause", paused
	}
	if len(which) == 0 {
		return Way{}
	}
	return onePress(look, state, slices.Concat(program, []string{back}, which))
}

func backFromServices(ctx context.Context, p *probe, program, pairs []string) Way {
	var names []string
	for _, pair := range pairs {
		name, _, ok := strings.Cut(pair, "=")
		if !ok {
			return Way{}
		}
		names = append(names, name)
	}
	look := join(program) + " service inspect --format '{{.Spec.Name}}={{.Spec.Mode.Replicated.Replicas}}' " + join(names)
	out, state, ok := p.look(ctx, look)
	was := rows(out)
	if !ok || len(was) != len(names) {
		return Way{}
	}
	for _, pair := range was {
		name, n, _ := strings.Cut(pair, "=")
		if _, err := strconv.ParseUint(n, 10, 32); err != nil || !plainName.MatchString(name) {
			return Way{}
		}
	}
	return onePress(look, state, slices.Concat(program, []string{"service", "scale"}, was))
}

func backFromKubectl(ctx context.Context, p *probe, c call) Way {
	if p.lifted {
		return Way{}
	}
	scope := optionWords(c.Args, "-n", "--namespace", "--context", "--cluster")
	verb, things := c.Operand(0), c.Texts(1)
	if verb == "rollout" && len(things) > 0 {
		verb, things = "rollout "+things[0], things[1:]
	}
	if verb == "set" && len(things) > 1 {
		verb, things = "set "+things[0], things[1:min(len(things), 2)]
	}
	if len(things) == 2 && !strings.Contains(things[0], "/") && verb != "cordon" && verb != "uncordon" {
		things = []string{things[0] + "/" + things[1]}
	}
	if verb == "delete" {
		return Way{Kind: approvals.NoWay, Note: "deleted objects don't come back by themselves; apply their manifests again"}
	}
	if len(things) != 1 || c.Has("-l", "--selector", "--all", "-f", "--filename", "-k") {
		return Way{}
	}
	get := func(what, field string) (string, string, string, bool) {
		look := "kubectl get" + join2(scope) + " " + quoted(what) + " -o " + quoted("jsonpath={"+field+"}")
		out, state, ok := p.look(ctx, look)
		return look, strings.TrimSpace(out), state, ok && strings.HasPrefix(state, "0\n")
	}
	number := func(s string) bool { _, err := strconv.Atoi(s); return err == nil }
	switch verb {
	case "scale":
		if look, was, state, ok := get(things[0], ".spec.replicas"); ok && number(was) {
			return onePress(look, state, slices.Concat([]string{"kubectl", "scale"}, scope, []string{things[0], "--replicas=" + was}))
		}
	case "rollout restart", "rollout undo", "set image", "set env", "set resources":
		if look, was, state, ok := get(things[0], `.metadata.annotations.deployment\.kubernetes\.io/revision`); ok && number(was) {
			return onePress(look, state, slices.Concat([]string{"kubectl", "rollout", "undo"}, scope, []string{things[0], "--to-revision=" + was}))
		}
	case "cordon", "uncordon":
		if look, was, state, ok := get("node/"+things[0], ".spec.unschedulable"); ok {
			if cordoned := was == "true"; cordoned != (verb == "cordon") {
				back := "uncordon"
				if cordoned {
					back = "cordon"
				}
				return onePress(look, state, slices.Concat([]string{"kubectl", back}, optionWords(c.Args, "--context", "--cluster"), []string{things[0]}))
			}
		}
	case "drain":
		return Way{Kind: approvals.ByHand, Note: "kubectl uncordon " + quoted(things[0]) + "; evicted pods stay where they went"}
	}
	return Way{}
}

// backFromRules undoes one change of netfilter's rules: a rule that was added is deleted, and one that
// was deleted goes back to its place.
func backFromRules(ctx context.Context, p *probe, c call) Way {
	table, verb, chain := "filter", "", ""
	var rest []string
	words := c.Texts(0)
	for i := 0; i < len(words); i++ {
		w, next := words[i], ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case (w == "-t" || w == "--table") && next != "":
			table = next
			i++
		case w == "-w" || w == "--wait":
		case verb == "" && slices.Contains([]string{"-A", "-I", "-D", "-P", "--append", "--insert", "--delete", "--policy"}, w) && next != "":
			verb, chain = strings.ToUpper(strings.TrimLeft(w, "-")[:1]), next
			i++
		case verb == "":
			return Way{Kind: approvals.ByHand, Note: "save the rules with " + c.name + "-save before, and restore them with " + c.name + "-restore"}
		default:
			rest = append(rest, w)
		}
	}
	if verb == "" || chain[0] == '-' || strings.Trim(table, "abcdefghijklmnopqrstuvwxyz") != "" {
		return Way{}
	}
	look := c.name + " -t " + table + " -S " + quoted(chain) // others' rules elsewhere are no reason to leave this one
	out, state, ok := p.look(ctx, look)
	list, read := readRules(out)
	if !ok || !read || !strings.HasPrefix(state, "0\n") { // as where it takes sudo to look
		return Way{Kind: approvals.ByHand, Note: "save the rules with " + c.name + "-save before, and restore them with " + c.name + "-restore"}
	}
	program := []string{c.name}
	if table != "filter" {
		program = append(program, "-t", table)
	}
	back := func(words ...string) Way { return onePress(look, state, append(program, words...)) }
	number := func(s string) bool { n, err := strconv.Atoi(s); return err == nil && n > 0 }
	var rules [][]string // of the chain
	policy := ""
	for _, row := range list {
		switch {
		case len(row) > 1 && row[0] == "-A" && row[1] == chain:
			rules = append(rules, row[2:])
		case len(row) == 3 && row[0] == "-P" && row[1] == chain:
			policy = row[2]
		}
	}
	switch verb {
	case "A":
		return back("-D", chain, strconv.Itoa(len(rules)+1))
	case "I":
		at := "1"
		if len(rest) > 0 && number(rest[0]) {
			at = rest[0]
		}
		return back("-D", chain, at)
	case "P":
		if plainName.MatchString(policy) {
			return back("-P", chain, policy)
		}
	case "D":
		at := slices.IndexFunc(rules, func(r []string) bool { return slices.Equal(r, rest) })
		if len(rest) == 1 && number(rest[0]) {
			at, _ = strconv.Atoi(rest[0])
			at--
		}
		if at >= 0 && at < len(rules) {
			return back(append([]string{"-I", chain, strconv.Itoa(at + 1)}, rules[at]...)...)
		}
		return Way{Kind: approvals.ByHand, Note: "add the rule again with " + c.name + " -I at its place"}
	}
	return Way{}
}

// readRules reads what iptables -S prints: words, some of them between double quotes, where a backslash stands before
// a character that is meant as it is. A comment may hold line breaks. ok is false for anything else.
func readRules(out string) (rows [][]string, ok bool) {
	var row []string
	var word []byte
	began, inside := false, false
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case inside && c == '\\':
			if i++; i == len(out) {
				return nil, false
			}
			word = append(word, out[i])
		case c == '"':
			began, inside = true, !inside
		case inside || c != ' ' && c != '\n':
			word, began = append(word, c), true
		default:
			if began {
				row = append(row, string(word))
			}
			if word, began = nil, false; c == '\n' && len(row) > 0 {
				rows, row = append(rows, row), nil
			}
		}
	}
	return rows, !inside && !began && row == nil
}

func backFromUfw(_ context.Context, _ *probe, c call) Way {
	words := c.Texts(0)
	if len(words) > 1 && slices.Contains([]string{"allow", "deny", "reject", "limit"}, words[0]) {
		return Way{Kind: approvals.ByHand, Note: "ufw delete " + join(words)}
	}
	return Way{}
}

// backFromApt puts the named packages back to their versions. What else was installed for them stays.
func backFromApt(ctx context.Context, p *probe, c call) Way {
	verb, words := c.Operand(0), c.Texts(1)
	if len(words) == 0 || !slices.Contains([]string{"install", "remove", "purge"}, verb) {
		return Way{}
	}
	var names []string
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		if name == "" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.ContainsAny(name, "/*?[") {
			return Way{}
		}
		names = append(names, name)
	}
	// Names with no package make it fail, and the others are printed all the same.
	look := "dpkg-query -W -f '${Package}|${Version}|${db:Status-Status}\\n' " + join(names)
	out, state, ok := p.look(ctx, look)
	if !ok {
		return Way{}
	}
	was := map[string]string{}
	for _, row := range rows(out) {
		if f := strings.Split(row, "|"); len(f) == 3 && f[2] == "installed" && plainName.MatchString(f[1]) {
			was[f[0]] = f[1]
		}
	}
	var put, purge []string
	for _, n := range names {
		if v := was[n]; v != "" {
			put = append(put, n+"="+v)
		} else {
			purge = append(purge, n)
		}
	}
	var cmds [][]string
	if len(put) > 0 {
		cmds = append(cmds, append([]string{c.name, "install", "-y", "--allow-downgrades"}, put...))
	}
	if len(purge) > 0 && verb == "install" {
		cmds = append(cmds, append([]string{c.name, "purge", "-y"}, purge...))
	}
	if len(cmds) == 0 {
		return Way{}
	}
	w := onePress(look, state, cmds...)
	w.Note = " (doesn't undo changes to dependencies)"
	return w
}

func backFromMount(ctx context.Context, p *probe, c call) Way {
	options, kind := "", ""
	var operands []string
	words := c.Texts(0)
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case (w == "-t" || w == "-o") && i+1 < len(words):
			if i++; w == "-o" {
				options = words[i]
			} else {
				kind = words[i]
			}
		case w == "--bind":
		case strings.HasPrefix(w, "-"):
			return Way{}
		default:
			operands = append(operands, w)
		}
	}
	if len(operands) == 0 || len(operands) > 2 {
		return Way{}
	}
	at := operands[len(operands)-1]
	if !path.IsAbs(at) || path.Clean(at) != at {
		return Way{}
	}
	_, m, look, state, ok := p.mounted(ctx, at)
	if !ok {
		return Way{}
	}
	if slices.Contains(strings.Split(options, ","), "remount") {
		mode, _, _ := strings.Cut(m.options, ",")
		if mode != "rw" && mode != "ro" {
			return Way{}
		}
		return onePress(look, state, []string{"mount", "-o", "remount," + mode, at})
	}
	if inMemory(kind) { // what is written there later is lost with it
		look += "; ls -A -- " + quoted(at)
		if _, state, ok = p.look(ctx, look); !ok {
			return Way{}
		}
	}
	return onePress(look, state, []string{"umount", at})
}

// inMemory reports whether the files of a kind of file system are nowhere but there.
func inMemory(kind string) bool { return kind == "tmpfs" || kind == "ramfs" }

func backFromUnmount(ctx context.Context, p *probe, c call) Way {
	if len(c.Operands) != 1 || !path.IsAbs(c.Operand(0)) || path.Clean(c.Operand(0)) != c.Operand(0) {
		return Way{}
	}
	at := c.Operand(0)
	there, m, look, state, ok := p.mounted(ctx, at)
	switch {
	case !ok || !there:
		return Way{}
	case m.root != "/": // a part of a file system
		return Way{Kind: approvals.ByHand, Note: "mount --bind it again at " + show(at)}
	case inMemory(m.kind):
		return Way{Kind: approvals.NoWay, Note: "its files are in memory and lost"}
	case !slices.Contains(onDisks, m.kind) || !strings.HasPrefix(m.source, "/dev/") || strings.Contains(m.source+m.options, `\\`):
		// Its name may be one that a program of the kind runs.
		return Way{Kind: approvals.ByHand, Note: "mount it again at " + show(at)}
	}
	return onePress(look, state, []string{"mount", "-t", m.kind, "-o", m.options, m.source, at})
}

// onDisks are the kinds of file systems that the kernel mounts from a device alone.
var onDisks = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "iso9660", "udf", "squashfs"}

// mountRow is a row of /proc/self/mountinfo.
type mountRow struct{ root, options, kind, source string }

// mounted reads what is mounted at a place; there is false where nothing is.
func (p *probe) mounted(ctx context.Context, at string) (there bool, m mountRow, look, state string, ok bool) {
	look = "grep -F -- " + quoted(" "+at+" ") + " /proc/self/mountinfo"
	out, state, ok := p.look(ctx, look)
	for _, row := range rows(out) { // the last one is on top
		head, tail, found := strings.Cut(row, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if found && len(h) > 5 && h[4] == at && len(t) > 1 {
			there, m = true, mountRow{h[3], h[5], t[0], t[1]}
		}
	}
	return there, m, look, state, ok
}

// BackFromFiles is the way back from a command whose rehearsal showed all that it does: the files as they
// were are kept before it runs.
func BackFromFiles(r rehearsal.Report) Way {
	if !r.Complete() || len(r.Changes) == 0 {
		return Way{}
	}
	w := Way{Kind: approvals.OnePress}
	var bytes int64
	restores := 0
	for _, c := range r.Changes {
		switch c.Kind {
		case rehearsal.Created:
			w.Made = append(w.Made, c.Path)
		case rehearsal.Deleted, rehearsal.Written, rehearsal.Attributes, rehearsal.Touched:
			if c.Before.Type != 'f' && c.Before.Type != 'd' && c.Before.Type != 'l' || c.Before.Type != c.After.Type && c.Kind != rehearsal.Deleted {
				return Way{}
			}
			w.Keep = append(w.Keep, c.Path)
			if c.Before.Type == 'f' {
				bytes += c.Before.Size
				restores++
			}
		}
	}
	switch {
	case bytes > maxKept:
		return Way{Kind: approvals.NoWay, Note: size(bytes) + " of files is more than is kept"}
	case len(w.Keep)+len(w.Made) > maxKeptFiles:
		return Way{Kind: approvals.NoWay, Note: count(len(w.Keep)+len(w.Made), "file", "files") + " are more than are kept"}
	}
	var does []string
	if len(w.Keep) > 0 {
		does = append(does, "restores "+count(max(restores, 1), "file", "files"))
	}
	if len(w.Made) > 0 {
		does = append(does, "removes "+count(len(w.Made), "new file", "new files"))
	}
	w.Note = strings.Join(does, " and ")
	return w
}
