package slack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/slack/blockkit"
)

// showEvery is the pace of edits that people only watch; Slack allows about one
// a second in a channel.
const showEvery = time.Second

// showAfter is how long something lasts before it is shown at all: what is over
// sooner needs no sign of life, and in a burst its calls would be in the way.
const showAfter = 300 * time.Millisecond

// statusAge is how often a status that stays is set again: Slack takes it away
// after two minutes (docs.slack.dev/reference/methods/assistant.threads.setStatus).
const statusAge = 90 * time.Second

// tidyAfter is how long the post of a draft may be under way. Later it is another
// message.
const tidyAfter = 30 * time.Second

// idleAfter is as long as it takes replicas to call one dead.
const idleAfter = 3 * time.Second

// worklog is one message that is edited in place while the agent works: what
// ran and how it ended, and at its end what runs now. A busy turn is one
// message that notifies once, not twenty.
type worklog struct {
	ts      string
	entries []entry
	status  string
}

type entry struct {
	key  string
	text string // Markdown
	live bool   // it still runs; the post with its key takes its place
}

func (l *worklog) markdown() string {
	var parts []string
	for _, e := range l.entries {
		parts = append(parts, e.text)
	}
	if l.status != "" {
		parts = append(parts, "_"+blockkit.EscapeMarkdown(l.status)+"…_")
	}
	return strings.Join(parts, "\n\n")
}

func (l *worklog) put(e entry) {
	for i := range l.entries {
		if l.entries[i].key == e.key {
			l.entries[i] = e
			return
		}
	}
	l.entries = append(l.entries, e)
}

// mark names the posts in the log, so that they can be found again.
func (l *worklog) mark() slackapi.MsgOption {
	payload := map[string]any{"passing": true}
	var keys []map[string]any // a list in metadata holds objects alone
	for _, e := range l.entries {
		if !e.live {
			keys = append(keys, map[string]any{"key": e.key})
		}
	}
	if len(keys) > 0 {
		payload = map[string]any{"log": keys}
	}
	return slackapi.MsgOptionMetadata(slackapi.SlackMetadata{EventType: metadataType, EventPayload: payload})
}

// one renders the log if it still is one message.
func (l *worklog) one() (blockkit.Message, bool) {
	msgs := blockkit.Reply(l.markdown(), nil)
	if len(msgs) != 1 || len(msgs[0].Files) > 0 {
		return blockkit.Message{}, false
	}
	return msgs[0], true
}

// postLog adds a post to the log.
func (a *Adapter) postLog(ctx context.Context, th thread, v *view, p chat.Post) (ref, error) {
	if v.log != nil {
		before := slices.Clone(v.log.entries)
		v.log.put(entry{key: p.Key, text: p.Text})
		if m, ok := v.log.one(); ok {
			err := a.update(ctx, th, v.log.ts, scribe.Quiet, m, v.log.mark())
			if err == nil {
				r := ref{Ref: scribe.Ref{Channel: th.channel, Parts: []string{v.log.ts}, Log: true}}
				v.remember(p.Key, r)
				return r, nil
			}
			if !errors.Is(err, chat.ErrGone) {
				v.log.entries = before
				return ref{}, err
			}
			v.log = nil // somebody removed it
		} else {
			v.log.entries = before
			a.closeLog(ctx, th, v)
		}
	}
	l := &worklog{entries: []entry{{key: p.Key, text: p.Text}}}
	m, ok := l.one()
	if !ok {
		return a.postMessages(ctx, th, v, p)
	}
	ts, err := a.send(ctx, th, scribe.Quiet, p.Key, 0, m)
	if err != nil {
		v.doubt = v.doubt || uncertain(err)
		return ref{}, err
	}
	v.placed = true
	l.ts = ts
	v.log = l
	r := ref{Ref: scribe.Ref{Channel: th.channel, Parts: []string{ts}, Log: true}}
	v.remember(p.Key, r)
	return r, nil
}

