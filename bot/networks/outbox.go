package networks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/bot/replicas"
	"countersign/bot/threads"
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/store/outbox"
)

// OutboxConfig is what an outbox is made of.
type OutboxConfig struct {
	DB       store.DB
	Networks *Networks
	Replicas *replicas.Member
	// Repaint makes a card of a thread, by its key, what it has to be now.
	Repaint func(ctx context.Context, thread chat.ThreadID, key string) error
	// Output is a whole output of a thread as a file, redacted.
	Output func(ctx context.Context, thread chat.ThreadID, id string) (chat.File, error)
	Log    *slog.Logger
}

// Outbox sends what the bot says to the networks. It implements agent.Outbox.
type Outbox struct {
	*outbox.Sender
	cfg OutboxConfig

	mu   sync.Mutex
	last map[string]string // by the key of a card, what its call has printed last
}

// NewOutbox returns an outbox that sends nothing before its Run.
func NewOutbox(c OutboxConfig) *Outbox {
	o := &Outbox{cfg: c, last: map[string]string{}}
	o.Sender = outbox.NewSender(c.DB, outbox.Options{
		Send: o.send, Log: c.Log,
		Permanent:  permanent,
		OnDropped:  o.dropped,
		RetryAfter: retryAfter,
		Yields:     func(r outbox.Row) bool { return r.Ref != "" || isLog(r) }, // what is posted waits for no edit
		Joins:      o.joins,
		Settles:    settles,
		// What the console shows is in the store, so a power failure takes both or neither.
		Repeatable:  func(r outbox.Row) bool { return strings.HasPrefix(r.Thread, "web:") },
		Concurrency: 256, Timeout: time.Minute,
		Owner: c.Replicas.Name(), Alive: c.Replicas.Alive,
		OnLate: o.late,
		OnSent: func(r outbox.Row) {
			switch {
			case strings.HasPrefix(r.Key, chat.CardPrefix):
				failpoint.Hit(failpoint.CardPosted)
			case strings.HasPrefix(r.Key, "reply/"):
				failpoint.Hit(failpoint.ReplyPosted)
			}
		},
	})
	return o
}

// closedFor is how long posts wait for a channel that takes nothing.
const closedFor = 7 * 24 * time.Hour

// permanent reports whether a post will never be shown.
func permanent(r outbox.Row, err error) bool {
	if errors.Is(err, chat.ErrClosed) {
		return time.Since(r.At) > closedFor
	}
	return errors.Is(err, chat.ErrGone) || errors.Is(err, chat.ErrRejected)
}

// droppedKey is of the post that says that others were dropped.
const droppedKey = "undelivered"

// dropped says in a channel that took nothing for too long, once it takes something again, that
// posts were dropped.
func (o *Outbox) dropped(r outbox.Row) {
	if r.Key == droppedKey || time.Since(r.At) <= closedFor {
		return
	}
	err := o.cfg.DB.Update(context.Background(), func(tx store.Tx) error {
		o.Put(tx, chat.ThreadID(r.Thread), chat.Post{Key: droppedKey, Text: sayDropped})
		return nil
	})
	if err != nil {
		o.cfg.Log.Error("a thread cannot be told that posts were dropped", "thread", r.Thread, "error", err)
		return
	}
	o.Wake(chat.ThreadID(r.Thread))
}

// Put writes a post in a transaction; Wake sends it afterwards.
func (o *Outbox) Put(tx store.Tx, thread chat.ThreadID, p chat.Post) {
	outbox.Put(tx, string(thread), p.Key, p, time.Now())
}

// Wake sends what was put for a thread.
func (o *Outbox) Wake(thread chat.ThreadID) { o.Sender.Wake(string(thread)) }

