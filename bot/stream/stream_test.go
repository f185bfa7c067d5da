package stream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/mem"
)

// schema is what testdata has of the published schema: ocsf-schema v1.8.0, compiled by ocsf-schema-compiler,
// of that the two classes and the objects that events have, without profiles.
type schema struct {
	Classes map[string]struct {
		Category int `json:"category"`
		kind
	} `json:"classes"`
	Objects map[string]kind `json:"objects"`
}

type kind struct {
	Attributes map[string]struct {
		Type, Object    string
		Array, Required bool
		Enum            []string
	} `json:"attributes"`
	Constraints map[string][]string `json:"constraints"`
}

func readSchema(t *testing.T) (s schema) {
	t.Helper()
	raw, err := os.ReadFile("testdata/ocsf-1.8.0.json")
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check returns what is wrong with an event.
func (s schema) check(raw []byte) (wrong []string) {
	var e map[string]any
	if err := json.Unmarshal(raw, &e); err != nil {
		return []string{err.Error()}
	}
	class, ok := s.Classes[fmt.Sprint(e["class_uid"])]
	if !ok {
		return []string{fmt.Sprintf("there is no class %v", e["class_uid"])}
	}
	if e["category_uid"] != float64(class.Category) || e["type_uid"] != 100*e["class_uid"].(float64)+e["activity_id"].(float64) {
		wrong = append(wrong, fmt.Sprintf("category %v, type %v", e["category_uid"], e["type_uid"]))
	}
	return append(wrong, s.object("", class.kind, e)...)
}

func (s schema) object(at string, k kind, o map[string]any) (wrong []string) {
	say := func(format string, a ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, a...)) }
	for name, v := range o {
		a, ok := k.Attributes[name]
		if !ok {
			say("%s is not in the schema", name)
			continue
		}
		values := []any{v}
		if a.Array {
			if values, ok = v.([]any); !ok {
				say("%s is no array", name)
			}
		}
		for _, v := range values {
			switch x := v.(type) {
			case map[string]any:
				if a.Type != "object_t" {
					say("%s is an object", name)
				} else if a.Object != "object" {
					wrong = append(wrong, s.object(at+"/"+name, s.Objects[a.Object], x)...)
				}
			case string:
				if !slices.Contains([]string{"string_t", "username_t", "file_name_t", "hostname_t", "uuid_t"}, a.Type) {
					say("%s is a string, not %s", name, a.Type)
				}
			case float64:
				if !slices.Contains([]string{"integer_t", "long_t", "timestamp_t"}, a.Type) || x != float64(int64(x)) {
					say("%s is a number, not %s", name, a.Type)
				}
				if len(a.Enum) > 0 && !slices.Contains(a.Enum, strconv.Itoa(int(x))) {
					say("%s can't be %v", name, x)
				}
			default:
				say("%s is %T", name, v)
			}
		}
	}
	for name, a := range k.Attributes {
		if _, has := o[name]; a.Required && !has {
			say("%s is missing", name)
		}
	}
	has := func(n string) bool { _, ok := o[n]; return ok }
	if one := k.Constraints["at_least_one"]; len(one) > 0 && !slices.ContainsFunc(one, has) {
		say("it needs one of %s", one)
	}
	return wrong
}

func TestEventsFollowThePublishedSchema(t *testing.T) {
	s, at := readSchema(t), time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, what := range append(audit.Known(), "signed in") {
		for _, e := range []audit.Event{
			{What: what},
			{What: what, Approval: "r1", Call: "c1", Digest: "ab", Tool: "run_shell", Kind: "shell", Target: "web-1", Level: "high", Effects: []string{"service"}, Rule: "default",
				Policy: "cd", User: "slack:T1:U2", Groups: []string{"oncall"}, Via: "button", Command: "systemctl restart app", CommandSHA256: "ef", Outcome: "exit code 0", Note: "go"},
			{What: what, Approval: "r1", Kind: "change", Target: "web-1", Level: "nonsense", User: "web:bob"},
		} {
			raw, err := json.Marshal(Of("web:t", e, at, "msg_1", "1.2.3"))
			if err != nil {
				t.Fatal(err)
			}
			if wrong := s.check(raw); len(wrong) > 0 {
				t.Errorf("%s: %s\n%s", what, strings.Join(wrong, "; "), raw)
			}
		}
	}
	if wrong := s.check([]byte(`{"class_uid": 6003, "category_uid": 6, "activity_id": 7, "type_uid": 600307, "time": "now", "extra": 1}`)); len(wrong) < 8 {
		t.Errorf("the check lets pass: %s", wrong)
	}
}

