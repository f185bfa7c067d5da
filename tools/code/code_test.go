package code

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/code/parser"
	"countersign/tools/code/wire"
	"countersign/tools/toolstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The names of the test program's modes as a worker.
const (
	workerMode   = "code-worker"
	crashingMode = "code-worker-that-crashes"
	lyingMode    = "code-worker-that-lies"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case workerMode:
			err = parser.Run(context.Background(), os.Stdin, os.Stdout)
		case crashingMode:
			err = serveCrashing()
		case lyingMode:
			_, err = os.Stdout.WriteString("what do you want?\n")
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveCrashing is a worker that dies like C code does over a text with "BOOM" in it, and
// says what cannot be of one with "LIE".
func serveCrashing() error {
	if err := wire.WriteFrame(os.Stdout, []byte(`{"protocol":1}`)); err != nil {
		return err
	}
	for {
		_, text, err := wire.ReadRequest(os.Stdin)
		if err != nil {
			return nil //nolint:nilerr // the end
		}
		if strings.Contains(string(text), "BOOM") {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
			for { // it may take a moment, in which nothing may be answered
				_ = syscall.Pause()
			}
		}
		answer := `{"symbols":[{"kind":"function","name":"fine","line":1,"end":1}]}`
		if strings.Contains(string(text), "LIE") {
			answer = `{"symbols":[{"kind":"function","name":"a\u001b[31m\nb","line":-5,"end":99999999,"complexity":-1}],"mistakes":[{"line":-1}]}`
		}
		if err := wire.WriteFrame(os.Stdout, []byte(answer)); err != nil {
			return err
		}
	}
}

// needGrammars skips where the build has no C compiler; under CI that is a failure.
func needGrammars(t testing.TB) {
	t.Helper()
	if !parser.Available() {
		needstest.Missing(t, "this build has no grammars, because it was made without a C compiler; apt-get install gcc")
	}
}

func testWorker(t testing.TB, mode string) Starter {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, stdin io.Reader, stdout io.Writer) (backend.Process, error) {
		return start(ctx, local.New(local.Options{}), stdin, stdout, exe, mode)
	}
}

// world is a directory and the tools over it.
type world struct {
	t   testing.TB
	dir string
	c   Config
	reg *tools.Registry
	now time.Time // of the cache
	// open files can be read by every account.
	open bool
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, now: time.Now()}
	w.c = Config{Target: local.New(local.Options{Dir: dir}), Dir: dir, User: "tester", Cache: NewCache(), Worker: testWorker(t, workerMode)}
	for _, f := range change {
		f(&w.c)
	}
	w.c.Cache.now = func() time.Time { return w.now }
	if w.reg, err = tools.NewRegistry(time.Now, New(w.c)...); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) put(name, content string) {
	w.t.Helper()
	name = filepath.Join(w.dir, name)
	dir, mode := os.FileMode(0o700), os.FileMode(0o600)
	if w.open {
		dir, mode = 0o755, 0o644
	}
	if err := os.MkdirAll(filepath.Dir(name), dir); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a tool; later makes the listing too old first.
func (w *world) run(tool, args string) toolstest.Outcome {
	w.t.Helper()
	p, err := w.reg.Plan(w.t.Context(), tools.Call{ID: "c", Thread: "t", Name: tool, Args: []byte(args)})
	if err != nil {
		return toolstest.Outcome{Err: err, Text: tools.ErrorText(err)}
	}
	return toolstest.RunPlan(w.t.Context(), w.t, w.reg, p)
}

func (w *world) later() { w.now = w.now.Add(time.Hour) }

// as runs a tool that succeeds, and returns its value.
func as[T any](w *world, tool, args string) T {
	w.t.Helper()
	out := w.run(tool, args)
	if out.Err != nil {
		w.t.Fatal(out.Err)
	}
	v, ok := out.Result.Value.(T)
	if !ok {
		w.t.Fatalf("%T", out.Result.Value)
	}
	return v
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/fixtures/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var fixtures = []string{"server.go", "models.py", "app.js", "api.ts", "view.tsx", "lib.rs", "Service.java", "deploy.sh", "broken.go"}

// what is in a file of each language.
func TestGolden(t *testing.T) {
	t.Parallel()
	needGrammars(t)
	w := newWorld(t)
	for _, name := range fixtures {
		w.put(name, fixture(t, name))
	}
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			got := as[fileAnalysis](w, "indexer_analyze_file", `{"path":"`+name+`"}`)
			got.Root = "/root"
			b, err := json.MarshalIndent(got, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			text := got.String() + "\n" + string(b) + "\n"
			golden := "testdata/golden/" + name + ".txt"
			if *update {
				if err := os.MkdirAll("testdata/golden", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Errorf("got\n%s\nwant\n%s", text, want)
			}
		})
	}
}

func names(symbols []fileSymbol) []string {
	var out []string
	for _, s := range symbols {
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return out
}
