package slack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/slack/blockkit"
)

// metadataType marks our messages, so that a post whose answer was lost can be
// found again in the thread's history.
const metadataType = "countersign_post"

// maxKeys bounds how many posts of a thread are remembered; older ones are
// found by the reference that the outbox keeps.
const maxKeys = 256

// view is what the adapter knows of one thread's messages. It is a cache: all of
// it can be lost at any moment.
type view struct {
	mu     sync.Mutex // held while a call for the thread is under way
	looked bool       // the history was read, or is not needed
	doubt  bool       // a call may have come through although it failed
	refs   map[string]ref
	order  []string
	log    *worklog
	drafts map[string]*draft
	asker  atomic.Pointer[string] // who spoke last, for streams

	faceMu sync.Mutex
	faces  map[string]uint64 // how often each message was written, by ts
}

// face counts how often a message was written.
func (v *view) face(ts string) uint64 {
	v.faceMu.Lock()
	defer v.faceMu.Unlock()
	return v.faces[ts]
}

// painted counts one more. Old messages are forgotten together: that can only
// make a late repaint stay away or come once too often.
func (v *view) painted(ts string) {
	v.faceMu.Lock()
	defer v.faceMu.Unlock()
	if v.faces == nil || len(v.faces) > maxKeys {
		v.faces = map[string]uint64{}
	}
	v.faces[ts]++
}

func (a *Adapter) view(id chat.ThreadID) *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.views[id]
	if v == nil {
		v = &view{refs: map[string]ref{}, drafts: map[string]*draft{}}
		a.views[id] = v
	}
	return v
}

func (v *view) remember(key string, r ref) {
	if _, ok := v.refs[key]; !ok {
		v.order = append(v.order, key)
		if len(v.order) > maxKeys {
			delete(v.refs, v.order[0])
			v.order = v.order[1:]
		}
	}
	v.refs[key] = r
}

func urgency(p chat.Post) priority {
	switch {
	case p.Card != nil && !p.Quiet:
		return first
	case p.Log:
		return quiet
	}
	return normal
}

// Post implements chat.Adapter.
func (a *Adapter) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	th, err := parseThread(t)
	if err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := a.look(ctx, th, v); err != nil {
		return "", err
	}
	if r, ok := v.refs[p.Key]; ok {
		r, err := a.replace(ctx, th, v, r, p)
		if !errors.Is(err, chat.ErrGone) {
			return r.String(), err
		}
		delete(v.refs, p.Key)
	}
	if p.Log && p.Card == nil {
		r, err := a.postLog(ctx, th, v, p)
		return r.String(), err
	}
	if v.drafts[p.Key] == nil && urgency(p) != first {
		if d := v.takeLog(); d != nil {
			v.drafts[p.Key] = d
		}
	}
	a.closeLog(ctx, th, v)
	r, err := a.postMessages(ctx, th, v, p)
	if err != nil {
		return "", err
	}
	return r.String(), nil
}

// render makes the messages of a post.
func render(p chat.Post) []blockkit.Message {
	if p.Card != nil {
		return []blockkit.Message{blockkit.Card(*p.Card, blockkit.CardOptions{})}
	}
	return blockkit.Reply(p.Text, p.Files)
}

func (a *Adapter) postMessages(ctx context.Context, th thread, v *view, p chat.Post) (ref, error) {
	msgs := render(p)
	prio := urgency(p)
	done := ref{channel: th.channel}
	if d := v.drafts[p.Key]; d != nil {
		// The draft that people have been reading becomes the post.
		delete(v.drafts, p.Key)
		a.endStream(ctx, th, d)
		switch err := a.update(ctx, th, d.ts, prio, msgs[0], mark(p.Key, 0)); {
		case err == nil:
			done.parts = append(done.parts, d.ts)
		case errors.Is(err, chat.ErrGone):
		default:
			v.drafts[p.Key] = d
			return ref{}, err
		}
	}
	if p.Card != nil {
		// A card whose command is in a file cannot be approved without the file.
		if err := a.attach(ctx, th, msgs[0].Files, prio); err != nil {
			if !errors.Is(err, chat.ErrRejected) {
				return ref{}, err
			}
			msgs[0] = unattached(*p.Card, err)
		}
		msgs[0].Files = nil
	}
	for i := len(done.parts); i < len(msgs); i++ {
		ts, err := a.send(ctx, th, prio, p.Key, i, msgs[i])
		if err != nil {
			v.doubt = v.doubt || uncertain(err)
			if len(done.parts) > 0 {
				v.remember(p.Key, done)
			}
			return ref{}, err
		}
		done.parts = append(done.parts, ts)
		v.remember(p.Key, done)
	}
	for _, m := range msgs {
		if err := a.attach(ctx, th, m.Files, prio); err != nil {
			if _, err := a.send(ctx, th, prio, p.Key+"/unattached", 0, blockkit.Message{Text: fmt.Sprintf("A file with the whole text could not be attached: %s", a.reason(err))}); err != nil {
				return ref{}, err
			}
			break
		}
	}
	v.remember(p.Key, done)
	return done, nil
}

