// Package chattest has a chat network in memory, for tests of whatever sits
// behind a [chat.Handler], and the conformance suite that every adapter runs.
//
// The network imitates no real one: it never fails by itself, has no rate
// limits, and renders nothing.
package chattest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat"
)

// Network is a chat network in memory. It implements [chat.Adapter],
// [chat.ProgressShower] and [chat.Opener], and is safe for concurrent use.
//
// Say, Press and Send wait until [Network.Run] has begun, so a test may start
// it in a goroutine and go on.
type Network struct {
	scheme string
	ready  chan struct{} // closed when handler is set

	mu      sync.Mutex // guards what follows
	handler chat.Handler
	ctx     context.Context //nolint:containedctx // Run's, for what people do meanwhile
	threads map[chat.ThreadID]*thread
	opened  map[string]chat.ThreadID // by channel and key
	events  int
	fail    func(chat.ThreadID, chat.Post) error
	changed chan struct{} // closed and replaced at every change
}

type thread struct {
	said     []chat.Event
	posts    []*posted
	progress map[string]chat.Progress
	log      []chat.Progress
}

type posted struct {
	ref  chat.MessageRef
	post chat.Post
}

var (
	_ chat.Adapter        = (*Network)(nil)
	_ chat.ProgressShower = (*Network)(nil)
	_ chat.Opener         = (*Network)(nil)
)

// New returns an empty network whose thread and user ids begin with scheme.
func New(scheme string) *Network {
	return &Network{
		scheme:  scheme,
		ready:   make(chan struct{}),
		threads: map[chat.ThreadID]*thread{},
		opened:  map[string]chat.ThreadID{},
		changed: make(chan struct{}),
	}
}

// Scheme implements [chat.Adapter].
func (n *Network) Scheme() string { return n.scheme }

// Run implements [chat.Adapter]. It can be called once and returns nil when ctx
// is done.
func (n *Network) Run(ctx context.Context, h chat.Handler) error {
	n.mu.Lock()
	if n.handler != nil {
		n.mu.Unlock()
		return errors.New("chattest: Run was called twice: make a new network")
	}
	n.handler, n.ctx = h, ctx
	close(n.ready)
	n.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Begin makes a thread without a message.
func (n *Network) Begin(t chat.ThreadID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.thread(t)
	n.wake()
}

// Open implements [chat.Opener]. Every channel whose name begins with the scheme
// and a colon is there.
func (n *Network) Open(ctx context.Context, channel, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := strings.CutPrefix(channel, n.scheme+":")
	switch {
	case !ok || name == "":
		return "", "", chat.ErrGone
	case !p.Opens():
		return "", "", chat.ErrRejected
	}
	if err := n.failure(chat.ThreadID(channel), p); err != nil {
		return "", "", err
	}
	t, ok := n.opened[channel+" "+key]
	if !ok {
		t = chat.ThreadID(channel + ":" + strconv.Itoa(len(n.opened)+1))
		n.opened[channel+" "+key] = t
		n.thread(t).posts = []*posted{{chat.MessageRef(fmt.Sprintf("%s#%d", t, 1)), p}}
		n.wake()
	}
	return t, n.threads[t].posts[0].ref, nil
}

// Say lets a person write a message, and makes the thread if it is new. It
// returns what the handler returned: nil means that the message was accepted.
func (n *Network) Say(user chat.UserID, t chat.ThreadID, text string) error {
	n.mu.Lock()
	n.events++
	id := chat.EventID(n.scheme + ":event:" + strconv.Itoa(n.events))
	n.mu.Unlock()
	return n.Send(chat.Event{ID: id, Thread: t, From: person(user), Text: text, At: time.Now(), Ref: chat.MessageRef(id)})
}

// Send delivers ev as it is, for redeliveries, edits and files.
func (n *Network) Send(ev chat.Event) error {
	<-n.ready
	n.mu.Lock()
	h, ctx := n.handler, n.ctx
	n.thread(ev.Thread)
	n.mu.Unlock()
	if err := h.Deliver(ctx, ev); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	th := n.thread(ev.Thread)
	if !slices.ContainsFunc(th.said, func(e chat.Event) bool { return e.ID == ev.ID }) {
		th.said = append(th.said, ev)
	}
	n.wake()
	return nil
}

// Press lets a person press a button, and gives the card its new face.
func (n *Network) Press(user chat.UserID, t chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error) {
	n.mu.Lock()
	n.events++
	id := chat.EventID(n.scheme + ":click:" + strconv.Itoa(n.events))
	n.mu.Unlock()
	return n.Click(chat.Click{ID: id, Thread: t, From: person(user), Button: b, Reason: reason})
}

// Click hands c over as it is, for redeliveries and groups, and gives the card
// its new face.
func (n *Network) Click(c chat.Click) (chat.Answer, error) {
	<-n.ready
	n.mu.Lock()
	h, ctx := n.handler, n.ctx
	pressed := n.thread(c.Thread).withButton(c.Button)
	var before *chat.Card
	if pressed != nil {
		before = pressed.post.Card
	}
	n.mu.Unlock()
	ans, err := h.Click(ctx, c)
	if err != nil {
		return chat.Answer{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	// What the bot posted in the meantime is newer than its answer.
	if ans.Card != nil && pressed != nil && pressed.post.Card == before {
		pressed.post.Card = ans.Card
		n.wake()
	}
	return ans, nil
}

// Fail makes Post, Edit and Open return what f returns, if that is not nil; Open
// names the channel instead of a thread. A nil f ends it.
func (n *Network) Fail(f func(chat.ThreadID, chat.Post) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = f
}

// Post implements [chat.Adapter]. It returns [chat.ErrGone] for a thread in
// which nobody has spoken and that was not opened.
func (n *Network) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.failure(t, p); err != nil {
		return "", err
	}
	th, ok := n.threads[t]
	if !ok {
		return "", chat.ErrGone
	}
	delete(th.progress, p.Key)
	defer n.wake()
	for _, m := range th.posts {
		if p.Key != "" && m.post.Key == p.Key {
			m.post = p
			return m.ref, nil
		}
	}
	ref := chat.MessageRef(fmt.Sprintf("%s#%d", t, len(th.posts)+1))
	th.posts = append(th.posts, &posted{ref, p})
	return ref, nil
}

// Edit implements [chat.Adapter].
func (n *Network) Edit(ctx context.Context, t chat.ThreadID, r chat.MessageRef, p chat.Post) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.failure(t, p); err != nil {
		return err
	}
	if th, ok := n.threads[t]; ok {
		for _, m := range th.posts {
			if m.ref == r {
				delete(th.progress, p.Key)
				p.Key = cmp.Or(m.post.Key, p.Key)
				delete(th.progress, p.Key)
				m.post = p
				n.wake()
				return nil
			}
		}
	}
	return chat.ErrGone
}

// ShowProgress implements [chat.ProgressShower].
func (n *Network) ShowProgress(_ context.Context, t chat.ThreadID, p chat.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	th, ok := n.threads[t]
	if !ok {
		return
	}
	th.log = append(th.log, p)
	if p.Done {
		delete(th.progress, p.Key)
	} else {
		th.progress[p.Key] = p
	}
	n.wake()
}

// Posts returns the bot's messages of a thread as they are now, oldest first.
func (n *Network) Posts(t chat.ThreadID) []chat.Post {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.posts(t)
}

func (n *Network) posts(t chat.ThreadID) []chat.Post {
	var out []chat.Post
	if th, ok := n.threads[t]; ok {
		for _, m := range th.posts {
			out = append(out, m.post)
		}
	}
	return out
}

// Said returns the accepted messages of people in a thread, oldest first.
func (n *Network) Said(t chat.ThreadID) []chat.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	if th, ok := n.threads[t]; ok {
		return slices.Clone(th.said)
	}
	return nil
}

