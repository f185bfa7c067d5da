package discordfake

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Defaults of Config.
const (
	// DefaultHeartbeat is what Discord's gateway usually asks for; the docs' examples have 41.25 and 45 s.
	DefaultHeartbeat = 41250 * time.Millisecond
	// DefaultAckTimeout is the time for the first answer to an interaction, DefaultTokenLife the life of its token after that
	// (docs: "Receiving and Responding").
	DefaultAckTimeout = 3 * time.Second
	DefaultTokenLife  = 15 * time.Minute
	// DefaultResumeWindow stands for the "few minutes" for which a session outlives its connection (docs: "Gateway").
	DefaultResumeWindow = 3 * time.Minute
	// DefaultSessionLimit is the number of IDENTIFYs in 24 hours, DefaultIdentifyWindow the time in which each of the
	// max_concurrency keys may identify once (docs: "Gateway").
	DefaultSessionLimit   = 1000
	DefaultIdentifyWindow = 5 * time.Second
	// DefaultSendLimit is the number of gateway events a connection may send in 60 s (docs: "Gateway", rate limiting).
	DefaultSendLimit = 120
	// DefaultInvalidLimit is the number of 401, 403 and 429 in ten minutes after which Cloudflare answers (docs: "Rate Limits").
	DefaultInvalidLimit = 10000
	// DefaultNonceWindow stands for the "past few minutes" in which enforce_nonce finds the earlier message (docs: "Message").
	DefaultNonceWindow = 3 * time.Minute
	// DefaultMaxFile is the size of one file, in bytes; a request may have 25 MiB in all (docs: "Uploading Files").
	DefaultMaxFile = 10 << 20

	maxRequest     = 25 << 20
	maxShardGuilds = 2500 // docs: "Gateway", sharding
	sendWindow     = time.Minute
	invalidWindow  = 10 * time.Minute
	typingLife     = 10 * time.Second // docs: "Channel", trigger typing indicator
	oldMessage     = time.Hour        // 30046 is about messages older than this (docs: "Opcodes and Status Codes")
	discordEpoch   = 1420070400000    // ms; the first ms of 2015 (docs: "Snowflakes")
)

// Config says which application the server plays, and which of Discord's rules it enforces. The zero value is usable.
type Config struct {
	// Token is the bot's token without "Bot ". Default "token".
	Token string
	// BotID and AppID are snowflakes of the bot user and the application; usually they are the same. BotName is its user name.
	BotID, AppID, BotName string
	// Privileged are the privileged intents that are switched on in the portal: IntentMessageContent, IntentGuildMembers and
	// IntentGuildPresences. A session that asks for another one is closed with 4014.
	Privileged int
	// Private says that only the owner may add the bot (bot_public is false then).
	Private bool
	// InteractionsEndpoint is set in the portal: interactions then go there and never to the gateway. The server does not call it,
	// so pressing and commands fail.
	InteractionsEndpoint string
	// Heartbeat is the interval that HELLO asks for.
	Heartbeat time.Duration
	// AckTimeout and TokenLife bound the first and the later answers to an interaction.
	AckTimeout, TokenLife time.Duration
	// ResumeWindow is how long a session lives without a connection.
	ResumeWindow time.Duration
	// SessionLimit is the number of IDENTIFYs; the one after the last ends all sessions and changes the token.
	SessionLimit int
	// MaxConcurrency is the number of keys that may identify in one IdentifyWindow; a negative window turns that off.
	MaxConcurrency int
	IdentifyWindow time.Duration
	// Shards is the recommended number of shards of GET /gateway/bot. Default 1.
	Shards int
	// SendLimit is the number of gateway events that a connection may send in 60 s.
	SendLimit int
	// RateLimits enforces per-route buckets and the global 50 requests a second, with headers and 429. Off by default; without it
	// no rate-limit headers are sent.
	RateLimits bool
	// Limits are the buckets by route, for example "POST /channels/{channel_id}/messages"; routes without one have DefaultLimits.
	Limits map[string]Limit
	// InvalidLimit is the number of invalid requests in ten minutes that brings Cloudflare's ban.
	InvalidLimit int
	// NonceWindow is how long enforce_nonce remembers.
	NonceWindow time.Duration
	// OldEdits is the number of edits of messages older than an hour that a channel takes in an hour before 30046. 0 means no
	// limit: Discord does not say the number.
	OldEdits int
	// MaxFile is the size of one file in bytes.
	MaxFile int
	// Checker, when set, looks at each request, response and dispatched object. See Server.Violations.
	Checker *Checker
}

// Errors of the functions that play people.
var (
	// ErrNotAnswered means that the app did not answer an interaction in time: the person sees "This interaction failed".
	ErrNotAnswered = errors.New("discordfake: the app did not answer the interaction in time, so the person sees that it failed")
	// ErrForbidden means that Discord's own client would not let the person do this: no permission, no such thing, disabled.
	ErrForbidden = errors.New("discordfake: the person cannot do this")
	// ErrClosed means that the server was closed meanwhile.
	ErrClosed = errors.New("discordfake: the server is closed")
)

