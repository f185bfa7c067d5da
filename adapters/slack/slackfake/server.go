package slackfake

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
	"strings"
	"sync"
	"time"
)

// Defaults of Config. The numbers are Slack's: three seconds to acknowledge, and retries at once, after a minute and after five
// (docs: "Events API", error handling and retries); a trigger_id lives three seconds (docs: "Handling user interaction").
const (
	DefaultAckTimeout   = 3 * time.Second
	DefaultTriggerLife  = 3 * time.Second
	DefaultPingInterval = 5 * time.Second
	// maxSockets is the number of Socket Mode connections an app may hold at a time (docs: "Using Socket Mode").
	maxSockets = 10
	// statusLife is how long an assistant status stays without a message (docs: assistant.threads.setStatus).
	statusLife = 2 * time.Minute
)

// DefaultRetryDelays returns the waits before the first, second and third retry of an event.
func DefaultRetryDelays() []time.Duration { return []time.Duration{0, time.Minute, 5 * time.Minute} }

// DefaultScopes returns the scopes that a server grants when Config.Scopes is nil: everything that the served methods and events
// need, except chat:write.public (with it a bot may post to public channels that it is not in).
func DefaultScopes() []string {
	return []string{
		"app_mentions:read", "assistant:write", "channels:history", "channels:read", "chat:write", "commands", "files:read",
		"files:write", "groups:history", "groups:read", "im:history", "im:read", "im:write", "mpim:history", "mpim:read",
		"mpim:write", "reactions:read", "reactions:write", "usergroups:read", "users:read",
	}
}

// Config says which workspace and app the server plays, and which of Slack's rules it enforces. The zero value is usable.
type Config struct {
	// Team, BotUser, BotID and AppID are the ids of the workspace, the app's bot user, its bot and the app. Default T1, UBOT,
	// BBOT, A1.
	Team, BotUser, BotID, AppID string
	// BotToken, AppToken and SigningSecret are the credentials that are accepted. Default xoxb-1, xapp-1, "secret".
	BotToken, AppToken, SigningSecret string
	// RateLimits enforces the documented tiers, and one message a second in a channel with a short burst, with 429 and
	// Retry-After. Off by default.
	RateLimits bool
	// AckTimeout is how long an envelope or request waits for its acknowledgement. Default DefaultAckTimeout.
	AckTimeout time.Duration
	// RetryDelays are the waits before each retry of an event that was not acknowledged. Nil means DefaultRetryDelays; an empty
	// list means that nothing is retried. Interactions and commands are never retried.
	RetryDelays []time.Duration
	// TriggerLife is how long a trigger_id may be exchanged for a view. Default DefaultTriggerLife.
	TriggerLife time.Duration
	// PingInterval is the time between WebSocket pings. Default DefaultPingInterval; negative turns pings off.
	PingInterval time.Duration
	// Streaming and AssistantStatus say whether chat.startStream and its sisters, and assistant.threads.*, exist. Otherwise they
	// answer unknown_method.
	Streaming, AssistantStatus bool
	// AgentSessions says whether the app is declared as an agent: agents.sessions.* exists, and people have Slack's own stop
	// button while a session is processing.
	AgentSessions bool
	// Plans says whether messages may have the blocks plan and task_card (docs: "Plan block"). Otherwise they are refused like
	// any unknown block.
	Plans bool
	// Scopes are the granted scopes; nil means DefaultScopes. A method or event that lacks its scope is refused or not sent.
	Scopes []string
	// HTTPEvents, when set, is the base URL of the app: events, interactions and commands are sent as signed POST requests to
	// /slack/events, /slack/interactivity and /slack/commands under it, and never to sockets.
	HTTPEvents string
	// NoEcho stops the events about the app's own messages, which Slack sends like any other.
	NoEcho bool
}

// Errors of the functions that play people.
var (
	// ErrLost means that an event was not acknowledged and its last retry has passed.
	ErrLost = errors.New("slackfake: no acknowledgement came and the last retry has passed")
	// ErrNotAcknowledged means that an interaction or command was not acknowledged in time. They are not retried, and a person
	// sees a warning next to what was pressed.
	ErrNotAcknowledged = errors.New("slackfake: the app did not acknowledge in time, and this is not retried")
	// ErrClosed means that the server was closed meanwhile.
	ErrClosed = errors.New("slackfake: the server is closed")
)

