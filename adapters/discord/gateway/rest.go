package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/internal/redact"
)

// defaultAPI is Discord's own address, and the version that this package speaks.
const defaultAPI = "https://discord.com/api/v10"

// The bounds of a call.
const (
	// callTimeout bounds one attempt, and fileTimeout one with files.
	callTimeout = 10 * time.Second
	fileTimeout = 60 * time.Second
	// overall bounds a call whose context has no deadline, waiting included.
	overall = 2 * time.Minute
	// maxTries is how often a call is made that met a limit, or whose answer was
	// lost.
	maxTries = 4
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 16 << 20
	// edgeHold is for how long nothing is called when the edge in front of Discord
	// refuses and does not say until when.
	edgeHold = 30 * time.Second
)

// apiVersion is the version of the API that is spoken where an address names none.
const apiVersion = "v10"

// userAgent has the form that Discord wants (docs.discord.com/developers/reference,
// "User Agent").
const userAgent = "DiscordBot (countersign, 1)"

var versioned = regexp.MustCompile(`/v[0-9]+$`)

// RESTConfig is what a [REST] needs.
type RESTConfig struct {
	// Token is the bot's, without "Bot " in front.
	Token redact.Secret
	// APIURL is the API's address, with its version or without ("" is Discord's own,
	// "https://discord.com/api/v10").
	APIURL string
	Log    *slog.Logger
	// Transport carries the calls; nil makes one that heeds the environment's proxy.
	Transport http.RoundTripper
}

// REST makes calls of Discord's HTTP API. Every call ends with its context, or
// after two minutes if that has no deadline. Limits that Discord reports are
// waited out where the context allows it, and are a [RateLimitedError] where
// not; a call is made four times at most. It is safe for concurrent use.
//
// It is written on net/http and not on discordgo, because discordgo's
// limiter sleeps whatever the context says, retries without end, keeps a bucket
// for each interaction for ever, does not know nonces, and because its errors
// hold whole requests with the token in them. discordgo's structures serve
// for what comes back.
type REST struct {
	token   redact.Secret
	base    string
	host    string
	log     *slog.Logger
	client  *http.Client
	buckets *buckets
	pace    pace
	guard   guard
}

// NewREST returns a REST. It calls nothing yet.
func NewREST(cfg RESTConfig) (*REST, error) {
	base := strings.TrimRight(orElse(cfg.APIURL, defaultAPI), "/")
	if !versioned.MatchString(base) {
		base += "/" + apiVersion
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("discord: DISCORD_API_URL is no address; write it like https://discord.com/api/v10")
	}
	if cfg.Token == "" {
		return nil, errors.New("discord: there is no token; put the one of the page https://discord.com/developers/applications, your app, Bot, into DISCORD_BOT_TOKEN")
	}
	if strings.ContainsAny(cfg.Token.Reveal(), " \t\r\n") {
		return nil, errors.New("discord: DISCORD_BOT_TOKEN has a space or a line break in it; put the bare token there, without \"Bot \"")
	}
	rt := cfg.Transport
	if rt == nil {
		rt = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, TLSHandshakeTimeout: callTimeout}
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &REST{
		token: cfg.Token, base: base, host: u.Host, log: log, buckets: newBuckets(), guard: guard{most: maxInvalid},
		// A redirect would carry the token elsewhere.
		client: &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// Close ends the connections that are idle.
func (r *REST) Close() { r.client.CloseIdleConnections() }

// File is one file of a message.
type File struct {
	Name string
	Data []byte
}

// call is one call. route names it in limits, errors and logs, and so has no ids
// and no tokens.
type call struct {
	method, route string
	path          string
	major         string // the channel, guild or webhook that limits are counted for
	query         url.Values
	body          any // nil: none
	files         []File
	safe          bool // may be sent again when its answer was lost
	interaction   bool // the interaction's token counts, not the bot's: no global limit, no bucket
}

func (c call) name() string { return c.method + " " + c.route }

// do makes a call and decodes its answer into out, unless that is nil.
func (r *REST) do(ctx context.Context, c call, out any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, overall)
		defer cancel()
	}
	kind, body, err := encode(c)
	if err != nil {
		return fmt.Errorf("discord: %s was not encoded: %w", c.name(), err)
	}
	for try := 1; ; try++ {
		data, retryIn, err := r.attempt(ctx, c, kind, body)
		if err == nil {
			if out == nil || len(data) == 0 {
				return nil
			}
			if err := json.Unmarshal(data, out); err != nil {
				return fmt.Errorf("discord: the answer to %s was not understood: %w", c.name(), err)
			}
			return nil
		}
		if retryIn < 0 || try == maxTries || ctx.Err() != nil {
			return err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < retryIn {
			return err
		}
		if d, ok := waitOf(ctx); ok && d < retryIn {
			return err
		}
		if pause(ctx, retryIn) != nil {
			return err
		}
	}
}

type waitKey struct{}

// WaitAtMost returns a context whose calls wait at most d for a limit. A call that is on its
// way is bounded by ctx alone: cut off, it may leave a message that nobody knows of.
func WaitAtMost(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waitKey{}, d)
}

