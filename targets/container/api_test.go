package container

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/moby/moby/api/pkg/stdcopy"
)

// frame is one piece of a stream.
func frame(kind byte, text string) string {
	n := len(text)
	return string([]byte{kind, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + text
}

func TestStreamsAreTakenApart(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 10_000)
	for _, tt := range []struct {
		name, in, out, errOut string
		err                   string
	}{
		{name: "nothing"},
		{name: "both streams", in: frame(1, "a") + frame(2, "b") + frame(1, "c"), out: "ac", errOut: "b"},
		{name: "an empty frame", in: frame(1, "") + frame(1, "x"), out: "x"},
		{name: "input that is echoed is output", in: frame(0, "x"), out: "x"},
		{name: "a frame larger than any buffer", in: frame(1, big) + frame(2, "e"), out: big, errOut: "e"},
		{name: "cut inside a frame", in: frame(1, "abc")[:10], out: "ab", err: "unexpected EOF"},
		{name: "cut inside a head", in: frame(1, "abc") + "\x01\x00", out: "abc", err: "unexpected EOF"},
		{name: "no frame at all", in: "HTTP/1.1 500 Oh no", err: "sent no frame"},
		{name: "a message of the engine", in: frame(1, "a") + frame(3, "it is broken\n"), out: "a", err: `says "it is broken"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
				"data with its end": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				var out, errOut bytes.Buffer
				err := demux(r, &out, &errOut)
				if out.String() != tt.out || errOut.String() != tt.errOut {
					t.Errorf("%s: %.80q %.80q", how, out.String(), errOut.String())
				}
				if (err == nil) != (tt.err == "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("%s: %v, want %q", how, err, tt.err)
				}
			}
		})
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestAWriterThatFailsDoesNotStopTheOtherStream(t *testing.T) {
	in := frame(1, "a") + frame(2, "b") + frame(1, "c") + frame(2, "d")
	var b bytes.Buffer
	if err := demux(strings.NewReader(in), failing{}, &b); err != nil || b.String() != "bd" {
		t.Errorf("%v %q", err, b.String())
	}
	b.Reset()
	if err := demux(strings.NewReader(in), &b, failing{}); err != nil || b.String() != "ac" {
		t.Errorf("%v %q", err, b.String())
	}
	if err := demux(strings.NewReader(in), nil, nil); err != nil {
		t.Error(err)
	}
}

// FuzzDemux compares with the engine's own reader wherever that one is sure.
func FuzzDemux(f *testing.F) {
	f.Add([]byte(frame(1, "a") + frame(2, "b")))
	f.Add([]byte(frame(3, "x")))
	f.Add([]byte(frame(1, "abc")[:9]))
	f.Fuzz(func(t *testing.T, in []byte) {
		for i := 0; i+8 <= len(in); { // it would make a buffer as large as a frame claims to be
			n := int(in[i+4])<<24 | int(in[i+5])<<16 | int(in[i+6])<<8 | int(in[i+7])
			if n > 1<<20 {
				t.Skip()
			}
			i += 8 + n
		}
		var out, errOut, out2, errOut2 bytes.Buffer
		err := demux(bytes.NewReader(in), &out, &errOut)
		if err != nil {
			return
		}
		if _, err := stdcopy.StdCopy(&out2, &errOut2, bytes.NewReader(in)); err != nil {
			t.Fatalf("the engine's reader refuses what ours took: %v", err)
		}
		if out.String() != out2.String() || errOut.String() != errOut2.String() {
			t.Errorf("%q %q, want %q %q", out.String(), errOut.String(), out2.String(), errOut2.String())
		}
	})
}