// Server is a running fake. Make it with New; all its methods may be called from any goroutine.
type Server struct {
	cfg    Config
	scopes map[string]bool
	http   *http.Server
	base   string // http://127.0.0.1:port
	client *http.Client

	ctx    context.Context //nolint:containedctx // The life of the server, which outlives every call that starts work in it.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}
	closed  bool
	lastTS  int64
	seq     int

	users      map[string]*User
	channels   map[string]*channel
	groups     map[string][]string
	groupNames []string
	files      map[string]*file
	uploads    map[string]*file
	views      map[string]*view
	viewOrder  []string
	homes      map[string]*view
	triggers   map[string]*trigger
	responses  map[string]*responseURL
	respPosts  []ResponsePost
	status     map[threadKey]statusLine
	titles     map[threadKey]string
	prompts    map[threadKey]json.RawMessage
	sessions   map[threadKey]string // by thread, the status of its agent session
	eventIDs   map[string]string

	calls  []Call
	faults map[string][]Answer
	bucket map[string]*bucket

	sockets    map[int]*socket
	tickets    map[string]bool
	pending    map[string]*envelope
	deaf       bool
	paused     bool
	silent     bool // no pings
	forgetAcks int
	lost       int
	deliveries []Delivery
}

type threadKey struct{ channel, ts string }

type statusLine struct {
	text string
	at   time.Time
}

// New starts a server on a free port of the loopback address. It panics when it cannot listen, because a test has nothing to do
// without it. End it with Close.
func New(cfg Config) *Server {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&cfg.Team, "T1")
	def(&cfg.BotUser, "UBOT")
	def(&cfg.BotID, "BBOT")
	def(&cfg.AppID, "A1")
	def(&cfg.BotToken, "xoxb-1")
	def(&cfg.AppToken, "xapp-1")
	def(&cfg.SigningSecret, "secret")
	if cfg.AckTimeout <= 0 {
		cfg.AckTimeout = DefaultAckTimeout
	}
	if cfg.RetryDelays == nil {
		cfg.RetryDelays = DefaultRetryDelays()
	}
	if cfg.TriggerLife <= 0 {
		cfg.TriggerLife = DefaultTriggerLife
	}
	if cfg.PingInterval == 0 {
		cfg.PingInterval = DefaultPingInterval
	}
	if cfg.Scopes == nil {
		cfg.Scopes = DefaultScopes()
	}
	s := &Server{
		cfg: cfg, scopes: map[string]bool{}, changed: make(chan struct{}),
		users: map[string]*User{}, channels: map[string]*channel{}, groups: map[string][]string{}, files: map[string]*file{},
		uploads: map[string]*file{}, views: map[string]*view{}, homes: map[string]*view{}, triggers: map[string]*trigger{},
		responses: map[string]*responseURL{}, status: map[threadKey]statusLine{}, titles: map[threadKey]string{},
		prompts: map[threadKey]json.RawMessage{}, sessions: map[threadKey]string{}, eventIDs: map[string]string{}, faults: map[string][]Answer{},
		bucket: map[string]*bucket{}, sockets: map[int]*socket{}, tickets: map[string]bool{}, pending: map[string]*envelope{},
	}
	for _, sc := range cfg.Scopes {
		s.scopes[sc] = true
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.client = &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		// docs: more than two redirects count as a failed delivery.
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > 2 {
				return errTooManyRedirects
			}
			return nil
		},
	}
	s.AddUser(User{ID: cfg.BotUser, Name: "bot", Bot: true})

	ln, err := new(net.ListenConfig).Listen(s.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		panic("slackfake: cannot listen on the loopback address, so no test can run: " + err.Error())
	}
	s.base = "http://" + ln.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("/api/{method}", s.serveAPI)
	mux.HandleFunc("/link/", s.serveSocket)
	mux.HandleFunc("/upload/v1/{token}", s.serveUpload)
	mux.HandleFunc("/files-pri/{id}/{name}", s.serveFile)
	mux.HandleFunc("/actions/{token}", s.serveResponseURL)
	mux.HandleFunc("/", s.serveSignIn)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.http.Serve(ln) })
	return s
}

