package spend

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a cap, and of one extension. The least extensions are so large that
// nobody is asked again for the next reply.
const (
	maxTokens   = 1_000_000_000_000
	leastTokens = 100_000
	leastMoney  = dollar
)

// Cap bounds what may be spent in one scope; 0 is no bound.
type Cap struct {
	Tokens int64 `yaml:"tokens"` // in and out together, as the provider counts them
	USD    Money `yaml:"usd"`
}

// Caps are the bounds of the configuration. The zero value has none.
type Caps struct {
	Thread  Cap `yaml:"thread"`  // each thread
	Day     Cap `yaml:"day"`     // all threads together, each day
	Channel Cap `yaml:"channel"` // each channel, each day
	// Channels are the exceptions, by channels as rules of the policy name them
	// ("slack:C0123456", "web").
	Channels map[string]ChannelCaps `yaml:"channels,omitempty"`
}

// None reports whether nothing is capped.
func (c Caps) None() bool {
	return c.Thread == (Cap{}) && c.Day == (Cap{}) && c.Channel == (Cap{}) && len(c.Channels) == 0
}

// ChannelCaps are the caps of one channel, whole and in place of the general ones;
// nil leaves the general one.
type ChannelCaps struct {
	Thread  *Cap `yaml:"thread,omitempty"`  // each of its threads
	Channel *Cap `yaml:"channel,omitempty"` // the channel, each day
}

// Of returns the cap of a scope for the threads of a channel.
func (c Caps) Of(s Scope, channel string) Cap {
	own := c.Channels[channel]
	switch {
	case s == Thread && own.Thread != nil:
		return *own.Thread
	case s == Thread:
		return c.Thread
	case s == Channel && own.Channel != nil:
		return *own.Channel
	case s == Channel:
		return c.Channel
	}
	return c.Day
}

// Validate returns all mistakes, each one sentence that names its key.
func (c Caps) Validate() error {
	var errs []error
	check := func(at string, p *Cap) {
		if p == nil {
			return
		}
		if p.Tokens < 0 || p.Tokens > maxTokens {
			errs = append(errs, fmt.Errorf("%s.tokens is %d; use 0 (no cap) to %d", at, p.Tokens, maxTokens))
		}
		if p.USD < 0 || p.USD > maxMoney {
			errs = append(errs, fmt.Errorf("%s.usd must be between 0 (no cap) and 1000000 US dollars", at))
		}
	}
	check("caps.thread", &c.Thread)
	check("caps.day", &c.Day)
	check("caps.channel", &c.Channel)
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		if name == "" {
			errs = append(errs, errors.New(`caps.channels has a channel without a name; write it as "slack:C0123456", "discord:ID" or "web"`))
		}
		own := c.Channels[name]
		check("caps.channels."+name+".thread", own.Thread)
		check("caps.channels."+name+".channel", own.Channel)
	}
	return errors.Join(errs...)
}

// Kind says which side of a cap is meant.
type Kind string

// The kinds.
const (
	Tokens  Kind = "tokens"
	Dollars Kind = "usd"
)

// kinds are in the order in which they are said.
var kinds = [...]Kind{Tokens, Dollars}

// of returns one side of an amount as a number.
func (k Kind) of(a Amount) int64 {
	if k == Tokens {
		return a.Tokens
	}
	return int64(a.Money)
}

// amount is one side of an amount.
func (k Kind) amount(n int64) Amount {
	if k == Tokens {
		return Amount{Tokens: n}
	}
	return Amount{Money: Money(n)}
}

// Verdict is what [Check] finds. The zero Verdict is: go on.
type Verdict struct {
	// Warnings are the scopes that used 80 % of their cap, or more; give them to
	// [Tell].
	Warnings []Warning
	// Over is the narrowest scope that used up its cap; nil when none did. The model
	// is not to be asked again until people allowed more.
	Over *Over
}

// Warning is a sentence for the thread about one scope.
type Warning struct {
	Scope    Scope
	Sentence string
}

