package admin

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"countersign/config"
)

// A backup is a tar archive of the store and of what the data directory has beside it: the
// console's key, the hosts' keys, outputs and recordings. Its last file has the others'
// digests in the form of sha256sum, so that an archive that was cut or changed is none.
const (
	storeName   = "countersign.db"
	digestsName = "SHA256SUMS"
)

// besideStore are the files and directories of a data directory that a backup has.
var besideStore = []string{"web.key", "known_hosts", "outputs", "recordings"}

var errNoArchive = errors.New("this is no archive")

// archive writes the store in the file storeFile and what the data directory has beside it.
func archive(ctx context.Context, w io.Writer, storeFile, dataDir string) error {
	root, err := os.OpenRoot(dataDir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	a := &archiver{tw: tar.NewWriter(w)}
	f, err := os.Open(storeFile)
	if err != nil {
		return err
	}
	if err := a.add(storeName, f); err != nil {
		return err
	}
	for _, name := range besideStore {
		err := fs.WalkDir(root.FS(), name, func(name string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // none was made, or it was pruned meanwhile
				return nil
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			case !d.Type().IsRegular():
				return nil
			}
			f, err := root.Open(name)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			return a.add(name, f)
		})
		if err != nil {
			return err
		}
	}
	digests := a.digests
	if err := a.tw.WriteHeader(header(digestsName, int64(digests.Len()), time.Now())); err != nil {
		return err
	}
	if _, err := a.tw.Write(digests.Bytes()); err != nil {
		return err
	}
	return a.tw.Close()
}

type archiver struct {
	tw      *tar.Writer
	digests bytes.Buffer
}

func header(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: at, Format: tar.FormatPAX}
}

// add writes a file as long as it is now, and closes it: a recording may grow meanwhile.
func (a *archiver) add(name string, f fs.File) error {
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := a.tw.WriteHeader(header(name, info.Size(), info.ModTime())); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(a.tw, sum), f, info.Size()); err != nil {
		return fmt.Errorf("%s cannot be read: %w", name, err)
	}
	fmt.Fprintf(&a.digests, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
	return nil
}

// isArchive reports whether a file can be read and is an archive, not a bare copy of a store.
func isArchive(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	magic := make([]byte, 5)
	_, err = f.ReadAt(magic, 257)
	return err == nil && string(magic) == "ustar"
}

// unpack writes the files of an archive into the new directory dir, or only the store. It
// fails with errNoArchive where the file is none, and otherwise where it is not whole.
func unpack(ctx context.Context, file, dir string, storeOnly bool) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if !isArchive(file) {
		return errNoArchive
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var digests strings.Builder
	tr := tar.NewReader(bufio.NewReaderSize(f, 1<<16))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if err != nil {
			return fmt.Errorf("it ends before its last file: %w", err)
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) || path.Clean(h.Name) != h.Name {
			return fmt.Errorf("it has %q, which no backup has", h.Name)
		}
		if h.Name == digestsName {
			said, err := io.ReadAll(tr)
			if err == nil && string(said) != digests.String() {
				err = errors.New("its files are not those that were saved")
			}
			return err
		}
		top, _, _ := strings.Cut(h.Name, "/")
		if h.Name != storeName && !slices.Contains(besideStore, top) {
			return fmt.Errorf("it has %q, which no backup has", h.Name)
		}
		sum := sha256.New()
		if storeOnly && h.Name != storeName {
			_, err = io.Copy(sum, tr) //nolint:gosec // nothing in it is compressed
		} else {
			err = writeFile(root, h, io.TeeReader(tr, sum))
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(&digests, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), h.Name)
	}
}

// writeFile writes a file of an archive.
func writeFile(root *os.Root, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close(), root.Chtimes(h.Name, h.ModTime, h.ModTime))
}

// storeOf returns the file that holds the store of a backup: the backup itself where it is a
// bare store, else what it unpacks into the new directory dir.
func storeOf(ctx context.Context, file, dir string, storeOnly bool) (string, error) {
	switch err := unpack(ctx, file, dir, storeOnly); {
	case errors.Is(err, errNoArchive):
		return file, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "", config.Errorf("the backup cannot be read (%v); name a file that bot backup wrote", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		return "", fmt.Errorf("the backup cannot be unpacked into %s (%w); make room there and try again", filepath.Dir(dir), err)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("%s is of no use as a backup; take another one (%w)", file, err)
	}
	return filepath.Join(dir, storeName), nil
}

// putBeside moves what an archive has beside the store from the directory from of the data
// directory into it. A key that is there and differs is kept under another name; an output or a
// recording that is there stays: names are never used twice, and the one that is there may have
// gone on. It can be done again.
func putBeside(dataDir, from string, now time.Time) (outputs, recordings int, err error) {
	root, err := os.OpenRoot(dataDir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = root.Close() }()
	moved := map[string]int{}
	for _, name := range besideStore {
		err := fs.WalkDir(root.FS(), path.Join(from, name), func(file string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}
			to := strings.TrimPrefix(file, from+"/")
			switch _, err = root.Lstat(to); {
			case err == nil && to != name: // an output or a recording
				return nil
			case err == nil:
				if same, err := sameText(root, file, to); err != nil || same {
					return err
				}
				if err := root.Rename(to, to+before(now)); err != nil {
					return err
				}
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
			moved[name]++
			if err := root.MkdirAll(path.Dir(to), 0o700); err != nil {
				return err
			}
			return root.Rename(file, to)
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return moved["outputs"], moved["recordings"], syncDirectory(dataDir)
}

// sameText compares two small files.
func sameText(root *os.Root, a, b string) (bool, error) {
	x, err := root.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := root.ReadFile(b)
	return bytes.Equal(x, y), err
}

// before ends the name of what was there before a restore.
func before(now time.Time) string { return ".before-" + now.UTC().Format("20060102T150405.000Z") }
