package discord

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

// maxKeys bounds how many posts of a thread are remembered; older ones are found
// by the reference that the outbox keeps.
const maxKeys = 256

// view is what the adapter knows of one thread's messages. It is a cache: all of
// it can be lost at any moment.
type view struct {
	id     chat.ThreadID
	mu     sync.Mutex // held while a call for the thread is under way
	looked bool       // the history was read, or is not needed
	doubt  bool       // a call may have come through although it failed
	refs   map[string]ref
	order  []string
	log    *worklog
	logs   []*worklog // that were closed last
	drafts map[string]*draft
	spent  map[string]int    // how many messages of a key were removed again
	moved  map[string]string // by a deleted card, the message in its place
	left   []leftover        // what an earlier run said, while nothing was posted since
	used   time.Time         // guarded by Adapter.mu
	// turn is what [Config.Turn] said when this view was last right; shared, that
	// others ever posted here; posting, that v.mu is held for a post.
	turn            uint64
	shared, posting bool
	// theirs says that another replica was the last that began to post: a draft of ours
	// may become its post at any moment, and is not written then.
	theirs bool

	faceMu sync.Mutex
	faces  map[string]*face // by message
}

// face is a message that may be a card.
type face struct {
	written uint64        // how often
	busy    chan struct{} // holds something while the message is being written
	buttons []embed.Choice
}

// leftover is a message of ours that stands in the thread and of which this
// process does not know the key.
type leftover struct {
	id, text, title string
	buttons         string // their custom_ids, "" for none
	last            bool   // nobody but the bot wrote after it
}

func (a *Adapter) view(id chat.ThreadID) *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.views[id]
	if v == nil {
		v = &view{id: id, refs: map[string]ref{}, drafts: map[string]*draft{}, spent: map[string]int{}, moved: map[string]string{}, faces: map[string]*face{}}
		a.views[id] = v
	}
	v.used = time.Now()
	return v
}

// viewAge is how long a thread that nothing happens in is remembered.
const viewAge = time.Hour

// forget drops what is known of threads in which nothing happened for long; it can
// be read again from their history.
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
			delete(v.spent, v.order[0])
			v.order = v.order[1:]
		}
	}
	v.refs[key] = r
}

// at is what is known of a message; faceMu is held. Old ones are forgotten
// together, which can only leave a face to the outbox.
func (v *view) at(message string) *face {
	f := v.faces[message]
	if f == nil {
		if len(v.faces) > maxKeys {
			v.faces = map[string]*face{}
		}
		f = &face{busy: make(chan struct{}, 1)}
		v.faces[message] = f
	}
	return f
}

// face counts how often a message was written.
func (v *view) face(message string) uint64 {
	v.faceMu.Lock()
	defer v.faceMu.Unlock()
	return v.at(message).written
}

// painted counts one more, and remembers the buttons that the message has now.
func (v *view) painted(message string, c *chat.Card) {
	v.faceMu.Lock()
	defer v.faceMu.Unlock()
	f := v.at(message)
	f.written++
	f.buttons = nil
	if c != nil {
		f.buttons = embed.Buttons(*c)
	}
}

// button is what is known of a card's button, beyond what the card shows.
func (v *view) button(message string, id chat.ButtonID) (embed.Choice, bool) {
	v.faceMu.Lock()
	defer v.faceMu.Unlock()
	f := v.faces[message]
	if f == nil {
		return embed.Choice{}, false
	}
	i := slices.IndexFunc(f.buttons, func(b embed.Choice) bool { return b.ID == id })
	if i < 0 {
		return embed.Choice{}, false
	}
	return f.buttons[i], true
}

// hold keeps others from writing a message, so that what is written last is seen
// last. ok is false when somebody else held it for all of wait.
func (v *view) hold(message string, wait time.Duration) (free func(), ok bool) {
	v.faceMu.Lock()
	busy := v.at(message).busy
	v.faceMu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case busy <- struct{}{}:
		return func() { <-busy }, true
	case <-t.C:
		return nil, false
	}
}

// lookBack is how many messages at a thread's end are read for what an earlier run
// left there. Posts are made in order, so that the one whose fate is not known is
// the last.
const lookBack = 100

