package slackfake

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAuthIsCheckedForEachMethod(t *testing.T) {
	s, _ := world(t, Config{})
	call := func(method, token string, byField bool) answer {
		t.Helper()
		v := url.Values{}
		if byField {
			v.Set("token", token)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+method, strings.NewReader(v.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if !byField && token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var a answer
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct {
		method, token string
		byField       bool
		want          string
	}{
		{"auth.test", "xoxb-1", false, ""},
		{"auth.test", "xoxb-1", true, ""},
		{"auth.test", "", false, "not_authed"},
		{"auth.test", "xoxb-2", false, "invalid_auth"},
		{"auth.test", "xapp-1", false, "not_allowed_token_type"},
		{"apps.connections.open", "xoxb-1", false, "not_allowed_token_type"},
		{"apps.connections.open", "xapp-1", false, ""},
		{"api.test", "", false, ""},
		{"chat.explode", "xoxb-1", false, "unknown_method"},
	} {
		if got := call(c.method, c.token, c.byField); got.code() != c.want {
			t.Errorf("%s with %q: %v, want %q", c.method, c.token, got, c.want)
		}
	}
	a := call("auth.test", "xoxb-1", false)
	for k, want := range map[string]string{"team_id": "T1", "user_id": "UBOT", "bot_id": "BBOT"} {
		if a.str(k) != want {
			t.Errorf("auth.test says %s is %v", k, a[k])
		}
	}
	for _, c := range s.Calls() {
		if c.Args.Has("token") {
			t.Error("a recorded call has the token among its arguments")
		}
	}
}

func TestMissingScopesAreNamed(t *testing.T) {
	s, _ := world(t, Config{Scopes: []string{"chat:write", "channels:history"}})
	s.AddChannel(Channel{ID: "G1", Private: true})
	a := form(t, s, "users.info", "user", "U1")
	mustFail(t, a, "missing_scope")
	if a.str("needed") != "users:read" || a.str("provided") != "chat:write,channels:history" {
		t.Errorf("got %v", a)
	}
	mustOK(t, form(t, s, "conversations.history", "channel", "C1"))
	if a := form(t, s, "conversations.history", "channel", "G1"); a.code() != "missing_scope" || a.str("needed") != "groups:history" {
		t.Errorf("got %v", a)
	}
}

func TestFeaturesThatAreOffAreUnknownMethods(t *testing.T) {
	s, _ := world(t, Config{})
	mustFail(t, form(t, s, "chat.startStream", "channel", "C1"), "unknown_method")
	mustFail(t, form(t, s, "assistant.threads.setStatus", "channel_id", "C1"), "unknown_method")
}

func TestArgumentsComeFromFormsAndFromJSON(t *testing.T) {
	s, _ := world(t, Config{})
	blocks := []any{map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "text": "hi"}}}
	meta := map[string]any{"event_type": "x", "event_payload": map[string]any{"n": 1}}
	for name, a := range map[string]answer{
		"form":                 form(t, s, "chat.postMessage", "channel", "C1", "text", "t", "blocks", jsonOf(t, blocks), "metadata", jsonOf(t, meta)),
		"JSON":                 inJSON(t, s, "chat.postMessage", map[string]any{"channel": "C1", "text": "t", "blocks": blocks, "metadata": meta}),
		"JSON, blocks as text": inJSON(t, s, "chat.postMessage", map[string]any{"channel": "C1", "text": "t", "blocks": jsonOf(t, blocks), "metadata": jsonOf(t, meta)}),
	} {
		t.Run(name, func(t *testing.T) {
			m, found := s.Message("C1", mustOK(t, a).str("ts"))
			if !found || m.Text != "t" || !strings.Contains(string(m.Blocks), `"hi"`) || !strings.Contains(string(m.Metadata), "event_type") {
				t.Errorf("stored %+v", m)
			}
			if !strings.Contains(string(m.Blocks), "block_id") {
				t.Error("the block has no block_id")
			}
		})
	}
	t.Run("a reading method does not look at JSON", func(t *testing.T) {
		mustFail(t, inJSON(t, s, "conversations.info", map[string]any{"channel": "C1"}), "channel_not_found")
	})
	t.Run("JSON without a charset is warned about", func(t *testing.T) {
		a := send(t, s, "chat.postMessage", "application/json", []byte(`{"channel":"C1","text":"x"}`))
		if mustOK(t, a).str("warning") != "missing_charset" {
			t.Errorf("got %v", a)
		}
	})
	t.Run("broken JSON", func(t *testing.T) {
		mustFail(t, send(t, s, "chat.postMessage", "application/json; charset=utf-8", []byte(`{"channel":`)), "invalid_json")
	})
}

func TestPostingRules(t *testing.T) {
	s, _ := world(t, Config{})
	s.AddChannel(Channel{ID: "C2", Members: []string{"U1"}})
	s.AddChannel(Channel{ID: "G2", Private: true, Members: []string{"U1"}})
	s.AddChannel(Channel{ID: "C3", Archived: true})
	long := strings.Repeat("ä", maxPostText+1)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown channel":                {[]string{"channel", "CX", "text", "x"}, "channel_not_found"},
		"not in a public channel":        {[]string{"channel", "C2", "text", "x"}, "not_in_channel"},
		"a private channel is not known": {[]string{"channel", "G2", "text", "x"}, "channel_not_found"},
		"archived":                       {[]string{"channel", "C3", "text", "x"}, "is_archived"},
		"nothing to say":                 {[]string{"channel", "C1"}, "no_text"},
		"empty blocks":                   {[]string{"channel", "C1", "blocks", "[]"}, "no_text"},
		"by the channel's name":          {[]string{"channel", "#ops", "text", "x"}, ""},
		"to a person":                    {[]string{"channel", "U1", "text", "x"}, ""},
		"blocks that are no JSON":        {[]string{"channel", "C1", "blocks", "{"}, "invalid_blocks_format"},
		"markdown and text":              {[]string{"channel", "C1", "text", "x", "markdown_text", "y"}, "markdown_text_conflict"},
		"markdown too long":              {[]string{"channel", "C1", "markdown_text", strings.Repeat("x", maxMarkdown+1)}, "msg_too_long"},
		"metadata without a type":        {[]string{"channel", "C1", "text", "x", "metadata", `{"event_payload":{}}`}, "invalid_metadata_schema"},
		"metadata that is no object":     {[]string{"channel", "C1", "text", "x", "metadata", `[]`}, "invalid_metadata_format"},
		"text that is too long is cut":   {[]string{"channel", "C1", "text", long}, ""},
		"101 attachments":                {[]string{"channel", "C1", "attachments", "[" + strings.Repeat("{},", maxAttach) + "{}]"}, "too_many_attachments"},
		"an ephemeral to nobody":         {[]string{"!", "channel", "C2", "user", "U1", "text", "x"}, "not_in_channel"},
	} {
		t.Run(name, func(t *testing.T) {
			method := "chat.postMessage"
			if c.args[0] == "!" {
				method, c.args = "chat.postEphemeral", c.args[1:]
			}
			a := form(t, s, method, c.args...)
			if c.want != "" {
				mustFail(t, a, c.want)
			} else if mustOK(t, a); name == "text that is too long is cut" {
				if m, _ := s.Message("C1", a.str("ts")); len([]rune(m.Text)) != maxPostText || a.str("warning") != "message_truncated" {
					t.Errorf("%d characters, warning %v", len([]rune(m.Text)), a["warning"])
				}
			}
		})
	}
}