// URL returns the address of the Web API with its last slash: what a client takes in the place of https://slack.com/api/.
func (s *Server) URL() string { return s.base + "/api/" }

// Close ends all connections and pending deliveries and waits for the goroutines of the server. It is safe to call twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.Cut()
	_ = s.http.Close()
	s.wg.Wait()
	s.client.CloseIdleConnections()
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
			return fmt.Errorf("slackfake: what was waited for did not happen: %w", ctx.Err())
		case <-s.ctx.Done():
			return ErrClosed
		}
	}
}

// newTS returns a message timestamp that no message has yet: seconds and microseconds, always rising. The caller holds mu.
func (s *Server) newTS() string {
	now := max(time.Now().UnixMicro(), s.lastTS+1)
	s.lastTS = now
	return fmt.Sprintf("%d.%06d", now/1e6, now%1e6)
}

// newID returns a fresh id that starts with prefix. The caller holds mu.
func (s *Server) newID(prefix string) string {
	s.seq++
	return fmt.Sprintf("%s%05d", prefix, s.seq)
}

// secretToken returns an unguessable string for URLs that are credentials.
func secretToken() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // Never fails: crypto/rand ends the program instead.
	return hex.EncodeToString(b)
}

// start runs f as a goroutine of the server, unless the server is closed. The caller holds mu.
func (s *Server) start(f func()) bool {
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// Call is one Web API call as it arrived, and what was answered.
type Call struct {
	// Method is the name, for example "chat.postMessage".
	Method string
	// Args are the arguments without the token. The values of a JSON body are here too, strings as they are and others as JSON.
	Args url.Values
	// Body is the body when it was JSON.
	Body json.RawMessage
	// Token is the credential that came with the call.
	Token string
	At    time.Time
	// Status and Answer are what was sent back. Dropped means that the connection was cut instead.
	Status  int
	Answer  json.RawMessage
	Dropped bool
}

// OK says whether the answer was a success that reached the caller.
func (c Call) OK() bool {
	var a struct {
		OK bool `json:"ok"`
	}
	return json.Unmarshal(c.Answer, &a) == nil && a.OK && !c.Dropped && c.Status == http.StatusOK
}

// Code returns the error string of the answer, or "".
func (c Call) Code() string {
	var a struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(c.Answer, &a)
	return a.Error
}

// Calls returns all Web API calls so far, oldest first.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many calls of a method have come, whatever was answered.
func (s *Server) Count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c.Method == method {
			n++
		}
	}
	return n
}

// Answer is a fault that FailNext puts in the place of a method's own answer. With Drop the method does its work first; with all
// others it does nothing.
type Answer struct {
	// Status is the HTTP status; 0 means 200, or 429 when RetryAfter is set.
	Status int
	// Error is the error string of the answer; empty means "internal_error", or "ratelimited" for 429.
	Error string
	// RetryAfter is sent in whole seconds, rounded up, at least 1, when it is set or the status is 429.
	RetryAfter time.Duration
	// Drop does what was asked and then cuts the connection before answering, so that the caller cannot know.
	Drop bool
	// Lose cuts the connection without doing anything.
	Lose bool
}

// FailNext makes the next n calls of a method answer with the fault. Method "*" stands for any; the names "upload" and
// "response_url" stand for posts to upload and response URLs. Faults of one method are used in the order in which they were set,
// before those of "*".
func (s *Server) FailNext(method string, n int, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults[method] = append(s.faults[method], a)
	}
}

// fault takes the next fault of a method. The caller holds mu.
func (s *Server) fault(method string) (Answer, bool) {
	for _, m := range []string{method, "*"} {
		if q := s.faults[m]; len(q) > 0 {
			s.faults[m] = q[1:]
			return q[0], true
		}
	}
	return Answer{}, false
}

// granted says whether one of the scopes was granted. The caller needs no lock: scopes do not change.
func (s *Server) granted(anyOf ...string) bool {
	return slices.ContainsFunc(anyOf, func(sc string) bool { return s.scopes[sc] })
}

func (s *Server) teamURL() string { return "https://" + strings.ToLower(s.cfg.Team) + ".slack.com/" }
