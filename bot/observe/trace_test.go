package observe

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"countersign/agent/llm"
)

// noEnvironment takes away what the machine of the test says about OpenTelemetry.
func noEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		envEndpoint, envTracesEndpoint, envProtocol, envTracesProtocol, envTracesExporter, envDisabled, envContent, "OTEL_SERVICE_NAME",
		"OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_COMPRESSION",
	} {
		t.Setenv(name, "")
	}
}

// receiver is an OTLP server that keeps what it is sent.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	got      []*collector.ExportTraceServiceRequest
	faults   []error
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		msg := &collector.ExportTraceServiceRequest{}
		body := io.Reader(req.Body)
		var err error
		if req.Header.Get("Content-Encoding") == "gzip" {
			body, err = gzip.NewReader(body)
		}
		if err == nil {
			var raw []byte
			if raw, err = io.ReadAll(body); err == nil {
				err = proto.Unmarshal(raw, msg)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests, r.got, r.faults = append(r.requests, req), append(r.got, msg), append(r.faults, err)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) spans(t *testing.T) map[string]*tracepb.Span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.faults...); err != nil {
		t.Fatal(err)
	}
	out := map[string]*tracepb.Span{}
	for _, m := range r.got {
		for _, rs := range m.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					out[s.GetName()] = s
				}
			}
		}
	}
	return out
}

