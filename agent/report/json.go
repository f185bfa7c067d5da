package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
)

// json is v as JSON, in which every text is without its secrets.
func (w writer) json(v any) ([]byte, error) {
	raw, err := approvals.Encode(v)
	if err != nil {
		return nil, err
	}
	return approvals.Rewrite("", raw, w.beside)
}

// withheld stands for a text of which nothing else can be shown.
const withheld = "[redacted]"

// beside is a text without its secrets, those included that only its name gives away.
func (w writer) beside(key, s string) string {
	s = w.clean(s)
	if key == "" || s == "" {
		return s
	}
	name, err := approvals.Encode(key)
	if err != nil {
		return withheld
	}
	value, err := approvals.Encode(s)
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

// row is a request as approvals.jsonl has it. Its salts let a reader calculate the hash that the chain of decisions has
// of it; in the place of one, a member of which a secret was taken out has "=" and its own hash.
func (w writer) row(r approvals.Record) (out []byte, err error) {
	salts := map[string]string{}
	for _, m := range r.Row() {
		shown, err := w.member(r, m)
		if err != nil {
			return nil, err
		}
		switch {
		case m.Apart:
		case r.Leaves[m.Name] == "" && bytes.Equal(shown, m.Raw):
			salts[m.Name] = r.Salt(m.Name)
		default:
			salts[m.Name] = "=" + r.Leaf(m)
		}
		out = fmt.Appendf(out, ",%q:%s", m.Name, shown)
	}
	if r.Nonce != "" {
		raw, err := approvals.Encode(salts)
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, `,"salts":%s`, raw)
	}
	out[0] = '{'
	return append(out, '}'), nil
}

// member is a member without its secrets. What passkeys signed stands as it is.
func (w writer) member(r approvals.Record, m approvals.Member) ([]byte, error) {
	raw, signed := m.Raw, map[string]json.RawMessage{}
	for i, v := range r.Votes {
		if m.Name != "votes" || v.Passkey == nil {
			continue
		}
		text, err := approvals.Encode(approvals.Signed{Response: v.Passkey.Response, Public: v.Passkey.Public, Key: v.Passkey.KeyID})
		if err == nil {
			text, err = approvals.Rewrite("", text, func(_, s string) string { return s })
		}
		if err != nil {
			return nil, err
		}
		mark := fmt.Sprintf(`"signed %d"`, i)
		for bytes.Contains(m.Raw, []byte(mark)) { // which nothing else may pass for
			mark = strings.Replace(mark, " ", "  ", 1)
		}
		signed[mark] = text
		raw = bytes.Replace(raw, append([]byte(`"signed":`), text...), []byte(`"signed":`+mark), 1)
	}
	raw, err := approvals.Rewrite(m.Name, raw, w.beside)
	for mark, text := range signed {
		raw = bytes.Replace(raw, []byte(mark), text, 1)
	}
	return raw, err
}
