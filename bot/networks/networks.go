// Package networks is the chat networks that this bot is on: it opens those that have their
// tokens, remembers for them what has to survive a restart, and finds the one of a thread
// ([Networks]). [Outbox] sends what the bot says to them.
//
// The console is made elsewhere and added here like another one.
package networks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/adapters/chat"
	"countersign/bot/replicas"
	"countersign/config"
	"countersign/config/rules"
	"countersign/store"
	"countersign/store/queue"
)

// Config is what networks are made of.
type Config struct {
	Env      config.Env
	File     config.File
	DB       store.DB
	Rules    func() *rules.Rules
	Replicas *replicas.Member
	Log      *slog.Logger
}

// Networks are those that are open.
type Networks struct {
	Config
	adapters map[string]chat.Adapter
	opened   []opened
	events   map[string]http.Handler
}

// New returns networks of which none is open.
func New(c Config) *Networks {
	return &Networks{Config: c, adapters: map[string]chat.Adapter{}, events: map[string]http.Handler{}}
}

// Open opens the networks that have their tokens; desk answers what belongs to no thread
// there.
func (n *Networks) Open(desk chat.Desk) error {
	var errs []error
	for _, to := range Accounts(n.Env, n.File) {
		if !n.Env.Opens(to.Network) {
			continue
		}
		a, err := to.open(n, to, desk)
		if err != nil {
			errs = append(errs, config.Errorf("%s", to.Says(err.Error())))
			continue
		}
		n.opened = append(n.opened, opened{a, to.Network})
		n.Add(a)
	}
	return errors.Join(errs...)
}

// Add adds a network that was opened elsewhere.
func (n *Networks) Add(a chat.Adapter) { n.adapters[a.Scheme()] = a }

// Run connects the networks, and hands what people do there to h until ctx is done.
func (n *Networks) Run(ctx context.Context, h chat.Handler) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, a := range n.adapters {
		g.Go(func() error { return a.Run(ctx, h) })
	}
	return g.Wait()
}

// Events take what networks send by HTTP, by the paths below which they do.
func (n *Networks) Events() map[string]http.Handler { return n.events }

// Ready says of each network that was opened here why it is not connected, nil where it
// is.
func (n *Networks) Ready() map[string]error {
	out := map[string]error{}
	for _, a := range n.opened {
		out[a.Scheme()] = a.Ready()
		if err := out[a.Scheme()]; err != nil {
			out[a.Scheme()] = errors.New(a.row.Says(err.Error()))
		}
	}
	return out
}

// Opener is the network of a scheme if it can begin threads, else nil.
func (n *Networks) Opener(scheme string) chat.Opener {
	o, _ := n.adapters[scheme].(chat.Opener)
	return o
}

// Whisper tells one person of a thread something, if its network can.
func (n *Networks) Whisper(thread chat.ThreadID, to chat.UserID, text string) bool {
	a, err := n.of(string(thread))
	if err != nil {
		return false
	}
	w, ok := a.(chat.Whisperer)
	if ok {
		w.Whisper(thread, to, text)
	}
	return ok
}

// of finds the network of a thread.
func (n *Networks) of(thread string) (chat.Adapter, error) {
	scheme, _, _ := strings.Cut(thread, ":")
	if a := n.adapters[scheme]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("no adapter for %q runs here: %w", scheme, chat.ErrGone)
}

// known reports whether the bot takes part in a thread.
func (n *Networks) known(ctx context.Context, t chat.ThreadID) (known bool, err error) {
	err = n.DB.View(ctx, func(tx store.Tx) error {
		known = queue.Known(tx, string(t))
		return nil
	})
	return known, err
}

// seen reports whether an event has been delivered before.
func (n *Networks) seen(ctx context.Context, id chat.EventID) (seen bool, err error) {
	err = n.DB.View(ctx, func(tx store.Tx) error {
		seen = queue.Seen(tx, "event/"+string(id))
		return nil
	})
	return seen, err
}

// alive keeps a moment of a network, over restarts: when it was last heard, or when it
// was found that nobody hears it.
type alive struct {
	db      store.DB
	network string
}

func (a alive) key() []byte { return store.Key(a.network + "-alive") }

func (a alive) at(ctx context.Context) (at time.Time, err error) {
	err = a.db.View(ctx, func(tx store.Tx) error {
		at, _ = store.Load[time.Time](tx, a.key())
		return nil
	})
	return at, err
}

func (a alive) set(ctx context.Context, at time.Time) error {
	return a.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, a.key(), at)
		return nil
	})
}
