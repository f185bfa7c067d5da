package slackfake

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"
)

const (
	// maxModals is how many views a modal's stack may hold (docs: "Modals").
	maxModals = 3
	// maxViewBytes is the size of a view that is refused with view_too_large (docs: views.open, 250 kB).
	maxViewBytes = 250 * 1000
)

// View is a modal as a person sees it.
type View struct {
	ID, User                                 string
	Title, CallbackID, PrivateMetadata, Hash string
	RootID, PreviousID                       string
	// Blocks and JSON are its blocks and the whole view as Slack would answer it.
	Blocks, JSON json.RawMessage
	// Open is false once it was submitted, closed or cleared.
	Open bool
}

type view struct {
	id, user, root, previous, hash string
	fields                         map[string]any
	blocks                         []any
	open                           bool
}

func (v *view) str(k string) string { str, _ := v.fields[k].(string); return str }

// trigger is permission to open a view for a person.
type trigger struct {
	user  string
	until time.Time
	used  bool
	view  string // the modal in which something was pressed, for views.push
}

// newTrigger makes a trigger_id. The caller holds mu.
func (s *Server) newTrigger(user, viewID string) string {
	id := strconv.Itoa(int(time.Now().UnixMilli())) + "." + s.newID("") + "." + secretToken()
	s.triggers[id] = &trigger{user: user, until: time.Now().Add(s.cfg.TriggerLife), view: viewID}
	return id
}

func (s *Server) exchange(id string) (*trigger, string) {
	t := s.triggers[id]
	switch {
	case t == nil:
		return nil, "invalid_trigger_id"
	case t.used:
		return nil, "exchanged_trigger_id"
	case time.Now().After(t.until):
		return nil, "expired_trigger_id"
	}
	t.used = true
	return t, ""
}

func (s *Server) readView(r *request, kind string) (*view, reply, bool) {
	raw := r.str("view")
	if len(raw) > maxViewBytes {
		return nil, fail("view_too_large"), true
	}
	fields, blocks, msgs := checkView(raw, kind)
	if len(msgs) > 0 {
		return nil, fail("invalid_arguments", msgs...), true
	}
	if ext, _ := fields["external_id"].(string); ext != "" {
		for _, v := range s.views {
			if v.open && v.str("external_id") == ext && v.id != r.str("view_id") && r.str("external_id") != ext {
				return nil, fail("duplicate_external_id"), true
			}
		}
	}
	return &view{fields: fields, blocks: blocks, open: true}, reply{}, false
}

// addView gives a view its ids and makes it the last one opened. The caller holds mu.
func (s *Server) addView(v *view, user string, previous *view) {
	v.id, v.user = s.newID("V"), user
	v.root = v.id
	if previous != nil {
		v.root, v.previous = previous.root, previous.id
	}
	v.hash = s.newTS()
	s.nameBlockList(v.blocks)
	s.views[v.id] = v
	s.viewOrder = append(s.viewOrder, v.id)
	s.bump()
}

func (s *Server) viewsOpen(r *request) reply {
	if r.str("trigger_id") == "" {
		return missing("trigger_id")
	}
	v, refusal, bad := s.readView(r, "modal")
	if bad {
		return refusal
	}
	t, code := s.exchange(r.str("trigger_id"))
	if code != "" {
		return fail(code)
	}
	s.addView(v, t.user, nil)
	return ok(map[string]any{"view": s.viewJSON(v)})
}

func (s *Server) viewsPush(r *request) reply {
	if r.str("trigger_id") == "" {
		return missing("trigger_id")
	}
	v, refusal, bad := s.readView(r, "modal")
	if bad {
		return refusal
	}
	t, code := s.exchange(r.str("trigger_id"))
	if code != "" {
		return fail(code)
	}
	below := s.views[t.view]
	if below == nil || !below.open {
		return fail("not_found")
	}
	if s.stackSize(below.root) >= maxModals {
		return fail("push_limit_reached")
	}
	s.addView(v, t.user, below)
	return ok(map[string]any{"view": s.viewJSON(v)})
}

