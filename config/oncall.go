package config

import (
	"errors"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/approvals/oncall"
	"countersign/approvals/policy"
	"countersign/internal/redact"
)

// OnCallConfig is a source of who is on call.
type OnCallConfig struct {
	Kind string `yaml:"kind,omitempty"`             // one of oncall.Kinds; "" is the source's name
	URL  string `yaml:"url,omitempty" secret:"url"` // of the API or the calendar; "" is the public API
	Path string `yaml:"path,omitempty"`             // a calendar's file
	// TokenEnv names the environment variable that holds the token.
	TokenEnv string `yaml:"token_env,omitempty"`
	// Fallback is the group that decides while the source doesn't say who is on call.
	Fallback string        `yaml:"fallback,omitempty"`
	Every    time.Duration `yaml:"every,omitempty"`   // how often it is asked; 0 is oncall.Every
	MaxAge   time.Duration `yaml:"max_age,omitempty"` // how long its answer counts; 0 is oncall.Fresh
}

// Filled is the source with what applies where it is silent.
func (c OnCallConfig) Filled(name string) OnCallConfig {
	if c.Kind == "" {
		c.Kind = name
	}
	if c.Every == 0 {
		c.Every = oncall.Every
	}
	if c.MaxAge == 0 {
		c.MaxAge = max(oncall.Fresh, 3*c.Every)
	}
	return c
}

// OnCallSource makes the source of that name. getenv gives its token, also later, where it was refused.
func (f File) OnCallSource(name string, getenv func(string) string) (oncall.Source, error) {
	c := f.OnCall[name].Filled(name)
	o := oncall.Options{Kind: c.Kind, URL: c.URL, Path: c.Path, TokenName: c.TokenEnv}
	if c.TokenEnv != "" {
		token := getenv(c.TokenEnv)
		if token == "" {
			return nil, Errorf("oncall.%s: the environment variable %s is not set; it holds the token", name, c.TokenEnv)
		}
		o.Token, o.Renew = redact.Secret(token), func() redact.Secret { return redact.Secret(getenv(c.TokenEnv)) }
	}
	s, err := oncall.NewSource(o)
	if err != nil {
		return nil, Errorf("oncall.%s: %v", name, err)
	}
	return s, nil
}

// OnCallSources makes all sources. Those that can't be made are left out, and the error says why.
func (f File) OnCallSources(getenv func(string) string) (map[string]oncall.SourceConfig, error) {
	var wrong []error
	out := map[string]oncall.SourceConfig{}
	for _, name := range slices.Sorted(maps.Keys(f.OnCall)) {
		source, err := f.OnCallSource(name, getenv)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		s := f.OnCall[name].Filled(name)
		out[name] = oncall.SourceConfig{Source: source, Fallback: s.Fallback, Every: s.Every, Fresh: s.MaxAge}
	}
	return out, errors.Join(wrong...)
}

// Schedules are those that policy and targets name, each once.
func (f File) Schedules() []policy.Reference {
	all := append(f.Policy.References(), policy.References(f.Handover.Shifts)...)
	for _, name := range slices.Sorted(maps.Keys(f.Targets)) {
		t := f.Targets[name]
		for _, groups := range []policy.Groups{t.Approvers, t.Users, t.Moderators} {
			all = append(all, policy.References(groups)...)
		}
	}
	var out []policy.Reference
	for _, r := range all {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

func (f File) checkOnCall(path string) error {
	for _, name := range slices.Sorted(maps.Keys(f.OnCall)) {
		s := f.OnCall[name].Filled(name)
		bad := func(format string, args ...any) error {
			return Errorf("%s: oncall.%s"+format, append([]any{path, name}, args...)...)
		}
		u, err := url.Parse(s.URL)
		local := s.URL != "" && err == nil && u.Scheme == "http" && loopback(u.Hostname())
		switch {
		case !slices.Contains(oncall.Kinds(), s.Kind):
			return bad(".kind is %q; use %s", s.Kind, strings.Join(oncall.Kinds(), ", "))
		case s.URL != "" && !local && (err != nil || u.Scheme != "https" || u.Host == ""):
			return bad(".url must begin with https://")
		case s.Kind != oncall.ICal && s.Path != "":
			return bad(" has a path, which only calendars (kind: %s) have", oncall.ICal)
		case s.Kind == oncall.ICal && (s.URL == "") == (s.Path == ""):
			return bad(" needs a url or a path of a calendar")
		case s.Path != "" && !filepath.IsAbs(s.Path):
			return bad(".path is %q; use an absolute path", s.Path)
		case s.Kind == oncall.Grafana && s.URL == "":
			return bad(" needs url, the address of OnCall's API in its settings")
		case s.Kind == oncall.JSM && s.URL == "":
			return bad(" needs url, https://api.atlassian.com/jsm/ops/api/ and your cloud id")
		case s.Kind != oncall.ICal && s.TokenEnv == "":
			return bad(" needs token_env, the name of the environment variable with its token")
		case s.Every < time.Second:
			return bad(".every is %s; use at least 1s", s.Every)
		case s.MaxAge <= s.Every || s.MaxAge > 24*time.Hour:
			return bad(".max_age is %s; use more than every (%s) and at most 24h", s.MaxAge, s.Every)
		}
		if _, ok := f.Groups[s.Fallback]; s.Fallback != "" && !ok {
			return bad(".fallback is %q, which is not one of the groups (%s)", s.Fallback, strings.Join(slices.Sorted(maps.Keys(f.Groups)), ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.People)) {
		p := f.People[name]
		if len(p.Groups) > 0 {
			return Errorf("%s: people.%s names a group; write the ids of one person (slack, discord, web)", path, name)
		}
	}
	for _, r := range f.Schedules() {
		s, ok := f.OnCall[r.Source]
		s = s.Filled(r.Source)
		switch {
		case !ok:
			return Errorf("%s: %q is not one of the sources of oncall (%s); add it there or correct the name", path, r.Source,
				strings.Join(slices.Sorted(maps.Keys(f.OnCall)), ", "))
		case r.Policy != "" && s.Kind != oncall.PagerDuty:
			return Errorf("%s: %s has an escalation_policy, which only %s has; name a schedule", path, r, oncall.PagerDuty)
		case r.Schedule == "" && r.Policy == "" && s.Kind != oncall.ICal:
			return Errorf("%s: %s needs a schedule", path, r)
		case (s.Kind == oncall.Grafana || s.Kind == oncall.JSM) && (r.Level > 1 || r.Escalate > 0):
			return Errorf("%s: %s has a level or escalate, and schedules of the kind %s have one level; name another schedule under escalate of the policy", path, r, s.Kind)
		}
	}
	return nil
}
