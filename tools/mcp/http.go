package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxRedirects is how many redirects within the same server are followed.
	maxRedirects = 3
	// maxStream bounds one answer including its events, in bytes.
	maxStream = 4 * maxMessage
	// resumes is how many times in a row a broken stream is reopened.
	resumes = 3
)

// metadataPrefixes are the addresses that serve cloud credentials and are not link-local. Source:
// the clouds' documentation of their instance metadata services.
var metadataPrefixes = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's wire server
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle, older
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // GCP
}

// nat64Prefixes are addresses that embed an IPv4 address in their last 32 bits (RFC 6052 and RFC
// 8215).
var nat64Prefixes = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}

// checkAddress returns an error if an address must not be connected to. The operator configured the
// server, so private networks are allowed; loopback only if configured.
func checkAddress(a netip.Addr, loopback bool) error {
	a = a.Unmap()
	for _, p := range nat64Prefixes {
		if b := a.As16(); p.Contains(a) {
			return checkAddress(netip.AddrFrom4([4]byte(b[12:])), loopback)
		}
	}
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is no address of a single machine", a)
	case a.IsLinkLocalUnicast(), slices.ContainsFunc(metadataPrefixes, func(p netip.Prefix) bool { return p.Contains(a) }):
		return fmt.Errorf("%s is link-local or belongs to a cloud's metadata service, which is never allowed", a)
	case a.IsLoopback() && !loopback:
		return fmt.Errorf("%s is this machine itself, which has to be allowed for this server (loopback)", a)
	}
	return nil
}

// endpoint validates the address of a server.
func endpoint(raw string, loopback bool) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("its address is none; write it in full, such as https://mcp.example/mcp")
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("its address holds a name, a password or a fragment; put credentials into its headers")
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if a, err := netip.ParseAddr(host); err == nil {
		if err := checkAddress(a, loopback); err != nil {
			return nil, err
		}
	} else if !loopback && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return nil, fmt.Errorf("%s is this machine itself, which has to be allowed for this server (loopback)", host)
	}
	return u, nil
}

// origin returns the part of a URL that all requests to a server share.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// httpClient is the transport to a server over HTTP. Close cancels every request.
type httpClient struct {
	url     *url.URL
	headers *headers
	base    *http.Transport
	// streamTimeout is how long the server may take to open its event stream; after that it is
	// treated as having none.
	streamTimeout time.Duration
	// done ends when the connection is closed, which the SDK's requests do not observe.
	done   context.Context
	cancel context.CancelFunc
}

func newRemote(ctx context.Context, u *url.URL, headers *headers, loopback bool, within time.Duration) *httpClient {
	done, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := net.Dialer{
		Timeout: 10 * time.Second,
		// Checks each address right before connecting to it, so that changing DNS answers gain
		// nothing.
		Control: func(_, at string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(at)
			if err != nil {
				return err
			}
			return checkAddress(ap.Addr(), loopback)
		},
	}
	return &httpClient{
		url: u, headers: headers, streamTimeout: within, done: done, cancel: cancel,
		base: &http.Transport{
			Proxy:       nil, // a proxy would connect where the guard does not see it
			DialContext: d.DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute, MaxConnsPerHost: 32,
		},
	}
}

func (r *httpClient) transport() sdk.Transport {
	return &sdk.StreamableClientTransport{
		Endpoint: r.url.String(), MaxEventSize: maxMessage, MaxRetries: resumes,
		HTTPClient: &http.Client{Transport: r, CheckRedirect: r.redirect},
	}
}

// Close implements io.Closer.
func (r *httpClient) Close() error {
	r.cancel()
	r.base.CloseIdleConnections()
	return nil
}

var errOtherHost = errors.New("it sent the request on to another host, which is not followed; configure that address instead")

func (r *httpClient) redirect(req *http.Request, via []*http.Request) error {
	switch {
	case origin(req.URL) != origin(r.url):
		return errOtherHost
	case len(via) > maxRedirects:
		return errors.New("it sent the request on too often")
	}
	return nil
}

// RoundTrip implements http.RoundTripper. It adds the headers, only for this server, and bounds the
// answer's size, and its time where nothing else does.
func (r *httpClient) RoundTrip(req *http.Request) (*http.Response, error) {
	if origin(req.URL) != origin(r.url) {
		return nil, errOtherHost
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(r.done, func() { cancel(errClosed) })
	end := func() { stop(); cancel(nil) }
	events := req.Method == http.MethodGet
	var late *time.Timer
	if events {
		late = time.AfterFunc(r.streamTimeout, func() { cancel(errStreamTimeout) })
	}
	resp, err := r.send(req.Clone(ctx))
	if err == nil && resp.StatusCode == http.StatusUnauthorized && (req.Body == nil || req.GetBody != nil) && r.headers.reread() {
		_ = resp.Body.Close() // nothing was done
		again := req.Clone(ctx)
		if req.Body != nil {
			again.Body, err = req.GetBody()
		}
		if err == nil {
			resp, err = r.send(again)
		}
	}
	if late != nil && !late.Stop() && errors.Is(context.Cause(ctx), errStreamTimeout) {
		if err == nil {
			_ = resp.Body.Close()
		}
		end()
		return &http.Response{
			Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: req,
		}, nil
	}
	if err != nil {
		end()
		return nil, err
	}
	if refused := resp.StatusCode; !events && (refused == http.StatusUnauthorized || refused == http.StatusForbidden || refused == http.StatusTooManyRequests) {
		_ = resp.Body.Close()
		end()
		return nil, &refusedError{refused, r.headers.advice(resp)}
	}
	limit := int64(maxMessage) + 1 // one byte over the limit reveals it
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		limit = maxStream
		if events {
			limit = -1 // it lives as long as the connection; each event is bounded
		}
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: limit, end: end}
	return resp, nil
}

// send sends a request with the headers as they are now.
func (r *httpClient) send(req *http.Request) (*http.Response, error) {
	for name, v := range r.headers.get() {
		req.Header.Set(name, v.Reveal())
	}
	return r.base.RoundTrip(req)
}

var (
	errStreamTimeout = errors.New("the stream of events did not open in time")
	errClosed        = errors.New("the connection was closed")
)

// refusedError is an answer which guarantees that nothing was done.
type refusedError struct {
	status int
	advice string // what to do about it; ends a sentence
}

// Error implements error.
func (e *refusedError) Error() string {
	return fmt.Sprintf("it answered %d %s%s", e.status, http.StatusText(e.status), e.advice)
}

// limitedBody is a bounded response body.
type limitedBody struct {
	io.ReadCloser
	left int64 // negative means no limit
	end  func()
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return b.ReadCloser.Read(p)
	}
	if b.left == 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
