// Package web is the tools that look at the web: fetch_url (a body as it is),
// web_fetch (a page as Markdown), web_search, and, with a key for Tavily,
// web_search_answer and web_extract.
//
// Every connection goes through one guard that looks at the address that is
// really dialed: private, loopback and metadata addresses are out of reach unless
// the configuration allows them, whatever a name, a redirect or a DNS answer
// says. Only GET is ever sent to an address that a model chose, without cookies,
// credentials or a Referer. What comes back is data: decoded, freed of invisible
// characters, and cut.
//
// It runs no scripts of a page, keeps nothing between two calls, logs in nowhere
// and uses no proxy. It does not judge what a page says.
package web

import (
	"context"
	"crypto/x509"
	_ "embed" // the descriptions are files
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/tools"
)

// Config is what the tools are made of. The zero value reaches public addresses
// on ports 80 and 443 and searches with DuckDuckGo.
type Config struct {
	// Allow lists what may be reached although it is not public: an address or a
	// network ("10.1.2.3", "10.1.0.0/16"), a name ("grafana.corp.example") or all
	// names below one ("*.corp.example"). An address or a name may carry a port
	// ("grafana.corp.example:3000", "[fd00::5]:3000"), which is then allowed there
	// in addition to the usual ones. A name may lead to a private network but not
	// to loopback or link-local addresses; only an address or a network in the list
	// opens those. Addresses of metadata services stay closed in any case.
	Allow []string
	// Deny lists what may never be reached, in the same forms; a name stands for
	// all names below it, too. It wins over Allow.
	Deny []string
	// Ports are allowed in addition to 80 and 443, everywhere.
	Ports []int
	// Timeout bounds one call with all its redirects; 0 means 30 s.
	Timeout time.Duration
	// Level is the level of the tools that send a request to an address that the
	// model chose (fetch_url, web_fetch, web_extract), and of web_search where Search
	// names no provider; 0 means risk.Low: somebody is
	// asked, or a rule of the policy allows it, because the address itself can carry
	// text out of the house. risk.Read lets every such call run at once.
	Level risk.Level
	// UserAgent is how the bot calls itself; empty means "countersign".
	UserAgent string
	// Resolver resolves names; nil means the system's.
	Resolver *net.Resolver
	// Roots are the certificate authorities; nil means the system's.
	Roots  *x509.CertPool
	Search Search
	Tavily Tavily
}

// Provider is who searches.
type Provider string

// The providers of web_search.
const (
	DDGHTML Provider = "ddg-html" // DuckDuckGo's page without scripts; no key; the default
	DDGLite Provider = "ddg-lite" // its plainer sister
	SearXNG Provider = "searxng"  // an instance of one's own, with the JSON format switched on
	ByKey   Provider = "tavily"   // Tavily; needs its key
)

// Search says how web_search searches.
type Search struct {
	Provider Provider // empty means DDGHTML
	// URL is the address of the provider; empty means its public one. SearXNG has
	// none and needs it. Because the operator wrote it, it may be private, or
	// loopback.
	URL string
	// Interval is the least time between two searches, also of different threads; 0
	// means 1 s for DuckDuckGo, which soon blocks who asks faster, and none for the others.
	Interval time.Duration
}

// Tavily is the account of Tavily, a search service with an API.
type Tavily struct {
	// Key switches on web_search_answer and web_extract; empty leaves them out.
	Key redact.Secret
	// URL is the address of the API; empty means https://api.tavily.com.
	URL string
}

// target is where the tools run: in the bot itself.
const target = "harness"

// New returns the tools fetch_url, web_fetch and web_search and, with a key for
// Tavily, web_search_answer and web_extract. It fails for a configuration with a
// mistake, and never for what the network is like. The tools are safe for
// concurrent use; they have nothing to close.
func New(c Config) ([]tools.Tool, error) {
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.UserAgent == "" {
		c.UserAgent = "countersign"
	}
	if c.Level == risk.Unknown {
		c.Level = risk.Low
	}
	if c.Timeout < 0 || c.Level < risk.Read || c.Level > risk.Critical {
		return nil, errors.New("web: the timeout must be positive, and the level one of read, low, medium, high and critical")
	}
	g, err := newGuard(c)
	if err != nil {
		return nil, err
	}
	client := getter{guard: g, timeout: c.Timeout, agent: c.UserAgent, roots: c.Roots}
	out := []tools.Tool{fetcher{client, c.Level}, reader{client, c.Level}}
	var tav *tavily
	if c.Tavily.Key != "" {
		if tav, err = newTavily(c.Tavily, client); err != nil {
			return nil, err
		}
		out = append(out, answerer{tav}, extractor{tav, c.Level, g})
	}
	s, err := newSearcher(c.Search, client, tav, c.Level)
	if err != nil {
		return nil, err
	}
	return append(out, s), nil
}

// endpoint checks the address of a provider.
func endpoint(key, raw, byDefault string) (*url.URL, error) {
	if raw == "" {
		raw = byDefault
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("web: %s is %s; write an address such as https://search.example/, without a name, a query or a fragment", key, tools.Quote(raw))
	}
	return u, nil
}

// reply is what a call found: text for the model, and the whole of it where that was cut.
type reply struct {
	text, full string
	cut        string // where
	failed     bool
}

// planned makes a plan of a call that only looks.
func planned(c tools.Call, bytes, preview string, do func(context.Context, tools.Sink) (reply, error)) tools.Plan {
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: target, Args: c.Args, Preview: preview}
	if bytes != "" {
		a.Bytes = []byte(bytes)
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		a, err := do(ctx, sink)
		if err != nil {
			return tools.Result{}, err
		}
		sink(tools.Event{Kind: tools.Completed, Text: "done"})
		return tools.Result{Value: a.text, Text: a.text, Failed: a.failed, Cut: a.cut, Full: a.full}, nil
	})
}

// arguments decodes what the schema has already checked.
func arguments[T any](c tools.Call) (args T, err error) {
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return args, tools.Invalid("%v", err)
	}
	return args, nil
}
