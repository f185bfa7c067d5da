package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

const (
	maxBody   = 256 << 10 // bytes of a request
	maxClient = 128       // bytes of a client's message id
	maxReason = 2000      // bytes of a reason
	maxEdit   = 16 << 10  // bytes of an edited text; the gate allows less
)

// Handler serves the page and its API. It expects to be mounted at the root of
// its origin.
func (a *Adapter) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/login", a.login)
	if a.identities != nil {
		mux.HandleFunc("POST /api/identity", a.exchange)
		if a.identities.Issuer() != "" {
			mux.HandleFunc("GET "+MetadataPath, a.resourceMetadata)
		}
	}
	mux.Handle("POST /api/logout", a.leaving(a.logout))
	mux.Handle("POST /api/logout-everywhere", a.leaving(personally(a.logoutEverywhere)))
	mux.Handle("GET /api/sessions", a.leaving(personally(a.listSessions)))
	mux.Handle("POST /api/sessions/{id}/end", a.leaving(personally(a.endSession)))
	mux.Handle("GET /api/me", a.signed(mayRead, a.me))
	mux.Handle("GET /api/tokens", a.signed(mayWrite, a.listTokens))
	mux.Handle("POST /api/tokens", a.signed(mayWrite, a.makeToken))
	mux.Handle("POST /api/tokens/{token}/end", a.signed(mayWrite, a.endToken))
	mux.HandleFunc("POST /api/operator/tokens", a.operatorTokens)
	if a.desk != nil {
		mux.Handle("GET /api/home", a.signed(mayRead, a.home))
	}
	mux.Handle("GET /api/threads", a.signed(mayRead, a.listThreads))
	mux.Handle("POST /api/threads", a.signed(mayWrite, a.startThread))
	mux.Handle("GET /api/threads/{id}", a.signed(mayRead, a.readThread))
	mux.Handle("POST /api/threads/{id}/messages", a.signed(mayWrite, a.say))
	mux.Handle("POST /api/threads/{id}/mark", a.signed(mayWrite, a.mark))
	mux.Handle("POST /api/threads/{id}/arrange", a.signed(mayWrite, a.arrange))
	mux.Handle("POST /api/threads/{id}/clicks", a.signed(mayDecide, a.press))
	mux.Handle("GET /api/threads/{id}/events", a.signed(mayRead, a.events))
	mux.Handle("GET /api/threads/{id}/panes", a.signed(mayRead, a.listPanes))
	mux.Handle("GET /api/threads/{id}/recordings", a.signed(mayRead, a.listRecordings))
	mux.Handle("GET /api/threads/{id}/recordings/{rec}", a.signed(mayRead, a.readRecording))
	mux.Handle("GET /api/threads/{id}/outputs/{out}", a.signed(mayRead, a.readOutput))
	if a.programs != nil {
		mux.Handle("GET /api/threads/{id}/exec", a.signed(mayRead, a.readExec))
		mux.Handle("GET /api/tools", a.signed(mayWrite, a.listTools))
		mux.Handle("POST /api/calls", a.signed(mayWrite, a.ask))
		mux.Handle("GET /api/calls", a.signed(mayWrite, a.listCalls))
		mux.Handle("GET /api/calls/{id}", a.signed(mayWrite, a.readCall))
		mux.Handle("GET /api/calls/{id}/output", a.signed(mayWrite, a.followCall))
		mux.Handle("POST /api/calls/{id}/withdraw", a.signed(mayWrite, a.withdrawCall))
	}
	if a.lists != nil {
		mux.Handle("GET /api/lists/{id}", a.signed(mayWrite, a.readList))
		mux.Handle("POST /api/lists/{id}", a.signed(mayWrite, a.askList))
		mux.Handle("POST /api/lists/{id}/act", a.signed(mayWrite, a.actInList))
	}
	if a.pusher != nil {
		mux.Handle("GET /api/notifications", a.signed(mayWrite, a.notifications))
		mux.Handle("POST /api/notifications/wishes", a.signed(mayWrite, a.setWishes))
		mux.Handle("POST /api/notifications/devices", a.signed(mayWrite, a.addDevice))
		mux.Handle("POST /api/notifications/devices/{id}/end", a.signed(mayWrite, a.endDevice))
	}
	if a.keysSignIn() {
		mux.HandleFunc("POST /api/login/begin", a.beginLogin)
	}
	if a.passkeys != nil {
		mux.Handle("GET /api/passkeys", a.signed(mayKeys, a.listPasskeys))
		mux.Handle("POST /api/passkeys", a.signed(mayKeys, a.addPasskey))
		mux.Handle("POST /api/passkeys/begin", a.signed(mayKeys, a.beginPasskey))
		mux.Handle("POST /api/passkeys/{id}/ask", a.signed(mayKeys, a.askPasskey))
		mux.Handle("POST /api/passkeys/{id}/confirm", a.signed(mayKeys, a.confirmPasskey))
		mux.Handle("POST /api/passkeys/{id}/end", a.signed(mayKeys, a.endPasskey))
	}
	mux.Handle("GET /api/panes/{id}/live", a.signed(mayRead, a.live))
	if a.oidc != nil {
		mux.HandleFunc("GET /oidc/start", a.oidcStart)
		mux.HandleFunc("GET "+oidcCallback, a.oidcFinish)
	}
	if a.watchLinks {
		mux.Handle("GET /api/threads/{id}/links", a.signed(mayRead, a.listLinks))
		mux.Handle("POST /api/threads/{id}/links", a.signed(mayShare, a.makeLink))
		mux.Handle("POST /api/threads/{id}/links/{link}/end", a.signed(mayShare, a.endLink))
		mux.HandleFunc("POST /api/watch", a.watchInfo)
		mux.HandleFunc("GET /api/watch/live", a.watchLive)
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, sayReload)
	})
	mux.HandleFunc("/", a.serveAsset)
	return a.guard(mux)
}

