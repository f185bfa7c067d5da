package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"countersign/adapters/chat"
	"countersign/adapters/slack/slackfake"
	"countersign/targets/container/enginetest"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// asker is a scripted model that makes the calls that a test asks for: a message
// "do #3#" makes the third call, and the reply tells what the model was told.
type asker struct {
	mu    sync.Mutex
	calls []call
	told  map[string]string // by the marks of messages
	url   string
}

var mark = regexp.MustCompile(`#(\d+)#`)

func newAsker(t testing.TB) *asker {
	t.Helper()
	a := &asker{told: map[string]string{}}
	inner := model(t, func(results int, user string) turn {
		a.mu.Lock()
		defer a.mu.Unlock()
		m := mark.FindAllStringSubmatch(user, -1)
		if len(m) == 0 {
			return turn{text: "I was asked nothing."}
		}
		last := m[len(m)-1]
		n, _ := strconv.Atoi(last[1])
		if results == 0 && n <= len(a.calls) {
			return turn{calls: []call{a.calls[n-1]}}
		}
		return turn{text: "Told " + last[0] + " " + a.told[last[0]]}
	})
	// Before the scripted model answers, the last result is noted.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var req struct {
			Messages []struct {
				Role    string `json:"role"`
				Content any    `json:"content"`
			} `json:"messages"`
		}
		_ = json.Unmarshal(raw, &req)
		of := ""
		for _, m := range req.Messages {
			text := fmt.Sprint(m.Content)
			if all := mark.FindAllString(text, -1); m.Role == "user" && len(all) > 0 {
				of = all[len(all)-1]
			} else if m.Role == "tool" {
				a.mu.Lock()
				a.told[of] = text
				a.mu.Unlock()
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		inner.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	a.url = srv.URL
	return a
}

// will makes the model ready for a call and returns the message that asks for it.
func (a *asker) will(tool string, args map[string]any) (mark, message string) {
	raw, _ := json.Marshal(args)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, call{tool, string(raw)})
	mark = fmt.Sprintf("#%d#", len(a.calls))
	return mark, "please do " + mark
}

// result is what the model was told of a call.
func (a *asker) result(mark string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told[mark]
}

// fleet is a bot with several machines: this one, a real SSH host and real
// containers.
type fleet struct {
	t      *testing.T
	b      *bot
	model  *asker
	people map[string]*person
	n      int
}

