// Package cosign is what a log, its witnesses and whoever verifies have in common: checkpoints
// (https://c2sp.org/tlog-checkpoint), the signatures of the log (https://c2sp.org/signed-note), and
// those of witnesses with their time (https://c2sp.org/tlog-cosignature).
package cosign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// The kinds of keys, as the first byte of a key.
const (
	KindLog     = 1 // Ed25519
	KindWitness = 4 // Ed25519 with a time
)

// Checkpoint says how many entries a log has, and the root of their tree.
type Checkpoint struct {
	Origin string // the log's name
	tlog.Tree
}

// Text is the checkpoint as it is signed.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.N, base64.StdEncoding.EncodeToString(c.Hash[:]))
}

// Parse reads the text of a checkpoint, as Text writes it.
func Parse(text string) (Checkpoint, error) {
	parts := strings.Split(text, "\n")
	bad := errors.New("this is no checkpoint")
	if len(parts) != 4 || parts[3] != "" || parts[0] == "" {
		return Checkpoint{}, bad
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || n < 0 {
		return Checkpoint{}, bad
	}
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(raw) != tlog.HashSize {
		return Checkpoint{}, bad
	}
	c := Checkpoint{Origin: parts[0], Tree: tlog.Tree{N: n}}
	copy(c.Hash[:], raw)
	if c.Text() != text {
		return Checkpoint{}, bad
	}
	return c, nil
}

// KeyHash names a key in the text by which it is verified, and in its signatures.
func KeyHash(name string, kind byte, public []byte) uint32 {
	sum := sha256.Sum256(append([]byte(name+"\n"+string(kind)), public...))
	return binary.BigEndian.Uint32(sum[:])
}

// VerifierText is the text by which others verify a key.
func VerifierText(name string, kind byte, public []byte) string {
	return fmt.Sprintf("%s+%08x+%s", name, KeyHash(name, kind, public), base64.StdEncoding.EncodeToString(append([]byte{kind}, public...)))
}

// Timed is what a witness signs.
func Timed(at uint64, msg []byte) []byte {
	return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, msg)
}

// verifier verifies a witness.
type verifier struct {
	name   string
	hash   uint32
	public ed25519.PublicKey
}

// Name implements note.Verifier.
func (v verifier) Name() string { return v.name }

// KeyHash implements note.Verifier.
func (v verifier) KeyHash() uint32 { return v.hash }

// Verify implements note.Verifier.
func (v verifier) Verify(msg, sig []byte) bool {
	return len(sig) == 8+ed25519.SignatureSize && ed25519.Verify(v.public, Timed(binary.BigEndian.Uint64(sig), msg), sig[8:])
}

// Verifier reads the text by which a log or a witness is verified. Of a log's key witness is false.
func Verifier(text string) (v note.Verifier, witness bool, err error) {
	text = strings.TrimSpace(text)
	name, rest, _ := strings.Cut(text, "+")
	hash, key, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || name == "" {
		return nil, false, fmt.Errorf("%q is no key of a log or a witness; it has a name, eight digits and a key, with plus signs between them", text)
	}
	if raw[0] != KindWitness {
		v, err = note.NewVerifier(text)
		return v, false, err
	}
	w := verifier{name, KeyHash(name, KindWitness, raw[1:]), raw[1:]}
	if hash != fmt.Sprintf("%08x", w.hash) {
		return nil, false, fmt.Errorf("the digits in %q are not those of its key; copy it once more", text)
	}
	return w, true, nil
}

// LogKey is the key of a log: it verifies checkpoints, and what else the log signs.
type LogKey struct {
	note.Verifier
	Public ed25519.PublicKey
}

// ParseLog reads the text by which a log is verified.
func ParseLog(text string) (LogKey, error) {
	text = strings.TrimSpace(text)
	v, witness, err := Verifier(text)
	if err != nil {
		return LogKey{}, err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(text, "+", 3)[2])
	if witness || err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != KindLog {
		return LogKey{}, fmt.Errorf("%s isn't the key of a log", v.Name())
	}
	return LogKey{v, raw[1:]}, nil
}

// At is when a witness signed.
func At(s note.Signature) time.Time {
	raw, err := base64.StdEncoding.DecodeString(s.Base64)
	if err != nil || len(raw) < 12 {
		return time.Time{}
	}
	return time.Unix(int64(binary.BigEndian.Uint64(raw[4:])), 0).UTC() //nolint:gosec // of a signature that was verified
}
