// Package spend counts what models cost, in tokens and in money, for each thread,
// for each channel and day, and for each day, and compares the sums with caps. At
// a cap people are asked; what they allow beyond it is a [Grant].
//
// The flow: [Prices.Charge] makes a [Charge] of one reply's usage, [Add] counts it
// in the transaction that stores the reply, [Check] compares [Load]'s sums with
// the [Caps], and [Status] says it to people.
//
// Money is counted in whole micro-dollars and tokens in whole tokens; no sum is a
// floating point number. Days are those of UTC.
//
// Keys:
//
//	("spend", "thread", thread)                           -> sum and last day as JSON
//	("spend", "age", last day, thread)                    -> nothing; finds old threads for Prune
//	("spend", "day", day, shard)                          -> Sum as JSON; all shards together are the day's
//	("spend", "channel", day, channel, shard)             -> Sum as JSON; likewise
//	("spend", "grant", "thread", thread, request)         -> Grant as JSON
//	("spend", "grant", "day", day, request)               -> Grant as JSON
//	("spend", "grant", "channel", day, channel, request)  -> Grant as JSON
//	("spend", "told", day, scope, thread or channel)      -> nothing; the warning was given
//
// It does not ask the model or people, does not stop a turn, and does not know
// which channel a thread is in. A reply whose server counts no tokens counts none
// here either; [Status] says how many there were.
package spend

import (
	"math"
	"time"

	"countersign/agent/llm"
)

// Tool is the name of the tool whose call people are asked to approve at a cap;
// [Over.Args] are its arguments. Package tools/budget makes it.
const Tool = "extend_budget"

// Scope is what a cap and a grant are about. Scopes are stored.
type Scope string

// The scopes, from the narrowest to the widest.
const (
	Thread  Scope = "thread"  // one thread, for as long as it lives
	Channel Scope = "channel" // all threads of one channel on one day
	Daily   Scope = "day"     // all threads on one day
)

// scopes are in the order in which caps are looked at.
var scopes = [...]Scope{Thread, Channel, Daily}

// Day is a date of UTC as 2006-01-02; days sort as dates do.
type Day string

// DayOf returns the day of a moment.
func DayOf(t time.Time) Day { return Day(t.UTC().Format(time.DateOnly)) }

// valid reports whether d is the date of a real day.
func (d Day) valid() bool {
	_, err := time.Parse(time.DateOnly, string(d))
	return err == nil
}

// Place is where something is spent.
type Place struct {
	// Thread is the thread's ID, Channel its channel as rules of the policy name it
	// ("slack:C0123456", "web"); an empty one is not counted by itself.
	Thread, Channel string
	Day             Day
	// Person is whose turn it is, as people call them; "" is not counted.
	Person string
}

// name is what tells places of one scope and one day apart.
func (p Place) name(s Scope) string {
	switch s {
	case Thread:
		return p.Thread
	case Channel:
		return p.Channel
	default:
		return ""
	}
}

// Amount is how much of both kinds.
type Amount struct {
	Tokens int64 `json:"tokens,omitempty"` // in and out together
	Money  Money `json:"micros,omitempty"`
}

func (a Amount) plus(b Amount) Amount {
	return Amount{sum(a.Tokens, b.Tokens), Money(sum(int64(a.Money), int64(b.Money)))}
}

// sum adds amounts and stops at the largest number instead of going around.
// Negative amounts count as nothing.
func sum(a, b int64) int64 {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Charge is what one reply adds.
type Charge struct {
	Amount
	// Unpriced is the model, when it has no price and its provider named none.
	Unpriced string
	Model    string // that replied; "" is not counted
	// Uncounted means that the server did not say how many tokens it took.
	Uncounted bool
}

// Charge works out what one reply of a model cost. What the provider says that it
// charged wins; otherwise the tokens are priced by the table, of which those that
// the provider had cached cost the price for cached ones. Reasoning tokens are a
// part of the output. A part of a micro-dollar counts as a whole one. A model
// without a price costs nothing, and Unpriced names it.
func (p Prices) Charge(model string, u llm.Usage) Charge {
	in, out := int64(max(u.In, 0)), int64(max(u.Out, 0))
	cached := min(int64(max(u.Cached, 0)), in)
	c := Charge{Amount: Amount{Tokens: sum(in, out)}, Uncounted: in == 0 && out == 0}
	switch price, ok := p.Find(model); {
	case u.Cost > 0: // not so for NaN
		c.Money = Money(math.Round(min(u.Cost, float64(maxMoney/dollar)) * float64(dollar)))
	case ok:
		c.Money = price.of(in-cached, cached, out)
	case !c.Uncounted:
		c.Unpriced = model
		if model == "" {
			c.Unpriced = "(unnamed)"
		}
	}
	return c
}
