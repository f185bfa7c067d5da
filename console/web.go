package console

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"countersign/adapters/chat"
	"countersign/store"
)

const scheme = "web"

// Panes shows the terminals that belong to a thread, and lets the person type who has a
// terminal's keyboard. Its methods are safe for concurrent use.
type Panes interface {
	// Panes lists them, in a stable order.
	Panes(ctx context.Context, thread chat.ThreadID) ([]Pane, error)
	// Watch follows one of them until ctx is done. It refuses a pane that does
	// not belong to thread; it wraps [chat.ErrGone] when there is no such pane.
	Watch(ctx context.Context, thread chat.ThreadID, pane string) (Screen, error)
	// Hands tells who has the keyboard of one of them.
	Hands(ctx context.Context, thread chat.ThreadID, pane string) (Hands, error)
	// Press types what a person presses who has the keyboard, in the order of the calls. It
	// does not wait: done gets the result, from any goroutine.
	Press(ctx context.Context, thread chat.ThreadID, pane string, by chat.UserID, keys []byte, done func(error))
	// Resize gives the terminal the size in which the person with the keyboard reads it.
	Resize(ctx context.Context, thread chat.ThreadID, pane string, by chat.UserID, width, height int) error
}

// Hands is who has the keyboard of a terminal.
type Hands struct {
	Holder chat.UserID // "" is the bot
	Name   string      // for people
	Since  time.Time
}

// Pane is one terminal of a thread.
type Pane struct {
	ID      string `json:"id"`      // opaque, for Watch
	Session string `json:"session"` // the tmux session's name
	Name    string `json:"name"`    // what the pane is called in its session
	Attach  string `json:"attach"`  // the command line that attaches to it from a shell; may be empty
	State   string `json:"state"`   // one word: idle, running, ...
	// Keyboard is what people say after "take" and "give" to mean this one.
	Keyboard string `json:"keyboard"`
}

// Screen is a terminal being watched.
type Screen struct {
	Snapshot []byte        // what it shows now, with escape sequences
	Live     <-chan []byte // what it writes from now on; closed when the pane ends
	Width    int           // columns; 0 when unknown
	Height   int           // rows; 0 when unknown
}

