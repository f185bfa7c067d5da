// Package hook takes alerts over HTTP: POST /hooks/<source>, for each source that
// has a secret. It finds out whether the request is the alerting system's, reads
// it, and acknowledges it when somebody else has made it durable.
//
// It fails closed: without a secret there is no hook. A secret comes in a header,
// or signs the body; an address never carries one, because addresses are logged.
// Neither a secret nor a body is ever logged here or quoted in an answer. The
// package keeps nothing and posts nothing.
package hook

import (
	"bufio"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/alerts/notice"
	"countersign/internal/redact"
)

// Path is where the handler is mounted; a source's name follows.
const Path = "/hooks/"

// MinSecret is the length of the shortest secret that is taken, in bytes.
const MinSecret = 16

const (
	// A source may send burst notices at once and perSecond in the long run.
	perSecond = 20
	burst     = 100
	// readTime bounds how long a body may take: a megabyte at a slow line's pace.
	readTime = 15 * time.Second
	// firstTime bounds how long its first byte may take.
	firstTime = 2 * time.Second
	// smallBody is how much of a body is read before it needs one of maxBodies places: most alerts need
	// none. Unverified senders share maxBodies per source and a quarter of that per address. Senders with the
	// secret have their own.
	smallBody = 64 << 10
	maxBodies = 16
	// maxAge is how old a signed time may be, and how far ahead: as long as Slack's
	// (docs.slack.dev/authentication/verifying-requests-from-slack). Grafana names
	// no number.
	maxAge = 5 * time.Minute
	// maxSent is how old an event of PagerDuty may be, which signs no time of sending:
	// longer than it tries (two days), shorter than ids of messages are kept (seven).
	maxSent = 6 * 24 * time.Hour
)

// The headers in which a request proves who sent it.
const (
	tokenHeader = "X-Countersign-Token"
	// ownSignature is "v1=" and the HMAC-SHA256 in hex of "v1:", the Unix seconds of
	// ownTime, a colon and the body; or, where that is allowed, "sha256=" and the one of
	// the body alone.
	ownSignature = "X-Countersign-Signature"
	ownTime      = "X-Countersign-Timestamp"
	// grafanaSignature is the HMAC-SHA256 in hex of the time, a colon and the body, or,
	// where that is allowed, of the body alone (grafana.com/docs/grafana/latest/alerting,
	// "Configure webhook notifications", HMAC signature). The second header's name
	// is free in Grafana; docs/alerts.md says to take this one.
	grafanaSignature = "X-Grafana-Alerting-Signature"
	grafanaTime      = "X-Grafana-Alerting-Signature-Timestamp"
	// pagerDutySignature is a list of "v1=" and the HMAC-SHA256 of the body in hex,
	// one for each secret that is valid
	// (developer.pagerduty.com/docs/verifying-webhook-signatures).
	pagerDutySignature = "X-PagerDuty-Signature"
)

// Config is what a [Handler] is made of.
type Config struct {
	// Secrets are those of the sources that may send; the others have no hook.
	Secrets map[notice.Source]redact.Secret
	// Untimed are the sources whose signature need not cover a time. Whoever records
	// such a request can send it again.
	Untimed map[notice.Source]bool
	// Accept makes a notice durable; nil means that it is. Notices with the same ID are
	// one: what is sent again within the time of a signature has the same. Required.
	Accept func(ctx context.Context, n notice.Notice) error
	// Address is where a request comes from, as limits count it. The default is the host that it comes from,
	// which is the proxy where there is one.
	Address func(*http.Request) string
	Log     *slog.Logger     // default: nothing is logged
	Now     func() time.Time // default time.Now
}

// Handler serves the hooks. It is safe for concurrent use.
type Handler struct {
	cfg Config

	mu      sync.Mutex
	places  map[string]int // how many bodies are read, by who sends them
	buckets map[notice.Source]*bucket
}

