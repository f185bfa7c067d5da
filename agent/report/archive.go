package report

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// MaxExport is how much an archive holds, in bytes before it is compressed. Chat networks
// take files of that size from a bot as a rule, and a mail does not.
const MaxExport = 50 << 20

// readmeRoom is kept free for README.txt, which comes last because it names what is left
// out.
const readmeRoom = 256 << 10

// archive is a zip file with a limit. It has one owner.
type archive struct {
	ctx     context.Context //nolint:containedctx // lives as long as one call
	z       *zip.Writer
	made    time.Time
	left    int64
	written []written
	missing []string // sentences about what is left out
}

// written is a file of the archive.
type written struct {
	name   string
	size   int64
	sha256 string
}

// file is the file of the archive that is being written.
type file struct {
	a    *archive
	w    io.Writer
	sum  hash.Hash
	left int64
	size int64
}

// errFull means that a file has no room for more.
var errFull = errors.New("report: the archive is full")

// leave notes what is left out.
func (a *archive) leave(format string, args ...any) {
	a.missing = append(a.missing, fmt.Sprintf(format, args...))
}

// add writes a file of at most limit bytes. What fill returns is the archive's error,
// but for errFull.
func (a *archive) add(name string, limit int64, fill func(*file) error) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	limit = min(limit, a.left)
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: a.made}
	h.SetMode(0o600)
	w, err := a.z.CreateHeader(h)
	if err != nil {
		return fmt.Errorf("report: the archive cannot be written: %w", err)
	}
	f := &file{a: a, w: w, sum: sha256.New(), left: limit}
	err = fill(f)
	if errors.Is(err, errFull) {
		err = nil
	}
	a.left -= f.size
	a.written = append(a.written, written{name, f.size, hex.EncodeToString(f.sum.Sum(nil))})
	return err
}

// Write implements io.Writer. It writes what there is room for.
func (f *file) Write(b []byte) (int, error) {
	if err := f.a.ctx.Err(); err != nil {
		return 0, err
	}
	full := int64(len(b)) > f.left
	if full {
		b = b[:f.left]
	}
	n, err := f.w.Write(b)
	_, _ = f.sum.Write(b[:n])
	f.size += int64(n)
	f.left -= int64(n)
	if err != nil {
		return n, fmt.Errorf("report: the archive cannot be written: %w", err)
	}
	if full {
		return n, errFull
	}
	return n, nil
}

// whole writes b if there is room for all of it, and otherwise nothing.
func (f *file) whole(b []byte) (ok bool, err error) {
	if int64(len(b)) > f.left {
		return false, nil
	}
	_, err = f.Write(b)
	return err == nil, err
}

// limited is a buffer that refuses to grow beyond a limit.
type limited struct {
	b    []byte
	left int64
}

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	if int64(len(b)) > l.left {
		return 0, errFull
	}
	l.left -= int64(len(b))
	l.b = append(l.b, b...)
	return len(b), nil
}
