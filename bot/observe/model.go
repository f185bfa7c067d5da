package observe

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"countersign/adapters/chat"
	"countersign/agent/llm"
)

// How model calls end: the label outcome of gen_ai_client_operation_duration_seconds.
const (
	modelOK           = "ok"
	modelStopped      = "stopped" // by a person, or by the end of the program
	modelTimeout      = "timeout"
	modelTooLong      = "too_long"     // the conversation does not fit
	modelLimited      = "rate_limited" // 429
	modelUnauthorized = "unauthorized" // 401, 403
	modelRefused      = "refused"      // any other 4xx
	modelServer       = "server_error" // 5xx
	modelSilent       = "no_answer"    // no status at all: unreachable, broken off, garbled
	modelOther        = "other"
)

// Model returns next, measured: each call is a span below the span in the context that it
// is given or, where there is none, below the thread's open turn. It passes everything on
// unchanged. A call with all its retries is one operation, as the conventions want.
func (o *Observer) Model(next llm.Model) llm.Model { return &measured{o: o, next: next} }

type measured struct {
	o    *Observer
	next llm.Model
}

// Reply implements llm.Model.
func (m *measured) Reply(ctx context.Context, r llm.Request, show func(llm.Delta)) (reply llm.Reply, err error) {
	w := &watch{began: time.Now(), show: show}
	model := r.Model
	if model == "" && len(m.o.cfg.Models) > 0 {
		model = m.o.cfg.Models[0]
	}
	ctx, live := m.o.startChat(ctx, r, model)
	w.live = live
	returned := false
	defer func() {
		w.over()
		if !returned { // it panics
			m.o.endChat(live, w, model, llm.Reply{}, modelOther, otherError)
			return
		}
		outcome, kind := failure(ctx, err)
		m.o.endChat(live, w, model, reply, outcome, kind)
	}()
	reply, err = m.next.Reply(ctx, r, w.delta)
	returned = true
	return reply, err
}

// watch looks at what streams.
type watch struct {
	began time.Time
	show  func(llm.Delta)
	live  trace.Span

	mu      sync.Mutex
	done    bool
	first   time.Duration // to the first text of the reply; 0 without one
	retries int
}

func (w *watch) delta(d llm.Delta) {
	w.mu.Lock()
	if !w.done {
		if d.Reset {
			// What counts is the reply that people get to keep.
			w.retries, w.first = w.retries+1, 0
			w.live.AddEvent(eventRetry)
		}
		if d.Text != "" && w.first == 0 {
			w.first = time.Since(w.began)
		}
	}
	w.mu.Unlock()
	if w.show != nil {
		w.show(d)
	}
}

func (w *watch) over() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
}

