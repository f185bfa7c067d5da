package discord

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

const (
	// showEvery is the pace of edits that people only watch. A channel takes about
	// five messages and as many edits in five seconds, which Discord does not
	// promise; the most of them are left to what counts.
	showEvery = 2 * time.Second
	// showAfter is how long something lasts before it is shown at all: what is over
	// sooner needs no sign of life.
	showAfter = 300 * time.Millisecond
	// typingEvery is how often typing is shown again; Discord takes it away after
	// ten seconds (docs.discord.com/developers/resources/channel).
	typingEvery = 8 * time.Second
	// typingFor bounds for how long typing is shown on one state.
	typingFor = 10 * time.Minute
	// showLimit bounds one round of showing.
	showLimit = 10 * time.Second
)

// worklog is one message that is edited in place while the agent works: what ran
// and how it ended, and at its end what runs now. A busy turn is one message, and
// it notifies nobody.
type worklog struct {
	id      string
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
		parts = append(parts, "_"+escape(l.status)+"…_")
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

// one renders the log if it still is one message.
func (l *worklog) one() (embed.Message, bool) {
	msgs := embed.Reply(l.markdown(), nil)
	if len(msgs) != 1 || len(msgs[0].Files) > 0 {
		return embed.Message{}, false
	}
	return msgs[0].Silent(), true
}

// postLog adds a post to the log.
func (a *Adapter) postLog(ctx context.Context, th thread, v *view, p chat.Post) (ref, error) {
	l := &worklog{entries: []entry{{key: p.Key, text: p.Text}}}
	m, ok := l.one()
	if ok && v.log == nil {
		if id := v.claimLine(m); id != "" {
			r := ref{channel: th.channel, parts: []string{id}, log: true}
			v.remember(p.Key, r)
			return r, nil
		}
	}
	if v.log != nil {
		r, done, err := a.addToLog(ctx, th, v, p)
		if done {
			return r, err
		}
	}
	if !ok || len(p.Files) > 0 {
		return a.postMessages(ctx, th, v, p)
	}
	id, err := a.send(ctx, th, v, quiet, p, 0, m)
	if err != nil {
		v.doubt = v.doubt || uncertain(err)
		return ref{}, err
	}
	l.id = id
	v.log = l
	r := ref{channel: th.channel, parts: []string{id}, log: true}
	v.remember(p.Key, r)
	return r, nil
}

// addToLog writes a line into the log that is open. done is false when another
// message has to begin.
func (a *Adapter) addToLog(ctx context.Context, th thread, v *view, p chat.Post) (r ref, done bool, err error) {
	before := slices.Clone(v.log.entries)
	v.log.put(entry{key: p.Key, text: p.Text})
	m, ok := v.log.one()
	if !ok || len(p.Files) > 0 {
		v.log.entries = before
		a.closeLog(ctx, th, v)
		return ref{}, false, nil
	}
	err = a.write(ctx, th, v, v.log.id, quiet, m, nil)
	switch {
	case err == nil:
		r = ref{channel: th.channel, parts: []string{v.log.id}, log: true}
		v.remember(p.Key, r)
		return r, true, nil
	case errors.Is(err, chat.ErrGone):
		for _, e := range before {
			v.spent[e.key]++
		}
		v.log = nil // somebody removed it
		return ref{}, false, nil
	}
	v.log.entries = before
	return ref{}, true, err
}

func (a *Adapter) replaceLog(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	l := v.logAt(r.parts[0])
	if l == nil || p.Card != nil {
		// The message holds other entries, which are not known any more.
		v.spent[p.Key]++
		return a.postMessages(ctx, th, v, p)
	}
	before := slices.Clone(l.entries)
	l.put(entry{key: p.Key, text: p.Text})
	m, ok := l.one()
	if !ok {
		l.entries = before
		v.spent[p.Key]++
		return a.postMessages(ctx, th, v, p)
	}
	err := a.write(ctx, th, v, l.id, quiet, m, nil)
	if err != nil {
		l.entries = before
	}
	return r, err
}

// logAt is the log in a message, nil when it is not known.
func (v *view) logAt(id string) *worklog {
	if v.log != nil && v.log.id == id {
		return v.log
	}
	for _, l := range v.logs {
		if l.id == id {
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
	for _, e := range l.entries {
		if e.live {
			v.spent[e.key]++ // its post is another message
		}
	}
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.live })
	if len(l.entries) == 0 {
		a.remove(ctx, th, v, l.id)
		return
	}
	if v.logs = append(v.logs, l); len(v.logs) > maxLogs {
		v.logs = v.logs[1:]
	}
	if live || l.status != "" {
		l.status = ""
		if m, ok := l.one(); ok {
			if err := a.write(ctx, th, v, l.id, quiet, m, nil); err != nil {
				a.log.WarnContext(ctx, "the log of a turn keeps its last status", "thread", th.id(), "error", err)
			}
		}
	}
}

// draft is a reply that is being written.
type draft struct {
	id   string
	text string // as people see it
	done bool   // nothing more comes of it but its post, if any
	// ended is when done was set.
	ended time.Time
}

// show is what waits to be shown in one thread; guarded by Adapter.mu.
type show struct {
	pending map[string]chat.Progress
	timer   *time.Timer // nil when nothing is to come
	due     time.Time   // of timer
	last    time.Time
	next    string // the status that came last
	since   time.Time
	typed   time.Time // when typing was shown last
}

// ShowProgress implements chat.ProgressShower. It never blocks: the newest state
// of each key is shown every two seconds at most.
func (a *Adapter) ShowProgress(_ context.Context, t chat.ThreadID, p chat.Progress) {
	th, err := a.home(t)
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
		s.next = ""
	case !p.Done && p.Status != "":
		if s.next != p.Status {
			s.since = time.Now()
		}
		s.next = p.Status
	}
	a.arm(th, v, s, max(a.times.after, time.Until(s.last.Add(a.times.show))))
}

