package hook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/alerts/hook"
	"countersign/alerts/notice"
	"countersign/internal/redact"
)

const secret = "correct-horse-battery-staple"

var now = time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)

// bodies are the smallest that each source sends.
var bodies = map[notice.Source]string{
	notice.Alertmanager: `{"version": "4", "status": "firing", "groupKey": "private-word"}`,
	notice.Grafana:      `{"status": "firing", "groupKey": "private-word"}`,
	notice.PagerDuty:    `{"event": {"event_type": "incident.triggered", "data": {"id": "private-word"}}}`,
	notice.Generic:      `{"title": "private-word"}`,
}

type rig struct {
	t   *testing.T
	url string
	log bytes.Buffer

	mu     sync.Mutex
	now    time.Time
	fail   error
	stored []notice.Notice
}

func newRig(t *testing.T, sources ...notice.Source) *rig {
	t.Helper()
	return newRigWith(t, nil, sources...)
}

func newRigWith(t *testing.T, untimed map[notice.Source]bool, sources ...notice.Source) *rig {
	t.Helper()
	r := &rig{t: t, now: now}
	secrets := map[notice.Source]redact.Secret{}
	for _, s := range sources {
		secrets[s] = secret
	}
	h, err := hook.New(hook.Config{
		Secrets: secrets, Untimed: untimed, Log: slog.New(slog.NewTextHandler(&locked{w: &r.log}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now },
		Accept: func(_ context.Context, n notice.Notice) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fail != nil {
				return r.fail
			}
			r.stored = append(r.stored, n)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.Close()
		if log := r.log.String(); strings.Contains(log, secret) || strings.Contains(log, "private-word") {
			t.Errorf("the log has what it must not have: %s", log)
		}
	})
	r.url = srv.URL
	return r
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// send posts a body with headers, "name: value" each.
func (r *rig) send(s notice.Source, body string, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+hook.Path+string(s), strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, secret) || strings.Contains(s, "private-word") || strings.Count(s, "\n") != 1 {
		r.t.Errorf("the answer is %q", s)
	}
	return resp
}

func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.stored)
}

func sign(key, text string) string {
	m := hmac.New(sha256.New, []byte(key))
	_, _ = io.WriteString(m, text)
	return hex.EncodeToString(m.Sum(nil))
}

