package web

import (
	"context"
	_ "embed" // the description is a file
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"countersign/approvals/risk"
	"countersign/tools"
)

//go:embed web_search.md
var searchDescription string

const (
	defaultResults = 8
	maxResults     = 20
	maxQuery       = 400 // characters; the providers take about as many
	maxTitle       = 200
	maxSnippet     = 500
)

// searchResult is one result of a search.
type searchResult struct {
	title, url, snippet string
}

// provider searches. Its error is an [*tools.Error]. No results and no error mean that the provider
// said there are none.
type provider interface {
	// where names the provider for people.
	where() string
	search(ctx context.Context, query string, n int) ([]searchResult, error)
}

// rateLimiter keeps a minimum interval between searches.
type rateLimiter struct {
	every time.Duration
	mu    sync.Mutex
	next  time.Time
}

// wait returns when it is this call's turn, or the context ends.
func (p *rateLimiter) wait(ctx context.Context) error {
	if p.every <= 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := time.Now()
	turn := p.next
	if turn.Before(now) {
		turn = now
	}
	p.next = turn.Add(p.every)
	p.mu.Unlock()
	t := time.NewTimer(time.Until(turn))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// searcher is the tool web_search.
type searcher struct {
	provider
	pace    *rateLimiter
	timeout time.Duration
	level   risk.Level
}

// newSearcher returns the search tool; defaultLevel is its level if nobody configured a provider.
func newSearcher(s Search, g getter, t *tavily, defaultLevel risk.Level) (searcher, error) {
	out := searcher{pace: &rateLimiter{every: s.Interval}, timeout: g.timeout, level: risk.Read}
	if s.Provider == "" && s.URL == "" {
		out.level = defaultLevel
	}
	ddg := func(lite bool, byDefault string) error {
		u, err := endpoint("the address of the search", s.URL, byDefault)
		if err != nil {
			return err
		}
		if s.Interval == 0 {
			out.pace.every = time.Second
		}
		g.guard = g.guard.withTrusted(u)
		out.provider = duckduckgo{getter: g, at: u, lite: lite}
		return nil
	}
	switch s.Provider {
	case "", DDGHTML:
		return out, ddg(false, "https://html.duckduckgo.com/html/")
	case DDGLite:
		return out, ddg(true, "https://lite.duckduckgo.com/lite/")
	case SearXNG:
		u, err := endpoint("the address of SearXNG", s.URL, "")
		if err != nil {
			return out, err
		}
		g.guard = g.guard.withTrusted(u)
		out.provider = searxng{getter: g, at: u.JoinPath("search")}
		return out, nil
	case ByKey:
		if t == nil {
			return out, fmt.Errorf("web: the search provider %s needs a key; set it, or choose %s", ByKey, DDGHTML)
		}
		out.provider = t
		return out, nil
	}
	return out, fmt.Errorf("web: there is no search provider %s; choose one of %s, %s, %s and %s", tools.Quote(string(s.Provider)),
		DDGHTML, DDGLite, SearXNG, ByKey)
}

// Spec implements tools.Tool. A query reaches one provider. If the operator configured it, the tool
// is a read; otherwise the query goes to a third party, like the address of a fetch.
func (s searcher) Spec() tools.Spec {
	return tools.Spec{
		Name: "web_search", Description: searchDescription, Level: s.level,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"query":       queryProperty(),
				"max_results": {Type: "integer", Minimum: 1, Default: defaultResults, Description: "At most 20."},
			},
			Required: []string{"query"},
		}),
	}
}

func queryProperty() tools.Property {
	return tools.Property{Type: "string", Pattern: `\S`, MaxLength: maxQuery, Description: "Sent to outsiders: no secrets or internal names."}
}

