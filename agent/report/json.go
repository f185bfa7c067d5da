package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/passkey"
)

// encode is JSON on one line, without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// json is v as JSON, in which every text is without its secrets.
func (w writer) json(v any) ([]byte, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := w.value(d, &out, ""); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// value copies the next value. key is the name that it stands under: a password is known
// by the name beside it.
func (w writer) value(d *json.Decoder, out *bytes.Buffer, key string) error {
	tok, err := d.Token()
	if err != nil {
		return err
	}
	switch v := tok.(type) {
	case json.Delim:
		return w.members(d, out, key, v)
	case string:
		return w.quote(out, w.beside(key, v))
	case json.Number:
		if s := w.beside(key, v.String()); s != v.String() {
			return w.quote(out, s)
		}
		out.WriteString(v.String())
	case bool:
		if v {
			out.WriteString("true")
		} else {
			out.WriteString("false")
		}
	case nil:
		out.WriteString("null")
	}
	return nil
}

func (w writer) members(d *json.Decoder, out *bytes.Buffer, key string, open json.Delim) error {
	out.WriteRune(rune(open))
	for n := 0; d.More(); n++ {
		if n > 0 {
			out.WriteByte(',')
		}
		inner := key
		if open == '{' {
			tok, err := d.Token()
			if err != nil {
				return err
			}
			name, ok := tok.(string)
			if !ok {
				return errors.New("a member has no name")
			}
			if err := w.quote(out, w.clean(name)); err != nil {
				return err
			}
			out.WriteByte(':')
			inner = name
		}
		if err := w.value(d, out, inner); err != nil {
			return err
		}
	}
	end, err := d.Token()
	if err != nil {
		return err
	}
	if c, ok := end.(json.Delim); ok {
		out.WriteRune(rune(c))
	}
	return nil
}

func (writer) quote(out *bytes.Buffer, s string) error {
	raw, err := encode(s)
	out.Write(raw)
	return err
}

// withheld stands for a text of which nothing else can be shown.
const withheld = "[redacted]"

// beside is a text without its secrets, those included that only its name gives away.
func (w writer) beside(key, s string) string {
	s = w.clean(s)
	if key == "" || s == "" {
		return s
	}
	name, err := encode(key)
	if err != nil {
		return withheld
	}
	value, err := encode(s)
	if err != nil {
		return withheld
	}
	pair := string(name) + ": " + string(value)
	shown := w.r.Redact(pair)
	if shown == pair {
		return s
	}
	rest, ok := strings.CutPrefix(shown, string(name)+": ")
	var out string
	if !ok || json.Unmarshal([]byte(rest), &out) != nil {
		return withheld
	}
	return out
}

// maxFile is how much of a file that came with a message the transcript shows, in bytes.
const maxFile = 256 << 10

// shownEntry is an entry as transcript.jsonl has it: without what only a model's provider
// understands, and without files that are no text.
func (w writer) shownEntry(e history.Entry) history.Entry {
	if e.Reply != nil {
		r := *e.Reply
		r.Opaque = nil
		r.Calls = make([]llm.Call, len(e.Reply.Calls))
		for i, c := range e.Reply.Calls {
			c.Meta = nil
			r.Calls[i] = c
		}
		e.Reply = &r
	}
	if e.Message != nil && len(e.Message.Files) > 0 {
		m := *e.Message
		m.Files = make([]chat.File, len(e.Message.Files))
		for i, f := range e.Message.Files {
			if len(f.Data) > 0 {
				f.Data, f.Cut = nil, true
			}
			if f.Text = w.clean(f.Text); len(f.Text) > maxFile {
				f.Text, f.Cut = firstBytes(f.Text, maxFile), true
			}
			m.Files[i] = f
		}
		e.Message = &m
	}
	return e
}

// firstBytes keeps at most n bytes, by whole characters.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// shownRecord is a request as approvals.jsonl has it: with the text of its action instead
// of its bytes, which would hide from who takes out secrets, and without the nonce, which
// is for buttons alone.
type shownRecord struct {
	approvals.Record
	Action shownAction `json:"action"`
	Votes  []shownVote `json:"votes,omitempty"`
	Nonce  *struct{}   `json:"nonce,omitempty"`
}

// shownVote is a vote as approvals.jsonl has it.
type shownVote struct {
	approvals.Vote
	Passkey *shownProof `json:"passkey,omitempty"`
}

// shownProof is what a passkey signed, as text, from which secrets are taken out like from any
// other. The signature, the browser's answer and the public key stand as they are in the place of
// the mark Signed.
type shownProof struct {
	Statement string          `json:"statement"`
	Shown     json.RawMessage `json:"shown,omitempty"`
	Site      passkey.Site    `json:"site"`
	Owner     string          `json:"owner"`
	By        string          `json:"by,omitempty"`
	Added     time.Time       `json:"added"`
	Signed    string          `json:"signed"`
}

// verbatim is text that stands as it is in place of a mark.
type verbatim map[string]json.RawMessage

// in puts the texts in the places of their marks.
func (v verbatim) in(raw []byte) []byte {
	for mark, text := range v {
		raw = bytes.ReplaceAll(raw, []byte(`"`+mark+`"`), text)
	}
	return raw
}

// votesOf are the votes of a record, and what stands verbatim in them.
func votesOf(r approvals.Record) ([]shownVote, verbatim) {
	all, _ := encode(r) // what can't be encoded is left out as a whole
	signed, n := verbatim{}, 0
	mark := func() string { // one that nothing else in the record can pass for
		for ; ; n++ {
			if m := fmt.Sprintf("signed %d", n); !bytes.Contains(all, []byte(m)) {
				n++
				return m
			}
		}
	}
	out := make([]shownVote, 0, len(r.Votes))
	for _, v := range r.Votes {
		s := shownVote{Vote: v}
		if p := v.Passkey; p != nil {
			text, err := json.Marshal(map[string]any{"response": p.Response, "public": p.Public, "key": p.KeyID})
			if err == nil {
				m := mark()
				signed[m] = text
				s.Passkey = &shownProof{Statement: string(p.Statement), Shown: p.Shown, Site: p.Site, Owner: p.KeyOwner, By: p.KeyBy, Added: p.KeyAdded, Signed: m}
			}
		}
		out = append(out, s)
	}
	return out, signed
}

type shownAction struct {
	approvals.Action
	Bytes *struct{}     `json:"bytes,omitempty"`
	Text  string        `json:"text,omitempty"`
	Args  any           `json:"args,omitempty"`
	Steps []shownAction `json:"steps,omitempty"`
}

func actionOf(a approvals.Action) shownAction {
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
