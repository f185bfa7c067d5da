package scribe

import (
	"context"
	"errors"
	"fmt"

	"countersign/adapters/chat"
)

// Post does what [chat.Adapter] promises.
func (s *Scribe[M, P]) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	th, err := s.thread(t)
	if err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if err := s.catchUp(ctx, th, true); err != nil {
		return "", err
	}
	if err := s.look(ctx, th, p.Key, UrgencyOf(p)); err != nil {
		return "", err
	}
	if r, ok := th.refs[p.Key]; ok {
		r, err := s.repeat(ctx, th, r, p)
		if err == nil {
			err = s.postAlso(ctx, th, p)
		}
		if !errors.Is(err, chat.ErrGone) {
			return r.String(), err
		}
		delete(th.refs, p.Key)
		th.page.Removed(p.Key, 0)
	}
	var r Ref
	if p.Log && p.Card == nil {
		r, err = s.postLog(ctx, th, p)
	} else {
		s.sweep(ctx, th, p.Key)
		if UrgencyOf(p) != First { // a card is a new message, which notifies
			s.convertLog(th, p.Key)
		}
		s.closeLog(ctx, th)
		r, err = s.postMessages(ctx, th, p)
	}
	if err != nil {
		return "", err
	}
	th.stands(p)
	th.page.Settled()
	return r.String(), nil
}

// repeat posts a key a second time: after a crash, or an answer that was lost.
func (s *Scribe[M, P]) repeat(ctx context.Context, th *thread[P], r Ref, p chat.Post) (Ref, error) {
	delete(th.drafts, p.Key)
	if r.Log && th.logAt(r.Parts[0]) == nil {
		return r, nil // it stands in a log of which the rest is not known any more
	}
	r, err := s.replace(ctx, th, r, p)
	if err == nil && !r.Log {
		err = s.attach(ctx, th, p, th.page.Render(p))
	}
	return r, err
}

func (s *Scribe[M, P]) postMessages(ctx context.Context, th *thread[P], p chat.Post) (Ref, error) {
	msgs := th.page.Render(p)
	done := s.ref(th)
	if d := th.drafts[p.Key]; d != nil {
		// The draft that people have been reading becomes the post.
		c := s.part(th, p, 0)
		c.Convert = true
		err := th.page.Update(ctx, c, d.id, msgs[0])
		switch {
		case err == nil:
			done.Parts = append(done.Parts, d.id)
			th.remember(p.Key, done)
		case errors.Is(err, chat.ErrGone):
			th.page.Removed(p.Key, 0)
		default:
			return Ref{}, err
		}
		delete(th.drafts, p.Key)
	} else if done.Parts = th.page.Claim(p, msgs); len(done.Parts) > 0 {
		th.remember(p.Key, done)
		if p.Card != nil {
			if err := th.page.Update(ctx, s.part(th, p, 0), done.Parts[0], msgs[0]); err != nil {
				return Ref{}, err
			}
		}
	}
	done, err := s.sendRest(ctx, th, p, done, msgs)
	if err != nil {
		return done, err
	}
	return done, s.attach(ctx, th, p, msgs)
}

func (s *Scribe[M, P]) attach(ctx context.Context, th *thread[P], p chat.Post, msgs []M) error {
	err := th.page.Attach(ctx, s.part(th, p, 0), msgs)
	s.lose(th, err)
	return err
}

// sendRest sends the messages of a post that are not there yet. What stands is remembered
// although a later one fails.
func (s *Scribe[M, P]) sendRest(ctx context.Context, th *thread[P], p chat.Post, done Ref, msgs []M) (Ref, error) {
	for i := len(done.Parts); i < len(msgs); i++ {
		sent, err := th.page.Send(ctx, s.part(th, p, i), msgs[i])
		if err != nil {
			s.lose(th, err)
			return done, err
		}
		done.Parts = append(done.Parts, sent.ID)
		th.remember(p.Key, done)
	}
	return done, nil
}

func (s *Scribe[M, P]) part(th *thread[P], p chat.Post, part int) Call {
	c := s.call(th, Posted, p.Key, UrgencyOf(p))
	c.Part, c.Post = part, p
	return c
}

