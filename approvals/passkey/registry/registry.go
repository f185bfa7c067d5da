// Package registry keeps the passkeys that people have registered, and asks for and takes the
// signatures of votes. Whether a signature is right is passkey's matter.
package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/register"
	"countersign/store"
)

const (
	// askLife is how long a device may take to sign what it was asked for.
	askLife = 5 * time.Minute
	// pageLife is how long the signer's page may be read.
	pageLife = 10 * time.Minute
	// clockSlack is how far the clocks of two replicas may be apart.
	clockSlack = time.Minute
	maxKeys    = 20       // of one person
	maxAnswer  = 64 << 10 // bytes of a browser's answer
	maxName    = 100      // bytes of a key's name
)

// Errors of the book, each one sentence for the person.
var (
	ErrNoKey   = errors.New("you have no passkey here yet; add one under Passkeys, where an approver confirms it, or ask an operator for a link")
	ErrNoAsk   = errors.New("this request to sign has expired, or was already answered; press the button again")
	ErrNotHere = errors.New("this passkey isn't registered here, or was removed")
	ErrNotYet  = errors.New("nobody has confirmed this passkey yet; somebody else who has one can do that")
	ErrOthers  = errors.New("this passkey belongs to somebody else")
	ErrMany    = fmt.Errorf("you have %d passkeys; remove one first", maxKeys)
	ErrTwice   = errors.New("this passkey is registered already")
	ErrUnnamed = fmt.Errorf("a passkey needs a name of at most %d bytes, such as the device it is on", maxName)
	ErrCopied  = errors.New("this passkey's counter went back, so there may be a copy of it; remove it and register another one")
	ErrLong    = errors.New("the browser's answer is too long")
)

// Book keeps the registered keys. It has no state: every method works in the caller's transaction.
//
// Keys:
//
//	("passkey", id)                   -> Key as JSON
//	("passkey-signer", site, ..., id) -> Key as JSON, of the signer's page
//	("passkey-ask", nonce)            -> asked as JSON, until it is answered
//	("passkey-new", owner)            -> fresh as JSON, until the key is there
type Book struct {
	Site passkey.Site
}

func keyKey(id string) []byte      { return store.Key("passkey", id) }
func askKey(nonce string) []byte   { return store.Key("passkey-ask", nonce) }
func freshKey(owner string) []byte { return store.Key("passkey-new", owner) }

// pageKey is a key for the signer's page as the signer knows it. It counts there only.
func pageKey(s passkey.Site, id string) []byte {
	return store.Key("passkey-signer", s.ID, s.Origin, id)
}

// at returns a key for a site: of this book for its own, of the signer's for the signer's page.
func (b Book) at(tx store.Tx, s passkey.Site, id string) (register.Key, []byte, bool) {
	row := keyKey(id)
	if s != b.Site {
		row = pageKey(s, id)
	}
	k, ok := store.Load[register.Key](tx, row)
	return k, row, ok
}

// Page is what the signer answers when somebody is to sign at its own page.
type Page struct {
	Link      string
	Statement []byte // which the signer wrote, and shows there
	Site      passkey.Site
	Keys      map[string][]byte // public parts of those of the statement's owner, by their ids
}

// asked is what a device was asked to sign.
type asked struct {
	Statement []byte          `json:"statement"`
	Site      passkey.Site    `json:"site"` // whose page asks for it
	Shown     json.RawMessage `json:"shown,omitempty"`
	Expires   time.Time       `json:"expires"`
}

// fresh is the challenge of a registration.
type fresh struct {
	Challenge []byte    `json:"challenge"`
	Expires   time.Time `json:"expires"`
}

// Get returns a key.
func (Book) Get(tx store.Tx, id string) (register.Key, bool) {
	return store.Load[register.Key](tx, keyKey(id))
}

// All returns every key, by owner and age.
func (Book) All(tx store.Tx) []register.Key {
	var out []register.Key
	from, to := store.Prefix("passkey")
	for k, raw := range tx.Scan(from, to) {
		var key register.Key
		store.Decode(k, raw, &key)
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b register.Key) int {
		if c := strings.Compare(a.Owner, b.Owner); c != 0 {
			return c
		}
		return a.Added.Compare(b.Added)
	})
	return out
}

// Of returns the keys of one person.
func (b Book) Of(tx store.Tx, owner string) []register.Key {
	return slices.DeleteFunc(b.All(tx), func(k register.Key) bool { return k.Owner != owner })
}