// Threads returns the threads that exist, sorted.
func (n *Network) Threads() []chat.ThreadID {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []chat.ThreadID
	for t := range n.threads {
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}

// Progress returns the progress that is on show in a thread, by key.
func (n *Network) Progress(t chat.ThreadID) []chat.Progress {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []chat.Progress
	if th, ok := n.threads[t]; ok {
		for _, p := range th.progress {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b chat.Progress) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// ProgressLog returns everything that was given to ShowProgress for a thread.
func (n *Network) ProgressLog(t chat.ThreadID) []chat.Progress {
	n.mu.Lock()
	defer n.mu.Unlock()
	if th, ok := n.threads[t]; ok {
		return slices.Clone(th.log)
	}
	return nil
}

// WaitPost waits until a message of the bot in the thread, in its present
// form, satisfies match, and returns the first that does. Its error says what
// the thread shows instead.
func (n *Network) WaitPost(ctx context.Context, t chat.ThreadID, match func(chat.Post) bool) (chat.Post, error) {
	var found chat.Post
	err := n.Wait(ctx, func() bool {
		for _, p := range n.Posts(t) {
			if match(p) {
				found = p
				return true
			}
		}
		return false
	})
	if err != nil {
		return chat.Post{}, fmt.Errorf("chattest: no post in %s matches: %w; it shows %s", t, err, describe(n.Posts(t)))
	}
	return found, nil
}

// Wait waits until cond is true; it looks again at every change of the network.
func (n *Network) Wait(ctx context.Context, cond func() bool) error {
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wake tells those who wait that something changed; mu is held.
func (n *Network) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Network) thread(t chat.ThreadID) *thread {
	th, ok := n.threads[t]
	if !ok {
		th = &thread{progress: map[string]chat.Progress{}}
		n.threads[t] = th
	}
	return th
}

func (n *Network) failure(t chat.ThreadID, p chat.Post) error {
	if n.fail == nil {
		return nil
	}
	return n.fail(t, p)
}

func (th *thread) withButton(b chat.ButtonID) *posted {
	for _, m := range slices.Backward(th.posts) {
		if m.post.Card != nil && slices.ContainsFunc(slices.Concat(m.post.Card.Choose, m.post.Card.After), func(c chat.Button) bool { return c.ID == b }) {
			return m
		}
	}
	return nil
}

func person(u chat.UserID) chat.User {
	_, name, ok := strings.Cut(string(u), ":")
	if !ok {
		name = string(u)
	}
	return chat.User{ID: u, Name: name}
}

func describe(posts []chat.Post) string {
	if len(posts) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for _, p := range posts {
		fmt.Fprintf(&b, "\n  %q %q", p.Key, p.Text)
		if p.Card != nil {
			fmt.Fprintf(&b, " card %q %q final=%v", p.Card.Title, p.Card.Code, p.Card.Final)
		}
	}
	return b.String()
}
