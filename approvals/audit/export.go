package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"countersign/store"
)

// An export is JSON Lines in this order, so that it can be written and read as a
// stream:
//
//	{"export":{...}}                          a Header
//	{"anchor":...}, then its {"head":...}     for each anchor; a part leaves out heads that say nothing of it
//	{"chain":{...}}, then its lines           for each thread, in byte order; see form.go for lines
//	{"end":{...}}                             counts, and the SHA-256 of every byte before this line
//
// A line that would not be one line is wrapped: {"damaged":"<base64>"}.
const (
	exportBegin  = `{"export":`
	chainBegin   = `{"chain":`
	endBegin     = `{"end":`
	damagedBegin = `{"damaged":"`

	exportVersion = 1
	page          = 512 << 10 // bytes of rows that one transaction reads
)

// Header is the first line of an export.
type Header struct {
	V      int       `json:"v"`
	At     time.Time `json:"at"`
	Since  time.Time `json:"since,omitzero"`   // the export has each chain from its first line at or after this
	Thread string    `json:"thread,omitempty"` // the export has this chain alone
	Head   Head      `json:"anchors"`          // of the chain of anchors
}

// part reports whether the export is not of everything.
func (h Header) part() bool { return h.Thread != "" || !h.Since.IsZero() }

// chainRow begins a chain in an export.
type chainRow struct {
	Thread string `json:"thread"`
	From   uint64 `json:"from"` // the first line that follows
	N      uint64 `json:"n"`
	Hash   string `json:"hash"` // of line N-1
}

// endRow ends an export.
type endRow struct {
	Anchors uint64 `json:"anchors"`
	Chains  uint64 `json:"chains"`
	Lines   uint64 `json:"lines"`
	SHA256  string `json:"sha256"`
}

// ExportOptions say what is exported. The zero value exports everything as it is
// stored.
type ExportOptions struct {
	Now    time.Time
	Since  time.Time // zero: from the beginning
	Thread string    // "": all
	Lines  uint64    // of Thread's chain, from the first on; 0: all. Heads that know of later ones are left out
	// Redact takes secrets out of the texts once more; nil leaves them as they are
	// stored. The lines still verify, but for texts that it changed.
	Redact func(string) string
}

