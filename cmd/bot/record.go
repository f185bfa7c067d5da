package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/internal/config"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/agent/report"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/tools/output"
)

// incident is everything that is known of a thread.
func (b *bot) incident(ctx context.Context, thread chat.ThreadID) (inc report.Incident, err error) {
	err = b.db.View(ctx, func(tx store.Tx) error {
		inc = report.Load(tx, thread)
		return nil
	})
	inc.Made, inc.Redactor = time.Now().UTC(), b.redactor
	return inc, err
}

// exported is how much the archive of the word "export" holds: it waits in the store until it
// is posted. `bot export` writes all of it.
const exported = maxGiven

// recordWord answers the chat words "timeline" and "export".
func (b *bot) recordWord(ctx context.Context, thread chat.ThreadID, all bool) (files []chat.File, text string) {
	inc, err := b.incident(ctx, thread)
	if err != nil {
		b.log.ErrorContext(ctx, "the record of a thread cannot be read", "thread", string(thread), "error", err)
		return nil, "I cannot read the record of this thread at the moment; look at the bot's log."
	}
	stamp := inc.Made.Format("2006-01-02-1504")
	if !all {
		return []chat.File{{Name: "timeline-" + stamp + ".md", Text: report.Timeline(inc)}}, "The draft of a post-mortem, from the record of this thread alone; the headings without text are for you."
	}
	var out bytes.Buffer
	if err := report.Export(ctx, &out, inc, b.parts(thread, exported)); err != nil {
		b.log.ErrorContext(ctx, "the record of a thread cannot be exported", "thread", string(thread), "error", err)
		return nil, "I cannot write the record of this thread at the moment; look at the bot's log."
	}
	return []chat.File{{Name: "incident-" + stamp + ".zip", Data: out.Bytes()}}, "The record of this thread, secrets taken out; its README.txt says what is in it, how to verify it, and what found no room. `bot export " + string(thread) + "` on the bot's machine writes all of it."
}

// parts are what goes into an archive beside what the store has.
func (b *bot) parts(thread chat.ThreadID, limit int64) report.Parts {
	p := report.Parts{
		Limit: limit,
		Chain: report.Chain(b.db, thread, time.Now()),
		Output: func(id string) (io.ReadCloser, error) {
			f, _, err := b.outputs.Open(string(thread), id)
			return f, err
		},
	}
	list, err := b.recordings().Of(thread)
	if err != nil {
		b.log.Error("the recordings cannot be listed", "error", err)
	}
	for _, r := range list {
		_, name, _ := strings.Cut(r.ID, "_")
		p.Recordings = append(p.Recordings, report.Recording{
			Name: strings.TrimSuffix(name, ".cast"),
			Open: func() (io.ReadCloser, error) { return b.recordings().Open(thread, r.ID) },
		})
	}
	return p
}

func exportCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "export THREAD", Short: "Write the record of a thread as a zip: timeline, commands, approvals, proof, outputs, recordings",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return config.Errorf("export needs one thread, such as web:01J9 or slack:T1:C1:1700000000.0001")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			log, err := newLog(e, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			b := &bot{env: e, file: f, log: log}
			b.redactor = redact.New(b.env.Secrets()...)
			b.redact = b.redactor.Redact
			b.db, err = openStore(cmd.Context(), e)
			if errors.Is(err, store.ErrLocked) {
				return fmt.Errorf("the bot is running and holds its store; say `export` in the thread, or stop the bot first")
			}
			if err != nil {
				return err
			}
			defer func() { _ = b.db.Close() }()
			b.outputs = output.New(output.Config{Dir: filepath.Join(e.DataDir, "outputs"), DB: others(e, b.db)})
			thread := chat.ThreadID(args[0])
			inc, err := b.incident(cmd.Context(), thread)
			if err != nil {
				return err
			}
			if len(inc.Entries) == 0 {
				return fmt.Errorf("there is no thread %s in this store; check the id and COUNTERSIGN_DATA_DIR", args[0])
			}
			w := cmd.OutOrStdout()
			if out != "" {
				f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return fmt.Errorf("the archive cannot be written: %w", err)
				}
				defer func() { _ = f.Close() }()
				w = f
			}
			return report.Export(cmd.Context(), w, inc, b.parts(thread, 0))
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "new file for the archive instead of standard output")
	return c
}
