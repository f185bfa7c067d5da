package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// maxName is the length of the longest name of a session or pane.
const maxName = 48

// sharedPane is the pane that every session has.
const sharedPane = "shared"

// prefix marks the names of managed sessions.
const prefix = "countersign-"

// names turns what models and people write into names of sessions.
type names struct {
	prefix string // "countersign-<agent>-"
}

func newNames(agent string) names {
	agent = slug(agent)
	if agent == "" {
		agent = "bot"
	}
	if len(agent) > 16 {
		agent = strings.TrimRight(agent[:16], "-")
	}
	return names{prefix + agent + "-"}
}

// slug keeps lower-case letters, digits and underscores; everything else
// becomes single dashes.
func slug(s string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
		} else {
			dash = true
		}
	}
	return b.String()
}

// fit shortens a name to n characters, with a hash so that two long names
// don't become one.
func fit(s string, n int) string {
	if len(s) <= n {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return strings.TrimRight(s[:n-7], "-") + "-" + hex.EncodeToString(sum[:3])
}

// defaults returns the name of a thread's default session.
func (n names) defaults(thread string) string {
	sum := sha256.Sum256([]byte(thread))
	return n.prefix + hex.EncodeToString(sum[:4])
}

var defaultShape = regexp.MustCompile(`^[0-9a-f]{8}$`)

// isDefault recognises the words for the default session and its pane.
func isDefault(s string) bool {
	switch slug(s) {
	case "default", "shared", "shared-pane", "default-pane":
		return true
	}
	return s == ""
}

// session returns the name of the session that a thread means by s.
func (n names) session(thread, s string) (string, error) {
	own := n.defaults(thread)
	if isDefault(s) {
		return own, nil
	}
	word := strings.TrimPrefix(slug(s), n.prefix)
	if word == "" || word+"-" == n.prefix {
		return "", &refusal{ErrName, fmt.Sprintf("the session name %q has no letter or digit of a to z and 0 to 9; choose another name", clip(s))}
	}
	if isDefault(word) {
		return own, nil
	}
	name := n.prefix + fit(word, maxName-len(n.prefix))
	if name != own && defaultShape.MatchString(word) {
		return "", &refusal{ErrName, fmt.Sprintf("the session name %q is reserved for the default session of a thread; choose another name", clip(s))}
	}
	return name, nil
}

// pane returns the name of the pane that is meant by s.
func (names) pane(s string) (string, error) {
	if isDefault(s) {
		return sharedPane, nil
	}
	name := slug(s)
	if name == "" {
		return "", &refusal{ErrName, fmt.Sprintf("the pane name %q has no letter or digit of a to z and 0 to 9; choose another name", clip(s))}
	}
	return fit(name, maxName), nil
}

var paneID = regexp.MustCompile(`^%[0-9]{1,9}$`)

// clip cuts foreign text for a sentence.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "..."
	}
	return s
}
