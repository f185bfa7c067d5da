package enginetest

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"countersign/test/debiantest"
)

// The recipe of the Debian image. A change makes a new one beside the old.
const (
	packages = "tmux,procps,zsh,fish,busybox-static"
	recipe   = "1"
)

// archiveSet is where the root file systems of the images are, as tar files.
type archiveSet struct{ debian, tiny string }

// archives makes what is missing.
func archives(t testing.TB) archiveSet {
	t.Helper()
	kept := debiantest.Kept(t, packages+" "+recipe, []string{"debian", "tiny"}, func(ctx context.Context, work string, parts []string) error {
		root := filepath.Join(work, "root")
		if err := debiantest.Bootstrap(ctx, root, packages); err != nil {
			return err
		}
		if err := debiantest.Pack(ctx, root, parts[0], "./usr/share/doc/*"); err != nil {
			return err
		}
		return buildTiny(ctx, filepath.Join(root, "bin", "busybox"), parts[1])
	})
	return archiveSet{debian: kept[0], tiny: kept[1]}
}

// bootedArchive is a Debian with systemd, sudo, and sshd with its usual sessions.
func bootedArchive(t testing.TB) string {
	t.Helper()
	const packages = "systemd,systemd-sysv,dbus,sudo,perl,procps,libpam-systemd,openssh-server,openssh-client,tmux,cron,at"
	return debiantest.Kept(t, packages, []string{"booted"}, func(ctx context.Context, work string, parts []string) error {
		root := filepath.Join(work, "root")
		if err := debiantest.Bootstrap(ctx, root, packages); err != nil {
			return err
		}
		return debiantest.Pack(ctx, root, parts[0], "./usr/share/doc/*")
	})[0]
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

func unique() string { return strings.ToLower(rand.Text()[:10]) }

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
