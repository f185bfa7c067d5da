package console

import (
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/mem"
)

// Each row is the sign-ins of one console, in order.
func TestOnePersonIsOneVoter(t *testing.T) {
	type in struct {
		subject, name string
		after         time.Duration // since the sign-in before
		want          chat.UserID   // "": refused with a sentence
		says          string
	}
	for _, c := range []struct {
		rule  string
		known []string // in the configuration
		ins   []in
	}{
		{"the same account again", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"1", "bob", time.Hour, "web:bob", ""}}},
		{"a space is no other person", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"1", "bob ", 0, "web:bob", ""}}},
		{"another account of the same name", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"2", "bob", 0, "", "looks like another person's"}}},
		{"another account with a space", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"2", "bob ", 0, "", "sign-in link"}}},
		{"another account with a Cyrillic letter", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"2", "b\u043eb", 0, "", "Have it changed"}}},
		{"another account in capitals", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"2", "BOB", 0, "", "looks like"}}},
		{"another account with a digit", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"2", "b0b", 0, "", "looks like"}}},
		{"characters that cannot be seen", nil, []in{{"1", "bo\u200bb", 0, "", "invisible characters"}, {"1", "bob\u202e", 0, "", "invisible characters"}}},
		{"two names of one account", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"1", "robert", time.Hour, "", `as "bob" before`}}},
		{"a new name, when the votes under the old one are over", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"1", "robert", defaultAbsolute + renameAfter, "web:robert", ""}, {"2", "bob", 0, "web:bob", ""}}},
		{"a name that nobody has had for long", nil, []in{{"1", "bob", 0, "web:bob", ""}, {"2", "bob", nameKept, "web:bob", ""}}},
		{"a name of the configuration", []string{"bob"}, []in{{"1", "bob", 0, "web:bob", ""}}},
		{"a name of the configuration, decomposed", []string{"jos\u00e9"}, []in{{"1", "jose\u0301", 0, "web:jos\u00e9", ""}}},
		{"what only imitates a name of the configuration", []string{"bob"}, []in{{"1", "bob ", 0, "", "looks like"}, {"1", "\uff42ob", 0, "", "looks like"}, {"1", "\u0432ob", 0, "", "looks like"}}},
	} {
		f := &fakeOIDC{}
		r := newRig(t, withOIDC(f), func(cfg *Config) {
			cfg.Users = everybody
			cfg.Names = func() []string { return c.known }
		})
		for i, s := range c.ins {
			r.clock.add(s.after + time.Minute) // attempts are counted by the minute
			f.name, f.subject = s.name, s.subject
			back := r.stranger().visit("/oidc/callback?code=good", with(r.stranger().begin("")))
			k := cookieOf(back, cookieName)
			if (k != nil) != (s.want != "") {
				t.Errorf("%s: sign-in %d: %d %s", c.rule, i, back.status, back.body)
				continue
			}
			if k == nil {
				if back.status != 403 || !strings.Contains(string(back.body), strings.ReplaceAll(strings.ReplaceAll(s.says, "'", "&#39;"), `"`, "&#34;")) {
					t.Errorf("%s: sign-in %d: %d %s", c.rule, i, back.status, back.body)
				}
				continue
			}
			var me struct{ User chat.UserID }
			(&person{rig: r, cookie: k.Value}).get("/api/me", &me)
			if me.User != s.want {
				t.Errorf("%s: sign-in %d is %s", c.rule, i, me.User)
			}
		}
	}
}

func TestAnotherProvidersAccountsHoldNoNames(t *testing.T) {
	a, err := New(Config{DB: mem.Open(), DoorConfig: DoorConfig{Key: testKey, Users: everybody}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, issuer := range []string{"https://old.example.com", "https://new.example.com"} {
		err := a.db.Update(t.Context(), func(tx store.Tx) error {
			return a.door.provider.names.identify(tx, account{issuer, "of " + issuer}, "bob", "bob", now)
		})
		if err != nil {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}

func TestALinkIsForTheCleanName(t *testing.T) {
	r := newRig(t)
	got := r.stranger().do("POST", "/api/login", codeBody(LoginCode(testKey, "you ", r.clock.now())))
	if got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	var me struct{ User chat.UserID }
	(&person{rig: r, cookie: got.cookie[0].Value}).get("/api/me", &me)
	if me.User != "web:you" {
		t.Errorf("it is %s", me.User)
	}
	if got := r.stranger().do("POST", "/api/login", codeBody(LoginCode(testKey, "yo\u200bu", r.clock.now()))); got.status != 403 {
		t.Errorf("an invisible character: %d", got.status)
	}
}
