package outbox

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"countersign/store"
)

// Options configure a [Sender]. Send is required.
type Options struct {
	// Send posts a row, or edits the message row.Ref if that is set, and returns the
	// message's reference. After a crash, or an error with unknown outcome, it may
	// get the same row again (row.Attempts > 1) and must not post it twice. Several
	// goroutines call it, at most one per thread.
	Send func(ctx context.Context, row Row) (ref string, err error)
	// Repeatable reports whether a row that is posted again after a power failure, as if it had
	// never been sent, does no harm: then its attempt need not be durable before Send. An edit
	// always is. Nil: no post is.
	Repeatable func(row Row) bool
	// Permanent reports whether retrying a row after an error of Send is useless. The row
	// is then dropped. Nil: every error is retried.
	Permanent func(Row, error) bool
	// RetryAfter returns how long the network asked to wait. Nil, or false: the
	// sender's own backoff applies.
	RetryAfter func(error) (time.Duration, bool)

	// Yields reports whether other rows may overtake a row, because nobody waits for it.
	// Such a row lets later ones go first once it is older than a second or has failed,
	// and its Send times out after five seconds. Nil: no row yields.
	Yields func(row Row) bool
	// Joins reports whether a row may be sent together with those right before it that join,
	// too: as their [Row].Joined, under one reference. They keep their order. Nil: no row does.
	Joins func(row Row) bool
	// Settles returns how long a row waits before its first attempt, because a newer one of
	// its key may come. Nil: no row waits.
	Settles func(row Row) time.Duration

	MinBackoff  time.Duration // before the second attempt, doubled for each further one; default 500 ms
	MaxBackoff  time.Duration // default 1 minute
	Timeout     time.Duration // of one Send; default 30 s
	Poll        time.Duration // interval of scans for rows whose Wake was lost; default 5 s
	Concurrency int           // threads sent for concurrently; default 8

	// Owner is this sender's name in a shared store. Alive reports, in the transaction
	// that takes over a row, whether the row's sender may still be sending it. A live
	// sender keeps its row. Alive nil: this is the only sender.
	Owner string
	Alive func(tx store.Tx, owner string) bool

	// Log receives failures; nil logs nothing.
	Log *slog.Logger
	// OnSent, if set, is called after a row was posted and recorded, with its
	// reference as row.Ref.
	OnSent func(row Row)
	// OnLate, if set, is called after this sender posted a row that another sender had
	// taken over and recorded. That can happen if a process is suspended between
	// Attempt and Send. row.Ref is set if the row was an edit. made is the message that
	// this sender posted or edited, kept the recorded one, "" if there is none.
	OnLate func(ctx context.Context, row Row, made, kept string)
	// OnDropped, if set, is called after a row was dropped, with the reason as
	// row.LastError.
	OnDropped func(row Row)
}

// Sender posts pending rows. Its methods are safe for concurrent use.
type Sender struct {
	db store.DB
	o  Options

	mu      sync.Mutex
	woken   map[string]bool
	busy    map[string]bool // threads whose first row is being sent or waits for it
	scanAll bool            // look at all threads
	asked   int             // how often it was said that there may be rows which nobody woke it for
	scanned int             // asked, as all threads were last looked at
	stepped chan struct{}   // closed and replaced after each step
	signal  chan struct{}   // holds one: woken or look changed
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
		db: db, o: o, scanAll: true, asked: 1,
		woken: map[string]bool{}, busy: map[string]bool{}, stepped: make(chan struct{}), signal: make(chan struct{}, 1),
	}
}

// Wake notifies the sender, after a commit, that a thread has rows. It does not block. A
// lost Wake delays the rows by Options.Poll at most.
func (s *Sender) Wake(thread string) {
	s.mu.Lock()
	s.woken[thread] = true
	s.mu.Unlock()
	s.poke()
}

// Behind reports whether there are unposted rows of a thread as far as this sender knows, not
// counting rows that yield after a failure. Anything shown in the thread without a row would
// overtake them. Before it has looked at all threads it knows of none that has no rows: those of
// an earlier process may wait.
func (s *Sender) Behind(thread string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked != s.scanned || s.woken[thread] || s.busy[thread]
}

func (s *Sender) poke() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Rescan makes the sender scan all threads now, because another sender may have left rows.
// It does not block.
func (s *Sender) Rescan() {
	s.mu.Lock()
	s.scanAll = true
	s.asked++
	s.mu.Unlock()
	s.poke()
}

// takenByOther reports whether another live sender has attempted the row.
func (s *Sender) takenByOther(tx store.Tx, r Row) bool {
	return s.o.Alive != nil && r.By != "" && r.By != s.o.Owner && s.o.Alive(tx, r.By)
}

