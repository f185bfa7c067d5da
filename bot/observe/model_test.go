package observe

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"countersign/agent/history"
	"countersign/agent/llm"
)

// replies answers at once, with itself.
type replies struct{ with llm.Reply }

func (r replies) Reply(context.Context, llm.Request, func(llm.Delta)) (llm.Reply, error) {
	return r.with, nil
}

// modelFunc is a model that is one function.
type modelFunc func(ctx context.Context, r llm.Request, show func(llm.Delta)) (llm.Reply, error)

func (f modelFunc) Reply(ctx context.Context, r llm.Request, show func(llm.Delta)) (llm.Reply, error) {
	return f(ctx, r, show)
}

func pass(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func TestAModelCallIsASpanBelowItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, kept := observer(t, Config{Models: []string{"m-1", "m-2"}, Provider: "acme"})
		feed(o, script(0, says("x")))
		var shown []llm.Delta
		model := o.Model(modelFunc(func(ctx context.Context, _ llm.Request, show func(llm.Delta)) (llm.Reply, error) {
			pass(ctx, time.Second)
			show(llm.Delta{Text: "half of a"})
			pass(ctx, time.Second)
			show(llm.Delta{Reset: true, Note: "trying again"})
			pass(ctx, 2*time.Second)
			show(llm.Delta{Text: "hello"})
			show(llm.Delta{Text: "!"})
			pass(ctx, time.Second)
			return llm.Reply{
				Text: "hello!", Finish: llm.FinishStop, Model: "m-2",
				Usage: llm.Usage{In: 1000, Out: 50, Cached: 800, Reasoning: 20, Cost: 0.25},
			}, nil
		}))
		got, err := model.Reply(t.Context(), llm.Request{Thread: thread, MaxOut: 99}, func(d llm.Delta) { shown = append(shown, d) })
		if err != nil || got.Text != "hello!" || len(shown) != 4 || !shown[1].Reset {
			t.Errorf("it does not pass on what it is told: %v %v %v", got, err, shown)
		}
		s := named(t, kept, "chat m-1")
		for k, v := range map[string]string{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "acme", "gen_ai.request.model": "m-1", "gen_ai.response.model": "m-2",
			"gen_ai.request.max_tokens": "99", "gen_ai.request.stream": "true", "gen_ai.response.finish_reasons": `["stop"]`,
			"gen_ai.conversation.id": thread, "gen_ai.usage.input_tokens": "1000", "gen_ai.usage.output_tokens": "50",
			"gen_ai.usage.cache_read.input_tokens": "800", "gen_ai.usage.reasoning.output_tokens": "20",
			"gen_ai.response.time_to_first_chunk": "4", "countersign.retries": "1", "countersign.cost_usd": "0.25",
		} {
			if got := attr(s, k); got != v {
				t.Errorf("%s is %s, want %s", k, got, v)
			}
		}
		if s.Parent.SpanID() != turnSpanID(thread, 0) || s.SpanContext.TraceID() != o.traceID(thread, 0) {
			t.Error("it is not below its turn")
		}
		if s.SpanKind != trace.SpanKindClient || s.EndTime.Sub(s.StartTime) != 5*time.Second || len(s.Events) != 1 {
			t.Errorf("kind %v, %v long, %d events", s.SpanKind, s.EndTime.Sub(s.StartTime), len(s.Events))
		}
		for _, tt := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"gen_ai_client_token_usage_total", []string{"type=input", "model=m-2"}, 1000},
			{"gen_ai_client_token_usage_total", []string{"type=output", "model=m-2"}, 50},
			{"gen_ai_client_token_usage_total", []string{"type=cached", "model=m-2"}, 800},
			{"gen_ai_client_token_usage_total", []string{"type=reasoning", "model=m-2"}, 20},
			{"gen_ai_client_operation_duration_seconds", []string{"model=m-2", "outcome=ok"}, 1},
			{"gen_ai_client_operation_time_to_first_chunk_seconds", []string{"model=m-2"}, 1},
			{"countersign_model_retries_total", []string{"model=m-2"}, 1},
			{"countersign_model_retries_total", []string{"model=m-1"}, 0},
			{"countersign_model_cost_usd_total", []string{"model=m-2"}, 0.25},
		} {
			if got := sample(t, o, tt.name, tt.labels...); got != tt.want {
				t.Errorf("%s%v is %v, want %v", tt.name, tt.labels, got, tt.want)
			}
		}
	})
}

