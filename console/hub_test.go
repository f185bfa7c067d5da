package console

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
)

// hubs are those of three replicas, with a store that says which message is under a
// key, and hints that may be lost.
type hubs struct {
	each  [3]*hub
	lossy func() bool
	queue []func() // hints under way
	last  uint64
	revs  map[string]uint64
}

func newHubs(lossy func() bool) *hubs {
	x := &hubs{lossy: lossy, revs: map[string]uint64{}}
	for i := range x.each {
		h := newHub()
		h.self, h.out = fmt.Sprint("replica ", i), func(id string, p chat.Progress, at time.Time) {
			for j, other := range x.each {
				if j != i && !x.lossy() {
					x.queue = append(x.queue, func() { other.heard(id, fmt.Sprint("replica ", i), p, at) })
				}
			}
		}
		x.each[i] = h
	}
	return x
}

func (x *hubs) deliver() {
	for len(x.queue) > 0 {
		next := x.queue[0]
		x.queue = x.queue[1:]
		next()
	}
}

func (x *hubs) post(i int, key string) {
	x.last++
	x.revs[key] = x.last
	x.each[i].posted("x", key)
	for j, h := range x.each {
		if j != i && !x.lossy() {
			x.queue = append(x.queue, func() { h.poke("x") })
		}
	}
}

// pass lets time pass, with the looks and repetitions that are due.
func (x *hubs) pass(d time.Duration) {
	for ; d > 0; d -= lookEvery {
		time.Sleep(min(d, lookEvery))
		if d < lookEvery {
			return
		}
		for _, h := range x.each {
			h.keep(time.Now())
			for _, q := range h.asked() {
				revs := map[string]uint64{}
				for _, k := range q.keys {
					if rev, ok := x.revs[k]; ok {
						revs[k] = rev
					}
				}
				h.found(q.id, x.last, revs, time.Now())
			}
		}
		x.deliver()
	}
}

func (x *hubs) shows(i int) map[string]string {
	out := map[string]string{}
	if r := x.each[i].rooms["x"]; r != nil {
		for k, l := range r.live {
			out[k] = l.Status
		}
	}
	return out
}

// happening is something that happens to a thread that three replicas show.
type happening struct {
	what, key string
	who       int // the new owner, or who posts
	lost      bool
	pause     time.Duration
}

var (
	keys    = []string{"status", "reply/1", "call/1"}
	drawOne = rapid.Custom(func(t *rapid.T) happening {
		return happening{
			rapid.SampledFrom([]string{"say", "say", "end", "post", "over"}).Draw(t, "what"), rapid.SampledFrom(keys).Draw(t, "key"),
			rapid.IntRange(0, 2).Draw(t, "who"), rapid.Bool().Draw(t, "lost"), time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond,
		}
	})
)

// Whatever was lost: when hints come through again, all replicas soon show the same,
// and nothing that is over.
func TestReplicasAgreeOnWhatLives(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(drawOne, 1, 30).Draw(r, "steps")
		var wrong string
		synctest.Test(t, func(*testing.T) { wrong = agree(steps) })
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

// agree runs the steps and tells what is wrong in the end.
func agree(steps []happening) string {
	lost := false
	x := newHubs(func() bool { return lost })
	owner := 0
	said := map[string]string{}
	for i, s := range append([]happening{{what: "say", key: "status", pause: time.Second}}, steps...) {
		lost = s.lost
		said[s.key] = fmt.Sprint("step ", i)
		switch s.what {
		case "over": // the one before says nothing more, as it has lost the thread
			if s.who != owner {
				owner = s.who
				said = map[string]string{s.key: said[s.key]}
				for _, k := range keys { // what it left when it had the thread itself
					x.each[owner].progress("x", chat.Progress{Key: k, Done: true})
				}
				time.Sleep(time.Millisecond)
			}
			fallthrough
		case "say":
			x.each[owner].progress("x", chat.Progress{Key: s.key, Status: said[s.key]})
		case "end":
			delete(said, s.key)
			x.each[owner].progress("x", chat.Progress{Key: s.key, Done: true})
		case "post":
			delete(said, s.key)
			x.post(s.who, s.key)
		}
		x.deliver()
		x.pass(s.pause)
	}
	lost = false
	x.pass(time.Minute)
	here := x.shows(owner)
	for k, v := range here {
		if said[k] != v {
			return fmt.Sprintf("%q is shown under %q, the bot has said %q", v, k, said)
		}
	}
	for i := range x.each {
		if got := x.shows(i); !maps.Equal(got, here) {
			return fmt.Sprintf("replica %d shows %q, replica %d, which works, %q", i, got, owner, here)
		}
	}
	return ""
}
