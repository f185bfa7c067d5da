package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/store"
	"countersign/targets/tmux"
)

// Made is the outcome of creating a session or a pane.
type Made struct {
	Ref
	Reused bool // it was there already
	Notice string
	Attach string // the line with which people watch it
}

// CheckCreate says what CreateSession (with an empty pane) or CreatePane would
// make or reuse, or why it would refuse. It has no effect: where all threads together have as many as they may, it
// only looks whether one would give way.
func (b *Book) CheckCreate(ctx context.Context, thread, session, pane string) (Ref, error) {
	if paneID.MatchString(pane) {
		return Ref{}, &refusal{ErrName, fmt.Sprintf("%s is tmux's own id and cannot be a pane's name; choose a name", pane)}
	}
	ref, err := b.Find(ctx, thread, session, pane)
	if err == nil && ref.Known {
		return ref, nil
	}
	if err != nil && !errors.Is(err, ErrNoSession) && !errors.Is(err, ErrNoPane) {
		return Ref{}, err
	}
	if err != nil && pane != "" && errors.Is(err, ErrNoSession) {
		return Ref{}, err
	}
	made := err == nil || errors.Is(err, ErrNoSession)
	if ref.Session, err = b.names.session(thread, session); err != nil {
		return Ref{}, err
	}
	if ref.Pane, err = b.names.pane(pane); err != nil {
		return Ref{}, err
	}
	ref.Default = ref.Session == b.names.defaults(thread)
	ref.Dir = b.cfg.Dir
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		return b.room(tx, thread, !ref.Default && pane == "", ref.Pane != sharedPane)
	})
	if err == nil && made {
		err = b.Room(ctx)
	}
	return ref, err
}

// Room returns why no session could be made now: all threads together have as many as they may, and none would give
// way. It asks the target only if they have.
func (b *Book) Room(ctx context.Context) error {
	var full error
	if err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		full = b.instanceRoom(tx)
		return nil
	}); err != nil {
		return err
	}
	if full == nil || slices.ContainsFunc(b.giving(full), func(o *Book) bool { return len(o.spare(ctx)) > 0 }) {
		return nil
	}
	return full
}

// CreateSession makes a session for a thread, or finds the one that it already
// has under that name, with its shared pane ready.
func (b *Book) CreateSession(ctx context.Context, thread, session string) (Made, error) {
	name, err := b.names.session(thread, session)
	if err != nil {
		return Made{}, err
	}
	unlock, err := b.locks.lock(ctx, name)
	if err != nil {
		return Made{}, err
	}
	defer unlock()
	before, _, lookErr := b.lookup(ctx, thread, session, "")
	reused := lookErr == nil && before.Known
	ref := Ref{Session: name, Pane: sharedPane, Default: name == b.names.defaults(thread)}
	if _, err := b.reserve(ctx, thread, name, true, false); err != nil {
		return Made{}, err
	}
	p, notice, err := b.ensure(ctx, thread, ref, false)
	if err != nil {
		return Made{}, err
	}
	ref.Known, ref.Exists, ref.ID = true, true, p.ID()
	return Made{Ref: ref, Reused: reused, Notice: notice, Attach: b.cfg.Server.AttachCommand(name)}, nil
}

