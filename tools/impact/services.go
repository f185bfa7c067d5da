package impact

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals/argv"
)

// sayUnits speaks of systemctl.
func sayUnits(ctx context.Context, p *probe, c call) {
	verb, units := c.Operand(0), c.Texts(1)
	switch verb {
	case "reboot", "poweroff", "halt", "kexec", "soft-reboot", "rescue", "emergency", "suspend", "hibernate":
		sayMachine(ctx, p, c)
		return
	case "start", "stop", "restart", "reload", "try-restart", "reload-or-restart", "try-reload-or-restart", "enable", "disable", "mask", "kill", "reenable":
	default:
		return
	}
	if c.Has("--user") && p.lifted {
		return // the units of another account
	}
	p.units(ctx, verb, units, repeatOptions(c.Args, "--user"))
}

// sayService speaks of `service NAME VERB`.
func sayService(ctx context.Context, p *probe, c call) {
	if len(c.Operands) == 2 && slices.Contains([]string{"start", "stop", "restart", "reload", "force-reload"}, c.Operand(1)) {
		p.units(ctx, c.Operand(1), []string{c.Operand(0)}, "")
	}
}

func (p *probe) units(ctx context.Context, verb string, units []string, scope string) {
	if len(units) == 0 {
		return
	}
	out, ok := p.output(ctx, "systemctl"+scope+" show --no-pager --property=Id,LoadState,ActiveState,SubState,UnitFileState,StateChangeTimestamp,RequiredBy,BoundBy,ConsistsOf -- "+join(units))
	if !ok {
		return
	}
	for i, block := range strings.Split(strings.TrimSpace(out), "\n\n") {
		if i == maxShown {
			p.add("and other units")
			break
		}
		f := map[string]string{}
		for _, row := range rows(block) {
			k, v, _ := strings.Cut(row, "=")
			f[k] = v
		}
		if f["Id"] == "" {
			continue
		}
		if f["LoadState"] == "not-found" {
			p.add("%s is not known to systemd", show(f["Id"]))
			continue
		}
		state := f["ActiveState"]
		if f["SubState"] != "" && f["SubState"] != state {
			state += " (" + f["SubState"] + ")"
		}
		if since := f["StateChangeTimestamp"]; since != "" {
			state += " since " + since
		}
		if f["UnitFileState"] != "" {
			state += ", " + f["UnitFileState"] + " at boot"
		}
		p.add("%s is %s", show(f["Id"]), state)
		// Only these follow a stop; what merely wants the unit does not.
		need := slices.Compact(slices.Sorted(slices.Values(strings.Fields(f["RequiredBy"] + " " + f["BoundBy"] + " " + f["ConsistsOf"]))))
		stops := verb == "stop" || verb == "kill" || strings.Contains(verb, "restart")
		if stops && strings.HasPrefix(f["Id"], "countersign.") {
			p.add(sayEndsBot)
		}
		if len(need) > 0 && stops {
			p.add("  what requires it would %s, too: %s", strings.TrimPrefix(verb, "try-"), some(need))
		} else if len(need) > 0 {
			p.add("  it is required by %s", some(need))
		}
	}
	if slices.Contains([]string{"stop", "restart", "disable", "mask", "kill"}, verb) && len(units) == 1 {
		if list, ok := p.rows(ctx, "systemctl"+scope+" list-dependencies --reverse --plain --no-legend --no-pager -- "+join(units)); ok && len(list) > 1 {
			for i := range list {
				list[i] = strings.TrimSpace(list[i])
			}
			p.add("in some way depend on it: %s", some(list[1:])) // the first is itself
		}
	}
}

// sayMachine speaks of reboot and shutdown.
func sayMachine(ctx context.Context, p *probe, c call) {
	last := c.Operand(len(c.Operands) - 1)
	if (c.name == "init" || c.name == "telinit") && last != "0" && last != "6" ||
		slices.ContainsFunc(c.Operands, func(w argv.Word) bool {
			return slices.Contains([]string{"-c", "-k", "-w", "--help", "--show", "--wtmp-only"}, w.Text)
		}) {
		return
	}
	if rows, ok := p.rows(ctx, "uptime"); ok && len(rows) > 0 {
		p.add("the machine: %s", strings.TrimSpace(rows[0]))
	}
	if rows, ok := p.rows(ctx, "who"); ok {
		if len(rows) == 0 {
			p.add("nobody is logged in")
			return
		}
		p.add("logged in: %s", count(len(rows), "session", "sessions"))
		p.list(rows)
	}
}

// signals are the names that `kill -l` lists on Linux.
var signals = strings.Fields("HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH POLL IO PWR SYS")

