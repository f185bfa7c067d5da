package tmux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// keyNames are tmux's names of the keys without a character, in lower case.
const keyNames = " up down left right home end npage pagedown pgdn ppage pageup pgup " +
	"ic insert dc delete tab btab space bspace enter escape " +
	"f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 " +
	"kp/ kp* kp- kp7 kp8 kp9 kp+ kp4 kp5 kp6 kp1 kp2 kp3 kpenter kp0 kp. "

// keyName checks a key name as tmux reads it: modifiers (C-, M-, S-, ^) and one character
// or name. tmux itself would type a name that it does not know as text.
func keyName(name string) error {
	rest := name
	for len(rest) > 2 && rest[1] == '-' && strings.ContainsRune("CMScms", rune(rest[0])) {
		rest = rest[2:]
	}
	if len(rest) > 1 && rest[0] == '^' {
		rest = rest[1:]
	}
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case size == len(rest) && r > ' ' && r != utf8.RuneError && r != 0x7f && (r < 0x80 || r > 0x9f):
		return nil
	case rest != "" && !strings.Contains(rest, " ") && strings.Contains(keyNames, " "+strings.ToLower(rest)+" "):
		return nil
	}
	return fmt.Errorf("tmux: there is no key named %q; use names such as C-c, Enter, Up or F5, and literal text for text", name)
}

// literalPiece is how many bytes one send-keys command carries.
const literalPiece = 2000

// SendKeys presses keys in the pane, whatever runs there: all of them, or none and an error
// of the kind [StateError]. Text is sent byte for byte and never read as tmux commands or
// key names. Only the pane's driver can.
func (p *Pane) SendKeys(ctx context.Context, k Keys) error {
	if k.Literal == "" && len(k.Names) == 0 && !k.Enter {
		return fmt.Errorf("tmux: there are no keys to send; give text, key names or Enter")
	}
	for _, n := range k.Names {
		if err := keyName(n); err != nil {
			return err
		}
	}
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := p.refresh(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	st := p.display.paneStatus
	p.mu.Unlock()
	if st.copyMode {
		return errKeysCopyMode
	}

	var cmds []string
	for text := []byte(k.Literal); len(text) > 0; {
		n := min(len(text), literalPiece)
		cmds = append(cmds, hexKeys(p.id, text[:n]))
		text = text[n:]
	}
	names := k.Names
	if k.Enter {
		names = append(slices.Clip(names), "Enter")
	}
	if len(names) > 0 {
		var b strings.Builder
		fmt.Fprintf(&b, "send-keys -t %%%d --", p.id)
		for _, n := range names {
			b.WriteByte(' ')
			b.WriteString(quote(n))
		}
		cmds = append(cmds, b.String())
	}
	p.mu.Lock()
	if p.shell.phase == phaseIdle && p.lease.held() {
		p.origins.claimNext()
		p.line.apply(lineKeysSent)
	}
	p.mu.Unlock()
	cmds = append(cmds, "display-message -p typed")
	err = p.doUnless(ctx, p.lease.blockedForBot, strings.Join(cmds, " ; "), hasText)
	if errors.Is(err, errCopyMode) {
		return errKeysCopyMode
	}
	return err
}

var errKeysCopyMode = stateError(StateHuman, "Somebody is reading the pane's history (copy mode), "+
	"and keys would not reach the program; ask them to leave it with q, then try again.")
