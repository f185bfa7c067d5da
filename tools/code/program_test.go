package code

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"countersign/targets/local"
)

func TestTheParserIsFoundOnThePath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, parserName)
	p := &program{target: local.New(local.Options{})}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := installed(); got == path {
		t.Error("a file that is no program was taken for one")
	}
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := p.find(t.Context()); got != path || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A checkout builds its own parser once; without Go on the PATH, the sentence says what to do.
func TestABuildGetsNoSecretOfTheBot(t *testing.T) {
	got := buildEnviron([]string{"PATH=/bin", "SLACK_BOT_TOKEN=xoxb", "GOOGLE_API_KEY=x", "GOPATH=/go", "OPENAI_API_KEY=sk", "HOME=/root", "odd"})
	if want := []string{"PATH=/bin", "GOPATH=/go", "HOME=/root"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestACheckoutBuildsItsParser(t *testing.T) {
	needGrammars(t)
	if installed() != "" {
		t.Skip("a parser is installed here")
	}
	t.Setenv("GOCACHE", goCache(t)) // before the cache directory is another one
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := &program{target: local.New(local.Options{})}
	exe, err := p.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *Config) { c.Worker = Parser(local.New(local.Options{})) })
	w.put("a.go", "package a\nfunc F() {}\n")
	if got := as[symbolsResult](w, "indexer_extract_symbols", `{"name":"F"}`); len(got.Symbols) != 1 {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/nonexistent")
	if _, err := (&program{target: local.New(local.Options{})}).find(t.Context()); !errors.Is(err, errNoParser) {
		t.Error(err)
	}
}

// goCache is where Go keeps what it built, whatever the cache directory is.
func goCache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("GOCACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "go-build")
}
