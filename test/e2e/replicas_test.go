package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"countersign/store/postgres/pgtest"
	"countersign/test/needstest"
)

// replicaSet is several bots on one PostgreSQL store.
type replicaSet struct {
	t    *testing.T
	bots []*bot
}

// newReplicas starts n replicas.
func newReplicas(t *testing.T, n int, config, modelURL string, env ...string) *replicaSet {
	t.Helper()
	url := pgtest.New(t).URL("")
	f := &replicaSet{t: t}
	instance := instanceName()
	for range n {
		b := newBot(t, config, modelURL, append(env, "COUNTERSIGN_STORE="+url)...)
		b.instance = instance
		if len(f.bots) > 0 { // what people approve names the directory and the environment
			b.env = append(b.env, "HOME="+f.bots[0].dir)
			b.dir = f.bots[0].dir
		}
		b.env = append(b.env, "COUNTERSIGN_INSTANCE="+instance)
		f.bots = append(f.bots, b)
		if !b.start() {
			t.Fatalf("a replica does not start:\n%s", b.log)
		}
	}
	t.Cleanup(f.bots[0].endTerminals)
	return f
}

func (f *replicaSet) logs() string {
	var out strings.Builder
	for i, b := range f.bots {
		fmt.Fprintf(&out, "--- replica %d\n%s", i, b.log)
	}
	return out.String()
}

// say begins a thread at a replica.
func (p *person) say(t testing.TB, text string) (thread string) {
	t.Helper()
	var made struct {
		Thread string `json:"thread"`
	}
	if st, err := p.do("POST", "/api/threads", map[string]string{"id": fmt.Sprint("m", time.Now().UnixNano()), "text": text}, &made); err != nil || st >= 300 {
		t.Fatalf("%d %v", st, err)
	}
	return made.Thread
}

// add says more in a thread.
func (p *person) add(t testing.TB, thread, text string) {
	t.Helper()
	if st, err := p.do("POST", "/api/threads/"+thread+"/messages", map[string]string{"id": fmt.Sprint("m", time.Now().UnixNano()), "text": text}, nil); err != nil || st >= 300 {
		t.Fatalf("%d %v", st, err)
	}
}

// button waits for a button of the thread's newest card.
func (f *replicaSet) button(p *person, thread, verb string) (id string) {
	f.t.Helper()
	eventually(f.t, "a card with the button "+verb, func() bool {
		rows, err := p.messages(thread)
		if err != nil {
			return false
		}
		for _, r := range rows {
			if r.Card == nil {
				continue
			}
			for _, c := range r.Card.Choose {
				if strings.HasPrefix(string(c.ID), verb+":") {
					id = string(c.ID)
				}
			}
		}
		return id != ""
	}, f.logs)
	return id
}

func (p *person) click(t *testing.T, thread, button string) {
	t.Helper()
	var ans struct {
		OK     bool   `json:"ok"`
		Notice string `json:"notice"`
	}
	if st, err := p.do("POST", "/api/threads/"+thread+"/clicks", map[string]string{"id": fmt.Sprint("c", time.Now().UnixNano()), "button": button}, &ans); err != nil || st != http.StatusOK || !ans.OK {
		t.Fatalf("%d %v %+v", st, err, ans)
	}
}

func (f *replicaSet) waitText(p *person, thread, text string) {
	f.t.Helper()
	var rows []row
	eventually(f.t, "the thread says "+text, func() bool {
		rows, _ = p.messages(thread)
		return slices.ContainsFunc(rows, func(r row) bool { return strings.Contains(r.Text, text) })
	}, func() string { return fmt.Sprintf("%+v\n%s", rows, f.logs()) })
}

func bytesIn(t *testing.T, counter string) int {
	t.Helper()
	raw, err := os.ReadFile(counter)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(raw)
}