// Config is what an [Adapter] is made from.
type Config struct {
	DB  store.DB
	Key []byte // 32 secret bytes that sign login codes and name the cookies, the same for all replicas; a new key ends all sessions
	// Origin is the page's address as browsers name it, for example
	// "https://bot.example.com" or "http://127.0.0.1:8700", without a path.
	// Empty means that it is derived from the Host header, which is safe only on
	// a loopback listener (there the name must be a loopback one too); behind a
	// proxy that ends TLS it must be set.
	Origin string
	// Users tells what somebody may do here. It is asked again at every request, so
	// a name that it stops knowing is out at once. groups are those that the
	// identity provider named when the person signed in, none for who came by a
	// link. It is safe for concurrent use and quick.
	Users func(name string, groups []string) Role
	// OIDC lets people sign in through an identity provider, beside links; nil: by
	// links alone. It needs Origin. Names of both kinds are the same people: a name
	// that the provider gives must be one that people cannot choose freely.
	OIDC OIDC
	// Names are the people whom the configuration names. Who comes through the identity
	// provider with a name that looks like one of them, and is not, is refused. It is
	// safe for concurrent use and quick. Nil: nobody is named.
	Names     func() []string
	OIDCLabel string // what the button for it says; default sayOIDCLabel
	// Idle is after how long without any request a session ends (a twentieth of it
	// early at most): default 2 hours, at least a minute. An open page asks all the
	// time, so it means that the browser was closed or asleep. Absolute is when a
	// session ends in any case: default 12 hours, at least a minute. The groups of
	// who came through the identity provider are as old as that at most.
	Idle, Absolute time.Duration
	// ActsAtOnce is how many messages, clicks and links one session may send at once:
	// default 20; ActsPerSecond is how many more it may send each second: default 1.
	ActsAtOnce    int
	ActsPerSecond float64
	// Proxies are the addresses of reverse proxies of ours: only from them is
	// X-Forwarded-For believed. Without them everybody behind a proxy is one
	// address to the limit of sign-in attempts.
	Proxies []netip.Prefix
	// Audit is called in the transaction that makes or ends a session or a watch
	// link, and in one of its own for a refused sign-in, of which only some are
	// written when there are many. It may run more than once, must have no effect
	// outside the transaction, and is safe for concurrent use. Nil: no audit.
	Audit func(store.Tx, Access)
	// WatchLinks lets members share one terminal session with people who cannot
	// sign in. It needs Panes.
	WatchLinks bool
	Desk       Desk  // nil: the first page tells nothing of what goes on
	Lists      Lists // nil: there are none
	// Passkeys has the passkeys that people sign approvals with; nil where the console's address
	// allows none.
	Passkeys Passkeys
	// Push tells people in their browsers of cards that need them, if they want. It needs Desk;
	// nil: nobody is told.
	Push Pusher
	// OnPush is called when a push service refuses messages for a browser, and when it no longer
	// does; nil is not.
	OnPush func(PushProblem)
	// Redact takes secrets out of what such a message says; nil takes out nothing.
	Redact func(string) string
	Panes  Panes // nil: no terminals
	// Recordings of terminals, to be played on the page; nil: none.
	Recordings Recordings
	Outputs    Outputs // nil: none is kept
	// Identities knows whose tokens of other providers are good here; nil: nobody's.
	Identities Identities
	// Calls lets programs ask; nil: none can.
	Calls chat.Calls
	// Tell is set where several replicas share DB. It is called in every transaction
	// after which a stream at another replica has something to look at, and should
	// have [Adapter.Notify] of the others called with thread after the commit: soon,
	// any number of times, or not at all, since open streams look at the store every
	// two seconds as well. thread is a [chat.ThreadID], or empty: every stream has to
	// look. It may run more than once, must have no effect outside the transaction,
	// and is safe for concurrent use. Nil, with Share nil too: this console is alone.
	Tell func(tx store.Tx, thread string)
	// Share tells other replicas of progress in thread: it should have
	// [Adapter.HeardProgress] of the others called with what it is given, soon or not
	// at all. p is made for that alone; its Key says more than the key. Thread and p
	// as JSON (encoding/json) have less than 3500 bytes and are valid UTF-8. [Adapter.Run]
	// calls it, from one goroutine, at most 20 times a second over time and twice a
	// second for one key, and once more for each that is left when it ends. Nil:
	// pages show the progress of the replica that serves them.
	Share func(thread string, p chat.Progress)
	// SignIn is how to get a sign-in link, as markup; "" is the command that makes one.
	SignIn string
	Title  string // the bot's name on the page; default "Countersign"
	// Examples are first messages that the empty page offers; nil offers a few
	// common ones.
	Examples []string
	Log      *slog.Logger     // default: nothing is logged
	Now      func() time.Time // default time.Now
}

// Adapter is the web console. It is safe for concurrent use.
type Adapter struct {
	db         store.DB
	key        []byte
	origin     string // "" derives it from Host
	users      func(string, []string) Role
	oidc       OIDC
	names      func() []string // never nil
	idle       time.Duration
	absolute   time.Duration
	proxies    []netip.Prefix
	audit      func(store.Tx, Access)
	watchLinks bool
	desk       Desk
	lists      Lists
	passkeys   Passkeys   // nil: there are none
	programs   chat.Calls // nil: programs can't ask
	identities Identities // nil: there are none
	pusher     Pusher     // nil: nobody gets any
	onPush     func(PushProblem)
	redact     func(string) string // never nil
	pushes     sync.WaitGroup
	panes      Panes
	recordings Recordings
	outputs    Outputs
	title      string
	log        *slog.Logger
	now        func() time.Time
	beat       time.Duration // how often a stream shows that it lives
	assets     map[string]asset
	refused    []byte // a page, see refusalPage
	hub        *hub
	logins     *limiter // attempts with no right code, by address
	starts     *limiter // sign-ins begun at the provider, by address
	tries      *limiter // and by name
	refusals   *refusals
	acts       *buckets // what people do, by session
	asks       *buckets // what programs ask for, by token
	looks      *buckets // requests about watch links, by address
	streams    *streams
	bell       *bell
	cookieTag  string                      // what the names of its cookies end with
	name       string                      // of this replica, new with each start
	shared     bool                        // other replicas may work on the store
	tell       func(store.Tx, string)      // never nil
	share      func(string, chat.Progress) // may be nil
	sharer     *sharer
	sights     *sights
	turns      [64]chan struct{} // one token each: who has a thread's token may accept a message in it

	mu      sync.Mutex // guards what follows
	handler chat.Handler
	calls   *sync.WaitGroup // calls into handler that are under way
	stop    chan struct{}   // closed when Run ends
	ready   chan struct{}   // closed by the first Run
	began   sync.Once
}

