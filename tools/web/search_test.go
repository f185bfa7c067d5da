package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"countersign/tools/toolstest"
)

// fake serves fixed answers and remembers the requests.
type fake struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	body []string
}

func provide(t *testing.T, status int, body string) *fake {
	t.Helper()
	f := &fake{}
	f.Server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.seen, f.body = append(f.seen, r), append(f.body, string(b))
		f.mu.Unlock()
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
	return f
}

func searching(p Provider, f *fake) Config {
	c := Config{Search: Search{Provider: p, URL: f.URL}}
	if p == ByKey {
		c.Tavily = Tavily{Key: "tvly-secret", URL: f.URL}
	}
	return c
}

// B-60, N-37.
func TestDuckDuckGoIsAskedWithoutAKey(t *testing.T) {
	for p, file := range map[Provider]string{"": "ddg_html.html", DDGLite: "ddg_lite.html"} {
		f := provide(t, http.StatusOK, fixture(t, file))
		text := call(t, registry(t, searching(p, f)), "web_search", `{"query":"a b&c"}`)
		if len(f.seen) != 1 || f.seen[0].URL.Query().Get("q") != "a b&c" || f.seen[0].Method != http.MethodGet || f.seen[0].Header.Get("Authorization") != "" {
			t.Errorf("%s: %v", p, f.seen)
		}
		if !strings.HasPrefix(text, "1. Title 1 & more\n") {
			t.Error(text)
		}
	}
}

// B-61, N-39: title, address and snippet of each, in this form.
// B-61, N-39.
func TestFifteenResultsGiveEight(t *testing.T) {
	var want strings.Builder
	for i := 1; i <= 8; i++ {
		if i > 1 {
			want.WriteString("\n")
		}
		fmt.Fprintf(&want, "%d. Title %d & more\n   https://site%d.example/page?id=%d&x=y\n   Words about site %d on two lines.\n", i, i, i, i, i)
	}
	for p, file := range map[Provider]string{DDGHTML: "ddg_html.html", DDGLite: "ddg_lite.html"} {
		text := call(t, registry(t, searching(p, provide(t, http.StatusOK, fixture(t, file)))), "web_search", `{"query":"q"}`)
		if text != strings.TrimSuffix(want.String(), "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", p, text, want.String())
		}
	}
}

// B-62: selectors, and not the plain string operations of the older document.
// B-63.
func TestARenamedContainerStillGivesResults(t *testing.T) {
	for p, file := range map[Provider]string{DDGHTML: "ddg_html_renamed.html", DDGLite: "ddg_lite_renamed.html"} {
		text := call(t, registry(t, searching(p, provide(t, http.StatusOK, fixture(t, file)))), "web_search", `{"query":"q"}`)
		if strings.Count(text, "\n   https://site") != 8 || !strings.HasPrefix(text, "1. Title 1 & more\n   https://site1.example/page?id=1&x=y\n") || strings.Contains(text, "duckduckgo.com") {
			t.Errorf("%s:\n%s", p, text)
		}
		if p == DDGHTML && !strings.Contains(text, "\n   Words about site 1 on two lines.\n") {
			t.Errorf("the snippet is lost:\n%s", text)
		}
	}
	text := call(t, registry(t, searching(DDGHTML, provide(t, http.StatusOK, fixture(t, "ddg_direct.html")))), "web_search", `{"query":"q"}`)
	if !strings.HasPrefix(text, "1. Direct 1\n   https://d1.example/\n   Said of direct 1.\n\n2. ") {
		t.Error(text)
	}
}

// N-38.
func TestMaxResults(t *testing.T) {
	var many []map[string]string
	for i := range 50 {
		many = append(many, map[string]string{"title": fmt.Sprint("t", i), "url": fmt.Sprintf("https://x.example/%d", i), "content": "c"})
	}
	b, err := json.Marshal(map[string]any{"results": many})
	if err != nil {
		t.Fatal(err)
	}
	r := registry(t, searching(SearXNG, provide(t, http.StatusOK, string(b))))
	for args, want := range map[string]int{"": 8, `,"max_results":3`: 3, `,"max_results":50`: 20} {
		text := call(t, r, "web_search", `{"query":"q"`+args+`}`)
		if n := strings.Count(text, "https://"); n != want {
			t.Errorf("%s: %d results", args, n)
		}
	}
}

