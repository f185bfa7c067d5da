package scribe

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
)

// draft is a reply that is being written.
type draft struct {
	id      string
	text    string    // as people see it
	touched time.Time // when something last came to it
	ended   bool      // nothing more comes to it but its post, if any
}

// over reports whether no post will come for a draft once another one did.
func (s *Scribe[M, P]) over(d *draft) bool {
	idle := s.cfg.Times.Idle
	return d.ended || s.cfg.Turn != nil && idle > 0 && time.Since(d.touched) > idle
}

func (s *Scribe[M, P]) hasLateDraft(th *thread[P]) bool {
	for _, d := range th.drafts {
		if s.over(d) && time.Since(d.touched) > tidyAfter {
			return true
		}
	}
	return false
}

// sweep removes the drafts that are over and that no post will take over: posts come in
// order, and this one is another. An end that waits to be shown counts: nothing else may
// come in the thread that would remove the draft later.
func (s *Scribe[M, P]) sweep(ctx context.Context, th *thread[P], except string) {
	s.mu.Lock()
	for key, p := range th.show.pending {
		if d := th.drafts[key]; d != nil && p.Done {
			d.ended = true
		}
	}
	s.mu.Unlock()
	for key, d := range th.drafts {
		if key == except || !s.over(d) {
			continue
		}
		delete(th.drafts, key)
		th.page.Removed(key, 0)
		s.remove(ctx, th, d.id)
	}
}

// show is what waits to be shown in one thread.
type show struct {
	pending map[string]chat.Progress
	timer   *time.Timer // nil when nothing is to come
	due     time.Time   // of timer
	last    time.Time
	status  Status // that came last; Drafting is not kept
}

// ShowProgress implements [chat.ProgressShower]. It never blocks: the newest state of each
// key is shown, and not more often than Times.Show.
func (s *Scribe[M, P]) ShowProgress(_ context.Context, t chat.ThreadID, p chat.Progress) {
	th, err := s.thread(t)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &th.show
	if w.pending == nil {
		w.pending = map[string]chat.Progress{}
	}
	w.pending[p.Key] = p
	switch {
	case p.Done && p.Kind == chat.ProgressStatus:
		w.status = Status{Fresh: true}
	case !p.Done && p.Status != "":
		if w.status.Text != p.Status {
			w.status = Status{Text: p.Status, Since: time.Now()}
		}
		w.status.Fresh = true
	}
	s.arm(th, max(s.cfg.Times.After, time.Until(w.last.Add(s.cfg.Times.Show))))
}

// arm shows what waits after a while, unless that comes sooner anyway; s.mu is held.
func (s *Scribe[M, P]) arm(th *thread[P], wait time.Duration) {
	w, due := &th.show, time.Now().Add(wait)
	if s.closed || w.timer != nil && (!due.Before(w.due) || !w.timer.Stop()) {
		return
	}
	w.due = due
	w.timer = time.AfterFunc(wait, func() {
		s.tasks.Add(string(th.id), func() { s.round(th) })
	})
}

// round shows what waits in a thread.
func (s *Scribe[M, P]) round(th *thread[P]) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	w := &th.show
	if !th.mu.TryLock() {
		// A post is on its way and comes first.
		w.timer = nil
		s.arm(th, s.cfg.Times.Show/4)
		s.mu.Unlock()
		return
	}
	defer th.mu.Unlock()
	pending, now := w.pending, w.status
	w.pending, w.timer, w.last, w.status.Fresh = nil, nil, time.Now(), false
	th.used = w.last // a status may be shown for long
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Times.Call)
	defer cancel()
	s.mu.Unlock()
	if err := s.catchUp(ctx, th, false); err != nil {
		s.mu.Lock()
		w.status = Status{} // nothing here is ours to show
		s.mu.Unlock()
		return
	}
	if th.history == unread && th.page.Fresh(th.turn.phase != alone) {
		th.history.on(wasRead) // later it may not be known
	}
	for _, key := range slices.Sorted(maps.Keys(pending)) {
		s.progress(ctx, th, key, pending[key])
	}
	now.Drafting = len(th.drafts) > 0
	line, after := th.page.Signal(ctx, s.call(th, Log, "", Passing), now)
	if after > 0 {
		s.mu.Lock()
		s.arm(th, after)
		s.mu.Unlock()
	}
	s.logStatus(ctx, th, line, now.Fresh)
}

func (s *Scribe[M, P]) progress(ctx context.Context, th *thread[P], key string, p chat.Progress) {
	_, posted := th.refs[key]
	switch {
	case p.Done:
		if d := th.drafts[key]; d != nil {
			// Its post may be on its way and takes the draft over; the next other post
			// tells that none is.
			d.ended, d.touched = true, time.Now()
			th.page.Ended(ctx, s.call(th, Draft, key, Passing), d.id)
		}
	case p.Text == "" || posted:
	case p.Kind == chat.ProgressOutput:
		if !s.onCard(ctx, th, p) {
			s.output(ctx, th, key, p)
		}
	default:
		s.draft(ctx, th, key, p.Text)
	}
}