// CreatePane makes a pane in a session of the thread, or finds the one that is
// already there under that name.
func (b *Book) CreatePane(ctx context.Context, thread, session, pane string) (Made, error) {
	if paneID.MatchString(pane) {
		return Made{}, &refusal{ErrName, fmt.Sprintf("%s is tmux's own id and cannot be a pane's name; choose a name", pane)}
	}
	name, err := b.names.session(thread, session)
	if err != nil {
		return Made{}, err
	}
	pane, err = b.names.pane(pane)
	if err != nil {
		return Made{}, err
	}
	unlock, err := b.locks.lock(ctx, name)
	if err != nil {
		return Made{}, err
	}
	defer unlock()
	ref := Ref{Session: name, Pane: pane, Default: name == b.names.defaults(thread)}
	// The session itself must be there before a pane can be.
	shared := ref
	shared.Pane = sharedPane
	p, notice, err := b.ensure(ctx, thread, shared, false)
	if err != nil {
		return Made{}, err
	}
	reused := pane == sharedPane
	if !reused {
		err = b.cfg.DB.Update(ctx, func(tx store.Tx) error {
			r, ok, err := b.owned(tx, thread, name)
			if err != nil {
				return err
			}
			if !ok {
				return &refusal{ErrNoSession, fmt.Sprintf("the session %s was ended meanwhile", name)}
			}
			if _, reused = r.Panes[pane]; reused {
				return nil
			}
			if err := b.room(tx, thread, false, true); err != nil {
				return err
			}
			if r.Panes == nil {
				r.Panes = map[string]paneRow{}
			}
			r.Panes[pane] = paneRow{Fresh: true}
			store.Save(tx, b.key(name), r)
			return nil
		})
		if err != nil {
			return Made{}, err
		}
		var n string
		if p, n, err = b.ensure(ctx, thread, ref, false); err != nil {
			if !reused {
				b.dropPane(ctx, name, pane)
			}
			return Made{}, err
		}
		notice = strings.TrimSpace(notice + " " + n)
	}
	ref.Known, ref.Exists, ref.ID = true, true, p.ID()
	return Made{Ref: ref, Reused: reused, Notice: notice, Attach: b.cfg.Server.AttachCommand(name)}, nil
}

// dropPane gives back the place of a pane.
func (b *Book) dropPane(ctx context.Context, session, pane string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if r, ok := store.Load[row](tx, b.key(session)); ok {
			delete(r.Panes, pane)
			store.Save(tx, b.key(session), r)
		}
		return nil
	})
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "cannot give back the place of a pane that was not made", "session", session, "pane", pane, "error", err)
	}
	b.forget(session, pane)
}

// CheckKill says what KillSession (with an empty pane) or KillPane would end,
// or why it would refuse. It has no effect.
func (b *Book) CheckKill(ctx context.Context, thread, session, pane string) (Ref, error) {
	ref, _, err := b.killable(ctx, thread, session, pane)
	return ref, err
}

func (b *Book) killable(ctx context.Context, thread, session, pane string) (Ref, row, error) {
	ref, r, err := b.lookup(ctx, thread, session, pane)
	if err != nil {
		if errors.Is(err, ErrNoSession) {
			err = b.unmanaged(ctx, session, err)
		}
		return Ref{}, row{}, err
	}
	switch {
	case pane == "" && ref.Default:
		return Ref{}, row{}, &refusal{ErrProtected,
			fmt.Sprintf("the default session %s of this thread is protected and cannot be killed; to end what runs in it use send-keys with C-c", ref.Session)}
	case pane != "" && ref.Pane == sharedPane:
		return Ref{}, row{}, &refusal{ErrProtected,
			fmt.Sprintf("the shared pane of the session %s is protected and cannot be killed; to end what runs in it use send-keys with C-c", ref.Session)}
	}
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return Ref{}, row{}, err
	}
	ref.fill(all, r)
	return ref, r, nil
}

// unmanaged turns "no such session" into "not managed" where tmux has one of
// that name.
func (b *Book) unmanaged(ctx context.Context, name string, err error) error {
	all, lerr := b.cfg.Server.Sessions(ctx)
	if lerr != nil {
		return err
	}
	full := b.names.prefix + slug(name)
	for _, s := range all {
		if s.Name == name || s.Name == full {
			return &refusal{ErrUnmanaged, fmt.Sprintf("the session %s is not managed by this bot, so it is left alone; only sessions made with "+
				"tmux-create-session in this thread can be killed", s.Name)}
		}
	}
	return err
}

// KillSession ends a session that the thread made by name, with all that runs
// in it.
func (b *Book) KillSession(ctx context.Context, thread, session string) (Ref, error) {
	name, err := b.names.session(thread, session)
	if err != nil {
		return Ref{}, err
	}
	unlock, err := b.locks.lock(ctx, name)
	if err != nil {
		return Ref{}, err
	}
	defer unlock()
	ref, r, err := b.killable(ctx, thread, session, "")
	if err != nil {
		return Ref{}, err
	}
	// Decided before it is done: after a crash between the two Reconcile ends it.
	owner := func(tx store.Tx, _ row) error {
		_, err := b.standing(tx, thread, r.Name, false)
		return err
	}
	if err := b.changeIf(ctx, &r, owner, func(n *row) { n.Closing = true }); err != nil {
		return Ref{}, err
	}
	return ref, b.finish(ctx, r)
}

