package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/approvals/oncall/oncalltest"
	"countersign/approvals/tickets/ticketstest"
	"countersign/test/needstest"
)

// eventReceiver is an OpenTelemetry collector that keeps the bodies of log records.
type eventReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	fault http.HandlerFunc
	got   []string
}

func newEventReceiver(t *testing.T) *eventReceiver {
	c := &eventReceiver{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		fault := c.fault
		c.mu.Unlock()
		if fault != nil {
			fault(w, r)
			return
		}
		raw, err := io.ReadAll(r.Body)
		var logs struct {
			ResourceLogs []struct {
				ScopeLogs []struct {
					LogRecords []struct {
						Body struct {
							StringValue string `json:"stringValue"`
						} `json:"body"`
					} `json:"logRecords"`
				} `json:"scopeLogs"`
			} `json:"resourceLogs"`
		}
		if err != nil || json.Unmarshal(raw, &logs) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rec := range logs.ResourceLogs[0].ScopeLogs[0].LogRecords {
			c.got = append(c.got, rec.Body.StringValue)
		}
		_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *eventReceiver) set(h http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = h
}

// events are those that arrived, in order.
func (c *eventReceiver) events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// operations are those of the events that arrived, in order.
func (c *eventReceiver) operations() []string {
	return collected(c.events())
}

// night is a bot of two replicas with everything outside that it depends on.
type night struct {
	*replicaSet
	t         *testing.T
	pagerDuty *oncalltest.Server
	jira      *ticketstest.Server
	collector *eventReceiver
	dir       string
	people    map[string]*person
	start     time.Time
}

func newNight(t *testing.T) *night {
	n := &night{t: t, pagerDuty: oncalltest.New(t), jira: ticketstest.New(t), collector: newEventReceiver(t), dir: t.TempDir(), people: map[string]*person{}, start: time.Now().UTC()}
	n.shift("bob")
	n.pagerDuty.Set("SEC", onCallShift("dave", n.start.Add(-time.Hour), n.start.Add(6*time.Hour)))
	n.pagerDuty.Policy("EP", "PRI", "SEC")
	m := model(t, func(results int, _ string) turn {
		if results > 0 {
			return turn{text: "Done."}
		}
		return turn{text: "I reload it.", calls: []call{shell("echo reloaded >> " + n.dir + "/log")}}
	})
	n.replicaSet = newReplicas(t, 2, fmt.Sprintf(`
targets:
  shop: {kind: local, tmux: false, dir: %s, labels: {env: production}, approvers: [{oncall: pagerduty, schedule: PRI, level: 1, escalate: 5s}], approve: {require: ticket}}
agent: {target: shop}
groups: {sre: {web: [sam]}, team: {web: [alice, erin]}}
oncall:
  pagerduty: {url: %q, token_env: PD_TOKEN, fallback: sre, every: 1s, max_age: 3s}
people:
  bob@example.com: {web: [bob]}
  carol@example.com: {web: [carol]}
  dave@example.com: {web: [dave]}
handover: {channel: web, shifts: [{oncall: pagerduty, schedule: PRI, level: 1}]}
tickets:
  jira: {url: %q, user: %s, token_env: JIRA_TOKEN, approved: [Approved]}
stream:
  - {to: otlp, url: "%s/v1/logs"}
alerts:
  hooks:
    generic: {secret_env: GENERIC_HOOK_SECRET}
  default: {channel: web}
`, n.dir, n.pagerDuty.URL, n.jira.URL, ticketstest.User, n.collector.URL), m.URL, pdToken, jiraToken, "GENERIC_HOOK_SECRET=a-secret-of-the-hook")
	for i, name := range []string{"alice", "bob", "carol", "dave", "sam", "erin"} {
		n.people[name] = n.bots[i%2].login(name)
	}
	return n
}

// shift has somebody on call as primary.
func (n *night) shift(name string) {
	n.pagerDuty.Set("PRI", onCallShift(name, n.start.Add(-time.Hour), n.start.Add(6*time.Hour)))
}

// shown is what a thread shows, with its cards' footers.
func (n *night) shown(thread string) string {
	rows, err := n.people["alice"].messages(thread)
	if err != nil {
		return err.Error()
	}
	s := pageOf(rows)
	for _, r := range rows {
		if r.Card != nil {
			s += r.Card.Footer + "\n"
		}
	}
	return s
}

func (n *night) sees(thread, text string) {
	n.t.Helper()
	eventually(n.t, "the thread shows "+text, func() bool { return strings.Contains(n.shown(thread), text) }, func() string { return n.shown(thread) + n.logs() })
}

// press presses Approve as somebody, and returns what they were told.
func (n *night) press(who, thread string) string {
	n.t.Helper()
	button := ""
	eventually(n.t, "a card with the button approve", func() bool {
		rows, _ := n.people["alice"].messages(thread)
		for _, r := range rows {
			if r.Card == nil {
				continue
			}
			for _, c := range r.Card.Choose {
				if strings.HasPrefix(string(c.ID), "approve:") {
					button = string(c.ID)
				}
			}
		}
		return button != ""
	}, func() string { return n.shown(thread) + n.logs() })
	var ans struct{ Notice string }
	st, err := n.people[who].do("POST", "/api/threads/"+thread+"/clicks", map[string]string{"id": fmt.Sprint("c", time.Now().UnixNano()), "button": button}, &ans)
	if err != nil || st != http.StatusOK {
		n.t.Fatalf("%d %v", st, err)
	}
	return ans.Notice
}

// threadOf waits for a thread whose first message begins with a text.
func (n *night) threadOf(begins string) (id string) {
	n.t.Helper()
	eventually(n.t, "a thread "+begins, func() bool {
		var list struct {
			Threads []struct{ ID, Title string } `json:"threads"`
		}
		if _, err := n.people["alice"].do("GET", "/api/threads", nil, &list); err != nil {
			return false
		}
		for _, th := range list.Threads {
			if strings.Contains(th.Title, begins) {
				id = th.ID
			}
		}
		return id != ""
	}, n.logs)
	return id
}

// An alert; the primary doesn't answer; the secondary may; a ticket is demanded and checked; approval; the
// change; the ticket's comment; the events; the shift change; the hand-over.
func TestANightOnTwoReplicas(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	n := newNight(t)
	n.jira.Set("OPS-7", ticketstest.Ticket{Title: "Reload checkout", Status: "To Do"})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.bots[1].url+"/hooks/generic", strings.NewReader(`{"key":"checkout","title":"Checkout is slow","text":"p95 is 4 s","labels":{"severity":"critical"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer a-secret-of-the-hook")
	req.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%v %v", resp, err)
	}
	thread := n.threadOf("Checkout is slow")
	n.people["alice"].add(t, thread, "please fix it")
	n.sees(thread, "needs Bob, primary until ")
	n.sees(thread, "This needs a ticket: write its key in this thread.")
	n.sees(thread, "Nobody has decided yet, so **Dave, secondary until ")
	if said := n.press("dave", thread); !strings.Contains(said, "this needs a ticket") {
		t.Error(said)
	}
	n.people["alice"].add(t, thread, "ticket OPS-7")
	n.sees(thread, "OPS-7 isn't approved (To Do).")
	n.jira.Set("OPS-7", ticketstest.Ticket{Title: "Reload checkout", Status: "Approved"})
	eventually(t, "the change runs", func() bool {
		if strings.Contains(n.shown(thread), "Approved by dave") {
			return bytesIn(t, n.dir+"/log") > 0
		}
		n.press("dave", thread)
		return false
	}, func() string { return n.shown(thread) + n.logs() })
	if got := bytesIn(t, n.dir+"/log"); got != len("reloaded\n") {
		t.Errorf("%d bytes", got)
	}
	n.sees(thread, "Ticket: OPS-7: Reload checkout (Approved)")
	eventually(t, "the ticket is told", func() bool { return len(n.jira.Comments("OPS-7")) == 1 }, n.logs)
	if said := n.jira.Comments("OPS-7")[0]; !strings.Contains(said, "Approved by: dave at ") || !strings.Contains(said, "(Dave, secondary until ") {
		t.Error(said)
	}
	eventually(t, "the collector has it", func() bool {
		ops := n.collector.operations()
		return !slices.ContainsFunc([]string{"request.asked", "request.escalated", "request.approved", "launch echo reloaded >> " + n.dir + "/log", "terminate echo reloaded >> " + n.dir + "/log"},
			func(want string) bool { return !slices.Contains(ops, want) })
	}, func() string { return strings.Join(n.collector.operations(), "\n") })

	n.shift("carol")
	over := n.threadOf("Hand-over from Bob to Carol, primary")
	for _, want := range []string{"**Changed** (1)", "approved by dave", "**Alerts firing** (1)", "Checkout is slow"} {
		n.sees(over, want)
	}
	n.people["carol"].add(t, over, "handover")
	n.sees(over, "**Hand-over**, since ")
}

// Each outside system is taken away in turn: the bot says so once, fails closed, loses nothing and catches up.
func TestANightWithoutEachOutsideSystem(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	names := []string{"500"}
	if needstest.Whole(t) {
		names = []string{"a timeout", "429", "500", "an expired token", "a wrong schema"}
	}
	n := newNight(t)
	faults := map[string]http.HandlerFunc{
		"a timeout": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the other end has gone
			<-r.Context().Done()
		},
		"429": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"500":              func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"an expired token": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"a wrong schema":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `<html>sign in</html>`) },
	}
	said := func(text string) int { return strings.Count(n.logs(), text) }
	ran, key := 0, 0
	request := func() (thread, ticket string) {
		key++
		ticket = fmt.Sprintf("OPS-%d", 100+key)
		n.jira.Set(ticket, ticketstest.Ticket{Title: "Reload", Status: "Approved"})
		return n.people["alice"].say(t, "please fix it for "+ticket), ticket
	}
	done := func(name, thread string) {
		t.Helper()
		ran++
		eventually(t, name+": the change ran", func() bool { return bytesIn(t, n.dir+"/log") == ran*len("reloaded\n") }, func() string { return n.shown(thread) + n.logs() })
	}
	told := func(name, ticket string) {
		t.Helper()
		eventually(t, name+": the ticket is told", func() bool { return len(n.jira.Comments(ticket)) == 1 }, n.logs)
	}
	for _, name := range names {
		fault := faults[name]

		// Without PagerDuty the fallback decides, and only it.
		thread, ticket := request()
		n.sees(thread, "needs Bob, primary until ")
		before := said("who is on call can't be looked up")
		n.pagerDuty.Fault(fault)
		eventually(t, name+": the fallback decides", func() bool {
			// At both replicas, each of which has its own answer.
			return strings.Contains(n.press("carol", thread), "sre (pagerduty hasn't answered since ") && strings.Contains(n.press("erin", thread), "sre (pagerduty hasn't answered since ")
		}, func() string { return n.shown(thread) + n.logs() })
		if text := n.press("bob", thread); !strings.Contains(text, "sre (pagerduty hasn't answered since ") {
			t.Errorf("%s: %s", name, text)
		}
		n.press("sam", thread)
		done(name+" of PagerDuty", thread)
		told(name, ticket)
		if got := said("who is on call can't be looked up") - before; got > 2 { // once for each replica
			t.Errorf("%s of PagerDuty is said %d times", name, got)
		}
		n.pagerDuty.Fault(nil)

		// Without Jira nothing is approved; afterwards it is told.
		before = said("tickets can't be checked")
		n.jira.Fault(fault)
		thread, ticket = request()
		eventually(t, name+": Jira is missed", func() bool {
			return strings.Contains(n.press("bob", thread), ticket+" can't be checked, because jira ")
		}, func() string { return n.shown(thread) + n.logs() })
		if got := said("tickets can't be checked") - before; got < 1 || got > 2 {
			t.Errorf("%s of Jira is said %d times", name, got)
		}
		n.jira.Fault(nil)
		eventually(t, name+": Jira is back", func() bool {
			return strings.HasPrefix(n.press("bob", thread), "Approved") || strings.Contains(n.shown(thread), "Approved by bob")
		}, func() string { return n.shown(thread) + n.logs() })
		done(name+" of Jira", thread)
		told(name, ticket)

		// Without the collector the change goes on, and its events arrive later.
		n.collector.set(fault)
		thread, ticket = request()
		n.sees(thread, "ticket "+ticket)
		n.press("bob", thread)
		done(name+" of the collector", thread)
		told(name, ticket)
		n.collector.set(nil)
	}
	launched := func() (out int) {
		for _, op := range n.collector.operations() {
			if strings.HasPrefix(op, "launch ") {
				out++
			}
		}
		return out
	}
	eventually(t, "the collector has everything", func() bool { return launched() >= ran }, func() string { return fmt.Sprint(launched(), " of ", ran, n.logs()) })
	for _, secret := range []string{oncalltest.Token, ticketstest.Token} {
		if strings.Contains(n.logs(), secret) {
			t.Error("a token is in the log")
		}
	}
}
