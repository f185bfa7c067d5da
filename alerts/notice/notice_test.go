package notice_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"countersign/alerts/notice"
)

var at = time.Date(2024, 5, 1, 10, 6, 0, 0, time.UTC)

func published(t testing.TB, s notice.Source) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + string(s) + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t *testing.T, s notice.Source, body []byte) notice.Notice {
	t.Helper()
	n, err := notice.Parse(s, body, at)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAlertmanagersExampleIsUnderstood(t *testing.T) {
	n := parse(t, notice.Alertmanager, published(t, notice.Alertmanager))
	if n.Status != notice.Firing || n.Key != `{}/{team="db"}:{alertname="HighLatency", cluster="eu-1"}` || n.Title != "Queries take longer than 2 s" ||
		n.Labels["severity"] != "critical" || len(n.Labels) != 4 || n.URL != "http://alertmanager.example.com:9093" || n.More != 3 || !n.At.Equal(at) {
		t.Errorf("the notice is %+v", n)
	}
	if firing, over := n.Counts(); firing != 1 || over != 1 {
		t.Errorf("%d fire and %d are over", firing, over)
	}
	if want := time.Date(2024, 5, 1, 10, 1, 0, 0, time.UTC); !n.Since.Equal(want) {
		t.Errorf("since %v", n.Since)
	}
	a := n.Alerts[0]
	if a.Fingerprint != "c1f7a5a2b8c8f0d3" || a.Title != "Queries take longer than 2 s" || a.Labels["instance"] != "db-1:9100" ||
		a.Text != "p99 is 4.2 s on db-1:9100\nRunbook: https://runbooks.example.com/latency" || !strings.HasPrefix(a.URL, "http://prometheus.example.com:9090/graph?") || !a.Ended.IsZero() {
		t.Errorf("the first alert is %+v", a)
	}
	if n.Runbook() != "https://runbooks.example.com/latency" {
		t.Errorf("its runbook is %q", n.Runbook())
	}
	for text, want := range map[string]string{"Runbook: wiki, the page on disks": "", "Runbook: javascript:alert(1)": "", "see\nRunbook: https://x.example/1\nRunbook: https://x.example/2": "https://x.example/1"} {
		if got := (notice.Notice{Text: text}).Runbook(); got != want {
			t.Errorf("the runbook of %q is %q", text, got)
		}
	}
	if b := n.Alerts[1]; b.Status != notice.Resolved || b.Ended.IsZero() {
		t.Errorf("the second alert is %+v", b)
	}
}

func TestGrafanasExampleIsUnderstood(t *testing.T) {
	n := parse(t, notice.Grafana, published(t, notice.Grafana))
	if n.Status != notice.Firing || n.Key != "{}:{}" || n.Title != "High memory usage, High CPU usage" || n.Labels["team"] != "blue" ||
		len(n.Alerts) != 2 || n.URL != "https://play.grafana.org/alerting/1afz29v7z/edit" {
		t.Errorf("the notice is %+v", n)
	}
	if n.Alerts[1].URL != "https://play.grafana.org/d/abc?viewPanel=2" {
		t.Errorf("the panel is %q", n.Alerts[1].URL)
	}
	if n := parse(t, notice.Grafana, []byte(strings.Replace(string(published(t, notice.Grafana)), `[FIRING:2]  (blue)`, `Blue is down`, 1))); n.Title != "Blue is down" {
		t.Errorf("a title of one's own is %q", n.Title)
	}
	other := parse(t, notice.Grafana, []byte(strings.Replace(string(published(t, notice.Grafana)), `"orgId": 1`, `"orgId": 2`, 1)))
	if other.Key == n.Key {
		t.Error("groups of two organisations have one key")
	}
}

// TestAGroupIsNamedAfterWhatFires: what is over comes first in some groups, and many have nothing in common.
func TestAGroupIsNamedAfterWhatFires(t *testing.T) {
	const (
		over   = `{"status":"resolved","labels":{"alertname":"Test alert","instance":"a"},"annotations":{"summary":"failure on a"},"startsAt":"2026-06-17T01:04:00Z","endsAt":"2026-06-17T01:08:28Z","generatorURL":"https://g.example.com/over","fingerprint":"aa"}`
		second = `{"status":"firing","labels":{"alertname":"Second test"},"annotations":{"summary":"Testing"},"startsAt":"2026-06-17T01:03:00Z","generatorURL":"https://g.example.com/second","fingerprint":"bb"}`
		third  = `{"status":"firing","labels":{"alertname":"Third test"},"startsAt":"2026-06-17T01:03:00Z","generatorURL":"https://g.example.com/third","fingerprint":"cc"}`
	)
	for _, c := range []struct {
		source             notice.Source
		alerts, title, url string
	}{
		{notice.Grafana, over + "," + second, "Second test", "https://g.example.com/second"},
		{notice.Grafana, second + "," + third, "Second test, Third test", "https://g.example.com/second"},
		{notice.Alertmanager, over + "," + third, "Third test", "https://g.example.com/third"},
		{notice.Alertmanager, second + "," + third, "Second test, Third test", "https://g.example.com/second"},
	} {
		body := `{"version":"` + map[notice.Source]string{notice.Grafana: "1", notice.Alertmanager: "4"}[c.source] + `","status":"firing","groupKey":"{}:{}","title":"[FIRING:1, RESOLVED:1]  (true)",` +
			`"groupLabels":{},"commonLabels":{},"commonAnnotations":{},"alerts":[` + c.alerts + `]}`
		if n := parse(t, c.source, []byte(body)); n.Title != c.title || n.URL != c.url {
			t.Errorf("%s: %q at %s, not %q at %s", c.source, n.Title, n.URL, c.title, c.url)
		}
	}
}

func TestACustomPayloadOfGrafanaIsNamed(t *testing.T) {
	if _, err := notice.Parse(notice.Grafana, []byte(`{"text":"TestAlert"}`), at); !errors.Is(err, notice.ErrFormat) || !strings.Contains(err.Error(), "has a custom one; remove that") {
		t.Error(err)
	}
}

func TestPagerDutysExampleIsUnderstood(t *testing.T) {
	body := string(published(t, notice.PagerDuty))
	n := parse(t, notice.PagerDuty, []byte(body))
	if n.Key != "PGR0VU2" || n.ID != "01CH0CO4ZOTEBGBJWN5PAAZ9SZ" || n.Title != "A little bump in the road" || n.Status != notice.Firing || n.Change != "" ||
		n.URL != "https://acme.pagerduty.com/incidents/PGR0VU2" || n.Labels["urgency"] != "high" || n.Labels["service"] != "API Service" || n.Labels["priority"] != "P1" {
		t.Errorf("the notice is %+v", n)
	}
	for _, c := range []struct {
		event, change string
		status        notice.Status
	}{
		{"incident.acknowledged", "acknowledged by Tenex Engineer", notice.Firing},
		{"incident.priority_updated", "priority P1", notice.Firing},
		{"incident.reopened", "reopened by Tenex Engineer", notice.Firing},
		{"incident.resolved", "", notice.Resolved},
	} {
		n := parse(t, notice.PagerDuty, []byte(strings.Replace(body, "incident.triggered", c.event, 1)))
		if n.Change != c.change || n.Status != c.status || n.Key != "PGR0VU2" {
			t.Errorf("%s is %+v", c.event, n)
		}
	}
	for _, event := range []string{"pagey.ping", "incident.annotated", "service.updated", "incident.made_up"} {
		if _, err := notice.Parse(notice.PagerDuty, []byte(strings.Replace(body, "incident.triggered", event, 1)), at); !errors.Is(err, notice.ErrIgnored) {
			t.Errorf("%s: %v, want ErrIgnored", event, err)
		}
	}
}

func TestOurOwnFormatIsUnderstood(t *testing.T) {
	n := parse(t, notice.Generic, published(t, notice.Generic))
	if n.Key != "backup-db1" || n.Title != "The backup of db1 failed" || n.Labels["team"] != "db" || n.URL == "" || !strings.Contains(n.Text, "\nexit code 1") {
		t.Errorf("the notice is %+v", n)
	}
	if n := parse(t, notice.Generic, []byte(`{"title": " disk  full "}`)); n.Key != "disk full" || n.Status != notice.Firing {
		t.Errorf("the shortest notice is %+v", n)
	}
	n, err := notice.ParseText([]byte("\n disk full on web-1 \r\n/var 100%\n"), at)
	if err != nil || n.Key != "disk full on web-1" || n.Title != n.Key || n.Text != "/var 100%" || n.Source != notice.Generic || n.Status != notice.Firing {
		t.Errorf("the plain text is %+v, %v", n, err)
	}
}

func TestWhatIsNoNoticeIsRefusedWithoutQuotingIt(t *testing.T) {
	for _, c := range []struct {
		rule   string
		source notice.Source
		body   string
	}{
		{"no JSON", notice.Alertmanager, "secret-word"},
		{"an array", notice.Alertmanager, `["secret-word"]`},
		{"another version", notice.Alertmanager, `{"version": "3", "status": "firing", "groupKey": "secret-word"}`},
		{"no status", notice.Alertmanager, `{"version": "4", "groupKey": "secret-word"}`},
		{"an alert without a status", notice.Alertmanager, `{"version": "4", "status": "firing", "groupKey": "a", "alerts": [{"status": "secret-word"}]}`},
		{"neither key nor labels", notice.Grafana, `{"status": "firing", "title": "secret-word"}`},
		{"a number for a label", notice.Grafana, `{"status": "firing", "commonLabels": {"a": 1}, "title": "secret-word"}`},
		{"a time that is none", notice.Grafana, `{"status": "firing", "groupKey": "a", "alerts": [{"status": "firing", "startsAt": "secret-word"}]}`},
		{"an event without a kind", notice.PagerDuty, `{"messages": [{"secret-word": 1}]}`},
		{"an incident without an id", notice.PagerDuty, `{"event": {"event_type": "incident.triggered", "data": {"title": "secret-word"}}}`},
		{"no title", notice.Generic, `{"text": "secret-word"}`},
		{"another status", notice.Generic, `{"title": "a", "status": "secret-word"}`},
		{"an unknown source", "other", `{"title": "secret-word"}`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			n, err := notice.Parse(c.source, []byte(c.body), at)
			if !errors.Is(err, notice.ErrFormat) || strings.Contains(fmt.Sprint(err), "secret-word") {
				t.Errorf("it gave %+v, %v", n, err)
			}
		})
	}
	if _, err := notice.ParseText([]byte(" \n\t"), at); !errors.Is(err, notice.ErrFormat) {
		t.Errorf("an empty text gave %v", err)
	}
	for _, s := range notice.Sources() {
		if _, err := notice.Parse(s, []byte(strings.Repeat(" ", notice.MaxBody+1)), at); !errors.Is(err, notice.ErrFormat) {
			t.Errorf("a body that is too long gave %v", err)
		}
	}
}