// A page that stands in the way is never taken for "no results".
func TestABlockedSearchSaysSo(t *testing.T) {
	const says = "does not answer automated searches at the moment"
	for name, c := range map[string]struct {
		p      Provider
		status int
		body   string
		want   string
	}{
		"status 202":                {DDGHTML, 202, fixture(t, "ddg_blocked.html"), says},
		"status 202, lite":          {DDGLite, 202, "", says},
		"a puzzle with status 200":  {DDGHTML, 200, fixture(t, "ddg_blocked.html"), says},
		"the same, lite":            {DDGLite, 200, fixture(t, "ddg_blocked.html"), says},
		"status 403":                {DDGHTML, 403, "", says},
		"status 429":                {DDGHTML, 429, "", says},
		"a server that fails":       {DDGHTML, 500, "", "status 500"},
		"a page nobody knows":       {DDGHTML, 200, fixture(t, "ddg_strange.html"), "does not mean that there are none"},
		"an empty page":             {DDGHTML, 200, "", "does not mean that there are none"},
		"SearXNG without JSON":      {SearXNG, 403, "", "search.formats"},
		"SearXNG too often":         {SearXNG, 429, "", says},
		"SearXNG without engines":   {SearXNG, 200, `{"results":[],"unresponsive_engines":[["google","CAPTCHA"]]}`, says},
		"SearXNG answers in HTML":   {SearXNG, 200, "<html>", "does not answer with results in JSON"},
		"SearXNG without a list":    {SearXNG, 200, "{}", "does not answer with results in JSON"},
		"Tavily refuses the key":    {ByKey, 401, "", "refuses the key"},
		"Tavily too often":          {ByKey, 429, "", says},
		"Tavily's account is empty": {ByKey, 432, "", says},
		"Tavily answers nothing":    {ByKey, 200, "{}", "without a list"},
		"Tavily answers in HTML":    {ByKey, 200, "<html>", "not answer in JSON"},
	} {
		out := toolstest.Run(t.Context(), t, registry(t, searching(c.p, provide(t, c.status, c.body))), "web_search", `{"query":"q"}`)
		if out.Err == nil || !strings.Contains(out.Err.Error(), c.want) || strings.Contains(out.Err.Error(), "No results") || strings.Contains(out.Err.Error(), "tvly") {
			t.Errorf("%s: %v %q", name, out.Err, out.Result.Text)
		}
	}
}

func TestNoResultsIsAnAnswer(t *testing.T) {
	for p, body := range map[Provider]string{DDGHTML: fixture(t, "ddg_none.html"), SearXNG: `{"results":[]}`, ByKey: `{"results":[]}`} {
		if text := call(t, registry(t, searching(p, provide(t, http.StatusOK, body))), "web_search", `{"query":"q"}`); text != `No results for "q".` {
			t.Errorf("%s: %s", p, text)
		}
	}
}

func TestResultsAreTidy(t *testing.T) {
	got := dedupe([]searchResult{
		{"a", "javascript:alert(1)", ""}, {"b", "https://u:p@x.example/", ""}, {"", "https://x.example/", ""},
		{"t\u202e\n  1", "https://x.example/1", "s\x1b[31m\n\ns"}, {"again", "https://x.example/1", ""}, {"3", "HTTP://y.example", strings.Repeat("é", 900)},
	}, 20)
	if len(got) != 2 || got[0] != (searchResult{"t 1", "https://x.example/1", "s[31m s"}) || utf8.RuneCountInString(got[1].snippet) != maxSnippet+3 {
		t.Errorf("%q", got)
	}
}

//
func TestTavilySearches(t *testing.T) {
	f := provide(t, http.StatusOK, `{"results":[{"title":"T","url":"https://x.example/","content":"C"}]}`)
	text := call(t, registry(t, searching(ByKey, f)), "web_search", `{"query":"q","max_results":5}`)
	if text != "1. T\n   https://x.example/\n   C" {
		t.Error(text)
	}
	r := f.seen[0]
	if r.URL.Path != "/search" || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer tvly-secret" || f.body[0] != `{"query":"q","max_results":5,"include_answer":false}` {
		t.Errorf("%s %s %s", r.Method, r.URL, f.body[0])
	}
}

//
func TestTavilyAnswers(t *testing.T) {
	f := provide(t, http.StatusOK, `{"answer":"It is\u202e 42.","results":[{"title":"T","url":"https://x.example/","content":"C"}]}`)
	if text := call(t, registry(t, searching(ByKey, f)), "web_search_answer", `{"query":"q"}`); text != "It is 42.\n\nSources:\n\n1. T\n   https://x.example/\n   C" {
		t.Error(text)
	}
	if f.body[0] != `{"query":"q","max_results":8,"include_answer":true}` {
		t.Error(f.body[0])
	}
	f = provide(t, http.StatusOK, `{"answer":null,"results":[]}`)
	if text := call(t, registry(t, searching(ByKey, f)), "web_search_answer", `{"query":"q"}`); text != `There is no answer to "q".` {
		t.Error(text)
	}
}

