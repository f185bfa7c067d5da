// Package buildtest builds the programs of this module for tests that drive them. What is
// built is kept below the user's cache directory, so that it is linked once for all test
// programs that want the same, and again only when its sources have changed.
package buildtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Program builds a package of this module, "cmd/bot" for example, with flags for go build,
// and returns the path of a copy in dir, which nobody else changes. It is named after the
// package. env is added to the environment of go build.
func Program(ctx context.Context, dir, pkg string, env []string, flags ...string) (path string, err error) {
	kept, err := keep(ctx, pkg, env, flags)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(kept, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	name := filepath.Base(pkg)
	// go build does nothing when what is there is up to date.
	args := slices.Concat([]string{"build"}, flags, []string{"-o", filepath.Join(kept, name), "countersign/" + pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not build: %w\n%s", pkg, err, out)
	}
	path = filepath.Join(dir, name)
	return path, duplicate(path, filepath.Join(kept, name))
}

// keep is the directory of what is built so of this checkout.
func keep(ctx context.Context, pkg string, env, flags []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Concat([]string{string(module), pkg}, env, flags), "\x00")))
	return filepath.Join(cache, "countersign-test", "program-"+hex.EncodeToString(sum[:6])), nil
}

func duplicate(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

var look = sync.OnceValue(func() error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // another test's, which is gone
			return nil
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "docs" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
})

// Sources has go test know that a test depends on what its program is built from. Without it
// a result of another program could be taken from the cache, since only imports and the files
// that tests look at count. It is of use from within a test, not from TestMain.
func Sources(t testing.TB) {
	t.Helper()
	if err := look(); err != nil {
		t.Fatal(err)
	}
}
