package desk

import (
	"context"
	"encoding/json"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/bot/machines"
	"countersign/store"
	"countersign/tools/files"
)

// Changes answers the chat word "undo".
type Changes struct {
	DB      store.DB
	Several bool // there are several targets, so each is named
}

// Undo finds the call that takes a change back. The call refuses if the files have changed since.
func (c Changes) Undo(ctx context.Context, ev chat.Event, asked agent.Args) (agent.Answer, error) {
	change := asked.ID
	k, ok, err := files.NewImages(c.DB, time.Now).Load(ctx, string(ev.Thread), change)
	tool, target := "undo", k.Target
	if err == nil && !ok {
		target, ok, err = machines.WayTarget(ctx, c.DB, ev.Thread, change)
		tool = "undo_command"
	}
	switch {
	case err != nil:
		return says(sayUndoUnread)
	case !ok:
		return says(sayNoChange(change))
	}
	args := map[string]string{"change": change}
	if c.Several {
		args["target"] = target
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return says(sayUndoUnnamed)
	}
	return agent.Answer{Call: llm.Call{Name: tool, Args: string(raw)}}, nil
}
