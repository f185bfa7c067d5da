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

// metadataType marks our messages, so that a post whose answer was lost can be
// found again in the thread's history.
const metadataType = "countersign_post"

// Post implements chat.Adapter.
func (a *Adapter) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	return a.scribe.Post(ctx, t, p)
}

// Edit implements chat.Adapter.
func (a *Adapter) Edit(ctx context.Context, t chat.ThreadID, m chat.MessageRef, p chat.Post) error {
	return a.scribe.Edit(ctx, t, m, p)
}

// ShowProgress implements chat.ProgressShower.
func (a *Adapter) ShowProgress(ctx context.Context, t chat.ThreadID, p chat.Progress) {
	a.scribe.ShowProgress(ctx, t, p)
}

// Retract implements chat.Retracter.
func (a *Adapter) Retract(ctx context.Context, t chat.ThreadID, key string, twice, kept chat.MessageRef) error {
	return a.scribe.Retract(ctx, t, key, twice, kept)
}

// JoinsLog implements chat.LogJoiner.
func (a *Adapter) JoinsLog() {}

// always is [scribe.Call.May] of a call that nothing forbids.
func always(context.Context) error { return nil }

// call calls Slack when its turn in a lane of the channel comes, if this process may still
// write in the thread.
func (p *page) call(ctx context.Context, c scribe.Call, lane string, do func(context.Context) error) error {
	return p.a.pace.do(ctx, lane+"/"+p.th.channel, c.Urgency, func(ctx context.Context) error {
		if err := c.May(ctx); err != nil {
			return err
		}
		return do(ctx)
	})
}

// read reads some of the thread's messages.
func (p *page) read(ctx context.Context, u scribe.Urgency, which slackapi.GetConversationRepliesParameters) (msgs []slackapi.Message, err error) {
	which.ChannelID, which.Timestamp = p.a.wire(p.th.channel), p.th.root
	err = p.a.pace.do(ctx, "replies", u, func(ctx context.Context) (err error) {
		msgs, _, _, err = p.a.api.GetConversationRepliesContext(ctx, &which)
		return err
	})
	return msgs, err
}

// place makes sure that the thread is there, before something goes into it whose
// answer does not say where it went: Slack posts into the channel when the root
// was deleted.
func (p *page) place(ctx context.Context) error {
	if p.placed.Load() {
		return nil
	}
	_, err := p.read(ctx, scribe.Normal, slackapi.GetConversationRepliesParameters{Limit: 1})
	refused := said(err) != ""
	if err = p.explain("read", err); err != nil && (errors.Is(err, chat.ErrGone) || errors.Is(err, chat.ErrClosed) || !refused) {
		return err
	}
	p.placed.Store(true)
	return nil
}

// unattached is the face of a card whose file Slack did not take: what cannot be
// shown whole cannot be approved.
func unattached(c chat.Card, err error) blockkit.Message {
	c.Choose = slices.DeleteFunc(slices.Clone(c.Choose), func(b chat.Button) bool {
		return b.Style == chat.StyleApprove || b.Style == chat.StyleEdit
	})
	c.Warn = append(slices.Clone(c.Warn), sayNotAttached(err))
	m := blockkit.Card(c, blockkit.CardOptions{})
	m.Files = nil
	return m
}

// attach uploads files into the thread.
func (p *page) attach(ctx context.Context, c scribe.Call, files []chat.File) error {
	for _, f := range files {
		name := orElse(f.Name, "output.txt")
		text := orElse(string(f.Content()), "\n") // Slack takes no empty file
		err := p.call(ctx, c, "post", func(ctx context.Context) error {
			_, err := p.a.api.UploadFileContext(ctx, slackapi.UploadFileParameters{
				Content: text, FileSize: len(text), Filename: name, Title: name, Channel: p.a.wire(p.th.channel), ThreadTimestamp: p.th.root,
			})
			return err
		})
		if err != nil {
			return p.a.explain(uploading, err)
		}
	}
	return nil
}

