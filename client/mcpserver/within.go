package mcpserver

import (
	"bytes"
	"io"
	"net/http"
)

// within answers requests by a handler of this process, as if they came from where another one did.
type within struct {
	to   http.Handler
	from *http.Request
}

// RoundTrip implements http.RoundTripper.
func (t within) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.RequestURI, r.Host, r.RemoteAddr, r.TLS = r.URL.RequestURI(), t.from.Host, t.from.RemoteAddr, t.from.TLS
	if r.Body == nil {
		r.Body = http.NoBody
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Origin", "Sec-Fetch-Site"} {
		if v := t.from.Header.Values(name); len(v) > 0 {
			r.Header[name] = v
		}
	}
	a := &answer{status: http.StatusOK, header: http.Header{}}
	if r.Context().Err() == nil {
		t.to.ServeHTTP(a, r)
	}
	if err := r.Context().Err(); err != nil { // nobody was there to be answered
		return nil, err
	}
	return &http.Response{
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// answer keeps what a handler answers.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
	begun  bool
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if !a.begun {
		a.status, a.begun = status, true
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.body.Write(b)
}
