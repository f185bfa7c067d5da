package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/outbox"
)

var (
	errNetwork = errors.New("no network")
	errGone    = errors.New("the channel is gone")
)

// network records what is sent and answers as told.
type network struct {
	mu    sync.Mutex
	sent  []string // "thread/key=body@ref #attempt", successful or not
	busy  int
	peak  int
	reply func(ctx context.Context, row outbox.Row) (string, error) // nil: "msg-"+key at once
}

func (n *network) send(ctx context.Context, row outbox.Row) (string, error) {
	var body string
	_ = json.Unmarshal(row.Body, &body)
	n.mu.Lock()
	n.sent = append(n.sent, fmt.Sprintf("%s/%s=%s@%s #%d", row.Thread, row.Key, body, row.Ref, row.Attempts))
	n.busy++
	n.peak = max(n.peak, n.busy)
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.busy--
		n.mu.Unlock()
	}()
	if n.reply != nil {
		return n.reply(ctx, row)
	}
	return "msg-" + row.Key, nil
}

func (n *network) wantSent(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.sent, want) {
		t.Errorf("sent\n%q\nwant\n%q", n.sent, want)
	}
}

func put(t *testing.T, db store.DB, thread, key, body string) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		outbox.Put(tx, thread, key, body, time.Now())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func refOf(t *testing.T, db store.DB, thread, key string) (ref string) {
	t.Helper()
	if err := db.View(t.Context(), func(tx store.Tx) error {
		ref, _ = outbox.Ref(tx, thread, key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ref
}

// start runs a sender until the returned function is called.
func start(t *testing.T, s *outbox.Sender) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}

// bubble runs a test with a fake clock.
func bubble(t *testing.T, name string, test func(t *testing.T, db *mem.DB, net *network)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, mem.Open(), &network{}) })
	})
}

