package web

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/PuerkitoBio/goquery"
	"golang.org/x/net/html"

	"countersign/tools"
)

// duckduckgo scrapes one of DuckDuckGo's two pages without scripts. Neither is an API: their
// classes change, and an address that asks too often gets a captcha, usually with status 202.
type duckduckgo struct {
	getter
	at   *url.URL
	lite bool
}

func (d duckduckgo) where() string {
	if d.at.Hostname() == "duckduckgo.com" || strings.HasSuffix(d.at.Hostname(), ".duckduckgo.com") {
		return "DuckDuckGo"
	}
	return "DuckDuckGo at " + d.at.Host
}

func (d duckduckgo) search(ctx context.Context, query string, _ int) ([]searchResult, error) {
	u := *d.at
	u.RawQuery = url.Values{"q": {query}}.Encode()
	p, err := d.get(ctx, &u, "text/html", maxPage)
	if err != nil {
		return nil, err
	}
	switch p.status {
	case http.StatusOK:
	case http.StatusAccepted, http.StatusForbidden, http.StatusTooManyRequests, http.StatusTeapot, http.StatusServiceUnavailable:
		return nil, blockedError(d.where(), fmt.Sprintf("status %d", p.status))
	default:
		return nil, tools.Failed("%s answers with status %d; try again later", d.where(), p.status)
	}
	return readDuckDuckGo(d.where(), d.at.Hostname(), decode(p.body, kindHTML, "utf-8", p.cut), d.lite)
}

// puzzleMarkers occur only in captcha pages.
var puzzleMarkers = []string{"anomaly-modal", "anomaly.js", "anomaly_modal", "bots use duckduckgo too", "g-recaptcha", "h-captcha",
	"cf-challenge", "challenge-form"}

// readDuckDuckGo parses the results of a page. Links to host, the provider's own, are not results.
func readDuckDuckGo(where, host, src string, lite bool) ([]searchResult, error) {
	doc, err := goquery.NewDocumentFromReader(bytes.NewReader([]byte(src)))
	if err != nil {
		return nil, tools.Failed("the answer of %s cannot be read: %w", where, err)
	}
	out := resultsByClass(doc, lite)
	if len(out) == 0 {
		// Only now, because results may be about captchas.
		small := strings.ToLower(src)
		for _, s := range puzzleMarkers {
			if strings.Contains(small, s) {
				return nil, blockedError(where, "it shows a puzzle for people")
			}
		}
		if saysNoResults(doc) {
			return nil, nil
		}
		out = resultsByLink(doc, host)
	}
	if len(out) == 0 {
		return nil, tools.Failed("%s answered with a page in which no results can be made out, which does not mean that there are none; try "+
			"again later, or fetch known addresses", where)
	}
	return out, nil
}

// resultsByClass finds results by the page's CSS classes.
func resultsByClass(doc *goquery.Document, lite bool) (out []searchResult) {
	if lite {
		doc.Find("a.result-link").EachWithBreak(func(_ int, a *goquery.Selection) bool {
			row := a.Closest("tr")
			if a.Closest(".result-sponsored").Length() > 0 {
				return true
			}
			f := result(a, "")
			row.NextAll().EachWithBreak(func(_ int, r *goquery.Selection) bool {
				if r.Find("a.result-link").Length() > 0 {
					return false
				}
				f.snippet = r.Find("td.result-snippet").First().Text()
				return f.snippet == ""
			})
			out = appendUnique(out, f)
			return len(out) < maxRead
		})
		return out
	}
	doc.Find(".result").Not(".result--ad").EachWithBreak(func(_ int, r *goquery.Selection) bool {
		if a := r.Find("a.result__a").First(); a.Length() > 0 {
			out = appendUnique(out, result(a, r.Find(".result__snippet").First().Text()))
		}
		return len(out) < maxRead
	})
	return out
}

func result(a *goquery.Selection, snippet string) searchResult {
	href, _ := a.Attr("href")
	return searchResult{title: a.Text(), url: unwrap(href), snippet: snippet}
}

