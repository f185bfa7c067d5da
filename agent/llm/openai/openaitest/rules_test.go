package openaitest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/agent/llm/openai/openaitest"
)

func talk(user string, results ...string) llm.Request {
	r := llm.Request{
		Items: []llm.Item{{Role: llm.System, Text: "You are ops."}, {Role: llm.User, Text: user}},
		Tools: []llm.ToolSpec{{Name: "run_shell"}, {Name: "time"}},
	}
	for i, text := range results {
		id := "call_" + string(rune('a'+i))
		r.Items = append(r.Items, llm.Item{Role: llm.Assistant, Calls: []llm.Call{{ID: id, Name: "time", Args: "{}"}}}, llm.Item{Role: llm.Tool, CallID: id, Text: text})
	}
	return r
}

func loaded(t *testing.T, rules string) *openai.Client {
	t.Helper()
	rs, err := openaitest.Load(strings.NewReader(rules))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := model(t, openaitest.FirstOf(rs...))
	return c
}

func TestARuleMatchesByItsConditions(t *testing.T) {
	const rules = `{"rules":[
		{"user":"disk","system":"no such prompt","text":"wrong"},
		{"user":"disk","text":"Let me look.","calls":[{"name":"run_shell","args":{"command":"df -h","risk":"low"}},{"name":"time"}]},
		{"user":"disk","result_contains":"100%","text":"full"},
		{"user":"disk","results":1,"text":"fine"},
		{"user":"disk","results":-1,"system":"ops","text":"enough"},
		{"user":"raw","calls":[{"id":"mine","name":"run_shell","args":"{oops"}]},
		{"user":"long","text":"cut","finish":"length"},
		{"user":"once","text":"first","times":1},
		{"user":"once","text":"later"}
	]}`
	m := loaded(t, rules)
	for _, c := range []struct {
		name string
		req  llm.Request
		want string
	}{
		{"user, without results", talk("the disk?"), "Let me look."},
		{"the last result", talk("the disk?", "50%", "100%"), "full"},
		{"the number of results", talk("the disk?", "50%"), "fine"},
		{"any number of results", talk("the disk?", "50%", "50%", "50%"), "enough"},
		{"times lets a rule answer so often", talk("once"), "first"},
		{"and then the next one", talk("once"), "later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := m.Reply(t.Context(), c.req, nil)
			if err != nil || got.Text != c.want {
				t.Fatalf("got %+v, %v, want %q", got, err, c.want)
			}
		})
	}
	got, err := m.Reply(t.Context(), talk("the disk?"), nil)
	if err != nil || len(got.Calls) != 2 || got.Calls[0].Args != `{"command":"df -h","risk":"low"}` || got.Calls[1].Args != "{}" {
		t.Errorf("calls: %+v, %v", got, err)
	}
	if got, err = m.Reply(t.Context(), talk("raw"), nil); err != nil || len(got.Calls) != 1 || got.Calls[0].Args != "{oops" || got.Calls[0].ID != "mine" {
		t.Errorf("arguments as text: %+v, %v", got, err)
	}
	if got, err = m.Reply(t.Context(), talk("long"), nil); err != nil || got.Finish != llm.FinishLength {
		t.Errorf("another reason: %+v, %v", got, err)
	}
	_, err = m.Reply(t.Context(), talk("nobody knows"), nil)
	var le *llm.Error
	if !errors.As(err, &le) || le.Status != http.StatusBadRequest || !strings.Contains(le.Sentence, "no rule answers") {
		t.Errorf("without a rule: %v", err)
	}
}

func TestFaultsOfRulesAreTriedAgain(t *testing.T) {
	for name, rules := range map[string]string{
		"a status":                    `{"rules":[{"status":429,"retry_after":2,"text":"slow down","times":1},{"text":"ok"}]}`,
		"a cut":                       `{"rules":[{"text":"this will be cut in the middle","cut":2,"times":1},{"text":"ok"}]}`,
		"a cut within the arguments":  `{"rules":[{"calls":[{"name":"run_shell","args":{"command":"df -h /var"}}],"cut":4,"times":2},{"text":"ok","delay_ms":1}]}`,
		"a cut before the first byte": `{"rules":[{"status":503,"times":1},{"text":"x","cut":1,"times":1},{"text":"ok"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			text, resets := "", 0
			got, err := loaded(t, rules).Reply(t.Context(), talk("hi"), func(d llm.Delta) {
				if d.Reset {
					text = ""
					resets++
				}
				text += d.Text
			})
			if err != nil || got.Text != "ok" || text != "ok" || resets == 0 || len(got.Calls) != 0 {
				t.Fatalf("got %+v, %v, shown %q after %d resets", got, err, text, resets)
			}
		})
	}
}

func TestTheJournalHoldsEveryRequest(t *testing.T) {
	var seen openaitest.Conversation
	s := openaitest.New(func(c openaitest.Conversation) openaitest.Turn { seen = c; return openaitest.Turn{Text: "ok"} })
	c, err := openai.New(openai.Config{BaseURL: "http://model.test/v1", Model: "m", HTTPClient: inProcess{s}})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"one", "two"} {
		if _, err := c.Reply(t.Context(), talk(u, "noon"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Journal(); len(got) != 2 || !strings.Contains(string(got[1]), `"two"`) {
		t.Errorf("the journal is %s", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://model.test/journal", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := inProcess{s}.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var j struct {
		Requests []struct {
			Model string `json:"model"`
		} `json:"requests"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&j); err != nil || len(j.Requests) != 2 || j.Requests[0].Model != "m" {
		t.Errorf("GET /journal gave %+v, %v", j, err)
	}
	if seen.Model != "m" || seen.System != "You are ops." || len(seen.Tools) != 2 || len(seen.All) != 4 || seen.All[2].Calls[0].Name != "time" || seen.All[3].CallID != "call_a" {
		t.Errorf("the script saw %+v", seen)
	}
}

func TestLoadRefusesWithASentence(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"no JSON":               {`{"rules":[`, "near byte"},
		"an unknown key":        {`{"rules":[{"usr":"x"}]}`, "usr"},
		"no rules":              {`{}`, "no rules"},
		"a call without a name": {`{"rules":[{"text":"a"},{"calls":[{"args":{}}]}]}`, "rule 2: a call has no name"},
		"a status of success":   {`{"rules":[{"status":200}]}`, "rule 1: the status 200"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := openaitest.Load(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestLoadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	if _, err := openaitest.LoadFile(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openaitest.LoadFile(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"rules":[{"text":"hi"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if rules, err := openaitest.LoadFile(path); err != nil || len(rules) != 1 {
		t.Errorf("got %d rules, %v", len(rules), err)
	}
}

// inProcess sends requests to a handler without a network.
type inProcess struct{ h http.Handler }

func (p inProcess) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w.Result(), nil
}
