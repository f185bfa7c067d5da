package agent

import "countersign/adapters/chat"

// Doing says in a few words what a thread is busy with at this moment, "" when
// no worker has it.
func (a *Agent) Doing(t chat.ThreadID) string { return a.doing(t) }

// Stalled is how many threads stand still because the store refuses what they have to
// write.
func (a *Agent) Stalled() int { return int(a.stalled.Load()) }
