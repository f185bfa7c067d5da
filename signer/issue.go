package signer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"countersign/signer/wire"
)

const (
	// validity is how long a certificate is good for, of which skew lies before it was signed, for a
	// host whose clock is behind.
	validity = 60 * time.Second
	skew     = 15 * time.Second
)

// Signer issues certificates. It is safe for concurrent use.
type Signer struct {
	c   *Config
	now func() time.Time
	log func(format string, a ...any)

	mu     sync.Mutex
	used   map[string]bool // runs for which a certificate was issued
	file   *os.File
	size   int64 // of the file
	broken bool  // the file may hold half a line
}

// Open opens the signer's state. log receives a line for each decision.
func Open(c *Config, now func() time.Time, log func(format string, a ...any)) (*Signer, error) {
	s := &Signer{c: c, now: now, log: log, used: map[string]bool{}}
	var err error
	if s.file, err = os.OpenFile(c.State, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("the state can't be opened: %w", err)
	}
	err = s.read()
	if err == nil {
		err = c.readSecret()
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	_, closer, err := c.authority()
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, closer.Close()
}

// read reads what was signed before.
func (s *Signer) read() error {
	if err := syscall.Flock(int(s.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.New("another signer uses this state")
	}
	raw, err := io.ReadAll(s.file)
	if err != nil {
		return fmt.Errorf("the state can't be read: %w", err)
	}
	for l := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(l, "\n") { // it was killed in the middle of a line, and signed nothing by it
			return s.cut(int64(len(raw) - len(l)))
		}
		f := strings.Fields(l)
		if len(f) != 4 {
			return fmt.Errorf("the state has the line %q, which tells nothing of what was signed; look what happened to %s", clip(l), s.c.State)
		}
		s.used[f[1]] = true
		s.size += int64(len(l))
	}
	return nil
}

// cut takes half a line back.
func (s *Signer) cut(size int64) error {
	if err := s.file.Truncate(size); err != nil {
		s.broken = true
		return fmt.Errorf("the state can't be written: %w", err)
	}
	return nil
}

// readSecret reads what nonces are made with, or makes it.
func (c *Config) readSecret() (err error) {
	file := c.State + ".secret"
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

// Close closes the state.
func (s *Signer) Close() error { return s.file.Close() }

// Issue answers a request. Its error is a sentence for the people who wait for the command.
func (s *Signer) Issue(r wire.Request) (*ssh.Certificate, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(r.Key))
	if _, isCert := key.(*ssh.Certificate); err != nil || isCert || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the request has no public key")
	}
	v, err := s.c.judge(r, s.now())
	if err != nil {
		s.log("refused target=%q kind=%q run=%q why=%q", clip(r.Target), clip(string(r.Kind)), clip(wire.Name(r.Approval, r.Step)), clip(err.Error()))
		return nil, err
	}
	if v.job.Kind != wire.Watch {
		v.job.Key = wire.KeyName(key.Marshal())
	}
	ca, closer, err := s.c.authority()
	if err != nil {
		return nil, err
	}
	defer func() { _ = closer.Close() }()
	run := v.target + "/" + v.job.Name
	switch v.job.Kind {
	case wire.Change:
		if err := s.use(run, v); err != nil {
			s.log("refused target=%q run=%q why=%q", v.target, v.job.Name, err)
			return nil, err
		}
	case wire.Follow:
		s.mu.Lock()
		known := s.used[run]
		s.mu.Unlock()
		if !known {
			return nil, errors.New("no certificate was issued for this run, so there is nothing to follow")
		}
	case wire.Watch:
	}
	cert, err := s.certificate(key, ca, v)
	if err != nil {
		return nil, fmt.Errorf("the authority's key doesn't sign: %w", err)
	}
	s.log("issued target=%q kind=%q run=%q digest=%q approved=%q serial=%d", v.target, v.job.Kind, v.job.Name, v.job.Digest, strings.Join(v.who, ","), cert.Serial)
	return cert, nil
}

// use notes durably that a run has its certificate. It has one at most.
func (s *Signer) use(run string, v verdict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[run] {
		return errors.New("a certificate was issued for this approval before; ask again to run it once more")
	}
	if s.broken {
		return errors.New("the state couldn't be written, so nothing is signed; make room on the signer's disk and restart it")
	}
	n, err := fmt.Fprintf(s.file, "%s %s %s %s\n", s.now().UTC().Format(time.RFC3339), run, v.job.Digest, strings.Join(v.who, ","))
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the state can't be written, so nothing is signed: %w", err), s.cut(s.size))
	}
	s.size += int64(n)
	s.used[run] = true
	return nil
}

// clip bounds what somebody else has written in a line of the log or in an error.
func clip(text string) string {
	if len(text) > 200 {
		return text[:200] + "..."
	}
	return text
}

func (s *Signer) certificate(key ssh.PublicKey, ca ssh.Signer, v verdict) (*ssh.Certificate, error) {
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return nil, err
	}
	from := s.now().Add(-skew)
	id := "countersign " + string(v.job.Kind)
	if v.job.Name != "" {
		id += " " + v.job.Name
	}
	if len(v.who) > 0 {
		id += " approved by " + strings.Join(v.who, ", ")
	}
	cert := &ssh.Certificate{
		Key: key, CertType: ssh.UserCert, KeyId: id, Serial: binary.BigEndian.Uint64(serial[:]), ValidPrincipals: []string{v.principal},
		ValidAfter: uint64(from.Unix()), ValidBefore: uint64(from.Add(validity).Unix()), //nolint:gosec // after 1970
		Permissions: ssh.Permissions{CriticalOptions: map[string]string{
			"force-command": v.job.Command(s.c.Runner), "source-address": strings.Join(v.from, ","),
		}},
	}
	return cert, cert.SignCert(rand.Reader, ca)
}

// authority is the key that signs. The closer ends the connection to its agent.
func (c *Config) authority() (ssh.Signer, io.Closer, error) {
	raw, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, nil, fmt.Errorf("the authority's key can't be read: %w", err)
	}
	if c.Agent == "" {
		if st, err := os.Stat(c.CA); err != nil || st.Mode().Perm()&0o077 != 0 {
			return nil, nil, fmt.Errorf("others can read the authority's key; run `chmod 600 %s`", c.CA)
		}
		k, err := ssh.ParsePrivateKey(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is no private key without a passphrase; load one with a passphrase into an ssh-agent and set agent: %w", c.CA, err)
		}
		return k, io.NopCloser(nil), nil
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is no public key, which ca is where an agent holds the private part: %w", c.CA, err)
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
func (c *Config) Authorities() ([]string, error) {
	now, closer, err := c.authority()
	if err != nil {
		return nil, err
	}
	out := []string{line(now.PublicKey())}
	if err := closer.Close(); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(c.CA + nextSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(raw); err == nil {
		return append(out, line(public)), nil
	}
	next, err := ssh.ParsePrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s%s is no key: %w", c.CA, nextSuffix, err)
	}
	return append(out, line(next.PublicKey())), nil
}

// nextSuffix ends the name of the file with the authority after a rotation.
const nextSuffix = ".next"

func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }
