package record

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	suffix   = ".cast"
	stamp    = "20060102T150405Z"
	maxName  = 256 // bytes of a session's or pane's name
	maxSafe  = 60  // bytes of it in the file's name
	tailRead = 256 // bytes at the end that hold the exit, if there is one
)

// idForm is what our files are called: session, pane, start.
var idForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}\.[A-Za-z0-9_-]{1,60}\.\d{8}T\d{6}Z(-\d{1,3})?$`)

// safeName makes a part of a file's name. Different names stay different: one
// that had to be changed carries a hash of what it was.
func safeName(s string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		default:
			return '_'
		}
	}, s)
	if safe == s && len(s) <= maxSafe && s != "" {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return safe[:min(len(safe), maxSafe-9)] + "-" + hex.EncodeToString(sum[:4])
}

// openDir makes the directory if need be.
func openDir(dir string) (*os.Root, error) {
	if dir == "" {
		return nil, errors.New("record: there is no directory for recordings: set Options.Dir")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("record: the directory of recordings cannot be made: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("record: the directory of recordings cannot be opened: %w", err)
	}
	st, err := root.Stat(".")
	if err == nil && st.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("others may enter it (mode %04o): set its mode to 0700", st.Mode().Perm())
	}
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("record: recordings are not safe in %s: %w", dir, err)
	}
	return root, nil
}

// Info describes a recording.
type Info struct {
	ID            string // for [OpenFile]
	Session, Pane string // as given to [Open]
	Thread        string // as given to [Open]
	Started       time.Time
	// Duration is from the start to when the file was last written to; it counts
	// the time in which nobody recorded.
	Duration time.Duration
	Bytes    int64
	Ended    bool // it has an exit
}

// Filter picks recordings; empty fields pick all.
type Filter struct{ Session, Pane string }

// List describes the recordings in a directory, the latest first. It reads only
// the beginning and the end of each file, and passes over those that it can't
// read; no directory is no recordings.
func List(dir string, filter Filter) ([]Info, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record: the directory of recordings cannot be read: %w", err)
	}
	defer func() { _ = root.Close() }()
	return list(root, filter), nil
}

func list(root *os.Root, filter Filter) []Info {
	var out []Info
	entries, _ := fs.ReadDir(root.FS(), ".") // what it could read is listed
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !e.Type().IsRegular() || !idForm.MatchString(id) {
			continue
		}
		parts := strings.Split(id, ".")
		if filter.Session != "" && parts[0] != safeName(filter.Session) || filter.Pane != "" && parts[1] != safeName(filter.Pane) {
			continue
		}
		if i, err := describe(root, id); err == nil {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b Info) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(len(b.ID), len(a.ID)), strings.Compare(b.ID, a.ID))
	})
	return out
}

func describe(root *os.Root, id string) (Info, error) {
	f, err := root.Open(id + suffix)
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	r, err := NewReader(f)
	if err != nil {
		return Info{}, err
	}
	h := r.Header()
	i := Info{ID: id, Session: h.Session, Pane: h.Pane, Thread: h.Thread, Started: h.Started, Bytes: st.Size(), Duration: max(0, st.ModTime().Sub(h.Started))}
	tail := make([]byte, min(tailRead, st.Size()))
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return Info{}, err
	}
	tail = tail[:bytes.LastIndexByte(tail, '\n')+1] // what follows is torn
	if len(tail) > 0 {
		last := tail[bytes.LastIndexByte(tail[:len(tail)-1], '\n')+1:]
		e, err := new(Reader).event(last)
		i.Ended = err == nil && e.Code == Exit
	}
	return i, nil
}

// OpenFile opens a recording to read it; the caller closes it. An id that names
// none is an error that wraps [fs.ErrNotExist].
func OpenFile(dir, id string) (*os.File, error) {
	if !idForm.MatchString(id) {
		return nil, fmt.Errorf("record: %q names no recording: %w", id, fs.ErrNotExist)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("record: the directory of recordings cannot be read: %w", err)
	}
	defer func() { _ = root.Close() }()
	st, err := root.Lstat(id + suffix)
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("record: there is no recording %s: %w", id, err)
	}
	return root.Open(id + suffix)
}

// Prune removes the recordings that were last written to before olderThan,
// but those that keep wants, such as open ones; nil keeps none. Files that are
// not ours stay. It goes on after an error and returns all of them.
func Prune(dir string, olderThan time.Time, keep func(id string) bool) (removed int, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("record: the directory of recordings cannot be read: %w", err)
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !e.Type().IsRegular() || !idForm.MatchString(id) || keep != nil && keep(id) {
			continue
		}
		st, err := e.Info()
		if err == nil && st.ModTime().Before(olderThan) {
			if err = root.Remove(e.Name()); err == nil {
				removed++
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}
