package discordfake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryVersionAndTokenThatIsNotRightIsRefused(t *testing.T) {
	p := play(t, Config{})
	for _, c := range []struct {
		rule, auth, path string
		status, code     int
	}{
		{"version 9", "Bot token", "/v9/users/@me", 200, 0},
		{"version 10", "Bot token", "/v10/users/@me", 200, 0},
		{"version 8", "Bot token", "/v8/users/@me", 400, 50041},
		{"no version", "Bot token", "/users/@me", 400, 50041},
		{"no token", "", "/v10/users/@me", 401, 0},
		{"a token without Bot", "token", "/v10/users/@me", 401, 0},
		{"a wrong token", "Bot no", "/v10/users/@me", 401, 0},
		{"the gateway needs no token", "", "/v10/gateway", 200, 0},
		{"a route that is not served", "Bot token", "/v10/voice/regions", 404, 0},
		{"an id that is no snowflake", "Bot token", "/v10/channels/abc", 400, 50035},
	} {
		if a := p.as(c.auth, "GET", c.path, nil); a.status != c.status || c.status >= 300 && a.code() != c.code {
			t.Errorf("%s: %d %s", c.rule, a.status, a.raw)
		}
	}
	if n := p.InvalidRequests(); n != 3 {
		t.Errorf("%d invalid requests", n)
	}
}

func TestReadsOfTheWorld(t *testing.T) {
	p := play(t, Config{Privileged: IntentMessageContent, InteractionsEndpoint: "https://example.com/hook", Private: true})
	role := p.AddRole(p.guild, Role{Name: "sre", Permissions: 0})
	p.AddMember(p.guild, p.ann, role)
	if a := p.good(p.do("GET", "/applications/@me", nil)); a.str("interactions_endpoint_url") == "" || a.at("bot_public").v != false || a.int("flags") != 1<<19 {
		t.Errorf("the application is %v", a.v)
	}
	p.good(p.do("GET", "/oauth2/applications/@me", nil))
	p.good(p.do("GET", "/users/"+p.ann, nil))
	p.good(p.do("GET", "/guilds/"+p.guild+"?with_counts=true", nil))
	if a := p.good(p.do("GET", "/users/@me/guilds", nil)); a.str("0.permissions") != permText(PermEveryone|PermBot) {
		t.Errorf("guilds are %v", a.v)
	}
	if a := p.good(p.do("GET", "/guilds/"+p.guild+"/members/"+p.ann, nil)); a.str("roles.0") != role {
		t.Errorf("the member is %v", a.v)
	}
	if a := p.good(p.do("GET", "/guilds/"+p.guild+"/roles", nil)); a.len() != 3 || a.str("0.name") != "@everyone" {
		t.Errorf("roles are %v", a.v)
	}
	if a := p.good(p.do("GET", "/guilds/"+p.guild+"/channels", nil)); a.len() != 1 {
		t.Errorf("channels are %v", a.v)
	}
	p.good(p.do("GET", "/channels/"+p.ch, nil))
	stranger := p.AddUser(User{})
	p.bad(p.do("GET", "/guilds/"+p.guild+"/members/"+stranger, nil), 404, 10007)
	p.bad(p.do("GET", "/guilds/"+p.guild+"/members/1", nil), 404, 10013)
	p.bad(p.do("GET", "/guilds/1", nil), 404, 10004)
	p.bad(p.do("GET", "/channels/1", nil), 404, 10003)
	p.bad(p.do("GET", "/users/1", nil), 404, 10013)
}

