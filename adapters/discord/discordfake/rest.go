package discordfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// request is one API call.
type request struct {
	route   string
	params  map[string]string
	query   url.Values
	version int
	auth    string
	raw     json.RawMessage // JSON body, or payload_json
	body    any             // decoded, with json.Number
	ctype   string
	uploads map[string]upload
	names   []string
}

type upload struct {
	name, contentType string
	data              []byte
}

// object returns the body as an object; ok is false when it is none.
func (r *request) object() (object, bool) {
	if r.body == nil {
		return object{}, true
	}
	o, ok := r.body.(object)
	return o, ok
}

// reply is an answer. A nil body sends none.
type reply struct {
	status int
	body   any
	header http.Header
	page   string // HTML in the place of JSON
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

func done() reply { return reply{status: http.StatusNoContent} }

// refuse is a JSON error (docs: "Opcodes and Status Codes", JSON error codes).
func refuse(status, code int, message string) reply {
	return reply{status: status, body: object{"message": message, "code": code}}
}

// The refusals that several routes share. Their HTTP statuses are those that clients report for them in public.
func unknown(what string, code int) reply { return refuse(http.StatusNotFound, code, "Unknown "+what) }

func unknownChannel() reply { return unknown("Channel", 10003) }

func unknownMessage() reply { return unknown("Message", 10008) }

func missingAccess() reply { return refuse(http.StatusForbidden, 50001, "Missing Access") }

func missingPermissions() reply { return refuse(http.StatusForbidden, 50013, "Missing Permissions") }

// archived is 400 with 50083 (victornpb/undiscord issue 399).
func archived() reply { return refuse(http.StatusBadRequest, 50083, "Thread is archived") }

// locked is 160005 (docs: "Opcodes and Status Codes"). For a thread that is archived too the code might be 50083; the docs do not
// say, nor the HTTP status.
func locked() reply { return refuse(http.StatusForbidden, 160005, "This thread is locked") }

func unauthorized() reply { return refuse(http.StatusUnauthorized, 0, "401: Unauthorized") }

func notFound() reply { return refuse(http.StatusNotFound, 0, "404: Not Found") }

// route is one method and path that is served.
type route struct {
	method, path string
	do           func(*Server, *request) reply
	open         bool // needs no token
	interaction  bool // not bound by the global limit (docs: "Rate Limits")
}

func routes() []route {
	get, post, patch, put, del := http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete
	const (
		channel  = "/channels/{channel_id}"
		messages = channel + "/messages"
		message  = messages + "/{message_id}"
		app      = "/applications/{application_id}"
		hook     = "/webhooks/{webhook_id}/{webhook_token}"
		original = hook + "/messages/@original"
		followUp = hook + "/messages/{message_id}"
		guild    = "/guilds/{guild_id}"
	)
	return []route{
		{get, "/gateway", (*Server).getGateway, true, false},
		{get, "/gateway/bot", (*Server).getGatewayBot, false, false},
		{get, "/users/@me", (*Server).getSelf, false, false},
		{get, "/users/@me/guilds", (*Server).listGuilds, false, false},
		{post, "/users/@me/channels", (*Server).openDM, false, false},
		{get, "/users/{user_id}", (*Server).getUser, false, false},
		{get, "/applications/@me", (*Server).getApplication, false, false},
		{get, "/oauth2/applications/@me", (*Server).getApplication, false, false},
		{get, channel, (*Server).getChannel, false, false},
		{patch, channel, (*Server).patchChannel, false, false},
		{del, channel, (*Server).deleteChannel, false, false},
		{get, messages, (*Server).listMessages, false, false},
		{post, messages, (*Server).createMessage, false, false},
		{get, message, (*Server).getMessage, false, false},
		{patch, message, (*Server).editMessage, false, false},
		{del, message, (*Server).deleteMessage, false, false},
		{post, message + "/threads", (*Server).threadFromMessage, false, false},
		{post, channel + "/threads", (*Server).threadWithoutMessage, false, false},
		{get, channel + "/threads/archived/public", (*Server).archivedThreads, false, false},
		{put, channel + "/thread-members/@me", (*Server).joinThread, false, false},
		{del, channel + "/thread-members/@me", (*Server).leaveThread, false, false},
		{post, channel + "/typing", (*Server).startTyping, false, false},
		{get, guild, (*Server).getGuild, false, false},
		{get, guild + "/channels", (*Server).guildChannels, false, false},
		{get, guild + "/roles", (*Server).guildRoles, false, false},
		{get, guild + "/members/{user_id}", (*Server).getMember, false, false},
		{get, guild + "/threads/active", (*Server).activeThreads, false, false},
		{get, app + "/commands", (*Server).listCommands, false, false},
		{put, app + "/commands", (*Server).putCommands, false, false},
		{get, app + "/guilds/{guild_id}/commands", (*Server).listCommands, false, false},
		{put, app + "/guilds/{guild_id}/commands", (*Server).putCommands, false, false},
		{post, "/interactions/{interaction_id}/{interaction_token}/callback", (*Server).callback, true, true},
		{post, hook, (*Server).createFollowUp, true, true},
		{get, original, (*Server).getResponse, true, true},
		{patch, original, (*Server).editResponse, true, true},
		{del, original, (*Server).deleteResponse, true, true},
		{get, followUp, (*Server).getResponse, true, true},
		{patch, followUp, (*Server).editResponse, true, true},
		{del, followUp, (*Server).deleteResponse, true, true},
	}
}

// find returns the route of a path. Literal segments win over parameters because they stand first in routes.
func find(method, path string) (route, map[string]string, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for _, rt := range routes() {
		want := strings.Split(strings.Trim(rt.path, "/"), "/")
		if rt.method != method || len(want) != len(parts) {
			continue
		}
		params, fits := map[string]string{}, true
		for i, w := range want {
			if strings.HasPrefix(w, "{") {
				params[strings.Trim(w, "{}")] = parts[i]
			} else if w != parts[i] {
				fits = false
				break
			}
		}
		if fits {
			return rt, params, true
		}
	}
	return route{}, nil, false
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	path, version := strings.TrimPrefix(r.URL.Path, "/api"), 0
	if v, rest, has := strings.Cut(strings.TrimPrefix(path, "/v"), "/"); has && strings.HasPrefix(path, "/v") {
		if n, err := strconv.Atoi(v); err == nil {
			version, path = n, "/"+rest
		}
	}
	rt, params, known := find(r.Method, path)
	req := &request{
		route: rt.method + " " + rt.path, params: params, query: r.URL.Query(), version: version, auth: r.Header.Get("Authorization"),
	}
	if !known {
		req.route = r.Method + " " + path
	}
	broken := req.read(r)

	s.mu.Lock()
	call := Call{
		Route: req.route, Path: path, Version: version, Query: req.query, Body: req.raw, Files: req.names, Auth: req.auth, At: s.now(),
	}
	var rep reply
	f, faulty := s.fault(req.route)
	switch {
	case faulty && !f.Drop && f.Delay == 0:
		rep = f.reply()
	case broken != nil:
		rep = *broken
	default:
		rep = s.answer(rt, known, req)
	}
	var data []byte
	switch {
	case rep.page != "":
		data = []byte(rep.page)
	case rep.body != nil:
		var err error
		if data, err = json.Marshal(rep.body); err != nil {
			rep.status, data = http.StatusInternalServerError, []byte(`{"message":"500: Internal Server Error","code":0}`)
		}
	}
	call.Status, call.Dropped = rep.status, f.Drop || f.Lose
	if rep.page == "" {
		call.Answer = data
	}
	// Of requests in the time of the ban none is counted, so that it ends; the docs call it temporary.
	shared := rep.header.Get("X-RateLimit-Scope") == "shared" || s.invalidCount() >= s.cfg.InvalidLimit
	if rep.status == http.StatusUnauthorized || rep.status == http.StatusForbidden || rep.status == http.StatusTooManyRequests && !shared {
		s.invalid = append(s.invalid, s.now())
	}
	s.calls = append(s.calls, call)
	s.checkCall(req, known, rep, data, faulty && !f.Drop && f.Delay == 0)
	s.bump()
	s.mu.Unlock()
	if call.Dropped {
		panic(http.ErrAbortHandler) // Cuts the connection without an answer.
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
		case <-s.ctx.Done():
		}
	}
	maps.Copy(w.Header(), rep.header)
	switch {
	case rep.page != "":
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	case rep.body != nil:
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(rep.status)
	_, _ = w.Write(data)
}

// answer serves a request. The caller holds mu.
func (s *Server) answer(rt route, known bool, r *request) reply {
	switch {
	case s.invalidCount() >= s.cfg.InvalidLimit:
		return cloudflare()
	case r.version != 9 && r.version != 10:
		// docs: other versions are gone or deprecated. The server has none of them.
		return refuse(http.StatusBadRequest, 50041, "Invalid API version")
	case !known:
		return notFound()
	case !rt.open && r.auth != "Bot "+s.token:
		return unauthorized()
	}
	for name, v := range r.params {
		if strings.HasSuffix(name, "_id") && v != "@me" {
			if _, err := strconv.ParseUint(v, 10, 64); err != nil {
				p := &problems{}
				p.add(name, "NUMBER_TYPE_COERCE", "Value %q is not snowflake.", v)
				return p.reply()
			}
		}
	}
	header, limited := s.limit(rt, r)
	if limited != nil {
		return *limited
	}
	rep := rt.do(s, r)
	if rep.header == nil {
		rep.header = http.Header{}
	}
	maps.Copy(rep.header, header)
	return rep
}

// read takes the body in. It returns a refusal when that is no JSON, or too large.
func (r *request) read(in *http.Request) *reply {
	tooLarge := refuse(http.StatusRequestEntityTooLarge, 40005, "Request entity too large")
	notJSON := refuse(http.StatusBadRequest, 50109, "The request body contains invalid JSON.")
	data, err := io.ReadAll(io.LimitReader(in.Body, maxRequest+1))
	if err != nil {
		return &notJSON
	}
	if len(data) > maxRequest {
		return &tooLarge
	}
	if len(data) == 0 {
		return nil
	}
	ctype, params, err := mime.ParseMediaType(in.Header.Get("Content-Type"))
	r.ctype = ctype
	switch {
	case err == nil && ctype == "application/json":
		r.raw = data
	case err == nil && ctype == "multipart/form-data":
		if rep := r.multipart(data, params["boundary"]); rep != nil {
			return rep
		}
	default:
		// docs ("Reference"): JSON, URL-encoded forms or multipart. Forms are not played.
		rep := refuse(http.StatusBadRequest, 50035, "Invalid Form Body: Expected \"Content-Type\" header to be one of {'application/json', 'multipart/form-data'}.")
		return &rep
	}
	if len(r.raw) == 0 {
		return nil
	}
	if !r.decode() {
		r.raw, r.body = nil, nil
		return &notJSON
	}
	return nil
}

// decode reads the JSON body, and says whether it is exactly one value.
func (r *request) decode() bool {
	dec := json.NewDecoder(bytes.NewReader(r.raw))
	dec.UseNumber()
	if dec.Decode(&r.body) != nil {
		return false
	}
	_, err := dec.Token()
	return errors.Is(err, io.EOF)
}

// multipart reads files[n] and payload_json (docs: "Uploading Files").
func (r *request) multipart(data []byte, boundary string) *reply {
	bad := refuse(http.StatusBadRequest, 50035, "Invalid Form Body")
	mr := multipart.NewReader(bytes.NewReader(data), boundary)
	r.uploads = map[string]upload{}
	for {
		p, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &bad
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return &bad
		}
		name := p.FormName()
		switch {
		case name == "payload_json":
			r.raw = content
		case strings.HasPrefix(name, "files[") && strings.HasSuffix(name, "]") && p.FileName() != "":
			n := strings.TrimSuffix(strings.TrimPrefix(name, "files["), "]")
			r.uploads[n] = upload{name: p.FileName(), contentType: p.Header.Get("Content-Type"), data: content}
			r.names = append(r.names, p.FileName())
		default:
			// Single fields in the place of payload_json are documented for some, and not played.
			return &bad
		}
	}
}

