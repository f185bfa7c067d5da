// Package oncall knows who is on call: it looks schedules up ahead at PagerDuty, Opsgenie,
// Jira Service Management, incident.io, Grafana OnCall or in a calendar, and says at any moment who may decide, also while
// their server doesn't answer.
//
// What was looked up counts for a bounded time. After that, and where nobody is on call or nobody
// knows the person here, the fallback group decides. It decides no request: approvals/gate does.
package oncall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat/network"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/internal/rest"
	"countersign/store"
)

// Ahead and Every are how far schedules are looked up, and how often; Fresh is how long an answer
// counts, where a configuration says nothing else.
const (
	Ahead = 8 * 24 * time.Hour
	Every = time.Minute
	Fresh = 15 * time.Minute
	// saveAfter is how old a stored answer may be before the same answer is stored again.
	saveAfter = 3 * time.Minute
)

// Config configures a [Keeper].
type Config struct {
	Sources map[string]SourceConfig
	DB      store.DB
	Now     func() time.Time
	Log     *slog.Logger
	// Changed is called when other people are on call than before, also because an answer is too old; nil is
	// not.
	Changed func(ctx context.Context)
}

// SourceConfig is a source and how its answers count.
type SourceConfig struct {
	Source   Source
	Fallback string        // a group; "" is nobody
	Every    time.Duration // at least a second
	Fresh    time.Duration
}

// Keeper keeps what sources said. It is safe for concurrent use.
type Keeper struct {
	cfg  Config
	wake map[string]chan struct{} // by source

	mu     sync.RWMutex
	rows   map[policy.Reference]*row
	people map[string]policy.Group
}

// row is what is known of one reference.
type row struct {
	Shifts  []Shift   `json:"shifts"`
	Read    time.Time `json:"read"`
	saved   time.Time // of Read, in the store
	failed  time.Time // since when the source doesn't answer; zero: it does
	problem string
	told    approvals.Duty // to Config.Changed
}

// key is of a reference what its shifts depend on.
func key(r policy.Reference) policy.Reference {
	if r.After > 0 {
		r.Level = r.After
	}
	r.After, r.Escalate = 0, 0
	return r
}

// New returns a keeper that knows what was stored.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, rows: map[policy.Reference]*row{}, wake: map[string]chan struct{}{}}
	for name := range cfg.Sources {
		k.wake[name] = make(chan struct{}, 1)
	}
	return k
}

