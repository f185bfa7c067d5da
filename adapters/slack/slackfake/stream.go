package slackfake

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// startStream begins a streamed message. Outside of a direct channel the recipient must be named (docs: chat.startStream).
func (s *Server) startStream(r *request) reply {
	c, bad := s.writer(r.str("channel"))
	if bad != "" {
		return fail(bad)
	}
	if !c.IM {
		switch {
		case r.str("recipient_team_id") == "":
			return fail("missing_recipient_team_id")
		case r.str("recipient_user_id") == "":
			return fail("missing_recipient_user_id")
		}
	}
	if u := r.str("recipient_user_id"); u != "" && s.users[u] == nil {
		return fail("user_not_found")
	}
	if mode := r.str("task_display_mode"); mode != "" && mode != "timeline" && mode != "plan" {
		return fail("invalid_arguments", "task_display_mode must be timeline or plan")
	}
	m := &message{Msg: Msg{User: s.cfg.BotUser, BotID: s.cfg.BotID, Streaming: true}}
	if ts := r.str("thread_ts"); ts != "" {
		m.ThreadTS = c.replyable(ts)
	} else if c.IM {
		return missing("thread_ts") // Only channels take a streamed message outside of a thread.
	}
	if rep, refused := s.grow(m, r); refused {
		return rep
	}
	s.put(c, m)
	s.echo(c, m)
	return ok(map[string]any{"channel": c.ID, "ts": m.TS})
}

// streaming returns the message that an append or stop means.
func (s *Server) streaming(r *request) (*channel, *message, string) {
	c := s.find(r.str("channel"))
	if c == nil {
		return nil, nil, "channel_not_found"
	}
	m := c.live(r.str("ts"))
	switch {
	case m == nil:
		return nil, nil, "message_not_found"
	case !m.Streaming:
		return nil, nil, "message_not_in_streaming_state"
	default:
		return c, m, ""
	}
}

func (s *Server) appendStream(r *request) reply {
	c, m, bad := s.streaming(r)
	if bad != "" {
		return fail(bad)
	}
	if r.str("markdown_text") == "" && r.str("chunks") == "" {
		return fail("no_text")
	}
	if rep, refused := s.grow(m, r); refused {
		return rep
	}
	m.Changed = time.Now()
	s.bump()
	return ok(map[string]any{"channel": c.ID, "ts": m.TS})
}

// stopStream ends the stream; blocks are shown under the text (docs: chat.stopStream).
func (s *Server) stopStream(r *request) reply {
	c, m, bad := s.streaming(r)
	if bad != "" {
		return fail(bad)
	}
	before := *m
	var blocks []any
	if v := r.str("blocks"); v != "" {
		var code string
		var msgs []string
		if blocks, code, msgs = checkBlocks(v, s.surface()); code != "" {
			return fail(code, msgs...)
		}
	}
	if v := r.str("metadata"); v != "" {
		meta, refusal, refused := readMetadata(v)
		if refused {
			return refusal
		}
		m.Metadata = meta
	}
	if rep, refused := s.grow(m, r); refused {
		return rep
	}
	if len(blocks) > 0 {
		m.Blocks = appendBlocks(m.Blocks, s.nameBlocks(blocks))
	}
	if m.Text == "" && m.Blocks == nil && len(m.Chunks) == 0 {
		return fail("no_text")
	}
	m.Streaming, m.Changed = false, time.Now()
	delete(s.status, threadKey{c.ID, m.ThreadTS})
	s.bump()
	s.echoChange(c, &before, m)
	return ok(map[string]any{"channel": c.ID, "ts": m.TS, "message": s.messageJSON(c, m, true)})
}

// grow adds markdown_text and chunks to a message that is streamed, or changes nothing and refuses.
func (s *Server) grow(m *message, r *request) (reply, bool) {
	md := r.str("markdown_text")
	if md != "" && r.str("chunks") != "" {
		return fail("invalid_arguments", "give markdown_text or chunks and not both"), true
	}
	if utf8.RuneCountInString(md) > maxMarkdown {
		return fail("msg_too_long"), true
	}
	text, blocks := m.Text+md, m.Blocks
	var chunks []json.RawMessage
	if v := r.str("chunks"); v != "" {
		if json.Unmarshal([]byte(v), &chunks) != nil {
			return fail("invalid_chunks"), true
		}
		for _, raw := range chunks {
			var c struct {
				Type   string          `json:"type"`
				Text   string          `json:"text"`
				ID     string          `json:"id"`
				Title  string          `json:"title"`
				Status string          `json:"status"`
				Blocks json.RawMessage `json:"blocks"`
			}
			if json.Unmarshal(raw, &c) != nil {
				return fail("invalid_chunks"), true
			}
			valid := false
			switch c.Type {
			case "markdown_text":
				valid = utf8.RuneCountInString(c.Text) <= maxMarkdown
				text += c.Text
			case "task_update":
				switch c.Status {
				case "", "pending", "in_progress", "complete", "error":
					valid = c.ID != "" && c.Title != ""
				}
			case "plan_update":
				valid = c.Title != ""
			case "blocks":
				list, code, msgs := checkBlocks(string(c.Blocks), surfaceStream)
				if code != "" {
					return fail(code, msgs...), true
				}
				valid = len(list) > 0
				blocks = appendBlocks(blocks, s.nameBlocks(list))
			}
			if !valid {
				return fail("invalid_chunks"), true
			}
		}
	}
	m.Text, m.Blocks, m.Chunks = text, blocks, append(m.Chunks, chunks...)
	return reply{}, false
}

func appendBlocks(a, b json.RawMessage) json.RawMessage {
	var as, bs []json.RawMessage
	_ = json.Unmarshal(a, &as)
	_ = json.Unmarshal(b, &bs)
	out, _ := json.Marshal(append(as, bs...))
	return out
}
