// Package register reads what a device answers when it makes a passkey.
package register

import (
	"encoding/base64"
	"fmt"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"

	"countersign/approvals/passkey"
)

// Key reads a device's answer to the challenge of a registration. The key has neither owner
// nor name yet.
func Key(s passkey.Site, challenge, response []byte) (passkey.Key, error) {
	return key(s, challenge, response, true)
}

// key is Key. verified asks that the device checked who uses it, which only the
// specification's examples don't.
func key(s passkey.Site, challenge, response []byte, verified bool) (passkey.Key, error) {
	p, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return passkey.Key{}, passkey.ErrUnreadable
	}
	att := p.Response.AttestationObject
	if err := passkey.CheckClient(p.Response.CollectedClientData, protocol.CreateCeremony, challenge, s, att.AuthData.Flags, verified); err != nil {
		return passkey.Key{}, err
	}
	_, err = p.Verify(base64.RawURLEncoding.EncodeToString(challenge), s.ID, []string{s.Origin}, nil, nil, protocol.TopOriginDefaultVerificationMode, false, verified, true,
		nil, algorithms(), protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return passkey.Key{}, fmt.Errorf("this passkey can't be used (%w); register another one", err)
	}
	k := passkey.Key{
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

// Algorithms are the numbers of the algorithms that Key takes, for the browser.
func Algorithms() []int {
	var out []int
	for _, a := range algorithms() {
		out = append(out, int(a.Algorithm))
	}
	return out
}
