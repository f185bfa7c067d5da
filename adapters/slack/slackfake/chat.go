package slackfake

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Sizes of messages in characters. The text of a post is cut at 40,000 with a warning, and that of an update is refused over 4,000
// (docs: chat.postMessage and chat.update). Markdown is limited to 12,000 in all markdown blocks of a message together (docs:
// "Markdown block"); what Slack answers then is msg_too_long, which its list of errors does not have (measured,
// metabase/metabase pull request 79908).
const (
	maxPostText   = 40000
	maxUpdateText = 4000
	maxMarkdown   = 12000
	maxAttach     = 100
	// maxBlockText is the text that all blocks of a message may hold. It is not documented. Measured: 13,297 with markdown blocks
	// alone, 125 less with one divider more (slackapi/bolt-js issue 2509), 13,202 (metabase 79908), and below 12,000 with many
	// rich_text and section blocks (bolt-js issue 2867). So every block after the first costs 125 here.
	maxBlockText = 13297
	blockCost    = 125
)

// content is what a message says.
type content struct {
	text                          string
	blocks, attachments, metadata json.RawMessage
	hasText, hasBlocks, hasMeta   bool
	hasAttachments                bool
	truncated                     bool
}

// readContent takes and checks the parts of a message. The reply is the refusal when bad is true.
func (s *Server) readContent(r *request, textLimit int, truncate bool) (c content, refusal reply, bad bool) {
	refuse := func(code string, msgs ...string) (content, reply, bool) { return content{}, fail(code, msgs...), true }
	c.text, c.hasText = r.str("text"), r.str("text") != ""
	if utf8.RuneCountInString(c.text) > textLimit {
		if !truncate {
			return refuse("msg_too_long")
		}
		c.text, c.truncated = string([]rune(c.text)[:textLimit]), true
	}
	if v := r.str("blocks"); v != "" {
		c.hasBlocks = true
		blocks, code, msgs := checkBlocks(v, s.surface())
		if code != "" {
			return refuse(code, msgs...)
		}
		c.blocks = s.nameBlocks(blocks)
	}
	if md := r.str("markdown_text"); md != "" {
		if c.hasText || len(c.blocks) > 0 {
			return refuse("markdown_text_conflict")
		}
		if utf8.RuneCountInString(md) > maxMarkdown {
			return refuse("msg_too_long")
		}
		c.text, c.hasText, c.hasBlocks = md, true, true
		c.blocks = s.nameBlocks([]any{map[string]any{"type": "markdown", "text": md}})
	}
	if v := r.str("attachments"); v != "" {
		var list []json.RawMessage
		if json.Unmarshal([]byte(v), &list) != nil {
			return refuse("invalid_attachments")
		}
		if len(list) > maxAttach {
			return refuse("too_many_attachments")
		}
		if c.hasAttachments = true; len(list) > 0 {
			c.attachments = json.RawMessage(v)
		}
	}
	if v := r.str("metadata"); v != "" {
		if c.metadata, refusal, bad = readMetadata(v); bad {
			return content{}, refusal, true
		}
		c.hasMeta = true
	}
	return c, reply{}, false
}

// readMetadata checks that metadata is an object with an event_type and an event_payload; {} stands for none.
func readMetadata(v string) (json.RawMessage, reply, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(v), &fields) != nil {
		return nil, fail("invalid_metadata_format"), true
	}
	if len(fields) == 0 {
		return nil, reply{}, false
	}
	var typ string
	var payload map[string]json.RawMessage
	if json.Unmarshal(fields["event_type"], &typ) != nil || typ == "" || json.Unmarshal(fields["event_payload"], &payload) != nil {
		return nil, fail("invalid_metadata_schema"), true
	}
	return json.RawMessage(v), reply{}, false
}

func (c content) empty() bool { return c.text == "" && len(c.blocks) == 0 && len(c.attachments) == 0 }

// writer returns the channel that a post goes to.
func (s *Server) writer(id string) (*channel, string) {
	c := s.find(id)
	switch {
	case c == nil:
		return nil, "channel_not_found"
	case c.Archived:
		return nil, "is_archived"
	case s.isMember(c, s.cfg.BotUser):
		return c, ""
	case !c.Private && !c.MPIM && !c.IM && s.granted("chat:write.public"):
		return c, ""
	default:
		return nil, "not_in_channel"
	}
}