// finish ends a closing session and deletes its row. Several processes may do so at once:
// a session that has the name since is not that session.
func (b *Book) finish(ctx context.Context, r row) error {
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return err
	}
	if live := liveSession(all, r); live != nil {
		if err := b.cfg.Server.KillSession(ctx, live.Name, map[string]string{tagSession: r.ID}); err != nil && !errors.Is(err, tmux.ErrGone) {
			return err
		}
	}
	b.forgetAll(r.Name)
	return b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if now, ok := store.Load[row](tx, b.key(r.Name)); ok && now.ID == r.ID {
			tx.Delete(b.key(r.Name))
		}
		return nil
	})
}

// KillPane ends a pane that the thread made by name, with what runs in it.
func (b *Book) KillPane(ctx context.Context, thread, session, pane string) (Ref, error) {
	ref, _, err := b.lookup(ctx, thread, session, pane)
	if err != nil {
		return Ref{}, err
	}
	unlock, err := b.locks.lock(ctx, ref.Session)
	if err != nil {
		return Ref{}, err
	}
	defer unlock()
	ref, r, err := b.killable(ctx, thread, ref.Session, ref.Pane)
	if err != nil {
		return Ref{}, err
	}
	if ref.Exists {
		p := b.opened(ref)
		if p == nil {
			if p, err = b.cfg.Server.Adopt(ctx, r.Name, ref.ID); err != nil {
				return Ref{}, err
			}
			p = b.wrap(thread, paneKey{r.Name, ref.Pane}, p)
		}
		if err := p.Kill(ctx); err != nil && !errors.Is(err, tmux.ErrGone) {
			return Ref{}, err
		}
	}
	b.forget(ref.Session, ref.Pane)
	return ref, b.change(ctx, &r, func(n *row) { delete(n.Panes, ref.Pane) })
}

// Session is one session of a thread, as it is now.
type Session struct {
	Name     string
	Thread   string // whose it is
	Default  bool
	Lost     bool // tmux does not have it any more
	Created  time.Time
	Attached int    // people who watch
	Attach   string // the line with which people watch it
	Taken    string // who has its keyboard; "" is the bot
	Panes    []Ref
}

// List returns the sessions of a thread, or with "" of all, the default ones
// first.
func (b *Book) List(ctx context.Context, thread string) ([]Session, error) {
	var rows []row
	err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		rows = b.rows(tx, thread)
		return nil
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Session, 0, len(rows))
	for _, r := range rows {
		if r.Closing {
			continue
		}
		s := Session{Name: r.Name, Thread: r.Thread, Default: r.Default, Created: r.Created, Attach: b.cfg.Server.AttachCommand(r.Name)}
		if r.Pen != nil {
			s.Taken = r.Pen.Name
		}
		if live := liveSession(all, r); live != nil {
			s.Attached = live.Attached
		} else {
			s.Lost = true
		}
		for _, name := range slices.Sorted(maps.Keys(r.Panes)) {
			ref := Ref{Session: r.Name, Pane: name, Default: r.Default, Known: true, Dir: b.cfg.Dir}
			ref.fill(all, r)
			s.Panes = append(s.Panes, ref)
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(x, y Session) int {
		switch {
		case x.Default == y.Default:
			return strings.Compare(x.Name, y.Name)
		case x.Default:
			return -1
		}
		return 1
	})
	return out, nil
}

// Panes returns the panes of all sessions of a thread.
func (b *Book) Panes(ctx context.Context, thread string) ([]Ref, error) {
	all, err := b.List(ctx, thread)
	var out []Ref
	for _, s := range all {
		out = append(out, s.Panes...)
	}
	return out, err
}

