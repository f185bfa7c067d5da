package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"countersign/approvals/risk"
)

func classifyCommand() *cobra.Command {
	var jsonl bool
	c := &cobra.Command{
		Use: "classify", Short: "Judge commands from standard input, one a line; a JSON object a line comes out",
		Long: "Judge commands from standard input, one a line; a JSON object a line comes out.\n" +
			"Where COUNTERSIGN_CONFIG names a file, the tables that its risk key adds count too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			engine, err := configuredEngine(os.Getenv("COUNTERSIGN_CONFIG"))
			if err != nil {
				return err
			}
			return classify(cmd.InOrStdin(), cmd.OutOrStdout(), engine, jsonl)
		},
	}
	c.Flags().BoolVar(&jsonl, "jsonl", false, `read objects {"command": "..."} instead of plain lines`)
	return c
}

// configuredEngine is the classifier with what the file at path adds to it; ""
// adds nothing.
func configuredEngine(path string) (*risk.Engine, error) {
	f, err := readFile(path)
	if err != nil {
		return nil, err
	}
	engine, err := risk.New(f.Risk)
	if err != nil {
		return nil, usage("%s: %v", path, err)
	}
	return engine, nil
}

// classify judges each line of in and writes a JSON object a line to out.
func classify(from io.Reader, to io.Writer, engine *risk.Engine, jsonl bool) error {
	in := bufio.NewReaderSize(from, 64<<10)
	out := bufio.NewWriter(to)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input cannot be read: %w", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if line != "" || err == nil {
			command := line
			if jsonl {
				if strings.TrimSpace(line) == "" {
					continue // the end comes with the next read, if it does
				}
				var row struct {
					Command *string `json:"command"`
				}
				if jerr := json.Unmarshal([]byte(line), &row); jerr != nil || row.Command == nil {
					return usage(`line %d is not an object like {"command": "..."}`, n)
				}
				command = *row.Command
			}
			if eerr := enc.Encode(engine.Classify(command)); eerr != nil {
				return eerr
			}
		}
		if err != nil {
			return out.Flush()
		}
	}
}
