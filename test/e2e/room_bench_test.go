package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/ssh/sshtest"
)

// BenchmarkKeystroke measures from a key that somebody presses in the console until its echo is
// there, on this machine and on a host at 50 ms, one key after the other.
func BenchmarkKeystroke(b *testing.B) {
	s := sshtest.Start(b, sshtest.Options{Shell: "bash"})
	proxy := sshtest.NewProxy(b, s.Address())
	s.Know(proxy.Host, proxy.Port)
	for _, at := range []struct {
		name, target string
		rtt          time.Duration
	}{
		{"local", "{kind: local, approvers: [oncall]}", 0},
		{"far", fmt.Sprintf("{kind: ssh, host: %s, port: %d, user: %s, identities: [%s], known_hosts: [%s], approvers: [oncall]}", proxy.Host, proxy.Port, s.User, s.KeyFile, s.KnownHosts), 50 * time.Millisecond},
	} {
		b.Run(at.name, func(b *testing.B) {
			proxy.Delay(0)
			llm := model(b, func(int, string) turn { return turn{text: "ok"} })
			bt := newBot(b, fmt.Sprintf("\nagent: {target: here}\ntargets:\n  here: %s\ngroups:\n  oncall: {web: [alice]}\n", at.target), llm.URL)
			b.Cleanup(bt.endTerminals)
			if at.rtt > 0 {
				b.Cleanup(func() { endOn(b, s, bt) })
			}
			if !bt.start() {
				b.Fatal(bt.log)
			}
			alice := bt.login("alice")
			thread := alice.say(b, "hello")
			alice.add(b, thread, "take")
			w := alice.watch(b, thread)
			w.until("she has it", func() bool { return w.hands.Mine })
			w.press("cat > /dev/null\r") // the terminal echoes by itself
			w.shows("/dev/null\r\n")
			time.Sleep(300 * time.Millisecond)
			proxy.Delay(at.rtt / 2)
			var all []time.Duration
			for range 60 {
				w.mu.Lock()
				before := w.screen.Len()
				w.mu.Unlock()
				t0 := time.Now()
				w.press("x")
				for {
					w.mu.Lock()
					n, got := w.screen.Len(), w.at
					w.mu.Unlock()
					if n > before {
						all = append(all, got.Sub(t0))
						break
					}
					if time.Since(t0) > 10*time.Second {
						b.Fatal("no echo")
					}
					time.Sleep(100 * time.Microsecond)
				}
				time.Sleep(20 * time.Millisecond)
			}
			b.ReportMetric(median(all), "ms-p50")
			b.ReportMetric(percentile(all, 0.95), "ms-p95")
		})
	}
}

// BenchmarkManyBrowsers has 200 browsers watch one thread in which a command prints, and measures
// until a message is at each of them, and the memory that they take.
func BenchmarkManyBrowsers(b *testing.B) {
	const browsers = 200
	llm := model(b, func(int, string) turn { return turn{text: "ok"} })
	bt := newBot(b, plainConfig, llm.URL)
	if !bt.start() {
		b.Fatal(bt.log)
	}
	var people []*person
	for range browsers / 20 { // a browser has ten pages open
		people = append(people, bt.login("alice"), bt.login("bob"))
	}
	thread := people[0].say(b, "hello")
	before := resident(b, bt.cmd.Process.Pid)
	var mu sync.Mutex
	arrived := map[string][]time.Time{}
	ready := make(chan struct{}, 1)
	for i := range browsers {
		p := people[i%len(people)]
		go func() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, bt.url+"/api/threads/"+thread+"/events?after=0", nil)
			if err != nil {
				return
			}
			res, err := (&http.Client{Jar: p.http.Jar, Transport: &http.Transport{DisableCompression: true}}).Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				b.Errorf("status %d", res.StatusCode)
				return
			}
			ready <- struct{}{}
			lines := bufio.NewScanner(res.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if _, text, ok := strings.Cut(lines.Text(), `"text":"tick `); ok {
					n, _, _ := strings.Cut(text, `"`)
					mu.Lock()
					arrived[n] = append(arrived[n], time.Now())
					mu.Unlock()
				}
			}
		}()
		select { // one after the other: from one address only so many strangers come in at once
		case <-ready:
		case <-time.After(30 * time.Second):
			b.Fatal("not all browsers are there")
		}
	}
	time.Sleep(2 * time.Second)
	var all []time.Duration
	for i := range 20 {
		t0 := time.Now()
		people[0].add(b, thread, fmt.Sprint("tick ", i))
		eventually(b, "all have it", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(arrived[fmt.Sprint(i)]) == browsers
		}, bt.log.String)
		mu.Lock()
		for _, at := range arrived[fmt.Sprint(i)] {
			all = append(all, at.Sub(t0))
		}
		mu.Unlock()
		time.Sleep(300 * time.Millisecond)
	}
	b.ReportMetric(median(all), "ms-p50")
	b.ReportMetric(percentile(all, 0.95), "ms-p95")
	b.ReportMetric(float64(resident(b, bt.cmd.Process.Pid)-before)/browsers, "KiB-each")
}