// Export writes the record as JSON Lines. It reads db in short transactions, so
// a slow w holds up nobody, and the bot may go on writing: what is written after
// the export began may be left out. Its memory does not grow with the store.
// A thread without a single line gives a chain without lines.
func Export(ctx context.Context, db store.DB, w io.Writer, o ExportOptions) error {
	e := &exporter{ctx: ctx, db: db, o: o, out: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	head := Header{V: exportVersion, At: o.Now.UTC(), Since: o.Since.UTC(), Thread: o.Thread}
	if o.Since.IsZero() {
		head.Since = time.Time{}
	}
	err := db.View(ctx, func(tx store.Tx) error {
		head.Head, _ = store.Load[Head](tx, anchorHeadKey())
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.object(exportBegin, head); err != nil {
		return err
	}
	if err := e.anchors(head.Head.N); err != nil {
		return err
	}
	if err := e.chains(); err != nil {
		return err
	}
	e.end.SHA256 = hex.EncodeToString(e.sum.Sum(nil))
	if err := e.object(endBegin, e.end); err != nil {
		return err
	}
	return e.out.Flush()
}

type exporter struct {
	ctx context.Context //nolint:containedctx // lives as long as one call
	db  store.DB
	o   ExportOptions
	out *bufio.Writer
	sum hash.Hash
	end endRow
}

func (e *exporter) object(begin string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return e.line([]byte(begin + string(body) + "}"))
}

func (e *exporter) line(b []byte) error {
	b = append(b, '\n')
	_, _ = e.sum.Write(b)
	_, err := e.out.Write(b)
	return err
}

// pages calls each for the rows from start on, in transactions of at most page
// bytes; each runs outside of them.
func (e *exporter) pages(start, end []byte, each func(key, val []byte) (more bool, err error)) error {
	for start != nil {
		var rows [][2][]byte
		var next []byte
		err := e.db.View(e.ctx, func(tx store.Tx) error {
			rows, next = nil, nil
			size := 0
			for key, val := range tx.Scan(start, end) {
				if size > page {
					next = key
					break
				}
				rows = append(rows, [2][]byte{key, val})
				size += len(key) + len(val)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if more, err := each(r[0], r[1]); err != nil || !more {
				return err
			}
		}
		start = next
	}
	return nil
}

func (e *exporter) anchors(n uint64) error {
	return e.pages(anchorKey(0), anchorKey(n), func(key, raw []byte) (bool, error) {
		a, _, problem := parseAnchor(raw)
		if problem == unreadable || bytes.ContainsAny(raw, "\r\n") {
			return false, fmt.Errorf("audit: the anchor %s cannot be read, so the record cannot be exported: stop the bot and run audit verify on its store", store.Format(key))
		}
		e.end.Anchors++
		if err := e.line(raw); err != nil {
			return false, err
		}
		parts, err := store.Parts(key)
		at, ok := second(parts)
		if err != nil || !ok {
			return false, fmt.Errorf("audit: the row %s is no anchor", store.Format(key))
		}
		show, err := e.tells(a, at)
		if err != nil || !show {
			return true, err
		}
		start, end := store.Prefix("audit-anchored", at)
		return true, e.pages(start, end, func(key, raw []byte) (bool, error) {
			if bytes.ContainsAny(raw, "\r\n") {
				return false, fmt.Errorf("audit: the head %s cannot be read, so the record cannot be exported: stop the bot and run audit verify on its store", store.Format(key))
			}
			return true, e.line(raw)
		})
	})
}

// tells reports whether an anchor's heads say something of what is exported.
func (e *exporter) tells(a AnchorLine, at uint64) (bool, error) {
	if a.At.Before(e.o.Since) {
		return false, nil
	}
	if e.o.Thread == "" {
		return true, nil
	}
	ok := false
	err := e.db.View(e.ctx, func(tx store.Tx) error {
		raw, there := tx.Get(anchoredKey(at, e.o.Thread))
		c, _ := parseCovered(raw)
		ok = there && (e.o.Lines == 0 || c.N <= e.o.Lines)
		return nil
	})
	return ok, err
}

func (e *exporter) chains() error {
	start, end := store.Prefix("audit-head")
	if e.o.Thread != "" {
		start, end = store.Prefix("audit-head", e.o.Thread)
	}
	return e.pages(start, end, func(key, raw []byte) (bool, error) {
		thread, ok := threadOf(key)
		if !ok {
			return false, fmt.Errorf("audit: the row %s is no head of a chain, so the record cannot be exported: stop the bot and run audit verify on its store", store.Format(key))
		}
		var head Head
		if !canonical(raw, &head) {
			return false, fmt.Errorf("audit: the head row of thread %s cannot be read, so the record cannot be exported: stop the bot and run audit verify on its store", name(thread))
		}
		if n := e.o.Lines; n > 0 && n < head.N {
			err := e.db.View(e.ctx, func(tx store.Tx) error {
				raw, _ := tx.Get(lineKey(thread, n-1))
				head = Head{n, parseLine(raw).Hash}
				return nil
			})
			if err != nil {
				return false, err
			}
		}
		from, err := e.first(thread, head.N)
		if err != nil || e.o.Thread == "" && !e.o.Since.IsZero() && from == head.N {
			return true, err
		}
		return true, e.chain(thread, from, head)
	})
}

// first is the number of the first line that is wanted.
func (e *exporter) first(thread string, n uint64) (uint64, error) {
	if e.o.Since.IsZero() {
		return 0, nil
	}
	first := n
	err := e.pages(lineKey(thread, 0), lineKey(thread, n), func(key, raw []byte) (bool, error) {
		_, at, ok := lineOf(key)
		if p := parseLine(raw); !ok || p.problem == "" && p.At.Before(e.o.Since) {
			return true, nil
		}
		first = at // damaged ones are shown rather than left out
		return false, nil
	})
	return first, err
}

func (e *exporter) chain(thread string, from uint64, head Head) error {
	e.end.Chains++
	if err := e.object(chainBegin, chainRow{thread, from, head.N, head.Hash}); err != nil {
		return err
	}
	// Lines behind the head row are faults, unless they were written meanwhile.
	return e.pages(lineKey(thread, from), lineKey(thread, head.N), func(_, raw []byte) (bool, error) {
		e.end.Lines++
		if bytes.ContainsAny(raw, "\r\n") || parseLine(raw).problem == unreadable {
			return true, e.line([]byte(damagedBegin + base64.StdEncoding.EncodeToString(raw) + `"}`))
		}
		shown, err := withhold(raw, e.o.Redact)
		if err != nil {
			return false, err
		}
		return true, e.line(shown)
	})
}

func fromKey(thread string) []byte { return store.Key("audit-from", thread) }

// maxLine bounds a line of an export, in bytes. A line that the bot wrote has a
// few KiB.
const maxLine = 1 << 20

// importBatch is how many bytes of rows one transaction of an import writes.
const importBatch = 1 << 20

// Import reads an export into db, which must be empty and is for [Check] alone.
// It calls fault for what is wrong with the export as a file: lines out of order,
// no end, bytes that changed on the way. What is wrong with chains and anchors is
// for Check. Its error says that r cannot be read or is no export; the Header is
// then of no use. Its memory does not grow with the export.
func Import(ctx context.Context, db store.DB, r io.Reader, fault func(Fault)) (Header, error) {
	im := &importer{ctx: ctx, db: db, fault: fault, in: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	if err := im.run(); err != nil {
		return Header{}, err
	}
	return im.head, im.flush()
}

type importer struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call
	db    store.DB
	fault func(Fault)
	in    *bufio.Reader
	sum   hash.Hash
	rows  [][2][]byte
	size  int

	row    uint64 // the number of the present line of the file, from 1
	head   Header
	anchor uint64    // the number of the next anchor
	under  *covered  // the last head of the present anchor
	chain  *chainRow // the present chain
	// nameless says that the beginning of the present chain could not be read.
	nameless bool
	want     uint64 // the number of its next line
	end      endRow // what was counted
	ended    bool
}

func (im *importer) wrong(format string, a ...any) {
	im.fault(Fault{What: fmt.Sprintf("line %d of the export: ", im.row) + fmt.Sprintf(format, a...)})
}

func (im *importer) put(key, val []byte) error {
	im.rows = append(im.rows, [2][]byte{key, val})
	im.size += len(key) + len(val)
	if im.size < importBatch {
		return nil
	}
	return im.flush()
}

func (im *importer) flush() error {
	err := im.db.Update(im.ctx, func(tx store.Tx) error {
		for _, r := range im.rows {
			tx.Set(r[0], r[1])
		}
		return nil
	})
	im.rows, im.size = nil, 0
	return err
}

// next is the next line without its line feed; io.EOF after the last one.
func (im *importer) next() ([]byte, error) {
	var line []byte
	for {
		part, err := im.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("audit: line %d of the export has more than %d bytes: it is no export of audit export", im.row+1, maxLine)
		case err == bufio.ErrBufferFull: //nolint:errorlint // bufio returns it as it is
			continue
		case err == io.EOF && len(line) == 0:
			return nil, io.EOF
		case err == io.EOF:
			im.row++
			im.wrong("it does not end with a line feed: the export is cut short")
			return line, nil
		case err != nil:
			return nil, fmt.Errorf("audit: the export cannot be read: %w", err)
		}
		im.row++
		return line[:len(line)-1], nil
	}
}

func (im *importer) run() error {
	for {
		line, err := im.next()
		if err == io.EOF { //nolint:errorlint // next returns it as it is
			break
		}
		if err != nil {
			return err
		}
		if im.row == 1 {
			body, ok := bytes.CutPrefix(line, []byte(exportBegin))
			body, ok = cutSuffix(body, "}", ok)
			if !ok || !canonical(body, &im.head) {
				return fmt.Errorf("audit: this is no export: its first line must begin with %s; make one with audit export", exportBegin)
			}
			if im.head.V != exportVersion {
				return fmt.Errorf("audit: this export is of version %d, and this program reads version %d", im.head.V, exportVersion)
			}
		} else if im.ended {
			im.wrong("it comes after the end")
			return nil
		} else if err := im.addLine(line); err != nil {
			return err
		}
		if !im.ended {
			_, _ = im.sum.Write(line)
			_, _ = im.sum.Write([]byte("\n"))
		}
	}
	if im.row == 0 {
		return errors.New("audit: this is no export: it is empty; make one with audit export")
	}
	if !im.ended {
		im.row++
		im.wrong("the end is missing: the export is cut short")
	}
	if im.head.Head.N > 0 {
		raw, err := encode(im.head.Head)
		if err != nil {
			return err
		}
		return im.put(anchorHeadKey(), raw)
	}
	return nil
}

// addLine imports one line.
func (im *importer) addLine(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte(anchorBegin)) && im.chain == nil:
		a, _, _ := parseAnchor(line)
		n := im.anchor
		if a.Hash != "" && a.N > n {
			n = a.N // one before it is missing, which Check says
		}
		im.anchor, im.under = n+1, &covered{Anchor: n}
		im.end.Anchors++
		return im.put(anchorKey(n), line)
	case bytes.HasPrefix(line, []byte(headBegin)) && im.chain == nil:
		c, ok := parseCovered(line)
		if !ok || im.under == nil || c.Anchor != im.under.Anchor || c.Thread <= im.under.Thread {
			im.wrong("this head of an anchor cannot be read, or is not in its place")
			return nil
		}
		im.under = &c
		was, err := encode(Head{c.N, c.Hash})
		return errors.Join(err, im.put(coveredKey(c.Thread), was), im.put(anchoredKey(c.Anchor, c.Thread), line))
	case bytes.HasPrefix(line, []byte(chainBegin)):
		return im.begin(line)
	case bytes.HasPrefix(line, []byte(endBegin)):
		im.finish(line)
		return nil
	case im.chain == nil:
		im.wrong("it is neither an anchor nor a chain")
		return nil
	}
	return im.add(line)
}

func (im *importer) begin(line []byte) error {
	body, ok := bytes.CutPrefix(line, []byte(chainBegin))
	body, ok = cutSuffix(body, "}", ok)
	var c chainRow
	switch {
	case !ok || !canonical(body, &c):
		im.wrong("this beginning of a chain cannot be read")
		im.chain, im.nameless = &chainRow{}, true
		return nil
	case im.chain != nil && !im.nameless && c.Thread <= im.chain.Thread:
		im.wrong("thread %s is not in its place, or is there twice", name(c.Thread))
	case c.From > 0 && im.head.Since.IsZero() || c.From > c.N:
		im.wrong("thread %s does not begin with its first line", name(c.Thread))
	}
	im.chain, im.nameless, im.want = &c, false, c.From
	im.end.Chains++
	from, err := encode(c.From)
	if err != nil {
		return err
	}
	head, err := encode(Head{c.N, c.Hash})
	if err != nil {
		return err
	}
	if err := im.put(fromKey(c.Thread), from); err != nil {
		return err
	}
	return im.put(headKey(c.Thread), head)
}

// add stores a line of a chain under the number that it claims if its hash vouches
// for it, and otherwise under the number that comes next.
func (im *importer) add(line []byte) error {
	im.end.Lines++
	if im.nameless {
		return nil // its chain could not be read, which was said
	}
	raw := line
	if enc, ok := bytes.CutPrefix(line, []byte(damagedBegin)); ok {
		body, _ := cutSuffix(enc, `"}`, true)
		if was, err := base64.StdEncoding.DecodeString(string(body)); err == nil {
			raw = was
		}
	}
	n := im.want
	if p := parseLine(raw); p.Hash != "" && (p.Hash == p.computed || p.first && p.Withheld) && p.N != n {
		if p.N < n {
			im.fault(Fault{Thread: im.chain.Thread, N: p.N, What: fmt.Sprintf("is out of order: it comes after line %d", n-1)})
			return nil
		}
		n = p.N
	}
	im.want = n + 1
	return im.put(lineKey(im.chain.Thread, n), raw)
}

func (im *importer) finish(line []byte) {
	body, ok := bytes.CutPrefix(line, []byte(endBegin))
	body, ok = cutSuffix(body, "}", ok)
	var e endRow
	im.ended = true
	sum := im.end
	sum.SHA256 = hex.EncodeToString(im.sum.Sum(nil))
	switch {
	case !ok || !canonical(body, &e):
		im.wrong("the end cannot be read")
	case e != sum:
		im.wrong("the bytes before the end are not those that were exported: it names %d anchors, %d chains and %d lines, and %d, %d and %d are there", e.Anchors, e.Chains, e.Lines, sum.Anchors, sum.Chains, sum.Lines)
	}
}
