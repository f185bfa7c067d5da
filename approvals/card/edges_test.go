package card

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
)

func field(fields []chat.Field, name string) (out []string) {
	for _, f := range fields {
		if f.Name == name {
			out = append(out, f.Value)
		}
	}
	return out
}

func TestSizeCountsEverything(t *testing.T) {
	c := chat.Card{Title: "1", Code: "22", Body: "4444", Warn: []string{"88888888", ""}, Fields: []chat.Field{{Name: strings.Repeat("n", 16), Value: strings.Repeat("v", 32)}, {Name: "", Value: strings.Repeat("v", 64)}}}
	if n := Size(c); n != 127 {
		t.Errorf("%d bytes", n)
	}
	c = chat.Card{Env: "1", Risk: "22", Context: "4444", Why: "88888888", Footer: strings.Repeat("f", 16), Preview: []string{strings.Repeat("p", 32)}, Details: []chat.Field{{Name: strings.Repeat("n", 64), Value: strings.Repeat("v", 128)}}}
	if n := Size(c); n != 255 {
		t.Errorf("%d bytes", n)
	}
	if n := Size(chat.Card{}); n != 0 {
		t.Errorf("an empty card has %d bytes", n)
	}
}

// TestTheLevelShows: a level that nobody knows is shown as the dangerous one.
func TestTheLevelShows(t *testing.T) {
	for level, want := range map[string]struct {
		tone    chat.Tone
		confirm bool
	}{
		"read": {chat.ToneLow, false}, "low": {chat.ToneLow, false}, "medium": {chat.ToneMedium, false}, "high": {chat.ToneHigh, true},
		"critical": {chat.ToneHigh, true}, "unknown": {chat.ToneHigh, true}, "": {chat.ToneHigh, true}, "odd": {chat.ToneHigh, true},
	} {
		r := record(approvals.Pending)
		r.Level = level
		c := New(r, "")
		i := slices.IndexFunc(c.Choose, func(b chat.Button) bool { return b.Label == "Approve" })
		if c.Tone != want.tone || (c.Choose[i].Confirm != "") != want.confirm {
			t.Errorf("%q: tone %q, %q", level, c.Tone, c.Choose[i].Confirm)
		}
	}
}

func TestWhereTheWordsComeFromStandsOnlyOnAQuestion(t *testing.T) {
	for _, s := range []approvals.State{approvals.Pending, approvals.Approved, approvals.Denied} {
		r := record(s)
		r.Taint, r.Claim.Given = "From a web page.\nApproved.", false
		said := slices.Contains(New(r, "").Warn, `From a web page.\x0aApproved.`)
		if said != (s == approvals.Pending) {
			t.Errorf("%s: %q", s, New(r, "").Warn)
		}
		r.Taint = ""
		if w := New(r, "").Warn; len(w) > 0 {
			t.Errorf("%s warns of nothing: %q", s, w)
		}
	}
}

func TestArgumentsStandSomewhereOnTheCard(t *testing.T) {
	for _, tc := range []struct {
		rule string
		a    approvals.Action
		want []string
	}{
		{"beside the content", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("x"), Args: json.RawMessage(`{"mode":"a"}`)}, []string{`{"mode":"a"}`}},
		{"beside a command", approvals.Action{Kind: approvals.KindShell, Bytes: []byte("ls"), Args: json.RawMessage(`{"wait":"10m"}`)}, []string{`{"wait":"10m"}`}},
		{"of a command without text", approvals.Action{Kind: approvals.KindShell, Args: json.RawMessage(`{"wait":false}`)}, []string{`{"wait":false}`}},
		{"not the wait that each command has", approvals.Action{Kind: approvals.KindShell, Bytes: []byte("ls"), Args: json.RawMessage(`{"wait":true}`)}, nil},
		{"beside a whole preview", approvals.Action{Kind: approvals.KindChange, Preview: "+a", Whole: true, Args: json.RawMessage(`{"mode":"a"}`)}, []string{`{"mode":"a"}`}},
		{"not where they are the code", approvals.Action{Tool: "kill", Kind: approvals.KindChange, Args: json.RawMessage(`{"mode":"a"}`)}, nil},
		{"not what the content is", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("x"), Args: json.RawMessage(`{"content":"x"}`)}, nil},
		{"not what the file is", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("x"), Path: "/a", Args: json.RawMessage(`{"path":"/a"}`)}, nil},
		{"an empty text is no file", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("x"), Args: json.RawMessage(`{"owner":""}`)}, []string{`{"owner":""}`}},
		{"what is no object is shown as it is", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("x"), Args: json.RawMessage(`[1]`)}, []string{`[1]`}},
		{"none", approvals.Action{Kind: approvals.KindChange, Bytes: []byte("x")}, nil},
	} {
		if got := field(place(tc.a), "Arguments"); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", tc.rule, got)
		}
	}
}

