// Package budget is the tool extend_budget: at a cap on tokens or money people are
// shown a card, and once they have approved it, what may be spent grows by what the
// card said, once.
//
// It does not count what is spent, knows no caps and does not decide when people
// are asked. Models are not told of it.
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

// target is what the action is about: the bot itself, no machine.
const target = "harness"

// The most that one call may ask for: whoever reads a card with more has no budget.
const (
	maxTokens = 1_000_000_000_000
	maxUSD    = 1_000_000
)

// The scopes, as they are in a call.
const (
	scopeThread  = "thread"
	scopeChannel = "channel"
	scopeDay     = "day"
)

//go:embed extend_budget.md
var description string

// Extension is what people approved.
type Extension struct {
	// Request is the request that they approved. Its record says who they are.
	Request approvals.ID
	Thread  string // where it was asked
	Channel string // of that thread; "" when it has none
	Scope   string // thread, channel or day
	Day     string // of UTC, as 2006-01-02; "" with scope thread
	Tokens  int64
	Micros  int64  // US dollars in millionths
	By      string // the user whose turn it is, who need not be among those who approved
}

// Store keeps extensions. It is safe for concurrent use.
type Store interface {
	// Extend keeps x durably. The same Request again changes nothing. Its error means
	// that nothing was kept.
	Extend(ctx context.Context, x Extension) error
}

// Config is what the tool needs.
type Config struct {
	Store Store
	// Channel names the channel of a thread as rules of the policy do, always the same
	// for one thread; "" when it has none.
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
				"scope":  {Type: "string", Enum: []string{scopeThread, scopeChannel, scopeDay}, Description: "Which cap is extended: that of this thread, of its channel on one day, or of all threads together on one day."},
				"day":    {Type: "string", Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`, Description: "The day that it is for, in UTC, with the scopes channel and day; left out with scope thread."},
				"tokens": {Type: "integer", Minimum: 0, Maximum: maxTokens, Description: "How many more tokens, in and out together."},
				"usd":    {Type: "number", Minimum: 0, Maximum: maxUSD, Description: "How many more US dollars, in whole cents."},
			},
			Required: []string{"scope"},
		}),
	}
}

// Plan implements tools.Tool. The action holds the id of its request, so that
// nothing that was approved before, a standing grant for exactly this included, is
// good for another call; and nothing of what is spent by now, which changes while
// people decide.
func (t tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	x, err := t.extension(c)
	if err != nil {
		return tools.Plan{}, err
	}
	more := x.more()
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: target, Args: c.Args,
		Preview: fmt.Sprintf("Let %s spend %s%s.\n\nThis counts once, for the request %s. Every other cap stays as it is.\n", x.whose(), more, x.when(), x.Request), Whole: true,
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: "extending the budget"})
		if err := t.Store.Extend(ctx, x); err != nil {
			return tools.Result{}, tools.Failed("the budget was not extended, because that could not be stored; look at the bot's log and try again: %w", err)
		}
		who := x.whose()
		text := strings.ToUpper(who[:1]) + who[1:] + " may spend " + more + x.when() + "."
		sink(tools.Event{Kind: tools.Completed, Text: "extended"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// extension reads a call.
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

// micros reads US dollars with whole cents as millionths; "" is none.
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

// whose says what the cap is of.
func (x Extension) whose() string {
	switch x.Scope {
	case scopeThread:
		return "this thread (" + x.Thread + ")"
	case scopeChannel:
		return "the channel " + x.Channel
	}
	return "all threads together"
}

// when says on which day it holds.
func (x Extension) when() string {
	if x.Scope == scopeThread {
		return ""
	}
	return " on " + x.Day + " (UTC)"
}

// more says how much.
func (x Extension) more() string {
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

// thousands writes a number that is not negative as 1,204,500.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
