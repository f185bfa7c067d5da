package approvals

import (
	"fmt"
	"strings"
	"time"
)

// Duty is who was on call at one moment, for a group that a policy names by a schedule.
type Duty struct {
	Group    string   `json:"group"` // as the policy names it
	Source   string   `json:"source"`
	Schedule string   `json:"schedule,omitempty"`
	Level    int      `json:"level,omitempty"` // 1 is asked first; 0 is every level
	People   []string `json:"people,omitempty"`
	// Until is when the first of them is relieved, Read when the source last said so; zero is not known.
	Until time.Time `json:"until,omitzero"`
	Read  time.Time `json:"read,omitzero"`
	// Why says why nobody of the schedule counts; the members of Fallback decide then, if it has a name.
	Why      string `json:"why,omitempty"`
	Fallback string `json:"fallback,omitempty"`
}

// Same reports whether the same people may decide.
func (d Duty) Same(o Duty) bool {
	return d.Group == o.Group && d.Why == o.Why && d.Fallback == o.Fallback && strings.Join(d.People, "\n") == strings.Join(o.People, "\n")
}

// String says who may decide, as in "Bob, primary until 08:00 UTC".
func (d Duty) String() string {
	if d.Why != "" {
		who := d.Fallback
		if who == "" {
			who = "nobody"
		}
		return fmt.Sprintf("%s (%s)", who, d.Why)
	}
	s := strings.Join(d.People, " or ") + ", " + Turn(d.Level)
	if !d.Until.IsZero() {
		s += " until " + Clock(d.Until, d.Read)
	}
	return s
}

// Turn names a level of a schedule.
func Turn(level int) string {
	switch level {
	case 0:
		return "on call"
	case 1:
		return "primary"
	case 2:
		return "secondary"
	}
	return fmt.Sprintf("level %d", level)
}

// Clock writes a time of day in UTC, with the date if it is more than 20 hours from now.
func Clock(t, now time.Time) string {
	t = t.UTC()
	if d := t.Sub(now); d > 20*time.Hour || d < -20*time.Hour {
		return t.Format("2006-01-02 15:04 UTC")
	}
	return t.Format("15:04 UTC")
}
