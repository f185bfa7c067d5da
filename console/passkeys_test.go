package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

// drawer keeps no passkeys; db is where sessions are. gone, if any, says that those of which it speaks are removed.
type drawer struct {
	db   store.DB
	gone *atomic.Bool
}

func (drawer) Passkeys(_ context.Context, user string, _ []string) (mine, waiting []Passkey, err error) {
	return []Passkey{{ID: "1", Owner: user, Name: "phone\u202e"}}, nil, nil
}

func (drawer) BeginPasskey(_ context.Context, user string) (NewPasskey, error) {
	return NewPasskey{User: user}, nil
}

func (d drawer) AddPasskey(ctx context.Context, user, name string, _ json.RawMessage, invited func(tx store.Tx) bool) (k Passkey, err error) {
	if name == "" {
		return Passkey{}, RefusalError("A name, please.")
	}
	k = Passkey{ID: "2", Owner: user, Name: name}
	err = d.db.Update(ctx, func(tx store.Tx) error {
		if invited(tx) {
			k.By = "the link"
		}
		return nil
	})
	return k, err
}

func (drawer) AskPasskey(context.Context, string, []string, string) (chat.Signing, error) {
	return chat.Signing{}, nil
}

func (drawer) ConfirmPasskey(context.Context, string, []string, chat.Signed) (Passkey, error) {
	return Passkey{}, nil
}
func (drawer) EndPasskey(context.Context, string, string) error { return nil }

func (drawer) SignInSite(once string) (site string, challenge []byte) {
	return "localhost", []byte(once)
}

func (d drawer) Signed(_ context.Context, once string, response json.RawMessage) error {
	_, err := d.SignedIn(nil, once, response)
	return err
}

// SignedIn takes {"of":NAME} for a signature.
func (d drawer) SignedIn(_ store.Tx, _ string, response json.RawMessage) (Passkey, error) {
	var r struct {
		Of string `json:"of"`
	}
	if json.Unmarshal(response, &r) != nil || r.Of == "" {
		return Passkey{}, RefusalError("The signature isn't that of this passkey.")
	}
	return Passkey{ID: "key of " + r.Of, Owner: r.Of}, nil
}

func (d drawer) Stands(store.Tx, string, string) bool { return d.gone == nil || !d.gone.Load() }

