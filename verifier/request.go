package verifier

import (
	"bufio"
	"bytes"
	"cmp"
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

const maxLine = 4 << 20

type request struct {
	facts
	State   string `json:"state"`
	Digest  string `json:"digest"`
	Action  action `json:"action"`
	Outcome struct {
		OK   bool   `json:"ok"`
		Note string `json:"note"`
	} `json:"outcome"`
}

// facts are what a request stood on beside its action, in the order in which their hash has them.
type facts struct {
	ID        string `json:"id"`
	Thread    string `json:"thread"`
	Requester struct {
		ID string `json:"id"`
	} `json:"requester"`
	Created string `json:"created"`
	Level   string `json:"level"`
	Require struct {
		Needs []struct {
			Count int `json:"count"`
		} `json:"needs,omitempty"`
		Proof string `json:"proof"`
	} `json:"require"`
	Votes []vote `json:"votes,omitempty"`
	Basis struct {
		Kind string `json:"kind"`
		Of   string `json:"of"`
	} `json:"basis"`
	Place struct {
		Target     string `json:"target"`
		Env        string `json:"env"`
		Production bool   `json:"production"`
	} `json:"place"`
}

type vote struct {
	User struct {
		ID string `json:"id"`
	} `json:"user"`
	Approve bool   `json:"approve"`
	At      string `json:"at"`
	Meets   []int  `json:"meets,omitempty"`
	Glass   bool   `json:"glass"`
	Passkey *proof `json:"passkey,omitempty"`
}

// fields are the members that a line of approvals.jsonl may have, where what is checked stands. The bot
// writes no others, so others are there to be read by somebody else.
var fields = map[string]string{
	"": "id thread call requester agent caller groups revision repeats dropped_by created action digest claim engine level rule policy require votes state expires_at run_by decided by " +
		"reason basis review outcome unstarted ended preview receipt ticket trial taint place steps",
	"action": actionFields, "action.steps": actionFields, "requester": userFields, "votes.user": userFields, "basis": "kind of step why", "place": "target env production",
	"require":       "needs requester_may reason_required solo write proof ticket break_glass grant run_within keep_within",
	"require.needs": "rule count groups escalate taken duty", "outcome": "ok note signal unstarted undo", "votes.passkey.site": "id origin", "votes.passkey.signed": "response public key",
	"votes": "user approve reason via event at digest groups duty ticket meets grant glass trial passkey", "votes.passkey": "statement shown site owner by added signed",
}

const (
	actionFields = "tool kind target user dir session pane locked shell foreground path paths args env files steps preview whole text"
	userFields   = "id name bot outside stranger"
)

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

func (v *verifier) requests(raw []byte) error {
	sc := bufio.NewScanner(bytes.NewReader(raw))
	sc.Buffer(nil, maxLine)
	for n := 1; sc.Scan(); n++ {
		var r request
		err := exact(sc.Bytes(), fields)
		if err = errors.Join(err, json.Unmarshal(sc.Bytes(), &r)); err != nil {
			v.say(Bad, "Line %d of approvals.jsonl can't be read (%v).", n, err)
			continue
		}
		v.request(r)
	}
	for _, id := range slices.Sorted(maps.Keys(v.deeds)) {
		if d := v.deeds[id]; d.ran && !d.shown {
			v.say(Bad, "Request %s: the chain of decisions says that it ran, and approvals.jsonl doesn't have it.", printable(id))
		}
	}
	return sc.Err()
}

// request checks one request: what is said of it must be what the chain says.
func (v *verifier) request(r request) {
	name := "Request " + printable(r.ID)
	d := v.deeds[r.ID]
	if d == nil || d.shown {
		v.say(Bad, "%s: it isn't in the chain of decisions, or stands in approvals.jsonl twice.", name)
		return
	}
	d.shown = true
	wrong := len(v.found)
	switch {
	case d.facts == r.hash():
	case d.facts != "" || r.Thread != d.thread || d.ran && r.Basis.Kind == "" && !slices.Equal(r.people(), d.people()):
		v.say(Bad, "%s: who asked and voted, when, where, and what it needed isn't what the chain of decisions says.", name)
	case d.ran:
		v.say(Open, "%s: its chain is of an older version, which doesn't say what it needed and where it ran.", name)
	}
	if r.Digest != d.digest || r.Action.Target != d.target || r.State != d.state && (r.State+d.state != "approvedpending" && r.State+d.state != "pendingapproved") {
		v.say(Bad, "%s: it is %s, and in the chain of decisions %s, or its digest or target isn't the one there.", name, printable(r.State), printable(d.state))
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
	case !d.ended:
	case d.withheld || strings.Contains(r.Outcome.Note, redacted) || strings.Contains(d.outcome, " … [cut: "):
		v.say(Open, "%s: how it ended can't be checked: a secret was taken out of that, or it is long.", name)
	case r.Outcome.Note != d.outcome || d.facts != "" && r.Outcome.OK != d.ok:
		v.say(Bad, "%s: how it ended isn't what the chain of decisions says.", name)
	}
	if !d.ran || slices.ContainsFunc(v.found[wrong:], func(f Finding) bool { return f.Kind == Bad }) {
		return
	}
	if r.Basis.Kind != "" {
		v.say(Good, "%s: it ran by %s.", name, printable(r.Basis.Kind))
	} else {
		v.say(Good, "%s: approved by %s; %d of %s signed.", name, printable(strings.Join(r.people(), " and ")), signed, plural(len(r.people()), "vote"))
	}
}

func (f facts) hash() string {
	f.Votes = slices.Clone(f.Votes)
	for i := range f.Votes {
		f.Votes[i].Passkey = nil
	}
	raw, _ := json.Marshal(f) // texts and numbers
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func (r request) people() (ids []string) {
	for _, vote := range r.Votes {
		if vote.Approve {
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
		case err != nil || owners[p.Owner]:
			v.say(Bad, "%s: the vote of %s: %v.", name, who, cmp.Or(err, errors.New("another vote is signed by a passkey of the same person")))
		case vote.Approve:
			signed++
		}
		owners[p.Owner] = true
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
	key := passkey.Key{ID: p.KeyID, Owner: p.KeyOwner, Public: p.Public}.Digest()
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