// look finds what an earlier run, or a call whose answer was lost, left in the
// thread. Discord gives back no key, so that only [view.claim] can tell which post
// a message is.
func (a *Adapter) look(ctx context.Context, th thread, v *view) error {
	fresh := !v.shared && !th.direct() && created(th.channel).After(a.began.Add(margin)) && a.now().Sub(created(th.channel)) < viewAge
	if !v.doubt && (v.looked || fresh) {
		v.looked = true
		return nil
	}
	var list []*discordgo.Message
	err := a.pace.do(ctx, normal, func(ctx context.Context) (err error) {
		list, _, err = a.rest.Messages(ctx, th.channel, gateway.Page{Limit: lookBack})
		return err
	})
	if err = a.explain("read", err); err != nil {
		return err
	}
	v.left = nil
	last := true
	for _, m := range list { // the newest first
		if m.Author.ID != a.self().user {
			last = last && !read(m.Type)
			continue
		}
		if !read(m.Type) || v.knows(m.ID) {
			continue
		}
		l := leftover{id: m.ID, text: m.Content, last: last, buttons: customIDs(m.Components)}
		if len(m.Embeds) > 0 && m.Embeds[0] != nil {
			l.title = m.Embeds[0].Title
		}
		v.left = append(v.left, l)
	}
	v.looked, v.doubt = true, false
	return nil
}

// knows reports whether a message is one of the posts that are remembered.
func (v *view) knows(message string) bool {
	for _, r := range v.refs {
		if slices.Contains(r.parts, message) {
			return true
		}
	}
	for _, d := range v.drafts {
		if d.id == message {
			return true
		}
	}
	return v.log != nil && v.log.id == message
}

// customIDs are those of a message's buttons, in order.
func customIDs(list []discordgo.MessageComponent) string {
	var ids []string
	for _, c := range list {
		row, ok := c.(*discordgo.ActionsRow)
		if !ok {
			continue
		}
		for _, b := range row.Components {
			if b, ok := b.(*discordgo.Button); ok {
				ids = append(ids, b.CustomID)
			}
		}
	}
	return strings.Join(ids, " ")
}

func rowIDs(rows []embed.Row) string {
	var ids []string
	for _, r := range rows {
		for _, b := range r.Components {
			ids = append(ids, b.CustomID)
		}
	}
	return strings.Join(ids, " ")
}

// claim finds the messages of a post among those that an earlier run left: a card
// with buttons by its title and their ids, which belong to one request, wherever
// it is; and anything else when it is the last thing that was said and says the
// same. What is claimed once belongs to nobody else.
func (v *view) claim(msgs []embed.Message) []string {
	if len(v.left) == 0 {
		return nil
	}
	if ids := rowIDs(msgs[0].Components); ids != "" {
		for _, l := range v.left {
			if l.buttons == ids && len(msgs[0].Embeds) > 0 && l.title == msgs[0].Embeds[0].Title {
				return []string{l.id}
			}
		}
		return nil
	}
	last := slices.DeleteFunc(slices.Clone(v.left), func(l leftover) bool { return !l.last })
	slices.Reverse(last) // the oldest first
	for n := min(len(msgs), len(last)); n > 0; n-- {
		var ids []string
		for i, l := range last[len(last)-n:] {
			if l.buttons == "" && same(l, msgs[i]) {
				ids = append(ids, l.id)
			}
		}
		if len(ids) == n {
			return ids
		}
	}
	return nil
}

func same(l leftover, m embed.Message) bool {
	title := ""
	if len(m.Embeds) > 0 {
		title = m.Embeds[0].Title
	}
	return strings.TrimSpace(l.text) == strings.TrimSpace(m.Content) && l.title == title
}

// claimLine finds the message that holds a line of the work log already.
func (v *view) claimLine(m embed.Message) string {
	line := strings.TrimSpace(m.Content)
	for _, l := range v.left {
		if l.last && l.buttons == "" && l.title == "" && slices.Contains(strings.Split(l.text, "\n\n"), line) {
			return l.id
		}
	}
	return ""
}

// settled says that a post was made: what was left behind before it is known for
// good, but for cards.
func (v *view) settled() {
	v.left = slices.DeleteFunc(v.left, func(l leftover) bool { return l.buttons == "" })
}
