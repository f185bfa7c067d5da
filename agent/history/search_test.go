package history

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
)

func searched(t testing.TB) []Entry {
	l := log{}
	l.add(say("alice", "The shop shows 502 since 7.\nIt began with the deploy of Build 4711."))                                                             // 0
	l.add(ask(run("c1", "journalctl -u shop | tail -3")))                                                                                                   // 1
	l.add(result("c1", envelope(t, "one\nOOM-killed: process 4242 (java) in \"/srv/shop\"\nthree")))                                                        // 2
	l.add(ask(run("c2", "systemctl restart shop")))                                                                                                         // 3
	l.add(Entry{Kind: KindDecision, Decision: &Decision{Call: "c2", Approval: "abc", State: approvals.Denied, ByName: "bob", Reason: "wait for the dump"}}) // 4
	l.add(result("c2", envelope(t, map[string]any{"exit_code": 0, "stdout": "restarted\nwell", "stderr": ""})))                                             // 5
	l.add(Entry{Kind: KindNote, Note: &Note{Text: "bob typed free -m"}})                                                                                    // 6
	m := say("bob", "see the file")
	m.Message.Files = []chat.File{{Name: "heap.txt", Text: "OOM in heap at 0x10"}}
	l.add(m)                                                                     // 7
	l.add(Entry{Kind: KindReply, Reply: &Reply{Text: "It was the OOM killer."}}) // 8
	r := result("c9", envelope(t, "OOM found 3 times"))
	r.Result.Tool = searchTool
	l.add(r)                                                               // 9
	l.add(inScope("c2", result("c3", "Tool error: oom in a nested call"))) // 10
	return l.entries
}

func TestSearch(t *testing.T) {
	entries := searched(t)
	at := func(i int) time.Time { return entries[i].At }
	for name, tt := range map[string]struct {
		query string
		o     SearchOptions
		want  []uint64
		text  string // of the last hit
		total int
	}{
		"any kind, either case, newest last, and not what searches found": {"oom", SearchOptions{}, []uint64{2, 7, 8, 10}, "Tool error: oom in a nested call", 4},
		"messages with their files":                                       {"OOM", SearchOptions{Kind: SearchMessages}, []uint64{7}, "OOM in heap at 0x10", 1},
		"commands":                                                        {"restart", SearchOptions{Kind: SearchCommands}, []uint64{3}, `run_shell (call c2) {"command":"systemctl restart shop"}`, 1},
		"results, as they read":                                           {`(java) in "/srv/shop"`, SearchOptions{Kind: SearchResults}, []uint64{2}, `OOM-killed: process 4242 (java) in "/srv/shop"`, 1},
		"fields of an object":                                             {"stdout: \nrestarted", SearchOptions{}, []uint64{5}, "stdout: restarted", 1},
		"decisions":                                                       {"wait for", SearchOptions{Kind: SearchDecisions}, []uint64{4}, "denied request abc for the call c2: wait for the dump", 1},
		"an expression":                                                   {`/(?m)^OOM.*\d{4}/`, SearchOptions{}, []uint64{2}, `OOM-killed: process 4242 (java) in "/srv/shop"`, 1},
		"a slash alone is a text":                                         {"/", SearchOptions{Kind: SearchResults}, []uint64{2}, `OOM-killed: process 4242 (java) in "/srv/shop"`, 1},
		"from a time on":                                                  {"oom", SearchOptions{From: at(8)}, []uint64{8, 10}, "Tool error: oom in a nested call", 2},
		"up to a time":                                                    {"oom", SearchOptions{To: at(7)}, []uint64{2, 7}, "OOM in heap at 0x10", 2},
		"the newest come first in pages":                                  {"oom", SearchOptions{Limit: 2}, []uint64{8, 10}, "Tool error: oom in a nested call", 4},
		"and older ones follow":                                           {"oom", SearchOptions{Limit: 2, Offset: 2}, []uint64{2, 7}, "OOM in heap at 0x10", 4},
		"other scripts match too":                                         {"Ünicode", SearchOptions{}, nil, "", 0},
		"notes":                                                           {"typed free", SearchOptions{}, []uint64{6}, "bob typed free -m", 1},
		"everything":                                                      {"", SearchOptions{}, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 10}, "Tool error: oom in a nested call", 10},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Search(entries, tt.query, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			var seqs []uint64
			for _, h := range got.Hits {
				seqs = append(seqs, h.Seq)
			}
			if fmt.Sprint(seqs) != fmt.Sprint(tt.want) || got.Total != tt.total {
				t.Fatalf("%v of %d, want %v of %d", seqs, got.Total, tt.want, tt.total)
			}
			if n := len(got.Hits); n > 0 && got.Hits[n-1].Text != tt.text {
				t.Errorf("%q, want %q", got.Hits[n-1].Text, tt.text)
			}
		})
	}
	if _, err := Search(entries, "/(/", SearchOptions{}); err == nil {
		t.Error("no expression is accepted")
	}
}

func TestAnExcerptHoldsTheMatchAndIsShort(t *testing.T) {
	long := strings.Repeat("é", 500) + "NEEDLE" + strings.Repeat("ü", 500)
	got, err := Search([]Entry{say("a", "first\n"+long+"\nlast")}, "needle", SearchOptions{})
	if err != nil || len(got.Hits) != 1 {
		t.Fatal(got, err)
	}
	if h := got.Hits[0].Text; !strings.Contains(h, "éNEEDLEü") || len(h) > 400 || !utf8.ValidString(h) || strings.Contains(h, "last") {
		t.Errorf("%q", h)
	}
}

func TestReadGivesAnEntryInPages(t *testing.T) {
	entries := searched(t)
	p, err := Read(entries, 2, 4, 10)
	if err != nil || p.Text != "OOM-killed" || p.Next != 14 || p.Kind != "result" || p.Who != "run_shell (call c1)" {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := Read(entries, 5, 0, 1000); err != nil || p.Text != "exit_code: 0\nstdout: \nrestarted\nwell\n" || p.Next != 0 {
		t.Errorf("%+v %v", p, err)
	}
	for _, seq := range []uint64{9, 99} {
		if _, err := Read(entries, seq, 0, 10); !errors.Is(err, ErrNoEntry) {
			t.Errorf("entry %d: %v", seq, err)
		}
	}
}

// Pages put together are the whole entry, whatever their size.
func TestPagesMakeTheWholeEntry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ReplaceAll(rapid.StringOf(rapid.SampledFrom([]rune("aé日\n👩 "))).Draw(t, "text"), "\r", "")
		entries := []Entry{say("a", text)}
		limit := rapid.IntRange(1, 7).Draw(t, "limit")
		got, offset := "", 0
		for {
			p, err := Read(entries, 0, offset, limit)
			if err != nil {
				t.Fatal(err)
			}
			got += p.Text
			if p.Next == 0 {
				break
			}
			if p.Next <= offset {
				t.Fatalf("no progress at %d", offset)
			}
			offset = p.Next
		}
		if got != clean(text) {
			t.Fatalf("%q, want %q", got, text)
		}
	})
}

func FuzzSearch(f *testing.F) {
	f.Add("needle", `{"harness_timestamp":{"a":1},"result":"x needle"}`)
	f.Add("/a+/", "baab")
	f.Fuzz(func(t *testing.T, query, text string) {
		got, err := Search([]Entry{result("c", text), say("a", text)}, query, SearchOptions{})
		if err == nil && len(got.Hits) > 2 {
			t.Error("more hits than entries")
		}
	})
}
