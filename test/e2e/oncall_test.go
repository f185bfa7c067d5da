package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/approvals/oncall"
	"countersign/approvals/oncall/oncalltest"
	"countersign/test/needstest"
)

// onCallConfig has a target whose approvers are whom the schedule PRI of PagerDuty has on call, then SEC.
func onCallConfig(s *oncalltest.Server, more string) string {
	return fmt.Sprintf(`
targets: {local: {kind: local, tmux: false, approvers: [{oncall: pagerduty, schedule: PRI, level: 1%s}]}}
groups: {sre: {web: [sam, alice]}}
oncall:
  pagerduty: {url: %q, token_env: PD_TOKEN, fallback: sre, every: 1s, max_age: 4s}
people:
  bob@example.com: {web: [bob]}
  carol@example.com: {web: [carol]}
  dave@example.com: {web: [dave]}
`, more, s.URL)
}

func onCallShift(name string, from, to time.Time) oncall.Shift {
	return oncall.Shift{Person: oncall.Person{ID: "P" + strings.ToUpper(name), Name: strings.ToUpper(name[:1]) + name[1:], Email: name + "@example.com"}, Level: 1, From: from, To: to}
}

const pdToken = "PD_TOKEN=" + oncalltest.Token

func TestWhoIsOnCallApproves(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := oncalltest.New(t)
	now := time.Now().UTC().Truncate(time.Second)
	end := now.Add(6 * time.Hour)
	s.Set("PRI", onCallShift("bob", now.Add(-time.Hour), end))
	s.Set("SEC", onCallShift("dave", now.Add(-time.Hour), end))
	s.Policy("EP", "PRI", "SEC")
	dir := t.TempDir()
	do := turn{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}
	c := newCrew(t, part{"do", []turn{do}}, part{"again", []turn{do}}, part{"third", []turn{do}}, part{"fourth", []turn{do}}).
		enter(t, onCallConfig(s, ", escalate: 4s"), pdToken)
	bob, carol, dave, sam := c.as("bob"), c.as("carol"), c.as("dave"), c.as("sam")
	people := []*chatter{bob, carol, dave, sam}
	speak := func(word string) {
		t.Helper()
		c.tell(word)
		for _, p := range people {
			p.thread = c.thread
		}
	}
	clock := end.Format("15:04 UTC")

	// The card names who is on call; nobody else may.
	speak("do")
	c.sees("Who may approve: Bob, primary until " + clock)
	for _, p := range []*chatter{carol, sam} {
		if said := p.press("approve:"); !strings.Contains(said, "It needs approval from Bob, primary until "+clock) {
			t.Error(said)
		}
	}
	bob.press("approve:")
	eventually(t, "the first end", func() bool { return c.ends() == 1 }, c.shown)
	c.sees("approved (Bob, primary until " + clock + ")")

	// Bob doesn't answer; the secondary may.
	speak("again")
	c.sees("Nobody has decided yet, so **Dave, secondary until " + clock + "** can decide now, too.")
	dave.press("approve:")
	eventually(t, "the second end", func() bool { return c.ends() == 2 }, c.shown)

	// An override in the middle of a request.
	speak("third")
	c.sees("asks run_shell")
	s.Set("PRI", onCallShift("carol", now.Add(-time.Hour), end))
	c.sees("On call now, and asked to decide: **Carol, primary until " + clock + "**.")
	if said := bob.press("approve:"); !strings.Contains(said, "It needs approval from Carol, primary") {
		t.Error(said)
	}
	carol.press("approve:")
	eventually(t, "the third end", func() bool { return c.ends() == 3 }, c.shown)

	// PagerDuty goes away: the fallback decides, and one line of the log says so.
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	speak("fourth")
	c.sees("Who is on call isn't known now, so this is for **sre (pagerduty hasn't answered since")
	if said := carol.press("approve:"); !strings.Contains(said, "sre (pagerduty hasn't answered since") {
		t.Error(said)
	}
	sam.press("approve:")
	eventually(t, "the fourth end", func() bool { return c.ends() == 4 }, c.shown)
	if n := strings.Count(c.b.log.String(), "who is on call can't be looked up"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if strings.Contains(c.b.log.String(), oncalltest.Token) {
		t.Error("the token is in the log")
	}
	s.Fault(nil)
	eventually(t, "it catches up", func() bool { return strings.Contains(c.b.log.String(), "who is on call can be looked up again") }, c.shown)
}

// A shift ends while a request waits, and the bot was killed in between.
func TestAShiftChangesWhileARequestWaits(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := oncalltest.New(t)
	now := time.Now().UTC().Truncate(time.Second)
	change := now.Add(12 * time.Second)
	s.Set("PRI", onCallShift("bob", now.Add(-time.Hour), change), onCallShift("carol", change, now.Add(6*time.Hour)))
	s.Policy("EP", "PRI")
	dir := t.TempDir()
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}}}).enter(t, onCallConfig(s, ""), pdToken)
	c.tell("do")
	c.sees("Who may approve: Bob, primary until")
	c.b.kill()
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	c.again()
	if time.Now().Before(change.Add(-time.Second)) {
		c.sees("Who may approve: Bob, primary until") // as it was stored
	}
	s.Fault(nil)
	c.sees("On call now, and asked to decide: **Carol, primary")
	if said := c.as("bob").press("approve:"); !strings.Contains(said, "It needs approval from Carol, primary") {
		t.Error(said)
	}
	c.as("carol").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
}
