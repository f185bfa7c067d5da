package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/store"
)

// token makes a token and returns it with its id.
func (p *person) token(scope string, days int) (token, id string) {
	p.t.Helper()
	got := p.do("POST", "/api/tokens", fmt.Sprintf(`{"name":"deploys <b>","scope":%q,"days":%d}`, scope, days))
	var t struct{ Token, ID string }
	if err := json.Unmarshal(got.body, &t); err != nil || got.status != 201 || !strings.HasPrefix(t.Token, "cst_") || t.ID == "" {
		p.t.Fatalf("%d %s", got.status, got.body)
	}
	return t.Token, t.ID
}

// bearing sends what a program sends: the token and nothing of a browser's.
func bearing(token string) func(*http.Request) {
	return func(r *http.Request) {
		for _, name := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "X-CSRF-Token"} {
			r.Header.Del(name)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

func TestATokenIsItsPersonForAProgram(t *testing.T) {
	r := newRig(t, book)
	you := r.signIn("you")
	full, _ := you.token("full", 30)
	looks, _ := you.token("read", 30)
	got := you.do("POST", "/api/threads", `{"id":"t1","text":"hello"}`, bearing(full))
	var made struct{ Thread string }
	if err := json.Unmarshal(got.body, &made); err != nil || got.status != 201 || r.bot.seen()[0].From.ID != "web:you" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for path, want := range map[string][2]int{
		"GET /api/threads": {200, 200}, "GET /api/me": {200, 200}, "GET /api/threads/" + made.Thread: {200, 200},
		"POST /api/threads/" + made.Thread + "/messages": {202, 403}, "POST /api/tokens": {403, 403}, "GET /api/tokens": {200, 403},
		"POST /api/threads/" + made.Thread + "/clicks": {403, 403}, "GET /api/passkeys": {403, 403}, "POST /api/passkeys/begin": {403, 403},
	} {
		method, where, _ := strings.Cut(path, " ")
		body := ""
		if method == "POST" {
			body = `{"id":"m1","text":"more","name":"x","scope":"full","days":1}`
		}
		for i, token := range []string{full, looks} {
			if got := you.do(method, where, body, bearing(token)); got.status != want[i] {
				t.Errorf("%s with token %d: %d %s", path, i, got.status, got.body)
			}
		}
	}
	for _, bad := range []string{"", "cst_", "x" + full, full + "x", strings.ToUpper(full)} {
		if got := you.do("GET", "/api/threads", "", bearing(bad)); got.status != 401 {
			t.Errorf("%q: %d", bad, got.status)
		}
	}
	// A page of somebody else's can't use it either.
	if got := you.do("POST", "/api/threads", `{"id":"t2","text":"x"}`, bearing(full), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }); got.status != 403 {
		t.Errorf("from another page: %d %s", got.status, got.body)
	}
	if got := you.do("POST", "/api/threads", `{"id":"t3","text":"x"}`, bearing(full), func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); got.status != 415 {
		t.Errorf("no JSON: %d", got.status)
	}
	if err := r.db.View(t.Context(), func(tx store.Tx) error {
		from, to := store.Prefix(scheme)
		for k, raw := range tx.Scan(from, to) {
			if strings.Contains(string(k)+string(raw), full[4:]) {
				t.Errorf("the store has the token itself: %s", store.Format(k))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, x := range r.audit() {
		if x.What == TokenMade {
			notes = append(notes, x.Name+" "+x.Note)
		}
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "you ") || !strings.Contains(notes[0], "(deploys <b>), full, until ") {
		t.Errorf("the audit has %q", notes)
	}
}

// A right to approve is a person's: it takes a session of the console, whatever a token may.
func TestATokenDecidesNothing(t *testing.T) {
	r := newRig(t, book)
	you := r.signIn("you")
	for _, s := range []string{"read", "ask", "full"} {
		token, _ := you.token(s, 1)
		for _, path := range []string{"/api/threads/0123456789ab/clicks", "/api/threads/slack:T0:C0:1.2/clicks", "/api/passkeys/x/confirm"} {
			if got := you.do("POST", path, `{"id":"c","button":"approve:7v9fctk7sg"}`, bearing(token)); got.status != 403 {
				t.Errorf("%s with scope %s: %d %s", path, s, got.status, got.body)
			}
		}
	}
	token, _ := you.token("full", 1)
	if got := you.do("POST", "/api/threads/0123456789ab/clicks", "{}", bearing(token)); !strings.Contains(string(got.body), "Sign in at http://") {
		t.Errorf("%s", got.body)
	}
	// What it writes is known as a program's, and so can't be a word that decides.
	you.do("POST", "/api/threads", `{"id":"t1","text":"approve 7v9fctk7sg"}`, bearing(token))
	you.do("POST", "/api/threads", `{"id":"t2","text":"approve 7v9fctk7sg"}`)
	if all := r.bot.seen(); len(all) != 2 || !all[0].Token || all[1].Token {
		t.Errorf("%+v", all)
	}
}

func TestAProgramsOwnToken(t *testing.T) {
	r := newRig(t, book)
	you := r.signIn("you")
	full, id := you.token("full", 2)
	ask, _ := you.token("ask", 2)
	looks, _ := you.token("read", 2)
	makes := func(with, body string) (reply, shownToken) {
		t.Helper()
		got := you.do("POST", "/api/tokens", body, bearing(with))
		var made shownToken
		if got.status == 201 {
			if err := json.Unmarshal(got.body, &made); err != nil {
				t.Fatal(err)
			}
		}
		return got, made
	}
	const wish = `{"scope":"ask","program":"Claude Code"}`
	_, hook := makes(full, wish)
	_, other := makes(ask, `{"scope":"ask","program":"coder","days":366}`)
	if hook.Program != "Claude Code" || hook.Name != "Claude Code" || hook.Scope != scopeAsk || other.Expires.After(hook.Expires) {
		t.Errorf("%+v %+v", hook, other)
	}
	for _, bad := range [][2]string{
		{full, `{"scope":"full","program":"x"}`}, {full, `{"scope":"read","program":"x"}`}, {full, `{"scope":"ask","name":"x"}`}, {ask, `{"scope":"ask"}`},
		{looks, wish}, {hook.Token, wish}, {other.Token, `{"scope":"ask","program":"another"}`},
	} {
		if got, _ := makes(bad[0], bad[1]); got.status != 403 {
			t.Errorf("%s: %d %s", bad[1], got.status, got.body)
		}
	}
	works := func(token string) bool { return you.do("GET", "/api/me", "", bearing(token)).status == 200 }
	if !works(hook.Token) || !works(other.Token) {
		t.Error("they don't work")
	}
	if got := you.do("POST", "/api/tokens/"+id+"/end", "{}"); got.status != 204 || works(full) || works(hook.Token) || !works(other.Token) {
		t.Errorf("what was made with a token that has ended: %d", got.status)
	}
	for range maxPrograms {
		makes(ask, wish)
		r.clock.add(2 * time.Second)
	}
	if got, newest := makes(ask, wish); got.status != 201 || !works(newest.Token) || works(other.Token) { // the oldest makes room
		t.Errorf("one too many: %d", got.status)
	}
	var list struct{ Tokens []shownToken }
	if got := you.do("GET", "/api/tokens", "", bearing(ask)); json.Unmarshal(got.body, &list) != nil || len(list.Tokens) != maxPrograms+1 {
		t.Errorf("a program sees its own: %d %s", got.status, got.body)
	}
	for _, days := range []string{"-213503", "213504", "367", "-1", "0"} {
		if got := you.do("POST", "/api/tokens", `{"name":"x","scope":"ask","days":`+days+`}`); got.status != 400 {
			t.Errorf("for %s days: %d", days, got.status)
		}
		r.clock.add(2 * time.Second)
	}
	if token, _ := you.token("ask", 1); !works(token) { // they don't keep their person from a token
		t.Error("it doesn't work")
	}
}

func TestATokenEnds(t *testing.T) {
	r := newRig(t, book, func(c *Config) {
		c.Users = func(name string, _ []string) Role { return map[string]Role{"you": Member, "ann": Member}[name] }
	})
	you, ann := r.signIn("you"), r.signIn("ann")
	token, id := you.token("full", 2)
	if got := ann.do("POST", "/api/tokens/"+id+"/end", "{}"); got.status != 404 {
		t.Errorf("by somebody else: %d", got.status)
	}
	var list struct{ Tokens []shownToken }
	you.get("/api/tokens", &list)
	if len(list.Tokens) != 1 || list.Tokens[0].ID != id || list.Tokens[0].Token != "" || list.Tokens[0].Scope != scopeFull {
		t.Errorf("%+v", list)
	}
	if got := you.do("POST", "/api/tokens/"+id+"/end", "{}", bearing(token)); got.status != 204 {
		t.Errorf("by itself: %d %s", got.status, got.body)
	}
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 401 {
		t.Errorf("after its end: %d", got.status)
	}
	token, _ = you.token("full", 2)
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 200 {
		t.Errorf("%d", got.status)
	}
	r.clock.add(48*time.Hour + time.Minute)
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 401 {
		t.Errorf("after its time: %d", got.status)
	}
	you = r.signIn("you")
	token, _ = you.token("full", 2)
	for _, scope := range []string{"read", "ask", "full"} {
		r.clock.add(2 * time.Second) // at a person's pace
		one, _ := you.token(scope, 2)
		if got := you.do("POST", "/api/logout-everywhere", "{}", bearing(one)); got.status != 403 {
			t.Errorf("everywhere, by a token of scope %s: %d", scope, got.status)
		}
	}
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 200 {
		t.Errorf("another token, after that: %d", got.status)
	}
	if got := you.do("POST", "/api/logout-everywhere", "{}"); got.status != 204 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 401 {
		t.Errorf("after signing out everywhere: %d", got.status)
	}
}

func TestATokenOfSomebodyWhoIsOutIsWorthNothing(t *testing.T) {
	role := Member
	r := newRig(t, func(c *Config) { c.Users = func(string, []string) Role { return role } })
	you := r.signIn("you")
	token, _ := you.token("full", 2)
	role = Viewer
	if got := you.do("POST", "/api/threads", `{"id":"1","text":"x"}`, bearing(token)); got.status != 403 {
		t.Errorf("a viewer's: %d", got.status)
	}
	role = None
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 401 {
		t.Errorf("nobody's: %d", got.status)
	}
}

func TestWhatATokenMustHave(t *testing.T) {
	r := newRig(t)
	you := r.signIn("you")
	for _, body := range []string{`{"name":"","scope":"read","days":1}`, `{"name":"x","scope":"all","days":1}`, `{"name":"x","scope":"read","days":0}`, `{"name":"x","scope":"read","days":367}`, `{"name":"` + strings.Repeat("x", 101) + `","scope":"read","days":1}`} {
		if got := you.do("POST", "/api/tokens", body); got.status != 400 {
			t.Errorf("%s: %d", body, got.status)
		}
	}
	for range maxTokens {
		you.token("read", 1)
		r.clock.add(2 * time.Second) // at a person's pace
	}
	if got := you.do("POST", "/api/tokens", `{"name":"x","scope":"read","days":1}`); got.status != 409 {
		t.Errorf("one too many: %d", got.status)
	}
}

// What an identity provider said about a person holds as long as in a session: a token doesn't keep it.
func TestATokenKeepsGroupsAsLongAsASession(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Users = func(name string, groups []string) Role {
			if name == "you" || slices.Contains(groups, "sre") {
				return Member
			}
			return None
		}
	})
	you := r.signIn("you")
	token, _ := you.token("full", 30)
	vouched := func(groups ...string) {
		t.Helper()
		if err := r.db.Update(t.Context(), func(tx store.Tx) error {
			row, _ := store.Load[tokenRow](tx, tokenKey(token))
			tx.Delete(tokenKey(token))
			row.User = "zed"
			store.Save(tx, tokenKey(token), row)
			vouch(tx, "zed", groups, r.clock.now())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	status := func() int { return you.do("GET", "/api/me", "", bearing(token)).status }
	vouched("sre")
	if got := status(); got != 200 {
		t.Fatalf("at first: %d", got)
	}
	r.clock.add(defaultAbsolute)
	if got := status(); got != 401 {
		t.Errorf("after the length of a session: %d", got)
	}
	if vouched("sre"); status() != 200 {
		t.Error("a sign-in doesn't renew it")
	}
	if vouched(); status() != 401 {
		t.Error("a sign-in without the group leaves it")
	}
}

// Whom the configuration lets in no more has no tokens, also when the name is put back.
func TestANameThatIsPutBackHasNoTokens(t *testing.T) {
	role := Member
	r := newRig(t, func(c *Config) { c.Users = func(string, []string) Role { return role } })
	you := r.signIn("you")
	token, _ := you.token("full", 2)
	role = None
	if err := r.a.Recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	role = Member
	if got := you.do("GET", "/api/me", "", bearing(token)); got.status != 401 {
		t.Errorf("%d", got.status)
	}
}

// Two programs must not read two things in one request.
func TestNamesInJSONAreThereOnce(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`: true, `{"a":"b","b":"a"}`: true, `[]`: true, `"a"`: true, `{"a":1,"a":1}`: false, `{"a":1,"A":1}`: false,
		`{"x":[1,{"a":{},"A":[]}]}`: false, `{"x":{"a":1},"y":1,"Y":2}`: false, `{"a":1} {"a":1}`: true,
		`{"host":1,"hoſt":2}`: false, `{"key":1,"Key":2}`: false, `{"args":{"App":1,"app":2}}`: true, `{"args":{"app":1,"app":2}}`: false, `{"args":{"a":1},"x":1,"X":2}`: false,
		`{"args":1,"Args":2}`: false, `{"x":{"args":{"a":1,"A":2}}}`: false,
	} {
		if err := exact([]byte(raw)); (err == nil) != want {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if got := newRig(t, book).signIn("you").do("POST", "/api/tokens", `{"name":"a","scope":"ask","Scope":"full","days":1}`); got.status != http.StatusBadRequest {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Who runs the bot lists and ends anybody's tokens, also of those who can't sign in.
func TestTheOperatorEndsAnybodysTokens(t *testing.T) {
	r := newRig(t, book)
	you := r.signIn("you")
	token, id := you.token("ask", 30)
	var hook shownToken
	if got := you.do("POST", "/api/tokens", `{"scope":"ask","program":"coder"}`, bearing(token)); json.Unmarshal(got.body, &hook) != nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	operates := func(code, body string) (reply, []shownToken) {
		t.Helper()
		var list struct{ Tokens []shownToken }
		got := you.do("POST", "/api/operator/tokens", body, bearing(""), func(r *http.Request) { r.Header.Set("Authorization", "Operator "+code) })
		_ = json.Unmarshal(got.body, &list)
		return got, list.Tokens
	}
	code := func() string { return OperatorCode(testKey, r.clock.now()) }
	used := code()
	if got, list := operates(used, `{"of":"you"}`); got.status != 200 || len(list) != 2 || list[0].ID != id && list[1].ID != id || list[1].User != "you" || list[0].Token+list[1].Token != "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	for what, bad := range map[string]string{"none": "", "used": used, "a sign-in's": LoginCode(testKey, "you", r.clock.now()), "another key's": OperatorCode(make([]byte, 32), r.clock.now())} {
		if got, _ := operates(bad, `{"of":"you"}`); got.status != 403 {
			t.Errorf("a code that is %s: %d %s", what, got.status, got.body)
		}
	}
	if got := you.do("POST", "/api/login", `{"code":"`+code()+`"}`); got.status != 403 {
		t.Errorf("the operator's code signs somebody in: %d", got.status)
	}
	if got, _ := operates(code(), `{"end":"nothing"}`); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got, _ := operates(code(), `{"end":"`+id+`"}`); got.status != 200 || you.do("GET", "/api/me", "", bearing(token)).status != 401 || you.do("GET", "/api/me", "", bearing(hook.Token)).status != 401 {
		t.Errorf("%d %s", got.status, got.body)
	}
	var notes []string
	for _, x := range r.audit() {
		if x.What == TokenEnded {
			notes = append(notes, x.Name+" "+x.How)
		}
	}
	if !slices.Equal(notes, []string{"you operator", "you operator"}) {
		t.Errorf("the audit has %q", notes)
	}
}
