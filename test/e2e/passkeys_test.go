package e2e

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/adapters/slack/slackfake"
	"countersign/proof/verifier"
	"countersign/test/needstest"
)

// passkeyConfig is a bot at which two people sign each approval.
const passkeyConfig = `
web: {origin: "http://localhost:%s"}
targets:
  local: {kind: local, tmux: false, dir: %s, approvers: [oncall], approve: {proof: passkey}, labels: {env: production}}
groups:
  oncall: {web: [alice, bob]}
  team: {web: [dave]}
policy: {approve: {count: 2}}
`

// thread is the conversation on the screen.
func (g *guest) thread() string {
	g.t.Helper()
	id, err := chromedp.Run(g.ctx, chromedp.Evaluate[string](`new URLSearchParams(location.hash.slice(1)).get('t')`))
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// device is a virtual authenticator of a guest's browser.
type device struct {
	g  *guest
	id webauthn.AuthenticatorID
}

func (g *guest) device() *device {
	g.t.Helper()
	d := &device{g: g}
	g.do("a device", func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		if _, err := cdp.Call(ctx, t, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return v, err
		}
		res, err := cdp.Call(ctx, t, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: "ctap2", Transport: "internal", HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
		d.id = res.AuthenticatorID
		return v, err
	})
	return d
}

// does changes how the device behaves.
func (d *device) does(p webauthn.SetResponseOverrideBitsParams) page {
	p.AuthenticatorID = d.id
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, webauthn.SetResponseOverrideBits, p)
		return v, err
	}
}

func (d *device) verifies(yes bool) page {
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: d.id, IsUserVerified: yes})
		return v, err
	}
}

// shows waits for words in a part of the page.
func shows(css, words string) page {
	return until(fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, css, words))
}

// approves presses Approve of the open card, and its question.
func (g *guest) approves(then ...page) {
	g.t.Helper()
	const button = `document.querySelector('#log .card.open button[data-style=approve]')`
	g.do("approving", append([]page{until(`Boolean(` + button + `) && !` + button + `.disabled && !` + button + `.hasAttribute('aria-disabled')`), script(button + `.click()`)}, then...)...)
}

