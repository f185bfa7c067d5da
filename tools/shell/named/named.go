// Package named finds the words of a shell text that may name files which decide what the text
// does: the script passed to bash, the manifest that kubectl applies, a program called by its path.
// The caller checks which of them exist, and binds the approval to their content.
//
// It is generous: every literal word is a candidate, wherever it is, also inside text that is
// quoted for another shell, and so is the directory before a pattern or variable ("/srv/old" of
// "/srv/old/*"). It accesses no files, judges no risk, and does not find names that are only known
// at run time ("$x", "*.sh"). It also does not find files that a program opens on its own, except
// for well-known ones ("make" reads a Makefile).
package named

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// Use is what the text does with a file, as far as the text tells.
type Use int

// The uses, strongest first: if a file has several, the strongest counts.
const (
	// Content: the file may decide what happens, so its content counts.
	Content Use = iota
	// Data: the content is only read, copied or searched (grep, tail, cp). It counts as well,
	// except for files that are written all the time (logs).
	Data
	// Target: the file is written, removed or given other permissions whatever it contains (rm,
	// chmod, "> file"). Only the file's identity counts.
	Target
)

// File is one candidate.
type File struct {
	// Name is as written, without quotes: relative, absolute, or beginning with "~/".
	Name string
	Use  Use
	// Readers are the programs that the name is passed to, "." for a sourced file; "" for a redirection, or if unknown.
	Readers []string
}

// Reader returns the last program that the name is passed to, "" if none is known.
func (f File) Reader() string {
	for _, r := range slices.Backward(f.Readers) {
		if r != "" {
			return r
		}
	}
	return ""
}

// Code is a program in the text itself (python3 -c), or a module that it loads.
type Code struct {
	Reader string // the program that reads it
	Text   string
}

// List is the result of [Find].
type List struct {
	Files []File // each name once, in the order of the text
	// Dirs are the literal directories that the text may be in when it names a file (cd, make -C),
	// besides the one in which it starts. They are absolute, begin with "~", or are relative to the
	// start: "a" and "a/b" for "cd a; cd b". They are not cleaned, because "link/.." is not ".".
	Dirs []string
	// UnknownDir means that the text changes to a directory that is only known at run time, so its
	// relative names may refer to unlisted files.
	UnknownDir bool
	// MadeDirs are the directories that the text creates if they are missing (mkdir -p). It is
	// empty if the text runs anything that could do more to a directory than add files: then the
	// directory's identity matters.
	MadeDirs []string
	Code     []Code
	// Truncated means that there were more candidates than the limit.
	Truncated bool
}

const (
	// maxFiles and maxDirs bound a list. A longer list would not make a text with more files any
	// safer, because nobody could review it.
	maxFiles = 400
	maxDirs  = 24
	// maxCode bounds the programs inside a text.
	maxCode = 8
	// maxName is the longest name, in bytes (PATH_MAX of Linux).
	maxName = 4096
	// maxDepth bounds the nesting of texts inside texts, and maxText the total bytes of text.
	maxDepth = 3
	maxText  = 512 << 10
)

// Find lists the candidates in a shell text. Text that is not valid shell is split into words. It
// never fails.
func Find(text string) List {
	return find(text)
}

func find(text string) (l List) {
	defer func() {
		if recover() != nil { // a panic of the parser
			l.Truncated = true
		}
	}()
	f := finder{seen: map[string]int{}, done: map[*syntax.Word]bool{}, bytesLeft: maxText}
	f.text(text, 0)
	f.resolveDirs()
	if f.runsOther {
		f.list.MadeDirs = nil
	}
	return f.list
}

type finder struct {
	list       List
	seen       map[string]int
	done       map[*syntax.Word]bool // words handled by their command or redirection
	bytesLeft  int                   // bytes of text that may still be parsed
	dirChanges []dirChange
	by         string              // the program whose words are being processed
	vars       map[string][]string // variables with literal values
	loops      bool                // a command may run again, or after a later one
	runsOther  bool                // something other than harmlessCommands runs
}

// dirChange is one change of the directory, in the order of the text.
type dirChange struct {
	kind dirChangeKind
	dirs []string
}

