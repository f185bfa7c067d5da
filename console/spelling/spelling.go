// Package spelling says when two names of people are one: in the one form that a name has, and to a reader.
//
// It knows no person and no account: whose a name is, the console's door says.
package spelling

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"countersign/adapters/chat/visible"
)

var errHiddenName = errors.New("web: the name has characters that cannot be seen")

// Clean gives the one form of a person's name: NFKC, without spaces around it and
// with single ones within. It refuses a name with characters that cannot be seen.
func Clean(name string) (string, error) {
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

// Distinct checks that no two names can be taken for each other, and gives their
// clean forms, each once. Its errors name the two and say what to do.
func Distinct(names []string) ([]string, error) {
	by := map[string]string{}
	var out []string
	for _, said := range names {
		name, err := Clean(said)
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