func TestAPostIsStoredShownAndDispatched(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	p.good(p.do("POST", "/channels/"+p.ch+"/typing", nil))
	if !p.Typing(p.ch) {
		t.Error("nobody sees the typing")
	}
	m := p.good(p.post(p.ch, card))
	if m.str("components.0.components.0.custom_id") != "yes" || m.int("components.0.components.1.id") != 3 || m.str("author.id") != p.BotID() {
		t.Errorf("the message is %v", m.v)
	}
	if e := a.want("MESSAGE_CREATE"); e.str("id") != m.str("id") || e.str("content") != "Approve?" {
		t.Errorf("the event is %v", e.v)
	}
	all := p.Shown(p.ch)
	if len(all) != 1 || all[0].Content != "Approve?" || !slices.Equal(all[0].Buttons(), []string{"yes", "no"}) || p.Typing(p.ch) {
		t.Errorf("people see %+v", all)
	}
	e := p.good(p.do("PATCH", "/channels/"+p.ch+"/messages/"+m.str("id"), `{"content":"Approved.","components":[]}`))
	if e.str("edited_timestamp") == "" || e.at("components").len() != 0 {
		t.Errorf("the edit is %v", e.v)
	}
	if all = p.Shown(p.ch); !all[0].Edited || all[0].Components != nil || all[0].Content != "Approved." {
		t.Errorf("people see %+v", all)
	}
	p.good(p.do("PATCH", "/channels/"+p.ch+"/messages/"+m.str("id"), `{"embeds":[{"description":"more"}]}`))
	if all = p.Shown(p.ch); all[0].Content != "Approved." || all[0].Embeds == nil {
		t.Errorf("an edit without content changed it: %+v", all)
	}
	p.good(p.do("PATCH", "/channels/"+p.ch+"/messages/"+m.str("id"), `{"embeds":null}`))
	if all = p.Shown(p.ch); all[0].Embeds != nil {
		t.Errorf("null did not remove the embeds: %+v", all)
	}
	p.bad(p.do("PATCH", "/channels/"+p.ch+"/messages/"+m.str("id"), `{"content":null}`), 400, 50006)
	p.good(p.do("DELETE", "/channels/"+p.ch+"/messages/"+m.str("id"), nil))
	p.bad(p.do("GET", "/channels/"+p.ch+"/messages/"+m.str("id"), nil), 404, 10008)
	p.bad(p.do("PATCH", "/channels/"+p.ch+"/messages/"+m.str("id"), `{"content":"x"}`), 404, 10008)
	p.bad(p.do("DELETE", "/channels/"+p.ch+"/messages/"+m.str("id"), nil), 404, 10008)
}

func row(buttons string) string {
	return `{"content":"x","components":[{"type":1,"components":[` + buttons + `]}]}`
}

func button(id, label string) string {
	return fmt.Sprintf(`{"type":2,"style":1,"custom_id":%q,"label":%q}`, id, label)
}

func list(n int, f func(int) string) string {
	var out []string
	for i := range n {
		out = append(out, f(i))
	}
	return strings.Join(out, ",")
}

