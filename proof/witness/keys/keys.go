// Package keys makes the keys of logs and of witnesses, from their seeds. Who only verifies needs none.
package keys

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"countersign/proof/witness/cosign"
)

// Log makes the signer of a log from the seed of its key, and the text by which others verify it.
func Log(name string, seed []byte) (s note.Signer, verifier string, err error) {
	if len(seed) != ed25519.SeedSize {
		return nil, "", errors.New("a seed has 32 bytes")
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey) //nolint:forcetypeassert // it is one
	text := fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", name, cosign.KeyHash(name, cosign.KindLog, public), base64.StdEncoding.EncodeToString(append([]byte{cosign.KindLog}, seed...)))
	s, err = note.NewSigner(text)
	return s, cosign.VerifierText(name, cosign.KindLog, public), err
}

// Witness is the key of a witness.
type Witness struct {
	name    string
	public  ed25519.PublicKey
	private ed25519.PrivateKey
	now     func() time.Time
}

// NewWitness makes a witness of a name without blanks and plus signs from the seed of its key.
func NewWitness(name string, seed []byte, now func() time.Time) (*Witness, error) {
	if len(seed) != ed25519.SeedSize || name == "" || strings.ContainsAny(name, "+ \t\r\n") {
		return nil, errors.New("a witness has a name without blanks and plus signs, and a seed of 32 bytes")
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey) //nolint:forcetypeassert // it is one
	return &Witness{name: name, public: public, private: private, now: now}, nil
}

// Name implements note.Signer.
func (w *Witness) Name() string { return w.name }

// KeyHash implements note.Signer.
func (w *Witness) KeyHash() uint32 { return cosign.KeyHash(w.name, cosign.KindWitness, w.public) }

// Verifier is the text by which others verify the witness.
func (w *Witness) Verifier() string { return cosign.VerifierText(w.name, cosign.KindWitness, w.public) }

// Sign implements note.Signer.
func (w *Witness) Sign(msg []byte) ([]byte, error) {
	at := uint64(w.now().Unix()) //nolint:gosec // after 1970
	return append(binary.BigEndian.AppendUint64(nil, at), ed25519.Sign(w.private, cosign.Timed(at, msg))...), nil
}
