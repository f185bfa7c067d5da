package slackfake

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// connected is a world with an app that acknowledges everything with what f returns.
func connected(t *testing.T, c Config, f func(map[string]any) any) (*Server, <-chan map[string]any) {
	t.Helper()
	c.AckTimeout = patient
	s, _ := world(t, c)
	got := dial(t, s).serve(f)
	<-got
	return s, got
}

func TestARedeliveryHasTheSameIdentityAndIsStoredOnce(t *testing.T) {
	s, got := connected(t, Config{}, nil)
	ts, err := s.Say(t.Context(), Message{User: "U1", Channel: "C1", Text: "hi", ClientMsgID: "cm1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Say(t.Context(), Message{User: "U1", Channel: "C1", TS: ts}); err != nil {
		t.Fatal(err)
	}
	a, b := <-got, <-got
	if pick(a, "payload.event_id") != pick(b, "payload.event_id") || pick(b, "payload.event.client_msg_id") != "cm1" {
		t.Errorf("got %v and %v", a, b)
	}
	if n := len(s.Messages("C1", "")); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}

func TestRepliesEditsAndDeletionsAreEvents(t *testing.T) {
	s, got := connected(t, Config{}, nil)
	ctx := t.Context()
	event := func() any { return pick(<-got, "payload.event") }
	root, _ := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "root"})
	event()
	reply, _ := s.Say(ctx, Message{User: "U2", Channel: "C1", Thread: root, Text: "reply"})
	if e := event(); pick(e, "thread_ts") != root || pick(e, "parent_user_id") != "U1" || pick(e, "channel_type") != "channel" {
		t.Errorf("the reply is %v", e)
	}
	if err := s.Edit(ctx, "C1", reply, "changed"); err != nil {
		t.Fatal(err)
	}
	if e := event(); pick(e, "subtype") != "message_changed" || pick(e, "message.text") != "changed" ||
		pick(e, "message.edited") == nil || pick(e, "previous_message.text") != "reply" || pick(e, "message.ts") != reply {
		t.Errorf("the edit is %v", e)
	}
	if err := s.Delete(ctx, "C1", root); err != nil {
		t.Fatal(err)
	}
	if e := event(); pick(e, "subtype") != "message_changed" || pick(e, "message.subtype") != "tombstone" {
		t.Errorf("the deletion of a root with replies is %v", e)
	}
	if err := s.Delete(ctx, "C1", reply); err != nil {
		t.Fatal(err)
	}
	if e := event(); pick(e, "subtype") != "message_deleted" || pick(e, "deleted_ts") != reply {
		t.Errorf("the deletion of a reply is %v", e)
	}
	if err := s.Delete(ctx, "C1", reply); err == nil {
		t.Error("a message was deleted twice")
	}
	th := s.Messages("C1", root)
	if len(th) != 2 || !th[0].Deleted || !th[1].Deleted {
		t.Errorf("the thread is %+v", th)
	}
}

func TestEventsNeedMembershipAndScope(t *testing.T) {
	say := func(t *testing.T, s *Server, ch string) int {
		t.Helper()
		if _, err := s.Say(t.Context(), Message{User: "U1", Channel: ch, Text: "hi", Mention: true}); err != nil {
			t.Fatal(err)
		}
		return len(s.Deliveries())
	}
	t.Run("not in the channel", func(t *testing.T) {
		s, _ := connected(t, Config{}, nil)
		s.AddChannel(Channel{ID: "C2", Members: []string{"U1"}})
		if n := say(t, s, "C2"); n != 0 {
			t.Errorf("%d events", n)
		}
	})
	t.Run("mentions only", func(t *testing.T) {
		s, _ := connected(t, Config{Scopes: []string{"app_mentions:read"}}, nil)
		if n := say(t, s, "C1"); n != 1 || s.Deliveries()[0].Type != "app_mention" {
			t.Errorf("%+v", s.Deliveries())
		}
	})
}

func TestTheAppsOwnMessagesAreEventsToo(t *testing.T) {
	s, got := connected(t, Config{}, nil)
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "mine")).str("ts")
	e := pick(<-got, "payload.event")
	if pick(e, "bot_id") != "BBOT" || pick(e, "user") != "UBOT" || pick(e, "ts") != ts {
		t.Errorf("the echo is %v", e)
	}
}