// options are those of every message: with nothing in its text that Slack would
// parse.
func options(m blockkit.Message) []slackapi.MsgOption {
	o := []slackapi.MsgOption{
		slackapi.MsgOptionText(m.Text, false), slackapi.MsgOptionParse(false), slackapi.MsgOptionLinkNames(false),
		slackapi.MsgOptionDisableMarkdown(),
	}
	if len(m.Blocks) > 0 {
		o = append(o, slackapi.MsgOptionBlocks(m.Blocks...))
	}
	return o
}

// mark says what a message is, so that it can be found again.
func mark(c scribe.Call) slackapi.MsgOption {
	payload := map[string]any{"key": c.Key, "part": c.Part}
	switch {
	case c.Kind == scribe.Draft:
		payload["draft"] = true
	case c.Kind == scribe.Log && len(c.Lines) > 0:
		var keys []map[string]any // a list in metadata holds objects alone
		for _, key := range c.Lines {
			keys = append(keys, map[string]any{"key": key})
		}
		payload = map[string]any{"log": keys}
	case c.Kind == scribe.Log && c.Key == "":
		payload = map[string]any{"passing": true}
	}
	return slackapi.MsgOptionMetadata(slackapi.SlackMetadata{EventType: metadataType, EventPayload: payload})
}

// postPlainer posts one message. What Slack refuses is posted in plainer forms: as
// text, as a file, and in the end as a sentence that says so.
func (p *page) postPlainer(ctx context.Context, c scribe.Call, m blockkit.Message) (string, error) {
	ts, err := p.post(ctx, c, m)
	if bare, ok := p.older(m, err); ok {
		m = bare // a card keeps its buttons
		ts, err = p.post(ctx, c, m)
	}
	if !errors.Is(err, chat.ErrRejected) {
		return ts, err
	}
	p.a.log.WarnContext(ctx, "Slack refused a message; it is posted plainly", "thread", p.th.id(), "key", c.Key, "error", err)
	text := plainForm(m, c.Post)
	if len(text) <= plainLimit {
		if ts, err := p.post(ctx, c, blockkit.Message{Text: blockkit.Escape(text)}); !errors.Is(err, chat.ErrRejected) {
			return ts, err
		}
	}
	note := sayInFile
	if err := p.attach(ctx, c, []chat.File{{Name: "message.txt", Text: text}}); err != nil {
		if !errors.Is(err, chat.ErrRejected) {
			return "", err
		}
		note = fmt.Sprintf(sayNotShown, reason(err))
	}
	return p.post(ctx, c, blockkit.Message{Text: note})
}

// plainForm is a message whose blocks were refused, as text. Without its buttons a card that waits is
// decided by words.
func plainForm(m blockkit.Message, p chat.Post) string {
	text := orElse(blockkit.Plain(m.Blocks), m.Text)
	if id, ok := strings.CutPrefix(p.Key, chat.CardPrefix); ok && p.Card != nil && !p.Card.Final {
		text += "\n" + fmt.Sprintf(sayByWord, id, id)
	}
	return text
}

// known is a message in the form that this workspace is known to accept.
func (p *page) known(m blockkit.Message) blockkit.Message {
	if p.a.noPlan.Load() {
		m, _ = m.WithoutPlan()
	}
	return m
}

// older is the form of a message that older Slacks accept, where it was refused and has one.
func (p *page) older(m blockkit.Message, err error) (blockkit.Message, bool) {
	if !errors.Is(err, chat.ErrRejected) {
		return m, false
	}
	if bare, ok := m.WithoutPlan(); ok {
		p.a.noPlan.Store(true)
		return bare, true
	}
	return m.WithoutInput()
}

// plainLimit is the length in bytes up to which text is posted plainly; more
// goes into a file. Slack recommends to stay below 4,000 characters
// (docs.slack.dev/reference/methods/chat.postMessage), and escapes take room.
const plainLimit = 2500

