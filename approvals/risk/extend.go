package risk

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

const (
	maxTools    = 64 << 10 // bytes of an extension's tables
	maxExamples = 500      // of each kind
	toolsFile   = "risk.tools"
)

// Extension is what an operator adds to the embedded tables, for programs that exist only in their
// installation. It can add entries but never change existing ones.
type Extension struct {
	// Tools is a table in the form that parseTable reads, at most 64 KiB of
	// plain ASCII. It names new programs, or new subcommands of known ones.
	Tools string `yaml:"tools,omitempty"`
	// Examples are the tests of the table. They run whenever it is loaded.
	Examples Examples `yaml:"examples,omitempty"`
	// Secrets are files and directories that hold secrets but are not recognised by name or usual
	// location: absolute paths, at most 100, the same on every target.
	Secrets []string `yaml:"secrets,omitempty"`
	// Places are what everybody may reach in a read, at most 500. Beside the target: "ssh:NAME",
	// "docker:NAME", "podman:NAME", "nerdctl:NAME", "kubectl:POD", "kubectl:NAMESPACE:POD",
	// "context:NAME", "profile:NAME" and "engine:ADDRESS", as commands name them. Outside:
	// "s3://BUCKET", "gs://BUCKET", "HOST", "*.DOMAIN" and "HOST:PORT", which a read may send data to.
	Places []string `yaml:"places,omitempty"`
}

// Examples are commands with the verdict that an extension must give, at most 500 of each kind. Every
// program or subcommand in Extension.Tools needs one of each: a proven command, and one that asks
// because of its own arguments.
type Examples struct {
	ReadOnly []string `yaml:"readonly,omitempty"`
	Asks     []string `yaml:"asks,omitempty"`
}

// Engine judges shell text by the embedded tables and an extension. It is immutable and safe for
// concurrent use; the zero Engine has no extension.
type Engine struct {
	specs map[string]*spec // nil for the embedded ones
	added map[string]bool  // programs that only the extension knows
	// places are the extension's locations of secrets.
	places []string
	// checked says that New has run the extension's checks; see everything.
	checked bool
	// allowed are the extension's places beside the target.
	allowed []string
}

//go:embed never.txt
var neverText string

// New checks an extension and returns the engine that uses it. The error is one sentence that names
// the line of risk.tools or the example, and says what to do.
//
// An extension is refused as a whole if it cannot be read, or if
//
//   - it names a program that the tables know, except for a new subcommand of one that has subcommands;
//   - it names a shell, an interpreter, an editor, a wrapper, a builtin, or anything in the danger table;
//   - an example gets another verdict than stated, or is missing;
//   - it would prove one of the attacks in never.txt.
func New(ext Extension) (*Engine, error) {
	e, added, err := build(ext.Tools)
	if err != nil {
		return nil, err
	}
	if e.places, err = checkPlaces(ext.Secrets); err != nil {
		return nil, err
	}
	if e.allowed, err = checkAllowed(ext.Places); err != nil {
		return nil, err
	}
	if err := e.checkNever(); err != nil {
		return nil, err
	}
	if err := e.checkExamples(ext.Examples, added); err != nil {
		return nil, err
	}
	e.checked = true
	return e, nil
}

// Classify judges a text that bash runs without a lock, where the bot's own reads run: see [Settle] and
// [Text.Environ].
func (e *Engine) Classify(command string) Verdict {
	_, v := Settle(e.Judge, Text{Command: command, Environ: true, Shell: Bash})
	return v
}

// Judge judges a text for the place where it will run. [Classify] explains what a proof means. Judge
// is safe for concurrent use.
func (e *Engine) Judge(t Text) (v Verdict) {
	if v, ok := e.proveEverything(t); ok {
		return v
	}
	command := t.Command
	defer func() {
		if r := recover(); r != nil {
			v = refusedVerdict(command, "the text could not be analysed")
		}
	}()
	if len(command) > maxText {
		return refusedVerdict(command, fmt.Sprintf("the text is longer than %d bytes", maxText))
	}
	if why := badBytes(command); why != "" {
		return refusedVerdict(command, why)
	}
	j := newJudge()
	j.specs, j.places, j.allowed, j.reach = e.specs, e.places, e.allowed, t.Reach
	j.shell, j.locked, j.environs = t.Shell, t.Locked, t.Environ
	if path.IsAbs(t.Dir) {
		j.dirs = []string{path.Clean(t.Dir)}
	}
	j.text(command, true)
	for i, name := range j.proven {
		if e.added[name] {
			j.proven[i] = name + " (added by the configuration)"
		}
	}
	return j.verdict(command)
}

