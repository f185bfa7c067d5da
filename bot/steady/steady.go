// Package steady is a clock for deadlines that people were told: it shows the time of day
// and does not follow a wall clock that jumps, so that a card neither ends early nor lives
// longer because somebody, or a broken time server, set the clock.
package steady

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// tolerated is how far the wall clock may be off without anybody being told: it is
	// slewed all the time.
	tolerated = 2 * time.Second
	// convinced is for how long the wall clock has to stay where it jumped to, until it
	// is believed: it was wrong before, then, as it is on a machine that starts.
	convinced = 15 * time.Minute
)

// Clock is a steady clock. It is safe for concurrent use.
type Clock struct {
	wall    func() time.Time
	elapsed func() time.Duration // since any moment; grows while the machine sleeps
	log     *slog.Logger

	mu     sync.Mutex
	at     time.Time // what the wall clock said at since
	since  time.Duration
	jumped time.Duration // when the wall clock was first seen to be off; 0: it is not
}

// New returns a clock that starts with the wall clock's time.
func New(log *slog.Logger) *Clock { return newClock(time.Now, elapsed(), log) }

func newClock(wall func() time.Time, elapsed func() time.Duration, log *slog.Logger) *Clock {
	return &Clock{wall: wall, elapsed: elapsed, log: log, at: wall().Round(0), since: elapsed()}
}

// Now is the time of day.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, run := c.wall().Round(0), c.elapsed()
	now := c.at.Add(run - c.since)
	off := wall.Sub(now)
	switch {
	case off.Abs() <= tolerated:
		c.jumped = 0
		c.at, c.since = wall, run // follows what is slewed
		return wall
	case c.jumped == 0:
		c.jumped = max(run, 1)
		c.log.Warn("the wall clock jumped; deadlines go on by the time before, and follow it if it stays there", "by", off.Round(time.Second), "for", convinced)
	case run-c.jumped >= convinced:
		c.jumped, c.at, c.since = 0, wall, run
		c.log.Warn("the wall clock is believed again; deadlines move by what it jumped", "by", off.Round(time.Second))
		return wall
	}
	return now
}
