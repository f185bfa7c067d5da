// Package deploy tests what release.sh makes: the archive, the list of parts and the Debian
// package, byte for byte and on a small Debian of its own. It does not test the service under
// a running systemd, nor a build with cgo, which takes minutes.
package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/test/debiantest"
	"countersign/test/needstest"
)

const (
	version = "0.1.0-rc.1"
	commit  = "0123456789abcdef"
	stamp   = "1700000000"

	archiveName = "countersign-" + version + "-linux-amd64.tar.gz"
	partsName   = "countersign-" + version + "-linux-amd64.cdx.json"
	packageName = "countersign_0.1.0~rc.1_amd64.deb"

	// The archive of another version that begins like this one.
	otherName = "countersign-" + version + "-x-linux-amd64.tar.gz"
)

func programs(t *testing.T, names ...string) {
	t.Helper()
	for _, p := range names {
		if _, err := exec.LookPath(p); err != nil {
			needstest.Missing(t, p+" is not here: install it and run this again")
		}
	}
}

// The cache of builds is shared between both: with -trimpath the go command takes nothing of
// the directory into what it caches, so a second build that finds everything there is the
// proof for compiling, and linking is done twice. That the compiler itself gives the same
// bytes each time is Go's own promise, and is not tested here.
func TestARelease(t *testing.T) {
	needstest.Long(t)
	if testing.Short() {
		t.Skip("-short: builds two releases")
	}
	programs(t, "go", "tar", "gzip", "sha256sum", "dpkg-deb")
	first, second := t.TempDir(), t.TempDir()
	one, other := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "another", "and deeper")
	duplicate(t, "..", one)
	duplicate(t, one, other) // not from the checkout, where somebody may be writing
	for _, dir := range []string{first, second} {
		if err := os.WriteFile(filepath.Join(dir, otherName), []byte("another release"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release(t, one, first, "0022")
	release(t, other, second, "0077",
		"TZ=Asia/Tokyo", "LANG=tr_TR.UTF-8", "GOFLAGS=-tags=mine", "GOAMD64=v1", "DPKG_DEB_COMPRESSOR_TYPE=xz")

	t.Run("two directories give the same bytes", func(t *testing.T) {
		want := []string{"SHA256SUMS", archiveName, partsName, packageName, otherName}
		slices.Sort(want)
		for _, dir := range []string{first, second} {
			var got []string
			for _, e := range list(t, dir) {
				got = append(got, e.Name())
			}
			if !slices.Equal(got, want) {
				t.Fatalf("the release is %q, want %q", got, want)
			}
		}
		for _, name := range want {
			if !bytes.Equal(content(t, first, name), content(t, second, name)) {
				t.Errorf("%s differs", name)
			}
		}
	})
	t.Run("the sums are those of the files", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(string(content(t, first, "SHA256SUMS"))), "\n")
		if len(lines) != 3 {
			t.Errorf("there are %d sums, want one for each of the 3 files of this version", len(lines))
		}
		for _, line := range lines {
			sum, name, ok := strings.Cut(line, "  ")
			if have := sha256.Sum256(content(t, first, name)); !ok || hex.EncodeToString(have[:]) != sum {
				t.Errorf("the line %q is not the sum of the file", line)
			}
		}
	})
	files := unpack(t, content(t, first, archiveName))
	t.Run("the archive holds what its page says", func(t *testing.T) { inArchive(t, files) })
	t.Run("the list of parts is about the program in the archive", func(t *testing.T) { aboutTheProgram(t, files, content(t, first, partsName)) })
	t.Run("the package", func(t *testing.T) { inDebian(t, filepath.Join(first, packageName)) })
}

func TestWhatIsNoReleaseIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: runs the script")
	}
	programs(t, "go", "tar")
	for _, tt := range []struct {
		rule string
		args []string
		env  []string
		want string
	}{
		{"no version", nil, nil, "usage"},
		{"a version with a slash", []string{"../1"}, nil, "use letters"},
		{"a version that is an option", []string{"-1"}, nil, "use letters"},
		{"a time that is none", []string{version}, []string{"COMMIT=x", "SOURCE_DATE_EPOCH=now"}, "seconds since 1970"},
		{"no time", []string{version}, []string{"COMMIT=x", "SOURCE_DATE_EPOCH="}, "seconds since 1970"},
		{"a commit that would be a flag", []string{version}, []string{"COMMIT=x -X y", "SOURCE_DATE_EPOCH=1"}, "use letters"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			args := tt.args
			if len(args) > 0 {
				args = append(args, t.TempDir())
			}
			cmd := exec.CommandContext(t.Context(), "./release.sh", args...)
			cmd.Env = append(os.Environ(), tt.env...)
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), tt.want) {
				t.Errorf("it ends with %v and says %q, want %q", err, out, tt.want)
			}
		})
	}
}

