package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/remote"
)

// weary is a system that, once tired, starts no program for a shell, as one without free processes.
type weary struct {
	*loop
	tired atomic.Bool
}

func (w *weary) Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	if w.tired.Load() {
		tired := make([]string, len(argv))
		for i, a := range argv {
			tired[i] = strings.ReplaceAll(a, "\ncat -- ", "\nfalse -- ")
		}
		argv = tired
	}
	return w.loop.Open(ctx, argv, stdin, stdout, stderr)
}

func (w *weary) Lasts() bool { return false }

// A look that fails says nothing of the record: whoever took that for "there is none" would tell
// people that a command that ran has probably not run.
func TestARecordThatCannotBeReadIsNotTakenForNone(t *testing.T) {
	w := &weary{loop: newLoop(t)}
	m := remote.New(remote.Options{Transport: w, Name: "loop", Notes: "countersign-test"})
	t.Cleanup(m.Close)
	mark := "weary-" + strings.ToLower(t.Name()[:8])
	t.Cleanup(func() { _ = m.Prune(context.WithoutCancel(t.Context()), mark, nil) })
	p, err := warranttest.Start(t.Context(), m, backend.Spec{Shell: "exit 3", Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 3 {
		t.Fatal(res, err)
	}

	w.tired.Store(true)
	if note, err := m.Testify(t.Context(), mark); err == nil {
		t.Errorf("testified %+v", note)
	}
	if _, err := m.Follow(t.Context(), mark, backend.Spec{}); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("followed: %v", err)
	}
	w.tired.Store(false)
	if note, err := m.Testify(t.Context(), mark); err != nil || note.Code != 3 || note.Ended.IsZero() {
		t.Errorf("testified %+v %v", note, err)
	}
}

// What a process printed last may begin as a control line does, and no such line follows where its
// shell was killed.
func TestWhatWasPrintedLastIsFollowedToTheLastByte(t *testing.T) {
	m := remote.New(remote.Options{Transport: newLoop(t), Name: "loop", Notes: "countersign-test"})
	t.Cleanup(m.Close)
	mark := fmt.Sprint("lastbyte-", time.Now().UnixNano()) // it never ends, so nothing deletes its record
	p, err := warranttest.Start(t.Context(), m, backend.Spec{Shell: "printf abc; printf 'no c' >&2; kill -9 $PPID", Stdout: io.Discard, Stderr: &strings.Builder{}, Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = p.Wait()
	var out, errOut strings.Builder
	f, err := m.Follow(t.Context(), mark, backend.Spec{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(); !errors.Is(err, backend.ErrLost) || out.String() != "abc" || errOut.String() != "no c" {
		t.Errorf("%q, %q: %v", out.String(), errOut.String(), err)
	}
}
