package tmux

import (
	"strings"
	"testing"
)

func TestQueryAnswersBelongToWhoAsked(t *testing.T) {
	var q query
	q.sent()
	if !q.answered() || q.answers != 1 {
		t.Errorf("the answer to an own question: %+v", q)
	}
	if q.answered() || q.answers != 2 || q.pending != 0 {
		t.Errorf("an answer that nobody here asked for: %+v", q)
	}
	q.sent()
	q.cancel()
	q.cancel()
	if q.answered() {
		t.Errorf("a cancelled question was answered: %+v", q)
	}
	q.sent()
	q.reset()
	if q.answered() {
		t.Errorf("a dropped question was answered: %+v", q)
	}
}

func TestHistoryGivesNoCodeIfTheNumbersDiffer(t *testing.T) {
	list := func() []Done { return []Done{{Text: "a"}, {Text: "b"}} }
	if got := withCodes(list(), []int{3, 4}); got[0].Code != 3 || !got[1].Known {
		t.Errorf("%+v", got)
	}
	for _, codes := range [][]int{nil, {3}, {3, 4, 5}} {
		if got := withCodes(list(), codes); got[0].Known || got[1].Known {
			t.Errorf("%v: %+v", codes, got)
		}
	}
	var h history
	for range codesMax + 5 {
		h.ended(1)
	}
	if len(h.codes) != codesMax {
		t.Errorf("%d codes", len(h.codes))
	}
}

func TestLeaseIsReleasedOnce(t *testing.T) {
	var l lease
	if l.held() || l.release() {
		t.Error("a new lease is held")
	}
	l.acquire(4)
	if !l.held() || !l.heldUnder(4) || l.heldUnder(5) {
		t.Error("the lease is not held under its epoch")
	}
	for _, format := range []string{l.lost(), l.blocked(), l.blockedForBot()} {
		if !strings.Contains(format, "#{!=:#{"+optEpoch+"},4}") {
			t.Errorf("%s does not compare the epoch", format)
		}
	}
	if !l.release() || l.release() || l.heldUnder(4) {
		t.Error("the lease is not released once")
	}
}

func TestAFrameWithoutEndSwallowsTwoFramesAtMost(t *testing.T) {
	var f incoming
	if f.swallows(1) {
		t.Error("bytes outside a frame are swallowed")
	}
	f.open = true
	if !f.swallows(2*frameSize) || f.swallows(1) || f.swallows(1) {
		t.Error("the frame does not end")
	}
	f.close()
	f.open = true
	if !f.swallows(frameSize) {
		t.Error("the next frame is not swallowed")
	}
}

func TestViewersDropAWatcherThatFallsBehind(t *testing.T) {
	v := newViewers()
	slow, quick := &watcher{ch: make(chan []byte, 1)}, &watcher{ch: make(chan []byte, 2)}
	v.add(slow)
	v.add(quick)
	var tapped string
	v.tap = func(b []byte) { tapped += string(b) }
	v.write([]byte("a"))
	v.write([]byte("b"))
	if len(v.watchers) != 1 || !slow.closed || quick.closed || tapped != "ab" {
		t.Errorf("%d watchers, slow %v, quick %v, tapped %q", len(v.watchers), slow.closed, quick.closed, tapped)
	}
	v.removeAll()
	if len(v.watchers) != 0 || !quick.closed || v.tap == nil {
		t.Error("removeAll left a watcher, or removed the tap")
	}
}

func TestStandardErrorIsThatOfTheCommandBeforeIt(t *testing.T) {
	at := func(seq int, how stderrCapture) *job { return &job{seq: seq, stderr: how} }
	for _, tt := range []struct {
		rule string
		e    errStream
		j    *job
		want bool
	}{
		{"after its start", errStream{seq: 4, command: 4}, at(4, stderrApart), true},
		{"after its start, which a person's empty line delayed", errStream{seq: 5, command: 5}, at(4, stderrApart), true},
		{"before its start", errStream{seq: 4, command: noCommand}, at(4, stderrApart), false},
		{"of an earlier one", errStream{seq: 3, command: 3}, at(4, stderrApart), false},
		{"with the other stream", errStream{seq: 4, command: 4}, at(4, stderrMerged), false},
		{"after a reconnection", errStream{seq: 4, command: anyCommand}, at(4, stderrApart), true},
		{"after a reconnection and its end", errStream{seq: 5, command: anyCommand}, at(4, stderrApart), false},
	} {
		if got := tt.e.carries(tt.j); got != tt.want {
			t.Errorf("%s: %v", tt.rule, got)
		}
	}
}