// Describe tells people, in Markdown, which terminals a thread has and how to
// watch them, and whether it has any.
func (b *Book) Describe(ctx context.Context, thread string) (text string, has bool) {
	all, err := b.List(ctx, thread)
	if err != nil {
		return "I cannot list the terminals now: " + err.Error() + "\n", true
	}
	if len(all) == 0 {
		return "This thread has no terminal yet; the first command opens one.\n", false
	}
	var out strings.Builder
	for _, s := range all {
		kind := ""
		if s.Default {
			kind = " (default)"
		}
		if s.Lost {
			fmt.Fprintf(&out, "**%s**%s: it is gone; the next command opens it again.\n", s.Name, kind)
			continue
		}
		fmt.Fprintf(&out, "**%s**%s, watched by %d: `%s`\n", s.Name, kind, s.Attached, s.Attach)
		if s.Taken != "" {
			fmt.Fprintf(&out, "- %s has the keyboard\n", s.Taken)
		}
		for _, p := range s.Panes {
			switch {
			case !p.Exists:
				fmt.Fprintf(&out, "- %s: gone\n", p.Pane)
			case p.Dead:
				fmt.Fprintf(&out, "- %s (%s): its shell has ended\n", p.Pane, p.ID)
			default:
				fmt.Fprintf(&out, "- %s (%s): %s in `%s`\n", p.Pane, p.ID, p.Program, p.Dir)
			}
		}
	}
	return out.String(), true
}

// Report is what Reconcile found. Names only.
type Report struct {
	Adopted []string // known, and still there
	Lost    []string // known, and gone; made again on demand
	Closed  []string // were to be ended when the bot stopped, and now are
	Orphans []Orphan // ours by their tags, and unknown to the store
	Killed  []string // orphans that Sweep ended
	Idle    []Ended  // sessions that nobody used for long, and that Sweep ended
}

// Ended is a session that was ended, and whose it was.
type Ended struct{ Name, Thread string }

// Orphan is a session of this instance that the store does not know.
type Orphan struct {
	Name, ID, Thread string
	Since            time.Time // first seen
}

// Reconcile compares the store with tmux. It ends nothing but sessions that
// were already being ended; it never touches sessions without tags or of
// another instance.
func (b *Book) Reconcile(ctx context.Context) (Report, error) {
	var rep Report
	var rows []row
	err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		rows = b.rows(tx, "")
		return nil
	})
	if err != nil {
		return rep, err
	}
	slices.SortFunc(rows, func(x, y row) int { return b.lastUse(y).Compare(b.lastUse(x)) })
	for _, r := range rows {
		if err := b.reconcileOne(ctx, r, &rep); err != nil {
			return rep, err
		}
	}
	return rep, b.orphans(ctx, &rep)
}

// reconcileOne opens the terminals of the session that was used last, as through one the server tells when people
// attach to any, and those in which something runs or that somebody looks at. The others are opened when they are
// needed: each that is open costs the target something.
func (b *Book) reconcileOne(ctx context.Context, r row, rep *Report) error {
	unlock, err := b.locks.lock(ctx, r.Name)
	if err != nil {
		return err
	}
	defer unlock()
	ok := false
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		id := r.ID
		r, ok = store.Load[row](tx, b.key(r.Name))
		ok = ok && r.ID == id
		return nil
	})
	if err != nil || !ok {
		return err // ended or made anew meanwhile: there is nothing to reconcile
	}
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return err
	}
	live := liveSession(all, r)
	switch {
	case r.Closing:
		rep.Closed = append(rep.Closed, r.Name)
		return b.finish(ctx, r)
	case live == nil && !r.Ready:
		b.release(ctx, r) // the bot stopped before it was made, or another process makes it
		return nil
	case live == nil:
		b.forgetAll(r.Name)
		rep.Lost = append(rep.Lost, r.Name)
		return nil
	}
	open := len(rep.Adopted) == 0 || live.Attached > 0 || busy(*live)
	rep.Adopted = append(rep.Adopted, r.Name)
	if r.Pen != nil && !r.Pen.Giving { // a restart changes nothing about who has the keyboard
		if err := b.hand(ctx, &r, true); err != nil && !errors.Is(err, errTurn) {
			return err
		}
	}
	err = b.change(ctx, &r, func(n *row) {
		n.Ready = true
		for i := range live.Panes {
			name := live.Panes[i].Tags[tagPane]
			if _, known := n.Panes[name]; known || name == sharedPane {
				n.Panes[name] = n.Panes[name].found(livePane(*live, name, n.Panes[name].ID).ID)
			}
		}
	})
	if err != nil {
		return err
	}
	if !open {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.Panes)) {
		p := livePane(*live, name, r.Panes[name].ID)
		if p == nil {
			continue
		}
		if o := b.opened(Ref{Session: r.Name, Pane: name}); o != nil {
			_, _ = o.Info(ctx) // connects again if the connection was lost
			continue
		}
		// A pane that cannot be driven now is tried again when it is needed.
		if _, err := b.adopt(ctx, &r, name, p.ID); err != nil {
			b.cfg.Log.WarnContext(ctx, "cannot adopt a pane", "session", r.Name, "pane", name, "error", err)
		}
	}
	return nil
}

