package blockkit

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
)

// How many entries of each kind the home page lists, and how many characters of
// each; with headings they stay under [MaxHomeBlocks].
const (
	homeMine, homeOthers, homeSessions, homeBusy = 25, 15, 20, 20

	homeEntry = 600
)

// Home draws the App Home of one person: what waits for them first, with a
// button that opens the thread, then what waits for others, sessions and busy
// threads. link returns a thread's address, "" when it has none; nil means
// that there are no addresses. Longer lists say how many entries are left out.
func Home(o chat.Overview, link func(chat.ThreadID) string, now time.Time) []slack.Block {
	h := home{link: link}
	var mine, others []chat.Waiting
	for _, w := range o.Approvals {
		if w.Mine {
			mine = append(mine, w)
		} else {
			others = append(others, w)
		}
	}
	for _, list := range [][]chat.Waiting{mine, others} {
		slices.SortStableFunc(list, func(a, b chat.Waiting) int { return a.Expires.Compare(b.Expires) })
	}
	h.heading(headWaiting)
	if len(mine) == 0 {
		h.say(sayNothingWaits)
	}
	h.list(len(mine), homeMine, func(i int) { h.waiting(mine[i], now) })
	if len(others) > 0 {
		h.heading(headOthers)
		h.list(len(others), homeOthers, func(i int) { h.waiting(others[i], now) })
	}
	if len(o.Sessions) > 0 {
		h.heading(headSessions)
		h.list(len(o.Sessions), homeSessions, func(i int) {
			s := o.Sessions[i]
			t := fmt.Sprintf("%s (%s)", s.Name, s.State)
			if s.Attach != "" {
				t += "\nAttach: " + s.Attach
			}
			h.entry(t, s.Thread)
		})
	}
	if len(o.Busy) > 0 {
		h.heading(headBusy)
		h.list(len(o.Busy), homeBusy, func(i int) { h.entry(o.Busy[i].Doing, o.Busy[i].Thread) })
	}
	if len(o.Approvals)+len(o.Sessions)+len(o.Busy) == 0 {
		h.say(sayQuiet)
	}
	return h.blocks
}

type home struct {
	blocks []slack.Block
	link   func(chat.ThreadID) string
	links  int
}

func (h *home) heading(s string) {
	h.blocks = append(h.blocks, slack.NewHeaderBlock(plain(s, MaxHeader)))
}

func (h *home) say(s string) {
	h.blocks = append(h.blocks, slack.NewContextBlock("", plain(s, MaxPlainText)))
}

func (h *home) list(n, limit int, each func(i int)) {
	for i := range min(n, limit) {
		each(i)
	}
	if n > limit {
		h.say(fmt.Sprintf("%d more are not listed here.", n-limit))
	}
}

func (h *home) waiting(w chat.Waiting, now time.Time) {
	t := fmt.Sprintf("%s\n%s on %s, %s", w.Title, strings.ToUpper(w.Level), w.Target, until(w.Expires, now))
	if w.ID != "" {
		t += ", request " + w.ID
	}
	h.entry(t, w.Thread)
}

// until says when something expires, relative to now and in UTC.
func until(t, now time.Time) string {
	d := t.Sub(now).Round(time.Second)
	s := fmt.Sprintf("%d min", int(d.Minutes()))
	switch {
	case t.IsZero():
		return "no time limit"
	case d <= 0:
		return "expired"
	case d < time.Minute:
		s = fmt.Sprintf("%d s", int(d.Seconds()))
	case d >= time.Hour:
		s = fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("expires in %s (%s UTC)", s, t.UTC().Format("15:04"))
}

// entry is one line with a button to its thread. The texts are plain: they may
// come from a model.
func (h *home) entry(s string, t chat.ThreadID) {
	b := slack.NewSectionBlock(plain(s, homeEntry), nil, nil)
	if to := h.address(t); to != "" {
		h.links++
		e := slack.NewButtonBlockElement(fmt.Sprintf("%s:%d", VerbOpen, h.links), "", plain("Open thread", MaxButtonText)).WithURL(to)
		b.Accessory = slack.NewAccessory(e)
	}
	h.blocks = append(h.blocks, b)
}

// address is a thread's https address or "".
func (h *home) address(t chat.ThreadID) string {
	if h.link == nil {
		return ""
	}
	to := h.link(t)
	if u, err := url.Parse(to); err != nil || u.Scheme != "https" || u.Host == "" || !word(to, MaxURL) {
		return ""
	}
	return to
}
