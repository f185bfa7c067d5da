package slackfake

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request body in bytes.
const maxBody = 64 << 20

// request is one Web API call with its arguments, wherever they came from.
type request struct {
	method  string
	args    url.Values
	body    json.RawMessage
	token   string
	warning string
}

func (r *request) str(k string) string { return r.args.Get(k) }

func (r *request) has(k string) bool { return r.args.Has(k) }

// on reads a boolean argument the way Slack does: 1 and true.
func (r *request) on(k string) bool { v := r.str(k); return v == "1" || strings.EqualFold(v, "true") }

// reply is an answer: the fields of the JSON object, and its HTTP status.
type reply struct {
	status     int
	body       map[string]any
	retryAfter int // seconds; 0 sends no header
}

func ok(fields map[string]any) reply {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["ok"] = true
	return reply{status: http.StatusOK, body: fields}
}

// fail is a refusal. Messages are the explanations that go into response_metadata.messages and errors.
func fail(code string, messages ...string) reply {
	b := map[string]any{"ok": false, "error": code}
	if len(messages) > 0 {
		marked := make([]string, len(messages))
		for i, m := range messages {
			marked[i] = "[ERROR] " + m
		}
		b["errors"], b["response_metadata"] = messages, map[string]any{"messages": marked}
	}
	return reply{status: http.StatusOK, body: b}
}

func missing(arg string) reply { return fail("invalid_arguments", "missing required field: "+arg) }

// tier is a method's documented rate limit.
type tier struct{ perMinute, burst float64 }

// The tiers say "50+ per minute" and so on, with bursts tolerated; here a minute's worth may come at once. Posting is one a second
// in a channel with a short burst (docs: "Rate limits").
func tiers(n int) tier {
	return []tier{{60, 4}, {1, 5}, {20, 20}, {50, 50}, {100, 100}, {600, 600}}[n]
}

type method struct {
	do func(*Server, *request) reply
	// scopes: one of them is needed. "conversation:read" and "conversation:history" stand for the scope of the channel's kind.
	scopes []string
	tier   int // 0: posting, 5: special
	// json says that a JSON body is read; other methods ignore it, as documented for methods without that content type.
	json bool
	// app says that it takes the app-level token and no other.
	app bool
	// feature says that it exists only when it is switched on.
	feature func(Config) bool
}

