package audit

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/mem"
)

func export(t testing.TB, db store.DB, o ExportOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := Export(context.Background(), db, &b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// audit imports an export and checks it.
func examine(t testing.TB, text string) (db store.DB, h Header, c Checked, faults []string, err error) {
	t.Helper()
	db = mem.OpenTwice()
	h, err = Import(context.Background(), db, strings.NewReader(text), func(f Fault) { faults = append(faults, f.String()) })
	if err != nil {
		return db, h, c, faults, err
	}
	c, more := check(t, db, CheckOptions{Export: &h})
	return db, h, c, append(faults, more...), nil
}

func filled(t testing.TB) *mem.DB {
	t.Helper()
	db := mem.Open()
	update(t, db, fill)
	return db
}

func TestAnExportVerifiesAndIsTheSameAgain(t *testing.T) {
	db := filled(t)
	text := export(t, db, ExportOptions{Now: start})
	again, h, c, faults, err := examine(t, text)
	if err != nil || faults != nil {
		t.Fatal(err, faults)
	}
	if c.Threads != 3 || c.Lines != 16 || c.Anchors != 2 || c.Skipped != 0 || c.Withheld != 0 || c.Latest.N != 1 || !h.At.Equal(start) {
		t.Errorf("%+v %+v", c, h)
	}
	if got := export(t, again, ExportOptions{Now: start}); got != text {
		t.Errorf("got\n%swant\n%s", got, text)
	}
	empty := export(t, mem.Open(), ExportOptions{Now: start})
	if _, _, _, faults, err := examine(t, empty); err != nil || faults != nil || strings.Count(empty, "\n") != 2 {
		t.Errorf("%s %v %v", empty, faults, err)
	}
}

func TestAnExportThatWasTamperedWithIsFound(t *testing.T) {
	db := filled(t)
	text := export(t, db, ExportOptions{Now: start})
	rows := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	rows[len(rows)-1] += "\n"
	find := func(part string) int {
		for i, r := range rows {
			if strings.Contains(r, part) {
				return i
			}
		}
		t.Fatalf("no row has %s", part)
		return 0
	}
	web2, web3 := find(`{"chain":{"thread":"web:2"`), find(`{"chain":{"thread":"web:3"`)
	without := func(from, to int) []string { return append(append([]string{}, rows[:from]...), rows[to:]...) }
	swapped := append([]string{}, rows...)
	swapped[web2+1], swapped[web2+2] = rows[web2+2], rows[web2+1]
	twice := append(append([]string{}, rows[:web2+2]...), rows[web2+1:]...)
	for _, tc := range []struct {
		rule  string
		rows  []string
		fault string // the first one
	}{
		{"a dropped line", without(web2+2, web2+3), "thread web:2 line 1: is missing"},
		{"lines swapped", swapped, "thread web:2 line 0: is out of order: it comes after line 1"},
		{"a line twice", twice, "thread web:2 line 0: is out of order: it comes after line 0"},
		{"a chain dropped whole", without(web2, web3), "thread web:2 line 2: is missing; anchor 0 names it"},
		{"a dropped anchor", without(find(`{"anchor":`), find(`{"anchor":`)+1), "this head of an anchor cannot be read, or is not in its place"},
		{"no end", rows[:len(rows)-1], "the end is missing: the export is cut short"},
		{"a cut line", append(append([]string{}, rows[:web2]...), rows[web2][:20]), "it does not end with a line feed: the export is cut short"},
		{"more after the end", append(append([]string{}, rows...), rows[web2]), "it comes after the end"},
		{"rubbish among the anchors", append([]string{rows[0], "{}\n"}, rows[1:]...), "line 2 of the export: it is neither an anchor nor a chain"},
		{"a whole export that begins in the middle", append(append([]string{}, rows[:web2]...), append([]string{strings.Replace(rows[web2], `"from":0`, `"from":1`, 1)}, rows[web2+2:]...)...),
			"thread web:2 does not begin with its first line"},
	} {
		_, _, _, faults, err := examine(t, strings.Join(tc.rows, ""))
		if err != nil || len(faults) < 1 {
			t.Errorf("%s: %v %v", tc.rule, err, faults)
			continue
		}
		if !strings.Contains(strings.Join(faults, "\n"), tc.fault) {
			t.Errorf("%s: %s", tc.rule, strings.Join(faults, "\n"))
		}
	}
	for rule, other := range map[string]string{
		"nothing": "", "another file": "hello\n", "another version": strings.Replace(rows[0], `"v":1`, `"v":2`, 1), "a line without end": rows[0] + strings.Repeat("x", maxLine+1),
	} {
		if _, _, _, _, err := examine(t, other); err == nil {
			t.Errorf("%s passed as an export", rule)
		}
	}
}

func TestOneFlippedByteOfAnExportIsFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		db := mem.Open()
		update(t, db, func(tx store.Tx) { grow(rt, tx) })
		text := export(t, db, ExportOptions{Now: start})
		if _, _, _, faults, err := examine(t, text); err != nil || faults != nil {
			rt.Fatal(err, faults)
		}
		b := []byte(text)
		i := rapid.IntRange(0, len(b)-1).Draw(rt, "byte")
		b[i] ^= byte(rapid.IntRange(1, 255).Draw(rt, "by"))
		if _, _, _, faults, err := examine(t, string(b)); err == nil && faults == nil {
			rt.Errorf("byte %d went unnoticed in %q", i, b[max(0, i-40):min(len(b), i+40)])
		}
	})
}

