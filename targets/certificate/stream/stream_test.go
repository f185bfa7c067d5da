package stream_test

import (
	"bytes"
	"testing"

	"countersign/targets/certificate/stream"
)

// FuzzReadChunk: a host can't make the bot read more than a chunk.
func FuzzReadChunk(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bytes.NewReader(raw)
		buf := make([]byte, stream.MaxChunk)
		for {
			s, b, err := stream.ReadChunk(r, buf)
			if err != nil {
				return
			}
			if s < stream.Out || s > stream.Tell || len(b) > stream.MaxChunk {
				t.Fatalf("%d %d", s, len(b))
			}
		}
	})
}
