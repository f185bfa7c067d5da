package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"countersign/console/spelling"
	"countersign/store"
)

const (
	keySize   = 32
	nonceSize = 16
	codeLife  = 10 * time.Minute
	maxName   = 64 // bytes of a person's name
)

var (
	errForged  = errors.New("web: the code was not made with this key")
	errExpired = errors.New("web: the code has expired")
	errUsed    = errors.New("web: the code was used before")
	errUnknown = errors.New("web: this name may not sign in")
	errTooMany = errors.New("web: this name signs in too often")
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

// inviteMark ends a person's name in a code that lets them register a passkey, too. No name has it.
const inviteMark = "\x00passkey"

// PasskeyCode is [LoginCode], and its session may also register one passkey that nobody else has
// to confirm.
func PasskeyCode(key []byte, user string, now time.Time) string {
	return LoginCode(key, user+inviteMark, now)
}

// keyMark is in place of a person in a code that a passkey signs to sign its owner in. No name has it.
const keyMark = "\x00sign-in"

// mac signs text for one purpose.
func mac(key []byte, purpose, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("countersign web " + purpose + "\x00" + text))
	return h.Sum(nil)
}

// readCode checks a code's signature and time, not whether it was used. user is
// known also when the code has expired.
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
		return string(body[nonceSize+8:]), nil, time.Time{}, errExpired
	}
	return string(body[nonceSize+8:]), body[:nonceSize], expires, nil
}

func validName(name string) bool {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// codes trades sign-in codes for sessions: those of links, and those that a passkey has signed.
type codes struct {
	*entry
	sessions *sessions
}

// redeem trades a code for a session and its token: that of a link, or that which a passkey has
// signed, with the device's response. page is the digest of the page's key,
// nil for a program. The name is known as soon as the
// code's signature is good.
func (c *codes) redeem(ctx context.Context, v visitor, code string, response json.RawMessage, page []byte) (row sessionRow, token string, err error) {
	now := c.now()
	user, nonce, expires, err := readCode(c.key, code, now)
	row = sessionRow{How: byLink, Page: page}
	row.User, row.Invited = strings.CutSuffix(user, inviteMark)
	if err != nil {
		return row, "", err
	}
	if response != nil {
		row.How, row.User = byPasskey, ""
		if user != keyMark {
			return row, "", errForged
		}
		if err := c.sessions.keys.Signed(ctx, code, response); err != nil {
			return row, "", err
		}
	} else {
		if row.User, err = spelling.Clean(row.User); err != nil {
			return row, "", errUnknown
		}
		if err := c.sessions.welcome(row.User, nil); err != nil {
			return row, "", err
		}
	}
	err = c.db.Update(ctx, func(tx store.Tx) error {
		c.sessions.tidy(tx, v, now)
		key := codeKey(nonce)
		if _, used := tx.Get(key); used {
			return errUsed
		}
		if response != nil {
			k, err := c.sessions.keys.SignedIn(tx, code, response)
			if err != nil {
				return err
			}
			row.User, row.Passkey, row.Expires = k.Owner, k.ID, now.Add(keyLife).UTC()
			if err := c.sessions.welcome(row.User, nil); err != nil {
				return err
			}
		}
		store.Save(tx, key, codeRow{Expires: expires.UTC()})
		token, row = c.sessions.begin(tx, v, row, now)
		return nil
	})
	return row, token, err
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// beginLogin gives what a passkey signs to sign its owner in.
func (c *codes) beginLogin(w http.ResponseWriter, r *http.Request) error {
	if err := c.guard.mayPost(r, nil); err != nil {
		return err
	}
	code := LoginCode(c.key, keyMark, c.now())
	site, challenge := c.sessions.keys.SignInSite(code)
	return answer(w, http.StatusOK, map[string]any{"code": code, "site": site, "challenge": base64.RawURLEncoding.EncodeToString(challenge)})
}

func (c *codes) login(w http.ResponseWriter, r *http.Request) error {
	if err := c.guard.mayPost(r, nil); err != nil {
		return err
	}
	v := c.visitors.visitor(r)
	var body struct {
		Code string `json:"code"`
		// Page is a secret that the page makes for itself. The session is then open
		// only to requests that bring it.
		Page string `json:"page"`
		// Response is what a passkey's device has answered to the code.
		Response json.RawMessage `json:"response"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	if c.sessions.keys == nil {
		body.Response = nil
	}
	// Only those who have no right code are counted: whoever guesses must not lock out
	// everybody behind the same address.
	if _, _, _, err := readCode(c.key, body.Code, c.now()); err != nil && !c.visitors.mayTry(v) {
		c.visitors.recordRefusal(r.Context(), v, "", byLink, "too many attempts")
		return refusePace(time.Minute, sayTooManyTries)
	}
	var page []byte
	if body.Page != "" {
		if len(body.Page) < leastPageKey || len(body.Page) > mostPageKey {
			return refuse(http.StatusBadRequest, sayBadJSON)
		}
		page = pageDigest(body.Page)
	}
	row, token, err := c.redeem(r.Context(), v, body.Code, body.Response, page)
	if err == nil {
		c.log.InfoContext(r.Context(), "a person signed in", "user", userID(row.User), "how", row.How)
		http.SetCookie(w, c.guard.cookie(r, sessionCookie, token, row.Expires.Sub(row.Begun), http.SameSiteStrictMode))
		return done(w, nil)
	}
	status, wait := http.StatusForbidden, time.Duration(0)
	var sentence, why string
	said, isKey := errors.AsType[RefusalError](err)
	switch {
	case isKey && !c.visitors.mayTry(v):
		status, wait, sentence, why = http.StatusTooManyRequests, time.Minute, sayTooManyTries, "too many attempts"
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
		status, wait, sentence, why = http.StatusTooManyRequests, time.Minute, sayTooManyTries, "too many attempts for this name"
	default:
		return err
	}
	if !validName(row.User) {
		row.User = ""
	}
	c.visitors.recordRefusal(r.Context(), v, row.User, row.How, why)
	return refusal{status, sentence, wait}
}
