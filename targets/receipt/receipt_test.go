package receipt

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// The programs use no strict, which costs time where a command waits for it.
func TestTheProgramsVariablesAreDeclared(t *testing.T) {
	needstest.Program(t, "perl", "apt-get install perl")
	for name, text := range map[string]string{"record": lookProgram + beforeProgram + recordProgram, "after": lookProgram + afterProgram} {
		cmd := exec.CommandContext(t.Context(), "perl", "-Mstrict=vars", "-c", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestAReportIsRead(t *testing.T) {
	before, after := sheet{state: State{}}, sheet{state: State{}}
	before.read([]byte("t 17 23 99\nu a.service\t4\nu b.service\t5\np 00000000 22\nm /\trw\nm /\trw\nk ext4\ns vm/swappiness\t60 \nf rules\t0001\n"))
	if before.at != "17 23 99" || before.whole {
		t.Errorf("%+v", before)
	}
	after.read([]byte("u a.service\t6\np 00000000 22\np 7f000001 80\nm /\tro\nm /mnt\nm /srv/files\nq 12 the name\nq x\ns vm/swappiness\t1 \nr 10.0.0.0/8 dev eth0\nf rules\t0001\n\nfiles\n" +
		"w /b\x00w /a\nb\x00d /b/../c\x00a relative\x00o\x00\x00z\x00"))
	one := func(name, value string) map[string]string { return map[string]string{name: value} }
	want := Report{
		Missed: true, Changes: []Change{{"/a\nb", Wrote}, {"/b", Wrote}, {"/c", Deleted}}, Left: []Process{{12, "the name"}},
		New:     State{Sockets: one("7f000001 80", ""), Mounts: {"/mnt": "", "/srv/files": ""}, Routes: one("10.0.0.0/8 dev eth0", "")},
		Gone:    State{Units: one("b.service", "5"), Modules: one("ext4", "")},
		Changed: State{Units: one("a.service", "6"), Mounts: one("/", "ro"), Settings: one("vm/swappiness", "1")},
	}
	if got := after.report(before.state); !after.whole || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// A file's time tells nothing of what is gone, and of what moved only that its attributes changed.
func TestNamesTellWhatBecameOfADirectory(t *testing.T) {
	before, after := sheet{state: State{}}, sheet{state: State{}}
	before.read([]byte("t 1 2 3\nd /w\t/./1:9/gone/1.5/moved/2.5/same/3.5/grown/4.5/d/5/\nd /mnt\t/./1:8/below/6.5/\nd /link\t/./1:3/b/7.1/\nd /before\t/./1:7/x/7.1/\nm /\trw\n"))
	after.read([]byte("d /w\t/./1:9/new/2.5/same/3.5/grown/4.6/d/5/\nd /mnt\t/./2:2/above/1.1/\nd /link\t/./1:4/a/7.2/\nd /after\t/./1:6/y/8.1/\nm /\trw\nm /mnt\trw\n\nfiles\n" +
		"n /w\x00a /w/new\x00a /w/same\x00a /w/grown\x00w /mnt\x00n /elsewhere\x00\x00z\x00"))
	want := []Change{{"/elsewhere", Names}, {"/w/gone", Deleted}, {"/w/grown", Wrote}, {"/w/moved", Deleted}, {"/w/new", Wrote}, {"/w/same", Attributes}}
	if r := after.report(before.state); !slices.Equal(r.Changes, want) || len(r.New) != 1 || len(r.Gone)+len(r.Changed) > 0 {
		t.Errorf("%+v", r)
	}
}

// What is missing in the middle of a report would be another name's end.
func TestAReportThatIsTooLongIsNone(t *testing.T) {
	o := newOutput(ending)
	for _, s := range []string{"\nfiles\nw /a", strings.Repeat("b", maxReport), "c" + ending} {
		_, _ = o.Write([]byte(s))
	}
	o.close()
	raw, err := o.wait(t.Context())
	s := sheet{state: State{}}
	if s.read(raw); err != nil || s.whole {
		t.Errorf("%v, %+v", err, s)
	}
}

// What a target prints is foreign.
func FuzzReport(f *testing.F) {
	f.Add([]byte("t 1 2 3\nq 1 a\n\nfiles\nw /a\x00\x00z\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := sheet{state: State{}}
		s.read(raw)
		for _, c := range s.report(State{}).Changes {
			if c.Path == "" || c.Path[0] != '/' {
				t.Errorf("%q", c.Path)
			}
		}
	})
}
