package approvals

import (
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

// MaxGrant is the longest time for which exactly one action may be approved.
const MaxGrant = time.Hour

// Grant lets one exact action run again in its thread, until a moment. It is no
// permit: each run has a request of its own, which is approved on this basis.
type Grant struct {
	Of    ID        `json:"of"` // the request that people voted on
	By    chat.User `json:"by"`
	Until time.Time `json:"until"`
}

// grantKey leaves out what a run of the action, or the making of its terminal, may itself
// have brought about.
func grantKey(thread chat.ThreadID, a Action) []byte {
	return store.Key("approval-grant", string(thread), a.settled().Digest().String())
}

// grant stores what the last vote of an approved record allows.
func grant(tx store.Tx, r Record) {
	store.Save(tx, grantKey(r.Thread, r.Action), Grant{Of: r.ID, By: r.By, Until: r.Decided.Add(min(r.Require.Grant, MaxGrant))})
}

// Granted finds the grant for an action, which must still be what was shown; one
// whose time is over is none, and is forgotten.
func (l Ledger) Granted(tx store.Tx, thread chat.ThreadID, a Action, now time.Time) (Grant, bool) {
	key := grantKey(thread, a)
	g, ok := store.Load[Grant](tx, key)
	if ok && !now.Before(g.Until) {
		tx.Delete(key)
		return Grant{}, false
	}
	r, known := l.Get(tx, g.Of)
	if !ok || !known || !a.still(r.Action) {
		return Grant{}, false
	}
	return g, true
}

// still reports whether an action is the one that was shown. Files that it only
// writes to may have come into being since: the action itself, or an earlier step
// of its plan, may have made them. One that was there must be the same one. The terminal
// that was still to be made may be there now, and what was shown as left by earlier
// steps is as they left it.
func (a Action) still(shown Action) bool {
	switch was, is := shown.Env[ShellFact], a.Env[ShellFact]; {
	case was == is:
	case (was == ShellNew || was == LeftBySteps) && strings.HasPrefix(is, sharedShell):
	default:
		return false
	}
	files := maps.Clone(a.Files)
	kept := maps.Clone(shown.Files)
	for name, state := range shown.Files {
		switch {
		case state == LeftBySteps:
			bare := strings.TrimSuffix(name, "/")
			delete(kept, name)
			delete(files, bare)
			delete(files, bare+"/")
		case files[name] != state:
			return false
		}
	}
	a.Files, shown.Files = files, kept
	return a.settled().Digest() == shown.settled().Digest()
}

// settled is the action without what its own run, or the making of its terminal, brings
// about.
func (a Action) settled() Action {
	a.Files = withContent(a.Files)
	if _, typed := a.Env[ShellFact]; !typed {
		return a
	}
	a.Env = maps.Clone(a.Env)
	delete(a.Env, ShellFact)
	if slices.Contains([]string{"bash", "sh", "dash", "ash", "busybox"}, a.Foreground) {
		a.Foreground = "" // as in a terminal that is still to be made
	}
	return a
}

// withContent are the files of an action whose content matters to it; nil if
// there are none.
func withContent(files map[string]string) map[string]string {
	var out map[string]string
	for name, state := range files {
		if strings.Contains(state, AnyContent) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = state
	}
	return out
}

// Revoke ends every grant and the plan of a thread and returns how many.
func (Ledger) Revoke(tx store.Tx, thread chat.ThreadID) int {
	var keys [][]byte
	start, end := store.Prefix("approval-grant", string(thread))
	for k := range tx.Scan(start, end) {
		keys = append(keys, k)
	}
	if _, ok := store.Load[Plan](tx, planKey(thread)); ok {
		keys = append(keys, planKey(thread))
	}
	for _, k := range keys {
		tx.Delete(k)
	}
	return len(keys)
}

// PlanWithin is how long the steps of an approved plan may take to begin, all
// together.
const PlanWithin = 30 * time.Minute

// Plan is an approved list of actions that may run one after the other, each
// exactly as it was shown.
type Plan struct {
	Of    ID        `json:"of"`
	By    chat.User `json:"by"`
	Steps []Digest  `json:"steps"`
	Next  int       `json:"next"`
	Until time.Time `json:"until"`
}

func planKey(thread chat.ThreadID) []byte { return store.Key("approval-plan", string(thread)) }

// begin stores the plan of a record that runs now, if it is one. It takes the
// place of an older plan of the thread.
func begin(tx store.Tx, r Record, now time.Time) {
	if len(r.Action.Steps) == 0 {
		return
	}
	p := Plan{Of: r.ID, By: r.By, Until: now.Add(PlanWithin)}
	for _, s := range r.Action.Steps {
		p.Steps = append(p.Steps, s.Digest())
	}
	store.Save(tx, planKey(r.Thread), p)
}

// PlanOf is the plan that a thread works on; one whose time is over is none.
func (Ledger) PlanOf(tx store.Tx, thread chat.ThreadID, now time.Time) (Plan, bool) {
	p, ok := store.Load[Plan](tx, planKey(thread))
	return p, ok && now.Before(p.Until) && p.Next < len(p.Steps)
}

// Take takes the next step of the thread's plan, which must be this action as it
// was shown; n counts from 1. A step that was taken is not offered again. Files
// that the action only writes to may have come into being since: an earlier step
// may have made them.
func (l Ledger) Take(tx store.Tx, thread chat.ThreadID, a Action, now time.Time) (p Plan, n int, ok bool) {
	p, ok = l.PlanOf(tx, thread, now)
	if !ok || !l.isStep(tx, p, a) {
		return p, 0, false
	}
	p.Next++
	if p.Next == len(p.Steps) {
		tx.Delete(planKey(thread))
	} else {
		store.Save(tx, planKey(thread), p)
	}
	return p, p.Next, true
}

func (l Ledger) isStep(tx store.Tx, p Plan, a Action) bool {
	if p.Steps[p.Next] == a.Digest() {
		return true
	}
	r, ok := l.Get(tx, p.Of)
	if !ok || len(r.Action.Steps) != len(p.Steps) {
		return false
	}
	shown := r.Action.Steps[p.Next]
	return shown.Digest() == p.Steps[p.Next] && a.still(shown)
}

// Drop ends the thread's plan.
func (Ledger) Drop(tx store.Tx, thread chat.ThreadID) { tx.Delete(planKey(thread)) }
