package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

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

// oidcStart sends the browser to the provider. A foreign page that leads here
// starts nothing: it would make people sign in without having asked for it.
func (a *Adapter) oidcStart(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	v := a.visitor(r)
	if !a.starts.allow(neighbourhood(v.address)) {
		w.Header().Set("Retry-After", "60")
		a.recordRefusal(r.Context(), v, "", byOIDC, "too many attempts")
		a.refusalPage(w, http.StatusTooManyRequests, sayTooManyTries)
		return
	}
	address, keep, err := a.oidc.Begin(r.Context(), a.pageOrigin(r)+oidcCallback)
	if err != nil {
		a.refusalPage(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	f := flight{Keep: keep, Expires: a.now().Add(oidcLife).UTC()}
	// Browsers send the header, so that a link that leads here from elsewhere makes no
	// session that its cookie alone opens.
	f.Page = r.URL.Query().Has("page") || r.Header.Get("Sec-Fetch-Site") != ""
	if id := strings.TrimPrefix(r.URL.Query().Get("t"), scheme+":"); validID(id) {
		f.Thread = id
	}
	sealed, err := a.seal(f)
	if err != nil {
		a.log.ErrorContext(r.Context(), "a sign-in could not be begun", "error", err)
		a.refusalPage(w, http.StatusServiceUnavailable, saySignInBroken)
		return
	}
	http.SetCookie(w, a.cookie(r, flightCookie, sealed, oidcLife, http.SameSiteLaxMode)) // Lax: the provider sends the browser back
	http.Redirect(w, r, address, http.StatusSeeOther)                                    //nolint:gosec // where the provider that the configuration names has its page
}

// oidcFinish takes the browser back from the provider.
func (a *Adapter) oidcFinish(w http.ResponseWriter, r *http.Request) {
	v := a.visitor(r)
	http.SetCookie(w, a.cookie(r, flightCookie, "", -time.Second, http.SameSiteLaxMode))
	var f flight
	c, err := r.Cookie(a.cookieName(r, flightCookie))
	if err == nil {
		f, err = a.unseal(c.Value)
	}
	if err != nil || !a.now().Before(f.Expires) {
		a.recordRefusal(r.Context(), v, "", byOIDC, "the answer of the identity provider was for no sign-in that this browser had begun")
		a.refusalPage(w, http.StatusForbidden, sayNoSignInHere)
		return
	}
	// Whatever comes of it, it is used now.
	err = a.db.Update(r.Context(), func(tx store.Tx) error {
		key := oidcKey(c.Value)
		if _, used := tx.Get(key); used {
			return errUsed
		}
		store.Save(tx, key, codeRow{Expires: f.Expires})
		return nil
	})
	if err != nil {
		a.failSignIn(w, r, v, "", err)
		return
	}
	subject, said, groups, expires, unknown := a.oidc.Finish(r.Context(), f.Keep, r.URL.Query())
	if unknown != nil && said == "" {
		a.recordRefusal(r.Context(), v, "", byOIDC, unknown.Error())
		a.refusalPage(w, http.StatusForbidden, unknown.Error())
		return
	}
	now := a.now()
	name, err := CleanName(said)
	if err != nil {
		a.failSignIn(w, r, v, "", nameError(sayHiddenName))
		return
	}
	if !expires.IsZero() && now.After(expires.Add(time.Minute)) {
		a.failSignIn(w, r, v, name, errExpired)
		return
	}
	if err := a.welcome(name, groups); err != nil {
		if unknown != nil && errors.Is(err, errUnknown) {
			err = nameError(unknown.Error())
		}
		a.failSignIn(w, r, v, name, err)
		return
	}
	var token, key string
	var page []byte
	if f.Page {
		key = secret()
		page = pageDigest(key)
	}
	err = a.db.Update(r.Context(), func(tx store.Tx) error {
		a.tidy(tx, v, now)
		if err := a.identify(tx, accountOf(subject), said, name, now); err != nil {
			return err
		}
		vouch(tx, name, groups, now)
		token, _ = a.begin(tx, v, sessionRow{User: name, Groups: groups, How: byOIDC, Page: page}, now)
		return nil
	})
	if err != nil {
		a.failSignIn(w, r, v, name, err)
		return
	}
	a.log.InfoContext(r.Context(), "a person signed in", "user", userID(name), "how", byOIDC)
	http.SetCookie(w, a.cookie(r, sessionCookie, token, a.absolute, http.SameSiteStrictMode))
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

// failSignIn tells why the callback lets nobody in.
func (a *Adapter) failSignIn(w http.ResponseWriter, r *http.Request, v visitor, name string, err error) {
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
			a.log.ErrorContext(r.Context(), "the console's store failed", "error", err)
			a.refusalPage(w, http.StatusServiceUnavailable, sayNoStore)
		}
		return
	}
	if !validName(name) {
		name = ""
	}
	a.recordRefusal(r.Context(), v, name, byOIDC, why)
	a.refusalPage(w, status, sentence)
}

// refusalPage says why somebody isn't signed in, with the way back.
func (a *Adapter) refusalPage(w http.ResponseWriter, status int, sentence string) {
	a.page(w, status, sayNotSignedIn, sentence, "/", sayToSignIn)
}

// page is a page with one sentence and a link.
func (a *Adapter) page(w http.ResponseWriter, status int, heading, sentence, to, link string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	parts := []string{"{{heading}}", heading, "{{says}}", sentence, "{{to}}", to, "{{link}}", link}
	for i := 1; i < len(parts); i += 2 {
		parts[i] = html.EscapeString(parts[i])
	}
	_, _ = strings.NewReplacer(parts...).WriteString(w, string(a.refused)) // who has gone needs no answer
}

// seal encrypts a flight for the browser to keep.
func (a *Adapter) seal(f flight) (string, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	box, err := a.box()
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

func (a *Adapter) unseal(s string) (f flight, err error) {
	if len(s) > maxCookie {
		return f, errForged
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return f, errForged
	}
	box, err := a.box()
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

func (a *Adapter) box() (cipher.AEAD, error) {
	block, err := aes.NewCipher(mac(a.key, "oidc cookie", ""))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
