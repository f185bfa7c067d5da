package oncall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-ical"
	"github.com/teambition/rrule-go"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// calendar reads an iCalendar (RFC 5545) file or address. Each event is somebody's time on call: the
// attendees', or of whom the summary names. PRIORITY is the level (1 where it has none or 0), and a
// reference's schedule is one of CATEGORIES.
//
// Recurring events end at the same time of day, as calendars show them, also on the days on which
// daylight saving begins and ends.
type calendar struct {
	c    *rest.Client
	path string
}

// Bounds of what is read from one calendar.
const (
	maxEvents = 20_000
	// calendarTime bounds how long all events of a calendar may take together.
	calendarTime   = 3 * time.Second
	maxOccurrences = 200_000 // that a rule may make up to the time asked for
)

// Shifts implements Source.
func (c calendar) Shifts(ctx context.Context, r policy.Reference, from, to time.Time) ([]Shift, error) {
	var b []byte
	var err error
	if c.path != "" {
		b, err = readFile(c.path)
	} else {
		b, err = c.c.Get(ctx, "", nil)
	}
	if err != nil {
		return nil, err
	}
	return parseCalendar(b, r.Schedule, from, to)
}

// event is one VEVENT.
type event struct {
	*ical.Component
	uid        string
	people     []Person
	level      int
	start, end time.Time
	instead    time.Time // of which occurrence of its series it takes the place
	cancelled  bool
}

func parseCalendar(b []byte, category string, from, to time.Time) (out []Shift, err error) {
	// The decoder is a library's, and what it reads is foreign.
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, errors.New("has a calendar that can't be read")
		}
	}()
	dec := ical.NewDecoder(bytes.NewReader(b))
	n := 0
	for {
		cal, err := dec.Decode()
		if errors.Is(err, io.EOF) && n > 0 {
			return out, nil
		}
		if err != nil {
			return nil, errors.New("has no calendar that can be read")
		}
		n++
		shifts, err := calendarShifts(cal, category, from, to)
		if err != nil {
			return nil, err
		}
		out = append(out, shifts...)
	}
}

func calendarShifts(cal *ical.Calendar, category string, from, to time.Time) ([]Shift, error) {
	zone := time.UTC
	if p := cal.Props.Get("X-WR-TIMEZONE"); p != nil {
		loc, err := loadZone(p.Value)
		if err != nil {
			return nil, err
		}
		zone = loc
	}
	all := cal.Events()
	if len(all) > maxEvents {
		return nil, fmt.Errorf("has more than %d events", maxEvents)
	}
	end := time.Now().Add(calendarTime)
	var events []event
	instead := map[string][]time.Time{} // by the series that they are of
	for _, e := range all {
		ev, err := readEvent(e, zone)
		if err != nil {
			return nil, err
		}
		events = append(events, ev)
		if !ev.instead.IsZero() {
			instead[ev.uid] = append(instead[ev.uid], ev.instead)
		}
	}
	var out []Shift
	for _, e := range events {
		if e.cancelled || category != "" && !inCategory(e, category) {
			continue
		}
		starts, err := e.occurrences(zone, to, end)
		if err != nil {
			return nil, err
		}
		for _, s := range starts {
			replaced := e.instead.IsZero() && slices.ContainsFunc(instead[e.uid], s.Equal)
			until := sameTime(s, e.start, e.end)
			if replaced || !until.After(from) || !s.Before(to) {
				continue
			}
			for _, p := range e.people {
				out = append(out, Shift{Person: p, Level: e.level, From: s, To: until})
			}
		}
	}
	return out, nil
}

// sameTime is when an occurrence ends that starts at s, where the first one lasts from start to end: so
// much later on the clock of its zone.
func sameTime(s, start, end time.Time) time.Time {
	wall := func(t time.Time) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
	}
	w := wall(s).Add(wall(end.In(start.Location())).Sub(wall(start)))
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, s.Location())
}

