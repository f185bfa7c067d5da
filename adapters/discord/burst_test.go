package discord_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/discordfake"
)

// BenchmarkBurst has a hundred threads busy at once within Discord's limits: in
// each a reply is being written, a card waits, and its button is pressed. It
// reports the time from a press to its answer, and fails where a call met a limit:
// Discord counts those against the address.
func BenchmarkBurst(b *testing.B) {
	const threads = 100
	w := newTown(b, discordfake.Config{
		Privileged: discordfake.IntentMessageContent, RateLimits: true,
		Limits: map[string]discordfake.Limit{"POST /channels/{channel_id}/messages/{message_id}/threads": {N: 1000, Per: time.Second}},
	})
	bot := &agent{known: map[chat.ThreadID]bool{}}
	bot.onClick(decided("Approved"))
	cfg := w.config()
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Known = bot.knows
	a := adapter(b, cfg)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, bot) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	if err := w.WaitOnline(ctx, 1); err != nil {
		b.Fatal(err)
	}
	var all []time.Duration
	for b.Loop() {
		all = append(all, burst(b, w, a, bot, threads)...)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*95/100].Milliseconds()), "ms-ack-p95")
	b.ReportMetric(float64(all[len(all)-1].Milliseconds()), "ms-ack-max")
	for _, c := range w.Calls() {
		if c.Status == 429 {
			b.Errorf("%s met a limit: %s", c.Route, c.Answer)
		}
	}
}

func burst(b *testing.B, w *town, a chat.Adapter, bot *agent, threads int) []time.Duration {
	b.Helper()
	before := len(bot.got())
	var list []chat.ThreadID
	for i := range threads {
		id, err := w.Say(w.alice, w.channel, fmt.Sprintf("<@%s> question %d", w.BotID(), i))
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, chat.ThreadID("discord:"+w.guild+":"+w.channel+":"+id))
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); len(bot.got()) < before+threads; {
		select {
		case <-tick.C:
		case <-late:
			b.Fatalf("only %d of %d questions came", len(bot.got())-before, threads)
		}
	}
	shower, _ := a.(chat.ProgressShower)
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	for _, th := range list {
		wg.Go(func() {
			for i := range 20 {
				shower.ShowProgress(b.Context(), th, chat.Progress{Key: "reply", Status: "writing", Text: fmt.Sprint("draft ", i)})
			}
			if _, err := a.Post(b.Context(), th, chat.Post{Key: "q", Card: question()}); err != nil {
				b.Errorf("posting: %v", err)
				return
			}
			_, channel := split(th)
			message, id := button(w.Shown(channel), "approve:1")
			at := time.Now()
			if _, err := w.Press(b.Context(), w.alice, channel, message, id); err != nil {
				b.Errorf("pressing: %v", err)
			}
			mu.Lock()
			took = append(took, time.Since(at))
			mu.Unlock()
			if _, err := a.Post(b.Context(), th, chat.Post{Key: "reply", Text: "done"}); err != nil {
				b.Errorf("posting: %v", err)
			}
		})
	}
	wg.Wait()
	return took
}
