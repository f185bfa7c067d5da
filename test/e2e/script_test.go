package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"countersign/test/buildtest"
	"countersign/test/needstest"
)

// TestScripts runs testdata/script, in which people are commands:
//
//	model FILE            the scripted model: a JSON list of {when, turns}; the first entry whose "when" is in the
//	                      last message of a person is taken, and its turn number N, where N tool results came since
//	start | restart | kill
//	alice say TEXT...     anybody may speak: alice and bob are on call, mallory is not
//	alice press approve|deny|stop|undo [reason...]
//	alice edit TEXT...    changes the command on the open card
//	alice late approve|deny: the same on a card that is decided already
//	answer TEXT           what the one who pressed last was told
//	sees TEXT             the thread shows it (waits); ! sees TEXT: it does not, now
//	settled               waits until the bot is idle or waits for people
func TestScripts(t *testing.T) {
	t.Parallel()
	whole := needstest.Whole(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			w := &world{t: t}
			env.Values["world"] = w
			env.Setenv("BOT", binary)
			env.Setenv("PATH", filepath.Dir(binary)+":"+env.Getenv("PATH"))
			env.Setenv("COUNTERSIGN_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			instance := instanceName()
			env.Setenv("COUNTERSIGN_INSTANCE", instance)
			env.Defer(func() { endInstance(instance) })
			env.Defer(func() {
				for _, socket := range []string{"", ".err"} {
					_ = exec.Command("tmux", "-L", "countersign-"+env.Getenv("COUNTERSIGN_INSTANCE")+socket, "kill-server").Run()
				}
			})
			env.Defer(func() {
				if w.b != nil {
					w.b.kill()
				}
			})
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "whole" {
				return whole, nil
			}
			if cond != "unmount" {
				return false, fmt.Errorf("there is no condition %q", cond)
			}
			err := exec.Command("unshare", "-m", "mount", "--bind", "/dev/null", "/dev/full").Run()
			if err != nil && os.Getenv("CI") == "true" {
				return false, fmt.Errorf("mount namespaces are needed under CI: %w", err)
			}
			return err == nil, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"model": cmdModel, "start": cmdStart, "restart": cmdStart, "crash": cmdCrash, "terminate": cmdTerminate, "sees": cmdSees, "answer": cmdAnswer,
			"settled": cmdSettled, "alice": person1("alice"), "bob": person1("bob"), "mallory": person1("mallory"), "lou": person1("lou"),
			"lines": cmdLines, "eventually": cmdEventually, "reload": cmdReload,
		},
	})
}

type world struct {
	t      *testing.T
	b      *bot
	llm    string
	people map[string]*person
	thread string
	notice string
	n      int
}

func of(ts *testscript.TestScript) *world { return ts.Value("world").(*world) }

type rule struct {
	When  string `json:"when"`
	Turns []struct {
		Text  string            `json:"text"`
		Run   string            `json:"run"`
		Claim map[string]any    `json:"claim"`
		Calls []json.RawMessage `json:"calls"`
	} `json:"turns"`
}

func cmdModel(ts *testscript.TestScript, _ bool, args []string) {
	var rules []rule
	ts.Check(json.Unmarshal([]byte(strings.ReplaceAll(ts.ReadFile(args[0]), "$WORK", ts.Getenv("WORK"))), &rules))
	srv := model(of(ts).t, func(results int, user string) turn { return scripted(rules, results, user) })
	of(ts).llm = srv.URL
}

func scripted(rules []rule, results int, user string) turn {
	for _, r := range rules {
		if !strings.Contains(user, r.When) || len(r.Turns) == 0 {
			continue
		}
		tn := r.Turns[min(results, len(r.Turns)-1)]
		out := turn{text: tn.Text}
		if tn.Run != "" {
			args := map[string]any{"command": tn.Run, "risk": "low", "mutation": false, "privesc": false, "why": "the script says so"}
			maps.Copy(args, tn.Claim)
			raw, _ := json.Marshal(args)
			out.calls = append(out.calls, call{"run_shell", string(raw)})
		}
		for _, c := range tn.Calls {
			var x struct {
				Name string          `json:"name"`
				Args json.RawMessage `json:"args"`
				Raw  string          `json:"raw"` // arguments as they are, for broken ones
			}
			_ = json.Unmarshal(c, &x)
			if x.Raw == "" {
				x.Raw = string(x.Args)
			}
			out.calls = append(out.calls, call{x.Name, x.Raw})
		}
		return out
	}
	return turn{text: "I have no script for that."}
}