func TestTheThreadOfAPost(t *testing.T) {
	s, _ := world(t, Config{})
	post := func(kv ...string) answer {
		t.Helper()
		return mustOK(t, form(t, s, "chat.postMessage", append([]string{"channel", "C1", "text", "x"}, kv...)...))
	}
	root := post().str("ts")
	reply := post("thread_ts", root)
	if reply.str("message.thread_ts") != root {
		t.Errorf("the reply is %v", reply)
	}
	if a := post("thread_ts", reply.str("ts")); a.str("message.thread_ts") != root {
		t.Errorf("a reply to a reply is %v", a)
	}
	if a := post("thread_ts", "1.000001"); a.at("message.thread_ts") != nil {
		t.Errorf("a reply to a root that does not exist goes to the channel, but is %v", a)
	}
	gone := post().str("ts")
	mustOK(t, form(t, s, "chat.delete", "channel", "C1", "ts", gone))
	if a := post("thread_ts", gone); a.at("message.thread_ts") != nil {
		t.Errorf("a reply to a deleted root goes to the channel, but is %v", a)
	}
	mustOK(t, form(t, s, "chat.delete", "channel", "C1", "ts", root))
	if a := post("thread_ts", root); a.str("message.thread_ts") != root {
		t.Errorf("the thread of a tombstone stays, but the reply is %v", a)
	}
	b := post("thread_ts", root, "reply_broadcast", "true").str("ts")
	if m, _ := s.Message("C1", b); !m.Broadcast || m.Subtype != "thread_broadcast" {
		t.Errorf("the broadcast is %+v", m)
	}
}

