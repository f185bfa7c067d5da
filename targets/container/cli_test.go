package container

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
)

const fakeID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// fake puts a docker or podman on a PATH that writes down its arguments and then
// runs the command here, without a container.
func fake(t *testing.T, name string) (path string, journal func() [][]string) {
	t.Helper()
	dir := t.TempDir()
	script(t, dir, name, `
if [ "$1" = exec ]; then
  for a in "$@"; do printf '%s\0' "$a"; done >>'`+dir+`/journal'
  printf '\n\0' >>'`+dir+`/journal'
fi
case $1 in
--version) echo '`+name+` version 1.2.3, build 0' ;;
container) cat '`+dir+`/state' ;;
exec) while [ "$1" != sh ]; do shift; done; exec setsid -w "$@" ;;
*) exit 64 ;;
esac
`)
	setState(t, dir, fakeID+" true false now")
	return dir, func() [][]string {
		b, err := os.ReadFile(filepath.Join(dir, "journal"))
		if err != nil {
			t.Fatal(err)
		}
		var calls [][]string
		for call := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n\x00"), "\n\x00") {
			calls = append(calls, strings.Split(strings.TrimSuffix(call, "\x00"), "\x00"))
		}
		return calls
	}
}

func setState(t *testing.T, dir, line string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "state"), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// B-107, and B-109: the flag for standard input, by engine.
func TestTheCommandLineThatIsCalled(t *testing.T) {
	for _, tt := range []struct {
		engine string
		user   string
		stdin  bool
		want   []string
	}{
		{engine: "docker", want: []string{"exec", fakeID, "sh", "-lc"}},
		{engine: "docker", stdin: true, want: []string{"exec", "-i", fakeID, "sh", "-lc"}},
		{engine: "docker", user: "app", want: []string{"exec", "--user", "app", fakeID, "sh", "-lc"}},
		{engine: "podman", want: []string{"exec", fakeID, "sh", "-lc"}},
		{engine: "podman", stdin: true, want: []string{"exec", "--interactive", fakeID, "sh", "-lc"}},
	} {
		t.Run(strings.Join(append([]string{tt.engine}, tt.want...), " "), func(t *testing.T) {
			dir, journal := fake(t, tt.engine)
			tgt, err := New(Config{Container: "web", Engine: tt.engine, User: tt.user, Path: dir + ":" + backend.SearchPath,
				DockerHost: "unix:///no/such/docker.sock"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tgt.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			s := backend.Spec{Shell: `printf '%s|' "a  b" 'it'"'"'s' '$HOME'; cat; exit 7`, Stdout: &out}
			want := "a  b|it's|$HOME|"
			if tt.stdin {
				s.Stdin = strings.NewReader("in")
				want += "in"
			}
			p, err := warranttest.Start(t.Context(), tgt, s)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := p.Wait(); err != nil || res.Code != 7 || out.String() != want {
				t.Errorf("%+v %v %q", res, err, out.String())
			}
			calls := journal()
			last := calls[len(calls)-1]
			if len(last) != len(tt.want)+1 || strings.Join(last[:len(last)-1], " ") != strings.Join(tt.want, " ") {
				t.Errorf("called with %q, want %q and one text", last, tt.want)
			}
			if tgt.ID() != "container:web#0123456789ab" {
				t.Error(tgt.ID())
			}
		})
	}
}

// B-53, B-56.
func TestFilesAreReadAndWrittenByCat(t *testing.T) {
	dir, journal := fake(t, "docker")
	tgt, err := New(Config{Container: "web", Engine: "docker", Path: dir + ":" + backend.SearchPath, DockerHost: "unix:///no/such/docker.sock"})
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/-n it's"
	if err := tgt.FS().WriteFile(t.Context(), file, []byte("content\x00\n"), false); err != nil {
		t.Fatal(err)
	}
	calls := journal()
	if last := calls[len(calls)-1]; last[1] != "-i" || !strings.Contains(last[len(last)-1], `cat >"$t"`) {
		t.Errorf("%q", last)
	}
	got, err := tgt.FS().ReadFile(t.Context(), file, 0)
	if err != nil || string(got) != "content\x00\n" {
		t.Errorf("%q, %v", got, err)
	}
	calls = journal()
	if last := calls[len(calls)-1]; last[0] != "exec" || !strings.Contains(last[len(last)-1], "cat -- ") {
		t.Errorf("%q", last)
	}
}

func TestAProgramThatOnlyPlaysDockerIsCalledByName(t *testing.T) {
	dir, journal := fake(t, "docker")
	setState(t, dir, "")
	tgt, err := New(Config{Container: "web", Engine: "docker", Path: dir + ":" + backend.SearchPath})
	if err != nil {
		t.Fatal(err)
	}
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	calls := journal()
	if last := calls[len(calls)-1]; strings.Join(last[:4], " ") != "exec web sh -lc" {
		t.Errorf("%q", last)
	}
	if tgt.ID() != "container:web" {
		t.Error(tgt.ID())
	}
}

func TestAnotherContainerOfTheSameNameIsRefused(t *testing.T) {
	dir, journal := fake(t, "docker")
	tgt, err := New(Config{Container: "web", Engine: "docker", Path: dir + ":" + backend.SearchPath, DockerHost: "unix:///no/such/docker.sock"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tgt.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(journal())
	setState(t, dir, strings.Repeat("f", 64)+" true false now")
	if _, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "true"}); !errors.Is(err, ErrReplaced) {
		t.Errorf("%v", err)
	}
	if len(journal()) != before {
		t.Error("something was started in it")
	}
}

func TestQuotedTextRunsAsTheArgumentsThatWereGiven(t *testing.T) {
	tgt := local.New(local.Options{Dir: "/"})
	rapid.Check(t, func(rt *rapid.T) {
		args := rapid.SliceOfN(rapid.StringMatching(`[ -~\n\t'"$\\`+"`"+`é]{0,12}`), 1, 5).Draw(rt, "args")
		var out bytes.Buffer
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Argv: []string{"sh", "-c", command(append([]string{"printf", `%s\0`}, args...))}, Stdout: &out})
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			rt.Fatal(err)
		}
		if want := strings.Join(args, "\x00") + "\x00"; out.String() != want {
			rt.Errorf("%q, want %q", out.String(), want)
		}
	})
}

