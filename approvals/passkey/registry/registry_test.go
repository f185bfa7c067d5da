package registry_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/approvals/passkey/registry"
	"countersign/store"
	"countersign/store/mem"
)

var site = passkey.Site{ID: "bot.example.com", Origin: "https://bot.example.com"}

func TestSitesThatHavePasskeys(t *testing.T) {
	for origin, want := range map[string]string{
		"https://bot.example.com":       "",
		"https://BOT.example.com:8700":  "",
		"http://localhost:8700":         "",
		"":                              "set web.origin",
		"http://bot.example.com":        "over https only",
		"http://127.0.0.1:8700":         "host name",
		"https://10.0.0.5":              "host name",
		"https://[2001:db8::1]:8700":    "host name",
		"http://localhost.example.com/": "over https only",
	} {
		_, err := passkey.SiteOf(origin)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", origin, err, want)
		}
	}
}

// bench is a book with people who have keys.
type bench struct {
	t    *testing.T
	db   store.DB
	book registry.Book
	now  time.Time
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, db: mem.Open(), book: registry.Book{Site: site}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func (b *bench) do(fn func(tx store.Tx) error) error {
	b.t.Helper()
	var inner error
	if err := b.db.Update(b.t.Context(), func(tx store.Tx) error { inner = fn(tx); return nil }); err != nil {
		b.t.Fatal(err)
	}
	return inner
}

// add registers a device for a person, and trusts it if asked to.
func (b *bench) add(owner string, d *passkeytest.Device, trust bool) error {
	return b.do(func(tx store.Tx) error {
		k, err := b.book.Add(tx, owner, "phone", d.Create(b.book.Begin(tx, owner, b.now)), b.now)
		if err == nil && trust {
			b.book.Trust(tx, k, "op")
		}
		return err
	})
}

func (b *bench) ask(owner string) (nonce string, challenge []byte) {
	b.t.Helper()
	err := b.do(func(tx store.Tx) error {
		o, err := b.book.Ask(tx, passkey.Statement{For: passkey.ForApprove, Request: "r1", Digest: "d1", Voter: owner, Owner: owner}, []byte(`{}`), b.now)
		if err != nil {
			return err
		}
		nonce = o.Nonce
		challenge, err = base64.RawURLEncoding.DecodeString(o.Challenge)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return nonce, challenge
}

func (b *bench) answer(owner, nonce string, response json.RawMessage) (p passkey.Proof, err error) {
	err = b.do(func(tx store.Tx) error {
		p, _, err = b.book.Answer(tx, owner, nonce, response, b.now)
		return err
	})
	return p, err
}

func device() *passkeytest.Device { return passkeytest.New(site.ID, site.Origin) }

func TestASignatureCountsOnceAndForItsPersonOnly(t *testing.T) {
	for _, tt := range []struct {
		name string
		want error
		do   func(b *bench, alice, bob *passkeytest.Device) (passkey.Proof, error)
	}{
		{"as it should be", nil, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"again", registry.ErrNoAsk, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			signed := alice.Sign(c)
			if _, err := b.answer("web:alice", n, signed); err != nil {
				b.t.Fatal(err)
			}
			return b.answer("web:alice", n, signed)
		}},
		{"after a wrong answer", registry.ErrNoAsk, func(b *bench, alice, bob *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			_, _ = b.answer("web:alice", n, bob.Sign(c))
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"for another question", passkey.ErrOtherAsk, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			_, first := b.ask("web:alice")
			n, _ := b.ask("web:alice")
			return b.answer("web:alice", n, alice.Sign(first))
		}},
		{"too late", registry.ErrNoAsk, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			b.now = b.now.Add(6 * time.Minute)
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"before it was asked, by a clock that is off", registry.ErrNoAsk, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			b.now = b.now.Add(-time.Hour)
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"with somebody else's key", registry.ErrOthers, func(b *bench, _, bob *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			return b.answer("web:alice", n, bob.Sign(c))
		}},
		{"by somebody who was not asked", passkey.ErrOtherAsk, func(b *bench, _, bob *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			return b.answer("web:bob", n, bob.Sign(c))
		}},
		{"with a key that nobody registered", registry.ErrNotHere, func(b *bench, _, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			return b.answer("web:alice", n, device().Sign(c))
		}},
		{"with a key that nobody confirmed", registry.ErrNotYet, func(b *bench, _, _ *passkeytest.Device) (passkey.Proof, error) {
			second := device()
			if err := b.add("web:alice", second, false); err != nil {
				b.t.Fatal(err)
			}
			n, c := b.ask("web:alice")
			return b.answer("web:alice", n, second.Sign(c))
		}},
		{"with a key that was removed", registry.ErrNotHere, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			if err := b.do(func(tx store.Tx) error { b.book.Remove(tx, alice.ID()); return nil }); err != nil {
				b.t.Fatal(err)
			}
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"on another page", passkey.ErrOrigin, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			alice.Origin = "https://bot.example.com.evil.example"
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"for another site", passkey.ErrSignature, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			alice.Site = "example.com"
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"by a device that checks nobody", passkey.ErrUnverified, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			alice.Unverified = true
			return b.answer("web:alice", n, alice.Sign(c))
		}},
		{"by a copy of the device", registry.ErrCopied, func(b *bench, alice, _ *passkeytest.Device) (passkey.Proof, error) {
			n, c := b.ask("web:alice")
			copied := *alice
			if _, err := b.answer("web:alice", n, alice.Sign(c)); err != nil {
				b.t.Fatal(err)
			}
			n, c = b.ask("web:alice")
			return b.answer("web:alice", n, copied.Sign(c))
		}},
		{"that is nothing", registry.ErrNotHere, func(b *bench, _, _ *passkeytest.Device) (passkey.Proof, error) {
			n, _ := b.ask("web:alice")
			return b.answer("web:alice", n, json.RawMessage(`{"id": 7}`))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, alice, bob := newBench(t), device(), device()
			if err := errors.Join(b.add("web:alice", alice, true), b.add("web:bob", bob, true)); err != nil {
				t.Fatal(err)
			}
			p, err := tt.do(b, alice, bob)
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if err == nil {
				if err := b.do(func(tx store.Tx) error { return b.book.Holds(tx, p) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Whoever can write the store still can't make a vote: nothing but the device's own signature over
// exactly this statement holds.
func TestAProofThatWasTouchedDoesNotHold(t *testing.T) {
	b, alice, bob := newBench(t), device(), device()
	if err := errors.Join(b.add("web:alice", alice, true), b.add("web:bob", bob, true)); err != nil {
		t.Fatal(err)
	}
	n, c := b.ask("web:alice")
	good, err := b.answer("web:alice", n, alice.Sign(c))
	if err != nil {
		t.Fatal(err)
	}
	n, c = b.ask("web:bob")
	others, err := b.answer("web:bob", n, bob.Sign(c))
	if err != nil {
		t.Fatal(err)
	}
	for name, touch := range map[string]func(p *passkey.Proof){
		"another request": func(p *passkey.Proof) { p.Statement = []byte(strings.Replace(string(p.Statement), "r1", "r2", 1)) },
		"another digest":  func(p *passkey.Proof) { p.Statement = []byte(strings.Replace(string(p.Statement), "d1", "d2", 1)) },
		"another decision": func(p *passkey.Proof) {
			p.Statement = []byte(strings.Replace(string(p.Statement), "approve", "deny", 1))
		},
		"another person":     func(p *passkey.Proof) { p.KeyOwner = "web:bob" },
		"another key":        func(p *passkey.Proof) { p.KeyID, p.Public, p.KeyOwner = others.KeyID, others.Public, others.KeyOwner },
		"another public key": func(p *passkey.Proof) { p.Public = others.Public },
		"another signature":  func(p *passkey.Proof) { p.Response = others.Response },
		"another site":       func(p *passkey.Proof) { p.Site = passkey.Site{ID: "x.example", Origin: "https://x.example"} },
		"no signature":       func(p *passkey.Proof) { p.Response = json.RawMessage(`{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			p := good
			touch(&p)
			if err := b.do(func(tx store.Tx) error { return b.book.Holds(tx, p) }); err == nil {
				t.Error("it holds")
			}
		})
	}
	if err := b.do(func(tx store.Tx) error { b.book.Remove(tx, alice.ID()); return b.book.Holds(tx, good) }); !errors.Is(err, registry.ErrNotHere) {
		t.Errorf("without its key: %v", err)
	}
}

func TestOnlySomebodyElseConfirmsAKey(t *testing.T) {
	b, alice, bob, second := newBench(t), device(), device(), device()
	if err := errors.Join(b.add("web:alice", alice, true), b.add("web:bob", bob, false), b.add("web:alice", second, false)); err != nil {
		t.Fatal(err)
	}
	confirm := func(by string, d *passkeytest.Device, id string, change func(*passkey.Statement)) error {
		return b.do(func(tx store.Tx) error {
			k, _ := b.book.Get(tx, id)
			s := passkey.Statement{For: passkey.ForKey, Request: k.ID, Digest: k.Digest(), Voter: by, Owner: by}
			change(&s)
			o, err := b.book.Ask(tx, s, nil, b.now)
			if err != nil {
				return err
			}
			c, _ := base64.RawURLEncoding.DecodeString(o.Challenge)
			_, err = b.book.Confirm(tx, by, o.Nonce, d.Sign(c), b.now)
			return err
		})
	}
	same := func(*passkey.Statement) {}
	if err := confirm("web:alice", alice, second.ID(), same); !errors.Is(err, registry.ErrOthers) {
		t.Errorf("one's own: %v", err)
	}
	if err := confirm("web:bob", bob, bob.ID(), same); !errors.Is(err, registry.ErrNotYet) {
		t.Errorf("by a key that nobody confirmed: %v", err)
	}
	if err := confirm("web:alice", alice, bob.ID(), func(s *passkey.Statement) { s.For = passkey.ForApprove }); !errors.Is(err, passkey.ErrOtherAsk) {
		t.Errorf("by an approval: %v", err)
	}
	if err := confirm("web:alice", alice, bob.ID(), func(s *passkey.Statement) { s.Digest = "x" }); !errors.Is(err, passkey.ErrOtherAsk) {
		t.Errorf("of another key: %v", err)
	}
	if err := confirm("web:alice", alice, bob.ID(), same); err != nil {
		t.Error(err)
	}
	if err := confirm("web:bob", bob, second.ID(), same); err != nil {
		t.Error(err)
	}
}

func TestARegistrationIsForOneDeviceOnce(t *testing.T) {
	b, alice := newBench(t), device()
	if err := b.add("web:alice", alice, true); err != nil {
		t.Fatal(err)
	}
	if err := b.add("web:bob", alice, true); !errors.Is(err, registry.ErrTwice) {
		t.Errorf("the same key for two people: %v", err)
	}
	unverified, elsewhere := device(), device()
	unverified.Unverified, elsewhere.Origin = true, "https://other.example"
	if err := b.add("web:bob", unverified, true); !errors.Is(err, passkey.ErrUnverified) {
		t.Errorf("%v", err)
	}
	if err := b.add("web:bob", elsewhere, true); !errors.Is(err, passkey.ErrOrigin) {
		t.Errorf("%v", err)
	}
	err := b.do(func(tx store.Tx) error {
		c := b.book.Begin(tx, "web:bob", b.now)
		_, err := b.book.Add(tx, "web:bob", " ", device().Create(c), b.now)
		return err
	})
	if !errors.Is(err, registry.ErrUnnamed) {
		t.Errorf("%v", err)
	}
	err = b.do(func(tx store.Tx) error {
		c := b.book.Begin(tx, "web:bob", b.now)
		_, err := b.book.Add(tx, "web:bob", "x", device().Create(c), b.now.Add(time.Hour))
		return err
	})
	if !errors.Is(err, registry.ErrNoAsk) {
		t.Errorf("%v", err)
	}
}

// A sign-in is signed by a confirmed key, on the console's own page, for the text that is good once.
func TestWhatSignsSomebodyIn(t *testing.T) {
	b := newBench(t)
	alice, bob, unconfirmed, removed := device(), device(), device(), device()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.add("web:alice", alice, true))
	must(b.add("web:bob", bob, true))
	must(b.add("web:bob", unconfirmed, false))
	must(b.add("web:bob", removed, true))
	must(b.do(func(tx store.Tx) error { b.book.Remove(tx, removed.ID()); return nil }))
	challenge := registry.SignInChallenge("once")
	// changed is an answer with other members.
	changed := func(raw json.RawMessage, change func(r, response map[string]any)) json.RawMessage {
		var r map[string]any
		must(json.Unmarshal(raw, &r))
		change(r, r["response"].(map[string]any)) //nolint:forcetypeassert // it has one
		out, err := json.Marshal(r)
		must(err)
		return out
	}
	as := func(d *passkeytest.Device, change func(*passkeytest.Device)) json.RawMessage {
		other := *d
		change(&other)
		return other.Sign(challenge)
	}
	encoded := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	nonce, statement := b.ask("web:alice")
	for name, tt := range map[string]struct {
		response json.RawMessage
		want     error // nil is any
	}{
		"nothing":                   {response: nil},
		"null":                      {json.RawMessage("null"), registry.ErrNotHere},
		"an empty object":           {json.RawMessage("{}"), registry.ErrNotHere},
		"a list":                    {json.RawMessage("[]"), registry.ErrNotHere},
		"too much":                  {json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`), registry.ErrLong},
		"an unknown key":            {device().Sign(challenge), registry.ErrNotHere},
		"one that waits":            {unconfirmed.Sign(challenge), registry.ErrNotYet},
		"one that was removed":      {removed.Sign(challenge), registry.ErrNotHere},
		"for another text":          {alice.Sign(registry.SignInChallenge("twice")), passkey.ErrOtherAsk},
		"for a vote":                {alice.Sign(statement), passkey.ErrOtherAsk},
		"for nothing":               {alice.Sign(nil), passkey.ErrOtherAsk},
		"a registration":            {alice.Create(challenge), nil},
		"another page":              {as(alice, func(d *passkeytest.Device) { d.Origin = "https://evil.example.com" }), passkey.ErrOrigin},
		"another port":              {as(alice, func(d *passkeytest.Device) { d.Origin += ":8443" }), passkey.ErrOrigin},
		"without TLS":               {as(alice, func(d *passkeytest.Device) { d.Origin = "http://bot.example.com" }), passkey.ErrOrigin},
		"a page below":              {as(alice, func(d *passkeytest.Device) { d.Origin = "https://x.bot.example.com" }), passkey.ErrOrigin},
		"another site":              {as(alice, func(d *passkeytest.Device) { d.Site = "example.com" }), passkey.ErrSignature},
		"without a check of people": {as(alice, func(d *passkeytest.Device) { d.Unverified = true }), passkey.ErrUnverified},
		"with another's key":        {changed(bob.Sign(challenge), func(r, _ map[string]any) { r["id"], r["rawId"] = alice.ID(), alice.ID() }), passkey.ErrSignature},
		"two ids":                   {changed(bob.Sign(challenge), func(r, _ map[string]any) { r["id"] = alice.ID() }), nil},
		"another page's words": {changed(alice.Sign(challenge), func(_, response map[string]any) {
			response["clientDataJSON"] = encoded(`{"type":"webauthn.get","challenge":"` + base64.RawURLEncoding.EncodeToString(challenge) + `","origin":"` + site.Origin + `","x":1}`)
		}), passkey.ErrSignature},
		"in a frame": {changed(alice.Sign(challenge), func(_, response map[string]any) {
			response["clientDataJSON"] = encoded(`{"type":"webauthn.get","challenge":"` + base64.RawURLEncoding.EncodeToString(challenge) + `","origin":"` + site.Origin + `","crossOrigin":true,"topOrigin":"https://evil.example.com"}`)
		}), passkey.ErrOrigin},
		"no signature": {changed(alice.Sign(challenge), func(_, response map[string]any) { response["signature"] = "" }), nil},
	} {
		if err := b.do(func(tx store.Tx) error { _, err := b.book.SignIn(tx, "once", tt.response, b.now); return err }); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	signed := alice.Sign(challenge)
	var who string
	must(b.do(func(tx store.Tx) error {
		k, err := b.book.SignIn(tx, "once", signed, b.now)
		who = k.Owner
		return err
	}))
	if who != "web:alice" {
		t.Errorf("it signs %s in", who)
	}
	// The device's counter tells of a copy, and a sign-in is no vote.
	if err := b.do(func(tx store.Tx) error { _, err := b.book.SignIn(tx, "once", signed, b.now); return err }); !errors.Is(err, registry.ErrCopied) {
		t.Errorf("an old signature: %v", err)
	}
	if _, err := b.answer("web:alice", nonce, alice.Sign(challenge)); !errors.Is(err, passkey.ErrOtherAsk) {
		t.Errorf("a sign-in as a vote: %v", err)
	}
}
