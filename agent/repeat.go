package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"countersign/agent/history"
	"countersign/approvals"
	"countersign/tools"
)

// sameCall identifies a call by its tool, its canonical arguments without claims, and its
// content, which some tools do not pass as an argument.
func sameCall(a approvals.Action) string { return hash(a.Tool, string(a.Args), string(a.Bytes)) }

// sameRaw identifies a call that could not be planned.
func sameRaw(name, args string) string { return hash(name, args) }

func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// repetition describes how earlier calls with the same identity ended.
type repetition struct {
	failures  int // identical failures in a row
	successes int // identical successes in a row
	denied    bool
}

// repeated counts how often the call same ended the same way, newest first. Counting stops
// at a person's message or a successful change, because the call may behave differently
// after that.
func repeated(entries []history.Entry, same string) repetition {
	var rep repetition
	way := ""
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if e.Message != nil {
			break
		}
		r := e.Result
		if r == nil || (r.Skipped && !r.Denied) {
			continue
		}
		if r.Same != same {
			if r.Changed && !r.Failed {
				break
			}
			continue
		}
		if r.Denied {
			rep.denied = true
			break
		}
		if way == "" {
			way = r.Outcome
		}
		if r.Outcome != way {
			break
		}
		if r.Failed {
			rep.failures++
		} else {
			rep.successes++
		}
		if r.Changed && !r.Failed {
			break
		}
	}
	return rep
}

// mostFutile is how many replies in a row may only repeat calls that were refused as repetitions.
const mostFutile = 3

// onlyRepeated reports whether every call of the last reply was refused as a repetition.
func (t *turn) onlyRepeated() bool {
	if t.reply == nil || len(t.reply.Calls) == 0 {
		return false
	}
	for _, c := range t.reply.Calls {
		if r := t.results[c.ID]; r == nil || !r.Repeated {
			return false
		}
	}
	return true
}

// stuck is why the turn goes on repeating what can't succeed; "" if it doesn't. A person's message begins
// the count again.
func (t *turn) stuck() string {
	if t.futile+1 < mostFutile || !t.onlyRepeated() {
		return ""
	}
	return sayStuck(t.failure(t.results[t.reply.Calls[0].ID].Same))
}

// failure is why a call failed before it was refused as a repetition; "" where only its output says so.
func (t *turn) failure(same string) string {
	last := ""
	for id, r := range t.results {
		if r.Same == same && r.Failed && !r.Repeated && id > last {
			last = id
		}
	}
	if r := t.results[last]; r != nil {
		if why, ok := strings.CutPrefix(r.Text, tools.ErrorPrefix); ok {
			return why
		}
	}
	return ""
}
