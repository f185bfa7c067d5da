// Package slack makes a Slack workspace one of the bot's networks: a mention in
// a channel starts a conversation in the thread under it, cards are Block Kit
// messages, and a press of their buttons is a click. It speaks Socket Mode, or
// takes events over HTTP ([Adapter.Handler]).
//
// It decides nothing and stores no conversation: what it keeps in memory can be
// lost at any moment, because every message of the bot carries the key of its
// post and can be found again in the thread.
//
// Several replicas may run on one store. Each is connected, Slack gives every event and
// press to one of their connections, and which one does not matter ([Config.Do],
// [Config.Turn]). What one of them was writing when it lost a thread, the next one that
// posts there removes, and so does the writer when it wakes: no half of a reply stays.
//
// # In and out
//
// Two Socket Mode connections, each supervised by its own goroutine so that refreshing one leaves no
// gap, or signed HTTP requests. A reader only sorts envelopes into lanes (one per thread). A lane's
// goroutine calls Deliver and acknowledges once the entry is durable. The event id is
// slack:<team>:<channel>:<ts>, whichever envelope brought the message. A mention that also arrives
// as a message, a retry and a message found in the history are therefore one entry. After each
// reconnect, and once a minute, the adapter compares threads with open work with Slack's history. It
// delivers what is missing, and this is also how it detects and replaces a connection that is open
// but delivers nothing.
//
// The SDK serves for the Web API and the blocks. Its Socket Mode client is not used, because it
// reads each event five times before it can be acknowledged (80 µs against 9 µs, a third of the time
// to an acknowledgement in a burst), waits up to five minutes between two attempts, closes a
// connection before it opens the next one when Slack asks for a refresh, and may acknowledge on a
// different connection than the event's. Ours (frame.go, socket.go) keeps a connection that Slack
// replaces until Slack ends it.
//
// The outbox posts. The adapter keeps one queue per channel and method, approvals first, and pauses
// a queue for as long as Slack demands. Every message carries its post's key as metadata. If the
// answer to a post was lost, or a crash cut it off, the adapter searches the thread's history for
// that key before it posts again, so it needs no rows of its own. What Slack refuses is sent again
// in a plainer form: text, then a file, then a sentence.
//
// A turn's runs are one message (the work log) that is edited in place. A reply is a streaming
// message if the workspace supports them, otherwise a message edited once a second; the final post
// replaces it. A card is always a new message, because only approvals should notify.
//
// Everything we did not write is a text element of a rich text block or a plain text object, which
// Slack never parses. The adapter creates no element that mentions anybody, and a link shows its
// address.
//
// A button carries an id and a nonce. The person comes from the interaction that Slack signed or
// sent over the socket. Their standing and groups are looked up at the click, are at most 60 s old,
// and count as absent if the look-up fails. The card is updated immediately unless the outbox has
// updated it in the meantime.
package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/lanes"
	"countersign/adapters/chat/opened"
	"countersign/adapters/chat/scribe"
)

// DefaultAPIURL is the base of Slack's own Web API.
const DefaultAPIURL = slackapi.APIURL

// ChannelRules are what the configuration says of one channel.
type ChannelRules struct {
	MentionOnly bool     // follow-ups in threads need a mention too
	NoHistory   bool     // what was said in a thread before the bot was asked is not read
	Bots        []string // ids of bots that may speak to this one here
}

// Config is what an [Adapter] is made of.
type Config struct {
	Scheme   string // of the workspace; default slack
	BotToken string // xoxb-
	AppToken string // xapp-, for Socket Mode; empty: events over HTTP
	// SigningSecret proves that HTTP requests are Slack's.
	SigningSecret string
	APIURL        string // base of the Web API; default [DefaultAPIURL]
	Name          string // the bot's name in conversations
	// Usergroups gives the ids of the user groups that can make somebody an approver
	// now; nil: none. It is called from several goroutines.
	Usergroups func() []string
	// Channel gives the rules of a channel; nil: none.
	Channel func(id string) ChannelRules
	// Known reports whether the bot takes part in a thread.
	Known func(ctx context.Context, t chat.ThreadID) (bool, error)
	// Open lists the threads of this network with open work; after a gap their
	// messages are read again from the history. nil: none.
	Open func(ctx context.Context) ([]chat.ThreadID, error)
	// Seen reports whether an event has been delivered before; nil: everything
	// is delivered again, and the bot recognises it.
	Seen func(ctx context.Context, id chat.EventID) (bool, error)
	// Alive and SetAlive keep when the last frame arrived, so that a gap over a
	// restart has a beginning. nil: gaps over restarts are an hour long.
	Alive    func(ctx context.Context) (time.Time, error)
	SetAlive func(ctx context.Context, t time.Time) error
	// Do runs run while this process has a job that one of several replicas may do at
	// a time; run's context ends when the job goes elsewhere. nil: this process is
	// alone. The one job is [JobCheck].
	Do func(ctx context.Context, job string, run func(ctx context.Context) error) error
	// Turn says who posts in a thread, where several replicas do: n grows whenever
	// another one than before begins to (1: only one ever did, 0: none), and mine means
	// that this process was the last that began. An error means that this process
	// must show nothing there now. It is asked right before each call that people see,
	// so it should cost no more than a look at the store. nil: nobody else posts.
	Turn func(ctx context.Context, t chat.ThreadID) (n uint64, mine bool, err error)
	// First reports whether this process is the first that works in a thread, so that nothing of the bot's stands in it;
	// nil where nobody knows.
	First func(ctx context.Context, t chat.ThreadID) bool
	// Deaf and SetDeaf keep when a message was found that no connection of any replica
	// had brought: every replica connects again then. nil: the finder alone does.
	Deaf    func(ctx context.Context) (time.Time, error)
	SetDeaf func(ctx context.Context, t time.Time) error
	// Moved and SetMoved keep the present ids of channels that got another, by their first; Named reports
	// whether the configuration names a channel. nil: that is forgotten with the process, and none is.
	Moved    func(ctx context.Context) (map[string]string, error)
	SetMoved func(ctx context.Context, now map[string]string) error
	Named    func(channel string) bool
	Peers    Peers     // the other replicas; nil: this process is alone
	Desk     chat.Desk // answers slash commands and the home page; nil: neither
	// Sockets are the Socket Mode connections of this process, default 2. All replicas
	// together may have 10.
	Sockets int
	// PingTimeout is how long a connection may stay without a ping of Slack;
	// default 30 s.
	PingTimeout time.Duration
	HTTPClient  *http.Client
	Log         *slog.Logger
	Now         func() time.Time
}

