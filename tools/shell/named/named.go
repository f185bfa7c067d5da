// Package named finds the words of a shell text that may name files which decide
// what the text does: the script that bash is given, the manifest that kubectl
// applies, the program that is called by its path. Who runs the text looks which
// of them exist, and binds the approval to their content.
//
// It is generous: every literal word is a candidate, wherever it stands, also
// inside a text that is quoted for another shell. It touches no file, judges no
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
}

// List is what [In] finds.
type List struct {
	Files []File // each name once, in the order of the text
	// Dirs are literal directories that the text changes to (cd, make -C), in
	// which relative names may be meant as well.
	Dirs []string
	// More says that there were more candidates than the limit; the rest is not
	// listed.
	More bool
}

const (
	// maxFiles and maxDirs bound a list. A text that names more files than a
	// person could look at is not made safer by a longer one.
	maxFiles = 400
	maxDirs  = 8
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
	return f.list
}

type finder struct {
	list List
	seen map[string]int
	done map[*syntax.Word]bool // words that their command or redirection took
	left int                   // bytes of text that may still be parsed
}

func (f *finder) text(text string, depth int) {
	if f.left -= len(text); f.left < 0 {
		f.list.More = true
		return
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		for w := range strings.FieldsSeq(text) {
			f.word(strings.Trim(w, `"'`+"`;&|()<>"), Content, depth)
		}
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
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

// call looks at a simple command.
func (f *finder) call(c *syntax.CallExpr, depth int) {
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		words[i], _ = literal(a)
	}
	at := command(words)
	if at < 0 {
		return // the walk takes its words
	}
	for _, a := range c.Args {
		f.done[a] = true
	}
	name := path.Base(words[at])
	for i := range at + 1 {
		f.word(words[i], Content, depth)
	}
	f.dirs(name, words[at+1:])
	use := uses[name]
	for _, w := range words[at+1:] {
		f.word(w, use, depth)
	}
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

// dirs takes note of directories that the command changes to.
func (f *finder) dirs(name string, args []string) {
	add := func(d string) {
		if d != "" && d != "-" && len(d) <= maxName && len(f.list.Dirs) < maxDirs && !slices.Contains(f.list.Dirs, d) {
			f.list.Dirs = append(f.list.Dirs, d)
		}
	}
	for i, a := range args {
		switch {
		case (name == "cd" || name == "pushd") && !strings.HasPrefix(a, "-"):
			add(a)
		case (a == "-C" || a == "-k" || a == "--kustomize" || a == "--directory" || a == "--prefix" || a == "--project-directory") && i+1 < len(args):
			add(args[i+1])
		case strings.HasPrefix(a, "-chdir=") || strings.HasPrefix(a, "--chdir=") || strings.HasPrefix(a, "--directory=") ||
			strings.HasPrefix(a, "--kustomize=") || strings.HasPrefix(a, "--prefix=") || strings.HasPrefix(a, "--project-directory="):
			_, d, _ := strings.Cut(a, "=")
			add(d)
		}
	}
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
	if s, ok := literal(w); ok {
		f.word(s, use, depth)
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
	if name == "" || name == "." || name == ".." || name == "/" || strings.HasPrefix(name, "-") || len(name) > maxName || strings.ContainsRune(name, 0) {
		return
	}
	if i, ok := f.seen[name]; ok {
		if i >= 0 && use < f.list.Files[i].Use {
			f.list.Files[i].Use = use
		}
		return
	}
	if len(f.list.Files) >= maxFiles {
		f.list.More = true
		return
	}
	f.seen[name] = len(f.list.Files)
	f.list.Files = append(f.list.Files, File{name, use})
}

// literal returns a word as the shell would read it, if that is known before it
// runs: without expansions and patterns. "$HOME" at its beginning is "~".
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for i, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if !bare(&b, p.Value) {
				return "", false
			}
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for j, q := range p.Parts {
				switch q := q.(type) {
				case *syntax.Lit:
					quoted(&b, q.Value)
				case *syntax.ParamExp:
					if !home(&b, q, i+j) {
						return "", false
					}
				default:
					return "", false
				}
			}
		case *syntax.ParamExp:
			if !home(&b, p, i) {
				return "", false
			}
		default:
			return "", false
		}
	}
	return b.String(), true
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

// home writes "~" for a plain $HOME at the beginning of a word.
func home(b *strings.Builder, p *syntax.ParamExp, at int) bool {
	if at != 0 || b.Len() != 0 || p.Param == nil || p.Param.Value != "HOME" || p.Excl || p.Length || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil || p.Names != 0 {
		return false
	}
	b.WriteByte('~')
	return true
}
