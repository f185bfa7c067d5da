package config

import (
	"net/url"
	"strings"

	"countersign/adapters/chat/network"
)

// ProgramsConfig is about programs that ask.
type ProgramsConfig struct {
	// Channel is where their conversations begin: "web", or a channel like "slack:T0123:C0456".
	Channel string `yaml:"channel"`
	// Open is how many requests of one program may wait for people, and PerHour how many it may file in
	// an hour; 0 is any number.
	Open    int `yaml:"open"`
	PerHour int `yaml:"per_hour"`
	// Identities are jobs in CI whose providers sign who they are.
	Identities []IdentityConfig `yaml:"identities,omitempty"`
	// Webhooks are told what was asked for and decided.
	Webhooks []WebhookConfig `yaml:"webhooks,omitempty"`
}

// IdentityConfig says which jobs of a provider may ask, and as whom.
type IdentityConfig struct {
	Issuer   string `yaml:"issuer"`   // of the tokens
	Audience string `yaml:"audience"` // that they are for; web.origin if it is empty
	Keys     string `yaml:"keys"`     // a file with the issuer's published keys; "" asks the issuer
	When     string `yaml:"when"`     // a condition about claims
	User     string `yaml:"user"`     // of the console, as which the job asks
}

// WebhookConfig is an address that gets messages.
type WebhookConfig struct {
	URL string `yaml:"url" secret:"url"`
	// SecretEnv names the environment variable that holds the secret by which it knows the bot.
	SecretEnv string `yaml:"secret_env"`
}

func (p ProgramsConfig) check(path string) error {
	if p.Channel != "web" && strings.Count(p.Channel, ":") != 2 {
		return Errorf("%s: programs.channel is %q; use a channel like %s", path, p.Channel, network.Or(network.All(), network.Network.Example))
	}
	if p.Open < 0 || p.PerHour < 0 {
		return Errorf("%s: programs.open and programs.per_hour are numbers of requests; use 0 for any number", path)
	}
	for i, x := range p.Identities {
		if x.Issuer == "" || x.When == "" || x.User == "" {
			return Errorf("%s: programs.identities[%d] needs issuer, when and user", path, i)
		}
	}
	for i, x := range p.Webhooks {
		u, err := url.Parse(x.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
			return Errorf("%s: programs.webhooks[%d].url must begin with https://", path, i)
		}
		if x.SecretEnv == "" {
			return Errorf("%s: programs.webhooks[%d].secret_env is missing; name the environment variable that holds its secret", path, i)
		}
	}
	return nil
}
