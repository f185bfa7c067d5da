package desk

import (
	"context"
	"encoding/json"
	"time"

	"countersign/adapters/chat"
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

// Undo finds the call that takes a change back.
func (c Changes) Undo(ctx context.Context, thread chat.ThreadID, change string) (llm.Call, string) {
	k, ok, err := files.NewImages(c.DB, time.Now).Load(ctx, string(thread), change)
	tool, target := "undo", k.Target
	if err == nil && !ok {
		target, ok, err = machines.WayTarget(ctx, c.DB, thread, change)
		tool = "undo_command"
	}
	switch {
	case err != nil:
		return llm.Call{}, sayUndoUnread
	case !ok:
		return llm.Call{}, sayNoChange(change)
	}
	args := map[string]string{"change": change}
	if c.Several {
		args["target"] = target
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return llm.Call{}, sayUndoUnnamed
	}
	return llm.Call{Name: tool, Args: string(raw)}, ""
}
