// Package ask is what a log says to a witness (https://c2sp.org/tlog-witness).
package ask

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
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
