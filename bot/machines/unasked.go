package machines

import (
	"errors"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/config"
	"countersign/targets/backend/door"
)

// asker is for whom something runs on a machine before anybody approved it.
type asker struct {
	thread chat.ThreadID
	by     chat.User
	groups []string
	gated  bool // nothing of the request runs unasked
}

var (
	errGated   = errors.New("this request needs approval first")
	errOff     = errors.New("turned off for this target")
	errNoRules = errors.New("no policy is loaded")
)

// rules say what runs unasked on the machine.
func (m *Machine) rules(a asker) door.Rules {
	return func(p door.Purpose) error {
		switch {
		case m.opts.Unasked == nil:
			return errNoRules
		case a.gated:
			return errGated
		case m.Config.Rehearse == config.RehearseOff && p != door.Read:
			return errOff
		}
		return m.opts.Unasked(a.thread, m.Name)
	}
}

// looker returns what looks at what an action would do, for somebody.
func (m *Machine) looker(a asker, o *Opened, action approvals.Action) looker {
	return looker{m, a, o, action}
}

// reaches reports whether somebody may use a place that a command reaches.
func (m *Machine) reaches(a asker) func(risk.Hop) bool {
	return func(h risk.Hop) bool {
		return m.opts.MayReach != nil && m.opts.MayReach(a.thread, a.by, a.groups, h)
	}
}

// askerOf returns the requester of a record.
func askerOf(r approvals.Record) asker {
	return asker{thread: r.Thread, by: r.Requester, groups: r.Groups}
}
