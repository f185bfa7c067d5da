// Package openai is an llm.Model over any server that speaks OpenAI's Chat
// Completions API or its Responses API, with streaming. It makes up for what
// such servers do differently: truncated streams, errors in the middle, missing
// or repeated call ids, arguments in pieces or as objects, parameters by other
// names, and overload; and it asks other models when one does not answer.
//
// It does not run tools or keep history, nor lets the server keep it, and it
// never logs a key, a header value or the body of a request or an answer.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

const (
	defaultBaseURL = "https://api.openai.com/v1"
	// longestWait is the longest wait that a server may ask for and get; who
	// asks for more is told to people instead.
	longestWait = time.Minute
	// afterFinish is how long the usage may take once the reply is complete.
	afterFinish = 5 * time.Second
	// chatter is how long a server may send keep-alives and nothing else.
	chatter = 10 * time.Minute
)

// Doer sends HTTP requests. It must honour the context of the request, like
// *http.Client, and be safe for concurrent use.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Config configures a [Client]. The zero value of an optional field means the
// default that is named beside it.
type Config struct {
	APIKey string // OPENAI_API_KEY; may be empty for servers that want none
	// RenewKey returns the key as it is now; it is asked when the server refuses the one from before. Default is none.
	RenewKey func() string
	// BaseURL is OPENAI_BASE_URL; default https://api.openai.com/v1. Azure's are
	// https://NAME.openai.azure.com/openai/v1 and
	// https://NAME.openai.azure.com/openai/deployments/DEPLOYMENT?api-version=VERSION;
	// the key goes as api-key there.
	BaseURL string
	Model   string // OPENAI_MODEL; needed for api.openai.com
	// Fallback are models of the same server, asked in this order when the one
	// before does not answer: overload, a server's error or silence after all
	// retries, or a model that is not there. A model that did not answer is asked
	// last for the next two minutes. For a classic address of Azure they are the
	// names of deployments.
	Fallback []string
	// API is the one that is spoken: "chat" (Chat Completions), "responses", or
	// "auto" (default), which is responses for gpt-6 models at api.openai.com and
	// for a model whose server said that it must be, and chat otherwise.
	API string
	// Headers go with every request, over the ones of this package.
	Headers map[string]string
	// HTTPClient sends the requests; default is a client without redirects.
	HTTPClient Doer

	MaxAttempts int // default 4; 1 means no retry
	// TotalRetry bounds the time that retries may add: waits between attempts
	// and attempts in which nothing came back; default 90s.
	TotalRetry time.Duration
	FirstByte  time.Duration // silence before the answer begins; default 120s
	Idle       time.Duration // silence within an answer, also of keep-alives; default 60s

	Log *slog.Logger // default: none

	// Sleep waits between attempts and returns the context's error when that
	// ends first; default is a timer.
	Sleep func(context.Context, time.Duration) error
	// Jitter picks a wait of at most its argument; default is uniformly random.
	Jitter func(time.Duration) time.Duration
}

// Client is an llm.Model. It is safe for concurrent use.
type Client struct {
	cfg  Config
	at   *endpoint
	key  *apiKey
	api  *goopenai.Client
	want habits
	left leftOut
	rest rests
}

var _ llm.Model = (*Client)(nil)

// New returns a client; it does not talk to the server. Its errors are
// sentences for the person who configures the bot.
func New(cfg Config) (*Client, error) {
	cfg.BaseURL = strings.TrimSpace(cfg.BaseURL)
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	at, err := endpointOf(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	cfg.APIKey, cfg.Model = strings.TrimSpace(cfg.APIKey), strings.TrimSpace(cfg.Model)
	if cfg.Model == "" {
		cfg.Model = at.deployment
	}
	at.configured = cfg.Model
	if at.brand == openAI {
		switch {
		case cfg.APIKey == "":
			return nil, errors.New("OPENAI_API_KEY is not set")
		case cfg.Model == "":
			return nil, errors.New("OPENAI_MODEL is not set")
		}
	}
	switch cfg.API {
	case "":
		cfg.API = "auto"
	case "auto", "chat", "responses":
	default:
		return nil, fmt.Errorf("the model API %q is not known; set COUNTERSIGN_MODEL_API to auto, chat or responses", cfg.API)
	}
	if !validHeaderValue(cfg.APIKey) {
		return nil, errors.New("OPENAI_API_KEY holds characters that no key has, such as a line break; set it again")
	}
	for k, v := range cfg.Headers {
		if !validHeaderName(k) || !validHeaderValue(v) {
			return nil, fmt.Errorf("the extra header %q has a name or value that HTTP does not allow; correct COUNTERSIGN_MODEL_HEADERS", k)
		}
	}
	cfg.defaults()
	c := &Client{cfg: cfg, at: at, key: &apiKey{value: cfg.APIKey, renew: cfg.RenewKey}}
	api := goopenai.DefaultConfig(cfg.APIKey)
	api.BaseURL = at.base
	api.HTTPClient = &shim{next: cfg.HTTPClient, at: at, key: c.key, headers: cfg.Headers}
	api.EmptyMessagesLimit = math.MaxUint32
	c.api = goopenai.NewClientWithConfig(api)
	return c, nil
}

// Models lists the models that a server offers, as it calls them. It needs neither a key nor a model, and its errors
// are those of [New] and [Client.Reply].
func Models(ctx context.Context, cfg Config) (names []string, err error) {
	cfg.APIKey, cfg.Model = cmp.Or(strings.TrimSpace(cfg.APIKey), "none"), "none"
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.at.base+"/models", nil)
	if err != nil {
		return nil, err
	}
	var raw []byte
	res, err := (&shim{next: c.cfg.HTTPClient, at: c.at, key: c.key, headers: c.cfg.Headers}).Do(req)
	if err == nil {
		raw, err = io.ReadAll(res.Body)
		err = errors.Join(err, res.Body.Close())
	}
	var list struct {
		Data []struct{ ID string }
	}
	if err == nil && json.Unmarshal(bytes.TrimPrefix(raw, []byte("data: ")), &list) != nil {
		err = &fault{kind: garbled}
	}
	if err != nil {
		f := c.faultOf(ctx, err)
		if f.status == http.StatusForbidden { // the key's fault: there is no model
			f.status = http.StatusUnauthorized
		}
		return nil, c.final(f, "", 1, nil)
	}
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// idleConns is how many connections are kept for the next request; the
// library's default of 2 makes a busy bot dial for nearly every one.
const idleConns = 64

func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = idleConns
	return t
}

