package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"countersign/store"
	"countersign/targets/tmux"
)

// ErrTaken means that a person has the keyboard of a session.
var ErrTaken = errors.New("session: a person has the keyboard")

// pen says who has the keyboard of a session; the bot has it while there is none.
type pen struct {
	Holder string    `json:"holder"` // a user's id
	Name   string    `json:"name"`   // for people
	Since  time.Time `json:"since"`
	// Giving means that they are giving it back: tmux may have it back already.
	Giving bool `json:"giving,omitempty"`
	// Pressed is when they last typed through the bot, within pressedStep; zero is never.
	Pressed time.Time `json:"pressed,omitzero"`
}

// pressedStep is how exactly it is kept when somebody typed.
const pressedStep = time.Minute

// Person is somebody at the keyboard.
type Person struct {
	ID, Name string
	// Moderator may take the keyboard from others, and give it back for them.
	Moderator bool
}

// Taken is the outcome of Take.
type Taken struct {
	Session string
	Attach  string // the line with which people attach, with the keyboard
	Again   bool   // they had it already
	From    string // whom it was taken from, by name; "" is the bot
}

// Take gives the keyboard of a session to a person. The session is made if the
// thread has none yet. While they have it, nothing is typed there by the bot.
func (b *Book) Take(ctx context.Context, thread, session string, who Person) (Taken, error) {
	if _, _, err := b.ensureNamed(ctx, thread, session, "", true); err != nil && !errors.Is(err, ErrTaken) {
		return Taken{}, err
	}
	ref, _, err := b.lookup(ctx, thread, session, "")
	if err != nil {
		return Taken{}, err
	}
	t := Taken{Session: ref.Session, Attach: b.cfg.Server.WriteCommand(ref.Session)}
	var r row
	err = b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		t.Again, t.From = false, ""
		var ok bool
		r, ok, err = b.owned(tx, thread, ref.Session)
		switch {
		case err != nil:
			return err
		case !ok:
			return &refusal{ErrNoSession, fmt.Sprintf("the session %s was ended meanwhile", ref.Session)}
		case r.Pen != nil && r.Pen.Holder == who.ID && !r.Pen.Giving:
			t.Again = true
			return nil
		case r.Pen != nil && r.Pen.Holder == who.ID:
			t.Again = true
		case r.Pen != nil && !who.Moderator:
			return r.taken("ask them to say `give`, or ask a moderator of this target")
		case r.Pen != nil:
			t.From = r.Pen.Name
		}
		r.Pen = &pen{Holder: who.ID, Name: who.Name, Since: b.cfg.Now().UTC()}
		r.Turn++
		store.Save(tx, b.key(r.Name), r)
		return nil
	})
	if err != nil {
		return Taken{}, err
	}
	if !t.Again && t.From == "" {
		b.forgetPast(ctx, thread, ref.Session)
	}
	return t, b.hand(ctx, &r, true)
}

// errTurn means that the keyboard changed hands again before tmux was told of this turn.
var errTurn = &refusal{ErrTaken, "the keyboard of the session changed hands at the same moment; say `sessions` to see who has it"}

// hand tells tmux who has the keyboard since a row's turn.
func (b *Book) hand(ctx context.Context, r *row, people bool) error {
	for range attempts {
		err := b.cfg.Server.Hand(ctx, r.Name, people, r.Turn)
		var late *tmux.TurnError
		if !errors.As(err, &late) {
			return err
		}
		// A later turn has begun, or the store is older than the terminal.
		turn, later := r.Turn, false
		err = b.change(ctx, r, func(n *row) {
			if later = n.Turn != turn; !later {
				n.Turn = max(n.Turn, late.Turn) + 1
			}
		})
		if err != nil {
			return err
		}
		if later {
			return errTurn
		}
	}
	return errTurn
}

// forgetPast makes each pane's shell begin to remember what is typed from now on.
func (b *Book) forgetPast(ctx context.Context, thread, session string) {
	for _, p := range b.ours(ctx, thread, session) {
		if _, _, err := p.Past(ctx); err != nil {
			b.cfg.Log.WarnContext(ctx, "what people type cannot be told from what was typed before", "pane", p.ID(), "error", err)
		}
	}
}

