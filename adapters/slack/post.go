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
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
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
	placed bool       // the thread's root is there
	// turn is what [Config.Turn] said when this view was last right; behind, that what
	// changed with it was not done to its end; posting, that v.mu is held for a post.
	turn            uint64
	behind, posting bool
	unclean         bool // drafts that nobody writes could not be removed yet
	// theirs says that another replica was the last that began to post: it removes the
	// drafts that it finds, and none of ours is written then.
	theirs bool
	sought bool // who began the thread was looked up
	refs   map[string]ref
	order  []string
	files  map[string][]string // names of what was attached, by key
	log    *worklog
	logs   []*worklog // that were closed last
	drafts map[string]*draft
	asker  atomic.Pointer[string] // who spoke last, for streams
	used   time.Time              // guarded by Adapter.mu

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
		v = &view{refs: map[string]ref{}, files: map[string][]string{}, drafts: map[string]*draft{}}
		a.views[id] = v
	}
	v.used = time.Now()
	return v
}

// viewAge is how long a thread that nothing happens in is remembered.
const viewAge = time.Hour

// forget drops what is known of threads in which nothing happened for long; it
// can be read again from their history.
func (a *Adapter) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t, v := range a.views {
		if time.Since(v.used) > viewAge {
			delete(a.views, t)
		}
	}
}

