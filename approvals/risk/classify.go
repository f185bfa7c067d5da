package risk

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxText  = 8 << 10 // longer texts are for people
	maxDepth = 3       // bash -c inside ssh inside ...
	maxSteps = 2000    // commands looked at, loop bodies counted once per item
	maxNest  = 64      // syntax nodes inside one another
)

// Classify judges a text by the embedded tables alone: it is the Classify of an
// Engine without extensions. It judges shell text that bash will run exactly as
// it is, without aliases, functions or variables of its own, with a scrubbed
// environment, in a directory that is not known, and with nothing that holds it back.
// The verdict is a proof of reading only where every part of the text is known
// to do nothing else; anything unknown is not proven. It never fails: what
// can't be understood is not proven and of level High at least.
//
// It is a pure function, safe for concurrent use.
func Classify(command string) Verdict { return new(Engine).Classify(command) }

// Judge judges a text by the embedded tables alone; see Engine.Judge.
func Judge(t Text) Verdict { return new(Engine).Judge(t) }

// refusedVerdict is the verdict on a text that has no readable structure: its words
// alone set the level.
func refusedVerdict(command, why string) Verdict {
	j := newJudge()
	j.add(High, EffectUnknown, "%s", why)
	j.scan(command)
	return j.verdict(command)
}

// badBytes tells why a text isn't even parsed. The shell and the parser take
// some of these bytes differently, and a reader of the card doesn't see them.
func badBytes(s string) string {
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && r < 0x7f:
		case r == 0xFFFD:
			return fmt.Sprintf("the byte 0x%02x at position %d is not text", s[i], i+1)
		case r < ' ' || r == 0x7f:
			return fmt.Sprintf("there is an invisible control character (%s) at position %d", visibleRune(r), i+1)
		default:
			return fmt.Sprintf("there is a character outside plain ASCII (%s) at position %d", visibleRune(r), i+1)
		}
	}
	return ""
}

// judge collects what is found out about one text.
type judge struct {
	specs   map[string]*spec // the engine's; nil for the embedded ones
	places  []string         // where the extension says that secrets lie
	allowed []string         // the places beside the target that the extension lists
	reach   func(Hop) bool   // see Text

	shell    Shell // who reads what is judged now
	locked   bool  // the kernel keeps what is judged now from changing anything
	environs bool  // see Text.Environ
	remote   bool  // what is judged now runs at the other end of a hop
	execed   bool  // what is judged now is the program that an engine's exec starts
	lockOnly bool  // some part is proven only because the kernel holds it
	needs    []Need
	hops     []Hop
	environ  []string // see Verdict.Environ

	dirs        []string // where the current command may run; "" is not known
	okDirs      []string // where the next one may run if this one succeeds
	moved       bool     // the text changed its directory
	usesDir     bool     // what the text reads depends on the directory where it begins
	src         string
	issues      []issue
	proven      []string
	vars        map[string]word
	depth       int
	steps       int
	nest        int
	feed        *syntax.Stmt // what the current command reads from its pipe
	piped       bool         // its output goes into a pipe
	resolveOnly bool         // words are resolved without judging what they run
	probing     int          // how often what is judged is only perhaps a command
	inner       bool         // run by find or xargs with unknown words: no wrappers

	xargsNames argKind // what the unknown arguments of xargs are
	counted    bool    // its output goes into a program that only counts it
}

type issue struct {
	level  Level
	effect Effect
	reason string
	// aboutPlace says that the issue is about the place where the text runs: the commands
	// themselves may be fine.
	aboutPlace bool
}

func newJudge() *judge {
	return &judge{vars: map[string]word{}, shell: Bash, dirs: []string{""}, okDirs: []string{""}}
}

// probe returns a judge that knows what j knows, to try something out: what it finds
// does not count until it is taken over.
func (j *judge) probe(probing int) *judge {
	p := *j
	p.issues, p.proven, p.needs, p.hops, p.lockOnly = nil, nil, nil, nil, false
	p.probing, p.feed, p.piped, p.inner, p.xargsNames, p.counted = probing, nil, false, false, anyNames, false
	return &p
}

