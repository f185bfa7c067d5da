package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"countersign/config"

	"countersign/agent/llm"
	"countersign/agent/llm/openai"
)

// modelChecks ask the model, and each that stands in for it, for one tool call.
func (d *doctor) modelChecks(e config.Env, f config.File) []check {
	list := []check{{name: "model", limit: modelLimit, run: func(ctx context.Context) result { return d.answers(ctx, e, f, e.OpenAIModel) }}}
	if e.OpenAIKey == "" && e.OpenAIBaseURL == "" {
		return list
	}
	for _, name := range f.Model.Fallback {
		list = append(list, check{name: "model fallback " + name, limit: modelLimit, run: func(ctx context.Context) result { return d.answers(ctx, e, f, name) }})
	}
	return list
}

// pingLimit bounds what is paid for the question, in tokens. A model that reasons
// needs some before it calls the tool.
const pingLimit = 1000

// answers asks one model for one tool call, in as few tokens as that takes.
func (d *doctor) answers(ctx context.Context, e config.Env, f config.File, name string) result {
	if e.OpenAIKey == "" && e.OpenAIBaseURL == "" {
		return fails("no model is configured").withFix("set OPENAI_API_KEY and OPENAI_MODEL, or OPENAI_BASE_URL for a server of your own")
	}
	m, err := openai.New(openai.Config{
		APIKey: string(e.OpenAIKey), BaseURL: e.OpenAIBaseURL, Model: name, API: e.ModelAPI, Headers: e.ModelHeaders, MaxAttempts: 1,
		// As the client's own, which follows no redirect: it could carry the headers elsewhere.
		HTTPClient: &http.Client{
			Transport:     d.clocks.wrap(http.DefaultTransport),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return fromSentence("FAIL", err.Error(), "set OPENAI_API_KEY and OPENAI_MODEL")
	}
	start := time.Now()
	reply, err := m.Reply(ctx, llm.Request{
		Thread: "doctor", MaxOut: pingLimit,
		Items: []llm.Item{{Role: llm.User, Text: "Call the tool ping."}},
		Tools: []llm.ToolSpec{{Name: "ping", Description: "Connection check.", Schema: json.RawMessage(`{"type":"object","properties":{}}`)}},
	}, nil)
	took := time.Since(start).Round(10 * time.Millisecond)
	if name == "" {
		name = "the model"
	}
	if err != nil {
		const look = "check OPENAI_BASE_URL and the network"
		if le, ok := errors.AsType[*llm.Error](err); ok {
			return fromSentence("FAIL", strings.TrimSuffix(le.Sentence, "."), look)
		}
		return fails("%s does not answer (%v)", name, err).withFix(look)
	}
	cost, unpriced := costOf(f, name, reply.Usage)
	switch {
	case len(reply.Calls) == 0:
		return fails("%s answers (%s; %s) and does not call tools, which it has to", name, took, cost).
			withFix("set OPENAI_MODEL (or model.fallback) to one that does, or switch tool calling on in the server")
	case reply.Calls[0].Name != "ping" || !json.Valid([]byte(reply.Calls[0].Args)):
		return warns("%s calls tools badly: it was asked for ping and wrote %.40q (%s)", name, reply.Calls[0].Name,
			cost).withFix("use a larger model, or look at the server's template for tools")
	case unpriced:
		return warns("%s called a tool after %s (%s), and has no price, so no cap in dollars counts it", name, took, cost).withFix("add it under prices")
	}
	return fine("%s called a tool after %s (%s)", name, took, cost)
}

// costOf says what a reply took. unpriced is true where others have prices and this
// model has none.
func costOf(f config.File, name string, u llm.Usage) (said string, unpriced bool) {
	said = "it did not say how many tokens that took"
	if u.In+u.Out > 0 {
		said = fmt.Sprintf("%d tokens in, %d out", u.In, u.Out)
	}
	if len(f.Prices) == 0 {
		return said, false
	}
	c := f.Prices.Charge(name, u)
	if c.Money > 0 {
		said += fmt.Sprintf(", $%.6f", float64(c.Money)/1e6)
	}
	return said, c.Unpriced != ""
}