// told is a stream with these sinks and three events.
func told(t *testing.T, log io.Writer, sinks ...Sink) *Stream {
	t.Helper()
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	s := New(Config{DB: db, Sinks: sinks, Version: "1", Host: "bot one", Every: time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil)), Now: time.Now})
	for i, what := range []string{audit.Asked, audit.Approved, audit.Done} {
		if err := db.Update(t.Context(), func(tx store.Tx) error {
			s.Tell(tx, "web:t", audit.Event{What: what, Approval: "r1", Kind: "shell", Target: "web-1", Level: "high", Command: "a\nb", User: "web:bob"}, time.Now().Add(time.Duration(i)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// runs runs a stream until everything is taken.
func runs(t *testing.T, s *Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	for ctx.Err() == nil {
		lag, err := s.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waits := false
		for _, l := range lag {
			waits = waits || l > 0
		}
		if !waits {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Error("it is not taken")
		}
	}
	cancel()
	<-ended
}

func TestAFileGetsALineForEachEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	runs(t, told(t, io.Discard, Sink{File: path}))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
	if len(lines) != 3 {
		t.Fatalf("%s", raw)
	}
	for _, l := range lines {
		if wrong := readSchema(t).check(l); len(wrong) > 0 {
			t.Errorf("%s: %s", wrong, l)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// A collector that fails in each way gets everything once it works, in order, and the log has one line about it.
func TestACollectorGetsEverythingOnceItWorks(t *testing.T) {
	var mu sync.Mutex
	answers := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusUnauthorized, http.StatusFound, http.StatusOK}
	var got []string
	valid := "Bearer s3cret"
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Header.Get("Authorization") != valid || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v", r.Header)
		}
		var logs collogs.ExportLogsServiceRequest
		if err := protojson.Unmarshal(raw, &logs); err != nil {
			t.Errorf("%v: %s", err, raw)
		}
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		if answer == http.StatusUnauthorized { // the token in its file is another one by now
			valid = "Bearer s3cret2"
		}
		if answer == http.StatusOK {
			for _, rec := range logs.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords() {
				body := rec.GetBody().GetStringValue()
				if wrong := readSchema(t).check([]byte(body)); len(wrong) > 0 || rec.GetTimeUnixNano() == 0 || rec.GetSeverityNumber() != 17 {
					t.Errorf("%s: %s", wrong, body)
				}
				var e Event
				if err := json.Unmarshal([]byte(body), &e); err != nil {
					t.Error(err)
				}
				got = append(got, e.Message)
			}
		}
		w.WriteHeader(answer)
	}))
	defer srv.Close()
	var log bytes.Buffer
	headers := func() map[string]redact.Secret {
		mu.Lock()
		defer mu.Unlock()
		return map[string]redact.Secret{"Authorization": redact.Secret(valid)}
	}
	s := told(t, &log, Sink{Collector: srv.URL + "/v1/logs", Headers: headers, TLS: trusts(srv)})
	runs(t, s)
	if want := []string{"request r1 asked by web:bob on web-1", "request r1 approved by web:bob on web-1", "request r1 done by web:bob on web-1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if text := log.String(); strings.Count(text, "takes no messages") != 1 || strings.Count(text, "takes messages again") != 1 || strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}

// A collector with a limit gets fewer events at a time, and what it can never take is given up, alone.
func TestACollectorWithALimitGetsFewerAtATime(t *testing.T) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch n := bytes.Count(raw, []byte("timeUnixNano")); {
		case n > 1, bytes.Contains(raw, []byte("approved by")):
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		default:
			got = append(got, strings.TrimSpace(regexp.MustCompile(`request r1 \w+`).FindString(string(raw))))
		}
	}))
	defer srv.Close()
	var log bytes.Buffer
	runs(t, told(t, &log, Sink{Collector: srv.URL}))
	if !slices.Equal(got, []string{"request r1 asked", "request r1 done"}) || !strings.Contains(log.String(), "HTTP 413 to one event, which isn't sent again") {
		t.Errorf("%q\n%s", got, log.String())
	}
}

