package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"countersign/cli"
	"countersign/config"

	"countersign/adapters/chat"
	"countersign/approvals/audit"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/mem"
	"countersign/store/outbox"
	"countersign/test/needstest"
)

func change(t testing.TB, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.Update(context.Background(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func summariesIn(t *testing.T, db store.DB) (texts []string) {
	t.Helper()
	change(t, db, func(tx store.Tx) {
		texts = nil
		for _, r := range outbox.Pending(tx, "web:log", 0) {
			var p chat.Post
			if err := json.Unmarshal(r.Body, &p); err != nil || !p.Quiet || p.Key != r.Key {
				t.Errorf("%s %v", r.Body, err)
			}
			texts = append(texts, p.Text)
		}
	})
	return texts
}

func TestSummariesArePostedOnceADayWhateverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		var mu sync.Mutex
		woken := 0
		a := &auditor{
			db: db, cfg: config.AuditConfig{Summary: "web:log", At: "09:00", Zone: "UTC"}, now: time.Now, log: slog.New(slog.DiscardHandler),
			wake: func(string) { mu.Lock(); woken++; mu.Unlock() },
		}
		run := func(d time.Duration) { // the bot runs for so long
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if err := a.summaries(ctx); err != nil {
				t.Fatal(err)
			}
		}
		note := func() {
			change(t, db, func(tx store.Tx) { audit.Append(tx, "web:1", audit.Event{What: audit.Asked}, time.Now()) })
		}
		expect := func(when string, n int) {
			t.Helper()
			if got := summariesIn(t, db); len(got) != n {
				t.Fatalf("%s: %d summaries, want %d: %q", when, len(got), n, got)
			}
		}
		note() // the bubble's clock begins at midnight
		run(8 * time.Hour)
		expect("before nine", 0)
		run(2 * time.Hour)
		expect("at ten", 1)
		run(time.Hour)
		expect("after a restart", 1)
		note()
		<-time.After(4 * 24 * time.Hour) // the bot is down
		run(time.Hour)
		expect("after some days", 2)
		run(24 * time.Hour)
		expect("a day after that", 3)
		texts := summariesIn(t, db)
		for i, want := range []string{"1 asked, in 1 thread.", "1 asked, in 1 thread.", "Nothing was asked for"} {
			if !strings.Contains(texts[i], want) {
				t.Errorf("%d: %q", i, texts[i])
			}
		}
		if woken != 3 {
			t.Errorf("the outbox was woken %d times", woken)
		}
	})
}

