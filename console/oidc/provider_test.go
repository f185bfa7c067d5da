package oidc_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"countersign/console"
	"countersign/console/oidc"
	"countersign/internal/redact"
	"countersign/store/mem"
	"countersign/test/npmtest"
)

// provider starts oidc-provider (github.com/panva/node-oidc-provider, MIT, certified
// for this protocol), which shares no code with this module. It is installed once
// into the user's cache.
func provider(t *testing.T, secret, callback string) (issuer string) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	dir := npmtest.Packages(t, filepath.Join("testdata", "provider"), "sign in through an independent provider")
	program, err := os.ReadFile(filepath.Join("testdata", "provider", "server.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", string(program), "--", secret, callback)
	cmd.Dir = dir // where its packages are
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the provider said:\n%s", &said)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider does not start: %v", err)
	}
	return strings.TrimSpace(line)
}

// people is who may sign in, and with which groups they came.
type people struct {
	mu   sync.Mutex
	came map[string][]string
}

func (p *people) role(name string, groups []string) console.Role {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came[name] = groups
	if slices.Contains(groups, "sre") {
		return console.Member
	}
	return console.None
}

// desk is a console that signs people in through the provider.
type desk struct {
	t      *testing.T
	url    string
	issuer string
	people *people
	log    *bytes.Buffer
}

const secret = "a secret & a half"

func newConsole(t *testing.T, change func(*oidc.Config)) *desk {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	c := &desk{t: t, url: "http://" + srv.Listener.Addr().String(), people: &people{came: map[string][]string{}}, log: &bytes.Buffer{}}
	c.issuer = provider(t, secret, c.url+"/oidc/callback")
	cfg := oidc.Config{
		Issuer: c.issuer, ClientID: "console", ClientSecret: secret, Scopes: []string{"profile", "email", "groups"},
		Log: slog.New(slog.NewTextHandler(c.log, nil)),
	}
	change(&cfg)
	client, err := oidc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a, err := console.New(console.Config{DB: mem.OpenTwice(), DoorConfig: console.DoorConfig{Key: bytes.Repeat([]byte{7}, 32), Origin: c.url, Users: c.people.role, OIDC: client}})
	if err != nil {
		t.Fatal(err)
	}
	srv.Config.Handler = a.Handler()
	srv.Start()
	t.Cleanup(srv.Close)
	return c
}

// browser keeps cookies and stops at a console's callback when it is told to.
type browser struct {
	t    *testing.T
	http *http.Client
	at   *url.URL // where the last answer came from
	stop string
	next *url.URL // where it was stopped
}

var errStopped = errors.New("stopped")

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t}
	b.http = &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if b.stop != "" && strings.HasPrefix(r.URL.String(), b.stop) {
			b.next = r.URL
			return errStopped
		}
		if len(via) > 20 {
			return errors.New("too many redirects")
		}
		return nil
	}}
	return b
}

func (b *browser) do(req *http.Request) (int, string) {
	b.t.Helper()
	res, err := b.http.Do(req)
	if errors.Is(err, errStopped) {
		return 0, ""
	}
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	b.at = res.Request.URL
	return res.StatusCode, string(body)
}

func (b *browser) get(address string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(req)
}

