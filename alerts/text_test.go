package alerts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
	"countersign/adapters/discord/embed"
	"countersign/adapters/slack/blockkit"
	"countersign/alerts/notice"
)

// hostile draws texts that want to be more than text.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"<!channel> @everyone <@U1> <#C1>", "**bold** [a](https://evil.example) ![x](y)", "| a | b |\n|---|---|", "```\ncode", "<b>&amp;",
			"https://evil.example/x?a=b", "> quote\n# head\n- item\n1. one", "\u202egnp.exe\u2066", "a\\*b\\", "\u200b\u200b\u200b", "__init__ ~~x~~ `y`", "=== end of the alert ===",
			strings.Repeat("*_`", 700), strings.Repeat("\u200b", 700), strings.Repeat("€", 700), strings.Repeat("👩‍👩‍👧", 100),
		}),
		rapid.String(),
	)
}

func drawNotice(t *rapid.T) notice.Notice {
	n := notice.Notice{
		Source: rapid.SampledFrom(notice.Sources()).Draw(t, "source"), Key: "k", Status: notice.Firing,
		Title: hostile().Draw(t, "title"), Text: hostile().Draw(t, "text"), Change: hostile().Draw(t, "change"),
		URL:    rapid.SampledFrom([]string{"", "https://a.example/x?y=1&z=%20#f", "https://a.example/" + strings.Repeat("a", 1900)}).Draw(t, "url"),
		Labels: rapid.MapOfN(hostile(), hostile(), 0, 30).Draw(t, "labels"), More: rapid.IntRange(0, 5).Draw(t, "more"), At: time.Now(),
	}
	for i := range rapid.IntRange(0, 30).Draw(t, "alerts") {
		n.Alerts = append(n.Alerts, notice.Alert{
			Fingerprint: fmt.Sprint(i), Status: rapid.SampledFrom([]notice.Status{notice.Firing, notice.Resolved}).Draw(t, "status"),
			Title: hostile().Draw(t, "alert title"), Text: hostile().Draw(t, "alert text"), Labels: rapid.MapOfN(hostile(), hostile(), 0, 5).Draw(t, "alert labels"),
		})
	}
	return n
}

func plain(s string) string { return s }

// TestARootIsOneMessageEverywhere: whatever an alert says, each network shows the
// first message of its thread as one, and so does each edit.
func TestARootIsOneMessageEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newEpisode(nil, "id", Place{Channel: "web"}, time.Now())
		g.Last = newEntry(drawNotice(t), plain)
		for range rapid.SampledFrom([]int{0, 0, 1, 200}).Draw(t, "members") {
			g.Members = append(g.Members, member{ID: "a", Title: g.Last.Notice.Title, Source: "Alertmanager", Firing: true})
		}
		g.More = rapid.IntRange(0, 2).Draw(t, "more")
		for _, firing := range []bool{true, false} {
			g.Firing, g.Ended = firing, time.Now()
			for _, text := range []string{g.face(), g.plainFace()} {
				if n := embed.Reply(text, nil); len(n) != 1 || len(n[0].Files) > 0 {
					t.Fatalf("on Discord it is %d messages: %q", len(n), text)
				}
				if n := blockkit.Reply(text, nil); len(n) != 1 || len(n[0].Files) > 0 {
					t.Fatalf("on Slack it is %d messages: %q", len(n), text)
				}
				if p := g.root(text); !p.Opens() || p.Heading(100) == "" {
					t.Fatalf("it opens no thread: %q", text)
				}
			}
		}
	})
}

// TestTheTextOfAnAlertIsShownAsItIs: escaped, it is that text and no markup.
func TestTheTextOfAnAlertIsShownAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := hostile().Draw(t, "text")
		want := strings.Join(strings.Fields(visible.Text(s)), " ")
		blocks := markdown.Parse("- x: " + escaped(s, 1<<20))
		if want == "" {
			return
		}
		if len(blocks) != 1 || blocks[0].Kind != markdown.List || len(blocks[0].Items) != 1 {
			t.Fatalf("it became %+v", blocks)
		}
		for _, span := range blocks[0].Items[0].Spans {
			if span.Link != "" || span.Bold || span.Italic || span.Strike || span.Code {
				t.Fatalf("it became markup: %+v", span)
			}
		}
		if got := markdown.Plain(blocks); got != "- x: "+want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// TestAnAlertCannotEndItsQuotation: what the bot is asked has its two lines once,
// and is not too long.
func TestAnAlertCannotEndItsQuotation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newEpisode(nil, "id", Place{Channel: "web"}, time.Now())
		g.Last = newEntry(drawNotice(t), plain)
		for i := range rapid.SampledFrom([]int{0, 0, 3, 200}).Draw(t, "members") {
			g.Members = append(g.Members, member{ID: fmt.Sprint(i), Title: g.Last.Notice.Title, Source: "Alertmanager", Firing: true})
		}
		q := g.question()
		if strings.Count(q, "===") != 4 || strings.Count(q, "\n=== end of the alert ===\n") != 1 || len(q) > eventRoom+2000 {
			t.Fatalf("the question of %d bytes is %q", len(q), q)
		}
		if !strings.Contains(q, "by looking only") {
			t.Fatalf("the request is missing: %q", q)
		}
	})
}