// RunAfter sends until ctx is done and what writes here has ended; last words have a moment
// then.
func (o *Outbox) RunAfter(ctx context.Context, writing <-chan struct{}) error {
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		<-writing
		fctx, done := context.WithTimeout(sctx, lastWords)
		defer done()
		_ = o.Flush(fctx)
		cancel()
	}()
	if err := o.Run(sctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// lastWords is how long what was said last may take to be sent.
const lastWords = 3 * time.Second

// Tell posts a sentence in every thread that works or waits.
func (o *Outbox) Tell(ctx context.Context, text string) {
	list, err := threads.Active(ctx, o.cfg.DB, "")
	if err == nil && len(list) > 0 {
		err = o.cfg.DB.Update(ctx, func(tx store.Tx) error {
			for _, t := range list {
				o.Put(tx, t, chat.Post{Key: fmt.Sprintf("reload/%d", time.Now().UnixNano()), Text: text})
			}
			return nil
		})
	}
	if err != nil {
		o.cfg.Log.Error("the threads could not be told", "error", err)
		return
	}
	for _, t := range list {
		o.Wake(t)
	}
}

// maxGiven is the largest file of a tool that is posted, in bytes: it waits in the store.
const maxGiven = 4 << 20

// Give posts a file of a tool in a thread.
func (o *Outbox) Give(ctx context.Context, thread, name, mime string, data []byte) error {
	if len(data) > maxGiven {
		return fmt.Errorf("it has %d bytes, and %d can be posted", len(data), maxGiven)
	}
	p := chat.Post{Key: "file/" + name + "/" + fmt.Sprint(time.Now().UnixNano()), Text: sayFile(mime), Files: []chat.File{{Name: name, Data: data}}, Quiet: true}
	err := o.cfg.DB.Update(ctx, func(tx store.Tx) error {
		o.Put(tx, chat.ThreadID(thread), p)
		return nil
	})
	if err == nil {
		o.Wake(chat.ThreadID(thread))
	}
	return err
}

// send sends one row.
func (o *Outbox) send(ctx context.Context, r outbox.Row) (string, error) {
	a, err := o.cfg.Networks.of(r.Thread)
	if err != nil {
		return "", err
	}
	var p chat.Post
	if err := json.Unmarshal(r.Body, &p); err != nil {
		return "", fmt.Errorf("post cannot be read: %w", chat.ErrRejected)
	}
	p.Key = r.Key
	for _, j := range r.Joined {
		also := chat.Post{}
		if err := json.Unmarshal(j.Body, &also); err != nil {
			return "", fmt.Errorf("post cannot be read: %w", chat.ErrRejected)
		}
		also.Key = j.Key
		p.Also = append(p.Also, also)
	}
	if p.Output != "" {
		p = o.withOutput(ctx, a, chat.ThreadID(r.Thread), p)
	}
	if r.Ref != "" {
		return r.Ref, a.Edit(ctx, chat.ThreadID(r.Thread), chat.MessageRef(r.Ref), p)
	}
	ref, err := a.Post(ctx, chat.ThreadID(r.Thread), p)
	return string(ref), err
}

// withOutput makes a file of the output whose end a post shows, unless the network shows
// outputs itself. Where it can't be had, the post says how to ask for it.
func (o *Outbox) withOutput(ctx context.Context, a chat.Adapter, thread chat.ThreadID, p chat.Post) chat.Post {
	if _, ok := a.(chat.OutputViewer); ok {
		return p
	}
	f, err := o.cfg.Output(ctx, thread, p.Output)
	if err != nil {
		o.cfg.Log.WarnContext(ctx, "a whole output could not be posted", "thread", thread, "output", p.Output, "error", err)
		p.Text += " " + chat.WholeAt(p.Output)
	} else {
		p.Files = append(p.Files, f)
	}
	p.Output = ""
	return p
}

// late repairs what this replica posted or edited after another one had: it was stopped in
// between. A card of those would have buttons that decide nothing.
func (o *Outbox) late(ctx context.Context, r outbox.Row, made, kept string) {
	var err error
	switch a, _ := o.cfg.Networks.of(r.Thread); {
	case r.Ref != "":
		if err = o.cfg.Repaint(ctx, chat.ThreadID(r.Thread), r.Key); err == nil {
			o.Sender.Wake(r.Thread)
		}
	case made != "" && kept != "" && made != kept:
		if x, ok := a.(chat.Retracter); ok {
			err = x.Retract(ctx, chat.ThreadID(r.Thread), r.Key, chat.MessageRef(made), chat.MessageRef(kept))
		}
	}
	if err != nil {
		o.cfg.Log.ErrorContext(ctx, "a message that two replicas posted could not be repaired", "thread", r.Thread, "key", r.Key, "error", err)
	}
}

// Last returns the last line that the call of a card has printed at this replica, "" for none.
func (o *Outbox) Last(card string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[card]
}

// Show shows a passing sign of life.
func (o *Outbox) Show(ctx context.Context, thread chat.ThreadID, p chat.Progress) {
	if p.Card != "" {
		o.mu.Lock()
		if p.Done {
			delete(o.last, p.Card)
		} else {
			o.last[p.Card] = chat.LastLine(p.Text)
		}
		o.mu.Unlock()
	}
	if p.Text != "" && p.Kind != chat.ProgressOutput && o.Behind(string(thread)) {
		p.Text = "" // a draft is a message, and would stand before the answers that are still to be posted
	}
	a, err := o.cfg.Networks.of(string(thread))
	if err != nil {
		return
	}
	if s, ok := a.(chat.ProgressShower); ok {
		s.ShowProgress(ctx, thread, p)
	}
}

// isLog reports whether a row is a line of the work log: people wait for the answer, which
// may overtake it.
func isLog(r outbox.Row) bool {
	var p struct {
		Log bool `json:"log"`
	}
	return json.Unmarshal(r.Body, &p) == nil && p.Log
}

// shortLine is up to which length in bytes a line of the log is posted together with others, of which
// there are few: all of them fit into one message.
const shortLine = 150

// joins reports whether a row is a line of the log that its network takes together with others.
func (o *Outbox) joins(r outbox.Row) bool {
	if r.Ref != "" || len(r.Body) > 4*shortLine {
		return false
	}
	a, err := o.cfg.Networks.of(r.Thread)
	if err != nil {
		return false
	}
	if _, ok := a.(chat.LogJoiner); !ok {
		return false
	}
	var p chat.Post
	return json.Unmarshal(r.Body, &p) == nil && p.Log && p.Card == nil && p.Output == "" && len(p.Files) == 0 && len(p.Text) <= shortLine
}

// settleFor is how long the new face of a card that runs waits for the next: a command that ends
// at once costs one edit.
const settleFor = 700 * time.Millisecond

// settles is how long a row waits for a newer one of its key.
func settles(r outbox.Row) time.Duration {
	if r.Ref == "" || strings.HasPrefix(r.Thread, "web:") { // the console's edits cost nothing
		return 0
	}
	var p chat.Post
	if json.Unmarshal(r.Body, &p) != nil || p.Card == nil || !p.Card.Runs() {
		return 0
	}
	return settleFor
}

func retryAfter(err error) (time.Duration, bool) {
	if limited, ok := errors.AsType[*chat.RateLimitedError](err); ok {
		return limited.After, true
	}
	return 0, false
}
