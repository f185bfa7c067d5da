package oncall

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/approvals/policy"
)

func cal(head string, events ...string) []byte {
	s := "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//t//t//EN\n" + head
	for _, e := range events {
		s += "BEGIN:VEVENT\nDTSTAMP:20260101T000000Z\n" + e + "\nEND:VEVENT\n"
	}
	return []byte(strings.ReplaceAll(s+"END:VCALENDAR\n", "\n", "\r\n"))
}

const (
	night = "UID:n\nSUMMARY:bob@example.com\nDTSTART;TZID=Europe/Berlin:20260301T200000\nDTEND;TZID=Europe/Berlin:20260302T080000\nRRULE:FREQ=DAILY"
	day   = "UID:d\nSUMMARY:Carol\nDTSTART;TZID=Europe/Berlin:20260301T080000\nDTEND;TZID=Europe/Berlin:20260301T200000\nRRULE:FREQ=DAILY"
)

func TestACalendarSaysWhoIsOnCall(t *testing.T) {
	for _, tc := range []struct {
		name     string
		cal      []byte
		category string
		at       string // UTC
		want     string // people at that time
	}{
		{"a night in winter", cal("", night, day), "", "2026-03-10 06:59", "bob@example.com until 07:00"},
		{"the day after it", cal("", night, day), "", "2026-03-10 07:00", "Carol until 19:00"},
		{"the night in which summer time begins is an hour shorter", cal("", night, day), "", "2026-03-29 05:59", "bob@example.com until 06:00"},
		{"and the day begins an hour earlier", cal("", night, day), "", "2026-03-29 06:00", "Carol until 18:00"},
		{"the night in which summer time ends is an hour longer", cal("", night, day), "", "2026-10-25 06:59", "bob@example.com until 07:00"},
		{"another zone's clock", cal("", "UID:x\nSUMMARY:Dana\nDTSTART;TZID=America/New_York:20260308T000000\nDTEND;TZID=America/New_York:20260308T080000"), "", "2026-03-08 05:00", "Dana until 12:00"},
		{"a zone as Outlook calls it", cal("", "UID:x\nSUMMARY:Dana\nDTSTART;TZID=W. Europe Standard Time:20260701T080000\nDURATION:PT8H\nRRULE:FREQ=DAILY"), "", "2026-07-10 06:30", "Dana until 14:00"},
		{"whole days in such a zone", cal("X-WR-TIMEZONE:Tokyo Standard Time\n", "UID:w\nSUMMARY:Bob\nDTSTART;VALUE=DATE:20260309\nDTEND;VALUE=DATE:20260316"), "", "2026-03-08 15:00", "Bob until 2026-03-15 15:00"},
		{"a cancelled night", cal("", night+"\nEXDATE;TZID=Europe/Berlin:20260309T200000,20260310T200000"), "", "2026-03-10 03:00", ""},
		{"a night after the cancelled ones", cal("", night+"\nEXDATE;TZID=Europe/Berlin:20260309T200000,20260310T200000"), "", "2026-03-12 03:00", "bob@example.com until 07:00"},
		{"an override of one night", cal("", night, "UID:n\nRECURRENCE-ID;TZID=Europe/Berlin:20260309T200000\nSUMMARY:Erin\nDTSTART;TZID=Europe/Berlin:20260309T200000\nDTEND;TZID=Europe/Berlin:20260310T020000"), "", "2026-03-09 22:00", "Erin until 01:00"},
		{"after the override nobody", cal("", night, "UID:n\nRECURRENCE-ID;TZID=Europe/Berlin:20260309T200000\nSUMMARY:Erin\nDTSTART;TZID=Europe/Berlin:20260309T200000\nDTEND;TZID=Europe/Berlin:20260310T020000"), "", "2026-03-10 01:00", ""},
		{"a cancelled override", cal("", night, "UID:n\nRECURRENCE-ID;TZID=Europe/Berlin:20260309T200000\nSTATUS:CANCELLED\nSUMMARY:Erin\nDTSTART;TZID=Europe/Berlin:20260309T200000\nDTEND;TZID=Europe/Berlin:20260310T020000"), "", "2026-03-09 22:00", ""},
		{"one more night", cal("", "UID:n\nSUMMARY:Bob\nDTSTART:20260301T000000Z\nDURATION:PT8H\nRDATE:20260310T000000Z"), "", "2026-03-10 01:00", "Bob until 08:00"},
		{"whole days in the calendar's zone", cal("X-WR-TIMEZONE:Asia/Tokyo\n", "UID:w\nSUMMARY:Bob\nDTSTART;VALUE=DATE:20260309\nDTEND;VALUE=DATE:20260316"), "", "2026-03-08 15:00", "Bob until 2026-03-15 15:00"},
		{"attendees", cal("", "UID:a\nSUMMARY:On call\nATTENDEE;CN=Bob Ross:mailto:bob@example.com\nATTENDEE:MAILTO:carol@example.com\nDTSTART:20260310T000000Z\nDTEND:20260310T080000Z"), "", "2026-03-10 01:00", "Bob Ross until 08:00, carol@example.com until 08:00"},
		{"two that overlap", cal("", "UID:a\nSUMMARY:Bob\nDTSTART:20260310T000000Z\nDTEND:20260310T080000Z", "UID:b\nSUMMARY:Carol\nDTSTART:20260310T040000Z\nDTEND:20260310T120000Z"), "", "2026-03-10 05:00", "Bob until 08:00, Carol until 12:00"},
		{"one category", cal("", "UID:a\nCATEGORIES:Payments,Web\nSUMMARY:Bob\nDTSTART:20260310T000000Z\nDTEND:20260310T080000Z", "UID:b\nSUMMARY:Carol\nDTSTART:20260310T000000Z\nDTEND:20260310T080000Z"), "Web", "2026-03-10 05:00", "Bob until 08:00"},
		{"a rule with an end", cal("", "UID:a\nSUMMARY:Bob\nDTSTART:20260301T000000Z\nDTEND:20260301T080000Z\nRRULE:FREQ=DAILY;UNTIL=20260309T000000Z"), "", "2026-03-10 05:00", ""},
		{"every second week", cal("", "UID:a\nSUMMARY:Bob\nDTSTART;TZID=Europe/Berlin:20260302T090000\nDTEND;TZID=Europe/Berlin:20260309T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2"), "", "2026-03-17 05:00", "Bob until 2026-03-23 08:00"},
	} {
		now, err := time.Parse("2006-01-02 15:04", tc.at)
		if err != nil {
			t.Fatal(err)
		}
		shifts, err := parseCalendar(tc.cal, tc.category, now.Add(-time.Hour), now.Add(Ahead))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var got []string
		for _, o := range at(shifts, 1, now) {
			until := o.until.UTC().Format("15:04")
			if o.until.Sub(now) > 20*time.Hour {
				until = o.until.UTC().Format("2006-01-02 15:04")
			}
			got = append(got, o.Shown()+" until "+until)
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %q, not %q", tc.name, strings.Join(got, ", "), tc.want)
		}
	}
}