// TestAnApprovalSignedByADevice goes the way of passkeys in two browsers with virtual authenticators:
// the first one by the operator's link, another one that a colleague confirms, a quorum of two, and what
// devices and people do otherwise than they should.
func TestAnApprovalSignedByADevice(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	b := newBot(t, "", model(t, func(results int, user string) turn {
		if strings.Contains(user, "please") && results == 0 {
			return turn{calls: []call{shell("echo " + user[strings.Index(user, "please"):] + " >> " + ran)}}
		}
		return turn{text: "the end"}
	}).URL)
	_, port, _ := strings.Cut(b.listen, ":")
	b.configure(t, fmt.Sprintf(passkeyConfig, port, t.TempDir()))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	alice, bob := b.browser(t, "alice", 1280, 800), b.browser(t, "bob", 390, 844)
	hers := alice.device()
	bob.device()

	alice.enter(b.link(t, "alice", "--passkey"))
	alice.do("adding a passkey", shows("#passkeys-state", "lets you add one passkey"), keys("#passkeys-name", "Laptop"), pressed("Add a passkey"), shows("#passkeys-mine", "confirmed by the operator"))
	alice.picture("passkeys")
	alice.do("another one", keys("#passkeys-name", "Same laptop"), pressed("Add a passkey"), shows("#passkeys-error", "has a passkey here already"))
	alice.do("closing", script(`document.querySelector('#settings-box').close()`))
	bob.enter(b.link(t, "bob"))
	bob.do("adding a passkey", script(`document.querySelector('#settings').click()`), shows("#passkeys-state", "With a passkey"), keys("#passkeys-name", "Phone"), pressed("Add a passkey"), shows("#passkeys-mine", "not confirmed yet"),
		script(`document.querySelector('#settings-box').close()`))

	dave := b.browser(t, "dave", 1280, 800)
	dave.enter(b.link(t, "dave"))
	dave.do("asking", keys("#text", "please one"+kb.Enter), shows("#log .card.open", "needs 2 of oncall by passkey"))
	open := func(g *guest) {
		g.do("the conversation", until(`document.querySelector('.thread')?.textContent.includes('please')`), script(`document.querySelector('.thread').click()`), until(`Boolean(document.querySelector('#log .card.open'))`))
	}
	open(bob)
	bob.approves(shows("#log .card.open .notice", "Nobody has confirmed this passkey yet"))

	alice.do("confirming bob's", script(`document.querySelector('#settings').click()`), shows("#passkeys-waiting", "bob"), pressed("Confirm"), until(`document.querySelector('#passkeys-others').hidden`),
		script(`document.querySelector('#settings-box').close()`))
	open(alice)
	yes, no := true, false
	alice.do("a device that refuses", hers.verifies(false))
	alice.approves(shows("#log .card.open .notice", "Nothing was signed"))
	alice.do("a device that checks nobody", hers.verifies(true), hers.does(webauthn.SetResponseOverrideBitsParams{IsBadUV: &yes}))
	alice.approves(shows("#log .card.open .notice", "check that it"))
	alice.do("a wrong signature", hers.does(webauthn.SetResponseOverrideBitsParams{IsBadUV: &no, IsBogusSignature: &yes}))
	alice.approves(shows("#log .card.open .notice", "signature isn"))
	alice.do("as it should be", hers.does(webauthn.SetResponseOverrideBitsParams{IsBogusSignature: &no}),
		script(`(() => { const f = fetch; window.fetch = (u, o) => { if (o?.body?.includes('"signed"')) window.sent = [u, o]; return f(u, o); }; window.plain = f; })()`))
	alice.approves(shows("#told", "still needs 1 of 2"))
	alice.do("the same signature again", script(`(async () => { const [u, o] = window.sent; const r = await window.plain(u, { ...o, body: JSON.stringify({ ...JSON.parse(o.body), id: 'again' }) }); window.again = await r.text(); })()`),
		until(`window.again?.includes('"ok":false')`))
	if lines(ran) != 0 {
		t.Fatal("one of two signatures ran it")
	}
	bob.approves(shows("#log", "the end"))
	bob.picture("passkeys-phone")
	if lines(ran) != 1 {
		t.Fatalf("it ran %d times", lines(ran))
	}

	dave.do("asking again", keys("#text", "please two"+kb.Enter), shows("#log .card.open", "needs 2 of oncall"))
	alice.approves(shows("#told", "still needs 1 of 2"))
	alice.do("removing the passkey", script(`document.querySelector('#settings').click()`), pressed("Remove"), until(`!document.querySelector('#passkeys-mine').childElementCount`))
	bob.approves(shows("#log", "isn't registered here"))
	if lines(ran) != 1 {
		t.Fatalf("it ran %d times", lines(ran))
	}
	out, errs, code := b.run("", "audit", "export")
	for _, want := range []string{"passkey added", "passkey confirmed", "passkey removed"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the record has no %q: %s", want, errs)
		}
	}
	thread := dave.thread()
	b.stop()
	archive := filepath.Join(t.TempDir(), "incident.zip")
	if _, errs, code := b.run("", "export", thread, "--out", archive); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, code := b.run("", "verify", archive); code != 0 || !strings.Contains(out, "approved by web:alice and web:bob; 2 of 2 votes signed") {
		t.Errorf("verify says %d %s%s", code, out, errs)
	}
	touched(t, archive)
	if out, _, code := b.run("", "verify", "--key", "web:alice=00000000000000000000", archive); code != 1 || !strings.Contains(out, "that you didn't name") {
		t.Errorf("verify with another key says %d %s", code, out)
	}
}

// TestAPhoneAtNight: a notification is opened on a phone that isn't signed in any more, and the passkey on it leads to the
// card. The session is listed, lasts while nothing comes from it, and ends with the passkey.
func TestAPhoneAtNight(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	b := newBot(t, "", model(t, func(results int, user string) turn {
		if strings.Contains(user, "please") && results == 0 {
			return turn{calls: []call{shell("echo " + user[strings.Index(user, "please"):] + " >> " + ran)}}
		}
		return turn{text: "the end"}
	}).URL)
	_, port, _ := strings.Cut(b.listen, ":")
	b.configure(t, strings.Replace(fmt.Sprintf(passkeyConfig, port, t.TempDir()), "policy: {approve: {count: 2}}", "", 1))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	alice, dave := b.browser(t, "alice", 390, 844), b.browser(t, "dave", 1280, 800)
	alice.device()
	alice.enter(b.link(t, "alice", "--passkey"))
	alice.do("adding a passkey", shows("#passkeys-state", "lets you add one passkey"), keys("#passkeys-name", "Phone"), pressed("Add a passkey"), shows("#passkeys-mine", "confirmed by the operator"),
		script(`document.querySelector('#settings-box').close()`))
	dave.enter(b.link(t, "dave"))
	for i := range 3 {
		dave.do("asking", script(`document.querySelector('#new').click()`), keys("#text", fmt.Sprintf("please %d", i)+kb.Enter), shows("#log .card.open", fmt.Sprintf("please %d", i)))
	}
	// Who may not approve is told so, and offered no button that could only refuse.
	dave.do("who may not", shows("#log .card.open .may-not", "You can't approve this. It needs approval from oncall"), until(`!document.querySelector('#log .card.open button[data-style=approve]').checkVisibility()`))
	alice.do("three cards", until(`document.querySelectorAll('#home [data-group=yours] [data-card]').length === 3`))
	id, err := chromedp.Run(alice.ctx, chromedp.Evaluate[string](`[...document.querySelectorAll('#home [data-group=yours] [data-card]')].find((n) => n.textContent.includes('please 1')).dataset.card`))
	if err != nil {
		t.Fatal(err)
	}
	card := fmt.Sprintf(`document.querySelector('[data-card="%s"]')`, id)
	alice.do("signed out", script(`document.querySelector('#logout').click()`), until(`!document.querySelector('#login').hidden`))
	alice.do("the notification", chromedp.Navigate("about:blank"), chromedp.Navigate("http://localhost:"+port+"/#c="+id), until(`document.querySelector('#passkey-login')?.checkVisibility()`), shows("#login-text", "countersign login NAME"))
	alice.picture("sign-in-phone")
	alice.do("by passkey", script(`document.querySelector('#passkey-login').click()`), until(`document.activeElement?.closest('[data-card]')?.dataset.card === '`+id+`'`),
		until(`(() => { const [h, y] = ['h3', 'button[data-style=approve]'].map((q) => `+card+`.querySelector(q).getBoundingClientRect()); return h.top >= 0 && y.bottom <= innerHeight; })()`))
	alice.picture("card-phone")
	alice.do("approving", until(`!`+card+`.querySelector('button[data-style=approve]').disabled`), script(card+`.querySelector('button[data-style=approve]').click()`), shows("#told", "Approved."))
	eventually(t, "one of three ran", func() bool { return lines(ran) == 1 }, func() string { return b.log.String() })
	alice.do("sessions", script(`document.querySelector('#settings').click()`), shows("#sessions", "(this one)"), until(`document.querySelectorAll('#sessions li').length === 1`))
	alice.picture("sessions-phone")
	alice.do("removing the passkey", pressed("Remove"), until(`!document.querySelector('#login').hidden`))
}

// touched changes an archive in each way in which somebody would, and wants all of them found.
func touched(t *testing.T, archive string) {
	t.Helper()
	z, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string]string{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(raw)
	}
	check := func(files map[string]string) (bad []string) {
		t.Helper()
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for name, text := range files {
			f, err := w.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(f, text)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		found, err := verifier.Archive(bytes.NewReader(b.Bytes()), int64(b.Len()), verifier.Trust{})
		if err != nil {
			return []string{err.Error()}
		}
		for _, f := range found {
			if f.Kind == verifier.Bad {
				bad = append(bad, f.Say)
			}
		}
		return bad
	}
	if bad := check(files); len(bad) > 0 {
		t.Fatalf("as it was written: %q", bad)
	}
	replace := func(old, with string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, with, 1) }
	}
	cut := func(from, to string) func(string) string {
		return func(s string) string {
			head, rest, _ := strings.Cut(s, from)
			_, tail, _ := strings.Cut(rest, to)
			return head + tail
		}
	}
	for name, c := range map[string]struct {
		file   string
		change func(string) string
	}{
		"another command":                {"approvals.jsonl", replace(`"text":"echo please one`, `"text":"echo please ten`)},
		"another target":                 {"approvals.jsonl", replace(`"kind":"shell","target":"local"`, `"kind":"shell","target":"prod"`)},
		"a vote that is not signed":      {"approvals.jsonl", cut(`,"passkey":`, `"added"`)},
		"a vote of somebody else":        {"approvals.jsonl", replace(`"user":{"id":"web:alice"`, `"user":{"id":"web:carol"`)},
		"another signature":              {"approvals.jsonl", replace(`"signature":"M`, `"signature":"N`)},
		"another statement":              {"approvals.jsonl", replace(`\"for\":\"approve\"`, `\"for\":\"break-glass\"`)},
		"another card":                   {"approvals.jsonl", replace(`"shown":{"title":"Add`, `"shown":{"title":"Bad`)},
		"another owner of the key":       {"approvals.jsonl", replace(`"owner":"web:alice"`, `"owner":"web:carol"`)},
		"one vote fewer":                 {"approvals.jsonl", replace(`"approve":true`, `"approve":false`)},
		"a request that was not decided": {"approvals.jsonl", replace(`"state":"invalid"`, `"state":"done"`)},
		"a line of the chain changed":    {"audit.jsonl", replace(`approved`, `applaude`)},
		"the chain left out":             {"audit.jsonl", func(string) string { return "" }},
	} {
		text := c.change(files[c.file])
		if text == files[c.file] {
			t.Errorf("%s: the archive has no such place:\n%s", name, text)
			continue
		}
		other := maps.Clone(files)
		if other[c.file] = text; text == "" {
			delete(other, c.file)
		}
		if len(check(other)) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
}