func TestOnlyTheHoldersOfTheSecretAreHeard(t *testing.T) {
	am, gr, pd, ge := notice.Alertmanager, notice.Grafana, notice.PagerDuty, notice.Generic
	stamp := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	signed := func(d time.Duration) []string {
		return []string{"X-Grafana-Alerting-Signature: " + sign(secret, stamp(d)+":"+bodies[gr]), "X-Grafana-Alerting-Signature-Timestamp: " + stamp(d)}
	}
	own := func(d time.Duration) []string {
		return []string{"X-Countersign-Signature: v1=" + sign(secret, "v1:"+stamp(d)+":"+bodies[ge]), "X-Countersign-Timestamp: " + stamp(d)}
	}
	basic := func(password string) string {
		req, _ := http.NewRequest(http.MethodPost, "http://x", nil)
		req.SetBasicAuth("anybody", password)
		return "Authorization: " + req.Header.Get("Authorization")
	}
	for _, c := range []struct {
		rule    string
		source  notice.Source
		headers []string
		want    int
	}{
		{"nothing", am, nil, 401},
		{"a bearer token", am, []string{"Authorization: Bearer " + secret}, 202},
		{"a bearer token in other letters", am, []string{"Authorization: bearer " + secret}, 202},
		{"another bearer token", am, []string{"Authorization: Bearer " + secret + "x"}, 401},
		{"an empty bearer token", am, []string{"Authorization: Bearer "}, 401},
		{"the beginning of the token", am, []string{"Authorization: Bearer " + secret[:len(secret)-1]}, 401},
		{"another scheme", am, []string{"Authorization: Token " + secret}, 401},
		{"the password", am, []string{basic(secret)}, 202},
		{"another password", am, []string{basic("wrong")}, 401},
		{"an empty password", am, []string{basic("")}, 401},
		{"the header of our own", am, []string{"X-Countersign-Token: " + secret}, 202},
		{"another value of it", am, []string{"X-Countersign-Token: wrong"}, 401},
		{"a signature where nobody signs", am, []string{"X-Countersign-Signature: sha256=" + sign(secret, bodies[am])}, 401},

		{"Grafana with the token", gr, []string{"Authorization: Bearer " + secret}, 202},
		{"Grafana's signature without a time", gr, []string{"X-Grafana-Alerting-Signature: " + sign(secret, bodies[gr])}, 401},
		{"Grafana's signature by another secret", gr, []string{"X-Grafana-Alerting-Signature: " + sign("wrong", bodies[gr])}, 401},
		{"Grafana's signature of another body", gr, []string{"X-Grafana-Alerting-Signature: " + sign(secret, "other")}, 401},
		{"a wrong signature is not mended by the token", gr, []string{"X-Grafana-Alerting-Signature: 00", "Authorization: Bearer " + secret}, 401},
		{"no hex", gr, []string{"X-Grafana-Alerting-Signature: zz"}, 401},
		{"Grafana's signature with its time", gr, signed(-time.Minute), 202},
		{"an old time", gr, signed(-6 * time.Minute), 401},
		{"a time to come", gr, signed(6 * time.Minute), 401},
		{"the time taken away", gr, signed(0)[:1], 401},
		{"a time that was not signed", gr, []string{"X-Grafana-Alerting-Signature: " + sign(secret, bodies[gr]), "X-Grafana-Alerting-Signature-Timestamp: " + stamp(0)}, 401},
		{"a time that is none", gr, []string{"X-Grafana-Alerting-Signature: " + sign(secret, "x:"+bodies[gr]), "X-Grafana-Alerting-Signature-Timestamp: x"}, 401},

		{"PagerDuty's signature", pd, []string{"X-PagerDuty-Signature: v1=" + sign(secret, bodies[pd])}, 202},
		{"one of PagerDuty's signatures", pd, []string{"X-PagerDuty-Signature: v1=" + sign("old", bodies[pd]) + ", v1=" + sign(secret, bodies[pd])}, 202},
		{"PagerDuty's signatures by other secrets", pd, []string{"X-PagerDuty-Signature: v1=" + sign("old", bodies[pd]) + ",v1=" + sign("older", bodies[pd])}, 401},
		{"another version of the signature", pd, []string{"X-PagerDuty-Signature: v0=" + sign(secret, bodies[pd])}, 401},
		{"PagerDuty without a signature", pd, []string{"Authorization: Bearer " + secret}, 401},

		{"our own signature with its time", ge, own(0), 202},
		{"our own signature, a while ago", ge, own(-5 * time.Minute), 202},
		{"our own signature with an old time", ge, own(-5*time.Minute - time.Second), 401},
		{"our own signature with a time to come", ge, own(6 * time.Minute), 401},
		{"our own signature, its time taken away", ge, own(0)[:1], 401},
		{"our own signature with another time", ge, []string{own(0)[0], "X-Countersign-Timestamp: " + stamp(time.Second)}, 401},
		{"our own signature of another body", ge, []string{"X-Countersign-Signature: v1=" + sign(secret, "v1:"+stamp(0)+":x"), own(0)[1]}, 401},
		{"our own signature by another secret", ge, []string{"X-Countersign-Signature: v1=" + sign("wrong", "v1:"+stamp(0)+":"+bodies[ge]), own(0)[1]}, 401},
		{"our own signature in Grafana's form", ge, []string{"X-Countersign-Signature: v1=" + sign(secret, stamp(0)+":"+bodies[ge]), own(0)[1]}, 401},
		{"our own signature with no number", ge, []string{"X-Countersign-Signature: v1=" + sign(secret, "v1:none:"+bodies[ge]), "X-Countersign-Timestamp: none"}, 401},
		{"our own signature of no time", ge, []string{"X-Countersign-Signature: v1=" + sign(secret, "v1::"+bodies[ge])}, 401},
		{"our own signature of the body alone", ge, []string{"X-Countersign-Signature: sha256=" + sign(secret, bodies[ge])}, 401},
		{"the same with a time that was not signed", ge, []string{"X-Countersign-Signature: sha256=" + sign(secret, bodies[ge]), own(0)[1]}, 401},
		{"our own signature without its prefix", ge, []string{"X-Countersign-Signature: " + sign(secret, bodies[ge])}, 401},
		{"a signature is not mended by the token", ge, []string{"X-Countersign-Signature: v1=00", "X-Countersign-Token: " + secret}, 401},
		{"the token for the format of our own", ge, []string{"X-Countersign-Token: " + secret}, 202},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := newRig(t, c.source)
			if got := r.send(c.source, bodies[c.source], c.headers...).StatusCode; got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
			if got := r.count(); (got == 1) != (c.want == 202) {
				t.Errorf("%d notices were stored", got)
			}
		})
	}
}

