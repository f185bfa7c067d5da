//go:build linux

package scale

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
	"countersign/store/postgres"
	"countersign/store/postgres/pgtest"
	"countersign/test/needstest"
)

// TestEveryMessageIsAnsweredOnceAndInOrder has people write in stored threads at three
// replicas: at any of them, at two of them at once, one after the other without waiting
// for an answer, and while one of them is killed.
func TestEveryMessageIsAnsweredOnceAndInOrder(t *testing.T) {
	needstest.Long(t)
	server := pgtest.New(t)
	url := server.URL("")
	rows := played(t)
	if rows.entries != 5*playedTurns {
		t.Errorf("a stored thread has %d entries", rows.entries)
	}
	const threads = 60
	rows.fill(t, url, 0, threads)
	f := startFleet(t, url, options{replicas: 3})
	f.check()

	// Turns with and without cards, each message at two replicas.
	var both sync.WaitGroup
	for n := range 20 {
		both.Go(func() {
			k := f.talkOf(n)
			for i := range 2 {
				kind := byte(looks)
				if (n+i)%4 == 0 {
					kind = cards
				}
				at := f.anyone()
				<-f.say(k, kind, at, (at+1)%3).over
			}
		})
	}
	finished(t, f, &both)
	if s := f.collect(); s.turns != 40 || len(s.begin) != 10 || len(s.answer) != 30 || len(s.press) != 10 {
		t.Errorf("%d turns, %d with a card, %d without, %d clicks", s.turns, len(s.begin), len(s.answer), len(s.press))
	}

	// The owner hears of what comes in elsewhere.
	if got := f.notice(20, 6, 6, true); len(got.heard) != 6 || len(got.stopped) != 6 {
		t.Errorf("%d hints and %d stops were noticed", len(got.heard), len(got.stopped))
	}
	f.check()

	// Messages without waiting for answers, and a replica that is killed among them.
	var chains sync.WaitGroup
	begun := make(chan struct{}, 1000)
	for n := 30; n < threads; n++ {
		chains.Go(func() {
			k := f.talkOf(n)
			for range 6 {
				m := f.say(k, looks, f.anyone())
				select {
				case <-m.accepted:
				case <-time.After(time.Minute):
				}
				begun <- struct{}{}
			}
		})
	}
	for range 60 {
		<-begun
	}
	f.kill(1)
	finished(t, f, &chains)
	f.start(1)
	if s := f.collect(); s.turns != 30*6 {
		t.Errorf("%d messages were answered", s.turns)
	}
	if went, _ := f.takeover(26, 2, 0); len(went) == 0 {
		t.Error("no thread was taken over")
	}
	f.check()

	// The transcripts say the same.
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url, NoHints: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for n := 30; n < threads; n++ {
		var said []string
		if err := db.View(t.Context(), func(tx store.Tx) error {
			said = said[:0]
			for _, e := range history.Load(tx, chat.ThreadID(threadOf(n))) {
				if e.Message != nil {
					said = append(said, tagForm.FindString(e.Message.Text))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(said) != playedTurns+6 {
			t.Errorf("thread %d has the messages %v", n, said)
			continue
		}
		for i, tag := range said[playedTurns:] {
			if numberOf(tag) != i+1 {
				t.Errorf("thread %d has the messages in the order %v", n, said)
			}
		}
	}
}

// TestWhatIsWrongIsNoticed feeds the network with what broken replicas would say.
func TestWhatIsWrongIsNoticed(t *testing.T) {
	posted := func(thread int, key, tags string) report {
		return report{Is: "posted", Thread: threadOf(thread), Key: "reply/" + key, Text: tags, At: 2}
	}
	card := report{Is: "posted", Thread: threadOf(2), Key: "approval/1", Text: "t2x1c", Button: "approve:1", At: 2}
	ran := report{Is: "ran", Thread: threadOf(2), Text: "t2x1c", At: 3}
	for name, tc := range map[string]struct {
		said []report
		want string // "": all is well
	}{
		"answered":              {[]report{posted(1, "3", "t1x1l")}, ""},
		"answered together":     {[]report{posted(1, "3", "t1x1l t1x2l")}, ""},
		"answered twice":        {[]report{posted(1, "3", "t1x1l"), posted(1, "8", "t1x1l t1x2l")}, "nobody waits for"},
		"posted twice":          {[]report{posted(1, "3", "t1x1l"), posted(1, "3", "t1x1l")}, "posted twice"},
		"in the wrong order":    {[]report{posted(1, "3", "t1x2l"), posted(1, "8", "t1x1l")}, "answered after message"},
		"in the wrong thread":   {[]report{posted(2, "3", "t1x1l")}, "answered in"},
		"never asked":           {[]report{posted(1, "3", "t1x7l")}, "nobody waits for"},
		"not accepted":          {[]report{{Is: "delivered", ID: "m/t1x1l", Error: "no"}}, "did not take"},
		"approved":              {[]report{card, {Is: "clicked", ID: "c/t2x1c", At: 2}, ran}, ""},
		"approved and refused":  {[]report{card, {Is: "clicked", ID: "c/t2x1c", Error: "no"}}, "click for"},
		"run twice":             {[]report{card, ran, ran}, "ran twice"},
		"run after it was over": {[]report{card, {Is: "clicked", ID: "c/t2x1c", At: 2}, ran, posted(2, "3", "t2x1c"), ran}, "nobody waits for"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, "", options{replicas: 1})
			f.replicas[0] = &process{in: &lines{w: io.Discard}}
			for _, k := range []byte{looks, looks, cards} {
				n := 1
				if k == cards {
					n = 2
				}
				tag := f.say(f.talkOf(n), k, 0).tag
				if tc.want != "did not take" {
					f.take(0, report{Is: "delivered", ID: "m/" + tag, At: 1, Took: 1})
				}
			}
			for _, r := range tc.said {
				f.take(0, r)
			}
			if wrong := strings.Join(f.wrong, "; "); tc.want == "" && wrong != "" || !strings.Contains(wrong, tc.want) {
				t.Errorf("%q, not %q", wrong, tc.want)
			}
		})
	}
}

// finished waits for those who talk and for all answers.
func finished(t *testing.T, f *fleet, talking *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() { talking.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		f.fail("people wait in vain")
	}
	f.quiet(2 * time.Minute)
}