func TestUpdates(t *testing.T) {
	s, _ := connected(t, Config{}, nil)
	theirs, err := s.Say(t.Context(), Message{User: "U1", Channel: "C1", Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "a", "blocks", approve,
		"metadata", `{"event_type":"x","event_payload":{}}`)).str("ts")
	mustFail(t, form(t, s, "chat.update", "channel", "C1", "ts", theirs, "text", "y"), "cant_update_message")
	mustFail(t, form(t, s, "chat.update", "channel", "C1", "ts", "1.1", "text", "y"), "message_not_found")
	mustFail(t, form(t, s, "chat.update", "channel", "C1", "ts", ts), "no_text")
	mustFail(t, form(t, s, "chat.update", "channel", "C1", "ts", ts, "text", strings.Repeat("x", maxUpdateText+1)), "msg_too_long")
	mustFail(t, form(t, s, "chat.delete", "channel", "C1", "ts", theirs), "cant_delete_message")
	a := mustOK(t, form(t, s, "chat.update", "channel", "C1", "ts", ts, "text", "b"))
	if a.str("text") != "b" || a.str("message.text") != "b" {
		t.Errorf("got %v", a)
	}
	m, _ := s.Message("C1", ts)
	if !m.Edited || m.Blocks == nil || m.Metadata == nil || m.Text != "b" {
		t.Errorf("what was not sent did not stay: %+v", m)
	}
	mustOK(t, form(t, s, "chat.update", "channel", "C1", "ts", ts, "text", "c", "blocks", "[]", "metadata", "{}"))
	if m, _ := s.Message("C1", ts); m.Blocks != nil || m.Metadata != nil {
		t.Errorf("what was emptied stayed: %+v", m)
	}
}