func TestOnlyAddressesOfTheWebAreKept(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example/x?y=1#z": "https://a.example/x?y=1#z", "javascript:alert(1)": "", "//a.example": "", "file:///etc/passwd": "",
		"https://": "", "https://user:pw@a.example/": "", "https://a.example/a b": "https://a.example/a%20b", "https://a.example/" + strings.Repeat("a", 3000): "", "": "",
	} {
		body, _ := json.Marshal(map[string]string{"title": "a", "url": in})
		if got := parse(t, notice.Generic, body).URL; got != want {
			t.Errorf("%.40q became %q, want %q", in, got, want)
		}
	}
}

func TestTheShapeChangesWithWhatFiresOnly(t *testing.T) {
	body := string(published(t, notice.Alertmanager))
	n := parse(t, notice.Alertmanager, []byte(body))
	later, _ := notice.Parse(notice.Alertmanager, []byte(strings.Replace(body, "10:05:00Z", "10:09:00Z", 1)), at.Add(time.Hour))
	if n.Shape() != later.Shape() || n.Hash() != later.Hash() {
		t.Error("a repetition has another shape")
	}
	both := parse(t, notice.Alertmanager, []byte(strings.Replace(body, `"status": "resolved"`, `"status": "firing"`, 1)))
	if n.Shape() == both.Shape() || n.Hash() != both.Hash() {
		t.Error("another alert fires and the shape is the same")
	}
}

