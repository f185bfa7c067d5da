// Package stream tells a security team's tools of every decision and every run: each line of the audit record
// is an event of the Open Cybersecurity Schema Framework, which goes to a collector over OTLP/HTTP, to a
// syslog server over TLS (RFC 5424 and 5425), or into a file of JSON lines.
//
// A courier takes events there (package courier): at least once, with an id by which what comes twice is
// recognised. syslog confirms nothing, so what was written to a connection that a server closed without
// reading is lost.
package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/courier"
)

const (
	patience    = 10 * time.Second // for one attempt
	closeWithin = 2 * time.Second  // how long a syslog server may take to say that it read everything
)

// Sink is one place that gets events. Exactly one of File, Collector and Syslog is set.
type Sink struct {
	File      string // a path
	Collector string // the address of an OTLP receiver for logs, with its path
	// Headers returns those for Collector. It is asked again when they are refused; nil is none.
	Headers func() map[string]redact.Secret
	Syslog  string      // host:port
	TLS     *tls.Config // of Collector and Syslog; nil trusts what the system does
}

// place is where the sink is, for people.
func (s Sink) place() string {
	switch {
	case s.File != "":
		return "file " + s.File
	case s.Collector != "":
		u, err := url.Parse(s.Collector)
		if err != nil {
			return "otlp"
		}
		return "otlp " + u.Host
	}
	return "syslog " + s.Syslog
}

// Config is what a [Stream] needs.
type Config struct {
	DB    store.DB
	Sinks []Sink
	// Command is the text that a request runs, without secrets; nil knows none. Lines about runs do not have it.
	Command func(tx store.Tx, request string) string
	Version string        // of the program
	Host    string        // of this machine, for syslog
	Every   time.Duration // see courier.Config
	Log     *slog.Logger
	Now     func() time.Time
}

// Stream stores events and sends them. It is safe for concurrent use; only one Run at a time may work on a
// store.
type Stream struct {
	*courier.Courier
	cfg Config
}

// New returns a stream. It sends nothing before its Run.
func New(c Config) *Stream {
	s := &Stream{cfg: c}
	var all []courier.Receiver
	for _, sink := range c.Sinks {
		sum := sha256.Sum256([]byte(sink.File + "\x00" + sink.Collector + "\x00" + sink.Syslog))
		r := courier.Receiver{Key: hex.EncodeToString(sum[:8]), Name: sink.place()}
		switch {
		case sink.File != "":
			r.Send = file(sink.File)
		case sink.Collector != "":
			r.Send = collector(sink, c.Version)
		default:
			r.Send = syslog(sink, c.Host)
		}
		all = append(all, r)
	}
	s.Courier = courier.New(courier.Config{DB: c.DB, Root: "stream", Receivers: all, Every: c.Every, Log: c.Log, Now: c.Now})
	return s
}

// Tell stores the event of a line of the audit record, in the transaction that writes it.
func (s *Stream) Tell(tx store.Tx, thread string, e audit.Event, at time.Time) {
	if !s.Idle() {
		if e.Command == "" && (e.What == audit.Running || e.What == audit.Done) && s.cfg.Command != nil {
			e.Command = s.cfg.Command(tx, e.Approval)
		}
		s.Put(tx, at, func(id string) any { return Of(thread, e, at, id, s.cfg.Version) })
	}
}

type send = func(ctx context.Context, all []courier.Message) (int, error)

// file appends lines to a file, which may be moved away at any time.
func file(path string) send {
	return func(_ context.Context, all []courier.Message) (int, error) {
		var b bytes.Buffer
		for _, m := range all {
			b.Write(m.Body)
			b.WriteByte('\n')
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return 0, err
		}
		_, err = f.Write(b.Bytes())
		if err == nil {
			err = f.Sync()
		}
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return 0, err // a part may be there already, and comes again
		}
		return len(all), nil
	}
}

// The parts of a request of OTLP that events need, as JSON (opentelemetry.io/docs/specs/otlp/#otlphttp).
type (
	export struct {
		ResourceLogs []resourceLogs `json:"resourceLogs"`
	}
	resourceLogs struct {
		Resource  attributes  `json:"resource"`
		ScopeLogs []scopeLogs `json:"scopeLogs"`
	}
	scopeLogs struct {
		Scope   scope       `json:"scope"`
		Records []logRecord `json:"logRecords"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	logRecord struct {
		Time       string      `json:"timeUnixNano"`
		Observed   string      `json:"observedTimeUnixNano"`
		Severity   int         `json:"severityNumber"`
		Body       value       `json:"body"`
		Attributes []attribute `json:"attributes"`
		EventName  string      `json:"eventName"`
	}
	attributes struct {
		Attributes []attribute `json:"attributes"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String string `json:"stringValue"`
	}
)

// severities are the numbers of OpenTelemetry for those of OCSF: INFO, INFO2, WARN, ERROR and FATAL.
var severities = map[int]int{informational: 9, low: 10, medium: 13, high: 17, critical: 21}

