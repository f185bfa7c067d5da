package machines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/config"
	"countersign/store"
	"countersign/targets/backend"
	"countersign/targets/session"
	"countersign/tools"
)

// plainRun is a command that was about to run without a pane.
type plainRun struct {
	Thread string    `json:"thread"`
	Call   string    `json:"call"`
	Mark   string    `json:"mark"`
	At     time.Time `json:"at"`
	// Open means that the call's outcome is not stored.
	Open bool `json:"open,omitempty"`
}

// plainJournal notes what runs on a machine without a pane, where the machine itself
// notes how it ends.
type plainJournal struct{ m *Machine }

func (j plainJournal) key(thread, call string) []byte {
	return store.Key("plain-run", j.m.place(), thread, call)
}

// Began implements shell.Journal.
func (j plainJournal) Began(ctx context.Context, thread, call string) (mark string, err error) {
	now := time.Now().UTC()
	if _, ok := j.m.Target.(backend.Witness); ok {
		sum := sha256.Sum256([]byte(thread + "\x00" + call + "\x00" + now.String()))
		mark = j.prefix() + hex.EncodeToString(sum[:16])
		if j.m.Config.Credential == config.PerApproval {
			mark = string(approvals.UnderOf(ctx)) // by which the host knows the run
		}
	}
	j.m.mayHaveOutputs.Store(true)
	err = j.m.opts.DB.Update(ctx, func(tx store.Tx) error {
		// Whoever takes a thread over begins what has no note.
		if !j.m.opts.Replicas.Owns(tx, thread) {
			return errTakenOver
		}
		store.Save(tx, j.key(thread, call), plainRun{Thread: thread, Call: call, Mark: mark, At: now, Open: true})
		return nil
	})
	return mark, err
}

var errTakenOver = errors.New("another replica of the bot works on this thread now")

// prefix begins the marks of this target of this bot: others may be the same account of a host, and
// each has only what it doesn't know pruned.
func (j plainJournal) prefix() string {
	sum := sha256.Sum256([]byte(j.m.opts.Env.Instance + "\x00" + j.m.place()))
	return hex.EncodeToString(sum[:4]) + "-"
}

// Noted implements shell.Journal.
func (j plainJournal) Noted(ctx context.Context, thread, call string) (mark string, at time.Time, ok bool, err error) {
	r, ok, err := j.load(ctx, thread, call)
	return r.Mark, r.At, ok, err
}

