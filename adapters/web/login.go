package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"countersign/store"
)

const (
	keySize     = 32
	nonceSize   = 16
	codeLife    = 10 * time.Minute
	sessionLife = 12 * time.Hour
	cookieName  = "countersign_session"
	maxName     = 64 // bytes of a person's name
)

var (
	errForged  = errors.New("web: the code was not made with this key")
	errExpired = errors.New("web: the code has expired")
	errUsed    = errors.New("web: the code was used before")
	errUnknown = errors.New("web: this name may not sign in")
)

// LoginCode makes a code with which user can sign in once, within ten minutes
// of now. It belongs into the fragment of a link, <origin>/#code=<code>, and
// should reach that person only: who has it is that person.
func LoginCode(key []byte, user string, now time.Time) string {
	body := make([]byte, nonceSize, nonceSize+8+len(user))
	_, _ = rand.Read(body) // never fails
	body = binary.BigEndian.AppendUint64(body, uint64(now.Add(codeLife).UnixMilli()))
	body = append(body, user...)
	enc := base64.RawURLEncoding
	return enc.EncodeToString(body) + "." + enc.EncodeToString(mac(key, "login code", string(body)))
}

// mac signs text for one purpose.
func mac(key []byte, purpose, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("countersign web " + purpose + "\x00" + text))
	return h.Sum(nil)
}

// readCode checks a code's signature and time, not whether it was used.
func readCode(key []byte, code string, now time.Time) (user string, nonce []byte, expires time.Time, err error) {
	head, tail, ok := strings.Cut(strings.TrimSpace(code), ".")
	if !ok || len(code) > 1024 {
		return "", nil, time.Time{}, errForged
	}
	enc := base64.RawURLEncoding.Strict()
	body, err := enc.DecodeString(head)
	if err != nil {
		return "", nil, time.Time{}, errForged
	}
	sum, err := enc.DecodeString(tail)
	if err != nil || !hmac.Equal(sum, mac(key, "login code", string(body))) || len(body) < nonceSize+8 {
		return "", nil, time.Time{}, errForged
	}
	ms := binary.BigEndian.Uint64(body[nonceSize:])
	expires = time.UnixMilli(int64(ms)) //nolint:gosec // signed by us
	// A code from too far ahead was made by a clock that is off; it would stay
	// good for as long as that clock was ahead.
	if !now.Before(expires) || expires.After(now.Add(2*codeLife)) {
		return "", nil, time.Time{}, errExpired
	}
	return string(body[nonceSize+8:]), body[:nonceSize], expires, nil
}

func validName(name string) bool {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// redeem trades a code for a session's token.
func (a *Adapter) redeem(ctx context.Context, code string) (user, token string, err error) {
	now := a.now()
	user, nonce, expires, err := readCode(a.key, code, now)
	if err != nil {
		return "", "", err
	}
	if !validName(user) || !a.users(user) {
		return "", "", errUnknown
	}
	token = secret()
	err = a.db.Update(ctx, func(tx store.Tx) error {
		sweep[codeRow](tx, "code", now, func(r codeRow) time.Time { return r.Expires })
		sweep[sessionRow](tx, "session", now, func(r sessionRow) time.Time { return r.Expires })
		key := codeKey(nonce)
		if _, used := tx.Get(key); used {
			return errUsed
		}
		store.Save(tx, key, codeRow{Expires: expires.UTC()})
		store.Save(tx, sessionKey(token), sessionRow{User: user, Expires: now.Add(sessionLife).UTC()})
		return nil
	})
	return user, token, err
}

// sweep deletes the rows of a kind that have expired. Each sign-in does it, so
// there are never more rows than sign-ins in the life of one.
func sweep[T any](tx store.Tx, kind string, now time.Time, expires func(T) time.Time) {
	from, to := store.Prefix(scheme, kind)
	for k, v := range tx.Scan(from, to) {
		var row T
		store.Decode(k, v, &row)
		if !now.Before(expires(row)) {
			tx.Delete(k)
		}
	}
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// session is who a request comes from.
type session struct {
	user  string
	token string
}

// csrf is the token that this session's page must send with each POST.
func (a *Adapter) csrf(s session) string {
	return base64.RawURLEncoding.EncodeToString(mac(a.key, "csrf", s.token))
}

// session finds the session of a request.
func (a *Adapter) session(ctx context.Context, r *http.Request) (session, bool, error) {
	c, err := r.Cookie(cookieName)
	if err != nil || c.Value == "" || len(c.Value) > 256 {
		return session{}, false, nil //nolint:nilerr // no cookie: not signed in
	}
	var row sessionRow
	var ok bool
	err = a.db.View(ctx, func(tx store.Tx) error {
		row, ok = store.Load[sessionRow](tx, sessionKey(c.Value))
		return nil
	})
	if err != nil {
		return session{}, false, err
	}
	if !ok || !a.now().Before(row.Expires) || !a.users(row.User) {
		return session{}, false, nil
	}
	return session{user: row.User, token: c.Value}, true, nil
}

func (a *Adapter) cookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure would keep the cookie from a page without TLS
		Name:     cookieName,
		Value:    value,
		Path:     "/",
		MaxAge:   int(age / time.Second),
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   strings.HasPrefix(a.pageOrigin(r), "https:"),
	}
}

// limiter counts sign-in attempts in windows of a minute.
type limiter struct {
	now func() time.Time

	mu    sync.Mutex
	start time.Time
	all   int
	by    map[string]int
}

const (
	attemptsEach = 10 // a minute from one address
	attemptsAll  = 60 // a minute from everywhere
)

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, by: map[string]int{}}
}

// allow counts one attempt from an address.
func (l *limiter) allow(addr string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if d := now.Sub(l.start); d >= time.Minute || d < 0 {
		l.start, l.all = now, 0
		clear(l.by)
	}
	if l.all >= attemptsAll || l.by[addr] >= attemptsEach {
		return false
	}
	l.all++
	l.by[addr]++
	return true
}
