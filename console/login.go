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
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

// redeem trades a code for a session and its token: that of a link, or that which a passkey has
// signed, with the device's response. page is the digest of the page's key,
// nil for a program. The name is known as soon as the
// code's signature is good.
func (a *Adapter) redeem(ctx context.Context, v visitor, code string, response json.RawMessage, page []byte) (row sessionRow, token string, err error) {
	now := a.now()
	user, nonce, expires, err := readCode(a.key, code, now)
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
		if err := a.passkeys.Signed(ctx, code, response); err != nil {
			return row, "", err
		}
	} else {
		if row.User, err = CleanName(row.User); err != nil {
			return row, "", errUnknown
		}
		if err := a.welcome(row.User, nil); err != nil {
			return row, "", err
		}
	}
	err = a.db.Update(ctx, func(tx store.Tx) error {
		a.tidy(tx, v, now)
		key := codeKey(nonce)
		if _, used := tx.Get(key); used {
			return errUsed
		}
		if response != nil {
			k, err := a.passkeys.SignedIn(tx, code, response)
			if err != nil {
				return err
			}
			row.User, row.Passkey, row.Expires = k.Owner, k.ID, now.Add(keyLife).UTC()
			if err := a.welcome(row.User, nil); err != nil {
				return err
			}
		}
		store.Save(tx, key, codeRow{Expires: expires.UTC()})
		token, row = a.begin(tx, v, row, now)
		return nil
	})
	return row, token, err
}

// welcome tells whether somebody who has proved a name may sign in.
func (a *Adapter) welcome(name string, groups []string) error {
	if !validName(name) {
		return errUnknown
	}
	if !a.tries.allow(name) {
		return errTooMany
	}
	if !a.users(name, slices.Clone(groups)).has(mayRead) {
		return errUnknown
	}
	return nil
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
