package imports

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxText bounds the shell text that is parsed, in bytes.
const maxText = 512 << 10

// shell finds what a shell script sources, runs by its path, or gives to an
// interpreter.
func shell(text string) (out List) {
	if len(text) > maxText {
		return List{Open: true}
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return List{Open: true} // another shell's grammar
	}
	s := script{text: text, here: map[string]bool{"0": true, "BASH_SOURCE": true, "PWD": true}}
	syntax.Walk(file, func(n syntax.Node) bool { // before: a name may be used above where it is set
		if a, ok := n.(*syntax.Assign); ok && a.Name != nil && a.Value != nil && s.aboutHere(a.Value) {
			s.here[a.Name.Value] = true
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
			out.Open = out.Open || !sure
			out.add(false, beside(file)...)
		case strings.Contains(name, "/") && !ofTheSystem(name):
			out.add(true, beside(name)...)
		case known && (By(base) != None || runs[base]):
			for _, w := range c.Args[1:] {
				if file, _, _ := s.name(w); !strings.HasPrefix(file, "-") {
					out.add(true, beside(file)...)
				}
			}
		}
		return true
	})
	return out
}

// ofTheSystem recognises programs that are found without their path, too.
func ofTheSystem(name string) bool {
	return slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, path.Dir(name))
}

// beside are the names that a name may stand for: "$DIR" is often the script's own
// directory, or the one above it.
func beside(name string) []string {
	if rest, ok := strings.CutPrefix(name, "./"); ok {
		return []string{name, "../" + rest}
	}
	return []string{name}
}

// runs are commands that run one of their operands.
var runs = words("sudo doas command builtin exec nohup time nice ionice setsid env stdbuf xargs timeout flock eval")

type script struct {
	text string
	here map[string]bool // variables that hold the script's directory, or its name
}

// aboutHere reports whether a word speaks of the script's own directory.
func (s script) aboutHere(n syntax.Node) bool {
	src := s.text[n.Pos().Offset():n.End().Offset()]
	for _, sign := range []string{"dirname", "BASH_SOURCE", "$0", "${0", "pwd", "$PWD", "${PWD"} {
		if strings.Contains(src, sign) {
			return true
		}
	}
	return false
}

// name is the name of a file that a word means: all of it, or what follows the
// directory that its beginning stands for. known says that the word is literal, sure
// that the name is, or follows the script's own directory.
func (s script) name(w *syntax.Word) (name string, known, sure bool) {
	var b strings.Builder
	known, sure = true, true
	var part func(p syntax.WordPart)
	dynamic := func(here bool) {
		known, sure = false, sure && here && b.Len() == 0
		b.Reset() // what follows counts
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
			dynamic(p.Param != nil && s.here[p.Param.Value])
		default:
			dynamic(s.aboutHere(p))
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
