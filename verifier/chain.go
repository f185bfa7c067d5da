package verifier

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// The parts of an export (docs/audit.md): each is one line, and hashes are over its bytes.
const (
	exportBegin = `{"export":`
	anchorBegin = `{"anchor":`
	headBegin   = `{"head":`
	chainBegin  = `{"chain":`
	recordBegin = `{"record":`
	firstBegin  = `{"n":`
	endBegin    = `{"end":`
	hashBegin   = `,"hash":"`
	textsBegin  = `","texts":`
)

// head is where a chain was when an anchor covered it.
type head struct {
	Anchor uint64 `json:"anchor"`
	Thread string `json:"thread"`
	From   uint64 `json:"from"`
	N      uint64 `json:"n"`
	Hash   string `json:"hash"`
}

// links reads an export.
type links struct {
	v      *verifier
	faults int
	ended  bool
	sum    []byte // of the bytes before the end
	lines  int
	chains int
	header struct {
		Thread  string `json:"thread"`
		Since   string `json:"since"`
		Anchors struct {
			N    uint64 `json:"n"`
			Hash string `json:"hash"`
		} `json:"anchors"`
	}

	anchor anchor
	last   string // the hash of the anchor before
	heads  []head
	under  int    // heads of the present anchor
	roots  []byte // their lines
	chain  *chain
	hashes map[string]map[uint64]string // thread -> line -> hash, where a head names it
	wanted map[string]map[uint64]string
}

type anchor struct {
	N       uint64 `json:"n"`
	Threads int    `json:"threads"`
	Root    string `json:"root"`
	Prev    string `json:"prev"`
}

type chain struct {
	Thread string `json:"thread"`
	From   uint64 `json:"from"`
	N      uint64 `json:"n"`
	Hash   string `json:"hash"`
	at     uint64 // the next line
	prev   string
}

func (l *links) wrong(format string, a ...any) {
	l.faults++
	l.v.bad("The chain of decisions is broken: "+format+".", a...)
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
	if l.faults == 0 {
		v.good("The chain of decisions is whole: %s, %s.", plural(l.lines, "line"), plural(len(v.anchors), "anchor"))
	}
}

// body cuts a part's object out of its line.
func body(line []byte, begin string) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(begin))
	inner, closed := bytes.CutSuffix(rest, []byte("}"))
	return inner, ok && closed
}

func (l *links) line(n int, line []byte) {
	switch {
	case n == 1:
		inner, ok := body(line, exportBegin)
		if !ok || json.Unmarshal(inner, &l.header) != nil {
			l.wrong("it doesn't begin as an export does")
		}
	case bytes.HasPrefix(line, []byte(anchorBegin)) && l.chain == nil:
		l.closeAnchor()
		l.openAnchor(line)
	case bytes.HasPrefix(line, []byte(headBegin)) && l.chain == nil:
		var h head
		inner, ok := body(line, headBegin)
		if !ok || json.Unmarshal(inner, &h) != nil || h.Anchor != l.anchor.N || h.N == 0 || len(l.heads) > 0 && l.under > 0 && h.Thread <= l.heads[len(l.heads)-1].Thread {
			l.wrong("a head of anchor %d can't be read", l.anchor.N)
			return
		}
		l.heads = append(l.heads, h)
		l.under++
		l.roots = append(append(l.roots, line...), '\n')
		if l.wanted[h.Thread] == nil {
			l.wanted[h.Thread], l.hashes[h.Thread] = map[uint64]string{}, map[uint64]string{}
		}
		l.wanted[h.Thread][h.N-1] = h.Hash
	case bytes.HasPrefix(line, []byte(chainBegin)):
		l.closeAnchor()
		l.closeChain()
		var c chain
		inner, ok := body(line, chainBegin)
		if !ok || json.Unmarshal(inner, &c) != nil || c.From > c.N || c.From > 0 && l.header.Since == "" {
			l.wrong("the beginning of a chain can't be read")
		}
		c.at = c.From
		l.chain = &c
		l.chains++
	case bytes.HasPrefix(line, []byte(endBegin)):
		l.end(line)
	case l.chain == nil:
		l.wrong("its line %d is neither an anchor nor a chain", n)
	default:
		l.record(line)
	}
}

