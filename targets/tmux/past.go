package tmux

import (
	"context"
	"regexp"
	"strconv"
	"strings"
)

// maxPast is how many commands of people are remembered.
const maxPast = 200

// Done is one command that somebody typed at a pane's prompt.
type Done struct {
	Text string
	// Code is its exit code, valid with Known.
	Code  int
	Known bool
}

// Past lists what people typed at the pane's prompt since it was asked last, oldest
// first. complete is false when the shell cannot say all of it: it is not bash, it
// runs something at this moment, or there was too much. Only the pane's driver can ask.
func (p *Pane) Past(ctx context.Context) (list []Done, complete bool, err error) {
	if err := p.ensure(ctx); err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	before, codes, heard := p.pasts, p.codes, p.heard
	idle := p.phase == phaseIdle
	if idle && p.driving.Load() {
		p.codes = nil
	}
	p.mu.Unlock()
	if !idle || p.s.caps.Bash == "" {
		return nil, false, nil
	}
	if err := p.ask(ctx, keyHistory, &p.pastAsks, func() bool { return p.pasts > before }); err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	text := p.past
	p.heard = p.driving.Load()
	p.mu.Unlock()
	list = parsePast(text)
	// Each line that was run left one exit code; if the numbers differ, nobody can
	// tell which is whose.
	if heard && len(list) == len(codes) {
		for i := range list {
			list[i].Code, list[i].Known = codes[i], true
		}
	}
	return list, len(text) < pastCut, nil
}

// pastCut is how much the shell tells; see __cs_h.
const pastCut = 5900

var historyLine = regexp.MustCompile(`^ *([0-9]+)[ *] (.*)$`)

// parsePast reads what "history" prints: each command behind its number, and further
// lines of it without. A further line that looks like a number is told by not being
// the next one.
func parsePast(text string) []Done {
	var list []Done
	next := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := historyLine.FindStringSubmatch(line); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && (next == 0 || n == next) {
				list = append(list, Done{Text: m[2]})
				next = n + 1
				continue
			}
		}
		if len(list) > 0 {
			list[len(list)-1].Text += "\n" + line
		}
	}
	return list
}
