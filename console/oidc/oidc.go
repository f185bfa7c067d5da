package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"countersign/internal/redact"
)

const (
	skew    = time.Minute      // how far the provider's clock may be off
	fresh   = time.Hour        // how long the provider's description is good
	pause   = 5 * time.Second  // between two attempts to get it
	patient = 10 * time.Second // for one request to the provider
	maxCode = 4 << 10          // bytes of an authorization code or a state
	maxJWT  = 64 << 10         // bytes of an identity token
)

// Config is what a [Client] is made from.
type Config struct {
	// Issuer is the provider's address exactly as it names itself, for example
	// "https://login.example.com/realms/ops". It must be https, but for a
	// provider on this machine's loopback.
	Issuer   string
	ClientID string
	// ClientSecret is empty for a public client, which has PKCE alone.
	ClientSecret redact.Secret
	// Scopes beside "openid", which is always asked for. Nil asks for "profile",
	// and for "email" when that is the name.
	Scopes []string
	// NameClaim is the claim that is the person's name here; default
	// "preferred_username". "email" counts only with email_verified true, or without it
	// with Entra ID's xms_edov.
	NameClaim string
	// GroupsClaim is the claim that lists the person's groups, as strings;
	// default "groups". Who has none of it is in no group.
	GroupsClaim string

	// Seen gets what each sign-in brought; nil is not called.
	Seen func(Sample)

	HTTP *http.Client     // default: one of its own; redirects and answers above 512 KiB are refused with any
	Log  *slog.Logger     // default: nothing is logged. It gets no token, code or secret
	Now  func() time.Time // default time.Now
}

// Client signs people in. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
	log  *slog.Logger
	now  func() time.Time

	turn   chan struct{} // one token: who has it may use what follows
	known  *provider     // nil until the provider has described itself
	failed time.Time     // when it last did not
	why    error         // what that was, as a sentence
}

// provider is what the identity provider said about itself.
type provider struct {
	*gooidc.Provider
	meta metadata
	at   time.Time
}