var (
	_ chat.Adapter        = (*Adapter)(nil)
	_ chat.ProgressShower = (*Adapter)(nil)
	_ chat.Opener         = (*Adapter)(nil)
)

// New checks the configuration. Its errors are one sentence that says what to
// mend.
func New(cfg Config) (*Adapter, error) {
	if cfg.DB == nil {
		return nil, errors.New("web: the console needs a store: set Config.DB")
	}
	if len(cfg.Key) != keySize {
		return nil, fmt.Errorf("web: the console's key has %d bytes: give it exactly %d random ones", len(cfg.Key), keySize)
	}
	if cfg.Users == nil {
		return nil, errors.New("web: nobody could sign in: set Config.Users")
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	if cfg.Desk == nil {
		cfg.Push = nil // nothing tells who is needed
	}
	origin, err := cleanOrigin(cfg.Origin)
	if err != nil {
		return nil, err
	}
	if cfg.OIDC != nil && origin == "" {
		return nil, errors.New("web: the identity provider must know where to send people back to: set Config.Origin")
	}
	if cfg.WatchLinks && cfg.Panes == nil {
		return nil, errors.New("web: there are no terminals to share: set Config.Panes, or leave Config.WatchLinks off")
	}
	cfg.defaults()
	if cfg.Idle < leastLife || cfg.Absolute < leastLife {
		return nil, fmt.Errorf("web: sessions cannot end after %s idle or %s in all: give each at least %s", cfg.Idle, cfg.Absolute, leastLife)
	}
	if cfg.ActsAtOnce < 1 || cfg.ActsPerSecond <= 0 {
		return nil, fmt.Errorf("web: nobody could send anything with %d acts at once and %g a second: give at least one, and more than none", cfg.ActsAtOnce, cfg.ActsPerSecond)
	}
	a := &Adapter{
		ready:      make(chan struct{}),
		db:         cfg.DB,
		key:        append([]byte(nil), cfg.Key...),
		origin:     origin,
		users:      cfg.Users,
		oidc:       cfg.OIDC,
		names:      cfg.Names,
		idle:       cfg.Idle,
		absolute:   cfg.Absolute,
		proxies:    slices.Clone(cfg.Proxies),
		audit:      cfg.Audit,
		watchLinks: cfg.WatchLinks,
		desk:       cfg.Desk,
		lists:      cfg.Lists,
		passkeys:   cfg.Passkeys,
		programs:   cfg.Calls, identities: cfg.Identities, asks: newBuckets(cfg.Now, asksPerSecond, asksAtOnce),
		pusher:     cfg.Push,
		onPush:     cfg.OnPush,
		redact:     cfg.Redact,
		panes:      cfg.Panes,
		recordings: cfg.Recordings,
		outputs:    cfg.Outputs,
		title:      cfg.Title,
		log:        cfg.Log,
		now:        cfg.Now,
		beat:       15 * time.Second,
		hub:        newHub(),
		bell:       newBell(),
		name:       short([]byte(secret())),
		shared:     cfg.Tell != nil || cfg.Share != nil,
		tell:       cfg.Tell,
		share:      cfg.Share,
		sights:     newSights(),
		stop:       make(chan struct{}),
		cookieTag:  "_" + hex.EncodeToString(mac(cfg.Key, "cookie name", "")[:6]),
	}
	if a.tell == nil {
		a.tell = func(store.Tx, string) {}
	}
	if a.shared {
		a.sharer = newSharer(a.name)
		a.hub.self, a.hub.out = a.name, a.sharer.offer
	}
	a.logins = newLimiter(a.now, attemptsEach, attemptsAll)
	a.starts = newLimiter(a.now, attemptsEach, attemptsAll)
	a.tries = newLimiter(a.now, attemptsEach, 0)
	a.refusals = newRefusals()
	a.acts = newBuckets(a.now, rate.Limit(cfg.ActsPerSecond), cfg.ActsAtOnce)
	a.looks = newBuckets(a.now, looksRate, looksBurst)
	a.streams = newStreams(streamsEach, streamsAll)
	for i := range a.turns {
		a.turns[i] = make(chan struct{}, 1)
	}
	if a.assets, err = loadAssets(pageParts(cfg)); err != nil {
		return nil, err
	}
	a.refused = a.assets[refusedFile].body
	delete(a.assets, refusedFile)
	if !a.watchLinks {
		delete(a.assets, "/watch")
		delete(a.assets, "/watch.js")
	}
	return a, nil
}

func (cfg *Config) defaults() {
	if cfg.Title == "" {
		cfg.Title = "Countersign"
	}
	if cfg.OIDCLabel == "" {
		cfg.OIDCLabel = sayOIDCLabel
	}
	if cfg.Examples == nil {
		cfg.Examples = []string{"Why is the disk filling up on this host?", "The web service answers slowly. Find out what changed.", "Show me what you can do here."}
	}
	if cfg.Names == nil {
		cfg.Names = func() []string { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.ActsAtOnce == 0 {
		cfg.ActsAtOnce = actsBurst
	}
	if cfg.ActsPerSecond == 0 {
		cfg.ActsPerSecond = actsRate
	}
	if cfg.Idle == 0 {
		cfg.Idle = defaultIdle
	}
	if cfg.Absolute == 0 {
		cfg.Absolute = defaultAbsolute
	}
}

// cleanOrigin brings s to the form in which browsers send it.
func cleanOrigin(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("web: %q is not an origin: write it like https://bot.example.com", s)
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "http" {
		host = strings.TrimSuffix(host, ":80")
	} else {
		host = strings.TrimSuffix(host, ":443")
	}
	return u.Scheme + "://" + host, nil
}

// Scheme implements [chat.Adapter].
func (a *Adapter) Scheme() string { return scheme }

// Ready is closed once Run accepts messages for the first time: before that the
// console answers every message with a 503.
func (a *Adapter) Ready() <-chan struct{} { return a.ready }

// Run implements [chat.Adapter]: it hands over what a crash left pending, then
// gives h the messages and clicks that come in through [Adapter.Handler]. Among
// several replicas it hands over what dead ones left for as long as it runs, and
// looks at what they posted. When ctx is done it ends the open streams, waits for
// the calls under way, and returns nil. Until Run is called, and after it, people
// can read but not act.
func (a *Adapter) Run(ctx context.Context, h chat.Handler) error {
	if !a.shared {
		if err := a.handOver(ctx, h); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // told to stop while starting
			}
			return err
		}
	}
	// The configuration may have changed while nobody ran.
	if err := a.Recheck(ctx); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "sessions of people who are out could not be ended; they are refused all the same", "error", err)
	}
	a.mu.Lock()
	if a.handler != nil {
		a.mu.Unlock()
		return errors.New("web: the console is running already: call Run once")
	}
	calls := new(sync.WaitGroup)
	a.handler, a.calls = h, calls
	a.began.Do(func() { close(a.ready) })
	select {
	case <-a.stop: // an earlier Run has ended
		a.stop = make(chan struct{})
	default:
	}
	a.mu.Unlock()
	if a.pusher != nil {
		calls.Go(func() {
			a.every(ctx, pushEvery, "people who are needed", a.tellNeeded)
			a.pushes.Wait()
		})
	}
	calls.Go(func() {
		if err := a.fillTexts(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "conversations of earlier versions can't be searched; the next start tries again", "error", err)
		}
	})
	if a.shared {
		calls.Go(func() {
			a.every(ctx, lookEvery, "news", func(ctx context.Context) error {
				a.hub.keep(time.Now())
				return a.look(ctx)
			})
		})
		calls.Go(func() {
			a.every(ctx, adoptEvery, "pending messages", func(ctx context.Context) error { return a.adopt(ctx, h) })
		})
		calls.Go(func() { a.sharer.run(ctx, a.send) })
	}

	<-ctx.Done()
	a.mu.Lock()
	a.handler = nil
	close(a.stop)
	a.mu.Unlock()
	calls.Wait()
	return nil
}

