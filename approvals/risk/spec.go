package risk

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed tables/*.txt
var tableFiles embed.FS

// style is how a program parses its options.
type style int

const (
	styleGNU   style = iota // getopt_long: clusters, --long=value, options anywhere
	styleCobra              // as GNU, and --bool=true, -n=value
	styleGo                 // Go's flag package: -flag value, -flag=value, --flag
	styleWord               // each option is one whole word (openssl, ip)
)

// spec describes one program or subcommand: the options and operands with which it certainly only
// reads.
type spec struct {
	name     string
	style    style
	flags    map[string]*flagSpec
	all      map[string]*flagSpec // also valid in every subcommand
	numeric  bool                 // -20
	numericF bool                 // -20f
	subs     map[string]*spec
	operands []operand
	noArgs   bool // operands were declared, even if as none
	bare     bool // may run without operands or subcommand
	benign   bool // no option of it, known or not, does more than read
	meta     bool // shows names and numbers, never the content of a file
	local    bool // its arguments reach another host: only literal texts
	device   bool // device files are its ordinary operands
	opens    bool // meta, but it opens what it is given: no devices
	lists    bool // meta, but one of its options shows the content of a list of names
	free     bool // every word is an operand, even with a dash
	own      bool // from the embedded tables
	locked   bool // trusted only under a lock
	untested bool // the table was never tested against the program
	ordered  bool // after its first operand an option is an operand
	response bool // an argument "@file" is replaced by the file's content
	sends    bool // its standard input goes to another host
	dir      bool // the directory that it runs in is an operand of it
	root     bool // trusted only in "/": it loads files of the directory that it runs in
	strict   bool // the table has all of its options: not even --version is known otherwise
	needs    [][]string
	lock     []Need // what a lock must leave open for it
	check    string
}

type flagSpec struct {
	arity  int // 0 none, 1 required, 2 optional and attached
	pred   string
	more   string // the kind of a second value
	locked bool   // as of spec
	lock   []Need // as of spec
}

type operand struct {
	pred     string
	min, max int // max < 0: any number
}

// tables are the embedded tables, read once.
var tables = sync.OnceValues(func() (map[string]*spec, error) {
	names, err := tableFiles.ReadDir("tables")
	if err != nil {
		return nil, err
	}
	out := map[string]*spec{}
	for _, n := range names {
		text, err := tableFiles.ReadFile("tables/" + n.Name())
		if err != nil {
			return nil, err
		}
		if n.Name() == dangerFile {
			continue
		}
		if err := parseTable(n.Name(), string(text), out); err != nil {
			return nil, err
		}
	}
	for _, s := range out {
		s.own = true
	}
	return out, nil
})

type tableLine struct {
	no, indent int
	text       string
	kids       []*tableLine
}

// parseTable reads one table. What is not in a table is not proven. The form is indented lines:
//
//	tool NAME...            one spec for each name; more tokens may follow " :"
//	  sub NAME... : tokens  a subcommand, nested by indentation
//	  all TOKENS            options that are valid in every subcommand, too
//	  with !locked TOKENS   options that are trusted only under a lock
//	  with !needs=N TOKENS  options for which a lock must leave something open
//	  use DEF               the lines below "def DEF" at the top
//	  TOKENS                any of
//	    -abc                options without value, each letter one
//	    --long, -x,-long    options without value, each name one word
//	    -n:kind, -n?:kind   an option with a value; with a joined, optional one
//	    --n:kind:kind       an option with two values
//	    -#, -#f             -20 and the like; -20f, too
//	    @kind @kind? @kind* @kind+ @none   operands in order
//	    !cobra !go !word    how options are read, if not as getopt_long does
//	    !benign !meta !local !device !opens !lists !free !bare see spec
//	    !locked             trusted only under a lock: it reads its configuration from
//	                        the directory, makes files of its own, or can be led astray
//	    !untested           never run against this table: without a lock it asks for all
//	                        but its plainest form
//	    !ordered            its options come before its operands
//	    !response           "@file" stands for the content of the file
//	    !sends              what it reads from its standard input goes to another host
//	    !dir                what it shows depends on the directory that it runs in
//	    !root               trusted only where it runs in "/": it loads configuration or
//	                        code from the directory that it runs in
//	    !strict             --version and --help are known only if they stand in the table
//	    !needs=net,netlink,admin,processes,devices,unix:/path
//	                        what a lock must leave open for it, see Need
//	    !need=-a,--b        one of these options must be there
//	    !check=rule         a rule in checks.go looks at the rest
//
// The kinds are those of accepts.
func parseTable(file, text string, out map[string]*spec) error {
	macros := map[string][]*tableLine{}
	for _, l := range tableLines(text) {
		head, rest, _ := strings.Cut(l.text, " ")
		switch head {
		case "def":
			macros[strings.TrimSpace(rest)] = l.kids
		case "tool":
			names, inline, _ := strings.Cut(rest, " :")
			for name := range strings.FieldsSeq(names) {
				// A name with a NUL is for the rules only: no text has one.
				name = strings.NewReplacer(`\0`, "\x00", `\c`, ":").Replace(name)
				if _, twice := out[name]; twice {
					return fmt.Errorf("%s:%d: %s is there twice", file, l.no, name)
				}
				s := newSpec(name, styleGNU)
				if err := s.fill(file, l.no, inline, l.kids, macros); err != nil {
					return err
				}
				out[name] = s
			}
		default:
			return fmt.Errorf("%s:%d: want tool or def, have %q", file, l.no, head)
		}
	}
	return nil
}

// tableLines reads the lines of a table as a tree by their indentation.
func tableLines(text string) []*tableLine {
	root := &tableLine{indent: -1}
	stack := []*tableLine{root}
	for no, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		l := &tableLine{no: no + 1, indent: len(line) - len(trimmed), text: strings.TrimRight(trimmed, " ")}
		for stack[len(stack)-1].indent >= l.indent {
			stack = stack[:len(stack)-1]
		}
		parent := stack[len(stack)-1]
		parent.kids = append(parent.kids, l)
		stack = append(stack, l)
	}
	return root.kids
}

func newSpec(name string, st style) *spec {
	return &spec{name: name, style: st, flags: map[string]*flagSpec{}, all: map[string]*flagSpec{}, subs: map[string]*spec{}}
}

func (s *spec) fill(file string, no int, inline string, kids []*tableLine, macros map[string][]*tableLine) error {
	if err := s.tokens(file, no, inline, s.flags); err != nil {
		return err
	}
	for _, l := range kids {
		head, rest, _ := strings.Cut(l.text, " ")
		switch head {
		case "use":
			kids, ok := macros[rest]
			if !ok {
				return fmt.Errorf("%s:%d: no def %s", file, l.no, rest)
			}
			if err := s.fill(file, l.no, "", kids, macros); err != nil {
				return err
			}
		case "all":
			if err := s.tokens(file, l.no, rest, s.all); err != nil {
				return err
			}
		case "with":
			if err := s.with(file, l.no, rest); err != nil {
				return err
			}
		case "sub":
			names, inline, _ := strings.Cut(rest, " :")
			for name := range strings.FieldsSeq(names) {
				sub := s.subs[name]
				if sub == nil {
					sub = newSpec(s.name+" "+name, s.style)
					sub.meta, sub.benign, sub.local, sub.device, sub.opens, sub.lists = s.meta, s.benign, s.local, s.device, s.opens, s.lists
					s.subs[name] = sub
				}
				if err := sub.fill(file, l.no, inline, l.kids, macros); err != nil {
					return err
				}
			}
		default:
			if err := s.tokens(file, l.no, l.text, s.flags); err != nil {
				return err
			}
		}
	}
	return nil
}

// with reads options that share an attribute.
func (s *spec) with(file string, no int, text string) error {
	attr, options, _ := strings.Cut(text, " ")
	into := map[string]*flagSpec{}
	if err := s.tokens(file, no, options, into); err != nil {
		return err
	}
	if len(into) == 0 {
		return fmt.Errorf("%s:%d: no options behind %s", file, no, attr)
	}
	var lock []Need
	if val, ok := strings.CutPrefix(attr, "!needs="); ok {
		var err error
		if lock, err = parseNeeds(val); err != nil {
			return fmt.Errorf("%s:%d: %w", file, no, err)
		}
	} else if attr != "!locked" {
		return fmt.Errorf("%s:%d: want with !locked or !needs=, have %s", file, no, attr)
	}
	for name, f := range into {
		if old := s.flags[name]; old != nil && (old.locked || len(old.lock) > 0) && old.arity == f.arity && old.pred == f.pred {
			f = old // a second attribute of the same option
		}
		f.locked = f.locked || attr == "!locked"
		f.lock = append(f.lock, lock...)
		s.flags[name] = f
	}
	return nil
}

// parseNeeds reads a list of needs.
func parseNeeds(text string) ([]Need, error) {
	var out []Need
	for part := range strings.SplitSeq(text, ",") {
		n := Need(part)
		switch {
		case n == NeedNet, n == NeedNetlink, n == NeedProcesses, n == NeedDevices, n == NeedAdmin:
		case strings.HasPrefix(part, string(NeedUnix)+"/"):
		default:
			return nil, fmt.Errorf("unknown need %q: write net, netlink, admin, processes, devices or unix:/path", part)
		}
		out = append(out, n)
	}
	return out, nil
}

func (s *spec) tokens(file string, no int, text string, into map[string]*flagSpec) error {
	for t := range strings.FieldsSeq(text) {
		switch {
		case t[0] == '!':
			key, val, _ := strings.Cut(t[1:], "=")
			switch key {
			case "benign":
				s.benign = true
			case "meta":
				s.meta = true
			case "local":
				s.local = true
			case "device":
				s.device = true
			case "opens":
				s.opens = true
			case "lists":
				s.lists = true
			case "free":
				s.free = true
			case "bare":
				s.bare = true
			case "cobra":
				s.style = styleCobra
			case "go":
				s.style = styleGo
			case "word":
				s.style = styleWord
			case "locked":
				s.locked = true
			case "untested":
				s.untested = true
			case "ordered":
				s.ordered = true
			case "response":
				s.response = true
			case "sends":
				s.sends = true
			case "dir":
				s.dir = true
			case "root":
				s.root = true
			case "strict":
				s.strict = true
			case "needs":
				lock, err := parseNeeds(val)
				if err != nil {
					return fmt.Errorf("%s:%d: %w", file, no, err)
				}
				s.lock = append(s.lock, lock...)
			case "need":
				s.needs = append(s.needs, strings.Split(val, ","))
			case "check":
				s.check = val
			default:
				return fmt.Errorf("%s:%d: unknown attribute %s", file, no, t)
			}
		case t[0] == '@':
			o := operand{pred: t[1:], min: 1, max: 1}
			switch t[len(t)-1] {
			case '*':
				o.min, o.max, o.pred = 0, -1, t[1:len(t)-1]
			case '+':
				o.max, o.pred = -1, t[1:len(t)-1]
			case '?':
				o.min, o.pred = 0, t[1:len(t)-1]
			}
			s.noArgs = true
			if o.pred == "none" {
				continue
			}
			if !isKnownPred(o.pred) {
				return fmt.Errorf("%s:%d: unknown kind %s", file, no, t)
			}
			s.operands = append(s.operands, o)
		case t == "-#":
			s.numeric = true
		case t == "-#f":
			s.numeric, s.numericF = true, true
		case t[0] == '-':
			// "-n:num,--lines:num", "-n,--lines:num" or "-ls,-list": names of one or
			// more options; a kind belongs to those before it, too.
			parts := strings.Split(t, ",")
			f := flagSpec{}
			for i, part := range slices.Backward(parts) {
				name := part
				if head, pred, ok := strings.Cut(part, ":"); ok {
					pred, more, two := strings.Cut(pred, ":")
					if two && !isKnownPred(more) {
						return fmt.Errorf("%s:%d: unknown kind %s", file, no, part)
					}
					name, f = head, flagSpec{arity: 1, pred: pred, more: more}
					if strings.HasSuffix(name, "?") {
						name, f.arity = name[:len(name)-1], 2
					}
					if !isKnownPred(pred) {
						return fmt.Errorf("%s:%d: unknown kind %s", file, no, part)
					}
				}
				if i == 0 && len(parts) == 1 && f.arity == 0 && len(name) > 2 && name[1] != '-' && (s.style == styleGNU || s.style == styleCobra) {
					for _, c := range name[1:] {
						into["-"+string(c)] = &flagSpec{}
					}
					continue
				}
				g := f
				into[name] = &g
			}
		default:
			return fmt.Errorf("%s:%d: can't read %q", file, no, t)
		}
	}
	return nil
}

// call is one command whose arguments a spec has sorted.
type call struct {
	spec     *spec
	root     *spec // of the program
	argv     []word
	flags    []usedFlag
	operands []word
	path     []string // the subcommands, outermost first
}

type usedFlag struct {
	name  string
	spec  *flagSpec
	value word
	has   bool
	off   bool // an option without value, given as --name=false
}

// has reports whether one of the flags was given. Of --x and --x=false the last one counts, as it does
// in the programs.
func (c *call) has(names ...string) bool {
	for _, f := range slices.Backward(c.flags) {
		if slices.Contains(names, f.name) {
			return !f.off
		}
	}
	return false
}

// value returns the last value of one of the flags.
func (c *call) value(names ...string) (string, bool) {
	for _, f := range slices.Backward(c.flags) {
		if slices.Contains(names, f.name) && f.has {
			return f.value.text, true
		}
	}
	return "", false
}

// pagesHelp reports whether --help may open a pager (systemd, less), or nothing but the program's
// version is known.
func (s *spec) pagesHelp() bool {
	return s.style == styleGNU && (s.check == "pager" || strings.HasSuffix(s.name, "ctl") || strings.HasPrefix(s.name, "systemd-") || len(s.needs) > 0 && s.needs[0][0] == "--version")
}

// match sorts argv by the spec. Whatever does not fit becomes an issue.
func (j *judge) match(root *spec, argv []word) {
	if root.own && !root.strict && len(argv) == 2 && (argv[1].is("--version") || argv[1].is("--help") && !root.pagesHelp()) && (root.style == styleGNU || root.style == styleCobra) {
		if root.locked {
			j.onlyLocked("`" + root.name + "`")
		}
		j.checkRoot(root)
		return // getopt_long accepts nothing else for it, so the program exits here
	}
	c := &call{spec: root, root: root, argv: argv}
	cur := root
	chain := []*spec{root}
	lookup := func(name string) *flagSpec {
		if f := cur.flags[name]; f != nil {
			return f
		}
		for _, s := range slices.Backward(chain) {
			if f := s.all[name]; f != nil {
				return f
			}
		}
		return nil
	}
	if root.response && !j.hasNoResponseFile(root, argv) {
		return
	}
	ended := false
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if cur.ordered && w.mayBeOption() && len(c.operands) > 0 && w.text != "-" {
			j.add(Medium, EffectUnknown, "`%s` takes `%s` behind its first argument for a file", cur.name, w.text)
			return
		}
		if w.kind == wordOpaque || w.kind == wordGlob && w.mayBeOption() && !ended {
			// It may expand to any option.
			if !cur.benign {
				j.add(Medium, EffectUnknown, "an argument of `%s` is only known when it runs and could be an option", cur.name)
				return
			}
			if w.kind == wordOpaque && (!cur.meta || cur.opens || cur.lists) && !j.hidesContent(c) {
				j.add(Medium, EffectSecrets, "which file `%s` reads is only known when it runs", cur.name)
				return
			}
			c.operands = append(c.operands, w)
			continue
		}
		if w.multi && w.kind != wordGlob && !cur.benign {
			j.add(Medium, EffectUnknown, "an unquoted expansion in `%s` may become several arguments, or none", cur.name)
			return
		}
		if cur.free && w.kind == wordLit {
			c.operands = append(c.operands, w)
			continue
		}
		if w.mayBeOption() && !ended && (w.kind != wordLit || w.text != "-") {
			if w.kind != wordLit {
				// A known option with a value that is an atom: --since=$(date +%F).
				name, _, ok := strings.Cut(w.prefix, "=")
				if f := lookup(name); ok && f != nil && f.arity > 0 && w.kind == wordAtom && cur.style != styleWord {
					v := word{kind: w.kind, text: w.text[len(name)+1:], prefix: w.prefix[len(name)+1:], multi: w.multi}
					j.flagValue(c, cur, f, name, v)
					continue
				}
				if f := lookup(name); ok && f != nil && f.arity > 0 && w.kind == wordGlob {
					if s, one := w.onlyExpansion(); one && strings.HasPrefix(s, name+"=") {
						j.flagValue(c, cur, f, name, lit(w.text[len(name)+1:]))
						j.flagValue(c, cur, f, name, lit(s[len(name)+1:]))
						continue
					}
				}
				j.add(Medium, EffectUnknown, "an option of `%s` is only known when it runs", cur.name)
				return
			}
			if w.text == "--" && cur.style != styleWord {
				ended = true
				continue
			}
			n, ok := j.option(c, cur, lookup, argv[i:])
			if !ok {
				return
			}
			i += n
			continue
		}
		if len(cur.subs) > 0 && len(c.operands) == 0 && !ended {
			if w.kind == wordLit {
				if sub := cur.subs[w.text]; sub != nil {
					cur = sub
					chain = append(chain, sub)
					c.path = append(c.path, w.text)
					c.spec = sub
					continue
				}
			}
			if !cur.noArgs {
				j.add(Medium, EffectUnknown, "`%s %s` is not known to only read", cur.name, w.text)
				return
			}
		}
		c.operands = append(c.operands, w)
	}
	j.matchOperands(c, cur)
	j.collectNeeds(c, chain)
	for _, s := range chain {
		if s.bare && s.noArgs && len(argv) == 1 {
			continue
		}
		for _, need := range s.needs {
			if !c.has(need...) {
				j.add(Medium, EffectUnknown, "`%s` without `%s` is not known to only read", cur.name, need[0])
			}
		}
	}
	for _, s := range chain {
		if s.check == "" {
			continue
		}
		check := checks(s.check)
		if check == nil {
			j.add(Medium, EffectUnknown, "`%s` has no rule", s.name)
			return
		}
		check(j, c)
	}
}

// hasNoResponseFile refuses arguments that may stand for the content of a file, which could contain any
// option.
func (j *judge) hasNoResponseFile(root *spec, argv []word) bool {
	for _, w := range argv[1:] {
		if strings.HasPrefix(w.text, "@") || w.kind >= wordGlob && (w.prefix == "" || w.prefix[0] == '@') {
			j.add(Medium, EffectUnknown, "`%s` reads options from a file whose name begins with `@`: write ./ before names", root.name)
			return false
		}
	}
	return true
}

// collectNeeds collects what a lock must leave open for a call, and records what is trusted only under one.
func (j *judge) collectNeeds(c *call, chain []*spec) {
	untested := false
	for _, s := range chain {
		j.addNeeds(s.lock...)
		untested = untested || s.untested
		if s.locked {
			j.onlyLocked("`" + s.name + "`")
		}
		j.checkRoot(s)
		if s.dir && (len(c.operands) == 0 || slices.ContainsFunc(c.spec.operands, func(o operand) bool { return o.pred != "path" })) {
			j.usesDir = j.usesDir || !j.remote
		}
		if s.sends && !j.sendsNoInput(c) {
			j.add(Medium, EffectEgress, "`%s` sends what it reads to another host: add </dev/null", s.name)
			return
		}
	}
	for _, f := range c.flags {
		if f.spec == nil {
			continue
		}
		j.addNeeds(f.spec.lock...)
		if f.spec.locked {
			j.onlyLocked("`" + f.name + "` of `" + c.spec.name + "`")
		}
		switch f.spec.pred {
		case "host", "addr":
			j.addServices(f.value.text)
		case "node":
			if _, host, remote := strings.Cut(f.value.text, "@"); remote {
				j.addServices(host)
			}
		case "context", "profile":
			j.addHop(f.spec.pred, f.value.text)
		case "socket":
			j.addNeeds(NeedUnix + Need(f.value.text))
		case "pgport":
			for _, dir := range []string{"/run/postgresql", "/var/run/postgresql", "/tmp"} {
				j.addNeeds(NeedUnix + Need(dir+"/.s.PGSQL."+f.value.text))
			}
		case "engine":
			j.addHop("context", f.value.text)
			j.addNeeds(NeedNet)
		}
	}
	if untested && !isPlainForm(c) {
		j.onlyLocked("options of `" + c.spec.name + "`")
	}
	j.needProcesses(c.argv)
}

// checkRoot refuses a program that loads files of the directory that it runs in, but in "/", where only
// root can put any. Of a program that was never run without a lock it is not known whether it does, and
// where it reaches a daemon or the network no lock holds what it would do.
func (j *judge) checkRoot(s *spec) {
	if !s.root && (!s.untested && !s.locked || len(s.lock) == 0 || s.dir) {
		return
	}
	if j.remote || slices.ContainsFunc(j.dirs, func(d string) bool { return d != "/" }) {
		j.addPlaceIssue(Low, EffectExec, "`%s` may load files from the current directory: run it as its own command, with absolute paths", s.name)
	}
}

// needProcesses leaves other processes readable for a command that names their files below /proc.
func (j *judge) needProcesses(argv []word) {
	for _, w := range argv[1:] {
		_, rest, ok := strings.Cut(w.text, "/proc/")
		if ok && rest != "" && strings.IndexByte("0123456789*?[", rest[0]) >= 0 {
			j.addNeeds(NeedProcesses)
		}
	}
}

// plainForms are the options of a plain form, which mean the same in every program.
var plainForms = strings.Fields(`-o --output --format -n --namespace -A --all-namespaces -l --selector --tail --since --until --last --limit --no-headers --version --client --help -h
 -g --resource-group --subscription --name --location --region --project --cluster-name --pod --service --query`)

// isPlainForm reports whether a call is a subcommand with literal operands and only options whose meaning
// is common knowledge.
func isPlainForm(c *call) bool {
	var needed []string
	for _, s := range []*spec{c.root, c.spec} {
		for _, n := range s.needs {
			needed = append(needed, n...)
		}
	}
	for _, f := range c.flags {
		if !slices.Contains(plainForms, f.name) && !slices.Contains(needed, f.name) || f.has && f.value.kind != wordLit {
			return false
		}
	}
	return !slices.ContainsFunc(c.argv, func(w word) bool { return w.kind != wordLit })
}

func (j *judge) matchOperands(c *call, cur *spec) {
	ops := c.operands
	if len(ops) == 0 {
		for _, o := range cur.operands {
			if o.min > 0 {
				if !cur.bare {
					j.add(Low, EffectInteractive, "`%s` needs more arguments", cur.name)
				}
				return
			}
		}
		if len(cur.subs) > 0 && !cur.bare && !cur.noArgs {
			j.add(Low, EffectUnknown, "`%s` without a subcommand is not known to only read", cur.name)
		}
		return
	}
	i := 0
	for n, o := range cur.operands {
		left := 0
		for _, later := range cur.operands[n+1:] {
			left += later.min
		}
		took := 0
		for i < len(ops) && (o.max < 0 || took < o.max) && len(ops)-i > left {
			w := ops[i]
			if w.kind != wordLit && w.multi && o.max >= 0 && (!cur.benign || w.kind != wordOpaque) {
				j.add(Medium, EffectUnknown, "`%s` becomes a number of arguments that only shows when it runs", w.text)
				return
			}
			if !j.accepts(cur, o.pred, w) {
				if o.min == 0 && o.max == 1 && n+1 < len(cur.operands) {
					break // an optional word that is absent
				}
				j.reject(cur, o.pred, w)
				return
			}
			if o.pred == "addr" {
				j.addServices(w.text)
			}
			i++
			took++
		}
		if took < o.min {
			j.add(Low, EffectUnknown, "`%s` needs more arguments", cur.name)
			return
		}
	}
	if i < len(ops) {
		if len(cur.operands) == 0 && len(cur.subs) > 0 {
			j.add(Medium, EffectUnknown, "`%s %s` is not known to only read", cur.name, ops[i].text)
			return
		}
		j.add(Medium, EffectUnknown, "`%s` with the argument `%s` is not known to only read", cur.name, ops[i].text)
	}
}

// option reads one option and returns how many more words it consumed.
func (j *judge) option(c *call, cur *spec, lookup func(string) *flagSpec, argv []word) (int, bool) {
	text := argv[0].text
	unknown := func(name string) (int, bool) {
		j.add(Medium, EffectUnknown, "unknown option `%s` of `%s`", name, cur.name)
		return 0, false
	}
	next := func(f *flagSpec, name string) (int, bool) {
		if f.more != "" {
			if len(argv) < 3 || argv[1].kind != wordLit || argv[2].multi || !j.accepts(cur, f.pred, argv[1]) || argv[2].kind == wordOpaque {
				j.add(Medium, EffectUnknown, "the values of `%s` of `%s` are missing or only known when it runs", name, cur.name)
				return 0, false
			}
			return 2, j.flagValue(c, cur, &flagSpec{arity: 1, pred: f.more, locked: f.locked, lock: f.lock}, name, argv[2])
		}
		if len(argv) < 2 {
			j.add(Medium, EffectUnknown, "the option `%s` of `%s` has no value", name, cur.name)
			return 0, false
		}
		if argv[1].multi && len(argv) > 2 && !cur.benign {
			j.add(Medium, EffectUnknown, "the value of `%s` may become several arguments, or none", name)
			return 0, false
		}
		return 1, j.flagValue(c, cur, f, name, argv[1])
	}
	if cur.style == styleWord {
		f := lookup(text)
		if f == nil {
			return unknown(text)
		}
		if f.arity == 1 {
			return next(f, text)
		}
		c.flags = append(c.flags, usedFlag{name: text, spec: f})
		return 0, true
	}
	long := strings.HasPrefix(text, "--")
	if cur.style == styleGo {
		name, value, eq := strings.Cut(text, "=")
		name = "-" + strings.TrimLeft(name, "-")
		f := lookup(name)
		switch {
		case f == nil:
			return unknown(name)
		case eq && f.arity == 0:
			if value != "true" && value != "false" {
				return unknown(text)
			}
			c.flags = append(c.flags, usedFlag{name: name, spec: f, value: lit(value), has: true, off: value == "false"})
			return 0, true
		case eq:
			return 0, j.flagValue(c, cur, f, name, lit(value))
		case f.arity == 1:
			return next(f, name)
		}
		c.flags = append(c.flags, usedFlag{name: name, spec: f})
		return 0, true
	}
	if long {
		name, value, eq := strings.Cut(text, "=")
		f := lookup(name)
		switch {
		case f == nil:
			return unknown(name)
		case eq && f.arity == 0:
			if cur.style != styleCobra || value != "true" && value != "false" {
				return unknown(text)
			}
			c.flags = append(c.flags, usedFlag{name: name, spec: f, value: lit(value), has: true, off: value == "false"})
			return 0, true
		case eq && f.more != "":
			return unknown(text)
		case eq:
			return 0, j.flagValue(c, cur, f, name, lit(value))
		case f.arity == 1:
			return next(f, name)
		}
		c.flags = append(c.flags, usedFlag{name: name, spec: f})
		return 0, true
	}
	if (cur.numeric || c.root.numeric) && isDigits(text[1:]) || cur.numericF && isDigits(strings.TrimSuffix(text[1:], "f")) {
		return 0, true
	}
	// A word with a single dash: a whole option if the table has one, else a cluster.
	if len(text) > 2 {
		name, value, eq := strings.Cut(text, "=")
		if f := lookup(name); f != nil && len(name) > 2 {
			switch {
			case eq && f.arity > 0:
				return 0, j.flagValue(c, cur, f, name, lit(value))
			case eq:
				return unknown(text)
			case f.arity == 1:
				return next(f, name)
			}
			c.flags = append(c.flags, usedFlag{name: name, spec: f})
			return 0, true
		}
	}
	for k := 1; k < len(text); k++ {
		name := "-" + text[k:k+1]
		f := lookup(name)
		if f == nil {
			return unknown(name)
		}
		rest := text[k+1:]
		if f.arity == 0 {
			if strings.HasPrefix(rest, "=") {
				return unknown(text)
			}
			c.flags = append(c.flags, usedFlag{name: name, spec: f})
			continue
		}
		if rest != "" {
			if cur.style == styleCobra {
				rest = strings.TrimPrefix(rest, "=")
			}
			return 0, j.flagValue(c, cur, f, name, lit(rest))
		}
		if f.arity == 2 {
			c.flags = append(c.flags, usedFlag{name: name, spec: f})
			return 0, true
		}
		return next(f, name)
	}
	return 0, true
}

func (j *judge) flagValue(c *call, cur *spec, f *flagSpec, name string, v word) bool {
	if v.kind == wordOpaque && v.multi && (!cur.meta || cur.opens || cur.lists) && j.xargsNames != wholeNames {
		j.add(Medium, EffectSecrets, "what follows the value of `%s` is only known when it runs and could be files for `%s`", name, cur.name)
		return false
	}
	if v.kind == wordGlob {
		s, one := v.onlyExpansion()
		if !one || strings.HasPrefix(s, "-") {
			j.add(Medium, EffectUnknown, "the value of `%s` is a pattern that files can change", name)
			return false
		}
		if !j.accepts(cur, f.pred, lit(s)) {
			j.reject(cur, f.pred, lit(s))
			return false
		}
		v = lit(v.text)
	}
	if v.kind == wordOpaque && !v.multi && f.pred == "text" && !cur.local && cur.style == styleGNU {
		// The argument is the value whatever it looks like.
		c.flags = append(c.flags, usedFlag{name: name, spec: f, value: v, has: true})
		return true
	}
	if !j.accepts(cur, f.pred, v) {
		j.reject(cur, f.pred, v)
		return false
	}
	c.flags = append(c.flags, usedFlag{name: name, spec: f, value: v, has: true})
	return true
}