// Adapter is Slack as one of the bot's networks. It is safe for concurrent use.
type Adapter struct {
	cfg    Config
	api    *slackapi.Client
	people *people
	pace   *pacer
	scribe *scribe.Scribe[outgoing, *page]
	log    *slog.Logger
	now    func() time.Time
	began  time.Time
	times  times

	noStream, noStatus, noSession, noPlan atomic.Bool // the workspace or the app lacks the method, or the block

	opens      *opened.Threads // threads that the bot began itself
	inbox      *lanes.Lanes    // messages, in order within their thread
	background *lanes.Lanes    // what nobody waits for
	moved      moved           // channels that have another id now
	recent     recent          // messages that are durable, so that their repeats cost nothing
	lingering  sync.WaitGroup  // connections that were replaced
	handler    atomic.Pointer[chat.Handler]
	health     health
	watch      watch

	mu  sync.Mutex
	me  identity
	ctx context.Context
}

// times are the adapter's own clocks; tests run them faster.
type times struct {
	keep    time.Duration // how often the adapter looks after itself
	check   time.Duration // how often open threads are compared with the history
	overdue time.Duration // when a message that no connection brought counts as missed
	stagger time.Duration // between the connections' beginnings
	backoff time.Duration // the longest wait between two attempts to connect
	show    scribe.Times
}

// identity is who the bot is on Slack.
type identity struct {
	team, user, bot, name string
	url                   string // of the workspace
}

// New returns an adapter; nothing is connected until Run.
func New(cfg Config) (*Adapter, error) {
	switch {
	case cfg.BotToken == "":
		return nil, errors.New("SLACK_BOT_TOKEN is not set; copy the Bot User OAuth Token (xoxb-) from the app's page OAuth & Permissions")
	case strings.HasPrefix(cfg.BotToken, "xapp-"):
		return nil, errors.New("SLACK_BOT_TOKEN holds an app-level token (xapp-); put that into SLACK_APP_TOKEN, and the Bot User OAuth Token (xoxb-) here")
	case strings.HasPrefix(cfg.AppToken, "xoxb-"):
		return nil, errors.New("SLACK_APP_TOKEN holds a bot token (xoxb-); put that into SLACK_BOT_TOKEN, and an app-level token (xapp-) with connections:write here")
	case cfg.AppToken == "" && cfg.SigningSecret == "":
		return nil, errors.New("neither SLACK_APP_TOKEN (for Socket Mode) nor SLACK_SIGNING_SECRET (for events over HTTP) is set; set one of them")
	case cfg.Known == nil:
		return nil, errors.New("slack: Config.Known is required")
	}
	if cfg.Scheme == "" {
		cfg.Scheme = scheme
	}
	if cfg.APIURL == "" {
		cfg.APIURL = DefaultAPIURL
	}
	if !strings.HasSuffix(cfg.APIURL, "/") {
		cfg.APIURL += "/"
	}
	if cfg.Channel == nil {
		cfg.Channel = func(string) ChannelRules { return ChannelRules{} }
	}
	if cfg.Sockets <= 0 {
		cfg.Sockets = 2
	}
	if cfg.PingTimeout <= 0 {
		cfg.PingTimeout = pingTimeout
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{Timeout: 30 * time.Second, Transport: transport()}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Usergroups == nil {
		cfg.Usergroups = func() []string { return nil }
	}
	a := &Adapter{
		cfg: cfg, log: cfg.Log, now: cfg.Now, began: cfg.Now(), pace: newPacer(),
		opens: opened.New(), inbox: lanes.New(), background: lanes.New(),
		ctx:   context.Background(),
		times: times{keep: keepEvery, check: checkEvery, overdue: overdue, stagger: stagger, backoff: maxBackoff, show: scribe.Times{Show: showEvery, After: showAfter, Call: showLimit, Idle: idleAfter}},
	}
	a.api = slackapi.New(cfg.BotToken, slackapi.OptionAppLevelToken(cfg.AppToken), slackapi.OptionAPIURL(cfg.APIURL), slackapi.OptionHTTPClient(cfg.HTTPClient))
	a.people = newPeople(a.api, func() string { return a.self().team }, cfg.Usergroups, cfg.Now)
	a.pace.outcome = a.health.called
	if cfg.Peers != nil {
		a.pace.share(cfg.Peers, cfg.Scheme)
	}
	a.scribe = scribe.New[outgoing](scribe.Config[*page]{Open: func(t chat.ThreadID) (*page, error) {
		th, err := parseThread(t)
		if err == nil && th.scheme != cfg.Scheme {
			err = fmt.Errorf("slack: %q is of another workspace: %w", t, chat.ErrGone)
		}
		return a.newPage(th), err
	}, Turn: cfg.Turn, Times: &a.times.show, Log: cfg.Log})
	a.health.down("not connected yet")
	return a, nil
}

// transport keeps as many connections as calls can be under way.
func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = maxCalls
	return t
}

