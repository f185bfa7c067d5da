package admin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"countersign/cli"
)

// root is the program with the commands of this package.
func root() *cobra.Command {
	return cli.Root(AuditCommand(), PolicyCommand(), StoreCommand(), BackupCommand(), RestoreCommand(), ClassifyCommand(), ExportCommand())
}

// write puts a configuration into a file.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bot.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
