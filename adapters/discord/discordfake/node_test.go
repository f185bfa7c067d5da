package discordfake

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

// TestDiscordJS lets discord.js work against the fake, as a check that is independent of Go. The packages are installed into a
// temporary copy, so that nothing of them is left in the tree.
func TestDiscordJS(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is missing: install Node.js 20 or newer with npm", tool)
			}
			t.Skipf("%s is missing: install Node.js 20 or newer with npm to run discord.js against the fake", tool)
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
		t.Skipf("npm ci failed, so discord.js is not here: connect to a package registry and run this again (%v)", err)
	}

	ctx, cancel = context.WithTimeout(ctx, time.Minute)
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
		t.Fatalf("the check ended after %q: %v\n%s", last, err, stderr.String())
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
