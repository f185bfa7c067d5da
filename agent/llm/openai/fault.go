package openai

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"

	goopenai "github.com/sashabaranov/go-openai"
)

// kind names a fault for logs and sentences.
type kind string

const (
	refused      kind = "status"     // a failed HTTP status
	inStream     kind = "in stream"  // an error inside a stream
	incomplete   kind = "incomplete" // the stream ended early
	garbled      kind = "garbled"    // not the JSON that it should be
	webPage      kind = "web page"   // HTML where JSON should be
	tooBig       kind = "too big"
	silent       kind = "silent"
	unreachable  kind = "unreachable"
	untrusted    kind = "untrusted" // TLS
	unsupported  kind = "unsupported"
	filtered     kind = "filtered"     // nothing is left of the reply
	untranslated kind = "untranslated" // calls came as text
)

// errSilence is why an attempt was given up.
var errSilence = errors.New("no data came")

// fault is why one attempt failed. It never holds a raw body.
type fault struct {
	kind    kind
	status  int
	message string // the server's words, one short line
	words   string // all of them, to look names up in; nobody is shown them
	retry   bool
	after   time.Duration // what the server asked for
	tooLong bool
	quota   bool // the account is empty: waiting does not help
	wants   wish // how the server wants the request instead
	cause   error
}

// Error implements error.
func (f *fault) Error() string {
	s := "model: " + string(f.kind)
	if f.status != 0 {
		s += fmt.Sprintf(" %d", f.status)
	}
	if f.cause != nil {
		s += ": " + f.cause.Error()
	}
	return s
}

func (f *fault) Unwrap() error { return f.cause }

var tooLongWords = regexp.MustCompile(`(?i)context[_ ](length|size|window)|maximum context|(prompt|input|request|conversation) (is )?too (long|large)|too many (input |prompt )?tokens|exceeds? the (maximum|max|model'?s)[^.]{0,30} tokens`)

func faultOfResponse(resp *http.Response, body []byte) *fault {
	f := &fault{kind: refused, status: resp.StatusCode, after: retryAfter(resp.Header, time.Now())}
	var code string
	f.message, code = bodyErrorText(body)
	f.judge(code)
	switch {
	case f.quota || f.tooLong:
	case resp.Header.Get("X-Should-Retry") == "true":
		f.retry = true
	case resp.Header.Get("X-Should-Retry") == "false":
	default:
		f.retry = transient(f.status)
	}
	return f
}

func transient(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooEarly ||
		status == http.StatusTooManyRequests || status >= 500
}

// faultInStream reads the error member of a frame. Most are overload, so they
// are tried again unless they say otherwise.
func faultInStream(raw json.RawMessage) *fault {
	f := &fault{kind: inStream, retry: true}
	var code string
	f.message, code = errorText(raw)
	var n struct {
		Code   json.Number `json:"code"`
		Status json.Number `json:"status"`
	}
	_ = json.Unmarshal(raw, &n) // other shapes have no number
	for _, v := range []json.Number{n.Status, n.Code} {
		if s, err := v.Int64(); err == nil && s >= 400 && s < 600 {
			f.status = int(s)
			f.retry = transient(f.status)
		}
	}
	f.judge(code)
	if f.quota || f.tooLong || strings.Contains(code, "invalid_") || strings.Contains(code, "authentication") || strings.Contains(code, "_policy") || f.wants&wantAnotherModel != 0 {
		f.retry = false
	}
	if f.status == 0 && strings.Contains(code, "rate_limit") {
		f.status = http.StatusTooManyRequests
	}
	return f
}

func (f *fault) judge(code string) {
	f.tooLong = f.status == http.StatusRequestEntityTooLarge || strings.Contains(code, "context_length") || strings.Contains(code, "context_size") ||
		((f.status == 0 || f.status == 400 || f.status == 422 || f.status == 500) && tooLongWords.MatchString(f.message))
	if f.status == http.StatusTooManyRequests && strings.Contains(strings.ToLower(f.message), "request too large") {
		f.tooLong = true // larger than a whole minute's allowance: waiting does not help
	}
	f.quota = strings.Contains(code, "insufficient_quota") || strings.Contains(code, "billing") || f.status == http.StatusPaymentRequired
	f.wants = wishes(f.status, f.message, code)
}

var (
	// "This model is only supported in v1/responses and not in v1/chat/completions."
	responsesWords = regexp.MustCompile(`(?i)\bv1/responses\b|\bresponses (api|endpoint)\b`)
	// "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
	maxWords = regexp.MustCompile(`(?i)\bmax_(completion_)?tokens\b`)
	// "The encrypted content for item rs_1 could not be verified."
	// "Item with id 'rs_1' not found. Items are not persisted when `+"`store`"+` is set to false."
	opaqueWords = regexp.MustCompile(`(?i)encrypted content .{0,80}(could not|cannot|can't|invalid)|items are not persisted|required '?(following|reasoning)'? item`)
	// "The model `+"`gpt-9`"+` does not exist or you do not have access to it.", "x is not a valid model ID"
	absentWords  = regexp.MustCompile(`(?i)\bmodels?\b.{0,60}\b(not found|not exist|doesn't exist|not available|unavailable|not loaded|decommissioned)|not a valid model|(unknown|invalid|no such) model|no endpoints found`)
	refusedWords = regexp.MustCompile(`(?i)unsupported|not supported|unknown|unrecogni[sz]ed|extra (inputs|fields)|not (allowed|permitted)|unexpected|instead`)
	missingWords = regexp.MustCompile(`(?i)missing|required|must be`)
)

