package slackfake

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func times(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func x(n int) string { return strings.Repeat("x", n) }

func section(n int) string {
	return `{"type":"section","text":{"type":"mrkdwn","text":"` + x(n) + `"}}`
}

func button(extra string) string {
	return `{"type":"button","text":{"type":"plain_text","text":"Go"}` + extra + `}`
}

func actions(els string) string { return `{"type":"actions","elements":[` + els + `]}` }

func rich(els string) string { return `{"type":"rich_text","elements":[` + els + `]}` }

func TestBlockRules(t *testing.T) {
	ids := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, button(fmt.Sprintf(`,"action_id":"a%d"`, i)))
		}
		return strings.Join(out, ",")
	}
	confirm := func(field string, n int) string {
		all := map[string]string{"title": "t", "text": "t", "confirm": "t", "deny": "t"}
		all[field] = x(n)
		var parts []string
		for k, v := range all {
			parts = append(parts, fmt.Sprintf(`%q:{"type":"plain_text","text":%q}`, k, v))
		}
		return actions(button(`,"confirm":{` + strings.Join(parts, ",") + `}`))
	}
	pre := func(leaf string) string { return rich(`{"type":"rich_text_preformatted","elements":[` + leaf + `]}`) }
	table := func(rows, cells int) string {
		return `{"type":"table","rows":[` + times(rows, "["+times(cells, `{"type":"raw_text","text":"c"}`)+"]") + `]}`
	}
	text := `{"type":"text","text":"a"}`
	for _, c := range []struct {
		name, blocks, code, message string
	}{
		{"50 blocks", times(50, section(1)), "", ""},
		{"51 blocks", times(51, section(1)), "invalid_blocks", "no more than 50 items allowed [json-pointer:/blocks]"},
		{"section of 3000", section(3000), "", ""},
		{"section of 3001", section(3001), "invalid_blocks", "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"},
		{"section of 0", section(0), "invalid_blocks", "must be more than 0 characters"},
		{"section without text", `{"type":"section"}`, "invalid_blocks", "missing required field: text"},
		{"section with 10 fields", `{"type":"section","fields":[` + times(10, `{"type":"mrkdwn","text":"f"}`) + `]}`, "", ""},
		{"section with 11 fields", `{"type":"section","fields":[` + times(11, `{"type":"mrkdwn","text":"f"}`) + `]}`, "invalid_blocks", "no more than 10 items"},
		{"field of 2001", `{"type":"section","fields":[{"type":"mrkdwn","text":"` + x(2001) + `"}]}`, "invalid_blocks", "must be less than 2001"},
		{"header of 150", `{"type":"header","text":{"type":"plain_text","text":"` + x(150) + `"}}`, "", ""},
		{"header of 151", `{"type":"header","text":{"type":"plain_text","text":"` + x(151) + `"}}`, "invalid_blocks", "must be less than 151"},
		{"header in mrkdwn", `{"type":"header","text":{"type":"mrkdwn","text":"x"}}`, "invalid_blocks", "failed to match all allowed schemas"},
		{"context of 10", `{"type":"context","elements":[` + times(10, `{"type":"mrkdwn","text":"f"}`) + `]}`, "", ""},
		{"context of 11", `{"type":"context","elements":[` + times(11, `{"type":"mrkdwn","text":"f"}`) + `]}`, "invalid_blocks", "no more than 10 items"},
		{"25 buttons", actions(ids(25)), "", ""},
		{"26 buttons", actions(ids(26)), "invalid_blocks", "no more than 25 items allowed [json-pointer:/blocks/0/elements]"},
		{"no buttons", actions(""), "invalid_blocks", "no fewer than 1 items"},
		{"button text of 76", actions(`{"type":"button","text":{"type":"plain_text","text":"` + x(76) + `"}}`), "invalid_blocks", "must be less than 76"},
		{"button value of 2000", actions(button(`,"value":"` + x(2000) + `"`)), "", ""},
		{"button value of 2001", actions(button(`,"value":"` + x(2001) + `"`)), "invalid_blocks", "must be less than 2001"},
		{"button url of 3001", actions(button(`,"url":"` + x(3001) + `"`)), "invalid_blocks", "must be less than 3001"},
		{"button style", actions(button(`,"style":"green"`)), "invalid_blocks", "must be a valid enum value"},
		{"button without text", actions(`{"type":"button"}`), "invalid_blocks", "missing required field: text"},
		{"action_id of 256", actions(button(`,"action_id":"` + x(256) + `"`)), "invalid_blocks", "must be less than 256"},
		{"the same action_id twice in a block", actions(times(2, button(`,"action_id":"a"`))), "invalid_blocks", "already exists"},
		{"the same action_id in two blocks", times(2, actions(button(`,"action_id":"a"`))), "", ""},
		{"the same block_id twice", times(2, `{"type":"divider","block_id":"b"}`), "invalid_blocks", "already exists"},
		{"block_id of 256", `{"type":"divider","block_id":"` + x(256) + `"}`, "invalid_blocks", "must be less than 256"},
		{"confirm title of 101", confirm("title", 101), "invalid_blocks", "must be less than 101"},
		{"confirm text of 300", confirm("text", 300), "", ""},
		{"confirm text of 301", confirm("text", 301), "invalid_blocks", "must be less than 301"},
		{"confirm button of 31", confirm("confirm", 31), "invalid_blocks", "must be less than 31"},
		{"deny button of 31", confirm("deny", 31), "invalid_blocks", "must be less than 31"},
		{"unknown block", `{"type":"poem"}`, "invalid_blocks", "unsupported type: poem [json-pointer:/blocks/0/type]"},
		{"the newer blocks are not for posts", `{"type":"card","title":{"type":"mrkdwn","text":"x"}}`, "invalid_blocks", "unsupported type: card"},
		{"unknown field", `{"type":"divider","color":"red"}`, "invalid_blocks", "invalid additional property: color"},
		{"no type", `{}`, "invalid_blocks", "unsupported type"},
		{"a block that is no object", `"x"`, "invalid_blocks", "unsupported type"},
		{"emoji in mrkdwn", `{"type":"section","text":{"type":"mrkdwn","text":"x","emoji":true}}`, "invalid_blocks", "invalid additional property: emoji"},
		{"verbatim in plain_text", `{"type":"section","text":{"type":"plain_text","text":"x","verbatim":true}}`, "invalid_blocks", "invalid additional property: verbatim"},
		{"image", `{"type":"image","image_url":"https://x","alt_text":"x"}`, "", ""},
		{"image without a source", `{"type":"image","alt_text":"x"}`, "invalid_blocks", "missing required field: image_url"},
		{"preformatted", pre(text), "", ""},
		{"preformatted with a border", rich(`{"type":"rich_text_preformatted","border":0,"elements":[` + text + `]}`), "", ""},
		{"a mention in preformatted", pre(`{"type":"user","user_id":"U1"}`), "invalid_blocks", "unsupported type: user"},
		{"empty text in rich_text", pre(`{"type":"text","text":""}`), "invalid_blocks", "must be more than 0"},
		{"styles", rich(`{"type":"rich_text_section","elements":[{"type":"text","text":"a","style":{"bold":true,"code":true}}]}`), "", ""},
		{"unknown style", rich(`{"type":"rich_text_section","elements":[{"type":"text","text":"a","style":{"blink":true}}]}`), "invalid_blocks", "additional property: blink"},
		{"list", rich(`{"type":"rich_text_list","style":"bullet","indent":1,"elements":[{"type":"rich_text_section","elements":[` + text + `]}]}`), "", ""},
		{"list style", rich(`{"type":"rich_text_list","style":"stars","elements":[]}`), "invalid_blocks", "must be a valid enum value"},
		{"text straight in a list", rich(`{"type":"rich_text_list","style":"bullet","elements":[` + text + `]}`), "invalid_blocks", "unsupported type: text"},
		{"quote", rich(`{"type":"rich_text_quote","elements":[` + text + `]}`), "", ""},
		{"broadcast range", rich(`{"type":"rich_text_section","elements":[{"type":"broadcast","range":"all"}]}`), "invalid_blocks", "valid enum"},
		{"text straight in rich_text", rich(text), "invalid_blocks", "unsupported type: text"},
		{"table of 100 by 20", table(100, 20), "", ""},
		{"table of 101 rows", table(101, 1), "invalid_blocks", "no more than 100 items"},
		{"table of 21 cells", table(1, 21), "invalid_blocks", "no more than 20 items"},
		{"an empty cell", `{"type":"table","rows":[[{"type":"raw_text","text":""}]]}`, "invalid_blocks", "must be more than 0"},
		{"two tables", times(2, table(1, 1)), "invalid_attachments", "only_one_table_allowed"},
		{"markdown of 12000", `{"type":"markdown","text":"` + x(12000) + `"}`, "", ""},
		{"markdown of 12001 in two blocks", times(2, `{"type":"markdown","text":"`+x(6001)+`"}`), "msg_too_long", ""},
		{"much text in few blocks", times(4, section(3000)), "", ""},
		{"too much text in all blocks", times(5, section(2800)), "msg_blocks_too_long", ""},
		{"many blocks leave less room", times(40, section(300)), "msg_blocks_too_long", ""},
		{"input", `{"type":"input","label":{"type":"plain_text","text":"l"},"element":{"type":"plain_text_input"}}`, "", ""},
		{"button as input", `{"type":"input","label":{"type":"plain_text","text":"l"},"element":` + button("") + `}`, "invalid_blocks", "unsupported type: button"},
		{"a modal's input in actions", actions(`{"type":"plain_text_input"}`), "invalid_blocks", "unsupported type: plain_text_input"},
		{"select with 101 options", actions(`{"type":"static_select","options":[` + times(101, `{"text":{"type":"plain_text","text":"o"},"value":"v"}`) + `]}`), "invalid_blocks", "no more than 100"},
		{"accessory", `{"type":"section","text":{"type":"mrkdwn","text":"x"},"accessory":` + button("") + `}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, code, msgs := checkBlocks("["+c.blocks+"]", surfaceMessage)
			if code != c.code || !strings.Contains(strings.Join(msgs, "\n"), c.message) {
				t.Errorf("got %q %q, want %q %q", code, msgs, c.code, c.message)
			}
		})
	}
}

func TestARefusalExplainsItselfInResponseMetadata(t *testing.T) {
	s, _ := world(t, Config{})
	a := form(t, s, "chat.postMessage", "channel", "C1", "blocks", "["+section(3001)+"]")
	mustFail(t, a, "invalid_blocks")
	want := "[ERROR] must be less than 3001 characters [json-pointer:/blocks/0/text/text]"
	if got := jsonOf(t, a.at("response_metadata.messages")); got != jsonOf(t, []string{want}) {
		t.Errorf("got %s", got)
	}
	if len(s.Messages("C1", "")) != 0 {
		t.Error("a refused message was stored")
	}
}

func TestViewRules(t *testing.T) {
	input := `{"type":"input","label":{"type":"plain_text","text":"l"},"element":{"type":"plain_text_input","initial_value":"%s"}}`
	view := func(title, extra, blocks string) string {
		return `{"type":"modal","title":{"type":"plain_text","text":"` + title + `"}` + extra + `,"blocks":[` + blocks + `]}`
	}
	submit := func(n int) string { return `,"submit":{"type":"plain_text","text":"` + x(n) + `"}` }
	for _, c := range []struct{ name, view, message string }{
		{"title of 24", view(x(24), "", section(1)), ""},
		{"title of 25", view(x(25), "", section(1)), "must be less than 25 characters [json-pointer:/view/title/text]"},
		{"submit of 25", view("t", submit(25), section(1)), "must be less than 25"},
		{"100 blocks", view("t", "", times(100, section(1))), ""},
		{"101 blocks", view("t", "", times(101, section(1))), "no more than 100 items"},
		{"private_metadata of 3001", view("t", `,"private_metadata":"`+x(3001)+`"`, section(1)), "must be less than 3001"},
		{"callback_id of 256", view("t", `,"callback_id":"`+x(256)+`"`, section(1)), "must be less than 256"},
		{"an input needs submit", view("t", "", fmt.Sprintf(input, "")), "missing required field: submit"},
		{"initial value of 3000", view("t", submit(1), fmt.Sprintf(input, x(3000))), ""},
		{"initial value of 3001", view("t", submit(1), fmt.Sprintf(input, x(3001))), "must be less than 3001"},
		{"no title", `{"type":"modal","blocks":[]}`, "missing required field: title"},
		{"unknown field", view("t", `,"color":"red"`, section(1)), "invalid additional property: color"},
		{"home type", `{"type":"home","blocks":[]}`, "must be a valid enum value"},
		{"table", view("t", "", `{"type":"table","rows":[]}`), "unsupported type: table"},
		{"no JSON", `{`, "missing required field: view"},
		{"label of 2001", view("t", submit(1), `{"type":"input","label":{"type":"plain_text","text":"`+x(2001)+`"},"element":{"type":"plain_text_input"}}`), "must be less than 2001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, msgs := checkView(c.view, "modal")
			got := strings.Join(msgs, "\n")
			if (c.message == "") != (got == "") || !strings.Contains(got, c.message) {
				t.Errorf("got %q, want %q", got, c.message)
			}
		})
	}
}

func TestLengthsAreCountedInCharacters(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringN(2990, 3010, -1).Draw(r, "text")
		blocks := []any{map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "text": text}}}
		js, err := json.Marshal(blocks)
		if err != nil {
			r.Fatal(err)
		}
		_, code, _ := checkBlocks(string(js), surfaceMessage)
		// Marshal replaces what is not UTF-8, one replacement for each bad byte, which is how RuneCount counts it.
		if fits := utf8.RuneCountInString(text) <= maxSectionText; fits != (code == "") {
			r.Fatalf("%d characters: %q", utf8.RuneCountInString(text), code)
		}
	})
}

func FuzzCheckBlocks(f *testing.F) {
	f.Add("[" + section(3) + "]")
	f.Add("[" + approve[1:])
	f.Add(`[{"type":"table","rows":[[{"type":"rich_text","elements":[]}]]}]`)
	f.Add(`{"a":1}`)
	f.Fuzz(func(t *testing.T, in string) {
		blocks, code, _ := checkBlocks(in, surfaceMessage)
		if code == "" && len(blocks) > maxMessageBlocks {
			t.Error("more than 50 blocks were let through")
		}
		Plain(json.RawMessage(in))
		Mentions(Msg{Text: in, Blocks: json.RawMessage(in)})
		findAction(json.RawMessage(in), "ok")
		checkView(in, "modal")
	})
}
