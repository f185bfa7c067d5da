package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"countersign/agent/llm/openai/openaitest"
	"countersign/targets/container/enginetest"
	"countersign/test/needstest"
)

const (
	// budget is what the image may weigh, unpacked, in bytes. More than a quarter is the
	// program, nearly a third Debian, and a fifth perl, which git brings.
	budget = 260_000_000
	// epoch is the time of every file that the build makes.
	epoch    = "1700000000"
	version  = "0.0.0-image"
	revision = "0123456789abcdef"

	buildLimit = 8 * time.Minute
	startLimit = 30 * time.Second
	// grace is what a stop may take; deploy/countersign.service says what of.
	grace = 45
	// model is where the container's bot finds its model: inside of the container's own
	// network, where this test listens.
	model = "127.0.0.1:8999"
)

// TestImage (D-05) builds the repository's Dockerfile and runs the image as README.md says. It is
// one test, since the build is what takes its time.
func TestImage(t *testing.T) {
	needstest.Long(t)
	if testing.Short() {
		t.Skip("it builds an image twice: run without -short")
	}
	k := kitOf(t)
	// A copy, so that nobody's edits come between the two builds.
	source := t.TempDir()
	copyContext(t, root, source)
	start := time.Now()
	id := k.build(t, source, "cs:1")
	t.Logf("the build: %v", time.Since(start).Round(time.Second))
	t.Run("what the build is sent", func(t *testing.T) { k.context(t, source) })
	t.Run("what it says of itself", func(t *testing.T) { k.labels(t) })
	t.Run("its files", func(t *testing.T) { k.files(t) })
	t.Run("at work", func(t *testing.T) { k.work(t) })
	t.Run("with any other uid", func(t *testing.T) { k.otherUID(t) })
	t.Run("a configuration with a mistake", func(t *testing.T) { k.mistake(t) })
	t.Run("two builds are the same", func(t *testing.T) {
		elsewhere := t.TempDir() // with other times of its files
		copyContext(t, source, elsewhere)
		start := time.Now()
		if again := k.build(t, elsewhere, "cs:2"); again != id {
			t.Errorf("two builds of one source differ: %s and %s", id, again)
		}
		t.Logf("the second build: %v", time.Since(start).Round(time.Second))
	})
}

// kit is an engine with the two images that the build begins with.
type kit struct {
	podman string // a script for this engine alone
	engine *enginetest.Engine
	env    goEnv
}

type goEnv struct{ GOROOT, GOMODCACHE, GOCACHE string }