// addNeeds notes what a lock has to leave open for a program.
func (j *judge) addNeeds(n ...Need) {
	for _, need := range n {
		if !slices.Contains(j.needs, need) {
			j.needs = append(j.needs, need)
		}
	}
}

func (j *judge) add(l Level, e Effect, format string, args ...any) {
	j.issues = append(j.issues, issue{level: l, effect: e, reason: fmt.Sprintf(format, args...)})
}

// addPlaceIssue is add for what is about the place and not about a command.
func (j *judge) addPlaceIssue(l Level, e Effect, format string, args ...any) {
	j.issues = append(j.issues, issue{level: l, effect: e, reason: fmt.Sprintf(format, args...), aboutPlace: true})
}

// hasCommandIssue reports whether there is an issue behind the first n that is about a command.
func (j *judge) hasCommandIssue(n int) bool {
	return slices.ContainsFunc(j.issues[n:], func(i issue) bool { return !i.aboutPlace })
}

func (j *judge) verdict(command string) Verdict {
	v := Verdict{Command: command, Effects: []Effect{}, Reasons: []string{}, Anywhere: !j.usesDir}
	if len(j.issues) == 0 && len(j.proven) > 0 {
		v.ReadOnly = true
		v.Risk = Read
		v.proof = command
		v.locked = j.lockOnly
		v.Needs = slices.Sorted(slices.Values(j.needs))
		v.Hops, v.Environ = j.hops, j.environ
		v.Reasons = append(v.Reasons, "every part is proven to only read: "+strings.Join(j.proven, ", "))
		return v
	}
	if len(j.issues) == 0 {
		j.add(Low, EffectUnknown, "there is nothing to run")
	}
	v.Risk = Low
	slices.SortStableFunc(j.issues, func(a, b issue) int {
		if a.level != b.level {
			return int(b.level) - int(a.level)
		}
		return vague(a) - vague(b)
	})
	for _, i := range j.issues {
		v.Risk = Max(v.Risk, i.level)
		if i.effect == EffectUnknown && len(v.Effects) > 0 {
			i.effect = "" // what is known is as bad as what isn't
		}
		if i.effect != "" && !slices.Contains(v.Effects, i.effect) {
			v.Effects = append(v.Effects, i.effect)
		}
		r, _ := Visible(i.reason)
		if r != "" && !slices.Contains(v.Reasons, r) && len(v.Reasons) < 12 {
			v.Reasons = append(v.Reasons, r)
		}
	}
	slices.Sort(v.Effects)
	return v
}

// vague sorts what is only not known behind what is known.
func vague(i issue) int {
	if i.effect == EffectUnknown {
		return 1
	}
	return 0
}

// text parses and judges a whole text. A text inside another (bash -c) counts
// as one level of depth.
func (j *judge) text(command string, top bool) {
	if !top {
		if j.depth >= maxDepth {
			j.add(High, EffectExec, "commands are wrapped in one another more than %d times", maxDepth)
			j.scan(command)
			return
		}
		if why := badBytes(command); why != "" {
			j.add(High, EffectUnknown, "%s", why)
			j.scan(command)
			return
		}
		j.depth++
		defer func() { j.depth-- }()
	}
	file, err := parse(command, syntax.LangBash)
	if err != nil {
		j.add(High, EffectUnknown, "this is not complete shell syntax: %s", strings.TrimPrefix(err.Error(), ":"))
		j.scan(command)
		return
	}
	if why := shellMismatch(command, file, j.shell); why != "" {
		j.add(Medium, EffectUnknown, "%s", why)
	}
	src, vars, feed, probing, execed := j.src, j.vars, j.feed, j.probing, j.execed
	j.src, j.probing, j.execed = command, 0, false
	if !top {
		j.vars = map[string]word{}
	}
	j.feed = nil
	j.stmts(file.Stmts)
	j.src, j.vars, j.feed, j.probing, j.execed = src, vars, feed, probing, execed
}

func (j *judge) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		j.stmt(s)
	}
}

// nested judges the commands inside a node that itself is not provable, for
// their level.
func (j *judge) nested(n syntax.Node) {
	syntax.Walk(n, func(x syntax.Node) bool {
		if s, ok := x.(*syntax.Stmt); ok && x != n {
			j.stmt(s)
			return false
		}
		return true
	})
}

