package slack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/slack/blockkit"
)

var (
	_ chat.Opener    = (*Adapter)(nil)
	_ chat.Retracter = (*Adapter)(nil)
)

const (
	// openAge is for how long after its start the adapter looks in the channel's
	// history before it opens a thread: an earlier process may have opened it and
	// ended before anybody knew. After that only what failed here is in doubt, unless
	// other replicas open threads too.
	openAge = time.Hour
	// openPages bounds how far the history is read, in pages of 200.
	openPages = 3
)

// parseChannel reads slack:<team>:<channel>.
func (a *Adapter) parseChannel(name string) (team, channel string, err error) {
	p := strings.Split(name, ":")
	if len(p) != 3 || p[0] != a.cfg.Scheme || !slackID.MatchString(p[1]) || !slackID.MatchString(p[2]) {
		return "", "", fmt.Errorf("slack: %q names no channel; write %s:<team id>:<channel id>: %w", name, a.cfg.Scheme, chat.ErrGone)
	}
	return p[1], p[2], nil
}

// Open implements [chat.Opener]. A thread that is there already is found by the
// key in the metadata of its root.
func (a *Adapter) Open(ctx context.Context, channel, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	team, id, err := a.parseChannel(channel)
	if err != nil {
		return "", "", err
	}
	msgs := render(p, a.cfg.Scheme)
	if !p.Opens() || len(msgs) != 1 || len(msgs[0].Files) > 0 {
		return "", "", fmt.Errorf("slack: a thread begins with one message without files and buttons; make it shorter: %w", chat.ErrRejected)
	}
	done, err := a.opens.Turn(ctx)
	if err != nil {
		return "", "", err
	}
	defer done()
	name := channel + " " + key
	ts, doubt := a.opens.Get(name)
	if ts == "" && (doubt || a.cfg.Turn != nil || a.now().Sub(a.began) < openAge) {
		if ts, err = a.opened(ctx, id, key); err != nil {
			return "", "", err
		}
	}
	if ts == "" {
		if ts, err = a.openRoot(ctx, id, key, p, msgs[0]); err != nil {
			if uncertain(err) {
				a.opens.Failed(name)
			}
			return "", "", err
		}
		a.page(thread{a.cfg.Scheme, team, id, ts}).begins()
	}
	a.opens.Done(name, ts)
	th := thread{a.cfg.Scheme, team, id, ts}
	r := scribe.Ref{Channel: id, Parts: []string{ts}}
	a.page(th).placed.Store(true)
	return th.id(), r.String(), a.scribe.Remember(th.id(), p.Key, r)
}

// opened finds the root that was posted under a key.
func (a *Adapter) opened(ctx context.Context, channel, key string) (ts string, err error) {
	cursor := ""
	for range openPages {
		var page *slackapi.GetConversationHistoryResponse
		err := a.pace.do(ctx, "history", scribe.Normal, func(ctx context.Context) (err error) {
			page, err = a.api.GetConversationHistoryContext(ctx, &slackapi.GetConversationHistoryParameters{
				ChannelID: a.wire(channel), Cursor: cursor, Limit: 200, IncludeAllMetadata: true,
			})
			return err
		})
		if err != nil {
			if final(err) && !slices.Contains(gone, said(err)) {
				// A thread twice is better than none.
				a.log.WarnContext(ctx, "the channel's history cannot be read, so a thread may be opened twice after a crash", "channel", channel, "error", err)
				return "", nil
			}
			return "", a.explain("read", err)
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			if m.Metadata.EventType == metadataType && m.Metadata.EventPayload["open"] == key {
				return m.Timestamp, nil
			}
		}
		if cursor = page.ResponseMetaData.NextCursor; cursor == "" {
			break
		}
	}
	return "", nil
}

// openRoot posts the message under which the thread will be; where Slack refuses
// its blocks, as text.
func (a *Adapter) openRoot(ctx context.Context, channel, key string, p chat.Post, m blockkit.Message) (string, error) {
	ts, err := a.postRoot(ctx, channel, key, p, m)
	if !errors.Is(err, chat.ErrRejected) {
		return ts, err
	}
	text := blockkit.Plain(m.Blocks)
	if text == "" || len(text) > plainLimit {
		return "", err
	}
	a.log.WarnContext(ctx, "Slack refused a message; it is posted plainly", "channel", channel, "key", key, "error", err)
	return a.postRoot(ctx, channel, key, p, blockkit.Message{Text: blockkit.Escape(text)})
}

func (a *Adapter) postRoot(ctx context.Context, channel, key string, p chat.Post, m blockkit.Message) (ts string, err error) {
	o := append(options(m), slackapi.MsgOptionDisableLinkUnfurl(), slackapi.MsgOptionDisableMediaUnfurl(), slackapi.MsgOptionMetadata(slackapi.SlackMetadata{
		EventType: metadataType, EventPayload: map[string]any{"key": p.Key, "part": 0, "open": key},
	}))
	err = a.pace.do(ctx, "post/"+channel, scribe.UrgencyOf(p), func(ctx context.Context) (err error) {
		_, ts, err = a.api.PostMessageContext(ctx, a.wire(channel), o...)
		return err
	})
	return ts, a.explain(opening, err)
}