func TestFormsThatDiscordRefuses(t *testing.T) {
	x := strings.Repeat
	for _, c := range []struct {
		rule, body string
		code       int    // 0: accepted
		path       string // of the inner error
		inner      string
	}{
		{"2000 characters", `{"content":"` + x("x", 2000) + `"}`, 0, "", ""},
		{"2001 characters", `{"content":"` + x("x", 2001) + `"}`, 50035, "content", "BASE_TYPE_MAX_LENGTH"},
		{"1001 characters outside the first plane", `{"content":"` + x("😀", 1001) + `"}`, 50035, "content", "BASE_TYPE_MAX_LENGTH"},
		{"nothing", `{}`, 50006, "", ""},
		{"only spaces", `{"content":"  \n"}`, 50006, "", ""},
		{"no JSON", `{`, 50109, "", ""},
		{"a list", `[]`, 50035, "", "MODEL_TYPE_CONVERT"},
		{"a number as content", `{"content":5}`, 50035, "content", "STRING_TYPE_CONVERT"},
		{"a title of 256", `{"embeds":[{"title":"` + x("x", 256) + `"}]}`, 0, "", ""},
		{"a title of 257", `{"embeds":[{"title":"` + x("x", 257) + `"}]}`, 50035, "embeds.0.title", "BASE_TYPE_MAX_LENGTH"},
		{"a description of 4097", `{"embeds":[{"description":"` + x("x", 4097) + `"}]}`, 50035, "embeds.0.description", "BASE_TYPE_MAX_LENGTH"},
		{"6000 in all embeds", `{"embeds":[{"description":"` + x("x", 4000) + `"},{"description":"` + x("x", 2000) + `"}]}`, 0, "", ""},
		{"6001 in all embeds", `{"embeds":[{"description":"` + x("x", 4000) + `"},{"description":"` + x("x", 2001) + `"}]}`, 50035, "embeds", "MAX_EMBED_SIZE_EXCEEDED"},
		{"26 fields", `{"embeds":[{"fields":[` + list(26, func(int) string { return `{"name":"a","value":"b"}` }) + `]}]}`, 50035, "embeds.0.fields", "BASE_TYPE_MAX_LENGTH"},
		{"a field without a value", `{"embeds":[{"fields":[{"name":"a","value":""}]}]}`, 50035, "embeds.0.fields.0.value", "BASE_TYPE_REQUIRED"},
		{"11 embeds", `{"embeds":[` + list(11, func(int) string { return `{"title":"a"}` }) + `]}`, 50035, "embeds", "BASE_TYPE_MAX_LENGTH"},
		{"an embed with everything", `{"embeds":[{"title":"t","description":"d","url":"https://a.b","color":255,"timestamp":"2026-01-02T03:04:05Z","footer":{"text":"f"},"author":{"name":"a"},"fields":[{"name":"n","value":"v","inline":true}]}]}`, 0, "", ""},
		{"a link that is none", `{"embeds":[{"title":"t","url":"nope"}]}`, 50035, "embeds.0.url", "URL_TYPE_INVALID_URL"},
		{"five buttons", row(list(5, func(i int) string { return button(fmt.Sprint(i), "l") })), 0, "", ""},
		{"six buttons", row(list(6, func(i int) string { return button(fmt.Sprint(i), "l") })), 50035, "components.0.components", "BASE_TYPE_BAD_LENGTH"},
		{"an empty row", row(""), 50035, "components.0.components", "BASE_TYPE_BAD_LENGTH"},
		{"six rows", `{"content":"x","components":[` + list(6, func(i int) string { return `{"type":1,"components":[` + button(fmt.Sprint(i), "l") + `]}` }) + `]}`, 50035, "components", "BASE_TYPE_MAX_LENGTH"},
		{"a custom_id of 100", row(button(x("x", 100), "l")), 0, "", ""},
		{"a custom_id of 101", row(button(x("x", 101), "l")), 50035, "components.0.components.0.custom_id", "BASE_TYPE_BAD_LENGTH"},
		{"no custom_id", row(`{"type":2,"style":1,"label":"l"}`), 50035, "components.0.components.0.custom_id", "BASE_TYPE_REQUIRED"},
		{"a custom_id twice", row(button("a", "l") + "," + button("a", "m")), 50035, "components.0.components.1.custom_id", "COMPONENT_CUSTOM_ID_DUPLICATED"},
		{"a label of 81", row(button("a", x("x", 81))), 50035, "components.0.components.0.label", "BASE_TYPE_MAX_LENGTH"},
		{"no label and no emoji", row(`{"type":2,"style":1,"custom_id":"a"}`), 50035, "components.0.components.0.label", "BUTTON_COMPONENT_INVALID_EMOJI_OR_LABEL"},
		{"a style that does not exist", row(`{"type":2,"style":9,"custom_id":"a","label":"l"}`), 50035, "components.0.components.0.style", "BASE_TYPE_CHOICES"},
		{"a link button", row(`{"type":2,"style":5,"url":"https://a.b","label":"l"}`), 0, "", ""},
		{"a link button with a custom_id", row(`{"type":2,"style":5,"url":"https://a.b","label":"l","custom_id":"a"}`), 50035, "components.0.components.0.custom_id", "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE"},
		{"a button outside a row", `{"content":"x","components":[` + button("a", "l") + `]}`, 50035, "components.0.type", "UNION_TYPE_CHOICES"},
		{"a menu", row(`{"type":3,"custom_id":"m","options":[{"label":"a","value":"a"},{"label":"b","value":"b"}]}`), 0, "", ""},
		{"a menu beside a button", row(`{"type":3,"custom_id":"m","options":[{"label":"a","value":"a"}]},` + button("b", "l")), 50035, "components.0.components", "COMPONENT_LAYOUT_WIDTH_EXCEEDED"},
		{"an option twice", row(`{"type":3,"custom_id":"m","options":[{"label":"a","value":"a"},{"label":"b","value":"a"}]}`), 50035, "components.0.components.0.options.1.value", "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED"},
		{"a text display without the flag", `{"components":[{"type":10,"content":"x"}]}`, 50035, "components.0.type", "UNION_TYPE_CHOICES"},
		{"a container with the flag", `{"flags":32768,"components":[{"type":17,"accent_color":255,"components":[{"type":10,"content":"x"},{"type":14},{"type":9,"components":[{"type":10,"content":"y"}],"accessory":` + button("a", "l") + `},{"type":1,"components":[` + button("b", "l") + `]}]}]}`, 0, "", ""},
		{"content with the flag", `{"flags":32768,"content":"x","components":[{"type":10,"content":"x"}]}`, 50035, "content", "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2"},
		{"4001 characters in displays", `{"flags":32768,"components":[{"type":10,"content":"` + x("x", 4000) + `"},{"type":10,"content":"x"}]}`, 50035, "components", "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED"},
		{"41 components", `{"flags":32768,"components":[{"type":17,"components":[` + list(40, func(int) string { return `{"type":14}` }) + `]}]}`, 50035, "components", "COMPONENT_MAX_TOTAL_COMPONENTS_EXCEEDED"},
		{"a nonce of 26", `{"content":"x","nonce":"` + x("x", 26) + `"}`, 50035, "nonce", "BASE_TYPE_MAX_LENGTH"},
		{"mentions parsed and listed", `{"content":"x","allowed_mentions":{"parse":["users"],"users":["1"]}}`, 50035, "allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE"},
		{"a kind of mention that does not exist", `{"content":"x","allowed_mentions":{"parse":["all"]}}`, 50035, "allowed_mentions.parse.0", "BASE_TYPE_CHOICES"},
		{"a reply to nothing", `{"content":"x","message_reference":{"message_id":"1"}}`, 50035, "message_reference", "REPLIES_UNKNOWN_MESSAGE"},
		{"a reply that may go nowhere", `{"content":"x","message_reference":{"message_id":"1","fail_if_not_exists":false}}`, 0, "", ""},
		{"what this server does not play", `{"content":"x","poll":{"question":{}}}`, -1, "", ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{})
			a := p.post(p.ch, c.body)
			switch c.code {
			case -1:
				if a.status != http.StatusNotImplemented {
					t.Errorf("%d %s", a.status, a.raw)
				}
			case 0:
				p.good(a)
			default:
				p.bad(a, 400, c.code)
				path := strings.TrimSuffix("errors."+c.path, ".") + "._errors.0.code"
				if c.inner != "" && a.str(path) != c.inner {
					t.Errorf("the error is %s, want %s at %s", a.raw, c.inner, c.path)
				}
			}
		})
	}
}

