package scribe_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

// board is a network of one thread, and whose turn it is there.
type board struct {
	mu      sync.Mutex
	ids     []string
	text    map[string]string
	last    int
	reads   int   // of the history
	fails   error // of the next message
	turn    uint64
	whose   *page
	keyless bool
	own     bool     // no replica makes a post of another's draft
	left    []string // drafts of nobody, which are removed at most one a reading
}

// page is the thread as one replica sees it.
type page struct {
	scribe.Plain[string]
	b *board
}

func (*page) Render(p chat.Post) []string {
	if p.Card != nil {
		return []string{strings.TrimSpace(p.Card.Title + " " + p.Card.Last)}
	}
	return []string{p.Text}
}
func (*page) Line(s string) (string, bool)  { return s, len(s) < 100 }
func (*page) Draft(s string) (string, bool) { return s, true }
func (*page) Escape(s string) string        { return s }
func (*page) Channel() string               { return "1" }
func (*page) Refused(error) bool            { return false }

func (*page) ParseRef(m chat.MessageRef) (scribe.Ref, error) {
	number := regexp.MustCompile(`^[0-9]+$`)
	return scribe.ParseRef(m, number, number)
}

func (p *page) Send(ctx context.Context, c scribe.Call, m string) (scribe.Sent, error) {
	if err := c.May(ctx); err != nil {
		return scribe.Sent{}, err
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if err := p.b.fails; err != nil {
		p.b.fails = nil
		return scribe.Sent{}, err
	}
	p.b.last++
	id := strconv.Itoa(p.b.last)
	p.b.ids, p.b.text[id] = append(p.b.ids, id), m
	return scribe.Sent{ID: id}, nil
}

func (p *page) Update(ctx context.Context, c scribe.Call, id, m string) error {
	if err := c.May(ctx); err != nil {
		return err
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if !slices.Contains(p.b.ids, id) {
		return chat.ErrGone
	}
	p.b.text[id] = m
	return nil
}

func (p *page) Delete(ctx context.Context, c scribe.Call, id string) error {
	if err := c.May(ctx); err != nil {
		return err
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.remove(id)
	return nil
}

// remove takes a message away; b.mu is held.
func (b *board) remove(id string) {
	b.ids = slices.DeleteFunc(b.ids, func(i string) bool { return i == id })
}

func (p *page) Recent(context.Context, scribe.Call, string, func(string) bool) (scribe.History, error) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.reads++
	if len(p.b.left) > 0 {
		p.b.remove(p.b.left[0])
		p.b.left = p.b.left[1:]
	}
	return scribe.History{Unclean: len(p.b.left) > 0}, nil
}

func (p *page) Fresh(shared bool) bool { return !shared }

func (p *page) Yield(_ context.Context, _ scribe.Call, id, text string) (scribe.Fate, error) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	switch {
	case !slices.Contains(p.b.ids, id):
		return scribe.Gone, nil
	case p.b.text[id] == text && p.b.own:
		p.b.remove(id)
		return scribe.Gone, nil
	case p.b.text[id] == text:
		return scribe.Stands, nil
	}
	return scribe.Changed, nil
}

type writer struct {
	*scribe.Scribe[string, *page]
	*page
}

const thread = chat.ThreadID("board:1")

func newBoard() *board { return &board{text: map[string]string{}} }

// replica is one of several that write on a board.
func (b *board) replica() *writer {
	w := &writer{page: &page{b: b}}
	w.Scribe = scribe.New[string](scribe.Config[*page]{
		Open: func(chat.ThreadID) (*page, error) { return w.page, nil },
		Turn: func(context.Context, chat.ThreadID) (uint64, bool, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.turn, b.whose == w.page, nil
		},
		Keyless: b.keyless, Times: &scribe.Times{Show: time.Second, After: time.Second / 10, Call: time.Minute, Idle: time.Minute}, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

// posts takes the thread's turn and posts.
func (w *writer) posts(t *testing.T, p chat.Post) chat.MessageRef {
	t.Helper()
	w.b.mu.Lock()
	if w.b.whose != w.page {
		w.b.turn, w.b.whose = w.b.turn+1, w.page
	}
	w.b.mu.Unlock()
	r, err := w.Post(t.Context(), thread, p)
	if err != nil {
		t.Fatalf("posting %q: %v", p.Key, err)
	}
	return r
}

func (b *board) shows(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []string
	for _, id := range b.ids {
		got = append(got, b.text[id])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the thread shows %q, want %q", got, want)
	}
}

// made reports how many messages there ever were.
func (b *board) made(t *testing.T, want int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != want {
		t.Errorf("%d messages were made, want %d", b.last, want)
	}
}

func (b *board) wasRead(t *testing.T, times int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reads != times {
		t.Errorf("the history was read %d times, want %d", b.reads, times)
	}
}

func TestHistory(t *testing.T) {
	b := newBoard()
	one, two := b.replica(), b.replica()
	one.posts(t, chat.Post{Key: "a", Text: "a"})
	one.posts(t, chat.Post{Key: "b", Text: "b"})
	b.wasRead(t, 0) // nothing was ever tried there
	b.fails = errors.New("the answer was lost")
	if _, err := one.Post(t.Context(), thread, chat.Post{Key: "c", Text: "c"}); err == nil {
		t.Fatal("a lost answer is a success")
	}
	one.posts(t, chat.Post{Key: "c", Text: "c"})
	b.wasRead(t, 1)
	one.posts(t, chat.Post{Key: "d", Text: "d"})
	b.wasRead(t, 1)
	for _, known := range []error{chat.ErrRejected, scribe.ErrBusy, &chat.RateLimitedError{After: time.Second}} {
		b.fails = known
		_, _ = one.Post(t.Context(), thread, chat.Post{Key: "e", Text: "e"}) // it fails as it is told to
	}
	one.posts(t, chat.Post{Key: "e", Text: "e"})
	b.wasRead(t, 1)
	two.posts(t, chat.Post{Key: "f", Text: "f"})
	b.wasRead(t, 2)
	one.posts(t, chat.Post{Key: "g", Text: "g"})
	b.wasRead(t, 3)
	b.shows(t, "a", "b", "c", "d", "e", "f", "g")
}

func TestTurns(t *testing.T) {
	t.Run("who has not the turn writes nothing", func(t *testing.T) {
		b := newBoard()
		one, two := b.replica(), b.replica()
		r := one.posts(t, chat.Post{Key: "a", Text: "a"})
		two.posts(t, chat.Post{Key: "b", Text: "b"})
		if _, err := one.Post(t.Context(), thread, chat.Post{Key: "c", Text: "c"}); !errors.Is(err, scribe.ErrMoved) {
			t.Errorf("posting: %v", err)
		}
		if err := one.Edit(t.Context(), thread, r, chat.Post{Key: "a", Text: "A"}); !errors.Is(err, scribe.ErrMoved) {
			t.Errorf("editing: %v", err)
		}
		b.shows(t, "a", "b")
	})
	t.Run("a log that another replica posted below is closed", func(t *testing.T) {
		b := newBoard()
		one, two := b.replica(), b.replica()
		one.posts(t, chat.Post{Key: "a", Text: "a", Log: true})
		two.posts(t, chat.Post{Key: "b", Text: "b", Log: true})
		one.posts(t, chat.Post{Key: "c", Text: "c", Log: true})
		b.shows(t, "a", "b", "c")
	})
	t.Run("what was posted twice is taken back by who has not the turn", func(t *testing.T) {
		b := newBoard()
		one, two := b.replica(), b.replica()
		twice := one.posts(t, chat.Post{Key: "a", Text: "a"})
		kept := two.posts(t, chat.Post{Key: "a", Text: "a"})
		if err := one.Retract(t.Context(), thread, "a", twice, kept); err != nil {
			t.Fatal(err)
		}
		if b.shows(t, "a"); b.ids[0] != "2" {
			t.Error("the wrong one is left")
		}
	})
}

func TestProgress(t *testing.T) {
	show := func(w *writer, p chat.Progress) {
		w.ShowProgress(context.Background(), thread, p)
		time.Sleep(3 * time.Second)
		synctest.Wait()
	}
	for what, run := range map[string]func(t *testing.T, b *board, one *writer){
		"a draft grows and becomes its post": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Text: "ha"})
			b.shows(t, "a", "ha")
			show(one, chat.Progress{Key: "b", Text: "half"})
			b.shows(t, "a", "half")
			one.posts(t, chat.Post{Key: "b", Text: "whole"})
			b.shows(t, "a", "whole")
		},
		"a draft that ended goes with the next other post": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Text: "half"})
			show(one, chat.Progress{Key: "b", Done: true})
			b.shows(t, "a", "half")
			one.posts(t, chat.Post{Key: "c", Text: "c"})
			b.shows(t, "a", "c")
		},
		"a status becomes the draft, and that the post, at its place": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Status: "thinking"})
			b.shows(t, "a", "_thinking…_")
			show(one, chat.Progress{Key: "b", Text: "half"})
			b.shows(t, "a", "half")
			one.posts(t, chat.Post{Key: "b", Text: "whole"})
			b.shows(t, "a", "whole")
			b.made(t, 2)
		},
		"what an approved command prints stands on its card, from the third second on": func(t *testing.T, b *board, one *writer) {
			output := func(text string) chat.Progress {
				return chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Card: "q", Text: text}
			}
			stop := []chat.Button{{ID: "stop:1", Label: "Stop", Style: chat.StyleStop}}
			one.posts(t, chat.Post{Key: "q", Card: &chat.Card{Title: "Build"}})
			one.posts(t, chat.Post{Key: "q", Card: &chat.Card{Title: "Runs", Final: true, After: stop}})
			one.ShowProgress(t.Context(), thread, output("1 of 3\n2 of 3\n"))
			time.Sleep(1900 * time.Millisecond)
			synctest.Wait()
			b.shows(t, "a", "Runs")
			show(one, output("1 of 3\n2 of 3\n20 %\n\n"))
			b.shows(t, "a", "Runs 20 %")
			one.posts(t, chat.Post{Key: "q", Card: &chat.Card{Title: "Done", Final: true}})
			b.shows(t, "a", "Done")
			b.made(t, 2)
		},
		"a card takes no status's place": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Status: "thinking"})
			one.posts(t, chat.Post{Key: "q", Card: &chat.Card{Title: "Restart?"}})
			b.shows(t, "a", "Restart?")
			b.made(t, 3)
		},
		"a message whose key is kept nowhere stays what it is": func(t *testing.T, b *board, _ *writer) {
			b.keyless = true
			one := b.replica()
			defer one.Close()
			one.posts(t, chat.Post{Key: "c", Text: "c"})
			show(one, chat.Progress{Key: "b", Status: "thinking"})
			show(one, chat.Progress{Key: "b", Text: "half"})
			b.shows(t, "a", "c", "half")
			b.made(t, 4)
		},
		"a draft that nothing comes to goes with the next other post": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Text: "half"})
			one.posts(t, chat.Post{Key: "c", Text: "c"})
			b.shows(t, "a", "half", "c")
			time.Sleep(2 * time.Minute)
			one.posts(t, chat.Post{Key: "d", Text: "d"})
			b.shows(t, "a", "c", "d")
		},
		"a draft that nothing comes to goes by itself in the end": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Text: "half"})
			one.Keep(t.Context())
			synctest.Wait()
			b.shows(t, "a", "half")
			time.Sleep(2 * time.Minute)
			one.Keep(t.Context())
			synctest.Wait()
			b.shows(t, "a")
		},
		"drafts that cannot be removed at first are, and the post waits for none": func(t *testing.T, b *board, _ *writer) {
			b.left = []string{"x", "y", "z"}
			b.ids, b.text = append(b.ids, b.left...), map[string]string{"1": "a", "x": "x", "y": "y", "z": "z"}
			two := b.replica()
			defer two.Close()
			two.posts(t, chat.Post{Key: "b", Text: "b"})
			b.shows(t, "a", "y", "z", "b")
			two.Keep(t.Context())
			synctest.Wait()
			two.Keep(t.Context())
			synctest.Wait()
			b.shows(t, "a", "b")
			two.Keep(t.Context())
			synctest.Wait()
			b.wasRead(t, 3)
		},
		"a draft goes when another replica posts, or its own ends": func(t *testing.T, b *board, one *writer) {
			b.own = true
			show(one, chat.Progress{Key: "b", Text: "half"})
			two := b.replica()
			defer two.Close()
			two.posts(t, chat.Post{Key: "b", Text: "b"})
			one.Keep(t.Context())
			synctest.Wait()
			b.shows(t, "a", "b")
			show(two, chat.Progress{Key: "c", Text: "half"})
			b.shows(t, "a", "b", "half")
			two.Close()
			two.Leave(t.Context())
			b.shows(t, "a", "b")
		},
		"a draft goes with the next other post also when its end was not shown yet": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "b", Text: "half"})
			one.ShowProgress(context.Background(), thread, chat.Progress{Key: "b", Done: true})
			one.posts(t, chat.Post{Key: "c", Text: "c"})
			b.shows(t, "a", "c")
		},
		"a status stands at the end of the log, and output in its place": func(t *testing.T, b *board, one *writer) {
			show(one, chat.Progress{Key: "call", Kind: chat.ProgressOutput, Status: "running x", Text: "1\n2"})
			b.shows(t, "a", "**running x**\n```\n1\n2\n```\n\n_running x…_")
			one.posts(t, chat.Post{Key: "call", Text: "x ran", Log: true})
			show(one, chat.Progress{Key: "s", Kind: chat.ProgressStatus, Done: true})
			b.shows(t, "a", "x ran")
		},
		"edits that people only watch come together": func(t *testing.T, b *board, one *writer) {
			for i := range 100 {
				one.ShowProgress(context.Background(), thread, chat.Progress{Key: "b", Text: strconv.Itoa(i)})
			}
			show(one, chat.Progress{Key: "b", Text: "100"})
			b.shows(t, "a", "100")
		},
		"nothing is shown where another replica posts": func(t *testing.T, b *board, one *writer) {
			b.replica().posts(t, chat.Post{Key: "x", Text: "x"})
			show(one, chat.Progress{Key: "b", Text: "half"})
			b.shows(t, "a", "x")
		},
		"nothing is shown after the end": func(t *testing.T, b *board, one *writer) {
			one.ShowProgress(context.Background(), thread, chat.Progress{Key: "b", Text: "half"})
			one.Close()
			time.Sleep(time.Minute)
			b.shows(t, "a")
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard()
				one := b.replica()
				defer one.Close()
				one.posts(t, chat.Post{Key: "a", Text: "a"})
				run(t, b, one)
			})
		})
	}
}

func TestQueue(t *testing.T) {
	var q scribe.Queue
	log, reply, card, late := q.Add(scribe.Quiet), q.Add(scribe.Normal), q.Add(scribe.First), q.Add(scribe.Normal)
	if !q.Remove(reply) || q.Remove(reply) {
		t.Error("who gives up waits on, or twice")
	}
	for _, want := range []*scribe.Waiter{card, late, log} {
		q.Next()
		select {
		case <-want.Ready():
		default:
			t.Error("the order is wrong")
		}
	}
	if q.Len() != 0 {
		t.Errorf("%d wait", q.Len())
	}
}