// onCard shows the last line of what runs on its card. It reports false where the card is not
// known to say that it runs: after a restart, for example.
func (s *Scribe[M, P]) onCard(ctx context.Context, th *thread[P], p chat.Progress) bool {
	run, ok := th.running[p.Card]
	r, stands := th.refs[p.Card]
	if !ok || !stands {
		return false
	}
	last := chat.LastLine(p.Text)
	if time.Since(run.began) < quick || last == run.post.Card.Last {
		return true
	}
	face := *run.post.Card
	face.Last, run.post.Card = last, &face
	c := s.part(th, run.post, 0)
	c.Channel, c.Urgency = r.Channel, Passing
	if err := th.page.Update(ctx, c, r.Parts[0], th.page.Render(run.post)[0]); err == nil {
		th.running[p.Card] = run
	}
	return true
}

// run is a post whose card says that something runs, and since when it stands so.
type run struct {
	post  chat.Post
	began time.Time
}

// quick is how long what runs has to last before its card is changed for what it prints: what
// ends sooner costs no edit.
const quick = 2 * time.Second

// stands notes whether the card of a post, in its present form, is of something that runs: it
// can be stopped.
func (th *thread[P]) stands(p chat.Post) {
	if p.Card == nil || !p.Card.Runs() {
		delete(th.running, p.Key)
		return
	}
	th.running[p.Key] = run{p, time.Now()}
}

// output shows the last lines of a running command in the log.
func (s *Scribe[M, P]) output(ctx context.Context, th *thread[P], key string, p chat.Progress) {
	e := entry{key: key, live: true, text: "**" + th.page.Escape(p.Status) + "**\n" + Fence(Tail(p.Text))}
	if th.log == nil {
		s.begin(ctx, th, &worklog{entries: []entry{e}})
		return
	}
	s.renew(ctx, th, func(l *worklog) { l.put(e) })
}

// logStatus shows the status at the end of the log. One that is not fresh begins none: a
// post may have ended it.
func (s *Scribe[M, P]) logStatus(ctx context.Context, th *thread[P], status string, fresh bool) {
	switch l := th.log; {
	case l == nil && status != "" && fresh && len(th.drafts) == 0:
		s.begin(ctx, th, &worklog{status: status})
	case l == nil || l.status == status:
	case status == "" && len(l.entries) == 0:
		s.closeLog(ctx, th)
	default:
		s.renew(ctx, th, func(l *worklog) { l.status = status })
	}
}

// draft shows a reply while it is written, as one message that is edited.
func (s *Scribe[M, P]) draft(ctx context.Context, th *thread[P], key, text string) {
	m, ok := th.page.Draft(text)
	if d := th.drafts[key]; d != nil {
		d.ended, d.touched = false, time.Now()
	}
	if !ok || th.turn.phase == theirs {
		return
	}
	c := s.call(th, Draft, key, Passing)
	if d := s.convertLog(th, key); d != nil {
		if d.text != text && th.page.Update(ctx, c, d.id, m) == nil {
			d.text = text
		}
		return
	}
	s.closeLog(ctx, th)
	id := s.pass(ctx, th, c, m)
	if id == "" {
		return
	}
	th.drafts[key] = &draft{id: id, text: text, touched: time.Now()}
	// Of a process that was stopped in the middle of the call the draft comes too late.
	if err := s.catchUp(ctx, th, false); err != nil {
		s.cfg.Log.InfoContext(ctx, "whose turn it is, is asked again later", "thread", th.id, "error", err)
	}
}

// pass posts a message that nobody misses if it does not come through; "" says that it
// did not. Under a post's key it becomes that post, also after a crash.
func (s *Scribe[M, P]) pass(ctx context.Context, th *thread[P], c Call, m M) string {
	if th.history == doubtful {
		return "" // what it is about may stand there already; the next post finds out
	}
	sent, err := th.page.Send(ctx, c, m)
	if err != nil {
		s.lose(th, err)
		return ""
	}
	if sent.Post {
		th.remember(c.Key, s.ref(th, sent.ID)) // it is posted
		return ""
	}
	return sent.ID
}

const (
	tailLines = 10
	tailBytes = 1200
)

// Tail returns the end of the output of a command, as much as the log shows of it.
func Tail(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	s = strings.Join(lines, "\n")
	if len(s) > tailBytes {
		s = "…" + s[len(s)-tailBytes:]
	}
	return strings.ToValidUTF8(s, "")
}

// Fence returns a Markdown code block with s in it.
func Fence(s string) string {
	ticks := "```"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	return ticks + "\n" + s + "\n" + ticks
}
