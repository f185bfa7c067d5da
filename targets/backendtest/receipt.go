package backendtest

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/receipt"
)

// Receipt checks what a target that is a Witness tells of commands that ran. recorded says that its kernel
// tells while they run.
func Receipt(t *testing.T, tgt backend.Target, recorded bool) {
	caps, err := tgt.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type testCase struct{ name, command, recorded, compared string }
	cases := []testCase{
		{"writing", "echo more >>a; echo x >new", "w a\nw new", "w a\nw new"},
		{"a file in its place", "sed -i s/h/j/ a", "w a", "w a"},
		{"deleting", "rm one/x; rm -r two", "d one/x\nd two", "d one/x\nd two"},
		{"moving", "mv a b", "d a\nw b", "d a\nw b"},
		{"attributes", "chmod 600 a; touch one/x", "a a\nw one/x", "a a\nw one/x"},
		{"directories", "mkdir d; echo x >d/f", "w d\nw d/f", "w d"},
		{"links", "ln a hard; chmod 600 one/x; ln one/x x; chmod 644 x", "l one/x\nw hard\nw x", "l a\nl one/x\nw hard\nw x"},
		{"what comes and goes", "echo x >t; rm t; mkdir u; rmdir u", "", ""},
		{"only looking", "cat a; ls >/dev/null; exec 3<>a", "", ""},
		{"a process of a process", "(setsid sh -c 'exec setsid sh -c \"echo x >deep\"'); for i in 1 2 3 4 5; do [ -e deep ] || sleep 0.1; done", "w deep", "w deep"},
		{"names", "touch 'a b' -- '-f' \"$(printf 'new\\nline')\"", "w -f\nw a b\nw new\nline", "n \nw -f\nw a b\nw new\nline"},
		{"old times", "touch -d yesterday one/o two/o; mv a two/y", "d a\nw one/o\nw two/o\nw two/y", "d a\nn two\nw one/o"},
		{"a directory that may be listed and not entered", "chmod 744 one", "a one", "a one"},
		{"another directory in its place", "mv one uno; mkdir one; echo >one/z", "w one\nw one/z\nw uno", "w one\nw one/z\nw uno"},
		{"another target of a link", "ln -sfn two link", "w link", "w link"},
		{"an old file's content in a file", "printf hollo >a; touch -d yesterday a", "w a", "w a"},
		{"a name of two lines", "rm \"$(printf 'two\nlines')\"", "d two\nlines", "n "},
		{"nothing", "true", "", ""},
	}
	dirs := make([]string, len(cases))
	for i := range cases {
		dirs[i] = scratch(t, tgt)
		sh(t, tgt, backend.Spec{Dir: dirs[i], Shell: "chmod 755 .; mkdir one two; echo hello >a; echo >one/x; echo >two/y; ln -s one link"})
	}
	sh(t, tgt, backend.Spec{Dir: dirs[slices.IndexFunc(cases, func(c testCase) bool { return c.name == "a name of two lines" })], Shell: "touch \"$(printf 'two\\nlines')\""})
	sh(t, tgt, backend.Spec{Shell: "sleep 1.1"}) // times of files are counted in seconds first
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			dir := dirs[i]
			want := tc.compared
			if recorded {
				want = tc.recorded
			}
			if got := happened(dir, receiptOf(t, tgt, caps, recorded, dir, tc.command)); got != want {
				t.Errorf("it changed\n%s\nnot\n%s", got, want)
			}
		})
	}
	t.Run("processes that are left", func(t *testing.T) {
		dir := scratch(t, tgt)
		r := receiptOf(t, tgt, caps, recorded, dir, "exec >/dev/null 2>&1; setsid sleep 7.5 & sleep 0.1 & wait $!")
		defer sh(t, tgt, backend.Spec{Shell: "pkill -f 'sleep 7[.]5'; true"})
		if !slices.ContainsFunc(r.Left, func(p receipt.Process) bool { return p.Name == "sleep" && p.ID > 1 }) || recorded && len(r.Left) != 1 {
			t.Errorf("%+v", r.Left)
		}
	})
	t.Run("a process whose name is rows", func(t *testing.T) {
		dir := scratch(t, tgt)
		r := receiptOf(t, tgt, caps, recorded, dir, `exec >/dev/null 2>&1; setsid perl -e '$0 = "x\nfiles\n"; open(F,">there"); close F; sleep 9' & while [ ! -e there ]; do sleep 0.05; done`)
		defer sh(t, tgt, backend.Spec{Shell: "pkill -f '^x.files'; true"})
		if !slices.ContainsFunc(r.Left, func(p receipt.Process) bool { return p.Name == "x?files?" }) || happened(dir, r) == "" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a socket", func(t *testing.T) {
		dir := scratch(t, tgt)
		r := receiptOf(t, tgt, caps, recorded, dir, `exec >/dev/null 2>&1; setsid perl -e 'socket(S,2,1,0); bind(S,pack("SnNx8",2,0,2130706433)); listen(S,1); open(F,">there"); close F; sleep 8' & `+
			"while [ ! -e there ]; do sleep 0.05; done")
		defer sh(t, tgt, backend.Spec{Shell: "pkill -f 'sleep [8]'; true"})
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.New[receipt.Sockets])), func(s string) bool { return strings.HasPrefix(s, "7f000001 ") }) {
			t.Errorf("%+v", r.New)
		}
	})
	if !recorded {
		t.Run("the clock was set back", func(t *testing.T) {
			dir := scratch(t, tgt)
			sh(t, tgt, backend.Spec{Dir: dir, Shell: "chmod 755 .; sleep 2.1; echo x >new"})
			w, err := receipt.Prepare(t.Context(), tgt, backend.Environ(caps))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Drop()
			w.Look(nil)
			b, _, err := w.Ready(t.Context())
			at := strings.Fields(b.At)
			if err != nil || len(at) != 3 {
				t.Fatal(b.At, err)
			}
			now, err := strconv.Atoi(at[0])
			b.At = fmt.Sprint(now+3600, " ", at[1], " ", at[2])
			if err != nil {
				t.Fatal(err)
			}
			r, err := receipt.After(t.Context(), tgt, backend.Environ(caps), b, "", caps.Home, []string{dir})
			if got := happened(dir, r); err != nil || !strings.Contains(got, "w new") {
				t.Errorf("%s, %v", got, err)
			}
		})
		return
	}
	t.Run("nobody else", func(t *testing.T) {
		dir := scratch(t, tgt)
		w := watch(t, tgt, caps)
		w.Process("2") // of the kernel
		sh(t, tgt, backend.Spec{Dir: dir, Shell: "echo x >new; sleep 1 & rm a"})
		if r, err := w.End(t.Context()); err != nil || len(r.Changes) > 0 || len(r.Left) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("it holds no file system", func(t *testing.T) {
		dir := scratch(t, tgt)
		sh(t, tgt, backend.Spec{Dir: dir, Shell: "mkdir m; mount -t tmpfs none m; echo x >m/a"})
		r := receiptOf(t, tgt, caps, recorded, dir, "rm m/a; echo y >m/b; mkdir m/c; umount m")
		if got := happened(dir, r); got != "" && got != "w m" || r.Gone[receipt.Mounts][dir+"/m"] == "" {
			t.Errorf("%s, %+v", got, r)
		}
	})
	t.Run("another file system", func(t *testing.T) {
		dir := scratch(t, tgt)
		sh(t, tgt, backend.Spec{Dir: dir, Shell: "mkdir m; mount -t tmpfs none m; echo x >m/a"})
		defer sh(t, tgt, backend.Spec{Dir: dir, Shell: "umount m"})
		if got := happened(dir, receiptOf(t, tgt, caps, recorded, dir, "rm m/a; echo y >m/b; mkdir m/c")); got != "d m/a\nw m/b\nw m/c" {
			t.Error(got)
		}
	})
	t.Run("many", func(t *testing.T) {
		dir := scratch(t, tgt)
		r := receiptOf(t, tgt, caps, recorded, dir, "for i in $(seq 6000); do echo x >$i; done")
		if !r.Missed || len(r.Changes) < 4900 || len(r.Changes) > 5000 {
			t.Errorf("%d changes, missed %v", len(r.Changes), r.Missed)
		}
	})
}

// watch is a look at a target that records.
func watch(t *testing.T, tgt backend.Target, caps backend.Caps) *receipt.Watch {
	t.Helper()
	w, err := receipt.Prepare(t.Context(), tgt, backend.Environ(caps))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Drop)
	w.Look(nil)
	if _, recorded, err := w.Ready(t.Context()); err != nil || !recorded {
		t.Fatalf("recorded %v, %v", recorded, err)
	}
	return w
}

