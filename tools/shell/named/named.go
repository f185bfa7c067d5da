// Package named finds the words of a shell text that may name files which decide
// what the text does: the script that bash is given, the manifest that kubectl
// applies, the program that is called by its path. Who runs the text looks which
// of them exist, and binds the approval to their content.
//
// It is generous: every literal word is a candidate, wherever it stands, also
// inside a text that is quoted for another shell, and so is the directory before a
// pattern or a variable ("/srv/old" of "/srv/old/*"). It touches no file, judges no
// risk, and does not find a name that is only known when the text runs ("$x",
// "*.sh"); it finds no file that a program opens by itself either, beside the few
// that everybody knows ("make" reads a Makefile).
package named

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Use says what the text does with a file, as far as its name in the text tells.
type Use int

// The uses, from the strongest: where a file has several, the strongest counts.
const (
	// Content: the file may decide what happens, so its content counts.
	Content Use = iota
	// Data: the content is only read, copied or searched (grep, tail, cp). It
	// counts as well, except in a file that is written all the time (a log).
	Data
	// Target: the file is written, removed or given other rights whatever is in
	// it (rm, chmod, "> file"). Only which file it is counts.
	Target
)

// File is one candidate.
type File struct {
	// Name is as it is written, without quotes: relative, absolute, or beginning
	// with "~/".
	Name string
	Use  Use
	// By is the program that the name is given to, "." for one that is sourced; "" where
	// that is not known.
	By string
}

// Code is a program that stands in the text itself (python3 -c), or a module that it
// is told to load.
type Code struct {
	By   string // the program that reads it
	Text string
}

// List is what [In] finds.
type List struct {
	Files []File // each name once, in the order of the text
	// Dirs are the literal directories that the text may be in when it names a file
	// (cd, make -C), beside the one that it begins in. They are absolute, begin with
	// "~", or are relative to where it begins: "a" and "a/b" of "cd a; cd b". They are
	// not cleaned, since "link/.." is not ".".
	Dirs []string
	// Elsewhere says that the text changes to a directory that is only known when it
	// runs, so that its relative names may mean files that are not listed.
	Elsewhere bool
	// Made are the directories that the text makes where they are missing (mkdir -p).
	// It is empty where the text runs anything that could do more to a directory than
	// add files to it: then it matters which directory that is.
	Made []string
	Code []Code
	// More says that there were more candidates than the limit; the rest is not
	// listed.
	More bool
}

const (
	// maxFiles and maxDirs bound a list. A text that names more files than a
	// person could look at is not made safer by a longer one.
	maxFiles = 400
	maxDirs  = 24
	// maxCode bounds the programs that stand in a text.
	maxCode = 8
	// maxName is the longest name in bytes (PATH_MAX of Linux).
	maxName = 4096
	// maxDepth is how deep texts inside texts are looked at, and maxText how many
	// bytes of text in all.
	maxDepth = 3
	maxText  = 512 << 10
)

// In lists the candidates of a shell text. Text that is not shell is taken word
// by word. It never fails.
func In(text string) List {
	return in(text)
}

func in(text string) (l List) {
	defer func() {
		if recover() != nil { // the parser's: what was not seen is said
			l.More = true
		}
	}()
	f := finder{seen: map[string]int{}, done: map[*syntax.Word]bool{}, left: maxText}
	f.text(text, 0)
	f.places()
	if f.rough {
		f.list.Made = nil
	}
	return f.list
}

type finder struct {
	list  List
	seen  map[string]int
	done  map[*syntax.Word]bool // words that their command or redirection took
	left  int                   // bytes of text that may still be parsed
	moves []move
	by    string              // the program whose words are looked at
	vars  map[string][]string // what the text sets to literal values
	loops bool                // a command may run again, or after one that stands behind it
	rough bool                // something runs that is not gentle
}

// move is one change of the directory, in the order of the text.
type move struct {
	kind moveKind
	dirs []string
}

type moveKind int

const (
	moveTo moveKind = iota // cd: for what follows
	moveIn                 // make -C: for this command alone
	enter                  // a subshell begins
	leave                  // and ends, and with it what it changed
)