func (a *Adapter) replaceLog(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	if l := v.logAt(r.Parts[0]); l != nil && p.Card == nil {
		before := slices.Clone(l.entries)
		l.put(entry{key: p.Key, text: p.Text})
		if m, ok := l.one(); ok {
			err := a.update(ctx, th, l.ts, scribe.Quiet, m, l.mark())
			if err != nil {
				l.entries = before
			}
			return r, err
		}
		l.entries = before
	}
	// The message holds other entries, which are not known any more.
	return a.postMessages(ctx, th, v, p)
}

// logAt is the log in a message, nil when it is not known.
func (v *view) logAt(ts string) *worklog {
	if v.log != nil && v.log.ts == ts {
		return v.log
	}
	for _, l := range v.logs {
		if l.ts == ts {
			return l
		}
	}
	return nil
}

// maxLogs bounds how many closed logs of a thread can still be edited.
const maxLogs = 4

// closeLog ends the log: what comes next stands below it. Entries that nothing
// took the place of go away, and so does an empty log.
func (a *Adapter) closeLog(ctx context.Context, th thread, v *view) {
	l := v.log
	if l == nil {
		return
	}
	v.log = nil
	live := slices.ContainsFunc(l.entries, func(e entry) bool { return e.live })
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.live })
	if len(l.entries) == 0 {
		a.remove(ctx, th, l.ts)
		return
	}
	if v.logs = append(v.logs, l); len(v.logs) > maxLogs {
		v.logs = v.logs[1:]
	}
	if live || l.status != "" {
		l.status = ""
		if m, ok := l.one(); ok {
			if err := a.update(ctx, th, l.ts, scribe.Quiet, m, l.mark()); err != nil {
				a.log.WarnContext(ctx, "the log of a turn keeps its last status", "thread", th.id(), "error", err)
			}
		}
	}
}

// takeLog turns a log that shows a status only into a draft: what comes next
// takes its place.
func (v *view) takeLog(key string) *draft {
	l := v.log
	if l == nil || slices.ContainsFunc(l.entries, func(e entry) bool { return !e.live }) {
		return nil
	}
	v.log = nil
	return &draft{key: key, ts: l.ts, touched: time.Now()}
}

// draft is a reply that is being written.
type draft struct {
	key    string
	ts     string
	text   string // as people see it
	stream bool   // Slack's streaming message; it can only grow
	sent   string // what was streamed, escaped
	done   bool   // nothing more comes of it but its post, if any
	ended  time.Time
	// touched is when something last came to it.
	touched time.Time
}

// ShowProgress implements chat.ProgressShower. It never blocks: the newest state
// of each key is shown at most once a second.
func (a *Adapter) ShowProgress(_ context.Context, t chat.ThreadID, p chat.Progress) {
	th, err := parseThread(t)
	if err != nil {
		return
	}
	v := a.view(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return
	}
	s := a.shows[t]
	if s == nil {
		s = &show{pending: map[string]chat.Progress{}}
		a.shows[t] = s
	}
	s.pending[p.Key] = p
	switch {
	case p.Done && p.Kind == chat.ProgressStatus:
		s.next, s.fresh = "", true
	case !p.Done && p.Status != "":
		s.next, s.fresh = p.Status, true
	}
	if s.timer {
		return
	}
	s.timer = true
	wait := max(showAfter, time.Until(s.last.Add(a.times.show)))
	time.AfterFunc(wait, func() {
		a.background.Add("show/"+string(t), func() { a.show(th, v, t) })
	})
}

// show is what waits to be shown in one thread; guarded by Adapter.mu.
type show struct {
	pending map[string]chat.Progress
	timer   bool
	last    time.Time
	next    string // the status that came last
	fresh   bool   // next was not shown yet
	status  string // that Slack's own status line shows
	set     time.Time
}

