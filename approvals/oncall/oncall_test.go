package oncall_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/PagerDuty/go-pagerduty"
	"github.com/opsgenie/opsgenie-go-sdk-v2/client"
	"github.com/opsgenie/opsgenie-go-sdk-v2/schedule"
	"github.com/sirupsen/logrus"

	"countersign/adapters/chat"
	"countersign/approvals/oncall"
	"countersign/approvals/oncall/oncalltest"
	"countersign/approvals/policy"
	"countersign/store/mem"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func hour(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }

func person(name string) oncall.Person {
	return oncall.Person{ID: "P" + strings.ToUpper(name), Name: name, Email: name + "@example.com"}
}

func shift(name string, level, from, to int) oncall.Shift {
	return oncall.Shift{Person: person(name), Level: level, From: hour(from), To: hour(to)}
}

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

func source(t *testing.T, kind, url string) oncall.Source {
	t.Helper()
	s, err := oncall.NewSource(oncall.Options{Kind: kind, URL: url, Token: oncalltest.Token, TokenName: "TOKEN"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every source says the same of the same rota.
func TestEverySourceSaysWhoIsOnCall(t *testing.T) {
	s := oncalltest.New(t)
	rota := []oncall.Shift{shift("bob", 1, 0, 8), shift("carol", 1, 8, 16), shift("dave", 2, 0, 16)}
	s.Set("S1", rota...)
	s.Set("PRI", rota[0], rota[1])
	s.Set("SEC", rota[2])
	s.Policy("EP", "PRI", "SEC")
	s.Policy("OTHER", "SEC", "PRI") // on another level there
	for _, tc := range []struct {
		kind, url string
		ref       policy.Reference
		levels    int
	}{
		{oncall.PagerDuty, s.URL, policy.Reference{Schedule: "PRI", Level: 1}, 2},
		{oncall.PagerDuty, s.URL, policy.Reference{Policy: "EP", Level: 1}, 2},
		{oncall.Opsgenie, s.URL, policy.Reference{Schedule: "S1", Level: 1}, 2},
		{oncall.IncidentIO, s.URL, policy.Reference{Schedule: "S1", Level: 1}, 2},
		{oncall.Grafana, s.URL, policy.Reference{Schedule: "PRI", Level: 1}, 1},
		{oncall.ICal, s.URL + "/calendar/S1", policy.Reference{Level: 1}, 2},
	} {
		for _, pages := range []int{100, 1} {
			s.Pages(pages)
			got, err := source(t, tc.kind, tc.url).Shifts(t.Context(), tc.ref, start, hour(24))
			if err != nil {
				t.Errorf("%s: %v", tc.kind, err)
				continue
			}
			said := map[string]bool{}
			for _, sh := range got {
				said[fmt.Sprintf("%d %s %d-%d", sh.Level, sh.Person.Email, int(sh.From.Sub(start).Hours()), int(sh.To.Sub(start).Hours()))] = true
			}
			want := []string{"1 bob@example.com 0-8", "1 carol@example.com 8-16"}
			if tc.levels == 2 {
				want = append(want, "2 dave@example.com 0-16")
			}
			if len(said) != len(want) {
				t.Errorf("%s: %v", tc.kind, said)
			}
			for _, w := range want {
				if !said[w] {
					t.Errorf("%s says %v, not %s", tc.kind, said, w)
				}
			}
		}
	}
}

// TestAScheduleOfPagerDutyWithoutAPolicy isn't among the on-calls: it is read itself, and has no levels.
func TestAScheduleOfPagerDutyWithoutAPolicy(t *testing.T) {
	s := oncalltest.New(t)
	s.Set("ALONE", shift("bob", 1, 0, 8), shift("carol", 1, 8, 16), shift("bob", 1, 16, 20))
	s.Set("USED", shift("bob", 1, 40, 48))
	s.Policy("EP", "USED")
	pd := source(t, oncall.PagerDuty, s.URL)
	got, err := pd.Shifts(t.Context(), policy.Reference{Schedule: "ALONE"}, start, hour(24))
	if err != nil || len(got) != 3 || got[0].Person != person("bob") || got[1].Person != person("carol") || got[1].Level != 1 || !got[1].To.Equal(hour(16)) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := pd.Shifts(t.Context(), policy.Reference{Schedule: "ALONE", Level: 1}, start, hour(24)); err == nil || !strings.Contains(err.Error(), "has no escalation policy that uses the schedule ALONE, so it has no levels") {
		t.Errorf("with a level: %v", err)
	}
	if got, err := pd.Shifts(t.Context(), policy.Reference{Schedule: "USED", Level: 1}, start, hour(24)); err != nil || len(got) != 0 {
		t.Errorf("one that a policy uses, and nobody is on call: %+v, %v", got, err)
	}
	if _, err := pd.Shifts(t.Context(), policy.Reference{Schedule: "NONE"}, start, hour(24)); err == nil || !strings.Contains(err.Error(), "check the schedule's id") {
		t.Errorf("one that isn't there: %v", err)
	}
}

func TestJiraServiceManagementSaysWhoIsOnCallNow(t *testing.T) {
	s := oncalltest.New(t)
	s.Set("f7f7", shift("bob", 1, 0, 8), shift("carol", 1, 8, 16))
	src, err := oncall.NewSource(oncall.Options{Kind: oncall.JSM, URL: s.URL, Token: oncalltest.JSMToken, TokenName: "TOKEN"})
	if err != nil {
		t.Fatal(err)
	}
	for _, schedule := range []string{"f7f7", "Schedule f7f7"} {
		got, err := src.Shifts(t.Context(), policy.Reference{Schedule: schedule}, start, hour(24))
		if err != nil || len(got) != 1 || got[0].Person != (oncall.Person{ID: "PBOB"}) || !got[0].To.IsZero() || got[0].Level != 1 {
			t.Errorf("%s: %+v, %v", schedule, got, err)
		}
	}
	if _, err := src.Shifts(t.Context(), policy.Reference{Schedule: "other"}, start, hour(24)); err == nil || !strings.Contains(err.Error(), "no schedule with that id or name") {
		t.Error(err)
	}
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	if _, err := source(t, oncall.Opsgenie, s.URL).Shifts(t.Context(), policy.Reference{Schedule: "x"}, start, hour(24)); err == nil || !strings.Contains(err.Error(), "shut down on 2027-04-05") || !strings.Contains(err.Error(), "kind: jsm") {
		t.Errorf("what has ended: %v", err)
	}
}

// The vendors' own clients read the double.
func TestTheDoubleSpeaksTheVendorsAPIs(t *testing.T) {
	s := oncalltest.New(t)
	s.Set("PRI", shift("bob", 1, 0, 8))
	s.Policy("EP", "PRI")
	pd := pagerduty.NewClient(oncalltest.Token, pagerduty.WithAPIEndpoint(s.URL))
	got, err := pd.ListOnCallsWithContext(t.Context(), pagerduty.ListOnCallOptions{
		ScheduleIDs: []string{"PRI"}, Includes: []string{"users"}, Since: start.Format(time.RFC3339), Until: hour(9).Format(time.RFC3339),
	})
	if err != nil || len(got.OnCalls) != 1 || got.OnCalls[0].User.Email != "bob@example.com" || got.OnCalls[0].EscalationLevel != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	quiet := logrus.New()
	quiet.SetLevel(logrus.PanicLevel)
	og, err := schedule.NewClient(&client.Config{ApiKey: oncalltest.Token, OpsGenieAPIURL: client.ApiUrl(strings.TrimPrefix(s.URL, "http://")), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	at := start
	line, err := og.GetTimeline(t.Context(), &schedule.GetTimelineRequest{IdentifierType: schedule.Name, IdentifierValue: "PRI", Interval: 2, IntervalUnit: schedule.Days, Date: &at})
	if err != nil || len(line.FinalTimeline.Rotations) != 1 || line.FinalTimeline.Rotations[0].Periods[0].Recipient.Name != "bob@example.com" {
		t.Errorf("%+v, %v", line, err)
	}
}

// keeper is a keeper of one PagerDuty schedule whose clock a test moves, and a way to look it up once more.
func keeper(t *testing.T, s *oncalltest.Server, c *clock, db *mem.DB) (*oncall.Keeper, func()) {
	t.Helper()
	if db == nil {
		db = mem.Open()
	}
	k := oncall.New(oncall.Config{DB: db, Now: c.now, Log: slog.New(slog.DiscardHandler), Sources: map[string]oncall.SourceConfig{
		"pd": {Source: source(t, oncall.PagerDuty, s.URL), Fallback: "sre", Every: time.Hour, Fresh: 15 * time.Minute},
	}})
	people := map[string]policy.Group{}
	for _, n := range []string{"bob", "carol", "dave"} {
		people[n+"@example.com"] = policy.Group{People: policy.IDs{"web": {n}}}
	}
	use := func() {
		if err := k.Use(t.Context(), []policy.Reference{ref}, people); err != nil {
			t.Fatal(err)
		}
	}
	use()
	again := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		asked := s.Asked()
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		before := k.States()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			after := k.States()
			if s.Asked() > asked && (after[0].Age == 0 || after[0].Problem != "" && fmt.Sprint(after) != fmt.Sprint(before)) {
				break
			}
		}
		cancel()
		<-done
	}
	return k, again
}

var ref = policy.Reference{Source: "pd", Schedule: "PRI", Level: 1, Escalate: 5 * time.Minute}

func rules(t *testing.T, k *oncall.Keeper) *policy.Policy {
	t.Helper()
	p, err := policy.New(policy.Config{}, map[string]policy.Group{"sre": {People: policy.IDs{"web": {"sam"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return p.WithOnCall(k.OnCall)
}

func may(p *policy.Policy, r policy.Reference, who string) bool {
	return p.Eligible([]string{r.String()}, chat.User{ID: chat.UserID("web:" + who)}, nil)
}

func rota(s *oncalltest.Server) {
	s.Set("PRI", shift("bob", 1, 0, 8), shift("carol", 1, 8, 16), shift("carol", 1, 16, 20), shift("erin", 1, 20, 22))
	s.Set("SEC", shift("dave", 2, 0, 16))
	s.Policy("EP", "PRI", "SEC")
}

func TestWhoIsOnCallFollowsTheClock(t *testing.T) {
	s := oncalltest.New(t)
	rota(s)
	c := &clock{t: hour(1)}
	k, look := keeper(t, s, c, nil)
	p := rules(t, k)
	if may(p, ref, "bob") || !may(p, ref, "sam") {
		t.Error("before the first answer the fallback decides, and nobody else")
	}
	if d := k.OnCall(ref).Duty; !strings.Contains(d.String(), "sre (pd hasn't answered yet)") {
		t.Errorf("%s", d)
	}
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	look()
	if d := k.OnCall(ref).Duty; !strings.Contains(d.String(), "sre (pd answered 410)") {
		t.Errorf("%s", d)
	}
	s.Fault(nil)
	look()
	for _, tc := range []struct {
		hour int
		may  string
		says string
	}{
		{1, "bob", "bob, primary until 08:00 UTC"},
		{8, "carol", "carol, primary until 20:00 UTC"}, // two shifts, one after the other
		{20, "sam", "sre (erin is on call, and the configuration's people don't say who that is here)"},
		{23, "sam", "sre (nobody is on call)"},
	} {
		c.set(hour(tc.hour))
		look()
		d := k.OnCall(ref).Duty
		if d.String() != tc.says {
			t.Errorf("%d: %s", tc.hour, d)
		}
		for _, who := range []string{"bob", "carol", "dave", "sam", "erin"} {
			if may(p, ref, who) != (who == tc.may) {
				t.Errorf("%d: %s %v", tc.hour, who, may(p, ref, who))
			}
		}
	}
}

// The answer of before counts, also for a shift that begins while the source is away, until it is too old.
func TestASourceThatGoesAwayFailsClosed(t *testing.T) {
	s := oncalltest.New(t)
	rota(s)
	c := &clock{t: hour(8).Add(-5 * time.Minute)}
	k, look := keeper(t, s, c, nil)
	p := rules(t, k)
	look()
	for name, fault := range map[string]http.HandlerFunc{
		"answered 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"answered 429": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"check the token in TOKEN":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"something else than its":    func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"oncalls": {}}`) },
		"else than its API describe": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"items": []}`) },
		"answered 302":               func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
	} {
		c.set(hour(8).Add(-5 * time.Minute))
		s.Fault(nil)
		look()
		s.Fault(fault)
		c.set(hour(8).Add(5 * time.Minute))
		look()
		if st := k.States()[0]; !strings.Contains(st.Problem, name) {
			t.Errorf("%s: %q", name, st.Problem)
		}
		if !may(p, ref, "carol") || may(p, ref, "bob") || may(p, ref, "sam") {
			t.Errorf("%s: while the answer is fresh, the shift change holds", name)
		}
		c.set(hour(8).Add(15 * time.Minute))
		if may(p, ref, "carol") || !may(p, ref, "sam") {
			t.Errorf("%s: an old answer counts", name)
		}
		if d := k.OnCall(ref).Duty.String(); d != "sre (pd hasn't answered since 07:55 UTC)" {
			t.Errorf("%s: %s", name, d)
		}
	}
	s.Fault(nil)
	look()
	if !may(p, ref, "carol") {
		t.Error("it doesn't catch up")
	}
}

func TestOverridesAreTakenOver(t *testing.T) {
	s := oncalltest.New(t)
	rota(s)
	c := &clock{t: hour(1)}
	k, look := keeper(t, s, c, nil)
	p := rules(t, k)
	look()
	// Carol takes an hour of Bob's; and two overrides that overlap have both on call.
	s.Set("PRI", shift("bob", 1, 0, 1), shift("carol", 1, 1, 3), shift("dave", 1, 2, 4), shift("bob", 1, 3, 8))
	c.set(hour(1).Add(time.Minute))
	look()
	if may(p, ref, "bob") || !may(p, ref, "carol") {
		t.Error("the override doesn't count")
	}
	c.set(hour(2).Add(30 * time.Minute))
	look()
	if !may(p, ref, "carol") || !may(p, ref, "dave") || may(p, ref, "bob") {
		t.Error("overlapping overrides")
	}
	if d := k.OnCall(ref).Duty; d.String() != "carol or dave, primary until 03:00 UTC" {
		t.Errorf("%s", d)
	}
}

func TestAnEscalationFollowsTheLevels(t *testing.T) {
	s := oncalltest.New(t)
	rota(s)
	c := &clock{t: hour(1)}
	k, look := keeper(t, s, c, nil)
	look()
	p := rules(t, k)
	d := p.Decide(policy.Input{Mode: policy.Balanced, Approvers: []string{ref.String()}, Facts: policy.Facts{Kind: "shell", Tool: "run_shell"}})
	if len(d.Requirements) != 1 || len(d.Requirements[0].Escalate) != 1 || d.Requirements[0].Escalate[0].After != 5*time.Minute {
		t.Fatalf("%+v", d.Requirements)
	}
	next := d.Requirements[0].Escalate[0].Groups
	if !p.Eligible(next, chat.User{ID: "web:dave"}, nil) || p.Eligible(next, chat.User{ID: "web:bob"}, nil) {
		t.Error("the second level is not dave")
	}
	if said := p.Duties(next); len(said) != 1 || said[0].String() != "dave, secondary until 16:00 UTC" {
		t.Errorf("%v", said)
	}
}

// A restart while the source is away knows what was said before.
func TestARestartKnowsWhatWasSaid(t *testing.T) {
	s := oncalltest.New(t)
	rota(s)
	c := &clock{t: hour(1)}
	db := mem.Open()
	_, look := keeper(t, s, c, db)
	look()
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	c.set(hour(1).Add(10 * time.Minute))
	k, _ := keeper(t, s, c, db)
	if !may(rules(t, k), ref, "bob") {
		t.Error("the restart forgot")
	}
	c.set(hour(1).Add(16 * time.Minute))
	if may(rules(t, k), ref, "bob") {
		t.Error("an old answer counts after a restart")
	}
}
