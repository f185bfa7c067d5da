package slackfake

import (
	"maps"
	"slices"
	"strings"
)

func (s *Server) botsInfo(r *request) reply {
	if id := r.str("bot"); id != "" && id != s.cfg.BotID {
		return fail("bot_not_found")
	}
	return ok(map[string]any{"bot": map[string]any{
		"id": s.cfg.BotID, "deleted": false, "name": "bot", "updated": 1, "app_id": s.cfg.AppID, "user_id": s.cfg.BotUser,
		"icons": map[string]any{},
	}})
}

func (s *Server) usersInfo(r *request) reply {
	u := s.users[r.str("user")]
	if u == nil {
		return fail("user_not_found")
	}
	return ok(map[string]any{"user": s.userJSON(u)})
}

func (s *Server) usersList(r *request) reply {
	ids := slices.Sorted(maps.Keys(s.users))
	part, next, bad := page(r, ids, len(ids)+1, 1000)
	if bad != "" {
		return fail(bad)
	}
	members := make([]any, 0, len(part))
	for _, id := range part {
		members = append(members, s.userJSON(s.users[id]))
	}
	return withCursor(map[string]any{"members": members, "cache_ts": 1}, next)
}

func (s *Server) usergroupsList(r *request) reply {
	out := make([]any, 0, len(s.groupNames))
	for _, id := range s.groupNames {
		g := map[string]any{
			"id": id, "team_id": s.cfg.Team, "is_usergroup": true, "name": id, "handle": strings.ToLower(id), "description": "",
			"is_external": false, "date_create": 1, "date_update": 1, "date_delete": 0, "created_by": "U0", "user_count": len(s.groups[id]),
		}
		if r.on("include_users") {
			g["users"] = nonNil(s.groups[id])
		}
		out = append(out, g)
	}
	return ok(map[string]any{"usergroups": out})
}

func (s *Server) usergroupsUsersList(r *request) reply {
	users, found := s.groups[r.str("usergroup")]
	if !found {
		return fail("no_such_subteam")
	}
	live := []string{}
	for _, u := range users {
		if have := s.users[u]; have == nil || !have.Deleted {
			live = append(live, u)
		}
	}
	return ok(map[string]any{"users": live})
}

func nonNil(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}
