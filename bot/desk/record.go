package desk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/report"
	"countersign/bot/machines"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/tools"
	"countersign/tools/output"
)

// Records answers the chat words "timeline" and "export".
type Records struct {
	DB         store.DB
	Redactor   *redact.Redactor
	Outputs    *output.Log
	Recordings machines.Recordings
	Log        *slog.Logger
}

// Incident is everything that is known of a thread.
func (r Records) Incident(ctx context.Context, thread chat.ThreadID) (inc report.Incident, err error) {
	err = r.DB.View(ctx, func(tx store.Tx) error {
		inc = report.Load(tx, thread)
		return nil
	})
	inc.Made, inc.Redactor = time.Now().UTC(), r.Redactor
	return inc, err
}

// exported is how much the archive of the word "export" holds: it waits in the store until it
// is posted. `countersign export` writes all of it.
const exported = 4 << 20

// Record answers the chat words "timeline" and "export".
func (r Records) Record(ctx context.Context, thread chat.ThreadID, all bool) (files []chat.File, text string) {
	inc, err := r.Incident(ctx, thread)
	if err != nil {
		r.Log.ErrorContext(ctx, "the record of a thread cannot be read", "thread", string(thread), "error", err)
		return nil, sayNoRecord
	}
	stamp := inc.Made.Format("2006-01-02-1504")
	if !all {
		return []chat.File{{Name: "timeline-" + stamp + ".md", Text: report.Timeline(inc)}}, sayTimeline
	}
	var out bytes.Buffer
	if err := report.Export(ctx, &out, inc, r.Parts(thread, exported)); err != nil {
		r.Log.ErrorContext(ctx, "the record of a thread cannot be exported", "thread", string(thread), "error", err)
		return nil, sayNoExport
	}
	return []chat.File{{Name: "incident-" + stamp + ".zip", Data: out.Bytes()}}, sayExport(string(thread))
}

// OpenOutput opens one output of a thread for the console: it implements web.Outputs.
func (r Records) OpenOutput(ctx context.Context, thread chat.ThreadID, id string) (io.ReadCloser, error) {
	f, _, err := r.Outputs.OpenContext(ctx, string(thread), id)
	if errors.Is(err, output.ErrNone) {
		err = errors.Join(err, chat.ErrGone)
	}
	return f, err
}

// Streams passes on one output of a thread, in its streams; whole is false if something is missing.
func (r Records) Streams(ctx context.Context, thread chat.ThreadID, id string, pass func(tools.Event) error) (whole bool, err error) {
	whole, err = r.Outputs.Streams(ctx, string(thread), id, pass)
	if errors.Is(err, output.ErrNone) {
		err = errors.Join(err, chat.ErrGone)
	}
	return whole, err
}

// Parts are what goes into an archive beside what the store has.
func (r Records) Parts(thread chat.ThreadID, limit int64) report.Parts {
	p := report.Parts{
		Limit: limit,
		Chain: report.Chain(r.DB, thread, time.Now()), Checkpoints: report.Checkpoints(r.DB), Sign: report.Signer(r.DB),
		Output: func(id string) (io.ReadCloser, error) {
			f, _, err := r.Outputs.Open(string(thread), id)
			return f, err
		},
	}
	list, err := r.Recordings.Of(thread)
	if err != nil {
		r.Log.Error("the recordings cannot be listed", "error", err)
	}
	for _, i := range list {
		_, name, _ := strings.Cut(i.ID, "_")
		p.Recordings = append(p.Recordings, report.Recording{
			Name: strings.TrimSuffix(name, ".cast"),
			Open: func() (io.ReadCloser, error) { return r.Recordings.Open(thread, i.ID) },
		})
	}
	return p
}
