// Package desk is what people and the agent ask of the bot beside the conversation: the
// chat words that concern machines, roles, workflows and the record of a thread, and who
// leads its conversations. [Desk] puts the parts together for package agent; [Commands]
// answers what belongs to no thread.
//
// It runs nothing: where a word wants something done, the result is a call that asks like
// any other.
package desk

import (
	"context"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/approvals"
	"countersign/store"
	"countersign/tools"
)

// Witness knows the machines: what became of a call there, and what an action would do.
type Witness interface {
	Evidence(ctx context.Context, thread chat.ThreadID, call string) string
	Resume(ctx context.Context, c tools.Call, a approvals.Action, sink tools.Sink) (tools.Result, error)
	Settle(tx store.Tx, thread chat.ThreadID, call string, a approvals.Action, unknown bool)
	Prepare(thread chat.ThreadID, a approvals.Action)
	Trial(ctx context.Context, thread chat.ThreadID, id approvals.ID, keep *bool) (end approvals.TrialEnd, note string, err error)
	Preview(ctx context.Context, r approvals.Request) approvals.Preview
}

// Handovers tell who goes on call what they take over.
type Handovers interface {
	Handover(ctx context.Context, thread chat.ThreadID) (string, error)
}

// Desk implements [agent.Desk]: each part answers its own words, and knows what these need.
type Desk struct {
	Profiles
	Targets
	Roles
	Terminals
	Recordings
	Changes
	Runbooks
	Records
	Handovers
	Witness
}

var (
	_ agent.Desk = Desk{}
	_ chat.Desk  = Commands{}
)
