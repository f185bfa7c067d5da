package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"countersign/store"
)

// Fault is one thing that is wrong. With neither a Thread nor Anchor set, it is
// about the whole.
type Fault struct {
	Thread string // the thread whose line N it is about
	Anchor bool   // it is about anchor N
	N      uint64
	What   string // "was changed", "is missing"
}

// String is one line, "thread web:1 line 3: was changed".
func (f Fault) String() string {
	switch {
	case f.Anchor:
		return fmt.Sprintf("anchor %d: %s", f.N, f.What)
	case f.Thread != "":
		return fmt.Sprintf("thread %s line %d: %s", name(f.Thread), f.N, f.What)
	}
	return f.What
}

// CheckOptions say what is checked. The zero value is for the store of a bot.
type CheckOptions struct {
	// Export is the header of the export that was imported into this database; nil
	// for the store of a bot.
	Export *Header
	// Posted, when not empty, is the hash of an anchor as it was posted, or its
	// first 12 digits or more: the chain must have it.
	Posted string
}

// Checked is what was looked at.
type Checked struct {
	Threads, Lines, Anchors int
	// Withheld is the number of lines whose texts an export left out, so that only
	// the rest of them was checked.
	Withheld int
	// Loose is the number of lines that no anchor covers yet, or none whose heads are in the export.
	Loose uint64
	// Skipped is the number of anchored heads that a part of the whole cannot be
	// compared with, and of anchors that it shows without their heads.
	Skipped int
	Faults  int
	Latest  AnchorLine // the newest anchor, zero when there is none
}

// Check reads every chain and every anchor and calls fault for each thing that
// is wrong. Its memory does not grow with the store. It changes nothing, and
// damaged rows do not abort it.
func Check(tx store.Tx, o CheckOptions, fault func(Fault)) Checked {
	c := &checker{tx: tx, o: o, posted: o.Posted == ""}
	c.tell = func(f Fault) { c.Faults++; fault(f) }
	c.lines()
	c.heads()
	c.anchors()
	if !c.posted {
		c.tell(Fault{What: "no anchor has the hash " + safe(o.Posted) + ", so this is not the record that was posted"})
	}
	return c.Checked
}

// Verify checks the thread's chain by itself. The error names the first line
// that is wrong.
func Verify(tx store.Tx, thread string) error {
	var first *Fault
	c := &checker{tx: tx, tell: func(f Fault) {
		if first == nil {
			first = &f
		}
	}}
	ch := c.begin(thread)
	for key, raw := range tx.Scan(store.Prefix("audit", thread)) {
		if _, n, ok := lineOf(key); ok {
			ch.add(n, raw)
		}
	}
	ch.end()
	if first != nil {
		return errors.New("audit: " + first.String())
	}
	return nil
}

func safe(s string) string {
	if len(s) > 2*hexLength {
		s = s[:2*hexLength]
	}
	return strings.Map(ascii, s)
}

type checker struct {
	Checked
	tx     store.Tx
	o      CheckOptions
	tell   func(Fault)
	posted bool // the anchor that was asked for was seen
}

func lineOf(key []byte) (thread string, n uint64, ok bool) {
	parts, err := store.Parts(key)
	if err != nil || len(parts) != 3 {
		return "", 0, false
	}
	thread, ok = parts[1].(string)
	n, ok2 := parts[2].(uint64)
	return thread, n, ok && ok2
}

// lines checks every chain that has lines.
func (c *checker) lines() {
	var ch *chain
	for key, raw := range c.tx.Scan(store.Prefix("audit")) {
		thread, n, ok := lineOf(key)
		if !ok {
			c.tell(Fault{What: "the row " + safe(store.Format(key)) + " is no line of a chain"})
			continue
		}
		if ch == nil || ch.thread != thread {
			ch.end()
			ch = c.begin(thread)
		}
		ch.add(n, raw)
	}
	ch.end()
}

// chain is one chain while it is read.
type chain struct {
	*checker
	thread string
	want   uint64   // the number of the next line
	prev   []string // what its prev may be; nil if the line before does not say
}

func (c *checker) begin(thread string) *chain {
	c.Threads++
	ch := &chain{checker: c, thread: thread, prev: []string{""}}
	if c.o.Export != nil {
		if from := c.from(thread); from > 0 && from != math.MaxUint64 {
			ch.want, ch.prev = from, nil
		}
	}
	return ch
}

func (ch *chain) fault(n uint64, format string, a ...any) {
	ch.tell(Fault{Thread: ch.thread, N: n, What: fmt.Sprintf(format, a...)})
}

