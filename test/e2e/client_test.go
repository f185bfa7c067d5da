package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// TestTheCommandLineIsAClient signs a command line in by a link, and works from there: it asks,
// reads, denies, approves on a terminal, and signs out.
func TestTheCommandLineIsAClient(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	l := newLedger(t, map[string][]turn{"do it": {{calls: []call{shell("echo x >> " + ran)}}}})
	b := newBot(t, plainConfig, l.url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	ok := func(args ...string) string {
		t.Helper()
		out, errs, code := b.run("", args...)
		if code != 0 {
			t.Fatalf("%q: %s%s", args, out, errs)
		}
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, errs, code := b.run("", args...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: %d %s%s, want %q", args, code, out, errs, want)
		}
	}
	refused("is not signed in", "threads")
	refused("no link to sign in", "login", "http://x/#nothing=1")
	link := strings.TrimSpace(ok("login", "alice"))
	if got := ok("login", link); !strings.Contains(got, "as alice, for 30 days, with scope ask") {
		t.Errorf("login says %q", got)
	}
	refused("already used", "login", link)
	refused("This token can only ask", "threads")
	ok("login", "--scope", "full", strings.TrimSpace(ok("login", "alice")))

	var sent struct{ Thread string }
	if err := json.Unmarshal([]byte(ok("send", "-o", "json", "please do it")), &sent); err != nil || sent.Thread == "" {
		t.Fatalf("%+v %v", sent, err)
	}
	type approval struct {
		ID   string
		Mine bool
		Card struct{ Title, Code string }
	}
	open := func(but string) (a approval) { // the first page is half a second behind
		t.Helper()
		eventually(t, "a request", func() bool {
			var list []approval
			if err := json.Unmarshal([]byte(ok("approvals", "list", "-o", "json")), &list); err != nil {
				t.Fatal(err)
			}
			if len(list) > 0 {
				a = list[0]
			}
			return len(list) > 0 && a.ID != but
		}, b.log.String)
		return a
	}
	first := open("")
	if !first.Mine || first.Card.Code != "echo x >> "+ran {
		t.Errorf("%+v", first)
	}
	if got := ok("approvals"); !strings.Contains(got, first.ID+"  you") {
		t.Errorf("approvals says\n%s", got)
	}
	if got := ok("approvals", "show", first.ID); !strings.Contains(got, "    echo x >> "+ran+"\n") {
		t.Errorf("show says\n%s", got)
	}
	refused("no terminal to ask on", "approvals", "approve", first.ID)
	ok("send", "--thread", sent.Thread, "approve "+first.ID)
	eventually(t, "the refusal of a vote by a token", func() bool { return strings.Contains(ok("show", sent.Thread), "A token can't approve or deny") }, func() string { return ok("show", sent.Thread) })
	decides := func(env []string, link bool, say string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"approvals"}, args...)...)
		cmd.Env, cmd.Dir = env, b.dir
		y := typing(t, cmd)
		if link {
			y.answer("link to sign in", strings.TrimSpace(ok("login", "alice")))
		}
		if say != "" {
			y.answer("Write yes:", say)
		}
		if err := <-y.done; err != nil {
			t.Log(err) // what it said tells whether it should
		}
		return y.said.String()
	}
	elsewhere := append(slices.Clone(b.env), "COUNTERSIGN_DATA_DIR="+t.TempDir()) // as on another machine
	if said := decides(elsewhere, true, "no", "approve", first.ID); !strings.Contains(said, "nothing was decided") {
		t.Errorf("approve says\n%s", said)
	}
	ok("approvals", "deny", first.ID, "--reason", "not now")
	refused("no request nothing waits", "approvals", "deny", "nothing")
	if lines(ran) != 0 {
		t.Fatal("it ran")
	}
	ok("send", "--thread", sent.Thread, "do it again")
	second := open(first.ID)
	if said := decides(elsewhere, true, "yes", "approve", second.ID); !strings.Contains(said, "    echo x >> "+ran) {
		t.Errorf("approve says\n%s", said)
	}
	eventually(t, "the command's end", func() bool { return strings.Contains(ok("show", sent.Thread), "the end") && lines(ran) == 1 }, func() string { return ok("show", sent.Thread) })

	if got := ok("threads"); !strings.Contains(got, sent.Thread) || !strings.Contains(got, "please do it") {
		t.Errorf("threads says\n%s", got)
	}
	if got := ok("threads", "--find", "nothing of this", "-o", "yaml"); strings.TrimSpace(got) != "[]" {
		t.Errorf("threads says\n%s", got)
	}
	ok("sessions")
	refused("-o is \"xml\"", "threads", "-o", "xml")
	var tokens []struct{ ID, Scope string }
	if err := json.Unmarshal([]byte(ok("tokens", "-o", "json")), &tokens); err != nil || len(tokens) != 2 || tokens[0].Scope != "full" || tokens[1].Scope != "ask" {
		t.Fatalf("%+v %v", tokens, err)
	}
	if got := ok("tokens", "--of", "alice"); !strings.Contains(got, tokens[1].ID) {
		t.Errorf("the operator sees\n%s", got)
	}
	ok("tokens", "end", tokens[1].ID)
	if got := ok("tokens"); strings.Contains(got, tokens[1].ID) || !strings.Contains(got, tokens[0].ID) {
		t.Errorf("after the end of one:\n%s", got)
	}
	out := ok("login", "--print", "--scope", "read", "--days", "1", strings.TrimSpace(ok("login", "alice")))
	for line := range strings.FieldsSeq(out) {
		b.env = append(b.env, line)
	}
	ok("threads")
	refused("This token is read-only", "send", "x")
	b.env = b.env[:len(b.env)-2]
	ok("logout")
	refused("is not signed in", "threads")
	if _, err := os.Stat(filepath.Join(b.dir, "settings", "countersign", "client.json")); !os.IsNotExist(err) {
		t.Errorf("the token is still there: %v", err)
	}
}

