package oncall

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-ical"
	"github.com/teambition/rrule-go"

	"countersign/approvals/policy"
	"countersign/internal/rest"
)

// calendar reads an iCalendar (RFC 5545) file or address. Each event is somebody's time on call: of its
// attendees who are people and haven't declined or delegated it, or of whom the summary names if it invites
// nobody. PRIORITY is the level (1 where it has none or 0), and a reference's schedule is one of CATEGORIES.
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
	void       bool      // nobody is on call by it
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
		loc, err := loadZone(zoneName(p.Value))
		if err != nil {
			return nil, fmt.Errorf("has a calendar that can't be read: %w", err)
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
		if e.void || category != "" && !inCategory(e, category) {
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
	for _, props := range e.Props {
		for _, p := range props { // the library reads some by itself
			if zone := p.Params.Get(ical.PropTimezoneID); zone != "" {
				p.Params.Set(ical.PropTimezoneID, zoneName(zone))
			}
		}
	}
	name := strings.TrimSpace(text(e.Component, ical.PropSummary))
	ev.uid = text(e.Component, ical.PropUID)
	start := e.Props.Get(ical.PropDateTimeStart)
	if ev.start, err = ev.moment(start, zone); err != nil {
		return ev, err
	}
	if p := e.Props.Get(ical.PropDateTimeEnd); p != nil {
		if ev.end, err = ev.moment(p, zone); err != nil {
			return ev, err
		}
	} else if ev.end, err = e.DateTimeEnd(ev.start.Location()); err != nil {
		return ev, ev.bad(e.Props.Get(ical.PropDuration), "")
	}
	if p := e.Props.Get(ical.PropRecurrenceID); p != nil {
		if ev.instead, err = ev.moment(p, zone); err != nil {
			return ev, err
		}
		if p.Params.Get(ical.ParamRange) != "" {
			return ev, ev.bad(p, "changes to all later occurrences aren't supported; end the series and begin a new one")
		}
	}
	if p := e.Props.Get("EXRULE"); p != nil {
		return ev, ev.bad(p, "rules for exceptions aren't supported; list them as EXDATE")
	}
	ev.level = 1
	if p := e.Props.Get(ical.PropPriority); p != nil {
		n, err := p.Int()
		if err != nil || n < 0 || n > 9 {
			return ev, ev.bad(p, "")
		}
		ev.level = max(n, 1)
	}
	status := text(e.Component, ical.PropStatus)
	ev.void = strings.EqualFold(status, string(ical.EventCancelled)) || strings.EqualFold(status, string(ical.EventTentative)) ||
		// Calendar programs show whole days as free unless somebody changes it, so that says nothing there.
		strings.EqualFold(text(e.Component, ical.PropTransparency), "TRANSPARENT") && len(start.Value) > len("20060102")
	invited := false
	for _, a := range e.Props.Values(ical.PropAttendee) {
		if !isPerson(a.Params) {
			continue
		}
		invited = true
		p := Person{Name: a.Params.Get(ical.ParamCommonName)}
		if scheme, address, ok := strings.Cut(a.Value, ":"); ok && strings.EqualFold(scheme, "mailto") {
			p.Email = address
		}
		if p.Name+p.Email != "" && takesPart(a.Params) {
			ev.people = append(ev.people, p)
		}
	}
	if !invited && name != "" {
		p := Person{Name: name}
		if strings.Contains(name, "@") && !strings.ContainsAny(name, " <>") {
			p = Person{Email: name}
		}
		ev.people = []Person{p}
	}
	return ev, nil
}

// isPerson reports whether an attendee isn't a room, a resource or a group.
func isPerson(p ical.Params) bool {
	switch strings.ToUpper(p.Get(ical.ParamCalendarUserType)) {
	case "ROOM", "RESOURCE", "GROUP":
		return false
	}
	return true
}

// takesPart reports whether an attendee is on call by the event: also if they answered "maybe" or nothing,
// as whoever makes a rota seldom waits for answers.
func takesPart(p ical.Params) bool {
	answer := p.Get(ical.ParamParticipationStatus)
	return !strings.EqualFold(answer, "DECLINED") && !strings.EqualFold(answer, "DELEGATED") && !strings.EqualFold(p.Get(ical.ParamRole), "NON-PARTICIPANT")
}

// bad says which line of the event can't be read, and why.
func (e event) bad(p *ical.Prop, why string) error {
	event := fmt.Sprintf("has an event (%.60q)", strings.TrimSpace(text(e.Component, ical.PropSummary)))
	if p == nil {
		return fmt.Errorf("%s without a start", event)
	}
	var line strings.Builder
	line.WriteString(p.Name)
	for _, name := range slices.Sorted(maps.Keys(p.Params)) {
		line.WriteString(";" + name + "=" + strings.Join(p.Params[name], ","))
	}
	if why != "" {
		why = ": " + why
	}
	return fmt.Errorf("%s whose line %.100q can't be read%s", event, line.String()+":"+p.Value, why)
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

//go:embed windowszones.txt
var windowsZones string

// zoneName is the IANA name of a zone that Windows calls otherwise.
func zoneName(name string) string {
	if _, after, ok := strings.Cut(windowsZones, "\n"+name+"\t"); ok && name != "" {
		name, _, _ = strings.Cut(after, "\n")
	}
	return name
}

// loadZone loads a zone by its IANA name. "Local" is refused: a calendar means the same everywhere. So are
// abbreviations, of which IANA knows some, with another meaning: its EST has no daylight saving.
func loadZone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || !strings.Contains(name, "/") && name != "UTC" && name != "GMT" {
		return nil, fmt.Errorf("the time zone %.60q isn't a name such as Europe/Berlin", name)
	}
	return loc, nil
}

// moment reads a date or a time of one property.
func (e event) moment(p *ical.Prop, zone *time.Location) (time.Time, error) {
	if p == nil {
		return time.Time{}, e.bad(p, "")
	}
	if p.Params.Get(ical.PropTimezoneID) != "" {
		if _, err := loadZone(p.Params.Get(ical.PropTimezoneID)); err != nil {
			return time.Time{}, e.bad(p, err.Error())
		}
	}
	t, err := p.DateTime(zone)
	if err != nil {
		return time.Time{}, e.bad(p, "")
	}
	return t, nil
}

// occurrences are the starts of an event before to.
func (e event) occurrences(zone *time.Location, to, end time.Time) ([]time.Time, error) {
	set := rrule.Set{}
	rules := e.Props.Values(ical.PropRecurrenceRule)
	if len(rules) == 0 {
		set.RDate(e.start)
	}
	for _, p := range rules {
		bad := e.bad(&p, "")
		o, err := rrule.StrToROptionInLocation(p.Value, e.start.Location())
		if err != nil {
			return nil, bad
		}
		// The library looks at each moment that a rule could be at, however many a filter leaves out.
		filters := len(o.Bymonth) + len(o.Bymonthday) + len(o.Byyearday) + len(o.Byweekno) + len(o.Byweekday) + len(o.Byeaster)
		if o.Freq == rrule.SECONDLY || o.Freq == rrule.MINUTELY || o.Freq == rrule.HOURLY && filters > 0 {
			return nil, e.bad(&p, "it repeats too often; write it as days or weeks")
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
				t, err := e.moment(&one, zone)
				if err != nil {
					return nil, err
				}
				add(t)
			}
		}
	}
	next := set.Iterator()
	var out []time.Time
	for n := range maxOccurrences {
		if n%100 == 0 && time.Now().After(end) {
			return nil, errSlow
		}
		t, ok := next()
		if !ok || !t.Before(to) {
			return out, nil
		}
		out = append(out, t)
	}
	return nil, errSlow
}

var errSlow = errors.New("has a calendar that takes too long to read; give one with fewer repeating events")
