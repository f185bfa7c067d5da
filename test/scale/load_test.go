//go:build linux

package scale

import (
	"slices"
	"sync/atomic"
	"time"
)

// cycle are the active threads, each of which has a turn in its turn.
type cycle struct {
	talks []*talk
	next  int
	cards int // of a hundred turns
}

// active takes n of the stored threads from first on, spread evenly over all, in random
// order.
func (f *fleet) active(n, stored, cards, first int) *cycle {
	c := &cycle{cards: cards}
	for i := range n {
		c.talks = append(c.talks, f.talkOf(first+i*max(stored/n, 1)))
	}
	f.rng.Shuffle(n, func(i, j int) { c.talks[i], c.talks[j] = c.talks[j], c.talks[i] })
	return c
}

// sayNext has the next idle thread begin a turn at any replica; false when none is idle.
func (f *fleet) sayNext(c *cycle) bool {
	f.mu.Lock()
	for range c.talks {
		k := c.talks[c.next]
		c.next = (c.next + 1) % len(c.talks)
		if k.open != nil {
			continue
		}
		kind := byte(looks)
		if f.rng.IntN(100) < c.cards {
			kind = cards
		}
		t, at := f.openLocked(k, kind), f.anyoneLocked()
		f.mu.Unlock()
		f.send(t, at)
		return true
	}
	f.mu.Unlock()
	return false
}

// spell is a stretch of load and what came of it.
type spell struct {
	samples
	from, to gauges
	late     int // turns that could not begin because every thread was busy
}

// onDone sets who is told of the end of turns.
func (f *fleet) onDone(do func(*turn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = do
}

// saturate keeps flight turns going and measures for d.
func (f *fleet) saturate(c *cycle, flight int, warm, d time.Duration) (s spell) {
	var over atomic.Bool
	f.onDone(func(*turn) {
		if !over.Load() {
			f.sayNext(c)
		}
	})
	for range min(flight, len(c.talks)) {
		f.sayNext(c)
	}
	time.Sleep(warm)
	f.collect()
	s.from = f.gauge()
	time.Sleep(d)
	s.samples, s.to = f.collect(), f.gauge()
	over.Store(true)
	f.quiet(2 * time.Minute)
	f.onDone(func(*turn) {})
	return s
}

// gap is the time between two beginnings, at rate of them a second.
func (f *fleet) gap(rate float64) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.ExpFloat64() / rate * float64(time.Second))
}

// pace begins rate turns a second, at times of their own as people do, and measures for d.
// All turns that begin count, however late they end.
func (f *fleet) pace(c *cycle, rate float64, warm, d time.Duration) (s spell) {
	began := time.Now()
	measured := false
	for at := time.Duration(0); at < warm+d; at += f.gap(rate) {
		time.Sleep(time.Until(began.Add(at)))
		if !measured && at >= warm {
			measured = true
			f.collect()
			s.from, s.late = f.gauge(), 0
		}
		if !f.sayNext(c) {
			s.late++
		}
	}
	s.to = f.gauge()
	f.quiet(5 * time.Minute)
	s.samples = f.collect()
	return s
}

// burst has all active threads begin a turn at the same moment; the time is until the last
// one was answered.
func (f *fleet) burst(c *cycle) (s spell, took time.Duration) {
	f.collect()
	s.from = f.gauge()
	began := time.Now()
	for range c.talks {
		f.sayNext(c)
	}
	f.quiet(20 * time.Minute)
	took = time.Since(began)
	s.to, s.samples = f.gauge(), f.collect()
	return s, took
}

// notices is how long the owner of a thread that is busy with a slow step takes to notice
// what was accepted elsewhere: from the end of Deliver or Click there.
type notices struct {
	heard   []time.Duration // a message: until the hint is there
	stopped []time.Duration // "stop", said or pressed: until the step is interrupted
}

// notice holds threads first..first+n-1, each at one replica, and sends a message and a
// stop at another one. together is how many at once. Without hints nobody hears of a
// message before the step is over, which is when the owner looks by itself.
func (f *fleet) notice(first, n, together int, hints bool) (out notices) {
	f.all(order{Do: "hold", On: true}, "held")
	results := make(chan notices)
	slots := make(chan struct{}, together)
	for i := range n {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results <- f.noticeOne(f.talkOf(first+i), i, hints)
		}()
	}
	for range n {
		r := <-results
		out.heard, out.stopped = append(out.heard, r.heard...), append(out.stopped, r.stopped...)
	}
	f.all(order{Do: "hold", On: false}, "held")
	return out
}

func (f *fleet) noticeOne(k *talk, i int, hints bool) (out notices) {
	ran := f.expect("ran", k.thread)
	held := f.say(k, holds, i%len(f.replicas))
	owner := f.wait(ran, "a step that takes long").from // who got the message, or who looked first
	other := (owner + 1 + i/len(f.replicas)%(len(f.replicas)-1)) % len(f.replicas)
	message := held
	if hints {
		heard := f.expect("heard", k.thread)
		message = f.say(k, looks, other)
		at := f.wait(heard, "the hint of a message").At
		<-message.accepted
		f.mu.Lock()
		out.heard = append(out.heard, time.Duration(at-message.began-message.took))
		f.mu.Unlock()
	}
	ended := f.expect("ended", k.thread)
	f.forget(held, message)
	is, o := "delivered", order{Do: "deliver", Text: "stop", Thread: k.thread, ID: f.id + "stop/" + held.tag}
	if i%2 == 1 {
		is, o = "clicked", order{Do: "click", Text: "stop:xxxxxxxxxx", Thread: k.thread, ID: f.id + "stop/" + held.tag}
	}
	stopped := f.expect(is, o.ID)
	f.order(other, o)
	r := f.wait(stopped, "the stop to be stored")
	out.stopped = append(out.stopped, time.Duration(f.wait(ended, "the step to end").At-r.At-r.Took))
	return out
}

// takeover kills a replica that has n threads in the middle of a step, of first..first+2n-1:
// where others look before it, a few more are begun. The times are from the kill until each
// of them went on elsewhere, sorted, and until all are answered.
func (f *fleet) takeover(first, n, victim int) (went []time.Duration, answered time.Duration) {
	f.ask(victim, order{Do: "hold", On: true}, "held")
	var mine []string
	for next := first; len(mine) < n && next < first+2*n; {
		var began []<-chan report
		var threads []string
		for range min(n-len(mine), first+2*n-next) {
			k := f.talkOf(next)
			next++
			began, threads = append(began, f.expect("ran", k.thread)), append(threads, k.thread)
			f.say(k, holds, victim)
		}
		for i, c := range began {
			if f.wait(c, "threads to be at work").from == victim {
				mine = append(mine, threads[i])
			}
		}
	}
	var again []<-chan report
	for _, thread := range mine {
		again = append(again, f.expect("ran", thread))
	}
	at := f.kill(victim)
	for _, c := range again {
		went = append(went, time.Duration(f.wait(c, "threads to be taken over").At-at))
	}
	f.quiet(time.Minute)
	answered = since(at)
	slices.Sort(went)
	return went, answered
}
