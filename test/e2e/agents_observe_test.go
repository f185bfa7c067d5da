package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestAgentsMetricsAndTracesOfATurn: after a turn with a call that ran, one that was denied
// and a sub-agent, /metrics counts it, and the spans of the turn reached a collector without
// a word of what anybody said.
func TestAgentsMetricsAndTracesOfATurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var posts []string
	var bodies []byte
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
			var z *gzip.Reader
			if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
				body, err = io.ReadAll(z)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		posts, bodies = append(posts, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")), append(bodies, body...)
		mu.Unlock()
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	}))
	t.Cleanup(collector.Close)

	model := newCrew(t,
		part{"TASK-gooseberry", []turn{{calls: []call{look("echo elderberry")}}, {text: "A report about whortleberry."}}},
		part{"marmalade", []turn{
			{text: "I ask about boysenberry.", calls: []call{look("echo cloudberry")}},
			{calls: []call{shell("echo loganberry >> " + t.TempDir() + "/x")}},
			{calls: []call{{"no_such_tool", "{}"}}},
			{calls: []call{handed("shell_executor", "TASK-gooseberry: look")}},
		}},
	)
	c := model.enter(t, fullConfig, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_BSP_SCHEDULE_DELAY=100")
	c.tell("please find the marmalade")
	c.press("deny:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)

	res, err := http.Get(c.b.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d %v", res.StatusCode, err)
	}
	for metric, want := range map[string]float64{
		`countersign_turns_total{outcome="done"}`:                                       1,
		`gen_ai_client_token_usage_total{model="scripted",type="input"}`:                700, // five replies of the agent, two of its sub-agent
		`gen_ai_client_token_usage_total{model="scripted",type="output"}`:               70,
		`countersign_tool_calls_total{outcome="ok",tool="run_shell"}`:                   2,
		`countersign_tool_calls_total{outcome="denied",tool="run_shell"}`:               1,
		`countersign_tool_calls_total{outcome="failed",tool="unknown"}`:                 1,
		`countersign_tool_calls_total{outcome="ok",tool="sub_agent_shell_executor"}`:    1,
		`countersign_approval_wait_seconds_count{decision="denied",level="medium"}`:     1,
		`gen_ai_client_operation_duration_seconds_count{model="scripted",outcome="ok"}`: 7,
		`countersign_adapter_connected{adapter="web"}`:                                  1,
	} {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\S+)$`).FindSubmatch(raw)
		if m == nil {
			t.Errorf("%s is missing", metric)
			continue
		}
		if got, err := strconv.ParseFloat(string(m[1]), 64); err != nil || got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}

	spans := func() string { mu.Lock(); defer mu.Unlock(); return string(bodies) }
	for _, want := range []string{"invoke_agent ops", "chat scripted", "execute_tool run_shell", "countersign.approval", "gen_ai.agent.id", "shell_executor", c.thread} {
		eventually(t, "the collector has "+want, func() bool { return strings.Contains(spans(), want) }, func() string { return spans() + c.b.log.String() })
	}
	c.b.stop() // what is left is sent
	mu.Lock()
	defer mu.Unlock()
	for _, p := range posts {
		if p != "POST /v1/traces application/x-protobuf" {
			t.Errorf("the collector was sent %s", p)
		}
	}
	for _, secret := range []string{"marmalade", "berry", "no_such_tool", "sk-test-not-a-key", "alice"} {
		if strings.Contains(string(bodies), secret) {
			t.Errorf("%q is in the spans", secret)
		}
		if secret != "alice" && strings.Contains(string(raw), secret) {
			t.Errorf("%q is in the metrics", secret)
		}
	}
}
