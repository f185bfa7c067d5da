package oidc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/internal/redact"
)

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type rig struct {
	*idp
	c   *Client
	log *logged
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	p, out := newIDP(t), &logged{}
	cfg := Config{Issuer: p.srv.URL, ClientID: clientID, ClientSecret: redact.Secret(clientSecret), Log: slog.New(slog.NewTextHandler(out, nil))}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{p, c, out}
}

// round is a whole sign-in; spoil may change what the browser brings back.
func (r *rig) round(spoil func(keep *string, answer url.Values)) (string, []string, time.Time, error) {
	r.t.Helper()
	address, keep, err := r.c.Begin(r.t.Context(), callback)
	if err != nil {
		r.t.Fatal(err)
	}
	answer := r.allow(address)
	if spoil != nil {
		spoil(&keep, answer)
	}
	_, name, groups, expires, err := r.c.Finish(r.t.Context(), keep, answer)
	return name, groups, expires, err
}

// sentenceIn checks that an error is for a person: what is wrong, then what to do.
func sentenceIn(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was let in")
	}
	s := err.Error()
	if !strings.Contains(s, want) {
		t.Errorf("it says %q and not %q", s, want)
	}
	if !strings.HasSuffix(s, ".") || !strings.Contains(s, ". ") || strings.Contains(s, "oidc:") || strings.ToUpper(s[:1]) != s[:1] {
		t.Errorf("this is not for a person: %q", s)
	}
}

func TestAPersonSignsIn(t *testing.T) {
	r := newRig(t)
	address, keep, err := r.c.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != clientID || q.Get("redirect_uri") != callback || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 || len(q.Get("state")) != 43 || len(q.Get("nonce")) != 43 || q.Get("scope") != "openid profile" {
		t.Errorf("the request is %v", q)
	}
	if strings.Contains(address, url.QueryEscape(clientSecret)) || q.Get("state") == q.Get("nonce") {
		t.Error("the address holds a secret, or one secret twice")
	}
	if len(keep) > 250+len(callback) {
		t.Errorf("the browser keeps %d bytes", len(keep))
	}
	before := time.Now()
	subject, name, groups, expires, err := r.c.Finish(t.Context(), keep, r.allow(address))
	if err != nil || name != "ann" || subject != r.c.cfg.Issuer+" 77" || !slices.Equal(groups, []string{"dev", "sre"}) || expires.Before(before.Add(50*time.Minute)) {
		t.Errorf("%q %q %q %v, %v", subject, name, groups, expires, err)
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(clientID)+":"+url.QueryEscape(clientSecret)))
	if r.auth != basic || r.form.Has("client_secret") {
		t.Errorf("the client named itself as %q, %v", r.auth, r.form)
	}
	if n := r.count("/me"); n != 0 {
		t.Errorf("it asked for what it had, %d times", n)
	}
}

func TestTheClientNamesItselfAsTheProviderWants(t *testing.T) {
	for _, c := range []struct {
		name    string
		secret  redact.Secret
		methods []string
		basic   bool
		form    string
	}{
		{"in the header by default", clientSecret, nil, true, ""},
		{"in the header where it may", clientSecret, []string{"client_secret_post", "client_secret_basic"}, true, ""},
		{"in the form where it must", clientSecret, []string{"client_secret_post"}, false, clientSecret},
		{"by its name alone without a secret", "", []string{"none"}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.ClientSecret = c.secret })
			if c.methods != nil {
				r.describe = func(d map[string]any) { d["token_endpoint_auth_methods_supported"] = c.methods }
			}
			if _, _, _, err := r.round(nil); err != nil {
				t.Fatal(err)
			}
			if (r.auth != "") != c.basic || r.form.Get("client_secret") != c.form || !c.basic && r.form.Get("client_id") != clientID {
				t.Errorf("%q %v", r.auth, r.form)
			}
			if n := r.count("/token"); n != 1 {
				t.Errorf("the code was shown %d times", n)
			}
		})
	}
}