// owned makes a directory that belongs to the user of an SSH host.
func owned(t testing.TB, s *sshtest.Server, name string) string {
	t.Helper()
	dir := filepath.Join(s.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	uid, gid := ids(t, s)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

func ids(t testing.TB, s *sshtest.Server) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(s.User)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}

// as runs a command as the user of the SSH host, as somebody who is logged in there.
func as(t testing.TB, s *sshtest.Server, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = s.Home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.Home, "USER=" + s.User}
	if os.Geteuid() == 0 {
		uid, gid := ids(t, s)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// tmuxOn is tmux on the SSH host, on the socket of a bot.
func tmuxOn(t testing.TB, s *sshtest.Server, b *bot, args ...string) string {
	t.Helper()
	out, err := as(t, s, "tmux", append([]string{"-L", "countersign-" + b.instance}, args...)...)
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return out
}

// needTmux ends a test where there is no tmux.
func needTmux(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		const how = "panes need tmux: apt-get install tmux"
		if os.Getenv("CI") == "true" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
}

// sshTarget is the configuration of a target for an SSH host, in YAML's flow style.
func sshTarget(s *sshtest.Server, more string) string {
	return fmt.Sprintf("{kind: ssh, host: %s, port: %d, user: %s, identities: [%s], approvers: [oncall]%s}", s.Host, s.Port, s.User, s.KeyFile, more)
}

// endOn ends what a bot left running on an SSH host, and removes its shell files.
func endOn(t testing.TB, s *sshtest.Server, b *bot) {
	t.Helper()
	uid, gid := ids(t, s)
	for _, socket := range []string{"", ".err"} {
		cmd := exec.Command("tmux", "-L", "countersign-"+b.instance+socket, "kill-server")
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		}
		_ = cmd.Run()
	}
	_ = os.RemoveAll(os.TempDir() + "/countersign-" + s.User + "-" + b.instance)
}

// newFleet starts a bot; targets are lines of its configuration.
func newFleet(t *testing.T, s *sshtest.Server, targets string, env ...string) *fleet {
	t.Helper()
	needTmux(t)
	f := &fleet{t: t, model: newAsker(t), people: map[string]*person{}}
	config := "targets:\n" + targets + `
groups:
  oncall: {web: [alice, bob]}
  lead: {web: [lou]}
`
	f.b = newBot(t, config, f.model.url, env...)
	t.Cleanup(func() { endOn(t, s, f.b) })
	t.Cleanup(f.b.endTerminals)
	t.Cleanup(f.b.kill)
	f.start()
	return f
}

func (f *fleet) start() {
	f.t.Helper()
	if !f.b.start() {
		f.t.Fatalf("the bot does not start:\n%s", f.b.log)
	}
}

// who is a person at the console.
func (f *fleet) who(name string) *person {
	if f.people[name] == nil {
		f.people[name] = f.b.login(name)
	}
	return f.people[name]
}

// talk is one thread.
type talk struct {
	f  *fleet
	t  *testing.T
	id string
}

func (f *fleet) talk(t *testing.T) *talk { return &talk{f: f, t: t} }

func (k *talk) rows() []row {
	m, err := k.f.who("alice").messages(k.id)
	if err != nil {
		k.t.Fatalf("the console does not answer: %v\n%s", err, k.f.b.log)
	}
	return m
}

// page is all that the thread shows.
func (k *talk) page() string {
	var b strings.Builder
	for _, r := range k.rows() {
		fmt.Fprintf(&b, "[%s] %s\n", r.Key, r.Text)
		if c := r.Card; c != nil {
			fmt.Fprintf(&b, "card: %s\n%s\n%s\n%s\n%s\n%+v\n", c.Title, c.Code, c.Body, strings.Join(c.Warn, "\n"), c.Last, c.Details)
		}
	}
	return b.String()
}

func (k *talk) detail() string { return k.page() + "\n" + k.f.b.log.String() }

func (k *talk) say(name, text string) {
	k.t.Helper()
	k.f.n++
	path, out := "/api/threads", struct {
		Thread string `json:"thread"`
	}{}
	if k.id != "" {
		path += "/" + k.id + "/messages"
	}
	st, err := k.f.who(name).do("POST", path, map[string]string{"id": fmt.Sprintf("m%d", k.f.n), "text": text}, &out)
	if err != nil || st >= 300 {
		k.t.Fatalf("say: %d %v", st, err)
	}
	if out.Thread != "" {
		k.id = out.Thread
	}
}

func (k *talk) answers() []string {
	var out []string
	for _, r := range k.rows() {
		if strings.HasPrefix(r.Key, "answer/") {
			out = append(out, r.Text)
		}
	}
	return out
}

// word says a chat word and returns what the bot answers.
func (k *talk) word(name, text string) string {
	k.t.Helper()
	before := 0
	if k.id != "" {
		before = len(k.answers())
	}
	k.say(name, text)
	eventually(k.t, "an answer to "+text, func() bool { return len(k.answers()) > before }, k.detail)
	all := k.answers()
	return all[len(all)-1]
}

// ask makes the model call a tool for somebody, and waits until there is a card
// about it or the model has its result, which is "" then.
func (k *talk) ask(name, tool string, args map[string]any) (c chat.Card, approve, mark string) {
	k.t.Helper()
	mark, text := k.f.model.will(tool, args)
	k.say(name, text)
	eventually(k.t, "a card about "+text+", or a result", func() bool {
		c, approve = chat.Card{}, ""
		for _, r := range k.rows() {
			if r.Card == nil {
				continue
			}
			for _, b := range r.Card.Choose {
				if strings.HasPrefix(string(b.ID), "approve:") {
					c, approve = *r.Card, string(b.ID)
				}
			}
		}
		return approve != "" || k.ended(mark)
	}, k.detail)
	return c, approve, mark
}

// ended reports whether the turn of a call is over.
func (k *talk) ended(mark string) bool {
	for _, r := range k.rows() {
		if strings.Contains(r.Text, "Told "+mark) {
			return true
		}
	}
	return false
}

// result waits for the end of the turn of a call and returns what the model was told.
func (k *talk) result(mark string) string {
	k.t.Helper()
	eventually(k.t, "the end of "+mark, func() bool { return k.ended(mark) }, k.detail)
	return k.f.model.result(mark)
}

// press decides with a button of the open card.
func (k *talk) press(button string) {
	k.t.Helper()
	k.f.n++
	var ans struct {
		OK     bool   `json:"ok"`
		Notice string `json:"notice"`
	}
	st, err := k.f.who("bob").do("POST", "/api/threads/"+k.id+"/clicks", map[string]string{"id": fmt.Sprintf("c%d", k.f.n), "button": button, "reason": "the test says so"}, &ans)
	if err != nil || st != 200 || !ans.OK {
		k.t.Fatalf("press: %d %v %+v", st, err, ans)
	}
}

// run is ask for a call that needs an approval and gets it.
func (k *talk) run(tool string, args map[string]any) (told string, c chat.Card) {
	k.t.Helper()
	c, approve, mark := k.ask("alice", tool, args)
	if approve == "" {
		k.t.Fatalf("%s was not asked for: %s", tool, k.f.model.result(mark))
	}
	k.press(approve)
	return k.result(mark), c
}

// field is a field of a card.
func field(c chat.Card, name string) string {
	for _, f := range c.Details {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func command(text string, more ...string) map[string]any {
	args := map[string]any{"command": text, "risk": "low", "mutation": true, "privesc": false, "why": "the test asks for it"}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i]] = more[i+1]
	}
	return args
}

func has(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s does not say %q:\n%s", what, w, text)
		}
	}
}

func lacks(t *testing.T, what, text string, not ...string) {
	t.Helper()
	for _, w := range not {
		if strings.Contains(text, w) {
			t.Errorf("%s says %q:\n%s", what, w, text)
		}
	}
}

