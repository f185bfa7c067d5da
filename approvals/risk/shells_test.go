package risk

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"countersign/test/needstest"
)

// What is proven for a shell that is not known must mean the same to every shell that could
// read it. This test has the real shells read such texts, with a recorder in place of each
// program, and compares what the programs were given: with one another, and with what the
// classifier took the words for.

// realShell is a shell that can be asked what a text means to it.
type realShell struct {
	name  string
	path  string
	argv  []string // argv[0] is what it is called
	posix bool     // it is one of those that can be a plain sh
}

func realShells(t *testing.T) []realShell {
	t.Helper()
	var out []realShell
	for _, s := range []struct {
		name, program string
		argv          []string
		posix         bool
	}{
		{"bash", "bash", []string{"bash", "--norc", "-c"}, true},
		{"bash as sh", "bash", []string{"sh", "-c"}, true},
		{"dash", "dash", []string{"dash", "-c"}, true},
		{"busybox ash", "busybox", []string{"ash", "-c"}, true},
		{"zsh", "zsh", []string{"zsh", "-f", "-c"}, false},
		{"fish", "fish", []string{"fish", "--no-config", "-c"}, false},
		{"tcsh", "tcsh", []string{"tcsh", "-f", "-c"}, false},
	} {
		path, err := exec.LookPath(s.program)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed: install bash, dash, busybox, zsh, fish and tcsh", s.program)
			}
			t.Logf("%s is not installed, so nothing is said of it", s.program)
			continue
		}
		out = append(out, realShell{s.name, path, s.argv, s.posix})
	}
	if len(out) < 2 {
		t.Skip("there are no two shells to compare: install bash, dash, busybox, zsh, fish and tcsh")
	}
	return out
}

const testHome = "/nonexistent/home"

// recorded is the name of a recorder for a program.
func recorded(program string) string {
	return "rec-" + strings.NewReplacer("/", "_", ":", "colon", "[", "bracket").Replace(program)
}

// reading is a text with recorders in place of its programs, and what each of them should get.
type reading struct {
	text     string // as it was proven
	run      string
	programs []string
	want     []string // nil where patterns stand for what is there
	posix    bool     // proven for a plain sh only
}

// prepare puts recorders into a text. What changes the shell itself stays.
func prepare(t *testing.T, text string, posix bool) (reading, bool) {
	t.Helper()
	file, err := parse(text, syntax.LangBash)
	if err != nil {
		t.Fatalf("%q is proven, and can't be read: %v", text, err)
	}
	r := reading{text: text, posix: posix, want: []string{}}
	type cut struct {
		from, to int
		with     string
	}
	var cuts []cut
	known, ok := true, true
	var status func(s *syntax.Stmt, runs bool) bool
	status = func(s *syntax.Stmt, runs bool) bool {
		good := true
		for _, in := range s.Redirs {
			if in.Op == syntax.RdrIn { // a file that is there
				cuts = append(cuts, cut{int(in.Word.Pos().Offset()), int(in.Word.End().Offset()), "/dev/null"})
			}
		}
		switch c := s.Cmd.(type) {
		case *syntax.CallExpr:
			name := c.Args[0].Lit()
			if name == "" || name == "cd" || name == "test" || name == "[" || name == "command" {
				ok = false // it is up to the shell
				return true
			}
			cuts = append(cuts, cut{int(c.Args[0].Pos().Offset()), int(c.Args[0].End().Offset()), recorded(name)})
			r.programs = append(r.programs, recorded(name))
			argv := []string{recorded(name)}
			j := newJudge()
			j.src = text
			for _, a := range c.Args[1:] {
				w, why := j.resolveWord(a)
				known = known && why == "" && w.kind == wordLit
				if l, ok := a.Parts[0].(*syntax.Lit); ok && (l.Value == "~" && len(a.Parts) == 1 || strings.HasPrefix(l.Value, "~/")) {
					w.text = testHome + w.text[1:]
				}
				argv = append(argv, w.text)
			}
			if runs {
				r.want = append(r.want, strings.Join(argv, "\x00"))
			}
		case *syntax.BinaryCmd:
			good = status(c.X, runs)
			switch c.Op {
			case syntax.AndStmt:
				good = status(c.Y, runs && good) && good
			case syntax.OrStmt:
				good = status(c.Y, runs && !good) || good
			default:
				good = status(c.Y, runs)
			}
		default:
			ok = false
		}
		return good != s.Negated
	}
	for _, s := range file.Stmts {
		status(s, true)
	}
	if !ok || len(cuts) == 0 {
		return r, false
	}
	r.run = text
	slices.SortFunc(cuts, func(a, b cut) int { return a.from - b.from })
	for _, c := range slices.Backward(cuts) {
		r.run = r.run[:c.from] + c.with + r.run[c.to:]
	}
	sort.Strings(r.want)
	if !known {
		r.want = nil
	}
	return r, true
}

