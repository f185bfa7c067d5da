package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/approvals/passkey/register"
	"countersign/approvals/passkey/registry"
	"countersign/store"
)

var pageSite = passkey.Site{ID: "signer.example.com", Origin: "https://signer.example.com:7022"}

// signer is one that has its own page, with a key of each of these people.
type signer struct {
	devices map[string]*passkeytest.Device
	asked   int
	alters  func(*passkey.Statement)
	err     error
}

func (s *signer) ask(_ context.Context, action []byte, want passkey.Statement) (registry.Page, string, error) {
	if s.err != nil {
		return registry.Page{}, "", s.err
	}
	var a approvals.Action
	if err := json.Unmarshal(action, &a); err != nil {
		return registry.Page{}, "", err
	}
	s.asked++
	want.Nonce, want.Digest, want.At, want.Fresh = "n"+string(rune('a'+s.asked)), a.Digest().String(), time.Now().Add(time.Hour), "fresh"
	if s.alters != nil {
		s.alters(&want)
	}
	p := registry.Page{Link: pageSite.Origin + "/sign/" + want.Nonce, Statement: want.Encode(), Site: pageSite, Keys: map[string][]byte{}}
	if d := s.devices[strings.TrimPrefix(want.Owner, "web:")]; d != nil {
		k, err := register.Read(pageSite, []byte("c"), d.Create([]byte("c")))
		if err != nil {
			return p, "", err
		}
		p.Keys[d.ID()] = k.Public
	}
	return p, "", nil
}

// newPaged is a gate whose signer has a page.
func newPaged(t *testing.T, count int) (*signers, *signer) {
	s := newSigners(t, count, "alice", "bob")
	page := &signer{devices: map[string]*passkeytest.Device{}}
	for _, who := range []string{"alice", "bob"} {
		page.devices[who] = passkeytest.New(pageSite.ID, pageSite.Origin)
	}
	s.signer = page.ask
	return s, page
}

func byRunner(thread, who string) approvals.Request {
	r := askedBy(thread, who)
	r.Action.Env = map[string]string{approvals.ProcessFact: approvals.ByRunner}
	return r
}

// atPage presses a button, and signs with a device what the page asks for.
func (s *signers) atPage(t *testing.T, c chat.Click, d *passkeytest.Device) chat.Answer {
	t.Helper()
	c.Signed = s.signedAt(t, c, d)
	if c.Signed == nil {
		t.Fatal("nothing is to be signed")
	}
	return s.click(t, c)
}

func (s *signers) signedAt(t *testing.T, c chat.Click, d *passkeytest.Device) *chat.Signed {
	t.Helper()
	ask := c
	ask.Button = chat.SignPrefix + c.Button
	a := s.click(t, ask)
	if a.Sign == nil || a.Sign.Link == "" || a.Sign.Challenge != "" || !strings.HasPrefix(a.Sign.Link, pageSite.Origin+"/sign/") {
		t.Fatalf("%+v", a)
	}
	return &chat.Signed{Nonce: a.Sign.Nonce, Response: d.Sign(passkey.Challenge(s.statementOf(t, a.Sign.Nonce)))}
}

// statementOf is what the signer's page has signed, by its nonce.
func (s *signers) statementOf(t *testing.T, nonce string) []byte {
	t.Helper()
	type asked struct {
		Statement []byte `json:"statement"`
	}
	var row asked
	s.update(t, func(tx store.Tx) { row, _ = store.Load[asked](tx, store.Key("passkey-ask", nonce)) })
	return row.Statement
}

func TestAVoteIsSignedAtTheSignersPage(t *testing.T) {
	s, page := newPaged(t, 2)
	rec := s.ask(t, byRunner("web:1", "web:dave"))
	if a := s.atPage(t, pressed("web:alice", "approve", rec), page.devices["alice"]); !a.OK || !strings.Contains(a.Notice, "still needs 1 of 2") {
		t.Fatalf("%+v", a)
	}
	if a := s.atPage(t, pressed("web:bob", "approve", rec), page.devices["bob"]); !a.OK {
		t.Fatalf("%+v", a)
	}
	got := s.record(t, rec.ID)
	if p := got.Votes[0].Passkey; got.State != approvals.Approved || p == nil || p.Site != pageSite || len(p.Shown) == 0 || p.KeyOwner != "web:alice" {
		t.Fatalf("%+v", got)
	}
	if why := s.consume(t, got); why != "" {
		t.Error(why)
	}
}

// A press on another network leads to the console, and from there to the signer's page.
func TestAPressOnAnotherNetworkIsSignedAtTheSignersPage(t *testing.T) {
	const thread = "slack:T1:C1:1.1"
	s, page := newPaged(t, 1)
	rec := s.ask(t, byRunner(thread, "slack:U9"))
	_, after, _ := strings.Cut(s.click(t, pressed("slack:U1", "approve", rec)).Link, keySite.Origin+"/#sign=")
	c := pressed("web:alice", "approve", rec)
	c.Ticket, _, _ = strings.Cut(after, "&")
	if a := s.atPage(t, c, page.devices["alice"]); !a.OK {
		t.Fatalf("%+v", a)
	}
	got := s.record(t, rec.ID)
	if got.Votes[0].User.ID != "slack:U1" || got.Votes[0].Passkey.KeyOwner != "web:alice" {
		t.Fatalf("%+v", got)
	}
	if why := s.consume(t, got); why != "" {
		t.Error(why)
	}
}

