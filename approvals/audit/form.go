package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// The rows, which are the lines of an export as well. Each is one line of JSON
// without blanks between its parts, fields in the order of the structs below, and
// with &, < and > as they are. A hash is over bytes as they stand in the row, so
// nobody has to build them again to verify:
//
//	{"record":R,"hash":"H","texts":T}   a line; H = SHA-256 of R, and R holds SHA-256 of T
//	{"n":...,"prev":"P","hash":"H"}     a line of the first form; H = SHA-256 of the line with H empty
//	{"anchor":A,"hash":"H"}             an anchor; H = SHA-256 of A
//	{"head":{...}}                      a head that an anchor covers; the anchor's root = SHA-256 of
//	                                    all its heads, each with a line feed, by thread in byte order
//
// The texts stand beside the record, hashed with a random salt, so that an export
// can leave a secret out and the chain still verifies: without the salt nobody can
// guess the text from its hash.
const (
	formVersion = 2 // "v" of records and anchors; lines of the first form have none

	recordBegin = `{"record":`
	anchorBegin = `{"anchor":`
	headBegin   = `{"head":`
	firstBegin  = `{"n":`
	hashBegin   = `,"hash":"`
	textsBegin  = `","texts":`
	// withheldBegin wraps, in exports only, a line of the first form whose note is
	// not the one that its hash covers.
	withheldBegin = `{"withheld":`
	hexLength     = 2 * sha256.Size
)

type record struct {
	V             int       `json:"v"`
	Thread        string    `json:"thread"`
	N             uint64    `json:"n"`
	At            time.Time `json:"at"`
	What          string    `json:"what"`
	Approval      string    `json:"approval,omitempty"`
	Call          string    `json:"call,omitempty"`
	Digest        string    `json:"digest,omitempty"`
	Tool          string    `json:"tool,omitempty"`
	Kind          string    `json:"kind,omitempty"`
	Target        string    `json:"target,omitempty"`
	Level         string    `json:"level,omitempty"`
	Effects       []string  `json:"effects,omitempty"`
	Rule          string    `json:"rule,omitempty"`
	Policy        string    `json:"policy,omitempty"`
	User          string    `json:"user,omitempty"`
	Groups        []string  `json:"groups,omitempty"`
	Via           string    `json:"via,omitempty"`
	CommandSHA256 string    `json:"command_sha256,omitempty"`
	OK            bool      `json:"ok,omitempty"`
	Facts         string    `json:"facts,omitempty"`
	TextsSHA256   string    `json:"texts_sha256"`
	Prev          string    `json:"prev"`
}

type texts struct {
	Salt     string `json:"salt,omitempty"`
	Withheld bool   `json:"withheld,omitempty"`
	Command  string `json:"command,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	Note     string `json:"note,omitempty"`
}

// firstLine is a line of the first form, which knew fewer fields.
type firstLine struct {
	N     uint64     `json:"n"`
	At    time.Time  `json:"at"`
	Event firstEvent `json:"event"`
	Prev  string     `json:"prev"`
	Hash  string     `json:"hash"`
}

type firstEvent struct {
	What     string `json:"what"`
	Approval string `json:"approval"`
	Digest   string `json:"digest,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Target   string `json:"target,omitempty"`
	Level    string `json:"level,omitempty"`
	User     string `json:"user,omitempty"`
	Via      string `json:"via,omitempty"`
	Note     string `json:"note,omitempty"`
}

// encode is the canonical encoding.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode is strict: it refuses unknown fields and anything after the value.
func decode(raw []byte, v any) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v) == nil && d.InputOffset() == int64(len(raw))
}

// canonical reports whether raw is exactly the encoding of what it decodes to,
// for rows that no hash covers.
func canonical[T any](raw []byte, v *T) bool {
	if !decode(raw, v) {
		return false
	}
	again, err := encode(v)
	return err == nil && bytes.Equal(again, raw)
}

