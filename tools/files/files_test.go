package files_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/backend/local"
	"countersign/tools/files"
	"countersign/tools/toolstest"
)

func fake() *toolstest.Target {
	t := &toolstest.Target{Name: "box"}
	t.Put("/etc/hostname", "web-1\n")
	t.Put("/etc/other", "x\n")
	t.Put("/data/token", "secret")
	t.Put("/proc/7/environ", "TOKEN=x")
	t.Link("/tmp/link", "/data/token")
	t.Link("/proc/self", "/proc/7")
	t.Link("/etc/alias", "/etc/hostname")
	return t
}

func config(t *toolstest.Target) files.Config {
	return files.Config{Target: t, User: "tester", Private: func(p string) bool { return strings.HasPrefix(p, "/data/") }}
}

func registry(t *testing.T, c files.Config) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(time.Now, files.New(c)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func args(t *testing.T, m map[string]string) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func plan(t *testing.T, reg *tools.Registry, name, a string) (tools.Plan, error) {
	t.Helper()
	return reg.Plan(t.Context(), tools.Call{ID: "call_1", Thread: "test:1", Name: name, Args: []byte(a)})
}

func TestToolsKeepTheirPromises(t *testing.T) {
	target := fake()
	for _, tool := range files.New(config(target)) {
		t.Run(tool.Spec().Name, func(t *testing.T) {
			c := toolstest.Case{Name: "call", Args: `{"path":"/etc/hostname"}`, Other: map[string]string{"path": `"/etc/other"`}}
			if tool.Spec().Name == "write_file" {
				c.Args = `{"path":"/etc/hostname","content":"web-2\n"}`
			}
			toolstest.Check(t, tool, target.Effects, c)
		})
	}
}

func TestLevels(t *testing.T) {
	reg := registry(t, config(fake()))
	for name, want := range map[string]risk.Level{"read_file": risk.Read, "write_file": risk.Medium} {
		if s, _ := reg.Lookup(name); s.Level != want {
			t.Errorf("%s is %v", name, s.Level)
		}
	}
}

func TestB51ReadFileIsExact(t *testing.T) {
	reg := registry(t, config(fake()))
	out := toolstest.Run(t.Context(), t, reg, "read_file", `{"path":"/etc/hostname"}`)
	if out.Err != nil || out.Result.Value != "web-1\n" {
		t.Errorf("%+v", out)
	}
	p, err := plan(t, reg, "read_file", `{"path":"/etc/alias"}`)
	if err != nil || p.Action.Path != "/etc/hostname" || p.Action.Kind != approvals.KindObserve || p.Action.Target != "box" || p.Action.User != "tester" {
		t.Errorf("%+v, %v", p.Action, err)
	}
}

func TestB52ReadFileKeepsTheHead(t *testing.T) {
	target := fake()
	target.Put("/big", strings.Repeat("é", 20_000))
	target.Put("/edge", strings.Repeat("é", 8_000))
	reg := registry(t, config(target))
	out := toolstest.Run(t.Context(), t, reg, "read_file", `{"path":"/big"}`)
	if out.Result.Value != strings.Repeat("é", 8000)+"...[truncated]" {
		t.Errorf("%d characters", len([]rune(out.Result.Text)))
	}
	if out = toolstest.Run(t.Context(), t, reg, "read_file", `{"path":"/edge"}`); out.Result.Value != strings.Repeat("é", 8000) {
		t.Error("a file of exactly the limit is cut")
	}
}

func TestB04B05MissingFileIsAText(t *testing.T) {
	_, err := plan(t, registry(t, config(fake())), "read_file", `{"path":"/no/such/file"}`)
	if err == nil || !strings.HasPrefix(tools.ErrorText(err), "Tool error: /no/such/file does not exist") {
		t.Errorf("%v", err)
	}
	out := toolstest.Run(t.Context(), t, registry(t, config(fake())), "read_file", `{"path":"/etc/missing"}`)
	if !strings.HasPrefix(out.Text, "Tool error: /etc/missing does not exist") {
		t.Error(out.Text)
	}
	out = toolstest.Run(t.Context(), t, registry(t, config(fake())), "read_file", `{"path":"/etc"}`)
	if !strings.Contains(out.Text, "is a directory") {
		t.Error(out.Text)
	}
}

func TestPrivateFilesAreRefusedWhateverTheirName(t *testing.T) {
	reg := registry(t, config(fake()))
	for _, p := range []string{"/data/token", "/tmp/link", "/data/../data/token", "/proc/self/environ", "/proc/7/environ"} {
		if _, err := plan(t, reg, "read_file", args(t, map[string]string{"path": p})); err == nil || !strings.Contains(err.Error(), "private") {
			t.Errorf("read %s: %v", p, err)
		}
		if _, err := plan(t, reg, "write_file", args(t, map[string]string{"path": p, "content": ""})); err == nil || !strings.Contains(err.Error(), "private") {
			t.Errorf("write %s: %v", p, err)
		}
	}
	if _, err := plan(t, reg, "read_file", "{\"path\":\"/a\\u0000b\"}"); err == nil {
		t.Error("a NUL byte is accepted")
	}
}

func TestALinkThatMovesBetweenPlanAndRunIsRefused(t *testing.T) {
	for _, name := range []string{"read_file", "write_file"} {
		target := fake()
		reg := registry(t, config(target))
		a := `{"path":"/etc/alias"}`
		if name == "write_file" {
			a = `{"path":"/etc/alias","content":"x"}`
		}
		p, err := plan(t, reg, name, a)
		if err != nil {
			t.Fatal(err)
		}
		target.Link("/etc/alias", "/etc/other")
		out := toolstest.RunPlan(t.Context(), t, reg, p)
		if !strings.Contains(out.Text, "now leads to /etc/other") {
			t.Errorf("%s: %s", name, out.Text)
		}
		if got, _ := target.Content("/etc/other"); got != "x\n" {
			t.Errorf("%s wrote %q", name, got)
		}
	}
}

func TestB54B55WriteFile(t *testing.T) {
	target := fake()
	reg := registry(t, config(target))
	out := toolstest.Run(t.Context(), t, reg, "write_file", args(t, map[string]string{"path": "/etc/new", "content": "añb\n"}))
	if out.Result.Value != "Wrote 5 bytes to /etc/new" {
		t.Errorf("%+v", out)
	}
	if got, _ := target.Content("/etc/new"); got != "añb\n" {
		t.Errorf("content %q", got)
	}
	out = toolstest.Run(t.Context(), t, reg, "write_file", args(t, map[string]string{"path": "/etc/new", "content": ""}))
	if got, _ := target.Content("/etc/new"); got != "" || out.Result.Value != "Wrote 0 bytes to /etc/new" {
		t.Errorf("%q, %v", got, out.Result.Value)
	}
	if _, err := plan(t, reg, "write_file", args(t, map[string]string{"path": "/no/dir/x", "content": ""})); err == nil {
		t.Error("a missing directory is made")
	}
}

func TestWritePlanBindsTheFileThatItReplaces(t *testing.T) {
	target := fake()
	reg := registry(t, config(target))
	a := args(t, map[string]string{"path": "/etc/hostname", "content": "web-2\n"})
	p, err := plan(t, reg, "write_file", a)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("web-1\n"))
	act := p.Action
	if act.Kind != approvals.KindChange || act.Path != "/etc/hostname" || string(act.Bytes) != "web-2\n" ||
		act.Files["/etc/hostname"] != hex.EncodeToString(sum[:]) || !strings.Contains(act.Preview, "-web-1\n+web-2\n") {
		t.Errorf("%+v", act)
	}
	target.Put("/etc/hostname", "someone else\n")
	again, err := plan(t, reg, "write_file", a)
	if err != nil || again.Action.Digest() == act.Digest() {
		t.Errorf("a changed file gives the same digest (%v)", err)
	}
	fresh, err := plan(t, reg, "write_file", args(t, map[string]string{"path": "/etc/new", "content": "x"}))
	if err != nil || fresh.Action.Files["/etc/new"] != files.Absent || !strings.HasPrefix(fresh.Action.Preview, "new file /etc/new, 1 bytes") {
		t.Errorf("%+v, %v", fresh.Action, err)
	}
}