func TestAModelCallBelowASpanOfItsContextStaysThere(t *testing.T) {
	o, kept := observer(t, Config{Models: []string{"m"}})
	feed(o, script(0, says("x"), reply(calls("c1", "ask_agent")), begins("c1", "a1", history.NestedAgent)))
	model := o.Model(replies{})
	if _, err := model.Reply(o.Within(t.Context(), thread, "c1"), llm.Request{Thread: thread}, nil); err != nil {
		t.Fatal(err)
	}
	if s := named(t, kept, "chat m"); s.Parent.SpanID() != nestedSpanID(thread, "c1") {
		t.Error("a call of a sub-agent is not below the sub-agent")
	}
	kept.Reset()
	ctx, end := o.Tool(t.Context(), thread, calls("c1", "ask_agent"))
	if _, err := model.Reply(ctx, llm.Request{Thread: thread}, nil); err != nil {
		t.Fatal(err)
	}
	end(OK, "")
	if s := named(t, kept, "chat m"); s.Parent.SpanID() != named(t, kept, "execute_tool ask_agent").SpanContext.SpanID() {
		t.Error("a call of a tool is not below the tool")
	}
}

func TestHowAModelCallFails(t *testing.T) {
	tests := []struct {
		rule          string
		err           error
		outcome, kind string
	}{
		{"429 is a limit", &llm.Error{Status: 429}, "rate_limited", "429"},
		{"401 is no right", &llm.Error{Status: 401}, "unauthorized", "401"},
		{"404 is refused", &llm.Error{Status: 404}, "refused", "404"},
		{"503 is the server's", &llm.Error{Status: 503}, "server_error", "503"},
		{"too long counts before its status", &llm.Error{Status: 400, TooLong: true}, "too_long", "too_long"},
		{"no status is no answer", &llm.Error{Sentence: "canary-sentence"}, "no_answer", "no_answer"},
		{"an error inside another one", errors.Join(errors.New("x"), &llm.Error{Status: 500}), "server_error", "500"},
		{"anything else", errors.New("canary-error"), "other", "_OTHER"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			o, kept := observer(t, Config{Models: []string{"m"}})
			model := o.Model(modelFunc(func(context.Context, llm.Request, func(llm.Delta)) (llm.Reply, error) { return llm.Reply{}, tt.err }))
			if _, err := model.Reply(t.Context(), llm.Request{Thread: thread}, nil); !errors.Is(err, tt.err) {
				t.Errorf("it returns %v", err)
			}
			s := named(t, kept, "chat m")
			if attr(s, "error.type") != tt.kind || s.Status.Code != codes.Error {
				t.Errorf("error.type is %s, status %v", attr(s, "error.type"), s.Status)
			}
			if strings.Contains(everything(s), "canary") {
				t.Error("the text of the error is in the span")
			}
			if got := sample(t, o, "gen_ai_client_operation_duration_seconds", "model=m", "outcome="+tt.outcome); got != 1 {
				t.Errorf("the histogram has %v of %s", got, tt.outcome)
			}
		})
	}
}

func TestAModelCallThatIsStopped(t *testing.T) {
	for _, tt := range []struct {
		rule, outcome string
		ctx           func(context.Context) (context.Context, context.CancelFunc)
	}{
		{"by a person", "stopped", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}},
		{"by its deadline", "timeout", func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, -1) }},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			o, _ := observer(t, Config{Models: []string{"m"}})
			ctx, cancel := tt.ctx(t.Context())
			defer cancel()
			model := o.Model(modelFunc(func(ctx context.Context, _ llm.Request, _ func(llm.Delta)) (llm.Reply, error) {
				return llm.Reply{}, &llm.Error{Cause: ctx.Err()}
			}))
			_, _ = model.Reply(ctx, llm.Request{Thread: thread}, nil)
			if got := sample(t, o, "gen_ai_client_operation_duration_seconds", "model=m", "outcome="+tt.outcome); got != 1 {
				t.Errorf("the histogram has %v of it", got)
			}
		})
	}
}

func TestAModelThatPanicsIsMeasuredAndPanics(t *testing.T) {
	o, kept := observer(t, Config{Models: []string{"m"}})
	func() {
		defer func() {
			if p := recover(); p != "canary-panic" {
				t.Errorf("the panic became %v", p)
			}
		}()
		_, _ = o.Model(modelFunc(func(context.Context, llm.Request, func(llm.Delta)) (llm.Reply, error) { panic("canary-panic") })).Reply(t.Context(), llm.Request{}, nil)
	}()
	if s := named(t, kept, "chat m"); s.Status.Code != codes.Error || strings.Contains(everything(s), "canary") {
		t.Errorf("the span is %s", everything(s))
	}
}

func TestAModelThatIsNotConfiguredIsOther(t *testing.T) {
	o, _ := observer(t, Config{Models: []string{"m"}, Price: func(string, llm.Usage) float64 { return 0.5 }})
	_, _ = o.Model(replies{llm.Reply{Model: "m-of-a-user", Usage: llm.Usage{In: 1}}}).Reply(t.Context(), llm.Request{}, nil)
	if got := sample(t, o, "gen_ai_client_operation_duration_seconds", "model=other", "outcome=ok"); got != 1 {
		t.Errorf("the histogram has %v of it", got)
	}
	if got := sample(t, o, "countersign_model_cost_usd_total", "model=other"); got != 0.5 {
		t.Errorf("the price table gives %v", got)
	}
}