// TestWhoDeclinedIsNotOnCall: nor is who passed the time on, was only told of it, or is a room.
func TestWhoDeclinedIsNotOnCall(t *testing.T) {
	const time8 = "UID:a\nDTSTART:20260310T000000Z\nDTEND:20260310T080000Z\n"
	const bob, carol = ":mailto:bob@example.com\n", ":mailto:carol@example.com\n"
	now := time.Date(2026, 3, 10, 1, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ name, event, want string }{
		{"declined", "SUMMARY:bob@example.com\nATTENDEE;PARTSTAT=DECLINED" + bob, ""},
		{"declined, in another case", "SUMMARY:On call\nATTENDEE;PARTSTAT=declined" + bob, ""},
		{"declined beside another", "SUMMARY:On call\nATTENDEE;PARTSTAT=DECLINED" + bob + "ATTENDEE;PARTSTAT=ACCEPTED" + carol, "carol@example.com"},
		{"delegated", "SUMMARY:On call\nATTENDEE;PARTSTAT=DELEGATED;DELEGATED-TO=\"mailto:carol@example.com\"" + bob +
			"ATTENDEE;PARTSTAT=ACCEPTED;DELEGATED-FROM=\"mailto:bob@example.com\"" + carol, "carol@example.com"},
		{"no participant", "SUMMARY:bob@example.com\nATTENDEE;ROLE=NON-PARTICIPANT" + bob, ""},
		{"a room", "SUMMARY:On call\nATTENDEE" + bob + "ATTENDEE;CUTYPE=ROOM;PARTSTAT=ACCEPTED:mailto:room@example.com\n", "bob@example.com"},
		{"a resource and a group", "SUMMARY:On call\nATTENDEE" + bob + "ATTENDEE;CUTYPE=resource:mailto:car@example.com\nATTENDEE;CUTYPE=GROUP:mailto:sre@example.com\n", "bob@example.com"},
		{"a room alone leaves the summary", "SUMMARY:bob@example.com\nATTENDEE;CUTYPE=ROOM:mailto:room@example.com\n", "bob@example.com"},
		{"no answer yet", "SUMMARY:On call\nATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=NEEDS-ACTION" + bob, "bob@example.com"},
		{"maybe", "SUMMARY:On call\nATTENDEE;PARTSTAT=TENTATIVE" + bob, "bob@example.com"},
		{"a tentative event", "SUMMARY:On call swap?\nSTATUS:TENTATIVE\nATTENDEE;PARTSTAT=ACCEPTED" + bob, ""},
		{"a confirmed event", "SUMMARY:On call\nSTATUS:CONFIRMED\nTRANSP:OPAQUE\nATTENDEE" + bob, "bob@example.com"},
		{"hours that are shown as free", "SUMMARY:On call\nTRANSP:TRANSPARENT\nATTENDEE" + bob, ""},
	} {
		shifts, err := parseCalendar(cal("", time8+strings.TrimSuffix(tc.event, "\n")), "", now.Add(-time.Hour), now.Add(Ahead))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		var got []string
		for _, o := range at(shifts, 1, now) {
			got = append(got, o.Shown())
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %q is on call, not %q", tc.name, strings.Join(got, ", "), tc.want)
		}
	}
	whole := cal("", "UID:w\nSUMMARY:bob@example.com\nTRANSP:TRANSPARENT\nDTSTART;VALUE=DATE:20260309\nDTEND;VALUE=DATE:20260316")
	if shifts, err := parseCalendar(whole, "", now.Add(-time.Hour), now.Add(Ahead)); err != nil || len(at(shifts, 1, now)) != 1 {
		t.Errorf("whole days, which calendars show as free: %v %v", shifts, err)
	}
}

