package tmux

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/container/enginetest"
	"countersign/targets/local"
	"countersign/targets/ssh/sshtest"
)

func localBench() *kit {
	return &kit{open: func(t testing.TB) backend.Target { return local.New(local.Options{Dir: t.TempDir()}) }}
}

// BenchmarkPaneOverSSH is a pane's command over a link of 50 ms, beside what others do
// on the same link: six calls of the ssh program over one ControlMaster. The goal is
// one round trip and 2 ms, and a fifth of the six calls.
func BenchmarkPaneOverSSH(b *testing.B) {
	const rtt = 50 * time.Millisecond
	s := sshtest.Start(b, sshtest.Options{Shell: "bash"})
	proxy, far := proxied(b, s)
	proxy.Delay(rtt / 2)
	d := (&kit{open: func(t testing.TB) backend.Target { return openSSH(t, far) }}).desk(b)
	p := d.pane(b, "main")
	client, err := exec.LookPath("ssh")
	if err != nil {
		b.Fatal("ssh is missing: apt-get install openssh-client")
	}
	args := []string{
		"-F", "none", "-i", s.KeyFile, "-o", "UserKnownHostsFile=" + s.KnownHosts, "-o", "ControlPath=" + s.Dir + "/c-%p",
		"-p", strconv.Itoa(proxy.Port), s.User + "@" + proxy.Host,
	}
	call := func(more ...string) {
		if out, err := exec.CommandContext(b.Context(), client, append(slices.Clone(args), more...)...).CombinedOutput(); err != nil {
			b.Fatalf("%q: %v: %s", more, err, out)
		}
	}
	if out, err := exec.CommandContext(b.Context(), client, append([]string{"-o", "ControlMaster=yes", "-o", "ControlPersist=60", "-f", "-N"},
		args...)...).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	defer call("-O", "exit")
	polled := func() {
		tmux := "tmux -L " + d.s.socket() + " "
		capture := tmux + "capture-pane -p -J -S - -E - -t " + p.ID()
		for _, line := range []string{
			tmux + "show-options -v -t main: @cs_owner",
			tmux + "display-message -p -t " + p.ID() + " '#{pane_dead}'",
			capture,
			tmux + "send-keys -t " + p.ID() + " -l 'echo hi'",
			tmux + "send-keys -t " + p.ID() + " Enter",
			capture,
		} {
			call(line)
		}
	}
	mustRun(b, p, "echo hi", "hi\n")
	b.ResetTimer()
	for b.Loop() {
		mustRun(b, p, "echo hi", "hi\n")
	}
	b.StopTimer()
	c := median(40, func() { mustRun(b, p, "echo hi", "hi\n") })
	both := median(10, func() { mustRun(b, p, "echo hi; echo e >&2", "hi\n") })
	bare := median(40, func() { // what the link really takes
		if err := p.refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	m := median(5, polled)
	b.ReportMetric(float64((c-bare).Microseconds())/1000, "ms-over-one-question")
	b.ReportMetric(float64(c)/float64(m), "pane/six-calls")
	b.ReportMetric(float64((c-rtt).Microseconds())/1000, "ms-over-RTT")
	b.ReportMetric(float64((both-rtt).Microseconds())/1000, "both-streams-ms-over-RTT")
	b.ReportMetric(float64(m.Microseconds())/1000, "six-calls-ms")
}

// BenchmarkPaneInContainer is a pane's command in a container beside one on the local
// machine. The goal is 1.5 times.
func BenchmarkPaneInContainer(b *testing.B) {
	for name, engine := range map[string]func(testing.TB) *enginetest.Engine{"docker": enginetest.Docker, "podman": enginetest.Podman} {
		b.Run(name, func(b *testing.B) {
			e := engine(b)
			box := e.Run(b, enginetest.Debian)
			// As the bot uses them: nobody else may type.
			guarded := func(d *desk) { d.o.Guard = true }
			there := (&kit{open: func(t testing.TB) backend.Target { return openContainer(t, e.Host, box) }}).desk(b, guarded).pane(b, "main")
			here := localBench().desk(b, guarded).pane(b, "main")
			in := func() { mustRun(b, there, "echo hi", "hi\n") }
			out := func() { mustRun(b, here, "echo hi", "hi\n") }
			median(50, in)
			median(50, out)
			b.ResetTimer()
			for b.Loop() {
				in()
			}
			b.StopTimer()
			c, l := median(300, in), median(300, out)
			b.ReportMetric(float64(c)/float64(l), "container/local")
			b.ReportMetric(float64(c.Microseconds()), "container-us")
			b.ReportMetric(float64(l.Microseconds()), "local-us")
		})
	}
}

// crowd makes n further panes in one session.
func crowd(b *testing.B, s *Server, n int) []*Pane {
	b.Helper()
	var panes []*Pane
	for range n {
		p, err := s.NewPane(b.Context(), "main", PaneSpec{})
		if err != nil {
			b.Fatal(err)
		}
		panes = append(panes, p)
	}
	return panes
}

// BenchmarkFiftyPanes is the median time of a command in one pane while 49 others run
// commands that print a line every 0.1 s, beside the same pane alone. The goal is three
// times. It also tells the time when all 50 run one command after the other without a
// pause, which is bound by the processors.
func BenchmarkFiftyPanes(b *testing.B) {
	s := localBench().desk(b)
	p := s.pane(b, "main")
	one := func() { mustRun(b, p, "echo hi", "hi\n") }
	median(50, one)
	alone := median(300, one)
	others := crowd(b, s.s, 49)
	for _, o := range others {
		if err := o.Dispatch(b.Context(), Command{Text: "while sleep 0.1; do echo line; done"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		one()
	}
	b.StopTimer()
	busy := median(300, one)
	var wg sync.WaitGroup
	for _, o := range others {
		wg.Go(func() {
			if err := o.Interrupt(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	var mu sync.Mutex
	var took []time.Duration
	for _, o := range append(others, p) {
		wg.Go(func() {
			for range 20 {
				begin := time.Now()
				if r, err := o.Run(b.Context(), Command{Text: "echo hi"}); err != nil || r.Stdout.String() != "hi\n" {
					b.Errorf("%+v %v", r, err)
				}
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(busy)/float64(alone), "among-50/alone")
	b.ReportMetric(float64(alone.Microseconds()), "alone-us")
	b.ReportMetric(float64(busy.Microseconds()), "among-50-us")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "all-at-once-us")
}

// BenchmarkIdlePanes is the memory of the bot for each of 50 panes that have run a
// command and are idle: heap and stacks in use, after a collection. The goal is 300 KB.
// Once they share a session, once each has one of its own.
func BenchmarkIdlePanes(b *testing.B) {
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	const n = 50
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("own session=%v", own), func(b *testing.B) {
			for b.Loop() {
				d := localBench().desk(b)
				mustRun(b, d.pane(b, "main"), "echo hi; echo e >&2", "hi\n")
				before := used()
				var panes []*Pane
				if own {
					for i := range n {
						panes = append(panes, d.pane(b, fmt.Sprint("s", i)))
					}
				} else {
					panes = crowd(b, d.s, n)
				}
				for _, p := range panes {
					mustRun(b, p, "echo hi; seq 2000; echo e >&2", "hi\n"+seq2000())
				}
				after := used()
				b.ReportMetric(float64(int64(after)-int64(before))/n/1024, "KiB/pane")
				runtime.KeepAlive(panes)
			}
		})
	}
}

func seq2000() string {
	var out []byte
	for i := range 2000 {
		out = append(strconv.AppendInt(out, int64(i+1), 10), '\n')
	}
	return string(out)
}
