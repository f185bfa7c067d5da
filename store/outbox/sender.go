package outbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"countersign/store"
)

// Options say how a [Sender] sends. Send is required.
type Options struct {
	// Send posts a row, or edits the message row.Ref when that is set, and returns
	// the reference of the message. It may see the same row again after a crash or
	// an error whose outcome is unknown (row.Attempts > 1) and must then not post it
	// twice. It is called by several goroutines, one per thread at a time.
	Send func(ctx context.Context, row Row) (ref string, err error)
	// Permanent says of an error of Send that trying again is useless; the row is
	// dropped. Nil: no error is.
	Permanent func(error) bool
	// RetryAfter returns how long the network asked to wait. Nil, or false: the
	// sender's own backoff.
	RetryAfter func(error) (time.Duration, bool)

	// Yields says of a row that others may overtake it: nobody waits for it. A row that was
	// put more than a second ago, or that failed, lets those behind it go first, and one
	// Send of it takes five seconds at most. Nil: no row does.
	Yields func(row Row) bool

	MinBackoff  time.Duration // before the second try, doubled for each further one; default 500 ms
	MaxBackoff  time.Duration // default 1 minute
	Timeout     time.Duration // of one Send; default 30 s
	Poll        time.Duration // how often to look for rows that nobody woke it for; default 5 s
	Concurrency int           // threads that are sent for at once; default 8

	// Owner is this sender's name among those of a shared store, and Alive says, in the
	// transaction that takes a row from it, whether another may still be sending: a row
	// that a live one tried is left to it. Alive nil: there is one sender.
	Owner string
	Alive func(tx store.Tx, owner string) bool

	// Log receives failures; nil means nothing is logged.
	Log *slog.Logger
	// OnSent, if set, is called after a row was posted and recorded, with its
	// reference as row.Ref.
	OnSent func(row Row)
	// OnLate, if set, is called after a row was posted that another sender, which went on
	// with the thread meanwhile, had sent and recorded: a process can be stopped between
	// its last look and its call. row.Ref is set where the row was an edit, made is the
	// message that this sender made or edited, and kept the one that counts, "" if none is
	// known.
	OnLate func(ctx context.Context, row Row, made, kept string)
	// OnDropped, if set, is called after a row was dropped, with the reason as
	// row.LastError.
	OnDropped func(row Row)
}

// Sender posts pending rows. Its methods are safe for concurrent use.
type Sender struct {
	db store.DB
	o  Options

	mu     sync.Mutex
	woken  map[string]bool
	busy   map[string]bool // threads whose first row is being sent, or waits for that
	look   bool            // look at all threads
	moved  chan struct{}   // closed and replaced after each step
	signal chan struct{}   // holds one: woken or look changed
}

// NewSender returns a sender over db. It does nothing before Run.
func NewSender(db store.DB, o Options) *Sender {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.MinBackoff, 500*time.Millisecond)
	def(&o.MaxBackoff, time.Minute)
	def(&o.Timeout, 30*time.Second)
	def(&o.Poll, 5*time.Second)
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Sender{
		db: db, o: o, look: true,
		woken: map[string]bool{}, busy: map[string]bool{}, moved: make(chan struct{}), signal: make(chan struct{}, 1),
	}
}

// Wake tells the sender, after a commit, that a thread has rows. It does not
// block. A forgotten Wake costs Options.Poll, no more.
func (s *Sender) Wake(thread string) {
	s.mu.Lock()
	s.woken[thread] = true
	s.mu.Unlock()
	s.poke()
}

// Behind reports whether this sender knows of rows of a thread that are not posted yet, but
// for those that yield after a failed try. What is shown there without a row would come
// before them.
func (s *Sender) Behind(thread string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.woken[thread] || s.busy[thread]
}

func (s *Sender) poke() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Look makes the sender look at all threads now: another one may have left rows. It
// does not block.
func (s *Sender) Look() {
	s.mu.Lock()
	s.look = true
	s.mu.Unlock()
	s.poke()
}

// foreign reports whether another sender is at a row.
func (s *Sender) foreign(tx store.Tx, r Row) bool {
	return s.o.Alive != nil && r.By != "" && r.By != s.o.Owner && s.o.Alive(tx, r.By)
}

// own returns the threads with a row that no other sender is at.
func (s *Sender) own(tx store.Tx) (threads []string) {
	all := Threads(tx, 0)
	if s.o.Alive == nil {
		return all
	}
	lives := map[string]bool{}
	for _, thread := range all {
		rows := Pending(tx, thread, 1)
		if len(rows) == 0 {
			continue
		}
		by := rows[0].By
		alive, known := lives[by]
		if !known {
			alive = s.foreign(tx, rows[0])
			lives[by] = alive
		}
		if !alive {
			threads = append(threads, thread)
		}
	}
	return threads
}