func TestAnOperatorsLinkLetsOnePasskeyInUnconfirmed(t *testing.T) {
	r := newRig(t)
	add := func(p *person) Passkey {
		t.Helper()
		got := p.do("POST", "/api/passkeys", `{"name":"phone","response":{}}`)
		var k Passkey
		if err := json.Unmarshal(got.body, &k); got.status != http.StatusCreated || err != nil {
			t.Fatalf("%d %s %v", got.status, got.body, err)
		}
		return k
	}
	plain := r.signIn("you")
	if k := add(plain); k.By != "" {
		t.Errorf("a usual link: %+v", k)
	}
	p := r.enter("you", PasskeyCode(testKey, "you", r.clock.now()))
	if k := add(p); k.By == "" {
		t.Errorf("the operator's link: %+v", k)
	}
	if k := add(p); k.By != "" {
		t.Errorf("the operator's link a second time: %+v", k)
	}
	if got := p.do("POST", "/api/passkeys", `{"name":"","response":{}}`); got.status != http.StatusConflict || !strings.Contains(string(got.body), "A name, please.") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.do("GET", "/api/passkeys", ""); got.status != http.StatusOK || strings.Contains(string(got.body), "\u202e") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// passkeySignIn signs somebody in with a passkey, in a browser's page.
func (r *rig) passkeySignIn(code, response string) (*person, reply) {
	r.t.Helper()
	p := &person{rig: r, name: "you"}
	got := p.do("POST", "/api/login", `{"code":"`+code+`","response":`+response+`}`)
	if got.status == http.StatusNoContent {
		p.cookie = got.cookie[0].Value
		p.learn()
	}
	return p, got
}

func TestAPasskeySignsItsOwnerInForThirtyDays(t *testing.T) {
	gone := new(atomic.Bool)
	r := newRig(t, func(c *Config) { c.Passkeys = drawer{c.DB, gone} })
	code := func() string {
		t.Helper()
		var got struct{ Code, Challenge, Site string }
		if err := json.Unmarshal(r.stranger().do("POST", "/api/login/begin", `{}`).body, &got); err != nil || got.Code == "" || got.Challenge == "" || got.Site != "localhost" {
			t.Fatalf("%+v %v", got, err)
		}
		return got.Code
	}
	// What is no signature, somebody who may not sign in, a code that was used, and one of a link.
	for response, want := range map[string]int{`{}`: http.StatusForbidden, `{"of":"eve"}`: http.StatusForbidden} {
		if _, got := r.passkeySignIn(code(), response); got.status != want {
			t.Errorf("%s: %d %s", response, got.status, got.body)
		}
	}
	if _, got := r.passkeySignIn(LoginCode(testKey, "ann", r.clock.now()), `{"of":"you"}`); got.status != http.StatusForbidden {
		t.Errorf("a link's code: %d", got.status)
	}
	if _, got := r.passkeySignIn(code(), `null`); got.status == http.StatusNoContent {
		t.Error("a code that no passkey has signed signs in")
	}
	once := code()
	you, got := r.passkeySignIn(once, `{"of":"you"}`)
	if got.status != http.StatusNoContent {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if _, got := r.passkeySignIn(once, `{"of":"you"}`); got.status != http.StatusForbidden {
		t.Errorf("a second time: %d", got.status)
	}
	if cookie := got.header.Get("Set-Cookie"); !strings.Contains(cookie, "Max-Age=2592000") {
		t.Errorf("%q", cookie)
	}
	is := func(p *person, want int, what string) {
		t.Helper()
		if got := p.do("GET", "/api/me", ""); got.status != want {
			t.Errorf("%s: %d", what, got.status)
		}
	}
	r.clock.add(29 * 24 * time.Hour)
	is(you, http.StatusOK, "after 29 days without a request")
	r.clock.add(24 * time.Hour)
	is(you, http.StatusUnauthorized, "after 30 days")

	you, _ = r.passkeySignIn(code(), `{"of":"you"}`)
	gone.Store(true)
	is(you, http.StatusUnauthorized, "when the passkey was removed elsewhere")
	gone.Store(false)
	is(you, http.StatusOK, "when it is back")
	link := r.signIn("you")
	if got := link.do("POST", "/api/passkeys/key%20of%20you/end", `{}`); got.status != http.StatusNoContent {
		t.Fatalf("%d %s", got.status, got.body)
	}
	is(you, http.StatusUnauthorized, "when its person removed the passkey")
	is(link, http.StatusOK, "a session of a link")
}

// writes counts transactions that write.
type writes struct {
	store.DB
	n atomic.Int32
}

func (w *writes) Update(ctx context.Context, fn func(store.Tx) error) error {
	w.n.Add(1)
	return w.DB.Update(ctx, fn)
}

// Anybody gets a code for a passkey to sign, so what they send instead of a signature costs the store no write.
func TestWhatNoPasskeySignedIsOnlyRead(t *testing.T) {
	w := &writes{}
	r := newRig(t, func(c *Config) {
		w.DB = c.DB
		c.DB, c.Passkeys, c.Audit = w, drawer{c.DB, nil}, nil
	})
	for response, want := range map[string]int32{`{}`: 0, `{"of":"you"}`: 1} {
		var got struct{ Code string }
		if err := json.Unmarshal(r.stranger().do("POST", "/api/login/begin", `{}`).body, &got); err != nil {
			t.Fatal(err)
		}
		before := w.n.Load()
		r.stranger().do("POST", "/api/login", `{"code":"`+got.Code+`","response":`+response+`}`)
		if n := w.n.Load() - before; n != want {
			t.Errorf("%s costs %d writes", response, n)
		}
	}
}

func TestSessionsAreListedAndEndedOneByOne(t *testing.T) {
	r := newRig(t)
	here, there, ann := r.signIn("you"), r.signIn("you"), r.signIn("ann")
	list := func(p *person) (out []shownSession) {
		t.Helper()
		var got struct{ Sessions []shownSession }
		if err := json.Unmarshal(p.do("GET", "/api/sessions", "").body, &got); err != nil {
			t.Fatal(err)
		}
		return got.Sessions
	}
	all := list(here)
	if len(all) != 2 || all[0].Here == all[1].Here || all[0].From == "" || all[0].How != byLink {
		t.Fatalf("%+v", all)
	}
	other := all[0]
	if other.Here {
		other = all[1]
	}
	// Nobody ends another person's.
	if ann.do("POST", "/api/sessions/"+other.ID+"/end", `{}`); len(list(here)) != 2 {
		t.Error("ann has ended it")
	}
	if got := here.do("POST", "/api/sessions/"+other.ID+"/end", `{}`); got.status != http.StatusNoContent || got.header.Get("Set-Cookie") != "" {
		t.Errorf("%d %s", got.status, got.header)
	}
	if got := there.do("GET", "/api/me", ""); got.status != http.StatusUnauthorized {
		t.Errorf("it goes on: %d", got.status)
	}
	if got := list(here); len(got) != 1 || !got[0].Here {
		t.Errorf("%+v", got)
	}
}

// A provider says who has left; a passkey would go on letting them in.
func TestPasskeysSignNobodyInBesideAProvider(t *testing.T) {
	r := newRig(t, withOIDC(&fakeOIDC{}), func(c *Config) { c.Passkeys = drawer{c.DB, new(atomic.Bool)} })
	if got := r.stranger().do("POST", "/api/login/begin", `{}`); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
	if _, got := r.passkeySignIn(LoginCode(testKey, keyMark, r.clock.now()), `{"of":"you"}`); got.status != http.StatusForbidden {
		t.Errorf("%d %s", got.status, got.body)
	}
}
