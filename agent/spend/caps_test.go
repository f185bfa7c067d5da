package spend_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"countersign/agent/spend"
)

var rewrite = flag.Bool("update", false, "write the golden files")

func ctx(t rapid.TB) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	return context.Background()
}

func caps(t *testing.T, text string) spend.Caps {
	t.Helper()
	var c spend.Caps
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

const general = `
thread: {tokens: 2000000, usd: 10}
day: {tokens: , usd: 50}
channel: {usd: 20}
channels:
  slack:C1: {thread: {usd: 30}}
  slack:C2: {channel: {}}
`

func TestTheExampleOfTheDocumentIsValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var f struct {
		Prices spend.Prices `yaml:"prices"`
		Caps   spend.Caps   `yaml:"caps"`
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Prices.Validate(), f.Caps.Validate()); err != nil || len(f.Prices) != 3 || f.Caps.Of(spend.Thread, "slack:C0123456") != (spend.Cap{USD: usd(30)}) || f.Caps.Of(spend.Channel, "web") != (spend.Cap{}) {
		t.Errorf("%v %+v", err, f)
	}
}

func totals(p spend.Place, thread, channel, day spend.Amount) spend.Totals {
	return spend.Totals{Place: p, Sums: map[spend.Scope]spend.Sum{spend.Thread: {Amount: thread}, spend.Channel: {Amount: channel}, spend.Daily: {Amount: day}}}
}

func TestAChannelsOwnCapsReplaceTheGeneralOnes(t *testing.T) {
	c := caps(t, general)
	for _, tt := range []struct {
		scope   spend.Scope
		channel string
		want    spend.Cap
	}{
		{spend.Thread, "web", spend.Cap{Tokens: 2_000_000, USD: usd(10)}},
		{spend.Thread, "slack:C1", spend.Cap{USD: usd(30)}},
		{spend.Thread, "slack:C2", spend.Cap{Tokens: 2_000_000, USD: usd(10)}},
		{spend.Channel, "slack:C1", spend.Cap{USD: usd(20)}},
		{spend.Channel, "slack:C2", spend.Cap{}},
		{spend.Daily, "slack:C1", spend.Cap{USD: usd(50)}},
	} {
		if got := c.Of(tt.scope, tt.channel); got != tt.want {
			t.Errorf("%s in %s: %+v, want %+v", tt.scope, tt.channel, got, tt.want)
		}
	}
}

func TestCapsThatAreWrongAreOneSentenceEach(t *testing.T) {
	bad := spend.Cap{Tokens: -1, USD: -1}
	c := spend.Caps{Thread: bad, Day: bad, Channel: spend.Cap{Tokens: 1_000_000_000_001, USD: 1_000_000_000_001}, Channels: map[string]spend.ChannelCaps{"": {}, "web": {Thread: &bad, Channel: &bad}}}
	err := c.Validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	for _, want := range []string{
		"caps.thread.tokens is -1; use 0", "caps.thread.usd must be", "caps.day.tokens", "caps.day.usd", "caps.channel.tokens", "caps.channel.usd", "a channel without a name",
		"caps.channels.web.thread.tokens", "caps.channels.web.thread.usd", "caps.channels.web.channel.tokens", "caps.channels.web.channel.usd",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said in:\n%v", want, err)
		}
	}
}

