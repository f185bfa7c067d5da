package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"countersign/config"
	"countersign/console"
	"countersign/console/oidc"
	"countersign/internal/condition"
)

const (
	maxRule     = 2000 // code points of a rule
	maxRuleCost = 100_000
	maxKeys     = 1 << 20 // bytes of a file of keys
)

// identities implements [console.Identities].
type identities struct {
	jobs   []jobRule
	person *oidc.Verifier // nil: no provider gives access tokens for the bot
	client *oidc.Client
	issuer string
}

// jobRule says which jobs of an issuer are who.
type jobRule struct {
	config.IdentityConfig
	check *oidc.Verifier
	when  *condition.Condition
}

var errNoIdentities = errors.New("this bot trusts no provider of jobs; programs.identities in its configuration names them")

// newIdentities makes the identities of a configuration; nil are none.
func newIdentities(list []config.IdentityConfig, file string, web config.WebConfig, client *oidc.Client) (*identities, error) {
	out := &identities{client: client}
	language, err := condition.New(maxRule, maxRuleCost)
	if err == nil {
		language, err = language.With(map[string]condition.Type{"claims": condition.TextMap}, nil)
	}
	if err != nil {
		return nil, err
	}
	for i, c := range list {
		at := fmt.Sprintf("programs.identities[%d]", i)
		r := jobRule{IdentityConfig: c}
		if r.when, err = language.Compile(c.When); err != nil {
			return nil, config.Errorf("%s.when: %v", at, err)
		}
		var keys []byte
		if c.Keys != "" {
			path := c.Keys
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(file), path)
			}
			if keys, err = os.ReadFile(path); err != nil || len(keys) > maxKeys {
				return nil, config.Errorf("%s.keys: %s can't be read, or is too long; save there what the issuer publishes at its jwks_uri", at, path)
			}
		}
		if r.check, err = oidc.NewVerifier(oidc.VerifierConfig{Issuer: c.Issuer, Audience: cmp.Or(c.Audience, web.Origin), Keys: keys}); err != nil {
			return nil, config.Errorf("%s: %v", at, err)
		}
		out.jobs = append(out.jobs, r)
	}
	if client != nil && web.Origin != "" {
		out.issuer = web.OIDC.Issuer
		if out.person, err = oidc.NewVerifier(oidc.VerifierConfig{Issuer: out.issuer, Audience: web.Origin + "/mcp"}); err != nil {
			return nil, config.Errorf("web.oidc: %v", err)
		}
	}
	if out.person == nil && len(out.jobs) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	return out, nil
}

// Issuer implements console.Identities.
func (x *identities) Issuer() string { return x.issuer }

// Person implements console.Identities.
func (x *identities) Person(ctx context.Context, token string) (p console.Person, err error) {
	if x.person == nil {
		return p, errNoIdentities
	}
	claims, err := x.person.Claims(ctx, token)
	if errors.Is(err, oidc.ErrKeys) {
		err = fmt.Errorf("%w: %w", console.ErrNoKeys, err)
	}
	if err != nil {
		return p, err
	}
	said := texts(claims)
	p.Client = cmp.Or(said["client_name"], said["azp"], said["client_id"])
	p.Subject, p.Name, p.Groups, err = x.client.PersonOf(ctx, claims)
	return p, err
}

// Stands implements console.Identities.
func (x *identities) Stands(j console.Job) bool {
	return slices.ContainsFunc(x.jobs, func(r jobRule) bool { return r.id() == j.Rule && r.User == j.User })
}

// id identifies a rule: another one with the same words is the same.
func (r jobRule) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", r.Issuer, r.Audience, r.When, r.User))
	return hex.EncodeToString(sum[:8])
}

// Job implements console.Identities: the first rule that holds says who the job is.
func (x *identities) Job(ctx context.Context, token string) (console.Job, error) {
	if len(x.jobs) == 0 {
		return console.Job{}, errNoIdentities
	}
	var last error
	for _, r := range x.jobs {
		raw, err := r.check.Claims(ctx, token)
		if err != nil {
			last = err
			continue
		}
		claims := texts(raw)
		holds, err := r.when.Holds(func(name string) (any, error) {
			if name == "claims" {
				return claims, nil
			}
			return nil, fmt.Errorf("%s is not known", name)
		})
		if err != nil || !holds {
			last = errors.New("no rule in programs.identities is about this job; its claims are: " + brief(claims))
			continue
		}
		job := jobOf(r.IdentityConfig, claims)
		job.Rule = r.id()
		return job, nil
	}
	return console.Job{}, last
}

// texts are claims as text; what is neither text, number nor truth is left out.
func texts(raw map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for name, r := range raw {
		var s string
		switch t := strings.TrimSpace(string(r)); {
		case json.Unmarshal(r, &s) == nil:
			out[name] = s
		case t != "" && t[0] != '{' && t[0] != '[' && t != "null":
			out[name] = t
		}
	}
	return out
}

// brief are the claims that rules are usually about.
func brief(claims map[string]string) string {
	var out []string
	for _, name := range []string{"sub", "repository", "project_path", "ref", "workflow", "environment"} {
		if v, ok := claims[name]; ok {
			out = append(out, fmt.Sprintf("%s %q", name, v))
		}
	}
	return strings.Join(out, ", ")
}

// jobOf says what is known of a job: GitHub's tokens have repository and workflow
// (https://docs.github.com/actions/reference/security/oidc), GitLab's have project_path
// (https://docs.gitlab.com/ci/secrets/id_token_authentication/).
func jobOf(c config.IdentityConfig, claims map[string]string) console.Job {
	host := ""
	if u, err := url.Parse(c.Issuer); err == nil {
		if host = u.Host; host == "token.actions.githubusercontent.com" {
			host = "github.com"
		}
	}
	repository := cmp.Or(claims["repository"], claims["project_path"])
	if repository != "" {
		repository = host + "/" + repository
	}
	return console.Job{User: c.User, Program: cmp.Or(claims["workflow"], "CI"), Repository: repository, Ref: claims["ref"]}
}
