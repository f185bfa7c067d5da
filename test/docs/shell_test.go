package docs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"countersign/test/needstest"
)

// What a document says stands for what the test has: the console listens on a free
// port, and nobody has put a proxy with TLS before it.
const (
	usualListen = "127.0.0.1:8700"
	publicBot   = "https://bot.example.com/" // with a path after it: alone it is only named
)

// Bounds of one step, and of the wait for what a running program prints.
const (
	stepLimit  = 90 * time.Second
	printLimit = 20 * time.Second
)

// reader is somebody who follows a document: a shell, a directory with the repository's
// files, a home. It belongs to one goroutine.
type reader struct {
	t       testing.TB
	dir     string // where the blocks run
	tmp     string
	env     []string
	listen  string
	shell   *exec.Cmd
	steps   io.WriteCloser
	answers *bufio.Scanner
	files   *os.Root // of dir
	n       int
	running []running
}

// running is a program that goes on.
type running struct {
	pid     string
	name    string
	printed *printed
}

// end ends it when there is no shell any more that could.
func (p running) end() {
	_ = exec.Command("kill", "-INT", "--", "-"+p.pid).Run() // it may be gone
	ctx, cancel := context.WithTimeout(context.Background(), printLimit)
	defer cancel()
	p.printed.wait(ctx, func(string) bool { return false })
	_ = exec.Command("kill", "-KILL", "--", "-"+p.pid).Run()
}

// printed is what a program that goes on has written.
type printed struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed when there is more
	ended bool
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(b)
	p.wake()
	return len(b), nil
}

func (p *printed) wake() {
	close(p.grown)
	p.grown = make(chan struct{})
}

func (p *printed) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.wake()
}

// wait waits until what was written is enough, and returns it. It is false when the
// program ended before.
func (p *printed) wait(ctx context.Context, enough func(string) bool) (string, bool) {
	for {
		p.mu.Lock()
		s, grown, ended := p.text.String(), p.grown, p.ended
		p.mu.Unlock()
		if enough(s) {
			return s, true
		}
		if ended {
			return s, false
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return s, false
		}
	}
}

// driver is the reader's shell. It takes a step a line from descriptor 3, says its
// status on 4. A program that goes on leads a process group, as it would in a terminal.
const driver = `
while read -r verb file out <&3; do
	if [ -n "${OPENAI_API_KEY:-}" ] && [ -z "${OPENAI_BASE_URL:-}" ]; then
		export OPENAI_BASE_URL="$DOCS_MODEL" # the vendor's server
	fi
	case $verb in
	run)
		. "$file" >"$out" 2>&1 </dev/null 3<&- 4>&-
		echo "status $?" >&4 ;;
	start)
		exec 5>"$out"
		set -m
		( . "$file" ) >&5 2>&1 </dev/null 3<&- 4>&- 5>&- &
		set +m
		exec 5>&-
		echo "pid $!" >&4 ;;
	end)
		alive=ended
		kill -0 "$file" 2>/dev/null && alive=alive
		kill -INT -- "-$file" 2>/dev/null
		wait "$file" 2>/dev/null
		echo "$alive $?" >&4 ;;
	esac
done
`

