package oncall

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/redact"
	"countersign/internal/rest"
)

// Source looks schedules up. It is safe for concurrent use.
type Source interface {
	// Shifts returns every shift that overlaps with the time from from to to, of the levels of what r names.
	// Overrides are applied. The error is a sentence's end about the source, as in "answered 503".
	Shifts(ctx context.Context, r policy.Reference, from, to time.Time) ([]Shift, error)
}

// The kinds of sources.
const (
	PagerDuty  = "pagerduty"
	Opsgenie   = "opsgenie"
	JSM        = "jsm" // Jira Service Management
	IncidentIO = "incident.io"
	Grafana    = "grafana"
	ICal       = "ical"
)

// Kinds returns the kinds of sources.
func Kinds() []string { return []string{PagerDuty, Opsgenie, JSM, IncidentIO, Grafana, ICal} }

// hosts are where the public APIs are.
var hosts = map[string]string{PagerDuty: "https://api.pagerduty.com", Opsgenie: "https://api.opsgenie.com", IncidentIO: "https://api.incident.io"}

// Options are what a source needs.
type Options struct {
	Kind  string
	URL   string // of the API, or of a calendar; "" is the public one
	Path  string // a calendar's file
	Token redact.Secret
	// TokenName says where the token comes from, for errors.
	TokenName string
	// Renew returns the token as it is now; nil is that it stays.
	Renew func() redact.Secret
}

// NewSource returns a source.
func NewSource(o Options) (Source, error) {
	base := o.URL
	if base == "" {
		base = hosts[o.Kind]
	}
	hint := "check that its address is the private one"
	if o.TokenName != "" {
		hint = "check the token in " + o.TokenName
	}
	c := rest.New(base, o.header, hint)
	switch o.Kind {
	case PagerDuty:
		return pagerDuty{c}, nil
	case Opsgenie:
		return opsgenie{c}, nil
	case JSM:
		return jsm{c}, nil
	case IncidentIO:
		return incidentIO{c}, nil
	case Grafana:
		return grafana{c}, nil
	case ICal:
		return calendar{c, o.Path}, nil
	}
	return nil, fmt.Errorf("the kind %q of a source is not known", o.Kind)
}

// header is sent with each request.
func (o Options) header() map[string]redact.Secret {
	header := map[string]redact.Secret{}
	if o.Renew != nil {
		o.Token = o.Renew()
	}
	switch form, ok := authorization[o.Kind]; {
	case o.Token == "":
	case o.Kind == JSM && strings.Contains(o.Token.Reveal(), ":"): // an account's address and its API token
		header["Authorization"] = redact.Secret("Basic " + base64.StdEncoding.EncodeToString([]byte(o.Token.Reveal())))
	case ok:
		header["Authorization"] = redact.Secret(form) + o.Token
	}
	if o.Kind == PagerDuty {
		header["Accept"] = "application/vnd.pagerduty+json;version=2"
	}
	return header
}

// authorization is what stands before the token in the header of that name.
var authorization = map[string]string{PagerDuty: "Token token=", Opsgenie: "GenieKey ", JSM: "Bearer ", IncidentIO: "Bearer ", Grafana: "", ICal: "Bearer "}

// maxPages bounds a list.
const maxPages = 50

// named adds to an answer that there is no such thing what to check.
func named(err error) error {
	if e, ok := errors.AsType[*rest.StatusError](err); ok && e.Status == http.StatusNotFound {
		return fmt.Errorf("%w; check the schedule's id", err)
	}
	return err
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, rest.MaxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	if len(b) > rest.MaxAnswer {
		return nil, fmt.Errorf("has more than %d MB", rest.MaxAnswer>>20)
	}
	return b, nil
}
