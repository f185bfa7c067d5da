package admin

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/cli/words"
	"countersign/store/bolt"
)

func TestUpgradeCheckLooksAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bot.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "groups: {oncall: {web: [ann]}}\n")
	t.Setenv("COUNTERSIGN_CONFIG", file)
	t.Setenv("COUNTERSIGN_DATA_DIR", dir)
	t.Setenv("COUNTERSIGN_STORE", "")
	t.Setenv("COUNTERSIGN_LISTEN", "127.0.0.1:1")
	check := func() (string, error) {
		t.Helper()
		c := root()
		c.AddCommand(UpgradeCommand("9.9.9"))
		var out strings.Builder
		c.SetArgs([]string{"upgrade", "--check"})
		c.SetOut(&out)
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	says := func(want ...string) {
		t.Helper()
		out, err := check()
		if err != nil {
			t.Errorf("%v", err)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("it lacks %q:\n%s", w, out)
			}
		}
	}
	says("this program:   9.9.9\n", "no bot answers", "takes it as it is", "there is none yet")
	db, err := bolt.Open(filepath.Join(dir, "countersign.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	says("the running bot has it")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	says("its layout stays")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(words.VersionHeader, "1.0.0") }))
	defer srv.Close()
	write(filepath.Join(dir, "address"), srv.URL+"\n")
	says("running:        1.0.0")
	write(file, "grups: {}\n")
	if out, err := check(); err == nil || !strings.Contains(out, "this version refuses it: ") {
		t.Errorf("%v\n%s", err, out)
	}
	c := root()
	c.AddCommand(UpgradeCommand("9.9.9"))
	c.SetArgs([]string{"upgrade"})
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "doesn't replace itself") {
		t.Errorf("%v", err)
	}
}
