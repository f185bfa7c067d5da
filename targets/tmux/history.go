package tmux

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// history collects what Past returns: the exit codes as the commands end, and the texts
// when the shell is asked for them (keyHistory).
type history struct {
	query
	text     string   // the last answer
	codes    []int    // of the commands that people ran since Past was called last
	complete bool     // codes has all of them, as far as this process knows
	own      []string // what the bot typed since then, which the shell's history has as well
}

// typed records a command of the bot.
func (h *history) typed(text string) {
	if len(h.own) < codesMax {
		h.own = append(h.own, strings.TrimSpace(text))
	}
}

// ended records the exit code of a command that a person ran.
func (h *history) ended(code int) {
	if len(h.codes) < codesMax {
		h.codes = append(h.codes, code)
	}
}

// codesMax bounds how many exit codes are kept.
const codesMax = 200

// Done is a command that somebody typed at a pane's prompt.
type Done struct {
	Text string
	// Code is its exit code, valid with Known.
	Code  int
	Known bool
}

// Past lists what people typed at the pane's prompt since the last call, oldest first.
// complete is false if the shell cannot report all of it: it is not bash, it runs something
// now, or there was too much. Only the pane's driver can ask.
func (p *Pane) Past(ctx context.Context) (list []Done, complete bool, err error) {
	end, err := p.use(ctx)
	if err != nil {
		return nil, false, err
	}
	defer end()
	p.mu.Lock()
	before, codes, allCodes, own := p.history.answers, p.history.codes, p.history.complete, p.history.own
	idle := p.shell.phase == phaseIdle
	if idle && p.lease.held() {
		p.history.codes, p.history.own = nil, nil
	}
	p.mu.Unlock()
	if !idle || p.s.caps.Bash == "" {
		return nil, false, nil
	}
	if err := p.ask(ctx, keyHistory, &p.history.query, func() bool { return p.history.answers > before }); err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	text := p.history.text
	p.history.complete = p.lease.held()
	p.mu.Unlock()
	list = without(parsePast(text), own)
	if allCodes {
		list = withCodes(list, codes)
	}
	return list, len(text) < historyMax, nil
}

// without leaves out what the bot typed, in its order: a command may run when a person gets the keyboard.
func without(list []Done, own []string) []Done {
	var out []Done
	for _, d := range list {
		if i := slices.Index(own, strings.TrimSpace(d.Text)); i >= 0 {
			own = own[i+1:]
			continue
		}
		out = append(out, d)
	}
	return out
}

// withCodes gives each command its exit code. If the numbers differ, no command has a
// known code.
func withCodes(list []Done, codes []int) []Done {
	if len(list) != len(codes) {
		return list
	}
	for i := range list {
		list[i].Code, list[i].Known = codes[i], true
	}
	return list
}

// historyMax is how many bytes the shell reports; see __cs_h.
const historyMax = 5900

var historyLine = regexp.MustCompile(`^ *([0-9]+)[ *] (.*)$`)

// parsePast reads the output of "history": each command follows its number, and its further
// lines have none. A further line that looks like a numbered one is recognized because its
// number is not the next.
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