func (s *Server) stackSize(root string) (n int) {
	for _, v := range s.views {
		if v.open && v.root == root {
			n++
		}
	}
	return n
}

func (s *Server) viewsUpdate(r *request) reply {
	var have *view
	for _, v := range s.views {
		if v.open && (v.id == r.str("view_id") || r.str("external_id") != "" && v.str("external_id") == r.str("external_id")) {
			have = v
		}
	}
	if r.str("view_id") == "" && r.str("external_id") == "" {
		return missing("view_id")
	}
	if have == nil {
		return fail("not_found")
	}
	if h := r.str("hash"); h != "" && h != have.hash {
		return fail("hash_conflict")
	}
	v, refusal, bad := s.readView(r, "modal")
	if bad {
		return refusal
	}
	s.replaceView(have, v)
	return ok(map[string]any{"view": s.viewJSON(have)})
}

func (s *Server) replaceView(have, with *view) {
	s.nameBlockList(with.blocks)
	have.fields, have.blocks, have.hash = with.fields, with.blocks, s.newTS()
	s.bump()
}

func (s *Server) viewsPublish(r *request) reply {
	user := r.str("user_id")
	if s.users[user] == nil {
		return fail("invalid_arguments", "invalid user_id")
	}
	v, refusal, bad := s.readView(r, "home")
	if bad {
		return refusal
	}
	have := s.homes[user]
	if h := r.str("hash"); h != "" && (have == nil || h != have.hash) {
		return fail("hash_conflict")
	}
	v.id, v.user, v.hash = s.newID("V"), user, s.newTS()
	if have != nil {
		v.id = have.id
	}
	v.root = v.id
	s.nameBlockList(v.blocks)
	s.homes[user] = v
	s.bump()
	return ok(map[string]any{"view": s.viewJSON(v)})
}

func (s *Server) viewJSON(v *view) map[string]any {
	out := map[string]any{
		"private_metadata": "", "callback_id": "", "external_id": "", "clear_on_close": false, "notify_on_close": false,
		"close": nil, "submit": nil, "title": map[string]any{"type": "plain_text", "text": "", "emoji": true},
	}
	maps.Copy(out, v.fields)
	out["blocks"] = v.blocks
	out["id"], out["team_id"], out["app_installed_team_id"] = v.id, s.cfg.Team, s.cfg.Team
	out["app_id"], out["bot_id"], out["hash"] = s.cfg.AppID, s.cfg.BotID, v.hash
	out["root_view_id"], out["previous_view_id"] = v.root, nil
	if v.previous != "" {
		out["previous_view_id"] = v.previous
	}
	out["state"] = map[string]any{"values": map[string]any{}}
	return out
}

// Views returns the modals that were opened for a user: those that are closed by now, then the open ones, each oldest first. So the
// last one is what the person sees.
func (s *Server) Views(user string) []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	var closed, open []View
	for _, id := range s.viewOrder {
		v := s.views[id]
		if v.user != user {
			continue
		}
		out := View{
			ID: v.id, User: v.user, CallbackID: v.str("callback_id"), PrivateMetadata: v.str("private_metadata"), Hash: v.hash,
			RootID: v.root, PreviousID: v.previous, Open: v.open,
		}
		if t, isMap := v.fields["title"].(map[string]any); isMap {
			out.Title, _ = t["text"].(string)
		}
		out.Blocks, _ = json.Marshal(v.blocks)
		out.JSON, _ = json.Marshal(s.viewJSON(v))
		if v.open {
			open = append(open, out)
		} else {
			closed = append(closed, out)
		}
	}
	return append(closed, open...)
}

// Home returns the view that was published to a user's home tab, nil when there is none.
func (s *Server) Home(user string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.homes[user]
	if v == nil {
		return nil
	}
	out, _ := json.Marshal(s.viewJSON(v))
	return out
}