func TestSender(t *testing.T) {
	options := func(net *network) outbox.Options {
		return outbox.Options{
			Send:       net.send,
			Permanent:  func(_ outbox.Row, err error) bool { return errors.Is(err, errGone) },
			MinBackoff: time.Second, MaxBackoff: time.Minute, Poll: time.Hour,
		}
	}

	yielding := func(net *network) outbox.Options {
		o := options(net)
		o.Yields = func(r outbox.Row) bool { return string(r.Body) == `"log"` }
		return o
	}
	bubble(t, "an answer overtakes a log that waits", func(t *testing.T, db *mem.DB, net *network) {
		put(t, db, "t", "log/1", "log")
		put(t, db, "t", "log/2", "log")
		put(t, db, "t", "reply", "answer")
		time.Sleep(2 * time.Second) // of the bubble's clock: the rows are old now
		stop := start(t, outbox.NewSender(db, yielding(net)))
		synctest.Wait()
		stop()
		net.wantSent(t, "t/reply=answer@ #1", "t/log/1=log@ #1", "t/log/2=log@ #1")
	})
	bubble(t, "a fresh log comes first, as it was put", func(t *testing.T, db *mem.DB, net *network) {
		put(t, db, "t", "log/1", "log")
		put(t, db, "t", "reply", "answer")
		stop := start(t, outbox.NewSender(db, yielding(net)))
		synctest.Wait()
		stop()
		net.wantSent(t, "t/log/1=log@ #1", "t/reply=answer@ #1")
	})
	bubble(t, "an answer does not wait for a log that the network holds back", func(t *testing.T, db *mem.DB, net *network) {
		held := true
		net.reply = func(ctx context.Context, r outbox.Row) (string, error) {
			if r.Key == "log/1" && held {
				held = false
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "m", nil
		}
		put(t, db, "t", "log/1", "log")
		s := outbox.NewSender(db, yielding(net))
		stop := start(t, s)
		synctest.Wait()
		put(t, db, "t", "reply", "answer")
		s.Wake("t")
		time.Sleep(5*time.Second + time.Millisecond) // of the bubble's clock
		synctest.Wait()
		net.wantSent(t, "t/log/1=log@ #1", "t/reply=answer@ #1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		stop()
		net.wantSent(t, "t/log/1=log@ #1", "t/reply=answer@ #1", "t/log/1=log@ #2")
	})
	bubble(t, "an edit that waits is overtaken, and replaced by a newer one", func(t *testing.T, db *mem.DB, net *network) {
		var busy atomic.Bool
		busy.Store(true)
		net.reply = func(_ context.Context, row outbox.Row) (string, error) {
			if row.Ref != "" && busy.Load() {
				return "", errNetwork
			}
			return "msg-" + row.Key, nil
		}
		o := options(net)
		o.Yields = func(r outbox.Row) bool { return r.Ref != "" }
		o.RetryAfter = func(error) (time.Duration, bool) { return time.Minute, true }
		s := outbox.NewSender(db, o)
		defer start(t, s)()
		for _, p := range [][2]string{{"card", "asks"}, {"card", "runs"}, {"answer", "a"}, {"card", "ended"}, {"more", "b"}} {
			put(t, db, "t", p[0], p[1])
			s.Wake("t")
			synctest.Wait()
		}
		net.wantSent(t, "t/card=asks@ #1", "t/card=runs@msg-card #1", "t/answer=a@ #1", "t/card=ended@msg-card #1", "t/more=b@ #1")
		busy.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		net.wantSent(t, "t/card=asks@ #1", "t/card=runs@msg-card #1", "t/answer=a@ #1", "t/card=ended@msg-card #1", "t/more=b@ #1", "t/card=ended@msg-card #2")
	})
	bubble(t, "a row that settles waits for a newer one of its key, and lets others go first", func(t *testing.T, db *mem.DB, net *network) {
		o := options(net)
		o.Yields = func(r outbox.Row) bool { return r.Ref != "" }
		o.Settles = func(r outbox.Row) time.Duration {
			if r.Ref != "" && string(r.Body) != `"ended"` {
				return time.Second
			}
			return 0
		}
		s := outbox.NewSender(db, o)
		defer start(t, s)()
		for _, p := range [][2]string{{"card", "asks"}, {"card", "step 1"}, {"answer", "a"}, {"card", "step 2"}} {
			put(t, db, "t", p[0], p[1])
			s.Wake("t")
			synctest.Wait()
		}
		net.wantSent(t, "t/card=asks@ #1", "t/answer=a@ #1")
		time.Sleep(time.Second)
		synctest.Wait()
		net.wantSent(t, "t/card=asks@ #1", "t/answer=a@ #1", "t/card=step 2@msg-card #1")
		put(t, db, "t", "card", "step 3")
		put(t, db, "t", "card", "ended")
		s.Wake("t")
		synctest.Wait()
		net.wantSent(t, "t/card=asks@ #1", "t/answer=a@ #1", "t/card=step 2@msg-card #1", "t/card=ended@msg-card #1")
	})
	bubble(t, "rows that join are sent together, once", func(t *testing.T, db *mem.DB, net *network) {
		var together [][]string
		var busy atomic.Bool
		busy.Store(true)
		net.reply = func(_ context.Context, row outbox.Row) (string, error) {
			all := []string{row.Key}
			for _, j := range row.Joined {
				all = append(all, j.Key)
			}
			if together = append(together, all); busy.Load() && row.Key != "answer" {
				return "", errNetwork
			}
			return "msg", nil
		}
		o := options(net)
		isLog := func(r outbox.Row) bool { return strings.HasPrefix(r.Key, "log") }
		o.Yields, o.Joins = isLog, isLog
		s := outbox.NewSender(db, o)
		defer start(t, s)()
		for _, key := range []string{"log 1", "log 2", "answer", "log 3"} {
			put(t, db, "t", key, "x")
			s.Wake("t")
			synctest.Wait()
		}
		busy.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		want := [][]string{{"log 1"}, {"answer"}, {"log 1", "log 2", "log 3"}}
		if !slices.EqualFunc(together, want, slices.Equal) {
			t.Errorf("%q, want %q", together, want)
		}
		if ref := refOf(t, db, "t", "log 3"); ref != "msg" {
			t.Errorf("the reference of the third is %q", ref)
		}
	})
	bubble(t, "a thread is behind until its rows are posted", func(t *testing.T, db *mem.DB, net *network) {
		tries := 0
		net.reply = func(context.Context, outbox.Row) (string, error) {
			if tries++; tries == 1 {
				return "", errNetwork
			}
			return "m", nil
		}
		s := outbox.NewSender(db, options(net))
		stop := start(t, s)
		synctest.Wait()
		if s.Behind("t") {
			t.Error("behind without a row")
		}
		put(t, db, "t", "reply", "answer")
		s.Wake("t")
		if !s.Behind("t") {
			t.Error("not behind although a row was announced")
		}
		synctest.Wait()
		if !s.Behind("t") || s.Behind("u") {
			t.Error("not behind after a failed try, or another thread is")
		}
		time.Sleep(2 * time.Second) // of the bubble's clock
		synctest.Wait()
		if s.Behind("t") {
			t.Error("behind although all is posted")
		}
		stop()
	})
	bubble(t, "what an earlier process left is known of before anything overtakes it", func(t *testing.T, db *mem.DB, net *network) {
		sending := make(chan struct{})
		net.reply = func(context.Context, outbox.Row) (string, error) {
			<-sending
			return "m", nil
		}
		put(t, db, "t", "reply", "answer")
		s := outbox.NewSender(db, options(net))
		if !s.Behind("t") || !s.Behind("u") {
			t.Error("not behind before it looked")
		}
		stop := start(t, s)
		synctest.Wait()
		if !s.Behind("t") || s.Behind("u") {
			t.Errorf("after it looked, t is behind: %t, u: %t", s.Behind("t"), s.Behind("u"))
		}
		close(sending)
		synctest.Wait()
		if s.Behind("t") {
			t.Error("behind although all is posted")
		}
		s.Rescan()
		if !s.Behind("t") {
			t.Error("not behind although another sender may have left rows")
		}
		synctest.Wait()
		if s.Behind("t") {
			t.Error("behind after it looked")
		}
		stop()
	})
	bubble(t, "rows go out in order, later ones of a key as edits", func(t *testing.T, db *mem.DB, net *network) {
		for i := range 3 {
			put(t, db, "t", fmt.Sprint("k", i), "x")
		}
		var mu sync.Mutex
		var refs []string
		o := options(net)
		o.OnSent = func(r outbox.Row) {
			mu.Lock()
			refs = append(refs, r.Ref)
			mu.Unlock()
		}
		s := outbox.NewSender(db, o)
		stop := start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		put(t, db, "t", "k1", "y")
		s.Wake("t")
		synctest.Wait()
		stop()
		net.wantSent(t, "t/k0=x@ #1", "t/k1=x@ #1", "t/k2=x@ #1", "t/k1=y@msg-k1 #1")
		if want := []string{"msg-k0", "msg-k1", "msg-k2", "msg-k1"}; !slices.Equal(refs, want) {
			t.Errorf("OnSent saw %q, want %q", refs, want)
		}
	})

	bubble(t, "a failing row is tried again with growing pauses and holds up its thread only", func(t *testing.T, db *mem.DB, net *network) {
		var tries []time.Duration
		begin := time.Now()
		net.reply = func(_ context.Context, row outbox.Row) (string, error) {
			if row.Key == "bad" {
				if tries = append(tries, time.Since(begin)); row.Attempts < 5 {
					return "", errNetwork
				}
			}
			return "ref", nil
		}
		put(t, db, "t", "bad", "x")
		put(t, db, "t", "next", "x")
		put(t, db, "u", "good", "x")
		s := outbox.NewSender(db, options(net))
		stop := start(t, s)
		defer stop()
		synctest.Wait()
		if err := db.View(t.Context(), func(tx store.Tx) error {
			if th := outbox.Threads(tx, 0); !slices.Equal(th, []string{"t"}) {
				t.Errorf("threads with rows: %q", th)
			}
			if r := outbox.Pending(tx, "t", 1)[0]; r.LastError != errNetwork.Error() || !r.NotBefore.After(time.Now()) {
				t.Errorf("the row is %+v", r)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		s.Wake("t") // does not shorten the pause
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		if len(tries) != 5 {
			t.Fatalf("tries at %v", tries)
		}
		for i := range 4 {
			gap, about := tries[i+1]-tries[i], time.Second<<i
			if gap < about*3/4 || gap > about*5/4 {
				t.Errorf("pause %d is %v, want about %v", i, gap, about)
			}
		}
	})

	bubble(t, "the network may say how long to wait", func(t *testing.T, db *mem.DB, net *network) {
		begin := time.Now()
		net.reply = func(_ context.Context, row outbox.Row) (string, error) {
			if row.Attempts == 1 {
				return "", errNetwork
			}
			if got := time.Since(begin); got != 37*time.Second {
				t.Errorf("the next try comes after %v", got)
			}
			return "ref", nil
		}
		put(t, db, "t", "k", "x")
		o := options(net)
		o.RetryAfter = func(error) (time.Duration, bool) { return 37 * time.Second, true }
		s := outbox.NewSender(db, o)
		defer start(t, s)()
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
	})

	bubble(t, "a permanent error drops the row and the thread goes on", func(t *testing.T, db *mem.DB, net *network) {
		net.reply = func(_ context.Context, row outbox.Row) (string, error) {
			if row.Key == "bad" {
				return "", errGone
			}
			return "ref", nil
		}
		put(t, db, "t", "bad", "x")
		put(t, db, "t", "good", "x")
		var dropped []string
		o := options(net)
		o.OnDropped = func(r outbox.Row) { dropped = append(dropped, r.Key+": "+r.LastError) }
		s := outbox.NewSender(db, o)
		stop := start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		net.wantSent(t, "t/bad=x@ #1", "t/good=x@ #1")
		if want := []string{"bad: " + errGone.Error()}; !slices.Equal(dropped, want) {
			t.Errorf("OnDropped saw %q, want %q", dropped, want)
		}
		if err := db.View(t.Context(), func(tx store.Tx) error {
			if rows := outbox.Dropped(tx, 0); len(rows) != 1 || rows[0].Key != "bad" {
				t.Errorf("dropped rows: %+v", rows)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})

	bubble(t, "a try that was cut off is made again with the same key and says so", func(t *testing.T, db *mem.DB, net *network) {
		posted := false
		net.reply = func(ctx context.Context, _ outbox.Row) (string, error) {
			if !posted {
				posted = true // it came through, and the process ends before it hears of it
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "ref", nil
		}
		put(t, db, "t", "k", "x")
		stop := start(t, outbox.NewSender(db, options(net)))
		synctest.Wait()
		stop()
		if err := db.View(t.Context(), func(tx store.Tx) error {
			if r := outbox.Pending(tx, "t", 1)[0]; r.LastError != "" || !r.NotBefore.IsZero() {
				t.Errorf("the end of the sender counts as a failure: %+v", r)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		put(t, db, "t", "k", "y") // must not take the place of what may be posted
		s := outbox.NewSender(db, options(net))
		stop = start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		net.wantSent(t, "t/k=x@ #1", "t/k=x@ #2", "t/k=y@ref #1")
	})

	bubble(t, "a send that hangs is given up after its timeout", func(t *testing.T, db *mem.DB, net *network) {
		net.reply = func(ctx context.Context, row outbox.Row) (string, error) {
			if row.Attempts == 1 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "ref", nil
		}
		put(t, db, "t", "k", "x")
		o := options(net)
		o.Timeout = 10 * time.Second
		s := outbox.NewSender(db, o)
		stop := start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		net.wantSent(t, "t/k=x@ #1", "t/k=x@ #2")
	})

	bubble(t, "rows of one thread that come while it is busy are sent after", func(t *testing.T, db *mem.DB, net *network) {
		net.reply = func(context.Context, outbox.Row) (string, error) {
			<-time.After(time.Second)
			return "ref", nil
		}
		s := outbox.NewSender(db, options(net))
		stop := start(t, s)
		put(t, db, "t", "k", "1")
		s.Wake("t")
		synctest.Wait()
		for i := range 5 {
			put(t, db, "t", "k", fmt.Sprint(i+2))
			s.Wake("t")
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		net.wantSent(t, "t/k=1@ #1", "t/k=6@ref #1")
	})

	bubble(t, "no more threads than allowed are served at once, and all are", func(t *testing.T, db *mem.DB, net *network) {
		net.reply = func(context.Context, outbox.Row) (string, error) {
			<-time.After(time.Second)
			return "ref", nil
		}
		for i := range 10 {
			put(t, db, fmt.Sprint("t", i), "a", "x")
			put(t, db, fmt.Sprint("t", i), "b", "x")
		}
		o := options(net)
		o.Concurrency = 4
		begin := time.Now()
		s := outbox.NewSender(db, o)
		stop := start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		if net.peak != 4 || len(net.sent) != 20 || time.Since(begin) != 5*time.Second {
			t.Errorf("%d sends, %d at once, in %v; want 20, 4 at once, in 5s", len(net.sent), net.peak, time.Since(begin))
		}
	})

	bubble(t, "a forgotten wake costs the poll interval", func(t *testing.T, db *mem.DB, net *network) {
		o := options(net)
		o.Poll = 7 * time.Second
		stop := start(t, outbox.NewSender(db, o))
		synctest.Wait()
		put(t, db, "t", "k", "x")
		<-time.After(7*time.Second - 1)
		synctest.Wait()
		net.wantSent(t)
		<-time.After(1)
		synctest.Wait()
		stop()
		net.wantSent(t, "t/k=x@ #1")
	})

	bubble(t, "flush ends with its context", func(t *testing.T, db *mem.DB, net *network) {
		net.reply = func(context.Context, outbox.Row) (string, error) { return "", errNetwork }
		put(t, db, "t", "k", "x")
		s := outbox.NewSender(db, options(net))
		defer start(t, s)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush = %v", err)
		}
	})

	bubble(t, "a row that comes while its thread is looked at is not overlooked", func(t *testing.T, db *mem.DB, net *network) {
		hooked := &failing{DB: db}
		s := outbox.NewSender(hooked, options(net))
		hooked.after = func() {
			hooked.after = nil
			put(t, db, "t", "k", "x")
			s.Wake("t")
			<-time.After(time.Second) // until everybody else waits
		}
		stop := start(t, s)
		s.Wake("t")
		<-time.After(time.Minute)
		stop()
		net.wantSent(t, "t/k=x@ #1")
	})

	bubble(t, "a store that fails after a post is asked until it has the record", func(t *testing.T, db *mem.DB, net *network) {
		bad := &failing{DB: db}
		net.reply = func(context.Context, outbox.Row) (string, error) {
			bad.set(3)
			return "ref", nil
		}
		put(t, db, "t", "k", "x")
		s := outbox.NewSender(bad, options(net))
		stop := start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		net.wantSent(t, "t/k=x@ #1")
	})

	bubble(t, "a store that fails before a try is asked again", func(t *testing.T, db *mem.DB, net *network) {
		bad := &failing{DB: db}
		bad.set(2)
		put(t, db, "t", "k", "x")
		s := outbox.NewSender(bad, options(net))
		stop := start(t, s)
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("Flush = %v", err)
		}
		stop()
		net.wantSent(t, "t/k=x@ #1")
	})
}

// failing is a store whose next Updates fail.
type failing struct {
	store.DB
	mu    sync.Mutex
	left  int
	after func() // called after an Update
}

func (f *failing) set(n int) {
	f.mu.Lock()
	f.left = n
	f.mu.Unlock()
}

func (f *failing) Update(ctx context.Context, fn func(store.Tx) error) error {
	f.mu.Lock()
	fail := f.left > 0
	if fail {
		f.left--
	}
	f.mu.Unlock()
	if fail {
		return store.ErrFull
	}
	err := f.DB.Update(ctx, fn)
	if f.after != nil {
		f.after()
	}
	return err
}

func TestARowIsSentByOneOfSeveralSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, n := mem.Open(), &network{}
		hold := make(chan struct{})
		n.reply = func(ctx context.Context, row outbox.Row) (string, error) {
			if row.Key == "slow" && row.Attempts == 1 {
				select {
				case <-hold:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return fmt.Sprint("msg-", row.Key, "-", row.Attempts), nil
		}
		var late []string
		alive := map[string]bool{"a": true, "b": true}
		var mu sync.Mutex
		sender := func(name string) *outbox.Sender {
			return outbox.NewSender(db, outbox.Options{Send: n.send, Owner: name, Timeout: time.Hour, OnLate: func(_ context.Context, r outbox.Row, made, kept string) {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, name+" "+r.Key+" "+made+" "+kept)
			}, Alive: func(_ store.Tx, o string) bool {
				mu.Lock()
				defer mu.Unlock()
				return alive[o]
			}})
		}
		a, b := sender("a"), sender("b")
		put(t, db, "t", "slow", "1")
		put(t, db, "t", "next", "2")
		stopA := start(t, a)
		synctest.Wait() // the row is a's
		stopB := start(t, b)
		b.Wake("t")
		time.Sleep(time.Minute)
		n.wantSent(t, "t/slow=1@ #1")
		if err := b.Flush(t.Context()); err != nil { // what a is at is not b's
			t.Error(err)
		}
		mu.Lock()
		alive["a"] = false
		mu.Unlock()
		b.Rescan()
		synctest.Wait()
		n.wantSent(t, "t/slow=1@ #1", "t/slow=1@ #2", "t/next=2@ #1")
		close(hold) // a wakes up: what it records changes nothing, and it hears what counts
		synctest.Wait()
		time.Sleep(time.Minute)
		n.wantSent(t, "t/slow=1@ #1", "t/slow=1@ #2", "t/next=2@ #1")
		if !slices.Equal(late, []string{"a slow msg-slow-1 msg-slow-2"}) {
			t.Errorf("late: %q", late)
		}
		stopA()
		stopB()
	})
}