// ours are the panes of a session that this process drives or can.
func (b *Book) ours(ctx context.Context, thread, session string) []Pane {
	refs, err := b.Panes(ctx, thread)
	if err != nil {
		return nil
	}
	var out []Pane
	for _, ref := range refs {
		if ref.Session != session || !ref.Exists {
			continue
		}
		if p, err := b.Open(ctx, thread, ref.Session, ref.Pane); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Pass hands the keyboard of a session from one person to another. The holder may, and a
// moderator.
func (b *Book) Pass(ctx context.Context, thread, session string, who, to Person) (Taken, error) {
	ref, r, err := b.lookup(ctx, thread, session, "")
	if err != nil {
		return Taken{}, err
	}
	t := Taken{Session: ref.Session, Attach: b.cfg.Server.WriteCommand(ref.Session)}
	may := b.mayHand(ref.Session, who)
	if err := may(nil, r); err != nil {
		return Taken{}, err
	}
	err = b.changeIf(ctx, &r, may, func(n *row) {
		t.From, t.Again = n.Pen.Name, n.Pen.Holder == to.ID
		n.Pen = &pen{Holder: to.ID, Name: to.Name, Since: b.cfg.Now().UTC()}
		n.Turn++
	})
	if err != nil {
		return Taken{}, err
	}
	return t, b.hand(ctx, &r, true)
}

// mayHand returns why somebody can't hand the keyboard of a session on or back.
func (b *Book) mayHand(session string, who Person) func(store.Tx, row) error {
	return func(_ store.Tx, r row) error {
		switch {
		case r.Pen == nil:
			return &refusal{ErrUnmanaged, fmt.Sprintf("nobody has taken the keyboard of the session %s; say `take` to get it", session)}
		case r.Pen.Holder != who.ID && !who.Moderator:
			return r.taken("only they or a moderator of this target can give it back")
		}
		return nil
	}
}

// Given is the outcome of Give.
type Given struct {
	Session string
	Holder  string // who had it, by name
	Since   time.Time
	// Summary says what was typed meanwhile, for people and the model.
	Summary string
}

// Give returns the keyboard of a session to the bot. The holder may, and a
// moderator.
func (b *Book) Give(ctx context.Context, thread, session string, who Person) (Given, error) {
	ref, r, err := b.lookup(ctx, thread, session, "")
	if err != nil {
		return Given{}, err
	}
	may := b.mayHand(ref.Session, who)
	if err := may(nil, r); err != nil { // a row that is not there yet has no pen either
		return Given{}, err
	}
	// The turn is stored before tmux is told: a take at the same time is another turn.
	err = b.changeIf(ctx, &r, may, func(n *row) {
		n.Pen.Giving = true
		n.Turn++
	})
	if err != nil {
		return Given{}, err
	}
	g := Given{Session: ref.Session, Holder: r.Pen.Name, Since: r.Pen.Since}
	switch err := b.hand(ctx, &r, false); {
	case errors.Is(err, errTurn):
		return Given{}, err
	case err != nil && !errors.Is(err, tmux.ErrGone):
		return Given{}, fmt.Errorf("the keyboard cannot be taken back at this moment: %w", err)
	}
	g.Summary = b.typed(ctx, thread, ref.Session)
	for _, p := range b.ours(ctx, thread, ref.Session) {
		if err := p.Unsize(ctx); err != nil {
			b.cfg.Log.WarnContext(ctx, "a terminal keeps the size of its reader", "pane", p.ID(), "error", err)
		}
	}
	turn := r.Turn
	return g, b.change(ctx, &r, func(n *row) {
		if n.Turn == turn { // else somebody took it again, and has it
			n.Pen = nil
		}
	})
}

// typed says what people typed into the panes of a session.
func (b *Book) typed(ctx context.Context, thread, session string) string {
	var out strings.Builder
	all := b.ours(ctx, thread, session)
	for _, p := range all {
		list, complete, err := p.Past(ctx)
		if len(all) > 1 && (len(list) > 0 || !complete) {
			fmt.Fprintf(&out, "in pane %s:\n", p.ID())
		}
		for _, d := range list {
			fmt.Fprintf(&out, "- `%s`", strings.ReplaceAll(d.Text, "`", "'"))
			if d.Known {
				fmt.Fprintf(&out, " (exit code %d)", d.Code)
			}
			out.WriteString("\n")
		}
		switch {
		case err != nil:
			out.WriteString("(the shell did not say what was typed)\n")
		case !complete:
			info, err := p.Info(ctx)
			if err == nil && info.State != tmux.StateIdle {
				fmt.Fprintf(&out, "(it still runs %s, so what was typed before is not known)\n", info.Program)
			} else {
				out.WriteString("(the shell does not say everything that was typed)\n")
			}
		}
	}
	if out.Len() == 0 {
		return "nothing was typed"
	}
	return strings.TrimRight(out.String(), "\n")
}

// Holder says who has the keyboard of any of a thread's sessions, on this target or another, by name;
// "" is the bot.
func (b *Book) Holder(ctx context.Context, thread string) (name string, since time.Time, err error) {
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		start, end := store.Prefix("session", b.cfg.Instance)
		for k, v := range tx.Scan(start, end) {
			var r row
			if store.Decode(k, v, &r); r.Thread == thread && r.Pen != nil && !r.Closing {
				name, since = r.Pen.Name, r.Pen.Since
			}
		}
		return nil
	})
	return name, since, err
}

// taken is the refusal to type where somebody else has the keyboard.
func (r row) taken(todo string) error {
	return &refusal{ErrTaken, fmt.Sprintf("%s has the keyboard of the session %s since %s UTC; %s", r.Pen.Name, r.Name, r.Pen.Since.UTC().Format("15:04"), todo)}
}

// Writable returns why the bot may not type into a session now: a person has its
// keyboard.
func (b *Book) Writable(ctx context.Context, thread, session string) error {
	_, r, err := b.lookup(ctx, thread, session, "")
	if err != nil || r.Pen == nil {
		return err
	}
	return r.taken("wait until they say `give`")
}
