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
)

// Desk implements [agent.Desk], and its parts answer the chat words.
type Desk struct {
	Profiles
	Targets
	Roles
	Terminals
	Recordings
	Changes
	Runbooks
	Records
	// Handover tells who goes on call what they take over.
	Handover func(ctx context.Context, thread chat.ThreadID) (string, error)
}

var (
	_ agent.Desk = Desk{}
	_ chat.Desk  = Commands{}
)

// Words are the chat words that the parts answer, and the places of those of the agent's own that stand
// among them in the help.
func (d Desk) Words() []agent.Word {
	return []agent.Word{
		{Name: "undo", Help: helpUndo, Args: agent.OneID, Do: d.Undo},
		{Name: "run", Help: helpRun, Args: d.wordArgs, Do: d.Run},
		{Name: "role", Help: helpRole, Args: agent.OneOrNone, Do: d.Role},
		{Name: "use", Help: helpUse, Args: agent.OneOrNone, Do: d.Use},
		{Name: "exec"},
		{Name: "sessions", Help: helpSessions, Args: agent.Alone, Do: d.Sessions},
		{Name: "take", Help: helpTake, Args: agent.OneOrNone, Do: d.Take},
		{Name: "give", Args: agent.OneTo, Do: d.Give},
		{Name: "recording", Help: helpRecording, Args: agent.Alone, Do: d.Recording},
		{Name: "output"},
		{Name: "handover", Help: helpHandover, Args: agent.Alone, Do: d.handover},
		{Name: "timeline", Help: helpTimeline, Args: agent.Alone, Do: d.record(false)},
		{Name: "export", Help: helpExport, Args: agent.Alone, Do: d.record(true)},
		{Name: "help"},
	}
}

func (d Desk) handover(ctx context.Context, ev chat.Event, _ agent.Args) (agent.Answer, error) {
	text, err := d.Handover(ctx, ev.Thread)
	return agent.Answer{Text: text}, err
}

func (d Desk) record(all bool) func(context.Context, chat.Event, agent.Args) (agent.Answer, error) {
	return func(ctx context.Context, ev chat.Event, _ agent.Args) (agent.Answer, error) {
		files, text := d.Record(ctx, ev.Thread, all)
		return agent.Answer{Text: text, Files: files}, nil
	}
}

// says answers with a text.
func says(text string) (agent.Answer, error) { return agent.Answer{Text: text}, nil }
