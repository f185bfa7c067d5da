package files_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/files"
	"countersign/tools/toolstest"
)

func fake() *toolstest.Target {
	t := &toolstest.Target{Name: "box"}
	t.Put("/etc/hostname", "web-1\n")
	t.Put("/etc/other", "x\n")
	t.Put("/etc/hostname1", "web-1\n")
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

func registry(t testing.TB, c files.Config) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(time.Now, files.New(c)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func args(t testing.TB, m map[string]string) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func plan(t testing.TB, reg *tools.Registry, name, a string) (tools.Plan, error) {
	t.Helper()
	return reg.Plan(t.Context(), tools.Call{Direct: true, ID: "call_1", Thread: "test:1", Name: name, Args: []byte(a)})
}

func TestToolsKeepTheirPromises(t *testing.T) {
	target := fake()
	cfg := config(target)
	cfg.Name, cfg.Images = "box", images(t)
	for call, name := range map[string]string{"first": "/etc/first", "second": "/etc/second"} {
		keep(t, registry(t, cfg), call, name, "x\n")
	}
	target.Reset()
	for _, tool := range files.New(cfg) {
		t.Run(tool.Spec().Name, func(t *testing.T) {
			c := toolstest.Case{Name: "call", Args: `{"path":"/etc/hostname"}`, Other: map[string]string{"path": `"/etc/other"`}}
			switch tool.Spec().Name {
			case "read_file":
				c.Args, c.Other["encoding"] = `{"path":"/etc/hostname","encoding":"latin-1"}`, `"utf-8"`
			case "write_file", "write":
				c.Args = `{"path":"/etc/hostname","content":"web-2\n"}`
			case "create_file":
				c.Args, c.Other["path"] = `{"path":"/etc/none","content":"web-2\n"}`, `"/etc/nothing"`
			case "edit":
				c.Args = `{"path":"/etc/hostname","old_text":"1","new_text":"2"}`
				c.Other["path"], c.Other["old_text"] = `"/etc/hostname1"`, `"web"`
			case "apply_patch":
				c.Args = args(t, map[string]string{"path": "/etc", "patch": "--- a/hostname1\n+++ b/hostname1\n@@ -1 +1 @@\n-web-1\n+web-2\n"})
				c.Other = map[string]string{"path": `"/etc/."`, "patch": `"--- a/hostname1\n+++ b/hostname1\n@@ -1 +1 @@\n-web-1\n+web-3\n"`}
			case "undo":
				c.Args, c.Other = args(t, map[string]string{"change": id("first")}), map[string]string{"change": `"` + id("second") + `"`}
			case "read":
				c.Args = `{"path":"/etc/hostname","offset":1,"limit":1}`
			}
			toolstest.Check(t, tool, target.Effects, c)
		})
	}
}

func TestLevels(t *testing.T) {
	reg := registry(t, config(fake()))
	for name, want := range map[string]risk.Level{
		"read_file": risk.Read, "read": risk.Read, "write_file": risk.Medium, "write": risk.Medium, "edit": risk.Medium, "edit_file": risk.Medium,
		"create_file": risk.Medium, "delete_file": risk.Critical, "apply_patch": risk.Medium, "undo": risk.Medium,
	} {
		if s, _ := reg.Lookup(name); s.Level != want {
			t.Errorf("%s is %v", name, s.Level)
		}
	}
}

// B-51.
func TestReadFileIsExact(t *testing.T) {
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

// B-52.
func TestReadFileKeepsTheHead(t *testing.T) {
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

// B-04, B-05.
func TestMissingFileIsAText(t *testing.T) {
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

// B-54, B-55.
func TestWriteFile(t *testing.T) {
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
	if err != nil || fresh.Action.Files["/etc/new"] != files.Absent || !strings.HasPrefix(fresh.Action.Preview, "new file /etc/new, 1 byte") {
		t.Errorf("%+v, %v", fresh.Action, err)
	}
}

// TestPeopleSeeTheContent: a sentence about a file never stands for what is in
// it.
func TestPeopleSeeTheContent(t *testing.T) {
	target := fake()
	target.Put("/bin", "\x00\x01")
	target.Put("/latin", "caf\xe9\n")
	target.Put("/large", strings.Repeat("x\n", 1<<16))
	target.Put("/many", strings.Repeat("some line\n", 6000))
	reg := registry(t, config(target))
	for _, tc := range []struct{ rule, path, content, preview string }{
		{"a new file", "/etc/new", "line\n", "new file /etc/new, 5 bytes"},
		{"a new empty file", "/etc/new", "", "new file /etc/new, empty"},
		{"a name that draws lines", "/etc/a\n+b", "x", `new file "/etc/a\n+b", 1 byte`},
		{"what is no text", "/bin", "y", "replaces /bin: 2 bytes become 1 byte"},
		{"what is no UTF-8", "/latin", "y", "replaces /latin: 5 bytes become 1 byte"},
		{"what becomes no text", "/etc/hostname", "a\x00b", "replaces /etc/hostname: 6 bytes become 3 bytes"},
		{"a large file", "/large", "y", "replaces /large: 131072 bytes become 1 byte"},
		{"a diff that is longer than people read", "/many", "y", "replaces /many: 60000 bytes become 1 byte"},
		{"the same content", "/etc/hostname", "web-1\n", "/etc/hostname stays as it is: the content is the same, 6 bytes"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			p, err := plan(t, reg, "write_file", args(t, map[string]string{"path": tc.path, "content": tc.content}))
			if err != nil || p.Action.Preview != tc.preview || p.Action.Whole {
				t.Fatalf("%q whole %v, %v", p.Action.Preview, p.Action.Whole, err)
			}
			c := card.New(approvals.Record{State: approvals.Pending, Action: p.Action}, "")
			want, _ := risk.Visible(tc.content)
			if want == "" {
				want = `write_file {"path":"` + tc.path + `"}`
			}
			if c.Code != want {
				t.Fatalf("the card shows %q", c.Code)
			}
		})
	}
}

// TestADiffDeterminesTheNewContent applies the diff that people see to the old
// content: nothing else can come out than what will be written.
func TestADiffDeterminesTheNewContent(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "", "a\r", " a", "-b", "+c", "@@ -1,1 +1,1 @@", "\\ No newline at end of file"}), 0, 30).Draw(t, "lines")
		s := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "newline") {
			s += "\n"
		}
		return s
	})
	target := fake()
	reg := registry(t, config(target))
	rapid.Check(t, func(rt *rapid.T) {
		old, content := text.Draw(rt, "old"), text.Draw(rt, "new")
		target.Put("/etc/hostname", old)
		p, err := plan(t, reg, "write_file", args(t, map[string]string{"path": "/etc/hostname", "content": content}))
		if err != nil {
			rt.Fatal(err)
		}
		if p.Action.Whole == (old == content) {
			rt.Fatalf("whole is %v for %q and %q", p.Action.Whole, old, content)
		}
		if !p.Action.Whole {
			return
		}
		if got := apply(rt, old, p.Action.Preview); got != content {
			rt.Fatalf("%q and the diff\n%s\ngive %q, not %q", old, p.Action.Preview, got, content)
		}
	})
}

