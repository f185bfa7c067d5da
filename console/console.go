package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/store"
)

const scheme = "web"

// Config is what an [Adapter] is made from.
type Config struct {
	DB  store.DB
	Log *slog.Logger     // default: nothing is logged
	Now func() time.Time // default time.Now
	DoorConfig
	ReplicaConfig
	PageConfig
	PartsConfig
}

// DoorConfig says who gets in.
type DoorConfig struct {
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
	Names func() []string
	// Idle is after how long without any request a session ends (a twentieth of it
	// early at most): default 2 hours, at least a minute. An open page asks all the
	// time, so it means that the browser was closed or asleep. Absolute is when a
	// session ends in any case: default 12 hours, at least a minute. The groups of
	// who came through the identity provider are as old as that at most.
	Idle, Absolute time.Duration
	// ActionsAtOnce is how many messages, clicks and links one session may send at once:
	// default 20; ActionsPerSecond is how many more it may send each second: default 1.
	ActionsAtOnce    int
	ActionsPerSecond float64
	// Proxies are the addresses of reverse proxies of ours: only from them is
	// X-Forwarded-For believed. Without them everybody behind a proxy is one
	// address to the limit of sign-in attempts.
	Proxies []netip.Prefix
	// Audit is called in the transaction that makes or ends a session or a watch
	// link, and in one of its own for a refused sign-in, of which only some are
	// written when there are many. It may run more than once, must have no effect
	// outside the transaction, and is safe for concurrent use. Nil: no audit.
	Audit func(store.Tx, Access)
	// Passkeys has the passkeys that people sign approvals with; nil where the console's address
	// allows none.
	Passkeys Passkeys
	// Identities knows whose tokens of other providers are good here; nil: nobody's.
	Identities Identities
}

// ReplicaConfig is for several replicas over one store.
type ReplicaConfig struct {
	// Tell is set where several replicas share DB. It is called in every transaction
	// after which a stream at another replica has something to look at, and should
	// have [Adapter.Notify] of the others called with thread after the commit: soon,
	// any number of times, or not at all, since open streams look at the store every
	// two seconds as well. thread is a [chat.ThreadID], or empty: every stream has to
	// look. It may run more than once, must have no effect outside the transaction,
	// and is safe for concurrent use. Nil, with Share nil too: this console is alone.
	Tell func(tx store.Tx, thread string)
	// Share tells other replicas of progress in thread: it should have
	// [Adapter.ReceiveProgress] of the others called with what it is given, soon or not
	// at all. p is made for that alone; its Key says more than the key. Thread and p
	// as JSON (encoding/json) have less than 3500 bytes and are valid UTF-8. [Adapter.Run]
	// calls it, from one goroutine, at most 20 times a second over time and twice a
	// second for one key, and once more for each that is left when it ends. Nil:
	// pages show the progress of the replica that serves them.
	Share func(thread string, p chat.Progress)
}

// PageConfig is what the page says.
type PageConfig struct {
	// SignIn is how to get a sign-in link, as markup; "" is the command that makes one.
	SignIn    string
	Title     string // the bot's name on the page; default "Countersign"
	OIDCLabel string // what the button for it says; default sayOIDCLabel
	// Examples are first messages that the empty page offers; nil offers a few
	// common ones.
	Examples []string
}

// PartsConfig is what there is beside conversations.
type PartsConfig struct {
	Desk  Desk  // nil: the first page tells nothing of what goes on
	Lists Lists // nil: there are none
	// Calls lets programs ask; nil: none can.
	Calls api.Calls
	// Push tells people in their browsers of cards that need them, if they want. It needs Desk;
	// nil: nobody is told.
	Push Pusher
	// OnPush is called when a push service refuses messages for a browser, and when it no longer
	// does; nil is not.
	OnPush func(PushProblem)
	// Redact takes secrets out of what such a message says; nil takes out nothing.
	Redact func(string) string
	Panes  Panes // nil: no terminals
	// WatchLinks lets members share one terminal session with people who cannot
	// sign in. It needs Panes.
	WatchLinks bool
	// Recordings of terminals, to be played on the page; nil: none.
	Recordings Recordings
	Outputs    Outputs // nil: none is kept
}

// Adapter is the web console. It is safe for concurrent use.
type Adapter struct {
	*talk
	door    *door
	push    *push
	handler http.Handler
}

var (
	_ chat.Adapter        = (*Adapter)(nil)
	_ chat.ProgressShower = (*Adapter)(nil)
	_ chat.Opener         = (*Adapter)(nil)
)

// New checks the configuration. Its errors are one sentence that says what is wrong and what to do.
func New(cfg Config) (*Adapter, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p, err := newPages(cfg)
	if err != nil {
		return nil, err
	}
	g, open := ground{cfg.DB, cfg.Now, cfg.Log}, newStreams(streamsEach, streamsAll)
	tk := newTalk(g, cfg.ReplicaConfig, open, cfg.Desk != nil)
	a := &Adapter{
		talk: tk, door: newDoor(g, cfg.DoorConfig, cfg.Title, tk.tell, p, open),
		push: &push{ground: g, pusher: cfg.Push, desk: cfg.Desk, users: cfg.Users, onPush: cfg.OnPush, redact: cfg.Redact},
	}
	a.handler = a.routes(g, cfg, p)
	return a, nil
}

