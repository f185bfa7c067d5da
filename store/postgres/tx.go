package postgres

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"countersign/store"
	"countersign/store/internal/tree"
)

const (
	firstPage = 8       // rows; what is read is locked, and most scans want the first one
	growPage  = 8       // times, from page to page
	maxPage   = 1024    // rows
	pageBytes = 1 << 20 // that a page aims at, judged by the one before
	setBytes  = 8 << 20 // of one statement that writes
)

// overlay is what a transaction wrote; a nil value is a deleted key.
type overlay = tree.Map[[]byte]

// tx is one run of a function. Its transaction begins together with the first
// read, in one exchange with the server; what it writes stays in memory until the
// function has returned.
type tx struct {
	db       *DB
	ctx      context.Context //nolint:containedctx // store.Tx has none; it lives as long as one call
	s        *session
	writable bool
	turn     bool // take the lock of those who failed before
	retry    func(error) bool

	began    bool
	broken   error // of the engine; it ended the function
	finished bool
	over     overlay
	seen     map[string]found // the snapshot does not change
	names    []string         // of DB.Notify
}

type found struct {
	val []byte
	ok  bool
}

func (t *tx) run(fn func(store.Tx) error) (err error) {
	defer func() { t.finished = true }()
	defer store.Catch(&err)
	return fn(t)
}

// fail ends the function.
func (t *tx) fail(err error) {
	t.broken = err
	store.Abort(err)
}

func (t *tx) Get(key []byte) ([]byte, bool) {
	t.check()
	if val, ok := t.over.Get(key); ok {
		return bytes.Clone(val), val != nil
	}
	if len(key) == 0 || len(key) > store.MaxKey {
		return nil, false
	}
	f, ok := t.seen[string(key)]
	if !ok {
		k := place(key)
		t.ask(t.db.sql.get, []any{k}, func(rows pgx.Rows) error {
			f.ok = true
			return rows.Scan(&f.val)
		})
		if f.ok {
			r, err := decode(k, f.val)
			if err != nil {
				store.Abort(err)
			}
			f.val = r.val
		}
		if t.seen == nil {
			t.seen = map[string]found{}
		}
		t.seen[string(key)] = f
	}
	if !f.ok {
		return nil, false
	}
	return append([]byte{}, f.val...), true
}

func (t *tx) Set(key, val []byte) {
	t.checkWrite()
	if len(key) == 0 || len(key) > store.MaxKey {
		store.Abort(fmt.Errorf("%w, this one has %d", store.ErrKeySize, len(key)))
	}
	t.over = t.over.Set(bytes.Clone(key), append([]byte{}, val...))
}

func (t *tx) Delete(key []byte) {
	t.checkWrite()
	if len(key) == 0 || len(key) > store.MaxKey {
		return
	}
	if f, ok := t.seen[string(key)]; ok && !f.ok {
		t.over = t.over.Delete(key) // not in the table: nothing to tell the server
		return
	}
	t.over = t.over.Set(bytes.Clone(key), nil)
}

func (t *tx) Scan(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		t.check()
		inside := func(key []byte) bool { return end == nil || bytes.Compare(key, end) < 0 }
		t.merge(t.cursor(start, end, false), t.writes().Ascend(start), inside, 1, yield)
	}
}

func (t *tx) ScanBack(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		t.check()
		inside := func(key []byte) bool { return bytes.Compare(key, start) >= 0 }
		t.merge(t.cursor(start, end, true), t.writes().Descend(end), inside, -1, yield)
	}
}

// writes returns the overlay for a scan, which goes on when t changes its own.
func (t *tx) writes() overlay {
	if t.writable {
		t.over = t.over.Edit()
	}
	return t.over
}

// merge yields the rows of the table and of the overlay, which hides those of the
// table. sign is 1 for ascending order and -1 for descending.
func (t *tx) merge(table *cursor, over *tree.Cursor[[]byte], inside func([]byte) bool, sign int, yield func([]byte, []byte) bool) {
	base, more := table.next()
	okey, oval, omore := over.Next()
	for {
		omore = omore && inside(okey)
		var c int
		switch {
		case !more && !omore:
			return
		case !more:
			c = 1
		case !omore:
			c = -1
		default:
			c = sign * bytes.Compare(base.key, okey)
		}
		key, val := okey, oval
		if c < 0 {
			key, val = base.key, base.val
		}
		if val != nil && !yield(bytes.Clone(key), append([]byte{}, val...)) {
			return
		}
		if c <= 0 {
			base, more = table.next()
		}
		if c >= 0 {
			okey, oval, omore = over.Next()
		}
	}
}

// cursor reads a range of the table in pages.
type cursor struct {
	t          *tx
	start, end []byte // of the keys
	lo, hi     []byte // of the places that were not read yet; a nil hi is none
	back       bool
	limit      int
	buf        []row
	done       bool
}

func (t *tx) cursor(start, end []byte, back bool) *cursor {
	c := &cursor{t: t, start: start, end: end, lo: lower(start), hi: upper(end), back: back, limit: firstPage}
	c.done = end != nil && bytes.Compare(start, end) >= 0
	return c
}

func (c *cursor) next() (row, bool) {
	for {
		for len(c.buf) > 0 {
			r := c.buf[0]
			c.buf = c.buf[1:]
			if bytes.Compare(r.key, c.start) >= 0 && (c.end == nil || bytes.Compare(r.key, c.end) < 0) {
				return r, true
			}
		}
		if c.done {
			return row{}, false
		}
		c.t.check()
		c.read()
	}
}

