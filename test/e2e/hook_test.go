package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/client"
	"countersign/client/account"
	"countersign/test/needstest"
)

// hooked is a coding agent that asks by its hook.
type hooked struct {
	t       *testing.T
	b       *bot
	program string
}

// event is what the program says before it runs a command.
func (h hooked) event(command string, more map[string]any) string {
	event, tool := "PreToolUse", "Bash"
	switch h.program {
	case "codex":
		event = "PermissionRequest"
	case "gemini-cli":
		event, tool = "BeforeTool", "run_shell_command"
	case "opencode":
		event, tool = "tool.execute.before", "bash"
	}
	in := map[string]any{
		"session_id": "s-" + h.program, "transcript_path": "/nowhere", "cwd": h.b.dir, "hook_event_name": event, "tool_name": tool,
		"tool_input": map[string]any{"command": command, "description": "Says that it's harmless"},
	}
	maps.Copy(in, more)
	raw, _ := json.Marshal(in)
	return string(raw)
}

// asks is a question that is answered without people.
func (h hooked) asks(input string) (answer, errs string) {
	h.t.Helper()
	out, errs, code := h.b.run(input, "hook", h.program)
	if code != 0 {
		h.t.Errorf("%s: exit code %d: %s", h.program, code, errs)
	}
	return strings.TrimSpace(out), errs
}

// waits is a question that people decide.
func (h hooked) waits(input string) (request, thread string, answer func() string, stop func(syscall.Signal)) {
	h.t.Helper()
	var o, e logBuffer
	cmd := exec.CommandContext(h.t.Context(), binary, "hook", h.program)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.b.env, h.b.dir, strings.NewReader(input), &o, &e
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	eventually(h.t, "a request", func() bool {
		_, after, _ := strings.Cut(e.String(), "approval of request ")
		request, after, _ = strings.Cut(after, ":")
		_, after, _ = strings.Cut(after, "#t=")
		thread, _, _ = strings.Cut(after, "\n")
		return thread != ""
	}, func() string { return o.String() + e.String() + h.b.log.String() })
	if o.String() != "" {
		h.t.Errorf("%s answered before anybody decided: %s", h.program, o.String())
	}
	return request, thread, func() string {
			if err := cmd.Wait(); err != nil {
				h.t.Errorf("%v: %s", err, e.String())
			}
			return strings.TrimSpace(o.String())
		}, func(s syscall.Signal) {
			_ = cmd.Process.Signal(s)
			_ = cmd.Wait()
		}
}

