package spend

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Money is an amount of US dollars in micro-dollars: 1,000,000 are one dollar. In
// YAML it is a plain number of dollars with at most six decimals, such as 0.125.
type Money int64

// dollar is one US dollar; maxMoney bounds what one number of the configuration,
// one reply and one grant may be.
const (
	dollar   Money = 1_000_000
	cent           = dollar / 100
	maxMoney       = 1_000_000 * dollar
)

var decimal = regexp.MustCompile(`^([0-9]{1,7})(?:\.([0-9]{1,6}))?$`)

// UnmarshalYAML implements yaml.Unmarshaler. The number is taken as it is
// written, so that no digit is lost.
func (m *Money) UnmarshalYAML(n *yaml.Node) error {
	parts := decimal.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || parts == nil {
		return fmt.Errorf("line %d: %q is no amount of US dollars; write a number such as 1.25, with at most six decimals", n.Line, n.Value)
	}
	micros, err := strconv.ParseInt(parts[1]+(parts[2] + "000000")[:6], 10, 64)
	if err != nil || Money(micros) > maxMoney {
		return fmt.Errorf("line %d: %s is more than 1000000 US dollars; write less", n.Line, n.Value)
	}
	*m = Money(micros)
	return nil
}

// String shows whole cents, rounded down so that what is below a cap never looks
// like it: "$1,204.50".
func (m Money) String() string {
	return fmt.Sprintf("$%s.%02d", thousands(int64(m/dollar)), m%dollar/cent)
}

// Price is what a model costs, in US dollars for 1,000,000 tokens: the unit in
// which providers publish their prices.
type Price struct {
	In  *Money `yaml:"in"`
	Out *Money `yaml:"out"` // reasoning tokens are a part of these
	// Cached is for tokens of the input that the provider had cached; without it they
	// cost as much as In.
	Cached *Money `yaml:"cached,omitempty"`
}

// of is the price of these tokens, in whole micro-dollars, rounded up.
func (p Price) of(fresh, cached, out int64) Money {
	c := p.In
	if p.Cached != nil {
		c = p.Cached
	}
	total := new(big.Int)
	for _, part := range []struct {
		tokens int64
		price  *Money
	}{{fresh, p.In}, {cached, c}, {out, p.Out}} {
		if part.price != nil {
			total.Add(total, new(big.Int).Mul(big.NewInt(part.tokens), big.NewInt(int64(*part.price))))
		}
	}
	// A price for 1,000,000 tokens in micro-dollars is one for a token in a millionth
	// of a micro-dollar.
	const perMicro = 1_000_000
	total.Add(total, big.NewInt(perMicro-1)).Quo(total, big.NewInt(perMicro))
	if !total.IsInt64() {
		return maxMoney
	}
	return min(Money(total.Int64()), maxMoney)
}

// Prices maps the names of models to their prices. A name that ends in "*" is for
// all that begin like it. The zero value has no prices.
type Prices map[string]Price

// Find returns the price of a model: by its own name, or else by the longest name
// with a "*" that fits.
func (p Prices) Find(model string) (Price, bool) {
	if price, ok := p[model]; ok {
		return price, true
	}
	best, found := "", false
	for name := range p {
		if begin, ok := strings.CutSuffix(name, "*"); ok && strings.HasPrefix(model, begin) && (!found || len(begin) > len(best)) {
			best, found = begin, true
		}
	}
	if !found {
		return Price{}, false
	}
	return p[best+"*"], true
}

// Validate returns all mistakes, each one sentence that names its key.
func (p Prices) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	for _, name := range slices.Sorted(maps.Keys(p)) {
		price := p[name]
		if name == "" || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			bad("prices has the name %q; write the name of a model, with a * at its end at most", name)
		}
		for _, key := range []struct {
			name  string
			value *Money
			need  bool
		}{{"in", price.In, true}, {"out", price.Out, true}, {"cached", price.Cached, false}} {
			switch {
			case key.value == nil && key.need:
				bad("prices.%s has no %s; add what 1,000,000 tokens cost in US dollars, 0 if nothing", name, key.name)
			case key.value != nil && (*key.value < 0 || *key.value > maxMoney):
				bad("prices.%s.%s must be between 0 and 1000000 US dollars", name, key.name)
			}
		}
	}
	return errors.Join(errs...)
}
