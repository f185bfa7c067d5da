// Package hook answers coding agents that run their own shell, and ask before they do. They ask
// often, so it depends on little: cmd/countersign-hook starts in a few milliseconds.
package hook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/adapters/chat/visible"
	"countersign/client"
	"countersign/client/account"
)

const (
	// maxHook is the longest input of a hook, in bytes, and maxDepth how deep its values may be nested.
	maxHook, maxDepth = 1 << 20, 100
	// maxCommand is the longest command that can be asked about, in bytes, as the bot's tool has it.
	maxCommand = 16 << 10
	// hookPatience is how long a bot may be away before the question is answered without it.
	hookPatience = 5 * time.Second
	// spare is how long before the program's own limit a question is answered: a program that ends its
	// hook goes on without an answer.
	spare = 30 * time.Second
)

// hookEvent is what a program says before it runs something. The programs' formats are alike:
// Claude Code (https://code.claude.com/docs/en/hooks), Codex
// (https://developers.openai.com/codex/hooks) and Gemini CLI
// (https://geminicli.com/docs/hooks/reference/).
type hookEvent struct {
	Session, Dir, Event, Tool string
	Mode                      string // in which the program asks its own person, or doesn't
	Input                     map[string]any
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
	// Dirs are the arguments of its tools for a command that say in which directory it runs.
	Dirs []string
	// Prompts are the permission modes in which the agent prompts its own user.
	Prompts []string
	// File is its file of settings below the home directory, and Unit that of times in there. A program
	// without a Unit has a plugin there.
	File string
	Unit time.Duration
	// Limit is how long the program waits for an answer; 0 is [Limit].
	Limit time.Duration
	// Account is the file that says which bot is asked, and by which token. "" is the account of the
	// command line.
	Account string
	// Rewrites says that it runs the command of the answer, and Lock is the program countersign-lock of
	// this machine, under which a read then runs that the bot can't prove otherwise; "" is none.
	Rewrites bool
	Lock     string
	patience time.Duration // with a bot that doesn't answer; 0 is hookPatience
}

// verdict is what became of a question.
type verdict struct {
	allowed bool
	command string // that is allowed; "" is what was asked
	held    bool   // command runs what was asked under a lock
	own     bool   // the program's own person is to be asked
	why     string // reason for a denial
}

// Limit is how long a program that has a hook installed waits for an answer.
const Limit = 20 * time.Minute

