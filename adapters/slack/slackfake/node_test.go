package slackfake

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNodeSDK lets Slack's own Node SDKs work against the fake, as a check that is independent of Go. The packages are installed
// into a temporary copy, so that nothing of them is left in the tree.
func TestNodeSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is missing: install Node.js 20 or newer with npm", tool)
			}
			t.Skipf("%s is missing: install Node.js 20 or newer with npm to run Slack's own SDKs against the fake", tool)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "check.mjs"} {
		data, err := os.ReadFile(filepath.Join("node", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("npm ci failed: %v\n%s", err, out)
		}
		t.Skipf("npm ci failed, so Slack's SDKs are not here: connect to a package registry and run this again (%v)", err)
	}

	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s := New(Config{Streaming: true, AssistantStatus: true, AckTimeout: 2 * time.Second, RetryDelays: []time.Duration{0, 200 * time.Millisecond, time.Second, 2 * time.Second}})
	t.Cleanup(s.Close)
	s.AddUser(User{ID: "U1", Name: "ann"})
	s.AddUser(User{ID: "U2", Name: "ben"})
	s.AddChannel(Channel{ID: "C1", Name: "ops"})

	script := exec.CommandContext(ctx, "node", "check.mjs")
	script.Dir = dir
	script.Env = append(os.Environ(), "SLACK_API_URL="+s.URL())
	var stderr bytes.Buffer
	script.Stderr = &stderr
	out, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	must := func(err error) {
		t.Helper()
		if err != nil {
			cancel()
			_ = script.Wait()
			t.Fatalf("%v\n%s", err, stderr.String())
		}
	}
	var root, last string
	for lines.Scan() {
		line := lines.Text()
		last = line
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "connected":
			root, err = s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hello from a person"})
			must(err)
		case word == "posted":
			_, err = s.Press(ctx, "U1", "C1", rest, "ok")
			must(err)
		case word == "opened":
			must(s.Wait(ctx, func() bool { return len(s.Views("U1")) == 1 }))
			must(s.SubmitView(ctx, "U1", rest, map[string]string{"cmd": "df -i"}))
		case line == "limit me":
			s.FailNext("chat.postMessage", 1, Answer{RetryAfter: time.Second})
			must(s.Command(ctx, "U1", "C1", "/ops", "go"))
		case line == "disconnect me":
			before := s.Count("apps.connections.open")
			s.DisconnectAll("refresh_requested")
			must(s.Wait(ctx, func() bool { return s.Count("apps.connections.open") > before && s.Sockets() == 1 }))
			_, err = s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "after the disconnect"})
			must(err)
		}
	}
	if err := script.Wait(); err != nil || last != "done" {
		t.Fatalf("the SDK check ended after %q: %v\n%s", last, err, stderr.String())
	}
	th := s.Messages("C1", root)
	if len(th) != 4 || th[1].Text != "approved" || !th[1].Edited || len(th[2].Files) != 1 || th[3].Text != "one two" {
		t.Errorf("the thread is %+v", th)
	}
	if string(s.FileContent(th[2].Files[0].ID)) != "all of it" {
		t.Error("the file did not arrive")
	}
	if v := s.Views("U1"); len(v) != 1 || v[0].Open {
		t.Errorf("the modal is %+v", v)
	}
	if e := s.Ephemerals("C1", "U1"); len(e) != 1 || e[0].Text != "got go" {
		t.Errorf("the command's answer is %+v", e)
	}
}
