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
	"syscall"
	"testing"

	"countersign/test/needstest"
)

// workflowConfig offers run_workflow beside the tools of people on call.
const workflowConfig = "tools: {additional: [run_workflow]}" + plainConfig

// ticks is the one message that shows how far a workflow is; there must not be a second.
func (c *chatter) ticks(name string) string {
	c.t.Helper()
	var found []string
	for _, r := range c.rows() {
		if first, _, _ := strings.Cut(r.Text, "\n"); first == "**"+name+"**" || strings.HasPrefix(first, "**"+name+"** · ") {
			found = append(found, r.Text)
		}
	}
	if len(found) != 1 {
		c.t.Errorf("%s has %d lists of ticks: %q\n%s", name, len(found), found, c.page())
		return ""
	}
	return found[0]
}

// checkTicks checks that a workflow is done, with a tick or "skipped" at each line.
func (c *chatter) checkTicks(name string) {
	c.t.Helper()
	text := c.ticks(name)
	if !strings.HasPrefix(text, "**"+name+"** · done\n") {
		c.t.Errorf("the list does not say that it is done:\n%s", text)
	}
	for line := range strings.Lines(text) {
		l := strings.TrimSpace(line)
		skipped := strings.HasPrefix(l, "- – ") && strings.Contains(l, "skipped")
		if strings.HasPrefix(l, "- ") && !strings.HasPrefix(l, "- ☑ ") && !skipped {
			c.t.Errorf("not ticked: %s", l)
		}
	}
}

// list checks that a row of a list of the console begins with a name and has some texts.
func (c *chatter) list(id string, fields map[string]string, name string, want ...string) {
	c.t.Helper()
	var out struct {
		Rows []struct {
			Thread string
			Cells  []struct{ Text string }
		}
	}
	if _, err := c.p.do(http.MethodPost, "/api/lists/"+id, map[string]any{"fields": fields}, &out); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range out.Rows {
		if r.Cells[0].Text != name {
			continue
		}
		text := fmt.Sprint(r.Cells)
		for _, w := range want {
			if !strings.Contains(text, w) {
				c.t.Errorf("the list of %s does not say %q of %s: %s", id, w, name, text)
			}
		}
		return
	}
	c.t.Errorf("the list of %s has no %s: %+v", id, name, out.Rows)
}

// run checks what the list of runs says of a runbook that was begun once.
func (c *chatter) run(name, state string) {
	c.t.Helper()
	c.list("runbooks", map[string]string{"show": "runs"}, name, state, "☑", " of ")
}