func cmdStart(ts *testscript.TestScript, _ bool, args []string) {
	w := of(ts)
	if w.b == nil {
		buildtest.Sources(w.t)
		w.b = &bot{t: w.t, dir: ts.MkAbs("."), listen: quietPort(w.t), log: &logBuffer{}, env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + ts.MkAbs("."), "TMPDIR=" + os.TempDir(), "COUNTERSIGN_CONFIG=" + ts.MkAbs("bot.yaml"),
			"COUNTERSIGN_DATA_DIR=" + ts.Getenv("COUNTERSIGN_DATA_DIR"), "COUNTERSIGN_INSTANCE=" + ts.Getenv("COUNTERSIGN_INSTANCE"),
			"OPENAI_BASE_URL=" + w.llm + "/v1", "OPENAI_API_KEY=sk-test-not-a-key", "OPENAI_MODEL=scripted",
		}}
		w.people = map[string]*person{}
	}
	if w.b.alive() {
		w.b.stop()
	}
	if !w.b.start(args...) {
		ts.Fatalf("the bot does not start:\n%s", w.b.log)
	}
}

// stop ends the bot as a service manager would.
func (b *bot) stop() {
	_ = b.cmd.Process.Signal(os.Interrupt)
	select {
	case <-b.done:
	case <-time.After(30 * time.Second):
		b.t.Errorf("the bot did not end:\n%s", b.log)
		b.kill()
	}
}

// cmdTerminate ends the bot with the signal that service managers send.
func cmdTerminate(ts *testscript.TestScript, _ bool, _ []string) {
	b := of(ts).b
	ts.Check(b.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-b.done:
	case <-time.After(30 * time.Second):
		ts.Fatalf("the bot did not end:\n%s", b.log)
	}
	if code := b.cmd.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("the bot ended with status %d:\n%s", code, b.log)
	}
}

func cmdCrash(ts *testscript.TestScript, _ bool, _ []string) { of(ts).b.kill() }

func person1(name string) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		w := of(ts)
		p := w.people[name]
		if p == nil {
			p = w.b.login(name)
			w.people[name] = p
		}
		w.n++
		id := fmt.Sprintf("%s-%d", name, w.n)
		switch args[0] {
		case "say":
			path, body := "/api/threads", map[string]string{"id": id, "text": strings.Join(args[1:], " ")}
			if w.thread != "" {
				path += "/" + w.thread + "/messages"
			}
			var out struct {
				Thread string `json:"thread"`
			}
			st, err := p.do("POST", path, body, &out)
			if err != nil || st >= 300 {
				ts.Fatalf("say: %d %v", st, err)
			}
			if out.Thread != "" {
				w.thread = out.Thread
			}
		case "press", "late", "edit":
			button, verb, text := "", args[1], ""
			if args[0] == "edit" {
				verb, text = "edit", strings.Join(args[1:], " ")
			}
			wait(ts, "there is no open card", func() bool {
				button = findButton(ts, p, w.thread, verb, args[0] == "late")
				return button != ""
			})
			var ans struct {
				Notice string `json:"notice"`
			}
			st, err := p.do("POST", "/api/threads/"+w.thread+"/clicks", map[string]string{"id": id, "button": button, "reason": strings.Join(args[2:], " "), "text": text}, &ans)
			if err != nil || st != http.StatusOK {
				ts.Fatalf("press: %d %v", st, err)
			}
			w.notice = ans.Notice
		default:
			ts.Fatalf("people say, press, edit, or come late; they do not %q", args[0])
		}
	}
}

