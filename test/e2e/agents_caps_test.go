package e2e

import (
	"fmt"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// looks are n turns that each make one call which needs nobody; each differs, so that
// none counts as a repetition.
func looks(n int) (turns []turn) {
	for i := range n {
		turns = append(turns, turn{calls: []call{look(fmt.Sprintf("echo look %d", i+1))}})
	}
	return turns
}

// TestAgentsACapOfTokensAsksForMore: at 80 % the thread is told, once; at the cap the bot asks before it
// asks the model again. Approve lets the turn go on where it was, also when the bot was killed while the card
// waited; Deny ends it with a sentence, and "go on" asks once more.
func TestAgentsACapOfTokensAsksForMore(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed while the card waits is %v", kill), func(t *testing.T) {
			model := newCrew(t, part{"look around", looks(7)}) // 110 tokens each
			c := model.enter(t, "caps: {thread: {tokens: 500}}"+plainConfig)
			c.tell("look around")
			c.sees("asks extend_budget,")
			if n := len(model.requests()); n != 5 {
				t.Errorf("the model was asked %d times before the card", n)
			}
			page := c.page()
			for _, want := range []string{
				"This thread has used 440 of its 500 tokens. At the cap I stop and ask whether to go on.",
				"This thread has used 550 of its 500 tokens, so I paused before asking the model again.",
				"spend 100,000 more tokens",
			} {
				if strings.Count(page, want) != 1 {
					t.Errorf("the thread does not say %q once:\n%s", want, page)
				}
			}
			if kill {
				c.b.kill()
				c.again()
			}
			c.tell("status")
			c.sees("Waiting for a decision (expires in ")
			c.sees("This thread has used 550 of 500 tokens")
			c.as("bob").press("approve:")
			eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
			if n := len(model.requests()); n != 8 {
				t.Errorf("the model was asked %d times, want 8: each look once, and the end", n)
			}
			last := model.last("look around")
			for i := range 7 {
				if n := strings.Count(fmt.Sprint(last.results()), fmt.Sprintf("look %d", i+1)); n == 0 {
					t.Errorf("look %d is missing in %q", i+1, last.results())
				}
			}
			c.tell("status")
			c.sees("This thread has used 880 of 100,500 tokens")
			c.sees("People extended this thread by 100,000 tokens.")
		})
	}
	t.Run("denied", func(t *testing.T) {
		model := newCrew(t, part{"look around", looks(7)})
		c := model.enter(t, "caps: {thread: {tokens: 300}}"+plainConfig)
		c.tell("look around")
		c.as("bob").press("deny:")
		const sentence = "I stopped here: this thread has used 330 of its 300 tokens, and nobody allowed more. Say `go on` to be asked again, or start another thread."
		c.sees(sentence)
		if n := len(model.requests()); n != 3 {
			t.Errorf("the model was asked %d times", n)
		}
		c.tell("status")
		c.sees("Idle: I'm waiting for a message.")
		c.tell("go on")
		eventually(t, "it asks once more", func() bool { return len(c.cards()) == 2 && len(c.buttons("approve:")) == 1 }, c.shown)
		c.as("bob").press("approve:")
		eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	})
	t.Run("disabled is final", func(t *testing.T) {
		model := newCrew(t, part{"look around", looks(7)})
		c := model.enter(t, "caps: {thread: {tokens: 300}}\ntools: {disabled: [extend_budget]}"+plainConfig)
		c.tell("look around")
		c.sees("I stopped here: this thread has used 330 of its 300 tokens, and nobody allowed more.")
		if n := len(c.cards()); n != 0 || len(model.requests()) != 3 {
			t.Errorf("%d cards, %d requests", n, len(model.requests()))
		}
		if page := c.page(); strings.Contains(page, "there is no tool") {
			t.Errorf("people are told of a tool that is missing, where a cap is final:\n%s", page)
		}
	})
	t.Run("the mode readonly ends the turn without a card", func(t *testing.T) {
		model := newCrew(t, part{"look around", looks(7)})
		c := model.enter(t, "caps: {thread: {tokens: 300}}\nagent: {mode: readonly}"+plainConfig)
		c.tell("look around")
		c.sees("I stopped here: this thread has used 330 of its 300 tokens, and nobody allowed more.")
		if n := len(c.cards()); n != 0 || len(model.requests()) != 3 {
			t.Errorf("%d cards, %d requests\n%s", n, len(model.requests()), c.page())
		}
	})
	for _, role := range []string{"oracle", "architect"} {
		t.Run("a role that changes nothing asks all the same: "+role, func(t *testing.T) {
			model := newCrew(t)
			c := model.enter(t, "caps: {thread: {tokens: 100}}\nagent: {role: "+role+"}"+plainConfig)
			c.say("hello", false)
			c.tell("hello again")
			c.sees("asks extend_budget,")
			c.as("bob").press("approve:")
			eventually(t, "the end", func() bool { return c.ends() == 2 }, c.shown)
		})
	}
	t.Run("the model step of a workflow", func(t *testing.T) {
		model := newCrew(t, part{"What is it?", []turn{{text: "It is a disk."}}})
		c := model.enter(t, "caps: {thread: {tokens: 100}}"+plainConfig+`
workflows:
  inline:
    think: |
      name: think
      description: Thinks.
      steps:
        - id: thought
          title: A thought
          model: {prompt: 'What is it?'}
        - id: end
          done: {text: 'So: ${steps.thought.output}'}
`)
		c.say("hello", false)
		c.tell("run think")
		c.sees("asks extend_budget,")
		c.as("bob").press("approve:")
		eventually(t, "the end", func() bool { return c.ends() == 2 }, c.shown)
		if page := c.page(); !strings.Contains(page, "**think** is done. So: It is a disk.") {
			t.Errorf("the workflow did not go on:\n%s", page)
		}
	})
	t.Run("a sub-agent", func(t *testing.T) {
		model := newCrew(t, part{"TASK", looks(4)}, part{"marmalade", []turn{{calls: []call{handed("shell_executor", "TASK: look")}}}})
		c := model.enter(t, "caps: {thread: {tokens: 300}}\n"+fullConfig)
		c.tell("marmalade")
		c.sees("asks extend_budget,")
		c.as("bob").press("approve:")
		eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
		if n := model.count("TASK"); n != 5 {
			t.Errorf("the sub-agent was asked %d times\n%s", n, c.shown())
		}
	})
}

