package slackfake

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/slackevents"
	"github.com/slack-go/slack/socketmode"
)

// golib is slack-go's client and a running Socket Mode client that hands its events to f.
func golib(t *testing.T, s *Server, f func(*socketmode.Client, socketmode.Event)) *slack.Client {
	t.Helper()
	api := slack.New("xoxb-1", slack.OptionAppLevelToken("xapp-1"), slack.OptionAPIURL(s.URL()))
	sm := socketmode.New(api)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = sm.RunContext(ctx) }()
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		for {
			select {
			case e := <-sm.Events:
				f(sm, e)
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended; <-handled })
	return api
}

func TestSlackGo(t *testing.T) {
	s, ctx := world(t, Config{NoEcho: true, Streaming: true, AssistantStatus: true, AckTimeout: 2 * time.Second})
	said := make(chan *slackevents.MessageEvent, 10)
	clicked := make(chan slack.InteractionCallback, 10)
	commands := make(chan slack.SlashCommand, 10)
	api := golib(t, s, func(sm *socketmode.Client, e socketmode.Event) {
		switch data := e.Data.(type) {
		case slackevents.EventsAPIEvent:
			if m, isMessage := data.InnerEvent.Data.(*slackevents.MessageEvent); isMessage {
				said <- m
			}
			_ = sm.Ack(*e.Request)
		case slack.InteractionCallback:
			if data.Type == slack.InteractionTypeViewSubmission {
				_ = sm.Ack(*e.Request, slack.NewErrorsViewSubmissionResponse(map[string]string{"b1": "no"}))
			} else {
				_ = sm.Ack(*e.Request)
			}
			clicked <- data
		case slack.SlashCommand:
			commands <- data
			_ = sm.Ack(*e.Request, map[string]any{"text": "on it"})
		}
	})
	if err := s.Wait(ctx, func() bool { return s.Sockets() == 1 }); err != nil {
		t.Fatal(err)
	}

	auth, err := api.AuthTestContext(ctx)
	if err != nil || auth.BotID != "BBOT" || auth.TeamID != "T1" {
		t.Fatalf("auth.test: %+v, %v", auth, err)
	}

	root, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "disk full on <@UBOT>"})
	if err != nil {
		t.Fatal(err)
	}
	if m := <-said; m.TimeStamp != root || m.Channel != "C1" || m.User != "U1" || m.ChannelType != "channel" {
		t.Errorf("the message is %+v", m)
	}

	confirm := slack.NewConfirmationBlockObject(slack.NewTextBlockObject("plain_text", "Sure?", false, false),
		slack.NewTextBlockObject("plain_text", "df on db1", false, false), slack.NewTextBlockObject("plain_text", "Run", false, false),
		slack.NewTextBlockObject("plain_text", "Back", false, false))
	button := slack.NewButtonBlockElement("ok", "r1", slack.NewTextBlockObject("plain_text", "Approve", false, false)).
		WithStyle(slack.StyleDanger).WithConfirm(confirm)
	card := []slack.Block{
		slack.NewHeaderBlock(slack.NewTextBlockObject("plain_text", "Read the disk", false, false)),
		slack.NewSectionBlock(slack.NewTextBlockObject("mrkdwn", "on *db1*", false, true), nil, nil),
		slack.NewRichTextBlock("", &slack.RichTextPreformatted{
			Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{
				slack.NewRichTextSectionTextElement("df -h", nil),
			},
		}),
		slack.NewContextBlock("", slack.NewTextBlockObject("mrkdwn", "r1", false, false)),
		slack.NewActionBlock("", button),
	}
	_, ts, posted, err := api.PostMessageWithResponseContext(ctx, "C1", slack.MsgOptionText("Read the disk?", false),
		slack.MsgOptionBlocks(card...), slack.MsgOptionTS(root),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "ask", EventPayload: map[string]any{"id": "r1"}}))
	if err != nil || posted.ThreadTimestamp != root {
		t.Fatalf("posting: %v, thread %q", err, posted.ThreadTimestamp)
	}
	if m, _ := s.Message("C1", ts); !strings.Contains(m.Plain(), "df -h") || !strings.Contains(m.Plain(), "[Approve]") {
		t.Errorf("people read %q", m.Plain())
	}

	press, err := s.Press(ctx, "U2", "C1", ts, "ok")
	if err != nil || press.Confirm != "df on db1" {
		t.Fatalf("%+v, %v", press, err)
	}
	click := <-clicked
	a := click.ActionCallback.BlockActions[0]
	if click.User.ID != "U2" || click.Message.Timestamp != ts || click.Container.ThreadTs != root || a.Value != "r1" || a.ActionID != "ok" {
		t.Errorf("the click is %+v", click)
	}

	view := slack.ModalViewRequest{
		Type: slack.VTModal, Title: slack.NewTextBlockObject("plain_text", "Edit", false, false),
		Submit: slack.NewTextBlockObject("plain_text", "Save", false, false), PrivateMetadata: "r1",
		Blocks: slack.Blocks{BlockSet: []slack.Block{slack.NewInputBlock("b1", slack.NewTextBlockObject("plain_text", "Command", false, false), nil,
			slack.NewPlainTextInputBlockElement(nil, "cmd"))}},
	}
	opened, err := api.OpenViewContext(ctx, click.TriggerID, view)
	if err != nil || opened.PrivateMetadata != "r1" {
		t.Fatalf("views.open: %+v, %v", opened, err)
	}
	var refused *ViewError
	if err := s.SubmitView(ctx, "U2", opened.ID, map[string]string{"cmd": "df"}); !errors.As(err, &refused) || refused.Errors["b1"] != "no" {
		t.Errorf("submitting gave %v", err)
	}
	if sub := <-clicked; sub.View.State.Values["b1"]["cmd"].Value != "df" || sub.View.PrivateMetadata != "r1" {
		t.Errorf("the submission is %+v", sub.View)
	}
	if _, err := api.OpenViewContext(ctx, click.TriggerID, view); err == nil || err.Error() != "exchanged_trigger_id" {
		t.Errorf("a used trigger gave %v", err)
	}

	if _, _, _, err := api.UpdateMessageContext(ctx, "C1", ts, slack.MsgOptionText("done", false), slack.MsgOptionBlocks(card[:2]...)); err != nil {
		t.Errorf("chat.update: %v", err)
	}
	if _, err := api.PostEphemeralContext(ctx, "C1", "U1", slack.MsgOptionText("no", false)); err != nil {
		t.Errorf("chat.postEphemeral: %v", err)
	}
	long := slack.NewSectionBlock(slack.NewTextBlockObject("mrkdwn", strings.Repeat("x", 3001), false, false), nil, nil)
	_, _, err = api.PostMessageContext(ctx, "C1", slack.MsgOptionBlocks(long))
	var e slack.SlackErrorResponse
	if !errors.As(err, &e) || e.Err != "invalid_blocks" || len(e.ResponseMetadata.Messages) != 1 {
		t.Errorf("a section that is too long gave %#v", err)
	}

	up, err := api.UploadFileContext(ctx, slack.UploadFileParameters{
		Filename: "out.txt", Content: "all of it", FileSize: len("all of it"), Channel: "C1", ThreadTimestamp: root, InitialComment: "output",
	})
	if err != nil || string(s.FileContent(up.ID)) != "all of it" {
		t.Fatalf("upload: %+v, %v", up, err)
	}
	info, _, _, err := api.GetFileInfoContext(ctx, up.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if err := api.GetFileContext(ctx, info.URLPrivateDownload, &body); err != nil || body.String() != "all of it" {
		t.Errorf("download: %q, %v", body.String(), err)
	}

	_, sts, err := api.StartStreamContext(ctx, "C1", slack.MsgOptionTS(root), slack.MsgOptionRecipientTeamID("T1"),
		slack.MsgOptionRecipientUserID("U1"), slack.MsgOptionMarkdownText("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := api.AppendStreamContext(ctx, "C1", sts, slack.MsgOptionChunks(slack.NewMarkdownTextChunk("b"))); err != nil {
		t.Error(err)
	}
	if _, _, err := api.StopStreamContext(ctx, "C1", sts, slack.MsgOptionMarkdownText("c")); err != nil {
		t.Error(err)
	}
	if m, _ := s.Message("C1", sts); m.Text != "abc" {
		t.Errorf("the stream is %q", m.Text)
	}

	msgs, _, _, err := api.GetConversationRepliesContext(ctx, &slack.GetConversationRepliesParameters{ChannelID: "C1", Timestamp: root, IncludeAllMetadata: true})
	if err != nil || len(msgs) != 4 || msgs[1].Metadata.EventType != "ask" {
		t.Errorf("replies: %d, %v", len(msgs), err)
	}
	if h, err := api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{ChannelID: "C1"}); err != nil || len(h.Messages) != 1 {
		t.Errorf("history: %+v, %v", h, err)
	}
	if u, err := api.GetUserInfoContext(ctx, "U1"); err != nil || u.Name != "ann" {
		t.Errorf("users.info: %+v, %v", u, err)
	}
	s.SetUsergroup("S1", "U1")
	if us, err := api.GetUserGroupMembersContext(ctx, "S1"); err != nil || len(us) != 1 {
		t.Errorf("usergroups.users.list: %v, %v", us, err)
	}
	if c, err := api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: "C1"}); err != nil || !c.IsMember {
		t.Errorf("conversations.info: %+v, %v", c, err)
	}
	if link, err := api.GetPermalinkContext(ctx, &slack.PermalinkParameters{Channel: "C1", Ts: ts}); err != nil || link != s.Permalink("C1", ts) {
		t.Errorf("chat.getPermalink: %q, %v", link, err)
	}
	if err := api.SetAssistantThreadsStatusContext(ctx, slack.AssistantThreadsSetStatusParameters{ChannelID: "C1", ThreadTS: root, Status: "thinks"}); err != nil || s.Status("C1", root) != "thinks" {
		t.Errorf("status: %v", err)
	}
	if err := s.Command(ctx, "U1", "C1", "/ops", "x"); err != nil {
		t.Fatal(err)
	}
	if c := <-commands; c.Command != "/ops" || c.ChannelID != "C1" {
		t.Errorf("the command is %+v", c)
	}

	s.FailNext("chat.postMessage", 1, Answer{RetryAfter: 3 * time.Second})
	_, _, err = api.PostMessageContext(ctx, "C1", slack.MsgOptionText("x", false))
	var limited *slack.RateLimitedError
	if !errors.As(err, &limited) || limited.RetryAfter != 3*time.Second {
		t.Errorf("a rate limit gave %v", err)
	}

	// The client leaves at a disconnect frame and comes back; a message that was said in between is delivered as a retry.
	s.DisconnectAll("refresh_requested")
	if err := s.Wait(ctx, func() bool { return s.Count("apps.connections.open") == 2 && s.Sockets() == 1 }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "still there?"}); err != nil {
		t.Fatal(err)
	}
	if m := <-said; m.Text != "still there?" {
		t.Errorf("after the reconnect came %+v", m)
	}
}
