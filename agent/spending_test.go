package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/agent/spend"
	"countersign/store"
	"countersign/tools/budget"
)

// purse keeps what people allowed.
type purse struct{ db store.DB }

func (p purse) Extend(ctx context.Context, x budget.Extension) error {
	return p.db.Update(ctx, func(tx store.Tx) error {
		_, err := spend.Allow(tx, spend.Grant{
			Request: string(x.Request), Scope: spend.Scope(x.Scope), Thread: x.Thread, Channel: x.Channel, Day: spend.Day(x.Day),
			Amount: spend.Amount{Tokens: x.Tokens, Money: spend.Money(x.Micros)}, By: "web:alice", At: time.Now(),
		})
		return err
	})
}

// dear is a model whose every reply takes 60,000 tokens.
func dear(m modelFunc) modelFunc {
	return func(ctx context.Context, r llm.Request) (llm.Reply, error) {
		reply, err := m(ctx, r)
		reply.Model, reply.Usage = "gpt-x", llm.Usage{In: 50_000, Out: 10_000}
		return reply, err
	}
}

func TestSpending(t *testing.T) {
	capped := func(t *testing.T, w *world) {
		t.Helper()
		w.stop()
		w.spending = &agent.Spending{Caps: spend.Caps{Thread: spend.Cap{Tokens: 100_000}}, Channel: func(chat.ThreadID) string { return "web" }}
		w.start()
	}
	run(t, "at the cap people are asked, and the turn goes on when they allow more", dear(script("uptime", "df")), func(t *testing.T, w *world) {
		capped(t, w)
		w.say("look")
		c := w.card()
		if w.sh.count("uptime") != 1 || w.sh.count("df") != 1 || !strings.Contains(c.Body+c.Code+fieldsOf(c), "100,000 more tokens") || w.said("finished") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		w.again()
		w.press("approve")
		if !w.said("finished") {
			t.Fatalf("%+v", w.posts())
		}
		w.say("status")
		if !w.said("180,000 of 200,000 tokens") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "when they do not, the turn ends with a sentence, and is not asked about again", dear(script("uptime", "df")), func(t *testing.T, w *world) {
		capped(t, w)
		w.say("look")
		w.press("deny")
		if w.said("finished") || !w.said("nobody allowed more") || w.card().Choose != nil {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "a sub-agent's replies count, and its cap is the thread's", dear(crew("all is well", "uptime", "df")), func(t *testing.T, w *world) {
		capped(t, w)
		w.say("look")
		w.press("approve")
		if w.sh.count("uptime") != 1 || !strings.Contains(fieldsOf(w.card()), "Made by: the sub-agent scout") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
}