// refusesData are the answers that say that a request can't be taken, whenever it comes
// (opentelemetry.io/docs/specs/otlp/#failures-1).
var refusesData = map[int]bool{http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true, http.StatusUnprocessableEntity: true}

// collector sends events to an OTLP receiver.
func collector(s Sink, version string) send {
	client := &http.Client{
		Timeout: patience, Transport: &http.Transport{TLSClientConfig: s.TLS, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if s.Headers == nil {
		s.Headers = func() map[string]redact.Secret { return nil }
	}
	headers := s.Headers()
	return func(ctx context.Context, all []courier.Message) (int, error) {
		now := strconv.FormatInt(time.Now().UnixNano(), 10)
		logs := scopeLogs{Scope: scope{"countersign", version}}
		for _, m := range all {
			var e Event
			if err := json.Unmarshal(m.Body, &e); err != nil {
				return 0, fmt.Errorf("an event cannot be read: %w", err)
			}
			logs.Records = append(logs.Records, logRecord{
				Time: strconv.FormatInt(m.At.UnixNano(), 10), Observed: now, Severity: severities[e.Severity], Body: value{string(m.Body)}, EventName: "countersign.decision",
				Attributes: []attribute{{"ocsf.class_uid", value{strconv.Itoa(e.Class)}}, {"ocsf.type_uid", value{strconv.Itoa(e.Type)}}, {"log.record.uid", value{m.ID}}},
			})
		}
		raw, err := json.Marshal(export{[]resourceLogs{{attributes{[]attribute{{"service.name", value{"countersign"}}}}, []scopeLogs{logs}}}})
		if err != nil {
			return 0, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Collector, bytes.NewReader(raw))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("User-Agent", "countersign")
		for k, v := range headers {
			r.Header.Set(k, string(v))
		}
		raw, err = courier.Post(client, r)
		switch answer, ok := errors.AsType[*courier.StatusError](err); {
		case ok && len(all) == 1 && refusesData[answer.Status]:
			return 1, fmt.Errorf("%w to one event, which isn't sent again", err)
		case ok && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden):
			headers = s.Headers() // for the next attempt
		}
		if err != nil {
			return 0, err
		}
		// What a collector rejects must not be sent again.
		var answer struct {
			PartialSuccess struct {
				Rejected json.RawMessage `json:"rejectedLogRecords"`
				Message  string          `json:"errorMessage"`
			} `json:"partialSuccess"`
		}
		if len(bytes.TrimSpace(raw)) > 0 && json.Unmarshal(raw, &answer) != nil {
			return 0, errors.New("it answers with something else than OTLP") // a proxy's page, for one
		}
		if n := strings.Trim(string(answer.PartialSuccess.Rejected), `"`); n != "" && n != "0" {
			return len(all), fmt.Errorf("it rejected %s of %d events: %s", n, len(all), answer.PartialSuccess.Message)
		}
		return len(all), nil
	}
}

// priorities are facility 13 (log audit) with the severities of syslog: informational, notice, warning, error
// and critical.
var priorities = map[int]int{informational: 13*8 + 6, low: 13*8 + 5, medium: 13*8 + 4, high: 13*8 + 3, critical: 13*8 + 2}

// syslog sends events to a syslog server.
func syslog(s Sink, host string) send {
	return func(ctx context.Context, all []courier.Message) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		d := tls.Dialer{Config: s.TLS}
		conn, err := d.DialContext(ctx, "tcp", s.Syslog)
		if err != nil {
			return 0, err
		}
		defer func() { _ = conn.Close() }()
		if at, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(at)
		}
		var b bytes.Buffer
		for _, m := range all {
			var e Event
			if err := json.Unmarshal(m.Body, &e); err != nil {
				return 0, fmt.Errorf("an event cannot be read: %w", err)
			}
			line := fmt.Sprintf("<%d>1 %s %s countersign %d ocsf - \xef\xbb\xbf%s", priorities[e.Severity], m.At.UTC().Format("2006-01-02T15:04:05.000000Z"), word(host), os.Getpid(), m.Body)
			fmt.Fprintf(&b, "%d %s", len(line), line)
		}
		if _, err := conn.Write(b.Bytes()); err != nil {
			return 0, err
		}
		// The server has read all of it when it closes, too.
		if t, ok := conn.(*tls.Conn); ok {
			if err := t.CloseWrite(); err != nil {
				return 0, err
			}
		}
		_ = conn.SetReadDeadline(time.Now().Add(closeWithin))
		if _, err := io.Copy(io.Discard, conn); err != nil && !isTimeout(err) {
			return 0, err
		}
		return len(all), nil
	}
}

// isTimeout reports whether nobody said anything: not every server closes.
func isTimeout(err error) bool {
	n, ok := err.(net.Error) //nolint:errorlint // the connection's own
	return ok && n.Timeout()
}

// word is a name for the head of a line of syslog.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), 255)]
}