func (r *receiver) resource(t *testing.T) map[string]string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for _, a := range r.got[0].GetResourceSpans()[0].GetResource().GetAttributes() {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

func TestTracesAreSentByOTLP(t *testing.T) {
	noEnvironment(t)
	r := receive(t)
	t.Setenv(envEndpoint, r.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=value")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	o, err := New(t.Context(), Config{Instance: "bot-1", Version: "1.2.3", Models: []string{"m"}})
	if err != nil || !o.Tracing() {
		t.Fatal(err)
	}
	turn := approvedTurn(0)
	feed(o, turn[:1])
	if _, err := o.Model(replies{llm.Reply{Text: "canary"}}).Reply(t.Context(), llm.Request{Thread: thread}, nil); err != nil {
		t.Fatal(err)
	}
	feed(o, turn[1:5])
	_, end := o.Tool(t.Context(), thread, calls("c1", "run_shell"))
	end(OK, "")
	feed(o, turn[5:])
	if err := o.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := r.spans(t)
	root := spans["invoke_agent countersign"]
	if root == nil || len(root.GetParentSpanId()) != 0 {
		t.Fatalf("there is no root in %v", spans)
	}
	for _, name := range []string{"chat m", "countersign.approval", "execute_tool run_shell"} {
		s := spans[name]
		if s == nil || !bytes.Equal(s.GetTraceId(), root.GetTraceId()) || !bytes.Equal(s.GetParentSpanId(), root.GetSpanId()) {
			t.Errorf("the span %q is not below the turn: %v", name, s)
		}
	}
	if got := time.Unix(0, int64(root.GetStartTimeUnixNano())); !got.Equal(at(0)) {
		t.Errorf("the turn begins at %v", got)
	}
	about := r.resource(t)
	if about["service.name"] != "countersign" || about["service.instance.id"] != "bot-1" || about["service.version"] != "1.2.3" {
		t.Errorf("the program says of itself %v", about)
	}
	req := r.requests[0]
	if req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" || req.Header.Get("X-Key") != "value" {
		t.Errorf("it asks %s with %v", req.URL.Path, req.Header)
	}
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	noEnvironment(t)
	r := receive(t)
	t.Setenv(envTracesEndpoint, r.URL+"/in/here")
	t.Setenv("OTEL_SERVICE_NAME", "night-shift")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=ops,service.name=not-this")
	o, err := New(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	feed(o, approvedTurn(0))
	if err := o.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if about := r.resource(t); about["service.name"] != "night-shift" || about["team"] != "ops" {
		t.Errorf("the program says of itself %v", about)
	}
	if got := r.requests[0].URL.Path; got != "/in/here" {
		t.Errorf("it asks %s", got)
	}
}

func TestWhenThereAreTraces(t *testing.T) {
	tests := []struct {
		rule string
		env  map[string]string
		on   bool
		err  string
	}{
		{"not without an endpoint", nil, false, ""},
		{"with an endpoint", map[string]string{envEndpoint: "http://127.0.0.1:1"}, true, ""},
		{"with an endpoint for traces", map[string]string{envTracesEndpoint: "https://127.0.0.1:1/x"}, true, ""},
		{"not when they are switched off", map[string]string{envEndpoint: "http://127.0.0.1:1", envTracesExporter: "none"}, false, ""},
		{"not when all of it is switched off", map[string]string{envEndpoint: "http://127.0.0.1:1", envDisabled: "true"}, false, ""},
		{"an address without a scheme is refused", map[string]string{envEndpoint: "collector:4318"}, false, envEndpoint},
		{"an address without a host is refused", map[string]string{envTracesEndpoint: "http:///x"}, false, envTracesEndpoint},
		{"another protocol is refused", map[string]string{envEndpoint: "http://127.0.0.1:4317", envProtocol: "grpc"}, false, envProtocol},
		{"the protocol of traces counts first", map[string]string{envEndpoint: "http://127.0.0.1:1", envProtocol: "grpc", envTracesProtocol: "http/protobuf"}, true, ""},
		{"a resource that cannot be read is left out", map[string]string{envEndpoint: "http://127.0.0.1:1", "OTEL_RESOURCE_ATTRIBUTES": "nonsense"}, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			noEnvironment(t)
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			o, err := New(t.Context(), Config{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			if err != nil || o.Tracing() != tt.on {
				t.Fatalf("traces are on: %v (%v)", err == nil && o.Tracing(), err)
			}
			if err := o.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheSamplerDecidesForTheWholeTrace(t *testing.T) {
	for name, want := range map[string]int{"always_on": 4, "always_off": 0, "parentbased_always_off": 0, "": 4} {
		t.Run(name, func(t *testing.T) {
			noEnvironment(t)
			t.Setenv("OTEL_TRACES_SAMPLER", name)
			o, kept := observer(t, Config{Models: []string{"m"}})
			feed(o, approvedTurn(0)[:5])
			_, _ = o.Model(replies{}).Reply(t.Context(), llm.Request{Thread: thread}, nil)
			_, end := o.Tool(t.Context(), thread, calls("c1", "run_shell"))
			end(OK, "")
			feed(o, approvedTurn(0)[5:])
			if got := len(kept.GetSpans()); got != want {
				t.Errorf("there are %d spans, want %d", got, want)
			}
		})
	}
	t.Run("a share of the turns, each whole", func(t *testing.T) {
		noEnvironment(t)
		t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
		o, kept := observer(t, Config{})
		for i := range 200 {
			feed(o, approvedTurn(uint64(8*i)))
		}
		by := map[string]int{}
		for _, s := range kept.GetSpans() {
			by[s.SpanContext.TraceID().String()]++
		}
		if len(by) < 60 || len(by) > 140 {
			t.Errorf("%d of 200 turns are sampled", len(by))
		}
		for id, n := range by {
			if n != 2 {
				t.Errorf("the trace %s has %d spans of 2", id, n)
			}
		}
	})
}

func TestASpanThatCannotBeEncodedIsMadeEncodable(t *testing.T) {
	o, kept := observer(t, Config{})
	_, end := o.Tool(t.Context(), thread, calls("c\xff1", "run\xff"+strings.Repeat("x", 1000)))
	end(OK, "")
	s := kept.GetSpans()[0]
	if got := attr(s, attrCall); got != "c\uFFFD1" {
		t.Errorf("the id is %q", got)
	}
	if len(s.Name) > maxName+50 || !strings.HasPrefix(s.Name, "execute_tool run") || strings.Contains(s.Name, "\xff") {
		t.Errorf("the name is %q", s.Name)
	}
}

// deaf is an exporter that fails, or hangs until its context ends.
type deaf struct {
	hang bool
	mu   sync.Mutex
	err  error
}

func (d *deaf) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *deaf) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	if d.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (*deaf) Shutdown(context.Context) error { return nil }

func TestAnExporterThatFailsDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		bad := &deaf{}
		bad.set(errors.New("refused: " + strings.Repeat("x", 10_000)))
		q := &quiet{SpanExporter: bad, log: slog.New(slog.NewTextHandler(&log, nil))}
		spans := tracetest.SpanStubs{{Name: "a"}, {Name: "b"}}.Snapshots()
		for range 25 * 60 { // for 25 minutes
			if err := q.ExportSpans(t.Context(), spans); err != nil {
				t.Fatalf("the library hears of it: %v", err)
			}
			pass(t.Context(), time.Second)
		}
		if got := strings.Count(log.String(), "\n"); got != 3 || log.Len() > 3000 {
			t.Errorf("%d lines, %d bytes:\n%s", got, log.Len(), log.String())
		}
		log.Reset()
		bad.set(nil)
		for range 10 {
			_ = q.ExportSpans(t.Context(), spans)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "lost_spans=3000") {
			t.Errorf("when it works again, it says %q", got)
		}
	})
}

func TestAnExporterThatHangsBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := provider(t.Context(), Config{}, &deaf{hang: true}, func(e sdktrace.SpanExporter) sdktrace.SpanProcessor {
			return sdktrace.NewBatchSpanProcessor(e)
		})
		if err != nil {
			t.Fatal(err)
		}
		o, err := build(Config{}, p)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 2000 { // more than the queue of the library holds
			feed(o, approvedTurn(uint64(8*i)))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("spans waited for %v", took)
		}
		began = time.Now()
		if err := o.Shutdown(t.Context()); err == nil {
			t.Error("spans are lost and nobody says so")
		}
		if took := time.Since(began); took > flushWithin {
			t.Errorf("the end of the program waited for %v", took)
		}
		pass(t.Context(), time.Hour) // the library's own goroutines give up too
	})
}

