package receipt

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"countersign/internal/needstest"
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
