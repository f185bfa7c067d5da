package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// maxLinks is how many symbolic links one path may go through.
const maxLinks = 40

type files struct {
	t     *Target
	roots []string // nothing outside is opened; none means everywhere
}

var (
	_ backend.Replacer = files{}
	_ backend.Remover  = files{}
	_ backend.Opener   = files{}
)

// abs makes a path absolute without cleaning it: "link/.." is not ".".
func (f files) abs(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("the path is empty: %w", fs.ErrNotExist)
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("the path holds a NUL byte: %w", fs.ErrInvalid)
	}
	if filepath.IsAbs(path) {
		return path, nil
	}
	return f.t.dir + "/" + path, nil
}

// open opens a regular file. Anything else (a FIFO, a device) is refused, because reading it might
// block forever.
func (f files) open(ctx context.Context, path string) (*os.File, fs.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	p, err := f.abs(path)
	if err != nil {
		return nil, nil, err
	}
	// O_NONBLOCK, or the open itself would wait for the writer of a FIFO.
	const flag = os.O_RDONLY | syscall.O_NONBLOCK
	var file *os.File
	if len(f.roots) == 0 {
		file, err = os.OpenFile(p, flag, 0)
	} else {
		err = f.withRoot(p, func(root *os.Root, name string) (err error) {
			file, err = root.OpenFile(name, flag, 0)
			return err
		})
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = notRegular(p, st.Mode())
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, st, nil
}

// Open implements backend.Opener.
func (f files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	file, _, err := f.open(ctx, path)
	if err != nil {
		return nil, err // a nil *os.File would not be a nil interface
	}
	return file, nil
}

// ReadFile reads a regular file.
func (f files) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	file, st, err := f.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var r io.Reader = ctxReader{ctx, file}
	size := st.Size()
	if limit > 0 {
		r = io.LimitReader(r, limit+1)
		size = min(size, limit)
	}
	var buf bytes.Buffer
	buf.Grow(int(size) + bytes.MinRead)
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, err
	}
	data := buf.Bytes()
	if limit > 0 && int64(len(data)) > limit {
		return data[:limit], fmt.Errorf("%s: %w", path, backend.ErrTooBig)
	}
	return data, nil
}

// ctxReader makes a long read cancelable between chunks.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}

func notRegular(path string, mode fs.FileMode) error {
	if mode.IsDir() {
		return fmt.Errorf("%s is a directory: %w", path, syscall.EISDIR)
	}
	return fmt.Errorf("%s is not a regular file: %w", path, fs.ErrInvalid)
}

// WriteFile writes through symbolic links to the real file, and keeps its mode and owner. A file
// that the user may not write is not replaced, even if its directory would allow it.
func (f files) WriteFile(ctx context.Context, path string, data []byte, mkdir bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	file, err := f.Resolve(ctx, path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if len(f.roots) > 0 {
		return f.writeInside(dir, file, data, mkdir)
	}
	if mkdir {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as a shell's mkdir -p makes them
			return err
		}
	}
	return write(dir, file, data, nil)
}

// Replace implements backend.Replacer.
func (f files) Replace(ctx context.Context, path string, data []byte, was backend.Before) error {
	h, err := f.holdParent(ctx, path, was)
	if err != nil {
		return err
	}
	defer h.close()
	return write(h.path, path, data, &was)
}

// holdParent opens the directory of a file if it is still the one of was and no link leads
// elsewhere; path is then the file's only name.
func (f files) holdParent(ctx context.Context, path string, was backend.Before) (heldDir, error) {
	if err := ctx.Err(); err != nil {
		return heldDir{}, err
	}
	file, err := f.Resolve(ctx, path)
	if err != nil {
		return heldDir{}, err
	}
	if file != path {
		return heldDir{}, fmt.Errorf("%s leads to %s: %w", path, file, backend.ErrChanged)
	}
	if err := f.withRoot(file, func(*os.Root, string) error { return nil }); err != nil {
		return heldDir{}, err
	}
	h, err := holdDir(filepath.Dir(file))
	if err != nil {
		return heldDir{}, err
	}
	if h.id != was.Dir {
		h.close()
		return heldDir{}, fmt.Errorf("the directory of %s: %w", file, backend.ErrChanged)
	}
	return h, nil
}

// Remove implements backend.Remover.
func (f files) Remove(ctx context.Context, path string, was backend.Before) error {
	h, err := f.holdParent(ctx, path, was)
	if err != nil {
		return err
	}
	defer h.close()
	at := h.path + "/" + filepath.Base(path)
	if err := checkUnchanged(at, path, was.Sum); err != nil {
		return err
	}
	if was.Sum == "" {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	if err := os.Remove(at); err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			pe.Path = path
		}
		return err
	}
	return syncDir(h.path)
}