// TestDiskFullEmptiesTheFileThatAPersonChose runs the shipped runbook against a real
// directory with a large file: it looks, the model says what it sees, a person names the file,
// its card is approved, and the file is empty. Q-23.
//
func TestDiskFullEmptiesTheFileThatAPersonChose(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	big, other := filepath.Join(dir, "logs", "old.log"), filepath.Join(dir, "small")
	if err := os.MkdirAll(filepath.Dir(big), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{big: 3 << 20, other: 100} {
		if err := os.WriteFile(name, make([]byte, n), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	model := newCrew(t, part{"A file system is full or nearly full", []turn{{text: "The assessment: old.log may be emptied."}}})
	c := model.enter(t, workflowConfig)
	c.tell("run disk-full directory=" + dir + " larger_than_mib=1")
	c.sees("Which file may be emptied?")
	if page := c.page(); !strings.Contains(page, "The assessment: old.log may be emptied.") || !strings.Contains(page, big) {
		t.Errorf("the question does not show what was found:\n%s", page)
	}
	if n := c.cards(); len(n) != 0 {
		t.Errorf("its looks ask: %q", n)
	}
	c.run("disk-full", "running")
	c.tell(big)
	c.sees("button: Approve (")
	page := c.page()
	for _, want := range []string{": > '" + big + "'", "Made by: the workflow disk-full, step empty", "The content of this file is lost for good."} {
		if !strings.Contains(page, want) {
			t.Errorf("the card does not say %q:\n%s", want, page)
		}
	}
	if st, err := os.Stat(big); err != nil || st.Size() != 3<<20 {
		t.Errorf("the file was touched before Approve: %v, %v", st, err)
	}
	c.as("bob").press("approve:") // it is high: not by who asked for it
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	if st, err := os.Stat(big); err != nil || st.Size() != 0 || st.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", st, err)
	}
	if st, err := os.Stat(other); err != nil || st.Size() != 100 {
		t.Errorf("the other file is %v, %v", st, err)
	}
	c.checkTicks("disk-full")
	c.run("disk-full", "done")
	c.list("targets", nil, "local", "reached", "ms")
	c.sees("**disk-full** is done. " + big + " is empty now.")
	if n := c.cards(); len(n) != 1 {
		t.Errorf("%d cards: %q", len(n), n)
	}
	// The model step has no tools and its own prompt; the agent is given the whole result.
	nested := model.last("A file system is full")
	if nested.raw["tools"] != nil || !strings.Contains(nested.system(), "You answer one question for a runbook") || !strings.Contains(nested.user(), big) {
		t.Errorf("the model was asked with tools %s:\n%s", nested.raw["tools"], nested.body)
	}
	last := model.last("run disk-full")
	if model.count("run disk-full") != 1 || !strings.Contains(fmt.Sprint(last.results()), `"workflow":"disk-full","done":true`) || !strings.Contains(fmt.Sprint(last.results()), big+" is empty now.") {
		t.Errorf("asked %d times, told %q", model.count("run disk-full"), last.results())
	}
}

// pidIn is the number of a process in a file, 0 without one.
func pidIn(file string) int {
	raw, _ := os.ReadFile(file)
	n, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	return n
}

// runs reports whether a process is there, zombies excepted.
func runs(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return pid > 0 && err == nil && !strings.Contains(string(raw), "State:\tZ")
}

// TestServiceDownRestartsTheService runs the shipped runbook for a service that a
// test started and ended: after Approve it runs again, as another process. Q-23.
//
func TestServiceDownRestartsTheService(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("setsid is missing: install util-linux")
		}
		t.Skip("setsid is missing: install util-linux to test the restart of a service")
	}
	dir := t.TempDir()
	name := fmt.Sprintf("shop-%d.sh", os.Getpid())
	pid, log := filepath.Join(dir, "pid"), filepath.Join(dir, "shop.log")
	for file, text := range map[string]string{
		name:      "echo $$ >" + pid + "\necho shop is up as $$ >>" + log + "\nwhile :; do sleep 0.1; done\n",
		"restart": "setsid sh " + filepath.Join(dir, name) + " </dev/null >/dev/null 2>&1 &\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	end := func() {
		if p := pidIn(pid); runs(p) {
			_ = syscall.Kill(-p, syscall.SIGKILL) // setsid made it the leader of a group
		}
	}
	t.Cleanup(end)
	restart := "sh " + filepath.Join(dir, "restart")
	if out, err := exec.Command("sh", "-c", restart).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Its number is in the file a moment before it has logged anything.
	eventually(t, "the service runs", func() bool {
		raw, _ := os.ReadFile(log)
		return runs(pidIn(pid)) && strings.Contains(string(raw), "shop is up")
	}, func() string { return "" })
	old := pidIn(pid)
	end()
	eventually(t, "the service is down", func() bool { return !runs(old) }, func() string { return "" })

	model := newCrew(t, part{"does not answer. Below is what was found", []turn{{text: "The assessment: it is not there. A restart helps."}}})
	c := model.enter(t, workflowConfig)
	c.tell(fmt.Sprintf("run service-down process=%s restart=%q log=%s", name, restart, log))
	c.sees("Shall it be restarted?")
	if page := c.page(); !strings.Contains(page, "The assessment: it is not there.") || !strings.Contains(page, restart) || !strings.Contains(page, fmt.Sprintf("shop is up as %d", old)) {
		t.Errorf("the question does not show what was found:\n%s", page)
	}
	c.choose("restart it")
	c.sees("button: Approve (")
	if page := c.page(); !strings.Contains(page, "sh -c '"+restart+"'") || !strings.Contains(page, "Made by: the workflow service-down, step restart") {
		t.Errorf("the card is\n%s", page)
	}
	if runs(pidIn(pid)) {
		t.Error("it was restarted before Approve")
	}
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	if p := pidIn(pid); !runs(p) || p == old || lines(log) != 2 {
		t.Errorf("the service has the process %d after %d, and was started %d times", p, old, lines(log))
	}
	c.checkTicks("service-down")
	c.sees("**service-down** is done. It was restarted, and its processes are there:")
	if n := c.cards(); len(n) != 1 {
		t.Errorf("%d cards: %q", len(n), n)
	}
	if got := fmt.Sprint(model.last("run service-down").results()); !strings.Contains(got, `"workflow":"service-down","done":true`) || !strings.Contains(got, name) {
		t.Errorf("the agent was told %q", got)
	}
}

