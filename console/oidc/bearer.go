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
	"sync/atomic"
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
	asked time.Time               // when it was last asked, in vain or not
}

// issuersKeys are an issuer's keys. It refetches them when they are old, or when none of them has
// signed a token, at a bounded pace: strangers' tokens must not make the bot ask.
type issuersKeys struct {
	url  string
	http *http.Client
	now  func() time.Time
	have atomic.Pointer[keysAt]

	mu    sync.Mutex
	asked time.Time
}

type keysAt struct {
	set gooidc.StaticKeySet
	at  time.Time
}

// ErrKeys says that an issuer has not given its keys.
var ErrKeys = errors.New("the keys")

var errPace = errors.New("the issuer was asked for its keys just now, and none of them has signed it; try again in a few seconds")

// VerifySignature implements [gooidc.KeySet].
func (k *issuersKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	failed := errPace
	if have := k.have.Load(); have != nil && k.now().Sub(have.at) < fresh {
		payload, err := have.set.VerifySignature(ctx, token)
		if err == nil {
			return payload, nil
		}
		failed = err
	}
	k.mu.Lock()
	if d := k.now().Sub(k.asked); d >= 0 && d < keysEvery {
		k.mu.Unlock()
		have := k.have.Load()
		if have == nil {
			return nil, failed
		}
		return have.set.VerifySignature(ctx, token)
	}
	defer k.mu.Unlock()
	set, err := k.fetch(ctx)
	k.asked = k.now() // an issuer that answers late is left alone for a while
	have := k.have.Load()
	switch {
	case err == nil:
		have = &keysAt{set, k.asked}
		k.have.Store(have)
	case have == nil:
		return nil, err
	}
	return have.set.VerifySignature(ctx, token)
}

func (k *issuersKeys) fetch(ctx context.Context) (set gooidc.StaticKeySet, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patient) // others wait for them too
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, http.NoBody)
	if err != nil {
		return set, err
	}
	res, err := k.http.Do(r)
	if err != nil {
		return set, err
	}
	defer func() { _ = res.Body.Close() }()
	var all jose.JSONWebKeySet
	if res.StatusCode != http.StatusOK {
		return set, fmt.Errorf("its keys can't be read: it answers with HTTP %d", res.StatusCode)
	}
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil {
		return set, fmt.Errorf("its keys can't be read (%w)", err)
	}
	for _, key := range all.Keys {
		if key.IsPublic() && key.Valid() && key.Use != "enc" {
			set.PublicKeys = append(set.PublicKeys, crypto.PublicKey(key.Key))
		}
	}
	return set, nil
}

const (
	// mostLife is how long a token may be good for.
	mostLife = 25 * time.Hour
	// keysEvery is how often an issuer is asked for its keys because of tokens that none of them has signed.
	keysEvery = 5 * time.Second
)

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
		return nil, fmt.Errorf("%w of %s can't be fetched (%w); try again, or give the bot a copy of them", ErrKeys, v.cfg.Issuer, err)
	}
	id, err := check.Verify(gooidc.ClientContext(ctx, v.http), token)
	if err != nil {
		return nil, fmt.Errorf("%s has not signed this token for this bot (%w)", v.cfg.Issuer, err)
	}
	now := v.cfg.Now()
	switch {
	case id.Subject == "" || id.IssuedAt.Unix() <= 0:
		return nil, errors.New("the token doesn't say whom it is about, or when it was made")
	case id.IssuedAt.After(now.Add(skew)):
		return nil, errors.New("the token is of the future; check the clock of this machine")
	case id.Expiry.Sub(now) > mostLife:
		return nil, fmt.Errorf("the token is good for longer than %s; have the issuer make shorter ones", mostLife)
	}
	out := map[string]json.RawMessage{}
	var exp, iat json.Number
	if id.Claims(&out) != nil || json.Unmarshal(out["exp"], &exp) != nil || json.Unmarshal(out["iat"], &iat) != nil || out["exp"][0] == '"' || out["iat"][0] == '"' {
		return nil, errors.New("the token's claims can't be read")
	}
	return out, nil
}

// verifier asks the issuer for its keys, until it has answered once.
func (v *Verifier) verifier(ctx context.Context) (*gooidc.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.cfg.Now(); v.check == nil {
		if d := now.Sub(v.asked); d >= 0 && d < keysEvery {
			return nil, errPace
		}
		defer func() { v.asked = v.cfg.Now() }() // an issuer that answers late is left alone for a while
		// The keys are fetched again later, when this request is long over.
		p, err := gooidc.NewProvider(gooidc.ClientContext(context.WithoutCancel(ctx), v.http), v.cfg.Issuer)
		if err != nil {
			return nil, err
		}
		var meta metadata
		if err := p.Claims(&meta); err != nil {
			return nil, err
		}
		if err := secure(meta.KeysURL); err != nil {
			return nil, err
		}
		v.check = gooidc.NewVerifier(v.cfg.Issuer, &issuersKeys{url: meta.KeysURL, http: v.http, now: v.cfg.Now}, v.config())
	}
	return v.check, nil
}

// PersonOf finds who the claims of an access token are about, as [Client.Finish] does.
func (c *Client) PersonOf(ctx context.Context, of map[string]json.RawMessage) (subject, name string, groups []string, err error) {
	var iss, sub string
	if json.Unmarshal(of["iss"], &iss) != nil || json.Unmarshal(of["sub"], &sub) != nil {
		return "", "", nil, c.refuse(ctx, errUntrue, errors.New("the access token names no subject"))
	}
	if name, groups, err = c.nameAndGroups(ctx, []claims{of}); err != nil {
		return "", "", nil, err
	}
	return iss + " " + sub, name, groups, nil
}