// above is the replica that runs the command whose line holds a text: the one above it among the
// processes.
func (f *replicaSet) above(text string) int {
	f.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, path := range lines {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(raw), text) {
			continue // it has ended, or is another one
		}
		for pid := filepath.Base(filepath.Dir(path)); pid != "1" && pid != "0"; {
			for i, b := range f.bots {
				if b.alive() && strconv.Itoa(b.cmd.Process.Pid) == pid {
					return i
				}
			}
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			_, rest, ok := strings.Cut(string(stat), ") ")
			if err != nil || !ok {
				break
			}
			pid = strings.Fields(rest)[1]
		}
	}
	f.t.Fatalf("no replica runs %s", text)
	return 0
}

// TestReplicas plays a thread over several bots on one PostgreSQL store: whoever gets
// a message or a click, the command runs once; a replica that is killed is taken over
// within five seconds, one that stops at once.
func TestReplicas(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	counter := filepath.Join(t.TempDir(), "counter")
	var asked atomic.Int64
	llm := model(t, func(results int, user string) turn {
		asked.Add(1)
		switch {
		case strings.Contains(user, "many") && results < 20:
			time.Sleep(100 * time.Millisecond)
			return turn{text: "Looking.", calls: []call{{"run_shell", fmt.Sprintf(`{"command":"echo %d","risk":"low","mutation":false,"privesc":false,"why":"a look"}`, results)}}}
		case results > 0 || strings.Contains(user, "hello"):
			return turn{text: "All done."}
		case strings.Contains(user, "long"):
			return turn{text: "I run it.", calls: []call{shell("printf x >> " + counter + "; sleep 30")}}
		}
		return turn{text: "I run it.", calls: []call{shell("printf x >> " + counter)}}
	})
	f := newReplicas(t, 3, plainConfig, llm.URL)
	a, b := f.bots[0].login("alice"), f.bots[1].login("alice")

	// A message at one, the click at another.
	thread := a.say(t, "please run it")
	b.click(t, thread, f.button(b, thread, "approve"))
	f.waitText(a, thread, "All done.")
	if n := bytesIn(t, counter); n != 1 {
		t.Errorf("the command ran %d times", n)
	}

	// Stop at another replica than the one that runs the command.
	_ = os.Remove(counter)
	thread = a.say(t, "something long")
	a.click(t, thread, f.button(a, thread, "approve"))
	eventually(t, "it runs", func() bool { return bytesIn(t, counter) == 1 }, f.logs)
	b.add(t, thread, "status")
	f.waitText(b, thread, "Working: running `")
	began := time.Now()
	b.add(t, thread, "stop")
	f.waitText(b, thread, "Stopped by alice")
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("stop took %v", d)
	}

	// The owner is killed while its command runs: the outcome is unknown, and is said so.
	_ = os.Remove(counter)
	thread = a.say(t, "something long again")
	a.click(t, thread, f.button(a, thread, "approve"))
	eventually(t, "it runs", func() bool { return bytesIn(t, counter) == 1 }, f.logs)
	owner := f.above(counter) // any replica may have taken the thread
	if owner == 1 {
		b = f.bots[0].login("alice")
	}
	killed := time.Now()
	f.bots[owner].kill()
	f.waitText(b, thread, "All done.")
	took := time.Since(killed)
	t.Logf("taken over %v after the kill", took.Round(10*time.Millisecond))
	if took > 10*time.Second { // five are promised; a busy machine may need more
		t.Errorf("taken over after %v", took)
	}
	rows, err := b.messages(thread)
	if err != nil || !slices.ContainsFunc(rows, func(r row) bool {
		return strings.Contains(r.Text, "not known") || strings.Contains(r.Text, "may or may not")
	}) {
		t.Errorf("nobody was told that the outcome is unknown: %v %+v", err, rows)
	}
	if n := bytesIn(t, counter); n != 1 {
		t.Errorf("the command ran %d times", n)
	}

	// One that stops gives its threads back in the middle of their work.
	if !f.bots[owner].start() {
		t.Fatalf("it does not start again:\n%s", f.bots[owner].log)
	}
	a, b = f.bots[0].login("alice"), f.bots[1].login("alice")
	thread = a.say(t, "look at many things")
	before := asked.Load()
	eventually(t, "it works", func() bool { return asked.Load() >= before+3 }, f.logs)
	if err := f.bots[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-f.bots[0].done
	stopped := time.Now()
	f.waitText(b, thread, "All done.")
	t.Logf("done %v after the owner stopped", time.Since(stopped).Round(10*time.Millisecond))
	rows, err = b.messages(thread)
	if err != nil || slices.ContainsFunc(rows, func(r row) bool { return strings.Contains(r.Text, "not known") }) {
		t.Errorf("an outcome was lost: %v %+v", err, rows)
	}
}