// A terminal of a conversation, in the person's own terminal: watched, typed in under the rule of
// the one keyboard, played again later, and in the record.
func TestATerminalInOnesOwnTerminal(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		const how = "panes need tmux: apt-get install tmux"
		if os.Getenv("CI") == "true" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	l := newLedger(t, map[string][]turn{"look": {{calls: []call{{"run_shell", `{"command": "echo 'from the ''bot'", "risk": "low", "mutation": false, "privesc": false, "why": "look"}`}}}}})
	b := newBot(t, strings.Replace(plainConfig, "tmux: false, ", "", 1), l.url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	ok := func(args ...string) string {
		t.Helper()
		out, errs, code := b.run("", args...)
		if code != 0 {
			t.Fatalf("%q: %s%s", args, out, errs)
		}
		return out
	}
	ok("login", "--scope", "full", strings.TrimSpace(ok("login", "alice")))
	var sent struct{ Thread string }
	if err := json.Unmarshal([]byte(ok("send", "-o", "json", "look there")), &sent); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := b.run("", "attach", sent.Thread, "nothing"); code == 0 || !strings.Contains(errs, "has no terminal") {
		t.Errorf("attach says %q", errs)
	}
	eventually(t, "the answer", func() bool { return strings.Contains(ok("show", sent.Thread), "the end") }, func() string { return ok("show", sent.Thread) })
	if _, errs, code := b.run("", "attach", sent.Thread, "--take"); code == 0 || !strings.Contains(errs, "nobody to type") {
		t.Errorf("attach says %q", errs)
	}
	attach := func(more ...string) *typist {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"attach", sent.Thread}, more...)...)
		cmd.Env, cmd.Dir = b.env, b.dir
		return typing(t, cmd)
	}
	shows := func(y *typist, what string) {
		t.Helper()
		eventually(t, what, func() bool { return strings.Contains(y.said.String(), what) }, func() string { return y.said.String() + ok("show", sent.Thread) })
	}
	leaves := func(y *typist) {
		t.Helper()
		if _, err := y.tty.WriteString("\x1d"); err != nil {
			t.Fatal(err)
		}
		if err := <-y.done; err != nil {
			t.Errorf("%v\n%s", err, y.said)
		}
	}
	watcher := attach()
	shows(watcher, "from the bot")
	if _, err := watcher.tty.WriteString("echo not typed\r"); err != nil {
		t.Fatal(err)
	}
	typist := attach("--take")
	shows(typist, "from the bot")
	eventually(t, "what was typed", func() bool {
		if _, err := typist.tty.WriteString("\x15echo typed $((40+2))\r"); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(typist.said.String(), "typed 42")
	}, typist.said.String)
	shows(watcher, "typed 42")
	if strings.Contains(watcher.said.String(), "not typed") {
		t.Errorf("keys of who only watches were typed:\n%s", watcher.said)
	}
	leaves(typist)
	leaves(watcher)
	eventually(t, "the keyboard's return", func() bool { return strings.Contains(ok("show", sent.Thread), "give local:") }, func() string { return ok("show", sent.Thread) })

	var list []struct{ ID string }
	eventually(t, "the recording", func() bool {
		if err := json.Unmarshal([]byte(ok("replay", sent.Thread, "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		return len(list) == 1 && strings.Contains(ok("replay", sent.Thread, list[0].ID), "typed 42")
	}, func() string { return ok("replay", sent.Thread) })
	if got := ok("logs"); !strings.Contains(got, "alice") {
		t.Errorf("logs says\n%s", got)
	}
	cmd := exec.CommandContext(t.Context(), binary, "logs", "-f")
	cmd.Env, cmd.Dir = b.env, b.dir
	y := typing(t, cmd)
	shows(y, "alice")
	ok("send", "--thread", sent.Thread, "look again")
	if _, err := y.tty.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if err := <-y.done; err == nil {
		t.Error("logs -f ended as if nothing had interrupted it")
	}
}