// New checks the configuration. Its errors are one sentence that says what to
// do.
func New(cfg Config) (*Handler, error) {
	if cfg.Accept == nil {
		return nil, errors.New("hook: nobody takes the alerts: set Config.Accept")
	}
	if cfg.Address == nil {
		cfg.Address = func(r *http.Request) string {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			return host
		}
	}
	for s, secret := range cfg.Secrets {
		if err := Check(s, secret); err != nil {
			return nil, err
		}
	}
	for s, on := range cfg.Untimed {
		if on && !SignsTime(s) {
			return nil, fmt.Errorf("hook: %s signs no time, so Config.Untimed changes nothing; leave it out", s)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Handler{cfg: cfg, places: map[string]int{}, buckets: map[notice.Source]*bucket{}}, nil
}

// Check says what is wrong with the secret of a source, if anything is.
func Check(s notice.Source, secret redact.Secret) error {
	if n := len(secret.Reveal()); n < MinSecret {
		return fmt.Errorf("the secret of the hook %s has %d bytes; give it %d or more, for example from `openssl rand -hex 32`", s, n, MinSecret)
	}
	return nil
}

// SignsTime reports whether the signature of a source can cover a time.
func SignsTime(s notice.Source) bool { return s == notice.Grafana || s == notice.Generic }

// refusal is an answer that is no success.
type refusal struct {
	status   int
	sentence string
	after    time.Duration // for Retry-After
	why      string        // for the log
}

func refuse(status int, why, sentence string) *refusal {
	return &refusal{status: status, why: why, sentence: sentence}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	source := notice.Source(strings.TrimPrefix(r.URL.Path, Path))
	secret, ok := h.cfg.Secrets[source]
	if !ok {
		http.Error(w, "There is no such hook: its source has no secret in the configuration.", http.StatusNotFound)
		return
	}
	n, no := h.receive(w, r, source, secret.Reveal())
	switch {
	case no != nil:
		h.cfg.Log.WarnContext(r.Context(), "an alert was not taken", "source", string(source), "status", no.status, "reason", no.why)
		if no.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		if no.after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(no.after.Seconds()))))
		}
		http.Error(w, no.sentence, no.status)
	case n.Key == "":
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "Nothing in it concerns an alert.\n") // who has gone needs no answer
	default:
		h.cfg.Log.DebugContext(r.Context(), "an alert was taken", "source", string(source), "group", n.Hash(), "state", string(n.Status), "alerts", len(n.Alerts))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "Accepted.\n") // who has gone needs no answer
	}
}

// receive reads, checks and hands over one request. The zero notice without a
// refusal is one that concerns no alert.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request, s notice.Source, secret string) (notice.Notice, *refusal) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return notice.Notice{}, refuse(http.StatusMethodNotAllowed, "not a POST", "Alerts are sent with POST.")
	}
	sig, signed := signatureOf(s, r.Header)
	if !signed && (s == notice.PagerDuty || !hasToken(r, secret)) {
		return notice.Notice{}, refuse(http.StatusUnauthorized, "no valid secret or signature", "The secret is missing or wrong: send it as the documentation of this hook says.")
	}
	if signed && sig.at == "" && SignsTime(s) && !h.cfg.Untimed[s] {
		return notice.Notice{}, refuse(http.StatusUnauthorized, "the signature covers no time", "The signature covers no time, so whoever records the request could send it again: sign the time too, as the documentation of this hook says.")
	}
	kind, no := h.kind(r, s)
	if no != nil {
		return notice.Notice{}, no
	}
	body, no := h.body(w, r, s, !signed)
	if no != nil {
		return notice.Notice{}, no
	}
	if signed && !sig.valid(secret, body, h.cfg.Now()) {
		return notice.Notice{}, refuse(http.StatusUnauthorized, "the signature does not fit", "The signature does not fit this body and the hook's secret, or its time is more than five minutes away from now.")
	}
	// Only now, so that nobody without the secret can use up what a source may send.
	if wait := h.reserve(s); wait > 0 {
		return notice.Notice{}, &refusal{tooMany(s), "This source sends too many alerts: try again later.", wait, "too many"}
	}
	n, err := notice.Parse(s, body, h.cfg.Now())
	if kind == "text/plain" {
		n, err = notice.ParseText(body, h.cfg.Now())
	}
	switch {
	case errors.Is(err, notice.ErrIgnored):
		return notice.Notice{}, nil
	case err == nil && signed && !n.Sent.IsZero() && h.cfg.Now().Sub(n.Sent) > maxSent:
		return notice.Notice{}, refuse(http.StatusUnauthorized, "a signed message is too old", "This message is older than six days, so it may have been recorded: it is not taken.")
	case err != nil:
		return notice.Notice{}, refuse(http.StatusUnprocessableEntity, err.Error(), "This is not an alert as "+s.Name()+" sends it: "+strings.TrimPrefix(err.Error(), notice.ErrFormat.Error()+": ")+".")
	}
	if n.ID == "" && signed && (sig.at != "" || !SignsTime(s)) {
		n.ID = sig.id(body)
	}
	if err := h.cfg.Accept(r.Context(), n); err != nil {
		return notice.Notice{}, &refusal{http.StatusServiceUnavailable, "The alert could not be stored: send it again.", 5 * time.Second, err.Error()}
	}
	return n, nil
}

// tooMany is the status for what comes too fast. Alertmanager gives a notification
// up at a 429 and sends it again at a 5xx
// (github.com/prometheus/alertmanager/pull/2145), and Grafana is built on it.
func tooMany(s notice.Source) int {
	if s == notice.Generic {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// kind is the media type of the body.
func (h *Handler) kind(r *http.Request, s notice.Source) (string, *refusal) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	json := err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return "", refuse(http.StatusUnsupportedMediaType, "a compressed body", "Send the body uncompressed.")
	}
	switch {
	case json, kind == "text/plain" && s == notice.Generic:
		return kind, nil
	case s == notice.Generic:
		return "", refuse(http.StatusUnsupportedMediaType, "another media type", "Send the alert as application/json or text/plain.")
	}
	return "", refuse(http.StatusUnsupportedMediaType, "another media type", "Send the alert as application/json.")
}

