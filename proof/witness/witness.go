// Package witness is a program that keeps a log honest: it signs a checkpoint only if it grew from the
// last one that it signed. Whoever trusts one witness can be shown one history only.
package witness

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"countersign/proof/witness/ask"
	"countersign/proof/witness/cosign"
	"countersign/proof/witness/keys"
)

// Witness signs checkpoints. It is safe for concurrent use.
type Witness struct {
	key  *keys.Witness
	logs map[string]note.Verifier // by origin
	dir  string
	log  func(format string, a ...any)

	mu sync.Mutex // held while a checkpoint is judged and noted
}

// seen is what was signed last of a log.
type seen struct {
	Size int64     `json:"size"`
	Hash tlog.Hash `json:"hash"`
	Note string    `json:"note"` // as it was signed
}

// New returns a witness of logs, whose memory is in dir. log receives a line for each decision.
func New(key *keys.Witness, logs []string, dir string, log func(format string, a ...any)) (*Witness, error) {
	w := &Witness{key: key, logs: map[string]note.Verifier{}, dir: dir, log: log}
	for _, text := range logs {
		v, isWitness, err := cosign.Verifier(text)
		switch {
		case err != nil:
			return nil, err
		case isWitness:
			return nil, fmt.Errorf("%q is the key of a witness, not of a log", text)
		}
		w.logs[v.Name()] = v
	}
	return w, nil
}

func (w *Witness) file(origin string) string {
	return filepath.Join(w.dir, base64.RawURLEncoding.EncodeToString([]byte(origin))+".json")
}

func (w *Witness) load(origin string) (s seen, err error) {
	raw, err := os.ReadFile(w.file(origin))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// save notes durably what is signed, before anybody has it.
func (w *Witness) save(origin string, s seen) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(w.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), w.file(origin))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(w.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// refusal is why a checkpoint isn't signed, with the status of its answer.
type refusal struct {
	status int
	text   string
	size   int64 // for a conflict
}

// Error implements error.
func (r refusal) Error() string { return r.text }

// Sign judges a request (see ask.Encode) and returns the line of its signature.
func (w *Witness) Sign(body []byte) (line string, err error) {
	old, proof, text, err := ask.Decode(body)
	if err != nil {
		return "", refusal{status: http.StatusBadRequest, text: err.Error()}
	}
	origin, _, _ := strings.Cut(string(text), "\n")
	v, ok := w.logs[origin]
	if !ok {
		return "", refusal{status: http.StatusNotFound, text: "this witness doesn't know the log"}
	}
	c, _, err := ask.Open(text, v)
	if err != nil {
		return "", refusal{status: http.StatusForbidden, text: err.Error()}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was, err := w.load(origin)
	switch {
	case err != nil:
		return "", fmt.Errorf("the memory of %s can't be read, so nothing is signed: %w", origin, err)
	case old > c.N:
		return "", refusal{status: http.StatusBadRequest, text: "the log is shorter than it says it was"}
	case old != was.Size:
		return "", refusal{status: http.StatusConflict, text: fmt.Sprintf("the last checkpoint that was signed has the size %d", was.Size), size: was.Size}
	case old == c.N && old > 0 && c.Hash != was.Hash:
		w.log("FORK of %s: two histories of %d entries", origin, c.N)
		return "", refusal{status: http.StatusConflict, text: "another history of this size was signed before", size: was.Size}
	case old > 0 && old < c.N && tlog.CheckTree(proof, c.N, c.Hash, old, was.Hash) != nil:
		w.log("FORK of %s: %d entries don't begin with the %d that were signed", origin, c.N, old)
		return "", refusal{status: http.StatusUnprocessableEntity, text: "the log doesn't begin with what was signed before"}
	case (old == 0 || old == c.N) && len(proof) > 0:
		return "", refusal{status: http.StatusUnprocessableEntity, text: "there is nothing to prove"}
	}
	n, err := note.Open(text, note.VerifierList(v))
	if err != nil {
		return "", refusal{status: http.StatusForbidden, text: err.Error()}
	}
	n.UnverifiedSigs = nil
	signed, err := note.Sign(n, w.key)
	if err != nil {
		return "", err
	}
	if err := w.save(origin, seen{Size: c.N, Hash: c.Hash, Note: string(signed)}); err != nil {
		return "", fmt.Errorf("the memory of %s can't be written, so nothing is signed: %w", origin, err)
	}
	w.log("signed %s at %d entries", origin, c.N)
	all := strings.Split(strings.TrimSuffix(string(signed), "\n"), "\n")
	return all[len(all)-1] + "\n", nil
}

// maxBody bounds a request, in bytes.
const maxBody = 64 << 10

// Handler answers POST /add-checkpoint as https://c2sp.org/tlog-witness says, and GET
// /checkpoint?origin=NAME with what was signed last, for everybody to compare.
func (w *Witness) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
		if err != nil {
			http.Error(rw, "the request is too long", http.StatusBadRequest)
			return
		}
		line, err := w.Sign(body)
		var no refusal
		switch {
		case errors.As(err, &no) && no.status == http.StatusConflict:
			rw.Header().Set("Content-Type", "text/x.tlog.size")
			rw.WriteHeader(no.status)
			_, _ = fmt.Fprintf(rw, "%d\n", no.size)
		case errors.As(err, &no):
			http.Error(rw, no.text, no.status)
		case err != nil:
			w.log("%v", err)
			http.Error(rw, "the witness can't sign now; look at its log", http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(rw, line)
		}
	})
	mux.HandleFunc("GET /checkpoint", func(rw http.ResponseWriter, r *http.Request) {
		origin := r.URL.Query().Get("origin")
		w.mu.Lock()
		s, err := w.load(origin)
		w.mu.Unlock()
		if _, ok := w.logs[origin]; !ok || err != nil || s.Size == 0 {
			http.Error(rw, "no checkpoint of this log was signed", http.StatusNotFound)
			return
		}
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(rw, s.Note)
	})
	return mux
}

// newSeed makes the seed of a key in a file that must not exist.
func newSeed(file string) ([]byte, error) {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // never fails
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing is overwritten", err)
	}
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(seed) + "\n")
	return seed, errors.Join(err, f.Sync(), f.Close())
}

// readSeed reads what newSeed wrote.
func readSeed(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others can read the witness's key; run `chmod 600 %s`", file)
	}
	seed, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(raw)))
	if err != nil || len(seed) != 32 {
		return nil, fmt.Errorf("%s is no key; `countersign-witness init` makes one", file)
	}
	return seed, nil
}