// methodNamed returns how a method is served.
func methodNamed(name string) (method, bool) {
	streaming := func(c Config) bool { return c.Streaming }
	assistant := func(c Config) bool { return c.AssistantStatus }
	agent := func(c Config) bool { return c.AgentSessions }
	write := []string{"chat:write"}
	statusScopes := []string{"assistant:write", "chat:write"}
	m, found := map[string]method{
		"api.test":                   {do: (*Server).apiTest, tier: 4, json: true},
		"auth.test":                  {do: (*Server).authTest, tier: 5, json: true},
		"apps.connections.open":      {do: (*Server).openConnection, tier: 1, json: true, app: true},
		"blocks.validate":            {do: (*Server).validateBlocks, tier: 3, json: true},
		"bots.info":                  {do: (*Server).botsInfo, scopes: []string{"users:read"}, tier: 3},
		"chat.postMessage":           {do: (*Server).postMessage, scopes: write, tier: 0, json: true},
		"chat.update":                {do: (*Server).updateMessage, scopes: write, tier: 3, json: true},
		"chat.delete":                {do: (*Server).deleteMessage, scopes: write, tier: 3, json: true},
		"chat.postEphemeral":         {do: (*Server).postEphemeral, scopes: write, tier: 4, json: true},
		"chat.getPermalink":          {do: (*Server).getPermalink, tier: 5},
		"chat.startStream":           {do: (*Server).startStream, scopes: write, tier: 2, json: true, feature: streaming},
		"chat.appendStream":          {do: (*Server).appendStream, scopes: write, tier: 4, json: true, feature: streaming},
		"chat.stopStream":            {do: (*Server).stopStream, scopes: write, tier: 2, json: true, feature: streaming},
		"conversations.info":         {do: (*Server).conversationsInfo, scopes: []string{"conversation:read"}, tier: 3},
		"conversations.history":      {do: (*Server).conversationsHistory, scopes: []string{"conversation:history"}, tier: 3},
		"conversations.replies":      {do: (*Server).conversationsReplies, scopes: []string{"conversation:history"}, tier: 3},
		"conversations.members":      {do: (*Server).conversationsMembers, scopes: []string{"conversation:read"}, tier: 4},
		"conversations.list":         {do: (*Server).conversationsList, scopes: []string{"channels:read", "groups:read", "im:read", "mpim:read"}, tier: 2},
		"conversations.open":         {do: (*Server).conversationsOpen, scopes: []string{"im:write", "mpim:write"}, tier: 3, json: true},
		"users.info":                 {do: (*Server).usersInfo, scopes: []string{"users:read"}, tier: 4},
		"users.list":                 {do: (*Server).usersList, scopes: []string{"users:read"}, tier: 2},
		"usergroups.list":            {do: (*Server).usergroupsList, scopes: []string{"usergroups:read"}, tier: 2},
		"usergroups.users.list":      {do: (*Server).usergroupsUsersList, scopes: []string{"usergroups:read"}, tier: 2},
		"views.open":                 {do: (*Server).viewsOpen, tier: 4, json: true},
		"views.push":                 {do: (*Server).viewsPush, tier: 4, json: true},
		"views.update":               {do: (*Server).viewsUpdate, tier: 4, json: true},
		"views.publish":              {do: (*Server).viewsPublish, tier: 4, json: true},
		"files.getUploadURLExternal": {do: (*Server).getUploadURL, scopes: []string{"files:write"}, tier: 4},
		"files.completeUploadExternal": {
			do: (*Server).completeUpload, scopes: []string{"files:write"}, tier: 4, json: true,
		},
		"files.info":                  {do: (*Server).filesInfo, scopes: []string{"files:read"}, tier: 4},
		"reactions.add":               {do: (*Server).reactionsAdd, scopes: []string{"reactions:write"}, tier: 3, json: true},
		"reactions.remove":            {do: (*Server).reactionsRemove, scopes: []string{"reactions:write"}, tier: 2, json: true},
		"agents.sessions.setStatus":   {do: (*Server).setSession, scopes: write, tier: 3, json: true, feature: agent},
		"assistant.threads.setStatus": {do: (*Server).setStatus, scopes: statusScopes, tier: 5, json: true, feature: assistant},
		"assistant.threads.setTitle":  {do: (*Server).setTitle, scopes: statusScopes, tier: 5, json: true, feature: assistant},
		"assistant.threads.setSuggestedPrompts": {
			do: (*Server).setPrompts, scopes: statusScopes, tier: 5, json: true, feature: assistant,
		},
	}[name]
	return m, found
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("method")
	m, known := methodNamed(name)
	req, err := readRequest(r, name, m.json || !known)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	call := Call{Method: name, Args: req.args, Body: req.body, Token: req.token, At: time.Now()}
	var rep reply
	f, faulty := s.fault(name)
	if faulty && !f.Drop {
		rep = f.reply()
	} else {
		rep = s.answer(m, known, req)
	}
	if req.warning != "" && rep.body != nil {
		rep.body["warning"] = req.warning
		meta, _ := rep.body["response_metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["warnings"] = []string{req.warning}
		rep.body["response_metadata"] = meta
	}
	data, err := json.Marshal(rep.body)
	if err != nil {
		rep.status, data = http.StatusInternalServerError, []byte(`{"ok":false,"error":"internal_error"}`)
	}
	call.Status, call.Answer, call.Dropped = rep.status, data, f.Drop || f.Lose
	s.calls = append(s.calls, call)
	s.bump()
	s.mu.Unlock()
	if call.Dropped {
		panic(http.ErrAbortHandler) // Cuts the connection without an answer.
	}
	if len(s.cfg.Scopes) > 0 {
		w.Header().Set("X-Oauth-Scopes", strings.Join(s.cfg.Scopes, ","))
	}
	if len(m.scopes) > 0 {
		w.Header().Set("X-Accepted-Oauth-Scopes", strings.Join(m.scopes, ","))
	}
	writeReply(w, rep, data)
}

func writeReply(w http.ResponseWriter, rep reply, data []byte) {
	if rep.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(rep.retryAfter))
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(rep.status)
	_, _ = w.Write(data)
}

// reply is what a fault answers when it answers.
func (a Answer) reply() reply {
	status := a.Status
	if status == 0 {
		status = http.StatusOK
		if a.RetryAfter > 0 {
			status = http.StatusTooManyRequests
		}
	}
	code := a.Error
	if code == "" {
		code = "internal_error"
		if status == http.StatusTooManyRequests {
			code = "ratelimited"
		}
	}
	rep := fail(code)
	rep.status = status
	if status == http.StatusTooManyRequests || a.RetryAfter > 0 {
		rep.retryAfter = max(1, int(math.Ceil(a.RetryAfter.Seconds())))
	}
	return rep
}

// readRequest takes the arguments from the query, a form, a multipart form or a JSON object. A JSON body is left unread where the
// method does not take one, and warned about when it has no charset (docs: "Using the Slack Web API").
func readRequest(r *http.Request, name string, takesJSON bool) (*request, error) {
	req := &request{method: name, args: url.Values{}}
	maps.Copy(req.args, r.URL.Query())
	mt, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch mt {
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err != nil {
			return nil, err
		}
		if params["charset"] == "" {
			req.warning = "missing_charset"
		}
		if !takesJSON || len(strings.TrimSpace(string(body))) == 0 {
			break
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil {
			req.args = nil
			break
		}
		req.body = body
		for k, v := range fields {
			var str string
			switch {
			case string(v) == "null":
			case json.Unmarshal(v, &str) == nil:
				req.args.Set(k, str)
			default:
				req.args.Set(k, string(v))
			}
		}
	case "multipart/form-data":
		if err := r.ParseMultipartForm(1 << 20); err != nil { //nolint:gosec // A test server on the loopback address.
			return nil, err
		}
		maps.Copy(req.args, r.MultipartForm.Value)
	default:
		if err := r.ParseForm(); err != nil {
			return nil, err
		}
		maps.Copy(req.args, r.PostForm)
	}
	req.token = bearer(r)
	if req.token == "" {
		req.token = req.args.Get("token")
	}
	req.args.Del("token")
	return req, nil
}

func bearer(r *http.Request) string {
	t, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return ""
	}
	return t
}

