// Package replica tells which processes of the bot share a store, which of them
// live, and which of them does a job that only one may do at a time.
//
// A [Member] raises a counter in its row each second. Others call it dead when the
// counter stood still for [TTL] of their own monotonic clock, while they could read
// the store all the time: no two clocks are ever compared, so a clock that jumps
// changes nothing, and a store that was away makes nobody dead. Taking a live
// process for dead costs work, never safety: who writes for a thread or a job holds
// an epoch that only grows (store/queue, [Job]).
//
// Rows (see store.Key):
//
//	"replica" <name> -> row: its counter; gone when it left
//	"job"     <job>  -> jobRow: holder, epoch; kept for the epoch
package replica

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"countersign/store"
)

// How fast a death is found: a process that is killed is dead for the others after
// TTL and a look, at most four beats after its last one.
const (
	Beat = time.Second     // how often a member raises its counter
	TTL  = 3 * time.Second // how long a counter stands still until its member is dead
	look = 500 * time.Millisecond
	// fresh is how old a member's last beat may be for it to begin something that
	// it cannot take back: nobody can have called it dead by then.
	fresh = TTL - Beat
	// forget is how long a dead member's row is kept.
	forget = 10 * time.Minute
)

// ErrLost means that a job went to another member.
var ErrLost = errors.New("replica: the job went to another replica")

// Config is what a [Member] is made of. DB and Name are required.
type Config struct {
	DB store.DB
	// Name is unique to this run of the process.
	Name string
	// Host tells people where it runs.
	Host string
	// Changed is called, by one goroutine at a time, when another member came, died or
	// left: what it owned is free. It must be quick. Nil: nobody wants to know.
	Changed func()
	// Tell is called after this member left or released a job, to hint the others at it.
	// Nil: they find it by looking.
	Tell func()
	Log  *slog.Logger
}

// Info is a member, for people.
type Info struct {
	Name  string
	Host  string
	Since time.Time
	Alive bool
}

// row is a member as it is stored. Fields can be added or removed, but their names
// must not change.
type row struct {
	Beat  uint64    `json:"beat"`
	Host  string    `json:"host,omitempty"`
	Since time.Time `json:"since"`
}

type jobRow struct {
	Holder string `json:"holder,omitempty"`
	Epoch  uint64 `json:"epoch"`
}

func rowKey(name string) []byte { return store.Key("replica", name) }
func jobKey(job string) []byte  { return store.Key("job", job) }

// sighting is what is known of another member.
type sighting struct {
	row   row
	moved time.Time // when its counter was last seen to have moved
	told  bool      // that it is dead
}

// Member is this process among those that share a store. It is safe for concurrent
// use.
type Member struct {
	cfg   Config
	alone bool
	since time.Time
	poke  chan struct{}

	mu     sync.Mutex
	beat   uint64
	beaten time.Time // when the last beat that was stored began
	looked time.Time // when the last look that worked began
	others map[string]*sighting
	jobs   map[string]*Job // held here
	wait   chan struct{}   // closed and replaced at each change
}

// New returns a member that is not known to the others before [Member.Join].
func New(c Config) *Member {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Member{
		cfg: c, since: time.Now(), poke: make(chan struct{}, 1),
		others: map[string]*sighting{}, jobs: map[string]*Job{}, wait: make(chan struct{}),
	}
}

// Alone returns the member of a store that one process has for itself: everybody
// else is dead, and every job is its own.
func Alone(name string) *Member {
	m := New(Config{Name: name})
	m.alone = true
	return m
}

// Name is this member's name.
func (m *Member) Name() string { return m.cfg.Name }

// Join makes this member known. Until then it must claim nothing.
func (m *Member) Join(ctx context.Context) error {
	if m.alone {
		return nil
	}
	if err := m.raise(ctx); err != nil {
		return err
	}
	return m.look(ctx)
}

// Run beats and looks until ctx is done. A member that could not beat for [TTL] gives
// up its jobs.
func (m *Member) Run(ctx context.Context) error {
	if m.alone {
		<-ctx.Done()
		return nil
	}
	// Side by side: a beat that waits for the store must not hide that its time is over.
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.every(ctx, Beat, nil, "beat", m.raise) })
	wg.Go(func() { m.every(ctx, look, m.poke, "look", m.look) })
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if m.age() > TTL {
				m.giveUp()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *Member) every(ctx context.Context, d time.Duration, poke <-chan struct{}, what string, do func(context.Context) error) {
	t := time.NewTicker(d)
	defer t.Stop()
	failed := false
	for {
		select {
		case <-t.C:
		case <-poke:
		case <-ctx.Done():
			return
		}
		err := do(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			m.cfg.Log.Error("this replica does not reach the store; trying again", "doing", what, "error", err)
		case err == nil && failed:
			m.cfg.Log.Info("this replica reaches the store again", "doing", what)
		}
		failed = err != nil
	}
}

