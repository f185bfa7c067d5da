package admin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"countersign/cli"
	"countersign/config"

	"countersign/approvals/risk"
)

// Classification says how Classify judges.
type Classification struct {
	JSONL bool   // the lines are objects {"command": "..."}
	Lock  string // "enforced" or "none": whether the kernel holds what runs
	Shell string // "bash", "posix" or "any": what reads the commands
	Dir   string // absolute, or "" where it is not known
}

// Classify judges the commands of s.In, one a line, and writes a JSON object a line. The
// configuration file that COUNTERSIGN_CONFIG names counts.
func Classify(s cli.Streams, k Classification) error {
	t, err := textOf(k.Lock, k.Shell, k.Dir)
	if err != nil {
		return err
	}
	engine, err := configuredEngine(os.Getenv("COUNTERSIGN_CONFIG"))
	if err != nil {
		return err
	}
	return classify(s.In, s.Out, engine, t, k.JSONL)
}

// textOf returns the text that the flags describe, without a command.
func textOf(lock, shell, dir string) (risk.Text, error) {
	t := risk.Text{Dir: dir, Environ: true}
	switch lock {
	case "enforced":
		t.Locked = true
	case "none":
	default:
		return t, config.Errorf("--lock is %q; use enforced or none", lock)
	}
	switch shell {
	case "bash":
		t.Shell = risk.Bash
	case "posix":
		t.Shell = risk.POSIX
	case "any":
		t.Shell = risk.AnyShell
	default:
		return t, config.Errorf("--shell is %q; use bash, posix or any", shell)
	}
	if dir != "" && !path.IsAbs(dir) {
		return t, config.Errorf("--dir is %q; write an absolute path", dir)
	}
	return t, nil
}

// configuredEngine is the classifier with what the file at path adds to it; ""
// adds nothing.
func configuredEngine(path string) (*risk.Engine, error) {
	f, err := config.ReadFile(path)
	if err != nil {
		return nil, err
	}
	engine, err := risk.New(f.Risk)
	if err != nil {
		return nil, config.Errorf("%s: %v", path, err)
	}
	return engine, nil
}

// classify judges each line of in and writes a JSON object a line to out.
func classify(from io.Reader, to io.Writer, engine *risk.Engine, t risk.Text, jsonl bool) error {
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
					return config.Errorf(`line %d is not an object like {"command": "..."}`, n)
				}
				command = *row.Command
			}
			t.Command = command
			_, v := risk.Settle(engine.Judge, t) // as the bot plans it
			if eerr := enc.Encode(v); eerr != nil {
				return eerr
			}
		}
		if err != nil {
			return out.Flush()
		}
	}
}
