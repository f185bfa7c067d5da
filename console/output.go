package console

import (
	"context"
	"io"
	"net/http"

	"countersign/adapters/chat"
)

const maxOutputID = 64 // bytes of an output's id

// Outputs keeps what commands of a thread printed. It is safe for concurrent use.
type Outputs interface {
	// OpenOutput gives the whole of one output, with secrets taken out and with the escape
	// sequences that the command wrote. It refuses an output that does not belong to thread,
	// and wraps [chat.ErrGone] when there is no such output. Whatever id a browser sends
	// comes here.
	OpenOutput(ctx context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error)
}

// readOutput streams one output as a file to keep.
func (a *Adapter) readOutput(w http.ResponseWriter, r *http.Request, s session) {
	id, ok := a.openThread(w, r, r.PathValue("id"))
	if !ok {
		return
	}
	name := r.PathValue("out")
	if a.outputs == nil || len(name) > maxOutputID {
		fail(w, http.StatusNotFound, sayNoOutput)
		return
	}
	a.sendFile(w, r, s, attachment{
		thread: threadID(id), what: "output", name: name + ".txt", kind: "text/plain; charset=utf-8",
		open: func(ctx context.Context) (io.ReadCloser, error) {
			return a.outputs.OpenOutput(ctx, threadID(id), name)
		},
	})
}
