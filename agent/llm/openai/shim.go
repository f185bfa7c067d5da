package openai

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxErrorBody bounds what is read of the body of a failure.
const maxErrorBody = 64 << 10

// wire is the state of one attempt that the shim and its owner share. It is
// used by the goroutine of the attempt only; the timer's function touches none
// of it.
type wire struct {
	metas metas
	timer *time.Timer // ends the attempt when it fires
	idle  time.Duration
	last  time.Time // of the last data that was no keep-alive

	complete bool // the reply is complete; only the rest of the stream is awaited
	done     bool // the server ended the stream in words
}

type wireKey struct{}

// heard notes a sign of life of the server.
func (w *wire) heard(data bool) {
	now := time.Now()
	if data || w.last.IsZero() {
		w.last = now
	}
	if !w.complete && now.Sub(w.last) < chatterLimit {
		w.timer.Reset(w.idle)
	}
}

// finishing shortens the patience: what still comes is not needed.
func (w *wire) finishing() {
	if !w.complete {
		w.complete = true
		w.timer.Reset(min(w.idle, finishGrace))
	}
}

// shim is the HTTP client under go-openai. It adds headers and the extension
// fields of calls to requests, turns statuses that are no success into errors
// that keep the headers, and cleans the stream.
type shim struct {
	client  *http.Client
	headers map[string]string
	query   string
	max     int64
}

// Do implements goopenai.HTTPDoer.
func (s *shim) Do(req *http.Request) (*http.Response, error) {
	w, ok := req.Context().Value(wireKey{}).(*wire)
	if !ok {
		return nil, fmt.Errorf("openai: %s %s outside of an attempt", req.Method, req.URL.Path)
	}
	if len(w.metas) > 0 && req.Body != nil {
		if err := addMetas(req, w.metas); err != nil {
			return nil, err
		}
	}
	req.Header.Set("User-Agent", "countersign")
	for k, v := range s.headers {
		req.Header.Set(k, v)
		if http.CanonicalHeaderKey(k) == "Host" {
			req.Host = v
		}
	}
	if s.query != "" {
		req.URL.RawQuery = s.query
	}
	resp, err := s.client.Do(req) //nolint:bodyclose // go-openai closes the stream, the failure path below closes its body
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer func() { _ = resp.Body.Close() }() // the body is read or does not matter
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return nil, &httpFailure{status: resp.StatusCode, header: resp.Header, body: body}
	}
	resp.Body = newCleaner(resp.Body, w, s.max)
	return resp, nil
}

func addMetas(req *http.Request, ms metas) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	if body, err = withMetas(body, ms); err != nil {
		return err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return nil
}
