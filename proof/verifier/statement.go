package verifier

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"

	"countersign/proof/witness/cosign"
)

// statements checks the signed statements about changes (in-toto, in DSSE envelopes) against the
// requests, and their signatures if the log's key is known.
func (v *verifier) statements() {
	good := 0
	for _, name := range v.below("statements") {
		if err := v.statement(name, v.files[name]); err != nil {
			v.say(Bad, "%s: %v.", printable(name), err)
			continue
		}
		good++
	}
	switch {
	case good == 0:
	case v.trust.Log == nil:
		v.say(Note, "%s of changes: name the record's key with --log to have the signatures checked.", plural(good, "statement"))
	default:
		v.say(Good, "%s of changes, signed by the record's key.", plural(good, "statement"))
	}
}

// stated are the members of a statement.
var stated = map[string]string{
	"":          "_type subject predicateType predicate",
	"predicate": "request incident action tool target user dir command before approvers signed by policy rule asked ended state outcome",
}

func (v *verifier) statement(name string, raw []byte) error {
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
			Request   string   `json:"request"`
			Action    string   `json:"action"`
			Target    string   `json:"target"`
			Approvers []string `json:"approvers"`
			By        string   `json:"by"`
		} `json:"predicate"`
	}
	if exact(raw, map[string]string{"": "payloadType payload signatures", "signatures": "keyid sig"}) != nil || json.Unmarshal(raw, &e) != nil || exact(e.Payload, stated) != nil || json.Unmarshal(e.Payload, &s) != nil || e.PayloadType != "application/vnd.in-toto+json" || s.Type != "https://in-toto.io/Statement/v1" || name != "statements/"+s.Predicate.Request+".intoto.json" {
		return fmt.Errorf("it is no statement of a change")
	}
	p := s.Predicate
	d := v.deeds[p.Request]
	if d == nil || !d.ran || d.digest != p.Action || d.target != p.Target || p.By == "" && !slices.Equal(slices.Sorted(slices.Values(p.Approvers)), d.people()) {
		return fmt.Errorf("the chain of decisions has no run of what it states")
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
