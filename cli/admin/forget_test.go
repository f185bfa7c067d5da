package admin

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/passkey/register"
	"countersign/approvals/passkey/registry"
	"countersign/bot"
	"countersign/config"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/mem"
	"countersign/store/queue"
)

var (
	ann = chat.User{ID: "slack:T1:ANN", Name: "Ann"}
	bob = chat.User{ID: "slack:T1:BOB", Name: "Bob"}
)

// told writes a conversation that ended at a time, with a request that is over.
func told(t *testing.T, db store.DB, thread chat.ThreadID, at time.Time) {
	t.Helper()
	update(t, db, func(tx store.Tx) {
		id := approvals.ID("req-" + string(thread))
		say := func(e history.Entry) { e.At = at; history.Append(tx, thread, e) }
		say(history.Entry{Kind: history.KindMessage, Message: &history.Message{From: ann, Text: "my password is in the drawer", Files: []chat.File{{Name: "a.txt"}}}})
		say(history.Entry{Kind: history.KindMessage, Message: &history.Message{From: bob, Text: "restart it"}})
		say(history.Entry{Kind: history.KindSummary, Summary: &history.Summary{Upto: 1, Text: "Ann told of a drawer"}})
		r := approvals.Record{ID: id, Thread: thread, Requester: ann, Reason: "because", By: bob, Votes: []approvals.Vote{{User: ann, Reason: "as I said"}}}
		(approvals.Ledger{}).Open(tx, r)
		r, _ = (approvals.Ledger{}).Get(tx, id)
		r.State, r.Ended = approvals.Denied, at
		store.Save(tx, store.Key("approval", string(id)), r)
		tx.Delete(store.Key("approval-open", string(thread), string(id)))
		say(history.Entry{Kind: history.KindAsk, Ask: &history.Ask{Call: "c", Approval: id}})
		say(history.Entry{Kind: history.KindDecision, Decision: &history.Decision{Call: "c", Approval: id, State: approvals.Denied, By: string(ann.ID), ByName: ann.Name, Reason: `as I said: "no" & <no>`}})
		say(history.Entry{Kind: history.KindResult, Result: &history.Result{Call: "c", Text: `{"reason":"as I said: \"no\" & <no>"}`, Why: `as I said: "no" & <no>`}})
		say(history.Entry{Kind: history.KindPen, Pen: &history.Pen{By: ann, Taken: true}})
		say(history.Entry{Kind: history.KindPen, Pen: &history.Pen{By: ann}})
		say(history.Entry{Kind: history.KindNote, Note: &history.Note{Text: "Ann had the keyboard of the session s on local from 02:00:00 to now and typed:\nls"}})
		say(history.Entry{Kind: history.KindEnd, End: &history.End{Reason: history.EndDone}})
		audit.Append(tx, string(thread), audit.Event{What: audit.Denied, Approval: string(id), User: string(ann.ID), Command: "rm x"}, at)
	})
}

