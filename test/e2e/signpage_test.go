package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/test/needstest"
)

// registers makes a passkey on the signer's page, and returns its line and its digits.
func (g *guest) registers(page string) (line, digits string) {
	g.t.Helper()
	g.do("the signer's page", chromedp.Navigate(page+"/register"), keys("#name", g.name), pressed("Make a passkey"), shows("#line", "public"))
	return g.text("#line"), g.text("#digits")
}

// arrives waits for the tab to be at another page, which would cut off a wait that began before.
func (g *guest) arrives(what, path string) {
	g.t.Helper()
	at := ""
	eventually(g.t, what, func() bool {
		at, _ = chromedp.Run(g.ctx, chromedp.Evaluate[string](`document.readyState === 'complete' ? location.pathname : ''`))
		return strings.HasPrefix(at, path) && (path != "/" || at == "/")
	}, func() string { return at + g.log() })
}

// reads waits for the signer's page to be ready, with these words on it.
func (g *guest) reads(words ...string) {
	g.t.Helper()
	g.arrives("the signer's page", "/sign/")
	for _, w := range words {
		g.do("the signer's page", shows("main", w))
	}
	g.do("the button", until(`!document.querySelector('#sign').disabled`))
}

// signs signs on the signer's page, and comes back.
func (g *guest) signs() {
	g.t.Helper()
	g.do("signing", pressed("Sign"))
	g.arrives("the console", "/")
}

// breaks presses Break glass of the open card, with a reason, and says yes.
func (g *guest) breaks(reason string) {
	g.t.Helper()
	const button = `[...document.querySelectorAll('#log .card.open button')].find((b) => b.textContent === 'Break glass')`
	g.do("breaking the glass", pressed("More"), until(`Boolean(`+button+`) && !`+button+`.disabled`), script(fmt.Sprintf(`document.querySelector('#log .card.open input.reason').value = %q`, reason)), script(button+`.click()`),
		until(`document.querySelector('#confirm').open && !document.querySelector('#confirm-yes').disabled`), script(`document.querySelector('#confirm-yes').click()`))
}

// address is where the page is.
func (g *guest) address() string {
	g.t.Helper()
	href, err := chromedp.Run(g.ctx, chromedp.Evaluate[string](`location.href`))
	if err != nil {
		g.t.Fatal(err)
	}
	return href
}