// Ask notes that the owner's device is asked to sign a statement, whose version, nonce and time it
// fills in. shown is what they are shown, as JSON.
func (b Book) Ask(tx store.Tx, s passkey.Statement, shown []byte, now time.Time) (chat.Signing, error) {
	var o chat.Signing
	keys := b.Of(tx, s.Owner)
	for _, k := range keys {
		if k.Confirmed() {
			o.Keys = append(o.Keys, chat.SigningKey{ID: k.ID, Transports: k.Transports})
		}
	}
	switch {
	case len(keys) == 0:
		return chat.Signing{}, ErrNoKey
	case len(o.Keys) == 0:
		return chat.Signing{}, ErrNotYet
	}
	b.tidy(tx, now)
	s.Version, s.Nonce, s.At = 1, rand.Text(), now.UTC()
	raw := s.Encode()
	store.Save(tx, askKey(s.Nonce), asked{Statement: raw, Site: b.Site, Shown: shown, Expires: now.Add(askLife).UTC()})
	o.Nonce, o.Challenge, o.Site = s.Nonce, base64.RawURLEncoding.EncodeToString(passkey.Challenge(raw)), b.Site.ID
	return o, nil
}

// AskAt is [Book.Ask] where the signer's page asks. What it says of the owner's keys replaces what it said before.
func (b Book) AskAt(tx store.Tx, p Page, shown []byte, now time.Time) (chat.Signing, error) {
	s, err := passkey.Decode(p.Statement)
	if err != nil {
		return chat.Signing{}, err
	}
	b.tidy(tx, now)
	from, to := store.Prefix("passkey-signer", p.Site.ID, p.Site.Origin)
	had := map[string]register.Key{}
	for k, raw := range tx.Scan(from, to) {
		var key register.Key
		if store.Decode(k, raw, &key); key.Owner == s.Owner {
			had[key.ID] = key
		}
	}
	for id := range had {
		tx.Delete(pageKey(p.Site, id))
	}
	for id, public := range p.Keys {
		k := had[id]
		if string(k.Public) != string(public) {
			k = register.Key{ID: id, Owner: s.Owner, Public: public, Added: now.UTC(), By: "the signer"}
		}
		store.Save(tx, pageKey(p.Site, id), k)
	}
	store.Save(tx, askKey(s.Nonce), asked{Statement: p.Statement, Site: p.Site, Shown: shown, Expires: now.Add(pageLife).UTC()})
	return chat.Signing{Nonce: s.Nonce, Link: p.Link}, nil
}

// tidy forgets what nobody signed.
func (Book) tidy(tx store.Tx, now time.Time) {
	from, to := store.Prefix("passkey-ask")
	var old [][]byte
	for k, raw := range tx.Scan(from, to) {
		var a asked
		store.Decode(k, raw, &a)
		if !now.Before(a.Expires) {
			old = append(old, slices.Clone(k))
		}
	}
	for _, k := range old {
		tx.Delete(k)
	}
}

// Answer checks what the owner's device has signed, once: what was asked for is forgotten, whatever
// comes of it. The caller checks that the statement is about what is decided.
func (b Book) Answer(tx store.Tx, owner, nonce string, response []byte, now time.Time) (passkey.Proof, passkey.Statement, error) {
	a, ok := store.Load[asked](tx, askKey(nonce))
	if !ok || nonce == "" {
		return passkey.Proof{}, passkey.Statement{}, ErrNoAsk
	}
	tx.Delete(askKey(nonce))
	s, err := passkey.Decode(a.Statement)
	switch {
	case err != nil:
		return passkey.Proof{}, passkey.Statement{}, err
	case !now.Before(a.Expires) || a.Site == b.Site && s.At.After(now.Add(clockSlack)):
		return passkey.Proof{}, passkey.Statement{}, ErrNoAsk
	case len(response) > maxAnswer:
		return passkey.Proof{}, passkey.Statement{}, ErrLong
	case s.Owner != owner:
		return passkey.Proof{}, passkey.Statement{}, passkey.ErrOtherAsk
	}
	k, row, ok := b.at(tx, a.Site, passkey.KeyOf(response))
	switch {
	case !ok:
		return passkey.Proof{}, passkey.Statement{}, ErrNotHere
	case k.Owner != owner:
		return passkey.Proof{}, passkey.Statement{}, ErrOthers
	case !k.Confirmed():
		return passkey.Proof{}, passkey.Statement{}, ErrNotYet
	}
	p := passkey.Proof{
		Statement: a.Statement, Response: plainAnswer(response), Shown: a.Shown, Site: a.Site,
		KeyID: k.ID, Public: k.Public, KeyOwner: k.Owner, KeyBy: k.By, KeyAdded: k.Added,
	}
	count, err := p.Check()
	if err == nil {
		err = used(tx, row, k, count, now)
	}
	if err != nil {
		return passkey.Proof{}, passkey.Statement{}, err
	}
	return p, s, nil
}

// used notes that a key was used, whose counter is count then.
func used(tx store.Tx, row []byte, k register.Key, count uint32, now time.Time) error {
	if count <= k.Count && (count != 0 || k.Count != 0) {
		return ErrCopied
	}
	k.Count, k.Used = count, now.UTC()
	store.Save(tx, row, k)
	return nil
}

// SignInChallenge is what the device is given to sign somebody in, for a text that is good once. Its
// prefix keeps it apart from every statement.
func SignInChallenge(once string) []byte {
	sum := sha256.Sum256([]byte("countersign sign-in v1\x00" + once))
	return sum[:]
}

