package tmux

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
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

// complete reports whether the line editor takes text as one whole command, and does not ask
// for more lines.
func complete(text string) bool {
	before, err := bash.Parse(text)
	if err != nil || len(before.Stmts) == 0 {
		return false
	}
	// In braces it must be the same list: what is behind it is not swallowed by a backslash.
	after, err := bash.Parse("{ " + text + "\n}")
	if err != nil || len(after.Stmts) != 1 || len(after.Stmts[0].Redirs) != 0 {
		return false
	}
	block, ok := after.Stmts[0].Cmd.(*syntax.Block)
	return ok && len(block.Stmts) == len(before.Stmts)
}

// typedKeys returns the keys that run text by typing it, after those of expect. ok is false if text
// must be staged.
func typedKeys(text, expect string, stderr stderrCapture) (keys string, ok bool) {
	if !typable(text) || !complete(text) || stderr == stderrMerged && expect != "" { // only keyRun and keyLoad compare
		return "", false
	}
	if stderr == stderrMerged {
		return keyClear + text + "\r", true
	}
	return keyClear + keyHide + expect + text + keyRun + "\r", true
}

// stagedKeys returns the keys that run the text of the script at path, after those of expect, and the
// script.
func stagedKeys(path, text, expect string, stderr stderrCapture) (keys, script string) {
	mode := "a"
	if stderr == stderrMerged {
		mode = "m"
	}
	return keyClear + keyHide + expect + path + keyLoad + "\r",
		strings.ReplaceAll("__cs_g "+mode+" "+shellQuote(shownText(text))+" "+shellQuote(text+"\n")+"\n", "\x00", "")
}

// shownText returns what the terminal shows of text, with control characters as the line
// editor shows them.
func shownText(text string) string {
	var b strings.Builder
	for _, r := range strings.TrimRight(text, "\n") {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && !unicode.IsControl(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			b.WriteByte('^')
			b.WriteRune(r ^ 0x40)
		default:
			b.WriteByte('?')
		}
	}
	return b.String()
}

// pagers read keys from standard error's terminal, which for them must be the visible one.
const pagers = " less more most man info pager zless zmore bzless xzless lessfile apropos "

// readsKeys reports whether text runs a program that reads keys from standard error's
// terminal. Text that cannot be parsed does not.
func readsKeys(text string) bool {
	f, err := bash.Parse(text)
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
