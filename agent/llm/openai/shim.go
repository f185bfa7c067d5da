package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	goopenai "github.com/sashabaranov/go-openai"
)

const (
	maxError  = 64 << 10 // of an error's body
	maxFrame  = 4 << 20  // of one line of a stream
	maxAnswer = 32 << 20 // of an answer in all
)

// wire is what one attempt and its HTTP traffic tell each other. The reader
// of the body owns done.
type wire struct {
	model string                       // which one is asked
	edit  func([]byte) ([]byte, error) // changes the request's body, nil leaves it
	alive func()                       // something came
	done  bool                         // [DONE] was seen
}

type wireKey struct{}

// shim stands between the client library and the network. It sends requests
// where the server wants them, adds headers, turns every failed response into a *fault (the library loses Retry-After
// and some messages), and passes on only lines of data, because the library
// loses errors that come after comments.
type shim struct {
	next    Doer
	at      *endpoint
	key     *apiKey
	headers map[string]string
}

// apiKey is the key of a server. It is safe for concurrent use.
type apiKey struct {
	mu    sync.Mutex
	value string
	renew func() string
}

func (k *apiKey) get() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.value
}

// renewed reports whether there is another key than the refused one by now.
func (k *apiKey) renewed(refused string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.value == refused && k.renew != nil {
		if next := strings.TrimSpace(k.renew()); next != "" && validHeaderValue(next) {
			k.value = next
		}
	}
	return k.value != refused
}

// Do implements the library's HTTPDoer.
func (s *shim) Do(req *http.Request) (*http.Response, error) {
	w, _ := req.Context().Value(wireKey{}).(*wire)
	if w == nil {
		w = &wire{}
	}
	if w.alive == nil {
		w.alive = func() {}
	}
	req.URL.Path = s.at.path(req.URL.Path, w.model)
	req.URL.RawPath = ""
	req.URL.RawQuery = s.at.query
	req.Header.Set("User-Agent", "countersign")
	key := s.key.get()
	switch {
	case key == "":
	case s.at.brand == azure:
		req.Header.Del("Authorization")
		req.Header.Set(goopenai.AzureAPIKeyHeader, key)
	default:
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for k, v := range s.headers {
		if strings.EqualFold(k, "Host") {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	if w.edit != nil {
		if err := patch(req, w.edit); err != nil {
			return nil, err
		}
	}
	resp, err := s.next.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // a cut body still has a status
		f := faultOfResponse(resp, body)
		f.retry = f.retry || f.status == http.StatusUnauthorized && s.key.renewed(key)
		return nil, f
	}
	resp.Body = newFrames(resp, w)
	return resp, nil
}

func patch(req *http.Request, edit func([]byte) ([]byte, error)) error {
	if req.Body == nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return err
	}
	if body, err = edit(body); err != nil {
		return err
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return nil
}

// frames reads a body and gives out its data lines alone.
type frames struct {
	body   io.Closer
	in     *bufio.Reader
	wire   *wire
	left   int    // bytes of the answer that may still come
	out    []byte // not yet read
	err    error
	event  string // the kind of the event that is being read
	looked bool
}

func newFrames(resp *http.Response, w *wire) *frames {
	return &frames{body: resp.Body, wire: w, left: maxAnswer, in: bufio.NewReader(&noisy{resp.Body, w.alive})}
}

// noisy reports every read that brought something.
type noisy struct {
	io.Reader
	heard func()
}

func (n *noisy) Read(p []byte) (int, error) {
	k, err := n.Reader.Read(p)
	if k > 0 {
		n.heard()
	}
	return k, err
}

// Close implements io.Closer.
func (f *frames) Close() error { return f.body.Close() }

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if !f.looked {
			f.looked = true
			f.sniff()
			continue
		}
		f.line()
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// sniff finds out what kind of body this is by its first character.
func (f *frames) sniff() {
	for {
		c, err := f.in.ReadByte()
		if err != nil {
			f.err = err
			return
		}
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			if f.left--; f.left <= 0 {
				f.err = &fault{kind: tooBig}
				return
			}
			continue
		}
		_ = f.in.UnreadByte() // it was just read
		switch c {
		case '<':
			f.err = &fault{kind: webPage}
		case '{', '[': // no line of a stream begins so
			f.convertWhole()
		}
		return
	}
}

// convertWhole reads one JSON value: a completion or an error, sent although a stream
// was asked for.
func (f *frames) convertWhole() {
	body, err := io.ReadAll(io.LimitReader(f.in, maxAnswer+1))
	switch {
	case err != nil:
		f.err = err
		return
	case len(body) > maxAnswer:
		f.err = &fault{kind: tooBig}
		return
	}
	var value json.RawMessage
	if json.NewDecoder(bytes.NewReader(body)).Decode(&value) != nil {
		f.err = &fault{kind: garbled, retry: true}
		return
	}
	f.err = io.EOF
	if value[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || len(list) == 0 {
			f.err = &fault{kind: garbled, retry: true}
			return
		}
		for _, v := range list {
			f.emit(v)
		}
		return
	}
	f.emit(value)
}

// line reads one line of the stream.
func (f *frames) line() {
	var line []byte
	for {
		part, err := f.in.ReadSlice('\n')
		f.left -= len(part)
		line = append(line, part...)
		switch {
		case f.left < 0 || len(line) > maxFrame:
			f.err = &fault{kind: tooBig}
			return
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		}
		f.err = err
		break
	}
	field, data, _ := bytes.Cut(bytes.TrimPrefix(bytes.TrimSpace(line), []byte("\ufeff")), []byte(":"))
	data = bytes.TrimSpace(data)
	var failed bool
	switch string(field) {
	case "":
		if len(data) == 0 { // a blank line ends an event, a comment does not
			f.event = ""
		}
		return
	case "event":
		f.event = string(data)
		return
	case "data":
		failed = f.event == "error"
	case "error": // llama.cpp: a field of its own
		failed = true
	default:
		return
	}
	if len(data) == 0 {
		return
	}
	if failed {
		f.emit(asError(data))
		return
	}
	if string(data) == "[DONE]" {
		f.wire.done = true
		f.out = append(f.out, "data: [DONE]\n"...)
		return
	}
	if f.err != nil && !json.Valid(data) {
		return // cut in the middle of a frame
	}
	f.emit(data)
}

// asError makes a frame that says that data is an error.
func asError(data []byte) []byte {
	var o struct {
		Error json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(data, &o)
	if err == nil && fails(o.Error) {
		return data
	}
	var value any = json.RawMessage(data)
	if !json.Valid(data) {
		value = string(data)
	}
	out, err := json.Marshal(map[string]any{"error": value})
	if err != nil {
		return []byte(`{"error":"unknown"}`)
	}
	return out
}

// emit passes one frame on, on one line. The library would swallow a frame
// that begins with {"error": a space keeps it from noticing, so that errors
// reach us like any frame.
func (f *frames) emit(data []byte) {
	var one bytes.Buffer
	if json.Compact(&one, data) == nil {
		data = one.Bytes()
	}
	f.out = append(f.out, "data: "...)
	if rest, ok := bytes.CutPrefix(data, []byte("{")); ok {
		f.out = append(f.out, "{ "...)
		data = rest
	}
	f.out = append(append(f.out, data...), '\n')
}

// retryAfter reads how long the server wants us to wait; 0 means it did not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date // the clock that the time was computed with
		}
		return max(0, at.Sub(now))
	}
	return 0
}
