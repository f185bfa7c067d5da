package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/agent/report"
	"countersign/bot"
	"countersign/bot/desk"
	"countersign/bot/machines"
	"countersign/cli"
	"countersign/config"
	"countersign/config/storage"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/tools/output"
)

const (
	recordPath = "/store/export"
	recordKey  = "export"
)

// errNoThread is what a store says that doesn't have a thread.
var errNoThread = errors.New("there is no thread")

// exportThread writes the record of a thread as a zip.
func exportThread(ctx context.Context, w io.Writer, r desk.Records, thread chat.ThreadID) error {
	inc, err := r.Incident(ctx, thread)
	if err != nil {
		return err
	}
	if len(inc.Entries) == 0 {
		return fmt.Errorf("%w %s in this store; check the id and COUNTERSIGN_DATA_DIR", errNoThread, thread)
	}
	return report.Export(ctx, w, inc, r.Parts(thread, 0))
}

// recordHandler serves the records of threads of a running bot, which holds the store.
func recordHandler(s bot.Site) http.Handler {
	x := newExporter(s.DB, keyring.Derive(s.Key, recordKey), nil, s.Log)
	x.write = func(ctx context.Context, out io.Writer, q url.Values) error {
		return exportThread(ctx, out, s.Records, chat.ThreadID(q.Get("thread")))
	}
	return x
}

// ExportCommand is the command export.
func ExportCommand() *cobra.Command {
	var out, base string
	c := &cobra.Command{
		Use: "export THREAD", Short: "Write the record of a thread as a zip, while the bot runs or not: timeline, commands, approvals, proof, outputs, recordings",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return config.Errorf("export needs one thread, such as web:01J9 or slack:T1:C1:1700000000.0001")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			log, err := e.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if out != "" {
				f, bad := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if bad != nil {
					return fmt.Errorf("the archive cannot be written: %w", bad)
				}
				w = f
				defer func() {
					if err = errors.Join(err, f.Close()); err != nil {
						_ = os.Remove(out) // it isn't whole
					}
				}()
			}
			db, err := storage.OpenExisting(cmd.Context(), e)
			if errors.Is(err, store.ErrLocked) {
				return fetch(cmd.Context(), e, base, recordPath, url.Values{"thread": args}, w)
			}
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			return exportThread(cmd.Context(), w, desk.Records{
				DB: db, Redactor: redact.New(e.Secrets(f)...), Log: log,
				Outputs:    output.New(output.Config{Dir: filepath.Join(e.DataDir, "outputs"), DB: storage.Shared(e, db)}),
				Recordings: machines.Recordings{DataDir: e.DataDir, Targets: slices.Collect(maps.Keys(f.Targets))},
			}, chat.ThreadID(args[0]))
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "new file for the archive instead of standard output")
	c.Flags().StringVar(&base, "url", "", cli.URLFlag)
	return c
}
