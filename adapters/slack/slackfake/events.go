package slackfake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is what a person (or another bot) says.
type Message struct {
	// User is who says it; Channel is where; Thread is the root's timestamp for a reply.
	User, Channel, Thread, Text string
	// Files are ids from AddFile; with files the subtype is file_share.
	Files []string
	// Attachments are those of a message that forwards others, as JSON.
	Attachments json.RawMessage
	// Subtype and BotID make it a message of another kind or of another bot. ClientMsgID is made up when it is empty.
	Subtype, BotID, ClientMsgID string
	// Mention sends an app_mention event for the same message as well. It is not derived from the text, so that a test can ask for
	// one without the other.
	Mention bool
	// TS is the timestamp to use. One that exists delivers the same message again with the same event ids, and stores nothing.
	TS string
}

// subscribed says whether the app gets message events of a channel: it is in it, and has the scope.
func (s *Server) subscribed(c *channel) bool {
	_, kind := c.kind()
	return s.isMember(c, s.cfg.BotUser) && s.granted(kind+":history")
}

// event sends an events_api envelope. The key makes the event id the same in a redelivery. The caller holds mu.
func (s *Server) event(c *channel, ev map[string]any, key string) *envelope {
	typ, _ := ev["type"].(string)
	id := s.eventIDs[key]
	if id == "" {
		id = s.newID("Ev")
		if key != "" {
			s.eventIDs[key] = id
		}
	}
	ext := c != nil && c.ExtShared
	payload := map[string]any{
		"token": "verification", "team_id": s.cfg.Team, "context_team_id": s.cfg.Team, "context_enterprise_id": nil,
		"api_app_id": s.cfg.AppID, "event": ev, "type": "event_callback", "event_id": id, "event_time": time.Now().Unix(),
		"authorizations": []any{map[string]any{
			"enterprise_id": nil, "team_id": s.cfg.Team, "user_id": s.cfg.BotUser, "is_bot": true, "is_enterprise_install": false,
		}},
		"is_ext_shared_channel": ext, "event_context": "4-" + id,
	}
	return s.send(kindEvent, typ, id, payload, false)
}

// messageEvent is a message as the event of its posting carries it. The caller holds mu.
func (s *Server) messageEvent(c *channel, m *message) map[string]any {
	ev := s.messageJSON(c, m, false)
	kind, _ := c.kind()
	ev["channel"], ev["channel_type"], ev["event_ts"] = c.ID, kind, m.TS
	for _, k := range []string{"reply_count", "reply_users", "reply_users_count", "latest_reply", "reactions"} {
		delete(ev, k)
	}
	if !m.threadLocal {
		delete(ev, "thread_ts")
	}
	if u := s.users[m.User]; c.ExtShared && u != nil {
		ev["user_team"], ev["source_team"] = u.Team, u.Team
	}
	return ev
}

// echo sends the event about a message of the app's own, which Slack sends to the app like any other.
func (s *Server) echo(c *channel, m *message) {
	if !s.cfg.NoEcho && s.subscribed(c) {
		s.event(c, s.messageEvent(c, m), "")
	}
}

func (s *Server) changeEvent(c *channel, before, after *message) map[string]any {
	kind, _ := c.kind()
	at := s.newTS()
	return map[string]any{
		"type": "message", "subtype": "message_changed", "hidden": true, "channel": c.ID, "channel_type": kind, "ts": at, "event_ts": at,
		"message": s.messageJSON(c, after, false), "previous_message": s.messageJSON(c, before, false),
	}
}

func (s *Server) echoChange(c *channel, before, after *message) {
	if !s.cfg.NoEcho && s.subscribed(c) {
		s.event(c, s.changeEvent(c, before, after), "")
	}
}

// remove deletes a message and returns the event about it: message_changed with a tombstone for a root that has replies (measured,
// 42wim/matterbridge issue 600), and otherwise message_deleted. The caller holds mu.
func (s *Server) remove(c *channel, m *message) map[string]any {
	before := *m
	if c.drop(m) {
		s.bump()
		return s.changeEvent(c, &before, m)
	}
	s.bump()
	kind, _ := c.kind()
	at := s.newTS()
	return map[string]any{
		"type": "message", "subtype": "message_deleted", "hidden": true, "channel": c.ID, "channel_type": kind, "ts": at, "event_ts": at,
		"deleted_ts": before.TS, "previous_message": s.messageJSON(c, &before, false),
	}
}