// arm shows what waits after a while, unless that comes sooner anyway; a.mu is
// held.
func (a *Adapter) arm(th thread, v *view, s *show, wait time.Duration) {
	due := time.Now().Add(wait)
	if s.timer != nil && (!due.Before(s.due) || !s.timer.Stop()) {
		return
	}
	s.due = due
	s.timer = time.AfterFunc(wait, func() {
		a.background.Add("show/"+string(th.id()), func() { a.show(th, v) })
	})
}

func (a *Adapter) show(th thread, v *view) {
	t := th.id()
	a.mu.Lock()
	s := a.shows[t]
	if s == nil || a.stopped {
		a.mu.Unlock()
		return
	}
	if !v.mu.TryLock() {
		// A post is on its way and comes first.
		s.timer = nil
		a.arm(th, v, s, a.times.show/4)
		a.mu.Unlock()
		return
	}
	defer v.mu.Unlock()
	pending, status := s.pending, s.next
	s.pending, s.timer, s.last = map[string]chat.Progress{}, nil, time.Now()
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.context(), showLimit)
	defer cancel()
	if err := a.catchUp(ctx, th, v, false); err != nil {
		a.mu.Lock()
		s.next = "" // nothing here is ours to show
		a.mu.Unlock()
		return
	}
	for _, key := range sortedKeys(pending) {
		p := pending[key]
		switch {
		case p.Done:
			if d := v.drafts[key]; d != nil {
				// Its post may be on its way and takes the draft over; the next other
				// post tells that none is.
				d.done, d.ended = true, time.Now()
			}
		case p.Text == "":
		case p.Kind == chat.ProgressOutput:
			a.live(ctx, th, v, key, p)
		default:
			a.draft(ctx, th, v, key, p.Text)
		}
	}
	a.showStatus(ctx, th, v, s, status)
}

