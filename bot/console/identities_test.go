package console

import (
	"encoding/json"
	"testing"

	"countersign/config"
	"countersign/console"
)

// What the two providers call things ends up under one name on the card and in rules.
func TestAJobIsReadFromItsProvidersClaims(t *testing.T) {
	for _, tc := range []struct {
		issuer, claims string
		want           console.Job
	}{
		{
			"https://token.actions.githubusercontent.com", `{"repository":"acme/shop","ref":"refs/heads/main","workflow":"deploy","run_id":"7","aud":["x"],"nested":{"a":1}}`,
			console.Job{User: "deploys", Program: "deploy", Repository: "github.com/acme/shop", Ref: "refs/heads/main"},
		},
		{
			"https://gitlab.example.com", `{"project_path":"acme/shop","ref":"main","pipeline_source":"push","project_id":"22","ref_protected":"true"}`,
			console.Job{User: "deploys", Program: "CI", Repository: "gitlab.example.com/acme/shop", Ref: "main"},
		},
		{"https://ci.example.com", `{"sub":"job 1"}`, console.Job{User: "deploys", Program: "CI"}},
	} {
		raw := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(tc.claims), &raw); err != nil {
			t.Fatal(err)
		}
		if got := jobOf(config.IdentityConfig{Issuer: tc.issuer, User: "deploys"}, texts(raw)); got != tc.want {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
	}
}

func TestRulesForJobsAreCheckedAtTheStart(t *testing.T) {
	for what, list := range map[string][]config.IdentityConfig{
		"a rule that can't be read":       {{Issuer: "https://a.example.com", Audience: "b", When: "claims.repository ==", User: "u"}},
		"a rule that is no condition":     {{Issuer: "https://a.example.com", Audience: "b", When: "claims.repository", User: "u"}},
		"keys that aren't there":          {{Issuer: "https://a.example.com", Audience: "b", When: "true", User: "u", Keys: "nothing.json"}},
		"an issuer that anybody could be": {{Issuer: "http://a.example.com", Audience: "b", When: "true", User: "u"}},
		"no audience":                     {{Issuer: "https://a.example.com", When: "true", User: "u"}},
	} {
		if _, err := newIdentities(list, "/nowhere/bot.yaml", config.WebConfig{}, nil); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if x, err := newIdentities(nil, "", config.WebConfig{}, nil); x != nil || err != nil {
		t.Errorf("without any: %v %v", x, err)
	}
}
