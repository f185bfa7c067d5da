package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

// verdicts makes people decide in all the ways they have: with a stranger before
// them, several at once, against it, once more when all is over.
func verdicts(seed uint64) func(id string) worldtest.Verdict {
	var mu sync.Mutex
	made := map[string]worldtest.Verdict{}
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(id string) worldtest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		v, ok := made[id]
		if !ok {
			v = worldtest.Verdict{Deny: rng.IntN(4) == 0, Stranger: rng.IntN(2) == 0, Clickers: 1 + rng.IntN(4), Late: rng.IntN(2) == 0, Wait: between(rng, time.Millisecond, 300*time.Millisecond)}
			made[id] = v
		}
		return v
	}
}

// TestSlackOnABadDay plays 429 storms on posts and updates, answers and
// acknowledgements that are lost, events that come several times and late, sockets that
// are cut, deaf or sent away.
func TestSlackOnABadDay(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand) {
		s := newSlack(t, slackfake.Config{AckTimeout: 1500 * time.Millisecond, Streaming: rng.IntN(2) == 0, AssistantStatus: true})
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: s, Decide: verdicts(rng.Uint64())})
		w.Start()
		talk := converse(t, w, rng, 4, 4)
		for range 12 {
			time.Sleep(between(rng, 50*time.Millisecond, 600*time.Millisecond))
			w.Bot().Note("slack: %s", slackTrouble(rng, s))
		}
		s.PauseSockets(false)
		s.Deafen(false)
		talk.Wait()
		seen := w.Finish()
		t.Log(len(seen.Said), " messages: ", worldtest.Outcomes(seen))
	})
}

func slackTrouble(rng *rand.Rand, s *worldtest.Slack) string {
	methods := []string{"chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream", "conversations.replies", "users.info"}
	method := methods[rng.IntN(len(methods))]
	n := 1 + rng.IntN(4)
	switch rng.IntN(11) {
	case 0:
		s.DisconnectAll([]string{"warning", "refresh_requested"}[rng.IntN(2)])
		return "disconnect"
	case 1:
		s.Cut()
		return "sockets cut"
	case 2:
		s.ForgetAck(n)
		return fmt.Sprint(n, " acknowledgements forgotten")
	case 3, 4:
		s.FailNext(method, n, slackfake.Answer{Status: 429, RetryAfter: time.Second})
		return fmt.Sprint(n, " x 429 for ", method)
	case 5:
		s.FailNext(method, 1, slackfake.Answer{Drop: true})
		return "an answer is lost: " + method
	case 6:
		s.FailNext(method, n, slackfake.Answer{Lose: true})
		return "a call is lost: " + method
	case 7:
		s.FailNext(method, n, slackfake.Answer{Status: []int{500, 502, 503}[rng.IntN(3)]})
		return "5xx: " + method
	case 8:
		s.PauseSockets(true)
		s.Cut()
		time.AfterFunc(between(rng, 100*time.Millisecond, time.Second), func() { s.PauseSockets(false) })
		return "no sockets for a while"
	case 9:
		s.Deafen(true)
		time.AfterFunc(between(rng, 100*time.Millisecond, 2*time.Second), func() { s.Deafen(false) })
		return "deaf sockets for a while"
	default:
		s.FailNext("chat.postMessage", 6, slackfake.Answer{Status: 429, RetryAfter: time.Second})
		s.FailNext("chat.update", 6, slackfake.Answer{Status: 429, RetryAfter: time.Second})
		return "a storm of 429"
	}
}

// TestALinkToSlackThatFails breaks the TCP connections below the API and the sockets.
func TestALinkToSlackThatFails(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		s := newSlack(t, slackfake.Config{AckTimeout: 1500 * time.Millisecond, PingInterval: time.Second})
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: s})
		w.Start()
		talk := converse(t, w, rng, 3, 3)
		w.Bot().Note("link: %v", trouble(rng, s.Link, 6))
		talk.Wait()
		w.Finish()
	})
}

// TestManyClicks lets many people press at once, with strangers among them, presses on
// cards that are decided, and words that decide once more.
func TestManyClicks(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand) {
		s := newSlack(t, slackfake.Config{})
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: s, NoPeople: true})
		w.Start()
		const threads = 4
		var all sync.WaitGroup
		for n := range threads {
			deny := rng.IntN(4) == 0
			shuffle := rng.Perm(20)
			all.Go(func() {
				thread, id := w.Open(worldtest.Alice, n, true)
				w.Until("a card", func() bool { return len(w.Cards(thread)[id].Buttons) > 0 })
				if err := w.Press(worldtest.Mallory, thread, id); err != nil {
					t.Errorf("a stranger's press is not answered: %v", err)
				}
				if len(w.Effects()) > 0 && fmt.Sprint(w.Effects()) == id {
					t.Error("it ran on a stranger's press")
				}
				if deny {
					w.Deny(worldtest.Bob, thread, id)
				}
				var clicks sync.WaitGroup
				for _, i := range shuffle { // twenty presses, a third of them by a stranger
					who := append(worldtest.Deciders(), worldtest.Mallory, worldtest.Mallory)[i%6]
					if deny {
						who = worldtest.Mallory
					}
					clicks.Go(func() { _ = w.Press(who, thread, id) })
				}
				clicks.Wait()
			})
		}
		all.Wait()
		seen := w.Finish()
		if n := worldtest.Outcomes(seen); n["ran"]+n["refused"] != threads {
			t.Errorf("%v\n%s", n, w.Story())
		}
	})
}

// TestAPressThatWaited lets people press while the bot stands still, so that it finds
// several presses of one card at once when it goes on.
func TestAPressThatWaited(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, _ *rand.Rand) {
		s := newSlack(t, slackfake.Config{AckTimeout: 4 * time.Second})
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: s, NoPeople: true})
		w.Start()
		thread, id := w.Open(worldtest.Alice, 0, true)
		w.Until("a card", func() bool { return len(w.Cards(thread)[id].Buttons) > 0 })
		w.Bot().Pause()
		var clicks sync.WaitGroup
		for i := range 8 {
			clicks.Go(func() { _ = w.Press(worldtest.Deciders()[i%4], thread, id) })
		}
		time.Sleep(time.Second)
		w.Bot().Resume()
		clicks.Wait()
		w.People() // who look whether it worked
		seen := w.Finish()
		if len(seen.Effects) != 1 {
			t.Errorf("%d effects", len(seen.Effects))
		}
	})
}

// TestAPausedBot stops the process for longer than everybody's patience.
func TestAPausedBot(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		s := newSlack(t, slackfake.Config{AckTimeout: time.Second, PingInterval: time.Second})
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: s})
		w.Start()
		talk := converse(t, w, rng, 3, 3)
		for range 2 {
			time.Sleep(between(rng, 10*time.Millisecond, time.Second))
			w.Bot().Note("SIGSTOP")
			w.Bot().Pause()
			time.Sleep(between(rng, 500*time.Millisecond, 4*time.Second))
			w.Bot().Resume()
			w.Bot().Note("SIGCONT")
		}
		talk.Wait()
		w.Finish()
	})
}
