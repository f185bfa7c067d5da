package impact

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// given are the variables that every shell of an account has alike.
const given = " HOME PATH PWD USER LOGNAME UID EUID HOSTNAME IFS RANDOM SECONDS LINENO BASH BASHPID PPID @ * # ? - $ ! 0 1 2 3 4 5 6 7 8 9 REPLY "

// Portable reports whether a text means the same in another shell of the account: it uses no variable
// that it does not set itself, no job, and no history. Functions and aliases of a shell are not known
// here; see approvals.TerminalFact.
func Portable(text string) bool {
	f, err := bash.Parse(text)
	if err != nil {
		return false
	}
	set, used := map[string]bool{}, map[string]bool{}
	portable := true
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				set[n.Name.Value] = true
			}
		case *syntax.WordIter:
			set[n.Name.Value] = true
		case *syntax.ParamExp:
			if n.Param != nil {
				used[n.Param.Value] = true
			}
		case *syntax.CallExpr:
			if len(n.Args) == 0 {
				break
			}
			switch n.Args[0].Lit() {
			case "read", "mapfile", "readarray", "getopts", "printf":
				for _, w := range n.Args[1:] {
					if name := w.Lit(); name != "" {
						set[name] = true
					}
				}
			case "fg", "bg", "jobs", "disown", "fc", "history", "exit", "logout", "source", ".", "eval", "cd", "pushd", "popd", "alias", "exec":
				// What they do to this shell is no change of files, and cd in a text of more is.
				if n.Args[0].Lit() != "cd" {
					portable = false
				}
			}
			for _, w := range n.Args {
				if l := w.Lit(); strings.HasPrefix(l, "%") {
					portable = false // a job
				}
			}
		}
		return true
	})
	for name := range used {
		if !set[name] && !strings.Contains(given, " "+name+" ") {
			portable = false
		}
	}
	return portable
}
