// Command features writes docs/features.md: every row of the documents that this bot
// implements, what it is, and the tests that show it. The rows are in rows.tsv. A
// test says which rows it shows by their ids: in its name (TestB04B05..., TestX09ToX12...),
// in a comment, in the name of a case ("N-18 50 KB"), or anywhere in a script (*.txtar).
//
// It does not run the tests, and it does not judge whether one really shows its row:
// who writes an id beside a test answers for that.
//
//	go run ./test/features > docs/features.md    from the root of the repository
//	go generate ./test/features                  the same
package main

//go:generate go run . -root ../.. -w

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "features:", err)
		os.Exit(1)
	}
}

// document is where -w writes, below the root of the repository.
const document = "docs/features.md"

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("features", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the root of the repository")
	write := flags.Bool("w", false, "write "+document+" below the root, in the place of standard output")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := parseRows(rowsFile)
	if err != nil {
		return err
	}
	f, err := scan(*root)
	if err != nil {
		return err
	}
	text := render(list, f.shows)
	if *write {
		return os.WriteFile(filepath.Join(*root, filepath.FromSlash(document)), []byte(text), 0o644)
	}
	_, err = io.WriteString(stdout, text)
	return err
}
