package workflow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// Observed takes the output and the exit code out of a tool's result as a model is given
// it: the envelope of package tools around the value of run_shell (standard output, or
// standard error where that is empty) or bash, any other value, or the text of an error.
// The exit code is nil where the result has none.
func Observed(result string) (output string, exitCode *int) {
	var env struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal([]byte(result), &env) != nil || len(env.Result) == 0 {
		return strings.TrimPrefix(result, "Tool error: "), nil
	}
	var text string
	if json.Unmarshal(env.Result, &text) == nil {
		if m := exitLine.FindStringSubmatch(text); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				return strings.TrimSuffix(text, m[0]), &n
			}
		}
		return text, nil
	}
	var shell struct {
		ExitCode *int    `json:"exit_code"`
		Stdout   *string `json:"stdout"`
		Stderr   string  `json:"stderr"`
	}
	if json.Unmarshal(env.Result, &shell) == nil && shell.Stdout != nil {
		if strings.TrimSpace(*shell.Stdout) == "" {
			return shell.Stderr, shell.ExitCode
		}
		return *shell.Stdout, shell.ExitCode
	}
	var b bytes.Buffer
	if json.Compact(&b, env.Result) != nil {
		return result, nil
	}
	return b.String(), nil
}

// exitLine ends what the tool bash returns for a command that failed.
var exitLine = regexp.MustCompile(`(?:^|\n)\[exit code: ([0-9]{1,3})\]$`)
