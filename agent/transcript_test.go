package agent

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
	"countersign/store/mem"
)

func TestATranscriptThatWasReadBeforeBecomesWhatIsStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		db := mem.Open()
		defer func() { _ = db.Close() }()
		const thread = chat.ThreadID("web:t")
		n := 0
		write := func() {
			if err := db.Update(t.Context(), func(tx store.Tx) error {
				for range rapid.IntRange(0, 3).Draw(rt, "messages") {
					n++
					history.Append(tx, thread, history.Entry{Kind: history.KindMessage, Message: &history.Message{
						ID: chat.EventID(fmt.Sprint(n)), Ref: chat.MessageRef(fmt.Sprint(n)), Text: fmt.Sprint("text ", n),
					}})
				}
				if n > 0 && rapid.IntRange(0, 3).Draw(rt, "forget") == 0 {
					history.Forget(tx, thread, chat.MessageRef(fmt.Sprint(rapid.IntRange(1, n).Draw(rt, "message"))), false)
				}
				return nil
			}); err != nil {
				rt.Fatal(err)
			}
		}
		write()
		known, err := readTranscript(t.Context(), db, thread)
		if err != nil {
			rt.Fatal(err)
		}
		before := slices.Clone(known.entries)
		write()
		var got transcript
		if err := db.View(t.Context(), func(tx store.Tx) error {
			got = known.upToDate(tx, thread, history.VersionOf(tx, thread))
			return nil
		}); err != nil {
			rt.Fatal(err)
		}
		want, err := readTranscript(t.Context(), db, thread)
		if err != nil {
			rt.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			rt.Fatalf("%+v, want %+v", got, want)
		}
		if !reflect.DeepEqual(known.entries, before) {
			rt.Fatalf("what was read has changed: %+v, was %+v", known.entries, before)
		}
	})
}

func TestOnlyLongTranscriptsOfTheLastThreadsAreKept(t *testing.T) {
	k := newTranscripts()
	long := func(n, tokens int) transcript {
		entries := make([]history.Entry, n)
		entries[0].Tokens = tokens
		return transcript{entries: entries, state: newThreadState()}
	}
	k.put("short", long(keptFrom-1, 0))
	k.put("a", long(keptEntries/2, 0))
	k.put("b", long(keptEntries/2, 0))
	k.put("a", k.take("a")) // it was worked on again
	k.put("c", long(keptFrom, 0))
	for thread, want := range map[chat.ThreadID]bool{"short": false, "a": true, "b": false, "c": true} {
		if got := k.take(thread).state != nil; got != want {
			t.Errorf("%s is kept: %v, want %v", thread, got, want)
		}
	}
	k.put("d", long(keptFrom, keptTokens/2+1))
	k.put("e", long(keptFrom, keptTokens/2+1))
	if k.take("d").state != nil || k.take("e").state == nil {
		t.Error("the text that is kept has no bound")
	}
	if k.entries != 0 || k.tokens != 0 || len(k.byThread) != 0 || k.take("e").state != nil {
		t.Errorf("after all was taken there are %d entries, %d tokens", k.entries, k.tokens)
	}
}