// orphans notes sessions of ours that the store does not know.
func (b *Book) orphans(ctx context.Context, rep *Report) error {
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return err
	}
	return b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		known := map[string]bool{}
		for _, r := range b.rows(tx, "") {
			known[r.ID] = true
		}
		rep.Orphans = nil
		seen := map[string]bool{}
		for _, s := range all {
			id := s.Tags[tagSession]
			if id == "" || known[id] || s.Tags[tagInstance] != b.cfg.Instance || s.Tags[tagTarget] != b.cfg.Target {
				continue
			}
			key := b.orphanKey(id)
			since, ok := store.Load[time.Time](tx, key)
			if !ok {
				since = b.cfg.Now().UTC()
				store.Save(tx, key, since)
			}
			seen[string(key)] = true
			rep.Orphans = append(rep.Orphans, Orphan{Name: s.Name, ID: id, Thread: s.Tags[tagThread], Since: since})
		}
		start, end := store.Prefix("session-orphan", b.cfg.Instance, b.cfg.Target)
		for k := range tx.Scan(start, end) {
			if !seen[string(k)] {
				tx.Delete(k)
			}
		}
		return nil
	})
}

// Sweep reconciles, ends orphans that were first seen longer than [OrphanGrace]
// ago, and sessions that stood idle for longer than the limit.
func (b *Book) Sweep(ctx context.Context) (Report, error) {
	rep, err := b.Reconcile(ctx)
	if err != nil {
		return rep, err
	}
	if err := b.endIdle(ctx, &rep); err != nil {
		return rep, err
	}
	keep := rep.Orphans[:0]
	for _, o := range rep.Orphans {
		if b.cfg.Now().Sub(o.Since) < OrphanGrace {
			keep = append(keep, o)
			continue
		}
		known, err := b.known(ctx, o.ID)
		if err != nil {
			return rep, err
		}
		if known {
			continue // another process has just made it its own
		}
		if err := b.cfg.Server.KillSession(ctx, o.Name, map[string]string{tagSession: o.ID}); err != nil && !errors.Is(err, tmux.ErrGone) {
			return rep, err
		}
		rep.Killed = append(rep.Killed, o.Name)
		b.cfg.Log.WarnContext(ctx, "ended a session that the store does not know", "session", o.Name, "thread", o.Thread, "since", o.Since)
	}
	rep.Orphans = keep
	return rep, nil
}

// known tells whether the store has a session of that id.
func (b *Book) known(ctx context.Context, id string) (known bool, err error) {
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		known = slices.ContainsFunc(b.rows(tx, ""), func(r row) bool { return r.ID == id })
		return nil
	})
	return known, err
}