func TestHistoryAndReplies(t *testing.T) {
	s, _ := world(t, Config{})
	var tss []string
	for i := range 5 {
		tss = append(tss, mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", strconv.Itoa(i),
			"metadata", `{"event_type":"x","event_payload":{"i":1}}`)).str("ts"))
	}
	texts := func(a answer) string {
		t.Helper()
		var out []string
		for _, m := range mustOK(t, a)["messages"].([]any) {
			out = append(out, pick(m, "text").(string))
		}
		return strings.Join(out, " ")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "4 3 2 1 0"},
		{[]string{"oldest", tss[2]}, "4 3"},
		{[]string{"oldest", tss[2], "inclusive", "true"}, "4 3 2"},
		{[]string{"latest", tss[2]}, "1 0"},
		{[]string{"latest", tss[2], "inclusive", "1", "limit", "1"}, "2"},
	} {
		if got := texts(form(t, s, "conversations.history", append([]string{"channel", "C1"}, c.args...)...)); got != c.want {
			t.Errorf("history %v is %s, want %s", c.args, got, c.want)
		}
	}
	var all []string
	cursor := ""
	for {
		a := mustOK(t, form(t, s, "conversations.history", "channel", "C1", "limit", "2", "cursor", cursor))
		all = append(all, texts(a))
		if cursor = a.str("response_metadata.next_cursor"); cursor == "" {
			break
		}
		if a["has_more"] != true {
			t.Error("there is a cursor, and has_more is false")
		}
	}
	if got := strings.Join(all, ","); got != "4 3,2 1,0" {
		t.Errorf("the pages are %s", got)
	}
	mustFail(t, form(t, s, "conversations.history", "channel", "C1", "cursor", "zzz"), "invalid_cursor")
	mustFail(t, form(t, s, "conversations.history", "channel", "C1", "limit", "5000"), "invalid_limit")
	mustFail(t, form(t, s, "conversations.history", "channel", "C1", "oldest", "x"), "invalid_ts_oldest")

	without := mustOK(t, form(t, s, "conversations.history", "channel", "C1", "limit", "1"))
	with := mustOK(t, form(t, s, "conversations.history", "channel", "C1", "limit", "1", "include_all_metadata", "true"))
	if pick(without["messages"].([]any)[0], "metadata") != nil || pick(with["messages"].([]any)[0], "metadata.event_type") != "x" {
		t.Errorf("metadata without: %v, with: %v", without, with)
	}

	r1 := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "r1", "thread_ts", tss[0])).str("ts")
	mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "r2", "thread_ts", tss[0]))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ts", tss[0]}, "0 r1 r2"},
		{[]string{"ts", tss[0], "oldest", r1}, "0 r2"},
		{[]string{"ts", tss[0], "limit", "1"}, "0 r1"},
		{[]string{"ts", tss[1]}, "1"},
		{[]string{"ts", r1}, "r1"},
	} {
		if got := texts(form(t, s, "conversations.replies", append([]string{"channel", "C1"}, c.args...)...)); got != c.want {
			t.Errorf("replies %v are %s, want %s", c.args, got, c.want)
		}
	}
	mustFail(t, form(t, s, "conversations.replies", "channel", "C1", "ts", "1.1"), "thread_not_found")
	if got := texts(form(t, s, "conversations.history", "channel", "C1")); strings.Contains(got, "r1") {
		t.Errorf("replies are in the history: %s", got)
	}
	link := mustOK(t, form(t, s, "chat.getPermalink", "channel", "C1", "message_ts", r1)).str("permalink")
	if link != s.Permalink("C1", r1) || !strings.Contains(link, "thread_ts="+tss[0]) {
		t.Errorf("the permalink is %s", link)
	}
	mustFail(t, form(t, s, "chat.getPermalink", "channel", "C1", "message_ts", "1.1"), "message_not_found")
}