func update(t *testing.T, db store.DB, f func(store.Tx)) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error { f(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// rows is the whole store but the audit record, as text.
func rows(t *testing.T, db store.DB) string {
	t.Helper()
	var b strings.Builder
	update(t, db, func(tx store.Tx) {
		for _, first := range []string{"history", "approval", "approval-face", "history-next", "history-rewritten"} {
			for k, v := range tx.Scan(store.Prefix(first)) {
				fmt.Fprintf(&b, "%s %s\n", store.Format(k), v)
			}
		}
	})
	return b.String()
}

func verified(t *testing.T, db store.DB, lines int) {
	t.Helper()
	update(t, db, func(tx store.Tx) {
		for _, thread := range []string{"web:old", "web:new"} {
			if err := audit.Verify(tx, thread); err != nil || len(audit.Lines(tx, thread)) != lines {
				t.Errorf("the audit record of %s: %v", thread, err)
			}
		}
	})
}

func TestOldConversationsGoAndTheAuditRecordStays(t *testing.T) {
	db := mem.Open()
	defer db.Close()
	now := time.Now()
	told(t, db, "web:old", now.Add(-100*24*time.Hour))
	told(t, db, "web:open", now.Add(-100*24*time.Hour))
	told(t, db, "web:waits", now.Add(-100*24*time.Hour))
	told(t, db, "web:new", now)
	update(t, db, func(tx store.Tx) {
		(approvals.Ledger{}).Open(tx, approvals.Record{ID: "open", Thread: "web:open"})
		history.Append(tx, "web:waits", history.Entry{Kind: history.KindBegin, At: now.Add(-100 * 24 * time.Hour), Begin: &history.Begin{Call: "w", Kind: history.NestedWorkflow}})
		queue.PutAt(tx, now.Add(time.Hour), queue.Item{ID: "i", Thread: "web:old", Kind: approvals.ItemExpire}) // of a request that is over
	})
	n, err := bot.PruneThreads(t.Context(), db, now.Add(-90*24*time.Hour))
	if err != nil || n != 1 {
		t.Errorf("%d removed, %v", n, err)
	}
	left := rows(t, db)
	for thread, kept := range map[string]bool{"web:old": false, "web:open": true, "web:waits": true, "web:new": true} {
		var there bool
		update(t, db, func(tx store.Tx) { _, there = history.Newest(tx, chat.ThreadID(thread)) })
		if there != kept || strings.Contains(left, "req-"+thread) != kept {
			t.Errorf("%s: %v, %s", thread, there, left)
		}
	}
	verified(t, db, 1)
	update(t, db, func(tx store.Tx) { // somebody speaks there again
		if e := history.Append(tx, "web:old", history.Entry{Kind: history.KindMessage, Message: &history.Message{From: ann, Text: "again"}}); e.Seq != 10 {
			t.Errorf("the next entry is %d", e.Seq)
		}
	})
}

func TestAPersonIsForgotten(t *testing.T) {
	db := mem.Open()
	defer db.Close()
	told(t, db, "web:old", time.Now())
	told(t, db, "web:new", time.Now())
	done, err := bot.Forget{Person: ann.ID}.Run(t.Context(), db)
	if said := saidOf(bot.Forget{Person: ann.ID}, done); err != nil || !strings.HasPrefix(said, "2 messages of slack:T1:ANN removed from 2 conversations") {
		t.Errorf("%s, %v", said, err)
	}
	left := rows(t, db)
	for _, gone := range []string{"drawer", "a.txt", "Ann", "as I said"} {
		if strings.Contains(left, gone) {
			t.Errorf("%q is left: %s", gone, left)
		}
	}
	for _, kept := range []string{"restart it", "Bob", "because", string(ann.ID)} {
		if !strings.Contains(left, kept) {
			t.Errorf("%q is gone: %s", kept, left)
		}
	}
	verified(t, db, 1)
}

// TestWhatIsOpenIsNotForgotten, whatever it waits for.
func TestWhatIsOpenIsNotForgotten(t *testing.T) {
	for name, open := range map[string]func(store.Tx, *approvals.Record){
		"a request": func(tx store.Tx, _ *approvals.Record) {
			(approvals.Ledger{}).Open(tx, approvals.Record{ID: "open", Thread: "web:old"})
		},
		"a runbook": func(tx store.Tx, _ *approvals.Record) {
			history.Append(tx, "web:old", history.Entry{Kind: history.KindBegin, Begin: &history.Begin{Call: "w", Kind: history.NestedWorkflow}})
			history.Append(tx, "web:old", history.Entry{Kind: history.KindStep, Scope: "w", Step: &history.Step{ID: "s", What: history.StepAsked}})
		},
		"a trial":  func(_ store.Tx, r *approvals.Record) { r.Trial.Until = time.Now() },
		"a review": func(_ store.Tx, r *approvals.Record) { r.Review.Due = true },
		"work": func(tx store.Tx, _ *approvals.Record) {
			queue.Put(tx, queue.Item{ID: "i", Thread: "web:old", Kind: "x"})
		},
	} {
		db := mem.Open()
		told(t, db, "web:old", time.Now())
		update(t, db, func(tx store.Tx) {
			r, _ := (approvals.Ledger{}).Get(tx, "req-web:old")
			open(tx, &r)
			store.Save(tx, store.Key("approval", string(r.ID)), r)
		})
		if _, err := (bot.Forget{Thread: "web:old"}).Run(t.Context(), db); err == nil || !strings.Contains(err.Error(), "is open") {
			t.Errorf("%s: %v", name, err)
		}
		if done, err := (bot.Forget{Person: ann.ID}).Run(t.Context(), db); err != nil || done != (bot.Forgotten{Open: 1}) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if n, err := bot.PruneThreads(t.Context(), db, time.Now().Add(time.Hour)); err != nil || n != 0 || !strings.Contains(rows(t, db), "drawer") {
			t.Errorf("%s: %d pruned, %v", name, n, err)
		}
		db.Close()
	}
}

// TestWhoOnlyDecidedIsForgotten: their vote, answers and corrections, and what the console shows of these; a passkey
// doesn't sign in who has their name later.
func TestWhoOnlyDecidedIsForgotten(t *testing.T) {
	db := mem.Open()
	defer db.Close()
	cid := chat.User{ID: "web:cid", Name: "Cid"}
	told(t, db, "web:old", time.Now())
	update(t, db, func(tx store.Tx) {
		r, _ := (approvals.Ledger{}).Get(tx, "req-web:old")
		r.Votes = append(r.Votes, approvals.Vote{User: cid, Reason: "too risky"})
		r.Trial = approvals.Trial{Until: time.Now(), Ended: approvals.Kept, By: cid}
		store.Save(tx, store.Key("approval", string(r.ID)), r)
		for _, e := range []history.Entry{
			{Kind: history.KindStep, Step: &history.Step{What: history.StepAnswered, By: cid, Text: "the blue one"}}, {Kind: history.KindPen, Pen: &history.Pen{By: cid}},
			{Kind: history.KindEdited, Edited: &history.Edited{By: cid}}, {Kind: history.KindStop, Stop: &history.Stop{From: cid}},
		} {
			history.Append(tx, "web:old", e)
		}
		registry.Book{}.Trust(tx, register.Key{ID: "k", Owner: "web:cid", Name: "Cid's phone"}, "web:bob")
	})
	if _, err := (bot.Forget{Person: cid.ID}).Run(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	left := rows(t, db)
	for _, gone := range []string{"Cid", "too risky", "the blue one"} {
		if strings.Contains(left, gone) {
			t.Errorf("%q is left: %s", gone, left)
		}
	}
	update(t, db, func(tx store.Tx) {
		if _, ok := (registry.Book{}).Get(tx, "k"); ok || len(audit.Lines(tx, "console")) != 1 {
			t.Error("their passkey is left, or nothing says that it went")
		}
	})
}

// TestARunningBotForgets on request of who can read its data directory.
func TestARunningBotForgets(t *testing.T) {
	db := mem.Open()
	defer db.Close()
	told(t, db, "web:old", time.Now())
	dir, key := t.TempDir(), []byte(strings.Repeat("k", 32))
	if err := os.WriteFile(filepath.Join(dir, "web.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(forgetHandler(bot.Site{DB: db, Key: key, Log: slog.New(slog.DiscardHandler)}))
	defer srv.Close()
	e := config.Env{DataDir: dir}
	if _, err := askToForget(t.Context(), e, srv.URL, bot.Forget{Thread: "web:none"}); err == nil || !strings.Contains(err.Error(), "no conversation web:none") {
		t.Error(err)
	}
	said, err := askToForget(t.Context(), e, srv.URL, bot.Forget{Thread: "web:old"})
	if err != nil || !strings.Contains(said, "web:old is removed") || strings.Contains(rows(t, db), "drawer") {
		t.Errorf("%s, %v", said, err)
	}
	forge := func(sign []byte, body, signed string) int {
		code := auditCode(sign, time.Now())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", codeScheme+code)
		r.Header.Set(bodyHeader, signBody(sign, code, []byte(signed)))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	own := keyring.Derive(key, forgetKey)
	for name, got := range map[string]int{
		"another key": forge([]byte("other"), `{"thread":"a"}`, `{"thread":"a"}`), "the key of exports": forge(key, `{"thread":"a"}`, `{"thread":"a"}`),
		"another body": forge(own, `{"thread":"b"}`, `{"thread":"a"}`),
	} {
		if got != http.StatusForbidden {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := forge(own, `{}`, `{}`); got != http.StatusBadRequest {
		t.Errorf("nothing: %d", got)
	}
}