// TestARefusedCalendarSaysWhatIsWrong: its event, line and zone.
func TestARefusedCalendarSaysWhatIsWrong(t *testing.T) {
	const rest = "\nDTEND:20260310T080000Z"
	for event, want := range map[string]string{
		"SUMMARY:Bob\nDTSTART;TZID=PDT:20260310T000000" + rest:                                             `an event ("Bob") whose line "DTSTART;TZID=PDT:20260310T000000" can't be read: the time zone "PDT" isn't a name such as Europe/Berlin`,
		"SUMMARY:Bob\nDTSTART;TZID=EST:20260310T000000" + rest:                                             `the time zone "EST" isn't a name`,
		"SUMMARY:Bob\nDTSTART:20260310T000000Z\nDTEND;TZID=CET:20260310T080000":                            `"DTEND;TZID=CET:20260310T080000" can't be read: the time zone "CET"`,
		"SUMMARY:Bob\nDTSTART:20260310T000000Z\nEXDATE;TZID=CET:20260310T080000" + rest:                    `"EXDATE;TZID=CET:20260310T080000" can't be read: the time zone "CET"`,
		"SUMMARY:Bob\nDTSTART:yesterday" + rest:                                                            `"DTSTART:yesterday" can't be read`,
		"SUMMARY:Bob" + rest:                                                                               `an event ("Bob") without a start`,
		"SUMMARY:Bob\nDTSTART:20260310T000000Z\nRRULE:FREQ=SOMETIMES" + rest:                               `"RRULE:FREQ=SOMETIMES" can't be read`,
		"SUMMARY:Bob\nDTSTART:20260310T000000Z\nRRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY" + rest:               `list them as EXDATE`,
		"SUMMARY:Bob\nDTSTART:20260310T000000Z\nRECURRENCE-ID;RANGE=THISANDFUTURE:20260310T000000Z" + rest: `end the series and begin a new one`,
	} {
		now := time.Date(2026, 3, 10, 1, 0, 0, 0, time.UTC)
		if _, err := parseCalendar(cal("", "UID:a\n"+event), "", now, now.Add(Ahead)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", event, err)
		}
	}
	if _, err := parseCalendar(cal("X-WR-TIMEZONE:PST\n", night), "", time.Now(), time.Now().Add(Ahead)); err == nil || !strings.Contains(err.Error(), `"PST"`) {
		t.Errorf("the calendar's own zone: %v", err)
	}
}

