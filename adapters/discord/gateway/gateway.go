// Package gateway keeps the bot connected to Discord: [Supervisor] is a
// connection to the gateway that comes back by itself, never hangs and never
// uses up the day's IDENTIFYs, and [REST] makes the calls of the HTTP API within
// Discord's limits.
//
// A [connection] is one WebSocket (github.com/coder/websocket) whose state belongs to
// one goroutine: a step, and a table of what Discord may send at each. A [shard]
// decides what the end of a connection means for the next one: whether the session is
// resumed, and how long to wait. An IDENTIFY goes out with a permit only. An event
// counts as received once it is decoded, checked and queued; one for which there is no
// room ends the connection, so that the RESUME brings it again. Nothing is dropped.
//
// github.com/bwmarrin/discordgo serves for the types of events and answers. Its session
// is not used: it dead-locks when a RESUME is answered by "reconnect", identifies once
// a second for ever after a fatal close code (which makes Discord reset the token in a
// quarter of an hour), ends the session by the code that it closes with, and hands out
// half-decoded events whose nil fields end the process.
//
// Where several replicas of the bot run, each shard is a job that one of them has at a
// time ([Config].Do). A session cannot go on in another process, so the next holder begins
// one, and OnGap says that something may be missing.
//
// It does not know what events mean, keeps no state of guilds and channels, and
// does not fetch what was missed while no session was alive: [Config].OnGap says
// that something may be missing.
package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/internal/redact"
)

