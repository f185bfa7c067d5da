package doctor

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxDrift is how far the clock may be from that of a server that is asked anyway.
// Slack's signatures allow 5 minutes (docs.slack.dev/authentication/verifying-requests-from-slack),
// and a certificate is not valid before its time.
const maxDrift = 30 * time.Second

// reading is what a clock elsewhere showed between two moments of this one. It shows
// whole seconds, so it stood somewhere in the second from at on.
type reading struct {
	who           string
	at            time.Time
	before, after time.Time
}

// drift is how far the other clock is ahead of this one (behind: negative), at least;
// 0 when they may agree.
func (r reading) drift() time.Duration {
	switch earliest, latest := r.at, r.at.Add(time.Second); {
	case earliest.After(r.after):
		return earliest.Sub(r.after)
	case latest.Before(r.before):
		return latest.Sub(r.before)
	}
	return 0
}

// clocks are the readings of the servers that were asked. It is safe for concurrent
// use.
type clocks struct {
	mu       sync.Mutex
	readings []reading
}

// wrap carries requests as next does, and reads the clocks of who answers.
func (c *clocks) wrap(next http.RoundTripper) http.RoundTripper { return clockTransport{c, next} }

type clockTransport struct {
	clocks *clocks
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w clockTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	before := time.Now()
	res, err := w.next.RoundTrip(req)
	if err == nil {
		w.clocks.note(req.URL.Hostname(), res.Header, before, time.Now())
	}
	return res, err
}

// note takes the time of an answer from its header (RFC 9110, section 6.6.1). An
// answer that somebody had kept is as old as its Age.
func (c *clocks) note(who string, h http.Header, before, after time.Time) {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil || h.Get("Age") != "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings = append(c.readings, reading{who, at, before, after})
}

// judge says whether this clock is right, as far as others tell.
func (c *clocks) judge() result {
	c.mu.Lock()
	defer c.mu.Unlock()
	var who []string
	var worst reading
	for _, r := range c.readings {
		if !slices.Contains(who, r.who) {
			who = append(who, r.who)
		}
		if r.drift().Abs() > worst.drift().Abs() {
			worst = r
		}
	}
	switch d := worst.drift(); {
	case len(who) == 0:
		return skips("no server was asked that tells the time")
	case d.Abs() > maxDrift:
		return warns("the clock of this machine is %s that of %s, and Slack's signatures and certificates depend on it", driftText(-d), worst.who).
			withFix("keep it with NTP (timedatectl set-ntp true)")
	}
	return fine("within %s of %s", maxDrift, list(who))
}

// driftText says how far a clock is from another one.
func driftText(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%s behind", (-d).Round(time.Second))
	}
	return fmt.Sprintf("%s ahead of", d.Round(time.Second))
}

// list is a few words for people.
func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