// signed lets only signed-in people with the permission through, and POSTs only from our
// own page, at a person's pace.
func (a *Adapter) signed(p permission, next func(http.ResponseWriter, *http.Request, session)) http.Handler {
	return a.leaving(func(w http.ResponseWriter, r *http.Request, s session) {
		if !s.may(p) {
			said := sayViewer
			switch {
			case s.program && p == mayDecide:
				said = sayNotByToken(a.pageOrigin(r))
			case s.program && s.may(mayWrite):
				said = sayNoProgram
			case s.program:
				said = sayLooksOnly
			}
			fail(w, http.StatusForbidden, said)
			return
		}
		pace := a.acts
		if s.program && r.URL.Path == callsPath {
			pace = a.asks
		}
		if r.Method == http.MethodPost && !pace.allow(s.id) {
			failPace(w, time.Second, sayTooFast)
			return
		}
		next(w, r, s)
	})
}

// leaving is signed for what everybody may who is signed in, however often.
func (a *Adapter) leaving(next func(http.ResponseWriter, *http.Request, session)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.foreign(r) {
			failForeign(w, a.pageOrigin(r))
			return
		}
		s, ok, err := a.session(r.Context(), r)
		if errors.Is(err, ErrNoKeys) {
			fail(w, http.StatusServiceUnavailable, sayNoKeys)
			return
		}
		if err != nil {
			a.failStore(r.Context(), w, err)
			return
		}
		if !ok {
			sentence := saySignIn
			if a.oidc != nil {
				sentence = saySignInAgain
			}
			fail(w, http.StatusUnauthorized, sentence)
			return
		}
		if s.scope == scopeAsk && !forPrograms(r) {
			fail(w, http.StatusForbidden, sayJobsAsk)
			return
		}
		if r.Method == http.MethodPost && !a.mayPost(w, r, &s) {
			return
		}
		if s.stale {
			a.seen(r.Context(), s)
		}
		next(w, r, s)
	})
}

