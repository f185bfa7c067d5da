package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Capture reads the screen and the history of the pane. If the alternate screen is asked
// for and none is active, the text is that of the main screen and notice says so.
func (p *Pane) Capture(ctx context.Context, o CaptureOptions) (text, notice string, err error) {
	for _, n := range []string{o.Start, o.End} {
		if _, err := strconv.Atoi(n); err != nil && n != "" && n != "-" {
			return "", "", fmt.Errorf("tmux: %q is no line number; give a number or \"-\"", n)
		}
	}
	end, err := p.use(ctx)
	if err != nil {
		return "", "", err
	}
	defer end()
	var flags strings.Builder
	flags.WriteString("capture-pane -p")
	for _, f := range []struct {
		on   bool
		flag string
	}{{o.Join, " -J"}, {o.TrailingSpaces, " -N"}, {o.Escapes, " -e"}, {o.EscapeNonPrintable, " -C"}} {
		if f.on {
			flags.WriteString(f.flag)
		}
	}
	if o.Alternate {
		// The pane shows the alternate screen already. tmux's own -a captures the other one.
		on, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{alternate_on}'", p.id))
		switch {
		case err != nil:
			return "", "", err
		case (reply{lines: on}).first() != "1":
			notice = "There is no alternate screen now; this is the main screen."
		case strings.HasPrefix(o.Start, "-"):
			o.Start = "" // it has no history
		}
	}
	line := flags.String()
	if o.Start != "" {
		line += " -S " + o.Start
	}
	if o.End != "" {
		line += " -E " + o.End
	}
	lines, err := p.do(ctx, line+fmt.Sprintf(" -t %%%d", p.id))
	if err != nil {
		return "", "", err
	}
	if o.Join && !o.TrailingSpaces {
		for i, l := range lines { // -J keeps them
			lines[i] = strings.TrimRight(l, " ")
		}
	}
	return strings.Join(lines, "\n") + "\n", notice, nil
}

// screenText is what the pane shows, for an outcome; "" if it cannot be read.
func (p *Pane) screenText(ctx context.Context) string {
	p.mu.Lock()
	reachable := !p.gone && p.c.serves(p.session)
	p.mu.Unlock()
	if !reachable {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	text, _, err := p.Capture(ctx, CaptureOptions{})
	if err != nil {
		return ""
	}
	return strings.TrimRight(text, "\n ") + "\n"
}

// Kill ends the pane with everything that runs in it. Only its driver can.
func (p *Pane) Kill(ctx context.Context) error {
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = p.doUnless(ctx, p.lease.lost, fmt.Sprintf("kill-pane -t %%%d", p.id), nil)
	if err != nil && !errors.Is(err, errConn) { // with the last pane the session and its client end
		return err
	}
	p.lost(true)
	return nil
}