func TestContentIsInSpansOnlyWhenAskedForAndRedacted(t *testing.T) {
	redact := func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
	ask := func(t *testing.T, cfg Config) *tracetest.InMemoryExporter {
		t.Helper()
		o, kept := observer(t, cfg)
		feed(o, script(0, says("x"), reply(calls("c1", "run_shell"))))
		model := o.Model(replies{llm.Reply{Text: "the password is hunter2", Finish: llm.FinishCalls, Calls: []llm.Call{{ID: "c2", Name: "run_shell", Args: `{"command":"login hunter2"}`}}}})
		_, err := model.Reply(t.Context(), llm.Request{Thread: thread, Items: []llm.Item{
			{Role: llm.System, Text: "the prompt"}, {Role: llm.User, Text: "long ago"},
			{Role: llm.Assistant, Calls: []llm.Call{{ID: "c1", Name: "run_shell", Args: "{}"}}}, {Role: llm.Tool, CallID: "c1", Text: strings.Repeat("a", maxPart-4) + "hunter2"}, {Role: llm.User, Text: "now hunter2"},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, end := o.Tool(t.Context(), thread, llm.Call{ID: "c1", Name: "run_shell", Args: `{"command":"login hunter2"}`})
		end(OK, "hunter2 works")
		return kept
	}
	kept := ask(t, Config{Models: []string{"m"}, Content: true, Redact: redact})
	chat, tool := named(t, kept, "chat m"), named(t, kept, "execute_tool run_shell")
	for _, text := range []string{everything(chat), everything(tool)} {
		if strings.Contains(text, "hunt") || !strings.Contains(text, "[redacted]") {
			t.Errorf("a secret is in a span:\n%s", text)
		}
	}
	var input, output []message
	if err := errors.Join(json.Unmarshal([]byte(attr(chat, attrInput)), &input), json.Unmarshal([]byte(attr(chat, attrOutput)), &output)); err != nil {
		t.Fatal(err)
	}
	if len(input) != 3 || input[0].Role != "assistant" || input[1].Parts[0].Type != "tool_call_response" || input[2].Parts[0].Content != "now [redacted]" {
		t.Errorf("the input is %+v", input)
	}
	if len(output) != 1 || output[0].Finish != "tool_calls" || output[0].Parts[1].Arguments != `{"command":"login [redacted]"}` {
		t.Errorf("the output is %+v", output)
	}
	if attr(tool, attrArguments) != `{"command":"login [redacted]"}` || attr(tool, attrResult) != "[redacted] works" {
		t.Errorf("the tool says %s and %s", attr(tool, attrArguments), attr(tool, attrResult))
	}
	for _, s := range ask(t, Config{Models: []string{"m"}, Redact: redact}).GetSpans() {
		if strings.Contains(everything(s), "login") {
			t.Errorf("content is in a span that nobody asked for:\n%s", everything(s))
		}
	}
	if _, err := New(t.Context(), Config{Content: true}); err == nil {
		t.Error("content without a redactor is accepted")
	}
}

func TestTheEnvironmentSwitchesContentOn(t *testing.T) {
	for value, want := range map[string]bool{"": false, "false": false, "no_content": false, "event_only": false, "true": true, "SPAN_ONLY": true, "span_and_event": true} {
		t.Setenv(envContent, value)
		o, err := New(t.Context(), Config{Redact: strings.ToUpper})
		if err != nil || o.cfg.Content != want {
			t.Errorf("%q: content is %v (%v)", value, o.cfg.Content, err)
		}
	}
}

func TestAToolRunIsASpanBelowItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, kept := observer(t, Config{KnownTool: func(s string) bool { return s == "run_shell" }})
		feed(o, script(0, says("x"), reply(calls("c1", "run_shell"))))
		_, end := o.Tool(t.Context(), thread, calls("c1", "run_shell"))
		pass(t.Context(), 3*time.Second)
		end(Failed, "")
		end(OK, "") // counts no more
		s := named(t, kept, "execute_tool run_shell")
		if s.Parent.SpanID() != turnSpanID(thread, 0) || s.EndTime.Sub(s.StartTime) != 3*time.Second || s.Status.Code != codes.Error {
			t.Errorf("parent %v, %v long, status %v", s.Parent.SpanID(), s.EndTime.Sub(s.StartTime), s.Status)
		}
		for k, v := range map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run_shell", "gen_ai.tool.call.id": "c1", "gen_ai.tool.type": "function", "error.type": "failed"} {
			if got := attr(s, k); got != v {
				t.Errorf("%s is %s, want %s", k, got, v)
			}
		}
		if len(kept.GetSpans()) != 1 || sample(t, o, "countersign_tool_duration_seconds", "tool=run_shell", "outcome=failed") != 1 {
			t.Error("a run counts once")
		}
	})
}
