package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/console/webpush"
	"countersign/console/webpush/pushtest"
	"countersign/store"
	"countersign/store/mem"
)

func TestWhenSomebodyIsToldOfACard(t *testing.T) {
	at := time.Date(2026, 11, 27, 2, 30, 0, 0, time.UTC)
	night := wishRow{From: "22:00", To: "07:00", Zone: "Europe/Berlin"} // 03:30 there
	for _, tt := range []struct {
		rule  string
		wish  wishRow
		risk  string
		age   time.Duration
		was   pushedRow
		told  bool
		due   bool
		again bool
	}{
		{"every card, by default", wishRow{}, "low risk", time.Minute, pushedRow{}, false, true, false},
		{"not one that was just asked", wishRow{}, "high risk", time.Second, pushedRow{}, false, false, false},
		{"not below the least risk", wishRow{Least: "high"}, "medium risk", time.Minute, pushedRow{}, false, false, false},
		{"from the least risk on", wishRow{Least: "high"}, "high risk", time.Minute, pushedRow{}, false, true, false},
		{"an unknown risk is a high one", wishRow{Least: "high"}, "", time.Minute, pushedRow{}, false, true, false},
		{"not at night", night, "high risk", time.Minute, pushedRow{}, false, false, false},
		{"at night what is critical", night, "critical risk", time.Minute, pushedRow{}, false, true, false},
		{"at night what was chosen", wishRow{From: "22:00", To: "07:00", Zone: "Europe/Berlin", Quiet: "high"}, "high risk", time.Minute, pushedRow{}, false, true, false},
		{"the same hours elsewhere are day", wishRow{From: "22:00", To: "07:00", Zone: "America/Los_Angeles"}, "low risk", time.Minute, pushedRow{}, false, true, false},
		{"quiet hours of a day", wishRow{From: "01:00", To: "04:00", Zone: "UTC"}, "low risk", time.Minute, pushedRow{}, false, false, false},
		{"once", wishRow{}, "low risk", 5 * time.Minute, pushedRow{At: at.Add(-4 * time.Minute)}, true, false, false},
		{"again after half of the time", wishRow{}, "low risk", 8 * time.Minute, pushedRow{At: at.Add(-8 * time.Minute)}, true, true, true},
		{"not right after the first time", wishRow{}, "low risk", 8 * time.Minute, pushedRow{At: at.Add(-30 * time.Second)}, true, false, true},
		{"never a third time", wishRow{}, "low risk", 9 * time.Minute, pushedRow{At: at.Add(-9 * time.Minute), Reminded: true}, true, false, false},
		{"not when it is over", wishRow{}, "low risk", 16 * time.Minute, pushedRow{At: at.Add(-15 * time.Minute)}, true, false, true},
	} {
		c := api.HomeCard{At: at.Add(-tt.age), Card: chat.Card{Risk: tt.risk}}
		c.Card.Expires = c.At.Add(15 * time.Minute)
		if due, again := tt.wish.due(c, tt.was, tt.told, at); due != tt.due || due && again != tt.again {
			t.Errorf("%s: %v, again %v", tt.rule, due, again)
		}
	}
}

func TestWishesThatCanBeKept(t *testing.T) {
	for _, good := range []wishRow{{}, {Least: "high", From: "22:00", To: "06:30", Zone: "Asia/Kolkata", Quiet: "critical", Sound: true}} {
		if !good.valid() {
			t.Errorf("%+v", good)
		}
	}
	for _, bad := range []wishRow{{Least: "huge"}, {Quiet: "x"}, {From: "22:00"}, {From: "25:00", To: "07:00"}, {From: "10:00", To: "noon"}, {Zone: "Nowhere/At-All"}, {Zone: "../../etc/passwd"}} {
		if bad.valid() {
			t.Errorf("%+v", bad)
		}
	}
}