// What a collector rejects is not sent again, and is in the log.
func TestWhatACollectorRejectsIsNotSentAgain(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, `{"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "too large"}}`)
	}))
	defer srv.Close()
	var log bytes.Buffer
	runs(t, told(t, &log, Sink{Collector: srv.URL}))
	if asked != 1 || !strings.Contains(log.String(), "it rejected 2 of 3 events: too large") {
		t.Errorf("it was asked %d times\n%s", asked, log.String())
	}
}

// A page in place of the collector's answer, as a proxy's, is no answer.
func TestAPageIsNoAnswerOfACollector(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			_, _ = io.WriteString(w, "<html>sign in</html>")
			return
		}
		_, _ = io.WriteString(w, `{"partialSuccess": {}}`)
	}))
	defer srv.Close()
	var log bytes.Buffer
	runs(t, told(t, &log, Sink{Collector: srv.URL}))
	if asked < 2 || !strings.Contains(log.String(), "it answers with something else than OTLP") {
		t.Errorf("it was asked %d times\n%s", asked, log.String())
	}
}

func trusts(srv *httptest.Server) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	return &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12}
}

// The head of a line, as RFC 5424 has it.
var head = regexp.MustCompile(`^<(\d+)>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z botone countersign \d+ ocsf - \x{FEFF}(\{.*\})$`)

func TestASyslogServerGetsFrames(t *testing.T) {
	web := httptest.NewUnstartedServer(nil) // whose certificate the server has
	web.StartTLS()
	defer web.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	go func() { // until the listener is closed
		for {
			conn, err := ln.Accept()
			if err != nil {
				close(got)
				return
			}
			serve(conn, got)
		}
	}()
	runs(t, told(t, io.Discard, Sink{Syslog: ln.Addr().String(), TLS: trusts(web)}))
	_ = ln.Close()
	n := 0
	for line := range got {
		n++
		m := head.FindStringSubmatch(line)
		if m == nil || m[1] != "107" {
			t.Errorf("%q", line)
			continue
		}
		if wrong := readSchema(t).check([]byte(m[2])); len(wrong) > 0 {
			t.Errorf("%s: %s", wrong, m[2])
		}
	}
	if n != 3 {
		t.Errorf("%d lines", n)
	}
}

// A server that closes after so many octets gets everything, in fewer events at a time.
func TestASyslogServerThatClosesEarlyGetsEverything(t *testing.T) {
	web := httptest.NewUnstartedServer(nil) // whose certificate the server has
	web.StartTLS()
	defer web.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, served := map[string]bool{}, make(chan struct{})
	go func() { // until the listener is closed
		defer close(served)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			raw, _ := io.ReadAll(io.LimitReader(tls.Server(conn, &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}), 8192))
			if len(raw) == 8192 {
				_ = conn.(*net.TCPConn).SetLinger(0) // it is reset, as by a server that didn't read on
			}
			_ = conn.Close()
			for _, m := range regexp.MustCompile(`"message":"([^"]+)"`).FindAllSubmatch(raw, -1) {
				got[string(m[1])] = true
			}
		}
	}()
	db := mem.Open()
	defer db.Close()
	s := New(Config{DB: db, Sinks: []Sink{{Syslog: ln.Addr().String(), TLS: trusts(web)}}, Version: "1", Host: "h", Every: time.Millisecond, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	for i := range 26 {
		if err := db.Update(t.Context(), func(tx store.Tx) error {
			s.Tell(tx, "web:t", audit.Event{What: audit.Asked, Approval: fmt.Sprint("r", i), Target: "web-1", Command: strings.Repeat("ü", 2000)}, time.Now().Add(time.Duration(i)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	runs(t, s)
	_ = ln.Close()
	<-served
	if len(got) != 26 {
		t.Errorf("it got %d of 26", len(got))
	}
}

// serve reads the frames of RFC 5425.
func serve(conn net.Conn, got chan<- string) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		size, err := r.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSuffix(size, " "))
		if err != nil {
			return
		}
		line := make([]byte, n)
		if _, err := io.ReadFull(r, line); err != nil {
			return
		}
		got <- string(line)
	}
}
