package agent

import "countersign/adapters/chat"

// Doing describes in a few words what a thread is working on, "" if no worker has it.
func (a *Agent) Doing(t chat.ThreadID) string { return a.doing(t) }

// Stalled returns the number of threads blocked because the store refuses writes.
func (a *Agent) Stalled() int { return int(a.stalled.Load()) }
