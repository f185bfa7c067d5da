// Package observe shows what the bot does to those who run it: traces by OpenTelemetry
// (one trace a turn, sent by OTLP over HTTP), metrics for Prometheus, and logs that carry
// the ids of the thread, the turn and the call. docs/observability.md and docs/metrics.md list all of them.
//
// A turn, and the waiting for an approval, can outlive the process. So their spans are
// made from the entries of the transcript (agent/history) at the moment when they end,
// with the times that the entries have; and the ids of the trace and of these spans are
// hashes of the thread and the number of the entry that began the turn, so that what was
// sent before a restart and what is sent after it are one trace. Model calls and tool runs
// live in one process, so their spans are ordinary.
//
// Nothing that people, the model or a tool wrote is in a span, unless the configuration
// says so; then it goes through the redactor. Labels of metrics have few values: never a
// thread, a person or a command.
//
// It decides nothing, stores nothing, and nothing waits for it: spans that cannot be sent
// are dropped. It does not keep the record of decisions (approvals/audit), and metrics of
// that record are read from the store where /metrics is served, not counted here.
package observe

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
)

// Config is what an [Observer] is made of. Every field has a default.
type Config struct {
	// Agent is the agent's name in spans, and the default of service.name; default
	// "countersign".
	Agent string
	// Instance tells several bots apart. It must be the same after a restart, because
	// the ids of traces depend on it.
	Instance string
	// Version and Revision are those of the program; default "unknown".
	Version, Revision string
	// Provider is gen_ai.provider.name; default "openai", which the conventions use for
	// whatever speaks OpenAI's protocol.
	Provider string
	// Models are the configured models, the default one first: the values of the label
	// model. Any other name counts as "other".
	Models []string
	// KnownTool says whether a tool is registered. Any other name, which a model may have
	// made up, counts as "unknown". nil knows none.
	KnownTool func(name string) bool
	// Price says what a reply cost, in US dollars, where the provider does not say it;
	// 0 is not known. nil knows nothing.
	Price func(model string, u llm.Usage) float64
	// Request looks a request up, for its level and for the right by which it was
	// approved; nothing else of it is used. It is called when a request's wait ends. nil
	// finds none.
	Request func(ctx context.Context, id approvals.ID) (approvals.Record, bool)
	// Adapters gives the chat networks by name, nil for each that is connected. It is
	// called at each scrape. nil has none.
	Adapters func() map[string]error
	// Queue counts the items that wait in the inboxes of threads. It is called at each
	// scrape, with a limit of 5 s. nil leaves the metric out.
	Queue func(ctx context.Context) (int, error)
	// Lag says how long what other systems are to be told has waited, by receiver. It is called at each
	// scrape; nil means there is none.
	Lag func(ctx context.Context) (map[string]time.Duration, error)
	// OnCall says how old the newest answer about who is on call is, by schedule; nil is not asked.
	OnCall func() map[string]time.Duration
	// Content puts what is said to and by the model, and arguments and results of tools,
	// into spans. The environment variable
	// OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so too (true, span_only or
	// span_and_event). It needs Redact.
	Content bool
	// Redact takes secrets out of that text.
	Redact func(string) string
	// Threads bounds the threads that are kept in memory; default 4096. Of a thread beyond it, a turn that goes on has no span until it is resumed.
	Threads int
	// Log says, at most once in ten minutes, that traces cannot be sent. nil is silent.
	Log *slog.Logger
}

// Observer is told what happens and makes spans and metrics of it. Its methods are safe
// for concurrent use, but entries of one thread must come in their order. None of them
// waits for the network.
type Observer struct {
	cfg     Config
	metrics *metrics
	tracer  trace.Tracer             // nil without traces
	traces  *sdktrace.TracerProvider // nil without traces

	mu     sync.Mutex
	known  map[chat.ThreadID]*list.Element
	recent *list.List // of *entry, most recently used first
}

type entry struct {
	thread chat.ThreadID
	conv   *conversation
}

const (
	defaultThreads = 4096
	// flushWithin bounds how long the end of the program waits for the last spans.
	flushWithin = 5 * time.Second
)

