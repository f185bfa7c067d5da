package slackfake

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPlainIsWhatPeopleRead(t *testing.T) {
	blocks := `[
	{"type":"header","text":{"type":"plain_text","text":"Restart <web>"}},
	{"type":"section","text":{"type":"mrkdwn","text":"By <@U1>, see <https://x.io|the log> &amp; <!channel>"}},
	{"type":"rich_text","elements":[
		{"type":"rich_text_preformatted","elements":[{"type":"text","text":"rm -rf <x>"}]},
		{"type":"rich_text_list","style":"bullet","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"one"}]},
			{"type":"rich_text_section","elements":[{"type":"user","user_id":"U2"}]}]}]},
	{"type":"table","rows":[[{"type":"raw_text","text":"a"},{"type":"raw_text","text":"b"}]]},
	{"type":"divider"},
	{"type":"markdown","text":"**done**"},
	{"type":"context","elements":[{"type":"mrkdwn","text":"r1"},{"type":"image","image_url":"https://y","alt_text":"face"}]},
	{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"Deny"}},{"type":"button","text":{"type":"plain_text","text":"Approve"}}]}]`
	want := "Restart <web>\nBy @U1, see the log & @channel\nrm -rf <x>\n- one\n- @U2\na | b\n---\n**done**\nr1 face\n[Deny] [Approve]"
	if got := Plain(json.RawMessage(blocks)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got := (Msg{Text: "a &lt; <https://x|b>"}).Plain(); got != "a < b" {
		t.Errorf("got %q", got)
	}
}

func TestMentionsAreWhatSlackMakesActive(t *testing.T) {
	section := func(text string) json.RawMessage {
		return json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","text":"` + text + `"}}]`)
	}
	for _, c := range []struct {
		name string
		msg  Msg
		want []string
	}{
		{"nothing", Msg{Text: "a &lt;@U1&gt; b @here #ops"}, nil},
		{"user", Msg{Text: "hi <@U1|ann>"}, []string{"user:U1"}},
		{"channel, group, everybody", Msg{Text: "<#C1|ops> <!subteam^S1|@dba> <!here>"}, []string{"broadcast:here", "channel:C1", "usergroup:S1"}},
		{"in code marks too", Msg{Text: "`<!channel>` ```<@U1>```"}, []string{"broadcast:channel", "user:U1"}},
		{"link with another text", Msg{Text: "<https://evil.io|https://bank.com>"}, []string{"link:https://evil.io|https://bank.com"}},
		{"mailto", Msg{Text: "<mailto:a@b.c|mail>"}, []string{"link:mailto:a@b.c|mail"}},
		{"no scheme is no link", Msg{Text: "<b> x </b>"}, nil},
		{"bare URL", Msg{Text: "see https://x.io/a?b=1&amp;c=2."}, []string{"link:https://x.io/a?b=1&c=2|https://x.io/a?b=1&c=2"}},
		{"bare URL with parse none", Msg{Text: "see https://x.io", Parse: "none"}, nil},
		{"bare broadcast with parse full", Msg{Text: "@here now", Parse: "full"}, []string{"broadcast:here"}},
		{"date with a link", Msg{Text: "<!date^1^{date}^https://x.io|then>"}, []string{"link:https://x.io|then"}},
		{"mrkdwn object", Msg{Blocks: section("<@U1> https://x.io @channel")}, []string{"broadcast:channel", "link:https://x.io|https://x.io", "user:U1"}},
		{"verbatim", Msg{Blocks: json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","verbatim":true,"text":"<@U1> https://x.io @channel"}}]`)}, []string{"user:U1"}},
		{"plain_text", Msg{Blocks: json.RawMessage(`[{"type":"header","text":{"type":"plain_text","text":"<!channel> https://x.io"}}]`)}, nil},
		{"rich_text", Msg{Blocks: json.RawMessage(`[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[
			{"type":"text","text":"<!channel> https://x.io"},{"type":"user","user_id":"U1"},{"type":"broadcast","range":"here"},
			{"type":"usergroup","usergroup_id":"S1"},{"type":"link","url":"https://y.io","text":"y"}]}]}]`)},
			[]string{"broadcast:here", "link:https://y.io|y", "user:U1", "usergroup:S1"}},
		{"markdown block", Msg{Blocks: json.RawMessage(`[{"type":"markdown","text":"[a](https://x.io) https://y.io <@U1>"}]`)},
			[]string{"link:https://x.io|a", "link:https://y.io|https://y.io", "user:U1"}},
		{"button with a link", Msg{Blocks: json.RawMessage(`[{"type":"actions","elements":[{"type":"button","url":"https://x.io","text":{"type":"plain_text","text":"Go"}}]}]`)},
			[]string{"link:https://x.io|Go"}},
		{"table", Msg{Blocks: json.RawMessage(`[{"type":"table","rows":[[{"type":"raw_text","text":"<@U1>"},{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"user","user_id":"U2"}]}]}]]}]`)},
			[]string{"user:U2"}},
		{"stream", Msg{Text: "[a](https://x.io)", Chunks: []json.RawMessage{}}, []string{"link:https://x.io|a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Mentions(c.msg); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEscapedTextIsNeverActive(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		raw := rapid.StringOf(rapid.SampledFrom([]rune("<>&|@#!U1: \n`ab"))).Draw(r, "text")
		var esc []rune
		for _, c := range raw {
			switch c {
			case '<':
				esc = append(esc, []rune("&lt;")...)
			case '>':
				esc = append(esc, []rune("&gt;")...)
			case '&':
				esc = append(esc, []rune("&amp;")...)
			default:
				esc = append(esc, c)
			}
		}
		m := Msg{Text: string(esc), Parse: "none"}
		if got := Mentions(m); len(got) > 0 {
			r.Fatalf("%q is active: %q", m.Text, got)
		}
		if m.Plain() != raw {
			r.Fatalf("%q reads as %q", raw, m.Plain())
		}
	})
}