// submit fills in the form of the page that is shown and sends it.
func (b *browser) submit(page string, fill map[string]string) (int, string) {
	b.t.Helper()
	doc, err := goquery.NewDocumentFromReader(strings.NewReader(page))
	if err != nil {
		b.t.Fatal(err)
	}
	form := doc.Find("form").First()
	action, ok := form.Attr("action")
	if !ok {
		b.t.Fatalf("there is no form at %s:\n%s", b.at, page)
	}
	to, err := b.at.Parse(action)
	if err != nil {
		b.t.Fatal(err)
	}
	values := url.Values{}
	form.Find("input[name]").Each(func(_ int, in *goquery.Selection) {
		name, _ := in.Attr("name")
		value, _ := in.Attr("value")
		values.Set(name, value)
	})
	for k, v := range fill {
		values.Set(k, v)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, to.String(), strings.NewReader(values.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

// signIn goes through the provider's pages as a person does.
func (b *browser) signIn(c *desk, name string) (int, string) {
	b.t.Helper()
	status, page := b.get(c.url + "/oidc/start?t=web:0abc")
	if status != http.StatusOK {
		return status, page
	}
	_, page = b.submit(page, map[string]string{"login": name, "password": "any"})
	return b.submit(page, nil) // yes, the console may know
}

func TestSigningInThroughAnIndependentProvider(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(*oidc.Config) {})
	b := newBrowser(t)
	if status, page := b.signIn(c, "ann"); status != http.StatusOK || b.at.Host != strings.TrimPrefix(c.url, "http://") || b.at.Path != "/" || b.at.Fragment != "t=web:0abc" {
		t.Fatalf("%d at %s\n%s\n%s", status, b.at, page, c.log)
	}
	status, body := b.get(c.url + "/api/me")
	var me struct{ Name, How string }
	if err := json.Unmarshal([]byte(body), &me); err != nil || status != http.StatusOK || me.Name != "ann" || me.How != "oidc" {
		t.Errorf("%d %s", status, body)
	}
	if got := c.people.came["ann"]; !slices.Equal(got, []string{"dev", "sre"}) {
		t.Errorf("the groups are %q", got)
	}
	// Another browser gets nothing from the same address.
	b2 := newBrowser(t)
	if status, _ := b2.get(c.url + "/api/me"); status != http.StatusUnauthorized {
		t.Errorf("another browser: %d", status)
	}
}

func TestAnAnswerOfTheIndependentProviderIsGoodOnceAndForOneBrowser(t *testing.T) {
	t.Parallel()
	c := newConsole(t, func(*oidc.Config) {})
	b := newBrowser(t)
	b.stop = c.url + "/oidc/callback"
	b.signIn(c, "ann")
	if b.next == nil {
		t.Fatal("the provider did not send the browser back")
	}
	if q := b.next.Query(); q.Get("iss") != c.issuer {
		t.Errorf("the answer is %v", q)
	}
	thief := newBrowser(t)
	if status, page := thief.get(b.next.String()); status != http.StatusForbidden || !strings.Contains(page, "No sign-in was started") {
		t.Errorf("another browser: %d %s", status, page)
	}
	// A thief with a sign-in of their own cannot use this code in it.
	thief.stop = c.url + "/oidc/callback"
	thief.signIn(c, "eve")
	own := thief.next.Query()
	mixed := *b.next
	own.Set("code", b.next.Query().Get("code"))
	mixed.RawQuery = own.Encode()
	thief.stop = ""
	if status, page := thief.get(mixed.String()); status != http.StatusForbidden || !strings.Contains(page, "no longer knows this sign-in") {
		t.Errorf("a code of another sign-in: %d %s", status, page)
	}
	for _, word := range []string{b.next.Query().Get("code"), secret, "eyJ"} {
		if strings.Contains(c.log.String(), word) {
			t.Errorf("the log holds %q", word)
		}
	}
}

func TestWhatTheIndependentProviderRefuses(t *testing.T) {
	t.Parallel()
	t.Run("a console that does not know its secret", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, func(cfg *oidc.Config) { cfg.ClientSecret = redact.Secret("wrong") })
		if status, page := newBrowser(t).signIn(c, "ann"); status != http.StatusForbidden || !strings.Contains(page, "set up as the console expects") {
			t.Errorf("%d %s", status, page)
		}
	})
	t.Run("a person who says no", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, func(*oidc.Config) {})
		b := newBrowser(t)
		_, page := b.get(c.url + "/oidc/start")
		doc, err := goquery.NewDocumentFromReader(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		abort := doc.Find(`a[href*="abort"]`).First().AttrOr("href", "")
		to, err := b.at.Parse(abort)
		if err != nil || abort == "" {
			t.Fatalf("%q %v", abort, err)
		}
		if status, page := b.get(to.String()); status != http.StatusForbidden || !strings.Contains(page, "refused the sign-in") {
			t.Errorf("%d %s", status, page)
		}
	})
	t.Run("an email that is not verified", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, func(cfg *oidc.Config) { cfg.NameClaim = "email" })
		if status, page := newBrowser(t).signIn(c, "bob"); status != http.StatusForbidden || !strings.Contains(page, "says that your email address isn") {
			t.Errorf("%d %s", status, page)
		}
		b := newBrowser(t)
		if status, page := b.signIn(c, "ann"); status != http.StatusOK {
			t.Errorf("%d %s", status, page)
		}
		if _, body := b.get(c.url + "/api/me"); !strings.Contains(body, `"name":"ann@example.com"`) {
			t.Errorf("it is %s", body)
		}
	})
}
