package console

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"countersign/adapters/chat/visible"
	"countersign/console/spelling"
	"countersign/store"
)

const (
	// nameKept is for how long after a sign-in a name belongs to the account that had it.
	nameKept = 30 * 24 * time.Hour
	// renameAfter is how long after the end of the last session somebody whom the provider
	// has renamed is let in under the new name: votes under the old one have expired.
	renameAfter = 24 * time.Hour
)

// nameError is a refusal of a name. Its text is one sentence for the person.
type nameError string

func (e nameError) Error() string { return string(e) }

// account is who an identity provider says somebody is. A provider never gives a
// subject to another account, which it may do with a name.
type account struct{ Issuer, Subject string }

func accountOf(subject string) account {
	issuer, sub, _ := strings.Cut(subject, " ")
	return account{issuer, sub}
}

// nameRow says whose a name is, by its look; and what an account is called.
type nameRow struct {
	Name    string    `json:"name"`
	Said    string    `json:"said,omitempty"` // as the provider spells it
	Issuer  string    `json:"issuer"`
	Subject string    `json:"subject"`
	Seen    time.Time `json:"seen"` // the last sign-in
}

func nameKey(look string) []byte { return store.Key(scheme, "name", digest("name", look)) }
func accountKey(who account) []byte {
	return store.Key(scheme, "account", digest("account", who.Issuer+" "+who.Subject))
}

// names gives each account of the identity provider one name, and each name to one account.
type names struct {
	names    func() []string // of the configuration
	absolute time.Duration
}

// identify tells by which name an account is known here, in the transaction that lets
// it in. said is what the provider calls it, name the clean form of that. One account
// has one name at a time and one name belongs to one account, so that nobody votes twice.
func (n *names) identify(tx store.Tx, who account, said, name string, now time.Time) error {
	look := spelling.Skeleton(name)
	imitates := nameError(fmt.Sprintf(sayNameLooksLike, visible.Code(said)))
	for _, known := range n.names() {
		// A name that only cleaning makes equal is not the one in the configuration.
		if known, err := spelling.Clean(known); err == nil && spelling.Skeleton(known) == look && (known != name || norm.NFC.String(said) != name) {
			return imitates
		}
	}
	row, ok := store.Load[nameRow](tx, nameKey(look))
	// Accounts of a provider that is not in use any more have no names.
	if ok && row.Issuer == who.Issuer && row.Subject != who.Subject && now.Sub(row.Seen) < nameKept {
		return imitates
	}
	before, ok := store.Load[nameRow](tx, accountKey(who))
	if ok && before.Name != name {
		if now.Sub(before.Seen) < n.absolute+renameAfter {
			return nameError(fmt.Sprintf(sayNameChanged, before.Name, name))
		}
		if old, ok := store.Load[nameRow](tx, nameKey(spelling.Skeleton(before.Name))); ok && old.Subject == who.Subject {
			tx.Delete(nameKey(spelling.Skeleton(before.Name)))
		}
	}
	row = nameRow{Name: name, Said: said, Issuer: who.Issuer, Subject: who.Subject, Seen: now.UTC()}
	store.Save(tx, nameKey(look), row)
	store.Save(tx, accountKey(who), row)
	return nil
}

// tidyNames forgets accounts that have not signed in for long.
func tidyNames(tx store.Tx, now time.Time) {
	for _, kind := range []string{"name", "account"} {
		for k, row := range decoded[nameRow](tx.Scan(store.Prefix(scheme, kind))) {
			if now.Sub(row.Seen) >= nameKept {
				tx.Delete(k)
			}
		}
	}
}
