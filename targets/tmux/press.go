package tmux

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrTurn means that the keyboard changed hands: what a person pressed was not typed.
var ErrTurn = errors.New("tmux: the keyboard has changed hands")

// The sizes that a window can be given.
const (
	minWidth, maxWidth   = 20, 500
	minHeight, maxHeight = 5, 200
)

// Press types what a person presses who has no client of tmux, byte for byte, as long as people
// have the keyboard in this turn (see [Server.Hand]). Presses are typed in the order of the calls.
// Press does not wait: done is called with the result, from another goroutine.
func (p *Pane) Press(ctx context.Context, keys []byte, turn int64, done func(error)) {
	end, err := p.use(ctx)
	if err != nil {
		done(err)
		return
	}
	defer end()
	var cmds []string
	for len(keys) > 0 {
		n := min(len(keys), literalPiece)
		cmds = append(cmds, hexKeys(p.id, keys[:n]))
		keys = keys[n:]
	}
	p.doIf(inTurn(turn), strings.Join(cmds, " ; "), done)
}

// Resize gives the pane's window the size that the person at the keyboard reads it in, within
// limits, as long as people have the keyboard in this turn.
func (p *Pane) Resize(ctx context.Context, width, height int, turn int64) error {
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	width, height = max(minWidth, min(width, maxWidth)), max(minHeight, min(height, maxHeight))
	return p.waitIf(ctx, inTurn(turn), fmt.Sprintf("resize-window -t %%%d -x %d -y %d", p.id, width, height))
}

// inTurn is the tmux format that is true while people have the keyboard in a turn.
func inTurn(turn int64) string {
	return fmt.Sprintf("#{&&:#{%s},#{==:#{%s},%d}}", optPeople, optTurn, turn)
}

// waitIf is doIf, and waits for the result.
func (p *Pane) waitIf(ctx context.Context, format, line string) error {
	ch := make(chan error, 1)
	p.doIf(format, line, func(err error) { ch <- err })
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// doIf runs a command on the pane if the format is true in tmux; else the result is ErrTurn.
func (p *Pane) doIf(format, line string, done func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.postIf(p.name(), format, line+" ; display-message -p done", "display-message -p late", hasText, func(r reply) {
		switch {
		case r.err != nil:
			done(r.err)
		case r.first() != "done":
			done(ErrTurn)
		default:
			done(nil)
		}
	})
}

// Unsize gives the pane's window the size of new ones again, if a person has resized it and people do
// not have the keyboard any more.
func (p *Pane) Unsize(ctx context.Context) error {
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = p.waitIf(ctx, fmt.Sprintf("#{&&:#{==:#{window-size},manual},#{!=:#{%s},1}}", optPeople),
		fmt.Sprintf("resize-window -t %%%d -x %d -y %d ; set-option -w -u -t %%%d window-size", p.id, p.s.o.Width, p.s.o.Height, p.id))
	if errors.Is(err, ErrTurn) {
		return nil
	}
	return err
}
