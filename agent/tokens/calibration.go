package tokens

import "sync"

const (
	// learnRate is how much the newest report counts.
	learnRate = 0.3
	// learnFrom is the least estimate that says anything: below it the provider's own
	// framing of a request is most of the difference.
	learnFrom = 200
	// overStep is by how much a factor grows when a server says that a request which
	// should have fitted does not.
	overStep = 1.25
	// maxModels bounds what is remembered; names come from the configuration and are few.
	maxModels = 256
)

// The bounds of a factor. What lies beyond them is a server that counts something
// else than this request.
const (
	MinFactor = 0.7
	MaxFactor = 2.0
)

// Calibration learns for each model by what its own count of a request differs from
// our estimate. The zero Calibration knows nothing and is ready for use, by
// any number of goroutines. It is not stored: a few replies teach it anew.
type Calibration struct {
	mu      sync.Mutex
	factors map[string]float64
}

// Factor is what an estimate is multiplied with for a model: 1 until something was
// learnt, and always from MinFactor to MaxFactor.
func (c *Calibration) Factor(model string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.factors[model]; ok {
		return f
	}
	return 1
}

// Learn takes in one reply: estimate is what a request was thought to have, before any
// factor, and reported what the provider says that it had, both in tokens. The factor is
// the exponentially weighted mean of their ratios. A report of 0 (none was made) and
// small requests teach nothing.
func (c *Calibration) Learn(model string, estimate, reported int) {
	if reported <= 0 || estimate < learnFrom {
		return
	}
	ratio := clamp(float64(reported) / float64(estimate))
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.factors[model]; ok {
		ratio = f + learnRate*(ratio-f)
	}
	c.set(model, ratio)
}

// Over takes in that a server refused a request as too long which was thought to fit:
// the factor grows by a quarter.
func (c *Calibration) Over(model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.factors[model]
	if !ok {
		f = 1
	}
	c.set(model, f*overStep)
}

func (c *Calibration) set(model string, f float64) {
	if c.factors == nil || len(c.factors) >= maxModels {
		c.factors = map[string]float64{}
	}
	c.factors[model] = clamp(f)
}

func clamp(f float64) float64 { return min(max(f, MinFactor), MaxFactor) }
