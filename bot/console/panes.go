package console

import (
	"context"
	"io"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/web"
	"countersign/bot/machines"
)

// panes shows the thread's terminals to the console.
type panes struct{ machines machines.Set }

// paneID names a pane for the console: the target and tmux's own id.
func paneID(target, id string) string { return target + ":" + id }

func (p panes) Panes(ctx context.Context, thread chat.ThreadID) ([]web.Pane, error) {
	out := []web.Pane{}
	for _, m := range p.machines.Books() {
		o := m.State()
		list, err := o.Book.Panes(ctx, string(thread))
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			state := "gone"
			if tp, err := o.Book.Open(ctx, string(thread), x.Session, x.Pane); err == nil {
				if info, err := tp.Info(ctx); err == nil {
					state = string(info.State)
				}
			}
			name := x.Pane
			if len(p.machines) > 1 {
				name = m.Name + " " + name
			}
			out = append(out, web.Pane{ID: paneID(m.Name, x.ID), Session: x.Session, Name: name, Attach: o.Tmux.AttachCommand(x.Session), State: state})
		}
	}
	return out, nil
}

func (p panes) Watch(ctx context.Context, thread chat.ThreadID, pane string) (web.Screen, error) {
	target, id, _ := strings.Cut(pane, ":")
	m := p.machines[target]
	if m == nil || m.State() == nil || m.State().Book == nil {
		return web.Screen{}, machines.ErrNotOpen
	}
	tp, err := m.State().Book.Open(ctx, string(thread), "", id)
	if err != nil {
		return web.Screen{}, err
	}
	info, err := tp.Info(ctx)
	if err != nil {
		return web.Screen{}, err
	}
	snap, live, err := tp.Watch(ctx)
	return web.Screen{Snapshot: snap, Live: live, Width: info.Width, Height: info.Height}, err
}

// films shows the recordings to the console.
type films struct{ of machines.Recordings }

// Recordings implements web.Recordings.
func (f films) Recordings(_ context.Context, thread chat.ThreadID) ([]web.Recording, error) {
	list, err := f.of.Of(thread)
	if err != nil {
		return nil, err
	}
	out := []web.Recording{}
	for _, r := range list {
		out = append(out, web.Recording(r))
	}
	return out, nil
}

// OpenRecording implements web.Recordings.
func (f films) OpenRecording(_ context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error) {
	return f.of.Open(thread, id)
}