func (f *finder) text(text string, depth int) {
	if f.left -= len(text); f.left < 0 {
		f.list.More = true
		return
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		f.rough = true
		for w := range strings.FieldsSeq(text) {
			f.word(strings.Trim(w, `"'`+"`;&|()<>"), Content, depth)
		}
		return
	}
	f.settings(file)
	var open []syntax.Node
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			last := len(open) - 1
			if subshell(open[last]) {
				f.moves = append(f.moves, move{kind: leave})
			}
			open = open[:last]
			return true
		}
		open = append(open, n)
		if subshell(n) {
			f.moves = append(f.moves, move{kind: enter})
		}
		switch n := n.(type) {
		case *syntax.FuncDecl, *syntax.ForClause, *syntax.WhileClause:
			f.loops = true
		case *syntax.Stmt:
			f.input(n)
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

// maxValues is how many values of a variable are looked at.
const maxValues = 4

// settings takes note of variables that the text sets to literal values: "$X/a" names
// something in each of them.
func (f *finder) settings(file *syntax.File) {
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

// readings are what a word may mean where variables in it were set to literal values:
// the words, or what is known of their beginnings.
func (f *finder) readings(w *syntax.Word) (whole, begun []string) {
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

// call looks at a simple command.
func (f *finder) call(c *syntax.CallExpr, depth int) {
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		var ok bool
		if words[i], ok = literal(a); ok {
			continue
		}
		if whole, _ := f.readings(a); len(whole) == 1 {
			words[i] = whole[0]
		}
	}
	at := command(words)
	if at < 0 {
		f.rough = f.rough || len(words) > 0
		return // the walk takes its words
	}
	for i, a := range c.Args {
		f.done[a] = true
		f.before(a, words[i])
	}
	name := path.Base(words[at])
	for i := range at + 1 {
		f.word(words[i], Content, depth)
	}
	if depth == 0 && (!gentle[name] || name != words[at]) {
		f.rough = true
	}
	f.dirs(name, words[at+1:])
	f.makes(name, words[at+1:])
	f.code(name, words[at+1:])
	f.by = name
	use := uses[name]
	ended := false // the options
	for i, w := range words[at+1:] {
		f.word(w, use, depth)
		if ended && strings.HasPrefix(w, "-") {
			f.add("./"+w, use)
		}
		ended = ended || w == "--"
		if w == "" {
			whole, _ := f.readings(c.Args[at+1+i])
			for _, w := range whole {
				f.word(w, use, depth)
			}
		}
	}
	f.by = ""
	for _, w := range implied[name] {
		f.add(w, Content)
	}
}

// wrappers run the command in their arguments.
var wrappers = []string{"sudo", "doas", "command", "builtin", "exec", "nohup", "time", "nice", "ionice", "setsid", "env", "stdbuf", "xargs"}

// command is the index of the command's name among its words, behind wrappers and
// assignments, or -1. Behind a wrapper with options it is not known what is an
// option's argument: then it is the wrapper itself, so that every word counts
// with its content.
func command(words []string) int {
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

// uses are commands whose operands do not decide what happens. What is not here
// may read its operands as code or settings.
var uses = func() map[string]Use {
	m := map[string]Use{}
	for n := range strings.FieldsSeq("rm rmdir unlink shred truncate touch chmod chown chgrp chattr setfacl mkdir tee ln kill pkill killall test [ stat ls file du") {
		m[n] = Target
	}
	for n := range strings.FieldsSeq("cat tac nl head tail grep egrep fgrep zgrep wc sort uniq cut less more zcat gzip gunzip bzip2 xz zstd cp mv rsync scp split tar zip find md5sum sha256sum cmp diff") {
		m[n] = Data
	}
	return m
}()

// implied are the files that a program reads when it is not told which.
var implied = func() map[string][]string {
	compose := strings.Fields("compose.yaml compose.yml docker-compose.yaml docker-compose.yml compose.override.yaml compose.override.yml docker-compose.override.yml docker-compose.override.yaml .env Dockerfile")
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

// gentle are commands that do no more to a directory than add files to it, or write
// files that they name.
var gentle = func() map[string]bool {
	m := map[string]bool{}
	for n := range strings.FieldsSeq("mkdir install cd pushd popd pwd touch echo printf cat tee cp curl wget ls test [ true false : date sleep head tail grep set export") {
		m[n] = true
	}
	return m
}()

// makes takes note of directories that the command makes where they are missing.
func (f *finder) makes(name string, args []string) {
	if name != "mkdir" && (name != "install" || !slices.Contains(args, "-d")) {
		return
	}
	for _, a := range args {
		if strings.HasPrefix(a, "-") || len(a) > maxName {
			continue
		}
		for a != "" && a != "/" && a != "." && len(f.list.Made) < maxFiles { // with -p those above it as well
			f.list.Made = append(f.list.Made, a)
			a = path.Dir(a)
		}
	}
}

// dirs takes note of directories that the command changes to.
func (f *finder) dirs(name string, args []string) {
	switch name {
	case "cd", "chdir", "pushd":
		operands := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return len(a) > 1 && a[0] == '-' })
		switch {
		case len(operands) == 0 && name != "pushd":
			f.moves = append(f.moves, move{moveTo, []string{"~"}})
		case len(operands) != 1 || operands[0] == "" || operands[0][0] == '+':
			f.list.Elsewhere = true
		case operands[0] == "-":
			f.back()
		case operands[0][0] == '~' && operands[0] != "~" && !strings.HasPrefix(operands[0], "~/"):
			f.list.Elsewhere = true
		default:
			f.moves = append(f.moves, move{moveTo, operands})
		}
		return
	case "popd":
		f.back()
		return
	}
	var in []string
	for i, a := range args {
		_, value, _ := strings.Cut(a, "=")
		switch {
		case (slices.Contains(inside, a) || a == "-D" && (name == "sudo" || name == "doas")) && i+1 < len(args):
			in = append(in, args[i+1])
		case strings.HasPrefix(a, "-C") && len(a) > 2 && slices.Contains([]string{"make", "gmake", "tar", "env", "ninja"}, name):
			in = append(in, a[2:])
		case slices.ContainsFunc(inside, func(o string) bool { return len(o) > 2 && strings.HasPrefix(a, o+"=") }), strings.HasPrefix(a, "-chdir="):
			in = append(in, value)
		}
	}
	if len(in) > 0 {
		f.moves = append(f.moves, move{moveIn, in})
	}
}

// back takes note of a change to where the shell was before.
func (f *finder) back() {
	if !slices.ContainsFunc(f.moves, func(m move) bool { return m.kind == moveTo }) {
		f.list.Elsewhere = true // before this text
	}
}

// loaders are options whose value an interpreter runs, or loads: the text that does
// the same, for a "%" that is the value.
var loaders = map[string]map[string]string{
	"python": {"-c": "%", "-m": "import %"},
	"perl":   {"-e": "%", "-E": "%", "-M": "use %;", "-m": "use %;"},
	"ruby":   {"-e": "%", "-r": "require '%'"},
	"node":   {"-e": "%", "--eval": "%", "-p": "%", "--print": "%", "-r": "require('%')", "--require": "require('%')", "--import": "import('%')"},
}

// code takes note of programs that are given to an interpreter in its words.
func (f *finder) code(name string, args []string) {
	kind := strings.TrimRight(name, "0123456789.")
	options := loaders[kind]
	note := func(form, value string) {
		text := strings.Replace(form, "%", value, 1)
		if kind == "python" && form != "%" {
			text += "\nimport " + value + ".__main__"
		}
		f.program(name, text)
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

func (f *finder) program(by, text string) {
	if len(f.list.Code) >= maxCode || len(text) > maxText {
		f.list.More = true
		return
	}
	f.list.Code = append(f.list.Code, Code{by, text})
}

// input takes note of a program that an interpreter reads from a here-document.
func (f *finder) input(s *syntax.Stmt) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok {
		return
	}
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		words[i], _ = literal(a)
	}
	at := command(words)
	if at < 0 || loaders[strings.TrimRight(path.Base(words[at]), "0123456789.")] == nil {
		return
	}
	for _, r := range s.Redirs {
		switch {
		case r.Hdoc != nil:
			f.program(path.Base(words[at]), prefix(r.Hdoc))
		case r.Op == syntax.WordHdoc && r.Word != nil:
			f.program(path.Base(words[at]), prefix(r.Word))
		case r.Op == syntax.RdrIn && r.Word != nil:
			if name, ok := literal(r.Word); ok {
				f.by = path.Base(words[at])
				f.add(name, Content)
				f.by = ""
			}
		}
	}
}

// inside are options whose value is a directory that relative names are meant in.
var inside = []string{"-C", "-k", "--kustomize", "--directory", "--prefix", "--project-directory", "--chdir", "--cwd", "--workdir"}

// places works out where the text may be when it names a file. A change may fail, and
// what a function names is meant where that is called, so every place stays possible
// for the whole text.
func (f *finder) places() {
	all := []string{""}
	add := func(to []string, d string) []string {
		if len(d) > maxName || slices.Contains(to, d) {
			return to
		}
		if !slices.Contains(all, d) {
			if len(all) > maxDirs {
				f.list.More = true
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
			if strings.Contains(d, "..") { // the shell's own way: "link/.." is where the link is
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
		for _, m := range f.moves {
			switch m.kind {
			case enter:
				outer = append(outer, slices.Clone(now))
			case leave:
				now, outer = outer[len(outer)-1], outer[:len(outer)-1]
			case moveTo:
				now = from(now, m.dirs[0])
			case moveIn:
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

// join is the name of d as seen from where at is seen from, not cleaned.
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
		f.word(s, use, depth)
	} else {
		whole, _ := f.readings(w)
		for _, s := range whole {
			f.word(s, use, depth)
		}
	}
	f.before(w, s)
}

// before adds the directory before what is only known when the text runs: "/srv/old"
// of "/srv/old/*" and of "/srv/old/$x". known is the word where all of it is.
func (f *finder) before(w *syntax.Word, known string) {
	begun := []string{known}
	if i := strings.IndexAny(known, "[{"); i >= 0 { // a pattern, or it is what it looks like
		begun[0] = known[:i]
	} else if known != "" {
		return
	} else {
		_, begun = f.readings(w)
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

// word adds a word, and what of it may be a name: the value of an option, of an
// assignment, a "@file". A word with white space may be a text of its own.
func (f *finder) word(w string, use Use, depth int) {
	if w == "" || f.list.More {
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
		f.list.Elsewhere = true // another account's home
	}
	if name == "" || name == "." || name == "/" || strings.HasPrefix(name, "-") || len(name) > maxName || strings.ContainsRune(name, 0) {
		return
	}
	if i, ok := f.seen[name]; ok {
		if i >= 0 && use < f.list.Files[i].Use {
			f.list.Files[i].Use = use
		}
		if i >= 0 && f.by != "" {
			f.list.Files[i].By = f.by
		}
		return
	}
	if len(f.list.Files) >= maxFiles {
		f.list.More = true
		return
	}
	f.seen[name] = len(f.list.Files)
	f.list.Files = append(f.list.Files, File{name, use, f.by})
}

// literal returns a word as the shell would read it, if that is known before it
// runs: without expansions and patterns. "$HOME" at its beginning is "~".
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	if !write(&b, w, nil) {
		return "", false
	}
	return b.String(), true
}

// prefix is what is known of the beginning of a word.
func prefix(w *syntax.Word) string {
	var b strings.Builder
	write(&b, w, nil)
	return b.String()
}

// write writes a word until something in it is not known. value is what a variable
// holds; nil knows none.
func write(b *strings.Builder, w *syntax.Word, value func(name string) (string, bool)) (whole bool) {
	param := func(p *syntax.ParamExp, at int) bool {
		if home(b, p, at) {
			return true
		}
		if value == nil || !plain(p) {
			return false
		}
		v, ok := value(p.Param.Value)
		b.WriteString(v)
		return ok
	}
	for i, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if !bare(b, p.Value) {
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
					quoted(b, q.Value)
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

// bare writes what an unquoted literal means; a pattern means nothing yet.
func bare(b *strings.Builder, s string) bool {
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

// quoted writes what a literal between double quotes means.
func quoted(b *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
}

// home writes "~" for a plain $HOME at the beginning of a word, and "." for $PWD.
func home(b *strings.Builder, p *syntax.ParamExp, at int) bool {
	if at != 0 || b.Len() != 0 || !plain(p) {
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

// plain reports whether a parameter is expanded as it is.
func plain(p *syntax.ParamExp) bool {
	return p.Param != nil && !p.Excl && !p.Length && p.Index == nil && p.Slice == nil && p.Repl == nil && p.Exp == nil && p.Names == 0
}
