package web

import (
	"context"
	"net/http"

	"countersign/adapters/chat"
)

// Executions knows what became of people's own commands. It is safe for concurrent use.
type Executions interface {
	// Exec is about the last one of a thread.
	Exec(ctx context.Context, thread chat.ThreadID) (chat.Executed, error)
}

// readExec answers what became of the thread's last command of a person.
func (a *Adapter) readExec(w http.ResponseWriter, r *http.Request, _ session) {
	id, ok := a.openThread(w, r, r.PathValue("id"))
	if !ok {
		return
	}
	x, err := a.executions.Exec(r.Context(), threadID(id))
	if err != nil {
		a.failStore(r.Context(), w, err)
		return
	}
	answer(w, http.StatusOK, x)
}