// TestHighLoadEndsTheProcessThatAPersonChose runs the shipped runbook against a
// process that is really busy. The bot is killed while the runbook waits, and goes on where it
// was. Q-23.
//
func TestHighLoadEndsTheProcessThatAPersonChose(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	marker := fmt.Sprintf("busy-%d", os.Getpid())
	busy := exec.Command("sh", "-c", "while :; do :; done", marker)
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- busy.Wait() }()
	t.Cleanup(func() { _ = busy.Process.Kill() })
	number := strconv.Itoa(busy.Process.Pid)
	if len(number) < 2 {
		t.Fatalf("the process has the number %s, which the runbook does not take", number)
	}

	model := newCrew(t, part{"A machine is slow or its load is high", []turn{{text: "The assessment: " + number + " is busy."}}})
	c := model.enter(t, workflowConfig)
	c.tell("run high-load")
	c.sees("Which process shall be slowed down or ended?")
	c.tell("the first one") // no number: asked again
	c.sees(`"the first one" does not match`)
	c.tell(number)
	c.sees("What shall be done with process " + number + "?")
	if page := c.page(); !strings.Contains(page, marker) {
		t.Errorf("the question does not show the process:\n%s", page)
	}
	c.choose("end it")
	c.sees("button: Approve (")
	if page := c.page(); !strings.Contains(page, "kill -TERM '"+number+"'") || !strings.Contains(page, "Made by: the workflow high-load, step term") {
		t.Errorf("the card is\n%s", page)
	}
	select {
	case err := <-ended:
		t.Fatalf("the process ended before Approve: %v", err)
	default:
	}
	c.as("bob").press("approve:")
	eventually(t, "the process has ended", func() bool { return !runs(busy.Process.Pid) }, c.shown)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("it ended by %v", err)
	}
	c.sees("▶ Let the load settle · waits 30s")
	asked := len(model.requests())
	c.b.kill()
	c.again()
	c.tell("status")
	c.sees("Waiting until ")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	c.checkTicks("high-load")
	c.sees("**high-load** is done. Process " + number + ": end it. It has ended.")
	if n := c.cards(); len(n) != 1 || len(model.requests()) != asked+1 {
		t.Errorf("%d requests after %d, %d cards: %q", len(model.requests()), asked, len(n), n)
	}
	if got := fmt.Sprint(model.last("run high-load").results()); !strings.Contains(got, `"workflow":"high-load","done":true`) || !strings.Contains(got, "It has ended.") {
		t.Errorf("the agent was told %q", got)
	}
}

// ownWorkflow has two changes that are known beforehand, with a look between them, a wait, a
// question, a change that is a gate, and an end.
const ownWorkflow = workflowConfig + `
workflows:
  inline:
    tidy: |
      name: tidy
      description: Tidies up.
      inputs:
        dir: {type: string, description: Where, required: true, pattern: /.*}
        times: {type: integer, description: How often, default: 1, min: 1, max: 3}
      steps:
        - id: one
          title: The first change
          call: {tool: run_shell, arguments: {command: 'printf 1 >> ${inputs.dir}/ran'}}
        - id: looked
          title: A look
          call: {tool: run_shell, arguments: {command: 'cat ${inputs.dir}/ran'}}
        - id: two
          title: The second change
          call: {tool: run_shell, arguments: {command: 'printf 2 >> ${inputs.dir}/ran'}}
        - id: pause
          title: A pause
          wait: 2s
        - id: sure
          title: Go on or not
          ask: {question: 'There is ${steps.looked.output}. Go on?', choices: [leave it, go on]}
        - id: left
          if: steps.sure.output == 'leave it'
          stop: {reason: Somebody said so.}
        - id: three
          title: The gate
          gate: true
          call: {tool: run_shell, arguments: {command: 'printf 3 >> ${inputs.dir}/ran', why: the gate}}
        - id: end
          done: {text: 'All is tidy ${inputs.times} times.'}
`

// ran is what the changes of ownWorkflow left in a directory.
func ran(dir string) string {
	raw, _ := os.ReadFile(filepath.Join(dir, "ran"))
	return string(raw)
}