// tables returns the specs that this judge uses.
func (j *judge) tables() (map[string]*spec, error) {
	if j.specs != nil {
		return j.specs, nil
	}
	return tables()
}

// addition is one program or subcommand that an extension added.
type addition struct {
	path []string // the program, then its subcommands
	line int
}

func (a addition) String() string { return strings.Join(a.path, " ") }

// build parses an extension's table and adds it to the embedded ones.
func build(text string) (*Engine, []addition, error) {
	known, err := tables()
	if err != nil {
		return nil, nil, fmt.Errorf("the embedded tables cannot be read: %w", err)
	}
	if strings.TrimSpace(text) == "" {
		return new(Engine), nil, nil
	}
	at, err := checkForm(text)
	if err != nil {
		return nil, nil, err
	}
	parsed := map[string]*spec{}
	if err := parseTable(toolsFile, text, parsed); err != nil {
		return nil, nil, fmt.Errorf("%w; write it as the table's form says", err)
	}
	e := &Engine{specs: maps.Clone(known), added: map[string]bool{}}
	var added []addition
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		path := []string{name}
		if why := forbiddenName(name, known[name] != nil); why != "" {
			return nil, nil, fmt.Errorf("%s:%d: `%s` cannot be added, because %s; leave it out", toolsFile, at.line(path), name, why)
		}
		if known[name] == nil {
			if err := checkSpec(parsed[name], at.line(path)); err != nil {
				return nil, nil, err
			}
			e.specs[name] = parsed[name]
			e.added[name] = true
			added = append(added, addition{path, at.line(path)})
			continue
		}
		merged, more, err := merge(known[name], parsed[name], path, at)
		if err != nil {
			return nil, nil, err
		}
		if len(more) == 0 {
			return nil, nil, fmt.Errorf("%s:%d: `%s` is known already and nothing is added to it; leave it out", toolsFile, at.line(path), name)
		}
		e.specs[name] = merged
		added = append(added, more...)
	}
	return e, added, nil
}

// lineOf maps programs and subcommands to the lines that name them.
type lineOf map[string]int

// line returns the line of a path or of its longest known prefix.
func (l lineOf) line(path []string) int {
	for n := len(path); n > 0; n-- {
		if no := l[strings.Join(path[:n], "\x00")]; no > 0 {
			return no
		}
	}
	return 0
}

