package impact

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/test/needstest"
)

// realRunner reads with a real shell.
type realRunner struct {
	t      *testing.T
	target backend.Target
}

func (r realRunner) Read(ctx context.Context, command string) (string, int, error) {
	if !proves(command) {
		r.t.Errorf("a preview ran text that is not proven: %s", command)
	}
	var out bytes.Buffer
	p, err := warranttest.Start(ctx, r.target, backend.Spec{Argv: []string{"bash", "--noprofile", "--norc", "-c", command}, Stdout: &out})
	if err != nil {
		return "", 0, err
	}
	res, err := p.Wait()
	if err != nil {
		return "", 0, err
	}
	if res.Killed {
		return "", 0, context.Cause(ctx)
	}
	return out.String(), res.Code, nil
}

// in returns a directory with some files, and what is said of a command there.
func in(t *testing.T, files map[string]int) (string, func(command string) string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a dir")
	for name, n := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, bytes.Repeat([]byte("x"), n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	target := local.New(local.Options{})
	t.Cleanup(func() { _ = target.Close() })
	return dir, func(command string) string {
		t.Helper()
		a := approvals.Action{Kind: approvals.KindShell, Dir: dir, Bytes: []byte(command)}
		got := Of(t.Context(), a, proves, realRunner{t, target})
		if why := checkText(got); why != "" {
			t.Errorf("%s: %s", command, why)
		}
		return strings.ReplaceAll(got, dir, "DIR")
	}
}

// wants are the lines that a preview must have; times differ from run to run.
func wants(t *testing.T, command, got string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+got+"\n", "\n"+l) {
			t.Errorf("%s: want the line %q in:\n%s", command, l, got)
		}
	}
}

func TestRealFiles(t *testing.T) {
	dir, say := in(t, map[string]int{"logs/a.log": 3000, "logs/b.log": 10, "logs/deep/c": 5, "one.log": 1, "two.log": 20, "-rf": 7, "evil\nwould remove nothing.log": 4, "to/one.log": 99, "old.txt": 1234})
	for _, tt := range []struct {
		command string
		lines   []string
	}{
		{"rm -r logs", []string{"would remove 3 files and 2 directories, 3 kB", "largest: logs/a.log (3 kB), logs/b.log (10 bytes), logs/deep/c (5 bytes)"}},
		{"rm *.log", []string{"would remove 3 files, 25 bytes", `largest: two.log (20 bytes), evil\nwould remove nothing.log (4 bytes), one.log (1 byte)`}},
		{"rm *", []string{"rm would take names of files for options: -rf"}},
		{"rm -- *", []string{"would remove 5 files", "stays, because it is a directory: DIR/logs, DIR/to"}},
		{"rm ./*", []string{"would remove 5 files"}},
		{"rm -- -rf nothere", []string{"would remove 1 file, 7 bytes", "does not exist: nothere"}},
		{"rm logs", []string{"stays, because it is a directory: DIR/logs"}},
		{"rm *.gz", []string{"nothing fits: *.gz"}},
		{"rmdir logs", []string{"stays, because it is not empty: DIR/logs"}},
		{"mv one.log to", []string{"would overwrite DIR/to/one.log, 99 bytes"}},
		{"mv one.log old.txt", []string{"would overwrite DIR/old.txt, 1.2 kB"}},
		{"mv one.log to/two.log", []string{"would overwrite nothing: no file is there yet"}},
		{"cp nothere old.txt", []string{"would overwrite DIR/old.txt, 1.2 kB", "does not exist: nothere"}},
		{"truncate -s 0 old.txt", []string{"would empty DIR/old.txt, 1.2 kB now"}},
		{"truncate --size=10 old.txt", []string{"would set to the size 10: DIR/old.txt, 1.2 kB now"}},
		{"echo $HOME > old.txt", []string{"would empty DIR/old.txt, 1.2 kB now"}},
		{"chmod -R 700 logs", []string{"would set the mode of 3 files and 2 directories, 3 kB to 700"}},
	} {
		wants(t, tt.command, say(tt.command), tt.lines...)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "old.txt")); err != nil || len(b) != 1234 {
		t.Errorf("a preview changed a file: %d bytes, %v", len(b), err)
	}
}

func TestRealCountStopsAt10000(t *testing.T) {
	needstest.Long(t)
	dir, say := in(t, map[string]int{"d/0": 1})
	for i := 1; i <= maxFiles; i++ {
		if err := os.WriteFile(filepath.Join(dir, "d", strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "rm -r d", say("rm -r d"), "would remove more than 10,000 files")
}

func TestRealProcesses(t *testing.T) {
	needstest.Program(t, "ps", "apt-get install procps")
	_, say := in(t, nil)
	got := say("kill " + strconv.Itoa(os.Getpid()))
	wants(t, "kill", got, "would signal 1 process:")
	if !strings.Contains(got, "impact.test") {
		t.Errorf("kill: the test itself is not in:\n%s", got)
	}
	wants(t, "pkill", say("pkill -x nosuchprogramhere"), "no process fits")
}
