package slackfake

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

type share struct{ channel, ts, thread string }

type file struct {
	FileInfo
	user     string
	content  []byte
	declared int
	uploaded bool
	complete bool
	created  time.Time
	shares   []share
}

// AddFile puts a file of a person into the workspace and returns its id. Name it in Message.Files to send it; the channel is where
// it may be read from the start.
func (s *Server) AddFile(channelID, name, mimetype string, content []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.newFile(name, mimetype, len(content))
	f.content, f.uploaded, f.complete, f.user = bytes.Clone(content), true, true, "U0"
	f.shares = append(f.shares, share{channel: channelID})
	s.bump()
	return f.ID
}

func (s *Server) newFile(name, mimetype string, size int) *file {
	if mimetype == "" {
		mimetype = mime.TypeByExtension(path.Ext(name))
	}
	if mimetype == "" {
		mimetype = "application/octet-stream"
	}
	mt, _, err := mime.ParseMediaType(mimetype)
	if err == nil {
		mimetype = mt
	}
	id := s.newID("F")
	f := &file{FileInfo: FileInfo{ID: id, Name: name, Title: name, Mimetype: mimetype, Size: size}, created: time.Now()}
	f.URL = s.base + "/files-pri/" + s.cfg.Team + "-" + id + "/" + url.PathEscape(path.Base("/"+name))
	s.files[id] = f
	return f
}

// FileURL is a file's url_private.
func (s *Server) FileURL(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[id]; f != nil {
		return f.URL
	}
	return ""
}

// FileContent returns the bytes of a file, nil when it is unknown or was not uploaded.
func (s *Server) FileContent(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[id]; f != nil && f.uploaded {
		return bytes.Clone(f.content)
	}
	return nil
}

func (s *Server) fileJSON(f *file) map[string]any {
	public, private := map[string]any{}, map[string]any{}
	var chans, groups, ims []string
	for _, sh := range f.shares {
		c := s.channels[sh.channel]
		if c == nil {
			continue
		}
		into := public
		switch {
		case c.IM:
			ims, into = append(ims, c.ID), private
		case c.Private || c.MPIM:
			groups, into = append(groups, c.ID), private
		default:
			chans = append(chans, c.ID)
		}
		if sh.ts == "" {
			continue
		}
		one := map[string]any{"ts": sh.ts, "channel_name": c.Name, "team_id": s.cfg.Team}
		if sh.thread != "" {
			one["thread_ts"] = sh.thread
		}
		list, _ := into[c.ID].([]any)
		into[c.ID] = append(list, one)
	}
	return map[string]any{
		"id": f.ID, "created": f.created.Unix(), "timestamp": f.created.Unix(), "name": f.Name, "title": f.Title,
		"mimetype": f.Mimetype, "filetype": strings.TrimPrefix(path.Ext(f.Name), "."), "pretty_type": f.Mimetype, "user": f.user,
		"user_team": s.cfg.Team, "editable": false, "size": f.Size, "mode": "hosted", "is_external": false, "external_type": "",
		"is_public": len(chans) > 0, "public_url_shared": false, "url_private": f.URL, "url_private_download": f.URL,
		"permalink": s.teamURL() + "files/" + f.user + "/" + f.ID, "channels": nonNil(chans), "groups": nonNil(groups),
		"ims": nonNil(ims), "shares": map[string]any{"public": public, "private": private}, "file_access": "visible",
	}
}

func (s *Server) getUploadURL(r *request) reply {
	size, err := strconv.Atoi(r.str("length"))
	switch {
	case r.str("filename") == "":
		return missing("filename")
	case r.str("length") == "":
		return missing("length")
	case err != nil || size <= 0:
		return fail("invalid_arguments", "length must be a positive number of bytes")
	}
	f := s.newFile(r.str("filename"), "", size)
	f.user, f.declared = s.cfg.BotUser, size
	token := secretToken()
	s.uploads[token] = f
	return ok(map[string]any{"upload_url": s.base + "/upload/v1/" + token, "file_id": f.ID})
}

// serveUpload takes the bytes of a file: the body itself, or the first file part of a form. The URL itself is the credential.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request) {
	data, err := uploadBody(r)
	s.mu.Lock()
	fault, faulty := s.fault("upload")
	f := s.uploads[r.PathValue("token")]
	switch {
	case faulty && !fault.Drop:
	case err != nil || f == nil || r.Method != http.MethodPost && r.Method != http.MethodPut:
	default:
		f.content, f.uploaded, f.Size = data, true, len(data)
		s.bump()
	}
	s.mu.Unlock()
	switch {
	case fault.Drop || fault.Lose:
		panic(http.ErrAbortHandler)
	case faulty:
		rep := fault.reply()
		if fault.Status == 0 && rep.status == http.StatusOK {
			rep.status = http.StatusInternalServerError
		}
		writeReply(w, rep, []byte("upload failed"))
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case f == nil:
		http.Error(w, "this upload URL is unknown", http.StatusNotFound)
	case f.declared != len(data):
		// Slack's answer to a wrong length is not documented; a client that counts wrong should not pass unseen.
		http.Error(w, "the length differs from the one that was announced", http.StatusBadRequest)
	default:
		_, _ = io.WriteString(w, "OK - "+strconv.Itoa(len(data)))
	}
}

