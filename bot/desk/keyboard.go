package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"countersign/adapters/chat"
	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/targets/session"
	"countersign/targets/tmux"
)

// Terminals answers the chat words "sessions", "take" and "give": it hands the keyboard of
// a thread's terminal over. Who watches is an observer; the target's approvers are peers,
// who may take the keyboard from the bot; its moderators may take it from anybody.
type Terminals struct {
	Targets threads.Targets
	Log     *slog.Logger
}

// place is a session of a thread: on the machine that is named before a colon, or else on the
// thread's own.
func (t Terminals) place(ctx context.Context, thread chat.ThreadID, name string) (m *machines.Machine, session string, err error) {
	if target, rest, ok := strings.Cut(name, ":"); ok && t.Targets.Machines[target] != nil {
		return t.Targets.Machines[target], rest, nil
	}
	target, err := t.Targets.Current(ctx, string(thread))
	return t.Targets.Machines[target], name, err
}

// at is where a session of the thread is, and what somebody is there.
func (t Terminals) at(ctx context.Context, thread chat.ThreadID, name string, by chat.User, groups []string) (m *machines.Machine, session string, who session.Person, peer bool, err error) {
	m, session, err = t.place(ctx, thread, name)
	if err != nil {
		return nil, "", who, false, err
	}
	who, peer = t.person(m.Name, by, groups)
	return m, session, who, peer, nil
}

// person is what somebody is on a target.
func (t Terminals) person(target string, by chat.User, groups []string) (who session.Person, peer bool) {
	r := t.Targets.Rules()
	cfg := r.File.Targets[target]
	who = session.Person{ID: string(by.ID), Name: by.Name, Moderator: r.Policy.Eligible(cfg.Moderators, by, groups)}
	if who.Name == "" {
		who.Name = string(by.ID)
	}
	return who, who.Moderator || r.Policy.Eligible(cfg.Approvers, by, groups)
}

