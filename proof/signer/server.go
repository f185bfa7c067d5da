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

	"countersign/targets/certificate"
)

// Serve answers requests on a listener until ctx ends.
func (s *Signer) Serve(ctx context.Context, l net.Listener, token string) error {
	web := &http.Server{
		Handler: s.Handler(token), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	serve := web.Serve
	if s.c.Cert != "" {
		serve = func(l net.Listener) error { return web.ServeTLS(l, s.c.Cert, s.c.TLSKey) }
	}
	if err := serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// headers let a page load nothing but its own files, and nobody frame or keep it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
	"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
}

// Handler answers, for whoever says the token, GET / with the authorities, POST / with a certificate and
// POST /ask with a link at which somebody signs; and to everybody the pages, if there is an Origin.
func (s *Signer) Handler(token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		said, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		var reply certificate.Reply
		var err error
		status := http.StatusForbidden
		switch {
		case !ok || subtle.ConstantTimeCompare([]byte(said), []byte(token)) != 1:
			err, status = errors.New("the signer doesn't know this token; give the bot the one from its own file"), http.StatusUnauthorized
		case r.Method == http.MethodGet:
			if s.c.Origin != "" {
				reply.Origin = s.c.site.Origin
			}
			reply.Authorities, err = s.c.Authorities()
		case r.URL.Path == "/ask":
			var ask certificate.Ask
			if err = read(r, &ask); err == nil {
				reply, err = s.ask(ask)
			}
		default:
			var ask certificate.Request
			if err = read(r, &ask); err == nil {
				reply.Certificate, err = s.Issue(ask)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			reply = certificate.Reply{Error: err.Error()}
			w.WriteHeader(status)
		}
		_ = json.NewEncoder(w).Encode(reply) // who asked may have left
	})
	if s.c.Origin != "" {
		for _, page := range []string{"sign/{link}", "register", "page.js", "page.css"} {
			mux.HandleFunc("GET /"+page, s.show)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range headers {
			w.Header().Set(k, v)
		}
		mux.ServeHTTP(w, r)
	})
}

// read reads what the bot asks.
func read(r *http.Request, to any) error {
	if json.NewDecoder(http.MaxBytesReader(nil, r.Body, certificate.MaxRequest)).Decode(to) != nil {
		return errors.New("the request is too long, or can't be read; update the bot or the signer")
	}
	return nil
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
	token := strings.TrimSpace(string(raw))
	if err == nil && len(token) < 16 {
		err = errors.New("it is shorter than 16 characters")
	}
	if err != nil {
		return "", fmt.Errorf("the token in %s can't be used: %w", file, err)
	}
	return token, nil
}
