package tickets_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/andygrunwald/go-jira"
	"github.com/google/go-github/v84/github"
	gitlab "gitlab.com/gitlab-org/api/client-go"

	"countersign/approvals"
	"countersign/approvals/tickets"
	"countersign/approvals/tickets/ticketstest"
	"countersign/store"
	"countersign/store/mem"
)

// system is one of every kind.
type system struct {
	tickets.Options
	key, id string // of a ticket: as people write it, and on the server
	approve func(*ticketstest.Ticket)
}

func systems(s *ticketstest.Server) []system {
	o := func(kind string) tickets.Options {
		return tickets.Options{Name: kind, Kind: kind, URL: s.URL, Token: ticketstest.Token, TokenName: "TOKEN"}
	}
	j, n, h, l := o(tickets.Jira), o(tickets.ServiceNow), o(tickets.GitHub), o(tickets.GitLab)
	j.User, j.Approved = ticketstest.User, []string{"Approved"}
	n.User = ticketstest.User
	h.Project, h.Approved = "acme/shop", []string{"approved"}
	l.Project, l.Approved = "acme/shop", []string{"approved"}
	label := func(t *ticketstest.Ticket) { t.Labels = []string{"production", "approved"} }
	return []system{
		{j, "OPS-7", "OPS-7", func(t *ticketstest.Ticket) { t.Status = "approved" }},
		{n, "CHG0030007", "CHG0030007", func(t *ticketstest.Ticket) { t.Approval = "approved" }},
		{h, "#7", "7", label},
		{l, "#8", "8", label},
	}
}

func TestEverySystemSaysWhetherATicketIsOpenAndApproved(t *testing.T) {
	s := ticketstest.New(t)
	for _, sys := range systems(s) {
		tracker, err := tickets.NewTracker(sys.Options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tracker.Ticket(t.Context(), sys.key); !errors.Is(err, tickets.ErrNone) {
			t.Errorf("%s: a ticket that isn't there: %v", sys.Kind, err)
		}
		for _, tc := range []struct{ closed, approved bool }{{false, false}, {false, true}, {true, true}} {
			ticket := ticketstest.Ticket{Title: "Restart it", Closed: tc.closed, Status: "To Do", Approval: "requested"}
			if tc.approved {
				sys.approve(&ticket)
			}
			s.Set(sys.id, ticket)
			got, err := tracker.Ticket(t.Context(), sys.key)
			if err != nil || got.Title != "Restart it" || got.Open == tc.closed || got.Approved != tc.approved || got.Status == "" || !strings.HasPrefix(got.URL, s.URL) {
				t.Errorf("%s %+v: %+v, %v", sys.Kind, tc, got, err)
			}
		}
		for name, fault := range map[string]http.HandlerFunc{
			"answered 401; check the token in TOKEN": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			"answered 429":                           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
			"answered 500":                           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			"answered with something else than its API describes":  func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"ok": true}`) },
			"answered with something else than its API describes ": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `<html>`) },
		} {
			s.Fault(fault)
			if _, err := tracker.Ticket(t.Context(), sys.key); err == nil || err.Error() != strings.TrimSpace(name) {
				t.Errorf("%s: %v, not %s", sys.Kind, err, name)
			}
		}
		s.Fault(nil)
	}
}

func TestACommentIsWrittenOnce(t *testing.T) {
	s := ticketstest.New(t)
	for _, sys := range systems(s) {
		s.Set(sys.id, ticketstest.Ticket{Title: "x", Status: "To Do"})
		tracker, err := tickets.NewTracker(sys.Options)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // as after crashes between the answer and its note in the store
			if err := tracker.Comment(t.Context(), sys.key, "It ran.\n{noformat} ``` @all\nRequest: abc", "Request: abc"); err != nil {
				t.Errorf("%s: %v", sys.Kind, err)
			}
		}
		if err := tracker.Comment(t.Context(), sys.key, "Another.\nRequest: def", "Request: def"); err != nil {
			t.Errorf("%s: %v", sys.Kind, err)
		}
		all := s.Comments(sys.id)
		if len(all) != 2 {
			t.Errorf("%s: %q", sys.Kind, all)
		}
		// Nothing of it is read as markup.
		if sys.Kind == tickets.Jira && strings.Count(all[0], "{noformat}") != 2 || strings.HasPrefix(sys.key, "#") && !strings.HasPrefix(all[0], "````text\n") {
			t.Errorf("%s: %q", sys.Kind, all)
		}
	}
	// Also behind a hundred others.
	many := ticketstest.Ticket{Title: "x", Comments: []string{"Request: abc"}}
	for i := range 130 {
		many.Comments = append(many.Comments, fmt.Sprint("more ", i))
	}
	for _, sys := range systems(s)[2:] {
		s.Set(sys.id, many)
		tracker, _ := tickets.NewTracker(sys.Options)
		if err := tracker.Comment(t.Context(), sys.key, "Request: abc", "Request: abc"); err != nil || len(s.Comments(sys.id)) != 131 {
			t.Errorf("%s: %v, %d", sys.Kind, err, len(s.Comments(sys.id)))
		}
	}
}

