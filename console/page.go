package console

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var static embed.FS

type asset struct {
	body []byte
	kind string
	tag  string
}

var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
	".json": "application/manifest+json",
	"":      "text/plain; charset=utf-8",
}

// refusedFile is a page without a path of its own, see refusalPage.
const refusedFile = "/refused.html"

// loadAssets puts the files of the page into memory by their path on the server.
// parts fills the placeholders of pages.
func loadAssets(parts *strings.Replacer) (map[string]asset, error) {
	out := map[string]asset{}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("web: the file %s has no known type: add it to kinds", name)
		}
		url := strings.TrimPrefix(name, "static")
		if ext := path.Ext(name); ext == ".html" || ext == ".json" {
			body = []byte(parts.Replace(string(body)))
		}
		switch url {
		case "/index.html":
			url = "/"
		case "/watch.html":
			url = "/watch"
		}
		sum := sha256.Sum256(body)
		out[url] = asset{body: body, kind: kind, tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
		return nil
	})
	return out, err
}

func newPages(cfg Config) (*pages, error) {
	all, err := loadAssets(pageParts(cfg))
	if err != nil {
		return nil, err
	}
	p := &pages{assets: all, refused: all[refusedFile].body}
	delete(all, refusedFile)
	if !cfg.WatchLinks {
		delete(all, "/watch")
		delete(all, "/watch.js")
	}
	return p, nil
}

// pageParts fills the placeholders of pages, with markup.
func pageParts(cfg Config) *strings.Replacer {
	var list strings.Builder
	for _, e := range cfg.Examples {
		list.WriteString(`<li><button type="button">` + html.EscapeString(e) + "</button></li>\n")
	}
	signIn := ""
	if cfg.OIDC != nil {
		signIn = `<a id="oidc" class="button primary" href="/oidc/start?page">` + html.EscapeString(cfg.OIDCLabel) + `</a>`
	}
	passkey := ""
	if cfg.Passkeys != nil && cfg.OIDC == nil {
		passkey = `<button id="passkey-login" class="button primary" type="button" hidden>Sign in with a passkey</button>`
	}
	return strings.NewReplacer("{{passkey}}", passkey, "{{signin}}", cmp.Or(cfg.SignIn, saySignInHow), "{{title}}", html.EscapeString(cfg.Title), "{{examples}}", list.String(), "{{oidc}}", signIn)
}

// pages are the files of the page.
type pages struct {
	assets  map[string]asset
	refused []byte // a page, see refusalPage
}

func (p *pages) serve(w http.ResponseWriter, r *http.Request) {
	f, ok := p.assets[r.URL.Path]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		p.failPage(w, r, http.StatusNotFound, headNoPage, sayNoPage, "/")
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache") // ask each time: the page must fit the API
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(f.body) // who has gone needs no answer
}

// failPage is fail for somebody who typed an address: a page, with a link to the console.
func (p *pages) failPage(w http.ResponseWriter, r *http.Request, status int, heading, sentence, to string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		fail(w, status, sentence)
		return
	}
	p.page(w, status, heading, sentence, to, sayToConsole)
}

// refusalPage says why somebody isn't signed in, with the way back.
func (p *pages) refusalPage(w http.ResponseWriter, status int, sentence string) {
	p.page(w, status, sayNotSignedIn, sentence, "/", sayToSignIn)
}

// page is a page with one sentence and a link.
func (p *pages) page(w http.ResponseWriter, status int, heading, sentence, to, link string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	parts := []string{"{{heading}}", heading, "{{says}}", sentence, "{{to}}", to, "{{link}}", link}
	for i := 1; i < len(parts); i += 2 {
		parts[i] = html.EscapeString(parts[i])
	}
	_, _ = strings.NewReplacer(parts...).WriteString(w, string(p.refused)) // who has gone needs no answer
}