func (a *Adapter) show(th thread, v *view, t chat.ThreadID) {
	a.mu.Lock()
	s := a.shows[t]
	if s == nil {
		a.mu.Unlock()
		return
	}
	pending, status, fresh := s.pending, s.next, s.fresh
	s.pending, s.timer, s.fresh, s.last = map[string]chat.Progress{}, false, false, time.Now()
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.context(), 10*time.Second)
	defer cancel()
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := a.catchUp(ctx, th, v, false); err != nil {
		a.mu.Lock()
		s.next, s.fresh = "", false // nothing here is ours to show
		a.mu.Unlock()
		return
	}
	for _, key := range sortedKeys(pending) {
		p := pending[key]
		if p.Done {
			a.ended(ctx, th, v, key)
			continue
		}
		if p.Text == "" {
			continue
		}
		if p.Kind == chat.ProgressOutput {
			a.live(ctx, th, v, key, p)
		} else {
			a.draft(ctx, th, v, key, p.Text)
		}
	}
	if fresh {
		a.setStatus(ctx, th, v, s, status)
	}
}

// refresh sets statuses again that Slack would take away while they still hold.
func (a *Adapter) refresh() {
	a.mu.Lock()
	stale := map[chat.ThreadID]string{}
	for t, s := range a.shows {
		switch {
		case s.timer:
		case s.next != "" && !a.noStatus.Load() && time.Since(s.set) >= statusAge:
			stale[t] = s.next
		case s.next == "" && time.Since(s.last) > viewAge:
			delete(a.shows, t)
		}
	}
	a.mu.Unlock()
	for t, status := range stale {
		a.ShowProgress(a.context(), t, chat.Progress{Key: "refresh", Kind: chat.ProgressStatus, Status: status})
	}
}

// tidy removes drafts that nothing came to for a while, or that ended, and whose post
// another replica made: no post of this one will come that takes them over or tells that
// none is. It tries again to remove what could not be removed before.
func (a *Adapter) tidy(ctx context.Context) {
	if a.cfg.Turn == nil {
		return
	}
	for t, v := range a.known() {
		th, err := parseThread(t)
		if err != nil || !v.mu.TryLock() {
			continue // a post is on its way there
		}
		late := slices.ContainsFunc(slices.Collect(maps.Values(v.drafts)), func(d *draft) bool {
			return d.done && time.Since(d.ended) > tidyAfter || !d.done && time.Since(d.touched) > tidyAfter
		})
		care := late || len(v.drafts) > 0 || v.unclean
		v.mu.Unlock()
		if care {
			a.background.Add("show/"+string(t), func() {
				ctx, cancel := context.WithTimeout(ctx, callTimeout)
				defer cancel()
				v.mu.Lock()
				defer v.mu.Unlock()
				if a.catchUp(ctx, th, v, false) != nil {
					return
				}
				if late {
					a.sweep(ctx, th, v, "")
				}
				if v.unclean && !v.theirs {
					if err := a.look(ctx, th, v, ""); err != nil {
						a.log.InfoContext(ctx, "the thread's history is read later", "thread", t, "error", err)
					}
				}
			})
		}
	}
}

// cleared notes that Slack took a thread's status away, as it does when the bot
// posts there.
func (a *Adapter) cleared(t chat.ThreadID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.shows[t]; s != nil {
		s.status = ""
	}
}

func sortedKeys(m map[string]chat.Progress) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ended takes away what was shown of a key that no post came for.
func (a *Adapter) ended(ctx context.Context, th thread, v *view, key string) {
	if _, posted := v.refs[key]; posted {
		return
	}
	if d := v.drafts[key]; d != nil {
		// Its post may be on its way and takes the draft over; the next other post
		// tells that none is.
		d.done, d.ended = true, time.Now()
		if err := a.endStream(ctx, th, d); err != nil {
			a.log.InfoContext(ctx, "a streaming message is ended later", "thread", th.id(), "error", err)
		}
	}
}

// live shows the last lines of a running command in the log.
func (a *Adapter) live(ctx context.Context, th thread, v *view, key string, p chat.Progress) {
	if _, posted := v.refs[key]; posted {
		return
	}
	e := entry{key: key, live: true, text: "**" + blockkit.EscapeMarkdown(p.Status) + "**\n" + scribe.Fence(scribe.Tail(p.Text))}
	if v.log == nil {
		l := &worklog{entries: []entry{e}}
		m, ok := l.one()
		if !ok {
			return
		}
		if l.ts = a.passing(ctx, th, v, m, l.mark()); l.ts != "" {
			v.log = l
		}
		return
	}
	before := slices.Clone(v.log.entries)
	v.log.put(e)
	m, ok := v.log.one()
	if !ok {
		v.log.entries = before
		return
	}
	if err := a.updateOne(ctx, th, v.log.ts, scribe.Passing, m); err != nil {
		v.log.entries = before
		v.lostLog(err)
	}
}

