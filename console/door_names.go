package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"countersign/adapters/chat/visible"
	"countersign/store"
)

const (
	// nameKept is for how long after a sign-in a name belongs to the account that had it.
	nameKept = 30 * 24 * time.Hour
	// renameAfter is how long after the end of the last session somebody whom the provider
	// has renamed is let in under the new name: votes under the old one have expired.
	renameAfter = 24 * time.Hour
)

var errHiddenName = errors.New("web: the name has characters that cannot be seen")

// nameError is a refusal of a name. Its text is one sentence for the person.
type nameError string

func (e nameError) Error() string { return string(e) }

// CleanName gives the one form of a person's name: NFKC, without spaces around it and
// with single ones within. It refuses a name with characters that cannot be seen.
func CleanName(name string) (string, error) {
	if !utf8.ValidString(name) {
		return "", errHiddenName
	}
	name = strings.Join(strings.Fields(norm.NFKC.String(name)), " ")
	if strings.ContainsFunc(name, func(r rune) bool { return visible.Hidden(r) || !unicode.IsPrint(r) }) {
		return "", errHiddenName
	}
	return name, nil
}

// lookalikes are characters that readers take for a Latin letter, in lower case.
var lookalikes = strings.NewReplacer(
	"а", "a", "в", "b", "с", "c", "ԁ", "d", "е", "e", "һ", "h", "н", "h", "і", "i", "ј", "j", "к", "k", "ӏ", "l", "м", "m", "о", "o",
	"р", "p", "ԛ", "q", "ѕ", "s", "т", "t", "ս", "u", "ѵ", "v", "ԝ", "w", "х", "x", "у", "y", "ү", "y",
	"α", "a", "β", "b", "ε", "e", "ι", "i", "κ", "k", "μ", "m", "ν", "v", "η", "n", "ο", "o", "ρ", "p", "τ", "t", "υ", "u", "χ", "x", "γ", "y", "ζ", "z", "ω", "w",
	"օ", "o", "հ", "h", "ո", "n", "ց", "g", "ı", "i", "ɑ", "a", "ɡ", "g", "ɩ", "i", "ǀ", "l",
	"0", "o", "1", "l", "|", "l",
)

// Skeleton is the same for clean names that a reader takes for each other.
func Skeleton(name string) string { return lookalikes.Replace(strings.ToLower(name)) }

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
	look := Skeleton(name)
	imitates := nameError(fmt.Sprintf(sayNameLooksLike, visible.Code(said)))
	for _, known := range n.names() {
		// A name that only cleaning makes equal is not the one in the configuration.
		if known, err := CleanName(known); err == nil && Skeleton(known) == look && (known != name || norm.NFC.String(said) != name) {
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
		if old, ok := store.Load[nameRow](tx, nameKey(Skeleton(before.Name))); ok && old.Subject == who.Subject {
			tx.Delete(nameKey(Skeleton(before.Name)))
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

// DistinctNames checks that no two names can be taken for each other, and gives their
// clean forms, each once. Its errors name the two and say what to do.
func DistinctNames(names []string) ([]string, error) {
	by := map[string]string{}
	var out []string
	for _, said := range names {
		name, err := CleanName(said)
		switch other, ok := by[Skeleton(name)]; {
		case err != nil:
			return nil, fmt.Errorf("%q has characters that cannot be seen; type the name again", visible.Code(said))
		case ok && other != name:
			return nil, fmt.Errorf("%q looks like %q; write one person's name the same everywhere, and give two people names that differ", name, other)
		}
		by[Skeleton(name)] = name
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}
