package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"countersign/console/spelling"
	"countersign/store"
)

// OIDC signs people in through an identity provider. Package
// countersign/console/oidc has one. It is safe for concurrent use. The text
// of its errors is one sentence for the person.
type OIDC interface {
	// Begin gives the address to send a browser to, and what Finish needs to know
	// again: it holds secrets and is kept, encrypted, by that browser. callback is
	// where the provider sends the browser back to.
	Begin(ctx context.Context, callback string) (address, keep string, err error)
	// Finish reads the query of the callback. It gives the account, as the issuer's
	// address, a space, and what that issuer never calls another account; the person's
	// name and groups; and until when the provider vouches for them: zero when it does
	// not say. A session may last longer than that.
	Finish(ctx context.Context, keep string, answer url.Values) (subject, name string, groups []string, expires time.Time, err error)
}

const (
	oidcCallback = "/oidc/callback"
	flightCookie = "countersign_oidc"
	oidcLife     = 10 * time.Minute // to sign in at the provider
	maxCookie    = 3800             // bytes of a cookie's value that browsers keep for sure
)

// flight is a sign-in at the provider that is under way.
type flight struct {
	Keep    string    `json:"k"`
	Thread  string    `json:"t,omitempty"` // the conversation that was asked for
	Page    bool      `json:"p,omitempty"` // a page began it, which keeps a key of the session
	Expires time.Time `json:"e"`
}

// provider signs people in through the identity provider.
type provider struct {
	*entry
	oidc             OIDC // nil: there is none
	sessions         *sessions
	names            *names
	pages            *pages
	oidcStartsByAddr *limiter
}