// findButton finds a button of the newest open card, or with late that of a
// card that is decided already, as in a window that was left open.
func findButton(ts *testscript.TestScript, p *person, thread, verb string, late bool) string {
	rows, err := p.messages(thread)
	if err != nil {
		ts.Fatalf("the console does not answer: %v\n%s", err, p.b.log)
	}
	id := ""
	for _, r := range rows {
		if r.Card == nil {
			continue
		}
		for _, b := range slices.Concat(r.Card.Choose, r.Card.After) {
			if !late && strings.HasPrefix(string(b.ID), verb+":") {
				id = string(b.ID)
			}
		}
		for _, f := range r.Card.Details {
			if late && f.Name == "Request" && r.Card.Final {
				rec, _, _ := strings.Cut(f.Value, ",")
				id = verb + ":" + rec
			}
		}
	}
	return id
}

func wait(ts *testscript.TestScript, what string, ok func() bool) {
	deadline := time.Now().Add(40 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			w := of(ts)
			ts.Fatalf("not in time: %s\n%s\n%s", what, page1(ts), w.b.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// page1 is all that the thread shows, as text.
func page1(ts *testscript.TestScript) string {
	w := of(ts)
	for _, p := range w.people {
		rows, err := p.messages(w.thread)
		if err != nil {
			continue
		}
		var b strings.Builder
		for _, r := range rows {
			fmt.Fprintf(&b, "[%s] %s\n", r.Kind, r.Text)
			if r.Card != nil {
				b.WriteString(cardText(*r.Card))
			}
		}
		return b.String()
	}
	return ""
}

func cmdSees(ts *testscript.TestScript, neg bool, args []string) {
	want := strings.Join(args, " ")
	if neg {
		if all := page1(ts); strings.Contains(all, want) {
			ts.Fatalf("the thread shows %q:\n%s", want, all)
		}
		return
	}
	wait(ts, "the thread does not show "+want, func() bool { return strings.Contains(page1(ts), want) })
}

func cmdAnswer(ts *testscript.TestScript, neg bool, args []string) {
	if want := strings.Join(args, " "); strings.Contains(of(ts).notice, want) == neg {
		ts.Fatalf("the answer was %q", of(ts).notice)
	}
}

func cmdSettled(ts *testscript.TestScript, _ bool, _ []string) {
	w := of(ts)
	var p *person
	for _, p = range w.people {
		break
	}
	wait(ts, "the bot does not come to rest", func() bool {
		var out struct {
			Threads []struct{ ID, State string } `json:"threads"`
		}
		if st, err := p.do("GET", "/api/threads", nil, &out); err != nil || st != 200 {
			return false
		}
		for _, th := range out.Threads {
			if th.ID == w.thread {
				return th.State != "working"
			}
		}
		return false
	})
}

// cmdReload puts another file in the place of the configuration and tells the bot
// to read it.
func cmdReload(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs("bot.yaml"), []byte(ts.ReadFile(args[0])), 0o600))
	w := of(ts)
	before := strings.Count(w.b.log.String(), "reloaded")
	ts.Check(w.b.cmd.Process.Signal(syscall.SIGHUP))
	wait(ts, "the configuration is not read again", func() bool { return strings.Count(w.b.log.String(), "reloaded") > before })
}

// cmdLines checks how many lines a file has; a missing file has none.
// cmdEventually waits for a file.
func cmdEventually(ts *testscript.TestScript, _ bool, args []string) {
	eventually(of(ts).t, args[0]+" is there", func() bool {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil
	}, of(ts).b.log.String)
}

func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	raw, err := os.ReadFile(ts.MkAbs(args[0]))
	if err != nil && !os.IsNotExist(err) {
		ts.Fatalf("%v", err)
	}
	if n := fmt.Sprint(strings.Count(string(raw), "\n")); (n == args[1]) == neg {
		ts.Fatalf("%s has %s lines, want %s", args[0], n, args[1])
	}
}
