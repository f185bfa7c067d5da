package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a container without zone files must read the same rules
)

// hours are spans of a week on the clock of one zone.
type hours struct {
	zone  *time.Location
	not   bool // everything but the spans
	spans []span
}

// span is one "Mon-Fri 09:00-17:00". A span that ends at or before its start goes on
// into the next day and belongs to the day on which it started.
type span struct {
	days     [7]bool // by time.Weekday
	from, to int     // minutes since midnight; to is exclusive and at most 1440
}

var weekdays = [7]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// parseHours reads "Mon-Fri 09:00-17:00, Sat 10:00-12:00", or the same after "not ".
// Days may be left out (every day); 24:00 is the end of a day. zone is a name of
// the IANA time zone database; "" is UTC. "Local" is refused: a rule must mean the
// same wherever the bot runs.
func parseHours(text, zone string) (*hours, error) {
	if zone == "" {
		zone = "UTC"
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("the zone %q is not known; use a name such as Europe/Berlin or UTC", zone)
	}
	h := &hours{zone: loc}
	rest := strings.TrimSpace(text)
	if after, ok := strings.CutPrefix(rest, "not "); ok {
		h.not, rest = true, after
	}
	for part := range strings.SplitSeq(rest, ",") {
		s, ok := parseSpan(strings.Fields(part))
		if !ok {
			return nil, fmt.Errorf("the hours %q cannot be read; write them like Mon-Fri 09:00-17:00, Sat 10:00-12:00", text)
		}
		h.spans = append(h.spans, s)
	}
	return h, nil
}

func parseSpan(words []string) (span, bool) {
	s := span{days: [7]bool{true, true, true, true, true, true, true}}
	switch len(words) {
	case 1:
	case 2:
		from, to, ranged := strings.Cut(words[0], "-")
		if !ranged {
			to = from
		}
		a, b := weekday(from), weekday(to)
		if a < 0 || b < 0 {
			return s, false
		}
		s.days = [7]bool{}
		for d := a; ; d = (d + 1) % 7 {
			s.days[d] = true
			if d == b {
				break
			}
		}
	default:
		return s, false
	}
	from, to, ok := strings.Cut(words[len(words)-1], "-")
	s.from, s.to = clock(from), clock(to)
	return s, ok && s.from >= 0 && s.from < 1440 && s.to >= 0 && s.from != s.to
}

func weekday(s string) int {
	for i, d := range weekdays {
		if strings.EqualFold(d, s) {
			return i
		}
	}
	return -1
}

// clock returns the minutes of HH:MM, at most 24:00, or -1.
func clock(s string) int {
	if len(s) != 5 || s[2] != ':' {
		return -1
	}
	h, err1 := strconv.ParseUint(s[:2], 10, 8)
	m, err2 := strconv.ParseUint(s[3:], 10, 8)
	if err1 != nil || err2 != nil || m > 59 || h*60+m > 1440 {
		return -1
	}
	return int(h)*60 + int(m)
}

// contains reports whether the wall clock of the zone is in the hours at t.
func (h *hours) contains(t time.Time) bool {
	local := t.In(h.zone)
	day, minute := int(local.Weekday()), local.Hour()*60+local.Minute()
	in := false
	for _, s := range h.spans {
		if s.from < s.to {
			in = in || (s.days[day] && minute >= s.from && minute < s.to)
			continue
		}
		in = in || (s.days[day] && minute >= s.from) || (s.days[(day+6)%7] && minute < s.to)
	}
	return in != h.not
}

// within returns some moment in the hours.
func (h *hours) within() (time.Time, bool) {
	start := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	for m := range 8 * 24 * 60 {
		if t := start.Add(time.Duration(m) * time.Minute); h.contains(t) {
			return t, true
		}
	}
	return time.Time{}, false
}
