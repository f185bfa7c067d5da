package report

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/mem"
	"countersign/test/needstest"
)

func export(t testing.TB, inc Incident, p Parts) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Export(context.Background(), &b, inc, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// unpack reads an archive; names are in its order.
func unpack(t testing.TB, raw []byte) (names []string, files map[string]string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names, files[f.Name] = append(names, f.Name), string(text)
	}
	return names, files
}

func opens(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

const cast = `{"version":3,"term":{"cols":80,"rows":24}}
[0.100, "o", "$ df -h\r\n"]
[1.000, "m", "approved as x"]
`

// whole is a night with everything that can be in an archive.
func whole(t testing.TB) (*scene, Incident, Parts) {
	s, inc := night(t)
	for i := range inc.Entries {
		if r := inc.Entries[i].Result; r != nil && r.Call == "call_2" {
			r.Output = "out-3f2a9c1b"
		}
	}
	return s, inc, Parts{
		Chain:      Chain(s.db, thread, s.now),
		Output:     func(id string) (io.ReadCloser, error) { return opens("all of " + id + "\n")() },
		Recordings: []Recording{{"ab12_main.1.20260301T140000Z", opens(cast)}},
	}
}

func TestAnArchiveHoldsEverythingAndIsTheSameAgain(t *testing.T) {
	_, inc, parts := whole(t)
	raw := export(t, inc, parts)
	names, files := unpack(t, raw)
	want := []string{
		"timeline.md", "commands.csv", "approvals.jsonl", "alerts.jsonl", "audit.jsonl", "transcript.jsonl", "outputs/out-3f2a9c1b.txt",
		"recordings/ab12_main.1.20260301T140000Z.cast", "README.txt",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if !bytes.Equal(export(t, inc, parts), raw) {
		t.Error("the second archive has other bytes")
	}
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		if !f.Modified.Equal(inc.Made.Truncate(time.Second)) {
			t.Errorf("%s is of %v", f.Name, f.Modified)
		}
	}
	if files["timeline.md"] != Timeline(inc) || files["outputs/out-3f2a9c1b.txt"] != "all of out-3f2a9c1b\n" || files["recordings/ab12_main.1.20260301T140000Z.cast"] != cast {
		t.Error("a file has another content")
	}
	if n := strings.Count(files["transcript.jsonl"], "\n"); n != len(inc.Entries) {
		t.Errorf("%d of %d entries", n, len(inc.Entries))
	}
	if n := strings.Count(files["approvals.jsonl"], "\n"); n != len(inc.Records) {
		t.Errorf("%d of %d requests", n, len(inc.Records))
	}
	readme := files["README.txt"]
	for _, part := range []string{"countersign audit verify audit.jsonl", "countersign audit verify --anchor " + inc.Anchor.Hash, "Nothing, but for the secrets.", "slack:T1:C1:1700000000.0001"} {
		if !strings.Contains(readme, part) {
			t.Errorf("README.txt does not say %q:\n%s", part, readme)
		}
	}
	for name, text := range files {
		if sum := fmt.Sprintf("%d  %s", len(text), sha(text)); name != "README.txt" && !strings.Contains(readme, sum) {
			t.Errorf("README.txt does not have %s with %s", name, sum)
		}
	}
}

// verify is what countersign audit verify does with an export.
func verify(t testing.TB, text, posted string) (c audit.Checked, faults []string) {
	t.Helper()
	db := mem.OpenTwice()
	fault := func(f audit.Fault) { faults = append(faults, f.String()) }
	h, err := audit.Import(context.Background(), db, strings.NewReader(text), fault)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.View(context.Background(), func(tx store.Tx) error {
		c = audit.Check(tx, audit.CheckOptions{Export: &h, Posted: posted}, fault)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return c, faults
}

func TestTheProofInAnArchiveVerifiesAndFailsAfterAChange(t *testing.T) {
	_, inc, parts := whole(t)
	_, files := unpack(t, export(t, inc, parts))
	text := files["audit.jsonl"]
	c, faults := verify(t, text, inc.Anchor.Hash)
	if faults != nil || c.Lines != len(inc.Lines) || c.Anchors != 2 || c.Threads != 1 {
		t.Errorf("%+v %v", c, faults)
	}
	rows := strings.SplitAfter(text, "\n")
	for rule, changed := range map[string]string{
		"a decision that is another":   strings.Replace(text, `"what":"denied"`, `"what":"approved"`, 1),
		"a person who is another":      strings.Replace(text, string(bob.ID), string(alice.ID), 1),
		"a text that is another":       strings.Replace(text, "those are orders", "these are orders", 1),
		"a line that is gone":          strings.Join(slices.Delete(slices.Clone(rows), len(rows)-4, len(rows)-3), ""),
		"an end that is gone":          strings.Join(rows[:len(rows)-2], ""),
		"a digest that is another":     strings.Replace(text, `"digest":"1c29c2`, `"digest":"1c29c3`, 1),
		"an anchor that was rewritten": strings.Replace(text, `"lines":`, `"lines":1`, 1),
	} {
		if changed == text {
			t.Errorf("%s: nothing was changed", rule)
		}
		if _, faults := verify(t, changed, ""); len(faults) == 0 {
			t.Errorf("%s passes", rule)
		}
	}
	if _, faults := verify(t, text, strings.Repeat("0", 64)); len(faults) != 1 {
		t.Errorf("an anchor that was never made is found: %v", faults)
	}
}

func TestTheDigestsOfTheTableAreThoseOfTheChain(t *testing.T) {
	_, inc, parts := whole(t)
	_, files := unpack(t, export(t, inc, parts))
	rows, err := csv.NewReader(strings.NewReader(files["commands.csv"])).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows[0], columns) {
		t.Error(rows[0])
	}
	by := map[string][]string{}
	for _, r := range rows[1:] {
		by[r[4]] = r
		if r[8] != "" && !strings.Contains(files["audit.jsonl"], `"digest":"`+r[8]+`"`) {
			t.Errorf("the chain knows no digest %s of %s", r[8], r[4])
		}
	}
	for command, want := range map[string]string{
		"df -h": "2026-03-01T14:00:07.000Z;call_1;run_shell;ssh:web-1;df -h;Alertmanager (alerts:alertmanager);;proven read-only;*;0;0.200;ok",
		"gzip -9 /var/log/app/debug.log.1 /var/log/app/debug.log.2": "2026-03-01T14:02:07.300Z;call_4;run_shell;ssh:web-1;*;Alice (slack:T1:U1);Bob (slack:T1:U2);approved;*;0;95.000;ok",
		"rm -rf /var/log/app/archive":                               "2026-03-01T14:03:44.300Z;call_5;run_shell;ssh:web-1;*;Alice (slack:T1:U1);;denied;*;;;denied",
		"truncate -s 0 /var/log/app/trace.log":                      "2026-03-01T14:04:51.300Z;call_6;run_shell;ssh:web-1;*;Carol | `sre` (slack:T1:U3);Bob (slack:T1:U2);approved;*;1;0.300;failed",
		"systemctl restart app":                                     "2026-03-01T14:05:03.600Z;call_7;run_shell;ssh:web-1;*;Alice (slack:T1:U1);Bob (slack:T1:U2);approved;*;;;unknown",
		"rm /var/log/app/debug.log.9.gz":                            "2026-03-01T14:08:43.300Z;call_9;run_shell;ssh:web-1;*;Alice (slack:T1:U1);;approved by plan: step 2 of 3;*;0;0.050;ok",
		"systemctl reload app":                                      "2026-03-01T15:11:31.350Z;call_11;run_shell;ssh:web-1;*;Alice (slack:T1:U1);;expired;*;;;expired",
		"mkfs.ext4 /dev/sdb1":                                       "2026-03-01T15:26:32.350Z;call_12;run_shell;ssh:web-1;*;Alice (slack:T1:U1);;refused by the policy;*;;;forbidden",
		"systemctl stop app":                                        "2026-03-01T15:26:33.350Z;call_13;run_shell;ssh:web-1;*;Alice (slack:T1:U1);;cancelled;*;;;cancelled",
		"systemctl start app":                                       "2026-03-02T00:26:45.450Z;call_15;run_shell;ssh:web-1;*;Bob (slack:T1:U2);;pending;*;;;waiting",
	} {
		got := by[command]
		for i, w := range strings.Split(want, ";") {
			if w != "*" && (len(got) <= i || got[i] != w) {
				t.Errorf("%s: column %s: %q", command, columns[i], got)
				break
			}
		}
	}
}

func TestCellsAreNoFormulas(t *testing.T) {
	w := writer{redact.New()}
	for s, want := range map[string]string{
		"": "", "df -h": "df -h", "-rf": "'-rf", "=1+1": "'=1+1", "+1": "'+1", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "\n=1": "'\n=1", "\t": "'\t", " \tx": "' \tx", "\tx": "'\tx", " =1": "' =1", "＝1": "'＝1", "＠x": "'＠x",
		"\r=1": `\x0d=1`, "a=1": "a=1", "'x": "'x", "\u00a0=1": "'\u00a0=1",
	} {
		if got := w.cell(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	if got := w.cell(strings.Repeat("é", 40_000)); len([]rune(got)) > 32_767 || !strings.HasSuffix(got, "… [cut]") {
		t.Errorf("a cell of %d characters", len([]rune(got)))
	}
	rapid.Check(t, func(t *rapid.T) {
		s := w.cell(strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"=", "+", "-", "@", "\t", "\r", "\n", " ", "＝", "＋", "a", "'", "\"", ",", "\u200b"})).Draw(t, "s"), ""))
		if s != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(s)[0]) {
			t.Fatalf("%q", s)
		}
	})
}

