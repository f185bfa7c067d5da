package discordfake

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

// TestDiscordJS lets discord.js work against the fake, as a check that is independent of Go. Nothing of its packages is
// left in the tree.
func TestDiscordJS(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	dir := npmtest.Workspace(t, "node", "run discord.js against the fake")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := play(t, Config{Privileged: IntentMessageContent, AckTimeout: 5 * time.Second, RateLimits: true})
	script := exec.CommandContext(ctx, "node", "check.mjs")
	script.Dir = dir
	script.Env = append(os.Environ(), "DISCORD_API_URL="+p.URL())
	var stderr bytes.Buffer
	script.Stderr = &stderr
	out, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			cancel()
			_ = script.Wait()
			t.Fatalf("%v\n%s", err, stderr.String())
		}
	}
	var root, last string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		last = lines.Text()
		switch word := strings.Fields(last); word[0] {
		case "connected":
			root, err = p.Say(p.ann, p.ch, "restart web?")
			must(err)
		case "card":
			r, err := p.Press(ctx, p.ann, word[1], word[2], word[3])
			must(err)
			if r.Modal != nil {
				_, err = p.SubmitModal(ctx, r.Modal, map[string]string{"reason": "because"})
				must(err)
			}
		case "command":
			_, err := p.Slash(ctx, p.ann, p.ch, "ops", map[string]any{"ask": "uptime"})
			must(err)
		case "limit":
			p.FailNext(postRoute, 1, Answer{RetryAfter: 200 * time.Millisecond})
			_, err := p.Slash(ctx, p.ann, p.ch, "ops", map[string]any{"ask": "go"})
			must(err)
		case "drop":
			before := p.Resumes()
			p.DropConnections(0)
			must(p.Wait(ctx, func() bool { return p.Connections() == 0 || p.Resumes() > before }))
			_, err := p.Say(p.ann, root, "while you were away")
			must(err)
		}
	}
	if err := script.Wait(); err != nil || last != "done" {
		t.Fatalf("the check ended after %q: %v; %d connections, opens %+v, %d resumes\n%s", last, err, p.Connections(), p.Opens(), p.Resumes(), stderr.String())
	}
	th := p.Shown(root)
	var texts []string
	for _, m := range th {
		texts = append(texts, m.Content)
	}
	want := []string{"", "Approved and done", "Because: because", "", "after the limit", "while you were away"}
	if strings.Join(texts, "|") != strings.Join(want, "|") {
		t.Errorf("the thread shows %q", texts)
	}
	if len(th) > 3 && string(p.File(th[3].Attachments[0].ID)) != "all of it" {
		t.Error("the file did not arrive")
	}
	if s := p.ShownTo(root, p.ann); len(s) != len(th)+1 {
		t.Errorf("the person sees %+v", s)
	}
	if s := p.Shown(p.ch); len(s) != 3 || s[1].Content != "up 3 days" || s[2].Content != "go" {
		t.Errorf("the channel shows %+v", s)
	}
	if p.Identifies() != 1 || p.Resumes() != 1 {
		t.Errorf("%d identifies, %d resumes", p.Identifies(), p.Resumes())
	}
	for _, c := range p.Calls() {
		if c.Route == postRoute && len(c.Body) > 0 && !bytes.Contains(c.Body, []byte(`"allowed_mentions":{"parse":[]`)) {
			t.Errorf("a post without allowed_mentions: %s", c.Body)
		}
	}
}
