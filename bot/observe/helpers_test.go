package observe

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
)

const thread = "slack:T1:C1:1700000000.0001"

// at is a time of the transcripts in these tests: whole seconds after their beginning.
func at(seconds int) time.Time {
	return time.Date(2026, 5, 1, 12, 0, seconds, 0, time.UTC)
}

// script makes entries in order, with numbers from first on, one second apart.
func script(first uint64, entries ...history.Entry) []history.Entry {
	for i := range entries {
		entries[i].Seq = first + uint64(i)
		if entries[i].At.IsZero() {
			entries[i].At = at(int(entries[i].Seq))
		}
	}
	return entries
}

func says(text string) history.Entry {
	return history.Entry{Kind: history.KindMessage, Message: &history.Message{Text: text}}
}

func reply(calls ...llm.Call) history.Entry {
	return history.Entry{Kind: history.KindReply, Reply: &history.Reply{Text: "canary-text", Calls: calls, Usage: llm.Usage{In: 100, Out: 10}}}
}

func calls(id, name string) llm.Call {
	return llm.Call{ID: id, Name: name, Args: `{"command":"canary-args"}`}
}

func asks(call, id string) history.Entry {
	return history.Entry{Kind: history.KindAsk, Ask: &history.Ask{Call: call, Approval: approvals.ID(id)}}
}

func decides(call, id string, s approvals.State) history.Entry {
	return history.Entry{Kind: history.KindDecision, Decision: &history.Decision{Call: call, Approval: approvals.ID(id), State: s, ByName: "canary-person"}}
}

func edits(call, id string) history.Entry {
	return history.Entry{Kind: history.KindEdited, Edited: &history.Edited{Call: call, Approval: approvals.ID(id), Text: "canary-edit"}}
}

func intends(call string) history.Entry {
	return history.Entry{Kind: history.KindIntent, Intent: &history.Intent{Call: call}}
}

func result(call, tool string) history.Entry {
	return history.Entry{Kind: history.KindResult, Result: &history.Result{Call: call, Tool: tool, Text: "canary-result"}}
}

func ends(r history.EndReason) history.Entry {
	return history.Entry{Kind: history.KindEnd, End: &history.End{Reason: r, Text: "canary-end"}}
}

func begins(call, name string, kind history.NestedKind) history.Entry {
	return history.Entry{Kind: history.KindBegin, Begin: &history.Begin{Call: call, Name: name, Kind: kind, Task: "canary-task"}}
}

func in(scope string, e history.Entry) history.Entry {
	e.Scope = scope
	return e
}

// observer returns one whose spans are kept in memory.
func observer(t testing.TB, cfg Config) (*Observer, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	p, err := provider(t.Context(), cfg, kept, sdktrace.NewSimpleSpanProcessor)
	if err != nil {
		t.Fatal(err)
	}
	o, err := build(cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	return o, kept
}

func feed(o *Observer, entries []history.Entry) { o.Appended(context.Background(), thread, entries) }

// named returns the one span of a name.
func named(t testing.TB, kept *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	var names []string
	for _, s := range kept.GetSpans() {
		if s.Name == name {
			return s
		}
		names = append(names, s.Name)
	}
	t.Fatalf("there is no span %q, only %q", name, names)
	return tracetest.SpanStub{}
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return "(none)"
}

// everything is all that a span says, as text.
func everything(s tracetest.SpanStub) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Name, s.Status, s.Resource)
	for _, a := range s.Attributes {
		fmt.Fprintln(&b, a.Key, a.Value.String())
	}
	for _, e := range s.Events {
		fmt.Fprintln(&b, e.Name, e.Attributes)
	}
	return b.String()
}

// sample is the value of a metric with exactly these labels ("a=b"): of a counter or
// gauge, or how often a histogram was told something. -1 means that there is none.
func sample(t testing.TB, o *Observer, name string, labels ...string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := o.Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if !same(m.GetLabel(), labels) {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

func same(have []*dto.LabelPair, want []string) bool {
	if len(have) != len(want) {
		return false
	}
	for _, l := range have {
		found := false
		for _, w := range want {
			found = found || w == l.GetName()+"="+l.GetValue()
		}
		if !found {
			return false
		}
	}
	return true
}