func forbidden(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrForbidden, fmt.Sprintf(format, args...))
}

// Server is a running fake. Make it with New; all its methods may be called from any goroutine.
type Server struct {
	cfg  Config
	http *http.Server
	base string // http://127.0.0.1:port

	ctx    context.Context //nolint:containedctx // The life of the server, which outlives every call that starts work in it.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}
	closed  bool
	lastID  uint64
	skew    time.Duration
	token   string
	reset   bool // the token was changed by Discord

	users    map[string]*User
	guilds   map[string]*guild
	channels map[string]*channel
	files    map[string]*file
	typing   map[string]time.Time
	noDM     map[string]bool
	owner    string
	verify   string

	commands map[string][]*command // by guild, "" for global
	inters   map[string]*interaction
	byToken  map[string]*interaction

	calls   []Call
	faults  map[string][]Answer
	buckets map[string]*bucket
	global  *bucket
	invalid []time.Time

	conns      map[int]*conn
	sessions   map[string]*session
	seq        int // of connections
	opens      int
	refuse     int
	identifies []time.Time
	perKey     map[int]time.Time
	resumes    int
	silent     bool
	onIdentify []GatewayFault
	onResume   []GatewayFault
	opensLog   []Open
	violations []string
}

// New starts a server on a free port of the loopback address. It panics when it cannot listen, because a test has nothing to do
// without it. End it with Close.
func New(cfg Config) *Server {
	text := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	wait := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	text(&cfg.Token, "token")
	text(&cfg.BotID, "1000000000000000001")
	text(&cfg.AppID, cfg.BotID)
	text(&cfg.BotName, "bot")
	wait(&cfg.Heartbeat, DefaultHeartbeat)
	wait(&cfg.AckTimeout, DefaultAckTimeout)
	wait(&cfg.TokenLife, DefaultTokenLife)
	wait(&cfg.ResumeWindow, DefaultResumeWindow)
	wait(&cfg.IdentifyWindow, DefaultIdentifyWindow)
	wait(&cfg.NonceWindow, DefaultNonceWindow)
	number(&cfg.SessionLimit, DefaultSessionLimit)
	number(&cfg.MaxConcurrency, 1)
	number(&cfg.Shards, 1)
	number(&cfg.SendLimit, DefaultSendLimit)
	number(&cfg.InvalidLimit, DefaultInvalidLimit)
	number(&cfg.MaxFile, DefaultMaxFile)
	s := &Server{
		cfg: cfg, token: cfg.Token, changed: make(chan struct{}), verify: strings.Repeat("ab", 32),
		users: map[string]*User{}, guilds: map[string]*guild{}, channels: map[string]*channel{}, files: map[string]*file{},
		typing: map[string]time.Time{}, noDM: map[string]bool{}, commands: map[string][]*command{},
		inters: map[string]*interaction{}, byToken: map[string]*interaction{}, faults: map[string][]Answer{},
		buckets: map[string]*bucket{}, conns: map[int]*conn{}, sessions: map[string]*session{}, perKey: map[int]time.Time{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.users[cfg.BotID] = &User{ID: cfg.BotID, Name: cfg.BotName, Bot: true}
	s.owner = s.AddUser(User{Name: "owner"})

	ln, err := new(net.ListenConfig).Listen(s.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		panic("discordfake: cannot listen on the loopback address, so no test can run: " + err.Error())
	}
	s.base = "http://" + ln.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("/api/", s.serveAPI)
	mux.HandleFunc("/gateway", s.serveGateway)
	mux.HandleFunc("/gateway/", s.serveGateway)
	mux.HandleFunc("/resume", s.serveGateway)
	mux.HandleFunc("/resume/", s.serveGateway)
	mux.HandleFunc("/attachments/{channel}/{id}/{name}", s.serveFile)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.http.Serve(ln) })
	return s
}

// URL returns the address of the API without a version: what a client takes in the place of https://discord.com/api.
func (s *Server) URL() string { return s.base + "/api" }

// Host returns the scheme and host, for clients whose transport is rewritten.
func (s *Server) Host() *url.URL {
	u, _ := url.Parse(s.base) // Made by New from an address: always good.
	return u
}

// gatewayURL is what GET /gateway answers; resumeURL is another path, so that tests see which of the two a client used.
func (s *Server) gatewayURL() string { return "ws" + strings.TrimPrefix(s.base, "http") + "/gateway" }
func (s *Server) resumeURL() string  { return "ws" + strings.TrimPrefix(s.base, "http") + "/resume" }

// BotID returns the snowflake of the bot user.
func (s *Server) BotID() string { return s.cfg.BotID }

// AppID returns the application's snowflake.
func (s *Server) AppID() string { return s.cfg.AppID }

// Close ends all connections and waits for the goroutines of the server. It is safe to call twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.allConns()
	s.mu.Unlock()
	s.cancel()
	for _, k := range all {
		k.cut()
	}
	_ = s.http.Close()
	s.wg.Wait()
}

