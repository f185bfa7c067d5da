package alerts

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat/network"
	"countersign/alerts/hook"
	"countersign/alerts/notice"
	"countersign/internal/redact"
)

// Config says which systems may send alerts and where they go. The zero value
// takes none.
type Config struct {
	// Hooks are the systems that may send.
	Hooks map[notice.Source]Hook `yaml:"hooks,omitempty"`
	// Routes are tried in order; the first that matches counts.
	Routes []Route `yaml:"routes,omitempty"`
	// Default is where everything else goes. Required where there are hooks.
	Default *Place `yaml:"default,omitempty"`
	// Repeat is how long after its end a trouble that comes back is the same one;
	// later it gets a new thread. 0 is 4 h.
	Repeat time.Duration `yaml:"repeat,omitempty"`
	// Silent is after how long without a word a trouble that nobody resolved counts
	// as over. It must be longer than the sender's own repetition. 0 is 24 h.
	Silent time.Duration `yaml:"silent,omitempty"`
	// NewThreads is how many threads may be opened within a minute; what comes beyond
	// that goes into one thread of its channel. 0 is 10.
	NewThreads int `yaml:"new_threads,omitempty"`
}

// Hook is a system that may send.
type Hook struct {
	// SecretEnv names the environment variable that holds its secret.
	SecretEnv string `yaml:"secret_env"`
	// Untimed takes signatures that cover no time, of Grafana and of the generic hook.
	// Whoever records such a request can send it again.
	Untimed bool `yaml:"untimed,omitempty"`
}

// Place is where a trouble's thread is opened, and what happens there.
type Place struct {
	// Channel is slack:<team>:<channel>, discord:<server>:<channel> or web.
	Channel string `yaml:"channel" json:"channel"`
	// Target is the machine that the thread works on; "" is the channel's.
	Target string `yaml:"target,omitempty" json:"target,omitempty"`
	// Triage says whether the bot looks into it; nil is yes.
	Triage *bool `yaml:"triage,omitempty" json:"triage,omitempty"`
}

// Route is a place for some notices.
type Route struct {
	// Match are labels and their values, all of which must fit; a value that begins
	// with ~ is a regular expression that must fit as a whole. The label "source" is
	// the sender's kind. A label that is not there has the value "".
	Match map[string]string `yaml:"match"`
	Place `yaml:",inline"`
}

const (
	defaultRepeat  = 4 * time.Hour
	defaultSilent  = 24 * time.Hour
	defaultThreads = 10
	maxThreads     = 60
)

// Check says what is wrong with the configuration, all of it, a sentence each.
// target reports whether a target exists; nil knows them all.
func (c Config) Check(target func(name string) bool) error {
	_, err := c.compile()
	if target == nil {
		return err
	}
	errs := []error{err}
	for i, r := range c.Routes {
		if r.Target != "" && !target(r.Target) {
			errs = append(errs, fmt.Errorf("alerts.routes[%d].target: there is no target %q; add it under targets", i, r.Target))
		}
	}
	if c.Default != nil && c.Default.Target != "" && !target(c.Default.Target) {
		errs = append(errs, fmt.Errorf("alerts.default.target: there is no target %q; add it under targets", c.Default.Target))
	}
	return errors.Join(errs...)
}

// Secrets reads the secrets of the hooks from the environment. A hook whose
// variable is not set is an error: it would be closed without a word.
func (c Config) Secrets(lookup func(name string) (string, bool)) (map[notice.Source]redact.Secret, error) {
	out := map[notice.Source]redact.Secret{}
	var errs []error
	for _, s := range slices.Sorted(maps.Keys(c.Hooks)) {
		name := c.Hooks[s].SecretEnv
		value, ok := lookup(name)
		if !ok || value == "" {
			errs = append(errs, fmt.Errorf("alerts.hooks.%s: the variable %s is not set; put the secret into it, or take the hook away", s, name))
			continue
		}
		if err := hook.Check(s, redact.Secret(value)); err != nil {
			errs = append(errs, fmt.Errorf("alerts.hooks.%s: in %s: %w", s, name, err))
			continue
		}
		out[s] = redact.Secret(value)
	}
	return out, errors.Join(errs...)
}