// Config is what a [Supervisor] needs. Its functions may be called from several
// goroutines at once, except OnState. A panic in one is logged and counted.
type Config struct {
	// Token is the bot's, without "Bot " in front.
	Token redact.Secret
	// APIURL is the API's address with its version; "" is Discord's own. Where to
	// connect comes from its GET /gateway/bot.
	APIURL string
	// Intents are the kinds of events that Discord is asked for.
	Intents discordgo.Intent
	// Shards is the number of connections; 0 is what Discord recommends.
	Shards int
	// Do runs run while this process has a job that one of several replicas may do at
	// a time; run's context ends when the job goes elsewhere, and run may be called
	// again. Each shard is such a job, named by [JobShard]. nil: all shards are this
	// process's.
	Do  func(ctx context.Context, job string, run func(ctx context.Context) error) error
	Log *slog.Logger
	Now func() time.Time // of the times in [State] and OnGap; nil is time.Now

	// Events gets every event once, and a second time only when a connection broke
	// while it was on its way: a pointer to one of discordgo's MessageCreate,
	// MessageUpdate (by a person), MessageDelete, MessageDeleteBulk,
	// InteractionCreate, ChannelCreate, ChannelUpdate, ChannelDelete,
	// ThreadCreate, ThreadUpdate, ThreadDelete, GuildCreate, GuildDelete or Ready
	// (of which User, Application.ID, Guilds' ids, SessionID and Shard are set).
	// What every event of a kind has is there: ids, the author, of an interaction
	// the person, its token and the data of its type. Events of one channel come in
	// their order, one at a time, and those of different channels side by side.
	// Interactions have an order of their own for each person and channel. ctx
	// ends five seconds after Run's.
	Events func(ctx context.Context, shard int, event any)
	// OnState is told each change, in order; it must return soon.
	OnState func(State)
	// OnGap is told that a new session began, in which Discord does not repeat what
	// happened after since: the moment, by this machine's clock, at which the last
	// message of the session before was dealt with (zero: in this process none was
	// before). One call of a shard follows the other; ctx ends with Run's.
	OnGap func(ctx context.Context, shard int, since time.Time)

	// REST is used instead of one of its own, so that all calls share the limits.
	REST *REST
	// Dial opens the connections below TLS; nil dials directly. The environment's
	// proxy is asked for encrypted ones, as it is for HTTP calls.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Phase is how a shard is.
type Phase string

// The phases.
const (
	Connecting Phase = "connecting" // for the first time
	Ready      Phase = "ready"      // with a new session
	Resumed    Phase = "resumed"    // with the session of before: nothing was missed
	Down       Phase = "down"       // and coming back
	Fatal      Phase = "fatal"      // and not coming back
	Elsewhere  Phase = "elsewhere"  // another replica holds the connection
)

// State is the state of one shard.
type State struct {
	Shard int
	Phase Phase
	Since time.Time // of Down: when the last working connection ended
	Why   string    // of Connecting, Down, Fatal and Elsewhere: a phrase
}

// Up says whether events arrive.
func (s State) Up() bool { return s.Phase == Ready || s.Phase == Resumed }

// Stats count since the start.
type Stats struct {
	Identifies int64 // IDENTIFYs sent
	Resumes    int64 // RESUMEs sent
	Lost       int64 // connections that worked and ended
	Malformed  int64 // events that were dropped because they were broken
	Panics     int64 // in Events, OnState and OnGap
	Full       int64 // connections ended because events were not handled fast enough
	Waiting    int   // events that wait right now
}

// Supervisor keeps the shards of one bot connected. It is safe for concurrent use.
type Supervisor struct {
	cfg      Config
	rest     *REST
	budget   *budget
	log      *slog.Logger
	times    times
	capacity struct{ perKey, total int }
	roots    *x509.CertPool // nil: the system's
	proxy    func(*http.Request) (*url.URL, error)

	identifies, resumes, lost, malformed, panics, full atomic.Int64

	takeover   takeover
	reporting  sync.Mutex // OnState, one call after the other
	mu         sync.Mutex
	running    bool
	stopReason string // why Run ended
	shards     []*shard
}

// times are the waits; tests shorten none of them but let time pass faster.
type times struct {
	open      time.Duration // from the dialling to READY or RESUMED
	closing   time.Duration // for Discord to answer a goodbye
	base, cap time.Duration // between attempts, doubled and with jitter
	// resume is the cap while a session may be resumed, which costs nothing, and held
	// from when on a connection of such a session shows that the network is there.
	resume, held time.Duration
	identify     time.Duration // cap between sessions that do not last
	stable       time.Duration // from when on a connection holds: the next one is tried soon
	lasting      time.Duration // from when on it lasted: the next session is begun soon
	room         time.Duration // for the queue to empty
	drain        time.Duration // for what is queued at the end
	// Among several replicas: for a job until another replica must have it, for a
	// shard to connect until the next one is asked for, and for a session to be
	// resumed after its job was elsewhere.
	unheld, takeover, resumable time.Duration
}

// New returns a Supervisor. It connects to nothing yet.
func New(cfg Config) (*Supervisor, error) {
	if cfg.Events == nil {
		return nil, errors.New("discord: there is nobody to hand the events to; set Events")
	}
	if cfg.Shards < 0 {
		return nil, errors.New("discord: the number of shards is negative; leave it at 0 for the one that Discord recommends")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	rest := cfg.REST
	if rest == nil {
		var err error
		if rest, err = NewREST(RESTConfig{Token: cfg.Token, APIURL: cfg.APIURL, Log: cfg.Log}); err != nil {
			return nil, err
		}
	}
	s := &Supervisor{
		cfg: cfg, rest: rest, log: cfg.Log, budget: newBudget(rest.Gateway), stopReason: "not started",
		proxy: http.ProxyFromEnvironment,
		times: times{open: 30 * time.Second, closing: 3 * time.Second, base: time.Second, cap: 30 * time.Second, resume: 5 * time.Second, held: 5 * time.Second, identify: 2 * time.Minute,
			stable: 30 * time.Second, lasting: 10 * time.Minute, room: 30 * time.Second, drain: 5 * time.Second,
			unheld: 3 * time.Second, takeover: 5 * time.Second, resumable: 30 * time.Second},
	}
	s.capacity.perKey, s.capacity.total = 256, 4096
	return s, nil
}

// REST makes calls as the same bot and within the same limits.
func (s *Supervisor) REST() *REST { return s.rest }

// Run connects all shards and keeps them connected until ctx is done; then it is
// nil. It ends with a [FatalError] when Discord refuses the bot until a person
// changes something. What was queued is handed over before it returns. One Run
// is at work at a time.
func (s *Supervisor) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return errors.New("discord: Run is at work already")
	}
	s.running, s.stopReason, s.shards = true, "no shard is connected yet", nil
	s.mu.Unlock()
	err := s.run(ctx)
	s.rest.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.stopReason = false, "stopped"
	if fatal, ok := errors.AsType[*FatalError](err); ok {
		s.stopReason = fatal.Fix
		return fatal
	}
	return nil
}