func TestWhatTheBrowserBringsBackIsChecked(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(r *rig) func(keep *string, q url.Values)
		says  string
		asked int // how often the token endpoint was
	}{
		{"another state", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("state", strings.Repeat("A", 43)) }
		}, "started in another browser", 0},
		{"no state", func(*rig) func(*string, url.Values) { return func(_ *string, q url.Values) { q.Del("state") } }, "started in another browser", 0},
		{"two states", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Add("state", "x") }
		}, "started in another browser", 0},
		{"nothing kept", func(*rig) func(*string, url.Values) { return func(k *string, _ url.Values) { *k = "" } }, "started in another browser", 0},
		{"an empty state on both sides", func(*rig) func(*string, url.Values) {
			return func(k *string, q url.Values) { *k = `{"s":""}`; q.Set("state", "") }
		}, "started in another browser", 0},
		{"another browser's sign-in", func(r *rig) func(*string, url.Values) {
			return func(k *string, _ url.Values) { _, *k, _ = r.c.Begin(r.t.Context(), callback) }
		}, "started in another browser", 0},
		{"another issuer's answer", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("iss", "https://evil.example") }
		}, "be verified, so", 0},
		{"no code", func(*rig) func(*string, url.Values) { return func(_ *string, q url.Values) { q.Del("code") } }, "be verified, so", 0},
		{"a huge code", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("code", strings.Repeat("c", maxCode+1)) }
		}, "be verified, so", 0},
		{"a made-up code", func(*rig) func(*string, url.Values) { return func(_ *string, q url.Values) { q.Set("code", "x") } }, "no longer knows this sign-in", 1},
		{"a code with another verifier", func(*rig) func(*string, url.Values) {
			return func(k *string, _ url.Values) {
				var f pending
				_ = json.Unmarshal([]byte(*k), &f)
				f.Verifier = strings.Repeat("v", 43)
				raw, _ := json.Marshal(f)
				*k = string(raw)
			}
		}, "no longer knows this sign-in", 1},
		{"a refusal", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("error", "access_denied"); q.Del("code") }
		}, "refused the sign-in", 0},
		{"a refusal beside a code", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("error", "login_required") }
		}, "refused the sign-in", 0},
		{"a complaint about the client", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("error", "invalid_scope"); q.Set("error_description", "<b>x</b>") }
		}, "set up as the console", 0},
		{"a provider that is overloaded", func(*rig) func(*string, url.Values) {
			return func(_ *string, q url.Values) { q.Set("error", "temporarily_unavailable") }
		}, "be reached", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			name, groups, _, err := r.round(c.spoil(r))
			sentenceIn(t, err, c.says)
			if name != "" || groups != nil {
				t.Errorf("it gives %q %q", name, groups)
			}
			if n := r.count("/token"); n != c.asked {
				t.Errorf("the token endpoint was asked %d times", n)
			}
		})
	}
}

func TestACodeIsGoodForOneSignIn(t *testing.T) {
	r := newRig(t)
	address, keep, err := r.c.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	answer := r.allow(address)
	if _, _, _, _, err := r.c.Finish(t.Context(), keep, answer); err != nil {
		t.Fatal(err)
	}
	_, _, _, _, err = r.c.Finish(t.Context(), keep, answer)
	sentenceIn(t, err, "no longer knows this sign-in")
	if strings.Contains(r.log.String(), "SECRET-IN-THE-BODY") || strings.Contains(r.log.String(), answer.Get("code")) {
		t.Errorf("the log holds what the provider sent:\n%s", r.log)
	}
}

