// Package threads is what each thread works on, and as whom: the target and the role that
// somebody gave it, or that its channel has, or the bot's. What follows from it is for
// others: the gate, the tools and the words of people ask here.
package threads

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/bot/machines"
	"countersign/config"
	"countersign/config/rules"
	"countersign/store"
	"countersign/tools"
)

// Targets are those that threads work on.
type Targets struct {
	DB       store.DB
	Machines machines.Set
	Rules    func() *rules.Rules
	Default  string // where nothing else is said
}

// targetRow is what a thread chose to work on.
type targetRow struct {
	Target string    `json:"target"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

func threadTargetKey(thread string) []byte { return store.Key("thread-target", thread) }

// Current is the target that a thread works on: what somebody chose there, the
// channel's, or the bot's.
func (t Targets) Current(ctx context.Context, thread string) (string, error) {
	var row targetRow
	err := t.DB.View(ctx, func(tx store.Tx) error {
		row, _ = store.Load[targetRow](tx, threadTargetKey(thread))
		return nil
	})
	if err != nil {
		return "", err
	}
	if t.Machines[row.Target] != nil {
		return row.Target, nil
	}
	network, id, _ := strings.Cut(config.ChannelOf(thread), ":")
	if c, ok := t.Rules().File.Channel(network, id); ok && t.Machines[c.Target] != nil {
		return c.Target, nil
	}
	return t.Default, nil
}

// Choose makes a target the thread's own.
func (t Targets) Choose(ctx context.Context, thread chat.ThreadID, target string, by chat.UserID) error {
	return t.DB.Update(ctx, func(tx store.Tx) error {
		Choose(tx, thread, target, string(by))
		return nil
	})
}

// Choose makes a target the thread's own in a transaction.
func Choose(tx store.Tx, thread chat.ThreadID, target, by string) {
	store.Save(tx, threadTargetKey(string(thread)), targetRow{Target: target, By: by, At: time.Now().UTC()})
}

// MayUse says why somebody may not use a target in a thread; "" when they may.
func (t Targets) MayUse(thread string, by chat.User, groups []string, target string) string {
	return t.Rules().MayUse(config.ChannelOf(thread), by, groups, target)
}

// Reads says which proven reads run unasked on a target, for the lock that it is known to
// have.
func (t Targets) Reads(target string) approvals.Reads {
	lock := false
	if m := t.Machines[target]; m != nil {
		if o := m.State(); o != nil {
			lock = o.Caps.Lock.By != ""
		}
	}
	return t.Rules().Reads(target, lock)
}

// Reach says whether somebody may use the place that a command reaches: a configured
// target that they may use in this thread.
func (t Targets) Reach(thread chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool {
	for _, name := range t.Machines.Names() {
		if t.Machines[name].Config.Is(hop) {
			return t.MayUse(string(thread), by, groups, name) == ""
		}
	}
	return false
}

// Production reports whether a target's labels say that it is production.
func (t Targets) Production(target string) bool {
	_, production := policy.Environment(t.Rules().File.Targets[target].Labels)
	return production
}

// Labels are those of a target, in brackets; "" without any.
func (t Targets) Labels(target string) string {
	var words []string
	labels := t.Rules().File.Targets[target].Labels
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// Allowed is MayUse for a call of the model, which acts for who began the turn.
func (t Targets) Allowed(c tools.Call, target string) string {
	return t.MayUse(c.Thread, chat.User{ID: chat.UserID(c.By)}, c.Groups, target)
}

// MayTrust is Allowed, and refuses where the mode would let the key be trusted with
// nobody having compared it.
func (t Targets) MayTrust(c tools.Call, target string) string {
	if why := t.Allowed(c, target); why != "" {
		return why
	}
	p := t.Place(chat.ThreadID(c.Thread), target)
	if p.Mode == policy.Trusting && time.Now().Before(p.Until) {
		return fmt.Sprintf("in mode trusting nobody would compare the host key of %s on a card; a person has to add it to known_hosts by hand, or the mode has to end first", target)
	}
	return ""
}

// Place is what the configuration says of a thread and a target.
func (t Targets) Place(thread chat.ThreadID, target string) gate.Place {
	channel := config.ChannelOf(string(thread))
	s := t.Rules().File.Spot(channel, target)
	return gate.Place{
		Channel: channel, Target: s.Target, Approvers: s.Config.Approvers, Proof: s.Config.Approve.Proof, Require: s.Config.Approve.Require, Labels: s.Config.Labels, Mode: s.Mode, Until: s.Until, Reads: t.Reads(s.Target),
		Locked: t.Rules().Reads(s.Target, true),
	}
}

// Unasked says why nothing runs unasked on a target for a thread; nil if proven reads do.
func (t Targets) Unasked(thread chat.ThreadID, target string) error {
	if p := t.Place(thread, target); p.Mode == policy.Review || p.Reads == approvals.ReadsAsk {
		return errors.New("approval is required for everything here")
	}
	return nil
}

// At is the target that is named, if there is one, or else the thread's own; the bot's where the
// store cannot say.
func (t Targets) At(thread chat.ThreadID, target string) string {
	if t.Machines[target] != nil {
		return target
	}
	now, err := t.Current(context.Background(), string(thread))
	if err != nil {
		return t.Default
	}
	return now
}
