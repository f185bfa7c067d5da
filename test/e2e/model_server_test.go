package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/llm/openai/openaitest"
	"countersign/test/npmtest"
)

// modelServer is aimock, a model server that shares no code with this module
// (github.com/CopilotKit/aimock, MIT), with a recorder before it: its own journal
// has requests of the Responses API in another form than they were sent.
type modelServer struct {
	t       *testing.T
	url     string // of the recorder
	checker *openaitest.Checker
	process string // its own address

	mu   sync.Mutex
	sent map[string][]sentBody // by X-Test-Id
}

type sentBody struct {
	path string
	body []byte
}

// aimock returns the program, which is installed once into the user's cache.
func aimock(t *testing.T) (node, script string) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	dir := npmtest.Packages(t, filepath.Join("testdata", "aimock"), "test against an independent model server")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	script = filepath.Join(dir, "node_modules", "@copilotkit", "aimock", "dist", "cli.js")
	return node, script
}

// newModelServer starts aimock with fixtures, in its own form.
func newModelServer(t *testing.T, fixtures string) *modelServer {
	t.Helper()
	node, script := aimock(t)
	file := filepath.Join(t.TempDir(), "fixtures.json")
	if err := os.WriteFile(file, []byte(fixtures), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, script, "-p", "0", "-h", "127.0.0.1", "-f", file, "--validate-on-load", "--strict", "--log-level", "info")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(file)}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "listening on "); ok {
				address <- strings.TrimSpace(at)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	s := &modelServer{t: t, sent: map[string][]sentBody{}}
	select {
	case s.process = <-address:
	case <-ended:
		t.Fatalf("the model server ended: %s", stderr.String())
	case <-time.After(30 * time.Second):
		t.Fatal("the model server does not listen")
	}
	if s.checker, err = openaitest.NewChecker(); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(s.process)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	recorder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		id := r.Header.Get("X-Test-Id")
		s.sent[id] = append(s.sent[id], sentBody{r.URL.Path, body})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(recorder.Close)
	s.url = recorder.URL
	return s
}

// requests returns what was sent under an X-Test-Id, each request checked against
// OpenAI's own description; the server's journal must have as many.
func (s *modelServer) requests(t *testing.T, id string) []sentBody {
	t.Helper()
	s.mu.Lock()
	sent := append([]sentBody(nil), s.sent[id]...)
	s.mu.Unlock()
	for i, r := range sent {
		if err := s.checker.Check(r.body); err != nil {
			t.Errorf("request %d of %s to %s: %v\n%s", i, id, r.path, err, r.body)
		}
	}
	journal := s.journal(t, id)
	if len(journal) != len(sent) {
		t.Errorf("the server's journal has %d requests of %d", len(journal), len(sent))
	}
	for i, j := range journal {
		if strings.HasSuffix(j.Path, "/chat/completions") && i < len(sent) {
			if err := s.checker.Check(j.Body); err != nil {
				t.Errorf("request %d of %s in the journal: %v\n%s", i, id, err, j.Body)
			}
		}
	}
	return sent
}

type journalled struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

func (s *modelServer) journal(t *testing.T, id string) []journalled {
	t.Helper()
	resp, err := http.Get(s.process + "/__aimock/journal?testId=" + url.QueryEscape(id))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []journalled
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for i := range all { // what the server adds for itself
		var body map[string]json.RawMessage
		if err := json.Unmarshal(all[i].Body, &body); err != nil {
			t.Fatal(err)
		}
		delete(body, "_endpointType")
		if all[i].Body, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// places says what a request is made of, in its order, without texts.
func (r sentBody) places(t *testing.T) string {
	t.Helper()
	var req struct {
		Messages []struct {
			Role   string `json:"role"`
			Calls  []any  `json:"tool_calls"`
			CallID string `json:"tool_call_id"`
		} `json:"messages"`
		Input []struct {
			Type string `json:"type"`
			Role string `json:"role"`
		} `json:"input"`
	}
	if err := json.Unmarshal(r.body, &req); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range req.Messages {
		out = append(out, m.Role+strings.Repeat("+call", len(m.Calls)))
	}
	for _, it := range req.Input {
		if it.Type == "message" {
			it.Type = it.Role
		}
		out = append(out, it.Type)
	}
	return strings.Join(out, " ")
}

func (r sentBody) String() string { return fmt.Sprintf("%s %s", r.path, r.body) }
