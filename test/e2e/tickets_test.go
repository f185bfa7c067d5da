package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"countersign/approvals/tickets/ticketstest"
	"countersign/test/needstest"
)

// ticketConfig has a target whose changes need a ticket of Jira that is approved.
func ticketConfig(s *ticketstest.Server) string {
	return fmt.Sprintf(`
targets: {local: {kind: local, tmux: false, approvers: [oncall], approve: {require: ticket}}}
groups: {oncall: {web: [alice, bob]}}
tickets:
  jira: {url: %q, user: %s, token_env: JIRA_TOKEN, approved: [Approved]}
`, s.URL, ticketstest.User)
}

const jiraToken = "JIRA_TOKEN=" + ticketstest.Token

func TestAChangeIsMadeForATicketAndTellsIt(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := ticketstest.New(t)
	s.Set("OPS-7", ticketstest.Ticket{Title: "Make the file", Status: "To Do"})
	dir := t.TempDir()
	do := turn{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}
	c := newCrew(t, part{"do", []turn{do}}, part{"more", []turn{do}}).enter(t, ticketConfig(s), jiraToken)
	c.tell("do")
	c.sees("This needs a ticket: write its key in this thread.")
	bob := c.as("bob")
	if said := bob.press("approve:"); said != "Nothing was decided: this needs a ticket: write its key in this thread." {
		t.Error(said)
	}
	c.tell("ticket OPS-7")
	c.sees("The ticket of this thread is **OPS-7: Make the file (To Do)**. OPS-7 isn't approved (To Do).")
	s.Set("OPS-7", ticketstest.Ticket{Title: "Make the file", Status: "Approved"})

	// Jira is away: nothing is approved, one line says so, and it is asked again.
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	eventually(t, "it can't be checked", func() bool {
		said := bob.press("approve:")
		return strings.Contains(said, "OPS-7 isn't approved") || strings.Contains(said, "OPS-7 can't be checked, because jira answered 503")
	}, c.shown)
	if _, err := os.Stat(dir + "/made"); err == nil {
		t.Fatal("it ran")
	}
	s.Fault(nil)
	eventually(t, "the end", func() bool {
		if len(bob.buttons("approve:")) > 0 {
			bob.press("approve:")
		}
		return c.ends() == 1
	}, c.shown)
	c.sees("Ticket: OPS-7: Make the file (Approved) " + s.URL + "/browse/OPS-7")
	told := func() bool { return len(s.Comments("OPS-7")) == 1 }
	eventually(t, "the ticket is told", told, func() string { return strings.Join(s.Comments("OPS-7"), "\n--\n") + c.shown() })
	said := s.Comments("OPS-7")[0]
	for _, want := range []string{"Command: touch " + dir + "/made", "Result: exit code 0", "Asked by: alice", "Approved by: bob at "} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}

	// Jira is away when the next change ends, and the bot is killed: the comment arrives later, and once.
	c.tell("more")
	eventually(t, "the second card", func() bool { return len(bob.buttons("approve:")) > 0 }, c.shown)
	bob.press("approve:")
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	eventually(t, "the second end", func() bool { return c.ends() == 2 }, c.shown)
	c.b.kill()
	s.Fault(nil)
	c.again()
	eventually(t, "the ticket is told of the second", func() bool { return len(s.Comments("OPS-7")) == 2 }, func() string { return strings.Join(s.Comments("OPS-7"), "\n--\n") + c.shown() })
	if strings.Contains(c.b.log.String(), ticketstest.Token) {
		t.Error("the token is in the log")
	}
}

// A ticket in the message itself is enough.
func TestATicketInTheMessage(t *testing.T) {
	t.Parallel()
	s := ticketstest.New(t)
	s.Set("OPS-8", ticketstest.Ticket{Title: "Make the file", Status: "Approved"})
	dir := t.TempDir()
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}}}).enter(t, ticketConfig(s), jiraToken)
	c.tell("do it for OPS-8")
	c.sees("Ticket: OPS-8: Make the file (Approved)")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
}

// A plan gets one comment for all its steps, and a change on trial one when it was undone.
func TestAPlanAndATrialAreOneCommentEach(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := ticketstest.New(t)
	s.Set("OPS-9", ticketstest.Ticket{Title: "Make the files", Status: "Approved"})
	dir := shortDir(t)
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	config := ticketConfig(s) + "policy: {approve: {keep_within: 6s}}\n"
	c := newCrew(t,
		part{"both", []turn{{text: "I do it.", calls: []call{shell("mkdir " + dir + "/a"), shell("touch " + dir + "/a/b")}}}},
		part{"try", []turn{{text: "I do it.", calls: []call{shell("chmod 600 " + dir + "/a/b")}}}},
	).enter(t, config, jiraToken)
	bob := c.as("bob")
	told := func() string { return strings.Join(s.Comments("OPS-9"), "\n--\n") + c.shown() }

	c.tell("both for OPS-9")
	bob.thread = c.thread
	c.sees("Ticket: OPS-9: Make the files (Approved)")
	bob.press("approve:")
	eventually(t, "the plan has its comment", func() bool { return len(s.Comments("OPS-9")) == 1 }, told)
	for _, want := range []string{"Command 1: mkdir " + dir + "/a", "Result 1: exit code 0", "Command 2: touch " + dir + "/a/b", "Result 2: exit code 0", "Approved by: bob at "} {
		if !strings.Contains(s.Comments("OPS-9")[0], want) {
			t.Errorf("no %q in %s", want, s.Comments("OPS-9")[0])
		}
	}

	c.previewed("try for OPS-9", "Undo: ")
	bob.press("trial:")
	eventually(t, "the trial has its comment", func() bool { return len(s.Comments("OPS-9")) == 2 }, told)
	if said := s.Comments("OPS-9")[1]; !strings.Contains(said, "Command: chmod 600 "+dir+"/a/b") || !strings.Contains(said, "On trial: undone") {
		t.Error(said)
	}
}