func TestANoticeSaysWhatWaitsInTwoLines(t *testing.T) {
	now := time.Now()
	c := api.HomeCard{ID: "q1", Thread: "slack:T1:C1:1.1", At: now, Card: chat.Card{Title: "Restart nginx on web-1\u202e", Env: "production", Risk: "high risk", Expires: now.Add(7*time.Minute + 20*time.Second)}}
	if got := noticeOf(c, wishRow{}, false, now); got != (notice{ID: "q1", Title: `Restart nginx on web-1\u{202E}`, Body: "production · high risk · Slack"}) {
		t.Errorf("%+v", got)
	}
	if got := noticeOf(c, wishRow{Sound: true}, true, now); got.Body != "Still waiting, 7m left · production · high risk · Slack" || !got.Sound {
		t.Errorf("%+v", got)
	}
	c.Card.Title = strings.Repeat("x", 5000)
	if raw, err := json.Marshal(noticeOf(c, wishRow{}, false, now)); err != nil || len(raw) > webpush.MaxBody {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

func pushing(t *testing.T, desk *stage) (option, *pushtest.Service, *webpush.Sender) {
	t.Helper()
	s, err := webpush.New(webpush.Config{Seed: []byte("seed"), Subject: "mailto:ops@example.com", Local: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Desk, c.Push = desk, s }, pushtest.New(t), s
}

func TestACardReachesThePhonesOfWhoMayDecideIt(t *testing.T) {
	desk := &stage{}
	with, service, sender := pushing(t, desk)
	r := newRig(t, with, func(c *Config) {
		c.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[secret]") }
	})
	p := r.signIn("you")
	phone, laptop := service.Subscribe(sender.PublicKey()), service.Subscribe(sender.PublicKey())
	add := func(b *pushtest.Browser, name string) string {
		t.Helper()
		raw, err := json.Marshal(map[string]any{"subscription": b.Subscription(), "name": name})
		if err != nil {
			t.Fatal(err)
		}
		got := p.do("POST", "/api/notifications/devices", string(raw))
		var out struct{ ID string }
		if json.Unmarshal(got.body, &out) != nil || got.status != 200 || out.ID == "" {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return out.ID
	}
	add(phone, "Chrome on Android")
	if again, first := add(phone, "Chrome on Android"), add(laptop, "Firefox on Linux"); again == first {
		t.Error("two browsers are one")
	}
	if got := p.do("POST", "/api/notifications/wishes", `{"least":"medium","from":"","to":"","zone":"UTC"}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	now := r.clock.now()
	card := func(id, risk string) api.HomeCard {
		return api.HomeCard{ID: id, Thread: "web:x", At: now.Add(-time.Minute), Card: chat.Card{Title: "Restart " + id + " hunter2", Risk: risk, Expires: now.Add(10 * time.Minute)}}
	}
	desk.set(api.Home{Yours: []api.HomeCard{card("q1", "high risk"), card("q2", "low risk")}, Others: []api.HomeCard{card("q3", "high risk")}})
	r.until("both are told", func() bool { return len(phone.Got()) == 1 && len(laptop.Got()) == 1 })
	m := phone.Got()[0]
	if m.Body != `{"id":"q1","title":"Restart q1 [secret]","body":"high risk"}` || m.Urgency != "high" || m.TTL < 500 || m.TTL > 600 || len(m.Topic) != 32 {
		t.Errorf("%+v", m)
	}
	laptop.Leave()
	desk.set(api.Home{Yours: []api.HomeCard{card("q1", "high risk"), card("q4", "critical risk")}})
	r.until("the phone is told of the next", func() bool { return len(phone.Got()) == 2 })
	devices := func() (out []string) {
		var list struct{ Devices []struct{ Name string } }
		p.get("/api/notifications", &list)
		for _, d := range list.Devices {
			out = append(out, d.Name)
		}
		return out
	}
	r.until("a browser that wants no more is forgotten", func() bool { return fmt.Sprint(devices()) == "[Chrome on Android]" })

	for body, want := range map[string]int{
		`{"subscription":{"endpoint":"ftp://x/1","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}}`: 400,
		`{"subscription":{"endpoint":"https://x/1","keys":{"p256dh":"x","auth":"y"}}}`:                                                                                                          400, `{}`: 400,
	} {
		if got := p.do("POST", "/api/notifications/devices", body); got.status != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if got := p.do("POST", "/api/notifications/wishes", `{"least":"huge"}`); got.status != 400 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for i := range devicesEach - 1 {
		add(service.Subscribe(sender.PublicKey()), fmt.Sprint("n", i))
	}
	raw, _ := json.Marshal(map[string]any{"subscription": service.Subscribe(sender.PublicKey()).Subscription()})
	if got := p.do("POST", "/api/notifications/devices", string(raw)); got.status != 409 {
		t.Errorf("an eleventh: %d %s", got.status, got.body)
	}
	if got := p.do("POST", "/api/logout-everywhere", "{}"); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	p = r.signIn("you")
	if got := devices(); len(got) != 0 {
		t.Errorf("after signing out everywhere: %q", got)
	}
}

// TestAServiceThatRefusesIsNamed: where people see their devices, and to who wants to know.
func TestAServiceThatRefusesIsNamed(t *testing.T) {
	desk := &stage{}
	with, service, sender := pushing(t, desk)
	told := make(chan PushProblem, 10)
	r := newRig(t, with, func(c *Config) { c.OnPush = func(p PushProblem) { told <- p } })
	p := r.signIn("you")
	phone := service.Subscribe(sender.PublicKey())
	raw, err := json.Marshal(map[string]any{"subscription": phone.Subscription(), "name": "Safari on iPhone"})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.do("POST", "/api/notifications/devices", string(raw)); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	problem := func() string {
		var list struct{ Devices []struct{ Problem string } }
		p.get("/api/notifications", &list)
		return list.Devices[0].Problem
	}
	now := r.clock.now()
	card := func(id string) api.Home {
		return api.Home{Yours: []api.HomeCard{{ID: id, Thread: "web:x", At: now.Add(-time.Minute), Card: chat.Card{Title: "x", Risk: "high risk", Expires: now.Add(10 * time.Minute)}}}}
	}
	service.Refuse(403)
	desk.set(card("q1"))
	if got := <-told; got.User != "you" || got.Name != "Safari on iPhone" || !strings.Contains(got.Problem, "refuses messages (HTTP 403") {
		t.Errorf("%+v", got)
	}
	if got := problem(); !strings.Contains(got, "refuses messages (HTTP 403") {
		t.Errorf("%q", got)
	}
	service.Refuse(0)
	desk.set(card("q2"))
	if got := <-told; got.Problem != "" || problem() != "" {
		t.Errorf("%+v, %q", got, problem())
	}
}

func TestReplicasTellSomebodyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a := func() *Adapter {
			a, err := New(Config{DB: db, DoorConfig: DoorConfig{Key: testKey, Users: members("you")}, PartsConfig: PartsConfig{Desk: &stage{}}})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		all := []*Adapter{a(), a(), a()}
		c := api.HomeCard{ID: "q1", At: time.Now().Add(-time.Minute), Card: chat.Card{Title: "x", Expires: time.Now().Add(time.Hour)}}
		var mu sync.Mutex
		n := 0
		round := func() int {
			n = 0
			var wg sync.WaitGroup
			for range 5 {
				for _, a := range all {
					wg.Go(func() {
						_, ok, err := a.push.claimNotice(t.Context(), "you", c)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						if ok {
							n++
						}
					})
				}
			}
			wg.Wait()
			return n
		}
		if got := round(); got != 1 {
			t.Errorf("told %d times", got)
		}
		time.Sleep(40 * time.Minute)
		if got := round(); got != 1 {
			t.Errorf("reminded %d times", got)
		}
		time.Sleep(pushedLife + time.Minute)
		c.ID, c.At = "q2", time.Now().Add(-time.Minute)
		if got := round(); got != 1 {
			t.Errorf("told of the next %d times", got)
		}
		left := 0
		_ = db.View(t.Context(), func(tx store.Tx) error {
			from, to := store.Prefix(scheme, "pushed")
			for range tx.Scan(from, to) {
				left++
			}
			return nil
		})
		if left != 1 {
			t.Errorf("%d rows are kept", left)
		}
	})
}
