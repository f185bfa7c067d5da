package slack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

// catchUp takes notice of what other replicas posted in a thread since this one did:
// the log that is open here is not the last message any more, and no draft is where its
// post belongs. v.mu is held. posting says that a post or an edit follows.
func (a *Adapter) catchUp(ctx context.Context, th thread, v *view, posting bool) error {
	if a.cfg.Turn == nil {
		return nil
	}
	n, mine, err := a.cfg.Turn(ctx, th.id())
	switch {
	case err != nil:
		return err
	case posting && !mine:
		return scribe.ErrMoved
	}
	v.posting, v.theirs = posting, n > 0 && !mine
	was := v.turn
	v.turn = n
	if n != was {
		v.looked = false                                 // who had the thread before may have left drafts there
		v.behind = v.behind || was > 0 || n > 1 || !mine // else this is the first post of the thread
	}
	if !v.behind {
		return nil
	}
	a.closeLog(ctx, th, v)
	if err := a.dropDrafts(ctx, th, v); err != nil {
		return err
	}
	v.behind = false
	return nil
}

// dropDrafts removes what this replica was writing in a thread. A draft becomes a post
// of the replica that writes it alone, and each removes its own: whichever of two comes
// first, and whatever one of them knows, no post is removed as a draft. v.mu is held.
func (a *Adapter) dropDrafts(ctx context.Context, th thread, v *view) error {
	for key, d := range v.drafts {
		still, there, err := a.stillDraft(ctx, th, d)
		if err != nil {
			return err
		}
		if still {
			if err := a.discard(ctx, th, d.ts); err != nil {
				return err
			}
		} else if there { // its post came through, and the answer was lost
			v.remember(key, ref{Ref: scribe.Ref{Channel: th.channel, Parts: []string{d.ts}}, draft: true})
		}
		delete(v.drafts, key)
	}
	return nil
}

// leave removes the drafts of a replica that ends in good order: who goes on with their
// threads begins new ones.
func (a *Adapter) leave(ctx context.Context) {
	if a.cfg.Turn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	for t, v := range a.known() {
		th, err := parseThread(t)
		if err != nil || !v.mu.TryLock() {
			continue
		}
		if (len(v.drafts) > 0 || v.doubt || v.unclean) && a.catchUp(ctx, th, v, false) == nil {
			err := a.dropDrafts(ctx, th, v)
			if err == nil && (v.doubt || v.unclean) && !v.theirs { // the end may have cut the answer off
				err = a.look(ctx, th, v, "")
			}
			if err != nil {
				a.log.WarnContext(ctx, "a draft stays until the thread's next post", "thread", t, "error", err)
			}
		}
		v.mu.Unlock()
	}
}

// leaveTime bounds how long a process that ends removes its drafts.
const leaveTime = 3 * time.Second

// known are the threads that something is known of.
func (a *Adapter) known() map[chat.ThreadID]*view {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.views)
}

// still is asked right before a call that people see: a process that was stopped for a
// while does not know that another one went on with the thread. v.mu is held.
func (a *Adapter) still(ctx context.Context, t chat.ThreadID) error {
	if a.cfg.Turn == nil {
		return nil
	}
	n, mine, err := a.cfg.Turn(ctx, t)
	if err != nil {
		return err
	}
	if v := a.view(t); n != v.turn || v.posting && !mine {
		return scribe.ErrMoved
	}
	return nil
}

// stillDraft reports whether a draft is one, and not the post that was made of it. One
// that Slack never lets the bot read counts as such a post, and is left alone.
func (a *Adapter) stillDraft(ctx context.Context, th thread, d *draft) (still, there bool, err error) {
	var msgs []slackapi.Message
	err = a.pace.do(ctx, "replies", scribe.Normal, func(ctx context.Context) (err error) {
		msgs, _, _, err = a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
			ChannelID: th.channel, Timestamp: th.root, Oldest: d.ts, Latest: d.ts, Inclusive: true, Limit: 2, IncludeAllMetadata: true,
		})
		return err
	})
	var said slackapi.SlackErrorResponse
	switch {
	case errors.As(err, &said) && !slices.Contains(passes, said.Err):
		a.log.WarnContext(ctx, "a draft cannot be read, and is left where it is", "thread", th.id(), "error", err)
		return false, true, nil
	case err != nil:
		return false, false, a.explain("read", err)
	}
	for i := range msgs {
		if msgs[i].Timestamp == d.ts {
			says := msgs[i].Metadata
			// A stream has no mark before its end.
			return says.EventPayload["draft"] == true || says.EventPayload["passing"] == true || d.stream && says.EventType == "", true, nil
		}
	}
	return false, false, nil
}

// orphans are the messages of ours in a thread's history that nobody writes any more,
// as far as one reading of the history tells.
type orphans struct {
	drafts  []orphan
	unnamed []string // of the bot, without a mark
	marked  bool     // Slack lets us read marks
	last    string   // our last post
}

type orphan struct{ key, ts string }

