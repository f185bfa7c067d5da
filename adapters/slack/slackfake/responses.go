package slackfake

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A response_url works five times within thirty minutes (docs: "Handling user interaction").
const (
	responseURLUses = 5
	responseURLLife = 30 * time.Minute
)

type responseURL struct {
	channel, user, messageTS, threadTS string
	uses                               int
	until                              time.Time
}

// ResponsePost is one post to a response_url, with what was answered.
type ResponsePost struct {
	Channel, User, MessageTS string
	Body                     json.RawMessage
	Status                   int
	Answer                   string
}

// ResponsePosts returns all posts to response URLs, oldest first.
func (s *Server) ResponsePosts() []ResponsePost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]ResponsePost(nil), s.respPosts...)
}

// newResponseURL makes a response_url. The caller holds mu.
func (s *Server) newResponseURL(u responseURL) string {
	token := secretToken()
	u.until = time.Now().Add(responseURLLife)
	s.responses[token] = &u
	return s.base + "/actions/" + token
}

func (s *Server) serveResponseURL(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	f, faulty := s.fault("response_url")
	var rep reply
	if faulty && !f.Drop {
		rep = f.reply()
	} else {
		rep = s.respond(r.PathValue("token"), body)
	}
	s.bump()
	s.mu.Unlock()
	if f.Drop || f.Lose {
		panic(http.ErrAbortHandler)
	}
	data, _ := json.Marshal(rep.body)
	if rep.body["ok"] == true {
		data = []byte("ok")
	}
	writeReply(w, rep, data)
}

// respond does what a post to a response_url asks for. The caller holds mu.
func (s *Server) respond(token string, body []byte) reply {
	u := s.responses[token]
	rep := ok(nil)
	switch {
	case u == nil:
		rep = fail("invalid_token")
	case time.Now().After(u.until):
		rep = fail("expired_url")
	case u.uses >= responseURLUses:
		rep = fail("used_url")
	}
	if rep.body["ok"] != true {
		rep.status = http.StatusNotFound
		return rep
	}
	u.uses++
	post := ResponsePost{Channel: u.channel, User: u.user, MessageTS: u.messageTS, Body: body}
	if !json.Valid(body) {
		rep = fail("invalid_payload")
		rep.status = http.StatusBadRequest
	} else if rep = s.applyResponse(u, body); rep.body["ok"] != true {
		rep.status = http.StatusInternalServerError
	}
	post.Status, post.Answer = rep.status, "ok"
	if e, isString := rep.body["error"].(string); isString {
		post.Answer = e
	}
	s.respPosts = append(s.respPosts, post)
	return rep
}

// applyResponse shows a message that came as the body of a response_url post or of a command's acknowledgement.
func (s *Server) applyResponse(u *responseURL, body []byte) reply {
	var in struct {
		Text            string          `json:"text"`
		Blocks          json.RawMessage `json:"blocks"`
		ThreadTS        string          `json:"thread_ts"`
		ResponseType    string          `json:"response_type"`
		ReplaceOriginal bool            `json:"replace_original"`
		DeleteOriginal  bool            `json:"delete_original"`
	}
	if json.Unmarshal(body, &in) != nil {
		return fail("invalid_payload")
	}
	c := s.channels[u.channel]
	if c == nil {
		return fail("channel_not_found")
	}
	args := url.Values{"text": {in.Text}}
	if len(in.Blocks) > 0 && string(in.Blocks) != "null" {
		args.Set("blocks", string(in.Blocks))
	}
	content, refusal, bad := s.readContent(&request{args: args}, maxPostText, true)
	if bad {
		return refusal
	}
	eph := -1
	for i := range c.eph {
		if c.eph[i].TS == u.messageTS && c.ephTo[i] == u.user {
			eph = i
		}
	}
	orig := c.live(u.messageTS)
	switch {
	case in.DeleteOriginal && eph >= 0:
		c.eph[eph].Deleted = true
		return ok(nil)
	case in.DeleteOriginal && orig != nil:
		s.echoDelete(c, orig)
		return ok(nil)
	case content.empty():
		return fail("no_text")
	case in.ReplaceOriginal && eph >= 0:
		c.eph[eph].Text, c.eph[eph].Blocks = content.text, content.blocks
	case in.ReplaceOriginal && orig != nil:
		before := *orig
		orig.Text, orig.Blocks, orig.Edited, orig.editedTS, orig.Changed = content.text, content.blocks, true, s.newTS(), time.Now()
		s.echoChange(c, &before, orig)
	case in.ResponseType == "in_channel":
		m := &message{Msg: Msg{User: s.cfg.BotUser, BotID: s.cfg.BotID, Text: content.text, Blocks: content.blocks}}
		if in.ThreadTS != "" {
			m.ThreadTS = c.replyable(in.ThreadTS)
		}
		s.put(c, m)
		s.echo(c, m)
	default:
		c.addEphemeral(Msg{
			Channel: c.ID, TS: s.newTS(), ThreadTS: u.threadTS, User: s.cfg.BotUser, BotID: s.cfg.BotID, Text: content.text, Blocks: content.blocks,
		}, u.user)
	}
	return ok(nil)
}
