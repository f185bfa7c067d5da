package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

// What is pending belongs to the replica that its row names, which raises the row's
// counter while it works on the message. A replica that sees a counter stand still
// takes the message over, if it is the first in its thread. So an accepted message
// is never lost, messages of a thread reach the bot in the order of their places,
// and only a replica that was taken for dead and wakes up hands one over twice.
const (
	pendingBeat = time.Second     // how often the counter is raised
	pendingTTL  = 3 * time.Second // how long it stands still until its replica is dead
	// sightGap is how far two looks at a row may be apart: when this replica could
	// not read the store for longer, the other one may not have written either.
	sightGap = 2500 * time.Millisecond

	leastPause = 10 * time.Millisecond // between two looks at a message that another replica has
	mostPause  = 250 * time.Millisecond
)

// holder is who works on a pending message. Rows of older versions name nobody.
type holder struct {
	By   string `json:"by,omitempty"`
	Beat uint64 `json:"beat,omitempty"`
}

func holderOf(raw []byte) (h holder) {
	if json.Unmarshal(raw, &h) != nil {
		return holder{}
	}
	return h
}

// held is a pending message.
type held struct {
	thread string
	seq    uint64
	holder []byte // its row's value
}

func (p held) key() []byte { return pendingKey(p.thread, p.seq) }

// pendingIn lists what is pending between two keys, in the order of the keys: by
// thread and place.
func pendingIn(tx store.Tx, from, to []byte) ([]held, error) {
	var out []held
	for k, raw := range tx.Scan(from, to) {
		id, seq, err := pendingParts(k)
		if err != nil {
			return nil, err
		}
		out = append(out, held{id, seq, raw})
	}
	return out, nil
}

func pendingParts(key []byte) (id string, seq uint64, err error) {
	parts, err := store.Parts(key)
	if err != nil {
		return "", 0, err
	}
	if len(parts) == 4 {
		id, _ = parts[2].(string)
		seq, _ = parts[3].(uint64)
	}
	return id, seq, nil
}

// claim makes a pending message this replica's, if nothing happened to it since it
// was read.
func (b *inbox) claim(ctx context.Context, p held) (row messageRow, ok bool, err error) {
	err = b.db.Update(ctx, func(tx store.Tx) error {
		raw, there := tx.Get(p.key())
		row, ok = store.Load[messageRow](tx, messageKey(p.thread, p.seq))
		switch same := there && bytes.Equal(raw, p.holder); {
		case !same:
			ok = false
		case ok:
			store.Save(tx, p.key(), holder{b.replicas.name, holderOf(raw).Beat + 1})
		default:
			tx.Delete(p.key()) // of no message
		}
		return nil
	})
	return row, ok, err
}

