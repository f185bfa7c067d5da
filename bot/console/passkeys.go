package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals/audit"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/register"
	"countersign/approvals/passkey/registry"
	"countersign/config/rules"
	"countersign/console"
	"countersign/store"
)

// The lines of the audit record about passkeys.
const (
	passkeyAdded     = "passkey added"
	passkeyConfirmed = "passkey confirmed"
	passkeyRemoved   = "passkey removed"
)

// byOperator is who has confirmed a passkey that an operator's link let somebody register.
const byOperator = "the operator's link"

// passkeys is the book of the passkeys as the console sees it. A person is "web:NAME" in it.
type passkeys struct {
	db    store.DB
	book  registry.Book
	trail audit.Trail
	rules func() *rules.Rules
	now   func() time.Time
}

func owner(user string) string { return "web:" + user }

// shown is a key as its owner sees it, with its line for the signer if there is one.
func shown(k register.Key, signer bool) console.Passkey {
	p := console.Passkey{ID: k.ID, Owner: strings.TrimPrefix(k.Owner, "web:"), Name: k.Name, Added: k.Added, By: strings.TrimPrefix(k.By, "web:"), Used: k.Used, Print: k.Digest()[:passkey.Digits]}
	if signer {
		p.Signer = fmt.Sprintf("- {id: %q, public: %q}", k.ID, base64.RawURLEncoding.EncodeToString(k.Public))
	}
	return p
}

// confirms reports whether a person may confirm the passkeys of others: they approve somewhere,
// and have one that was confirmed.
func (p passkeys) confirms(tx store.Tx, user string, groups []string) bool {
	who, r := chat.User{ID: chat.UserID(owner(user))}, p.rules()
	approver := false
	for _, t := range r.File.Targets {
		approver = approver || r.Policy.Eligible(t.Approvers, who, groups)
	}
	for _, k := range p.book.Of(tx, owner(user)) {
		if k.Confirmed() && approver {
			return true
		}
	}
	return false
}

// Passkeys implements console.Passkeys.
func (p passkeys) Passkeys(ctx context.Context, user string, groups []string) (mine, waiting []console.Passkey, err error) {
	err = p.db.View(ctx, func(tx store.Tx) error {
		mine, waiting = nil, nil
		confirms := p.confirms(tx, user, groups)
		for _, k := range p.book.All(tx) {
			switch {
			case k.Owner == owner(user):
				mine = append(mine, shown(k, p.rules().File.Signer.URL != ""))
			case confirms && !k.Confirmed():
				waiting = append(waiting, shown(k, false))
			}
		}
		return nil
	})
	return mine, waiting, err
}

// BeginPasskey implements console.Passkeys.
func (p passkeys) BeginPasskey(ctx context.Context, user string) (console.NewPasskey, error) {
	out := console.NewPasskey{
		Site: p.book.Site.ID, User: user, Handle: base64.RawURLEncoding.EncodeToString([]byte(owner(user))), Algorithms: register.Algorithms(), Known: []string{},
	}
	err := p.db.Update(ctx, func(tx store.Tx) error {
		out.Challenge = base64.RawURLEncoding.EncodeToString(p.book.Begin(tx, owner(user), p.now()))
		out.Known = []string{}
		for _, k := range p.book.Of(tx, owner(user)) {
			out.Known = append(out.Known, k.ID)
		}
		return nil
	})
	return out, err
}

// refused is an error of the book as a sentence. It commits what the book did: an answer is good
// once, also when it is refused.
func refused(err error) error {
	s := err.Error()
	return console.RefusalError(strings.ToUpper(s[:1]) + s[1:] + ".")
}

// AddPasskey implements console.Passkeys.
func (p passkeys) AddPasskey(ctx context.Context, user, name string, response json.RawMessage, invited func(tx store.Tx) bool) (out console.Passkey, err error) {
	var why error
	err = p.db.Update(ctx, func(tx store.Tx) error {
		k, err := p.book.Add(tx, owner(user), name, response, p.now())
		if why = err; err != nil {
			return nil //nolint:nilerr // it is said below
		}
		note := "waits for a confirmation"
		if invited(tx) {
			k, note = p.book.Trust(tx, k, byOperator), "confirmed by the operator's link"
		}
		out = shown(k, false)
		p.audit(tx, passkeyAdded, user, k, note)
		return nil
	})
	if err == nil && why != nil {
		err = refused(why)
	}
	return out, err
}

