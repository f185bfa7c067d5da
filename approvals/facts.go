package approvals

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"countersign/approvals/passkey"
	"countersign/store"
)

// Member is one member of a request as an archive has it: all that it says, in one form.
type Member struct {
	Name string
	Raw  json.RawMessage
	// Apart says that the hash of the request has nothing of it: of the action, which has its digest, and of the
	// preview while the request waits, which comes late.
	Apart bool
}

// Row is the request as approvals.jsonl has it: with the text of its action instead of the bytes, which would
// hide from who takes out secrets, and without the nonce, which is for buttons alone, and the steps, each of
// which names its plan.
func (r Record) Row() []Member {
	shown := shownRecord{Record: r, Action: actionOf(r.Action)}
	for _, v := range r.Votes {
		shown.Votes = append(shown.Votes, shownVote{v, proofOf(v.Passkey)})
	}
	raw, err := Encode(shown)
	if err == nil {
		raw, err = Rewrite("", raw, func(_, s string) string { return s })
	}
	var row []Member
	d := json.NewDecoder(bytes.NewReader(raw))
	for d.More() && err == nil {
		var tok json.Token
		if tok, err = d.Token(); tok == json.Delim('{') {
			continue
		}
		m := Member{Name: fmt.Sprint(tok), Apart: tok == "action" || tok == "preview" && r.State == Pending}
		if err == nil {
			err = d.Decode(&m.Raw)
		}
		row = append(row, m)
	}
	if err != nil {
		store.Abort(fmt.Errorf("approvals: the request %s cannot be written: %w", r.ID, err))
	}
	return row
}

// Facts is the hash of the request's row, for the chain of decisions. It is over one hash of each member, so that an
// archive can leave a secret out of one and prove the others. It is empty for a request that was not filed.
func (r Record) Facts() string {
	if r.Nonce == "" {
		return ""
	}
	r.Action = Action{} // which may be large
	row := r.Row()
	slices.SortFunc(row, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	sum := sha256.New()
	for _, m := range row {
		if !m.Apart {
			_, _ = fmt.Fprintf(sum, "%q %s\n", m.Name, r.Leaf(m))
		}
	}
	return "2:" + hex.EncodeToString(sum.Sum(nil))
}

// Salt is what the hash of a member has been made with. Without it, nobody can guess a text from its hash.
func (r Record) Salt(member string) string { return keyed(r.Nonce, member)[:32] }

// Leaf is the hash of a member.
func (r Record) Leaf(m Member) string {
	return cmp.Or(r.Leaves[m.Name], keyed(r.Salt(m.Name), string(m.Raw)))
}

func keyed(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	_, _ = io.WriteString(h, text)
	return hex.EncodeToString(h.Sum(nil))
}

type shownRecord struct {
	Record
	Action shownAction `json:"action"`
	Votes  []shownVote `json:"votes,omitempty"`
	Nonce  *struct{}   `json:"nonce,omitempty"`
	Steps  *struct{}   `json:"steps,omitempty"`
	Leaves *struct{}   `json:"leaves,omitempty"`
}

type shownVote struct {
	Vote
	Passkey *shownProof `json:"passkey,omitempty"`
}

// shownProof is what a passkey signed, as text, from which secrets are taken out like from any other.
type shownProof struct {
	Statement string          `json:"statement"`
	Shown     json.RawMessage `json:"shown,omitempty"`
	Site      passkey.Site    `json:"site"`
	Owner     string          `json:"owner"`
	By        string          `json:"by,omitempty"`
	Added     time.Time       `json:"added"`
	Signed    Signed          `json:"signed"`
}

// Signed are the signature, the browser's answer and the public key, which stand in an archive as they are.
type Signed struct {
	Response json.RawMessage `json:"response"`
	Public   []byte          `json:"public"`
	Key      string          `json:"key"`
}

func proofOf(p *passkey.Proof) *shownProof {
	if p == nil {
		return nil
	}
	return &shownProof{string(p.Statement), p.Shown, p.Site, p.KeyOwner, p.KeyBy, p.KeyAdded, Signed{p.Response, p.Public, p.KeyID}}
}

type shownAction struct {
	Action
	Bytes *struct{}     `json:"bytes,omitempty"`
	Text  string        `json:"text,omitempty"`
	Args  any           `json:"args,omitempty"`
	Steps []shownAction `json:"steps,omitempty"`
}

func actionOf(a Action) shownAction {
	s := shownAction{Action: a, Text: string(a.Bytes)}
	switch {
	case len(a.Args) == 0:
	case json.Valid(a.Args):
		s.Args = a.Args
	default:
		s.Args = string(a.Args)
	}
	for _, step := range a.Steps {
		s.Steps = append(s.Steps, actionOf(step))
	}
	return s
}

// Encode is JSON on one line, without escapes for HTML.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Rewrite copies JSON with each text, and each number, changed by a function that is given the name beside it; key
// is that beside the whole. What it does not change comes out the same however it was escaped.
func Rewrite(key string, raw []byte, change func(key, text string) string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out bytes.Buffer
	w := rewriter{d, &out, change}
	err := w.value(key)
	return out.Bytes(), err
}

type rewriter struct {
	*json.Decoder
	out    *bytes.Buffer
	change func(key, text string) string
}

func (w rewriter) value(key string) error {
	tok, err := w.Token()
	if err != nil {
		return err
	}
	switch v := tok.(type) {
	case json.Delim:
		return w.members(key, v)
	case string:
		return w.quote(w.change(key, v))
	case json.Number:
		if s := w.change(key, v.String()); s != v.String() {
			return w.quote(s)
		}
		w.out.WriteString(v.String())
	default: // true, false and null
		return w.quote(v)
	}
	return nil
}

func (w rewriter) members(key string, open json.Delim) error {
	w.out.WriteRune(rune(open))
	for n := 0; w.More(); n++ {
		if n > 0 {
			w.out.WriteByte(',')
		}
		inner := key
		if open == '{' {
			tok, err := w.Token()
			if err != nil {
				return err
			}
			name, ok := tok.(string)
			if !ok {
				return errors.New("a member has no name")
			}
			if err := w.quote(w.change("", name)); err != nil {
				return err
			}
			w.out.WriteByte(':')
			inner = name
		}
		if err := w.value(inner); err != nil {
			return err
		}
	}
	end, err := w.Token()
	if c, ok := end.(json.Delim); ok {
		w.out.WriteRune(rune(c))
	}
	return err
}

func (w rewriter) quote(v any) error {
	raw, err := Encode(v)
	w.out.Write(raw)
	return err
}