func TestCheck(t *testing.T) {
	p := place("a", "web")
	for _, tt := range []struct {
		rule   string
		caps   string
		totals spend.Totals
		grants spend.Granted
		want   string // scopes that warn, then what is over: scope kinds used cap ask
	}{
		{"without caps nothing ends", "{}", totals(p, spend.Amount{Tokens: 1 << 60, Money: 1 << 60}, spend.Amount{Tokens: 1 << 60}, spend.Amount{Money: 1 << 60}), nil, "[]"},
		{"zero is no cap, whatever was granted", "thread: {usd: 0}", totals(p, spend.Amount{Money: 1 << 60}, spend.Amount{}, spend.Amount{}), spend.Granted{spend.Thread: {Tokens: 1, Money: 1}}, "[]"},
		{"below 80 % nothing is said", general, totals(p, spend.Amount{Tokens: 1_599_999, Money: usd(7.999999)}, spend.Amount{Money: usd(15.9)}, spend.Amount{Money: usd(39.9)}), nil, "[]"},
		{"at 80 % it warns", general, totals(p, spend.Amount{Tokens: 1_600_000}, spend.Amount{}, spend.Amount{}), nil, "[thread]"},
		{"of each scope", general, totals(p, spend.Amount{Money: usd(8)}, spend.Amount{Money: usd(16)}, spend.Amount{Money: usd(40)}), nil, "[thread channel day]"},
		{"one below the cap it goes on", general, totals(p, spend.Amount{Tokens: 1_999_999}, spend.Amount{}, spend.Amount{}), nil, "[thread]"},
		{"at the cap it stops", general, totals(p, spend.Amount{Tokens: 2_000_000}, spend.Amount{}, spend.Amount{}), nil, "[] thread [tokens] 2000000/0 2000000/10000000 1000000/0"},
		{"over it, too", general, totals(p, spend.Amount{Tokens: 2_000_431, Money: usd(1)}, spend.Amount{}, spend.Amount{}), nil, "[] thread [tokens] 2000431/1000000 2000000/10000000 1000000/0"},
		{"both kinds are asked for at once", general, totals(p, spend.Amount{Tokens: 2_000_431, Money: usd(10.01)}, spend.Amount{}, spend.Amount{}), nil, "[] thread [tokens usd] 2000431/10010000 2000000/10000000 1000000/5000000"},
		{"the narrowest scope comes first, and others warn", general, totals(p, spend.Amount{}, spend.Amount{Money: usd(20)}, spend.Amount{Money: usd(45)}), nil, "[day] channel [usd] 0/20000000 0/20000000 0/10000000"},
		{"what was granted counts", general, totals(p, spend.Amount{Tokens: 2_000_431}, spend.Amount{}, spend.Amount{}), spend.Granted{spend.Thread: {Tokens: 1_000_000}}, "[]"},
		{"and warns at 80 % of it all", general, totals(p, spend.Amount{Tokens: 2_400_000}, spend.Amount{}, spend.Amount{}), spend.Granted{spend.Thread: {Tokens: 1_000_000}}, "[thread]"},
		{"half of the cap is asked for, not of what was granted", general, totals(p, spend.Amount{Tokens: 3_000_000}, spend.Amount{}, spend.Amount{}), spend.Granted{spend.Thread: {Tokens: 1_000_000}}, "[] thread [tokens] 3000000/0 3000000/10000000 1000000/0"},
		{"another scope's grant does not", general, totals(p, spend.Amount{Tokens: 2_000_431}, spend.Amount{}, spend.Amount{}), spend.Granted{spend.Daily: {Tokens: 1_000_000}}, "[] thread [tokens] 2000431/0 2000000/10000000 1000000/0"},
		{"a small cap asks for 100,000 tokens and a dollar", "day: {tokens: 10, usd: 0.05}", totals(p, spend.Amount{}, spend.Amount{}, spend.Amount{Tokens: 10, Money: usd(0.05)}), nil, "[] day [tokens usd] 10/50000 10/50000 100000/1000000"},
		{"dollars are asked for in whole cents", "day: {usd: 3.333333}", totals(p, spend.Amount{}, spend.Amount{}, spend.Amount{Money: usd(4)}), nil, "[] day [usd] 0/4000000 0/3333333 0/1670000"},
		{"a lowered cap asks once", "thread: {tokens: 1000000}", totals(p, spend.Amount{Tokens: 9_900_000}, spend.Amount{}, spend.Amount{}), nil, "[] thread [tokens] 9900000/0 1000000/0 9500000/0"},
		{"nobody is asked for more than a call may hold", "thread: {tokens: 1}", totals(p, spend.Amount{Tokens: 1 << 62}, spend.Amount{}, spend.Amount{}), nil, "[] thread [tokens] 4611686018427387904/0 1/0 1000000000000/0"},
		{"a thread in no channel has no cap of one", "channel: {tokens: 1}", totals(place("a", ""), spend.Amount{}, spend.Amount{Tokens: 1}, spend.Amount{}), nil, "[]"},
		{"a cap of one token warns of nothing before it", "thread: {tokens: 1}", totals(p, spend.Amount{}, spend.Amount{}, spend.Amount{}), nil, "[]"},
	} {
		v := spend.Check(caps(t, tt.caps), tt.totals, tt.grants)
		var warn []spend.Scope
		for _, w := range v.Warnings {
			warn = append(warn, w.Scope)
		}
		got := fmt.Sprint(warn)
		if o := v.Over; o != nil {
			got += fmt.Sprintf(" %s %v %d/%d %d/%d %d/%d", o.Scope, o.Kinds, o.Used.Tokens, o.Used.Money, o.Cap.Tokens, o.Cap.Money, o.Ask.Tokens, o.Ask.Money)
			if o.Place != tt.totals.Place {
				t.Errorf("%s: %+v", tt.rule, o.Place)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

// Whatever the numbers are, an extension that is approved lets the scope go on, and
// touches no other one.
func TestAnApprovedExtensionIsEnough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		amount := func(name string, most int64) spend.Amount {
			return spend.Amount{Tokens: rapid.Int64Range(0, most).Draw(rt, name+" tokens"), Money: spend.Money(rapid.Int64Range(0, most).Draw(rt, name+" money"))}
		}
		bound := func(name string) spend.Cap {
			a := amount(name, 1e9)
			return spend.Cap{Tokens: a.Tokens, USD: a.Money}
		}
		c := spend.Caps{Thread: bound("thread"), Channel: bound("channel"), Day: bound("day")}
		tot := totals(place("a", "web"), amount("thread used", 1e10), amount("channel used", 1e10), amount("day used", 1e10))
		g := spend.Granted{}
		for n := 0; ; n++ {
			v := spend.Check(c, tot, g)
			if v.Over == nil {
				break
			}
			o := *v.Over
			if n == 3 {
				rt.Fatalf("asked again: %+v", o)
			}
			if _, twice := g[o.Scope]; twice || len(o.Kinds) == 0 {
				rt.Fatalf("%s is asked for twice: %+v", o.Scope, o)
			}
			if slices.Contains(o.Kinds, spend.Tokens) != (o.Ask.Tokens > 0) || slices.Contains(o.Kinds, spend.Dollars) != (o.Ask.Money > 0) || o.Ask.Money%10_000 != 0 {
				rt.Fatalf("asks for %+v, over in %v", o.Ask, o.Kinds)
			}
			if o.Ask.Tokens > 0 && o.Ask.Tokens < 100_000 || o.Ask.Money > 0 && o.Ask.Money < 1_000_000 {
				rt.Fatalf("asks for too little: %+v", o.Ask)
			}
			g[o.Scope] = o.Ask
		}
	})
}

func TestTheCallNamesScopeDayAndAmounts(t *testing.T) {
	for _, tt := range []struct {
		o    spend.Over
		want string
	}{
		{spend.Over{Place: place("a", "web"), Scope: spend.Thread, Ask: spend.Amount{Tokens: 1_000_000}}, `{"scope":"thread","tokens":1000000}`},
		{spend.Over{Place: place("a", "web"), Scope: spend.Channel, Ask: spend.Amount{Money: usd(25)}}, `{"scope":"channel","day":"2026-10-05","usd":25}`},
		{spend.Over{Place: place("a", "web"), Scope: spend.Daily, Ask: spend.Amount{Tokens: 5, Money: usd(1.67)}}, `{"scope":"day","day":"2026-10-05","tokens":5,"usd":1.67}`},
		{spend.Over{Place: place("a", "web"), Scope: spend.Daily, Ask: spend.Amount{Money: usd(2.5)}}, `{"scope":"day","day":"2026-10-05","usd":2.50}`},
	} {
		if got := tt.o.Args(); got != tt.want || !json.Valid([]byte(got)) {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// The golden file is written anew with -update.
func TestSentences(t *testing.T) {
	var b strings.Builder
	say := func(rule, s string) { fmt.Fprintf(&b, "# %s\n%s\n\n", rule, s) }
	c := caps(t, general)
	p := place("a", "web")
	usual := totals(p, spend.Amount{Tokens: 312_000, Money: usd(0.84)}, spend.Amount{Tokens: 400_000, Money: usd(1)}, spend.Amount{Tokens: 1_260_000, Money: usd(3.1)})
	say("status", spend.Status(usual, caps(t, "thread: {usd: 10}\nday: {usd: 50}"), nil))
	say("status with every cap", spend.Status(usual, c, nil))
	say("status without caps", spend.Status(usual, spend.Caps{}, nil))
	say("status of a thread without a channel", spend.Status(totals(place("a", ""), spend.Amount{Tokens: 1}, spend.Amount{}, spend.Amount{Tokens: 999_999}), caps(t, "channel: {usd: 1}"), nil))
	say("status of nothing", spend.Status(spend.Totals{Place: p}, c, nil))
	say("status after extensions", spend.Status(usual, c, spend.Granted{spend.Thread: {Tokens: 1_000_000, Money: usd(5)}, spend.Daily: {Tokens: 7, Money: usd(25)}}))
	say("an extension without a cap is not said", spend.Status(usual, spend.Caps{}, spend.Granted{spend.Thread: {Tokens: 1_000_000}}))
	odd := totals(p, spend.Amount{Tokens: 10}, spend.Amount{}, spend.Amount{Tokens: 20, Money: 1})
	odd.Sums[spend.Thread] = spend.Sum{Amount: spend.Amount{Tokens: 10}, Unpriced: []string{"llama"}, Uncounted: 1}
	odd.Sums[spend.Daily] = spend.Sum{Amount: spend.Amount{Tokens: 20, Money: 1}, Unpriced: []string{"llama", "other`x"}, Uncounted: 9}
	say("what is left out is said once", spend.Status(odd, spend.Caps{}, nil))
	odd.Sums[spend.Thread] = spend.Sum{Uncounted: 2}
	odd.Sums[spend.Daily] = spend.Sum{Uncounted: 9}
	say("replies without a count", spend.Status(odd, spend.Caps{}, nil))
	for _, w := range spend.Check(c, totals(p, spend.Amount{Tokens: 1_650_000, Money: usd(8.109)}, spend.Amount{Money: usd(16)}, spend.Amount{Money: usd(41)}), nil).Warnings {
		say("warning of "+string(w.Scope), w.Sentence)
	}
	for _, tot := range []spend.Totals{
		totals(p, spend.Amount{Tokens: 2_000_431, Money: usd(10.2)}, spend.Amount{}, spend.Amount{}),
		totals(p, spend.Amount{Tokens: 2_000_431}, spend.Amount{}, spend.Amount{}),
		totals(p, spend.Amount{}, spend.Amount{Money: usd(20)}, spend.Amount{}),
		totals(p, spend.Amount{}, spend.Amount{}, spend.Amount{Money: usd(50.5)}),
	} {
		o := spend.Check(c, tot, nil).Over
		say("over, "+string(o.Scope), o.Sentence()+"\n"+o.Refused())
	}
	const file = "testdata/sentences.golden"
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("is not as in %s:\n%s", file, b.String())
	}
}
