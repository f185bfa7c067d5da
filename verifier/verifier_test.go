package verifier_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/mod/sumdb/note"

	"countersign/adapters/chat"
	"countersign/agent/report"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/register"
	"countersign/approvals/passkey/passkeytest"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/mem"
	"countersign/verifier"
	"countersign/witness/cosign"
)

const thread = "web:1"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// made is an archive as the bot makes it: a change that two people signed and that ran, in a record
// that a witness has signed.
type made struct {
	files   map[string]string
	witness note.Verifier
	log     cosign.LogKey
}

func makeArchive(t *testing.T) made {
	t.Helper()
	db := mem.Open()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := approvals.Action{
		Tool: "run_shell", Kind: approvals.KindShell, Target: "ssh:web-1#SHA256:x", User: "root", Dir: "/srv", Shell: "bash", Bytes: []byte("systemctl restart <nginx> & echo ü"),
		Args: json.RawMessage(`{"command":"x","wait":true}`), Env: map[string]string{"process": "x"}, Files: map[string]string{"/srv/": "directory inode 1:2"},
	}
	r := approvals.Record{
		ID: "aaaaaaaaaa", Thread: thread, Call: "c1", Requester: chat.User{ID: "web:dave", Name: "dave"}, Created: now, Action: a, Digest: a.Digest(), Level: "medium",
		Require: approvals.Require{Needs: []approvals.Need{{Rule: "default", Count: 2, Groups: []string{"oncall"}}}, Proof: "passkey"}, State: approvals.Done,
	}
	site := passkey.Site{ID: "bot.example.com", Origin: "https://bot.example.com"}
	shown := json.RawMessage(`{"title":"Run a command"}`)
	for _, who := range []string{"alice", "bob"} {
		d := passkeytest.New(site.ID, site.Origin)
		key, err := register.Key(site, []byte("challenge"), d.Create([]byte("challenge")))
		must(t, err)
		s := passkey.Statement{
			Version: 1, For: passkey.ForApprove, Request: string(r.ID), Digest: r.Digest.String(), Shown: "f8f5b4c7", Voter: "web:" + who, Owner: "web:" + who, Nonce: who, At: now,
		}
		var b bytes.Buffer
		json.HTMLEscape(&b, shown)
		s.Shown = sha(b.Bytes())
		raw := s.Encode()
		r.Votes = append(r.Votes, approvals.Vote{
			User: chat.User{ID: chat.UserID("web:" + who), Name: who}, Approve: true, Via: "button", At: now, Digest: r.Digest, Meets: []int{0},
			Passkey: &passkey.Proof{Statement: raw, Response: d.Sign(passkey.Challenge(raw)), Shown: shown, Site: site, KeyID: key.ID, Public: key.Public, KeyOwner: "web:" + who},
		})
	}
	m := made{files: map[string]string{}}
	seed, err := keyring.SharedKey(t.Context(), db, audit.LogKey)
	must(t, err)
	log, text, err := cosign.Log("bot.example.com", seed)
	must(t, err)
	m.log, err = cosign.ParseLog(text)
	must(t, err)
	w, err := cosign.NewWitness("witness.example.com", bytes.Repeat([]byte{7}, 32), func() time.Time { return now })
	must(t, err)
	m.witness, _, err = cosign.Verifier(w.Verifier())
	must(t, err)
	must(t, db.Update(t.Context(), func(tx store.Tx) error {
		add := func(thread, what string) {
			audit.Append(tx, thread, audit.Event{What: what, Approval: string(r.ID), Digest: r.Digest.String(), User: "web:alice", Command: string(a.Bytes)}, now)
		}
		for i := range 5 {
			audit.Append(tx, "web:other", audit.Event{What: audit.Asked, Note: fmt.Sprint(i)}, now)
			audit.Anchor(tx, now)
		}
		add(thread, audit.Asked)
		audit.Anchor(tx, now)
		add(thread, audit.Approved)
		add(thread, audit.Running)
		audit.Anchor(tx, now)
		tree, ok := audit.Tree(tx)
		if !ok {
			t.Fatal("there is no tree")
		}
		text, err := note.Sign(&note.Note{Text: cosign.Checkpoint{Origin: "bot.example.com", Tree: tree}.Text()}, log, w)
		audit.SetWitness(tx, "witness.example.com", audit.Witnessed{Size: tree.N, Note: string(text)})
		add(thread, audit.Done)
		audit.Anchor(tx, now)
		return err
	}))
	var out bytes.Buffer
	must(t, report.Export(context.Background(), &out, report.Incident{Thread: thread, Made: now, Records: []approvals.Record{r}}, report.Parts{
		Chain: report.Chain(db, thread, now), Checkpoints: report.Checkpoints(db), Sign: report.Signer(db),
	}))
	z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	must(t, err)
	for _, f := range z.File {
		in, err := f.Open()
		must(t, err)
		raw, err := io.ReadAll(in)
		must(t, err)
		m.files[f.Name] = string(raw)
	}
	return m
}