// content is the content of a file on this machine, which is also the SSH host.
func content(name string) string {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(raw))
}

// watch runs a line in a terminal of its own until the screen shows a text, types
// keys there, and ends it. It returns what the screen showed.
func watch(t *testing.T, env []string, line, until, keys string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
	cmd.Env = append(env, "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var screen bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			mu.Lock()
			screen.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	shown := func() string {
		mu.Lock()
		defer mu.Unlock()
		return screen.String()
	}
	eventually(t, "the terminal shows "+until, func() bool { return strings.Contains(shown(), until) }, func() string { return line + "\n" + shown() })
	if _, err := io.WriteString(tty, keys); err != nil {
		t.Error(err)
	}
	eventually(t, "the end of the terminal", func() bool {
		select {
		case <-ended:
			return true
		default:
			// tmux's own keys to detach, which also work without the keyboard; those that come
			// at once after others count as pasted text, so they are pressed again.
			_, _ = io.WriteString(tty, "\x02d")
			return false
		}
	}, func() string { return line + "\n" + shown() })
	_ = tty.Close()
	_ = cmd.Wait()
	return shown()
}

// attachLine is the line that sessions prints for a session.
func attachLine(t *testing.T, answer string) string {
	t.Helper()
	_, rest, ok := strings.Cut(answer, ": `")
	line, _, ok2 := strings.Cut(rest, "`")
	if !ok || !ok2 {
		t.Fatalf("no line to attach with: %s", answer)
	}
	return line
}

// sshFlags lets a line that begins with ssh use the keys of the test.
func sshFlags(t *testing.T, s *sshtest.Server, line string) string {
	t.Helper()
	rest, ok := strings.CutPrefix(line, "ssh ")
	if !ok {
		t.Fatalf("not a line of ssh: %s", line)
	}
	return fmt.Sprintf("ssh -F /dev/null -i %s -o UserKnownHostsFile=%s -o StrictHostKeyChecking=yes %s", s.KeyFile, s.KnownHosts, rest)
}

// TestTargets is one bot with this machine, an SSH host and containers.
// B-103, B-110, B-111, B-114, D-04 and N-08: machines by configuration, word, argument and flag;
// terminals by default; people attach; relative paths start at the target's directory.
func TestTargets(t *testing.T) {
	needstest.Long(t)
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	work := owned(t, s, "work")
	docker := enginetest.Docker(t)
	box, tiny := docker.Run(t, enginetest.Debian), docker.Run(t, enginetest.Tiny)
	local := t.TempDir()
	f := newFleet(t, s, fmt.Sprintf(`  local: {kind: local, tmux: false, dir: %s, approvers: [oncall]}
  web-1: %s
  plain-1: %s
  box: {kind: container, container: %s, engine: %q, approvers: [oncall], labels: {env: staging}}
  tiny: {kind: container, container: %s, engine: %q, approvers: [oncall]}
  leads: {kind: local, tmux: false, dir: %s, approvers: [oncall], users: [lead]}
  elsewhere: {kind: local, tmux: false, approvers: [oncall], channels: ["slack:CFAR"]}
`, local, sshTarget(s, fmt.Sprintf(", known_hosts: [%s], dir: %s, labels: {env: production, team: web}", s.KnownHosts, work)),
		sshTarget(s, fmt.Sprintf(", known_hosts: [%s], dir: %s, tmux: false", s.KnownHosts, owned(t, s, "plain"))),
		box, docker.Host, tiny, docker.Host, local), "DOCKER_HOST="+docker.Host)

	t.Run("a thread works on the default target until somebody says use", func(t *testing.T) {
		k := f.talk(t)
		_, c := k.run("run_shell", command("echo here > here"))
		if got := field(c, "Target"); !strings.HasSuffix(got, "@local") {
			t.Errorf("the card is about %q", got)
		}
		if got := content(local + "/here"); got != "here" {
			t.Errorf("here: %s", got)
		}
		list := k.word("alice", "use")
		has(t, "the list", list, "`local`", "← this thread", "`web-1` (env=production, team=web): ssh", "`box` (env=staging): container", "`tiny`")
		lacks(t, "alice's list", list, "leads", "elsewhere")
		has(t, "the answer", k.word("alice", "use web-1"), "This thread now works on `web-1` (env=production, team=web).")
		has(t, "the list", k.word("alice", "use"), "`web-1` (env=production, team=web): ssh, reached ← this thread")
		_, c = k.run("run_shell", command("echo there > there"))
		has(t, "the target on the card", field(c, "Target"), s.User+"@ssh:web-1#SHA256:")
		if got := content(work + "/there"); got != "there" {
			t.Errorf("there: %s", got)
		}
		// Another thread is not moved.
		other := f.talk(t)
		has(t, "another thread's list", other.word("alice", "use"), "`local`: local, reached, without terminals ← this thread")
	})

	t.Run("a target that does not exist, or not for these people or here, is refused in words", func(t *testing.T) {
		k := f.talk(t)
		has(t, "the answer", k.word("alice", "use nowhere"), "There is no target nowhere; the targets are box, elsewhere, leads, local, plain-1, tiny, web-1.")
		has(t, "the answer", k.word("alice", "use leads"), "The target leads is for people of lead only; ask one of them.")
		has(t, "the answer", k.word("alice", "use elsewhere"), "may not be used in this channel; use one of its channels (slack:CFAR)")
		has(t, "the list", k.word("alice", "use"), "`local`: local, reached, without terminals ← this thread")
		for target, want := range map[string]string{
			"leads": "is for people of lead only", "elsewhere": "may not be used in this channel", "nowhere": `"target" must be`,
		} {
			_, approve, mark := k.ask("alice", "run_shell", command("echo no > no", "target", target))
			if approve != "" {
				t.Fatalf("%s: a card asks", target)
			}
			has(t, "the result on "+target, k.result(mark), want)
		}
		l := f.talk(t)
		has(t, "lou's answer", l.word("lou", "use leads"), "This thread now works on `leads`.")
		_, approve, mark := l.ask("lou", "run_shell", command("echo led > led"))
		l.press(approve)
		l.result(mark)
		if got := content(local + "/led"); got != "led" {
			t.Errorf("led: %s", got)
		}
		// The thread's target is no way around: alice may not use it there either.
		_, approve, mark = l.ask("alice", "run_shell", command("echo no > no"))
		if approve != "" {
			t.Fatal("a card asks for alice")
		}
		has(t, "alice's result", l.result(mark), "is for people of lead only")
		if got := content(local + "/no"); !strings.Contains(got, "no such file") {
			t.Errorf("no: %s", got)
		}
	})

	t.Run("the model names a machine, and the card does, too", func(t *testing.T) {
		k := f.talk(t)
		told, c := k.run("run_shell", command("echo inside > /tmp/inside; id -un", "target", "box"))
		has(t, "the target on the card", field(c, "Target"), "container:box#")
		has(t, "the result", told, "root")
		if got := docker.CLI(t, "exec", box, "cat", "/tmp/inside"); got != "inside" {
			t.Errorf("inside: %s", got)
		}
		if got := docker.CLI(t, "exec", box, "tmux", "-L", "countersign-"+f.b.instance, "ls"); !strings.Contains(got, "countersign-ops-") {
			t.Errorf("the sessions in the container: %s", got)
		}
		has(t, "the list", k.word("alice", "use"), "`local`: local, reached, without terminals ← this thread")
	})

	// S1: what its own steps, and the making of its terminal, bring about ends no approval.
	for target, dir := range map[string]string{"web-1": work, "box": "/tmp", "plain-1": work} {
		t.Run("a plan of ten steps runs through with one approval on "+target, func(t *testing.T) {
			tree := dir + "/tree-" + f.b.instance + "-" + target
			steps := []string{
				"mkdir " + tree, "cd " + tree + " && echo one > a", "cp " + tree + "/a " + tree + "/b", "sed -i s/one/two/ " + tree + "/b", "mkdir -p " + tree + "/out/deep",
				"mv " + tree + "/b " + tree + "/out/deep/log", "chmod 600 " + tree + "/out/deep/log", "echo three >> " + tree + "/out/deep/log", "rm " + tree + "/a", "ln -s deep " + tree + "/out/link",
			}
			var planned []map[string]any
			for _, s := range steps {
				planned = append(planned, map[string]any{"tool": "run_shell", "arguments": command(s, "target", target)})
			}
			k := f.talk(t)
			told, _ := k.run("propose_plan", map[string]any{"summary": "ten steps", "steps": planned, "risk": "low", "mutation": true, "privesc": false, "why": "the test asks for it"})
			has(t, "the plan", told, "approved")
			for i, s := range steps {
				if c, approve, mark := k.ask("alice", "run_shell", command(s, "target", target)); approve != "" {
					t.Fatalf("step %d asks: %+v", i+1, c)
				} else {
					has(t, s, k.result(mark), `"exit_code":0`)
				}
			}
			_, approve, mark := k.ask("alice", "run_shell", command("cat "+tree+"/out/deep/log; ls "+tree, "target", target))
			if approve != "" {
				k.press(approve)
			}
			has(t, "the end", k.result(mark), `two\nthree\nout\n`)
		})
	}

	t.Run("files are written and read on the SSH host", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use web-1")
		_, c := k.run("write_file", map[string]any{"path": "conf", "content": "one 'quoted' $line\n"})
		has(t, "the card", field(c, "Target")+" "+field(c, "File"), "ssh:web-1#", work+"/conf")
		if got := content(work + "/conf"); got != "one 'quoted' $line" {
			t.Errorf("conf: %s", got)
		}
		st, err := os.Stat(work + "/conf")
		if uid, _ := ids(t, s); err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != uid {
			t.Errorf("conf belongs to somebody else: %v", err)
		}
		_, approve, mark := k.ask("alice", "read_file", map[string]any{"path": "conf", "target": "web-1"})
		if approve != "" {
			t.Fatal("reading asks")
		}
		has(t, "the result", k.result(mark), "one 'quoted' $line")
	})

	t.Run("a pane on the SSH host can be watched with the line that sessions prints", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use web-1")
		k.run("run_shell", command("echo shown-$((6*7)) | tee shown"))
		all := tmuxOn(t, s, f.b, "ls")
		has(t, "tmux ls of the user", all, "countersign-ops-")
		answer := k.word("alice", "sessions")
		has(t, "the answer", answer, "On `web-1` (env=production, team=web):", "(default), watched by 0: `ssh -t -p "+strconv.Itoa(s.Port)+" "+s.User+"@"+s.Host+" ", "attach -r", "shared (%", "`"+work+"`")
		screen := watch(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, sshFlags(t, s, attachLine(t, answer)), "shown-42", "touch evil\r")
		has(t, "the terminal", screen, "tee shown")
		k.run("run_shell", command("touch after"))
		if _, err := os.Stat(work + "/evil"); err == nil {
			t.Error("who only watches can type")
		}
	})

	t.Run("a pane in a container can be watched with the line that sessions prints", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use box")
		k.run("run_shell", command("echo boxed-$((6*7)) > /tmp/boxed; cat /tmp/boxed"))
		answer := k.word("alice", "sessions")
		line := attachLine(t, answer)
		if !strings.HasPrefix(line, "docker exec -it "+box+" ") {
			t.Errorf("the line is %s", line)
		}
		watch(t, []string{"PATH=" + filepath.Dir(docker.Program) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, line, "boxed-42", "")
	})

	t.Run("a container without tmux runs plainly and says so once", func(t *testing.T) {
		k := f.talk(t)
		has(t, "the answer", k.word("alice", "use tiny"), "This thread now works on `tiny`. tiny has no tmux, so nobody can watch commands run there")
		first, c := k.run("run_shell", command("echo plain > /tmp/plain"))
		has(t, "the first result", first, "tiny has no tmux")
		if p := field(c, "Pane"); p != "" {
			t.Errorf("the card names the pane %q", p)
		}
		second, _ := k.run("run_shell", command("echo more >> /tmp/plain"))
		lacks(t, "the second result", second, "There is no tmux")
		// Also where nobody said use.
		other := f.talk(t)
		first, _ = other.run("run_shell", command("true > /tmp/other", "target", "tiny"))
		has(t, "the first result of another thread", first, "tiny has no tmux")
		if got := docker.CLI(t, "exec", tiny, "cat", "/tmp/plain"); got != "plain\nmore" {
			t.Errorf("plain: %q", got)
		}
		has(t, "the sessions", k.word("alice", "sessions"), "There is no terminal on `tiny`.")
	})

	t.Run("a connection that is lost in the middle is said honestly, and the next command works", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use web-1")
		k.run("run_shell", command("touch before"))
		_, approve, mark := k.ask("alice", "run_shell", command("touch begun; sleep 2; echo 7 > whole"))
		k.press(approve)
		eventually(t, "it runs", func() bool { _, err := os.Stat(work + "/begun"); return err == nil }, k.detail)
		s.KillConnections()
		told := k.result(mark)
		if !strings.Contains(told, "it may or may not have happened") && !strings.Contains(told, `"exit_code":0`) {
			t.Errorf("the model was told: %s", told)
		}
		eventually(t, "the command on the host ends all the same", func() bool { return content(work+"/whole") == "7" }, k.detail)
		next, _ := k.run("run_shell", command("echo again > again"))
		has(t, "the next result", next, `"exit_code":0`)
		if got := content(work + "/again"); got != "again" {
			t.Errorf("again: %s", got)
		}
	})

	t.Run("a plain command whose connection is lost is followed once it is back", func(t *testing.T) {
		k := f.talk(t)
		has(t, "the answer", k.word("alice", "use plain-1"), "Terminals are off for plain-1. Commands run without one.")
		_, approve, mark := k.ask("alice", "run_shell", command("echo before; touch begun; until [ -e go ]; do sleep 0.1; done; echo after; echo wrong >&2; (exit 3)"))
		k.press(approve)
		dir := filepath.Join(s.Dir, "plain")
		eventually(t, "it runs", func() bool { _, err := os.Stat(dir + "/begun"); return err == nil }, k.detail)
		s.KillConnections()
		if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		has(t, "the result", k.result(mark), `"exit_code":3`, `"stdout":"before\nafter\n"`, `"stderr":"wrong\n"`)
		lacks(t, "the thread", k.page(), "outcome unknown")
		next, _ := k.run("run_shell", command("echo again > again"))
		has(t, "the next result", next, `"exit_code":0`)
	})

	t.Run("a stop ends a plain command whose connection was lost", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use plain-1")
		_, approve, _ := k.ask("alice", "run_shell", command("touch begun2; trap 'touch ended2; exit 1' TERM; while :; do sleep 0.1; done"))
		k.press(approve)
		dir := filepath.Join(s.Dir, "plain")
		eventually(t, "it runs", func() bool { _, err := os.Stat(dir + "/begun2"); return err == nil }, k.detail)
		s.KillConnections()
		k.say("alice", "stop")
		eventually(t, "the turn ends", func() bool { return strings.Contains(k.page(), "Stopped by alice.") }, k.detail)
		eventually(t, "the command ends", func() bool { _, err := os.Stat(dir + "/ended2"); return err == nil }, k.detail)
	})

	t.Run("a host that goes away in the middle can be given up, and is used again when it is back", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use web-1")
		_, approve, _ := k.ask("alice", "run_shell", command("touch away; sleep 1; touch away-whole"))
		k.press(approve)
		eventually(t, "it runs", func() bool { _, err := os.Stat(work + "/away"); return err == nil }, k.detail)
		s.Kill()
		k.say("alice", "stop")
		eventually(t, "the turn ends", func() bool { return strings.Contains(k.page(), "Stopped by alice.") }, k.detail)
		has(t, "the thread", k.page(), "outcome unknown. Contact was lost while this ran.", "Stop was asked for", "could not be interrupted",
			"may or may not have happened")
		lacks(t, "the thread", k.page(), "I'll check")
		s.Restart()
		eventually(t, "the host is used again", func() bool {
			_, approve, mark := k.ask("alice", "run_shell", command("touch back"))
			if approve != "" {
				k.press(approve)
			}
			return strings.Contains(k.result(mark), `"exit_code":0`)
		}, k.detail)
	})

	t.Run("terminals that are not the bot's are left alone, and its own outlive a restart", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use web-1")
		k.run("run_shell", command("mkdir -p sub && cd sub && export KEPT=yes"))
		tmuxOn(t, s, f.b, "new-session", "-d", "-s", "mine", "sleep", "600")
		_, approve, mark := k.ask("alice", "tmux-kill-session", map[string]any{"session": "mine", "risk": "low", "mutation": true, "privesc": false, "why": "to test"})
		if approve != "" {
			t.Fatal("a card asks about a session of somebody else")
		}
		has(t, "the result", k.result(mark), "is not managed by this bot, so it is left alone")
		panes := func() string {
			return tmuxOn(t, s, f.b, "list-panes", "-a", "-F", "#{session_name} #{pane_id} #{pane_pid}")
		}
		before := panes()
		f.b.stop()
		if got := panes(); got != before {
			t.Errorf("the end of the bot changed the panes from\n%s\nto\n%s", before, got)
		}
		f.start()
		told, _ := k.run("run_shell", command("pwd > where; echo $KEPT >> where"))
		has(t, "the result", told, `"exit_code":0`)
		if got := content(work + "/sub/where"); got != work+"/sub\nyes" {
			t.Errorf("where: %s", got)
		}
		if got := panes(); got != before {
			t.Errorf("the panes were\n%s\nand are\n%s", before, got)
		}
		has(t, "the list", k.word("alice", "use"), "`web-1` (env=production, team=web): ssh, reached ← this thread")
	})

	t.Run("a bot that dies in the middle finds its pane again, and finishes the card", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use web-1")
		k.run("run_shell", command("export KEPT=still"))
		_, approve, mark := k.ask("alice", "run_shell", command("touch dying; sleep 1; echo $KEPT > dead; echo said"))
		k.press(approve)
		eventually(t, "it runs", func() bool { _, err := os.Stat(work + "/dying"); return err == nil }, k.detail)
		f.b.kill()
		f.start()
		has(t, "the result", k.result(mark), `"exit_code":0`, `"stdout":"said\n"`)
		lacks(t, "the thread", k.page(), "outcome unknown")
		if got := content(work + "/dead"); got != "still" {
			t.Errorf("dead: %s", got)
		}
		k.run("run_shell", command("echo $KEPT > alive"))
		if got := content(work + "/alive"); got != "still" {
			t.Errorf("alive: %s", got)
		}
	})

	t.Run("a plain command outlives the bot, and its host says how it ended", func(t *testing.T) {
		k := f.talk(t)
		k.word("alice", "use plain-1")
		_, approve, mark := k.ask("alice", "run_shell", command("echo before; touch dying; sleep 2; echo after; echo wrong >&2; echo 7 > plainly; (exit 3)"))
		k.press(approve)
		dir := filepath.Join(s.Dir, "plain")
		eventually(t, "it runs", func() bool { _, err := os.Stat(dir + "/dying"); return err == nil }, k.detail)
		f.b.kill()
		// It ends while the bot is away, so that the other target on this account finds a record of
		// which it knows nothing.
		eventually(t, "it ends", func() bool { return content(dir+"/plainly") == "7" }, k.detail)
		f.start()
		has(t, "the result", k.result(mark), `"exit_code":3`, `"stdout":"before\nafter\n"`, `"stderr":"wrong\n"`)
		lacks(t, "the thread", k.page(), "outcome unknown")
	})

	t.Run("one-shot commands work on the machine that their flags name", func(t *testing.T) {
		home := filepath.Join(f.b.dir, ".ssh")
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{s.KeyFile: "id_ed25519", s.KnownHosts: "known_hosts"} {
			raw, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(home, to), raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		session := func(text string) string { raw, _ := json.Marshal(command(text)); return string(raw) }
		for _, tt := range []struct {
			flags []string
			want  string
		}{
			{[]string{"--target", "web-1"}, s.User + ":countersign-ops-"},
			{[]string{"--target", "web-1", "--tmux", "Night Shift"}, s.User + ":countersign-night-shift-"},
			{[]string{"--ssh", s.User + "@" + s.Address()}, s.User + ":countersign-ops-"},
			{[]string{"--container", box}, "root:countersign-ops-"},
			{[]string{"--container", box, "--tmux", "Night Shift"}, "root:countersign-night-shift-"},
		} {
			args := append(append([]string{"tool"}, tt.flags...), "--yes", "run_shell", session("echo $(id -un):$(tmux display-message -p '#S') | tee /tmp/one-shot; rm /tmp/one-shot"))
			out, errs, code := f.b.run("", args...)
			if code != 0 || !strings.Contains(out, tt.want) {
				t.Errorf("%q: code %d, %s%s", tt.flags, code, out, errs)
			}
		}
		if all, err := as(t, s, "sh", "-c", "ls /tmp/tmux-$(id -u) | grep '^countersign-tool-' | while read -r x; do tmux -L $x ls && echo $x is left; done"); strings.Contains(all, "is left") {
			t.Errorf("one-shot terminals are left running: %s (%v)", all, err)
		}
		_, errs, code := f.b.run("", "tool", "--target", "web-1", "--container", box, "time", "{}")
		if code != 2 || !strings.Contains(errs, "give one of them") {
			t.Errorf("two machines at once: %d %s", code, errs)
		}
	})

	t.Run("two bots on one host do not disturb each other", func(t *testing.T) {
		second := newFleet(t, s, "  local: {kind: local, tmux: false, approvers: [oncall]}\n  web-1: "+
			sshTarget(s, fmt.Sprintf(", known_hosts: [%s], dir: %s", s.KnownHosts, owned(t, s, "second"))))
		panes := func(b *bot) string {
			return tmuxOn(t, s, b, "list-panes", "-a", "-F", "#{session_name} #{pane_id} #{pane_pid}")
		}
		before := panes(f.b)
		k := second.talk(t)
		k.word("alice", "use web-1")
		k.run("run_shell", command("touch by-the-second"))
		own := panes(second.b)
		second.b.stop()
		second.start()
		k.run("run_shell", command("touch again"))
		if now := panes(second.b); now != own {
			t.Errorf("the second bot's panes were\n%s\nand are\n%s", own, now)
		}
		if now := panes(f.b); now != before {
			t.Errorf("the first bot's panes were\n%s\nand are\n%s", before, now)
		}
		first := f.talk(t)
		first.word("alice", "use web-1")
		first.run("run_shell", command("touch by-the-first"))
		if now := panes(second.b); now != own {
			t.Errorf("the second bot's panes were\n%s\nand are\n%s", own, now)
		}
	})
}