func TestAManyAlertsKeepTheFiringOnes(t *testing.T) {
	var list []string
	for i := range 250 {
		status := "resolved"
		if i >= 200 {
			status = "firing"
		}
		list = append(list, fmt.Sprintf(`{"status": %q, "labels": {"i": "%d"}}`, status, i))
	}
	n := parse(t, notice.Alertmanager, []byte(`{"version": "4", "status": "firing", "groupKey": "a", "truncatedAlerts": 5, "alerts": [`+strings.Join(list, ",")+`]}`))
	if firing, over := n.Counts(); firing != 50 || over != 50 || n.More != 155 {
		t.Errorf("%d fire, %d are over, %d more", firing, over, n.More)
	}
}

// checkBounds says what a notice breaks of what it promises.
func checkBounds(t *testing.T, n notice.Notice) {
	t.Helper()
	text := func(what, s string, limit int, line bool) {
		if len(s) > limit || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
			return r == 0x7f || r < ' ' && (line || r != '\n' && r != '\t')
		}) {
			t.Errorf("%s has %d bytes: %.80q", what, len(s), s)
		}
	}
	set := func(l map[string]string) {
		if len(l) > notice.MaxLabels {
			t.Errorf("%d labels", len(l))
		}
		for k, v := range l {
			text("a label", k, notice.MaxName, true)
			text("a value", v, notice.MaxValue, true)
		}
	}
	text("the key", n.Key, notice.MaxKey, false)
	text("the title", n.Title, notice.MaxTitle, true)
	text("the change", n.Change, notice.MaxTitle, true)
	text("the text", n.Text, notice.MaxText, false)
	text("the address", n.URL, notice.MaxURL, true)
	set(n.Labels)
	if n.Key == "" || n.Title == "" || n.Status != notice.Firing && n.Status != notice.Resolved || len(n.Alerts) > notice.MaxAlerts || n.More < 0 {
		t.Errorf("the notice is %.200q", fmt.Sprintf("%+v", n))
	}
	for _, a := range n.Alerts {
		text("an alert's fingerprint", a.Fingerprint, 64, true)
		text("an alert's title", a.Title, notice.MaxTitle, true)
		text("an alert's text", a.Text, notice.MaxText, false)
		text("an alert's address", a.URL, notice.MaxURL, true)
		set(a.Labels)
		if a.Fingerprint == "" {
			t.Error("an alert has no fingerprint")
		}
	}
	if _, err := json.Marshal(n); err != nil {
		t.Errorf("it does not encode: %v", err)
	}
}

