package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"countersign/adapters/chat"
	"countersign/store"
)

// talk is the bot's network: it keeps what the bot posts, and shows it.
type talk struct {
	ground
	*replicas
	*intake
	inbox *inbox
	hub   *hub
}

func newTalk(g ground, cfg ReplicaConfig, open *streams, foreign bool) *talk {
	rs := &replicas{ground: g, name: short([]byte(secret())), shared: cfg.Tell != nil || cfg.Share != nil, tell: cfg.Tell, share: cfg.Share, hub: newHub(), streams: open}
	if rs.tell == nil {
		rs.tell = func(store.Tx, string) {}
	}
	if rs.shared {
		rs.sharer = newSharer(rs.name)
		rs.hub.self, rs.hub.out = rs.name, rs.sharer.offer
	}
	s := &intake{ready: make(chan struct{}), stop: make(chan struct{})}
	return &talk{ground: g, replicas: rs, intake: s, inbox: newInbox(g, s, rs, foreign), hub: rs.hub}
}

// intake is the time in which the bot takes messages.
type intake struct {
	ready chan struct{} // closed when the first one begins

	mu      sync.Mutex // guards what follows
	handler chat.Handler
	calls   *sync.WaitGroup // calls into handler that are under way
	stop    chan struct{}   // closed when it ends
	began   sync.Once
}

// begin has h take messages from now on. It reports false while another one does.
func (s *intake) begin(h chat.Handler) (calls *sync.WaitGroup, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler != nil {
		return nil, false
	}
	s.handler, s.calls = h, new(sync.WaitGroup)
	s.began.Do(func() { close(s.ready) })
	select {
	case <-s.stop: // an earlier one has ended
		s.stop = make(chan struct{})
	default:
	}
	return s.calls, true
}

// end has nobody take messages any more, and ends the open streams.
func (s *intake) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = nil
	close(s.stop)
}

// Scheme implements [chat.Adapter].
func (tk *talk) Scheme() string { return scheme }

// Ready is closed once Run accepts messages for the first time: before that the
// console answers every message with a 503.
func (tk *talk) Ready() <-chan struct{} { return tk.ready }

// enter gives the handler for one call; leave must be called after it. The
// handler is nil while nobody runs the adapter.
func (s *intake) enter() (h chat.Handler, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler == nil {
		return nil, func() {}
	}
	s.calls.Add(1)
	return s.handler, s.calls.Done
}

// stopping is closed when streams have to end.
func (s *intake) stopping() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop
}

// ShowsOutputs implements [chat.OutputViewer].
func (tk *talk) ShowsOutputs() {}

// Post implements [chat.Adapter]. The same Key in the same thread replaces the
// message, at its place; an empty Key always makes a new one. It returns
// [chat.ErrGone] for a thread that does not exist and [chat.ErrRejected] for
// more than 4 MiB.
func (tk *talk) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	id, ok := threadPart(t)
	if !ok {
		return "", chat.ErrGone
	}
	if tooBig(p) {
		return "", fmt.Errorf("%w: it has more than %d bytes", chat.ErrRejected, maxPost)
	}
	var ref chat.MessageRef
	err := store.UpdateRelaxed(ctx, tk.db, func(tx store.Tx) (err error) {
		ref, err = writePost(tx, id, p, tk.now())
		tk.tellOthers(tx, id)
		return err
	})
	if err != nil {
		return "", err
	}
	tk.hub.posted(id, p.Key)
	return ref, nil
}

// Open implements [chat.Opener]. There is one channel, "web"; the same key always
// gives the same thread.
func (tk *talk) Open(ctx context.Context, channel, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	switch {
	case channel != scheme:
		return "", "", fmt.Errorf("%w: the console has one channel, \"web\", and not %q", chat.ErrGone, channel)
	case !p.Opens() || tooBig(p) || p.Key == "" || key == "":
		return "", "", fmt.Errorf("%w: a thread begins with one message that has a key and neither files nor buttons", chat.ErrRejected)
	}
	id := openedThreadID(key)
	var ref chat.MessageRef
	err := tk.db.Update(ctx, func(tx store.Tx) (err error) {
		ref, err = openThread(tx, id, p, tk.now())
		tk.tellOthers(tx, id)
		return err
	})
	if err != nil {
		return "", "", err
	}
	tk.hub.posted(id, p.Key)
	return threadID(id), ref, nil
}

// Edit implements [chat.Adapter]. The message keeps its place and its key.
func (tk *talk) Edit(ctx context.Context, t chat.ThreadID, r chat.MessageRef, p chat.Post) error {
	id, ok := threadPart(t)
	if !ok {
		return chat.ErrGone
	}
	if tooBig(p) {
		return fmt.Errorf("%w: it has more than %d bytes", chat.ErrRejected, maxPost)
	}
	var key string
	err := store.UpdateRelaxed(ctx, tk.db, func(tx store.Tx) (err error) {
		key, err = editPost(tx, id, r, p, tk.now())
		tk.tellOthers(tx, id)
		return err
	})
	if err != nil {
		return err
	}
	tk.hub.posted(id, key)
	if p.Key != "" && p.Key != key {
		tk.hub.posted(id, p.Key)
	}
	return nil
}

// ShowProgress implements [chat.ProgressShower]. Who reads slowly misses
// values in between and gets the latest.
func (tk *talk) ShowProgress(_ context.Context, t chat.ThreadID, p chat.Progress) {
	if id, ok := threadPart(t); ok {
		tk.hub.progress(id, p)
	}
}

// threadPart takes the scheme off a thread id.
func threadPart(t chat.ThreadID) (id string, ok bool) {
	id, ok = strings.CutPrefix(string(t), scheme+":")
	return id, ok && validID(id)
}

func threadID(id string) chat.ThreadID { return chat.ThreadID(scheme + ":" + id) }

func userID(name string) chat.UserID { return chat.UserID(scheme + ":" + name) }

func tooBig(p chat.Post) bool {
	n, files := len(p.Text), p.Files
	if c := p.Card; c != nil {
		files = slices.Concat(files, c.Attach)
		for s := range c.Texts() {
			n += len(*s)
		}
		for _, b := range slices.Concat(c.Choose, c.After) {
			n += len(b.Label) + len(b.Confirm) + len(b.Edit)
		}
	}
	for _, f := range files {
		n += len(f.Name) + len(f.Text) + len(f.Data)
	}
	return n > maxPost
}
