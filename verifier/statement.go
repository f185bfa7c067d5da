package verifier

import (
	"archive/zip"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"

	"countersign/witness/cosign"
)

// statements checks the signed statements about changes (in-toto, in DSSE envelopes) against the
// requests, and their signatures if the log's key is known.
func (v *verifier) statements(z *zip.Reader) error {
	names := below(z, "statements")
	good := 0
	for _, name := range names {
		raw, err := file(z, name)
		if err != nil {
			return err
		}
		if err := v.statement(raw); err != nil {
			v.bad("%s: %v.", printable(name), err)
			continue
		}
		good++
	}
	switch {
	case good == 0:
	case v.trust.Log == nil:
		v.good("%s of changes there; name the record's key with --log to have the signatures checked.", are(good, "statement"))
	default:
		v.good("%s of changes signed by the record's key.", are(good, "statement"))
	}
	return nil
}

func (v *verifier) statement(raw []byte) error {
	var e struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	}
	var s struct {
		Type      string `json:"_type"`
		Predicate struct {
			Request string `json:"request"`
			Action  string `json:"action"`
		} `json:"predicate"`
	}
	if json.Unmarshal(raw, &e) != nil || json.Unmarshal(e.Payload, &s) != nil || e.PayloadType != "application/vnd.in-toto+json" || s.Type != "https://in-toto.io/Statement/v1" {
		return fmt.Errorf("it is no statement of a change")
	}
	if !v.decided[s.Predicate.Request][s.Predicate.Action] {
		return fmt.Errorf("the chain of decisions has no approval of what it states")
	}
	if v.trust.Log == nil {
		return nil
	}
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
	for _, one := range e.Signatures {
		if slices.ContainsFunc(v.trust.Log, func(k cosign.LogKey) bool { return ed25519.Verify(k.Public, signed, one.Sig) }) {
			return nil
		}
	}
	return fmt.Errorf("it isn't signed by the record's key")
}
