package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/debiantest"
)

// The recipe of the two images that the build begins with. A change makes new ones
// beside the old.
const (
	tools  = "gcc libc6-dev" // of the builder, which has Go from the machine
	recipe = "2"

	// slim are the rules by which Debian's own slim images leave files out, then and in
	// what is installed later: dpkg(1), "path-exclude".
	slim = `path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/groff/*
path-exclude /usr/share/info/*
path-exclude /usr/share/lintian/*
path-exclude /usr/share/linda/*
path-exclude /usr/share/locale/*
path-include /usr/share/locale/locale.alias
path-exclude /usr/share/man/*
`
)

// rootfs is where the two images are, as tar files.
type rootfs struct{ base, builder string }

// rootfsOf makes what is missing, the builder out of the base.
func rootfsOf(t *testing.T) rootfs {
	t.Helper()
	kept := debiantest.Kept(t, tools+slim+recipe, []string{"slim", "builder"}, func(ctx context.Context, work string, parts []string) error {
		root := filepath.Join(work, "root")
		if err := debiantest.Bootstrap(ctx, root); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, "etc", "dpkg", "dpkg.cfg.d", "docker"), []byte(slim), 0o644); err != nil {
			return err
		}
		if err := debiantest.Run(ctx, "find", filepath.Join(root, "usr", "share", "doc"), "-type", "f", "!", "-name", "copyright", "-delete"); err != nil {
			return err
		}
		without := []string{"./var/log/*", "./usr/share/info/*", "./etc/resolv.conf", "./etc/hostname"}
		if err := debiantest.Pack(ctx, root, parts[0], without...); err != nil {
			return err
		}
		if err := debiantest.Run(ctx, "chroot", append([]string{root, "apt-get", "install", "-y", "--no-install-recommends"}, strings.Fields(tools)...)...); err != nil {
			return err
		}
		return debiantest.Pack(ctx, root, parts[1], without...)
	})
	return rootfs{base: kept[0], builder: kept[1]}
}

func tail(s string) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-3000):]
}