// claimable returns threads whose first row no other live sender has attempted.
func (s *Sender) claimable(tx store.Tx) (threads []string) {
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
			alive = s.takenByOther(tx, rows[0])
			lives[by] = alive
		}
		if !alive {
			threads = append(threads, thread)
		}
	}
	return threads
}

// Flush waits until no claimable row is pending, including rows that wait for a retry, or
// returns ctx's error. Run must be running.
func (s *Sender) Flush(ctx context.Context) error {
	for first := true; ; first = false {
		s.mu.Lock()
		moved := s.stepped
		s.scanAll = s.scanAll || first
		s.mu.Unlock()
		if first {
			s.poke()
		}
		empty := false
		if err := s.db.View(ctx, func(tx store.Tx) error {
			empty = len(s.claimable(tx)) == 0
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

// step is the outcome of one turn.
type step struct {
	thread string
	more   bool      // there may be another row
	yields bool      // the row that waits for at lets others go first
	at     time.Time // when to continue; zero: now
}

// Run sends until ctx ends, waits for the sends in progress and returns nil. The next Run
// retries a send that ctx interrupted. Only one Run at a time may use a database, or one
// per Options.Owner.
func (s *Sender) Run(ctx context.Context) error {
	r := &run{
		s: s, done: make(chan step),
		yields: map[string]bool{}, running: map[string]bool{}, rerun: map[string]bool{}, queued: map[string]bool{}, later: map[string]time.Time{},
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
			s.scanAll = true
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

// run is the state of one Run. Only Run's goroutine uses it.
type run struct {
	s       *Sender
	done    chan step
	queue   []string
	queued  map[string]bool
	running map[string]bool
	rerun   map[string]bool // woken while running
	later   map[string]time.Time
	yields  map[string]bool // those of later whose row lets others go first
}

// collect queues the threads that were woken or are due.
func (r *run) collect(ctx context.Context) {
	r.s.mu.Lock()
	woken, look, asked := r.s.woken, r.s.scanAll, r.s.asked
	for thread := range woken {
		r.s.busy[thread] = true
	}
	r.s.woken, r.s.scanAll = map[string]bool{}, false
	r.s.mu.Unlock()
	for thread := range woken {
		r.push(thread)
	}
	if look {
		var threads []string
		if err := r.s.db.View(ctx, func(tx store.Tx) error {
			threads = r.s.claimable(tx)
			return nil
		}); err != nil {
			if ctx.Err() == nil {
				r.s.o.Log.WarnContext(ctx, "outbox cannot read its threads", "error", err)
			}
		} else {
			r.s.mu.Lock()
			r.s.scanned = asked
			for _, thread := range threads {
				r.s.busy[thread] = true
			}
			r.s.mu.Unlock()
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
		r.rerun[thread] = true
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

// next returns when the first waiting thread is due.
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
	again := r.rerun[st.thread]
	delete(r.rerun, st.thread)
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
	close(r.s.stepped)
	r.s.stepped = make(chan struct{})
	r.s.mu.Unlock()
}

const (
	// yieldAfter is the age from which a yielding row lets others go first, yieldTimeout
	// the timeout of its Send, and yieldTo how many rows are considered.
	yieldAfter   = time.Second
	yieldTimeout = 5 * time.Second
	yieldTo      = 16
)

func (s *Sender) yields(r Row) bool { return s.o.Yields != nil && s.o.Yields(r) }

func (s *Sender) joins(r Row) bool { return s.o.Joins != nil && s.o.Joins(r) }

// settle lets rows wait for a newer one of their key.
func (s *Sender) settle(rows []Row) {
	if s.o.Settles == nil {
		return
	}
	for i, r := range rows {
		if r.Attempts == 0 {
			rows[i].NotBefore = r.At.Add(s.o.Settles(r))
		}
	}
}

// pick returns rows from the one to send next: the first, unless it yields to a later one.
// A row cannot overtake an earlier row of its own key, or one that it joins.
func (s *Sender) pick(rows []Row) []Row {
	now := time.Now()
	if len(rows) == 0 || !s.yields(rows[0]) || rows[0].Attempts == 0 && !rows[0].NotBefore.After(now) && now.Sub(rows[0].At) < yieldAfter {
		return rows
	}
	keys, first, joined := map[string]bool{}, 0, false
	for i, r := range rows {
		joins, yields := s.joins(r), s.yields(r)
		switch {
		case keys[r.Key] || joins && joined:
		case !yields && !r.NotBefore.After(now):
			return rows[i:]
		case r.NotBefore.Before(rows[first].NotBefore) && rows[first].NotBefore.After(now):
			first = i
		}
		if !yields {
			break // nothing overtakes it
		}
		keys[r.Key], joined = true, joined || joins
	}
	return rows[first:]
}

// errPost undoes the relaxed attempt of a row whose attempt has to be durable.
var errPost = errors.New("outbox: the row is a post")

func (s *Sender) repeatable(r Row) bool {
	return r.Ref != "" || s.o.Repeatable != nil && s.o.Repeatable(r)
}

// turn sends the first row of a thread.
func (s *Sender) turn(ctx context.Context, thread string) step {
	var row Row
	var wait time.Time
	found, yields := false, false
	attempt := func(tx store.Tx, relaxed bool) error {
		found, yields, wait = false, false, time.Time{}
		n := 1
		if s.o.Yields != nil {
			n = yieldTo
		}
		rows := Pending(tx, thread, n)
		if len(rows) == 0 || s.takenByOther(tx, rows[0]) {
			return nil
		}
		s.settle(rows)
		if rows = s.pick(rows); s.takenByOther(tx, rows[0]) {
			return nil
		}
		if rows[0].NotBefore.After(time.Now()) {
			wait, yields = rows[0].NotBefore, s.yields(rows[0])
			return nil
		}
		if row, found = Attempt(tx, rows[0], s.o.Owner); s.joins(row) {
			for _, r := range rows[1:] {
				if !s.joins(r) {
					break
				}
				if r, ok := Attempt(tx, r, s.o.Owner); ok {
					row.Joined = append(row.Joined, r)
				}
			}
		}
		if relaxed && found && !s.repeatable(row) {
			return errPost
		}
		return nil
	}
	err := store.UpdateRelaxed(ctx, s.db, func(tx store.Tx) error { return attempt(tx, true) })
	if errors.Is(err, errPost) {
		err = s.db.Update(ctx, func(tx store.Tx) error { return attempt(tx, false) })
	}
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
	more := false // there are rows behind this one; later ones come with a Wake
	switch {
	case err == nil:
		kept, late := "", false
		if !s.record(ctx, row, func(tx store.Tx) {
			kept, late = Sent(tx, row, ref)
			sentJoined(tx, row, ref)
			more = hasPending(tx, thread)
		}) {
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
	case s.o.Permanent != nil && s.o.Permanent(row, err):
		s.o.Log.ErrorContext(ctx, "outbox drops a row that cannot be posted", "thread", thread, "key", row.Key, "attempts", row.Attempts, "error", err)
		if !s.record(ctx, row, func(tx store.Tx) { Drop(tx, row, err.Error()); more = hasPending(tx, thread) }) {
			return step{thread: thread}
		}
		if row.LastError = err.Error(); s.o.OnDropped != nil {
			s.o.OnDropped(row)
		}
	case ctx.Err() != nil:
		return step{thread: thread}
	default:
		delay := s.delay(row.Attempts)
		level := slog.LevelWarn
		if s.o.RetryAfter != nil {
			if d, ok := s.o.RetryAfter(err); ok {
				if delay = d; yields {
					level = slog.LevelDebug // it's held back as others are, and nobody waits for it
				}
			}
		}
		next := time.Now().Add(delay)
		if row.LastError == err.Error() {
			level = slog.LevelDebug // a channel may be closed for days
		}
		s.o.Log.Log(ctx, level, "outbox could not post", "thread", thread, "key", row.Key, "attempts", row.Attempts, "retry_in", delay, "error", err)
		s.record(ctx, row, func(tx store.Tx) { Failed(tx, row, err, next) })
		return step{thread: thread, at: next, more: more, yields: yields}
	}
	return step{thread: thread, more: more}
}

// sentJoined records that the rows which were sent with another are posted.
func sentJoined(tx store.Tx, row Row, ref string) {
	for _, r := range row.Joined {
		Sent(tx, r, ref)
	}
}

// record stores the outcome of an attempt. It retries while the store fails, because the
// post cannot be undone. It returns false if ctx ends first.
func (s *Sender) record(ctx context.Context, row Row, write func(store.Tx)) bool {
	for try := 1; ; try++ {
		// What is lost of this is a message that Send finds again.
		err := store.UpdateRelaxed(context.WithoutCancel(ctx), s.db, func(tx store.Tx) error {
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

// delay grows exponentially with the number of tries. It varies by a quarter in both
// directions, so that threads that failed together do not retry together.
func (s *Sender) delay(tries int) time.Duration {
	d := s.o.MaxBackoff
	if shift := tries - 1; shift < 20 {
		d = min(d, s.o.MinBackoff<<shift)
	}
	spread := d / 2
	return d - spread/2 + rand.N(spread+1) //nolint:gosec // spreading, not secrecy
}