// Plan implements tools.Tool.
func (s searcher) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	args, err := arguments[struct {
		Query string `json:"query"`
		Max   int64  `json:"max_results"`
	}](c)
	if err != nil {
		return tools.Plan{}, err
	}
	n := int(min(args.Max, maxResults))
	return readPlan(c, "", "asks "+s.where(), func(ctx context.Context, sink tools.Sink) (reply, error) {
		sink(tools.Event{Kind: tools.Started, Text: "searching with " + s.where()})
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if err := s.pace.wait(ctx); err != nil {
			return reply{}, tools.Failed("the search was not sent, because too many others wait for their turn or it was stopped: %w", err)
		}
		all, err := s.search(ctx, args.Query, n)
		if err != nil {
			return reply{}, err
		}
		all = dedupe(all, n)
		sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d results", len(all))})
		if len(all) == 0 {
			return reply{text: "No results for " + tools.Quote(args.Query) + "."}, nil
		}
		return reply{text: formatResults(all)}, nil
	}), nil
}

// dedupe keeps at most n results that have a title and an address, each address once.
func dedupe(all []searchResult, n int) []searchResult {
	seen := map[string]bool{}
	var out []searchResult
	for _, f := range all {
		u, err := url.Parse(strings.TrimSpace(f.url))
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || len(f.url) > maxURL {
			continue
		}
		f.url = sanitize(u.String())
		f.title, f.snippet = line(f.title, maxTitle), line(f.snippet, maxSnippet)
		if f.title == "" || seen[f.url] {
			continue
		}
		seen[f.url] = true
		if out = append(out, f); len(out) == n {
			break
		}
	}
	return out
}

// formatResults formats results as a numbered list, with the address and the snippet on indented
// lines.
func formatResults(all []searchResult) string {
	var b strings.Builder
	for i, f := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%d. %s\n   %s\n", i+1, f.title, f.url)
		if f.snippet != "" {
			fmt.Fprintf(&b, "   %s\n", f.snippet)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// blockedError is the error of a provider that refuses searches at the moment.
func blockedError(where, why string) error {
	return tools.Failed("%s does not answer automated searches at the moment (%s), which says nothing about results; do not search again "+
		"in this turn, and fetch known addresses or ask an operator for another search provider", where, why)
}

// searxng is a SearXNG instance, used through its search API:
// https://docs.searxng.org/dev/search_api.html
type searxng struct {
	getter
	at *url.URL
}

func (s searxng) where() string { return "SearXNG at " + s.at.Host }

func (s searxng) search(ctx context.Context, query string, _ int) ([]searchResult, error) {
	u := *s.at
	u.RawQuery = url.Values{"q": {query}, "format": {"json"}}.Encode()
	p, err := s.get(ctx, &u, "application/json", maxPage)
	if err != nil {
		return nil, err
	}
	switch {
	case p.status == http.StatusForbidden:
		return nil, tools.Failed("%s refuses the JSON format (status 403); an operator has to add json to search.formats in its "+
			"settings.yml, or to let the bot pass its limiter", s.where())
	case p.status == http.StatusTooManyRequests:
		return nil, blockedError(s.where(), "status 429")
	case p.status != http.StatusOK:
		return nil, tools.Failed("%s answers with status %d; try again later", s.where(), p.status)
	}
	return readSearXNG(s.where(), p.body)
}

func readSearXNG(where string, body []byte) ([]searchResult, error) {
	var r struct {
		Results *[]struct {
			Title   string `json:"title"`
			URL     string `json:"url"`
			Content string `json:"content"`
		} `json:"results"`
		Unresponsive []json.RawMessage `json:"unresponsive_engines"`
	}
	if err := json.Unmarshal(body, &r); err != nil || r.Results == nil {
		return nil, tools.Failed("%s does not answer with results in JSON; an operator has to check its address", where)
	}
	var out []searchResult
	for _, f := range *r.Results {
		out = append(out, searchResult{f.Title, f.URL, f.Content})
	}
	if n := len(r.Unresponsive); len(out) == 0 && n > 0 {
		return nil, blockedError(where, fmt.Sprintf("%d of its engines did not answer", n))
	}
	return out, nil
}