func (s *Server) postMessage(r *request) reply {
	if r.str("channel") == "" {
		return fail("channel_not_found")
	}
	c, bad := s.writer(r.str("channel"))
	if bad != "" {
		return fail(bad)
	}
	body, refusal, refused := s.readContent(r, maxPostText, true)
	if refused {
		return refusal
	}
	if body.empty() {
		return fail("no_text")
	}
	m := &message{Msg: Msg{
		User: s.cfg.BotUser, BotID: s.cfg.BotID, Text: body.text, Blocks: body.blocks, Attachments: body.attachments,
		Metadata: body.metadata, Parse: r.str("parse"), NoMrkdwn: r.has("mrkdwn") && !r.on("mrkdwn"),
	}}
	if ts := r.str("thread_ts"); ts != "" {
		if m.ThreadTS = c.replyable(ts); m.ThreadTS != "" && r.on("reply_broadcast") {
			m.Broadcast, m.Subtype = true, "thread_broadcast"
		}
	}
	s.put(c, m)
	s.echo(c, m)
	return s.posted(c, m, body)
}

// posted is the answer to a post or update, with the whole message.
func (s *Server) posted(c *channel, m *message, body content) reply {
	out := ok(map[string]any{"channel": c.ID, "ts": m.TS, "message": s.messageJSON(c, m, true)})
	if body.truncated {
		out.body["warning"] = "message_truncated"
		out.body["response_metadata"] = map[string]any{"warnings": []string{"message_truncated"}}
	}
	return out
}

func (s *Server) updateMessage(r *request) reply {
	c := s.find(r.str("channel"))
	if c == nil {
		return fail("channel_not_found")
	}
	m := c.live(r.str("ts"))
	switch {
	case m == nil:
		return fail("message_not_found")
	case m.BotID != s.cfg.BotID:
		return fail("cant_update_message")
	case m.Streaming:
		return fail("streaming_state_conflict")
	case c.Archived:
		return fail("is_inactive")
	}
	body, refusal, refused := s.readContent(r, maxUpdateText, false)
	if refused {
		return refusal
	}
	if !body.hasText && !body.hasBlocks && !body.hasAttachments {
		return fail("no_text")
	}
	before := *m
	// Blocks, attachments and metadata that are not sent stay as they are; an empty list or object removes them (docs: chat.update;
	// slackapi/python-slack-sdk issue 523: text alone leaves the blocks).
	if r.has("text") || body.hasText {
		m.Text = body.text
	}
	if body.hasBlocks {
		m.Blocks = body.blocks
	}
	if body.hasAttachments {
		m.Attachments = body.attachments
	}
	if body.hasMeta {
		m.Metadata = body.metadata
	}
	if m.Text == "" && m.Blocks == nil && m.Attachments == nil && len(m.Files) == 0 {
		*m = before
		return fail("no_text")
	}
	// docs: parse defaults to client in chat.update and is overwritten each time.
	if m.Parse, m.Edited = r.str("parse"), true; m.Parse == "" {
		m.Parse = "client"
	}
	m.editedTS, m.Changed = s.newTS(), time.Now()
	s.bump()
	s.echoChange(c, &before, m)
	out := s.posted(c, m, body)
	out.body["text"] = m.Text
	return out
}

func (s *Server) deleteMessage(r *request) reply {
	c := s.find(r.str("channel"))
	if c == nil {
		return fail("channel_not_found")
	}
	m := c.live(r.str("ts"))
	if m == nil {
		return fail("message_not_found")
	}
	if m.BotID != s.cfg.BotID {
		return fail("cant_delete_message")
	}
	s.echoDelete(c, m)
	return ok(map[string]any{"channel": c.ID, "ts": r.str("ts")})
}

func (s *Server) postEphemeral(r *request) reply {
	c, bad := s.writer(r.str("channel"))
	if bad != "" {
		return fail(bad)
	}
	if s.users[r.str("user")] == nil || !s.isMember(c, r.str("user")) {
		return fail("user_not_in_channel")
	}
	body, refusal, refused := s.readContent(r, maxPostText, true)
	if refused {
		return refusal
	}
	if body.empty() {
		return fail("no_text")
	}
	m := Msg{
		Channel: c.ID, TS: s.newTS(), ThreadTS: r.str("thread_ts"), User: s.cfg.BotUser, BotID: s.cfg.BotID, Text: body.text,
		Blocks: body.blocks, Attachments: body.attachments, Parse: r.str("parse"),
	}
	c.addEphemeral(m, r.str("user"))
	s.bump()
	return ok(map[string]any{"message_ts": m.TS})
}

func (c *channel) addEphemeral(m Msg, to string) {
	c.eph, c.ephTo = append(c.eph, m), append(c.ephTo, to)
}
