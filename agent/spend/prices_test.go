package spend_test

import (
	"math"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"countersign/agent/llm"
	"countersign/agent/spend"
)

const table = `
gpt-x: {in: 1.25, cached: 0.125, out: 10}
gpt-x*: {in: 2, out: 20}
gpt-*: {in: 3, out: 30}
free: {in: 0, out: 0}
tiny: {in: 0.000001, out: 0}
`

func prices(t *testing.T, text string) spend.Prices {
	t.Helper()
	var p spend.Prices
	if err := yaml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCharge(t *testing.T) {
	p := prices(t, table)
	for _, tt := range []struct {
		rule  string
		model string
		usage llm.Usage
		want  spend.Charge
	}{
		{"a price is for 1,000,000 tokens", "gpt-x", llm.Usage{In: 1_000_000, Out: 1_000_000}, spend.Charge{Amount: spend.Amount{Tokens: 2_000_000, Money: 11_250_000}}},
		{"cached tokens have their own price", "gpt-x", llm.Usage{In: 1000, Cached: 800, Out: 100}, spend.Charge{Amount: spend.Amount{Tokens: 1100, Money: 250 + 100 + 1000}}},
		{"without one they cost as much as others", "gpt-y", llm.Usage{In: 1000, Cached: 800}, spend.Charge{Amount: spend.Amount{Tokens: 1000, Money: 3000}}},
		{"reasoning tokens are a part of the output", "gpt-x", llm.Usage{Out: 100, Reasoning: 90}, spend.Charge{Amount: spend.Amount{Tokens: 100, Money: 1000}}},
		{"what the provider says wins over the table", "gpt-x", llm.Usage{In: 1000, Out: 100, Cost: 0.84}, spend.Charge{Amount: spend.Amount{Tokens: 1100, Money: 840_000}}},
		{"and needs no table", "other", llm.Usage{In: 1000, Cost: 0.25}, spend.Charge{Amount: spend.Amount{Tokens: 1000, Money: 250_000}}},
		{"a cost that is no number is none", "gpt-x", llm.Usage{In: 4, Cost: math.NaN()}, spend.Charge{Amount: spend.Amount{Tokens: 4, Money: 5}}},
		{"a negative cost is none", "gpt-x", llm.Usage{In: 4, Cost: -1}, spend.Charge{Amount: spend.Amount{Tokens: 4, Money: 5}}},
		{"an endless cost counts as a million dollars", "gpt-x", llm.Usage{In: 4, Cost: math.Inf(1)}, spend.Charge{Amount: spend.Amount{Tokens: 4, Money: 1_000_000_000_000}}},
		{"the longest name wins", "gpt-x-mini", llm.Usage{In: 1000}, spend.Charge{Amount: spend.Amount{Tokens: 1000, Money: 2000}}},
		{"a model without a price costs nothing and counts", "llama", llm.Usage{In: 10, Out: 1}, spend.Charge{Amount: spend.Amount{Tokens: 11}, Unpriced: "llama"}},
		{"a model without a name is said, too", "", llm.Usage{In: 10}, spend.Charge{Amount: spend.Amount{Tokens: 10}, Unpriced: "(unnamed)"}},
		{"a price of 0 is a price", "free", llm.Usage{In: 10}, spend.Charge{Amount: spend.Amount{Tokens: 10}}},
		{"a part of a micro-dollar counts as a whole one", "tiny", llm.Usage{In: 1}, spend.Charge{Amount: spend.Amount{Tokens: 1, Money: 1}}},
		{"no count is noted", "gpt-x", llm.Usage{}, spend.Charge{Uncounted: true}},
		{"and is no missing price", "llama", llm.Usage{}, spend.Charge{Uncounted: true}},
		{"negative counts are none", "gpt-x", llm.Usage{In: -5, Out: 4, Cached: -5}, spend.Charge{Amount: spend.Amount{Tokens: 4, Money: 40}}},
		{"no more is cached than there is", "gpt-x", llm.Usage{In: 8, Cached: 1000}, spend.Charge{Amount: spend.Amount{Tokens: 8, Money: 1}}},
		{"absurd counts do not wrap around", "gpt-x", llm.Usage{In: math.MaxInt, Out: math.MaxInt}, spend.Charge{Amount: spend.Amount{Tokens: math.MaxInt64, Money: 1_000_000_000_000}}},
	} {
		if got := p.Charge(tt.model, tt.usage); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.rule, got, tt.want)
		}
	}
	if c := (spend.Prices{"*": p["gpt-x"]}).Charge("", llm.Usage{In: 4}); c.Money != 5 || c.Unpriced != "" {
		t.Errorf(`"*" is not for every model: %+v`, c)
	}
	if _, ok := spend.Prices(nil).Find("gpt-x"); ok {
		t.Error("no table has a price")
	}
}