func (j *judge) stmt(s *syntax.Stmt) {
	j.nest++
	defer func() { j.nest-- }()
	j.steps++
	if j.nest > maxNest || j.steps > maxSteps {
		if j.steps == maxSteps+1 || j.nest == maxNest+1 {
			j.add(High, EffectUnknown, "the text has more parts than are looked at")
			j.scan(j.src)
		}
		return
	}
	if s.Negated && j.shell == AnyShell {
		j.add(Low, EffectUnknown, "`!` means something else to some shells")
	}
	if s.Background || s.Disown {
		j.add(Medium, EffectExec, "`&` leaves it running in the background")
	}
	if s.Coprocess {
		j.add(Medium, EffectExec, "a coprocess keeps running in the background")
	}
	if len(s.Redirs) > 0 {
		counted := j.counted
		j.counted = false // it may go elsewhere
		defer func() { j.counted = counted }()
	}
	for _, r := range s.Redirs {
		j.redirect(r)
	}
	j.okDirs = j.dirs
	if s.Cmd == nil {
		j.onlyLocked("a redirection without a program")
		j.prove("a redirection")
		return
	}
	j.command(s.Cmd)
	if s.Negated || s.Background {
		j.dirs = mergeDirs(j.dirs, j.okDirs)
		j.okDirs = j.dirs
	}
}

func (j *judge) command(cmd syntax.Command) {
	switch c := cmd.(type) {
	case *syntax.CallExpr:
		j.callExpr(c)
	case *syntax.BinaryCmd:
		switch c.Op {
		case syntax.AndStmt:
			j.stmt(c.X)
			after := mergeDirs(j.dirs, j.okDirs)
			j.dirs = j.okDirs
			j.stmt(c.Y)
			j.dirs = mergeDirs(after, j.dirs)
		case syntax.OrStmt:
			j.stmt(c.X)
			ok := j.okDirs
			j.dirs = mergeDirs(j.dirs, ok)
			j.stmt(c.Y)
			j.okDirs = mergeDirs(ok, j.okDirs)
			j.dirs = mergeDirs(ok, j.dirs)
		case syntax.Pipe, syntax.PipeAll:
			if c.Op == syntax.PipeAll {
				j.bashOnly("`|&`")
				j.onlyLocked("`|&`")
			}
			// Which side of a pipe changes the shell's own directory is up to the shell.
			feed, piped, counted, before := j.feed, j.piped, j.counted, j.dirs
			j.piped, j.counted = true, c.Op == syntax.Pipe && onlyCounts(c.Y)
			j.stmt(c.X)
			after := mergeDirs(before, j.dirs)
			j.piped, j.counted = piped, counted
			j.feed = c.X
			j.dirs = before
			j.stmt(c.Y)
			j.feed = feed
			j.dirs = mergeDirs(after, j.dirs)
			j.okDirs = j.dirs
		default:
			j.add(Medium, EffectUnknown, "an operator that is not known here")
			j.nested(c)
		}
	case *syntax.Subshell:
		j.onlyLocked("a subshell")
		j.inSubshell(func() { j.stmts(c.Stmts) })
	case *syntax.Block:
		j.onlyLocked("a block")
		j.stmts(c.Stmts)
	case *syntax.TimeClause:
		j.bashOnly("`time`")
		j.onlyLocked("`time`")
		j.prove("time")
		if c.Stmt != nil {
			j.stmt(c.Stmt)
		}
	case *syntax.IfClause:
		j.onlyLocked("an `if`")
		for x := c; x != nil; x = x.Else {
			j.stmts(x.Cond)
			j.dirs = mergeDirs(j.dirs, j.okDirs)
			j.stmts(x.Then)
			j.dirs = mergeDirs(j.dirs, j.okDirs)
		}
		j.okDirs = j.dirs
	case *syntax.ForClause:
		j.onlyLocked("a loop")
		j.enterLoop(c.Do)
		j.forClause(c)
		j.okDirs = j.dirs
	case *syntax.WhileClause:
		j.onlyLocked("a loop")
		j.enterLoop(c.Do)
		j.whileClause(c)
		j.okDirs = j.dirs
	case *syntax.TestClause:
		j.bashOnly("`[[`")
		j.onlyLocked("`[[`")
		if why := j.testExpr(c.X); why != "" {
			j.add(Medium, EffectUnknown, "%s", why)
		} else {
			j.prove("[[")
		}
	case *syntax.FuncDecl:
		j.add(Medium, EffectExec, "it defines a function, which changes what a name means")
		j.nested(c)
	case *syntax.DeclClause:
		j.add(Medium, EffectWrite, "`%s` changes variables of the shell", c.Variant.Value)
		j.nested(c)
	case *syntax.CoprocClause:
		j.add(Medium, EffectExec, "a coprocess keeps running in the background")
		j.nested(c)
	case *syntax.LetClause, *syntax.ArithmCmd:
		j.add(Medium, EffectUnknown, "arithmetic can run code through array subscripts")
		j.nested(c)
	case *syntax.CaseClause:
		j.add(Low, EffectUnknown, "`case` is not looked into")
		j.nested(c)
	default:
		j.add(Medium, EffectUnknown, "a form of command that is not known here")
		j.nested(c)
	}
}

