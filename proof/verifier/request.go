package verifier

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"countersign/approvals/passkey"
)

// request is what is checked of a line of approvals.jsonl.
type request struct {
	ID      string            `json:"id"`
	Thread  string            `json:"thread"`
	State   string            `json:"state"`
	Digest  string            `json:"digest"`
	Action  action            `json:"action"`
	Salts   map[string]string `json:"salts"`
	Require struct {
		Needs []struct {
			Count int `json:"count"`
		} `json:"needs"`
		Proof string `json:"proof"`
	} `json:"require"`
	Votes []vote `json:"votes"`
	Basis struct {
		Kind string `json:"kind"`
	} `json:"basis"`
}

type vote struct {
	User struct {
		ID string `json:"id"`
	} `json:"user"`
	Approve bool   `json:"approve"`
	Meets   []int  `json:"meets"`
	Glass   bool   `json:"glass"`
	Void    bool   `json:"void"`
	Passkey *proof `json:"passkey"`
}

// fields are the members that an action may have: what is no part of its digest is there to be read by
// somebody else.
var fields = map[string]string{"action": actionFields, "action.steps": actionFields}

const actionFields = "tool kind target user dir session pane locked shell foreground path paths args env files steps preview whole text"

type proof struct {
	Statement string          `json:"statement"`
	Shown     json.RawMessage `json:"shown"`
	Site      passkey.Site    `json:"site"`
	Owner     string          `json:"owner"`
	Signed    struct {
		Response json.RawMessage `json:"response"`
		Public   []byte          `json:"public"`
		Key      string          `json:"key"`
	} `json:"signed"`
}

