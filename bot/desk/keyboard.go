package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/history"
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

// at is where a session of the thread is, and what the author of ev is there: on the machine that is named
// before a colon, or else on the thread's own.
func (t Terminals) at(ctx context.Context, ev chat.Event, name string) (m *machines.Machine, session string, who session.Person, peer bool, err error) {
	target, session, ok := strings.Cut(name, ":")
	if !ok || t.Targets.Machines[target] == nil {
		session = name
		if target, err = t.Targets.Current(ctx, string(ev.Thread)); err != nil {
			return nil, "", who, false, err
		}
	}
	m = t.Targets.Machines[target]
	who, peer = t.person(m.Name, ev.From, ev.Groups)
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

// Take answers the chat word "take": it gives the keyboard to a person.
func (t Terminals) Take(ctx context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	m, name, who, peer, err := t.at(ctx, ev, args.ID)
	switch {
	case err != nil:
		return agent.Answer{}, err
	case ev.From.Bot:
		return says(sayBotsType)
	case !peer:
		return says(sayObserver(m.Name))
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return says(sayUnreachable(m.Name, err))
	}
	if o.Book == nil {
		return says(sayNoTerminals(m.Name, o.Notice))
	}
	taken, err := o.Book.Take(ctx, string(ev.Thread), name, who)
	if err != nil {
		// Whatever failed, nobody was handed anything that they were told of.
		if !sayable(err) {
			t.Log.ErrorContext(ctx, "the keyboard could not be handed over", "target", m.Name, "error", err)
		}
		return says(refusal(err))
	}
	o.Book.Mark(taken.Session, "shared", who.Name+" takes the keyboard")
	from := ""
	if taken.From != "" {
		from = " from " + taken.From
	}
	if taken.Again {
		from = " still"
	}
	text := sayTaken(who.Name, m.Name, from, howToType(ev.Thread, args.ID, taken.Attach))
	return agent.Answer{Text: text, Pen: &history.Pen{By: ev.From, Taken: true}}, nil
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

// Give answers the chat word "give": it returns the keyboard to the bot, or passes it on.
func (t Terminals) Give(ctx context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	if args.To != "" {
		return t.pass(ctx, ev, args)
	}
	m, name, who, _, err := t.at(ctx, ev, args.ID)
	if err != nil {
		return agent.Answer{}, err
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return says(sayUnreachable(m.Name, err))
	}
	if o.Book == nil {
		return says(sayNoTerminals(m.Name, o.Notice))
	}
	back := &history.Pen{By: ev.From}
	g, err := o.Book.Give(ctx, string(ev.Thread), name, who)
	if err != nil {
		if !sayable(err) {
			t.Log.ErrorContext(ctx, "the keyboard could not be taken back", "target", m.Name, "error", err)
		}
		ans := agent.Answer{Text: refusal(err)}
		if errors.Is(err, session.ErrUnmanaged) { // given back already, perhaps by a bot that was killed before it said so
			held, _, err := o.Book.Holder(ctx, string(ev.Thread))
			if err == nil && held == "" {
				back.Stale = true
				ans.Pen, ans.Text = back, ans.Text+sayGoesOn
			}
			return ans, err
		}
		return ans, nil
	}
	o.Book.Mark(g.Session, "shared", g.Holder+" gives the keyboard back")
	what := fmt.Sprintf("%s had the keyboard of the session %s on %s from %s to now and typed:\n%s", g.Holder, g.Session, m.Name, g.Since.UTC().Format("15:04:05"), g.Summary)
	if g.Summary == "nothing was typed" {
		what = fmt.Sprintf("%s had the keyboard of the session %s on %s and typed nothing.", g.Holder, g.Session, m.Name)
	}
	held, _, err := o.Book.Holder(ctx, string(ev.Thread))
	if err != nil {
		return agent.Answer{}, err
	}
	if held != "" {
		return agent.Answer{Text: what + "\n" + sayHeldElsewhere(held), Note: what}, nil
	}
	return agent.Answer{Text: what + "\nI'll continue.", Note: what, Pen: back}, nil
}

// pass hands it from one person to another, whom a name of the giver's network names, or a mention.
func (t Terminals) pass(ctx context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	m, name, who, _, err := t.at(ctx, ev, args.ID)
	if err != nil {
		return agent.Answer{}, err
	}
	to := strings.TrimLeft(strings.TrimSuffix(args.To, ">"), "<@!")
	network := string(ev.From.ID[:strings.LastIndex(string(ev.From.ID), ":")+1])
	taker := chat.User{ID: chat.UserID(network + to), Name: to}
	next, peer := t.person(m.Name, taker, nil)
	if !peer {
		return says(sayMayNotType(to, m.Name))
	}
	o, err := m.Connect(ctx)
	if err != nil {
		return says(sayUnreachable(m.Name, err))
	}
	if o.Book == nil {
		return says(sayNoTerminals(m.Name, o.Notice))
	}
	passed, err := o.Book.Pass(ctx, string(ev.Thread), name, who, next)
	if err != nil {
		if !sayable(err) {
			t.Log.ErrorContext(ctx, "the keyboard could not be handed over", "target", m.Name, "error", err)
		}
		return says(refusal(err))
	}
	o.Book.Mark(passed.Session, "shared", next.Name+" takes the keyboard")
	text := sayTaken(next.Name, m.Name, " from "+passed.From, howToType(ev.Thread, args.ID, passed.Attach))
	return agent.Answer{Text: text, Pen: &history.Pen{By: taker, Taken: true}}, nil
}

// Sessions answers the chat word.
func (t Terminals) Sessions(ctx context.Context, ev chat.Event, _ agent.Args) (agent.Answer, error) {
	now, err := t.Targets.Current(ctx, string(ev.Thread))
	if err != nil {
		return says(sayNoMachine)
	}
	var out strings.Builder
	for _, m := range t.Targets.Machines.Books() {
		text, has := m.State().Book.Describe(ctx, string(ev.Thread))
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
		return says(sayNoTerminalYet)
	}
	return says(out.String())
}
