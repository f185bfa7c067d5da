package verifier_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
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
	"countersign/approvals/passkey/passkeytest"
	"countersign/approvals/passkey/register"
	"countersign/proof/verifier"
	"countersign/proof/witness/cosign"
	"countersign/proof/witness/keys"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/mem"
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
	keys    map[string][]string // of those who voted
	raw     string              // the archive as it was written
	early   string              // what the witness signed before it had run
	witness note.Verifier
	log     cosign.LogKey
}

func makeArchive(t *testing.T, edit ...func(*audit.Event)) made {
	t.Helper()
	return makeArchiveOf(t, "", func(*approvals.Record) {}, edit...)
}

// makeArchiveOf is makeArchive by a bot whose first request is another one, after somebody was forgotten.
func makeArchiveOf(t *testing.T, who chat.UserID, first func(*approvals.Record), edit ...func(*audit.Event)) made {
	t.Helper()
	db := mem.Open()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := approvals.Action{
		Tool: "run_shell", Kind: approvals.KindShell, Target: "ssh:web-1#SHA256:x", User: "root", Dir: "/srv", Shell: "bash", Bytes: []byte("systemctl restart <nginx> & echo ü"),
		Args: json.RawMessage(`{"command":"x","wait":true}`), Env: map[string]string{"process": "x"}, Files: map[string]string{"/srv/": "directory inode 1:2"},
	}
	r := approvals.Record{
		ID: "aaaaaaaaaa", Nonce: "abcdefghijklmnop", Thread: thread, Call: "c1", Requester: chat.User{ID: "web:dave", Name: "dave"}, Created: now, Action: a, Digest: a.Digest(),
		Level: "medium", Agent: "the sub-agent x", Groups: []string{"dev"}, Revision: 2, Rule: "default", Policy: "p1", ExpiresAt: now.Add(time.Hour), RunBy: now.Add(2 * time.Hour),
		Decided: now, By: chat.User{ID: "web:bob", Name: "bob"}, Reason: "<it> hangs & waits", Ended: now.Add(time.Minute), Taint: "a page", Ticket: approvals.Ticket{Key: "OPS-1"},
		Claim: approvals.Claim{Risk: "low"}, Engine: approvals.Judgement{Risk: "medium", Effects: []string{"restarts"}}, Preview: approvals.Preview{Text: "restarts nginx"},
		Receipt: approvals.Receipt{Method: "compared", Text: "/etc/x"}, Trial: approvals.Trial{For: time.Hour, Note: "kept"}, Review: approvals.Review{By: chat.User{ID: "web:erin"}, At: now},
		Require: approvals.Require{Needs: []approvals.Need{{Rule: "default", Count: 2, Groups: []string{"oncall"}}}, Proof: "passkey"}, State: approvals.Done,
		Outcome: approvals.Outcome{OK: true, Note: "exit code 0"}, Place: approvals.Place{Target: "web-1", Env: "prod"},
	}
	no := approvals.Record{ // nobody wanted it
		ID: "bbbbbbbbbb", Nonce: "ponmlkjihgfedcba", Thread: thread, Call: "c2", Requester: r.Requester, Created: now.Add(time.Second), Level: "high", Action: approvals.Action{Tool: "write_file", Kind: approvals.KindChange, Target: "local"}, State: approvals.Denied,
		Votes: []approvals.Vote{{User: chat.User{ID: "web:bob"}, Via: "text", Reason: "not now", At: now}}, Reason: "not now", By: chat.User{ID: "web:bob"},
	}
	no.Digest = no.Action.Digest()
	wait := no
	wait.ID, wait.Nonce, wait.Call, wait.Created, wait.State, wait.Votes, wait.Reason, wait.By = "cccccccccc", "nonce", "c3", now.Add(2*time.Second), approvals.Pending, nil, "", chat.User{}
	wait.Preview.Text = "writes a file"
	m := made{keys: map[string][]string{}}
	site := passkey.Site{ID: "bot.example.com", Origin: "https://bot.example.com"}
	shown := json.RawMessage(`{"title":"Run a command"}`)
	for _, who := range []string{"alice", "bob"} {
		d := passkeytest.New(site.ID, site.Origin)
		key, err := register.Read(site, []byte("challenge"), d.Create([]byte("challenge")))
		must(t, err)
		m.keys["web:"+who] = []string{register.Key{ID: key.ID, Owner: "web:" + who, Public: key.Public}.Digest()}
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
	first(&r)
	m.files = map[string]string{}
	seed, err := keyring.SharedKey(t.Context(), db, audit.LogKey)
	must(t, err)
	log, text, err := keys.Log("bot.example.com", seed)
	must(t, err)
	m.log, err = cosign.ParseLog(text)
	must(t, err)
	w, err := keys.NewWitness("witness.example.com", bytes.Repeat([]byte{7}, 32), func() time.Time { return now })
	must(t, err)
	m.witness, _, err = cosign.Verifier(w.Verifier())
	must(t, err)
	event := func(e audit.Event) audit.Event {
		for _, change := range edit {
			change(&e)
		}
		return e
	}
	must(t, db.Update(t.Context(), func(tx store.Tx) error {
		add := func(thread, what string) {
			e := audit.Event{What: what, Approval: string(r.ID), Digest: r.Digest.String(), Target: a.Target, Command: string(a.Bytes), Facts: r.Facts()}
			if what == audit.Asked {
				e.User = string(r.Requester.ID)
			}
			if what == audit.Done {
				e.Outcome, e.OK = r.Outcome.Note, r.Outcome.OK
			}
			audit.Append(tx, thread, event(e), now)
		}
		approve := func() {
			for _, v := range r.Votes {
				audit.Append(tx, thread, event(audit.Event{What: audit.Approved, Approval: string(r.ID), Digest: r.Digest.String(), Target: a.Target, User: string(v.User.ID), Facts: r.Facts()}), now)
			}
		}
		for i := range 5 {
			audit.Append(tx, "web:other", audit.Event{What: audit.Asked, Note: fmt.Sprint(i)}, now)
			audit.Anchor(tx, now)
		}
		add(thread, audit.Asked)
		audit.Anchor(tx, now)
		approve()
		add(thread, audit.Running)
		audit.Anchor(tx, now)
		sign := func() string {
			tree, ok := audit.Tree(tx)
			if !ok {
				t.Fatal("there is no tree")
			}
			text, err := note.Sign(&note.Note{Text: cosign.Checkpoint{Origin: "bot.example.com", Tree: tree}.Text()}, log, w)
			must(t, err)
			return string(text)
		}
		m.early = sign()
		add(thread, audit.Done)
		audit.Append(tx, thread, event(audit.Event{What: audit.Asked, Approval: string(no.ID), Digest: no.Digest.String(), Target: "local", Facts: no.Facts()}), now)
		audit.Append(tx, thread, event(audit.Event{What: audit.Denied, Approval: string(no.ID), Digest: no.Digest.String(), Target: "local", User: "web:bob", Facts: no.Facts()}), now)
		audit.Append(tx, thread, event(audit.Event{What: audit.Asked, Approval: string(wait.ID), Digest: wait.Digest.String(), Target: "local", Facts: wait.Facts()}), now)
		audit.Anchor(tx, now)
		audit.SetWitness(tx, "witness.example.com", audit.Witnessed{Size: 8, Note: sign()})
		return nil
	}))
	records := []approvals.Record{r, no, wait}
	must(t, db.Update(t.Context(), func(tx store.Tx) error {
		for i, r := range records {
			store.Save(tx, store.Key("approval", string(r.ID)), r)
			if left, ok := (approvals.Ledger{}).ForgetPerson(tx, r.ID, who); ok {
				records[i] = left
			}
		}
		return nil
	}))
	var out bytes.Buffer
	must(t, report.Export(context.Background(), &out, report.Incident{Thread: thread, Made: now, Records: records}, report.Parts{
		Chain: report.Chain(db, thread, now), Checkpoints: report.Checkpoints(db), Sign: report.Signer(db),
	}))
	m.raw = out.String()
	z, err := zip.NewReader(strings.NewReader(m.raw), int64(len(m.raw)))
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
	var entries [][2]string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, [2]string{name, files[name]})
	}
	return m.checkEntries(t, entries)
}