func TestAPartVerifiesAsFarAsItGoes(t *testing.T) {
	db := filled(t)
	for _, tc := range []struct {
		rule                          string
		o                             ExportOptions
		threads, lines, anchors, skip int
		has, hasNot                   string
	}{
		{"one thread", ExportOptions{Thread: "web:2"}, 1, 4, 2, 3, `"chain":{"thread":"web:2"`, `"chain":{"thread":"web:3"`},
		{"a thread that there is not", ExportOptions{Thread: "web:9"}, 0, 0, 2, 2, `"export"`, `"record"`},
		{"the newest lines", ExportOptions{Since: start.Add(2 * time.Hour)}, 3, 7, 2, 1, `"from":3`, `{"n":0`},
		{"nothing is that new", ExportOptions{Since: start.Add(200 * time.Hour)}, 0, 0, 2, 2, `"export"`, `"record"`},
		{"the newest lines of one thread", ExportOptions{Since: start.Add(time.Hour), Thread: "web:3"}, 1, 3, 2, 3, `"from":3`, `web:2","from":3`},
	} {
		tc.o.Now = start
		text := export(t, db, tc.o)
		_, _, c, faults, err := examine(t, text)
		if err != nil || faults != nil || c.Threads != tc.threads || c.Lines != tc.lines || c.Anchors != tc.anchors || c.Skipped != tc.skip {
			t.Errorf("%s: %v %v %+v\n%s", tc.rule, err, faults, c, text)
		}
		if !strings.Contains(text, tc.has) || strings.Contains(text, tc.hasNot) {
			t.Errorf("%s:\n%s", tc.rule, text)
		}
	}
	// The line before the first one that is shown is known to an anchor.
	text := export(t, db, ExportOptions{Now: start, Since: start.Add(time.Hour)})
	update(t, db, func(tx store.Tx) {
		rewrite(tx, "web:3", 3, func(l *Line) { l.Prev = strings.Repeat("0", 64) })
		for n := uint64(4); n < 6; n++ {
			raw, _ := tx.Get(lineKey("web:3", n-1))
			rewrite(tx, "web:3", n, func(l *Line) { l.Prev = parseLine(raw).Hash })
		}
		raw, _ := tx.Get(lineKey("web:3", 5))
		store.Save(tx, headKey("web:3"), Head{6, parseLine(raw).Hash})
	})
	_, _, _, faults, err := examine(t, export(t, db, ExportOptions{Now: start, Since: start.Add(time.Hour)}))
	if got := strings.Join(faults, "\n"); err != nil || !strings.Contains(got, "thread web:3 line 3: does not follow the line before it, which anchor 0 names") {
		t.Errorf("%v %s\n%s", err, got, text)
	}
}

