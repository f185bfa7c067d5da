package agent

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
)

// transcript is what a thread's worker has read: all entries, and the state folded from them.
type transcript struct {
	entries []history.Entry
	state   *threadState
	version history.Version
}

// readTranscript reads a thread without holding a write transaction up.
func readTranscript(ctx context.Context, db store.DB, thread chat.ThreadID) (t transcript, err error) {
	err = db.View(ctx, func(tx store.Tx) error {
		t.version, t.entries = history.VersionOf(tx, thread), history.Load(tx, thread)
		return nil
	})
	t.state = fold(t.entries)
	return t, err
}

// upToDate returns t as of now, the stored version. t itself stays as it was.
func (t transcript) upToDate(tx store.Tx, thread chat.ThreadID, now history.Version) transcript {
	switch {
	case t.state != nil && now == t.version:
		return t
	case t.state == nil || now.Rewritten != t.version.Rewritten || now.Next < t.version.Next:
		entries := history.Load(tx, thread)
		return transcript{entries, fold(entries), now}
	default:
		added := history.LoadFrom(tx, thread, t.version.Next)
		state := t.state.clone()
		for i := range added {
			state.add(&added[i])
		}
		return transcript{append(slices.Clip(t.entries), added...), state, now}
	}
}

const (
	// keptEntries is how many entries are kept of the threads that nobody works on, and
	// keptTokens how much text: some 30 MB of memory at most.
	keptEntries = 40_000
	keptTokens  = 4_000_000
	// keptFrom is from how many entries on a transcript is kept: reading fewer takes no time.
	keptFrom = 200
)

// transcripts keeps those of the long threads that were worked on last, so that they need not
// be read and folded again for the next message. It is safe for concurrent use.
type transcripts struct {
	from            uint64 // how many entries a thread must have to be kept
	mu              sync.Mutex
	byThread        map[chat.ThreadID]*list.Element
	recent          *list.List // of keptTranscript, the last one first
	entries, tokens int
}

type keptTranscript struct {
	transcript
	thread chat.ThreadID
	tokens int
}

func newTranscripts() *transcripts {
	return &transcripts{from: keptFrom, byThread: map[chat.ThreadID]*list.Element{}, recent: list.New()}
}

// put keeps t, which the caller does not use any more.
func (k *transcripts) put(thread chat.ThreadID, t transcript) {
	if uint64(len(t.entries)) < k.from {
		return
	}
	kept := keptTranscript{transcript: t, thread: thread}
	for i := range t.entries {
		kept.tokens += t.entries[i].Tokens
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(k.byThread[thread])
	k.byThread[thread] = k.recent.PushFront(kept)
	k.entries += len(t.entries)
	k.tokens += kept.tokens
	for k.entries > keptEntries || k.tokens > keptTokens {
		k.remove(k.recent.Back())
	}
}

// take returns what is kept of a thread; its state is nil if nothing is. The caller owns it.
func (k *transcripts) take(thread chat.ThreadID) transcript {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.byThread[thread]
	if e == nil {
		return transcript{}
	}
	return k.remove(e)
}

func (k *transcripts) remove(e *list.Element) transcript {
	if e == nil {
		return transcript{}
	}
	kept := k.recent.Remove(e).(keptTranscript)
	delete(k.byThread, kept.thread)
	k.entries -= len(kept.entries)
	k.tokens -= kept.tokens
	return kept.transcript
}