func TestAnotherClientOfTheSameConfigurationFinishesASignIn(t *testing.T) {
	r := newRig(t)
	other, err := New(r.c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	address, keep, err := r.c.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	answer := r.allow(address)
	_, name, groups, _, err := other.Finish(t.Context(), keep, answer)
	if err != nil || name == "" {
		t.Fatalf("%q, %v, %v", name, groups, err)
	}
	if _, _, _, _, err := r.c.Finish(t.Context(), keep, answer); err == nil {
		t.Error("the code is good at both")
	}
}

func TestAProviderThatNamesItselfInAnswersMustDoSo(t *testing.T) {
	r := newRig(t)
	r.describe = func(d map[string]any) { d["authorization_response_iss_parameter_supported"] = true }
	_, _, _, err := r.round(nil)
	sentenceIn(t, err, "be verified, so")
	if _, _, _, err := r.round(func(_ *string, q url.Values) { q.Set("iss", r.srv.URL) }); err != nil {
		t.Error(err)
	}
}

func TestTokensThatAreNotToBeTrusted(t *testing.T) {
	now := time.Now()
	set := func(name string, v any) func(*rig) {
		return func(r *rig) { r.token = func(c map[string]any) { c[name] = v } }
	}
	signed := func(f func(r *rig, header, claims map[string]any) string) func(*rig) {
		return func(r *rig) { r.sign = func(h, c map[string]any) string { return f(r, h, c) } }
	}
	unsigned := func(alg string) func(*rig) {
		return signed(func(_ *rig, _, c map[string]any) string {
			head, _ := json.Marshal(map[string]any{"alg": alg})
			body, _ := json.Marshal(c)
			return b64(head) + "." + b64(body) + "."
		})
	}
	for _, c := range []struct {
		name string
		with func(*rig)
		says string
	}{
		{"another nonce", set("nonce", "x"), "be verified, so"},
		{"no nonce", set("nonce", nil), "be verified, so"},
		{"for another client", set("aud", "other"), "be verified, so"},
		{"for nobody", set("aud", nil), "be verified, so"},
		{"for two, without a word whose it is", set("aud", []string{clientID, "other"}), "be verified, so"},
		{"for two, issued for the other", func(r *rig) {
			r.token = func(c map[string]any) { c["aud"] = []string{clientID, "other"}; c["azp"] = "other" }
		}, "be verified, so"},
		{"issued for the other alone", set("azp", "other"), "be verified, so"},
		{"of another issuer", set("iss", "https://evil.example"), "be verified, so"},
		{"of nobody", set("iss", nil), "be verified, so"},
		{"about nobody", set("sub", ""), "be verified, so"},
		{"expired", set("exp", now.Add(-skew-10*time.Second).Unix()), "compare both clocks"},
		{"without an end", set("exp", nil), "compare both clocks"},
		{"from the future", set("iat", now.Add(skew+time.Minute).Unix()), "compare both clocks"},
		{"not valid yet", set("nbf", now.Add(time.Hour).Unix()), "compare both clocks"},
		{"about another access token", set("at_hash", "AAAAAAAAAAAAAAAAAAAAAA"), "be verified, so"},
		{"with a foreign signature", signed(func(r *rig, h, c map[string]any) string { return jwtBy(r.t, newKey(r.t), h, c) }), "be verified, so"},
		{"with a foreign key's name", signed(func(r *rig, h, c map[string]any) string { h["kid"] = "2"; return r.jwt(h, c) }), "be verified, so"},
		{"with a key in its own header", signed(func(r *rig, h, c map[string]any) string {
			k := newKey(r.t)
			raw, _ := k.PublicKey.Bytes()
			h["jwk"] = map[string]any{"kty": "EC", "crv": "P-256", "x": b64(raw[1:33]), "y": b64(raw[33:])}
			return jwtBy(r.t, k, h, c)
		}), "be verified, so"},
		{"with alg none, which the provider lists", unsigned("none"), "be verified, so"},
		{"with alg None", unsigned("None"), "be verified, so"},
		{"signed with the client's secret", signed(func(_ *rig, _, c map[string]any) string {
			head, _ := json.Marshal(map[string]any{"alg": "HS256"})
			body, _ := json.Marshal(c)
			m := hmac.New(sha256.New, []byte(clientSecret))
			m.Write([]byte(b64(head) + "." + b64(body)))
			return b64(head) + "." + b64(body) + "." + b64(m.Sum(nil))
		}), "be verified, so"},
		{"changed after signing", signed(func(r *rig, h, c map[string]any) string {
			parts := strings.Split(r.jwt(h, c), ".")
			c["preferred_username"] = "root"
			body, _ := json.Marshal(c)
			return parts[0] + "." + b64(body) + "." + parts[2]
		}), "be verified, so"},
		{"that is no token", signed(func(*rig, map[string]any, map[string]any) string { return "x.y.z" }), "be verified, so"},
		{"that is empty", signed(func(*rig, map[string]any, map[string]any) string { return "" }), "be verified, so"},
		{"that is too long", set("padding", strings.Repeat("x", maxJWT)), "be verified, so"},
		{"that is missing", func(r *rig) {
			r.reply = func(w http.ResponseWriter, _ *http.Request, _ string) {
				writeJSON(w, map[string]any{"access_token": "access", "token_type": "Bearer"})
			}
		}, "be verified, so"},
		{"in an endless answer", func(r *rig) {
			r.reply = func(w http.ResponseWriter, _ *http.Request, id string) {
				writeJSON(w, map[string]any{"access_token": "access", "token_type": "Bearer", "id_token": id, "x": strings.Repeat("x", maxAnswer)})
			}
		}, "be verified, so"},
		{"in an answer that is no JSON", func(r *rig) {
			r.reply = func(w http.ResponseWriter, _ *http.Request, _ string) { _, _ = w.Write([]byte("<html>")) }
		}, "be verified, so"},
		{"behind a redirect", func(r *rig) {
			r.reply = func(w http.ResponseWriter, q *http.Request, _ string) {
				http.Redirect(w, q, r.srv.URL+"/elsewhere", http.StatusTemporaryRedirect)
			}
		}, "be verified, so"},
		{"of a client that is not known", func(r *rig) {
			r.reply = func(w http.ResponseWriter, _ *http.Request, _ string) {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
			}
		}, "set up as the console"},
		{"of a broken server", func(r *rig) {
			r.reply = func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusBadGateway) }
		}, "be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.with(r)
			name, groups, _, err := r.round(nil)
			sentenceIn(t, err, c.says)
			if name != "" || groups != nil {
				t.Errorf("it gives %q %q", name, groups)
			}
			if n := r.count("/elsewhere"); n != 0 {
				t.Error("the client's secret went on")
			}
			out := r.log.String()
			if strings.Count(out, "\n") != 1 || strings.Contains(out, "eyJ") || strings.Contains(out, clientSecret) || strings.Contains(out, r.form.Get("code_verifier")) {
				t.Errorf("the log says\n%s", out)
			}
		})
	}
}

