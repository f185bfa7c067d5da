// Package passkeytest is a device with passkeys for tests: it makes keys and signs as an
// authenticator and a browser do together (WebAuthn Level 3, sections 5.8.1, 6.1 and 6.5).
package passkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
)

// Device has one passkey. The fields say what it does otherwise than it should.
type Device struct {
	Site, Origin string
	Count        uint32 // of the last signature; it counts up unless Frozen
	Frozen       bool
	Unverified   bool // it does not check who uses it

	key *ecdsa.PrivateKey
	id  []byte
}

// New returns a device with a new key for a site.
func New(site, origin string) *Device {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return &Device{Site: site, Origin: origin, key: key, id: id}
}

// ID is the key's id as browsers name it.
func (d *Device) ID() string { return b64(d.id) }

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (d *Device) client(kind string, challenge []byte) []byte {
	raw, err := json.Marshal(map[string]any{"type": kind, "challenge": b64(challenge), "origin": d.Origin, "crossOrigin": false})
	if err != nil {
		panic(err)
	}
	return raw
}

const (
	present, verified, hasKey = 1, 4, 64
)

func (d *Device) authData(flags byte) []byte {
	if d.Unverified {
		flags &^= verified
	}
	if !d.Frozen {
		d.Count++
	}
	site := sha256.Sum256([]byte(d.Site))
	return binary.BigEndian.AppendUint32(append(site[:], flags), d.Count)
}

// text and data are a short CBOR string of characters and of bytes.
func text(s string) []byte { return append([]byte{0x60 | byte(len(s))}, s...) }
func data(b []byte) []byte { return append([]byte{0x58, byte(len(b))}, b...) }

// Create answers a registration.
func (d *Device) Create(challenge []byte) json.RawMessage {
	point, err := d.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err)
	}
	cose := []byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21}
	cose = append(append(append(cose, data(point[1:33])...), 0x22), data(point[33:])...)
	auth := append(d.authData(present|verified|hasKey), make([]byte, 16)...)
	auth = append(append(binary.BigEndian.AppendUint16(auth, uint16(len(d.id))), d.id...), cose...)
	object := append([]byte{0xa3}, text("fmt")...)
	object = append(append(object, text("none")...), text("attStmt")...)
	object = append(append(append(object, 0xa0), text("authData")...), data(auth)...)
	return d.answer(map[string]any{"clientDataJSON": b64(d.client("webauthn.create", challenge)), "attestationObject": b64(object), "transports": []string{"internal"}})
}

// Sign answers a challenge.
func (d *Device) Sign(challenge []byte) json.RawMessage {
	auth, client := d.authData(present|verified), d.client("webauthn.get", challenge)
	sum := sha256.Sum256(client)
	sum = sha256.Sum256(append(append([]byte(nil), auth...), sum[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, d.key, sum[:])
	if err != nil {
		panic(err)
	}
	return d.answer(map[string]any{"clientDataJSON": b64(client), "authenticatorData": b64(auth), "signature": b64(signature)})
}

func (d *Device) answer(response map[string]any) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"id": d.ID(), "rawId": d.ID(), "type": "public-key", "clientExtensionResults": map[string]any{}, "response": response})
	if err != nil {
		panic(err)
	}
	return raw
}