// raise is one beat.
func (m *Member) raise(ctx context.Context) error {
	began := time.Now()
	beat := uint64(0)
	err := m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		r, _ := store.Load[row](tx, rowKey(m.cfg.Name))
		beat = r.Beat + 1
		store.Save(tx, rowKey(m.cfg.Name), row{Beat: beat, Host: m.cfg.Host, Since: m.since.UTC()})
		return nil
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beat, m.beaten = beat, began
	return nil
}

// look reads the rows of all members and of the jobs held here.
func (m *Member) look(ctx context.Context) error {
	began := time.Now()
	rows, holders := map[string]row{}, map[string]jobRow{}
	m.mu.Lock()
	held := slices.Collect(maps.Keys(m.jobs))
	m.mu.Unlock()
	err := m.cfg.DB.View(ctx, func(tx store.Tx) error {
		clear(rows)
		for k, v := range tx.Scan(store.Prefix("replica")) {
			parts, err := store.Parts(k)
			if err != nil {
				store.Abort(err)
			}
			name, _ := parts[1].(string)
			var r row
			store.Decode(k, v, &r)
			rows[name] = r
		}
		for _, job := range held {
			holders[job], _ = store.Load[jobRow](tx, jobKey(job))
		}
		return nil
	})
	if err != nil {
		return err
	}
	changed, old := m.seen(began, rows, holders)
	if changed && m.cfg.Changed != nil {
		m.cfg.Changed()
	}
	if len(old) == 0 {
		return nil
	}
	return m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		for name, beat := range old {
			if r, ok := store.Load[row](tx, rowKey(name)); ok && r.Beat == beat {
				tx.Delete(rowKey(name))
			}
		}
		return nil
	})
}

// seen takes in what a look that began then saw. old are rows to forget.
func (m *Member) seen(began time.Time, rows map[string]row, holders map[string]jobRow) (changed bool, old map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gap := !m.looked.IsZero() && began.Sub(m.looked) > 3*look // the store was away, or this process stood still
	m.looked = began
	old = map[string]uint64{}
	for name := range m.others {
		if _, there := rows[name]; !there {
			delete(m.others, name)
			changed = true
		}
	}
	for name, r := range rows {
		if name == m.cfg.Name {
			continue
		}
		s := m.others[name]
		switch {
		case s == nil:
			m.others[name] = &sighting{row: r, moved: began}
			changed = true
		case s.row.Beat != r.Beat:
			changed = changed || s.told
			*s = sighting{row: r, moved: began}
		case gap && !s.told:
			s.moved = began
		case !m.dead(s, began):
		case !s.told:
			s.told, changed = true, true
		case began.Sub(s.moved) > forget:
			old[name] = r.Beat
		}
	}
	for job, r := range holders {
		if j := m.jobs[job]; j != nil && (r.Holder != m.cfg.Name || r.Epoch > j.Epoch) {
			j.lose(ErrLost)
		}
	}
	if changed {
		close(m.wait)
		m.wait = make(chan struct{})
	}
	return changed, old
}

func (*Member) dead(s *sighting, now time.Time) bool { return now.Sub(s.moved) > TTL }

// Look makes [Member.Run] look at the others now, and never blocks: a hint came.
func (m *Member) Look() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Alive says whether a member may still be working. It is asked in the transaction
// that takes something from it, so that one which came a moment ago is known.
func (m *Member) Alive(tx store.Tx, name string) bool {
	if name == m.cfg.Name {
		return true
	}
	if m.alone {
		return false
	}
	r, ok := store.Load[row](tx, rowKey(name))
	if !ok {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.others[name]
	return s == nil || s.row.Beat != r.Beat || !m.dead(s, m.looked)
}

// age is how long ago the last beat that was stored began. The wall clock counts too:
// the monotonic one may stand still while a machine is suspended.
func (m *Member) age() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	wall := now.Round(0).Sub(m.beaten.Round(0))
	if wall < 0 {
		wall = TTL + 1 // set back since: the next beat tells
	}
	return max(now.Sub(m.beaten), wall)
}

// Fresh says whether this member may begin something that it cannot take back: no
// other can have called it dead.
func (m *Member) Fresh() bool { return m.alone || m.age() <= fresh }

// Freshen beats until the member is fresh. What it claimed before may be another's by
// then: check the claim again after it.
func (m *Member) Freshen(ctx context.Context) error {
	for !m.Fresh() {
		if err := m.raise(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Leave says that this member is gone: what it owned is free at once. Run must have
// ended.
func (m *Member) Leave(ctx context.Context) error {
	if m.alone {
		return nil
	}
	err := m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		tx.Delete(rowKey(m.cfg.Name))
		return nil
	})
	if err == nil {
		m.tell()
	}
	return err
}

func (m *Member) tell() {
	if m.cfg.Tell != nil {
		m.cfg.Tell()
	}
}

// List returns all members, by name.
func (m *Member) List() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []Info{{Name: m.cfg.Name, Host: m.cfg.Host, Since: m.since, Alive: true}}
	for name, s := range m.others {
		out = append(out, Info{Name: name, Host: s.row.Host, Since: s.row.Since, Alive: !m.dead(s, m.looked)})
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
