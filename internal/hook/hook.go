// Package hook answers coding agents that run their own shell, and ask before they do. They ask
// often, so it depends on little: cmd/countersign-hook starts in a few milliseconds.
package hook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat/visible"
	"countersign/client"
	"countersign/internal/account"
)

const (
	// maxHook is the longest input of a hook, in bytes.
	maxHook = 1 << 20
	// hookPatience is how long a bot may be away before the program asks by its own prompt.
	hookPatience = 5 * time.Second
)

// hookEvent is what a program says before it runs something. The programs' formats are alike:
// Claude Code (https://code.claude.com/docs/en/hooks), Codex
// (https://developers.openai.com/codex/hooks) and Gemini CLI
// (https://geminicli.com/docs/hooks/reference/).
type hookEvent struct {
	Session string         `json:"session_id"`
	Dir     string         `json:"cwd"`
	Event   string         `json:"hook_event_name"`
	Tool    string         `json:"tool_name"`
	Input   map[string]any `json:"tool_input"`
}

// Program is one that asks by a hook.
type Program struct {
	// ID is its name on the command line, Name the one on cards.
	ID, Name string
	// Shells are its tools that run a command, and Edits those that change a file; Events are the events
	// at which it asks.
	Shells, Edits, Events []string
	// Answer is what it reads: that the program may run a command, and which one where people have
	// changed it, or why not.
	Answer func(ev hookEvent, v verdict) any
	// File is its file of settings below the home directory, and Limit how long it waits for an answer,
	// in the unit of its settings. A program without a Limit has a plugin there.
	File  string
	Limit int
	// Rewrites says that it runs the command of the answer, and Lock is the program countersign-lock of
	// this machine, under which a read then runs that the bot can't prove otherwise; "" is none.
	Rewrites bool
	Lock     string
}

// verdict is what became of a question.
type verdict struct {
	allowed bool
	command string // that is allowed; "" is what was asked
	held    bool   // command runs what was asked under a lock
	why     string // not
}

// Programs are those that can ask.
var Programs = []Program{
	{
		ID: "claude-code", Name: "Claude Code", Shells: []string{"Bash"}, Edits: []string{"Write", "Edit", "MultiEdit", "NotebookEdit"}, Events: []string{"PreToolUse"},
		File: ".claude/settings.json", Limit: 1200, Rewrites: true,
		Answer: func(ev hookEvent, v verdict) any {
			out := map[string]any{"hookEventName": ev.Event, "permissionDecision": "allow", "permissionDecisionReason": "Countersign allows it."}
			switch {
			case !v.allowed:
				out["permissionDecision"], out["permissionDecisionReason"] = "deny", v.why
			case v.changed(ev):
				changed := maps.Clone(ev.Input)
				changed["command"] = v.command
				if out["updatedInput"], out["permissionDecisionReason"] = changed, "People have changed the command."; v.held {
					out["permissionDecisionReason"] = "Countersign allows it under a lock."
				}
			}
			return map[string]any{"hookSpecificOutput": out}
		},
	},
	{
		ID: "codex", Name: "Codex", Shells: []string{"Bash"}, Edits: []string{"apply_patch"}, Events: []string{"PermissionRequest"}, File: ".codex/hooks.json", Limit: 1200,
		Answer: func(ev hookEvent, v verdict) any {
			decision := map[string]any{"behavior": "allow"}
			if v = v.unchanged(ev); !v.allowed {
				decision = map[string]any{"behavior": "deny", "message": v.why}
			}
			return map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": ev.Event, "decision": decision}}
		},
	},
	{
		ID: "gemini-cli", Name: "Gemini CLI", Shells: []string{"run_shell_command"}, Edits: []string{"write_file", "replace"}, Events: []string{"BeforeTool"},
		File: ".gemini/settings.json", Limit: 1200000,
		Answer: func(ev hookEvent, v verdict) any {
			if v = v.unchanged(ev); !v.allowed {
				return map[string]any{"decision": "deny", "reason": v.why}
			}
			return map[string]any{"decision": "allow"}
		},
	},
	{
		// Its plugin (opencode.js) asks and obeys.
		ID: "opencode", Name: "opencode", Shells: []string{"bash"}, Edits: []string{"write", "edit"}, Events: []string{"tool.execute.before"}, File: ".config/opencode/plugins/countersign.js", Rewrites: true,
		Answer: func(ev hookEvent, v verdict) any {
			switch {
			case !v.allowed:
				return map[string]any{"decision": "deny", "reason": v.why}
			case v.changed(ev):
				return map[string]any{"decision": "allow", "command": v.command}
			}
			return map[string]any{"decision": "allow"}
		},
	},
}

