package tmux

import (
	"fmt"
	"sync/atomic"
)

// lease is whether this process drives a pane, and under which epoch; see driver.go. It
// holds what the process believes; tmux decides, by the formats that lease returns. Pane.mu
// guards it; held needs no lock.
type lease struct {
	epoch   int64
	driving atomic.Bool
}

// held reports whether this process drives the pane.
func (l *lease) held() bool { return l.driving.Load() }

// heldUnder reports whether this process drives the pane under epoch.
func (l *lease) heldUnder(epoch int64) bool { return l.held() && l.epoch == epoch }

// acquire makes this process the driver under epoch.
func (l *lease) acquire(epoch int64) {
	l.epoch = epoch
	l.driving.Store(true)
}

// release ends being the driver, and reports whether this process was it.
func (l *lease) release() bool { return l.driving.Swap(false) }

// lost is the tmux format that is true when another process drives the pane.
func (l *lease) lost() string {
	return fmt.Sprintf("#{!=:#{%s},%s}", optEpoch, formatEpoch(l.epoch))
}

// blocked is the tmux format that is true when keys must not be typed now: another
// process drives the pane, the pane is dead, or it is in copy mode, where a key is a
// command of tmux.
func (l *lease) blocked() string { return l.blockedOr("0") }

// blockedForBot is blocked, and true as well while people have the keyboard.
func (l *lease) blockedForBot() string { return l.blockedOr("#{" + optPeople + "}") }

func (l *lease) blockedOr(condition string) string {
	return fmt.Sprintf("#{||:#{||:%s,#{pane_in_mode}},#{||:#{pane_dead},%s}}", l.lost(), condition)
}
