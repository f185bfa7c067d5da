// Package register reads what a device answers when it makes a passkey, and says what a registered one is.
package register

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"

	"countersign/approvals/passkey"
)

// Key is a registered passkey.
type Key struct {
	ID         string   `json:"id"`     // as the device names it, base64url
	Owner      string   `json:"owner"`  // who has it, in the console
	Name       string   `json:"name"`   // what they call it
	Public     []byte   `json:"public"` // COSE
	Count      uint32   `json:"count"`  // of its last signature; 0 is a device that doesn't count
	Transports []string `json:"transports,omitempty"`
	// Attestation is what the device said of its make: the format, and the object if there was one.
	Attestation string    `json:"attestation,omitempty"`
	Object      []byte    `json:"object,omitempty"`
	Added       time.Time `json:"added"`
	// By is who confirmed it: another person, or the operator by a link. "" is nobody yet.
	By   string    `json:"by,omitempty"`
	Used time.Time `json:"used,omitzero"`
}

// Confirmed reports whether the key counts.
func (k Key) Confirmed() bool { return k.By != "" }

// Digest names exactly this key.
func (k Key) Digest() string { return passkey.Digest(k.ID, k.Owner, k.Public) }

// Read reads a device's answer to the challenge of a registration. The key has neither owner
// nor name yet.
func Read(s passkey.Site, challenge, response []byte) (Key, error) {
	return read(s, challenge, response, true)
}

// read is Read. verified asks that the device checked who uses it, which only the
// specification's examples don't.
func read(s passkey.Site, challenge, response []byte, verified bool) (Key, error) {
	p, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return Key{}, passkey.ErrUnreadable
	}
	att := p.Response.AttestationObject
	if err := passkey.CheckClient(p.Response.CollectedClientData, protocol.CreateCeremony, challenge, s, att.AuthData.Flags, verified); err != nil {
		return Key{}, err
	}
	_, err = p.Verify(base64.RawURLEncoding.EncodeToString(challenge), s.ID, []string{s.Origin}, nil, nil, protocol.TopOriginDefaultVerificationMode, false, verified, true,
		nil, algorithms(), protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return Key{}, fmt.Errorf("this passkey can't be used (%w); register another one", err)
	}
	k := Key{
		ID: base64.RawURLEncoding.EncodeToString(p.RawID), Public: att.AuthData.AttData.CredentialPublicKey,
		Count: att.AuthData.Counter, Attestation: att.Format,
	}
	if att.Format != "none" {
		k.Object = p.Raw.AttestationResponse.AttestationObject
	}
	for _, t := range p.Response.Transports {
		k.Transports = append(k.Transports, string(t))
	}
	return k, nil
}

// algorithms are those of keys that may be registered, the most usual one first.
func algorithms() []protocol.CredentialParameter {
	var out []protocol.CredentialParameter
	for _, a := range []webauthncose.COSEAlgorithmIdentifier{webauthncose.AlgES256, webauthncose.AlgEdDSA, webauthncose.AlgES384, webauthncose.AlgES512, webauthncose.AlgRS256} {
		out = append(out, protocol.CredentialParameter{Type: protocol.PublicKeyCredentialType, Algorithm: a})
	}
	return out
}

// Algorithms are the numbers of the algorithms that Read takes, for the browser.
func Algorithms() []int {
	var out []int
	for _, a := range algorithms() {
		out = append(out, int(a.Algorithm))
	}
	return out
}