type dirChangeKind int

const (
	changeTo         dirChangeKind = iota // cd: for what follows
	changeForCommand                      // make -C: for this command only
	enterSubshell                         // a subshell begins
	leaveSubshell                         // a subshell ends, and its changes with it
)

func (f *finder) text(text string, depth int) {
	if f.bytesLeft -= len(text); f.bytesLeft < 0 {
		f.list.Truncated = true
		return
	}
	file, err := bash.Parse(text)
	if err != nil {
		f.runsOther = true
		for w := range strings.FieldsSeq(text) {
			f.addWord(strings.Trim(w, `"'`+"`;&|()<>"), Content, depth)
		}
		return
	}
	f.collectVars(file)
	var open []syntax.Node
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			last := len(open) - 1
			if subshell(open[last]) {
				f.dirChanges = append(f.dirChanges, dirChange{kind: leaveSubshell})
			}
			open = open[:last]
			return true
		}
		open = append(open, n)
		if subshell(n) {
			f.dirChanges = append(f.dirChanges, dirChange{kind: enterSubshell})
		}
		switch n := n.(type) {
		case *syntax.FuncDecl, *syntax.ForClause, *syntax.WhileClause:
			f.loops = true
		case *syntax.Stmt:
			f.addHereDoc(n)
		case *syntax.CallExpr:
			f.call(n, depth)
		case *syntax.Redirect:
			f.redirect(n, depth)
		case *syntax.Word:
			if !f.done[n] {
				f.node(n, Content, depth)
			}
		}
		return true
	})
}

func subshell(n syntax.Node) bool {
	switch n.(type) {
	case *syntax.Subshell, *syntax.CmdSubst, *syntax.ProcSubst:
		return true
	}
	return false
}

// maxValues is how many values of a variable are considered.
const maxValues = 4

// collectVars collects variables that the text sets to literal values, so that "$X/a" is a name for
// each of them.
func (f *finder) collectVars(file *syntax.File) {
	if f.vars == nil {
		f.vars = map[string][]string{}
	}
	set := func(name string, w *syntax.Word) {
		if w == nil {
			return
		}
		if v, ok := literal(w); ok && v != "" && len(f.vars[name]) < maxValues && !slices.Contains(f.vars[name], v) {
			f.vars[name] = append(f.vars[name], v)
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				set(n.Name.Value, n.Value)
			}
		case *syntax.WordIter:
			for _, w := range n.Items {
				set(n.Name.Value, w)
			}
		}
		return true
	})
}

// expansions returns the possible values of a word whose variables have literal values: complete
// words, and known beginnings.
func (f *finder) expansions(w *syntax.Word) (whole, begun []string) {
	for i := range maxValues {
		var b strings.Builder
		ok := write(&b, w, func(name string) (string, bool) {
			v := f.vars[name]
			if len(v) == 0 {
				return "", false
			}
			return v[min(i, len(v)-1)], true
		})
		switch s := b.String(); {
		case ok && !slices.Contains(whole, s):
			whole = append(whole, s)
		case !ok && !slices.Contains(begun, s):
			begun = append(begun, s)
		}
	}
	return whole, begun
}

// call processes a simple command.
func (f *finder) call(c *syntax.CallExpr, depth int) {
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		var ok bool
		if words[i], ok = literal(a); ok {
			continue
		}
		if whole, _ := f.expansions(a); len(whole) == 1 {
			words[i] = whole[0]
		}
	}
	at := commandIndex(words)
	if at < 0 {
		f.runsOther = f.runsOther || len(words) > 0
		return // the walk handles its words
	}
	for i, a := range c.Args {
		f.done[a] = true
		f.addKnownDir(a, words[i])
	}
	name := path.Base(words[at])
	for i := range at + 1 {
		f.addWord(words[i], Content, depth)
	}
	if depth == 0 && (!harmlessCommands[name] || name != words[at]) {
		f.runsOther = true
	}
	f.addDirChanges(name, words[at+1:])
	f.addMadeDirs(name, words[at+1:])
	f.addOptionCode(name, words[at+1:])
	f.by = name
	use := operandUses[name]
	ended := false // whether "--" has ended the options
	for i, w := range words[at+1:] {
		f.addWord(w, use, depth)
		if ended && strings.HasPrefix(w, "-") {
			f.add("./"+w, use)
		}
		ended = ended || w == "--"
		if w == "" {
			whole, _ := f.expansions(c.Args[at+1+i])
			for _, w := range whole {
				f.addWord(w, use, depth)
			}
		}
	}
	f.by = ""
	for _, w := range defaultFiles[name] {
		f.add(w, Content)
	}
}

