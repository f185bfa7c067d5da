package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/agent/llm"
)

// byModel answers each model with its own step, and notes who was asked.
type byModel struct {
	steps map[string]served
	asked []string
}

func (b *byModel) Do(r *http.Request) (*http.Response, error) {
	var req struct {
		Model string `json:"model"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, err
	}
	b.asked = append(b.asked, req.Model)
	step, ok := b.steps[req.Model]
	if !ok {
		return nil, errors.New("dial tcp: connection refused")
	}
	resp := &http.Response{StatusCode: max(step.status, http.StatusOK), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(step.body))}
	for k, v := range step.headers {
		resp.Header.Set(k, v)
	}
	if step.hang {
		resp.Body = mute{r.Context()}
	}
	return resp, nil
}

func TestFallback(t *testing.T) {
	says := func(status int, message string) served {
		return served{status: status, body: fmt.Sprintf(`{"error":{"message":%q}}`, message)}
	}
	four := func(m string) []string { return []string{m, m, m, m} }
	tests := []struct {
		name    string
		first   served
		asked   []string // how often a, b and c were asked
		answers string   // which model; "" means that it fails
		fails   []string
		notes   int // about another model
	}{
		{"a model that answers needs no other", good, []string{"a"}, "a", nil, 0},
		{"overload, after all retries", says(429, "slow down"), append(four("a"), "b"), "b", nil, 1},
		{"a wait that is too long to wait for", served{status: 429, headers: map[string]string{"Retry-After": "3600"}}, []string{"a", "b"}, "b", nil, 1},
		{"a server's error", says(503, "overloaded"), append(four("a"), "b"), "b", nil, 1},
		{"a server's error that must not be tried again", served{status: 500, headers: map[string]string{"X-Should-Retry": "false"}}, []string{"a", "b"}, "b", nil, 1},
		{"a model that is not found", says(404, "The model `a` does not exist"), []string{"a", "b"}, "b", nil, 1},
		{"a model that is not valid", says(400, "a is not a valid model ID"), []string{"a", "b"}, "b", nil, 1},
		{"a model that is not there, said in a stream", served{body: sse(`{"error":{"message":"no such model","code":"model_not_found"}}`)}, []string{"a", "b"}, "b", nil, 1},
		{"streams that break off", served{body: sse(textFrame("half"))}, append(four("a"), "b"), "b", nil, 1},
		{"answers that are garbled", served{body: sse(`{"choices":[{]}`)}, append(four("a"), "b"), "b", nil, 1},
		{"errors in the stream", served{body: sse(`{"error":{"message":"busy"}}`)}, append(four("a"), "b"), "b", nil, 1},
		{"not: the key", says(401, "no"), []string{"a"}, "", []string{"OPENAI_API_KEY"}, 0},
		{"not: what the key may not", says(403, "The model a does not exist"), []string{"a"}, "", nil, 0},
		{"not: a bad request", says(400, "bad tool"), []string{"a"}, "", []string{"bad tool"}, 0},
		{"not: too long", says(400, "maximum context length"), []string{"a"}, "", []string{"too long"}, 0},
		{"not: an empty account", served{status: 429, body: `{"error":{"code":"insufficient_quota"}}`}, []string{"a"}, "", []string{"credit"}, 0},
		{"not: a filter", served{body: sse(finishFrame("content_filter"), done)}, []string{"a"}, "", []string{"filter"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &byModel{steps: map[string]served{"a": tt.first, "b": good}}
			c := client(t, "http://model.test", func(c *Config) { c.Model, c.Fallback, c.HTTPClient = "a", []string{"b", "a", "", "c"}, b })
			notes := 0
			var sh shown
			r, err := c.Reply(t.Context(), ask(), func(d llm.Delta) {
				sh.show(d)
				if strings.Contains(d.Note, "asking") {
					notes++
					if d.Note != "a does not answer; asking b instead." || !d.Reset {
						t.Errorf("%+v", d)
					}
				}
			})
			if strings.Join(b.asked, " ") != strings.Join(tt.asked, " ") || notes != tt.notes || r.Model != tt.answers || (err == nil) != (tt.answers != "") || (err == nil && (r.Text != "fine" || sh.text != "fine")) {
				t.Fatalf("asked %v, %d notes, %+v, %v, shown %+v", b.asked, notes, r, err, sh)
			}
			for _, s := range tt.fails {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is missing in %q", s, err)
				}
			}
		})
	}
}

func TestWhenNoModelAnswersTheLastOneIsToldOf(t *testing.T) {
	b := &byModel{steps: map[string]served{"a": {status: 503}, "b": {status: 404}, "c": {status: 529}}}
	c := client(t, "http://model.test", func(c *Config) { c.Model, c.Fallback, c.HTTPClient = "a", []string{"b", "c"}, b })
	_, err := c.Reply(t.Context(), ask(), nil)
	var e *llm.Error
	if !errors.As(err, &e) || e.Status != 529 || !strings.HasSuffix(e.Sentence, "(tried 4 times; a, b didn't answer either).") {
		t.Fatal(err)
	}
}

func TestAServerThatIsNotThereHasNoOtherModelsEither(t *testing.T) {
	b := &byModel{}
	c := client(t, "http://model.test", func(c *Config) { c.Model, c.Fallback, c.HTTPClient = "a", []string{"b"}, b })
	if _, err := c.Reply(t.Context(), ask(), nil); err == nil || strings.Join(b.asked, " ") != "a a a a" {
		t.Fatal(err, b.asked)
	}
}

func TestARequestNamesItsModel(t *testing.T) {
	b := &byModel{steps: map[string]served{"x": {status: 404}, "b": good, "a": good}}
	c := client(t, "http://model.test", func(c *Config) { c.Model, c.Fallback, c.HTTPClient = "a", []string{"b"}, b })
	req := ask()
	req.Model = "x"
	if r, err := c.Reply(t.Context(), req, nil); err != nil || r.Model != "b" || strings.Join(b.asked, " ") != "x b" {
		t.Fatal(r, err, b.asked)
	}
	if r, err := c.Reply(t.Context(), ask(), nil); err != nil || r.Model != "a" {
		t.Fatal(r, err)
	}
}

func TestAModelThatDidNotAnswerIsAskedLastForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &byModel{steps: map[string]served{"a": {hang: true}, "b": good}}
		c := client(t, "http://model.test", func(c *Config) { c.Model, c.Fallback, c.HTTPClient = "a", []string{"b"}, b })
		reply := func() string {
			b.asked = nil
			var notes []string
			r, err := c.Reply(t.Context(), ask(), func(d llm.Delta) {
				if d.Note != "" {
					notes = append(notes, d.Note)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(b.asked, " ") + ": " + r.Model + " " + strings.Join(notes, "|")
		}
		begun := time.Now()
		if got := reply(); got != "a b: b a does not answer; asking b instead." || time.Since(begun) != 120*time.Second {
			t.Fatal(got, time.Since(begun))
		}
		if got := reply(); got != "b: b a did not answer a moment ago; asking b." {
			t.Fatal(got)
		}
		b.steps["b"] = served{status: 404}
		b.steps["a"] = good
		if got := reply(); got != "b a: a a did not answer a moment ago; asking b.|b does not answer; asking a instead." {
			t.Fatal(got)
		}
		b.steps["b"] = good
		time.Sleep(restTime)
		if got := reply(); got != "a: a " {
			t.Fatal(got)
		}
	})
}

func TestTheOpaquePartGoesOnlyToTheModelThatMadeIt(t *testing.T) {
	s, _ := server(t, served{body: sse(`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, callFrame(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`), finishFrame("tool_calls"), done)},
		served{status: 404}, good)
	rec := &recorder{to: s.URL}
	c := client(t, "http://model.test", func(c *Config) { c.Model, c.Fallback, c.HTTPClient = "a", []string{"b"}, rec })
	r, err := c.Reply(t.Context(), ask(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req := ask()
	req.Items = append(req.Items, llm.Item{Role: llm.Assistant, Calls: r.Calls, Opaque: r.Opaque}, llm.Item{Role: llm.Tool, CallID: "a", Text: "x"})
	if r, err := c.Reply(t.Context(), req, nil); err != nil || r.Model != "b" {
		t.Fatal(r, err)
	}
	all := rec.all()
	inBody(t, all[1].body, []string{`"model":"a"`, `"reasoning_content":"hm"`}, nil)
	inBody(t, all[2].body, []string{`"model":"b"`}, []string{"reasoning_content"})
}