// wishes reads out of a refusal's words how the request should have been.
func wishes(status int, message, code string) wish {
	var w wish
	switch status {
	case 0, http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
	default:
		return 0
	}
	refuses := refusedWords.MatchString(message)
	if responsesWords.MatchString(message) {
		w |= wantResponses
	}
	if maxWords.MatchString(message) && refuses {
		w |= wantOtherMax
	}
	if (strings.Contains(message, "stream_options") || strings.Contains(message, "include_usage")) && refuses {
		w |= wantNoUsage
	}
	if (strings.Contains(message, "reasoning.encrypted_content") || strings.Contains(strings.ToLower(message), "encrypted content is not")) && refuses {
		w |= wantNoInclude
	}
	if strings.Contains(code, "invalid_encrypted_content") || opaqueWords.MatchString(message) {
		w |= wantNoOpaque
	}
	switch thoughts := strings.Contains(message, "reasoning_content") || strings.Contains(message, "reasoning_details"); {
	case thoughts && missingWords.MatchString(message):
		w |= wantReasoning
	case thoughts && refuses:
		w |= wantNoOpaque
	}
	if w&wantResponses == 0 && (strings.Contains(code, "model_not_found") || absentWords.MatchString(message)) {
		w |= wantAnotherModel
	}
	return w
}

// elsewhere says whether another model of the same server may do better.
func (f *fault) elsewhere() bool {
	switch {
	case f.quota, f.tooLong, f.status == http.StatusUnauthorized, f.status == http.StatusForbidden:
		return false
	case f.status == http.StatusTooManyRequests, f.status >= 500, f.status == http.StatusNotFound, f.wants&wantAnotherModel != 0:
		return true
	case f.status != 0:
		return f.retry
	}
	return f.retry && f.kind != unreachable
}

// bodyErrorText reads the message of an error's body: an object, an array with one
// object, or an error that is a string. Anything else, such as a web page,
// says nothing.
func bodyErrorText(body []byte) (message, code string) {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		return "", ""
	}
	if fails(o["error"]) {
		return errorText(o["error"])
	}
	return errorText(body)
}

// errorText reads {"message":…,"code":…,"type":…} or a string.
func errorText(raw json.RawMessage) (message, code string) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, ""
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil {
		return "", ""
	}
	for _, k := range []string{"message", "detail"} {
		var list []string
		if json.Unmarshal(o[k], &s) == nil && s != "" {
			message = s
		} else if json.Unmarshal(o[k], &list) == nil {
			message = strings.Join(list, ", ")
		}
		if message != "" {
			break
		}
	}
	for _, k := range []string{"code", "type", "status"} {
		s = ""
		if json.Unmarshal(o[k], &s) == nil {
			code += " " + strings.ToLower(s)
		}
	}
	return message, code
}

var markup = regexp.MustCompile(`(?i)<\s*(!doctype|html|head|body|title|center|h1|p|div|script)\b`)

// clean makes the server's words fit for a sentence: one line, short, without
// web pages and without our key.
func (c *Client) clean(f *fault) *fault {
	f.words = f.message
	m := f.message
	if markup.MatchString(m) {
		m = ""
	}
	secrets := []string{c.cfg.APIKey, c.key.get()}
	for _, v := range c.cfg.Headers {
		secrets = append(secrets, v)
	}
	for _, s := range secrets {
		if len(s) >= 6 {
			m = strings.ReplaceAll(m, s, "***")
		}
	}
	m = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, m)
	m = strings.Join(strings.Fields(m), " ")
	if r := []rune(m); len(r) > 200 {
		m = string(r[:200]) + "…"
	}
	f.message = strings.TrimRight(m, ". ")
	return f
}

// faultOf classifies what an attempt returned.
func (c *Client) faultOf(ctx context.Context, err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return c.clean(f)
	}
	if errors.Is(context.Cause(ctx), errSilence) {
		return &fault{kind: silent, retry: true, cause: errSilence}
	}
	var (
		cert  x509.UnknownAuthorityError
		host  x509.HostnameError
		inval x509.CertificateInvalidError
	)
	switch {
	case errors.Is(err, goopenai.ErrReasoningToolsRequireResponses):
		return &fault{kind: unsupported, cause: err, wants: wantResponses}
	case errors.Is(err, goopenai.ErrChatCompletionInvalidModel):
		return &fault{kind: unsupported, cause: err}
	case errors.As(err, &cert), errors.As(err, &host), errors.As(err, &inval), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return &fault{kind: untrusted, cause: plain(err)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return &fault{kind: incomplete, retry: true, cause: plain(err)}
	}
	return &fault{kind: unreachable, retry: true, cause: plain(err)}
}

// plain drops the address that net/http puts before its errors.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