// start sends the browser to the provider. A foreign page that leads here
// starts nothing: it would make people sign in without having asked for it.
func (p *provider) start(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	v := p.visitors.visitor(r)
	if !p.oidcStartsByAddr.allow(neighbourhood(v.address)) {
		w.Header().Set("Retry-After", "60")
		p.visitors.recordRefusal(r.Context(), v, "", byOIDC, "too many attempts")
		p.pages.refusalPage(w, http.StatusTooManyRequests, sayTooManyTries)
		return
	}
	address, keep, err := p.oidc.Begin(r.Context(), p.guard.pageOrigin(r)+oidcCallback)
	if err != nil {
		p.pages.refusalPage(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	f := flight{Keep: keep, Expires: p.now().Add(oidcLife).UTC()}
	// Browsers send the header, so that a link that leads here from elsewhere makes no
	// session that its cookie alone opens.
	f.Page = r.URL.Query().Has("page") || r.Header.Get("Sec-Fetch-Site") != ""
	if id := strings.TrimPrefix(r.URL.Query().Get("t"), scheme+":"); validID(id) {
		f.Thread = id
	}
	sealed, err := p.seal(f)
	if err != nil {
		p.log.ErrorContext(r.Context(), "a sign-in could not be begun", "error", err)
		p.pages.refusalPage(w, http.StatusServiceUnavailable, saySignInBroken)
		return
	}
	http.SetCookie(w, p.guard.cookie(r, flightCookie, sealed, oidcLife, http.SameSiteLaxMode)) // Lax: the provider sends the browser back
	http.Redirect(w, r, address, http.StatusSeeOther)                                          //nolint:gosec // where the provider that the configuration names has its page
}

// finish takes the browser back from the provider.
func (p *provider) finish(w http.ResponseWriter, r *http.Request) {
	v := p.visitors.visitor(r)
	http.SetCookie(w, p.guard.cookie(r, flightCookie, "", -time.Second, http.SameSiteLaxMode))
	var f flight
	c, err := r.Cookie(p.guard.cookieName(r, flightCookie))
	if err == nil {
		f, err = p.unseal(c.Value)
	}
	if err != nil || !p.now().Before(f.Expires) {
		p.visitors.recordRefusal(r.Context(), v, "", byOIDC, "the answer of the identity provider was for no sign-in that this browser had begun")
		p.pages.refusalPage(w, http.StatusForbidden, sayNoSignInHere)
		return
	}
	// Whatever comes of it, it is used now.
	err = p.db.Update(r.Context(), func(tx store.Tx) error {
		key := oidcKey(c.Value)
		if _, used := tx.Get(key); used {
			return errUsed
		}
		store.Save(tx, key, codeRow{Expires: f.Expires})
		return nil
	})
	if err != nil {
		p.fail(w, r, v, "", err)
		return
	}
	subject, said, groups, expires, unknown := p.oidc.Finish(r.Context(), f.Keep, r.URL.Query())
	if unknown != nil && said == "" {
		p.visitors.recordRefusal(r.Context(), v, "", byOIDC, unknown.Error())
		p.pages.refusalPage(w, http.StatusForbidden, unknown.Error())
		return
	}
	now := p.now()
	name, err := spelling.Clean(said)
	if err != nil {
		p.fail(w, r, v, "", nameError(sayHiddenName))
		return
	}
	if !expires.IsZero() && now.After(expires.Add(time.Minute)) {
		p.fail(w, r, v, name, errExpired)
		return
	}
	if err := p.sessions.welcome(name, groups); err != nil {
		if unknown != nil && errors.Is(err, errUnknown) {
			err = nameError(unknown.Error())
		}
		p.fail(w, r, v, name, err)
		return
	}
	var token, key string
	var page []byte
	if f.Page {
		key = secret()
		page = pageDigest(key)
	}
	err = p.db.Update(r.Context(), func(tx store.Tx) error {
		p.sessions.tidy(tx, v, now)
		if err := p.names.identify(tx, accountOf(subject), said, name, now); err != nil {
			return err
		}
		vouch(tx, name, groups, now)
		token, _ = p.sessions.begin(tx, v, sessionRow{User: name, Groups: groups, How: byOIDC, Page: page}, now)
		return nil
	})
	if err != nil {
		p.fail(w, r, v, name, err)
		return
	}
	p.log.InfoContext(r.Context(), "a person signed in", "user", userID(name), "how", byOIDC)
	http.SetCookie(w, p.guard.cookie(r, sessionCookie, token, p.absolute, http.SameSiteStrictMode))
	next, part := "/", url.Values{}
	if f.Thread != "" {
		part.Set("t", string(threadID(f.Thread)))
	}
	if key != "" {
		part.Set("page", key) // fragments stay in the browser
	}
	if len(part) > 0 {
		next += "#" + part.Encode()
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// fail tells why the callback lets nobody in.
func (p *provider) fail(w http.ResponseWriter, r *http.Request, v visitor, name string, err error) {
	status := http.StatusForbidden
	var sentence, why string
	refused, isName := errors.AsType[nameError](err)
	switch {
	case isName:
		sentence, why = string(refused), "this name is refused: "+string(refused)
	case errors.Is(err, errUsed):
		sentence, why = saySignInUsed, "used before"
	case errors.Is(err, errExpired):
		sentence, why = saySignInExpired, "expired"
	case errors.Is(err, errUnknown):
		sentence, why = sayNoGroup, "this name may not sign in"
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", "60")
		status, sentence, why = http.StatusTooManyRequests, sayTooManyTries, "too many attempts for this name"
	default:
		if r.Context().Err() == nil {
			p.log.ErrorContext(r.Context(), "the console's store failed", "error", err)
			p.pages.refusalPage(w, http.StatusServiceUnavailable, sayNoStore)
		}
		return
	}
	if !validName(name) {
		name = ""
	}
	p.visitors.recordRefusal(r.Context(), v, name, byOIDC, why)
	p.pages.refusalPage(w, status, sentence)
}

// seal encrypts a flight for the browser to keep.
func (p *provider) seal(f flight) (string, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	box, err := p.box()
	if err != nil {
		return "", err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	out := base64.RawURLEncoding.EncodeToString(box.Seal(nonce, nonce, raw, nil))
	if len(out) > maxCookie {
		return "", errors.New("web: a sign-in needs more than a cookie holds")
	}
	return out, nil
}

func (p *provider) unseal(s string) (f flight, err error) {
	if len(s) > maxCookie {
		return f, errForged
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return f, errForged
	}
	box, err := p.box()
	if err != nil {
		return f, err
	}
	if len(raw) < box.NonceSize() {
		return f, errForged
	}
	raw, err = box.Open(nil, raw[:box.NonceSize()], raw[box.NonceSize():], nil)
	if err != nil || json.Unmarshal(raw, &f) != nil {
		return flight{}, errForged
	}
	return f, nil
}

func (p *provider) box() (cipher.AEAD, error) {
	block, err := aes.NewCipher(mac(p.key, "oidc cookie", ""))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
