package scribe

import (
	"context"
	"errors"
	"slices"
	"time"

	"countersign/adapters/chat"
)

// phase is what is known of a thread's history.
type phase int

const (
	unread   phase = iota // somebody else may have written there
	read                  // all that stands there is known
	unclean               // it is, and drafts that nobody writes are still to be removed
	doubtful              // a call may have come through although it failed
)

// event is what changes the phase.
type event int

const (
	wasRead   event = iota // the history was read, or needs no reading
	hasDrafts              // it was, and drafts that nobody writes could not be removed
	hasLost                // the answer of a call was lost
	hasTurn                // another replica posted
)

// phases says what follows: doubt is ended by reading alone.
var phases = [...][4]phase{
	unread:   {wasRead: read, hasDrafts: unclean, hasLost: doubtful, hasTurn: unread},
	read:     {wasRead: read, hasDrafts: unclean, hasLost: doubtful, hasTurn: unread},
	unclean:  {wasRead: read, hasDrafts: unclean, hasLost: doubtful, hasTurn: unclean},
	doubtful: {wasRead: read, hasDrafts: unclean, hasLost: doubtful, hasTurn: doubtful},
}

func (p *phase) on(e event) { *p = phases[*p][e] }

// turn is who posts in a thread, as it was known last.
type turn struct {
	n     uint64 // what Config.Turn said
	phase turnPhase
}

// turnPhase is who posts in a thread.
type turnPhase int

const (
	alone  turnPhase = iota // nobody but this process ever did
	ours                    // others did, and this process was the last that began to
	theirs                  // another replica was the last that began to
)

// turnEvent is what [Config.Turn] says.
type turnEvent int

const (
	isFirst turnEvent = iota // nobody posted before, or this process alone
	isOurs                   // this process posts, and others did before
	isOther                  // another replica posts
)

// turns says what follows.
var turns = [...][3]turnPhase{
	alone:  {isFirst: alone, isOurs: ours, isOther: theirs},
	ours:   {isFirst: ours, isOurs: ours, isOther: theirs},
	theirs: {isFirst: ours, isOurs: ours, isOther: theirs},
}

func turnEventOf(n uint64, mine bool) turnEvent {
	switch {
	case n == 0, n == 1 && mine:
		return isFirst
	case mine:
		return isOurs
	}
	return isOther
}

// lose notes that a call may have come through although it failed.
func (s *Scribe[M, P]) lose(th *thread[P], err error) {
	if Uncertain(err) && !th.page.Refused(err) {
		th.history.on(hasLost)
	}
}

// Uncertain reports whether the call that failed may have come through, as far as that is
// the same on every network.
func Uncertain(err error) bool {
	_, limited := errors.AsType[*chat.RateLimitedError](err)
	certain := func(known error) bool { return errors.Is(err, known) }
	return err != nil && !limited && !slices.ContainsFunc([]error{ErrBusy, ErrMoved, chat.ErrGone, chat.ErrClosed, chat.ErrRejected}, certain)
}

// look reads the thread's history where something may stand there that is not known. In
// a thread in which nothing was ever tried there is nothing to look for. The post of the
// key next follows, which may take a draft over. u is how urgent what waits for it is.
func (s *Scribe[M, P]) look(ctx context.Context, th *thread[P], next string, u Urgency) error {
	if th.history == read || th.history == unread && th.page.Fresh(th.turn.phase != alone) {
		th.history.on(wasRead)
		return nil
	}
	if _, posted := th.refs[next]; posted || th.drafts[next] != nil {
		next = "" // it takes no other draft over
	}
	h, err := th.page.Recent(ctx, s.call(th, Posted, next, u), next, th.knows)
	if err != nil {
		return err
	}
	for _, f := range h.Posts {
		r := th.refs[f.Key]
		if f.Part == len(r.Parts) {
			th.remember(f.Key, Ref{Channel: th.page.Channel(), Parts: append(slices.Clip(r.Parts), f.ID), Log: f.Log})
		}
	}
	if h.Draft != "" {
		th.drafts[next] = &draft{id: h.Draft, touched: time.Now()}
	}
	if h.Unclean {
		th.history.on(hasDrafts)
	} else {
		th.history.on(wasRead)
	}
	return nil
}

// catchUp takes notice of what other replicas posted in a thread since this one did: the
// log that is open here is not the last message any more, and a draft may have become its
// post. posting says that a post or an edit follows.
func (s *Scribe[M, P]) catchUp(ctx context.Context, th *thread[P], posting bool) error {
	if s.cfg.Turn == nil {
		return nil
	}
	n, mine, err := s.cfg.Turn(ctx, th.id)
	switch {
	case err != nil:
		return err
	case posting && !mine:
		return ErrMoved
	}
	was, e := th.turn.n, turnEventOf(n, mine)
	th.turn = turn{n, turns[th.turn.phase][e]}
	if n == was || was == 0 && e == isFirst {
		return nil
	}
	th.history.on(hasTurn)
	s.closeLog(ctx, th)
	if err := s.yield(ctx, th); err != nil {
		th.turn.n = was // it is done the next time
		return err
	}
	return nil
}

// yield takes notice of what has become of the drafts here since another replica posts.
func (s *Scribe[M, P]) yield(ctx context.Context, th *thread[P]) error {
	for key, d := range th.drafts {
		fate, err := th.page.Yield(ctx, s.call(th, Draft, key, Normal), d.id, d.text)
		switch {
		case err != nil:
			return err
		case fate == Stands:
			continue
		case fate == Changed:
			th.remember(key, s.ref(th, d.id))
		}
		delete(th.drafts, key)
	}
	return nil
}

// may is asked right before a call that people see: a process that was stopped for a
// while does not know that another one went on with the thread.
func (s *Scribe[M, P]) may(th *thread[P]) func(context.Context) error {
	was := th.turn
	return func(ctx context.Context) error {
		if s.cfg.Turn == nil {
			return nil
		}
		n, mine, err := s.cfg.Turn(ctx, th.id)
		if err == nil && (n != was.n || turns[was.phase][turnEventOf(n, mine)] != was.phase) {
			err = ErrMoved
		}
		return err
	}
}

func (s *Scribe[M, P]) call(th *thread[P], k Kind, key string, u Urgency) Call {
	return Call{Kind: k, Key: key, Urgency: u, Shared: th.turn.phase != alone, Doubt: th.history == doubtful, May: s.may(th)}
}

func (s *Scribe[M, P]) ref(th *thread[P], parts ...string) Ref {
	return Ref{Channel: th.page.Channel(), Parts: parts}
}
