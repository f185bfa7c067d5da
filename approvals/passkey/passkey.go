// Package passkey makes and checks votes that people's own devices sign (WebAuthn Level 3,
// https://www.w3.org/TR/webauthn-3/): which keys a person has registered, what their device is
// asked to sign, and whether it did. It decides nothing and knows no request: the gate does.
package passkey

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
)

// What a person is asked to sign.
const (
	ForApprove = "approve"
	ForGlass   = "break-glass"
	ForKey     = "confirm a passkey" // of somebody else
)

// Site is the console's address as browsers name it: keys are registered for its host, and only
// its pages may ask for a signature.
type Site struct {
	ID     string `json:"id"`     // the host, without its port
	Origin string `json:"origin"` // scheme, host and port
}

// SiteOf is the site of an origin. Browsers have passkeys only where the address has a name and
// the way to it is safe, so the error is one sentence that says what to do.
func SiteOf(origin string) (Site, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return Site{}, errors.New("passkeys need the console's address; set web.origin")
	}
	host := u.Hostname()
	switch {
	case net.ParseIP(host) != nil:
		return Site{}, fmt.Errorf("browsers have no passkeys for an address without a name such as %s; set web.origin to one with a host name, or open the console at localhost", host)
	case u.Scheme != "https" && host != "localhost" && !strings.HasSuffix(host, ".localhost"):
		return Site{}, fmt.Errorf("browsers have passkeys over https only, and %s isn't; set up TLS and set web.origin to https", origin)
	}
	return Site{ID: host, Origin: strings.ToLower(u.Scheme + "://" + u.Host)}, nil
}

// Statement is what a device signs the hash of.
type Statement struct {
	Version int    `json:"v"`                 // 1
	For     string `json:"for"`               // one of the For constants
	Request string `json:"request,omitempty"` // the request, or the id of the key that is confirmed
	Digest  string `json:"digest,omitempty"`  // of the action, or of the key
	Policy  string `json:"policy,omitempty"`  // the hash of the policy by which it was shown
	Shown   string `json:"shown,omitempty"`   // SHA-256 of the card that was shown, as hex
	Voter   string `json:"voter"`             // whose vote it is, on the network of the thread
	Owner   string `json:"owner"`             // whose key signs, in the console
	Reason  string `json:"reason,omitempty"`
	// Nonce is random, so that no signature is good twice.
	Nonce string    `json:"nonce"`
	At    time.Time `json:"at"` // when it was asked for, as the bot says
	// Fresh is the signer's nonce, which says when it was asked for by the signer's clock.
	Fresh string `json:"fresh,omitempty"`
}

// Encode is the statement as it is signed and kept.
func (s Statement) Encode() []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of strings and a time in this century
	}
	return raw
}

// Decode reads what Encode wrote.
func Decode(raw []byte) (s Statement, err error) {
	if err := json.Unmarshal(raw, &s); err != nil || s.Version != 1 {
		return Statement{}, errors.New("what was signed is of another version")
	}
	return s, nil
}

// Challenge is what the device is given for a statement. The prefix keeps it apart from whatever
// else is signed for this site.
func Challenge(statement []byte) []byte {
	sum := sha256.Sum256(append([]byte("countersign passkey v1\x00"), statement...))
	return sum[:]
}

// Digits is how many digits of a digest people compare.
const Digits = 20

// Digest names exactly this key of this owner.
func Digest(id, owner string, public []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id+"\x00"+owner+"\x00"+string(public))))
}

// Proof is a vote that was signed, whole: everything that shows it to somebody who trusts neither
// the bot nor its store.
type Proof struct {
	Statement []byte          `json:"statement"`          // as it was signed
	Response  json.RawMessage `json:"response"`           // as the browser gave it
	Shown     json.RawMessage `json:"shown,omitempty"`    // the card
	Site      Site            `json:"site"`               // for which the key is
	KeyID     string          `json:"key"`                // the key's id
	Public    []byte          `json:"public"`             // its public part, COSE
	KeyOwner  string          `json:"owner"`              // whose it was
	KeyBy     string          `json:"key_by,omitempty"`   // who had confirmed it
	KeyAdded  time.Time       `json:"key_added,omitzero"` // when it was registered
}

// Errors of a signature that doesn't count, each one sentence for the person.
var (
	ErrUnreadable = errors.New("the browser's answer can't be read; try again")
	ErrOtherAsk   = errors.New("this signature is for something else; press the button again")
	ErrOrigin     = errors.New("this signature was made on another page than the one that asked for it")
	ErrUnverified = errors.New("your device didn't check that it's you; use a passkey with a PIN, a fingerprint or a face")
	ErrSignature  = errors.New("the signature isn't that of this passkey")
)

// CheckClient is what the answers of both ceremonies are checked for beyond the library's own checks,
// so that each has its sentence.
func CheckClient(c protocol.CollectedClientData, kind protocol.CeremonyType, challenge []byte, s Site, flags protocol.AuthenticatorFlags, verified bool) error {
	switch {
	case c.Type != kind, c.Challenge != base64.RawURLEncoding.EncodeToString(challenge):
		return ErrOtherAsk
	case !strings.EqualFold(c.Origin, s.Origin), c.TopOrigin != "":
		return ErrOrigin
	case !flags.HasUserPresent(), verified && !flags.HasUserVerified():
		return ErrUnverified
	}
	return nil
}

// Check reports whether a proof's signature is that of its key over its statement, and returns
// the key's counter. Who signed when, and whether the key counts, is not its matter.
func (p Proof) Check() (count uint32, err error) {
	return Verify(p.Site, Challenge(p.Statement), p.KeyID, p.Public, p.Response, true)
}

// Verify reports whether a device has signed a challenge with a key. verified asks that it checked who uses
// it, which only the specification's examples don't.
func Verify(s Site, challenge []byte, id string, public, response []byte, verified bool) (count uint32, err error) {
	r, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return 0, ErrUnreadable
	}
	if err := CheckClient(r.Response.CollectedClientData, protocol.AssertCeremony, challenge, s, r.Response.AuthenticatorData.Flags, verified); err != nil {
		return 0, err
	}
	if base64.RawURLEncoding.EncodeToString(r.RawID) != id || r.Verify(base64.RawURLEncoding.EncodeToString(challenge), s.ID, "", []string{s.Origin}, nil, nil,
		protocol.TopOriginDefaultVerificationMode, false, verified, true, public, protocol.SignaturePolicy{}) != nil {
		return 0, ErrSignature
	}
	return r.Response.AuthenticatorData.Counter, nil
}

// ValidKey reports whether a public part is a key that a signature can be checked with.
func ValidKey(public []byte) bool {
	_, err := webauthncose.ParsePublicKey(public)
	return err == nil
}

// KeyOf is the id of the key that a browser's answer names, "" if it can't be read.
func KeyOf(response []byte) string {
	r, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(r.RawID)
}
