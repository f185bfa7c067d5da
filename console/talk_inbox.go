package console

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/console/display"
	"countersign/store"
)

var (
	errNotOpen = refuse(http.StatusServiceUnavailable, sayNotOpen)  // nobody handles messages yet
	errRefused = refuse(http.StatusServiceUnavailable, sayNotTaken) // the bot did not accept the message
)

// patience is how long the bot may take to accept a message or a click.
const patience = 30 * time.Second

// incoming is one message from a person.
type incoming struct {
	user   string
	groups []string
	thread string
	client string // the page's own id for it: what comes again has the same
	text   string
	start  bool   // it may start the thread
	by     string // the replica that accepts it
	token  bool   // a program sent it with the person's token
}

func (in incoming) event(at time.Time, seq uint64) chat.Event {
	return chat.Event{
		ID:     eventID(in.thread, in.user, in.client),
		Thread: threadID(in.thread),
		From:   chat.User{ID: userID(in.user), Name: in.user},
		Text:   in.text,
		At:     at,
		Groups: in.groups,
		Ref:    chat.MessageRef(fmt.Sprint(seq)),
		Token:  in.token,
	}
}

// inbox takes what people write and press, and hands it to the bot.
type inbox struct {
	ground
	intake   *intake
	hub      *hub
	replicas *replicas
	foreign  bool // it takes presses of other networks' cards, too
	lastSeen *lastSeen
	turns    [64]chan struct{} // one token each: who has a thread's token may accept a message in it
}

func newInbox(g ground, s *intake, rs *replicas, foreign bool) *inbox {
	b := &inbox{ground: g, intake: s, hub: rs.hub, replicas: rs, foreign: foreign, lastSeen: newLastSeen()}
	for i := range b.turns {
		b.turns[i] = make(chan struct{}, 1)
	}
	return b
}

// accept returns nil when the bot has the message and people see it. One
// message of a thread is accepted at a time, so that the bot gets them in the
// order in which they are shown.
func (b *inbox) accept(ctx context.Context, in incoming) error {
	h, leave := b.intake.enter()
	defer leave()
	if h == nil {
		return errNotOpen
	}
	turn := b.turns[stripe(in.thread, len(b.turns))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// From here on a lost connection must not leave the message half accepted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()

	in.by = b.replicas.name
	for {
		var seq uint64
		var done bool
		now := b.now()
		// It is durable when the bot has accepted it.
		err := store.UpdateRelaxed(ctx, b.db, func(tx store.Tx) error {
			var found bool
			if seq, done, found = hold(tx, in, now); !found {
				return errThread
			}
			return nil
		})
		if err != nil || done {
			return err
		}
		if gone, err := b.deliver(ctx, h, in, now, seq); !gone {
			return err
		}
		// Another replica has settled the same message: what it became is in the store.
	}
}

// deliver hands over a message that is held, when it is its turn, and shows it.
func (b *inbox) deliver(ctx context.Context, h chat.Handler, in incoming, at time.Time, seq uint64) (gone bool, err error) {
	stop := b.keepUp(ctx, in.thread, seq)
	defer stop()
	if b.replicas.shared {
		gone, err = b.inTurn(ctx, h, in.thread, seq)
	}
	if err == nil && !gone {
		err = h.Deliver(ctx, in.event(at, seq))
	}
	switch {
	case gone:
		return true, nil
	case err == nil:
		return false, b.reveal(ctx, in.thread, seq)
	}
	b.log.WarnContext(ctx, "a message was not accepted", "thread", threadID(in.thread), "error", err)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := b.db.Update(undo, func(tx store.Tx) error { drop(tx, in, seq); return nil }); err != nil {
		b.log.ErrorContext(ctx, "a refused message stays pending", "thread", threadID(in.thread), "error", err)
	}
	return false, errRefused
}

func (b *inbox) reveal(ctx context.Context, thread string, seq uint64) error {
	// The next start shows what is pending still.
	err := store.UpdateRelaxed(ctx, b.db, func(tx store.Tx) error {
		show(tx, thread, seq, b.now())
		b.replicas.tellOthers(tx, thread)
		return nil
	})
	if err != nil {
		return err
	}
	b.hub.posted(thread, "")
	return nil
}

// decide hands a press to the bot.
func (b *inbox) decide(ctx context.Context, h chat.Handler, c chat.Click) (chat.Answer, error) {
	ans, err := h.Click(ctx, c)
	if err != nil {
		b.log.WarnContext(ctx, "a click was not decided", "thread", c.Thread, "error", err)
		return chat.Answer{}, errRefused
	}
	return ans, nil
}

// click hands one press over and shows the card's new face.
func (b *inbox) click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	h, leave := b.intake.enter()
	defer leave()
	if h == nil {
		return chat.Answer{}, errNotOpen
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	id, own := threadPart(c.Thread)
	if !own { // its network shows the card's new face
		return b.decide(ctx, h, c)
	}
	var seq, rev uint64
	err := b.db.View(ctx, func(tx store.Tx) error {
		if _, ok := listed(tx, id); !ok {
			return errThread
		}
		seq, rev = cardOf(tx, id, c.Button)
		return nil
	})
	if err != nil {
		return chat.Answer{}, err
	}
	ans, err := b.decide(ctx, h, c)
	if err != nil || ans.Card == nil || seq == 0 {
		return ans, err
	}
	err = store.UpdateRelaxed(ctx, b.db, func(tx store.Tx) error {
		if t, ok := listed(tx, id); ok && ans.OK {
			t.join(c.From.Name)
			store.Save(tx, threadKey(id), t)
		}
		if repaint(tx, id, seq, rev, ans.Card, b.now()) {
			b.replicas.tellOthers(tx, id)
		}
		return nil
	})
	if err != nil {
		// The decision stands; the bot posts the card's new face as well.
		b.log.ErrorContext(ctx, "a card keeps its old face", "thread", c.Thread, "error", err)
		return ans, nil
	}
	b.hub.posted(id, "")
	return ans, nil
}

func stripe(s string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))         // never fails
	return int(h.Sum32() % uint32(n)) //nolint:gosec // n is a small array's length
}

