package remote

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"countersign/adapters/chat/visible"
	"countersign/client/account"
	"countersign/client/hook"
	"countersign/config"
)

//go:embed opencode.js
var opencodePlugin string

// install has a program ask. files says that it also asks before it changes files.
func install(ctx context.Context, h hook.Program, in io.Reader, out io.Writer, files bool) error {
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
	who, err := account.Load()
	if err != nil {
		return config.Errorf("%v", err)
	}
	keep, err := account.HookFile(h.ID)
	if err != nil {
		return err
	}
	program, err := asking(h)
	if err != nil {
		return err
	}
	program = append(program, "--account", keep, "--limit", hook.Limit.String())
	if lock := lockOf(ctx, program[0]); lock != "" && h.Rewrites {
		program = append(program, "--lock", lock)
	}
	matched := h.Shells
	if files {
		matched = slices.Concat(h.Shells, h.Edits)
	}
	now, shown, err := plugin(program, matched)
	if h.Unit > 0 {
		now, shown, err = settingsOf(h, file, was, program, matched)
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "This goes into %s; what else it has stays:\n\n  %s\n\nA new token that can only ask, at %s as %s, goes into %s.\n\nWrite yes: ", file, shown, who.URL, visible.Line(who.User), keep)
	var answer string
	if _, err := fmt.Fscanln(in, &answer); err != nil || answer != "yes" {
		return config.Errorf("nothing was written")
	}
	if err := renew(ctx, h, who, keep); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if st, err := os.Stat(file); err == nil {
		mode = st.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp := file + ".countersign-new"
	if err := os.WriteFile(tmp, now, mode); err != nil {
		return err
	}
	if err := os.Rename(tmp, file); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Restart %s to use the hook.\n", h.Name)
	return nil
}

// renew gives a program's hook a token of its own, and ends the one that it had.
func renew(ctx context.Context, h hook.Program, who Account, file string) error {
	made, err := New(who).ProgramToken(ctx, h.Name)
	if err != nil {
		return err
	}
	old, had := account.Read(file)
	if err := (Account{URL: who.URL, Token: made.Token, ID: made.ID, User: who.User}).Write(file); err != nil {
		return err
	}
	if had == nil {
		_ = New(old).Call(ctx, http.MethodPost, "/tokens/"+url.PathEscape(old.ID)+"/end", struct{}{}, nil) // it may have ended, and so may its bot
	}
	return nil
}

// asking is the command that asks: the small program beside this one, which starts faster, or else
// this one.
func asking(h hook.Program) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	small := filepath.Join(filepath.Dir(program), "countersign-hook")
	if st, err := os.Stat(small); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
		return []string{small, h.ID}, nil
	}
	return []string{program, "hook", h.ID}, nil
}

// lockOf is the program countersign-lock beside another one, or on PATH, if it works here.
func lockOf(ctx context.Context, program string) string {
	lock := filepath.Join(filepath.Dir(program), "countersign-lock")
	if _, err := os.Stat(lock); err != nil {
		if lock, err = exec.LookPath("countersign-lock"); err != nil {
			return ""
		}
	}
	if exec.CommandContext(ctx, lock, "check").Run() != nil {
		return ""
	}
	return lock
}

// plugin is the file of a program's plugin.
func plugin(program []string, tools []string) (now []byte, shown string, err error) {
	name, err := json.Marshal(program)
	if err != nil {
		return nil, "", err
	}
	list, err := json.Marshal(tools)
	if err != nil {
		return nil, "", err
	}
	text := strings.NewReplacer("PROGRAM", string(name), "TOOLS", string(list)).Replace(opencodePlugin)
	return []byte(text), strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "), nil
}

// settings adds the hook to a program's settings.
func settingsOf(h hook.Program, file string, was []byte, program, tools []string) (now []byte, shown string, err error) {
	settings := map[string]any{}
	if len(bytes.TrimSpace(was)) > 0 {
		d := json.NewDecoder(bytes.NewReader(was))
		d.UseNumber() // as they were written
		if err := d.Decode(&settings); err != nil {
			return nil, "", config.Errorf("%s isn't valid JSON: %v. Repair it, or add the hook by hand", file, err)
		}
	}
	command, err := quoted(program)
	if err != nil {
		return nil, "", err
	}
	// A hook that is gone, or was killed, is no yes: every program takes this exit code for a denial.
	command += fmt.Sprintf(" || exit %d", hook.Denied)
	entry := map[string]any{"matcher": strings.Join(tools, "|"), "hooks": []any{map[string]any{"type": "command", "command": command, "timeout": int(hook.Limit / h.Unit)}}}
	all, ok := settings["hooks"].(map[string]any)
	if !ok {
		if settings["hooks"] != nil {
			return nil, "", config.Errorf(`"hooks" in %s has a form that is not known here; add the hook by hand`, file)
		}
		all = map[string]any{}
	}
	event := h.Events[0]
	list, ok := all[event].([]any)
	if !ok && all[event] != nil {
		return nil, "", config.Errorf(`"hooks.%s" in %s has a form that is not known here; add the hook by hand`, event, file)
	}
	list = slices.DeleteFunc(list, func(x any) bool { // an entry of another version, or from another place
		raw, _ := json.Marshal(x)
		group, _ := x.(map[string]any)
		in, _ := group["hooks"].([]any)
		return len(in) == 1 && (bytes.Contains(raw, []byte("hook "+h.ID)) || bytes.Contains(raw, []byte("hook' "+h.ID)))
	})
	all[event] = append(list, entry)
	settings["hooks"] = all
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(settings); err != nil {
		return nil, "", err
	}
	raw, err := json.MarshalIndent(map[string]any{"hooks": map[string]any{event: []any{entry}}}, "  ", "  ")
	return text.Bytes(), string(raw), err
}