// New returns an observer. Traces are on when OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set; New does not connect to it. An error says
// what is wrong with the configuration.
func New(ctx context.Context, cfg Config) (*Observer, error) {
	if !cfg.Content {
		v := strings.ToLower(os.Getenv(envContent))
		cfg.Content = slices.Contains([]string{"true", "span_only", "span_and_event"}, v)
	}
	provider, err := tracing(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return build(cfg, provider)
}

// build is New with the traces ready; provider may be nil.
func build(cfg Config, provider *sdktrace.TracerProvider) (*Observer, error) {
	if cfg.Content && cfg.Redact == nil {
		return nil, errors.New("observe: content in spans is switched on and there is no redactor for it; set one, or switch it off")
	}
	if cfg.Agent == "" {
		cfg.Agent = defaultService
	}
	if cfg.Provider == "" {
		cfg.Provider = "openai"
	}
	if cfg.Threads <= 0 {
		cfg.Threads = defaultThreads
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	o := &Observer{cfg: cfg, metrics: newMetrics(cfg), known: map[chat.ThreadID]*list.Element{}, recent: list.New()}
	if provider != nil {
		o.traces, o.tracer = provider, provider.Tracer("countersign", trace.WithInstrumentationVersion(cfg.Version))
	}
	return o, nil
}

// Shutdown sends what is left of the spans, for 5 s at most, and ends the traces. An
// error says that spans were lost. Turns that are open have no span yet: they get it when
// they end, after the restart.
func (o *Observer) Shutdown(ctx context.Context) error {
	if o.traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	if err := o.traces.Shutdown(ctx); err != nil {
		return fmt.Errorf("observe: the last spans were not sent: %w", err)
	}
	return nil
}

// Tracing says whether spans are made.
func (o *Observer) Tracing() bool { return o.tracer != nil }

// Resumed is told the whole transcript of a thread that is taken up: after a restart, or
// because this process may not have seen all of it. It makes no spans and counts nothing.
// It is cheap when the thread is known already.
func (o *Observer) Resumed(thread chat.ThreadID, entries []history.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.conversation(thread)
	if n := len(entries); c.whole && (n == 0 || c.next > entries[n-1].Seq) {
		return
	}
	fresh := resume(entries)
	if c.turn != nil && fresh.turn != nil && c.turn.first == fresh.turn.first {
		for id, k := range fresh.turn.calls {
			if old := c.turn.calls[id]; old != nil {
				k.live = old.live
			}
		}
	}
	*c = *fresh
}

// Appended is told the entries that were stored for a thread, in their order and after
// they are durable. Entries that it was told before count once.
func (o *Observer) Appended(ctx context.Context, thread chat.ThreadID, entries []history.Entry) {
	o.mu.Lock()
	c := o.conversation(thread)
	var facts []fact
	for i := range entries {
		facts = append(facts, c.add(&entries[i])...)
	}
	o.mu.Unlock()
	// A turn that is over has no other user, and of one that is not only what never
	// changes is used.
	for _, f := range facts {
		o.record(ctx, thread, f)
	}
}

// conversation finds what is kept of a thread, under mu.
func (o *Observer) conversation(thread chat.ThreadID) *conversation {
	if el := o.known[thread]; el != nil {
		o.recent.MoveToFront(el)
		return el.Value.(*entry).conv
	}
	e := &entry{thread: thread, conv: &conversation{}}
	o.known[thread] = o.recent.PushFront(e)
	if o.recent.Len() > o.cfg.Threads {
		last := o.recent.Back()
		o.recent.Remove(last)
		delete(o.known, last.Value.(*entry).thread)
	}
	return e.conv
}

// open is the number of the first entry of a thread's open turn.
func (o *Observer) open(thread chat.ThreadID) (first uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	el := o.known[thread]
	if el == nil {
		return 0, false
	}
	if t := el.Value.(*entry).conv.turn; t != nil {
		return t.first, true
	}
	return 0, false
}

// record makes metrics and spans of a fact.
func (o *Observer) record(ctx context.Context, thread chat.ThreadID, f fact) {
	switch f := f.(type) {
	case callEnded:
		o.metrics.toolEnded(f.tool, f.outcome)
	case turnEnded:
		o.metrics.turnEnded(f)
		if f.turn != nil {
			o.turnSpan(thread, f)
		}
	case waitEnded:
		o.waited(ctx, thread, f)
	case callLost:
		root := o.rootOf(thread, f.turn.first)
		o.past(o.within(root, thread, f.scope), span{
			id: spanID(thread, "lost", f.id), name: opTool + " " + f.tool, from: f.from, to: f.to, failed: "outcome_unknown",
			attrs: append(o.toolAttrs(thread, f.id, f.tool), str(attrOutcome, string(Unknown))),
		})
	case readHeld:
		o.metrics.held.WithLabelValues(o.metrics.tools.label(f.tool)).Inc()
	case nestedEnded:
		o.nestedSpan(thread, f)
	}
}

// waited is the end of a wait for people.
func (o *Observer) waited(ctx context.Context, thread chat.ThreadID, f waitEnded) {
	level, basis := "unknown", approvals.ByVotes
	if o.cfg.Request != nil {
		if rec, ok := o.cfg.Request(ctx, f.ask.approval); ok {
			level, basis = levelLabel(rec.Level), rec.Basis.Kind
		}
	}
	if f.decision == string(approvals.Approved) && basis != approvals.ByVotes {
		f.decision = decisionSettled
	}
	took := max(0, f.at.Sub(f.ask.at))
	o.metrics.waitEnded(level, f.decision, took)
	attrs := []attribute.KeyValue{
		str(attrConversation, string(thread)), str(attrCall, f.call), str(attrTool, f.ask.tool),
		str(attrApproval, string(f.ask.approval)), str(attrDecision, f.decision), str(attrLevel, level),
		attribute.Float64(attrWaited, took.Seconds()),
	}
	if basis != approvals.ByVotes {
		attrs = append(attrs, str(attrBasis, string(basis)))
	}
	o.past(o.within(o.rootOf(thread, f.turn.first), thread, f.ask.scope), span{
		id: spanID(thread, "approval", string(f.ask.approval)), name: spanApproval, from: f.ask.at, to: f.at, attrs: attrs,
	})
}

func (o *Observer) turnSpan(thread chat.ThreadID, f turnEnded) {
	t := f.turn
	s := span{
		id: turnSpanID(thread, t.first), name: opAgent + " " + o.cfg.Agent, from: t.began, to: f.at,
		attrs: append(o.agentAttrs(thread, opAgent, t.work),
			str(attrAgent, o.cfg.Agent),
			attribute.Int64(attrTurn, int64(t.first)), //nolint:gosec // no transcript has 2^63 entries
			str(attrOutcome, string(f.reason)),
			attribute.Int(attrApprovals, t.asked),
			attribute.Float64(attrWaited, t.waited.Seconds()),
		),
	}
	if f.reason == history.EndFailed {
		s.failed = otherError
	}
	s.trace = o.traceID(thread, t.first)
	o.past(trace.SpanContext{}, s)
}

func (o *Observer) nestedSpan(thread chat.ThreadID, f nestedEnded) {
	n := f.nested
	op, name, attrs := opAgent, o.cfg.Agent, []attribute.KeyValue{str(attrAgent, o.cfg.Agent), str(attrAgentID, n.name)}
	if n.kind == history.NestedWorkflow {
		op, name, attrs = opWorkflow, n.name, []attribute.KeyValue{str(attrWorkflow, n.name)}
	}
	s := span{
		id: nestedSpanID(thread, f.call), name: op + " " + name, from: n.began, to: f.at,
		attrs: append(append(o.agentAttrs(thread, op, n.work), attrs...), str(attrCall, f.call), str(attrOutcome, string(f.outcome))),
	}
	if f.outcome != OK {
		s.failed = string(f.outcome)
	}
	o.past(o.within(o.rootOf(thread, f.turn.first), thread, n.scope), s)
}

func (o *Observer) agentAttrs(thread chat.ThreadID, op string, w tally) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		str(attrOperation, op), str(attrProvider, o.cfg.Provider), str(attrConversation, string(thread)),
		attribute.Int(attrIn, w.in), attribute.Int(attrOut, w.out), attribute.Int(attrReplies, w.replies), attribute.Int(attrToolCalls, w.tools),
	}
	if w.cost > 0 {
		attrs = append(attrs, attribute.Float64(attrCost, w.cost))
	}
	return attrs
}

func (o *Observer) toolAttrs(thread chat.ThreadID, id, name string) []attribute.KeyValue {
	return []attribute.KeyValue{
		str(attrOperation, opTool), str(attrConversation, string(thread)),
		str(attrTool, name), str(attrToolType, "function"), str(attrCall, id),
	}
}
