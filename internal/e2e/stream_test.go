package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// collected are the operations of OCSF events of requests, in order.
func collected(lines []string) (out []string) {
	for _, l := range lines {
		var e struct {
			Class    int                               `json:"class_uid"`
			Activity int                               `json:"activity_id"`
			Metadata struct{ UID, Correlation string } `json:"metadata"`
			API      struct{ Operation string }        `json:"api"`
			Process  struct {
				Command string `json:"cmd_line"`
			} `json:"process"`
		}
		switch err := json.Unmarshal([]byte(l), &e); {
		case err != nil:
			out = append(out, err.Error())
		case e.Class == 1007 && e.Activity == 1:
			out = append(out, "launch "+e.Process.Command)
		case e.Class == 1007:
			out = append(out, "terminate "+e.Process.Command)
		case strings.HasPrefix(e.API.Operation, "request."):
			out = append(out, e.API.Operation)
		}
	}
	return out
}

// A collector that is away while things happen learns all of them, also from the next process of the bot; a
// file has them, too.
func TestEveryDecisionAndRunIsStreamed(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	down, refused := true, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		raw, err := io.ReadAll(r.Body)
		if err != nil || down {
			refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
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
		if err := json.Unmarshal(raw, &logs); err != nil {
			t.Error(err)
		}
		for _, rec := range logs.ResourceLogs[0].ScopeLogs[0].LogRecords {
			got = append(got, rec.Body.StringValue)
		}
	}))
	defer srv.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "events.jsonl")
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch " + dir + "/made")}}}}).enter(t, plainConfig+`
stream:
  - {to: otlp, url: "`+srv.URL+`/v1/logs"}
  - {to: file, path: `+file+`}
`)
	c.tell("do")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	want := []string{"request.asked", "request.approved", "launch touch " + dir + "/made", "terminate touch " + dir + "/made"}
	has := func(all []string) bool {
		seen := slices.DeleteFunc(collected(all), func(s string) bool { return s == "request.receipt" })
		return slices.Equal(seen, want)
	}
	lines := func() []string {
		f, err := os.Open(file)
		if err != nil {
			return nil
		}
		defer func() { _ = f.Close() }()
		var all []string
		for sc := bufio.NewScanner(f); sc.Scan(); {
			all = append(all, sc.Text())
		}
		return all
	}
	eventually(t, "the file has it", func() bool { return has(lines()) }, func() string { return strings.Join(lines(), "\n") })
	eventually(t, "the collector was asked", func() bool { mu.Lock(); defer mu.Unlock(); return refused > 0 }, c.b.log.String)
	if said := c.b.log.String(); strings.Count(said, "a receiver takes no messages") != 1 {
		t.Error(said)
	}
	c.b.kill()
	mu.Lock()
	down = false
	mu.Unlock()
	c.again()
	eventually(t, "the collector has it", func() bool { mu.Lock(); defer mu.Unlock(); return has(got) }, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(collected(got), "\n") + "\n" + c.b.log.String()
	})
}