func (m made) checkEntries(t *testing.T, files [][2]string) (bad []string, all string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, file := range files {
		f, err := z.CreateHeader(&zip.FileHeader{Name: file[0], Method: zip.Store}) // to deflate takes long
		must(t, err)
		_, _ = io.WriteString(f, file[1])
	}
	must(t, z.Close())
	trust := verifier.Trust{Witnesses: []note.Verifier{m.witness}, Keys: m.keys}
	if m.log.Verifier != nil {
		trust.Log = []cosign.LogKey{m.log}
	}
	found, err := verifier.Archive(bytes.NewReader(b.Bytes()), int64(b.Len()), trust)
	if err != nil {
		return []string{err.Error()}, ""
	}
	for _, f := range found {
		if all += [...]string{"ok ", "FAIL ", "open ", "note "}[f.Kind] + f.Say + "\n"; f.Kind == verifier.Bad {
			bad = append(bad, f.Say)
		}
	}
	return bad, all
}

// replaced is a file with one text in the place of another, which must be there.
func (m made) replaced(t *testing.T, name string, pairs ...string) map[string]string {
	t.Helper()
	files := maps.Clone(m.files)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(files[name], pairs[i]) {
			t.Fatalf("%s has no %q:\n%s", name, pairs[i], files[name])
		}
		files[name] = strings.Replace(files[name], pairs[i], pairs[i+1], 1)
	}
	return files
}

