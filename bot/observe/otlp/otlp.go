// Package otlp sends spans to a collector as the OpenTelemetry Protocol 1.x over HTTP,
// in protobuf or JSON, configured by the environment variables of its specification.
//
// OpenTelemetry's own exporter does the same and links all of gRPC, which HTTP never uses:
// 17 s of every cold build. The specification is at
// https://opentelemetry.io/docs/specs/otlp/ and .../otel/protocol/exporter/.
package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	defaultTimeout = 10 * time.Second
	// Failures that pass are retried at growing intervals, for a minute in all.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Second
	retryFor   = time.Minute
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 64 << 10
)

// Exporter sends spans. It is made by [New], and safe for concurrent use.
type Exporter struct {
	url     string
	headers map[string]string
	json    bool
	gzip    bool
	client  *http.Client
	stop    context.Context // done after Shutdown
	end     context.CancelFunc
	sleep   func(context.Context, time.Duration) error
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// New returns an exporter that sends to endpoint, the whole address of the collector's
// traces. getenv gives the variables: each OTEL_EXPORTER_OTLP_... has one of traces alone,
// OTEL_EXPORTER_OTLP_TRACES_..., which counts first. The error names the variable that is
// wrong.
func New(endpoint string, getenv func(string) string) (*Exporter, error) {
	variable := func(name string) (value, from string) {
		from = "OTEL_EXPORTER_OTLP_TRACES_" + name
		if value = getenv(from); value == "" {
			from = "OTEL_EXPORTER_OTLP_" + name
			value = getenv(from)
		}
		return strings.TrimSpace(value), from
	}
	e := &Exporter{url: endpoint, headers: map[string]string{}, sleep: sleep}
	e.stop, e.end = context.WithCancel(context.Background())
	// Headers of traces are added to those of everything.
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		if err := addHeaders(e.headers, getenv(name)); err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
	}
	protocol, _ := variable("PROTOCOL")
	e.json = protocol == "http/json"
	compression, from := variable("COMPRESSION")
	switch compression {
	case "", "none":
	case "gzip":
		e.gzip = true
	default:
		return nil, fmt.Errorf("%s is %q; use gzip or none", from, compression)
	}
	timeout := defaultTimeout
	if v, from := variable("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms < 0 {
			return nil, fmt.Errorf("%s is %q; use a number of milliseconds", from, v)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2: true, MaxIdleConns: 10, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
	secure, err := certificates(variable)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = secure
	e.client = &http.Client{Transport: transport, Timeout: timeout}
	return e, nil
}

// addHeaders reads "key=value,key=value", whose parts are percent-encoded.
func addHeaders(to map[string]string, list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		key, kerr := url.PathUnescape(strings.TrimSpace(k))
		value, verr := url.PathUnescape(strings.TrimSpace(v))
		if !ok || kerr != nil || verr != nil || key == "" {
			return errors.New("cannot be read; write it like key=value,key=value") // the value may be a secret
		}
		to[key] = value
	}
	return nil
}

// certificates returns nil where the environment names none.
func certificates(variable func(string) (value, from string)) (*tls.Config, error) {
	var c *tls.Config
	if file, from := variable("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", from, err)
		}
		c = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s names %s, which holds no certificate in PEM", from, file)
		}
	}
	cert, from := variable("CLIENT_CERTIFICATE")
	key, _ := variable("CLIENT_KEY")
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and its CLIENT_KEY cannot be used: %w", from, err)
		}
		if c == nil {
			c = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Shutdown implements [sdktrace.SpanExporter]: what is being sent is given up.
func (e *Exporter) Shutdown(context.Context) error {
	e.end()
	return nil
}

// ExportSpans implements [sdktrace.SpanExporter]. It returns when the collector has taken
// the spans, refused them, or could not be reached for a minute.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	defer context.AfterFunc(e.stop, cancel)()
	r := newRequest(spans)
	var body []byte
	if e.json {
		var err error
		if body, err = r.json(); err != nil {
			return fmt.Errorf("otlp: %w", err)
		}
	} else {
		body = r.protobuf()
	}
	if e.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body) // to memory
		_ = z.Close()
		body = b.Bytes()
	}
	for wait := firstRetry; ; wait = min(wait*3/2, lastRetry) {
		after, err := e.send(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		// Half of it at random, so that many programs do not come back together.
		pause := max(after, wait/2+rand.N(wait/2)) //nolint:gosec // no secret
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
			return err
		}
		if e.sleep(ctx, pause) != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// final means that there is no use in trying again.
const final = time.Duration(-1)

// send makes one attempt. after is how long the collector wants to be left alone before the
// next one, or final.
func (e *Exporter) send(ctx context.Context, body []byte) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return final, fmt.Errorf("otlp: %w", err)
	}
	req.Header.Set("User-Agent", "countersign")
	for k, v := range e.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if e.json {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := e.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("otlp: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer)) // a part says enough
	if res.StatusCode/100 == 2 {
		if n, why := rejected(res.Header.Get("Content-Type"), answer); n != 0 || why != "" {
			return final, fmt.Errorf("otlp: the collector refused %d spans: %s", n, cmp.Or(why, "it does not say why"))
		}
		return 0, nil
	}
	err = fmt.Errorf("otlp: %s answers %s: %s", e.url, res.Status, cmp.Or(strings.TrimSpace(string(answer)), "(empty)"))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retryAfter(res.Header.Get("Retry-After"), time.Now()), err
	}
	return final, err
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(v); err == nil {
		return max(time.Duration(n)*time.Second, 0)
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}
