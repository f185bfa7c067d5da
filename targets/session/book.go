package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/targets/tmux"
)

// The tags of sessions and panes; tmux shows them with an "@" in front.
const (
	tagInstance = "cs_instance"
	tagTarget   = "cs_target" // two targets may be one host and account
	tagSession  = "cs_session"
	tagThread   = "cs_thread"
	tagPane     = "cs_pane"
)

// Ref says which pane is meant and what is there now.
type Ref struct {
	Session, Pane string // names; complete ones, whatever was written
	Default       bool   // the thread's default session
	// Known means that the store has it, Exists that tmux has it too. What is
	// known and does not exist was lost.
	Known, Exists bool
	ID            string // tmux's id ("%3"), "" when it does not exist
	Dead          bool   // its shell has ended
	Program       string // what runs in the foreground
	Fresh         bool   // nobody has typed anything in it yet, so its shell is in tmux.InitialState
	Unused        bool   // no command of the bot was typed there
	Busy          bool   // with a command of ours
	Dir           string // its directory, or that in which it would start
	// Taken says who has its keyboard; "" is the bot, which may type.
	Taken string
}

// Find looks up the pane that a thread means, without any effect. The default
// session and every session's pane "shared" are found even before they exist.
// pane may also be a tmux id like "%3" of one of the thread's panes.
func (b *Book) Find(ctx context.Context, thread, session, pane string) (Ref, error) {
	ref, r, err := b.lookup(ctx, thread, session, pane)
	if err != nil {
		return Ref{}, err
	}
	if r.Pen != nil {
		ref.Taken = r.Pen.Name
	}
	if p := b.current(ref, r); p != nil && ref.Known {
		if info, err := p.Info(ctx); err == nil {
			ref.describe(p, info, r)
			return ref, nil
		}
	}
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return Ref{}, err
	}
	if ref.fill(all, r); ref.Exists && !ref.Dead && r.Panes[ref.Pane].Fresh {
		// It may be about to be made, and only its shell knows whether anything was typed there.
		if p, err := b.Open(ctx, thread, ref.Session, ref.Pane); err == nil {
			if d, ok := p.(*driven); ok {
				_ = d.drive(ctx, false) // else nobody may ask, and it does not count as fresh
			}
			if info, err := p.Info(ctx); err == nil {
				ref.describe(p, info, r)
			}
		}
	}
	return ref, nil
}

// Prompt returns the directory of the pane that a thread means without asking the target. ok is
// false unless its shell shows its prompt and has said where it is.
func (b *Book) Prompt(ctx context.Context, thread, session, pane string) (dir string, ok bool) {
	ref, r, err := b.lookup(ctx, thread, session, pane)
	if err != nil || !ref.Known {
		return "", false
	}
	p := b.current(ref, r)
	if p == nil {
		return "", false
	}
	return p.Prompt()
}

// Shell asks the shell of an existing pane for its state; with known, the last answer is enough.
func (b *Book) Shell(ctx context.Context, thread string, ref Ref, known bool) (tmux.Shell, error) {
	p, err := b.Open(ctx, thread, ref.Session, ref.Pane)
	if err != nil {
		return tmux.Shell{}, err
	}
	return p.Shell(ctx, known)
}

// describe adds what a pane itself says.
func (ref *Ref) describe(p Pane, info tmux.Info, r row) {
	ref.Exists, ref.ID, ref.Dead, ref.Program = true, p.ID(), info.State == tmux.StateDead, info.Program
	ref.Busy, ref.Unused = info.State == tmux.StateRunning, r.Panes[ref.Pane].Fresh
	ref.Fresh = info.Fresh && ref.Unused
	if info.Dir != "" {
		ref.Dir = info.Dir
	}
}

// fill adds what tmux knows.
func (ref *Ref) fill(all []tmux.SessionInfo, r row) {
	live := liveSession(all, r)
	if live == nil {
		return
	}
	if p := livePane(*live, ref.Pane, r.Panes[ref.Pane].ID); p != nil {
		ref.Exists, ref.ID, ref.Dead, ref.Program = true, p.ID, p.Dead, p.Program
		if p.Dir != "" {
			ref.Dir = p.Dir
		}
	}
}

// liveSession finds a row's session in tmux: by its tag, never by its name.
func liveSession(all []tmux.SessionInfo, r row) *tmux.SessionInfo {
	if r.ID == "" {
		return nil
	}
	for i := range all {
		if all[i].Tags[tagSession] == r.ID {
			return &all[i]
		}
	}
	return nil
}

