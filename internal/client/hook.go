package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/internal/config"
	"countersign/internal/words"
)

// maxHook is the longest input of a hook, in bytes.
const maxHook = 1 << 20

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

// hooked is a program that asks by a hook.
type hooked struct {
	// ID is its name on the command line, Name the one on cards.
	ID, Name string
	// Shells are its tools that run a command, Events the events at which it asks.
	Shells, Events []string
	// Answer is what it reads: that the program may run a command, and which one where people have
	// changed it, or why not. nil is nothing, which leaves the question to the program's own prompt.
	Answer func(ev hookEvent, v verdict) any
	// File is its file of settings below the home directory, and Matcher the tools that ask there.
	File, Matcher string
	// Limit is how long it waits for an answer, in the unit of its settings.
	Limit int
}

// verdict is what became of a question.
type verdict struct {
	allowed bool
	command string // that is allowed
	why     string // not
}

var hooks = []hooked{
	{
		ID: "claude-code", Name: "Claude Code", Shells: []string{"Bash"}, Events: []string{"PreToolUse"}, File: ".claude/settings.json", Matcher: "Bash", Limit: 1200,
		Answer: func(ev hookEvent, v verdict) any {
			out := map[string]any{"hookEventName": ev.Event, "permissionDecision": "allow", "permissionDecisionReason": "Countersign allows it."}
			switch {
			case !v.allowed:
				out["permissionDecision"], out["permissionDecisionReason"] = "deny", v.why
			case v.command != ev.Input["command"]:
				changed := maps.Clone(ev.Input)
				changed["command"] = v.command
				out["updatedInput"], out["permissionDecisionReason"] = changed, "People have changed the command."
			}
			return map[string]any{"hookSpecificOutput": out}
		},
	},
	{
		ID: "codex", Name: "Codex", Shells: []string{"Bash"}, Events: []string{"PermissionRequest"}, File: ".codex/hooks.json", Matcher: "Bash", Limit: 1200,
		Answer: func(ev hookEvent, v verdict) any {
			decision := map[string]any{"behavior": "allow"}
			if v = v.unchanged(ev); !v.allowed {
				decision = map[string]any{"behavior": "deny", "message": v.why}
			}
			return map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": ev.Event, "decision": decision}}
		},
	},
	{
		ID: "gemini-cli", Name: "Gemini CLI", Shells: []string{"run_shell_command"}, Events: []string{"BeforeTool"}, File: ".gemini/settings.json", Matcher: "run_shell_command",
		Limit: 1200000,
		Answer: func(ev hookEvent, v verdict) any {
			if v = v.unchanged(ev); !v.allowed {
				return map[string]any{"decision": "deny", "reason": v.why}
			}
			return map[string]any{"decision": "allow"}
		},
	},
}

// unchanged is a verdict for a program that runs only what it asked for.
func (v verdict) unchanged(ev hookEvent) verdict {
	if v.allowed && v.command != ev.Input["command"] {
		return verdict{why: "People have changed the command. Run exactly this one instead: " + v.command}
	}
	return v
}

func hookCommand() *cobra.Command {
	c := &cobra.Command{Use: "hook", Short: "Answer a coding agent that asks before it runs a command"}
	for _, h := range hooks {
		c.AddCommand(&cobra.Command{
			Use: h.ID, Short: "Answer " + h.Name + ": a proven read immediately, anything else once people approve it", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return h.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			},
		})
	}
	c.AddCommand(&cobra.Command{
		Use: "install PROGRAM", Short: "Have a coding agent ask: show how its settings change, and write them once you agree",
		Args: cobra.ExactArgs(1), ValidArgsFunction: hookNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := hookOf(args[0])
			if err != nil {
				return err
			}
			return h.install(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	})
	return c
}

func hookNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, h := range hooks {
		out = append(out, cobra.CompletionWithDesc(h.ID, h.Name))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func hookOf(id string) (hooked, error) {
	var known []string
	for _, h := range hooks {
		if h.ID == id {
			return h, nil
		}
		known = append(known, h.ID)
	}
	return hooked{}, config.Errorf("there is no hook for %q; there is one for %s", id, strings.Join(known, ", "))
}

// run answers one question. Whatever goes wrong is said on standard error, and nothing is answered:
// the program then asks by its own prompt.
func (h hooked) run(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	ev, command, err := h.read(in)
	if err == nil && command == "" {
		return nil // it's about something else
	}
	var v verdict
	if err == nil {
		v, err = h.ask(ctx, ev, command, errs)
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

// read reads a question. command is "" where the program asks about something else.
func (h hooked) read(in io.Reader) (ev hookEvent, command string, err error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxHook+1))
	switch {
	case err != nil:
		return ev, "", err
	case len(raw) > maxHook:
		return ev, "", errors.New("what it asks about is longer than a megabyte")
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		return ev, "", fmt.Errorf("what it says is not in the format of %s that is known here", h.Name)
	}
	if !slices.Contains(h.Events, ev.Event) || !slices.Contains(h.Shells, ev.Tool) {
		return ev, "", nil
	}
	command, ok := ev.Input["command"].(string)
	if !ok || strings.TrimSpace(command) == "" {
		return ev, "", errors.New("it names no command")
	}
	// The bot doesn't see what stands around a command, and a space can be a part of its last word.
	if strings.Trim(command, "\n") != strings.TrimSpace(command) || strings.HasSuffix(strings.TrimSpace(command), `\`) {
		return ev, "", errors.New("the command begins or ends with a space or a backslash")
	}
	for _, name := range []string{"directory", "dir_path"} { // Gemini CLI's, of several versions
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
		return ev, "", errors.New("it doesn't say in which directory")
	}
	return ev, command, nil
}

// ask asks the bot, in the conversation of the program's session.
func (h hooked) ask(ctx context.Context, ev hookEvent, command string, errs io.Writer) (verdict, error) {
	account, err := Load()
	if err != nil {
		return verdict{}, err
	}
	place, err := h.place(ev.Session)
	if err != nil {
		return verdict{}, err
	}
	defer func() { _ = place.Close() }()
	known, err := io.ReadAll(io.LimitReader(place, 200))
	if err != nil {
		return verdict{}, err
	}
	keep := func(thread string) error {
		err := place.Truncate(0)
		if err == nil {
			_, err = place.WriteAt([]byte(thread), 0)
		}
		return err
	}
	c := New(account)
	told := func(thread, request string) {
		_ = keep(thread) // else the next question begins another
		_, _ = fmt.Fprintf(errs, "Waiting for approval of request %s: %s/#t=%s\n", request, c.base, thread)
	}
	w := wanted{thread: c.free(ctx, string(known)), target: "outside:" + hostName(), command: command, program: h.Name, dir: ev.Dir, shell: shellName(), waits: told}
	thread, x, err := c.run(ctx, w)
	if ctx.Err() != nil && thread != "" {
		c.withdraw(thread)
	}
	if err != nil {
		return verdict{}, err
	}
	if thread != w.thread {
		if err := keep(thread); err != nil {
			return verdict{}, err
		}
	}
	return decided(command, x, c.base+"/#t="+thread)
}

// decided is what became of the question about a command. What is stored of an answer has no secrets,
// so commands are told apart by their digests.
func decided(command string, x chat.Executed, page string) (verdict, error) {
	switch {
	case x.Unknown:
		return verdict{}, errors.New("nobody knows what was decided")
	case !x.Allowed:
		return verdict{why: "Countersign: " + cmp.Or(oneLine(x.Note), "not allowed")}, nil
	case x.Digest == digest(strings.TrimSpace(command)):
		return verdict{allowed: true, command: command}, nil
	case x.Digest == digest(x.Command):
		return verdict{allowed: true, command: x.Command}, nil
	}
	return verdict{why: "Countersign: people have changed the command, and it has a secret in it. It's in " + page}, nil
}

// digest tells a command from all others, as the tool allow_command does.
func digest(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// free is a conversation in which something can be asked. What still waits in it was asked by a hook
// that is gone, since this one holds its file: it is withdrawn, and another conversation begins.
func (c *Client) free(ctx context.Context, thread string) string {
	var x chat.Executed
	switch {
	case thread == "":
		return ""
	case c.Call(ctx, http.MethodGet, "/threads/"+url.PathEscape(thread)+"/exec", nil, &x) != nil:
		return ""
	case x.State == chat.ExecWaiting, x.State == chat.ExecRunning:
		c.withdraw(thread)
		return ""
	}
	return thread
}

// odder are characters that the name of a file doesn't get.
var odder = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// maxBeside is how many questions of a session may wait side by side.
const maxBeside = 32

// place is the file that names the conversation of a session, held until it is closed. A conversation
// has one question at a time, so a question that waits beside others has another one. Files of a
// month ago are deleted.
func (h hooked) place(session string) (*os.File, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "countersign", "hooks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if all, err := os.ReadDir(dir); err == nil {
		for _, e := range all {
			if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > 30*24*time.Hour {
				_ = os.Remove(filepath.Join(dir, e.Name())) // the next time, else
			}
		}
	}
	name := odder.ReplaceAllString(session, "_")
	name = h.ID + "-" + cmp.Or(name[:min(len(name), 80)], "session")
	for n := range maxBeside {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(name, ".", n)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return f, nil
		}
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d questions of this session wait already", maxBeside)
}

// hostName is what this machine calls itself.
func hostName() string {
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

// install has a program ask.
func (h hooked) install(in io.Reader, out io.Writer) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	file := filepath.Join(home, filepath.FromSlash(h.File))
	if place, err := filepath.EvalSymlinks(file); err == nil {
		file = place // settings that are kept elsewhere stay there
	}
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	mode := os.FileMode(0o600)
	if st, err := os.Stat(file); err == nil {
		mode = st.Mode().Perm()
	}
	settings := map[string]any{}
	if len(bytes.TrimSpace(was)) > 0 {
		d := json.NewDecoder(bytes.NewReader(was))
		d.UseNumber() // as they were written
		if err := d.Decode(&settings); err != nil {
			return config.Errorf("%s isn't valid JSON: %v. Repair it, or add the hook by hand", file, err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	command := strconv.Quote(program) + " hook " + h.ID
	if strings.Trim(program, plain) == "" {
		command = program + " hook " + h.ID
	}
	entry := map[string]any{"matcher": h.Matcher, "hooks": []any{map[string]any{"type": "command", "command": command, "timeout": h.Limit}}}
	all, ok := settings["hooks"].(map[string]any)
	if !ok {
		if settings["hooks"] != nil {
			return config.Errorf(`"hooks" in %s has a form that is not known here; add the hook by hand`, file)
		}
		all = map[string]any{}
	}
	event := h.Events[0]
	list, ok := all[event].([]any)
	if !ok && all[event] != nil {
		return config.Errorf(`"hooks.%s" in %s has a form that is not known here; add the hook by hand`, event, file)
	}
	list = slices.DeleteFunc(list, func(x any) bool { // an entry of another version, or from another place
		raw, _ := json.Marshal(x)
		group, _ := x.(map[string]any)
		in, _ := group["hooks"].([]any)
		return len(in) == 1 && bytes.Contains(raw, []byte(" hook "+h.ID+`"`))
	})
	all[event] = append(list, entry)
	settings["hooks"] = all
	var now bytes.Buffer
	enc := json.NewEncoder(&now)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(settings); err != nil {
		return err
	}
	if bytes.Equal(bytes.TrimSpace(was), bytes.TrimSpace(now.Bytes())) {
		_, _ = fmt.Fprintf(out, "%s asks already, by %s.\n", h.Name, file)
		return nil
	}
	raw, _ := json.MarshalIndent(map[string]any{"hooks": map[string]any{event: []any{entry}}}, "  ", "  ")
	_, _ = fmt.Fprintf(out, "This goes into %s; what else it has stays:\n\n  %s\n\nWrite yes: ", file, raw)
	var answer string
	if _, err := fmt.Fscanln(in, &answer); err != nil || answer != "yes" {
		return config.Errorf("nothing was written")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp := file + ".countersign-new"
	if err := os.WriteFile(tmp, now.Bytes(), mode); err != nil {
		return err
	}
	if err := os.Rename(tmp, file); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%s asks from its next start on. If this machine isn't signed in yet: %s login LINK\n", h.Name, words.Program())
	return nil
}
