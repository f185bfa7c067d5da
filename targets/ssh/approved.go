package ssh

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	xssh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

var (
	// ErrLine is wrapped by [Admit] when the line is not one key of named
	// hosts.
	ErrLine = errors.New("only one key of named hosts can be trusted this way")
	// ErrOtherKey is wrapped by [Admit] when the host is known by another key already.
	ErrOtherKey = errors.New("the host is known by another key already, which has to be forgotten or revoked first")
	// ErrRevoked is wrapped by [Admit] when the key is revoked.
	ErrRevoked = errors.New("the key is revoked")
	// ErrNoLine is wrapped by [Forget] when there is no such line.
	ErrNoLine = errors.New("there is no such line of known hosts")
)

// approvedName stands in errors where other keys have the name of their file.
const approvedName = "approved host keys"

// knownLine is a line of a known_hosts text.
type knownLine struct {
	number int    // from 1
	marker string // "", "revoked" or "cert-authority"
	hosts  []string
	key    xssh.PublicKey
}

// plain reports whether the line is one key of named hosts, as [Trust] takes them.
func (l knownLine) plain() bool {
	_, cert := l.key.(*xssh.Certificate)
	return l.marker == "" && !cert && !slices.ContainsFunc(l.hosts, func(h string) bool { return h == "" || strings.ContainsAny(h, "*?!|") })
}

// readLine reads one line; a comment or an empty one is an error.
func readLine(line string) (knownLine, error) {
	if strings.ContainsAny(line, "\n\r\x00") {
		return knownLine{}, errors.New("a known_hosts entry is one line")
	}
	marker, hosts, key, _, _, err := xssh.ParseKnownHosts([]byte(line + "\n"))
	if err != nil {
		return knownLine{}, fmt.Errorf("this is no known_hosts line: %w", err)
	}
	return knownLine{marker: marker, hosts: hosts, key: key}, nil
}

// readLines reads all lines of a text but comments and empty ones.
func readLines(text []byte) ([]knownLine, error) {
	var out []knownLine
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		l, err := readLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the %s: %w", number, approvedName, err)
		}
		l.number = number
		out = append(out, l)
	}
	return out, nil
}

func errOnlyPlain() error {
	return fmt.Errorf("ssh: %w; add authorities and patterns to known_hosts by hand", ErrLine)
}

