// Package verify checks the archive of an incident without a store, a network or the bot: the chain
// of decisions, that what ran is what was decided, and what people's devices signed.
package verify

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/passkey"
	"countersign/internal/words"
	"countersign/store"
	"countersign/store/mem"
)

const (
	maxFile = 64 << 20 // bytes of a file in the archive, unpacked
	maxLine = 4 << 20
)

// Finding is one thing that was looked at, as a sentence.
type Finding struct {
	Bad bool // something is wrong, or can't be shown
	Say string
}

// Archive checks an archive. keys are the digests of the only passkeys that count, or their first 12
// digits or more, by their owner; nil takes those that the archive has. The error says that r is no
// archive of an incident.
func Archive(ctx context.Context, r io.ReaderAt, size int64, keys map[string][]string) ([]Finding, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("this is no zip file (%w); give one that countersign export wrote", err)
	}
	chain, err := file(z, "audit.jsonl")
	if err != nil {
		return nil, err
	}
	requests, err := file(z, "approvals.jsonl")
	if err != nil {
		return nil, err
	}
	if chain == nil && requests == nil {
		return nil, errors.New("this zip file has neither audit.jsonl nor approvals.jsonl, so it is no record of an incident")
	}
	v := &verifier{keys: keys, decided: map[string]map[string]bool{}, began: map[string]bool{}}
	if chain == nil {
		v.bad("The chain of decisions (audit.jsonl) is missing, so nothing shows that this is what the bot wrote down.")
	} else if err := v.chain(ctx, chain); err != nil {
		return nil, err
	}
	if err := v.requests(requests); err != nil {
		return nil, err
	}
	return v.found, nil
}

// file is a file of the archive, nil where it is not.
func file(z *zip.Reader, name string) ([]byte, error) {
	for _, f := range z.File {
		if f.Name != name {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("%s can't be unpacked (%w)", name, err)
		}
		raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
		if err = errors.Join(err, in.Close()); err != nil {
			return nil, fmt.Errorf("%s can't be unpacked (%w)", name, err)
		}
		if len(raw) > maxFile {
			return nil, fmt.Errorf("%s is larger than %d MB", name, maxFile>>20)
		}
		return raw, nil
	}
	return nil, nil
}

type verifier struct {
	keys    map[string][]string
	decided map[string]map[string]bool // request -> digest -> somebody or the policy approved it
	began   map[string]bool            // request -> the chain says that it ran
	found   []Finding
}

func (v *verifier) good(format string, a ...any) {
	v.found = append(v.found, Finding{Say: fmt.Sprintf(format, a...)})
}

func (v *verifier) bad(format string, a ...any) {
	v.found = append(v.found, Finding{Bad: true, Say: fmt.Sprintf(format, a...)})
}

// chain checks the chain of decisions, and remembers what was decided.
func (v *verifier) chain(ctx context.Context, raw []byte) error {
	db := mem.Open()
	faults := 0
	fault := func(f audit.Fault) {
		faults++
		v.bad("The chain of decisions is broken: %s.", f)
	}
	h, err := audit.Import(ctx, db, bytes.NewReader(raw), fault)
	if err != nil {
		return fmt.Errorf("audit.jsonl is no record of decisions (%w)", err)
	}
	return db.View(ctx, func(tx store.Tx) error {
		c := audit.Check(tx, audit.CheckOptions{Export: &h}, fault)
		if faults == 0 {
			v.good("The chain of decisions is whole: %s, %s.", words.Plural(c.Lines, "line"), words.Plural(c.Anchors, "anchor"))
		}
		for l := range audit.Each(tx, time.Time{}) {
			if l.Event.What == audit.Running {
				v.began[l.Event.Approval] = true
			}
			if e := l.Event; e.What == audit.Approved || e.What == audit.BreakGlass {
				if v.decided[e.Approval] == nil {
					v.decided[e.Approval] = map[string]bool{}
				}
				v.decided[e.Approval][e.Digest] = true
			}
		}
		return nil
	})
}

// request is a line of approvals.jsonl.
type request struct {
	approvals.Record
	Action action `json:"action"`
	Votes  []vote `json:"votes"`
}

// vote has what a passkey signed as text.
type vote struct {
	approvals.Vote
	Passkey *proof `json:"passkey"`
}

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