func kitOf(t *testing.T) *kit {
	t.Helper()
	e := enginetest.Podman(t)
	roots := rootfsOf(t)
	k := &kit{podman: e.Program, engine: e}
	// The build has no network for modules: what the machine has is what it gets.
	if out, err := exec.CommandContext(t.Context(), "go", "mod", "download").CombinedOutput(); err != nil {
		t.Fatalf("the modules are not here: %v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "-json", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &k.env); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(k.env.GOCACHE, 0o700); err != nil {
		t.Fatal(err)
	}
	k.must(t, "import", roots.base, "cs-base:1")
	k.must(t, "import", "--change", "ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"--change", "ENV GOPATH=/go", "--change", "ENV GOTOOLCHAIN=local", "--change", "ENV GOPROXY=off", roots.builder, "cs-builder:1")
	return k
}

// copyContext copies what a build is sent.
func copyContext(t *testing.T, from, to string) {
	t.Helper()
	for _, path := range append(kept(t), "Dockerfile", ".dockerignore") {
		src, dst := filepath.Join(from, path), filepath.Join(to, path)
		info, err := os.Stat(src)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(src)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(dst), 0o750), os.WriteFile(dst, text, info.Mode().Perm()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// context looks at what a build sees, when things lie around beside the source that are
// nobody's business.
func (k *kit) context(t *testing.T, source string) {
	dir := t.TempDir()
	copyContext(t, source, dir)
	for _, path := range []string{".git/config", ".env", "adapters/.env.local", "console/x_test.go", "console/node_modules/a/b.js",
		"data/countersign.db", "dist/bot", "deploy/image/notes", "docs/notes.md", "bin/bot"} {
		at := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o750), os.WriteFile(at, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	recipe := filepath.Join(t.TempDir(), "Dockerfile")
	if err := os.WriteFile(recipe, []byte("FROM localhost/cs-base:1\nCOPY . /sent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.must(t, "build", "--tag", "cs-sent:1", "-f", recipe, dir)
	top := filepath.Join(k.must(t, "image", "mount", "cs-sent:1"), "sent")
	defer k.must(t, "image", "umount", "cs-sent:1")
	keep := kept(t)
	seen := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		name := strings.TrimPrefix(path, top+"/")
		wanted := slices.ContainsFunc(keep, func(k string) bool { return name == k || strings.HasPrefix(name, k+"/") })
		if !wanted || strings.HasPrefix(d.Name(), ".env") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "node_modules/") {
			t.Errorf("the build is sent %s", name)
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("%d files were sent: %v", seen, err)
	}
}

// build builds the image without what earlier builds left in the engine, and returns its
// digest. Go's own caches are the machine's.
func (k *kit) build(t *testing.T, dir, name string) string {
	t.Helper()
	r := k.run(t, buildLimit, "build", "--no-cache", "--jobs", "2", "--network", "host", "--timestamp", epoch, "--tag", name,
		"--build-arg", "BUILDER=localhost/cs-builder:1", "--build-arg", "BASE=localhost/cs-base:1",
		"--build-arg", "VERSION="+version, "--build-arg", "COMMIT="+revision, "--build-arg", "SOURCE=https://example.com/countersign",
		"-v", k.env.GOROOT+":/usr/local/go:ro", "-v", k.env.GOMODCACHE+":/go/pkg/mod:ro", "-v", k.env.GOCACHE+":/root/.cache/go-build",
		dir)
	if r.exit != 0 {
		t.Fatalf("podman build: exit status %d: %s\n%s", r.exit, tail(r.out), tail(r.err))
	}
	return k.must(t, "image", "inspect", "--format", "{{.Id}} {{.Digest}}", name)
}

// result is what a call of podman came to.
type result struct {
	out, err string
	exit     int
}

// run calls podman. Its streams are files: what a container leaves running may hold them
// without holding the test.
func (k *kit) run(t *testing.T, limit time.Duration, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	errOut, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errOut.Close() }()
	cmd := exec.CommandContext(ctx, k.podman, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, errOut, "/"
	for _, kv := range os.Environ() {
		if n, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(n, "CONTAINER") && !strings.HasPrefix(n, "BUILDAH_") && n != "XDG_RUNTIME_DIR" {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	var r result
	if err := cmd.Run(); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ctx.Err() != nil {
			text, _ := os.ReadFile(errOut.Name())
			t.Fatalf("podman %s: %v (%v): %s", args[0], err, ctx.Err(), tail(string(text)))
		}
		r.exit = ended.ExitCode()
	}
	for file, to := range map[*os.File]*string{out: &r.out, errOut: &r.err} {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		*to = strings.TrimSpace(string(text))
	}
	return r
}

// must calls podman, which has to succeed, and returns what it prints.
func (k *kit) must(t *testing.T, args ...string) string {
	t.Helper()
	r := k.run(t, 2*time.Minute, args...)
	if r.exit != 0 {
		t.Fatalf("podman %q: exit status %d: %s %s", args, r.exit, r.out, r.err)
	}
	return r.out
}

func (k *kit) labels(t *testing.T) {
	var list []struct {
		Size   int64
		Config struct {
			User       string
			Env        []string
			Entrypoint []string
			Cmd        []string
			StopSignal string
			Volumes    map[string]struct{}
			Labels     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(k.must(t, "image", "inspect", "cs:1")), &list); err != nil || len(list) != 1 {
		t.Fatalf("podman image inspect: %v, %d images", err, len(list))
	}
	im := list[0]
	t.Logf("size: %d bytes of %d", im.Size, budget)
	if im.Size > budget {
		t.Errorf("the image has %d bytes, and the budget is %d", im.Size, budget)
	}
	if im.Config.User != "65532:65532" || im.Config.StopSignal != "SIGTERM" || len(im.Config.Volumes) != 0 {
		t.Errorf("user %q, signal %q, volumes %v", im.Config.User, im.Config.StopSignal, im.Config.Volumes)
	}
	if got := append(slices.Clone(im.Config.Entrypoint), im.Config.Cmd...); !slices.Equal(got, []string{"/usr/bin/tini", "-g", "--", "/usr/local/bin/bot", "run", "--insecure-http"}) {
		t.Errorf("it starts %q", got)
	}
	for name, want := range map[string]string{"version": version, "revision": revision, "source": "https://example.com/countersign", "licenses": "Apache-2.0"} {
		if got := im.Config.Labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("the label %s is %q, not %q", name, got, want)
		}
	}
	for _, kv := range im.Config.Env {
		if secretName.MatchString(kv) {
			t.Errorf("a secret in the environment: %s", kv)
		}
	}
}

// files looks at the image's files from outside.
func (k *kit) files(t *testing.T) {
	top := k.must(t, "image", "mount", "cs:1")
	defer k.must(t, "image", "umount", "cs:1")
	seen := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, top), "/")
		for _, w := range strange(path, name, info) {
			t.Errorf("%s %s", name, w)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 1000 {
		t.Errorf("only %d files were looked at", seen)
	}
	for _, path := range []string{"/usr/local/bin/bot", "/usr/bin/tini", "/usr/bin/tmux", "/usr/bin/git", "/usr/bin/ssh", "/etc/ssl/certs/ca-certificates.crt",
		"/usr/share/doc/countersign/LICENSE", "/usr/share/doc/countersign/THIRD_PARTY_LICENSES", "/usr/share/doc/tmux/copyright"} {
		if info, err := os.Stat(filepath.Join(top, path)); err != nil || info.Size() == 0 {
			t.Errorf("%s is not in the image: %v", path, err)
		}
	}
	for _, path := range []string{"/usr/local/go", "/src", "/go", "/root", "/usr/bin/gcc", "/usr/bin/sudo", "/usr/bin/curl"} {
		_ = filepath.WalkDir(filepath.Join(top, path), func(path string, d fs.DirEntry, err error) error {
			// The directories that this test's own mounts were at stay, empty, and those of root
			// have what Debian puts there.
			if name := strings.TrimPrefix(path, top); err == nil && !d.IsDir() && name != "/root/.bashrc" && name != "/root/.profile" {
				t.Errorf("%s is in the image", name)
			}
			return nil
		})
	}
}

// strange says what is wrong with one file of the image.
func strange(path, name string, info fs.FileInfo) []string {
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	var wrong []string
	mode := info.Mode()
	if mode.IsRegular() && mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		wrong = append(wrong, fmt.Sprintf("takes on its owner's rights (%v)", mode))
	}
	if n, err := unix.Lgetxattr(path, "security.capability", nil); err == nil && n > 0 {
		wrong = append(wrong, "has capabilities of its own")
	}
	if mode&(fs.ModeDevice|fs.ModeCharDevice) != 0 {
		wrong = append(wrong, "is a device")
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return append(wrong, "has no owner")
	}
	own := name == "/tmp" || name == "/var/lib/countersign"
	if !own && (mode&0o002 != 0 || st.Uid == 65532 || st.Gid == 65532) {
		wrong = append(wrong, fmt.Sprintf("can be changed by the bot (%v, %d:%d)", mode, st.Uid, st.Gid))
	}
	return wrong
}

// box is one running container.
type box struct {
	*kit
	name string
	pid  int // of its first process, as the machine sees it
}

// start runs the image as README.md says, but without a network of the machine's:
// what the bot is asked and whom it asks goes through the container's own loopback.
func (k *kit) start(t *testing.T, args ...string) *box {
	t.Helper()
	name := "cs-" + strings.ToLower(regexp.MustCompile(`\W+`).ReplaceAllString(t.Name(), "-"))
	k.must(t, "volume", "create", name)
	argv := []string{"run", "--detach", "--name", name, "--network", "none",
		"--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--tmpfs", "/tmp:rw,nosuid,nodev,noexec,size=64m", "-v", name + ":/var/lib/countersign"}
	k.must(t, append(append(argv, args...), "cs:1")...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_ = exec.CommandContext(ctx, k.podman, "kill", name).Run() // it may have ended
		_ = exec.CommandContext(ctx, k.podman, "rm", "-f", "-v", name).Run()
	})
	pid, err := strconv.Atoi(k.must(t, "inspect", "--format", "{{.State.Pid}}", name))
	if err != nil {
		t.Fatal(err)
	}
	return &box{kit: k, name: name, pid: pid}
}

func (b *box) exec(t *testing.T, args ...string) result {
	t.Helper()
	return b.run(t, 2*time.Minute, append([]string{"exec", b.name}, args...)...)
}

// within runs f on a thread that is in the container's network and ends with it.
func (b *box) within(f func()) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is of no use to others
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", b.pid))
		if err == nil {
			err = errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), ns.Close())
		}
		if err == nil {
			f()
		}
		failed <- err
	}()
	return <-failed
}