// The vendors' own clients read the double, and for Jira, which has none in Go, the most used one.
func TestTheDoubleSpeaksTheVendorsAPIs(t *testing.T) {
	s := ticketstest.New(t)
	s.Set("7", ticketstest.Ticket{Title: "Restart it", Labels: []string{"approved"}, Comments: []string{"first"}})
	hub := github.NewClient(nil).WithAuthToken(ticketstest.Token)
	hub.BaseURL, _ = url.Parse(s.URL + "/")
	issue, _, err := hub.Issues.Get(t.Context(), "acme", "shop", 7)
	if err != nil || issue.GetTitle() != "Restart it" || issue.GetState() != "open" || issue.Labels[0].GetName() != "approved" {
		t.Errorf("%v, %v", issue, err)
	}
	if _, _, err := hub.Issues.CreateComment(t.Context(), "acme", "shop", 7, &github.IssueComment{Body: new("second")}); err != nil {
		t.Error(err)
	}
	if list, _, err := hub.Issues.ListComments(t.Context(), "acme", "shop", 7, nil); err != nil || len(list) != 2 || list[1].GetBody() != "second" {
		t.Errorf("%v, %v", list, err)
	}
	auth := jira.BasicAuthTransport{Username: ticketstest.User, Password: ticketstest.Token}
	desk, err := jira.NewClient(auth.Client(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.Set("OPS-1", ticketstest.Ticket{Title: "Restart it", Status: "Approved"})
	task, _, err := desk.Issue.GetWithContext(t.Context(), "OPS-1", &jira.GetQueryOptions{Fields: "summary,status"})
	if err != nil || task.Key != "OPS-1" || task.Fields.Summary != "Restart it" || task.Fields.Status.Name != "Approved" || task.Fields.Status.StatusCategory.Key != jira.StatusCategoryInProgress {
		t.Errorf("%+v, %v", task, err)
	}
	if c, _, err := desk.Issue.AddCommentWithContext(t.Context(), "OPS-1", &jira.Comment{Body: "first"}); err != nil || c.Body != "first" || len(s.Comments("OPS-1")) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	lab, err := gitlab.NewClient(ticketstest.Token, gitlab.WithBaseURL(s.URL+"/api/v4"))
	if err != nil {
		t.Fatal(err)
	}
	if i, _, err := lab.Issues.GetIssue("acme/shop", 7); err != nil || i.Title != "Restart it" || i.State != "opened" || i.Labels[0] != "approved" {
		t.Errorf("%v, %v", i, err)
	}
	if _, _, err := lab.Notes.CreateIssueNote("acme/shop", 7, &gitlab.CreateIssueNoteOptions{Body: new("third")}); err != nil || len(s.Comments("7")) != 3 {
		t.Errorf("%v, %v", s.Comments("7"), err)
	}
}

func book(t *testing.T, s *ticketstest.Server, now func() time.Time) (*tickets.Book, *mem.DB) {
	t.Helper()
	all := []tickets.Options{{Name: "change", Pattern: `RFC-[0-9]{3}`}}
	for _, sys := range systems(s)[:3] {
		all = append(all, sys.Options)
	}
	db := mem.Open()
	b, err := tickets.New(all, db, now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b, db
}

func TestKeysAreFoundInWhatPeopleWrite(t *testing.T) {
	b, _ := book(t, ticketstest.New(t), time.Now)
	for text, want := range map[string]string{
		"restart checkout for OPS-123, please": "OPS-123",
		"OPS-1":                                "OPS-1",
		"not OPS-1 but OPS-2.":                 "OPS-2",
		"OPS-1 OPS-2 OPS-3":                    "OPS-3",
		"OPS-1,OPS-2":                          "OPS-2",
		"see https://x.atlassian.net/browse/OPS-12": "",
		"CHG0030007: go":           "CHG0030007",
		"as in #7":                 "#7",
		"RFC-123 and nothing else": "RFC-123",
		"xRFC-123":                 "",
		"UTF-8 is fine":            "UTF-8", // what looks like a key is one
		"the ops-1 host":           "",
		"nothing":                  "",
	} {
		if got, ok := b.Find(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q", text, got)
		}
	}
	if b.IsKey("OPS-1 ") || b.IsKey("a OPS-1") || !b.IsKey("OPS-1") {
		t.Error("a key is whole")
	}
}

func TestATicketThatCannotBeCheckedAllowsNothing(t *testing.T) {
	s := ticketstest.New(t)
	now := time.Date(2026, 3, 2, 3, 0, 0, 0, time.UTC)
	b, db := book(t, s, func() time.Time { return now })
	needed := func() string {
		t.Helper()
		if err := b.Refresh(t.Context(), "web:1"); err != nil {
			t.Fatal(err)
		}
		var out string
		if err := db.View(t.Context(), func(tx store.Tx) error { out = b.TicketOf(tx, "web:1").Needed(now); return nil }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	named := func(key string) {
		t.Helper()
		if err := db.Update(t.Context(), func(tx store.Tx) error { b.SetTicket(tx, "web:1", key, true); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := needed(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	expect("this needs a ticket: write its key in this thread")
	named("OPS-7")
	expect("OPS-7 is closed (there is no such ticket); write the key of an open one")
	now = now.Add(time.Minute)
	s.Set("OPS-7", ticketstest.Ticket{Title: "Restart it", Status: "To Do"})
	expect("OPS-7 isn't approved (To Do)")
	now = now.Add(time.Minute)
	s.Set("OPS-7", ticketstest.Ticket{Title: "Restart it", Status: "Approved"})
	expect("")
	now = now.Add(time.Minute)
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	expect("") // what was read a minute ago counts
	now = now.Add(90 * time.Second)
	expect("OPS-7 can't be checked, because jira answered 500")
	s.Fault(nil)
	expect("")
	now = now.Add(time.Minute)
	s.Set("OPS-7", ticketstest.Ticket{Title: "Restart it", Status: "Done", Closed: true})
	expect("OPS-7 is closed (Done); write the key of an open one")
	named("RFC-001") // nobody checks these
	expect("")
}

// What only looks like a ticket in a message changes nothing for long.
func TestAMentionCountsOnceItsSystemKnowsIt(t *testing.T) {
	s := ticketstest.New(t)
	s.Set("OPS-7", ticketstest.Ticket{Title: "Restart it", Status: "Approved"})
	s.Set("OPS-8", ticketstest.Ticket{Title: "Another", Status: "Approved"})
	now := time.Date(2026, 3, 2, 3, 0, 0, 0, time.UTC)
	b, db := book(t, s, func() time.Time { return now })
	mention := func(key string) (is string) {
		t.Helper()
		now = now.Add(time.Minute)
		if err := db.Update(t.Context(), func(tx store.Tx) error { b.SetTicket(tx, "web:1", key, false); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := b.Refresh(t.Context(), "web:1"); err != nil {
			t.Fatal(err)
		}
		if err := db.View(t.Context(), func(tx store.Tx) error { is = b.TicketOf(tx, "web:1").Key; return nil }); err != nil {
			t.Fatal(err)
		}
		return is
	}
	for _, tc := range []struct{ key, is string }{{"SHA-256", ""}, {"OPS-7", "OPS-7"}, {"UTF-8", "OPS-7"}, {"UTF-8", "OPS-7"}, {"OPS-8", "OPS-8"}, {"OPS-9", "OPS-8"}} {
		if got := mention(tc.key); got != tc.is {
			t.Errorf("%s: %q, not %q", tc.key, got, tc.is)
		}
	}
	// While the system is away, nobody knows.
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	if got := mention("OPS-7"); got != "OPS-7" {
		t.Errorf("%q", got)
	}
}

func TestANewTicketIsUnknownUntilItsSystemAnswers(t *testing.T) {
	if got := (approvals.Ticket{Key: "OPS-1", Source: "jira"}).Needed(time.Now()); got != "OPS-1 is being checked; try again in a moment" {
		t.Error(got)
	}
}