// rechained is an archive whose export has another text and the right sum at its end: no key is needed for that.
func (m made) rechained(t *testing.T, pairs ...string) map[string]string {
	t.Helper()
	files := m.replaced(t, "audit.jsonl", pairs...)
	text := files["audit.jsonl"]
	at := strings.LastIndex(text, `{"end":`)
	sum := sha([]byte(text[:at]))
	cut := strings.Index(text[at:], `"sha256":"`) + at + len(`"sha256":"`)
	files["audit.jsonl"] = text[:cut] + sum + text[cut+len(sum):]
	return files
}

// hidden is an archive in which a member of the first request is another one, and its hash stands beside it as if a
// secret had been taken out.
func (m made) hidden(t *testing.T, name, value string) map[string]string {
	t.Helper()
	line, _, _ := strings.Cut(m.files["approvals.jsonl"], "\n")
	var row map[string]json.RawMessage
	var salts map[string]string
	must(t, json.Unmarshal([]byte(line), &row))
	must(t, json.Unmarshal(row["salts"], &salts))
	h := hmac.New(sha256.New, []byte(salts[name]))
	_, _ = h.Write(row[name])
	return m.replaced(t, "approvals.jsonl", `"`+name+`":`+string(row[name]), `"`+name+`":`+value, salts[name], "="+hex.EncodeToString(h.Sum(nil)))
}

// TestAnArchiveAfterSomebodyWasForgotten says nothing of them but their id, and is no forged one.
func TestAnArchiveAfterSomebodyWasForgotten(t *testing.T) {
	m := makeArchiveOf(t, "web:bob", func(*approvals.Record) {})
	bad, all := m.check(t, m.files)
	if requests := m.files["approvals.jsonl"]; len(bad) > 0 || strings.Contains(requests, `"name":"bob"`) || strings.Contains(requests, "not now") || strings.Contains(requests, "hangs") || !strings.Contains(requests, `"name":"dave"`) {
		t.Errorf("%q\n%s", bad, requests)
	}
	for _, want := range []string{"a secret was taken out of by, reason, votes, so", "The chain of decisions is whole"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s\n%q is missing", all, want)
		}
	}
}

