package signer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"countersign/targets/certificate"
)

const (
	// validity is how long a certificate is good for, of which skew lies before it was signed, for a
	// host whose clock is behind.
	validity = 60 * time.Second
	skew     = 15 * time.Second
)

// Signer issues certificates. It is safe for concurrent use.
type Signer struct {
	c    *Config
	draw Draw
	now  func() time.Time
	log  func(format string, a ...any)

	mu   sync.Mutex
	asks map[string][]*ask // by their owners, the oldest first
}

// Open opens the signer's state. draw may be nil where the configuration has no origin; log receives a line for each decision.
func Open(c *Config, draw Draw, now func() time.Time, log func(format string, a ...any)) (*Signer, error) {
	if draw == nil && c.Origin != "" {
		return nil, errors.New("this program has no page for people to sign on; start `countersign-signer run` instead, or leave out origin")
	}
	err := os.MkdirAll(c.State, 0o700)
	if err == nil {
		err = c.readSecret()
	}
	if err != nil {
		return nil, fmt.Errorf("the state can't be opened; if %s is a file, it is of an older version, so remove it: %w", c.State, err)
	}
	_, closer, err := c.authority()
	if err != nil {
		return nil, err
	}
	return &Signer{c: c, draw: draw, now: now, log: log, asks: map[string][]*ask{}}, closer.Close()
}

// readSecret reads what nonces are made with, or makes it.
func (c *Config) readSecret() (err error) {
	file := filepath.Join(c.State, "secret")
	c.secret, err = os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		c.secret = []byte(rand.Text())
		err = create(file, c.secret)
	}
	if err == nil && len(c.secret) < 16 {
		err = fmt.Errorf("%s holds too little; delete it", file)
	}
	return err
}

// Issue answers a request with a certificate, as a line of authorized_keys. Its error is a sentence for the people who wait for the command.
func (s *Signer) Issue(r certificate.Request) (string, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(r.Key))
	if _, isCert := key.(*ssh.Certificate); err != nil || isCert || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return "", errors.New("the request has no public key")
	}
	ca, closer, err := s.c.authority()
	if err != nil {
		return "", err
	}
	defer func() { _ = closer.Close() }()
	job, who, err := s.c.judge(r, s.now())
	by, run := strings.Join(who, ","), filepath.Join(s.c.State, r.Target+"@"+job.Name)
	switch {
	case err != nil:
	case job.Kind == certificate.Change:
		err = s.use(run, job.Digest+" "+by)
	case job.Kind == certificate.Follow:
		if _, bad := os.Stat(run); bad != nil {
			err = errors.New("no certificate was issued for this run, so there is nothing to follow")
		}
	}
	if err != nil {
		s.log("refused target=%q kind=%q run=%q why=%q", clip(r.Target), clip(string(r.Kind)), clip(certificate.Name(r.Approval, r.Step)), clip(err.Error()))
		return "", err
	}
	if job.Kind != certificate.Watch {
		job.Key = certificate.KeyName(key.Marshal())
	}
	cert, err := s.certificate(key, ca, r.Target, job, who)
	if err != nil {
		return "", fmt.Errorf("the authority's key doesn't sign: %w", err)
	}
	s.log("issued target=%q kind=%q run=%q digest=%q approved=%q serial=%d", r.Target, job.Kind, job.Name, job.Digest, by, cert.Serial)
	return line(cert), nil
}

// use notes durably, in its own file, that a run has its certificate. It has one at most.
func (s *Signer) use(run, what string) error {
	err := create(run, []byte(s.now().UTC().Format(time.RFC3339)+" "+what+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return errors.New("a certificate was issued for this approval before; ask again to run it once more")
	}
	if err != nil {
		return fmt.Errorf("the state can't be written, so nothing is signed; make room on the signer's disk: %w", err)
	}
	return nil
}

// clip bounds what somebody else has written in a line of the log or in an error.
func clip(text string) string { return text[:min(len(text), 200)] }

// certificate makes one for a target, whose name is in what lets it into an account there.
func (s *Signer) certificate(key ssh.PublicKey, ca ssh.Signer, target string, job certificate.Job, who []string) (*ssh.Certificate, error) {
	from, id, principal := s.now().Add(-skew), strings.TrimSpace("countersign "+string(job.Kind)+" "+job.Name), "countersign-change:"+target
	if len(who) > 0 {
		id += " approved by " + strings.Join(who, ", ")
	}
	if job.Kind == certificate.Watch {
		principal = "countersign-watch:" + target
	}
	cert := &ssh.Certificate{
		Key: key, CertType: ssh.UserCert, KeyId: id, Serial: uint64(from.UnixNano()), ValidPrincipals: []string{principal},
		ValidAfter: uint64(from.Unix()), ValidBefore: uint64(from.Add(validity).Unix()), //nolint:gosec // after 1970
		Permissions: ssh.Permissions{CriticalOptions: map[string]string{
			"force-command": job.Command(s.c.Runner), "source-address": strings.Join(s.c.Targets[target].From, ","),
		}},
	}
	return cert, cert.SignCert(rand.Reader, ca)
}

// authority is the key that signs. The closer ends the connection to its agent.
func (c *Config) authority() (ssh.Signer, io.Closer, error) {
	if c.Agent == "" {
		raw, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, nil, fmt.Errorf("the authority's key can't be read: %w", err)
		}
		if st, err := os.Stat(c.CA); err != nil || st.Mode().Perm()&0o077 != 0 {
			return nil, nil, fmt.Errorf("others can read the authority's key; run `chmod 600 %s`", c.CA)
		}
		k, err := ssh.ParsePrivateKey(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is no private key without a passphrase; load one with a passphrase into an ssh-agent and set agent: %w", c.CA, err)
		}
		return k, io.NopCloser(nil), nil
	}
	public, err := publicKey(c.CA)
	if err != nil {
		return nil, nil, err
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(context.Background(), "unix", c.Agent)
	if err != nil {
		return nil, nil, fmt.Errorf("the agent doesn't answer: %w", err)
	}
	held, err := agent.NewClient(conn).Signers()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the agent doesn't list its keys: %w", err), conn.Close())
	}
	for _, k := range held {
		if bytes.Equal(k.PublicKey().Marshal(), public.Marshal()) {
			return k, conn, nil
		}
	}
	return nil, nil, errors.Join(errors.New("the agent doesn't have the authority's key; add it with ssh-add"), conn.Close())
}

// Authorities are the public keys that hosts should trust, as lines of authorized_keys: the one that
// signs, and the next during a rotation.
func (c *Config) Authorities() (lines []string, err error) {
	for _, file := range []string{c.CA, c.CA + nextSuffix} {
		k, err := publicKey(file)
		if errors.Is(err, fs.ErrNotExist) && file != c.CA {
			break
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, line(k))
	}
	return lines, nil
}

// publicKey is the public part of a file's key.
func publicKey(file string) (ssh.PublicKey, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the authority's key can't be read: %w", err)
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(raw); err == nil {
		return public, nil
	}
	k, err := ssh.ParsePrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s is no key: %w", file, err)
	}
	return k.PublicKey(), nil
}

// nextSuffix ends the name of the file with the authority after a rotation.
const nextSuffix = ".next"

func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }
