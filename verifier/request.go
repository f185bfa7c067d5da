package verifier

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"countersign/approvals/passkey"
)

const maxLine = 4 << 20

// request is a line of approvals.jsonl.
type request struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Digest  string `json:"digest"`
	Action  action `json:"action"`
	Votes   []vote `json:"votes"`
	Require struct {
		Proof string `json:"proof"`
		Needs []struct {
			Count int `json:"count"`
		} `json:"needs"`
	} `json:"require"`
	Basis struct {
		Kind string `json:"kind"`
		Why  string `json:"why"`
	} `json:"basis"`
}

type vote struct {
	User struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Bot  bool   `json:"bot"`
	} `json:"user"`
	Approve bool   `json:"approve"`
	Glass   bool   `json:"glass"`
	Meets   []int  `json:"meets"`
	Passkey *proof `json:"passkey"`
}

func (v vote) who() string {
	if v.User.Name != "" {
		return printable(v.User.Name)
	}
	return printable(v.User.ID)
}

// proof has what a passkey signed as text.
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
}

// whole is the action with its bytes.
func (a action) whole() action {
	if a.Text != "" {
		a.Bytes, a.Text = []byte(a.Text), ""
	}
	a.Steps = slices.Clone(a.Steps)
	for i := range a.Steps {
		a.Steps[i] = a.Steps[i].whole()
	}
	return a
}

const digestVersion = "countersign-action-v3\n"

func (a action) digest() string {
	raw, err := json.Marshal(a.whole())
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
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return fmt.Errorf("line %d of approvals.jsonl can't be read (%w)", n, err)
		}
		v.request(r, bytes.Contains(sc.Bytes(), []byte("[redacted")))
	}
	return sc.Err()
}

// satisfied reports whether the votes are enough.
func (r request) satisfied() bool {
	if slices.ContainsFunc(r.Votes, func(v vote) bool { return v.Approve && v.Glass && !v.User.Bot }) {
		return true
	}
	for i, need := range r.Require.Needs {
		seen := map[string]bool{}
		for _, v := range r.Votes {
			if v.Approve && !v.User.Bot && v.User.ID != "" && slices.Contains(v.Meets, i) {
				seen[v.User.ID] = true
			}
		}
		if len(seen) < max(need.Count, 1) {
			return false
		}
	}
	return len(r.Require.Needs) > 0
}

// request checks one request that was let run.
func (v *verifier) request(r request, redacted bool) {
	if !slices.Contains([]string{"approved", "running", "done", "unknown"}, r.State) {
		return // nothing ran by it
	}
	name := "Request " + printable(r.ID)
	wrong := len(v.found)
	switch digest := r.Action.digest(); {
	case digest == r.Digest:
	case redacted:
		v.good("%s: a secret was taken out of it, so its digest can't be calculated here.", name)
		wrong++
	default:
		v.bad("%s: what it says to run isn't what was decided: its digest is %.12s, and that of its text %.12s.", name, printable(r.Digest), digest)
	}
	if !v.decided[r.ID][r.Digest] {
		v.bad("%s: the chain of decisions has no approval of it.", name)
	}
	if r.State != "approved" && !v.began[r.ID] {
		v.bad("%s: it is said to have run, and the chain of decisions doesn't say so.", name)
	}
	if r.Basis.Kind != "" {
		if len(v.found) == wrong {
			v.good("%s: it ran by %s (%s).", name, printable(r.Basis.Kind), printable(r.Basis.Why))
		}
		return
	}
	if !r.satisfied() {
		v.bad("%s: its votes aren't enough for what it needed.", name)
	}
	var people []string
	owners := map[string]bool{}
	signed := 0
	for _, vote := range r.Votes {
		if !vote.Approve {
			continue
		}
		people = append(people, vote.who())
		if vote.Passkey == nil {
			if r.Require.Proof != "" {
				v.bad("%s: the vote of %s had to be signed, and isn't.", name, vote.who())
			}
			continue
		}
		if err := v.vote(r, vote, redacted); err != nil {
			v.bad("%s: the vote of %s: %v.", name, vote.who(), err)
			continue
		}
		if owners[vote.Passkey.Owner] {
			v.bad("%s: two votes are signed by the passkeys of %s.", name, printable(vote.Passkey.Owner))
		}
		owners[vote.Passkey.Owner] = true
		signed++
	}
	if len(v.found) == wrong {
		v.good("%s: approved by %s; %d of %s signed.", name, strings.Join(people, " and "), signed, plural(len(people), "vote"))
	}
}

// vote checks a vote that is signed.
func (v *verifier) vote(r request, vote vote, redacted bool) error {
	p := passkey.Proof{
		Statement: []byte(vote.Passkey.Statement), Response: vote.Passkey.Signed.Response, Shown: vote.Passkey.Shown, Site: vote.Passkey.Site,
		KeyID: vote.Passkey.Signed.Key, Public: vote.Passkey.Signed.Public, KeyOwner: vote.Passkey.Owner,
	}
	if redacted && strings.Contains(vote.Passkey.Statement, "[redacted") {
		return errors.New("a secret was taken out of what was signed, so the signature can't be checked here")
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
	case s.Shown != vote.Passkey.shown() && !bytes.Contains(p.Shown, []byte("[redacted")):
		return errors.New("the card in the record isn't the one that was shown")
	case v.trust.Keys != nil && !slices.ContainsFunc(v.trust.Keys[p.KeyOwner], func(d string) bool { return strings.HasPrefix(key, d) }):
		return fmt.Errorf("it is signed by a passkey of %s that you didn't name (%s)", printable(p.KeyOwner), key[:16])
	}
	return nil
}