// reply is what a fault answers when it answers.
func (a Answer) reply() reply {
	status := a.Status
	if status == 0 {
		status = http.StatusInternalServerError
		if a.RetryAfter > 0 {
			status = http.StatusTooManyRequests
		}
	}
	if a.HTML {
		if status == http.StatusTooManyRequests {
			rep := cloudflare()
			if a.RetryAfter > 0 {
				rep.header.Set("Retry-After", strconv.Itoa(int(math.Ceil(a.RetryAfter.Seconds()))))
			}
			return rep
		}
		return reply{status: status, page: "<html><head><title>" + strconv.Itoa(status) + "</title></head><body>cloudflare</body></html>", header: http.Header{}}
	}
	if status == http.StatusTooManyRequests {
		return tooMany(a.RetryAfter, a.Scope, a.Code)
	}
	message := a.Message
	if message == "" {
		message = strconv.Itoa(status) + ": " + http.StatusText(status)
	}
	return refuse(status, a.Code, message)
}

// cloudflare is the answer after too many invalid requests: no JSON, and no rate-limit headers. 1015 is Cloudflare's number for it.
func cloudflare() reply {
	return reply{
		status: http.StatusTooManyRequests, page: "<html><head><title>Access denied | discord.com used Cloudflare to restrict access</title></head><body>error code: 1015</body></html>",
		header: http.Header{"Retry-After": {"3600"}},
	}
}

// tooMany is a 429 (docs: "Rate Limits", exceeding a rate limit).
func tooMany(after time.Duration, scope string, code int) reply {
	if after <= 0 {
		after = time.Second
	}
	if scope == "" {
		scope = "user"
	}
	body := object{"message": "You are being rate limited.", "retry_after": until(after), "global": scope == "global", "code": code}
	if scope == "shared" {
		body["message"] = "The resource is being rate limited."
		if code == 0 {
			body["code"] = 40062 // docs ("Opcodes and Status Codes"): service resource is being rate limited
		}
	}
	h := http.Header{"Retry-After": {strconv.Itoa(int(math.Ceil(after.Seconds())))}}
	h.Set("X-RateLimit-Scope", scope)
	if scope == "global" {
		h.Set("X-RateLimit-Global", "true")
	}
	return reply{status: http.StatusTooManyRequests, body: body, header: h}
}

func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.files[r.PathValue("id")]
	s.mu.Unlock()
	if f == nil || f.channel != r.PathValue("channel") {
		http.Error(w, "This content is no longer available.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", f.ContentType)
	_, _ = w.Write(f.data)
}
