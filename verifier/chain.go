package verifier

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

const (
	hashBegin  = `,"hash":"`
	textsBegin = `","texts":`
)

// row is what an anchor, a head or the beginning of a chain says.
type row struct {
	Anchor  uint64 `json:"anchor"`
	Thread  string `json:"thread"`
	From    uint64 `json:"from"`
	N       uint64 `json:"n"`
	Hash    string `json:"hash"`
	Threads int    `json:"threads"`
	Root    string `json:"root"`
	Prev    string `json:"prev"`
}

// links reads an export.
type links struct {
	v      *verifier
	faults int
	ended  bool

	withheld int    // lines whose texts can't be checked
	sum      []byte // of the bytes before the end
	lines    int
	chains   int
	header   struct {
		Thread  string    `json:"thread"`
		Since   string    `json:"since"`
		At      time.Time `json:"at"`
		Anchors struct {
			N    uint64 `json:"n"`
			Hash string `json:"hash"`
		} `json:"anchors"`
	}

	anchor row
	last   string // the hash of the anchor before
	head   string // the thread of the head before
	under  int    // heads of the present anchor
	roots  []byte // their lines
	chain  *row
	at     uint64 // the next line of the chain
	prev   string
	hashes map[string]map[uint64]string // thread -> line -> hash, where a head names it
	wanted map[string]map[uint64]string
}

func (l *links) wrong(format string, a ...any) {
	l.faults++
	l.v.say(Bad, "The chain of decisions is broken: "+format+".", a...)
}

// chain checks audit.jsonl, and remembers what was decided.
func (v *verifier) chain(raw []byte) {
	l := &links{v: v, hashes: map[string]map[uint64]string{}, wanted: map[string]map[uint64]string{}}
	hash := sha256.New()
	n := 0
	for line := range bytes.Lines(raw) {
		text, ok := bytes.CutSuffix(line, []byte("\n"))
		if n++; !ok {
			l.wrong("its last line isn't whole")
		}
		if l.ended {
			l.wrong("something comes after its end")
			break
		}
		l.sum = hash.Sum(nil)
		l.line(n, text)
		_, _ = hash.Write(line)
	}
	if !l.ended {
		l.wrong("its end is missing")
	}
	l.closeAnchor()
	l.closeChain()
	v.made = l.header.At
	if l.header.Anchors.N != uint64(len(v.anchors)) || l.header.Anchors.Hash != l.last {
		l.wrong("it has %d anchors and should have %d", len(v.anchors), l.header.Anchors.N)
	}
	for thread, at := range l.wanted {
		for n, want := range at {
			if got, ok := l.hashes[thread][n]; ok && got != want {
				l.wrong("line %d of %s isn't the one that an anchor covers", n, printable(thread))
			}
		}
	}
	if l.withheld > 0 {
		v.say(Open, "Secrets were taken out of the texts of %s of the chain, so these texts can't be checked here.", plural(l.withheld, "line"))
	}
	if l.faults == 0 {
		v.say(Good, "The chain of decisions is whole: %s, %s.", plural(l.lines, "line"), plural(len(v.anchors), "anchor"))
	}
}

// part reads the one member of a line; hashes are over the bytes inside (docs/audit.md).
func part(line []byte) (kind string, inner []byte, ok bool) {
	name, rest, ok := bytes.Cut(bytes.TrimPrefix(line, []byte(`{"`)), []byte(`":`))
	inner, closed := bytes.CutSuffix(rest, []byte("}"))
	return string(name), inner, ok && closed && bytes.HasPrefix(line, []byte(`{"`))
}

func (l *links) line(n int, line []byte) {
	if err := exact(line, chainFields); err != nil {
		l.wrong("its line %d can't be read (%v)", n, err)
	}
	kind, inner, ok := part(line)
	switch {
	case n == 1:
		if kind != "export" || !ok || json.Unmarshal(inner, &l.header) != nil {
			l.wrong("it doesn't begin as an export does")
		}
	case kind == "anchor" && l.chain == nil:
		l.closeAnchor()
		l.openAnchor(inner)
	case kind == "head" && l.chain == nil:
		var h row
		if !ok || json.Unmarshal(inner, &h) != nil || h.Anchor != l.anchor.N || h.N == 0 || l.under > 0 && h.Thread <= l.head {
			l.wrong("a head of anchor %d can't be read", l.anchor.N)
			return
		}
		l.head = h.Thread
		l.under++
		l.roots = append(append(l.roots, line...), '\n')
		if l.wanted[h.Thread] == nil {
			l.wanted[h.Thread], l.hashes[h.Thread] = map[uint64]string{}, map[uint64]string{}
		}
		l.wanted[h.Thread][h.N-1] = h.Hash
	case kind == "chain":
		l.closeAnchor()
		l.closeChain()
		var c row
		if !ok || json.Unmarshal(inner, &c) != nil || c.From > c.N || c.From > 0 && l.header.Since == "" {
			l.wrong("the beginning of a chain can't be read")
		}
		l.chain, l.at, l.prev = &c, c.From, ""
		l.chains++
	case kind == "end":
		l.end(inner, ok)
	case l.chain == nil:
		l.wrong("its line %d is neither an anchor nor a chain", n)
	default:
		l.record(line, kind, inner, ok)
	}
}

