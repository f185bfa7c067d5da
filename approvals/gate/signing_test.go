package gate_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/approvals/passkey/registry"
	"countersign/approvals/policy"
	"countersign/store"
)

var keySite = passkey.Site{ID: "bot.example.com", Origin: "https://bot.example.com"}

// signers is a gate at which approvals are signed.
type signers struct {
	*fixture
	devices map[string]*passkeytest.Device
}

func newSigners(t *testing.T, count int, people ...string) *signers {
	f := newFixture(t)
	groups := oncall()
	g := groups["oncall"]
	g.People = policy.IDs{"web": {"alice", "bob", "carol"}, "slack": {"U1", "U2"}}
	groups["oncall"] = g
	f.configure(t, policy.Config{Approve: policy.Approve{Proof: policy.ProofPasskey, Count: count}, BreakGlass: []string{"oncall"}}, groups)
	s := &signers{fixture: f, devices: map[string]*passkeytest.Device{}}
	for _, who := range people {
		s.register(t, who)
	}
	return s
}

func (s *signers) register(t *testing.T, who string) {
	t.Helper()
	d := passkeytest.New(keySite.ID, keySite.Origin)
	s.devices[who] = d
	s.update(t, func(tx store.Tx) {
		b := registry.Book{Site: keySite}
		k, err := b.Add(tx, "web:"+who, "phone", d.Create(b.Begin(tx, "web:"+who, s.now)), s.now)
		if err != nil {
			t.Fatal(err)
		}
		b.Trust(tx, k, "op")
	})
}

func pressed(who, button string, rec approvals.Record) chat.Click {
	network, name, _ := strings.Cut(who, ":")
	return chat.Click{ID: chat.EventID(who + button), Thread: rec.Thread, From: chat.User{ID: chat.UserID(network + ":" + name), Name: name}, Button: chat.ButtonID(button + ":" + string(rec.ID) + "." + rec.Nonce)}
}

// offered presses a button that has to be signed.
func (s *signers) offered(t *testing.T, c chat.Click) (chat.Answer, []byte) {
	t.Helper()
	ask := c
	ask.Button = chat.SignPrefix + c.Button
	a := s.click(t, ask)
	if a.Sign == nil {
		return a, nil
	}
	challenge, err := base64.RawURLEncoding.DecodeString(a.Sign.Challenge)
	if err != nil {
		t.Fatal(err)
	}
	return a, challenge
}

// sign presses a button and signs with the device of the person who is at the console.
func (s *signers) sign(t *testing.T, c chat.Click) chat.Answer {
	t.Helper()
	a, challenge := s.offered(t, c)
	if challenge == nil {
		return a
	}
	c.Signed = &chat.Signed{Nonce: a.Sign.Nonce, Response: s.devices[c.From.Name].Sign(challenge)}
	return s.click(t, c)
}

func (s *signers) consume(t *testing.T, rec approvals.Record) (why string) {
	t.Helper()
	s.update(t, func(tx store.Tx) { _, _, why = s.Consume(tx, rec.ID, rec.Action) })
	return why
}

func askedBy(thread, who string) approvals.Request {
	r := request("systemctl restart app", honest())
	r.Thread, r.By = chat.ThreadID(thread), chat.User{ID: chat.UserID(who), Name: who}
	return r
}

func TestAnApprovalNeedsThePersonsOwnSignature(t *testing.T) {
	s := newSigners(t, 2, "alice", "bob")
	rec := s.ask(t, askedBy("web:1", "web:dave"))
	for name, a := range map[string]chat.Answer{
		"a press":            s.click(t, chat.Click{ID: "p", Thread: "web:1", From: chat.User{ID: "web:alice"}, Button: pressed("web:alice", "approve", rec).Button}),
		"breaking the glass": s.click(t, chat.Click{ID: "g", Thread: "web:1", From: chat.User{ID: "web:alice"}, Reason: "now", Button: pressed("web:alice", "glass", rec).Button}),
	} {
		if a.OK || !strings.Contains(a.Notice, "passkey") {
			t.Errorf("%s without a signature: %+v", name, a)
		}
	}
	a, err := s.Word(t.Context(), chat.Click{ID: "w", Thread: "web:1", From: chat.User{ID: "web:alice"}, Button: chat.ButtonID("approve:" + string(rec.ID))})
	if err != nil || a.OK {
		t.Errorf("a word without a signature: %+v %v", a, err)
	}
	if a := s.sign(t, pressed("web:carol", "approve", rec)); a.OK || !strings.Contains(a.Notice, "no passkey here yet") {
		t.Errorf("somebody without a passkey: %+v", a)
	}
	if a := s.sign(t, pressed("web:alice", "approve", rec)); !a.OK || !strings.Contains(a.Notice, "still needs 1 of 2") {
		t.Fatalf("%+v", a)
	}
	if got := s.record(t, rec.ID); got.State != approvals.Pending {
		t.Fatalf("one vote of two made it %s", got.State)
	}
	again := pressed("web:alice", "approve", rec)
	again.ID = "again"
	if a := s.sign(t, again); a.OK {
		t.Errorf("the same person twice: %+v", a)
	}
	if a := s.sign(t, pressed("web:bob", "approve", rec)); !a.OK {
		t.Fatalf("%+v", a)
	}
	got := s.record(t, rec.ID)
	if got.State != approvals.Approved || got.Votes[0].Passkey == nil || len(got.Votes[0].Passkey.Shown) == 0 {
		t.Fatalf("%+v", got)
	}
	if why := s.consume(t, got); why != "" {
		t.Errorf("what two people signed doesn't run: %s", why)
	}
}

