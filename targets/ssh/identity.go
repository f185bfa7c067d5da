package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// AuthError means that the host knows none of the keys for that user.
type AuthError struct {
	User    string
	Address string
	Tried   []string // what was offered, for people
	Skipped []string // what was not, with the reason
	Err     error
}

func (e *AuthError) Error() string {
	text := fmt.Sprintf("%s does not let %s in", e.Address, e.User)
	if len(e.Tried) > 0 {
		text += " with " + list(e.Tried)
	} else {
		text += " without a key"
	}
	if len(e.Skipped) > 0 {
		text += "; not tried: " + list(e.Skipped)
	}
	return text + "; add one of the public keys to the account's authorized_keys, or configure another key"
}

// Unwrap returns the protocol's error.
func (e *AuthError) Unwrap() error { return e.Err }

func list(s []string) string {
	var b bytes.Buffer
	for i, x := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(x)
	}
	return b.String()
}

// keyring is what one connection may log in with.
type keyring struct {
	signers []xssh.Signer
	names   []string // of the signers, for people
	skipped []string
	agent   net.Conn // or nil
}

func (k *keyring) close() {
	if k.agent != nil {
		_ = k.agent.Close()
	}
}

func (k *keyring) add(s xssh.Signer, name string) {
	for _, have := range k.signers {
		if bytes.Equal(have.PublicKey().Marshal(), s.PublicKey().Marshal()) {
			return
		}
	}
	k.signers = append(k.signers, s)
	k.names = append(k.names, fmt.Sprintf("%s (%s)", name, xssh.FingerprintSHA256(plainKey(s.PublicKey()))))
}

// keys reads the keys of a hop. It is asked at every connection, since
// certificates are often short-lived files.
func (h Hop) keys(ctx context.Context, now time.Time) (_ *keyring, err error) {
	k := &keyring{}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	var held []xssh.Signer
	if h.Agent != "" {
		var d net.Dialer
		k.agent, err = d.DialContext(ctx, "unix", h.Agent)
		if err != nil {
			return nil, fmt.Errorf("the SSH agent at %s does not answer; start it or remove it from the configuration: %w", h.Agent, err)
		}
		if at, ok := ctx.Deadline(); ok {
			_ = k.agent.SetDeadline(at)
		}
		if held, err = agent.NewClient(k.agent).Signers(); err != nil {
			return nil, fmt.Errorf("the SSH agent at %s does not list its keys; restart it: %w", h.Agent, err)
		}
	}
	inAgent := func(pub xssh.PublicKey) xssh.Signer {
		for _, s := range held {
			if pub != nil && bytes.Equal(s.PublicKey().Marshal(), pub.Marshal()) {
				return s
			}
		}
		return nil
	}
	certs, err := h.certificates()
	if err != nil {
		return nil, err
	}
	for _, file := range h.Identities {
		signer, pub, err := readKey(file)
		var locked *xssh.PassphraseMissingError
		switch {
		case errors.As(err, &locked):
			if signer = inAgent(pub); signer == nil {
				k.skipped = append(k.skipped, file+", which has a passphrase and is in no agent (load it with ssh-add and configure the agent's socket)")
				continue
			}
		case err != nil:
			return nil, err
		}
		for _, c := range certs {
			if bytes.Equal(c.cert.Key.Marshal(), signer.PublicKey().Marshal()) {
				k.certificate(c, signer, now)
			}
		}
		k.add(signer, file)
	}
	if !h.IdentitiesOnly {
		for _, s := range held {
			for _, c := range certs {
				if bytes.Equal(c.cert.Key.Marshal(), s.PublicKey().Marshal()) {
					k.certificate(c, s, now)
				}
			}
			k.add(s, "a key of the agent")
		}
	}
	if len(k.signers) == 0 {
		return nil, &AuthError{User: h.User, Address: h.address(), Skipped: k.skipped, Err: errors.New("ssh: no usable key is configured")}
	}
	return k, nil
}

// certificate adds a certificate of a signer's key before the key itself.
func (k *keyring) certificate(c namedCert, s xssh.Signer, now time.Time) {
	if until := c.cert.ValidBefore; until != xssh.CertTimeInfinity && now.Unix() >= int64(until) { //nolint:gosec // an overflow is in the past, too
		k.skipped = append(k.skipped, fmt.Sprintf("%s, a certificate that ended at %s", c.file, time.Unix(int64(until), 0).UTC().Format(time.RFC3339))) //nolint:gosec // for people
		return
	}
	cs, err := xssh.NewCertSigner(c.cert, s)
	if err != nil {
		k.skipped = append(k.skipped, fmt.Sprintf("%s: %v", c.file, err))
		return
	}
	k.add(cs, c.file)
}

type namedCert struct {
	file string
	cert *xssh.Certificate
}

// certificates reads the given certificates, and those beside the keys.
func (h Hop) certificates() ([]namedCert, error) {
	var out []namedCert
	for _, file := range h.Certificates {
		c, err := readCert(file)
		if err != nil {
			return nil, err
		}
		out = append(out, namedCert{file, c})
	}
	for _, key := range h.Identities {
		file := key + "-cert.pub"
		if _, err := os.Stat(file); err != nil {
			continue
		}
		c, err := readCert(file)
		if err != nil {
			return nil, err
		}
		out = append(out, namedCert{file, c})
	}
	return out, nil
}

func readCert(file string) (*xssh.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s cannot be read; correct its path: %w", file, err)
	}
	pub, _, _, _, err := xssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s is no certificate; sign the key again: %w", file, err)
	}
	cert, ok := pub.(*xssh.Certificate)
	if !ok || cert.CertType != xssh.UserCert {
		return nil, fmt.Errorf("%s is no certificate of a user; sign the key again", file)
	}
	return cert, nil
}

// readKey reads a private key. Of one with a passphrase it gives the public part,
// if that is known.
func readKey(file string) (xssh.Signer, xssh.PublicKey, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no identity file %s; correct its path: %w", file, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the identity file %s cannot be read; check its owner and mode: %w", file, err)
	}
	signer, err := xssh.ParsePrivateKey(text)
	if locked, ok := errors.AsType[*xssh.PassphraseMissingError](err); ok {
		pub := locked.PublicKey
		if pub == nil {
			if text, err := os.ReadFile(file + ".pub"); err == nil {
				pub, _, _, _, _ = xssh.ParseAuthorizedKey(text)
			}
		}
		return nil, pub, locked
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s is no private key; give the file without .pub: %w", file, err)
	}
	return signer, signer.PublicKey(), nil
}