// TestABotThatLies writes a record without a fault, of something that should not have run.
func TestABotThatLies(t *testing.T) {
	for want, change := range map[string]func(*approvals.Record){
		"the vote of web:bob had to be signed, and isn't":               func(r *approvals.Record) { r.Votes[1].Passkey = nil },
		"its votes aren't enough for what it needed":                    func(r *approvals.Record) { r.Votes = r.Votes[:1] },
		"the vote of web:bob: what was signed is something else":        func(r *approvals.Record) { r.Votes[1].Passkey = r.Votes[0].Passkey },
		"the vote of web:alice: the card in the record isn't the one":   func(r *approvals.Record) { r.Votes[0].Passkey.Shown = json.RawMessage(`{"title":"Another"}`) },
		"what it says to run isn't what was decided":                    func(r *approvals.Record) { r.Action.Bytes = []byte("reboot") },
		"the vote of web:bob: this signature is for something else":     func(r *approvals.Record) { r.Votes[1].Passkey.Response = r.Votes[0].Passkey.Response },
		"the vote of web:bob: the signature isn't that of this passkey": func(r *approvals.Record) { r.Votes[1].Passkey.Public = r.Votes[0].Passkey.Public },
		"the vote of web:bob: this signature was made on another page":  func(r *approvals.Record) { r.Votes[1].Passkey.Site.Origin = "https://evil.example.com" },
	} {
		m := makeArchiveOf(t, "", change)
		if bad, all := m.check(t, m.files); !strings.Contains(strings.Join(bad, "\n"), want) || strings.Contains(all, "FAIL The chain") {
			t.Errorf("%q is missing:\n%s", want, all)
		}
	}
}

