package signer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/approvals"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/proof/signer"
	"countersign/proof/signer/page"
	"countersign/targets/certificate"
	"countersign/targets/ssh/sshtest"
)

const own = "https://signer.example.com:7022"

// office is a signer with its own page, at which alice and bob have passkeys.
type office struct {
	*bench
	signer *signer.Signer
	config *signer.Config
	at     time.Time
}

func newOffice(t *testing.T) *office {
	t.Helper()
	p := people{"alice": passkeytest.New("signer.example.com", own), "bob": passkeytest.New("signer.example.com", own)}
	o := &office{bench: &bench{t: t, people: p, hostKey: "SHA256:" + strings.Repeat("A", 43)}, at: time.Now()}
	var out bytes.Buffer
	dir := t.TempDir()
	cmd := signer.Command(page.Draw)
	cmd.SetArgs([]string{"init", dir + "/s"})
	cmd.SetOut(&out)
	must(t, cmd.Execute())
	c, err := signer.Parse([]byte("listen: /run/x\ntoken: token\nca: " + dir + "/s/ca\nstate: " + dir + "/issued\nconsole: " + console + "\norigin: " + own + "\npeople:\n" + p.lines(t) +
		"targets: {web-1: {host_key: " + o.hostKey + ", from: [127.0.0.1], users: [" + runAs + "], approvals: [{count: 2, of: [alice, bob]}], break_glass: [alice]}}\n"))
	must(t, err)
	o.config = c
	o.signer, err = signer.Open(c, page.Draw, func() time.Time { return o.at }, func(string, ...any) {})
	must(t, err)
	return o
}

// lines is the configuration of people whose passkeys are for the signer's page.
func (p people) lines(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for n, d := range p {
		fmt.Fprintf(&b, "  %s: [%s]\n", n, yamlKey(d.ID(), registered(t, d)))
	}
	return b.String()
}

func (o *office) get(method, path, word string, body any) *httptest.ResponseRecorder {
	raw, _ := json.Marshal(body)
	r, w := httptest.NewRequest(method, path, bytes.NewReader(raw)), httptest.NewRecorder()
	if word != "" {
		r.Header.Set("Authorization", "Bearer "+word)
	}
	o.signer.Handler(token).ServeHTTP(w, r)
	return w
}

// asks has the signer show an action to somebody, with what the bot says of it.
func (o *office) asks(a any, s passkey.Statement) certificate.Reply {
	o.t.Helper()
	raw, err := json.Marshal(a)
	must(o.t, err)
	return o.asksFor(raw, s)
}

func (o *office) asksFor(raw []byte, s passkey.Statement) (reply certificate.Reply) {
	o.t.Helper()
	s.Version = 1
	must(o.t, json.Unmarshal(o.get("POST", "/ask", token, certificate.Ask{Action: raw, Statement: s.Encode()}).Body.Bytes(), &reply))
	return reply
}

func votes(who string) passkey.Statement {
	return passkey.Statement{For: passkey.ForApprove, Request: "aaaaaaaaaa", Voter: "web:" + who, Owner: "web:" + who}
}

// page is what a link shows, with its status.
func (o *office) page(link string) (string, int) {
	w := o.get("GET", strings.TrimPrefix(link, own), "", nil)
	return w.Body.String(), w.Code
}

// certificate asks for a certificate with votes.
func (o *office) certificate(a approvals.Action, v ...certificate.Vote) error {
	o.t.Helper()
	raw, err := json.Marshal(a)
	must(o.t, err)
	_, err = o.signer.Issue(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: "aaaaaaaaaa", Action: raw, Votes: v, Key: string(xssh.MarshalAuthorizedKey(sshtest.NewKey(o.t).PublicKey()))})
	return err
}

// vote signs what a link shows with somebody's device.
func (o *office) vote(r certificate.Reply, d *passkeytest.Device) certificate.Vote {
	return certificate.Vote{Statement: r.Statement, Response: d.Sign(passkey.Challenge(r.Statement))}
}