// withoutSignal takes the signal (-9, -KILL, -SIGTERM) out of the arguments of
// kill, pkill and killall, where it is the first of several.
func withoutSignal(words []argv.Word) (rest []argv.Word, found bool) {
	if len(words) < 2 || len(words[0].Text) < 2 || words[0].Text[0] != '-' {
		return words, false
	}
	s := words[0].Text[1:]
	if strings.Trim(s, "0123456789") == "" || slices.Contains(signals, strings.TrimPrefix(s, "SIG")) {
		return words[1:], true
	}
	return words, false
}

// sayKill speaks of kill with process ids; of a group where the id is negative.
func sayKill(ctx context.Context, p *probe, c call) {
	words, given := withoutSignal(c.Operands)
	if !given {
		a, ok := argv.ParseArgs("!first -s: -n: --signal:", words)
		if !ok {
			return
		}
		words = a.Operands
	} else if words[0].Text == "--" {
		words = words[1:]
	}
	var pids []string
	for _, w := range words {
		id, group := strings.CutPrefix(w.Text, "-")
		if id == "" || strings.Trim(id, "0123456789") != "" || len(id) > 10 || strings.Trim(id, "0") == "" {
			return
		}
		switch {
		case group && id == "1":
			p.add("would signal every process that its account may signal")
			return
		case group:
			rows, ok := p.rows(ctx, "pgrep -g "+id)
			if !ok {
				return
			}
			pids = append(pids, rows...)
		default:
			pids = append(pids, id)
		}
	}
	p.processes(ctx, pids)
}

// sayMatch speaks of pkill: pgrep finds the same processes.
func sayMatch(ctx context.Context, p *probe, c call) {
	words, _ := withoutSignal(c.Operands)
	a, ok := argv.ParseArgs("-fxonvie -u: -U: -g: -G: -P: -t: -s: --euid: --uid: --parent: --full --exact --newest --oldest --echo --ignore-case --signal: --inverse", words)
	if !ok || len(a.Operands) > 1 {
		return
	}
	for i, f := range a.Flags {
		if f.Name == "-s" || f.Name == "-g" {
			return // a session or group of 0 is the caller's own
		}
		if f.Name == "-e" || f.Name == "--echo" || f.Name == "--signal" {
			a.Flags[i].Name = ""
		}
	}
	command := "pgrep" + repeatOptions(a, "-f", "-x", "-o", "-n", "-v", "-i", "-u", "-U", "-G", "-P", "-t", "--euid", "--uid", "--parent", "--full", "--exact", "--newest", "--oldest", "--ignore-case", "--inverse")
	if len(a.Operands) == 1 {
		command += " -- " + quoted(a.Operand(0))
	}
	p.matched(ctx, command)
}

// comm is how much of a process's name the kernel keeps, in bytes.
const comm = 15

// sayKillAll speaks of killall, which takes whole names.
func sayKillAll(ctx context.Context, p *probe, c call) {
	words, _ := withoutSignal(c.Operands)
	a, ok := argv.ParseArgs("-Iqvwe --ignore-case --quiet --verbose --wait --exact -s: --signal: -u: --user:", words)
	if !ok || len(a.Operands) == 0 {
		return
	}
	for _, name := range a.Texts(0) {
		if len(name) > comm {
			continue // pgrep can't tell it from others that begin like it
		}
		command := "pgrep -x"
		if a.Has("-I", "--ignore-case") {
			command += " -i"
		}
		if u, ok := a.Value("-u", "--user"); ok {
			command += " -u " + quoted(u)
		}
		p.matched(ctx, command+" -- "+quoted(regexp.QuoteMeta(name)))
	}
}

func (p *probe) matched(ctx context.Context, command string) {
	out, exit, done := p.read(ctx, command)
	switch {
	case done && exit == 1:
		p.add("no process fits")
	case done && exit == 0:
		p.processes(ctx, rows(out))
	}
}

// sayEndsBot warns of what ends the bot that asks.
const sayEndsBot = "this ends the bot itself"

// ownTerminals and ownProcess find the bot and its terminals in a row of ps, whichever bot's they are.
var (
	ownTerminals = regexp.MustCompile(`[ /]tmux.* (\S*/)?countersign-`)
	ownProcess   = regexp.MustCompile(`[ /](countersign|bot) (run|demo)( |$)`)
)