func (j *judge) prove(name string) {
	if !slices.Contains(j.proven, name) {
		j.proven = append(j.proven, name)
	}
}

// testExpr proves [[ ... ]] without its arithmetic and subscript forms.
func (j *judge) testExpr(x syntax.TestExpr) string {
	switch x := x.(type) {
	case *syntax.Word:
		_, why := j.resolveWord(x)
		return why
	case *syntax.ParenTest:
		return j.testExpr(x.X)
	case *syntax.UnaryTest:
		j.usesDir = j.usesDir || !j.remote
		switch x.Op {
		case syntax.TsVarSet, syntax.TsRefVar, syntax.TsOptSet:
			return "`[[ -v` and its like evaluate subscripts, which can run code"
		default:
		}
		return j.testExpr(x.X)
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.TsNewer, syntax.TsOlder, syntax.TsDevIno:
			j.usesDir = j.usesDir || !j.remote
			fallthrough
		case syntax.AndTest, syntax.OrTest, syntax.TsMatch, syntax.TsMatchShort, syntax.TsNoMatch, syntax.TsReMatch, syntax.TsBefore, syntax.TsAfter:
			a, b := j.testExpr(x.X), j.testExpr(x.Y)
			if a != "" {
				return a
			}
			return b
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			for _, side := range []syntax.TestExpr{x.X, x.Y} {
				w, ok := side.(*syntax.Word)
				if !ok {
					return "a comparison that is not known here"
				}
				v, why := j.resolveWord(w)
				if why != "" || v.kind > wordAtom || v.kind == wordLit && !isDigits(strings.TrimPrefix(v.text, "-")) {
					return "`[[` evaluates what it compares as arithmetic, which can run code"
				}
			}
			return ""
		}
	}
	return "a test that is not known here"
}

func (j *judge) callExpr(c *syntax.CallExpr) {
	if len(c.Assigns) > 0 {
		j.onlyLocked("an assignment")
	}
	for _, a := range c.Assigns {
		j.assign(a, len(c.Args) > 0)
	}
	if len(c.Args) == 0 {
		return
	}
	argv := make([]word, 0, len(c.Args))
	whole := true
	for _, a := range c.Args {
		if words := plainBraces(a); len(words) > 0 {
			if j.shell != Bash {
				j.add(Medium, EffectUnknown, "braces that not every shell multiplies (`{a,b}`)")
				whole = false
			}
			j.onlyLocked("braces")
			argv = append(argv, words...)
			continue
		}
		w, why := j.resolveWord(a)
		if why != "" {
			j.add(Medium, EffectUnknown, "%s", why)
			whole = false
		}
		argv = append(argv, w)
	}
	j.run(argv, whole)
}

var braceWord = regexp.MustCompile(`^([A-Za-z0-9_./-]*)\{([A-Za-z0-9_./-]+(?:,[A-Za-z0-9_./-]+)+)\}([A-Za-z0-9_./-]*)$`)

