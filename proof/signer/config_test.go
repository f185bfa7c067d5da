package signer_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/approvals/passkey/register"
	"countersign/proof/signer"
	"countersign/proof/signer/page"
	"countersign/targets/certificate"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// key is a new passkey.
func key(t *testing.T) register.Key {
	t.Helper()
	k, err := register.Read(passkey.Site{ID: "bot.example.com", Origin: console}, []byte("c"), passkeytest.New("bot.example.com", console).Create([]byte("c")))
	must(t, err)
	return k
}

// registered is the public part of a device's key.
func registered(t *testing.T, d *passkeytest.Device) []byte {
	t.Helper()
	k, err := register.Read(passkey.Site{ID: d.Site, Origin: d.Origin}, []byte("c"), d.Create([]byte("c")))
	must(t, err)
	return k.Public
}

func yamlKey(id string, public []byte) string {
	return fmt.Sprintf("{id: %q, public: %q}", id, base64.RawURLEncoding.EncodeToString(public))
}

func TestAConfigurationCountsEachPersonAndEachDeviceOnce(t *testing.T) {
	a, b := key(t), key(t)
	for _, tc := range []struct{ people, approvals, want string }{
		{"{alice: [" + yamlKey(a.ID, a.Public) + "], bob: [" + yamlKey(b.ID, b.Public) + "]}", "[{count: 2, of: [alice, bob]}]", ""},
		{"{alice: [" + yamlKey(a.ID, a.Public) + "]}", "[{count: 2, of: [alice, alice]}]", "alice is listed twice"},
		{"{alice: [" + yamlKey(a.ID, a.Public) + "], eve: [" + yamlKey(b.ID, a.Public) + "]}", "[{count: 2, of: [alice, eve]}]", "the same key"},
		{"{alice: [" + yamlKey(a.ID, a.Public) + "," + yamlKey(b.ID, a.Public) + "]}", "[{count: 1, of: [alice]}]", "the same key"},
		{"{alice: [" + yamlKey(a.ID, []byte("no key")) + "]}", "[{count: 1, of: [alice]}]", "is no key"},
	} {
		_, err := signer.Parse([]byte("listen: /run/x\ntoken: token\nca: ca\nstate: issued\nconsole: " + console + "\npeople: " + tc.people +
			"\ntargets: {web-1: {host_key: SHA256:" + strings.Repeat("A", 43) + ", from: [127.0.0.1], users: [root], approvals: " + tc.approvals + "}}\n"))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s %s: %v; want %q", tc.people, tc.approvals, err, tc.want)
		}
	}
}

func TestCheckPrintsWhatPeopleCompare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "signer")
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := signer.Command(page.Draw)
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		must(t, cmd.Execute())
		return out.String()
	}
	run("init", dir)
	file := filepath.Join(dir, "signer.yaml")
	raw, err := os.ReadFile(file)
	must(t, err)
	k := key(t)
	must(t, os.WriteFile(file, bytes.Replace(raw, []byte("people: {}"), []byte("people: {alice: ["+yamlKey(k.ID, k.Public)+"]}"), 1), 0o600))
	k.Owner = "web:alice"
	if out := run("check", "--config", file); !strings.Contains(out, "  "+k.Digest()[:20]+"  alice\n") || !strings.Contains(out, "SHA256:") {
		t.Errorf("%s", out)
	}
}

// TestAFullDiskSignsNothingTwice: what couldn't be noted isn't signed, and what was noted counts after a restart.
func TestAFullDiskSignsNothingTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		needstest.Missing(t, "only root can mount a small disk: run the tests as root in a container")
	}
	dir := t.TempDir()
	disk := t.TempDir()
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=12k")) // three pages: the secret, what was signed, and one more
	t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
	cmd := signer.Command(page.Draw)
	cmd.SetArgs([]string{"init", filepath.Join(dir, "s")})
	cmd.SetOut(&bytes.Buffer{})
	must(t, cmd.Execute())
	alice := newPeople("alice")
	c, err := signer.Parse([]byte("listen: /run/x\ntoken: token\nca: " + dir + "/s/ca\nstate: " + disk + "/issued\nconsole: " + console + "\npeople:\n" + alice.yaml(t) +
		"targets: {web-1: {host_key: SHA256:" + strings.Repeat("A", 43) + ", from: [127.0.0.1], users: [root], approvals: [{count: 1, of: [alice]}]}}\n"))
	must(t, err)
	b := &bench{t: t, people: alice, hostKey: "SHA256:" + strings.Repeat("A", 43), requests: map[string]certificate.Request{}}
	open := func() *signer.Signer {
		s, err := signer.Open(c, page.Draw, time.Now, func(format string, a ...any) { fmt.Fprintf(os.Stderr, format, a...) })
		must(t, err)
		return s
	}
	issue := func(s *signer.Signer, id string) error {
		a := b.action("true")
		a.User = "root"
		st := passkey.Statement{Version: 1, For: passkey.ForApprove, Request: id, Digest: a.Digest().String(), Owner: "web:alice", Nonce: "n" + id, Fresh: fresh(t, s)}
		encoded := func(a any) []byte { raw, _ := json.Marshal(a); return raw }
		_, err := s.Issue(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: id, Action: encoded(a), Votes: []certificate.Vote{b.sign(st, "alice")}, Key: string(xssh.MarshalAuthorizedKey(sshtest.NewKey(t).PublicKey()))})
		return err
	}
	s := open()
	must(t, issue(s, "aaaaaaaaaa"))
	fill := disk + "/fill"
	if err := os.WriteFile(fill, make([]byte, 8192), 0o600); err == nil {
		t.Fatal("the disk isn't full")
	}
	if err := issue(s, "bbbbbbbbbb"); err == nil || !strings.Contains(err.Error(), "nothing is signed") {
		t.Fatalf("on a full disk: %v", err)
	}
	must(t, os.Remove(fill))
	must(t, issue(s, "bbbbbbbbbb")) // nothing was signed for it before
	must(t, os.Remove(disk+"/issued/web-1@aaaaaaaaaa"))
	must(t, os.WriteFile(disk+"/issued/web-1@aaaaaaaaaa", nil, 0o600)) // as a signer that was killed leaves it
	s = open()
	for _, id := range []string{"aaaaaaaaaa", "bbbbbbbbbb"} {
		if err := issue(s, id); err == nil || !strings.Contains(err.Error(), "before") {
			t.Errorf("%s after a restart: %v", id, err)
		}
	}
}

// fresh is a nonce of now, of a signer that has no page.
func fresh(t *testing.T, s *signer.Signer) string {
	t.Helper()
	r, reply := httptest.NewRequest(http.MethodPost, "/ask", strings.NewReader("{}")), certificate.Reply{}
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.Handler(token).ServeHTTP(w, r)
	must(t, json.Unmarshal(w.Body.Bytes(), &reply))
	return reply.Nonce
}