func appendUnique(out []searchResult, f searchResult) []searchResult {
	if f.url == "" {
		return out
	}
	return append(out, f)
}

// saysNoResults reports whether the page says that nothing was found.
func saysNoResults(doc *goquery.Document) bool {
	if doc.Find(".no-results").Length() > 0 {
		return true
	}
	text := strings.Join(strings.Fields(doc.Find("body").Text()), " ")
	return strings.Contains(text, "No results.") || strings.Contains(text, "No more results.") || strings.Contains(text, "No results found for")
}

// unwrap returns the destination of a link: results go through "//duckduckgo.com/l/?uddg=ADDRESS".
// Advertisements have no address of their own and give "".
func unwrap(href string) string {
	u, err := url.Parse(strings.TrimSpace(href))
	if err != nil {
		return ""
	}
	if to := u.Query().Get("uddg"); to != "" {
		if u, err = url.Parse(to); err != nil {
			return ""
		}
	}
	if strings.HasSuffix(u.Path, "/y.js") || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return ""
	}
	return u.String()
}

// isProviderURL reports whether an address belongs to the search provider.
func isProviderURL(address, host string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return true
	}
	h := u.Hostname()
	return h == host || h == "duckduckgo.com" || strings.HasSuffix(h, ".duckduckgo.com") || h == "duck.ai"
}

// maxRead is how many results of a page are read: enough for the largest answer after duplicates
// are removed, and a bound on the cost of a page.
const maxRead = 3 * maxResults

// minLinks is how many plain links make a page a result page.
const minLinks = 3

// resultsByLink finds results if the CSS classes are unknown: by links through the provider's
// redirect or, if there are none, by external links. The first text of an address is its title; the
// snippet is the longest other text that belongs to it alone.
func resultsByLink(doc *goquery.Document, host string) []searchResult {
	doc.Find("script,style,nav,header,footer,form").Remove()
	var order []string
	all := map[string][]*goquery.Selection{}
	redirected := doc.Find(`a[href*="uddg="]`)
	from := redirected
	if from.Length() == 0 {
		from = doc.Find("a[href]")
	}
	from.Each(func(_ int, a *goquery.Selection) {
		href, _ := a.Attr("href")
		to := unwrap(href)
		if to == "" || isProviderURL(to, host) || strings.TrimSpace(a.Text()) == "" {
			return
		}
		if all[to] == nil && len(order) == maxRead {
			return
		}
		if all[to] == nil {
			order = append(order, to)
		}
		all[to] = append(all[to], a)
	})
	if redirected.Length() == 0 && len(order) < minLinks {
		return nil
	}
	var out []searchResult
	for _, to := range order {
		as := all[to]
		f := searchResult{title: as[0].Text(), url: to}
		for _, a := range as[1:] {
			if t := a.Text(); len(t) > len(f.snippet) && strings.ContainsAny(strings.TrimSpace(t), " \n") {
				f.snippet = t
			}
		}
		if f.snippet == "" {
			f.snippet = textBeside(as[0], to)
		}
		out = append(out, f)
	}
	return out
}

// textBeside returns the text beside a link, in the largest element that contains no other result.
func textBeside(a *goquery.Selection, to string) string {
	node := a.Nodes[0]
	best := node
	for up := node.Parent; up != nil && up.Type == html.ElementNode && up.Data != "body"; up = up.Parent {
		if hasOtherLink(up, to) {
			break
		}
		best = up
	}
	text := goquery.NewDocumentFromNode(best).Text()
	return strings.TrimSpace(strings.Replace(text, a.Text(), "", 1))
}

// hasOtherLink reports whether n contains a link to something else.
func hasOtherLink(n *html.Node, to string) bool {
	for c := range n.Descendants() {
		if c.Type != html.ElementNode || c.Data != "a" {
			continue
		}
		if href, ok := attr(c, "href"); ok {
			if u := unwrap(href); u != "" && u != to {
				return true
			}
		}
	}
	return false
}
