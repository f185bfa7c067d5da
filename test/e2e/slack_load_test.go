package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/needstest"
)

var soak = flag.Duration("soak", 15*time.Second, "how long TestSlackSoak goes on")

// percentile returns the p-th part of the durations in milliseconds.
func percentile(d []time.Duration, p float64) float64 {
	slices.Sort(d)
	return float64(d[min(len(d)-1, int(p*float64(len(d))))].Microseconds()) / 1000
}

var burstName = regexp.MustCompile(`burst-\d+-\d+`)

// BenchmarkSlackBurst lets 200 people mention the bot at the same instant, and
// measures from there to the acknowledgement and to the request to the model.
// The local Slack, the model and the bot share the machine.
func BenchmarkSlackBurst(b *testing.B) {
	const threads = 200
	var mu sync.Mutex
	asked := map[string]time.Time{}
	llm := model(b, func(_ int, user string) turn {
		now := time.Now()
		name := burstName.FindString(user)
		mu.Lock()
		defer mu.Unlock()
		if _, ok := asked[name]; !ok {
			asked[name] = now
		}
		return turn{text: "answer to " + name}
	})
	w := newWorkspace(b, slackfake.Config{Streaming: true, AssistantStatus: true}, llm.URL)
	w.start()
	eventually(b, "both connections", func() bool { return w.Sockets() == 2 }, w.bot.log.String)
	for i := range threads {
		// Each thread in a channel of its own, or the replies would queue behind
		// each other.
		w.AddChannel(slackfake.Channel{ID: fmt.Sprintf("CB%d", i), Name: fmt.Sprint("burst", i), Members: []string{"UBOT", "UALICE"}})
	}
	var acks, requests []time.Duration
	for round := 0; b.Loop(); round++ {
		roots := make([]string, threads)
		sent := make([]time.Time, threads)
		took := make([]time.Duration, threads)
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range threads {
			wg.Go(func() {
				<-gate
				sent[i] = time.Now()
				ts, err := w.Say(b.Context(), slackfake.Message{User: "UALICE", Channel: fmt.Sprintf("CB%d", i), Text: fmt.Sprintf("<@UBOT> burst-%d-%d", round, i), Mention: true})
				if err != nil {
					b.Errorf("message %d was lost: %v", i, err)
				}
				took[i], roots[i] = time.Since(sent[i]), ts
			})
		}
		close(gate)
		wg.Wait()
		for i := range threads {
			name := fmt.Sprintf("burst-%d-%d", round, i)
			eventually(b, "an answer to "+name, func() bool {
				return strings.Contains(w.text(fmt.Sprintf("CB%d", i), roots[i]), "answer to "+name)
			}, w.bot.log.String)
			mu.Lock()
			requests = append(requests, asked[name].Sub(sent[i]))
			mu.Unlock()
			acks = append(acks, took[i])
		}
	}
	b.ReportMetric(percentile(acks, 0.95), "ms-event-to-ack-p95")
	b.ReportMetric(percentile(acks, 0.5), "ms-event-to-ack-p50")
	b.ReportMetric(percentile(acks, 0.99), "ms-event-to-ack-p99")
	b.ReportMetric(percentile(requests, 0.95), "ms-event-to-model-p95")
	b.ReportMetric(percentile(requests, 0.5), "ms-event-to-model-p50")
}

// TestSlackSoak talks to the bot while Slack disconnects, forgets
// acknowledgements, limits and fails at random: each message has one reply in
// the end, and the process does not grow.
func TestSlackSoak(t *testing.T) {
	needstest.Long(t)
	name := regexp.MustCompile(`soak-\d+`)
	llm := model(t, func(_ int, user string) turn { return turn{text: "reply to " + name.FindString(user) + "."} })
	w := newWorkspace(t, slackfake.Config{
		AckTimeout: time.Second, RetryDelays: []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second},
	}, llm.URL)
	w.start()
	end := time.Now().Add(*soak)
	ctx, stop := context.WithDeadline(t.Context(), end)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { trouble(ctx, w) })
	type said struct{ channel, root, id string }
	var mu sync.Mutex
	var all []said
	lost := 0
	for p := range 4 {
		channel := fmt.Sprintf("CS%d", p)
		w.AddChannel(slackfake.Channel{ID: channel, Name: strings.ToLower(channel), Members: []string{"UBOT", "UALICE"}})
		wg.Go(func() {
			root := ""
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("soak-%d", p*1_000_000+i)
				m := slackfake.Message{User: "UALICE", Channel: channel, Thread: root, Text: id}
				if i%10 == 0 {
					m.Thread, m.Text, m.Mention = "", "<@UBOT> "+id, true
				}
				say, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
				ts, err := w.Say(say, m)
				cancel()
				mu.Lock()
				if i%10 == 0 && err == nil {
					root = ts
				}
				switch {
				case err != nil:
					lost++ // Slack gave up on it: not the bot's doing
				case root != "":
					all = append(all, said{channel, root, id})
				}
				mu.Unlock()
				select {
				case <-time.After(time.Duration(500+rand.IntN(1500)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	<-time.After(*soak / 3)
	early := resident(t, w.bot.cmd.Process.Pid)
	wg.Wait()
	late := resident(t, w.bot.cmd.Process.Pid)
	for _, s := range all {
		eventually(t, "a reply to "+s.id, func() bool { return strings.Contains(w.text(s.channel, s.root), "reply to "+s.id+".") }, func() string {
			return w.text(s.channel, s.root) + w.bot.log.String()
		})
	}
	for _, s := range all {
		n, which := 0, []string{}
		for _, m := range w.Messages(s.channel, s.root) {
			if m.BotID == "BBOT" && !m.Deleted && strings.Contains(slackfake.Plain(m.Blocks), "reply to "+s.id+".") {
				n++
				which = append(which, fmt.Sprintf("%s %s", m.TS, m.Metadata))
			}
		}
		if n != 1 {
			t.Errorf("%s has %d replies (%s):\n%s", s.id, n, strings.Join(which, ", "), w.text(s.channel, s.root))
		}
	}
	t.Logf("%d messages, %d that Slack gave up on, resident %d KiB after a third, %d KiB at the end", len(all), lost, early, late)
	if *soak >= 5*time.Minute && late > 2*early {
		t.Errorf("the process grew from %d to %d KiB", early, late)
	}
}

// trouble is a bad day at Slack.
func trouble(ctx context.Context, w *workspace) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(200+rand.IntN(1200)) * time.Millisecond):
		}
		switch rand.IntN(7) {
		case 0:
			w.DisconnectAll("refresh_requested")
		case 1:
			w.Cut()
		case 2:
			w.ForgetAck(1 + rand.IntN(3))
		case 3:
			w.FailNext("chat.postMessage", 1, slackfake.Answer{Status: 429, RetryAfter: time.Second})
		case 4:
			w.FailNext("chat.postMessage", 1, slackfake.Answer{Drop: true})
		case 5:
			w.FailNext("chat.update", 2, slackfake.Answer{Status: 429, RetryAfter: time.Second})
		case 6:
			w.FailNext("chat.postMessage", 2, slackfake.Answer{Status: 503})
		}
	}
}

// resident is a process's memory in KiB.
func resident(t testing.TB, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
