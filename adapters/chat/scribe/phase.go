package scribe

import (
	"context"
	"errors"
	"slices"

	"countersign/adapters/chat"
)

// phase is what is known of a thread's history.
type phase int

const (
	unread   phase = iota // somebody else may have written there
	read                  // all that stands there is known
	doubtful              // a call may have come through although it failed
)

// event is what changes the phase.
type event int

const (
	wasRead event = iota // the history was read, or needs no reading
	hasLost              // the answer of a call was lost
	hasTurn              // another replica posted
)

// phases says what follows: doubt is ended by reading alone.
var phases = [...][3]phase{
	unread:   {wasRead: read, hasLost: doubtful, hasTurn: unread},
	read:     {wasRead: read, hasLost: doubtful, hasTurn: unread},
	doubtful: {wasRead: read, hasLost: doubtful, hasTurn: doubtful},
}

func (p *phase) on(e event) { *p = phases[*p][e] }

// turn is who posts in a thread, as it was known last.
type turn struct {
	n       uint64
	shared  bool // others ever posted here
	posting bool // the thread is held for a post or an edit
	// theirs says that another replica was the last that began to post: a draft of ours
	// may become its post at any moment, and is not written then.
	theirs bool
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
	return err != nil && !limited && !slices.ContainsFunc([]error{ErrBusy, ErrMoved, chat.ErrGone, chat.ErrRejected}, certain)
}

// look reads the thread's history where something may stand there that is not known. In
// a thread in which nothing was ever tried there is nothing to look for.
func (s *Scribe[M, P]) look(ctx context.Context, th *thread[P]) error {
	if th.history == unread && !th.page.Fresh(th.turn.shared) || th.history == doubtful {
		found, err := th.page.Recent(ctx, th.knows)
		if err != nil {
			return err
		}
		for _, f := range found {
			th.remember(f.Key, f.Ref)
		}
	}
	th.history.on(wasRead)
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
	was := th.turn.n
	th.turn = turn{n: n, shared: th.turn.shared || n > 1 || n == 1 && !mine, posting: posting, theirs: n > 0 && !mine}
	if n == was || n <= 1 && was == 0 {
		return nil
	}
	th.history.on(hasTurn)
	s.closeLog(ctx, th)
	for key, d := range th.drafts {
		switch th.page.Reads(ctx, s.call(th, Draft, key, Normal), d.id, d.text) {
		case Stands:
			continue
		case Changed:
			th.remember(key, s.ref(th, d.id))
		case Gone:
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
		if err == nil && (n != was.n || was.posting && !mine) {
			err = ErrMoved
		}
		return err
	}
}

func (s *Scribe[M, P]) call(th *thread[P], k Kind, key string, u Urgency) Call {
	return Call{Kind: k, Key: key, Urgency: u, Shared: th.turn.shared, Doubt: th.history == doubtful, May: s.may(th)}
}

func (s *Scribe[M, P]) ref(th *thread[P], parts ...string) Ref {
	return Ref{Channel: th.page.Channel(), Parts: parts}
}
