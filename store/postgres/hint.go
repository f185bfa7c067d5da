package postgres

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"countersign/store"
)

const (
	maxHint      = 4000 // bytes of a name; NOTIFY takes less than 8000
	hintBacklog  = 256  // names that wait to be sent, or for a reader
	hintPing     = 20 * time.Second
	hintRetryMax = 5 * time.Second
)

// hints sends and receives names. Its two goroutines end with close.
type hints struct {
	db      *DB
	channel string
	cancel  context.CancelFunc
	out     chan string
	done    sync.WaitGroup

	mu      sync.Mutex
	readers []chan string // guarded by mu, as is closing them
	on      bool          // the connection listens
	closed  bool
}

func newHints(db *DB, schema string) *hints {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hints{db: db, channel: "countersign_" + schema, cancel: cancel, out: make(chan string, hintBacklog)}
	h.done.Go(func() { h.receiveLoop(ctx) })
	h.done.Go(func() { h.sendLoop(ctx) })
	return h
}

// Notify makes every DB on this schema, this one included, send name to its Wake
// channels after the transaction was committed. It is a hint that may be lost or come late or
// twice: whoever waits for one must also look from time to time. It does nothing
// for a transaction of another engine, for names of more than 4000 bytes or that
// are not text, and while hints are off.
func (db *DB) Notify(in store.Tx, name string) {
	t, ok := in.(*tx)
	if !ok || db.hints == nil || !speakable(name) {
		return
	}
	t.checkWrite()
	if !slices.Contains(t.names, name) {
		t.names = append(t.names, name)
	}
}

// Hint is Notify for what stands in no row: it is sent at once.
func (db *DB) Hint(name string) {
	if db.hints != nil && speakable(name) {
		db.hints.queue(name)
	}
}

// speakable reports whether the server takes a name.
func speakable(name string) bool {
	return len(name) <= maxHint && utf8.ValidString(name) && !strings.ContainsRune(name, 0)
}

// queue has a name sent to the others; where too many wait it is dropped, as hints may be.
func (h *hints) queue(name string) {
	select {
	case h.out <- name:
	default:
	}
}

// Wake returns a channel of the names that were given to Notify or Hint anywhere. An
// empty name says that others may have been missed: look at everything. It is the
// first to come, as soon as the server is listened to. What is not read in time is
// dropped. The channel is closed when ctx ends or the DB is
// closed; while hints are off it has nothing else to say.
func (db *DB) Wake(ctx context.Context) <-chan string {
	c := make(chan string, hintBacklog)
	if db.hints == nil {
		context.AfterFunc(ctx, func() { close(c) })
		return c
	}
	db.hints.add(c)
	context.AfterFunc(ctx, func() { db.hints.remove(c) })
	return c
}

// announce passes on the names of a transaction that was committed.
func (db *DB) announce(t *tx, err error) {
	if err != nil || db.hints == nil {
		return
	}
	for _, name := range t.names {
		db.hints.queue(name)
	}
}

func (h *hints) add(c chan string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(c)
		return
	}
	h.readers = append(h.readers, c)
	if h.on {
		c <- "" // has room
	}
}

func (h *hints) remove(c chan string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.readers, c); i >= 0 {
		h.readers = slices.Delete(h.readers, i, i+1)
		close(c)
	}
}

func (h *hints) setListening(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = on
}

func (h *hints) deliver(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.readers {
		select {
		case c <- name:
		default: // the reader has enough to do
		}
	}
}

// close ends the goroutines and the channels. It is fine on nil.
func (h *hints) close() {
	if h == nil {
		return
	}
	h.cancel()
	h.done.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.readers {
		close(c)
	}
	h.readers, h.closed = nil, true
}

// sendLoop sends what waits, all of it in one transaction of its own. NOTIFY takes a
// lock on all of the server's commits until its own is on the disk, so it must not
// be in a transaction that waits for the disk.
func (h *hints) sendLoop(ctx context.Context) {
	for {
		var names []string
		select {
		case name := <-h.out:
			names = append(names, name)
		case <-ctx.Done():
			return
		}
		for more := true; more; {
			select {
			case name := <-h.out:
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			default:
				more = false
			}
		}
		h.send(ctx, names)
	}
}

func (h *hints) send(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, h.db.o.Timeout)
	defer cancel()
	s, err := h.db.pool.get(ctx)
	if err != nil {
		return // a hint; the next transaction says what is wrong
	}
	b := &pgx.Batch{}
	b.Queue(`BEGIN`)
	b.Queue(`SET LOCAL synchronous_commit = off`)
	b.Queue(h.db.sql.hints, h.channel, names)
	b.Queue(`COMMIT`)
	if err := s.conn.SendBatch(ctx, b).Close(); err != nil {
		h.db.pool.drop(s)
		return
	}
	h.db.pool.put(s)
}

// receiveLoop keeps a connection of its own on the channel.
func (h *hints) receiveLoop(ctx context.Context) {
	wait := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		if err := h.receive(ctx); err != nil && ctx.Err() == nil {
			h.db.log.Debug("store lost the connection that listens", "error", h.db.explain(err))
		}
		if time.Since(began) > hintRetryMax {
			wait = firstPause
		}
		pause(ctx, wait)
		wait = min(2*wait, hintRetryMax)
	}
}

func (h *hints) receive(ctx context.Context) error {
	c, err := connect(ctx, h.db.pool.cfg)
	if err != nil {
		return err
	}
	defer closeConn(c)
	if _, err := c.Exec(ctx, `LISTEN `+h.channel); err != nil {
		return err
	}
	h.setListening(true)
	defer h.setListening(false)
	h.deliver("") // what was said before is lost
	for {
		n, err := waitFor(ctx, c)
		if err != nil {
			return err
		}
		if n != "" {
			h.deliver(n)
		}
	}
}

// waitFor returns the next name, or an empty one when there was none for a while
// and the server still answers.
func waitFor(ctx context.Context, c *pgx.Conn) (string, error) {
	short, cancel := context.WithTimeout(ctx, hintPing)
	defer cancel()
	n, err := c.WaitForNotification(short)
	if err == nil {
		return n.Payload, nil
	}
	if ctx.Err() != nil || short.Err() == nil || c.IsClosed() {
		return "", err
	}
	ping, cancel := context.WithTimeout(ctx, hintPing)
	defer cancel()
	return "", c.Ping(ping)
}