// TestForgedArchives: each is made from a real archive by somebody who has no key. None is ok.
func TestForgedArchives(t *testing.T) {
	m := makeArchive(t)
	vote := func(who string) string { return `"votes":[{"user":{"id":"web:` + who + `","name":"` + who + `"}` }
	line, _, _ := strings.Cut(m.files["approvals.jsonl"], "\n")
	text := m.files["audit.jsonl"]
	salted := text[strings.LastIndex(text, `"texts":{"salt"`):]
	salted = salted[:strings.Index(salted, "}")+1]
	for name, files := range map[string]map[string]string{
		"the text":                            m.replaced(t, "approvals.jsonl", "systemctl restart", "rm -rf /"),
		"the signed card":                     m.replaced(t, "approvals.jsonl", `"title":"Run a command"`, `"title":"Nothing"`),
		"the state of what ran":               m.replaced(t, "approvals.jsonl", `"state":"done"`, `"state":"denied"`),
		"a made-up basis":                     m.replaced(t, "approvals.jsonl", `"state":"done"`, `"basis":{"kind":"grant","why":"approved for an hour by alice"},"state":"done"`),
		"another voter":                       m.replaced(t, "approvals.jsonl", vote("alice"), vote("carol")),
		"the proof that it needed":            m.replaced(t, "approvals.jsonl", `"proof":"passkey"`, `"proof":""`),
		"how many it needed":                  m.replaced(t, "approvals.jsonl", `"count":2`, `"count":1`),
		"how it ended":                        m.replaced(t, "approvals.jsonl", `"note":"exit code 0"`, `"note":"exit code 1"`),
		"whether it ended well":               m.replaced(t, "approvals.jsonl", `"outcome":{"ok":true`, `"outcome":{"ok":false`),
		"the requester":                       m.replaced(t, "approvals.jsonl", `"requester":{"id":"web:dave"`, `"requester":{"id":"web:erin"`),
		"the time":                            m.replaced(t, "approvals.jsonl", `"created":"2026-03-01T12`, `"created":"2026-03-02T12`),
		"the time of a vote":                  m.replaced(t, "approvals.jsonl", `"via":"button"`, `"via":"button"`, `"at":"2026-03-01T12`, `"at":"2026-03-02T12`),
		"the level":                           m.replaced(t, "approvals.jsonl", `"level":"medium"`, `"level":"low"`),
		"the place":                           m.replaced(t, "approvals.jsonl", `"place":{"target":"web-1"`, `"place":{"target":"web-2"`),
		"the request is missing":              m.replaced(t, "approvals.jsonl", line+"\n", ""),
		"the request is there twice":          m.replaced(t, "approvals.jsonl", line, line+"\n"+line),
		"a name twice, differing by case":     m.replaced(t, "approvals.jsonl", `"action":{`, `"action":{"tool":"x"},"Action":{`),
		"a name twice":                        m.replaced(t, "approvals.jsonl", `"state":"done"`, `"state":"denied","state":"done"`),
		"a name in another case":              m.replaced(t, "approvals.jsonl", `"state":"done"`, `"State":"done"`),
		"a name that nobody writes":           m.replaced(t, "approvals.jsonl", `"state":"done"`, `"command":"rm -rf /","state":"done"`),
		"one in the action":                   m.replaced(t, "approvals.jsonl", `"tool":"run_shell"`, `"command":"rm -rf /","tool":"run_shell"`),
		"a withheld text that is whole":       m.rechained(t, salted, `"texts":{"withheld":true,"command":"rm -rf /"}`),
		"a withheld text with something else": m.rechained(t, salted, `"texts":{"withheld":true,"command":"[redacted:x#1234]","Command":"rm -rf /"}`),
		"a header with something else":        m.rechained(t, `{"export":{`, `{"export":{"note":"all is well",`),
	} {
		if bad, all := m.check(t, files); len(bad) == 0 {
			t.Errorf("%s: nobody found it\n%s", name, all)
		}
	}
	// What says that a secret was taken out excuses nothing: that is neither right nor wrong.
	for name, files := range map[string]map[string]string{
		"the text":     m.replaced(t, "approvals.jsonl", "systemctl restart", "rm -rf /", `"dir":"/srv"`, `"dir":"[redacted:x#1234]"`),
		"the reason":   m.hidden(t, "reason", `"[redacted:x#1234] and nothing else"`),
		"the outcome":  m.hidden(t, "outcome", `{"ok":true,"note":"exit [redacted:x#1234]"}`),
		"a chain text": m.rechained(t, salted, `"texts":{"withheld":true,"outcome":"[redacted:x#1234]"}`),
	} {
		if bad, all := m.check(t, files); len(bad) > 0 || !strings.Contains(all, "open ") {
			t.Errorf("%s: %q\n%s", name, bad, all)
		}
	}
	for name, files := range map[string]map[string]string{
		"the card":                m.replaced(t, "approvals.jsonl", `"title":"Run a command"`, `"title":"Nothing [redacted:x#1234]"`),
		"a member without a mark": m.hidden(t, "reason", `"all is well"`),
		"other votes":             m.hidden(t, "votes", `[{"user":{"id":"web:carol"},"approve":true,"meets":[0],"reason":"[redacted:x#1234]"}]`),
	} {
		if bad, all := m.check(t, files); len(bad) == 0 {
			t.Errorf("%s: nobody found it\n%s", name, all)
		}
	}
	if bad, _ := m.check(t, m.replaced(t, "approvals.jsonl", "systemctl restart", "rm -rf /", `"rule":"`, `"rule":"[redacted:x#1234]`)); len(bad) == 0 {
		t.Error("a secret that was taken out elsewhere excuses another text")
	}
}