// receiptOf runs a command with a mark.
func receiptOf(t *testing.T, tgt backend.Target, caps backend.Caps, recorded bool, dir, command string) receipt.Report {
	t.Helper()
	w, err := receipt.Prepare(t.Context(), tgt, backend.Environ(caps))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	dirs := []string{dir, dir + "/one", dir + "/link"}
	w.Look(dirs)
	before, records, err := w.Ready(t.Context())
	if err != nil || records != recorded {
		t.Fatalf("recorded: %v, %v", records, err)
	}
	mark := "receipt-" + strings.ToLower(rand.Text())
	w.Program(mark)
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: command, Dir: dir, Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	var r receipt.Report
	if recorded {
		r, err = w.End(t.Context())
	} else {
		r, err = receipt.After(t.Context(), tgt, backend.Environ(caps), before, "", caps.Home, dirs)
	}
	if err != nil || r.Recorded != recorded {
		t.Fatalf("%+v, %v", r, err)
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c receipt.Change) bool { return strings.Contains(c.Path, mark) })
	return r
}

// happened are the changes below a directory.
func happened(dir string, r receipt.Report) string {
	var out []string
	for _, c := range r.Changes {
		// Whether what was in a deleted directory has a name any more is a matter of time.
		if slices.ContainsFunc(r.Changes, func(d receipt.Change) bool { return d.Kind == receipt.Deleted && strings.HasPrefix(c.Path, d.Path+"/") }) {
			continue
		}
		if c.Path == dir || strings.HasPrefix(c.Path, dir+"/") {
			out = append(out, fmt.Sprintf("%c %s", c.Kind, strings.TrimPrefix(strings.TrimPrefix(c.Path, dir), "/")))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
