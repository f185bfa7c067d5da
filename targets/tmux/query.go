package tmux

import "context"

// query counts the answers to one kind of question that is asked by pressing a key
// which the shell's line editor binds. Every process that is connected sees every answer.
type query struct {
	pending int // questions of this process without an answer
	answers int // answers to anybody's questions
}

// sent counts a question of this process.
func (q *query) sent() { q.pending++ }

// cancel withdraws a question that did not reach the shell.
func (q *query) cancel() { q.pending = max(q.pending-1, 0) }

// reset forgets the pending questions, whose answers will not come.
func (q *query) reset() { q.pending = 0 }

// answered counts an answer, and reports whether this process had asked for it.
func (q *query) answered() (own bool) {
	q.answers++
	own = q.pending > 0
	q.cancel()
	return own
}

// statusQuery asks how many bytes are on the input line (keyStatus).
type statusQuery struct {
	query
	lineLen int // the last answer
	// lastRun is the prompt at which a command of the bot was read last, which the shell
	// itself reports, or unknownPrompt.
	lastRun int
}

// unknownPrompt is the number of a prompt that a shell of an earlier version does not report.
const unknownPrompt = -1

// queryStatus makes a shell at its prompt report what is on its input line.
func (p *Pane) queryStatus(ctx context.Context) error {
	p.mu.Lock()
	before, prompt := p.statusQuery.answers, p.shell.seq
	p.mu.Unlock()
	if p.s.caps.Bash == "" {
		// Without a line editor, an empty line brings a new prompt.
		p.mu.Lock()
		p.emptyLines++
		p.mu.Unlock()
		return p.ask(ctx, "\x15\r", new(query), func() bool { return p.shell.phase == phaseIdle && p.shell.seq != prompt && !p.line.hasText() })
	}
	return p.ask(ctx, keyStatus, &p.statusQuery.query, func() bool { return p.statusQuery.answers > before })
}

// ask presses a key to which the shell answers, and waits for the answer.
func (p *Pane) ask(ctx context.Context, key string, q *query, answered func() bool) error {
	var denied error
	p.mu.Lock()
	q.sent()
	p.press([]byte(key), p.lease.blocked, func(err error) {
		if err == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		denied = err
		q.cancel()
		p.notify()
	})
	p.mu.Unlock()
	err := p.wait(ctx, probeTime, func() bool { return denied != nil || answered() })
	p.mu.Lock()
	defer p.mu.Unlock()
	if denied != nil {
		return denied
	}
	return err
}
