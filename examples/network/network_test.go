package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/adapters/chat/chattest"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/examples/network"
	"countersign/store"
	"countersign/store/mem"
)

// folder is a network of files with one person in it.
type folder struct {
	t    *testing.T
	dir  string
	made atomic.Int64
}

func (f *folder) path(th chat.ThreadID) string {
	return filepath.Join(f.dir, strings.TrimPrefix(string(th), "file:")+".jsonl")
}

// write appends a line as a person would, and returns the answer to it.
func (f *folder) write(th chat.ThreadID, l network.Line) (network.Line, error) {
	before := len(f.lines(th))
	data, err := json.Marshal(l)
	if err != nil {
		return l, err
	}
	file, err := os.OpenFile(f.path(th), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return l, err
	}
	_, err = file.Write(append(data, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return l, err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for _, a := range f.lines(th)[before:] {
			switch {
			case a.Answers != l.ID:
			case a.Refused:
				return a, errors.New("refused: " + a.Text)
			default:
				return a, nil
			}
		}
		select {
		case <-tick.C:
		case <-f.t.Context().Done():
			return l, context.Canceled
		}
	}
}

func (f *folder) lines(th chat.ThreadID) (out []network.Line) {
	data, _ := os.ReadFile(f.path(th)) // not there yet
	for s := range strings.SplitSeq(string(data), "\n") {
		var l network.Line
		if json.Unmarshal([]byte(s), &l) == nil {
			out = append(out, l)
		}
	}
	return out
}

func (f *folder) say(th chat.ThreadID, id, text string) (chat.ThreadID, error) {
	if th == "" {
		th = chat.ThreadID(fmt.Sprint("file:t", f.made.Add(1)))
	}
	_, err := f.write(th, network.Line{ID: id, From: "alice", Text: text})
	return th, err
}

func (f *folder) press(th chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error) {
	a, err := f.write(th, network.Line{ID: fmt.Sprint("press", f.made.Add(1)), From: "alice", Press: b, Reason: reason})
	return chat.Answer{Notice: a.Text, OK: a.OK}, err
}

// shown reads the file as people do who know what replaces what.
func (f *folder) shown(th chat.ThreadID) []chat.Post {
	var ids []string
	now := map[string]chat.Post{}
	for _, l := range f.lines(th) {
		p := chat.Post{Text: l.Text}
		if l.Title != "" {
			p.Card = &chat.Card{Title: l.Title}
		}
		switch {
		case l.From != "" || l.Answers != "":
		case l.Deletes != "":
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == l.Deletes })
		case l.Edits != "":
			now[l.Edits] = p
		default:
			ids = append(ids, l.ID)
			now[l.ID] = p
		}
	}
	var out []chat.Post
	for _, id := range ids {
		out = append(out, now[id])
	}
	return out
}

// TestNetwork holds the example against what every network has to keep.
func TestNetwork(t *testing.T) {
	chattest.Run(t, func(t *testing.T) chattest.Subject {
		f := &folder{t: t, dir: t.TempDir()}
		a := network.New(network.Config{Folder: f.dir, Every: 5 * time.Millisecond})
		return chattest.Subject{Adapter: a, User: "file:alice", Unknown: "file:nobody", Say: f.say, Press: f.press, Shown: f.shown}
	})
}

func TestARestartPostsNothingTwice(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &folder{t: t, dir: dir}
	for range 2 {
		a := network.New(network.Config{Folder: dir})
		if _, err := a.Post(t.Context(), "file:t", chat.Post{Key: "a", Text: "once"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.shown("file:t"); len(got) != 1 || got[0].Text != "once" {
		t.Errorf("the thread shows %+v", got)
	}
}

// decider is a bot that takes what people say and asks a gate about what they press.
type decider struct{ *gate.Gate }

func (decider) Deliver(context.Context, chat.Event) error { return nil }

// TestItsPeopleApprove: somebody whom a group names by the scheme decides with a press, and nobody else does.
func TestItsPeopleApprove(t *testing.T) {
	var groups map[string]policy.Group
	if err := yaml.Unmarshal([]byte("oncall: {file: [alice]}"), &groups); err != nil {
		t.Fatal(err)
	}
	pol, err := policy.New(policy.Config{Approve: policy.Approve{Requester: "always"}}, groups)
	if err != nil {
		t.Fatal(err)
	}
	db := mem.Open()
	g := gate.New(gate.Config{
		DB: db, Policy: func() *policy.Policy { return pol }, Classify: risk.Judge, Now: time.Now, Wake: func(string) {}, Log: slog.New(slog.DiscardHandler),
		Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "file", Approvers: []string{"oncall"}, Mode: policy.Balanced}
		},
		Limits: func() gate.Limits { return gate.Limits{} },
	})
	f := &folder{t: t, dir: t.TempDir()}
	a := network.New(network.Config{Folder: f.dir, Every: 5 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx, decider{g}) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	th, err := f.say("", "m1", "restart app")
	if err != nil {
		t.Fatal(err)
	}
	var rec approvals.Record
	err = db.Update(ctx, func(tx store.Tx) error {
		rec = g.Ask(tx, approvals.Request{
			Thread: th, Call: "c1", By: chat.User{ID: "file:alice", Name: "alice"}, Floor: risk.Read,
			Action: approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("systemctl restart app"), Shell: "bash"},
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Post(ctx, th, chat.Post{Key: chat.CardPrefix + string(rec.ID), Card: new(card(t, db, g, rec))}); err != nil {
		t.Fatal(err)
	}
	button := chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce)
	for _, who := range []string{"eve", "alice"} {
		ans, err := f.write(th, network.Line{ID: "press-" + who, From: who, Press: button})
		if err != nil || ans.OK != (who == "alice") {
			t.Errorf("%s: %+v %v", who, ans, err)
		}
	}
	_ = db.View(ctx, func(tx store.Tx) error { rec, _ = approvals.Ledger{}.Get(tx, rec.ID); return nil })
	if len(rec.Votes) != 1 || rec.Votes[0].User.ID != "file:alice" || rec.State != approvals.Approved {
		t.Errorf("%s by %+v", rec.State, rec.Votes)
	}
}

func card(t *testing.T, db store.DB, g *gate.Gate, rec approvals.Record) (c chat.Card) {
	t.Helper()
	if err := db.View(t.Context(), func(tx store.Tx) error { c = g.Card(tx, rec); return nil }); err != nil {
		t.Fatal(err)
	}
	return c
}