func TestNonceMakesOneMessage(t *testing.T) {
	p := play(t, Config{})
	body := `{"content":"card","nonce":"ask-1","enforce_nonce":true}`
	one := p.good(p.post(p.ch, body))
	two := p.good(p.post(p.ch, body))
	if one.str("id") != two.str("id") || one.str("nonce") != "ask-1" || len(p.Shown(p.ch)) != 1 {
		t.Errorf("%v and %v", one.v, two.v)
	}
	if loose := p.good(p.post(p.ch, `{"content":"card","nonce":"ask-1"}`)); loose.str("id") == one.str("id") {
		t.Error("without enforce_nonce the earlier message came back")
	}
	p.Advance(DefaultNonceWindow + time.Second)
	if late := p.good(p.post(p.ch, body)); late.str("id") == one.str("id") {
		t.Error("the nonce is remembered for ever")
	}
}

func TestAllowedMentionsDecideWhoIsPinged(t *testing.T) {
	for _, c := range []struct {
		rule, mentions  string
		users, roles    int
		everyone, power bool
	}{
		{"the default pings people and roles", ``, 1, 1, false, false},
		{"and everyone, for who may", ``, 1, 1, true, true},
		{"parse of nothing pings nobody", `,"allowed_mentions":{"parse":[]}`, 0, 0, false, true},
		{"a null parse pings nobody", `,"allowed_mentions":{"parse":null}`, 0, 0, false, true},
		{"only who is listed", `,"allowed_mentions":{"users":["ANN"]}`, 1, 0, false, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{})
			role := p.AddRole(p.guild, Role{Name: "r"})
			if c.power {
				p.SetRole(p.guild, p.BotRole(p.guild), PermBot|PermMentionEveryone)
			}
			body := strings.ReplaceAll(`{"content":"<@ANN> <@&`+role+`> @everyone <@1> <@"`+c.mentions+`}`, "ANN", p.ann)
			m := p.good(p.post(p.ch, body))
			if m.at("mentions").len() != c.users || m.at("mention_roles").len() != c.roles || m.at("mention_everyone").v != c.everyone {
				t.Errorf("the message is %v", m.v)
			}
		})
	}
}