// unattached is the face of a card whose file Slack did not take: what cannot be
// shown whole cannot be approved.
func unattached(c chat.Card, err error) blockkit.Message {
	c.Choose = slices.DeleteFunc(slices.Clone(c.Choose), func(b chat.Button) bool {
		return b.Style == chat.StyleApprove || b.Style == chat.StyleEdit
	})
	c.Warn = append(slices.Clone(c.Warn), "The whole command could not be attached ("+err.Error()+"), so it cannot be approved here: deny it, or have it done in smaller steps.")
	m := blockkit.Card(c, blockkit.CardOptions{})
	m.Files = nil
	return m
}

// attach uploads files into the thread.
func (a *Adapter) attach(ctx context.Context, th thread, files []chat.File, prio priority) error {
	for _, f := range files {
		name := f.Name
		if name == "" {
			name = "output.txt"
		}
		text := f.Text
		if text == "" {
			text = "\n" // Slack takes no empty file
		}
		err := a.pace.do(ctx, "post/"+th.channel, prio, func(ctx context.Context) error {
			_, err := a.api.UploadFileContext(ctx, slackapi.UploadFileParameters{
				Content: text, FileSize: len(text), Filename: name, Title: name, Channel: th.channel, ThreadTimestamp: th.root,
			})
			return err
		})
		if err != nil {
			return a.explain("upload", err)
		}
	}
	return nil
}