func waitOf(ctx context.Context) (time.Duration, bool) {
	d, ok := ctx.Value(waitKey{}).(time.Duration)
	return d, ok
}

// attempt makes a call once. retryIn is after how long another one makes sense,
// negative when it makes none.
func (r *REST) attempt(ctx context.Context, c call, kind string, body []byte) (data []byte, retryIn time.Duration, err error) {
	const never = -1
	if err := r.guard.check(c.name(), !c.interaction); err != nil {
		return nil, never, err
	}
	var k *bucket
	if !c.interaction {
		wait := ctx
		if d, ok := waitOf(ctx); ok {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		if k, err = r.buckets.enter(wait, c.name(), c.major); err != nil {
			return nil, never, named(err, c)
		}
		defer r.buckets.free(k)
		if err := r.pace.enter(wait, c.name()); err != nil {
			return nil, never, named(err, c)
		}
	}
	status, head, data, err := r.send(ctx, c, kind, body)
	if err != nil {
		if !c.safe || ctx.Err() != nil {
			return nil, never, err
		}
		return nil, jitter(500 * time.Millisecond), err
	}
	limited := r.limited(c, status, head, data)
	if k != nil {
		var held time.Time
		scope := Scope("")
		if limited != nil && limited.Scope != ScopeGlobal && limited.Scope != ScopeEdge {
			held, scope = time.Now().Add(limited.After), limited.Scope
		}
		r.buckets.learn(k, c.name(), head, held, scope)
	}
	switch {
	case limited != nil:
		if limited.Scope != ScopeShared {
			r.guard.countRefusal()
		}
		if limited.Scope == ScopeGlobal || limited.Scope == ScopeEdge {
			r.pace.stop(time.Now().Add(limited.After))
		}
		r.log.WarnContext(ctx, "discord limits the calls", "call", c.name(), "scope", string(limited.Scope), "after", limited.After)
		return nil, limited.After, limited
	case status >= 200 && status < 300:
		if !c.interaction {
			r.guard.noteToken(true)
		}
		return data, never, nil
	}
	failed := refusal(c, status, data)
	switch {
	case status == http.StatusUnauthorized:
		r.guard.countRefusal()
		if !c.interaction {
			r.guard.noteToken(false)
			return nil, never, ErrUnauthorized
		}
	case status == http.StatusForbidden, status == http.StatusNotFound && c.interaction:
		// Discord counts unknown webhooks too.
		r.guard.countRefusal()
	case status >= 500 && c.safe:
		return nil, jitter(time.Second), failed
	}
	return nil, never, failed
}

// named puts the call's name into a limit's error.
func named(err error, c call) error {
	if l, ok := errors.AsType[*RateLimitedError](err); ok {
		l.Call = c.name()
	}
	return err
}

// jitter is between half of d and d.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2) //nolint:gosec // spreads calls
}