func (p passkeys) audit(tx store.Tx, what, user string, k register.Key, note string) {
	p.trail.Append(tx, doorThread, eventOf(what, owner(user), k, note), p.now())
}

func eventOf(what, who string, k register.Key, note string) audit.Event {
	return audit.Event{What: what, User: who, Note: fmt.Sprintf("%s of %s (%s), %s; %s", k.Name, k.Owner, k.ID, k.Digest()[:passkey.Digits], note)}
}

// ForgetPasskeys removes those of a person who is forgotten: whoever has the name later is somebody else.
func ForgetPasskeys(tx store.Tx, who chat.UserID, now time.Time) {
	for _, k := range (registry.Book{}).Of(tx, string(who)) {
		registry.Book{}.Remove(tx, k.ID)
		k.Name = "a passkey"
		audit.Append(tx, doorThread, eventOf(passkeyRemoved, "", k, "by the operator, who had them forgotten"), now)
	}
}

const errNotConfirming = console.RefusalError("You can't confirm this. It needs an approver who has a passkey, and isn't whose it is.")

// AskPasskey implements console.Passkeys.
func (p passkeys) AskPasskey(ctx context.Context, user string, groups []string, id string) (out chat.Signing, err error) {
	err = p.db.Update(ctx, func(tx store.Tx) error {
		k, ok := p.book.Get(tx, id)
		if !ok || k.Confirmed() || k.Owner == owner(user) || !p.confirms(tx, user, groups) {
			return errNotConfirming
		}
		s := passkey.Statement{For: passkey.ForKey, Request: k.ID, Digest: k.Digest(), Voter: owner(user), Owner: owner(user)}
		var err error
		if out, err = p.book.Ask(tx, s, nil, p.now()); err != nil {
			return refused(err)
		}
		return nil
	})
	return out, err
}

// ConfirmPasskey implements console.Passkeys.
func (p passkeys) ConfirmPasskey(ctx context.Context, user string, groups []string, signed chat.Signed) (out console.Passkey, err error) {
	var why error
	err = p.db.Update(ctx, func(tx store.Tx) error {
		if why = errNotConfirming; !p.confirms(tx, user, groups) {
			return nil
		}
		k, err := p.book.Confirm(tx, owner(user), signed.Nonce, signed.Response, p.now())
		if why = nil; err != nil {
			why = refused(err)
			return nil
		}
		out = shown(k, false)
		p.audit(tx, passkeyConfirmed, user, k, "by their passkey")
		return nil
	})
	if err == nil {
		err = why
	}
	return out, err
}

// SignInSite implements console.Passkeys.
func (p passkeys) SignInSite(once string) (site string, challenge []byte) {
	return p.book.Site.ID, registry.SignInChallenge(once)
}

// Signed implements console.Passkeys.
func (p passkeys) Signed(ctx context.Context, once string, response json.RawMessage) error {
	return p.db.View(ctx, func(tx store.Tx) error {
		if _, _, err := p.book.Signed(tx, once, response); err != nil {
			return refused(err)
		}
		return nil
	})
}

// SignedIn implements console.Passkeys.
func (p passkeys) SignedIn(tx store.Tx, once string, response json.RawMessage) (console.Passkey, error) {
	k, err := p.book.SignIn(tx, once, response, p.now())
	if err != nil {
		return console.Passkey{}, refused(err)
	}
	return shown(k, false), nil
}

// Stands implements console.Passkeys.
func (p passkeys) Stands(tx store.Tx, user, id string) bool {
	k, ok := p.book.Get(tx, id)
	return ok && k.Owner == owner(user) && k.Confirmed()
}

// EndPasskey implements console.Passkeys.
func (p passkeys) EndPasskey(ctx context.Context, user, id string) error {
	return p.db.Update(ctx, func(tx store.Tx) error {
		if k, ok := p.book.Get(tx, id); !ok || k.Owner != owner(user) {
			return console.RefusalError("You have no such passkey. Reload the page.")
		}
		k, _ := p.book.Remove(tx, id)
		p.audit(tx, passkeyRemoved, user, k, "by its owner")
		return nil
	})
}