// changed reports whether people have changed the command that is allowed.
func (v verdict) changed(ev hookEvent) bool {
	return v.command != "" && v.command != ev.Input["command"]
}

// unchanged is a verdict for a program that runs only what it asked for.
func (v verdict) unchanged(ev hookEvent) verdict {
	if v.allowed && v.changed(ev) {
		return verdict{why: "People have changed the command. Run exactly this one instead: " + v.command}
	}
	return v
}

// Run answers one question. Whatever goes wrong is said on standard error, and nothing is answered:
// the program then asks by its own prompt.
func (h Program) Run(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	ev, q, err := h.read(in)
	if err == nil && q == nil {
		return nil // it's about something else
	}
	var v verdict
	if err == nil {
		v, err = h.ask(ctx, ev, q, errs)
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "Countersign gave no answer, so %s asks by its own prompt: %v\n", h.Name, err)
		return nil // some programs would take a hook that fails for an answer
	}
	raw, err := json.Marshal(h.Answer(ev, v))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", raw)
	return err
}

// question is what a program asks.
type question interface {
	// call is the tool of the bot's that decides it, with its arguments.
	call() (tool string, args any)
	// became is what the bot's answer means; page is where people find it.
	became(x client.Result, page string) (verdict, error)
}

// read reads a question. It is nil where the program asks about something else.
func (h Program) read(in io.Reader) (ev hookEvent, q question, err error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxHook+1))
	switch {
	case err != nil:
		return ev, nil, err
	case len(raw) > maxHook:
		return ev, nil, errors.New("what it asks about is longer than a megabyte")
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		return ev, nil, fmt.Errorf("what it says is not in the format of %s that is known here", h.Name)
	}
	switch {
	case !slices.Contains(h.Events, ev.Event):
		return ev, nil, nil
	case slices.Contains(h.Edits, ev.Tool):
		q, err = editOf(ev)
	case slices.Contains(h.Shells, ev.Tool):
		lock := h.Lock
		if command, _ := ev.Input["command"].(string); !h.Rewrites || moves.MatchString(command) {
			lock = ""
		}
		q, err = commandOf(&ev, lock)
	}
	return ev, q, err
}

// commandAsked is a command that a program asks about.
type commandAsked struct {
	command, dir string
	files        []namedFile
	lock         string // the program that locks it; "" is none
}

