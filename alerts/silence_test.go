package alerts_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/alerts"
)

func (h *house) problem() alerts.Problem {
	h.t.Helper()
	all, err := h.in.Problems(context.Background())
	if err != nil || len(all) != 1 {
		h.t.Fatalf("the problems are %+v, %v", all, err)
	}
	return all[0]
}

func (h *house) silence(p alerts.Problem, until time.Time) {
	h.t.Helper()
	if err := h.in.Silence(context.Background(), p.ID, "Ann *", until); err != nil {
		h.t.Fatal(err)
	}
	settle(time.Second)
}

func TestASilencedProblemSaysNothingUntilTheSilenceEnds(t *testing.T) {
	bubble(t, config(), func(h *house) {
		h.accept(fires("a"))
		settle(time.Second)
		th := h.thread()
		p := h.problem()
		if !p.Firing || p.Thread != th || p.Title != "disk a is full" || p.Source != "Alert" || p.Notices != 1 || !p.Quiet.IsZero() {
			t.Errorf("it is %+v", p)
		}
		h.silence(p, time.Now().Add(time.Hour))
		has(t, "the root", h.texts(th)["alerts/1/root"], `- Silenced until 2000-01-01 01:00 UTC by Ann \*`)
		if p = h.problem(); p.QuietBy != "Ann *" || p.Quiet.IsZero() {
			t.Errorf("it is %+v", p)
		}
		for range 5 {
			h.accept(fires("a"), over("a"))
			settle(5 * time.Minute)
		}
		got := h.texts(th)
		if len(got) != 1 {
			t.Errorf("during the silence the thread shows %q", got)
		}
		has(t, "the root", got["alerts/1/root"], "✅ Resolved")
		settle(time.Hour)
		got = h.texts(th)
		if len(got) != 2 {
			t.Errorf("after the silence the thread shows %q", got)
		}
		var lines string
		for key, text := range got {
			if key != "alerts/1/root" {
				lines = text
			}
		}
		has(t, "what was missed", lines, "Resolved after", "(and 6 more before)")
		if lacks := got["alerts/1/root"]; h.problem().QuietBy != "" || strings.Contains(lacks, "Silenced") {
			t.Errorf("the silence is still shown: %q", lacks)
		}
	})
}

func TestASilenceEndsEarlyWhenSomebodyEndsIt(t *testing.T) {
	bubble(t, config(), func(h *house) {
		h.accept(fires("a"))
		settle(time.Second)
		h.silence(h.problem(), time.Now().Add(time.Hour))
		h.accept(over("a"))
		settle(time.Minute)
		h.silence(h.problem(), time.Time{})
		if got := h.texts(h.thread()); len(got) != 2 || strings.Contains(got["alerts/1/root"], "Silenced") {
			t.Errorf("the thread shows %q", got)
		}
	})
}

func TestAProblemThatBeginsAgainInItsSilenceGetsItsThreadAfterIt(t *testing.T) {
	bubble(t, config(), func(h *house) {
		h.accept(fires("a"), over("a"))
		settle(time.Second)
		h.silence(h.problem(), time.Now().Add(24*time.Hour))
		settle(6 * time.Hour)
		h.accept(fires("a"))
		settle(time.Minute)
		h.accept(over("a"))
		settle(time.Minute)
		h.accept(fires("a"))
		settle(time.Minute)
		if n := len(h.net.Threads()); n != 1 {
			t.Fatalf("during the silence there are %d threads", n)
		}
		settle(18 * time.Hour)
		all := h.net.Threads()
		if len(all) != 2 {
			t.Fatalf("after the silence there are %d threads", len(all))
		}
		root := h.texts(all[0])["alerts/2/root"] + h.texts(all[1])["alerts/2/root"]
		if has(t, "the new root", root, "🔴 Critical"); strings.Contains(root, "Silenced") {
			t.Errorf("the silence is still shown: %q", root)
		}
	})
}

func TestAProblemThatCameAndWentInItsSilenceIsForgotten(t *testing.T) {
	bubble(t, config(), func(h *house) {
		h.accept(fires("a"), over("a"))
		settle(time.Second)
		h.silence(h.problem(), time.Now().Add(24*time.Hour))
		settle(6 * time.Hour)
		h.accept(fires("a"))
		settle(time.Minute)
		h.accept(over("a"))
		settle(24 * time.Hour)
		if all, err := h.in.Problems(context.Background()); err != nil || len(all) != 0 || len(h.net.Threads()) != 1 {
			t.Errorf("the problems are %+v, %v", all, err)
		}
	})
}

func TestOnlyAProblemThatIsThereIsSilenced(t *testing.T) {
	bubble(t, config(), func(h *house) {
		if err := h.in.Silence(context.Background(), "no", "Ann", time.Now().Add(time.Hour)); !errors.Is(err, alerts.ErrNoProblem) {
			t.Errorf("it is %v", err)
		}
	})
}