// leak is the secret in a place of its own.
func leak(n int) string { return fmt.Sprintf("place-%d %s end", n, planted) }

func TestNoSecretIsInAnArchive(t *testing.T) {
	s, inc, parts := whole(t)
	n := 0
	l := func() string { n++; return leak(n) }
	at := s.now
	add := func(e history.Entry) {
		at = at.Add(time.Second)
		e.Seq, e.At = uint64(len(inc.Entries)), at
		inc.Entries = append(inc.Entries, e)
	}
	u := chat.User{ID: chat.UserID(l()), Name: l()}
	add(history.Entry{Kind: history.KindMessage, Message: &history.Message{ID: chat.EventID(l()), From: u, Groups: []string{l()}, Text: l(), Files: []chat.File{
		{Name: l(), Text: l()}, {Name: "b", Data: []byte(l())}, {Name: "c", Text: strings.Repeat("x", maxFile-len(planted)/2) + planted},
	}}})
	id := approvals.ID("planted1")
	add(history.Entry{Kind: history.KindReply, Reply: &history.Reply{Text: l(), Model: l(), Step: l(), Opaque: json.RawMessage(`"` + l() + `"`), Calls: []llm.Call{
		{ID: "p1", Name: l(), Args: `{"command":"` + l() + `","password":"` + named + `","pin":{"password":4711471147114711}}`, Meta: json.RawMessage(`"` + l() + `"`)},
		{ID: "p2", Name: "run_shell", Args: l()}, {ID: "p3", Name: "sub_agent_x", Args: "{}"},
	}}})
	add(history.Entry{Kind: history.KindAsk, Ask: &history.Ask{Call: "p1", Approval: id}})
	add(history.Entry{Kind: history.KindDecision, Decision: &history.Decision{Call: "p1", Approval: id, State: approvals.Denied, By: l(), ByName: l(), Reason: l()}})
	add(history.Entry{Kind: history.KindEdited, Edited: &history.Edited{Call: "p2", Approval: "gone", Text: l(), Shown: l(), By: u}})
	add(history.Entry{Kind: history.KindResult, Result: &history.Result{Call: "p1", Tool: l(), Text: l(), Output: "out-planted1", Denied: true}})
	add(history.Entry{Kind: history.KindResult, Result: &history.Result{Call: "p2", Tool: "run_shell", Text: `{"result":{"token":"` + named + `"}}`, Output: "out/" + l()}})
	add(history.Entry{Kind: history.KindBegin, Begin: &history.Begin{Call: "p3", Kind: history.NestedAgent, Name: l(), Task: l(), Inputs: map[string]string{l(): l(), "db_password": named}, Source: l()}})
	add(history.Entry{Kind: history.KindStep, Scope: "p3", Step: &history.Step{ID: l(), What: history.StepAnswered, By: u, Text: l()}})
	add(history.Entry{Kind: history.KindResult, Result: &history.Result{Call: "p3", Text: l(), Failed: true}})
	add(history.Entry{Kind: history.KindNote, Note: &history.Note{Text: l()}})
	add(history.Entry{Kind: history.KindStop, Stop: &history.Stop{From: u}})
	add(history.Entry{Kind: history.KindSummary, Summary: &history.Summary{Text: l()}})
	add(history.Entry{Kind: history.KindEnd, End: &history.End{Reason: history.EndFailed, Text: l()}})
	inner := approvals.Action{
		Tool: l(), Target: l(), User: l(), Dir: l(), Session: l(), Path: l(), Paths: []string{l()}, Bytes: []byte(l()), Args: json.RawMessage(`{"password":"` + named + `","x":"` + l() + `"}`),
		Env: map[string]string{"PGPASSWORD": named, "X": l()}, Files: map[string]string{l(): l()}, Preview: l(), Foreground: l(),
	}
	outer := inner
	outer.Steps = []approvals.Action{inner}
	nonce := "NONCENONCENONCE1"
	inc.Records = append(inc.Records, approvals.Record{
		ID: id, Thread: thread, Call: "p1", Requester: u, Action: outer, Nonce: nonce, Claim: approvals.Claim{Why: l()}, Engine: approvals.Judgement{Reasons: []string{l()}},
		Votes: []approvals.Vote{{User: u, Approve: true, Reason: l()}}, State: approvals.Pending, Reason: l(), Basis: approvals.Basis{Why: l()}, Review: approvals.Review{Due: true, Note: l()},
		Outcome: approvals.Outcome{Note: l()}, Preview: approvals.Preview{Text: l()}, Taint: l(),
	})
	inc.Alerts = append(inc.Alerts, Alert{At: at, Source: l(), Key: l(), Status: l(), Title: l(), Text: l(), URL: l(), Labels: map[string]string{l(): l(), "password": named}})
	inc.Faults = []string{l()}
	inc.Lines = append(inc.Lines, audit.Line{At: at, Event: audit.Event{What: audit.Escalated, Approval: l(), Note: l()}})
	parts.Output = func(string) (io.ReadCloser, error) {
		// In pieces of a byte, and across the pieces in which it is read.
		return io.NopCloser(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 32<<10-10) + " " + l() + "\npassword=" + named + "\n"))), nil
	}
	parts.Recordings = []Recording{{"a", opens(cast + `[0.1, "o", "` + l() + `"]` + "\n" + l() + "\n" + `{"password":"` + named + `"}` + "\n" + `[0.1, "o"` + "\n")}, {"../" + l(), opens("")}}

	secrets := []string{planted, base64.StdEncoding.EncodeToString([]byte(planted)), hex.EncodeToString([]byte(planted)), named, nonce, "opaque-meta", "4711471147114711"}
	_, files := unpack(t, export(t, inc, parts))
	for name, text := range files {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has %q: %s", name, secret, text[max(0, i-200):min(len(text), i+60)])
			}
		}
	}
	// Half a secret at a cut is one as well.
	if half := strings.Repeat("x", 50) + planted[:len(planted)/2]; strings.Contains(files["transcript.jsonl"], half) {
		t.Error("half of a secret is left")
	}
	// What has its place is found there, without the secret.
	for name, count := range map[string]int{"transcript.jsonl": 20, "approvals.jsonl": 20, "alerts.jsonl": 6, "outputs/out-planted1.txt": 1, "recordings/a.cast": 2, "timeline.md": 5} {
		if got := strings.Count(files[name], "place-"); got < count {
			t.Errorf("%s has %d texts of %d", name, got, count)
		}
	}
	if strings.Contains(files["recordings/a.cast"], "\n[0.100, \"o\", \"$ df -h\\r\\n\"]\n") == false {
		t.Error("an event without a secret was changed")
	}
	for _, name := range []string{"transcript.jsonl", "approvals.jsonl", "alerts.jsonl"} {
		for i, line := range strings.Split(strings.TrimSuffix(files[name], "\n"), "\n") {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: line %d is no JSON: %s", name, i+1, line)
			}
		}
	}
}