func (ch *chain) add(n uint64, raw []byte) {
	ch.Lines++
	if n != ch.want {
		ch.missing(n)
		ch.prev = nil
	}
	ch.want = n + 1
	prev := ch.prev
	p := parseLine(raw)
	ch.prev = nil // after a fault, the next line is not blamed for it
	if p.Hash != "" {
		ch.prev = []string{p.Hash, p.computed}
	}
	switch {
	case p.problem != "":
		ch.fault(n, "%s", p.problem)
	case p.N != n:
		ch.fault(n, "is in the place of another: it says that it is line %d", p.N)
		ch.prev = nil
	case !p.first && p.Thread != ch.thread:
		ch.fault(n, "is a line of thread %s", name(p.Thread))
		ch.prev = nil
	case prev != nil && !slices.Contains(prev, p.Prev):
		ch.fault(n, "does not follow the line before it")
	case p.Withheld && ch.o.Export == nil:
		ch.fault(n, "has a text that was taken out")
	}
	if p.Withheld {
		ch.Withheld++
	}
}

func (ch *chain) missing(n uint64) {
	if n == ch.want+1 {
		ch.fault(ch.want, "is missing")
		return
	}
	ch.fault(ch.want, "is missing, and so are all up to line %d", n-1)
}

// end compares the chain with its head row.
func (ch *chain) end() {
	if ch == nil {
		return
	}
	raw, ok := ch.tx.Get(headKey(ch.thread))
	var head Head
	switch {
	case !ok:
		if ch.want == 0 && len(ch.prev) == 1 {
			return // there never was such a chain
		}
		ch.fault(ch.want, "the chain has no head row")
	case !canonical(raw, &head):
		ch.fault(ch.want, "the head row %s", unreadable)
	case head.N > ch.want:
		ch.missing(head.N)
	case head.N < ch.want:
		ch.fault(head.N, "comes after the end of the chain")
	case ch.prev != nil && !slices.Contains(ch.prev, head.Hash):
		ch.fault(ch.want, "the head row has another hash than the last line")
	}
}

// heads finds chains of which nothing but the head row is left, and counts what
// no anchor covers yet.
func (c *checker) heads() {
	_, anchored := c.tx.Get(anchorHeadKey())
	for key, raw := range c.tx.Scan(store.Prefix("audit-head")) {
		thread, ok := threadOf(key)
		if !ok {
			c.tell(Fault{What: "the row " + safe(store.Format(key)) + " is no head of a chain"})
			continue
		}
		var head Head
		some := false
		for range c.tx.Scan(store.Prefix("audit", thread)) {
			some = true
			break
		}
		if !canonical(raw, &head) {
			if !some {
				c.tell(Fault{Thread: thread, What: "the head row " + unreadable})
			}
			continue
		}
		if !some && head.N > 0 && (c.o.Export == nil || c.from(thread) < head.N) {
			c.tell(Fault{Thread: thread, What: fmt.Sprintf("the whole chain is missing; its head says that it has %d lines", head.N)})
		}
		c.loose(thread, head, anchored && c.o.Export == nil)
	}
}

func threadOf(key []byte) (string, bool) {
	parts, err := store.Parts(key)
	if err != nil || len(parts) != 2 {
		return "", false
	}
	s, ok := parts[1].(string)
	return s, ok
}

// loose counts what no anchor covers, of those whose heads are there. In a store with anchors, it must have the mark
// by which it will be.
func (c *checker) loose(thread string, head Head, marked bool) {
	var was Head
	raw, ok := c.tx.Get(coveredKey(thread))
	if ok && !canonical(raw, &was) {
		c.tell(Fault{Thread: thread, What: "the row that says what is anchored " + unreadable})
		return
	}
	if from := c.from(thread); c.o.Export != nil && from != math.MaxUint64 {
		was.N = max(was.N, from)
	}
	if head.N <= was.N {
		return
	}
	c.Loose += head.N - was.N
	if _, ok := c.tx.Get(newKey(thread)); !ok && marked {
		c.tell(Fault{Thread: thread, N: was.N, What: "is not anchored and would never be: the mark of the chain is missing"})
	}
}

// from is the first line of a thread that an export shows; MaxUint64 when it
// shows nothing of the thread.
func (c *checker) from(thread string) uint64 {
	raw, ok := c.tx.Get(fromKey(thread))
	if !ok {
		return math.MaxUint64
	}
	var n uint64
	if !decode(raw, &n) {
		return math.MaxUint64
	}
	return n
}

