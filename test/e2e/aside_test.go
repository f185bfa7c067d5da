package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// subAgentConfig has one sub-agent that runs commands.
const subAgentConfig = `
sub_agents:
  dba:
    description: Knows our PostgreSQL servers.
    prompt: |
      You look after PostgreSQL.
    preset: none
    additional: [run_shell]
    when: [Queries wait for locks.]
`

// waitingAnswer checks what the model is shown while a request within a call of its own
// waits: the call has no result yet, and nothing else may be proposed.
func waitingAnswer(t *testing.T, s sent) {
	t.Helper()
	got := strings.Join(s.results(), "\n")
	if !strings.Contains(got, "waits for approval and has not run") {
		t.Errorf("the model was shown %q", got)
	}
}

// TestPeopleTalkWhileASubAgentsRequestWaits: the agent answers, the sub-agent's card stays,
// and what the sub-agent reports takes the place of the agent's call.
func TestPeopleTalkWhileASubAgentsRequestWaits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "made")
	model := newCrew(t,
		part{"TASK-locks", []turn{{calls: []call{shell("echo x >> " + file)}}, {text: "The lock is held by 4711."}}},
		part{"why", []turn{{text: "Because the lock blocks every order."}}},
		part{"marmalade", []turn{{text: "I ask the dba.", calls: []call{handed("dba", "TASK-locks: who holds the lock?")}}}},
	)
	c := model.enter(t, subAgentConfig+plainConfig[1:])
	c.tell("find the lock, marmalade")
	c.sees("button: Approve (")
	c.tell("why do you need that?")
	c.sees("Because the lock blocks every order.")
	waitingAnswer(t, model.last("why"))
	if n := lines(file); n != 0 || !strings.Contains(c.page(), "button: Approve (") {
		t.Fatalf("it ran %d times\n%s", n, c.page())
	}
	c.press("approve:")
	eventually(t, "the agent is told", func() bool {
		return strings.Contains(strings.Join(model.last("why").results(), "\n"), "The lock is held by 4711.")
	}, c.shown)
	if n, cards := lines(file), c.cards(); n != 1 || len(cards) != 1 {
		t.Errorf("it ran %d times, with %d cards\n%s", n, len(cards), c.page())
	}
	if strings.Contains(model.last("TASK-locks").body, "why do you") {
		t.Error("the sub-agent was shown what people said in the thread")
	}
}

// TestInsteadWithdrawsASubAgentsRequest: nothing of it runs, and the sub-agent learns why.
func TestInsteadWithdrawsASubAgentsRequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "made")
	model := newCrew(t,
		part{"TASK-locks", []turn{{calls: []call{shell("echo x >> " + file)}}, {text: "Nothing was changed."}}},
		part{"marmalade", []turn{{calls: []call{handed("dba", "TASK-locks: who holds the lock?")}}}},
	)
	c := model.enter(t, subAgentConfig+plainConfig[1:])
	c.tell("find the lock, marmalade")
	c.sees("button: Approve (")
	c.tell("Instead, look at the load")
	c.sees("Withdrawn by alice")
	eventually(t, "the end", func() bool { return c.ends() > 0 }, c.shown)
	if n := lines(file); n != 0 {
		t.Errorf("it ran %d times", n)
	}
	if got := strings.Join(model.last("TASK-locks").results(), "\n"); !strings.Contains(got, "withdrawn") && !strings.Contains(got, "something else") {
		t.Errorf("the sub-agent was told %q", got)
	}
}

// TestPeopleTalkWhileAWorkflowsRequestWaits: the agent answers, the card of the workflow's
// step stays, and the workflow goes on after the decision.
func TestPeopleTalkWhileAWorkflowsRequestWaits(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "old.log")
	if err := os.WriteFile(big, make([]byte, 3<<20), 0o640); err != nil {
		t.Fatal(err)
	}
	model := newCrew(t,
		part{"A file system is full or nearly full", []turn{{text: "The assessment: old.log may be emptied."}}},
		part{"why", []turn{{text: "Because it is the largest file."}}},
	)
	c := model.enter(t, workflowConfig)
	c.tell("run disk-full directory=" + dir + " larger_than_mib=1")
	c.sees("Which file may be emptied?")
	c.tell(big)
	c.sees("button: Approve (")
	c.tell("why this file?")
	c.sees("Because it is the largest file.")
	waitingAnswer(t, model.last("why"))
	if st, err := os.Stat(big); err != nil || st.Size() != 3<<20 || !strings.Contains(c.page(), "button: Approve (") {
		t.Fatalf("%v %v\n%s", st, err, c.page())
	}
	c.as("bob").press("approve:")
	c.sees("**disk-full** is done. " + big + " is empty now.")
	if st, err := os.Stat(big); err != nil || st.Size() != 0 {
		t.Errorf("the file is %v, %v", st, err)
	}
	c.checkTicks("disk-full")
	if n := c.cards(); len(n) != 1 {
		t.Errorf("%d cards: %q", len(n), n)
	}
}

// TestPeopleTalkThroughAnotherReplica: whoever gets the question while a card waits, it is
// answered, and a decision through a third replica counts.
func TestPeopleTalkThroughAnotherReplica(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	counter := filepath.Join(t.TempDir(), "counter")
	llm := model(t, func(results int, user string) turn {
		switch {
		case results > 0:
			return turn{text: "All done."}
		case strings.Contains(user, "was decided"):
			return turn{text: "All done."}
		case strings.Contains(user, "why"):
			return turn{text: "Because it is needed."}
		}
		return turn{text: "I run it.", calls: []call{shell("printf x >> " + counter)}}
	})
	f := newReplicas(t, 3, plainConfig, llm.URL)
	a, b, d := f.bots[0].login("alice"), f.bots[1].login("alice"), f.bots[2].login("alice")
	thread := a.say(t, "please run it")
	button := f.button(a, thread, "approve")
	b.add(t, thread, "why that?")
	f.waitText(d, thread, "Because it is needed.")
	if n := bytesIn(t, counter); n != 0 {
		t.Fatalf("it ran %d times", n)
	}
	// Whoever had the thread is killed: the card is as valid as before.
	f.bots[0].kill()
	d.click(t, thread, button)
	f.waitText(b, thread, "All done.")
	if n := bytesIn(t, counter); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}