// TestPeopleSignOnTheSignersOwnPage: passkeys made at the signer, for its own host; a card leads to its page
// and back; two people need two signatures; breaking the glass is called that; the archive holds; and
// what is signed on the bot's own page, or signed before, counts nowhere.
func TestPeopleSignOnTheSignersOwnPage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "cs-ran-") //nolint:usetesting // other accounts write there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(dir, "ran")
	b := newBot(t, "", model(t, func(results int, user string) turn {
		switch {
		case results > 0:
			return turn{text: "the end of " + user[strings.Index(user, "please"):]}
		case strings.Contains(user, "please"):
			return turn{calls: []call{shell("id -un >>" + ran + " # " + user[strings.Index(user, "please"):])}}
		}
		return turn{text: "well"}
	}).URL)
	e := newEnrolled(t, b)
	s := e.sshd
	_, e.page, _ = strings.Cut(quietPort(t), ":")
	origin := "http://signer.localhost:" + e.page
	e.knows(2, "  alice: []\n  bob: []\n", "alice, bob")
	config := strings.Replace(fmt.Sprintf(signerConfig, e.ports, e.own, s.Port, s.User, s.KnownHosts), "unix:"+e.own+"/socket", "http://127.0.0.1:"+e.page, 1)
	b.configure(t, strings.Replace(config, "{count: 2}}", "{count: 2}, break_glass: [oncall]}", 1))
	e.enroll()
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	people, digits := "", map[string]string{}
	alice, bob := b.browser(t, "alice", 1280, 900), b.browser(t, "bob", 390, 844)
	for _, g := range []*guest{alice, bob} {
		g.device()
		line, d := g.registers(origin)
		if digits[g.name] = d; g == bob {
			g.picture("signer-register")
		}
		people += "  " + g.name + ":\n    " + line + "\n"
	}
	e.knows(2, people, "alice, bob")
	check, err := exec.CommandContext(t.Context(), e.signer, "check", "--config", filepath.Join(e.own, "signer.yaml")).CombinedOutput()
	for name, d := range digits {
		if err != nil || !strings.Contains(string(check), d+"  "+name) || !strings.Contains(string(check), "the signer's own page") {
			t.Errorf("check doesn't print what %s's page showed (%s):\n%s", name, d, check)
		}
	}
	alice.enter(b.link(t, "alice"))
	bob.enter(b.link(t, "bob"))
	dave := b.browser(t, "dave", 1280, 900)
	dave.enter(b.link(t, "dave"))
	open := func(g *guest, words string) {
		g.do("the conversation", until(`document.querySelector('.thread')?.textContent.includes('please')`), script(`document.querySelector('.thread').click()`), shows("#log .card.open", words))
	}
	dave.do("a change", keys("#text", "please one"+kb.Enter), shows("#log .card.open", "needs 2 of oncall by passkey"))
	open(alice, "please one")
	alice.approves()
	alice.reads("id -un >>", "web-1", "cstest-runas", "web:alice")
	alice.picture("signer-page")
	alice.signs()
	alice.do("back", shows("#told", "still needs 1 of 2"), shows("#log .card.open", "please one"))
	if lines(ran) != 0 {
		t.Fatal("one signature of two ran it")
	}
	open(bob, "please one")
	bob.approves()
	bob.reads("id -un >>")
	link := bob.address()
	bob.picture("signer-page-phone")
	alice.do("bob's link", chromedp.Navigate(link), pressed("Sign"), shows("#said", "no such passkey"))
	bob.signs()
	bob.do("the end", shows("#log", "the end of please one"))
	if raw, _ := os.ReadFile(ran); string(raw) != "cstest-runas\n" {
		t.Fatalf("it ran as %q\n%s\n%s", raw, bob.text("#log"), b.log)
	}
	if log := s.Log(); !regexp.MustCompile("approved by (alice, bob|bob, alice)").MatchString(log) {
		t.Errorf("sshd's log does not say who approved:\n%s", log)
	}
	// The same link again: the signature is for nothing that waits in this tab.
	bob.do("the link again", chromedp.Navigate(link))
	bob.reads()
	bob.signs()
	bob.do("the link again", shows("#told", "isn’t for what was pressed"))

	// A passkey can't be asked for by the bot's page, and one of the console's counts nowhere.
	alice.enter(b.link(t, "alice", "--passkey"))
	alice.do("a passkey of the console", shows("#passkeys-state", "lets you add one passkey"), keys("#passkeys-name", "Laptop"), pressed("Add a passkey"), shows("#passkeys-mine", "confirmed by the operator"), script(`document.querySelector('#settings-box').close()`))
	dave.do("another change", keys("#text", "please two"+kb.Enter), shows("#log .card.open", "please two"))
	alice.do("asking for the signer's passkey", script(`navigator.credentials.get({publicKey: {challenge: new Uint8Array(32), rpId: 'signer.localhost', userVerification: 'required'}}).catch((e) => { window.why = e.name; })`), until(`window.why === 'SecurityError'`))

	// A restart forgets links.
	e.glass = "alice"
	open(alice, "please two")
	alice.approves()
	alice.reads("please two")
	e.knows(2, people, "alice, bob")
	alice.do("after a restart", chromedp.Navigate(alice.address()), shows("main", "This link is over"), chromedp.Navigate("http://localhost:"+e.ports))

	// Breaking the glass, alone.
	open(alice, "please two")
	alice.breaks("the site is down")
	alice.reads("Break glass: you decide alone", "the site is down")
	alice.picture("signer-glass")
	alice.signs()
	alice.do("the end", shows("#log", "the end of please two"))
	if lines(ran) != 2 {
		t.Fatalf("it ran %d times", lines(ran))
	}
	doctor, _, _ := b.run("", "doctor")
	if !strings.Contains(doctor, "signatures for web-1: people sign at "+origin) {
		t.Errorf("the doctor says nothing of the page:\n%s", doctor)
	}
	thread := dave.thread()
	b.stop()
	archive := filepath.Join(t.TempDir(), "incident.zip")
	if _, errs, code := b.run("", "export", thread, "--out", archive); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, code := b.run("", "verify", archive); code != 0 || !strings.Contains(out, "approved by web:alice and web:bob; 2 of 2 votes signed") || !strings.Contains(out, "approved by web:alice; 1 of 1 vote signed") {
		t.Errorf("verify says %d %s%s", code, out, errs)
	}
}
