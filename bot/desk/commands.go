package desk

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/bot/threads"
	"countersign/store"
	"countersign/store/queue"
)

// Conversation is the agent as commands need it.
type Conversation interface {
	Doing(thread chat.ThreadID) string
	Deliver(ctx context.Context, ev chat.Event) error
}

// Commands implements [chat.Desk]: it answers what belongs to no thread.
type Commands struct {
	DB       store.DB
	Targets  threads.Targets
	Agent    Conversation
	Runbooks Runbooks
	Opener   func(scheme string) chat.Opener // nil of it: that network begins no threads
	Log      *slog.Logger
}

// Overview implements chat.Desk.
func (c Commands) Overview(ctx context.Context, q chat.Inquiry) (chat.Overview, error) {
	var o chat.Overview
	waits := map[chat.ThreadID]bool{}
	var working []string
	err := c.DB.View(ctx, func(tx store.Tx) error {
		o, waits = chat.Overview{}, map[chat.ThreadID]bool{}
		working = queue.Working(tx)
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			if !strings.HasPrefix(string(r.Thread), q.Within) || r.State != approvals.Pending {
				continue
			}
			waits[r.Thread] = true
			if !c.mayApprove(r, q) && r.Requester.ID != q.From.ID && !here(string(r.Thread), q) {
				continue
			}
			o.Approvals = append(o.Approvals, chat.Waiting{
				Thread: r.Thread, ID: string(r.ID), Title: oneLine(r.Action), Level: r.Level, Target: r.Action.Target,
				Expires: r.ExpiresAt, Mine: c.mayApprove(r, q),
			})
		}
		return nil
	})
	if err != nil {
		return o, err
	}
	for _, w := range o.Approvals {
		o.Busy = append(o.Busy, chat.Busy{Thread: w.Thread, Doing: chat.StatusDecision + " on request " + w.ID})
	}
	for _, t := range working {
		id := chat.ThreadID(t)
		if here(t, q) && !waits[id] {
			doing := c.Agent.Doing(id)
			if doing == "" {
				doing = "about to go on"
			}
			o.Busy = append(o.Busy, chat.Busy{Thread: id, Doing: doing})
		}
	}
	for _, m := range c.Targets.Machines.Books() {
		all, err := m.State().Book.List(ctx, "")
		if err != nil {
			c.Log.WarnContext(ctx, "the terminals of a target cannot be listed", "target", m.Name, "error", err)
			continue
		}
		for _, s := range all {
			if here(s.Thread, q) {
				state := "open"
				if s.Lost {
					state = "gone"
				}
				o.Sessions = append(o.Sessions, chat.Session{Thread: chat.ThreadID(s.Thread), Name: s.Name, State: state, Attach: s.Attach})
			}
		}
	}
	return o, nil
}

// here reports whether an inquiry is about a thread, and made where it is.
func here(thread string, q chat.Inquiry) bool {
	return q.Here != "" && strings.HasPrefix(thread, q.Here) && strings.HasPrefix(thread, q.Within)
}

// mayApprove tells whether somebody could approve a request now; their vote is
// checked again when they cast it.
func (c Commands) mayApprove(r approvals.Record, q chat.Inquiry) bool {
	return c.Targets.Rules().Policy.Eligible(r.Require.Groups(), q.From, q.Groups) && (r.Require.RequesterMay || q.From.ID != r.Requester.ID)
}

// onCall says who is on call now, of the schedules that approve on some target.
func (c Commands) onCall() (out []string) {
	r := c.Targets.Rules()
	for _, name := range slices.Sorted(maps.Keys(r.File.Targets)) {
		for _, d := range r.Policy.Duties(r.File.Targets[name].Approvers) {
			if s := d.String(); !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// oneLine is the first line of what an action does, short enough for a list.
func oneLine(a approvals.Action) string {
	s := string(a.Bytes)
	if a.Kind != approvals.KindShell || s == "" {
		s = strings.TrimSpace(a.Tool + " " + a.Path)
	}
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(line); len(r) > 100 {
		line, more = string(r[:100]), true
	}
	if more {
		line += " …"
	}
	return line
}

// Stop implements chat.Desk: the same as the word `stop` in each thread.
func (c Commands) Stop(ctx context.Context, q chat.Inquiry) ([]chat.ThreadID, error) {
	threads, err := threads.Active(ctx, c.DB, q.Within)
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		ev := chat.Event{ID: q.ID + ":" + chat.EventID(t), Thread: t, From: q.From, Text: "stop", At: time.Now()}
		if err := c.Agent.Deliver(ctx, ev); err != nil {
			return nil, err
		}
	}
	return threads, nil
}

// Run implements chat.Desk: the same as the word `run` in a thread.
func (c Commands) Run(ctx context.Context, q chat.Inquiry, words string) (chat.ThreadID, string, error) {
	if q.From.Bot || q.From.Outside {
		return "", sayRunMembers, nil
	}
	line := "run " + words
	args, ok := runArgs(line, strings.Fields(line))
	if !ok {
		return "", sayBadInputs, nil
	}
	thread := chat.ThreadID(q.Within)
	channel, fresh := strings.CutSuffix(q.Within, ":")
	if fresh {
		thread = chat.ThreadID(channel + ":new")
	}
	if ans, err := c.Runbooks.Run(ctx, chat.Event{Thread: thread}, args); err != nil || ans.Call.Name == "" {
		return "", ans.Text, err
	}
	if fresh {
		scheme, _, _ := strings.Cut(channel, ":")
		o := c.Opener(scheme)
		if o == nil {
			return "", sayCannotOpen(args.ID), nil
		}
		var err error
		thread, _, err = o.Open(ctx, channel, "run/"+string(q.ID), chat.Post{Key: "run/" + string(q.ID), Text: "**" + args.ID + "**, begun by " + q.From.Name + "."})
		if errors.Is(err, chat.ErrGone) {
			return "", sayInvite, nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return thread, "", c.Agent.Deliver(ctx, chat.Event{ID: q.ID, Thread: thread, From: q.From, Groups: q.Groups, Text: line, At: time.Now()})
}