// answer checks everything that is the same for all methods and then runs the method. The caller holds mu.
func (s *Server) answer(m method, known bool, r *request) reply {
	if !known || m.feature != nil && !m.feature(s.cfg) {
		return fail("unknown_method")
	}
	if r.method == "api.test" { // Needs no token.
		return m.do(s, r)
	}
	want, other := s.cfg.BotToken, s.cfg.AppToken
	if m.app {
		want, other = other, want
	}
	switch r.token {
	case want:
	case "":
		return fail("not_authed")
	case other:
		return fail("not_allowed_token_type")
	default:
		return fail("invalid_auth")
	}
	if r.args == nil {
		return fail("invalid_json")
	}
	if !m.app {
		if need := s.scopesFor(m, r); len(need) > 0 && !s.granted(need...) {
			return s.missingScope(need...)
		}
	}
	if s.cfg.RateLimits {
		key := r.method
		if m.tier == 0 {
			key += " " + r.str("channel")
		}
		if wait := s.take(key, tiers(m.tier)); wait > 0 {
			return Answer{RetryAfter: wait}.reply()
		}
	}
	return m.do(s, r)
}

func (s *Server) missingScope(need ...string) reply {
	rep := fail("missing_scope")
	rep.body["needed"], rep.body["provided"] = strings.Join(need, ","), strings.Join(s.cfg.Scopes, ",")
	return rep
}

// scopesFor returns the scopes of which one is needed. That of a conversation method depends on the conversation.
func (s *Server) scopesFor(m method, r *request) []string {
	out := slices.Clone(m.scopes)
	for i, sc := range out {
		if what, found := strings.CutPrefix(sc, "conversation:"); found {
			_, kind := (&channel{}).kind()
			if c := s.channels[r.str("channel")]; c != nil {
				_, kind = c.kind()
			}
			out[i] = kind + ":" + what
		}
	}
	return out
}

type bucket struct {
	tokens float64
	at     time.Time
}

// take takes one token of a bucket, or returns how long to wait for it. The caller holds mu.
func (s *Server) take(key string, t tier) time.Duration {
	now := time.Now()
	b := s.bucket[key]
	if b == nil {
		b = &bucket{tokens: t.burst, at: now}
		s.bucket[key] = b
	}
	perSecond := t.perMinute / 60
	b.tokens = min(t.burst, b.tokens+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) / perSecond * float64(time.Second))
	}
	b.tokens--
	return 0
}

// page cuts a list by the arguments limit and cursor. The cursor is opaque to clients and holds the position.
func page[T any](r *request, all []T, defaultLimit, maxLimit int) (part []T, next string, errCode string) {
	from, limit := 0, defaultLimit
	if v := r.str("limit"); v != "" && v != "0" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxLimit {
			return nil, "", "invalid_limit"
		}
		limit = n
	}
	if v := r.str("cursor"); v != "" {
		raw, err := base64.StdEncoding.DecodeString(v)
		n, found := strings.CutPrefix(string(raw), "next:")
		if err == nil && found {
			from, err = strconv.Atoi(n)
		}
		if err != nil || !found || from < 0 || from > len(all) {
			return nil, "", "invalid_cursor"
		}
	}
	to := min(len(all), from+limit)
	if to < len(all) {
		next = base64.StdEncoding.EncodeToString([]byte("next:" + strconv.Itoa(to)))
	}
	return all[from:to], next, ""
}

func withCursor(fields map[string]any, next string) reply {
	fields["response_metadata"] = map[string]any{"next_cursor": next}
	return ok(fields)
}

func (s *Server) apiTest(r *request) reply {
	args := map[string]string{}
	for k := range r.args {
		args[k] = r.args.Get(k)
	}
	if e := r.str("error"); e != "" {
		rep := fail(e)
		rep.body["args"] = args
		return rep
	}
	return ok(map[string]any{"args": args})
}

func (s *Server) authTest(*request) reply {
	name := "bot"
	if u := s.users[s.cfg.BotUser]; u != nil {
		name = u.Name
	}
	return ok(map[string]any{
		"url": s.teamURL(), "team": "Team " + s.cfg.Team, "user": name, "team_id": s.cfg.Team, "user_id": s.cfg.BotUser,
		"bot_id": s.cfg.BotID, "is_enterprise_install": false,
	})
}