// newReader makes a reader whose shell has the variables of env.
func newReader(t testing.TB, model string, env ...string) *reader {
	t.Helper()
	tmp, err := os.MkdirTemp("", "docs-") //nolint:usetesting // sockets lie in it, whose names have 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, tmp: tmp, dir: filepath.Join(tmp, "countersign")}
	t.Cleanup(func() { needstest.End(tmp); _ = os.RemoveAll(tmp) }) // a bot outlives a shell that ended by itself
	view(t, r.dir)
	if r.files, err = os.OpenRoot(r.dir); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(tmp, "bin")
	tools(t, bin)
	r.listen = free(t)
	for _, d := range []string{"home", "t"} {
		if err := os.Mkdir(filepath.Join(tmp, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append([]string{
		"PATH=" + bin + ":" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(tmp, "home"), "TMPDIR=" + filepath.Join(tmp, "t"),
		"TMUX_TMPDIR=" + filepath.Join(tmp, "t"), "LANG=C.UTF-8", "COUNTERSIGN_LISTEN=" + r.listen, "COUNTERSIGN_INSTANCE=docs", "DOCS_MODEL=" + model,
	}, env...)
	r.start()
	return r
}

// view makes a directory with what a checkout has, as links: what the reader makes there
// does not come into the repository.
func view(t testing.TB, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	whole, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != ".git" && name != "bot" && name != "dist" && name != "data" {
			if err := os.Symlink(filepath.Join(whole, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// tools puts a go before the real one in the reader's path. It is the real one, in the
// repository instead of the view, so that it finds what it has compiled before; programs
// that it runs or builds run and lie where the reader is.
func tools(t testing.TB, dir string) {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN", "CGO_ENABLED"} // what a new home hides
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var env strings.Builder
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		fmt.Fprintf(&env, "export %s='%s'\n", names[i], value)
	}
	if home, err := os.UserHomeDir(); err == nil { // go asks git for the commit, and git may need to be told whose checkout it trusts
		if config := filepath.Join(home, ".gitconfig"); exists(config) {
			fmt.Fprintf(&env, "export GIT_CONFIG_GLOBAL='%s'\n", config)
		}
	}
	for name, text := range map[string]string{
		"at": "#!/bin/sh\ncd \"$1\" && shift && exec \"$@\"\n",
		"go": fmt.Sprintf(`#!/bin/sh
%s
here=$PWD verb=$1
shift
case $verb in
run) exec '%s' run -C '%s' -exec "'%s/at' '$here'" "$@" ;;
build) if [ "$1" = -o ]; then
	name=$2
	shift 2
	exec '%s' build -C '%s' -o "$here/$name" "$@"
fi ;;
esac
exec '%s' "$verb" -C '%s' "$@"
`, env.String(), goTool, whole, dir, goTool, whole, goTool, whole),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// free is an address on loopback where nobody listens.
func free(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func (r *reader) start() {
	r.t.Helper()
	var pipes [2][2]*os.File
	for i := range pipes {
		from, to, err := os.Pipe()
		if err != nil {
			r.t.Fatal(err)
		}
		pipes[i] = [2]*os.File{from, to}
	}
	r.shell = exec.Command("bash", "--norc", "--noprofile", "-c", driver)
	r.shell.Dir, r.shell.Env = r.dir, r.env
	r.shell.ExtraFiles = []*os.File{pipes[0][0], pipes[1][1]}
	r.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.shell.Start(); err != nil {
		r.t.Fatal(err)
	}
	for _, f := range r.shell.ExtraFiles {
		_ = f.Close()
	}
	r.steps, r.answers = pipes[0][1], bufio.NewScanner(pipes[1][0])
	r.t.Cleanup(func() {
		_ = r.steps.Close()
		_ = syscall.Kill(-r.shell.Process.Pid, syscall.SIGKILL)
		for _, p := range r.running {
			p.end()
		}
		_ = exec.Command("env", "TMUX_TMPDIR="+filepath.Join(r.tmp, "t"), "tmux", "-L", "countersign-docs", "kill-server").Run()
		_ = exec.Command("env", "TMUX_TMPDIR="+filepath.Join(r.tmp, "t"), "tmux", "-L", "countersign-docs.err", "kill-server").Run()
		_ = r.shell.Wait()
		_ = pipes[1][0].Close()
		_ = r.files.Close()
	})
}

// ask sends the shell a step and returns its answer.
func (r *reader) ask(line string) (verb, value string, err error) {
	if _, err := fmt.Fprintln(r.steps, line); err != nil {
		return "", "", fmt.Errorf("the shell has ended")
	}
	late := time.AfterFunc(stepLimit, func() { _ = syscall.Kill(-r.shell.Process.Pid, syscall.SIGKILL) })
	ok := r.answers.Scan()
	if !late.Stop() {
		return "", "", fmt.Errorf("it did not end within %s", stepLimit)
	}
	if !ok {
		return "", "", fmt.Errorf("the shell has ended")
	}
	verb, value, _ = strings.Cut(r.answers.Text(), " ")
	return verb, value, nil
}

// ready is what a program that goes on says when it is there.
var ready = map[bool]*regexp.Regexp{
	false: regexp.MustCompile(`the web console listens.*url=`),
	true:  regexp.MustCompile(`http://\S+/#code=\S+`),
}

func (r *reader) write(text string) (file, out string, err error) {
	r.n++
	file, out = filepath.Join(r.tmp, fmt.Sprintf("step%d.sh", r.n)), filepath.Join(r.tmp, fmt.Sprintf("step%d.out", r.n))
	text = strings.ReplaceAll(text, usualListen, r.listen)
	return file, out, os.WriteFile(file, []byte(strings.ReplaceAll(text, publicBot, "http://"+r.listen+"/")), 0o600)
}

// seen is an output as the document's reader would see it.
func (r *reader) seen(s string) string { return strings.ReplaceAll(s, r.listen, usualListen) }

// do does one step. It returns what was printed; of a program that goes on, from there on
// until shown is there too.
func (r *reader) do(s step, shown string) (output string, err error) {
	if s.runs {
		return r.begin(s, shown)
	}
	file, out, err := r.write(s.text)
	if err != nil {
		return "", err
	}
	_, value, err := r.ask("run " + file + " " + out)
	raw, rerr := os.ReadFile(out)
	output = r.seen(string(raw))
	switch {
	case err != nil:
		return output, fmt.Errorf("%w; it printed:\n%s", err, output)
	case value != fmt.Sprint(s.exit):
		return output, fmt.Errorf("exit status %s, want %d; it printed:\n%s", value, s.exit, output)
	}
	return output, rerr
}

// begin starts a program that goes on and waits until it is there.
func (r *reader) begin(s step, shown string) (output string, err error) {
	text := s.text[:s.verb] + "exec " + s.text[s.verb:]
	if s.demo {
		text = "unset COUNTERSIGN_LISTEN\n" + text // it takes a free port by itself
	}
	file, out, err := r.write(text)
	if err != nil {
		return "", err
	}
	said, opened, err := listen(r.t, out)
	if err != nil {
		return "", err
	}
	_, pid, err := r.ask("start " + file + " " + out)
	opened()
	if err != nil {
		return "", err
	}
	r.running = append(r.running, running{pid, strings.TrimSpace(s.text), said})
	ctx, cancel := context.WithTimeout(r.t.Context(), stepLimit)
	defer cancel()
	output, ok := said.wait(ctx, ready[s.demo].MatchString)
	if !ok {
		return output, fmt.Errorf("it is not ready; it printed:\n%s", output)
	}
	if shown != "" {
		ctx, cancel := context.WithTimeout(r.t.Context(), printLimit)
		defer cancel()
		output, _ = said.wait(ctx, func(s string) bool { return matches(beginning(shown), r.seen(s)) })
	}
	return r.seen(output), nil
}

// listen makes a pipe with a name, and reads what is written there until all who
// opened it have closed it. opened says that the program's own end is open.
func listen(t testing.TB, name string) (said *printed, opened func(), err error) {
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		return nil, nil, err
	}
	from, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	to, err := os.OpenFile(name, os.O_WRONLY, 0) // without it the reading would end at once
	if err != nil {
		return nil, nil, errors.Join(err, from.Close())
	}
	said = &printed{grown: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(said, from) // ends with the program, or when from is closed
		said.end()
	}()
	t.Cleanup(func() {
		_ = to.Close()
		_ = from.Close()
		<-done
	})
	return said, func() { _ = to.Close() }, nil
}

// beginning is what a program that goes on has to print first.
func beginning(shown string) string { return strings.TrimRight(shown, "\n") + "\n..." }

// interrupt ends the programs that go on, as Ctrl-C would, and says which of them had
// ended by themselves.
func (r *reader) interrupt() error {
	var faults []error
	var left []running
	for _, p := range r.running {
		verb, value, err := r.ask("end " + p.pid)
		switch {
		case err != nil:
			left = append(left, p)
			faults = append(faults, fmt.Errorf("%s: %w", p.name, err))
		case verb != "alive":
			faults = append(faults, fmt.Errorf("%s ended by itself with status %s; it printed:\n%s", p.name, value, p.printed.text.String()))
		case value != "130" && value != "1": // 1 is what "go run" makes of it
			faults = append(faults, fmt.Errorf("%s was interrupted and ended with status %s, want 130", p.name, value))
		}
	}
	r.running = left
	return errors.Join(faults...)
}

// follow runs the blocks of a document, each with what the next one shows of its output.
func (r *reader) follow(doc document) (ran int, faults []fault) {
	for i, b := range doc.blocks {
		if b.marks["file"] != "" {
			if err := r.make(b.marks["file"], b.text); err != nil {
				faults = append(faults, b.fault("the file cannot be made: %v", err))
			}
		}
		if b.lang != "sh" || b.needs() != "" || b.marks["file"] != "" {
			continue
		}
		list, err := steps(b)
		if err != nil {
			faults = append(faults, b.fault("the block cannot be parsed: %v", err))
			continue
		}
		ran++
		shown, at, goesOn := "", 0, false
		if i+1 < len(doc.blocks) && isOutput(doc.blocks, i+1) {
			shown, at = doc.blocks[i+1].text, doc.blocks[i+1].line
		}
		var all strings.Builder
		for j, s := range list {
			until := ""
			if j == len(list)-1 {
				until = shown
			}
			out, err := r.do(s, until)
			if err != nil {
				return ran, append(faults, faultAt(doc.path, s.line, "%s: %v", strings.TrimSpace(s.text), err))
			}
			goesOn = goesOn || s.runs
			all.WriteString(out)
		}
		if goesOn {
			shown = beginning(shown)
		}
		if at > 0 && !matches(shown, all.String()) {
			faults = append(faults, faultAt(doc.path, at, "this is not what the block before prints, which is\n%s", all.String()))
		}
	}
	return ran, faults
}

// isOutput reports whether a block shows what the block before prints.
func isOutput(blocks []block, i int) bool {
	return i > 0 && blocks[i].lang == "text" && blocks[i].marks["kind"] == "" && blocks[i-1].lang == "sh" && blocks[i].section == blocks[i-1].section
}

// make writes a file of the reader's; one of the repository's is never written.
func (r *reader) make(name, text string) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := r.files.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if info, err := r.files.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a file of the repository's", name)
	}
	return r.files.WriteFile(name, []byte(text), 0o600)
}

// A script of one document, whose faults are counted.
func TestTheReaderFindsFaults(t *testing.T) {
	missing(t, "tmux", "apt-get install tmux")
	model := serveModel(t)
	for name, c := range map[string]struct {
		text string
		want string // in the only fault; "" is none
	}{
		"all well":                      {"```sh\nexport A=1\n```\n\n```sh\ncd /\n[ $A = 1 ] && pwd\n```\n\n```\n/\n```\n", ""},
		"a command fails":               {"```sh\ntrue\nfalse\n```\n", "x.md:3: false: exit status 1, want 0"},
		"a failure that was said":       {"```sh\nfalse # exit 1\n```\n", ""},
		"a failure that does not come":  {"```sh\ntrue # exit 1\n```\n", "exit status 0, want 1"},
		"other output":                  {"```sh\necho a\n```\n\nIt says:\n\n```\nb\n```\n", "x.md:8: this is not what the block before prints"},
		"output in another section":     {"```sh\necho a\n```\n\n# More\n\n```\nb\n```\n", ""},
		"an example":                    {"```sh\necho a\n```\n\n```text kind=example\nb\n```\n", ""},
		"the shell ends and a bot runs": {"```yaml file=x.yaml\ngroups: {a: {web: [you]}}\n```\n\n```sh\nexport OPENAI_API_KEY=... OPENAI_MODEL=... COUNTERSIGN_CONFIG=x.yaml\nbot run\nexit 0\n```\n", "the shell has ended"},
		"the shell ends":                {"```sh\nexit 0\n```\n", "the shell has ended"},
		"a file":                        {"```yaml file=a/b.yaml\nx: y\n```\n\n```sh\ncat a/b.yaml\n```\n\n```\nx: y\n```\n", ""},
		"a file of the repository's":    {"```yaml file=go.mod\nx: y\n```\n", "is a file of the repository's"},
		"below the repository":          {"```yaml file=docs/new.yaml\nx: y\n```\n", "the file cannot be made"},
		"a bot that does not start":     {"```sh\nCOUNTERSIGN_CONFIG=nowhere bot run\n```\n", "it is not ready"},
		"a bot that runs":               {"```yaml file=x.yaml\ngroups: {a: {web: [you]}}\n```\n\n```sh\nexport OPENAI_API_KEY=... OPENAI_MODEL=... COUNTERSIGN_CONFIG=x.yaml\nbot run\nbot login you\n```\n\n```\n...\nhttp://127.0.0.1:8700/#code=...\n```\n", ""},
		"no account is needed":          {"```sh needs=account\nfalse\n```\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			doc, faults := parse("x.md", []byte(c.text))
			report(t, faults)
			r := newReader(t, model)
			_, faults = r.follow(doc)
			if err := r.interrupt(); err != nil && len(faults) == 0 {
				t.Error(err)
			}
			if c.want == "" && len(faults) > 0 || c.want != "" && (len(faults) != 1 || !strings.Contains(string(faults[0]), c.want)) {
				t.Errorf("%q, want %q", faults, c.want)
			}
		})
	}
}