// mayPost answers the request itself when it returns false. s is nil before
// there is a session.
func (a *Adapter) mayPost(w http.ResponseWriter, r *http.Request, s *session) bool {
	program := s != nil && s.program
	if !program && !a.ownPage(r) {
		failForeign(w, a.pageOrigin(r))
		return false
	}
	if s != nil && !program && !a.ownToken(r, *s) {
		fail(w, http.StatusForbidden, sayReload)
		return false
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, sayNotJSON)
		return false
	}
	return true
}

// keysSignIn reports whether passkeys sign people in. Where a provider does, it also says who has left.
func (a *Adapter) keysSignIn() bool { return a.passkeys != nil && a.oidc == nil }

// beginLogin gives what a passkey signs to sign its owner in.
func (a *Adapter) beginLogin(w http.ResponseWriter, r *http.Request) {
	if !a.mayPost(w, r, nil) {
		return
	}
	code := LoginCode(a.key, keyMark, a.now())
	site, challenge := a.passkeys.SignInSite(code)
	answer(w, http.StatusOK, map[string]any{"code": code, "site": site, "challenge": base64.RawURLEncoding.EncodeToString(challenge)})
}

func (a *Adapter) login(w http.ResponseWriter, r *http.Request) {
	if !a.mayPost(w, r, nil) {
		return
	}
	v := a.visitor(r)
	var body struct {
		Code string `json:"code"`
		// Page is a secret that the page makes for itself. The session is then open
		// only to requests that bring it.
		Page string `json:"page"`
		// Response is what a passkey's device has answered to the code.
		Response json.RawMessage `json:"response"`
	}
	if !read(w, r, &body) {
		return
	}
	if !a.keysSignIn() {
		body.Response = nil
	}
	// Only those who have no right code are counted: whoever guesses must not lock out
	// everybody behind the same address.
	if _, _, _, err := readCode(a.key, body.Code, a.now()); err != nil && !a.logins.allow(neighbourhood(v.address)) {
		a.recordRefusal(r.Context(), v, "", byLink, "too many attempts")
		failPace(w, time.Minute, sayTooManyTries)
		return
	}
	var page []byte
	if body.Page != "" {
		if len(body.Page) < leastPageKey || len(body.Page) > mostPageKey {
			fail(w, http.StatusBadRequest, sayBadJSON)
			return
		}
		page = pageDigest(body.Page)
	}
	row, token, err := a.redeem(r.Context(), v, body.Code, body.Response, page)
	if err == nil {
		a.log.InfoContext(r.Context(), "a person signed in", "user", userID(row.User), "how", row.How)
		http.SetCookie(w, a.cookie(r, sessionCookie, token, row.Expires.Sub(row.Begun), http.SameSiteStrictMode))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusForbidden
	var sentence, why string
	said, isKey := errors.AsType[RefusalError](err)
	switch {
	case isKey && !a.logins.allow(neighbourhood(v.address)):
		status, sentence, why = http.StatusTooManyRequests, sayTooManyTries, "too many attempts"
		w.Header().Set("Retry-After", "60")
	case isKey:
		sentence, why = string(said), string(said)
	case errors.Is(err, errForged):
		sentence, why = sayBadCode, "no valid code"
	case errors.Is(err, errExpired):
		sentence, why = sayCodeExpired, "expired"
	case errors.Is(err, errUsed):
		sentence, why = sayCodeUsed, "used before"
	case errors.Is(err, errUnknown):
		sentence, why = sayNotInvited, "this name may not sign in"
	case errors.Is(err, errTooMany):
		status, sentence, why = http.StatusTooManyRequests, sayTooManyTries, "too many attempts for this name"
		w.Header().Set("Retry-After", "60")
	default:
		a.failStore(r.Context(), w, err)
		return
	}
	if !validName(row.User) {
		row.User = ""
	}
	a.recordRefusal(r.Context(), v, row.User, row.How, why)
	fail(w, status, sentence)
}

func (a *Adapter) me(w http.ResponseWriter, _ *http.Request, s session) {
	role, why := "member", ""
	if !s.may(mayWrite) {
		role, why = "viewer", sayViewer
	}
	answer(w, http.StatusOK, map[string]any{
		"user": userID(s.user), "name": s.user, "csrf": a.csrf(s), "title": a.title, "role": role, "why": why, "how": s.how, "since": s.begun,
		"terminal": a.panes != nil || a.recordings != nil, "recordings": a.recordings != nil, "links": a.watchLinks,
		"home": a.desk != nil, "notifications": a.pusher != nil, "lists": a.listNames(), "passkeys": a.passkeys != nil, "invited": s.invited,
	})
}

// thread is a thread as the page sees it. State is "waiting" when a card wants
// a person, "working" when the bot shows progress, else "idle".
type thread struct {
	ID    chat.ThreadID `json:"id"`
	Title string        `json:"title"`
	At    time.Time     `json:"at"`
	State string        `json:"state"`
	// Unread, Pinned and Read, the seq up to which they saw it, are about the person who asks.
	Unread   bool   `json:"unread,omitempty"`
	Pinned   bool   `json:"pinned,omitempty"`
	Read     uint64 `json:"read,omitempty"`
	Archived bool   `json:"archived,omitempty"`
	Found    *found `json:"found,omitempty"` // where a search leads
}

func (a *Adapter) thread(id string, t threadRow, r reader, m markRow) thread {
	out := thread{
		ID: threadID(id), Title: shownText(t.Title), At: t.At, State: "idle",
		Unread: r.unread(t, m), Pinned: r.pins[id], Read: m.Read, Archived: t.Archived,
	}
	switch {
	case len(t.Asking) > 0:
		out.State = "waiting"
	case a.hub.busy(id):
		out.State = "working"
	}
	return out
}

// message is a message as the page sees it. HTML is set for the bot only: it is
// Text rendered by [renderMarkdown]. Everything else is plain text.
type message struct {
	Seq    uint64     `json:"seq"`
	Rev    uint64     `json:"rev"`
	Key    string     `json:"key"`
	From   from       `json:"from"`
	At     time.Time  `json:"at"`
	Edited *time.Time `json:"edited,omitempty"`
	Text   string     `json:"text"`
	HTML   string     `json:"html"`
	Card   *chat.Card `json:"card,omitempty"`
	Files  []file     `json:"files,omitempty"`
	Kind   string     `json:"kind"` // "human" or "bot"
	Quiet  bool       `json:"quiet,omitempty"`
}

// file is a file of a message; HTML is set for the Markdown of the bot.
type file struct {
	chat.File
	HTML string `json:"html,omitempty"`
}

type from struct {
	ID   chat.UserID `json:"id"`
	Name string      `json:"name"`
}

func (a *Adapter) message(n numbered) message {
	m := message{
		Seq: n.seq, Rev: n.Rev, Key: n.Key, From: from{n.From.ID, shownText(n.From.Name)}, At: n.At, Edited: n.Edited,
		Text: shownText(n.Text), Card: shownCard(n.Card), Kind: "human", Quiet: n.Quiet,
	}
	for _, f := range shownFiles(n.Files) {
		shown := file{File: f}
		if n.From.Bot && strings.HasSuffix(f.Name, ".md") {
			shown.HTML = renderMarkdown(strings.ReplaceAll(f.Text, "@\u200B", "@")) // nobody is called here
		}
		m.Files = append(m.Files, shown)
	}
	if n.From.Bot {
		m.Kind, m.From.Name, m.HTML = "bot", a.title, renderMarkdown(n.Text)
	}
	return m
}

// readThread answers with the last messages, those before or after one, or those around one.
func (a *Adapter) readThread(w http.ResponseWriter, r *http.Request, s session) {
	id, ok := pathThread(r)
	if !ok {
		failThread(w)
		return
	}
	var at [3]uint64
	for i, name := range []string{"before", "after", "around"} {
		var err error
		if at[i], err = number(r.URL.Query().Get(name)); err != nil {
			fail(w, http.StatusBadRequest, sayBadPlace)
			return
		}
	}
	end, begin, middle := at[0], at[1], at[2]
	var t threadRow
	var m markRow
	pinned := map[string]bool{}
	var page []numbered
	var more, later bool
	err := a.db.View(r.Context(), func(tx store.Tx) error {
		if t, ok = listed(tx, id); !ok {
			return nil
		}
		m, _ = store.Load[markRow](tx, markKey(s.user, id))
		_, pinned[id] = tx.Get(pinKey(s.user, id))
		switch {
		case middle > 0:
			var rest []numbered
			page, more = before(tx, id, middle, pageSize/2)
			rest, later = after(tx, id, middle-1, pageSize/2)
			page = append(page, rest...)
		case begin > 0:
			page, later = after(tx, id, begin, pageSize)
		default:
			page, more = before(tx, id, end, pageSize)
		}
		return nil
	})
	if err != nil {
		a.failStore(r.Context(), w, err)
		return
	}
	if !ok {
		failThread(w)
		return
	}
	messages := []message{}
	for _, n := range page {
		messages = append(messages, a.message(n))
	}
	answer(w, http.StatusOK, map[string]any{
		"thread": a.thread(id, t, reader{user: s.user, pins: pinned}, m), "messages": messages, "more": more, "later": later, "rev": t.Last,
	})
}

type sayBody struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

func (a *Adapter) startThread(w http.ResponseWriter, r *http.Request, s session) {
	var body sayBody
	if !read(w, r, &body) || !checkSay(w, body) {
		return
	}
	in := incoming{user: s.user, groups: s.groups, thread: newThreadID(s.user, body.ID), client: body.ID, text: body.Text, start: true, token: s.program}
	if err := a.accept(r.Context(), in); err != nil {
		a.failAccept(r.Context(), w, err)
		return
	}
	answer(w, http.StatusCreated, map[string]any{"thread": threadID(in.thread)})
}

func (a *Adapter) say(w http.ResponseWriter, r *http.Request, s session) {
	id, ok := pathThread(r)
	if !ok {
		failThread(w)
		return
	}
	var body sayBody
	if !read(w, r, &body) || !checkSay(w, body) {
		return
	}
	if err := a.accept(r.Context(), incoming{user: s.user, groups: s.groups, thread: id, client: body.ID, text: body.Text, token: s.program}); err != nil {
		a.failAccept(r.Context(), w, err)
		return
	}
	answer(w, http.StatusAccepted, map[string]any{"thread": threadID(id)})
}

func checkSay(w http.ResponseWriter, b sayBody) bool {
	switch {
	case b.ID == "" || len(b.ID) > maxClient:
		fail(w, http.StatusBadRequest, sayNoID)
	case strings.TrimSpace(b.Text) == "":
		fail(w, http.StatusBadRequest, sayEmpty)
	default:
		return true
	}
	return false
}

func (a *Adapter) press(w http.ResponseWriter, r *http.Request, s session) {
	id, ok := pathThread(r)
	thread := threadID(id)
	foreign := false
	if other := chat.ThreadID(r.PathValue("id")); !ok && a.desk != nil && foreignThread(other) {
		thread, ok, foreign = other, true, true // a card of the first page; the gate knows whether the button is of this thread
	}
	if !ok {
		failThread(w)
		return
	}
	var body struct {
		ID     string        `json:"id"`
		Button chat.ButtonID `json:"button"`
		Reason string        `json:"reason"`
		Text   string        `json:"text"`
		Signed *chat.Signed  `json:"signed"`
		Ticket string        `json:"ticket"`
	}
	if !read(w, r, &body) {
		return
	}
	if body.ID == "" || len(body.ID) > maxClient || body.Button == "" {
		fail(w, http.StatusBadRequest, sayBadClick)
		return
	}
	if foreign && !decides.MatchString(string(body.Button)) && (body.Ticket == "" || !decidesByTicket.MatchString(string(body.Button))) {
		fail(w, http.StatusForbidden, sayThreadOnly)
		return
	}
	if len(body.Reason) > maxReason {
		fail(w, http.StatusBadRequest, sayLongReason)
		return
	}
	if len(body.Text) > maxEdit {
		fail(w, http.StatusBadRequest, sayLongEdit)
		return
	}
	ans, err := a.click(r.Context(), chat.Click{
		ID:     eventID(id, s.user, "click:"+body.ID),
		Thread: thread,
		From:   chat.User{ID: userID(s.user), Name: s.user},
		Button: body.Button,
		Reason: body.Reason,
		Groups: s.groups,
		Text:   body.Text,
		Signed: body.Signed,
		Ticket: body.Ticket,
	})
	switch {
	case errors.Is(err, errRefused):
		fail(w, http.StatusServiceUnavailable, sayNotRecorded)
	case err != nil:
		a.failAccept(r.Context(), w, err)
	default:
		answer(w, http.StatusOK, shownAnswer(ans))
	}
}

func pathThread(r *http.Request) (id string, ok bool) {
	id = strings.TrimPrefix(r.PathValue("id"), scheme+":")
	return id, validID(id)
}

// number reads an optional decimal number.
func number(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// read decodes a request's JSON. It answers the request itself when it returns
// false.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		if err = exact(raw); err == nil {
			err = json.Unmarshal(raw, v)
		}
	}
	if err == nil {
		return true
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		fail(w, http.StatusRequestEntityTooLarge, sayTooLong)
		return false
	}
	fail(w, http.StatusBadRequest, sayBadJSON)
	return false
}