// release builds one from a copy of the source, called from elsewhere.
func release(t *testing.T, source, out, umask string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask "$1"; exec "$2" "$3" "$4"`, "sh", umask, filepath.Join(source, "deploy", "release.sh"), version, out)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "COMMIT="+commit, "SOURCE_DATE_EPOCH="+stamp), env...)
	cmd.Dir = t.TempDir()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release.sh: %v\n%s", err, text)
	}
}

// duplicate copies the source, without what no build needs: hidden directories, what npm
// installed, and built programs.
func duplicate(t *testing.T, from, to string) {
	t.Helper()
	const largest = 8 << 20
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			if name := d.Name(); path != from && (strings.HasPrefix(name, ".") || name == "node_modules" || rel == "dist") {
				return fs.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // an editor's
			return nil
		}
		if err != nil || !info.Mode().IsRegular() || info.Size() > largest {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func content(t *testing.T, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

type file struct {
	header *tar.Header
	text   []byte
}

// unpack reads an archive. Every entry must be below one directory, owned by root and as old
// as the release.
func unpack(t *testing.T, archive []byte) map[string]file {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]file{}
	prefix := strings.TrimSuffix(archiveName, ".tar.gz") + "/"
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, prefix)
		if !ok || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || fmt.Sprint(h.ModTime.Unix()) != stamp {
			t.Errorf("%s is outside of %s, not root's or not of the time of the release: %+v", h.Name, prefix, h)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = file{h, text}
	}
}

func inArchive(t *testing.T, files map[string]file) {
	for _, name := range []string{"README.md", "countersign.service", "example.yaml", "LICENSE", "CHANGELOG.md", "SECURITY.md", "THIRD_PARTY_LICENSES", "docs/policy.md"} {
		f, ok := files[name]
		if !ok || len(f.text) == 0 || f.header.Mode != 0o644 {
			t.Errorf("%s is not there, empty or not 0644", name)
		}
	}
	bot, ok := files["bot"]
	if !ok || bot.header.Mode != 0o755 {
		t.Fatalf("there is no program bot that can be run, only %q", slices.Sorted(maps.Keys(files)))
	}
	for name, f := range files {
		if i := bytes.Index(f.text, []byte(filepath.Clean(os.TempDir())+"/TestARelease")); i >= 0 {
			t.Errorf("the directory of the source is in %s: %q", name, f.text[i:min(len(f.text), i+60)])
		}
	}
	path := filepath.Join(t.TempDir(), "bot")
	if err := os.WriteFile(path, bot.text, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), version) || !strings.Contains(string(out), commit) {
		t.Errorf("bot version says %q and ends with %v; version and commit are missing", out, err)
	}
	for name, arg := range map[string]string{"countersign-hook": "version", "countersign-lock": "version", "countersign-runner": "version", "countersign-signer": "--version", "countersign-verify": "--version", "countersign-witness": "--version"} {
		helper := files[name]
		if err := os.WriteFile(path+name, helper.text, 0o700); err != nil {
			t.Fatal(err)
		}
		out, err = exec.CommandContext(t.Context(), path+name, arg).CombinedOutput()
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), version) || helper.header.Mode != 0o755 {
			t.Errorf("%s %s says %q and ends with %v", name, arg, out, err)
		}
	}
}

// aboutTheProgram checks the parts against the hash of the program, and against the notices:
// whatever has its terms there is a part, and the other way round.
func aboutTheProgram(t *testing.T, files map[string]file, parts []byte) {
	type component struct {
		Name, Version string
		Hashes        []struct{ Alg, Content string }
	}
	var bom struct {
		SpecVersion string
		Metadata    struct {
			Timestamp string
			Component component
		}
		Components []component
	}
	if err := json.Unmarshal(parts, &bom); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(files["bot"].text)
	main := bom.Metadata.Component
	if bom.SpecVersion != "1.6" || main.Version != version || len(main.Hashes) != 1 || main.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("it is about %+v of CycloneDX %s, not about the program", main, bom.SpecVersion)
	}
	if bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("its time is %s", bom.Metadata.Timestamp)
	}
	listed := map[string]bool{}
	for _, c := range bom.Components {
		if c.Name != "stdlib" {
			listed[c.Name+" "+c.Version] = true
		}
	}
	noticed := map[string]bool{}
	for line := range strings.Lines(string(files["THIRD_PARTY_LICENSES"].text)) {
		if head, ok := strings.CutPrefix(line, "===== "); ok && !strings.HasPrefix(head, "Go ") {
			module, _, _ := strings.Cut(head, ":")
			noticed[module] = true
		}
	}
	// Text that is embedded is no module, and the program does not say that it is in there.
	for _, m := range []string{"xterm.js\n", "the rules of gitleaks\n"} {
		if !noticed[m] {
			t.Errorf("the terms of %s are not in the archive", m)
		}
		delete(noticed, m)
	}
	for m := range noticed {
		if !listed[m] {
			t.Errorf("the terms of %s are in the archive, and it is no part", m)
		}
	}
	for m := range listed {
		if !noticed[m] {
			t.Errorf("%s is a part, and its terms are not in the archive", m)
		}
	}
}

// inDebian installs the package on a small Debian, runs what it holds, and removes it.
func inDebian(t *testing.T, deb string) {
	root := debiantest.Root(t)
	put := func(name string, text []byte) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(root, name))
		return err == nil
	}
	inside := func(command string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "chroot", root, "sh", "-ec", command)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	put("tmp/c.deb", content(t, filepath.Dir(deb), filepath.Base(deb)))

	said := inside("dpkg -i /tmp/c.deb")
	if !strings.Contains(said, "write /etc/countersign/countersign.yaml") {
		t.Errorf("nobody is told what comes next: %q", said)
	}
	if out := inside("dpkg-query -W -f '${Status} ${Version}' countersign; dpkg --verify countersign"); out != "install ok installed 0.1.0~rc.1" {
		t.Errorf("dpkg says %q", out)
	}
	if out := inside("getent passwd countersign"); !strings.Contains(out, ":/var/lib/countersign:/usr/sbin/nologin") {
		t.Errorf("the account is %q", out)
	}
	if out := inside("stat -c '%A %U %n' /opt/countersign/bot /var/lib/countersign /var/lib/countersign/data /etc/countersign /etc/countersign/credentials /etc/countersign/environment"); out !=
		"-rwxr-xr-x root /opt/countersign/bot\ndrwx------ countersign /var/lib/countersign\ndrwx------ countersign /var/lib/countersign/data\n"+
			"drwxr-xr-x root /etc/countersign\ndrwx------ root /etc/countersign/credentials\n-rw------- root /etc/countersign/environment\n" {
		t.Errorf("rights and owners are\n%s", out)
	}
	// The unit must name a program, a reload and an account that are there.
	for _, want := range []string{"ExecStart=/opt/countersign/bot run", "User=countersign", "EnvironmentFile=-/etc/countersign/environment"} {
		if out := inside("cat /lib/systemd/system/countersign.service"); !strings.Contains(out, "\n"+want+"\n") {
			t.Errorf("the unit has no line %s", want)
		}
	}
	if out := inside("setpriv --reuid=countersign --regid=countersign --clear-groups countersign version"); !strings.Contains(out, version) {
		t.Errorf("the program says %q", out)
	}
	if out := inside("stat -c '%A %U' /usr/libexec/countersign/countersign-lock; /usr/libexec/countersign/countersign-lock version"); !strings.HasPrefix(out, "-rwxr-xr-x root\n"+version) {
		t.Errorf("the helper for other machines is %q", out)
	}
	if there("etc/systemd/system/multi-user.target.wants/countersign.service") {
		t.Error("the service is enabled without configuration")
	}

	put("etc/countersign/environment", []byte("OPENAI_MODEL=mine\n"))
	put("etc/countersign/countersign.yaml", []byte("{}\n"))
	put("var/lib/countersign/data/store.db", []byte("what people said"))
	if said := inside("dpkg -i /tmp/c.deb"); strings.Contains(said, "write /etc/countersign") {
		t.Errorf("an upgrade asks for what is there: %q", said)
	}
	if out := inside("cat /etc/countersign/environment"); out != "OPENAI_MODEL=mine\n" {
		t.Errorf("an upgrade changed the environment to %q", out)
	}
	inside("dpkg -r countersign")
	if there("opt/countersign/bot") || there("usr/libexec/countersign") || !there("etc/countersign/environment") {
		t.Error("a removal leaves the program, or takes the configuration")
	}
	said = inside("dpkg -P countersign 2>&1")
	if !there("var/lib/countersign/data/store.db") || !there("etc/countersign/countersign.yaml") || there("etc/countersign/environment") {
		t.Error("a purge takes what people made, or leaves a file of the package")
	}
	if !strings.Contains(said, "/var/lib/countersign is kept") {
		t.Errorf("a purge does not say what it keeps: %q", said)
	}
	inside("getent passwd countersign") // whose files these are

	inside("dpkg -i /tmp/c.deb; COUNTERSIGN_PURGE_DATA=yes dpkg -P countersign")
	if there("var/lib/countersign") || there("etc/countersign") {
		t.Error("a purge that was asked to take the data leaves some")
	}
	if out := inside("getent passwd countersign || echo gone"); out != "gone\n" {
		t.Errorf("a purge that was asked to take the data leaves the account: %q", out)
	}
}
