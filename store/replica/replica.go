// Package replica tracks which processes share a store, which of them are alive,
// and which one holds a job that only one may do at a time.
//
// A [Member] raises a counter in its row every second. Others consider it dead
// once the counter has not moved for [TTL] of their own monotonic clock, during
// which they could read the store all the time. No two clocks are compared, so a
// clock that jumps changes nothing, and an unreachable store makes nobody dead.
// Mistaking a live process for dead costs work, never safety: whoever writes for
// a thread or a job holds an epoch that only grows (store/queue, [Job]).
//
// Rows (see store.Key):
//
//	"replica" <name> -> row: its counter; gone when it left
//	"job"     <job>  -> jobRow: holder, epoch; kept for the epoch
package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"countersign/store"
)

// These bound how fast a death is detected: after TTL and a scan, at most four beats
// after the last one.
const (
	Beat      = time.Second     // how often a member raises its counter
	TTL       = 3 * time.Second // how long a counter stands still before its member is dead
	scanEvery = 500 * time.Millisecond
	// freshFor is the maximum age of a member's last beat at which it may start something
	// that cannot be undone: no other member can consider it dead by then.
	freshFor = TTL - Beat
	// forgetAfter is how long a dead member's row is kept.
	forgetAfter = 10 * time.Minute
)

// ErrLost means that a job went to another member.
var ErrLost = errors.New("replica: the job went to another replica")

// Config configures a [Member]. DB and Name are required.
type Config struct {
	DB store.DB
	// Name is unique to this run of the process.
	Name string
	// Host is the machine it runs on, for people.
	Host string
	// Changed, if set, is called when another member joined, died or left. What a dead
	// member owned is free. One goroutine at a time calls it. It must be quick.
	Changed func()
	// Tell, if set, is called after this member left or released a job, to send the
	// others a hint. Without a hint they find out by scanning.
	Tell func()
	Log  *slog.Logger
}

// Info describes a member for people.
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
	// Published is what the member tells the others, by topic.
	Published map[string]json.RawMessage `json:"published,omitempty"`
}

type jobRow struct {
	Holder string `json:"holder,omitempty"`
	Epoch  uint64 `json:"epoch"`
}

func rowKey(name string) []byte { return store.Key("replica", name) }
func jobKey(job string) []byte  { return store.Key("job", job) }

// observed is what this member knows of another one.
type observed struct {
	row          row
	moved        time.Time // when its counter was last seen to move
	reportedDead bool
}

// Member is this process among those that share a store. It is safe for concurrent
// use.
type Member struct {
	cfg   Config
	alone bool
	since time.Time
	poke  chan struct{}

	mu      sync.Mutex
	beat    uint64
	beaten  time.Time // start of the last stored beat
	scanned time.Time // start of the last successful scan
	others  map[string]*observed
	jobs    map[string]*Job // held here
	topics  map[string]func() json.RawMessage
	wait    chan struct{} // closed and replaced at each change
}

// New returns a member. The others do not know it before [Member.Join].
func New(c Config) *Member {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Member{
		cfg: c, since: time.Now(), poke: make(chan struct{}, 1),
		others: map[string]*observed{}, jobs: map[string]*Job{}, wait: make(chan struct{}), topics: map[string]func() json.RawMessage{},
	}
}

// Alone returns the member of a store used by one process: any other member is dead, and
// every job is its own.
func Alone(name string) *Member {
	m := New(Config{Name: name})
	m.alone = true
	return m
}

// Name returns this member's name.
func (m *Member) Name() string { return m.cfg.Name }

// Join makes this member known to the others. It must not claim anything before.
func (m *Member) Join(ctx context.Context) error {
	if m.alone {
		return nil
	}
	if err := m.raise(ctx); err != nil {
		return err
	}
	return m.scan(ctx)
}

// Run beats and scans until ctx ends. A member that could not beat for [TTL] gives up its
// jobs.
func (m *Member) Run(ctx context.Context) error {
	if m.alone {
		<-ctx.Done()
		return nil
	}
	// Separate goroutines, so that a beat waiting for the store does not delay giving up.
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.repeat(ctx, Beat, nil, "beat", m.raise) })
	wg.Go(func() { m.repeat(ctx, scanEvery, m.poke, "look", m.scan) })
	t := time.NewTicker(scanEvery)
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