func TestFilesAreKept(t *testing.T) {
	p := play(t, Config{MaxFile: 100})
	a := p.good(p.post(p.ch, p.form(`{"content":"see","attachments":[{"id":"0","description":"the log"}]}`, map[string]string{"0.txt": "all of it", "1.txt": "more"})))
	if a.str("attachments.0.filename") != "0.txt" || a.str("attachments.0.description") != "the log" || a.int("attachments.1.size") != 4 {
		t.Errorf("the message is %v", a.v)
	}
	first := a.str("attachments.0.id")
	if string(p.File(first)) != "all of it" {
		t.Error("the file is not there")
	}
	resp, err := http.Get(a.str("attachments.0.url"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the file's address: %v", err)
	}
	_ = resp.Body.Close()
	path := "/channels/" + p.ch + "/messages/" + a.str("id")
	e := p.good(p.do("PATCH", path, p.form(`{"attachments":[{"id":"`+first+`"}]}`, map[string]string{"0.new": "n"})))
	if e.at("attachments").len() != 2 || e.str("attachments.0.id") != first || e.str("attachments.1.filename") != "0.new" {
		t.Errorf("after the edit: %v", e.at("attachments").v)
	}
	p.bad(p.post(p.ch, p.form(`{}`, map[string]string{"0": strings.Repeat("x", 101)})), 413, 40005)
	if last := p.Calls()[len(p.Calls())-1]; !slices.Equal(last.Files, []string{"0"}) || last.Code() != 40005 {
		t.Errorf("the call is %+v", last)
	}
}

func TestHistoryPages(t *testing.T) {
	p := play(t, Config{})
	var ids []string
	for i := range 10 {
		ids = append(ids, must2(t)(p.Say(p.ann, p.ch, fmt.Sprint(i))))
	}
	for _, c := range []struct {
		query string
		want  []int
	}{
		{"", []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
		{"?limit=2", []int{9, 8}},
		{"?limit=2&before=" + ids[5], []int{4, 3}},
		{"?limit=2&after=" + ids[5], []int{7, 6}},
		{"?limit=3&around=" + ids[5], []int{6, 5, 4}},
		{"?after=" + ids[9], nil},
		{"?after=0&limit=1", []int{0}},
	} {
		a := p.good(p.do("GET", "/channels/"+p.ch+"/messages"+c.query, nil))
		var got []int
		for i := range a.len() {
			got = append(got, slices.Index(ids, a.str(fmt.Sprint(i, ".id"))))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s gives %v, want %v", c.query, got, c.want)
		}
	}
	p.bad(p.do("GET", "/channels/"+p.ch+"/messages?limit=101", nil), 400, 50035)
	p.bad(p.do("GET", "/channels/"+p.ch+"/messages?before=1&after=1", nil), 400, 50035)
	if m := p.good(p.do("GET", "/channels/"+p.ch+"/messages/"+ids[0], nil)); m.str("content") != "" {
		t.Error("the content is there without the switch in the portal")
	}
}

func TestPermissionsOfTheBot(t *testing.T) {
	all := PermBot
	for _, c := range []struct {
		rule         string
		lacks        uint64
		do           func(*stage) answered
		status, code int
	}{
		{"to see a channel", PermViewChannel, func(p *stage) answered { return p.do("GET", "/channels/"+p.ch, nil) }, 403, 50001},
		{"to write in a hidden one", PermViewChannel, func(p *stage) answered { return p.post(p.ch, `{"content":"x"}`) }, 403, 50001},
		{"to write", PermSendMessages, func(p *stage) answered { return p.post(p.ch, `{"content":"x"}`) }, 403, 50013},
		{"to type", PermSendMessages, func(p *stage) answered { return p.do("POST", "/channels/"+p.ch+"/typing", nil) }, 403, 50013},
		{"to embed", PermEmbedLinks, func(p *stage) answered { return p.post(p.ch, `{"embeds":[{"title":"x"}]}`) }, 403, 50013},
		{"to embed beside a text, which comes without it", PermEmbedLinks, func(p *stage) answered {
			a := p.post(p.ch, `{"content":"x","embeds":[{"title":"x"}]}`)
			if shown := p.Shown(p.ch); len(shown) != 1 || shown[0].Content != "x" || shown[0].Embeds != nil {
				p.t.Errorf("people see %+v", shown)
			}
			return a
		}, 200, 0},
		{"to attach", PermAttachFiles, func(p *stage) answered { return p.post(p.ch, p.form(`{}`, map[string]string{"0": "x"})) }, 403, 50013},
		{"to read one message", PermReadMessageHistory, func(p *stage) answered {
			id := must2(p.t)(p.Say(p.ann, p.ch, "x"))
			return p.do("GET", "/channels/"+p.ch+"/messages/"+id, nil)
		}, 403, 50001},
		{"to reply", PermReadMessageHistory, func(p *stage) answered {
			id := must2(p.t)(p.Say(p.ann, p.ch, "x"))
			return p.post(p.ch, `{"content":"x","message_reference":{"message_id":"`+id+`"}}`)
		}, 403, 160002},
		{"to start a thread", PermCreatePublicThreads, func(p *stage) answered {
			id := must2(p.t)(p.Say(p.ann, p.ch, "x"))
			return p.do("POST", "/channels/"+p.ch+"/messages/"+id+"/threads", `{"name":"t"}`)
		}, 403, 50013},
		{"to write in threads", PermSendInThreads, func(p *stage) answered {
			return p.post(must2(p.t)(p.StartThread(p.ann, p.ch, "", "t")), `{"content":"x"}`)
		}, 403, 50013},
		{"to delete what others wrote", 0, func(p *stage) answered {
			return p.do("DELETE", "/channels/"+p.ch+"/messages/"+must2(p.t)(p.Say(p.ann, p.ch, "x")), nil)
		}, 403, 50013},
		{"to edit what others wrote", 0, func(p *stage) answered {
			return p.do("PATCH", "/channels/"+p.ch+"/messages/"+must2(p.t)(p.Say(p.ann, p.ch, "x")), `{"content":"y"}`)
		}, 403, 50005},
		{"writing in threads needs no SEND_MESSAGES", PermSendMessages, func(p *stage) answered {
			return p.post(must2(p.t)(p.StartThread(p.ann, p.ch, "", "t")), `{"content":"x"}`)
		}, 200, 0},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{})
			p.SetRole(p.guild, p.BotRole(p.guild), all&^c.lacks)
			// What everyone has is taken from the bot alone.
			p.SetOverwrites(p.ch, Overwrite{User: p.BotID(), Deny: c.lacks})
			if a := c.do(p); a.status != c.status || c.code != 0 && a.code() != c.code {
				t.Errorf("%d %s", a.status, a.raw)
			}
		})
	}
	p := play(t, Config{})
	must2(t)(p.Say(p.ann, p.ch, "x"))
	p.SetOverwrites(p.ch, Overwrite{User: p.BotID(), Deny: PermReadMessageHistory})
	if a := p.good(p.do("GET", "/channels/"+p.ch+"/messages", nil)); a.len() != 0 {
		t.Errorf("without READ_MESSAGE_HISTORY the history is %v", a.v)
	}
}

