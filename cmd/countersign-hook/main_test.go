package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"countersign/client/account"
)

// TestMain is the program itself where a test starts it.
func TestMain(m *testing.M) {
	if os.Getenv("COUNTERSIGN_HOOK_TEST") != "" {
		main()
	}
	os.Exit(m.Run())
}

const question = `{"session_id":"s","cwd":"/tmp","hook_event_name":"PreToolUse","tool_name":"Bash","permission_mode":"bypassPermissions","tool_input":{"command":"touch x"}}`

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "COUNTERSIGN_HOOK_TEST=1"), strings.NewReader(question)
	return cmd
}

// Claude Code, Codex and Gemini CLI go on after a hook that ends with another code and says nothing.
func TestWithoutAnAnswerItEndsWithTheCodeOfADenial(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for what, args := range map[string][]string{
		"no program": {}, "an unknown one": {"vim"}, "an unknown flag": {"claude-code", "--url", "x"}, "a flag without its value": {"claude-code", "--account"}, "too much": {"claude-code", "x"},
	} {
		cmd := program(t, args...)
		if out, _ := cmd.Output(); cmd.ProcessState.ExitCode() != 2 || len(out) > 0 {
			t.Errorf("%s: %d %s", what, cmd.ProcessState.ExitCode(), out)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := program(t, "claude-code", "--account", none)
	cmd.Stdout = w
	_ = cmd.Run() // its code says it
	_ = w.Close()
	if cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("nobody reads its answer: %s", cmd.ProcessState)
	}
}

func TestASignalIsADenial(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		asked := make(chan bool, 1)
		bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.WriteString(w, `{"id":"1","state":"waiting","request":"r","thread":"t"}`)
				return
			}
			asked <- true
			<-r.Context().Done()
		}))
		t.Cleanup(bot.Close)
		file := filepath.Join(t.TempDir(), "account.json")
		if err := (account.Account{URL: bot.URL, Token: "cst_1"}).Write(file); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := program(t, "claude-code", "--account", file)
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), `"permissionDecision":"deny"`) {
			t.Errorf("%s: %v %s", s, err, out.String())
		}
	}
}

// TestNoProxyIsAsked that the environment names: whoever starts the agent could choose one.
func TestNoProxyIsAsked(t *testing.T) {
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host }))
	t.Cleanup(proxy.Close)
	file := filepath.Join(t.TempDir(), "account.json")
	if err := (account.Account{URL: "https://bot.invalid", Token: "cst_1"}).Write(file); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "claude-code", "--account", file)
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"} {
		cmd.Env = append(cmd.Env, name+"="+proxy.URL)
	}
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), `"permissionDecision":"deny"`) || len(asked) > 0 {
		t.Errorf("%v %s, the proxy was asked %d times", err, out, len(asked))
	}
}