// TestAWorkflowOfOnesOwn: the changes that are known beforehand are on one card, and
// run without another; the gate asks for itself; what people see and what the agent is told
// is the same wherever the bot was killed on the way. Q-23.
//
func TestAWorkflowOfOnesOwn(t *testing.T) {
	t.Parallel()
	for _, kill := range []string{"nowhere", "at the card", "while it waits", "at the question", "at the gate", "vote-stored:1", "vote-stored:2", "outcome-stored:1", "outcome-stored:3"} {
		t.Run(kill, func(t *testing.T) {
			if kill != "nowhere" && kill != "at the gate" {
				needstest.Long(t)
			}
			t.Parallel()
			dir := t.TempDir()
			model := newCrew(t)
			c := &chatter{t: t, b: newBot(t, strings.TrimLeft(ownWorkflow, "\n"), model.url)}
			c.again("COUNTERSIGN_FAILPOINT=" + kill)
			now := func(at string) {
				if at == kill {
					c.b.kill()
					c.again()
				}
			}
			alive := func() { // after a failpoint
				if !c.b.alive() {
					c.again()
				}
			}
			shows := func(text string) {
				t.Helper()
				eventually(t, "the thread shows "+text, func() bool {
					alive()
					rows, err := c.p.messages(c.thread)
					return err == nil && strings.Contains(pageOf(rows), text) && c.b.alive()
				}, c.b.log.String)
			}
			press := func(n int) { // the n-th card, by bob, as often as it takes
				t.Helper()
				b := c.as("bob")
				ids := b.buttons("approve:")
				if len(ids) != 1 {
					t.Fatalf("the buttons are %q\n%s", ids, c.shown())
				}
				eventually(t, "the click is answered", func() bool {
					if !c.b.alive() {
						c.again()
						b = c.as("bob")
					}
					st, err := b.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": fmt.Sprintf("bob-%d", n), "button": ids[0]}, nil)
					return err == nil && st == 200
				}, c.b.log.String)
			}
			c.tell("run tidy dir=" + dir)
			shows("button: Approve all 2 (")
			for _, want := range []string{"1. Add to ran", "2. Add to ran", "printf 1 >> '" + dir + "'/ran", "printf 2 >> '" + dir + "'/ran"} {
				if page := c.page(); !strings.Contains(page, want) || strings.Contains(page, "printf 3") || strings.Contains(page, "3. ") {
					t.Errorf("the card does not say %q, or too much:\n%s", want, page)
				}
			}
			if got := ran(dir); got != "" {
				t.Errorf("before Approve %q ran", got)
			}
			now("at the card")
			press(1)
			shows("A pause · waits 2s")
			now("while it waits")
			shows("There is 1. Go on?")
			if got := ran(dir); got != "12" || len(c.cards()) != 1 {
				t.Errorf("%q ran, with the cards %q", got, c.cards())
			}
			now("at the question")
			c.choose("go on")
			shows("button: Approve (")
			if page := c.page(); !strings.Contains(page, "printf 3 >> '"+dir+"'/ran") || !strings.Contains(page, "Made by: the workflow tidy, step three") {
				t.Errorf("the card of the gate is\n%s", page)
			}
			if got := ran(dir); got != "12" {
				t.Errorf("before the gate %q ran", got)
			}
			now("at the gate")
			press(2)
			shows("the end")
			alive()
			if got := ran(dir); got != "123" || len(c.cards()) != 2 || c.ends() != 1 {
				t.Errorf("%q ran, with the cards %q, and %d ends", got, c.cards(), c.ends())
			}
			c.checkTicks("tidy")
			if page := c.page(); !strings.Contains(page, "2 of 2 done") {
				t.Errorf("the steps of the plan did not run by it:\n%s", page)
			}
			if page := c.page(); strings.Count(page, "**tidy** is done. All is tidy 1 times.") != 1 {
				t.Errorf("its end is not said once:\n%s", page)
			}
			if got := model.last("run tidy").results(); len(got) != 1 || !strings.Contains(got[0], `"workflow":"tidy","done":true`) {
				t.Errorf("the agent was told %q", got)
			}
			if died := strings.Contains(kill, ":"); died && strings.Count(c.b.log.String(), "the web console listens") < 2 {
				t.Errorf("it never died at %s", kill)
			}
		})
	}
}