func TestACalendarThatCannotBeReadIsRefused(t *testing.T) {
	for name, c := range map[string][]byte{
		"nothing":                nil,
		"a page":                 []byte("<html>sign in</html>"),
		"a zone of another kind": cal("", "UID:a\nSUMMARY:Bob\nDTSTART;TZID=Customized Time Zone:20260310T000000\nDTEND:20260310T080000Z"),
		"the machine's own zone": cal("", "UID:a\nSUMMARY:Bob\nDTSTART;TZID=Local:20260310T000000\nDTEND:20260310T080000Z"),
		"a rule":                 cal("", "UID:a\nSUMMARY:Bob\nDTSTART:20260310T000000Z\nDTEND:20260310T080000Z\nRRULE:FREQ=SOMETIMES"),
		"every second since":     cal("", "UID:a\nSUMMARY:Bob\nDTSTART:19700101T000000Z\nDTEND:19700101T000001Z\nRRULE:FREQ=SECONDLY"),
		"no start":               cal("", "UID:a\nSUMMARY:Bob\nDTEND:20260310T080000Z"),
		"a half":                 cal("", night)[:150],
	} {
		begun := time.Now()
		if _, err := parseCalendar(c, "", begun, begun.Add(Ahead)); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func TestACalendarCanBeAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rota.ics")
	s, err := NewSource(Options{Kind: ICal, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	if _, err := s.Shifts(t.Context(), policy.Reference{}, from, from.Add(Ahead)); err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, cal("", night), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Shifts(t.Context(), policy.Reference{}, from, from.Add(Ahead)); err != nil || len(got) < 8 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzCalendar(f *testing.F) {
	f.Add(cal("", night, day), "")
	f.Add(cal("X-WR-TIMEZONE:Asia/Tokyo\n", "UID:w\nSUMMARY:Bob\nDTSTART;VALUE=DATE:20260309\nDTEND;VALUE=DATE:20260316"), "x")
	from := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, b []byte, category string) {
		shifts, err := parseCalendar(b, category, from, from.Add(Ahead))
		if err != nil && len(shifts) > 0 {
			t.Error("a calendar that can't be read has shifts")
		}
		for _, s := range shifts {
			if s.Level < 1 || !s.To.After(from) || !s.From.Before(from.Add(Ahead)) {
				t.Errorf("%+v", s)
			}
		}
		at(shifts, 0, from)
	})
}

// TestACalendarHasABudget: one that would keep a core busy is refused in a moment.
func TestACalendarHasABudget(t *testing.T) {
	now := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	var many []string
	for n := range 2000 {
		many = append(many, "UID:"+strings.Repeat("x", n%7)+"\nSUMMARY:Bob\nDTSTART:19700101T000000Z\nDTEND:19700101T080000Z\nRRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30")
	}
	const impossible = ";BYHOUR=5;BYMINUTE=5;BYSECOND=5;BYMONTH=2;BYMONTHDAY=30"
	one := "UID:a\nSUMMARY:Bob\nDTSTART:20260301T000000Z\nDTEND:20260301T080000Z\nRRULE:FREQ="
	for name, c := range map[string][]byte{
		"each second": cal("", one+"SECONDLY"+impossible), "each minute": cal("", one+"MINUTELY;INTERVAL=7"+impossible), "each hour": cal("", one+"HOURLY"+impossible),
		"many events": cal("", many...),
	} {
		begun := time.Now()
		if _, err := parseCalendar(c, "", now, now.Add(Ahead)); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
	}
	if got, err := parseCalendar(cal("", one+"HOURLY;INTERVAL=12"), "", now, now.Add(Ahead)); err != nil || len(got) == 0 {
		t.Errorf("every twelve hours: %v %v", got, err)
	}
}

func TestEveryZoneOfWindowsIsOne(t *testing.T) {
	for line := range strings.Lines(windowsZones) {
		if name, iana, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			if _, err := loadZone(zoneName(name)); err != nil || zoneName(name) != iana {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
