package manual

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"countersign"

	"github.com/spf13/cobra"
)

func whole(t testing.TB) *Manual {
	t.Helper()
	root := &cobra.Command{Use: "countersign"}
	store := &cobra.Command{Use: "store", Short: "Look after the store"}
	store.AddCommand(&cobra.Command{Use: "check", Short: "Check it", Long: "Check it whole.", Example: "  countersign store check", Run: func(*cobra.Command, []string) {}})
	root.AddCommand(store)
	m, err := Of(root)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEveryDocumentHasOnePlace(t *testing.T) {
	m := whole(t)
	var placed []string
	for _, part := range m.Parts {
		for _, p := range part.Pages() {
			placed = append(placed, p.Name)
			if p.Title == "" || p.Title == p.Name || len(p.Sections) == 0 {
				t.Errorf("%s has the title %q and %d sections", p.Name, p.Title, len(p.Sections))
			}
		}
	}
	there, err := fs.Glob(countersign.Documents, dir+"/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if file == indexName {
			continue
		}
		name := strings.TrimSuffix(path.Base(file), ".md")
		if n := len(slices.DeleteFunc(slices.Clone(placed), func(s string) bool { return s != name })); n != 1 {
			t.Errorf("%s stands in %d places of the list", file, n)
		}
	}
	if len(placed) != len(there)-1+len(beside)+3 {
		t.Errorf("%d places for %d documents, %d elsewhere and 3 made pages", len(placed), len(there)-1, len(beside))
	}
}

// TestTasksAreFoundByOneSearch: what people look for is among the first three.
func TestTasksAreFoundByOneSearch(t *testing.T) {
	m := whole(t)
	for words, want := range map[string]string{
		"two approvers in production": "cookbook-two-people",
		"add a new SSH host":          "ssh",
		"restore a backup":            "backup#restore",
		"checking the store":          "commands#countersign-store-check",
	} {
		var got []string
		for _, h := range m.Search(words, 3) {
			got = append(got, h.Where())
			if h.Excerpt == "" {
				t.Errorf("%s: %s has no excerpt", words, h.Where())
			}
		}
		if !slices.Contains(got, want) {
			t.Errorf("%q finds %q, want %s", words, got, want)
		}
	}
	if got := m.Search("xyzzy plugh", 3); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := m.Search(" of the ", 3); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAnExcerptIsASentence(t *testing.T) {
	text := "The bot reads a file\nthat has two lines. Nothing else does.\n\n```sh\nfile one\n```\n\n- A list\n  goes on. It ends\n| a row | of a table |\n"
	want := []string{"The bot reads a file that has two lines", "Nothing else does.", "- A list goes on", "It ends", "| a row | of a table |", "file one"}
	var got []string
	for _, s := range sentences(text) {
		if s = strings.TrimSpace(s); s != "" {
			got = append(got, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	raw, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(raw), w.Result().Header
}

var hrefs = regexp.MustCompile(`href="([^"]+)"`)

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	m := whole(t)
	h := m.Handler("1.2.3")
	pages := map[string]string{}
	for _, path := range append([]string{Root, Root + "/"}, addresses(m)...) {
		code, body, header := get(t, h, path)
		if code != http.StatusOK || !strings.Contains(body, "<h1>") || strings.Contains(body, "<img") || strings.Contains(body, "<script") {
			t.Errorf("%s: %d", path, code)
		}
		if !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %q", path, header)
		}
		pages[path] = body
	}
	for from, body := range pages {
		for _, found := range hrefs.FindAllStringSubmatch(body, -1) {
			to, err := url.Parse(found[1])
			if err != nil {
				t.Errorf("%s: %v", from, err)
				continue
			}
			if to.IsAbs() || to.Path == "/" || to.Path == Style || to.Path == Root+"/openapi.yaml" {
				continue
			}
			on := from
			if to.Path != "" {
				on = to.Path
			}
			there, ok := pages[on]
			if !ok {
				t.Errorf("%s leads to %s, which is not served", from, found[1])
			} else if to.Fragment != "" && !strings.Contains(there, `id="`+to.Fragment+`"`) {
				t.Errorf("%s leads to %s, and there is no such heading", from, found[1])
			}
		}
	}
}

func addresses(m *Manual) (out []string) {
	for _, part := range m.Parts {
		for _, p := range part.Pages() {
			out = append(out, Root+"/"+p.Name)
		}
	}
	return out
}

func TestWhatIsLookedForIsData(t *testing.T) {
	h := whole(t).Handler("<b>")
	for path, want := range map[string]int{
		"/docs?q=" + url.QueryEscape(`"><script>alert(1)</script>`): 200, "/docs?q=" + strings.Repeat("x", 5000): 200, "/docs/nothing<b>": 404, "/docs/..%2f..%2fetc%2fpasswd": 404,
		"/docs?q=restore": 200, Style: 200, "/docs/openapi.yaml": 200,
	} {
		code, body, _ := get(t, h, strings.ReplaceAll(path, "<b>", "%3Cb%3E"))
		if code != want || strings.Contains(body, "<script>") || strings.Contains(body, "<b>") {
			t.Errorf("%s: %d", path, code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Root, http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %d", w.Code)
	}
}

func TestOnTheCommandLine(t *testing.T) {
	m := whole(t)
	said := func(asked string) string {
		var b strings.Builder
		if err := m.print(&b, asked); err != nil {
			return "error: " + err.Error()
		}
		return b.String()
	}
	for asked, want := range map[string]string{
		"": "\n  policy                     The policy\n", "policy": "# The policy\n\n", "ssh": "# SSH hosts\n\n", "restore a backup": " docs backup#restore\n",
		"xyzzy": "error: no page has \"xyzzy\"",
	} {
		if got := said(asked); !strings.Contains(got, want) {
			t.Errorf("%q: %.200s", asked, got)
		}
	}
}

func TestAHeadingInABlockIsNone(t *testing.T) {
	p := parse("x", "# X\n\nbefore\n\n```sh\n## no\n```\n\n## `a` B, c?\n\nafter ![p](p.png)\n![p](p.png)\n")
	if len(p.Sections) != 2 || p.Sections[1].Title != "a B, c?" || p.Sections[1].Anchor != "a-b-c" || strings.Contains(p.Sections[1].Text, "\n![") {
		t.Errorf("%+v", p.Sections)
	}
}

func TestAMissingPageIsAnError(t *testing.T) {
	if _, err := New(fstest.MapFS{}, ""); err == nil {
		t.Error("it isn't")
	}
}