// check brings the configuration to its final form.
func (cfg *Config) check() (err error) {
	if cfg.DB == nil {
		return errors.New("web: the console needs a store: set Config.DB")
	}
	if len(cfg.Key) != keySize {
		return fmt.Errorf("web: the console's key has %d bytes: give it exactly %d random ones", len(cfg.Key), keySize)
	}
	if cfg.Users == nil {
		return errors.New("web: nobody could sign in: set Config.Users")
	}
	if cfg.Origin, err = cleanOrigin(cfg.Origin); err != nil {
		return err
	}
	if cfg.OIDC != nil && cfg.Origin == "" {
		return errors.New("web: the identity provider must know where to send people back to: set Config.Origin")
	}
	if cfg.WatchLinks && cfg.Panes == nil {
		return errors.New("web: there are no terminals to share: set Config.Panes, or leave Config.WatchLinks off")
	}
	cfg.defaults()
	if cfg.Idle < leastLife || cfg.Absolute < leastLife {
		return fmt.Errorf("web: sessions cannot end after %s idle or %s in all: give each at least %s", cfg.Idle, cfg.Absolute, leastLife)
	}
	if cfg.ActionsAtOnce < 1 || cfg.ActionsPerSecond <= 0 {
		return fmt.Errorf("web: nobody could send anything with %d acts at once and %g a second: give at least one, and more than none", cfg.ActionsAtOnce, cfg.ActionsPerSecond)
	}
	return nil
}

func (cfg *Config) defaults() {
	cfg.Key, cfg.Proxies = slices.Clone(cfg.Key), slices.Clone(cfg.Proxies)
	cfg.Title = cmp.Or(cfg.Title, "Countersign")
	cfg.OIDCLabel = cmp.Or(cfg.OIDCLabel, sayOIDCLabel)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.ActionsAtOnce = cmp.Or(cfg.ActionsAtOnce, actionsBurst)
	cfg.ActionsPerSecond = cmp.Or(cfg.ActionsPerSecond, actionsRate)
	cfg.Idle = cmp.Or(cfg.Idle, defaultIdle)
	cfg.Absolute = cmp.Or(cfg.Absolute, defaultAbsolute)
	if cfg.Examples == nil {
		cfg.Examples = []string{"Why is the disk filling up on this host?", "The web service answers slowly. Find out what changed.", "Show me what you can do here."}
	}
	if cfg.Names == nil {
		cfg.Names = func() []string { return nil }
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	if cfg.Desk == nil {
		cfg.Push = nil // nothing tells who is needed
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
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

// Handler serves the page and its API. It expects to be mounted at the root of
// its origin.
func (a *Adapter) Handler() http.Handler { return a.handler }

// Run implements [chat.Adapter]: it hands over what a crash left pending, then
// gives h the messages and clicks that come in through [Adapter.Handler]. Among
// several replicas it hands over what dead ones left for as long as it runs, and
// looks at what they posted. When ctx is done it ends the open streams, waits for
// the calls under way, and returns nil. Until Run is called, and after it, people
// can read but not act.
func (a *Adapter) Run(ctx context.Context, h chat.Handler) error {
	if !a.shared {
		if err := a.inbox.handOver(ctx, h); err != nil {
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
	calls, ok := a.begin(h)
	if !ok {
		return errors.New("web: the console is running already: call Run once")
	}
	if a.push.pusher != nil {
		calls.Go(func() {
			a.every(ctx, pushEvery, "people who are needed", a.push.tellNeeded)
			a.push.pushes.Wait()
		})
	}
	calls.Go(func() {
		if err := fillTexts(ctx, a.db); err != nil && ctx.Err() == nil {
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
			a.every(ctx, adoptEvery, "pending messages", func(ctx context.Context) error { return a.inbox.adopt(ctx, h) })
		})
		calls.Go(func() { a.sharer.run(ctx, a.send) })
	}

	<-ctx.Done()
	a.end()
	calls.Wait()
	return nil
}

// Recheck ends the sessions and tokens of people whom [DoorConfig.Users] gives no role any more, the
// watch links of those who are no members, and the streams of both. Call it when the
// answers of Users have changed. Who is let in again later has to sign in again.
func (a *Adapter) Recheck(ctx context.Context) error { return a.door.sessions.recheck(ctx) }

// Neighbourhood is where a request came from, as limits count it: an address, or of IPv6 its network.
func (a *Adapter) Neighbourhood(r *http.Request) string {
	return neighbourhood(a.door.visitors.address(r))
}

// Metadata is the address of [MetadataPath] as a request reaches the bot; "" is none.
func (a *Adapter) Metadata(r *http.Request) string {
	if x := a.door.identities; x.identities == nil || x.identities.Issuer() == "" {
		return ""
	}
	return a.door.guard.pageOrigin(r) + MetadataPath
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