// A press on Discord is answered, to its person alone, with a link at which they sign in the console.
func TestAPressOnDiscordIsSignedInTheConsole(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	g := newGuild(t, model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{calls: []call{shell("echo x >> " + ran)}}
		}
		return turn{text: "All done."}
	}).URL)
	_, port, _ := strings.Cut(g.bot.listen, ":")
	g.bot.configure(t, strings.Replace(g.config, "approvers: [oncall]}", "approvers: [oncall], approve: {proof: passkey}}", 1)+"web: {origin: \"http://localhost:"+port+"\"}\n")
	g.start()
	alice := g.bot.browser(t, "alice", 390, 844)
	alice.device()
	alice.enter(g.bot.link(t, "alice", "--passkey"))
	alice.do("adding a passkey", shows("#passkeys-state", "lets you add one passkey"), keys("#passkeys-name", "Phone"), pressed("Add a passkey"), shows("#passkeys-mine", "confirmed by the operator"), script(`document.querySelector('#settings-box').close()`))
	thread, err := g.Say(g.alice, g.channel, "<@"+g.BotID()+"> do it")
	if err != nil {
		t.Fatal(err)
	}
	r := g.press(g.alice, thread, "approve:")
	if !r.Ephemeral() {
		t.Fatalf("the link is not for alice alone: %+v", r)
	}
	link := regexp.MustCompile(`http://localhost:\S*#\S*sign=[^\s>)]+`).FindString(r.Message.Content)
	if link == "" {
		t.Fatalf("no link in %q", r.Message.Content)
	}
	alice.do("the link", chromedp.Navigate(link), shows("#signing-note", "You're signing alice's approval"), shows("#signing .card.open", "echo x"))
	if lines(ran) != 0 {
		t.Fatal("it ran before it was signed")
	}
	alice.do("signing", until(`!document.querySelector('#signing button[data-style=approve]').disabled`), script(`document.querySelector('#signing button[data-style=approve]').click()`), shows("#told", "Approved."))
	eventually(t, "the end", func() bool { return strings.Contains(g.shown(thread), "All done.") }, func() string { return g.shown(thread) })
	if lines(ran) != 1 {
		t.Fatalf("it ran %d times", lines(ran))
	}
}

// A press on Slack is answered, to its person alone, with a link at which they sign in the console.
func TestAPressOnSlackIsSignedInTheConsole(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "out")
	w := newWorkspace(t, slackfake.Config{}, incidentModel(t, ran))
	_, port, _ := strings.Cut(w.bot.listen, ":")
	w.bot.configure(t, strings.Replace(slackConfig, "approvers: [oncall]}", "approvers: [oncall], approve: {proof: passkey}}", 1)+"web: {origin: \"http://localhost:"+port+"\"}\n")
	w.start()
	alice := w.bot.browser(t, "alice", 390, 844)
	alice.device()
	alice.enter(w.bot.link(t, "alice", "--passkey"))
	alice.do("adding a passkey", shows("#passkeys-state", "lets you add one passkey"), keys("#passkeys-name", "Phone"), pressed("Add a passkey"), shows("#passkeys-mine", "confirmed by the operator"), script(`document.querySelector('#settings-box').close()`))
	root := w.ask("UBOB", "COPS", "fix it")
	w.press("UALICE", "COPS", root, "Approve")
	w.told("COPS", "UALICE", "needs your passkey")
	link := ""
	for _, m := range w.Ephemerals("COPS", "UALICE") {
		if _, after, ok := strings.Cut(m.Text, "minutes: "); ok {
			link = html.UnescapeString(strings.Trim(strings.Fields(after)[0], "<>"))
		}
	}
	alice.do("the link", chromedp.Navigate(link), shows("#signing-note", "You're signing alice's approval"), shows("#signing .card.open", "echo ran"))
	alice.picture("passkeys-sign")
	alice.do("signing", until(`!document.querySelector('#signing button[data-style=approve]').disabled`), script(`document.querySelector('#signing button[data-style=approve]').click()`), shows("#told", "Approved."))
	w.sees("COPS", root, "All done.")
	if lines(ran) != 1 {
		t.Fatalf("it ran %d times", lines(ran))
	}
	if location, err := chromedp.Run(alice.ctx, chromedp.Evaluate[string](`location.href`)); err != nil || strings.Contains(location, "sign=") {
		t.Errorf("the address keeps the ticket: %q %v", location, err)
	}
	alice.do("the link again", chromedp.Navigate("about:blank"), chromedp.Navigate(link), shows("#signing-note", "Already approved by alice"))
}