// check verifies the files with all that one can know by oneself, and returns what is wrong.
func (m made) check(t *testing.T, files map[string]string) (bad []string, all string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := z.Create(name)
		must(t, err)
		_, _ = io.WriteString(f, files[name])
	}
	must(t, z.Close())
	found, err := verifier.Archive(bytes.NewReader(b.Bytes()), int64(b.Len()), verifier.Trust{Witnesses: []note.Verifier{m.witness}, Log: []cosign.LogKey{m.log}})
	if err != nil {
		return []string{err.Error()}, ""
	}
	for _, f := range found {
		if all += f.Say + "\n"; f.Bad {
			bad = append(bad, f.Say)
		}
	}
	return bad, all
}

func TestAnArchiveAsItWasMade(t *testing.T) {
	m := makeArchive(t)
	bad, all := m.check(t, m.files)
	if len(bad) > 0 {
		t.Fatalf("%q", bad)
	}
	for _, want := range []string{
		"The chain of decisions is whole: 4 lines, 8 anchors.", "The witness witness.example.com signed 7 of 8 anchors at 2026-03-01 12:00 UTC.",
		"approved by alice and bob; 2 of 2 votes signed", "1 statement is of changes signed by the record's key.",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}

// TestAStatementIsReadByOthers: the envelope is one that an independent library verifies.
func TestAStatementIsReadByOthers(t *testing.T) {
	m := makeArchive(t)
	var e dsse.Envelope
	must(t, json.Unmarshal([]byte(m.files["statements/aaaaaaaaaa.intoto.json"]), &e))
	v, err := dsse.NewEnvelopeVerifier(key{m.log.Public})
	must(t, err)
	if _, err := v.Verify(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	raw, err := e.DecodeB64Payload()
	must(t, err)
	var s struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string            `json:"name"`
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		PredicateType string `json:"predicateType"`
		Predicate     struct {
			Approvers []string `json:"approvers"`
			Signed    int      `json:"signed"`
		} `json:"predicate"`
	}
	must(t, json.Unmarshal(raw, &s))
	if s.Type != "https://in-toto.io/Statement/v1" || len(s.Subject) != 1 || len(s.Subject[0].Digest["sha256"]) != 64 || s.PredicateType == "" || s.Predicate.Signed != 2 || len(s.Predicate.Approvers) != 2 {
		t.Errorf("%s", raw)
	}
}

// key is the log's key, for the library.
type key struct{ k ed25519.PublicKey }

func (k key) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(k.k, data, sig) {
		return fmt.Errorf("a wrong signature")
	}
	return nil
}
func (k key) KeyID() (string, error)   { return sha(k.k), nil }
func (k key) Public() crypto.PublicKey { return k.k }

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestEachChangeOfAnArchiveIsFound: a byte of what proves something is another one, and it is found.
func TestEachChangeOfAnArchiveIsFound(t *testing.T) {
	m := makeArchive(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{"audit.jsonl", "checkpoints/1.txt", "statements/aaaaaaaaaa.intoto.json"} {
		for range 300 {
			raw := []byte(m.files[name])
			at := r.IntN(len(raw))
			raw[at] ^= byte(1 << r.IntN(7))
			other := maps.Clone(m.files)
			other[name] = string(raw)
			if bad, _ := m.check(t, other); len(bad) == 0 && !harmless(m.files[name], string(raw)) {
				t.Errorf("%s: byte %d (%q) changed, and nobody found it", name, at, m.files[name][max(0, at-20):min(len(raw), at+20)])
			}
		}
	}
	for name, change := range map[string]func(string) string{
		"approvals.jsonl": func(s string) string { return strings.Replace(s, "systemctl", "systemctI", 1) },
		"audit.jsonl":     func(s string) string { return s[:strings.LastIndex(strings.TrimSuffix(s, "\n"), "\n")+1] },
	} {
		other := maps.Clone(m.files)
		if other[name] = change(other[name]); other[name] == m.files[name] {
			t.Fatalf("%s has no such place", name)
		}
		if bad, _ := m.check(t, other); len(bad) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
	for _, name := range []string{"audit.jsonl", "checkpoints/1.txt"} {
		other := maps.Clone(m.files)
		delete(other, name)
		if bad, _ := m.check(t, other); len(bad) == 0 {
			t.Errorf("%s is missing, and nobody found it", name)
		}
	}
}

// harmless reports whether two texts say the same: JSON with another base64 padding or case of a name.
func harmless(a, b string) bool {
	var x, y dsse.Envelope
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil || len(x.Signatures) == 0 || len(y.Signatures) == 0 {
		return false
	}
	p, _ := base64.StdEncoding.DecodeString(x.Payload)
	q, _ := base64.StdEncoding.DecodeString(y.Payload)
	return bytes.Equal(p, q) && x.PayloadType == y.PayloadType // the signature is checked, its key's id is a hint
}