func TestOnlyWhatTheSignersPageShowedIsSigned(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		do         func(o *office, a, b certificate.Reply) error
	}{
		{"two people", "", func(o *office, a, b certificate.Reply) error {
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(b, o.people["bob"]))
		}},
		{"one of two", "must approve, and 1 did", func(o *office, a, _ certificate.Reply) error {
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]))
		}},
		{"one link, by both", "signed by a passkey of bob", func(o *office, a, _ certificate.Reply) error {
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(a, o.people["bob"]))
		}},
		{"one link, twice", "voted twice", func(o *office, a, _ certificate.Reply) error {
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(a, o.people["alice"]))
		}},
		{"another action", "signed something else", func(o *office, a, b certificate.Reply) error {
			return o.certificate(o.action("rm -rf /srv"), o.vote(a, o.people["alice"]), o.vote(b, o.people["bob"]))
		}},
		{"a statement that was changed", "for something else", func(o *office, a, b certificate.Reply) error {
			v := o.vote(a, o.people["alice"])
			v.Statement = bytes.Replace(v.Statement, []byte(passkey.ForApprove), []byte(passkey.ForGlass), 1)
			return o.certificate(o.action("true"), v, o.vote(b, o.people["bob"]))
		}},
		{"signed on the bot's page", "another page", func(o *office, a, b certificate.Reply) error {
			o.people["alice"].Origin = console
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(b, o.people["bob"]))
		}},
		{"signed on another port of the signer's host", "another page", func(o *office, a, b certificate.Reply) error {
			o.people["alice"].Origin = "https://signer.example.com"
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(b, o.people["bob"]))
		}},
		{"a passkey for the console's host", "isn't that of this passkey", func(o *office, a, b certificate.Reply) error {
			o.people["alice"].Site = "bot.example.com"
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(b, o.people["bob"]))
		}},
		{"a passkey of the console", "doesn't know", func(o *office, a, b certificate.Reply) error {
			return o.certificate(o.action("true"), o.vote(a, passkeytest.New("bot.example.com", console)), o.vote(b, o.people["bob"]))
		}},
		{"too late", "older than", func(o *office, a, b certificate.Reply) error {
			o.at = o.at.Add(31 * time.Minute)
			return o.certificate(o.action("true"), o.vote(a, o.people["alice"]), o.vote(b, o.people["bob"]))
		}},
		{"the glass broken by who may", "", func(o *office, _, _ certificate.Reply) error {
			s := votes("alice")
			s.For = passkey.ForGlass
			return o.certificate(o.action("true"), o.vote(o.asks(o.action("true"), s), o.people["alice"]))
		}},
		{"the glass broken by who may not", "must approve", func(o *office, _, _ certificate.Reply) error {
			s := votes("bob")
			s.For = passkey.ForGlass
			return o.certificate(o.action("true"), o.vote(o.asks(o.action("true"), s), o.people["bob"]))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOffice(t)
			err := tc.do(o, o.asks(o.action("true"), votes("alice")), o.asks(o.action("true"), votes("bob")))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// What the bot says of the digest, the time and the nonce is not believed.
func TestTheSignerWritesTheStatement(t *testing.T) {
	o := newOffice(t)
	said := votes("alice")
	said.Digest, said.Nonce, said.Fresh, said.At = strings.Repeat("0", 64), "mine", "mine", o.at.Add(time.Hour)
	s, err := passkey.Decode(o.asks(o.action("true"), said).Statement)
	must(t, err)
	if s.Digest != o.action("true").Digest().String() || s.Nonce == "mine" || s.Fresh == "mine" || !s.At.Equal(o.at) {
		t.Errorf("%+v", s)
	}
}

func TestWhatCannotBeShownIsNotAsked(t *testing.T) {
	o := newOffice(t)
	whole, err := json.Marshal(o.action("true"))
	must(t, err)
	with := func(members string) []byte {
		return append(bytes.TrimSuffix(bytes.Clone(whole), []byte("}")), members...)
	}
	nested, err := json.Marshal(approvals.Action{Steps: []approvals.Action{{Steps: []approvals.Action{o.action("true")}}}})
	must(t, err)
	steps := approvals.Action{Kind: approvals.KindChange}
	for range 5000 {
		steps.Steps = append(steps.Steps, o.action("true"))
	}
	many, err := json.Marshal(steps)
	must(t, err)
	changed := func(change func(*passkey.Statement)) passkey.Statement { s := votes("alice"); change(&s); return s }
	for _, tc := range []struct {
		name, want string
		action     []byte
		s          passkey.Statement
	}{
		{"as it should be", "", whole, votes("alice")},
		{"nothing", "can't be read", nil, votes("alice")},
		{"text", "can't be read", []byte("rm -rf /"), votes("alice")},
		{"a member that the page doesn't know", "can't be read", with(`,"then":"rm -rf /"}`), votes("alice")},
		{"a member twice", "can't be read", with(`,"bytes":"cm0gLXJmIC8="}`), votes("alice")},
		{"a member in capitals", "can't be read", with(`,"BYTES":"cm0gLXJmIC8="}`), votes("alice")},
		{"text behind it", "can't be read", append(bytes.Clone(whole), " {}"...), votes("alice")},
		{"a plan in a plan", "no plan", nested, votes("alice")},
		{"a megabyte", "too long", with(`,"preview":"` + strings.Repeat("x", 700<<10) + `"}`), votes("alice")},
		{"more than is read", "too long", with(`,"preview":"` + strings.Repeat("x", 2<<20) + `"}`), votes("alice")},
		{"thousands of steps", "too long", many, votes("alice")},
		{"a reason of a megabyte", "too long", whole, changed(func(s *passkey.Statement) { s.Reason = strings.Repeat("x", 500<<10) })},
		{"who has no passkey", "has no passkey", whole, votes("eve")},
		{"to confirm a key", "no request", whole, changed(func(s *passkey.Statement) { s.For = passkey.ForKey })},
		{"a request's name with HTML", "no request", whole, changed(func(s *passkey.Statement) { s.Request = "<script>" })},
	} {
		if r := o.asksFor(tc.action, tc.s); tc.want == "" && r.Link == "" || tc.want != "" && (r.Link != "" || !strings.Contains(r.Error, tc.want)) {
			t.Errorf("%s: %.200q %q, want %q", tc.name, r.Error, r.Link, tc.want)
		}
	}
	if w := o.get("POST", "/ask", "guess", certificate.Ask{Action: whole, Statement: votes("alice").Encode()}); w.Code != http.StatusUnauthorized {
		t.Errorf("without the token: %d %s", w.Code, w.Body)
	}
}

// Every field of an action is on the page, so that nothing of it is signed unseen.
func TestThePageShowsEverythingThatIsSigned(t *testing.T) {
	o := newOffice(t)
	full := func(mark string) (a approvals.Action, marks []string) {
		v := reflect.ValueOf(&a).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			text := mark + "-" + name
			switch f := v.Field(i).Addr().Interface().(type) {
			case *[]approvals.Action:
				continue
			case *bool:
				*f = true
				continue
			case *[]byte:
				*f = []byte(text)
			case *json.RawMessage:
				*f = json.RawMessage(`"` + text + `"`)
			case *[]string:
				*f = []string{text, text + "2"}
				marks = append(marks, text+"2")
			case *map[string]string:
				*f = map[string]string{text: text + "2"}
				marks = append(marks, text+"2")
			default:
				v.Field(i).SetString(text)
			}
			marks = append(marks, text)
		}
		return a, marks
	}
	plan, marks := full("plan")
	for _, name := range []string{"one", "two"} {
		step, more := full(name)
		plan.Steps, marks = append(plan.Steps, step), append(marks, more...)
	}
	s := votes("alice")
	s.Voter, s.Policy, s.Shown, s.Reason = "slack:U1", "the-policy", "the-card", "the-reason"
	text, status := o.page(o.asks(plan, s).Link)
	for _, want := range append(marks, "Locked", "Preview is whole", "slack:U1", "web:alice", "the-policy", "the-card", "the-reason", "aaaaaaaaaa", plan.Digest().String(), "Run these 2 steps?") {
		if status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%d, no %q", status, want)
		}
	}
	if strings.Contains(text, "you decide alone") {
		t.Error("an approval is called breaking the glass")
	}
	s.For = passkey.ForGlass
	if text, _ := o.page(o.asks(o.action("true"), s).Link); !strings.Contains(text, "Break glass: you decide alone.") {
		t.Errorf("breaking the glass isn't called that:\n%s", text)
	}
}