func (m *Member) repeat(ctx context.Context, d time.Duration, poke <-chan struct{}, what string, do func(context.Context) error) {
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

// raise stores one beat.
func (m *Member) raise(ctx context.Context) error {
	began := time.Now()
	m.mu.Lock()
	topics := maps.Clone(m.topics)
	m.mu.Unlock()
	published := map[string]json.RawMessage{}
	for topic, own := range topics {
		if words := own(); words != nil {
			published[topic] = words
		}
	}
	beat := uint64(0)
	err := m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		r, _ := store.Load[row](tx, rowKey(m.cfg.Name))
		beat = r.Beat + 1
		store.Save(tx, rowKey(m.cfg.Name), row{Beat: beat, Host: m.cfg.Host, Since: m.since.UTC(), Published: published})
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

// scan reads the rows of all members and of the jobs held here.
func (m *Member) scan(ctx context.Context) error {
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
	changed, old := m.update(began, rows, holders)
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

// update applies the result of a scan that started at began. old are rows to delete.
func (m *Member) update(began time.Time, rows map[string]row, holders map[string]jobRow) (changed bool, old map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gap := !m.scanned.IsZero() && began.Sub(m.scanned) > 3*scanEvery // the store was unreachable, or this process suspended
	m.scanned = began
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
			m.others[name] = &observed{row: r, moved: began}
			changed = true
		case s.row.Beat != r.Beat:
			changed = changed || s.reportedDead
			*s = observed{row: r, moved: began}
		case gap && !s.reportedDead:
			s.moved = began
		case !m.dead(s, began):
		case !s.reportedDead:
			s.reportedDead, changed = true, true
		case began.Sub(s.moved) > forgetAfter:
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

func (*Member) dead(s *observed, now time.Time) bool { return now.Sub(s.moved) > TTL }

// Rescan makes [Member.Run] scan now, because a hint came. It never blocks.
func (m *Member) Rescan() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Alive reports whether a member may still be working. Call it in the transaction that
// takes something over from that member, so that a member that has just joined is known.
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
	return s == nil || s.row.Beat != r.Beat || !m.dead(s, m.scanned)
}

// Publish has each beat carry what own returns to the other members, as JSON; nil is nothing. own must
// be quick and may be called at any time.
func (m *Member) Publish(topic string, own func() json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topics[topic] = own
}

// Published calls each with what the living others published last, and with when that was read: it was up to
// [Beat] old then.
func (m *Member) Published(topic string, each func(words json.RawMessage, read time.Time)) {
	type published struct {
		words json.RawMessage
		read  time.Time
	}
	var all []published
	m.mu.Lock()
	for _, s := range m.others {
		if words := s.row.Published[topic]; words != nil && !m.dead(s, m.scanned) {
			all = append(all, published{words, s.moved})
		}
	}
	m.mu.Unlock()
	for _, p := range all {
		each(p.words, p.read)
	}
}

// age returns the time since the start of the last stored beat. It also considers the wall
// clock, because the monotonic one may stop while a machine is suspended.
func (m *Member) age() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	wall := now.Round(0).Sub(m.beaten.Round(0))
	if wall < 0 {
		wall = TTL + 1 // the clock was set back; the next beat decides
	}
	return max(now.Sub(m.beaten), wall)
}

// Fresh reports whether this member may start something that cannot be undone: no other
// member can consider it dead.
func (m *Member) Fresh() bool { return m.alone || m.age() <= freshFor }

// Freshen beats until the member is fresh. Another member may have taken over its claims
// by then, so check them again afterwards.
func (m *Member) Freshen(ctx context.Context) error {
	for !m.Fresh() {
		if err := m.raise(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Leave removes this member, so that what it owned is free immediately. Run must have
// returned.
func (m *Member) Leave(ctx context.Context) error {
	if m.alone {
		return nil
	}
	err := m.cfg.DB.Update(ctx, func(tx store.Tx) error {
		tx.Delete(rowKey(m.cfg.Name))
		return nil
	})
	if err == nil {
		m.notify()
	}
	return err
}

func (m *Member) notify() {
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
		out = append(out, Info{Name: name, Host: s.row.Host, Since: s.row.Since, Alive: !m.dead(s, m.scanned)})
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