func sum(b ...[]byte) string {
	h := sha256.New()
	for _, p := range b {
		_, _ = h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func isHash(b []byte) bool {
	return len(b) == hexLength && len(bytes.Trim(b, "0123456789abcdef")) == 0
}

// encodeLine returns the row of a line and its hash.
func encodeLine(l Line, salt string) (raw []byte, hash string, err error) {
	e := l.Event
	beside, err := encode(texts{Salt: salt, Command: e.Command, Outcome: e.Outcome, Note: e.Note})
	if err != nil {
		return nil, "", err
	}
	body, err := encode(record{
		V: formVersion, Thread: l.Thread, N: l.N, At: l.At, What: e.What, Approval: e.Approval, Call: e.Call, Digest: e.Digest,
		Tool: e.Tool, Kind: e.Kind, Target: e.Target, Level: e.Level, Effects: e.Effects, Rule: e.Rule, Policy: e.Policy,
		User: e.User, Groups: e.Groups, Via: e.Via, CommandSHA256: e.CommandSHA256, OK: e.OK, Facts: e.Facts, TextsSHA256: sum(beside), Prev: l.Prev,
	})
	if err != nil {
		return nil, "", err
	}
	hash = sum(body)
	return join(body, hash, beside), hash, nil
}

func join(body []byte, hash string, beside []byte) []byte {
	return []byte(recordBegin + string(body) + hashBegin + hash + textsBegin + string(beside) + "}")
}

// parsed is what can be made of a row, well or not. A row that cannot be read at
// all has an empty Hash.
type parsed struct {
	Line
	computed string // the hash that the row should have
	first    bool   // of the first form
	problem  string // what is wrong with the row by itself: "was changed"; "" if nothing
}

const unreadable = "cannot be read"

func parseLine(raw []byte) parsed {
	if bytes.HasPrefix(raw, []byte(firstBegin)) {
		return parseFirst(raw)
	}
	if inner, ok := bytes.CutPrefix(raw, []byte(withheldBegin)); ok {
		p := parseFirst(bytes.TrimSuffix(inner, []byte("}")))
		p.Withheld, p.problem = true, "cannot be checked: it is of the first form, and its note was left out of the export"
		return p
	}
	rest, ok := bytes.CutPrefix(raw, []byte(recordBegin))
	if !ok {
		return parsed{problem: unreadable}
	}
	// A quote inside a JSON string is escaped, so this cannot stand in one.
	body, rest, ok := bytes.Cut(rest, []byte(hashBegin))
	if !ok || len(rest) < hexLength || !isHash(rest[:hexLength]) {
		return parsed{problem: unreadable}
	}
	p := parsed{computed: sum(body)}
	hash := string(rest[:hexLength])
	beside, ok := bytes.CutPrefix(rest[hexLength:], []byte(textsBegin))
	if beside, ok = cutSuffix(beside, "}", ok); !ok {
		return parsed{problem: unreadable}
	}
	var r record
	var x texts
	if !decode(body, &r) {
		p.Hash, p.problem = hash, "was changed"
		return p
	}
	if hash == p.computed && r.V != formVersion {
		return parsed{problem: "is of a newer form that this version does not know"}
	}
	textsOK := canonical(beside, &x)
	p.Line = Line{
		Thread: r.Thread, N: r.N, At: r.At, Prev: r.Prev, Hash: hash, Withheld: x.Withheld,
		Event: Event{
			What: r.What, Approval: r.Approval, Call: r.Call, Digest: r.Digest, Tool: r.Tool, Kind: r.Kind, Target: r.Target,
			Level: r.Level, Effects: r.Effects, Rule: r.Rule, Policy: r.Policy, User: r.User, Groups: r.Groups, Via: r.Via,
			Command: x.Command, CommandSHA256: r.CommandSHA256, Outcome: x.Outcome, Note: x.Note, OK: r.OK, Facts: r.Facts,
		},
	}
	switch {
	case hash != p.computed:
		p.problem = "was changed"
	case !textsOK, !x.Withheld && sum(beside) != r.TextsSHA256:
		p.problem = "has a text that was changed"
	}
	return p
}

func cutSuffix(b []byte, end string, ok bool) ([]byte, bool) {
	if !ok {
		return nil, false
	}
	return bytes.CutSuffix(b, []byte(end))
}

// parseFirst reads a line of the first form. Its hash is over the line with an
// empty hash in it.
func parseFirst(raw []byte) parsed {
	const end = `"}`
	cut := len(raw) - hexLength - len(end)
	if cut < 0 || !bytes.HasSuffix(raw[:cut], []byte(hashBegin)) || !isHash(raw[cut:cut+hexLength]) || string(raw[cut+hexLength:]) != end {
		return parsed{problem: unreadable}
	}
	p := parsed{first: true, computed: sum(raw[:cut], []byte(end))}
	hash := string(raw[cut : cut+hexLength])
	var f firstLine
	if !decode(raw, &f) {
		p.Hash, p.problem = hash, "was changed"
		return p
	}
	e := f.Event
	p.Line = Line{
		N: f.N, At: f.At, Prev: f.Prev, Hash: hash,
		Event: Event{
			What: e.What, Approval: e.Approval, Digest: e.Digest, Tool: e.Tool, Target: e.Target, Level: e.Level, User: e.User, Via: e.Via, Note: e.Note,
		},
	}
	if hash != p.computed {
		p.problem = "was changed"
	}
	return p
}

// withhold returns the row as an export shows it: unchanged when clean finds
// nothing in its texts. A line of the first form has its text under the hash, so
// it is wrapped: who verifies must see that it cannot be checked.
func withhold(raw []byte, clean func(string) string) ([]byte, error) {
	p := parseLine(raw)
	if p.Hash == "" || clean == nil {
		return raw, nil
	}
	command, outcome, note := clean(p.Event.Command), clean(p.Event.Outcome), clean(p.Event.Note)
	if command == p.Event.Command && outcome == p.Event.Outcome && note == p.Event.Note {
		return raw, nil
	}
	if p.first {
		e := p.Event
		body, err := encode(firstLine{N: p.N, At: p.At, Prev: p.Prev, Hash: p.Hash, Event: firstEvent{
			What: e.What, Approval: e.Approval, Digest: e.Digest, Tool: e.Tool, Target: e.Target, Level: e.Level, User: e.User, Via: e.Via, Note: note,
		}})
		return []byte(withheldBegin + string(body) + "}"), err
	}
	beside, err := encode(texts{Withheld: true, Command: command, Outcome: outcome, Note: note})
	if err != nil {
		return nil, err
	}
	body, _, _ := bytes.Cut(bytes.TrimPrefix(raw, []byte(recordBegin)), []byte(hashBegin))
	return join(body, p.Hash, beside), nil
}

// AnchorLine ties together the heads of all chains that grew since the anchor
// before it.
type AnchorLine struct {
	N       uint64 // from 0
	At      time.Time
	Root    string // SHA-256 in hex over the heads that it covers
	Threads uint64 // number of these heads
	Lines   uint64 // lines that this anchor and all before it cover, in all threads
	Prev    string // hash of the anchor before, "" for the first
	Hash    string
}

type anchorRecord struct {
	V       int       `json:"v"`
	N       uint64    `json:"n"`
	At      time.Time `json:"at"`
	Threads uint64    `json:"threads"`
	Lines   uint64    `json:"lines"`
	Root    string    `json:"root"`
	Prev    string    `json:"prev"`
}

// covered is one head under an anchor.
type covered struct {
	Anchor uint64 `json:"anchor"`
	Thread string `json:"thread"`
	From   uint64 `json:"from"` // lines that an anchor before covers
	N      uint64 `json:"n"`
	Hash   string `json:"hash"`
}

func encodeAnchor(a AnchorLine) (raw []byte, hash string, err error) {
	body, err := encode(anchorRecord{formVersion, a.N, a.At, a.Threads, a.Lines, a.Root, a.Prev})
	if err != nil {
		return nil, "", err
	}
	hash = sum(body)
	return []byte(anchorBegin + string(body) + hashBegin + hash + `"}`), hash, nil
}

// parseAnchor reads an anchor's row; the problem is "" when its hash fits. With
// an empty Hash nothing of it can be used.
func parseAnchor(raw []byte) (a AnchorLine, computed, problem string) {
	rest, ok := bytes.CutPrefix(raw, []byte(anchorBegin))
	body, rest, ok2 := bytes.Cut(rest, []byte(hashBegin))
	if hash, ok3 := bytes.CutSuffix(rest, []byte(`"}`)); ok && ok2 && ok3 && isHash(hash) {
		var r anchorRecord
		computed = sum(body)
		if decode(body, &r) {
			a = AnchorLine{r.N, r.At, r.Root, r.Threads, r.Lines, r.Prev, string(hash)}
		}
		switch {
		case a.Hash == "" || a.Hash != computed:
			return a, computed, "was changed"
		case r.V != formVersion:
			return AnchorLine{}, computed, "is of a newer form that this version does not know"
		}
		return a, computed, ""
	}
	return AnchorLine{}, "", unreadable
}

func encodeCovered(c covered) ([]byte, error) {
	body, err := encode(c)
	return []byte(headBegin + string(body) + "}"), err
}

func parseCovered(raw []byte) (c covered, ok bool) {
	body, ok := bytes.CutPrefix(raw, []byte(headBegin))
	if body, ok = cutSuffix(body, "}", ok); !ok {
		return c, false
	}
	return c, canonical(body, &c)
}

// name shows a thread's id, quoted when it has characters that could mislead.
func name(thread string) string {
	for _, r := range thread {
		if r <= ' ' || r > '~' || r == '"' {
			quoted, _ := encode(thread)
			return strings.Map(ascii, string(quoted))
		}
	}
	return thread
}

func ascii(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}
