package main

import (
	_ "embed" // rows.tsv
	"fmt"
	"strings"
)

//go:embed rows.tsv
var rowsFile string

// row is one feature of one of the documents.
type row struct {
	id   string // like B-04 or B-104
	what string // what holds here, in a few words
	// open is why the row has no test, or not all of one; empty for a row that is done.
	open string
}

// family is the document that rows come from.
type family struct{ letter, name string }

// families returns the documents in the order in which they are written down.
func families() []family {
	return []family{{"B", "Buddy"}, {"N", "nickcecere/agent"}, {"Q", "Qbit"}, {"X", "Matrix-CLI"}, {"D", "The design card"}}
}

// parseRows reads lines of "id, what, state", parted by tabs. Empty lines and those
// that begin with # say nothing.
func parseRows(text string) ([]row, error) {
	var out []row
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		if len(cells) != 3 {
			return nil, fmt.Errorf("rows.tsv line %d has %d cells; write id, what and state, parted by tabs", n, len(cells))
		}
		r := row{id: cells[0], what: cells[1]}
		if ids := idsInText(r.id); len(ids) != 1 || ids[0] != r.id {
			return nil, fmt.Errorf("rows.tsv line %d: %q is no id; write a letter of a family, a hyphen and two or three digits", n, r.id)
		}
		if seen[r.id] {
			return nil, fmt.Errorf("rows.tsv line %d: %s is there twice; take one away", n, r.id)
		}
		seen[r.id] = true
		if strings.TrimSpace(r.what) == "" || strings.Contains(r.what, "|") {
			return nil, fmt.Errorf("rows.tsv line %d: say what %s is, without a vertical bar", n, r.id)
		}
		if cells[2] != "" {
			why, ok := strings.CutPrefix(cells[2], "open: ")
			if !ok || strings.TrimSpace(why) == "" || strings.Contains(why, "|") {
				return nil, fmt.Errorf("rows.tsv line %d: the state of %s is %q; leave it empty or write \"open: \" and why", n, r.id, cells[2])
			}
			r.open = why
		}
		out = append(out, r)
	}
	return out, nil
}