// post posts one message in the thread, and nowhere else.
func (p *page) post(ctx context.Context, c scribe.Call, m blockkit.Message) (ts string, err error) {
	o := append(options(p.known(m)), slackapi.MsgOptionTS(p.th.root), slackapi.MsgOptionDisableLinkUnfurl(), slackapi.MsgOptionDisableMediaUnfurl(), mark(c))
	err = p.call(ctx, c, "post", func(ctx context.Context) error {
		_, posted, msg, err := p.a.api.PostMessageWithResponseContext(ctx, p.a.wire(p.th.channel), o...)
		if err != nil {
			return err
		}
		ts = posted
		if msg.ThreadTimestamp != p.th.root && p.leaked(ctx, msg) {
			if _, _, err := p.a.api.DeleteMessageContext(ctx, p.a.wire(p.th.channel), posted); err != nil {
				p.a.log.WarnContext(ctx, "a message of the bot could not be removed", "thread", p.th.id(), "error", err)
			}
			return fmt.Errorf("slack: a reply to %s arrived outside the thread and was removed: %w", p.th.id(), chat.ErrGone)
		}
		return nil
	})
	if err == nil {
		p.cleared()
	}
	return ts, p.explain("post", err)
}

// leaked reports whether a reply stands outside its thread. Slack posts into the
// channel, without a word, when the thread's root is gone
// (github.com/slack-go/slack/issues/1571).
func (p *page) leaked(ctx context.Context, msg slackapi.Message) bool {
	if msg.ThreadTimestamp != "" || msg.Timestamp == "" {
		return msg.ThreadTimestamp != ""
	}
	_, _, _, err := p.a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{ChannelID: p.a.wire(p.th.channel), Timestamp: p.th.root, Limit: 1})
	return said(err) == "thread_not_found"
}

// writePlainer gives a message a new content. What Slack refuses becomes text, and a file
// where that is long.
func (p *page) writePlainer(ctx context.Context, c scribe.Call, ts string, m blockkit.Message) error {
	err := p.write(ctx, c, ts, m)
	if bare, ok := p.older(m, err); ok {
		m = bare
		err = p.write(ctx, c, ts, m)
	}
	if !errors.Is(err, chat.ErrRejected) {
		return err
	}
	text, full := m.Text, plainForm(m, c.Post)
	if len(full) <= plainLimit {
		text = blockkit.Escape(full)
	}
	if err := p.write(ctx, c, ts, blockkit.Message{Text: text}); err != nil || len(full) <= plainLimit {
		return err
	}
	if err := p.attach(ctx, c, []chat.File{{Name: "message.txt", Text: full}}); err != nil {
		p.a.log.WarnContext(ctx, "a message that Slack accepted only as an abstract could not be attached", "thread", p.th.id(), "error", err)
	}
	return nil
}

// write gives a message a new content, and a new mark where it changes what it is.
func (p *page) write(ctx context.Context, c scribe.Call, ts string, m blockkit.Message) error {
	o := options(p.known(m))
	if len(m.Blocks) == 0 { // an empty list takes the old ones away
		o = append(o, slackapi.MsgOptionBlocks([]slackapi.Block{}...))
	}
	if c.Kind == scribe.Draft || c.Convert || len(c.Lines) > 0 {
		o = append(o, mark(c))
	}
	err := p.call(ctx, c, "update", func(ctx context.Context) error {
		_, _, _, err := p.a.api.UpdateMessageContext(ctx, p.a.wire(p.th.channel), ts, o...)
		return err
	})
	return p.explain("edit", err)
}

// passes are Slack's words for troubles of its own.
var passes = []string{"internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited"}

// said is Slack's word for an error, "" where Slack did not answer.
func said(err error) string {
	answer, _ := errors.AsType[slackapi.SlackErrorResponse](err)
	return answer.Err
}

// final reports whether Slack answered, and would always answer so.
func final(err error) bool { return said(err) != "" && !slices.Contains(passes, said(err)) }

