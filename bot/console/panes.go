package console

import (
	"context"
	"io"

	"countersign/adapters/chat"
	"countersign/bot/machines"
	"countersign/console"
)

// panes shows the thread's terminals to the console.
type panes struct{ machines machines.Set }

// paneID names a pane for the console: the target and tmux's own id.
func paneID(target, id string) string { return target + ":" + id }

func (p panes) Panes(ctx context.Context, thread chat.ThreadID) ([]console.Pane, error) {
	out := []console.Pane{}
	for _, m := range p.machines.Books() {
		o := m.State()
		list, err := o.Book.Panes(ctx, string(thread))
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			state, id := "gone", x.ID
			if tp, err := o.Book.Open(ctx, string(thread), x.Session, x.Pane); err == nil {
				id = tp.ID() // the list may be older than the terminal
				if info, err := tp.Info(ctx); err == nil {
					state = string(info.State)
				}
			}
			name := x.Pane
			if len(p.machines) > 1 {
				name = m.Name + " " + name
			}
			out = append(out, console.Pane{ID: paneID(m.Name, id), Session: x.Session, Name: name, Attach: o.Tmux.AttachCommand(x.Session), State: state, Keyboard: m.Name + ":" + x.Session})
		}
	}
	return out, nil
}

func (p panes) Hands(ctx context.Context, thread chat.ThreadID, pane string) (console.Hands, error) {
	book, id, err := p.machines.BookOf(pane)
	if err != nil {
		return console.Hands{}, err
	}
	h, err := book.Hands(ctx, string(thread), id)
	if err != nil {
		return console.Hands{}, err
	}
	return console.Hands{Holder: chat.UserID(h.Holder), Name: h.Name, Since: h.Since}, nil
}

func (p panes) Press(ctx context.Context, thread chat.ThreadID, pane string, by chat.UserID, keys []byte, done func(error)) {
	book, id, err := p.machines.BookOf(pane)
	if err != nil {
		done(err)
		return
	}
	book.Press(ctx, string(thread), id, string(by), keys, done)
}

func (p panes) Resize(ctx context.Context, thread chat.ThreadID, pane string, by chat.UserID, width, height int) error {
	book, id, err := p.machines.BookOf(pane)
	if err != nil {
		return err
	}
	return book.Resize(ctx, string(thread), id, string(by), width, height)
}

func (p panes) Watch(ctx context.Context, thread chat.ThreadID, pane string) (console.Screen, error) {
	book, id, err := p.machines.BookOf(pane)
	if err != nil {
		return console.Screen{}, err
	}
	tp, err := book.Open(ctx, string(thread), "", id)
	if err != nil {
		return console.Screen{}, err
	}
	info, err := tp.Info(ctx)
	if err != nil {
		return console.Screen{}, err
	}
	snap, live, err := tp.Watch(ctx)
	return console.Screen{Snapshot: snap, Live: live, Width: info.Width, Height: info.Height}, err
}

// films shows the recordings to the console.
type films struct{ of machines.Recordings }

// Recordings implements console.Recordings.
func (f films) Recordings(_ context.Context, thread chat.ThreadID) ([]console.Recording, error) {
	list, err := f.of.Of(thread)
	if err != nil {
		return nil, err
	}
	out := []console.Recording{}
	for _, r := range list {
		out = append(out, console.Recording{ID: r.ID, Session: r.Session, Pane: r.Pane, Started: r.Started, Duration: r.Duration.Seconds(), Bytes: r.Bytes})
	}
	return out, nil
}

// OpenRecording implements console.Recordings.
func (f films) OpenRecording(_ context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error) {
	return f.of.Open(thread, id)
}
