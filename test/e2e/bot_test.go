package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/test/buildtest"
	"countersign/test/cagetest"
	"countersign/test/needstest"
)

var binary string

func TestMain(m *testing.M) {
	cagetest.Enter()
	enterUnlocked()
	if binary = cagetest.Binary(); binary != "" {
		os.Exit(m.Run())
	}
	os.Exit(needstest.Tidy(5, func() int {
		dir, err := os.MkdirTemp("", "countersign-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if binary, err = buildtest.Program(context.Background(), dir, "cmd/bot", nil, "-tags", "failpoint"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if out, err := exec.Command("go", "build", "-o", dir, "countersign/cmd/countersign-parser").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "symbols of code are not tested, because the parser does not build (apt-get install gcc): %v\n%s", err, out)
		}
		return m.Run()
	}))
}

// turn is one reply of the scripted model.
type turn struct {
	text  string
	calls []call
}

type call struct{ name, args string }

func shell(command string) call {
	args, _ := json.Marshal(map[string]any{"command": command, "risk": "low", "mutation": true, "privesc": false, "why": "the test asks for it"})
	return call{"run_shell", string(args)}
}

// model is a scripted Chat Completions server: next gets the number of tool
// results since the last message of a person, and that message.
func model(t testing.TB, next func(results int, user string) turn) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Messages []struct {
				Role    string `json:"role"`
				Content any    `json:"content"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		results, user := 0, ""
		for _, m := range req.Messages {
			switch m.Role {
			case "user":
				// A note of the bot may come at any moment, also between a call and its result.
				if text := fmt.Sprint(m.Content); strings.HasPrefix(text, "[countersign] ") {
					user += "\n" + text
				} else {
					results, user = 0, text
				}
			case "tool":
				results++
			}
		}
		tn := next(results, user)
		w.Header().Set("Content-Type", "text/event-stream")
		chunk := func(delta map[string]any, finish any) {
			b, _ := json.Marshal(map[string]any{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
				"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
			fmt.Fprintf(w, "data: %s\n\n", b)
			w.(http.Flusher).Flush()
		}
		chunk(map[string]any{"role": "assistant", "content": tn.text}, nil)
		finish := "stop"
		for i, c := range tn.calls {
			finish = "tool_calls"
			chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": fmt.Sprintf("call%04d%d", results, i), "type": "function",
				"function": map[string]any{"name": c.name, "arguments": c.args}}}}, nil)
		}
		chunk(map[string]any{}, finish)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	return srv
}

// bot is one bot with its data directory; the process may come and go.
type bot struct {
	t      testing.TB
	dir    string
	env    []string
	listen string
	// instance is in the names of its tmux servers, which outlive it.
	instance string
	// wrap is a program that starts the bot, with its first arguments.
	wrap []string
	// program is what is run, with its first arguments; nil is the one that was built for the tests.
	program []string

	cmd  *exec.Cmd
	done chan struct{}
	log  *logBuffer
	url  string
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.WriteString(line + "\n")
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const plainConfig = `
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {web: [alice, bob]}
`

func newBot(t testing.TB, config, modelURL string, env ...string) *bot {
	t.Helper()
	buildtest.Sources(t)
	dir := t.TempDir()
	b := &bot{t: t, dir: dir, listen: quietPort(t), log: &logBuffer{}, instance: instanceName()}
	b.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir(), "COUNTERSIGN_CONFIG=" + filepath.Join(dir, "bot.yaml"),
		"COUNTERSIGN_DATA_DIR=" + filepath.Join(dir, "data"), "OPENAI_BASE_URL=" + modelURL + "/v1", "OPENAI_API_KEY=sk-test-not-a-key",
		"OPENAI_MODEL=scripted", "COUNTERSIGN_INSTANCE=" + b.instance,
	}, env...)
	b.configure(t, config)
	t.Cleanup(func() {
		b.kill()
		endInstance(b.instance)
	})
	return b
}

// configure writes the configuration of a bot that was not started yet.
func (b *bot) configure(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "bot.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// quietPort is an address that nobody else is given while the bot is down: a loopback address of its own, and a port
// below those that the kernel picks.
func quietPort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250), 20000+rand.IntN(12000)))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// instanceName is different for each bot, so that terminals never collide.
func instanceName() string { return fmt.Sprintf("t%x", time.Now().UnixNano()) }

// argv is the program with its arguments.
func (b *bot) argv(args ...string) []string {
	if b.program == nil {
		return append([]string{binary}, args...)
	}
	return slices.Concat(b.program, args)
}

// start starts the process and waits until its console answers; extra is added
// to the environment. It returns false when the process died first.
func (b *bot) start(extra ...string) bool {
	b.t.Helper()
	argv := slices.Concat(b.wrap, b.argv("run"))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(append([]string{}, b.env...), append(extra, "COUNTERSIGN_LISTEN="+b.listen)...)
	cmd.Dir = b.dir
	errs, err := cmd.StderrPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.cmd, b.done = cmd, make(chan struct{})
	ready := make(chan string, 1)
	done := b.done
	go func() {
		defer close(done)
		sc := bufio.NewScanner(errs)
		for sc.Scan() {
			b.log.add(sc.Text())
			if _, u, ok := strings.Cut(sc.Text(), "url="); ok && strings.Contains(sc.Text(), "console listens") {
				select {
				case ready <- strings.TrimSpace(u):
				default:
				}
			}
		}
		_ = cmd.Wait()
	}()
	select {
	case b.url = <-ready:
		b.listen = strings.TrimPrefix(strings.TrimPrefix(b.url, "http://"), "https://")
		return true
	case <-done:
		select {
		case b.url = <-ready:
			b.listen = strings.TrimPrefix(strings.TrimPrefix(b.url, "http://"), "https://")
		default:
		}
		return false
	case <-time.After(30 * time.Second):
		b.t.Fatalf("the bot did not start:\n%s", b.log)
		return false
	}
}

// endTerminals ends the tmux servers that the bot left running.
func (b *bot) endTerminals() { endServers(b.instance) }

func endServers(instance string) {
	for _, socket := range []string{"", ".err"} {
		_ = exec.Command("tmux", "-L", "countersign-"+instance+socket, "kill-server").Run()
	}
	needstest.End("countersign-" + instance) // what was just about to start one, and servers that keep their socket elsewhere
}

// endInstance leaves nothing of a bot behind: its terminals outlive it, and so do their files.
func endInstance(instance string) {
	endServers(instance)
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "countersign-*-"+instance))
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
}

func (b *bot) alive() bool {
	if b.cmd == nil {
		return false
	}
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

func (b *bot) kill() {
	if b.alive() {
		_ = b.cmd.Process.Kill()
		<-b.done
	}
}

// run runs a subcommand to its end.
func (b *bot) run(stdin string, args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	argv := b.argv(args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(append([]string{}, b.env...), "COUNTERSIGN_LISTEN="+b.listen)
	cmd.Dir = b.dir
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// person is somebody at the web console.
type person struct {
	b    *bot
	http *http.Client
	csrf string
}

func (b *bot) login(name string, more ...string) *person {
	b.t.Helper()
	out, errs, code := b.run("", append([]string{"login", name}, more...)...)
	if code != 0 {
		b.t.Fatalf("login %s: %s", name, errs)
	}
	_, secret, ok := strings.Cut(strings.TrimSpace(out), "#code=")
	if !ok {
		b.t.Fatalf("login printed %q", out)
	}
	jar, _ := cookiejar.New(nil)
	p := &person{b: b, http: &http.Client{Jar: jar, Timeout: 10 * time.Second}}
	if st, err := p.do("POST", "/api/login", map[string]string{"code": secret}, nil); err != nil || st != http.StatusNoContent {
		b.t.Fatalf("login %s: %d %v\n%s", name, st, err, b.log)
	}
	var me struct {
		CSRF string `json:"csrf"`
	}
	if st, err := p.do("GET", "/api/me", nil, &me); err != nil || st != 200 || me.CSRF == "" {
		b.t.Fatalf("me: %d %v", st, err)
	}
	p.csrf = me.CSRF
	return p
}

// do sends a request, later when the console says that it is too much at once.
func (p *person) do(method, path string, body, out any) (int, error) {
	for {
		st, after, err := p.once(method, path, body, out)
		if err != nil || st != http.StatusTooManyRequests || after <= 0 {
			return st, err
		}
		time.Sleep(after)
	}
}

func (p *person) once(method, path string, body, out any) (status int, after time.Duration, err error) {
	var r io.Reader
	if body != nil {
		raw, _ := json.Marshal(body)
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, p.b.url+path, r)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", p.b.url)
	req.Header.Set("X-CSRF-Token", p.csrf)
	res, err := p.http.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, 0, err
	}
	if out != nil && len(raw) > 0 {
		if err := json.Unmarshal(raw, out); err != nil {
			return res.StatusCode, 0, fmt.Errorf("%s: %w", raw, err)
		}
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return res.StatusCode, time.Duration(seconds) * time.Second, nil
}

type row struct {
	Key  string     `json:"key"`
	Text string     `json:"text"`
	Kind string     `json:"kind"`
	Card *chat.Card `json:"card"`

	Files []chat.File `json:"files"`
}

func (p *person) messages(thread string) ([]row, error) {
	var out struct {
		Messages []row `json:"messages"`
	}
	st, err := p.do("GET", "/api/threads/"+thread, nil, &out)
	if err == nil && st != 200 {
		err = fmt.Errorf("status %d", st)
	}
	return out.Messages, err
}

// eventually polls until ok or the deadline.
func eventually(t testing.TB, what string, ok func() bool, detail func() string) {
	t.Helper()
	eventuallyIn(t, 40*time.Second, what, ok, detail)
}

// eventuallyIn is eventually for what takes longer.
func eventuallyIn(t testing.TB, limit time.Duration, what string, ok func() bool, detail func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s\n%s", what, detail())
		}
		time.Sleep(15 * time.Millisecond)
	}
}