// enter gives the handler for one call; leave must be called after it. The
// handler is nil while nobody runs the adapter.
func (a *Adapter) enter() (h chat.Handler, leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.handler == nil {
		return nil, func() {}
	}
	a.calls.Add(1)
	return a.handler, a.calls.Done
}

// stopping is closed when streams have to end.
func (a *Adapter) stopping() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stop
}

// ShowsOutputs implements [chat.OutputViewer].
func (*Adapter) ShowsOutputs() {}

// Post implements [chat.Adapter]. The same Key in the same thread replaces the
// message, at its place; an empty Key always makes a new one. It returns
// [chat.ErrGone] for a thread that does not exist and [chat.ErrRejected] for
// more than 4 MiB.
func (a *Adapter) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	id, ok := threadPart(t)
	if !ok {
		return "", chat.ErrGone
	}
	if tooBig(p) {
		return "", fmt.Errorf("%w: it has more than %d bytes", chat.ErrRejected, maxPost)
	}
	var ref chat.MessageRef
	err := store.UpdateRelaxed(ctx, a.db, func(tx store.Tx) error {
		var err error
		ref, err = writePost(tx, id, p, a.now())
		a.tellOthers(tx, id)
		return err
	})
	if err != nil {
		return "", err
	}
	a.hub.posted(id, p.Key)
	return ref, nil
}

