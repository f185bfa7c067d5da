package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	xssh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// UnknownHostError means that no known_hosts file has a key for the host. Nothing
// was sent to it but the greeting. Once people have compared the fingerprint, Line
// can be given to [Trust].
type UnknownHostError struct {
	Host        string         // as configured
	Address     string         // host:port
	Key         xssh.PublicKey // that the host has shown, and proved to hold
	Fingerprint string         // "SHA256:..."
	Line        string         // of a known_hosts file, without a newline
}

func (e *UnknownHostError) Error() string {
	return fmt.Sprintf("the host %s (%s) is not known; compare its %s key %s with the one on the host, then trust it or add it to a known_hosts file",
		e.Host, e.Address, keyKind(e.Key), e.Fingerprint)
}

// ChangedHostError means that the host shows another key than it is known by.
type ChangedHostError struct {
	Host        string
	Address     string
	Key         xssh.PublicKey
	Fingerprint string
	// Known says what was expected: fingerprints with the file and line that has
	// them, or the one that this target was connected to before.
	Known []string
}

func (e *ChangedHostError) Error() string {
	return fmt.Sprintf("WARNING: THE HOST KEY OF %s (%s) HAS CHANGED, AND SOMEBODY MAY BE ATTACKING: it shows the %s key %s instead of %s; "+
		"nothing is sent there until somebody who administers the host has explained the change and corrected known_hosts",
		e.Host, e.Address, keyKind(e.Key), e.Fingerprint, strings.Join(e.Known, " or "))
}

// RevokedHostError means that a known_hosts file marks the host's key as revoked.
type RevokedHostError struct {
	Host        string
	Address     string
	Fingerprint string
	Where       string // file:line
}

func (e *RevokedHostError) Error() string {
	return fmt.Sprintf("the host %s (%s) shows the key %s, which %s marks as revoked: somebody may be using a stolen key; do not connect "+
		"until the host has a new one",
		e.Host, e.Address, e.Fingerprint, e.Where)
}

func keyKind(k xssh.PublicKey) string {
	if k == nil {
		return "unknown"
	}
	return strings.TrimPrefix(k.Type(), "ssh-")
}

// plainKey is the host's own key, also of a host that shows a certificate.
func plainKey(k xssh.PublicKey) xssh.PublicKey {
	if cert, ok := k.(*xssh.Certificate); ok {
		return cert.Key
	}
	return k
}

// loadFiles reads the known_hosts files. One that does not exist is like an empty
// one, since [Trust] makes it; one that cannot be read or understood is an error.
func loadFiles(files []string) (*knownhosts.HostKeyDB, error) {
	var there []string
	for _, f := range files {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		there = append(there, f)
	}
	db, err := knownhosts.NewDB(there...)
	if err != nil {
		return nil, fmt.Errorf("the known hosts cannot be read, so no host can be trusted; correct the file: %w", err)
	}
	return db, nil
}

// hostAlgorithms are the host key algorithms to offer, the ones of known keys
// first. Otherwise a host with several keys would show one that is not known
// (golang/go#29286). The rest stays on offer, so that a changed host is told from
// one that speaks another protocol.
func hostAlgorithms(db *known, address string, pinned xssh.PublicKey) []string {
	var want []string
	if pinned != nil {
		want = algorithmsOf(plainKey(pinned).Type())
	}
	have := db.algorithms(address)
	if pinned != nil {
		// A certificate of the pinned key comes before the key alone.
		have = slices.DeleteFunc(have, func(a string) bool { return !strings.Contains(a, "-cert-") })
		want = append(have, want...)
	} else {
		want = append(want, have...)
	}
	supported := xssh.SupportedAlgorithms().HostKeys
	slices.SortStableFunc(supported, func(a, b string) int { // as OpenSSH prefers them
		rank := func(s string) int {
			switch {
			case s == xssh.KeyAlgoED25519:
				return 0
			case strings.HasPrefix(s, "ecdsa"):
				return 1
			}
			return 2
		}
		return rank(a) - rank(b)
	})
	var out []string
	for _, a := range want {
		if slices.Contains(supported, a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range supported {
		if !strings.Contains(a, "-cert-") && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func algorithmsOf(keyType string) []string {
	if keyType == xssh.KeyAlgoRSA {
		return []string{xssh.KeyAlgoRSASHA512, xssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// checkHost judges the key of a host, strictly.
func checkHost(db *known, host, address string, pinned xssh.PublicKey, remote net.Addr, key xssh.PublicKey) error {
	fingerprint := xssh.FingerprintSHA256(plainKey(key))
	err := db.check(address, remote, key)
	var revoked *xknownhosts.RevokedError
	var unknown *xknownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return &RevokedHostError{
			Host: host, Address: address, Fingerprint: fingerprint,
			Where: fmt.Sprintf("%s:%d", revoked.Revoked.Filename, revoked.Revoked.Line),
		}
	case errors.As(err, &unknown) && len(unknown.Want) == 0:
		return &UnknownHostError{
			Host: host, Address: address, Key: plainKey(key), Fingerprint: fingerprint,
			Line: knownhosts.Line([]string{address}, plainKey(key)),
		}
	case errors.As(err, &unknown):
		changed := &ChangedHostError{Host: host, Address: address, Key: plainKey(key), Fingerprint: fingerprint}
		for _, k := range unknown.Want {
			changed.Known = append(changed.Known, fmt.Sprintf("%s (%s:%d)", xssh.FingerprintSHA256(k.Key), k.Filename, k.Line))
		}
		return changed
	case err != nil:
		return fmt.Errorf("the host certificate of %s (%s, key %s) is not accepted; ask who administers the host: %w", host, address, fingerprint, err)
	}
	if pinned != nil && !bytes.Equal(plainKey(key).Marshal(), plainKey(pinned).Marshal()) {
		return &ChangedHostError{
			Host: host, Address: address, Key: plainKey(key), Fingerprint: fingerprint,
			Known: []string{xssh.FingerprintSHA256(plainKey(pinned)) + " (the earlier connection; start the bot anew if the change is right)"},
		}
	}
	return nil
}

// Trust adds a line (of an [UnknownHostError]) to a known_hosts file, durably. The
// file gets mode 0600; it and its directory (0700) are made if they are missing. A
// line that is there already is not added again. Trust takes one key for named
// hosts only: no certificate authority, no wildcard. The next connection sees it.
//
// Call it only after people have compared the fingerprint: it asks nobody.
func Trust(file, line string) (err error) {
	line = strings.TrimSpace(line)
	if strings.ContainsAny(line, "\n\r\x00") {
		return errors.New("ssh: a known_hosts entry is one line; nothing was added")
	}
	marker, hosts, _, _, _, err := xssh.ParseKnownHosts([]byte(line + "\n"))
	if err != nil {
		return fmt.Errorf("ssh: this is no known_hosts line, and nothing was added: %w", err)
	}
	if marker != "" || slices.ContainsFunc(hosts, func(h string) bool { return strings.ContainsAny(h, "*?!") }) {
		return errOnlyPlain()
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for have := range strings.Lines(string(old)) {
		if strings.TrimSpace(have) == line {
			return nil
		}
	}
	text := line + "\n"
	if len(old) > 0 && old[len(old)-1] != '\n' {
		text = "\n" + text
	}
	// One write at the end of the file: another writer's line stays whole.
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
