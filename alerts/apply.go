package alerts

import (
	"time"

	"countersign/store"
)

const (
	// freeFlushes is how many messages a thread gets at once; after that there is
	// one every flushEvery.
	freeFlushes = 3
	flushEvery  = time.Minute
	// keptLines is how many lines wait for the next message; older ones are counted.
	keptLines = 3
	// gather is how long a list of many troubles waits before its thread is opened.
	gather = 10 * time.Second
	// maxMembers bounds a list.
	maxMembers = 200
)

// apply applies one notice to its group. The group's times come from the notice's arrival,
// its schedule from now.
func apply(tx store.Tx, r *router, e entry, now time.Time) {
	g, at := loadGroup(tx, e.ID), e.At
	switch {
	case g == nil || g.isOver(r, at):
		if e.firing() { // a resolved notice of an unknown problem is not news
			begin(tx, r, g, e, now)
		}
		return
	case g.Stage == folded:
		if g.Firing && !e.firing() {
			g.Ended = at
		}
		g.Heard, g.Last, g.Firing = at, e, e.firing()
		g.Told++
		g.save(tx, time.Time{})
		if list := loadGroup(tx, g.Fold); list != nil {
			list.addMember(g, at)
			list.save(tx, list.next(now))
		}
		return
	}
	before, fired := g.Last, g.Firing
	g.Heard, g.Last, g.Firing = at, e, e.firing()
	g.Told++
	switch {
	case !fired && !g.Firing: // resolved twice
	case fired && !g.Firing:
		g.Ended = at
		g.addLine("✅ Resolved after " + span(g.Ended.Sub(g.since())) + ".")
	case !fired && g.Firing:
		g.addLine("🔴 Firing again: it had been over for " + span(at.Sub(g.Ended)) + ".")
		g.Ended = time.Time{}
	case before.Shape != e.Shape:
		g.addLine(changed(before, e))
	case g.Firing && g.Stage != opening:
		g.Repeats++
	}
	g.save(tx, g.next(now))
}

// isOver reports whether a problem ended so long ago that a new notice is a new problem.
func (g *group) isOver(r *router, now time.Time) bool {
	if g.Stage == opening || g.Stage == telling {
		return false
	}
	if g.Firing {
		return now.Sub(g.Heard) > r.silent
	}
	return now.Sub(g.Ended) > r.repeat
}

// begin starts an episode of a problem, with its own thread or in a list.
func begin(tx store.Tx, r *router, old *group, e entry, now time.Time) {
	g := newEpisode(old, e.ID, r.place(e.Notice.Source, e.Notice.Labels), e.At)
	g.Last, g.Told = e, 1
	if g.Quiet.After(now) {
		g.Opening = g.face()
		g.save(tx, g.Quiet)
		return
	}
	if reserveOpening(tx, r.threads, now) {
		g.Opening = g.face()
		g.save(tx, now)
		return
	}
	id := hashOf("list", g.Place.Channel, g.Place.Target)
	list := loadGroup(tx, id)
	if list == nil || list.isOver(r, e.At) {
		list = newEpisode(list, id, g.Place, e.At)
	}
	g.Stage, g.Fold = folded, id
	g.save(tx, time.Time{})
	list.addMember(g, e.At)
	if list.Stage == opening && list.Tries == 0 {
		list.Opening = list.face() // not opened with another text yet
		list.save(tx, list.Began.Add(gather))
		return
	}
	list.save(tx, list.next(now))
}

// newEpisode returns the next episode of a group.
func newEpisode(old *group, id string, place Place, now time.Time) *group {
	g := &group{ID: id, Episode: 1, Stage: opening, Place: place, Firing: true, Began: now.UTC(), Heard: now.UTC()}
	if old != nil {
		g.Episode, g.Due, g.Quiet, g.QuietBy = old.Episode+1, old.Due, old.Quiet, old.QuietBy
	}
	return g
}