// anchors checks the chain of anchors, and every head that they cover.
func (c *checker) anchors() {
	var want, lines uint64
	prev := []string{""}
	for key, raw := range c.tx.Scan(store.Prefix("audit-anchor")) {
		parts, err := store.Parts(key)
		n, ok := second(parts)
		if err != nil || !ok {
			c.tell(Fault{What: "the row " + safe(store.Format(key)) + " is no anchor"})
			continue
		}
		fault := func(what string) { c.tell(Fault{Anchor: true, N: n, What: what}) }
		c.Anchors++
		if n != want {
			c.tell(Fault{Anchor: true, N: want, What: "is missing"})
			prev, lines = nil, math.MaxUint64
		}
		a, computed, problem := parseAnchor(raw)
		switch {
		case problem != "":
			fault(problem)
		case a.N != n:
			fault(fmt.Sprintf("is in the place of another: it says that it is anchor %d", a.N))
		case prev != nil && !slices.Contains(prev, a.Prev):
			fault("does not follow the anchor before it")
		}
		if a.Hash == "" {
			want, prev, lines = n+1, nil, math.MaxUint64
			continue
		}
		if problem == "" {
			c.covers(a, n, lines, fault)
			c.Latest = a
			c.posted = c.posted || len(c.o.Posted) >= 12 && strings.HasPrefix(a.Hash, strings.ToLower(c.o.Posted))
		}
		want, prev, lines = n+1, []string{a.Hash, computed}, a.Lines
	}
	c.strays(want)
	raw, ok := c.tx.Get(anchorHeadKey())
	var head Head
	switch {
	case !ok && want == 0:
	case !ok:
		c.tell(Fault{Anchor: true, N: want, What: "the chain of anchors has no head row"})
	case !canonical(raw, &head):
		c.tell(Fault{Anchor: true, N: want, What: "the head row " + unreadable})
	case head.N != want && head.N == want+1:
		c.tell(Fault{Anchor: true, N: want, What: "is missing"})
	case head.N != want:
		c.tell(Fault{Anchor: true, N: want, What: fmt.Sprintf("the head row says that there are %d anchors", head.N)})
	case prev != nil && !slices.Contains(prev, head.Hash):
		c.tell(Fault{Anchor: true, N: want, What: "the head row has another hash than the last anchor"})
	}
}

// second is the number in the second part of an anchor's key.
func second(parts []any) (n uint64, ok bool) {
	if len(parts) < 2 {
		return 0, false
	}
	n, ok = parts[1].(uint64)
	return n, ok
}

// strays finds heads of anchors that are not there.
func (c *checker) strays(want uint64) {
	_, end := store.Prefix("audit-anchored")
	for key := range c.tx.Scan(store.Key("audit-anchored", want), end) {
		parts, err := store.Parts(key)
		if n, ok := second(parts); err == nil && ok {
			c.tell(Fault{Anchor: true, N: n, What: "is missing, and its heads are there"})
		} else {
			c.tell(Fault{What: "the row " + safe(store.Format(key)) + " is no head of an anchor"})
		}
		return
	}
}

// covers compares an anchor with the heads that it covers, and these with the
// chains. lines is what the anchor before covers, MaxUint64 if nobody knows.
func (c *checker) covers(a AnchorLine, n, lines uint64, fault func(string)) {
	root := sha256.New()
	threads, grown := uint64(0), uint64(0)
	for key, raw := range c.tx.Scan(store.Prefix("audit-anchored", n)) {
		_, _ = root.Write(append(raw, '\n'))
		threads++
		h, ok := parseCovered(raw)
		parts, err := store.Parts(key)
		if !ok || err != nil || len(parts) != 3 || parts[2] != any(h.Thread) || h.Anchor != n || h.N <= h.From {
			fault("the head " + safe(store.Format(key)) + " " + unreadable)
			continue
		}
		grown += h.N - h.From
		c.compare(h)
	}
	if threads == 0 && c.o.Export != nil && c.o.Export.part() {
		c.Skipped++
		return
	}
	switch {
	case a.Root != hex.EncodeToString(root.Sum(nil)):
		fault(fmt.Sprintf("its root does not fit its heads: %d of %d are there, or one was changed", threads, a.Threads))
	case a.Threads != threads:
		fault(fmt.Sprintf("it says that it covers %d threads, and covers %d", a.Threads, threads))
	case lines != math.MaxUint64 && a.Lines != lines+grown:
		fault(fmt.Sprintf("it says that %d lines are covered, and with the anchor before it is %d", a.Lines, lines+grown))
	}
}

// compare looks whether a chain still has the line that an anchor names.
func (c *checker) compare(h covered) {
	if e := c.o.Export; e != nil {
		from := c.from(h.Thread)
		if e.Thread != "" && e.Thread != h.Thread || e.part() && (from == math.MaxUint64 || h.N < from) {
			c.Skipped++
			return
		}
		if h.N == from && from > 0 {
			c.compareFirst(h)
			return
		}
	}
	raw, ok := c.tx.Get(lineKey(h.Thread, h.N-1))
	if !ok {
		c.tell(Fault{Thread: h.Thread, N: h.N - 1, What: fmt.Sprintf("is missing; anchor %d names it", h.Anchor)})
		return
	}
	// A changed line is told of where the chain is read.
	if p := parseLine(raw); p.Hash != "" && p.Hash != h.Hash && p.computed != h.Hash {
		c.tell(Fault{Thread: h.Thread, N: h.N - 1, What: fmt.Sprintf("is not the line that anchor %d names", h.Anchor)})
	}
}

// compareFirst is compare for the line before the first one that a part shows.
func (c *checker) compareFirst(h covered) {
	raw, ok := c.tx.Get(lineKey(h.Thread, h.N))
	if !ok {
		c.Skipped++
		return
	}
	if p := parseLine(raw); p.problem == "" && p.Prev != h.Hash {
		c.tell(Fault{Thread: h.Thread, N: h.N, What: fmt.Sprintf("does not follow the line before it, which anchor %d names", h.Anchor)})
	}
}