// TestAReplicaFinishesTheCommandOfOneThatDied: the one that takes the thread over follows the
// command in its terminal to its end.
func TestAReplicaFinishesTheCommandOfOneThatDied(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	needstest.Program(t, "tmux", "apt-get install tmux")
	dir := t.TempDir()
	llm := model(t, func(results int, _ string) turn {
		if results > 0 {
			return turn{text: "All done."}
		}
		return turn{text: "I run it.", calls: []call{shell("printf x >> " + dir + "/counter; until [ -e " + dir + "/go ]; do sleep 0.05; done; echo to the end; (exit 6)")}}
	})
	f := newReplicas(t, 2, strings.Replace(plainConfig, "tmux: false, ", "", 1), llm.URL)
	a, b := f.bots[0].login("alice"), f.bots[1].login("alice")
	thread := a.say(t, "please run it")
	a.click(t, thread, f.button(a, thread, "approve"))
	eventually(t, "it runs", func() bool { return bytesIn(t, dir+"/counter") == 1 }, f.logs)
	f.bots[0].kill()
	eventually(t, "the other one waits for it", func() bool {
		b.add(t, thread, "status")
		rows, err := b.messages(thread)
		return err == nil && slices.ContainsFunc(rows, func(r row) bool { return strings.Contains(r.Text, "Working: running `") })
	}, f.logs)
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.waitText(b, thread, "All done.")
	rows, err := b.messages(thread)
	if err != nil || !slices.ContainsFunc(rows, func(r row) bool { return strings.Contains(r.Text, "to the end\n") }) ||
		!slices.ContainsFunc(rows, func(r row) bool { return r.Card != nil && strings.Contains(r.Card.Body, "exit 6") }) {
		t.Errorf("%v %+v\n%s", err, rows, f.logs())
	}
	if n := bytesIn(t, dir+"/counter"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

// TestReplicasShareATerminal: the terminal of a thread goes on where the replica that had
// it left it, and only the one that owns the thread types into it.
func TestReplicasShareATerminal(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is not installed")
		}
		t.Skip("tmux is not installed: apt-get install tmux")
	}
	llm := model(t, func(results int, user string) turn {
		switch {
		case results > 0:
			return turn{text: "All done: " + strings.TrimPrefix(user, "alice: ")}
		case strings.Contains(user, "go there"):
			return turn{text: "I go.", calls: []call{shell("cd /usr/lib && kept=yes")}}
		}
		return turn{text: "I look.", calls: []call{shell(`touch /dev/null; echo "kept=$kept dir=$PWD"`)}}
	})
	f := newReplicas(t, 2, strings.Replace(plainConfig, "tmux: false, ", "", 1), llm.URL)
	a, b := f.bots[0].login("alice"), f.bots[1].login("alice")
	thread := a.say(t, "go there")
	a.click(t, thread, f.button(a, thread, "approve"))
	f.waitText(a, thread, "All done: go there")

	// The other one goes on in the same shell, while the first one lives and after it died.
	for i, text := range []string{"where are you", "and now"} {
		b.add(t, thread, text)
		b.click(t, thread, f.button(b, thread, "approve"))
		f.waitText(b, thread, "All done: "+text)
		rows, err := b.messages(thread)
		same := 0
		for _, r := range rows {
			same += strings.Count(r.Text, "\nkept=yes dir=/usr/lib")
		}
		if err != nil || same != i+1 {
			t.Errorf("%d: it is not the same shell: %v %+v\n%s", i, err, rows, f.logs())
		}
		f.bots[0].kill()
	}
}
