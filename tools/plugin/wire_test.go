package plugin

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/tools"
	"countersign/tools/foreign"
)

// split is what lineReader must give, the slow way.
func split(b []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	parts := bytes.Split(b, []byte("\n"))
	if len(parts[len(parts)-1]) == 0 {
		parts = parts[:len(parts)-1]
	}
	for i := range parts {
		parts[i] = bytes.TrimSuffix(parts[i], []byte("\r"))
	}
	return parts
}

func readAll(t interface{ Fatalf(string, ...any) }, r io.Reader, most int) (lines [][]byte, long []bool) {
	l := newLineReader(r, most)
	for {
		line, over, err := l.next()
		if errors.Is(err, io.EOF) {
			return lines, long
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		lines, long = append(lines, slices.Clone(line)), append(long, over)
	}
}

func checkLines(t interface{ Fatalf(string, ...any) }, input []byte, r io.Reader, most int) {
	lines, long := readAll(t, r, most)
	want := split(input)
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	keep := min(keptOfLongLine, most/2)
	for i, w := range want {
		if !long[i] {
			if !bytes.Equal(lines[i], w) || len(w) > most {
				t.Fatalf("line %d is %q, want %q", i, lines[i], w)
			}
			continue
		}
		if len(w) <= most-1 || len(lines[i]) > 2*keep+2 || !bytes.HasPrefix(w, lines[i][:keep]) || !bytes.HasSuffix(w, lines[i][len(lines[i])-keep:]) {
			t.Fatalf("line %d of %d bytes is kept as %q", i, len(w), lines[i])
		}
	}
}

func TestLinesAreTheSameHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		input := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"\n", "\r\n", "\r", "a", "bc", strings.Repeat("x", 15), strings.Repeat("yz", 40), "ü"}), 0, 40).Draw(t, "parts"), ""))
		most := rapid.SampledFrom([]int{16, 20, 64, 1000}).Draw(t, "most")
		checkLines(t, input, bytes.NewReader(input), most)
		checkLines(t, input, iotest.OneByteReader(bytes.NewReader(input)), most)
		checkLines(t, input, iotest.HalfReader(iotest.DataErrReader(bytes.NewReader(input))), most)
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"type\":\"init\"}\n\r\nx"), 16)
	f.Add([]byte(strings.Repeat("x", 100)+"\ny"), 20)
	f.Add([]byte("\rxxxxxxxxxxxxxxx\r\r\n"), 16) // as long as allowed, and one more "\r"
	f.Add([]byte("xxxxxxxxxxxxxxxx\r\n"), 16)    // its end comes in a part of its own
	f.Fuzz(func(t *testing.T, input []byte, most int) {
		checkLines(t, input, bytes.NewReader(input), 16+(most&0xff))
	})
}

// FuzzMessages feeds foreign lines to everything that reads them.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(actInit))
	f.Add([]byte(`{"type":"result","call_id":"call-1","content":[{"type":"text","text":"a"},{"type":"image","data":"aGk="}],"is_error":true}`))
	f.Add([]byte(`{"type":"init","tools":[{"name":"a","parameters":{"type":"object","$defs":{"b":{"$ref":"#/$defs/b"}}}}],"features":["cancel"],"protocol":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok := parse(line)
		if !ok {
			return
		}
		_, _ = m.features()
		_ = m.version()
		if m.Type == typeInit {
			all, _, _ := parseOffers("p", m)
			for _, o := range all {
				if tools.Guidance(o.description) != nil || foreign.Clean(o.description) != o.description || !foreign.IsToolName(o.name) || len(o.sum) != 64 {
					t.Errorf("an offer is %+v", o)
				}
			}
		}
		text, _, files, err := parseContent("act", m.answer().content)
		if err == nil && (!utf8.ValidString(text) || len(files) > maxFiles) {
			t.Errorf("text %q, %d files", text, len(files))
		}
		for _, x := range files {
			if x.name == "" || strings.ContainsAny(x.name, "/\\\n") || strings.HasPrefix(x.name, ".") || strings.ContainsAny(x.mime, "\n ;") {
				t.Errorf("a file is %q %q", x.name, x.mime)
			}
		}
	})
}