func TestOverwritesInTheirOrder(t *testing.T) {
	p := play(t, Config{})
	r1 := p.AddRole(p.guild, Role{Name: "one"})
	r2 := p.AddRole(p.guild, Role{Name: "two"})
	admin := p.AddRole(p.guild, Role{Name: "admin", Permissions: PermAdministrator})
	boss := p.AddUser(User{})
	p.AddMember(p.guild, p.ann, r1, r2)
	p.AddMember(p.guild, boss, admin)
	for _, c := range []struct {
		rule string
		o    []Overwrite
		user string
		want bool
	}{
		{"everyone has it", nil, p.ann, true},
		{"denied for everyone", []Overwrite{{Role: p.guild, Deny: PermViewChannel}}, p.ann, false},
		{"a role gets it back, in any order", []Overwrite{{Role: r1, Allow: PermViewChannel}, {Role: p.guild, Deny: PermViewChannel}}, p.ann, true},
		{"among roles allow wins", []Overwrite{{Role: r1, Allow: PermViewChannel}, {Role: r2, Deny: PermViewChannel}}, p.ann, true},
		{"the member's own is last", []Overwrite{{Role: r1, Allow: PermViewChannel}, {User: p.ann, Deny: PermViewChannel}}, p.ann, false},
		{"others have nothing of a role", []Overwrite{{Role: p.guild, Deny: PermViewChannel}, {Role: r1, Allow: PermViewChannel}}, p.ben, false},
		{"an administrator passes all", []Overwrite{{Role: p.guild, Deny: PermViewChannel}, {User: boss, Deny: PermViewChannel}}, boss, true},
	} {
		p.SetOverwrites(p.ch, c.o...)
		if got := p.Permissions(p.ch, c.user)&PermViewChannel != 0; got != c.want {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}

func TestThreads(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	root := must2(t)(p.Say(p.ann, p.ch, "<@"+p.BotID()+"> look"))
	path := "/channels/" + p.ch + "/messages/" + root + "/threads"
	p.bad(p.do("POST", path, `{"name":""}`), 400, 50035)
	p.bad(p.do("POST", path, `{"name":"t","auto_archive_duration":7}`), 400, 50035)
	th := p.good(p.do("POST", path, `{"name":"incident","auto_archive_duration":10080}`))
	if th.str("id") != root || th.status != 201 || th.str("parent_id") != p.ch || th.int("thread_metadata.auto_archive_duration") != 10080 || th.str("owner_id") != p.BotID() {
		t.Errorf("the thread is %v", th.v)
	}
	if e := a.want("THREAD_CREATE"); e.str("id") != root || e.at("newly_created").v != true {
		t.Errorf("the event is %v", e.v)
	}
	if e := a.want("MESSAGE_UPDATE"); e.str("id") != root || e.int("flags") != FlagHasThread || e.str("thread.id") != root {
		t.Errorf("the event is %v", e.v)
	}
	if e := a.want("MESSAGE_CREATE"); e.int("type") != MessageThreadStarter || e.str("channel_id") != root || e.str("referenced_message.content") == "" {
		t.Errorf("the starter is %v", e.v)
	}
	p.bad(p.do("POST", path, `{"name":"again"}`), 400, 160004)
	// The message that started it lives in the parent.
	p.bad(p.do("GET", "/channels/"+root+"/messages/"+root, nil), 404, 10008)
	m := p.good(p.post(root, `{"content":"in it"}`)).str("id")
	must2(t)(p.Say(p.ann, root, "no mention"))

	p.Archive(root, true)
	if e := a.want("THREAD_UPDATE"); e.at("thread_metadata.archived").v != true {
		t.Errorf("the event is %v", e.v)
	}
	p.bad(p.do("PATCH", "/channels/"+root+"/messages/"+m, `{"content":"x"}`), 400, 50083)
	if l := p.good(p.do("GET", "/channels/"+p.ch+"/threads/archived/public", nil)); l.str("threads.0.id") != root || l.at("members").len() != 1 {
		t.Errorf("archived threads are %v", l.v)
	}
	p.good(p.post(root, `{"content":"wakes it"}`))
	if _, st, _ := p.ThreadOf(root); st.Archived {
		t.Error("a message did not make the thread active")
	}
	p.good(p.do("PATCH", "/channels/"+root+"/messages/"+m, `{"content":"x"}`))
	if l := p.good(p.do("GET", "/guilds/"+p.guild+"/threads/active", nil)); l.str("threads.0.id") != root {
		t.Errorf("active threads are %v", l.v)
	}

	// The owner may archive and rename, but not lock.
	p.good(p.do("PATCH", "/channels/"+root, `{"name":"done","archived":true}`))
	p.bad(p.do("PATCH", "/channels/"+root, `{"name":"again"}`), 400, 50083)
	p.good(p.do("PATCH", "/channels/"+root, `{"archived":false}`))
	p.bad(p.do("PATCH", "/channels/"+root, `{"locked":true}`), 403, 50013)
	p.Lock(root, true)
	p.bad(p.post(root, `{"content":"x"}`), 403, 160005)
	p.bad(p.do("PATCH", "/channels/"+root+"/messages/"+m, `{"content":"y"}`), 403, 160005)
	p.SetRole(p.guild, p.BotRole(p.guild), PermBot|PermManageThreads)
	p.good(p.post(root, `{"content":"x"}`))
	p.good(p.do("DELETE", "/channels/"+root, nil))
	if e := a.want("THREAD_DELETE"); e.str("id") != root {
		t.Errorf("the event is %v", e.v)
	}
	p.bad(p.post(root, `{"content":"x"}`), 404, 10003)

	other := must2(t)(p.StartThread(p.ann, p.ch, "", "theirs"))
	p.SetRole(p.guild, p.BotRole(p.guild), PermBot)
	p.bad(p.do("PATCH", "/channels/"+other, `{"name":"mine"}`), 403, 50013)
	p.good(p.do("PUT", "/channels/"+other+"/thread-members/@me", nil))
	p.good(p.do("DELETE", "/channels/"+other+"/thread-members/@me", nil))
	p.bad(p.do("DELETE", "/channels/"+other, nil), 403, 50013)
	own := p.good(p.do("POST", "/channels/"+p.ch+"/threads", `{"name":"own","type":11}`))
	if own.int("type") != TypePublicThread {
		t.Errorf("the thread is %v", own.v)
	}
	p.DeleteThread(own.str("id"))
	if _, _, there := p.ThreadOf(own.str("id")); there {
		t.Error("the deleted thread is there")
	}
}

func TestDirectMessages(t *testing.T) {
	p := play(t, Config{})
	a := p.login(nil)
	dm := p.good(p.do("POST", "/users/@me/channels", `{"recipient_id":"`+p.ann+`"}`)).str("id")
	if dm != p.DM(p.ann) {
		t.Error("two channels with one person")
	}
	p.good(p.post(dm, `{"content":"psst"}`))
	if e := a.want("MESSAGE_CREATE"); e.at("guild_id").v != nil || e.str("channel_id") != dm {
		t.Errorf("the event is %v", e.v)
	}
	p.RefuseDMs(p.ann, true)
	p.bad(p.post(dm, `{"content":"psst"}`), 403, 50007)
	p.bad(p.do("POST", "/users/@me/channels", `{"recipient_id":"1"}`), 404, 10013)
	p.bad(p.do("POST", "/users/@me/channels", `{}`), 400, 50035)
	p.bad(p.do("PATCH", "/channels/"+dm, `{"name":"x"}`), 403, 50003)
}

func TestEditsOfOldMessages(t *testing.T) {
	p := play(t, Config{OldEdits: 2})
	path := "/channels/" + p.ch + "/messages/" + p.good(p.post(p.ch, `{"content":"x"}`)).str("id")
	for range 5 {
		p.good(p.do("PATCH", path, `{"content":"young"}`))
	}
	p.Advance(2 * time.Hour)
	p.good(p.do("PATCH", path, `{"content":"1"}`))
	p.good(p.do("PATCH", path, `{"content":"2"}`))
	p.bad(p.do("PATCH", path, `{"content":"3"}`), 429, 30046)
	p.Advance(2 * time.Hour)
	p.good(p.do("PATCH", path, `{"content":"4"}`))
}

func TestCommandsAreRegistered(t *testing.T) {
	p := play(t, Config{})
	global, local := "/applications/"+p.AppID()+"/commands", "/applications/"+p.AppID()+"/guilds/"+p.guild+"/commands"
	body := `[{"name":"ops","description":"d","default_member_permissions":"8","options":[{"type":1,"name":"ask","description":"d","options":[{"type":3,"name":"text","description":"d","required":true}]}]}]`
	a := p.good(p.do("PUT", local, body))
	b := p.good(p.do("PUT", local, body))
	if a.str("0.id") != b.str("0.id") || a.str("0.version") == b.str("0.version") || a.str("0.guild_id") != p.guild {
		t.Errorf("%v and then %v", a.v, b.v)
	}
	p.good(p.do("PUT", global, `[{"name":"help","description":"d"}]`))
	if l := p.good(p.do("GET", global, nil)); l.len() != 1 || !slices.Equal(p.Commands(p.guild), []string{"ops"}) {
		t.Errorf("commands are %v", l.v)
	}
	for rule, bad := range map[string]string{
		"upper case":               `[{"name":"Ops","description":"d"}]`,
		"a space":                  `[{"name":"o ps","description":"d"}]`,
		"no description":           `[{"name":"ops"}]`,
		"twice":                    `[{"name":"ops","description":"d"},{"name":"ops","description":"d"}]`,
		"required after optional":  `[{"name":"ops","description":"d","options":[{"type":3,"name":"a","description":"d"},{"type":3,"name":"b","description":"d","required":true}]}]`,
		"an option without a type": `[{"name":"ops","description":"d","options":[{"name":"a","description":"d"}]}]`,
	} {
		if x := p.do("PUT", local, bad); x.status != 400 || x.code() != 50035 {
			t.Errorf("%s: %d %s", rule, x.status, x.raw)
		}
	}
	p.bad(p.do("PUT", "/applications/1/commands", `[]`), 403, 20012)
	p.bad(p.do("PUT", "/applications/"+p.AppID()+"/guilds/1/commands", `[]`), 403, 50001)
	p.good(p.do("PUT", local, `[]`))
	if len(p.Commands(p.guild)) != 0 {
		t.Error("the commands are still there")
	}
}