func TestSlightlyWrongClocksAreFine(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name, claim string
		at          time.Time
	}{
		{"expired just now", "exp", now.Add(-skew / 2)},
		{"from just ahead", "iat", now.Add(skew / 2)},
		{"valid in a moment", "nbf", now.Add(skew)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.token = func(m map[string]any) { m[c.claim] = c.at.Unix() }
			if _, _, _, err := r.round(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheName(t *testing.T) {
	for _, c := range []struct {
		name, claim string
		token       map[string]any
		info        map[string]any
		want, says  string
	}{
		{"is the user's name by default", "", nil, nil, "ann", ""},
		{"is the email where it is verified", "email", nil, nil, "ann@example.com", ""},
		{"is the email that is verified in words", "email", map[string]any{"email_verified": "true"}, nil, "ann@example.com", ""},
		{"is no email that is not", "email", map[string]any{"email_verified": false}, nil, "", "says that your email address isn't verified"},
		{"is no email that is not in words", "email", map[string]any{"email_verified": "False"}, nil, "", "says that your email address isn't verified"},
		{"is no email of which nothing is said", "email", map[string]any{"email_verified": nil}, map[string]any{"sub": "77"}, "", "doesn't say whether your email address is verified"},
		{"is no email of which nothing is said that can be read", "email", map[string]any{"email_verified": 1}, map[string]any{"sub": "77"}, "", "doesn't say whether"},
		{"is the email whose domain's owner Entra ID names", "email", map[string]any{"email_verified": nil, "xms_edov": true}, nil, "ann@example.com", ""},
		{"is the email whose domain's owner Entra ID names by a number", "email", map[string]any{"email_verified": nil, "xms_edov": "1"}, nil, "ann@example.com", ""},
		{"is no email whose domain's owner Entra ID doesn't know", "email", map[string]any{"email_verified": nil, "xms_edov": false}, nil, "", "isn't verified"},
		{"is no email that is not, whatever else is said", "email", map[string]any{"email_verified": false, "xms_edov": true}, nil, "", "isn't verified"},
		{"is the email whose verification is looked up", "email", map[string]any{"email_verified": nil}, map[string]any{"sub": "77", "email": "ann@example.com", "email_verified": "true"}, "ann@example.com", ""},
		{"is no email that is verified elsewhere only", "email", nil, map[string]any{"sub": "77", "email": "ann@example.com", "email_verified": false}, "ann@example.com", ""},
		{"is no email whose verification is of another one", "email", map[string]any{"email_verified": nil, "groups": nil}, map[string]any{"sub": "77", "email": "x@example.com", "email_verified": true}, "", "doesn't say whether"},
		{"is any claim that is named", "https://example.com/nick", map[string]any{"https://example.com/nick": "annie"}, nil, "annie", ""},
		{"is not made up where it is missing", "", map[string]any{"preferred_username": nil}, map[string]any{"sub": "77"}, "", "preferred_username"},
		{"is not null", "", map[string]any{"preferred_username": json.RawMessage("null")}, map[string]any{"sub": "77"}, "", "send your name"},
		{"is not empty", "", map[string]any{"preferred_username": ""}, nil, "", "send your name"},
		{"is not a number", "", map[string]any{"preferred_username": 7}, nil, "", "send your name"},
		{"is not a list", "", map[string]any{"preferred_username": []string{"ann"}}, nil, "", "send your name"},
		{"is not a book", "", map[string]any{"preferred_username": strings.Repeat("n", maxName+1)}, nil, "", "send your name"},
		{"is looked up where the token lacks it", "", map[string]any{"preferred_username": nil}, map[string]any{"sub": "77", "preferred_username": "bob"}, "bob", ""},
		{"is not somebody else's", "", map[string]any{"preferred_username": nil}, map[string]any{"sub": "78", "preferred_username": "bob"}, "", "be verified, so"},
		{"in the token goes before the looked-up one", "", map[string]any{"groups": nil}, map[string]any{"sub": "77", "preferred_username": "bob", "groups": []string{"x"}}, "ann", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.NameClaim = c.claim })
			r.token = func(m map[string]any) {
				maps.Copy(m, c.token)
			}
			r.info = c.info
			name, _, _, err := r.round(nil)
			if c.says != "" {
				sentenceIn(t, err, c.says)
			} else if err != nil || name != c.want {
				t.Errorf("%q, %v", name, err)
			}
		})
	}
}

