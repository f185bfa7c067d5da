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

// duckduckgo reads one of DuckDuckGo's two pages without scripts. Neither is an
// API: their classes change, and an address that asks too often gets a page with a
// puzzle, usually with status 202.
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

func (d duckduckgo) search(ctx context.Context, query string, _ int) ([]found, error) {
	u := *d.at
	u.RawQuery = url.Values{"q": {query}}.Encode()
	p, err := d.get(ctx, &u, "text/html", maxPage)
	if err != nil {
		return nil, err
	}
	switch p.status {
	case http.StatusOK:
	case http.StatusAccepted, http.StatusForbidden, http.StatusTooManyRequests, http.StatusTeapot, http.StatusServiceUnavailable:
		return nil, blocked(d.where(), fmt.Sprintf("status %d", p.status))
	default:
		return nil, tools.Failed("%s answers with status %d; try again later", d.where(), p.status)
	}
	return readDuckDuckGo(d.where(), d.at.Hostname(), decode(p.body, formHTML, "utf-8", p.cut), d.lite)
}

// puzzles are what only the page holds that stands in the way of a robot.
var puzzles = []string{"anomaly-modal", "anomaly.js", "anomaly_modal", "bots use duckduckgo too", "g-recaptcha", "h-captcha", "cf-challenge", "challenge-form"}

// readDuckDuckGo reads the results of a page. host is the provider's own, whose
// links are no results.
func readDuckDuckGo(where, host, src string, lite bool) ([]found, error) {
	doc, err := goquery.NewDocumentFromReader(bytes.NewReader([]byte(src)))
	if err != nil {
		return nil, tools.Failed("the answer of %s cannot be read: %w", where, err)
	}
	out := selected(doc, lite)
	if len(out) == 0 {
		// Only now: a result may talk about such puzzles.
		small := strings.ToLower(src)
		for _, s := range puzzles {
			if strings.Contains(small, s) {
				return nil, blocked(where, "it shows a puzzle for people")
			}
		}
		if saysNoResults(doc) {
			return nil, nil
		}
		out = links(doc, host)
	}
	if len(out) == 0 {
		return nil, tools.Failed("%s answered with a page in which no results can be made out, which does not mean that there are none; try again later, or fetch known addresses", where)
	}
	return out, nil
}

// selected finds results by the classes of the page.
func selected(doc *goquery.Document, lite bool) (out []found) {
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

func result(a *goquery.Selection, snippet string) found {
	href, _ := a.Attr("href")
	return found{title: a.Text(), url: unwrap(href), snippet: snippet}
}

func appendUnique(out []found, f found) []found {
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

// unwrap returns where a link of the page leads: the results go through
// "//duckduckgo.com/l/?uddg=ADDRESS". Advertisements have no address of their own
// and give "".
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

// maxRead is how many results of a page are looked at: enough for the largest
// answer after repetitions are dropped, and an end to what a page can cost.
const maxRead = 3 * mostResults

// minLinks is how many plain links make a page one of results.
const minLinks = 3

// links finds results where the classes are not those that are known: by the
// links that go through the provider's redirect or, where none do, by those that
// lead elsewhere. The first text of an address is its title; the snippet is the
// longest other text that belongs to it alone.
func links(doc *goquery.Document, host string) []found {
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
	var out []found
	for _, to := range order {
		as := all[to]
		f := found{title: as[0].Text(), url: to}
		for _, a := range as[1:] {
			if t := a.Text(); len(t) > len(f.snippet) && strings.ContainsAny(strings.TrimSpace(t), " \n") {
				f.snippet = t
			}
		}
		if f.snippet == "" {
			f.snippet = around(as[0], to)
		}
		out = append(out, f)
	}
	return out
}

// around returns the text beside a link, in the largest element that holds no
// other result.
func around(a *goquery.Selection, to string) string {
	node := a.Nodes[0]
	best := node
	for up := node.Parent; up != nil && up.Type == html.ElementNode && up.Data != "body"; up = up.Parent {
		if foreign(up, to) {
			break
		}
		best = up
	}
	text := goquery.NewDocumentFromNode(best).Text()
	return strings.TrimSpace(strings.Replace(text, a.Text(), "", 1))
}

// foreign reports whether n holds a link to something else.
func foreign(n *html.Node, to string) bool {
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
