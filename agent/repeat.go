package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"countersign/agent/history"
	"countersign/approvals"
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