// see takes notice of one message, the oldest first, and reports whether it is not a
// post that stands.
func (o *orphans) see(a *Adapter, th thread, v *view, m *slackapi.Message) bool {
	payload := m.Metadata.EventPayload
	ours := m.Metadata.EventType == metadataType
	o.marked = o.marked || ours
	switch {
	case m.Timestamp == th.root:
		return false
	case v.writes(m.Timestamp):
		return true
	case ours && (payload["draft"] == true || payload["passing"] == true):
		key, _ := payload["key"].(string)
		o.drafts = append(o.drafts, orphan{key, m.Timestamp})
		return true
	case ours:
		o.last = m.Timestamp
	case m.Metadata.EventType == "" && len(m.Files) == 0 && m.BotID != "" && m.BotID == a.self().bot && a.now().Sub(when(m.Timestamp)) < streamAge && !pressable(m):
		if o.unnamed = append(o.unnamed, m.Timestamp); len(o.unnamed) > maxUnnamed {
			o.unnamed = o.unnamed[1:]
		}
		return true
	}
	return false
}

// pressable reports whether a message has buttons, as no stream of ours has.
func pressable(m *slackapi.Message) bool {
	return slices.ContainsFunc(m.Blocks.BlockSet, func(b slackapi.Block) bool { return b.BlockType() == slackapi.MBTAction })
}

const (
	// maxUnnamed bounds how many messages without a mark are looked at: at most one
	// stream is left by each replica that ends while it writes.
	maxUnnamed = 8
	// streamAge is how old such a message may be.
	streamAge = 24 * time.Hour
)

// clear removes what a reading found, and returns the draft that may become its
// post: of a process that is alone, the one of the post that comes next. An error says
// that something could not be removed now.
func (o *orphans) clear(ctx context.Context, a *Adapter, th thread, key string) (kept string, err error) {
	for _, d := range o.drafts {
		if a.cfg.Turn == nil && key != "" && d.key == key && d.ts > o.last && kept == "" {
			kept = d.ts // nothing stands below it, and nobody else may remove it
			continue
		}
		err = errors.Join(err, a.discard(ctx, th, d.ts))
	}
	for _, ts := range o.unnamed {
		stream, serr := a.endForeign(ctx, th, ts)
		switch {
		case serr != nil:
			err = errors.Join(err, serr)
		case stream || o.marked: // with marks that can be read, one that Slack ended itself
			err = errors.Join(err, a.discard(ctx, th, ts))
		}
	}
	return kept, err
}

// endForeign ends a message if it is one that is being streamed: chat.startStream takes no
// mark (docs.slack.dev/reference/methods/chat.startStream), so that a stream whose
// writer is gone is known by Slack's own word for its state.
func (a *Adapter) endForeign(ctx context.Context, th thread, ts string) (stream bool, err error) {
	err = a.pace.do(ctx, "stop/"+th.channel, scribe.Normal, func(ctx context.Context) error {
		if err := a.still(ctx, th.id()); err != nil {
			return err
		}
		_, _, err := a.api.StopStreamContext(ctx, th.channel, ts, markDraft(""))
		return err
	})
	var said slackapi.SlackErrorResponse
	if errors.As(err, &said) && !slices.Contains(passes, said.Err) {
		return false, nil
	}
	return err == nil, err
}

// discard deletes a draft. That it is not there, or that Slack never deletes it, is no
// error.
func (a *Adapter) discard(ctx context.Context, th thread, ts string) error {
	err := a.still(ctx, th.id())
	if err != nil {
		return err
	}
	_, _, err = a.api.DeleteMessageContext(ctx, th.channel, ts)
	var said slackapi.SlackErrorResponse
	if errors.As(err, &said) && !slices.Contains(passes, said.Err) {
		if said.Err != "message_not_found" {
			a.log.WarnContext(ctx, "a draft cannot be removed", "thread", th.id(), "error", err)
		}
		return nil
	}
	return a.explain("remove a draft", err)
}

// markDraft names the post that a draft is for.
func markDraft(key string) slackapi.MsgOption {
	return slackapi.MsgOptionMetadata(slackapi.SlackMetadata{
		EventType: metadataType, EventPayload: map[string]any{"key": key, "part": 0, "draft": true},
	})
}

// asker is who a reply is for, which Slack wants to know of a streaming message: who
// spoke last here. Where another replica heard them it is who began the thread.
func (a *Adapter) asker(ctx context.Context, th thread, v *view) *string {
	if u := v.asker.Load(); u != nil || a.cfg.Turn == nil || v.sought || a.noStream.Load() {
		return u
	}
	var msgs []slackapi.Message
	err := a.pace.do(ctx, "replies", scribe.Passing, func(ctx context.Context) (err error) {
		msgs, _, _, err = a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{ChannelID: th.channel, Timestamp: th.root, Limit: 1})
		return err
	})
	v.sought = err == nil
	if err == nil && len(msgs) > 0 && msgs[0].User != "" && msgs[0].BotID == "" {
		v.asker.CompareAndSwap(nil, &msgs[0].User)
	}
	return v.asker.Load()
}