// TestAModelRunsAWorkflow: run_workflow is a tool as well, whose description names the
// workflows; a denied gate ends it, and so does an outcome that nobody knows. Q-23.
//
func TestAModelRunsAWorkflow(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	t.Run("with inputs that are wrong", func(t *testing.T) {
		var turns []turn
		for _, inputs := range []map[string]any{{}, {"dir": "var"}, {"dir": "/var", "times": 9}, {"dir": "/var", "size": 1}} {
			turns = append(turns, turn{calls: []call{{"run_workflow", give(map[string]any{"name": "tidy", "inputs": inputs})}}})
		}
		turns = append(turns, turn{calls: []call{{"run_workflow", give(map[string]any{"name": "untidy", "inputs": map[string]any{}})}}})
		model := newCrew(t, part{"tidy up", turns})
		c := model.enter(t, ownWorkflow)
		c.say("please tidy up", false)
		got := model.last("tidy up").results()
		if len(got) != len(turns) || len(c.cards()) != 0 {
			t.Fatalf("%q, with the cards %q", got, c.cards())
		}
		for i, want := range []string{`input "dir" is missing`, `input "dir" is "var"`, `input "times" is 9; it must be at most 3`, `tidy has no input "size"`, `"name" must be disk-full, high-load, service-down or tidy, not "untidy"`} {
			if !strings.HasPrefix(got[i], "Tool error: ") || !strings.Contains(got[i], want) {
				t.Errorf("inputs %d: the model is told %q, want %q", i+1, got[i], want)
			}
		}
	})
	for _, tt := range []struct{ name, kill, told, ticks string }{
		{"a denied gate", "", `"done":false`, "it was denied by bob"},
		{"an outcome that nobody knows", "command-noted:3", `"done":false`, "nobody knows whether it happened"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			model := newCrew(t, part{"tidy up", []turn{{calls: []call{{"run_workflow", give(map[string]any{"name": "tidy", "inputs": map[string]any{"dir": dir}})}}}}})
			c := &chatter{t: t, b: newBot(t, strings.TrimLeft(ownWorkflow, "\n"), model.url)}
			c.again("COUNTERSIGN_FAILPOINT=" + tt.kill)
			c.tell("please tidy up")
			c.sees("button: Approve all 2 (")
			req := model.last("tidy up")
			if !slices.Contains(req.names(), "run_workflow") || !strings.Contains(req.body, "Tidies up. Inputs: dir, times (optional).") || !strings.Contains(req.body, "disk-full") {
				t.Errorf("the model is not told of the workflows: %s", req.body)
			}
			b := c.as("bob")
			b.press("approve:")
			c.choose("go on")
			c.sees("button: Approve (")
			if tt.kill == "" {
				b.press("deny:")
			} else {
				id := b.buttons("approve:")[0]
				_, _ = b.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": "dies", "button": id}, nil)
				eventually(t, "it dies", func() bool { return !c.b.alive() }, c.b.log.String)
				c.again()
			}
			eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
			if got := ran(dir); got != "12" {
				t.Errorf("%q ran", got)
			}
			if text := c.ticks("tidy"); !strings.HasPrefix(text, "**tidy** · stopped\n") || !strings.Contains(text, "✗ The gate") || !strings.Contains(text, tt.ticks) {
				t.Errorf("the ticks are\n%s", text)
			}
			if got := model.last("tidy up").results(); len(got) != 1 || !strings.Contains(got[0], tt.told) || !strings.Contains(got[0], tt.ticks) {
				t.Errorf("the agent was told %q", got)
			}
		})
	}
}

// TestAStoppedWorkflowShowsThatItIsOver: after a stop, neither the list of steps nor
// the question look as if the workflow went on, and an answer that comes late says so. The same
// holds for the line of a sub-agent. Q-23.
//
func TestAStoppedWorkflowShowsThatItIsOver(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	t.Run("at a question", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "ran"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		model := newCrew(t)
		c := model.enter(t, ownWorkflow)
		c.tell("run tidy dir=" + dir)
		c.as("bob").press("approve:")
		c.sees("Go on?")
		button := c.buttons("answer:")[0]
		c.tell("stop")
		c.sees("Stopped by alice.")
		late := c.click(button)
		if got := ran(dir); got != "12" || len(model.requests()) != 0 {
			t.Errorf("%q ran, and the model was asked %d times", got, len(model.requests()))
		}
		if text := c.ticks("tidy"); strings.Contains(text, "▶") {
			t.Errorf("the ticks look as if it went on:\n%s", text)
		}
		eventually(t, "the question has lost its buttons", func() bool { return len(c.buttons("answer:")) == 0 }, c.shown)
		if strings.Contains(late, "the workflow goes on") {
			t.Errorf("a late answer is told %q", late)
		}
	})
	t.Run("in a sub-agent", func(t *testing.T) {
		model := newCrew(t,
			part{"TASK", []turn{{calls: []call{shell("echo x >> never")}}}},
			part{"marmalade", []turn{{calls: []call{handed("code_writer", "TASK: do it.")}}}},
		)
		c := model.enter(t, fullConfig)
		c.tell("marmalade")
		c.sees("Made by: the sub-agent code_writer")
		c.tell("stop")
		c.sees("Stopped by alice.")
		if l := c.progressOf("code_writer"); strings.Contains(l, "running") {
			t.Errorf("its line still says %q", l)
		}
	})
}