// livePane finds a pane by its tag. After a crash two may carry the same one:
// the stored id decides, then life.
func livePane(s tmux.SessionInfo, name, id string) *tmux.PaneInfo {
	var best *tmux.PaneInfo
	for i := range s.Panes {
		p := &s.Panes[i]
		if p.Tags[tagPane] != name {
			continue
		}
		if p.ID == id && !p.Dead {
			return p
		}
		if best == nil || best.Dead && !p.Dead || p.ID == id && best.Dead {
			best = p
		}
	}
	return best
}

// lookup resolves names against the store.
func (b *Book) lookup(ctx context.Context, thread, session, pane string) (Ref, row, error) {
	ref, r := Ref{Dir: b.cfg.Dir}, row{}
	err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		var err error
		ref, r, err = b.resolve(tx, thread, session, pane)
		return err
	})
	return ref, r, err
}

func (b *Book) resolve(tx store.Tx, thread, session, pane string) (Ref, row, error) {
	ref := Ref{Dir: b.cfg.Dir}
	if paneID.MatchString(pane) {
		r, name, err := b.byID(tx, thread, session, pane)
		if err != nil {
			return ref, row{}, err
		}
		ref.Session, ref.Pane, ref.Default, ref.Known = r.Name, name, r.Default, true
		return ref, r, nil
	}
	var err error
	if ref.Session, err = b.names.session(thread, session); err != nil {
		return ref, row{}, err
	}
	if ref.Pane, err = b.names.pane(pane); err != nil {
		return ref, row{}, err
	}
	ref.Default = ref.Session == b.names.defaults(thread)
	r, ok, err := b.owned(tx, thread, ref.Session)
	switch {
	case err != nil:
		return ref, row{}, err
	case ok && r.Closing:
		ok, r = false, row{}
	}
	if !ok && !ref.Default {
		return ref, row{}, &refusal{ErrNoSession, fmt.Sprintf("there is no session %s in this thread; create it with tmux-create-session, or "+
			"leave out \"session\" for the default one", ref.Session)}
	}
	if _, known := r.Panes[ref.Pane]; !known && ref.Pane != sharedPane {
		return ref, r, &refusal{ErrNoPane, fmt.Sprintf("there is no pane %s in the session %s; create it with tmux-create-pane, or leave out "+
			"\"pane\" for the shared one", ref.Pane, ref.Session)}
	}
	ref.Known = ok
	return ref, r, nil
}

// byID finds a pane of the thread by tmux's id.
func (b *Book) byID(tx store.Tx, thread, session, id string) (row, string, error) {
	want := ""
	if session != "" {
		var err error
		if want, err = b.names.session(thread, session); err != nil {
			return row{}, "", err
		}
	}
	foreign := false
	for _, r := range b.rows(tx, "") {
		for name, p := range r.Panes {
			if p.ID != id || r.Closing || want != "" && r.Name != want {
				continue
			}
			if r.Thread == thread {
				return r, name, nil
			}
			foreign = true // or it had the id before the server was started again
		}
	}
	if foreign {
		return row{}, "", &refusal{ErrForeign, fmt.Sprintf("the pane %s belongs to another thread; use a pane of this thread", id)}
	}
	return row{}, "", &refusal{ErrNoPane, fmt.Sprintf("%s is not a pane of this thread's managed sessions; name one with \"session\" and \"pane\"", id)}
}

// Ensure returns the pane that a thread means, ready to work in. The default
// session and the shared pane are made on demand; what was lost is made again,
// and the notice says so. A pane whose shell has ended is returned as it is: the
// next command in it starts a new shell. A session or pane that the thread never
// made is [ErrNoSession] or [ErrNoPane].
func (b *Book) Ensure(ctx context.Context, thread, session, pane string) (Pane, string, error) {
	return b.ensureNamed(ctx, thread, session, pane, false)
}

// ensureNamed is Ensure. With anyone this process need not own the thread to start a
// shell.
func (b *Book) ensureNamed(ctx context.Context, thread, session, pane string, anyone bool) (Pane, string, error) {
	ref, r, err := b.lookup(ctx, thread, session, pane)
	if err != nil {
		return nil, "", err
	}
	unlock, err := b.locks.lock(ctx, ref.Session)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.used[ref.Session] = b.cfg.Now()
	}()
	if p := b.current(ref, r); p != nil {
		if _, err := p.Info(ctx); !errors.Is(err, tmux.ErrGone) {
			return p, "", errors.Join(err, b.touch(ctx, r))
		}
	}
	return b.ensure(ctx, thread, ref, anyone)
}