func (s *Server) echoDelete(c *channel, m *message) {
	if ev := s.remove(c, m); !s.cfg.NoEcho && s.subscribed(c) {
		s.event(c, ev, "")
	}
}

// entity finds the mentions in a text that a person typed.
var entity = regexp.MustCompile(`<[@#!][^<>]*>`)

// typedBlocks are the blocks that Slack's own clients add to what people type: one rich_text block.
func (s *Server) typedBlocks(text string) json.RawMessage {
	var els []any
	add := func(t string) {
		if t != "" {
			els = append(els, map[string]any{"type": "text", "text": unescape(t)})
		}
	}
	rest := text
	for _, at := range entity.FindAllStringIndex(text, -1) {
		offset := len(text) - len(rest)
		add(rest[:at[0]-offset])
		body, _, _ := strings.Cut(text[at[0]+1:at[1]-1], "|")
		switch {
		case body[0] == '@':
			els = append(els, map[string]any{"type": "user", "user_id": body[1:]})
		case body[0] == '#':
			els = append(els, map[string]any{"type": "channel", "channel_id": body[1:]})
		case body == "!here" || body == "!channel" || body == "!everyone":
			els = append(els, map[string]any{"type": "broadcast", "range": body[1:]})
		case strings.HasPrefix(body, "!subteam^"):
			els = append(els, map[string]any{"type": "usergroup", "usergroup_id": body[len("!subteam^"):]})
		default:
			add(text[at[0]:at[1]])
		}
		rest = text[at[1]:]
	}
	add(rest)
	if len(els) == 0 {
		return nil
	}
	out, _ := json.Marshal([]any{map[string]any{
		"type": "rich_text", "block_id": s.newID("b"),
		"elements": []any{map[string]any{"type": "rich_text_section", "elements": els}},
	}})
	return out
}

// Say posts a message of a person, delivers its events and returns when all are acknowledged. When the app is not in the channel or
// lacks the scope, nothing is delivered and there is no error. The context ends only the waiting: the delivery and its retries go on.
func (s *Server) Say(ctx context.Context, in Message) (ts string, err error) {
	s.mu.Lock()
	c := s.channels[in.Channel]
	if c == nil {
		s.mu.Unlock()
		return "", fmt.Errorf("slackfake: there is no channel %q: call AddChannel first", in.Channel)
	}
	if s.users[in.User] == nil && in.BotID == "" {
		s.mu.Unlock()
		return "", fmt.Errorf("slackfake: there is no user %q: call AddUser first", in.User)
	}
	m := c.msgs[in.TS]
	if in.TS == "" || m == nil {
		if in.Thread != "" && c.replyable(in.Thread) == "" {
			s.mu.Unlock()
			return "", fmt.Errorf("slackfake: there is no thread %s in %s", in.Thread, in.Channel)
		}
		m = &message{Msg: Msg{TS: in.TS, User: in.User, BotID: in.BotID, Subtype: in.Subtype, Text: in.Text, Attachments: in.Attachments}, clientMsgID: in.ClientMsgID}
		if m.clientMsgID == "" && in.BotID == "" {
			m.clientMsgID = secretToken()
		}
		if in.Thread != "" {
			m.ThreadTS = c.replyable(in.Thread)
			m.Broadcast = in.Subtype == "thread_broadcast"
		}
		for _, id := range in.Files {
			f := s.files[id]
			if f == nil {
				s.mu.Unlock()
				return "", fmt.Errorf("slackfake: there is no file %q: call AddFile first", id)
			}
			m.Files = append(m.Files, f.FileInfo)
			if m.Subtype == "" {
				m.Subtype = "file_share"
			}
		}
		m.Blocks = s.typedBlocks(in.Text)
		s.put(c, m)
	}
	var sent []*envelope
	if s.subscribed(c) {
		sent = append(sent, s.event(c, s.messageEvent(c, m), "message "+c.ID+" "+m.TS))
	}
	if in.Mention && s.isMember(c, s.cfg.BotUser) && s.granted("app_mentions:read") {
		ev := s.messageEvent(c, m)
		ev["type"] = "app_mention"
		delete(ev, "channel_type")
		delete(ev, "subtype")
		sent = append(sent, s.event(c, ev, "app_mention "+c.ID+" "+m.TS))
	}
	ts = m.TS
	s.mu.Unlock()
	_, err = s.wait(ctx, sent...)
	return ts, err
}