// TestArchivesThatAreReadInTwoWays: programs differ in which of two files of one name they unpack.
func TestArchivesThatAreReadInTwoWays(t *testing.T) {
	m := makeArchive(t)
	var all [][2]string
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		all = append(all, [2]string{name, m.files[name]})
	}
	for name, more := range map[string][2]string{
		"requests twice":            {"approvals.jsonl", "forged"},
		"the chain twice":           {"audit.jsonl", "forged"},
		"differing by case":         {"Approvals.jsonl", "forged"},
		"by another path":           {"./approvals.jsonl", "forged"},
		"through a directory":       {"x/../approvals.jsonl", "forged"},
		"outside":                   {"../approvals.jsonl", "forged"},
		"with Windows's separators": {`x\approvals.jsonl`, "forged"},
		"more than is read":         {"checkpoints/9.txt", strings.Repeat("x", 64<<20)},
	} {
		if bad, _ := m.checkEntries(t, append(slices.Clone(all), more)); len(bad) == 0 || name == "more than is read" && !strings.Contains(bad[0], "more than 64 MB") {
			t.Errorf("%s: nobody found it", name)
		}
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, file := range append(all, [2]string{"checkpoints/8.txt", "x"}, [2]string{"checkpoints/9.txt", "x"}) {
		f, err := z.CreateHeader(&zip.FileHeader{Name: file[0], Method: zip.Store})
		must(t, err)
		_, _ = io.WriteString(f, file[1])
	}
	must(t, z.Close())
	raw := b.String()
	if _, err := verifier.Archive(strings.NewReader(raw), int64(len(raw)), verifier.Trust{}); err != nil {
		t.Fatal(err)
	}
	patch := func(old, next string, last bool) string {
		at := strings.Index(raw, old)
		if last {
			at = strings.LastIndex(raw, old)
		}
		return raw[:at] + next + raw[at+len(old):]
	}
	first, second := strings.LastIndex(raw, "checkpoints/8.txt"), strings.LastIndex(raw, "checkpoints/9.txt")
	end := strings.LastIndex(raw, "PK\x05\x06")
	for name, twin := range map[string]string{
		"two entries over the same bytes":        raw[:second-4] + raw[first-4:first] + raw[second:],
		"another archive before it":              raw + raw,
		"a program before it":                    "#!/bin/sh\n" + raw,
		"something behind it":                    raw + "x",
		"a comment with another end":             raw[:len(raw)-2] + "\x16\x00" + raw[end:],
		"another name in the local header":       patch("checkpoints/9.txt", "checkpoints/7.txt", false),
		"another name in the directory":          patch("checkpoints/9.txt", "checkpoints/7.txt", true),
		"another method in the local header":     patch("PK\x03\x04\x14\x00\x08\x00\x00", "PK\x03\x04\x14\x00\x08\x00\x08", false),
		"an entry that the directory leaves out": strings.Replace(raw, "PK\x01\x02", raw[:strings.Index(raw, "PK\x03\x04\x14")+60]+"PK\x01\x02", 1),
	} {
		if found, err := verifier.Archive(strings.NewReader(twin), int64(len(twin)), verifier.Trust{}); err == nil {
			t.Errorf("%s: nobody found it: %v", name, found)
		}
	}
	for name, h := range map[string]zip.FileHeader{
		"a link":                         {Name: "outputs/x.txt", ExternalAttrs: 0o120777 << 16, CreatorVersion: 3 << 8},
		"a directory":                    {Name: "outputs/"},
		"an absolute name":               {Name: "/outputs"},
		"a name with a line feed":        {Name: "approvals.jsonl\nok"},
		"a letter that folds to another": {Name: "audit.j\u017fonl"},
		"a drive":                        {Name: "c:approvals.jsonl"},
		"a dot at its end":               {Name: "approvals.jsonl."},
		"another name beside it":         {Name: "x.txt", Extra: []byte("up\x06\x00\x01\x00\x00\x00\x00y")},
		"a comment":                      {Name: "x.txt", Comment: "approvals.jsonl"},
		"a file like a directory":        {Name: "statements"},
		"a directory in capitals":        {Name: "Statements/x.json"},
	} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, file := range all {
			f, err := z.Create(file[0])
			must(t, err)
			_, _ = io.WriteString(f, file[1])
		}
		_, err := z.CreateHeader(&h)
		must(t, err)
		must(t, z.Close())
		if found, err := verifier.Archive(bytes.NewReader(b.Bytes()), int64(b.Len()), verifier.Trust{}); err == nil {
			t.Errorf("%s: nobody found it: %v", name, found)
		}
	}
}

