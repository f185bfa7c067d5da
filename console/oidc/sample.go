package oidc

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sample is what one sign-in brought, for who sets the console up: other claims than expected are what
// most sign-ins fail for.
type Sample struct {
	At     time.Time         `json:"at"`
	Claims map[string]string `json:"claims"` // shortened, without those of the protocol itself
	// Refused is why the person wasn't let in by the claims; "" where they were good.
	Refused string `json:"refused,omitempty"`
}

// String lists the claims.
func (s Sample) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		out = append(out, name+" "+s.Claims[name])
	}
	return strings.Join(out, ", ")
}

const (
	mostClaims = 40 // of a sample
	mostValues = 3  // of a list in it
	mostValue  = 60 // bytes of a value in it
)

// protocol are the claims that say nothing of the person.
var protocol = []string{"iss", "aud", "exp", "iat", "nbf", "nonce", "azp", "at_hash", "c_hash", "s_hash", "jti", "sid", "session_state", "auth_time", "acr", "amr", "aio", "rh", "uti", "ver", "typ"}

// show gives a sample to who wants it.
func (c *Client) show(sources []claims, err error) {
	if c.cfg.Seen == nil {
		return
	}
	s := Sample{At: c.now().UTC(), Claims: map[string]string{}}
	if err != nil {
		s.Refused = Why(err)
	}
	for _, source := range sources {
		for _, name := range slices.Sorted(maps.Keys(source)) {
			if _, known := s.Claims[name]; !known && len(s.Claims) < mostClaims && !slices.Contains(protocol, name) {
				s.Claims[shorten(name)] = brief(source[name])
			}
		}
	}
	c.cfg.Seen(s)
}

// brief is a claim's value, of a list its first ones.
func brief(raw json.RawMessage) string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) <= mostValues {
		return shorten(string(raw))
	}
	var out []string
	for _, v := range list[:mostValues] {
		out = append(out, shorten(string(v)))
	}
	return fmt.Sprintf("[%s and %d more]", strings.Join(out, ","), len(list)-mostValues)
}

func shorten(s string) string {
	if len(s) <= mostValue {
		return s
	}
	return strings.ToValidUTF8(s[:mostValue], "") + "…"
}