// Edit implements chat.Adapter.
func (a *Adapter) Edit(ctx context.Context, t chat.ThreadID, m chat.MessageRef, p chat.Post) error {
	th, err := parseThread(t)
	if err != nil {
		return err
	}
	r, err := parseRef(m)
	if err != nil {
		return err
	}
	if r.channel != th.channel {
		return fmt.Errorf("slack: the message %q is not in %s: %w", m, t, chat.ErrGone)
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.refs[p.Key]; ok && known.parts[0] == r.parts[0] {
		r = known
	}
	_, err = a.replace(ctx, th, v, r, p)
	return err
}

// replace gives a post that stands a new content.
func (a *Adapter) replace(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	if r.log {
		return a.replaceLog(ctx, th, v, r, p)
	}
	msgs := render(p)
	prio := urgency(p)
	done := ref{channel: r.channel}
	for i, m := range msgs {
		if i < len(r.parts) {
			v.painted(r.parts[i])
			if err := a.update(ctx, th, r.parts[i], prio, m); err != nil {
				return r, err
			}
			done.parts = append(done.parts, r.parts[i])
			continue
		}
		ts, err := a.send(ctx, th, prio, p.Key, i, m)
		if err != nil {
			return r, err
		}
		done.parts = append(done.parts, ts)
	}
	for _, ts := range r.parts[min(len(msgs), len(r.parts)):] {
		a.remove(ctx, th, ts)
	}
	v.remember(p.Key, done)
	return done, nil
}

// options are those of every message: in the thread, without previews, and
// with nothing in its text that Slack would parse.
func options(m blockkit.Message) []slackapi.MsgOption {
	o := []slackapi.MsgOption{
		slackapi.MsgOptionText(m.Text, false), slackapi.MsgOptionParse(false), slackapi.MsgOptionLinkNames(false),
		slackapi.MsgOptionDisableMarkdown(), slackapi.MsgOptionDisableLinkUnfurl(), slackapi.MsgOptionDisableMediaUnfurl(),
	}
	if len(m.Blocks) > 0 {
		o = append(o, slackapi.MsgOptionBlocks(m.Blocks...))
	}
	return o
}

// send posts one message. What Slack refuses is posted in plainer forms: as
// text, as a file, and in the end as a sentence that says so.
func (a *Adapter) send(ctx context.Context, th thread, prio priority, key string, part int, m blockkit.Message) (string, error) {
	ts, err := a.postOne(ctx, th, prio, key, part, m)
	if !errors.Is(err, chat.ErrRejected) {
		return ts, err
	}
	a.log.WarnContext(ctx, "Slack refused a message; it is posted plainly", "thread", th.id(), "key", key, "error", err)
	text := m.Text
	if full := blockkit.Plain(m.Blocks); full != "" {
		text = full
	}
	if len(text) <= plainLimit {
		if ts, err := a.postOne(ctx, th, prio, key, part, blockkit.Message{Text: blockkit.Escape(text)}); !errors.Is(err, chat.ErrRejected) {
			return ts, err
		}
	}
	note := "Slack did not accept the form of this message; it is in the attached file."
	if err := a.attach(ctx, th, []chat.File{{Name: "message.txt", Text: text}}, prio); err != nil {
		if !errors.Is(err, chat.ErrRejected) {
			return "", err
		}
		note = fmt.Sprintf("A message could not be shown here: Slack accepted it neither as text nor as a file (%s). Say `status` to see where I am.", a.reason(err))
	}
	return a.postOne(ctx, th, prio, key, part, blockkit.Message{Text: note})
}

// plainLimit is the length in bytes up to which text is posted plainly; more
// goes into a file. Slack recommends to stay below 4,000 characters
// (docs.slack.dev/reference/methods/chat.postMessage), and escapes take room.
const plainLimit = 2500

// mark names a message by its post's key.
func mark(key string, part int) slackapi.MsgOption {
	return slackapi.MsgOptionMetadata(slackapi.SlackMetadata{
		EventType: metadataType, EventPayload: map[string]any{"key": key, "part": part},
	})
}

func (a *Adapter) postOne(ctx context.Context, th thread, prio priority, key string, part int, m blockkit.Message) (string, error) {
	o := append(options(m), slackapi.MsgOptionTS(th.root), mark(key, part))
	var ts string
	err := a.pace.do(ctx, "post/"+th.channel, prio, func(ctx context.Context) error {
		_, posted, msg, err := a.api.PostMessageWithResponseContext(ctx, th.channel, o...)
		if err != nil {
			return err
		}
		ts = posted
		if msg.ThreadTimestamp != th.root && a.leaked(ctx, th, msg) {
			a.remove(ctx, th, posted)
			return fmt.Errorf("slack: a reply to %s arrived outside the thread and was removed: %w", th.id(), chat.ErrGone)
		}
		return nil
	})
	return ts, a.explain("post", err)
}

// leaked reports whether a reply stands outside its thread. Slack posts into the
// channel, without a word, when the thread's root is gone
// (github.com/slack-go/slack/issues/1571).
func (a *Adapter) leaked(ctx context.Context, th thread, msg slackapi.Message) bool {
	if msg.ThreadTimestamp != "" || msg.Timestamp == "" {
		return msg.ThreadTimestamp != ""
	}
	_, _, _, err := a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{ChannelID: th.channel, Timestamp: th.root, Limit: 1})
	var said slackapi.SlackErrorResponse
	return errors.As(err, &said) && said.Err == "thread_not_found"
}

func (a *Adapter) update(ctx context.Context, th thread, ts string, prio priority, m blockkit.Message, extra ...slackapi.MsgOption) error {
	err := a.updateOne(ctx, th, ts, prio, m, extra...)
	if !errors.Is(err, chat.ErrRejected) {
		return err
	}
	text := m.Text
	if full := blockkit.Plain(m.Blocks); full != "" && len(full) <= plainLimit {
		text = blockkit.Escape(full)
	}
	// An empty list of blocks takes the old ones away.
	return a.updateOne(ctx, th, ts, prio, blockkit.Message{Text: text}, extra...)
}

func (a *Adapter) updateOne(ctx context.Context, th thread, ts string, prio priority, m blockkit.Message, extra ...slackapi.MsgOption) error {
	o := append(options(m), extra...)
	if len(m.Blocks) == 0 {
		o = append(o, slackapi.MsgOptionBlocks([]slackapi.Block{}...))
	}
	err := a.pace.do(ctx, "update/"+th.channel, prio, func(ctx context.Context) error {
		_, _, _, err := a.api.UpdateMessageContext(ctx, th.channel, ts, o...)
		return err
	})
	return a.explain("edit", err)
}

// remove deletes a message of ours; that it stays is no reason to fail.
func (a *Adapter) remove(ctx context.Context, th thread, ts string) {
	if _, _, err := a.api.DeleteMessageContext(ctx, th.channel, ts); err != nil {
		a.log.WarnContext(ctx, "a message of the bot could not be removed", "thread", th.id(), "error", err)
	}
}

