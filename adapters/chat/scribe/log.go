package scribe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
)

// worklog is one message that is edited in place while the agent works: what ran and how
// it ended, and at its end what runs now. A busy turn is one message.
type worklog struct {
	id      string
	entries []entry
	status  string
	late    bool // it still shows what was taken out when it was closed
}

type entry struct {
	key  string
	text string // Markdown
	live bool   // it still runs; the post with its key takes its place
}

func (l *worklog) markdown(escape func(string) string) string {
	var parts []string
	for _, e := range l.entries {
		parts = append(parts, e.text)
	}
	if l.status != "" {
		parts = append(parts, "_"+escape(l.status)+"…_")
	}
	return strings.Join(parts, "\n\n")
}

// keys are those of the posts in the log.
func (l *worklog) keys() (keys []string) {
	for _, e := range l.entries {
		if !e.live {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// putPost adds a post with what is posted together with it, as far as it isn't there already.
func (l *worklog) putPost(p chat.Post) {
	l.put(entry{key: p.Key, text: p.Text})
	for _, also := range p.Also {
		l.put(entry{key: also.Key, text: also.Text})
	}
}

func (l *worklog) put(e entry) {
	if i := slices.IndexFunc(l.entries, func(o entry) bool { return o.key == e.key }); i >= 0 {
		l.entries[i] = e
		return
	}
	l.entries = append(l.entries, e)
}

// line renders a log if it still is one message.
func (s *Scribe[M, P]) line(th *thread[P], l *worklog) (M, bool) {
	return th.page.Line(l.markdown(th.page.Escape))
}

// write shows a log as change makes it. ok is false when it would not be one message any
// more; then, and after an error, the log is as it was.
func (s *Scribe[M, P]) write(ctx context.Context, th *thread[P], l *worklog, u Urgency, change func(*worklog)) (ok bool, err error) {
	next := &worklog{id: l.id, entries: slices.Clone(l.entries), status: l.status}
	change(next)
	m, ok := s.line(th, next)
	if !ok {
		return false, nil
	}
	c := s.call(th, Log, "", u)
	if u != Passing {
		c.Lines = next.keys()
	}
	if err := th.page.Update(ctx, c, l.id, m); err != nil {
		return true, err
	}
	*l = *next
	return true, nil
}

// begin posts a log that nobody misses if it does not come through.
func (s *Scribe[M, P]) begin(ctx context.Context, th *thread[P], l *worklog) {
	if m, ok := s.line(th, l); ok {
		if l.id = s.pass(ctx, th, s.call(th, Log, "", Passing), m); l.id != "" {
			th.log = l
		}
	}
}

// renew shows the log as change makes it, if there is room.
func (s *Scribe[M, P]) renew(ctx context.Context, th *thread[P], change func(*worklog)) {
	if _, err := s.write(ctx, th, th.log, Passing, change); errors.Is(err, chat.ErrGone) {
		th.log = nil // somebody removed it: another one begins with what is shown next
	}
}

// postLog adds a post to the log.
func (s *Scribe[M, P]) postLog(ctx context.Context, th *thread[P], p chat.Post) (Ref, error) {
	alone := p
	alone.Also = nil
	l := &worklog{}
	l.putPost(alone)
	m, ok := s.line(th, l)
	if ok && th.log == nil {
		if id := th.page.ClaimLine(m); id != "" {
			return th.logged(alone, s.ref(th, id)), s.postAlso(ctx, th, p)
		}
	}
	if len(p.Also) > 0 {
		l.putPost(p)
		m, ok = s.line(th, l)
	}
	if th.log != nil {
		r, done, err := s.addToLog(ctx, th, p)
		if done {
			return r, err
		}
	}
	if !ok && len(p.Also) > 0 { // not in one message
		r, err := s.postLog(ctx, th, alone)
		if err == nil {
			err = s.postAlso(ctx, th, p)
		}
		return r, err
	}
	if !ok || len(p.Files) > 0 {
		return s.postMessages(ctx, th, p)
	}
	c := s.part(th, p, 0)
	if c.Kind, c.Urgency = Log, Quiet; len(p.Also) > 0 {
		c.Lines = l.keys()
	}
	sent, err := th.page.Send(ctx, c, m)
	if err != nil {
		s.lose(th, err)
		return Ref{}, err
	}
	l.id, th.log = sent.ID, l
	return th.logged(p, s.ref(th, l.id)), nil
}

// postAlso adds what is posted together with a line of the log, as far as it isn't there yet.
func (s *Scribe[M, P]) postAlso(ctx context.Context, th *thread[P], p chat.Post) error {
	for _, also := range p.Also {
		if _, ok := th.refs[also.Key]; ok {
			continue
		}
		if _, err := s.postLog(ctx, th, also); err != nil {
			return err
		}
	}
	return nil
}

func (th *thread[P]) logged(p chat.Post, r Ref) Ref {
	r.Log = true
	th.remember(p.Key, r)
	for _, also := range p.Also {
		th.remember(also.Key, r)
	}
	return r
}

// addToLog writes a line into the log that is open. done is false when another message
// has to begin.
func (s *Scribe[M, P]) addToLog(ctx context.Context, th *thread[P], p chat.Post) (r Ref, done bool, err error) {
	l := th.log
	ok := len(p.Files) == 0
	if ok {
		ok, err = s.write(ctx, th, l, Quiet, func(l *worklog) { l.putPost(p) })
	}
	switch {
	case !ok:
		s.closeLog(ctx, th)
		return Ref{}, false, nil
	case errors.Is(err, chat.ErrGone):
		for _, e := range l.entries {
			th.page.Removed(e.key, 0)
		}
		th.log = nil // somebody removed it
		return Ref{}, false, nil
	case err != nil:
		return Ref{}, true, err
	}
	return th.logged(p, s.ref(th, l.id)), true, nil
}

func (s *Scribe[M, P]) replaceLog(ctx context.Context, th *thread[P], r Ref, p chat.Post) (Ref, error) {
	if l := th.logAt(r.Parts[0]); l != nil && p.Card == nil {
		ok, err := s.write(ctx, th, l, Quiet, func(l *worklog) { l.put(entry{key: p.Key, text: p.Text}) })
		if ok {
			return r, err
		}
	}
	// The message holds other entries, which are not known any more.
	th.page.Removed(p.Key, 0)
	return s.postMessages(ctx, th, p)
}

// logAt is the log in a message, nil when it is not known.
func (th *thread[P]) logAt(id string) *worklog {
	for _, l := range append([]*worklog{th.log}, th.logs...) {
		if l != nil && l.id == id {
			return l
		}
	}
	return nil
}

// convertLog turns a log in which no post stands into the draft of a key, so that what
// comes next takes its place. It returns the key's draft, nil where there is none.
func (s *Scribe[M, P]) convertLog(th *thread[P], key string) *draft {
	if l := th.log; th.drafts[key] == nil && !s.cfg.Keyless && l != nil && len(l.keys()) == 0 {
		th.log, th.drafts[key] = nil, &draft{id: l.id, touched: time.Now()}
	}
	return th.drafts[key]
}

// maxLogs bounds how many closed logs of a thread can still be edited.
const maxLogs = 4

// closeLog ends the log: what comes next stands below it. Entries that nothing took the
// place of go away, and so does an empty log.
func (s *Scribe[M, P]) closeLog(ctx context.Context, th *thread[P]) {
	l := th.log
	if l == nil {
		return
	}
	th.log = nil
	passed := l.status != ""
	for _, e := range l.entries {
		if e.live {
			passed = true
			th.page.Removed(e.key, 0) // its post is another message
		}
	}
	l.entries, l.status = slices.DeleteFunc(l.entries, func(e entry) bool { return e.live }), ""
	if len(l.entries) == 0 {
		s.remove(ctx, th, l.id)
		return
	}
	if th.logs = append(th.logs, l); len(th.logs) > maxLogs {
		th.logs = th.logs[1:]
	}
	if passed {
		if _, err := s.write(ctx, th, l, Quiet, func(*worklog) {}); err != nil {
			l.late = true
			s.cfg.Log.InfoContext(ctx, "the log of a turn keeps its last status for a while", "thread", th.id, "error", err)
		}
	}
}

// tidy takes what is out of date from logs that were closed when there was no room for it.
func (s *Scribe[M, P]) tidy(ctx context.Context, th *thread[P]) {
	for _, l := range th.logs {
		if l.late && th.turn.phase != theirs {
			_, err := s.write(ctx, th, l, Quiet, func(*worklog) {})
			l.late = err != nil && !errors.Is(err, chat.ErrGone)
		}
	}
}

func (l *worklog) isLate() bool { return l.late }
