package enginetest

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The recipe of the Debian image. A change makes a new one beside the old.
const (
	suite    = "bookworm"
	packages = "tmux,procps,zsh,fish,busybox-static"
	recipe   = "1"
	// mirror is used when the machine's own package sources name none.
	mirror    = "http://deb.debian.org/debian"
	buildTime = 10 * time.Minute
)

// archiveSet is where the root file systems of the images are, as tar files.
type archiveSet struct{ debian, tiny string }

// archives builds what is missing below the user's cache directory. Test binaries
// that run side by side wait for the one that builds.
func archives(t testing.TB) archiveSet {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "countersign-test")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(suite + " " + packages + " " + recipe))
	id := hex.EncodeToString(sum[:6])
	a := archiveSet{debian: filepath.Join(dir, "debian-"+id+".tar"), tiny: filepath.Join(dir, "tiny-"+id+".tar")}

	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if exists(a.debian) && exists(a.tiny) {
		return a
	}
	if err := build(dir, a); err != nil {
		absent(t, fmt.Sprintf("the images for container tests cannot be built (debootstrap needs root and a Debian mirror): %v", err))
	}
	return a
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// build makes both archives. They appear under their names when they are whole.
func build(dir string, a archiveSet) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	root := filepath.Join(work, "root")
	if err := run(ctx, work, "debootstrap", "--variant=minbase", "--include="+packages, suite, root, source()); err != nil {
		return err
	}
	part := filepath.Join(work, "debian.tar")
	if err := run(ctx, work, "tar", "-C", root, "--numeric-owner", "--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*",
		"--exclude=./usr/share/doc/*", "--exclude=./usr/share/man/*", "--exclude=./usr/share/locale/*", "--exclude=./dev/*", "-cf", part, "."); err != nil {
		return err
	}
	tiny := filepath.Join(work, "tiny.tar")
	if err := buildTiny(ctx, filepath.Join(root, "bin", "busybox"), tiny); err != nil {
		return err
	}
	return errors.Join(os.Rename(tiny, a.tiny), os.Rename(part, a.debian))
}

// run runs a program whose output counts only when it fails.
func run(ctx context.Context, dir, name string, args ...string) error {
	path := filepath.Join(dir, "log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(environ(), "LC_ALL=C")
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(path)
		return fmt.Errorf("%s: %w: %s", name, err, tail(text))
	}
	return nil
}

// buildTiny makes an image of one static busybox and its links.
func buildTiny(ctx context.Context, busybox, path string) (err error) {
	bin, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	add := func(h tar.Header, body []byte) {
		h.Size, h.Format = int64(len(body)), tar.FormatUSTAR
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(body)
		}
	}
	for _, d := range []string{"bin", "dev", "etc", "proc", "root", "sys", "usr", "usr/bin", "var"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\n"))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, bin)
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/env", Linkname: "/bin/busybox", Mode: 0o777}, nil)
	for applet := range strings.Lines(string(list)) {
		if applet = strings.TrimSpace(applet); applet != "" && applet != "busybox" {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	if err != nil {
		return err
	}
	return w.Close()
}

var sourceLine = regexp.MustCompile(`(?m)^(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(https?://\S+)`)

// source is the Debian mirror of the machine's own package sources.
func source() string {
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, path := range append([]string{"/etc/apt/sources.list"}, files...) {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(bufio.NewReader(f))
		_ = f.Close()
		for _, m := range sourceLine.FindAllSubmatch(text, -1) {
			if uri := strings.TrimSuffix(string(m[1]), "/"); strings.HasSuffix(uri, "/debian") {
				return uri
			}
		}
	}
	return mirror
}

func unique() string { return strings.ToLower(rand.Text()[:10]) }

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
