package signer

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"countersign/signer/wire"
)

// Serve answers requests on a listener until ctx ends.
func (s *Signer) Serve(ctx context.Context, l net.Listener, token string) error {
	web := &http.Server{
		Handler: s.Handler(token), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	var err error
	if s.c.Cert != "" {
		err = web.ServeTLS(l, s.c.Cert, s.c.TLSKey)
	} else {
		err = web.Serve(l)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Handler answers GET / with the authorities and a nonce, and POST / with a certificate, for whoever says the
// token.
func (s *Signer) Handler(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		var reply wire.Reply
		var err error
		status := http.StatusForbidden
		switch {
		case !ok || subtle.ConstantTimeCompare([]byte(said), []byte(token)) != 1:
			err = errors.New("the signer doesn't know this token; give the bot the one from its own file")
			status = http.StatusUnauthorized
		case r.Method == http.MethodGet:
			reply.Nonce = s.Nonce()
			reply.Authorities, err = s.c.Authorities()
		case r.Method == http.MethodPost:
			var ask wire.Request
			if err = json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxRequest)).Decode(&ask); err != nil {
				err, status = errors.New("the request can't be read; update the bot or the signer"), http.StatusBadRequest
				break
			}
			var cert *ssh.Certificate
			if cert, err = s.Issue(ask); err == nil {
				reply.Certificate = line(cert)
			}
		default:
			err, status = errors.New("the signer knows only GET and POST"), http.StatusMethodNotAllowed
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			reply = wire.Reply{Error: err.Error()}
			w.WriteHeader(status)
		}
		_ = json.NewEncoder(w).Encode(reply) // who asked may have left
	})
}

// Listen opens the address of a configuration. A socket is for its owner and group.
func Listen(ctx context.Context, c *Config) (net.Listener, error) {
	var lc net.ListenConfig
	if !filepath.IsAbs(c.Listen) {
		return lc.Listen(ctx, "tcp", c.Listen)
	}
	d := net.Dialer{Timeout: time.Second}
	if conn, err := d.DialContext(ctx, "unix", c.Listen); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another signer listens at %s", c.Listen)
	}
	if err := os.Remove(c.Listen); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := lc.Listen(ctx, "unix", c.Listen)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(c.Listen, 0o660); err != nil { //nolint:gosec // its group may ask, too
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// ReadToken reads the file of the token.
func ReadToken(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the token can't be read: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if len(token) < 16 {
		return "", fmt.Errorf("the token in %s is shorter than 16 characters", file)
	}
	return token, nil
}
