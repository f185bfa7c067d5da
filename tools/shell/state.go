package shell

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals"
	"countersign/internal/bash"
	"countersign/targets/tmux"
	"countersign/tools"
)

// errShellChanged refuses a command whose shell is in another state than the approved one.
var errShellChanged = tools.NotRun("the command", "%s", approvals.ShellChanged)

// planShell records in the action what the shell in its pane holds, and sets the state that it must be in.
func (k *call) planShell(ctx context.Context, c tools.Call, a *approvals.Action) error {
	before := earlierTexts(c.Before, *a)
	a.Env[approvals.ShellFact], k.state = approvals.ShellNew, tmux.InitialState
	if k.ref.Exists && !k.ref.Fresh {
		s, err := k.t.cfg.Sessions.Shell(ctx, c.Thread, k.ref, c.Approved || len(before) > 0)
		if err != nil {
			return tools.Failed("the terminal's shell could not be asked for its environment: %w", err)
		}
		k.state = s.State
		if started := s.State == tmux.InitialState; !started || !k.ref.Unused {
			a.Foreground = k.ref.Program
			a.Env[approvals.ShellFact] = approvals.ShellShared(k.ref.ID, s.State, started)
		}
		if says := differs(k.args.Command, s); says != "" {
			a.Env[approvals.TerminalFact] = says
		}
	}
	if len(before) > 0 {
		a.Env[approvals.ShellFact], k.state = approvals.LeftBySteps, ""
		k.dir = dirAfter(before, k.dir)
	}
	return nil
}

// differs says what makes the commands of a text other ones in a shell, "" if nothing does.
func differs(text string, s tmux.Shell) string {
	if s.State == "" {
		return ""
	}
	var says []string
	file, err := bash.Parse(text)
	if s.Many || err != nil && len(s.Names) > 0 {
		says = append(says, "This terminal has functions or aliases that may replace commands.")
	} else if err == nil {
		var own []string
		syntax.Walk(file, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
				if name := call.Args[0].Lit(); slices.Contains(s.Names, name) && !slices.Contains(own, name) {
					own = append(own, name)
					says = append(says, fmt.Sprintf("%s is a function or alias of this terminal.", tools.Quote(name)))
				}
			}
			return true
		})
	}
	if !s.Paths {
		says = append(says, "This terminal finds programs or libraries in other places than at its start.")
	}
	return strings.Join(says, " ")
}