// Edit changes the text of a message of a person and delivers message_changed.
func (s *Server) Edit(ctx context.Context, channelID, ts, newText string) error {
	return s.alter(ctx, channelID, ts, func(c *channel, m *message) map[string]any {
		before := *m
		m.Text, m.Edited, m.editedTS, m.Blocks = newText, true, s.newTS(), s.typedBlocks(newText)
		s.bump()
		return s.changeEvent(c, &before, m)
	})
}

// Delete removes a message and delivers message_deleted, or message_changed with a tombstone for a root that has replies.
func (s *Server) Delete(ctx context.Context, channelID, ts string) error {
	return s.alter(ctx, channelID, ts, s.remove)
}

func (s *Server) alter(ctx context.Context, channelID, ts string, f func(*channel, *message) map[string]any) error {
	s.mu.Lock()
	c := s.channels[channelID]
	if c == nil || c.live(ts) == nil {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: there is no message %s in channel %q", ts, channelID)
	}
	ev := f(c, c.msgs[ts])
	var sent []*envelope
	if s.subscribed(c) {
		sent = append(sent, s.event(c, ev, ""))
	}
	s.mu.Unlock()
	_, err := s.wait(ctx, sent...)
	return err
}

// Interaction is what was sent for something that a person pressed.
type Interaction struct {
	ActionID, BlockID, Value string
	// Confirm is the text of the button's confirm dialog, "" when it has none. The fake presses on without asking.
	Confirm string
	// TriggerID and ResponseURL are what the app got.
	TriggerID, ResponseURL string
	// Payload is the whole interaction; Ack is the payload of the acknowledgement.
	Payload, Ack json.RawMessage
}

// Press presses the button with this action id, or chooses the entry of a menu that has it as its value, in a message, or in an ephemeral message that the user was shown, and returns when
// the app has acknowledged. It fails when there is no such button, and with ErrNotAcknowledged, because interactions are not retried.
func (s *Server) Press(ctx context.Context, user, channelID, messageTS, actionID string) (Interaction, error) {
	return s.PressWith(ctx, user, channelID, messageTS, actionID, nil)
}

// PressWith is Press with texts typed into the message's input blocks, by action id; Slack sends them as the interaction's state.
func (s *Server) PressWith(ctx context.Context, user, channelID, messageTS, actionID string, values map[string]string) (Interaction, error) {
	s.mu.Lock()
	c, u := s.channels[channelID], s.users[user]
	if c == nil || u == nil {
		s.mu.Unlock()
		return Interaction{}, fmt.Errorf("slackfake: there is no channel %q or no user %q", channelID, user)
	}
	if (c.Private || c.IM || c.MPIM) && !s.isMember(c, user) {
		s.mu.Unlock()
		return Interaction{}, fmt.Errorf("slackfake: %s is not in %s and can see nothing there", user, channelID)
	}
	container := map[string]any{"type": "message", "message_ts": messageTS, "channel_id": channelID, "is_ephemeral": false}
	var blocks json.RawMessage
	var msg map[string]any
	thread := ""
	if m := c.live(messageTS); m != nil {
		blocks, msg, thread = m.Blocks, s.messageJSON(c, m, false), m.ThreadTS
	} else {
		for i, e := range c.eph {
			if e.TS == messageTS && c.ephTo[i] == user && !e.Deleted {
				blocks, thread = e.Blocks, e.ThreadTS
				container["is_ephemeral"] = true
			}
		}
	}
	el := findAction(blocks, actionID)
	if el == nil {
		s.mu.Unlock()
		return Interaction{}, fmt.Errorf("slackfake: the message %s in %s has no button %q", messageTS, channelID, actionID)
	}
	if thread != "" {
		container["thread_ts"] = thread
	}
	actionID, _ = el.fields["action_id"].(string)
	in := Interaction{ActionID: actionID, BlockID: el.blockID, Value: el.value, Confirm: el.confirm}
	in.TriggerID = s.newTrigger(user, "")
	in.ResponseURL = s.newResponseURL(responseURL{channel: channelID, user: user, messageTS: messageTS, threadTS: thread})
	action := map[string]any{
		"action_id": actionID, "block_id": el.blockID, "type": el.kind, "action_ts": s.newTS(),
	}
	if el.option != nil {
		action["selected_option"] = el.option
	}
	for _, k := range []string{"text", "value", "style", "url"} {
		if v, found := el.fields[k]; found {
			action[k] = v
		}
	}
	name := c.Name
	if c.IM {
		name = "directmessage"
	} else if c.Private {
		name = "privategroup"
	}
	payload := s.interaction("block_actions", u, in.TriggerID)
	payload["container"], payload["channel"] = container, map[string]any{"id": c.ID, "name": name}
	state := map[string]any{}
	var shown []any
	d := json.NewDecoder(bytes.NewReader(blocks))
	d.UseNumber()
	_ = d.Decode(&shown)
	for _, f := range inputs(shown) {
		entry := map[string]any{"type": f.kind, "value": nil}
		if v := values[f.actionID]; v != "" {
			entry["value"] = v
		}
		state[f.blockID] = map[string]any{f.actionID: entry}
	}
	payload["state"], payload["response_url"] = map[string]any{"values": state}, in.ResponseURL
	payload["actions"] = []any{action}
	if msg != nil {
		payload["message"] = msg
	}
	in.Payload, _ = json.Marshal(payload)
	e := s.send(kindInteractive, "block_actions", "", payload, false)
	s.mu.Unlock()
	var err error
	in.Ack, err = s.wait(ctx, e)
	return in, err
}

