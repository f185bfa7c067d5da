package web

import (
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/toolstest"
)

func itoa(n int) string { return strconv.Itoa(n) }

func port(t testing.TB, s *httptest.Server) int {
	t.Helper()
	n, err := strconv.Atoi(at(t, s.URL).Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func counting(t testing.TB, body string) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		_, _ = w.Write([]byte(body))
	}), &n
}

// local allows exactly these servers.
func local(t testing.TB, ss ...*httptest.Server) Config {
	t.Helper()
	var c Config
	for _, s := range ss {
		c.Allow = append(c.Allow, at(t, s.URL).Host)
	}
	return c
}

func registry(t testing.TB, c Config) *tools.Registry {
	t.Helper()
	ts, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tools.NewRegistry(time.Now, ts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call runs a call and returns its text, or the error as the model sees it.
func call(t *testing.T, r *tools.Registry, name, args string) string {
	t.Helper()
	out := toolstest.Run(t.Context(), t, r, name, args)
	if out.Err != nil {
		return tools.ErrorText(out.Err)
	}
	return out.Result.Text
}

func byURL(u string) string { return fmt.Sprintf(`{"url":%q}`, u) }

func named(t *testing.T, c Config, name string) tools.Tool {
	t.Helper()
	ts, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range ts {
		if x.Spec().Name == name {
			return x
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil
}

func TestToolsKeepTheirPromises(t *testing.T) {
	s, seen := counting(t, "x")
	c := local(t, s)
	c.Search.URL = s.URL
	c.Tavily = Tavily{Key: "tvly-test", URL: s.URL}
	effects := func() int { return int(seen.Load()) }
	toolstest.Check(t, named(t, c, "fetch_url"), effects, toolstest.Case{Name: "fetch_url", Args: byURL(s.URL + "/a")})
	toolstest.Check(t, named(t, c, "web_fetch"), effects, toolstest.Case{Name: "web_fetch", Args: `{"url":"` + s.URL + `/a","max_bytes":100}`})
	toolstest.Check(t, named(t, c, "web_search"), effects, toolstest.Case{Name: "web_search", Args: `{"query":"q","max_results":3}`})
	toolstest.Check(t, named(t, c, "web_search_answer"), effects, toolstest.Case{Name: "web_search_answer", Args: `{"query":"q"}`})
	toolstest.Check(t, named(t, c, "web_extract"), effects, toolstest.Case{Name: "web_extract", Args: `{"urls":["https://example.org/a"]}`})
}

//
func TestTheAddressIsWhatPeopleSee(t *testing.T) {
	r := registry(t, Config{})
	for _, name := range []string{"fetch_url", "web_fetch"} {
		p, err := r.Plan(t.Context(), tools.Call{Name: name, Args: []byte(`{"url":"HTTPS://Example.org/x?key=1#y"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if a := p.Action; string(a.Bytes) != "https://example.org/x?key=1" || a.Kind != approvals.KindObserve || a.Target != "harness" || p.Level != risk.Low {
			t.Errorf("%s: %+v %v", name, a, p.Level)
		}
	}
}

func TestTheLevelsFollowTheConfiguration(t *testing.T) {
	for level, want := range map[risk.Level]risk.Level{risk.Unknown: risk.Low, risk.Read: risk.Read, risk.Medium: risk.Medium} {
		c := Config{Level: level, Tavily: Tavily{Key: "k"}}
		for name, want := range map[string]risk.Level{"fetch_url": want, "web_fetch": want, "web_extract": want, "web_search": want, "web_search_answer": risk.Read} {
			if got := named(t, c, name).Spec().Level; got != want {
				t.Errorf("%v: %s is %v", level, name, got)
			}
		}
		// Who names a provider has chosen whom the words reach.
		c.Search.Provider = DDGLite
		if got := named(t, c, "web_search").Spec().Level; got != risk.Read {
			t.Errorf("%v: web_search with a provider of the operator's is %v", level, got)
		}
	}
}

// B-57.
func TestFetchURLSendsOneGETAndReturnsTheBody(t *testing.T) {
	var got []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.String())
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<b>raw</b>"))
	})
	if text := call(t, registry(t, local(t, s)), "fetch_url", byURL(s.URL+"/p?q=1")); text != "<b>raw</b>" {
		t.Errorf("%q", text)
	}
	if len(got) != 1 || got[0] != "GET /p?q=1" {
		t.Errorf("%v", got)
	}
}

// B-58.
func TestNoCredentialsAreSent(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://user:pw@127.0.0.1:1")
	t.Setenv("http_proxy", "http://user:pw@127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://user:pw@127.0.0.1:1")
	var all []http.Header
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		all = append(all, r.Header.Clone())
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusFound)
		}
	})
	r := registry(t, local(t, s))
	call(t, r, "fetch_url", byURL(s.URL+"/a"))
	call(t, r, "web_fetch", byURL(s.URL+"/a"))
	if len(all) != 4 {
		t.Fatalf("%d requests", len(all))
	}
	for _, h := range all {
		for _, name := range []string{"Authorization", "Cookie", "Referer", "Proxy-Authorization"} {
			if h.Get(name) != "" {
				t.Errorf("%s: %s", name, h.Get(name))
			}
		}
		if h.Get("User-Agent") != "countersign" {
			t.Error(h)
		}
	}
}

// B-59.
func TestFetchURLIsCutAt8000Characters(t *testing.T) {
	for name, body := range map[string]string{"wide": strings.Repeat("日", 100_000), "one more": strings.Repeat("é", 8001), "controls": strings.Repeat("\x01", 100_000) + "x"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(body))
		})
		text := call(t, registry(t, local(t, s)), "fetch_url", byURL(s.URL))
		head, ok := strings.CutSuffix(text, mark)
		if n := utf8.RuneCountInString(head); !ok || (n != 8000 && name != "controls") || !utf8.ValidString(text) {
			t.Errorf("%s: %d characters, %v", name, n, ok)
		}
	}
	s, _ := counting(t, strings.Repeat("é", 8000))
	if text := call(t, registry(t, local(t, s)), "fetch_url", byURL(s.URL)); utf8.RuneCountInString(text) != 8000 {
		t.Error("exactly 8000 characters are cut")
	}
}

// N-42.
func TestMaxBytes(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(strings.Repeat("x", 300_000)))
	})
	r := registry(t, local(t, s))
	for args, want := range map[string]int{"": 51200, `,"max_bytes":100`: 100, `,"max_bytes":200000`: 102400, `,"max_bytes":99999999999`: 102400} {
		text := call(t, r, "web_fetch", `{"url":"`+s.URL+`"`+args+`}`)
		if text != strings.Repeat("x", want)+mark {
			t.Errorf("%s: %d bytes", args, len(text))
		}
	}
}

// N-43.
func TestWhatComesBackIsCutAt2000Lines(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(strings.Repeat("x\n", 9000)))
	})
	text := call(t, registry(t, local(t, s)), "web_fetch", `{"url":"`+s.URL+`","max_bytes":102400}`)
	if n := strings.Count(text, "\n"); n != 2000 || !strings.HasSuffix(text, mark) {
		t.Errorf("%d lines", n)
	}
}

func TestTypes(t *testing.T) {
	latin := "caf\xe9"
	for name, c := range map[string]struct{ kind, body, want string }{
		"HTML":                       {"text/html; charset=utf-8", "<h1>é</h1>", "# é\n"},
		"XHTML":                      {"application/xhtml+xml", "<h1>x</h1>", "# x\n"},
		"no type, looks like HTML":   {"", "<!doctype html><h1>x</h1>", "# x\n"},
		"plain text":                 {"text/plain", "<h1>x</h1>", "<h1>x</h1>"},
		"JSON":                       {"application/json", `{"a":1}`, `{"a":1}`},
		"JSON of a kind":             {"application/problem+json", `{"a":1}`, `{"a":1}`},
		"YAML":                       {"application/x-yaml", "a: 1", "a: 1"},
		"Latin-1 by the header":      {"text/plain; charset=iso-8859-1", latin, "café"},
		"Latin-1 by the page":        {"text/html", `<meta charset="iso-8859-1">` + latin, "café\n"},
		"Latin-1 unsaid in a page":   {"text/html", latin, "café\n"},
		"UTF-8 late in a page":       {"text/html", strings.Repeat("a", 3000) + "é", strings.Repeat("a", 3000) + "é\n"},
		"UTF-16":                     {"text/plain", "\xff\xfea\x00\xe9\x00", "aé"},
		"a byte order mark":          {"text/plain", "\xef\xbb\xbfx", "x"},
		"broken UTF-8":               {"text/plain; charset=utf-8", "a\xffb", "a\ufffdb"},
		"control characters":         {"text/plain", "a\x1b[31mb\u202e", "a[31mb"},
		"empty":                      {"image/png", "", ""},
		"a picture":                  {"image/png", "\x89PNG\r\n\x1a\n", `Tool error: `},
		"a picture that lies":        {"text/html", "\x89PNG\r\n\x1a\n\x00\x00", `Tool error: `},
		"octets that are text":       {"application/octet-stream", "key=value", "key=value"},
		"octets that are not":        {"application/octet-stream", "\x00\x01\x02", `Tool error: `},
		"a PDF":                      {"application/pdf", "%PDF-1.7", `Tool error: `},
		"an archive":                 {"application/zip", "PK\x03\x04", `Tool error: `},
		"a type that cannot be read": {";;;", "plain", "plain"},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{c.kind}
			_, _ = w.Write([]byte(c.body))
		})
		text := call(t, registry(t, local(t, s)), "web_fetch", byURL(s.URL))
		if text != c.want && (c.want != "Tool error: " || !strings.HasPrefix(text, c.want) || !strings.Contains(text, "not text")) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

func TestAnErrorPageIsShownAndCountsAsAFailure(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone fishing", http.StatusNotFound) })
	out := toolstest.Run(t.Context(), t, registry(t, local(t, s)), "fetch_url", byURL(s.URL))
	if out.Result.Text != "[HTTP status 404 Not Found]\n\ngone fishing\n" || !out.Result.Failed {
		t.Errorf("%+v", out.Result)
	}
}

func TestRedirects(t *testing.T) {
	other, seen := counting(t, "other")
	private, reached := counting(t, "private")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/other": other.URL + "/x", "/private": private.URL, "/meta": "http://169.254.169.254/latest/", "/mapped": "http://[::ffff:169.254.169.254]/",
			"/file": "file:///etc/passwd", "/user": strings.Replace(other.URL, "//", "//me:pw@", 1), "/loop": "/loop", "/5": "/4", "/4": "/3", "/3": "/2", "/2": "/1", "/1": "/0",
			"/bad": "http://[", "/rel": "0?x",
		}[r.URL.Path]
		if to == "" {
			_, _ = w.Write([]byte("here"))
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	})
	r := registry(t, local(t, s, other))
	for from, want := range map[string]string{
		"/rel":     "[redirected: " + s.URL + "/rel -> " + s.URL + "/0?x]\n\nhere",
		"/private": "Tool error: 127.0.0.1:",
		"/meta":    "which is never allowed",
		"/mapped":  "which is never allowed",
		"/file":    "only addresses that begin with http",
		"/user":    "holds a user or a password",
		"/loop":    "more than 5 times",
		"/bad":     "no address",
		"/5":       "here",
	} {
		if text := call(t, r, "fetch_url", byURL(s.URL+from)); !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", from, text, want)
		}
	}
	if reached.Load() != 0 || seen.Load() != 0 {
		t.Errorf("the private server was reached %d times, the other one %d", reached.Load(), seen.Load())
	}
	if text := call(t, r, "fetch_url", byURL(s.URL+"/other")); !strings.Contains(text, other.URL+"/x]\n\nother") {
		t.Error(text)
	}
}

func TestARedirectToAnotherHostIsNamed(t *testing.T) {
	p := page{status: 200, redirects: []*url.URL{at(t, "https://b.example/x")}}
	if got := p.notes(at(t, "https://a.example/")); got != "[redirected to another host than the one that was asked for: https://a.example/ -> https://b.example/x]\n" {
		t.Error(got)
	}
}

// A name that leads to a forbidden address is found when it is dialed.
func TestANameThatLeadsInsideIsNotDialed(t *testing.T) {
	s, seen := counting(t, "secret")
	c := Config{Ports: []int{port(t, s)}, Resolver: zone(t, func(name string) string {
		if name == "inside.example" {
			return "127.0.0.1"
		}
		return ""
	})}
	text := call(t, registry(t, c), "fetch_url", byURL("http://inside.example:"+itoa(port(t, s))))
	if !strings.Contains(text, "inside.example leads to 127.0.0.1, which is not a public address") || seen.Load() != 0 {
		t.Errorf("%s, %d", text, seen.Load())
	}
	if text := call(t, registry(t, c), "fetch_url", byURL("http://nowhere.example/")); !strings.Contains(text, "does not exist") {
		t.Error(text)
	}
	c.Allow = []string{"127.0.0.0/8"}
	if text := call(t, registry(t, c), "fetch_url", byURL("http://inside.example:"+itoa(port(t, s)))); text != "secret" {
		t.Error(text)
	}
}

func TestEncryptionIsNotGivenUp(t *testing.T) {
	plain, seen := counting(t, "plain")
	s := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(s.Close)
	c := local(t, s, plain)
	if text := call(t, registry(t, c), "fetch_url", byURL(s.URL)); !strings.Contains(text, "certificate") {
		t.Error(text)
	}
	c.Roots = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if text := call(t, registry(t, c), "fetch_url", byURL(s.URL)); !strings.Contains(text, "without encryption") || seen.Load() != 0 {
		t.Error(text)
	}
}

func TestBombsAreCut(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		block := []byte(strings.Repeat("x", 1<<20))
		for range 200 {
			if _, err := z.Write(block); err != nil {
				return
			}
		}
		_ = z.Close()
	})
	g := getter{guard: newTestGuard(t, local(t, s)), timeout: time.Minute}
	p, err := g.get(t.Context(), at(t, s.URL), "*/*", maxPage)
	if err != nil || len(p.body) != maxPage || !p.cut {
		t.Errorf("%d bytes, %v", len(p.body), err)
	}
	s = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write([]byte("x"))
	})
	if text := call(t, registry(t, local(t, s)), "fetch_url", byURL(s.URL)); !strings.Contains(text, `coding "br"`) {
		t.Error(text)
	}
}

func TestASlowServerIsNotWaitedFor(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("a"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := local(t, s)
	c.Timeout = 50 * time.Millisecond
	if text := call(t, registry(t, c), "fetch_url", byURL(s.URL)); !strings.Contains(text, "did not answer completely within 50ms") {
		t.Error(text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := toolstest.Run(ctx, t, registry(t, local(t, s)), "fetch_url", byURL(s.URL))
	if out.Err == nil || !strings.Contains(out.Err.Error(), "was stopped") {
		t.Error(out.Err)
	}
}

func FuzzText(f *testing.F) {
	f.Add("text/html; charset=utf-16", []byte("<p>x"))
	f.Add("", []byte("\xff\xfex"))
	f.Add("text/plain; charset=iso-2022-jp", []byte("\x1b$B"))
	u := at(f, "http://example.org/")
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		p := page{kind: kind, body: body, url: u}
		text, _, err := p.text()
		if err != nil {
			return
		}
		if got := sanitize(text); !utf8.ValidString(got) || sanitize(got) != got {
			t.Errorf("%q", got)
		}
	})
}

func toolCall(name, args string) tools.Call { return tools.Call{Name: name, Args: []byte(args)} }
