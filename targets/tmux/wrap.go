package tmux

import (
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// typeMax is the longest text that is typed; longer text is staged.
	typeMax = 1000
	// errFD is the shell's descriptor of the companion. It is high, since people use the
	// low ones in their scripts.
	errFD = "19"
)

// typable reports whether text can be typed at a prompt as one line: no control character
// reaches the line editor, and the line is not too long for it.
func typable(text string) bool {
	if text == "" || len(text) > typeMax || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == 0x2028 || r == 0x2029 {
			return false
		}
	}
	return true
}

// redirected returns a line that runs text in the shell itself with standard error on the
// companion. ok is false if text cannot be proved to mean the same inside braces.
func redirected(text string) (line string, ok bool) {
	before, ok := parse(text)
	if !ok || len(before.Stmts) == 0 {
		return "", false
	}
	body := strings.TrimSpace(text)
	if !before.Stmts[len(before.Stmts)-1].Semicolon.IsValid() {
		body += ";"
	}
	line = "{ " + body + " } 2>&" + errFD
	after, ok := parse(line)
	if !ok || len(after.Stmts) != 1 || len(after.Stmts[0].Redirs) != 1 {
		return "", false
	}
	block, ok := after.Stmts[0].Cmd.(*syntax.Block)
	if !ok || len(block.Stmts) != len(before.Stmts) || len(block.Last) != 0 {
		return "", false
	}
	return line, true
}

// typedLine returns the line that runs text when it is typed. ok is false if text must be
// staged.
func typedLine(text string, stderr stderrCapture) (line string, ok bool) {
	if !typable(text) {
		return "", false
	}
	if stderr == stderrMerged {
		return text, true
	}
	line, ok = redirected(text)
	return line, ok && len(line) <= typeMax
}

// pagers read keys from standard error's terminal, which for them must be the visible one.
const pagers = " less more most man info pager zless zmore bzless xzless lessfile apropos "

// readsKeys reports whether text runs a program that reads keys from standard error's
// terminal. Text that cannot be parsed does not.
func readsKeys(text string) bool {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return false
	}
	found := false
	syntax.Walk(f, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok {
			for _, arg := range call.Args { // any word, for "sudo less file"
				name := arg.Lit()
				name = name[strings.LastIndexByte(name, '/')+1:]
				if name != "" && strings.Contains(pagers, " "+name+" ") {
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// parse parses text as bash. Text with a comment is not ok: the comment would swallow what
// follows it on the line.
func parse(text string) (*syntax.File, bool) {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil || len(f.Last) > 0 {
		return nil, false
	}
	comments := false
	syntax.Walk(f, func(n syntax.Node) bool {
		if _, is := n.(*syntax.Comment); is {
			comments = true
		}
		return !comments
	})
	return f, !comments
}
