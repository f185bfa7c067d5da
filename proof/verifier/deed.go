package verifier

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// chainFields are the members of lines of the chain that no hash covers.
var chainFields = map[string]string{
	"export": "v at thread anchors", "export.anchors": "n hash", "chain": "thread from n hash", "end": "anchors chains lines sha256",
	"texts": "salt withheld command outcome note",
}

type event struct {
	What     string `json:"what"`
	Approval string `json:"approval"`
	Digest   string `json:"digest"`
	Target   string `json:"target"`
	User     string `json:"user"`
	Facts    string `json:"facts"`
}

// entry is a line of the chain; one of the first form has its event inside.
type entry struct {
	event
	Thread string `json:"thread"`
	N      uint64 `json:"n"`
	Texts  string `json:"texts_sha256"`
	Prev   string `json:"prev"`
	Event  event  `json:"event"`
}

// deed is what the chain says of one request.
type deed struct {
	thread, digest, target, state string
	facts                         string // the hash of all that it says; none or another one from older versions
	asked, ran                    bool
	approved                      map[string]bool // by whom
	shown                         bool            // approvals.jsonl has it
}

func (d *deed) people() []string { return slices.Sorted(maps.Keys(d.approved)) }

// deed takes over a line of the chain.
func (v *verifier) deed(r entry) {
	d := v.deeds[r.Approval]
	if d == nil {
		d = &deed{thread: r.Thread, state: "pending"}
		v.deeds[r.Approval] = d
	}
	if r.Digest != d.digest { // edited: votes on what it was before don't count
		d.approved = map[string]bool{}
	}
	d.digest, d.target, d.facts = r.Digest, r.Target, r.Facts
	switch r.What {
	case "asked":
		d.asked = true
	case "approved", "break-glass":
		d.state, d.approved[r.User] = "approved", true
	case "running":
		d.ran, d.state = true, r.What
	case "unstarted":
		d.state = "approved"
	case "edited":
		d.state = "cancelled"
	case "done", "unknown", "denied", "expired", "cancelled", "invalid":
		d.state = r.What
	}
}

// exact refuses JSON that readers understand in different ways: with a name twice in an object, or,
// where the names are listed, with another one than these, to the letter.
func exact(raw []byte, fields map[string]string) error {
	if !json.Valid(raw) { // which bounds its depth, too
		return errors.New("it is no JSON")
	}
	return walk(json.NewDecoder(bytes.NewReader(raw)), "", fields)
}

func walk(d *json.Decoder, at string, fields map[string]string) error {
	open, err := d.Token()
	if _, ok := open.(json.Delim); !ok || err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		inner := at
		if open == json.Delim('{') {
			tok, err := d.Token()
			name := fmt.Sprint(tok)
			known, listed := fields[at]
			if err != nil || seen[name] || listed && !slices.Contains(strings.Fields(known), name) {
				return fmt.Errorf("%q is there twice, or is nothing that the bot writes", printable(name))
			}
			seen[name], inner = true, strings.TrimPrefix(at+"."+name, ".")
		}
		if err := walk(d, inner, fields); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