// shown is the digest of the card, whose JSON an archive writes in another way than the bot did.
func (p proof) shown() string {
	var b bytes.Buffer
	json.HTMLEscape(&b, p.Shown)
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

// action is what was to be done, with its fields in the order in which its digest has them. An archive
// has the text in place of the bytes.
type action struct {
	Tool       string            `json:"tool"`
	Kind       string            `json:"kind"`
	Target     string            `json:"target"`
	User       string            `json:"user,omitempty"`
	Dir        string            `json:"dir,omitempty"`
	Session    string            `json:"session,omitempty"`
	Pane       string            `json:"pane,omitempty"`
	Locked     bool              `json:"locked,omitempty"`
	Shell      string            `json:"shell,omitempty"`
	Foreground string            `json:"foreground,omitempty"`
	Path       string            `json:"path,omitempty"`
	Paths      []string          `json:"paths,omitempty"`
	Bytes      []byte            `json:"bytes,omitempty"`
	Args       json.RawMessage   `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Files      map[string]string `json:"files,omitempty"`
	Steps      []action          `json:"steps,omitempty"`
	Preview    string            `json:"preview,omitempty"`
	Whole      bool              `json:"whole,omitempty"`
	Text       string            `json:"text,omitempty"`
	hidden     bool              // a secret was taken out, or so it says
}

// redacted begins what stands in the place of a secret. Anybody can write it, so it excuses nothing.
const redacted = "[redacted"

func (a *action) UnmarshalJSON(raw []byte) error {
	type plain action
	err := json.Unmarshal(raw, (*plain)(a))
	if a.hidden = bytes.Contains(raw, []byte(redacted)); a.Text != "" {
		a.Bytes, a.Text = []byte(a.Text), ""
	}
	return err
}

const digestVersion = "countersign-action-v3\n"

func (a action) digest() string {
	raw, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append([]byte(digestVersion), raw...))
	return hex.EncodeToString(sum[:])
}

func (v *verifier) requests(raw []byte) {
	n := 0
	for row := range bytes.Lines(raw) {
		n++
		var r request
		if err := errors.Join(exact(row, fields), json.Unmarshal(row, &r)); err != nil {
			v.say(Bad, "Line %d of approvals.jsonl can't be read (%v).", n, err)
			continue
		}
		v.request(r, row)
	}
	for _, id := range slices.Sorted(maps.Keys(v.deeds)) {
		if d := v.deeds[id]; d.asked && !d.shown {
			v.say(Bad, "Request %s: it is in the chain of decisions, and not in approvals.jsonl.", printable(id))
		}
	}
	if v.signed && v.trust.Keys == nil {
		v.say(Note, "Name the passkeys that count with --key. Without that, whose they are is the archive's own word.")
	}
}

// request checks one request: what is said of it must be what the chain says.
func (v *verifier) request(r request, row []byte) {
	name := "Request " + printable(r.ID)
	d := v.deeds[r.ID]
	if d == nil || !d.asked || d.shown {
		v.say(Bad, "%s: it isn't in the chain of decisions, or stands in approvals.jsonl twice.", name)
		return
	}
	d.shown = true
	from := len(v.found)
	waits := r.State == "pending" && (d.state == r.State || d.state == "approved")
	hidden, same := r.whole(row, d.facts)
	others := d.ran && r.Basis.Kind == "" && !slices.Equal(r.people(), d.people())
	switch {
	case r.Thread != d.thread || r.Digest != d.digest || r.Action.Target != d.target:
		v.say(Bad, "%s: its thread, digest or target isn't the one in the chain of decisions.", name)
	case !strings.HasPrefix(d.facts, factsVersion) && (others || r.State != d.state && !waits):
		v.say(Bad, "%s: it is %s, and in the chain of decisions %s, or the voters aren't those there.", name, printable(r.State), printable(d.state))
	case !strings.HasPrefix(d.facts, factsVersion):
		v.say(Open, "%s: its chain is of an older version, which has its digest, state and voters only. The rest can't be checked.", name)
	case !same || others:
		v.say(Bad, "%s: what it says isn't what the chain of decisions has of it.", name)
	case len(hidden) > 0:
		v.say(Open, "%s: a secret was taken out of %s, so that can't be checked here.", name, printable(strings.Join(hidden, ", ")))
	}
	checked := len(v.found) == from
	if r.State == "pending" {
		v.say(Note, "%s: it waits for a decision. Its preview can't be checked before that.", name)
	}
	switch digest := r.Action.digest(); {
	case digest == r.Digest:
	case r.Action.hidden:
		v.say(Open, "%s: a secret was taken out of it, so nothing here shows that its text is what was decided.", name)
	default:
		v.say(Bad, "%s: what it says to run isn't what was decided: its digest is %.12s, and that of its text %.12s.", name, printable(r.Digest), digest)
	}
	signed := v.votes(name, r)
	switch {
	case !checked || !d.ran || slices.ContainsFunc(v.found[from:], func(f Finding) bool { return f.Kind == Bad }):
	case r.Basis.Kind != "":
		v.say(Good, "%s: it ran by %s.", name, printable(r.Basis.Kind))
	default:
		v.say(Good, "%s: approved by %s; %d of %s signed.", name, printable(strings.Join(r.people(), " and ")), signed, plural(len(r.people()), "vote"))
	}
}

// factsVersion begins the hash of a whole request.
const factsVersion = "2:"

// whole reports whether a row is the one of which the chain has the hash, but for its action, which has its digest,
// and a preview before the decision. hidden are the members of which a secret was taken out, so that they aren't compared.
func (r request) whole(row []byte, facts string) (hidden []string, ok bool) {
	ok = true
	var members map[string]json.RawMessage
	err := json.Unmarshal(row, &members)
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool {
		return name == "action" || name == "salts" || name == "preview" && r.State == "pending"
	})
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		leaf, taken := strings.CutPrefix(r.Salts[name], "=")
		if taken {
			hidden = append(hidden, name)
			ok = ok && bytes.Contains(members[name], []byte(redacted))
		} else {
			h := hmac.New(sha256.New, []byte(leaf))
			_, _ = h.Write(members[name])
			leaf = hex.EncodeToString(h.Sum(nil))
		}
		_, _ = fmt.Fprintf(sum, "%q %s\n", name, leaf)
	}
	return hidden, ok && err == nil && len(r.Salts) == len(members) && facts == factsVersion+hex.EncodeToString(sum.Sum(nil))
}

func (r request) people() (ids []string) {
	for _, vote := range r.Votes {
		if vote.Approve && !vote.Void {
			ids = append(ids, vote.User.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (v *verifier) votes(name string, r request) (signed int) {
	owners := map[string]bool{}
	for _, vote := range r.Votes {
		who, p := printable(vote.User.ID), vote.Passkey
		if p == nil {
			if vote.Approve && r.Require.Proof != "" && r.Basis.Kind == "" {
				v.say(Bad, "%s: the vote of %s had to be signed, and isn't.", name, who)
			}
			continue
		}
		switch err := v.vote(r, vote, p); {
		case errors.Is(err, errTaken):
			v.say(Open, "%s: the vote of %s: %v.", name, who, err)
		case err != nil || owners[p.Owner] && !vote.Void:
			v.say(Bad, "%s: the vote of %s: %v.", name, who, cmp.Or(err, errors.New("another vote is signed by a passkey of the same person")))
		case vote.Approve && !vote.Void:
			signed++
			v.signed = true
		}
		owners[p.Owner] = owners[p.Owner] || !vote.Void
	}
	if d := v.deeds[r.ID]; d.ran && r.Basis.Kind == "" && !r.satisfied() {
		v.say(Bad, "%s: its votes aren't enough for what it needed.", name)
	}
	return signed
}

func (r request) satisfied() bool {
	if slices.ContainsFunc(r.Votes, func(v vote) bool { return v.Approve && v.Glass }) {
		return true
	}
	for i, need := range r.Require.Needs {
		seen := map[string]bool{}
		for _, v := range r.Votes {
			if v.Approve && slices.Contains(v.Meets, i) {
				seen[v.User.ID] = true
			}
		}
		if len(seen) < max(need.Count, 1) {
			return false
		}
	}
	return len(r.Require.Needs) > 0
}

var errTaken = errors.New("a secret was taken out of what was signed, or of the card, so that can't be checked here")

// vote checks a vote that is signed.
func (v *verifier) vote(r request, vote vote, k *proof) error {
	p := passkey.Proof{
		Statement: []byte(k.Statement), Response: k.Signed.Response, Shown: k.Shown, Site: k.Site,
		KeyID: k.Signed.Key, Public: k.Signed.Public, KeyOwner: k.Owner,
	}
	if strings.Contains(k.Statement, redacted) {
		return errTaken
	}
	if _, err := p.Check(); err != nil {
		return err
	}
	s, err := passkey.Decode(p.Statement)
	if err != nil {
		return err
	}
	kind := passkey.ForApprove
	if vote.Glass {
		kind = passkey.ForGlass
	}
	key := passkey.Digest(p.KeyID, p.KeyOwner, p.Public)
	switch {
	case s.For != kind || s.Request != r.ID || s.Digest != r.Digest || s.Voter != vote.User.ID || s.Owner != p.KeyOwner:
		return errors.New("what was signed is something else")
	case s.Shown != k.shown() && !bytes.Contains(p.Shown, []byte(redacted)):
		return errors.New("the card in the record isn't the one that was shown")
	case v.trust.Keys != nil && !slices.ContainsFunc(v.trust.Keys[p.KeyOwner], func(d string) bool { return strings.HasPrefix(key, d) }):
		return fmt.Errorf("it is signed by a passkey of %s that you didn't name (%s)", printable(p.KeyOwner), key[:16])
	case s.Shown != k.shown():
		return errTaken
	}
	return nil
}
