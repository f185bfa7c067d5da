// Package ask is what a log says to a witness (https://c2sp.org/tlog-witness).
package ask

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"countersign/proof/witness/cosign"
)

// Encode is the body of a request to a witness (https://c2sp.org/tlog-witness): the size of which it
// has signed the root, the proof that the checkpoint grew from there, and the checkpoint.
func Encode(old int64, proof tlog.TreeProof, checkpoint []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "old %d\n", old)
	for _, h := range proof {
		fmt.Fprintf(&b, "%s\n", base64.StdEncoding.EncodeToString(h[:]))
	}
	b.WriteString("\n")
	b.Write(checkpoint)
	return b.Bytes()
}

// maxProof bounds the hashes of a proof: those of a log with 2^63 entries.
const maxProof = 63

// Decode reads what Encode wrote.
func Decode(body []byte) (old int64, proof tlog.TreeProof, checkpoint []byte, err error) {
	bad := errors.New("this is no request to a witness")
	head, checkpoint, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	size, isOld := strings.CutPrefix(lines[0], "old ")
	if old, err = strconv.ParseInt(size, 10, 64); !ok || !isOld || err != nil || old < 0 || len(lines) > 1+maxProof {
		return 0, nil, nil, bad
	}
	for _, l := range lines[1:] {
		raw, err := base64.StdEncoding.DecodeString(l)
		if err != nil || len(raw) != tlog.HashSize {
			return 0, nil, nil, bad
		}
		proof = append(proof, tlog.Hash(raw))
	}
	return old, proof, checkpoint, nil
}

// Open reads a checkpoint with its signatures: it must be signed by the log. It returns the times at
// which witnesses signed it, by their names.
func Open(text []byte, log note.Verifier, witnesses ...note.Verifier) (cosign.Checkpoint, map[string]time.Time, error) {
	n, err := note.Open(text, note.VerifierList(append(witnesses, log)...))
	if err != nil {
		return cosign.Checkpoint{}, nil, errors.New("the checkpoint isn't signed by the log that you named")
	}
	c, err := cosign.Parse(n.Text)
	if err != nil {
		return c, nil, err
	}
	signed, seen := false, map[string]time.Time{}
	for _, s := range n.Sigs {
		if s.Name == log.Name() && s.Hash == log.KeyHash() {
			signed = true
			continue
		}
		seen[s.Name] = cosign.At(s)
	}
	if !signed || c.Origin != log.Name() {
		return c, nil, errors.New("the checkpoint isn't signed by the log that you named")
	}
	return c, seen, nil
}
