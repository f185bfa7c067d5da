// Package openai is an [llm.Model] over the Chat Completions API of OpenAI and
// of the many servers that speak it: streaming, parallel tool calls, retries.
//
// The protocol's client is go-openai. A shim under it (shim.go, sse.go) removes
// what that client stumbles over on the wire; the pieces of a reply are put
// together here (assemble.go), and a failure becomes one sentence for people
// (failure.go). A reply is returned only when the server said that it is
// complete, so the calls of a stream that was cut never run.
//
// It does not speak the Responses API, keeps no history, runs no tools, and
// logs neither keys nor what is said.
package openai

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// Config names the server and bounds the patience with it. The zero value of
// every field but Model is usable.
type Config struct {
	APIKey string // sent as a bearer token; empty for servers without keys
	// BaseURL is the address of the API up to and with its version, default
	// https://api.openai.com/v1. A query ("?api-version=...") goes with every
	// request.
	BaseURL string
	Model   string // required
	// API is "auto" (the default; Chat Completions today) or "chat".
	API string
	// Headers are sent with every request and win over the client's own.
	Headers map[string]string
	// HTTPClient sends the requests; the default follows no redirects, because
	// a redirected POST loses its body or takes the key elsewhere.
	HTTPClient *http.Client

	MaxAttempts      int           // of one reply, default 4
	TotalRetry       time.Duration // no attempt starts later than this after the first failure, default 90s
	FirstByteTimeout time.Duration // silence before the first byte of a reply, default 120s
	IdleTimeout      time.Duration // silence within a reply, default 60s
	MaxReplyBytes    int64         // of one reply on the wire, with its framing, default 32 MiB

	// Sleep waits before another attempt, default a timer. It returns ctx's
	// error when ctx ends first.
	Sleep func(ctx context.Context, d time.Duration) error
	// Jitter gives the share, in [0,1), of a backoff that is waited, default
	// random.
	Jitter func() float64
	Log    *slog.Logger // default: none
}

const (
	defaultBaseURL  = "https://api.openai.com/v1"
	defaultAttempts = 4
	defaultTotal    = 90 * time.Second
	defaultFirst    = 120 * time.Second
	defaultIdle     = 60 * time.Second
	defaultMax      = 32 << 20

	// finishGrace is how long the rest of a stream (usage, [DONE]) is awaited
	// once the reply itself is complete.
	finishGrace = 5 * time.Second
	// chatterLimit bounds a stream of nothing but keep-alive comments.
	chatterLimit = 10 * time.Minute
)

// Client is a model behind an OpenAI-compatible server. It is safe for
// concurrent use.
type Client struct {
	cfg  Config
	api  *goopenai.Client
	host string // for sentences
}

var _ llm.Model = (*Client)(nil)