// TestWhoSetsTheConsoleUpLearnsWhatTheProviderSent: the log names claim and value, and a sample is kept.
func TestWhoSetsTheConsoleUpLearnsWhatTheProviderSent(t *testing.T) {
	for _, c := range []struct {
		verified any
		logs     string
	}{
		{false, "email_verified is false"},
		{"false", `email_verified is \"false\"`},
		{1, "email_verified is 1"},
		{nil, "neither email_verified nor xms_edov"},
	} {
		var seen Sample
		r := newRig(t, func(cfg *Config) { cfg.NameClaim, cfg.Seen = "email", func(s Sample) { seen = s } })
		r.info = map[string]any{"sub": "77"}
		r.token = func(m map[string]any) {
			m["email_verified"], m["groups"] = c.verified, []string{"a", "b", "c", "d", "e"}
		}
		if _, _, _, err := r.round(nil); err == nil || !strings.Contains(r.log.String(), c.logs) || !strings.Contains(r.log.String(), "name_claim") {
			t.Errorf("%v: %v, logged %s", c.verified, err, r.log)
		}
		if !strings.Contains(seen.Refused, "email_verified") || seen.Claims["email"] != `"ann@example.com"` || seen.Claims["groups"] != `["a","b","c" and 2 more]` || seen.Claims["nonce"] != "" {
			t.Errorf("the sample is %+v", seen)
		}
	}
	var seen Sample
	r := newRig(t, func(cfg *Config) { cfg.Seen = func(s Sample) { seen = s } })
	if _, _, _, err := r.round(nil); err != nil || seen.Refused != "" || !strings.Contains(seen.String(), `preferred_username "ann"`) {
		t.Errorf("%v, %+v", err, seen)
	}
}

// TestAProviderWithAnotherNameSaysIt: authentik's issuer ends in a slash.
func TestAProviderWithAnotherNameSaysIt(t *testing.T) {
	r := newRig(t)
	r.describe = func(d map[string]any) { d["issuer"] = r.srv.URL + "/" }
	_, _, err := r.c.Begin(t.Context(), callback)
	if err == nil || !strings.Contains(Why(err), fmt.Sprintf("names itself %q; set web.oidc.issuer", r.srv.URL+"/")) {
		t.Errorf("%v: %s", err, Why(err))
	}
}

