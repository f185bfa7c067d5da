package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"countersign/tools"
)

const (
	// maxRedirects is how many redirects are followed.
	maxRedirects = 5
	// maxPage is how much of a page is read, in bytes after decompression: text is a small part of
	// a page.
	maxPage = 2 << 20
)

// getter sends GET requests through a guard. It is immutable. Each request uses a new connection,
// so that none is reused without a check of its address.
type getter struct {
	guard   *guard
	timeout time.Duration
	agent   string
	roots   *x509.CertPool
}

// page is a response.
type page struct {
	status    int
	url       *url.URL   // of the last request
	redirects []*url.URL // where it was redirected to, in order
	kind      string     // the Content-Type header
	body      []byte
	cut       bool // the body was longer
}

func (g getter) transport() *http.Transport {
	return &http.Transport{
		// No Proxy: with one the guard would see only the proxy's address.
		DialContext: g.guard.dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: g.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// send makes one request without following redirects. The caller must close the body.
func (g getter) send(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", g.agent)
	return g.transport().RoundTrip(req)
}

// get fetches u, which the guard must have checked, and reads at most limit bytes.
func (g getter) get(ctx context.Context, u *url.URL, accept string, limit int64) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	p := page{url: u}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), nil)
		if err != nil {
			return p, tools.Invalid("%v", err)
		}
		req.Header.Set("Accept", accept)
		res, err := g.send(req)
		if err != nil {
			return p, g.explain(p.url, err)
		}
		next, err := g.redirectTarget(p, res)
		if next == nil && err == nil {
			err = p.read(res, limit)
			if err != nil {
				err = g.explain(p.url, err)
			}
		}
		_ = res.Body.Close()
		if err != nil || next == nil {
			return p, err
		}
		p.url, p.redirects = next, append(p.redirects, next)
	}
}

// redirectTarget returns where a response redirects to, checked, or nil.
func (g getter) redirectTarget(p page, res *http.Response) (*url.URL, error) {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	where := res.Header.Get("Location")
	if where == "" {
		return nil, nil
	}
	if len(p.redirects) == maxRedirects {
		return nil, tools.Failed("%s redirects more than %d times; fetch the address that is meant", p.url.Host, maxRedirects)
	}
	to, err := p.url.Parse(where)
	if err != nil || len(where) > maxURL {
		return nil, tools.Failed("%s redirects to something that is no address; nothing more was fetched", p.url.Host)
	}
	if p.url.Scheme == "https" && strings.EqualFold(to.Scheme, "http") {
		return nil, tools.Failed("%s redirects from https to %s without encryption, which is not followed; fetch that address if "+
			"it is meant", p.url.Host, tools.Quote(to.Redacted()))
	}
	to, err = g.guard.check(to)
	if err != nil {
		return nil, tools.Failed("%s redirects to an address that is not followed: %w", p.url.Host, err)
	}
	return to, nil
}

