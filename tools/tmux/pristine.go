package tmux

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A pane is pristine while its shell is surely as this package started it: nobody
// but this package has typed a command, and none of those can have changed the
// shell itself. In a pristine pane a command means what it says; elsewhere "ls" may be
// an alias, a function, another program, or come after a trap.

// ErrNotPristine means that a command that needs a pristine pane was not typed.
var ErrNotPristine = stateError(StateHuman, "The state of the pane's shell is not known any more, because somebody else used it or a command changed it.")

// harmlessBuiltins are the builtins of bash that leave the shell as it is. printf
// and test evaluate array subscripts with -v, which the words of keepsShell exclude.
var harmlessBuiltins = []string{"echo", "printf", "true", "false", ":", "test", "[", "pwd", "type", "kill", "jobs", "times"}

// builtins are those that can change it (bash 5.2, "help").
var builtins = []string{
	".", "source", "alias", "unalias", "bg", "fg", "bind", "break", "continue", "builtin", "caller", "cd", "command", "compgen", "complete",
	"compopt", "declare", "typeset", "dirs", "disown", "enable", "eval", "exec", "exit", "logout", "export", "fc", "getopts", "hash", "help",
	"history", "let", "local", "mapfile", "readarray", "popd", "pushd", "read", "readonly", "return", "set", "shift", "shopt", "suspend",
	"trap", "ulimit", "umask", "unset", "wait",
}

// keepsShell reports whether running a text in bash surely leaves the shell's own
// state (directory, variables, aliases, functions, options, traps) as it is. What
// it does not understand may change it.
func keepsShell(text string) bool {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return false
	}
	keeps := true
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			keeps = keeps && callKeeps(n)
		case *syntax.ParamExp, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.DeclClause, *syntax.LetClause, *syntax.FuncDecl,
			*syntax.ForClause, *syntax.CoprocClause, *syntax.TestClause, *syntax.ExtGlob, *syntax.CmdSubst, *syntax.ProcSubst, *syntax.TestDecl:
			keeps = false // simple text is enough: this only chooses where a read runs
		case *syntax.Stmt:
			keeps = keeps && !n.Background && !n.Coprocess && !n.Disown
		}
		return keeps
	})
	return keeps
}

func callKeeps(c *syntax.CallExpr) bool {
	if len(c.Assigns) > 0 || len(c.Args) == 0 {
		return false
	}
	name := c.Args[0].Lit()
	if name == "" || strings.ContainsAny(name, "\\~*?[{!") || slices.Contains(builtins, name) {
		return false
	}
	if !slices.Contains(harmlessBuiltins, name) {
		return true // a program
	}
	return !slices.ContainsFunc(c.Args[1:], func(w *syntax.Word) bool { return strings.HasPrefix(w.Lit(), "-v") })
}
