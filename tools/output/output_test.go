package output_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"countersign/internal/redact"
	"countersign/tools"
	"countersign/tools/output"
	"countersign/tools/toolstest"
)

func log(t *testing.T, c output.Config) *output.Log {
	t.Helper()
	c.Dir = filepath.Join(t.TempDir(), "outputs")
	return output.New(c)
}

func keep(t *testing.T, l *output.Log, thread, call, text string) output.Ref {
	t.Helper()
	w := l.Begin(thread, call)
	for len(text) > 0 {
		n := min(len(text), 1000)
		w.Event(tools.Event{Kind: tools.Stdout, Text: text[:n]})
		text = text[n:]
	}
	ref, err := w.Keep("")
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// TestTheWholeOutputIsAFile of mode 0600, which the note names.
// N-44.
func TestTheWholeOutputIsAFile(t *testing.T) {
	l := log(t, output.Config{})
	text := lines(50000)
	ref := keep(t, l, "web:1", "c1", text)
	m := regexp.MustCompile(`^\[Output truncated at 50KB\. Full output saved to: (\S+)\]\n`).FindStringSubmatch(ref.Note("at 50KB"))
	if m == nil {
		t.Fatal(ref.Note("at 50KB"))
	}
	b, err := os.ReadFile(m[1])
	if err != nil || string(b) != text || ref.Lines != 50000 || ref.Bytes != int64(len(text)) {
		t.Errorf("%v, %d bytes, %+v", err, len(b), ref)
	}
	for path, mode := range map[string]os.FileMode{m[1]: 0o600, filepath.Dir(m[1]): os.ModeDir | 0o700} {
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
	}
}

func TestSecretsAreTakenOutBeforeTheDisk(t *testing.T) {
	r := redact.New("sesame-open-the-door")
	l := log(t, output.Config{Cleaner: func() output.Cleaner { return r.Stream() }})
	w := l.Begin("web:1", "c1")
	for _, piece := range []string{"before sesame-op", "en-the-door after\n", strings.Repeat("x", 100000) + "\n", "sesame-open-", "the-door"} {
		w.Event(tools.Event{Kind: tools.Stdout, Text: piece})
	}
	ref, err := w.Keep("")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(ref.Path)
	if err != nil || strings.Contains(string(b), "sesame") || !strings.Contains(string(b), "before [redacted") {
		t.Errorf("%v: %.60q", err, b)
	}
}

func TestWhatIsDroppedLeavesNothing(t *testing.T) {
	l := log(t, output.Config{})
	w := l.Begin("web:1", "c1")
	w.Event(tools.Event{Kind: tools.Stdout, Text: lines(50000)})
	w.Drop()
	if _, _, err := l.Open("web:1", "out-00000000"); !errors.Is(err, output.ErrNone) {
		t.Error(err)
	}
	var none *output.Writer
	none.Event(tools.Event{Kind: tools.Stdout, Text: "x"})
	none.Drop()
	if none.Bytes() != 0 {
		t.Error("a nil writer counts")
	}
}

func TestTheLimitIsSaid(t *testing.T) {
	l := log(t, output.Config{Max: 1000})
	ref := keep(t, l, "web:1", "c1", strings.Repeat("x", 2024))
	if ref.Bytes != 1000 || ref.Dropped != 1024 || !strings.Contains(ref.Note("here"), "1KB more were not kept") {
		t.Errorf("%+v", ref)
	}
}

func TestADiskThatRefusesIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/outputs", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := output.New(output.Config{Dir: dir + "/outputs"}).Begin("web:1", "c1")
	w.Event(tools.Event{Kind: tools.Stdout, Text: "x"})
	if _, err := w.Keep(""); err == nil {
		t.Error("it was kept")
	}
}

