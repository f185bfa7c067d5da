package slackfake

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"countersign/test/npmtest"
)

// TestNodeSDK lets Slack's own Node SDKs work against the fake, as a check that is independent of Go. Nothing of
// their packages is left in the tree.
func TestNodeSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	dir := npmtest.Workspace(t, "node", "run Slack's own SDKs against the fake")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
