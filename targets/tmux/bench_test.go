package tmux

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
)

// median runs f n times and returns the median duration.
func median(n int, f func()) time.Duration {
	d := make([]time.Duration, n)
	for i := range d {
		begin := time.Now()
		f()
		d[i] = time.Since(begin)
	}
	slices.Sort(d)
	return d[n/2]
}

func mustRun(b *testing.B, p *Pane, text, want string) {
	b.Helper()
	o, err := p.Run(b.Context(), Command{Text: text})
	if err != nil || o.Kind != Exited || o.Stdout.String() != want {
		b.Fatalf("%+v %v", o, err)
	}
}

// BenchmarkPaneCommand compares a command in a pane with fork and exec of a
// shell, in the same run. The goal is a ratio of at most 2.
func BenchmarkPaneCommand(b *testing.B) {
	be := start(b)
	p := be.pane()
	fork := func() {
		var out bytes.Buffer
		pr, err := warranttest.Start(b.Context(), be.tgt, backend.Spec{Shell: "echo hi", Stdout: &out, Stderr: &bytes.Buffer{}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := pr.Wait(); err != nil || out.String() != "hi\n" {
			b.Fatal(out.String(), err)
		}
	}
	pane := func() { mustRun(b, p, "echo hi", "hi\n") }
	median(20, fork)
	median(20, pane)
	b.ResetTimer()
	for b.Loop() {
		pane()
	}
	b.StopTimer()
	f, c := median(200, fork), median(200, pane)
	b.ReportMetric(float64(c)/float64(f), "pane/fork")
	b.ReportMetric(float64(f.Microseconds()), "fork-us")
	b.ReportMetric(float64(c.Microseconds()), "pane-us")
}

// BenchmarkPolledBaseline is what others do: send-keys by the command line,
// then a capture of the whole history every 5 ms until a marker shows. The
// goal for a pane command is a tenth of it.
func BenchmarkPolledBaseline(b *testing.B) {
	be := start(b)
	p := be.pane()
	mustRun(b, p, "seq 2000 >/dev/null", "")
	polled := func(i int) {
		mark := fmt.Sprintf("MARK%d-", i)
		cli := func(args ...string) string {
			var out bytes.Buffer
			pr, err := warranttest.Start(b.Context(), be.tgt, backend.Spec{Argv: append([]string{"tmux", "-L", be.sock}, args...), Stdout: &out})
			if err != nil {
				b.Fatal(err)
			}
			_, _ = pr.Wait()
			return out.String()
		}
		capture := func() string { return cli("capture-pane", "-p", "-J", "-S", "-", "-E", "-", "-t", p.ID()) }
		_ = capture() // where the output will begin
		cli("send-keys", "-t", p.ID(), "-l", "echo hi; echo "+mark+"$?")
		cli("send-keys", "-t", p.ID(), "Enter")
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !strings.Contains(capture(), "\n"+mark+"0") {
			<-tick.C
		}
	}
	i := 0
	b.ResetTimer()
	for b.Loop() {
		i++
		polled(i)
	}
	b.StopTimer()
	c := median(100, func() {
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		defer cancel()
		if _, err := p.Run(ctx, Command{Text: "echo hi"}); err != nil {
			b.Fatal(err)
		}
	})
	m := median(50, func() { i++; polled(i) })
	b.ReportMetric(float64(c)/float64(m), "pane/polled")
	b.ReportMetric(float64(m.Microseconds()), "polled-us")
}

// BenchmarkTenMegabytes writes 10 MB to the pane. The goal is one second.
func BenchmarkTenMegabytes(b *testing.B) {
	p := start(b).pane()
	b.SetBytes(10 << 20)
	for b.Loop() {
		o, err := p.Run(b.Context(), Command{Text: "yes 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+ | head -c 10485760"})
		if err != nil || o.Stdout.Total != 10<<20 {
			b.Fatalf("%v %d", err, o.Stdout.Total)
		}
	}
}

// BenchmarkBothStreams is a command that writes to both streams.
func BenchmarkBothStreams(b *testing.B) {
	p := start(b).pane()
	for b.Loop() {
		mustRun(b, p, "echo out; echo err >&2", "out\n")
	}
}

// BenchmarkState is what it costs to ask a shell for its state, and to have it compared.
func BenchmarkState(b *testing.B) {
	for name, setup := range map[string]string{
		"ordinary":      ":",
		"debug trap":    "trap 'true $BASH_COMMAND' DEBUG",
		"300 functions": `for i in {1..300}; do eval "f$i() { local a=\$1; if [ -n \"\$a\" ]; then echo one two three; fi; }; export -f f$i"; done`,
	} {
		b.Run(name, func(b *testing.B) {
			p := start(b).pane()
			mustRun(b, p, setup, "")
			ask := func() Shell {
				s, err := p.Shell(b.Context(), false)
				if err != nil || s.State == "" {
					b.Fatalf("%+v %v", s, err)
				}
				return s
			}
			state := ask().State
			run := func(state string) func() {
				return func() {
					if o, err := p.Run(b.Context(), Command{Text: "true", State: state}); err != nil || o.Code != 0 {
						b.Fatalf("%+v %v", o, err)
					}
				}
			}
			for b.Loop() {
				run(state)()
			}
			plain, compared := median(50, run("")), median(50, run(state))
			b.ReportMetric(float64(median(50, func() { ask() }).Microseconds()), "ask-us")
			b.ReportMetric(float64(plain.Microseconds()), "plain-us")
			b.ReportMetric(float64(compared.Microseconds()), "compared-us")
		})
	}
}