// interaction has the fields that all interactions share. The caller holds mu.
func (s *Server) interaction(typ string, u *User, trigger string) map[string]any {
	return map[string]any{
		"type": typ, "token": "verification", "api_app_id": s.cfg.AppID, "trigger_id": trigger, "enterprise": nil,
		"is_enterprise_install": false, "team": map[string]any{"id": s.cfg.Team, "domain": strings.ToLower(s.cfg.Team)},
		"user": map[string]any{"id": u.ID, "username": u.Name, "name": u.Name, "team_id": u.Team},
	}
}

// ViewError is what a person is told under the inputs of a modal: by the app in its acknowledgement, or by Slack itself before
// anything is sent. The keys are block ids.
type ViewError struct{ Errors map[string]string }

func (e *ViewError) Error() string {
	return fmt.Sprintf("slackfake: the modal stays open because of its inputs: %v", e.Errors)
}

// input is an input of a view.
type input struct {
	blockID, actionID, kind string
	optional                bool
	fields                  map[string]any
}

func (v *view) inputs() []input { return inputs(v.blocks) }

func inputs(blocks []any) []input {
	var out []input
	for _, b := range blocks {
		blk, _ := b.(map[string]any)
		if el, isMap := blk["element"].(map[string]any); isMap && blk["type"] == "input" {
			in := input{fields: el}
			in.blockID, _ = blk["block_id"].(string)
			in.actionID, _ = el["action_id"].(string)
			in.kind, _ = el["type"].(string)
			in.optional, _ = blk["optional"].(bool)
			out = append(out, in)
		}
	}
	return out
}

// SubmitView submits an open modal with the given texts for its inputs, by action id; an input that is not named keeps its
// initial value. It understands what the app may answer (errors, update, push, clear, or nothing, which closes the modal) and
// returns a *ViewError when the inputs were refused, by Slack's own rules or by the app.
func (s *Server) SubmitView(ctx context.Context, user, viewID string, values map[string]string) error {
	s.mu.Lock()
	v, u := s.views[viewID], s.users[user]
	if v == nil || !v.open || v.user != user || u == nil {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: %s has no open view %q", user, viewID)
	}
	state, refused, known := map[string]any{}, map[string]string{}, map[string]bool{}
	for _, in := range v.inputs() {
		known[in.actionID] = true
		val, given := values[in.actionID]
		if !given {
			val, _ = in.fields["initial_value"].(string)
		}
		n := utf8.RuneCountInString(val)
		if in.kind == "checkboxes" {
			var chosen []any
			options, _ := in.fields["options"].([]any)
			initial, _ := in.fields["initial_options"].([]any)
			for i, o := range options {
				value, _ := o.(map[string]any)["value"].(string)
				if given && slices.Contains(strings.Fields(val), value) || !given && i < len(initial) {
					chosen = append(chosen, o)
				}
			}
			if len(chosen) == 0 && !in.optional {
				refused[in.blockID] = "Please complete this required field."
			}
			state[in.blockID] = map[string]any{in.actionID: map[string]any{"type": in.kind, "selected_options": chosen}}
			continue
		}
		least, most := number(in.fields["min_length"]), number(in.fields["max_length"])
		switch {
		case n == 0 && !in.optional:
			refused[in.blockID] = "Please complete this required field."
		case n > 0 && n < least:
			refused[in.blockID] = fmt.Sprintf("Must be at least %d characters.", least)
		case most > 0 && n > most:
			refused[in.blockID] = fmt.Sprintf("Must be no more than %d characters.", most)
		}
		entry := map[string]any{"type": in.kind, "value": nil}
		if n > 0 {
			entry["value"] = val
		}
		state[in.blockID] = map[string]any{in.actionID: entry}
	}
	for id := range values {
		if !known[id] {
			s.mu.Unlock()
			return fmt.Errorf("slackfake: the view %s has no input %q", viewID, id)
		}
	}
	if len(refused) > 0 {
		s.mu.Unlock()
		return &ViewError{refused}
	}
	js := s.viewJSON(v)
	js["state"] = map[string]any{"values": state}
	payload := s.interaction("view_submission", u, s.newTrigger(user, v.id))
	payload["view"], payload["response_urls"] = js, []any{}
	e := s.send(kindInteractive, "view_submission", "", payload, true)
	s.mu.Unlock()
	ack, err := s.wait(ctx, e)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applySubmission(v, ack)
}