func (s *Supervisor) run(ctx context.Context) error {
	n, err := s.shardCount(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events, drained := context.WithCancel(context.WithoutCancel(ctx))
	defer drained()
	shards := make([]*shard, n)
	for i := range shards {
		shards[i] = newShard(ctx, events, s, i, n)
	}
	s.mu.Lock()
	s.shards = shards
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, sh := range shards {
		sh.enter(Connecting, "not connected yet")
		wg.Go(func() {
			if err := s.hold(ctx, sh); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	late := time.AfterFunc(s.times.drain, drained)
	defer late.Stop()
	for _, sh := range shards {
		sh.lanes.close()
		sh.gaps.close()
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return ctx.Err()
}

// shardCount finds out how many shards there are.
func (s *Supervisor) shardCount(ctx context.Context) (int, error) {
	if s.cfg.Shards > 0 {
		return s.cfg.Shards, nil
	}
	for fails := 1; ; fails++ {
		g, err := s.budget.gateway(ctx)
		if err == nil {
			return g.Shards, nil
		}
		if errors.Is(err, ErrUnauthorized) {
			return 0, s.fatal(401)
		}
		delay := s.backoff(fails, s.times.cap)
		s.log.WarnContext(ctx, "discord cannot be asked where to connect; asking again", "retry_in", delay, "error", err)
		s.mu.Lock()
		s.stopReason = "cannot ask where to connect: " + reason(err)
		s.mu.Unlock()
		if err := pause(ctx, delay); err != nil {
			return 0, err
		}
	}
}

// backoff is the wait after so many failures in a row, with jitter.
func (s *Supervisor) backoff(fails int, most time.Duration) time.Duration {
	d := s.times.base
	for range fails - 1 {
		if d = 2 * d; d >= most {
			break
		}
	}
	return jitter(min(d, most))
}

// States are the shards' states; none before Run knows how many there are.
func (s *Supervisor) States() []State {
	s.mu.Lock()
	shards := s.shards
	s.mu.Unlock()
	list := make([]State, len(shards))
	for i, sh := range shards {
		list[i] = sh.current()
	}
	return list
}

// Listening reports whether events arrive in this process: it holds a shard, all that it
// holds are up, and what was missed before they were has been looked at.
func (s *Supervisor) Listening() bool {
	s.mu.Lock()
	shards := s.shards
	s.mu.Unlock()
	up := 0
	for _, sh := range shards {
		switch st := sh.current(); {
		case st.Phase == Elsewhere:
		case !st.Up(), sh.pendingGaps.Load() > 0:
			return false
		default:
			up++
		}
	}
	return up > 0
}

// Ready is nil when every shard receives events, here or at another replica. Otherwise
// it is one sentence that names the shards that do not, and why.
func (s *Supervisor) Ready() error {
	s.mu.Lock()
	running, reason := s.running, s.stopReason
	s.mu.Unlock()
	states := s.States()
	if !running || len(states) == 0 {
		return errors.New("discord: " + reason)
	}
	var down []string
	for _, st := range states {
		if st.Up() || st.Phase == Elsewhere {
			continue
		}
		text := fmt.Sprintf("shard %d of %d is %s since %s: %s", st.Shard, len(states), st.Phase, st.Since.UTC().Format("15:04:05 MST"), st.Why)
		down = append(down, text)
	}
	if len(down) == 0 {
		return nil
	}
	return errors.New("discord: " + strings.Join(down, "; "))
}

// Stats are the counts.
func (s *Supervisor) Stats() Stats {
	st := Stats{
		Identifies: s.identifies.Load(), Resumes: s.resumes.Load(), Lost: s.lost.Load(), Malformed: s.malformed.Load(),
		Panics: s.panics.Load(), Full: s.full.Load(),
	}
	s.mu.Lock()
	shards := s.shards
	s.mu.Unlock()
	for _, sh := range shards {
		st.Waiting += sh.lanes.waiting()
	}
	return st
}

// guarded runs something of the caller's.
func (s *Supervisor) guarded(what string, do func()) {
	defer func() {
		if p := recover(); p != nil {
			s.panics.Add(1)
			s.log.Error("a handler panicked; the event counts as handled", "handler", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	do()
}

// privileged are the intents that must be switched on, as the page calls them.
func privileged(in discordgo.Intent) []string {
	var names []string
	for _, p := range []struct {
		bit  discordgo.Intent
		name string
	}{
		{discordgo.IntentMessageContent, "Message Content Intent"},
		{discordgo.IntentGuildMembers, "Server Members Intent"},
		{discordgo.IntentGuildPresences, "Presence Intent"},
	} {
		if in&p.bit != 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// fatalCodes are the close codes after which connecting again is useless
// (docs.discord.com/developers/topics/opcodes-and-status-codes, "Gateway Close
// Event Codes").
func fatalCodes() []int { return []int{4004, 4010, 4011, 4012, 4013, 4014} }

func isFatal(code int) bool { return slices.Contains(fatalCodes(), code) }

// fatal says what to do about a refusal.
func (s *Supervisor) fatal(code int) *FatalError {
	const page = "https://discord.com/developers/applications"
	var fix string
	switch code {
	case 401, 4004:
		fix = "Discord refused the bot's token; open " + page + ", your app, Bot, reset the token and put the new one into DISCORD_BOT_TOKEN"
	case 4010:
		fix = "Discord refused the number of a shard; leave the number of shards at 0, so that Discord's recommendation is used"
	case 4011:
		fix = "the bot is in too many servers for its number of shards; leave the number of shards at 0 and start it again"
	case 4012:
		fix = "Discord no longer speaks this version of its gateway; install a newer version of the bot"
	case 4013:
		fix = fmt.Sprintf("Discord does not know one of the intents %d that the bot asked for; this is a mistake in the bot, report it", int(s.cfg.Intents))
	case 4014:
		names := privileged(s.cfg.Intents)
		if len(names) == 0 {
			names = []string{"intent that the bot asks for"}
		}
		fix = "Discord refused an intent; open " + page + ", your app, Bot, and switch on the " + strings.Join(names, " and the ") + " under Privileged Gateway Intents"
	default:
		fix = fmt.Sprintf("Discord refused the bot with close code %d", code)
	}
	return &FatalError{Code: code, Fix: fix}
}