// TestAWitnessThatSignedNothing: a checkpoint of size 0 is signed for anybody, and shows nothing.
func TestAWitnessThatSignedNothing(t *testing.T) {
	m := makeArchive(t)
	files := maps.Clone(m.files)
	w, err := keys.NewWitness("witness.example.com", bytes.Repeat([]byte{7}, 32), time.Now)
	must(t, err)
	text, err := note.Sign(&note.Note{Text: cosign.Checkpoint{Origin: "bot.example.com"}.Text()}, w)
	must(t, err)
	files["checkpoints/1.txt"] = string(text)
	if bad, all := m.check(t, files); !slices.Contains(bad, "The witness witness.example.com signed nothing of this record.") {
		t.Errorf("%q\n%s", bad, all)
	}
}

// TestCheckpointsOfTwoRecords: a witness may sign many records. Without the record's key, its name is all that tells them apart.
func TestCheckpointsOfTwoRecords(t *testing.T) {
	m := makeArchive(t)
	m.log = cosign.LogKey{}
	w, err := keys.NewWitness("witness.example.com", bytes.Repeat([]byte{7}, 32), time.Now)
	must(t, err)
	another, err := note.Sign(&note.Note{Text: strings.Replace(m.early[:strings.Index(m.early, "\n\n")+1], "bot.example.com", "another.example.com", 1)}, w)
	must(t, err)
	files := maps.Clone(m.files)
	files["checkpoints/2.txt"] = string(another)
	if bad, all := m.check(t, files); !slices.Contains(bad, "checkpoints/2.txt: it is for the record another.example.com, and another one for bot.example.com.") {
		t.Errorf("%q\n%s", bad, all)
	}
	files["checkpoints/1.txt"] = string(another)
	if bad, all := m.check(t, files); len(bad) > 0 || !strings.Contains(all, "signed 7 of 8 anchors of another.example.com at") {
		t.Errorf("alone: %q\n%s", bad, all)
	}
}

// TestWhatCameAfterTheWitness: what no witness has signed is said, and so is a chain of which the heads were left out.
func TestWhatCameAfterTheWitness(t *testing.T) {
	m := makeArchive(t)
	files := maps.Clone(m.files)
	files["checkpoints/1.txt"] = m.early
	if bad, all := m.check(t, files); len(bad) > 0 || !strings.Contains(all, "signed 7 of 8 anchors of bot.example.com at 2026-03-01 12:00 UTC, which cover 4 of 8 lines") ||
		!strings.Contains(all, "open 4 lines of the chain came after") {
		t.Errorf("%q\n%s", bad, all)
	}
	// Without a key, somebody can calculate all hashes of the chain again, and leave out the heads that speak against it.
	var kept []string
	for line := range strings.Lines(m.files["audit.jsonl"]) {
		if !strings.HasPrefix(line, `{"head":`) {
			kept = append(kept, line)
		}
	}
	all := strings.Join(kept, "")
	m.files["audit.jsonl"] = all
	at := strings.LastIndex(all, `{"end":`)
	cut := strings.Index(all[at:], `"sha256":"`) + at + len(`"sha256":"`)
	m.files["audit.jsonl"] = all[:cut] + sha([]byte(all[:at])) + all[cut+64:]
	if bad, all := m.check(t, m.files); len(bad) > 0 || !strings.Contains(all, "open 8 lines of the chain came after") {
		t.Errorf("%q\n%s", bad, all)
	}
}

