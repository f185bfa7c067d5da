package record

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

const goodHeader = `{"version":3,"term":{"cols":80,"rows":24}}` + "\n"

func TestReadingToleratesATornTail(t *testing.T) {
	good := goodHeader + `[0.5,"o","a"]` + "\n# a comment\n\n" + `[0.25,"m","b"]` + "\n"
	for name, tc := range map[string]struct {
		tail string
		torn bool
	}{
		"nothing":                  {"", false},
		"half an event":            {`[1,"o","x`, true},
		"an event without its end": {`[1,"o","x"]`, true},
		"zeros":                    {"\x00\x00\x00\x00", true},
		"a spoilt last line":       {"\x00\x00\x00]\n", true},
		"a comment":                {"# the end\n", false},
	} {
		_, events, torn := play(t, []byte(good+tc.tail))
		if len(events) != 2 || torn != tc.torn || events[1].At != 750*time.Millisecond {
			t.Errorf("%s: %v, torn %v", name, events, torn)
		}
	}
}

func TestWhatIsNoRecording(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                 "",
		"a header without an end": strings.TrimSpace(goodHeader),
		"version 2":               `{"version":2,"width":80,"height":24}` + "\n",
		"no size":                 `{"version":3,"term":{}}` + "\n",
		"no JSON":                 "hello\n",
		"a list":                  "[]\n",
		"a long header":           strings.Repeat("x", 2<<20) + "\n",
	} {
		if _, err := NewReader(strings.NewReader(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, line := range map[string]string{
		"words":              "hello",
		"an object":          "{}",
		"two fields":         `[1,"o"]`,
		"four fields":        `[1,"o","x",1]`,
		"a negative time":    `[-1,"o","x"]`,
		"an endless time":    `[1e300,"o","x"]`,
		"a time that is too": `[1e10,"o","x"]`,
		"no time":            `[null,"o","x"]`,
		"no text":            `[1,"o",null]`,
		"a number as text":   `[1,"o",7]`,
		"a very long line":   `[1,"o","` + strings.Repeat("x", 2<<20) + `"]`,
	} {
		r, err := NewReader(strings.NewReader(goodHeader + line + "\n" + `[1,"o","x"]` + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if e, err := r.Next(); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: %v, %v", name, e, err)
			}
		}
	}
}

func TestAFailingDiskIsNoFormatError(t *testing.T) {
	boom := errors.New("boom")
	r, err := NewReader(io.MultiReader(strings.NewReader(goodHeader), failing{boom}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, boom) || errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzReader(f *testing.F) {
	f.Add([]byte(goodHeader + `[0.5,"o","a"]` + "\n" + `[1,"r","90x30"]` + "\n" + `[0,"x","0"]`))
	f.Add([]byte(goodHeader + "#\n\n[1e-9,\"\",\"\\ud800\"]\n"))
	f.Add([]byte(`{"version":3,"term":{"cols":80,"rows":24},"tags":["session:a","pane:b"],"timestamp":-1}` + "\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := NewReader(bytes.NewReader(raw))
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		var last time.Duration
		var events []Event
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Fatal(err)
				}
				return
			}
			if e.At < last || e.At > maxTime {
				t.Fatalf("the time goes from %s to %s", last, e.At)
			}
			last = e.At
			events = append(events, e)
		}
		if r.Offset() > int64(len(raw)) || raw[r.Offset()-1] != '\n' {
			t.Fatalf("the last good line ends at %d of %d", r.Offset(), len(raw))
		}
		// What was read reads the same up to there, and what we write of it too.
		_, again, torn := play(t, raw[:r.Offset()])
		if torn || !slices.Equal(again, events) {
			t.Fatalf("%v, then %v", events, again)
		}
		own := []byte(goodHeader)
		last = 0
		for _, e := range events {
			if e.Code != Output && e.Code != Mark {
				continue
			}
			var line []byte
			line, last = e.encode(last)
			own = append(own, line...)
		}
		if _, back, torn := play(t, own); torn || shown(back) != shown(events) {
			t.Fatalf("%q became %q", shown(events), shown(back))
		}
	})
}

func TestListingAndPruning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		if got, err := List(o.Dir, Filter{}); err != nil || got != nil {
			t.Errorf("no directory: %v, %v", got, err)
		}
		if n, err := Prune(o.Dir, time.Now(), nil); err != nil || n != 0 {
			t.Errorf("no directory: %v, %v", n, err)
		}
		var ids []string
		for i, pane := range []string{"shared", "logs", "shared"} {
			o.Pane = pane
			r := open(t, o)
			r.Output([]byte(strings.Repeat("long line ", 100*i)))
			if i == 1 {
				r.Exit(1)
			}
			shut(t, r)
			ids = append(ids, r.ID())
			at := time.Now().Add(90 * time.Second)
			if err := os.Chtimes(filepath.Join(o.Dir, r.ID()+suffix), at, at); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		for name, text := range map[string]string{"notes.txt": "x", "x.cast": goodHeader, "a.b.20000101T000000Z.cast": "broken"} {
			if err := os.WriteFile(filepath.Join(o.Dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("/etc/passwd", filepath.Join(o.Dir, "l.l.20000101T000000Z.cast")); err != nil {
			t.Fatal(err)
		}
		got, err := List(o.Dir, Filter{})
		if err != nil || len(got) != 3 || got[0].ID != ids[2] || got[2].ID != ids[0] {
			t.Fatalf("%+v, %v", got, err)
		}
		if i := got[1]; i.Session != o.Session || i.Pane != "logs" || !i.Ended || got[0].Ended || i.Duration != 90*time.Second || i.Bytes < 100 || !i.Started.Equal(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)) {
			t.Errorf("%+v", i)
		}
		if got, _ := List(o.Dir, Filter{Session: o.Session, Pane: "shared"}); len(got) != 2 {
			t.Errorf("of one pane: %+v", got)
		}
		if got, _ := List(o.Dir, Filter{Session: "another"}); len(got) != 0 {
			t.Errorf("of another session: %+v", got)
		}
		for _, id := range []string{"", "..", "../x", "x", "a.b.20000101T000000Z/../x", "l.l.20000101T000000Z", "c.c.20000101T000000Z"} {
			if f, err := OpenFile(o.Dir, id); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %v, %v", id, f, err)
			}
		}
		n, err := Prune(o.Dir, time.Now().Add(-time.Hour), func(id string) bool { return id == ids[0] })
		if err != nil || n != 1 {
			t.Errorf("%d removed, %v", n, err)
		}
		if got, _ := List(o.Dir, Filter{}); len(got) != 2 || got[0].ID != ids[2] || got[1].ID != ids[0] {
			t.Errorf("%+v", got)
		}
		if _, err := os.Stat(filepath.Join(o.Dir, "notes.txt")); err != nil {
			t.Error(err)
		}
	})
}
