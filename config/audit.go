package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"countersign/proof/witness/cosign"
)

// AuditConfig says where the daily summary of decisions is posted. The hash in it
// is what makes the record evidence: it lies where the bot cannot change it.
type AuditConfig struct {
	Summary string `yaml:"summary,omitempty"` // the thread, such as slack:T1:C1:1700000000.0001; "" posts none
	At      string `yaml:"at"`                // time of day, such as 09:00
	Zone    string `yaml:"zone"`              // IANA name, such as Europe/Vienna
	// Log is the record's name to its witnesses; "" is the host of web.origin.
	Log string `yaml:"log,omitempty"`
	// Witnesses sign that the record only grows.
	Witnesses []WitnessConfig `yaml:"witnesses,omitempty"`
}

// WitnessConfig is a witness of the record.
type WitnessConfig struct {
	URL string `yaml:"url" secret:"url"`
	Key string `yaml:"key"` // as the witness prints it
}

func defaultAudit() AuditConfig { return AuditConfig{At: "09:00", Zone: "UTC"} }

func (c AuditConfig) check(path string, has func(scheme string) bool) error {
	if scheme, _, ok := strings.Cut(c.Summary, ":"); c.Summary != "" && (!ok || !has(scheme)) {
		return Errorf("%s: audit.summary is %q, which is no thread; use one such as slack:T1:C1:1700000000.0001", path, c.Summary)
	}
	for _, w := range c.Witnesses {
		u, err := url.Parse(w.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return Errorf("%s: audit.witnesses has the url %q; write one like https://witness.example.com", path, w.URL)
		}
		if _, isWitness, err := cosign.Verifier(w.Key); err != nil || !isWitness {
			return Errorf("%s: audit.witnesses: the key of %s isn't that of a witness; copy what countersign-witness prints", path, w.URL)
		}
	}
	if strings.ContainsAny(c.Log, "+ \t\n") {
		return Errorf("%s: audit.log is %q; leave blanks and plus signs out", path, c.Log)
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
