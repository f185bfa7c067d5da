package oidc

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// VerifierConfig is what a [Verifier] is made from.
type VerifierConfig struct {
	Issuer   string // exactly as it names itself
	Audience string // that a token must be for
	// Keys are the issuer's keys as it publishes them (a JSON Web Key Set), for a bot that can't or must
	// not ask it. Without them it is asked.
	Keys []byte
	HTTP *http.Client     // default: a new one
	Now  func() time.Time // default time.Now
}

// Verifier checks tokens that an issuer has signed. It is safe for concurrent use.
type Verifier struct {
	cfg  VerifierConfig
	http *http.Client

	mu    sync.Mutex
	check *gooidc.IDTokenVerifier // nil until the issuer has described itself
}

// algorithms are those whose keys can be published.
var algorithms = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"}

// NewVerifier checks the configuration; it asks nobody.
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	if err := secure(cfg.Issuer); err != nil || strings.ContainsAny(cfg.Issuer, "?#") {
		return nil, fmt.Errorf("the issuer %q is not usable: write its address as it names itself, with https", cfg.Issuer)
	}
	if cfg.Audience == "" {
		return nil, errors.New("it has no audience: name what the tokens are made for, such as the bot's address")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v := &Verifier{cfg: cfg, http: limited(cfg.HTTP)}
	if len(cfg.Keys) > 0 {
		var set jose.JSONWebKeySet
		if err := json.Unmarshal(cfg.Keys, &set); err != nil || len(set.Keys) == 0 {
			return nil, errors.New("its keys are no JSON Web Key Set; save what the issuer publishes at its jwks_uri")
		}
		static := &gooidc.StaticKeySet{}
		for _, k := range set.Keys {
			if !k.IsPublic() || !k.Valid() {
				return nil, errors.New("its keys have one that is not public, or none; save what the issuer publishes at its jwks_uri")
			}
			static.PublicKeys = append(static.PublicKeys, crypto.PublicKey(k.Key))
		}
		v.check = gooidc.NewVerifier(cfg.Issuer, static, v.config())
	}
	return v, nil
}

func (v *Verifier) config() *gooidc.Config {
	return &gooidc.Config{ClientID: v.cfg.Audience, SupportedSigningAlgs: algorithms, Now: v.cfg.Now}
}

// Claims checks a token and returns what it says. The text of an error is one sentence for people.
func (v *Verifier) Claims(ctx context.Context, token string) (map[string]json.RawMessage, error) {
	check, err := v.verifier(ctx)
	if err != nil {
		return nil, fmt.Errorf("the keys of %s can't be fetched (%w); try again, or give the bot a copy of them", v.cfg.Issuer, err)
	}
	id, err := check.Verify(gooidc.ClientContext(ctx, v.http), token)
	if err != nil {
		return nil, fmt.Errorf("%s has not signed this token for this bot (%w)", v.cfg.Issuer, err)
	}
	if now := v.cfg.Now(); id.IssuedAt.After(now.Add(skew)) {
		return nil, errors.New("the token is of the future; check the clock of this machine")
	}
	out := map[string]json.RawMessage{}
	if err := id.Claims(&out); err != nil {
		return nil, errors.New("the token's claims can't be read")
	}
	return out, nil
}

// verifier asks the issuer for its keys, until it has answered once.
func (v *Verifier) verifier(ctx context.Context) (*gooidc.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.check == nil {
		// The keys are fetched again later, when this request is long over.
		p, err := gooidc.NewProvider(gooidc.ClientContext(context.WithoutCancel(ctx), v.http), v.cfg.Issuer)
		if err != nil {
			return nil, err
		}
		v.check = p.Verifier(v.config())
	}
	return v.check, nil
}

// PersonOf finds who the claims of an access token are about.
func (c *Client) PersonOf(ctx context.Context, of map[string]json.RawMessage) (name string, groups []string, err error) {
	if name, err = c.name(ctx, []claims{of}); err != nil {
		return "", nil, err
	}
	if claims(of).has(c.cfg.GroupsClaim) {
		if groups, err = groupsOf(of[c.cfg.GroupsClaim]); err != nil {
			return "", nil, c.refuse(ctx, errGroups, err)
		}
	}
	return name, groups, nil
}