// listen listens inside the container's network.
func (b *box) listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	var ln net.Listener
	var lerr error
	if err := errors.Join(b.within(func() { ln, lerr = net.Listen("tcp", addr) }), lerr); err != nil {
		t.Fatal(err)
	}
	return ln
}

// client speaks to what listens inside the container's network.
func (b *box) client() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var c net.Conn
			var derr error
			err := b.within(func() { c, derr = (&net.Dialer{}).DialContext(ctx, network, addr) })
			return c, errors.Join(err, derr)
		},
	}}
}

// until asks again and again until it is told nothing, or fails the test with what it
// was told last.
func until(t *testing.T, limit time.Duration, what string, ask func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		last := ask()
		if last == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %s", what, limit, last)
		}
	}
}

// answers waits until an address of the console says ok.
func (b *box) answers(t *testing.T, url string) {
	t.Helper()
	until(t, startLimit, url, func() string {
		res, err := b.client().Get(url)
		if err != nil {
			if state := b.must(t, "inspect", "--format", "{{.State.Status}}", b.name); state != "running" {
				t.Fatalf("the container is %s: %s", state, b.run(t, time.Minute, "logs", b.name).err)
			}
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
			return fmt.Sprintf("HTTP %d: %s", res.StatusCode, text)
		}
		return ""
	})
}