func TestReadOutput(t *testing.T) {
	l := log(t, output.Config{})
	ref := keep(t, l, "web:1", "c1", lines(5000))
	long := keep(t, l, "web:1", "c2", strings.Repeat("y", 10000)+"\nlast")
	reg, err := tools.NewRegistry(time.Now, l.Reader())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ rule, thread, args, begins, ends, err string }{
		{"the first 2000 lines", "web:1", `{"output":"` + ref.ID + `"}`, "line 1\n", "line 2000\n[3000 more lines; go on with offset 2001]", ""},
		{"from a line on", "web:1", `{"output":"` + ref.ID + `","offset":4999}`, "line 4999\n", "line 5000\n[end: 2 lines shown of 5000 lines]", ""},
		{"some lines", "web:1", `{"output":"` + ref.ID + `","offset":3,"limit":1}`, "line 3\n", "[4997 more lines; go on with offset 4]", ""},
		{"lines that match", "web:1", `{"output":"` + ref.ID + `","grep":"00$"}`, "100:line 100\n", "[end: 50 matching lines shown of 5000 lines]", ""},
		{"some that match", "web:1", `{"output":"` + ref.ID + `","grep":"LINE 7(?i)|line 77$","limit":1}`, "77:line 77\n", "[end: 1 matching lines shown of 5000 lines]", ""},
		{"a long line is cut", "web:1", `{"output":"` + long.ID + `"}`, "yyyy", "... 5905 bytes]\nlast\n[end: 2 lines shown of 2 lines]", ""},
		{"past the end", "web:1", `{"output":"` + ref.ID + `","offset":9000}`, "[end", "", ""},
		{"another thread's", "web:2", `{"output":"` + ref.ID + `"}`, "", "", "no output"},
		{"no such output", "web:1", `{"output":"out-zzzzzzzz"}`, "", "", "no output"},
		{"a path is no output", "web:1", `{"output":"../../etc/passwd"}`, "", "", "output"},
		{"no expression", "web:1", `{"output":"` + ref.ID + `","grep":"("}`, "", "", "regular expression"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p, err := reg.Plan(t.Context(), tools.Call{ID: "r", Thread: tt.thread, Name: "read_output", Args: []byte(tt.args)})
			var out toolstest.Outcome
			if err == nil {
				out = toolstest.RunPlan(t.Context(), t, reg, p)
				err = out.Err
			}
			text, _ := out.Result.Value.(string)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || !strings.HasPrefix(text, tt.begins) || !strings.HasSuffix(text, tt.ends) {
				t.Errorf("%v: %.40q ... %q", err, text, text[max(0, len(text)-80):])
			}
		})
	}
}

func TestReadOutputKeepsItsPromises(t *testing.T) {
	l := log(t, output.Config{})
	toolstest.Check(t, l.Reader(), nil, toolstest.Case{
		Name: "all", Args: `{"output":"out-3f2a9c1b","offset":2,"limit":3,"grep":"x"}`,
		Other: map[string]string{"output": `"out-3f2a9c1c"`},
	})
}

func TestPeopleGetBothEnds(t *testing.T) {
	l := log(t, output.Config{})
	ref := keep(t, l, "web:1", "c1", lines(50000))
	text, cut, err := l.Text("web:1", ref.ID, 10000)
	if err != nil || !cut || !strings.HasPrefix(text, "line 1\n") || !strings.HasSuffix(text, "line 50000\n") || len(text) > 10100 {
		t.Errorf("%v %v %d", err, cut, len(text))
	}
	if text, cut, err = l.Text("web:1", ref.ID, 10<<20); err != nil || cut || text != lines(50000) {
		t.Errorf("%v %v %d", err, cut, len(text))
	}
}

func TestOldOutputGoes(t *testing.T) {
	l := log(t, output.Config{})
	old, young := keep(t, l, "web:1", "c1", "x"), keep(t, l, "web:2", "c1", "x")
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old.Path, before, before); err != nil {
		t.Fatal(err)
	}
	n, err := l.Prune(context.Background(), before.Add(time.Minute))
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := os.Stat(filepath.Dir(old.Path)); !os.IsNotExist(err) {
		t.Error("the folder is left")
	}
	if _, err := os.Stat(young.Path); err != nil {
		t.Error(err)
	}
}