func TestSlackConnectEventsNameTheForeignTeam(t *testing.T) {
	s, got := connected(t, Config{}, nil)
	s.AddUser(User{ID: "U9", Stranger: true, Team: "T9"})
	s.AddChannel(Channel{ID: "C9", ExtShared: true})
	if _, err := s.Say(t.Context(), Message{User: "U9", Channel: "C9", Text: "hi"}); err != nil {
		t.Fatal(err)
	}
	f := <-got
	if pick(f, "payload.is_ext_shared_channel") != true || pick(f, "payload.event.user_team") != "T9" {
		t.Errorf("got %v", f)
	}
}

func TestFilesOfPeopleAreReadWithTheBotTokenOnly(t *testing.T) {
	s, got := connected(t, Config{}, nil)
	id := s.AddFile("C1", "app.log", "text/plain", []byte("boom"))
	if _, err := s.Say(t.Context(), Message{User: "U1", Channel: "C1", Text: "see", Files: []string{id}}); err != nil {
		t.Fatal(err)
	}
	e := pick(<-got, "payload.event").(map[string]any)
	if e["subtype"] != "file_share" {
		t.Fatalf("the event is %v", e)
	}
	u, _ := pick(e["files"].([]any)[0], "url_private").(string)
	get := func(token string) (string, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b), resp.Header.Get("Content-Type")
	}
	if body, _ := get("xoxb-1"); body != "boom" {
		t.Errorf("with the token: %q", body)
	}
	if body, ct := get("wrong"); !strings.Contains(ct, "html") || strings.Contains(body, "boom") {
		t.Errorf("without the token: %q, %q", body, ct)
	}
	mustOK(t, form(t, s, "files.info", "file", id))
}

const approve = `[{"type":"actions","block_id":"bx","elements":[{"type":"button","action_id":"ok","value":"r1","style":"danger",
	"text":{"type":"plain_text","text":"Approve"},"confirm":{"title":{"type":"plain_text","text":"Sure?"},
	"text":{"type":"plain_text","text":"rm -rf on db1"}}}]}]`

func TestPressSendsWhatTheStoredButtonSays(t *testing.T) {
	s, got := connected(t, Config{NoEcho: true}, nil)
	s.AddUser(User{ID: "U9", Name: "eve", Team: "T9"})
	root := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "root")).str("ts")
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "thread_ts", root, "text", "card", "blocks", approve)).str("ts")
	in, err := s.Press(t.Context(), "U9", "C1", ts, "ok")
	if err != nil {
		t.Fatal(err)
	}
	if in.Value != "r1" || in.BlockID != "bx" || in.Confirm != "rm -rf on db1" {
		t.Errorf("the interaction is %+v", in)
	}
	f := <-got
	p := f["payload"]
	a := p.(map[string]any)["actions"].([]any)[0]
	for path, want := range map[string]any{
		"type": "block_actions", "user.id": "U9", "user.team_id": "T9", "team.id": "T1", "channel.id": "C1", "container.message_ts": ts,
		"container.thread_ts": root, "message.ts": ts, "message.thread_ts": root, "trigger_id": in.TriggerID, "response_url": in.ResponseURL,
	} {
		if pick(p, path) != want {
			t.Errorf("%s is %v, want %v", path, pick(p, path), want)
		}
	}
	if f["type"] != "interactive" || pick(a, "value") != "r1" || pick(a, "action_id") != "ok" || pick(a, "block_id") != "bx" {
		t.Errorf("the action is %v in %v", a, f)
	}
	if _, err := s.Press(t.Context(), "U1", "C1", ts, "nope"); err == nil {
		t.Error("a button that is not there was pressed")
	}
	mustOK(t, form(t, s, "chat.update", "channel", "C1", "ts", ts, "text", "done", "blocks", "[]"))
	if _, err := s.Press(t.Context(), "U1", "C1", ts, "ok"); err == nil {
		t.Error("a button that was taken away was pressed")
	}
}

