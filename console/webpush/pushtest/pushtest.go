// Package pushtest is a local push service and the browsers that use it, for tests. It checks who
// sends and how, and reads messages as a browser does, by the standards and not by the package that
// it tests.
package pushtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/console/webpush"
)

// Service is a push service.
type Service struct {
	t   testing.TB
	srv *httptest.Server

	mu       sync.Mutex
	browsers map[string]*Browser
	refuse   int
}

// Browser is one that has subscribed.
type Browser struct {
	s      *Service
	path   string
	key    *ecdh.PrivateKey
	auth   []byte
	sender string // the public key of the sender it takes messages of

	got  []Message
	gone bool
}

// Message is what a browser got.
type Message struct {
	Body                string
	TTL                 int
	Urgency, Topic, Sub string
}

// New returns a service that ends with the test.
func New(t testing.TB) *Service {
	t.Helper()
	s := &Service{t: t, browsers: map[string]*Browser{}}
	s.srv = httptest.NewServer(s)
	t.Cleanup(s.srv.Close)
	return s
}

// Refuse has the service answer with a status, 0 for as usual.
func (s *Service) Refuse(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = status
}

// Subscribe is a browser that takes messages of a sender with this public key.
func (s *Service) Subscribe(public string) *Browser {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	b := &Browser{s: s, path: "/push/" + rand.Text(), key: key, auth: []byte(rand.Text())[:16], sender: public}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.browsers[b.path] = b
	return b
}

// Subscription is what the browser tells the page.
func (b *Browser) Subscription() (sub webpush.Subscription) {
	sub.Endpoint = b.s.srv.URL + b.path
	sub.Keys.P256dh = base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes())
	sub.Keys.Auth = base64.RawURLEncoding.EncodeToString(b.auth)
	return sub
}

// Leave ends the subscription at the service.
func (b *Browser) Leave() {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.gone = true
}

// Got returns what came.
func (b *Browser) Got() []Message {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return append([]Message(nil), b.got...)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.browsers[r.URL.Path]
	switch {
	case s.refuse != 0:
		w.WriteHeader(s.refuse)
		return
	case b == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case b.gone:
		w.WriteHeader(http.StatusGone)
		return
	case err != nil || len(raw) > 4096:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	m, err := b.read(r, raw)
	if err != nil {
		s.t.Errorf("a bad message: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.got = append(b.got, m)
	w.WriteHeader(http.StatusCreated)
}

func (b *Browser) read(r *http.Request, raw []byte) (m Message, err error) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Encoding") != "aes128gcm" {
		return m, fmt.Errorf("%s with %q", r.Method, r.Header)
	}
	if m.TTL, err = strconv.Atoi(r.Header.Get("TTL")); err != nil || m.TTL < 0 {
		return m, fmt.Errorf("the TTL %q", r.Header.Get("TTL"))
	}
	m.Urgency, m.Topic = r.Header.Get("Urgency"), r.Header.Get("Topic")
	if len(m.Topic) > 32 || strings.Trim(m.Topic, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return m, fmt.Errorf("the topic %q", m.Topic)
	}
	if m.Sub, err = b.signedBy(r.Header.Get("Authorization")); err != nil {
		return m, err
	}
	text, err := b.decrypt(raw)
	m.Body = string(text)
	return m, err
}

// signedBy checks who sent a message (RFC 8292).
func (b *Browser) signedBy(authorization string) (sub string, err error) {
	rest, ok := strings.CutPrefix(authorization, "vapid t=")
	token, public, ok2 := strings.Cut(rest, ", k=")
	parts := strings.Split(token, ".")
	if !ok || !ok2 || len(parts) != 3 || public != b.sender {
		return "", fmt.Errorf("not the sender that the browser subscribed to: %q", authorization)
	}
	point, err := base64.RawURLEncoding.DecodeString(public)
	if err != nil {
		return "", err
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return "", err
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(sig) != 64 {
		return "", fmt.Errorf("the signature %q", parts[2])
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if !ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		return "", fmt.Errorf("the signature is not the sender's")
	}
	var head struct{ Alg, Typ string }
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	for i, v := range []any{&head, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(text, v); err != nil {
			return "", err
		}
	}
	left := time.Until(time.Unix(claims.Exp, 0))
	if head.Alg != "ES256" || claims.Aud != b.s.srv.URL || left < 0 || left > 24*time.Hour || !strings.Contains(claims.Sub, ":") {
		return "", fmt.Errorf("the claims %+v %+v", head, claims)
	}
	return claims.Sub, nil
}

// decrypt reads a message (RFC 8291, RFC 8188).
func (b *Browser) decrypt(raw []byte) ([]byte, error) {
	if len(raw) < 21 || int(raw[20]) != 65 || len(raw) < 21+65+17 {
		return nil, fmt.Errorf("%d bytes are no record", len(raw))
	}
	salt, sender := raw[:16], raw[21:21+65]
	from, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	shared, err := b.key.ECDH(from)
	if err != nil {
		return nil, err
	}
	own := b.key.PublicKey().Bytes()
	ikm := derive(b.auth, shared, "WebPush: info\x00"+string(own)+string(sender), 32)
	block, err := aes.NewCipher(derive(salt, ikm, "Content-Encoding: aes128gcm\x00", 16))
	if err != nil {
		return nil, err
	}
	open, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := open.Open(nil, derive(salt, ikm, "Content-Encoding: nonce\x00", 12), raw[21+65:], nil)
	if err != nil {
		return nil, err
	}
	end := strings.LastIndexByte(string(text), 2)
	if end < 0 || strings.Trim(string(text[end+1:]), "\x00") != "" {
		return nil, fmt.Errorf("the record has no end")
	}
	return text[:end], nil
}

// derive is HKDF by hand (RFC 5869), for at most one block.
func derive(salt, secret []byte, info string, n int) []byte {
	extract := hmac.New(sha256.New, salt)
	extract.Write(secret)
	expand := hmac.New(sha256.New, extract.Sum(nil))
	expand.Write([]byte(info + "\x01"))
	return expand.Sum(nil)[:n]
}