// work runs the bot with a model and its key as a file, as in production.
func (k *kit) work(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-of-the-image-test\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(key, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	etc := t.TempDir()
	config := "groups:\n  oncall: {web: [you]}\ntargets:\n  local: {kind: local, approvers: [oncall]}\nagent: {target: local}\nweb: {origin: \"http://127.0.0.1:8700\"}\n"
	if err := errors.Join(os.WriteFile(filepath.Join(etc, "countersign.yaml"), []byte(config), 0o644), os.Chmod(etc, 0o755)); err != nil {
		t.Fatal(err)
	}
	health, _ := dockerfile(t).stages[1].last("HEALTHCHECK")
	check, err := json.Marshal(argv(health))
	if err != nil {
		t.Fatal(err)
	}
	b := k.start(t, "-v", key+":/run/secrets/OPENAI_API_KEY:ro", "-e", "OPENAI_API_KEY_FILE=/run/secrets/OPENAI_API_KEY",
		"-v", etc+":/etc/countersign:ro", "-e", "COUNTERSIGN_CONFIG=/etc/countersign/countersign.yaml",
		"-e", "OPENAI_BASE_URL=http://"+model+"/v1", "-e", "OPENAI_MODEL=scripted",
		// Without systemd podman has no clock for health checks; it is asked below.
		"--health-cmd", string(check), "--health-interval", "disable")
	var keyed atomic.Int64
	fake := openaitest.New(func(openaitest.Conversation) openaitest.Turn {
		return openaitest.Turn{Calls: []openaitest.Call{{Name: "ping", Args: `{"word":"pong"}`}}}
	})
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer sk-of-the-image-test" {
			keyed.Add(1)
		}
		fake.ServeHTTP(w, r)
	})}
	ln := b.listen(t, model)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})

	b.answers(t, "http://127.0.0.1:8700/healthz")
	b.answers(t, "http://127.0.0.2:8700/healthz") // on all its addresses
	b.answers(t, "http://127.0.0.1:8700/readyz")
	t.Run("the health check", func(t *testing.T) { b.health(t) })
	t.Run("the doctor", func(t *testing.T) {
		b.doctor(t)
		if keyed.Load() == 0 {
			t.Error("the model has seen no request with the key of the file")
		}
	})
	t.Run("a terminal", func(t *testing.T) { b.terminal(t, "uid=65532(countersign) gid=65532(countersign)") })
	t.Run("programs", func(t *testing.T) { b.programs(t) })
	t.Run("what an operator does", func(t *testing.T) { b.operate(t) })
	t.Run("nothing else can be written", func(t *testing.T) { b.readOnly(t) })
	t.Run("orphans are reaped", func(t *testing.T) { b.orphans(t) })
	t.Run("a stop", func(t *testing.T) { b.stop(t) })
}

