// Package admin is the commands that look after a bot from beside it: what its policy says,
// its record of decisions, its store, backups and moves, and the classifier. What a serving
// bot does of the same (anchors, summaries, pruning, answers to these commands) is [Chores].
//
// It serves no bot and decides nothing.
package admin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/bot"
	"countersign/cli"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/storage"
	"countersign/internal/redact"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/proof/witness/cosign"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/keyring"
	"countersign/store/outbox"
)

const (
	// anchorEvery bounds how much of the record could be cut off unnoticed.
	anchorEvery  = 15 * time.Minute
	summaryRetry = time.Minute
)

// auditor anchors the record and posts its summaries.
type auditor struct {
	db   store.DB
	cfg  config.AuditConfig
	wake func(thread string)
	now  func() time.Time
	log  *slog.Logger
}

// anchors makes an anchor now and every quarter of an hour, where something
// changed, until ctx is done.
func (a *auditor) anchors(ctx context.Context) error {
	t := time.NewTicker(anchorEvery)
	defer t.Stop()
	for first := true; ; first = false {
		if err := a.anchor(ctx); err != nil && ctx.Err() == nil {
			a.log.Error("the audit record could not be anchored", "error", err)
		}
		if err := a.witnessed(ctx, first); err != nil && ctx.Err() == nil {
			a.log.Error("a witness did not sign the audit record; it is asked again at the next anchor", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *auditor) anchor(ctx context.Context) error {
	return a.db.Update(ctx, func(tx store.Tx) error {
		audit.Anchor(tx, a.now())
		return nil
	})
}

// anchorWithin bounds the anchor of a stop.
const anchorWithin = 5 * time.Second

// final makes the anchor of a stop, when nothing is recorded any more, so that nothing
// can be cut off the end of the record while the bot is down. Its hash goes to the log,
// which others may keep.
func (a *auditor) final(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), anchorWithin)
	defer cancel()
	var line audit.AnchorLine
	var made bool
	err := a.db.Update(ctx, func(tx store.Tx) error {
		line, made = audit.Anchor(tx, a.now())
		return nil
	})
	switch {
	case err != nil:
		a.log.Error("the audit record could not be anchored at the stop; bot audit verify says how many lines no anchor covers", "error", err)
	case made:
		if err := a.witnessed(ctx, false); err != nil {
			a.log.Warn("a witness did not sign the last anchor; it is asked again after the next start", "error", err)
		}
		a.log.Info("the audit record is anchored", "anchor", line.N, "lines", line.Lines, "hash", line.Hash)
	}
}

// summaryKey is the row that says up to when summaries were posted.
func summaryKey() []byte { return store.Key("audit-summary") }

// summaries posts one summary a day until ctx is done. The first one comes at the
// first time that is due after the first start; of those that a stopped bot
// missed, one is posted at the next start, over all of the time.
func (a *auditor) summaries(ctx context.Context) error {
	if a.cfg.Summary == "" {
		return nil
	}
	at, err := a.cfg.Clock()
	if err != nil {
		return err
	}
	for {
		wait := time.Duration(0)
		last, err := a.last(ctx)
		if err == nil {
			if wait = at.Next(last).Sub(a.now()); wait <= 0 {
				err = a.summary(ctx, last)
			}
		}
		if err != nil && ctx.Err() == nil {
			a.log.Error("the audit summary could not be posted", "error", err)
			wait = summaryRetry
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// last is up to when summaries were posted; before the first one it is when this
// was asked for the first time.
func (a *auditor) last(ctx context.Context) (last time.Time, err error) {
	err = a.db.Update(ctx, func(tx store.Tx) error {
		was, ok := store.Load[time.Time](tx, summaryKey())
		if last = was; !ok {
			last = a.now().UTC()
			store.Save(tx, summaryKey(), last)
		}
		return nil
	})
	return last, err
}

// summary posts what happened since the last one. The record is anchored first, so
// that the hash covers all of it.
func (a *auditor) summary(ctx context.Context, since time.Time) error {
	if err := a.anchor(ctx); err != nil {
		return err
	}
	if err := a.witnessed(ctx, false); err != nil && ctx.Err() == nil {
		a.log.Error("a witness did not sign the audit record; it is asked again at the next anchor", "error", err)
	}
	now := a.now()
	var witnesses string
	var s audit.Totals
	var open int
	err := a.db.View(ctx, func(tx store.Tx) error {
		s, open = audit.Summary(tx, since), len(approvals.Ledger{}.AllOpen(tx))
		seen := map[string]int64{}
		for name, w := range audit.Witnesses(tx) {
			seen[name] = w.Size
		}
		witnesses = witnessLine(a.cfg.Witnesses, seen, int64(s.Anchor.N)+1) //nolint:gosec // a count
		return nil
	})
	if err != nil {
		return err
	}
	key := "audit/" + now.UTC().Format(time.RFC3339)
	err = a.db.Update(ctx, func(tx store.Tx) error {
		outbox.Put(tx, a.cfg.Summary, key, chat.Post{Key: key, Text: summaryText(s, open, witnesses), Quiet: true}, now)
		store.Save(tx, summaryKey(), now.UTC())
		return nil
	})
	if err == nil {
		a.wake(a.cfg.Summary)
	}
	return err
}

// summaryText is what people read every morning.
func summaryText(s audit.Totals, open int, witnesses string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**Decisions since %s UTC**\n\n", s.Since.UTC().Format("2006-01-02 15:04"))
	if s.Lines == 0 {
		b.WriteString("Nothing was asked for and nothing was decided.\n")
	} else {
		var counts []string
		for _, what := range audit.Known() {
			if n := s.By[what]; n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", n, what))
			}
		}
		others := 0
		for what, n := range s.By {
			if !slices.Contains(audit.Known(), what) {
				others += n
			}
		}
		if others > 0 {
			counts = append(counts, fmt.Sprintf("%d other", others))
		}
		fmt.Fprintf(&b, "%s, in %s.\n", strings.Join(counts, ", "), words.Plural(s.Threads, "thread"))
	}
	if open > 0 {
		fmt.Fprintf(&b, "%s open now.\n", words.Plural(open, "request"))
	}
	if s.Anchored {
		fmt.Fprintf(&b, "\nThe record has %d lines up to anchor %d:\n\n```\n%s\n```\n\nWhoever wants to know whether the record is still the "+
			"one of now runs `countersign audit verify --anchor %s`.\n",
			s.Anchor.Lines, s.Anchor.N, s.Anchor.Hash, s.Anchor.Hash[:12])
		if witnesses != "" {
			b.WriteString("\n" + witnesses + "\n")
		}
	}
	return b.String()
}

// verification is one check of the record.
type verification struct {
	out    io.Writer
	kept   []cosign.Checkpoint // by whoever checks
	o      audit.CheckOptions
	faults int
}

// AuditVerification says what VerifyAudit checks.
type AuditVerification struct {
	// File is an export, "-" standard input, and "" the store.
	File string
	// Anchor is the hash of an anchor that was posted, which the record must have, or its
	// first 12 digits or more; "" checks none.
	Anchor string
	// Checkpoints are files of checkpoints that somebody has kept: the record must have grown from each.
	Checkpoints []string
	URL         string // of the running bot; "" is where it says that it is
}

// VerifyAudit checks the hash chains of the record and writes a line for each fault, and
// one with the result. A fault is an error.
func VerifyAudit(ctx context.Context, s cli.Streams, a AuditVerification) error {
	v := verification{out: s.Out, o: audit.CheckOptions{Posted: a.Anchor}}
	for _, name := range a.Checkpoints {
		raw, err := os.ReadFile(name)
		if err != nil {
			return config.Errorf("the checkpoint cannot be read: %v", err)
		}
		text, _, _ := strings.Cut(string(raw), "\n\n")
		c, err := cosign.Parse(strings.TrimSuffix(text, "\n") + "\n")
		if err != nil {
			return config.Errorf("%s is no checkpoint", name)
		}
		v.kept = append(v.kept, c)
	}
	if a.File == "" {
		return v.store(ctx, a.URL)
	}
	in := s.In
	if a.File != "-" {
		f, err := os.Open(a.File)
		if err != nil {
			return config.Errorf("the export cannot be read (%v); name a file that audit export wrote", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return v.export(ctx, in)
}

// AuditExport says what ExportAudit writes.
type AuditExport struct {
	Since  string // how far back, such as "30d" or "12h"; "" is everything
	Thread string // "" is all
	URL    string // of the running bot; "" is where it says that it is
}

// ExportAudit writes the record of decisions as JSON Lines, from the store, or through the
// running bot that holds it.
func ExportAudit(ctx context.Context, out io.Writer, x AuditExport) error {
	from, err := sinceOf(x.Since, time.Now())
	if err != nil {
		return err
	}
	e, f, err := config.Read()
	if err != nil {
		return err
	}
	db, err := storage.OpenExisting(ctx, e)
	if errors.Is(err, store.ErrLocked) {
		q := url.Values{}
		if !from.IsZero() {
			q.Set("since", from.Format(time.RFC3339Nano))
		}
		if x.Thread != "" {
			q.Set("thread", x.Thread)
		}
		return fetch(ctx, e, x.URL, exportPath, q, out)
	}
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return audit.Export(ctx, db, out, audit.ExportOptions{
		Now: time.Now(), Since: from, Thread: x.Thread, Redact: redact.New(e.Secrets(f)...).RedactCommand,
	})
}

func (v *verification) fault(f audit.Fault) {
	v.faults++
	_, _ = fmt.Fprintln(v.out, f)
}

// store checks the store itself, or what the running bot that holds it exports.
func (v *verification) store(ctx context.Context, base string) error {
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	db, err := storage.OpenExisting(ctx, e)
	if errors.Is(err, store.ErrLocked) {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(fetch(ctx, e, base, exportPath, url.Values{"exact": {"1"}}, w)) }()
		defer func() { _ = r.Close() }()
		return v.export(ctx, r)
	}
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return v.check(ctx, db)
}

// export checks an export.
func (v *verification) export(ctx context.Context, in io.Reader) error {
	return imported(ctx, in, v.fault, func(db store.DB, h audit.Header) error {
		v.o.Export = &h
		return v.check(ctx, db)
	})
}

// imported reads an export into a database in a temporary directory, so that its
// size does not matter.
func imported(ctx context.Context, in io.Reader, fault func(audit.Fault), then func(store.DB, audit.Header) error) error {
	dir, err := os.MkdirTemp("", "countersign-audit-")
	if err != nil {
		return fmt.Errorf("a temporary directory cannot be made (%w); set TMPDIR to a directory that you may write", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := bolt.Open(filepath.Join(dir, "export.db"), bolt.Options{Journal: 4 << 20})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	h, err := audit.Import(ctx, db, in, fault)
	if err != nil {
		return err
	}
	return then(db, h)
}

func (v *verification) check(ctx context.Context, db store.DB) error {
	var c audit.Checked
	err := db.View(ctx, func(tx store.Tx) error {
		c = audit.Check(tx, v.o, v.fault)
		for _, k := range v.kept {
			switch root, err := audit.Root(tx, k.N); {
			case err != nil:
				v.fault(audit.Fault{What: fmt.Sprintf("a checkpoint of %d anchors was kept, and the record does not have them all: it was cut", k.N)})
			case root != k.Hash:
				v.fault(audit.Fault{What: fmt.Sprintf("a checkpoint of %d anchors was kept, and the record has others: it was rewritten", k.N)})
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	out := v.out
	if h := v.o.Export; h != nil && (h.Thread != "" || !h.Since.IsZero()) {
		_, _ = fmt.Fprintf(out, "note: this export is a part, so nobody can see here what was left out of it; %s of anchors or their heads "+
			"could not be compared\n", words.Plural(c.Skipped, "row"))
	}
	if c.Withheld > 0 {
		_, _ = fmt.Fprintf(out, "note: the export left secrets out of %s, whose texts were not checked\n", words.Plural(c.Withheld, "line"))
	}
	if c.Loose > 0 {
		_, _ = fmt.Fprintf(out, "note: no anchor covers the newest %d lines yet\n", c.Loose)
	}
	label := "ok"
	if v.faults > 0 {
		label = "FAIL"
	}
	_, _ = fmt.Fprintf(out, "%s: %s, %s, %s", label, words.Plural(c.Threads, "thread"), words.Plural(c.Lines, "line"), words.Plural(c.Anchors, "anchor"))
	if c.Latest.Hash != "" {
		_, _ = fmt.Fprintf(out, "; the newest is %d of %s, %s", c.Latest.N, c.Latest.At.UTC().Format(time.RFC3339), c.Latest.Hash)
	}
	_, _ = fmt.Fprintln(out)
	if v.faults > 0 {
		return fmt.Errorf("the audit record has %s; keep a copy of it as it is, and compare it with an earlier export", words.Plural(v.faults, "fault"))
	}
	return nil
}

// sinceOf reads "30d" and what time.ParseDuration reads; "" is the zero time.
func sinceOf(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	back, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if err != nil || back <= 0 {
		return time.Time{}, config.Errorf("--since is %q; use days or hours such as 30d or 12h", s)
	}
	return now.Add(-back), nil
}

// A running bot holds its store, so it exports on request to who can read its
// data directory: the request carries a code that is signed with the console's key
// and good once, and the answer ends with a proof over every byte of it, so that
// neither another program at the bot's address nor a cut answer passes.
const (
	exportPath   = "/audit/export"
	proofTrailer = "X-Countersign-Proof"
	codeScheme   = "Countersign-Code "
	codeLife     = time.Minute
	codeBody     = 16 + 8 // a nonce, and when it expires in milliseconds
)

func auditMAC(key []byte, purpose string) hash.Hash {
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, "countersign audit "+purpose+"\x00")
	return h
}

func signCode(key, body []byte) []byte {
	h := auditMAC(key, "code")
	_, _ = h.Write(body)
	return append(slices.Clone(body), h.Sum(nil)...)
}

// auditCode makes a code that is good once, within a minute of now.
func auditCode(key []byte, now time.Time) string {
	body := make([]byte, 16, codeBody)
	_, _ = rand.Read(body) // it never fails
	body = binary.BigEndian.AppendUint64(body, uint64(now.Add(codeLife).UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(signCode(key, body))
}

// fetch copies what the running bot exports at a path to w. An error after some bytes means
// that they cannot be trusted.
func fetch(ctx context.Context, e config.Env, base, path string, q url.Values, w io.Writer) error {
	key, err := os.ReadFile(filepath.Join(e.DataDir, "web.key"))
	if err != nil || len(key) != 32 {
		return fmt.Errorf("the store in %s is in use by a running bot, and the key to ask that bot is not there or cannot be read; stop the "+
			"bot, or run this as its user", e.DataDir)
	}
	if path == recordPath {
		key = keyring.Derive(key, recordKey)
	}
	if base == "" {
		base = address.URL(e)
	}
	away := fmt.Sprintf("the store in %s is in use by a running bot, and no bot answers at %s; name its address with --url, or stop it", e.DataDir, base)
	code := auditCode(key, time.Now())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+path+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return config.Errorf("--url is %q, which is no address; use one such as http://%s", base, address.Default)
	}
	req.Header.Set("Authorization", codeScheme+code)
	client := address.Client()
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%s (%w)", away, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		if res.StatusCode == http.StatusNotFound && path == recordPath {
			return errors.New(words.Printable(strings.TrimSpace(string(said))))
		}
		return fmt.Errorf("the running bot at %s does not export (HTTP %d: %s); name its address with --url, or stop it and try again", base,
			res.StatusCode, strings.ToValidUTF8(strings.TrimSpace(string(said)), "?"))
	}
	proof := auditMAC(key, "proof")
	_, _ = io.WriteString(proof, code+"\x00")
	if _, err := io.Copy(io.MultiWriter(w, proof), res.Body); err != nil {
		return fmt.Errorf("the export of the running bot broke off (%w); try again", err)
	}
	if !hmac.Equal([]byte(res.Trailer.Get(proofTrailer)), []byte(hex.EncodeToString(proof.Sum(nil)))) {
		return fmt.Errorf("what answers at %s is not the bot of this data directory, so its export cannot be trusted; name the bot's address with --url", base)
	}
	return nil
}

// exporter answers fetch.
type exporter struct {
	db     store.DB
	key    []byte
	redact func(string) string
	write  func(ctx context.Context, out io.Writer, q url.Values) error
	now    func() time.Time
	log    *slog.Logger

	busy sync.Mutex // held while one export runs
	mu   sync.Mutex // guards used
	used map[string]time.Time
}

// auditHandler serves exports of the record at GET /audit/export.
func auditHandler(s bot.Site) http.Handler {
	return newExporter(s.DB, s.Key, s.Clean, s.Log)
}

func newExporter(db store.DB, key []byte, clean func(string) string, log *slog.Logger) *exporter {
	x := &exporter{db: db, key: key, redact: clean, now: time.Now, log: log, used: map[string]time.Time{}}
	x.write = x.record
	return x
}

// record writes the record of decisions.
func (x *exporter) record(ctx context.Context, out io.Writer, q url.Values) (err error) {
	o := audit.ExportOptions{Now: x.now(), Thread: q.Get("thread"), Redact: x.redact}
	if q.Get("exact") != "" {
		o.Redact = nil // for verifying: what is stored was redacted once
	}
	if s := q.Get("since"); s != "" {
		if o.Since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return err
		}
	}
	return audit.Export(ctx, x.db, out, o)
}

// redeem reports whether a code is good, and uses it up.
func (x *exporter) redeem(code string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(code)
	if err != nil || len(raw) != codeBody+sha256.Size || !hmac.Equal(raw, signCode(x.key, raw[:codeBody])) {
		return false
	}
	now := x.now()
	expires := time.UnixMilli(int64(binary.BigEndian.Uint64(raw[16:codeBody]))) //nolint:gosec // signed by us
	if !now.Before(expires) || expires.After(now.Add(2*codeLife)) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for old, until := range x.used {
		if !now.Before(until) {
			delete(x.used, old)
		}
	}
	if _, again := x.used[code]; again {
		return false
	}
	x.used[code] = expires
	return true
}

// isLocal reports whether a request comes from this machine.
func isLocal(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	peer := net.ParseIP(host)
	if err != nil || peer == nil {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return peer.IsLoopback() || ok && local.IP.Equal(peer)
}

// ServeHTTP implements http.Handler.
func (x *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, ok := strings.CutPrefix(r.Header.Get("Authorization"), codeScheme)
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	case !isLocal(r) || !ok || !x.redeem(code):
		http.Error(w, "this is for commands on the bot's own machine, with its data directory", http.StatusForbidden)
		return
	case !x.busy.TryLock():
		http.Error(w, "another export is under way; try again when it has ended", http.StatusTooManyRequests)
		return
	}
	defer x.busy.Unlock()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Trailer", proofTrailer)
	out := &hashWriter{w: w, proof: auditMAC(x.key, "proof")}
	_, _ = io.WriteString(out.proof, code+"\x00")
	if err := x.write(r.Context(), out, r.URL.Query()); err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, errNoThread) {
			status = http.StatusNotFound
		} else if r.Context().Err() == nil {
			x.log.Error("it could not be exported", "path", r.URL.Path, "error", err)
		}
		if !out.began {
			w.Header().Del("Trailer")
			http.Error(w, err.Error(), status)
			return
		}
		panic(http.ErrAbortHandler) // so that the reader sees a cut answer
	}
	w.Header().Set(proofTrailer, hex.EncodeToString(out.proof.Sum(nil)))
}

// hashWriter writes an answer and hashes it.
type hashWriter struct {
	w     io.Writer
	proof hash.Hash
	began bool
}

func (p *hashWriter) Write(b []byte) (int, error) {
	p.began = true
	_, _ = p.proof.Write(b)
	return p.w.Write(b)
}
