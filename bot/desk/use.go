package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/targets/backend"
)

// Targets answers the chat word "use".
type Targets struct {
	threads.Targets
	Tools Tools
}

// Use answers the chat word: it lists the targets, or makes one the thread's own.
func (t Targets) Use(ctx context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	thread, target := string(ev.Thread), args.ID
	now, err := t.Current(ctx, thread)
	if err != nil {
		return agent.Answer{}, err
	}
	if target == "" {
		return says(t.list(thread, ev.From, ev.Groups, now))
	}
	if why := t.MayUse(thread, ev.From, ev.Groups, target); why != "" {
		return says(strings.ToUpper(why[:1]) + why[1:] + ".")
	}
	if err := t.Choose(ctx, ev.Thread, target, ev.From.ID); err != nil {
		return agent.Answer{}, err
	}
	text := sayNow(target, t.Labels(target))
	o, err := t.Machines[target].Connect(ctx)
	switch {
	case err != nil:
		text += sayUnreachableNow(err)
	case o.Notice != "":
		text += " " + o.Notice
	}
	if err == nil {
		text += " " + t.held(target, o.Caps.Lock)
	}
	return says(text)
}

// Exec finds the call that a person or their program asks for. The target of a command becomes the
// thread's.
func (t Targets) Exec(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, what agent.Command) (c llm.Call, why string) {
	if what.Tool != "" {
		if !t.Tools.Has(thread, what.Tool) || !t.Tools.Callable(what.Tool) {
			return c, sayNoTool(what.Tool)
		}
		return llm.Call{Name: what.Tool, Args: string(what.Args)}, ""
	}
	target := what.Target
	if why := t.MayUse(string(thread), by, groups, target); why != "" {
		return c, strings.ToUpper(why[:1]) + why[1:] + "."
	}
	if !t.Tools.Has(thread, shellTool) {
		return c, sayNoShell
	}
	if err := t.Choose(ctx, thread, target, by.ID); err != nil {
		return c, sayNotChosen(target, err)
	}
	args, err := json.Marshal(map[string]any{"command": what.Text, "risk": "low", "mutation": false, "privesc": false, "why": sayOwnCommand})
	if err != nil {
		return c, sayNoShell
	}
	return llm.Call{Name: shellTool, Args: string(args)}, ""
}

// shellTool is the tool that runs commands.
const shellTool = "run_shell"

// held says for people how a target holds reads back.
func (t Targets) held(target string, s backend.LockState) string {
	var text string
	switch reads := t.Rules().Reads(target, s.By != ""); {
	case reads == approvals.ReadsAsk && s.By == "":
		text = sayEveryReadAsks
	case reads == approvals.ReadsAsk:
		return sayConfiguredAsks
	case reads == approvals.ReadsPlain && s.By != "":
		return sayLocked(machines.LockName(s.By), true)
	case reads == approvals.ReadsPlain:
		text = sayPlainReads
	default:
		text = sayLocked(machines.LockName(s.By), false)
	}
	if len(s.Lacks) > 0 {
		text += " " + strings.ToUpper(s.Lacks[0][:1]) + s.Lacks[0][1:] + "."
	}
	return text
}

func (t Targets) list(thread string, by chat.User, groups []string, now string) string {
	var out strings.Builder
	out.WriteString(sayTargets)
	for _, name := range t.Machines.Names() {
		if t.MayUse(thread, by, groups, name) != "" {
			continue
		}
		m := t.Machines[name]
		state := "not reached yet"
		if o := m.State(); o != nil {
			state = "reached"
			if o.Tmux == nil {
				state += ", without terminals"
			}
			if o.Caps.Lock.By == "" {
				state += ", without a lock"
			}
		}
		mark := ""
		if name == now {
			mark = " ← this thread"
		}
		fmt.Fprintf(&out, "- `%s`%s: %s, %s%s\n", name, t.Labels(name), m.Config.Kind, state, mark)
	}
	return out.String()
}
