package machines

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/config"
	"countersign/targets/backend"
	"countersign/targets/session"
	"countersign/tools"
	"countersign/tools/process"
)

// Set are the machines of a bot, by the names of their targets.
type Set map[string]*Machine

// NewSet returns every configured target, without connecting to any.
func NewSet(o *Options) (Set, error) {
	all := Set{}
	for _, name := range slices.Sorted(maps.Keys(o.File.Targets)) {
		m, err := New(name, o)
		if err != nil {
			return nil, config.Errorf("targets.%s: %v", name, err)
		}
		m.others = func() []*session.Book { return all.booksBeside(m) }
		all[name] = m
	}
	return all, nil
}

// booksBeside are the books of the machines that are open, without that of one.
func (s Set) booksBeside(m *Machine) []*session.Book {
	var out []*session.Book
	for _, other := range s.Books() {
		if other != m {
			out = append(out, other.State().Book)
		}
	}
	return out
}

// Names are the names of the targets, sorted.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Sorted are the machines in the order of their names.
func (s Set) Sorted() []*Machine {
	out := make([]*Machine, 0, len(s))
	for _, name := range s.Names() {
		out = append(out, s[name])
	}
	return out
}

// ConnectLocal opens this machine, which is there at once; others are opened when they are
// needed.
func (s Set) ConnectLocal(ctx context.Context) error {
	for _, m := range s.Sorted() {
		if m.Config.Kind == "local" {
			if _, err := m.Connect(ctx); err != nil {
				return fmt.Errorf("the target %s cannot be looked at: %w", m.Name, err)
			}
		}
	}
	return nil
}

// Tools opens a machine for a call.
func (s Set) Tools(ctx context.Context, target string) (map[string]tools.Tool, error) {
	m := s[target]
	if m == nil {
		return nil, ErrNotOpen
	}
	if err := m.renew(ctx); err != nil {
		return nil, err
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return o.Tools, nil
}

// byID is the machine that an action names.
func (s Set) byID(id string) *Machine {
	for _, name := range []string{id, config.NameOf(id)} {
		if m := s[name]; m != nil && m.Target.ID() == id {
			return m
		}
	}
	return nil
}

// Books are the machines that are open and have terminals, in the order of their names.
func (s Set) Books() []*Machine {
	var out []*Machine
	for _, m := range s.Sorted() {
		if o := m.State(); o != nil && o.Book != nil {
			out = append(out, m)
		}
	}
	return out
}

// BookOf returns the terminals that one belongs to, which is named by its target and its id there
// with a colon between, and that id.
func (s Set) BookOf(terminal string) (book *session.Book, id string, err error) {
	target, id, _ := strings.Cut(terminal, ":")
	m := s[target]
	if m == nil || m.State() == nil || m.State().Book == nil {
		return nil, "", ErrNotOpen
	}
	return m.State().Book, id, nil
}

// NoTerminals reports whether it is known that no target has tmux.
func (s Set) NoTerminals() bool {
	for _, m := range s {
		if m.terminals() {
			return false
		}
	}
	return true
}

// Terminals reports whether a target has tmux, as far as is known.
func (s Set) Terminals(target string) bool { return s[target].terminals() }

func (m *Machine) terminals() bool {
	if o := m.State(); o != nil {
		return o.Tmux != nil
	}
	return m.Config.Terminals()
}

// Prepare makes the connections of an action while people decide about it. What waits holds no terminal: there
// are few of those, and anybody can ask.
func (s Set) Prepare(_ chat.ThreadID, a approvals.Action) {
	for _, step := range append([]approvals.Action{a}, a.Steps...) {
		m := s.byID(step.Target)
		if m != nil && m.Config.Credential == config.PerApproval && step.User == m.Config.RunAs {
			if p, ok := m.Target.(backend.Preparer); ok { // its connection comes as far as the login
				p.Prepare()
			}
		}
	}
}

// Mark puts a decision into the recording of the pane that it is about.
func (s Set) Mark(id approvals.ID, a approvals.Action) {
	if a.Pane == "" {
		return
	}
	if m := s.byID(a.Target); m != nil {
		if o := m.State(); o != nil && o.Book != nil {
			o.Book.Mark(a.Session, a.Pane, "approved as "+string(id))
		}
	}
}

// PruneProcesses forgets the processes in the background that ended long ago.
func (s Set) PruneProcesses(ctx context.Context) {
	for _, m := range s.Sorted() {
		o := m.State()
		if o == nil {
			continue
		}
		if _, err := process.Prune(ctx, m.background(o.Caps.User, nil), time.Time{}); err != nil && ctx.Err() == nil {
			m.opts.Log.Warn("processes in the background that have ended could not be pruned", "target", m.Name, "error", err)
		}
	}
}

// EndTerminals ends all terminals, for a run whose instance name is its own.
func (s Set) EndTerminals(ctx context.Context) {
	for _, m := range s.Books() {
		if err := m.State().Tmux.Destroy(ctx); err != nil {
			m.opts.Log.Error("the terminals of this run could not be ended", "target", m.Name, "error", err)
		}
	}
}

// Close ends the connections to the machines; what runs there stays.
func (s Set) Close() {
	for _, m := range s.Sorted() {
		m.Close()
	}
}