//
func TestTavilyExtracts(t *testing.T) {
	long, err := json.Marshal(strings.Repeat("é\n", 60_000))
	if err != nil {
		t.Fatal(err)
	}
	f := provide(t, http.StatusOK, `{"results":[{"url":"https://a.example/","raw_content":"# A"},{"url":"https://b.example/","raw_content":`+string(long)+`}],"failed_results":[{"url":"https://c.example/","error":"not\nfound"}]}`)
	r := registry(t, searching(ByKey, f))
	text := call(t, r, "web_extract", `{"urls":["https://a.example","https://b.example/","https://c.example/"]}`)
	if !strings.HasPrefix(text, "[https://c.example/ could not be extracted: not found]\n\n## https://a.example/\n\n# A\n\n## https://b.example/\n\né\n") || !strings.HasSuffix(text, mark) || len(text) > defaultBytes || strings.Count(text, "\n") > maxLines {
		t.Errorf("%.200s, %d bytes", text, len(text))
	}
	if f.seen[0].URL.Path != "/extract" || f.body[0] != `{"urls":["https://a.example/","https://b.example/","https://c.example/"],"format":"markdown"}` {
		t.Error(f.body[0])
	}
	for _, args := range []string{`{"urls":[]}`, `{"urls":["http://127.0.0.1/"]}`, `{"urls":["` + f.URL + `"]}`, `{"urls":["https://me:pw@x.example/"]}`} {
		if _, err := r.Plan(t.Context(), toolCall("web_extract", args)); err == nil {
			t.Errorf("%s is planned", args)
		}
	}
	f = provide(t, http.StatusOK, `{}`)
	if text := call(t, registry(t, searching(ByKey, f)), "web_extract", `{"urls":["https://a.example"]}`); !strings.HasPrefix(text, "Tool error: ") {
		t.Error(text)
	}
}

// The tools of Tavily exist only with its key, whoever searches.
//
func TestTheKeyMakesTheTools(t *testing.T) {
	for key, want := range map[string]string{"": "fetch_url web_fetch web_search", "k": "fetch_url web_extract web_fetch web_search web_search_answer"} {
		var c Config
		c.Tavily.Key = "k"
		if key == "" {
			c.Tavily.Key = ""
		}
		if got := strings.Join(registry(t, c).Names(), " "); got != want {
			t.Errorf("%q: %s", key, got)
		}
	}
}

// The key goes to its address only.
func TestTavilyIsNotRedirected(t *testing.T) {
	other := provide(t, http.StatusOK, `{"results":[]}`)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	c := local(t, s, other.Server)
	c.Search.Provider, c.Tavily = ByKey, Tavily{Key: "k", URL: s.URL}
	if text := call(t, registry(t, c), "web_search", `{"query":"q"}`); !strings.Contains(text, "status 307") || len(other.seen) != 0 {
		t.Error(text)
	}
}

// The operator's provider may be on loopback; that opens nothing for the others.
func TestTheProviderOpensNothingElse(t *testing.T) {
	f := provide(t, http.StatusOK, `{"results":[]}`)
	r := registry(t, searching(SearXNG, f))
	call(t, r, "web_search", `{"query":"q"}`)
	if _, err := r.Plan(t.Context(), toolCall("fetch_url", byURL(f.URL))); err == nil {
		t.Error("fetch_url reaches the provider")
	}
}

func TestSearchesAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &rateLimiter{every: time.Second}
		begun := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := p.wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("three searches in %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if p.wait(ctx) == nil {
			t.Error("the context is not heard")
		}
	})
}

func FuzzDuckDuckGo(f *testing.F) {
	for _, name := range []string{"ddg_html.html", "ddg_html_renamed.html", "ddg_lite.html", "ddg_lite_renamed.html", "ddg_blocked.html", "ddg_none.html", "ddg_direct.html"} {
		f.Add(fixture(f, name), strings.Contains(name, "lite"))
	}
	f.Fuzz(func(t *testing.T, src string, lite bool) {
		all, err := readDuckDuckGo("x", "x.example", src, lite)
		if err != nil && len(all) > 0 {
			t.Error("results and an error")
		}
		checkList(t, all)
	})
}

func FuzzSearXNG(f *testing.F) {
	f.Add([]byte(`{"results":[{"title":"a","url":"https://x.example/","content":"c"}],"unresponsive_engines":[["a","b"]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := readSearXNG("x", body)
		if err != nil && len(all) > 0 {
			t.Error("results and an error")
		}
		checkList(t, all)
	})
}

func checkList(t *testing.T, all []searchResult) {
	t.Helper()
	kept := dedupe(all, maxResults)
	text := formatResults(kept)
	if len(kept) > maxResults || !utf8.ValidString(text) || sanitize(text) != text {
		t.Errorf("%q", text)
	}
	for _, f := range kept {
		if strings.Contains(f.title+f.url+f.snippet, "\n") || f.title == "" || !strings.HasPrefix(f.url, "http") {
			t.Errorf("%q", f)
		}
	}
}
