package console

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"countersign/adapters/chat"
)

const maxRecordingID = 256 // bytes of a recording's id

// Recordings shows what terminals of a thread have shown. Both methods are safe
// for concurrent use.
type Recordings interface {
	// Recordings lists them, in the order in which people want to see them.
	Recordings(ctx context.Context, thread chat.ThreadID) ([]Recording, error)
	// OpenRecording gives one of them in the format asciicast v3
	// (https://docs.asciinema.org/manual/asciicast/v3/), with secrets taken out. It
	// refuses a recording that does not belong to thread, and wraps [chat.ErrGone]
	// when there is no such recording. Whatever id a browser sends comes here.
	OpenRecording(ctx context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error)
}

// Recording describes one recording.
type Recording struct {
	ID      string    `json:"id"`      // opaque, for OpenRecording; at most 256 bytes
	Session string    `json:"session"` // the tmux session's name
	Pane    string    `json:"pane"`    // what the pane is called in its session
	Started time.Time `json:"started"`
	// Duration is the time from the first to the last moment, with its gaps, in seconds.
	Duration float64 `json:"duration"`
	Bytes    int64   `json:"bytes"`
}

// files hands out recordings and outputs.
type files struct {
	ground
	door       *door
	intake     *intake
	recordings Recordings // nil: there are none
	outputs    Outputs    // nil: there are none
}

func (fs *files) listRecordings(w http.ResponseWriter, r *http.Request, _ session, id string) error {
	list := []Recording{}
	if fs.recordings != nil {
		found, err := fs.recordings.Recordings(r.Context(), threadID(id))
		if err != nil && !errors.Is(err, chat.ErrGone) {
			fs.log.WarnContext(r.Context(), "recordings cannot be listed", "thread", threadID(id), "error", err)
			return refuse(http.StatusServiceUnavailable, sayRecordingsUnread)
		}
		list = append(list, found...)
	}
	return answer(w, http.StatusOK, map[string]any{"recordings": list})
}

// readRecording streams one recording as a file to keep.
func (fs *files) readRecording(w http.ResponseWriter, r *http.Request, s session, id string) error {
	name := r.PathValue("rec")
	if fs.recordings == nil || len(name) > maxRecordingID {
		return refuse(http.StatusNotFound, sayNoRecording)
	}
	return fs.sendFile(w, r, s, attachment{
		thread: threadID(id), what: "recording", name: name + ".cast", kind: "application/x-asciicast",
		open: func(ctx context.Context) (io.ReadCloser, error) {
			return fs.recordings.OpenRecording(ctx, threadID(id), name)
		},
	})
}

// attachment is a file for a signed-in person. open wraps [chat.ErrGone] when there is none.
type attachment struct {
	thread           chat.ThreadID
	what, name, kind string // what it is called in sentences, as a file, and its media type
	open             func(context.Context) (io.ReadCloser, error)
}

// sendFile streams an attachment. An answer that breaks off in the middle is cut, so that nobody
// takes it for a whole one.
func (fs *files) sendFile(w http.ResponseWriter, r *http.Request, s session, f attachment) error {
	cut, leave, err := fs.door.sessionStream(r, s)
	if err != nil {
		return err
	}
	defer leave()
	body, err := f.open(r.Context())
	if errors.Is(err, chat.ErrGone) {
		return refuse(http.StatusNotFound, "This "+f.what+" is gone: it was kept for a while, and then removed.")
	}
	if err != nil {
		fs.log.WarnContext(r.Context(), "a file cannot be opened", "what", f.what, "thread", f.thread, "error", err)
		return refuse(http.StatusServiceUnavailable, "The "+f.what+" cannot be opened right now: try again in a moment, and look at the bot's log if that does not help.")
	}
	defer func() { _ = body.Close() }() // it was only read
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Disposition", "attachment")
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": f.name}); d != "" {
		h.Set("Content-Disposition", d)
	}
	if err := fs.pour(w, r, body, cut); err != nil {
		if r.Context().Err() == nil {
			fs.log.WarnContext(r.Context(), "a file was not sent to its end", "what", f.what, "thread", f.thread, "error", err)
		}
		panic(http.ErrAbortHandler) // the way to cut an answer that has begun
	}
	return nil
}

// pour copies piece by piece: a reader has [writeTime] for each, however large
// the whole is.
func (fs *files) pour(w http.ResponseWriter, r *http.Request, body io.Reader, cut <-chan struct{}) error {
	c, stop := http.NewResponseController(w), fs.intake.stopping()
	piece := make([]byte, 64<<10)
	for {
		n, err := body.Read(piece)
		if n > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // not every server has one
			if _, err := w.Write(piece[:n]); err != nil {     // an attachment under nosniff
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-cut:
			return errors.New("the person signed out")
		case <-stop:
			return errors.New("the bot is stopping")
		case <-r.Context().Done():
			return r.Context().Err()
		default:
		}
	}
}

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
func (fs *files) readOutput(w http.ResponseWriter, r *http.Request, s session, id string) error {
	name := r.PathValue("out")
	if fs.outputs == nil || len(name) > maxOutputID {
		return refuse(http.StatusNotFound, sayNoOutput)
	}
	return fs.sendFile(w, r, s, attachment{
		thread: threadID(id), what: "output", name: name + ".txt", kind: "text/plain; charset=utf-8",
		open: func(ctx context.Context) (io.ReadCloser, error) {
			return fs.outputs.OpenOutput(ctx, threadID(id), name)
		},
	})
}
