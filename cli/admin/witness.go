package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"countersign/approvals/audit"
	"countersign/config"
	"countersign/proof/witness/ask"
	"countersign/proof/witness/cosign"
	"countersign/proof/witness/keys"
	"countersign/store"
	"countersign/store/keyring"
)

// logKey is the key of the record as a log: who signs its checkpoints, and how others verify that.
// All replicas have the same one.
func logKey(ctx context.Context, db store.DB, name string) (note.Signer, string, error) {
	seed, err := keyring.SharedKey(ctx, db, audit.LogKey)
	if err != nil {
		return nil, "", err
	}
	return keys.Log(name, seed)
}

// witnessed has the witnesses sign the record as it is anchored now; with again also those that have
// signed all of it as far as the store knows, which may have been put back.
func (a *auditor) witnessed(ctx context.Context, again bool) error {
	var failed []error
	for _, w := range a.cfg.Witnesses {
		if err := a.ask(ctx, w, again); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", w.URL, err))
		}
	}
	return errors.Join(failed...)
}

// checkpoint is the record as it is now, signed by the log, with the proof that it grew from old
// anchors. It is "" if nothing is anchored.
func (a *auditor) checkpoint(ctx context.Context, old func(tx store.Tx) int64) (text []byte, size, from int64, proof tlog.TreeProof, err error) {
	signer, _, err := logKey(ctx, a.db, a.cfg.Log)
	if err != nil {
		return nil, 0, 0, nil, err
	}
	var tree tlog.Tree
	err = a.db.View(ctx, func(tx store.Tx) error {
		var ok bool
		if tree, ok = audit.Tree(tx); !ok {
			return nil
		}
		from = old(tx)
		if from > tree.N {
			return fmt.Errorf("a witness has signed %d anchors, and the record has %d: it was cut", from, tree.N)
		}
		proof, err = audit.ProveTree(tx, tree.N, from)
		return err
	})
	if err != nil || tree.N == 0 {
		return nil, 0, 0, nil, err
	}
	text, err = note.Sign(&note.Note{Text: cosign.Checkpoint{Origin: a.cfg.Log, Tree: tree}.Text()}, signer)
	return text, tree.N, from, proof, err
}

// askTimeout bounds one question to a witness.
const askTimeout = 20 * time.Second

// ask has one witness sign, if it hasn't signed what there is or is to be asked again.
func (a *auditor) ask(ctx context.Context, w config.WitnessConfig, again bool) error {
	v, _, err := cosign.Verifier(w.Key)
	if err != nil {
		return err
	}
	size := int64(-1) // what the witness says that it has, where that is another
	for range 2 {
		text, n, old, proof, err := a.checkpoint(ctx, func(tx store.Tx) int64 {
			if size >= 0 {
				return size
			}
			return audit.Witness(tx, v.Name()).Size
		})
		if err != nil || n == 0 || n == old && size < 0 && !again {
			return err
		}
		line, other, err := post(ctx, w.URL, ask.Encode(old, proof, text))
		if err != nil {
			return err
		}
		if other >= 0 {
			size = other
			continue
		}
		signed := append(bytes.Clone(text), line...)
		opened, err := note.Open(signed, note.VerifierList(v))
		if err != nil || len(opened.Sigs) == 0 {
			return errors.New("what it answers isn't its signature")
		}
		return a.db.Update(ctx, func(tx store.Tx) error {
			if audit.Witness(tx, v.Name()).Size <= n {
				audit.SetWitness(tx, v.Name(), audit.Witnessed{Size: n, Note: string(signed)})
			}
			return nil
		})
	}
	return errors.New("it says twice that it has signed something else")
}

// post sends a request to a witness, and returns the line of its signature, or the size of what it has
// signed before, else -1.
func post(ctx context.Context, base string, body []byte) (line []byte, size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+"/add-checkpoint", bytes.NewReader(body))
	if err != nil {
		return nil, -1, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, -1, err
	}
	defer func() { _ = res.Body.Close() }() // it was only read
	answer, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return nil, -1, err
	}
	switch res.StatusCode {
	case http.StatusOK:
		return answer, -1, nil
	case http.StatusConflict:
		if n, err := strconv.ParseInt(strings.TrimSpace(string(answer)), 10, 64); err == nil && n >= 0 {
			return nil, n, nil
		}
	}
	return nil, -1, fmt.Errorf("it refuses (%s): %q", res.Status, strings.TrimSpace(string(answer)))
}

// LogPath is where the record is served as a log.
const LogPath = "/log/"

// logHandler serves the record as a log for witnesses and everybody who watches it: hashes, counts and
// times of anchors, and nothing that somebody said (https://c2sp.org/tlog-tiles). Besides, /log/key
// has its key, and /log/witnessed what each witness has signed last.
func (a *auditor) logHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+LogPath+"key", func(w http.ResponseWriter, r *http.Request) {
		_, text, err := logKey(r.Context(), a.db, a.cfg.Log)
		a.answer(w, []byte(text+"\n"), "text/plain; charset=utf-8", err)
	})
	mux.HandleFunc("GET "+LogPath+"checkpoint", func(w http.ResponseWriter, r *http.Request) {
		text, _, _, _, err := a.checkpoint(r.Context(), func(store.Tx) int64 { return 0 })
		if err == nil && text == nil {
			http.Error(w, "nothing is anchored yet", http.StatusNotFound)
			return
		}
		a.answer(w, text, "text/plain; charset=utf-8", err)
	})
	mux.HandleFunc("GET "+LogPath+"witnessed", func(w http.ResponseWriter, r *http.Request) {
		var notes []string
		err := a.db.View(r.Context(), func(tx store.Tx) error {
			notes = nil
			for _, w := range audit.Witnesses(tx) {
				notes = append(notes, w.Note)
			}
			return nil
		})
		a.answer(w, []byte(strings.Join(notes, "\n")), "text/plain; charset=utf-8", err)
	})
	mux.HandleFunc("GET "+LogPath+"tile/", func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, LogPath+"tile/")
		if rest, ok := strings.CutPrefix(path, "entries/"); ok {
			path = "data/" + rest
		}
		t, err := tlog.ParseTilePath("tile/8/" + path)
		if err != nil {
			http.Error(w, "there is no such tile", http.StatusNotFound)
			return
		}
		var tile []byte
		err = a.db.View(r.Context(), func(tx store.Tx) (err error) { tile, err = audit.Tile(tx, t); return err })
		if err != nil {
			http.Error(w, "there is no such tile", http.StatusNotFound)
			return
		}
		a.answer(w, tile, "application/octet-stream", nil)
	})
	return mux
}

func (a *auditor) answer(w http.ResponseWriter, body []byte, kind string, err error) {
	if err != nil {
		a.log.Error("the record could not be served as a log", "error", err)
		http.Error(w, "the record can't be read now; look at the bot's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // who asked may have left
}

// witnessLine says how far the witnesses have signed, "" if there are none.
func witnessLine(witnesses []config.WitnessConfig, seen map[string]int64, size int64) string {
	if len(witnesses) == 0 {
		return ""
	}
	whole, behind := 0, []string{}
	for _, w := range witnesses {
		name, _, _ := strings.Cut(w.Key, "+")
		if seen[name] == size {
			whole++
			continue
		}
		behind = append(behind, fmt.Sprintf("%s up to %d", name, seen[name]))
	}
	slices.Sort(behind)
	line := fmt.Sprintf("%d of %d witnesses have signed all %d anchors", whole, len(witnesses), size)
	if len(behind) > 0 {
		line += "; " + strings.Join(behind, ", ")
	}
	return line + "."
}