func TestAnExportLeavesSecretsOutAndStillVerifies(t *testing.T) {
	db := mem.Open()
	as := Trail{Redact: func(s string) string { return s }}
	update(t, db, func(tx store.Tx) {
		oldAppend(tx, "web:1", firstEvent{What: "denied", Note: "an old hunter2"}, start)
		as.Append(tx, "web:2", Event{What: Asked, Command: "login hunter2"}, start)
		as.Append(tx, "web:2", Event{What: Denied, Note: "no"}, start)
		Anchor(tx, start)
	})
	clean := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	text := export(t, db, ExportOptions{Now: start, Thread: "web:2", Redact: clean})
	_, _, c, faults, err := examine(t, text)
	if err != nil || faults != nil || c.Withheld != 1 {
		t.Fatal(err, faults, c)
	}
	if strings.Contains(text, "hunter2") || !strings.Contains(text, `"texts":{"withheld":true,"command":"login ***"}`) || !strings.Contains(text, `"command_sha256":"`+sum([]byte("login hunter2"))) {
		t.Error(text)
	}
	// The first form has its note under the hash: that line cannot be checked, and
	// the export says so rather than pass.
	text = export(t, db, ExportOptions{Now: start, Redact: clean})
	_, _, _, faults, err = examine(t, text)
	want := "thread web:1 line 0: cannot be checked: it is of the first form, and its note was left out of the export"
	if err != nil || len(faults) != 1 || faults[0] != want || strings.Contains(text, "hunter2") {
		t.Error(err, faults, text)
	}
}

func TestADamagedLineIsExportedAsItIs(t *testing.T) {
	db := filled(t)
	update(t, db, func(tx store.Tx) { tx.Set(lineKey("web:2", 1), []byte("{\n\xff")) })
	_, _, _, faults, err := examine(t, export(t, db, ExportOptions{Now: start}))
	if err != nil || len(faults) != 1 || faults[0] != "thread web:2 line 1: cannot be read" {
		t.Fatal(err, faults)
	}
	update(t, db, func(tx store.Tx) { tx.Set(headKey("web:2"), []byte("{}x")) })
	var b bytes.Buffer
	if err := Export(t.Context(), db, &b, ExportOptions{}); err == nil || !strings.Contains(err.Error(), "web:2") {
		t.Fatal(err)
	}
}

// thin counts what one transaction reads and writes.
type thin struct {
	store.DB
	most int
}

type thinTx struct {
	store.Tx
	n int
}

func (d *thin) View(ctx context.Context, fn func(store.Tx) error) error {
	return d.DB.View(ctx, func(tx store.Tx) error { return d.count(tx, fn) })
}

func (d *thin) Update(ctx context.Context, fn func(store.Tx) error) error {
	return d.DB.Update(ctx, func(tx store.Tx) error { return d.count(tx, fn) })
}

func (d *thin) count(tx store.Tx, fn func(store.Tx) error) error {
	c := &thinTx{Tx: tx}
	err := fn(c)
	d.most = max(d.most, c.n)
	return err
}

func (t *thinTx) Scan(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for k, v := range t.Tx.Scan(start, end) {
			t.n += len(k) + len(v)
			if !yield(k, v) {
				return
			}
		}
	}
}

func (t *thinTx) Set(k, v []byte) {
	t.n += len(k) + len(v)
	t.Tx.Set(k, v)
}

func TestNoTransactionOfAnExportOrImportGrowsWithTheStore(t *testing.T) {
	db := &thin{DB: mem.Open()}
	as := Trail{Redact: func(s string) string { return s }}
	for i := range 40 {
		update(t, db.DB, func(tx store.Tx) {
			for range 50 {
				as.Append(tx, fmt.Sprint("web:", i%3), Event{What: Asked, Command: strings.Repeat("x", 3000)}, start)
			}
		})
	}
	text := export(t, db, ExportOptions{Now: start, Since: start})
	if db.most > page+8<<10 || len(text) < 10*page {
		t.Errorf("a transaction read %d bytes for an export of %d", db.most, len(text))
	}
	to := &thin{DB: mem.Open()}
	if _, err := Import(t.Context(), to, strings.NewReader(text), func(f Fault) { t.Error(f) }); err != nil || to.most > importBatch+8<<10 {
		t.Errorf("a transaction wrote %d bytes: %v", to.most, err)
	}
}