func TestNoSummaryWithoutAThread(t *testing.T) {
	a := &auditor{cfg: config.Defaults().Audit}
	if err := a.summaries(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheSummaryText(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	got := summaryText(audit.Totals{
		Since: at, By: map[string]int{audit.Denied: 1, audit.Asked: 3, "odd": 2}, Lines: 6, Threads: 2,
		Anchor: audit.AnchorLine{N: 4, Lines: 120, Hash: strings.Repeat("0123456789abcdef", 4)}, Anchored: true,
	}, 1, "1 of 2 witnesses have signed all 5 anchors; b up to 3.")
	want := "**Decisions since 2026-03-01 09:00 UTC**\n\n3 asked, 1 denied, 2 other, in 2 threads.\n1 request open now.\n\n" +
		"The record has 120 lines up to anchor 4:\n\n```\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n```\n\n" +
		"Whoever wants to know whether the record is still the one of now runs `countersign audit verify --anchor 0123456789ab`.\n" +
		"\n1 of 2 witnesses have signed all 5 anchors; b up to 3.\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAnchorsAreMadeWhileTheBotRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a := &auditor{db: db, now: time.Now, log: slog.New(slog.DiscardHandler)}
		change(t, db, func(tx store.Tx) { audit.Append(tx, "web:1", audit.Event{What: audit.Asked}, time.Now()) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.anchors(ctx) }()
		number := func() (n uint64) {
			synctest.Wait()
			change(t, db, func(tx store.Tx) { last, _ := audit.Latest(tx); n = last.N })
			return n
		}
		first := number()
		<-time.After(anchorEvery + time.Second)
		idle := number()
		change(t, db, func(tx store.Tx) { audit.Append(tx, "web:1", audit.Event{What: audit.Denied}, time.Now()) })
		<-time.After(anchorEvery)
		if last := number(); first != 0 || idle != 0 || last != 1 {
			t.Errorf("anchors %d, %d, %d", first, idle, last)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAStopAnchorsWhatWasRecordedLast(t *testing.T) {
	db := mem.Open()
	var log bytes.Buffer
	a := &auditor{db: db, now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil))}
	change(t, db, func(tx store.Tx) { audit.Append(tx, "web:1", audit.Event{What: audit.Asked}, time.Now()) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as it is when the bot stops
	a.final(ctx)
	var made audit.AnchorLine
	change(t, db, func(tx store.Tx) { made, _ = audit.Latest(tx) })
	if made.Lines != 1 || !strings.Contains(log.String(), made.Hash) {
		t.Errorf("%+v %s", made, log.String())
	}
	log.Reset()
	if a.final(ctx); log.Len() != 0 {
		t.Errorf("nothing is new: %s", log.String())
	}
}

// record makes a data directory with a small record in it. The store is open.
func recordOne(t *testing.T) (dir string, db *bolt.DB, anchor string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("COUNTERSIGN_DATA_DIR", dir)
	t.Setenv("COUNTERSIGN_LISTEN", "127.0.0.1:1")
	t.Setenv("COUNTERSIGN_INSTANCE", "bot")
	t.Setenv("OPENAI_API_KEY", "an-own-secret-value")
	if err := os.WriteFile(filepath.Join(dir, "web.key"), bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(dir, "countersign.db"), bolt.Options{Journal: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exact := audit.Trail{Redact: func(s string) string { return s }}
	change(t, db, func(tx store.Tx) {
		for i := range 3 {
			exact.Append(tx, fmt.Sprint("web:", i%2), audit.Event{What: audit.Asked, Command: "systemctl restart app"}, time.Now().AddDate(0, 0, -40))
		}
		audit.Anchor(tx, time.Now().AddDate(0, 0, -40))
		exact.Append(tx, "web:1", audit.Event{What: audit.Denied, Note: "no: an-own-secret-value"}, time.Now())
		a, _ := audit.Anchor(tx, time.Now())
		anchor = a.Hash
		exact.Append(tx, "web:0", audit.Event{What: audit.Done}, time.Now())
	})
	return dir, db, anchor
}

func stop(t *testing.T, db *bolt.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// audits runs bot audit.
func audits(t *testing.T, in string, args ...string) (out string, code int, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := AuditCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetIn(strings.NewReader(in))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	code = cli.Status(c.ExecuteContext(t.Context()), 0, "", &stderr)
	return stdout.String(), code, stderr.String()
}

func TestAuditOfAStoppedBot(t *testing.T) {
	dir, db, anchor := recordOne(t)
	stop(t, db)
	out, code, said := audits(t, "", "verify", "--anchor", anchor[:12])
	if code != 0 || !strings.Contains(out, "note: no anchor covers the newest 1 lines yet\n") || !strings.HasPrefix(out[strings.Index(out, "ok:"):], "ok: 2 threads, 5 lines, 2 anchors; the newest is 1 of ") || !strings.Contains(out, anchor) {
		t.Fatalf("%d %s %s", code, out, said)
	}
	whole, code, said := audits(t, "", "export")
	if code != 0 || strings.Contains(whole, "an-own-secret-value") || !strings.Contains(whole, `"withheld":true,"note":"no: [redacted:`) || strings.Count(whole, `{"record"`) != 5 {
		t.Fatalf("%d %s\n%s", code, said, whole)
	}
	file := filepath.Join(dir, "export.jsonl")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code, said = audits(t, "", "verify", file, "--anchor", strings.ToUpper(anchor))
	if code != 0 || !strings.HasPrefix(out, "note: the export left secrets out of 1 line, whose texts were not checked\nnote: no anchor covers the newest 1 lines yet\nok: 2 threads, 5 lines") {
		t.Errorf("%d %s %s", code, out, said)
	}
	recent, code, said := audits(t, "", "export", "--since", "30d", "--thread", "web:1")
	if code != 0 || strings.Count(recent, `{"record"`) != 1 {
		t.Errorf("%d %s\n%s", code, said, recent)
	}
	if out, code, said = audits(t, recent, "verify", "-"); code != 0 || !strings.HasPrefix(out, "note: this export is a part") {
		t.Errorf("%d %s %s", code, out, said)
	}
	for rule, tc := range map[string]struct {
		in, out, said string
		code          int
		args          []string
	}{
		"a changed line": {strings.Replace(whole, `"what":"denied"`, `"what":"approved"`, 1), "thread web:1 line 1: was changed\n", "bot: the audit record has 2 faults", 1, []string{"verify", "-"}},
		"another posted anchor": {whole, "no anchor has the hash 0123456789ab, so this is not the record that was posted\n", "bot: the audit record has 1 fault;", 1,
			[]string{"verify", "-", "--anchor", "0123456789ab"}},
		"no export":            {"hello", "", "bot: audit: this is no export", 1, []string{"verify", "-"}},
		"no such file":         {"", "", "bot: the export cannot be read", 2, []string{"verify", filepath.Join(dir, "none")}},
		"an anchor that is no": {"", "", "bot: --anchor takes", 2, []string{"verify", "--anchor", "short"}},
		"two files":            {"", "", "bot: audit verify takes one export", 2, []string{"verify", "a", "b"}},
		"a bad since":          {"", "", `bot: --since is "soon"`, 2, []string{"export", "--since", "soon"}},
		"an argument":          {"", "", "bot: audit export takes no arguments", 2, []string{"export", "x"}},
	} {
		out, code, said := audits(t, tc.in, tc.args...)
		if code != tc.code || !strings.Contains(out, tc.out) || !strings.HasPrefix(said, tc.said) {
			t.Errorf("%s: %d %s %s", rule, code, out, said)
		}
	}
	t.Setenv("COUNTERSIGN_DATA_DIR", t.TempDir())
	if _, code, said := audits(t, "", "verify"); code != 1 || !strings.HasPrefix(said, "bot: there is no store in ") {
		t.Errorf("%d %s", code, said)
	}
	if entries, _ := os.ReadDir(os.Getenv("COUNTERSIGN_DATA_DIR")); len(entries) > 0 {
		t.Error("looking for a store made one")
	}
}

func TestAFaultOfTheStoreIsOneLineAndStatusOne(t *testing.T) {
	_, db, _ := recordOne(t)
	change(t, db, func(tx store.Tx) { tx.Delete(store.Key("audit", "web:0", uint64(1))) })
	stop(t, db)
	out, code, said := audits(t, "", "verify")
	if want := "thread web:0 line 1: is missing\n"; code != 1 || !strings.HasPrefix(out, want) || !strings.Contains(out, "FAIL: 2 threads") || !strings.HasPrefix(said, "bot: the audit record has ") {
		t.Errorf("%d %s %s", code, out, said)
	}
}

func TestAuditOfARunningBot(t *testing.T) {
	needstest.Long(t)
	_, db, anchor := recordOne(t)
	key := bytes.Repeat([]byte{7}, 32)
	hide := func(s string) string { return strings.ReplaceAll(s, "an-own-secret-value", "***") }
	x := newExporter(db, key, hide, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(x)
	defer srv.Close()
	out, code, said := audits(t, "", "verify", "--url", srv.URL, "--anchor", anchor)
	if code != 0 || !strings.Contains(out, "ok: 2 threads, 5 lines, 2 anchors") || strings.Contains(out, "secrets") {
		t.Fatalf("%d %s %s", code, out, said)
	}
	out, code, said = audits(t, "", "export", "--url", srv.URL+"/", "--since", "30d", "--thread", "web:1")
	if code != 0 || strings.Count(out, `{"record"`) != 1 || !strings.Contains(out, "no: ***") {
		t.Errorf("%d %s %s", code, out, said)
	}

	change(t, db, func(tx store.Tx) { tx.Delete(store.Key("audit", "web:0", uint64(1))) })
	if out, code, _ := audits(t, "", "verify", "--url", srv.URL); code != 1 || !strings.HasPrefix(out, "thread web:0 line 1: is missing\n") {
		t.Errorf("%d %s", code, out)
	}
	change(t, db, func(tx store.Tx) { tx.Set(store.Key("audit-head", "web:0"), []byte("?")) })
	if out, code, said := audits(t, "", "verify", "--url", srv.URL); code != 1 || strings.Contains(out, "ok") || !strings.Contains(said, "web:0") {
		t.Errorf("%d %s %s", code, out, said)
	}

	if _, code, said := audits(t, "", "verify"); code != 1 || !strings.Contains(said, "in use by a running bot, and no bot answers at http://127.0.0.1:1; name its address with --url, or stop it") {
		t.Errorf("%d %s", code, said)
	}
	// Somebody else listens there, and has heard an answer of the bot before.
	impostor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", proofTrailer)
		_ = audit.Export(context.Background(), mem.Open(), w, audit.ExportOptions{})
		w.Header().Set(proofTrailer, strings.Repeat("0", 64))
	}))
	defer impostor.Close()
	if out, code, said := audits(t, "", "verify", "--url", impostor.URL); code != 1 || out != "" || !strings.Contains(said, "is not the bot of this data directory") {
		t.Errorf("%d %s %s", code, out, said)
	}
	if err := os.Remove(filepath.Join(os.Getenv("COUNTERSIGN_DATA_DIR"), "web.key")); err != nil {
		t.Fatal(err)
	}
	if _, code, said := audits(t, "", "export", "--url", srv.URL); code != 1 || !strings.Contains(said, "the key to ask that bot is not there") {
		t.Errorf("%d %s", code, said)
	}
}

func TestAnExportTakesAFreshCodeFromThisMachine(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	now := time.Now()
	x := newExporter(mem.Open(), key, nil, slog.New(slog.DiscardHandler))
	ask := func(method, code, from string) int {
		r := httptest.NewRequest(method, exportPath, http.NoBody)
		r.RemoteAddr = from
		r.Header.Set("Authorization", codeScheme+code)
		w := httptest.NewRecorder()
		x.ServeHTTP(w, r)
		return w.Code
	}
	good := auditCode(key, now)
	if got := ask(http.MethodGet, good, "127.0.0.1:5"); got != http.StatusOK {
		t.Fatal(got)
	}
	bent := []byte(auditCode(key, now))
	bent[3] ^= 1
	for rule, code := range map[string]string{
		"used before": good, "none": "", "of another key": auditCode(make([]byte, 32), now), "bent": string(bent),
		"expired": auditCode(key, now.Add(-codeLife-time.Second)), "of a clock that is ahead": auditCode(key, now.Add(time.Hour)),
	} {
		if got := ask(http.MethodGet, code, "127.0.0.1:5"); got != http.StatusForbidden {
			t.Errorf("a code that is %s: %d", rule, got)
		}
	}
	fresh := auditCode(key, now)
	if got := ask(http.MethodGet, fresh, "192.0.2.9:5"); got != http.StatusForbidden {
		t.Errorf("from another machine: %d", got)
	}
	if got := ask(http.MethodPost, fresh, "127.0.0.1:5"); got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got)
	}
	x.busy.Lock()
	if got := ask(http.MethodGet, fresh, "[::1]:5"); got != http.StatusTooManyRequests {
		t.Errorf("two at once: %d", got)
	}
	x.busy.Unlock()
	if len(x.used) != 2 {
		t.Errorf("%d codes are remembered", len(x.used))
	}
	x.now = func() time.Time { return now.Add(2 * codeLife) }
	_ = ask(http.MethodGet, auditCode(key, x.now()), "127.0.0.1:5")
	if len(x.used) != 1 {
		t.Errorf("%d codes are remembered after they expired", len(x.used))
	}
}

// torn fails after a first transaction, as a store does whose disk goes away.
type torn struct {
	store.DB
	views int
}

func (d *torn) View(ctx context.Context, fn func(store.Tx) error) error {
	d.views++
	if d.views > 60 {
		return errors.New("the disk is gone")
	}
	return d.DB.View(ctx, fn)
}

func TestAnExportThatBreaksOffIsNoExport(t *testing.T) {
	recordOne(t) // its store stays open, so the export is asked for
	db := mem.Open()
	long := audit.Trail{Redact: func(s string) string { return s }}
	change(t, db, func(tx store.Tx) {
		for i := range 60 {
			long.Append(tx, fmt.Sprint("web:", i), audit.Event{What: audit.Asked, Command: strings.Repeat("x", 4000)}, time.Now())
		}
	})
	srv := httptest.NewServer(newExporter(&torn{DB: db}, bytes.Repeat([]byte{7}, 32), nil, slog.New(slog.DiscardHandler)))
	defer srv.Close()
	out, code, said := audits(t, "", "export", "--url", srv.URL)
	if code != 1 || out == "" || !strings.Contains(said, "the export of the running bot broke off") {
		t.Errorf("%d %d bytes %s", code, len(out), said)
	}
}