type sayBody struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

func (b *sayBody) read(w http.ResponseWriter, r *http.Request) error {
	if err := read(w, r, b); err != nil {
		return err
	}
	if b.ID == "" || len(b.ID) > maxClient {
		return refuse(http.StatusBadRequest, sayNoID)
	}
	if strings.TrimSpace(b.Text) == "" {
		return refuse(http.StatusBadRequest, sayEmpty)
	}
	return nil
}

func (b *inbox) startThread(w http.ResponseWriter, r *http.Request, s session) error {
	var body sayBody
	if err := body.read(w, r); err != nil {
		return err
	}
	in := incoming{user: s.user, groups: s.groups, thread: newThreadID(s.user, body.ID), client: body.ID, text: body.Text, start: true, token: s.program}
	if err := b.accept(r.Context(), in); err != nil {
		return err
	}
	return answer(w, http.StatusCreated, map[string]any{"thread": threadID(in.thread)})
}

func (b *inbox) say(w http.ResponseWriter, r *http.Request, s session) error {
	id, ok := pathThread(r)
	if !ok {
		return errThread
	}
	var body sayBody
	if err := body.read(w, r); err != nil {
		return err
	}
	if err := b.accept(r.Context(), incoming{user: s.user, groups: s.groups, thread: id, client: body.ID, text: body.Text, token: s.program}); err != nil {
		return err
	}
	return answer(w, http.StatusAccepted, map[string]any{"thread": threadID(id)})
}

func (b *inbox) press(w http.ResponseWriter, r *http.Request, s session) error {
	id, ok := pathThread(r)
	thread := threadID(id)
	foreign := false
	if other := chat.ThreadID(r.PathValue("id")); !ok && b.foreign && foreignThread(other) {
		thread, ok, foreign = other, true, true // a card of the first page; the gate knows whether the button is of this thread
	}
	if !ok {
		return errThread
	}
	var body struct {
		ID     string        `json:"id"`
		Button chat.ButtonID `json:"button"`
		Reason string        `json:"reason"`
		Text   string        `json:"text"`
		Signed *chat.Signed  `json:"signed"`
		Ticket string        `json:"ticket"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	if body.ID == "" || len(body.ID) > maxClient || body.Button == "" {
		return refuse(http.StatusBadRequest, sayBadClick)
	}
	if foreign && !decides.MatchString(string(body.Button)) && (body.Ticket == "" || !decidesByTicket.MatchString(string(body.Button))) {
		return refuse(http.StatusForbidden, sayThreadOnly)
	}
	if len(body.Reason) > maxReason {
		return refuse(http.StatusBadRequest, sayLongReason)
	}
	if len(body.Text) > maxEdit {
		return refuse(http.StatusBadRequest, sayLongEdit)
	}
	ans, err := b.click(r.Context(), chat.Click{
		ID:     eventID(id, s.user, "click:"+body.ID),
		Thread: thread,
		From:   chat.User{ID: userID(s.user), Name: s.user},
		Button: body.Button,
		Reason: body.Reason,
		Groups: s.groups,
		Text:   body.Text,
		Signed: body.Signed,
		Ticket: body.Ticket,
	})
	switch {
	case errors.Is(err, errRefused):
		return refuse(http.StatusServiceUnavailable, sayNotRecorded)
	case err != nil:
		return err
	}
	return answer(w, http.StatusOK, display.Answer(ans))
}
