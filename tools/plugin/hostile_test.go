package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/foreign"
	"countersign/tools/toolstest"
)

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it never comes to this: %s", what)
		}
	}
}

// N-52: whatever a plugin writes beside the protocol is logged and ignored.
func TestNoiseIsLoggedAndIgnored(t *testing.T) {
	h := host(t, self(t, "noisy"))
	if got := value(t, h.act(t, "noise")); got != "the right one" {
		t.Errorf("got %q", got)
	}
	if got := value(t, h.act(t, "twice")); got != "first" {
		t.Errorf("got %q", got)
	}
	if got := value(t, h.act(t, "echo", "third")); got != "third" {
		t.Errorf("after a second answer to the call before: %q", got)
	}
	log := h.log.String()
	for _, want := range []string{"no message", "nobody waits for", "answers init again", "not announced"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
}

func TestHugeLinesAreNeverHeld(t *testing.T) {
	h := host(t, self(t, "base"))
	pid := value(t, h.act(t, "pid"))
	if o := h.act(t, "huge"); !o.Result.Unknown || !strings.Contains(o.Result.Text, "longer than 8MB") {
		t.Errorf("a huge answer gives %v %v", o.Result.Text, o.Err)
	}
	if got := value(t, h.act(t, "hugenoise")); got != "after the noise" {
		t.Errorf("got %q", got)
	}
	if again := value(t, h.act(t, "pid")); again != pid {
		t.Error("the plugin was started again")
	}
}

func TestStderrIsLoggedRedactedAndNotForEver(t *testing.T) {
	h := host(t, self(t, "base"))
	value(t, h.act(t, "stderr"))
	h.Close()
	log := h.log.String()
	if n := strings.Count(log, "standard error"); n < 5 || n > foreign.Burst+5 {
		t.Errorf("%d of 200 lines are logged", n)
	}
	if !strings.Contains(log, "password=[redacted]") || strings.Contains(log, "hunter2secret") {
		t.Errorf("the log is not redacted:\n%s", log)
	}
}

func TestAPluginThatNeverAnswersIsEndedAndStartedAgain(t *testing.T) {
	t.Parallel()
	p := self(t, "base")
	p.Timeout = 2 * time.Second
	h := host(t, p)
	pid := value(t, h.act(t, "pid"))
	o := h.act(t, "never")
	if o.Err != nil || !o.Result.Unknown || !strings.Contains(o.Result.Text, "did not answer within 2s, so its program was ended") {
		t.Errorf("it gives %+v", o)
	}
	if alive(pid) {
		t.Error("the program was not ended")
	}
	if again := value(t, h.act(t, "pid")); again == pid {
		t.Error("the program was not started again")
	}
	if n := strings.Count(strings.Join(h.journal(t), "\n"), `"never"`); n != 1 {
		t.Errorf("the call was given %d times", n)
	}
}

func TestADeafPluginIsKilled(t *testing.T) {
	t.Parallel()
	p := self(t, "base")
	p.Timeout = 2 * time.Second
	h := host(t, p)
	pid := value(t, h.act(t, "pid"))
	value(t, h.act(t, "deaf"))
	if o := h.act(t, "never"); !o.Result.Unknown || alive(pid) {
		t.Errorf("still there: %v, %+v", alive(pid), o)
	}
}

func TestAPluginThatDiesLeavesAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	h := host(t, self(t, "base"))
	o := h.act(t, "die")
	if o.Err != nil || !o.Result.Unknown || !strings.Contains(o.Result.Text, "its program ended (exit code 9) while the call ran") {
		t.Errorf("it gives %+v", o)
	}
	if got := value(t, h.act(t, "echo", "again")); got != "again" {
		t.Errorf("after the restart: %q", got)
	}
	if n := strings.Count(strings.Join(h.journal(t), "\n"), `"do":"die"`); n != 1 {
		t.Errorf("the call was given %d times", n)
	}
}

func TestTheLastWordOfAPluginCounts(t *testing.T) {
	h := host(t, self(t, "base"))
	if got := value(t, h.act(t, "answer and die")); got != "the last word" {
		t.Errorf("got %q", got)
	}
}

func TestAChildThatHoldsThePipesIsEndedWithItsGroup(t *testing.T) {
	for _, do := range []string{"fork and die", "fork"} {
		t.Run(do, func(t *testing.T) {
			h := host(t, self(t, "base"))
			began := time.Now()
			o := h.act(t, do)
			if do == "fork" {
				value(t, o)
				h.Close()
			} else if !o.Result.Unknown {
				t.Errorf("it gives %+v", o)
			}
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("it took %s", d)
			}
			b, err := os.ReadFile(filepath.Join(h.dir, "plugins", "actor", "child"))
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the child is gone", func() bool { return !running(strings.TrimSpace(string(b))) })
		})
	}
}

// A child in a session of its own is no longer the plugin's group; it is not ended,
// and nobody waits for it.
func TestAChildThatLeftTheGroupKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	h := host(t, self(t, "base"))
	began := time.Now()
	o := h.act(t, "escape and die")
	b, err := os.ReadFile(filepath.Join(h.dir, "plugins", "actor", "child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if !o.Result.Unknown || time.Since(began) > 10*time.Second {
		t.Errorf("after %s it gives %+v", time.Since(began), o)
	}
	if got := value(t, h.act(t, "echo", "again")); got != "again" {
		t.Errorf("after the restart: %q", got)
	}
}

// running tells whether a process runs; one that nobody waits for is not there.
func running(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return len(f) > 0 && f[0] != "Z" && f[0] != "X"
}

func TestAPluginThatDoesNotReadBlocksNobody(t *testing.T) {
	t.Parallel()
	p := self(t, "base", "large")
	p.Timeout = 2 * time.Second
	h := host(t, p)
	if got := value(t, h.act(t, "stop reading")); got != "no more" {
		t.Fatal(got)
	}
	if o := h.act(t, "echo", strings.Repeat("x", 1<<20)); !o.Result.Unknown {
		t.Errorf("half a call gives %.300q %v", o.Text, o.Err)
	}
	if got := value(t, h.act(t, "echo", "a")); got != "a" {
		t.Errorf("after the restart: %q", got)
	}
}

func start(ctx context.Context, t *testing.T, h *harness, args string, sink func(tools.Event)) (tools.Result, error) {
	t.Helper()
	p, err := h.reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: "act", Args: []byte(args)})
	if err != nil {
		return tools.Result{}, err
	}
	out := toolstest.RunPlan(ctx, t, h.reg, p, sink)
	return out.Result, out.Err
}

// stopWhen cancels once the plugin has read a call.
func stopWhen(t *testing.T, h *harness, word string, stop func()) {
	t.Helper()
	go func() {
		for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
			if b, _ := os.ReadFile(filepath.Join(h.dir, "plugins", "actor", "journal")); strings.Contains(string(b), word) {
				break
			}
		}
		stop()
	}()
}

func TestStopAsksAPluginThatUnderstandsIt(t *testing.T) {
	h := host(t, self(t, "base", "cancel"))
	pid := value(t, h.act(t, "pid"))
	ctx, cancel := context.WithCancel(t.Context())
	stopWhen(t, h, `"wait"`, cancel)
	_, err := start(ctx, t, h, `{"do":"wait"}`, quiet)
	if err == nil || !strings.Contains(err.Error(), "cleaned up\n[the call was stopped; the plugin was told to stop") {
		t.Errorf("it gives %v", err)
	}
	if again := value(t, h.act(t, "pid")); again != pid {
		t.Error("the program was ended although it answered")
	}
	if j := strings.Join(h.journal(t), "\n"); !strings.Contains(j, `{"type":"cancel","call_id":"call-2"}`) {
		t.Errorf("the journal is\n%s", j)
	}
}

