package observe

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"countersign/adapters/chat"
	"countersign/bot/observe/otlp"
)

const defaultService = "countersign"

// tracing makes the way out for spans, or nil where none is configured.
func tracing(ctx context.Context, cfg Config) (*sdktrace.TracerProvider, error) {
	endpoint, from := os.Getenv(envTracesEndpoint), envTracesEndpoint
	if endpoint == "" {
		endpoint, from = os.Getenv(envEndpoint), envEndpoint
	}
	if endpoint == "" || strings.EqualFold(os.Getenv(envDisabled), "true") || strings.EqualFold(os.Getenv(envTracesExporter), "none") {
		return nil, nil
	}
	// The exporter would log these and send to localhost.
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("observe: %s is not an http or https address; write it like http://collector:4318", from)
	}
	for _, name := range []string{envTracesProtocol, envProtocol} {
		switch os.Getenv(name) {
		case "http/protobuf", "http/json":
		case "":
			continue
		default:
			return nil, fmt.Errorf("observe: %s is %q, and traces are sent by http/protobuf or http/json only; the usual port of these is 4318", name, os.Getenv(name))
		}
		break
	}
	if from == envEndpoint {
		endpoint = strings.TrimRight(endpoint, "/") + "/v1/traces"
	}
	exporter, err := otlp.New(endpoint, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	return provider(ctx, cfg, exporter, func(e sdktrace.SpanExporter) sdktrace.SpanProcessor {
		return sdktrace.NewBatchSpanProcessor(e)
	})
}

// provider puts an exporter, what it says of this program, and our ids together.
func provider(ctx context.Context, cfg Config, e sdktrace.SpanExporter,
	with func(sdktrace.SpanExporter) sdktrace.SpanProcessor) (*sdktrace.TracerProvider, error) {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	name := cfg.Agent
	if name == "" {
		name = defaultService
	}
	about := []attribute.KeyValue{str("service.name", name)}
	if cfg.Instance != "" {
		about = append(about, str("service.instance.id", cfg.Instance))
	}
	if cfg.Version != "" {
		about = append(about, str("service.version", cfg.Version))
	}
	// What the environment says (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) comes last
	// and so counts.
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(about...), resource.WithFromEnv())
	if errors.Is(err, resource.ErrPartialResource) {
		log.WarnContext(ctx, "a part of OTEL_RESOURCE_ATTRIBUTES cannot be read and was left out; write it like key=value,key=value")
	} else if err != nil {
		return nil, fmt.Errorf("observe: the description of this program cannot be made: %w", err)
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(with(&quiet{SpanExporter: e, log: log})),
		sdktrace.WithResource(res), sdktrace.WithIDGenerator(ids{}),
	), nil
}

// quiet is an exporter whose failures nobody else hears of: the library would give each
// of them to a handler that is global to the program, and that prints them.
type quiet struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu    sync.Mutex
	lost  int // spans since the last success
	saidA time.Time
}

// sayEvery is how often the log is told that traces cannot be sent.
const sayEvery = 10 * time.Minute

// maxCause bounds the part of an exporter's error that is logged, in bytes: it may hold
// the whole answer of a server.
const maxCause = 300

// ExportSpans implements sdktrace.SpanExporter.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		if q.lost > 0 {
			q.log.InfoContext(ctx, "traces are sent again", "lost_spans", q.lost)
		}
		q.lost, q.saidA = 0, time.Time{}
		return nil
	}
	q.lost += len(spans)
	if now := time.Now(); q.saidA.IsZero() || now.Sub(q.saidA) >= sayEvery {
		q.saidA = now
		q.log.WarnContext(ctx, "traces cannot be sent; the bot goes on without them", "error", cut(err.Error(), maxCause), "lost_spans", q.lost)
	}
	return nil
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + " [cut]"
}

// maxName bounds names and ids in spans, in bytes: a model may have made them up.
const maxName = 256

// str is an attribute that can be sent: one with a byte that is no UTF-8 would take its
// whole batch with it.
func str(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.ToValidUTF8(cut(value, maxName), "\uFFFD"))
}