func TestPreviewOfWhatIsNoSmallText(t *testing.T) {
	target := fake()
	target.Put("/bin", "\x00\x01")
	target.Put("/large", strings.Repeat("x\n", 1<<16))
	reg := registry(t, config(target))
	for p, want := range map[string]string{
		"/bin": "replaces /bin: 2 bytes become 1 bytes", "/large": "replaces /large: 131072 bytes become 1 bytes",
	} {
		if pl, err := plan(t, reg, "write_file", args(t, map[string]string{"path": p, "content": "y"})); err != nil || pl.Action.Preview != want {
			t.Errorf("%s: %q, %v", p, pl.Action.Preview, err)
		}
	}
	if pl, err := plan(t, reg, "write_file", args(t, map[string]string{"path": "/etc/hostname", "content": "web-1\n"})); err != nil || !strings.Contains(pl.Action.Preview, "the same") {
		t.Errorf("%q, %v", pl.Action.Preview, err)
	}
}

func TestB105LocalFiles(t *testing.T) {
	dir := t.TempDir()
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	for _, name := range []string{"plain", "with space and 'quote'", "-n", "ünï"} {
		p := filepath.Join(dir, name)
		content := "line\n\ttab \"q\" $HOME `x`\n"
		out := toolstest.Run(t.Context(), t, reg, "write_file", args(t, map[string]string{"path": p, "content": content}))
		if out.Err != nil || !strings.HasPrefix(out.Result.Text, "Wrote ") {
			t.Fatalf("%s: %+v", name, out)
		}
		if b, err := os.ReadFile(p); err != nil || string(b) != content {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
		if out = toolstest.Run(t.Context(), t, reg, "read_file", args(t, map[string]string{"path": name})); out.Result.Value != content {
			t.Errorf("relative %s: %+v", name, out)
		}
	}
	out := toolstest.Run(context.WithoutCancel(t.Context()), t, reg, "read_file", `{"path":"/dev/zero"}`)
	if !strings.Contains(out.Text, "no regular file") {
		t.Error(out.Text)
	}
	if _, err := plan(t, reg, "read_file", `{"path":"/proc/self/environ"}`); err == nil {
		t.Error("the bot's environment can be read")
	}
}