func commandOf(ev *hookEvent, lock string) (question, error) {
	command, ok := ev.Input["command"].(string)
	if !ok || strings.TrimSpace(command) == "" {
		return nil, errors.New("it names no command")
	}
	// The bot doesn't see what stands around a command, and a space can be a part of its last word.
	if strings.Trim(command, "\n") != strings.TrimSpace(command) || strings.HasSuffix(strings.TrimSpace(command), `\`) {
		return nil, errors.New("the command begins or ends with a space or a backslash")
	}
	for _, name := range []string{"directory", "dir_path", "workdir"} { // Gemini CLI's, of several versions, and opencode's
		dir, ok := ev.Input[name].(string)
		switch {
		case !ok || dir == "":
		case path.IsAbs(dir):
			ev.Dir = dir
		default:
			ev.Dir = path.Join(ev.Dir, dir)
		}
	}
	if !path.IsAbs(ev.Dir) {
		return nil, errors.New("it doesn't say in which directory")
	}
	return commandAsked{command, ev.Dir, filesOf(command, ev.Dir), lock}, nil
}

// call implements question.
func (a commandAsked) call() (string, any) {
	return "allow_command", struct {
		Host    string      `json:"host"`
		Dir     string      `json:"dir"`
		Shell   string      `json:"shell,omitempty"`
		Command string      `json:"command"`
		Lock    bool        `json:"lock,omitempty"`
		Files   []namedFile `json:"files,omitempty"`
	}{HostName(), a.dir, shellName(), strings.TrimSpace(a.command), a.lock != "", a.files}
}

// became implements question. What is stored of an answer has no secrets, so commands are told apart
// by their digests.
func (a commandAsked) became(x client.Result, page string) (verdict, error) {
	v := verdict{allowed: true}
	switch {
	case x.Digest == digest(strings.TrimSpace(a.command)):
		v.command = a.command
	case x.Digest == digest(x.Command):
		v.command = x.Command
	default:
		return verdict{why: "Countersign: people have changed the command, and it has a secret in it. It's in " + page}, nil
	}
	if x.Locked && a.lock == "" {
		return verdict{}, errors.New("the bot allows it under a lock that this machine doesn't have")
	}
	if x.Locked {
		v.command, v.held = locked(a.lock, x.Needs, strings.TrimSpace(v.command)), true
	}
	if changed := changedFile(a.files); x.Request != "" && changed != "" {
		return verdict{why: "Countersign: " + changed + " has changed since this was asked. Ask again."}, nil
	}
	return v, nil
}

// moves are commands after which the shell is in another directory, which it would not be if they
// ran elsewhere.
var moves = regexp.MustCompile(`(?:^|[\s;&|(])(?:cd|pushd|popd|export|source|\.|alias|set|unset|ulimit|umask)(?:$|[\s;&|)])`)

// locked is a command that runs another one under a lock.
func locked(program string, needs []string, command string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	out := quote(program) + " run"
	if len(needs) > 0 {
		out += " --needs " + quote(strings.Join(needs, ","))
	}
	return out + " -- " + cmp.Or(shellName(), "sh") + " -c " + quote(command)
}

// ask asks the bot, in the conversation of the program's session.
func (h Program) ask(ctx context.Context, ev hookEvent, q question, errs io.Writer) (verdict, error) {
	who, err := account.Load()
	if err != nil {
		return verdict{}, err
	}
	tool, in := q.call()
	args, err := json.Marshal(in)
	if err != nil {
		return verdict{}, err
	}
	x, err := h.wait(ctx, client.New(who.URL, who.Token), ev, tool, args, errs)
	switch {
	case err != nil:
		return verdict{}, err
	case x.Unknown:
		return verdict{}, errors.New("nobody knows what was decided")
	case !x.Allowed:
		return verdict{why: "Countersign: " + cmp.Or(strings.Join(strings.Fields(visible.Text(x.Note)), " "), "not allowed")}, nil
	}
	return q.became(x, strings.TrimRight(who.URL, "/")+"/#t="+x.Thread)
}

// wait asks for a call of a tool and waits for its end.
func (h Program) wait(ctx context.Context, c *client.Client, ev hookEvent, tool string, args json.RawMessage, errs io.Writer) (client.Result, error) {
	limited, cancel := context.WithTimeout(ctx, hookPatience)
	defer cancel()
	call, err := c.Start(limited, client.Request{
		Task: cmp.Or(digest(ev.Session), "session"), Tool: tool, Args: args,
		Caller: client.Caller{Way: client.WayHook, Program: h.Name, Host: HostName(), Repository: Repository(ev.Dir)},
	})
	if err != nil {
		return client.Result{}, err
	}
	told := false
	x, err := call.Wait(ctx, func(now client.Result) {
		if now.State == client.Waiting && !told {
			told = true
			_, _ = fmt.Fprintf(errs, "Waiting for approval of request %s: %s/#t=%s\n", now.Request, c.Address(), now.Thread)
		}
	})
	if ctx.Err() != nil {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookPatience)
		defer cancel()
		_ = call.Withdraw(gone) // nobody is there to be told
	}
	return x, err
}

// digest tells a command from all others, as the tool allow_command does.
func digest(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// HostName is what this machine calls itself.
func HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(name, "-"), ".-")
	return cmp.Or(name[:min(len(name), 60)], "localhost")
}

// shellName is the shell of whoever runs the program, which uses it for commands.
func shellName() string {
	name := filepath.Base(os.Getenv("SHELL"))
	if !regexp.MustCompile(`^[a-z]{1,20}$`).MatchString(name) {
		return ""
	}
	return name
}
