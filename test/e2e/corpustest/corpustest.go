// Package corpustest reads lists of commands and texts that tests try: what is committed
// beside a test, and public collections in a folder that COUNTERSIGN_CORPORA names,
// which are not committed since their licences differ.
//
// It does not judge or run what it reads.
package corpustest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Row is a line of a .tsv file: command, label and source, with tabs between them.
type Row struct {
	Command string
	Label   string // "look", "change", "outside" (sends something to another party) or "attack"
	Source  string
}

// Quoted returns the command on one line, as Read takes it.
func (r Row) Quoted() string {
	if !strings.ContainsAny(r.Command, "\n\t\r") && !strings.HasPrefix(r.Command, `"`) && !strings.HasPrefix(r.Command, "#") {
		return r.Command
	}
	b, err := json.Marshal(r.Command)
	if err != nil {
		return r.Command
	}
	return string(b)
}

// Dir returns the folder with the public collections. It skips the test when there is none.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("COUNTERSIGN_CORPORA")
	if dir == "" {
		t.Skip("public collections are not committed: set COUNTERSIGN_CORPORA to a folder that has them")
	}
	return dir
}

// Read reads a .tsv file. Lines that begin with # are comments; a command that begins
// with a double quote is a JSON string.
func Read(file string) ([]Row, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []Row
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		cells := strings.Split(text, "\t")
		if len(cells) != 3 {
			return nil, fmt.Errorf("%s:%d: a line is command, label and source with tabs between them, not %d cells", file, n, len(cells))
		}
		if strings.HasPrefix(cells[0], `"`) {
			var s string
			if err := json.Unmarshal([]byte(cells[0]), &s); err != nil {
				return nil, fmt.Errorf("%s:%d: the command is no JSON string: %w", file, n, err)
			}
			cells[0] = s
		}
		rows = append(rows, Row{Command: cells[0], Label: cells[1], Source: cells[2]})
	}
	return rows, lines.Err()
}

// ReadAll reads all .tsv files of a folder, by name.
func ReadAll(dir string) ([]Row, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil {
		return nil, err
	}
	var all []Row
	for _, file := range files {
		rows, err := Read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}
