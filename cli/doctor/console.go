package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"countersign/bot/console"
	"countersign/cli/words"
	"countersign/config"
)

// expiresSoon is when an expiring certificate is worth a warning: what renews
// certificates usually does so a month before their end.
const expiresSoon = 14 * 24 * time.Hour

// consoleChecks look at how people come in to the console.
func (d *doctor) consoleChecks(e config.Env, f config.File) []check {
	c := f.Web
	var list []check
	if c.TLS.Cert != "" {
		list = append(list, check{name: "web certificate", run: func(context.Context) result { return checkCertificate(c, time.Now()) }})
	}
	if c.Push != config.PushOff {
		list = append(list, check{name: "web notifications", run: func(context.Context) result { return checkPush(e.DataDir) }})
	}
	if c.OIDC.Issuer != "" {
		list = append(list,
			check{name: "web sign-in", run: func(ctx context.Context) result { return checkProvider(ctx, e, f) }},
			check{name: "web sign-in claims", run: func(context.Context) result { return checkClaims(e.DataDir, f.Web.OIDC) }})
	}
	return list
}

// checkCertificate looks at the certificate's pair, names and time.
func checkCertificate(c config.WebConfig, now time.Time) result {
	pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return fails("%s and %s are no certificate and its key (%v)", c.TLS.Cert, c.TLS.Key,
			err).withFix("name files in PEM form that belong together, which the bot may read")
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fails("%s cannot be read (%v)", c.TLS.Cert, err).withFix("get a new certificate")
	}
	switch left := leaf.NotAfter.Sub(now); {
	case now.Before(leaf.NotBefore):
		return fails("%s is valid from %s on", c.TLS.Cert, leaf.NotBefore.UTC().Format(time.RFC3339)).withFix("set the clock, or get a certificate that is valid")
	case left <= 0:
		return fails("%s expired at %s", c.TLS.Cert, leaf.NotAfter.UTC().Format(time.RFC3339)).withFix("renew it; the bot takes up the new files by itself")
	case left < expiresSoon:
		return warns("%s expires in %s", c.TLS.Cert, left.Round(time.Hour)).withFix("renew it; the bot takes up the new files by itself")
	}
	if u, err := url.Parse(c.Origin); err == nil && u.Host != "" {
		if err := leaf.VerifyHostname(u.Hostname()); err != nil {
			return warns("%s is not for %s, the host of web.origin", c.TLS.Cert, u.Hostname()).withFix("get a certificate for that name")
		}
	}
	return fine("%s, until %s", c.TLS.Cert, leaf.NotAfter.UTC().Format("2006-01-02"))
}

// checkProvider looks at the identity provider: whether it describes itself as the
// configuration says.
func checkProvider(ctx context.Context, e config.Env, f config.File) result {
	client, err := console.IdentityProvider(f.Web.OIDC, e.OIDCSecret, slog.New(slog.DiscardHandler), nil)
	if err == nil {
		_, _, err = client.Begin(ctx, f.Web.Origin+"/oidc/callback")
	}
	switch {
	case err != nil:
		return fromSentence("FAIL", console.Why(err), "check web.oidc.issuer and the network")
	case e.OIDCSecret == "":
		return warns("%s is there, and OIDC_CLIENT_SECRET is not set, which only public clients do without",
			f.Web.OIDC.Issuer).withFix("set it, or OIDC_CLIENT_SECRET_FILE")
	}
	return fine("%s sends people back to %s/oidc/callback", f.Web.OIDC.Issuer, f.Web.Origin)
}

// checkPush shows which browsers get no notifications.
func checkPush(dataDir string) result {
	all := console.PushProblems(dataDir)
	if len(all) == 0 {
		return fine("no push service refuses them")
	}
	return warns("%s of %s gets none: %s (%s in all)", all[0].Name, all[0].User, all[0].Problem, words.Plural(len(all), "device")).
		withFix("see that the bot's clock and web.origin are right, then turn notifications off and on again there")
}

// checkClaims shows what the last sign-in brought.
func checkClaims(dataDir string, c config.OIDCConfig) result {
	s, ok := console.LastSignIn(dataDir)
	if !ok {
		return skips("nobody has signed in through the provider yet")
	}
	last := "the last sign-in, at " + s.At.UTC().Format("2006-01-02 15:04 UTC")
	if s.Refused != "" {
		return warns("%s, was refused: %s. It brought %s", last, strings.ReplaceAll(s.Refused, "; ", ", and "), s).withFix("have the provider send what is missing, or set web.oidc.name_claim and groups_claim to what it sends")
	}
	if _, sent := s.Claims[c.GroupsClaim]; !sent {
		return fine("%s, brought %s; no groups (%s) came", last, s, c.GroupsClaim)
	}
	return fine("%s, brought %s", last, s)
}