// wrappers run the command in their arguments.
var wrappers = []string{"sudo", "doas", "command", "builtin", "exec", "nohup", "time", "nice", "ionice", "setsid", "env", "stdbuf", "xargs"}

// commandIndex returns the index of the command's name among its words, after wrappers and
// assignments, or -1. After a wrapper with options it is unclear which words are option values;
// then it returns the wrapper itself, so that the content of every word counts.
func commandIndex(words []string) int {
	last := -1
	for i, w := range words {
		switch {
		case w == "":
			return last
		case last >= 0 && strings.HasPrefix(w, "-"):
			return last
		case last >= 0 && strings.Contains(w, "="): // env A=b
		case slices.Contains(wrappers, path.Base(w)):
			last = i
		default:
			return i
		}
	}
	return last
}

// operandUses lists commands whose operands do not decide what happens. Other commands may read
// their operands as code or settings.
var operandUses = func() map[string]Use {
	m := map[string]Use{}
	for n := range strings.FieldsSeq("rm rmdir unlink shred truncate touch chmod chown chgrp chattr setfacl mkdir tee ln kill pkill " +
		"killall test [ stat ls file du") {
		m[n] = Target
	}
	for n := range strings.FieldsSeq("cat tac nl head tail grep egrep fgrep zgrep wc sort uniq cut less more zcat gzip gunzip bzip2 xz " +
		"zstd cp mv rsync scp split tar zip find md5sum sha256sum cmp diff") {
		m[n] = Data
	}
	return m
}()

// defaultFiles are the files that a program reads by default.
var defaultFiles = func() map[string][]string {
	compose := strings.Fields("compose.yaml compose.yml docker-compose.yaml docker-compose.yml compose.override.yaml compose.override.yml " +
		"docker-compose.override.yml docker-compose.override.yaml .env Dockerfile")
	makefiles := []string{"GNUmakefile", "makefile", "Makefile"}
	pkg := []string{"package.json"}
	return map[string][]string{
		"make": makefiles, "gmake": makefiles, "npm": pkg, "yarn": pkg, "pnpm": pkg, "npx": pkg,
		"docker": compose, "docker-compose": compose, "podman": compose, "podman-compose": compose,
		"kubectl": {"kustomization.yaml", "kustomization.yml"}, "kustomize": {"kustomization.yaml", "kustomization.yml"},
		"terraform": {"main.tf", "terraform.tfvars"}, "tofu": {"main.tf", "terraform.tfvars"},
		"ansible": {"ansible.cfg"}, "ansible-playbook": {"ansible.cfg"}, "vagrant": {"Vagrantfile"}, "just": {"justfile", "Justfile", ".justfile"},
		"rake": {"Rakefile"}, "bundle": {"Gemfile"}, "fab": {"fabfile.py"}, "pytest": {"conftest.py"}, "skaffold": {"skaffold.yaml"}, "helmfile": {"helmfile.yaml"},
	}
}()

// harmlessCommands do no more to a directory than add files to it, or write files that they name.
var harmlessCommands = func() map[string]bool {
	m := map[string]bool{}
	for n := range strings.FieldsSeq("mkdir install cd pushd popd pwd touch echo printf cat tee cp curl wget ls test [ true false : date " +
		"sleep head tail grep set export") {
		m[n] = true
	}
	return m
}()