// Over is a cap that is used up.
type Over struct {
	Place
	Scope Scope
	Kinds []Kind // what is used up: tokens, usd, or both
	Used  Amount
	Cap   Amount // with what was granted; 0 is no cap
	// Ask is the extension to ask for, of Kinds only: half of the configured cap, and at
	// least 100,000 tokens or 1 US dollar; so many times that at least half of one is
	// left afterwards. Dollars are whole cents.
	Ask Amount
}

// Check compares what was spent with the caps and what people allowed beyond
// them. It is pure. A cap is used up when all of it is spent; nothing is known of
// the next reply, so the reply that reaches it goes over it.
func Check(c Caps, t Totals, g Granted) Verdict {
	var v Verdict
	for _, s := range scopes {
		if s == Channel && t.Channel == "" {
			continue
		}
		conf, used, limit := c.Of(s, t.Channel), t.Sums[s].Amount, c.limit(s, t.Channel, g)
		o := Over{Place: t.Place, Scope: s, Used: used, Cap: limit}
		var near []Kind
		for _, k := range kinds {
			u, l := k.of(used), k.of(limit)
			switch {
			case l == 0:
			case u >= l:
				o.Kinds = append(o.Kinds, k)
				o.Ask = o.Ask.plus(k.amount(amountToAsk(k, k.of(Amount{conf.Tokens, conf.USD}), u, l)))
			case u >= l-l/5:
				near = append(near, k)
			}
		}
		switch {
		case len(o.Kinds) > 0:
			if v.Over == nil {
				v.Over = &o
			}
		case len(near) > 0:
			v.Warnings = append(v.Warnings, Warning{s, warning(s, used, limit, near)})
		}
	}
	return v
}

// limit is what may be spent in a scope: its cap and the grants. A side without a
// cap has none, whatever was granted.
func (c Caps) limit(s Scope, channel string, g Granted) Amount {
	var out Amount
	conf := c.Of(s, channel)
	if conf.Tokens > 0 {
		out.Tokens = sum(conf.Tokens, g[s].Tokens)
	}
	if conf.USD > 0 {
		out.Money = Money(sum(int64(conf.USD), int64(g[s].Money)))
	}
	return out
}

// amountToAsk is how much more to ask for of one kind: so much that neither a cap that was
// lowered nor one large reply asks twice.
func amountToAsk(k Kind, conf, used, limit int64) int64 {
	least, round, most := int64(leastTokens), int64(1), int64(maxTokens)
	if k == Dollars {
		least, round, most = int64(leastMoney), int64(cent), int64(maxMoney)
	}
	half := max((conf+1)/2, least)
	half = min((half+round-1)/round*round, most)
	gap := used - limit // not negative: the cap is used up
	if gap > most {
		return most
	}
	n := (gap + half/2 + half - 1) / half
	if n > most/half {
		return most
	}
	return max(n, 1) * half
}

// Args are the arguments of the call of [Tool] that asks for the extension, as a
// JSON object. A scope of one day names its day, so that what is approved after
// midnight still is for the day that was shown.
func (o Over) Args() string {
	args := struct {
		Scope  Scope       `json:"scope"`
		Day    Day         `json:"day,omitempty"`
		Tokens int64       `json:"tokens,omitempty"`
		USD    json.Number `json:"usd,omitempty"`
	}{Scope: o.Scope, Tokens: o.Ask.Tokens}
	if o.Scope != Thread {
		args.Day = o.Day
	}
	if m := o.Ask.Money; m > 0 {
		args.USD = json.Number(strings.TrimSuffix(strconv.FormatInt(int64(m/dollar), 10)+fmt.Sprintf(".%02d", m%dollar/cent), ".00"))
	}
	b, err := json.Marshal(args)
	if err != nil { // strings and numbers always encode
		panic(fmt.Sprintf("spend: arguments: %v", err))
	}
	return string(b)
}