func TestPeopleChannelsAndGroups(t *testing.T) {
	s, _ := world(t, Config{})
	s.AddUser(User{ID: "U3", Guest: true})
	s.AddUser(User{ID: "U4", UltraRestricted: true, Deleted: true})
	s.AddUser(User{ID: "U5", Stranger: true, Team: "T9"})
	s.SetUsergroup("S1", "U1", "U4")
	s.AddChannel(Channel{ID: "G1", Private: true, Members: []string{"UBOT", "U1"}})
	s.AddChannel(Channel{ID: "G2", Private: true, Members: []string{"U1"}})
	for user, want := range map[string]map[string]any{
		"U1":   {"is_restricted": false, "is_bot": false, "team_id": "T1"},
		"U3":   {"is_restricted": true, "is_ultra_restricted": false},
		"U4":   {"is_restricted": true, "is_ultra_restricted": true, "deleted": true},
		"U5":   {"is_stranger": true, "team_id": "T9"},
		"UBOT": {"is_bot": true},
	} {
		a := mustOK(t, form(t, s, "users.info", "user", user))
		for k, v := range want {
			if a.at("user."+k) != v {
				t.Errorf("%s: %s is %v", user, k, a.at("user."+k))
			}
		}
	}
	mustFail(t, form(t, s, "users.info", "user", "UX"), "user_not_found")
	if a := mustOK(t, form(t, s, "usergroups.users.list", "usergroup", "S1")); jsonOf(t, a["users"]) != `["U1"]` {
		t.Errorf("the group is %v", a["users"])
	}
	mustFail(t, form(t, s, "usergroups.users.list", "usergroup", "SX"), "no_such_subteam")
	if a := mustOK(t, form(t, s, "usergroups.list", "include_users", "true")); len(a["usergroups"].([]any)) != 1 {
		t.Errorf("the groups are %v", a)
	}
	if a := mustOK(t, form(t, s, "conversations.info", "channel", "G1", "include_num_members", "true")); a.at("channel.num_members") != 2.0 || a.at("channel.is_private") != true {
		t.Errorf("the channel is %v", a)
	}
	mustFail(t, form(t, s, "conversations.info", "channel", "G2"), "channel_not_found")
	if a := mustOK(t, form(t, s, "conversations.members", "channel", "G1", "limit", "1")); a.str("response_metadata.next_cursor") == "" {
		t.Errorf("the members are %v", a)
	}
	if a := mustOK(t, form(t, s, "conversations.list", "types", "public_channel,private_channel")); len(a["channels"].([]any)) != 2 {
		t.Errorf("the channels are %v", a)
	}
	mustFail(t, form(t, s, "conversations.list", "types", "secret"), "invalid_types")
	a := mustOK(t, form(t, s, "conversations.open", "users", "U1"))
	if a.str("channel.id") != s.DM("U1") {
		t.Errorf("the direct channel is %v", a)
	}
	mustFail(t, form(t, s, "conversations.open", "users", "U4"), "user_disabled")
	if a := mustOK(t, form(t, s, "users.list", "limit", "2")); len(a["members"].([]any)) != 2 || a.str("response_metadata.next_cursor") == "" {
		t.Errorf("the users are %v", a)
	}
	mustOK(t, form(t, s, "bots.info", "bot", "BBOT"))
	mustFail(t, form(t, s, "bots.info", "bot", "BX"), "bot_not_found")
}

func TestReactions(t *testing.T) {
	s, _ := world(t, Config{})
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "x")).str("ts")
	args := []string{"channel", "C1", "timestamp", ts, "name", "eyes"}
	mustOK(t, form(t, s, "reactions.add", args...))
	mustFail(t, form(t, s, "reactions.add", args...), "already_reacted")
	if m, _ := s.Message("C1", ts); len(m.Reactions) != 1 || m.Reactions[0].Name != "eyes" {
		t.Errorf("the reactions are %+v", m.Reactions)
	}
	mustOK(t, form(t, s, "reactions.remove", args...))
	mustFail(t, form(t, s, "reactions.remove", args...), "no_reaction")
	mustFail(t, form(t, s, "reactions.add", "channel", "C1", "timestamp", "1.1", "name", "eyes"), "message_not_found")
}

func TestEphemeralMessagesAreForOnePerson(t *testing.T) {
	s, _ := world(t, Config{})
	s.AddChannel(Channel{ID: "C2", Members: []string{"UBOT", "U1"}})
	mustOK(t, form(t, s, "chat.postEphemeral", "channel", "C2", "user", "U1", "text", "no", "thread_ts", "1.2"))
	mustFail(t, form(t, s, "chat.postEphemeral", "channel", "C2", "user", "U2", "text", "no"), "user_not_in_channel")
	if e := s.Ephemerals("C2", "U1"); len(e) != 1 || e[0].ThreadTS != "1.2" || len(s.Messages("C2", "")) != 0 {
		t.Errorf("got %+v", e)
	}
}