// body reads the whole body, within the bounds.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, s notice.Source, known bool) ([]byte, *refusal) {
	// A server without deadlines cannot be asked for one, and needs none in tests.
	line := http.NewResponseController(w)
	_ = line.SetReadDeadline(time.Now().Add(firstTime))
	in := bufio.NewReaderSize(http.MaxBytesReader(w, r.Body, notice.MaxBody), 512)
	_, _ = in.Peek(1) // its error comes again
	_ = line.SetReadDeadline(time.Now().Add(readTime))
	body, err := io.ReadAll(io.LimitReader(in, smallBody))
	if err == nil && len(body) == smallBody {
		leave, ok := h.place(s, h.cfg.Address(r), known)
		if !ok {
			return nil, &refusal{http.StatusServiceUnavailable, "Too many alerts come in at this moment: try again.", time.Second, "too many at once"}
		}
		defer leave()
		var rest []byte
		rest, err = io.ReadAll(in)
		body = append(body, rest...)
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body is too large", "The body has more than 1 MiB: send fewer alerts at once.")
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body could not be read", "The body did not arrive whole: send it again.")
	}
	return body, nil
}

// place takes a place for a long body; leave gives it back.
func (h *Handler) place(s notice.Source, host string, known bool) (leave func(), ok bool) {
	limits := map[string]int{"of " + string(s): maxBodies, "from " + host: maxBodies / 4}
	if known {
		limits = map[string]int{"with the secret of " + string(s): maxBodies}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for who, most := range limits {
		if h.places[who] >= most {
			return nil, false
		}
	}
	for who := range limits {
		h.places[who]++
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for who := range limits {
			if h.places[who]--; h.places[who] == 0 {
				delete(h.places, who)
			}
		}
	}, true
}

// hasToken reports whether a request carries the secret itself.
func hasToken(r *http.Request, secret string) bool {
	ok := same(r.Header.Get(tokenHeader), secret)
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		ok = same(strings.TrimSpace(token), secret) || ok
	}
	if _, password, found := r.BasicAuth(); found {
		ok = same(password, secret) || ok
	}
	return ok
}

// same compares in a time that tells nothing of the secret, its length included.
func same(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return want != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// signature is what a request brings instead of the secret.
type signature struct {
	macs []string // in hex; one of them must fit
	at   string   // Unix seconds that were signed too; "" for none
	form string   // what was signed before the time
}

// id names what was signed, so that it counts once.
func (s signature) id(body []byte) string {
	h := sha256.New()
	_, _ = io.WriteString(h, s.form+s.at+":") // never fails
	_, _ = h.Write(body)
	return "signed:" + hex.EncodeToString(h.Sum(nil))
}

// maxMACs bounds the signatures of one request; PagerDuty sends one for each
// secret.
const maxMACs = 8

// signatureOf finds a source's signature. A request that has its header is judged
// by it alone.
func signatureOf(s notice.Source, h http.Header) (signature, bool) {
	var sig signature
	var header string
	switch s {
	case notice.Grafana:
		header = h.Get(grafanaSignature)
		sig.macs, sig.at = []string{header}, h.Get(grafanaTime)
	case notice.PagerDuty:
		header = strings.Join(h.Values(pagerDutySignature), ",")
		for part := range strings.SplitSeq(header, ",") {
			if mac, ok := strings.CutPrefix(strings.TrimSpace(part), "v1="); ok && len(sig.macs) < maxMACs {
				sig.macs = append(sig.macs, mac)
			}
		}
	case notice.Generic:
		header = h.Get(ownSignature)
		if mac, ok := strings.CutPrefix(header, "v1="); ok {
			sig.macs, sig.form, sig.at = []string{mac}, "v1:", cmp.Or(h.Get(ownTime), "none")
		} else if mac, ok := strings.CutPrefix(header, "sha256="); ok {
			sig.macs = []string{mac}
		}
	case notice.Alertmanager: // it cannot sign
	}
	return sig, header != ""
}

func (s signature) valid(secret string, body []byte, now time.Time) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	if s.at != "" {
		sec, err := strconv.ParseInt(s.at, 10, 64)
		if err != nil || now.Sub(time.Unix(sec, 0)).Abs() > maxAge {
			return false
		}
		_, _ = io.WriteString(mac, s.form+s.at+":") // never fails
	}
	_, _ = mac.Write(body) // never fails
	want := mac.Sum(nil)
	ok := false
	for _, m := range s.macs {
		got, err := hex.DecodeString(strings.TrimSpace(m))
		ok = err == nil && hmac.Equal(got, want) || ok
	}
	return ok
}

// bucket is what a source may still send.
type bucket struct {
	left float64
	at   time.Time
}

// reserve counts one request against a source's rate limit, or returns how long to wait.
func (h *Handler) reserve(s notice.Source) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	b := h.buckets[s]
	if b == nil {
		b = &bucket{left: burst, at: now}
		h.buckets[s] = b
	}
	b.left = min(burst, b.left+perSecond*max(now.Sub(b.at).Seconds(), 0))
	b.at = now
	if b.left < 1 {
		return time.Duration((1 - b.left) / perSecond * float64(time.Second))
	}
	b.left--
	return 0
}