func TestASignatureWithoutATimeIsTakenOnlyWhereThatIsAllowed(t *testing.T) {
	ge, gr := notice.Generic, notice.Grafana
	old := map[notice.Source][]string{
		ge: {"X-Countersign-Signature: sha256=" + sign(secret, bodies[ge])},
		gr: {"X-Grafana-Alerting-Signature: " + sign(secret, bodies[gr])},
	}
	for s, headers := range old {
		r := newRigWith(t, map[notice.Source]bool{s: true}, ge, gr)
		for other, h := range old {
			want := 401
			if other == s {
				want = 202
			}
			if got := r.send(other, bodies[other], h...).StatusCode; got != want {
				t.Errorf("%s is allowed, %s: status %d, want %d", s, other, got, want)
			}
		}
		if got := r.send(s, bodies[s], headers...).StatusCode; got != 202 || r.stored[0].ID != "" || r.stored[1].ID != "" {
			t.Errorf("%s: the same alert again is news: %d %+v", s, got, r.stored)
		}
		if got := r.send(s, bodies[s]+" ", headers...).StatusCode; got != 401 {
			t.Errorf("%s: another body: status %d", s, got)
		}
	}
	for _, s := range []notice.Source{notice.PagerDuty, notice.Alertmanager} {
		_, err := hook.New(hook.Config{Untimed: map[notice.Source]bool{s: true}, Accept: func(context.Context, notice.Notice) error { return nil }})
		if err == nil || !strings.Contains(err.Error(), "signs no time") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestASignatureCountsOnce: who makes notices durable makes those of one ID so once.
func TestASignatureCountsOnce(t *testing.T) {
	ge, pd := notice.Generic, notice.PagerDuty
	r := newRig(t, ge, pd)
	send := func(body string, at time.Time) string {
		t.Helper()
		stamp := strconv.FormatInt(at.Unix(), 10)
		headers := []string{"X-Countersign-Signature: v1=" + sign(secret, "v1:"+stamp+":"+body), "X-Countersign-Timestamp: " + stamp}
		if got := r.send(ge, body, headers...).StatusCode; got != 202 {
			t.Fatalf("status %d", got)
		}
		return r.stored[len(r.stored)-1].ID
	}
	first := send(bodies[ge], now)
	if first == "" || len(first) > notice.MaxKey || send(bodies[ge], now) != first {
		t.Errorf("the same request has another id than %q", first)
	}
	if send(bodies[ge], now.Add(time.Second)) == first || send(bodies[ge]+" ", now) == first {
		t.Error("another request has the same id")
	}
	if got := send(`{"title": "private-word", "id": "mine"}`, now); got != "mine" {
		t.Errorf("the sender's own id became %q", got)
	}
	if r.send(ge, bodies[ge], "X-Countersign-Token: "+secret); r.stored[len(r.stored)-1].ID != "" {
		t.Error("what is not signed is news each time")
	}
	if r.send(pd, bodies[pd], "X-PagerDuty-Signature: v1="+sign(secret, bodies[pd])); r.stored[len(r.stored)-1].ID == "" {
		t.Error("an event without an id counts each time")
	}
}

func TestOldEventsOfPagerDutyAreNotTaken(t *testing.T) {
	r := newRig(t, notice.PagerDuty)
	for age, want := range map[time.Duration]int{0: 202, 47 * time.Hour: 202, 6 * 24 * time.Hour: 202, 6*24*time.Hour + time.Second: 401, 9000 * time.Hour: 401} {
		body := fmt.Sprintf(`{"event": {"event_type": "incident.triggered", "occurred_at": %q, "data": {"id": "private-word"}}}`, now.Add(-age).Format(time.RFC3339))
		if got := r.send(notice.PagerDuty, body, "X-PagerDuty-Signature: v1="+sign(secret, body)).StatusCode; got != want {
			t.Errorf("%s ago: status %d, want %d", age, got, want)
		}
	}
}

func TestASecretInTheAddressIsNone(t *testing.T) {
	r := newRig(t, notice.Alertmanager)
	for _, q := range []string{"?token=", "?secret=", "?access_token="} {
		if got := r.send(notice.Source("alertmanager"+q+secret), bodies[notice.Alertmanager]).StatusCode; got != 401 {
			t.Errorf("status %d", got)
		}
	}
}

func TestWithoutASecretThereIsNoHook(t *testing.T) {
	r := newRig(t, notice.Grafana)
	for _, s := range []notice.Source{notice.Alertmanager, notice.PagerDuty, notice.Generic, "", "other", "grafana/", "grafana/x"} {
		if got := r.send(s, bodies[notice.Alertmanager], "Authorization: Bearer "+secret).StatusCode; got != 404 {
			t.Errorf("%q: status %d", s, got)
		}
	}
	for what, weak := range map[string]redact.Secret{"an empty secret": "", "a short secret": "0123456789abcde"} {
		if _, err := hook.New(hook.Config{Secrets: map[notice.Source]redact.Secret{notice.Grafana: weak}, Accept: func(context.Context, notice.Notice) error { return nil }}); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func TestEachRefusalHasItsStatus(t *testing.T) {
	token := "X-Countersign-Token: " + secret
	for _, c := range []struct {
		rule    string
		source  notice.Source
		body    string
		headers []string
		want    int
	}{
		{"a form", notice.Alertmanager, bodies[notice.Alertmanager], []string{token, "Content-Type: application/x-www-form-urlencoded"}, 415},
		{"no type", notice.Alertmanager, bodies[notice.Alertmanager], []string{token, "Content-Type: "}, 415},
		{"a compressed body", notice.Alertmanager, bodies[notice.Alertmanager], []string{token, "Content-Encoding: gzip"}, 415},
		{"a type made of JSON", notice.Alertmanager, bodies[notice.Alertmanager], []string{token, "Content-Type: application/x+json; charset=utf-8"}, 202},
		{"plain text", notice.Generic, "private-word\nmore", []string{token, "Content-Type: text/plain; charset=utf-8"}, 202},
		{"plain text where JSON is due", notice.Grafana, "private-word", []string{token, "Content-Type: text/plain"}, 415},
		{"a megabyte", notice.Generic, `{"title": "private-word"}` + strings.Repeat(" ", notice.MaxBody-25), []string{token}, 202},
		{"more than a megabyte", notice.Generic, `{"title": "private-word"}` + strings.Repeat(" ", notice.MaxBody-24), []string{token}, 413},
		{"no JSON", notice.Generic, "private-word", []string{token}, 422},
		{"another format", notice.Alertmanager, `{"version": "5", "groupKey": "private-word"}`, []string{token}, 422},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := newRig(t, c.source)
			if got := r.send(c.source, c.body, c.headers...).StatusCode; got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
			if got := r.count(); (got == 1) != (c.want == 202) {
				t.Errorf("%d notices were stored", got)
			}
		})
	}
	t.Run("a GET", func(t *testing.T) {
		r := newRig(t, notice.Generic)
		resp, err := http.Get(r.url + hook.Path + "generic")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Run("what concerns no alert is taken and stored nowhere", func(t *testing.T) {
		r := newRig(t, notice.PagerDuty)
		const ping = `{"event": {"event_type": "pagey.ping", "data": {"message": "private-word"}}}`
		if got := r.send(notice.PagerDuty, ping, "X-PagerDuty-Signature: v1="+sign(secret, ping)).StatusCode; got != 202 || r.count() != 0 {
			t.Errorf("status %d, %d stored", got, r.count())
		}
	})
}

func TestWhatIsNotDurableIsNotAcknowledged(t *testing.T) {
	r := newRig(t, notice.Generic)
	r.fail = errors.New("the store is away")
	resp := r.send(notice.Generic, bodies[notice.Generic], "X-Countersign-Token: "+secret)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
}

func TestAFloodIsHeldBackForEachSourceByItself(t *testing.T) {
	r := newRig(t, notice.Generic, notice.Alertmanager)
	token := "X-Countersign-Token: " + secret
	for i := range 100 {
		if got := r.send(notice.Generic, bodies[notice.Generic], token).StatusCode; got != 202 {
			t.Fatalf("number %d: status %d", i, got)
		}
	}
	resp := r.send(notice.Generic, bodies[notice.Generic], token)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if got := r.send(notice.Alertmanager, bodies[notice.Alertmanager], token).StatusCode; got != 202 {
		t.Errorf("another source: status %d", got)
	}
	r.mu.Lock()
	r.now = r.now.Add(time.Second)
	r.mu.Unlock()
	for i := range 21 {
		if got, want := r.send(notice.Generic, bodies[notice.Generic], token).StatusCode, 202+227*(i/20); got != want {
			t.Errorf("a second later, number %d: status %d, want %d", i, got, want)
		}
	}
}

// Alertmanager gives up what is refused with a 429.
func TestAFloodOfAlertmanagersIsAskedToComeAgain(t *testing.T) {
	r := newRig(t, notice.Alertmanager)
	for i := range 101 {
		resp := r.send(notice.Alertmanager, bodies[notice.Alertmanager], "X-Countersign-Token: "+secret)
		if want := 202 + 301*(i/100); resp.StatusCode != want || (want == 503) != (resp.Header.Get("Retry-After") == "1") {
			t.Fatalf("number %d: status %d", i, resp.StatusCode)
		}
	}
}

func TestStrangersUseNothingUp(t *testing.T) {
	r := newRig(t, notice.PagerDuty)
	for range 150 {
		if got := r.send(notice.PagerDuty, bodies[notice.PagerDuty], "X-PagerDuty-Signature: v1=00").StatusCode; got != 401 {
			t.Fatalf("status %d", got)
		}
	}
	if got := r.send(notice.PagerDuty, bodies[notice.PagerDuty], "X-PagerDuty-Signature: v1="+sign(secret, bodies[notice.PagerDuty])).StatusCode; got != 202 {
		t.Errorf("status %d", got)
	}
}

func TestNoHeaderWithoutTheSecretOpensAHook(t *testing.T) {
	h, err := hook.New(hook.Config{
		Secrets: map[notice.Source]redact.Secret{notice.Alertmanager: secret, notice.Grafana: secret, notice.PagerDuty: secret, notice.Generic: secret},
		Accept:  func(context.Context, notice.Notice) error { return errors.New("it was let in") },
	})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"Authorization", "X-Countersign-Token", "X-Countersign-Signature", "X-Grafana-Alerting-Signature",
		"X-Grafana-Alerting-Signature-Timestamp", "X-PagerDuty-Signature", "X-Countersign-Timestamp",
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(notice.Sources()).Draw(t, "source")
		req := httptest.NewRequest(http.MethodPost, hook.Path+string(s), strings.NewReader(bodies[s]))
		req.Header.Set("Content-Type", "application/json")
		for _, name := range names {
			if rapid.Bool().Draw(t, name) {
				req.Header.Set(name, rapid.SampledFrom([]string{"", "Bearer ", "Basic ", "v1=", "sha256=", "Bearer null", fmt.Sprint(now.Unix())}).Draw(t, "prefix")+rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(t, "value"))
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != http.StatusUnauthorized {
			t.Fatalf("status %d with %v", w.Code, req.Header)
		}
	})
}

// TestStrangersShutNobodyOut: connections that say that they are signed and send nothing, or a little, take no place from who has
// the secret, nor from others who send something whole.
func TestStrangersShutNobodyOut(t *testing.T) {
	h, err := hook.New(hook.Config{
		Secrets: map[notice.Source]redact.Secret{notice.Alertmanager: secret, notice.Grafana: secret},
		Accept:  func(context.Context, notice.Notice) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	for n := range 40 {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		body := ""
		if n%2 == 0 {
			body = strings.Repeat(" ", 70<<10) // more than is read without a place
		}
		_, err = fmt.Fprintf(c, "POST %sgrafana HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Grafana-Alerting-Signature: 00\r\nX-Grafana-Alerting-Signature-Timestamp: 1\r\nContent-Length: 900000\r\n\r\n%s", hook.Path, body)
		if err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Replace(bodies[notice.Alertmanager], "{", "{"+strings.Repeat(" ", 100<<10), 1)
	at := strconv.FormatInt(time.Now().Unix(), 10)
	for _, sent := range []struct {
		source notice.Source
		body   string
		header map[string]string
	}{
		{notice.Alertmanager, bodies[notice.Alertmanager], map[string]string{"X-Countersign-Token": secret}},
		{notice.Alertmanager, long, map[string]string{"X-Countersign-Token": secret}},
		{notice.Grafana, bodies[notice.Grafana], map[string]string{"X-Grafana-Alerting-Signature": sign(secret, at+":"+bodies[notice.Grafana]), "X-Grafana-Alerting-Signature-Timestamp": at}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+hook.Path+string(sent.source), strings.NewReader(sent.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for name, value := range sent.header {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			t.Errorf("an alert of %s with %d bytes: %s", sent.source, len(sent.body), res.Status)
		}
	}
}

// TestBehindAProxyEachSenderHasPlacesOfTheirOwn: who fills up theirs shuts out nobody else.
func TestBehindAProxyEachSenderHasPlacesOfTheirOwn(t *testing.T) {
	h, err := hook.New(hook.Config{
		Secrets: map[notice.Source]redact.Secret{notice.Grafana: secret}, Accept: func(context.Context, notice.Notice) error { return nil },
		Address: func(r *http.Request) string { return r.Header.Get("X-Forwarded-For") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(from string, body io.Reader) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, hook.Path+"grafana", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Grafana-Alerting-Signature", "00")
		r.Header.Set("X-Grafana-Alerting-Signature-Timestamp", "1")
		r.Header.Set("X-Forwarded-For", from)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	long := strings.Repeat(" ", 100<<10)
	var ends sync.WaitGroup
	defer ends.Wait() // once all are closed
	for range 4 {
		slow, in := io.Pipe()
		ends.Go(func() { ask("198.51.100.1", slow) })
		defer func() { _ = in.Close() }()
		if _, err := in.Write([]byte(long)); err != nil { // more than is read without a place
			t.Fatal(err)
		}
	}
	if got := ask("198.51.100.1", strings.NewReader(long)); got != http.StatusServiceUnavailable {
		t.Errorf("one more of the same: %d", got)
	}
	if got := ask("198.51.100.2", strings.NewReader(long)); got == http.StatusServiceUnavailable {
		t.Error("another sender is shut out")
	}
}