// checkForm refuses what the parser of our own tables assumes away: lines that it would ignore, blocks
// that use one another, unusual characters.
func checkForm(text string) (lineOf, error) {
	if len(text) > maxTools {
		return nil, fmt.Errorf("%s has more than %d bytes; keep what is needed", toolsFile, maxTools)
	}
	for i, line := range strings.Split(text, "\n") {
		for _, c := range []byte(line) {
			if c < ' ' || c >= 0x7f {
				return nil, fmt.Errorf("%s:%d: there is the byte 0x%02x; indent with spaces and write plain ASCII", toolsFile, i+1, c)
			}
		}
	}
	at := lineOf{}
	var walk func(l *tableLine, path []string, inDef bool) error
	walk = func(l *tableLine, path []string, inDef bool) error {
		head, rest, _ := strings.Cut(l.text, " ")
		names, _, _ := strings.Cut(rest, " :")
		var paths [][]string
		top := len(path) == 0 && !inDef
		switch {
		case head == "def" && top:
			inDef = true
		case head == "tool" && top, head == "sub" && !top:
			if strings.TrimSpace(names) == "" {
				return fmt.Errorf("%s:%d: `%s` has no name; write one behind it", toolsFile, l.no, head)
			}
			for name := range strings.FieldsSeq(names) {
				if !plainName(name) {
					return fmt.Errorf("%s:%d: %q is no name; use letters, digits and . _ + - only, and \" :\" before what follows", toolsFile, l.no, name)
				}
				p := append(slices.Clone(path), name)
				if at[strings.Join(p, "\x00")] == 0 {
					at[strings.Join(p, "\x00")] = l.no
				}
				paths = append(paths, p)
			}
		case top:
			return fmt.Errorf("%s:%d: want tool or def, have %q; indent what belongs to one", toolsFile, l.no, head)
		case head == "use" && inDef:
			return fmt.Errorf("%s:%d: a def cannot use another; write its lines out", toolsFile, l.no)
		case len(l.kids) > 0:
			return fmt.Errorf("%s:%d: this line belongs to nothing; only lines below tool, sub and def are indented", toolsFile, l.kids[0].no)
		}
		if len(paths) == 0 {
			paths = [][]string{path}
		}
		for _, k := range l.kids {
			for _, p := range paths {
				if err := walk(k, p, inDef); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, l := range tableLines(text) {
		if depth(l) > maxSubs {
			return nil, fmt.Errorf("%s:%d: it is nested more than %d deep; write subcommands that exist", toolsFile, l.no, maxSubs)
		}
		if err := walk(l, nil, false); err != nil {
			return nil, err
		}
	}
	return at, nil
}

const maxSubs = 6 // a program and its subcommands

func depth(l *tableLine) int {
	deepest := 0
	for _, k := range l.kids {
		deepest = max(deepest, depth(k))
	}
	return deepest + 1
}

func plainName(s string) bool {
	if s == "" || len(s) > 64 || strings.IndexByte("._+-", s[0]) >= 0 {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") == ""
}

// Names that no table may have, in addition to the wrappers and the danger table: they run their
// arguments, change the shell itself, or wait for a person.
var (
	shellWords = strings.Fields(`. : [ [[ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs disown do done
 echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs kill let local logout mapfile popd printf
 pushd pwd read readarray readonly return select set shift shopt source suspend test then time times trap true type typeset ulimit umask unalias unset until
 wait while`)
	// Words that are reserved or built in in zsh, fish or tcsh.
	otherWords = strings.Fields(`- @ abbr alloc and argparse autoload begin bindkey block breakpoint breaksw builtins bye chdir contains count default disable echotc emit emulate end
 endif endsw filetest float foreach funced funcsave functions glob goto hashstat hup inlib integer isatty limit log login logout ls-F math migrate nice nocorrect noglob not
 notify onintr open or path print prevd nextd pushln r random rehash repeat sched set_color setenv setopt setpath settc setty status stop string switch telltc termname treewalk
 ttyctl uncomplete unfunction unhash unlimit unsetenv unsetopt vared ver version watchlog whence where zcompile zformat zle zmodload zparseopts zprof zpty zregexparse zselect
 zsocket zstyle ztcp nohup man`)
	interpreters = strings.Fields(`python pypy perl ruby jruby node nodejs php lua luajit java javac jshell scala kotlin groovy clojure go tclsh wish expect osascript pwsh powershell
 r rscript julia deno bun ghci runghc runhaskell ocaml elixir iex erl escript guile racket sbcl clisp ecl gawk mawk nawk octave sqlite sqlite3 raku
 ipython jupyter bc dc m4 gdb lldb node-gyp ts-node tsx npx pnpx bunx uvx pipx poetry make gmake ninja cmake meson rake gradle mvn ant bazel just task tox nox
 cargo npm yarn pnpm pip uv conda mamba gem bundle composer cpan docker-compose podman-compose vagrant packer ansible ansible-playbook ansible-inventory ansible-console ansible-doc
 ansible-galaxy ansible-pull ansible-test ansible-vault ldd salt salt-call puppet chef
 sh bash dash ash zsh ksh mksh fish csh tcsh rbash xonsh nu elvish busybox toybox ld-linux ld.so`)
	editors = strings.Fields(`vi vim view vimdiff nvim gvim rvim rview nano rnano pico emacs emacsclient ed red ex micro joe jed mcedit mc hx helix kak code codium subl sublime_text
 gedit kate mousepad geany ne tilde vis zile mg nvi elvis less more most man info pinfo watch top htop screen tmux zellij`)
)

// forbiddenName returns why a program may not be in an extension, or "".
func forbiddenName(name string, known bool) string {
	lower := strings.ToLower(name) // some file systems ignore case
	table, err := dangers()
	if err != nil {
		return "the table of dangers cannot be read"
	}
	if known && slices.Contains([]string{"kubectl", "docker", "podman", "nerdctl"}, name) {
		return "" // the wrapper has a table of subcommands
	}
	bare := strings.TrimRight(lower, "0123456789.-_") // python3.12, lua5.4
	first, _, _ := strings.Cut(lower, ".")
	switch {
	case wrapper(lower) != nil || wrapper(bare) != nil:
		return "it has rules of its own"
	case slices.Contains(shellWords, lower) || slices.Contains(otherWords, lower):
		return "it belongs to the shell"
	case slices.Contains(interpreters, lower) || slices.Contains(interpreters, bare):
		return "it runs code that it is given"
	case slices.Contains(editors, lower) || slices.Contains(editors, bare):
		return "it is an editor or a pager, which can start a shell"
	case known:
		return ""
	case table[lower] != nil || table[first+".*"] != nil || table[bare] != nil:
		return "it is in the table of dangers"
	}
	k, err := tables()
	if err != nil || k[lower] != nil {
		return "it is the name of a known program in other letters"
	}
	return ""
}

// checkSpec refuses what makes no sense in an extension's spec.
func checkSpec(s *spec, line int) error {
	if s.check != "" && checks(s.check) == nil {
		return fmt.Errorf("%s:%d: there is no rule !check=%s; leave it out", toolsFile, line, s.check)
	}
	for name, sub := range s.subs {
		if !plainName(name) {
			return fmt.Errorf("%s:%d: %q is no name; use letters, digits and . _ + - only", toolsFile, line, name)
		}
		if err := checkSpec(sub, line); err != nil {
			return err
		}
	}
	return nil
}

// merge adds an extension's new subcommands to a known spec. It changes neither; the result shares
// unchanged parts.
func merge(old, ext *spec, path []string, at lineOf) (*spec, []addition, error) {
	line := at.line(path)
	name := strings.Join(path, " ")
	if len(ext.flags) > 0 || len(ext.all) > 0 || ext.numeric || ext.noArgs || ext.bare || ext.benign || ext.meta || ext.local || ext.device ||
		len(ext.needs) > 0 || ext.check != "" {
		return nil, nil, fmt.Errorf("%s:%d: `%s` is known already and cannot be changed; only add subcommands to it", toolsFile, line, name)
	}
	if len(old.subs) == 0 || len(old.operands) > 0 {
		return nil, nil, fmt.Errorf("%s:%d: `%s` is known already and has no subcommands; leave it out", toolsFile, line, name)
	}
	if ext.style != old.style {
		return nil, nil, fmt.Errorf("%s:%d: `%s` reads its options in another way; write %s behind its name", toolsFile, line, name, old.style)
	}
	out := *old
	out.subs = maps.Clone(old.subs)
	var added []addition
	for _, sub := range slices.Sorted(maps.Keys(ext.subs)) {
		p := append(slices.Clone(path), sub)
		if was := old.subs[sub]; was != nil {
			merged, more, err := merge(was, ext.subs[sub], p, at)
			if err != nil {
				return nil, nil, err
			}
			out.subs[sub] = merged
			added = append(added, more...)
			continue
		}
		s := ext.subs[sub]
		if err := checkSpec(s, at.line(p)); err != nil {
			return nil, nil, err
		}
		if danger := dangerousWords(s, p); danger != "" {
			return nil, nil, fmt.Errorf("%s:%d: `%s` cannot be added, because it is in the table of dangers; leave it out", toolsFile, at.line(p), danger)
		}
		if old.local {
			markLocal(s)
		}
		out.subs[sub] = s
		added = append(added, addition{p, at.line(p)})
	}
	return &out, added, nil
}

func markLocal(s *spec) {
	s.local = true
	for _, sub := range s.subs {
		markLocal(sub)
	}
}

// String returns the attribute that selects the style in a table.
func (s style) String() string {
	switch s {
	case styleCobra:
		return "!cobra"
	case styleGo:
		return "!go"
	case styleWord:
		return "!word"
	case styleGNU:
	}
	return "no other style"
}

// dangerousWords returns the words of a subcommand, its options or its choices that the danger table
// contains, or "".
func dangerousWords(s *spec, path []string) string {
	words := []string{""}
	choices := func(pred string) {
		if strings.Contains(pred, "|") || strings.HasPrefix(pred, "=") {
			words = append(words, strings.Split(strings.TrimPrefix(pred, "="), "|")...)
		}
	}
	for _, flags := range []map[string]*flagSpec{s.flags, s.all} {
		for name, f := range flags {
			words = append(words, name)
			choices(f.pred)
		}
	}
	for _, o := range s.operands {
		choices(o.pred)
	}
	slices.Sort(words)
	for _, w := range words {
		argv := make([]word, 0, len(path)+1)
		for _, p := range path {
			argv = append(argv, lit(p))
		}
		if w != "" {
			argv = append(argv, lit(w))
		}
		if newJudge().addDangers(argv) {
			return strings.TrimSpace(strings.Join(path, " ") + " " + w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.subs)) {
		if d := dangerousWords(s.subs[name], append(slices.Clone(path), name)); d != "" {
			return d
		}
	}
	return ""
}

// neverRows returns the commands that no extension may prove. The file has them in C-like escapes.
func neverRows() ([]string, error) {
	var out []string
	for line := range strings.SplitSeq(neverText, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		row, err := strconv.Unquote(`"` + strings.ReplaceAll(line, `"`, `\"`) + `"`)
		if err != nil {
			return nil, fmt.Errorf("never.txt: %q: %w", line, err)
		}
		out = append(out, row)
	}
	if len(out) == 0 {
		return nil, errors.New("never.txt is empty")
	}
	return out, nil
}

// judgeWidest judges a text with everything allowed, so that whatever a table could prove is proven.
func (e *Engine) judgeWidest(command string) Verdict {
	_, v := Settle(e.Judge, Text{Command: command, Dir: "/srv", Locked: true, Environ: true, Shell: Bash, Reach: func(Hop) bool { return true }})
	return v
}

func (e *Engine) checkNever() error {
	rows, err := neverRows()
	if err != nil {
		return fmt.Errorf("the list of attacks cannot be read: %w", err)
	}
	for _, c := range rows {
		if e.judgeWidest(c).ReadOnly {
			return fmt.Errorf("%s would let %q run without asking; take out what proves it", toolsFile, c)
		}
	}
	return nil
}

func (e *Engine) checkExamples(ex Examples, added []addition) error {
	if len(ex.ReadOnly) > maxExamples || len(ex.Asks) > maxExamples {
		return fmt.Errorf("risk.examples has more than %d of one kind; keep the telling ones", maxExamples)
	}
	for _, c := range ex.ReadOnly {
		if v := e.judgeWidest(c); !v.ReadOnly {
			return fmt.Errorf("risk.examples.readonly: %q is not proven, because %s; correct the table or the example", c, v.Reasons[0])
		}
	}
	for _, c := range ex.Asks {
		if e.judgeWidest(c).ReadOnly {
			return fmt.Errorf("risk.examples.asks: %q is proven to only read; correct the table or the example", c)
		}
	}
	for _, a := range added {
		if !slices.ContainsFunc(ex.ReadOnly, func(c string) bool { return calls(c, a.path, false) }) {
			return fmt.Errorf("%s:%d: `%s` has no example that only reads; add one to risk.examples.readonly", toolsFile, a.line, a)
		}
		if !slices.ContainsFunc(ex.Asks, func(c string) bool { return calls(c, a.path, true) }) {
			return fmt.Errorf("%s:%d: `%s` has no example that asks; add a plain command of it to risk.examples.asks", toolsFile, a.line, a)
		}
	}
	return nil
}

// calls reports whether a text runs a program with its subcommands, written out. alone requires that
// the text does nothing else, so that a verdict on the text is one on the program.
func calls(text string, path []string, alone bool) bool {
	file, err := bash.Parse(text)
	if err != nil {
		return false
	}
	hit := false
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		name, trusted := programName(call.Args[0].Lit())
		if !trusted || name != path[0] {
			return true
		}
		rest := path[1:]
		for _, a := range call.Args[1:] {
			if len(rest) > 0 && a.Lit() == rest[0] {
				rest = rest[1:]
			}
		}
		hit = hit || len(rest) == 0
		return true
	})
	if !hit || !alone {
		return hit
	}
	if len(file.Stmts) != 1 {
		return false
	}
	s := file.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(s.Redirs) == 0 && !s.Background && !s.Negated && len(call.Assigns) == 0 && len(call.Args) > 0 && !expands(call)
}

// expands reports whether a command has words that the shell assembles.
func expands(call *syntax.CallExpr) bool {
	found := false
	syntax.Walk(call, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.CmdSubst, *syntax.ParamExp, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob:
			found = true
		}
		return !found
	})
	return found
}
