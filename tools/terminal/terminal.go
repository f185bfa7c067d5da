// Package terminal is the tools for the panes of a thread: capture-pane, send-keys,
// tmux-create-session, tmux-kill-session, tmux-create-pane and tmux-kill-pane. They require a
// target with tmux.
//
// They reach only the thread's own managed panes, which package session keeps track of.
package terminal

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"strconv"
	"time"

	"countersign/approvals"
	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
)

//go:embed *.md
var descriptions embed.FS

func describe(name string) string {
	b, err := descriptions.ReadFile(name + ".md")
	if err != nil {
		return "" // the registry refuses a tool without a description at startup
	}
	return string(b)
}

// maxDelay is the longest "delay".
const maxDelay = 10 * time.Minute

// Book keeps track of the panes of threads; *session.Book implements it.
type Book interface {
	Find(ctx context.Context, thread, session, pane string) (session.Ref, error)
	Open(ctx context.Context, thread, session, pane string) (session.Pane, error)
	Ensure(ctx context.Context, thread, session, pane string) (session.Pane, string, error)
	Writable(ctx context.Context, thread, session string) error
	CheckCreate(ctx context.Context, thread, session, pane string) (session.Ref, error)
	CheckKill(ctx context.Context, thread, session, pane string) (session.Ref, error)
	CreateSession(ctx context.Context, thread, session string) (session.Made, error)
	CreatePane(ctx context.Context, thread, session, pane string) (session.Made, error)
	KillSession(ctx context.Context, thread, session string) (session.Ref, error)
	KillPane(ctx context.Context, thread, session, pane string) (session.Ref, error)
}

// Config configures the tools.
type Config struct {
	// Target is the ID of the backend target with the panes.
	Target string
	// User is the account that the panes run as, for the card.
	User string
	Book Book
}

// New returns the six tools.
func New(c Config) []tools.Tool {
	return []tools.Tool{
		capturer{c}, presser{c},
		manager{c, createSession}, manager{c, killSession}, manager{c, createPane}, manager{c, killPane},
	}
}

func (c Config) action(tool string, kind approvals.Kind, ref session.Ref, args json.RawMessage) approvals.Action {
	return approvals.Action{
		Tool: tool, Kind: kind, Target: c.Target, User: c.User, Session: ref.Session, Pane: ref.Pane,
		Args: tools.WithoutClaim(args),
	}
}

// selector names the pane of a call.
type selector struct {
	Target  string `json:"target"`
	Session string `json:"session"`
	Pane    string `json:"pane"`
}

func selectorProperties() map[string]tools.Property {
	return map[string]tools.Property{
		"target":  {Type: "string", Description: "Pane id such as %3, instead of session and pane."},
		"session": {Type: "string", Description: "Default: the thread's."},
		"pane":    {Type: "string", Description: "Default: shared."},
	}
}

var paneID = regexp.MustCompile(`^%[0-9]{1,9}$`)

// normalize moves "target" into the pane.
func (s *selector) normalize() error {
	if s.Target == "" {
		return nil
	}
	if s.Session != "" || s.Pane != "" {
		return tools.Invalid(`give "target", or "session" and "pane", not both`)
	}
	if !paneID.MatchString(s.Target) {
		return tools.Invalid(`"target" must be the id of a pane of this thread, such as %%3, not %s; or name one with "session" and "pane"`, tools.Quote(s.Target))
	}
	s.Pane = s.Target
	return nil
}

// delay holds the two forms of a delay.
type delay struct {
	Delay   json.RawMessage `json:"delay"`
	DelayMS *int64          `json:"delay_ms"`
}

func delayProperties(what string) map[string]tools.Property {
	return map[string]tools.Property{
		"delay":    {Type: []string{"string", "integer"}, Description: what + ` "2s", "500ms" or seconds; at most 10m.`},
		"delay_ms": {Type: "integer", Minimum: 0, Maximum: maxDelay.Milliseconds(), Description: `Use delay.`},
	}
}

func (d delay) parse() (time.Duration, error) {
	var out time.Duration
	if len(d.Delay) > 0 {
		if d.DelayMS != nil {
			return 0, tools.Invalid(`give "delay" or "delay_ms", not both`)
		}
		var s string
		if json.Unmarshal(d.Delay, &s) != nil {
			s = string(d.Delay)
		}
		var err error
		if n, nerr := strconv.Atoi(s); nerr == nil {
			if n > int(maxDelay.Seconds()) {
				return 0, tools.Invalid(`"delay" can be 10m at most`)
			}
			out = time.Duration(n) * time.Second
		} else if out, err = time.ParseDuration(s); err != nil {
			return 0, tools.Invalid(`"delay": %s is no duration; use text like "2s" or "500ms"`, tools.Quote(s))
		}
	} else if d.DelayMS != nil {
		out = time.Duration(*d.DelayMS) * time.Millisecond
	}
	if out < 0 || out > maxDelay {
		return 0, tools.Invalid(`"delay" must be between 0 and 10m`)
	}
	return out, nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return tools.Failed("stopped while waiting for the delay to pass; nothing was done: %w", ctx.Err())
	}
}

// merge merges property maps.
func merge(ms ...map[string]tools.Property) map[string]tools.Property {
	out := map[string]tools.Property{}
	for _, m := range ms {
		maps.Copy(out, m)
	}
	return out
}

// missing reports whether err means that a pane or session does not exist.
func missing(err error) bool {
	return errors.Is(err, session.ErrNoPane) || errors.Is(err, session.ErrNoSession) || errors.Is(err, tmux.ErrGone)
}