// TestACodingAgentAsksByItsHook: proven reads are allowed immediately, everything else once people
// approve it; what can't be read or asked is denied; the bot runs nothing.
func TestACodingAgentAsksByItsHook(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	l := newLedger(t, nil)
	b := newBot(t, plainConfig+"policy: {rules: [{name: no-force, when: \"command.contains('push --force') && target.startsWith('outside:')\", then: forbid, sentence: Nobody forces a push.}]}\n", l.url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"), "XDG_CACHE_HOME="+filepath.Join(b.dir, "cache"), "SHELL=/bin/bash")
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	claude := hooked{t, b, "claude-code"}
	if out, errs := claude.asks(claude.event("ls", nil)); !strings.Contains(out, `"deny"`) || !strings.Contains(out, "not signed in") {
		t.Errorf("before anybody has signed in: %q %q", out, errs)
	}
	if _, errs, code := b.run("", "login", "--scope", "full", b.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	bob := b.login("bob")
	allow := map[string]string{
		"claude-code": `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"Countersign allows it."}}`,
		"codex":       `{"hookSpecificOutput":{"decision":{"behavior":"allow"},"hookEventName":"PermissionRequest"}}`,
		"gemini-cli":  `{"decision":"allow"}`,
		"opencode":    `{"decision":"allow"}`,
	}
	for _, program := range []string{"claude-code", "codex", "gemini-cli", "opencode"} {
		if program != "claude-code" && !needstest.Whole(t) {
			continue
		}
		h := hooked{t, b, program}
		if out, errs := h.asks(h.event("ls -la /etc", nil)); out != allow[program] {
			t.Errorf("%s, a read: %s %s", program, out, errs)
		}
		ran := filepath.Join(b.dir, "ran-"+program)
		request, thread, answer, _ := h.waits(h.event("touch "+ran, nil))
		list, _, _ := b.run("", "approvals", "show", request)
		for _, want := range []string{"touch " + ran, "outside:", map[string]string{"claude-code": "Claude Code", "codex": "Codex", "gemini-cli": "Gemini CLI", "opencode": "opencode"}[program]} {
			if !strings.Contains(list, want) {
				t.Errorf("%s: the card doesn't say %q: %s", program, want, list)
			}
		}
		if strings.Contains(list, "harmless") {
			t.Errorf("%s: the card has the program's own claim: %s", program, list)
		}
		bob.click(t, thread, bob.card(t, thread, "approve:"))
		if out := answer(); out != allow[program] {
			t.Errorf("%s, approved: %s", program, out)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: the bot ran it", program)
		}

		_, _, answer, _ = h.waits(h.event("rm -rf ./build-"+program, nil))
		if st, err := bob.do(http.MethodPost, "/api/threads/"+thread+"/clicks", map[string]any{"id": "deny" + program, "button": bob.card(t, thread, "deny:"), "reason": "after the release"}, nil); err != nil || st != http.StatusOK {
			t.Fatal(st, err)
		}
		if out := answer(); !strings.Contains(out, "after the release") || !strings.Contains(out, `"deny"`) {
			t.Errorf("%s, denied: %s", program, out)
		}
		if out, _ := h.asks(h.event("git push --force", nil)); !strings.Contains(out, "Nobody forces a push") || !strings.Contains(out, `"deny"`) {
			t.Errorf("%s, forbidden: %s", program, out)
		}
		if text, _, _ := b.run("", "show", thread); !strings.Contains(text, "ls -la /etc` on `outside:") || !strings.Contains(text, "· allowed to run") || strings.Contains(text, "digest") || strings.Contains(text, "· done") {
			t.Errorf("%s: the conversation is %s", program, text)
		}
		// The questions of a session are one conversation.
		var list2 []struct{ Title string }
		out, _, _ := b.run("", "threads", "--find", map[string]string{"claude-code": "Claude", "codex": "Codex", "gemini-cli": "Gemini", "opencode": "opencode"}[program], "-o", "json")
		if err := json.Unmarshal([]byte(out), &list2); err != nil || len(list2) != 1 {
			t.Errorf("%s: %s %v", program, out, err)
		}
		// What can't be read is denied, and what is no question of this kind gets no answer.
		for what, input := range map[string]string{
			"not JSON": "{", "nothing": "", "a list": "[1]", "no command": h.event("", nil), "no directory": h.event("ls", map[string]any{"cwd": ""}),
			"a command that is no text": h.event("ls", map[string]any{"tool_input": map[string]any{"command": []string{"ls"}}}),
			"a huge one":                h.event(strings.Repeat("x", 2<<20), nil),
			"a NUL byte":                h.event("ls\x00", nil),
		} {
			if out, errs := h.asks(input); !strings.Contains(out, `"deny"`) {
				t.Errorf("%s, %s: %q %q", program, what, out, errs)
			}
		}
		for what, input := range map[string]string{
			"another tool": h.event("ls", map[string]any{"tool_name": "WebFetch"}), "another event": h.event("ls", map[string]any{"hook_event_name": "PostToolUse"}),
		} {
			if out, errs := h.asks(input); out != "" || errs != "" {
				t.Errorf("%s, %s: %q %q", program, what, out, errs)
			}
		}
	}

	// Questions that wait side by side have a conversation each, and none is taken for another's.
	_, threadA, answerA, _ := claude.waits(claude.event("touch side-a", nil))
	_, threadB, answerB, _ := claude.waits(claude.event("touch side-b", nil))
	if threadA == threadB {
		t.Errorf("two questions wait in %s", threadA)
	}
	if out, errs := claude.asks(claude.event("ls -la /usr", nil)); out != allow["claude-code"] {
		t.Errorf("a read beside them: %s %s", out, errs)
	}
	bob.click(t, threadB, bob.card(t, threadB, "approve:"))
	if out := answerB(); out != allow["claude-code"] {
		t.Errorf("%s", out)
	}
	bob.click(t, threadA, bob.card(t, threadA, "approve:"))
	if out := answerA(); out != allow["claude-code"] {
		t.Errorf("%s", out)
	}

	// What is stored of an answer has no secrets, and the command that may run has its own all the same.
	_, thread, answer, _ := claude.waits(claude.event("git push https://ann:ghp_16C7e42F292c6912E7710c838347Ae178B4a@github.com/a/b\n", nil))
	bob.click(t, thread, bob.card(t, thread, "approve:"))
	if out := answer(); out != allow["claude-code"] {
		t.Errorf("with a secret: %s", out)
	}
	// A blank more changes nothing, and what the program may put something behind is no proven read.
	if out, errs := claude.asks(claude.event(" ls -la /etc ", nil)); out != allow["claude-code"] {
		t.Errorf("with blanks: %s %s", out, errs)
	}
	for _, odd := range []string{"rm a\\ ", "ls -la /etc \\", " touch x "} {
		_, _, _, end := claude.waits(claude.event(odd, map[string]any{"session_id": odd}))
		end(syscall.SIGTERM)
	}

	// A command that people changed is the one that may run.
	request, thread, answer, _ := claude.waits(claude.event("rm -rf ./tmp ./src", nil))
	if st, err := bob.do(http.MethodPost, "/api/threads/"+thread+"/clicks", map[string]any{"id": "edit" + request, "button": bob.card(t, thread, "edit:"), "text": "rm -rf ./tmp"}, nil); err != nil || st != http.StatusOK {
		t.Fatal(st, err)
	}
	eventually(t, "the changed card", func() bool {
		list, _, _ := b.run("", "approvals")
		return strings.Contains(list, "./tmp") && !strings.Contains(list, request)
	}, b.log.String)
	alice := b.login("alice")
	button := alice.card(t, thread, "approve:")
	alice.click(t, thread, button)
	if out := answer(); !strings.Contains(out, `"updatedInput":{"command":"rm -rf ./tmp"`) {
		t.Errorf("changed: %s", out)
	}

	// One that is ended takes its card with it.
	request, _, _, stop := claude.waits(claude.event("touch later", nil))
	gone := func() {
		t.Helper()
		eventually(t, "the card is gone", func() bool {
			list, _, _ := b.run("", "approvals")
			return !strings.Contains(list, request)
		}, b.log.String)
	}
	stop(syscall.SIGTERM)
	gone()
	// One that is killed leaves its card until the session asks again.
	request, _, _, stop = claude.waits(claude.event("touch later", nil))
	stop(syscall.SIGKILL)
	if out, errs := claude.asks(claude.event("ls -la /opt", nil)); out != allow["claude-code"] {
		t.Errorf("after a hook that was killed: %s %s", out, errs)
	}
	gone()

	// What a command runs is on its card, and is what runs: a file that changes meanwhile is asked about again.
	script := filepath.Join(b.dir, "deploy.sh")
	write := func(text string) {
		if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, changes := range []bool{false, true} {
		write("#!/bin/sh\nrsync site web-1:/srv\n")
		request, thread, answer, _ = claude.waits(claude.event("./deploy.sh --now", nil))
		if card, _, _ := b.run("", "approvals", "show", request); !strings.Contains(card, "rsync site web-1:/srv") {
			t.Errorf("the card doesn't have the script: %s", card)
		}
		if changes {
			write("#!/bin/sh\nrm -rf /\n")
		}
		bob.click(t, thread, bob.card(t, thread, "approve:"))
		if out := answer(); changes == (out == allow["claude-code"]) || changes && !strings.Contains(out, "deploy.sh has changed") {
			t.Errorf("changed %v: %s", changes, out)
		}
	}

	// Its own edits ask too, where it is installed so.
	edited := filepath.Join(b.dir, "site.conf")
	if err := os.WriteFile(edited, []byte("listen 80;\nroot /srv;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := func(h hooked, tool string, in map[string]any) string {
		return h.event("", map[string]any{"tool_name": tool, "tool_input": in})
	}
	for program, in := range map[string]string{
		"claude-code": edit(claude, "Edit", map[string]any{"file_path": edited, "old_string": "listen 80", "new_string": "listen 8080"}),
		"gemini-cli":  edit(hooked{t, b, "gemini-cli"}, "replace", map[string]any{"file_path": edited, "old_string": "listen 80", "new_string": "listen 8080"}),
		"opencode":    edit(hooked{t, b, "opencode"}, "write", map[string]any{"filePath": edited, "content": "listen 8080;\nroot /srv;\n"}),
		"codex":       edit(hooked{t, b, "codex"}, "apply_patch", map[string]any{"command": "*** Begin Patch\n*** Update File: site.conf\n@@\n-listen 80;\n+listen 8080;\n*** End Patch\n"}),
	} {
		request, thread, answer, _ := hooked{t, b, program}.waits(in)
		card, _, _ := b.run("", "approvals", "show", request)
		for _, want := range []string{"-listen 80;", "+listen 8080;", "site.conf"} {
			if !strings.Contains(card, want) {
				t.Errorf("%s: the card of an edit doesn't say %q: %s", program, want, card)
			}
		}
		bob.click(t, thread, bob.card(t, thread, "approve:"))
		if out := answer(); out != allow[program] {
			t.Errorf("%s, an edit: %s", program, out)
		}
	}
	if raw, err := os.ReadFile(edited); err != nil || !strings.Contains(string(raw), "listen 80;") {
		t.Errorf("the bot has written it: %s %v", raw, err)
	}

	// Another shell reads a command in its own way, so the proof doesn't hold.
	zsh := *b
	zsh.env = append(append([]string(nil), b.env...), "SHELL=/bin/zsh")
	_, _, _, end := hooked{t, &zsh, "claude-code"}.waits(claude.event("ls -la /var", map[string]any{"session_id": "zsh"}))
	end(syscall.SIGTERM)

	b.kill()
	for mode, want := range map[string]string{"bypassPermissions": `"deny"`, "default": `"ask"`} {
		if out, errs := claude.asks(claude.event("ls", map[string]any{"permission_mode": mode})); !strings.Contains(out, want) || !strings.Contains(out, "doesn't answer") {
			t.Errorf("without the bot, in %s: %q %q", mode, out, errs)
		}
	}
}

// TestAPatchIsJudgedByAllItsFiles: a rule about a path has to hold for each file, and the riskiest one decides.
func TestAPatchIsJudgedByAllItsFiles(t *testing.T) {
	t.Parallel()
	b := newBotWithClient(t)
	h := hooked{t, b, "codex"}
	docs := filepath.Join(b.dir, "docs")
	if err := os.Mkdir(docs, 0o700); err != nil {
		t.Fatal(err)
	}
	patch := func(names ...string) string {
		text := "*** Begin Patch\n"
		for _, name := range names {
			text += "*** Add File: " + name + "\n+x\n"
		}
		return h.event("", map[string]any{"session_id": strings.Join(names, " "), "tool_name": "apply_patch", "tool_input": map[string]any{"command": text + "*** End Patch\n"}})
	}
	rules := strings.Replace(plainConfig, "\n", "\npolicy: {rules: [{name: docs, when: \"tool == 'allow_edit' && path.startsWith('"+docs+"/')\", then: allow}]}\n", 1)
	b.kill()
	b.configure(t, rules)
	if !b.start() {
		t.Fatal(b.log)
	}
	if out, errs := h.asks(patch("docs/a.md", "docs/b.md")); !strings.Contains(out, `"allow"`) {
		t.Errorf("two files that the rule is about: %s %s", out, errs)
	}
	for other, want := range map[string]string{"deploy.txt": "medium", ".git/hooks/pre-push": "high"} {
		request, _, _, end := h.waits(patch("docs/a.md", other))
		card, _, _ := b.run("", "approvals", "show", request)
		if !strings.Contains(card, "Change 2 files") && !strings.Contains(card, "Create 2 files") || !strings.Contains(strings.ToLower(card), want) {
			t.Errorf("with %s: %s", other, card)
		}
		end(syscall.SIGTERM)
	}
}

// TestAHookIsInstalledWithWhatWasThere: the settings are shown first, keep what they have, and get
// one entry however often it is done. What is installed asks with a token of its own, and obeys no environment.
func TestAHookIsInstalledWithWhatWasThere(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBotWithClient(t)
	home := filepath.Join(b.dir, "home")
	b.env = append(b.env, "HOME="+home, "SHELL=/bin/bash")
	run := func(answer string, args ...string) (string, int) {
		out, errs, code := b.run(answer, append([]string{"hook", "install"}, args...)...)
		return out + errs, code
	}
	token := func(program string) (is account.Account) {
		name := filepath.Join(b.dir, "settings", "countersign", "hooks", program+".json")
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", program, err)
		}
		is, err := account.Read(name)
		if err != nil {
			t.Error(err)
		}
		return is
	}
	for program, file := range map[string]string{"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini-cli": ".gemini/settings.json"} {
		path := filepath.Join(home, file)
		if out, code := run("no\n", program); code == 0 || !strings.Contains(out, path) || !strings.Contains(out, "hook "+program) || !strings.Contains(out, "hooks/"+program+".json") {
			t.Errorf("%s, not agreed to: %d %s", program, code, out)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: it was written", program)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(home, "kept-"+program)
		if err := os.Symlink(kept, path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"model": "x<y", "big": 12345678901234567890, "hooks": {"Other": [{"hooks": []}]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := run("yes\n", program); code != 0 {
			t.Errorf("%s: %d %s", program, code, out)
		}
		first := token(program)
		if out, code := run("yes\n", program); code != 0 {
			t.Errorf("%s, again: %d %s", program, code, out)
		}
		second := token(program)
		if _, err := client.New(first.URL, first.Token).Open(t.Context()); err == nil || first.Token == second.Token {
			t.Errorf("%s: the token of before still works", program)
		}
		if _, err := client.New(second.URL, second.Token).Open(t.Context()); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		raw, err := os.ReadFile(path)
		var is struct {
			Model string
			Hooks map[string][]struct {
				Hooks []struct{ Command string }
			}
		}
		if err != nil || json.Unmarshal(raw, &is) != nil || is.Model != "x<y" || len(is.Hooks) != 2 || strings.Count(string(raw), " hook "+program) != 1 || !strings.Contains(string(raw), "12345678901234567890") {
			t.Fatalf("%s: %s %v", program, raw, err)
		}
		if st, err := os.Lstat(path); err != nil || st.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s: the link to the settings is gone: %v", program, err)
		}
		h := hooked{t, b, program}
		event := h.event("", nil)
		var named struct {
			Event string `json:"hook_event_name"`
		}
		_ = json.Unmarshal([]byte(event), &named) // it's ours
		command := is.Hooks[named.Event][0].Hooks[0].Command
		runs := func(command string) (string, int) {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SHELL=/bin/bash", "HOME=/nowhere", "XDG_CONFIG_HOME=/nowhere", "COUNTERSIGN_URL=http://127.0.0.1:1", "COUNTERSIGN_TOKEN=cst_x", "http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1"}
			cmd.Stdin = strings.NewReader(h.event("ls -la /etc", nil))
			out, _ := cmd.Output() // its code says it
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, code := runs(command); !strings.Contains(out, `"allow"`) || code != 0 {
			t.Errorf("%s: %s answers %d %s", program, command, code, out)
		}
		if out, code := runs("/nowhere/" + command); out != "" || code != 2 {
			t.Errorf("%s, whose hook is gone: %d %s", program, code, out)
		}
		if err := os.WriteFile(path, []byte("{,"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := run("yes\n", program); code == 0 || !strings.Contains(out, "isn't valid JSON") {
			t.Errorf("%s, of a broken file: %d %s", program, code, out)
		}
	}
	plugin := filepath.Join(home, ".config/opencode/plugins/countersign.js")
	if out, code := run("yes\n", "opencode", "--files"); code != 0 {
		t.Errorf("opencode: %d %s", code, out)
	}
	if raw, err := os.ReadFile(plugin); err != nil || !strings.Contains(string(raw), `["bash","write","edit"]`) || !strings.Contains(string(raw), binary) || !strings.Contains(string(raw), "hooks/opencode.json") {
		t.Errorf("opencode's plugin: %s %v", raw, err)
	}
	if out, code := run("yes\n", "vim"); code == 0 || !strings.Contains(out, "claude-code, codex, gemini-cli, opencode") {
		t.Errorf("%d %s", code, out)
	}
}

// BenchmarkHook measures what a coding agent waits for a proven read: the start of the program, the
// question and the answer. The floor is a program that does nothing.
func BenchmarkHook(b *testing.B) {
	bt := newBot(b, plainConfig, "http://127.0.0.1:1")
	bt.env = append(bt.env, "XDG_CONFIG_HOME="+filepath.Join(bt.dir, "settings"), "XDG_CACHE_HOME="+filepath.Join(bt.dir, "cache"), "SHELL=/bin/bash")
	if !bt.start() {
		b.Fatal(bt.log)
	}
	if _, errs, code := bt.run("", "login", strings.TrimSpace(first(bt.run("", "login", "alice")))); code != 0 {
		b.Fatal(errs)
	}
	small := filepath.Join(b.TempDir(), "countersign-hook")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", small, "./cmd/countersign-hook")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatal(string(out), err)
	}
	event := hooked{program: "claude-code", b: bt}.event("ls -la /etc", nil)
	var floor, reads []time.Duration
	for i := range 30 {
		begin := time.Now()
		if err := exec.CommandContext(b.Context(), "/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		cmd := exec.CommandContext(b.Context(), small, "claude-code")
		cmd.Env, cmd.Dir, cmd.Stdin = bt.env, bt.dir, strings.NewReader(event)
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), `"allow"`) {
			b.Fatal(string(out), err)
		}
		if i >= 5 {
			floor, reads = append(floor, between.Sub(begin)), append(reads, time.Since(between))
		}
	}
	b.ReportMetric(median(floor), "ms-true-p50")
	b.ReportMetric(median(reads), "ms-read-p50")
}

func first(out, _ string, _ int) string { return out }

// newBotWithClient is a bot that runs, and whose client alice has signed in.
func newBotWithClient(t *testing.T) *bot {
	t.Helper()
	b := newBot(t, plainConfig, newLedger(t, nil).url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	if _, errs, code := b.run("", "login", "--scope", "full", b.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	return b
}

// A program that ends between two of its questions has no use for its card any more, either.
func TestAProgramThatEndsBetweenItsQuestionsTakesItsCardWithIt(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBotWithClient(t)
	raw, err := os.ReadFile(filepath.Join(b.dir, "settings", "countersign", "client.json"))
	if err != nil {
		t.Fatal(err)
	}
	var account struct {
		URL   string `json:"url"`
		Token string `json:"token"`
	}
	if err := json.Unmarshal(raw, &account); err != nil || account.Token == "" {
		t.Fatalf("%v, %s", err, raw)
	}
	// It asks and never waits.
	call, err := client.New(account.URL, account.Token).Start(t.Context(), client.Request{
		Task: "session", Tool: "allow_command", Args: json.RawMessage(`{"host":"box","dir":"/srv","command":"touch later"}`),
		Caller: client.Caller{Way: client.WayHook, Program: "claude-code", Host: "box"},
	})
	if err != nil {
		t.Fatal(err)
	}
	open := func() bool {
		list, _, _ := b.run("", "approvals")
		return strings.Contains(list, call.Begun.Request)
	}
	eventually(t, "the card", open, func() string { list, errs, _ := b.run("", "approvals"); return list + errs })
	eventually(t, "the card is gone", func() bool { return !open() }, b.log.String)
}
