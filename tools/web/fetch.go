package web

import (
	"context"
	_ "embed" // the descriptions are files
	"fmt"
	"unicode/utf8"

	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/truncate"
)

//go:embed fetch_url.md
var fetchDescription string

//go:embed web_fetch.md
var pageDescription string

const (
	// maxRaw is how many characters of a body fetch_url returns.
	maxRaw = 8000
	// The default and the maximum of max_bytes.
	defaultBytes = 51200
	maxBytes     = 102400
)

func urlProperty() tools.Property {
	return tools.Property{Type: "string", MinLength: 1, MaxLength: maxURL, Description: "With http:// or https://. Put no secrets in it."}
}

// fetcher is the tool fetch_url.
type fetcher struct {
	getter
	level risk.Level
}

// Spec implements tools.Tool.
func (f fetcher) Spec() tools.Spec {
	return tools.Spec{
		Name: "fetch_url", Description: fetchDescription, Level: f.level,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"url": urlProperty()}, Required: []string{"url"},
		}),
	}
}

// Plan implements tools.Tool.
func (f fetcher) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	args, err := arguments[struct {
		URL string `json:"url"`
	}](c)
	if err != nil {
		return tools.Plan{}, err
	}
	u, err := f.guard.parse(args.URL)
	if err != nil {
		return tools.Plan{}, err
	}
	return readPlan(c, u.String(), "", func(ctx context.Context, sink tools.Sink) (reply, error) {
		sink(tools.Event{Kind: tools.Started, Text: "fetching " + u.String()})
		// Room for 8000 characters of four bytes, and for as many that are dropped.
		p, err := f.get(ctx, u, "*/*", 2*utf8.UTFMax*(maxRaw+1))
		if err != nil {
			return reply{}, err
		}
		sink(tools.Event{Kind: tools.Info, Text: pageText(p)})
		text, _, err := p.text()
		if err != nil {
			return reply{}, err
		}
		text = sanitize(text)
		short := tools.TruncateHead(text, maxRaw)
		if p.cut && short == text {
			short += mark
		}
		a := reply{text: heading(p.notes(u), short), failed: p.failed()}
		if short != text {
			a.cut, a.full = fmt.Sprintf("at %d characters", maxRaw), text
		}
		return a, nil
	}), nil
}

func pageText(p page) string {
	return fmt.Sprintf("status %d, %s, %d bytes", p.status, tools.Quote(p.kind), len(p.body))
}

func heading(notes, body string) string {
	if notes == "" {
		return body
	}
	return notes + "\n" + body
}

// reader is the tool web_fetch.
type reader struct {
	getter
	level risk.Level
}

// Spec implements tools.Tool.
func (r reader) Spec() tools.Spec {
	return tools.Spec{
		Name: "web_fetch", Description: pageDescription, Level: r.level,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"url":       urlProperty(),
				"max_bytes": {Type: "integer", Minimum: 1, Default: defaultBytes, Description: "At most 102400."},
			},
			Required: []string{"url"},
		}),
	}
}

// Plan implements tools.Tool.
func (r reader) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	args, err := arguments[struct {
		URL string `json:"url"`
		Max int64  `json:"max_bytes"`
	}](c)
	if err != nil {
		return tools.Plan{}, err
	}
	u, err := r.guard.parse(args.URL)
	if err != nil {
		return tools.Plan{}, err
	}
	most := int(min(args.Max, maxBytes))
	return readPlan(c, u.String(), "", func(ctx context.Context, sink tools.Sink) (reply, error) {
		sink(tools.Event{Kind: tools.Started, Text: "fetching " + u.String()})
		p, err := r.get(ctx, u, "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.9,application/json;q=0.9,*/*;q=0.1", maxPage)
		if err != nil {
			return reply{}, err
		}
		sink(tools.Event{Kind: tools.Info, Text: pageText(p)})
		text, f, err := p.text()
		if err != nil {
			return reply{}, err
		}
		if f == kindHTML {
			text = markdown(text, p.url)
		} else {
			text = sanitize(text)
		}
		short := cutBytes(text, most)
		if p.cut && short == text {
			short += mark
		}
		a := reply{text: heading(p.notes(u), short), failed: p.failed()}
		if short != text {
			a.cut, a.full = "at "+truncate.FormatSize(int64(most)), text
		}
		return a, nil
	}), nil
}
