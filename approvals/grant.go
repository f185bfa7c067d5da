package approvals

import (
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

// MaxGrant is the longest time for which an exact action may be approved.
const MaxGrant = time.Hour

// Grant approves one exact action in its thread until a given time. It is not a permit:
// each run has its own request, which is approved on the basis of the grant.
type Grant struct {
	Of    ID        `json:"of"` // the request that people voted on
	By    chat.User `json:"by"`
	Until time.Time `json:"until"`
}

// grantKey ignores changes that a run of the action, or creating its terminal, may have
// made itself.
func grantKey(thread chat.ThreadID, a Action) []byte {
	return store.Key("approval-grant", string(thread), a.withoutOwnEffects().Digest().String())
}

// saveGrant stores the grant that the deciding vote of a record gave.
func saveGrant(tx store.Tx, r Record) {
	store.Save(tx, grantKey(r.Thread, r.Action), Grant{Of: r.ID, By: r.By, Until: r.Decided.Add(min(r.Require.Grant, MaxGrant))})
}

// Granted returns the grant for an action that is unchanged since it was shown. An expired
// grant is deleted.
func (l Ledger) Granted(tx store.Tx, thread chat.ThreadID, a Action, now time.Time) (Grant, bool) {
	key := grantKey(thread, a)
	g, ok := store.Load[Grant](tx, key)
	if ok && !now.Before(g.Until) {
		tx.Delete(key)
		return Grant{}, false
	}
	r, known := l.Get(tx, g.Of)
	if !ok || !known || !a.isAsShown(r.Action) {
		return Grant{}, false
	}
	return g, true
}

// CoveredBy reports whether the request on whose votes this one rests says the same: that it is
// exactly this action, or that this is the step of it which the record names. What the record says
// of its basis is not enough, since a store can be written.
func (r Record) CoveredBy(of Record) bool {
	if of.ID != r.Basis.Of || of.Digest != of.Action.Digest() {
		return false
	}
	shown := of.Action
	if r.Basis.Kind == ByPlan {
		if r.Basis.Step < 1 || r.Basis.Step > len(of.Action.Steps) {
			return false
		}
		shown = of.Action.Steps[r.Basis.Step-1]
	}
	return r.Action.Digest() == shown.Digest() || r.Action.isAsShown(shown)
}

// isAsShown reports whether an action is the one that was shown. It accepts what the
// action or earlier steps of its plan may have caused: files it only writes to may exist
// now, the terminal may exist now, and state shown as [LeftBySteps] may differ. Files that
// existed must be the same.
func (a Action) isAsShown(shown Action) bool {
	switch was, is := shown.Env[ShellFact], a.Env[ShellFact]; {
	case was == is:
	case was == LeftBySteps && strings.HasPrefix(is, sharedShell):
		a.Env, shown.Env = maps.Clone(a.Env), maps.Clone(shown.Env)
		delete(a.Env, TerminalFact)
		delete(shown.Env, TerminalFact)
	case was == ShellNew && strings.HasPrefix(is, sharedShell) && (strings.HasSuffix(is, asStarted) || strings.HasSuffix(is, asLeft)): // which names no states
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
	return a.withoutOwnEffects().Digest() == shown.withoutOwnEffects().Digest()
}

// withoutOwnEffects returns the action without the facts that its own run, or creating its
// terminal, may change.
func (a Action) withoutOwnEffects() Action {
	a.Files = contentFiles(a.Files)
	if _, typed := a.Env[ShellFact]; !typed {
		return a
	}
	a.Env = maps.Clone(a.Env)
	delete(a.Env, ShellFact)
	if slices.Contains([]string{"bash", "sh", "dash", "ash", "busybox"}, a.Foreground) {
		a.Foreground = "" // as for a terminal that does not exist yet
	}
	return a
}

// contentFiles returns the files whose content matters to the action, or nil.
func contentFiles(files map[string]string) map[string]string {
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

// RevokeAll deletes the grants and plans of all threads.
func (Ledger) RevokeAll(tx store.Tx) {
	var keys [][]byte
	for _, prefix := range []string{"approval-grant", "approval-plan"} {
		for k := range tx.Scan(store.Prefix(prefix)) {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		tx.Delete(k)
	}
}

// Revoke deletes the thread's grants and plan and returns how many it deleted.
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

// PlanWithin is the time within which all steps of an approved plan must start.
const PlanWithin = 30 * time.Minute

// Plan is an approved list of actions that may run in order, each exactly as shown.
type Plan struct {
	Of    ID        `json:"of"`
	By    chat.User `json:"by"`
	Steps []Digest  `json:"steps"`
	Next  int       `json:"next"`
	Until time.Time `json:"until"`
}

func planKey(thread chat.ThreadID) []byte { return store.Key("approval-plan", string(thread)) }

// StepsOf returns the requests of a plan's steps, as far as they were made, in its order.
func (l Ledger) StepsOf(tx store.Tx, plan Record) []Record {
	out := make([]Record, len(plan.Steps))
	for i, id := range plan.Steps {
		out[i], _ = l.Get(tx, id)
	}
	return out
}

// savePlan stores the plan of a record that starts to run, if the record is one. It
// replaces an older plan of the thread.
func savePlan(tx store.Tx, r Record, now time.Time) {
	if len(r.Action.Steps) == 0 {
		return
	}
	p := Plan{Of: r.ID, By: r.By, Until: now.Add(PlanWithin)}
	for _, s := range r.Action.Steps {
		p.Steps = append(p.Steps, s.Digest())
	}
	store.Save(tx, planKey(r.Thread), p)
}

// PlanOf returns the thread's current plan. ok is false if it has none or it expired.
func (Ledger) PlanOf(tx store.Tx, thread chat.ThreadID, now time.Time) (Plan, bool) {
	p, ok := store.Load[Plan](tx, planKey(thread))
	return p, ok && now.Before(p.Until) && p.Next < len(p.Steps)
}

// UseStep uses the next step of the thread's plan for an action that matches it as shown.
// n is the step's number, counted from 1. Each step can be used once.
func (l Ledger) UseStep(tx store.Tx, thread chat.ThreadID, a Action, now time.Time) (p Plan, n int, ok bool) {
	p, ok = l.PlanOf(tx, thread, now)
	if !ok || !l.isNextStep(tx, p, a) {
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

func (l Ledger) isNextStep(tx store.Tx, p Plan, a Action) bool {
	if p.Steps[p.Next] == a.Digest() {
		return true
	}
	r, ok := l.Get(tx, p.Of)
	if !ok || len(r.Action.Steps) != len(p.Steps) {
		return false
	}
	shown := r.Action.Steps[p.Next]
	return shown.Digest() == p.Steps[p.Next] && a.isAsShown(shown)
}

// Drop ends the thread's plan.
func (Ledger) Drop(tx store.Tx, thread chat.ThreadID) { tx.Delete(planKey(thread)) }