// read has one shell read a text in a directory with a few files, and returns what the
// recorders were given, sorted, and what the shell left behind.
func (s realShell) read(t *testing.T, r reading, bin string) (argvs []string, changed string) {
	t.Helper()
	dir := t.TempDir()
	work, log := filepath.Join(dir, "work"), filepath.Join(dir, "log")
	for _, d := range []string{work, log, filepath.Join(work, "sub")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a", "b.log", "c.log", "x", "-n", "sub/a"} {
		if err := os.WriteFile(filepath.Join(work, f), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, work)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, s.path)
	c.Args = append(slices.Clone(s.argv), r.run)
	c.Dir = work
	c.Env = []string{"PATH=" + bin, "HOME=" + testHome, "RECORD=" + log, "LC_ALL=C", "TERM=dumb"}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	_ = c.Run() // the recorders and the comparison tell
	if ctx.Err() != nil {
		t.Errorf("%s does not come to an end with %q", s.name, r.run)
	}
	names, err := os.ReadDir(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(log, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		argvs = append(argvs, strings.TrimSuffix(string(b), "\x00"))
	}
	sort.Strings(argvs)
	if after := listing(t, work); after != before {
		return argvs, fmt.Sprintf("%s is now %s", before, after)
	}
	return argvs, ""
}

// fewer reports whether a shell only left out what a pattern without a match stands for:
// the word, the command, or everything, as zsh, fish and tcsh do.
func fewer(got, all []string) bool {
	unmatched := func(argv string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(argv, "\x00"), func(w string) bool { return strings.Contains(w, "*") }), "\x00")
	}
	left := slices.Clone(all)
	for _, argv := range got {
		n := slices.IndexFunc(left, func(l string) bool { return l == argv || unmatched(l) == argv })
		if n < 0 {
			return false
		}
		left = slices.Delete(left, n, n+1)
	}
	return true
}

// listing are the files below a directory with their sizes.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			fmt.Fprintf(&b, "%s:%d ", p[len(dir):], info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// oddPieces are of what the made texts are: most of it differs from shell to shell, and the
// classifier has to leave it out.
var oddPieces = []string{
	"a", "b1", "x.log", ".", "/", "/etc/hosts", "-x", "--y=z", "=", "a=b", "%", "a%b", "+", "+%F", "@", "@a", "^", "a^b", "~", "~/x", "a~", "#", "a#b", "!", "a!b", "$", "$x", "$HOME", "`", "\\", "\\n", "\\\\", "\\'", "\\ ",
	"'a b'", `'a\.b'`, `'\'`, `'\\'`, `'a\'`, `'a"b'`, "'$x'", "'`id`'", "'a!b'", "'!'", "''", "'^'", "'#'", "'*'", "'{a,b}'", "'~'", "'a\nb'", "'%1'", "'=ls'", `'\n'`, `'\''`,
	`"a b"`, `"a'b"`, `"\""`, `"\\"`, `"a\nb"`, `"$x"`, "\"`id`\"", `"!"`, `"a!b"`, `""`, `"*"`, `"#"`, `"~"`, `"{a,b}"`, `"a\x"`,
	"*", "?", "*.log", "./*.log", "./*", "[a]", "[!a]", "**", "{a,b}", "{1..3}", "{", "}", "{}", "(", ")", "<", ">", "&", "|", ";", "&&", "||", "|&", "2>&1", "2>/dev/null", ">/dev/null", "</dev/null", "\n", "\t", " ", "  ",
	",", ":", "a:b", "a,b", "-", "--", "-n", "1", "2", "@(a)", "<(id)", "$(id)", "${x}", "$((1))", "$'a'", `$"a"`, "then", "do", "end", "time", "not", "and",
}

