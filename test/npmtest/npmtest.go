// Package npmtest installs npm packages for tests that check something of ours
// against programs that share no code with it. Under CI a missing part fails the
// test; elsewhere it skips with a line that says how to get it.
//
// It runs no program of a package, at installation neither.
package npmtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// limit is how long an installation may take.
const limit = 3 * time.Minute

// Packages returns a directory whose node_modules has what dir/package-lock.json
// names. It is installed once for each lock into the user's cache, whole or not at
// all, also when several processes want it. purpose ends the sentence "install
// Node.js 20 or newer with npm to ...".
func Packages(t testing.TB, dir, purpose string) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing("%s is missing: install Node.js 20 or newer with npm to %s", tool, purpose)
		}
	}
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	sum := sha256.Sum256(lock)
	to := filepath.Join(cache, "countersign-test", "npm-"+filepath.Base(dir)+"-"+hex.EncodeToString(sum[:6]))
	if there(to) {
		return to
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(to), "install-*") //nolint:usetesting // on the file system of the cache, to be renamed into it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	for _, name := range []string{"package.json", "package-lock.json"} {
		copyFile(t, filepath.Join(dir, name), filepath.Join(tmp, name))
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = tmp
	if out, err := install.CombinedOutput(); err != nil {
		missing("npm ci failed; connect to a package registry and run this again to %s (%v)\n%s", purpose, err, out)
	}
	if err := os.Rename(tmp, to); err != nil && !there(to) {
		t.Fatal(err)
	}
	return to
}

// Workspace returns a directory of the test with the packages of dir and copies of
// its other files, in which programs of ours can import those packages.
func Workspace(t testing.TB, dir, purpose string) string {
	t.Helper()
	packages := Packages(t, dir, purpose)
	work := t.TempDir()
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(work, "node_modules")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			copyFile(t, filepath.Join(dir, e.Name()), filepath.Join(work, e.Name()))
		}
	}
	return work
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func there(path string) bool {
	_, err := os.Stat(filepath.Join(path, "node_modules"))
	return !errors.Is(err, fs.ErrNotExist)
}