// usedStep is how exactly it is known when a session was used: a row written for each
// command would double its cost.
const usedStep = 10 * time.Minute

// touch notes that a session is in use.
func (b *Book) touch(ctx context.Context, r row) error {
	now := b.cfg.Now()
	if r.ID == "" || now.Sub(r.Used) < usedStep {
		return nil
	}
	return b.change(ctx, &r, func(n *row) { n.Used = now.UTC() })
}

// ensure does the work of Ensure under the session's lock. Another process that makes the
// same session or pane at the same time may be faster; then its is the one.
func (b *Book) ensure(ctx context.Context, thread string, ref Ref, anyone bool) (p Pane, notice string, err error) {
	for range attempts {
		p, notice, err = b.ensureOnce(ctx, thread, ref, anyone)
		if !errors.Is(err, tmux.ErrExists) && !errors.Is(err, tmux.ErrDriven) || errors.Is(err, errNotOwner) {
			break
		}
	}
	return p, notice, err
}

func (b *Book) ensureOnce(ctx context.Context, thread string, ref Ref, anyone bool) (Pane, string, error) {
	r, err := b.reserve(ctx, thread, ref.Session, ref.Default, anyone)
	if err != nil {
		return nil, "", err
	}
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		b.release(ctx, r)
		return nil, "", err
	}
	notice := ""
	live := liveSession(all, r)
	if live == nil {
		i, err := b.takeOver(ctx, all, &r)
		if err != nil {
			return nil, "", err
		}
		if i >= 0 {
			live = &all[i]
		}
	}
	if live == nil {
		lost := r.Ready
		p, err := b.makeSession(ctx, all, &r, anyone)
		if err != nil {
			if !errors.Is(err, tmux.ErrExists) && !errors.Is(err, tmux.ErrDriven) {
				b.release(ctx, r)
			}
			return nil, "", err
		}
		if lost {
			notice = fmt.Sprintf("The session %s was gone and was made again: what ran in it, its directory and its variables are lost.", r.Name)
		}
		if ref.Pane == sharedPane {
			return p, notice, nil
		}
		live = &tmux.SessionInfo{Name: r.Name}
	}
	found := livePane(*live, ref.Pane, r.Panes[ref.Pane].ID)
	if found != nil {
		p, err := b.adopt(ctx, &r, ref.Pane, found.ID)
		if err == nil {
			return p, notice, nil
		}
		if !errors.Is(err, tmux.ErrGone) {
			return nil, "", err
		}
	}
	had := r.Panes[ref.Pane].ID != ""
	p, made, err := b.makePane(ctx, &r, ref.Pane, anyone)
	if err != nil {
		return nil, "", err
	}
	if had && made && notice == "" {
		notice = fmt.Sprintf("The pane %s of the session %s was gone and was made again: what ran in it, its directory and its variables are lost.", ref.Pane, r.Name)
	}
	return p, notice, nil
}

// Open returns a pane that exists, to look at it or to press keys. It makes
// nothing.
func (b *Book) Open(ctx context.Context, thread, session, pane string) (Pane, error) {
	ref, r, err := b.lookup(ctx, thread, session, pane)
	if err != nil {
		return nil, err
	}
	unlock, err := b.locks.lock(ctx, ref.Session)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p := b.current(ref, r); p != nil {
		if _, err := p.Info(ctx); !errors.Is(err, tmux.ErrGone) {
			return p, nil
		}
		b.forget(ref.Session, ref.Pane)
	}
	all, err := b.cfg.Server.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	ref.fill(all, r)
	if !ref.Exists {
		return nil, &refusal{ErrNoPane, fmt.Sprintf("the pane %s of the session %s does not exist now; run_shell makes it again", ref.Pane, ref.Session)}
	}
	return b.adopt(ctx, &r, ref.Pane, ref.ID)
}

