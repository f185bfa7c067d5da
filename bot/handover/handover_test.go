package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/bot/networks"
	"countersign/store"
	"countersign/store/mem"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// channel is a chat.Opener that keeps what was opened.
type channel struct {
	err    error
	opened map[string]string // text by key
}

func (c *channel) Open(_ context.Context, _, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	if c.err != nil {
		return "", "", c.err
	}
	if _, there := c.opened[key]; !there {
		c.opened[key] = p.Text
	}
	return "web:1", "m1", nil
}

type world struct {
	Desk
	db   *mem.DB
	now  time.Time
	duty approvals.Duty
	web  *channel
}

var ref = policy.Reference{Source: "pd", Schedule: "P1", Level: 1}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{db: mem.Open(), now: start, web: &channel{opened: map[string]string{}}}
	w.Desk = New(Config{
		DB: w.db, Card: func(_ store.Tx, r approvals.Record) chat.Card { return chat.Card{Title: string(r.Action.Bytes)} },
		Problems: func(context.Context) ([]alerts.Problem, error) {
			return []alerts.Problem{
				{Title: "Checkout is *slow*\n@everyone `now`", Firing: true, Since: start, Thread: "web:7"},
				{Title: "Disk", Firing: true, Since: start, Quiet: start.Add(9 * time.Hour), QuietBy: "bob", Thread: "web:8"},
			}, nil
		},
		OnCall: func(policy.Reference) policy.OnCall { return policy.OnCall{Duty: w.duty} },
		Shifts: func() []policy.Reference { return []policy.Reference{ref} }, Channel: func() string { return "web" },
		Opener: func(string) chat.Opener { return w.web }, Link: networks.Link("https://bot.example.com"), Redact: func(s string) string { return s },
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
	})
	return w
}

