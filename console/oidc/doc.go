// Package oidc signs people in to the console through an identity provider that
// speaks OpenID Connect (https://openid.net/specs/openid-connect-core-1_0.html):
// the authorization code flow with PKCE (RFC 7636), a state, a nonce, and the
// issuer in the answer where the provider sends it (RFC 9207).
//
// A [Client] keeps nothing between the two halves of a sign-in: what [Client.Begin]
// returns as pending belongs to the browser that began, comes back to
// [Client.Finish], and must reach nobody else. The provider is asked for its
// description when somebody first signs in, and again when that failed, so the
// bot starts while the provider is down.
//
// It holds no sessions, sets no cookies, does not decide who may sign in, does
// not sign anybody out at the provider, and keeps no token: an access token is
// used once, for claims that the identity token lacks, and forgotten. Groups are
// those at the moment of signing in.
//
// # Which claim is the name
//
// The name is what groups of people are made of, so it must be one that a person
// cannot choose freely at the provider. The default, preferred_username, is such
// a name at a company's own provider where people cannot rename themselves
// (OpenID Connect itself promises no uniqueness for it); where they can, use
// "email", which counts only when the provider says that it is verified, or "sub".
package oidc