func (p proof) whole() passkey.Proof {
	return passkey.Proof{
		Statement: []byte(p.Statement), Response: p.Signed.Response, Shown: p.Shown, Site: p.Site,
		KeyID: p.Signed.Key, Public: p.Signed.Public, KeyOwner: p.Owner,
	}
}

// shown is the digest of the card, whose JSON an archive writes in another way than the bot did.
func (p proof) shown() string {
	var b bytes.Buffer
	json.HTMLEscape(&b, p.Shown)
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

// action has the text of an action in place of its bytes.
type action struct {
	approvals.Action
	Text  string          `json:"text"`
	Args  json.RawMessage `json:"args"`
	Steps []action        `json:"steps"`
}

func (a action) whole() approvals.Action {
	out := a.Action
	if a.Text != "" {
		out.Bytes = []byte(a.Text)
	}
	out.Args, out.Steps = a.Args, nil
	for _, s := range a.Steps {
		out.Steps = append(out.Steps, s.whole())
	}
	return out
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

// request checks one request that was let run.
func (v *verifier) request(r request, redacted bool) {
	switch r.State {
	case approvals.Approved, approvals.Running, approvals.Done, approvals.OutcomeUnknown:
	default:
		return // nothing ran by it
	}
	name := fmt.Sprintf("Request %s", r.ID)
	wrong := len(v.found)
	switch digest := r.Action.whole().Digest(); {
	case digest == r.Digest:
	case redacted:
		v.good("%s: a secret was taken out of it, so its digest can't be calculated here.", name)
		wrong++
	default:
		v.bad("%s: what it says to run isn't what was decided: its digest is %s, and that of its text %s.", name, r.Digest.Short(), digest.Short())
	}
	if !v.decided[string(r.ID)][r.Digest.String()] {
		v.bad("%s: the chain of decisions has no approval of it.", name)
	}
	if r.State != approvals.Approved && !v.began[string(r.ID)] {
		v.bad("%s: it is said to have run, and the chain of decisions doesn't say so.", name)
	}
	if r.Basis.Kind != approvals.ByVotes {
		if len(v.found) == wrong {
			v.good("%s: it ran by %s (%s).", name, r.Basis.Kind, r.Basis.Why)
		}
		return
	}
	r.Record.Votes = nil
	for _, x := range r.Votes {
		r.Record.Votes = append(r.Record.Votes, x.Vote)
	}
	if !r.Satisfied() {
		v.bad("%s: its votes aren't enough for what it needed.", name)
	}
	var people []string
	owners := map[string]bool{}
	signed := 0
	for _, vote := range r.Votes {
		if !vote.Approve {
			continue
		}
		people = append(people, who(vote.User))
		if vote.Passkey == nil {
			if r.Require.Proof != "" {
				v.bad("%s: the vote of %s had to be signed, and isn't.", name, who(vote.User))
			}
			continue
		}
		if err := v.vote(r, vote, redacted); err != nil {
			v.bad("%s: the vote of %s: %v.", name, who(vote.User), err)
			continue
		}
		if owners[vote.Passkey.Owner] {
			v.bad("%s: two votes are signed by the passkeys of %s.", name, vote.Passkey.Owner)
		}
		owners[vote.Passkey.Owner] = true
		signed++
	}
	if len(v.found) == wrong {
		v.good("%s: approved by %s; %d of %s signed.", name, strings.Join(people, " and "), signed, words.Plural(len(people), "vote"))
	}
}

// vote checks a vote that is signed.
func (v *verifier) vote(r request, vote vote, redacted bool) error {
	p := vote.Passkey.whole()
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
	case s.For != kind || s.Request != string(r.ID) || s.Digest != r.Digest.String() || s.Voter != string(vote.User.ID) || s.Owner != p.KeyOwner:
		return errors.New("what was signed is something else")
	case s.Shown != vote.Passkey.shown() && !bytes.Contains(p.Shown, []byte("[redacted")):
		return errors.New("the card in the record isn't the one that was shown")
	case v.keys != nil && !slices.ContainsFunc(v.keys[p.KeyOwner], func(d string) bool { return strings.HasPrefix(key, d) }):
		return fmt.Errorf("it is signed by a passkey of %s that you didn't name (%s)", p.KeyOwner, key[:16])
	}
	return nil
}

func who(u chat.User) string {
	if u.Name != "" {
		return u.Name
	}
	return string(u.ID)
}