// Splitting a conversation over more replies never makes it cheaper, and by less than
// a micro-dollar a reply dearer.
func TestRoundingNeverLosesMoney(t *testing.T) {
	p := prices(t, table)
	rapid.Check(t, func(rt *rapid.T) {
		tokens := rapid.SliceOfN(rapid.IntRange(1, 100_000), 1, 20).Draw(rt, "replies")
		var parts spend.Money
		all := 0
		for _, n := range tokens {
			parts += p.Charge("gpt-x", llm.Usage{In: n}).Money
			all += n
		}
		whole := p.Charge("gpt-x", llm.Usage{In: all}).Money
		if parts < whole || parts > whole+spend.Money(len(tokens)) {
			rt.Errorf("in parts %d, whole %d", parts, whole)
		}
	})
}

func TestMoneyIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]spend.Money{"10": 10_000_000, "1.25": 1_250_000, "0.000001": 1, "0": 0, "1000000": 1_000_000_000_000, "'2.5'": 2_500_000, "": 0, "null": 0} {
		var c spend.Cap
		if err := yaml.Unmarshal([]byte("usd: "+text), &c); err != nil || c.USD != want {
			t.Errorf("%q: %d %v", text, c.USD, err)
		}
	}
	for _, text := range []string{"-1", "1e3", "ten", "0.0000001", "1000001", "99999999", "$5", ".5", "1.", "[1]", "{a: 1}", ".nan", ".inf", "0x10"} {
		var c spend.Cap
		if err := yaml.Unmarshal([]byte("tokens: 1\nusd: "+text), &c); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %d %v", text, c.USD, err)
		}
	}
}

func TestMoneyIsShownInCentsRoundedDown(t *testing.T) {
	for m, want := range map[spend.Money]string{0: "$0.00", 9_999: "$0.00", 10_000: "$0.01", 9_999_999: "$9.99", 10_000_000: "$10.00", 1_204_505_000: "$1,204.50", 1_000_000_000_000: "$1,000,000.00"} {
		if got := m.String(); got != want {
			t.Errorf("%d: %s, want %s", m, got, want)
		}
	}
}

func TestPricesThatAreWrongAreOneSentenceEach(t *testing.T) {
	for text, want := range map[string]string{
		"gpt-x: {in: 1}":               "prices.gpt-x has no out; add",
		"gpt-x: {out: 1}":              "prices.gpt-x has no in; add",
		"gpt-x: {in: , out: 1}":        "prices.gpt-x has no in; add",
		`"": {in: 1, out: 1}`:          `prices has the name ""`,
		"g*t: {in: 1, out: 1}":         `prices has the name "g*t"`,
		`"**": {in: 1, out: 1}`:        `prices has the name "**"`,
		`a: {}`:                        "prices.a has no in",
		`a: {in: 1, out: 1, cached: }`: "",
		`"*": {in: 1, out: 1}`:         "",
	} {
		var p spend.Prices
		if err := yaml.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err := p.Validate()
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	low, high := spend.Money(-1), spend.Money(1_000_000_000_001)
	if err := (spend.Prices{"a": {In: &low, Out: &high, Cached: &high}}).Validate(); err == nil || strings.Count(err.Error(), "must be between") != 3 {
		t.Errorf("%v", err)
	}
}
