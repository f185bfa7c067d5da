// Package tlsfile serves TLS with a certificate and a key from files, and takes
// up new ones without a restart: whatever renews them (a client of an ACME
// authority, a mounted secret) only has to put the files there.
//
// It obtains no certificate, asks browsers for none, and watches no directory: the
// files are looked at when somebody connects, at most every few seconds.
package tlsfile

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	pause   = 3 * time.Second // between two looks at the files
	maxFile = 1 << 20         // bytes of one of them
)

// Config gives a server's configuration for the certificate chain and the private
// key in two PEM files: TLS 1.2 or newer, with Go's own choice of ciphers. It reads
// both at once, and returns an error, one sentence that says what to do, when
// they are not a pair. Later, when their content has changed, the new pair serves
// new connections; while that is none (the files are being written, or broken) the
// old one goes on, and log, which may be nil, is told once. It also is told of a
// certificate that is not valid at the moment; that one is served all the same,
// because an old certificate says more to people than no answer.
//
// The configuration is safe for concurrent use.
func Config(cert, key string, log *slog.Logger) (*tls.Config, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &files{cert: cert, key: key, log: log, now: time.Now}
	found, sum, err := f.read()
	if err != nil {
		return nil, err
	}
	f.take(found, sum)
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.get}, nil
}

type files struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time

	mu     sync.Mutex
	pair   *tls.Certificate
	sum    [sha256.Size]byte // of what pair was made from
	bad    [sha256.Size]byte // of what was complained about; zero when nothing is
	looked time.Time
}

// get implements tls.Config.GetCertificate.
func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := f.now().Sub(f.looked); since >= 0 && since < pause {
		return f.pair, nil
	}
	f.looked = f.now()
	found, sum, err := f.read()
	switch {
	case err != nil:
		if f.bad != sum {
			f.bad = sum
			f.log.Error("the new certificate is not used, the old one goes on", "error", err)
		}
	case sum != f.sum:
		f.take(found, sum)
		f.log.Info("there is a new certificate", "file", f.cert, "until", found.Leaf.NotAfter)
	default:
		f.bad = [sha256.Size]byte{}
	}
	return f.pair, nil
}

// take serves a pair from now on. The caller has the lock, or is alone.
func (f *files) take(pair *tls.Certificate, sum [sha256.Size]byte) {
	f.pair, f.sum, f.bad, f.looked = pair, sum, [sha256.Size]byte{}, f.now()
	if now := f.now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		f.log.Warn("the certificate is not valid at this time: browsers will refuse it", "file", f.cert, "from", pair.Leaf.NotBefore, "until", pair.Leaf.NotAfter)
	}
}

// read reads the pair. The sum names what was read, also when that is no pair.
func (f *files) read() (*tls.Certificate, [sha256.Size]byte, error) {
	chain, err := readFile(f.cert)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), fmt.Errorf("the certificate cannot be read (%w): name a PEM file that the bot may read", err)
	}
	secret, err := readFile(f.key)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), fmt.Errorf("the certificate's key cannot be read (%w): name a PEM file that the bot may read", err)
	}
	both := slices.Concat(chain, []byte{0}, secret)
	sum := sha256.Sum256(both)
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return nil, sum, fmt.Errorf("%s and %s are not a certificate and its key (%w): put a PEM chain and its private key there", f.cert, f.key, err)
	}
	if pair.Leaf == nil { // GODEBUG can switch it off
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, sum, fmt.Errorf("%s is not a certificate (%w): put a PEM chain there", f.cert, err)
		}
	}
	return &pair, sum, nil
}

func readFile(name string) ([]byte, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = errors.New("it has more than a MiB")
	}
	return raw, err
}