func TestStopEndsAPluginThatDoesNotUnderstandIt(t *testing.T) {
	h := host(t, self(t, "base"))
	pid := value(t, h.act(t, "pid"))
	ctx, cancel := context.WithCancel(t.Context())
	stopWhen(t, h, `"wait"`, cancel)
	res, err := start(ctx, t, h, `{"do":"wait"}`, quiet)
	if err != nil || !res.Unknown || alive(pid) {
		t.Errorf("it gives %+v %v, and the program runs: %v", res, err, alive(pid))
	}
	if j := strings.Join(h.journal(t), "\n"); strings.Contains(j, "cancel\",\"call") {
		t.Error("it was sent a message that it did not announce")
	}
}

func quiet(tools.Event) {}

func TestStopBeforeTheCallWasGivenRunsNothing(t *testing.T) {
	h := host(t, self(t, "base"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("somebody said stop"))
	_, err := start(ctx, t, h, `{"do":"echo","text":"never given"}`, quiet)
	if err == nil || !strings.Contains(err.Error(), "nothing was run: somebody said stop") {
		t.Errorf("it gives %v", err)
	}
	h.Close()
	if j := strings.Join(h.journal(t), "\n"); strings.Contains(j, "never given") {
		t.Errorf("the journal is\n%s", j)
	}
}

func TestOneCallAtATimeUnlessParallel(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		h := host(t, self(t, "base"))
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := start(ctx, t, h, `{"do":"never"}`, quiet)
			first <- err
		}()
		eventually(t, "the first call is given", func() bool { return strings.Contains(strings.Join(h.journal(t), "\n"), `"never"`) })
		_, err := start(ctx, t, h, `{"do":"echo","text":"too early"}`, func(e tools.Event) {
			if strings.Contains(e.Text, "waiting for an earlier call") {
				cancel()
			}
		})
		if err == nil || !strings.Contains(err.Error(), "nothing was run") {
			t.Errorf("the second gives %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("the first gives %v", err)
		}
		if strings.Contains(strings.Join(h.journal(t), "\n"), "too early") {
			t.Error("the second was given while the first ran")
		}
	})
	t.Run("parallel", func(t *testing.T) {
		h := host(t, self(t, "base", "parallel"))
		first := make(chan tools.Result, 1)
		go func() {
			res, _ := start(t.Context(), t, h, `{"do":"hold"}`, quiet)
			first <- res
		}()
		eventually(t, "the first call is given", func() bool { return strings.Contains(strings.Join(h.journal(t), "\n"), `"hold"`) })
		if got := value(t, h.act(t, "release")); got != "released" {
			t.Errorf("the second gives %q", got)
		}
		if got := (<-first).Value; got != "held" {
			t.Errorf("the first gives %v", got)
		}
	})
}

func TestAChangedProgramIsNotWhatWasApproved(t *testing.T) {
	t.Parallel()
	p := self(t, "base")
	script := filepath.Join(t.TempDir(), "plugin.sh")
	write := func(comment string) {
		t.Helper()
		if err := os.WriteFile(script, []byte("#!/bin/sh\n# "+comment+"\nexec '"+p.Path+"' -plugin base\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	h := host(t, Plugin{Name: "actor", Path: script})
	plan, err := h.reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: "act", Args: []byte(`{"do":"echo","text":"changed"}`)})
	if err != nil {
		t.Fatal(err)
	}
	write("two")
	h.act(t, "die")
	o := toolstest.RunPlan(t.Context(), t, h.reg, plan)
	if o.Err == nil || !strings.Contains(o.Err.Error(), "changed since this was planned, so nothing was run") {
		t.Errorf("it gives %+v", o)
	}
	if got := value(t, h.act(t, "echo", "planned anew")); got != "planned anew" {
		t.Error(got)
	}
}