func TestOnlyWhatTheSignersPageAskedForCounts(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		do         func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer
	}{
		{"the console's passkey", "isn't registered", func(t *testing.T, s *signers, _ *signer, rec approvals.Record) chat.Answer {
			return s.atPage(t, pressed("web:alice", "approve", rec), s.devices["alice"])
		}},
		{"a passkey that nobody knows", "isn't registered", func(t *testing.T, s *signers, _ *signer, rec approvals.Record) chat.Answer {
			return s.atPage(t, pressed("web:alice", "approve", rec), passkeytest.New(pageSite.ID, pageSite.Origin))
		}},
		{"bob's passkey at alice's link", "isn't registered", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			return s.atPage(t, pressed("web:alice", "approve", rec), page.devices["bob"])
		}},
		{"bob's passkey at alice's link, once the bot knows it", "somebody else", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			s.signedAt(t, pressed("web:bob", "approve", rec), page.devices["bob"])
			return s.atPage(t, pressed("web:alice", "approve", rec), page.devices["bob"])
		}},
		{"alice's link by bob", "something else", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			c := pressed("web:bob", "approve", rec)
			c.Signed = s.signedAt(t, pressed("web:alice", "approve", rec), page.devices["bob"])
			return s.click(t, c)
		}},
		{"a signature made on the bot's page", "another page", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			d := *page.devices["alice"]
			d.Origin = keySite.Origin
			return s.atPage(t, pressed("web:alice", "approve", rec), &d)
		}},
		{"a link twice", "expired, or was already answered", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			c := pressed("web:alice", "approve", rec)
			c.Signed = s.signedAt(t, c, page.devices["alice"])
			if a := s.click(t, c); !a.OK {
				t.Fatalf("%+v", a)
			}
			c.ID, c.From = "again", chat.User{ID: "web:bob", Name: "bob"}
			return s.click(t, c)
		}},
		{"another nonce in the address", "expired, or was already answered", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			c := pressed("web:alice", "approve", rec)
			c.Signed = s.signedAt(t, c, page.devices["alice"])
			c.Signed.Nonce += "x"
			return s.click(t, c)
		}},
		{"another answer in the address", "something else", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			c := pressed("web:alice", "approve", rec)
			c.Signed = s.signedAt(t, c, page.devices["alice"])
			c.Signed.Response = page.devices["alice"].Sign([]byte("another challenge"))
			return s.click(t, c)
		}},
		{"a link that is over", "expired", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			c := pressed("web:alice", "approve", rec)
			c.Signed = s.signedAt(t, c, page.devices["alice"])
			s.now = s.now.Add(10 * time.Minute)
			return s.click(t, c)
		}},
		{"an approval as a broken glass", "something else", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			c := pressed("web:alice", "glass", rec)
			c.Reason, c.Signed = "now", s.signedAt(t, pressed("web:alice", "approve", rec), page.devices["alice"])
			return s.click(t, c)
		}},
		{"a statement of another action", "something else", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			page.alters = func(st *passkey.Statement) { st.Digest = strings.Repeat("0", 64) }
			return s.atPage(t, pressed("web:alice", "approve", rec), page.devices["alice"])
		}},
		{"a statement of another person", "something else", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			page.alters = func(st *passkey.Statement) { st.Owner = "web:bob" }
			return s.atPage(t, pressed("web:alice", "approve", rec), page.devices["bob"])
		}},
		{"no signer", "doesn't answer", func(t *testing.T, s *signers, page *signer, rec approvals.Record) chat.Answer {
			page.err = errors.New("the signer doesn't answer")
			c := pressed("web:alice", "approve", rec)
			c.Button = chat.SignPrefix + c.Button
			return s.click(t, c)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, page := newPaged(t, 2)
			if a := tc.do(t, s, page, s.ask(t, byRunner("web:1", "web:dave"))); a.OK || !strings.Contains(strings.ToLower(a.Notice), tc.want) {
				t.Errorf("%+v, want %q", a, tc.want)
			}
		})
	}
}

// A key that the signer no longer names doesn't count once it said so, and one for its page counts
// nowhere else.
func TestAKeyOfTheSignersPageCountsAsLongAsTheSignerSays(t *testing.T) {
	s, page := newPaged(t, 1)
	one, two := s.ask(t, byRunner("web:1", "web:dave")), byRunner("web:1", "web:dave")
	two.Call = "c2"
	other := s.ask(t, two)
	if a := s.atPage(t, pressed("web:alice", "approve", one), page.devices["alice"]); !a.OK {
		t.Fatalf("%+v", a)
	}
	page.devices["alice"] = passkeytest.New(pageSite.ID, pageSite.Origin)
	s.signedAt(t, pressed("web:alice", "approve", other), page.devices["alice"])
	if why := s.consume(t, s.record(t, one.ID)); !strings.Contains(why, "isn't registered") {
		t.Errorf("a key that the signer doesn't name any more: %q", why)
	}
	own := askedBy("web:1", "web:dave")
	own.Call = "c3"
	a, challenge := s.offered(t, pressed("web:alice", "approve", s.ask(t, own)))
	if challenge == nil || a.Sign.Link != "" || a.Sign.Site != keySite.ID {
		t.Errorf("what runs without the signer is signed at %+v", a.Sign)
	}
}