// Programs are those that can ask.
var Programs = []Program{
	{
		ID: "claude-code", Name: "Claude Code", Shells: []string{"Bash"}, Edits: []string{"Write", "Edit", "MultiEdit", "NotebookEdit"}, Events: []string{"PreToolUse"},
		File: ".claude/settings.json", Unit: time.Second, Rewrites: true, Prompts: []string{"default", "acceptEdits"},
		Answer: func(ev hookEvent, v verdict) any {
			out := map[string]any{"hookEventName": ev.Event, "permissionDecision": "allow", "permissionDecisionReason": "Countersign allows it."}
			switch {
			case v.own:
				out["permissionDecision"], out["permissionDecisionReason"] = "ask", v.why
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
		ID: "codex", Name: "Codex", Shells: []string{"Bash"}, Edits: []string{"apply_patch"}, Events: []string{"PermissionRequest"}, File: ".codex/hooks.json", Unit: time.Second,
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
		Dirs: []string{"directory", "dir_path"}, // of several versions
		File: ".gemini/settings.json", Unit: time.Millisecond,
		Answer: func(ev hookEvent, v verdict) any {
			if v = v.unchanged(ev); !v.allowed {
				return map[string]any{"decision": "deny", "reason": v.why}
			}
			return map[string]any{"decision": "allow"}
		},
	},
	{
		// Its plugin (opencode.js) asks and obeys.
		ID: "opencode", Name: "opencode", Shells: []string{"bash"}, Edits: []string{"write", "edit"}, Events: []string{"tool.execute.before"}, Dirs: []string{"workdir"}, File: ".config/opencode/plugins/countersign.js", Rewrites: true,
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

// Run answers one question. Every one that is of the program's kind gets an answer, whatever happens:
// without one, a program in a mode in which it asks nobody goes on. An error means that the answer
// could not be written, and that this program has to end with [Denied].
func (h Program) Run(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	limit := cmp.Or(h.Limit, Limit)
	late := min(spare, limit/2)
	ctx, cancel := context.WithTimeout(ctx, limit-late)
	defer cancel()
	answers := make(chan any, 1)
	go func() { answers <- h.answer(ctx, in, errs) }()
	var a any
	select {
	case a = <-answers:
	case <-ctx.Done(): // the card is withdrawn
		select {
		case a = <-answers:
		case <-time.After(late / 2): // a file or a pipe keeps it
			a = h.Answer(hookEvent{Event: h.Events[0]}, verdict{why: notDone + "there was no answer in time. Ask again."})
		}
	}
	if a == nil {
		return nil
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", raw)
	return err
}

// Flags are the arguments of the command in a program's settings.
func (h *Program) Flags(f *flag.FlagSet) {
	f.StringVar(&h.Account, "account", "", "file with the bot's address and token, in place of this command line's account")
	f.StringVar(&h.Lock, "lock", "", "the program countersign-lock of this machine, under which more reads can be proven")
	f.DurationVar(&h.Limit, "limit", Limit, "how long the program waits for an answer, as its settings say")
}

// Denied is the exit code that the programs take for a denial, whose reason is on standard error.
const Denied = 2

const notDone = "Countersign denied this: "

// unasked is why nobody could be asked.
type unasked struct{ error }

// answer is what the program reads, or nil where it asks about something else.
func (h Program) answer(ctx context.Context, in io.Reader, errs io.Writer) (a any) {
	ev := hookEvent{Event: h.Events[0]}
	defer func() {
		if r := recover(); r != nil {
			a = h.Answer(ev, verdict{why: fmt.Sprintf(notDone+"the hook failed: %v", r)})
		}
	}()
	q, err := h.read(in, &ev)
	if err == nil && q == nil {
		return nil
	}
	var v verdict
	if err == nil {
		v, err = h.ask(ctx, ev, q, errs)
	}
	if err != nil {
		v = verdict{why: notDone + strings.TrimSuffix(err.Error(), ".") + "."}
		if _, nobody := errors.AsType[unasked](err); nobody {
			if v.own = slices.Contains(h.Prompts, ev.Mode); v.own {
				v.why = strings.Replace(v.why, notDone, "Countersign couldn't be asked: ", 1)
			}
		}
	}
	return h.Answer(ev, v)
}

// question is what a program asks.
type question interface {
	// call is the tool of the bot's that decides it, with its arguments.
	call() (tool string, args any)
	// became is what the bot's answer means; page is where people find it.
	became(x client.Result, page string) (verdict, error)
}

// read reads a question. It is nil where the program asks about something else.
func (h Program) read(in io.Reader, ev *hookEvent) (q question, err error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxHook+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxHook {
		_, _ = io.Copy(io.Discard, in) // its writer may take it for a failure otherwise
		return nil, errors.New("it is longer than a megabyte. Do it in smaller steps")
	}
	all, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("what %s says can't be read: %w", h.Name, err)
	}
	event, hasEvent := all["hook_event_name"].(string)
	tool, hasTool := all["tool_name"].(string)
	switch {
	case !hasEvent || !hasTool:
		return nil, fmt.Errorf("%s doesn't say what it asks about", h.Name)
	case !slices.Contains(h.Events, event) || !slices.Contains(h.Shells, tool) && !slices.Contains(h.Edits, tool):
		return nil, nil
	}
	ev.Event, ev.Tool = event, tool
	ev.Session, _ = all["session_id"].(string)
	ev.Dir, _ = all["cwd"].(string)
	ev.Mode, _ = all["permission_mode"].(string)
	ev.Input, _ = all["tool_input"].(map[string]any)
	for _, name := range h.Dirs {
		dir, ok := ev.Input[name].(string)
		switch {
		case !ok || dir == "":
		case path.IsAbs(dir):
			ev.Dir = dir
		default:
			ev.Dir = path.Join(ev.Dir, dir)
		}
	}
	switch {
	case !path.IsAbs(ev.Dir):
		return nil, errors.New("it doesn't say in which directory")
	case slices.Contains(h.Edits, tool):
		return editOf(*ev)
	}
	return h.commandOf(*ev)
}

// object reads a JSON object. It refuses what programs read in different ways.
func object(raw []byte) (map[string]any, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it isn't text")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	v, err := value(d, 0)
	if err != nil {
		return nil, err
	}
	all, ok := v.(map[string]any)
	if _, err := d.Token(); !ok || !errors.Is(err, io.EOF) {
		return nil, errors.New("it isn't one object")
	}
	return all, nil
}

// value reads the next value of d, in which no object has a name twice.
func value(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, errors.New("it isn't JSON")
	}
	if depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	switch t {
	case json.Delim('{'):
		all := map[string]any{}
		for d.More() {
			name, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			key, _ := name.(string) // the decoder takes nothing else
			if _, twice := all[key]; twice {
				return nil, fmt.Errorf("it has %q twice", key)
			}
			if all[key], err = value(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return all, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			x, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

// commandAsked is a command that a program asks about.
type commandAsked struct {
	command, dir, shell string
	files               []namedFile
	lock                string // the program that locks it; "" is none
}

func (h Program) commandOf(ev hookEvent) (question, error) {
	command, _ := ev.Input["command"].(string)
	switch {
	case strings.TrimSpace(command) == "":
		return nil, errors.New("the call has no command")
	case len(command) > maxCommand:
		return nil, fmt.Errorf("the command has %d KiB, and people can't read more than %d. Write a script, and run that", (len(command)+1023)>>10, maxCommand>>10)
	}
	q := commandAsked{command, ev.Dir, shellName(), filesOf(command, ev.Dir), h.Lock}
	if !h.Rewrites || moves.MatchString(command) {
		q.lock = ""
	}
	if strings.HasSuffix(strings.TrimSpace(command), `\`) { // what a program puts behind it may become a part of it
		q.shell, q.lock = "", ""
	}
	return q, nil
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
	}{HostName(), a.dir, a.shell, a.command, a.lock != "", a.files}
}

// became implements question. What is stored of an answer has no secrets, so commands are told apart
// by their digests.
func (a commandAsked) became(x client.Result, page string) (verdict, error) {
	v := verdict{allowed: true}
	switch {
	case x.Digest == digest(a.command):
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
		v.command, v.held = locked(a.lock, x.Needs, v.command), true
	}
	if changed := changedFile(a.files, a.dir); x.Request != "" && changed != "" {
		return verdict{why: "Countersign: " + changed + " has changed since this was asked. Ask again."}, nil
	}
	return v, nil
}

// moves are commands after which the shell is another one, which it would not be if they ran elsewhere.
var moves = regexp.MustCompile(`(?:^|[;&|({!\n]|\b(?:do|then|else|elif|if|while|until|time|command|builtin)\s)\s*(?:[A-Za-z_]\w*=(?:"[^"]*"|'[^']*'|[^\s"'])*\s+)*(?:cd|pushd|popd|export|source|\.|alias|set|unset|ulimit|umask)(?:$|[\s;&|)])`)

// locked is a command that runs another one under a lock.
func locked(program string, needs []string, command string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	out := quote(program) + " run"
	if len(needs) > 0 {
		out += " --needs " + quote(strings.Join(needs, ","))
	}
	return out + " -- " + cmp.Or(shellName(), "sh") + " -c " + quote(command)
}

// account is which bot is asked, and by which token.
func (h Program) account() (account.Account, error) {
	if h.Account == "" {
		return account.Load()
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} { // what is installed doesn't depend on who starts it
		_ = os.Unsetenv(name) // never fails
	}
	a, err := account.Read(h.Account)
	if err != nil {
		err = fmt.Errorf("%s can't be read (%w). Run %s hook install %s", h.Account, err, account.Program(), h.ID)
	}
	return a, err
}

// ask asks the bot, in the conversation of the program's session.
func (h Program) ask(ctx context.Context, ev hookEvent, q question, errs io.Writer) (verdict, error) {
	who, err := h.account()
	if err != nil {
		return verdict{}, unasked{err}
	}
	tool, in := q.call()
	args, err := json.Marshal(in)
	if err != nil {
		return verdict{}, err
	}
	c := client.New(who.URL, who.Token)
	c.HTTP.Transport = &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: hookPatience} // and no proxy
	x, err := h.wait(ctx, c, ev, tool, args, errs)
	no, refused := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return verdict{}, errors.New("nobody decided in time. Ask again if it is still needed")
	case ctx.Err() != nil:
		return verdict{}, errors.New("the hook was interrupted")
	case refused && no.Status == http.StatusUnauthorized:
		return verdict{}, unasked{fmt.Errorf("%s Sign in at %[2]s. If that doesn't help: %[3]s login LINK, then %[3]s hook install %[4]s", no.Sentence, who.URL, account.Program(), h.ID)}
	case refused && no.Status/100 == 4:
		return verdict{}, err
	case err != nil:
		return verdict{}, unasked{err}
	case x.Unknown:
		return verdict{}, errors.New("the decision is unknown. Retry")
	case !x.Allowed:
		return verdict{why: "Countersign: " + cmp.Or(strings.Join(strings.Fields(visible.Text(x.Note)), " "), "not allowed")}, nil
	}
	return q.became(x, strings.TrimRight(who.URL, "/")+"/#t="+x.Thread)
}

// wait asks for a call of a tool and waits for its end.
func (h Program) wait(ctx context.Context, c *client.Client, ev hookEvent, tool string, args json.RawMessage, errs io.Writer) (client.Result, error) {
	limited, cancel := context.WithTimeout(ctx, cmp.Or(h.patience, hookPatience))
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

// digest tells a command or a file from all others, as the tools allow_command and allow_edit do.
func digest[T string | []byte](text T) string {
	sum := sha256.Sum256([]byte(text))
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
