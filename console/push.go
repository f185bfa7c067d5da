package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/console/display"
	"countersign/console/webpush"
	"countersign/store"
)

const (
	devicesEach = 10                  // of one person
	deviceLife  = 90 * 24 * time.Hour // without a visit from there
	pushEvery   = 2 * time.Second     // between two looks at who is needed
	// pushAfter is how old a card is before somebody is told: many are decided where they are
	// read already.
	pushAfter = 3 * time.Second
	// pushedLife is how long it is remembered that somebody was told.
	pushedLife = 30 * 24 * time.Hour
	pushTries  = 3
	maxDevice  = 60 // characters of a device's name
)

// Pusher sends messages to browsers. It is safe for concurrent use.
type Pusher interface {
	// PublicKey is what a browser subscribes with.
	PublicKey() string
	// Check says whether a subscription can be one.
	Check(webpush.Subscription) error
	// Send delivers a message. An error that wraps [webpush.ErrGone] ends the subscription.
	Send(context.Context, webpush.Subscription, webpush.Message) error
}

// deviceRow is a browser in which somebody is told of cards that need them.
type deviceRow struct {
	Sub    webpush.Subscription `json:"sub"`
	User   string               `json:"user"`
	Groups []string             `json:"groups,omitempty"`
	Name   string               `json:"name"` // "Chrome on Android"
	Made   time.Time            `json:"made"`
	Seen   time.Time            `json:"seen"` // when the page was last opened there
	// Problem is why its push service refused the last message; "" is none.
	Problem string `json:"problem,omitempty"`
}

// PushProblem is why a push service takes no message for somebody's browser.
type PushProblem struct {
	Device  string `json:"device"` // its id
	User    string `json:"user"`
	Name    string `json:"name"`
	Problem string `json:"problem"` // the end of a sentence; "" is none any more
}

// wishRow is when somebody wants to be told, and of what.
type wishRow struct {
	Least string `json:"least,omitempty"` // the lowest risk; "" is every one
	// From and To are the quiet hours, as 22:00 in Zone; "" is none. In them only what is at
	// least Quiet comes.
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Zone  string `json:"zone,omitempty"` // as in the IANA's database
	Quiet string `json:"quiet,omitempty"`
	Sound bool   `json:"sound,omitempty"`
}

// pushedRow says that somebody was told of a card.
type pushedRow struct {
	At       time.Time `json:"at"`
	Reminded bool      `json:"reminded,omitempty"`
}

func deviceKey(user, id string) []byte   { return store.Key(scheme, "device", user, id) }
func wishKey(user string) []byte         { return store.Key(scheme, "wish", user) }
func pushedKey(user, card string) []byte { return store.Key(scheme, "pushed", user, card) }
func deviceID(sub webpush.Subscription) string {
	return short(digest("device", sub.Endpoint))
}

// levels are the risks that a person can choose, the least first.
var levels = []string{"low", "medium", "high", "critical"}

// level is the place of a card's risk among them; what is not known is taken for high.
func level(risk string) int {
	word, _, _ := strings.Cut(strings.ToLower(risk), " ")
	if i := slices.Index(levels, word); i >= 0 {
		return i
	}
	return slices.Index(levels, "high")
}

// valid reports whether wishes can be kept.
func (w wishRow) valid() bool {
	risk := func(s string) bool { return s == "" || slices.Contains(levels, s) }
	clock := func(s string) bool { _, err := time.Parse("15:04", s); return err == nil }
	_, err := time.LoadLocation(w.Zone)
	return risk(w.Least) && risk(w.Quiet) && err == nil && len(w.Zone) <= 64 && (w.From == "" && w.To == "" || clock(w.From) && clock(w.To))
}

// quiet reports whether now is in somebody's quiet hours.
func (w wishRow) quiet(now time.Time) bool {
	zone, err := time.LoadLocation(w.Zone)
	if err != nil || w.From == "" || w.From == w.To {
		return false
	}
	clock := now.In(zone).Format("15:04")
	if w.From < w.To {
		return clock >= w.From && clock < w.To
	}
	return clock >= w.From || clock < w.To // over midnight
}

// due reports whether somebody is to be told of a card now, and if it is for the second time.
func (w wishRow) due(c api.HomeCard, was pushedRow, told bool, now time.Time) (due, again bool) {
	least := w.Least
	if w.quiet(now) {
		least = cmp.Or(w.Quiet, "critical")
	}
	switch {
	case least != "" && level(c.Card.Risk) < slices.Index(levels, least), now.Sub(c.At) < pushAfter:
		return false, false
	case !told:
		return true, false
	case was.Reminded || c.Card.Expires.IsZero():
		return false, false
	}
	half := c.At.Add(c.Card.Expires.Sub(c.At) / 2)
	return now.After(half) && now.Before(c.Card.Expires) && now.Sub(was.At) > time.Minute, true
}