// maxPages bounds how far a thread's history is read, in pages of 200.
const maxPages = 10

// gone and refused are Slack's words for what no repetition changes: the place is not there
// (any more), or this content is not accepted. closed are those for a channel that people can
// open again; a private one that the bot was removed from is not found, see [page.explain].
var (
	gone = []string{
		"channel_not_found", "thread_not_found", "message_not_found", "cant_update_message", "edit_window_closed", "user_not_found", "cannot_reply_to_message",
	}
	closed = []string{
		"is_archived", "channel_is_archived", "is_inactive", "not_in_channel", "restricted_action", "restricted_action_read_only_channel",
		"restricted_action_thread_only_channel", "restricted_action_non_threadable_channel", "no_permission", "access_denied",
	}
	refused = []string{
		"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "invalid_attachments", "no_text", "too_many_attachments",
		"invalid_arguments", "invalid_arg_name", "invalid_json", "metadata_too_large", "invalid_metadata_format", "invalid_metadata_schema",
		"missing_scope", "block_mismatch", "markdown_text_conflict", "unknown_method", "invalid_form_data",
		"file_uploads_disabled", "storage_limit_reached", "method_deprecated",
	}
)

// What explain treats apart.
const (
	opening   = "open a thread"
	uploading = "upload"
)

// explain says what an error means for a post: gone, closed, refused, or worth another
// try.
func (a *Adapter) explain(what string, err error) error {
	if err == nil || errors.Is(err, chat.ErrGone) {
		return err
	}
	if limited, ok := errors.AsType[*slackapi.RateLimitedError](err); ok {
		return &chat.RateLimitedError{After: limited.RetryAfter}
	}
	var said slackapi.SlackErrorResponse
	word := err.Error()
	if errors.As(err, &said) {
		word = said.Err
	}
	switch {
	case slices.Contains(gone, word):
		return fmt.Errorf("slack: cannot %s (%s): %w", what, word, chat.ErrGone)
	case slices.Contains(closed, word):
		as := chat.ErrClosed
		switch what {
		case opening: // nothing is kept of a thread that does not begin
			as = chat.ErrGone
		case uploading: // the text can be posted without its file
			as = chat.ErrRejected
		}
		return fmt.Errorf("slack: cannot %s (%s): %w", what, word, as)
	case slices.Contains(refused, word):
		detail := strings.Join(said.ResponseMetadata.Messages, "; ")
		if said.Needed != "" {
			detail = "it needs the scope " + said.Needed
		}
		return fmt.Errorf("slack: cannot %s (%s %s): %w", what, word, detail, chat.ErrRejected)
	}
	return fmt.Errorf("slack: cannot %s: %w", what, err)
}

// explain is Adapter.explain for a thread: Slack does not find a private channel that the bot
// was removed from, and one in which the bot took part is not taken for gone. Nor is a deleted
// one, which Slack tells by nothing else: what is for it waits as long as for a closed one.
func (p *page) explain(what string, err error) error {
	if said(err) == "channel_not_found" && (p.placed.Load() || p.joined()) {
		return fmt.Errorf("slack: cannot %s (channel_not_found): %w", what, chat.ErrClosed)
	}
	return p.a.explain(what, err)
}

// joined reports whether the bot took part in the thread, maybe before its last start.
func (p *page) joined() bool {
	ctx, cancel := context.WithTimeout(context.Background(), knownWithin)
	defer cancel()
	known, err := p.a.cfg.Known(ctx, p.th.id())
	return known && err == nil
}

// knownWithin bounds a look into the store.
const knownWithin = 5 * time.Second

// reason is an error's word for people.
func reason(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": chat: "); i > 0 {
		s = s[:i]
	}
	return blockkit.Escape(strings.TrimPrefix(s, "slack: "))
}

// uncertain reports whether the call that failed may have come through.
func uncertain(err error) bool { return said(err) == "" && scribe.Uncertain(err) }