func (o *Observer) startChat(ctx context.Context, r llm.Request, model string) (context.Context, trace.Span) {
	if o.tracer == nil {
		return ctx, trace.SpanFromContext(context.Background()) // one that does nothing
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = o.Within(ctx, chat.ThreadID(r.Thread), "")
	}
	attrs := []attribute.KeyValue{
		str(attrOperation, opChat), str(attrProvider, o.cfg.Provider), str(attrRequestModel, model),
		str(attrConversation, r.Thread), attribute.Bool(attrStream, true),
	}
	if r.MaxOut > 0 {
		attrs = append(attrs, attribute.Int(attrMaxTokens, r.MaxOut))
	}
	if o.cfg.Content {
		attrs = append(attrs, attribute.String(attrInput, o.input(r.Items)))
	}
	return o.tracer.Start(ctx, strings.TrimSpace(opChat+" "+cut(model, maxName)), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

func (o *Observer) endChat(live trace.Span, w *watch, model string, reply llm.Reply, outcome, kind string) {
	took := time.Since(w.began)
	if reply.Model != "" {
		model = reply.Model
	}
	u := reply.Usage
	cost := u.Cost
	if cost == 0 && o.cfg.Price != nil {
		cost = o.cfg.Price(model, u)
	}
	o.metrics.modelCalled(model, outcome, took, w.first, w.retries, u, cost)
	if !live.IsRecording() {
		return
	}
	attrs := []attribute.KeyValue{attribute.Int(attrRetries, w.retries)}
	count := func(key string, n int) {
		if n > 0 {
			attrs = append(attrs, attribute.Int(key, n))
		}
	}
	count(attrIn, u.In)
	count(attrOut, u.Out)
	count(attrCached, u.Cached)
	count(attrReasoning, u.Reasoning)
	if cost > 0 {
		attrs = append(attrs, attribute.Float64(attrCost, cost))
	}
	if w.first > 0 {
		attrs = append(attrs, attribute.Float64(attrFirstChunk, w.first.Seconds()))
	}
	if outcome == modelOK {
		attrs = append(attrs, str(attrAnswerModel, model), attribute.StringSlice(attrFinish, []string{cut(string(reply.Finish), maxName)}))
		if o.cfg.Content {
			attrs = append(attrs, attribute.String(attrOutput, o.output(reply)))
		}
	}
	live.SetAttributes(attrs...)
	fail(live, kind)
	live.End()
}

// failure says how a model call ended: the label, and error.type for the span.
func failure(ctx context.Context, err error) (outcome, kind string) {
	if err == nil {
		return modelOK, ""
	}
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.DeadlineExceeded):
		return modelTimeout, modelTimeout
	case cause != nil:
		return modelStopped, modelStopped
	}
	e, ok := errors.AsType[*llm.Error](err)
	switch {
	case !ok:
		return modelOther, otherError
	case e.TooLong:
		return modelTooLong, modelTooLong
	case e.Status == 0:
		return modelSilent, modelSilent
	}
	kind = strconv.Itoa(e.Status)
	switch {
	case e.Status == 429:
		return modelLimited, kind
	case e.Status == 401 || e.Status == 403:
		return modelUnauthorized, kind
	case e.Status >= 400 && e.Status < 500:
		return modelRefused, kind
	case e.Status >= 500:
		return modelServer, kind
	}
	return modelOther, kind
}

// Bounds of content in spans.
const (
	maxPart  = 8 << 10 // bytes of one text
	maxItems = 16      // messages of one request
)

// message and part are of the form that the conventions give to content.
type message struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Response  string `json:"response,omitempty"`
}

// clean takes secrets out of a text before it cuts it: half a secret is not recognised.
func (o *Observer) clean(s string) string {
	return strings.ToValidUTF8(cut(o.cfg.Redact(s), maxPart), "\uFFFD")
}

func (o *Observer) calls(calls []llm.Call) []part {
	var parts []part
	for _, c := range calls {
		parts = append(parts, part{Type: "tool_call", ID: cut(c.ID, maxName), Name: cut(c.Name, maxName), Arguments: o.clean(c.Args)})
	}
	return parts
}

// input is what is new in a request: what came after the model's last reply, and that
// reply. The rest is in the spans before.
func (o *Observer) input(items []llm.Item) string {
	from := 0
	for i, it := range items {
		if it.Role == llm.Assistant {
			from = i
		}
	}
	items = items[max(from, len(items)-maxItems):]
	out := make([]message, 0, len(items))
	for _, it := range items {
		m := message{Role: string(it.Role)}
		switch it.Role {
		case llm.System:
			continue // the same in each request
		case llm.Tool:
			m.Parts = []part{{Type: "tool_call_response", ID: cut(it.CallID, maxName), Response: o.clean(it.Text)}}
		default:
			if it.Text != "" {
				m.Parts = []part{{Type: "text", Content: o.clean(it.Text)}}
			}
			m.Parts = append(m.Parts, o.calls(it.Calls)...)
		}
		out = append(out, m)
	}
	return encoded(out)
}

func (o *Observer) output(r llm.Reply) string {
	m := message{Role: string(llm.Assistant), Finish: string(r.Finish)}
	if r.Text != "" {
		m.Parts = []part{{Type: "text", Content: o.clean(r.Text)}}
	}
	m.Parts = append(m.Parts, o.calls(r.Calls)...)
	return encoded([]message{m})
}

func encoded(v []message) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // strings always encode
	}
	return string(raw)
}