func number(v any) int {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return int(i)
}

// applySubmission does what the acknowledgement of a submission says. The caller holds mu.
func (s *Server) applySubmission(v *view, ack json.RawMessage) error {
	var a struct {
		Action string            `json:"response_action"`
		Errors map[string]string `json:"errors"`
		View   json.RawMessage   `json:"view"`
	}
	_ = json.Unmarshal(ack, &a)
	switch a.Action {
	case "":
		v.open = false
	case "errors":
		for id := range a.Errors {
			if !slices.ContainsFunc(v.inputs(), func(in input) bool { return in.blockID == id }) {
				return fmt.Errorf("slackfake: the app answered an error for %q, which is no input block of the view", id)
			}
		}
		if len(a.Errors) == 0 {
			return errors.New("slackfake: the app answered errors without any")
		}
		return &ViewError{a.Errors}
	case "clear":
		for _, w := range s.views {
			if w.root == v.root {
				w.open = false
			}
		}
	case "update", "push":
		fields, blocks, msgs := checkView(string(a.View), "modal")
		if len(msgs) > 0 {
			return fmt.Errorf("slackfake: the app answered a view that Slack refuses: %v", msgs)
		}
		next := &view{fields: fields, blocks: blocks, open: true}
		if a.Action == "update" {
			s.replaceView(v, next)
			return nil
		}
		if s.stackSize(v.root) >= maxModals {
			return errors.New("slackfake: the app pushed a fourth view")
		}
		s.addView(next, v.user, v)
	default:
		return fmt.Errorf("slackfake: the app answered the unknown response_action %q", a.Action)
	}
	s.bump()
	return nil
}

// CloseView closes a modal with its close button and, when the view asks for it, delivers view_closed.
func (s *Server) CloseView(ctx context.Context, user, viewID string) error {
	s.mu.Lock()
	v, u := s.views[viewID], s.users[user]
	if v == nil || !v.open || v.user != user || u == nil {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: %s has no open view %q", user, viewID)
	}
	cleared, _ := v.fields["clear_on_close"].(bool)
	for _, w := range s.views {
		if w == v || cleared && w.root == v.root {
			w.open = false
		}
	}
	s.bump()
	var sent []*envelope
	if notify, _ := v.fields["notify_on_close"].(bool); notify {
		payload := s.interaction("view_closed", u, "")
		delete(payload, "trigger_id")
		payload["view"], payload["is_cleared"] = s.viewJSON(v), cleared
		sent = append(sent, s.send(kindInteractive, "view_closed", "", payload, false))
	}
	s.mu.Unlock()
	_, err := s.wait(ctx, sent...)
	return err
}