// TestTheVerifierOfTheDocumentAgrees runs the Python program in docs/audit-format.md.
func TestTheVerifierOfTheDocumentAgrees(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is not installed")
		}
		t.Skip("python3 is not installed: apt-get install python3")
	}
	doc, err := os.ReadFile("../../docs/audit-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(doc), "```python\n")
	program, _, ok2 := strings.Cut(program, "```")
	if !ok || !ok2 {
		t.Fatal("docs/audit-format.md has no program")
	}
	dir := t.TempDir()
	verifier, file := filepath.Join(dir, "verify.py"), filepath.Join(dir, "export.jsonl")
	if err := os.WriteFile(verifier, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(text string) (string, bool) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), python, verifier, file).CombinedOutput()
		return string(out), err == nil
	}
	text := export(t, filled(t), ExportOptions{Now: start})
	if out, ok := run(text); !ok || out != "ok\n" {
		t.Fatalf("%s\n%s", out, text)
	}
	for i, change := range [][2]string{
		{"web:bob", "web:eve"}, {`/srv/1`, `/srv/2`}, {`"lines":15`, `"lines":16`}, {`"what":"asked"`, `"what":"denied"`}, {`"from":3`, `"from":2`}, {"a \\u003c b", "a \\u003c c"},
	} {
		bad := strings.Replace(text, change[0], change[1], 1)
		if out, ok := run(bad); ok || bad == text {
			t.Errorf("%d: %s passed: %s", i, change[1], out)
		}
	}
}

func FuzzImport(f *testing.F) {
	db := filled(f)
	for _, o := range []ExportOptions{{}, {Thread: "web:2"}, {Since: start.Add(time.Hour)}, {Redact: strings.ToUpper}} {
		o.Now = start
		f.Add(export(f, db, o))
	}
	f.Add("{\"export\":{}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		db, h, _, faults, err := examine(t, text)
		if err != nil || faults != nil {
			return
		}
		// What is found well is exactly what an export of it would be.
		if again := export(t, db, ExportOptions{Now: h.At, Since: h.Since, Thread: h.Thread}); !h.part() && again != text {
			t.Fatalf("accepted:\n%s\nexported:\n%s", text, again)
		}
	})
}

// TestLinesWithoutTheHeadsOfTheirAnchorsAreCounted: an export of one thread may leave heads out, and without them its
// lines are those that somebody else could have written.
func TestLinesWithoutTheHeadsOfTheirAnchorsAreCounted(t *testing.T) {
	for _, o := range []ExportOptions{{Now: start}, {Now: start, Thread: "web:1"}} {
		text := export(t, filled(t), o)
		_, _, whole, faults, err := examine(t, text)
		if err != nil || faults != nil || whole.Loose == uint64(whole.Lines) {
			t.Fatalf("%v %v %+v", err, faults, whole)
		}
		if o.Thread == "" {
			continue
		}
		var kept []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, headBegin) && !strings.HasPrefix(line, endBegin) {
				kept = append(kept, line)
			}
		}
		body := strings.Join(kept, "")
		end, err := encode(endRow{uint64(strings.Count(body, anchorBegin)), 1, uint64(whole.Lines), sum([]byte(body))})
		if err != nil {
			t.Fatal(err)
		}
		_, _, c, faults, err := examine(t, body+endBegin+string(end)+"}\n")
		if err != nil || faults != nil || c.Loose != uint64(c.Lines) || c.Lines == 0 {
			t.Errorf("%v %v %+v", err, faults, c)
		}
	}
}

// TestTheBeginningOfAChainVerifies: with the anchors that know of no more than it.
func TestTheBeginningOfAChainVerifies(t *testing.T) {
	_, _, whole, _, _ := examine(t, export(t, filled(t), ExportOptions{Now: start, Thread: "web:1"}))
	n := whole.Lines
	for lines := 1; lines <= n+1; lines++ {
		text := export(t, filled(t), ExportOptions{Now: start, Thread: "web:1", Lines: uint64(lines)})
		_, _, c, faults, err := examine(t, text)
		if err != nil || faults != nil || c.Lines != min(lines, n) {
			t.Errorf("%d of %d: %v %v %+v", lines, n, err, faults, c)
		}
	}
}