// Signed returns the confirmed key with which a device has signed what [SignInChallenge] gives
// for once, and the key's counter. It only reads.
func (b Book) Signed(tx store.Tx, once string, response []byte) (k register.Key, count uint32, err error) {
	if len(response) > maxAnswer {
		return k, 0, ErrLong
	}
	k, ok := b.Get(tx, passkey.KeyOf(response))
	switch {
	case !ok:
		return k, 0, ErrNotHere
	case !k.Confirmed():
		return k, 0, ErrNotYet
	}
	count, err = passkey.Verify(b.Site, SignInChallenge(once), k.ID, k.Public, response, true)
	return k, count, err
}

// SignIn is Signed, and notes that the key was used. That once is good a single time is the caller's matter.
func (b Book) SignIn(tx store.Tx, once string, response []byte, now time.Time) (register.Key, error) {
	k, count, err := b.Signed(tx, once, response)
	if err == nil {
		err = used(tx, keyKey(k.ID), k, count, now)
	}
	return k, err
}

// Holds reports why a proof that counted once doesn't any more, nil if it does: the key must be
// registered still, as it was, for the page that asked.
func (b Book) Holds(tx store.Tx, p passkey.Proof) error {
	k, _, ok := b.at(tx, p.Site, p.KeyID)
	switch {
	case !ok:
		return ErrNotHere
	case k.Owner != p.KeyOwner || string(k.Public) != string(p.Public) || !k.Confirmed():
		return ErrOthers
	}
	_, err := p.Check()
	return err
}

// Begin starts the registration of a key of a person, and returns the challenge.
func (b Book) Begin(tx store.Tx, owner string, now time.Time) []byte {
	f := fresh{Challenge: []byte(rand.Text()), Expires: now.Add(askLife).UTC()}
	store.Save(tx, freshKey(owner), f)
	return f.Challenge
}

// Add registers a key, which counts once it is confirmed ([Book.Confirm], [Book.Trust]).
func (b Book) Add(tx store.Tx, owner, name string, response []byte, now time.Time) (register.Key, error) {
	f, ok := store.Load[fresh](tx, freshKey(owner))
	if !ok || !now.Before(f.Expires) {
		return register.Key{}, ErrNoAsk
	}
	tx.Delete(freshKey(owner))
	if name = strings.TrimSpace(name); name == "" || len(name) > maxName {
		return register.Key{}, ErrUnnamed
	}
	if len(response) > maxAnswer {
		return register.Key{}, ErrLong
	}
	k, err := register.Read(b.Site, f.Challenge, response)
	if err != nil {
		return register.Key{}, err
	}
	if _, taken := b.Get(tx, k.ID); taken {
		return register.Key{}, ErrTwice
	}
	if len(b.Of(tx, owner)) >= maxKeys {
		return register.Key{}, ErrMany
	}
	k.Owner, k.Name, k.Added = owner, name, now.UTC()
	store.Save(tx, keyKey(k.ID), k)
	return k, nil
}

// Trust notes that something else than a signature has confirmed a key, such as an operator's link.
func (Book) Trust(tx store.Tx, k register.Key, by string) register.Key {
	k.By = by
	store.Save(tx, keyKey(k.ID), k)
	return k
}

// Confirm notes that somebody else has confirmed a key by a signature over it.
func (b Book) Confirm(tx store.Tx, by, nonce string, response []byte, now time.Time) (register.Key, error) {
	_, s, err := b.Answer(tx, by, nonce, response, now)
	if err != nil {
		return register.Key{}, err
	}
	k, ok := b.Get(tx, s.Request)
	switch {
	case s.For != passkey.ForKey || !ok || k.Digest() != s.Digest:
		return register.Key{}, passkey.ErrOtherAsk
	case k.Owner == by:
		return register.Key{}, ErrOthers
	case k.Confirmed():
		return k, nil
	}
	k.By = by
	store.Save(tx, keyKey(k.ID), k)
	return k, nil
}

// Remove deletes a key. What it has approved and what hasn't run yet doesn't run.
func (b Book) Remove(tx store.Tx, id string) (register.Key, bool) {
	k, ok := b.Get(tx, id)
	if ok {
		tx.Delete(keyKey(id))
	}
	return k, ok
}

// plainAnswer is a browser's answer with nothing but what is checked.
func plainAnswer(response []byte) json.RawMessage {
	var r struct {
		ID       string `json:"id"`
		RawID    string `json:"rawId"`
		Type     string `json:"type"`
		Response struct {
			Client    string `json:"clientDataJSON"`
			Data      string `json:"authenticatorData"`
			Signature string `json:"signature"`
			User      string `json:"userHandle,omitempty"`
		} `json:"response"`
	}
	if json.Unmarshal(response, &r) != nil {
		return json.RawMessage("{}") // which holds nothing
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return json.RawMessage("{}")
	}
	return raw
}