func sameKey(a, b xssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// Admit returns a known_hosts text with a line (of an [UnknownHostError]) added, for
// code that keeps such texts elsewhere than in a file. A line whose host and key are
// there already changes nothing. Like [Trust] it takes one key for named hosts only,
// and it refuses a key that the text revokes, and another key of a host that the
// text knows by name. It asks nobody.
func Admit(known []byte, line string) ([]byte, error) {
	line = strings.TrimSpace(line)
	l, err := readLine(line)
	if err != nil {
		return nil, fmt.Errorf("ssh: nothing was added: %w: %w", ErrLine, err)
	}
	if !l.plain() {
		return nil, errOnlyPlain()
	}
	have, err := readLines(known)
	if err != nil {
		return nil, fmt.Errorf("ssh: nothing was added: %w", err)
	}
	there := map[string]bool{}
	for _, h := range have {
		if h.marker == "revoked" && sameKey(plainKey(h.key), l.key) {
			return nil, fmt.Errorf("ssh: nothing was added for %s: %w", strings.Join(l.hosts, ","), ErrRevoked)
		}
		if h.marker != "" {
			continue
		}
		for _, host := range h.hosts {
			if !slices.Contains(l.hosts, host) {
				continue
			}
			if !sameKey(h.key, l.key) {
				return nil, fmt.Errorf("ssh: nothing was added for %s: %w", host, ErrOtherKey)
			}
			there[host] = true
		}
	}
	if len(there) == len(l.hosts) {
		return known, nil
	}
	return withLine(known, line), nil
}

// Revoke returns a known_hosts text that marks a key as revoked for all hosts, and
// no longer names it for any. The key is that of a known_hosts line, or a line of
// authorized_keys ("ssh-ed25519 AAAA..."); the text need not have it.
func Revoke(known []byte, line string) ([]byte, error) {
	line = strings.TrimSpace(line)
	var key xssh.PublicKey
	l, err := readLine(line)
	if key = l.key; err != nil {
		var options []string
		if key, _, options, _, err = xssh.ParseAuthorizedKey([]byte(line)); err != nil || len(options) > 0 || strings.ContainsAny(line, "\n\r\x00") {
			return nil, errors.New("ssh: nothing was revoked: this is neither a known_hosts line nor a public key")
		}
	}
	key = plainKey(key)
	have, err := readLines(known)
	if err != nil {
		return nil, fmt.Errorf("ssh: nothing was revoked: %w", err)
	}
	drop := map[int]bool{}
	done := false
	for _, h := range have {
		if sameKey(plainKey(h.key), key) {
			drop[h.number] = h.marker == ""
			done = done || h.marker == "revoked"
		}
	}
	known = without(known, drop)
	if done {
		return known, nil
	}
	return withLine(known, "@revoked * "+key.Type()+" "+base64.StdEncoding.EncodeToString(key.Marshal())), nil
}

// Forget returns a known_hosts text without a line that it has; the host is unknown
// then, unless other lines name it. A revocation goes only if the line is exactly that.
func Forget(known []byte, line string) ([]byte, error) {
	line = strings.TrimSpace(line)
	drop := map[int]bool{}
	number := 0
	for have := range strings.Lines(string(known)) {
		if number++; line != "" && line[0] != '#' && strings.TrimSpace(have) == line {
			drop[number] = true
		}
	}
	if len(drop) == 0 {
		return nil, fmt.Errorf("ssh: nothing was forgotten: %w", ErrNoLine)
	}
	return without(known, drop), nil
}

// withLine adds a line at the end.
func withLine(text []byte, line string) []byte {
	out := slices.Clone(text)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return append(out, line+"\n"...)
}

// without leaves lines out, by their numbers.
func without(text []byte, drop map[int]bool) []byte {
	var out []byte
	number := 0
	for line := range strings.Lines(string(text)) {
		if number++; !drop[number] {
			out = append(out, line...)
		}
	}
	return out
}

// known is who a connection may trust: what the files say, and what people approved.
// Either is enough to know a host, and either revokes.
type known struct {
	files    *knownhosts.HostKeyDB
	approved []knownLine // plain ones and revocations
}

// loadKnown reads the files, and asks for the approved keys where there is somebody
// to ask. What cannot be read or understood is an error, and no host is trusted.
func loadKnown(ctx context.Context, files []string, ask func(context.Context) ([]byte, error)) (*known, error) {
	db, err := loadFiles(files)
	if err != nil {
		return nil, err
	}
	k := &known{files: db}
	if ask == nil {
		return k, nil
	}
	text, err := ask(ctx)
	if err == nil {
		k.approved, err = readLines(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the %s cannot be read, so no host can be trusted; look at the bot's store: %w", approvedName, err)
	}
	for _, l := range k.approved {
		if l.marker != "revoked" && !l.plain() {
			return nil, fmt.Errorf("line %d of the %s is not one key of named hosts, so no host can be trusted; forget it, and put it into a "+
				"known_hosts file", l.number, approvedName)
		}
	}
	return k, nil
}

// of returns the approved keys of an address, as a known_hosts file gives them.
func (k *known) of(address string) []xknownhosts.KnownKey {
	var out []xknownhosts.KnownKey
	name := knownhosts.Normalize(address)
	for _, l := range k.approved {
		if l.marker == "" && slices.Contains(l.hosts, name) {
			out = append(out, xknownhosts.KnownKey{Key: l.key, Filename: approvedName, Line: l.number})
		}
	}
	return out
}

// algorithms are those of the keys that an address is known by.
func (k *known) algorithms(address string) []string {
	out := k.files.HostKeyAlgorithms(address)
	for _, have := range k.of(address) {
		out = append(out, algorithmsOf(have.Key.Type())...)
	}
	return out
}

// check judges a key as the callback of a known_hosts file does, with its errors.
func (k *known) check(address string, remote net.Addr, key xssh.PublicKey) error {
	for _, l := range k.approved {
		if l.marker == "" {
			continue
		}
		bad := plainKey(l.key)
		cert, certified := key.(*xssh.Certificate)
		if sameKey(bad, plainKey(key)) || certified && sameKey(bad, plainKey(cert.SignatureKey)) {
			return &xknownhosts.RevokedError{Revoked: xknownhosts.KnownKey{Key: l.key, Filename: approvedName, Line: l.number}}
		}
	}
	err := k.files.HostKeyCallback()(address, remote, key)
	var unknown *xknownhosts.KeyError
	if !errors.As(err, &unknown) {
		return err // the files know it, or it is revoked, or a certificate that is not accepted
	}
	approved := k.of(address)
	for _, have := range approved {
		if sameKey(have.Key, key) {
			return nil
		}
	}
	return &xknownhosts.KeyError{Want: append(slices.Clone(unknown.Want), approved...)}
}
