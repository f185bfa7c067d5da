package plugin

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/tools"
	"countersign/tools/foreign"
	"countersign/tools/toolstest"
)

// actInit is what the fake plugins answer to init.
const actInit = `{"type":"init","tools":[` + actTool + `]}`

// dies answers init, and dies at each call.
func dies(line string, say func(string)) bool {
	if strings.Contains(line, `"init"`) {
		say(actInit)
		return true
	}
	return false
}

func TestAPluginThatKeepsCrashingIsDownAndSaysSo(t *testing.T) {
	p := fakePlugin(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []time.Time
		starts := func() []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		h, err := open(t.Context(), Config{Plugins: []Plugin{p}, DataDir: dir, Log: slog.New(slog.DiscardHandler)}, func(foreign.Program) (process, error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, time.Now())
			return newFake(dies), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		reg, err := tools.NewRegistry(time.Now, h.Tools()...)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for i := range foreign.Tries + 1 {
			if o := toolstest.Run(t.Context(), t, reg, "act", `{"do":"x"}`); !o.Result.Unknown {
				t.Fatalf("call %d gives %+v", i, o)
			}
			synctest.Wait()
		}
		// Starts after 0, 1, 1+5 and 1+5+15 seconds; then it is down.
		for i, want := range []time.Duration{0, time.Second, 6 * time.Second, 21 * time.Second} {
			if got := starts()[i].Sub(begin); got != want {
				t.Errorf("start %d after %s, want %s", i, got, want)
			}
		}
		_, err = reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: "act", Args: []byte(`{"do":"x"}`)})
		want := fmt.Sprintf("is tried again at %s. Nothing was run", clock(begin.Add(21*time.Second+foreign.Window)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the plugin fake is down: its program ended (exit code 1), and it has been started 3 times in 5 minutes") {
			t.Errorf("a call while it is down: %v, want %q", err, want)
		}
		time.Sleep(foreign.Window)
		synctest.Wait()
		if n := len(starts()); n != foreign.Tries+2 {
			t.Errorf("it was started %d times", n)
		}
		if o := toolstest.Run(t.Context(), t, reg, "act", `{"do":"x"}`); !o.Result.Unknown {
			t.Errorf("when it is back: %+v", o)
		}
	})
}

func TestAPluginThatCannotBeStartedAgainIsTriedLater(t *testing.T) {
	p := fakePlugin(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int32
		h, err := open(t.Context(), Config{Plugins: []Plugin{p}, DataDir: dir, Log: slog.New(slog.DiscardHandler)}, func(foreign.Program) (process, error) {
			if n := starts.Add(1); n > 1 && n < 6 {
				return nil, errors.New("the disk is full")
			}
			return newFake(dies), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		reg, err := tools.NewRegistry(time.Now, h.Tools()...)
		if err != nil {
			t.Fatal(err)
		}
		call := func() toolstest.Outcome { return toolstest.Run(t.Context(), t, reg, "act", `{"do":"x"}`) }
		if o := call(); !o.Result.Unknown {
			t.Fatalf("the first gives %+v", o)
		}
		if o := call(); o.Err == nil || !strings.Contains(o.Err.Error(), "is down: it does not start: the disk is full") {
			t.Fatalf("the second gives %+v", o)
		}
		time.Sleep(2 * foreign.Window)
		if o := call(); !o.Result.Unknown {
			t.Errorf("when it starts again: %+v", o)
		}
	})
}

func TestAPluginThatIsSilentIsGivenUp(t *testing.T) {
	p := fakePlugin(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, err := open(t.Context(), Config{Plugins: []Plugin{p}, DataDir: dir, Log: slog.New(slog.DiscardHandler)}, func(foreign.Program) (process, error) {
			return newFake(func(string, func(string)) bool { return true }), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if n := h.Notices(); len(n) == 0 || !strings.Contains(n[0], "did not answer init within 20s") {
			t.Errorf("the notices are %q", n)
		}
	})
}

func TestAPluginThatIgnoresCancelIsEnded(t *testing.T) {
	p := fakePlugin(t)
	p.Timeout = time.Minute
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		h, err := open(t.Context(), Config{Plugins: []Plugin{p}, DataDir: dir, Log: slog.New(slog.DiscardHandler)}, func(foreign.Program) (process, error) {
			return newFake(func(line string, say func(string)) bool {
				got = append(got, strings.TrimSpace(line))
				if strings.Contains(line, `"init"`) {
					say(strings.Replace(actInit, `]}`+"", `],"features":["cancel"]}`, 1))
				}
				return true
			}), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		reg, err := tools.NewRegistry(time.Now, h.Tools()...)
		if err != nil {
			t.Fatal(err, h.Notices())
		}
		began := time.Now()
		o := toolstest.Run(t.Context(), t, reg, "act", `{"do":"x"}`)
		if !o.Result.Unknown || !strings.Contains(o.Result.Text, "it did not answer within 1m0s, so its program was ended") {
			t.Errorf("it gives %+v", o)
		}
		if d := time.Since(began); d != time.Minute+cancelGrace {
			t.Errorf("it took %s", d)
		}
		synctest.Wait()
		if len(got) < 3 || got[2] != `{"type":"cancel","call_id":"call-1"}` {
			t.Errorf("it was sent %q", got)
		}
	})
}

// A plugin that comes back with another description of a tool is not used.
func TestAToolThatChangesWhileTheBotRunsIsRefused(t *testing.T) {
	p := fakePlugin(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		list := []string{actInit, strings.Replace(actInit, "Does what", "Does all that", 1), `{"type":"init","tools":[]}`, actInit}
		n := 0
		h, err := open(t.Context(), Config{Plugins: []Plugin{p}, DataDir: dir, Log: slog.New(slog.DiscardHandler)}, func(foreign.Program) (process, error) {
			says := list[n]
			n++
			return newFake(func(line string, say func(string)) bool {
				if strings.Contains(line, `"init"`) {
					say(says)
					return true
				}
				return false
			}), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		reg, err := tools.NewRegistry(time.Now, h.Tools()...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: "act", Args: []byte(`{"do":"x"}`)})
		if err != nil {
			t.Fatal(err)
		}
		h.offered[0].plugin.session.kill()
		synctest.Wait()
		if o := toolstest.RunPlan(t.Context(), t, reg, plan); o.Err == nil || !strings.Contains(o.Err.Error(), "describes act differently now, so nothing was run") {
			t.Errorf("it gives %+v", o)
		}
		h.offered[0].plugin.session.kill()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if _, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: "act", Args: []byte(`{"do":"x"}`)}); err == nil || !strings.Contains(err.Error(), "has no tool act any more") {
			t.Errorf("planning gives %v", err)
		}
	})
}