func TestForeignTextCannotHideOnThePage(t *testing.T) {
	o := newOffice(t)
	a := o.action("echo <script>alert(1)</script> \u202egnp.exe\u2066 \x1b[2K\r \u200b\ufe0f\u2800\u3164 \xff &amp; é\tz e\u0301\u0337\u0488o")
	a.Dir, a.Files = `/"><img src=x onerror=alert(1)>`, map[string]string{"/\u202ea": "<b>x</b>"}
	s := votes("alice")
	s.Reason, s.Voter = "</main><button>Sign</button>\u202e", "slack:\"onclick=alert(1)"
	text, _ := o.page(o.asks(a, s).Link)
	for _, bad := range []string{"<script>alert", "<img", "<b>x", "<button>Sign", `"onclick`, "\u202e", "\u2066", "\x1b", "\r", "\u200b", "\ufe0f", "\u2800", "\u3164", "\xff"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{"&lt;script&gt;", "<mark>U+202E</mark>gnp.exe", "<mark>U+001B</mark>[2K<mark>U+000D</mark>", `<mark>\xff</mark>`, "&amp;amp;", "é\tz", "e\u0301<mark>U+0337</mark><mark>U+0488</mark>o"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

func TestALinkIsOverAfterTenMinutesAndForNobodyElse(t *testing.T) {
	o := newOffice(t)
	r := o.asks(o.action("true"), votes("alice"))
	for _, other := range []string{own + "/sign/guess", own + "/sign/", r.Link + "x", r.Link[:len(r.Link)-1]} {
		if text, status := o.page(other); status == http.StatusOK || strings.Contains(text, o.people["alice"].ID()) {
			t.Errorf("%s shows %d", other, status)
		}
	}
	text, status := o.page(r.Link)
	keys := html.UnescapeString(regexp.MustCompile(`data-keys="([^"]*)"`).FindStringSubmatch(text)[1])
	if status != http.StatusOK || strings.TrimSpace(keys) != o.people["alice"].ID() {
		t.Errorf("%d, it asks for the keys %q", status, keys)
	}
	if to := regexp.MustCompile(`data-console="([^"]*)"`).FindStringSubmatch(text); to[1] != console {
		t.Errorf("it goes back to %q", to)
	}
	if text, _ := o.page(r.Link + "?console=https://evil.example&return=https://evil.example"); strings.Contains(text, "evil") {
		t.Error("the address says where it goes back to")
	}
	o.at = o.at.Add(10 * time.Minute)
	if text, status := o.page(r.Link); status != http.StatusNotFound || !strings.Contains(text, "This link is over") {
		t.Errorf("after ten minutes: %d %s", status, text)
	}
}

// A flood, for which one needs the token, ends the links of those whom it names, and of nobody else.
func TestAFloodOfLinksIsBounded(t *testing.T) {
	o := newOffice(t)
	alice, bob := o.asks(o.action("true"), votes("alice")), o.asks(o.action("true"), votes("bob"))
	var last certificate.Reply
	for range 1000 {
		last = o.asks(o.action("true"), votes("bob"))
	}
	for link, want := range map[string]int{alice.Link: http.StatusOK, bob.Link: http.StatusNotFound, last.Link: http.StatusOK} {
		if _, status := o.page(link); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
}

func TestThePageCanNeitherBeFramedNorLoadAnythingElse(t *testing.T) {
	o := newOffice(t)
	for _, path := range []string{strings.TrimPrefix(o.asks(o.action("true"), votes("alice")).Link, own), "/sign/over", "/register", "/page.js", "/page.css"} {
		w := o.get("GET", path, "", nil)
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s has no %q: %s", path, want, policy)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
			if w.Header().Get(name) != want {
				t.Errorf("%s has %s: %q", path, name, w.Header().Get(name))
			}
		}
		if regexp.MustCompile(`<script>|<style| style=| on[a-z]+=|https?://`).MatchString(strings.ReplaceAll(w.Body.String(), console, "")) {
			t.Errorf("%s has script or style in it, or names another site", path)
		}
	}
	if w := o.get("GET", "/page/page.html", "", nil); w.Code != http.StatusUnauthorized {
		t.Errorf("its source: %d", w.Code)
	}
}

func TestWithoutAnOriginThereIsNoPage(t *testing.T) {
	for _, tc := range []struct{ origin, want string }{
		{"origin: https://signer.example.com:7022\n", ""},
		{"origin: http://signer.example.com\n", "over https only"},
		{"origin: https://10.0.0.7:7022\n", "host name"},
		{"origin: " + console + "\n", "not the console's"},
	} {
		_, err := signer.Parse([]byte("listen: /run/x\ntoken: token\nca: ca\nstate: issued\nconsole: " + console + "\n" + tc.origin))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s%v, want %q", tc.origin, err, tc.want)
		}
	}
	dir := t.TempDir()
	cmd := signer.Command(page.Draw)
	cmd.SetArgs([]string{"init", dir + "/s"})
	cmd.SetOut(&bytes.Buffer{})
	must(t, cmd.Execute())
	c, err := signer.Parse([]byte("listen: /run/x\ntoken: token\nca: " + dir + "/s/ca\nstate: " + dir + "/issued\nconsole: " + console + "\n"))
	must(t, err)
	s, err := signer.Open(c, page.Draw, time.Now, func(string, ...any) {})
	must(t, err)
	if fresh(t, s) == "" {
		t.Error("the bot gets no nonce for its own page")
	}
	for _, path := range []string{"/register", "/sign/x", "/page.js"} {
		w := httptest.NewRecorder()
		s.Handler(token).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s answers %d", path, w.Code)
		}
	}
}
