package container_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/container/enginetest"
	"countersign/targets/rehearsal"
)

// TestARehearsedEffectIsTheRealOne rehearses commands of a public collection and then runs them, each in a
// container of its own. COUNTERSIGN_CORPORA has rehearsal.tsv, whose rows are the number of a file system
// and a command, and the scripts setupN.sh that make these file systems.
func TestARehearsedEffectIsTheRealOne(t *testing.T) {
	dir := os.Getenv("COUNTERSIGN_CORPORA")
	if dir == "" {
		t.Skip("public collections are not committed: set COUNTERSIGN_CORPORA to a folder that has rehearsal.tsv")
	}
	b, err := os.ReadFile(filepath.Join(dir, "rehearsal.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	e := enginetest.Docker(t)
	rehearsed, same, unknown, less := 0, 0, map[string]int{}, 0
	var took []time.Duration
	for row := range strings.Lines(string(b)) {
		number, command, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		setup, err := os.ReadFile(filepath.Join(dir, "setup"+number+".sh"))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(command, func(t *testing.T) {
			tgt := open(t, config(e, false, e.Run(t, enginetest.Debian, "--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined")))
			caps, err := tgt.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			text(t, tgt, string(setup))
			before := snapshot(t, tgt)
			argv := []string{caps.Bash, "--noprofile", "--norc", "-c", command}
			begin := time.Now()
			r, err := rehearsal.Run(t.Context(), tgt, warranttest.Rules, rehearsal.Spec{Argv: argv, Dir: "/", Env: backend.Environ(caps)})
			took = append(took, time.Since(begin))
			if again := snapshot(t, tgt); len(diff(before, again)) > 0 {
				t.Errorf("the rehearsal changed the container: %q", diff(before, again))
			}
			none, isNone := errors.AsType[rehearsal.NoneError](err)
			switch {
			case isNone:
				unknown[none.Why]++
				return
			case err != nil:
				t.Fatal(err)
			case !r.Complete():
				unknown["more than files"]++
				return
			}
			p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Argv: argv, Dir: "/", Env: backend.Environ(caps)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			happened := diff(before, snapshot(t, tgt))
			var shown []string
			for _, c := range r.Changes {
				if c.Kind != rehearsal.Touched && !ignored(c.Path) {
					shown = append(shown, string(c.Kind)+" "+c.Path)
				}
			}
			slices.Sort(shown)
			rehearsed++
			if slices.Equal(shown, happened) {
				same++
				return
			}
			for _, line := range happened {
				if !slices.Contains(shown, line) {
					less++
					break
				}
			}
			t.Logf("rehearsed %q\nreal      %q", shown, happened)
		})
	}
	slices.Sort(took)
	t.Logf("%d rehearsed, %d of them as they really were, %d showed less; not rehearsed: %v; took %v (median), %v (longest)", rehearsed, same, less, unknown, took[len(took)/2], took[len(took)-1])
	if rehearsed == 0 || float64(same)/float64(rehearsed) < 0.95 || less > 0 {
		t.Error("a rehearsal is to be the real effect in 95 of 100 commands, and never less")
	}
}

// ignored are files that change by themselves.
func ignored(p string) bool {
	return strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/sys/") || strings.HasPrefix(p, "/dev/") || strings.HasPrefix(p, "/usr/share/") || strings.HasPrefix(p, "/tmp/countersign")
}

// snapshot is every file: kind, mode and owner, and the content of what is not the system's.
func snapshot(t *testing.T, tgt backend.Target) map[string]string {
	t.Helper()
	out := text(t, tgt, `find / \( -path /proc -o -path /sys -o -path /dev -o -path /usr/share \) -prune -o -printf '%p\t%y %m %U:%G %l\0' | tr '\n\0' '?\n'; echo; find / \( -path /proc -o -path /sys -o -path /dev -o -path /usr \) -prune -o -type f -print0 | xargs -0 sha256sum -z | tr '\n\0' '?\n'`)
	files := map[string]string{}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if p, what, ok := strings.Cut(line, "\t"); ok {
			files[p] = what
		} else if sum, p, ok := strings.Cut(line, "  "); ok {
			files[p] += " " + sum
		}
	}
	return files
}

// diff is what differs, as a rehearsal has it.
func diff(before, after map[string]string) []string {
	var out []string
	add := func(kind rehearsal.ChangeKind, p string) {
		if !ignored(p) && p != "" {
			out = append(out, fmt.Sprintf("%s %s", kind, p))
		}
	}
	for p, was := range before {
		is, there := after[p]
		w, i := strings.Fields(was), strings.Fields(is)
		switch {
		case !there:
			add(rehearsal.Deleted, p)
		case was == is:
		case w[0] != i[0] || len(w) != len(i) || len(w) > 3 && w[len(w)-1] != i[len(i)-1]:
			add(rehearsal.Written, p)
		default:
			add(rehearsal.Attributes, p)
		}
	}
	for p := range after {
		if _, there := before[p]; !there {
			add(rehearsal.Created, p)
		}
	}
	slices.Sort(out)
	return out
}
