package witness_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"countersign/proof/witness"
	"countersign/proof/witness/ask"
	"countersign/proof/witness/cosign"
	"countersign/proof/witness/keys"
	"countersign/test/needstest"
)

const origin = "bot.example.com/record"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// history is a log in memory: its stored hashes, and how many entries it has.
type history struct {
	hashes []tlog.Hash
	n      int64
}

func (h *history) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index >= int64(len(h.hashes)) {
			return nil, errors.New("there is no such hash")
		}
		out[i] = h.hashes[index]
	}
	return out, nil
}

func (h *history) add(t testing.TB, entry string) {
	more, err := tlog.StoredHashes(h.n, []byte(entry), h)
	must(t, err)
	h.hashes = append(h.hashes, more...)
	h.n++
}

// cut is another history that begins with the first n entries of this one.
func (h *history) cut(n int64) *history {
	return &history{hashes: append([]tlog.Hash(nil), h.hashes[:tlog.StoredHashCount(n)]...), n: n}
}

// bench is a log's key and a witness.
type bench struct {
	t   testing.TB
	key note.Signer
	vkey,
	witnessKey string
	w *witness.Witness
}

func newBench(t testing.TB) *bench {
	key, vkey, err := keys.Log(origin, bytes.Repeat([]byte{1}, 32))
	must(t, err)
	own, err := keys.NewWitness("witness.example.com", bytes.Repeat([]byte{2}, 32), time.Now)
	must(t, err)
	w, err := witness.New(own, []string{vkey}, t.TempDir(), func(string, ...any) {})
	must(t, err)
	return &bench{t: t, key: key, vkey: vkey, witnessKey: own.Verifier(), w: w}
}

// checkpoint is what the log signs.
func (b *bench) checkpoint(h *history, n int64) []byte {
	root, err := tlog.TreeHash(n, h)
	must(b.t, err)
	text, err := note.Sign(&note.Note{Text: cosign.Checkpoint{Origin: origin, Tree: tlog.Tree{N: n, Hash: root}}.Text()}, b.key)
	must(b.t, err)
	return text
}

// ask asks the witness to sign n entries, as somebody who says that it has signed old before.
func (b *bench) ask(h *history, old, n int64) (string, error) {
	var proof tlog.TreeProof
	if old > 0 && old < n {
		var err error
		proof, err = tlog.ProveTree(n, old, h)
		must(b.t, err)
	}
	return b.w.Sign(ask.Encode(old, proof, b.checkpoint(h, n)))
}

func TestAWitnessSignsALogThatGrows(t *testing.T) {
	b := newBench(t)
	h := &history{}
	for i := range 100 {
		h.add(t, fmt.Sprint("entry ", i))
	}
	_, err := b.ask(h, 0, 40)
	must(t, err)
	line, err := b.ask(h, 40, 100)
	must(t, err)
	again, err := b.ask(h, 100, 100)
	must(t, err)
	log, _, err := cosign.Verifier(b.vkey)
	must(t, err)
	w, isWitness, err := cosign.Verifier(b.witnessKey)
	must(t, err)
	if !isWitness {
		t.Error("a witness's key is taken for a log's")
	}
	for _, l := range []string{line, again} {
		c, seen, err := ask.Open(append(b.checkpoint(h, 100), l...), log, w)
		if err != nil || c.N != 100 || time.Since(seen["witness.example.com"]) > time.Minute {
			t.Errorf("%+v %v %v", c, seen, err)
		}
	}
	if _, _, err := ask.Open(b.checkpoint(h, 100), w, log); err == nil {
		t.Error("a checkpoint counts that its log didn't sign")
	}

	// An independent library reads both.
	theirs, err := torchwood.NewCosignatureSigner("witness.example.com", ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32)))
	must(t, err)
	if theirs.Verifier().String() != b.witnessKey {
		t.Errorf("the key is %s, and should be %s", b.witnessKey, theirs.Verifier())
	}
	v, err := note.NewVerifier(b.vkey)
	must(t, err)
	n, err := note.Open(append(b.checkpoint(h, 100), line...), note.VerifierList(v, theirs.Verifier()))
	if err != nil || len(n.Sigs) != 2 {
		t.Fatalf("%v", err)
	}
	if c, err := torchwood.ParseCheckpoint(n.Text); err != nil || c.N != 100 || c.Origin != origin {
		t.Errorf("%+v %v", c, err)
	}
	// And what it signs is read here.
	signed, err := note.Sign(&note.Note{Text: n.Text}, b.key, theirs)
	must(t, err)
	if _, seen, err := ask.Open(signed, log, w); err != nil || len(seen) != 1 {
		t.Errorf("%v %v", seen, err)
	}
}