// write atomically writes a file in dir, through a temporary file. With was it does so only if the
// file is unchanged.
func write(dir, file string, data []byte, was *backend.Before) (err error) {
	at := dir + "/" + filepath.Base(file)
	defer func() { // name the file that was asked for, not how it was reached
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			pe.Path = file
		}
		if le, ok := errors.AsType[*os.LinkError](err); ok {
			err = &fs.PathError{Op: "write", Path: file, Err: le.Err}
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = backend.FullError("this machine", file)
		}
	}()
	mode, old := fs.FileMode(0o644), (*syscall.Stat_t)(nil)
	if was != nil && was.Mode != 0 {
		mode = was.Mode.Perm()
	}
	st, err := os.Lstat(at)
	switch {
	case err == nil:
		if !st.Mode().IsRegular() {
			if was != nil {
				return fmt.Errorf("%s: %w", file, backend.ErrChanged)
			}
			return notRegular(file, st.Mode())
		}
		if err := unix.Access(at, unix.W_OK); err != nil {
			return &fs.PathError{Op: "write", Path: file, Err: err}
		}
		mode = st.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		old, _ = st.Sys().(*syscall.Stat_t)
	case !notExist(err):
		return err
	}

	tmp, err := os.CreateTemp(dir, ".countersign-*")
	if err != nil {
		return err
	}
	renamed := false
	defer func() {
		_ = tmp.Close()
		if !renamed {
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	if err := keepOwner(tmp, old); err != nil {
		return fmt.Errorf("%s cannot be replaced without changing its owner: %w", file, err)
	}
	if err := tmp.Chmod(mode); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if was != nil { // as late as possible
		if err := checkUnchanged(at, file, was.Sum); err != nil {
			return err
		}
	}
	if was != nil && was.Sum == "" {
		// A link is never made over a file that has just appeared.
		err = os.Link(tmp.Name(), at)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", file, backend.ErrChanged)
		}
		if err == nil {
			return syncDir(dir)
		}
		// A file system without links.
	}
	if err := os.Rename(tmp.Name(), at); err != nil {
		return err
	}
	renamed = true
	return syncDir(dir)
}

// checkUnchanged checks that a file has this hash, or that it does not exist.
func checkUnchanged(at, file, sum string) error {
	changed := fmt.Errorf("%s: %w", file, backend.ErrChanged)
	f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	switch {
	case notExist(err) && sum == "":
		return nil
	case notExist(err) || errors.Is(err, syscall.ELOOP):
		return changed
	case err != nil:
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if sum == "" || !st.Mode().IsRegular() {
		return changed
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return changed
	}
	return nil
}

// keepOwner gives the new file the owner and group of the one it replaces.
func keepOwner(tmp *os.File, old *syscall.Stat_t) error {
	if old == nil {
		return nil
	}
	st, err := tmp.Stat()
	if err != nil {
		return err
	}
	now, ok := st.Sys().(*syscall.Stat_t)
	if !ok || (now.Uid == old.Uid && now.Gid == old.Gid) {
		return nil
	}
	return tmp.Chown(int(old.Uid), int(old.Gid))
}

// syncDir makes a rename durable. Some file systems cannot sync a directory; the file is complete
// anyway.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil // a directory that may be written but not read
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// Stat follows symbolic links.
func (f files) Stat(ctx context.Context, path string) (backend.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return backend.FileInfo{}, err
	}
	p, err := f.abs(path)
	if err != nil {
		return backend.FileInfo{}, err
	}
	st, err := os.Stat(p)
	if err != nil {
		return backend.FileInfo{}, err
	}
	info := backend.FileInfo{Path: p, Size: st.Size(), Mode: st.Mode(), Time: st.ModTime()}
	if resolved, err := resolve(p); err == nil {
		info.Path = resolved
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		info.ID = fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return info, nil
}

// Resolve follows every link, a dangling one included. What does not exist is
// appended as it stands.
func (f files) Resolve(ctx context.Context, path string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	p, err := f.abs(path)
	if err != nil {
		return "", err
	}
	return resolve(p)
}

// resolve walks an absolute path one name at a time, as the kernel does:
// ".." after a link goes to the parent of the link's target.
func resolve(path string) (string, error) {
	todo := strings.Split(path, "/")
	out, links, missing := "/", 0, false
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && missing:
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ENOENT}
		case name == "..":
			out = filepath.Dir(out)
			continue
		}
		next := filepath.Join(out, name)
		if missing {
			out = next
			continue
		}
		st, err := os.Lstat(next)
		switch {
		case notExist(err):
			missing = true
		case err != nil:
			return "", err
		case st.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
			}
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if strings.HasPrefix(target, "/") {
				out = "/"
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		case !st.IsDir() && len(todo) > 0:
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ENOTDIR}
		}
		out = next
	}
	return out, nil
}