func (l *links) openAnchor(line []byte) {
	rest := line[len(anchorBegin):]
	inner, rest, ok := bytes.Cut(rest, []byte(hashBegin))
	sum := sha256.Sum256(inner)
	var a anchor
	if !ok || string(rest) != hex.EncodeToString(sum[:])+`"}` || json.Unmarshal(inner, &a) != nil {
		l.wrong("anchor %d was changed", len(l.v.anchors))
	}
	if a.N != uint64(len(l.v.anchors)) || a.Prev != l.last {
		l.wrong("anchor %d doesn't follow the one before it", len(l.v.anchors))
	}
	l.anchor, l.last, l.under, l.roots = a, hex.EncodeToString(sum[:]), 0, nil
	l.v.anchors = append(l.v.anchors, inner)
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
func (l *links) record(line []byte) {
	l.lines++
	c := l.chain
	n := c.at
	c.at++
	var r struct {
		Thread   string `json:"thread"`
		N        uint64 `json:"n"`
		What     string `json:"what"`
		Approval string `json:"approval"`
		Digest   string `json:"digest"`
		Texts    string `json:"texts_sha256"`
		Prev     string `json:"prev"`
		Event    struct {
			What     string `json:"what"`
			Approval string `json:"approval"`
			Digest   string `json:"digest"`
		} `json:"event"`
	}
	var hash string
	if bytes.HasPrefix(line, []byte(firstBegin)) { // of the first form: the hash is over the line without it
		cut := len(line) - 2*sha256.Size - len(`"}`)
		if cut < 0 || !bytes.HasSuffix(line[:cut], []byte(hashBegin)) || json.Unmarshal(line, &r) != nil {
			l.wrong("line %d of %s can't be read", n, printable(c.Thread))
			return
		}
		sum := sha256.Sum256(append(bytes.Clone(line[:cut]), `"}`...))
		if hash = hex.EncodeToString(sum[:]); hash != string(line[cut:cut+2*sha256.Size]) {
			l.wrong("line %d of %s was changed", n, printable(c.Thread))
		}
		r.What, r.Approval, r.Digest = r.Event.What, r.Event.Approval, r.Event.Digest
	} else {
		inner, rest, ok := bytes.Cut(bytes.TrimPrefix(line, []byte(recordBegin)), []byte(hashBegin))
		said, beside, ok2 := strings.Cut(string(rest), textsBegin)
		beside, ok3 := strings.CutSuffix(beside, "}")
		if !ok || !ok2 || !ok3 || !bytes.HasPrefix(line, []byte(recordBegin)) || json.Unmarshal(inner, &r) != nil {
			l.wrong("line %d of %s can't be read", n, printable(c.Thread))
			return
		}
		sum := sha256.Sum256(inner)
		hash = hex.EncodeToString(sum[:])
		texts := sha256.Sum256([]byte(beside))
		var x struct {
			Withheld bool `json:"withheld"`
		}
		switch {
		case hash != said || r.Thread != c.Thread:
			l.wrong("line %d of %s was changed", n, printable(c.Thread))
		case json.Unmarshal([]byte(beside), &x) != nil, !x.Withheld && hex.EncodeToString(texts[:]) != r.Texts:
			l.wrong("a text of line %d of %s was changed", n, printable(c.Thread))
		}
	}
	if r.N != n || n > c.From && r.Prev != c.prev || n == 0 && r.Prev != "" {
		l.wrong("line %d of %s doesn't follow the one before it", n, printable(c.Thread))
	}
	c.prev = hash
	if _, ok := l.wanted[c.Thread][n]; ok {
		l.hashes[c.Thread][n] = hash
	}
	switch r.What {
	case "running":
		l.v.began[r.Approval] = true
	case "approved", "break-glass":
		if l.v.decided[r.Approval] == nil {
			l.v.decided[r.Approval] = map[string]bool{}
		}
		l.v.decided[r.Approval][r.Digest] = true
	}
}

// closeChain compares a chain with what its beginning said, and with the last anchor that covers it.
func (l *links) closeChain() {
	c := l.chain
	if c == nil {
		return
	}
	if c.at != c.N || c.N > c.From && c.prev != c.Hash {
		l.wrong("%s has %d lines and should have %d", printable(c.Thread), c.at, c.N)
	}
	for n := range l.wanted[c.Thread] {
		if n >= c.N {
			l.wrong("%s has %d lines, and an anchor covers line %d", printable(c.Thread), c.N, n)
		}
	}
}

func (l *links) end(line []byte) {
	l.ended = true
	var e struct {
		Anchors int    `json:"anchors"`
		Chains  int    `json:"chains"`
		Lines   int    `json:"lines"`
		SHA256  string `json:"sha256"`
	}
	inner, ok := body(line, endBegin)
	if !ok || json.Unmarshal(inner, &e) != nil || e.Anchors != len(l.v.anchors) || e.Chains != l.chains || e.Lines != l.lines || e.SHA256 != hex.EncodeToString(l.sum) {
		l.wrong("its bytes aren't those that were exported")
	}
}
