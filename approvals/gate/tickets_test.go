package gate_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/store"
)

// desk is a gate.Tickets that a test sets.
type desk struct {
	f      *fixture
	ticket approvals.Ticket // what its system says
	key    string           // the thread's
	asked  int
}

var keyPattern = regexp.MustCompile(`OPS-[0-9]+`)

func (d *desk) Find(text string) (string, bool) {
	key := keyPattern.FindString(text)
	return key, key != ""
}
func (d *desk) IsKey(word string) bool { return keyPattern.FindString(word) == word && word != "" }
func (d *desk) SetTicket(_ store.Tx, _, key string, _ bool) bool {
	fresh := d.key != key
	d.key = key
	return fresh
}

func (d *desk) TicketOf(store.Tx, string) approvals.Ticket {
	t := d.ticket
	if t.Key = d.key; d.key == "" {
		return approvals.Ticket{}
	}
	return t
}

func (d *desk) State(_ store.Tx, key string) approvals.Ticket {
	t := d.ticket
	if t.Key = key; key == "" {
		return approvals.Ticket{}
	}
	return t
}

func (d *desk) Refresh(context.Context, string) error {
	d.asked++
	if d.ticket.Problem == "" {
		d.ticket.Read = d.f.now
	}
	return nil
}
func (d *desk) RefreshSoon(string) {}

func ticketed(t *testing.T) (*fixture, *desk) {
	t.Helper()
	f := newFixture(t)
	d := &desk{f: f, ticket: approvals.Ticket{Source: "jira", Title: "Restart it", Status: "Approved", Open: true, Approved: true}}
	f.tickets = d
	f.configure(t, policy.Config{Approve: policy.Approve{Require: "ticket"}, BreakGlass: []string{"oncall"}}, oncall())
	return f, d
}

func TestAChangeNeedsATicket(t *testing.T) {
	f, d := ticketed(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	if c := f.card(t); len(c.Warn) == 0 || c.Warn[0] != "This needs a ticket: write its key in this thread." {
		t.Errorf("the card: %q", c.Warn)
	}
	if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK || a.Notice != "Nothing was decided: this needs a ticket: write its key in this thread." {
		t.Errorf("%+v", a)
	}
	if said, err := f.Ticket(t.Context(), "web:1", chat.User{ID: "web:alice"}, "nothing"); err != nil || !strings.Contains(said, "isn't a ticket here") {
		t.Errorf("%q, %v", said, err)
	}
	if said, err := f.Ticket(t.Context(), "web:1", chat.User{ID: "web:alice"}, "OPS-1"); err != nil || said != "The ticket of this thread is **OPS-1: Restart it (Approved)**." {
		t.Errorf("%q, %v", said, err)
	}
	if c := f.card(t); len(c.Warn) != 0 || !strings.Contains(c.Footer, "ticket OPS-1") {
		t.Errorf("the card: %q, %s", c.Warn, c.Footer)
	}
	d.ticket.Approved, d.ticket.Status = false, "To Do"
	if a := f.press(t, "e2", "bob", "approve", rec.ID); a.OK || a.Notice != "Nothing was decided: OPS-1 isn't approved (To Do)." {
		t.Errorf("%+v", a)
	}
	d.ticket.Approved, d.ticket.Status = true, "Approved"
	if a := f.press(t, "e3", "bob", "approve", rec.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	if ok, why := f.consume(t, rec); !ok {
		t.Error(why)
	}
	if got := f.record(t, rec.ID); got.Ticket.Key != "OPS-1" || got.Ticket.Status != "Approved" {
		t.Errorf("%+v", got.Ticket)
	}
	if d.asked < 3 {
		t.Errorf("its system was asked %d times", d.asked)
	}
}

func TestATicketThatIsClosedBetweenVoteAndRunStopsTheRun(t *testing.T) {
	f, d := ticketed(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	d.key = "OPS-1"
	if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	d.ticket.Open, d.ticket.Status = false, "Done"
	if ok, why := f.consume(t, rec); ok || !strings.Contains(why, "OPS-1 is closed (Done)") {
		t.Errorf("%v %s", ok, why)
	}
}

// What counts at the run is the ticket that people approved for, whatever somebody names afterwards; and who
// broke the glass for a plan needs none for its steps.
func TestTheRunIsForTheTicketOfTheVotes(t *testing.T) {
	f, d := ticketed(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	d.key = "OPS-1"
	if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	d.key = ""
	if ok, why := f.consume(t, rec); !ok {
		t.Error(why)
	}
	if got := f.record(t, rec.ID).Ticket.Key; got != "OPS-1" {
		t.Errorf("%q", got)
	}
}

func TestASystemOfTicketsThatIsAwayAllowsNothing(t *testing.T) {
	f, d := ticketed(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	d.key, d.ticket.Problem = "OPS-1", "answered 500"
	if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK || a.Notice != "Nothing was decided: OPS-1 can't be checked, because jira answered 500." {
		t.Errorf("%+v", a)
	}
	if a := f.click(t, chat.Click{ID: "e2", Thread: "web:1", From: chat.User{ID: "web:bob", Name: "bob"}, Reason: "the site is down", Button: chat.ButtonID("glass:" + string(rec.ID) + "." + f.record(t, rec.ID).Nonce)}); !a.OK {
		t.Errorf("who breaks the glass needs no ticket: %+v", a)
	}
	if ok, why := f.consume(t, rec); !ok {
		t.Error(why)
	}
}

func TestNothingRunsByItselfWhereATicketIsRequired(t *testing.T) {
	f, _ := ticketed(t)
	f.mode, f.until = policy.Trusting, f.now.Add(time.Hour)
	f.configure(t, policy.Config{Approve: policy.Approve{Require: "ticket"}, Rules: []policy.Rule{{Name: "notes", Match: policy.Match{Tools: []string{"write_file"}}, Then: "allow"}}}, oncall())
	rec := f.ask(t, request("touch /tmp/x", honest()))
	if rec.State != approvals.Pending || rec.Require.Grant != 0 {
		t.Errorf("%s, %s", rec.State, rec.Require.Grant)
	}
	if r := f.Judge(t.Context(), request("uptime", approvals.Claim{})); r.Lane != approvals.Allow {
		t.Errorf("a proven read: %v", r.Lane)
	}
}

func TestATicketInAMessageIsTheThreads(t *testing.T) {
	f, d := ticketed(t)
	if err := f.Heard(t.Context(), "web:1", chat.User{ID: "web:x", Bot: true}, "see OPS-9"); err != nil || d.key != "" {
		t.Errorf("a bot's: %q, %v", d.key, err)
	}
	for range 2 {
		if err := f.Heard(t.Context(), "web:1", chat.User{ID: "web:alice"}, "restart it for OPS-9"); err != nil || d.key != "OPS-9" {
			t.Errorf("%q, %v", d.key, err)
		}
	}
	if _, err := f.Ticket(t.Context(), "web:1", chat.User{ID: "web:alice"}, "OPS-10"); err != nil {
		t.Error(err)
	}
	if got := f.audited(t); len(got) != 1 || got[0] != "ticket" {
		t.Errorf("%v", got)
	}
}