// Scheme implements chat.Adapter.
func (a *Adapter) Scheme() string { return a.cfg.Scheme }

// Ready returns nil while events can arrive, here or at another replica, and otherwise
// a sentence.
func (a *Adapter) Ready() error { return a.health.err() }

// State says in a few words whether events arrive here.
func (a *Adapter) State() string { return a.health.state() }

func (a *Adapter) self() identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.me
}

func (a *Adapter) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// Run implements chat.Adapter. It ends with an error only when Slack refuses
// the tokens for good at the start.
func (a *Adapter) Run(ctx context.Context, h chat.Handler) error {
	run, cancel := context.WithCancelCause(ctx)
	a.mu.Lock()
	a.ctx = run
	a.mu.Unlock()
	a.inbox.Open()
	a.background.Open()
	a.scribe.Open(run)
	defer func() {
		a.scribe.Stop()
		cancel(nil)
		a.lingering.Wait()
		a.inbox.Close()
		a.background.Close()
		a.scribe.Close()
		a.scribe.Leave(run)
		a.people.wait()
		a.cfg.HTTPClient.CloseIdleConnections()
	}()
	if err := a.identify(run); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.readMoved(run)
	a.handler.Store(&h)
	defer a.handler.Store(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	if a.cfg.AppToken == "" {
		a.health.gain("http")
		defer a.health.down("stopped")
	} else {
		for i := range a.cfg.Sockets {
			wg.Go(func() { a.socket(run, h, i, cancel) })
		}
	}
	wg.Go(func() {
		a.job(run, strings.Replace(JobCheck, scheme, a.cfg.Scheme, 1), func(ctx context.Context) error { a.check(ctx, h); return nil })
	})
	a.keep(run)
	if why := context.Cause(run); errors.Is(why, errRefused) {
		return why
	}
	return nil
}

// errRefused says that Slack will never take the tokens.
var errRefused = errors.New("slack: a token was refused")

// refusal is errRefused in words for people.
type refusal string

func (r refusal) Error() string        { return string(r) }
func (r refusal) Is(target error) bool { return target == errRefused }

// identify asks Slack who the bot is, until it answers.
func (a *Adapter) identify(ctx context.Context) error {
	delay := 500 * time.Millisecond
	for {
		r, err := a.api.AuthTestContext(ctx)
		if err == nil {
			a.mu.Lock()
			a.me = identity{team: r.TeamID, user: r.UserID, bot: r.BotID, name: a.cfg.Name, url: strings.TrimSuffix(r.URL, "/")}
			if a.me.name == "" {
				a.me.name = r.User
			}
			a.mu.Unlock()
			a.log.InfoContext(ctx, "connected to Slack", "team", r.Team, "bot", r.User)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if why := fatal(err); why != "" {
			return refusal(why)
		}
		a.health.down("Slack does not answer: " + err.Error())
		a.log.WarnContext(ctx, "Slack cannot be reached; trying again", "retry_in", delay, "error", err)
		if !sleep(ctx, delay) {
			return ctx.Err()
		}
		delay = min(2*delay, a.times.backoff)
	}
}

// fatal puts into words why Slack will never take these tokens, "" when trying
// again makes sense.
func fatal(err error) string {
	var said slackapi.SlackErrorResponse
	if !errors.As(err, &said) {
		return ""
	}
	switch said.Err {
	case "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type", "org_login_required":
		return fmt.Sprintf("Slack refuses the token (%s); copy it again from the app's page (SLACK_BOT_TOKEN: OAuth & Permissions, SLACK_APP_TOKEN: Basic Information), or install the app again", said.Err)
	case "missing_scope":
		return fmt.Sprintf("the Slack token lacks a scope (%s); add it on the app's page and install the app again", said.Needed)
	}
	return ""
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
