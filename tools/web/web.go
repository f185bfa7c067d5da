// Package web is the tools that read the web: fetch_url (a raw body), web_fetch (a page as
// Markdown), web_search, and, with a Tavily key, web_search_answer and web_extract.
//
// Every connection goes through one guard that checks the address that is actually dialed: private,
// loopback and metadata addresses are refused unless the configuration allows them, whatever a
// name, a redirect or a DNS answer says. The bot sends only GET to an address that a model chose,
// without cookies, credentials or a Referer. Responses are data: decoded, without invisible
// characters, and shortened.
//
// The package runs no scripts, keeps nothing between calls, does not log in and uses no proxy. It
// does not judge content.
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

// Config configures the tools. The zero value reaches public addresses on ports 80 and 443 and
// searches with DuckDuckGo.
type Config struct {
	// Allow lists non-public hosts that may be reached: an address or network ("10.1.2.3",
	// "10.1.0.0/16"), a name ("grafana.corp.example") or all names below one ("*.corp.example"). An
	// address or a name may have a port ("grafana.corp.example:3000", "[fd00::5]:3000"), which is
	// then allowed in addition to the default ones. A name may resolve to a private network but not
	// to loopback or link-local addresses; only an address or a network in the list allows those.
	// Metadata services are never allowed.
	Allow []string
	// Deny lists hosts that must never be reached, in the same forms; a name includes all names
	// below it. It overrides Allow.
	Deny []string
	// Ports are allowed in addition to 80 and 443, for all hosts.
	Ports []int
	// Timeout bounds one call with all its redirects; 0 means 30 s.
	Timeout time.Duration
	// Level is the level of the tools that send a request to an address that the model chose
	// (fetch_url, web_fetch, web_extract), and of web_search if Search names no provider. 0 means
	// risk.Low: the call needs approval or a policy rule, because the address itself can leak text.
	// With risk.Read such calls run at once.
	Level risk.Level
	// UserAgent is the User-Agent header; "" means "countersign".
	UserAgent string
	// Resolver resolves names; nil means the system's.
	Resolver *net.Resolver
	// Roots are the certificate authorities; nil means the system's.
	Roots  *x509.CertPool
	Search Search
	Tavily Tavily
}

// Provider is a search provider.
type Provider string

// The providers of web_search.
const (
	DDGHTML Provider = "ddg-html" // DuckDuckGo's page without scripts; no key; the default
	DDGLite Provider = "ddg-lite" // its simpler variant
	SearXNG Provider = "searxng"  // a private instance with the JSON format enabled
	ByKey   Provider = "tavily"   // Tavily; needs its key
)

// Search configures web_search.
type Search struct {
	Provider Provider // "" means DDGHTML
	// URL is the address of the provider; "" means its public one. SearXNG has none and requires
	// it. Because the operator configured it, it may be private or loopback.
	URL string
	// Interval is the minimum time between two searches, across threads. 0 means 1 s for
	// DuckDuckGo, which soon blocks faster clients, and no limit for the others.
	Interval time.Duration
}

// Tavily is an account of Tavily, a search service with an API.
type Tavily struct {
	// Key enables web_search_answer and web_extract; "" leaves them out.
	Key redact.Secret
	// URL is the address of the API; "" means https://api.tavily.com.
	URL string
}

// target is the target in actions: the bot itself.
const target = "harness"

// New returns the tools fetch_url, web_fetch and web_search and, with a Tavily key,
// web_search_answer and web_extract. It fails only for configuration mistakes. The tools are safe
// for concurrent use and need not be closed.
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

// endpoint validates the address of a provider.
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

// reply is the result of a call: text for the model, and the full text if that was cut.
type reply struct {
	text, full string
	cut        string // where
	failed     bool
}

// readPlan returns the plan of a read-only call.
func readPlan(c tools.Call, bytes, preview string, do func(context.Context, tools.Sink) (reply, error)) tools.Plan {
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

// arguments decodes arguments that the schema has validated.
func arguments[T any](c tools.Call) (args T, err error) {
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return args, tools.Invalid("%v", err)
	}
	return args, nil
}