func TestTheGroups(t *testing.T) {
	many := make([]string, maxGroups+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, c := range []struct {
		name  string
		value any
		info  map[string]any
		want  []string
		bad   bool // alone; where there are too many, the name is given as well
	}{
		{"are a list", []string{"b", "a", "b"}, nil, []string{"a", "b"}, false},
		{"are one string for a list of one", "a", nil, []string{"a"}, false},
		{"may be none", []string{}, nil, []string{}, false},
		{"are none where nothing is said", nil, map[string]any{"sub": "77"}, nil, false},
		{"are looked up where the token lacks them", nil, map[string]any{"sub": "77", "groups": []string{"z"}}, []string{"z"}, false},
		{"are none where looking them up fails", nil, map[string]any{"sub": "other", "groups": []string{"z"}}, nil, false},
		{"are not numbers", []int{1}, nil, nil, true},
		{"are not an object", map[string]any{"a": true}, nil, nil, true},
		{"have names", []string{""}, nil, nil, true},
		{"have no endless names", []string{strings.Repeat("g", maxGroup+1)}, nil, nil, true},
		{"are not cut when there are too many", many, nil, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.token = func(m map[string]any) { m["groups"] = c.value }
			r.info = c.info
			name, groups, _, err := r.round(nil)
			if c.bad {
				sentenceIn(t, err, "groups")
				return
			}
			if err != nil || name != "ann" || !slices.Equal(groups, c.want) {
				t.Errorf("%q %q, %v", name, groups, err)
			}
		})
	}
}

// TestTooManyGroups: who is in more groups than come is told so, and comes in by their name alone.
func TestTooManyGroups(t *testing.T) {
	for name, with := range map[string]map[string]any{
		"a long list":       {"groups": slices.Repeat([]string{"a"}, maxGroups+1)},
		"of Entra ID":       {"groups": nil, "_claim_names": map[string]any{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]any{"endpoint": "https://graph.example.com"}}},
		"of its older flow": {"groups": nil, "hasgroups": true},
	} {
		r := newRig(t)
		r.info = map[string]any{"sub": "77"}
		r.token = func(m map[string]any) { maps.Copy(m, with) }
		who, groups, _, err := r.round(nil)
		sentenceIn(t, err, "more groups than the identity provider sends")
		if who != "ann" || groups != nil {
			t.Errorf("%s: %q %q", name, who, groups)
		}
	}
}

func TestTheProviderMayBeDownAtFirst(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	add := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	r := newRig(t, func(cfg *Config) { cfg.Now = clock })
	const path = "/.well-known/openid-configuration"
	r.lock(func() {
		r.before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
	})
	for range 3 {
		_, _, err := r.c.Begin(t.Context(), callback)
		sentenceIn(t, err, "be reached")
	}
	if n := r.count(path); n != 1 {
		t.Errorf("it was asked %d times at once", n)
	}
	r.lock(func() { r.before = nil })
	add(pause)
	for range 3 {
		if _, _, err := r.c.Begin(t.Context(), callback); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.count(path); n != 2 {
		t.Errorf("it was asked %d times in all", n)
	}
	// What is known stays in use while the provider is down again.
	r.lock(func() {
		r.before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
	})
	add(fresh)
	if _, _, err := r.c.Begin(t.Context(), callback); err != nil {
		t.Error(err)
	}
	if n := r.count(path); n != 3 {
		t.Errorf("it was asked %d times in all", n)
	}
}

func TestAProviderThatDoesNotListen(t *testing.T) {
	r := newRig(t)
	r.srv.Close()
	_, _, err := r.c.Begin(t.Context(), callback)
	sentenceIn(t, err, "be reached")
}

func TestProvidersThatAreSetUpWrongly(t *testing.T) {
	put := func(name string, v any) func(*idp) {
		return func(p *idp) { p.describe = func(d map[string]any) { d[name] = v } }
	}
	for _, c := range []struct {
		name string
		with func(*idp)
	}{
		{"it has another name", put("issuer", "https://evil.example")},
		{"its token endpoint is in the clear", put("token_endpoint", "http://login.example.com/token")},
		{"its keys are in the clear", put("jwks_uri", "http://login.example.com/keys")},
		{"its sign-in page is in the clear", put("authorization_endpoint", "http://login.example.com/auth")},
		{"its sign-in page is a script", put("authorization_endpoint", "javascript:alert(1)")},
		{"it has no token endpoint", put("token_endpoint", nil)},
		{"its userinfo is in the clear", put("userinfo_endpoint", "http://login.example.com/me")},
		{"it describes itself without end", put("x", strings.Repeat("x", maxAnswer))},
		{"it does not describe itself", func(p *idp) {
			p.before = func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, "no", http.StatusNotFound)
				return true
			}
		}},
		{"it sends us elsewhere", func(p *idp) {
			p.before = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
				return true
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.with(r.idp)
			_, _, err := r.c.Begin(t.Context(), callback)
			sentenceIn(t, err, "set up as the console")
			if r.count("/elsewhere") != 0 {
				t.Error("it went there")
			}
			if len(r.log.String()) > 2000 {
				t.Error("the log is flooded")
			}
		})
	}
}