func (cfg *Config) defaults() {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{
			Transport: transport(),
			// A redirect would carry the extra headers, which may hold keys, to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if cfg.MaxAttempts <= 0 {
		cfg.MaxAttempts = 4
	}
	if cfg.TotalRetry <= 0 {
		cfg.TotalRetry = 90 * time.Second
	}
	if cfg.FirstByte <= 0 {
		cfg.FirstByte = 120 * time.Second
	}
	if cfg.Idle <= 0 {
		cfg.Idle = 60 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration {
			return rand.N(most + 1) //nolint:gosec // spreads load, hides nothing
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

// Reply implements llm.Model. When ctx ends it returns at once, with an error
// that wraps the context's. show may be nil; it is called from this goroutine.
// When another model takes over, the text so far is reset and a note says so.
func (c *Client) Reply(ctx context.Context, r llm.Request, show func(llm.Delta)) (llm.Reply, error) {
	if show == nil {
		show = func(llm.Delta) {}
	}
	first := strings.TrimSpace(r.Model)
	if first == "" {
		first = c.cfg.Model
	}
	models := c.rest.order(append([]string{first}, c.cfg.Fallback...))
	if models[0] != first {
		show(llm.Delta{Note: first + " did not answer a moment ago; asking " + models[0] + "."})
	}
	for i, model := range models {
		reply, attempts, fault := c.askWithRetry(ctx, model, r, show)
		if fault == nil {
			reply.Model = model
			reply = repaired(reply, r.Tools)
			reply.Calls = uniqueIDs(r, reply.Calls)
			return reply, nil
		}
		if err := ctx.Err(); err != nil {
			return llm.Reply{}, stopped(err)
		}
		if i == len(models)-1 || !fault.elsewhere() {
			return llm.Reply{}, c.final(fault, model, attempts, models[:i])
		}
		c.rest.add(model)
		show(llm.Delta{Reset: true, Note: model + " does not answer; asking " + models[i+1] + " instead."})
	}
	return llm.Reply{}, stopped(ctx.Err()) // there is always one model
}

// askWithRetry asks one model until it answers or there is no point in going on. It
// returns how often it asked.
func (c *Client) askWithRetry(ctx context.Context, model string, r llm.Request, show func(llm.Delta)) (llm.Reply, int, *fault) {
	log := c.cfg.Log.With("host", c.at.host, "model", model)
	want := c.want.of(model)
	r.Tools = c.left.of(model, r.Tools)
	var (
		spent   time.Duration
		suspect []llm.ToolSpec // left out of this request, as the server may have refused them
		first   *fault         // that it was for
	)
	for attempt := 1; ; attempt++ {
		begun := time.Now()
		q := c.question(model, r, want)
		reply, heard, failed := c.attempt(ctx, model, q, show)
		if failed == nil && len(suspect) > 0 {
			c.left.add(model, suspect)
			log.WarnContext(ctx, "the model's server refuses tools, which are left out from now on", "tools", toolNames(suspect), "said", first.message)
			reply.Notice = sayLeftOut(c.at.host, suspect, first)
		}
		if failed == nil && isUntranslated(reply, r.Tools) {
			failed = &fault{kind: untranslated}
		}
		if failed == nil || ctx.Err() != nil {
			return reply, attempt, failed
		}
		// What the server wants otherwise is done at once, each thing once.
		if news := failed.wants & q.has &^ want; news != 0 {
			log.InfoContext(ctx, "the model is asked in another form", "status", failed.status, "form", uint(news))
			want |= news
			c.want.learn(model, news&^q.once)
			if heard {
				show(llm.Delta{Reset: true})
			}
			attempt--
			continue
		}
		if refused := failed.refusedTools(r.Tools); len(refused) > 0 {
			if first == nil {
				first = failed
			}
			suspect = append(suspect, refused...)
			r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(t llm.ToolSpec) bool { return slices.Contains(toolNames(refused), t.Name) })
			attempt--
			continue
		}
		if first != nil && !failed.retry {
			failed = first // without the tools it is no better
		}
		if !heard {
			spent += time.Since(begun)
		}
		wait, again := c.wait(failed, attempt)
		if !again || spent+wait > c.cfg.TotalRetry {
			log.WarnContext(ctx, "the model failed", "attempt", attempt, "status", failed.status, "fault", string(failed.kind))
			return llm.Reply{}, attempt, failed
		}
		spent += wait
		log.InfoContext(ctx, "asking the model again", "attempt", attempt, "status", failed.status, "fault", string(failed.kind), "wait", wait)
		show(llm.Delta{Reset: true, Note: c.sayRetry(failed, wait)})
		if c.cfg.Sleep(ctx, wait) != nil {
			return llm.Reply{}, attempt, failed
		}
	}
}

// rests remembers which models did not answer a moment ago, so that each step
// of a turn does not wait for the same silence.
type rests struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// restTime is how long a model that did not answer is asked last.
const restTime = 2 * time.Minute

func (s *rests) add(model string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	s.until[model] = time.Now().Add(restTime)
}

// order returns the models without repeats, those that rest at the end.
func (s *rests) order(models []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var awake, resting []string
	for i, m := range models {
		m = strings.TrimSpace(m)
		switch {
		case i > 0 && (m == "" || slices.Contains(awake, m) || slices.Contains(resting, m)):
		case now.Before(s.until[m]):
			resting = append(resting, m)
		default:
			awake = append(awake, m)
		}
	}
	return append(awake, resting...)
}

func stopped(err error) *llm.Error {
	return &llm.Error{Sentence: "The request to the model was stopped before it answered.", Cause: err}
}

// wait says whether to try again after the given attempt, and when: 1s, 2s,
// 4s with full jitter, or what the server asked for.
func (c *Client) wait(f *fault, attempt int) (time.Duration, bool) {
	if !f.retry || attempt >= c.cfg.MaxAttempts || f.after >= longestWait {
		return 0, false
	}
	if f.after > 0 {
		return f.after, true
	}
	return max(0, c.cfg.Jitter(time.Second<<min(attempt-1, 5))), true
}

// attempt makes one attempt. heard says whether a part of an answer came.
func (c *Client) attempt(parent context.Context, model string, q question, show func(llm.Delta)) (_ llm.Reply, heard bool, _ *fault) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	dog := watch(c.cfg.FirstByte, func() { cancel(errSilence) })
	defer dog.stop()
	w := &wire{model: model, edit: q.edit, alive: func() { dog.pat(c.cfg.Idle) }}
	stream, err := q.open(context.WithValue(ctx, wireKey{}, w), c.api)
	if err != nil {
		return llm.Reply{}, false, c.faultOf(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	a := q.reader()
	for {
		frame, err := stream.RecvRaw()
		if err != nil {
			if a.ended() && !errors.As(err, new(*fault)) {
				break // complete; only the usage may be missing
			}
			if w.done && a.complete() {
				break
			}
			return llm.Reply{}, heard, c.faultOf(ctx, err)
		}
		heard = true
		dog.fed()
		text, f := a.add(frame)
		if f != nil {
			return llm.Reply{}, true, c.clean(f)
		}
		if text != "" {
			show(llm.Delta{Text: text})
		}
		if a.ended() {
			dog.limit(min(afterFinish, c.cfg.Idle))
		}
	}
	reply := a.reply()
	if reply.Finish == llm.FinishFilter && reply.Text == "" {
		return llm.Reply{}, true, &fault{kind: filtered}
	}
	return reply, true, nil
}

// watchdog calls bark after a time without a pat.
type watchdog struct {
	mu      sync.Mutex
	timer   *time.Timer
	meal    time.Time // when something came that was no keep-alive
	final   bool      // no pat counts any more
	stopped bool
}

func watch(d time.Duration, bark func()) *watchdog {
	return &watchdog{timer: time.AfterFunc(d, bark), meal: time.Now()}
}

// pat gives it d more time, unless pats are all it got for too long.
func (w *watchdog) pat(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && !w.final && time.Since(w.meal) < chatter {
		w.timer.Reset(d)
	}
}

// fed notes that something came that was no keep-alive.
func (w *watchdog) fed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meal = time.Now()
}

// limit leaves it d and no more, from the first call on.
func (w *watchdog) limit(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && !w.final {
		w.final = true
		w.timer.Reset(d)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

func validHeaderName(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0
	})
}

func validHeaderValue(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return (c < ' ' && c != '\t') || c == 0x7f })
}
