package container

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/container/enginetest"
)

// TestAReadInAContainerTakesTheSpareShell: from the second read on, a shell that is there already
// runs it; it is used once, and never for what may change something.
func TestAReadInAContainerTakesTheSpareShell(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *enginetest.Engine{"docker": enginetest.Docker, "podman": enginetest.Podman} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t)
			box := e.Run(t, enginetest.Debian)
			tgt, err := New(Config{Container: box, Engine: e.Host})
			if err != nil {
				t.Fatal(err)
			}
			defer tgt.Close()
			if _, err := tgt.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			read := func(text string) (string, backend.Result) {
				t.Helper()
				var out bytes.Buffer
				p, err := tgt.Start(t.Context(), backend.Spec{Shell: text, Stdout: &out, Stderr: &out, Lock: &backend.Lock{}})
				if err != nil {
					t.Fatal(err)
				}
				res, err := p.Wait()
				if err != nil {
					t.Fatal(err)
				}
				return out.String(), res
			}
			kept := func() *spare {
				tgt.spares.mu.Lock()
				defer tgt.spares.mu.Unlock()
				return tgt.spares.one
			}
			wait := func() *spare {
				t.Helper()
				for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
					if sp := kept(); sp != nil {
						return sp
					}
				}
				t.Fatal("no spare was made")
				return nil
			}
			if out, _ := read("echo first"); out != "first\n" {
				t.Errorf("%q", out)
			}
			sp := wait()
			// Quotes, lines and bytes arrive as they are; there is no input; the code is the command's.
			out, res := read("printf '%s\\n' \"it's\" 'a\nb' '$x'; cat; exit 7")
			if out != "it's\na\nb\n$x\n" || res.Code != 7 {
				t.Errorf("%q %+v", out, res)
			}
			if !sp.s.over() {
				t.Error("the spare was not used")
			}
			if next := wait(); next == sp {
				t.Error("a spare is used twice")
			}
			// What may change something has a program of its own.
			sp = wait()
			p, err := tgt.Start(t.Context(), backend.Spec{Shell: "echo x >/tmp/changed"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil || kept() != sp {
				t.Errorf("a change took the spare (%v)", err)
			}
			// One of an earlier life of the container is of no use.
			e.CLI(t, "restart", "-t", "0", box)
			if out, _ := read("echo again"); out != "again\n" {
				t.Errorf("after a restart: %q", out)
			}
			// A read through a spare can be killed.
			wait()
			k, err := tgt.Start(t.Context(), backend.Spec{Shell: "sleep 300", Lock: &backend.Lock{}, Grace: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			k.Kill()
			if res, err := k.Wait(); err != nil || !res.Killed {
				t.Errorf("%+v %v", res, err)
			}
			if out := e.CLI(t, "exec", box, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(out, "sleep 300") {
				t.Errorf("it runs on: %s", out)
			}
			// None is left behind.
			if err := tgt.Close(); err != nil {
				t.Error(err)
			}
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				out := e.CLI(t, "exec", box, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
				if !strings.Contains(out, "read -r n") {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("a spare is left: %s", out)
				}
			}
		})
	}
}