func TestAnEndpointThatNobodyListensOnBlocksNothing(t *testing.T) {
	noEnvironment(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	t.Setenv(envEndpoint, closed.URL)
	closed.Close()
	o, err := New(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	feed(o, approvedTurn(0))
	began := time.Now()
	_ = o.Shutdown(t.Context())
	if took := time.Since(began); took > flushWithin+time.Second {
		t.Errorf("the end of the program waited for %v", took)
	}
}

func TestWithoutTracesNothingIsMadeAndAllIsCounted(t *testing.T) {
	noEnvironment(t)
	o, err := New(t.Context(), Config{Models: []string{"m"}, KnownTool: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	feed(o, approvedTurn(0)[:2])
	ctx, end := o.Tool(o.Within(t.Context(), thread, ""), thread, calls("c1", "run_shell"))
	_, _ = o.Model(replies{}).Reply(ctx, llm.Request{Thread: thread}, nil)
	end(OK, "")
	feed(o, approvedTurn(0)[2:])
	for _, name := range []struct {
		metric string
		labels []string
	}{
		{"countersign_turns_total", []string{"outcome=done"}},
		{"countersign_tool_duration_seconds", []string{"tool=run_shell", "outcome=ok"}},
		{"countersign_approval_wait_seconds", []string{"level=unknown", "decision=approved"}},
		{"gen_ai_client_operation_duration_seconds", []string{"model=m", "outcome=ok"}},
	} {
		if got := sample(t, o, name.metric, name.labels...); got != 1 {
			t.Errorf("%s is %v", name.metric, got)
		}
	}
	if err := o.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
