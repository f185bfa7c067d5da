// Package debiantest makes Debian's files for tests of images, packages and containers:
// archives that are made once, by debootstrap from the machine's own mirror, and kept
// below the user's cache directory.
package debiantest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/test/needstest"
)

// Suite is the release that the archives are made of.
const Suite = "bookworm"

const (
	// mirror is used when the machine's own package sources name none.
	mirror = "http://deb.debian.org/debian"
	limit  = 10 * time.Minute
)

// Maker makes archives in the files parts, of the same order as the names that [Kept] was
// given. It may use the directory work, which is removed afterwards.
type Maker func(ctx context.Context, work string, parts []string) error

// Kept returns the paths of archives with these names, which end in "-<hash of recipe>.tar".
// When one is missing maker makes them all; they appear under their names when they are
// whole. Processes that want the same at once wait for the one that makes them. Where they
// cannot be made the test is skipped, in CI it fails.
func Kept(t testing.TB, recipe string, names []string, maker Maker) []string {
	t.Helper()
	dir := directory(t)
	sum := sha256.Sum256([]byte(Suite + " " + recipe))
	var paths []string
	missing := false
	for _, name := range names {
		path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:6])+".tar")
		paths = append(paths, path)
	}
	lock, err := os.OpenFile(filepath.Join(dir, names[0]+"-lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			missing = true
		}
	}
	if !missing {
		return paths
	}
	start := time.Now()
	if err := build(t, dir, paths, maker); err != nil {
		needstest.Missing(t, fmt.Sprintf("%s cannot be made (debootstrap needs root and a Debian mirror): %v", strings.Join(names, " and "), err))
	}
	t.Logf("%s: made in %v", strings.Join(names, " and "), time.Since(start).Round(time.Second))
	return paths
}

func directory(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "countersign-test")
	if err := os.MkdirAll(filepath.Join(dir, "debs"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func build(t testing.TB, dir string, paths []string, maker Maker) (err error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	work, err := os.MkdirTemp(dir, "making-") //nolint:usetesting // on the file system that the archives are renamed to
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	var parts []string
	for _, p := range paths {
		parts = append(parts, filepath.Join(work, filepath.Base(p)))
	}
	if err := maker(ctx, work, parts); err != nil {
		return err
	}
	for i, p := range parts {
		if err := os.Rename(p, paths[i]); err != nil {
			return err
		}
	}
	return nil
}

// Bootstrap makes a minimal system with some packages in the directory root, which is
// below the work of a [Maker]. What it downloads is kept for the next one.
func Bootstrap(ctx context.Context, root string, packages ...string) error {
	args := []string{"--variant=minbase", "--cache-dir=" + filepath.Join(filepath.Dir(filepath.Dir(root)), "debs")}
	if len(packages) > 0 {
		args = append(args, "--include="+strings.Join(packages, ","))
	}
	return Run(ctx, "debootstrap", append(args, Suite, root, source())...)
}

// installed are the packages that Countersign's own depends on.
var installed = []string{"adduser", "ca-certificates", "git", "tmux"}

// Root makes the root directory of a Debian that has what Countersign's package depends on, and nothing
// else. It goes with the test. Only root can make one.
func Root(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can install a package in a directory: run this as root")
	}
	for _, p := range []string{"debootstrap", "tar", "chroot"} {
		if _, err := exec.LookPath(p); err != nil {
			needstest.Missing(t, p+" is not here: install it and run this again")
		}
	}
	kept := Kept(t, strings.Join(installed, ","), []string{"package"}, func(ctx context.Context, work string, parts []string) error {
		made := filepath.Join(work, "root")
		if err := Bootstrap(ctx, made, installed...); err != nil {
			return err
		}
		return Pack(ctx, made, parts[0], "./usr/share/doc/*")
	})
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), "tar", "-C", root, "--numeric-owner", "-xpf", kept[0]); err != nil {
		t.Fatal(err)
	}
	return root
}

// Pack makes an archive of a system, without what a test has no use for.
func Pack(ctx context.Context, root, archive string, without ...string) error {
	args := []string{"-C", root, "--numeric-owner"}
	for _, path := range append([]string{"./var/cache/apt/*", "./var/lib/apt/lists/*", "./usr/share/man/*", "./usr/share/locale/*", "./dev/*"}, without...) {
		args = append(args, "--exclude="+path)
	}
	return Run(ctx, "tar", append(args, "-cf", archive, ".")...)
}

// Run runs a program whose output counts only when it fails.
func Run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out[max(0, len(out)-3000):])
	}
	return nil
}

var sourceLine = regexp.MustCompile(`(?m)^(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(https?://\S+)`)

// source is the Debian mirror of the machine's own package sources.
func source() string {
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, path := range append([]string{"/etc/apt/sources.list"}, files...) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, m := range sourceLine.FindAllSubmatch(text, -1) {
			if uri := strings.TrimSuffix(string(m[1]), "/"); strings.HasSuffix(uri, "/debian") {
				return uri
			}
		}
	}
	return mirror
}
