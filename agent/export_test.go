package agent

// KeepEvery makes the agent keep the transcripts of short threads, too. Call it before Run.
func (a *Agent) KeepEvery() { a.transcripts.from = 1 }