func TestUploads(t *testing.T) {
	s, _ := world(t, Config{NoEcho: true})
	root := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "root")).str("ts")
	put := func(method, u, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, u, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		a := mustOK(t, form(t, s, "files.getUploadURLExternal", "filename", "out.txt", "length", "3"))
		id := a.str("file_id")
		done := []string{"files", `[{"id":"` + id + `","title":"Output"}]`, "channel_id", "C1", "thread_ts", root, "initial_comment", "here"}
		mustFail(t, form(t, s, "files.completeUploadExternal", done...), "file_not_found")
		if code := put(method, a.str("upload_url"), "long"); code != http.StatusBadRequest {
			t.Errorf("a wrong length answered %d", code)
		}
		s.FailNext("upload", 1, Answer{Status: 503})
		if code := put(method, a.str("upload_url"), "abc"); code != 503 {
			t.Errorf("the fault answered %d", code)
		}
		if code := put(method, a.str("upload_url"), "abc"); code != http.StatusOK {
			t.Errorf("the upload answered %d", code)
		}
		mustOK(t, form(t, s, "files.completeUploadExternal", done...))
		mustFail(t, form(t, s, "files.completeUploadExternal", done...), "file_not_found")
		th := s.Messages("C1", root)
		last := th[len(th)-1]
		if last.Text != "here" || len(last.Files) != 1 || last.Files[0].Title != "Output" || string(s.FileContent(id)) != "abc" {
			t.Errorf("the message is %+v", last)
		}
	}
	mustFail(t, form(t, s, "files.getUploadURLExternal", "filename", "x", "length", "0"), "invalid_arguments")
}

func TestStreams(t *testing.T) {
	s, _ := world(t, Config{Streaming: true, AssistantStatus: true, NoEcho: true})
	root := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "root")).str("ts")
	mustFail(t, form(t, s, "chat.startStream", "channel", "C1", "thread_ts", root), "missing_recipient_team_id")
	mustFail(t, form(t, s, "chat.startStream", "channel", "C1", "thread_ts", root, "recipient_team_id", "T1"), "missing_recipient_user_id")
	ts := mustOK(t, form(t, s, "chat.startStream", "channel", "C1", "thread_ts", root, "recipient_team_id", "T1",
		"recipient_user_id", "U1", "markdown_text", "one ")).str("ts")
	mustOK(t, form(t, s, "chat.appendStream", "channel", "C1", "ts", ts, "markdown_text", "two "))
	mustOK(t, form(t, s, "chat.appendStream", "channel", "C1", "ts", ts, "chunks",
		`[{"type":"markdown_text","text":"three"},{"type":"task_update","id":"1","title":"Check","status":"complete"}]`))
	for name, c := range map[string]struct{ chunks, want string }{
		"unknown kind":    {`[{"type":"dance"}]`, "invalid_chunks"},
		"task without id": {`[{"type":"task_update","title":"x"}]`, "invalid_chunks"},
		"bad status":      {`[{"type":"task_update","id":"1","title":"x","status":"lost"}]`, "invalid_chunks"},
		"bad blocks":      {`[{"type":"blocks","blocks":[{"type":"nope"}]}]`, "invalid_blocks"},
		"no JSON":         {`[`, "invalid_chunks"},
	} {
		t.Run(name, func(t *testing.T) {
			mustFail(t, form(t, s, "chat.appendStream", "channel", "C1", "ts", ts, "chunks", c.chunks), c.want)
		})
	}
	mustFail(t, form(t, s, "chat.appendStream", "channel", "C1", "ts", ts), "no_text")
	mustFail(t, form(t, s, "chat.update", "channel", "C1", "ts", ts, "text", "x"), "streaming_state_conflict")
	if m, _ := s.Message("C1", ts); !m.Streaming || m.Text != "one two three" || m.ThreadTS != root || len(m.Chunks) != 2 {
		t.Errorf("while it streams: %+v", m)
	}
	a := mustOK(t, form(t, s, "chat.stopStream", "channel", "C1", "ts", ts, "markdown_text", ".", "blocks", approve))
	if m, _ := s.Message("C1", ts); m.Streaming || m.Text != "one two three." || a.at("message.blocks") == nil {
		t.Errorf("at the end: %+v", m)
	}
	mustFail(t, form(t, s, "chat.appendStream", "channel", "C1", "ts", ts, "markdown_text", "x"), "message_not_in_streaming_state")
	mustFail(t, form(t, s, "chat.stopStream", "channel", "C1", "ts", "1.1"), "message_not_found")
	mustOK(t, form(t, s, "chat.update", "channel", "C1", "ts", ts, "text", "x"))
	dm := s.DM("U1")
	mustFail(t, form(t, s, "chat.startStream", "channel", dm), "invalid_arguments")
}

