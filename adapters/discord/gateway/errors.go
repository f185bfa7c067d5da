package gateway

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What Discord's refusals come down to. errors.Is finds them in what the calls
// of [REST] return.
var (
	// ErrGone means that the channel, message, guild or interaction no longer
	// exists; trying again is useless.
	ErrGone = errors.New("discord: it is gone")
	// ErrRejected means that Discord refused the content or the moment for good;
	// a plainer form may still be accepted. [Error].Code says more.
	ErrRejected = errors.New("discord: the request was rejected")
	// ErrForbidden means that the bot lacks a permission there.
	ErrForbidden = errors.New("discord: a permission is missing")
	// ErrUnauthorized means that Discord does not know the token. Nothing is
	// called for a while after it: thousands of refused calls make Discord shut
	// out the address.
	ErrUnauthorized = errors.New("discord: the bot's token was refused; put the token of the page https://discord.com/developers/applications, your app, Bot, into DISCORD_BOT_TOKEN")
)

// Error codes that callers act upon
// (docs.discord.com/developers/topics/opcodes-and-status-codes, "JSON Error Codes").
const (
	CodeUnknownChannel     = 10003
	CodeUnknownMessage     = 10008
	CodeUnknownWebhook     = 10015
	CodeUnknownInteraction = 10062
	CodeOldEdits           = 30046 // too many edits of a message that is older than an hour
	CodeAcknowledged       = 40060 // the interaction has been answered already
	CodeMissingAccess      = 50001
	CodeCannotDM           = 50007
	CodeMissingPermissions = 50013
	CodeInvalidForm        = 50035
	CodeArchived           = 50083  // the thread is archived
	CodeThreadExists       = 160004 // the message has a thread already; its id is the message's
	CodeThreadLocked       = 160005
)

// Error is an answer of Discord's API that is no success.
type Error struct {
	Call    string // the method and the route, without ids and tokens
	Status  int    // of HTTP
	Code    int    // Discord's own, 0 when there is none
	Message string
	Fields  []string // of an invalid form: "embeds.0.title: must be 256 or fewer in length"
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "discord refused %s: %s (HTTP %d", e.Call, orElse(e.Message, "no reason given"), e.Status)
	if e.Code != 0 {
		fmt.Fprintf(&b, ", code %d", e.Code)
	}
	b.WriteString(")")
	if len(e.Fields) > 0 {
		b.WriteString(": " + strings.Join(e.Fields, "; "))
	}
	return b.String()
}

// Is implements the interface of errors.Is.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrGone:
		return e.Status == 404 || e.Status == 410
	case ErrForbidden:
		return e.Status == 403
	case ErrUnauthorized:
		return e.Status == 401 && e.Code != codeWebhookToken
	case ErrRejected:
		return e.Status >= 400 && e.Status < 500 && e.Status != 401 && e.Status != 403 && e.Status != 404 && e.Status != 410 && e.Status != 429
	}
	return false
}

// codeWebhookToken refuses the token of an interaction that is too old, not the bot's.
const codeWebhookToken = 50027

// Code is Discord's own code in an error of [REST], 0 when there is none.
func Code(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// Scope says whose limit was reached.
type Scope string

// The scopes: Discord's three, Cloudflare in front of it, and our own guard.
const (
	ScopeUser   Scope = "user"
	ScopeShared Scope = "shared"
	ScopeGlobal Scope = "global"
	ScopeEdge   Scope = "edge"
	ScopeGuard  Scope = "guard" // too many refused calls; we stopped before Discord shuts out the address
)

// RateLimitedError means that a call was not made, or was refused, because of a
// limit, and that waiting it out would have taken longer than the caller allows.
type RateLimitedError struct {
	Call  string
	Scope Scope
	After time.Duration // when to come again
}

// Error implements error.
func (e *RateLimitedError) Error() string {
	if e.Scope == ScopeGuard {
		return fmt.Sprintf("discord refused so many calls that no more are made for %s; look in the log for what was refused", e.After.Round(time.Second))
	}
	return fmt.Sprintf("discord accepts no %s for %s (limit: %s); try again then", e.Call, e.After.Round(time.Millisecond), e.Scope)
}

// FatalError means that Discord will refuse the bot until a person changes
// something.
type FatalError struct {
	Code int    // the close code, or 401
	Fix  string // one sentence: what is wrong and what to do
}

// Error implements error.
func (e *FatalError) Error() string { return "discord: " + e.Fix }

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