// look finds the posts of the thread that an earlier run, or a call whose
// answer was lost, left there.
func (a *Adapter) look(ctx context.Context, th thread, v *view) error {
	if !v.doubt && (v.looked || when(th.root).After(a.began)) {
		v.looked = true
		return nil
	}
	cursor := ""
	for range maxPages {
		var msgs []slackapi.Message
		var next string
		err := a.pace.do(ctx, "replies", normal, func(ctx context.Context) (err error) {
			msgs, _, next, err = a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
				ChannelID: th.channel, Timestamp: th.root, Cursor: cursor, Limit: 200, IncludeAllMetadata: true,
			})
			return err
		})
		if err != nil {
			var said slackapi.SlackErrorResponse
			if errors.As(err, &said) {
				// Without the right to read the history the bot goes on: a message
				// twice is better than none.
				a.log.WarnContext(ctx, "the thread's history cannot be read, so a message may appear twice after a crash", "thread", th.id(), "error", err)
				break
			}
			return a.explain("read", err)
		}
		for i := range msgs {
			v.found(th, &msgs[i])
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	v.looked, v.doubt = true, false
	return nil
}

// maxPages bounds how far a thread's history is read, in pages of 200.
const maxPages = 10

func (v *view) found(th thread, m *slackapi.Message) {
	if m.Metadata.EventType != metadataType {
		return
	}
	key, _ := m.Metadata.EventPayload["key"].(string)
	if key == "" || m.Metadata.EventPayload["log"] == true {
		return
	}
	part := 0
	switch n := m.Metadata.EventPayload["part"].(type) {
	case float64:
		part = int(n)
	case string:
		part, _ = strconv.Atoi(n)
	}
	r := v.refs[key]
	r.channel = th.channel
	if part == len(r.parts) {
		r.parts = append(slices.Clip(r.parts), m.Timestamp)
		v.remember(key, r)
	}
}

// gone and refused are Slack's words for what no repetition mends: the place is
// not there (any more), or this content is not accepted.
var (
	gone = []string{
		"channel_not_found", "thread_not_found", "message_not_found", "is_archived", "not_in_channel", "cant_update_message",
		"edit_window_closed", "user_not_found", "account_inactive", "cannot_reply_to_message", "channel_is_archived",
	}
	refused = []string{
		"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "invalid_attachments", "no_text", "too_many_attachments",
		"invalid_arguments", "invalid_arg_name", "invalid_json", "metadata_too_large", "invalid_metadata_format", "invalid_metadata_schema",
		"missing_scope", "restricted_action", "block_mismatch", "markdown_text_conflict", "unknown_method", "invalid_form_data",
		"file_uploads_disabled", "storage_limit_reached", "not_allowed_token_type", "method_deprecated", "no_permission", "access_denied",
	}
)

// explain says what an error means for a post: gone, refused, or worth another
// try.
func (a *Adapter) explain(what string, err error) error {
	if err == nil || errors.Is(err, chat.ErrGone) {
		return err
	}
	var limited *slackapi.RateLimitedError
	if errors.As(err, &limited) {
		return &chat.RateLimited{After: limited.RetryAfter}
	}
	var said slackapi.SlackErrorResponse
	word := err.Error()
	if errors.As(err, &said) {
		word = said.Err
	}
	switch {
	case slices.Contains(gone, word):
		return fmt.Errorf("slack: cannot %s (%s): %w", what, word, chat.ErrGone)
	case slices.Contains(refused, word):
		detail := strings.Join(said.ResponseMetadata.Messages, "; ")
		if said.Needed != "" {
			detail = "it needs the scope " + said.Needed
		}
		return fmt.Errorf("slack: cannot %s (%s %s): %w", what, word, detail, chat.ErrRejected)
	}
	return fmt.Errorf("slack: cannot %s: %w", what, err)
}

// reason is an error's word for people.
func (a *Adapter) reason(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": chat: "); i > 0 {
		s = s[:i]
	}
	return blockkit.Escape(strings.TrimPrefix(s, "slack: "))
}

// uncertain reports whether the call that failed may have come through.
func uncertain(err error) bool {
	var limited *chat.RateLimited
	var said slackapi.SlackErrorResponse
	return err != nil && !errors.Is(err, chat.ErrGone) && !errors.Is(err, chat.ErrRejected) && !errors.As(err, &limited) && !errors.As(err, &said)
}