// bump wakes everybody in Wait. The caller holds mu.
func (s *Server) bump() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Wait returns when cond is true. It looks at cond once for each change in the server and calls it without a lock, so cond may use
// the server's methods. The error is the context's, or ErrClosed.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		ch := s.changed
		s.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("discordfake: what was waited for did not happen: %w", ctx.Err())
		case <-s.ctx.Done():
			return ErrClosed
		}
	}
}

// start runs f as a goroutine of the server, unless the server is closed. The caller holds mu.
func (s *Server) start(f func()) {
	if !s.closed {
		s.wg.Go(f)
	}
}

// now is the server's clock. The caller holds mu.
func (s *Server) now() time.Time { return time.Now().Add(s.skew) }

// Advance moves the server's clock ahead: messages get older, rate limits, sessions without a connection, interaction tokens and
// the identify budget run out. Heartbeats and the three seconds for an answer are of real time and do not move.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
	s.bump()
}

// newID returns a snowflake that is larger than all before it. The caller holds mu.
func (s *Server) newID() string {
	ms := max(s.now().UnixMilli()-discordEpoch, 0)
	s.lastID = max(uint64(ms)<<22, s.lastID+1)
	return strconv.FormatUint(s.lastID, 10)
}

// ID returns a fresh snowflake.
func (s *Server) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newID()
}

// Created returns the time in a snowflake, the zero time when it is none.
func Created(id string) time.Time {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(n>>22) + discordEpoch).UTC()
}

// less orders snowflakes, which are numbers of different length as text.
func less(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// stamp is how Discord writes times.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

// secret returns an unguessable string for tokens.
func secret() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // Never fails: crypto/rand ends the program instead.
	return hex.EncodeToString(b)
}

// Call is one API call as it arrived, and what was answered.
type Call struct {
	// Route is the method and the path's template, for example "POST /channels/{channel_id}/messages"; for a path that is not
	// served, the path itself.
	Route string
	// Path is the path without the version; Version is 9 or 10.
	Path    string
	Version int
	Query   url.Values
	// Body is the JSON body, or the payload_json part of a multipart one. Files are the names of the uploaded files.
	Body  json.RawMessage
	Files []string
	// Auth is the Authorization header.
	Auth string
	At   time.Time
	// Status and Answer are what was sent back. Dropped means that the connection was cut instead.
	Status  int
	Answer  json.RawMessage
	Dropped bool
}

// OK says whether the answer was a success that reached the caller.
func (c Call) OK() bool { return !c.Dropped && c.Status >= 200 && c.Status < 300 }

// Code returns the JSON error code of the answer, 0 when it has none.
func (c Call) Code() int {
	var a struct {
		Code int `json:"code"`
	}
	if c.OK() || json.Unmarshal(c.Answer, &a) != nil {
		return 0
	}
	return a.Code
}

// Calls returns all API calls so far, oldest first.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many calls of a route have come, whatever was answered.
func (s *Server) Count(route string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c.Route == route {
			n++
		}
	}
	return n
}

// InvalidRequests returns how many 401, 403 and 429 (not those of scope shared) were answered in the last ten minutes.
func (s *Server) InvalidRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.invalidCount()
}

func (s *Server) invalidCount() int {
	old := s.now().Add(-invalidWindow)
	s.invalid = slices.DeleteFunc(s.invalid, func(t time.Time) bool { return t.Before(old) })
	return len(s.invalid)
}

// Violations returns what the checker did not like so far: requests of the client and, which is a mistake of this package, answers
// and dispatches of the server. Without a Checker it is always empty.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// Answer is a fault that FailNext puts in the place of a route's own answer. With Drop and Delay the route does its work; with all
// others it does nothing.
type Answer struct {
	// Status is the HTTP status; 0 means 429 when RetryAfter is set and 500 otherwise.
	Status int
	// Code and Message are of the JSON error; empty means what Discord says for the status.
	Code    int
	Message string
	// RetryAfter goes into the body of a 429 and, rounded up to seconds, its header.
	RetryAfter time.Duration
	// Scope of a 429: "user" (the default), "shared", which does not count as an invalid request, or "global".
	Scope string
	// HTML answers with a page in the place of JSON, as Cloudflare does.
	HTML bool
	// Drop does what was asked and then cuts the connection before answering, so that the caller cannot know.
	Drop bool
	// Lose cuts the connection without doing anything.
	Lose bool
	// Delay does what was asked at once and then answers late.
	Delay time.Duration
}

// FailNext makes the next n calls of a route answer with the fault. A route is named as in Call.Route; "*" stands for any. Faults of
// one route are used in the order in which they were set, before those of "*".
func (s *Server) FailNext(route string, n int, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults[route] = append(s.faults[route], a)
	}
}

// fault takes the next fault of a route. The caller holds mu.
func (s *Server) fault(route string) (Answer, bool) {
	for _, m := range []string{route, "*"} {
		if q := s.faults[m]; len(q) > 0 {
			s.faults[m] = q[1:]
			return q[0], true
		}
	}
	return Answer{}, false
}