// lostLog forgets the log when its message is gone: another one begins with what is
// shown next.
func (v *view) lostLog(err error) {
	if errors.Is(err, chat.ErrGone) {
		v.log = nil
	}
}

// passing posts a message that nobody misses if it does not come through; ""
// says that it did not.
func (a *Adapter) passing(ctx context.Context, th thread, v *view, m blockkit.Message, marked slackapi.MsgOption) string {
	if v.doubt {
		return "" // what it is about may stand there already; the next post finds out
	}
	ts, err := a.postMarked(ctx, th, scribe.Passing, m, marked)
	if err != nil {
		v.doubt = v.doubt || uncertain(err)
		return ""
	}
	v.placed = true
	return ts
}

// maxDraft bounds what is shown of a reply before it is whole.
const maxDraft = 6000

// draft shows a reply while it is written: as one of Slack's streaming messages
// where the workspace has them, else as a message that is edited.
func (a *Adapter) draft(ctx context.Context, th thread, v *view, key, text string) {
	if _, posted := v.refs[key]; posted || v.theirs || len(text) > maxDraft {
		return
	}
	d := v.drafts[key]
	if d == nil {
		if d = v.takeLog(key); d == nil {
			a.closeLog(ctx, th, v)
			if d = a.startDraft(ctx, th, v, key, text); d != nil {
				d.touched = time.Now()
				v.drafts[key] = d
				// A process that was stopped in the middle of the call comes too late.
				if err := a.catchUp(ctx, th, v, false); err != nil {
					a.log.InfoContext(ctx, "whose turn it is, is asked again later", "thread", th.id(), "error", err)
				}
			}
			return
		}
		v.drafts[key] = d
	}
	d.done, d.touched = false, time.Now()
	if d.text == text {
		return
	}
	if d.stream {
		next := streamed(text)
		more, grows := strings.CutPrefix(next, d.sent)
		if grows {
			err := a.pace.do(ctx, "stream/"+th.channel, scribe.Passing, func(ctx context.Context) error {
				if err := a.still(ctx, th.id()); err != nil {
					return err
				}
				_, _, err := a.api.AppendStreamContext(ctx, th.channel, d.ts, slackapi.MsgOptionMarkdownText(more))
				return err
			})
			switch {
			case err == nil:
				d.text, d.sent = text, next
				return
			case errors.Is(err, scribe.ErrBusy), errors.Is(err, scribe.ErrMoved):
				return
			}
		}
		// What was streamed changed (a secret was recognised), or Slack ended it.
		if a.endStream(ctx, th, d) != nil {
			return
		}
	}
	msgs := blockkit.Reply(text, nil)
	if a.updateOne(ctx, th, d.ts, scribe.Passing, msgs[0], markDraft(key)) == nil {
		d.text = text
	}
}

func (a *Adapter) startDraft(ctx context.Context, th thread, v *view, key, text string) *draft {
	if v.doubt {
		return nil
	}
	asker := a.asker(ctx, th, v)
	if !a.noStream.Load() && (asker != nil || strings.HasPrefix(th.channel, "D")) {
		if a.place(ctx, th, v) != nil {
			return nil
		}
		d := &draft{key: key, text: text, stream: true, sent: streamed(text)}
		err := a.pace.do(ctx, "post/"+th.channel, scribe.Passing, func(ctx context.Context) error {
			if err := a.still(ctx, th.id()); err != nil {
				return err
			}
			o := []slackapi.MsgOption{slackapi.MsgOptionTS(th.root), slackapi.MsgOptionMarkdownText(d.sent)}
			if asker != nil {
				o = append(o, slackapi.MsgOptionRecipientTeamID(th.team), slackapi.MsgOptionRecipientUserID(*asker))
			}
			_, ts, err := a.api.StartStreamContext(ctx, th.channel, o...)
			d.ts = ts
			return err
		})
		if err == nil {
			a.cleared(th.id())
			return d
		}
		var said slackapi.SlackErrorResponse
		if !errors.As(err, &said) {
			v.doubt = v.doubt || uncertain(err)
			return nil
		}
		if slices.Contains(lacking, said.Err) {
			a.noStream.Store(true)
		}
	}
	// Under its post's key, so that a crash in between does not leave it behind.
	ts := a.passing(ctx, th, v, blockkit.Reply(text, nil)[0], markDraft(key))
	if ts == "" {
		return nil
	}
	return &draft{key: key, ts: ts, text: text}
}