func TestWhatTheEngineSays(t *testing.T) {
	r := record(approvals.Pending)
	r.Engine = approvals.Judgement{Risk: "high"}
	c := New(r, "")
	if got := field(c.Details, "Analysis"); !slices.Equal(got, []string{"high risk"}) {
		t.Errorf("%q", got)
	}
	if !slices.Contains(c.Warn, "The agent called this harmless. It isn't proven to only read (high risk).") {
		t.Errorf("%q", c.Warn)
	}
	r.Engine.Effects, r.Engine.Reasons = []string{"a", "b"}, []string{"it deletes a directory", "y"}
	if got := field(details(r, ""), "Analysis"); !slices.Equal(got, []string{"high risk (a, b): it deletes a directory; y"}) {
		t.Errorf("%q", got)
	}
	if w := New(r, "").Warn; !slices.Contains(w, "The agent called this harmless. It deletes a directory.") {
		t.Errorf("%q", w)
	}
	if r.Level = "critical"; !slices.Contains(field(details(r, ""), "Analysis"), "high risk, raised to critical (a, b): it deletes a directory; y") {
		t.Errorf("%q", details(r, ""))
	}
}

func TestWhoMayDecideWhenNobodyDoes(t *testing.T) {
	r := record(approvals.Pending)
	r.Require.Needs[0].Escalate = []approvals.Step{{After: time.Minute, Groups: []string{"sre"}}, {After: 2 * time.Minute, Groups: []string{"lead", "cto"}}}
	steps := []string{"from 03:05:05 UTC also sre", "from 03:06:05 UTC also lead, cto"}
	for taken := range 3 {
		r.Require.Needs[0].Taken = taken
		if got := field(details(r, ""), "If nobody decides"); !slices.Equal(got, steps[taken:]) {
			t.Errorf("after %d steps: %q", taken, got)
		}
	}
	r.Require.Needs[0].Taken, r.State = 0, approvals.Approved
	if got := field(details(r, ""), "If nobody decides"); len(got) > 0 {
		t.Errorf("after the decision: %q", got)
	}
}

func TestStepsAreShownWhole(t *testing.T) {
	a := approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Steps: []approvals.Action{
		{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("a\nb")}, {Tool: "write_file", Kind: approvals.KindChange, Target: "web-1", Path: "/x", Bytes: []byte("c")},
	}}
	const want = "1. Run a command\n    a\n    b\n2. Change x, target web-1, file /x\n    c"
	if code, _ := shown(a); code != want {
		t.Errorf("%q", code)
	}
}

func TestLength(t *testing.T) {
	change := func(text string) approvals.Action {
		return approvals.Action{Kind: approvals.KindChange, Bytes: []byte(text)}
	}
	shell := func(text string) approvals.Action {
		return approvals.Action{Kind: approvals.KindShell, Bytes: []byte(text)}
	}
	for _, tc := range []struct {
		a    approvals.Action
		want string
	}{
		{change("a\nb\n"), "2 lines, 4 bytes"},
		{change("a\nb"), "2 lines, 3 bytes, no newline at the end"},
		{change("a\n"), "1 line, 2 bytes"},
		{change("a"), "1 line, 1 bytes, no newline at the end"},
		{approvals.Action{Tool: "kill", Kind: approvals.KindChange, Args: json.RawMessage(`{}`)}, ""},
		{shell("a"), ""},
		{shell("a\n"), ""},
		{shell("a\nb"), "2 lines, 3 bytes"},
		{shell("a\nb\n"), "2 lines, 4 bytes"},
		{shell(""), ""},
		{approvals.Action{Kind: approvals.KindChange, Bytes: []byte("a"), Preview: "+a", Whole: true}, ""},
	} {
		if got := length(tc.a); got != tc.want {
			t.Errorf("%q: %q", tc.a.Bytes, got)
		}
	}
}

func TestReviewCards(t *testing.T) {
	r := record(approvals.Approved)
	r.Reason = "the disk is full"
	if s := New(r, "").Body; strings.Contains(s, "glass") {
		t.Errorf("an ordinary approval: %q", s)
	}
	r.Review.Due = true
	if s := New(r, "").Body; !strings.Contains(s, "alone (break glass): the disk is full") {
		t.Errorf("%q", s)
	}
	due := Review(r)
	if due.Final || len(due.Choose) != 1 || due.Choose[0].ID != button(ReviewPrefix, r) || due.Body != "bob approved this alone at 03:05 UTC (break glass): the disk is full" || len(due.Warn) != 1 {
		t.Errorf("%+v", due)
	}
	r.By.Name = ""
	if s := Review(r).Body; !strings.HasPrefix(s, "web:bob approved this alone") {
		t.Errorf("%q", s)
	}
	r.Review = approvals.Review{By: chat.User{ID: "web:eve", Name: "eve"}, At: r.Decided}
	if s := New(r, "").Body; !strings.Contains(s, "(break glass)") {
		t.Errorf("after the review: %q", s)
	}
	if c := Review(r); !c.Final || len(c.Choose) > 0 || !strings.HasSuffix(c.Body, "\nReviewed by eve at 03:05 UTC") || len(c.Warn) > 0 {
		t.Errorf("%+v", c)
	}
	r.Review.Note = "it was right"
	if s := Review(r).Body; !strings.HasSuffix(s, "UTC: it was right") {
		t.Errorf("%q", s)
	}
}