// Untimed are the hooks that take signatures without a time.
func (c Config) Untimed() map[notice.Source]bool {
	out := map[notice.Source]bool{}
	for s, h := range c.Hooks {
		if h.Untimed {
			out[s] = true
		}
	}
	return out
}

// router is a configuration that was checked.
type router struct {
	routes   []compiled
	fallback Place // Default
	repeat   time.Duration
	silent   time.Duration
	threads  int
}

type compiled struct {
	match map[string]func(string) bool
	place Place
}

func (c Config) compile() (*router, error) {
	r := &router{repeat: c.Repeat, silent: c.Silent, threads: c.NewThreads}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, s := range slices.Sorted(maps.Keys(c.Hooks)) {
		if !slices.Contains(notice.Sources(), s) {
			bad("alerts.hooks: there is no hook %q; the hooks are alertmanager, generic, grafana and pagerduty", string(s))
		}
		if c.Hooks[s].SecretEnv == "" {
			bad("alerts.hooks.%s.secret_env is missing; name the environment variable that holds its secret", s)
		}
		if c.Hooks[s].Untimed && !hook.SignsTime(s) {
			bad("alerts.hooks.%s.untimed changes nothing, because its signature never covers a time; leave it out", s)
		}
	}
	for i, route := range c.Routes {
		where := fmt.Sprintf("alerts.routes[%d]", i)
		if len(route.Match) == 0 {
			bad("%s.match is empty and would take everything; use alerts.default for that", where)
		}
		at := compiled{match: map[string]func(string) bool{}, place: route.Place}
		for label, want := range route.Match {
			expr, isExpr := strings.CutPrefix(want, "~")
			if !isExpr {
				at.match[label] = func(v string) bool { return v == want }
				continue
			}
			re, err := regexp.Compile("^(?:" + expr + ")$")
			if err != nil {
				bad("%s.match.%s: %q is no regular expression (%v); correct it, or take the ~ away", where, label, expr, err)
				continue
			}
			at.match[label] = re.MatchString
		}
		checkPlace(where, route.Place, bad)
		r.routes = append(r.routes, at)
	}
	switch {
	case c.Default != nil:
		checkPlace("alerts.default", *c.Default, bad)
		r.fallback = *c.Default
	case len(c.Hooks) > 0:
		bad("alerts.default is missing; name the channel for alerts that no route matches")
	}
	for name, d := range map[string]*time.Duration{"repeat": &r.repeat, "silent": &r.silent} {
		if *d < 0 || *d > 0 && *d < time.Minute {
			bad("alerts.%s is %s; use a minute or more", name, *d)
		}
	}
	if r.repeat == 0 {
		r.repeat = defaultRepeat
	}
	if r.silent == 0 {
		r.silent = defaultSilent
	}
	if r.threads < 0 || r.threads > maxThreads {
		bad("alerts.new_threads is %d; use a number from 1 to %d", r.threads, maxThreads)
	}
	if r.threads == 0 {
		r.threads = defaultThreads
	}
	return r, errors.Join(errs...)
}

func checkPlace(where string, p Place, bad func(string, ...any)) {
	switch {
	case p.Channel == "":
		bad("%s.channel is missing; write one like %s", where, network.Or(network.All(), network.Network.Example))
	case !network.IsChannel(p.Channel):
		bad("%s.channel: %q is no channel; write one like %s", where, p.Channel, network.Or(network.All(), network.Network.Example))
	}
}

func (r *router) hasTarget() bool {
	return r.fallback.Target != "" || slices.ContainsFunc(r.routes, func(c compiled) bool { return c.place.Target != "" })
}

// place is where a notice goes.
func (r *router) place(s notice.Source, labels map[string]string) Place {
	for _, c := range r.routes {
		fits := true
		for label, match := range c.match {
			v := labels[label]
			if label == "source" {
				v = string(s)
			}
			fits = fits && match(v)
		}
		if fits {
			return c.place
		}
	}
	return r.fallback
}

func (p Place) triage() bool { return p.Triage == nil || *p.Triage }