// Open implements [chat.Opener]. There is one channel, "web"; the same key always
// gives the same thread.
func (a *Adapter) Open(ctx context.Context, channel, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	switch {
	case channel != scheme:
		return "", "", fmt.Errorf("%w: the console has one channel, \"web\", and not %q", chat.ErrGone, channel)
	case !p.Opens() || tooBig(p) || p.Key == "" || key == "":
		return "", "", fmt.Errorf("%w: a thread begins with one message that has a key and neither files nor buttons", chat.ErrRejected)
	}
	id := openedThreadID(key)
	var ref chat.MessageRef
	err := a.db.Update(ctx, func(tx store.Tx) error {
		var err error
		ref, err = openThread(tx, id, p, a.now())
		a.tellOthers(tx, id)
		return err
	})
	if err != nil {
		return "", "", err
	}
	a.hub.posted(id, p.Key)
	return threadID(id), ref, nil
}

// Edit implements [chat.Adapter]. The message keeps its place and its key.
func (a *Adapter) Edit(ctx context.Context, t chat.ThreadID, r chat.MessageRef, p chat.Post) error {
	id, ok := threadPart(t)
	if !ok {
		return chat.ErrGone
	}
	if tooBig(p) {
		return fmt.Errorf("%w: it has more than %d bytes", chat.ErrRejected, maxPost)
	}
	var key string
	err := store.UpdateRelaxed(ctx, a.db, func(tx store.Tx) error {
		var err error
		key, err = editPost(tx, id, r, p, a.now())
		a.tellOthers(tx, id)
		return err
	})
	if err != nil {
		return err
	}
	a.hub.posted(id, key)
	if p.Key != "" && p.Key != key {
		a.hub.posted(id, p.Key)
	}
	return nil
}

// ShowProgress implements [chat.ProgressShower]. Who reads slowly misses
// values in between and gets the latest.
func (a *Adapter) ShowProgress(_ context.Context, t chat.ThreadID, p chat.Progress) {
	if id, ok := threadPart(t); ok {
		a.hub.progress(id, p)
	}
}

// Server gives h the limits that a console on a network needs: slow headers,
// slow bodies and forgotten connections are cut. Streams extend their own
// deadlines, so they live as long as their readers.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}

// threadPart takes the scheme off a thread id.
func threadPart(t chat.ThreadID) (id string, ok bool) {
	id, ok = strings.CutPrefix(string(t), scheme+":")
	return id, ok && validID(id)
}

func threadID(id string) chat.ThreadID { return chat.ThreadID(scheme + ":" + id) }

func userID(name string) chat.UserID { return chat.UserID(scheme + ":" + name) }

func tooBig(p chat.Post) bool {
	n, files := len(p.Text), p.Files
	if c := p.Card; c != nil {
		files = slices.Concat(files, c.Attach)
		for s := range c.Texts() {
			n += len(*s)
		}
		for _, b := range slices.Concat(c.Choose, c.After) {
			n += len(b.Label) + len(b.Confirm) + len(b.Edit)
		}
	}
	for _, f := range files {
		n += len(f.Name) + len(f.Text) + len(f.Data)
	}
	return n > maxPost
}