// addMadeDirs records directories that the command creates if they are missing.
func (f *finder) addMadeDirs(name string, args []string) {
	if name != "mkdir" && (name != "install" || !slices.Contains(args, "-d")) {
		return
	}
	for _, a := range args {
		if strings.HasPrefix(a, "-") || len(a) > maxName {
			continue
		}
		for a != "" && a != "/" && a != "." && len(f.list.MadeDirs) < maxFiles { // with -p also the parents
			f.list.MadeDirs = append(f.list.MadeDirs, a)
			a = path.Dir(a)
		}
	}
}

// addDirChanges records directories that the command changes to.
func (f *finder) addDirChanges(name string, args []string) {
	switch name {
	case "cd", "chdir", "pushd":
		operands := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return len(a) > 1 && a[0] == '-' })
		switch {
		case len(operands) == 0 && name != "pushd":
			f.dirChanges = append(f.dirChanges, dirChange{changeTo, []string{"~"}})
		case len(operands) != 1 || operands[0] == "" || operands[0][0] == '+':
			f.list.UnknownDir = true
		case operands[0] == "-":
			f.addChangeBack()
		case operands[0][0] == '~' && operands[0] != "~" && !strings.HasPrefix(operands[0], "~/"):
			f.list.UnknownDir = true
		default:
			f.dirChanges = append(f.dirChanges, dirChange{changeTo, operands})
		}
		return
	case "popd":
		f.addChangeBack()
		return
	}
	var in []string
	for i, a := range args {
		_, value, _ := strings.Cut(a, "=")
		switch {
		case (slices.Contains(dirOptions, a) || a == "-D" && (name == "sudo" || name == "doas")) && i+1 < len(args):
			in = append(in, args[i+1])
		case strings.HasPrefix(a, "-C") && len(a) > 2 && slices.Contains([]string{"make", "gmake", "tar", "env", "ninja"}, name):
			in = append(in, a[2:])
		case slices.ContainsFunc(dirOptions, func(o string) bool { return len(o) > 2 && strings.HasPrefix(a, o+"=") }), strings.HasPrefix(a, "-chdir="):
			in = append(in, value)
		}
	}
	if len(in) > 0 {
		f.dirChanges = append(f.dirChanges, dirChange{changeForCommand, in})
	}
}

// addChangeBack records a change to the previous directory.
func (f *finder) addChangeBack() {
	if !slices.ContainsFunc(f.dirChanges, func(m dirChange) bool { return m.kind == changeTo }) {
		f.list.UnknownDir = true // from before this text
	}
}

// codeOptions are options whose value an interpreter runs or loads, with the equivalent program
// text, in which "%" is the value.
var codeOptions = map[string]map[string]string{
	"python": {"-c": "%", "-m": "import %"},
	"perl":   {"-e": "%", "-E": "%", "-M": "use %;", "-m": "use %;"},
	"ruby":   {"-e": "%", "-r": "require '%'"},
	"node":   {"-e": "%", "--eval": "%", "-p": "%", "--print": "%", "-r": "require('%')", "--require": "require('%')", "--import": "import('%')"},
}

// addOptionCode records programs in the arguments of an interpreter.
func (f *finder) addOptionCode(name string, args []string) {
	kind := strings.TrimRight(name, "0123456789.")
	options := codeOptions[kind]
	note := func(form, value string) {
		text := strings.Replace(form, "%", value, 1)
		if kind == "python" && form != "%" {
			text += "\nimport " + value + ".__main__"
		}
		f.addCode(name, text)
	}
	for i, a := range args {
		if form, ok := options[a]; ok && i+1 < len(args) {
			note(form, args[i+1])
			continue
		}
		if o, value, ok := strings.Cut(a, "="); ok && options[o] != "" && strings.HasPrefix(o, "--") {
			note(options[o], value)
			continue
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' && options[a[:2]] != "" {
			note(options[a[:2]], a[2:])
		} else if n := len(a); n > 2 && a[0] == '-' && a[1] != '-' && i+1 < len(args) && options["-"+a[n-1:]] != "" {
			note(options["-"+a[n-1:]], args[i+1]) // perl -ne, python3 -Ic
		}
	}
}

func (f *finder) addCode(by, text string) {
	if len(f.list.Code) >= maxCode || len(text) > maxText {
		f.list.Truncated = true
		return
	}
	f.list.Code = append(f.list.Code, Code{by, text})
}

