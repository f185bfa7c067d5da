package verifier

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
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

// links reads an export of one thread.
type links struct {
	v      *verifier
	faults int
	ended  bool

	withheld int    // lines whose texts can't be checked
	sum      []byte // of the bytes before the end
	header   struct {
		V       int       `json:"v"`
		Thread  string    `json:"thread"`
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
	hashes []string // of the lines of the chain
}

func (l *links) wrong(format string, a ...any) {
	l.faults++
	l.v.say(Bad, "The chain of decisions is broken: "+format+".", a...)
}

// chain checks audit.jsonl, and remembers what was decided.
func (v *verifier) chain(raw []byte) {
	l := &links{v: v}
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
	if l.header.V != 1 || l.header.Anchors.N != uint64(len(v.anchors)) || l.header.Anchors.Hash != l.last {
		l.wrong("it has %d anchors and should have %d", len(v.anchors), l.header.Anchors.N)
	}
	if c := l.chain; c == nil || c.N != uint64(len(l.hashes)) || c.Hash != l.before() {
		l.wrong("it doesn't have the lines that it should have")
	}
	at := uint64(0)
	for _, h := range v.heads {
		if h.From != at || h.N <= at || h.N > uint64(len(l.hashes)) || l.hashes[h.N-1] != h.Hash {
			l.wrong("its lines from %d on aren't those that anchor %d covers", at, h.Anchor)
		}
		at = h.N
	}
	v.lines = len(l.hashes)
	if l.withheld > 0 {
		v.say(Open, "Secrets were taken out of the texts of %s of the chain, so these texts can't be checked here.", plural(l.withheld, "line"))
	}
	if l.faults == 0 {
		v.say(Good, "The chain of decisions is whole: %s, %s, which cover %d.", plural(v.lines, "line"), plural(len(v.anchors), "anchor"), v.covered(math.MaxInt64))
	}
	v.say(Note, "The archive says that it was made at %s UTC. Nothing shows when.", l.header.At.UTC().Format("2006-01-02 15:04"))
}

// covered is how many lines of the chain the first n anchors cover.
func (v *verifier) covered(n int64) (lines int) {
	for _, h := range v.heads {
		if int64(h.Anchor) < n { //nolint:gosec // there are not that many
			lines = max(lines, int(h.N)) //nolint:gosec // no more than there are lines, or that was said
		}
	}
	return lines
}

// before is the hash of the last line so far.
func (l *links) before() string {
	if len(l.hashes) == 0 {
		return ""
	}
	return l.hashes[len(l.hashes)-1]
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
		if kind != "export" || !ok || json.Unmarshal(inner, &l.header) != nil || l.header.Thread == "" || l.header.At.IsZero() {
			l.wrong("it doesn't begin as an export does")
		}
	case kind == "anchor" && l.chain == nil:
		l.closeAnchor()
		l.openAnchor(inner)
	case kind == "head" && l.chain == nil:
		var h row
		if !ok || json.Unmarshal(inner, &h) != nil || h.Anchor != l.anchor.N || l.under > 0 && h.Thread <= l.head {
			l.wrong("a head of anchor %d can't be read", l.anchor.N)
			return
		}
		l.head = h.Thread
		l.under++
		l.roots = append(append(l.roots, line...), '\n')
		if h.Thread == l.header.Thread {
			l.v.heads = append(l.v.heads, h)
		}
	case kind == "chain" && l.chain == nil:
		l.closeAnchor()
		var c row
		if !ok || json.Unmarshal(inner, &c) != nil || c.From > 0 || c.Thread != l.header.Thread {
			l.wrong("the beginning of the thread's chain can't be read")
		}
		l.chain = &c
	case kind == "end":
		l.end(inner, ok)
	case l.chain == nil:
		l.wrong("its line %d is neither an anchor nor a chain", n)
	default:
		l.record(uint64(len(l.hashes)), line, kind, inner, ok)
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

// closeAnchor compares an anchor with its heads, if they are there: an export leaves out those of anchors that
// cover no line of its thread.
func (l *links) closeAnchor() {
	sum := sha256.Sum256(l.roots)
	if l.under > 0 && (l.under != l.anchor.Threads || hex.EncodeToString(sum[:]) != l.anchor.Root) {
		l.wrong("the heads of anchor %d aren't those that it covers", l.anchor.N)
	}
	l.under, l.roots = 0, nil
}

// record checks line n of the chain.
func (l *links) record(n uint64, line []byte, kind string, whole []byte, closed bool) {
	thread := printable(l.chain.Thread)
	hash := ""
	defer func() { l.hashes = append(l.hashes, hash) }()
	var r entry
	var x struct {
		Withheld bool `json:"withheld"`
	}
	if kind == "n" { // of the first form: the hash is over the line without it
		cut := len(line) - 2*sha256.Size - len(`"}`)
		if cut < 0 || !bytes.HasSuffix(line[:cut], []byte(hashBegin)) || json.Unmarshal(line, &r) != nil {
			l.wrong("line %d of %s can't be read", n, thread)
			return
		}
		sum := sha256.Sum256(append(bytes.Clone(line[:cut]), `"}`...))
		if hash = hex.EncodeToString(sum[:]); hash != string(line[cut:cut+2*sha256.Size]) {
			l.wrong("line %d of %s was changed", n, thread)
		}
		r.event, r.Thread = r.Event, l.chain.Thread
	} else {
		inner, rest, ok := bytes.Cut(whole, []byte(hashBegin))
		said, beside, ok2 := strings.Cut(string(rest), textsBegin)
		if !ok || !ok2 || !closed || kind != "record" || json.Unmarshal(inner, &r) != nil {
			l.wrong("line %d of %s can't be read", n, thread)
			return
		}
		sum := sha256.Sum256(inner)
		hash = hex.EncodeToString(sum[:])
		texts := sha256.Sum256([]byte(beside))
		err := json.Unmarshal([]byte(beside), &x)
		switch {
		case hash != said || r.Thread != l.chain.Thread:
			l.wrong("line %d of %s was changed", n, thread)
		case err != nil, !x.Withheld && hex.EncodeToString(texts[:]) != r.Texts, x.Withheld && !strings.Contains(beside, redacted):
			l.wrong("a text of line %d of %s was changed", n, thread)
		case x.Withheld:
			l.withheld++
		}
	}
	if r.N != n || r.Prev != l.before() {
		l.wrong("line %d of %s doesn't follow the one before it", n, thread)
	}
	if r.Approval != "" {
		l.v.deed(r)
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
	if !ok || json.Unmarshal(inner, &e) != nil || e.Anchors != len(l.v.anchors) || e.Chains != 1 || e.Lines != len(l.hashes) || e.SHA256 != hex.EncodeToString(l.sum) {
		l.wrong("its bytes aren't those that were exported")
	}
}