func TestDenyingNeedsNoSignature(t *testing.T) {
	s := newSigners(t, 1)
	rec := s.ask(t, askedBy("web:1", "web:dave"))
	if a := s.click(t, pressed("web:bob", "deny", rec)); !a.OK {
		t.Errorf("%+v", a)
	}
}

func TestASignatureForSomethingElseDoesNotCount(t *testing.T) {
	s := newSigners(t, 1, "alice", "bob")
	one := s.ask(t, askedBy("web:1", "web:dave"))
	other := askedBy("web:1", "web:dave")
	other.Call, other.Action.Bytes = "c2", []byte("rm -rf /srv/data")
	two := s.ask(t, other)
	a, challenge := s.offered(t, pressed("web:alice", "approve", one))
	c := pressed("web:alice", "approve", two)
	c.Signed = &chat.Signed{Nonce: a.Sign.Nonce, Response: s.devices["alice"].Sign(challenge)}
	if a := s.click(t, c); a.OK || !strings.Contains(a.Notice, "something else") {
		t.Errorf("for another request: %+v", a)
	}
	a, challenge = s.offered(t, pressed("web:alice", "approve", one))
	c = pressed("web:bob", "approve", one)
	c.Signed = &chat.Signed{Nonce: a.Sign.Nonce, Response: s.devices["bob"].Sign(challenge)}
	if a := s.click(t, c); a.OK {
		t.Errorf("what another person was asked: %+v", a)
	}
	a, challenge = s.offered(t, pressed("web:alice", "approve", one))
	c = pressed("web:alice", "glass", one)
	c.Reason, c.Signed = "now", &chat.Signed{Nonce: a.Sign.Nonce, Response: s.devices["alice"].Sign(challenge)}
	if a := s.click(t, c); a.OK {
		t.Errorf("an approval as a broken glass: %+v", a)
	}
	for _, rec := range []approvals.Record{one, two} {
		if got := s.record(t, rec.ID); got.State != approvals.Pending {
			t.Errorf("it is %s", got.State)
		}
	}
}

// Between the vote and the run everything may change, and whoever can write the store changes it.
func TestOnlyWhatDevicesSignedRuns(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		change     func(s *signers, tx store.Tx, rec *approvals.Record)
	}{
		{"as it was", "", func(*signers, store.Tx, *approvals.Record) {}},
		{"the key was removed", "isn't registered", func(s *signers, tx store.Tx, _ *approvals.Record) {
			registry.Book{}.Remove(tx, s.devices["alice"].ID())
		}},
		{"the signature was taken out", "without a passkey", func(_ *signers, _ store.Tx, rec *approvals.Record) { rec.Votes[0].Passkey = nil }},
		{"so was the need for one", "without a passkey", func(_ *signers, _ store.Tx, rec *approvals.Record) {
			rec.Votes[0].Passkey, rec.Require.Proof = nil, ""
		}},
		{"the vote is said to be of somebody else", "isn't this", func(_ *signers, _ store.Tx, rec *approvals.Record) { rec.Votes[0].User.ID = "web:bob" }},
		{"the statement is another one", "something else", func(_ *signers, _ store.Tx, rec *approvals.Record) {
			p := rec.Votes[0].Passkey
			p.Statement = []byte(strings.Replace(string(p.Statement), `"for":"approve"`, `"for":"break-glass"`, 1))
		}},
		{"it is said to rest on a grant", "something else", func(_ *signers, _ store.Tx, rec *approvals.Record) {
			other := *rec
			other.ID, other.Votes, other.Basis = "other", nil, approvals.Basis{Kind: approvals.ByGrant, Of: rec.ID}
			other.Action.Bytes = []byte("rm -rf /srv/data")
			other.Digest = other.Action.Digest()
			*rec = other
		}},
		{"it is said to be a step of a plan", "something else", func(_ *signers, _ store.Tx, rec *approvals.Record) {
			other := *rec
			other.ID, other.Votes, other.Basis = "other", nil, approvals.Basis{Kind: approvals.ByPlan, Of: rec.ID, Step: 1}
			*rec = other
		}},
		{"it is said that the policy lets it run", "by itself", func(_ *signers, _ store.Tx, rec *approvals.Record) {
			rec.Votes, rec.Basis = nil, approvals.Basis{Kind: approvals.ByPolicy}
		}},
		{"the command is another one", "isn't this", func(_ *signers, _ store.Tx, rec *approvals.Record) {
			rec.Action.Bytes = []byte("rm -rf /srv/data")
			rec.Digest = rec.Action.Digest()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSigners(t, 1, "alice")
			rec := s.ask(t, askedBy("web:1", "web:dave"))
			if a := s.sign(t, pressed("web:alice", "approve", rec)); !a.OK {
				t.Fatalf("%+v", a)
			}
			rec = s.record(t, rec.ID)
			s.update(t, func(tx store.Tx) {
				tc.change(s, tx, &rec)
				store.Save(tx, store.Key("approval", string(rec.ID)), rec)
			})
			why := s.consume(t, rec)
			if tc.want == "" && why != "" || tc.want != "" && !strings.Contains(why, tc.want) {
				t.Errorf("%q, want %q", why, tc.want)
			}
		})
	}
}

