package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	maxName   = 256 // bytes of a name; the console allows fewer
	maxGroups = 500 // groups of one person
	maxGroup  = 256 // bytes of one of them
)

type claims map[string]json.RawMessage

// person reads who the token is about. Providers may keep claims out of the
// identity token and give them at their userinfo endpoint alone (OpenID Connect
// Core 5.4), so that is asked for what is missing.
func (c *Client) person(ctx context.Context, p *provider, token *oauth2.Token, id *gooidc.IDToken) (name string, groups []string, err error) {
	own := claims{}
	if err := id.Claims(&own); err != nil {
		return "", nil, c.refuse(ctx, errUntrue, err)
	}
	sources := []claims{own}
	if (!own.has(c.cfg.NameClaim) || !own.has(c.cfg.GroupsClaim)) && p.UserInfoEndpoint() != "" {
		more, err := c.userInfo(ctx, p, token, id)
		switch {
		case err == nil:
			sources = append(sources, more)
		case !own.has(c.cfg.NameClaim):
			return "", nil, err
		} // without groups somebody may do less, never more
	}
	if name, err = c.name(ctx, sources); err != nil {
		return "", nil, err
	}
	for _, s := range sources {
		if s.has(c.cfg.GroupsClaim) {
			if groups, err = groupsOf(s[c.cfg.GroupsClaim]); err != nil {
				return "", nil, c.refuse(ctx, errGroups, err)
			}
			break
		}
	}
	return name, groups, nil
}

func (c claims) has(name string) bool {
	raw, ok := c[name]
	return ok && string(raw) != "null"
}

func (c *Client) userInfo(ctx context.Context, p *provider, token *oauth2.Token, id *gooidc.IDToken) (claims, error) {
	info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, c.refuse(ctx, errDown, fmt.Errorf("the userinfo endpoint: %w", err))
	}
	// What is about somebody else must not be used (OpenID Connect Core 5.3.2).
	if info.Subject != id.Subject {
		return nil, c.refuse(ctx, errUntrue, errors.New("the userinfo endpoint answered about somebody else"))
	}
	out := claims{}
	if err := info.Claims(&out); err != nil {
		return nil, c.refuse(ctx, errUntrue, err)
	}
	return out, nil
}

func (c *Client) name(ctx context.Context, sources []claims) (string, error) {
	for _, s := range sources {
		if !s.has(c.cfg.NameClaim) {
			continue
		}
		var name string
		if err := json.Unmarshal(s[c.cfg.NameClaim], &name); err != nil || name == "" || len(name) > maxName {
			break
		}
		if c.cfg.NameClaim == "email" {
			var verified bool
			if json.Unmarshal(s["email_verified"], &verified) != nil || !verified {
				return "", c.refuse(ctx, errVerified, errors.New("email_verified is not true"))
			}
		}
		return name, nil
	}
	return "", c.refuse(ctx, sayNoName(c.cfg.NameClaim), fmt.Errorf("the claim %q is no usable name", c.cfg.NameClaim))
}

// groupsOf reads a list of strings, or the one string that some providers send
// for a list of one.
func groupsOf(raw json.RawMessage) ([]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		raw, _ = json.Marshal([]string{one}) // a string marshals
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("the groups are no list of strings")
	}
	if len(list) > maxGroups {
		return nil, fmt.Errorf("there are %d groups and %d are the most: have the provider send those that matter here", len(list), maxGroups)
	}
	for _, g := range list {
		if g == "" || len(g) > maxGroup {
			return nil, fmt.Errorf("a group's name is empty or has more than %d bytes", maxGroup)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
