// Package webpush sends messages to browsers that asked for them, through the push service that
// each browser chose: encrypted so that only the browser reads them (RFC 8291, RFC 8188), signed
// by the sender (VAPID, RFC 8292), delivered by RFC 8030. It needs no account anywhere.
//
// It decides nothing about what is sent to whom.
package webpush

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"countersign/internal/publicnet"
)

var (
	// ErrGone means that the browser does not want messages any more: forget the subscription.
	ErrGone = errors.New("webpush: the subscription has ended")
	// ErrSubscription means that a subscription cannot be one of a browser's.
	ErrSubscription = errors.New("webpush: this is not a browser's subscription")
)

// RefusedError is an answer of a push service that will be the same the next time.
type RefusedError struct {
	Host   string
	Status int
	Reason string // the service's own words, one short line; "" is none
}

// Error implements error.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("%s refuses messages (HTTP %d", e.Host, e.Status)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s + ")"
}

// reasonOf reads why a service refuses: Apple and Mozilla send JSON, others text.
func reasonOf(body []byte) string {
	var said struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	text := string(body)
	if json.Unmarshal(body, &said) == nil {
		text = cmp.Or(said.Reason, said.Message)
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if strings.HasPrefix(text, "<") { // a page
		return ""
	}
	if r := []rune(text); len(r) > maxReason {
		text = string(r[:maxReason]) + "…"
	}
	return text
}

const (
	// maxReason is how many characters of a service's reason are kept.
	maxReason = 120
	// MaxBody is how many bytes a message has at most: services take 4,096 encrypted ones.
	MaxBody = 3000
	// recordSize is that of the one record (RFC 8188, section 2.1).
	recordSize = 4096
	// pointSize is that of an uncompressed point of P-256.
	pointSize = 65
	// tokenLife is how long a signature is valid; services refuse more than a day.
	tokenLife = 12 * time.Hour
	// callTime is for one delivery.
	callTime = 20 * time.Second
)

// Subscription is where and for whom a browser wants messages, as its PushSubscription has it in
// JSON.
type Subscription struct {
	Endpoint string `json:"endpoint"`
	Keys     struct {
		P256dh string `json:"p256dh"` // an uncompressed point, base64url
		Auth   string `json:"auth"`   // 16 bytes, base64url
	} `json:"keys"`
}

// Message is what a browser gets.
type Message struct {
	Body []byte // at most MaxBody
	// TTL is how long a service keeps it for a browser that is away.
	TTL time.Duration
	// Urgent has a phone wake up for it.
	Urgent bool
	// Topic, at most 32 characters of base64url, has it replace an earlier one that waits.
	Topic string
}

// Sender sends messages. It is safe for concurrent use.
type Sender struct {
	key     *ecdsa.PrivateKey
	public  string
	subject string
	client  *http.Client
	local   bool
	now     func() time.Time
}

// Config is what a [Sender] is made of.
type Config struct {
	// Seed is a secret of the sender's: the same one makes the same key, and a browser takes
	// messages only by the key with which it subscribed.
	Seed []byte
	// Subject is an address of the sender, https: or mailto:, which services may ask.
	Subject string
	// Local lets services be on this machine or its private networks, in clear text too.
	Local bool
	Now   func() time.Time // default time.Now
}

// New returns a sender.
func New(c Config) (*Sender, error) {
	key, err := makeKey(c.Seed)
	if err != nil {
		return nil, err
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	dialer := &net.Dialer{Timeout: callTime}
	if !c.Local && !proxied() {
		dialer.Control = onlyPublic
	}
	return &Sender{key: key, public: encode(public), subject: c.Subject, local: c.Local, now: c.Now, client: &http.Client{
		Timeout:       callTime,
		Transport:     &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: callTime, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// proxied reports whether a proxy stands between this process and the internet; then it decides
// what can be reached.
func proxied() bool {
	req, err := http.NewRequest(http.MethodPost, "https://push.example.com", nil) //nolint:noctx // it is not sent
	if err != nil {
		return false
	}
	proxy, err := http.ProxyFromEnvironment(req)
	return err == nil && proxy != nil
}

// errPrivate refuses an address that only this machine's networks have: a subscription comes from
// a person, and must not reach what that person can't.
var errPrivate = errors.New("webpush: the address is not one of the internet")

func onlyPublic(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !publicnet.IsPublic(at.Addr()) {
		return errPrivate
	}
	return nil
}

// makeKey derives a key of the curve P-256 from a seed.
func makeKey(seed []byte) (*ecdsa.PrivateKey, error) {
	for i := range 16 { // all but never more than once
		raw, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("countersign web push %d", i), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("webpush: no key can be made of this seed")
}

// PublicKey is what a browser subscribes with (applicationServerKey), base64url.
func (s *Sender) PublicKey() string { return s.public }

// Check returns an error that wraps [ErrSubscription] if a subscription cannot be used.
func (s *Sender) Check(sub Subscription) error {
	if _, err := s.parse(sub.Endpoint); err != nil {
		return err
	}
	_, _, err := sub.keys()
	return err
}

func (s *Sender) parse(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !s.local) || u.Host == "" || u.User != nil || len(endpoint) > 1000 {
		return nil, fmt.Errorf("%w: its endpoint is no address of a push service", ErrSubscription)
	}
	return u, nil
}

func (sub Subscription) keys() (browser *ecdh.PublicKey, auth []byte, err error) {
	point, err := decode(sub.Keys.P256dh)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSubscription, err)
	}
	if auth, err = decode(sub.Keys.Auth); err != nil || len(auth) != 16 {
		return nil, nil, fmt.Errorf("%w: its secret has not 16 bytes", ErrSubscription)
	}
	if browser, err = ecdh.P256().NewPublicKey(point); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSubscription, err)
	}
	return browser, auth, nil
}

// Send delivers a message. An error that wraps neither [ErrGone] nor [ErrSubscription], and is no
// [*RefusedError], may pass.
func (s *Sender) Send(ctx context.Context, sub Subscription, m Message) error {
	at, err := s.parse(sub.Endpoint)
	if err != nil {
		return err
	}
	browser, auth, err := sub.keys()
	if err != nil {
		return err
	}
	once, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		return err
	}
	body, err := encrypt(m.Body, browser, auth, once, salt)
	if err != nil {
		return err
	}
	token, err := s.token(at.Scheme + "://" + at.Host)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sub.Endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Encoding", "aes128gcm")
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("TTL", strconv.Itoa(max(0, int(m.TTL/time.Second))))
	req.Header.Set("Authorization", "vapid t="+token+", k="+s.public)
	if m.Urgent {
		req.Header.Set("Urgency", "high")
	}
	if m.Topic != "" {
		req.Header.Set("Topic", m.Topic)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		return ErrGone
	case res.StatusCode >= 400 && res.StatusCode <= 499 && res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusRequestTimeout:
		return &RefusedError{at.Host, res.StatusCode, reasonOf(said)}
	case res.StatusCode < 200 || res.StatusCode > 299:
		return fmt.Errorf("webpush: the push service at %s answered with status %d", at.Host, res.StatusCode)
	}
	return nil
}