// span is one that is over.
type span struct {
	trace    trace.TraceID // of a root only
	id       trace.SpanID
	name     string
	from, to time.Time
	attrs    []attribute.KeyValue
	failed   string // error.type, "" for none
}

// past makes a span of something that is over, below parent, or as a root.
func (o *Observer) past(parent trace.SpanContext, s span) {
	if o.tracer == nil {
		return
	}
	ctx := context.WithValue(context.Background(), idKey{}, wanted{s.trace, s.id})
	opts := []trace.SpanStartOption{trace.WithTimestamp(s.from), trace.WithAttributes(s.attrs...), trace.WithSpanKind(trace.SpanKindInternal)}
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		opts = append(opts, trace.WithNewRoot())
	}
	_, live := o.tracer.Start(ctx, strings.ToValidUTF8(cut(s.name, maxName), "\uFFFD"), opts...)
	fail(live, s.failed)
	if s.to.Before(s.from) { // the clock was set back
		s.to = s.from
	}
	live.End(trace.WithTimestamp(s.to))
}

func fail(s trace.Span, kind string) {
	if kind != "" {
		s.SetAttributes(str(attrError, kind))
		s.SetStatus(codes.Error, "")
	}
}

// rootOf is the context of the span that a turn will have: whoever asks, and in whichever
// process.
func (o *Observer) rootOf(thread chat.ThreadID, first uint64) trace.SpanContext {
	if o.tracer == nil {
		return trace.SpanContext{}
	}
	// Whether the trace is sampled is the sampler's to say, which the environment chooses
	// and the library keeps to itself. So it is asked by a span that is never ended, and
	// so never sent. Its answer depends on the id alone, or on nothing.
	ctx := context.WithValue(context.Background(), idKey{}, wanted{o.traceID(thread, first), turnSpanID(thread, first)})
	_, probe := o.tracer.Start(ctx, opAgent+" "+o.cfg.Agent, trace.WithNewRoot())
	return probe.SpanContext().WithRemote(true)
}

// within is the context that spans of a scope of a turn are below.
func (o *Observer) within(root trace.SpanContext, thread chat.ThreadID, scope string) trace.SpanContext {
	if scope == "" || !root.IsValid() {
		return root
	}
	return root.WithSpanID(nestedSpanID(thread, scope))
}

// Within returns a context whose spans are below the thread's open turn or, with a scope
// (history.Entry.Scope), below the nested work of it. It is for what has no call of its
// own; [Observer.Model] and [Observer.Tool] find the turn by themselves.
func (o *Observer) Within(ctx context.Context, thread chat.ThreadID, scope string) context.Context {
	first, ok := o.open(thread)
	if o.tracer == nil || !ok {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, o.within(o.rootOf(thread, first), thread, scope))
}

// idKey is where a context holds the ids that the next span must have.
type idKey struct{}

type wanted struct {
	trace trace.TraceID
	span  trace.SpanID
}

// ids gives a span the ids that its context asks for, and random ones otherwise.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	w, _ := ctx.Value(idKey{}).(wanted)
	for !w.trace.IsValid() {
		_, _ = rand.Read(w.trace[:]) // it never fails
	}
	return w.trace, g.NewSpanID(ctx, w.trace)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	w, _ := ctx.Value(idKey{}).(wanted)
	for !w.span.IsValid() {
		_, _ = rand.Read(w.span[:])
	}
	return w.span
}

// hashOf is a hash of words that no other words have.
func hashOf(words ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, w := range words {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(w)))
		h.Write(n[:])
		h.Write([]byte(w))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (o *Observer) traceID(thread chat.ThreadID, first uint64) trace.TraceID {
	h := hashOf("countersign trace", o.cfg.Instance, string(thread), strconv.FormatUint(first, 10))
	return trace.TraceID(h[:16])
}

func spanID(thread chat.ThreadID, kind, key string) trace.SpanID {
	h := hashOf("countersign span", string(thread), kind, key)
	return trace.SpanID(h[:8])
}

func turnSpanID(thread chat.ThreadID, first uint64) trace.SpanID {
	return spanID(thread, "turn", strconv.FormatUint(first, 10))
}

func nestedSpanID(thread chat.ThreadID, call string) trace.SpanID {
	return spanID(thread, "nested", call)
}