func (b *box) health(t *testing.T) {
	if r := b.run(t, time.Minute, "healthcheck", "run", b.name); r.exit != 0 {
		t.Errorf("the image's health check: exit status %d: %s %s", r.exit, r.out, r.err)
	}
	if r := b.exec(t, "bot", "healthz", "--ready"); r.exit != 0 {
		t.Errorf("bot healthz --ready: exit status %d: %s", r.exit, r.err)
	}
	if r := b.run(t, time.Minute, "exec", "-e", "COUNTERSIGN_DATA_DIR=/tmp/none", "-e", "COUNTERSIGN_LISTEN=127.0.0.1:1", b.name, "bot", "healthz"); r.exit != 1 {
		t.Errorf("bot healthz where nobody listens: exit status %d: %s", r.exit, r.err)
	}
}

func (b *box) doctor(t *testing.T) {
	r := b.exec(t, "bot", "doctor")
	if r.exit != 0 || slices.ContainsFunc(strings.Split(r.out, "\n"), failed) {
		t.Errorf("bot doctor: exit status %d:\n%s\n%s", r.exit, r.out, r.err)
	}
	for _, want := range []string{"target local: commands run as countersign", "terminals of local: tmux "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("bot doctor does not say %q:\n%s", want, r.out)
		}
	}
	r = b.run(t, 2*time.Minute, "exec", "-e", "OPENAI_BASE_URL=", "-e", "OPENAI_API_KEY_FILE=", b.name, "bot", "doctor")
	var lines []string
	for line := range strings.Lines(r.out) {
		if failed(line) {
			lines = append(lines, line)
		}
	}
	if r.exit != 1 || len(lines) != 1 || !strings.HasPrefix(lines[0], "FAIL model: ") {
		t.Errorf("bot doctor without a model: exit status %d, failures %q:\n%s", r.exit, lines, r.out)
	}
}

func failed(line string) bool { return strings.HasPrefix(line, "FAIL") }

// terminal runs a command the way that the bot does: in a pane of tmux.
func (b *box) terminal(t *testing.T, who string) {
	t.Helper()
	r := b.exec(t, "bot", "tool", "--yes", "run_shell",
		`{"command":"id; echo \"pane $TMUX_PANE of $TMUX\"","risk":"low","mutation":false,"privesc":false,"why":"to see who runs commands"}`)
	if r.exit != 0 || !strings.Contains(r.out, who) || !strings.Contains(r.out, "pane %") || !strings.Contains(r.out, " of /tmp/tmux-") {
		t.Errorf("run_shell: exit status %d: %s %s", r.exit, r.out, r.err)
	}
}

func (b *box) programs(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"tmux -V", "tmux 3."}, {"git --version", "git version 2."}, {"ssh -V", "OpenSSH_"}, {"bot version", "countersign " + version + " commit " + revision},
		{"cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline && cd .. && rm -rf r", " x"},
		{"id -un && echo $HOME && cd && pwd", "countersign\n/var/lib/countersign\n/var/lib/countersign"},
	} {
		r := b.exec(t, "bash", "-c", c.command+" 2>&1")
		if r.exit != 0 || !strings.Contains(r.out, c.want) {
			t.Errorf("%s: exit status %d: %s", c.command, r.exit, r.out)
		}
	}
	if r := b.exec(t, "sh", "-c", "grep -E '^(NoNewPrivs|CapEff|CapBnd):' /proc/1/status"); !regexp.MustCompile(`^CapEff:\s+0+\nCapBnd:\s+0+\nNoNewPrivs:\s+1$`).MatchString(r.out) {
		t.Errorf("the first process has privileges:\n%s", r.out)
	}
}

// operate follows the table of README.md.
func (b *box) operate(t *testing.T) {
	if r := b.exec(t, "bot", "login", "you", "--url", "http://127.0.0.1:8700"); r.exit != 0 || !strings.HasPrefix(r.out, "http://127.0.0.1:8700/#") {
		t.Errorf("bot login: exit status %d: %s %s", r.exit, r.out, r.err)
	}
	if r := b.exec(t, "bot", "backup", "/var/lib/countersign/backup.db"); r.exit != 0 {
		t.Errorf("bot backup: exit status %d: %s %s", r.exit, r.out, r.err)
	}
	if r := b.exec(t, "bot", "audit", "verify"); r.exit != 0 {
		t.Errorf("bot audit verify: exit status %d: %s %s", r.exit, r.out, r.err)
	}
	b.must(t, "kill", "--signal", "HUP", b.name)
	until(t, startLimit, "the configuration is reloaded", func() string {
		if log := b.run(t, time.Minute, "logs", b.name).err; !strings.Contains(log, "the configuration was reloaded") {
			return tail(log)
		}
		return ""
	})
}