// reserve returns the session's row, making one within the limits when there
// is none and mayMake is set. One that is being ended is ended first.
func (b *Book) reserve(ctx context.Context, thread, name string, mayMake, anyone bool) (row, error) {
	fresh := row{
		ID: rand.Text(), Name: name, Thread: thread, Default: name == b.names.defaults(thread), Created: b.cfg.Now().UTC(), Used: b.cfg.Now().UTC(),
		Panes: map[string]paneRow{sharedPane: {Fresh: true}},
	}
	if b.cfg.Driver != "" {
		fresh.Driver, fresh.Epoch = b.cfg.Driver, 1
	}
	var r row
	var ending bool
	crowded := false // not only in this thread, so room can be made
	reserve := func(tx store.Tx) error {
		ending, crowded = false, false
		var ok bool
		var err error
		if r, ok, err = b.owned(tx, thread, name); err != nil || ok && !r.Closing {
			return err
		}
		if ending = ok && b.cfg.Driver != ""; ending {
			return nil
		}
		if !anyone && b.cfg.Owns != nil && !b.cfg.Owns(tx, thread) {
			return errNotOwner
		}
		if !mayMake {
			return &refusal{ErrNoSession, fmt.Sprintf("there is no session %s in this thread any more", name)}
		}
		if err := b.room(tx, thread, !fresh.Default, false); err != nil {
			return err
		}
		if err := b.instanceRoom(tx); err != nil {
			crowded = errors.Is(err, ErrLimit)
			return err
		}
		r = fresh
		store.Save(tx, b.key(name), r)
		return nil
	}
	for made := false; ; {
		err := b.cfg.DB.Update(ctx, reserve)
		if crowded && !made && b.makeRoom(ctx, err) {
			made = true
			continue
		}
		if err != nil || !ending {
			return r, err
		}
		// Another process is at it, or was when it stopped.
		if err := b.finish(ctx, r); err != nil {
			return r, err
		}
	}
}

// release gives back the place of a session that was never made.
func (b *Book) release(ctx context.Context, r row) {
	if r.Ready {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if now, ok := store.Load[row](tx, b.key(r.Name)); ok && now.ID == r.ID && !now.Ready && !b.madeElsewhere(now) {
			tx.Delete(b.key(r.Name))
		}
		return nil
	})
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "cannot give back the place of a session that was not made", "session", r.Name, "error", err)
	}
}

// madeElsewhere tells whether another process may be making a session right now.
func (b *Book) madeElsewhere(r row) bool {
	return !b.drives(r) && b.cfg.Now().Sub(r.Created) < makingTime
}

// change changes a session's row, if it is still that session.
func (b *Book) change(ctx context.Context, r *row, fn func(*row)) error {
	return b.changeIf(ctx, r, nil, fn)
}

// changeIf is change, unless check, which may be nil, refuses.
func (b *Book) changeIf(ctx context.Context, r *row, check func(tx store.Tx, now row) error, fn func(*row)) error {
	var now row
	err := b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		var ok bool
		now, ok = store.Load[row](tx, b.key(r.Name))
		if !ok || now.ID != r.ID {
			return &refusal{ErrNoSession, fmt.Sprintf("the session %s was ended meanwhile", r.Name)}
		}
		if check != nil {
			if err := check(tx, now); err != nil {
				return err
			}
		}
		if now.Panes == nil {
			now.Panes = map[string]paneRow{}
		}
		fn(&now)
		store.Save(tx, b.key(r.Name), now)
		return nil
	})
	if err == nil {
		*r = now
	}
	return err
}

func (b *Book) sessionTags(r row) map[string]string {
	return map[string]string{tagInstance: b.cfg.Instance, tagTarget: b.cfg.Target, tagSession: r.ID, tagThread: r.Thread}
}

func (b *Book) paneSpec(r row, pane string) tmux.PaneSpec {
	return tmux.PaneSpec{
		Name: pane, Dir: b.cfg.Dir,
		Tags: map[string]string{tagInstance: b.cfg.Instance, tagSession: r.ID, tagPane: pane},
	}
}

// takeOver makes a row that has no session own one that this instance made for
// the same thread under the same name, and that no row knows: the store is older
// than the terminal, for example after a restored backup. The index is -1 when
// there is none.
func (b *Book) takeOver(ctx context.Context, all []tmux.SessionInfo, r *row) (index int, err error) {
	index = slices.IndexFunc(all, func(s tmux.SessionInfo) bool {
		return s.Name == r.Name && s.Tags[tagSession] != "" &&
			s.Tags[tagInstance] == b.cfg.Instance && s.Tags[tagTarget] == b.cfg.Target && s.Tags[tagThread] == r.Thread
	})
	if index < 0 {
		return index, nil
	}
	return index, b.change(ctx, r, func(n *row) {
		n.ID, n.Ready = all[index].Tags[tagSession], true
	})
}