// change is a request that bob approved and that ran; wait leaves it open.
func (w *world) change(t *testing.T, thread, command string, wait bool) {
	t.Helper()
	a := approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte(command)}
	err := w.db.Update(t.Context(), func(tx store.Tx) error {
		var l approvals.Ledger
		id := approvals.Request{Thread: chat.ThreadID(thread), Call: command, Action: a}.ID()
		r, _ := l.Open(tx, approvals.Record{
			ID: id, Thread: chat.ThreadID(thread), Call: command, Requester: chat.User{ID: "web:alice", Name: "alice"}, Created: w.now, Action: a, State: approvals.Pending,
			Require: approvals.Require{RequesterMay: true, RunWithin: time.Minute, Needs: []approvals.Need{{Count: 1, Groups: []string{"sre"}}}}, ExpiresAt: w.now.Add(time.Hour),
		})
		if wait {
			return nil
		}
		if _, refused, err := l.Vote(tx, id, approvals.Vote{User: chat.User{ID: "web:bob", Name: "bob"}, Approve: true, At: w.now, Digest: r.Digest, Meets: []int{0}}); err != nil || refused != "" {
			return fmt.Errorf("%s %w", refused, err)
		}
		if _, _, why := l.Consume(tx, id, a, w.now); why != "" {
			return errors.New(why)
		}
		l.Finish(tx, id, approvals.Outcome{OK: true, Note: "exit code 0"}, w.now)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAHandoverIsFromTheRecord(t *testing.T) {
	w := newWorld(t)
	w.change(t, "web:1", "old change", false)
	w.now = start.Add(13 * time.Hour)
	w.change(t, "web:1", "restart app", false)
	w.change(t, "web:2", "rm -rf /srv/x", true)
	w.change(t, "slack:T1:C1:1700000000.000100", "secret of another channel", false)
	got, err := w.Handover(t.Context(), "web:9")
	if err != nil {
		t.Fatal(err)
	}
	want := `**Hand-over**, since 01:00 UTC

**Waiting** (1)
- ` + "`rm -rf /srv/x`" + ` for sre, asked by alice at 13:00 UTC https://bot.example.com/#t=web:2

**Changed** (2)
- 13:00 UTC ` + "`restart app`" + `: exit code 0; approved by bob https://bot.example.com/#t=web:1
- 1 in other channels

**Alerts firing** (1)
- ` + "`Checkout is *slow* @everyone 'now'`" + ` since 00:00 UTC https://bot.example.com/#t=web:7

**Silenced** (1)
- ` + "`Disk`" + ` until 09:00 UTC, by bob https://bot.example.com/#t=web:8`
	if got != want {
		t.Errorf("%s", got)
	}
	slack, err := w.Handover(t.Context(), "slack:T1:C1:1.2")
	if err != nil || !strings.Contains(slack, "`secret of another channel`: exit code 0; approved by bob https://slack.com/archives/C1/p1700000000000100") || strings.Contains(slack, "restart app") {
		t.Errorf("%s, %v", slack, err)
	}
}

func TestAHandoverIsOneMessage(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.change(t, "web:1", fmt.Sprintf("change %d %s", i, strings.Repeat("é`", 200)), i%2 == 0)
	}
	got, err := w.Handover(t.Context(), "web:9")
	if err != nil || len(got) > 2000 || !strings.Contains(got, "**Waiting** (30)") || !strings.Contains(got, "**Changed** (30)") || !strings.Contains(got, " more") {
		t.Errorf("%d bytes, %v\n%s", len(got), err, got)
	}
}

func TestAChangeOfShiftIsHandedOverOnce(t *testing.T) {
	w := newWorld(t)
	follow := func() error { return w.follow(t.Context(), ref) }
	on := func(why string, people ...string) { w.duty = approvals.Duty{People: people, Why: why, Level: 1} }
	on("", "Bob")
	if err := follow(); err != nil || len(w.web.opened) != 0 {
		t.Fatalf("the first shift that is seen: %v, %v", w.web.opened, err)
	}
	w.change(t, "web:1", "restart app", false)
	w.now = start.Add(8 * time.Hour)
	on("pd hasn't answered since 02:00 UTC")
	if err := follow(); err != nil || len(w.web.opened) != 0 {
		t.Errorf("a source that is away: %v, %v", w.web.opened, err)
	}
	on("", "Carol")
	w.web.err = errors.New("the network is away")
	if err := follow(); err == nil {
		t.Error("it was not written, without an error")
	}
	w.web.err = nil
	for range 3 {
		if err := follow(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.web.opened) != 1 {
		t.Fatalf("%v", w.web.opened)
	}
	for _, text := range w.web.opened {
		if !strings.HasPrefix(text, "**Hand-over from Bob to Carol, primary**, since 00:00 UTC") || !strings.Contains(text, "restart app") {
			t.Errorf("%s", text)
		}
	}
	// Soon after the change the word is about the shift before; later about this one.
	w.now = w.now.Add(10 * time.Minute)
	if got, err := w.Handover(t.Context(), "web:9"); err != nil || !strings.HasPrefix(got, "**Hand-over**, since 00:00 UTC") {
		t.Errorf("%s, %v", got, err)
	}
	w.now = w.now.Add(3 * time.Hour)
	if got, err := w.Handover(t.Context(), "web:9"); err != nil || !strings.HasPrefix(got, "**Hand-over**, since 08:00 UTC") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAHandoverSaysWhatWasUndone(t *testing.T) {
	r := approvals.Record{State: approvals.Done, Outcome: approvals.Outcome{OK: true, Note: "exit code 0"}}
	for _, tc := range []struct {
		change func(*approvals.Record)
		want   string
	}{
		{func(*approvals.Record) {}, "exit code 0"},
		{func(r *approvals.Record) { r.Trial.Ended = approvals.Kept }, "exit code 0, kept"},
		{func(r *approvals.Record) { r.UndoneAt = time.Now() }, "exit code 0, undone"},
	} {
		tc.change(&r)
		if got := result(r); got != tc.want {
			t.Errorf("%q, not %q", got, tc.want)
		}
	}
}
