package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
// Core 5.4), so that is asked for what is missing. With too many groups there are
// both a name and an error.
func (c *Client) person(ctx context.Context, p *provider, token *oauth2.Token, id *gooidc.IDToken) (name string, groups []string, err error) {
	own := claims{}
	if err := id.Claims(&own); err != nil {
		return "", nil, c.refuse(ctx, errUntrue, err)
	}
	sources := []claims{own}
	defer func() { c.show(sources, err) }()
	lacksVerified := c.cfg.NameClaim == email && verified(own) == saidNothing
	if (!own.has(c.cfg.NameClaim) || !own.has(c.cfg.GroupsClaim) || lacksVerified) && p.UserInfoEndpoint() != "" {
		more, err := c.userInfo(ctx, p, token, id)
		switch {
		case err == nil:
			sources = append(sources, more)
		case !own.has(c.cfg.NameClaim):
			return "", nil, err
		} // without groups somebody may do less, never more
	}
	return c.nameAndGroups(ctx, sources)
}

// nameAndGroups reads the name and the groups from the first source that has them.
func (c *Client) nameAndGroups(ctx context.Context, sources []claims) (name string, groups []string, err error) {
	if name, err = c.name(ctx, sources); err != nil {
		return "", nil, err
	}
	for _, s := range sources {
		if s.has(c.cfg.GroupsClaim) {
			groups, err = groupsOf(s[c.cfg.GroupsClaim])
			switch {
			case errors.Is(err, errMany):
				return name, nil, c.refuse(ctx, errMany, fmt.Errorf("the claim %q has more than %d groups", c.cfg.GroupsClaim, maxGroups))
			case err != nil:
				return "", nil, c.refuse(ctx, errGroups, err)
			}
			return name, groups, nil
		}
	}
	for _, s := range sources {
		if s.leavesOut(c.cfg.GroupsClaim) {
			return name, nil, c.refuse(ctx, errMany, fmt.Errorf("the provider has more groups than it sends, so the claim %q is left out", c.cfg.GroupsClaim))
		}
	}
	return name, nil, nil
}

// leavesOut reports whether a claim is not in the token because it would be too large there: it is
// "distributed" (OpenID Connect Core 5.6.2), as Entra ID does with more than 200 groups
// (learn.microsoft.com/entra/identity-platform/id-token-claims-reference, "Groups overage claim").
func (c claims) leavesOut(name string) bool {
	var elsewhere map[string]json.RawMessage
	if json.Unmarshal(c["_claim_names"], &elsewhere) == nil && claims(elsewhere).has(name) {
		return true
	}
	return name == "groups" && readAnswer(c["hasgroups"]) == saidTrue
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
		if c.cfg.NameClaim == email {
			if err := c.checkVerified(ctx, name, sources); err != nil {
				return "", err
			}
		}
		return name, nil
	}
	return "", c.refuse(ctx, sayNoName(c.cfg.NameClaim), fmt.Errorf("the claim %q is no usable name", c.cfg.NameClaim))
}

const email = "email"

// checkVerified refuses an address of which the provider doesn't say that it is the person's. The first
// source that says something of this address counts.
func (c *Client) checkVerified(ctx context.Context, address string, sources []claims) error {
	odd := ""
	for _, s := range sources {
		var same string
		if json.Unmarshal(s[email], &same) != nil || same != address {
			continue
		}
		switch verified(s) {
		case saidTrue:
			return nil
		case saidFalse:
			return c.refuse(ctx, errUnverified, fmt.Errorf("email_verified is %s, xms_edov is %s; authentik always sends false until its mapping of the scope email is changed; "+
				"web.oidc.name_claim can name another claim, such as preferred_username or sub", s.shown(emailVerified), s.shown(edov)))
		case saidNothing:
		}
		if s.has(emailVerified) || s.has(edov) {
			odd = fmt.Sprintf(" in a way that can be read (email_verified is %s, xms_edov is %s)", s.shown(emailVerified), s.shown(edov))
		}
	}
	return c.refuse(ctx, errUnsaid, fmt.Errorf("the provider doesn't say whether the address is verified%s: neither email_verified nor xms_edov (an optional claim of Entra ID) is true; "+
		"web.oidc.name_claim can name another claim, such as oid, sub or preferred_username", odd))
}

// answer is what a provider says to a question of yes or no.
type answer int

const (
	saidNothing answer = iota // or nothing that can be read
	saidTrue
	saidFalse
)

const (
	emailVerified = "email_verified"
	edov          = "xms_edov" // Entra ID: "email domain owner verified"
)

// verified reads whether an address is verified. Where the standard's claim says something, that counts.
func verified(c claims) answer {
	if said := readAnswer(c[emailVerified]); said != saidNothing {
		return said
	}
	switch string(c[edov]) {
	case "1", `"1"`:
		return saidTrue
	case "0", `"0"`:
		return saidFalse
	}
	return readAnswer(c[edov])
}

// readAnswer reads a truth value, which some providers send as text.
func readAnswer(raw json.RawMessage) answer {
	var word string
	if json.Unmarshal(raw, &word) != nil {
		word = string(raw)
	}
	switch strings.ToLower(word) {
	case "true":
		return saidTrue
	case "false":
		return saidFalse
	}
	return saidNothing
}

// shown is a claim's value for the log.
func (c claims) shown(name string) string {
	if !c.has(name) {
		return "not sent"
	}
	return shorten(string(c[name]))
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
		return nil, errMany
	}
	for _, g := range list {
		if g == "" || len(g) > maxGroup {
			return nil, fmt.Errorf("a group's name is empty or has more than %d bytes", maxGroup)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