// lacking are Slack's words for a method that the workspace or the app has not
// got at all.
var lacking = []string{"unknown_method", "method_deprecated", "missing_scope", "not_allowed_token_type", "feature_not_enabled", "team_not_eligible"}

// endStream closes a streaming message, after which it can be edited.
func (a *Adapter) endStream(ctx context.Context, th thread, d *draft) error {
	if !d.stream {
		return nil
	}
	err := a.pace.do(ctx, "stop/"+th.channel, scribe.Normal, func(ctx context.Context) error {
		// From now on it can be found by its key.
		_, _, err := a.api.StopStreamContext(ctx, th.channel, d.ts, markDraft(d.key))
		return err
	})
	var said slackapi.SlackErrorResponse
	if errors.As(err, &said) && said.Err == "message_not_in_streaming_state" {
		err = nil // Slack ended it
	}
	d.stream = err != nil
	return a.explain("end a draft", err)
}

var streamEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "[", "\\[", "@", "＠")

// streamed escapes a draft for Slack's Markdown: no mention, no link with
// another text than its address. Each character is escaped by itself, so that
// a draft that grows only grows.
func streamed(s string) string { return streamEscape.Replace(s) }

// setStatus says in one line what goes on: on Slack's own status line where it
// exists, else at the end of the log.
func (a *Adapter) setStatus(ctx context.Context, th thread, v *view, s *show, status string) {
	if !a.noStatus.Load() {
		a.mu.Lock()
		same := status == s.status && (status == "" || time.Since(s.set) < statusAge)
		a.mu.Unlock()
		if same {
			return
		}
		text := status
		if verb, _, _ := strings.Cut(status, " "); strings.HasSuffix(verb, "ing") {
			text = "is " + status // Slack puts the app's name in front
		}
		err := a.pace.do(ctx, "status/"+th.channel, scribe.Passing, func(ctx context.Context) error {
			if err := a.still(ctx, th.id()); err != nil {
				return err
			}
			return a.api.SetAssistantThreadsStatusContext(ctx, slackapi.AssistantThreadsSetStatusParameters{
				ChannelID: th.channel, ThreadTS: th.root, Status: text,
			})
		})
		if err == nil {
			a.mu.Lock()
			s.status, s.set = status, time.Now()
			a.mu.Unlock()
			return
		}
		var said slackapi.SlackErrorResponse
		if !errors.As(err, &said) || !slices.Contains(lacking, said.Err) {
			return
		}
		a.noStatus.Store(true)
	}
	a.logStatus(ctx, th, v, status)
}

// logStatus shows the status at the end of the log.
func (a *Adapter) logStatus(ctx context.Context, th thread, v *view, status string) {
	if chat.ActivityOf(status) == chat.ActivityDecision {
		status = "" // the card says it
	}
	if v.log == nil {
		if status == "" || len(v.drafts) > 0 {
			return
		}
		l := &worklog{status: status}
		m, ok := l.one()
		if !ok {
			return
		}
		if l.ts = a.passing(ctx, th, v, m, l.mark()); l.ts != "" {
			v.log = l
		}
		return
	}
	if v.log.status == status {
		return
	}
	was := v.log.status
	v.log.status = status
	if status == "" {
		v.log.status = was
		a.closeLog(ctx, th, v)
		return
	}
	m, ok := v.log.one()
	if !ok {
		v.log.status = was
		return
	}
	if err := a.updateOne(ctx, th, v.log.ts, scribe.Passing, m); err != nil {
		v.log.status = was
		v.lostLog(err)
	}
}
