package register

import (
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"countersign/approvals/passkey"
)

// vectors are those of the specification (https://www.w3.org/TR/webauthn-3/#sctn-test-vectors).
//
//go:embed testdata/vectors.json
var vectors []byte

type hexes string

func (h hexes) bytes(t *testing.T) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(h))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (h hexes) url(t *testing.T) string { return base64.RawURLEncoding.EncodeToString(h.bytes(t)) }

// TestTheSpecificationsVectors registers each of the specification's keys and checks what it signed.
// A key counts if its device checked who uses it, on our own page; the rest is refused for that.
func TestTheSpecificationsVectors(t *testing.T) {
	var all []struct {
		Section    string
		Credential hexes
		Create     struct{ Challenge, Client, Object hexes }
		Get        struct{ Challenge, Client, Data, Signature hexes }
	}
	if err := json.Unmarshal(vectors, &all); err != nil {
		t.Fatal(err)
	}
	s := passkey.Site{ID: "example.org", Origin: "https://example.org"}
	answer := func(id hexes, response map[string]any) []byte {
		raw, err := json.Marshal(map[string]any{"id": id.url(t), "rawId": id.url(t), "type": "public-key", "response": response})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	counted := 0
	for _, v := range all {
		t.Run(v.Section, func(t *testing.T) {
			challenge, created := v.Create.Challenge.bytes(t), answer(v.Credential, map[string]any{"clientDataJSON": v.Create.Client.url(t), "attestationObject": v.Create.Object.url(t)})
			made, err := read(s, challenge, created, false)
			switch {
			case strings.Contains(string(v.Create.Client.bytes(t)), `"crossOrigin":true`):
				if err == nil {
					t.Error("a key made on another page was registered")
				}
				return
			case strings.Contains(v.Section, "TPM") || strings.Contains(v.Section, "Android") || strings.Contains(v.Section, "Apple"): // their makers are examples, too
				return
			case err != nil:
				t.Fatal(err)
			}
			if _, err := Read(s, challenge, created); err != nil && !errors.Is(err, passkey.ErrUnverified) {
				t.Error(err)
			}
			signed := func(signature []byte) []byte {
				return answer(v.Credential, map[string]any{"clientDataJSON": v.Get.Client.url(t), "authenticatorData": v.Get.Data.url(t), "signature": base64.RawURLEncoding.EncodeToString(signature)})
			}
			challenge = v.Get.Challenge.bytes(t)
			signature := v.Get.Signature.bytes(t)
			if _, err := passkey.Verify(s, challenge, made.ID, made.Public, signed(signature), false); err != nil {
				t.Fatal(err)
			}
			const userVerified = 4
			if _, err := passkey.Verify(s, challenge, made.ID, made.Public, signed(signature), true); (err == nil) != (v.Get.Data.bytes(t)[32]&userVerified != 0) {
				t.Errorf("with a check of the user: %v", err)
			}
			signature[len(signature)-1] ^= 1
			if _, err := passkey.Verify(s, challenge, made.ID, made.Public, signed(signature), false); !errors.Is(err, passkey.ErrSignature) {
				t.Errorf("a signature with another bit: %v", err)
			}
			counted++
		})
	}
	if counted != 9 {
		t.Errorf("%d of %d keys were checked", counted, len(all))
	}
}

func FuzzAnAnswerIsRefusedOrSigned(f *testing.F) {
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AA","attestationObject":"oA"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := passkey.Site{ID: "example.org", Origin: "https://example.org"}
		if _, err := passkey.Verify(s, []byte("x"), passkey.KeyOf(raw), []byte{0xa0}, raw, false); err == nil {
			t.Error("a signature by no key counts")
		}
		if _, err := Read(s, []byte("a challenge that is not in it"), raw); err == nil {
			t.Error("an answer to another challenge counts")
		}
	})
}
