package admin

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/agent/report"
	"countersign/bot/desk"
	"countersign/bot/machines"
	"countersign/internal/config"
	"countersign/internal/redact"
	"countersign/internal/storage"
	"countersign/store"
	"countersign/tools/output"
)

// ExportCommand is the command export.
func ExportCommand() *cobra.Command {
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
			log, err := e.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			db, err := storage.OpenExisting(cmd.Context(), e)
			if errors.Is(err, store.ErrLocked) {
				return fmt.Errorf("the bot is running and holds its store. Stop it to write all of the record; the word `export` in the thread posts what fits there")
			}
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			r := desk.Records{
				DB: db, Redactor: redact.New(e.Secrets(f)...), Log: log,
				Outputs:    output.New(output.Config{Dir: filepath.Join(e.DataDir, "outputs"), DB: storage.Shared(e, db)}),
				Recordings: machines.Recordings{DataDir: e.DataDir, Targets: slices.Collect(maps.Keys(f.Targets))},
			}
			thread := chat.ThreadID(args[0])
			inc, err := r.Incident(cmd.Context(), thread)
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
			return report.Export(cmd.Context(), w, inc, r.Parts(thread, 0))
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "new file for the archive instead of standard output")
	return c
}
