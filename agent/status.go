package agent

import "countersign/adapters/chat"

// Doing says in a few words what a thread is busy with at this moment, "" when
// no worker has it.
func (a *Agent) Doing(t chat.ThreadID) string { return a.doing(t) }