var plainPrograms = []string{"echo", "true", "basename", "ls", "cat", "stat", "head", "wc", "cut", "uptime", "df", "grep", "false"}

// made returns a random text; most of them are not proven.
func made(r *rand.Rand) string {
	var b strings.Builder
	for n := range 1 + r.IntN(3) {
		if n > 0 {
			b.WriteString([]string{" | ", " && ", " || ", "; ", "\n", "|", "&&", ";"}[r.IntN(8)])
		}
		b.WriteString(plainPrograms[r.IntN(len(plainPrograms))])
		for range r.IntN(4) {
			b.WriteByte(' ')
			for range 1 + r.IntN(3) {
				b.WriteString(oddPieces[r.IntN(len(oddPieces))])
			}
		}
	}
	return b.String()
}

func TestEveryShellReadsTheSame(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	shells := realShells(t)
	if testing.Short() {
		t.Skip("it starts thousands of shells")
	}
	proves := func(c string) (shown, posix bool) {
		if Judge(Text{Command: c, Dir: "/srv/app", Shell: AnyShell, Reach: known}).Proves(c, false) {
			return true, false
		}
		return Judge(Text{Command: c, Dir: "/srv/app", Shell: POSIX, Reach: known}).Proves(c, false), true
	}
	seed, err := strconv.ParseUint(os.Getenv("COUNTERSIGN_SHELLS_SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	count, err := strconv.Atoi(os.Getenv("COUNTERSIGN_SHELLS_TEXTS"))
	if err != nil {
		count = 150
	}
	rnd := rand.New(rand.NewPCG(seed, 2))
	var readings []reading
	seen := map[string]bool{}
	take := func(c string) bool {
		if seen[c] {
			return false
		}
		seen[c] = true
		shown, posix := proves(c)
		if !shown {
			return false
		}
		r, ok := prepare(t, c, posix)
		if ok {
			readings = append(readings, r)
		}
		return ok
	}
	texts := lines(t, "testdata/read.txt")
	for _, name := range []string{"readonly-os.tsv", "readonly-platform.tsv"} {
		for _, row := range lines(t, "testdata/corpus/"+name) {
			texts = append(texts, unescapeField(t, strings.Split(row, "\t")[1]))
		}
	}
	rnd.Shuffle(len(texts), func(a, b int) { texts[a], texts[b] = texts[b], texts[a] })
	for _, c := range texts {
		if len(readings) >= count/2 {
			break
		}
		take(c)
	}
	tried := 0
	for ; len(readings) < count && tried < 2_000_000; tried++ {
		take(made(rnd))
	}
	t.Logf("seed %d: %d texts, %d of them for a plain sh; %d made texts were tried", seed, len(readings), len(slices.DeleteFunc(slices.Clone(readings), func(r reading) bool { return !r.posix })), tried)

	bin := t.TempDir()
	dash, err := exec.LookPath("dash")
	if err != nil {
		dash = "/bin/sh"
	}
	recorder := "#!" + dash + "\nprintf '%s\\0' \"${0##*/}\" \"$@\" > \"$RECORD/$$\"\n"
	for _, r := range readings {
		for _, p := range r.programs {
			if err := os.WriteFile(filepath.Join(bin, p), []byte(recorder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	work := make(chan reading)
	var wg sync.WaitGroup
	for range min(2, runtime.NumCPU()) {
		wg.Go(func() {
			for r := range work {
				var first []string
				from := ""
				for _, s := range shells {
					if r.posix && !s.posix {
						continue
					}
					got, changed := s.read(t, r, bin)
					if changed != "" {
						t.Errorf("%s changes files with %q: %s", s.name, r.text, changed)
					}
					if r.want != nil && !slices.Equal(got, r.want) {
						t.Errorf("%s gives the programs of %q %q, not %q", s.name, r.text, got, r.want)
					}
					if from == "" {
						first, from = got, s.name
					}
					if !slices.Equal(got, first) && (r.want != nil || s.posix || !fewer(got, first)) {
						t.Errorf("%q: %s gives %q, %s gives %q", r.text, from, first, s.name, got)
					}
				}
			}
		})
	}
	for _, r := range readings {
		work <- r
	}
	close(work)
	wg.Wait()
}