// reserveOpening reports whether another thread may be opened now, and counts it if so.
func reserveOpening(tx store.Tx, limit int, now time.Time) bool {
	all, _ := store.Load[[]time.Time](tx, opensKey())
	var recent []time.Time
	for _, t := range all {
		if !t.After(now) && now.Sub(t) < time.Minute { // a clock may be set back
			recent = append(recent, t)
		}
	}
	if len(recent) >= limit {
		return false
	}
	store.Save(tx, opensKey(), append(recent, now.UTC()))
	return true
}

// addMember adds a problem to a list, or updates it there.
func (g *group) addMember(of *group, now time.Time) {
	m := member{ID: of.ID, Title: of.Last.Notice.Title, Severity: severity(of.Last.Notice), Source: of.Last.Notice.Source.Name(), URL: of.Last.Notice.URL, Firing: of.Firing, At: of.Began}
	found, on := false, false
	for i := range g.Members {
		if g.Members[i].ID == m.ID {
			found = true
			if g.Members[i] != m {
				g.Members[i], g.Face = m, true
			}
		}
	}
	switch {
	case found:
	case len(g.Members) < maxMembers:
		g.Members, g.Face = append(g.Members, m), true
	default:
		g.More, g.Face = g.More+1, true
	}
	for _, m := range g.Members {
		on = on || m.Firing
	}
	switch {
	case g.Firing && !on:
		g.Ended = now.UTC()
		g.addLine("✅ All alerts of this list are over.")
	case !g.Firing && on:
		g.Ended = time.Time{}
		g.addLine("🔴 Alerts of this list fire again.")
	}
	g.Firing, g.Heard = on, now.UTC()
	g.Told++
}

// addLine queues a line for the thread. If the thread is not open yet, its first message
// will contain the news.
func (g *group) addLine(line string) {
	g.Face = true
	if g.Stage == opening {
		return
	}
	g.Lines = append(g.Lines, line)
	if over := len(g.Lines) - keptLines; over > 0 {
		g.Lines = g.Lines[over:]
		g.Folded += over
	}
}

// next returns when the group is due, zero for never.
func (g *group) next(now time.Time) time.Time {
	at := g.news(now)
	switch {
	case g.Stage != live || g.Quiet.IsZero():
	case !g.Quiet.After(now):
		return now // the silence is over
	case !g.Face || at.IsZero() || at.After(g.Quiet): // an edit of the root rings nowhere
		return g.Quiet
	}
	return at
}

// news returns when there is something to say, zero for never.
func (g *group) news(now time.Time) time.Time {
	switch {
	case g.Stage == folded:
		return time.Time{}
	case g.Stage != live:
		if !g.Due.IsZero() {
			return g.Due // in progress, or waiting for a retry
		}
		return now
	case len(g.Lines) == 0 && !g.Face && !g.repeated():
		return time.Time{}
	case g.Flushes < freeFlushes || now.Sub(g.FlushedAt) >= flushEvery || now.Before(g.FlushedAt):
		return now
	}
	return g.FlushedAt.Add(flushEvery)
}

// repeated reports whether a problem that goes on was told of again.
func (g *group) repeated() bool { return g.Firing && g.Repeats > g.Counted }

// flush posts what is queued, if it is due. It posts at most one new message.
func (g *group) flush(tx store.Tx, p Poster, now time.Time) (posted bool) {
	if !g.Quiet.IsZero() && !g.Quiet.After(now) {
		g.endSilence()
	}
	if at := g.next(now); at.IsZero() || at.After(now) {
		return false
	}
	silent := g.Quiet.After(now)
	if len(g.Lines) > 0 && !silent {
		post := g.root(g.lines())
		post.Key, post.Quiet = g.lineKey(), true
		p.Put(tx, g.Thread, post)
		g.Lines, g.Folded = nil, 0
	} else if g.repeated() && !silent {
		post := g.root(g.counter())
		post.Key, post.Quiet = g.countKey(), true
		p.Put(tx, g.Thread, post)
		g.Counted = g.Repeats
	}
	if g.Face {
		p.Put(tx, g.Thread, g.root(g.face()))
		g.Face = false
	}
	g.Flushes++
	g.FlushedAt = now.UTC()
	return true
}
