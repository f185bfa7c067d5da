package slackfake

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"
)

// setStatus sets the line "<bot> is thinking..." of a thread. It is cleared by "", by the bot's next post in the thread, and after
// two minutes (docs: assistant.threads.setStatus).
func (s *Server) setStatus(r *request) reply {
	if !r.has("status") {
		return missing("status")
	}
	key, bad := s.agentThread(r)
	if bad != "" {
		return fail(bad)
	}
	if text := r.str("status"); text == "" {
		delete(s.status, key)
	} else {
		s.status[key] = statusLine{text, time.Now()}
	}
	return ok(nil)
}

func (s *Server) setTitle(r *request) reply {
	key, bad := s.agentThread(r)
	if bad != "" {
		return fail(bad)
	}
	if r.str("title") == "" {
		return missing("title")
	}
	s.titles[key] = r.str("title")
	return ok(nil)
}

// setPrompts takes up to four prompts (docs: assistant.threads.setSuggestedPrompts).
func (s *Server) setPrompts(r *request) reply {
	if r.str("thread_ts") == "" { // Optional since prompts may also be set for new threads of a direct channel.
		if c := s.channels[r.str("channel_id")]; c == nil || !c.IM {
			return fail("channel_not_found")
		}
	} else if _, bad := s.agentThread(r); bad != "" {
		return fail(bad)
	}
	var prompts []struct {
		Title   string `json:"title"`
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(r.str("prompts")), &prompts) != nil || len(prompts) == 0 {
		return fail("invalid_arguments", "prompts must be an array of objects with title and message")
	}
	if len(prompts) > 4 {
		return fail("too_many_prompts")
	}
	for _, p := range prompts {
		if p.Title == "" || p.Message == "" {
			return fail("invalid_arguments", "missing required field: title and message of each prompt")
		}
	}
	s.prompts[threadKey{r.str("channel_id"), r.str("thread_ts")}] = json.RawMessage(r.str("prompts"))
	return ok(nil)
}

// setSession sets the status of a thread's agent session, and makes the session if there is none
// (docs: agents.sessions.setStatus).
func (s *Server) setSession(r *request) reply {
	if !slices.Contains([]string{"active", "processing", "suspended", "closed"}, r.str("status")) {
		return fail("invalid_arguments", "status must be one of active, processing, suspended, closed")
	}
	if utf8.RuneCountInString(r.str("title")) > 200 {
		return fail("invalid_arguments", "title must be at most 200 characters")
	}
	key, bad := s.agentThread(r)
	if bad != "" {
		return fail(bad)
	}
	s.sessions[key] = r.str("status")
	s.bump()
	return ok(map[string]any{"status": r.str("status"), "agent_status": r.str("status")})
}
