package discord

import (
	"context"
	"errors"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

// errMoved says that another replica posts in the thread by now, so that nothing was
// done. The outbox tries again where it is still this one's turn.
var errMoved = errors.New("discord: another replica posts in this thread")

// catchUp takes notice of what other replicas posted in a thread since this one did:
// the log that is open here is not the last message any more, and a draft may have
// become its post. v.mu is held. posting says that a post or an edit follows.
func (a *Adapter) catchUp(ctx context.Context, th thread, v *view, posting bool) error {
	if a.cfg.Turn == nil {
		return nil
	}
	n, mine, err := a.cfg.Turn(ctx, th.id())
	switch {
	case err != nil:
		return err
	case posting && !mine:
		return errMoved
	}
	v.posting, v.theirs = posting, n > 0 && !mine
	was := v.turn
	v.turn, v.shared = n, v.shared || n > 1 || n == 1 && !mine
	if n == was || n <= 1 && was == 0 {
		return nil
	}
	v.looked = false
	a.closeLog(ctx, th, v)
	for key, d := range v.drafts {
		still, there := a.stillDraft(ctx, th, d)
		if still {
			continue
		}
		delete(v.drafts, key)
		if there {
			v.remember(key, ref{channel: th.channel, parts: []string{d.id}})
		}
	}
	return nil
}

// still is asked right before a call that people see: a process that was stopped for a
// while does not know that another one went on with the thread. v.mu is held.
func (a *Adapter) still(ctx context.Context, v *view) error {
	if a.cfg.Turn == nil {
		return nil
	}
	n, mine, err := a.cfg.Turn(ctx, v.id)
	if err != nil {
		return err
	}
	if n != v.turn || v.posting && !mine {
		return errMoved
	}
	return nil
}

// stillDraft reports whether a draft is one, and not the post that another replica made
// of it: it says what this process wrote last. One that cannot be read counts as such a
// post, and is left alone.
func (a *Adapter) stillDraft(ctx context.Context, th thread, d *draft) (still, there bool) {
	var m *discordgo.Message
	err := a.pace.do(ctx, normal, func(ctx context.Context) (err error) {
		m, err = a.rest.Message(ctx, th.channel, d.id)
		return err
	})
	if err != nil {
		if errors.Is(err, gateway.ErrGone) {
			return false, false
		}
		a.log.WarnContext(ctx, "a draft cannot be read, and is left where it is", "thread", th.id(), "error", err)
		return false, true
	}
	return saysTheSame(m, embed.Progress(d.text)), true
}
