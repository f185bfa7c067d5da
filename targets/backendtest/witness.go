package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
)

// newMark is one that no other test uses.
func newMark() string { return "test-" + marker() }

// input is an input for a process; send writes its only text.
func input(t *testing.T) (r io.Reader, send func(text string)) {
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	return r, func(text string) {
		if _, err := io.WriteString(w, text); err != nil {
			t.Error(err)
		}
		_ = w.Close()
	}
}

// witness checks what outlives a connection.
func witness(t *testing.T, tgt backend.Target) {
	w, ok := tgt.(backend.Witness)
	if !ok {
		t.Skip("this target keeps no records")
	}
	follow := func(t *testing.T, m string, s *backend.Spec) backend.Process {
		t.Helper()
		p, err := w.Follow(t.Context(), m, *s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	wait := func(t *testing.T, p backend.Process) backend.Result {
		t.Helper()
		res, err := p.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return res
	}

	t.Run("a process with a mark ends like any other, and can be followed from its beginning", func(t *testing.T) {
		m := newMark()
		const text = `printf 'a\n\000b'; printf 'c\n' >&2; read -r x; echo "$x"; exit 5`
		var out, errOut buffer
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: text, Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &errOut, Mark: m})
		if err != nil {
			t.Fatal(err)
		}
		res := wait(t, p)
		var again, errAgain buffer
		if res.Code != 5 || out.String() != "a\n\x00bin\n" || errOut.String() != "c\n" {
			t.Errorf("%+v %q %q", res, out.String(), errOut.String())
		}
		res = wait(t, follow(t, m, &backend.Spec{Stdout: &again, Stderr: &errAgain}))
		if res.Code != 5 || res.Killed || again.String() != out.String() || errAgain.String() != errOut.String() {
			t.Errorf("followed: %+v %q %q", res, again.String(), errAgain.String())
		}
	})
	t.Run("one writer for both streams gets them in their order", func(t *testing.T) {
		m := newMark()
		var out, again buffer
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done", Stdout: &out, Stderr: &out, Mark: m})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, p)
		wait(t, follow(t, m, &backend.Spec{Stdout: &again}))
		const want = "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n"
		if out.String() != want || again.String() != want {
			t.Errorf("%q, followed %q", out.String(), again.String())
		}
	})
	t.Run("a signal is named", func(t *testing.T) {
		m := newMark()
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "kill -KILL $$", Mark: m})
		if err != nil {
			t.Fatal(err)
		}
		if res := wait(t, p); res.Signal != "KILL" || res.Killed {
			t.Errorf("%+v", res)
		}
		if res := wait(t, follow(t, m, &backend.Spec{})); res.Signal != "KILL" || res.Killed {
			t.Errorf("followed: %+v", res)
		}
	})
	t.Run("one that runs is followed to its end", func(t *testing.T) {
		m := newMark()
		r, end := input(t)
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo one; read -r x; echo two; exit 3", Stdin: r, Stdout: &buffer{}, Mark: m})
		if err != nil {
			t.Fatal(err)
		}
		var out buffer
		f := follow(t, m, &backend.Spec{Stdout: &out})
		eventually(t, "the first line", func() bool { return out.String() == "one\n" })
		if note, err := w.Testify(t.Context(), m); err != nil || !note.Running || !note.Ended.IsZero() {
			t.Errorf("%+v %v", note, err)
		}
		end("go\n")
		if res := wait(t, f); res.Code != 3 || out.String() != "one\ntwo\n" {
			t.Errorf("%+v %q", res, out.String())
		}
		wait(t, p)
	})
	t.Run("one that runs is ended with all that it started, and says its last words", func(t *testing.T) {
		m := newMark()
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{
			Shell: "trap 'echo bye; exit 9' TERM; echo up; sleep 300 & sleep 300 & wait", Stdout: &buffer{}, Mark: m,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out buffer
		f := follow(t, m, &backend.Spec{Stdout: &out, Grace: 20 * time.Second})
		eventually(t, "it is up", func() bool { return out.String() == "up\n" })
		f.Kill()
		if res := wait(t, f); !res.Killed || out.String() != "up\nbye\n" {
			t.Errorf("%+v %q", res, out.String())
		}
		wait(t, p)
		if note, err := w.Testify(t.Context(), m); err != nil || note.Running {
			t.Errorf("%+v %v", note, err)
		}
	})
	t.Run("much output neither blocks nor is kept without end", func(t *testing.T) {
		m := newMark()
		var want bytes.Buffer
		for i := range 300_000 {
			fmt.Fprintln(&want, i)
		}
		var out, again buffer
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{
			Shell: `awk 'BEGIN { for (i = 0; i < 300000; i++) print i }'; exit 4`, Stdout: &out, Mark: m,
		})
		if err != nil {
			t.Fatal(err)
		}
		if res := wait(t, p); res.Code != 4 || out.String() != want.String() {
			t.Errorf("%+v, %d bytes of %d", res, len(out.String()), want.Len())
		}
		res := wait(t, follow(t, m, &backend.Spec{Stdout: &again}))
		if got := again.String(); res.Code != 4 || len(got) < 1<<19 || len(got) > 1<<21 || !strings.HasPrefix(want.String(), got) {
			t.Errorf("followed: %+v, %d bytes", res, len(got))
		}
	})
	t.Run("a mark that was never used has no record", func(t *testing.T) {
		if _, err := w.Follow(t.Context(), newMark(), backend.Spec{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Follow: %v", err)
		}
		if note, err := w.Testify(t.Context(), newMark()); err != nil || note != (backend.Testimony{}) {
			t.Errorf("Testify: %+v %v", note, err)
		}
	})
	t.Run("records are deleted once they are not needed", func(t *testing.T) {
		prefix := newMark()
		var ps []backend.Process
		r, end := input(t)
		for _, spec := range []backend.Spec{
			{Shell: "echo x", Stdout: &buffer{}, Mark: prefix + "-over"}, {Shell: "echo x", Stdout: &buffer{}, Mark: prefix + "-open"},
			{Shell: "echo x; read -r x", Stdin: r, Stdout: &buffer{}, Mark: prefix + "-runs"},
		} {
			p, err := warranttest.Start(t.Context(), tgt, spec)
			if err != nil {
				t.Fatal(err)
			}
			if ps = append(ps, p); spec.Stdin == nil {
				wait(t, p)
			}
			eventually(t, "there is a record", func() bool { note, err := w.Testify(t.Context(), spec.Mark); return err == nil && !note.Began.IsZero() })
		}
		if err := w.Prune(t.Context(), prefix, []string{prefix + "-open"}); err != nil {
			t.Fatal(err)
		}
		for name, kept := range map[string]bool{"-over": false, "-open": true, "-runs": true} {
			if note, err := w.Testify(t.Context(), prefix+name); err != nil || note.Began.IsZero() == kept {
				t.Errorf("%s: %+v %v", name, note, err)
			}
		}
		end("go\n")
		wait(t, ps[2])
		if err := w.Prune(t.Context(), prefix, nil); err != nil {
			t.Fatal(err)
		}
		if note, err := w.Testify(t.Context(), prefix+"-runs"); err != nil || !note.Began.IsZero() {
			t.Errorf("%+v %v", note, err)
		}
	})
}