// A press on Slack is signed in the console: the vote is of who pressed, by a device of somebody who
// may approve, too.
func TestAPressOnAnotherNetworkIsSignedInTheConsole(t *testing.T) {
	const thread = "slack:T1:C1:1.1"
	link := func(t *testing.T, s *signers, who string, rec approvals.Record) (ticket string) {
		t.Helper()
		a := s.click(t, pressed(who, "approve", rec))
		_, after, ok := strings.Cut(a.Link, keySite.Origin+"/#sign=")
		ticket, _, _ = strings.Cut(after, "&")
		if a.OK || !ok {
			t.Fatalf("%+v", a)
		}
		return ticket
	}
	signed := func(t *testing.T, s *signers, who, ticket string, rec approvals.Record) chat.Answer {
		t.Helper()
		c := pressed("web:"+who, "approve", rec)
		c.ID, c.Ticket = chat.EventID(who+ticket), ticket
		return s.sign(t, c)
	}
	t.Run("two people", func(t *testing.T) {
		s := newSigners(t, 2, "alice", "bob", "eve")
		rec := s.ask(t, askedBy(thread, "slack:U9"))
		first := link(t, s, "slack:U1", rec)
		shown := s.click(t, chat.Click{ID: "show", Thread: thread, From: chat.User{ID: "web:alice"}, Button: chat.ButtonID(chat.TicketPrefix + first)})
		if !shown.OK || shown.Show == nil || shown.Ask == nil || !shown.Ask.Sign {
			t.Fatalf("%+v", shown)
		}
		if a := signed(t, s, "eve", first, rec); a.OK || !strings.Contains(a.Notice, "can't approve") {
			t.Errorf("a device of somebody who may not approve: %+v", a)
		}
		if a := signed(t, s, "alice", first, rec); !a.OK {
			t.Fatalf("%+v", a)
		}
		second := link(t, s, "slack:U2", rec)
		if a := signed(t, s, "alice", second, rec); a.OK {
			t.Errorf("one device for two people: %+v", a)
		}
		if a := signed(t, s, "bob", second, rec); !a.OK {
			t.Fatalf("%+v", a)
		}
		got := s.record(t, rec.ID)
		if got.State != approvals.Approved || got.Votes[0].User.ID != "slack:U1" || got.Votes[0].Passkey.KeyOwner != "web:alice" {
			t.Fatalf("%+v", got)
		}
		if why := s.consume(t, got); why != "" {
			t.Error(why)
		}
	})
	t.Run("not for another request, nor later, nor without the ticket", func(t *testing.T) {
		s := newSigners(t, 1, "alice")
		rec := s.ask(t, askedBy(thread, "slack:U9"))
		other := askedBy(thread, "slack:U9")
		other.Call = "c2"
		two := s.ask(t, other)
		ticket := link(t, s, "slack:U1", rec)
		if a := signed(t, s, "alice", ticket, two); a.OK {
			t.Errorf("%+v", a)
		}
		if a := signed(t, s, "alice", "made-up", rec); a.OK {
			t.Errorf("%+v", a)
		}
		s.now = s.now.Add(11 * time.Minute)
		if a := signed(t, s, "alice", ticket, rec); a.OK {
			t.Errorf("%+v", a)
		}
	})
}

func TestNothingRunsByItselfWhereApprovalsAreSigned(t *testing.T) {
	s := newSigners(t, 1, "alice")
	s.mode, s.until = policy.Trusting, s.now.Add(time.Hour)
	if r := s.Judge(t.Context(), askedBy("web:1", "web:dave")); r.Lane != approvals.Ask {
		t.Errorf("mode trusting: %v", r.Lane)
	}
	rec := s.ask(t, askedBy("web:1", "web:dave"))
	if rec.State != approvals.Pending || rec.Require.Grant != 0 {
		t.Errorf("%s, a grant of %s", rec.State, rec.Require.Grant)
	}
	if r := s.Judge(t.Context(), request("uptime", approvals.Claim{Given: true, Risk: "low"})); r.Lane != approvals.Allow {
		t.Errorf("a proven read: %v", r.Lane)
	}
}