// processes says which processes these are.
func (p *probe) processes(ctx context.Context, pids []string) {
	var known []string
	for _, id := range pids {
		if _, err := strconv.ParseUint(id, 10, 32); err == nil && !slices.Contains(known, id) && len(known) < 200 {
			known = append(known, id)
		}
	}
	if len(known) == 0 {
		return
	}
	out, exit, done := p.read(ctx, "ps -ww -o pid=,user:20=,lstart=,args= -p "+strings.Join(known, ","))
	list := slices.DeleteFunc(rows(out), func(row string) bool { return strings.Contains(row, p.command) }) // what looks, and rehearses
	switch {
	case !done || exit > 1:
	case len(list) == 0:
		p.add("no such process: %s", some(known))
	default:
		if slices.ContainsFunc(list, ownTerminals.MatchString) {
			p.add("this ends the terminals of all conversations here")
		}
		if slices.ContainsFunc(list, ownProcess.MatchString) {
			p.add(sayEndsBot)
		}
		var names []string
		for i, row := range list {
			// pid user weekday month day time year command
			f := strings.Fields(row)
			if len(f) > 7 {
				if n := strings.TrimSuffix(path.Base(f[7]), ":"); !slices.Contains(names, n) {
					names = append(names, n)
				}
				list[i] = strings.Join(f[:2], " ") + ", since " + strings.Join(f[3:7], " ") + ": " + strings.Join(f[7:], " ")
			}
		}
		if len(list) > 1 && len(names) > 0 {
			p.add("would signal %s (%s):", count(len(list), "process", "processes"), some(names))
			p.list(list)
			return
		}
		p.together("would signal "+count(len(list), "process", "processes"), list)
	}
}

// sayCrontab speaks of crontab FILE and crontab -r.
func sayCrontab(ctx context.Context, p *probe, c call) {
	const list = "crontab -l"
	if c.Has("-r") && len(c.Operands) == 0 {
		if out, exit, done := p.read(ctx, list); done && exit == 0 {
			jobs := slices.DeleteFunc(rows(out), func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "#") })
			p.add("would remove the whole crontab, %s:", count(len(jobs), "line", "lines"))
			p.list(jobs)
		}
		return
	}
	if len(c.Operands) != 1 || c.Operand(0) == "-" || len(c.Flags) > 0 {
		return
	}
	out, exit, done := p.read(ctx, list+" | diff - "+p.where(c.Operands[0]))
	if !done || exit > 1 {
		return
	}
	changed := slices.DeleteFunc(rows(out), func(l string) bool { return l[0] != '<' && l[0] != '>' })
	if len(changed) == 0 {
		p.add("would change nothing: the crontab is the same as the file")
		return
	}
	p.add("would change %s of the crontab (< goes, > comes):", count(len(changed), "line", "lines"))
	p.list(changed)
}

// sayIptables speaks of every change to iptables: how many rules there are.
func sayIptables(ctx context.Context, p *probe, c call) {
	table := "filter"
	flush, chain := false, ""
	for i, w := range c.Operands {
		next := c.Operand(i + 1)
		switch w.Text {
		case "-t", "--table":
			table = next
		case "-F", "--flush", "-X", "--delete-chain":
			flush = flush || strings.HasPrefix(w.Text, "-F") || w.Text == "--flush"
			if !strings.HasPrefix(next, "-") && chain == "" {
				chain = next
			}
		case "-L", "-S", "-C", "--list", "--list-rules", "--check", "-V", "--version", "-h", "--help":
			return
		}
	}
	if table == "" || strings.Trim(table, "abcdefghijklmnopqrstuvwxyz") != "" {
		return
	}
	list, ok := p.rows(ctx, c.name+" -t "+table+" -S")
	if !ok {
		return
	}
	all := 0
	var gone, policies []string
	for _, row := range list {
		switch f := strings.Fields(row); {
		case len(f) < 2 || f[0] != "-A" && f[0] != "-P":
		case f[0] == "-A":
			if all++; chain == "" || f[1] == chain {
				gone = append(gone, row)
			}
		case len(f) > 2 && (chain == "" || f[1] == chain):
			policies = append(policies, f[1]+" "+f[2])
		}
	}
	if !flush {
		p.add("the table %s has %s now", table, count(all, "rule", "rules"))
		return
	}
	p.together(fmt.Sprintf("would remove %d of the %s in the table %s", len(gone), count(all, "rule", "rules"), table), gone)
	if len(policies) > 0 { // they decide then
		p.add("the policy stays: %s", strings.Join(policies, ", "))
	}
}

// sayNft speaks of changes by nft: how many rules there are.
func sayNft(ctx context.Context, p *probe, c call) {
	if c.Operand(0) == "list" || len(c.Operands) == 0 {
		return
	}
	list, ok := p.rows(ctx, "nft -a list ruleset")
	if !ok {
		return
	}
	rules, tables, policies := 0, 0, 0
	for _, row := range list {
		switch row = strings.TrimSpace(row); {
		case strings.HasPrefix(row, "table "):
			tables++
		case strings.HasSuffix(row, "policy drop;"):
			policies++
		case strings.Contains(row, " # handle ") && !strings.Contains(row, "{ # handle "):
			rules++
		}
	}
	if c.Operand(0) != "flush" || c.Operand(1) != "ruleset" {
		p.add("all tables together have %s now", count(rules, "rule", "rules"))
		return
	}
	p.add("would remove everything: %s with %s", count(tables, "table", "tables"), count(rules, "rule", "rules"))
	if policies > 0 {
		p.add("%s would drop no longer what no rule accepts", count(policies, "chain", "chains"))
	}
}