// TestAgentsACapOfDollarsTakesThePriceTable: what a reply costs is in the table, by the model's name
// or by how it begins; the cap of a day holds for all threads together.
func TestAgentsACapOfDollarsTakesThePriceTable(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	model := newCrew(t, part{"look around", looks(4)})
	c := model.enter(t, `
prices:
  "*": {in: 9999, out: 9999}
  scripted*: {in: 1000, out: 5000}
caps: {day: {usd: 0.50}}
`+plainConfig[1:]) // 100 and 10 tokens: $0.15 a reply
	c.say("hello", false)
	c.tell("status")
	c.sees("This thread has used 110 tokens (about $0.15); today 110 tokens ($0.15 of $0.50).")
	other := &chatter{t: t, b: c.b, p: c.p, n: 500} // another thread of alice
	other.tell("look around")
	other.sees("asks extend_budget,")
	if n := len(model.requests()); n != 4 {
		t.Errorf("the model was asked %d times before the card, want 4", n)
	}
	page := other.page()
	for _, want := range []string{
		"This bot has used about $0.60 of its $0.50 today (UTC), in all threads together, so I paused before asking the model again.",
		"$1.00 more", " on 2",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the card does not say %q:\n%s", want, page)
		}
	}
	other.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return other.ends() == 1 }, other.shown)
	c.tell("status")
	c.sees("today 660 tokens ($0.90 of $1.50).")
	c.sees("People extended today by $1.00.")
	// The caps and what was spent of them outlive the bot.
	c.b.stop()
	c.again()
	c.tell("status")
	eventually(t, "the sums are there", func() bool { return strings.Count(c.page(), "today 660 tokens ($0.90 of $1.50).") == 2 }, c.shown)
}
