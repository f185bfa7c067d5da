// Package budget is the tool extend_budget. When a cap on tokens or money is reached, people see a
// card; their approval raises the cap once, by the amount on the card.
//
// It does not count spending, knows no caps, and does not decide when people are asked. Models are
// not offered it.
package budget

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

// Name is the tool's name.
const Name = "extend_budget"

// target is the target in actions: the bot itself, not a machine.
const target = "harness"

// The most that one call may request.
const (
	maxTokens = 1_000_000_000_000
	maxUSD    = 1_000_000
)

// The scopes of a call.
const (
	scopeThread  = "thread"
	scopeChannel = "channel"
	scopeDay     = "day"
)

//go:embed extend_budget.md
var description string

// Extension is what people approved.
type Extension struct {
	// Request is the approved request; its record names the approvers.
	Request approvals.ID
	Thread  string // where it was requested
	Channel string // of the thread; "" if it has none
	Scope   string // thread, channel or day
	Day     string // in UTC, as 2006-01-02; "" for scope thread
	Tokens  int64
	Micros  int64  // millionths of a US dollar
	By      string // the user whose turn it is; not necessarily an approver
}

// Store keeps extensions. It is safe for concurrent use.
type Store interface {
	// Extend stores x durably. A second call with the same Request changes nothing. On error
	// nothing was stored.
	Extend(ctx context.Context, x Extension) error
}

// Config configures the tool.
type Config struct {
	Store Store
	// Channel returns a thread's channel, named as in policy rules; "" if it has none. It must
	// always return the same name for a thread.
	Channel func(thread string) string
}

// New returns the tool.
func New(c Config) tools.Tool { return tool{c} }

type tool struct{ Config }

// Spec implements tools.Tool.
func (tool) Spec() tools.Spec {
	return tools.Spec{
		Name: Name, Description: description, Level: risk.Medium, Unlisted: true,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"scope": {Type: "string", Enum: []string{scopeThread, scopeChannel, scopeDay},
					Description: "Which cap is extended: that of this thread, of its channel on one day, or of all threads together on one day."},
				"day": {Type: "string", Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`,
					Description: "The day that it is for, in UTC, with the scopes channel and day; left out with scope thread."},
				"tokens": {Type: "integer", Minimum: 0, Maximum: maxTokens, Description: "How many more tokens, in and out together."},
				"usd":    {Type: "number", Minimum: 0, Maximum: maxUSD, Description: "How many more US dollars, in whole cents."},
			},
			Required: []string{"scope"},
		}),
	}
}

// Plan implements tools.Tool. The action's bytes hold its request's id, so no earlier approval (such
// as a standing grant for the same arguments) covers another call; people read the preview, which has
// no ids. It does not hold the amount spent so far, which changes while people decide.
func (t tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	x, err := t.extension(c)
	if err != nil {
		return tools.Plan{}, err
	}
	more := x.amount()
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: target, Args: c.Args,
		Bytes:   fmt.Appendf(nil, "for the request %s of the thread %s", x.Request, x.Thread),
		Preview: fmt.Sprintf("Let %s spend %s%s.\nThis counts once. Every other cap stays as it is.\n", x.subject(), more, x.dayPhrase()), Whole: true,
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: "extending the budget"})
		if err := t.Store.Extend(ctx, x); err != nil {
			return tools.Result{}, tools.Failed("the budget was not extended, because that could not be stored; look at the bot's log and try again: %w", err)
		}
		who := x.subject()
		text := strings.ToUpper(who[:1]) + who[1:] + " may spend " + more + x.dayPhrase() + "."
		sink(tools.Event{Kind: tools.Completed, Text: "extended"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// extension parses the arguments of a call.
func (t tool) extension(c tools.Call) (Extension, error) {
	var args struct {
		Scope  string      `json:"scope"`
		Day    string      `json:"day"`
		Tokens int64       `json:"tokens"`
		USD    json.Number `json:"usd"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return Extension{}, tools.Invalid("%v", err)
	}
	x := Extension{Request: approvals.NewID(c.Thread, c.ID), Thread: c.Thread, Scope: args.Scope, Day: args.Day, Tokens: args.Tokens, By: c.By}
	if t.Channel != nil {
		x.Channel = t.Channel(c.Thread)
	}
	var err error
	if x.Micros, err = micros(args.USD); err != nil {
		return Extension{}, err
	}
	_, noDay := time.Parse(time.DateOnly, x.Day)
	switch {
	case x.Tokens == 0 && x.Micros == 0:
		return Extension{}, tools.Invalid("this extends nothing; give tokens, usd, or both")
	case x.Scope == scopeThread && x.Day != "":
		return Extension{}, tools.Invalid("the cap of a thread holds on every day; leave day out with scope thread")
	case x.Scope != scopeThread && noDay != nil:
		return Extension{}, tools.Invalid("scope %s is about one day, and %s is none; give the day, such as 2026-01-31", x.Scope, tools.Quote(x.Day))
	case x.Scope == scopeChannel && x.Channel == "":
		return Extension{}, tools.Failed("this thread is in no channel, so there is no cap of a channel to extend; use scope thread or day")
	}
	return x, nil
}

var cents = regexp.MustCompile(`^([0-9]{1,7})(?:\.([0-9]{1,2}))?$`)

// micros parses US dollars in whole cents and returns millionths; "" is 0.
func micros(n json.Number) (int64, error) {
	if n == "" {
		return 0, nil
	}
	parts := cents.FindStringSubmatch(n.String())
	if parts == nil {
		return 0, tools.Invalid("usd is %s; give dollars in whole cents, such as 2.5", n)
	}
	v, err := strconv.ParseInt(parts[1]+(parts[2] + "00")[:2], 10, 64)
	if err != nil {
		return 0, tools.Invalid("usd is %s; give dollars in whole cents, such as 2.5", n)
	}
	return v * 10_000, nil
}

// subject names what the cap applies to.
func (x Extension) subject() string {
	switch x.Scope {
	case scopeThread:
		return "this thread"
	case scopeChannel:
		return "the channel " + x.Channel
	}
	return "all threads together"
}

// dayPhrase names the day that the extension applies to.
func (x Extension) dayPhrase() string {
	if x.Scope == scopeThread {
		return ""
	}
	return " on " + x.Day + " (UTC)"
}

// amount describes how much is added.
func (x Extension) amount() string {
	var out []string
	switch {
	case x.Tokens == 1:
		out = append(out, "1 more token")
	case x.Tokens > 1:
		out = append(out, thousands(x.Tokens)+" more tokens")
	}
	if x.Micros > 0 {
		out = append(out, fmt.Sprintf("$%s.%02d more", thousands(x.Micros/1_000_000), x.Micros%1_000_000/10_000))
	}
	return strings.Join(out, " and ")
}

// thousands formats a non-negative number as 1,204,500.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
