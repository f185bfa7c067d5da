package imports

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// maxText bounds the shell text that is parsed, in bytes.
const maxText = 512 << 10

// shell finds what a shell script sources, runs by path, or passes to an interpreter.
func shell(text string) (out List) {
	if len(text) > maxText {
		return List{Incomplete: true}
	}
	file, err := bash.Parse(text)
	if err != nil {
		return List{Incomplete: true} // another shell's syntax
	}
	s := script{text: text, hereVars: map[string]bool{"0": true, "BASH_SOURCE": true, "PWD": true}}
	syntax.Walk(file, func(n syntax.Node) bool { // first pass: a function may use a name above its assignment
		if a, ok := n.(*syntax.Assign); ok && a.Name != nil && a.Value != nil && s.refersToHere(a.Value) {
			s.hereVars[a.Name.Value] = true
		}
		return true
	})
	syntax.Walk(file, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok || len(c.Args) == 0 {
			return true
		}
		name, known, _ := s.name(c.Args[0])
		base := path.Base(name)
		switch {
		case (name == "." || name == "source") && known && len(c.Args) > 1:
			file, _, sure := s.name(c.Args[1])
			out.Incomplete = out.Incomplete || !sure
			out.addNames(false, candidates(file)...)
		case strings.Contains(name, "/") && !isSystemProgram(name):
			out.addNames(true, candidates(name)...)
		case known && (ByProgram(base) != None || commandRunners[base]):
			for _, w := range c.Args[1:] {
				if file, _, _ := s.name(w); !strings.HasPrefix(file, "-") {
					out.addNames(true, candidates(file)...)
				}
			}
		}
		return true
	})
	return out
}

// isSystemProgram reports whether a program is also found without its path.
func isSystemProgram(name string) bool {
	return slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, path.Dir(name))
}

// candidates returns the files that a name may refer to: "$DIR" is often the script's own
// directory, or its parent.
func candidates(name string) []string {
	if rest, ok := strings.CutPrefix(name, "./"); ok {
		return []string{name, "../" + rest}
	}
	return []string{name}
}

// commandRunners are commands that run one of their operands.
var commandRunners = words("sudo doas command builtin exec nohup time nice ionice setsid env stdbuf xargs timeout flock eval")

type script struct {
	text     string
	hereVars map[string]bool // variables that hold the script's directory or name
}

// refersToHere reports whether a word refers to the script's own directory.
func (s script) refersToHere(n syntax.Node) bool {
	src := s.text[n.Pos().Offset():n.End().Offset()]
	for _, sign := range []string{"dirname", "BASH_SOURCE", "$0", "${0", "pwd", "$PWD", "${PWD"} {
		if strings.Contains(src, sign) {
			return true
		}
	}
	return false
}

// name returns the file name in a word: all of it, or the rest after a variable directory. known
// reports whether the word is literal; sure reports whether the name is literal or follows the
// script's own directory.
func (s script) name(w *syntax.Word) (name string, known, sure bool) {
	var b strings.Builder
	known, sure = true, true
	var part func(p syntax.WordPart)
	dynamic := func(here bool) {
		known, sure = false, sure && here && b.Len() == 0
		b.Reset() // only what follows counts
	}
	part = func(p syntax.WordPart) {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "*?[") {
				sure = false
			}
			b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				part(q)
			}
		case *syntax.ParamExp:
			dynamic(p.Param != nil && s.hereVars[p.Param.Value])
		default:
			dynamic(s.refersToHere(p))
		}
	}
	for _, p := range w.Parts {
		part(p)
	}
	name = b.String()
	if known {
		return name, true, sure
	}
	rest, ok := strings.CutPrefix(name, "/")
	if !ok || rest == "" {
		return "", false, false
	}
	return "./" + rest, false, sure
}