// makeSession makes the tmux session of a row, with its shared pane.
func (b *Book) makeSession(ctx context.Context, all []tmux.SessionInfo, r *row, anyone bool) (Pane, error) {
	if slices.ContainsFunc(all, func(s tmux.SessionInfo) bool { return s.Name == r.Name }) {
		return nil, &refusal{ErrUnmanaged, fmt.Sprintf("there is a session %s that this bot does not manage; choose another name, or rename that one", r.Name)}
	}
	spec := b.paneSpec(*r, sharedPane)
	if b.shared() {
		var err error
		if r.Epoch, err = b.claim(ctx, r.Thread, r.Name, anyone); err != nil {
			return nil, err
		}
		spec.Epoch = r.Epoch
	}
	p, err := b.cfg.Server.NewSession(ctx, r.Name, b.sessionTags(*r), spec)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.TerminalMade)
	b.forgetAll(r.Name)
	err = b.change(ctx, r, func(n *row) {
		n.Ready = true
		n.Panes[sharedPane] = paneRow{ID: p.ID(), Fresh: true}
	})
	if err != nil {
		return nil, err
	}
	return b.remember(ctx, *r, sharedPane, p), nil
}

// makePane makes a pane, or finds that another process did so meanwhile.
func (b *Book) makePane(ctx context.Context, r *row, pane string, anyone bool) (p Pane, made bool, err error) {
	spec := b.paneSpec(*r, pane)
	if b.shared() {
		err := b.driveTo(ctx, r.Thread, r.Name, anyone, func(epoch int64) error {
			spec.Epoch = epoch
			return b.cfg.Server.Drive(ctx, r.Name, epoch)
		})
		if err != nil {
			return nil, false, err
		}
		// From now on nobody else makes one, so what is not there is not there.
		all, err := b.cfg.Server.Sessions(ctx)
		if err != nil {
			return nil, false, err
		}
		if live := liveSession(all, *r); live != nil {
			if found := livePane(*live, pane, r.Panes[pane].ID); found != nil {
				if p, err := b.adopt(ctx, r, pane, found.ID); !errors.Is(err, tmux.ErrGone) {
					return p, false, err
				}
			}
		}
	}
	p, err = b.cfg.Server.NewPane(ctx, r.Name, spec)
	if err != nil {
		return nil, false, err
	}
	if err := b.change(ctx, r, func(n *row) { n.Panes[pane] = paneRow{ID: p.ID(), Fresh: true} }); err != nil {
		return nil, false, err
	}
	return b.remember(ctx, *r, pane, p), true, nil
}

func (b *Book) adopt(ctx context.Context, r *row, pane, id string) (Pane, error) {
	p, err := b.cfg.Server.Adopt(ctx, r.Name, id)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.TerminalAdopted)
	if !r.Ready || r.Panes[pane].ID != id {
		err := b.change(ctx, r, func(n *row) {
			n.Ready = true
			n.Panes[pane] = n.Panes[pane].found(id)
		})
		if err != nil {
			return nil, err
		}
	}
	return b.remember(ctx, *r, pane, p), nil
}

func (b *Book) opened(ref Ref) Pane {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[paneKey{ref.Session, ref.Pane}]
}

// current is opened, unless the row says that another process ends the session or has
// made the pane anew.
func (b *Book) current(ref Ref, r row) Pane {
	p := b.opened(ref)
	if id := r.Panes[ref.Pane].ID; p != nil && b.shared() && (r.ID == "" || id != "" && id != p.ID()) {
		b.forget(ref.Session, ref.Pane)
		return nil
	}
	return p
}

// remember keeps a pane that this process has open, and returns it as callers get it. It
// is recorded from the moment that this process types there.
func (b *Book) remember(ctx context.Context, r row, pane string, p Pane) Pane {
	key := paneKey{r.Name, pane}
	b.mu.Lock()
	if old := b.open[key]; old != nil && bare(old) == p {
		b.mu.Unlock()
		return old
	}
	kept := b.wrap(r.Thread, key, p)
	b.open[key] = kept
	b.mu.Unlock()
	if p.Driving() {
		if d, ok := kept.(*driven); ok {
			d.filmed.Store(r.Epoch)
		}
		b.record(ctx, r.Thread, key, p)
	}
	return kept
}

func (b *Book) forget(session, pane string) {
	b.forgetIf(func(k paneKey) bool { return k == paneKey{session, pane} })
}

func (b *Book) forgetAll(session string) {
	b.mu.Lock()
	delete(b.used, session)
	b.mu.Unlock()
	b.forgetIf(func(k paneKey) bool { return k.session == session })
}

func (b *Book) forgetIf(which func(paneKey) bool) {
	var ended []Recorder
	b.mu.Lock()
	for k := range b.open {
		if which(k) {
			delete(b.open, k)
		}
	}
	for k, r := range b.recorders {
		if which(k) {
			delete(b.recorders, k)
			ended = append(ended, r)
		}
	}
	b.mu.Unlock()
	for _, r := range ended {
		b.closeRecorder(r)
	}
}