func readEvent(e ical.Event, zone *time.Location) (ev event, err error) {
	ev.Component = e.Component
	name := strings.TrimSpace(text(e.Component, ical.PropSummary))
	bad := func(what string) error {
		return fmt.Errorf("has an event (%.60q) whose %s can't be read", name, what)
	}
	ev.uid = text(e.Component, ical.PropUID)
	ev.cancelled = strings.EqualFold(text(e.Component, ical.PropStatus), string(ical.EventCancelled))
	if ev.start, err = moment(e.Props.Get(ical.PropDateTimeStart), zone); err != nil {
		return ev, bad("DTSTART")
	}
	if p := e.Props.Get(ical.PropDateTimeEnd); p != nil {
		if ev.end, err = moment(p, zone); err != nil {
			return ev, bad("DTEND")
		}
	} else if ev.end, err = e.DateTimeEnd(ev.start.Location()); err != nil {
		return ev, bad("DURATION")
	}
	if p := e.Props.Get(ical.PropRecurrenceID); p != nil {
		if ev.instead, err = moment(p, zone); err != nil {
			return ev, bad("RECURRENCE-ID")
		}
	}
	ev.level = 1
	if p := e.Props.Get(ical.PropPriority); p != nil {
		n, err := p.Int()
		if err != nil || n < 0 || n > 9 {
			return ev, bad("PRIORITY")
		}
		ev.level = max(n, 1)
	}
	for _, a := range e.Props.Values(ical.PropAttendee) {
		p := Person{Name: a.Params.Get(ical.ParamCommonName)}
		if scheme, address, ok := strings.Cut(a.Value, ":"); ok && strings.EqualFold(scheme, "mailto") {
			p.Email = address
		}
		if p.Name+p.Email != "" {
			ev.people = append(ev.people, p)
		}
	}
	if len(ev.people) == 0 && name != "" {
		p := Person{Name: name}
		if strings.Contains(name, "@") && !strings.ContainsAny(name, " <>") {
			p = Person{Email: name}
		}
		ev.people = []Person{p}
	}
	return ev, nil
}

func text(c *ical.Component, name string) string {
	s, _ := c.Props.Text(name)
	return s
}

func inCategory(e event, category string) bool {
	for _, p := range e.Props.Values(ical.PropCategories) {
		list, _ := p.TextList()
		if slices.Contains(list, category) {
			return true
		}
	}
	return false
}

// loadZone loads a zone by its IANA name. "Local" is refused: a calendar means the same everywhere.
func loadZone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, fmt.Errorf("has the time zone %.60q, which isn't a name such as Europe/Berlin", name)
	}
	return loc, nil
}

// moment reads a date or a time of one property.
func moment(p *ical.Prop, zone *time.Location) (time.Time, error) {
	if p == nil {
		return time.Time{}, rest.ErrForm
	}
	if id := p.Params.Get(ical.PropTimezoneID); id == "Local" {
		return time.Time{}, rest.ErrForm
	}
	return p.DateTime(zone)
}

// occurrences are the starts of an event before to.
func (e event) occurrences(zone *time.Location, to, end time.Time) ([]time.Time, error) {
	bad := fmt.Errorf("has an event (%.60q) whose repetition can't be read", text(e.Component, ical.PropSummary))
	set := rrule.Set{}
	rules := e.Props.Values(ical.PropRecurrenceRule)
	if len(rules) == 0 {
		set.RDate(e.start)
	}
	for _, p := range rules {
		o, err := rrule.StrToROptionInLocation(p.Value, e.start.Location())
		if err != nil {
			return nil, bad
		}
		// The library looks at each moment that a rule could be at, however many a filter leaves out.
		filters := len(o.Bymonth) + len(o.Bymonthday) + len(o.Byyearday) + len(o.Byweekno) + len(o.Byweekday) + len(o.Byeaster)
		if o.Freq == rrule.SECONDLY || o.Freq == rrule.MINUTELY || o.Freq == rrule.HOURLY && filters > 0 {
			return nil, fmt.Errorf("has an event (%.60q) that repeats too often; write it as days or weeks", text(e.Component, ical.PropSummary))
		}
		o.Dtstart = e.start
		r, err := rrule.NewRRule(*o)
		if err != nil || len(rules) > 1 {
			return nil, bad
		}
		set.RRule(r)
	}
	for name, add := range map[string]func(time.Time){ical.PropRecurrenceDates: set.RDate, ical.PropExceptionDates: set.ExDate} {
		for _, p := range e.Props.Values(name) {
			for value := range strings.SplitSeq(p.Value, ",") {
				one := p
				one.Value = value
				t, err := moment(&one, zone)
				if err != nil {
					return nil, bad
				}
				add(t)
			}
		}
	}
	next := set.Iterator()
	var out []time.Time
	for n := range maxOccurrences {
		if n%100 == 0 && time.Now().After(end) {
			return nil, errors.New("has a calendar that takes too long to read; give one with fewer repeating events")
		}
		t, ok := next()
		if !ok || !t.Before(to) {
			return out, nil
		}
		out = append(out, t)
	}
	return nil, bad
}
