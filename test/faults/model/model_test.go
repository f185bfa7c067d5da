package model

import (
	"bufio"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

var (
	_ = flag.Int64("faults.seed", 1, "not used here: nothing is random")
	_ = flag.Int("faults.rounds", 1, "not used here")
)

func messages(t *testing.T, list string) []Message {
	t.Helper()
	var m []Message
	if err := json.Unmarshal([]byte(list), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

const asked = `{"role":"system","content":"job do no-1 is only an example"},{"role":"user","content":"alice: please take the job do a-1"}`

var called = `,{"role":"assistant","content":"I take it.","tool_calls":[{"id":"c9","function":{"name":"run_shell","arguments":` + quoted(arguments(Command("/c", "a-1"), true)) + `}}]}`

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

func TestAnswer(t *testing.T) {
	for _, c := range []struct{ name, conversation, text, call string }{
		{"nothing was asked", `{"role":"user","content":"hello"}`, "There is nothing to report.", ""},
		{"talk is reported", `{"role":"user","content":"job say a-1"}`, "Report a-1 talk.", ""},
		{"text in parts", `{"role":"user","content":[{"type":"text","text":"job say a-1"}]}`, "Report a-1 talk.", ""},
		{"a job is a call", asked, "I take the job a-1.", "a-1"},
		{"it ran", asked + called + `,{"role":"tool","tool_call_id":"c9","content":"exit 0\nran-a-1\n"}`, "Report a-1 ran.", ""},
		{"it was denied", asked + called + `,{"role":"tool","tool_call_id":"c9","content":"denied by bob"}`, "Report a-1 refused.", ""},
		{"nobody knows", asked + called + `,{"role":"tool","tool_call_id":"c9","content":"the outcome of this call is unknown"}`, "Report a-1 unknown.", ""},
		{"it failed", asked + called + `,{"role":"tool","tool_call_id":"c9","content":"no such file"}`, "Report a-1 failed.", ""},
		{"what was said meanwhile is reported, too", asked + called + `,{"role":"tool","tool_call_id":"c9","content":"ran-a-1"},{"role":"user","content":"job say a-2"}`, "Report a-1 ran.\n\nReport a-2 talk.", ""},
		{"what was reported is not reported again", asked + called + `,{"role":"tool","tool_call_id":"c9","content":"ran-a-1"},{"role":"assistant","content":"Report a-1 ran."},{"role":"user","content":"job say a-2"}`, "Report a-2 talk.", ""},
		{"a broken call is made again", asked + `,{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"run_shell","arguments":"{"}}]},{"role":"tool","tool_call_id":"c","content":"not JSON"}`, "I take the job a-1.", "a-1"},
		{"one job after the other", `{"role":"user","content":"job do a-1"},{"role":"user","content":"job do a-2"}`, "I take the job a-1.", "a-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Answer("/c", messages(t, "["+c.conversation+"]"))
			call := ""
			for _, x := range r.Calls {
				call += Asks(x.Arguments)
			}
			if r.Text != c.text || call != c.call {
				t.Errorf("%+v", r)
			}
		})
	}
}

// ask sends a conversation and returns the frames up to the end or the break.
func ask(t *testing.T, s *Server, conversation string) (status int, frames []string, whole bool) {
	t.Helper()
	res, err := (&http.Client{Timeout: 10 * time.Second}).Post("http://"+s.Address()+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[`+conversation+`]}`))
	if err != nil {
		return 0, nil, false
	}
	defer res.Body.Close()
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 8<<20)
	for sc.Scan() {
		if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
			frames = append(frames, data)
		}
	}
	return res.StatusCode, frames, sc.Err() == nil && len(frames) > 0 && frames[len(frames)-1] == "[DONE]"
}

func TestEachKindOfBadAnswerIsBadAndTheNextIsGood(t *testing.T) {
	// What a client would read: status, a whole stream, all frames JSON.
	type view struct {
		status      int
		whole, json bool
	}
	odd := map[Kind]view{
		Status: {500, false, true}, CutBefore: {0, false, true}, CutInText: {200, false, true}, CutInCall: {200, false, true},
		BrokenFrame: {200, true, false}, NotAStream: {200, false, true}, ErrorInStream: {200, false, true},
	}
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			s, err := New("/c")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.Next(Fault{Kind: k, Wait: 10 * time.Millisecond})
			see := func() view {
				v := view{json: true}
				var frames []string
				v.status, frames, v.whole = ask(t, s, asked)
				for _, f := range frames {
					v.json = v.json && (f == "[DONE]" || json.Valid([]byte(f)))
				}
				return v
			}
			want, ok := odd[k]
			if !ok {
				want = view{200, true, true}
			}
			if got := see(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if got := see(); got != (view{200, true, true}) {
				t.Errorf("the answer after it: %+v", got)
			}
			if s.Served(k) != 1 || s.Served(Good) != 1 || s.Requests() != 2 || s.Waiting() != 0 {
				t.Errorf("%d of %s, %d good, %d in all", s.Served(k), k, s.Served(Good), s.Requests())
			}
		})
	}
}

func TestAlways(t *testing.T) {
	s, err := New("/c")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Always(Fault{Kind: Status, Code: 429, Wait: 2 * time.Second})
	for range 2 {
		res, err := http.Post("http://"+s.Address()+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "2" {
			t.Errorf("%d %q", res.StatusCode, res.Header.Get("Retry-After"))
		}
	}
	s.Always(Fault{})
	if st, _, whole := ask(t, s, asked); st != 200 || !whole {
		t.Errorf("%d %v", st, whole)
	}
}

func TestBreaksOff(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "Report a-1 ran.": false, "Report a-1 ran.\n\nReport a-2 talk.": false, "I take the job a-1.": false, "There is nothing to report.": false,
		"Report a-1": true, "Report a-1 ran.\n\nReport a-2": true, "I take the job": true, "I take": true, "Report": true, "I": true,
	} {
		if got := BreaksOff(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