// read gets the next page.
func (c *cursor) read() {
	page := c.t.page(c.lo, c.hi, c.back, c.limit)
	c.done = len(page) < c.limit
	size := 0
	for _, r := range page {
		size += len(r.key) + len(r.val)
	}
	if len(page) > 0 {
		c.limit = max(firstPage, min(c.limit*growPage, maxPage, pageBytes*len(page)/(size+1)))
		c.pass(page[len(page)-1].key)
	}
	for i, r := range page {
		if long(r.key) {
			prefix := r.key[:maxShort]
			c.buf = append(c.rows(page[:i]), c.group(prefix)...)
			if c.done = false; c.back {
				c.hi = append(slices.Clone(prefix), 0) // the prefix itself may be a key
			} else {
				c.lo = append(slices.Clone(prefix), pastPrefix...)
			}
			return
		}
	}
	c.buf = c.rows(page)
}

// pass moves the bound past a place.
func (c *cursor) pass(k []byte) {
	if c.back {
		c.hi = k
	} else {
		c.lo = append(slices.Clone(k), 0)
	}
}

// group returns all long keys of a prefix in order.
func (c *cursor) group(prefix []byte) []row {
	lo, hi := append(slices.Clone(prefix), 0), append(slices.Clone(prefix), pastPrefix...)
	var all []row
	for more := true; more; {
		page := c.t.page(lo, hi, false, maxPage/8)
		if more = len(page) == maxPage/8; more {
			lo = append(slices.Clone(page[len(page)-1].key), 0)
		}
		all = append(all, c.rows(page)...)
	}
	slices.SortFunc(all, func(a, b row) int {
		if c.back {
			a, b = b, a
		}
		return bytes.Compare(a.key, b.key)
	})
	return all
}

// rows turns places and contents into keys and values.
func (c *cursor) rows(page []row) []row {
	for i, r := range page {
		var err error
		if page[i], err = decode(r.key, r.val); err != nil {
			store.Abort(err)
		}
	}
	return page
}

// page reads at most limit places and contents.
func (t *tx) page(lo, hi []byte, back bool, limit int) []row {
	sql, args := t.db.sql.up, []any{lo, int64(limit)}
	switch {
	case hi == nil && back:
		sql = t.db.sql.down
	case hi != nil && back:
		sql = t.db.sql.downTo
	case hi != nil:
		sql = t.db.sql.upTo
	}
	if hi != nil {
		args = append(args, hi)
	}
	page := make([]row, 0, min(limit, 64))
	t.ask(sql, args, func(rows pgx.Rows) error {
		var r row
		if err := rows.Scan(&r.key, &r.val); err != nil {
			return err
		}
		page = append(page, r)
		return nil
	})
	return page
}

// ask runs one query, and begins the transaction with it when that has not begun.
func (t *tx) ask(sql string, args []any, each func(pgx.Rows) error) {
	for {
		err := t.exchange(sql, args, each)
		if err == nil {
			return
		}
		// Nothing was read yet, so another connection is as good.
		if t.began || t.retry == nil || !t.retry(err) {
			t.fail(err)
		}
	}
}

func (t *tx) exchange(sql string, args []any, each func(pgx.Rows) error) error {
	b := &pgx.Batch{}
	before := t.prelude(b)
	b.Queue(sql, args...)
	ctx, cancel := context.WithTimeout(t.ctx, t.db.o.Timeout)
	defer cancel()
	results := t.s.conn.SendBatch(ctx, b)
	err := skip(results, before)
	if err == nil {
		var rows pgx.Rows
		rows, err = results.Query()
		for err == nil && rows.Next() {
			err = each(rows)
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
	}
	if cerr := results.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		t.began = true
	}
	return err
}

// prelude queues what begins the transaction and returns how many statements
// that are.
func (t *tx) prelude(b *pgx.Batch) int {
	if t.began {
		return 0
	}
	begin := t.db.sql.beginView
	if t.writable {
		begin = t.db.sql.beginUpdate
	}
	b.Queue(begin)
	if t.turn {
		b.Queue(t.db.sql.turn)
	}
	b.Queue(t.db.sql.settings, strconv.FormatInt(t.db.o.Timeout.Milliseconds(), 10))
	return b.Len()
}

func skip(results pgx.BatchResults, n int) error {
	for range n {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}

// flush queues the statements that write the overlay. Rows are written in order
// of their keys, so that no two transactions wait for each other; hence sets and
// deletes alternate as the keys do.
func (t *tx) flush(b *pgx.Batch) {
	var ks, vs [][]byte
	size, deletes := 0, false
	end := func() {
		switch {
		case len(ks) == 0:
		case deletes:
			b.Queue(t.db.sql.del, ks)
		default:
			b.Queue(t.db.sql.set, ks, vs)
		}
		ks, vs, size = nil, nil, 0
	}
	for c := t.over.Ascend(nil); ; {
		key, val, ok := c.Next()
		if !ok {
			break
		}
		if deletes != (val == nil) || size > setBytes {
			end()
			deletes = val == nil
		}
		ks = append(ks, place(key))
		if val != nil {
			vs = append(vs, content(key, val))
		}
		size += len(key) + len(val)
	}
	end()
}

func (t *tx) check() {
	if t.finished {
		panic("store/postgres: a transaction was used after its function returned")
	}
}

func (t *tx) checkWrite() {
	t.check()
	if !t.writable {
		store.Abort(store.ErrReadOnly)
	}
}