// Command types a slash command into a channel. A message in the acknowledgement is shown as Slack would. Commands do not work in
// threads and are not retried.
func (s *Server) Command(ctx context.Context, user, channelID, command, text string) error {
	s.mu.Lock()
	c, u := s.channels[channelID], s.users[user]
	if c == nil || u == nil {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: there is no channel %q or no user %q", channelID, user)
	}
	if !s.granted("commands") {
		s.mu.Unlock()
		return errors.New("slackfake: the app has no commands, because the scope commands was not granted")
	}
	at := responseURL{channel: channelID, user: user}
	name := c.Name
	if c.IM {
		name = "directmessage"
	} else if c.Private {
		name = "privategroup"
	}
	payload := map[string]any{
		"token": "verification", "team_id": s.cfg.Team, "team_domain": strings.ToLower(s.cfg.Team), "channel_id": channelID,
		"channel_name": name, "user_id": user, "user_name": u.Name, "command": command, "text": text, "api_app_id": s.cfg.AppID,
		"is_enterprise_install": "false", "response_url": s.newResponseURL(at), "trigger_id": s.newTrigger(user, ""),
	}
	e := s.send(kindCommand, command, "", payload, true)
	s.mu.Unlock()
	ack, err := s.wait(ctx, e)
	if err != nil || len(ack) == 0 || string(ack) == "{}" || string(ack) == "null" {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rep := s.applyResponse(&at, ack)
	s.bump()
	if code, isString := rep.body["error"].(string); isString {
		return fmt.Errorf("slackfake: the app answered the command with a message that Slack refuses: %s", code)
	}
	return nil
}

// OpenHome opens the app's home tab and delivers app_home_opened.
func (s *Server) OpenHome(ctx context.Context, user string) error {
	s.mu.Lock()
	if s.users[user] == nil {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: there is no user %q: call AddUser first", user)
	}
	c := s.dm(user)
	ev := map[string]any{"type": "app_home_opened", "user": user, "channel": c.ID, "tab": "home", "event_ts": s.newTS()}
	if v := s.homes[user]; v != nil {
		ev["view"] = s.viewJSON(v)
	}
	e := s.event(c, ev, "")
	s.mu.Unlock()
	_, err := s.wait(ctx, e)
	return err
}

// AssistantThread opens a new assistant thread in the user's direct channel with the app and delivers assistant_thread_started.
// Without the scope assistant:write the thread is there and nothing is delivered.
func (s *Server) AssistantThread(ctx context.Context, user string) (channelID, threadTS string, err error) {
	s.mu.Lock()
	if s.users[user] == nil {
		s.mu.Unlock()
		return "", "", fmt.Errorf("slackfake: there is no user %q: call AddUser first", user)
	}
	c := s.dm(user)
	root := &message{Msg: Msg{User: s.cfg.BotUser, BotID: s.cfg.BotID, Subtype: "assistant_app_thread", Text: "New Assistant Thread"}}
	s.put(c, root)
	root.ThreadTS = root.TS
	var sent []*envelope
	if s.granted("assistant:write") {
		sent = append(sent, s.event(c, map[string]any{
			"type": "assistant_thread_started", "event_ts": s.newTS(),
			"assistant_thread": map[string]any{
				"user_id": user, "channel_id": c.ID, "thread_ts": root.TS,
				"context": map[string]any{"channel_id": c.ID, "team_id": s.cfg.Team, "enterprise_id": nil},
			},
		}, ""))
	}
	s.mu.Unlock()
	_, err = s.wait(ctx, sent...)
	return c.ID, root.TS, err
}

// StopSession presses Slack's own stop button, which is there while the thread's session is processing, and delivers
// agent_session_stopped. The status stays: the app has to change it (docs: agent_session_stopped).
func (s *Server) StopSession(ctx context.Context, user, channelID, threadTS string) error {
	s.mu.Lock()
	if status := s.sessions[threadKey{channelID, threadTS}]; status != "processing" {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: there is no stop button: the session is %q", status)
	}
	e := s.event(s.channels[channelID], map[string]any{
		"type": "agent_session_stopped", "channel": channelID, "thread_ts": threadTS, "user": user,
		"streaming_message_ts": []string{}, "event_ts": s.newTS(),
	}, "")
	s.mu.Unlock()
	_, err := s.wait(ctx, e)
	return err
}

// Move gives a channel another id, as Slack does when it begins to be shared, and delivers channel_id_changed.
func (s *Server) Move(ctx context.Context, channelID, newID string) error {
	s.mu.Lock()
	c := s.channels[channelID]
	if c == nil {
		s.mu.Unlock()
		return fmt.Errorf("slackfake: there is no channel %q", channelID)
	}
	delete(s.channels, channelID)
	c.ID, s.channels[newID] = newID, c
	for _, m := range c.msgs {
		m.Channel = newID
	}
	s.bump()
	s.mu.Unlock()
	return s.Emit(ctx, "channel_id_changed", map[string]any{"old_channel_id": channelID, "new_channel_id": newID})
}

// Emit delivers any other event, such as tokens_revoked, with the given type and fields.
func (s *Server) Emit(ctx context.Context, typ string, fields map[string]any) error {
	ev := map[string]any{"type": typ}
	maps.Copy(ev, fields)
	s.mu.Lock()
	if _, found := ev["event_ts"]; !found {
		ev["event_ts"] = s.newTS()
	}
	e := s.event(nil, ev, "")
	s.mu.Unlock()
	_, err := s.wait(ctx, e)
	return err
}