func TestAResponseURLWorksFiveTimes(t *testing.T) {
	s, _ := connected(t, Config{NoEcho: true}, nil)
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "card", "blocks", approve)).str("ts")
	in, err := s.Press(t.Context(), "U1", "C1", ts, "ok")
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, in.ResponseURL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, body := range []string{
		`{"text":"only you"}`, `{"response_type":"in_channel","text":"all"}`, `{"replace_original":true,"text":"new","blocks":[]}`,
		`{"text":""}`, `{"delete_original":true}`,
	} {
		want := http.StatusOK
		if body == `{"text":""}` {
			want = http.StatusInternalServerError
		}
		if got := post(body); got != want {
			t.Errorf("%s answered %d", body, got)
		}
	}
	if got := post(`{"text":"sixth"}`); got != http.StatusNotFound {
		t.Errorf("the sixth post answered %d", got)
	}
	if e := s.Ephemerals("C1", "U1"); len(e) != 1 || e[0].Text != "only you" || len(s.Ephemerals("C1", "U2")) != 0 {
		t.Errorf("the ephemerals are %+v", e)
	}
	if m, _ := s.Message("C1", ts); !m.Deleted || len(s.ResponsePosts()) != 5 {
		t.Errorf("the original is %+v after %d posts", m, len(s.ResponsePosts()))
	}
}

const modal = `{"type":"modal","callback_id":"why","private_metadata":"r1","title":{"type":"plain_text","text":"Edit"},
	"submit":{"type":"plain_text","text":"Save"},"blocks":[{"type":"input","block_id":"b1","label":{"type":"plain_text","text":"Command"},
	"element":{"type":"plain_text_input","action_id":"cmd","initial_value":"ls","max_length":20}}]}`

func TestModals(t *testing.T) {
	var reply atomic.Value
	reply.Store(map[string]any(nil))
	s, got := connected(t, Config{NoEcho: true}, func(f map[string]any) any {
		if pick(f, "payload.type") == "view_submission" {
			return reply.Load()
		}
		return nil
	})
	ctx := t.Context()
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "card", "blocks", approve)).str("ts")
	open := func() View {
		t.Helper()
		in, err := s.Press(ctx, "U1", "C1", ts, "ok")
		if err != nil {
			t.Fatal(err)
		}
		mustOK(t, form(t, s, "views.open", "trigger_id", in.TriggerID, "view", modal))
		mustFail(t, form(t, s, "views.open", "trigger_id", in.TriggerID, "view", modal), "exchanged_trigger_id")
		vs := s.Views("U1")
		return vs[len(vs)-1]
	}
	v := open()
	if !v.Open || v.Title != "Edit" || v.CallbackID != "why" || v.PrivateMetadata != "r1" {
		t.Fatalf("the view is %+v", v)
	}
	<-got
	var refused *ViewError
	if err := s.SubmitView(ctx, "U1", v.ID, map[string]string{"cmd": strings.Repeat("x", 21)}); !errors.As(err, &refused) || refused.Errors["b1"] == "" {
		t.Errorf("an input that is too long gave %v", err)
	}
	reply.Store(map[string]any{"response_action": "errors", "errors": map[string]string{"b1": "no"}})
	if err := s.SubmitView(ctx, "U1", v.ID, map[string]string{"cmd": "rm"}); !errors.As(err, &refused) || refused.Errors["b1"] != "no" {
		t.Errorf("errors gave %v", err)
	}
	f := <-got
	if f["accepts_response_payload"] != true || pick(f, "payload.view.state.values.b1.cmd.value") != "rm" || pick(f, "payload.view.private_metadata") != "r1" {
		t.Errorf("the submission is %v", f)
	}
	reply.Store(map[string]any{"response_action": "update", "view": json.RawMessage(strings.Replace(modal, "Edit", "Again", 1))})
	if err := s.SubmitView(ctx, "U1", v.ID, nil); err != nil {
		t.Fatal(err)
	}
	if vs := s.Views("U1"); vs[0].Title != "Again" || !vs[0].Open || vs[0].Hash == v.Hash {
		t.Errorf("the view after update is %+v", vs)
	}
	mustFail(t, form(t, s, "views.update", "view_id", v.ID, "hash", v.Hash, "view", modal), "hash_conflict")
	mustOK(t, form(t, s, "views.update", "view_id", v.ID, "view", modal))
	reply.Store(map[string]any(nil))
	if err := s.SubmitView(ctx, "U1", v.ID, nil); err != nil {
		t.Fatal(err)
	}
	if vs := s.Views("U1"); vs[0].Open {
		t.Error("an empty acknowledgement left the modal open")
	}
	mustFail(t, form(t, s, "views.update", "view_id", v.ID, "view", modal), "not_found")
	v2 := open()
	reply.Store(map[string]any{"response_action": "clear"})
	if err := s.SubmitView(ctx, "U1", v2.ID, nil); err != nil || s.Views("U1")[1].Open {
		t.Errorf("clear gave %v", err)
	}
	v3 := open()
	if err := s.CloseView(ctx, "U1", v3.ID); err != nil || s.Views("U1")[2].Open {
		t.Errorf("closing gave %v", err)
	}
}

