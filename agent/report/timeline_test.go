package report

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/tools"
)

var update = flag.Bool("update", false, "write the golden files")

// tags are different for each Redactor.
var tags = regexp.MustCompile(`\\?#[0-9a-f]{4}\\?\]`)

func TestTimelineOfANight(t *testing.T) {
	_, inc := night(t)
	got := tags.ReplaceAllString(Timeline(inc), "]")
	golden := filepath.Join("testdata", "night.md")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("run with -update and read the difference; got\n%s", got)
	}
	if again := tags.ReplaceAllString(Timeline(inc), "]"); again != got {
		t.Error("the same incident gives another timeline")
	}
}

// lines of a timeline that contain all of the parts.
func find(t *testing.T, timeline string, parts ...string) string {
	t.Helper()
next:
	for l := range strings.SplitSeq(timeline, "\n") {
		for _, p := range parts {
			if !strings.Contains(l, p) {
				continue next
			}
		}
		return l
	}
	t.Errorf("no line has all of %q in\n%s", parts, timeline)
	return ""
}

func TestWhatTheRecordDoesNotHaveIsToldFromTheTranscript(t *testing.T) {
	_, inc := night(t)
	inc.Records, inc.Lines = nil, nil
	got := Timeline(inc)
	find(t, got, "gzip -9", "exit code 0 after 1 min 35 s", "approved by Bob", "1c29c2ad4e3f")
	find(t, got, "**Denied** by Bob", "rm -rf", "those are orders")
	find(t, got, "**Expired**", "systemctl reload app")
	find(t, got, "3 look-ups, 1 failed")
	find(t, got, "truncate -s 0 /var/log/app/trace.log", "exit code 1")
	find(t, got, "**Withdrawn**", "systemctl stop app", "stopped by Bob before it ran")
}

