package remote

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"countersign/client/account"
)

// TestAProgramsTokenIsKeptBesideWhatOthersMade: a newer sign-in and the tokens of others stay, and one that has
// ended is replaced.
func TestAProgramsTokenIsKeptBesideWhatOthersMade(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("COUNTERSIGN_TOKEN", "")
	made := []string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/me" && strings.HasSuffix(r.Header.Get("Authorization"), "ended"):
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/tokens":
			var in struct{ Program string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			made = append(made, in.Program)
			_ = json.NewEncoder(w).Encode(map[string]string{"token": "cst_new"})
		}
	}))
	t.Cleanup(s.Close)
	a := Account{URL: s.URL, Token: "cst_1", ID: "1", Programs: map[string]string{"old": "cst_ended"}}
	use := asProgram(a)
	others := a
	others.Programs = map[string]string{"old": "cst_ended", "other": "cst_other"}
	if err := others.Save(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other", "old", "old", strings.Repeat("é", 80)} {
		if _, err := use(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if len(made) != 2 || made[0] != "old" || made[1] != strings.Repeat("é", 50) {
		t.Errorf("made for %q", made)
	}
	if kept, _ := account.Load(); kept.Programs["other"] != "cst_other" || kept.Programs["old"] != "cst_new" {
		t.Errorf("%+v", kept)
	}
	newer := Account{URL: s.URL, Token: "cst_2", ID: "2"}
	if err := newer.Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := use(t.Context(), "third"); err != nil {
		t.Fatal(err)
	}
	if kept, _ := account.Load(); kept.ID != "2" || len(kept.Programs) > 0 {
		t.Errorf("a newer sign-in is lost: %+v", kept)
	}
}

// TestASignInRenewsTheTokensOfHooks: those of the same bot and user, and the old one ends when the new one is kept.
func TestASignInRenewsTheTokensOfHooks(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	file, err := account.HookFile("codex")
	if err != nil {
		t.Fatal(err)
	}
	ended := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/me":
			_ = json.NewEncoder(w).Encode(map[string]string{"name": "ann"})
		case r.URL.Path == "/api/tokens":
			var in struct{ Program string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			_ = json.NewEncoder(w).Encode(map[string]string{"id": "of " + in.Program, "token": "cst_" + in.Program})
		case strings.HasSuffix(r.URL.Path, "/end"):
			kept, _ := account.Read(file)
			ended = r.URL.Path + " after " + kept.ID
		}
	}))
	t.Cleanup(s.Close)
	other, err := account.HookFile("gemini-cli")
	if err != nil {
		t.Fatal(err)
	}
	if err := (Account{URL: s.URL, Token: "cst_old", ID: "old", User: "ann"}).Write(file); err != nil {
		t.Fatal(err)
	}
	if err := (Account{URL: s.URL, Token: "cst_bobs", ID: "bobs", User: "bob"}).Write(other); err != nil {
		t.Fatal(err)
	}
	if err := Login(t.Context(), io.Discard, s.URL+"/#code=x", Wish{Name: "x", Scope: "ask", Days: 30}, false); err != nil {
		t.Fatal(err)
	}
	if kept, _ := account.Read(file); kept.Token != "cst_Codex" || ended != "/api/tokens/old/end after of Codex" {
		t.Errorf("%+v, %s", kept, ended)
	}
	if kept, _ := account.Read(other); kept.Token != "cst_bobs" {
		t.Errorf("another user's: %+v", kept)
	}
}