func TestATriggerExpires(t *testing.T) {
	s, _ := connected(t, Config{NoEcho: true, TriggerLife: time.Nanosecond}, nil)
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "card", "blocks", approve)).str("ts")
	in, err := s.Press(t.Context(), "U1", "C1", ts, "ok")
	if err != nil {
		t.Fatal(err)
	}
	mustFail(t, form(t, s, "views.open", "trigger_id", in.TriggerID, "view", modal), "expired_trigger_id")
	mustFail(t, form(t, s, "views.open", "trigger_id", "1.2.x", "view", modal), "invalid_trigger_id")
}

func TestCommandsShowTheMessageOfTheirAcknowledgement(t *testing.T) {
	s, got := connected(t, Config{NoEcho: true}, func(map[string]any) any { return map[string]any{"text": "help"} })
	if err := s.Command(t.Context(), "U1", "C1", "/ops", "restart web"); err != nil {
		t.Fatal(err)
	}
	f := <-got
	if f["type"] != "slash_commands" || pick(f, "payload.command") != "/ops" || pick(f, "payload.text") != "restart web" || pick(f, "payload.thread_ts") != nil {
		t.Errorf("the command is %v", f)
	}
	if e := s.Ephemerals("C1", "U1"); len(e) != 1 || e[0].Text != "help" {
		t.Errorf("the ephemerals are %+v", e)
	}
}

func TestHomeAndAssistantThreads(t *testing.T) {
	s, got := connected(t, Config{AssistantStatus: true, NoEcho: true}, nil)
	if err := s.OpenHome(t.Context(), "U1"); err != nil {
		t.Fatal(err)
	}
	if e := pick(<-got, "payload.event"); pick(e, "type") != "app_home_opened" || pick(e, "user") != "U1" || pick(e, "tab") != "home" {
		t.Errorf("the event is %v", e)
	}
	home := `{"type":"home","blocks":[{"type":"divider"}]}`
	mustOK(t, form(t, s, "views.publish", "user_id", "U1", "view", home))
	if !strings.Contains(string(s.Home("U1")), "divider") || s.Home("U2") != nil {
		t.Errorf("the home is %s", s.Home("U1"))
	}
	ch, root, err := s.AssistantThread(t.Context(), "U1")
	if err != nil {
		t.Fatal(err)
	}
	if e := pick(<-got, "payload.event"); pick(e, "assistant_thread.channel_id") != ch || pick(e, "assistant_thread.thread_ts") != root {
		t.Errorf("the event is %v", e)
	}
	mustOK(t, form(t, s, "assistant.threads.setStatus", "channel_id", ch, "thread_ts", root, "status", "is thinking..."))
	mustOK(t, form(t, s, "assistant.threads.setTitle", "channel_id", ch, "thread_ts", root, "title", "Disk full"))
	mustOK(t, form(t, s, "assistant.threads.setSuggestedPrompts", "channel_id", ch, "thread_ts", root, "prompts", `[{"title":"a","message":"b"}]`))
	mustFail(t, form(t, s, "assistant.threads.setStatus", "channel_id", ch, "thread_ts", "1.1", "status", "x"), "invalid_thread_ts")
	if s.Status(ch, root) != "is thinking..." || s.ThreadTitle(ch, root) != "Disk full" || s.SuggestedPrompts(ch, root) == nil {
		t.Errorf("status %q, title %q", s.Status(ch, root), s.ThreadTitle(ch, root))
	}
	mustOK(t, form(t, s, "chat.postMessage", "channel", ch, "thread_ts", root, "text", "done"))
	if s.Status(ch, root) != "" {
		t.Error("a post in the thread left the status")
	}
}