// apply is patch(1) for one file, without fuzz.
func apply(t *rapid.T, old, patch string) string {
	src := strings.SplitAfter(old, "\n")
	var out strings.Builder
	at := 0
	rows := strings.SplitAfter(patch, "\n")
	for i := 1; i < len(rows) && rows[i] != ""; { // after the header line
		var from, n, to, m int
		if _, err := fmt.Sscanf(rows[i], "@@ -%d,%d +%d,%d @@", &from, &n, &to, &m); err != nil {
			t.Fatalf("no hunk: %q", rows[i])
		}
		if n > 0 {
			from--
		}
		for ; at < from; at++ {
			out.WriteString(src[at])
		}
		for i++; n > 0 || m > 0; i++ {
			body := rows[i][1:]
			if i+1 < len(rows) && strings.HasPrefix(rows[i+1], "\\") {
				body = strings.TrimSuffix(body, "\n")
			}
			switch rows[i][0] {
			case ' ', '-':
				if src[at] != body {
					t.Fatalf("line %d is %q, the diff says %q", at, src[at], body)
				}
				at++
				n--
			}
			switch rows[i][0] {
			case ' ', '+':
				out.WriteString(body)
				m--
			}
			if i+1 < len(rows) && strings.HasPrefix(rows[i+1], "\\") {
				i++
			}
		}
	}
	for ; at < len(src); at++ {
		out.WriteString(src[at])
	}
	return out.String()
}

// B-105.
func TestLocalFiles(t *testing.T) {
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

//
func TestReadFileDecodesWhatItIsTold(t *testing.T) {
	target := fake()
	for name, b := range map[string]string{
		"/enc/latin": "caf\xe9 \x80", "/enc/cyrillic": "\xcf\xf0\xe8\xe2\xe5\xf2", "/enc/utf16": "\xff\xfeh\x00i\x00", "/enc/utf8": "caf\u00e9", "/enc/odd": "a\xffb",
		"/enc/long": strings.Repeat("\xe9", 9000),
	} {
		target.Put(name, b)
	}
	reg := registry(t, config(target))
	for _, tt := range []struct{ rule, path, encoding, want, err string }{
		{"utf-8 without a word", "/enc/utf8", "", "caf\u00e9", ""},
		{"utf-8 by its name", "/enc/utf8", "UTF-8", "caf\u00e9", ""},
		{"latin-1 as Python spells it", "/enc/latin", "latin-1", "caf\u00e9 \u20ac", ""},
		{"its number", "/enc/latin", "ISO-8859-1", "caf\u00e9 \u20ac", ""},
		{"another alphabet", "/enc/cyrillic", "windows-1251", "\u041f\u0440\u0438\u0432\u0435\u0442", ""},
		{"utf-16, without the mark of its order", "/enc/utf16", "utf-16", "hi", ""},
		{"what means nothing is marked", "/enc/odd", "shift_jis", "a\ufffdb", ""},
		{"what is cut is cut after decoding", "/enc/long", "latin1", "\u00e9...[truncated]", ""},
		{"an unknown name", "/enc/utf8", "klingon", "", `"klingon" is no encoding that is known`},
		{"an encoding that hides text", "/enc/utf8", "iso-2022-kr", "", "can hide text"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			m := map[string]string{"path": tt.path}
			if tt.encoding != "" {
				m["encoding"] = tt.encoding
			}
			if tt.err != "" {
				if _, err := plan(t, reg, "read_file", args(t, m)); err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("the plan fails with %v", err)
				}
				return
			}
			out := toolstest.Run(t.Context(), t, reg, "read_file", args(t, m))
			if got := fmt.Sprint(out.Result.Value); out.Err != nil || !strings.HasSuffix(got, tt.want) {
				t.Errorf("%v, ends %q", out.Err, got[max(0, len(got)-40):])
			}
		})
	}
}
