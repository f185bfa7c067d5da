package tmux

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// stateQuery asks what Shell returns (keyState).
type stateQuery struct {
	query
	said Shell // the last answer; zero after a change of shell or driver
}

// Shell asks the pane's shell for its state. It returns the zero Shell if the shell isn't at its prompt, or
// doesn't name its states because it isn't bash or was started by an earlier version. With known, it may
// return the last answer without asking: [Command.State] is compared again in any case. Only the pane's
// driver can ask.
func (p *Pane) Shell(ctx context.Context, known bool) (Shell, error) {
	end, err := p.use(ctx)
	if err != nil {
		return Shell{}, err
	}
	defer end()
	if !p.namesState {
		return Shell{}, nil
	}
	if err := p.wait(ctx, settleTime, func() bool { return p.shell.phase != phasePrompt }); err != nil && !errors.Is(err, errSilent) {
		return Shell{}, err
	}
	p.mu.Lock()
	idle, before, said := p.shell.phase == phaseIdle, p.stateQuery.answers, p.stateQuery.said
	p.mu.Unlock()
	switch {
	case !idle:
		return Shell{}, nil
	case known && said.State != "":
		return said, nil
	}
	if err := p.ask(ctx, keyState, &p.stateQuery.query, func() bool { return p.stateQuery.answers > before }); err != nil {
		return Shell{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stateQuery.said, nil
}

var stateName = regexp.MustCompile(`^(0|[0-9]{1,10}\.[0-9]{1,9})$`)

// parseState reads the arguments of mark T. Whoever types in the pane can make it say anything.
func parseState(args string) (s Shell, ok bool) {
	f := strings.SplitN(args, ";", 3)
	if len(f) != 3 || !stateName.MatchString(f[0]) || f[1] != "0" && f[1] != "1" {
		return Shell{}, false
	}
	s = Shell{State: f[0], Paths: f[1] == "1", Many: f[2] == "*"}
	if !s.Many {
		s.Names = slices.DeleteFunc(strings.Fields(f[2]), func(n string) bool { return strings.HasPrefix(n, "__cs_") })
	}
	return s, true
}

// onState handles the answer to keyState. The caller holds mu.
func (p *Pane) onState(args string) (ok bool) {
	s, ok := parseState(args)
	if !ok {
		return false
	}
	p.stateQuery.said = s
	p.answered(&p.stateQuery.query)
	return true
}

// onChanged handles mark V: the shell is in another state than the command asked for. Its line was
// cleared, and the Enter that follows brings a new prompt. The caller holds mu.
func (p *Pane) onChanged() {
	if j := p.job; j.unstarted() {
		j.refused = ErrChanged
		p.advanceJob(j, jobLineCleared)
	}
	p.advance(promptHookResumed)
}
