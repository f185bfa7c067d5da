package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// newest is the newest file of the thread whose name matches, and that name.
func (c *chatter) newest(name string) (string, []byte) {
	c.t.Helper()
	re := regexp.MustCompile(name)
	var found string
	var content []byte
	eventually(c.t, "a file "+name, func() bool {
		for _, r := range c.rows() {
			for _, f := range r.Files {
				if re.MatchString(f.Name) {
					found, content = f.Name, f.Content()
				}
			}
		}
		return found != ""
	}, c.shown)
	return found, content
}

// unpacked is what is in a zip file, by names.
func unpacked(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		_ = r.Close()
		out[f.Name] = string(text)
	}
	return out
}

// TestAgentsTheRecordOfAnIncident plays an incident with a look, a change, a denial, a sub-agent, a long
// output and secrets in three places, and takes its record in every way that there is: the
// words timeline and export in the thread, and bot export beside the stopped bot and the running one. The archive
// holds what docs/record.md says, its chain verifies, and no secret is in it.
func TestAgentsTheRecordOfAnIncident(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	needTmux(t)
	dir := t.TempDir()
	planted := &canaries{rand: rand.New(rand.NewPCG(4, 2)), where: map[string]string{}}
	key := planted.plant("the key of the model", "sk-proj-", 40)
	said := planted.plant("what a person wrote", "ghp_", 36)
	shown := planted.plant("what a command printed", "ghp_", 36)
	typed := planted.plant("what the model wrote into a command", "ghp_", 36)
	if err := os.WriteFile(filepath.Join(dir, "env"), []byte("TOKEN="+shown+"\nnothing else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	model := newCrew(t,
		part{"TASK", []turn{{calls: []call{look("hostname")}}, {text: "My report."}}},
		part{"make it so", []turn{
			{text: "I look.", calls: []call{look("cat " + dir + "/env")}},
			{calls: []call{look("seq 1 60000")}},
			{calls: []call{shell("echo x >> " + dir + "/ran; : " + typed)}},
			{calls: []call{handed("shell_executor", "TASK: look")}},
		}},
		part{"now delete", []turn{{calls: []call{shell("rm -rf " + dir + "/env")}}}},
	)
	c := model.enter(t, "agent: {preset: full}\ntargets:\n  local: {kind: local, approvers: [oncall]}\ngroups:\n  oncall: {web: [alice, bob]}\n", "OPENAI_API_KEY="+key)
	c.tell("the shop is down, make it so, the token is " + said)
	c.sees("button: Approve (")
	bob := c.as("bob")
	bob.press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	c.tell("now delete it")
	id := ""
	eventually(t, "a second card", func() bool {
		ids := c.buttons("deny:")
		if len(ids) == 1 && len(c.cards()) == 2 {
			id = ids[0]
		}
		return id != ""
	}, c.shown)
	if st, err := bob.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": "no", "button": id, "reason": "we need that file"}, nil); err != nil || st != 200 {
		t.Fatalf("deny: %d %v", st, err)
	}
	eventually(t, "the end", func() bool { return c.ends() == 2 }, c.shown)

	c.tell("timeline")
	name, timeline := c.newest(`^timeline-[0-9-]+\.md$`)
	c.sees("A draft post-mortem, made from this thread's record alone")
	for _, want := range []string{"the shop is down", "alice", "bob", "echo x >> " + dir + "/ran", "we need that file", "shell_executor", "# ", "Root cause", "UTC"} {
		if !strings.Contains(string(timeline), want) {
			t.Errorf("%s does not say %q:\n%s", name, want, timeline)
		}
	}
	c.tell("export")
	name, raw := c.newest(`^incident-[0-9-]+\.zip$`)
	c.sees("Its README.txt says what it contains")
	posted := unpacked(t, raw)
	c.b.stop()

	file := filepath.Join(t.TempDir(), "f.zip")
	if _, errs, code := c.b.run("", "export", c.thread, "-o", file); code != 0 {
		t.Fatalf("bot export: %d %s", code, errs)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, files := range map[string]map[string]string{"the archive in the thread, " + name: posted, "bot export": unpacked(t, raw)} {
		t.Run(what, func(t *testing.T) { checkArchive(t, c.b, files, dir, planted) })
	}
	if leaks := planted.leaks(string(timeline)); len(leaks) != 0 {
		t.Errorf("secrets in the timeline: %q", leaks)
	}
	for args, want := range map[string]string{
		"":                       "export needs one thread",
		"web:no-such-thread":     "there is no thread web:no-such-thread in this store",
		c.thread + " two":        "export needs one thread",
		c.thread + " -o " + file: "the archive cannot be written",
	} {
		if _, errs, code := c.b.run("", append([]string{"export"}, strings.Fields(args)...)...); code == 0 || !strings.Contains(errs, want) || !oneSentence.MatchString(errs) {
			t.Errorf("bot export %s ends with %d and says %q", args, code, errs)
		}
	}
	// A running bot writes it, too.
	c.again()
	out, errs, code := c.b.run("", "export", c.thread)
	if code != 0 {
		t.Fatalf("bot export beside a running bot ends with %d and says %q", code, errs)
	}
	checkArchive(t, c.b, unpacked(t, []byte(out)), dir, planted)
}

func checkArchive(t *testing.T, b *bot, files map[string]string, dir string, planted *canaries) {
	t.Helper()
	var names []string
	all := ""
	for name, text := range files {
		names = append(names, name)
		all += name + "\n" + text + "\n"
	}
	slices.Sort(names)
	for _, want := range []string{"README.txt", "timeline.md", "commands.csv", "approvals.jsonl", "alerts.jsonl", "audit.jsonl", "transcript.jsonl"} {
		if !slices.Contains(names, want) {
			t.Fatalf("%s is missing: %q", want, names)
		}
	}
	outputs, casts := 0, 0
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, "outputs/") && strings.HasSuffix(n, ".txt"):
			outputs++
			if text := files[n]; !strings.Contains(text, "\n30000\n") || !strings.Contains(text, "\n59999\n") {
				t.Errorf("%s is not whole: %d bytes", n, len(text))
			}
		case strings.HasPrefix(n, "recordings/") && strings.HasSuffix(n, ".cast"):
			casts++
			head, _, _ := strings.Cut(files[n], "\n")
			if !json.Valid([]byte(head)) || !strings.Contains(head, `"version"`) {
				t.Errorf("%s begins %q", n, head)
			}
		case strings.HasPrefix(n, "statements/") && strings.HasSuffix(n, ".intoto.json"):
			if !json.Valid([]byte(files[n])) {
				t.Errorf("%s is %q", n, files[n])
			}
		case strings.Contains(n, "/"):
			t.Errorf("%s is in the archive", n)
		}
		if n != "README.txt" && !strings.Contains(files["README.txt"], n) {
			t.Errorf("README.txt does not name %s", n)
		}
	}
	if outputs != 1 || casts == 0 {
		t.Errorf("%d outputs and %d recordings: %q", outputs, casts, names)
	}

	rows, err := csv.NewReader(strings.NewReader(files["commands.csv"])).ReadAll()
	if err != nil || len(rows) < 7 {
		t.Fatalf("commands.csv: %v, %q", err, rows)
	}
	if want := []string{"time", "call id", "tool", "target", "command", "requested by", "approved by", "decision", "digest", "exit code", "duration", "outcome"}; !slices.Equal(rows[0], want) {
		t.Errorf("the columns are %q, want %q", rows[0], want)
	}
	outcomes := map[string]string{}
	digest := ""
	for _, r := range rows[1:] {
		outcomes[strings.Fields(r[4] + " -")[0]] = r[len(r)-1]
		if strings.HasPrefix(r[4], "echo x >>") {
			digest = r[8]
			if r[5] != "alice (web:alice)" || r[6] != "bob (web:bob)" || r[9] != "0" {
				t.Errorf("the change is %q", r)
			}
		}
	}
	for word, want := range map[string]string{"cat": "ok", "echo": "ok", "rm": "denied", "hostname": "ok"} {
		if outcomes[word] != want {
			t.Errorf("the outcome of %s is %q, want %q:\n%s", word, outcomes[word], want, files["commands.csv"])
		}
	}
	for _, name := range []string{"approvals.jsonl", "audit.jsonl", "transcript.jsonl"} {
		for line := range strings.Lines(files[name]) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s has the line %q", name, line)
			}
		}
	}
	if digest == "" || !strings.Contains(files["approvals.jsonl"], digest) || !strings.Contains(files["audit.jsonl"], digest) {
		t.Errorf("the digest %q of the change is not in the approvals and in the chain", digest)
	}
	if !strings.Contains(files["approvals.jsonl"], "we need that file") || !strings.Contains(files["transcript.jsonl"], "the shop is down") {
		t.Error("the denial, or what a person wrote, is not in the archive")
	}

	chain := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(chain, []byte(files["audit.jsonl"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := b.run("", "audit", "verify", chain); code != 0 || !strings.Contains(out, "\nok: 1 thread, ") {
		t.Errorf("the chain does not verify: %d %q %q", code, out, errs)
	}
	changed := strings.Replace(files["audit.jsonl"], "echo x", "echo y", 1)
	if err := os.WriteFile(chain, []byte(changed), 0o600); err != nil || changed == files["audit.jsonl"] {
		t.Fatalf("nothing was changed: %v", err)
	}
	if out, _, code := b.run("", "audit", "verify", chain); code == 0 {
		t.Errorf("a chain that was changed verifies: %q", out)
	}
	if leaks := planted.leaks(all); len(leaks) != 0 {
		t.Errorf("secrets are in the archive: %s", strings.Join(leaks, "\n"))
	}
	if n := strings.Count(all, "[redacted:"); n < 3 {
		t.Errorf("%d places are redacted, so the secrets were not where this test planted them (%s)", n, fmt.Sprint(dir))
	}
}

// oneSentence matches an error of the program: a line, and another one with its document.
var oneSentence = regexp.MustCompile(`^bot: .*\n(?:Read more: bot docs [a-z-]+\n)?$`)
