package web

import (
	"bytes"
	"context"
	_ "embed" // the descriptions are files
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/tools"
)

//go:embed web_search_answer.md
var answerDescription string

//go:embed web_extract.md
var extractDescription string

// maxURLs is how many addresses one call of web_extract takes.
const maxURLs = 5

// tavily is a client of Tavily's API: POST of JSON with a bearer key.
// https://docs.tavily.com/documentation/api-reference/introduction
type tavily struct {
	getter
	key redact.Secret
	at  *url.URL
}

func newTavily(c Tavily, g getter) (*tavily, error) {
	u, err := endpoint("the address of Tavily", c.URL, "https://api.tavily.com")
	if err != nil {
		return nil, err
	}
	g.guard = g.guard.withTrusted(u)
	return &tavily{getter: g, key: c.Key, at: u}, nil
}

func (t *tavily) where() string { return "Tavily at " + t.at.Host }

type tavilySearch struct {
	Query  string `json:"query"`
	Max    int    `json:"max_results"`
	Answer bool   `json:"include_answer"`
}

type tavilyFound struct {
	Answer  string `json:"answer"`
	Results *[]struct {
		Title   string `json:"title"`
		URL     string `json:"url"`
		Content string `json:"content"`
	} `json:"results"`
}

type tavilyExtract struct {
	URLs   []string `json:"urls"`
	Format string   `json:"format"`
}

type tavilyPages struct {
	Results []struct {
		URL string `json:"url"`
		Raw string `json:"raw_content"`
	} `json:"results"`
	Failed []struct {
		URL   string `json:"url"`
		Error string `json:"error"`
	} `json:"failed_results"`
}

// post calls the API. It follows no redirects: the key is for this address only.
func (t *tavily) post(ctx context.Context, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return tools.Invalid("%v", err)
	}
	u := t.at.JoinPath(method)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return tools.Invalid("%v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+t.key.Reveal())
	res, err := t.send(req)
	if err != nil {
		return t.explain(u, err)
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return tools.Failed("%s refuses the key (status %d); an operator has to check it", t.where(), res.StatusCode)
	case http.StatusTooManyRequests:
		return blockedError(t.where(), "status 429, too many requests")
	case 432, 433: // the plan's limit, and the pay-as-you-go limit
		return blockedError(t.where(), fmt.Sprintf("status %d, the account's limit is reached", res.StatusCode))
	default:
		return tools.Failed("%s answers with status %d; try again later", t.where(), res.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxPage+1))
	if err != nil {
		return t.explain(u, err)
	}
	if len(b) > maxPage {
		return tools.Failed("the answer of %s is larger than %d MiB; ask for less at once", t.where(), maxPage>>20)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return tools.Failed("%s does not answer in JSON; an operator has to check its address: %w", t.where(), err)
	}
	return nil
}

func (t *tavily) query(ctx context.Context, in tavilySearch) (string, []searchResult, error) {
	var r tavilyFound
	if err := t.post(ctx, "search", in, &r); err != nil {
		return "", nil, err
	}
	if r.Results == nil {
		return "", nil, tools.Failed("%s answers without a list of results; an operator has to check its address", t.where())
	}
	var out []searchResult
	for _, f := range *r.Results {
		out = append(out, searchResult{f.Title, f.URL, f.Content})
	}
	return r.Answer, out, nil
}

func (t *tavily) search(ctx context.Context, query string, n int) ([]searchResult, error) {
	_, all, err := t.query(ctx, tavilySearch{Query: query, Max: n})
	return all, err
}

// answerer is the tool web_search_answer.
type answerer struct{ *tavily }

// Spec implements tools.Tool. It is a read for the same reason as web_search.
func (answerer) Spec() tools.Spec {
	return tools.Spec{
		Name: "web_search_answer", Description: answerDescription, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"query": queryProperty()}, Required: []string{"query"},
		}),
	}
}

// Plan implements tools.Tool.
func (a answerer) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	args, err := arguments[struct {
		Query string `json:"query"`
	}](c)
	if err != nil {
		return tools.Plan{}, err
	}
	return readPlan(c, "", "asks "+a.where(), func(ctx context.Context, sink tools.Sink) (reply, error) {
		sink(tools.Event{Kind: tools.Started, Text: "asking " + a.where()})
		answer, all, err := a.query(ctx, tavilySearch{Query: args.Query, Max: defaultResults, Answer: true})
		if err != nil {
			return reply{}, err
		}
		answer, all = strings.TrimSpace(sanitize(answer)), dedupe(all, defaultResults)
		sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d sources", len(all))})
		if answer == "" {
			answer = "There is no answer to " + tools.Quote(args.Query) + "."
		}
		answer = cutBytes(answer, defaultBytes/2)
		if len(all) > 0 {
			answer += "\n\nSources:\n\n" + formatResults(all)
		}
		return reply{text: answer}, nil
	}), nil
}

// extractor is the tool web_extract.
type extractor struct {
	*tavily
	level    risk.Level
	urlGuard *guard // for the extracted addresses; it has no exception for the service
}

// Spec implements tools.Tool.
func (e extractor) Spec() tools.Spec {
	return tools.Spec{
		Name: "web_extract", Description: extractDescription, Level: e.level,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"urls": {
					Type: "array", MaxItems: maxURLs, Items: &tools.Property{Type: "string", MinLength: 1, MaxLength: maxURL},
					Description: "One to five addresses. Put no secrets in them.",
				},
			},
			Required: []string{"urls"},
		}),
	}
}

// Plan implements tools.Tool.
func (e extractor) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	args, err := arguments[struct {
		URLs []string `json:"urls"`
	}](c)
	if err != nil {
		return tools.Plan{}, err
	}
	if len(args.URLs) == 0 {
		return tools.Plan{}, tools.Invalid(`"urls" is empty; give one to %d addresses`, maxURLs)
	}
	urls := make([]string, len(args.URLs))
	for i, raw := range args.URLs {
		u, err := e.urlGuard.parse(raw)
		if err != nil {
			return tools.Plan{}, err
		}
		urls[i] = u.String()
	}
	return readPlan(c, strings.Join(urls, "\n"), "asks "+e.where(), func(ctx context.Context, sink tools.Sink) (reply, error) {
		sink(tools.Event{Kind: tools.Started, Text: "asking " + e.where()})
		var r tavilyPages
		if err := e.post(ctx, "extract", tavilyExtract{URLs: urls, Format: "markdown"}, &r); err != nil {
			return reply{}, err
		}
		sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d pages", len(r.Results))})
		text := pages(urls, r)
		if text == "" {
			return reply{}, tools.Failed("%s answers without the pages that were asked for; try web_fetch", e.where())
		}
		return reply{text: text, failed: len(r.Results) == 0}, nil
	}), nil
}

// pages formats the extracted pages, each with its share of the output, under the addresses that
// the service returned.
func pages(urls []string, r tavilyPages) string {
	var b strings.Builder
	share := defaultBytes/len(urls) - 2*maxSnippet // the headings need room, too
	for i, f := range r.Failed {
		if i == len(urls) {
			break
		}
		fmt.Fprintf(&b, "[%s could not be extracted: %s]\n\n", line(f.URL, maxSnippet), line(f.Error, maxSnippet))
	}
	for i, p := range r.Results {
		if i == len(urls) {
			break
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", line(p.URL, maxSnippet), strings.TrimSpace(cutBytes(sanitize(p.Raw), share)))
	}
	return cutBytes(strings.TrimSpace(b.String()), defaultBytes)
}