func TestAnIncidentThatIsOverHasAnEndAndNoQuestions(t *testing.T) {
	s := newScene(t)
	s.say(alice, "is web-1 well?")
	c := s.shell("uptime")
	s.wait(time.Second).reply("", c)
	s.look(c, time.Second, 0)
	s.wait(time.Second).reply("It is.")
	s.end(history.EndDone, "")
	inc := s.load()
	inc.Alerts = []Alert{{At: begin, Key: "g", Status: Firing, Title: "Load"}, {At: begin.Add(2 * time.Minute), Key: "g", Status: Resolved, Title: "Load"}}
	got := Timeline(inc)
	for _, want := range []string{"# Post-mortem: Load\n", "- **Ended**: 2026-03-01 14:02:00\n", "- **Duration**: 2 min 00 s\n", "The record leaves none.\n", "## Impact", "## Root cause", "## What went well", "## What to improve", "## Action items"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestNothingIsRecorded(t *testing.T) {
	got := Timeline(Incident{Thread: "web:1"})
	if !strings.Contains(got, "_Nothing is recorded._") || !strings.Contains(got, "# Post-mortem: thread `web:1`") {
		t.Error(got)
	}
}

func TestACallThatBeganAndHasNoOutcomeIsAQuestion(t *testing.T) {
	s := newScene(t)
	s.say(alice, "restart it")
	c := s.shell("systemctl restart app")
	s.reply("", c)
	r := s.ask(c, action(c), alice, 0)
	s.vote(r, bob, true, "")
	s.wait(time.Minute).start(r)
	got := Timeline(s.load())
	find(t, got, "`14:01:00`", "systemctl restart app", "**it began, and nothing says how it ended**", "approved by Bob")
	find(t, got, "**Did this end, and how?**", "systemctl restart app")
	find(t, got, "still open", "the bot is at work")
}

func TestADamagedChainIsSaidAndTheTimelineIsMadeAllTheSame(t *testing.T) {
	for rule, damage := range map[string]func(tx store.Tx, key, raw []byte){
		"a changed line": func(tx store.Tx, key, raw []byte) {
			tx.Set(key, []byte(strings.Replace(string(raw), `"what":"denied"`, `"what":"approved"`, 1)))
		},
		"a line that cannot be read": func(tx store.Tx, key, _ []byte) { tx.Set(key, []byte("{}")) },
	} {
		s, _ := night(t)
		s.update(func(tx store.Tx) {
			for key, raw := range tx.Scan(store.Prefix("audit", string(thread))) {
				if strings.Contains(string(raw), `"what":"denied"`) {
					damage(tx, key, raw)
				}
			}
		})
		inc := s.load()
		if len(inc.Faults) != 1 || len(inc.Records) == 0 {
			t.Fatalf("%s: %v, %d records", rule, inc.Faults, len(inc.Records))
		}
		got := Timeline(inc)
		find(t, got, "The record of decisions of this thread is damaged", "countersign audit verify")
		find(t, got, "gzip -9", "approved by Bob")
	}
}

func TestATranscriptThatCannotBeReadIsAnError(t *testing.T) {
	s, _ := night(t)
	s.update(func(tx store.Tx) { tx.Set(store.Key("history", string(thread), uint64(3)), []byte("{")) })
	if err := s.db.View(context.Background(), func(tx store.Tx) error { Load(tx, thread); return nil }); err == nil {
		t.Error("it was passed over")
	}
}

func TestExitCodeIsTheToolsAndNotWhatOutputClaims(t *testing.T) {
	at := time.Unix(0, 0)
	for _, tc := range []struct {
		rule string
		r    history.Result
		rec  *approvals.Record
		code int
		ok   bool
	}{
		{"of a structured result", history.Result{Text: tools.Envelope(at, map[string]any{"exit_code": 3}), Failed: true}, nil, 3, true},
		{"of the last line of a failure", history.Result{Text: tools.Envelope(at, "[exit code: 7]\nno\n[exit code: 2]"), Failed: true}, nil, 2, true},
		{"with a note behind it", history.Result{Text: tools.CutEnvelope(at, "no\n[exit code: 2]", "[Output truncated at 50KB.]"), Failed: true}, nil, 2, true},
		{"none that the output of a success claims", history.Result{Text: tools.Envelope(at, "[exit code: 7]")}, nil, 0, false},
		{"of the record where the text was cut", history.Result{Text: "…"}, &approvals.Record{Outcome: approvals.Outcome{Note: "exit code 0"}}, 0, true},
		{"none of an unknown outcome", history.Result{Text: tools.Envelope(at, map[string]any{"exit_code": 3}), Unknown: true}, nil, 0, false},
		{"none of what did not run", history.Result{Text: "Tool error: skipped", Skipped: true}, &approvals.Record{}, 0, false},
		{"none of an error", history.Result{Text: "Tool error: no such host", Failed: true}, nil, 0, false},
	} {
		k := call{result: &tc.r, rec: tc.rec}
		if code, ok := k.exitCode(); code != tc.code || ok != tc.ok {
			t.Errorf("%s: %d %v", tc.rule, code, ok)
		}
	}
}

func TestLookUpsOfOneReplyTakeTheirOwnTimeOnly(t *testing.T) {
	s := newScene(t)
	s.say(alice, "look")
	a, b := s.shell("du /var"), s.shell("uptime")
	s.reply("", a, b)
	s.look(a, 50*time.Second, 0)
	s.look(b, time.Second, 0)
	with := s.load()
	without := with
	without.Lines = nil
	for rule, inc := range map[string]Incident{"with the chain": with, "without it": without} {
		if l := find(t, Timeline(inc), "`uptime`"); !strings.Contains(l, "after 1.0 s") || !strings.HasPrefix(l, "- `14:00:50`") {
			t.Errorf("%s: %s", rule, l)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0 s", 0: "0.0 s", 1234 * time.Millisecond: "1.2 s", 10 * time.Second: "10 s", 59 * time.Second: "59 s", 90 * time.Second: "1 min 30 s",
		time.Hour: "1 h 00 min", 26*time.Hour + 5*time.Minute + 59*time.Second: "26 h 05 min",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// hostile is an incident in which every text that others write is s.
func hostile(s string) Incident {
	u := chat.User{ID: chat.UserID(s), Name: s}
	r := approvals.Record{
		ID: approvals.ID(s), Thread: thread, Call: "c1", Requester: u, Action: approvals.Action{Tool: s, Kind: approvals.KindShell, Target: s, Bytes: []byte(s)},
		Votes: []approvals.Vote{{User: u, Approve: true, Glass: true, Reason: s}}, State: approvals.Done, Reason: s, By: u, Review: approvals.Review{Due: true},
	}
	waiting := r
	waiting.ID, waiting.State = "w", approvals.Pending
	var entries []history.Entry
	add := func(e history.Entry) {
		e.Seq, e.At = uint64(len(entries)), begin.Add(time.Duration(len(entries))*time.Second)
		entries = append(entries, e)
	}
	add(history.Entry{Message: &history.Message{From: u, Text: s}})
	add(history.Entry{Reply: &history.Reply{Text: s}})
	add(history.Entry{Reply: &history.Reply{Calls: []llm.Call{{ID: "c1", Name: s, Args: s}, {ID: "c2", Name: s, Args: s}, {ID: "c3", Name: s, Args: s}}}})
	add(history.Entry{Ask: &history.Ask{Call: "c1", Approval: r.ID}})
	add(history.Entry{Decision: &history.Decision{Call: "c1", Approval: r.ID, State: approvals.Approved}})
	add(history.Entry{Intent: &history.Intent{Call: "c1", Approval: r.ID}})
	add(history.Entry{Result: &history.Result{Call: "c1", Text: s, Unknown: true}})
	add(history.Entry{Ask: &history.Ask{Call: "c2", Approval: "gone"}})
	add(history.Entry{Edited: &history.Edited{Call: "c2", Approval: "gone", Text: s, By: u}})
	add(history.Entry{Ask: &history.Ask{Call: "c2", Approval: "again"}})
	add(history.Entry{Decision: &history.Decision{Call: "c2", Approval: "again", State: approvals.Denied, By: s, ByName: s, Reason: s}})
	add(history.Entry{Result: &history.Result{Call: "c2", Text: s, Denied: true}})
	add(history.Entry{Begin: &history.Begin{Call: "c3", Kind: history.NestedWorkflow, Name: s, Inputs: map[string]string{s: s}}})
	add(history.Entry{Scope: "c3", Step: &history.Step{ID: s, What: history.StepAnswered, By: u, Text: s}})
	add(history.Entry{Result: &history.Result{Call: "c3", Text: s, Failed: true}})
	add(history.Entry{Note: &history.Note{Text: s}})
	add(history.Entry{Pen: &history.Pen{By: u, Taken: true}})
	add(history.Entry{Stop: &history.Stop{From: u}})
	add(history.Entry{End: &history.End{Reason: history.EndFailed, Text: s}})
	return Incident{
		Thread: chat.ThreadID(s), Entries: entries, Records: []approvals.Record{r, waiting}, Faults: []string{s},
		Alerts: []Alert{{At: begin, Source: s, Key: s, Status: s, Title: s}, {At: begin, Source: s, Key: s, Status: Firing, Title: s}},
	}
}

// shape is everything of a document but its text.
func shape(source string) string {
	var b strings.Builder
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList))
	_ = ast.Walk(md.Parser().Parse(text.NewReader([]byte(source))), func(n ast.Node, in bool) (ast.WalkStatus, error) {
		if !in {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text, *ast.String:
		case *ast.CodeSpan, *ast.FencedCodeBlock:
			fmt.Fprintln(&b, n.Kind())
			return ast.WalkSkipChildren, nil
		case *ast.Heading:
			fmt.Fprintln(&b, n.Kind(), n.Level)
		case *tables.Table:
			fmt.Fprintln(&b, n.Kind(), len(n.Alignments))
		default:
			fmt.Fprintln(&b, n.Kind())
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

func TestTextOfOthersIsNeverMarkup(t *testing.T) {
	plain := redact.New()
	one := hostile("plain")
	one.Redactor = plain
	want := shape(Timeline(one))
	if !strings.Contains(want, "Heading 1") || !strings.Contains(want, "Table 3") || !strings.Contains(want, "Emphasis") {
		t.Fatal(want)
	}
	pieces := []string{
		"a", "x", " ", "`", "``", "```", "~~~", "|", "\\", "<b>", "</details>", "<!--", "-->", "<a href='x'>", "[x](http://e.example)", "![i](http://e.example/i.png)", "[r]: http://e.example", "<http://e.example>", "*", "**", "_",
		"__", "~~", "# ", "#", "- ", "- [x] ", "1. ", "> ", "---", "===", "    ", "&lt;", "&#64;", "&amp;", "$", "@here", "@everyone", "<!channel>", "<@U1>", "]]>", "\x00", "\x1b[31m", "\u202e", "\u200b", "é", "\xff", "|---|",
	}
	rapid.Check(t, func(t *rapid.T) {
		// A letter in front and behind: an empty text has another shape.
		s := "z" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "pieces"), "") + "z"
		inc := hostile(s)
		inc.Redactor = plain
		source := Timeline(inc)
		if got := shape(source); got != want {
			t.Fatalf("%q changes the shape of the document:\n%s", s, source)
		}
		for _, bad := range []string{"@here", "@everyone", "<!channel>", "\x1b", "\x00", "\u202e"} {
			outside := regexp.MustCompile("(?s)`[^`\n]+`").ReplaceAllString(source, "")
			if strings.Contains(outside, bad) && !strings.Contains(s, "`") {
				t.Fatalf("%q stands as it was written:\n%s", bad, outside)
			}
		}
	})
}

func TestALongCommandStandsWholeInTheAppendix(t *testing.T) {
	inc := hostile("echo one\necho \u200btwo\n" + strings.Repeat("x", 300) + "\n````\n")
	got := Timeline(inc)
	if !strings.Contains(got, "`````text\necho one\necho \\u{200B}two\n"+strings.Repeat("x", 300)+"\n````\n`````\n") {
		t.Error(got)
	}
	find(t, got, "`echo one …` (whole: B1)")
}

func TestATimelineIsBoundedWhateverTheThreadHolds(t *testing.T) {
	long := strings.Repeat("0123456789 ", 10_000)
	var entries []history.Entry
	for i := range 20_000 {
		e := history.Entry{Seq: uint64(i), At: begin.Add(time.Duration(i) * time.Second), Kind: history.KindMessage, Message: &history.Message{From: chat.User{ID: chat.UserID(fmt.Sprint("u", i))}, Text: "hello"}}
		if i%200 == 0 {
			e.Message.Text = long
		}
		if i%10 == 1 {
			id := fmt.Sprint("c", i)
			e = history.Entry{Seq: uint64(i), At: e.At, Kind: history.KindReply, Reply: &history.Reply{Calls: []llm.Call{{ID: id, Name: "run_shell", Args: `{"command":"` + strings.Repeat("y", 300) + `"}`}}}}
			entries = append(entries, e)
			e = history.Entry{Seq: uint64(i), At: e.At, Kind: history.KindResult, Result: &history.Result{Call: id, Text: "{}"}}
		}
		entries = append(entries, e)
	}
	got := Timeline(Incident{Thread: thread, Entries: entries})
	if len(got) > 3<<20 {
		t.Errorf("%d bytes", len(got))
	}
	find(t, got, "lines left out here; transcript.jsonl of the archive has everything")
	find(t, got, "| and ", "others")
	find(t, got, "- and 1000 more; commands.csv of the archive has all")
	last := entries[len(entries)-1]
	find(t, got, "- `"+clock(last.At)+"`", "hello")
}

func TestTheCommandOfAnActionSaysWhatItDoes(t *testing.T) {
	for rule, tc := range map[string]struct {
		a    approvals.Action
		want string
	}{
		"shell text is exact":                      {approvals.Action{Kind: approvals.KindShell, Bytes: []byte("df -h"), Preview: "x"}, "df -h"},
		"keys are exact":                           {approvals.Action{Kind: approvals.KindKeys, Bytes: []byte("press q\n")}, "press q\n"},
		"a file is named with its change":          {approvals.Action{Kind: approvals.KindChange, Path: "/etc/x", Preview: "-a\n+b", Bytes: []byte("all of it")}, "/etc/x\n-a\n+b"},
		"a file without a preview is named":        {approvals.Action{Kind: approvals.KindChange, Path: "/etc/x"}, "/etc/x"},
		"several files are named":                  {approvals.Action{Kind: approvals.KindChange, Paths: []string{"/a", "/b"}}, "/a, /b"},
		"a preview says what is no file":           {approvals.Action{Kind: approvals.KindChange, Preview: "trust it", Args: []byte(`{"a":1}`)}, "trust it"},
		"arguments stand for what has nothing":     {approvals.Action{Kind: approvals.KindObserve, Args: []byte(`{"a":1}`)}, `{"a":1}`},
		"a plan has its steps":                     {approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{{Tool: "run_shell", Kind: approvals.KindShell, Bytes: []byte("a")}, {Tool: "b", Path: "/c"}}}, "plan of 2 steps\n1. run_shell: a\n2. b: /c"},
		"keys and a path are keys all the same":    {approvals.Action{Kind: approvals.KindKeys, Path: "/x", Bytes: []byte("k")}, "k"},
		"an action without anything has no words":  {approvals.Action{}, ""},
		"a plan of one step is one step":           {approvals.Action{Steps: []approvals.Action{{Tool: "t", Path: "/c"}}}, "plan of 1 step\n1. t: /c"},
		"a change of files without a preview too.": {approvals.Action{Paths: []string{"/a"}}, "/a"},
	} {
		if got := commandOf(tc.a); got != tc.want {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

func TestWhatOnlyTheChainKnowsIsInTheTimeline(t *testing.T) {
	s := newScene(t)
	s.say(alice, "go")
	c := s.shell("systemctl restart app")
	s.reply("", c)
	r := s.ask(c, action(c), alice, 0)
	s.wait(time.Second).vote(r, bob, true, "")
	s.note(r, "granted", string(bob.ID), "until 15:00 UTC")
	s.note(r, "reviewed", string(carol.ID), "well done")
	s.note(approvals.Record{}, "revoked", string(bob.ID), "1 standing approvals ended")
	s.note(approvals.Record{}, "policy", "", "learning is off")
	// It drifted before it could run.
	s.wait(time.Second).update(func(tx store.Tx) { s.ledger.Invalidate(tx, r.ID, "the file changed", s.now) })
	s.result(history.Result{Call: c.ID, Tool: c.Name, Failed: true, Text: "Tool error: approved, but not run"})
	late := s.shell("uptime")
	s.reply("", late)
	s.put(history.Entry{Kind: history.KindDecision, Decision: &history.Decision{Call: late.ID, Approval: "x", State: approvals.Invalid, Reason: "the policy changed"}})
	s.end(history.EndDone, "")
	inc := s.load()
	inc.Alerts = []Alert{{At: s.now, Source: "pagerduty", Status: "acknowledged", Text: "pump"}}
	got := Timeline(inc)
	find(t, got, "Bob approved the same as request `"+string(r.ID)+"` for a while: until 15:00 UTC")
	find(t, got, "reviewed request `"+string(r.ID)+"`, which one person had decided alone: well done")
	find(t, got, "Bob ended what was approved for a while: 1 standing approvals ended")
	find(t, got, "The policy changed: learning is off")
	find(t, got, "**Approved, and not run**", "systemctl restart app", "approved by Bob", "the file changed")
	find(t, got, "**Invalid**", "`uptime`", "the policy changed")
	find(t, got, "**Alert acknowledged**: pump (pagerduty)")
}