func (b *box) readOnly(t *testing.T) {
	r := b.exec(t, "sh", "-c", `find / \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/countersign \) -prune -o ! -type l -writable -print 2>/dev/null; echo end`)
	if r.out != "end" {
		t.Errorf("the bot can write here too:\n%s", r.out)
	}
	if r := b.exec(t, "sh", "-c", "touch /tmp/x /var/lib/countersign/x && rm /tmp/x /var/lib/countersign/x"); r.exit != 0 {
		t.Errorf("the bot cannot write where it must: %s", r.err)
	}
}

// orphans leaves a process behind whose parent has ended, and ends it.
func (b *box) orphans(t *testing.T) {
	r := b.exec(t, "sh", "-c", "tail -f /dev/null >/dev/null 2>&1 & echo $!")
	pid := r.out
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatalf("no process: %q %s", r.out, r.err)
	}
	until(t, startLimit, "the orphan goes to the first process", func() string {
		if r := b.exec(t, "grep", "PPid:", "/proc/"+pid+"/status"); strings.Join(strings.Fields(r.out), " ") != "PPid: 1" {
			return r.out + r.err
		}
		return ""
	})
	if r := b.exec(t, "bash", "-c", "kill "+pid); r.exit != 0 {
		t.Fatal(r.err)
	}
	until(t, startLimit, "it is reaped", func() string { return b.exec(t, "sh", "-c", "cat /proc/"+pid+"/stat 2>/dev/null || :").out })
	if r := b.exec(t, "sh", "-c", `cat /proc/[0-9]*/stat 2>/dev/null | grep ') Z ' || :`); r.out != "" {
		t.Errorf("zombies:\n%s", r.out)
	}
}

// stop ends the container as an engine does.
func (b *box) stop(t *testing.T) {
	start := time.Now()
	b.must(t, "stop", "--time", strconv.Itoa(grace), b.name)
	took := time.Since(start)
	if got := b.must(t, "inspect", "--format", "{{.State.ExitCode}}", b.name); got != "0" || took > grace*time.Second {
		t.Errorf("after SIGTERM the container ended with status %s in %v:\n%s", got, took, tail(b.run(t, time.Minute, "logs", b.name).err))
	}
	t.Logf("the stop: %v", took.Round(time.Millisecond))
}

// otherUID runs the image with an account that it does not know, in group 0, as
// OpenShift does.
func (k *kit) otherUID(t *testing.T) {
	for _, c := range []struct{ name, flag, ssh string }{
		// podman writes the account into the container's /etc/passwd.
		{"the engine adds the account", "--passwd=true", "OpenSSH_"},
		// Docker does not, and ssh, the program, then does not work: README.md.
		{"nobody adds it", "--passwd=false", "No user exists for uid 1234567"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := k.start(t, c.flag, "--user", "1234567:0", "-e", "OPENAI_BASE_URL=http://"+model+"/v1", "-e", "OPENAI_MODEL=scripted")
			b.answers(t, "http://127.0.0.1:8700/healthz")
			b.answers(t, "http://127.0.0.1:8700/readyz")
			b.terminal(t, "uid=1234567")
			if r := b.exec(t, "bash", "-c", "ssh -V 2>&1"); !strings.Contains(r.out, c.ssh) {
				t.Errorf("ssh -V: exit status %d: %s", r.exit, r.out)
			}
			if r := b.exec(t, "bash", "-c", "cd /tmp && git init -q r && git -C r status"); r.exit != 0 {
				t.Errorf("git: %s", r.err)
			}
			b.stop(t)
		})
	}
}

// mistake looks at what a restart policy sees of a wrong configuration: status 2.
func (k *kit) mistake(t *testing.T) {
	b := k.start(t) // no model
	until(t, startLimit, "the container ends", func() string {
		if state := k.must(t, "inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", b.name); state != "exited 2" {
			return state
		}
		return ""
	})
	if r := k.run(t, time.Minute, "logs", b.name); !strings.Contains(r.err, "no model is configured") {
		t.Errorf("the log does not say what is wrong: %s", r.err)
	}
}