func (v *view) remember(key string, r ref) {
	if _, ok := v.refs[key]; !ok {
		v.order = append(v.order, key)
		if len(v.order) > maxKeys {
			delete(v.refs, v.order[0])
			delete(v.files, v.order[0])
			v.order = v.order[1:]
		}
	}
	v.refs[key] = r
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
	if err := a.catchUp(ctx, th, v, true); err != nil {
		return "", err
	}
	if err := a.look(ctx, th, v, p.Key); err != nil {
		return "", err
	}
	if r, ok := v.refs[p.Key]; ok {
		r, err := a.again(ctx, th, v, r, p)
		if !errors.Is(err, chat.ErrGone) {
			return r.String(), err
		}
		delete(v.refs, p.Key)
	}
	if p.Log && p.Card == nil {
		r, err := a.postLog(ctx, th, v, p)
		return r.String(), err
	}
	a.sweep(ctx, th, v, p.Key)
	if v.drafts[p.Key] == nil && scribe.UrgencyOf(p) != scribe.First {
		if d := v.takeLog(p.Key); d != nil {
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

// again posts a key a second time: after a crash, or an answer that was lost.
func (a *Adapter) again(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	delete(v.drafts, p.Key) // it was found as the message itself
	if r.Log && v.logAt(r.Parts[0]) == nil {
		return r, nil // it stands in a log of which the rest is not known any more
	}
	r, err := a.replace(ctx, th, v, r, p)
	if err != nil || r.Log || p.Card != nil {
		return r, err // a card's files were there before it
	}
	return r, a.attachAll(ctx, th, v, p.Key, scribe.UrgencyOf(p), render(p))
}

// sweep removes the drafts that have ended and that no post will take over:
// posts come in order, and this one is another. One that nothing came to for a while
// belongs to a turn that another replica went on with; if it does not, another begins.
func (a *Adapter) sweep(ctx context.Context, th thread, v *view, except string) {
	for key, d := range v.drafts {
		if key == except || !d.done && (a.cfg.Turn == nil || time.Since(d.touched) < a.times.idle) {
			continue
		}
		delete(v.drafts, key)
		if err := a.endStream(ctx, th, d); err != nil {
			a.log.WarnContext(ctx, "a draft could not be ended", "thread", th.id(), "error", err)
		}
		a.remove(ctx, th, d.ts)
	}
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
	prio := scribe.UrgencyOf(p)
	done := ref{Ref: scribe.Ref{Channel: th.channel}}
	if d := v.drafts[p.Key]; d != nil {
		// The draft that people have been reading becomes the post.
		err := a.endStream(ctx, th, d)
		if err == nil {
			err = a.update(ctx, th, d.ts, prio, msgs[0], mark(p.Key, 0))
		}
		var said slackapi.SlackErrorResponse
		switch {
		case err == nil:
			done.Parts = append(done.Parts, d.ts)
			v.remember(p.Key, done)
		case errors.Is(err, chat.ErrGone):
		case errors.As(err, &said) && !slices.Contains(passes, said.Err):
			// Slack does not let the draft become the post.
			a.log.WarnContext(ctx, "a draft could not become its post and is replaced", "thread", th.id(), "error", err)
			a.remove(ctx, th, d.ts)
		default:
			return ref{}, err
		}
		delete(v.drafts, p.Key)
	}
	if p.Card != nil {
		// A card whose command is in a file cannot be approved without the file.
		if len(msgs[0].Files) > 0 {
			if err := a.place(ctx, th, v); err != nil {
				return ref{}, err
			}
		}
		if err := a.attach(ctx, th, msgs[0].Files, prio); err != nil {
			if !errors.Is(err, chat.ErrRejected) {
				return ref{}, err
			}
			msgs[0] = unattached(*p.Card, err)
		}
		msgs[0].Files = nil
	}
	for i := len(done.Parts); i < len(msgs); i++ {
		ts, err := a.send(ctx, th, prio, p.Key, i, msgs[i])
		if err != nil {
			v.doubt = v.doubt || uncertain(err)
			if len(done.Parts) > 0 {
				v.remember(p.Key, done)
			}
			return ref{}, err
		}
		v.placed = true
		done.Parts = append(done.Parts, ts)
		v.remember(p.Key, done)
	}
	return done, a.attachAll(ctx, th, v, p.Key, prio, msgs)
}

// attachAll uploads the files of a post that are not there yet. That Slack takes
// one not is said in the thread.
func (a *Adapter) attachAll(ctx context.Context, th thread, v *view, key string, prio scribe.Urgency, msgs []blockkit.Message) error {
	for _, m := range msgs {
		for _, f := range m.Files {
			if slices.Contains(v.files[key], f.Name) {
				continue
			}
			err := a.attach(ctx, th, []chat.File{f}, prio)
			if errors.Is(err, chat.ErrRejected) {
				_, err = a.send(ctx, th, prio, key+"/unattached", 0, blockkit.Message{Text: fmt.Sprintf("The file %s could not be attached: %s", blockkit.Escape(f.Name), a.reason(err))})
			}
			if err != nil {
				v.doubt = v.doubt || uncertain(err)
				return err
			}
			v.files[key] = append(v.files[key], f.Name)
		}
	}
	return nil
}

// place makes sure that the thread is there, before something goes into it whose
// answer does not say where it went: Slack posts into the channel when the root
// was deleted.
func (a *Adapter) place(ctx context.Context, th thread, v *view) error {
	if v.placed {
		return nil
	}
	err := a.pace.do(ctx, "replies", scribe.Normal, func(ctx context.Context) error {
		_, _, _, err := a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{ChannelID: th.channel, Timestamp: th.root, Limit: 1})
		return err
	})
	var said slackapi.SlackErrorResponse
	if err = a.explain("read", err); err != nil && (errors.Is(err, chat.ErrGone) || !errors.As(err, &said)) {
		return err
	}
	v.placed = true
	return nil
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
func (a *Adapter) attach(ctx context.Context, th thread, files []chat.File, prio scribe.Urgency) error {
	for _, f := range files {
		name := f.Name
		if name == "" {
			name = "output.txt"
		}
		text := string(f.Content())
		if text == "" {
			text = "\n" // Slack takes no empty file
		}
		err := a.pace.do(ctx, "post/"+th.channel, prio, func(ctx context.Context) error {
			if err := a.still(ctx, th.id()); err != nil {
				return err
			}
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
	if r.Channel != th.channel {
		return fmt.Errorf("slack: the message %q is not in %s: %w", m, t, chat.ErrGone)
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := a.catchUp(ctx, th, v, true); err != nil {
		return err
	}
	if known, ok := v.refs[p.Key]; ok && known.Parts[0] == r.Parts[0] {
		r = known
	}
	if v.doubt || a.cfg.Turn != nil && !v.looked {
		if err := a.look(ctx, th, v, ""); err != nil {
			if v.doubt {
				return err
			}
			a.log.InfoContext(ctx, "the thread's history is read later", "thread", t, "error", err)
		}
		if known, ok := v.refs[p.Key]; ok && known.Parts[0] == r.Parts[0] {
			r = known
		}
	}
	_, err = a.replace(ctx, th, v, r, p)
	return err
}

// replace gives a post that stands a new content.
func (a *Adapter) replace(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	if r.Log {
		return a.replaceLog(ctx, th, v, r, p)
	}
	msgs := render(p)
	prio := scribe.UrgencyOf(p)
	done := ref{Ref: scribe.Ref{Channel: r.Channel}}
	for i, m := range msgs {
		if i < len(r.Parts) {
			v.painted(r.Parts[i])
			var marked []slackapi.MsgOption
			if i == 0 && r.draft {
				marked = append(marked, mark(p.Key, 0))
			}
			if err := a.update(ctx, th, r.Parts[i], prio, m, marked...); err != nil {
				return r, err
			}
			done.Parts = append(done.Parts, r.Parts[i])
			continue
		}
		ts, err := a.send(ctx, th, prio, p.Key, i, m)
		if err != nil {
			v.doubt = v.doubt || uncertain(err)
			v.remember(p.Key, done)
			return done, err
		}
		done.Parts = append(done.Parts, ts)
	}
	for _, ts := range r.Parts[min(len(msgs), len(r.Parts)):] {
		a.remove(ctx, th, ts)
	}
	v.remember(p.Key, done)
	return done, nil
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

// send posts one message. What Slack refuses is posted in plainer forms: as
// text, as a file, and in the end as a sentence that says so.
func (a *Adapter) send(ctx context.Context, th thread, prio scribe.Urgency, key string, part int, m blockkit.Message) (string, error) {
	ts, err := a.postOne(ctx, th, prio, key, part, m)
	if bare, ok := m.WithoutInput(); ok && errors.Is(err, chat.ErrRejected) {
		m = bare // a card keeps its buttons
		ts, err = a.postOne(ctx, th, prio, key, part, m)
	}
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

func (a *Adapter) postOne(ctx context.Context, th thread, prio scribe.Urgency, key string, part int, m blockkit.Message) (string, error) {
	return a.postMarked(ctx, th, prio, m, mark(key, part))
}

// postMarked posts one message in the thread, and nowhere else.
func (a *Adapter) postMarked(ctx context.Context, th thread, prio scribe.Urgency, m blockkit.Message, marked slackapi.MsgOption) (string, error) {
	o := append(options(m), slackapi.MsgOptionTS(th.root), slackapi.MsgOptionDisableLinkUnfurl(), slackapi.MsgOptionDisableMediaUnfurl(), marked)
	var ts string
	err := a.pace.do(ctx, "post/"+th.channel, prio, func(ctx context.Context) error {
		if err := a.still(ctx, th.id()); err != nil {
			return err
		}
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
	if err == nil {
		a.cleared(th.id())
	}
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

func (a *Adapter) update(ctx context.Context, th thread, ts string, prio scribe.Urgency, m blockkit.Message, extra ...slackapi.MsgOption) error {
	err := a.updateOne(ctx, th, ts, prio, m, extra...)
	if bare, ok := m.WithoutInput(); ok && errors.Is(err, chat.ErrRejected) {
		m = bare
		err = a.updateOne(ctx, th, ts, prio, m, extra...)
	}
	if !errors.Is(err, chat.ErrRejected) {
		return err
	}
	text, full := m.Text, blockkit.Plain(m.Blocks)
	if full != "" && len(full) <= plainLimit {
		text = blockkit.Escape(full)
	}
	// An empty list of blocks takes the old ones away.
	if err := a.updateOne(ctx, th, ts, prio, blockkit.Message{Text: text}, extra...); err != nil || len(full) <= plainLimit {
		return err
	}
	if err := a.attach(ctx, th, []chat.File{{Name: "message.txt", Text: full}}, prio); err != nil {
		a.log.WarnContext(ctx, "a message that Slack accepted only as an abstract could not be attached", "thread", th.id(), "error", err)
	}
	return nil
}

func (a *Adapter) updateOne(ctx context.Context, th thread, ts string, prio scribe.Urgency, m blockkit.Message, extra ...slackapi.MsgOption) error {
	o := append(options(m), extra...)
	if len(m.Blocks) == 0 {
		o = append(o, slackapi.MsgOptionBlocks([]slackapi.Block{}...))
	}
	err := a.pace.do(ctx, "update/"+th.channel, prio, func(ctx context.Context) error {
		if err := a.still(ctx, th.id()); err != nil {
			return err
		}
		_, _, _, err := a.api.UpdateMessageContext(ctx, th.channel, ts, o...)
		return err
	})
	return a.explain("edit", err)
}

// Retract implements chat.Retracter. Another replica has the thread's turn, which does not
// matter here: it does not know of these messages.
func (a *Adapter) Retract(ctx context.Context, t chat.ThreadID, key string, twice, kept chat.MessageRef) error {
	th, err := parseThread(t)
	if err != nil {
		return err
	}
	mine, err := parseRef(twice)
	if err != nil || mine.Log { // a line of the log shares its message
		return err
	}
	theirs, err := parseRef(kept)
	if err != nil {
		return err
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.refs[key]; ok && known.String() == twice {
		v.refs[key] = theirs
	}
	for _, ts := range mine.Parts {
		if slices.Contains(theirs.Parts, ts) {
			continue
		}
		derr := a.pace.do(ctx, "delete/"+th.channel, scribe.First, func(ctx context.Context) error {
			_, _, err := a.api.DeleteMessageContext(ctx, th.channel, ts)
			return err
		})
		var said slackapi.SlackErrorResponse
		if errors.As(derr, &said) && said.Err == "message_not_found" {
			continue
		}
		err = errors.Join(err, a.explain("remove a message that was posted twice", derr))
	}
	return err
}

// remove deletes a message of ours; that it stays is no reason to fail.
func (a *Adapter) remove(ctx context.Context, th thread, ts string) {
	err := a.still(ctx, th.id())
	if err == nil {
		_, _, err = a.api.DeleteMessageContext(ctx, th.channel, ts)
	}
	if err != nil {
		a.log.WarnContext(ctx, "a message of the bot could not be removed", "thread", th.id(), "error", err)
	}
}

// look finds the posts of the thread that an earlier run, another replica, or a call
// whose answer was lost, left there, and removes the drafts among them: key is of the
// post that comes next, which may take its own over.
func (a *Adapter) look(ctx context.Context, th thread, v *view, key string) error {
	fresh := a.cfg.Turn == nil && when(th.root).After(a.began.Add(margin)) && a.now().Sub(when(th.root)) < viewAge
	if !v.doubt && (v.looked || fresh) {
		v.looked = true
		return nil
	}
	cursor, last := "", ""
	var left orphans
	var next *slackapi.Message
	for range maxPages {
		var msgs []slackapi.Message
		var more string
		err := a.pace.do(ctx, "replies", scribe.Normal, func(ctx context.Context) (err error) {
			msgs, _, more, err = a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
				ChannelID: th.channel, Timestamp: th.root, Cursor: cursor, Limit: 200, IncludeAllMetadata: true,
			})
			return err
		})
		if err != nil {
			var said slackapi.SlackErrorResponse
			if errors.As(err, &said) && !slices.Contains(passes, said.Err) {
				// Without the right to read the history the bot goes on: a message
				// twice is better than none.
				a.log.WarnContext(ctx, "the thread's history cannot be read, so a message may appear twice after a crash", "thread", th.id(), "error", err)
				break
			}
			return a.explain("read", err)
		}
		for i := range msgs {
			m := &msgs[i]
			switch {
			case left.see(a, th, v, m):
				if m.Metadata.EventPayload["draft"] == true && m.Metadata.EventPayload["key"] == key {
					next = m
				}
			case m.Metadata.EventType == metadataType:
				last = orElse(v.found(th, m), last)
			case len(m.Files) > 0 && m.BotID == a.self().bot:
				for _, f := range m.Files {
					v.files[last] = append(v.files[last], f.Name)
				}
			}
		}
		if cursor = more; cursor == "" {
			break
		}
	}
	kept, err := left.clear(ctx, a, th, key)
	if err != nil {
		a.log.WarnContext(ctx, "what nobody writes any more stays until the thread's next post", "thread", th.id(), "error", err)
	}
	if next != nil && next.Timestamp == kept {
		v.found(th, next)
	}
	// The post is more than the tidiness of its thread, which is tried again with the next.
	v.looked, v.unclean, v.doubt = err == nil, err != nil, false
	return nil
}

// writes reports whether a message is one that is being written here.
func (v *view) writes(ts string) bool {
	if v.log != nil && v.log.ts == ts {
		return true
	}
	for _, d := range v.drafts {
		if d.ts == ts {
			return true
		}
	}
	return false
}

// passes are Slack's words for troubles of its own.
var passes = []string{"internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited"}

// maxPages bounds how far a thread's history is read, in pages of 200.
const maxPages = 10

// found remembers a message of ours that stands in the thread, and returns its
// key.
func (v *view) found(th thread, m *slackapi.Message) string {
	if keys, ok := m.Metadata.EventPayload["log"].([]any); ok {
		for _, k := range keys {
			e, _ := k.(map[string]any)
			if key, _ := e["key"].(string); key != "" {
				v.remember(key, ref{Ref: scribe.Ref{Channel: th.channel, Parts: []string{m.Timestamp}, Log: true}})
			}
		}
		return ""
	}
	key, _ := m.Metadata.EventPayload["key"].(string)
	if key == "" {
		return ""
	}
	part := 0
	switch n := m.Metadata.EventPayload["part"].(type) {
	case float64:
		part = int(n)
	case string:
		part, _ = strconv.Atoi(n)
	}
	r := v.refs[key]
	r.Channel = th.channel
	r.draft = r.draft || m.Metadata.EventPayload["draft"] == true
	if part == len(r.Parts) {
		r.Parts = append(slices.Clip(r.Parts), m.Timestamp)
		v.remember(key, r)
	}
	return key
}

// gone and refused are Slack's words for what no repetition mends: the place is
// not there (any more), or this content is not accepted.
var (
	gone = []string{
		"channel_not_found", "thread_not_found", "message_not_found", "is_archived", "not_in_channel", "cant_update_message",
		"edit_window_closed", "user_not_found", "is_inactive", "cannot_reply_to_message", "channel_is_archived",
	}
	refused = []string{
		"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "invalid_attachments", "no_text", "too_many_attachments",
		"invalid_arguments", "invalid_arg_name", "invalid_json", "metadata_too_large", "invalid_metadata_format", "invalid_metadata_schema",
		"missing_scope", "restricted_action", "block_mismatch", "markdown_text_conflict", "unknown_method", "invalid_form_data",
		"file_uploads_disabled", "storage_limit_reached", "method_deprecated", "no_permission", "access_denied",
	}
)

// explain says what an error means for a post: gone, refused, or worth another
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
	_, said := errors.AsType[slackapi.SlackErrorResponse](err)
	return !said && scribe.Uncertain(err)
}
