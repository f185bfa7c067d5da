package past_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/past"
	"countersign/tools/toolstest"
)

func now() time.Time { return time.Date(2026, 3, 12, 7, 0, 0, 0, time.UTC) }

// record is a transcript that answers what it was told, and remembers what it was asked.
type record struct {
	found  past.Found
	page   past.Page
	err    error
	thread string
	query  past.Query
	read   [3]int // entry, offset, limit
}

func (r *record) Search(_ context.Context, thread string, q past.Query) (past.Found, error) {
	r.thread, r.query = thread, q
	return r.found, r.err
}

func (r *record) Read(_ context.Context, thread string, entry uint64, offset, limit int) (past.Page, error) {
	r.thread, r.read = thread, [3]int{int(entry), offset, limit}
	return r.page, r.err
}

func TestToolKeepsItsPromises(t *testing.T) {
	toolstest.Check(t, past.New(&record{}), nil,
		toolstest.Case{Name: "search", Args: `{"query":"oom","kind":"result","from":"2026-03-12T07:00:00Z","to":"2026-03-12T08:00:00Z","limit":5,"offset":5}`,
			Other: map[string]string{"kind": `"message"`, "from": `"2026-03-12T07:30:00Z"`, "to": `"2026-03-12T09:00:00+01:00"`}},
		toolstest.Case{Name: "read", Args: `{"entry":12,"offset":100}`})
}

func plan(t *testing.T, r *record, args string) (tools.Plan, error) {
	t.Helper()
	reg, err := tools.NewRegistry(now, past.New(r))
	if err != nil {
		t.Fatal(err)
	}
	return reg.Plan(t.Context(), tools.Call{ID: "call_1", Thread: "test:1", By: "test:u", Name: past.Name, Args: []byte(args)})
}

func run(t *testing.T, r *record, args string) toolstest.Outcome {
	t.Helper()
	reg, err := tools.NewRegistry(now, past.New(r))
	if err != nil {
		t.Fatal(err)
	}
	return toolstest.Run(t.Context(), t, reg, past.Name, args)
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ args, want string }{
		"neither form":             {`{}`, `give "query"`},
		"an empty query":           {`{"query":""}`, `give "query"`},
		"both forms":               {`{"query":"x","entry":1}`, "leave the others out"},
		"a limit for an entry":     {`{"entry":1,"limit":5}`, "leave the others out"},
		"no expression":            {`{"query":"/(/"}`, "no regular expression"},
		"no time":                  {`{"query":"x","from":"yesterday"}`, `"from" is no time of RFC 3339`},
		"the end before the begin": {`{"query":"x","from":"2026-03-12T08:00:00Z","to":"2026-03-12T07:00:00Z"}`, `"to" is before "from"`},
		"too many hits":            {`{"query":"x","limit":101}`, "limit"},
		"an unknown kind":          {`{"query":"x","kind":"thought"}`, "kind"},
		"a negative entry":         {`{"entry":-1}`, "entry"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := plan(t, &record{}, tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestASearchAsksForItsThreadAndGivesItsHits(t *testing.T) {
	r := &record{found: past.Found{Total: 7, Hits: []past.Hit{{Entry: 3, At: now(), Kind: "result", Who: "run_shell (call c1)", Text: "OOM-killed"}}}}
	out := run(t, r, `{"query":"oom","kind":"result","offset":2,"from":"2026-03-12T07:00:00Z"}`)
	if r.thread != "test:1" || r.query != (past.Query{Text: "oom", Kind: "result", From: now(), Limit: past.DefaultHits, Offset: 2}) {
		t.Errorf("asked for %+v of %s", r.query, r.thread)
	}
	const want = `"result":{"total":7,"hits":[{"entry":3,"time":"2026-03-12T07:00:00Z","kind":"result","who":"run_shell (call c1)","text":"OOM-killed"}],` +
		`"notice":"4 older places match too; go on with offset 3"}}`
	if !strings.HasSuffix(out.Text, want) {
		t.Errorf("got  %s\nwant %s", out.Text, want)
	}
	if run(t, r, `{"kind":"decision"}`); r.query != (past.Query{Kind: "decision", Limit: past.DefaultHits}) {
		t.Errorf("asked for %+v", r.query)
	}
	if out := run(t, &record{}, `{"query":"oom"}`); !strings.Contains(out.Text, `"hits":[],"notice":"nothing in the record`) {
		t.Error(out.Text)
	}
	if out := run(t, &record{found: past.Found{Total: 3}}, `{"query":"oom","offset":9}`); !strings.Contains(out.Text, "only 3 places match") {
		t.Error(out.Text)
	}
}

func TestAnEntryIsReadInPages(t *testing.T) {
	r := &record{page: past.Page{Entry: 12, At: now(), Kind: "message", Who: "alice", Text: "the text", Offset: 100, Next: 108, Total: 200}}
	out := run(t, r, `{"entry":12,"offset":100}`)
	if r.thread != "test:1" || r.read != [3]int{12, 100, past.PageChars} {
		t.Errorf("read %v of %s", r.read, r.thread)
	}
	var e struct{ Result map[string]any }
	if err := json.Unmarshal([]byte(out.Text), &e); err != nil || e.Result["text"] != "the text" || e.Result["notice"] != "92 more characters; go on with offset 108" {
		t.Errorf("%s %v", out.Text, err)
	}
	if out := run(t, &record{page: past.Page{Total: 5}}, `{"entry":0,"offset":100}`); !strings.Contains(out.Text, "the entry has 5 characters") {
		t.Error(out.Text)
	}
}

func TestAFailureSaysWhatToDo(t *testing.T) {
	if out := run(t, &record{err: past.ErrNone}, `{"entry":99}`); out.Err == nil || !strings.Contains(out.Text, "has no entry 99") {
		t.Error(out.Text)
	}
	for _, args := range []string{`{"entry":1}`, `{"query":"x"}`} {
		if out := run(t, &record{err: errors.New("the store is closed")}, args); out.Err == nil || !strings.Contains(out.Text, "the store is closed") {
			t.Error(out.Text)
		}
	}
}