// refusal is the answer to an error that is a sentence for people.
func refusal(err error) string {
	text := err.Error()
	if errors.Is(err, session.ErrTaken) {
		return text + "." // it begins with a name
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// sayable reports whether an error is one that people are told.
func sayable(err error) bool {
	for _, is := range []error{session.ErrTaken, session.ErrNoSession, session.ErrNoPane, session.ErrForeign, session.ErrUnmanaged, session.ErrName, session.ErrLimit, tmux.ErrDriven} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// Take gives the keyboard to a person.
func (t Terminals) Take(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, named string) (text string, ok bool, err error) {
	m, name, who, peer, err := t.at(ctx, thread, named, by, groups)
	switch {
	case err != nil:
		return "", false, err
	case by.Bot:
		return sayBotsType, false, nil
	case !peer:
		return sayObserver(m.Name), false, nil
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return sayUnreachable(m.Name, err), false, nil
	}
	if o.Book == nil {
		return sayNoTerminals(m.Name, o.Notice), false, nil
	}
	taken, err := o.Book.Take(ctx, string(thread), name, who)
	if err != nil {
		// Whatever failed, nobody was handed anything that they were told of.
		if !sayable(err) {
			t.Log.ErrorContext(ctx, "the keyboard could not be handed over", "target", m.Name, "error", err)
		}
		return refusal(err), false, nil
	}
	o.Book.Mark(taken.Session, "shared", who.Name+" takes the keyboard")
	from := ""
	if taken.From != "" {
		from = " from " + taken.From
	}
	if taken.Again {
		from = " still"
	}
	return sayTaken(who.Name, m.Name, from, howToType(thread, named, taken.Attach)), true, nil
}

// howToType says where somebody types who has the keyboard. The console's terminal, and that of the
// command line, name the session in full: who takes it there needs nothing.
func howToType(thread chat.ThreadID, named, attach string) string {
	switch {
	case !strings.HasPrefix(string(thread), "web:"):
		return sayAttach(attach)
	case strings.Contains(named, ":"):
		return ""
	}
	return sayOpenTerminal
}

// Give returns it to the bot.
func (t Terminals) Give(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, name string) (text, note string, ok bool, err error) {
	m, name, who, _, err := t.at(ctx, thread, name, by, groups)
	if err != nil {
		return "", "", false, err
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return sayUnreachable(m.Name, err), "", false, nil
	}
	if o.Book == nil {
		return sayNoTerminals(m.Name, o.Notice), "", false, nil
	}
	g, err := o.Book.Give(ctx, string(thread), name, who)
	if err != nil {
		if !sayable(err) {
			t.Log.ErrorContext(ctx, "the keyboard could not be taken back", "target", m.Name, "error", err)
		}
		text = refusal(err)
		if errors.Is(err, session.ErrUnmanaged) { // given back already, perhaps by a bot that was killed before it said so
			held, _, err := o.Book.Holder(ctx, string(thread))
			return text, "", err == nil && held == "", err
		}
		return text, "", false, nil
	}
	o.Book.Mark(g.Session, "shared", g.Holder+" gives the keyboard back")
	what := fmt.Sprintf("%s had the keyboard of the session %s on %s from %s to now and typed:\n%s", g.Holder, g.Session, m.Name, g.Since.UTC().Format("15:04:05"), g.Summary)
	if g.Summary == "nothing was typed" {
		what = fmt.Sprintf("%s had the keyboard of the session %s on %s and typed nothing.", g.Holder, g.Session, m.Name)
	}
	held, _, err := o.Book.Holder(ctx, string(thread))
	if err != nil {
		return "", "", false, err
	}
	if held != "" {
		return what + "\n" + sayHeldElsewhere(held), what, false, nil
	}
	return what + "\nI'll continue.", what, true, nil
}

// Pass hands it from one person to another. to is a name of the giver's network, or a mention.
func (t Terminals) Pass(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, named, to string) (text string, taker chat.User, ok bool, err error) {
	m, name, who, _, err := t.at(ctx, thread, named, by, groups)
	if err != nil {
		return "", taker, false, err
	}
	to = strings.TrimLeft(strings.TrimSuffix(to, ">"), "<@!")
	network := string(by.ID[:strings.LastIndex(string(by.ID), ":")+1])
	taker = chat.User{ID: chat.UserID(network + to), Name: to}
	next, peer := t.person(m.Name, taker, nil)
	if !peer {
		return sayMayNotType(to, m.Name), taker, false, nil
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return sayUnreachable(m.Name, err), taker, false, nil
	}
	if o.Book == nil {
		return sayNoTerminals(m.Name, o.Notice), taker, false, nil
	}
	passed, err := o.Book.Pass(ctx, string(thread), name, who, next)
	if err != nil {
		if !sayable(err) {
			t.Log.ErrorContext(ctx, "the keyboard could not be handed over", "target", m.Name, "error", err)
		}
		return refusal(err), taker, false, nil
	}
	o.Book.Mark(passed.Session, "shared", next.Name+" takes the keyboard")
	return sayTaken(next.Name, m.Name, " from "+passed.From, howToType(thread, named, passed.Attach)), taker, true, nil
}

// Sessions answers the chat word.
func (t Terminals) Sessions(ctx context.Context, thread chat.ThreadID) string {
	now, err := t.Targets.Current(ctx, string(thread))
	if err != nil {
		return sayNoMachine
	}
	var out strings.Builder
	for _, m := range t.Targets.Machines.Books() {
		text, has := m.State().Book.Describe(ctx, string(thread))
		if !has && m.Name != now {
			continue
		}
		if len(t.Targets.Machines) > 1 {
			fmt.Fprintf(&out, "On `%s`%s:\n", m.Name, t.Targets.Labels(m.Name))
		}
		out.WriteString(text)
	}
	if o := t.Targets.Machines[now].State(); o != nil && o.Notice != "" {
		out.WriteString(sayNoTerminals(now, o.Notice))
	}
	if out.Len() == 0 {
		return sayNoTerminalYet
	}
	return out.String()
}
