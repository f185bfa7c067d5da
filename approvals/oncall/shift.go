package oncall

import (
	"slices"
	"strings"
	"time"
)

// Person is somebody as the source knows them.
type Person struct {
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
	Slack string `json:"slack,omitempty"` // their id there, if the source says so
}

// Key is what a configuration calls the person: the address, or else the id or the name.
func (p Person) Key() string {
	for _, s := range []string{p.Email, p.ID, p.Name} {
		if s != "" {
			return s
		}
	}
	return ""
}

// Shown is how a sentence names the person.
func (p Person) Shown() string {
	for _, s := range []string{p.Name, p.Email, p.ID} {
		if s != "" {
			return s
		}
	}
	return "somebody without a name"
}

func (p Person) same(o Person) bool {
	return p.ID == o.ID && strings.EqualFold(p.Email, o.Email) && (p.ID+p.Email != "" || p.Name == o.Name)
}

// Shift is one person's time on call.
type Shift struct {
	Person Person    `json:"person"`
	Level  int       `json:"level"` // 1 is asked first
	From   time.Time `json:"from"`
	To     time.Time `json:"to,omitzero"` // not included; zero is without an end
}

func (s Shift) covers(t time.Time) bool {
	return !t.Before(s.From) && (s.To.IsZero() || t.Before(s.To))
}

// turn is somebody on call at a moment, and until when: through all their shifts that follow each other.
type turn struct {
	Person
	until time.Time // zero is without an end, or not known
}

// at are the people of a level (0: of all) on call at t, in the order of levels and names.
func at(shifts []Shift, level int, t time.Time) (out []turn) {
	shifts = slices.Clone(shifts)
	slices.SortStableFunc(shifts, func(a, b Shift) int {
		if a.Level != b.Level {
			return a.Level - b.Level
		}
		return strings.Compare(a.Person.Shown(), b.Person.Shown())
	})
	mine := func(s Shift, p Person) bool { return (level == 0 || s.Level == level) && s.Person.same(p) }
	for _, s := range shifts {
		if !mine(s, s.Person) || !s.covers(t) || slices.ContainsFunc(out, func(o turn) bool { return o.same(s.Person) }) {
			continue
		}
		until := s.To
		for again := true; again && !until.IsZero(); {
			again = false
			for _, o := range shifts {
				if mine(o, s.Person) && !o.From.After(until) && (o.To.IsZero() || o.To.After(until)) {
					until, again = o.To, true
					if until.IsZero() {
						break
					}
				}
			}
		}
		out = append(out, turn{s.Person, until})
	}
	return out
}

// levels is how many levels there are.
func levels(shifts []Shift) (n int) {
	for _, s := range shifts {
		n = max(n, s.Level)
	}
	return n
}