// encrypt makes the one record that a browser can read (RFC 8291, section 3.4). once is a key for
// this message alone.
func encrypt(text []byte, browser *ecdh.PublicKey, auth []byte, once *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	if len(text) > MaxBody {
		return nil, fmt.Errorf("webpush: the message has %d bytes, and %d are the most", len(text), MaxBody)
	}
	shared, err := once.ECDH(browser)
	if err != nil {
		return nil, err
	}
	own := once.PublicKey().Bytes()
	secret, err := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(browser.Bytes())+string(own), 32)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	head := binary.BigEndian.AppendUint32(bytes.Clone(salt), recordSize)
	head = append(append(head, pointSize), own...)
	return seal.Seal(head, nonce, append(bytes.Clone(text), 2), nil), nil // 2 ends the last record
}

// token is a signed claim of who sends, for the services of one origin (RFC 8292, section 2).
func (s *Sender) token(origin string) (string, error) {
	claims, err := json.Marshal(struct {
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
		Subject  string `json:"sub"`
	}{origin, s.now().Add(tokenLife).Unix(), s.subject})
	if err != nil {
		return "", err
	}
	text := encode([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	r, t, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		return "", err
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	t.FillBytes(sig[32:])
	return text + "." + encode(sig), nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode reads base64url with padding or without.
func decode(s string) ([]byte, error) {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	return base64.RawURLEncoding.DecodeString(s)
}