func (l *links) openAnchor(whole []byte) {
	inner, rest, ok := bytes.Cut(whole, []byte(hashBegin))
	sum := sha256.Sum256(inner)
	var a row
	if !ok || string(rest) != hex.EncodeToString(sum[:])+`"` || json.Unmarshal(inner, &a) != nil {
		l.wrong("anchor %d was changed", len(l.v.anchors))
	}
	if a.N != uint64(len(l.v.anchors)) || a.Prev != l.last {
		l.wrong("anchor %d doesn't follow the one before it", len(l.v.anchors))
	}
	l.anchor, l.last, l.under, l.roots = a, hex.EncodeToString(sum[:]), 0, nil
	l.v.anchors = append(l.v.anchors, bytes.Clone(inner)) // which frees the rest
}

// closeAnchor compares an anchor with its heads, if they are there: an export of one thread leaves
// those of others out.
func (l *links) closeAnchor() {
	if l.under == 0 {
		if len(l.v.anchors) > 0 && l.chain == nil && l.header.Thread == "" && l.header.Since == "" && l.anchor.Threads > 0 && l.roots == nil {
			l.wrong("the heads of anchor %d are missing", l.anchor.N)
		}
		l.roots = []byte{} // said
		return
	}
	sum := sha256.Sum256(l.roots)
	if l.under != l.anchor.Threads || hex.EncodeToString(sum[:]) != l.anchor.Root {
		l.wrong("the heads of anchor %d aren't those that it covers", l.anchor.N)
	}
	l.under, l.roots = 0, []byte{}
}

// record checks a line of a chain.
func (l *links) record(line []byte, kind string, whole []byte, closed bool) {
	l.lines++
	c := l.chain
	n := l.at
	l.at++
	var r entry
	var x struct {
		Withheld bool   `json:"withheld"`
		Outcome  string `json:"outcome"`
	}
	var hash string
	if kind == "n" { // of the first form: the hash is over the line without it
		cut := len(line) - 2*sha256.Size - len(`"}`)
		if cut < 0 || !bytes.HasSuffix(line[:cut], []byte(hashBegin)) || json.Unmarshal(line, &r) != nil {
			l.wrong("line %d of %s can't be read", n, printable(c.Thread))
			return
		}
		sum := sha256.Sum256(append(bytes.Clone(line[:cut]), `"}`...))
		if hash = hex.EncodeToString(sum[:]); hash != string(line[cut:cut+2*sha256.Size]) {
			l.wrong("line %d of %s was changed", n, printable(c.Thread))
		}
		r.event, r.Thread = r.Event, c.Thread
		x.Outcome = r.Event.Note
	} else {
		inner, rest, ok := bytes.Cut(whole, []byte(hashBegin))
		said, beside, ok2 := strings.Cut(string(rest), textsBegin)
		if !ok || !ok2 || !closed || kind != "record" || json.Unmarshal(inner, &r) != nil {
			l.wrong("line %d of %s can't be read", n, printable(c.Thread))
			return
		}
		sum := sha256.Sum256(inner)
		hash = hex.EncodeToString(sum[:])
		texts := sha256.Sum256([]byte(beside))
		err := json.Unmarshal([]byte(beside), &x)
		switch {
		case hash != said || r.Thread != c.Thread:
			l.wrong("line %d of %s was changed", n, printable(c.Thread))
		case err != nil, !x.Withheld && hex.EncodeToString(texts[:]) != r.Texts, x.Withheld && !strings.Contains(beside, redacted):
			l.wrong("a text of line %d of %s was changed", n, printable(c.Thread))
		case x.Withheld:
			l.withheld++
		}
	}
	if r.N != n || n > c.From && r.Prev != l.prev || n == 0 && r.Prev != "" {
		l.wrong("line %d of %s doesn't follow the one before it", n, printable(c.Thread))
	}
	l.prev = hash
	if _, ok := l.wanted[c.Thread][n]; ok {
		l.hashes[c.Thread][n] = hash
	}
	if r.Approval != "" {
		l.v.deed(r, x.Outcome, x.Withheld)
	}
}

func (l *links) closeChain() {
	c := l.chain
	if c == nil {
		return
	}
	if l.at != c.N || c.N > c.From && l.prev != c.Hash {
		l.wrong("%s has %d lines and should have %d", printable(c.Thread), l.at, c.N)
	}
	for n := range l.wanted[c.Thread] {
		if n >= c.N {
			l.wrong("%s has %d lines, and an anchor covers line %d", printable(c.Thread), c.N, n)
		}
	}
}

func (l *links) end(inner []byte, ok bool) {
	l.ended = true
	var e struct {
		Anchors int    `json:"anchors"`
		Chains  int    `json:"chains"`
		Lines   int    `json:"lines"`
		SHA256  string `json:"sha256"`
	}
	if !ok || json.Unmarshal(inner, &e) != nil || e.Anchors != len(l.v.anchors) || e.Chains != l.chains || e.Lines != l.lines || e.SHA256 != hex.EncodeToString(l.sum) {
		l.wrong("its bytes aren't those that were exported")
	}
}
