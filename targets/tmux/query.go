package tmux

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
}