// TestADecisionWhileTheArchiveIsMade: the requests were read before it, and so the chain ends before it, too.
func TestADecisionWhileTheArchiveIsMade(t *testing.T) {
	db, now := mem.Open(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := approvals.Record{ID: "aaaaaaaaaa", Nonce: "n", Thread: thread, Action: approvals.Action{Tool: "write_file", Target: "local"}, State: approvals.Pending}
	r.Digest = r.Action.Digest()
	line := func(what string) {
		must(t, db.Update(t.Context(), func(tx store.Tx) error {
			audit.Append(tx, thread, audit.Event{What: what, Approval: string(r.ID), Digest: r.Digest.String(), Target: "local", Facts: r.Facts()}, now)
			audit.Anchor(tx, now)
			return nil
		}))
	}
	line(audit.Asked)
	inc := report.Incident{Thread: thread, Made: now, Records: []approvals.Record{r}, Lines: make([]audit.Line, 1)}
	r.State = approvals.Denied
	line(audit.Denied)
	var out bytes.Buffer
	must(t, report.Export(t.Context(), &out, inc, report.Parts{Chain: report.Chain(db, thread, now)}))
	found, err := verifier.Archive(bytes.NewReader(out.Bytes()), int64(out.Len()), verifier.Trust{})
	must(t, err)
	for _, f := range found {
		if f.Kind == verifier.Bad || f.Kind == verifier.Open {
			t.Error(f.Say)
		}
	}
}

// TestTheLatePreviewOfARequestThatWaits is said not to be checked; everything else of the request is.
func TestTheLatePreviewOfARequestThatWaits(t *testing.T) {
	m := makeArchive(t)
	if bad, all := m.check(t, m.replaced(t, "approvals.jsonl", "writes a file", "deletes a disk")); len(bad) > 0 || !strings.Contains(all, "note Request cccccccccc: it waits for a decision. Its preview") {
		t.Errorf("%q\n%s", bad, all)
	}
}

// TestAnArchiveOfAnOlderVersion is checked as far as its chain says something, and says where it doesn't.
func TestAnArchiveOfAnOlderVersion(t *testing.T) {
	old := func(e *audit.Event) { e.Facts, e.OK = "", false }
	m := makeArchive(t, old)
	bad, all := m.check(t, m.files)
	if len(bad) > 0 || !strings.Contains(all, "open Request aaaaaaaaaa: its chain is of an older version") {
		t.Errorf("%q\n%s", bad, all)
	}
	for name, files := range map[string]map[string]string{
		"the text":      m.replaced(t, "approvals.jsonl", "systemctl restart", "rm -rf /"),
		"another voter": m.replaced(t, "approvals.jsonl", `"votes":[{"user":{"id":"web:alice"`, `"votes":[{"user":{"id":"web:carol"`),
		"the state":     m.replaced(t, "approvals.jsonl", `"state":"done"`, `"state":"denied"`),
	} {
		if bad, all := m.check(t, files); len(bad) == 0 {
			t.Errorf("%s: nobody found it\n%s", name, all)
		}
	}
}

func TestAnArchiveAsItWasMade(t *testing.T) {
	m := makeArchive(t)
	bad, all := m.check(t, m.files)
	if len(bad) > 0 {
		t.Fatalf("%q", bad)
	}
	if _, err := verifier.Archive(strings.NewReader(m.raw), int64(len(m.raw)), verifier.Trust{}); err != nil {
		t.Errorf("as the bot writes it: %v", err)
	}
	for _, want := range []string{
		"The chain of decisions is whole: 8 lines, 8 anchors, which cover 8.", "The witness witness.example.com signed 8 of 8 anchors of bot.example.com at 2026-03-01 12:00 UTC, which cover 8 of 8 lines.",
		"approved by web:alice and web:bob; 2 of 2 votes signed", "1 statement of changes, signed by the record's key.",
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
