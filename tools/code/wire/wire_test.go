package wire

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzProtocol: nothing that comes over the pipe brings either side down or gets past
// its limits.
func FuzzProtocol(f *testing.F) {
	var b bytes.Buffer
	_ = WriteRequest(&b, Request{Language: "Go"}, []byte("package a"))
	f.Add(b.Bytes())
	f.Add([]byte("\x00\x00\x00\x3e" + `{"symbols":[{"kind":"x","name":"\u0000","line":-1,"end":1e3}]}`))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for range 100 {
			_, text, err := ReadRequest(r)
			if err != nil {
				break
			}
			if len(text) > MaxText {
				t.Fatal("a text is longer than it can be")
			}
		}
		p, err := ReadAnswer(bytes.NewReader(in), 10)
		if err != nil {
			return
		}
		for _, s := range p.Symbols {
			if s.Line < 1 || s.End < s.Line || s.End > 10 || len(s.Name) > MaxName+3 || strings.ContainsAny(s.Name+s.Kind+s.Signature+s.Parent, "\n\x1b") || !utf8.ValidString(s.Name) {
				t.Fatalf("%+v", s)
			}
		}
	})
}
