package oncall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"countersign/approvals/policy"
	"countersign/internal/redact"
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
	IncidentIO = "incident.io"
	Grafana    = "grafana"
	ICal       = "ical"
)

// Kinds returns the kinds of sources.
func Kinds() []string { return []string{PagerDuty, Opsgenie, IncidentIO, Grafana, ICal} }

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
}

// NewSource returns a source.
func NewSource(o Options) (Source, error) {
	c := client{base: o.URL, token: o.Token, tokenName: o.TokenName, http: &http.Client{Timeout: timeout}}
	if c.base == "" {
		c.base = hosts[o.Kind]
	}
	if o.Token != "" {
		// A token goes to the configured address and no further.
		c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	switch o.Kind {
	case PagerDuty:
		return pagerDuty{c}, nil
	case Opsgenie:
		return opsgenie{c}, nil
	case IncidentIO:
		return incidentIO{c}, nil
	case Grafana:
		return grafana{c}, nil
	case ICal:
		return calendar{c, o.Path}, nil
	}
	return nil, fmt.Errorf("the kind %q of a source is not known", o.Kind)
}

const (
	timeout   = 10 * time.Second
	maxAnswer = 8 << 20 // bytes
	maxPages  = 50
)

// retryError is an answer that asks to wait.
type retryError struct {
	after time.Duration
	text  string
}

func (e *retryError) Error() string { return e.text }

type client struct {
	base      string
	token     redact.Secret
	tokenName string
	http      *http.Client
}

// get reads an address below base; header has more headers.
func (c client) get(ctx context.Context, path string, query url.Values, header map[string]string) ([]byte, error) {
	u := c.base + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, errors.New("has an address that can't be used; correct its url")
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		// The error of package http repeats the address, which may have a calendar's secret.
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
			if e.Timeout() {
				return nil, fmt.Errorf("didn't answer within %s", timeout)
			}
		}
		return nil, fmt.Errorf("can't be reached: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, &retryError{time.Duration(min(max(wait, 0), 3600)) * time.Second, fmt.Sprintf("answered %d", resp.StatusCode)}
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		hint := "check that its address is the private one"
		if c.tokenName != "" {
			hint = "check the token in " + c.tokenName
		}
		return nil, fmt.Errorf("answered %d; %s", resp.StatusCode, hint)
	case resp.StatusCode == http.StatusNotFound:
		return nil, errors.New("answered 404; check the schedule's id")
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("answered %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, errors.New("broke off its answer")
	}
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("answered with more than %d MB", maxAnswer>>20)
	}
	return b, nil
}

// getJSON reads an object.
func (c client) getJSON(ctx context.Context, path string, query url.Values, header map[string]string, into any) error {
	b, err := c.get(ctx, path, query, header)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return errors.New("answered with something else than its API describes")
	}
	return nil
}

// errForm is an answer without what its API promises.
var errForm = errors.New("answered with something else than its API describes")

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("has more than %d MB", maxAnswer>>20)
	}
	return b, nil
}