var errTwice = errors.New("web: two members of an object have one name")

// exact refuses a text whose objects have two members that a decoder may take for each other: then two
// programs read two things in it.
func exact(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	var open []map[string]bool // the names of the objects that are open; nil is a list
	name, args := false, false // the next text is a name; it is within a tool's arguments, which are its own
	for {
		t, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		object := len(open) > 0 && open[len(open)-1] != nil
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{':
				open, name = append(open, map[string]bool{}), true
				continue
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
		case string:
			if object && name {
				key := t
				if !args || len(open) == 1 {
					key = strings.ToLower(strings.ToUpper(t)) // as encoding/json takes names for one
				}
				if len(open) == 1 {
					args = key == "args"
				}
				if open[len(open)-1][key] {
					return errTwice
				}
				open[len(open)-1][key] = true
				name = false
				continue
			}
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil { // only our own types come here
		fail(w, http.StatusInternalServerError, sayNoAnswer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // who has gone needs no answer
}

func fail(w http.ResponseWriter, status int, sentence string) {
	answer(w, status, map[string]string{"error": sentence})
}

// failPage is fail for somebody who typed an address: a page, with a link to the console.
func (a *Adapter) failPage(w http.ResponseWriter, r *http.Request, status int, heading, sentence, to string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		fail(w, status, sentence)
		return
	}
	a.page(w, status, heading, sentence, to, sayToConsole)
}

func failForeign(w http.ResponseWriter, origin string) {
	fail(w, http.StatusForbidden, sayNotOwnPage(origin)+" Or set the console's origin to the address you use.")
}

func failThread(w http.ResponseWriter) {
	fail(w, http.StatusNotFound, sayNoThread)
}

func (a *Adapter) failAccept(ctx context.Context, w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errNoThread):
		failThread(w)
	case errors.Is(err, errNotOpen):
		fail(w, http.StatusServiceUnavailable, sayNotOpen)
	case errors.Is(err, errRefused):
		fail(w, http.StatusServiceUnavailable, sayNotTaken)
	default:
		a.failStore(ctx, w, err)
	}
}

func (a *Adapter) failStore(ctx context.Context, w http.ResponseWriter, err error) {
	if ctx.Err() != nil {
		return // nobody listens
	}
	a.log.ErrorContext(ctx, "the console's store failed", "error", err)
	sentence := sayNoStore
	if errors.Is(err, store.ErrFull) {
		sentence = sayDiskFull
	}
	fail(w, http.StatusServiceUnavailable, sentence)
}