// addHereDoc records a program that an interpreter reads from a here-document.
func (f *finder) addHereDoc(s *syntax.Stmt) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok {
		return
	}
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		words[i], _ = literal(a)
	}
	at := commandIndex(words)
	if at < 0 || codeOptions[strings.TrimRight(path.Base(words[at]), "0123456789.")] == nil {
		return
	}
	for _, r := range s.Redirs {
		switch {
		case r.Hdoc != nil:
			f.addCode(path.Base(words[at]), prefix(r.Hdoc))
		case r.Op == syntax.WordHdoc && r.Word != nil:
			f.addCode(path.Base(words[at]), prefix(r.Word))
		case r.Op == syntax.RdrIn && r.Word != nil:
			if name, ok := literal(r.Word); ok {
				f.by = path.Base(words[at])
				f.add(name, Content)
				f.by = ""
			}
		}
	}
}

// dirOptions are options whose value is the directory of relative names.
var dirOptions = []string{"-C", "-k", "--kustomize", "--directory", "--prefix", "--project-directory", "--chdir", "--cwd", "--workdir"}

// resolveDirs computes where the text may be when it names a file. A change may fail, and a
// function's names are resolved where it is called, so every directory stays possible for the whole
// text.
func (f *finder) resolveDirs() {
	all := []string{""}
	add := func(to []string, d string) []string {
		if len(d) > maxName || slices.Contains(to, d) {
			return to
		}
		if !slices.Contains(all, d) {
			if len(all) > maxDirs {
				f.list.Truncated = true
				return to
			}
			all = append(all, d)
		}
		return append(to, d)
	}
	from := func(now []string, d string) []string {
		for _, at := range slices.Clone(now) {
			to := join(at, d)
			now = add(now, to)
			if strings.Contains(d, "..") { // as the shell does: "link/.." is the directory of the link
				if to = path.Clean(to); to == "." {
					to = ""
				}
				now = add(now, to)
			}
		}
		return now
	}
	passes := 1
	if f.loops {
		passes = 2
	}
	now := []string{""}
	for range passes {
		var outer [][]string
		for _, m := range f.dirChanges {
			switch m.kind {
			case enterSubshell:
				outer = append(outer, slices.Clone(now))
			case leaveSubshell:
				now, outer = outer[len(outer)-1], outer[:len(outer)-1]
			case changeTo:
				now = from(now, m.dirs[0])
			case changeForCommand:
				in := now
				for _, d := range m.dirs {
					if d != "" {
						in = from(in, d)
					}
				}
			}
		}
	}
	f.list.Dirs = all[1:]
}

// join returns d relative to the base of at, not cleaned.
func join(at, d string) string {
	if at == "" || path.IsAbs(d) || d == "~" || strings.HasPrefix(d, "~/") {
		return d
	}
	return strings.TrimSuffix(at, "/") + "/" + d
}

func (f *finder) redirect(r *syntax.Redirect, depth int) {
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		f.node(r.Word, Target, depth)
	default:
		f.node(r.Word, Content, depth)
	}
	f.node(r.Hdoc, Content, depth)
}

func (f *finder) node(w *syntax.Word, use Use, depth int) {
	if w == nil {
		return
	}
	f.done[w] = true
	s, ok := literal(w)
	if ok {
		f.addWord(s, use, depth)
	} else {
		whole, _ := f.expansions(w)
		for _, s := range whole {
			f.addWord(s, use, depth)
		}
	}
	f.addKnownDir(w, s)
}

// addKnownDir adds the directory before a part that is only known at run time: "/srv/old" of
// "/srv/old/*" and of "/srv/old/$x". known is the whole word if it is literal.
func (f *finder) addKnownDir(w *syntax.Word, known string) {
	begun := []string{known}
	if i := strings.IndexAny(known, "[{"); i >= 0 { // a pattern, or literal characters
		begun[0] = known[:i]
	} else if known != "" {
		return
	} else {
		_, begun = f.expansions(w)
		begun = append(begun, prefix(w))
	}
	for _, known := range begun {
		if i := strings.LastIndexByte(known, '/'); i > 0 {
			dir := known[:i]
			if _, value, ok := strings.Cut(dir, "="); ok {
				dir = value
			}
			f.add(dir, Target)
		}
	}
}