// TestAMixedGroupSaysWhatFiresAndWhatIsOver, with the links of what fires.
func TestAMixedGroupSaysWhatFiresAndWhatIsOver(t *testing.T) {
	alert := func(status notice.Status, name, summary, url string) notice.Alert {
		return notice.Alert{Fingerprint: name, Status: status, Title: summary, URL: url, Labels: map[string]string{"alertname": name, "test": "true"}}
	}
	g := newEpisode(nil, "id", Place{Channel: "web"}, time.Now())
	n := notice.Notice{Source: notice.Grafana, Status: notice.Firing, Title: "B, C", URL: "https://g.example/b", Labels: map[string]string{"test": "true"}, Alerts: []notice.Alert{
		alert(notice.Resolved, "A", "failure on a", "https://g.example/a"), alert(notice.Firing, "B", "Testing", "https://g.example/b"), alert(notice.Firing, "C", "C", "https://g.example/c"),
	}}
	before := newEntry(n, plain)
	g.Last = before
	face := g.face()
	for _, want := range []string{"- firing: B\\: Testing\n", "- firing: C <https://g.example/c>\n", "- resolved: A\\: failure on a\n"} {
		if !strings.Contains(face, want) {
			t.Errorf("%q is missing in\n%s", want, face)
		}
	}
	n.Alerts = []notice.Alert{n.Alerts[0], n.Alerts[2], alert(notice.Resolved, "B", "Testing", "")}
	if got, want := changed(before, newEntry(n, plain)), "Now 1 firing, 2 resolved. Resolved: B\\: Testing."; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestLinesOfAFloodFitOneMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &group{Stage: live}
		before := newEntry(drawNotice(t), plain)
		for range 5 {
			e := newEntry(drawNotice(t), plain)
			g.addLine(changed(before, e))
			before = e
		}
		if len(g.Lines) != keptLines || g.Folded != 2 {
			t.Fatalf("%d lines and %d more", len(g.Lines), g.Folded)
		}
		if n := embed.Reply(g.lines(), nil); len(n) > 3 {
			t.Fatalf("it is %d messages: %q", len(n), g.lines())
		}
	})
}

func TestDurationsReadLikeWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 12 * time.Minute: "12 min", 90 * time.Minute: "1 h 30 min", 50 * time.Hour: "2 days",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// How bad it is, is in the first line: what the sender calls it, or the worst of the alerts that fire.
func TestTheHeadlineSaysHowBadItIs(t *testing.T) {
	one := func(status notice.Status, severity string) notice.Alert {
		return notice.Alert{Status: status, Labels: map[string]string{"severity": severity}}
	}
	for _, tc := range []struct {
		n    notice.Notice
		want string
	}{
		{notice.Notice{Labels: map[string]string{"severity": "critical"}}, "**🔴 Critical: x**"},
		{notice.Notice{Labels: map[string]string{"priority": "P1"}}, "**🔴 P1: x**"},
		{notice.Notice{Labels: map[string]string{"severity": "*bad*"}}, "**🔴 \\*bad\\*: x**"},
		{notice.Notice{Labels: map[string]string{"severity": "none"}}, "**🔴 Firing: x**"},
		{notice.Notice{}, "**🔴 Firing: x**"},
		{notice.Notice{Alerts: []notice.Alert{one(notice.Firing, "warning"), one(notice.Firing, "Critical"), one(notice.Firing, "info")}}, "**🔴 Critical: x**"},
		{notice.Notice{Alerts: []notice.Alert{one(notice.Firing, "warning"), one(notice.Resolved, "critical")}}, "**🔴 Warning: x**"},
	} {
		tc.n.Title = "x"
		g := group{Firing: true, Last: entry{Notice: tc.n}}
		if got, _, _ := strings.Cut(g.face(), "\n"); got != tc.want {
			t.Errorf("%+v: %s", tc.n, got)
		}
		list := group{Firing: true}
		list.addMember(&g, time.Time{})
		if got := list.face(); !strings.Contains(got, "- "+strings.Trim(tc.want, "*")+" (") {
			t.Errorf("in a list: %s", got)
		}
		g.Firing = false
		if got, _, _ := strings.Cut(g.face(), "\n"); got != "**✅ Resolved: x**" {
			t.Errorf("resolved: %s", got)
		}
	}
	worse := changed(entry{Notice: notice.Notice{Labels: map[string]string{"severity": "warning"}}}, entry{Notice: notice.Notice{Labels: map[string]string{"severity": "critical"}}})
	if worse != "Now critical." {
		t.Errorf("%s", worse)
	}
}
