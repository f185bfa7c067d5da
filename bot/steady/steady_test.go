package steady

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestAClock(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		rule  string
		steps []struct{ runs, wall, shows time.Duration } // runs on, wall and shown as after noon
		said  int
	}{
		{"shows the wall clock's time", []struct{ runs, wall, shows time.Duration }{{time.Hour, time.Hour, time.Hour}}, 0},
		{"follows what is slewed", []struct{ runs, wall, shows time.Duration }{{time.Hour, time.Hour + time.Second, time.Hour + time.Second}, {time.Hour, 2*time.Hour + 2*time.Second, 2*time.Hour + 2*time.Second}}, 0},
		{"does not follow a jump ahead", []struct{ runs, wall, shows time.Duration }{{time.Minute, 61 * time.Minute, time.Minute}, {time.Minute, 62 * time.Minute, 2 * time.Minute}}, 1},
		{"does not follow a jump back", []struct{ runs, wall, shows time.Duration }{{time.Minute, -59 * time.Minute, time.Minute}}, 1},
		{"goes on when the jump is taken back", []struct{ runs, wall, shows time.Duration }{{time.Minute, 61 * time.Minute, time.Minute}, {time.Minute, 2 * time.Minute, 2 * time.Minute}}, 1},
		{"believes a clock that stays", []struct{ runs, wall, shows time.Duration }{
			{time.Minute, 61 * time.Minute, time.Minute}, {14 * time.Minute, 75 * time.Minute, 15 * time.Minute}, {2 * time.Minute, 77 * time.Minute, 77 * time.Minute}, {time.Minute, 78 * time.Minute, 78 * time.Minute},
		}, 2},
	} {
		t.Run(c.rule, func(t *testing.T) {
			wall, run := noon, time.Hour
			var out strings.Builder
			k := newClock(func() time.Time { return wall }, func() time.Duration { return run }, slog.New(slog.NewTextHandler(&out, nil)))
			for i, s := range c.steps {
				run += s.runs
				wall = noon.Add(s.wall)
				if got := k.Now().Sub(noon); got != s.shows {
					t.Errorf("step %d shows %v, want %v", i, got, s.shows)
				}
			}
			if n := strings.Count(out.String(), "level=WARN"); n != c.said {
				t.Errorf("said %d times, want %d: %s", n, c.said, &out)
			}
		})
	}
}

func TestTheRealClockShowsTheTime(t *testing.T) {
	c := New(slog.New(slog.DiscardHandler))
	if d := time.Since(c.Now()).Abs(); d > time.Minute {
		t.Errorf("off by %v", d)
	}
	if elapsed()() <= 0 {
		t.Error("the machine's running time is not known")
	}
}