func sortedKeys(m map[string]chat.Progress) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// live shows the last lines of a running command in the log.
func (a *Adapter) live(ctx context.Context, th thread, v *view, key string, p chat.Progress) {
	if _, posted := v.refs[key]; posted {
		return
	}
	e := entry{key: key, live: true, text: "**" + escape(p.Status) + "**\n" + fence(tail(p.Text))}
	if v.log == nil {
		l := &worklog{entries: []entry{e}}
		if m, ok := l.one(); ok {
			if l.id = a.passing(ctx, th, v, "", m); l.id != "" {
				v.log = l
			}
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
	if err := a.write(ctx, th, v, v.log.id, passing, m, nil); err != nil {
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

// passing posts a message that nobody misses if it does not come through; "" says
// that it did not. Under a post's key it becomes that post, also after a crash.
func (a *Adapter) passing(ctx context.Context, th thread, v *view, key string, m embed.Message) string {
	if v.doubt {
		return "" // what it is about may stand there already; the next post finds out
	}
	o := outgoing(m)
	if key != "" {
		o.Key = v.nonce(th, key)
	}
	var sent gateway.Sent
	err := a.active(ctx, th, passing, func(ctx context.Context) (err error) {
		if err := a.still(ctx, v); err != nil {
			return err
		}
		sent, err = a.rest.Post(ctx, th.channel, o)
		return err
	})
	if err = a.explain("post", err); err != nil {
		v.doubt = v.doubt || uncertain(err)
		return ""
	}
	a.quietened(th.id())
	if key != "" && another(v, sent, m) {
		v.remember(key, ref{channel: th.channel, parts: []string{sent.ID}}) // it is posted
		return ""
	}
	return sent.ID
}

const (
	tailLines = 10
	tailBytes = 1200
)

func tail(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	s = strings.Join(lines, "\n")
	if len(s) > tailBytes {
		s = "…" + s[len(s)-tailBytes:]
	}
	return strings.ToValidUTF8(s, "")
}

// draft shows a reply while it is written, as one message that is edited: the end
// of it where it is longer.
func (a *Adapter) draft(ctx context.Context, th thread, v *view, key, text string) {
	if _, posted := v.refs[key]; posted || v.theirs {
		return
	}
	if d := v.drafts[key]; d != nil {
		d.done = false
		if d.text != text && a.write(ctx, th, v, d.id, passing, embed.Progress(text), nil) == nil {
			d.text = text
		}
		return
	}
	a.closeLog(ctx, th, v)
	if id := a.passing(ctx, th, v, key, embed.Progress(text)); id != "" {
		v.drafts[key] = &draft{id: id, text: text}
	}
}

// typing says how a state is shown: in words, and by typing. A decision that is
// waited for has its card, and thinking needs no words.
func typing(status string) (shown, typed bool) {
	verb, _, _ := strings.Cut(status, " ")
	switch verb {
	case "", "waiting", "paused:":
		return status != "" && !strings.HasPrefix(status, "waiting for a decision"), false
	case "thinking", "writing":
		return false, true
	}
	return true, true
}

// showStatus says what goes on: by typing, which costs no message, and where
// words matter at the end of the log.
func (a *Adapter) showStatus(ctx context.Context, th thread, v *view, s *show, status string) {
	shown, typed := typing(status)
	a.mu.Lock()
	due := typed && len(v.drafts) == 0 && time.Since(s.typed) >= a.times.typing && time.Since(s.since) < typingFor
	a.mu.Unlock()
	if due {
		err := a.pace.do(ctx, passing, func(ctx context.Context) error { return a.rest.Typing(ctx, th.channel) })
		a.mu.Lock()
		if err == nil {
			s.typed = time.Now()
		}
		a.mu.Unlock()
	}
	if typed {
		a.mu.Lock()
		if !a.stopped && time.Since(s.since) < typingFor {
			a.arm(th, v, s, a.times.typing)
		}
		a.mu.Unlock()
	}
	if !shown {
		status = ""
	}
	a.logStatus(ctx, th, v, status)
}

// tidyAfter is how long the post of a draft may be under way. Later it is another
// message.
const tidyAfter = 30 * time.Second

// tidy removes drafts that ended a while ago and whose post another replica made: no
// post of this one will come that takes them over or tells that none is.
func (a *Adapter) tidy(ctx context.Context) {
	if a.cfg.Turn == nil {
		return
	}
	a.mu.Lock()
	views := maps.Clone(a.views)
	a.mu.Unlock()
	for t, v := range views {
		th, err := a.home(t)
		if err != nil || !v.mu.TryLock() {
			continue // a post is on its way there
		}
		late := slices.ContainsFunc(slices.Collect(maps.Values(v.drafts)), func(d *draft) bool { return d.done && time.Since(d.ended) > tidyAfter })
		v.mu.Unlock()
		if late {
			a.background.Add("show/"+string(t), func() {
				ctx, cancel := context.WithTimeout(ctx, callTimeout)
				defer cancel()
				v.mu.Lock()
				defer v.mu.Unlock()
				if a.catchUp(ctx, th, v, false) == nil {
					a.sweep(ctx, th, v, "")
				}
			})
		}
	}
}

// quietened notes that Discord took a thread's typing away, as it does when the
// bot posts there.
func (a *Adapter) quietened(t chat.ThreadID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.shows[t]; s != nil {
		s.typed = time.Time{}
	}
}

// logStatus shows the status at the end of the log.
func (a *Adapter) logStatus(ctx context.Context, th thread, v *view, status string) {
	if v.log == nil {
		if status == "" || len(v.drafts) > 0 {
			return
		}
		l := &worklog{status: status}
		if m, ok := l.one(); ok {
			if l.id = a.passing(ctx, th, v, "", m); l.id != "" {
				v.log = l
			}
		}
		return
	}
	if v.log.status == status {
		return
	}
	was := v.log.status
	v.log.status = status
	if status == "" && len(v.log.entries) == 0 {
		a.closeLog(ctx, th, v)
		return
	}
	m, ok := v.log.one()
	if !ok {
		v.log.status = was
		return
	}
	if err := a.write(ctx, th, v, v.log.id, passing, m, nil); err != nil {
		v.log.status = was
		v.lostLog(err)
	}
}