// prune has the target delete what it kept of commands whose outcomes are stored.
func (j plainJournal) prune(ctx context.Context) error {
	w, can := j.m.Target.(backend.Witness)
	if !can {
		return nil
	}
	var open []string
	err := j.m.opts.DB.View(ctx, func(tx store.Tx) error {
		open = nil
		start, end := store.Prefix("plain-run", j.m.place())
		for k, v := range tx.Scan(start, end) {
			var r plainRun
			if store.Decode(k, v, &r); r.Mark != "" {
				open = append(open, r.Mark)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.Prune(ctx, j.prefix(), open)
}

func (j plainJournal) load(ctx context.Context, thread, call string) (r plainRun, ok bool, err error) {
	err = j.m.opts.DB.View(ctx, func(tx store.Tx) error {
		r, ok = store.Load[plainRun](tx, j.key(thread, call))
		return nil
	})
	return r, ok, err
}

// settle is [session.Book.Settle] for what runs without a pane.
func (j plainJournal) settle(tx store.Tx, thread, call string, unknown bool) {
	key := j.key(thread, call)
	if r, ok := store.Load[plainRun](tx, key); ok && unknown && r.Mark != "" {
		r.Open = false
		store.Save(tx, key, r)
		return
	}
	tx.Delete(key)
}

// forget forgets a command about which nothing more will be known.
func (j plainJournal) forget(ctx context.Context, r plainRun) error {
	if r.Open {
		return nil // its outcome is stored first, and that settles it
	}
	return j.m.opts.DB.Update(ctx, func(tx store.Tx) error {
		tx.Delete(j.key(r.Thread, r.Call))
		return nil
	})
}

// plainAge is how long a target is asked about a command.
const plainAge = 24 * time.Hour

// testify asks the target what became of a plain command.
func (j plainJournal) testify(ctx context.Context, thread, call string) (session.Evidence, error) {
	e := session.Evidence{Thread: thread, Call: call, Final: true}
	r, ok, err := j.load(ctx, thread, call)
	w, can := j.m.Target.(backend.Witness)
	if err != nil || !ok || !can {
		return e, err
	}
	t, err := w.Testify(ctx, r.Mark)
	e.Final = false
	switch {
	case err != nil:
		return e, err
	case !t.Ended.IsZero():
		e.Text = sayEnded(j.m.Name, t.Ended, t.Code)
	case t.Running:
		e.Text = sayRuns(j.m.Name)
		return e, nil
	case t.Began.IsZero():
		e.Text = sayNotRun(j.m.Name)
	case time.Since(r.At) < plainAge:
		return e, nil
	default:
		e.Text = sayKilled(j.m.Name)
	}
	e.Final = true
	return e, j.forget(ctx, r)
}

func (j plainJournal) unknown(ctx context.Context) (list []session.Evidence, err error) {
	err = j.m.opts.DB.View(ctx, func(tx store.Tx) error {
		list = nil
		start, end := store.Prefix("plain-run", j.m.place())
		for k, v := range tx.Scan(start, end) {
			var r plainRun
			if store.Decode(k, v, &r); !r.Open {
				list = append(list, session.Evidence{Thread: r.Thread, Call: r.Call})
			}
		}
		return nil
	})
	return list, err
}

// witness is who can say what became of a call.
type witness interface {
	testify(ctx context.Context, thread, call string) (session.Evidence, error)
	unknown(ctx context.Context) ([]session.Evidence, error)
}

// paneWitness are the panes of a machine.
type paneWitness struct{ book *session.Book }

func (p paneWitness) testify(ctx context.Context, thread, call string) (session.Evidence, error) {
	return p.book.Testify(ctx, thread, call)
}
func (p paneWitness) unknown(ctx context.Context) ([]session.Evidence, error) {
	return p.book.Unknown(ctx)
}

// witnesses are those of a machine that is open.
func (m *Machine) witnesses(o *Opened) []witness {
	out := []witness{plainJournal{m}}
	if o.Book != nil {
		out = append(out, paneWitness{o.Book})
	}
	return out
}

// Evidence asks every machine that is open what became of a call. The others are asked
// when they are reached, see report.
func (s Set) Evidence(ctx context.Context, thread chat.ThreadID, call string) string {
	for _, m := range s.Sorted() {
		o := m.State()
		if o == nil {
			continue
		}
		for _, w := range m.witnesses(o) {
			e, err := w.testify(ctx, string(thread), call)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				m.opts.Log.WarnContext(ctx, "a target cannot say what became of a call", "target", m.Name, "error", err)
			}
			if e.Text != "" {
				return e.Text
			}
		}
	}
	return ""
}

// resumeWithin is how long a target that cannot be asked is tried again, and resumeEvery the
// pause between two attempts.
const (
	resumeWithin = 2 * time.Minute
	resumeEvery  = time.Second
)

// Resume takes up a call that an earlier process of the bot began, and waits for its end. a
// is the approved action. It starts nothing. The error is a [tools.Error] with NotStarted if
// the call was never begun; a result with Unknown means that nobody knows what became of it.
func (s Set) Resume(ctx context.Context, c tools.Call, a approvals.Action, sink tools.Sink) (tools.Result, error) {
	m := s[config.NameOf(a.Target)]
	switch name := config.NameOf(a.Target); {
	case m == nil && name == a.Target: // it was on no machine
		return lost("The bot was restarted while it ran."), nil
	case m == nil:
		return lost("The bot was restarted, and %s is not configured any more.", name), nil
	}
	c.Name, c.Args = a.Tool, a.Args
	until := time.Now().Add(resumeWithin)
	for first := true; ; first = false {
		res, err := m.resume(ctx, c, a, sink)
		var e *tools.Error
		switch {
		case err == nil:
			return res, nil
		case errors.As(err, &e):
			return tools.Result{}, err
		case ctx.Err() != nil:
			return tools.Result{}, ctx.Err()
		case time.Now().After(until):
			m.opts.Log.WarnContext(ctx, "a target cannot say what became of a call", "target", m.Name, "call", c.ID, "error", err)
			return lost("The bot was restarted, and %s could not be reached for %d minutes since.", m.Name, int(resumeWithin.Minutes())), nil
		case first:
			sink(tools.Event{Kind: tools.Info, Text: m.Name + " cannot be reached; trying again"})
		}
		select {
		case <-ctx.Done():
		case <-time.After(resumeEvery):
		}
	}
}

// resume asks the machine once.
func (m *Machine) resume(ctx context.Context, c tools.Call, a approvals.Action, sink tools.Sink) (tools.Result, error) {
	o, err := m.Connect(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	r, ok := o.Tools[c.Name].(tools.Resumer)
	switch {
	case m.Target.ID() != a.Target:
		return lost("The bot was restarted, and %s is another host or container now.", m.Name), nil
	case !ok:
		return lost("The bot was restarted while it ran."), nil
	}
	return r.Resume(ctx, c, sink)
}

// lost is the outcome of a call of which nothing tells what became of it; why is for people.
func lost(why string, args ...any) tools.Result {
	return tools.Result{Unknown: true, Failed: true, Why: fmt.Sprintf(why, args...)}
}

// Settle forgets what was noted of a call's run, in the transaction that stores the call's
// outcome. With an unknown outcome the note is kept, so that the thread is told once
// something is known.
func (s Set) Settle(tx store.Tx, thread chat.ThreadID, call string, a approvals.Action, unknown bool) {
	m := s[config.NameOf(a.Target)]
	if m == nil {
		return
	}
	plainJournal{m}.settle(tx, string(thread), call, unknown)
	session.Settle(tx, m.opts.Env.Instance, m.place(), string(thread), call, unknown)
}

// report tells threads what has come out about calls whose outcomes were unknown.
func (m *Machine) report(ctx context.Context, o *Opened, to Conversation) {
	for _, w := range m.witnesses(o) {
		list, err := w.unknown(ctx)
		if err != nil {
			m.opts.Log.WarnContext(ctx, "unknown outcomes cannot be listed", "target", m.Name, "error", err)
			continue
		}
		for _, u := range list {
			thread := chat.ThreadID(u.Thread)
			if to.Doing(thread) != "" || m.opts.Replicas.Elsewhere(ctx, u.Thread) {
				continue // it may be running right now
			}
			e, err := w.testify(ctx, u.Thread, u.Call)
			if err != nil || !e.Final || e.Text == "" {
				continue
			}
			text := sayOutcome(e.Text)
			if err := to.Note(ctx, thread, "evidence/"+u.Call, text); err != nil {
				m.opts.Log.ErrorContext(ctx, "what became of a command could not be told", "thread", u.Thread, "error", err)
			}
		}
	}
}