// Flush waits until no row is pending that no other sender is at, those that wait for
// another try included, or returns ctx's error. It needs a Run at work.
func (s *Sender) Flush(ctx context.Context) error {
	for first := true; ; first = false {
		s.mu.Lock()
		moved := s.moved
		s.look = s.look || first
		s.mu.Unlock()
		if first {
			s.poke()
		}
		empty := false
		if err := s.db.View(ctx, func(tx store.Tx) error {
			empty = len(s.own(tx)) == 0
			return nil
		}); err != nil || empty {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// step is what came of one thread's turn.
type step struct {
	thread string
	more   bool      // there may be another row
	yields bool      // the row that waits until at lets others go first
	at     time.Time // not before; zero: now
}

// Run sends until ctx is done, waits for the sends under way and returns nil. A
// send that ctx interrupts is tried again by the next Run. Only one Run at a time
// may work on a database, or one for each Options.Owner.
func (s *Sender) Run(ctx context.Context) error {
	r := &run{
		s: s, done: make(chan step),
		yields: map[string]bool{}, running: map[string]bool{}, again: map[string]bool{}, queued: map[string]bool{}, later: map[string]time.Time{},
	}
	poll := time.NewTicker(s.o.Poll)
	defer poll.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.collect(ctx)
		r.start(ctx)
		if at, ok := r.next(); ok {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
		select {
		case <-s.signal:
		case <-poll.C:
			s.mu.Lock()
			s.look = true
			s.mu.Unlock()
		case <-timer.C:
		case st := <-r.done:
			r.finish(st)
		case <-ctx.Done():
			for len(r.running) > 0 {
				r.finish(<-r.done)
			}
			return nil
		}
	}
}

// run is the state of one Run; it belongs to its goroutine.
type run struct {
	s       *Sender
	done    chan step
	queue   []string
	queued  map[string]bool
	running map[string]bool
	again   map[string]bool // woken while running
	later   map[string]time.Time
	yields  map[string]bool // those of later whose row lets others go first
}

// collect queues the threads that were woken or whose time has come.
func (r *run) collect(ctx context.Context) {
	r.s.mu.Lock()
	woken, look := r.s.woken, r.s.look
	for thread := range woken {
		r.s.busy[thread] = true
	}
	r.s.woken, r.s.look = map[string]bool{}, false
	r.s.mu.Unlock()
	for thread := range woken {
		r.push(thread)
	}
	if look {
		var threads []string
		if err := r.s.db.View(ctx, func(tx store.Tx) error {
			threads = r.s.own(tx)
			return nil
		}); err != nil && ctx.Err() == nil {
			r.s.o.Log.WarnContext(ctx, "outbox cannot read its threads", "error", err)
		}
		for _, thread := range threads {
			r.push(thread)
		}
	}
	now := time.Now()
	for thread, at := range r.later {
		if !at.After(now) {
			delete(r.later, thread)
			delete(r.yields, thread)
			r.push(thread)
		}
	}
}

func (r *run) push(thread string) {
	if _, waits := r.later[thread]; waits && !r.yields[thread] || r.queued[thread] {
		return
	}
	if r.running[thread] {
		r.again[thread] = true
		return
	}
	r.queued[thread] = true
	r.queue = append(r.queue, thread)
}

func (r *run) start(ctx context.Context) {
	for len(r.queue) > 0 && len(r.running) < r.s.o.Concurrency {
		thread := r.queue[0]
		r.queue = r.queue[1:]
		delete(r.queued, thread)
		r.running[thread] = true
		go func() { r.done <- r.s.turn(ctx, thread) }()
	}
}

// next is when the first waiting thread may go on.
func (r *run) next() (first time.Time, ok bool) {
	for _, at := range r.later {
		if !ok || at.Before(first) {
			first, ok = at, true
		}
	}
	return first, ok
}

func (r *run) finish(st step) {
	delete(r.running, st.thread)
	again := r.again[st.thread]
	delete(r.again, st.thread)
	switch {
	case !st.at.IsZero():
		r.later[st.thread] = st.at
		if st.yields {
			r.yields[st.thread] = true
			if again {
				r.push(st.thread)
			}
		} else {
			delete(r.yields, st.thread)
		}
	case st.more || again:
		r.push(st.thread)
	}
	_, waits := r.later[st.thread]
	r.s.mu.Lock()
	if r.queued[st.thread] || waits && !r.yields[st.thread] {
		r.s.busy[st.thread] = true
	} else {
		delete(r.s.busy, st.thread)
	}
	close(r.s.moved)
	r.s.moved = make(chan struct{})
	r.s.mu.Unlock()
}

const (
	// yieldAfter is the age from which a row that yields lets others go first, yieldTimeout
	// bounds one Send of it, and yieldTo is how far behind it is looked.
	yieldAfter   = time.Second
	yieldTimeout = 5 * time.Second
	yieldTo      = 16
)

func (s *Sender) yields(r Row) bool { return s.o.Yields != nil && s.o.Yields(r) }

// pick puts the row that is sent next to the front: the first one, unless it yields to one
// behind it that edits nothing which is still to be posted.
func (s *Sender) pick(rows []Row) []Row {
	if len(rows) == 0 || !s.yields(rows[0]) || rows[0].Attempts == 0 && time.Since(rows[0].At) < yieldAfter {
		return rows
	}
	keys := map[string]bool{}
	for i, r := range rows {
		if !keys[r.Key] && !r.NotBefore.After(time.Now()) && !s.yields(r) {
			return rows[i:]
		}
		keys[r.Key] = true
	}
	return rows
}

// turn sends the first row of a thread.
func (s *Sender) turn(ctx context.Context, thread string) step {
	var row Row
	var wait time.Time
	found, yields := false, false
	err := s.db.Update(ctx, func(tx store.Tx) error {
		found, yields, wait = false, false, time.Time{}
		n := 1
		if s.o.Yields != nil {
			n = yieldTo
		}
		rows := Pending(tx, thread, n)
		if len(rows) == 0 || s.foreign(tx, rows[0]) {
			return nil
		}
		if rows = s.pick(rows); s.foreign(tx, rows[0]) {
			return nil
		}
		if rows[0].NotBefore.After(time.Now()) {
			wait, yields = rows[0].NotBefore, s.yields(rows[0])
			return nil
		}
		row, found = Attempt(tx, rows[0], s.o.Owner)
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return step{thread: thread}
	case err != nil:
		s.o.Log.WarnContext(ctx, "outbox cannot read a thread", "thread", thread, "error", err)
		return step{thread: thread, at: time.Now().Add(s.o.MaxBackoff)}
	case !found:
		return step{thread: thread, at: wait, yields: yields}
	}
	timeout := s.o.Timeout
	if yields = s.yields(row); yields {
		timeout = min(timeout, yieldTimeout)
	}
	sctx, cancel := context.WithTimeout(ctx, timeout)
	ref, err := s.o.Send(sctx, row)
	cancel()
	more := false // rows behind this one; of those that come later somebody is told
	switch {
	case err == nil:
		kept, late := "", false
		if !s.record(ctx, row, func(tx store.Tx) { kept, late = Sent(tx, row, ref); more = waits(tx, thread) }) {
			return step{thread: thread}
		}
		if late {
			s.o.Log.WarnContext(ctx, "outbox posted what another replica had posted", "thread", thread, "key", row.Key)
			if s.o.OnLate != nil {
				lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Timeout)
				s.o.OnLate(lctx, row, ref, kept)
				cancel()
			}
			return step{thread: thread, more: more}
		}
		if ref != "" {
			row.Ref = ref
		}
		if s.o.OnSent != nil {
			s.o.OnSent(row)
		}
	case s.o.Permanent != nil && s.o.Permanent(err):
		s.o.Log.ErrorContext(ctx, "outbox drops a row that cannot be posted", "thread", thread, "key", row.Key, "attempts", row.Attempts, "error", err)
		if !s.record(ctx, row, func(tx store.Tx) { Drop(tx, row, err.Error()); more = waits(tx, thread) }) {
			return step{thread: thread}
		}
		if row.LastError = err.Error(); s.o.OnDropped != nil {
			s.o.OnDropped(row)
		}
	case ctx.Err() != nil:
		return step{thread: thread}
	default:
		delay := s.delay(row.Attempts)
		if s.o.RetryAfter != nil {
			if d, ok := s.o.RetryAfter(err); ok {
				delay = d
			}
		}
		next := time.Now().Add(delay)
		s.o.Log.WarnContext(ctx, "outbox could not post", "thread", thread, "key", row.Key, "attempts", row.Attempts, "retry_in", delay, "error", err)
		s.record(ctx, row, func(tx store.Tx) { Failed(tx, row, err, next) })
		return step{thread: thread, at: next, more: more, yields: yields}
	}
	return step{thread: thread, more: more}
}

// record writes what came of a try. It goes on trying while the store fails,
// because the post cannot be undone; false when ctx ended that.
func (s *Sender) record(ctx context.Context, row Row, write func(store.Tx)) bool {
	for try := 1; ; try++ {
		err := s.db.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
			write(tx)
			return nil
		})
		if err == nil {
			return true
		}
		s.o.Log.ErrorContext(ctx, "outbox cannot record what it did", "thread", row.Thread, "key", row.Key, "error", err)
		timer := time.NewTimer(s.delay(try))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// delay grows exponentially with the number of tries and is spread by a quarter
// to both sides, so that threads which failed together do not come back together.
func (s *Sender) delay(tries int) time.Duration {
	d := s.o.MaxBackoff
	if shift := tries - 1; shift < 20 {
		d = min(d, s.o.MinBackoff<<shift)
	}
	spread := d / 2
	return d - spread/2 + rand.N(spread+1) //nolint:gosec // spreading, not secrecy
}
