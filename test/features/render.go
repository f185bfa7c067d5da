package main

import (
	"fmt"
	"strings"
)

// most is how many tests a row names.
const most = 3

// render writes the document.
func render(list []row, shows map[string][]test) string {
	var b strings.Builder
	shown, open := 0, 0
	for _, r := range list {
		if r.open != "" {
			open++
		} else if len(shows[r.id]) > 0 {
			shown++
		}
	}
	b.WriteString("# Features\n\n<!-- Written by go generate ./test/features; edit test/features/rows.tsv and the tests. -->\n\n")
	fmt.Fprintf(&b, "Four systems of agents and tools, and the project's own design card, say what this bot does: %d rows.\n", len(list))
	fmt.Fprintf(&b, "%d have a test that carries the row's id; %d are open, in whole or in part. Where two systems contradict each\n", shown, open)
	fmt.Fprintf(&b, "other, a row says what holds here. At most %s tests are named, those of the built program first.\n",
		[...]string{"no", "one", "two", "three"}[most])
	for _, fam := range families() {
		fmt.Fprintf(&b, "\n## %s\n\n| row | what it is | tests |\n|---|---|---|\n", fam.name)
		for _, r := range list {
			if strings.HasPrefix(r.id, fam.letter+"-") {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", r.id, r.what, cell(r, shows[r.id]))
			}
		}
	}
	return b.String()
}

func cell(r row, tests []test) string {
	var parts []string
	if r.open != "" {
		parts = append(parts, "open: "+r.open)
	}
	for _, t := range tests[:min(len(tests), most)] {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "<br>")
}