// read reads the body. The transport has decompressed gzip, the only encoding that it requests;
// limit counts decompressed bytes.
func (p *page) read(res *http.Response, limit int64) error {
	p.status, p.kind = res.StatusCode, res.Header.Get("Content-Type")
	if c := res.Header.Get("Content-Encoding"); c != "" && !strings.EqualFold(c, "identity") {
		return tools.Failed("%s answers in the coding %s, which was not asked for and is not read", p.url.Host, tools.Quote(c))
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if int64(len(b)) > limit {
		b, p.cut = b[:limit], true
	}
	p.body = b
	return err
}

// explain turns a network error into a sentence with its fix.
func (g getter) explain(u *url.URL, err error) error {
	if e, ok := errors.AsType[*tools.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*forbiddenError](err); ok {
		return tools.Failed("%w", e)
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok && d.IsNotFound {
		return tools.Failed("the name %s does not exist; check the address: %w", u.Hostname(), err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return tools.Failed("the certificate of %s is not trusted, so nothing was fetched: %w", u.Host, err)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return tools.Failed("%s did not answer completely within %s; try again later, or another source: %w", u.Host, g.timeout, err)
	case errors.Is(err, context.Canceled):
		return tools.Failed("fetching %s was stopped: %w", u.Host, err)
	}
	return tools.Failed("%s cannot be fetched; check the address, or try another source: %w", u.Host, err)
}

// notes returns what the reader of a body must know, one line each; "" if everything went as
// expected.
func (p page) notes(asked *url.URL) string {
	var b strings.Builder
	if p.status != http.StatusOK {
		fmt.Fprintf(&b, "[HTTP status %d %s]\n", p.status, http.StatusText(p.status))
	}
	from := asked
	for _, to := range p.redirects {
		what := "redirected"
		if to.Hostname() != asked.Hostname() {
			what = "redirected to another host than the one that was asked for"
		}
		fmt.Fprintf(&b, "[%s: %s -> %s]\n", what, sanitize(from.String()), sanitize(to.String()))
		from = to
	}
	return b.String()
}

// failed reports whether the server reported an error.
func (p page) failed() bool { return p.status >= 400 }

// bodyKind is the kind of a body.
type bodyKind int

const (
	kindOther bodyKind = iota
	kindText
	kindHTML
)

// text decodes the body to UTF-8. It returns an error for a body that is not text.
func (p page) text() (string, bodyKind, error) {
	kind, params, err := mime.ParseMediaType(p.kind)
	if err != nil && kind == "" || kind == "application/octet-stream" || kind == "unknown/unknown" {
		// The server does not know; use the first bytes (WHATWG MIME Sniffing).
		kind, params, _ = mime.ParseMediaType(http.DetectContentType(p.body))
	}
	f := bodyKindOf(kind)
	if len(bytes.TrimSpace(p.body)) == 0 {
		return "", kindText, nil
	}
	if f == kindOther || isBinary(p.body) {
		return "", kindOther, tools.Failed("%s is %s and not text, so it is not shown; look for a page about it, or fetch it on a machine "+
			"with run_shell", sanitize(p.url.String()), tools.Quote(kind))
	}
	return decode(p.body, f, params["charset"], p.cut), f, nil
}

// bodyKindOf classifies a media type.
func bodyKindOf(kind string) bodyKind {
	switch {
	case kind == "text/html" || kind == "application/xhtml+xml":
		return kindHTML
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "+json"), strings.HasSuffix(kind, "+xml"), strings.HasSuffix(kind, "+yaml"):
		return kindText
	}
	switch strings.TrimPrefix(strings.TrimPrefix(kind, "application/"), "x-") {
	case "json", "xml", "yaml", "toml", "javascript", "ecmascript", "ndjson", "jsonlines", "sh", "shellscript", "sql", "graphql",
		"openmetrics-text", "pem-file", "httpd-php", "tex", "diff", "patch":
		return kindText
	}
	return kindOther
}

// isBinary reports whether a body declared as text contains bytes that text does not.
func isBinary(b []byte) bool {
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return false // UTF-16 is full of zeros
	}
	return bytes.IndexByte(b[:min(len(b), 1024)], 0) >= 0
}

// decode converts a body to UTF-8: by its byte order mark, by the charset that the server or the
// page declares, by detection, and otherwise as windows-1252, as browsers do. cut means that its
// last character may be incomplete.
func decode(b []byte, f bodyKind, label string, cut bool) string {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		label = "utf-16le"
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		label = "utf-16be"
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return string(b[3:])
	}
	enc, name := charset.Lookup(label)
	if enc == nil && f == kindHTML {
		// Unless the page declares it, windows-1252 is only a guess from the beginning.
		if e, n, certain := charset.DetermineEncoding(b, ""); certain || n != "windows-1252" {
			enc, name = e, n
		}
	}
	if enc == nil && f == kindHTML && !utf8.Valid(b) && (!cut || !validStart(b)) {
		enc, name = charset.Lookup("windows-1252")
	}
	if enc == nil || name == "utf-8" {
		return string(b) // invalid bytes are replaced when the text is sanitized
	}
	out, err := io.ReadAll(io.LimitReader(enc.NewDecoder().Reader(bytes.NewReader(b)), 4*maxPage))
	if err != nil && len(out) == 0 {
		return string(b)
	}
	return string(out)
}

// validStart reports whether b is UTF-8, or was before it was cut.
func validStart(b []byte) bool {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				b = b[:len(b)-i]
			}
			break
		}
	}
	return utf8.Valid(b)
}