// send makes the HTTP request. Its errors never hold the address, which may hold
// an interaction's token.
func (r *REST) send(ctx context.Context, c call, kind string, body []byte) (int, http.Header, []byte, error) {
	limit := callTimeout
	if len(c.files) > 0 {
		limit = fileTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	link := r.base + c.path
	if len(c.query) > 0 {
		link += "?" + c.query.Encode()
	}
	var in io.Reader
	if kind != "" {
		in = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, link, in)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("discord: %s has an id that is none", c.name())
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if !c.interaction {
		req.Header.Set("Authorization", "Bot "+r.token.Reveal())
	}
	req.Header.Set("User-Agent", userAgent)
	res, err := r.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return 0, nil, nil, fmt.Errorf("discord: no answer to %s: %w", c.name(), err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("discord: the answer to %s broke off: %w", c.name(), err)
	}
	if len(data) > maxAnswer {
		return 0, nil, nil, fmt.Errorf("discord: the answer to %s is longer than %d MiB", c.name(), maxAnswer>>20)
	}
	return res.StatusCode, res.Header, data, nil
}

// limited reads a 429; nil when it is none.
func (r *REST) limited(c call, status int, h http.Header, data []byte) *RateLimitedError {
	if status != http.StatusTooManyRequests {
		return nil
	}
	var body struct {
		RetryAfter float64 `json:"retry_after"`
		Global     bool    `json:"global"`
	}
	l := &RateLimitedError{Call: c.name(), Scope: Scope(h.Get("X-RateLimit-Scope")), After: seconds(h.Get("Retry-After"))}
	if json.Unmarshal(data, &body) != nil {
		// Not Discord but what stands in front of it, in HTML: it means the address.
		l.Scope = ScopeEdge
		if l.After == 0 {
			l.After = edgeHold
		}
		return l
	}
	l.After = max(l.After, seconds(fmt.Sprint(body.RetryAfter)), 10*time.Millisecond)
	switch {
	case body.Global || h.Get("X-RateLimit-Global") != "":
		l.Scope = ScopeGlobal
	case l.Scope != ScopeShared:
		l.Scope = ScopeUser
	}
	return l
}

// refusal reads any other answer that is no success.
func refusal(c call, status int, data []byte) *Error {
	e := &Error{Call: c.name(), Status: status}
	var body struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Errors  json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(data, &body) != nil {
		e.Message = http.StatusText(status)
		return e
	}
	e.Code, e.Message = body.Code, clip(body.Message)
	var tree any
	if json.Unmarshal(body.Errors, &tree) == nil {
		fields(&e.Fields, "", tree, 0)
	}
	return e
}

// clip bounds what others wrote.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// fields flattens the errors of an invalid form
// (docs.discord.com/developers/reference, "Error Messages").
func fields(out *[]string, path string, node any, depth int) {
	m, ok := node.(map[string]any)
	if !ok || depth > 12 || len(*out) >= 10 {
		return
	}
	if list, ok := m["_errors"].([]any); ok {
		for _, one := range list {
			if one, ok := one.(map[string]any); ok && len(*out) < 10 {
				text, _ := one["message"].(string)
				*out = append(*out, clip(strings.TrimPrefix(path+": "+text, ": ")))
			}
		}
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		if k != "_errors" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		fields(out, strings.TrimPrefix(path+"."+k, "."), m[k], depth+1)
	}
}

// encode returns the body's content type, "" when there is none, and the body.
func encode(c call) (string, []byte, error) {
	if c.body == nil {
		return "", nil, nil
	}
	data, err := json.Marshal(c.body)
	if err != nil || len(c.files) == 0 {
		return "application/json", data, err
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part := func(name, file, kind string, data []byte) error {
		h := textproto.MIMEHeader{"Content-Type": {kind}}
		v := `form-data; name="` + name + `"`
		if file != "" {
			v += `; filename="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\r", "", "\n", "").Replace(file) + `"`
		}
		h.Set("Content-Disposition", v)
		p, err := w.CreatePart(h)
		if err == nil {
			_, err = p.Write(data)
		}
		return err
	}
	err = part("payload_json", "", "application/json", data)
	for i, f := range c.files {
		if err == nil {
			err = part(fmt.Sprintf("files[%d]", i), f.Name, "application/octet-stream", f.Data)
		}
	}
	if err == nil {
		err = w.Close()
	}
	return w.FormDataContentType(), b.Bytes(), err
}
