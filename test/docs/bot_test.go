package docs

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/llm/openai/openaitest"
	"countersign/test/buildtest"
	"countersign/test/needstest"
)

// binary is the built bot; it is called bot, so that its directory can be in PATH.
var binary string

func TestMain(m *testing.M) {
	os.Exit(needstest.Tidy(3, func() int {
		dir, err := os.MkdirTemp("", "countersign-docs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if binary, err = buildtest.Program(context.Background(), dir, "cmd/bot", nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := os.Symlink(binary, filepath.Join(filepath.Dir(binary), "countersign")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}

// missing skips the test when a program is not there, or fails it under CI.
func missing(t testing.TB, program, how string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	sentence := fmt.Sprintf("the documents' blocks need %s: %s", program, how)
	if os.Getenv("CI") == "true" {
		t.Fatal(sentence)
	}
	t.Skip(sentence)
}

// mutation is the one command that the model proposes, to whoever asks for it.
const mutation = "touch /tmp/countersign-docs"

// serveModel is a server of a model that can do what the documents need: answer the
// doctor's question, propose a command, and talk.
func serveModel(t testing.TB) (base string) {
	t.Helper()
	srv := httptest.NewServer(openaitest.New(func(c openaitest.Conversation) openaitest.Turn {
		if c.Results == 0 && slices.Equal(c.Tools, []string{"ping"}) {
			return openaitest.Turn{Calls: []openaitest.Call{{Name: "ping", Args: `{"word":"pong"}`}}}
		}
		if c.Results == 0 && strings.Contains(c.User, mutation) {
			args := fmt.Sprintf(`{"command":%q,"risk":"low","mutation":true,"privesc":false,"why":"it was asked for"}`, mutation)
			return openaitest.Turn{Calls: []openaitest.Call{{Name: "run_shell", Args: args}}}
		}
		return openaitest.Turn{Text: "I looked, and all is well."}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

// once runs the bot to its end, in a directory of its own and with no environment but
// extra.
func once(t testing.TB, extra []string, args ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "TMPDIR=" + os.TempDir()}, extra...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// usage is what the help of a subcommand names.
type usage struct {
	commands, flags map[string]bool
}

// manual knows the help of each subcommand that it was asked for. It is safe for
// concurrent use.
type manual struct {
	mu    sync.Mutex
	pages map[string]usage
}

var (
	helpCommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*)(?:  | [A-Z])`)
	helpFlag    = regexp.MustCompile(`(?m)^\s+(?:(-[a-zA-Z]), )?\s*(--[a-z][a-z-]*)`)
)

func (m *manual) page(t testing.TB, sub []string) usage {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(sub, " ")
	if u, ok := m.pages[key]; ok {
		return u
	}
	text, err := once(t, nil, append(append([]string{}, sub...), "--help")...)
	if err != nil {
		t.Fatalf("bot %s --help: %v\n%s", key, err, text)
	}
	u := usage{commands: map[string]bool{}, flags: map[string]bool{"-h": true, "--help": true}}
	head, flags, _ := strings.Cut(text, "\nFlags:\n")
	list := "\nAvailable Commands:\n"
	if key == "" { // in groups
		list = "\nStart:\n"
	}
	if _, commands, ok := strings.Cut(head, list); ok {
		for _, c := range helpCommand.FindAllStringSubmatch(commands, -1) {
			u.commands[c[1]] = true
		}
	}
	for _, f := range helpFlag.FindAllStringSubmatch(flags, -1) {
		u.flags[f[1]], u.flags[f[2]] = true, true
	}
	if m.pages == nil {
		m.pages = map[string]usage{}
	}
	m.pages[key] = u
	return u
}

// check says what the bot does not know of the arguments that a document gives it.
func (m *manual) check(t testing.TB, args []string) []string {
	t.Helper()
	var sub, wrong []string
	positional := false
	for _, a := range args {
		u := m.page(t, sub)
		flag, _, _ := strings.Cut(a, "=")
		switch {
		case a == "--":
			return wrong
		case strings.HasPrefix(a, "-") && a != "-":
			if !u.flags[flag] {
				wrong = append(wrong, fmt.Sprintf("bot %s has no flag %s", strings.Join(sub, " "), flag))
			}
		case positional:
		case u.commands[a]:
			sub = append(sub, a)
		case len(u.commands) > 0:
			return append(wrong, strings.TrimSpace("there is no command bot "+strings.Join(append(sub, a), " ")))
		default:
			positional = true
		}
	}
	return wrong
}

func TestTheManualKnowsTheBot(t *testing.T) {
	var m manual
	for args, want := range map[string]int{
		"run": 0, "store check": 0, "store check FILE": 0, "store mend": 1, "sing": 1, "tool --yes run_shell {}": 0, "tool --loud run_shell {}": 1,
		"export web:1 -o x.zip": 0, "export web:1 -x": 1, "audit export --since 30d --thread T": 0, "policy test a b": 0, "tool --target=x y {}": 0, "": 0, "--help": 0,
	} {
		if got := m.check(t, strings.Fields(args)); len(got) != want {
			t.Errorf("bot %s: %q, want %d faults", args, got, want)
		}
	}
}