func fuzz(f *testing.F, s notice.Source) {
	f.Helper()
	f.Add(published(f, s))
	f.Add([]byte(`{"version":"4","status":"firing","groupKey":"\u0000\ud800","alerts":[{"status":"firing","labels":{"a\nb":"\u202e"}}],"title":"x","url":"http://[::1"}`))
	f.Add([]byte(`{"event":{"event_type":"incident.triggered","data":{"id":"\t"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := notice.Parse(s, body, at)
		if err != nil {
			if !errors.Is(err, notice.ErrFormat) && !errors.Is(err, notice.ErrIgnored) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		checkBounds(t, n)
		if again, err := notice.Parse(s, body, at); err != nil || again.Shape() != n.Shape() || again.Hash() != n.Hash() {
			t.Errorf("the same body is another notice: %v", err)
		}
	})
}

func FuzzAlertmanager(f *testing.F) { fuzz(f, notice.Alertmanager) }
func FuzzGrafana(f *testing.F)      { fuzz(f, notice.Grafana) }
func FuzzPagerDuty(f *testing.F)    { fuzz(f, notice.PagerDuty) }
func FuzzGeneric(f *testing.F)      { fuzz(f, notice.Generic) }

func FuzzText(f *testing.F) {
	f.Add([]byte("disk full\nmore"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if n, err := notice.ParseText(body, at); err == nil {
			checkBounds(t, n)
		}
	})
}
