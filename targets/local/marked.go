package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
	"countersign/targets/follow"
)

var _ backend.Witness = (*Target)(nil)

// keeper runs a program whose streams are kept, and notes in a file when it began and how it
// ended. The files beside the note are made by prepare.
//
// Arguments: the note, the time, streams (split or merged); then the program.
const keeper = follow.Script + `n=$1 t=$2 o=$3
shift 3
exec 3>&2 2>/dev/null
trap : TERM INT HUP QUIT
keep "$n.out" <"$n.pipe1" &
exec 5>"$n.pipe1"
case $o in
split)
  keep "$n.err" <"$n.pipe2" >&3 &
  exec 6>"$n.pipe2"
  ;;
*) exec 6>&5 ;;
esac
echo "began $$ $t" >>"$n" || exit 126
(exec "$@" >&5 2>&6 3>&- 5>&- 6>&-)
r=$?
echo "ended $r" >>"$n"
exit "$r"
`

var markName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// note is the file of a mark.
func (t *Target) note(mark string) (string, error) {
	if t.notes == "" {
		return "", errors.New("local: this target keeps no records")
	}
	if !markName.MatchString(mark) {
		return "", fmt.Errorf("local: %q is no mark", mark)
	}
	return filepath.Join(t.notes, mark), nil
}

// keep wraps a program so that it outlives the bot.
func (t *Target) keep(s backend.Spec, argv []string) ([]string, error) {
	note, err := t.note(s.Mark)
	if err != nil {
		return nil, err
	}
	err = os.MkdirAll(t.notes, 0o700)
	if err == nil {
		err = os.WriteFile(note, nil, 0o600)
	}
	streams := []string{".pipe1", ".pipe2"}
	how := "split"
	if sameWriter(s.Stdout, s.Stderr) {
		streams, how = streams[:1], "merged"
	}
	for _, name := range streams {
		if err == nil {
			err = unix.Mkfifo(note+name, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("local: it could not be noted that the program runs: %w", err)
	}
	return append([]string{"/bin/sh", "-c", keeper, "sh", note, fmt.Sprint(time.Now().Unix()), how}, argv...), nil
}

// Testify implements backend.Witness.
func (t *Target) Testify(_ context.Context, mark string) (backend.Testimony, error) {
	if t.notes == "" {
		return backend.Testimony{}, nil
	}
	note, err := t.note(mark)
	if err != nil {
		return backend.Testimony{}, err
	}
	_, got, err := record(note)
	return got, err
}

// record reads a note. pid is the group of a process that still runs, 0 if it doesn't.
func record(note string) (pid int, t backend.Testimony, err error) {
	raw, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, t, nil
	}
	if err != nil {
		return 0, t, fmt.Errorf("local: the record of a process cannot be read: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		var at int64
		var code int
		if n, _ := fmt.Sscanf(line, "began %d %d\n", &pid, &at); n == 2 {
			t.Began = time.Unix(at, 0)
		}
		if n, _ := fmt.Sscanf(line, "ended %d\n", &code); n == 1 {
			st, err := os.Stat(note)
			if err != nil {
				return 0, t, fmt.Errorf("local: the record of a process cannot be read: %w", err)
			}
			t.Ended, t.Code = st.ModTime(), code
		}
	}
	if pid == 0 || !t.Ended.IsZero() || !keeps(pid, note) {
		return 0, t, nil
	}
	t.Running = true
	return pid, t, nil
}

// keeps reports whether a process is the keeper of a note: its number may have been given to
// another one since.
func keeps(pid int, note string) bool {
	if errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
		return false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		_, noProc := os.Stat("/proc/self/stat")
		return noProc != nil // it cannot be known
	}
	return slices.ContainsFunc(bytes.Split(line, []byte{0}), func(arg []byte) bool { return string(arg) == note })
}

// followEvery is the pause between two looks at a process that is followed.
const followEvery = 200 * time.Millisecond

// startWithin is how long a keeper that was started may take to note that it runs.
const startWithin = 5 * time.Second

// starting reports whether the keeper of a note was started just now and has noted nothing yet.
func starting(note string) bool {
	st, err := os.Stat(note)
	return err == nil && st.Size() == 0 && time.Since(st.ModTime()) < startWithin
}

// Follow implements backend.Witness.
func (t *Target) Follow(ctx context.Context, mark string, s backend.Spec) (backend.Process, error) {
	note, err := t.note(mark)
	if err != nil {
		return nil, err
	}
	for starting(note) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return follow.Process(ctx, source{t}, mark, followEvery, s)
}

// source implements follow.Source.
type source struct{ t *Target }

func (s source) Look(_ context.Context, mark string, out, err int64) (l follow.Look, fail error) {
	note, fail := s.t.note(mark)
	if fail != nil {
		return l, fail
	}
	if _, l.Testimony, fail = record(note); fail != nil {
		return l, fail
	}
	if l.Out, fail = readAt(note+".out", out); fail == nil {
		l.Err, fail = readAt(note+".err", err)
	}
	return l, fail
}

// readAt reads a file from an offset on. What is not there is empty.
func readAt(path string, at int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("local: what a process printed cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(f, at, follow.MaxLook))
	if err != nil {
		return nil, fmt.Errorf("local: what a process printed cannot be read: %w", err)
	}
	return b, nil
}

func (s source) End(_ context.Context, mark string, grace time.Duration) error {
	note, err := s.t.note(mark)
	if err != nil {
		return err
	}
	pid, _, err := record(note)
	if err != nil || pid == 0 {
		return err
	}
	p := &process{pid: pid, grace: grace}
	return p.terminate(nil, true)
}

// Prune implements backend.Witness.
func (t *Target) Prune(_ context.Context, prefix string, open []string) error {
	if t.notes == "" {
		return nil
	}
	list, err := os.ReadDir(t.notes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("local: the records of processes cannot be listed: %w", err)
	}
	for _, e := range list {
		mark, _, _ := strings.Cut(e.Name(), ".")
		if !strings.HasPrefix(mark, prefix) || slices.Contains(open, mark) {
			continue
		}
		note := filepath.Join(t.notes, mark)
		if _, got, err := record(note); err != nil || got.Running || starting(note) {
			continue
		}
		if err := os.Remove(filepath.Join(t.notes, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("local: the record of a process cannot be deleted: %w", err)
		}
	}
	return nil
}