// New makes a client. It sends nothing. Its errors are sentences that name the
// setting to mend.
func New(cfg Config) (*Client, error) {
	switch cfg.API {
	case "", "auto", "chat":
	case "responses":
		return nil, errors.New("the Responses API is not available yet; set COUNTERSIGN_MODEL_API to auto or chat")
	default:
		return nil, fmt.Errorf("COUNTERSIGN_MODEL_API is %q; set it to auto or chat", cfg.API)
	}
	if cfg.Model = strings.TrimSpace(cfg.Model); cfg.Model == "" {
		return nil, errors.New("OPENAI_MODEL is not set; set it to the name of a model that can call tools")
	}
	if cfg.APIKey = strings.TrimSpace(cfg.APIKey); !headerValue(cfg.APIKey) {
		return nil, errors.New("OPENAI_API_KEY holds a line break or another control character; set it to the key alone")
	}
	base, query, err := parseBase(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	for k, v := range cfg.Headers {
		if !headerName(k) || !headerValue(v) {
			return nil, fmt.Errorf("COUNTERSIGN_MODEL_HEADERS has a header %q that cannot be sent; use letters, digits and dashes in its name and one line as its value", k)
		}
	}
	defaults(&cfg)
	c := &Client{cfg: cfg, host: base.Host}
	conf := goopenai.DefaultConfig(cfg.APIKey)
	conf.BaseURL = base.String()
	conf.EmptyMessagesLimit = math.MaxUint32
	conf.HTTPClient = &shim{client: cfg.HTTPClient, headers: cfg.Headers, query: query, max: cfg.MaxReplyBytes}
	c.api = goopenai.NewClientWithConfig(conf)
	return c, nil
}

func defaults(cfg *Config) {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if cfg.MaxAttempts <= 0 {
		cfg.MaxAttempts = defaultAttempts
	}
	if cfg.TotalRetry <= 0 {
		cfg.TotalRetry = defaultTotal
	}
	if cfg.FirstByteTimeout <= 0 {
		cfg.FirstByteTimeout = defaultFirst
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = defaultIdle
	}
	if cfg.MaxReplyBytes <= 0 {
		cfg.MaxReplyBytes = defaultMax
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

// parseBase checks the address of the API and takes its query off.
func parseBase(s string) (*url.URL, string, error) {
	if s = strings.TrimSpace(s); s == "" {
		s = defaultBaseURL
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, "", errors.New("OPENAI_BASE_URL is no http or https address; write it like http://127.0.0.1:11434/v1")
	}
	query := u.RawQuery
	u.RawQuery, u.Fragment = "", ""
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions")
	return u, query, nil
}

func headerName(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func headerValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Reply implements [llm.Model]. When ctx ends, its error comes back as it is.
func (c *Client) Reply(ctx context.Context, r llm.Request, show func(llm.Delta)) (llm.Reply, error) {
	if show == nil {
		show = func(llm.Delta) {}
	}
	req, metas, err := request(c.cfg.Model, r)
	if err != nil {
		return llm.Reply{}, err
	}
	var retryUntil time.Time
	for attempt := 1; ; attempt++ {
		started := time.Now()
		reply, err := c.attempt(ctx, req, metas, show)
		if err == nil {
			reply.Calls = llm.UniqueCallIDs(r, reply.Calls)
			c.cfg.Log.DebugContext(ctx, "the model replied", "thread", r.Thread, "attempt", attempt, "duration", time.Since(started),
				"finish", reply.Finish, "calls", len(reply.Calls), "tokens_in", reply.Usage.In, "tokens_out", reply.Usage.Out)
			return reply, nil
		}
		if ctx.Err() != nil {
			return llm.Reply{}, ctx.Err()
		}
		f := classify(err, c.about())
		if attempt == 1 {
			retryUntil = time.Now().Add(c.cfg.TotalRetry)
		}
		wait := backoff(attempt, c.cfg.Jitter())
		if f.wait > 0 {
			wait = f.wait
		}
		if !f.retry || attempt >= c.cfg.MaxAttempts || wait > longestWait || time.Now().Add(wait).After(retryUntil) {
			return llm.Reply{}, f.final(attempt)
		}
		c.cfg.Log.WarnContext(ctx, "the model failed; trying again", "thread", r.Thread, "attempt", attempt, "status", f.status, "wait", wait, "error", f.cause)
		show(llm.Delta{Reset: true, Note: fmt.Sprintf("%s; trying again in %s (attempt %d of %d)", f.short, seconds(wait), attempt+1, c.cfg.MaxAttempts)})
		if err := c.cfg.Sleep(ctx, wait); err != nil {
			return llm.Reply{}, err
		}
	}
}

// about is what sentences say of the server.
func (c *Client) about() about {
	return about{host: c.host, model: c.cfg.Model, key: c.cfg.APIKey}
}

// errSilent is the cause of a context that ends because the server said
// nothing for too long.
var errSilent = errors.New("silence")

// attempt asks once.
func (c *Client) attempt(ctx context.Context, req goopenai.ChatCompletionRequest, metas metas, show func(llm.Delta)) (llm.Reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &wire{idle: c.cfg.IdleTimeout, metas: metas}
	w.timer = time.AfterFunc(c.cfg.FirstByteTimeout, func() { cancel(errSilent) })
	defer w.timer.Stop()

	var a assembler
	stream, err := c.api.CreateChatCompletionStream(context.WithValue(ctx, wireKey{}, w), req)
	if err == nil {
		defer func() { _ = stream.Close() }() // the reply is in, or the error that counts is
		err = c.receive(stream, w, &a, show)
	}
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return a.reply(w.done, err)
}

// receive reads the stream to its end. A nil error is a clean end of the
// connection, which may still be too early.
func (c *Client) receive(stream *goopenai.ChatCompletionStream, w *wire, a *assembler, show func(llm.Delta)) error {
	for {
		raw, err := stream.RecvRaw()
		if err != nil {
			return streamEnd(err)
		}
		text, err := a.add(raw)
		if err != nil {
			return err
		}
		if text != "" {
			show(llm.Delta{Text: text})
		}
		if a.finished() {
			w.finishing()
		}
	}
}

// sleep waits for d or until ctx ends.
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