func TestWhatAWitnessRefuses(t *testing.T) {
	b := newBench(t)
	h := &history{}
	for i := range 50 {
		h.add(t, fmt.Sprint("entry ", i))
	}
	_, err := b.ask(h, 0, 50)
	must(t, err)
	fork := h.cut(30)
	for i := range 40 {
		fork.add(t, fmt.Sprint("another ", i))
	}
	other, _, err := keys.Log(origin, bytes.Repeat([]byte{9}, 32))
	must(t, err)
	foreign, _, err := keys.Log("elsewhere", bytes.Repeat([]byte{1}, 32))
	must(t, err)
	signedBy := func(s note.Signer, name string) []byte {
		root, err := tlog.TreeHash(50, h)
		must(t, err)
		text, err := note.Sign(&note.Note{Text: cosign.Checkpoint{Origin: name, Tree: tlog.Tree{N: 50, Hash: root}}.Text()}, s)
		must(t, err)
		return text
	}
	proof, err := tlog.ProveTree(70, 50, fork)
	must(t, err)
	server := httptest.NewServer(b.w.Handler())
	defer server.Close()
	for name, c := range map[string]struct {
		body   []byte
		status int
		size   string
	}{
		"no request":                 {[]byte("hello"), 400, ""},
		"a proof that is no base64":  {append([]byte("old 50\n!!\n\n"), b.checkpoint(h, 50)...), 400, ""},
		"a negative size":            {ask.Encode(-1, nil, b.checkpoint(h, 50)), 400, ""},
		"a log that shrank":          {ask.Encode(50, nil, b.checkpoint(h, 40)), 400, ""},
		"a log that forgot":          {ask.Encode(0, nil, b.checkpoint(h, 40)), 409, "50\n"},
		"another history, longer":    {ask.Encode(50, proof, b.checkpoint(fork, 70)), 422, ""},
		"another history, as long":   {ask.Encode(50, nil, b.checkpoint(fork, 50)), 409, "50\n"},
		"no proof":                   {ask.Encode(50, nil, b.checkpoint(fork, 70)), 422, ""},
		"a proof of nothing":         {ask.Encode(50, proof, b.checkpoint(h, 50)), 422, ""},
		"a key that isn't the log's": {ask.Encode(50, nil, signedBy(other, origin)), 403, ""},
		"another log":                {ask.Encode(50, nil, signedBy(foreign, "elsewhere")), 404, ""},
		"no signature":               {ask.Encode(50, nil, bytes.SplitAfter(b.checkpoint(h, 50), []byte("\n\n"))[0]), 403, ""},
		"a request that is too long": {bytes.Repeat([]byte("x"), 100<<10), 400, ""},
	} {
		res, err := http.Post(server.URL+"/add-checkpoint", "text/plain", bytes.NewReader(c.body))
		must(t, err)
		var out bytes.Buffer
		_, _ = out.ReadFrom(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != c.status || c.size != "" && out.String() != c.size || strings.Contains(out.String(), "—") {
			t.Errorf("%s: %d %q", name, res.StatusCode, out.String())
		}
	}
	res, err := http.Get(server.URL + "/checkpoint?origin=" + origin)
	must(t, err)
	defer func() { _ = res.Body.Close() }()
	var out bytes.Buffer
	_, _ = out.ReadFrom(res.Body)
	if !strings.HasPrefix(out.String(), origin+"\n50\n") {
		t.Errorf("the last checkpoint is %q", out.String())
	}
}

// TestEveryOtherHistoryIsFound cuts, forks and rewrites the log of a year in every way that its owner
// can: the checkpoints are well signed, and the proofs are the best that there are.
func TestEveryOtherHistoryIsFound(t *testing.T) {
	tries := 500
	if needstest.Whole(t) {
		tries = 10_000
	}
	const year = 24 * 365 // an anchor an hour
	b := newBench(t)
	h := &history{}
	for i := range year {
		h.add(t, fmt.Sprint("entry ", i))
	}
	_, err := b.ask(h, 0, year)
	must(t, err)
	log, _, err := cosign.Verifier(b.vkey)
	must(t, err)
	honest, _, err := ask.Open(b.checkpoint(h, year), log)
	must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for try := range tries {
		at := r.Int64N(year)
		x := h.cut(at)
		length := year + r.Int64N(50) // as long, or longer
		kind := []string{"cut", "fork", "rewrite"}[try%3]
		switch kind {
		case "cut": // some entries are left out, the others stay
			drop := 1 + r.Int64N(min(20, year-at))
			for i := at + drop; i < length+drop; i++ {
				x.add(t, fmt.Sprint("entry ", i))
			}
		case "fork": // all of them are others from there on
			for i := at; i < length; i++ {
				x.add(t, fmt.Sprint("fork ", try, i))
			}
		default: // one is another
			x.add(t, fmt.Sprint("rewrite ", try))
			for i := at + 1; i < length; i++ {
				x.add(t, fmt.Sprint("entry ", i))
			}
		}
		if _, err := b.ask(x, year, x.n); err == nil {
			t.Fatalf("a %s at %d of %d was signed", kind, at, x.n)
		}
		root, err := tlog.TreeHash(year, x)
		must(t, err)
		if root == honest.Hash {
			t.Fatalf("a %s at %d has the same root", kind, at)
		}
	}
}

func FuzzParseAsk(f *testing.F) {
	f.Add(ask.Encode(3, tlog.TreeProof{{1}}, []byte("x\n1\n\n")))
	f.Fuzz(func(t *testing.T, body []byte) {
		old, proof, text, err := ask.Decode(body)
		if err == nil && (old < 0 || len(proof) > 63) {
			t.Fatalf("%d %d %q", old, len(proof), text)
		}
	})
}