type metadata struct {
	AuthURL     string   `json:"authorization_endpoint"`
	TokenURL    string   `json:"token_endpoint"`
	KeysURL     string   `json:"jwks_uri"`
	UserInfoURL string   `json:"userinfo_endpoint"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	NamesItself bool     `json:"authorization_response_iss_parameter_supported"`
}

// New checks the configuration; it asks nobody. Its errors are one sentence that
// says what is wrong and what to do.
func New(cfg Config) (*Client, error) {
	if err := secure(cfg.Issuer); err != nil || strings.ContainsAny(cfg.Issuer, "?#") {
		return nil, fmt.Errorf("oidc: the issuer %q is not usable: write the provider's address as it names itself, with https", cfg.Issuer)
	}
	if cfg.ClientID == "" {
		return nil, errors.New("oidc: the client id is missing: register the console at the identity provider and give its id")
	}
	if cfg.NameClaim == "" {
		cfg.NameClaim = "preferred_username"
	}
	if cfg.GroupsClaim == "" {
		cfg.GroupsClaim = "groups"
	}
	if cfg.Scopes == nil {
		cfg.Scopes = []string{"profile"}
		if cfg.NameClaim == "email" {
			cfg.Scopes = []string{"profile", "email"}
		}
	}
	c := &Client{cfg: cfg, http: limited(cfg.HTTP), log: cfg.Log, now: cfg.Now, turn: make(chan struct{}, 1)}
	c.cfg.Scopes = append([]string{gooidc.ScopeOpenID}, slices.DeleteFunc(slices.Clone(cfg.Scopes), func(s string) bool { return s == gooidc.ScopeOpenID })...)
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}

// secure refuses an address that a stranger could listen to.
func secure(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return err
	case u.Host == "" || u.User != nil:
		return errors.New("it names no host, or a user")
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	default:
		return errors.New("it is not https")
	}
}

// pending is what the browser that began keeps.
type pending struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Callback string `json:"c"`
}

// Begin starts a sign-in. The browser must be sent to address, and keep must come
// back to Finish from the same browser and once; it has about 250 bytes more than
// callback, and holds secrets. callback is the console's own address that the
// provider sends the browser back to; the provider must know it. The text of an
// error is one sentence for the person.
func (c *Client) Begin(ctx context.Context, callback string) (address, keep string, err error) {
	p, err := c.provider(ctx)
	if err != nil {
		return "", "", err
	}
	f := pending{State: secret(), Nonce: secret(), Verifier: oauth2.GenerateVerifier(), Callback: callback}
	raw, err := json.Marshal(f)
	if err != nil { // only strings
		return "", "", errSetUp
	}
	return c.oauth(p, callback).AuthCodeURL(f.State, gooidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), string(raw), nil
}

func (c *Client) oauth(p *provider, callback string) *oauth2.Config {
	at := p.Endpoint()
	at.AuthStyle = oauth2.AuthStyleInHeader // the default of OpenID Connect
	// A code is good for one attempt, so the style is chosen and not tried out.
	if c.cfg.ClientSecret == "" || len(p.meta.AuthMethods) > 0 && !slices.Contains(p.meta.AuthMethods, "client_secret_basic") {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: c.cfg.ClientID, ClientSecret: c.cfg.ClientSecret.Reveal(), Endpoint: at, RedirectURL: callback, Scopes: c.cfg.Scopes,
	}
}

// Finish ends a sign-in: keep is what Begin gave for this browser, answer is the
// query with which the provider sent it to the callback. It returns the
// account as the issuer, a space and its subject, the person's name and groups, sorted, and until when the provider vouches for that, which is
// about the token and says nothing of how long a session may last. The text of an
// error is one sentence for the person. An error with a name says that the groups are
// not known, so that only who comes in without any does.
func (c *Client) Finish(ctx context.Context, keep string, answer url.Values) (subject, name string, groups []string, expires time.Time, err error) {
	none := time.Time{}
	var f pending
	if json.Unmarshal([]byte(keep), &f) != nil || f.State == "" {
		return "", "", nil, none, errState
	}
	state, ok := single(answer, "state")
	if !ok || subtle.ConstantTimeCompare([]byte(state), []byte(f.State)) != 1 {
		return "", "", nil, none, c.refuse(ctx, errState, errors.New("the state is not the one that was sent"))
	}
	p, err := c.provider(ctx)
	if err != nil {
		return "", "", nil, none, err
	}
	if iss, ok := single(answer, "iss"); answer.Has("iss") && (!ok || iss != c.cfg.Issuer) || p.meta.NamesItself && !ok {
		return "", "", nil, none, c.refuse(ctx, errUntrue, errors.New("the answer does not come from this issuer"))
	}
	if answer.Has("error") {
		return "", "", nil, none, c.refused(ctx, answer)
	}
	code, ok := single(answer, "code")
	if !ok {
		return "", "", nil, none, c.refuse(ctx, errUntrue, errors.New("the answer has no usable code"))
	}
	ctx, cancel := context.WithTimeout(gooidc.ClientContext(ctx, c.http), 3*patient)
	defer cancel()
	token, err := c.oauth(p, f.Callback).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return "", "", nil, none, c.noToken(ctx, err)
	}
	id, err := c.verify(ctx, p, token, f.Nonce)
	if err != nil {
		return "", "", nil, none, err
	}
	name, groups, err = c.person(ctx, p, token, id)
	if name == "" {
		return "", "", nil, none, err
	}
	return id.Issuer + " " + id.Subject, name, groups, id.Expiry, err
}

// single gives a parameter that is there once and has a value of a sane size.
func single(q url.Values, name string) (string, bool) {
	if v := q[name]; len(v) == 1 && v[0] != "" && len(v[0]) <= maxCode {
		return v[0], true
	}
	return "", false
}

// refused reads a refusal of the provider (OpenID Connect Core 3.1.2.6).
func (c *Client) refused(ctx context.Context, answer url.Values) error {
	kind := answer.Get("error")
	says := errSetUp
	switch kind {
	case "access_denied", "interaction_required", "login_required", "account_selection_required", "consent_required":
		says = errDenied
	case "temporarily_unavailable", "server_error":
		says = errDown
	}
	return c.refuse(ctx, says, fmt.Errorf("it answered %q: %q", cut(kind), cut(answer.Get("error_description"))))
}

// noToken tells why a code gave no token.
func (c *Client) noToken(ctx context.Context, err error) error {
	var r *oauth2.RetrieveError
	switch {
	case !errors.As(err, &r):
		if errors.Is(err, context.DeadlineExceeded) || isNetwork(err) {
			return c.refuse(ctx, errDown, err)
		}
		return c.refuse(ctx, errUntrue, err)
	case r.ErrorCode == "invalid_grant":
		return c.refuse(ctx, errOver, errors.New("the token endpoint answered invalid_grant"))
	default:
		status := 0
		if r.Response != nil {
			status = r.Response.StatusCode
		}
		// Not the body, which may repeat what was sent.
		return c.refuse(ctx, errSetUp, fmt.Errorf("the token endpoint answered with status %d, %q: %q", status, cut(r.ErrorCode), cut(r.ErrorDescription)))
	}
}

// verify checks the identity token (OpenID Connect Core 3.1.3.7).
func (c *Client) verify(ctx context.Context, p *provider, token *oauth2.Token, nonce string) (*gooidc.IDToken, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok || len(raw) > maxJWT {
		return nil, c.refuse(ctx, errUntrue, fmt.Errorf("there is no identity token of at most %d bytes", maxJWT))
	}
	// The library compares the end with this time, so a token lives longer by the
	// skew; it allows five minutes for the beginning.
	verifier := p.Verifier(&gooidc.Config{ClientID: c.cfg.ClientID, Now: func() time.Time { return c.now().Add(-skew) }})
	id, err := verifier.Verify(ctx, raw)
	if err != nil {
		var old *gooidc.TokenExpiredError
		switch {
		case errors.As(err, &old), strings.Contains(err.Error(), "nbf"):
			return nil, c.refuse(ctx, errClock, err)
		case isNetwork(err):
			return nil, c.refuse(ctx, errDown, err)
		}
		return nil, c.refuse(ctx, errUntrue, err)
	}
	var extra struct {
		AuthorizedParty string `json:"azp"`
	}
	if err := id.Claims(&extra); err != nil {
		return nil, c.refuse(ctx, errUntrue, err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1:
		return nil, c.refuse(ctx, errUntrue, errors.New("the identity token has another nonce"))
	case extra.AuthorizedParty != "" && extra.AuthorizedParty != c.cfg.ClientID, len(id.Audience) > 1 && extra.AuthorizedParty == "":
		return nil, c.refuse(ctx, errUntrue, errors.New("the identity token was issued for another client"))
	case id.Subject == "":
		return nil, c.refuse(ctx, errUntrue, errors.New("the identity token names no subject"))
	case id.IssuedAt.After(c.now().Add(skew)):
		return nil, c.refuse(ctx, errClock, fmt.Errorf("the identity token is from the future: %s", id.IssuedAt.UTC().Format(time.RFC3339)))
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, c.refuse(ctx, errUntrue, err)
		}
	}
	return id, nil
}

// provider gives the provider's description, which it asks for when it has none
// or an old one. An old one stays in use while the provider is down.
func (c *Client) provider(ctx context.Context) (*provider, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, errDown
	}
	now := c.now()
	if c.known != nil && now.Sub(c.known.at) < fresh {
		return c.known, nil
	}
	if since := now.Sub(c.failed); c.why == nil || since >= pause || since < 0 {
		found, why := c.discover(ctx, now)
		if why == nil {
			c.known, c.why = found, nil
			return found, nil
		}
		c.failed, c.why = now, why
	}
	if c.known != nil {
		return c.known, nil
	}
	return nil, c.why
}

func (c *Client) discover(ctx context.Context, now time.Time) (*provider, error) {
	// Others wait for this answer too, so it does not end with this person.
	ctx, cancel := context.WithTimeout(gooidc.ClientContext(context.WithoutCancel(ctx), c.http), patient)
	defer cancel()
	found, err := gooidc.NewProvider(ctx, c.cfg.Issuer)
	if err != nil {
		says := errSetUp
		if isNetwork(err) || errors.Is(err, context.DeadlineExceeded) {
			says = errDown
		}
		if named, ok := errors.AsType[*gooidc.IssuerMismatchError](err); ok {
			err = fmt.Errorf("the provider names itself %q; set web.oidc.issuer to exactly that", cut(named.Discovered))
		}
		return nil, c.refuse(ctx, says, err)
	}
	p := &provider{Provider: found, at: now}
	if err := found.Claims(&p.meta); err != nil {
		return nil, c.refuse(ctx, errSetUp, err)
	}
	for name, address := range map[string]string{
		"authorization_endpoint": p.meta.AuthURL, "token_endpoint": p.meta.TokenURL, "jwks_uri": p.meta.KeysURL, "userinfo_endpoint": p.meta.UserInfoURL,
	} {
		if address == "" && name == "userinfo_endpoint" {
			continue
		}
		if err := secure(address); err != nil {
			return nil, c.refuse(ctx, errSetUp, fmt.Errorf("its %s is %q: %w", name, cut(address), err))
		}
	}
	return p, nil
}

// refuse logs why and returns the sentence for the person.
func (c *Client) refuse(ctx context.Context, says sentence, why error) error {
	c.log.WarnContext(ctx, "a sign-in through the identity provider failed", "issuer", c.cfg.Issuer, "error", cut(why.Error()))
	return refusal{says, why}
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// cut keeps foreign text short in the log.
func cut(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
