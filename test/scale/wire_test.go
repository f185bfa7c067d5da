//go:build linux

package scale

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"countersign/store/postgres"
)

// An order goes to a replica, as one line of JSON on its standard input, and a report
// comes back on its standard output. What a person or the network does is an order; what
// they would see, and when, is a report.
type order struct {
	Do     string `json:"do"` // deliver, click, hold, look, profile
	ID     string `json:"id,omitempty"`
	Thread string `json:"thread,omitempty"`
	Text   string `json:"text,omitempty"` // of a message; the button of a click; the file of a profile; "books" looks at the ledger, too
	On     bool   `json:"on,omitempty"`
}

type report struct {
	// Is: up, delivered, clicked, posted, ran (the tool began), ended (a held call was
	// interrupted), heard (a hint came), sight, profiled.
	Is     string `json:"is"`
	ID     string `json:"id,omitempty"`
	Thread string `json:"thread,omitempty"`
	Key    string `json:"key,omitempty"`    // of a post
	Text   string `json:"text,omitempty"`   // its tags, by blanks
	Button string `json:"button,omitempty"` // of its card: who presses it approves
	Again  bool   `json:"again,omitempty"`  // an earlier try may have come through, or it is an edit
	At     int64  `json:"at,omitempty"`     // on the machine's clock, see now
	Took   int64  `json:"took,omitempty"`   // nanoseconds from At to the answer
	Error  string `json:"error,omitempty"`
	Sight  *sight `json:"sight,omitempty"`
	from   int    // the replica
}

// sight is what a replica sees of itself.
type sight struct {
	Stats  postgres.Stats  `json:"stats"`
	Live   uint64          `json:"live"`  // heap and stacks in use, bytes; after a collection where that was asked for
	Stale  time.Duration   `json:"stale"` // for how long its last beat was too old for it to be sure that others think it lives
	Ledger map[string]cost `json:"ledger,omitempty"`
}

// now is the monotonic clock of the machine, which all processes share.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has it
	}
	return ts.Nano()
}

// lines writes values as lines of JSON, and has written them when it returns.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) put(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(raw, '\n'))
	return err
}

// A tag names a message in all that comes of it: t<talk>x<number><kind>.
var tagForm = regexp.MustCompile(`\bt\d+x\d+[lch]\b`)

// The kinds of turns.
const (
	looks = 'l' // one look, then the answer
	cards = 'c' // one look, one change that people approve, then the answer
	holds = 'h' // one look that takes long while the replica is told to hold, then the answer
)

func tagOf(talk, n int, kind byte) string { return fmt.Sprintf("t%dx%d%c", talk, n, kind) }

func kindOf(tag string) byte { return tag[len(tag)-1] }

// numberOf is the number of a message within its thread, from 1.
func numberOf(tag string) int {
	_, n, _ := strings.Cut(tag[:len(tag)-1], "x")
	i, _ := strconv.Atoi(n)
	return i
}

func since(at int64) time.Duration { return time.Duration(now() - at) }