// Use sets which schedules are looked up, and who people are in each network, by their address, id
// or name at the source.
func (k *Keeper) Use(ctx context.Context, refs []policy.Reference, people map[string]policy.Group) error {
	stored := map[policy.Reference]*row{}
	err := k.cfg.DB.View(ctx, func(tx store.Tx) error {
		for _, r := range refs {
			if w, ok := store.Load[row](tx, rowKey(r)); ok {
				w.saved = w.Read
				stored[key(r)] = &w
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("who is on call can't be read from the store: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.people = lower(people)
	rows := map[policy.Reference]*row{}
	for _, r := range refs {
		r = key(r)
		switch {
		case k.rows[r] != nil:
			rows[r] = k.rows[r]
		case stored[r] != nil:
			rows[r] = stored[r]
		default:
			rows[r] = &row{}
		}
	}
	k.rows = rows
	for _, w := range k.wake {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return nil
}

// rowKey is where the answer about a reference is stored:
//
//	("oncall", reference) -> row as JSON
func rowKey(r policy.Reference) []byte { return store.Key("oncall", key(r).String()) }

// Run looks schedules up until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for name, s := range k.cfg.Sources {
		all.Go(func() { k.follow(ctx, name, s) })
	}
	all.Wait()
	return nil
}

// Look looks all schedules up once.
func (k *Keeper) Look(ctx context.Context) {
	for name, s := range k.cfg.Sources {
		k.lookAll(ctx, name, s)
	}
}

// lookAll looks the schedules of one source up, and says how long to wait until the next time.
func (k *Keeper) lookAll(ctx context.Context, name string, s SourceConfig) (wait time.Duration) {
	wait = s.Every
	for _, r := range k.refs(name) {
		wait = max(wait, k.look(ctx, r, s))
	}
	return wait
}

// follow looks the schedules of one source up, again and again.
func (k *Keeper) follow(ctx context.Context, name string, s SourceConfig) {
	for ctx.Err() == nil {
		wait := k.lookAll(ctx, name, s)
		select {
		case <-ctx.Done():
		case <-k.wake[name]:
		case <-time.After(wait):
		}
	}
}

func (k *Keeper) refs(source string) (out []policy.Reference) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for r := range k.rows {
		if r.Source == source {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b policy.Reference) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// look looks one schedule up, and says how long the source asks to be left alone.
func (k *Keeper) look(ctx context.Context, r policy.Reference, s SourceConfig) (wait time.Duration) {
	now := k.cfg.Now()
	shifts, err := s.Source.Shifts(ctx, r, now.Add(-time.Hour), now.Add(Ahead))
	if ctx.Err() != nil {
		return 0
	}
	save, wait := k.learn(r, s, shifts, err, now)
	if k.cfg.Changed != nil && k.differs(r) {
		k.cfg.Changed(ctx)
	}
	if !save {
		return wait
	}
	// The lock isn't held here: who holds the store's may ask who is on call.
	err = k.cfg.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, rowKey(r), row{Shifts: shifts, Read: now})
		return nil
	})
	if err != nil {
		k.cfg.Log.Warn("who is on call can't be stored; a restart would not know it until the source answers", "error", err)
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.rows[r]; w != nil {
		w.saved = now
	}
	return 0
}

// differs reports whether other people are on call than at its last call. An answer that became too old
// is a difference.
func (k *Keeper) differs(r policy.Reference) bool {
	d := k.OnCall(r).Duty
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.rows[r]
	if w == nil || w.told.Same(d) {
		return false
	}
	w.told = d
	return true
}

// learn takes an answer over. save is true if it is to be stored.
func (k *Keeper) learn(r policy.Reference, s SourceConfig, shifts []Shift, err error, now time.Time) (save bool, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.rows[r]
	if w == nil { // no longer wanted
		return false, 0
	}
	if err != nil {
		if w.problem == "" {
			w.failed = now
			k.cfg.Log.Warn("who is on call can't be looked up", "source", r.Source, "schedule", r.String(), "error", err, "counts_until", w.Read.Add(s.Fresh))
		}
		w.problem = err.Error()
		if answer, ok := errors.AsType[*rest.StatusError](err); ok {
			return false, answer.After
		}
		return false, 0
	}
	if w.problem != "" {
		k.cfg.Log.Info("who is on call can be looked up again", "source", r.Source, "schedule", r.String(), "after", now.Sub(w.failed).Round(time.Second))
	}
	same := slices.EqualFunc(w.Shifts, shifts, func(a, b Shift) bool {
		return a.Person == b.Person && a.Level == b.Level && a.From.Equal(b.From) && a.To.Equal(b.To)
	})
	w.Shifts, w.Read, w.problem, w.failed = shifts, now, "", time.Time{}
	return !same || now.Sub(w.saved) >= saveAfter, 0
}

// OnCall says who is on call now.
func (k *Keeper) OnCall(r policy.Reference) policy.OnCall {
	k.mu.RLock()
	defer k.mu.RUnlock()
	now := k.cfg.Now()
	s, known := k.cfg.Sources[r.Source]
	d := approvals.Duty{Group: r.String(), Source: r.Source, Schedule: r.Schedule, Level: r.Level, Fallback: s.Fallback}
	if r.Policy != "" {
		d.Schedule = r.Policy
	}
	w := k.rows[key(r)]
	switch {
	case !known:
		d.Why = r.Source + " isn't a source that the bot knows: a new one needs a restart"
	case w == nil:
		d.Why = r.Source + " isn't asked about this schedule: no policy, target or hand-over names it"
	case w.Read.IsZero():
		d.Why = r.Source + " hasn't answered yet"
		if what, _, _ := strings.Cut(w.problem, "; "); what != "" {
			d.Why = r.Source + " " + what
		}
	case now.Sub(w.Read) > s.Fresh:
		d.Why = fmt.Sprintf("%s hasn't answered since %s", r.Source, approvals.Clock(w.Read, now))
	}
	if w != nil {
		d.Read = w.Read
	}
	out := policy.OnCall{Fresh: s.Fresh, Everybody: slices.Collect(maps.Values(k.people))}
	if d.Why != "" {
		out.Duty = d
		return out
	}
	out.Levels = levels(w.Shifts)
	var strangers []string
	for _, t := range at(w.Shifts, r.Level, now) {
		who, ok := identify(t.Person, k.people)
		if !ok {
			strangers = append(strangers, t.Shown())
			continue
		}
		shown := t.Shown()
		if t.Name+t.Email == "" && len(who.People[network.Web]) > 0 { // a source that knows ids only
			shown = who.People[network.Web][0]
		}
		d.People = append(d.People, shown)
		if !t.until.IsZero() && (d.Until.IsZero() || t.until.Before(d.Until)) {
			d.Until = t.until
		}
		out.Members.Add(policy.Group{People: who.People})
	}
	switch {
	case len(d.People) > 0:
	case len(strangers) > 0:
		d.Why = fmt.Sprintf("%s is on call, and the configuration's people don't say who that is here", strings.Join(strangers, " and "))
	default:
		d.Why = "nobody is on call"
		if r.Level > 1 {
			d.Why = "nobody is " + approvals.Turn(r.Level)
		}
	}
	out.Duty = d
	return out
}

// identify is who a person is in each network, by people, whose keys are in lower case.
func identify(p Person, people map[string]policy.Group) (policy.Group, bool) {
	var g policy.Group
	found := p.Slack != ""
	if found {
		g.People = policy.IDs{network.Slack: {p.Slack}}
	}
	for _, name := range []string{p.Email, p.ID, p.Name} {
		if o, ok := people[strings.ToLower(name)]; ok && name != "" {
			g.Add(policy.Group{People: o.People})
			return g, true
		}
	}
	return g, found
}

func lower(people map[string]policy.Group) map[string]policy.Group {
	out := map[string]policy.Group{}
	for name, g := range people {
		out[strings.ToLower(name)] = g
	}
	return out
}

// Known reports whether people say who a person is.
func Known(p Person, people map[string]policy.Group) bool {
	_, ok := identify(p, lower(people))
	return ok
}

// State is what is known of one schedule.
type State struct {
	Duty    approvals.Duty
	Age     time.Duration // since the source last answered; negative: never
	Problem string        // with the newest answer; "" is none
}

// States returns what is known of every schedule, in order.
func (k *Keeper) States() (out []State) {
	for _, name := range slices.Sorted(maps.Keys(k.cfg.Sources)) {
		for _, r := range k.refs(name) {
			s := State{Duty: k.OnCall(r).Duty, Age: -1}
			k.mu.RLock()
			if w := k.rows[r]; w != nil {
				s.Problem = w.problem
				if !w.Read.IsZero() {
					s.Age = k.cfg.Now().Sub(w.Read)
				}
			}
			k.mu.RUnlock()
			out = append(out, s)
		}
	}
	return out
}

// Check looks a schedule up once, for a person who wants to know whether that works.
func Check(ctx context.Context, s Source, r policy.Reference, now time.Time) (people []Person, err error) {
	shifts, err := s.Shifts(ctx, key(r), now.Add(-time.Hour), now.Add(Ahead))
	if err != nil {
		return nil, err
	}
	for _, t := range at(shifts, r.Level, now) {
		people = append(people, t.Person)
	}
	return people, nil
}
