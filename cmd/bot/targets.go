package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/bot/machines"
	"countersign/internal/config"
	"countersign/store"
	"countersign/targets/backend"
	"countersign/tools"
)

// targetRow is what a thread chose to work on.
type targetRow struct {
	Target string    `json:"target"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

func threadTargetKey(thread string) []byte { return store.Key("thread-target", thread) }

// current is the target that a thread works on: what somebody chose there, the
// channel's, or the bot's.
func (b *bot) current(ctx context.Context, thread string) (string, error) {
	var row targetRow
	err := b.db.View(ctx, func(tx store.Tx) error {
		row, _ = store.Load[targetRow](tx, threadTargetKey(thread))
		return nil
	})
	if err != nil {
		return "", err
	}
	if b.machines[row.Target] != nil {
		return row.Target, nil
	}
	network, id, _ := strings.Cut(config.ChannelOf(thread), ":")
	if c, ok := b.rules.Load().File.Channel(network, id); ok && b.machines[c.Target] != nil {
		return c.Target, nil
	}
	return b.file.Agent.Target, nil
}

// mayUse says why somebody may not use a target in a thread; "" when they may.
func (b *bot) mayUse(thread string, by chat.User, groups []string, target string) string {
	return b.rules.Load().MayUse(config.ChannelOf(thread), by, groups, target)
}

// use answers the chat word: it lists the targets, or makes one the thread's own.
func (b *bot) use(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, target string) (string, error) {
	now, err := b.current(ctx, string(thread))
	if err != nil {
		return "", err
	}
	if target == "" {
		return b.listTargets(string(thread), by, groups, now), nil
	}
	if why := b.mayUse(string(thread), by, groups, target); why != "" {
		return strings.ToUpper(why[:1]) + why[1:] + ".", nil
	}
	err = b.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, threadTargetKey(string(thread)), targetRow{Target: target, By: string(by.ID), At: time.Now().UTC()})
		return nil
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("This thread now works on `%s`%s.", target, b.labels(target))
	o, err := b.machines[target].Connect(ctx)
	switch {
	case err != nil:
		text += " It cannot be reached at this moment: " + err.Error() + "."
	case o.Notice != "":
		text += " " + o.Notice
	}
	if err == nil {
		text += " " + b.held(target, o.Caps.Lock)
	}
	return text, nil
}

// reads says which proven reads run unasked on a target, for the lock that it is known to
// have.
func (b *bot) reads(target string) approvals.Reads {
	lock := false
	if m := b.machines[target]; m != nil {
		if o := m.State(); o != nil {
			lock = o.Caps.Lock.By != ""
		}
	}
	return b.rules.Load().Reads(target, lock)
}

// reach says whether somebody may use the place that a command reaches: a configured
// target that they may use in this thread.
func (b *bot) reach(thread chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool {
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		if b.machines[name].Config.Is(hop) {
			return b.mayUse(string(thread), by, groups, name) == ""
		}
	}
	return false
}

// held says for people how a target holds reads back.
func (b *bot) held(target string, s backend.LockState) string {
	var text string
	switch reads := b.rules.Load().Reads(target, s.By != ""); {
	case reads == approvals.ReadsAsk && s.By == "":
		text = "Every read asks there."
	case reads == approvals.ReadsAsk:
		return "Every read asks there, as the configuration says."
	case reads == approvals.ReadsPlain && s.By != "":
		return "Plain reads run unasked there, locked (" + machines.LockName(s.By) + ")."
	case reads == approvals.ReadsPlain:
		text = "It has no lock, so only plain reads run unasked there."
	default:
		text = "Reads run locked there (" + machines.LockName(s.By) + ")."
	}
	if len(s.Lacks) > 0 {
		text += " " + strings.ToUpper(s.Lacks[0][:1]) + s.Lacks[0][1:] + "."
	}
	return text
}

func (b *bot) labels(target string) string {
	var words []string
	labels := b.rules.Load().File.Targets[target].Labels
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

func (b *bot) listTargets(thread string, by chat.User, groups []string, now string) string {
	var out strings.Builder
	out.WriteString("The targets here; `use NAME` changes what this thread works on:\n")
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		if b.mayUse(thread, by, groups, name) != "" {
			continue
		}
		m := b.machines[name]
		state := "not reached yet"
		if o := m.State(); o != nil {
			state = "reached"
			if o.Tmux == nil {
				state += ", without terminals"
			}
			if o.Caps.Lock.By == "" {
				state += ", without a lock"
			}
		}
		mark := ""
		if name == now {
			mark = " ← this thread"
		}
		fmt.Fprintf(&out, "- `%s`%s: %s, %s%s\n", name, b.labels(name), m.Config.Kind, state, mark)
	}
	return out.String()
}

// allowed is mayUse for a call of the model, which acts for who began the turn.
func (b *bot) allowed(c tools.Call, target string) string {
	return b.mayUse(c.Thread, chat.User{ID: chat.UserID(c.By)}, c.Groups, target)
}

// mayTrust is allowed, and refuses where the mode would let the key be trusted with
// nobody having compared it.
func (b *bot) mayTrust(c tools.Call, target string) string {
	if why := b.allowed(c, target); why != "" {
		return why
	}
	p := b.place(chat.ThreadID(c.Thread), target)
	if p.Mode == policy.Trusting && time.Now().Before(p.Until) {
		return fmt.Sprintf("in mode trusting nobody would compare the host key of %s on a card; a person has to add it to known_hosts by hand, or the mode has to end first", target)
	}
	return ""
}