// notice is what the service worker shows (sw.js).
type notice struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Body  string `json:"body"`
	Sound bool   `json:"sound,omitempty"`
}

// noticeOf says in two lines what waits.
func noticeOf(c api.HomeCard, w wishRow, again bool, now time.Time) notice {
	parts := []string{c.Card.Env, c.Card.Risk}
	if again {
		left := max(time.Minute, c.Card.Expires.Sub(now).Round(time.Minute))
		parts = append([]string{"Still waiting, " + strings.TrimSuffix(left.String(), "0s") + " left"}, parts...)
	}
	parts = append(parts, networkOf(c.Thread))
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return notice{ID: c.ID, Title: clip(display.Text(c.Card.Title), 150), Body: clip(display.Text(strings.Join(parts, " · ")), 300), Sound: w.Sound}
}

// clip shortens a text to n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// push tells people of cards that need them, in the browsers that asked for it.
type push struct {
	ground
	pusher Pusher // nil: nobody is told
	desk   Desk
	users  func(string, []string) Role
	onPush func(PushProblem) // nil is not called
	redact func(string) string
	pushes sync.WaitGroup
}

// devices lists all browsers that are told, by person. What is over is left out.
func (p *push) devices(ctx context.Context) (map[string][]deviceRow, error) {
	var all map[string][]deviceRow
	err := p.db.View(ctx, func(tx store.Tx) error {
		all = map[string][]deviceRow{}
		for _, row := range decoded[deviceRow](tx.Scan(store.Prefix(scheme, "device"))) {
			if p.now().Sub(row.Seen) < deviceLife && p.users(row.User, slices.Clone(row.Groups)).has(mayWrite) {
				all[row.User] = append(all[row.User], row)
			}
		}
		return nil
	})
	return all, err
}

// tellNeeded tells people, in the browsers that asked for it, of cards that need them.
func (p *push) tellNeeded(ctx context.Context) error {
	all, err := p.devices(ctx)
	if err != nil {
		return err
	}
	for user, devices := range all {
		groups := slices.MaxFunc(devices, func(x, y deviceRow) int { return x.Seen.Compare(y.Seen) }).Groups
		home, err := p.desk.Home(ctx, chat.Inquiry{From: chat.User{ID: userID(user), Name: user}, Groups: slices.Clone(groups)}, true)
		if err != nil {
			return err
		}
		for _, c := range home.Yours {
			m, ok, err := p.claimNotice(ctx, user, c)
			if err != nil {
				return err
			}
			if ok {
				p.pushAll(ctx, devices, m)
			}
		}
	}
	return nil
}

// claimNotice notes that somebody is told of a card, before they are: of several replicas one
// does, and none twice after a crash.
func (p *push) claimNotice(ctx context.Context, user string, c api.HomeCard) (m webpush.Message, ok bool, err error) {
	// A card shows exactly what is decided; what leaves for a phone's screen does not.
	c.Card.Title, c.Card.Env = p.redact(c.Card.Title), p.redact(c.Card.Env)
	look := func(tx store.Tx) (n notice, row pushedRow) {
		wish, _ := store.Load[wishRow](tx, wishKey(user))
		was, told := store.Load[pushedRow](tx, pushedKey(user, c.ID))
		now := p.now()
		due, again := wish.due(c, was, told, now)
		ok = due
		return noticeOf(c, wish, again, now), pushedRow{At: now.UTC(), Reminded: again}
	}
	if err = p.db.View(ctx, func(tx store.Tx) error { look(tx); return nil }); err != nil || !ok {
		return m, false, err
	}
	var n notice
	err = p.db.Update(ctx, func(tx store.Tx) error {
		var row pushedRow
		if n, row = look(tx); ok {
			p.tidyPushed(tx, user)
			store.Save(tx, pushedKey(user, c.ID), row)
		}
		return nil
	})
	if err != nil || !ok {
		return m, false, err
	}
	body, err := json.Marshal(n)
	return webpush.Message{Body: body, TTL: max(0, c.Card.Expires.Sub(p.now())), Urgent: true, Topic: topic(c.ID)}, true, err
}

// topic has a reminder replace what it reminds of, where a phone has not fetched that yet.
func topic(card string) string {
	return base64.RawURLEncoding.EncodeToString(digest("topic", card))[:32]
}

func (p *push) tidyPushed(tx store.Tx, user string) {
	for k, row := range decoded[pushedRow](tx.Scan(store.Prefix(scheme, "pushed", user))) {
		if p.now().Sub(row.At) > pushedLife {
			tx.Delete(k)
		}
	}
}

