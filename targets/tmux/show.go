package tmux

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"unicode"

	"countersign/targets/backend"
)

// Show lets the people at the pane read a text that its shell has no part in: above the
// prompt when the shell is at one with nothing typed behind it, and else above the next
// prompt. What a terminal would obey is left out, and of texts that wait for a prompt
// only what fits into 64 KiB is kept. Only the pane's driver shows anything. Show returns
// before the text is on the screen.
func (p *Pane) Show(ctx context.Context, text string) error {
	if err := p.ensure(ctx); err != nil {
		return err
	}
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

// flushNoticesLater shows what waits for a prompt; the prompt is there. The caller holds mu.
func (p *Pane) flushNoticesLater() {
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

// flushNotices sends what waits for a prompt by the companion, if the shell is at one and
// nobody types. Without a companion there is nobody at hand who writes to the terminal,
// and it returns what does. The caller holds mu.
func (p *Pane) flushNotices() (write func(context.Context) error) {
	if p.notices.empty() || p.shell.phase != phaseIdle || !p.line.untouched() || p.job.unstarted() || p.display.alternate || p.display.copyMode {
		return nil
	}
	// The prompt is taken away, and shown again below.
	data := erasePrompt(p.notices.take())
	if p.stderr.companion != nil && !p.stderr.mirror.queried {
		p.sendFrames(idleFrames(p.nonce, data, p.shell.prompt))
		return nil
	}
	tty, frames := p.device.tty, bytes.Join(idleFrames(p.nonce, data, p.shell.prompt), nil)
	return func(ctx context.Context) error {
		proc, err := p.s.t.Start(ctx, backend.Spec{Argv: []string{"/bin/sh", "-c", `cat >"$1"`, "sh", tty}, Stdin: bytes.NewReader(frames)})
		if err != nil {
			return err
		}
		_, err = proc.Wait()
		return err
	}
}
