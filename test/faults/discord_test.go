package faults

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"countersign/adapters/discord/discordfake"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

// TestDiscordOnABadDay kills the bot and plays a gateway that closes, resets and
// forgets sessions, and an API that limits, fails and loses answers.
func TestDiscordOnABadDay(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		d, err := worldtest.NewDiscord(discordfake.Config{Heartbeat: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: d})
		w.Start()
		talk := converse(t, w, rng, 3, 3)
		for range 6 {
			time.Sleep(between(rng, 50*time.Millisecond, 800*time.Millisecond))
			w.Bot().Note("discord: %s", discordTrouble(t, rng, w, d))
		}
		talk.Wait()
		seen := w.Finish()
		t.Log(len(seen.Said), " messages: ", worldtest.Outcomes(seen))
		if d.TokenReset() {
			t.Error("the bot used up its IDENTIFYs")
		}
	})
}

func discordTrouble(t *testing.T, rng *rand.Rand, w *worldtest.World, d *worldtest.Discord) string {
	const post, edit = "POST /channels/{channel_id}/messages", "PATCH /channels/{channel_id}/messages/{message_id}"
	route := []string{post, edit}[rng.IntN(2)]
	switch rng.IntN(9) {
	case 0:
		d.DropConnections([]int{0, 4000, 1001}[rng.IntN(3)])
		return "connections dropped"
	case 1:
		d.InvalidateSessions(rng.IntN(2) == 0)
		return "sessions invalid"
	case 2:
		d.ForgetSessions()
		d.DropConnections(0)
		return "sessions forgotten"
	case 3:
		d.Reconnect()
		return "reconnect"
	case 4:
		d.FailNext(route, 1+rng.IntN(4), discordfake.Answer{RetryAfter: 500 * time.Millisecond})
		return "429 for " + route
	case 5:
		d.FailNext(route, 1, discordfake.Answer{Drop: true})
		return "an answer is lost: " + route
	case 6:
		d.FailNext(route, 1+rng.IntN(2), discordfake.Answer{Status: 503, HTML: true})
		return "503 for " + route
	case 7:
		d.Link.Reset()
		return "the API's connections are reset"
	default:
		w.Bot().Kill()
		time.Sleep(between(rng, time.Millisecond, 200*time.Millisecond))
		if err := w.Bot().Start(t.Context()); err != nil {
			t.Error(fmt.Errorf("after SIGKILL: %w", err))
		}
		return "killed"
	}
}

// Messages in threads without open work, and mentions, that come while the bot is
// away are found and answered when it is back.
func TestDiscordHearsWhatWasSaidWhileItWasAway(t *testing.T) {
	each(t, func(t *testing.T, _ *rand.Rand) {
		d, err := worldtest.NewDiscord(discordfake.Config{})
		if err != nil {
			t.Fatal(err)
		}
		d.Unheard = true
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: d})
		w.Start()
		thread, _ := w.Open(worldtest.Alice, 0, false)
		w.Settle()
		w.Bot().Kill()
		w.Say(worldtest.Alice, thread, false)
		w.Open(worldtest.Bob, 1, false)
		if err := w.Bot().Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Finish()
	})
}
