package record

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"countersign/internal/redact"
)

var update = flag.Bool("update", false, "write the golden files anew")

func same(s string) string { return s }

func options(t *testing.T, change ...func(*Options)) Options {
	t.Helper()
	o := Options{Dir: filepath.Join(t.TempDir(), "recordings"), Session: "ops-web-1", Pane: "shared", Cols: 100, Rows: 30, Redact: same}
	for _, f := range change {
		f(&o)
	}
	return o
}

func open(t *testing.T, o Options) *Recorder {
	t.Helper()
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func shut(t *testing.T, r *Recorder) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, o Options, id string) []byte {
	t.Helper()
	f, err := OpenFile(o.Dir, id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// play reads a whole recording.
func play(t fataler, raw []byte) (Header, []Event, bool) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var out []Event
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), out, r.Torn()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, raw)
		}
		out = append(out, e)
	}
}

// shown is all output of a recording.
func shown(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		if e.Code == Output {
			b.WriteString(e.Data)
		}
	}
	return b.String()
}

func marks(events []Event) []string {
	var out []string
	for _, e := range events {
		if e.Code == Mark {
			out = append(out, e.Data)
		}
	}
	return out
}

func TestARecordingLooksLikeThis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, func(o *Options) { o.Session, o.Pane = "ops/web 1", "%3" })
		r := open(t, o)
		r.Output([]byte("\x1b[32mdeploy@web-1\x1b[0m:~$ "))
		time.Sleep(time.Second)
		r.Marker("run: df -h / <approved by ann>\nsecond line")
		r.Output([]byte("df -h /\r\n"))
		time.Sleep(40 * time.Millisecond)
		r.Output([]byte("/dev/vda1 96% \xc3"))
		time.Sleep(40 * time.Millisecond)
		r.Output([]byte("\xa9t\xff\u2028\r\n"))
		time.Sleep(2 * time.Second)
		r.Resize(120, 40)
		r.Resize(0, 9)
		time.Sleep(1500 * time.Microsecond)
		r.Exit(3)
		r.Output([]byte("nobody sees this"))
		r.Marker("nor this")
		shut(t, r)
		shut(t, r)
		if want := "ops_web_1-"; !strings.HasPrefix(r.ID(), want) || !strings.HasSuffix(r.ID(), ".20000101T000000Z") {
			t.Errorf("the id is %s", r.ID())
		}
		got := contents(t, o, r.ID())
		golden := filepath.Join("testdata", "looks.cast")
		if *update {
			if err := os.WriteFile(golden, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the file is\n%s\nand not\n%s", got, want)
		}
	})
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	o := options(t)
	r := open(t, o)
	shut(t, r)
	for path, want := range map[string]fs.FileMode{o.Dir: 0o700 | fs.ModeDir, filepath.Join(o.Dir, r.ID()+suffix): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	if err := os.Chmod(o.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("a directory that others may enter: %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"nothing that redacts": func(o *Options) { o.Redact = nil },
		"no session":           func(o *Options) { o.Session = "" },
		"no pane":              func(o *Options) { o.Pane = "" },
		"a very long name":     func(o *Options) { o.Pane = strings.Repeat("x", 300) },
		"no directory":         func(o *Options) { o.Dir = "" },
		"hardly any room":      func(o *Options) { o.MaxBytes = 100 },
	} {
		o := options(t, change)
		if _, err := Open(o); err == nil || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesAreSafeAndDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"web-1", "web_1", "web.1", "web/1", "../../etc/passwd", "", ".", "..", "%3", "@3", "wéb", "web 1", "web\x001", strings.Repeat("a", 60), strings.Repeat("a", 61), strings.Repeat("a", 62), strings.Repeat("é", 128), "-rf"} {
		n := safeName(s)
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`).MatchString(n) {
			t.Errorf("%q is named %q", s, n)
		}
		if was, ok := seen[n]; ok {
			t.Errorf("%q and %q are both named %q", s, was, n)
		}
		seen[n] = s
	}
}

func TestTwoRecordingsOfOneMomentHaveTwoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		a, b := open(t, o), open(t, o)
		a.Output([]byte("a"))
		b.Output([]byte("b"))
		shut(t, a)
		shut(t, b)
		if a.ID() == b.ID() {
			t.Fatal(a.ID())
		}
		if _, events, _ := play(t, contents(t, o, b.ID())); shown(events) != "b" {
			t.Error(shown(events))
		}
	})
}

// What is played equals what was written, however it was cut.
func TestWhatIsPlayedIsWhatWasWritten(t *testing.T) {
	red := redact.New("hunter2hunter2")
	pieces := []string{"plain ", "é", "日本", "😀", "\x1b[31m", "\r\n", "\n", "\xff", "\xc3", "\xf0\x9f", "\x00", "\"", "\\", "<>&", "\u2028", strings.Repeat("long ", 900), "\x7f"}
	type step struct {
		text, mark string
		wait       time.Duration
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		o := options(t, func(o *Options) {
			o.Dir = dir
			if rapid.Bool().Draw(rt, "redacted") {
				o.Redact = red.Redact // nothing here is a secret
			}
		})
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(pieces)).Draw(rt, "text"), "")
		var steps []step
		var wantMarks []string
		for rest := text; rest != ""; {
			n := min(len(rest), rapid.SampledFrom([]int{1, 2, 3, 10, 5000, 70000}).Draw(rt, "n"))
			s := step{text: rest[:n], wait: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 100, 300, 1200}).Draw(rt, "ms")) * time.Millisecond}
			rest = rest[n:]
			if rapid.IntRange(0, 5).Draw(rt, "mark") == 0 {
				s.mark = fmt.Sprint("mark ", len(rest))
				wantMarks = append(wantMarks, s.mark)
			}
			steps = append(steps, s)
		}
		var raw []byte
		synctest.Test(t, func(t *testing.T) {
			r := open(t, o)
			for _, s := range steps {
				r.Output([]byte(s.text))
				if s.mark != "" {
					r.Marker(s.mark)
				}
				time.Sleep(s.wait)
			}
			shut(t, r)
			raw = contents(t, o, r.ID())
			_ = os.Remove(filepath.Join(dir, r.ID()+suffix))
		})
		_, events, torn := play(rt, raw)
		if got, want := shown(events), string([]rune(text)); got != want || torn {
			rt.Fatalf("played %q, written %q", got, want)
		}
		if got := marks(events); !slices.Equal(got, wantMarks) {
			rt.Fatalf("marks %q, not %q", got, wantMarks)
		}
	})
}

// The times of a burst stay what they were, though it is held back.
func TestHoldingBackKeepsTheTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		r := open(t, o)
		for i := range 25 {
			r.Output(fmt.Appendf(nil, "\r%d%%", i))
			if i == 7 {
				r.Marker("seven")
			}
			time.Sleep(100 * time.Millisecond)
		}
		shut(t, r)
		_, events, _ := play(t, contents(t, o, r.ID()))
		if len(events) != 26 {
			t.Fatalf("%d events: %v", len(events), events)
		}
		if events[7].Data != "\r7%" || events[8].Data != "seven" || events[9].Data != "\r8%" {
			t.Errorf("%v", events[7:10])
		}
		for i, e := range slices.Delete(events, 8, 9) {
			if e.At != time.Duration(i)*100*time.Millisecond {
				t.Errorf("%d came at %s", i, e.At)
			}
		}
	})
}

func TestAnUnfinishedLineIsLetGo(t *testing.T) {
	type piece struct {
		text string
		wait time.Duration
	}
	for name, tc := range map[string]struct {
		pieces []piece
		want   string
	}{
		"not before 250 ms of silence": {[]piece{{"prompt$ ", 240 * time.Millisecond}}, ""},
		"after 250 ms of silence":      {[]piece{{"prompt$ ", 260 * time.Millisecond}}, "prompt$ "},
		"not while it goes on":         {[]piece{{"a", 200 * time.Millisecond}, {"b", 200 * time.Millisecond}, {"c", 200 * time.Millisecond}}, ""},
		"after a second in all":        {[]piece{{"a", 200 * time.Millisecond}, {"b", 200 * time.Millisecond}, {"c", 200 * time.Millisecond}, {"d", 200 * time.Millisecond}, {"e", 201 * time.Millisecond}, {"f", 10 * time.Millisecond}}, "abcde"},
		"a new line has its own time":  {[]piece{{"a\n", 200 * time.Millisecond}, {"b\n", 200 * time.Millisecond}, {"c", 200 * time.Millisecond}, {"d", 200 * time.Millisecond}, {"e", 240 * time.Millisecond}}, "a\nb\n"},
		"half a character stays":       {[]piece{{"caf\xc3", 3 * time.Second}}, "caf"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(t)
				r := open(t, o)
				for _, p := range tc.pieces {
					r.Output([]byte(p.text))
					time.Sleep(p.wait)
				}
				synctest.Wait()
				_, events, _ := play(t, contents(t, o, r.ID()))
				if got := shown(events); got != tc.want {
					t.Errorf("%q is written, not %q", got, tc.want)
				}
				shut(t, r)
			})
		})
	}
}

func TestAFloodDoesNotWaitForTheClock(t *testing.T) {
	h := &holder{redact: same}
	long := strings.Repeat("x", 60<<10)
	if got := h.add(Event{Code: Output, Data: long}); len(got) > 0 {
		t.Errorf("%d events", len(got))
	}
	got := shown(h.add(Event{Code: Output, Data: long}))
	if len(got) < 100<<10 || len(h.text) > maxLine {
		t.Errorf("%d bytes went, %d stay", len(got), len(h.text))
	}
}

var secret = "s3cr3t-hunter2-value"

func TestNoSecretReachesTheDisk(t *testing.T) {
	red := redact.New(secret, "first line of it\nsecond line of it")
	key := "-----BEGIN PRIVATE KEY-----\r\n" + strings.Repeat("MIIEowIBAAKCAQEAsecretbody0123456789\r\n", 20) + "-----END PRIVATE KEY-----\r\n"
	for name, tc := range map[string]struct {
		text   string
		secret []string
		after  string // is still there
	}{
		"a value":                {"export X=1\r\n" + secret + "\r\nafter\r\n", []string{secret}, "after"},
		"a value in a long line": {strings.Repeat("word ", 2000) + secret + strings.Repeat(" word", 2000) + "\r\nafter\r\n", []string{secret}, "after"},
		"one without blanks":     {strings.Repeat("w", 9000) + secret + strings.Repeat("w", 9000) + "\r\nafter\r\n", []string{secret}, "after"},
		"one of two lines":       {"first line of it\nsecond line of it\nafter", []string{"second line"}, "after"},
		"a private key":          {"$ cat key\r\n" + key + "after\r\n", []string{"secretbody"}, "after"},
		"a password by its name": {"db_password = abcdefgh99\r\nafter", []string{"abcdefgh99"}, "after"},
		"a token at the end":     {"after ghp_" + strings.Repeat("a1B2", 9), []string{"a1B2a1B2"}, "after"},
	} {
		for _, n := range []int{1, 3, 7, 100, 4096, 1 << 20} {
			if n < 7 && len(tc.text) > 5000 {
				continue
			}
			t.Run(fmt.Sprint(name, " in pieces of ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := options(t, func(o *Options) { o.Redact = red.Redact })
					r := open(t, o)
					r.Marker("run: tool " + secret)
					for i := 0; i < len(tc.text); i += n {
						r.Output([]byte(tc.text[i:min(len(tc.text), i+n)]))
						if i%3 == 0 {
							r.Marker("between")
						}
					}
					synctest.Wait()
					shut(t, r)
					raw := contents(t, o, r.ID())
					_, events, _ := play(t, raw)
					got := shown(events)
					for _, s := range tc.secret {
						if strings.Contains(got, s) || bytes.Contains(raw, []byte(s)) {
							t.Errorf("%q is on the disk: %.300q", s, got)
						}
					}
					if !strings.Contains(got, "[redacted") || !strings.Contains(got, tc.after) || !strings.Contains(marks(events)[0], "[redacted") {
						t.Errorf("%.300q, %q", got, marks(events)[0])
					}
				})
			})
		}
	}
}

// A flood of one long line is cut where its length says, but not in a secret.
func TestAFloodIsNotCutInASecret(t *testing.T) {
	red := redact.New(secret)
	for k := range len(secret) + 1 {
		h := &holder{redact: red.Redact}
		events := h.add(Event{Code: Output, Data: strings.Repeat("w", maxHeld) + secret + strings.Repeat("v", maxLine-k)})
		if len(h.text) == 0 || len(h.text) > 2*maxLine {
			t.Errorf("%d: %d bytes stay", k, len(h.text))
		}
		got := shown(append(events, h.end()...))
		if strings.Contains(got, "s3") || strings.Contains(got, "lue") || !strings.Contains(got, "w[redacted:secret#") || !strings.HasSuffix(got, "]"+strings.Repeat("v", maxLine-k)) {
			t.Errorf("%d: %q", k, strings.Trim(got, "wv"))
		}
	}
}

// However output is cut, and whatever comes in between: no secret that came
// within the time for which output is held is on the disk.
func TestNoCutHidesASecret(t *testing.T) {
	red := redact.New(secret)
	key := "-----BEGIN PRIVATE KEY-----\r\n" + secret[2:] + "MIIEow\r\n-----END PRIVATE KEY-----\r\n"
	parts := []string{secret, "x", " ", "\r\n", "é", "password=", secret + "\n", key, strings.Repeat("w", 3000), strings.Repeat("word ", 1000), strings.Repeat("line\n", 5000), " AKIAIOSFODNN7EXAMPLE "}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(parts)).Draw(rt, "text"), "")
		h := &holder{redact: red.Redact}
		var events []Event
		for rest := text; rest != ""; {
			n := min(len(rest), rapid.SampledFrom([]int{1, 5, 17, 900, 20000}).Draw(rt, "n"))
			if len(rest) > 2000 {
				n = min(len(rest), max(n, 900))
			}
			events = append(events, h.add(Event{Code: Output, Data: rest[:n]})...)
			rest = rest[n:]
			if rapid.IntRange(0, 3).Draw(rt, "mark") == 0 {
				events = append(events, h.add(Event{Code: Resize, Data: "80x24"})...)
			}
		}
		events = append(events, h.end()...)
		got := shown(events)
		for _, s := range []string{secret, secret[:8], secret[2:], " AKIAIOSFODNN7EXAMPLE"} {
			if strings.Contains(got, s) {
				rt.Fatalf("%q is in %q", s, got)
			}
		}
		if len(text) > 0 && got == "" {
			rt.Fatal("all is gone")
		}
	})
}

// A piece that had to be let go is not joined by its rest.
func TestTheRestOfASecretThatCameLateIsCovered(t *testing.T) {
	red := redact.New(secret)
	key := "-----BEGIN PRIVATE KEY-----\r\nMIIEow0123456789\r\n"
	for name, tc := range map[string]struct{ first, then, gone, stays string }{
		"a value":                 {"x " + secret[:9], secret[9:] + " after\r\n", secret[9:], " after\r\n"},
		"a password after a name": {"password: ", "abcdefgh99\r\nafter", "abcdefgh99", "\r\nafter"},
		"a private key":           {key, "MIIBody0123\r\n-----END PRIVATE KEY-----\r\nafter", "MIIBody0123", "after"},
		"another secret follows":  {"x " + secret[:9], secret[9:] + " and " + secret + " after", secret[9:], " after"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(t, func(o *Options) { o.Redact = red.Redact })
				r := open(t, o)
				r.Output([]byte(tc.first))
				time.Sleep(5 * time.Second)
				r.Output([]byte(tc.then))
				shut(t, r)
				_, events, _ := play(t, contents(t, o, r.ID()))
				if got := shown(events); strings.Contains(got, tc.gone) || !strings.HasSuffix(got, tc.stays) || !strings.Contains(got, "[redacted") {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

func TestOrdinaryOutputOverTimeStaysAsItIs(t *testing.T) {
	red := redact.New(secret)
	synctest.Test(t, func(t *testing.T) {
		o := options(t, func(o *Options) { o.Redact = red.Redact })
		r := open(t, o)
		var want strings.Builder
		for i := range 400 {
			line := fmt.Sprintf("\x1b[32m%d\x1b[0m GET /token/refresh HTTP/1.1 200 %d\r\n", i, i*7)
			want.WriteString(line)
			r.Output([]byte(line[:10]))
			time.Sleep(300 * time.Millisecond)
			r.Output([]byte(line[10:]))
			time.Sleep(300 * time.Millisecond)
		}
		shut(t, r)
		if _, events, _ := play(t, contents(t, o, r.ID())); shown(events) != want.String() {
			t.Errorf("%.500q", shown(events))
		}
	})
}

func TestTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, func(o *Options) { o.MaxBytes = 8 << 10 })
		r := open(t, o)
		for i := range 50 {
			r.Output([]byte(strings.Repeat("y", 500) + "\n"))
			time.Sleep(time.Second)
			if i == 40 {
				r.Marker("after the cap")
				r.Resize(9, 9)
			}
		}
		shut(t, r)
		o.Resume = true
		r = open(t, o)
		r.Output([]byte("this neither"))
		time.Sleep(time.Second)
		r.Output([]byte("this neither"))
		for range 1000 {
			r.Marker(strings.Repeat("marker ", 20))
			time.Sleep(time.Millisecond)
		}
		r.Exit(0)
		shut(t, r)
		raw := contents(t, o, r.ID())
		if len(raw) > 8<<10 || len(raw) < 7<<10 {
			t.Errorf("the file has %d bytes", len(raw))
		}
		_, events, _ := play(t, raw)
		m := marks(events)
		if len(m) < 4 || m[0] != "The recording has reached its limit of 8192 bytes: output that comes later is not in it." || m[1] != "after the cap" || slices.Contains(m[1:], m[0]) {
			t.Errorf("%q", m)
		}
		if n := len(shown(events)); n < 5000 || n%501 != 0 {
			t.Errorf("%d bytes of output", n)
		}
		if last := events[len(events)-1]; last.Code != Exit || last.Data != "0" {
			t.Errorf("the last is %v", last)
		}
		if slices.ContainsFunc(events, func(e Event) bool { return e.Code == Resize }) {
			t.Error("a size after the cap")
		}
	})
}

func TestGoingOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		r := open(t, o)
		r.Output([]byte("one\r\n"))
		time.Sleep(2 * time.Second)
		r.Output([]byte("two\r\n"))
		shut(t, r)
		path := filepath.Join(o.Dir, r.ID()+suffix)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString(`[1.000, "o", "to`)
		_ = f.Close()
		time.Sleep(time.Minute)

		other := open(t, options(t, func(x *Options) { x.Dir, x.Pane, x.Resume = o.Dir, "other", true }))
		shut(t, other)
		if other.ID() == r.ID() {
			t.Error("another pane went on with it")
		}
		o.Resume, o.Cols = true, 120
		again := open(t, o)
		if again.ID() != r.ID() {
			t.Fatalf("%s, not %s", again.ID(), r.ID())
		}
		again.Output([]byte("three\r\n"))
		again.Exit(0)
		shut(t, again)
		_, events, torn := play(t, contents(t, o, r.ID()))
		want := []Event{
			{0, Output, "one\r\n"}, {2 * time.Second, Output, "two\r\n"},
			{62 * time.Second, Mark, "The recording goes on here: 1m0s were not recorded."}, {62 * time.Second, Resize, "120x30"},
			{62 * time.Second, Output, "three\r\n"}, {62 * time.Second, Exit, "0"},
		}
		if !slices.Equal(events, want) || torn {
			t.Errorf("%v", events)
		}
		time.Sleep(time.Second)
		next := open(t, o)
		shut(t, next)
		if next.ID() == r.ID() {
			t.Error("an ended one went on")
		}
	})
}

func TestOneThatCannotBeReadIsLeftAlone(t *testing.T) {
	for name, spoil := range map[string]string{"no header": "", "half a header": `{"version":3,"te`, "a bad line within": `{"version":3,"term":{"cols":80,"rows":24},"tags":["session:ops-web-1","pane:shared"]}` + "\nnonsense\n[1,\"o\",\"x\"]\n"} {
		t.Run(name, func(t *testing.T) {
			o := options(t, func(o *Options) { o.Resume = true })
			if err := os.Mkdir(o.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			id := "ops-web-1.shared.19990101T000000Z"
			if err := os.WriteFile(filepath.Join(o.Dir, id+suffix), []byte(spoil), 0o600); err != nil {
				t.Fatal(err)
			}
			r := open(t, o)
			r.Output([]byte("new"))
			shut(t, r)
			if r.ID() == id || string(contents(t, o, id)) != spoil {
				t.Errorf("%s, %q", r.ID(), contents(t, o, id))
			}
		})
	}
}

// disk is a file that can be slow and full.
type disk struct {
	sink
	mu    sync.Mutex
	block chan struct{}
	fail  bool
	some  int // bytes of a write that still go through
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	block, fail, some := d.block, d.fail, d.some
	d.mu.Unlock()
	if block != nil {
		<-block
	}
	if fail {
		n, _ := d.sink.Write(b[:min(some, len(b))])
		return n, errors.New("no space left")
	}
	return d.sink.Write(b)
}

func (d *disk) set(fail bool, some int, block chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.some, d.block = fail, some, block
}

func onDisk(t *testing.T, o Options) (*Recorder, *disk) {
	t.Helper()
	seed := open(t, o)
	shut(t, seed)
	f, err := os.OpenFile(filepath.Join(o.Dir, seed.ID()+suffix), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{sink: f}
	o.Buffer = cmp.Or(o.Buffer, defaultBuffer)
	if o.Log == nil {
		o.Log = quietLog()
	}
	return start(&writer{f: d, id: seed.ID(), max: 1 << 20, size: st.Size()}, o, nil), d
}

func TestASlowDiskCostsOutputAndSaysHowMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, func(o *Options) { o.Buffer = 1000 })
		r, d := onDisk(t, o)
		block := make(chan struct{})
		d.set(false, 0, block)
		r.Output([]byte("first\n"))
		time.Sleep(time.Second)
		for range 20 {
			r.Output([]byte(strings.Repeat("z", 99) + "\n"))
		}
		r.Marker("still in")
		close(block)
		time.Sleep(time.Second)
		r.Output([]byte("last\n"))
		shut(t, r)
		_, events, _ := play(t, contents(t, o, r.ID()))
		if got, want := shown(events), "first\n"+strings.Repeat(strings.Repeat("z", 99)+"\n", 10)+"last\n"; got != want {
			t.Errorf("%q", got)
		}
		if got := marks(events); !slices.Equal(got, []string{"1000 bytes of output are missing here: more came than could be written.", "still in"}) {
			t.Errorf("%q", got)
		}
	})
}

func TestAFullDiskLeavesNoHalfLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		r, d := onDisk(t, o)
		r.Output([]byte("first\n"))
		time.Sleep(time.Second)
		d.set(true, 5, nil)
		r.Output([]byte("second\n"))
		time.Sleep(time.Second)
		if _, _, torn := play(t, contents(t, o, r.ID())); torn {
			t.Error("half a line stays")
		}
		r.Output([]byte("third\n"))
		time.Sleep(time.Second)
		d.set(false, 0, nil)
		r.Output([]byte("fourth\n"))
		if err := r.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("Close says %v", err)
		}
		_, events, _ := play(t, contents(t, o, r.ID()))
		if got := shown(events); got != "first\nfourth\n" {
			t.Errorf("%q", got)
		}
		if got := marks(events); !slices.Equal(got, []string{"13 bytes of output are missing here: they could not be written."}) {
			t.Errorf("%q", got)
		}
	})
}

func TestManyWritersAtOnce(t *testing.T) {
	o := options(t)
	r := open(t, o)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				r.Output(fmt.Appendf(nil, "<%d.%d>", i, j))
				switch j % 20 {
				case 3:
					r.Marker("m")
				case 7:
					r.Resize(80+j, 24)
				}
			}
		})
	}
	all.Wait()
	r.Exit(0)
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() {
			r.Output([]byte("late"))
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	closers.Wait()
	_, events, _ := play(t, contents(t, o, r.ID()))
	text := shown(events)
	for i := range 8 {
		at := -1
		for j := range 200 {
			next := strings.Index(text, fmt.Sprintf("<%d.%d>", i, j))
			if next <= at {
				t.Fatalf("%d.%d is not in its place", i, j)
			}
			at = next
		}
	}
	if n := len(marks(events)); n != 80 || strings.Contains(text, "late") {
		t.Errorf("%d marks", n)
	}
}

func BenchmarkOutput(b *testing.B) {
	red := redact.New(secret)
	line := []byte("\x1b[32m2026-03-01T03:04:05Z\x1b[0m level=info msg=\"order accepted\" id=4711 took=12ms\r\n")
	h := &holder{redact: red.Redact}
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		h.add(Event{Code: Output, Data: string(line)})
	}
}