// keepUp raises the counter of a pending message while this replica has it, until
// the returned function is called, which waits for the last time.
func (b *inbox) keepUp(ctx context.Context, thread string, seq uint64) (stop func()) {
	if !b.replicas.shared {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		beat := time.NewTicker(pendingBeat)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
			case <-ctx.Done():
				return
			}
			err := b.db.Update(ctx, func(tx store.Tx) error {
				raw, _ := tx.Get(pendingKey(thread, seq))
				if h := holderOf(raw); h.By == b.replicas.name {
					store.Save(tx, pendingKey(thread, seq), holder{h.By, h.Beat + 1})
				}
				return nil
			})
			if err != nil && ctx.Err() == nil {
				b.log.WarnContext(ctx, "a pending message may go to another replica", "thread", threadID(thread), "error", err)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// handOne gives h a message that was claimed, or that nobody else can have, and
// shows it. The bot knows those that it has already by their event ids.
func (b *inbox) handOne(ctx context.Context, h chat.Handler, p held, row messageRow) error {
	stop := b.keepUp(ctx, p.thread, p.seq)
	defer stop()
	in := incoming{user: row.From.Name, groups: row.Groups, thread: p.thread, client: row.Key, text: row.Text, token: row.Token}
	if err := h.Deliver(ctx, in.event(row.At, p.seq)); err != nil {
		// It stays pending for the next try, or for the person's own.
		b.log.WarnContext(ctx, "a pending message was not accepted", "thread", threadID(p.thread), "error", err)
		return errRefused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return b.reveal(ctx, p.thread, p.seq)
}

// handOver gives h all that is pending: what a crash left, for a console that is
// alone.
func (b *inbox) handOver(ctx context.Context, h chat.Handler) error {
	var all []held
	rows := map[string]messageRow{}
	err := b.db.View(ctx, func(tx store.Tx) (err error) {
		from, to := store.Prefix(scheme, "pending")
		if all, err = pendingIn(tx, from, to); err != nil {
			return err
		}
		for _, p := range all {
			if m, ok := store.Load[messageRow](tx, messageKey(p.thread, p.seq)); ok {
				rows[string(p.key())] = m
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range all {
		row, ok := rows[string(p.key())]
		if !ok {
			continue
		}
		if err := b.handOne(ctx, h, p, row); err != nil && !errors.Is(err, errRefused) {
			return err
		}
	}
	return nil
}

// adopt hands over what replicas that are dead left pending.
func (b *inbox) adopt(ctx context.Context, h chat.Handler) error {
	var all []held
	err := b.db.View(ctx, func(tx store.Tx) (err error) {
		from, to := store.Prefix(scheme, "pending")
		all, err = pendingIn(tx, from, to)
		return err
	})
	if err != nil {
		return err
	}
	b.lastSeen.keep(all)
	wait := "" // the thread whose next one has to wait
	for _, p := range all {
		// Each is looked at, so that all of a dead replica are known to be its at once.
		still := b.lastSeen.still(p, time.Now())
		switch {
		case p.thread == wait:
		case !still && b.lastSeen.hopeless(p, time.Now()): // another replica tries it again
		case !still || !b.adoptOne(ctx, h, p):
			wait = p.thread
		}
	}
	return nil
}

// adoptOne hands over one message. It returns false when those after it in its
// thread have to wait.
func (b *inbox) adoptOne(ctx context.Context, h chat.Handler, p held) bool {
	turn := b.turns[stripe(p.thread, len(b.turns))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	default:
		return false // something is under way here
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	row, ok, err := b.claim(ctx, p)
	if err != nil || !ok {
		return false
	}
	b.log.InfoContext(ctx, "a message that another replica left is handed over", "thread", threadID(p.thread))
	if err := b.handOne(ctx, h, p, row); err != nil {
		b.lastSeen.failed(p, time.Now())
		return b.lastSeen.hopeless(p, time.Now())
	}
	return true
}

// inTurn waits until a pending message is this replica's and the first of its
// thread; what dead replicas left before it, it hands over. gone means that another
// replica has settled the message. The caller has the thread's turn here.
func (b *inbox) inTurn(ctx context.Context, h chat.Handler, thread string, seq uint64) (gone bool, err error) {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		var ahead []held
		err := b.db.View(ctx, func(tx store.Tx) (err error) {
			from, _ := store.Prefix(scheme, "pending", thread)
			ahead, err = pendingIn(tx, from, pendingKey(thread, seq+1))
			return err
		})
		if err != nil {
			return false, err
		}
		if n := len(ahead); n == 0 || ahead[n-1].seq != seq {
			return true, nil
		}
		for ahead[0].seq != seq && b.lastSeen.hopeless(ahead[0], time.Now()) {
			ahead = ahead[1:]
		}
		p := ahead[0]
		// What this replica has and does not work on, because the caller has the turn,
		// waits for nobody.
		mine := holderOf(p.holder).By == b.replicas.name
		switch still := b.lastSeen.still(p, time.Now()); {
		case mine && p.seq == seq:
			return false, nil
		case mine || still:
			row, ok, err := b.claim(ctx, p)
			switch {
			case err != nil:
				return false, err
			case !ok: // somebody was faster
			case p.seq == seq:
				return false, nil
			default:
				if err := b.handOne(ctx, h, p, row); err != nil {
					b.lastSeen.failed(p, time.Now())
					return false, err
				}
			}
			pause = leastPause
			continue
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return false, ctx.Err()
		}
	}
}

// lastSeen is what this replica saw of pending messages. It is safe for concurrent use.
type lastSeen struct {
	mu sync.Mutex
	by map[string]*sight // by the row's key
}

type sight struct {
	holder []byte
	since  time.Time // the holder is the same since then
	last   time.Time // the last look
	failed time.Time // when the bot first refused the message here; zero: it did not
}

func newLastSeen() *lastSeen { return &lastSeen{by: map[string]*sight{}} }

// still tells whether the replica that a message belongs to is dead, after another
// look at it.
func (s *lastSeen) still(p held, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.of(p)
	if x.last.IsZero() || now.Sub(x.last) > sightGap || !bytes.Equal(x.holder, p.holder) {
		x.holder, x.since = p.holder, now
	}
	x.last = now
	return now.Sub(x.since) >= pendingTTL
}

// failed notes that the bot refused a message of somebody else.
func (s *lastSeen) failed(p held, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.of(p); x.failed.IsZero() {
		x.failed = now
	}
}

// hopeless tells that a message was refused for so long that those after it need
// not wait any more.
func (s *lastSeen) hopeless(p held, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[string(p.key())]
	return x != nil && !x.failed.IsZero() && now.Sub(x.failed) >= patience
}

// keep forgets all but these.
func (s *lastSeen) keep(all []held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.by
	s.by = make(map[string]*sight, len(all))
	for _, p := range all {
		if x := old[string(p.key())]; x != nil {
			s.by[string(p.key())] = x
		}
	}
}

// of is called with mu held.
func (s *lastSeen) of(p held) *sight {
	k := string(p.key())
	if s.by[k] == nil {
		s.by[k] = &sight{}
	}
	return s.by[k]
}
