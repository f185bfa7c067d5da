package remote

import (
	"bytes"
	"fmt"
	"testing"
)

// FuzzSplitter checks that what a program writes comes through exactly, whatever it
// is and however the stream is cut, and that nothing before the start does.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("noise\n"), []byte("hello\n"), uint8(3))
	f.Add([]byte("countersign"), []byte("countersigncountersign00"), uint8(1))
	f.Add([]byte{}, []byte("countersign0123456789abcdef01234567 e"), uint8(7))
	f.Fuzz(func(t *testing.T, noise, data []byte, step uint8) {
		const token = "countersign0123456789abcdef01234567"
		if bytes.Contains(noise, []byte(token)) || bytes.Contains(data, []byte(token)) {
			t.Skip()
		}
		var out bytes.Buffer
		var ended string
		s := &splitter{token: []byte(token), dst: &out, control: func(kind, arg string) bool {
			if kind == "e" {
				ended = arg
			}
			return kind == "b"
		}}
		stream := fmt.Appendf(nil, "%s%s b 12\n%s%s e 3\n", noise, token, data, token)
		for n := int(step) + 1; len(stream) > 0; {
			k := min(n, len(stream))
			if _, err := s.Write(stream[:k]); err != nil {
				t.Fatal(err)
			}
			stream = stream[k:]
		}
		s.flush()
		if !bytes.Equal(out.Bytes(), data) || ended != "3" {
			t.Fatalf("%q came out as %q, ended %q", data, out.Bytes(), ended)
		}
	})
}
