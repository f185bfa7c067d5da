package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/console/spelling"
	"countersign/store"
)

const (
	// jobTokenLife is how long the token of a job in CI lasts: a job may wait for people.
	jobTokenLife = 2 * time.Hour
	// maxJobTokens is how many of a person's name there may be at the same time.
	maxJobTokens = 500
	maxIdentity  = 16 << 10 // bytes of an identity token
	byIdentity   = "identity token"
)

// Job is a job in CI, as its provider's identity token says it.
type Job struct {
	User       string `json:"user"` // who it acts as here
	Program    string `json:"program"`
	Repository string `json:"repository,omitempty"`
	Ref        string `json:"ref,omitempty"`
	// Rule identifies the rule that said so.
	Rule string `json:"rule,omitempty"`
}

// Person is who an access token of an identity provider is about.
type Person struct {
	Subject string // the issuer, a space and the account there
	Name    string
	Groups  []string
	Client  string // the program that has the token, as the provider knows it
}

// ErrNoKeys says that a token can't be checked, since its issuer doesn't give its keys.
var ErrNoKeys = errors.New("the identity provider doesn't give its keys")

// Identities knows whose tokens are good here that others have signed. It is safe for concurrent use;
// the text of an error is one sentence for people.
type Identities interface {
	// Job finds the job of an identity token.
	Job(ctx context.Context, token string) (Job, error)
	// Stands reports whether the rule that found a job is still there.
	Stands(j Job) bool
	// Person finds the person of an access token for this bot, or is ErrNoKeys.
	Person(ctx context.Context, token string) (Person, error)
	// Issuer gives such access tokens; "" is none.
	Issuer() string
}

// identities lets in who has a token that others have signed.
type identities struct {
	*entry
	identities Identities // nil: there are none
	names      *names
	tokens     *tokens
	title      string
}

// exchange gives a job a token of ours for the one of its provider.
func (x *identities) exchange(w http.ResponseWriter, r *http.Request) error {
	v := x.visitors.visitor(r)
	var body struct {
		Token string `json:"token"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	if body.Token == "" || len(body.Token) > maxIdentity {
		return refuse(http.StatusBadRequest, sayNoIdentity)
	}
	job, err := x.identities.Job(r.Context(), body.Token)
	if err != nil && !x.visitors.mayTry(v) { // who fails must not keep others of this address out
		return refusePace(time.Minute, sayTooManyTries)
	}
	if err != nil {
		x.visitors.recordRefusal(r.Context(), v, "", byIdentity, err.Error())
		return refuse(http.StatusForbidden, err.Error())
	}
	if !x.users(job.User, nil).has(mayWrite) {
		x.visitors.recordRefusal(r.Context(), v, job.User, byIdentity, "this name may not sign in")
		return refuse(http.StatusForbidden, sayNotInvited)
	}
	name := strings.TrimSpace(job.Program + " " + job.Repository)
	name = strings.ToValidUTF8(name[:min(len(name), maxTokenName)], "") // the cut may go through a character
	return x.tokens.give(w, r, byIdentity, jobTokenLife, maxJobTokens, tokenRow{User: job.User, Name: name, Scope: scopeAsk, Job: &job})
}

// forPrograms reports whether a token that can only ask may make a request.
func forPrograms(r *http.Request) bool {
	p := r.URL.Path
	return p == "/api/calls" || strings.HasPrefix(p, "/api/calls/") || p == "/api/tools" || p == "/api/me" || p == "/api/tokens" || strings.HasPrefix(p, "/api/tokens/") || p == "/api/lists/targets"
}

// session is who a request with an access token of an identity provider comes from, by the same rules as
// a sign-in.
func (x *identities) session(ctx context.Context, v visitor, token string) (session, bool, error) {
	p, err := x.identities.Person(ctx, token)
	if errors.Is(err, ErrNoKeys) {
		return session{}, false, err
	}
	var name string
	if err == nil {
		var failed error
		if name, failed = x.admit(ctx, p); failed != nil && !errors.As(failed, new(nameError)) && !errors.Is(failed, errUnknown) {
			return session{}, false, failed
		}
		err = failed
	}
	if err != nil {
		if x.visitors.mayTry(v) { // for the record; an agent needs its answer however often it asks
			x.visitors.recordRefusal(ctx, v, "", byIdentity, err.Error())
		}
		return session{}, false, nil
	}
	who := "oauth:" + short(digest("oauth", p.Subject+" "+p.Client))
	s := session{
		user: name, groups: p.Groups, role: x.users(name, slices.Clone(p.Groups)), how: byIdentity, begun: x.now(), vouched: x.now(), id: "identity:" + name, program: true,
		pass: pass{scope: scopeAsk, called: cmp.Or(p.Client, "OAuth"), source: who, own: who},
	}
	return s, s.may(mayRead), nil
}

// admit tells the name under which an account of the identity provider is let in. Tokens come with each
// request, so what is known already isn't written again.
func (x *identities) admit(ctx context.Context, p Person) (string, error) {
	name, err := spelling.Clean(p.Name)
	if err != nil {
		return "", nameError(sayHiddenName)
	}
	if !validName(name) || !x.users(name, slices.Clone(p.Groups)).has(mayRead) {
		return "", errUnknown
	}
	who, now, known := accountOf(p.Subject), x.now(), false
	err = x.db.View(ctx, func(tx store.Tx) error {
		row, ok := store.Load[nameRow](tx, accountKey(who))
		look, _ := store.Load[nameRow](tx, nameKey(spelling.Skeleton(name)))
		known = ok && row.Name == name && row.Said == p.Name && look.Issuer == who.Issuer && look.Subject == who.Subject && now.Sub(row.Seen) < tokenSighted
		return nil
	})
	if err != nil || known {
		return name, err
	}
	return name, x.db.Update(ctx, func(tx store.Tx) error { return x.names.identify(tx, who, p.Name, name, now) })
}

// sentIdentity is an access token that came with a request and isn't of ours.
func (x *identities) sentIdentity(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
	if !ok || x.identities == nil || strings.Count(token, ".") != 2 || len(token) > maxIdentity {
		return ""
	}
	return token
}

// metadata says where agents get access tokens for the bot (RFC 9728).
func (x *identities) metadata(w http.ResponseWriter, r *http.Request) error {
	return answer(w, http.StatusOK, map[string]any{
		"resource": x.guard.pageOrigin(r) + "/mcp", "authorization_servers": []string{x.identities.Issuer()}, "bearer_methods_supported": []string{"header"}, "resource_name": x.title,
	})
}

// MetadataPath is where [Adapter.Handler] says where agents get access tokens, if it knows.
const MetadataPath = "/.well-known/oauth-protected-resource/mcp"