func TestACommandThatIsTooLongIsRefused(t *testing.T) {
	c := &cli{p: newCommandRunner(Config{Path: backend.SearchPath}), program: "docker"}
	if _, err := c.exec(t.Context(), fakeID, "", []string{strings.Repeat("'", textMax/4)}, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
}

func TestWhatTheCommandLineSaysOfAContainer(t *testing.T) {
	for _, tt := range []struct {
		name, out string
		want      state
		err       bool
	}{
		{name: "docker", out: fakeID + " true false 2026-01-02T03:04:05.6Z\n", want: state{id: fakeID, running: true, started: "2026-01-02T03:04:05.6Z"}},
		{name: "podman's time has spaces", out: fakeID + " true true 2026-01-02 03:04:05.6 +0000 UTC\n",
			want: state{id: fakeID, running: true, paused: true, started: "2026-01-02 03:04:05.6 +0000 UTC"}},
		{name: "stopped", out: fakeID + " false false x\n", want: state{id: fakeID, started: "x"}},
		{name: "nothing", err: true},
		{name: "no id", out: "web true false x\n", err: true},
		{name: "no truth", out: fakeID + " yes false x\n", err: true},
		{name: "two containers", out: fakeID + " true false x\n" + fakeID + " true false x\n", err: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if st, err := parseInspect(tt.out); (err != nil) != tt.err || st != tt.want {
				t.Errorf("%+v %v", st, err)
			}
		})
	}
}

func FuzzParseInspect(f *testing.F) {
	f.Add(fakeID + " true false 2026-01-02 03:04:05 +0000 UTC\n")
	f.Add("\n")
	f.Fuzz(func(t *testing.T, out string) {
		st, err := parseInspect(out)
		if err == nil && !idForm.MatchString(st.id) {
			t.Errorf("%q gave %+v", out, st)
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add("Docker version 28.2.2, build e6534b4\n")
	f.Add("podman version")
	f.Fuzz(func(t *testing.T, out string) {
		if v := programVersion(out); strings.ContainsAny(v, " \n\t") {
			t.Errorf("%q", v)
		}
		if n := programName("/usr/bin/docker", out); n != "docker" && n != "podman" {
			t.Errorf("%q", n)
		}
	})
}
