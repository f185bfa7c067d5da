package otlp

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// received is one request of an exporter.
type received struct {
	header http.Header
	body   []byte
}

// receive serves with answer and hands over what was sent, decompressed.
func receive(t *testing.T, answer http.HandlerFunc) (url string, got func() []received) {
	t.Helper()
	var all []received
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		all = append(all, received{r.Header, b})
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1/traces", func() []received { return all }
}

func env(m map[string]string) func(string) string { return func(name string) string { return m[name] } }

func export(t *testing.T, url string, m map[string]string, spans []sdktrace.ReadOnlySpan) error {
	t.Helper()
	e, err := New(url, env(m))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Shutdown(t.Context()) }()
	e.sleep = func(context.Context, time.Duration) error { return nil }
	return e.ExportSpans(t.Context(), spans)
}

// everything has each thing that a span can have.
func everything(t *testing.T) []sdktrace.ReadOnlySpan {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := func(n byte, remote bool) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1, 2, n}, SpanID: trace.SpanID{3, n}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: remote,
		})
	}
	at := time.Unix(1_700_000_000, 5)
	attrs := []attribute.KeyValue{
		attribute.String("s", "text"), attribute.String("empty", ""), attribute.Bool("b", true), attribute.Bool("not", false),
		attribute.Int64("i", -5), attribute.Int64("zero", 0), attribute.Int64("big", math.MaxInt64), attribute.Float64("f", 1.25),
		attribute.Float64("nothing", 0), attribute.Float64("far", math.Inf(1)), attribute.StringSlice("ss", []string{"a", ""}),
		attribute.Int64Slice("is", []int64{0, -1}), attribute.BoolSlice("bs", []bool{true, false}), attribute.Float64Slice("fs", []float64{2.5, 0}),
	}
	about := resource.NewWithAttributes("https://example.com/schema", attribute.String("service.name", "x"))
	scope := instrumentation.Scope{Name: "scope", Version: "1", SchemaURL: "https://example.com/scope", Attributes: attribute.NewSet(attribute.Int("n", 1))}
	return tracetest.SpanStubs{
		{
			Name: "whole", SpanContext: ctx(1, false), Parent: ctx(2, true), SpanKind: trace.SpanKindClient, StartTime: at, EndTime: at.Add(time.Second),
			Attributes: attrs, Events: []sdktrace.Event{{Name: "e", Time: at, Attributes: attrs[:1], DroppedAttributeCount: 2}},
			Links:  []sdktrace.Link{{SpanContext: ctx(4, true), Attributes: attrs[:2], DroppedAttributeCount: 3}},
			Status: sdktrace.Status{Code: codes.Error, Description: "it failed"}, DroppedAttributes: 4, DroppedEvents: 5, DroppedLinks: 6,
			Resource: about, InstrumentationScope: scope,
		},
		{Name: "root", SpanContext: ctx(2, false), StartTime: at, EndTime: at, Status: sdktrace.Status{Code: codes.Ok}, Resource: about, InstrumentationScope: scope},
		{Name: "another scope", SpanContext: ctx(5, false), StartTime: at, EndTime: at, Resource: about, InstrumentationScope: instrumentation.Scope{Name: "second"}},
	}.Snapshots()
}

// official is what OpenTelemetry's own exporter sends for the same spans.
func official(t *testing.T, protocol string, spans []sdktrace.ReadOnlySpan) []byte {
	t.Helper()
	url, got := receive(t, nil)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	e, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ExportSpans(t.Context(), spans); err != nil {
		t.Fatal(err)
	}
	return got()[0].body
}

func TestWhatIsSentIsWhatTheOfficialExporterSends(t *testing.T) {
	spans := everything(t)
	t.Run("protobuf", func(t *testing.T) {
		url, got := receive(t, nil)
		if err := export(t, url, map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=1,b=x%20y"}, spans); err != nil {
			t.Fatal(err)
		}
		var ours, theirs collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(got()[0].body, &ours); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(official(t, "http/protobuf", spans), &theirs); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&ours, &theirs) {
			t.Errorf("ours:   %v\ntheirs: %v", &ours, &theirs)
		}
		h := got()[0].header
		if h.Get("Content-Type") != "application/x-protobuf" || h.Get("A") != "1" || h.Get("B") != "x y" {
			t.Errorf("%v", h)
		}
	})
	t.Run("JSON", func(t *testing.T) {
		url, got := receive(t, nil)
		if err := export(t, url, map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, spans); err != nil {
			t.Fatal(err)
		}
		var ours, theirs any
		if err := json.Unmarshal(got()[0].body, &ours); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(official(t, "http/json", spans), &theirs); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(ours, theirs) {
			a, _ := json.MarshalIndent(ours, "", " ")
			b, _ := json.MarshalIndent(theirs, "", " ")
			t.Errorf("ours:   %s\ntheirs: %s", a, b)
		}
		if got()[0].header.Get("Content-Type") != "application/json" {
			t.Error(got()[0].header)
		}
	})
}

func TestWhatPassesIsRetriedAndWhatDoesNotIsNot(t *testing.T) {
	spans := everything(t)
	for status, want := range map[int]int{429: 3, 502: 3, 503: 3, 504: 3, 400: 1, 401: 1, 500: 1, 301: 1} {
		n := 0
		url, _ := receive(t, func(w http.ResponseWriter, _ *http.Request) {
			if n++; n < 3 {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "says why")
			}
		})
		err := export(t, url, nil, spans)
		if n != want || (err == nil) != (want == 3) || err != nil && !strings.Contains(err.Error(), "says why") {
			t.Errorf("%d: %d requests, %v", status, n, err)
		}
	}
}

func TestRetriesEndAfterAMinuteAndWithShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New("http://collector.invalid/", env(nil))
		if err != nil {
			t.Fatal(err)
		}
		e.client = &http.Client{Transport: refusing{}}
		began := time.Now()
		if err := e.ExportSpans(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Error(err)
		}
		if took := time.Since(began); took > retryFor || took < retryFor/2 {
			t.Errorf("it took %s", took)
		}
		time.AfterFunc(time.Second, func() { _ = e.Shutdown(t.Context()) })
		began = time.Now()
		if err := e.ExportSpans(t.Context(), nil); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &os.SyscallError{Syscall: "connect", Err: os.NewSyscallError("refused", io.EOF)}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-7": 0, "nonsense": 0, now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("%q: %s", v, got)
		}
	}
}

func TestSpansThatTheCollectorRefusesAreSaid(t *testing.T) {
	answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "too old"}})
	if err != nil {
		t.Fatal(err)
	}
	for kind, body := range map[string]string{
		"application/x-protobuf": string(answer), "application/json": `{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}`,
		"application/json; charset=utf-8": `{"partialSuccess":{"rejectedSpans":2,"errorMessage":"too old"}}`,
	} {
		url, _ := receive(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		})
		if err := export(t, url, nil, everything(t)); err == nil || !strings.Contains(err.Error(), "refused 2 spans: too old") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestCertificatesFromFiles(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := export(t, s.URL, map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": file}, everything(t)); err != nil {
		t.Error(err)
	}
}

func TestAVariableThatIsWrongIsNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "zstd", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s", "OTEL_EXPORTER_OTLP_HEADERS": "no-value",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": empty, "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": "/nonexistent", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": empty,
	} {
		if _, err := New("http://localhost", env(map[string]string{name: value})); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("application/x-protobuf", []byte("\x0a\x04\x08\x02\x12\x00"))
	f.Add("application/json", []byte(`{"partialSuccess":{"rejectedSpans":"2"}}`))
	f.Fuzz(func(_ *testing.T, kind string, b []byte) { rejected(kind, b) })
}
