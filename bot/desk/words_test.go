package desk

import (
	"context"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/store"
	"countersign/store/mem"
)

// posts is an outbox that notes what is posted.
type posts struct{ all *[]chat.Post }

func (p posts) Put(_ store.Tx, _ chat.ThreadID, post chat.Post)  { *p.all = append(*p.all, post) }
func (posts) Wake(chat.ThreadID)                                 {}
func (posts) Show(context.Context, chat.ThreadID, chat.Progress) {}

// The help is the agent's words and those of the desk, in one order.
func TestTheHelpHasAllWords(t *testing.T) {
	const want = "Write what you need in plain words. Nothing that changes anything runs until one of you presses Approve.\n\n" +
		"| word | what it does |\n|---|---|\n" +
		"| `stop` | stops the running command and this turn |\n" +
		"| `status` | says what I'm doing |\n" +
		"| `approve <id> [reason]` | approves a request |\n" +
		"| `deny <id> [reason]` | denies a request |\n" +
		"| `break-glass <id> <reason>` | approves it alone, where the policy allows it; somebody else must review it |\n" +
		"| `reviewed <id> [note]` | records that you reviewed what was approved alone |\n" +
		"| `ticket` / `ticket <key>` | shows or sets this thread's ticket |\n" +
		"| `undo <id>` | asks to undo what a request changed, like its button |\n" +
		"| `run` / `run <workflow> name=value ...` | lists the workflows; starts one |\n" +
		"| `role` / `role <name>` | lists the roles; gives this thread another one |\n" +
		"| `use` / `use <target>` | lists the machines; makes this thread work on one |\n" +
		"| `exec <target>: <command>` | runs your own command there, approved like mine |\n" +
		"| `sessions` | lists this thread's terminals and how to watch them |\n" +
		"| `take` / `give` | takes the terminal's keyboard and pauses me; gives it back |\n" +
		"| `recording` | posts what this thread's terminals showed |\n" +
		"| `output <id>` | posts a command's whole output as a file |\n" +
		"| `handover` | what is waiting, running and changed, for the next person on call |\n" +
		"| `timeline` | drafts a post-mortem from this thread |\n" +
		"| `export` | posts everything recorded in this thread, with its proof |\n" +
		"| `help` | this list |\n"
	var got []chat.Post
	a := agent.New(agent.Config{DB: mem.Open(), Outbox: posts{&got}, Words: Desk{}.Words()})
	if err := a.Deliver(t.Context(), chat.Event{ID: "1", Thread: "web:1", From: alice, Text: "help", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Text != want {
		t.Errorf("%+v", got)
	}
}