// addWord adds a word, and the parts of it that may be names: the value of an option or an
// assignment, a "@file". A word with white space may be a text itself.
func (f *finder) addWord(w string, use Use, depth int) {
	if w == "" || f.list.Truncated {
		return
	}
	f.add(w, use)
	rest := w
	if strings.HasPrefix(w, "-") && len(w) > 2 && w[1] != '-' {
		f.add(w[2:], use) // -fFILE
	}
	if _, v, ok := strings.Cut(w, "="); ok {
		f.add(v, use)
		rest = v
	}
	f.add(strings.TrimPrefix(rest, "@"), use)
	if a, _, ok := strings.Cut(rest, ":"); ok {
		f.add(a, use)
	}
	if strings.ContainsAny(w, " \t\n;|&<>()") && depth < maxDepth {
		f.text(w, depth+1)
	}
}

func (f *finder) add(name string, use Use) {
	if strings.HasPrefix(name, "~") && name != "~" && !strings.HasPrefix(name, "~/") {
		f.list.UnknownDir = true // another account's home
	}
	if name == "" || name == "." || name == "/" || strings.HasPrefix(name, "-") || len(name) > maxName || strings.ContainsRune(name, 0) {
		return
	}
	if i, ok := f.seen[name]; ok {
		if i >= 0 && use < f.list.Files[i].Use {
			f.list.Files[i].Use = use
		}
		if i >= 0 {
			f.list.Files[i].Readers = append(f.list.Files[i].Readers, f.by)
		}
		return
	}
	if len(f.list.Files) >= maxFiles {
		f.list.Truncated = true
		return
	}
	f.seen[name] = len(f.list.Files)
	f.list.Files = append(f.list.Files, File{name, use, []string{f.by}})
}

// literal returns a word as the shell would read it if it has no expansions or patterns. A leading
// "$HOME" becomes "~".
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	if !write(&b, w, nil) {
		return "", false
	}
	return b.String(), true
}

// prefix returns the known beginning of a word.
func prefix(w *syntax.Word) string {
	var b strings.Builder
	write(&b, w, nil)
	return b.String()
}

// write writes a word up to the first unknown part. value returns the value of a variable; nil
// knows none.
func write(b *strings.Builder, w *syntax.Word, value func(name string) (string, bool)) (whole bool) {
	param := func(p *syntax.ParamExp, at int) bool {
		if writeHome(b, p, at) {
			return true
		}
		if value == nil || !isPlain(p) {
			return false
		}
		v, ok := value(p.Param.Value)
		b.WriteString(v)
		return ok
	}
	for i, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if !writeUnquoted(b, p.Value) {
				return false
			}
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for j, q := range p.Parts {
				switch q := q.(type) {
				case *syntax.Lit:
					writeQuoted(b, q.Value)
				case *syntax.ParamExp:
					if !param(q, i+j) {
						return false
					}
				default:
					return false
				}
			}
		case *syntax.ParamExp:
			if !param(p, i) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// writeUnquoted writes an unquoted literal; it stops at a pattern.
func writeUnquoted(b *strings.Builder, s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*', '?':
			return false
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return true
}

// writeQuoted writes a literal between double quotes.
func writeQuoted(b *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
}

// writeHome writes "~" for a plain $HOME at the beginning of a word, and "." for $PWD.
func writeHome(b *strings.Builder, p *syntax.ParamExp, at int) bool {
	if at != 0 || b.Len() != 0 || !isPlain(p) {
		return false
	}
	switch p.Param.Value {
	case "HOME":
		b.WriteByte('~')
	case "PWD":
		b.WriteByte('.')
	default:
		return false
	}
	return true
}

// isPlain reports whether a parameter expansion has no operators.
func isPlain(p *syntax.ParamExp) bool {
	return p.Param != nil && !p.Excl && !p.Length && p.Index == nil && p.Slice == nil && p.Repl == nil && p.Exp == nil && p.Names == 0
}