func TestATranscriptWithoutSecretsIsTheSameInAnArchive(t *testing.T) {
	_, inc := night(t)
	inc.Redactor = redact.New()
	var kept []history.Entry
	for _, e := range inc.Entries { // but for the texts that have one
		if raw, _ := json.Marshal(e); !bytes.Contains(raw, []byte(planted)) && !bytes.Contains(raw, []byte(named)) && !bytes.Contains(raw, []byte(`"meta"`)) {
			e.Tokens = 123456789
			kept = append(kept, e)
		}
	}
	inc.Entries = kept
	_, files := unpack(t, export(t, inc, Parts{}))
	var got []history.Entry
	for line := range strings.Lines(files["transcript.jsonl"]) {
		var e history.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(kept)
	if !bytes.Equal(a, b) || len(kept) < 20 {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
	if !strings.Contains(files["README.txt"], "audit.jsonl: it was not asked for") || !strings.Contains(files["README.txt"], "nothing here can be verified by itself") {
		t.Error(files["README.txt"])
	}
}

// endless is text without an end.
type endless struct{ line string }

func (e endless) Read(b []byte) (int, error) {
	n := 0
	for n+len(e.line) <= len(b) {
		n += copy(b[n:], e.line)
	}
	return n, nil
}

func (endless) Close() error { return nil }

func TestAnArchiveIsBoundedAndSaysWhatIsMissing(t *testing.T) {
	for rule, limit := range map[string]int64{"as usual": 0, "a small one": 1 << 20, "the smallest": 1} {
		t.Run(rule, func(t *testing.T) {
			s, inc, parts := whole(t)
			for i := range 3000 {
				id := fmt.Sprint("big", i)
				inc.Entries = append(inc.Entries,
					history.Entry{Seq: uint64(i), At: s.now, Kind: history.KindReply, Reply: &history.Reply{Calls: []llm.Call{{ID: id, Name: "run_shell", Args: `{"command":"` + strings.Repeat("echo ", 1000) + `"}`}}}},
					history.Entry{Seq: uint64(i), At: s.now, Kind: history.KindResult, Result: &history.Result{Call: id, Text: strings.Repeat("line of output\n", 400), Output: fmt.Sprintf("out-%08d", i)}})
			}
			inc.Entries = append(inc.Entries, history.Entry{Seq: 1, At: s.now, Kind: history.KindNote, Note: &history.Note{Text: strings.Repeat("word ", 1<<20)}})
			parts.Limit = limit
			parts.Output = func(string) (io.ReadCloser, error) { return endless{"an output without an end\n"}, nil }
			parts.Recordings = []Recording{{"a", func() (io.ReadCloser, error) { return endless{`[0.1, "o", "x"]` + "\n"}, nil }}}
			if limit == 0 {
				parts.Limit = 8 << 20 // quicker, and all the same
			}
			raw := export(t, inc, parts)
			_, files := unpack(t, raw)
			total := int64(0)
			for _, text := range files {
				total += int64(len(text))
			}
			if bound := max(parts.Limit, 2*readmeRoom); total > bound || int64(len(raw)) > bound+64<<10 {
				t.Errorf("%d bytes in %d, and may have %d", total, len(raw), bound)
			}
			readme := files["README.txt"]
			for _, part := range []string{"What is left out", "transcript.jsonl: the last ", "outputs/out-"} {
				if !strings.Contains(readme, part) {
					t.Errorf("README.txt does not say %q", part)
				}
			}
			if c, ok := files["audit.jsonl"]; ok {
				if _, faults := verify(t, c, ""); faults != nil {
					t.Error(faults)
				}
			} else if !strings.Contains(readme, "audit.jsonl: it has more than") || !strings.Contains(readme, "countersign audit export --thread 'slack:T1:C1:1700000000.0001'") {
				t.Error(readme)
			}
			for name, text := range files {
				if strings.HasPrefix(name, "outputs/") && text != "" && !strings.HasPrefix(name, "outputs/out-3f2a") && !strings.HasSuffix(text, cutNote) {
					t.Errorf("%s does not say that it is cut", name)
				}
				if strings.HasSuffix(name, ".cast") && !strings.HasSuffix(text, "\"x\"]\n") && text != "" {
					t.Errorf("%s ends within a line", name)
				}
			}
		})
	}
}

// broken ends in the middle.
func broken() io.ReadCloser {
	return io.NopCloser(io.MultiReader(strings.NewReader("first\n"), iotest.ErrReader(errors.New("open /srv/secret/path: input/output error"))))
}

func TestWhatCannotBeReadIsNamedAndTheRestIsThere(t *testing.T) {
	_, inc, parts := whole(t)
	parts.Chain = func(context.Context, io.Writer, int, func(string) string) error {
		return errors.New("/srv/secret/path: damaged")
	}
	parts.Output = func(string) (io.ReadCloser, error) { return broken(), nil }
	parts.Recordings = []Recording{{"a", func() (io.ReadCloser, error) { return broken(), nil }}, {"gone", func() (io.ReadCloser, error) { return nil, errors.New("/srv/secret/path") }}, {"a", opens("")}, {"none", nil}}
	_, files := unpack(t, export(t, inc, parts))
	readme := files["README.txt"]
	for _, part := range []string{
		"audit.jsonl: the record of decisions cannot be exported", "outputs/out-3f2a9c1b.txt: its end, which cannot be read", "recordings/a.cast: its end, which cannot be read",
		"recordings/gone.cast: it is not kept any more", `a recording with the name "a"`, `a recording with the name "none"`,
	} {
		if !strings.Contains(readme, part) {
			t.Errorf("README.txt does not say %q:\n%s", part, readme)
		}
	}
	if strings.Contains(readme, "/srv/secret") {
		t.Error("README.txt names a path of the machine")
	}
	if files["outputs/out-3f2a9c1b.txt"] != "first\n"+cutNote || files["recordings/a.cast"] != "first\n" {
		t.Errorf("%q", files)
	}
}

func TestANameNeverLeadsOutOfTheArchive(t *testing.T) {
	_, inc, parts := whole(t)
	names := []string{"../../etc/passwd", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "a b", "C:x", strings.Repeat("x", 300), ".hidden"}
	parts.Recordings = nil
	for i, n := range names {
		parts.Recordings = append(parts.Recordings, Recording{n, opens("x")})
		inc.Entries = append(inc.Entries, history.Entry{Kind: history.KindResult, Result: &history.Result{Call: fmt.Sprint("n", i), Output: n}})
	}
	got, _ := unpack(t, export(t, inc, parts))
	if len(got) != 8 {
		t.Errorf("%q", got)
	}
}

// full is a disk that takes n bytes.
type full struct{ n int }

func (f *full) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestAWriterThatRefusesAndAContextThatEndsAreErrors(t *testing.T) {
	needstest.Long(t)
	_, inc, parts := whole(t)
	size := len(export(t, inc, parts))
	for n := 0; n < size; n += 200 {
		if err := Export(context.Background(), &full{n}, inc, parts); !errors.Is(err, io.ErrShortWrite) {
			t.Fatalf("a disk with %d bytes: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	parts.Output = func(string) (io.ReadCloser, error) { cancel(); return endless{"x\n"}, nil }
	if err := Export(ctx, io.Discard, inc, parts); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Export(ctx, io.Discard, inc, parts); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAnArchiveOfNothing(t *testing.T) {
	_, asked := unpack(t, export(t, Incident{Thread: "web:1", Entries: []history.Entry{{Kind: history.KindResult, Result: &history.Result{Output: "out-1"}}}}, Parts{}))
	if !strings.Contains(asked["README.txt"], "outputs/: they were not asked for") {
		t.Error(asked["README.txt"])
	}
	names, files := unpack(t, export(t, Incident{Thread: "web:1"}, Parts{}))
	if len(names) != 6 || strings.Count(files["commands.csv"], "\n") != 1 || files["transcript.jsonl"] != "" {
		t.Errorf("%q", files)
	}
}

func FuzzRecordedEvent(f *testing.F) {
	for _, s := range []string{cast, `[1e400, "o", "x"]`, `{"a":{"password":"` + named + `"}}`, "[[[[", `"\ud800"`, planted, `[0.1, "o", "` + planted + `"]`} {
		f.Add(s)
	}
	e := &exporter{writer: writer{redact.New(planted)}}
	f.Fuzz(func(t *testing.T, line string) {
		line, _, _ = strings.Cut(line, "\n")
		got := string(e.event([]byte(line)))
		if !strings.HasSuffix(got, "\n") || strings.Count(got, "\n") != 1 && !strings.Contains(line, "\n") {
			t.Errorf("%q is not one line: %q", line, got)
		}
		if strings.Contains(got, planted) {
			t.Errorf("%q has the secret: %q", line, got)
		}
		if json.Valid([]byte(line)) && !json.Valid([]byte(got)) {
			t.Errorf("%q is JSON, and %q is not", line, got)
		}
	})
}