// pushAll sends a message to all of somebody's browsers, in the background.
func (p *push) pushAll(ctx context.Context, devices []deviceRow, m webpush.Message) {
	for _, d := range devices {
		p.pushes.Go(func() {
			for try := 1; ; try++ {
				err := p.pusher.Send(ctx, d.Sub, m)
				switch {
				case err == nil:
					p.setProblem(ctx, d, "")
					return
				case errors.Is(err, webpush.ErrGone), errors.Is(err, webpush.ErrSubscription):
					p.setProblem(ctx, d, "")
					p.dropDevice(ctx, d.User, deviceID(d.Sub))
					return
				case errors.As(err, new(*webpush.RefusedError)):
					p.log.WarnContext(ctx, "a person could not be notified", "user", userID(d.User), "device", d.Name, "error", err)
					p.setProblem(ctx, d, err.Error())
					return
				case try == pushTries:
					p.log.WarnContext(ctx, "a person could not be notified", "user", userID(d.User), "device", d.Name, "error", err)
					return
				}
				select {
				case <-time.After(time.Duration(try) * time.Second):
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// setProblem notes why a browser's push service refuses messages, or that it no longer does.
func (p *push) setProblem(ctx context.Context, d deviceRow, problem string) {
	if d.Problem == problem {
		return
	}
	id := deviceID(d.Sub)
	err := p.db.Update(ctx, func(tx store.Tx) error {
		if row, ok := store.Load[deviceRow](tx, deviceKey(d.User, id)); ok {
			row.Problem = problem
			store.Save(tx, deviceKey(d.User, id), row)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "why a device gets no notifications could not be stored", "user", userID(d.User), "error", err)
	}
	if p.onPush != nil {
		p.onPush(PushProblem{Device: id, User: d.User, Name: d.Name, Problem: problem})
	}
}

func (p *push) dropDevice(ctx context.Context, user, id string) {
	err := p.db.Update(ctx, func(tx store.Tx) error { tx.Delete(deviceKey(user, id)); return nil })
	if err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "a device that wants no notifications could not be forgotten", "user", userID(user), "error", err)
	}
}

// device is one as the page sees it.
type device struct {
	ID   string    `json:"id"`
	Name string    `json:"name"`
	Seen time.Time `json:"seen"`
	// Problem is why it gets no notifications.
	Problem string `json:"problem,omitempty"`
}

// list tells the page of this person's devices and wishes.
func (p *push) list(w http.ResponseWriter, r *http.Request, s session) error {
	list, wish := []device{}, wishRow{}
	err := p.db.View(r.Context(), func(tx store.Tx) error {
		list = list[:0]
		wish, _ = store.Load[wishRow](tx, wishKey(s.user))
		for k, row := range decoded[deviceRow](tx.Scan(store.Prefix(scheme, "device", s.user))) {
			list = append(list, device{lastText(k), row.Name, row.Seen, row.Problem})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(x, y device) int { return y.Seen.Compare(x.Seen) })
	return answer(w, http.StatusOK, map[string]any{"key": p.pusher.PublicKey(), "devices": list, "wishes": wish})
}

// addDevice notes a browser's subscription, or that it is still there.
func (p *push) addDevice(w http.ResponseWriter, r *http.Request, s session) error {
	var body struct {
		Subscription webpush.Subscription `json:"subscription"`
		Name         string               `json:"name"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	if err := p.pusher.Check(body.Subscription); err != nil {
		return refuse(http.StatusBadRequest, sayBadDevice)
	}
	id, now := deviceID(body.Subscription), p.now().UTC()
	err := p.db.Update(r.Context(), func(tx store.Tx) error {
		row, known := store.Load[deviceRow](tx, deviceKey(s.user, id))
		if !known {
			n := 0
			for range tx.Scan(store.Prefix(scheme, "device", s.user)) {
				n++
			}
			if n >= devicesEach {
				return refuse(http.StatusConflict, sayManyDevices)
			}
			row.Made = now
		}
		row.Sub, row.User, row.Groups, row.Seen = body.Subscription, s.user, s.groups, now
		row.Name = cmp.Or(clip(display.Text(strings.TrimSpace(body.Name)), maxDevice), "A browser")
		store.Save(tx, deviceKey(s.user, id), row)
		return nil
	})
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]string{"id": id})
}

// endDevice forgets one.
func (p *push) endDevice(w http.ResponseWriter, r *http.Request, s session) error {
	id := r.PathValue("id")
	return done(w, p.db.Update(r.Context(), func(tx store.Tx) error { tx.Delete(deviceKey(s.user, id)); return nil }))
}

// setWishes keeps when somebody wants to be told, and of what.
func (p *push) setWishes(w http.ResponseWriter, r *http.Request, s session) error {
	var wish wishRow
	if err := read(w, r, &wish); err != nil {
		return err
	}
	if !wish.valid() {
		return refuse(http.StatusBadRequest, sayBadWishes)
	}
	return done(w, p.db.Update(r.Context(), func(tx store.Tx) error { store.Save(tx, wishKey(s.user), wish); return nil }))
}