// Edit does what [chat.Adapter] promises.
func (s *Scribe[M, P]) Edit(ctx context.Context, t chat.ThreadID, m chat.MessageRef, p chat.Post) error {
	th, err := s.thread(t)
	if err != nil {
		return err
	}
	r, err := th.page.ParseRef(m)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if err := s.catchUp(ctx, th, true); err != nil {
		return err
	}
	if id, ok := th.moved[r.Parts[0]]; ok {
		r.Parts = []string{id}
	}
	if !s.cfg.Keyless && (th.history == doubtful || s.cfg.Turn != nil) {
		// More of the post may stand there than its reference names.
		if err := s.look(ctx, th, "", UrgencyOf(p)); err != nil && th.history == doubtful {
			return err
		} else if err != nil {
			s.cfg.Log.InfoContext(ctx, "the thread's history is read later", "thread", th.id, "error", err)
		}
	}
	if known, ok := th.refs[p.Key]; ok && known.Parts[0] == r.Parts[0] {
		r = known
	}
	_, err = s.replace(ctx, th, r, p)
	return err
}

// replace gives a post that stands a new content.
func (s *Scribe[M, P]) replace(ctx context.Context, th *thread[P], r Ref, p chat.Post) (Ref, error) {
	if r.Log {
		return s.replaceLog(ctx, th, r, p)
	}
	msgs := th.page.Render(p)
	if r.Channel != th.page.Channel() && len(msgs) > 1 {
		return r, fmt.Errorf("what a thread begins with is one message; make it shorter: %w", chat.ErrRejected)
	}
	done := Ref{Channel: r.Channel}
	for i, id := range r.Parts[:min(len(msgs), len(r.Parts))] {
		c := s.part(th, p, i)
		c.Channel = r.Channel
		if err := th.page.Update(ctx, c, id, msgs[i]); err != nil {
			return r, err
		}
		done.Parts = append(done.Parts, id)
	}
	th.remember(p.Key, done)
	done, err := s.sendRest(ctx, th, p, done, msgs)
	if err != nil {
		return done, err
	}
	th.stands(p)
	for i := len(msgs); i < len(r.Parts); i++ {
		th.page.Removed(p.Key, i)
		s.remove(ctx, th, r.Parts[i])
	}
	return done, nil
}

// remove deletes a message of ours; that it stays is no reason to fail.
func (s *Scribe[M, P]) remove(ctx context.Context, th *thread[P], id string) {
	if err := th.page.Delete(ctx, s.call(th, Posted, "", Normal), id); err != nil {
		s.cfg.Log.WarnContext(ctx, "a message of the bot could not be removed", "thread", th.id, "error", err)
	}
}

// Remember notes that a post stands in a thread that it began.
func (s *Scribe[M, P]) Remember(t chat.ThreadID, key string, r Ref) error {
	th, err := s.thread(t)
	if err != nil {
		return err
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	th.remember(key, r)
	return nil
}

// Restore posts a card again whose message somebody deleted; edits of the old message go
// to the new one.
func (s *Scribe[M, P]) Restore(ctx context.Context, t chat.ThreadID, message string, c chat.Card) error {
	th, err := s.thread(t)
	if err != nil {
		return err
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if err := s.catchUp(ctx, th, true); err != nil {
		return err
	}
	p := chat.Post{Key: "card/" + message, Card: &c}
	for key, r := range th.refs {
		if r.Parts[0] == message {
			p.Key = key
		}
	}
	th.page.Removed(p.Key, 0)
	s.closeLog(ctx, th)
	sent, err := th.page.Send(ctx, s.part(th, p, 0), th.page.Render(p)[0])
	if err != nil {
		return err
	}
	th.moved[message] = sent.ID
	th.remember(p.Key, s.ref(th, sent.ID))
	return nil
}

// Retract does what [chat.Retracter] promises. Another replica has the thread's turn,
// which does not matter here: it does not know of these messages.
func (s *Scribe[M, P]) Retract(ctx context.Context, t chat.ThreadID, key string, twice, kept chat.MessageRef) error {
	th, err := s.thread(t)
	if err != nil {
		return err
	}
	mine, err := th.page.ParseRef(twice)
	if err != nil || mine.Log { // a line of the log shares its message
		return err
	}
	theirs, err := th.page.ParseRef(kept)
	if err != nil {
		return err
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if known, ok := th.refs[key]; ok && known.String() == twice {
		th.refs[key] = theirs
	}
	c := Call{Key: key, Urgency: First, May: func(context.Context) error { return nil }}
	for _, id := range mine.Parts {
		if !theirs.has(id) {
			err = errors.Join(err, th.page.Delete(ctx, c, id))
		}
	}
	return err
}
