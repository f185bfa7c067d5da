package tmux

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"unicode"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// Show shows a text to the people at the pane; the shell has no part in it. It stands above
// the prompt if the shell is at its prompt and nothing is typed behind it, and else above
// the next prompt. Control characters are left out, and of texts that wait for a prompt at
// most 64 KiB are kept. Only the pane's driver shows anything. Show may return before the
// text is on the screen.
func (p *Pane) Show(ctx context.Context, text string) error {
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	p.mu.Lock()
	if !p.lease.held() || p.device.tty == "" {
		p.mu.Unlock()
		return ErrDriven
	}
	p.notices.add([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
	write := p.flushNotices()
	p.mu.Unlock()
	if write == nil {
		return nil
	}
	return write(ctx)
}

// flushNoticesAsync shows the notices at a prompt that has just come. The caller holds mu.
func (p *Pane) flushNoticesAsync() {
	write := p.flushNotices()
	if write == nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		if err := write(ctx); err != nil {
			p.s.log.Debug("what ran beside the shell is not shown", slog.String("pane", p.ID()), slog.Any("error", err))
		}
	}()
}

// flushNotices shows the notices if the shell is at its prompt and nobody types. With a
// companion it sends them there. Without one it returns the function that writes them to
// the terminal. The caller holds mu.
func (p *Pane) flushNotices() (write func(context.Context) error) {
	if p.notices.empty() || p.shell.phase != phaseIdle || !p.line.untouched() || p.job.unstarted() || p.display.alternate || p.display.copyMode {
		return nil
	}
	// The frames erase the prompt, and show it again below.
	data := erasePrompt(p.notices.take())
	if p.stderr.companion != nil && !p.stderr.mirror.queried {
		p.sendFrames(idleFrames(p.nonce, data, p.shell.prompt))
		return nil
	}
	tty, frames := p.device.tty, bytes.Join(idleFrames(p.nonce, data, p.shell.prompt), nil)
	return func(ctx context.Context) error {
		proc, err := door.Start(ctx, p.s.t, door.Plumbing, nil, backend.Spec{Argv: []string{"/bin/sh", "-c", `cat >"$1"`, "sh", tty}, Stdin: bytes.NewReader(frames)})
		if err != nil {
			return err
		}
		_, err = proc.Wait()
		return err
	}
}
