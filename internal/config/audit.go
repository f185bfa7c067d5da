package config

import (
	"fmt"
	"strings"
	"time"
)

// AuditConfig says where the daily summary of decisions is posted. The hash in it
// is what makes the record evidence: it lies where the bot cannot change it.
type AuditConfig struct {
	Summary string `yaml:"summary,omitempty"` // the thread, such as slack:T1:C1:1700000000.0001; "" posts none
	At      string `yaml:"at"`                // time of day, such as 09:00
	Zone    string `yaml:"zone"`              // IANA name, such as Europe/Vienna
}

func defaultAudit() AuditConfig { return AuditConfig{At: "09:00", Zone: "UTC"} }

func (c AuditConfig) check(path string) error {
	if c.Summary != "" && !strings.HasPrefix(c.Summary, "slack:") && !strings.HasPrefix(c.Summary, "web:") {
		return Errorf("%s: audit.summary is %q, which is no thread; use one such as slack:T1:C1:1700000000.0001", path, c.Summary)
	}
	if _, err := c.Clock(); err != nil {
		return Errorf("%s: %v", path, err)
	}
	return nil
}

// Daily is a time of day in a zone.
type Daily struct {
	hour, minute int
	zone         *time.Location
}

// Clock is the time of day at which the summary is posted.
func (c AuditConfig) Clock() (Daily, error) {
	at, err := time.Parse("15:04", c.At)
	if err != nil {
		return Daily{}, fmt.Errorf("audit.at is %q; use hours and minutes such as 09:00", c.At)
	}
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return Daily{}, fmt.Errorf("audit.zone is %q, which this machine does not know; use a name such as Europe/Vienna or UTC", c.Zone)
	}
	return Daily{at.Hour(), at.Minute(), zone}, nil
}

// Next is the first time after t that it is this time of day.
func (d Daily) Next(t time.Time) time.Time {
	year, month, day := t.In(d.zone).Date()
	for ; ; day++ {
		if due := time.Date(year, month, day, d.hour, d.minute, 0, 0, d.zone); due.After(t) {
			return due
		}
	}
}