func TestRateLimits(t *testing.T) {
	s, _ := world(t, Config{RateLimits: true, NoEcho: true})
	s.AddChannel(Channel{ID: "C2"})
	var limited answer
	n := 0
	for ; n < 10; n++ {
		if a := form(t, s, "chat.postMessage", "channel", "C1", "text", "x"); a["ok"] != true {
			limited = a
			break
		}
	}
	mustFail(t, limited, "ratelimited")
	if n < 2 || n > 6 {
		t.Errorf("%d posts went through at once", n)
	}
	last := s.Calls()[len(s.Calls())-1]
	if last.Status != http.StatusTooManyRequests || last.OK() {
		t.Errorf("the call is %+v", last)
	}
	mustOK(t, form(t, s, "chat.postMessage", "channel", "C2", "text", "the limit is of one channel"))
}

func TestFaults(t *testing.T) {
	s, _ := world(t, Config{NoEcho: true})
	post := func() answer { return form(t, s, "chat.postMessage", "channel", "C1", "text", "x") }
	raw := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"chat.postMessage", strings.NewReader("channel=C1&text=x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization", "Bearer xoxb-1")
		return http.DefaultClient.Do(req)
	}
	s.FailNext("chat.postMessage", 1, Answer{Error: "fatal_error"})
	s.FailNext("*", 1, Answer{})
	mustFail(t, post(), "fatal_error")
	mustFail(t, post(), "internal_error")
	mustOK(t, post())

	s.FailNext("chat.postMessage", 1, Answer{RetryAfter: 1500 * time.Millisecond})
	resp, err := raw()
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "2" {
		t.Errorf("got %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	for name, c := range map[string]struct {
		fault Answer
		done  int
	}{"drop does it first": {Answer{Drop: true}, 1}, "lose does nothing": {Answer{Lose: true}, 0}} {
		t.Run(name, func(t *testing.T) {
			before, calls := len(s.Messages("C1", "")), s.Count("chat.postMessage")
			s.FailNext("chat.postMessage", 1, c.fault)
			if resp, err := raw(); err == nil {
				_ = resp.Body.Close()
				t.Fatal("an answer came")
			}
			if got := len(s.Messages("C1", "")) - before; got != c.done {
				t.Errorf("%d messages were posted", got)
			}
			if s.Count("chat.postMessage") != calls+1 {
				t.Error("the call was not counted once")
			}
		})
	}
}

func TestWaitSeesEachChange(t *testing.T) {
	s, ctx := world(t, Config{NoEcho: true})
	done := make(chan error, 1)
	go func() { done <- s.Wait(ctx, func() bool { return len(s.Messages("C1", "")) == 3 }) }()
	for range 3 {
		mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "x"))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAViewStackHoldsThree(t *testing.T) {
	s, _ := world(t, Config{})
	trigger := func(view string) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.newTrigger("U1", view)
	}
	v := mustOK(t, form(t, s, "views.open", "trigger_id", trigger(""), "view", modal)).str("view.id")
	v = mustOK(t, form(t, s, "views.push", "trigger_id", trigger(v), "view", modal)).str("view.id")
	v = mustOK(t, form(t, s, "views.push", "trigger_id", trigger(v), "view", modal)).str("view.id")
	mustFail(t, form(t, s, "views.push", "trigger_id", trigger(v), "view", modal), "push_limit_reached")
	mustFail(t, form(t, s, "views.push", "trigger_id", trigger("V0"), "view", modal), "not_found")
	mustFail(t, form(t, s, "views.open", "view", modal), "invalid_arguments")
}

func TestCloseEndsWhatIsPending(t *testing.T) {
	s := New(Config{})
	s.AddUser(User{ID: "U1"})
	s.AddChannel(Channel{ID: "C1"})
	done := make(chan error, 1)
	go func() {
		_, err := s.Say(context.Background(), Message{User: "U1", Channel: "C1", Text: "x"})
		done <- err
	}()
	if err := s.Wait(t.Context(), func() bool { return s.Pending() == 1 }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if err := <-done; err == nil {
		t.Error("a pending delivery ended without an error")
	}
}
