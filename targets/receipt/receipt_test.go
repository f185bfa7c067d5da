package receipt

import (
	"reflect"
	"testing"
)

func TestAReportIsRead(t *testing.T) {
	var before, after sheet
	before.read([]byte("t 17 23 99\nu a.service\nu b.service\np 00000000 22\nm /\nm /\nk ext4\n"))
	if before.at != "17 23 99" || before.whole {
		t.Errorf("%+v", before)
	}
	after.read([]byte("u a.service\np 00000000 22\np 7f000001 80\nm /\nm /mnt\nm /srv/files\nq 12 the name\nq x\n\nfiles\n" +
		"w /b\x00w /a\nb\x00d /b/../c\x00a relative\x00o\x00\x00z\x00"))
	want := Report{
		Missed: true, Changes: []Change{{"/a\nb", Wrote}, {"/b", Wrote}, {"/c", Deleted}}, Left: []Process{{12, "the name"}},
		New:  State{Sockets: []string{"7f000001 80"}, Mounts: []string{"/mnt", "/srv/files"}},
		Gone: State{Units: []string{"b.service"}, Modules: []string{"ext4"}},
	}
	got := after.report(before.state)
	for _, l := range []*[]string{&got.New.Units, &got.New.Modules, &got.Gone.Sockets, &got.Gone.Mounts} {
		if len(*l) > 0 {
			t.Errorf("%q", *l)
		}
		*l = nil
	}
	if !after.whole || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// What a target prints is foreign.
func FuzzReport(f *testing.F) {
	f.Add([]byte("t 1 2 3\nq 1 a\n\nfiles\nw /a\x00\x00z\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s sheet
		s.read(raw)
		for _, c := range s.report(State{}).Changes {
			if c.Path == "" || c.Path[0] != '/' {
				t.Errorf("%q", c.Path)
			}
		}
	})
}