// TestHostKeys is the first meeting with an SSH host.
func TestHostKeys(t *testing.T) {
	needstest.Long(t)
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	empty := filepath.Join(t.TempDir(), "known_hosts")
	more := func(word string) string {
		return fmt.Sprintf(", known_hosts: [%s], dir: %s, host_key: %s", empty, owned(t, s, word), word)
	}
	strictHost := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	f := newFleet(t, s, "  local: {kind: local, tmux: false, approvers: [oncall]}\n  fresh: "+sshTarget(s, more("ask"))+
		"\n  stern: "+sshTarget(strictHost, fmt.Sprintf(", known_hosts: [%s], host_key: strict", empty))+
		"\n  behind: "+sshTarget(s, fmt.Sprintf(", known_hosts: [%s], host_key: ask, jump: [stern]", empty)))
	k := f.talk(t)
	trusted := filepath.Join(f.b.dir, "data", "known_hosts")
	unknown := func(target string) string {
		t.Helper()
		_, approve, mark := k.ask("alice", "run_shell", command("touch ran", "target", target))
		if approve != "" {
			t.Fatalf("a command on the unknown host of %s asks", target)
		}
		return k.result(mark)
	}
	nothing := func() {
		t.Helper()
		if _, err := os.Stat(trusted); err == nil {
			t.Errorf("trusted: %s", content(trusted))
		}
	}
	trust := func(target string) (chat.Card, string, string) {
		t.Helper()
		return k.ask("alice", "trust_host_key", map[string]any{"target": target})
	}

	// What the model is told depends on what the target allows.
	has(t, "the result", unknown("fresh"), "is not known", "propose trust_host_key for fresh so that people can compare its fingerprint")
	told := unknown("stern")
	has(t, "the result", told, "is not known", "host_key is strict for stern", "by hand")
	lacks(t, "the result", told, "propose")
	has(t, "the answer", k.word("alice", "use fresh"), "It can't be reached right now", "is not known")
	k.word("alice", "use local")
	_, approve, mark := trust("stern")
	if approve != "" {
		t.Fatal("a card asks about the host of a strict target")
	}
	has(t, "the result", k.result(mark), `"target" must be behind or fresh`)
	_, approve, mark = trust("behind") // whose way leads over the strict one
	if approve != "" {
		t.Fatal("a card asks about the host of a strict target on the way")
	}
	has(t, "the result", k.result(mark), "also that of a target with host_key strict")

	// Nobody is at the keyboard, so nobody compares.
	if out, _, code := f.b.run("", "tool", "--target", "fresh", "trust_host_key", `{"target":"fresh"}`); code == 0 {
		t.Errorf("without anybody: %s", out)
	}
	nothing()

	// Denied: nothing is trusted.
	c, approve, mark := trust("fresh")
	shown, err := exec.CommandContext(t.Context(), "ssh-keygen", "-lf", s.Dir+"/host.pub").Output()
	if err != nil {
		t.Fatal(err)
	}
	has(t, "the card", c.Title+"\n"+c.Risk+"\n"+c.Code+"\n"+field(c, "Target"), "Trust the SSH key of ", "high risk", strings.Fields(string(shown))[1], s.Address(), "ssh-ed25519", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", "ssh:fresh")
	k.press(strings.Replace(approve, "approve:", "deny:", 1))
	k.result(mark)
	nothing()

	// The key changes while the card waits: the approval is not used.
	_, approve, mark = trust("fresh")
	if approve == "" {
		// The same was denied a moment ago and is not asked again in this turn.
		t.Fatalf("no card: %s", k.result(mark))
	}
	sshtest.WriteKey(t, s.Dir+"/host", "")
	s.Restart()
	k.press(approve)
	has(t, "the result", k.result(mark), "no longer what was approved")
	nothing()

	// Approved: the next command works, also after a restart.
	told, _ = k.run("trust_host_key", map[string]any{"target": "fresh"})
	has(t, "the result", told, "is known now, by its key SHA256:")
	told, _ = k.run("run_shell", command("touch ran", "target", "fresh"))
	has(t, "the result", told, `"exit_code":0`)
	if _, err := os.Stat(s.Dir + "/ask/ran"); err != nil {
		t.Error(err)
	}
	_, approve, mark = trust("fresh")
	if approve != "" {
		t.Fatal("a card asks about a host that is known")
	}
	has(t, "the result", k.result(mark), "nothing has to be trusted")
	f.b.stop()
	f.start()
	told, _ = k.run("run_shell", command("touch again", "target", "fresh"))
	has(t, "the result", told, `"exit_code":0`)

	// Another key at a host that is known is never a card.
	f.b.stop()
	sshtest.WriteKey(t, s.Dir+"/host", "")
	s.Restart()
	f.start()
	has(t, "the result", unknown("fresh"), "HAS CHANGED")
	_, approve, mark = trust("fresh")
	if approve != "" {
		t.Fatal("a card asks about a key that changed")
	}
	has(t, "the result", k.result(mark), "cannot be trusted on a card", "HAS CHANGED")
}

// In mode trusting no card would be shown, and nobody would compare the fingerprint.
func TestModeTrustingTrustsNoHostKey(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	f := newFleet(t, s, "  local: {kind: local, tmux: false, approvers: [oncall]}\n  fresh: "+
		sshTarget(s, fmt.Sprintf(", known_hosts: [%s], host_key: ask", filepath.Join(t.TempDir(), "none")))+
		"\nagent: {mode: trusting, until: "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+"}")
	k := f.talk(t)
	_, approve, mark := k.ask("alice", "trust_host_key", map[string]any{"target": "fresh"})
	if approve != "" {
		t.Fatal("a card asks, which is better than this test expects")
	}
	has(t, "the result", k.result(mark), "in mode trusting nobody would compare the host key of fresh")
	if _, err := os.Stat(filepath.Join(f.b.dir, "data", "known_hosts")); err == nil {
		t.Error("the key was trusted")
	}
}

// TestAChannelHasItsOwnTarget: a channel's threads work on the channel's target.
// B-103.
func TestAChannelHasItsOwnTarget(t *testing.T) {
	t.Parallel()
	a, dirs := newAsker(t), map[string]string{"ours": t.TempDir(), "theirs": t.TempDir()}
	w := newWorkspace(t, slackfake.Config{}, a.url)
	config := fmt.Sprintf(`
agent: {target: ours}
targets:
  ours: {kind: local, tmux: false, dir: %s, approvers: [oncall]}
  theirs: {kind: local, tmux: false, dir: %s, approvers: [oncall], channels: ["slack:COPS"]}
groups:
  oncall: {web: [alice], slack: [UALICE, UBOB]}
channels:
  - {platform: slack, id: COPS, target: theirs}
`, dirs["ours"], dirs["theirs"])
	if err := os.WriteFile(filepath.Join(w.bot.dir, "bot.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	for channel, target := range map[string]string{"COPS": "theirs", "CALERT": "ours"} {
		_, text := a.will("run_shell", command("echo "+channel+" > by"))
		root := w.ask("UALICE", channel, text)
		w.sees(channel, root, "on "+target)
		w.press("UBOB", channel, root, "Approve")
		w.sees(channel, root, "Told #")
		if got := content(dirs[target] + "/by"); got != channel {
			t.Errorf("%s: %s", target, got)
		}
	}
	root := w.ask("UALICE", "CALERT", "use theirs")
	w.sees("CALERT", root, "may not be used in this channel")
}