// endIdle ends sessions that nobody used for long. The next command makes a new one.
func (b *Book) endIdle(ctx context.Context, rep *Report) error {
	if b.cfg.Limits.Idle < 0 {
		return nil
	}
	var old []row
	err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		old = nil
		for _, r := range b.rows(tx, "") {
			if r.Pen == nil && !r.Closing && r.Ready && b.cfg.Now().Sub(latest(r.Used, r.Created)) > b.cfg.Limits.Idle {
				old = append(old, r)
			}
		}
		return nil
	})
	if err != nil || len(old) == 0 {
		return err
	}
	for _, r := range old {
		ended, err := b.endIfIdle(ctx, r)
		if err != nil {
			return err
		}
		if ended {
			rep.Idle = append(rep.Idle, Ended{r.Name, r.Thread})
		}
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// justUsed is how long a session is left alone after its last use: somebody may be about to type there.
const justUsed = time.Minute

// spare lists the sessions that give way at a limit: those that are gone, and then the others, the one that nobody
// has used for longest first. What runs, is watched or was just used isn't among them.
func (b *Book) spare(ctx context.Context) []row {
	var rows []row
	if err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		rows = b.rows(tx, "")
		return nil
	}); err != nil {
		return nil
	}
	all, err := b.cfg.Server.Sessions(ctx) // after the rows: a session that is made meanwhile isn't lost
	if err != nil {
		return nil
	}
	var lost, old []row
	for _, r := range rows {
		live := liveSession(all, r)
		switch {
		case r.Pen != nil || r.Closing || !r.Ready:
		case live == nil:
			lost = append(lost, r)
		case live.Attached == 0 && !busy(*live) && b.cfg.Now().Sub(b.lastUse(r)) > justUsed:
			old = append(old, r)
		}
	}
	slices.SortFunc(old, func(x, y row) int { return b.lastUse(x).Compare(b.lastUse(y)) })
	return append(lost, old...)
}

// busy reports whether something else than a shell is in front in a session.
func busy(s tmux.SessionInfo) bool {
	return slices.ContainsFunc(s.Panes, func(p tmux.PaneInfo) bool {
		return !p.Dead && !slices.Contains([]string{"bash", "sh", "dash", "ash", "busybox"}, p.Program)
	})
}

// giving are the books whose sessions give way at a limit.
func (b *Book) giving(limit error) []*Book {
	if errors.Is(limit, errAllTargets) {
		return append([]*Book{b}, b.cfg.Others()...)
	}
	return []*Book{b}
}

// makeRoom gives back one place at a limit, and reports whether it did.
func (b *Book) makeRoom(ctx context.Context, limit error) bool {
	for _, o := range b.giving(limit) {
		for _, r := range o.spare(ctx) {
			limited, cancel := context.WithTimeout(ctx, roomWithin)
			ended, err := o.endIfIdle(limited, r)
			cancel()
			if ended && err == nil {
				return true
			}
		}
	}
	return false
}

// lastUse is when a session was used last, as far as is known.
func (b *Book) lastUse(r row) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return latest(b.used[r.Name], latest(r.Used, r.Created))
}

// roomWithin bounds the wait for one session, which somebody may be working in.
const roomWithin = 2 * time.Second

// endIfIdle ends a session if every pane of it is at its prompt and nobody watches, or it is gone.
func (b *Book) endIfIdle(ctx context.Context, r row) (bool, error) {
	unlock, err := b.locks.lock(ctx, r.Name)
	if err != nil {
		return false, err
	}
	defer unlock()
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return false, err
	}
	live := liveSession(all, r)
	if live != nil && live.Attached > 0 {
		return false, nil
	}
	for name := range r.Panes {
		if live == nil {
			break // nothing runs in what isn't there
		}
		p := b.opened(Ref{Session: r.Name, Pane: name})
		if p == nil {
			found := livePane(*live, name, r.Panes[name].ID)
			if found == nil {
				continue
			}
			if p, err = b.adopt(ctx, &r, name, found.ID); err != nil {
				return false, nil // one that cannot be asked is left alone
			}
		}
		if info, err := p.Info(ctx); err != nil || info.State != tmux.StateIdle && info.State != tmux.StateDead {
			return false, nil // one that cannot be asked is left alone
		}
	}
	err = b.change(ctx, &r, func(n *row) { n.Closing = n.Pen == nil && n.Used.Equal(r.Used) })
	if err != nil || !r.Closing {
		return false, err
	}
	return true, b.finish(ctx, r)
}