func TestKeysThatChangeAreFetchedAgain(t *testing.T) {
	r := newRig(t)
	if _, _, _, err := r.round(nil); err != nil {
		t.Fatal(err)
	}
	r.lock(func() { r.key = newKey(t) })
	if _, _, _, err := r.round(nil); err != nil {
		t.Errorf("after the provider's keys changed: %v", err)
	}
	if n := r.count("/keys"); n != 2 {
		t.Errorf("keys were fetched %d times", n)
	}
}

func TestConfigurationMistakesAreOneSentence(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no issuer", Config{ClientID: "x"}, "issuer"},
		{"an issuer in the clear", Config{Issuer: "http://login.example.com", ClientID: "x"}, "https"},
		{"an issuer that only looks like loopback", Config{Issuer: "http://localhost.example.com", ClientID: "x"}, "https"},
		{"an issuer with a user", Config{Issuer: "https://a:b@login.example.com", ClientID: "x"}, "issuer"},
		{"an issuer with a query", Config{Issuer: "https://login.example.com/?x", ClientID: "x"}, "issuer"},
		{"no client", Config{Issuer: "https://login.example.com"}, "client id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
		})
	}
	for _, issuer := range []string{"https://login.example.com/realms/ops", "http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9/x"} {
		if _, err := New(Config{Issuer: issuer, ClientID: "x"}); err != nil {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}

func TestScopesAlwaysAskWhoItIs(t *testing.T) {
	for _, c := range []struct {
		scopes []string
		claim  string
		want   string
	}{
		{nil, "", "openid profile"},
		{nil, "email", "openid profile email"},
		{[]string{}, "", "openid"},
		{[]string{"groups", "openid"}, "", "openid groups"},
	} {
		r := newRig(t, func(cfg *Config) { cfg.Scopes, cfg.NameClaim = c.scopes, c.claim })
		address, _, err := r.c.Begin(t.Context(), callback)
		if err != nil {
			t.Fatal(err)
		}
		if u, _ := url.Parse(address); u.Query().Get("scope") != c.want {
			t.Errorf("%q %q: %s", c.scopes, c.claim, u.Query().Get("scope"))
		}
	}
}

// Nothing that a browser can bring is let in, or breaks anything, without the
// state that was given to it.
func TestNoAnswerWithoutItsStateIsEverLetIn(t *testing.T) {
	r := newRig(t)
	_, keep, err := r.c.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		q := url.Values(rapid.MapOf(rapid.SampledFrom([]string{"state", "code", "iss", "error", "error_description"}), rapid.SliceOfN(rapid.String(), 0, 3)).Draw(rt, "query"))
		if _, name, groups, _, err := r.c.Finish(t.Context(), keep, q); err == nil || name != "" || groups != nil {
			rt.Fatalf("%q %q %v", name, groups, err)
		}
	})
	if n := r.count("/token"); n != 0 {
		t.Errorf("the token endpoint was asked %d times", n)
	}
}

func FuzzGroups(f *testing.F) {
	for _, s := range []string{`["a"]`, `"a"`, `[]`, `null`, `{}`, `[["a"]]`, `[1]`, `["a","a"]`, `"\ud800"`, `[`, ``} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		list, err := groupsOf(json.RawMessage(raw))
		if err != nil && list != nil || len(list) > maxGroups || !slices.IsSorted(list) || slices.Contains(list, "") {
			t.Errorf("%q gives %q, %v", raw, list, err)
		}
	})
}

func FuzzFinish(f *testing.F) {
	p := httptest.NewServer(http.NotFoundHandler())
	f.Cleanup(p.Close)
	c, err := New(Config{Issuer: p.URL, ClientID: clientID})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"s":"a","n":"b","v":"c","c":"d"}`, "state=a&code=b")
	f.Add(``, "state=&error=access_denied")
	f.Fuzz(func(t *testing.T, keep, query string) {
		q, _ := url.ParseQuery(query)
		if _, name, _, _, err := c.Finish(t.Context(), keep, q); err == nil || name != "" {
			t.Errorf("%q %q is let in as %q", keep, query, name)
		}
	})
}