// plainBraces multiplies one list of plain words, as bash does: a{b,c}d. Other
// braces are not looked into.
func plainBraces(a *syntax.Word) []word {
	if len(a.Parts) != 1 {
		return nil
	}
	l, ok := a.Parts[0].(*syntax.Lit)
	if !ok || strings.Contains(l.Value, "..") {
		return nil
	}
	m := braceWord.FindStringSubmatch(l.Value)
	if m == nil {
		return nil
	}
	var out []word
	for s := range strings.SplitSeq(m[2], ",") {
		out = append(out, lit(m[1]+s+m[3]))
	}
	return out
}

// trustedDirs are where programs may be named by their path.
var trustedDirs = []string{"/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"}

// programName returns the name under which a program's rules are found.
func programName(text string) (string, bool) {
	if !strings.Contains(text, "/") {
		return text, true
	}
	for _, d := range trustedDirs {
		if rest, ok := strings.CutPrefix(text, d); ok && rest != "" && !strings.Contains(rest, "/") {
			return rest, true
		}
	}
	return text, false
}

// run judges one command as the words that it will get. Words that could not
// be known well enough were already told; whole is false then, and only the
// level is of interest.
func (j *judge) run(argv []word, whole bool) {
	j.steps++
	if j.steps > maxSteps || len(argv) == 0 {
		return
	}
	before := len(j.issues)
	if argv[0].kind != wordLit {
		j.add(High, EffectExec, "which program runs is only known when it runs")
		j.addDangers(argv)
		j.judgeTail(argv)
		return
	}
	name, trusted := programName(argv[0].text)
	if !trusted {
		j.add(Medium, EffectExec, "`%s` is a file of its own, not a program of the system", argv[0].text)
		j.addDangers(argv)
		j.judgeTail(argv)
		return
	}
	j.checkContext(name, argv)
	if name != "tee" && slices.ContainsFunc(argv, func(w word) bool { return w.sink }) {
		j.add(Medium, EffectUnknown, "`>(...)` runs a command behind a file name")
	}
	execed := j.execed
	j.execed = false
	if w := wrapper(name); w != nil {
		if j.inner {
			j.add(Medium, EffectExec, "`%s` would run what only shows when it runs", name)
		}
		j.execed = execed && (name == "sh" || name == "dash" || name == "bash")
		if name == "command" {
			w(j, name, argv)
		} else {
			// Behind most of them, cd is not the shell's own and changes nothing.
			dirs := j.dirs
			w(j, name, argv)
			j.dirs = mergeDirs(dirs, j.dirs)
			j.okDirs = j.dirs
		}
		if j.hasCommandIssue(before) {
			j.addDangers(argv)
		}
		return
	}
	specs, err := j.tables()
	if err != nil {
		j.add(High, EffectUnknown, "the tables can't be read: %v", err)
		return
	}
	sp := specs[name]
	if sp == nil {
		j.unknownProgram(name, argv)
		return
	}
	j.match(sp, argv)
	if j.hasCommandIssue(before) {
		j.addDangers(argv)
		return
	}
	if !whole {
		j.addDangers(argv)
		return
	}
	if name == "cd" {
		j.cd(argv)
	}
	j.prove(name)
}

// unknownProgram tells of a program without a table.
func (j *judge) unknownProgram(name string, argv []word) {
	if j.addDangers(argv) {
		j.add(Medium, "", "") // the table's words are enough
	} else {
		j.add(Medium, EffectUnknown, "`%s` is not a program that is known here", name)
	}
	j.judgeTail(argv)
}

// MarshalJSON gives the verdict as `bot classify` prints it: the risk by name
// and lists that are never null.
func (v Verdict) MarshalJSON() ([]byte, error) {
	out := struct {
		Command  string   `json:"command"`
		ReadOnly bool     `json:"readonly"`
		Risk     string   `json:"risk"`
		Effects  []Effect `json:"effects"`
		Reasons  []string `json:"reasons"`
		Needs    []Need   `json:"needs,omitempty"`
		Hops     []Hop    `json:"hops,omitempty"`
	}{v.Command, v.ReadOnly, v.Risk.String(), v.Effects, v.Reasons, v.Needs, v.Hops}
	if v.Risk == Unknown {
		out.Risk = Critical.String()
	}
	if out.Effects == nil {
		out.Effects = []Effect{}
	}
	if out.Reasons == nil {
		out.Reasons = []string{}
	}
	return json.Marshal(out)
}
