package config

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"countersign/approvals/policy"
	"countersign/approvals/tickets"
	"countersign/internal/redact"
)

// TicketsConfig is a system whose tickets changes are made for.
type TicketsConfig struct {
	Kind string `yaml:"kind,omitempty"`             // one of tickets.Kinds; "" is the name, if that is one, else nobody checks
	URL  string `yaml:"url,omitempty" secret:"url"` // "" is the public one (GitHub, GitLab)
	// User is who the token of Jira Cloud or the password of ServiceNow belongs to; "" is a bearer token.
	User     string `yaml:"user,omitempty"`
	TokenEnv string `yaml:"token_env,omitempty"`
	Project  string `yaml:"project,omitempty"` // the repository or project (GitHub, GitLab)
	// Pattern is a regular expression for a whole key; "" is the kind's own.
	Pattern string `yaml:"pattern,omitempty"`
	// Approved are the statuses, values of approval, or labels that an approved ticket has; empty is every
	// open ticket.
	Approved []string `yaml:"approved,omitempty"`
}

func (c TicketsConfig) kind(name string) string {
	if c.Kind == "" && slices.Contains(tickets.Kinds(), name) {
		return name
	}
	return c.Kind
}

// TicketSystems are the systems in the order of their names. getenv gives their tokens, also later, where one was refused.
func (f File) TicketSystems(getenv func(string) string) (out []tickets.Options, err error) {
	for _, name := range slices.Sorted(maps.Keys(f.Tickets)) {
		c := f.Tickets[name]
		token := getenv(c.TokenEnv)
		if c.TokenEnv != "" && token == "" {
			return nil, Errorf("tickets.%s: the environment variable %s is not set; it holds the token", name, c.TokenEnv)
		}
		out = append(out, tickets.Options{
			Name: name, Kind: c.kind(name), URL: c.URL, User: c.User, Project: c.Project, Token: redact.Secret(token), TokenName: c.TokenEnv,
			Renew:   func() redact.Secret { return redact.Secret(getenv(c.TokenEnv)) },
			Pattern: c.Pattern, Approved: c.Approved,
		})
	}
	return out, nil
}

func (f File) checkTickets(path string) error {
	for _, name := range slices.Sorted(maps.Keys(f.Tickets)) {
		c := f.Tickets[name]
		kind := c.kind(name)
		bad := func(format string, args ...any) error {
			return Errorf("%s: tickets.%s"+format, append([]any{path, name}, args...)...)
		}
		u, err := url.Parse(c.URL)
		local := c.URL != "" && err == nil && u.Scheme == "http" && loopback(u.Hostname())
		numbers := kind == tickets.GitHub || kind == tickets.GitLab
		_, wrong := regexp.Compile(c.Pattern)
		switch {
		case kind != "" && !slices.Contains(tickets.Kinds(), kind):
			return bad(".kind is %q; use %s, or leave it out if nobody checks", kind, strings.Join(tickets.Kinds(), ", "))
		case wrong != nil:
			return bad(".pattern is no regular expression: %v", wrong)
		case kind == "" && c.Pattern == "":
			return bad(" needs a pattern that keys fit, or a kind")
		case kind == "" && (c.URL+c.User+c.TokenEnv+c.Project != "" || len(c.Approved) > 0):
			return bad(" has no kind, so it takes nothing but a pattern; add kind (%s)", strings.Join(tickets.Kinds(), ", "))
		case kind == "":
		case c.URL != "" && !local && (err != nil || u.Scheme != "https" || u.Host == ""):
			return bad(".url must begin with https://")
		case c.URL == "" && !numbers:
			return bad(" needs url, as in https://example.atlassian.net")
		case c.TokenEnv == "":
			return bad(" needs token_env, the name of the environment variable with its token")
		case numbers && strings.Count(c.Project, "/") < 1:
			return bad(" needs project, as in acme/shop")
		case !numbers && c.Project != "":
			return bad(" has a project, which only %s and %s have; put it into pattern", tickets.GitHub, tickets.GitLab)
		case numbers && c.User != "":
			return bad(" has a user, which only %s and %s take", tickets.Jira, tickets.ServiceNow)
		}
	}
	asked := f.Policy.Approve.Require != "" || slices.ContainsFunc(f.Policy.Rules, func(r policy.Rule) bool { return r.Approve.Require != "" })
	for _, t := range f.Targets {
		asked = asked || t.Approve.Require != ""
	}
	if asked && len(f.Tickets) == 0 {
		return Errorf("%s: changes need a ticket (require: ticket), and tickets says nothing about their keys; add it, as in tickets: {change: {pattern: \"CHG[0-9]+\"}}", path)
	}
	return nil
}
