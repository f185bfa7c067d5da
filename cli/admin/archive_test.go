package admin

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A backup of everything is whole, or it is none; what is there is never overwritten.
func TestABackupHasWhatIsBesideTheStore(t *testing.T) {
	dir, db, _ := recordOne(t)
	stop(t, db)
	for name, text := range map[string]string{
		"known_hosts": "web-1 ssh-ed25519 A\n", "outputs/t1/call.1": strings.Repeat("a line\n", 9000), "recordings/local/x.cast": "[1,\"o\",\"x\"]\n",
		"plugins/p/state": "not saved", "outputs/t1/sub/deep": "deep",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "outputs", "link")); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, "web.key"))
	if err != nil {
		key = bytes.Repeat([]byte{1}, 32)
		if err := os.WriteFile(filepath.Join(dir, "web.key"), key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "backup.tar")
	if out, code, said := command(t, "backup", file); code != 0 {
		t.Fatalf("%d %s %s", code, out, said)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("the machine is lost", func(t *testing.T) {
		data := filepath.Join(t.TempDir(), "new")
		t.Setenv("COUNTERSIGN_DATA_DIR", data)
		out, code, said := command(t, "restore", file)
		if code != 0 || !strings.Contains(out, "ok: 2 output files and 1 recording file are back\n") {
			t.Fatalf("%d %s %s", code, out, said)
		}
		for name, want := range map[string]string{"known_hosts": "web-1 ssh-ed25519 A\n", "web.key": string(key), "outputs/t1/sub/deep": "deep", "recordings/local/x.cast": "[1,\"o\",\"x\"]\n"} {
			got, err := os.ReadFile(filepath.Join(data, name))
			info, serr := os.Stat(filepath.Join(data, name))
			if err != nil || serr != nil || string(got) != want || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %q %v %v", name, got, err, info)
			}
		}
		for _, name := range []string{"plugins", "outputs/link"} {
			if _, err := os.Lstat(filepath.Join(data, name)); !os.IsNotExist(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		noLeftovers(t, data)

		// Once more over what is there: nothing of it is lost.
		if err := os.WriteFile(filepath.Join(data, "known_hosts"), []byte("newer\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "outputs/t1/sub/deep"), []byte("gone on"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code, said := command(t, "restore", file); code != 0 {
			t.Fatalf("%d %s %s", code, out, said)
		}
		if got, _ := os.ReadFile(filepath.Join(data, "outputs/t1/sub/deep")); string(got) != "gone on" {
			t.Errorf("an output was overwritten: %q", got)
		}
		kept, _ := filepath.Glob(filepath.Join(data, "known_hosts.before-*"))
		if len(kept) != 1 {
			t.Fatalf("%v", kept)
		}
		if got, _ := os.ReadFile(kept[0]); string(got) != "newer\n" {
			t.Errorf("%q", got)
		}
	})

	for rule, spoil := range map[string]func(*testing.T) []byte{
		"an archive that was cut is none": func(*testing.T) []byte { return good[:len(good)-4096] },
		"nor one that ends between two files": func(t *testing.T) []byte {
			return repack(t, good, func(h *tar.Header) bool { return h.Name != digestsName }, "")
		},
		"nor one that lacks a file": func(t *testing.T) []byte {
			return repack(t, good, func(h *tar.Header) bool { return h.Name != "known_hosts" }, "")
		},
		"nor one with a changed byte":                     func(*testing.T) []byte { return bytes.Replace(good, []byte("web-1 ssh"), []byte("web-2 ssh"), 1) },
		"nor one that writes outside the data directory":  func(t *testing.T) []byte { return repack(t, good, nil, "../escaped") },
		"nor one that writes where no backup has a file":  func(t *testing.T) []byte { return repack(t, good, nil, "bin/sh") },
		"nor one that writes into a directory of secrets": func(t *testing.T) []byte { return repack(t, good, nil, "outputs/../../escaped") },
	} {
		t.Run(rule, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.tar")
			if err := os.WriteFile(bad, spoil(t), 0o600); err != nil {
				t.Fatal(err)
			}
			data := filepath.Join(t.TempDir(), "data")
			t.Setenv("COUNTERSIGN_DATA_DIR", data)
			for _, args := range [][]string{{"restore", bad}, {"store", "check", bad}} {
				_, code, said := command(t, args...)
				if code != 1 || !strings.Contains(said, "is of no use as a backup; take another one") {
					t.Errorf("%q: %d %s", args, code, said)
				}
			}
			for _, name := range []string{"countersign.db", "known_hosts", "outputs", "../escaped"} {
				if _, err := os.Lstat(filepath.Join(data, name)); !os.IsNotExist(err) {
					t.Errorf("%s was written: %v", name, err)
				}
			}
		})
	}
}

// repack writes an archive again with the files that keep wants, and first one more.
func repack(t *testing.T, raw []byte, keep func(*tar.Header) bool, more string) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	put := func(h *tar.Header, text []byte) {
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	tr := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if more != "" && h.Name == digestsName {
			put(&tar.Header{Typeflag: tar.TypeReg, Name: more, Size: 1, Mode: 0o600}, []byte("x"))
		}
		if keep == nil || keep(h) {
			put(h, text)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
