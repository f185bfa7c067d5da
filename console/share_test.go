package console

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
)

// heardHint is a hint that was sent, when.
type heardHint struct {
	thread, key string
	chat.Progress
	age time.Duration
	at  time.Time
}

// sending runs a sharer; sent gives what it has told so far, after nothing moves.
func sending(t *testing.T) (s *sharer, sent func() []heardHint, stop func()) {
	t.Helper()
	s = newSharer("me")
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var out []heardHint
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx, func(thread string, p chat.Progress) {
			key, from, age := heardKey(p.Key)
			if from != "me" {
				t.Errorf("the hint's key is %q", p.Key)
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, heardHint{thread, key, p, age, time.Now()})
		})
	}()
	sent = func() []heardHint {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(out)
	}
	return s, sent, func() { cancel(); <-ended }
}

func TestOfOneKeyTheLatestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent, stop := sending(t)
		defer stop()
		const every, n = 10 * time.Millisecond, 1000
		for i := range n {
			s.offer("x", chat.Progress{Key: "k", Text: fmt.Sprint(i)}, time.Now())
			if i == 0 && len(sent()) != 1 {
				t.Error("the first is not told at once")
			}
			time.Sleep(every)
		}
		time.Sleep(shareGap)
		all := sent()
		if most := int(n*every/shareGap) + 1; len(all) > most || len(all) < most-1 {
			t.Errorf("%d hints in %s", len(all), n*every)
		}
		if last := all[len(all)-1]; last.Text != fmt.Sprint(n-1) || last.thread != "web:x" || last.key != "k" {
			t.Errorf("the last is %+v", last)
		}
		for i := 1; i < len(all); i++ {
			if gap := all[i].at.Sub(all[i-1].at); gap < shareGap {
				t.Errorf("%s between two hints", gap)
			}
		}
		s.offer("x", chat.Progress{Key: "k", Text: "more"}, time.Now())
		s.offer("x", chat.Progress{Key: "k", Done: true}, time.Now())
		time.Sleep(shareGap)
		if all := sent(); !all[len(all)-1].Done || all[len(all)-1].Text != "" {
			t.Errorf("the end is %+v", all[len(all)-1])
		}
	})
}

func TestManyKeysHaveOnePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent, stop := sending(t)
		defer stop()
		const threads, seconds = 50, 20
		begun := time.Now()
		for i := range 10 * seconds {
			for j := range threads {
				s.offer(fmt.Sprint(j), chat.Progress{Key: "k", Text: fmt.Sprint(i)}, time.Now())
			}
			time.Sleep(100 * time.Millisecond)
		}
		all := sent()
		if most := shareBurst + shareRate*seconds; len(all) > most || len(all) < most*9/10 {
			t.Errorf("%d hints in %d seconds", len(all), seconds)
		}
		each := map[string]int{}
		for _, h := range all {
			each[h.thread]++
		}
		for j := range threads {
			if n := each[fmt.Sprint("web:", j)]; n < len(all)/threads-2 || n > len(all)/threads+2 {
				t.Errorf("thread %d has %d of %d hints", j, n, len(all))
			}
		}
		time.Sleep(time.Duration(threads/shareRate+1) * time.Second)
		last := map[string]string{}
		for _, h := range sent() {
			last[h.thread] = h.Text
		}
		for j := range threads {
			if last[fmt.Sprint("web:", j)] != fmt.Sprint(10*seconds-1) {
				t.Errorf("thread %d ends with %q after %s", j, last[fmt.Sprint("web:", j)], time.Since(begun))
			}
		}
		s.next(time.Now().Add(time.Hour), false)
		if len(s.sent) != 0 || len(s.waiting) != 0 {
			t.Errorf("%d and %d keys are remembered", len(s.sent), len(s.waiting))
		}
	})
}

func TestWhoStopsTellsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent, stop := sending(t)
		for i := range 3 * shareBurst {
			s.offer(fmt.Sprint(i), chat.Progress{Key: "k", Status: "first"}, time.Now())
			s.offer(fmt.Sprint(i), chat.Progress{Key: "k", Status: "last"}, time.Now())
		}
		stop()
		last := map[string]string{}
		for _, h := range sent() {
			last[h.thread] = h.Status
		}
		for i := range 3 * shareBurst {
			if last[fmt.Sprint("web:", i)] != "last" {
				t.Errorf("thread %d ends with %q", i, last[fmt.Sprint("web:", i)])
			}
		}
	})
}

func TestAHintSaysHowOldItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sent, stop := sending(t)
		defer stop()
		s.offer("x", chat.Progress{Key: "a\nb c"}, time.Now())
		s.offer("y", chat.Progress{Key: "k"}, time.Now().Add(-9*time.Second))
		all := sent()
		if len(all) != 2 || all[0].age != 0 || all[0].key != "a\nb c" || all[1].age != 9*time.Second {
			t.Errorf("%+v", all)
		}
	})
}

func TestWhatNobodyTellsDoesNotPileUp(t *testing.T) {
	s := newSharer("me")
	for i := range 2 * maxWaiting {
		s.offer("x", chat.Progress{Key: fmt.Sprint(i), Text: strings.Repeat("x", maxProgress)}, time.Now())
	}
	if len(s.order) != maxWaiting || len(s.waiting) != maxWaiting || len(s.waiting[slot{"web:x", "0"}].Text) > maxHint {
		t.Errorf("%d wait", len(s.waiting))
	}
	s.offer("x", chat.Progress{Key: "\xff"}, time.Now())
	s.offer("x", chat.Progress{Key: strings.Repeat("k", maxLabel+1)}, time.Now())
	if len(s.order) != maxWaiting {
		t.Error("a key that is none of the bot's waits too")
	}
}

func TestAHintFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"x", "\x1b[31m", "<&>", "é", "漢", "\u2028", "😀", "\"\\", "\n", "\xff", "\x00", "�", "\xe6\xbc"})
		text := strings.Join(rapid.SliceOfN(piece, 0, 400).Draw(t, "text"), "")
		if rapid.Bool().Draw(t, "valid") {
			text = strings.ToValidUTF8(text, "")
		}
		text = strings.Repeat(text, rapid.IntRange(1, 20).Draw(t, "times"))
		status := strings.Join(rapid.SliceOfN(piece, 0, 400).Draw(t, "status"), "")
		key := strings.ToValidUTF8(strings.Join(rapid.SliceOfN(piece, 0, 100).Draw(t, "key"), ""), "")
		thread := strings.Repeat("z", 64)
		s := newSharer(short([]byte(secret())))
		s.offer(thread, chat.Progress{Key: key, Status: status, Text: text, Done: rapid.Bool().Draw(t, "done")}, time.Now().Add(-9999*time.Hour))
		if len(s.order) == 0 {
			if len(key) < maxLabel/6 {
				t.Fatalf("the key %q was dropped", key)
			}
			return
		}
		name, p, _ := s.next(time.Now(), false)
		raw, err := json.Marshal(struct {
			Thread   string        `json:"thread"`
			Progress chat.Progress `json:"p"`
		}{name, p})
		if err != nil || len(raw) >= maxHint {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		if !utf8.ValidString(p.Text) || !utf8.ValidString(p.Status) || !utf8.ValidString(p.Key) {
			t.Fatalf("%+v", p)
		}
		valid := strings.ToValidUTF8(text, "\uFFFD")
		if !utf8.ValidString(text) {
			return
		}
		if !strings.HasSuffix(valid, p.Text) {
			t.Fatalf("%q is not the end of the text", p.Text)
		}
		if len(p.Text) < len(valid) && len(raw) < maxHint-2*len(`\u0000`) {
			t.Fatalf("only %d bytes of %d are used", len(raw), maxHint)
		}
	})
}

func FuzzHeardKey(f *testing.F) {
	f.Add("status\nme 12")
	f.Add("call/1\n")
	f.Add("\nme 99999999999999999999")
	f.Fuzz(func(t *testing.T, s string) {
		key, from, age := heardKey(s)
		if !strings.HasPrefix(s, key) || age < 0 || strings.Contains(from, "\n") {
			t.Errorf("%q: %q, %q, %s", s, key, from, age)
		}
		if again, _, _ := heardKey(s + "\nme 5"); again != s {
			t.Errorf("%q comes back as %q", s, again)
		}
	})
}