func uploadBody(r *http.Request) ([]byte, error) {
	mt, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if mt != "multipart/form-data" {
		return io.ReadAll(io.LimitReader(r.Body, maxBody))
	}
	mr, err := r.MultipartReader()
	if err != nil {
		return nil, err
	}
	for {
		p, err := mr.NextPart()
		if err != nil {
			return nil, err
		}
		if p.FileName() != "" {
			return io.ReadAll(io.LimitReader(p, maxBody))
		}
	}
}

// completeUpload finishes uploads and shares them as one message (docs: files.completeUploadExternal). Slack does the sharing a
// moment later; here it is done when the call returns.
func (s *Server) completeUpload(r *request) reply {
	var list []struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	if json.Unmarshal([]byte(r.str("files")), &list) != nil || len(list) == 0 {
		return missing("files")
	}
	files := make([]*file, 0, len(list))
	for _, e := range list {
		f := s.files[e.ID]
		if f == nil || !f.uploaded || f.complete || f.user != s.cfg.BotUser {
			return fail("file_not_found")
		}
		files = append(files, f)
	}
	ids := strings.FieldsFunc(r.str("channels"), func(x rune) bool { return x == ',' || x == ' ' })
	if id := r.str("channel_id"); id != "" {
		ids = append(ids, id)
	}
	if len(ids) > 100 {
		return fail("channels_limit_exceeded")
	}
	var chans []*channel
	for _, id := range ids {
		c := s.channels[id]
		switch {
		case c == nil || !s.visible(c):
			return fail("channel_not_found")
		case !s.isMember(c, s.cfg.BotUser):
			return fail("not_in_channel")
		}
		chans = append(chans, c)
	}
	var blocks json.RawMessage
	if v := r.str("blocks"); v != "" && r.str("initial_comment") == "" {
		list, code, msgs := checkBlocks(v, s.surface())
		if code != "" {
			return fail("invalid_blocks", msgs...)
		}
		blocks = s.nameBlocks(list)
	}
	for i, f := range files {
		if f.complete = true; list[i].Title != "" {
			f.Title = list[i].Title
		}
	}
	for _, c := range chans {
		m := &message{Msg: Msg{User: s.cfg.BotUser, BotID: s.cfg.BotID, Text: r.str("initial_comment"), Blocks: blocks, Subtype: "file_share"}}
		for _, f := range files {
			m.Files = append(m.Files, f.FileInfo)
		}
		if ts := r.str("thread_ts"); ts != "" {
			m.ThreadTS = c.replyable(ts)
		}
		s.put(c, m)
		s.echo(c, m)
	}
	out := make([]any, 0, len(files))
	for _, f := range files {
		out = append(out, s.fileJSON(f))
	}
	return ok(map[string]any{"files": out})
}

// readableFile says whether the bot is in a channel that the file is shared in, or made it.
func (s *Server) readableFile(f *file) bool {
	if f.user == s.cfg.BotUser {
		return true
	}
	for _, sh := range f.shares {
		if c := s.channels[sh.channel]; c != nil && s.isMember(c, s.cfg.BotUser) {
			return true
		}
	}
	return false
}

func (s *Server) filesInfo(r *request) reply {
	f := s.files[r.str("file")]
	if f == nil || !f.complete || !s.readableFile(f) {
		return fail("file_not_found")
	}
	out := ok(map[string]any{"file": s.fileJSON(f), "comments": []any{}})
	out.body["response_metadata"] = map[string]any{"next_cursor": ""}
	return out
}

// serveFile gives out a private file to the bot's token. Anybody else is redirected to the sign-in page, which answers 200 with
// HTML: a client that does not look stores that page as the file.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.PathValue("id"), s.cfg.Team+"-")
	s.mu.Lock()
	f := s.files[id]
	allowed := f != nil && f.uploaded && bearer(r) == s.cfg.BotToken && s.granted("files:read") && s.readableFile(f)
	var content []byte
	if allowed {
		content = f.content
	}
	s.mu.Unlock()
	if !allowed {
		http.Redirect(w, r, "/signin?redir="+url.QueryEscape(r.URL.Path), http.StatusFound)
		return
	}
	w.Header().Set("Content-Type", f.Mimetype)
	_, _ = w.Write(content)
}

func (s *Server) serveSignIn(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, "<!DOCTYPE html><title>Sign in</title>")
}
